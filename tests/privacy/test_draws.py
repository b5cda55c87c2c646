"""Draws of key streams: NIST's vectors, slow exact twins, exact probabilities, and twins that must be rejected."""

import math
import os
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from fixed_source import fixed_stream
from mpmath import mp
from scipy import special, stats

from dpgen.privacy import draws
from dpgen.privacy.draws import (
    BLOCK,
    CHUNK,
    PAIRS,
    TAIL,
    Keystream,
    add_block_normals,
    add_normal,
    aes_ctr,
    bernoulli_indices,
    compiled,
    count_tails,
    discrete_laplace,
    failures,
    reach_thresholds,
    rounded_normal,
)

# NIST SP 800-38A, F.5.5 CTR-AES256.Encrypt
NIST_KEY = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
NIST_COUNTER = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
NIST_PLAINTEXT = (
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
NIST_CIPHERTEXT = (
    "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
    "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
)


def counter_blocks(key: bytes, count: int) -> bytes:
    """AES of the block numbers 0, 1, ..., one at a time."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return b"".join(encryptor.update(i.to_bytes(16, "big")) for i in range(count))


def numbered_keys() -> tuple[list[bytes], Callable[[], bytes]]:
    given: list[bytes] = []

    def fresh_key() -> bytes:
        given.append(len(given).to_bytes(32, "big"))
        return given[-1]

    return given, fresh_key


def test_nist_vector() -> None:
    stream = aes_ctr(bytes.fromhex(NIST_KEY), bytes.fromhex(NIST_COUNTER)).update(bytes(64))
    plaintext = bytes.fromhex(NIST_PLAINTEXT)
    assert bytes(a ^ b for a, b in zip(stream, plaintext)).hex() == NIST_CIPHERTEXT


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000, 2**18 + 5])
def test_words_are_counter_blocks(count: int) -> None:
    key = bytes(range(32))
    words = Keystream(lambda: key).words(count, np.uint8)
    assert words.tobytes() == counter_blocks(key, -(-count // 16))[:count]


def test_new_key_after_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert draws.REKEY_BYTES == 2**26
    monkeypatch.setattr(draws, "REKEY_BYTES", 64)
    given, fresh_key = numbered_keys()
    words = Keystream(fresh_key).words(200, np.uint8)
    assert len(given) == 4
    assert words.tobytes() == b"".join(counter_blocks(key, 4) for key in given)[:200]


def test_key_is_not_kept() -> None:
    key = os.urandom(32)
    stream = Keystream(lambda: bytes(key))
    stream.words(4, np.uint8)
    kept = [value for name, value in vars(stream).items() if name != "_fresh_key"]
    assert not any(isinstance(value, bytes | bytearray) for value in kept)


Reals = npt.NDArray[np.floating]
Words = npt.NDArray[np.uint32]
ALPHA = 1e-6  # the streams are fixed, so a test that passes once passes always
GRID = 2.0**-10


def slow_normals(radius_words: Words, angle_words: Words, extension: list[int]) -> Reals:
    """One pair at a time, in double precision, straight from the definition."""
    first, second = [], []
    for word, angle_word in zip(radius_words.tolist(), angle_words.tolist()):
        u = (word * 2**64 + extension.pop(0) + 0.5) / 2**96 if word < 2**20 else max(word, 1) / 2**32
        radius = math.sqrt(-2 * math.log(u))
        fraction = (angle_word << 2) % 2**32
        angle = (fraction - 2**32 * (fraction >= 2**31)) * math.pi / 4 / 2**31
        x, y = radius * math.cos(angle), radius * math.sin(angle)
        x = -x if angle_word >= 2**31 else x
        x, y = (y, x) if angle_word & 2**30 else (x, y)
        first.append(x)
        second.append(y)
    return np.array(first + second)


def kernel_normals(words: Words, extension: npt.NDArray[np.uint64], kind: type[np.floating] = np.float64) -> Reals:
    values = np.zeros(words.size, kind)
    assert add_block_normals(values, words, extension, kind(1), kind(2.0**-30), kind(2.0**30)) == 0
    return values


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_kernel_matches_twin(kind: type[np.floating]) -> None:
    stream = fixed_stream()
    words = stream.words(8 * BLOCK, np.uint32)
    words[:40] >>= 13  # far more tails than chance gives
    words[40:44] = [0, TAIL - 1, TAIL, 2**32 - 2**20]
    extension = stream.words(count_tails(words), np.uint64)
    left = extension.tolist()
    blocks = words.reshape(-1, 2, PAIRS)
    expected = np.concatenate([slow_normals(radius, angle, left) for radius, angle in blocks])
    assert not left
    np.testing.assert_allclose(kernel_normals(words, extension, kind), expected, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, CHUNK - 1, CHUNK + 1, 2 * CHUNK + 7])
def test_add_and_round(count: int, kind: type[np.floating]) -> None:
    stream = fixed_stream(count)
    values = np.linspace(-3, 3, count).astype(kind)
    result = values.copy()
    assert add_normal(fixed_stream(count), result, noise_std=2.0, grid=2 * GRID)
    noise = []
    for start in range(0, count, CHUNK):
        words = stream.words(-(-min(CHUNK, count - start) // BLOCK) * BLOCK, np.uint32)
        noise.append(kernel_normals(words, stream.words(count_tails(words), np.uint64)))
    expected = values + 2 * np.concatenate(noise)[:count]
    assert np.abs(result - expected).max() <= GRID * (1 + 1e-3)
    assert np.all(np.mod(result, 2 * GRID) == 0)


def test_std_is_rounded_up() -> None:
    values, wide = np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    add_normal(fixed_stream(), values, noise_std=1.0 + 2.0**-30, grid=2.0**-60)
    add_normal(fixed_stream(), wide, noise_std=float(np.nextafter(np.float32(1), np.float32(2))), grid=2.0**-60)
    np.testing.assert_array_equal(values, wide)


def test_conditional_tail() -> None:
    """Radius words below 2^20 only: $-2 \\ln U$ is 24 ln 2 plus an exponential variable of mean 2."""
    stream = fixed_stream()
    words = stream.words(200 * BLOCK, np.uint32)
    words.reshape(-1, 2, PAIRS)[:, 0] >>= 12
    extension = stream.words(count_tails(words), np.uint64)
    assert extension.size == 200 * PAIRS

    def excess(extension: npt.NDArray[np.uint64]) -> Reals:
        z = kernel_normals(words, extension).reshape(-1, 2, PAIRS)
        return (z**2).sum(axis=1).ravel() / 2 - 12 * math.log(2)

    assert stats.kstest(excess(extension), "expon").pvalue > ALPHA
    words.reshape(-1, 2, PAIRS)[:, 0] &= np.uint32(2**20 - 2**16)  # the twin: 16 bits in all instead of 96
    assert stats.kstest(excess(np.zeros_like(extension)), "expon").pvalue < ALPHA


Integers = npt.NDArray[np.int64]
Sampler = Callable[[Keystream, int, float], Integers]
COUNT = 200_000


def draw_rounded(stream: Keystream, count: int, scale: float) -> Integers:
    return rounded_normal(stream, count, noise_std=scale)


def draw_refined(stream: Keystream, count: int, scale: float) -> Integers:
    """The same with the two lowest bits drawn apart, as of large scales."""
    return draws.refined_normal(stream, count, scale, 2)


def draw_laplace(stream: Keystream, count: int, scale: float) -> Integers:
    return discrete_laplace(stream, count, scale=scale)


def pmf_rounded(k: Reals, scale: float) -> Reals:
    return special.ndtr((k + 0.5) / scale) - special.ndtr((k - 0.5) / scale)


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


@every
@pytest.mark.parametrize("scale", [0.4, 6.0])
def test_slow_decisions_agree(draw: Sampler, pmf: object, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = draw(fixed_stream(), 15, scale)
    monkeypatch.setattr(draws, "_COIN_MARGIN", 2.0)
    monkeypatch.setattr(draws, "_TAIL_MARGIN", np.inf)
    np.testing.assert_array_equal(draw(fixed_stream(), 15, scale), fast)


def test_margins_cover_rounding() -> None:
    """scipy's erfc is good to far less than the margin, as deep as a 191-bit uniform goes."""
    x = np.linspace(-0.5, 11.6, 300)
    with mp.workprec(200):
        errors = [abs(mp.mpf(float(special.erfc(t))) / mp.erfc(mp.mpf(float(t))) - 1) for t in x]
    assert max(errors) < draws._TAIL_MARGIN / 20


class WordStream(Keystream):
    """A stream that starts with given 64-bit words and goes on with zeros."""

    def __init__(self, words: list[int]) -> None:
        self.given = words

    def fill(self, words: npt.NDArray[np.generic]) -> None:
        words[:] = np.array([*self.given, *[0] * words.size][: words.size], np.uint64)
        self.given = self.given[words.size :]


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
        found.append(int(draws.inverted_normal(WordStream(words), 1, noise_std)[0]))
    assert found == [m, m - 1]


def test_coin_at_an_edge() -> None:
    third = 2**192 // 3
    for digits, heads in [(third - 1, True), (third + 1, False)]:
        stream = WordStream([digits >> 128, (digits >> 64) % 2**64, digits % 2**64])
        coins = draws.exact_coins(stream, np.array([1 / 3]), lambda context, _: context.mpf(1) / 3)
        assert coins.tolist() == [heads]


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
    monkeypatch.setattr(draws, "exact_coins", lambda stream, probability, exact: np.ones(probability.size, np.bool_))
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
    n, probability = 150_000, 70.3 * 2.0**-16
    stream, chunks = fixed_stream(), []
    for start in range(0, n, 2**17):
        words = stream.words(min(2**17, n - start), np.uint16).tolist()
        ties = words.count(int(probability * 2**16))
        chunks.append((words, stream.words(ties, np.uint64).tolist()))
    expected, first, limit = [], int(probability * 2**16), int(mp.mpf(probability) * 2**80)
    for c, (words, extension) in enumerate(chunks):
        for i, word in enumerate(words):
            digits = word << 64 | (extension.pop(0) if word == first else 0)
            if digits < limit:
                expected.append(c * 2**17 + i)
    assert bernoulli_indices(fixed_stream(), n, probability=probability).tolist() == expected


@pytest.mark.parametrize("probability", [0.5, 0.1, 2.0**-10, 1e-4])
def test_failures_between_successes_are_geometric(probability: float) -> None:
    """In cells of equal probability, and the same capped: whatever is at least `most` counts as that."""
    gaps = failures(fixed_stream(), 100_000, probability, most=2**40)
    edges = np.unique(stats.geom.ppf(np.arange(1, 20) / 20, probability) - 1)
    cells = np.diff(np.concatenate([[0.0], stats.geom.cdf(edges + 1, probability), [1.0]]))
    assert stats.chisquare(np.bincount(np.searchsorted(edges, gaps), minlength=len(cells)), cells * len(gaps)).pvalue > ALPHA
    assert np.array_equal(np.minimum(failures(fixed_stream(), 100_000, probability, most=5), 5), np.minimum(gaps, 5))


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


# Coins against the tails of discrete Laplace noise


@pytest.mark.parametrize(("scale", "most"), [(0.05, 3), (0.7, 2), (13.3, 11), (13.3, 3000)])
def test_thresholds_are_exact_to_128_bits_and_fall(scale: float, most: int) -> None:
    rows, least = reach_thresholds(scale, most)
    values = [(int(high) << 64) + int(low) for high, low in rows]
    assert len(rows) == most - least + 1
    assert least <= 0
    assert values == sorted(values, reverse=True)
    with mp.workprec(400):
        ratio = mp.exp(-1 / mp.mpf(scale))
        for k in {least, least + 1, 0, 1, most, max(least, -5), min(most, 5)}:
            exact = ratio**k / (1 + ratio) if k >= 0 else 1 - ratio ** (1 - k) / (1 + ratio)
            assert abs(mp.mpf(values[k - least]) / 2**128 - exact) < mp.mpf(2) ** -126
        assert ratio ** (2 - least) / (1 + ratio) < mp.mpf(2) ** -120, "below the table heads are certain"


@pytest.mark.parametrize(
    "act",
    [
        *(lambda s=s: rounded_normal(fixed_stream(), 3, noise_std=s) for s in (0.0, -1.0, 1e-7, 1e17, math.inf, math.nan)),
        *(lambda s=s: discrete_laplace(fixed_stream(), 3, scale=s) for s in (0.0, -1.0, 1e-7, 1e13, math.inf, math.nan)),
        *(lambda s=s: reach_thresholds(s, 3) for s in (0.0, 1e9)),
        lambda: reach_thresholds(1.0, 0),
    ],
)
def test_numbers_out_of_range(act: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="must be in"):
        act()


def test_code_is_compiled_where_its_cache_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    assert compiled()(lambda x: 2 * x)(21) == 42
