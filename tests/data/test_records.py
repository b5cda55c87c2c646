"""Records: what is refused, what is private, what is split, and their files of zeros and ones or grey values."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from refusals import refused

from dpgen.data import load_records
from dpgen.data.records import MAX_CLASSES, Records, class_labels, split_records
from dpgen.data.split import Split
from dpgen.facts import Fact

EYE = torch.eye(6, dtype=torch.uint8)
ONES = torch.ones(2, 6, dtype=torch.uint8)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def numbered(n: int, bits: int = 10) -> torch.Tensor:
    """Records that are all different: the binary digits of 0..n-1."""
    return ((torch.arange(n)[:, None] >> torch.arange(bits)) & 1).to(torch.uint8)


def as_numbers(x: torch.Tensor) -> list[int]:
    return (x.long() << torch.arange(x.shape[1])).sum(1).tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(6, dtype=torch.uint8)}, "x has shape (6,)"),
        ({"x": torch.zeros(3, 0, dtype=torch.uint8)}, "x has shape (3, 0)"),
        ({"x": EYE * 2}, "x has another value in row 1, column 1"),
        ({"x": EYE.float()}, "x has dtype torch.float32"),
        ({"test_x": ONES[:, :5]}, "test_x has 5 features, x has 6"),
        ({"test_x": ONES * 3}, "test_x has another value in row 1"),
        ({"labels": LABELS, "n_classes": 0, "test_labels": LABELS[:2]}, "n_classes is 0 with labels"),
        ({"labels": LABELS, "n_classes": 3}, "test_labels is missing but labels is given"),
        ({"labels": LABELS[:5], "test_labels": LABELS[:2], "n_classes": 3}, "labels has shape (5,)"),
        ({"labels": LABELS, "test_labels": LABELS[:2], "n_classes": 2}, "labels has a label outside [0, 1]"),
        ({"labels": -LABELS, "test_labels": LABELS[:2], "n_classes": 3}, "labels has a label outside [0, 2]"),
        ({"labels": LABELS.int(), "test_labels": LABELS[:2], "n_classes": 3}, "dtype torch.int32"),
        ({"n_classes": 3}, "n_classes is 3 without labels"),
        ({"image_shape": (2, 2)}, "image_shape 2 x 2 has 4 pixels, the records have 6"),
        ({"columns": ["a"]}, "columns has 1 names, the records have 6"),
        (
            {"columns": list("abcdef"), "x": EYE + torch.diag(torch.tensor([0, 0, 1, 0, 0, 0])).byte()},
            "x has another value in row 3, column 'c'",
        ),
        ({"labels": LABELS, "test_labels": LABELS[:2], "n_classes": 3, "class_names": ("a",)}, "class_names has 1 names"),
    ],
)
def test_records_refuse(changes: dict, message: str) -> None:
    with refused(message):
        Records(**{"name": "bad", "x": EYE, "test_x": ONES, **changes})


def test_representation_shows_no_record() -> None:
    text = repr(Records("six", EYE, ONES, labels=LABELS, test_labels=LABELS[:2], n_classes=3, image_shape=(2, 3)))
    assert text == "Records('six': 6 private, 2 test records of 6 binary features, 3 classes)"
    assert "tensor" not in text


def test_split_is_a_partition_and_keeps_labels() -> None:
    x = numbered(100)
    split = Split.public(5, 0.3)
    records = split_records("all", x, labels=torch.arange(100), n_classes=100, split=split)
    assert (records.n, len(records.test_x)) == (100 - int(split.test_rows(100).sum()), int(split.test_rows(100).sum()))
    assert sorted(as_numbers(records.x) + as_numbers(records.test_x)) == list(range(100))
    assert as_numbers(records.x) == records.labels.tolist()
    assert as_numbers(records.test_x) == records.test_labels.tolist()
    assert Fact.TEST_PART in tiny.told(records)


def test_split_refuses_wrong_labels_and_no_number_of_records() -> None:
    with refused("labels has length 3, x has 6"):
        split_records("a", EYE, labels=LABELS[:3], n_classes=3)
    for n in (0, 1, 2):
        records = split_records("a", EYE[:n], labels=LABELS[:n], n_classes=3)
        assert records.n + len(records.test_x) == n


def table(n: int = 20) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "a": rng.integers(0, 2, n),
            "flag": rng.integers(0, 2, n).astype(bool),
            "kind": rng.choice(["no", "yes"], n),
            "c": rng.integers(0, 2, n).astype(float),
        }
    )


def rows(records) -> list[list[int]]:
    return sorted(records.x.tolist() + records.test_x.tolist())


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_tables_round_trip(tmp_path: Path, form: str) -> None:
    path, frame = str(tmp_path / f"people.{form}"), table()
    frame.to_parquet(path) if form == "parquet" else frame.to_csv(path, index=False)
    records = load_records(path=path, label_column="kind")
    assert (records.name, records.columns, records.class_names) == ("people", ["a", "flag", "c"], ("no", "yes"))
    assert (records.n + len(records.test_x), records.n_classes) == (20, 2)
    everything = torch.cat([records.x, records.test_x])
    labels = torch.cat([records.labels, records.test_labels])
    expected = frame[["a", "flag", "c"]].astype(int).assign(kind=(frame["kind"] == "yes").astype(int))
    assert sorted(torch.cat([everything.long(), labels[:, None]], 1).tolist()) == sorted(expected.to_numpy().tolist())
    assert tiny.told(records)[Fact.READ_CLASSES] == {"k": 2}


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, bool])
def test_npy(tmp_path: Path, dtype: type) -> None:
    x = np.random.default_rng(0).integers(0, 2, (15, 6)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    records = load_records(path=str(tmp_path / "x.npy"), image_shape=(2, 3))
    assert (rows(records), records.image_shape, records.labels) == (sorted(x.astype(int).tolist()), (2, 3), None)


@pytest.mark.parametrize(("dtype", "white"), [(np.uint8, 255), (np.int64, 255), (np.float32, 1)])
def test_grey_values(tmp_path: Path, dtype: type, white: int) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (15, 6))
    np.save(tmp_path / "x.npy", (grey if white == 255 else grey / 255).astype(dtype))
    records = load_records(path=str(tmp_path / "x.npy"), grey_threshold=99, test_fraction=0.0)
    assert records.grey is not None
    assert records.form is not None
    assert (records.grey.tolist(), records.grey_threshold, records.form.white) == (grey.tolist(), 99, white)
    assert torch.equal(records.x, (records.grey > 99).to(torch.uint8))


@pytest.mark.parametrize("column", [4, -1])
def test_npy_label_column(tmp_path: Path, column: int) -> None:
    x = np.random.default_rng(0).integers(0, 2, (30, 5))
    x[:, 4] = np.arange(30) % 3 * 10
    np.save(tmp_path / "x.npy", x)
    records = load_records(path=str(tmp_path / "x.npy"), label_column=column)
    assert (records.d, records.n_classes, records.class_names) == (4, 3, ("0", "10", "20"))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n", {}, "is empty"),
        ("a,b\n0,1\n1,39\n", {}, "column 'b' has another value in row 2: only 0 and 1 are supported"),
        ("a,b\n0,1\n1,0.5\n", {}, "column 'b' has another value in row 2"),
        ("a,b\n0,1\n1,inf\n", {}, "column 'b' has another value in row 2"),
        ("a,b\n0,x\n1,0\n", {}, "column 'b' has another value in row 1"),
        ("a,b\n0,\n1,0\n", {}, "column 'b' has no value in row 1: fill it, or choose missing=drop"),
        ("a,b\n0,1\n1,0\n", {"label_column": "c"}, "has no column 'c'"),
        ("a,b\n0,1\n1,\n", {"label_column": "b"}, "column 'b' has no value in row 2: "),
        ("b\n0\n1\n", {"label_column": "b"}, "has no 0/1 columns"),
        ("0,1,1\n1,0,0\n1,1,1\n", {}, "it has 2 columns called '1'"),
        ("0,1\n1,0\n", {}, "has no header"),
        ("a,b\n0,1\n1,1\n", {"image_shape": (3, 3)}, "image_shape 3 x 3 has 9 pixels"),
        ("a,b\n0,9\n1,256\n", {"grey_threshold": 127}, "column 'b' has another value in row 2: grey values are whole numbers"),
        ("a,b\n0,1\n1,1\n", {"grey_threshold": 127}, "no value above 1, and grey values go from 0 to 255"),
        ("a,b\n0,9\n1,1\n", {"grey_threshold": 255}, "grey_threshold is 255"),
    ],
)
def test_csv_is_refused(tmp_path: Path, text: str, options: dict, message: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with refused(message):
        load_records(path=str(tmp_path / "bad.csv"), **options)


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.array([[0, 1], [np.nan, 1]]), {}, "column '0' has no value in row 2"),
        (np.array([[0, 1], [1, 2]]), {}, "column '1' has another value in row 2"),
        (np.array([{"a": 1}], dtype=object), {}, "cannot be read as npy"),
        ({"a": np.zeros((2, 2))}, {}, "it must hold one array"),
        (b"\x80\x02not it\xff", {}, "cannot be read as npy"),
    ],
)
def test_npy_is_refused(tmp_path: Path, array: Any, options: dict, message: str) -> None:
    path = tmp_path / ("bad.npz" if isinstance(array, dict) else "bad.npy")
    if isinstance(array, bytes):
        path.write_bytes(array)
    else:
        np.savez(path, **array) if isinstance(array, dict) else np.save(path, array, allow_pickle=True)
    with refused(message):
        load_records(path=str(path), **options)


def test_class_labels() -> None:
    codes, names = class_labels(pd.Series([30, 4, 30], name="y"))
    assert (codes.tolist(), names) == ([1, 0, 1], ("4", "30"))
    codes, names = class_labels(pd.Series(["b", 1, "b"], name="y", dtype=object))
    assert (codes.tolist(), names) == ([1, 0, 1], ("1", "b"))
    with pytest.raises(ValueError, match=f"label_column 'y' has {MAX_CLASSES + 1} distinct values: at most {MAX_CLASSES}"):
        class_labels(pd.Series(range(MAX_CLASSES + 1), name="y"))
