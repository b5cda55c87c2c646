"""Privacy loss distributions beside closed forms, quadrature, plain convolution and a bound from below."""

import math
from functools import partial

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from lower_bound import lower_delta, lower_epsilon, single
from scipy.stats import norm

from dpgen.privacy import pld
from dpgen.privacy.accountants import ORDERS, event_alphas, rdp_epsilon, replaced_alpha, subsampled_gaussian_alpha
from dpgen.privacy.mechanisms import subsampled_gaussian_event
from dpgen.privacy.pld import discretise

PAIRS = [(1e-5, 0.3), (0.0017, 1.0), (0.05, 0.5), (0.5, 3.0), (0.9, 0.3), (1.0, 1.0), (0.01, 50.0)]


def densities(rate, sigma, direction):
    """Density of both distributions of the pair."""

    def mixture(sign):
        return lambda x: (1 - rate) * norm.pdf(x, 0, sigma) + rate * norm.pdf(x, sign, sigma)

    def still(x):
        return norm.pdf(x, 0, sigma)

    return {"remove": (mixture(1), still), "add": (still, mixture(1)), "replace": (mixture(1), mixture(-1))}[direction]


def exact_delta(rate, sigma, direction, epsilon):
    """Hockey stick by the trapezoid rule."""
    x, step = np.linspace(-12 * sigma - 1, 12 * sigma + 2, 400_001, retstep=True)
    upper, lower = (density(x) for density in densities(rate, sigma, direction))
    return float(np.maximum(upper - math.exp(epsilon) * lower, 0.0).sum() * step)


def loss_scale(rate, sigma, direction):
    """Standard deviation of the loss, by the trapezoid rule."""
    x, step = np.linspace(-12 * sigma - 1, 12 * sigma + 2, 400_001, retstep=True)
    upper, lower = (density(x) for density in densities(rate, sigma, direction))
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(upper > 1e-200, np.log(upper) - np.log(lower), 0.0)
    mean = (upper * loss).sum() * step
    return math.sqrt((upper * (loss - mean) ** 2).sum() * step)


def pairs(parts, direction):
    return [(partial(discretise, rate, sigma, direction), n) for (rate, sigma), n in parts.items()]


def priced(parts, delta, direction):
    """Epsilon of a composition, searched where moments say."""
    relation = "replace_one" if direction == "replace" else "add_remove"
    alphas = sum(n * event_alphas(subsampled_gaussian_event(*part), relation) for part, n in parts.items())
    bounds = [rdp_epsilon(np.array([alpha]), delta, (order,)) for order, alpha in zip(ORDERS, alphas, strict=True)]
    best = int(np.argmin(bounds))
    return pld.epsilon(pairs(parts, direction), delta, bound=bounds[best], tilt=ORDERS[best])


def grid_delta(grid, epsilon):
    above = grid.losses > epsilon
    return grid.infinite + float(grid.masses[above] @ -np.expm1(epsilon - grid.losses[above]))


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize(("rate", "sigma"), PAIRS)
def test_the_grid_dominates_and_is_close(rate, sigma, direction):
    scale = loss_scale(rate, sigma, direction)
    grid = discretise(rate, sigma, direction, step=0.02 * scale, tail=1e-14)
    assert grid.masses.min() >= 0
    assert grid.masses.sum() + grid.infinite == pytest.approx(1, abs=1e-9)
    if direction == "remove":  # `e^-loss` weighs the other distribution
        assert float(grid.masses @ np.exp(-grid.losses)) == pytest.approx(1, abs=1e-9)
    for epsilon in scale * np.array([0.0, 0.31, 1.017, 2.5]):
        exact = exact_delta(rate, sigma, direction, epsilon)
        assert grid_delta(grid, epsilon) >= exact * (1 - 1e-7) - 1e-15
        assert grid_delta(grid, epsilon) <= exact * 1.02 + 1e-3 * scale + 1e-13


def test_losses_rounded_down_fail_that_test():
    """The twin that rounds to the safe-looking side of nothing: its hockey stick is below the exact one."""
    start, masses = single(0.05, 1.0, 0.02)
    assert lower_delta(start, masses, 0.02, 0.1) < exact_delta(0.05, 1.0, "remove", 0.1) * (1 - 1e-3)


@pytest.mark.parametrize("direction", ["remove", "replace"])
def test_log_moment_of_the_grid_is_above_the_analytic_one(direction):
    alpha = {"remove": subsampled_gaussian_alpha, "replace": replaced_alpha}[direction]
    grid = discretise(0.02, 0.8, direction, step=1e-3, tail=1e-200)
    for order in (0.5, 2.0, 8.0):
        exact = alpha(order, 0.02, 0.8)
        assert exact * (1 - 1e-9) <= grid.tilted(order)[1] <= exact * 1.01


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize("tail", [1e-2, 1e-9])
def test_no_mass_is_lost(direction, tail):
    grid = discretise(0.3, 0.8, direction, step=0.01, tail=tail)
    assert grid.masses.sum() + grid.infinite == pytest.approx(1.0, abs=1e-10)
    assert (grid.infinite > 0.1 * tail) == (direction != "add")


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.0, 50.0])
@pytest.mark.parametrize("count", [1, 30, 10_000])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-60])
def test_plain_gaussians_against_the_closed_form(sigma, count, delta):
    exact = get_epsilon_gaussian(sigma / math.sqrt(count), delta)
    got = priced({(1.0, sigma): count}, delta, "remove")
    assert exact * (1 - 1e-12) <= got <= exact * 1.001 + 1e-12


def single_step_delta(rate, sigma, direction, epsilon):
    """Closed form of one step: the loss is monotone in the outcome."""
    low = math.log(max(math.exp(epsilon if direction == "remove" else -epsilon) - 1 + rate, 1e-300) / rate)
    x = sigma**2 * low + 0.5
    if direction == "remove":
        upper = (1 - rate) * norm.sf(x / sigma) + rate * norm.sf((x - 1) / sigma)
        return upper - math.exp(epsilon) * norm.sf(x / sigma)
    upper = norm.cdf(x / sigma)
    return upper - math.exp(epsilon) * ((1 - rate) * upper + rate * norm.cdf((x - 1) / sigma))


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("rate", "sigma"), [(0.5, 50.0), (0.9, 0.3), (0.01, 1.0), (0.2, 2.0), (1e-3, 0.3)])
@pytest.mark.parametrize("share", [0.3, 1e-2, 1e-4])
def test_single_step_against_the_closed_form(rate, sigma, direction, share):
    delta = share * single_step_delta(rate, sigma, direction, 0.0)
    low, high = 0.0, -math.log1p(-rate) if direction == "add" else 300.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if single_step_delta(rate, sigma, direction, middle) > delta else (low, middle)
    got = priced({(rate, sigma): 1}, delta, direction)
    # the loss of adding stops at -log(1 - q), where a finer grid gains little
    assert high * (1 - 1e-9) <= got <= high * (1.03 if direction == "add" else 1.003)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("rate", "sigma", "count"), [(0.1, 1.0, 2), (0.3, 0.7, 3), (0.05, 0.5, 8), (0.5, 2.0, 40)])
def test_small_compositions_against_plain_convolution(rate, sigma, count, add):
    """Losses rounded down: the truth lies between this and this plus count * step."""
    step = 2e-4
    low = lower_epsilon(rate, sigma, count, 1e-4, step=step, add=add)
    got = priced({(rate, sigma): count}, 1e-4, "add" if add else "remove")
    assert low <= got <= (low + count * step) * 1.001


def test_huge_and_tiny():
    assert priced({(0.5, 0.5): 100_000}, 1e-5, "remove") == pytest.approx(68_420, rel=1e-3)
    # mu = q sqrt(T) / sigma: the central limit is exact enough here
    tiny = priced({(1e-5, 50.0): 100_000}, 1e-5, "remove")
    mu = 1e-5 * math.sqrt(1e5) * math.sqrt(math.expm1(1 / 50**2))
    assert tiny == pytest.approx(get_epsilon_gaussian(1 / mu, 1e-5), rel=1e-3)


@pytest.mark.parametrize("tilt", [0.0, 2.0])
def test_what_is_cut_off_counts_as_infinite(tilt):
    grid = discretise(0.3, 1.0, "remove", step=0.02, tail=1e-4)
    found, _ = pld.composed(pairs({(0.3, 1.0): 10}, "remove"), tilt=tilt, step=0.02, tail=1e-4)
    assert found.infinite == pytest.approx(10 * grid.infinite, rel=1e-9)
    assert found.infinite >= 10 * grid.infinite + (0.99 * pld.CUT if tilt == 0 else 0.0)


@pytest.mark.parametrize("tilt", [0.0, 4.0])
@pytest.mark.parametrize(("rate", "sigma", "count"), [(0.02, 0.8, 16), (1e-3, 0.7, 1024), (0.5, 3.0, 2)])
def test_rounding_errors_of_transforms_have_an_allowance(rate, sigma, count, tilt, monkeypatch):
    """Factors multiplied out without a transform are off by less than what every mass is raised by."""
    parts, options = pairs({(rate, sigma): count}, "remove"), {"tilt": tilt, "step": 4e-3, "tail": 1e-14}
    found, near = pld.composed(parts, **options)
    monkeypatch.setattr(pld, "_ROUNDING", 0.0)
    bare, _ = pld.composed(parts, **options)
    grid = discretise(rate, sigma, "remove", step=4e-3, tail=1e-14)
    exact, scale = grid.tilted(tilt)
    for _ in range(int(math.log2(count))):
        exact = np.convolve(exact, exact)[:12_000]
    first = bare.start - count * grid.start
    tilt_back = np.exp(count * scale - tilt * bare.losses)
    raised, off = found.masses - bare.masses, bare.masses - exact[first : first + len(bare.masses)] * tilt_back
    close = bare.losses > near
    assert (raised > 0)[close].all()
    assert (np.abs(off) < raised)[close].all()


def test_mass_that_leaves_the_window_is_bounded_on_both_sides():
    exact = np.exp(-np.arange(60) / 4.0)
    exact /= exact.sum()
    many = exact
    for _ in range(3):
        many = np.convolve(many, many)
    first, last = pld._window([exact], np.array([8.0]))
    assert 0 <= many[:first].sum() <= pld.CUT
    assert 0 <= many[last + 1 :].sum() <= pld.CUT
    assert last < len(many) - 100


def test_a_tilt_that_sees_nothing_of_epsilon_gives_way_to_a_smaller_one():
    parts = pairs({(0.05, 1.0): 400}, "remove")
    seen = [pld.epsilon(parts, 1e-5, bound=8.0, tilt=tilt) for tilt in (2.0, 6.0, 500.0)]
    assert max(seen) <= min(seen) * 1.003


def test_epsilon_is_read_off_without_cancellation():
    """A pair of two losses: delta at epsilon is p (1 - e^(epsilon - loss))."""
    grid = pld.Grid(-10, 1e-7, np.array([1 - 1e-9, *np.zeros(19), 1e-9]), 0.0)
    exact = 1e-6 + math.log1p(-1e-17 / 1e-9)
    assert exact <= grid.epsilon(1e-17) <= exact * (1 + 1e-6)
    assert grid.epsilon(1e-9) == 0.0
    assert grid._replace(infinite=1e-3).epsilon(1e-4) == math.inf
