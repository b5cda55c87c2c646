"""What every estimator of a column keeps: privacy before noise, any order of records, refusals; the noisy histogram."""

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent
from fixed_source import FixedKeySource
from refusals import refused
from scipy.optimize import minimize

from dpgen.privacy.accountants import delta as delta_of
from dpgen.privacy.accountants import epsilon as epsilon_of
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.mechanisms import Relation, gaussian_event, pure_event
from dpgen.systems.ordered.estimator import (
    MERR,
    LaplaceHistogram,
    MonotoneCounts,
    OrderedEstimator,
    cell_counts,
    planned_size,
    prefix_count,
    sorted_values,
)
from dpgen.systems.ordered.model import PiecewiseCDF
from dpgen.systems.ordered.partition import PartitionCDF, gaussian_beside

ALL: list[type[OrderedEstimator]] = [PartitionCDF, LaplaceHistogram, MERR]
VALUES = np.random.default_rng(0).integers(0, 300, 5000)


def estimator(kind: type[OrderedEstimator], **options: float) -> OrderedEstimator:
    return kind(**{"epsilon": 1.0, "delta": 0.0 if kind is LaplaceHistogram else 1e-6, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("kind", ALL)
def test_it_spends_its_epsilon_and_finds_the_distribution(kind: type[OrderedEstimator], relation: Relation) -> None:
    ledger = Ledger(Budget(1.0, 1e-6), relation=relation)
    cdf = PiecewiseCDF.from_counts(estimator(kind).fit_counts(VALUES, N=300, curator=Curator(ledger)))
    assert 0.98 < ledger.epsilon() <= 1.0
    error = np.abs(cdf.below(np.arange(1, 301)) - (np.arange(300) + 1) / 300).max()
    assert 0 < error < 0.08, "noise is there, and it is no more than that"


@pytest.mark.parametrize(
    ("option", "value"), [("epsilon", 0.0), ("epsilon", float("nan")), ("delta", 1.0), ("size", 0), ("rows", 0)]
)
def test_bad_options(option: str, value: float) -> None:
    with refused(option):
        estimator(LaplaceHistogram, **{option: value})
    with refused("delta"):
        PartitionCDF(epsilon=1.0)


@pytest.mark.parametrize(
    ("values", "N", "name"),
    [
        *((np.array(values), 8, "values") for values in ([], [1.5, 2.0], [[1, 2]], [0, 8], [-1, 3])),
        (np.array([0, 2**63], np.uint64), 2**62, "values"),
        *((np.array([0, 0]), N, "N is") for N in (1, 2**62 + 1)),
    ],
)
def test_bad_values(values: np.ndarray, N: int, name: str) -> None:
    ledger = Ledger(Budget(1.0, 1e-6))
    with refused(name):
        estimator(LaplaceHistogram).fit_counts(values, N=N, curator=Curator(ledger))
    assert ledger.entries() == []


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("kind", ALL)
def test_how_many_records_there_are_is_no_reason_to_refuse(kind: type[OrderedEstimator], n: int, relation: Relation) -> None:
    ledger = Ledger(Budget(1.0, 1e-6), relation=relation)
    counts = estimator(kind).fit_counts(np.full(n, 17), N=300, curator=Curator(ledger))
    assert PiecewiseCDF.from_counts(counts).values[-1] == 1
    assert 0.98 < ledger.epsilon() <= 1.0


def test_the_private_array_is_left_alone_and_uint64_is_fine() -> None:
    values = np.array([5, 1, 3], np.uint64)
    assert sorted_values(values, N=8).tolist() == [1, 3, 5]
    assert sorted_values(values, N=8).dtype == np.int64
    assert values.tolist() == [5, 1, 3]


@pytest.mark.parametrize("kind", ALL)
def test_the_order_of_the_values_does_not_matter(kind: type[OrderedEstimator]) -> None:
    """Counts are differences of ranks among sorted values, whatever order they come in."""
    found = []
    for values in (VALUES, VALUES[::-1]):
        curator = Curator(Ledger(None, delta=1e-6), source=FixedKeySource())
        found.append(estimator(kind).fit_counts(values, N=300, curator=curator).counts.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_total_is_noisy_where_it_is_private(relation: Relation) -> None:
    """The sum of ten noisy counts is n with a chance of about 1/8: all of twelve with 1e-11."""
    values, totals = np.repeat(np.arange(10), 1000), set()
    for _ in range(12):
        curator = Curator(Ledger(None, delta=1e-9, relation=relation))
        totals.add(LaplaceHistogram(epsilon=1.0).fit_counts(values, N=10, curator=curator).counts[-1])
    assert totals == {10_000.0} if relation == "replace_one" else len(totals) > 1
    assert all(abs(total - 10_000) < 200 for total in totals)


# -- counts ------------------------------------------------------------------------------------------------------------


N = 8


def test_counts_are_those_of_a_slow_loop() -> None:
    values = np.sort(np.random.default_rng(0).integers(0, N, 30))
    every = [int((values == x).sum()) for x in range(N)]
    assert cell_counts(values, np.arange(N + 1), norm="l2").values.tolist() == every
    assert prefix_count(values, 3, norm="l1").values.tolist() == [sum(every[:3])]


# -- the number of records ---------------------------------------------------------------------------------------------

COUNTED = np.arange(1000)


def released(curator: Curator, epsilon: float, *, size: int | None = None, n: int = 1000) -> float:
    return LaplaceHistogram(epsilon=1.0, size=size).released_size(COUNTED[:n], epsilon, curator)


def test_replace_one_knows_the_number() -> None:
    curator = Curator(Ledger(Budget(1.0, 1e-6), relation="replace_one"))
    assert LaplaceHistogram(epsilon=1.0).size_epsilon(0.1, "replace_one") == 0
    assert released(curator, 0.1) == 1000
    assert curator.ledger.epsilon() == 0
    with pytest.raises(ValueError, match="size"):
        released(curator, 0.1, size=999)


@pytest.mark.parametrize("terms", [{"rows": 2}, {"always_used": False}], ids=str)
def test_replace_one_does_not_know_the_number_where_rows_may_vanish(terms: Any) -> None:
    curator = Curator(Ledger(Budget(1.0, 1e-6), relation="replace_one", **terms))
    assert LaplaceHistogram(epsilon=1.0, **terms).size_epsilon(0.1, "replace_one") == 0.1
    assert len({released(curator, 0.05) for _ in range(10)}) > 1
    assert curator.ledger.epsilon() == pytest.approx(0.5, rel=1e-4)
    assert released(curator, 0.1, size=999) == 999, "a declared number is not compared with n"


def test_add_remove_pays_for_it_or_is_told() -> None:
    curator = Curator(Ledger(Budget(1.0, 1e-6)))
    assert released(curator, 0.1, size=5000) == 5000
    assert curator.ledger.epsilon() == 0
    curator.declare(*planned_size(0.5))
    noisy = released(curator, 0.5)
    assert curator.ledger.epsilon() == pytest.approx(0.5, rel=1e-4)
    assert abs(noisy - 1000) < 100  # e^-50 of the draws miss
    with pytest.raises(BudgetExceeded, match="number of records"):
        released(curator, 0.6)


# -- the Gaussian that a budget buys --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("relation", "moved"), [("add_remove", 1), ("replace_one", 2)])
def test_the_gaussian_beside_pure_mechanisms_fills_the_budget_of_its_own_relation(relation: Relation, moved: int) -> None:
    """delta of a Gaussian whose means are 1 / multiplier apart, in closed form (Balle and Wang 2018)."""
    alone, beside = (gaussian_beside(pure, 1.0, 1e-6, relation) for pure in ((), (0.3,)))
    mu = 1 / alone
    phi = lambda x: 0.5 * math.erfc(-x / math.sqrt(2))  # noqa: E731
    exact = phi(mu / 2 - 1 / mu) - math.e * phi(-mu / 2 - 1 / mu)
    assert exact == pytest.approx(1e-6, rel=2e-3)
    assert delta_of(gaussian_event(moved * alone), 1.0, relation=relation) == pytest.approx(exact, rel=1e-3)
    assert beside > alone
    total = ComposedDpEvent([pure_event(0.3), gaussian_event(moved * beside)])
    assert 0.999 < epsilon_of(total, 1e-6, relation=relation) <= 1.0


# -- the monotone fit ----------------------------------------------------------------------------------------------------


def test_repeated_knots_are_averaged_by_inverse_variance() -> None:
    fit = MonotoneCounts.fitted(np.array([5, 5]), np.array([10.0, 40.0]), np.array([1.0, 2.0]), N=10, size=50)
    assert fit.positions.tolist() == [0, 5, 10]
    assert fit.counts[1] == pytest.approx(20.0)


def test_weighted_isotonic_fit_agrees_with_a_general_minimiser() -> None:
    rng = np.random.default_rng(0)
    knots, counts, variances = np.arange(1, 7), rng.normal(50, 30, 6), rng.uniform(0.5, 3, 6)
    fit = MonotoneCounts.fitted(knots, counts, variances, N=8, size=1000)
    slow = minimize(
        lambda y: ((y - counts) ** 2 / variances).sum(),
        np.sort(counts),
        constraints={"type": "ineq", "fun": np.diff},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    assert fit.counts[1:-1] == pytest.approx(slow.x.clip(0, 1000), abs=1e-3)


def test_ends_and_nothing() -> None:
    fit = MonotoneCounts.fitted(np.array([0, 9]), np.array([7.0, -3.0]), np.ones(2), N=9, size=4)
    assert fit.positions.tolist() == [0, 9]
    assert fit.counts.tolist() == [0.0, 4.0]


def test_interpolation_keeps_all_digits_at_the_end_of_the_domain() -> None:
    N = 10**18
    counts = MonotoneCounts(np.array([0, N - 4, N]), np.array([0.0, 8.0, 16.0]))
    x = np.array([-5, 0, N - 4, N - 3, N - 1, N, N + 9])
    assert counts.at(x).tolist() == [0.0, 0.0, 8.0, 10.0, 14.0, 16.0, 16.0]
