"""One declared Gaussian, spent in parts."""

import math
from typing import Any

import pytest
import torch
from fixed_source import FixedKeySource

from dpgen.privacy.accountants import epsilon
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.systems.gaussian.plan import FULL, SINGLE
from dpgen.systems.gaussian.sums import NOTES, WHOLE, Spending

BUDGET = Budget(1.0, 1e-5)
RELATIONS = ["add_remove", "replace_one"]


def curator(relation: Any = "add_remove", budget: Budget | None = BUDGET) -> Curator:
    return Curator(Ledger(budget, delta=None if budget else 1e-5, relation=relation), source=FixedKeySource())


def moments(n: int = 20_000) -> BoundedSum:
    """As a moment matrix: a replaced record moves it by sqrt 2 as much as an added one."""
    return BoundedSum(torch.zeros(n, dtype=torch.int64), 1.25, replaced=1.25 * math.sqrt(2.0), step=2.0**-36)


def bits(n: int = 20_000) -> BoundedSum:
    """As signs: a replaced record moves them by twice as much."""
    return BoundedSum(torch.zeros(n, dtype=torch.int64), 1.0, step=2.0**-30)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("shares", [SINGLE, FULL], ids=["single", "full"])
def test_the_plan_is_the_budget_and_all_releases_together_are_the_plan(relation: Any, shares: dict[str, float]) -> None:
    one = curator(relation)
    spending = Spending(one, BUDGET, shares)
    assert 0.999 <= one.ledger.epsilon() <= 1.0
    for name in shares:
        spending.release(name, moments(2) if name != "clusters" else bits(2))
    charged = sum(entry.event.noise_multiplier**-2 * entry.count for entry in one.ledger.entries())
    assert charged == pytest.approx(sum(line.event.noise_multiplier**-2 for line in one.ledger.promised()), rel=1e-9)
    assert [entry.note for entry in one.ledger.entries()] == [NOTES[name] for name in shares]
    with pytest.raises(ValueError, match="what is left"):
        spending.release(next(iter(shares)), bits(2))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("sums", [moments(), bits()], ids=["moments", "bits"])
def test_noise_is_what_the_share_pays_for(relation: Any, sums: BoundedSum) -> None:
    """std = sqrt(rounds / share) s times the sensitivity that the ledger takes a Gaussian to have."""
    one = curator(relation)
    spending = Spending(one, BUDGET, {"mean": 0.25, "clusters": 0.75})
    for name, share, rounds in (("mean", 0.25, 1), ("clusters", 0.75, 3)):
        values, stated = spending.release(name, sums, rounds)
        [line] = one.ledger.promised()
        multiplier = line.event.noise_multiplier * math.sqrt(rounds / share)
        moved = sums.sensitivity if relation == "add_remove" else sums.under(relation) / 2.0
        assert stated == pytest.approx(multiplier * moved, rel=1e-12)
        assert float(values.std()) == pytest.approx(stated, rel=0.02)
        assert one.ledger.entries()[-1].event.noise_multiplier == pytest.approx(multiplier, rel=1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_rule_for_sizes_knows_the_noise_that_came_out(relation: Any) -> None:
    one = curator(relation)
    spending = Spending(one, BUDGET, {"mean": 0.3, "components": 0.7})
    deviations = [spending.release(name, moments(2)).noise_std for name in ("mean", "components")]
    assert spending.mu == pytest.approx(sum((1.25 / d) ** 2 for d in deviations) ** 0.5)
    assert epsilon(gaussian_event(1 / spending.mu), 1e-5) <= 1.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_what_follows_takes_all_that_is_left(relation: Any) -> None:
    one = curator(relation)
    spending = Spending(one, BUDGET, {"mean": 0.02, "subspace": 0.2, "components": 0.78})
    spending.release("mean", bits(2))
    spending.release("subspace", moments(2))
    spending.share({"marginals": 3.0, "pairs": 1.0})
    spending.release("marginals", bits(2))
    spending.release("pairs", moments(2))
    [line] = one.ledger.promised()
    assert sum(entry.event.noise_multiplier**-2 for entry in one.ledger.entries()) == pytest.approx(
        line.event.noise_multiplier**-2
    )


def test_a_plan_that_does_not_fit_is_refused_before_anything_is_charged() -> None:
    one = curator(budget=Budget(0.1, 1e-5))
    with pytest.raises(BudgetExceeded, match=f"{WHOLE} .multiplier 3.7"):
        Spending(one, BUDGET, SINGLE)
    assert not one.ledger.entries()
    assert set(NOTES) >= set(FULL)
