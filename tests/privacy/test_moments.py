import math

import mpmath
import numpy as np
import pytest

from dpgen.privacy.accountants import (
    ORDERS,
    epsilon,
    rdp_epsilon,
    replaced_alpha,
    subsampled_gaussian_alpha,
)
from dpgen.privacy.mechanisms import effective_multiplier, subsampled_gaussian_event
from papers.acs2017 import general_moments_epsilon


def reference(integrand, rate, sigma, low, high):
    """log E f(1 + x(z), 1 + x(-z)), 1 + x = 1 - q + q e^((2z - 1) / (2 sigma^2)), z ~ N(0, sigma^2), by the trapezoid rule."""
    step = min(sigma / 6, sigma**2 / 4)
    with mpmath.workdps(50):
        q, s, h = (mpmath.mpf(x) for x in (rate, sigma, step))
        total, start = mpmath.mpf(0), mpmath.mpf(low - 16 * sigma)
        for i in range(math.ceil((high - low + 32 * sigma) / step) + 1):
            z = start + i * h
            up, down = (1 - q + q * mpmath.exp((sign * 2 * z - 1) / (2 * s * s)) for sign in (1, -1))
            total += mpmath.exp(-z * z / (2 * s * s)) * integrand(up, down)
        return mpmath.log(total * h / (s * mpmath.sqrt(2 * mpmath.pi)))


def reference_alpha(power, rate, sigma):
    """log E (1 + x)^power: power lambda + 1 is removing a record, -lambda adding one."""
    return reference(lambda up, _: up ** mpmath.mpf(power), rate, sigma, min(0, power), max(0, power))


@pytest.mark.parametrize(
    ("order", "rate", "sigma"),
    [(1.5, 1e-6, 100.0), (8.0, 1e-6, 0.3), (32.0, 0.0017, 1.0), (2.5, 0.5, 0.3), (0.01, 0.01, 2.0), (10.0, 1e-5, 50.0)],
)
def test_alpha_against_50_digits(order, rate, sigma):
    exact = reference_alpha(order + 1, rate, sigma)
    assert abs(subsampled_gaussian_alpha(order, rate, sigma) / exact - 1) < 3e-14
    assert reference_alpha(-order, rate, sigma) <= exact, "adding a record is never the worse direction"


@pytest.mark.parametrize("rate", [1e-5, 0.01, 0.5])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 20.0])
def test_directions_and_limits(rate, sigma):
    alphas = [subsampled_gaussian_alpha(order, rate, sigma) for order in ORDERS[:80]]
    assert np.all(np.diff(alphas) > 0)
    for order in (0.5, 2.0, 20.0):
        alpha = subsampled_gaussian_alpha(order, rate, sigma)
        plain = subsampled_gaussian_alpha(order, 1.0, sigma)
        assert alpha <= replaced_alpha(order, rate, sigma) * (1 + 1e-12)
        assert replaced_alpha(order, rate, sigma) <= 4 * plain


def reference_replaced(order, rate, sigma):
    """log E P (P / Q)^order of (1-q) N(0) + q N(+-1)."""
    return reference(lambda up, down: up * (up / down) ** mpmath.mpf(order), rate, sigma, 0, 2 * order + 1)


@pytest.mark.parametrize(
    ("order", "rate", "sigma"),
    [
        (1.0, 0.9, 1.0), (0.001, 0.5, 2.0), (20.0, 1e-6, 0.5), (5.0, 0.1, 0.3), (3.0, 1 - 1e-9, 0.5), (20.0, 1 - 1e-9, 1.0),
        (200.0, 1 - 1e-9, 3.0), (100.0, 1 - 1e-12, 5.0), (2000.0, 0.99, 30.0), (2000.0, 1 - 1e-9, 30.0),
    ],
)  # fmt: skip
def test_replaced_alpha_against_50_digits(order, rate, sigma):
    """At rates near 1 and high orders, which tiny deltas ask for, the tilted mass sits at 2 order + 1."""
    assert abs(replaced_alpha(order, rate, sigma) / reference_replaced(order, rate, sigma) - 1) < 3e-14


def test_replaced_rates_near_1_tend_to_the_plain_gaussian_at_tiny_deltas():
    near = epsilon(subsampled_gaussian_event(1 - 1e-12, 3.0), 1e-300, relation="replace_one", accountant="rdp")
    plain = epsilon(subsampled_gaussian_event(1.0, 3.0), 1e-300, relation="replace_one", accountant="rdp")
    assert near == pytest.approx(plain, rel=1e-7)


def test_rdp_conversion_is_never_below_the_exact_gaussian():
    from dp_accounting import get_epsilon_gaussian

    for sigma in (0.5, 2.0, 30.0):
        for delta in (1e-5, 1e-12):
            alphas = np.array([subsampled_gaussian_alpha(order, 1.0, sigma) for order in ORDERS])
            exact = get_epsilon_gaussian(sigma, delta)
            assert exact <= rdp_epsilon(alphas, delta) <= 1.25 * exact


PLAN = {"sampling_rate": 0.0017, "steps": 11780, "delta": 1e-5}


class TestGeneralMoments:
    def test_published_value_is_not_a_guarantee(self):
        """Acs et al. 2017, Theorem 3: 7.22 is claimed, but adding noise to one Gaussian cannot make eps < 8.53."""
        claimed = general_moments_epsilon(sigma_norm=0.7, sigma_sgd=0.7, **PLAN)
        assert claimed == pytest.approx(7.22, abs=0.005)
        assert claimed < rigorous_lower_bound(effective_multiplier(0.7, 0.7)) - 0.5
        event = subsampled_gaussian_event(0.0017, effective_multiplier(0.7, 0.7))
        from dp_accounting import SelfComposedDpEvent

        guarantee = epsilon(SelfComposedDpEvent(event, 11780), 1e-5)
        assert guarantee == pytest.approx(8.59, abs=0.01)


def rigorous_lower_bound(sigma):
    """Epsilon below which no (epsilon, 1e-5) guarantee of 11,780 steps at q = .0017 exists.

    The pair (histogram, sum) is attained by a record that moves both in fixed directions; its likelihood ratio is that
    of one Gaussian with `sigma`, and losses rounded DOWN on a grid compose to less than the true epsilon.
    """
    from lower_bound import lower_epsilon

    return lower_epsilon(0.0017, sigma, 11780, 1e-5, step=1e-4)
