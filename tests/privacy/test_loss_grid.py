import math
from itertools import pairwise

import numpy as np
import pytest
from lower_bound import lower_delta, single
from scipy.integrate import quad
from scipy.stats import norm

from dpgen.privacy.pld import TooFine, discretise, loss_variance

PAIRS = [(1e-5, 0.3), (0.0017, 1.0), (0.05, 0.5), (0.5, 3.0), (0.9, 0.3), (1.0, 1.0), (0.01, 50.0)]


def densities(rate, sigma, direction):
    """Density of both distributions of the pair."""

    def mixture(sign):
        return lambda x: (1 - rate) * norm.pdf(x, 0, sigma) + rate * norm.pdf(x, sign, sigma)

    def still(x):
        return norm.pdf(x, 0, sigma)

    return {"remove": (mixture(1), still), "add": (still, mixture(1)), "replace": (mixture(1), mixture(-1))}[direction]


def exact_delta(rate, sigma, direction, epsilon):
    """Hockey stick by quadrature."""
    upper, lower = densities(rate, sigma, direction)
    points = np.linspace(-12 * sigma - 1, 12 * sigma + 2, 60)
    return sum(
        quad(lambda x: max(0.0, upper(x) - math.exp(epsilon) * lower(x)), a, b, epsabs=1e-16, epsrel=1e-10)[0]
        for a, b in pairwise(points)
    )


def grid_delta(grid, epsilon):
    above = grid.losses > epsilon
    return grid.infinite + float(grid.masses[above] @ -np.expm1(epsilon - grid.losses[above]))


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize(("rate", "sigma"), PAIRS)
def test_the_grid_dominates_and_is_close(rate, sigma, direction):
    scale = math.sqrt(loss_variance(rate, sigma, direction))
    grid = discretise(rate, sigma, direction, step=0.02 * scale, tail=1e-14)
    assert grid.masses.min() >= 0
    assert grid.masses.sum() + grid.infinite == pytest.approx(1, abs=1e-9)
    for epsilon in scale * np.array([0.0, 0.31, 1.017, 2.5]):
        exact = exact_delta(rate, sigma, direction, epsilon)
        assert grid_delta(grid, epsilon) >= exact * (1 - 1e-8) - 1e-15
        assert grid_delta(grid, epsilon) <= exact * 1.02 + 1e-3 * scale + 1e-13


def test_losses_rounded_down_fail_that_test():
    """The twin that rounds to the safe-looking side of nothing: its hockey stick is below the exact one."""
    start, masses = single(0.05, 1.0, 0.02)
    assert lower_delta(start, masses, 0.02, 0.1) < exact_delta(0.05, 1.0, "remove", 0.1) * (1 - 1e-3)


def test_both_distributions_keep_their_mass():
    """`e^-loss` weighs the other distribution: its total must be 1 too."""
    for rate, sigma in PAIRS:
        grid = discretise(rate, sigma, "remove", step=0.01, tail=1e-14)
        assert float(grid.masses @ np.exp(-grid.losses)) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
def test_log_moment_of_the_grid_is_above_the_analytic_one(direction):
    from dpgen.privacy.moments import adding_alpha, replaced_alpha, subsampled_gaussian_alpha

    alpha = {"remove": subsampled_gaussian_alpha, "add": adding_alpha, "replace": replaced_alpha}[direction]
    grid = discretise(0.02, 0.8, direction, step=1e-3, tail=1e-200)
    for order in (0.5, 2.0, 8.0):
        exact = alpha(order, 0.02, 0.8)
        assert exact * (1 - 1e-9) <= grid.log_moment(order) <= exact * 1.01


def test_too_many_cells():
    with pytest.raises(TooFine, match="cells of 1e-09 nats"):
        discretise(0.5, 1.0, "remove", step=1e-9, tail=1e-10)


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize("tail", [1e-2, 1e-9])
def test_no_mass_is_lost(direction, tail):
    grid = discretise(0.3, 0.8, direction, step=0.01, tail=tail)
    assert grid.masses.sum() + grid.infinite == pytest.approx(1.0, abs=1e-10)
    assert (grid.infinite > 0.1 * tail) == (direction != "add")
