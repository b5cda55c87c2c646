"""Mixed tables that an engine reads: codes, refusals, rows of people and released bits of the same table in memory."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
import torch
from fixed_source import FixedKeySource

import dpgen
from dpgen.containers import in_memory
from dpgen.data import Table, load_table
from dpgen.data.batches import ROWS, KeptCodes, whole_groups
from dpgen.data.split import People
from dpgen.data.tables import VISITS, simulated_visits
from dpgen.evaluation import evaluate
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.runtime import Runtime
from dpgen.systems.plan import SumsPlan
from dpgen.systems.tables.fit import fit
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.plan import TablesConfig

SCHEMA = {**VISITS}
N = 900
HOSPITALS = People("hospital", 3, bytes(32))


def visits() -> pd.DataFrame:
    frame = simulated_visits(N).content
    return frame.assign(hospital=[f"h{i % 37}" for i in range(N)], admitted=frame["admitted"].dt.date)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    frame = visits()
    frame.to_parquet(folder / "all.parquet")
    (folder / "parts").mkdir()
    for number, part in enumerate(np.array_split(np.arange(N), 3)):
        frame.iloc[part[::-1]].to_parquet(folder / "parts" / f"{number}.parquet")
        frame.iloc[part].to_csv(folder / "parts" / f"{number}.csv", index=False)
    frame.to_csv(folder / "all.csv", index=False)
    with duckdb.connect(str(folder / "w.duckdb")) as connection:
        connection.execute(f"create table visits as select * from '{folder}/all.parquet' order by age, bill")
        connection.execute("create table nothing as select * from visits limit 0")
    return folder


SOURCES = {"duckdb": "w.duckdb::visits", "parquet": "parts/*.parquet", "csv": "parts/*.csv"}


def memory(folder: Path, **options: Any) -> Table:
    return load_table(path=str(folder / "all.parquet"), schema=SCHEMA, test_fraction=0.0, **options)


def engine(folder: Path, where: str, **options: Any) -> Table:
    return load_table(path=f"{folder}/{SOURCES[where]}", schema=SCHEMA, **options)


def rows(table: Table) -> list[tuple[int, ...]]:
    """All rows, in one order."""
    return sorted(map(tuple, table.some(10**6, torch.Generator().manual_seed(0)).tolist()))


@pytest.mark.parametrize("where", ["duckdb", "parquet", "csv"])
def test_codes_are_those_of_the_table_in_memory(folder: Path, where: str) -> None:
    table = engine(folder, where)
    assert isinstance(table.codes, KeptCodes)
    assert table.n == N
    assert rows(table) == rows(memory(folder))
    assert repr(table).endswith("900 private, 0 test rows of 10 columns)")


def released(table: Table) -> TablesModel:
    plan = SumsPlan(epsilon=3.0)
    curator = Curator(plan.open_ledger(), source=FixedKeySource(5))
    return fit(table, plan=plan, config=TablesConfig(rounds=2, picks=4, components=8), curator=curator, runtime=Runtime())


def test_released_bits_are_those_of_the_table_in_memory(folder: Path) -> None:
    expected, found = released(memory(folder)), released(engine(folder, "duckdb"))
    assert any(len(m.marginal.columns) > 1 for m in found.measurements)
    assert all(torch.equal(tensor, expected.tensors()[name]) for name, tensor in found.tensors().items())
    assert found.statement.epsilon == expected.statement.epsilon


def bought(table: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """What a fit buys of a table as it is, and its model."""
    plan = SumsPlan(epsilon=16.0, unit="hospital", max_contributions=3) if table.n < N else SumsPlan(epsilon=8.0)
    curator = Curator(plan.open_ledger(), source=FixedKeySource(5))
    config = TablesConfig(rounds=2, picks=4, components=8)
    model = fit(table, plan=plan, config=config, curator=curator, runtime=Runtime())
    return model.schema.descriptor(), model.tensors()


def same_bits(one: Any, other: Any) -> bool:
    return one[0] == other[0] and all(torch.equal(tensor, other[1][name]) for name, tensor in one[1].items())


@pytest.mark.parametrize(("where", "people"), [("duckdb", None), ("parquet", HOSPITALS), ("csv", HOSPITALS)])
def test_a_table_as_it_is_releases_the_bits_of_memory(folder: Path, where: str, people: People | None) -> None:
    """Types of a csv file, gaps, categories, bins, keys: bought of an engine as of a file that is read into memory."""
    path = str(folder / ("all.csv" if where == "csv" else "all.parquet"))
    memory = load_table(path=path, test_fraction=0.0, target="sex", people=people)
    engine = load_table(path=f"{folder}/{SOURCES[where]}", target="sex", people=people)
    assert engine.n == memory.n == (N if people is None else 37 * 3)
    expected = bought(memory)
    assert same_bits(bought(engine), expected)
    assert {field["name"] for field in expected[0]["fields"]} > {"age", "sex"}
    assert expected[0]["dpgen:target"] == "sex"


def test_different_values_are_counted_by_the_engine_and_only_frequent_ones_are_named(folder: Path) -> None:
    table = load_table(path=f"{folder}/w.duckdb::visits")
    found = table.rows.column("visit", lambda values: values.to_numpy(object)).different()
    assert found.counts.tolist() == [1] * N
    assert found.named(np.array([0, 4])).tolist() == ["V000001", "V000005"]
    ages = table.rows.column("age", lambda values: values.to_numpy()).different()
    values, counts = np.unique(visits()["age"], return_counts=True)
    assert ages.counts.tolist() == counts.tolist()
    assert ages.named(np.array([3, 1])).tolist() == values[[3, 1]].tolist()
    assert ages.named(np.zeros(0, np.int64)).tolist() == []


@pytest.mark.parametrize("where", ["duckdb", "csv"])
def test_the_rows_of_people_are_those_that_memory_keeps(folder: Path, where: str) -> None:
    kept = engine(folder, where, people=HOSPITALS)
    assert kept.n == 37 * 3
    assert rows(kept) == rows(memory(folder, people=HOSPITALS))


def test_groups_are_cut_where_they_end() -> None:
    pieces = [pd.DataFrame({"who": list(text), "x": range(len(text))}) for text in ("aab", "", "b", "bbc", "d", "dee")]
    assert ["".join(table["who"]) for table in whole_groups(pieces, "who")] == ["aa", "bbbb", "c", "dd", "ee"]
    assert list(whole_groups([], "who")) == []


def test_codes_that_are_kept_come_back_in_order_and_by_choice() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 300, (ROWS + 10, 2))
    kept = KeptCodes([codes[:7], codes[7:]], 2, np.min_scalar_type(300))
    assert [len(batch) for batch in kept] == [ROWS, 10]
    assert np.array_equal(np.concatenate(list(kept)), codes)
    chosen = kept.some(1000, 3).tolist()
    assert len(chosen) == 1000
    assert set(map(tuple, chosen)) <= set(map(tuple, codes.tolist()))
    assert kept.some(1000, 4).tolist() != chosen


def test_codes_that_are_kept_have_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = KeptCodes([np.ones((5, 3), np.int64)], 3, np.min_scalar_type(2))
    assert list(tmp_path.iterdir()) == []
    assert [batch.tolist() for batch in kept] == [[[1] * 3] * 5]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "below the minimum": ({"age": -1}, r"column 'age' breaks a rule of the schema: minimum is 0 and maximum is 99 \(which row"),
    "no category": ({"ward": "lab"}, r"column 'ward' breaks a rule of the schema: its values are the 5 of enum \(which row"),
    "no value": ({"sex": None}, r"column 'sex' breaks a rule of the schema: it is required \(which row"),
    "no number": ({"care": float("nan")}, r"column 'care' breaks a rule of the schema: it is required"),
    "a constraint": ({"bill": 1.0}, r"column 'care, drugs, bill' breaks a rule of the schema: constraint"),
}


@pytest.mark.parametrize("case", WRONG)
def test_values_outside_of_the_schema_are_refused_as_in_memory(tmp_path: Path, case: str) -> None:
    change, message = WRONG[case]
    frame = visits()
    for name, value in change.items():
        frame.loc[500, name] = value
    frame.to_parquet(tmp_path / "w.parquet")
    with pytest.raises(ValueError, match=message) as in_engine:
        load_table(path=str(tmp_path / "w.parquet"), engine=True, schema=SCHEMA)
    with pytest.raises(ValueError, match=message) as in_memory:
        load_table(path=str(tmp_path / "w.parquet"), schema=SCHEMA)
    assert str(in_engine.value) == str(in_memory.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "agee"}, "target is 'agee'; it must be one of .*did you mean 'age'"),
        ({"path": "{folder}/w.duckdb::nothing"}, "w.nothing is empty: it has 14 columns and no record"),
        (
            {"schema": {"fields": [{"name": "agee", "type": "boolean"}]}},
            "a field of the schema is 'agee'; .*did you mean 'age'",
        ),
        ({"people": People("age", 1, bytes(32))}, "unit is 'age'; it must be no field of the schema"),
        ({"people": People("clinic", 1, bytes(32))}, "has no column 'clinic'"),
        ({"test_fraction": 0.2}, "test_fraction is 0.2; it must be left out: nothing is held out"),
        ({"test_path": "t.csv"}, "test_path is 't.csv'; it must be left out"),
        ({"delimiter": ";"}, "delimiter is ';': it must be left out"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(folder: Path, options: dict[str, Any], message: str) -> None:
    given = {"path": "{folder}/w.duckdb::visits", "schema": SCHEMA, **options}
    given["path"] = given["path"].format(folder=folder)
    with pytest.raises(ValueError, match=message) as refused:
        load_table(**given)
    assert "\n" not in str(refused.value)


def test_a_row_without_a_person_is_refused(tmp_path: Path) -> None:
    frame = visits()
    frame.loc[3, "hospital"] = None
    frame.to_parquet(tmp_path / "0.parquet")
    with pytest.raises(ValueError, match="unit 'hospital' has no value in"):
        load_table(path=str(tmp_path / "0.parquet"), engine=True, schema=SCHEMA, people=People("hospital", 2, bytes(32)))


def test_tables_of_engines_go_where_frames_go(folder: Path) -> None:
    frame = visits()
    relation = duckdb.from_df(frame.drop(columns="hospital"))
    release = dpgen.fit(relation, "tables", epsilon=2.0, schema=SCHEMA, method="independent")
    drawn = release.samples(20, random_state=0).values
    assert list(drawn.columns) == [name for name in frame.columns if name != "hospital"]
    assert drawn.dtypes["age"] == "int64"
    assert release.statement.says(Fact.NO_TEST_PART)
    again = release.samples(20, random_state=0)
    assert load_table(path=in_memory(again.to_pandas()), schema=SCHEMA, test_fraction=0.0).n == 20


def test_scores_compare_with_private_rows(folder: Path) -> None:
    table = engine(folder, "parquet")
    scores = {score.name: score for score in evaluate(released(table), table, full=False).scores}
    assert 0 < scores["single columns: mean total variation"].value < 0.2
