"""Domains that are released privately: what is found, what it costs, and the command that does it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
from conformance import LawRow, check_pairs
from rows_domains import ROWS, of_people, selected

import dpgen
from dpgen.cli.main import main
from dpgen.data import load_table
from dpgen.data.tables import simulated_visits
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.selection import FrequentValues
from dpgen.privacy.shared_budget import SharedBudget
from dpgen.systems.domains import FREQUENT, DomainsPlan, release_domains

RNG = np.random.default_rng(0)
COLUMNS: dict[str, tuple[Any, Any]] = {
    "age": ("numbers", RNG.integers(18, 90, 5000).astype(float)),
    "born": ("days", RNG.integers(0, 10_000, 5000).astype(float)),
    "drink": ("categories", ["tea"] * 3000 + ["rum"] * 1999 + ["absinthe"]),
}


def released(epsilon: float, columns: Any = COLUMNS) -> tuple[dict[str, Any], Ledger]:
    plan = DomainsPlan(epsilon=epsilon)
    ledger = plan.open_ledger()
    return release_domains(columns, plan=plan, curator=Curator(ledger)), ledger


def test_frequent_categories_and_wide_ranges_are_found_and_rare_ones_are_not() -> None:
    found, ledger = released(3.0)
    assert found["drink"] == ["rum", "tea"]
    assert 10 <= found["age"][0] <= 20
    assert 85 <= found["age"][1] <= 130
    assert found["born"][0] <= 800
    assert 9_000 <= found["born"][1] <= 11_000
    assert 2.9 < ledger.epsilon() <= 3.0


def test_columns_without_any_value_have_a_domain_too() -> None:
    found, _ = released(1.0, {name: (kind, values[:0]) for name, (kind, values) in COLUMNS.items()})
    assert found["drink"] == []
    assert np.isfinite(found["age"]).all()
    assert found["age"][0] < found["age"][1]


def test_a_value_of_one_record_is_released_with_probability_delta_at_most() -> None:
    mechanism = FrequentValues({"absinthe": 1, "tea": 1000}, 0.5, 0.01)
    drawn = mechanism.draw(SecureSource(), 4000)
    share = sum("absinthe" in names for names in drawn) / len(drawn)
    assert share < 0.01 + 6 * (0.01 / 4000) ** 0.5
    assert share > 0
    assert all("tea" in names for names in drawn)


def test_the_noise_is_as_wide_as_its_price() -> None:
    mechanism = FrequentValues({"tea": 16}, 0.2, 0.02)
    share = sum(bool(names) for names in mechanism.draw(SecureSource(), 4000)) / 4000
    assert share == pytest.approx(np.exp(mechanism.log_probabilities()["tea"]), abs=0.05)


def test_nothing_is_drawn_where_the_ledger_refuses() -> None:
    ledger = Ledger(Budget(0.5, 1e-6))
    with pytest.raises(BudgetExceeded, match="budget"):
        release_domains(COLUMNS, plan=DomainsPlan(epsilon=1.0), curator=Curator(ledger))
    assert not ledger.entries()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"epsilon": 0.0}, "epsilon is 0"), ({"delta": 2.0}, "delta"), ({"rows_per_unit": 2}, "rows_per_unit is 2")],
)
def test_plans_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DomainsPlan(**options)


def test_unknown_categories_need_a_delta() -> None:
    curator = Curator(Ledger(Budget(1.0, 0.0)))
    with pytest.raises(ValueError, match="cannot be named at delta 0"):
        release_domains(COLUMNS, plan=DomainsPlan(delta=0.0), curator=curator)
    assert not curator.ledger.entries()


# -- people ------------------------------------------------------------------------------------------------------------


def test_a_value_of_one_person_with_many_rows_is_hardly_ever_released() -> None:
    """At the price of one record 40 equal rows of one person were named at epsilon 1, nearly always."""
    diagnoses = ["cold"] * 3000 + ["kuru"] * 40
    columns: dict[str, tuple[Any, Any]] = {"diagnosis": ("categories", diagnoses)}
    for unit, kuru in (({}, True), ({"unit": "who", "rows_per_unit": 40}, False)):
        plan = DomainsPlan(epsilon=1.0, **unit)  # type: ignore[arg-type]
        found = release_domains(columns, plan=plan, curator=Curator(plan.open_ledger()))
        assert ("kuru" in found["diagnosis"]) == kuru
        assert "cold" in found["diagnosis"]


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_people_pay_what_the_plan_says(rows: int, relation: Any) -> None:
    unit = {"unit": "who", "rows_per_unit": rows} if rows > 1 else {}
    plan = DomainsPlan(epsilon=2.0, relation=relation, **unit)  # type: ignore[arg-type]
    ledger = plan.open_ledger()
    release_domains(COLUMNS, plan=plan, curator=Curator(ledger))
    assert 1.9 < ledger.epsilon() <= 2.0
    assert not ledger.chosen_later
    [frequent] = [entry.event for entry in ledger.entries() if entry.note.startswith(FREQUENT)]
    assert frequent.epsilon == pytest.approx(2.0 / 3, rel=1e-6)
    assert 0.99e-6 < frequent.delta <= 1e-6


def test_the_price_of_one_record_does_not_hold_for_people() -> None:
    [row] = [row for row in ROWS if isinstance(row, LawRow) and row.neighbours is of_people]
    paid_once = replace(row, law=lambda x, r: selected(1.0, 1e-3)(x, r)._replace(event=row.law(x, r).event))
    for relation in row.relations:
        with pytest.raises(AssertionError, match="delta is"):
            check_pairs(paid_once, relation)


def test_ranges_are_as_wide_as_the_noise_of_people() -> None:
    """Cells that the rows of one person fill do not count."""
    columns: dict[str, tuple[Any, Any]] = {"cost": ("numbers", np.append(np.full(20_000, 5.0), np.full(40, 9e5)))}
    plan = DomainsPlan(epsilon=2.0, unit="who", rows_per_unit=40)
    (_, high) = release_domains(columns, plan=plan, curator=Curator(plan.open_ledger()))["cost"]
    assert high < 1000  # type: ignore[operator]


# -- command -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    simulated_visits(2000).content.to_pandas().to_parquet(tmp_path / "visits.parquet")
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
    assert [field["type"] for field in json.loads(printed.out)["fields"]] == ["string", "string"]
    assert "has no types, so every column is drafted as a string: write integer" in printed.err
    assert main(["schema", str(path), "--out", str(out)]) == 0
    assert "or draft from a Parquet file, which has types" in capsys.readouterr().out
    assert main(["schema", str(path), "--from_private_values"]) == 0
    assert capsys.readouterr().err == ""


def test_a_schema_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"path is None and schema is 'a.json'; path must name the table"):
        load_table(schema="a.json")


def test_a_shared_budget_pays(visits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = visits.parent / "budget.jsonl"
    SharedBudget.obtain(ledger, Budget(1.0, 1e-5), relation="add_remove", unit="one record")
    arguments = ["schema", str(visits), "--epsilon", "0.8", "--ledger", str(ledger)]
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


PEOPLE = ["--unit", "who", "--rows_per_unit", "40"]


def test_a_purchase_for_people_knows_unit_and_rows(stays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(bought(stays, *PEOPLE).read_text())
    assert "add or remove one person (who) with at most 40 rows" in capsys.readouterr().out
    assert [field["name"] for field in schema["fields"]] == ["age", "ward"]
    assert schema["fields"][1]["constraints"]["enum"] == ["a", "other"]
    paid = {"epsilon": 4.0, "delta": 1e-6, "relation": "add_remove", "unit": "who", "rows_per_unit": 40}
    assert schema["dpgen:privacy"] == paid
    release = dpgen.fit("tables", str(stays), epsilon=5.0, schema=schema, unit="who", rows_per_unit=40)
    [note] = [text for text in release.statement.conventions if "private release of their own" in text]
    assert "relation add_remove, unit who, rows_per_unit 40" in note


def test_of_a_person_no_more_than_m_rows_are_looked_at(tmp_path: Path) -> None:
    """Were all of them, the one with 3,000 would fill a range by themselves."""
    who = [*range(3000), *[3000] * 3000]
    pd.DataFrame({"who": who, "cost": [5.0] * 3000 + [9e5] * 3000}).to_parquet(tmp_path / "a.parquet")
    schema = json.loads(bought(tmp_path / "a.parquet", "--unit", "who", "--rows_per_unit", "2").read_text())
    assert schema["fields"][0]["constraints"]["maximum"] < 1000


FOR_RECORDS: list[str] = []
UNITS = {
    "records": (FOR_RECORDS, {}),
    "people": (PEOPLE, {"unit": "who", "rows_per_unit": 40}),
    "fewer rows": (["--unit", "who", "--rows_per_unit", "2"], {"unit": "who", "rows_per_unit": 2}),
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
                assert dpgen.fit("tables", data, epsilon=5.0, schema=schema, **options).epsilon <= 5.0
                continue
            with pytest.raises(ValueError, match=r"schema is a release whose (unit|relation) is"):
                dpgen.fit("tables", data, epsilon=5.0, schema=schema, **options, run_dir=tmp_path / "run")
            assert not (tmp_path / "run").exists()


def test_schemas_that_do_not_say_for_whom_were_bought_for_records(stays: Path) -> None:
    schema = json.loads(bought(stays, *PEOPLE).read_text())
    schema["dpgen:privacy"] = {"epsilon": 4.0, "delta": 1e-6, "relation": "add_remove"}  # as 0.4 wrote it
    assert dpgen.fit("tables", str(stays), epsilon=5.0, schema=schema).epsilon <= 5.0
    with pytest.raises(ValueError, match="schema is a release whose unit is 'one record'"):
        dpgen.fit("tables", str(stays), epsilon=5.0, schema=schema, unit="who")


def test_a_second_purchase_comes_on_top_of_the_first(stays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The price of the last one alone would be stated for both."""
    out = bought(stays, *PEOPLE)
    draft = json.loads(out.read_text())
    draft["fields"][0]["constraints"] = {"required": True}
    out.write_text(json.dumps(draft))
    for wrong in (FOR_RECORDS, [*PEOPLE[:-1], "39"]):
        assert main(["schema", str(stays), "--schema", str(out), "--epsilon", "1", *wrong]) == 2
        assert "for which the domains of the schema were bought" in capsys.readouterr().err
    bought(stays, "--schema", str(out), *PEOPLE)
    paid = json.loads(out.read_text())["dpgen:privacy"]
    assert (paid["epsilon"], paid["delta"]) == (8.0, 2e-6)


@pytest.mark.parametrize(("own", "other"), [(FOR_RECORDS, PEOPLE), (PEOPLE, FOR_RECORDS), (PEOPLE, [*PEOPLE[:-1], "39"])])
def test_a_shared_budget_of_another_unit_pays_for_nothing(
    stays: Path, own: list[str], other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    unit = DomainsPlan(unit=own[1], rows_per_unit=int(own[3])).protected if own else "one record"
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
        (["--epsilon", "1", "--rows_per_unit", "2"], "rows_per_unit is 2"),
        (["--epsilon", "1", "--unit", "whose"], "has no column 'whose'"),
        (["--delta", "1e-5"], "epsilon is None"),
        (["--epsilon", "0"], "epsilon is 0.0"),
        (["--epsilon", "1", "--from_private_values"], "it must stand alone"),
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


def test_a_file_without_types_needs_a_draft_with_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pd.DataFrame({"age": [30] * 200}).to_csv(tmp_path / "a.csv", index=False)
    assert main(["schema", str(tmp_path / "a.csv"), "--epsilon", "1"]) == 2
    assert "has no types" in capsys.readouterr().err
    draft = {"fields": [{"name": "age", "type": "integer"}]}
    (tmp_path / "draft.json").write_text(json.dumps(draft))
    assert main(["schema", str(tmp_path / "a.csv"), "--schema", str(tmp_path / "draft.json"), "--epsilon", "1"]) == 0
    rules = json.loads(capsys.readouterr().out)["fields"][0]["constraints"]
    assert rules["minimum"] <= 30 <= rules["maximum"]
