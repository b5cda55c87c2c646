"""Integer noise and Poisson masks against exact probabilities, exact arithmetic, and twins that must be rejected."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from fixed_source import fixed_stream
from mpmath import mp
from scipy import special, stats

from dpgen.privacy import draws
from dpgen.privacy.draws import (
    Keystream,
    _failures,
    bernoulli_indices,
    discrete_laplace,
    rounded_normal,
)

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Sampler = Callable[[Keystream, int, float], Integers]
ALPHA = 1e-6
COUNT = 200_000


def draw_rounded(stream: Keystream, count: int, scale: float) -> Integers:
    return rounded_normal(stream, count, noise_std=scale)


def draw_refined(stream: Keystream, count: int, scale: float) -> Integers:
    """The same with the two lowest bits drawn apart, as of large scales."""
    return draws._refined(stream, count, scale, 2)


def draw_laplace(stream: Keystream, count: int, scale: float) -> Integers:
    return discrete_laplace(stream, count, scale=scale)


def pmf_rounded(k: Reals, scale: float) -> Reals:
    return special.ndtr((k + 0.5) / scale) - special.ndtr((k - 0.5) / scale)


def pmf_gaussian(k: Reals, scale: float) -> Reals:
    weight = np.exp(-(k**2) / (2 * scale**2))
    return weight / weight.sum()


def pmf_laplace(k: Reals, scale: float) -> Reals:
    return np.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale)


DISTRIBUTIONS = {
    "rounded_normal": (draw_rounded, pmf_rounded),
    "rounded_normal, refined": (draw_refined, pmf_rounded),
    "discrete_laplace": (draw_laplace, pmf_laplace),
}
every = pytest.mark.parametrize(("draw", "pmf"), DISTRIBUTIONS.values(), ids=list(DISTRIBUTIONS))


def p_value(values: Integers, pmf: Callable[[Reals, float], Reals], scale: float) -> float:
    """Chi-square over cells of neighbouring integers that expect at least ten values each."""
    reach = math.ceil(60 * scale) + 5
    expected = values.size * pmf(np.arange(-reach, reach + 1, dtype=np.float64), scale)
    counts = np.bincount(np.clip(values, -reach, reach) + reach, minlength=2 * reach + 1)
    mass = np.cumsum(expected)
    starts = [0]
    for i in range(expected.size):
        if mass[i] - (mass[starts[-1] - 1] if starts[-1] else 0) >= 10 and mass[-1] - mass[i] >= 10:
            starts.append(i + 1)
    observed, cells = np.add.reduceat(counts, starts), np.add.reduceat(expected, starts)
    return float(stats.chisquare(observed, cells * observed.sum() / cells.sum()).pvalue)


@every
@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 300.0])
def test_distribution(draw: Sampler, pmf: Callable[[Reals, float], Reals], scale: float) -> None:
    values = draw(fixed_stream(), COUNT, scale)
    assert values.dtype == np.int64
    assert p_value(values, pmf, scale) > ALPHA


@every
def test_distribution_rejects_twins(draw: Sampler, pmf: Callable[[Reals, float], Reals]) -> None:
    values = draw(fixed_stream(), COUNT, 7.5)
    wider = draw(fixed_stream(), COUNT, 7.5 * 1.03)
    for twin in (wider, np.clip(values, -20, 20), np.where(values == 0, 1, values), values + (values > 20)):
        assert p_value(twin, pmf, 7.5) < ALPHA


def test_distributions_are_told_apart() -> None:
    assert p_value(draw_rounded(fixed_stream(), COUNT, 1.0), pmf_gaussian, 1.0) < ALPHA
    continuous = np.rint(np.random.default_rng(0).laplace(scale=2.0, size=COUNT)).astype(np.int64)
    assert p_value(continuous, pmf_laplace, 2.0) < ALPHA


@every
@pytest.mark.parametrize("scale", [0.4, 6.0])
def test_slow_decisions_agree(draw: Sampler, pmf: object, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = draw(fixed_stream(), 60, scale)
    monkeypatch.setattr(draws, "_COIN_MARGIN", 2.0)
    monkeypatch.setattr(draws, "_TAIL_MARGIN", np.inf)
    np.testing.assert_array_equal(draw(fixed_stream(), 60, scale), fast)


@every
def test_slow_decisions_are_rare(draw: Sampler, pmf: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("slow path")

    monkeypatch.setattr(draws, "_exact_context", refuse)
    draw(fixed_stream(), 20_000, 50.0)


def test_margins_cover_rounding() -> None:
    """scipy's erfc is good to far less than the margin, as deep as a 191-bit uniform goes."""
    x = np.linspace(-0.5, 11.6, 300)
    with mp.workprec(200):
        errors = [abs(mp.mpf(float(special.erfc(t))) / mp.erfc(mp.mpf(float(t))) - 1) for t in x]
    assert max(errors) < draws._TAIL_MARGIN / 20


class WordStream(Keystream):
    """A stream that starts with given 64-bit words and goes on with zeros."""

    def __init__(self, words: list[int]) -> None:
        self._given = words

    def fill(self, words: npt.NDArray[np.generic]) -> None:
        words[:] = np.array([*self._given, *[0] * words.size][: words.size], np.uint64)
        self._given = self._given[words.size :]


@pytest.mark.parametrize("noise_std", [0.7, 25.0, 3e5])
@pytest.mark.parametrize("edge", [1, 3])
def test_inversion_at_an_edge(noise_std: float, edge: int) -> None:
    """Uniforms one unit of $2^{-191}$ beside P(|X| >= m) fall on different sides."""
    m = max(1, round(edge * noise_std))
    with mp.workprec(400):
        digits = int(mp.floor(mp.erfc((m - mp.mpf(0.5)) / (mp.mpf(noise_std) * mp.sqrt(2))) * mp.mpf(2) ** 191))
    found = []
    for u in (digits - 1, digits + 1):
        words = [u >> 128, (u >> 64) % 2**64, u % 2**64]
        found.append(int(draws._inverted(WordStream(words), 1, noise_std)[0]))
    assert found == [m, m - 1]


def test_deepest_draw() -> None:
    assert 15 < rounded_normal(WordStream([0, 0, 0]), 1, noise_std=1.0)[0] < 17
    assert -17 < rounded_normal(WordStream([2**63, 0, 0]), 1, noise_std=1.0)[0] < -15


def test_coin_at_an_edge() -> None:
    third = 2**192 // 3
    for digits, heads in [(third - 1, True), (third + 1, False)]:
        stream = WordStream([digits >> 128, (digits >> 64) % 2**64, digits % 2**64])
        coins = draws._coins(stream, np.array([1 / 3]), lambda context, _: context.mpf(1) / 3)
        assert coins.tolist() == [heads]


@every
@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-7, 1e17, math.inf, math.nan])
def test_bad_scale(draw: Sampler, pmf: object, scale: float) -> None:
    if draw is draw_refined:
        draw = draw_rounded
    with pytest.raises(ValueError, match=r"(noise_std|scale) of integer noise must be in \[1e-06, 1e\+1[26]\], got"):
        draw(fixed_stream(), 3, scale)


@every
def test_extreme_scales(draw: Sampler, pmf: object) -> None:
    smallest = 0.05 if draw is draw_refined else 1e-6  # refined draws keep one proposal in 1 / scale
    assert not draw(fixed_stream(), 1000, smallest).any()
    large = draw(fixed_stream(), 30, 1e12).astype(float)
    assert 3e11 < np.sqrt(np.mean(large**2)) < 3e12
    assert draw(fixed_stream(), 0, 1.0).shape == (0,)


@pytest.mark.parametrize("scale", [2.0**18 + 1, 1e9, 1e16])
def test_large_rounded_normals_are_normal_and_their_low_bits_uniform(scale: float) -> None:
    values = rounded_normal(fixed_stream(), COUNT, noise_std=scale)
    assert stats.kstest(values / scale, "norm").pvalue > ALPHA
    assert stats.kstest(values[values > 0] / scale, "halfnorm").pvalue > ALPHA
    for low in (16, max(16, 2 ** (math.frexp(scale)[1] - 16))):  # across the border between the two stages, too
        assert stats.chisquare(np.bincount(values // (low // 16) % 16, minlength=16)).pvalue > ALPHA


def test_places_in_a_cell_are_kept_by_the_slope_of_the_density(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: uniform places in cells as wide as the deviation are no normal."""
    monkeypatch.setattr(draws, "_coins", lambda stream, probability, exact: np.ones(probability.size, np.bool_))
    assert p_value(draw_refined(fixed_stream(), COUNT, 7.5), pmf_rounded, 7.5) < ALPHA


def mask_p_value(indices: Integers, n: int, probability: float) -> float:
    """Exact two-sided test of the number of successes."""
    return float(stats.binomtest(indices.size, n, probability).pvalue)


@pytest.mark.parametrize("probability", [1e-7, 1e-5, 0.0017, 0.01, 1 / 3, 0.5, 0.999, 1 - 1e-6])
def test_mask(probability: float) -> None:
    n = 10_000_000 if probability < 1e-3 else 1_000_003
    indices = bernoulli_indices(fixed_stream(), n, probability=probability)
    assert indices.dtype == np.int64
    assert np.all(np.diff(indices) > 0)
    assert indices.size == 0 or (indices[0] >= 0 and indices[-1] < n)
    assert mask_p_value(indices, n, probability) > ALPHA
    cells = np.bincount(indices * 16 // n, minlength=16)
    assert stats.chisquare(cells).pvalue > ALPHA if indices.size > 200 else True


def test_mask_rejects_16_bit_twin() -> None:
    probability, n = 5e-6, 10_000_000
    words = fixed_stream().words(n, np.uint16)
    for threshold in (math.floor(probability * 2**16), math.ceil(probability * 2**16)):
        assert mask_p_value(np.flatnonzero(words < threshold), n, probability) < ALPHA
    assert mask_p_value(bernoulli_indices(fixed_stream(), n, probability=probability), n, probability) > ALPHA


def test_mask_matches_exact_comparison() -> None:
    """The twin compares whole 80-bit integers; a threshold with few tied patterns makes ties common."""
    n, probability = 300_000, 70.3 * 2.0**-16
    stream, chunks = fixed_stream(), []
    for start in range(0, n, 2**17):
        words = stream.words(min(2**17, n - start), np.uint16).tolist()
        ties = words.count(int(probability * 2**16))
        chunks.append((words, stream.words(ties, np.uint64).tolist()))
    expected = []
    for c, (words, extension) in enumerate(chunks):
        for i, word in enumerate(words):
            digits = word << 64 | (extension.pop(0) if word == int(probability * 2**16) else 0)
            if digits < int(mp.mpf(probability) * 2**80):
                expected.append(c * 2**17 + i)
    assert bernoulli_indices(fixed_stream(), n, probability=probability).tolist() == expected


@pytest.mark.parametrize("probability", [0.5, 0.1, 2.0**-10, 1e-4])
def test_failures_between_successes_are_geometric(probability: float) -> None:
    """In cells of equal probability, and the same capped: whatever is at least `most` counts as that."""
    gaps = _failures(fixed_stream(), 100_000, probability, most=2**40)
    edges = np.unique(stats.geom.ppf(np.arange(1, 20) / 20, probability) - 1)
    cells = np.diff(np.concatenate([[0.0], stats.geom.cdf(edges + 1, probability), [1.0]]))
    assert stats.chisquare(np.bincount(np.searchsorted(edges, gaps), minlength=len(cells)), cells * len(gaps)).pvalue > ALPHA
    assert np.array_equal(np.minimum(_failures(fixed_stream(), 100_000, probability, most=5), 5), np.minimum(gaps, 5))


def test_rare_successes_are_found_without_a_pass() -> None:
    """10^15 trials, of which a pass would never end."""
    indices = bernoulli_indices(fixed_stream(), 10**15, probability=1e-12)
    assert stats.poisson.cdf(len(indices), 1000) > ALPHA / 2
    assert stats.poisson.sf(len(indices), 1000) > ALPHA / 2
    assert stats.kstest(indices / 1e15, "uniform").pvalue > ALPHA


def test_mask_edges() -> None:
    assert bernoulli_indices(fixed_stream(), 1000, probability=0.0).size == 0
    assert bernoulli_indices(fixed_stream(), 1000, probability=1.0).tolist() == list(range(1000))
    assert bernoulli_indices(fixed_stream(), 0, probability=0.3).shape == (0,)
    assert bernoulli_indices(fixed_stream(), 100_000, probability=2.0**-60).size == 0
    assert bernoulli_indices(fixed_stream(), 100_000, probability=1 - 2.0**-53).size == 100_000


def test_masks_are_independent_of_each_other() -> None:
    n, p = 200_000, 0.1
    one, other = (bernoulli_indices(fixed_stream(seed), n, probability=p) for seed in (1, 2))
    assert stats.binomtest(np.intersect1d(one, other).size, n, p * p).pvalue > ALPHA
