"""Columns that an engine counts: the numbers, refusals and released bits of the same column in memory."""

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
import tiny
from fixed_source import FixedKeySource

import dpgen
from dpgen.data.columns import load_columns
from dpgen.data.engines import open_table, own_tables
from dpgen.data.split import People
from dpgen.data.users import load_events
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.runtime import Runtime
from dpgen.systems.ordered.estimator import outline
from dpgen.systems.ordered.fit import fit
from dpgen.systems.ordered.plan import OrderedConfig, OrderedPlan

ROWS = 2000


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    skewed = rng.lognormal(3, 2, ROWS).clip(0, 9e5)
    return pd.DataFrame(
        {
            "whole": np.concatenate([[-50, -1, 10**6], rng.integers(-50, 10**6, ROWS - 3)]),
            "small": rng.integers(0, 200, ROWS).astype(np.uint8),
            "skewed": skewed,
            "single": skewed.astype(np.float32),
            "counted": rng.integers(0, 1000, ROWS).astype(float),
            "spiked": np.where(rng.random(ROWS) < 0.5, 777, rng.integers(0, 2**40, ROWS)),
            "price": [Decimal(int(v)).scaleb(-2) for v in rng.integers(-300, 10**6, ROWS)],
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 10**9, ROWS), unit="us"),
            "site": rng.choice(["a", "b", "NA", "c'c"], ROWS),
        }
    )


GRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    "whole numbers": ("whole", {"low": -50, "high": 10**6}),
    "whole numbers by seven": ("whole", {"low": -50, "high": 10**6, "resolution": 7}),
    "whole numbers by a third": ("whole", {"low": -50, "high": 10**6, "resolution": "0.3"}),
    "bytes": ("small", {"low": 0, "high": 255}),
    "floats on 10^15": ("skewed", {"low": 0, "high": 10**6, "resolution": "1e-9"}),
    "floats by thirds": ("skewed", {"low": -3, "high": 10**6, "resolution": "0.3"}),
    "float32": ("single", {"low": 0, "high": 10**6, "resolution": "0.5"}),
    "whole floats": ("counted", {"low": -5, "high": 1000}),
    "clamped": ("skewed", {"low": 1, "high": 50, "resolution": "0.01", "out_of_range": "clamp"}),
    "clamped whole": ("whole", {"low": 0, "high": 1000, "out_of_range": "clamp"}),
    "a spike on 10^18": ("spiked", {"low": 0, "high": 10**18, "resolution": 7}),
    "decimals": ("price", {"low": -10, "high": 10**5, "resolution": "0.01"}),
    "decimals by 0.04": ("price", {"low": -10, "high": 10**5, "resolution": "0.04"}),
    "times": ("when", {"low": "2024-01-01", "high": "2024-02-01", "resolution": "0.5"}),
    "days": ("when", {"low": "2024-01-01", "high": "2024-01-12", "resolution": 86400}),
    "categories": ("site", {"categories": ["NA", "a", "b", "c'c"]}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine")
    rows = frame()
    rows.to_parquet(folder / "all.parquet")
    (folder / "parts").mkdir()
    for number, part in enumerate(np.array_split(np.arange(ROWS), 3)):
        rows.iloc[part].to_parquet(folder / "parts" / f"{number}.parquet")
    rows.drop(columns=["price", "site"]).to_csv(folder / "all.csv", index=False)
    with duckdb.connect(str(folder / "w.duckdb")) as connection:
        connection.execute(f"create table visits as select * from '{folder}/all.parquet'")
        connection.execute("create table nothing as select * from visits limit 0")
    return folder


def sources(folder: Path) -> dict[str, dict[str, str]]:
    return {"duckdb": {"path": f"{folder}/w.duckdb::visits"}, "parts": {"path": f"{folder}/parts/*.parquet"}}


@pytest.mark.parametrize("grid", GRIDS)
def test_counts_are_those_of_the_column_in_memory(folder: Path, grid: str) -> None:
    name, options = GRIDS[grid]
    memory = load_columns(path=str(folder / "all.parquet"), columns=name, **options)
    engine = load_columns(**sources(folder)["parts"], columns=name, **options)
    assert engine.domains == memory.domains
    assert engine.clamped == memory.clamped
    ordered, ranks, N = np.sort(memory.values[name]), engine.values[name], memory.domains[name].size
    assert len(ranks) == ROWS
    rng = np.random.default_rng(1)
    asked = np.concatenate([rng.integers(0, N, 200), ordered[::50], ordered[::50] + 1, [0, N]])
    assert ranks.below(asked).tolist() == np.searchsorted(ordered, asked).tolist()
    assert ranks.in_order().tolist() == ordered.tolist()


@pytest.mark.parametrize("threshold", [0, 3, 400])
@pytest.mark.parametrize("name", ["whole", "spiked", "skewed"])
def test_heavy_cells_have_their_exact_counts(folder: Path, name: str, threshold: int) -> None:
    options = {"low": -50, "high": 2**41, "resolution": "1e-3"}
    found = load_columns(**sources(folder)["duckdb"], columns=name, **options)
    ranks, N, decay = found.values[name], found.domains[name].size, 2
    knots, sums = outline(ranks, threshold, decay)
    ordered = ranks.in_order()
    bits = (N - 1).bit_length()
    for depth in range(0, bits + 1, 3):
        ends = np.unique(ordered >> (bits - depth))
        ends = np.unique(np.concatenate([ends, ends + 1])) << (bits - depth)
        exact, told = np.diff(np.searchsorted(ordered, ends)), np.diff(sums[np.searchsorted(knots, ends)])
        heavy = exact > threshold + (depth - 1) * decay
        assert (exact[heavy] == told[heavy]).all()
        assert (told[~heavy] <= threshold + (depth - 1) * decay).all()
    assert sums[-1] == ROWS


def released(data: Any, method: Any, relation: Any) -> list[Any]:
    plan = OrderedPlan(epsilon=2.0, delta=1e-6, relation=relation)
    curator = Curator(plan.open_ledger(), source=FixedKeySource(5))
    config = OrderedConfig(method=method, steps=3)
    release = fit(data, plan=plan, config=config, curator=curator, runtime=Runtime())
    return [[cdf.knots.tolist(), cdf.values.tolist()] for cdf in release.cdfs.values()] + [curator.ledger.epsilon()]


@pytest.mark.parametrize(("method", "relation"), [("partition", "add_remove"), ("points", "replace_one")])
def test_released_bits_are_those_of_the_column_in_memory(folder: Path, method: str, relation: str) -> None:
    options: dict[str, Any] = {"columns": ["skewed", "spiked"], "low": 0, "high": [10**6, 10**13], "resolution": ["1e-9", "1"]}
    if method == "points":
        options = {"columns": "whole", "low": -50, "high": 10**6}
    memory = load_columns(path=str(folder / "all.parquet"), **options)
    engine = load_columns(**sources(folder)["parts"], **options)
    assert released(engine, method, relation) == released(memory, method, relation)


def test_csv_files_are_tables(folder: Path) -> None:
    data = load_columns(path=str(folder / "all.csv"), engine=True, columns="whole,counted", low=-50, high=10**6)
    assert data.values["whole"].in_order().tolist() == np.sort(frame()["whole"] + 50).tolist()
    assert Fact.READ_AGAIN not in tiny.told(data)
    assert Fact.READ_AGAIN not in tiny.told(open_table(f"{folder}/w.duckdb::visits"))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no file": ({"path": "{folder}/none.duckdb"}, "there is no such file"),
    "a folder": ({"path": "{folder}/parts"}, r"is no file; name the files in it, as in .*\*\.parquet"),
    "no database": ({"path": "{folder}/text.duckdb"}, "cannot be read by duckdb"),
    "two tables": ({"path": "{folder}/w.duckdb"}, "it holds nothing, visits; write .*w.duckdb::nothing"),
    "another table": ({"path": "{folder}/w.duckdb::visit"}, "it holds .*did you mean 'visits'"),
    "a table of files": ({"path": "{folder}/parts/*.parquet::x"}, "::x must be left out"),
    "no column": ({"columns": "wole"}, "no column 'wole'.*did you mean 'whole'"),
    "no records": ({"path": "{folder}/w.duckdb::nothing"}, "is empty"),
    "outside": ({"low": 0}, r"column .whole.: value in a row is outside \[0, 1000000\]"),
    "not whole": ({"columns": "skewed", "low": 0}, "no whole number: give the public resolution"),
    "text": ({"columns": "site", "low": 0}, "is not a finite number"),
    "no dates": ({"low": "2024-01-01", "high": "2024-02-01"}, "dates must be"),
    "other categories": ({"columns": "site", "categories": ["a", "b"]}, "none of the 2 public categories"),
    "missing": ({"path": "{folder}/holes.parquet", "columns": "x"}, "has no value in a row.*missing=drop$"),
    "wrong missing": ({"missing": "skip"}, "missing is 'skip'; it must be one of error, drop, category"),
    "other types": ({"path": "{folder}/mixed*.parquet", "columns": "x"}, "'x' is double; it must be int64"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_refused_in_one_line(folder: Path, case: str) -> None:
    (folder / "text.duckdb").write_text("no database")
    pd.DataFrame({"x": pd.array([1, None, 3], "Int64")}).to_parquet(folder / "holes.parquet")
    pd.DataFrame({"x": [1, 2]}).to_parquet(folder / "mixed0.parquet")
    pd.DataFrame({"x": [1.0, 2.0]}).to_parquet(folder / "mixed1.parquet")
    given, message = REFUSED[case]
    options = {**sources(folder)["duckdb"], "columns": "whole", "low": -50, "high": 10**6} | given
    options["path"] = options["path"].format(folder=folder)
    with pytest.raises(ValueError, match=message) as error:
        load_columns(**options, engine=True)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("missing", "found"), [("drop", [1, 3]), ("category", ["1", "3", "missing"])])
def test_missing_values_are_dropped_or_a_category(tmp_path: Path, missing: Any, found: list[Any]) -> None:
    pd.DataFrame({"x": pd.array([3, None, 1], "Int64")}).to_parquet(tmp_path / "holes.parquet")
    kind: dict[str, Any] = {"low": 0, "high": 9} if missing == "drop" else {"categories": ["1", "3"]}
    data = load_columns(path=str(tmp_path / "holes.parquet"), engine=True, columns="x", missing=missing, **kind)
    assert data.domains["x"].decode(data.values["x"].in_order()).tolist() == found


def test_tables_of_engines_go_where_frames_go(folder: Path) -> None:
    connection = duckdb.connect(str(folder / "w.duckdb"), read_only=True)
    options: dict[str, Any] = {"epsilon": 1.0, "columns": "whole", "low": -50, "high": 10**6}
    for data in (connection.table("visits"), duckdb.read_parquet(str(folder / "all.parquet")), f"{folder}/parts/*.parquet"):
        release = dpgen.fit(data, "merr", **options)
        assert release.sample(3).dtypes.to_dict() == {"whole": np.dtype("int64")}
    assert dpgen.fit(f"{folder}/w.duckdb::visits", "merr", **options).epsilon <= 1
    connection.close()


def events() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    users, sites = rng.integers(0, 20, 500), rng.choice(["a", " b", "NA", "d"], 500)
    return pd.DataFrame({"user": users, "site": sites, "times": rng.integers(0, 9, 500), "age": users % 3})


@pytest.mark.parametrize("options", [{}, {"weight": "times"}, {"group": "age"}])
def test_users_are_those_of_events_in_memory(tmp_path: Path, options: dict[str, Any]) -> None:
    events().to_parquet(tmp_path / "e.parquet")
    memory = load_events(path=str(tmp_path / "e.parquet"), category="site", **options)
    engine = load_events(path=str(tmp_path / "e.parquet"), engine=True, category="site", **options)
    for name in ("user_names", "categories", "groups", "prior_origin", "facts"):
        assert getattr(engine, name) == getattr(memory, name), name
    assert engine.counts.tolist() == memory.counts.tolist()


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"times": 0.5}, {}, "is double; an engine adds up whole numbers only"),
        ({"times": -1}, {}, "missing or negative"),
        ({"site": None}, {}, "has no value in row .*missing=drop or category"),
    ],
)
def test_wrong_events_are_refused(tmp_path: Path, change: dict[str, Any], options: dict[str, Any], message: str) -> None:
    events().assign(**change).astype({"site": str} if "site" not in change else {}).to_parquet(tmp_path / "e.parquet")
    with pytest.raises(ValueError, match=message):
        load_events(**{"path": str(tmp_path / "e.parquet"), "engine": True, "category": "site", "weight": "times"} | options)


@pytest.mark.parametrize("person", ["small", "site"])
@pytest.mark.parametrize("out_of_range", ["refuse", "clamp"])
@pytest.mark.parametrize("where", ["duckdb", "parts"])
def test_the_rows_of_people_are_those_that_memory_keeps(folder: Path, where: str, out_of_range: str, person: str) -> None:
    high = [10**6, 10**6] if out_of_range == "refuse" else [1000, 50]
    options: dict[str, Any] = {"columns": ["whole", "skewed"], "low": -50, "high": high, "resolution": [1, "0.001"]}
    options |= {"out_of_range": out_of_range, "people": People(person, 3, bytes(range(32)))}
    memory = load_columns(path=str(folder / "all.parquet"), **options)
    engine = load_columns(**sources(folder)[where], **options)
    assert memory.n < ROWS
    assert engine.clamped == memory.clamped
    for name, values in memory.values.items():
        assert engine.values[name].in_order().tolist() == np.sort(values).tolist()


def test_bad_people_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pd.DataFrame({"x": [1, 2], "who": ["a", None]}).to_parquet(path)
    for column, message in (("who", "no value"), ("x", "none of the columns")):
        with pytest.raises(ValueError, match=message):
            load_columns(path=str(path), engine=True, columns="x", low=0, high=9, people=People(column, 1))


@pytest.mark.parametrize(
    ("rows", "other"),
    [(['"a\\\\b",1', '"c",2'], 'w,"4\\"5"'), (["'x',1", "y,2"], "'q,r',4"), (["x,1", "y,2"], '"p;""q"";,r",4')],
    ids=["a backslash before a quote", "single quotes", "as csv is"],
)
def test_how_a_csv_file_is_read_does_not_depend_on_one_row(tmp_path: Path, rows: list[str], other: str) -> None:
    """DuckDB guesses quotes, escapes and delimiters from the rows; one that breaks the form is refused, without its text."""
    alone, beside = tmp_path / "alone.csv", tmp_path / "beside.csv"
    alone.write_text("\n".join(["a,b", *rows]) + "\n")
    beside.write_text("\n".join(["a,b", *rows, other]) + "\n")
    first = open_table(str(alone), text=None).fetch("rows").to_pylist()
    assert first == [dict(zip("ab", (row.split(",")[0].strip('"'), row.split(",")[1]))) for row in rows]
    try:
        found = open_table(str(beside), text=None).fetch("rows").to_pylist()
    except ValueError as error:
        found, said = first, str(error)
        assert said.endswith("whose text is private")
    assert all(row in found for row in first)


def test_a_number_of_a_csv_file_is_read_without_its_neighbours(tmp_path: Path) -> None:
    """One decimal made DuckDB read all whole numbers as floats, which have no odd number above 2^53."""
    counts = []
    for name, other in (("whole", "1"), ("decimal", "0.5")):
        (tmp_path / f"{name}.csv").write_text(f"x\n9007199254740993\n{other}\n")
        ranks: Any = load_columns(
            path=str(tmp_path / f"{name}.csv"), engine=True, columns="x", low=0, high=2**60, resolution=0.5
        ).values["x"]
        counts.append(ranks.below(np.array([2 * 9007199254740993, 2 * 9007199254740993 + 1])).tolist())
    assert counts == [[1, 2], [1, 2]]


def test_what_a_killed_process_left_on_disk_goes_with_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private rows would lie there for good; those of a process that is alive stay."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    alive = own_tables()
    [of_alive] = tmp_path.iterdir()
    left = tmp_path / f"{of_alive.name}z"  # longer than a random name, which it cannot equal
    left.mkdir()
    (left / "rows.tmp").write_text("private")
    for folder in (of_alive, left):
        os.utime(folder, (0, 0))
    other = own_tables()
    assert of_alive.exists()
    assert not left.exists()
    del alive, other
    assert list(tmp_path.iterdir()) == []
