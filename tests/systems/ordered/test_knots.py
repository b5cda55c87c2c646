"""Noisy answers to a monotone prefix count."""

import numpy as np
import pytest
from scipy.optimize import minimize

from dpgen.systems.ordered.counts import MonotoneCounts, monotone_counts


def test_repeated_knots_are_averaged_by_inverse_variance() -> None:
    fit = monotone_counts(np.array([5, 5]), np.array([10.0, 40.0]), np.array([1.0, 2.0]), N=10, size=50)
    assert fit.positions.tolist() == [0, 5, 10]
    assert fit.counts[1] == pytest.approx(20.0)


def test_weighted_isotonic_fit_agrees_with_a_general_minimiser() -> None:
    rng = np.random.default_rng(0)
    knots, counts, variances = np.arange(1, 7), rng.normal(50, 30, 6), rng.uniform(0.5, 3, 6)
    fit = monotone_counts(knots, counts, variances, N=8, size=1000)
    slow = minimize(
        lambda y: ((y - counts) ** 2 / variances).sum(),
        np.sort(counts),
        constraints={"type": "ineq", "fun": np.diff},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    assert fit.counts[1:-1] == pytest.approx(slow.x.clip(0, 1000), abs=1e-3)


def test_result_is_monotone_in_range_and_never_worse_at_the_knots() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        knots = np.unique(rng.integers(1, 99, 20))
        truth = np.sort(rng.uniform(0, 30, knots.size))
        noisy = truth + rng.normal(0, 10, knots.size)
        fit = monotone_counts(knots, noisy, np.ones(knots.size), N=100, size=30.0)
        assert (np.diff(fit.counts) >= 0).all()
        assert (fit.counts[0], fit.counts[-1]) == (0.0, 30.0)
        assert np.abs(fit.at(knots) - truth).max() <= np.abs(noisy - truth).max() + 1e-9


def test_ends_and_nothing() -> None:
    fit = monotone_counts(np.array([0, 9]), np.array([7.0, -3.0]), np.ones(2), N=9, size=4)
    assert fit.positions.tolist() == [0, 9]
    assert fit.counts.tolist() == [0.0, 4.0]


def test_interpolation_keeps_all_digits_at_the_end_of_the_domain() -> None:
    N = 10**18
    counts = MonotoneCounts(np.array([0, N - 4, N]), np.array([0.0, 8.0, 16.0]))
    x = np.array([-5, 0, N - 4, N - 3, N - 1, N, N + 9])
    assert counts.at(x).tolist() == [0.0, 0.0, 8.0, 10.0, 14.0, 16.0, 16.0]
    assert [counts.one(int(v)) for v in x] == counts.at(x).tolist()


def test_one_is_at_bit_for_bit() -> None:
    rng = np.random.default_rng(2)
    edges = np.concatenate([[0], np.unique(rng.integers(1, 10**18, 30)), [10**18]])
    counts = MonotoneCounts(edges, np.sort(rng.uniform(0, 1e7, edges.size)))
    x = rng.integers(0, 10**18, 500)
    assert [counts.one(int(v)) for v in x] == counts.at(x).tolist()
