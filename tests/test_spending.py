"""Shares of mu^2."""

import math

import pytest

from dpgen.privacy.accountants import epsilon
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.systems.gaussian.fit_rule import FULL, SINGLE, TIED
from dpgen.systems.gaussian.spending import BORDER, NOTES, Spending, require_shares

BUDGET = Budget(1.0, 1e-5)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("shares", [SINGLE, FULL, TIED], ids=["single", "full", "tied"])
def test_all_releases_together_spend_the_budget_exactly(relation: str, shares: dict[str, float]) -> None:
    spending = Spending.within(BUDGET, shares, relation)  # type: ignore[arg-type]
    spent = epsilon(spending.total(), BUDGET.delta, relation=relation)  # type: ignore[arg-type]
    assert 0.999 <= spent <= 1.0


def test_shares_are_shares_of_the_inverse_square() -> None:
    spending = Spending.within(BUDGET, SINGLE)
    inverse = {name: spending.multiplier(name) ** -2 for name in SINGLE}
    assert sum(inverse.values()) == pytest.approx(spending.scale**-2)
    assert inverse["subspace"] / inverse["mean"] == pytest.approx(10.0)
    assert 1 / spending.scale == pytest.approx(0.268, abs=1e-3)


def test_rounds_of_a_release_cost_as_much_as_one() -> None:
    spending = Spending.within(BUDGET, FULL)
    assert 4 * spending.multiplier("clusters", 4) ** -2 == pytest.approx(spending.multiplier("clusters") ** -2)


def test_replacing_a_record_costs_less_than_twice() -> None:
    """The exact factor of moment matrices is sqrt 2; doubling everything would waste a third of the budget."""
    exact, doubled = Spending.within(BUDGET, SINGLE, "replace_one"), 2 * Spending.within(BUDGET, SINGLE).scale
    assert exact.scale < 0.75 * doubled
    assert exact.scale > math.sqrt(2.0) * doubled / 2 * 0.99


def test_a_replaced_record_moves_marginals_by_what_is_charged() -> None:
    """(a, u) becomes (a, -u) in its class, or moves to another: 2 and sqrt(2 (1 + a^2)), over sqrt(1 + a^2)."""
    u = [v / 10**0.5 for v in (1, -1) * 5]
    same = math.dist([BORDER, *u], [BORDER, *(-v for v in u)])
    moved = math.sqrt(2.0 * (BORDER**2 + 1.0))
    factor = max(same, moved) / math.sqrt(1.0 + BORDER**2)
    spending = Spending(1.0, {"marginals": 1.0}, "replace_one")
    assert spending.event("marginals").noise_multiplier == pytest.approx(2.0 / factor)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_what_follows_takes_all_that_is_left(relation: str) -> None:
    begun = Spending.within(BUDGET, SINGLE, relation)  # type: ignore[arg-type]
    rest = begun.continued(BUDGET, ["mean", "subspace"], {"marginals": 1.0})
    assert 0.999 <= epsilon(rest.total(), BUDGET.delta, relation=relation) <= 1.0  # type: ignore[arg-type]
    multipliers = [begun.multiplier("mean"), begun.multiplier("subspace"), rest.multiplier("marginals")]
    assert rest.whole == pytest.approx(sum(m**-2 for m in multipliers) ** -0.5)


def test_the_ledger_is_asked_first() -> None:
    ledger = Ledger(Budget(0.1, 1e-5))
    spending = Spending.within(BUDGET, SINGLE)
    with pytest.raises(BudgetExceeded, match="second moment"):
        spending.charge(ledger, "components")
    assert not ledger.entries()
    assert set(NOTES) >= set(FULL) | set(TIED)


@pytest.mark.parametrize(
    ("shares", "message"),
    [({"mean": 0.0}, r"shares\['mean'\] must be positive and finite, got 0"), ({"sum": 1.0}, "choose from mean, subspace")],
)
def test_bad_shares_are_refused(shares: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        require_shares(shares)
