"""Columns whose values repeat, which DuckDB groups once: sums over rows are made of the different values."""

from functools import partial
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from pyarrow import parquet

from dpgen.columns.axes import axis_of
from dpgen.columns.votes import size, votes
from dpgen.containers import in_memory
from dpgen.data import batches
from dpgen.data.batches import EngineBatches, EngineRows, GroupedColumn, _coded, _each
from dpgen.data.engines import open_table
from dpgen.data.raw_tables import Rows
from dpgen.schema import Schema
from dpgen.systems.tables.discovery import units_of
from dpgen.systems.tables.domains import cells

N = 3000
KINDS: dict[str, tuple[Any, str]] = {
    "floats": (np.array([0.0, -0.0, np.nan, 1e300, -2.5, np.inf, 0.1]), "number"),
    "whole": (pd.array([5, None, -3, 2**61], dtype="Int64"), "integer"),
    "texts": (np.array(["b", "a", None, "", "1", "\u00fc"], object), "string"),
    "days": (pd.to_datetime(["2020-01-01", None, "1969-12-31"]), "date"),
    "truths": (pd.array([True, None, False], dtype="boolean"), "boolean"),
}


def frame() -> pd.DataFrame:
    """Columns of few values, in numbers of rows of all sizes, and one without repeated values."""
    rng = np.random.default_rng(0)
    made = {name: pd.Series(values).take((rng.random(N) ** 3 * len(values)).astype(int)) for name, (values, _) in KINDS.items()}
    return pd.DataFrame({name: own.reset_index(drop=True) for name, own in made.items()}).assign(other=rng.random(N))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("grouped") / "all.parquet"
    table = pyarrow.Table.from_pandas(frame())
    floats = pyarrow.array(frame()["floats"].to_numpy(), from_pandas=False)  # NaN stays beside null
    parquet.write_table(table.set_column(0, "floats", floats), path)
    return open_table(f"{path}*")


@pytest.mark.parametrize("name", [*KINDS])
def test_sums_of_a_grouped_column_are_those_of_its_rows(source: Any, name: str) -> None:
    kind = KINDS[name][1]
    grouped = EngineRows(source).column(name, partial(votes, kind=kind))
    plain = EngineBatches(source.columns([name]), partial(_each, change=lambda table: votes(table[name], kind)), size=128)
    assert isinstance(grouped, GroupedColumn)
    found, expected = (cells(values, lambda cell: cell, size()).values for values in (grouped, plain))
    assert torch.equal(found, expected)
    assert int(expected.sum()) == N
    one, other = grouped.different(), plain.different()
    assert one.counts.tolist() == other.counts.tolist()
    places = np.arange(len(one.counts))
    assert one.named(places).tolist() == other.named(places).tolist()
    assert one.named(places[:0]).tolist() == []


def test_values_that_are_left_out_are_left_out_of_groups(source: Any) -> None:
    """`read` gives fewer values than it gets where some are missing."""
    read = partial(units_of, axis=axis_of("number", None), kind="number", gaps=False)
    found = EngineRows(source).column("floats", read).different()
    finite = frame()["floats"][np.isfinite(frame()["floats"])]
    assert int(found.counts.sum()) == len(finite)
    assert len(found.counts) == len({*finite}), "0 and -0 are one"


@pytest.mark.parametrize("at_once", [1, 7, 1000, 5000])
def test_sorted_numbers_are_counted_across_pieces(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgen.data.batches._AT_ONCE", at_once)
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.integers(-5, 5, 900), rng.integers(-(2**62), 2**62, 1100), np.full(600, 2**62)])
    rng.shuffle(values)
    expected, counts = np.unique(values, return_counts=True)
    found = batches._sorted(np.array_split(values, 13))
    assert found.counts.tolist() == counts.tolist()
    places = rng.permutation(len(counts))[:40]
    assert found.named(places).tolist() == expected[places].tolist()
    assert batches._sorted([values[:0]]).counts.tolist() == []


def test_values_that_do_not_repeat_are_read_by_row(source: Any) -> None:
    rows = EngineRows(source)
    assert isinstance(rows.column("other", lambda values: values.to_numpy()), EngineBatches)
    assert not isinstance(Rows(frame()).column("truths", lambda values: values.to_numpy()), GroupedColumn)


def test_codes_of_different_values_are_codes_of_rows(source: Any) -> None:
    """Also where some columns repeat no value in a batch, or have gaps, and of batches of any size."""
    enum = {"enum": ["a", "b", "1"]}
    fields = [
        {"name": "texts", "type": "string", "constraints": {"required": False, **enum}, "dpgen:source": "dp"},
        {"name": "truths", "type": "boolean", "constraints": {"required": False}},
        {"name": "other", "type": "number", "constraints": {"minimum": 0, "maximum": 1}, "dpgen:bins": {"equal": 7}},
        {"name": "days", "type": "date", "constraints": {"minimum": "1960-01-01", "maximum": "2021-01-01"}},
    ]
    schema = Schema.from_descriptor({"fields": fields})
    names = [field["name"] for field in fields]
    expected = schema.codes(frame()[names]).numpy()
    assert len(np.unique(expected[:, 0])) == 4
    made = frame()[names]
    for rows in (1, 100, N):
        parts = pyarrow.Table.from_pandas(made, preserve_index=False).to_batches(rows)
        assert np.concatenate([*_coded(parts, schema)]).tolist() == expected.tolist()


def test_a_table_that_changes_between_scans_is_refused() -> None:
    connection = duckdb.connect()
    connection.execute("create table visits as select range % 3 as x from range(100)")
    rows = EngineRows(open_table(in_memory(connection.table("visits"))))
    connection.execute("insert into visits values (1)")
    with pytest.raises(ValueError, match="has changed while it was read"):
        rows.column("x", lambda values: values.to_numpy())
