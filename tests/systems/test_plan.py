"""What all plans have in common: a budget, the ledger that enforces it, and what is refused."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Pure(Plan):
    epsilon: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Approximate(Plan):
    epsilon: float | None = 1.0
    delta: float = 1e-5
    relation: Relation = "add_remove"
    gaussian: ClassVar[bool] = True
    reports: ClassVar[bool] = True


def test_a_pure_plan_has_no_options_but_epsilon() -> None:
    ledger = Pure(epsilon=0.5).open_ledger()
    assert ledger.budget == Budget(0.5, 0.0)
    assert (ledger.relation, ledger.unit) == ("replace_one", "one record")


def test_the_ledger_has_the_plans_numbers_and_is_kept(tmp_path: Path) -> None:
    with Approximate(relation="replace_one").open_ledger(tmp_path / "ledger.jsonl") as ledger:
        assert (ledger.budget, ledger.relation) == (Budget(1.0, 1e-5), "replace_one")
    assert Ledger.open(tmp_path / "ledger.jsonl").budget == Budget(1.0, 1e-5)


def test_without_epsilon_the_ledger_only_reports() -> None:
    plan = Approximate(epsilon=None, delta=1e-6)
    assert plan.budget is None
    assert plan.open_ledger().budget is None
    assert plan.open_ledger().delta == 1e-6


@pytest.mark.parametrize(
    ("plan", "name", "value"),
    [
        *((Pure, "epsilon", value) for value in (0.0, math.nan, True, None)),
        *((Approximate, "delta", value) for value in (0.0, 1.0, math.nan)),
        (Approximate, "relation", "swap"),
    ],
)
def test_bad_numbers_are_refused(plan: Any, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        plan(**{name: value})
