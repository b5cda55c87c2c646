"""Data in memory: what goes in comes out alike, from the same loaders as files."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
import tiny
import torch
from pyarrow import parquet
from refusals import refused
from scipy.sparse import csr_matrix, issparse
from torch.utils.data import Dataset, TensorDataset

import dpgen
from dpgen.containers import Form, as_type, in_memory
from dpgen.data import load_records, load_sets
from dpgen.facts import Fact
from dpgen.samples import RecordSamples

N, D = 120, 6
X = np.random.default_rng(1).integers(0, 2, (N, D))


class Pairs(Dataset[Any]):
    """Images of 2 x 3 with the class of the first pixel."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.tensor(X[i].reshape(2, 3)).float(), int(X[i, 0])


def fitted(data: Any, **options: Any) -> Any:
    return dpgen.fit(data, "marginals", epsilon=2.0, **options).sample(40, random_state=0)


TYPES: dict[str, Any] = {"b": bool, "c": "category", "d": "float32", "e": "boolean", "f": object}
FRAME = pd.DataFrame(X, columns=list("abcdef")).astype(TYPES)
ARROW = pyarrow.table({"a": X[:, 0], "b": X[:, 1].astype(bool), "c": pyarrow.array(X[:, 2], pyarrow.int8())})


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (FRAME, lambda d: (type(d), d.columns.tolist(), [str(t) for t in d.dtypes])),
        (FRAME["b"], lambda d: (type(d), d.name, d.dtype)),
        (ARROW, lambda d: (type(d), d.schema.names, d.schema.types)),
        (polars.from_arrow(ARROW), lambda d: (type(d), d.schema)),
        (X, lambda d: (type(d), d.dtype, d.shape[1:])),
        (X.astype(np.float32).reshape(N, 2, 3), lambda d: (type(d), d.dtype, d.shape[1:])),
        (torch.tensor(X), lambda d: (type(d), d.dtype, d.shape[1:])),
        (torch.tensor(X).bool().reshape(N, 1, 2, 3), lambda d: (type(d), d.dtype, d.shape[1:])),
        (csr_matrix(X), lambda d: (issparse(d), d.dtype, d.shape[1])),
        ([set(np.flatnonzero(row).tolist()) for row in X], lambda d: (type(d), {type(i) for items in d for i in items})),
        ([{"tea", "rum"}, {"rum"}] * 60, lambda d: (type(d), {type(i) for items in d for i in items})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_samples_come_back_as_the_data_came(data: Any, seen: Callable[[Any], Any]) -> None:
    assert seen(fitted(data, dtypes="public")) == seen(data)


def test_data_sets_come_back_as_images_and_labels() -> None:
    back = fitted(Pairs())
    assert isinstance(back, TensorDataset)
    x, y = back.tensors
    assert (x.shape, x.dtype, y.dtype) == ((40, 2, 3), torch.float32, torch.int64)
    assert fitted(TensorDataset(torch.tensor(X))).tensors[0].shape == (40, D)


@pytest.mark.parametrize(
    "label",
    [
        np.where(X[:, 0], "yes", "no"),
        pd.Categorical(np.where(X[:, 0], "yes", "no")),
        X[:, 0].astype(bool),
        X[:, 0] + 3,
        X[:, 0] / 2,
        pd.to_datetime(np.where(X[:, 0], "2020-01-01", "2021-01-01")),
    ],
    ids=lambda label: str(label.dtype),
)
def test_labels_keep_values_type_and_place(label: Any) -> None:
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame.insert(2, "y", label)
    back = fitted(frame, label_column="y", dtypes="public")
    assert back.dtypes.tolist() == frame.dtypes.tolist()
    assert back.columns.tolist() == frame.columns.tolist()
    assert set(back["y"]) <= set(frame["y"])


def test_which_categories_occur_is_not_part_of_the_form() -> None:
    ones = pd.DataFrame({"a": pd.Categorical([1] * 50), "b": [0, 1] * 25})
    back = fitted(ones)
    assert back["a"].cat.categories.tolist() == [0, 1]
    assert "1" not in str(in_memory(ones).form.types)


def test_missing_whole_numbers_do_not_change_a_type(tmp_path: Path) -> None:
    """pandas shows them in the type of a column; the form has the type of the schema."""
    forms = []
    for value in (1, None):
        table = pyarrow.table({"a": pyarrow.array([1, 0, value], pyarrow.int64())})
        parquet.write_table(table, tmp_path / "t.parquet")
        forms.append(load_records(path=str(tmp_path / "t.parquet"), missing="drop", test_fraction=0.0).form)
    assert forms[0] == forms[1]


def test_memory_and_files_are_one_reader(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame.to_parquet(tmp_path / "f.parquet")
    inside = load_records(path=in_memory(frame), label_column="b", test_fraction=0.0)
    outside = load_records(path=str(tmp_path / "f.parquet"), label_column="b", test_fraction=0.0)
    assert torch.equal(inside.x, outside.x)
    assert (inside.form, inside.facts) == (outside.form, outside.facts)


def test_items_may_be_named_from_outside() -> None:
    records = load_sets(path=in_memory([{"b"}, {"a", "b"}]), items=["a", "b", "c"], test_fraction=0.0)
    assert records.x.tolist() == [[0, 1, 0], [1, 1, 0]]
    assert Fact.READ_ITEMS not in tiny.told(records)
    assert Fact.READ_ITEMS in tiny.told(load_sets(path=in_memory([{"b"}])))
    with refused("top_items is 2 and items is ['a']"):
        load_sets(path=in_memory([{"b"}]), items=["a"], top_items=2)
    back = dpgen.fit([{1, 2}, {2}] * 30, "marginals", epsilon=1.0, items=[1, 2, 3]).sample(50)
    assert set().union(*back) <= {1, 2, 3}


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (3, "data is an int"),
        ([{"a": 1}, {"b": 1}], "list of mappings has mappings of several keys"),
        ({"a": [1, 2], "b": [1]}, "mapping of lists has lists of several lengths"),
        (np.array(["a", "b"]), "array is <U1 (2,)"),
        (np.array([1j]), "array is complex128"),
        ([{1.5}], "list of sets has an item of type float in row 1"),
        ([{1}, {"a"}], "list of sets has items that are texts and items that are integers"),
        ([[1, 2], [3]], "data is a list of no one shape"),
        (torch.zeros(2, 2, dtype=torch.bfloat16), "tensor has dtype torch.bfloat16"),
    ],
)
def test_other_data_are_refused(data: Any, match: str) -> None:
    with refused(match):
        in_memory(data)


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (["a", "a"], "DataFrame has 2 columns called 'a'"),
        ([1, "1"], "DataFrame has 2 columns called '1'"),
        ([("a", 1), ("a", 2)], " names must be texts or whole numbers"),
        ([None, "a"], " names must be texts or whole numbers"),
    ],
)
def test_names_are_texts_or_numbers_and_differ(columns: list[Any], match: str) -> None:
    frame = pd.DataFrame(X[:, :2])
    frame.columns = pd.Index(columns)
    with refused(match):
        in_memory(frame)


def test_values_stay_in_the_range_of_their_type() -> None:
    drawn = pd.Series([-3.7, 0.4, 999.0])
    assert as_type(drawn, "int8").tolist() == [-4, 0, 127]
    assert as_type(drawn, "UInt8").tolist() == [0, 0, 255]
    assert as_type(drawn, "boolean").tolist() == [False, False, True]
    assert as_type(drawn, "").equals(drawn)
    assert as_type(pd.Series(["x"]), "int64").tolist() == ["x"], "what a type cannot hold stays"


def test_categories_that_no_schema_names_are_those_that_were_drawn() -> None:
    ages = pd.DataFrame({"age": pd.Categorical([30, 40, 50] * 20)})
    back = dpgen.fit(ages, "merr", epsilon=5.0, low=0, high=60).sample(50, 0)
    assert back["age"].notna().all()
    assert set(back["age"].cat.categories) == set(back["age"])


def test_forms_survive_files() -> None:
    form = Form(container="pandas", names=("a", 3), types=("int64", "bool"), categories={"a": ("x",)}, shape=(2, 3))
    assert Form.from_dict(form.to_dict()) == form


def test_columns_that_are_not_modelled_are_left_out() -> None:
    form = Form(container="pandas", names=("a", "y"), types=("int64",), label="y", categories={"y": ("no", "yes")})
    samples = RecordSamples(x=torch.ones(2, 1, dtype=torch.uint8), cluster=torch.zeros(2).long(), columns=("a",))
    assert samples.in_form(form).columns.tolist() == ["a"]


def test_objects_with_an_arrow_stream_are_tables() -> None:
    stream = SimpleNamespace(__arrow_c_stream__=ARROW.__arrow_c_stream__)
    assert in_memory(stream).content.equals(ARROW)
