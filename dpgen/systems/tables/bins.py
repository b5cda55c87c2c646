"""What is bought of a number: its step, and bins, cut where noisy counts are heavy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from dpgen.forms import DAY, LARGEST, LEAST, REPRESENTED, TOLD, read
from dpgen.privacy.exact_sums import BoundedSum, totals

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

ROUNDINGS = tuple(Decimal(1).scaleb(k) for k in range(3, -7, -1))
_WHOLE = sum(step >= 1 for step in ROUNDINGS)
_CLOCK = (86_400, 3_600, 60, 1)

# -- steps -------------------------------------------------------------------------------------------------------------


def steps(values: pd.Series, kind: str, format: str = "") -> Integers:
    """The place of the largest step in `steps_of` of which each number or time of a column (m,) is a multiple."""
    x = read(values, kind, format)[1]
    if kind == "datetime":
        held = [x % step == 0 for step in _CLOCK]
    elif x.dtype.kind == "i":
        held = [x % int(step) == 0 for step in ROUNDINGS[:_WHOLE]]
    else:
        size = np.minimum(np.abs(x), 2.0**60)  # no product overflows
        scaled = [size / float(step) if step >= 1 else size * float(1 / step) for step in ROUNDINGS]
        held = [(np.abs(s - np.rint(s)) <= 1e-9 * np.maximum(s, 1.0)) & (s < 2**50) for s in scaled]
        held.append(np.ones(len(x), bool))
    return np.argmax(held, axis=0).astype(np.int64) if len(x) else np.zeros(0, np.int64)


def steps_of(kind: str) -> tuple[Decimal | None, ...]:
    """Steps of numbers, or of times in seconds, from the largest one on; None: they are not rounded."""
    if kind == "datetime":
        return tuple(map(Decimal, _CLOCK))
    return ROUNDINGS[:_WHOLE] if kind in ("integer", "year") else (*ROUNDINGS, None)


def finest(counts: Reals, std: float, kind: str) -> Decimal | None:
    """The finest step that more than noise and one of 100 values need; where noise hides all, that of most columns."""
    among = steps_of(kind)
    seen = np.flatnonzero(counts > max(TOLD * std, LEAST * counts.sum()))
    return among[int(seen[-1])] if len(seen) else among[0] if kind == "datetime" else among[-1]


# -- numbers as whole units --------------------------------------------------------------------------------------------


MOST_BINS = 48
"""Bins of a number beside its frequent values, at most."""
SEEN = 3.5
"""Noise stds of a part that is looked into."""
BEYOND = 6
"""Cells of the scale beyond the outermost one that is seen, in which a tail is looked for."""
_VISIBLE = 2.0  # noise stds of a tail as a whole
_ROUGH = 0.01  # variance of a logarithm of a count about the parabola of a tail
_OF_TAIL = 5  # seen cells of the scale that a tail continues, three at least
_FAN = 64
_FROM, _UNTIL = -62_091, 106_751  # 1800 and 2262, in days since 1970
_SCALE_OF_DAYS = 41


@dataclass(frozen=True)
class Grid:
    """Numbers of a column of type `kind` as whole multiples of a step in values, or in seconds of dates.

    None until `fixed` chooses it.
    """

    step: Decimal | None
    kind: str
    format: str = ""

    def read(self, values: pd.Series) -> npt.NDArray[Any]:
        """The values that are there, each by itself: int64 units, or float64 values."""
        x = read(values, self.kind, self.format)[1]
        if x.dtype.kind == "i":
            x = np.clip(x, -LARGEST, LARGEST)
        if self.step is None:
            return np.clip(x, -(2.0**63), 2.0**63) + 0.0
        return _in_units(x, self.step)

    @property
    def dates(self) -> bool:
        """Whether values are dates or times."""
        return self.kind in ("date", "datetime")

    def scale(self, limits: tuple[Any, Any]) -> npt.NDArray[Any]:
        """Public edges of the first histogram: powers of two of either sign, or 41 days, inside of public limits."""
        edges: Any
        if self.dates:
            assert self.step is not None
            edges = np.arange(_FROM, _UNTIL + _SCALE_OF_DAYS, _SCALE_OF_DAYS) * (DAY // int(self.step))
            edges = np.minimum(edges, REPRESENTED[1] // int(self.step) + 1)
        elif self.step is None:
            powers = 2.0 ** np.arange(-30, 65)
            edges = np.concatenate([-powers[::-1], powers])
        else:
            whole = 2 ** np.arange(0, 60, dtype=np.int64)
            edges = np.concatenate([1 - whole[::-1], whole])
        low, high = (None if bound is None else self.unit(bound) for bound in limits)
        if low is not None:
            edges = np.unique(np.append(edges[edges > low], low))
        if high is not None:
            after = high + 1 if self.step is not None else np.nextafter(high, np.inf)
            edges = np.unique(np.append(edges[edges < after], after))
        return edges

    def around(self, first: int, last: int, edges: npt.NDArray[Any]) -> Integers:
        """Numbers of the edges of the cells from `first` to `last`, of which values are seen, and of those around them.

        Numbers have six more cells on either side that leads away from 0, dates 1, 2, 4, ... cells as one: there a light tail
        is seen.
        """
        if self.dates:
            beside = 2 ** np.arange(1, BEYOND + 1) - 1
            below, above = first - beside[::-1], last + 1 + beside
            inner = np.arange(first, last + 2)
            return np.concatenate([below[below >= 0], inner, above[above < len(edges)]])
        first = max(0, first - BEYOND) if edges[first + 1] <= 0 else first
        last = min(len(edges) - 2, last + BEYOND) if edges[last] > 0 else last
        return np.arange(first, last + 2)

    def unit(self, value: Any) -> Any:
        """Where a public value lies on the grid."""
        if self.step is None:
            return float(value)
        return int((Decimal(str(value)) / self.step).to_integral_value())

    def fixed(self, edges: npt.NDArray[Any], values: npt.NDArray[Any]) -> tuple[Grid, Integers, Integers]:
        """A grid with a step, edges and frequent values in its units; a step that is not known follows from the edges."""
        if self.step is not None:
            return self, edges.astype(np.int64), values.astype(np.int64)
        largest = max(float(np.abs(edges).max()), *np.abs(values), 2.0**-30)
        digits = np.floor(np.log10(largest)) - 7
        if edges[0] > 0 or edges[-1] < 0:
            digits = min(digits, np.floor(np.log10(np.abs(edges).min())) - 2)
        step = Decimal(1).scaleb(int(max(digits, np.ceil(np.log10(largest)) - 14, -12)))
        whole = np.floor(edges / float(step)) * float(step)
        return replace(self, step=step), _in_units(whole, step), _in_units(values, step)

    def label(self, unit: int) -> Any:
        """The value of a unit as a schema writes it."""
        assert self.step is not None
        value = int(unit) * self.step
        if self.dates:
            stamp = np.datetime64(int(value), "s")
            return str(stamp.astype("datetime64[D]")) if self.kind == "date" else str(stamp)
        if self.kind in ("integer", "year") or value == value.to_integral_value():
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)


def _in_units(x: npt.NDArray[Any], step: Decimal) -> Integers:
    """Numbers as the nearest multiples of the step."""
    if x.dtype.kind == "f":
        with np.errstate(over="ignore"):  # a warning would tell of the records
            scaled = x / float(step) if step >= 1 else x * float(1 / step)
        return np.rint(np.clip(scaled, -float(LARGEST), float(LARGEST))).astype(np.int64)
    return x if step == 1 else np.floor_divide(x + int(step) // 2, int(step))


# -- bins --------------------------------------------------------------------------------------------------------------


@dataclass
class Leaves:
    """Parts of the range of a number with noisy counts, from the lowest to the highest; frequent values are parts of their own.

    `scale` has the edges of the cells that were looked at first, powers of two, none of dates; `core` is where the outermost
    cells of numbers and frequent values begin and end that were seen.
    """

    starts: Integers  # first unit of each part, and the end (k + 1,)
    alone: Flags  # which parts are a frequent value (k,)
    counts: Reals  # noisy, (k,)
    variances: Reals  # of the noise (k,), infinite where nothing is known yet
    weights: Reals  # counts by which the next split is chosen (k,)
    scale: Integers
    core: tuple[int, int]
    fresh: bool = True
    below: float = 0.0
    above: float = 0.0
    outer_variance: float = np.inf
    outer_stds: tuple[float, float] = (np.inf, np.inf)
    parents: list[tuple[int, int, float, float]] = field(default_factory=list)

    @classmethod
    def of(cls, edges: Integers, cells: tuple[Reals, Reals], spikes: tuple[Integers, Reals, Reals], *, tails: bool) -> Leaves:
        """Cells of the scale, their noisy counts and variances, cut by frequent values, with theirs."""
        values, sums, stds = spikes
        edges, first = np.unique(edges, return_index=True)  # cells finer than the step are one
        inside, variance = cells
        if len(edges) == 1:
            edges, first = np.append(edges, edges + 1), np.array([0, len(inside)])
        inside, variance = (np.add.reduceat(x, first[:-1]) for x in (inside, variance))
        heavy = np.where(inside > SEEN * variance**0.5, inside, 0.0)
        starts = np.unique(np.concatenate([edges, values, values + 1]))
        alone = np.isin(starts[:-1], values)
        cell = np.searchsorted(edges, starts[:-1], side="right") - 1
        known = (cell >= 0) & (cell < len(inside)) & ~alone
        width = np.diff(starts).astype(np.float64)
        weights = np.zeros(len(alone))
        weights[known] = heavy[cell[known]] * width[known] / np.diff(edges)[cell[known]]
        whole = known & np.isin(starts[:-1], edges) & np.isin(starts[1:], edges)
        counts, variances = np.zeros(len(alone)), np.full(len(alone), np.inf)
        counts[whole], variances[whole] = inside[cell[whole]], variance[cell[whole]]
        counts[alone], variances[alone] = sums, stds**2
        seen = np.flatnonzero(heavy)
        held = [*edges[seen[:1]], *edges[seen[-1:] + 1], *values, *(values + 1)] or edges
        core = (int(min(held)), int(max(held))) if tails else (int(starts[0]), int(starts[-1]))
        return cls(starts, alone, counts, variances, weights, edges if tails else edges[:0], core)

    def split(self, least: float) -> None:
        """Cut parts of twice this weight or more into pieces of about this weight, at most 64, or into single units."""
        width = np.diff(self.starts)
        heavy = (self.weights >= 2 * least) & (width > 1) & ~self.alone
        pieces = np.where(heavy, np.minimum(width, np.clip(self.weights / least, 2, _FAN).astype(np.int64)), 1)
        self.fresh = bool(heavy.any()) or bool(np.isinf(self.outer_variance))
        starts: list[int] = []
        self.parents = []
        for i, count in enumerate(pieces):
            if count > 1 and np.isfinite(self.variances[i]):
                self.parents.append((len(starts), len(starts) + int(count), self.counts[i], self.variances[i]))
            starts += [int(self.starts[i]) + j * int(width[i]) // int(count) for j in range(int(count))]
        of = np.repeat(np.arange(len(pieces)), pieces)
        self.starts = np.array([*starts, int(self.starts[-1])], np.int64)
        self.alone = self.alone[of]
        self.counts = np.where(heavy[of], 0.0, self.counts[of])
        self.variances = np.where(heavy[of], np.inf, self.variances[of])

    def histogram(self, units: Any) -> BoundedSum:
        """How many units are in each part, and below and above all of them."""
        return cells(units, partial(places, self.starts), len(self.starts) + 1)

    def add(self, noisy: Reals, std: float) -> None:
        """Take new counts of all parts into account."""
        fresh = np.full(len(self.alone), std**2)
        for first, after, count, variance in self.parents:
            own = noisy[1 + first : 1 + after]
            own += (count - own.sum()) * std**2 / (variance + (after - first) * std**2)
        known = np.isfinite(self.variances)
        weight = np.where(known, 1 / np.where(known, self.variances, 1.0), 0.0)
        self.counts = (self.counts * weight + noisy[1:-1] / fresh) / (weight + 1 / fresh)
        self.variances = 1 / (weight + 1 / fresh)
        outer = 0.0 if np.isinf(self.outer_variance) else 1 / self.outer_variance
        self.below, self.above = (
            (old * outer + float(new) / std**2) / (outer + 1 / std**2)
            for old, new in ((self.below, noisy[0]), (self.above, noisy[-1]))
        )
        self.outer_variance = 1 / (outer + 1 / std**2)
        self.weights = np.where(self.counts > SEEN * np.sqrt(self.variances), self.counts, 0.0)

    def bins(self, total: float, limits: tuple[Any, Any]) -> tuple[Integers, Reals, Reals]:
        """Starts (m + 1,) of bins of about equal counts, noisy counts, noise stds (m,); rows outside are in the outer ones."""
        size, (lower, upper) = len(self.alone), np.searchsorted(self.starts, self.core).tolist()
        lower, upper = 0 if limits[0] is not None else lower, size if limits[1] is not None else upper
        first, last = max(lower, self._trim(np.arange(size))), min(upper, size - self._trim(np.arange(size)[::-1]))
        apart, ahead, behind = np.zeros(size, bool), np.zeros(0), np.zeros(0)
        if first < last:  # what holds no more than noise is a tail, or out; nobody is in it, where a public range keeps it
            (last, ahead), (first, behind) = self._tail(last, 1), self._tail(first, -1)
            lower = 0 if limits[0] is not None else first - len(behind)
            upper = size if limits[1] is not None else last + len(ahead)
            self.below, self.above = self.below + self.counts[:lower].sum(), self.above + self.counts[upper:].sum()
            self.counts[:first] = self.counts[last:] = 0.0
            self.counts[last : last + len(ahead)], self.counts[first - len(behind) : first] = ahead, behind[::-1]
            apart[:first] = apart[last:] = True
        low, high = ((self.outer_variance + self.variances[own].sum()) ** 0.5 for own in (slice(lower), slice(upper, None)))
        self.outer_stds, first, last = (float(low), float(high)), lower, upper
        self.starts = self.starts[first : last + 1]
        keep = slice(first, last)
        counts, variances, alone = self.counts[keep], self.variances[keep], self.alone[keep]
        groups, sums = self._grouped(counts, variances, alone | apart[keep], max(total, 1.0) / 32)
        edges = np.array([*groups, len(counts)], np.int64)
        variances = np.add.reduceat(variances, edges[:-1])
        ends = (limits[0], behind, self.below, low), (limits[1], ahead, self.above, high)
        for end, (limit, tail, outer, std) in zip((0, -1), ends):  # noise alone is nobody outside of a public range or a tail
            if (limit is None and not len(tail)) or outer > TOLD * std:
                sums[end] += outer
                variances[end] += std**2
        return self.starts[edges], sums, np.sqrt(variances)

    def _trim(self, order: Integers) -> int:
        """How many of the outer parts hold no more than noise.

        From the first part that holds more on, 1, 2, 4, ... parts together are asked whether they do: a light tail is seen
        in wide parts alone, and many empty ones beyond it must not hide it.
        """
        counts, variances, alone = self.counts[order], self.variances[order], self.alone[order]
        seen = np.flatnonzero(alone | (counts > SEEN * np.sqrt(variances)))
        together = np.flatnonzero(np.cumsum(counts) > SEEN * np.sqrt(np.cumsum(variances)))
        first = int(next(iter([*seen[:1], *together[:1]]), len(counts)))
        wide = 1
        while wide <= first < len(counts):
            beside = slice(first - wide, first)
            if counts[beside].sum() > SEEN * variances[beside].sum() ** 0.5:
                first, wide = first - wide, 1
            else:
                wide *= 2
        return first

    def _tail(self, end: int, way: int) -> tuple[int, Reals]:
        r"""Where a tail begins, up or down from the part `end`, and the counts of its parts; none where noise hides it.

        A parabola through the logarithms of the outermost seen counts of the scale, which never bends upwards (a line is
        the tail of a Pareto law), says how the counts f go on. They are multiplied by what is measured of them,
        :math:`\sum f y / \sum f^2`, and there is a tail where f, and what is measured, exceed the noise.
        """
        none = end, np.zeros(0)
        edges = self.scale[::way]
        at = int((way * (edges - self.starts[end]) < 0).sum())
        inside, beyond = edges[max(0, at - _OF_TAIL) : at + 1], edges[at:]
        if len(beyond) < 2:
            return none
        counts, variances = self._between(inside)
        unseen = np.flatnonzero(counts <= SEEN * variances**0.5)
        kept = slice(int(unseen[-1]) + 1 if len(unseen) else 0, None)
        counts, variances = counts[kept], variances[kept]
        if len(counts) < 3:
            return none
        x, weight = np.arange(1.0 - len(counts), 1.0), (variances / counts**2 + _ROUGH) ** -0.5
        law = np.polyfit(x, np.log(counts), 2, w=weight)
        if law[0] > 0:
            law = np.polyfit(x, np.log(counts), 1, w=weight)
        f = np.exp(np.minimum(np.polyval(law, np.arange(1.0, len(beyond))), np.log(counts[-1])))
        measured, noise = self._between(beyond)
        fits, size = (f**2 / noise).sum(), (f * measured / noise).sum()
        if fits < _VISIBLE**2 or size < _VISIBLE * fits**0.5:
            return none
        f *= size / fits
        f = f[f[::-1].cumsum()[::-1] >= 1.0]
        begin = int(np.searchsorted(self.starts, beyond[0]))
        if np.any(np.diff(np.searchsorted(self.starts, beyond[: len(f) + 1])) != way):
            return none  # of parts that were cut, or hold a frequent value, more is known
        return begin, f

    def _between(self, edges: Integers) -> tuple[Reals, Reals]:
        """Counts between edges, in this order, and variances of their noise."""
        parts = np.searchsorted(self.starts, edges)
        held = [slice(min(ends), max(ends)) for ends in pairwise(parts)]
        counts, variances = ([float(x[own].sum()) for own in held] for x in (self.counts, self.variances))
        return np.array(counts), np.array(variances)

    def _grouped(self, counts: Reals, variances: Reals, alone: Flags, least: float) -> tuple[list[int], Reals]:
        """First part of each bin, and its count: neighbours are joined until their count is seen and large enough."""
        seen, width = counts > SEEN * np.sqrt(variances), np.diff(self.starts)
        groups: list[int] = []
        closed, total, variance = True, 0.0, 0.0
        for i in range(len(counts)):
            rises = i > 0 and seen[i] and not seen[i - 1] and width[groups[-1] : i].sum() > width[i]
            falls = i > 0 and seen[i - 1] and not seen[i] and total > SEEN * variance**0.5
            if closed or alone[i] or alone[i - 1] or rises or falls:
                groups.append(i)
                total = variance = 0.0
            total, variance = total + counts[i], variance + variances[i]
            closed = bool(total >= least and total > SEEN * variance**0.5)
        sums = np.add.reduceat(counts, groups)
        while len(groups) - int(alone.sum()) > MOST_BINS:
            free = [j for j in range(1, len(groups)) if not alone[groups[j]] and not alone[groups[j - 1]]]
            if not free:
                break
            j = min(free, key=lambda j: sums[j] + sums[j - 1])
            sums[j - 1] += sums[j]
            sums, groups = np.delete(sums, j), [*groups[:j], *groups[j + 1 :]]
        return groups, sums


def cells(values: Any, place: Callable[[npt.NDArray[Any]], Integers], size: int) -> BoundedSum:
    """How many values are in each of the cells; one outside of [0, size) is in none: one row moves one cell by 1.

    `values` are one of a row at most, an array or a source of arrays (`totals`); `place` gives cells (m,) of values (m,), each
    by itself.

    >>> cells(np.array([1, 3, 3, 8]), lambda values: values - 1, 3).values.tolist()
    [1, 0, 2]
    """
    counts = totals(values, partial(_counted, place=place, size=size))
    return BoundedSum(counts, 1.0, replaced=2.0**0.5)


def places(edges: npt.NDArray[Any], values: npt.NDArray[Any]) -> Integers:
    """How many of the sorted edges are at or below each of the values (m,)."""
    return np.searchsorted(edges, values, side="right").astype(np.int64)


def _counted(batches: Iterable[npt.NDArray[Any]], place: Callable[[npt.NDArray[Any]], Integers], size: int) -> torch.Tensor:
    counts = np.zeros(size, np.int64)
    for values in batches:
        found = place(values)
        counts += np.bincount(found[(found >= 0) & (found < size)], minlength=size)
    return torch.from_numpy(counts)
