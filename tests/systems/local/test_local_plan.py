"""What local draws cost, and bad plans."""

import math
from dataclasses import fields
from pathlib import Path

import pytest

from dpgen.privacy.ledger import Ledger
from dpgen.systems.local.plan import USER, LocalConfig, LocalPlan, ParkConfig, RandomizedResponseConfig


@pytest.mark.parametrize(("epsilon", "draws", "prior"), [(1.0, 1, None), (0.3, 3, None), (1.0, 7, 0.3), (1400.0, 2, None)])
def test_the_ledger_allows_exactly_the_plan(epsilon: float, draws: int, prior: float | None, tmp_path: Path) -> None:
    from dpgen.privacy.events import pure_event

    plan = LocalPlan(epsilon=epsilon, draws=draws, prior_epsilon=prior)
    ledger = plan.open_ledger(tmp_path / "ledger.jsonl")
    assert (ledger.relation, ledger.unit, ledger.delta) == ("replace_one", USER, 0.0)
    if prior:
        ledger.charge(pure_event(prior), note="prior")
    assert ledger.allowance(pure_event(plan.per_draw)) == draws
    ledger.charge(pure_event(plan.per_draw), draws, note="draws")
    assert ledger.epsilon() == pytest.approx(epsilon, rel=1e-11)
    assert ledger.allowance(pure_event(1e-6)) == 0
    assert isinstance(ledger, Ledger)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0; it must be a finite number > 0"),
        ({"epsilon": 701.0}, "epsilon is 701.0 for 1 draws; a draw may have at most 700 nats"),
        ({"prior_epsilon": 1.0}, "prior_epsilon is 1.0; it must lie in .0, 1., below epsilon"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"epsilon": True}, "epsilon is True"),
        ({"draws": 0}, "draws is 0; it must be a whole number >= 1"),
        ({"draws": 1.5}, "draws is 1.5"),
        ({"prior_epsilon": 0.0}, "prior_epsilon is 0.0"),
        ({"prior_epsilon": math.inf}, "prior_epsilon is inf"),
    ],
)
def test_bad_plans(change: dict[str, float], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        LocalPlan(**change)  # type: ignore[arg-type]


def test_configs() -> None:
    assert LocalConfig().options() == {"floor": 1e-6}
    assert RandomizedResponseConfig().options() == {}
    assert not fields(RandomizedResponseConfig)
    assert ParkConfig(density_bounds=(0.5, 2.0)).options() == {"floor": 1e-6, "density_bounds": (0.5, 2.0)}
    with pytest.raises(ValueError, match=r"prior_floor is 0.0; it must lie in \(0, 1\)"):
        LocalConfig(prior_floor=0.0)


@pytest.mark.parametrize("prior", [None, 0.1, 0.3])
def test_parts_never_add_up_to_more_than_the_plan(prior: float | None) -> None:
    for draws in range(1, 60):
        for epsilon in (0.7, 1.0, 2.2, 3.3):
            plan = LocalPlan(epsilon=epsilon, draws=draws, prior_epsilon=prior)
            total = math.fsum([prior or 0.0, plan.per_draw * draws])
            assert epsilon * (1 - 1e-15) <= total <= epsilon
