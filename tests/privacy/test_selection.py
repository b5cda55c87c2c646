"""Exact draws of the exponential mechanism against enumeration."""

import math
from fractions import Fraction

import numpy as np
import pytest
from fixed_source import FixedKeySource
from scipy.stats import binom
from small_domains import chi_square

from dpgen.privacy import selection
from dpgen.privacy.events import pure_event
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.selection import (
    ExponentialMechanism,
    exponential_coin,
    exponential_event,
    exponential_mechanism,
    laplace_exceeds,
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
    with pytest.raises(ValueError, match="below is 0"):
        uniform_integers(FixedKeySource(0), 0, 1)


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


def test_coin_refuses_a_probability_above_one() -> None:
    with pytest.raises(ValueError, match=r"exponent is 0\.5"):
        exponential_coin(SecureSource(), Fraction(1, 2))


@pytest.mark.parametrize("gap", [-1.5, 0.0, 2.0])
def test_noisy_comparison_has_the_laplace_tail(gap: float) -> None:
    source = FixedKeySource(2)
    passes = sum(laplace_exceeds(source, Fraction(gap), Fraction(7, 10)) for _ in range(3000))
    tail = math.exp(-0.7 * abs(gap)) / 2
    assert 1e-5 < binom.cdf(passes, 3000, tail if gap >= 0 else 1 - tail) < 1 - 1e-5


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


def test_a_broken_ceiling_is_noticed() -> None:
    with pytest.raises(ValueError, match="the probability must be at most 1"):
        exponential_mechanism(SecureSource(), ONES, np.zeros(3), lambda _b, _i: Fraction(3))


@pytest.mark.parametrize(
    ("sizes", "ceilings", "match"),
    [
        (ONES, np.zeros(2), "sizes and ceilings have shapes"),
        (np.zeros(3, np.uint64), np.zeros(3), "with a candidate"),
        (ONES, np.array([0.0, math.nan, 0.0]), "must be finite"),
    ],
)
def test_bad_blocks_are_refused(sizes: np.ndarray, ceilings: np.ndarray, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        exponential_mechanism(SecureSource(), sizes, ceilings, lambda _b, _i: Fraction(0))


def test_a_choice_is_drawn_at_the_rate_that_it_costs() -> None:
    mechanism = ExponentialMechanism(np.array([0, 2, 3]), Fraction(1, 4), 2)
    assert mechanism.event == pure_event(1.0)
    weights = np.exp(np.array([0, 2, 3]) / 4)
    assert mechanism.log_probabilities() == pytest.approx(np.log(weights / weights.sum()))
    counts = np.bincount(mechanism.draw(FixedKeySource(3), 4000), minlength=3)
    assert chi_square(counts, weights / weights.sum()) > 1e-4


def test_prices_of_exponential_draws() -> None:
    assert exponential_event(0.3, 2.0) == pure_event(1.2)
    assert exponential_event(0.3, 2.0, zcdp=True).rho == pytest.approx(0.18)


def test_only_a_secure_source_may_draw() -> None:
    with pytest.raises(TypeError, match="must be a SecureSource"):
        exponential_mechanism(np.random.default_rng(0), ONES, np.zeros(3), lambda _b, _i: Fraction(0))  # type: ignore[arg-type]


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
