"""Plans of private draws."""

import math
from typing import Any

import pytest

from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import BudgetExceeded
from dpgen.systems.mbde.plan import DrawPlan


@pytest.mark.parametrize("draws", [1, 3, 7, 1000])
def test_all_draws_fit_and_one_more_does_not(draws: int) -> None:
    plan = DrawPlan(epsilon=1.0, draws=draws)
    ledger = plan.open_ledger()
    ledger.charge(pure_event(plan.per_draw), draws, note="draws")
    assert ledger.epsilon() == pytest.approx(1.0, rel=1e-9)
    assert (ledger.delta, ledger.relation) == (0.0, "replace_one")
    assert "whole data set" in ledger.unit
    with pytest.raises(BudgetExceeded, match="budget epsilon 1"):
        ledger.charge(pure_event(plan.per_draw), 1, note="one more")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: DrawPlan(epsilon=0.0), "epsilon is 0.0"),
        (lambda: DrawPlan(epsilon=math.nan), "epsilon is nan"),
        (lambda: DrawPlan(epsilon=math.inf), "epsilon is inf"),
        (lambda: DrawPlan(epsilon=1000.0), r"epsilon is 1000.0 for draws 1, 1000 each; it must be in \[1e-06, 100\]"),
        (lambda: DrawPlan(epsilon=1e-4, draws=1000), "1e-07 each"),
        (lambda: DrawPlan(draws=0), "draws is 0"),
        (lambda: DrawPlan(draws=True), "draws is True"),
    ],
)
def test_bad_plans_are_refused(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()
