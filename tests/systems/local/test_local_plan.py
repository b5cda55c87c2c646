"""What local draws cost, and bad plans."""

import math
from pathlib import Path

import pytest

from dpgen.privacy.mechanisms import pure_event
from dpgen.systems.local.plan import USER, LocalPlan


@pytest.mark.parametrize(("epsilon", "draws", "prior"), [(1.0, 1, None), (0.3, 3, None), (1.0, 7, 0.3), (1400.0, 2, None)])
def test_the_ledger_allows_exactly_the_plan(epsilon: float, draws: int, prior: float | None, tmp_path: Path) -> None:
    plan = LocalPlan(epsilon=epsilon, draws=draws, prior_epsilon=prior)
    ledger = plan.open_ledger(tmp_path / "ledger.jsonl")
    assert (ledger.relation, ledger.unit, ledger.delta) == ("replace_one", USER, 0.0)
    if prior:
        ledger.charge(pure_event(prior), note="prior")
    assert ledger.allowance(pure_event(plan.per_draw)) == draws
    ledger.charge(pure_event(plan.per_draw), draws, note="draws")
    assert ledger.epsilon() == pytest.approx(epsilon, rel=1e-11)
    assert ledger.allowance(pure_event(1e-6)) == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("epsilon", value) for value in (0.0, 701.0, math.nan, True)),
        *(("draws", value) for value in (0, 1.5)),
        *(("prior_epsilon", value) for value in (0.0, 1.0, math.inf)),
    ],
)
def test_bad_plans(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=option):
        LocalPlan(**{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("prior", [None, 0.1, 0.3])
def test_parts_never_add_up_to_more_than_the_plan(prior: float | None) -> None:
    for draws in range(1, 60):
        for epsilon in (0.7, 1.0, 2.2, 3.3):
            plan = LocalPlan(epsilon=epsilon, draws=draws, prior_epsilon=prior)
            total = math.fsum([prior or 0.0, plan.per_draw * draws])
            assert epsilon * (1 - 1e-15) <= total <= epsilon
