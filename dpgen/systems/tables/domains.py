r"""Domains that are bought of one column: of a number, and of texts of which few values are frequent.

**A number** has a range, frequent values, and counts of parts through which a density is fitted. Values are whole units of an
axis (`dpgen.columns.axes`). One row is in one cell of every histogram here, so it moves one count by 1:

| histogram | cells |
|---|---|
| frequent values | the values whose noisy count passes a threshold, see `FrequentCounts`: each is a part of its own |
| scale | public ones: floats of each sign and binary exponent, powers of two, 41 days |
| places | a part that holds most rows is cut, as often as one does |
| digits | the place of values in a public period: last digits, the time of the day, the day of the week, one histogram each |
| parts | about equal counts inside of what was seen, lengths that double outside; gaps are a cell, too |

What is seen: parts whose counts pass a level that noise passes in one of 1,000 fits, all parts of all columns together; beside
seen parts that of a few tests suffices. `dpgen.systems.tables.densities` makes a density of it.

**Texts** may repeat, and have patterns (`dpgen.columns.writings.codes`), whose first characters are counted. One row has one
value, one pattern and one cell of first characters at most:

| part | what is released | one row moves it by |
|---|---|---|
| patterns | patterns of texts without a name whose noisy count passes a threshold, see `FrequentCounts` | 1 in one count |
| repeated values | how many rows there are beyond one for each value | 1 |
| first characters | how many texts without a name begin so, of each pattern: with up to three, with one | 1 in one cell |

A row more adds 1 to the rows, and 1 or nothing to the values that occur: their difference moves by 0 or 1. A row that is
replaced moves the number of values by 1 at most, and no rows. Texts that repeat are categories: frequent values, then first
characters, then patterns that hold more than noise. Those that do not are keys, where they have one pattern, else they are left
out.

All of it depends on released counts and on the row alone.

Source: adaptive histograms of dyadic counts, Qardaji, Yang, Li 2013; the threshold, see `FrequentCounts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.stats import norm

from dpgen.columns.axes import Axis
from dpgen.columns.density import Digits, Integers, Reals
from dpgen.columns.forms import TOLD, texts_of
from dpgen.columns.writings.codes import Pattern, pattern_of, prefixes, root_of, trailing
from dpgen.privacy.exact_sums import BoundedSum, totals

if TYPE_CHECKING:
    from dpgen.data.raw_tables import AnyRows as Rows
    from dpgen.privacy.curator import GaussianBudget


Flags = npt.NDArray[np.bool_]
Texts = npt.NDArray[Any]

NAMES, SCALE, DIGITS, BINS = "frequent values", "scale of values", "digits of values", "bins of values"

OF_NAMES, OF_SCALE, OF_PLACES, OF_DIGITS = 0.15, 0.1, 0.08, 0.07
"""Shares of what a number gets: its frequent values, its scale, each cut of a part that holds most rows, each side of digits;
parts get all else."""
_OF_PARTS = 0.3  # at least
PIECES = 32
"""Parts of about equal counts into which the values are cut that are not frequent."""
MOST_SPIKES = 64
"""Values of a number that are a part of their own, at most."""
MOST_CODES = 48
"""Codes of a number beside its frequent values, at most."""
SURE = 3.0
"""Noise stds that a part should hold."""
LONGEST = 1e300
"""Largest length that is added to others."""
GAP = np.int64(-(2**63))
"""In the place of a unit where there is no value."""

REPEATED, PREFIXES = "repeated values", "first characters"
OF_SHAPES, OF_REPEATED, OF_PREFIXES, OF_FIXED = 0.2, 0.08, 0.3, 0.07
"""Shares of what a text of which few values are frequent gets beside that of its names: patterns, which may be bought twice,
repeated values, first characters, and these of each pattern up to three times to see what most of its texts have."""
REPEATS = 0.01
"""Share of the values that repeat, from which on a column is no key."""
MOST_REPEATS = 0.3
"""Share of the values whose repeats noise may hide of a key."""
NEARLY_ALL = 0.9
"""Share of the texts of a pattern whose first characters are a part of it."""
_MOST_FIXED = 3  # times
_MOST_ROOTS = 8  # patterns of a column
_MOST_CODES = 0.5  # share of the named values that look like codes

_INSTEAD = 1.2  # of what counts below a clear level are short of, in those that are drawn
_FAN = 64  # pieces of one part
_APART = 5.0  # noise stds of unseen neighbours together that are told from others
_LONGER = 1.9  # times as long as its neighbour: a part that is not joined to one that holds more
_MOST = 0.4  # share of the rows in a part that is cut before the last histogram
_ALSO, _UNEVEN = 0.05, 8.0  # share in a part that is cut so, too, where the one beside it is so many times as dense
_TOGETHER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # parts that are looked at as one
_OUTER = 14  # parts outside of what is seen
_FEW = 1.0, 16.0  # edges between seen parts that are far from each other: at their length, and 16 times it
_GAP_PARTS, _UNLIKE = 6, 4.0  # unseen parts between seen ones that are kept apart, and lengths of neighbours that are, too
_PERIODS = 2  # periods of digits that what is seen must span


# -- counts ------------------------------------------------------------------------------------------------------------


def cells(values: Any, place: Callable[[npt.NDArray[Any]], Integers], size: int) -> BoundedSum:
    """Numbers of values in each of the cells; one outside of [0, size) is in none: one row moves one cell by 1.

    `values` are one of a row at most, an array or a source of arrays (`totals`); `place` gives cells (m,) of values (m,), each
    by itself.

    >>> cells(np.array([1, 3, 3, 8]), lambda values: values - 1, 3).values.tolist()
    [1, 0, 2]
    """
    counts = totals(values, partial(_counted, place=place, size=size))
    return BoundedSum(counts, 1.0, replaced=2.0**0.5)


def places(edges: npt.NDArray[Any], values: npt.NDArray[Any]) -> Integers:
    """Numbers (m,) of the sorted edges that are at or below each of the values."""
    return np.searchsorted(edges, values, side="right").astype(np.int64)


def _counted(batches: Iterable[npt.NDArray[Any]], place: Callable[[npt.NDArray[Any]], Integers], size: int) -> torch.Tensor:
    counts = np.zeros(size, np.int64)
    for values in batches:
        found = place(values)
        counts += np.bincount(found[(found >= 0) & (found < size)], minlength=size)
    return torch.from_numpy(counts)


def on_scale(units: Integers, edges: Integers, frequent: Integers) -> Integers:
    """Cells between edges of units (m,), -1 for frequent ones and gaps."""
    return np.where(np.isin(units, frequent) | (units == GAP), -1, places(edges, units) - 1)


def in_parts(units: Integers, starts: Integers) -> Integers:
    """0 for gaps, else 1 and the number of the part that each unit (m,) is in, of parts that begin with `starts` (k + 1,)."""
    return np.where(units == GAP, 0, places(starts, units))


def in_period(units: Integers, digits: Digits, side: int, frequent: Integers) -> Integers:
    """Places of units (m,) on one side of the cells of a period, -1 for frequent ones and gaps."""
    cells = digits.cells(np.where(units == GAP, 0, units)) % len(digits.weights)
    return np.where(np.isin(units, frequent) | (units == GAP), -1, np.unravel_index(cells, digits.sides)[side])


def surviving(count: float, std: float, clear: float = 0.0) -> float:
    """A noisy count that may be noise alone: itself from 3 noise stds on, else a few stds or 0, drawn so that its mean is kept.

    So what is rare is there in as many fits as it needs, and what nobody has is there in one of eight; in one of 50 with
    `clear` 1.5, below which many stds nothing is there: then the mean is kept to an eighth of what has two stds or more. The
    draw is public: its seed are the digits of the released count.

    >>> surviving(30.25, 10.0), surviving(-4.5, 10.0), surviving(14.5, 10.0, 1.5)
    (30.25, 0.0, 0.0)
    """
    most = TOLD * std
    if count >= most:
        return count
    drawn = np.random.default_rng(np.array([count], np.float64).view(np.uint32)).random()
    return (TOLD + _INSTEAD * clear) * std if drawn * (most - clear * std) < count - clear * std else 0.0


# -- parts -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts of an axis from the lowest to the highest with noisy counts; frequent values are parts of their own.

    `starts` (m + 1,) are the first unit of each, and the end; `guessed` counts are shares of a cell that was counted as one.
    """

    axis: Axis
    starts: Integers
    alone: Flags
    counts: Reals
    variances: Reals
    guessed: Flags

    @classmethod
    def of(cls, axis: Axis, edges: Integers, measured: tuple[Reals, float], spikes: tuple[Integers, Reals, float]) -> Parts:
        """Cells of a scale with counts and their noise std, cut by frequent values with theirs."""
        (counts, std), (values, sums, spike_std) = measured, spikes
        starts = np.unique(np.concatenate([edges, values, values + 1]))
        alone = np.isin(starts[:-1], values)
        cell = np.clip(np.searchsorted(edges, starts[:-1], side="right") - 1, 0, len(counts) - 1)
        whole = ~alone & np.isin(starts[:-1], edges) & np.isin(starts[1:], edges)
        rest, lengths = ~alone, axis.lengths(starts[:-1], starts[1:])
        share = np.bincount(cell[rest], lengths[rest], len(counts))
        found = np.where(whole, counts[cell], counts[cell] * (lengths / np.maximum(share[cell], 1e-300)))
        variances = np.full(len(found), std**2)
        found[alone], variances[alone] = sums, spike_std**2
        return cls(axis, starts, alone, found, variances, rest & ~whole)

    @property
    def lengths(self) -> Reals:
        """Lengths (m,)."""
        return self.axis.lengths(self.starts[:-1], self.starts[1:])

    @property
    def stds(self) -> Reals:
        """Noise stds (m,)."""
        return np.sqrt(self.variances)

    def shortened(self, those: Seen, limits: tuple[int | None, int | None]) -> Parts:
        """Parts where an outermost one, all the rest of an axis without a limit, is seen: it is one cell of the scale."""
        starts, scale = self.starts.copy(), self.axis.scale()
        if those.first == 0 and limits[0] is None and not self.alone[0]:
            starts[0] = max(int(starts[0]), int(scale[scale < starts[1]][-1]))
        if those.after == len(self.counts) and limits[1] is None and not self.alone[-1]:
            starts[-1] = min(int(starts[-1]), int(scale[scale > starts[-2]][0]))
        return replace(self, starts=starts)

    def joined(self, first: Integers) -> Parts:
        """Neighbours together: `first` (k,) are the numbers of the parts that begin one."""
        starts = np.append(self.starts[first], self.starts[-1])
        alone = self.alone[first] & (np.diff(np.append(first, len(self.alone))) == 1)
        sums = [np.add.reduceat(x, first) for x in (self.counts, self.variances)]
        return Parts(self.axis, starts, alone, sums[0], sums[1], np.logical_or.reduceat(self.guessed, first))

    def cut(self, pieces: Integers) -> tuple[Parts, list[tuple[int, int, float, float]]]:
        """Parts cut into so many pieces (m,) of equal length; what pieces [first, after) are cut from: counts and variances."""
        starts, of, wholes = list[int](), list[int](), list[tuple[int, int, float, float]]()
        for i, wanted in enumerate(pieces.tolist()):
            first, after = int(self.starts[i]), int(self.starts[i + 1])
            inner = self.axis.cut(first, after, wanted) if wanted > 1 and after - first > 1 else []
            if inner:
                wholes.append((len(starts), len(starts) + len(inner) + 1, float(self.counts[i]), float(self.variances[i])))
            starts += [first, *inner]
            of += [i] * (len(inner) + 1)
        own, ends = np.array(of), np.array([*starts, int(self.starts[-1])], np.int64)
        guessed = self.guessed[own]
        known = [whole for whole in wholes if not guessed[whole[0]]]
        for first, after, _, _ in wholes:
            guessed[first:after] = True
        return Parts(self.axis, ends, self.alone[own], self.counts[own], self.variances[own], guessed), known

    def measured(self, noisy: Reals, std: float, wholes: Sequence[tuple[int, int, float, float]]) -> Parts:
        """New counts (m,) of all parts taken into account, and `wholes`, see `cut`."""
        noisy, fresh = noisy.copy(), std**2
        for first, after, count, variance in wholes:
            noisy[first:after] += (count - noisy[first:after].sum()) * fresh / (variance + (after - first) * fresh)
        weight = np.where(self.guessed, 0.0, 1.0 / self.variances)
        variances = 1.0 / (weight + 1.0 / fresh)
        counts = (self.counts * weight + noisy / fresh) * variances
        return replace(self, counts=counts, variances=variances, guessed=np.zeros(len(counts), bool))


# -- what is seen ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Seen:
    """Parts (m,) that hold more than noise; all that do so are between `first` and `after`."""

    those: Flags
    first: int
    after: int


def seen(parts: Parts, chance: float, *, last: bool = False) -> Seen | None:
    """The parts that are seen, with this chance that noise makes their range longer; None: noise hides all.

    A part, or a few neighbours together, far from all others must pass a level of all such sets of parts, one beside seen ones
    that of a few tests. `last`: parts will not be cut anew, so a range ends with one that stands out by itself.
    """
    counts, variances = parts.counts, parts.variances
    m, z = len(counts), counts / np.sqrt(variances)
    far, near = norm.isf(chance / (len(_TOGETHER) * m)), norm.isf(chance / 16)
    those = parts.alone | (z > far)
    if not those.any():
        size, level, at = max(((size, *_strongest(counts, variances, size)) for size in _sizes(m)), key=lambda found: found[1])
        if level <= far:
            return None
        among = z[at : at + size]  # beside a part that is sure the noise of others decides nothing
        clear = at + np.flatnonzero(among > (near if among.max() > near else TOLD))
        those[[clear[0], clear[-1]] if last and len(clear) else [at, at + size - 1]] = True
    first, after = int(np.argmax(those)), m - int(np.argmax(those[::-1]))
    while True:
        down, up = (
            _reached(counts[own], variances[own], far, near, last=last)
            for own in (np.arange(first - 1, -1, -1), np.arange(after, m))
        )
        first, after = first - down, after + up
        those[[first, after - 1]] = True
        if not down + up:
            break
    beside = z > near
    while True:  # chains of parts, each beside a seen one
        more = beside & ~those & (np.r_[those[1:], False] | np.r_[False, those[:-1]])
        more[:first] = more[after:] = False
        if not more.any():
            return Seen(those, first, after)
        those |= more


def _sizes(m: int) -> list[int]:
    return [size for size in _TOGETHER if size <= m]


def _levels(counts: Reals, variances: Reals, size: int) -> Reals:
    """Noise stds of the sums of so many neighbours."""
    sums, noise = np.r_[0.0, counts.cumsum()], np.r_[0.0, variances.cumsum()]
    return (sums[size:] - sums[:-size]) / np.sqrt(noise[size:] - noise[:-size])


def _strongest(counts: Reals, variances: Reals, size: int) -> tuple[float, int]:
    levels = _levels(counts, variances, size)
    return float(levels.max()), int(levels.argmax())


def _reached(counts: Reals, variances: Reals, far: float, near: float, *, last: bool) -> int:
    """Number of the parts beside what is seen that belong to it, the nearest one first: to the end of what stands out."""
    if not len(counts):
        return 0
    single, beside = counts / np.sqrt(variances), counts.cumsum() / np.sqrt(variances.cumsum())
    if single[0] > near:
        return 1
    passing = [(np.flatnonzero(_levels(counts, variances, size) > far), size) for size in _sizes(len(counts))]
    ends = [int(at[0]) + size for at, size in passing if len(at)]
    near_ones = [size for size in (2, 3, 4) if size <= len(counts) and beside[size - 1] > near]
    reached = min([*ends, *near_ones], default=0)
    if not last:
        return reached
    clear = np.flatnonzero(single[:reached] > TOLD)
    return int(clear[-1]) + 1 if len(clear) else min(ends, default=0)  # many small ones that stand out together


# -- cutting anew ------------------------------------------------------------------------------------------------------


def _told_apart(parts: Parts, found: Seen, lengths: Integers, apart: Flags, least: float) -> Flags:
    """Beginnings of new parts (m + 1,) inside of what is seen: behind `least`, at other lengths, beside `apart` ones."""
    begins, total, noise = np.zeros(len(parts.counts) + 1, bool), 0.0, 0.0
    for i in range(found.first, found.after):
        enough = total >= least and total > _APART * noise**0.5
        longer = i > 0 and lengths[i] >= _LONGER * lengths[i - 1] and total > _APART * noise**0.5
        shorter = i > 0 and lengths[i - 1] >= _LONGER * lengths[i] and parts.counts[i] > _APART * parts.stds[i]
        begins[i] = enough or longer or shorter or bool(apart[i] or apart[i - 1]) or found.those[i] != found.those[i - 1]
        total = parts.counts[i] + (0.0 if begins[i] else total)
        noise = parts.variances[i] + (0.0 if begins[i] else noise)
    return begins


def recut(parts: Parts, found: Seen | None, least: float) -> tuple[Parts, Integers]:
    """Neighbours joined that need not be told apart, and into how many pieces (k,) each of the new parts is to be cut.

    Inside of what is seen parts hold about `least`; outside their lengths double, and the outermost ones are all the rest.
    """
    m, starts, lengths = len(parts.counts), parts.starts, np.minimum(parts.lengths, LONGEST)
    found = found or Seen(parts.alone, m // 2, m // 2 + 1)
    heavy = found.those & ~parts.alone & (parts.counts >= 1.5 * least)
    begins = _told_apart(parts, found, lengths, parts.alone | heavy, least)
    outside = np.r_[np.ones(found.first, bool), np.zeros(found.after - found.first, bool), np.ones(m - found.after, bool)]
    begins |= _doubling(m, found.first, found.after, lengths)
    for low, high in _gaps(found.those, found.first, found.after, lengths):  # what is seen far out may be noise
        around = _doubling(m, found.first, low, lengths, *_FEW) | _doubling(m, high, found.after, lengths, *_FEW)
        begins[low : high + 1] |= around[low : high + 1]
    jump = np.maximum(lengths[1:], lengths[:-1]) / _UNLIKE > np.minimum(lengths[1:], lengths[:-1])
    zero = (starts[:-1] == 0) & (starts[1:] == 1)
    begins[1:-1] |= jump & ~zero[1:] & ~zero[:-1]  # what was cut ends where a cell of the scale does
    begins[[0, found.first, found.after, m]] = True
    begins[:-1] |= parts.alone | (starts[:-1] == 0)
    begins[:-1] |= outside & (starts[:-1] == 1) & parts.axis.signed  # zeros beside what is seen are counted alone
    begins[1:] |= parts.alone
    first = np.flatnonzero(begins[:-1])
    joined = parts.joined(first)
    cut = ~joined.alone & (joined.counts >= 1.5 * least) & (joined.counts > TOLD * joined.stds)
    cut &= (joined.starts[:-1] >= starts[found.first]) & (joined.starts[:-1] < starts[found.after])
    return joined, np.where(cut, np.clip(np.ceil(joined.counts / least), 2, _FAN), 1).astype(np.int64)


def _gaps(those: Flags, first: int, after: int, lengths: Reals) -> list[tuple[int, int]]:
    """Runs of more than a few parts from `first` to `after` of which none is seen, longer than what is seen on one side."""
    edges = np.flatnonzero(np.diff(those[first:after].astype(np.int64))) + first + 1
    pairs = zip(edges[::2].tolist(), edges[1::2].tolist())
    ends = np.r_[0.0, np.minimum(lengths, LONGEST).cumsum()]
    shorter = {(low, high): min(ends[low] - ends[first], ends[after] - ends[high]) for low, high in pairs}
    return [at for at, span in shorter.items() if at[1] - at[0] > _GAP_PARTS and ends[at[1]] - ends[at[0]] > span]


def _doubling(m: int, first: int, after: int, lengths: Reals, near: float = 1 / 32, times: float = 2.0) -> Flags:
    """Edges (m + 1,) outside of the parts from `first` to `after`, at `near` times their length, and `times` it each time."""
    found, span = np.zeros(m + 1, bool), float(np.minimum(lengths[first:after], LONGEST).sum())
    for edges, reach in (
        (np.arange(after + 1, m + 1), lengths[after:]),
        (np.arange(first - 1, -1, -1), lengths[:first][::-1]),
    ):
        wanted, reach = span * near, np.minimum(reach, LONGEST).cumsum()
        for _ in range(_OUTER):
            i = int(np.searchsorted(reach, wanted * (1 - 1e-9)))
            if i == len(reach):
                break
            found[edges[i]], wanted = True, max(times * reach[i], wanted)
    return found


# -- buying ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A number that is bought: its name in releases, its axis, public limits in units, and the noisy number of its values.

    `chance` is that with which noise may make its range longer.
    """

    name: str
    axis: Axis
    limits: tuple[int | None, int | None]
    total: float
    chance: float


@dataclass(frozen=True, eq=False)
class Bought:
    """Parts with noisy counts, the noisy number of gaps, and counts of digits on each of their sides, with noise stds."""

    parts: Parts
    gaps: tuple[float, float]
    digits: tuple[Digits, list[Reals], float] | None


def bought(units: Any, present: Any, asked: Asked, budget: GaussianBudget, share: float) -> Bought:
    """Frequent values, parts and counts of a number, bought for this share of 1 / s^2.

    `units` (`Rows.column`) are of all rows, `GAP` where there is no value, `present` of those that have one.
    """
    left, gaps = share, list[tuple[float, float]]()

    def counted(what: str, place: Callable[..., Integers], size: int, part: float) -> tuple[Reals, float]:
        nonlocal left
        left -= part
        noisy, std = budget.sums(f"{what} of {asked.name}", cells(units, place, size), part * (1 - 1e-9))
        return noisy.numpy(), std

    def measured(parts: Parts, pieces: Integers, part: float) -> Parts:
        finer, wholes = parts.cut(pieces)
        noisy, std = counted(BINS, partial(in_parts, starts=finer.starts), len(finer.starts), part)
        gaps.append((float(noisy[0]), std))
        return finer.measured(noisy[1:], std, wholes)

    values, sums, std = _frequent(present, asked, budget, OF_NAMES * share)
    left -= OF_NAMES * share
    others = max(asked.total - float(sums.sum()), 1.0)
    edges = _within(asked.axis.scale(), asked.limits)
    scale = counted(SCALE, partial(on_scale, edges=edges, frequent=values), len(edges) - 1, OF_SCALE * share)
    parts, part = Parts.of(asked.axis, edges, scale, (values, sums, std)), OF_PLACES * share
    while True:
        found, least = seen(parts, asked.chance), max(others / PIECES, SURE * budget.noise_std(left))
        span = 0.0 if found is None else float(np.minimum(parts.lengths[found.first : found.after], LONGEST).sum())
        parts, pieces = recut(parts, found, least)
        most = np.where(pieces > 1, parts.counts, 0.0)
        wide = (most > _MOST * others) | ((most > _ALSO * others) & _beside_dense(parts))
        blind = found is None and not gaps  # long parts show what the noise of many small ones hides
        if not (blind or wide.any()) or left - part < _OF_PARTS * share:
            break
        fan = np.clip(most / (2 * budget.noise_std(part)), 2, _FAN)
        parts = measured(parts, np.where(wide, fan, 1).astype(np.int64), part)
    told = None
    apart = others / (SURE * budget.noise_std(OF_DIGITS * share))
    if (digits := next((d for d in asked.axis.digits(apart) if span >= _PERIODS * d.period), None)) is not None:
        sides = list[Reals]()
        for i, side in enumerate(digits.sides):
            noisy, std = counted(DIGITS, partial(in_period, digits=digits, side=i, frequent=values), side, OF_DIGITS * share)
            sides.append(noisy)
        told = digits, sides, std
    parts = measured(parts, pieces, left)
    precision = np.array([std**-2 for _, std in gaps])
    gap = float(np.average([count for count, _ in gaps], weights=precision)), float(precision.sum()) ** -0.5
    return Bought(parts, gap, told)


def _beside_dense(parts: Parts) -> Flags:
    """Parts (m,) beside a much denser one that is seen: a narrow law lies across the edge of a wide part."""
    free = np.flatnonzero(~parts.alone)
    density = np.where(parts.counts > SURE * parts.stds, parts.counts / parts.lengths, 0.0)[free]
    around = np.maximum(np.r_[0.0, density[:-1]], np.r_[density[1:], 0.0])
    found = np.zeros(len(parts.counts), bool)
    found[free] = around > _UNEVEN * np.maximum(parts.counts[free], 0.0) / parts.lengths[free]
    return found


def _frequent(present: Any, asked: Asked, budget: GaussianBudget, share: float) -> tuple[Integers, Reals, float]:
    """Frequent values in their order with noisy counts, and the noise std of these."""
    found = present.different()
    there, noisy, std, _ = budget.frequent(f"{NAMES} of {asked.name}", found.counts, share)
    values = np.asarray(found.named(there), np.int64)
    chosen = np.lexsort((values, -noisy))[:MOST_SPIKES]  # ties by value: the order of rows is private
    chosen = chosen[np.argsort(values[chosen])]
    return values[chosen], noisy[chosen].astype(np.float64), std


def _within(edges: Integers, limits: tuple[int | None, int | None]) -> Integers:
    """Edges inside of public limits."""
    low, high = limits
    if low is not None:
        edges = np.unique(np.append(edges[edges > low], low))
    return edges if high is None else np.unique(np.append(edges[edges <= high], high + 1))


# -- texts of which few are frequent -----------------------------------------------------------------------------------


def are_codes(texts: Texts, counts: Integers) -> bool:
    """Whether frequent values look like codes: then the others may do so, too."""
    like = np.array([bool(pattern_of(str(text), classed=True)) for text in texts], bool)
    return bool(len(texts)) and float(counts[like].sum()) >= _MOST_CODES * float(counts.sum())


def key_of(pattern: str) -> str:
    """A pattern as the `dpgen:key` of a field."""
    return trailing(pattern) or pattern


def repeated(counts: Integers) -> BoundedSum:
    """Number of rows beyond one for each value, of the rows of all values (k,)."""
    return BoundedSum(torch.tensor(int(counts.sum()) - len(counts)), 1.0, replaced=1.0)


def patterns_of(values: pd.Series, listed: Sequence[Any] = (), *, classed: bool = False) -> Texts:
    """The patterns (m,) of texts that are there and not listed; those without one are left out."""
    texts = pd.Series(texts_of(values), dtype=object)
    place, different = pd.factorize(texts[~texts.isin(listed)])
    made = np.array([pattern_of(text, classed=classed) for text in different], object)[place]
    return made[made != ""]


def first_cells(values: pd.Series, listed: Sequence[Any], roots: tuple[str, ...], *, classed: bool, flat: bool) -> Integers:
    """The cell (m,) of the first characters of each text that is there, -1 for those listed and those without a root.

    `flat`: of the first one alone.
    """
    starts = np.cumsum([0, *(sizes(root)[flat] for root in roots)]).tolist()
    of, names = {root_of(root, classed=classed): (at, Pattern(root)) for root, at in zip(roots, starts)}, set(listed)

    def cell(text: str) -> int:
        start, own = of.get("" if text in names else pattern_of(text, classed=classed), (0, None))
        if own is None or not own.fits(text):
            return -1
        return start + own.cell(text) // (own.cells // sizes(own.text)[1] if flat else 1)

    place, different = pd.factorize(texts_of(values))
    return np.array([*map(cell, different), -1], np.int64)[place]


@cache
def sizes(root: str) -> tuple[int, int]:
    """Numbers of first characters of a pattern that are counted, and of first ones alone."""
    own = Pattern(root)
    return own.cells, len(own.places[own.first[0]]) if own.first else 1


@dataclass(frozen=True, eq=False)
class Shapes:
    """Patterns that hold more than noise, with their noisy counts (k,) and noise std; `classed`: letters are classes."""

    roots: tuple[str, ...]
    counts: Reals
    std: float
    classed: bool

    @property
    def covered(self) -> float:
        """Noisy number of texts that have one of them."""
        return float(self.counts.sum())

    def in_words(self, total: float) -> str:
        """Findings on a column."""
        if not self.roots:
            return "texts of which few are alike, and no pattern that many of them have"
        best = int(self.counts.argmax())
        share = f"{100 * min(1.0, self.counts[best] / max(total, 1.0)):.0f}"
        return f"texts of which few repeat, about {share} % (± {100 * self.std / max(total, 1.0):.1g}) like {self.roots[best]}"


def shapes(table: Rows, name: str, listed: Texts, rest: float, budget: GaussianBudget, share: float) -> Shapes:
    """Frequent patterns of texts without a name: with their letters, or with classes where these hold less than half."""
    for classed in (False, True):
        read = partial(patterns_of, listed=listed.tolist(), classed=classed)
        found = table.column(name, read).different()
        places, noisy, std, _ = budget.frequent(f"{NAMES} of {name}", found.counts, share)
        roots = [str(root) for root in found.named(places)]
        kept = [i for i in np.argsort(-noisy, kind="stable")[:_MOST_ROOTS] if Pattern(roots[i]).free and roots[i] not in listed]
        made = Shapes(tuple(roots[i] for i in kept), noisy[kept].astype(np.float64), std, classed)
        if made.covered >= rest / 2:
            break
    return made


@dataclass(frozen=True, eq=False)
class Firsts:
    """Buys first characters of a column's patterns."""

    table: Rows
    name: str
    listed: list[str]
    budget: GaussianBudget

    def counted(self, codes: Shapes, share: float, *, flat: bool) -> tuple[list[Reals], float]:
        """Noisy counts of the first characters of each pattern, and their noise std."""
        ends = np.cumsum([sizes(root)[flat] for root in codes.roots])
        read = partial(first_cells, listed=self.listed, roots=codes.roots, classed=codes.classed, flat=flat)
        values = self.table.column(self.name, read)
        noisy, std = self.budget.sums(f"{PREFIXES} of {self.name}", cells(values, lambda c: c, int(ends[-1])), share)
        return np.split(noisy.numpy(), ends[:-1]), std

    def fixed(self, codes: Shapes, share: float) -> Shapes:
        """The patterns with the first characters that most of the texts of one have."""
        for _ in range(_MOST_FIXED):
            counts, _ = self.counted(codes, share, flat=False)
            roots = tuple(_begun(root, own, count) for root, own, count in zip(codes.roots, counts, codes.counts))
            if roots == codes.roots:
                break
            codes = replace(codes, roots=roots)
        return codes

    def _begun(self, codes: Shapes, share: float) -> Iterator[tuple[str, float, float]]:
        """Beginnings of patterns, and what is left of these, with noisy counts and noise stds."""
        (deep, deep_std), (flat, flat_std) = (self.counted(codes, share / 2, flat=one) for one in (False, True))
        for root, count, below, first in zip(codes.roots, codes.counts, deep, flat):
            begun = prefixes(Pattern(root), (below, deep_std), (first, flat_std))
            yield from ((one.pattern, one.count, one.variance**0.5) for one in begun)
            left = float(count) - sum(one.count for one in begun)
            variance = codes.std**2 + sum(one.variance for one in begun)
            if left > TOLD * variance**0.5:
                yield root, left, variance**0.5

    def all(
        self, texts: Texts, named: tuple[Reals, float], codes: Shapes, share: float
    ) -> tuple[list[str], Reals, Reals, list[str]]:
        """Values with noisy counts and noise stds (k,): frequent ones, then patterns and beginnings of them; and these."""
        made = [*self._begun(codes, share)]
        alone = [("".join(Pattern(text).places), count, std) for text, count, std in made if not Pattern(text).free]
        found = [(text, float(count), named[1]) for text, count in zip(texts.tolist(), named[0])]
        found += [one for one in alone if one[0] not in self.listed]
        patterns = [one for one in made if Pattern(one[0]).free and one[0] not in self.listed]
        labels, sums, stds = zip(*found, *patterns) if found or patterns else ((), (), ())
        return list(labels), np.array(sums, np.float64), np.array(stds, np.float64), [text for text, *_ in patterns]


def _begun(root: str, counts: Reals, count: float) -> str:
    own, best = Pattern(root), int(counts.argmax())
    return own.begun(best, len(own.first)) if counts[best] >= NEARLY_ALL * count and len(own.first) < len(own.free) else root
