"""Domains that are released privately for a schema of their own: the command, and what it costs."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny

import dpgen
from dpgen.cli.main import main
from dpgen.data import load_table
from dpgen.data.tables import simulated_visits
from dpgen.facts import Fact, Section
from dpgen.privacy.ledger import Budget
from dpgen.privacy.shared_budget import SharedBudget
from dpgen.systems.plan import SumsPlan

# -- command -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    simulated_visits(2000).content.to_parquet(tmp_path / "visits.parquet")
    return tmp_path / "visits.parquet"


def test_a_draft_is_filled_in_privately_and_no_record_is_refused_by_it(
    visits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = visits.parent / "schema.json"
    assert main(["schema", str(visits), "--out", str(out)]) == 0
    assert "fill in from public knowledge: visit, age" in capsys.readouterr().out
    draft = json.loads(out.read_text()) | {"primaryKey": "visit"}
    out.write_text(json.dumps(draft))
    assert main(["schema", str(visits), "--schema", str(out), "--epsilon", "2", "--out", str(out)]) == 0
    assert "epsilon 2 at delta 1e-06" in capsys.readouterr().out
    table = load_table(path=str(visits), schema=str(out), test_fraction=0.0)
    assert table.n == 2000
    assert tiny.told(table)[Fact.BOUGHT_DOMAINS]["price"] == "epsilon 2.0, delta 1e-06, relation add_remove"


def test_a_file_without_types_says_how_to_give_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "visits.csv", tmp_path / "schema.json"
    path.write_text("age,ward\n30,a\n")
    assert main(["schema", str(path)]) == 0
    printed = capsys.readouterr()
    assert not any("type" in field for field in json.loads(printed.out)["fields"])
    assert "has no types: write string, integer" in printed.err
    assert main(["schema", str(path), "--out", str(out)]) == 0
    assert "or draft from a Parquet file, which has types" in capsys.readouterr().out


def test_a_schema_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"path is None and schema is 'a.json'; path must name the table"):
        load_table(schema="a.json")


def test_a_shared_budget_pays(visits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = visits.parent / "budget.jsonl"
    SharedBudget.create(ledger, Budget(1.0, 1e-5))
    arguments = ["schema", str(visits), "--epsilon", "0.8", "--delta", "1e-6", "--ledger", str(ledger)]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["dpgen:privacy"]["epsilon"] == 0.8
    assert main(arguments) == 2
    assert "budget" in capsys.readouterr().err


@pytest.fixture
def stays(tmp_path: Path) -> Path:
    """Rows of 300 people, of whom one has 40 with a diagnosis of their own."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"who": rng.integers(0, 300, 6000), "age": rng.integers(20, 60, 6000), "ward": "a"})
    table = pd.concat([table, pd.DataFrame({"who": [300] * 40, "age": 30, "ward": "kuru"})])
    table.to_parquet(tmp_path / "stays.parquet", index=False)
    return tmp_path / "stays.parquet"


def bought(path: Path, *more: str) -> Path:
    out = path.parent / "bought.json"
    assert main(["schema", str(path), "--epsilon", "4", "--out", str(out), *more]) == 0
    return out


PEOPLE = ["--unit", "who", "--max_contributions", "40"]


def test_a_purchase_for_people_knows_unit_and_rows(stays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(bought(stays, *PEOPLE).read_text())
    assert "add or remove one person (who) with at most 40 rows" in capsys.readouterr().out
    assert [field["name"] for field in schema["fields"]] == ["age", "ward"]
    assert schema["fields"][1]["constraints"]["enum"] == ["a"]
    paid = {"epsilon": 4.0, "delta": 1e-6, "relation": "add_remove", "unit": "who", "max_contributions": 40}
    assert schema["dpgen:privacy"] == paid
    release = dpgen.fit(str(stays), "tables", epsilon=5.0, schema=schema, unit="who", max_contributions=40)
    [note] = [text for text in release.statement.section(Section.PRICE) if "private release of their own" in text]
    assert "relation add_remove, unit who, max_contributions 40" in note


def test_of_a_person_no_more_than_m_rows_are_looked_at(tmp_path: Path) -> None:
    """Were all of them, the one with 3,000 would fill a range by themselves."""
    who = [*range(3000), *[3000] * 3000]
    pd.DataFrame({"who": who, "cost": [5.0] * 3000 + [9e5] * 3000}).to_parquet(tmp_path / "a.parquet")
    schema = json.loads(bought(tmp_path / "a.parquet", "--unit", "who", "--max_contributions", "2").read_text())
    assert schema["fields"][0]["constraints"]["maximum"] < 1000


FOR_RECORDS: list[str] = []
UNITS = {
    "records": (FOR_RECORDS, {}),
    "people": (PEOPLE, {"unit": "who", "max_contributions": 40}),
    "fewer rows": (["--unit", "who", "--max_contributions", "2"], {"unit": "who", "max_contributions": 2}),
    "replaced": (["--relation", "replace_one"], {"relation": "replace_one"}),
}


@pytest.mark.parametrize("source", ["memory", "engine"])
def test_domains_that_were_bought_for_others_are_refused(stays: Path, source: str, tmp_path: Path) -> None:
    """In both orders: for records and for people, for fewer and more rows, under both relations."""
    data = str(stays) if source == "memory" else str(stays.parent / "stay*.parquet")
    for name, (arguments, _) in UNITS.items():
        schema = str(bought(stays, *arguments))
        written = json.loads(Path(schema).read_text())
        fields = [field for field in written["fields"] if field["name"] != "who"]  # which models of people do not know
        Path(schema).write_text(json.dumps(written | {"fields": fields}))
        for other, (_, options) in UNITS.items():
            if other == name:
                assert dpgen.fit(data, "tables", epsilon=5.0, schema=schema, method="independent", **options).epsilon <= 5.0
                continue
            with pytest.raises(ValueError, match=r"schema is a release whose (unit|relation) is"):
                dpgen.fit(data, "tables", epsilon=5.0, schema=schema, **options, run_dir=tmp_path / "run")
            assert not (tmp_path / "run").exists()


def test_schemas_that_do_not_say_for_whom_were_bought_for_records(stays: Path) -> None:
    schema = json.loads(bought(stays, *PEOPLE).read_text())
    schema["dpgen:privacy"] = {"epsilon": 4.0, "delta": 1e-6, "relation": "add_remove"}  # as 0.4 wrote it
    assert dpgen.fit(str(stays), "tables", epsilon=5.0, schema=schema).epsilon <= 5.0
    with pytest.raises(ValueError, match="schema is a release whose unit is 'one record'"):
        dpgen.fit(str(stays), "tables", epsilon=5.0, schema=schema, unit="who")


def test_a_second_purchase_is_refused(stays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The price of the last one alone would be stated for both."""
    out = bought(stays, *PEOPLE)
    assert main(["schema", str(stays), "--schema", str(out), "--epsilon", "1", *PEOPLE]) == 2
    assert "bought before" in capsys.readouterr().err


@pytest.mark.parametrize(("own", "other"), [(FOR_RECORDS, PEOPLE), (PEOPLE, FOR_RECORDS), (PEOPLE, [*PEOPLE[:-1], "39"])])
def test_a_shared_budget_of_another_unit_pays_for_nothing(
    stays: Path, own: list[str], other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    unit = SumsPlan(unit=own[1], max_contributions=int(own[3])).protected if own else "one record"
    ledger = stays.parent / "budget.jsonl"
    SharedBudget.create(ledger, Budget(9.0, 1e-5), unit=unit)
    assert main(["schema", str(stays), "--epsilon", "1", "--ledger", str(ledger), *other]) == 2
    assert "that of the shared budget" in capsys.readouterr().err
    bought(stays, "--ledger", str(ledger), *own)
    assert SharedBudget(ledger).spending().runs == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unit", "who"], "epsilon is None"),
        (["--epsilon", "1", "--max_contributions", "2"], "max_contributions is 2"),
        (["--epsilon", "1", "--unit", "whose"], "has no column 'whose'"),
        (["--delta", "1e-5"], "epsilon is None"),
        (["--epsilon", "0"], "epsilon is 0.0"),
        (["--from_private_values"], "no option any more"),
        (["--epsilon", "1", "--delta", "0"], "delta is 0"),
        (["--out", "/no/where"], "out '/no/where' cannot be written"),
        (["--schema", "none.json", "--epsilon", "1"], "there is no such file"),
        (["--epsilom", "1"], "did you mean 'epsilon'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    visits: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["schema", str(visits), *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_types_of_a_file_without_types_are_voted_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 90, 2000),
            "code": [f"{i % 7:03d}" for i in range(2000)],
            "paid": 0.25,
            "seen": "2020-01-02",
            "member": True,
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert main(["schema", str(tmp_path / "a.csv"), "--epsilon", "20"]) == 0
    fields = json.loads(capsys.readouterr().out)["fields"]
    assert [field["type"] for field in fields] == ["integer", "string", "number", "date", "boolean"]
    assert fields[1]["constraints"]["enum"] == [f"{i:03d}" for i in range(7)]
