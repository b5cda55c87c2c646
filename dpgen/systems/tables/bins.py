"""Bins of a number by noisy counts: its values in whole units, and parts of its range that are cut where they are heavy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from dpgen.privacy.exact_sums import BoundedSum, totals
from dpgen.systems.tables.forms import DAY, TOLD
from dpgen.values import LARGEST, as_numbers, times

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


MOST_BINS = 48
"""Bins of a number beside its frequent values, at most."""
SEEN = 3.5
"""Noise stds of a part that is looked into."""
_FAN = 64
_FROM, _UNTIL = -62_091, 106_751  # 1800 and 2262, in days since 1970
_SCALE_OF_DAYS = 41

# -- numbers as whole units --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """Numbers of a column as whole multiples of a step; without one as they are, until `fixed` chooses it.

    Arguments:
        step: in values, or in seconds of dates.
        kind: type of the column.
    """

    step: Decimal | None
    kind: str

    def read(self, values: pd.Series) -> npt.NDArray[Any]:
        """The values that are there, each by itself: int64 units, or float64 values."""
        present = values[values.notna()]
        x = times(present) if self.dates else as_numbers(present)
        x = x[~np.isnan(x)] if x.dtype.kind == "f" else x
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
        scaled = x / float(step) if step >= 1 else x * float(1 / step)
        return np.rint(np.clip(scaled, -float(LARGEST), float(LARGEST))).astype(np.int64)
    return x if step == 1 else np.floor_divide(x + int(step) // 2, int(step))


# -- bins --------------------------------------------------------------------------------------------------------------


@dataclass
class Leaves:
    """Parts of the range of a number with noisy counts, from the lowest to the highest; frequent values are parts of their own.

    Arguments:
        starts: first unit of each part, and the end (k + 1,).
        alone: which parts are a frequent value (k,).
        counts: noisy counts (k,).
        variances: of the noise (k,); infinite where nothing is known yet.
        weights: counts by which the next split is chosen (k,).
    """

    starts: Integers
    alone: Flags
    counts: Reals
    variances: Reals
    weights: Reals
    fresh: bool = True
    below: float = 0.0
    above: float = 0.0
    outer_variance: float = np.inf
    parents: list[tuple[int, int, float, float]] = field(default_factory=list)

    @classmethod
    def of(cls, edges: Integers, inside: Reals, values: Integers, spikes: Reals, std: float | Reals) -> Leaves:
        edges, first = np.unique(edges, return_index=True)  # cells finer than the step are one
        if len(edges) == 1:
            edges, inside = np.append(edges, edges + 1), inside.sum(keepdims=True)
        else:
            inside = np.add.reduceat(inside, first[:-1])
        starts = np.unique(np.concatenate([edges, values, values + 1]))
        alone = np.isin(starts[:-1], values)
        cell = np.searchsorted(edges, starts[:-1], side="right") - 1
        known = (cell >= 0) & (cell < len(inside)) & ~alone
        width = np.diff(starts).astype(np.float64)
        weights = np.zeros(len(alone))
        weights[known] = inside[cell[known]] * width[known] / np.diff(edges)[cell[known]]
        counts, variances = np.zeros(len(alone)), np.full(len(alone), np.inf)
        counts[alone], variances[alone] = spikes, std**2
        return cls(starts, alone, counts, variances, weights)

    def split(self, least: float) -> None:
        """Cut parts of twice this weight or more into pieces of about this weight, at most 64, or into single units."""
        width = np.diff(self.starts)
        heavy = (self.weights >= 2 * least) & (width > 1) & ~self.alone
        pieces = np.where(heavy, np.minimum(width, np.clip(self.weights / least, 2, _FAN).astype(np.int64)), 1)
        self.fresh = bool(heavy.any()) or bool(np.isinf(self.variances[~self.alone]).any())
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

    @property
    def outer_std(self) -> float:
        """Noise std of the numbers of rows below and above."""
        return float(self.outer_variance**0.5)

    def bins(self, total: float, limits: tuple[Any, Any]) -> tuple[Integers, Reals, Reals]:
        """Starts (m + 1,) of bins of about equal counts, noisy counts, noise stds (m,); rows outside are in the outer ones."""
        first, last = self._trim(range(len(self.alone))), len(self.alone) - self._trim(range(len(self.alone) - 1, -1, -1))
        apart = np.zeros(len(self.alone), bool)
        if first < last:  # a public range keeps the parts that hold no more than noise, without it and each by itself
            if limits[0] is not None:
                self.counts[:first], apart[:first], first = 0.0, True, 0
            if limits[1] is not None:
                self.counts[last:], apart[last:], last = 0.0, True, len(self.alone)
        if first >= last:
            first, last = 0, len(self.alone)
        self.below += float(self.counts[:first].sum())
        self.above += float(self.counts[last:].sum())
        self.starts = self.starts[first : last + 1]
        keep = slice(first, last)
        counts, variances, alone = self.counts[keep], self.variances[keep], self.alone[keep]
        groups, sums = self._grouped(counts, variances, alone | apart[keep], max(total, 1.0) / 32)
        edges = np.array([*groups, len(counts)], np.int64)
        variances = np.add.reduceat(variances, edges[:-1])
        for end, limit, outer in ((0, limits[0], self.below), (-1, limits[1], self.above)):
            if limit is None or outer > TOLD * self.outer_std:  # noise alone is nobody outside of a public range
                sums[end] += outer
                variances[end] += self.outer_variance
        return self.starts[edges], sums, np.sqrt(variances)

    def _trim(self, order: range) -> int:
        """How many of the outer parts hold no more than noise together."""
        total = variance = 0.0
        found = 0
        for place, i in enumerate(order):
            total, variance = total + self.counts[i], variance + self.variances[i]
            if self.alone[i] or total > TOLD * variance**0.5:
                break
            found = place + 1
        return found

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

    Arguments:
        values: one of a row at most: an array, or a source of arrays, see `totals`.
        place: cells (m,) of values (m,), each by itself.
        size: number of cells.

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
