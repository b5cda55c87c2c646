r"""Exact categorical draws: outcome j has probability $w_j / \sum_i w_i$ of the doubles given, with no error at all.

A draw is the inversion of a uniform real number whose binary digits are made as they are needed. Doubles settle it
unless the 64 first digits fall within the rounding error of a boundary; then the boundary is summed exactly, in
integers, and more digits are drawn until the two differ. So an outcome of probability $e^{-300}$ has that probability,
and a ratio of two probabilities, which is what pure epsilon bounds, is never lost in a grid of uniforms.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dpgen.privacy.discrete import Words
from dpgen.privacy.mechanisms import Secrets
from dpgen.privacy.noise import require_secure

Weights = npt.NDArray[np.float64]
Boundary = Callable[[int], Fraction]

_BLOCK = 1024
_HALF = np.int64(2**26)
_ROUNDING = 2.0**-53


def running_sum(values: Tensor) -> Tensor:
    """Inclusive prefix sums along the last dimension, in blocks: the error grows like 1024 + n/1024, not like n."""
    n = values.shape[-1]
    if n <= 4 * _BLOCK:
        return values.cumsum(-1)
    inner = torch.nn.functional.pad(values, (0, -n % _BLOCK)).unflatten(-1, (-1, _BLOCK)).cumsum(-1)
    before = torch.nn.functional.pad(inner[..., :-1, -1].cumsum(-1), (1, 0))
    return (inner + before.unsqueeze(-1)).flatten(-2)[..., :n]


def scan_error(n: int) -> float:
    """Bound on the relative error of `running_sum` over n values >= 0, conversions of uniforms included."""
    return ((n if n <= 4 * _BLOCK else _BLOCK + n // _BLOCK) + 32) * _ROUNDING


def exact_sum(values: Weights) -> Fraction:
    """The sum of n <= 2^26 doubles >= 0 without rounding.

    >>> exact_sum(np.array([1.0, 2.0**-1074])) - 1 == Fraction(1, 2**1074)
    True
    """
    fraction, exponent = np.frexp(np.asarray(values, np.float64))
    mantissa = (fraction * 2.0**53).astype(np.int64)
    shift = exponent.astype(np.int64) + 1074
    # Sums of 27-bit halves stay below 2^53, where doubles count exactly.
    high, low = (np.bincount(shift, half.astype(np.float64)) for half in (mantissa // _HALF, mantissa % _HALF))
    total = sum((int(h) * int(_HALF) + int(rest)) << s for s, (h, rest) in enumerate(zip(high, low)) if h or rest)
    return Fraction(total, 2 ** (1074 + 53))


def resolve(word: int, boundary: Boundary, n: int, *, guess: int, total: Fraction, source: Secrets) -> int:
    """Smallest j < n with $u T$ < boundary(j), for a uniform real u in [0, 1) that begins with the 64 digits of `word`.

    Arguments:
        boundary: exact, increasing in j, and `total` T at j = n - 1.
        guess: where to look first; it changes the time that is taken, never the result.
        source: gives further digits of u where 64 do not settle a comparison.
    """
    digits, bits = word, 64

    def below(limit: Fraction) -> bool:
        nonlocal digits, bits
        while True:
            if (digits + 1) * total <= limit * 2**bits:
                return True
            if digits * total >= limit * 2**bits:
                return False
            digits, bits = digits << 64 | int.from_bytes(source.random_bytes(8), "big"), bits + 64

    low, high, step = 0, n - 1, 1
    if below(boundary(guess)):
        high = guess
        while high > low and below(boundary(max(high - step, 0))):
            high, step = max(high - step, 0), 2 * step
        low = max(high - step + 1, 0)
    else:
        low = guess + 1
        while low < high and not below(boundary(min(low + step, high) - 1)):
            low, step = min(low + step, high), 2 * step
        high = min(low + step - 1, high)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if below(boundary(middle)) else (middle + 1, high)
    return low


def uniform_words(source: Secrets, count: int) -> tuple[Words, Tensor]:
    """The first 64 digits of `count` uniform reals, and the same as doubles, each at most $2^{-53}$ below the real.

    Raises:
        TypeError: source is no `SecureSource`.
    """
    words = require_secure(source).words(count)
    return words, torch.from_numpy((words >> np.uint64(11)) * 2.0**-53)


def draw_categorical(source: Secrets, weights: Tensor, *, k: int = 1, margin: float | None = None) -> Tensor:
    """Draw k outcomes of each row of weights (u, n); int64 (k, u) on the CPU, exactly in proportion to the weights.

    Arguments:
        weights: float64 >= 0, finite, each row with a positive sum; rows need not sum to 1.
        margin: relative distance from a boundary below which integers decide; None is the rounding error's bound.

    Raises:
        TypeError: source is no `SecureSource`.
        ValueError: weights or k out of range.

    >>> from dpgen.privacy.noise import SecureSource
    >>> draw_categorical(SecureSource(), torch.tensor([[0.0, 1.0], [3.0, 0.0]], dtype=torch.float64), k=2).tolist()
    [[1, 0], [1, 0]]
    """
    weights = weights.detach().to("cpu", torch.float64).contiguous()
    if weights.ndim != 2 or weights.shape[1] < 1 or k < 0:
        raise ValueError(f"weights must have shape (u, n) with n >= 1 and k must be >= 0, got {tuple(weights.shape)} and {k}")
    u, n = weights.shape
    cumulative = running_sum(weights)
    totals = cumulative[:, -1:]
    if not bool(((weights.amin(1, keepdim=True) >= 0) & (totals > 0) & (totals < torch.inf)).all()):
        raise ValueError("weights must be finite and >= 0, with a positive sum in every row")
    words, real = uniform_words(source, u * k)
    target = real.reshape(u, k) * totals
    guess = torch.searchsorted(cumulative, target, right=True).clamp_(max=n - 1)
    above = cumulative.gather(1, guess) - target
    below = target - cumulative.gather(1, (guess - 1).clamp_(min=0)).masked_fill_(guess == 0, -torch.inf)
    near = torch.minimum(above, below) <= (scan_error(n) if margin is None else margin) * totals
    for row, column in near.nonzero().tolist():
        values = weights[row].numpy()
        guess[row, column] = resolve(
            int(words[row * k + column]),
            lambda j, values=values: exact_sum(values[: j + 1]),  # type: ignore[misc]
            n,
            guess=int(guess[row, column]),
            total=exact_sum(values),
            source=source,
        )
    return guess.T.contiguous()
