"""Repeat and select: the price against the library's, the law of the number of runs, and what a run may spend."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant
from fixed_source import FixedKeySource
from scipy.stats import norm, poisson

from dpgen.privacy.accountants import ORDERS, epsilon, event_alphas, moments
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger, Planned
from dpgen.privacy.mechanisms import (
    OneOfDpEvent,
    approximate_event,
    decode_event,
    encode_event,
    for_two_records,
    gaussian_event,
    pure_event,
    repeated_event,
    subsampled_gaussian_event,
)
from dpgen.privacy.selection import draw_runs, selection_event

TRAINING = ComposedDpEvent([SelfComposedDpEvent(subsampled_gaussian_event(0.01, 1.0), 1000), gaussian_event(20.0)])
BITS = BoundedSum(torch.tensor([7]), 1.0)


@pytest.mark.parametrize("base", [gaussian_event(4.0), TRAINING], ids=["gaussian", "training"])
def test_the_price_is_at_most_the_librarys(base: object) -> None:
    """At the same orders; of plain Gaussians it is less, since their delta is known exactly."""
    event = repeated_event(base, 10)
    library = RdpAccountant(orders=[order + 1 for order in ORDERS]).compose(event).get_epsilon(1e-5)
    assert epsilon(base, 1e-5) < epsilon(event, 1e-5) <= library * 1.002


def test_a_poisson_number_of_gaussians_by_the_formula() -> None:
    """The delta of a Gaussian is known: Phi(mu / 2 - e / mu) - exp(e) Phi(-mu / 2 - e / mu) at mu = 1 / 4."""
    lam = np.array(ORDERS, float)
    e = np.log1p(1 / lam)
    delta = norm.cdf(0.125 - 4 * e) - np.exp(e) * norm.cdf(-0.125 - 4 * e)
    expected = lam * (lam + 1) / 32 + lam * 10 * delta + math.log(10)
    np.testing.assert_allclose(event_alphas(repeated_event(gaussian_event(4.0), 10)), expected, rtol=1e-6)


def test_pure_runs_have_no_pure_price() -> None:
    event = repeated_event(ComposedDpEvent([pure_event(0.3), pure_event(0.2)]), 10)
    assert epsilon(event, 0.0) == moments(event, "replace_one")[1] == math.inf
    assert 0.5 < epsilon(event, 1e-5) < math.inf


def test_a_mixture_costs_what_its_worst_part_does() -> None:
    one, two = gaussian_event(4.0), gaussian_event(9.0)
    mixed = event_alphas(OneOfDpEvent((one, two)))
    np.testing.assert_array_equal(mixed, event_alphas(one))
    whole = repeated_event(OneOfDpEvent((two, one)), 5)
    assert epsilon(whole, 1e-5) == epsilon(repeated_event(one, 5), 1e-5)
    assert epsilon(SelfComposedDpEvent(whole, 2), 1e-5) > epsilon(whole, 1e-5)
    assert epsilon(ComposedDpEvent([whole, gaussian_event(9.0)]), 1e-5) > epsilon(whole, 1e-5)


def test_what_may_fail_has_no_price() -> None:
    event = repeated_event(ComposedDpEvent([approximate_event(0.1, 1e-9), gaussian_event(9.0)]), 5)
    assert epsilon(event, 1e-5) == math.inf
    with pytest.raises(BudgetExceeded, match="would bring it to inf"):
        Ledger(Budget(10.0, 1e-5)).declare([Planned(event, "selection")])


def test_under_two_relations() -> None:
    event = repeated_event(OneOfDpEvent((pure_event(0.5), pure_event(0.25))), 5)
    assert decode_event(encode_event(event)) == event
    assert for_two_records(event) == repeated_event(OneOfDpEvent((pure_event(1.0), pure_event(0.5))), 5)
    for base in (gaussian_event, lambda s: ComposedDpEvent([gaussian_event(s), pure_event(0.1)])):
        assert epsilon(repeated_event(base(4.0), 5), 1e-5, relation="replace_one") == pytest.approx(
            epsilon(repeated_event(base(2.0), 5), 1e-5)
        )


def test_the_number_of_runs_is_poisson() -> None:
    """1,000 draws against the law, chi-square with eight cells; a shift by one run is found."""
    source = FixedKeySource()
    drawn = Counter(min(draw_runs(3.0, source), 7) for _ in range(1000))
    expected = poisson.pmf(np.arange(7), 3.0)
    expected = np.append(expected, 1 - expected.sum())

    def distance(counts: Counter[int]) -> float:
        return float(sum((counts[i] - 1000 * p) ** 2 / (1000 * p) for i, p in enumerate(expected)))

    assert distance(drawn) < 45
    assert distance(Counter({min(k + 1, 7): n for k, n in drawn.items()})) > 100


# -- the curator ---------------------------------------------------------------------------------------------------------


TRIALS = [[Planned(gaussian_event(4.0), "bits")], [Planned(gaussian_event(6.0), "bits")]]
SCORE = (Planned(gaussian_event(20.0), "score"),)


def attempt(number: int, curator: Curator) -> tuple[int, float]:
    multiplier = (4.0, 6.0)[number]
    curator.declare(Planned(gaussian_event(multiplier), "bits"))
    return number, float(curator.gaussian("bits", BITS, multiplier))


def test_the_best_is_charged_before_the_first_run() -> None:
    ledger = Ledger(None, delta=1e-5)
    results: list[tuple[int, float]] = []

    def run(number: int, inner: Curator) -> tuple[int, float]:
        assert [e.note for e in ledger.entries()] == ["selection"], "all of it is charged before a run begins"
        results.append(attempt(number, inner))
        return results[-1]

    def score(result: tuple[int, float], inner: Curator) -> float:
        inner.gaussian("score", BITS, 20.0)
        return result[1]

    curator = Curator(ledger, source=FixedKeySource())
    best = curator.select("selection", TRIALS, 20, run=run, score=score, priced=SCORE)
    assert best == max(results, key=lambda result: result[1])
    assert {number for number, _ in results} == {0, 1}, "the options are drawn at random"
    assert ledger.entries()[0].event == selection_event(TRIALS, SCORE, 20)
    one = ComposedDpEvent([gaussian_event(4.0), gaussian_event(20.0)])
    assert ledger.epsilon() == pytest.approx(epsilon(repeated_event(one, 20), 1e-5))
    assert ledger.epsilon() > epsilon(one, 1e-5), "the price of one run is not that of the best of many"


def twice(number: int, inner: Curator) -> float:
    attempt(number, inner)
    return attempt(number, inner)[1]


def other(number: int, inner: Curator) -> float:
    inner.declare(Planned(gaussian_event(4.5), "bits"))
    return 0.0


def undeclared(number: int, inner: Curator) -> float:
    return float(inner.laplace("more", BoundedSum(torch.tensor([1]), 1.0, norm="l1"), 0.01))


def wants_more(result: object, inner: Curator) -> float:
    return float(inner.gaussian("score", BITS, 10.0))


@pytest.mark.parametrize("run", [twice, other, undeclared, attempt], ids=lambda f: str(f.__name__))
def test_a_run_and_a_score_get_their_plans_and_nothing_else(run: Any) -> None:
    curator = Curator(Ledger(None, delta=1e-5), source=FixedKeySource())
    with pytest.raises(BudgetExceeded, match="has not paid for"):
        curator.select("selection", TRIALS, 20, run=run, score=wants_more, priced=SCORE)


@pytest.mark.parametrize(
    ("ledger", "trials", "mean", "name"),
    [
        (Ledger(Budget(0.5, 1e-5)), TRIALS, 5, "would bring it to"),
        (Ledger(None, delta=1e-5), [], 5, "trials"),
        *((Ledger(None, delta=1e-5), TRIALS, mean, "mean") for mean in (1.0, 1001.0, math.nan)),
    ],
)
def test_what_cannot_be_paid_for_runs_nothing(ledger: Ledger, trials: Any, mean: float, name: str) -> None:
    with pytest.raises((ValueError, BudgetExceeded), match=name):
        Curator(ledger, source=FixedKeySource()).select("s", trials, mean, run=attempt, score=lambda *_: 0.0)
    assert all(entry.note == "s" for entry in ledger.entries())


def test_no_runs_release_nothing() -> None:
    """A Poisson number of mean 2 is 0 in 13 of 100 draws."""
    outcomes = []
    for seed in range(60):
        curator = Curator(Ledger(None, delta=1e-5), source=FixedKeySource(seed))
        outcomes.append(curator.select("s", TRIALS, 2, run=attempt, score=lambda *_: 0.0))
    assert None in outcomes
    assert outcomes.count(None) < 30


def test_gaussians_of_a_divisible_plan_count_with_their_surplus() -> None:
    event = selection_event([[Planned(gaussian_event(4.0), "bits", divisible=True)]], (), 5)
    assert event.event.events[0].noise_multiplier < 4.0
