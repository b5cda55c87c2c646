"""What is chosen in the light of released values: the filter's limits, and broken twins of it that are rejected."""

import contextlib
import math

import dp_accounting as dpa
import numpy as np
import pytest

from dpgen.privacy.accountants import calibrate_noise, epsilon
from dpgen.privacy.composition import Cost, Filter
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger, Planned
from dpgen.privacy.mechanisms import gaussian_event, subsampled_gaussian_event


def times(event, count):
    return dpa.SelfComposedDpEvent(event, count)


class CountsWhatRan(Ledger):
    """Broken: exact accounting of what was charged so far, also where it was chosen in the light of what was released."""

    def __init__(self, budget):
        super().__init__(None, delta=budget.delta)
        self.enforced = budget

    def charge(self, event, count=1, *, note, of=None):
        ran = dpa.ComposedDpEvent([times(e.event, e.count) for e in self.entries()])
        if epsilon(dpa.ComposedDpEvent([ran, times(event, count)]), self.delta) > self.enforced.epsilon:
            raise BudgetExceeded("it would exceed the budget")
        super().charge(event, count, note=note)

    def epsilon(self, *_, **__):
        return self.spent()


def delta_of_stopping(stated, sigma=20.0, runs=20_000):
    """Delta that somebody reaches who looks at draws of N(1, sigma^2) and stops when their loss is .1 above what is stated.

    `stated[n]` after n releases. Losses are log-ratios to N(0, sigma^2); delta is E (1 - e^(stated - loss))_+ where stopped.
    """
    generator = np.random.default_rng(0)
    steps = generator.normal(1.0, sigma, (runs, len(stated) - 1))
    losses = np.cumsum((2 * steps - 1) / (2 * sigma**2), axis=1)
    above = losses > np.asarray(stated)[1:] + 0.1
    stop = np.where(above.any(axis=1), above.argmax(axis=1), losses.shape[1] - 1)
    loss, claim = losses[np.arange(runs), stop], np.asarray(stated)[1:][stop]
    return float(np.maximum(-np.expm1(claim - loss), 0.0).mean())


def contract_stopping_in_the_light_of_released_values(kind, *, declare):
    """400 Gaussians of multiplier 20, stopped when the loss is high: delta .033 where the executed counts say .01."""
    delta, event = 0.01, gaussian_event(20.0)
    budget = Budget(epsilon(times(event, 400), delta) * (1.0 if declare else 1.3), delta)
    ledger = kind(budget)
    if declare:
        ledger.declare([Planned(event, "release", 400)])
    stated = [0.0]
    for _ in range(400):
        ledger.charge(event, note="release")
        stated.append(ledger.epsilon())
    assert stated[-1] <= budget.epsilon
    assert delta_of_stopping(stated) < delta * 1.1, "what is stated does not hold for those who stop"


def test_the_guarantee_holds_for_those_who_stop_after_a_look():
    contract_stopping_in_the_light_of_released_values(Ledger, declare=True)
    contract_stopping_in_the_light_of_released_values(Ledger, declare=False)
    with pytest.raises(AssertionError, match="does not hold for those who stop"):
        contract_stopping_in_the_light_of_released_values(CountsWhatRan, declare=False)
    ran = [0.0, *(epsilon(times(gaussian_event(20.0), n), 0.01) for n in range(1, 401))]
    assert delta_of_stopping(ran) > 0.03


def sampled_stick(rate, sigma, epsilons):
    """Hockey stick of (1-q) N(0) + q N(1) against N(0) at any real epsilons (m,), by quadrature."""
    z = np.linspace(-12 * sigma, 1 + 12 * sigma, 4001)
    step, base = z[1] - z[0], np.exp(-((z / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))
    ratio = 1 - rate + rate * np.exp((2 * z - 1) / (2 * sigma**2))
    return np.array([float((base * np.maximum(ratio - math.exp(e), 0.0)).sum() * step) for e in epsilons])


def epsilon_of_choosing(first, sticks, delta):
    """Epsilon at delta of N(1, first^2) against N(0), followed by whichever of `sticks` is worse for what came out."""
    y = np.linspace(1 - 10 * first, 1 + 10 * first, 401)
    weights = np.exp(-(((y - 1) / first) ** 2) / 2) / (first * math.sqrt(2 * math.pi)) * (y[1] - y[0])
    losses = (2 * y - 1) / (2 * first**2)
    low, high = 0.0, 4.0
    for _ in range(18):
        middle = (low + high) / 2
        truth = float((weights * np.max([stick(middle - losses) for stick in sticks], axis=0)).sum())
        low, high = (middle, high) if truth > delta else (low, middle)
    return high


def contract_rates_chosen_from_noisy_counts(kind):
    """A noisy count, then a step at the rate that its value suggests; every single course fits the budget exactly."""
    budget, first = Budget(1.0, 1e-3), 4.0
    choices = {}
    for rate in (1.0, 0.02):

        def course(sigma, rate=rate):
            return dpa.ComposedDpEvent([gaussian_event(first), subsampled_gaussian_event(rate, sigma)])

        choices[rate] = calibrate_noise(course, budget, low=0.1)
    granted = []
    for rate, sigma in choices.items():
        ledger = kind(budget)
        ledger.charge(gaussian_event(first), note="noisy count")
        with contextlib.suppress(BudgetExceeded):
            ledger.charge(subsampled_gaussian_event(rate, sigma), note="step")
            granted.append(lambda e, rate=rate, sigma=sigma: sampled_stick(rate, sigma, e))
    truth = epsilon_of_choosing(first, granted, budget.delta) if granted else 0.0
    assert truth <= budget.epsilon * 1.0001, f"epsilon {truth:.3f} where {budget.epsilon} is enforced"


def test_choices_in_the_light_of_released_values_stay_within_the_budget():
    contract_rates_chosen_from_noisy_counts(Ledger)
    with pytest.raises(AssertionError, match=r"epsilon 1\.[01]\d+ where 1\.0 is enforced"):
        contract_rates_chosen_from_noisy_counts(CountsWhatRan)


def test_counts_in_the_hundreds_of_millions_are_asked_for_too():
    ledger = Ledger(Budget(1.0, 1e-5))
    room = ledger.allowance(gaussian_event(1e5))
    assert room > 10**8
    ledger.charge(gaussian_event(1e5), room, note="tiny")
    with pytest.raises(BudgetExceeded, match="'tiny'"):
        ledger.charge(gaussian_event(1e5), room // 1000, note="tiny")


UNIT = 2.0**-256


NEVER = 1 << 400  # a sum of pure epsilons that no budget has


def largest_moment(limits: Filter) -> float:
    """The largest log-moment that fits, by bisection."""
    low, high = 0, 1 << 300
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if limits.fits(Cost(middle, NEVER, 0)) else (low, middle)
    return low * UNIT


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.3, 1e-9), (8.0, 1e-3)])
def test_moments_are_limited_at_the_part_of_delta_that_is_not_reserved(epsilon: float, delta: float) -> None:
    """Canonne, Kamath, Steinke 2020, Proposition 12, solved for the log-moment."""
    left = 0.9 * delta
    order = Filter.best(Budget(epsilon, left), "add_remove").order or 0.0
    limits = Filter(Budget(epsilon, delta), "add_remove", order)
    expected = (order - 1) * (epsilon - math.log((order - 1) / order)) + math.log(left * order)
    assert largest_moment(limits) == pytest.approx(expected, rel=1e-9)
