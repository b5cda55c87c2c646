"""Records and sets that an engine reads: exact sums, refusals and released bits of the same records in memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from fixed_source import FixedKeySource
from pyarrow import parquet

import dpgen
from dpgen.containers import in_memory
from dpgen.data import Records, load_records
from dpgen.data.split import People
from dpgen.data.stored import StreamedRecords, load_streamed
from dpgen.evaluation import evaluate
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.runtime import Runtime
from dpgen.systems.gaussian.releases import checked, location_sums
from dpgen.systems.gaussian.sets import item_sums, size_bins, size_histogram
from dpgen.systems.registry import systems

N, SIDES = 700, (4, 5)
D = SIDES[0] * SIDES[1]
ITEMS = ["tea", "rum", "egg", "ham", "oat", "fig"]


def bits() -> pd.DataFrame:
    """0/1 columns that go together, a class and a person."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, N)
    x = (rng.random((N, D)) < 0.1 + 0.7 * (np.arange(D) % 3 == kind[:, None])).astype(np.uint8)
    named = {f"x{i}": x[:, i] for i in range(D)}
    return pd.DataFrame({**named, "kind": np.array(["b", "a", "c"])[kind], "who": rng.integers(0, 90, N)})


def grey() -> np.ndarray:
    rng = np.random.default_rng(1)
    return (bits().iloc[:, :D].to_numpy() * rng.integers(130, 256, (N, D)) + rng.integers(0, 60, (N, D))).clip(0, 255)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    frame = bits()
    frame.to_parquet(folder / "all.parquet")
    frame.drop(columns="who").to_parquet(folder / "plain.parquet")
    pixels = pd.DataFrame(grey().astype(np.uint8), columns=[f"x{i}" for i in range(D)]).assign(kind=frame["kind"])
    pixels.to_parquet(folder / "grey.parquet")
    scans = pd.DataFrame({"scan": list(grey().tolist()), "kind": frame["kind"]})
    blobs = pd.DataFrame({"scan": [bytes(row) for row in grey().astype(np.uint8)], "kind": frame["kind"]})
    with duckdb.connect(str(folder / "w.duckdb")) as connection:
        connection.execute(f"create table plain as select * from '{folder}/plain.parquet' order by x0, x1")
        connection.execute(f"create table everybody as select * from '{folder}/all.parquet'")
        connection.register("scans", scans)
        connection.register("blobs", blobs)
        connection.execute("create table lists as select scan, kind from scans order by kind")
        connection.execute("create table arrays as select scan::integer[20] as scan, kind from scans")
        connection.execute("create table bytes as select scan, kind from blobs")
    return folder


def stream(folder: Path, table: str = "plain", **options: Any) -> StreamedRecords:
    return load_streamed(path=f"{folder}/w.duckdb::{table}", label_column="kind", **options)


def memory(folder: Path, name: str = "plain", **options: Any) -> Records:
    return load_records(path=str(folder / f"{name}.parquet"), label_column="kind", test_fraction=0.0, **options)


def released(model: str, data: Any, **options: Any) -> dict[str, torch.Tensor]:
    """What a fit under a fixed key releases."""
    system = systems()[model]
    plan = system.plan(epsilon=4.0)
    curator = Curator(plan.open_ledger(), source=FixedKeySource(5))
    release: Any = system.fit(data, plan=plan, config=system.config(**options), curator=curator, runtime=Runtime())
    return {"epsilon": torch.tensor(release.epsilon), **release.tensors()}


def require_equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    assert set(one) == set(two)
    assert all(torch.equal(one[name], two[name]) for name in one)


FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "marginals": ("marginals", {}),
    "mwem on items": ("mwem", {"domain": "items"}),
    "gaussian": ("gaussian", {"clusters": "none"}),
    "gaussian of classes": ("gaussian", {"clusters": "labels", "subclusters": 2}),
}


@pytest.mark.parametrize("case", FITS)
def test_released_bits_are_those_of_the_records_in_memory(folder: Path, case: str) -> None:
    model, options = FITS[case]
    require_equal(released(model, stream(folder), **options), released(model, memory(folder), **options))


@pytest.mark.parametrize("table", ["lists", "arrays", "bytes"])
def test_grey_values_in_lists_release_those_of_columns_in_memory(folder: Path, table: str) -> None:
    shared: dict[str, Any] = {"image_shape": SIDES, "grey_threshold": 100}
    engine, whole = stream(folder, table, **shared), memory(folder, "grey", **shared)
    options: dict[str, Any] = {"warp": 0.0}
    require_equal(released("gaussian", engine, **options), released("gaussian", replace(whole, columns=None), **options))


def test_cells_of_mwem_are_counted_with_their_classes(folder: Path) -> None:
    frame = bits().iloc[:, [0, 1, 2, D]]
    whole = load_records(path=in_memory(frame), label_column="kind", test_fraction=0.0)
    engine = load_streamed(path=in_memory(duckdb.from_df(frame)), label_column="kind")
    assert engine.class_names == whole.class_names == ("a", "b", "c")
    require_equal(released("mwem", engine, domain="cells"), released("mwem", whole, domain="cells"))


def location(batches: Any) -> BoundedSum:
    return location_sums(checked(batches, D, 0), D)


@pytest.mark.parametrize("size", [7, 64, 10**6])
def test_sums_do_not_depend_on_batches(folder: Path, size: int) -> None:
    data, x = stream(folder), memory(folder).x
    parts = replace(data, rows=replace(data.rows, size=size)).stream(labelled=True)
    assert not torch.equal(next(iter(parts))[0], x[: min(size, N)].float())  # the engine has another order
    for sums in (lambda batches: item_sums(batches, D, 5), lambda batches: size_histogram(batches, size_bins(D)), location):
        assert torch.equal(sums(parts).values, sums([(x.float(), None)]).values)


def test_of_a_person_whose_rows_come_in_several_batches_m_are_used(tmp_path: Path) -> None:
    """150,000 rows of three people are more than two batches."""
    pd.DataFrame({"who": np.arange(150_000) % 3, "x": np.arange(150_000) % 2}).to_parquet(tmp_path / "x.parquet")
    source, people = str(tmp_path / "x.parquet"), People("who", 2, bytes(32))
    assert load_streamed(path=source, people=people).n == 3 * 2


def test_the_rows_of_people_are_those_that_memory_keeps(folder: Path) -> None:
    people = People("who", 3, bytes(32))
    engine = stream(folder, "everybody", people=people)
    whole = memory(folder, "all", people=people)
    assert engine.n == whole.n < N
    require_equal(released("marginals", engine), released("marginals", whole))


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a two": ({"x3": 2}, {}, "column 'x3' has another value in a row: only 0 and 1 are supported"),
    "a gap": ({"x3": float("nan")}, {}, "column 'x3' has rows without a value: fill them, or choose missing=drop"),
    "a gap of the class": ({"kind": None}, {}, "column 'kind' has rows without a value"),
    "no such label": ({}, {"label_column": "kinds"}, "has no column 'kinds': .*; did you mean 'kind'"),
    "bits for grey values": ({}, {"grey_threshold": 9}, "has no value above 1, and grey values go from 0 to 255"),
    "a threshold": ({}, {"grey_threshold": 255}, r"grey_threshold is 255: it must be in \[0, 254\]"),
    "a way with gaps": ({}, {"missing": "category"}, "missing is 'category'; it must be error or drop"),
    "a person": ({}, {"people": People("whom", 1, bytes(32))}, "has no column 'whom'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    change, options, message = WRONG[case]
    frame = bits().drop(columns="who")
    for name, value in change.items():
        frame[name] = frame[name].astype(object if value is None else float)
        frame.loc[600, name] = value
    frame.to_parquet(tmp_path / "w.parquet")
    with pytest.raises(ValueError, match=message) as refused:
        load_streamed(**{"path": str(tmp_path / "w.parquet"), "label_column": "kind", **options})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("lists", {"grey_threshold": 9}, "width is None; column 'scan' holds lists, and it must be the public length"),
        ("lists", {"grey_threshold": 9, "width": 21}, "column 'scan' has a list of another length than 21"),
        ("bytes", {"grey_threshold": 9, "width": 19}, "column 'scan' has a list of another length than 19"),
        ("lists", {"grey_threshold": 9, "width": 9, "image_shape": (4, 5)}, "width is 9; .* it must be 20, the pixels"),
        ("lists", {"width": 20}, r"column 'scan\[.*\]' has another value in a row: only 0 and 1"),
        ("bytes", {"width": 20}, r"column 'scan\[.*\]' has another value in a row: only 0 and 1"),
    ],
)
def test_lists_of_other_lengths_and_values_are_refused(folder: Path, table: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stream(folder, table, **options)


def test_rows_with_gaps_are_left_out_and_a_table_that_changes_is_refused(tmp_path: Path) -> None:
    frame = bits().drop(columns="who").astype({"x3": float})
    frame.loc[:9, "x3"] = np.nan
    with duckdb.connect(str(tmp_path / "w.duckdb")) as connection:
        connection.execute("create table t as select * from frame")
    assert load_streamed(path=str(tmp_path / "w.duckdb"), label_column="kind", missing="drop").n == N - 10
    x3 = pyarrow.array(frame["x3"].to_numpy())  # not null, but NaN
    parquet.write_table(pyarrow.Table.from_pandas(frame).set_column(3, "x3", [x3]), tmp_path / "n.parquet")
    assert load_streamed(path=str(tmp_path / "n.parquet"), label_column="kind", missing="drop").n == N - 10
    with duckdb.connect() as own:
        for change in ("delete from t where x0 = 1", "update t set kind = 'new' where kind = 'a'"):
            own.execute("create or replace table t as select * from frame where x3 is not null")
            data = load_streamed(path=in_memory(own.table("t")), label_column="kind")
            own.execute(change)
            with pytest.raises(ValueError, match="has changed while it was read"):
                released("marginals", data)


def test_more_records_than_int64_holds_are_refused(folder: Path) -> None:
    many = replace(stream(folder), n=2**27 + 1)
    with pytest.raises(ValueError, match="there are more than 134217728 records, whose sums would not fit int64"):
        released("gaussian", many)


def test_tables_of_engines_go_where_frames_go(folder: Path) -> None:
    frame = bits().drop(columns="who")
    release = dpgen.fit(duckdb.from_df(frame), "gaussian", epsilon=3.0, label_column="kind")
    drawn = release.sample(30)
    assert list(drawn.columns) == list(frame.columns)
    assert set(drawn["kind"]) <= {"a", "b", "c"}
    assert release.statement.says(Fact.NO_TEST_PART)
    with pytest.raises(TypeError, match="data is a DuckDB relation; model 'dpgan' works on records"):
        dpgen.fit(duckdb.from_df(frame), "dpgan", epsilon=3.0, label_column="kind")


def test_scores_compare_with_a_choice_of_the_records(folder: Path) -> None:
    data = stream(folder)
    some = data.some(100, 0)
    assert 30 < some.n < 200
    release = dpgen.fit(data, "marginals", epsilon=3.0)
    scores = {score.name: score for score in evaluate(release, data, full=False).scores}
    assert 0 < scores["2-way marginals: mean total variation, on the private records"].value < 0.3
