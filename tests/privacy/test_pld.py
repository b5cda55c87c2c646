import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from lower_bound import lower_epsilon
from scipy.stats import norm

from dpgen.privacy import pld
from dpgen.privacy.pld import discretise


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.0, 50.0])
@pytest.mark.parametrize("count", [1, 30, 10_000])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-60])
def test_plain_gaussians_against_the_closed_form(sigma, count, delta):
    exact = get_epsilon_gaussian(sigma / math.sqrt(count), delta)
    got = pld.epsilon({(1.0, sigma): count}, delta, "remove")
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
    got = pld.epsilon({(rate, sigma): 1}, delta, direction)
    # the loss of adding stops at -log(1 - q), where halving the grid gains little
    assert high * (1 - 1e-9) <= got <= high * (1.006 if direction == "add" else 1.003)
    if share > 1e-3:
        exact = single_step_delta(rate, sigma, direction, high)
        assert exact * (1 - 1e-6) <= pld.delta({(rate, sigma): 1}, high, direction) <= exact * 1.01


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("rate", "sigma", "count"), [(0.1, 1.0, 2), (0.3, 0.7, 3), (0.05, 0.5, 8), (0.5, 2.0, 40)])
def test_small_compositions_against_plain_convolution(rate, sigma, count, add):
    """Losses rounded down: the truth lies between this and this plus count * step."""
    step = 2e-4
    low = lower_epsilon(rate, sigma, count, 1e-4, step=step, add=add)
    got = pld.epsilon({(rate, sigma): count}, 1e-4, "add" if add else "remove")
    assert low <= got <= (low + count * step) * 1.001


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
def test_delta_inverts_epsilon_down_to_1e_100(direction):
    parts = {(0.01, 1.0): 1000, (1.0, 4.0): 1}
    for delta in (0.05, 1e-3, 1e-8, 1e-30, 1e-100):
        epsilon = pld.epsilon(parts, delta, direction)
        assert pld.delta(parts, epsilon, direction) == pytest.approx(delta, rel=0.02)


def test_order_of_parts_and_repeated_runs_do_not_matter():
    forward = pld.epsilon({(0.01, 1.0): 100, (0.1, 3.0): 50, (1.0, 5.0): 1}, 1e-5, "remove")
    backward = pld.epsilon({(1.0, 5.0): 1, (0.1, 3.0): 50, (0.01, 1.0): 100}, 1e-5, "remove")
    assert forward == pytest.approx(backward, rel=1e-9)


def test_monotone_in_everything():
    values = [pld.epsilon({(0.02, 1.0): count}, 1e-5, "remove") for count in (1, 10, 100, 1000, 10_000)]
    assert values == sorted(values)
    values = [pld.epsilon({(0.02, sigma): 100}, 1e-5, "remove") for sigma in (3.0, 1.0, 0.5, 0.3)]
    assert values == sorted(values)
    values = [pld.epsilon({(0.02, 1.0): 100}, delta, "remove") for delta in (1e-2, 1e-5, 1e-9, 1e-20)]
    assert values == sorted(values)


def test_zero_epsilon_when_delta_allows_it():
    assert pld.epsilon({(1e-6, 1.0): 10}, 1e-4, "remove") == 0
    assert pld.delta({(1e-6, 1.0): 10}, 0.0, "remove") < 1e-4


def test_adding_is_never_the_worse_direction_here():
    for rate, sigma, count in [(1e-4, 0.5, 1000), (0.05, 1.0, 1000), (0.5, 2.0, 10), (0.9, 1.0, 3)]:
        add = pld.epsilon({(rate, sigma): count}, 1e-5, "add")
        assert add <= pld.epsilon({(rate, sigma): count}, 1e-5, "remove") * 1.001


def test_huge_and_tiny():
    assert pld.epsilon({(0.5, 0.5): 100_000}, 1e-5, "remove") == pytest.approx(68_420, rel=1e-3)
    # mu = q sqrt(T) / sigma: the central limit is exact enough here
    tiny = pld.epsilon({(1e-5, 50.0): 100_000}, 1e-5, "remove")
    mu = 1e-5 * math.sqrt(1e5) * math.sqrt(math.expm1(1 / 50**2))
    assert tiny == pytest.approx(get_epsilon_gaussian(1 / mu, 1e-5), rel=1e-3)


def test_fold_wraps_around():
    folded = pld._fold(np.arange(1.0, 8.0), 2, 4)
    assert folded.tolist() == [3 + 7, 4, 1 + 5, 2 + 6]


def test_what_is_cut_off_counts_as_infinite():
    grid = discretise(0.3, 1.0, "remove", step=0.02, tail=1e-4)
    composed = pld.Composition([grid], [10])
    assert composed.infinite == pytest.approx(10 * grid.infinite)
    tail = composed.tail(0.0, -3.0, 20.0, math.log(1e-3))
    assert tail.infinite == pytest.approx(10 * grid.infinite + 1e-3)


def test_rounding_errors_of_the_transform_have_an_allowance():
    grid = discretise(1.0, 5.0, "remove", step=0.01, tail=1e-12)
    tail = pld.Composition([grid], [2]).tail(0.0, -4.0, 8.0, -100.0)
    assert (np.diff(tail.above) < 0).all(), "no cell is empty, those beyond all losses neither"
