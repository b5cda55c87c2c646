"""From noisy prefix counts at knots to a monotone cumulative distribution: post-processing, free of privacy cost."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

SCORE = 1.0
"""How far one record moves a score |count - model| of an interval or a prefix, under either relation: the count by at most 1,
the model not at all, it is public."""


@dataclass(frozen=True)
class MonotoneCounts:
    """A piecewise linear, non-decreasing prefix count: `counts[i]` records lie below `positions[i]`.

    positions (m,) int64 increase strictly from 0 to N; counts (m,) float64 run from 0 to the (noisy) number of records.
    """

    positions: Integers
    counts: Reals

    def at(self, x: Integers) -> Reals:
        """Prefix counts at x; differences are taken in integers, since float64 has steps of 128 at 10^18.

        >>> MonotoneCounts(np.array([0, 10**18]), np.array([0.0, 8.0])).at(np.array([5 * 10**17]))
        array([4.])
        """
        piece = np.clip(np.searchsorted(self.positions, x, side="right") - 1, 0, self.positions.size - 2)
        left, right = self.positions[piece], self.positions[piece + 1]
        share = (x - left).astype(np.float64) / (right - left).astype(np.float64)
        return self.counts[piece] + np.clip(share, 0.0, 1.0) * (self.counts[piece + 1] - self.counts[piece])

    def one(self, x: int) -> float:
        """The same for a single x, without the cost of arrays."""
        piece = min(max(int(self.positions.searchsorted(x, side="right")) - 1, 0), self.positions.size - 2)
        left, right = int(self.positions[piece]), int(self.positions[piece + 1])
        low, high = float(self.counts[piece]), float(self.counts[piece + 1])
        return low + min(max(float(x - left) / float(right - left), 0.0), 1.0) * (high - low)


def monotone_counts(knots: Integers, counts: Reals, variances: Reals, *, N: int, size: float) -> MonotoneCounts:
    """The monotone prefix count that fits noisy answers best.

    Answers at the same knot are averaged by inverse variance, isotonic regression with the same weights follows, then
    clipping to [0, size]; 0 records lie below 0 and `size` below N. None of it increases the largest error at the knots
    beyond that of the averages.

    Arguments:
        knots: (m,) int64 in [0, N], any order, repetitions allowed; answers at 0 and N are dropped.
        counts: (m,) noisy numbers of records below each knot.
        variances: (m,) noise variances > 0.
        N: domain size, at least 2.
        size: public or noisy number of records, at least 0.

    Raises:
        ValueError: shapes differ, a knot lies outside [0, N], a count is not finite, or a variance is not > 0.

    >>> fit = monotone_counts(np.array([4, 4, 6]), np.array([2.0, 4.0, 1.0]), np.ones(3), N=8, size=5)
    >>> fit.positions.tolist(), fit.counts.round(3).tolist()
    ([0, 4, 6, 8], [0.0, 2.333, 2.333, 5.0])
    """
    _require_prefixes(knots, counts, variances, N, size)
    inside = (knots > 0) & (knots < N)
    knots, counts, weights = knots[inside], counts[inside], 1 / variances[inside]
    positions, groups = np.unique(knots, return_inverse=True)
    if positions.size == 0:
        return MonotoneCounts(np.array([0, N], np.int64), np.array([0.0, float(size)]))
    total = np.bincount(groups, weights)
    means = np.bincount(groups, weights * counts) / total
    fitted = isotonic_regression(means, weights=total).x.clip(0.0, float(size))
    return MonotoneCounts(
        np.concatenate([[0], positions, [N]]).astype(np.int64), np.concatenate([[0.0], fitted, [float(size)]])
    )


def _require_prefixes(knots: Integers, counts: Reals, variances: Reals, N: int, size: float) -> None:
    if not knots.ndim == counts.ndim == variances.ndim == 1 or not knots.size == counts.size == variances.size:
        raise ValueError(
            f"knots, counts and variances have shapes {knots.shape}, {counts.shape}, {variances.shape}; they must be (m,) each"
        )
    if not (N >= 2 and np.isfinite(size) and size >= 0):
        raise ValueError(f"N is {N!r} and size is {size!r}; they must be at least 2 and at least 0, finite")
    if knots.size and not (knots.min() >= 0 and knots.max() <= N):
        raise ValueError(f"knots lie in [{knots.min()}, {knots.max()}]; they must lie in [0, {N}]")
    if not np.isfinite(counts).all():
        raise ValueError("counts hold NaN or infinite entries; they must be finite")
    if not (variances > 0).all():
        raise ValueError(f"variances are at least {np.min(variances)!r}; they must be > 0")
