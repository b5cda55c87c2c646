"""Exact draws of whole numbers: integer noise, Poisson masks, and coins that integer noise reaches a threshold.

Every draw is within $2^{-128}$ in total variation of the distribution that is proved about. Each decision compares a
192-bit uniform with a real number. Doubles settle it unless the two are closer than a margin far above the rounding
errors; the rare rest (about one in $10^9$) is settled with 320-bit arithmetic. So nothing is tabulated, and speed and
exactness do not depend on the scale. How many tries or slow decisions a draw takes depends on the random bits only,
never on data.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from dpgen.privacy.normal import Keystream

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

DISCRETE_DELTA = 2.0**-128
_COIN_MARGIN = 1e-9  # absolute; the doubles are good to 1e-14
_TAIL_MARGIN = 1e-11  # relative; erfc is good to 1e-13
_PRECISION = 320
_CHUNK = 2**17
_LIMITS = (1e-6, 1e12)
_MOST_ROUNDED = 1e16  # std of a rounded normal, so that 40 of it fit int64
_DIRECT_BITS = 18  # stds above 2^18 would leave too many doubles within the margins: their low bits are drawn apart


def _checked_scale(name: str, scale: float, most: float = _LIMITS[1]) -> float:
    low = _LIMITS[0]
    if not low <= scale <= most:
        raise ValueError(f"{name} of integer noise must be in [{low:g}, {most:g}], got {scale!r}")
    return float(scale)


def _exact_context() -> Any:
    # mpmath's shared context is not safe between threads, so every slow decision makes its own.
    from mpmath import MPContext  # type: ignore[import-untyped]

    context = MPContext()
    context.prec = _PRECISION
    return context


def _as_integer(words: Words) -> int:
    return int(words[0]) << 128 | int(words[1]) << 64 | int(words[2])


def _coins(stream: Keystream, probability: npt.NDArray[np.float64], exact: Callable[[Any, int], Any]) -> npt.NDArray[np.bool_]:
    """Independent Bernoulli draws, `(n,)`; exact(context, i) is the i-th probability in high precision."""
    words: Words = stream.words(3 * probability.size, np.uint64).reshape(3, -1)
    gap = words[0] * 2.0**-64 - probability
    heads = gap < 0
    for i in np.flatnonzero(np.abs(gap) <= _COIN_MARGIN):
        context = _exact_context()
        heads[i] = context.mpf(2 * _as_integer(words[:, i]) + 1) * context.mpf(2) ** -193 < exact(context, int(i))
    return heads


def rounded_normal(stream: Keystream, count: int, *, noise_std: float) -> Integers:
    r"""Draw round(Z), $Z \sim N(0, \sigma^2)$, exactly.

    For an integer query S, round(S + Z) = S + round(Z): adding this noise is post-processing of the Gaussian mechanism
    and has its privacy. About .1 microseconds a value, whatever sigma.
    """
    noise_std = _checked_scale("noise_std", noise_std, _MOST_ROUNDED)
    low_bits = max(0, math.frexp(noise_std)[1] - _DIRECT_BITS)
    return _refined(stream, count, noise_std, low_bits) if low_bits else _inverted(stream, count, noise_std)


def _refined(stream: Keystream, count: int, noise_std: float, bits: int) -> Integers:
    r"""round(Z) as the cell t = round(Y) of $Y = Z / 2^b$, and the place of Y in its cell.

    With s = std of Y, the density of Y = t + x, x in [-1/2, 1/2), is a constant of t times $e^{-h}$ with
    $h = (|t| + 2 t x + x^2) / (2 s^2) \ge 0$: a uniform x is kept with probability $e^{-h}$, else drawn again.
    """
    std = math.ldexp(noise_std, -bits)
    cell = _inverted(stream, count, std)
    place = np.empty(count, np.int64)
    open_slots = np.arange(count)
    while open_slots.size:
        words: Words = stream.words(3 * open_slots.size, np.uint64).reshape(3, -1)
        t, x = cell[open_slots], words[0] * 2.0**-64 - 0.5

        def exact(context: Any, i: int, t: Integers = t, words: Words = words) -> Any:
            y = context.mpf(2 * _as_integer(words[:, i]) + 1) * context.mpf(2) ** -193 - context.mpf(0.5)
            return context.exp(-(abs(int(t[i])) + 2 * int(t[i]) * y + y * y) / (2 * context.mpf(std) ** 2))

        kept = _coins(stream, np.exp(-(np.abs(t) + 2 * t * x + x * x) / (2 * std * std)), exact)
        # floor(2^b (x + 1/2) + 1/2) from the first b + 1 binary digits of x + 1/2
        digits = (words[0][kept] >> np.uint64(63 - bits)).astype(np.int64)
        place[open_slots[kept]] = (digits + 1) >> 1
        open_slots = open_slots[~kept]
    return (cell << bits) + place - (1 << bits >> 1)


def _inverted(stream: Keystream, count: int, noise_std: float) -> Integers:
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
    context = _exact_context()
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
    r"""Draw from $P(k) \propto e^{-|k| / s}$ as the difference of two geometric variables.

    The binary digits of a geometric variable with ratio $e^{-1/s}$ are independent, digit i being 1 with probability
    $1 / (1 + e^{2^i / s})$; those beyond $2^i > 120 s$ have mass below $2^{-170}$ and are left out.
    """
    return _difference_of_geometrics(stream, count, _checked_scale("scale", scale))


def _difference_of_geometrics(stream: Keystream, count: int, scale: float) -> Integers:
    total = np.zeros(2 * count, np.int64)
    for i in range(max(0, math.ceil(math.log2(120 * scale)))):
        odds = 2.0**i / scale

        def exact(context: Any, _: int, i: int = i) -> Any:
            return 1 / (1 + context.exp(context.mpf(2) ** i / context.mpf(scale)))

        total += _coins(stream, np.full(2 * count, special.expit(-odds)), exact).astype(np.int64) << i
    return total[:count] - total[count:]


def discrete_gaussian(stream: Keystream, count: int, *, noise_std: float) -> Integers:
    r"""Draw from $P(k) \propto e^{-k^2 / (2\sigma^2)}$ by rejection from the discrete Laplace.

    Canonne, Kamath and Steinke (2020), Algorithm 3: with $t = \lfloor\sigma\rfloor + 1$ a proposal y of scale t is kept
    with probability $\exp(-(|y| - \sigma^2/t)^2 / (2\sigma^2))$.
    """
    noise_std = _checked_scale("noise_std", noise_std)
    t = math.floor(noise_std) + 1
    result = np.empty(count, np.int64)
    open_slots = np.arange(count)
    while open_slots.size:
        proposal = _difference_of_geometrics(stream, open_slots.size, t)
        distance = (np.abs(proposal) - noise_std * noise_std / t) / noise_std

        def exact(context: Any, i: int, proposal: Integers = proposal) -> Any:
            std = context.mpf(noise_std)
            return context.exp(-((abs(int(proposal[i])) - std * std / t) ** 2) / (2 * std * std))

        kept = _coins(stream, np.exp(-distance * distance / 2), exact)
        result[open_slots[kept]] = proposal[kept]
        open_slots = open_slots[~kept]
    return result


def bernoulli_indices(stream: Keystream, n: int, *, probability: float) -> Integers:
    """Indices, increasing, of the successes among n independent Bernoulli(p) trials, each exact to $2^{-80}$.

    16 bits settle a trial unless they tie with those of p; then 64 more are drawn.
    """
    if probability == 1:
        return np.arange(n)
    threshold, rest = divmod(int(Fraction(probability) * 2**80), 2**64)
    found = []
    for start in range(0, n, _CHUNK):
        words = stream.words(min(_CHUNK, n - start), np.uint16)
        candidates = np.flatnonzero(words <= threshold)
        tied = np.flatnonzero(words[candidates] == threshold)
        lost = tied[stream.words(tied.size, np.uint64) >= np.uint64(rest)]
        found.append(np.delete(candidates, lost) + start)
    return np.concatenate(found) if found else np.empty(0, np.int64)


COIN_BITS = 128
_GUARD_BITS = 64


@lru_cache(maxsize=64)
def reach_thresholds(scale: float, most: int) -> tuple[Words, int]:
    r"""Chances that discrete Laplace noise X of this scale is at least k, as 128-bit integers, for k up to `most`.

    .. math:: P(X \ge k) = \frac{r^k}{1 + r} \;(k \ge 0), \qquad 1 - \frac{r^{1-k}}{1 + r} \;(k \le 0), \qquad r = e^{-1/s}

    A coin is heads when 128 uniform bits, read as an integer, are below the threshold: its chance is exact to
    :math:`2^{-128}`. Rows are (high word, low word) for k = least, least + 1, ..., most; below `least` heads are certain
    to that precision.

    Returns: thresholds (most - least + 1, 2) uint64, and least (<= 0).

    Raises:
        ValueError: scale outside [0.01, 1e6] or most outside [1, 1e8].
    """
    from mpmath import MPContext

    if not 0.01 <= scale <= 1e6:
        raise ValueError(f"scale is {scale!r}; it must be in [0.01, 1e6]")
    if not 1 <= most <= 10**8:
        raise ValueError(f"most is {most!r}; it must be in [1, 1e8]")
    context = MPContext()
    context.prec = COIN_BITS + _GUARD_BITS + 32
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
