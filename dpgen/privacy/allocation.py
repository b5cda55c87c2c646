r"""Random allocation: the discrete pair of privacy losses that dominates an epoch, and its log-moments.

In an epoch of t Gaussian releases every record takes part in one, drawn uniformly and secretly. Take a
neighbour with one record more. The draws of the others do not depend on that record's, so they may be held fixed (hockey sticks
are jointly convex). In its step the record adds a vector, a function of all answers before; let :math:`g_s` be what it would
add in step s, of norm at most 1 in units of the sensitivity, and :math:`b_s` be 1 in its step and 0 elsewhere. Take :math:`z_s
\sim N(b_s, \sigma^2)`. Then :math:`|g_s| z_s` in the direction of :math:`g_s`, with independent noise that fills the variance
up to :math:`\sigma^2` in every direction, is the answer of step s, whatever :math:`b_s` is. So all answers, chosen adaptively,
are post-processing of a draw of one of

.. math:: P = \frac{1}{t} \sum_{i \le t} N(e_i, \sigma^2 I_t), \qquad Q = N(0, \sigma^2 I_t),

which the epoch attains where :math:`g_s` is one unit vector: the bound is exact. Several Gaussian releases of a step have one
sufficient statistic for :math:`b_s`, so they count as one (`effective_multiplier`). Epochs with fresh draws compose (Zhu, Dong,
Wang 2022, Theorem 10), and to stop inside of one is post-processing. Not covered: a replaced record, whose two vectors need
not lie on one line, and batches of fixed size cut from a permutation, where the records' draws depend on each other.

**Numbers of an epoch.** The likelihood ratio :math:`X = \frac{1}{t} \sum_i e^{(2 z_i - 1) / (2 \sigma^2)}` has mean 1 under Q,
and both directions are means of convex functions of it: :math:`E_Q (X - e^\epsilon)_+` and :math:`E_Q (1 - e^\epsilon X)_+`. So
a spread of X that keeps its mean never lowers them, and sums of independent spreads are spreads. Every summand is spread over
the points :math:`e^{jh}` of a grid, each part of its mass over two neighbours, and so are sums of two, by halving t. What is
above the grid counts as revealed; what is below goes to 0 and to the lowest point.

Source: Feldman, Shenfeld 2025 (arXiv 2502.08202) for the pair; 2026 (arXiv 2602.17284) for sums on a geometric grid.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpgen.privacy.pld import Composition, Direction, Grid, Pair, TooFine, connect, discretise, normal_mass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpgen.privacy.mechanisms import Relation

    Array = NDArray[Any]
    Key = tuple[tuple[tuple[float, float], int], ...]  # ((rate, or number of steps above 1; noise multiplier), times)

LEAST_SIGMA = 0.05
"""Noise multipliers below it are left to Renyi moments: their ratios leave the range of doubles."""

_MOST_CELLS = 12_000  # of a grid of sums, whose products are taken one diagonal after the other
_ROUNDING = 1e-11  # nats that losses are raised by; rounding of sums moves them by less


class Sums(NamedTuple):
    """Masses (m,) under Q of sums at `e^((start + i) h)`, and at 0; what was left out above has these masses under P and Q."""

    start: int
    masses: Array
    zero: float
    lost_p: float = 0.0
    lost_q: float = 0.0

    def values(self, step: float) -> Array:
        """The sums (m,)."""
        return np.exp((self.start + np.arange(len(self.masses))) * step)


def _summand(steps: int, sigma: float, step: float, tail: float) -> Sums:
    """One summand `e^loss / t`, spread over a grid of `step`; at most `tail` of its mass under N(1, sigma^2) is left out."""
    from scipy.special import ndtr, ndtri

    reach, shift = -float(ndtri(tail)), math.log(steps)
    first, last = (math.floor((sign * reach / sigma + half / sigma**2 - shift) / step) for sign, half in ((-1, -0.5), (1, 0.5)))
    losses = np.arange(first, last + 2) * step + shift
    x = sigma**2 * losses + 0.5
    with_record = connect(normal_mass(x, 1.0, sigma), normal_mass(x, 0.0, sigma), losses[:-1], step)
    masses = with_record * np.exp(-losses)
    # Below the grid: so much to its lowest point that the mean stays, the rest to 0.
    up = float(ndtr((x[0] - 1) / sigma)) * math.exp(-losses[0])
    masses[0] += up
    zero = max(0.0, float(ndtr(x[0] / sigma)) - up)
    return Sums(first, masses, zero, float(ndtr((1 - x[-1]) / sigma)) / steps, float(ndtr(-x[-1] / sigma)))


def _added(one: Sums, two: Sums, fine: int, step: float) -> Sums:
    """The sum of two independent ones on grids of `fine * step`, spread over a grid of `step`."""
    (a, p), (b, q) = one[:2], two[:2]
    end_a, end_b = a + len(p) - 1, b + len(q) - 1
    start = fine * min(a, b)
    out = np.zeros(fine * max(end_a, end_b) + math.ceil(math.log(2) / step) + 2 - start)
    for d in range(a - end_b, end_a - b + 1):  # the larger summand is e^(|d| fine step) times the smaller one
        first, last = max(a, b + d), min(end_a, end_b + d)
        masses = p[first - a : last - a + 1] * q[first - d - b : last - d - b + 1]
        above = math.log1p(math.exp(-abs(d) * fine * step))
        cells = math.floor(above / step)
        up = math.expm1(above - cells * step) / math.expm1(step)
        at = fine * max(first, first - d) + cells - start
        width = fine * len(masses)
        out[at : at + width : fine] += masses * (1 - up)
        out[at + 1 : at + 1 + width : fine] += masses * up
    out[fine * a - start : fine * end_a - start + 1 : fine] += p * two.zero
    out[fine * b - start : fine * end_b - start + 1 : fine] += q * one.zero
    return Sums(start, out, one.zero * two.zero)


def _trimmed(sums: Sums, step: float, tail: float) -> Sums:
    """The sums without the ends whose masses under P and Q are at most `tail`."""
    x, q = sums.values(step), sums.masses
    above = np.cumsum(((x + 1.0) * q)[::-1])[::-1]
    last = max(0, int(np.searchsorted(-above, -tail)) - 1)
    first = min(int(np.searchsorted(np.cumsum(q), tail)), last)
    up = float((x * q)[:first].sum() / x[first])
    kept = q[first : last + 1].copy()
    kept[0] += up
    zero = sums.zero + max(0.0, float(q[:first].sum()) - up)
    return Sums(sums.start + first, kept, zero, float((x * q)[last + 1 :].sum()), float(q[last + 1 :].sum()))


@lru_cache(maxsize=64)
def ratio(steps: int, sigma: float, step: float, tail: float, max_cells: int) -> Sums:
    """X under Q, spread over a grid of its logarithm; about `tail` of P and Q is left out above; else `TooFine`."""
    depth = (steps - 1).bit_length()
    # A block of 2^-k of all steps may have a grid that is coarser by 2^(k/3): its errors average out.
    fines = [2 if (depth - level) % 3 == 2 else 1 for level in range(1, depth + 1)]
    grids = [step * math.prod(fines[level:]) for level in range(depth + 1)]
    lost_p = lost_q = 0.0

    @cache
    def sums(n: int, level: int) -> Sums:
        """Sums of a block of n steps, of which there are at most 2^(depth - level)."""
        nonlocal lost_p, lost_q
        if level == 0:
            found = _summand(steps, sigma, grids[0], tail / steps) if n else Sums(0, np.zeros(1), 1.0)
        else:
            halves = sums(n // 2, level - 1), sums(n - n // 2, level - 1)
            found = _trimmed(_added(*halves, fines[level - 1], grids[level]), grids[level], tail * n / steps)
        if len(found.masses) > max_cells:
            raise TooFine(f"{len(found.masses)} cells of {grids[level]:.3g} for {n} of {steps} steps")
        blocks = min(2 ** (depth - level), steps // max(n, 1))
        # X is the block, or others, whose mean is at most 1 and which do not depend on it
        lost_p, lost_q = lost_p + blocks * (found.lost_p + found.lost_q), lost_q + blocks * found.lost_q
        return found

    return sums(steps, depth)._replace(lost_p=lost_p, lost_q=lost_q)


def discretised_epoch(steps: int, sigma: float, direction: Direction, step: float, tail: float) -> Grid:
    """A discrete pair that dominates an epoch of `steps` >= 2 in direction "remove" or "add"; about `tail` is at infinity."""
    if direction == "replace":
        raise ValueError("random allocation has no bound for replaced records")
    found = ratio(steps, sigma, step, tail / 8, _MOST_CELLS)
    x, q = found.values(step), found.masses
    raised = 2 * _ROUNDING / min(step, 1.0)
    if direction == "remove":
        masses, start, infinite = x * q, found.start, found.lost_p
    else:
        masses, start, infinite = q[::-1], 1 - found.start - len(q), found.lost_q + found.zero
    masses = np.append(masses, 0.0) + np.append(0.0, raised * masses)
    return Grid(start, step, masses, infinite)


@lru_cache(maxsize=8)
def _log_transform(steps: int, sigma: float) -> tuple[Array, Array]:
    """log s, and the logarithm of `E e^(-s X)` under Q."""
    z = np.linspace(-14.0, 14.0, 1401)
    weights = np.exp(-(z**2) / 2)
    summands = np.exp((z - 0.5 / sigma) / sigma) / steps
    y = np.linspace(-40.0, 14.0 / sigma + 0.5 / sigma**2 + 12.0, 3000)
    values = (weights / weights.sum()) @ np.exp(-np.multiply.outer(summands, np.exp(y)))
    with np.errstate(divide="ignore"):
        return y, steps * np.log(values)


def added_alpha(order: float, steps: int, sigma: float) -> float:
    r"""Log-moment of the direction "add", order > 0, from above.

    .. math:: E_Q X^{-a} = \frac{1}{\Gamma(a)} \int_0^\infty s^{a-1} (E e^{-s e^l / t})^t ds, \qquad a \ge 1,

    by the trapezoid rule; below 1 it is a chord from 0, for log-moments are convex. Where the rule is too coarse, X is taken at
    its least, the geometric mean of its terms.
    """
    from scipy.special import gammaln, logsumexp

    if order < 1:
        return order * added_alpha(1.0, steps, sigma)
    if sigma < LEAST_SIGMA or order > min(1000.0, 6.0 * steps * sigma):  # the z that decide are about -order / (steps sigma)
        return order * (1 + order / steps) / (2 * sigma**2)
    y, log_transform = _log_transform(steps, sigma)
    return float(logsumexp(order * y + log_transform) + math.log(y[1] - y[0]) - gammaln(order)) + _ROUNDING


def pairs(gaussians: Key, relation: Relation) -> list[Composition]:
    """The dominating pairs of all Gaussians, one composition for each direction of the relation.

    None at all where noise is so small that ratios of an epoch leave the range of doubles: moments bound those.
    """
    if any(rate > 1 and sigma < LEAST_SIGMA for (rate, sigma), _ in gaussians):
        return []
    directions: tuple[Direction, ...] = ("remove", "add") if relation == "add_remove" else ("replace",)
    return [[(_pair(*gaussian, direction), count) for gaussian, count in gaussians] for direction in directions]


def _pair(rate: float, sigma: float, direction: Direction) -> Pair:
    if rate > 1:
        return partial(discretised_epoch, int(rate), sigma, direction)
    return partial(discretise, rate, sigma, direction)
