"""The limits of the filter against its formula, written out."""

import math

import pytest

from dpgen.privacy.composition import Cost, Filter

UNIT = 2.0**-256
NEVER = 1 << 400  # a sum of pure epsilons that no budget has


def largest_moment(limits: Filter) -> float:
    """The largest log-moment that fits, by bisection."""
    low, high = 0, 1 << 300
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if limits.fits(Cost(middle, NEVER, 0)) else (low, middle)
    return low * UNIT


@pytest.mark.parametrize("reserved", [0.0, 0.1, 0.9])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.3, 1e-9), (8.0, 1e-3)])
def test_moments_are_limited_at_the_part_of_delta_that_is_not_reserved(epsilon: float, delta: float, reserved: float) -> None:
    """Canonne, Kamath, Steinke 2020, Proposition 12, solved for the log-moment."""
    order, left = Filter.best(epsilon, delta * (1 - reserved)).order or 0.0, delta * (1 - reserved)
    limits = Filter(epsilon, delta, order, reserved)
    expected = (order - 1) * (epsilon - math.log((order - 1) / order)) + math.log(left * order)
    assert largest_moment(limits) == pytest.approx(expected, rel=1e-9)
