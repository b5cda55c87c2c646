r"""The law of a number between the edges of noisy counts: log-linear on every part of its range, continuous over neighbours.

Given parts of lengths :math:`w_j` with noisy counts :math:`y_j` of std :math:`s_j`, and :math:`\theta_i` the log density at
their edges, a part is expected to hold

.. math:: m_j = w_j \, e^u \, \frac{e^{v - u} - 1}{v - u}, \qquad u = \theta_j, \; v = \theta_{j+1}.

`fitted` lowers, by Gauss-Newton steps of a banded system,

.. math:: \sum_j \frac{(y_j - m_j)^2}{s_j^2 + (.01 m_j)^2 + 1} + \sum_i (c_i / .5)^2 + \sum_i ((\theta_{i+1} - \theta_i) / 6)^2

with :math:`c_i` the change of slope at an inner edge times the harmonic mean of the lengths of both parts. Where counts say
little the density goes on as it was; where they say much it follows them. All of it is post-processing of released counts.

Source: penalised splines of histograms, in the manner of Eilers and Marx 1996.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.linalg import solveh_banded

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_CURVATURE, _SLOPE, _ROUGH = 0.5, 6.0, 0.01
_STEPS, _TRIES, _FAR = 60, 12, 1.0  # of Gauss-Newton, tries of one, and how far it moves a log density at most
_SURE, _LONGER, _THINNER, _FARTHEST = (
    3.0,
    4.0,
    np.log(8.0),
    np.log(1e12),
)  # noise stds, lengths, and log densities of neighbours
_FLAT = 1e-6  # difference of log densities below which a part is even
_ONE = 1.0 - 1e-12
_LITTLE = 0.9  # of a part: less is not cut off
_FINEST = 4096  # cells of one part in which digits are drawn exactly


class Grid(Protocol):
    """The grid that edges of a density are indices of."""

    def lengths(self, first: Integers, after: Integers) -> Reals:
        """Lengths (n,) from indices to later ones."""

    def between(self, first: Integers, after: Integers, share: Reals) -> Integers:
        """The index (n,) at a share (n,) in [0, 1) of the length from `first` to `after`, which is not reached."""


# -- a log-linear part -------------------------------------------------------------------------------------------------


def expected(lengths: Reals, left: Reals, right: Reals) -> Reals:
    """Masses (m,) of parts of log densities `left` and `right` at their ends; minus infinity: 0."""
    there = np.isfinite(left) & np.isfinite(right)
    high = np.where(there, np.maximum(left, right), 0.0)
    whole = np.exp(np.minimum(high + np.log(np.maximum(lengths, 5e-324)), 700.0))  # of the shortest parts exp(high) overflows
    return np.where(there, whole * _mean(-np.abs(_rise(left, right))), 0.0)


def _rise(left: Reals, right: Reals) -> Reals:
    """Differences of log densities, 0 where there is nothing."""
    there = np.isfinite(left) & np.isfinite(right)
    return np.where(there, np.where(there, right, 0.0) - np.where(there, left, 0.0), 0.0)


def _mean(d: Reals) -> Reals:
    """(exp(d) - 1) / d."""
    flat = np.abs(d) < 1e-4
    safe = np.where(flat, 1.0, d)
    return np.where(flat, 1.0 + d / 2.0, np.expm1(safe) / safe)


def _mean_slope(d: Reals) -> Reals:
    """Derivative of `_mean`."""
    flat = np.abs(d) < 1e-3
    safe = np.where(flat, 1.0, d)
    return np.where(flat, 0.5 + d / 3.0, (np.exp(safe) * (safe - 1.0) + 1.0) / safe**2)


def _place(share: Reals, rise: Reals) -> Reals:
    """Places in [0, 1] of parts below which these shares of their mass lie."""
    steep = np.maximum(np.abs(rise), _FLAT)
    rising = 1.0 + np.log(share + (1.0 - share) * np.exp(-steep)) / steep
    falling = -np.log1p(share * np.expm1(-steep)) / steep
    return np.clip(np.where(np.abs(rise) < _FLAT, share, np.where(rise > 0, rising, falling)), 0.0, 1.0)


def _below(place: Reals, rise: float) -> Reals:
    """Shares of the mass of a part below places in [0, 1], the inverse of `_place`."""
    if abs(rise) < _FLAT:
        return place
    if rise < 0:
        return np.asarray(np.expm1(rise * place) / np.expm1(rise))
    return np.asarray((np.exp(rise * (place - 1.0)) - np.exp(-rise)) / -np.expm1(-rise))


# -- a fit -------------------------------------------------------------------------------------------------------------


def fitted(lengths: Reals, counts: Reals, stds: Reals, ease: Reals) -> Reals:
    """Log density (m + 1,) at the edges of parts (m,), see the module.

    `ease` (m - 1,) multiplies how far the slope may change at each inner edge.
    """
    m, unit = len(lengths), float(lengths.max())
    w = np.maximum(lengths / unit, 1e-280)  # no product of lengths overflows
    start = np.log(np.maximum(counts, 0.5 * stds + 0.5) / w)
    theta = np.r_[start[0], (start[1:] + start[:-1]) / 2, start[-1]]
    bend = 2.0 / ((w[1:] + w[:-1]) * _CURVATURE * ease)
    three = bend * w[1:], -bend * (w[1:] + w[:-1]), bend * w[:-1]  # of the bends at inner edges
    weights, damping = np.ones(m), 1e-2

    def bends(theta: Reals) -> Reals:
        return three[0] * theta[:-2] + three[1] * theta[1:-1] + three[2] * theta[2:]

    def loss(theta: Reals) -> float:
        gaps = counts - expected(w, theta[:-1], theta[1:])
        return float((gaps**2 * weights).sum() + (bends(theta) ** 2).sum() + (np.diff(theta) ** 2).sum() / _SLOPE**2)

    for _ in range(_STEPS):
        d = np.diff(theta)
        whole = w * np.exp(theta[:-1])
        now, by_right = whole * _mean(d), whole * _mean_slope(d)
        by_left, weights = now - by_right, 1.0 / (stds**2 + (_ROUGH * now) ** 2 + 1.0)
        matrix, target = np.zeros((3, m + 1)), np.zeros(m + 1)
        matrix[0, :-1] += by_left**2 * weights + _SLOPE**-2
        matrix[0, 1:] += by_right**2 * weights + _SLOPE**-2
        matrix[1, :-1] += by_left * by_right * weights - _SLOPE**-2
        target[:-1] += by_left * weights * (counts - now) + d / _SLOPE**2
        target[1:] += by_right * weights * (counts - now) - d / _SLOPE**2
        for i in range(3):
            target[i : m - 1 + i] -= three[i] * bends(theta)
            for j in range(i, 3):
                matrix[j - i, i : m - 1 + i] += three[i] * three[j]
        was = loss(theta)
        for _ in range(_TRIES):
            damped = matrix.copy()
            damped[0] += damping * (matrix[0] + 1e-9)
            step = np.clip(solveh_banded(damped, target, lower=True), -_FAR, _FAR)
            if loss(theta + step) <= was:
                break
            damping *= 6
        else:
            break  # no step lowers it
        theta, damping = theta + step, max(damping / 4, 1e-9)
        if np.abs(step).max() < 1e-3:
            break
    return theta - np.log(unit)


def flat(lengths: Reals, counts: Reals, stds: Reals, left: Reals, right: Reals) -> tuple[Reals, Reals]:
    """Log densities (m,) at both ends of parts, even ones where those do not hold about what was counted.

    Lengths of neighbours can differ by 300 powers of ten: then no continuous density is near the counts.
    """
    far = np.abs(expected(lengths, left, right) - counts) > 10.0 * stds + 0.5 * np.abs(counts)
    even = np.log(np.maximum(counts, 0.5 * stds)) - np.log(lengths)
    return np.where(far, even, left), np.where(far, even, right)


def beside(lengths: Reals, counts: Reals, stds: Reals, left: Reals, right: Reals) -> tuple[Reals, Reals]:
    """This density, where long parts that hold little fall exponentially from the edge of a dense neighbour.

    A part from 0 to 1990 that 93 of 300 years are in holds the nineteen-eighties. No smooth density falls so fast.
    """
    even = np.log(np.maximum(counts, 0.5 * stds)) - np.log(lengths)
    ends, sure = (left.copy(), right.copy()), counts > _SURE * stds
    for j in range(len(lengths)):
        sides = [(i, way) for i, way in ((j - 1, 0), (j + 1, 1)) if 0 <= i < len(lengths)]
        levels = [
            (float((left if way else right)[i]), way) for i, way in sides if sure[i] and lengths[j] / _LONGER > lengths[i]
        ]
        level, way = max(levels, default=(-np.inf, 0))
        if not _THINNER < level - even[j] < _FARTHEST:
            continue
        fall = times = float(np.exp(level - even[j]))
        for _ in range(3):
            fall = -times * float(np.expm1(-fall))
        ends[way][j], ends[1 - way][j] = level, level - fall
    return ends


# -- a density ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Digits:
    """Weights of values by their place in a period: how much more frequent they are than their neighbours.

    `weights` (cells,), of mean 1, are of equal parts of `period` grid points, of which index -`offset` begins one. They are
    products of weights of `rows` equal parts of the period, as days of a week, and of places in such a part.

    >>> tens = Digits(10, 0, np.array([5.0, *[0.0] * 4, 5.0, *[0.0] * 4]))
    >>> tens.weights[tens.cells(np.array([0, 3, 15])) % 10].tolist()
    [5.0, 0.0, 5.0]
    """

    period: int
    offset: int
    weights: Reals
    rows: int = 1

    @property
    def sides(self) -> tuple[int, ...]:
        """Numbers of weights that the weights of cells are products of."""
        return tuple(side for side in (self.rows, len(self.weights) // self.rows) if side > 1)

    def cells(self, index: Integers) -> Integers:
        """Numbers of the cells that indices are in, counted on from one period to the next."""
        whole, part = np.divmod(index + self.offset, self.period)
        return np.asarray(whole * len(self.weights) + part * len(self.weights) // self.period)

    def first(self, cell: Integers) -> Integers:
        """The first index of each cell."""
        whole, part = np.divmod(cell, len(self.weights))
        return np.asarray(whole * self.period - (-part * self.period // len(self.weights)) - self.offset)

    def of(self, cells: Integers) -> Reals:
        """Weights of cells."""
        return np.asarray(self.weights[cells % len(self.weights)])

    def shares(self, starts: Integers) -> Reals:
        """Share of the indices of each part (m, cells) that are in each cell of a period, of parts with edges (m + 1,)."""
        first = self.first(np.arange(len(self.weights) + 1)) + self.offset
        whole, part = np.divmod(starts + self.offset, self.period)
        inside = np.clip(part[:, None] - first[:-1], 0, np.diff(first))
        turns, rest = np.diff(whole), np.diff(inside, axis=0)
        found = turns[:, None] * np.diff(first).astype(np.float64) + rest
        return np.asarray(found / np.maximum(found.sum(1, keepdims=True), 1.0))


@dataclass(frozen=True, eq=False)
class Density:
    """A density of the indices of a grid, log-linear in length on each part.

    `edges` (m + 1,) are where parts begin, and the end; `left` and `right` (m,) the logarithm of the mass for each unit of
    length at both ends of each part, minus infinity where it is empty. A part of one index is a single value.
    """

    edges: Integers
    left: Reals
    right: Reals
    grid: Grid
    digits: Digits | None = None

    @cached_property
    def lengths(self) -> Reals:
        """Lengths (m,) of the parts."""
        return self.grid.lengths(self.edges[:-1], self.edges[1:])

    @cached_property
    def masses(self) -> Reals:
        """Expected number of values in each part (m,)."""
        return expected(self.lengths, self.left, self.right)

    @cached_property
    def _ends(self) -> Reals:
        return np.r_[0.0, self.masses.cumsum()]

    @cached_property
    def _rises(self) -> Reals:
        return _rise(self.left, self.right)

    def between(self, starts: Integers) -> Reals:
        """Masses (k,) between indices (k + 1,) at which parts begin."""
        return np.asarray(np.diff(self._ends[np.searchsorted(self.edges, starts)]))

    def quantiles(self, first: Integers, after: Integers, share: Reals) -> Integers:
        """Indices (n,) at shares (n,) in [0, 1) of the mass between indices `first` and `after`, at which parts begin."""
        begin, end = (np.searchsorted(self.edges, index) for index in (first, after))
        low, high = self._ends[begin], self._ends[end]
        wanted = low + share * (high - low)
        part = np.clip(np.searchsorted(self._ends, wanted, side="right") - 1, begin, end - 1)
        mass = self.masses[part]
        rest = np.clip((wanted - self._ends[part]) / np.where(mass > 0, mass, 1.0), 0.0, _ONE)
        place = np.clip(_place(rest, self._rises[part]), 0.0, _ONE)
        found = self.grid.between(self.edges[part], self.edges[part + 1], place)
        if self.digits is not None:
            found = self._with_digits(self.digits, part, rest, place, found)
        return np.where(high > low, found, self.grid.between(first, after, np.clip(share, 0.0, _ONE)))

    def trimmed(self, way: int, rows: float) -> Density:
        """This density without the end of its last (`way` 1) or first part, where it falls and fewer rows are expected."""
        at = -1 if way > 0 else 0
        first, after, mass, rise = *self.edges[[-2, -1] if way > 0 else [0, 1]], self.masses[at], self._rises[at] * way
        if int(after) - int(first) == 1 or mass <= 2 * rows or rise >= 0:
            return self
        place = float(_place(np.array([1.0 - rows / mass]), np.array([rise]))[0])
        if place > _LITTLE:
            return self
        edges, ends = self.edges.copy(), (self.left.copy(), self.right.copy())
        cut = int(self.grid.between(first[None], after[None], np.array([place if way > 0 else 1.0 - place]))[0])
        edges[at] = cut + 1 if way > 0 else cut
        ends[way > 0][at] = (self.left if way > 0 else self.right)[at] + rise * place
        return replace(self, edges=edges, left=ends[0], right=ends[1])

    def _with_digits(self, digits: Digits, part: Integers, rest: Reals, place: Reals, found: Integers) -> Integers:
        """Indices of the density times the weights of digits: exactly in small parts, period by period in others."""
        result = found.copy()
        for number in np.unique(part):
            own, (first, after) = np.flatnonzero(part == number), self.edges[number : number + 2]
            low, high = digits.cells(np.array([first, after - 1]))
            if after - first == 1:
                continue
            if high - low < _FINEST:
                edges = np.clip(digits.first(np.arange(low, high + 2)), first, after)
                ends = self.grid.lengths(np.full(len(edges), first), edges) / self.lengths[number]
                even = np.diff(_below(ends, float(self._rises[number])))
                weights = even * digits.of(np.arange(low, high + 1))
                cell, inner = _drawn(weights if weights.sum() > 0 else even, rest[own])
                result[own] = self.grid.between(edges[cell], edges[cell + 1], inner)
            else:
                start = (first + digits.offset) % digits.period
                whole, inner = np.divmod((start + place[own] * float(after - first)) / digits.period, 1.0)
                cell, inner = _drawn(digits.weights, inner)
                begin = (first - start + digits.offset) // digits.period * len(digits.weights)
                cell = begin + whole.astype(np.int64) * len(digits.weights) + cell
                drawn = self.grid.between(digits.first(cell), digits.first(cell + 1), inner)
                result[own] = np.clip(drawn, first, after - 1)
        return result

    # -- files ---------------------------------------------------------------------------------------------------------

    def heights(self) -> list[list[float | None]]:
        """Log densities at both ends of each part, None where it is empty."""
        pairs = zip(self.left.tolist(), self.right.tolist())
        return [[round(x, 3) if np.isfinite(x) else None for x in pair] for pair in pairs]


def logs_of(heights: Any) -> tuple[Reals, Reals]:
    """The inverse of `Density.heights`."""
    logs = np.array([[-np.inf if x is None else x for x in pair] for pair in heights], np.float64).reshape(-1, 2)
    return logs[:, 0], logs[:, 1]


def digits_of(given: Mapping[str, Any]) -> Digits:
    """The digits that a schema describes."""
    return Digits(int(given["period"]), int(given["offset"]), np.array(given["weights"], np.float64))


def _drawn(weights: Reals, share: Reals) -> tuple[Integers, Reals]:
    """Cells (n,) at shares (n,) of weights (k,), and how far into each cell, in [0, 1)."""
    ends = np.r_[0.0, weights.cumsum()] / weights.sum()
    cell = np.clip(np.searchsorted(ends, share, side="right") - 1, 0, len(weights) - 1)
    inner = (share - ends[cell]) / np.where(weights[cell] > 0, ends[cell + 1] - ends[cell], 1.0)
    return cell, np.clip(inner, 0.0, _ONE)
