"""Box-Muller against a slow double-precision twin, and its distribution against twins that must be rejected."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from fixed_source import fixed_stream
from scipy import stats
from scipy.special import ndtr, ndtri

from dpgen.privacy.draws import BLOCK, CHUNK, PAIRS, TAIL, add_block_normals, add_normal, count_tails

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


def secure_normals(count: int, seed: int = 0) -> Reals:
    values = np.zeros(count, np.float32)
    assert add_normal(fixed_stream(seed), values, noise_std=1.0, grid=GRID)
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


def test_angles_cover_the_circle() -> None:
    words = np.full(BLOCK, 2**31, np.uint32)
    words[PAIRS:] = (np.arange(PAIRS, dtype=np.uint32) << 23) + 2**22
    x, y = kernel_normals(words, np.empty(0, np.uint64)).reshape(2, PAIRS)
    angles = np.sort(np.arctan2(y, x))
    np.testing.assert_allclose(np.diff(angles), 2 * math.pi / PAIRS, atol=1e-5)
    np.testing.assert_allclose(np.hypot(x, y), math.sqrt(2 * math.log(2)), rtol=1e-6)


def test_reach() -> None:
    words = np.zeros(BLOCK, np.uint32)
    x = kernel_normals(words, np.zeros(PAIRS, np.uint64))
    assert np.abs(x).max() == pytest.approx(math.sqrt(2 * 97 * math.log(2)), rel=1e-6)


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
    below = 1.0 + 2.0**-30
    add_normal(fixed_stream(), values, noise_std=below, grid=2.0**-60)
    add_normal(fixed_stream(), wide, noise_std=float(np.nextafter(np.float32(1), np.float32(2))), grid=2.0**-60)
    np.testing.assert_array_equal(values, wide)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_reports_values_that_are_not_finite(bad: float) -> None:
    values = np.zeros(3 * BLOCK + 5, np.float32)
    values[-1] = bad
    assert not add_normal(fixed_stream(), values, noise_std=1.0, grid=GRID)


def body_p_value(values: Reals) -> float:
    """Chi-square of 64 cells with edges half-way between grid points."""
    edges = (np.rint(ndtri(np.arange(1, 64) / 64) / GRID) + 0.5) * GRID
    counts = np.bincount(np.searchsorted(edges, values), minlength=64)
    expected = values.size * np.diff(np.concatenate([[0], ndtr(edges), [1]]))
    return float(stats.chisquare(counts, expected).pvalue)


def moments_z(values: Reals) -> float:
    """Largest deviation of the first six moments, in standard errors."""
    exact = [1, 0, 1, 0, 3, 0, 15, 0, 105, 0, 945, 0, 10395]
    z = [
        (np.mean(values.astype(np.float64) ** k) - exact[k]) / math.sqrt((exact[2 * k] - exact[k] ** 2) / values.size)
        for k in range(1, 7)
    ]
    return float(np.abs(z).max())


@pytest.fixture(scope="module")
def body() -> Reals:
    return secure_normals(4_000_000)


def test_body(body: Reals) -> None:
    assert body_p_value(body) > ALPHA
    assert moments_z(body) < 5
    halves = body[: body.size // BLOCK * BLOCK].reshape(-1, 2, PAIRS)
    x, y = halves[:, 0].ravel(), halves[:, 1].ravel()
    for first, second in [(x, y), (x**2, y**2), (body[1:], body[:-1])]:
        assert abs(np.corrcoef(first, second)[0, 1]) * math.sqrt(first.size) < 5


@pytest.mark.parametrize(
    "twin", [lambda z: 1.005 * z, lambda z: z + 0.004, lambda z: np.clip(z, -2.5, 2.5), lambda z: np.rint(z * 64) / 64]
)
def test_body_rejects_twins(body: Reals, twin: Callable[[Reals], Reals]) -> None:
    assert body_p_value(twin(body)) < ALPHA or moments_z(twin(body)) > 5


def deep_tail(chunks: int, draw: Callable[[int], Reals]) -> Reals:
    return np.concatenate([values[np.abs(values) > 4.5] for values in map(draw, range(chunks))])


def tail_p_value(tail: Reals, n: int) -> float:
    """Chi-square of |z| in 32 cells equally likely beyond 4.75, and of how many there are."""
    start = (round(4.75 / GRID) + 0.5) * GRID
    beyond = np.abs(tail[np.abs(tail) > start])
    edges = (np.rint(-ndtri(ndtr(-start) * np.arange(31, 0, -1) / 32) / GRID) + 0.5) * GRID
    counts = np.bincount(np.searchsorted(edges, beyond), minlength=32)
    expected = 2 * n * -np.diff(np.concatenate([ndtr(-np.concatenate([[start], edges])), [0]]))
    inside = n - beyond.size
    return float(stats.chisquare([*counts, inside], [*expected, n - expected.sum()]).pvalue)


def inverse_24_bit(count: int, seed: int) -> Reals:
    """The twin: inverse CDF of a 24-bit uniform, as single-precision generators do."""
    integers = np.random.default_rng(seed).integers(2**24, size=count, dtype=np.uint32)
    return np.rint(ndtri((integers[(integers < 200) | (integers >= 2**24 - 200)] + 0.5) * 2.0**-24) / GRID) * GRID


def test_deep_tail_and_24_bit_twin() -> None:
    chunk, chunks = 10_000_000, 16
    n = chunk * chunks
    tail = deep_tail(chunks, lambda seed: secure_normals(chunk, seed))
    assert tail_p_value(tail, n) > ALPHA
    for level in (4.75, 5.0):
        level = (round(level / GRID) + 0.5) * GRID
        expected = 2 * n * ndtr(-level)
        assert abs((np.abs(tail) > level).sum() - expected) < 4 * math.sqrt(expected)
    twin = deep_tail(chunks, lambda seed: inverse_24_bit(chunk, seed))
    assert tail_p_value(twin, n) < ALPHA


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
