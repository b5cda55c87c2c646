"""Exact draws of the exponential mechanism and of categorical weights against enumeration and integers."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant
from fixed_source import Digits, FixedKeySource
from scipy import stats
from scipy.stats import binom, norm, poisson
from small_domains import chi_square
from torch import Tensor

from dpgen.privacy import selection
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
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.selection import (
    ExponentialMechanism,
    FrequentCounts,
    draw_categorical,
    draw_runs,
    exact_sum,
    exponential_coin,
    exponential_event,
    exponential_mechanism,
    resolve,
    running_sum,
    scan_error,
    selection_event,
    uniform_integers,
)

ONES = np.ones(3, np.uint64)


@pytest.mark.parametrize("below", [1, 2, 6, 256, 257])
def test_uniform_integers_are_uniform(below: int) -> None:
    draws = uniform_integers(FixedKeySource(below), below, 4000)
    counts = np.bincount(draws, minlength=below)
    assert len(counts) == below
    assert below == 1 or chi_square(counts, np.full(below, 1 / below)) > 1e-4


def test_uniform_integers_reach_beyond_64_bits() -> None:
    draws = uniform_integers(FixedKeySource(0), 3 << 400, 2000)
    assert max(draws) < 3 << 400
    assert 0.4 < np.mean([draw >= 3 << 399 for draw in draws]) < 0.6


@pytest.mark.parametrize(("x", "halvings"), [(-0.25, 0), (-3.0, 0), (0.5, 1), (-0.1, -0), (-2.0, -1)])
def test_coin_has_its_probability(x: float, halvings: int) -> None:
    source, chance = FixedKeySource(1), math.exp(x) * 2.0**-halvings
    heads = sum(exponential_coin(source, Fraction(x), halvings=halvings) for _ in range(3000))
    assert 1e-5 < binom.cdf(heads, 3000, chance) < 1 - 1e-5


def test_close_decisions_are_settled_with_many_digits() -> None:
    # e^-1 in binary: the digits just below and just above must fall on either side, although doubles cannot tell them.
    from mpmath import mp

    with mp.workprec(400):
        digits = int(mp.floor(mp.exp(-1) * mp.mpf(2) ** 192))
    source = SecureSource()
    assert exponential_coin(source, Fraction(-1), digits=digits - 1)
    assert not exponential_coin(source, Fraction(-1), digits=digits + 1)
    assert exponential_coin(source, Fraction(0), halvings=1, digits=2**191 - 1)
    assert not exponential_coin(source, Fraction(0), halvings=1, digits=2**191)


def test_draws_agree_with_enumeration_whatever_the_ceilings() -> None:
    weights = [[-1.0, 0.3, -2.5], [2.0], [1.9, -8.0]]  # by block
    ceilings = np.array([0.9, 2.0, 4.0])
    sizes = np.array([len(block) for block in weights], np.uint64)
    source = FixedKeySource(3)
    draws = [exponential_mechanism(source, sizes, ceilings, lambda b, i: Fraction(weights[b][i])) for _ in range(4000)]
    flat = [(b, i) for b, block in enumerate(weights) for i in range(len(block))]
    mass = np.exp([weights[b][i] for b, i in flat])
    counts = np.array([draws.count(place) for place in flat])
    assert chi_square(counts, mass / mass.sum()) > 1e-4


def test_numbers_without_candidates_are_passed_over() -> None:
    source = FixedKeySource(4)
    draws = [
        exponential_mechanism(source, np.array([5], np.uint64), np.zeros(1), lambda _, i: None if i % 2 else Fraction(0))[1]
        for _ in range(900)
    ]
    assert chi_square(np.bincount(draws, minlength=5)[::2], np.full(3, 1 / 3)) > 1e-4
    assert not {1, 3} & set(draws)


def test_candidates_far_below_the_best_stay_possible() -> None:
    # A huge block far down weighs as much as the single best candidate: e^41.6 = 2^60.
    down = -60 * math.log(2)
    source, sizes = FixedKeySource(5), np.array([1, 2**60], np.uint64)
    blocks = [
        exponential_mechanism(source, sizes, np.array([0.0, down]), lambda b, _: Fraction(down) * b)[0] for _ in range(1000)
    ]
    assert 1e-5 < binom.cdf(sum(blocks), 1000, 0.5) < 1 - 1e-5


def test_extreme_ceilings_share_the_lowest_class() -> None:
    ceilings = np.array([0.0, -1e5, -3e5])
    assert exponential_mechanism(SecureSource(), ONES, ceilings, lambda b, _: Fraction(ceilings[b])) == (0, 0)


def test_a_choice_is_drawn_at_the_rate_that_it_costs() -> None:
    mechanism = ExponentialMechanism.pure(np.array([0, 2, 3]), Fraction(1, 4), 2)
    assert mechanism.event == pure_event(1.0)
    weights = np.exp(np.array([0, 2, 3]) / 4)
    assert mechanism.log_probabilities() == pytest.approx(np.log(weights / weights.sum()))
    counts = np.bincount(mechanism.draw(FixedKeySource(3), 4000), minlength=3)
    assert chi_square(counts, weights / weights.sum()) > 1e-4


def test_prices_of_exponential_draws() -> None:
    assert exponential_event(0.3, 2.0) == pure_event(1.2)
    assert exponential_event(0.3, 2.0, zcdp=True).rho == pytest.approx(0.18)


@pytest.mark.parametrize("rows", [1, 3, 10])
def test_what_one_person_alone_has_is_named_with_a_chance_of_delta_at_most(rows: int) -> None:
    """All of a person's rows hold one value, or each another one."""
    mechanism = FrequentCounts(np.array([1, rows]), 50.0, 1e-3, rows)
    one_each, all_of_one = np.exp(mechanism.log_probabilities())
    assert rows * one_each <= 1e-3
    assert 0.9e-3 < rows * all_of_one <= 1e-3


def test_a_twin_without_acceptance_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings taken for weights: the chi-square test tells."""
    monkeypatch.setattr(selection, "exponential_coin", lambda *_, **__: True)
    weights, source = [0.0, 0.6], FixedKeySource(6)
    draws = [
        exponential_mechanism(source, np.array([2], np.uint64), np.array([0.7]), lambda _, i: Fraction(weights[i]))[1]
        for _ in range(4000)
    ]
    mass = np.exp(weights)
    assert chi_square(np.bincount(draws, minlength=2), mass / mass.sum()) < 1e-6


def drawn(sizes: np.ndarray = ONES, ceilings: np.ndarray | None = None, source: object = None, weight: int = 0) -> object:
    limits = np.zeros(3) if ceilings is None else ceilings
    return exponential_mechanism(source or SecureSource(), sizes, limits, lambda _b, _i: Fraction(weight))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: drawn(ceilings=np.zeros(2)), "shapes"),
        (lambda: drawn(np.zeros(3, np.uint64)), "candidate"),
        (lambda: drawn(ceilings=np.array([0.0, math.nan, 0.0])), "finite"),
        (lambda: drawn(weight=3), "probability"),
        (lambda: drawn(source=np.random.default_rng(0)), "SecureSource"),
        (lambda: exponential_coin(SecureSource(), Fraction(1, 2)), "exponent"),
        (lambda: uniform_integers(SecureSource(), 0, 1), "below"),
    ],
)
def test_what_has_no_exact_draw_is_refused(act: Callable[[], object], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        act()


def test_sums_are_exact() -> None:
    values = np.random.default_rng(0).random(500) * 10.0 ** np.random.default_rng(1).integers(-300, 300, 500)
    values[::7] = 0.0
    assert exact_sum(values) == sum(map(Fraction, values.tolist()))
    assert exact_sum(np.array([5e-324, 1.5])) == Fraction(5e-324) + Fraction(1.5)
    assert exact_sum(np.zeros(0)) == 0


@pytest.mark.parametrize("n", [1, 7, 4096, 5000, 300_000])
def test_running_sums_keep_their_bound_and_never_decrease(n: int) -> None:
    values = torch.rand(2, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) ** 8
    sums = running_sum(values)
    assert bool((sums.diff(dim=1) >= 0).all())
    for j in {0, n // 3, n - 1}:
        exact = exact_sum(values[1, : j + 1].numpy())
        assert abs(Fraction(float(sums[1, j])) - exact) <= scan_error(n) * exact


def test_integers_decide_like_doubles_where_both_can(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.rand(3, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 6
    weights[:, ::5] = 0.0
    fast = draw_categorical(FixedKeySource(4), weights, k=200)
    assert not torch.equal(fast, draw_categorical(FixedKeySource(5), weights, k=200))
    monkeypatch.setattr("dpgen.privacy.selection.scan_error", lambda n: 2.0)
    assert torch.equal(fast, draw_categorical(FixedKeySource(4), weights, k=200))
    assert bool((weights.expand(200, 3, 40).gather(2, fast[..., None]) > 0).all()), "an atom of mass 0 is never drawn"


def outcome(word: int, further: bytes, weights: Iterable[float]) -> int:
    values = np.array(list(weights))
    total, n = exact_sum(values), len(values)
    found = {
        resolve(word, lambda j: exact_sum(values[: j + 1]), n, guess=guess, total=total, source=Digits(further))
        for guess in range(n)
    }
    assert len(found) == 1, "where the search starts does not matter"
    return found.pop()


def test_an_atom_of_probability_two_to_the_minus_200_has_that_probability() -> None:
    weights, ones = (1.0, 2.0**-200), 2**64 - 1
    assert outcome(ones, b"\xff" * 24, weights) == 1, "256 ones in a row"
    assert outcome(ones, b"\xff" * 16, weights) == 0, "192 ones, then zeros"
    assert outcome(ones - 1, b"\xff" * 24, weights) == 0
    # The twin that inverts 53-bit uniforms can never release it: its log-ratio to any other user is infinite.
    twin = int(torch.searchsorted(torch.tensor(weights, dtype=torch.float64).cumsum(0), 1 - 2.0**-53, right=True))
    assert twin == 0


def test_doubles_decide_nothing_that_is_close() -> None:
    weights = torch.tensor([[1.0, 2.0**-70, 1.0]], dtype=torch.float64)  # u = 1/2 lies in the middle of the second interval
    assert draw_categorical(Digits((2**63).to_bytes(8, "little")), weights).tolist() == [[1]]
    beside = Digits((2**63).to_bytes(8, "little") + b"\xff" * 8)
    assert draw_categorical(beside, weights).tolist() == [[2]]


def test_boundaries_belong_to_the_right() -> None:
    assert outcome(2**63, b"", (1.0, 1.0)) == 1
    assert outcome(2**63 - 1, b"\xff" * 64, (1.0, 1.0)) == 0
    assert outcome(2**62, b"", (1.0, 0.0, 3.0)) == 2
    third = 2**64 // 3
    assert outcome(third, b"\x55" * 8 + b"\x54", (1.0, 1.0, 1.0)) == 0, "1/3 = .0101..., one digit below"
    assert outcome(third, b"\x55" * 8 + b"\x56", (1.0, 1.0, 1.0)) == 1


def chi_square_p(drawn: Tensor, weights: Tensor) -> float:
    expected = weights / weights.sum() * drawn.numel()
    counts = torch.bincount(drawn, minlength=weights.numel())
    return float(stats.chisquare(counts.numpy(), expected.numpy()).pvalue)


def test_frequencies() -> None:
    weights = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 1.0, 1.0, 0.5]], dtype=torch.float64)
    drawn = draw_categorical(SecureSource(), weights, k=40_000)
    assert drawn.shape == (40_000, 2)
    for row in range(2):
        assert chi_square_p(drawn[:, row], weights[row]) > 1e-8
    assert chi_square_p(drawn[:, 0], weights[0] * torch.tensor([1.2, 1.0, 1.0, 1.0])) < 1e-8, "a weight 20 % off is seen"
    # Rows and repeats are independent of each other.
    both = drawn[:, 0] * 4 + drawn[:, 1]
    joint = (weights[0] / weights[0].sum()).outer(weights[1] / weights[1].sum()).reshape(-1)
    assert chi_square_p(both, joint) > 1e-8


@pytest.mark.parametrize("values", [[1.0, -1.0], [1.0, math.nan], [1.0, math.inf], [0.0, 0.0], []])
def test_bad_weights(values: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        draw_categorical(SecureSource(), torch.tensor([values]))
    with pytest.raises(ValueError, match="k must be"):
        draw_categorical(SecureSource(), torch.ones(1, 3), k=-1)


# -- the best of several runs ------------------------------------------------------------------------------------------


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
