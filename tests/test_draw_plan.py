"""Plans of private draws and of one central release."""

import math
from typing import Any

import pytest

from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import BudgetExceeded
from dpgen.runtime import Runtime
from dpgen.systems.continuous.draw_plan import DrawPlan, RecordPlan, require_one_device


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


@pytest.mark.parametrize(("group", "unit"), [(1, "one record"), (5, "one group of up to 5 records")])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_a_release_is_one_pure_event(relation: Any, group: int, unit: str) -> None:
    ledger = RecordPlan(epsilon=0.5, relation=relation, group_size=group).open_ledger()
    ledger.charge(pure_event(0.5), 1, note="density")
    assert (ledger.epsilon(), ledger.relation, ledger.unit) == (0.5, relation, unit)


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
        (lambda: RecordPlan(epsilon=-1.0), "epsilon is -1.0"),
        (lambda: RecordPlan(relation="swap"), "relation is 'swap'; choose one of"),  # type: ignore[arg-type]
        (lambda: RecordPlan(group_size=0), "group_size is 0"),
    ],
)
def test_bad_plans_are_refused(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_several_devices_are_refused() -> None:
    require_one_device(Runtime(accelerator="cpu"))
    for options in ({"devices": 2}, {"num_nodes": 2}):
        with pytest.raises(ValueError, match="both must be 1 here: a draw needs one classifier and no sums over records"):
            require_one_device(Runtime(accelerator="cpu", **options))  # type: ignore[arg-type]
