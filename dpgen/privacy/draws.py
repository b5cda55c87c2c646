r"""Draws from key streams of AES-256 in counter mode: normal noise, integer noise, Poisson masks and coins.

Every draw has a key of its own, which is dropped afterwards.

**Normal noise** is made at the speed of memory: Box-Muller on cipher words, added and rounded to a grid in one pass. A pair
of standard normals is $R\cos\theta, R\sin\theta$ with $R^2 = -2\ln U$ (Box and Muller, 1958). The angle takes 32 bits. U
takes 32 bits, and 96 where these 32 say $U < 2^{-12}$: so $R$ has full float precision far out and reaches 11.6, where a
32-bit uniform stops at 6.7 and a 24-bit one at 5.8.

**Whole numbers** are within $2^{-128}$ in total variation of the distribution that is proved about. Each decision compares a
192-bit uniform with a real number. Doubles settle it unless the two are closer than a margin far above the rounding
errors; the rare rest (about one in $10^9$) is settled with 320-bit arithmetic. So nothing is tabulated, and speed and
exactness do not depend on the scale. How many tries or slow decisions a draw takes depends on the random bits only,
never on data.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import numpy.typing as npt
from scipy import special

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext


KEY_BYTES = 32
REKEY_BYTES = 64 * 2**20
_ZEROS = bytes(2**18)


def aes_ctr(key: bytes, counter: bytes = bytes(16)) -> "CipherContext":
    """AES-256-CTR encryptor from a 16-byte counter block (NIST SP 800-38A, 6.5); of zeros it gives $E_K(c), E_K(c + 1), ...$

    >>> aes_ctr(bytes(32)).update(bytes(4)).hex()
    'dc95c078'
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()


class Keystream:
    """Key stream of one draw: a fresh 32-byte key at the start and after every 64 MiB, each dropped when the next one comes.

    Whoever reads the memory later finds no key that produced earlier noise. Not for sharing between threads.

    >>> import os
    >>> Keystream(lambda: os.urandom(32)).words(3, np.uint64).shape
    (3,)
    """

    def __init__(self, fresh_key: Callable[[], bytes]) -> None:
        self._fresh_key = fresh_key
        self._left = 0

    def fill(self, words: npt.NDArray[Any]) -> None:
        """Overwrite a contiguous array with key stream."""
        target = words.reshape(-1).view(np.uint8)
        start = 0
        while start < target.size:
            if self._left == 0:
                self._cipher, self._left = aes_ctr(self._fresh_key()), REKEY_BYTES
            count = min(target.size - start, self._left, len(_ZEROS))
            self._cipher.update_into(memoryview(_ZEROS)[:count], target[start : start + count].data)
            self._left -= count
            start += count

    def words(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """`count` independent uniform words of an unsigned integer type, shape `(count,)`."""
        words = np.empty(count, dtype)
        self.fill(words)
        return words


AnyWords = npt.NDArray[np.unsignedinteger]
Floats = npt.NDArray[np.floating]

PAIRS = 512  # normals are made in blocks of 512 radius words and 512 angle words
BLOCK = 2 * PAIRS
CHUNK = 64 * BLOCK  # 256 KiB of key stream at a time, to stay inside the second-level cache
TAIL = np.uint32(2**20)
_SIGN, _SWAP, _TWO = np.uint32(2**31), np.uint32(2**30), np.uint32(2)
_SQRT_HALF = np.int32(0x3F3504F3)  # the bits of 1/sqrt(2) as float32
_MANTISSA = np.int32(23)
_UNIT, _ONE, _FOUR = np.float32(2.0**-32), np.float32(1), np.float32(4)
_TWO_LN2 = np.float32(2 * math.log(2))
_ATANH = tuple(np.float32(1 / k) for k in (3, 5, 7, 9))
_SIN = tuple(np.float32(c) for c in (-1 / 6, 1 / 120, -1 / 5040, 1 / 362880))
_COS = tuple(np.float32(c) for c in (-1 / 2, 1 / 24, -1 / 720, 1 / 40320))
_ANGLE = np.float32(math.pi / 4 * 2.0**-31)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`numba.njit` that keeps machine code where the package or the home can be written; elsewhere each process compiles."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            made: Callable[..., Any] = numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # of a cache that has no place
            made = numba.njit(nogil=True, **options)(function)
        return made

    return decorated


_compile = compiled(fastmath={"contract"}, error_model="numpy")
_inline = numba.njit(inline="always", fastmath={"contract"}, error_model="numpy")


@_inline
def _squared_radius(word: np.uint32) -> np.float32:
    r"""$-2\ln(w 2^{-32})$, from $u = 2^e m$ with m in $[1/\sqrt2, \sqrt2)$ and $\ln m$ = 2 atanh((m - 1) / (m + 1))."""
    bits = np.float32(np.float32(word) * _UNIT).view(np.int32)
    exponent = np.int32(np.int32(bits - _SQRT_HALF) >> _MANTISSA)
    m = np.int32(bits - np.int32(exponent << _MANTISSA)).view(np.float32)
    s = (m - _ONE) / (m + _ONE)
    q = s * s
    series = _ONE + q * (_ATANH[0] + q * (_ATANH[1] + q * (_ATANH[2] + q * _ATANH[3])))
    return -_FOUR * s * series - _TWO_LN2 * np.float32(exponent)


@_inline
def _block_of_normals(radius_words: AnyWords, angle_words: AnyWords, extension: AnyWords, used: int, z: Floats) -> int:
    """Fill z with `2 * PAIRS` normals; return how many extension words are used up afterwards."""
    tails = np.uint32(0)
    for i in range(PAIRS):
        z[i] = math.sqrt(_squared_radius(radius_words[i]))
        tails = np.uint32(tails + np.uint32(radius_words[i] < TAIL))
    if tails:
        for i in range(PAIRS):
            if radius_words[i] < TAIL:
                u = (np.float64(radius_words[i]) * 2.0**64 + np.float64(extension[used]) + 0.5) * 2.0**-96
                z[i] = math.sqrt(-2.0 * math.log(u))
                used += 1
    # The angle is uniform in [-pi/4, pi/4); one more bit mirrors it at the y axis, one swaps x and y.
    for i in range(PAIRS):
        word = angle_words[i]
        t = np.float32(np.int32(np.uint32(word << _TWO))) * _ANGLE
        q = t * t
        sine = t * (_ONE + q * (_SIN[0] + q * (_SIN[1] + q * (_SIN[2] + q * _SIN[3])))) * z[i]
        radius = np.uint32(np.float32(z[i]).view(np.uint32) ^ np.uint32(word & _SIGN)).view(np.float32)
        cosine = (_ONE + q * (_COS[0] + q * (_COS[1] + q * (_COS[2] + q * _COS[3])))) * radius
        swap = (word & _SWAP) != 0
        z[i] = sine if swap else cosine
        z[i + PAIRS] = cosine if swap else sine
    return used


@_compile
def count_tails(words: AnyWords) -> int:
    """Number of radius words that need an extension word."""
    total = 0
    for start in range(0, words.size, BLOCK):
        radius_words = words[start : start + PAIRS]
        tails = np.uint32(0)
        for i in range(PAIRS):
            tails = np.uint32(tails + np.uint32(radius_words[i] < TAIL))
        total += int(tails)
    return total


@_compile
def add_block_normals(
    values: Floats, words: AnyWords, extension: AnyWords, noise_std: np.floating, grid: np.floating, per_grid: np.floating
) -> int:
    r"""Replace v by $g\,\mathrm{round}((v + \sigma z) / g)$, the last g times a factor; return how many are not finite."""
    z = np.empty(BLOCK, np.float32)
    used = 0
    broken = 0
    for start in range(0, values.size, BLOCK):
        used = _block_of_normals(words[start : start + PAIRS], words[start + PAIRS : start + BLOCK], extension, used, z)
        count = min(BLOCK, values.size - start)
        out = values[start : start + count]
        not_finite = np.uint32(0)
        for i in range(count):
            v = np.rint((out[i] + noise_std * z[i]) * per_grid) * grid
            out[i] = v
            not_finite = np.uint32(not_finite + np.uint32(not (abs(v) < np.inf)))
        broken += int(not_finite)
    return broken


def add_normal(stream: Keystream, values: Floats, *, noise_std: float, grid: float, factor: float = 1.0) -> bool:
    r"""Add $N(0, \sigma^2)$ to values `(n,)`, round to multiples of the grid, multiply by a factor, in place.

    Returns whether all are finite. The deviation is rounded up where the type of the values, float32 or float64, cannot
    hold it. The grid is a power of two.
    """
    kind = values.dtype.type
    std = kind(noise_std)
    if float(std) < noise_std:
        std = np.nextafter(std, kind(np.inf))
    buffer = np.empty(min(CHUNK, -(-values.size // BLOCK) * BLOCK), np.uint32)
    broken = 0
    for start in range(0, values.size, CHUNK):
        part = values[start : start + CHUNK]
        words = buffer[: -(-part.size // BLOCK) * BLOCK]
        stream.fill(words)
        extension = stream.words(count_tails(words), np.uint64)
        broken += add_block_normals(part, words, extension, std, kind(factor * grid), kind(1 / grid))
    return broken == 0


Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

_COIN_MARGIN = 1e-9  # absolute; the doubles are good to 1e-14
_TAIL_MARGIN = 1e-11  # relative; erfc is good to 1e-13
_PRECISION = 320
_CHUNK = 2**17
_LIMITS = (1e-6, 1e12)
_MOST_ROUNDED = 1e16  # std of a rounded normal, so that 40 of it fit int64
_RARE = 2.0**-10  # below it a success costs fewer words than the trials around it
_SKIP_BITS = 128
_DIRECT_BITS = 18  # stds above 2^18 would leave too many doubles within the margins: their low bits are drawn apart


def _checked_scale(name: str, scale: float, most: float = _LIMITS[1]) -> float:
    low = _LIMITS[0]
    if not low <= scale <= most:
        raise ValueError(f"{name} of integer noise must be in [{low:g}, {most:g}], got {scale!r}")
    return float(scale)


def exact_context() -> Any:
    """Arithmetic of 320 bits, one for each slow decision: mpmath's shared context is not safe between threads."""
    from mpmath import MPContext  # type: ignore[import-untyped]

    context = MPContext()
    context.prec = _PRECISION
    return context


def _as_integer(words: Words) -> int:
    return int(words[0]) << 128 | int(words[1]) << 64 | int(words[2])


def exact_coins(stream: Keystream, probability: Reals, exact: Callable[[Any, int], Any]) -> npt.NDArray[np.bool_]:
    """Independent Bernoulli draws, `(n,)`; exact(context, i) is the i-th probability in high precision."""
    words: Words = stream.words(3 * probability.size, np.uint64).reshape(3, -1)
    gap = words[0] * 2.0**-64 - probability
    heads = gap < 0
    for i in np.flatnonzero(np.abs(gap) <= _COIN_MARGIN):
        context = exact_context()
        heads[i] = context.mpf(2 * _as_integer(words[:, i]) + 1) * context.mpf(2) ** -193 < exact(context, int(i))
    return heads


def rounded_normal(stream: Keystream, count: int, *, noise_std: float) -> Integers:
    r"""Draw round(Z), $Z \sim N(0, \sigma^2)$, exactly.

    For an integer query S, round(S + Z) = S + round(Z): adding this noise is post-processing of the Gaussian mechanism
    and has its privacy. About .1 microseconds a value, whatever sigma.
    """
    noise_std = _checked_scale("noise_std", noise_std, _MOST_ROUNDED)
    low_bits = max(0, math.frexp(noise_std)[1] - _DIRECT_BITS)
    return refined_normal(stream, count, noise_std, low_bits) if low_bits else inverted_normal(stream, count, noise_std)


def refined_normal(stream: Keystream, count: int, noise_std: float, bits: int) -> Integers:
    r"""round(Z) as the cell t = round(Y) of $Y = Z / 2^b$, and the place of Y in its cell.

    With s = std of Y, the density of Y = t + x, x in [-1/2, 1/2), is a constant of t times $e^{-h}$ with
    $h = (|t| + 2 t x + x^2) / (2 s^2) \ge 0$: a uniform x is kept with probability $e^{-h}$, else drawn again.
    """
    std = math.ldexp(noise_std, -bits)
    cell = inverted_normal(stream, count, std)
    place = np.empty(count, np.int64)
    open_slots = np.arange(count)
    while open_slots.size:
        words: Words = stream.words(3 * open_slots.size, np.uint64).reshape(3, -1)
        t, x = cell[open_slots], words[0] * 2.0**-64 - 0.5

        def exact(context: Any, i: int, t: Integers = t, words: Words = words) -> Any:
            y = context.mpf(2 * _as_integer(words[:, i]) + 1) * context.mpf(2) ** -193 - context.mpf(0.5)
            return context.exp(-(abs(int(t[i])) + 2 * int(t[i]) * y + y * y) / (2 * context.mpf(std) ** 2))

        kept = exact_coins(stream, np.exp(-(np.abs(t) + 2 * t * x + x * x) / (2 * std * std)), exact)
        # floor(2^b (x + 1/2) + 1/2) from the first b + 1 binary digits of x + 1/2
        digits = (words[0][kept] >> np.uint64(63 - bits)).astype(np.int64)
        place[open_slots[kept]] = (digits + 1) >> 1
        open_slots = open_slots[~kept]
    return (cell << bits) + place - (1 << bits >> 1)


def inverted_normal(stream: Keystream, count: int, noise_std: float) -> Integers:
    r"""round(Z) by inversion of $P(|X| \ge m)$ = erfc$((m - 1/2) / (\sigma\sqrt2))$."""
    words: Words = stream.words(3 * count, np.uint64).reshape(3, count)
    sign = 1 - 2 * (words[0] >> np.uint64(63)).astype(np.int64)
    words[0] &= np.uint64(2**63 - 1)
    uniform = words[0] * 2.0**-63 + words[1] * 2.0**-127 + words[2] * 2.0**-191 + 2.0**-192
    scale = noise_std * math.sqrt(2)
    magnitude = np.floor(scale * special.erfcinv(uniform) + 0.5)
    beyond, reached = special.erfc((magnitude + 0.5) / scale), special.erfc((magnitude - 0.5) / scale)
    certain = (beyond * (1 + _TAIL_MARGIN) < uniform) & (uniform * (1 + _TAIL_MARGIN) < reached)
    for i in np.flatnonzero(~certain):
        magnitude[i] = _exact_magnitude(_as_integer(words[:, i]), int(magnitude[i]), noise_std)
    return sign * magnitude.astype(np.int64)


def _exact_magnitude(digits: int, guess: int, noise_std: float) -> int:
    r"""Largest m with $P(|X| \ge m) > u$, for $u$ of 191 binary digits."""
    context = exact_context()
    u = context.mpf(2 * digits + 1) * context.mpf(2) ** -192
    scale = context.mpf(noise_std) * context.sqrt(2)

    def reaches(m: int) -> bool:
        return bool(m <= 0 or context.erfc((m - context.mpf(0.5)) / scale) > u)

    while reaches(guess + 1):
        guess += 1
    while not reaches(guess):
        guess -= 1
    return guess


def discrete_laplace(stream: Keystream, count: int, *, scale: float) -> Integers:
    r"""Draw from $P(k) \propto e^{-|k| / s}$, as the difference of two geometric variables of ratio $e^{-1/s}$."""
    scale = _checked_scale("scale", scale)
    digits = max(0, math.ceil(math.log2(120 * scale)))
    total = _geometric(stream, 2 * count, digits, -1 / scale, lambda context: context.exp(-1 / context.mpf(scale)))
    return total[:count] - total[count:]


def _geometric(
    stream: Keystream, count: int, digits: int, log_ratio: float, ratio: Callable[[Any], Any], *, most: int = 2**62
) -> Integers:
    r"""Draw k with $P(k) = (1 - r) r^k$, `count` times; `most` stands for all k from there on.

    The binary digits of k are independent, digit i being 1 with probability $r^{2^i} / (1 + r^{2^i})$. Those left out, beyond
    $-2^i \log r > 120$, have mass below $2^{-170}$.
    """
    total = np.zeros(count, np.int64)
    for i in range(digits):

        def exact(context: Any, _: int, i: int = i) -> Any:
            power = ratio(context) ** (2**i)
            return power / (1 + power)

        ones = exact_coins(stream, np.full(count, special.expit(2.0**i * log_ratio)), exact)
        total[ones] = total[ones] + (1 << i) if 1 << i < most else most
    return total


def bernoulli_indices(stream: Keystream, n: int, *, probability: float) -> Integers:
    """Indices, increasing, of the successes among n independent Bernoulli(p) trials, each exact to $2^{-80}$.

    16 bits settle a trial unless they tie with those of p; then 64 more are drawn. Where successes are rare, the trials between
    them are drawn instead (`failures`), so that the work grows with p n and not with n.
    """
    if probability == 1:
        return np.arange(n)
    if probability < _RARE:
        return _by_skips(stream, n, probability)
    threshold, rest = divmod(int(Fraction(probability) * 2**80), 2**64)
    found = []
    for start in range(0, n, _CHUNK):
        words = stream.words(min(_CHUNK, n - start), np.uint16)
        candidates = np.flatnonzero(words <= threshold)
        tied = np.flatnonzero(words[candidates] == threshold)
        lost = tied[stream.words(tied.size, np.uint64) >= np.uint64(rest)]
        found.append(np.delete(candidates, lost) + start)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _by_skips(stream: Keystream, n: int, probability: float) -> Integers:
    if probability * n * 2.0**_SKIP_BITS < 1:  # no success in n trials but with a chance below 2^-128
        return np.empty(0, np.int64)
    found, last = [], -1
    while last < n:
        expected = (n - last) * probability
        steps = 1 + failures(stream, math.ceil(expected + 4 * math.sqrt(expected)) + 4, probability, most=n)
        found.append(last + steps.cumsum())
        last = int(found[-1][-1])
    indices = np.concatenate(found)
    return indices[: int(np.searchsorted(indices, n))]


def failures(stream: Keystream, count: int, probability: float, *, most: int) -> Integers:
    """Failures before the first success of Bernoulli(p) trials, `count` times; `most` or more stands for all from there on."""
    digits = max(1, math.ceil(math.log2(120 / probability)))
    return _geometric(stream, count, digits, math.log1p(-probability), lambda context: 1 - context.mpf(probability), most=most)


COIN_BITS = 128
_GUARD_BITS = 64


@lru_cache(maxsize=64)
def reach_thresholds(scale: float, most: int) -> tuple[Words, int]:
    r"""Chances that discrete Laplace noise X of this scale is at least k, as 128-bit integers, for k up to `most`.

    .. math:: P(X \ge k) = \frac{r^k}{1 + r} \;(k \ge 0), \qquad 1 - \frac{r^{1-k}}{1 + r} \;(k \le 0), \qquad r = e^{-1/s}

    A coin is heads when 128 uniform bits, read as an integer, are below the threshold: exact to :math:`2^{-128}`. Rows are
    (high word, low word), uint64, for k = least, ..., most; below `least` <= 0, the second result, heads are certain.

    `scale` is in [0.01, 1e6], `most` in [1, 1e8].
    """
    if not 0.01 <= scale <= 1e6:
        raise ValueError(f"scale is {scale!r}; it must be in [0.01, 1e6]")
    if not 1 <= most <= 10**8:
        raise ValueError(f"most is {most!r}; it must be in [1, 1e8]")
    context = exact_context()
    one = 1 << (COIN_BITS + _GUARD_BITS)
    ratio = int(context.floor(context.exp(-1 / context.mpf(scale)) * one))
    powers: list[int] = []
    tail = one * one // (one + ratio)
    while len(powers) <= most or tail >> _GUARD_BITS:
        powers.append(tail >> _GUARD_BITS)  # P(X >= k), k = 0, 1, ...
        tail = tail * ratio // one
    full = 1 << COIN_BITS
    # P(X >= k) = 1 - P(X >= 1 - k) for k <= 0
    certain = next((k for k, power in enumerate(powers) if power == 0), len(powers))
    chances = [full - power for power in reversed(powers[2:certain])] + powers[: most + 1]
    mask = 2**64 - 1
    rows = np.array([(c >> 64, c & mask) for c in chances], np.uint64)
    return rows, most + 1 - len(chances)
