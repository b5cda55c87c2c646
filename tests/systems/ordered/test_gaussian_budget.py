"""The Gaussian that a column's budget buys: its multiplier is that of the relation itself."""

import math

import pytest
from dp_accounting import ComposedDpEvent

from dpgen.privacy.accountants import delta as delta_of
from dpgen.privacy.accountants import epsilon as epsilon_of
from dpgen.privacy.events import pure_event
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.ordered.counts import gaussian_beside, relation_gaussian


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_gaussian_is_calibrated_for_its_own_relation(relation: Relation) -> None:
    """delta of a Gaussian whose means are 1 / multiplier apart, in closed form (Balle and Wang 2018)."""
    multiplier = gaussian_beside((), 1.0, 1e-6, relation)
    mu = 1 / multiplier
    phi = lambda x: 0.5 * math.erfc(-x / math.sqrt(2))  # noqa: E731
    exact = phi(mu / 2 - 1 / mu) - math.e * phi(-mu / 2 - 1 / mu)
    assert exact == pytest.approx(1e-6, rel=2e-3)
    assert delta_of(relation_gaussian(multiplier, relation), 1.0, relation=relation) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_pure_mechanisms_beside_it_are_paid_first(relation: Relation) -> None:
    alone, beside = (gaussian_beside(pure, 1.0, 1e-6, relation) for pure in ((), (0.3,)))
    assert beside > alone
    total = ComposedDpEvent([pure_event(0.3), relation_gaussian(beside, relation)])
    assert 0.999 < epsilon_of(total, 1e-6, relation=relation) <= 1.0
