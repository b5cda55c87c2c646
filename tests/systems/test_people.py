"""People instead of rows, from options to a statement: what runs, what it says, and what is refused before it is spent."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting import ZCDpEvent
from refusals import refused

import dpgen
from dpgen.config import parse_job
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import UnsupportedEvent, for_rows, gaussian_event, pure_event
from dpgen.privacy.noise import prefix_sensitivity
from dpgen.privacy.sampling import PoissonMask
from dpgen.run import run
from dpgen.runtime import quiet_training
from dpgen.systems.ordered.plan import Method

M = 4
UNIT = f"one person (who) with at most {M} rows"


@pytest.fixture(scope="module")
def bits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 2, (400, 4)), columns=list("abcd"))
    table["who"] = rng.integers(0, 60, 400)
    path = tmp_path_factory.mktemp("people") / "bits.csv"
    table.to_csv(path, index=False)
    return path


def arguments(model: str, path: Path, *more: str) -> list[str]:
    about = ["--columns", "a", "--low", "0", "--high", "1"] if model == "merr" else []
    given = ["--model", model, "--data", "csv", "--path", str(path), *about, "--epsilon", "2", "--evaluation", "none"]
    return [*given, "--unit", "who", *more]


TRAINING = ["--steps", "3", "--hidden", "3", "--accelerator", "cpu"]


@pytest.mark.parametrize("model", ["gaussian", "marginals", "mwem", "merr", "dpgm", "dpgan"])
def test_a_statement_speaks_of_people(model: str, bits: Path, tmp_path: Path) -> None:
    given = arguments(model, bits, "--max_contributions", str(M), "--run_dir", str(tmp_path / "run"), "--progress_bar", "false")
    given += {"dpgm": ["--clusters", "none", *TRAINING], "dpgan": TRAINING}.get(model, [])
    with quiet_training():
        statement = run(parse_job(given)).release.statement
    assert statement.unit == UNIT
    assert statement.epsilon <= 2.0
    assert not any(statement.says(fact) for fact in (Fact.ONE_RECORD, Fact.ONE_IMAGE))
    assert statement.says(Fact.ONE_PERSON)
    with Ledger.open(tmp_path / "run" / "ledger.jsonl") as ledger:
        assert (ledger.unit, ledger.rows) == (UNIT, M)
    assert (tmp_path / "run" / "split.key").stat().st_mode & 0o777 == 0o600


def test_frames_come_back_without_the_column_of_people(bits: Path) -> None:
    release = dpgen.fit(pd.read_csv(bits), "marginals", epsilon=1.0, unit="who", max_contributions=M)
    assert release.sample(3).columns.tolist() == list("abcd")
    column = dpgen.fit(pd.read_csv(bits)[["a", "who"]], "merr", epsilon=1.0, low=0, high=1, unit="who", max_contributions=M)
    assert (column.sample(3).columns.tolist(), column.statement.unit) == (["a"], UNIT)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--model", "gaussian", "--max_contributions", "3"], "it must be 1 without unit"),
        (["--model", "gaussian", "--unit", "who", "--max_contributions", "0"], "max_contributions is 0"),
        (["--model", "gaussian", "--unit", "who"], "needs data with a column of people"),
        (["--model", "minimax", "--unit", "who"], "unit is no option of --model minimax"),
    ],
)
def test_units_that_the_data_or_the_system_do_not_have(given: list[str], said: str) -> None:
    with refused(said):
        parse_job(given)


def test_data_that_are_loaded_have_no_column_of_people() -> None:
    with refused("the data are loaded already"):
        dpgen.fit(dpgen.data.load_digits(), "gaussian", epsilon=1.0, unit="who")


def test_a_shared_budget_of_records_refuses_people(bits: Path, tmp_path: Path) -> None:
    shared = dpgen.SharedBudget.create(tmp_path / "all.budget", dpgen.Budget(3.0, 1e-5)).path
    dpgen.fit(pd.read_csv(bits).drop(columns="who"), "marginals", epsilon=0.5, ledger=shared)
    with refused("unit"):
        dpgen.fit(pd.read_csv(bits), "marginals", epsilon=0.5, ledger=shared, unit="who", max_contributions=M)


# -- how many rows there are -------------------------------------------------------------------------------------------


GAPS = pd.DataFrame({"a": np.arange(300) % 2, "who": np.arange(300)}).astype({"a": "Int64"})
OF_COLUMNS = {f"merr {method}": {"low": 0, "high": 1, "method": method} for method in get_args(Method)}
PAIRS: dict[str, dict[str, Any]] = {
    **OF_COLUMNS,
    "mwem cells": {"domain": "cells", "rounds": 2},
    "mwem items": {"domain": "items", "rounds": 2},
}


def sizes(name: str, frame: Any, **more: Any) -> set[int | None]:
    """Numbers of records that some releases state."""
    options = {"relation": "replace_one", "epsilon": 0.3} | PAIRS[name] | more
    return {dpgen.fit(frame, name.split()[0], **options).size for _ in range(3)}


@pytest.mark.parametrize("people", [{"unit": "who"}, {"unit": "who", "max_contributions": 2}, {}], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_nobody_learns_whether_a_person_who_is_replaced_is_complete(name: str, people: Any) -> None:
    """Where n was public, 300 people gave 300, always, and 299 with one of them replaced by somebody with a gap."""
    frame = GAPS if people else GAPS[["a"]]
    incomplete = frame.copy()
    incomplete.loc[0, "a"] = pd.NA
    for some in (frame, incomplete):
        found = sizes(name, some, missing="drop", **people)
        assert not found <= {299, 300}
    if people:  # also without gaps: whoever replaces a person may have no row
        assert not sizes(name, frame, **people) <= {300}
    else:  # where nothing can vanish n is public, which the test above would find
        assert sizes(name, frame) <= {300}


# -- at the curator ----------------------------------------------------------------------------------------------------


def curator(rows: int, **more: Any) -> Curator:
    return Curator(Ledger(Budget(1e3, 1e-5), unit="one person", rows=rows, **more))


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_noise_grows_with_the_rows_of_a_person(relation: Any) -> None:
    """Also where a replaced row moves nothing: a person with another number of rows does."""
    counts = BoundedSum(torch.zeros(4000, dtype=torch.int64), 1.0, replaced=1e-3)
    if relation == "replace_one":  # also where a person has one row, which may be left out
        alone = curator(1, relation=relation, always_used=False)
        alone.gaussian("n", counts, 50.0)
        assert alone.ledger.entries()[0].event == gaussian_event(100.0)
    std = [float(curator(m, relation=relation).gaussian("n", counts, 50.0).double().std()) for m in (1, M)]
    assert std[1] / std[0] == pytest.approx(M, rel=0.15)
    charged = curator(M, relation="replace_one")
    charged.gaussian("n", counts, 50.0)
    assert charged.ledger.entries()[0].event == gaussian_event(100.0)  # which the ledger doubles
    lots = BoundedSum(torch.zeros(4000, dtype=torch.int64), 1.0, replaced=1e-3, norm="l1")
    spread = float(curator(M, relation="replace_one").laplace("n", lots, 0.1).double().abs().mean())
    assert spread == pytest.approx(M / 0.1, rel=0.15)


def test_prefix_sums_have_the_noise_of_all_rows_of_a_person() -> None:
    cells = BoundedSum(torch.zeros(40, dtype=torch.int64), 1.0)
    _, variances = curator(M).prefix_sums("prefix sums", cells, 5.0)
    assert variances[0] ** 0.5 == pytest.approx(M * 5.0 * prefix_sensitivity(40, "add_remove"))


def test_rows_that_are_drawn_one_by_one_earn_nothing_for_people() -> None:
    for rows in (1, M - 1):
        with pytest.raises(ValueError, match=f"the draw is of units of {rows} rows; they must be whole units, of up to 4 rows"):
            curator(M).draw("step", PoissonMask(0.1, rows), {"sums": 1.0})


def test_mechanisms_without_a_price_for_several_rows_are_refused() -> None:
    assert for_rows(pure_event(0.25), M) == pure_event(0.25 * M)
    with refused("for people with up to 4 rows there is no guarantee", error=UnsupportedEvent):
        for_rows(ZCDpEvent(1.0, xi=0.1), M)


def test_the_ledger_remembers_the_rows(tmp_path: Path) -> None:
    for number, rows in enumerate([{"rows": M}, {"always_used": False}, {}]):
        path = tmp_path / f"{number}.jsonl"
        with Ledger(Budget(1.0, 1e-5), relation="replace_one", unit="one person", path=path, **rows) as ledger:  # type: ignore[arg-type]
            terms = ledger.terms
        with Ledger.open(path) as ledger:
            assert ledger.terms == terms
            assert ledger.keeps_size == (not rows)
