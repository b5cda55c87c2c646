"""Epsilon, delta and calibrated noise beside closed forms and other libraries."""

import math
import time

import dp_accounting as dpa
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from dpgen.privacy.accountants import (
    ORDERS,
    calibrate_noise,
    delta,
    epsilon,
    rdp_epsilon,
    replaced_alpha,
    subsampled_gaussian_alpha,
)
from dpgen.privacy.ledger import Budget
from dpgen.privacy.mechanisms import UnsupportedEvent, effective_multiplier, gaussian_event, subsampled_gaussian_event
from papers.acs2017 import general_moments_epsilon


def steps(rate, sigma, count):
    return dpa.SelfComposedDpEvent(subsampled_gaussian_event(rate, sigma), count)


def library(event, at, *, relation=dpa.NeighboringRelation.ADD_OR_REMOVE_ONE, step=1e-3):
    return PLDAccountant(relation, value_discretization_interval=step).compose(event).get_epsilon(at)


PLANS = [
    (dpa.ComposedDpEvent([steps(0.05, 1.0, 1000)]), 2e-4),
    (dpa.ComposedDpEvent([steps(0.0017, 1.0, 3000), gaussian_event(3.0)]), 1e-4),
    (dpa.ComposedDpEvent([steps(0.3, 20.0, 500), gaussian_event(30.0, 20)]), 1e-4),
    (dpa.ComposedDpEvent([steps(0.01, 0.5, 50), steps(0.02, 0.7, 20)]), 2e-4),
]


@pytest.mark.parametrize(("event", "step"), PLANS)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_agrees_with_dp_accounting(event, step, relation):
    neighbours = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
    if relation == "replace_one":
        neighbours = dpa.NeighboringRelation.REPLACE_ONE
    theirs = library(event, 1e-5, relation=neighbours, step=4 * step)
    ours = epsilon(event, 1e-5, relation=relation)
    assert 0.995 * theirs <= ours <= 1.001 * theirs


@pytest.mark.parametrize("sigma", [0.1, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("at", [0.5, 1e-5, 1e-15])
def test_pure_gaussians_are_exact(sigma, at):
    event = dpa.ComposedDpEvent([gaussian_event(sigma), gaussian_event(2 * sigma, 12)])
    exact = dpa.get_epsilon_gaussian(sigma / 2, at)
    assert epsilon(event, at) == pytest.approx(exact, rel=1e-9, abs=1e-15)
    assert epsilon(event, at) >= exact * (1 - 1e-12)
    if exact:
        assert delta(event, exact) == pytest.approx(at, rel=1e-6)
    assert epsilon(event, at, relation="replace_one") == pytest.approx(
        dpa.get_epsilon_gaussian(sigma / 4, at), rel=1e-9, abs=1e-15
    )


def test_shuffled_epochs_booked_as_poisson_claim_a_fraction():
    """A record is in one batch of each of 20 shuffled epochs; without amplification that is 20 Gaussians: 28.4, not .93."""
    assert epsilon(gaussian_event(1.0, 20), 1e-5) == pytest.approx(28.4, abs=0.1)


def test_nothing_and_everything():
    nothing = dpa.ComposedDpEvent([])
    assert epsilon(nothing, 1e-5) == epsilon(dpa.NoOpDpEvent(), 1e-5) == 0
    assert delta(nothing, 0.0) == delta(steps(0.1, 1.0, 10), math.inf) == delta(gaussian_event(1.0), math.inf) == 0
    for event in (
        dpa.NonPrivateDpEvent(),
        dpa.GaussianDpEvent(0.0),
        dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(0)),
    ):
        for accountant in ("tightest", "rdp"):
            assert epsilon(event, 1e-5, accountant=accountant) == math.inf
        assert delta(event, 3.0) == 1


def test_mechanisms_of_which_nothing_is_proved_here_are_refused():
    event = dpa.ComposedDpEvent([dpa.LaplaceDpEvent(10.0), gaussian_event(10.0)])
    for ask in (lambda: epsilon(event, 1e-5), lambda: epsilon(event, 1e-5, accountant="rdp"), lambda: delta(event, 1.0)):
        with pytest.raises(UnsupportedEvent, match="is not a Gaussian, zCDP or an"):
            ask()


@pytest.mark.parametrize("direction", ["add_remove", "replace_one"])
def test_delta_inverts_epsilon(direction):
    event = dpa.ComposedDpEvent([steps(0.01, 1.0, 1000), gaussian_event(4.0)])
    for at in (0.05, 1e-3, 1e-8, 1e-20):
        assert delta(event, epsilon(event, at, relation=direction), relation=direction) == pytest.approx(at, rel=0.02)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: epsilon(gaussian_event(1.0), 1.0), "delta"),
        (lambda: epsilon(gaussian_event(1.0), -1e-5), "delta"),
        (lambda: epsilon(gaussian_event(1.0), math.nan), "delta"),
        (lambda: epsilon(gaussian_event(1.0), 1e-5, relation="swap"), "relation"),
        (lambda: epsilon(gaussian_event(1.0), 1e-5, accountant="gdp"), "accountant"),
        (lambda: delta(gaussian_event(1.0), -1), "epsilon"),
        (lambda: delta(gaussian_event(1.0), math.nan), "epsilon"),
    ],
)
def test_refusals(call, name):
    with pytest.raises(ValueError, match=name):
        call()


def plan(scale, *, kmeans=5.0):
    step = dpa.SelfComposedDpEvent(subsampled_gaussian_event(0.02, scale), 500)
    return dpa.ComposedDpEvent([gaussian_event(kmeans * scale), step])


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("target", [0.3, 1.0, 10.0])
def test_fits_and_little_less_does_not(target, relation):
    scale = calibrate_noise(plan, Budget(target, 1e-5), relation=relation)
    assert epsilon(plan(scale), 1e-5, relation=relation) <= target
    assert epsilon(plan(scale / 1.001), 1e-5, relation=relation) > target * 0.9995


def test_plain_gaussian_is_the_closed_form():
    for target in (0.01, 1.0, 30.0):
        scale = calibrate_noise(gaussian_event, Budget(target, 1e-6))
        assert scale == pytest.approx(dpa.get_sigma_gaussian(target, 1e-6), rel=2e-4)
        assert epsilon(gaussian_event(scale), 1e-6) <= target


def test_the_range_of_noise():
    assert calibrate_noise(gaussian_event, Budget(10.0, 1e-5), low=5.0) == pytest.approx(5.0)
    with pytest.raises(ValueError, match="low"):
        calibrate_noise(gaussian_event, Budget(1.0, 1e-5), low=2.0, high=1.0)


def test_unreachable_budget_says_what_is_reachable():
    def fixed(scale):
        return dpa.ComposedDpEvent([gaussian_event(2.0), gaussian_event(scale)])

    with pytest.raises(ValueError, match=r"epsilon is 1; at delta 1e-05 this plan reaches no less than 1\.9\d+.*raise epsilon"):
        calibrate_noise(fixed, Budget(1.0, 1e-5))


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("rate", "steps", "high"), [(0.5, 1000, 30.0), (0.01, 1000, 1.0), (0.9, 5, 2.0)])
def test_only_what_cannot_be_met_is_refused_and_the_least_that_is_named_is_true(rate, steps, high, relation):
    def run(scale):
        return dpa.SelfComposedDpEvent(subsampled_gaussian_event(rate, scale), steps)

    exact = epsilon(run(high), 1e-5, relation=relation)
    assert calibrate_noise(run, Budget(exact * 1.001, 1e-5), relation=relation, high=high) <= high
    for target in (0.999 * exact, 0.9 * exact, 0.01 * exact):
        with pytest.raises(ValueError, match="epsilon") as refused:
            calibrate_noise(run, Budget(target, 1e-5), relation=relation, high=high)
        named = float(str(refused.value).split("no less than ")[1].split(",")[0])
        assert target < named <= exact * 1.0005


def test_a_budget_far_too_small_for_a_billion_steps_is_refused_at_once():
    before = time.process_time()
    with pytest.raises(ValueError, match="epsilon"):
        calibrate_noise(lambda s: dpa.SelfComposedDpEvent(subsampled_gaussian_event(0.05, s), 10**9), Budget(0.01, 1e-5))
    assert time.process_time() - before < 0.5


# -- moments -----------------------------------------------------------------------------------------------------------


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
        for at in (1e-5, 1e-12):
            alphas = np.array([subsampled_gaussian_alpha(order, 1.0, sigma) for order in ORDERS])
            exact = get_epsilon_gaussian(sigma, at)
            assert exact <= rdp_epsilon(alphas, at) <= 1.25 * exact


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
