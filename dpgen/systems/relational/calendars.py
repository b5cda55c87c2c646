r"""The calendar of rows: when rows of people are, all of them together, and synthetic rows inside what is left of it.

A row's time is that of the first row and of the times between rows up to it. Gaps alone know no end: their sums run past the
last day. So the days of all rows are bought as one more column, from one row of each person, and counted for all rows.

**Sensitivity.** The counts are those of a column of rows, see `sums`: each of the r rows of a person adds floor(2^20 / r) parts
of a whole to the bin of its day, on lower levels divided by the numbers of rows above, too. The parts of one person are a
function of that person's rows, non-negative, and add up to one whole at most: L1 and L2 sensitivity 1 when a person comes or
goes, L2 sensitivity :math:`\sqrt 2` for another person in their place.

**Use.** All of it follows from released numbers. With E the last bought unit, the gaps of a person reach over a span s:

1. First days are exchanged between people of one class of first rows, then between all, until first + s <= E: laws of first
   days and of gaps stay as they are.
2. Where none fits, what the gaps of a person are above the least gap is shortened to what is left, times :math:`U^{1 / k}` for
   k gaps. Where the least gaps alone reach beyond E, the person begins earlier: on a random day from which they fit.
3. Later rows are moved by one non-decreasing function of their day, so that the days of all rows together have the released
   law, as far as it differs from that of the model by more than noise (`nearer`): where gaps say when rows are, they stay as
   they are. The first row keeps its day, rows of one day stay together, and no row comes before the first one. The function is
   that of a large public draw of the model (optimal transport on the line). A row goes only so far that its gap stays in its
   part of the law of gaps, by whole steps (`reach`): a gap of exactly a minute stays one.

Gaps that a schema states always hold. Rows that the calendar has no room for, even by the least stated gap, are left out before
that, the last ones of a person first (`fitting`). Where gaps are bought, such rows are on day E, all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpgen.columns.descriptors import field_of
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.relational.sums import Histories, Integers, Reals, Shape, Span, single_counts, stack_of
from dpgen.systems.tables.marginals import Known, smoothed

if TYPE_CHECKING:
    from dpgen.systems.relational.reach import Reach

DAYS, OF_YEARS = "days of all rows", "years of all rows"
OF_DAYS = 0.06
"""Share of mu^2 for the days of all rows, or their years, of all tables together."""
YEARS = (1900, 2100)
"""Years that are looked at where people are few."""
FEW = 8
"""Cells below which years are bought first, in place of cells."""
LEAST = 512
"""People that are drawn together, at least: first days are exchanged between them."""
POOL = 8_192
"""People of the public draw."""

SEEN = 2.5
"""Noise stds of the rows at an end of the calendar."""

_ROUNDS, _STEPS = 40, 256  # of exchanges; of the function that moves later rows
_ALL, _BESIDE = 4.7, 2.5  # noise stds of years among all sets of them, chance 1.6e-3, and of those beside others
_NEAR = 0.03  # total variation distance of days up to which rows stay where they are
_CELLS, _EACH = 128, 10.0  # cells of a calendar at most; noise stds of the people that one should have, on average


@dataclass(frozen=True, eq=False)
class Days:
    """All rows of a table, for releases of their days.

    Arguments:
        times: order (r,) of each row, PRIVATE.
        seconds: of a unit, of dates; None: whole numbers.
        people: numbers of rows alone, PRIVATE, and their shape.
        number: of the table.
        n: noisy number of people who have rows.
    """

    times: npt.NDArray[Any]
    seconds: int | None
    people: tuple[Histories, Shape]
    number: int
    n: float

    def cells(self, budget: GaussianBudget, share: float) -> int:
        """Number of cells of a calendar that the people are enough for, by noise alone."""
        return min(_CELLS, int(self.n / (_EACH * budget.noise_std(share))))

    def year_counts(self) -> BoundedSum:
        """Sums of the years of all rows, and of all beyond these years."""
        found, size = self.times.astype("datetime64[Y]").astype(np.int64) + 1970 - YEARS[0], YEARS[1] - YEARS[0]
        codes = np.where((found >= 0) & (found < size), found, size)
        return day_counts(*self.people, self.number, codes, size + 1)

    def years(self, budget: GaussianBudget, share: float) -> tuple[int, int] | None:
        """The first and the last year that stand out of the noise; None: none does, or rows beyond all of them do.

        Some neighbours together, 1 to 32, must pass the level of all such sets; years beside them one of few tests.
        """
        size = YEARS[1] - YEARS[0]
        noisy, std = budget.sums(OF_YEARS, self.year_counts(), share)
        z, best = noisy.numpy()[:size] / std, (0.0, 0, 0)
        for width in (1, 2, 4, 8, 16, 32):
            level = np.convolve(z, np.ones(width), "valid") / math.sqrt(width)
            best = max(best, (float(level.max()), int(level.argmax()), width))
        highest, first, width = best
        if highest < _ALL or noisy[size] > _BESIDE * std:
            return None
        clear = first + np.flatnonzero(z[first : first + width] > min(_BESIDE, z[first : first + width].max() - 1e-9))
        low, high = int(clear[0]), int(clear[-1])
        while low > 0 and z[low - 1] > _BESIDE:
            low -= 1
        while high + 1 < size and z[high + 1] > _BESIDE:
            high += 1
        return low + YEARS[0], high + YEARS[0]

    def released(self, field: Mapping[str, Any], known: Known | None, budget: GaussianBudget, share: float) -> dict[str, Any]:
        """Edges of cells of equal length in the bought range of a field, and their noisy shares, as JSON.

        Of few people they are the bins that were bought with the field, with their counts.
        """
        begins, ends = field_of(field).bounds()
        low, high = (int(end) for end in whole_units(np.array([begins[0], ends[-1]]), self.seconds))
        size = min(self.cells(budget, share), high + 1 - low)
        if size < FEW:
            bins = len(begins) if known is not None and len(begins) == len(known.fitted) and known.fitted.any() else 1
            few = [*whole_units(begins[:bins], self.seconds).tolist(), high + 1]
            if known is None or bins == 1:
                return {"edges": few, "shares": [1.0]}
            # one row of each person was counted, so the counts have the error of a sample, too
            std = float(np.sqrt(np.mean(np.square(known.stds) + np.maximum(known.fitted, 0.0))))
            return _about(few, known.fitted, known.fitted, std)
        edges = np.array([low + (high + 1 - low) * i // size for i in range(size + 1)])
        codes = np.searchsorted(edges[1:-1], whole_units(self.times, self.seconds), side="right")
        noisy, std = budget.sums(DAYS, day_counts(*self.people, self.number, codes, size), share)
        counts = np.maximum(_trimmed(smoothed(noisy.numpy()[:, None], std)[:, 0], noisy.numpy(), std), 0.0)
        return _about(edges.tolist(), counts if counts.any() else np.ones(size), noisy.numpy(), std)


def _about(edges: list[int], counts: Reals, noisy: Reals, std: float) -> dict[str, Any]:
    """A calendar as JSON: shares of cells, and those with noise of this std, from which the model learns."""
    total = float(counts.sum())
    shares = {"shares": (counts / total).tolist(), "noisy": (noisy / total).tolist()}
    return {"edges": edges, **shares, "noise": std / total}


def day_counts(people: Histories, shape: Shape, number: int, codes: Integers, size: int, span: Span = "all") -> BoundedSum:
    """Sums (size,) of the codes (r,) of the rows of a span of a table, whose parts add up to a whole in each person at most."""
    branch, rows, tables = shape.tables[number - 1], list(people.rows), list(shape.tables)
    rows[number - 1] = np.column_stack([rows[number - 1], codes])
    tables[number - 1] = replace(branch, sizes=(*branch.sizes, size), spans=(*branch.spans, span))
    wide = Histories(people.people, rows, people.starts)
    return single_counts(wide, Shape(shape.people, tuple(tables)), stack_of(span, number), branch.spans.count(span))


def _trimmed(smooth: Reals, counts: Reals, std: float) -> Reals:
    """Smooth counts without the cells at both ends that together do not stand out of the noise."""
    found = smooth.copy()
    for step in (1, -1):
        clear = counts[::step].cumsum() > SEEN * std * np.sqrt(np.arange(1, len(counts) + 1))
        found[::step][: int(clear.argmax())] = 0.0
    return found


@dataclass(frozen=True, eq=False)
class Calendar:
    """The released days of all rows of a table, in whole units, and how later rows are moved to them.

    Arguments:
        about: edges of cells and their shares; `noisy` ones and their std, `noise`, if they are known, until the function that
            moves rows has been learnt from them, then `from` and `to` of this function.
        seconds: of a unit, of dates; None: whole numbers.
    """

    about: dict[str, Any]
    seconds: int | None

    @cached_property
    def steps(self) -> Reals:
        """Units (257,) before which equal shares of all rows are, from the first one to the end."""
        own = slice(int(self._there[0]), int(self._there[-1]) + 1)
        edges, shares = np.array(self.about["edges"], np.float64)[own.start : own.stop + 1], np.array(self.about["shares"])[own]
        shares = shares + 1e-12  # an inverse, where cells inside are empty
        return np.interp(np.linspace(0, 1, _STEPS + 1), np.r_[0.0, shares.cumsum()] / shares.sum(), edges)

    @cached_property
    def _there(self) -> Integers:
        return np.flatnonzero(self.about["shares"])

    @property
    def first(self) -> int:
        """The first bought unit."""
        return int(self.about["edges"][self._there[0]])

    @property
    def last(self) -> int:
        """The last bought unit, E."""
        return int(self.about["edges"][self._there[-1] + 1]) - 1

    def moved(self, times: Reals) -> Integers:
        """Units (r,) of later rows, of times inside their units, where the days of all rows together follow their law."""
        return np.floor(np.interp(times, self.about["from"], self.about["to"])).astype(np.int64)

    def learn(self, times: Reals, later: npt.NDArray[np.bool_], weights: Reals) -> None:
        """Learn how `later` ones of the rows (r,) of a large draw are to be moved, others staying where they are."""
        own = slice(int(self._there[0]), int(self._there[-1]) + 1)
        edges, levels = np.array(self.about["edges"])[own.start : own.stop + 1], np.linspace(0, 1, _STEPS + 1)
        laws = [np.histogram(times[of], edges, weights=weights[of])[0] / weights.sum() for of in (~later, later)]
        noisy, noise = np.array(self.about.pop("noisy", sum(laws)))[own], self.about.pop("noise", math.inf)
        total = max(float(noisy.sum()), 1e-9)
        wanted = np.maximum(nearer(sum(laws), noisy / total, noise / total) - laws[0], 0.0)
        if not later.any() or not wanted.any():
            self.about.update({end: [float(self.first), float(self.last)] for end in ("from", "to")})
            return
        order = np.argsort(times[later], kind="stable")
        found, before = times[later][order], weights[later][order] / weights.sum()
        cell = np.searchsorted(edges[1:-1], found, side="right")
        empty = np.flatnonzero((laws[1] == 0) & (wanted > 0))  # no row of the draw is there: days of the cell stand for rows
        more = [np.linspace(edges[c], edges[c + 1], _STEPS, endpoint=False) for c in empty]
        values = np.concatenate([found, *more])
        after = np.r_[before * (wanted / np.maximum(laws[1], 1e-300))[cell], np.repeat(wanted[empty], _STEPS) / _STEPS]
        sides = {"from": (found, before), "to": (np.sort(values), after[np.argsort(values)])}
        for end, (days, mass) in sides.items():
            ends = mass.cumsum() / mass.sum()
            self.about[end] = (days[np.minimum(np.searchsorted(ends, levels - 1e-12), len(days) - 1)]).tolist()


def nearer(law: Reals, noisy: Reals, std: float) -> Reals:
    r"""A law (c,), moved to a noisy one as far as both differ by more than noise; non-negative, of sum 1.

    Of the cosines of their difference, d, those of 1, 2, 4, 8, ... frequencies are shrunk together, by
    :math:`(1 - J / |d / s|^2)_+` for J frequencies. Laws of a total variation distance of .03 are near enough: to move
    all later rows by the few days that they differ by costs more, in the gaps after the first rows.

    Source: the estimator of James and Stein 1961, in blocks as of Cai 1999.
    """
    from scipy.fft import dct, idct

    waves, first, size = dct(noisy - law, norm="ortho"), 1, 1
    waves[0] = 0.0
    while first < len(waves):
        block = waves[first : first + size]
        block *= max(0.0, 1.0 - len(block) * std**2 / max(float(block @ block), 1e-300))
        first, size = first + size, 2 * size
    moved = np.maximum(law + idct(waves, norm="ortho"), 0.0)
    moved /= moved.sum()
    apart = 0.5 * float(np.abs(moved - law).sum())
    return np.asarray(law + max(0.0, 1.0 - _NEAR / max(apart, _NEAR)) * (moved - law))


@dataclass(frozen=True, eq=False)
class Times:
    """Rows of people, or of rows above, in order of time, in whole units.

    Arguments:
        base: day (r,) from which each row's time counts: that of the first row, or of the row above.
        after: units (r,) from this day on.
        first: where the rows of each begin.
        counts: how many each has.
        fixed: first ones of each that stay where they are.
        gaps: how far the gap before each row may be moved.
        since: least and largest time from `base` to the first row that a schema states, where it is no row of its own.
    """

    base: Integers
    after: Integers
    first: Integers
    counts: Integers
    fixed: int
    gaps: Reach
    since: tuple[int, int] | None = None

    @property
    def owner(self) -> Integers:
        """Whose each row is."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def place(self) -> Integers:
        """The number of each row among those of one owner."""
        return np.arange(len(self.base)) - np.repeat(self.first, self.counts)

    @property
    def _anchor(self) -> Integers:
        """Units (n,) from the base to the last row that stays."""
        if not self.fixed:
            return np.zeros(len(self.counts), np.int64)
        return self.after[self.first + np.minimum(self.fixed, self.counts) - 1]

    def _shortest(self, stated: bool) -> Integers:
        """Least units (r,) from the last row that stays to each later one; `stated`: by the schema alone."""
        place, drawn = self.place, np.diff(self.after, prepend=0)
        drawn[self.first] = self.after[self.first]
        least = 0 if stated and self.gaps.stated is None else self.gaps.least
        lows = np.minimum(drawn, np.where(place > 0, least, 0 if self.since is None else self.since[0]))
        lows[place < self.fixed] = 0
        total = lows.cumsum()
        return total - (total[self.first] - lows[self.first])[self.owner]

    def fitting(self, calendar: Calendar, free: bool) -> npt.NDArray[np.bool_]:
        """The rows (r,) that the calendar has room for by the gaps that a schema states; `free`: the first day may be any."""
        begin = np.full(len(self.counts), calendar.first) if free else self.base[self.first] + self._anchor
        there = begin[self.owner] + self._shortest(stated=True) <= np.maximum(calendar.last, begin)[self.owner]
        return there | (self.place < self.fixed)

    def inside(
        self,
        calendar: Calendar,
        groups: Integers | None,
        limits: tuple[Reals, Reals],
        generator: np.random.Generator,
        weights: Reals | None = None,
    ) -> Integers:
        """Units (r,) of all rows inside a calendar, that learns from them with `weights`; see the module.

        `groups` are of those whose first days may be exchanged; None: all first days stay. `limits` (n,) are the first and the
        last unit of each, where rules set them.
        """
        low = np.maximum(limits[0], calendar.first).astype(np.int64)
        last = np.minimum(np.maximum(limits[1], calendar.first), calendar.last).astype(np.int64)
        counts, owner, place, base, anchor = self.counts, self.owner, self.place, self.base, self._anchor
        ends = self.first + counts - 1
        start = low if groups is not None else base[self.first] + anchor
        shortest, stated = self._shortest(stated=False), self._shortest(stated=True)
        shortest = np.where((start + shortest[ends] <= last)[owner], shortest, stated)
        total = shortest[ends]
        last = np.maximum(last, np.minimum(start, calendar.first if groups is not None else start) + total)
        if groups is not None:
            spans = low, last, self.after[ends], total
            base = exchanged(base[self.first], spans, groups, (calendar.first, calendar.last), generator)[owner]
        begin, later = base[self.first] + anchor, place >= self.fixed
        offsets = self.after - anchor[owner]
        room = np.maximum(last - begin - total, 0)
        beyond = np.where(later, offsets - shortest, 0)
        moving = shortened(beyond, owner, room, counts - self.fixed, generator, self.gaps.step) + np.where(later, shortest, 0)
        moving, lows, highs = self._allowed(moving)
        units = begin[owner] + np.where(later, moving, offsets)
        later &= moving > 0
        times = units + generator.random(len(counts))[owner]  # rows of one day have one time in it
        if weights is not None:
            calendar.learn(times, later, weights)
        moved = np.where(later, np.maximum(np.minimum(calendar.moved(times), last[owner]), begin[owner]), units)
        apart = self._apart(moved, moving, (lows, highs), begin, last)
        earliest = np.maximum(begin + np.minimum(shortest[self.first], 0), np.minimum(begin, calendar.first))
        return np.where(place >= self.fixed, np.maximum(apart, earliest[owner]), moved)

    def _allowed(self, offsets: Integers) -> tuple[Integers, Integers, Integers]:
        """Offsets (r,) whose gaps may be, and the least and the largest gap before each row."""
        drawn, own_gaps = np.diff(self.after, prepend=0), np.diff(offsets, prepend=0)
        short = (own_gaps < drawn) & (self.place >= max(self.fixed, 1))
        gaps, low, high = self.gaps.of_short(own_gaps, drawn)
        lows, highs = np.where(short, low, self.gaps.lows), np.where(short, high, self.gaps.highs)
        if (short & (gaps != own_gaps)).any():
            own_gaps[self.first] = offsets[self.first]
            total = np.where(short, gaps, own_gaps).cumsum()
            offsets = total - (total[self.first] - offsets[self.first])[self.owner]
        return offsets, lows, highs

    def _apart(
        self, moved: Integers, offsets: Integers, gaps: tuple[Integers, Integers], begin: Integers, last: Integers
    ) -> Integers:
        """Units as near to moved ones as gaps may be moved, where there is room until the last unit."""
        own_gaps, (low, high) = np.diff(offsets, prepend=0), gaps
        found, most = moved.copy(), int(self.counts.max(initial=0))
        if self.since is not None:
            found[self.first] = np.clip(found[self.first], begin + self.since[0], begin + self.since[1])
        for place in range(max(self.fixed, 1), most):
            own = self.first[self.counts > place] + place
            gap = found[own] - found[own - 1]
            gap = own_gaps[own] + self.gaps.step * np.rint((gap - own_gaps[own]) / self.gaps.step).astype(np.int64)
            found[own] = found[own - 1] + gap.clip(low[own], high[own])
        for place in range(most - 1, self.fixed - 1, -1):
            there = self.counts > place
            own = self.first[there] + place
            after = np.minimum(own + 1, len(found) - 1)
            room = np.where(self.counts[there] > place + 1, found[after] - low[after], last[there])
            over = np.maximum(found[own] - room, 0)
            found[own] -= -(-over // self.gaps.step) * self.gaps.step
        return found


def whole_units(values: npt.NDArray[Any], seconds: int | None) -> Integers:
    """Dates and times as units of so many seconds, whole numbers as they are."""
    if seconds is None:
        return np.asarray(values, np.int64)
    return np.floor_divide(values.astype("datetime64[s]").astype(np.int64), seconds)


def exchanged(
    units: Integers,
    ends: tuple[Integers, Integers, Integers, Integers],
    groups: Integers,
    limits: tuple[int, int],
    generator: np.random.Generator,
) -> Integers:
    """First days (n,) of people; `ends` are the first and the last day of each, the span of the rows, and the shortest one.

    Those outside of `limits` are drawn from others. A person who finds no day for all of the span gets one that the shortest
    span allows, from another person or at random.

    They are exchanged at random between people of one group, where no person who was inside is outside afterwards, and then
    between those who are outside and all others.
    """
    low, last, spans, shortest = ends
    high = last - spans
    inside = np.flatnonzero((units >= limits[0]) & (units <= limits[1]))
    found = units.copy()
    outside = np.delete(np.arange(len(units)), inside)
    found[outside] = units[generator.choice(inside, len(outside))] if len(inside) else found[outside].clip(*limits)

    def fits(people: Integers, days: Integers) -> Integers:
        return ((days >= low[people]) & (days <= high[people])).astype(np.int64)

    def exchange(one: Integers, other: Integers) -> None:
        days, others = found[one], found[other]
        better = fits(one, others) + fits(other, days) >= fits(one, days) + fits(other, others)
        found[one[better]], found[other[better]] = others[better], days[better]

    for _ in range(_ROUNDS):
        order = np.lexsort((generator.random(len(units)), groups))
        pairs = np.flatnonzero(groups[order[:-1]] == groups[order[1:]])
        pairs = pairs[pairs % 2 == generator.integers(2)]
        exchange(order[pairs], order[pairs + 1])
    for latest in (last - spans, last - shortest):
        high = latest
        for _ in range(_ROUNDS):
            order = generator.permutation(len(units))
            good = fits(order, found[order]) > 0
            most = min(int((~good).sum()), int(good.sum()))
            exchange(order[~good][:most], order[good][:most])
    found = np.maximum(found, np.minimum(low, limits[1]))
    late = np.flatnonzero(found > high)
    begin = np.minimum(np.maximum(low[late], limits[0]), high[late])
    found[late] = begin + (generator.random(len(late)) * (high[late] - begin + 1)).astype(np.int64)
    return found


def shortened(
    offsets: Integers, owner: Integers, room: Integers, counts: Integers, generator: np.random.Generator, step: int = 1
) -> Integers:
    """Offsets (r,) from the day that a person's rows follow, which ascend in each person, inside the room (n,) that is left.

    They stay multiples of the step of gaps.
    """
    span = np.zeros(len(room), np.int64)
    np.maximum.at(span, owner, offsets)
    share = room / np.maximum(span, 1) * generator.random(len(room)) ** (1.0 / np.maximum(counts, 1))
    scaled = np.floor(np.maximum(offsets, 0) * share[owner] / step).astype(np.int64) * step
    return np.where((span > room)[owner], np.minimum(offsets, scaled), offsets)
