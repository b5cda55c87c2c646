"""Coins that show heads when integer Laplace noise reaches a threshold: the only thing a private tree asks of its noise."""

from functools import lru_cache

import numpy as np

from dpgen.privacy.discrete import Words

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
    from mpmath import MPContext  # type: ignore[import-untyped]

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
