"""Domains that are released privately: what is found, what it costs, and the command that does it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpgen.cli.main import main
from dpgen.data import load_table
from dpgen.data.tables import simulated_visits
from dpgen.privacy.curator import Curator
from dpgen.privacy.frequent_values import FrequentValues
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.systems.domains import DomainsPlan, release_domains

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
    [({"epsilon": 0.0}, "epsilon is 0"), ({"delta": 2.0}, "delta"), ({"relation": "replace_one"}, "under 'add_remove'")],
)
def test_plans_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DomainsPlan(**options)


def test_unknown_categories_need_a_delta() -> None:
    curator = Curator(Ledger(Budget(1.0, 0.0)))
    with pytest.raises(ValueError, match="cannot be named at delta 0"):
        release_domains(COLUMNS, plan=DomainsPlan(delta=0.0), curator=curator)
    assert not curator.ledger.entries()


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
    assert "a private release of their own (epsilon 2.0, delta 1e-06, relation add_remove)" in " ".join(table.notes)


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
    from dpgen.privacy.shared_budget import SharedBudget

    ledger = visits.parent / "budget.jsonl"
    SharedBudget.obtain(ledger, Budget(1.0, 1e-5), relation="add_remove", unit="one record")
    arguments = ["schema", str(visits), "--epsilon", "0.8", "--ledger", str(ledger)]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["dpgen:privacy"]["epsilon"] == 0.8
    assert main(arguments) == 2
    assert "budget" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
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
