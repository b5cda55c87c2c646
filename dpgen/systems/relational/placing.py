"""Rows of people placed in time: first days exchanged, gaps shortened, rows moved to the released days and hours.

All of it follows from released numbers, see `calendars` and `hours`. How far a gap may be moved, its released law says alone
(`Reach`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgen.columns.fields import CategoryField, DensityField, Field
from dpgen.columns.forms import DAY
from dpgen.systems.relational.calendars import Calendar
from dpgen.systems.relational.hours import APART, Hours, hours_of
from dpgen.systems.relational.sums import Integers, Reals

_ROUNDS = 40  # of exchanges
_PEAK = 3.0  # times as dense as both neighbours: a frequent gap, which stays as it is


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
        since: how far the time from `base` to the first row (n,) may be moved, where the base is a row above.
        step: of first rows.
    """

    base: Integers
    after: Integers
    first: Integers
    counts: Integers
    fixed: int
    gaps: Reach
    since: Reach | None = None
    step: int = 1

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

    @property
    def _soonest(self) -> int:
        """Least time to the first row of a row above."""
        return 0 if self.since is None or self.since.stated is None else int(self.since.stated[0][0])

    def _shortest(self, stated: bool) -> Integers:
        """Least units (r,) from the last row that stays to each later one; `stated`: by the schema alone."""
        place, drawn = self.place, np.diff(self.after, prepend=0)
        drawn[self.first] = self.after[self.first]
        least = 0 if stated and self.gaps.stated is None else self.gaps.least
        lows = np.minimum(drawn, np.where(place > 0, least, self._soonest))
        lows[place < self.fixed] = 0
        total = lows.cumsum()
        return total - (total[self.first] - lows[self.first])[self.owner]

    @property
    def stated(self) -> bool:
        """Whether a schema states gaps."""
        return self.gaps.stated is not None or (self.since is not None and self.since.stated is not None)

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
        found = np.where(place >= self.fixed, np.maximum(apart, earliest[owner]), moved)
        hours = hours_of(calendar.about)
        if hours is None:
            return found
        return self._at_hours(found, hours, (lows, highs), (None if groups is None else low, last), generator, weights)

    def _at_hours(
        self,
        units: Integers,
        hours: Hours,
        gaps: tuple[Integers, Integers],
        ends: tuple[Integers | None, Integers],
        generator: np.random.Generator,
        weights: Reals | None,
    ) -> Integers:
        """Units of seconds at the released hours, as far as gaps allow it; see `hours`.

        `ends` are the first unit of each, None where first rows stay, and the last one.
        """
        (low, last), owner, place = ends, self.owner, self.place
        gap = np.diff(units, prepend=0)
        gap[self.first] = APART if self.fixed else units[self.first] - self.base[self.first]
        leads = (gap >= APART) & (place >= (self.fixed if low is None else 0))
        first, steps = place == 0, np.where(place == 0, self.step, self.gaps.step)
        steps, rest = np.where(steps < DAY, steps, 1), units % DAY % np.where(steps < DAY, steps, 1)
        clock = units % DAY - rest + generator.random(len(units)) * steps  # values of a step are spread over it
        if weights is not None:
            each = weights * self.counts[owner] / np.maximum(np.bincount(owner, leads, len(self.counts)), 1)[owner]
            hours.learn(clock[leads], first[leads], each[leads])
        own = np.floor(hours.moved(clock, first) / steps).astype(np.int64) * steps + rest
        wanted = np.where(leads, units - units % DAY + np.minimum(own, DAY - 1), units)
        lows, highs = np.where(leads, np.minimum(gaps[0], gap), gap), np.where(leads, np.maximum(gaps[1], gap), gap)
        tail = np.bincount(owner, np.where(first, 0, lows), len(self.first)).astype(np.int64)
        begin, last = units[self.first], np.maximum(last, units[self.first + self.counts - 1])
        moved = begin + self.step * np.rint((wanted[self.first] - begin) / self.step).astype(np.int64)
        inside = (moved <= last - tail) & (moved >= (self.base[self.first] if low is None else low))
        wanted[self.first] = np.where(inside, moved, begin)
        offsets = np.cumsum(np.where(first, 0, gap))
        return self._apart(wanted, offsets, (lows, highs), self.base[self.first], last, DAY)

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
        self,
        moved: Integers,
        offsets: Integers,
        gaps: tuple[Integers, Integers],
        begin: Integers,
        last: Integers,
        period: int | None = None,
    ) -> Integers:
        """Units as near to moved ones as gaps may be moved, where there is room until the last unit.

        With a period, units whose gap is outside go to the next or the last period where it is inside, if there is one.
        """
        own_gaps, (low, high) = np.diff(offsets, prepend=0), gaps
        found, most = moved.copy(), int(self.counts.max(initial=0))
        if self.since is not None:
            own, drawn, after = offsets[self.first], self.after[self.first], found[self.first] - begin
            lows = np.where(own < drawn, np.minimum(own, self._soonest), self.since.lows)
            highs = np.where(own < drawn, drawn, self.since.highs)
            found[self.first] = begin + _within(after, np.minimum(lows, own), np.maximum(highs, own), period)
        wide = period if period and period % self.gaps.step == 0 else None
        for place in range(max(self.fixed, 1), most):
            own = self.first[self.counts > place] + place
            gap = found[own] - found[own - 1]
            gap = own_gaps[own] + self.gaps.step * np.rint((gap - own_gaps[own]) / self.gaps.step).astype(np.int64)
            found[own] = found[own - 1] + _within(gap, low[own], high[own], wide)
        for place in range(most - 1, self.fixed - 1, -1):
            there = self.counts > place
            own = self.first[there] + place
            after = np.minimum(own + 1, len(found) - 1)
            room = np.where(self.counts[there] > place + 1, found[after] - low[after], last[there])
            over = np.maximum(found[own] - room, 0)
            found[own] -= -(-over // self.gaps.step) * self.gaps.step
        return found


def _within(gaps: Integers, low: Integers, high: Integers, period: int | None) -> Integers:
    """Gaps (r,) between two ends, moved by whole periods where these are enough."""
    if period is not None:
        after = gaps + -(-np.maximum(low - gaps, 0) // period) * period
        before = gaps - -(-np.maximum(gaps - high, 0) // period) * period
        gaps = np.where(gaps < low, after, before)
    return gaps.clip(low, high)


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


# -- how far a gap may be moved ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reach:
    """Range of each gap when rows are moved, by the released law alone: between ends of its part of the law, by whole steps.

    A part is a code of the field, cut where the density has a single frequent value, which stays as it is, or is empty.

    Arguments:
        lows: least gap (r,) for each row.
        highs: largest gap (r,).
        step: of gaps.
        least: of all gaps: the least one that a schema states, else a step, where gaps of zero are not there.
        stated: first and last gap (p,) of each part, where a schema states the domain: no gap is ever outside of them.
    """

    lows: Integers
    highs: Integers
    step: int
    least: int = 0
    stated: tuple[Integers, Integers] | None = None

    @classmethod
    def of(cls, field: Field, gaps: Integers) -> Reach:
        """Reach of the gaps (r,) that a field has."""
        first, last = (np.asarray(ends, np.int64) for ends in field.bounds())
        step = step_of(field)
        if isinstance(field, DensityField):
            first, last = _parts(field, first, last, step)
        elif isinstance(field, CategoryField):
            step = max(1, int(np.gcd.reduce(first)))
        at = np.clip(np.searchsorted(first, gaps, side="right") - 1, 0, len(first) - 1)
        public, least = field.source == "public", max(int(first[0]), 0)
        least = -(-least // step) * step if public else min(step, least)
        return cls(np.minimum(first[at], gaps), np.maximum(last[at], gaps), step, least, (first, last) if public else None)

    @classmethod
    def free(cls, count: int, low: int, high: int) -> Reach:
        """Gaps between two ends, for so many rows."""
        return cls(np.full(count, low), np.full(count, high), 1)

    def of_short(self, gaps: Integers, drawn: Integers) -> tuple[Integers, Integers, Integers]:
        """Gaps (r,) that are shorter than drawn ones, as the schema allows them, and how far each may be moved.

        A gap between two parts is the largest one of the part before it. Where no schema says which gaps there are they stay as
        they are, and rows of two days are on two days.
        """
        if self.stated is None:
            return gaps, np.minimum(drawn, self.step), np.maximum(drawn, 0)
        first, last = self.stated
        at = np.maximum(np.searchsorted(first, gaps, side="right") - 1, 0)
        return np.clip(gaps, first[at], last[at]), first[at], np.minimum(last[at], np.maximum(drawn, first[at]))


def step_of(field: Field) -> int:
    """The step of the values of a field, by its schema."""
    return int(field.axis.rounding().get("dpgen:rounding", 1)) if isinstance(field, DensityField) else 1


def _parts(field: DensityField, first: Integers, last: Integers, step: int) -> tuple[Integers, Integers]:
    """First and last gap of each part of a law."""
    edges: Any = np.asarray(field.axis.values(field.density.edges), np.int64)
    dense = field.density.masses / np.maximum(np.diff(edges), 1)
    around = np.maximum(np.r_[0.0, dense[:-1]], np.r_[dense[1:], 0.0])
    peak = (np.diff(edges) == step) & (dense > _PEAK * around)
    kind = np.where(peak, 1 + np.arange(len(dense)), np.where(dense > 0, -1, 0))
    cuts = edges[:-1][np.diff(kind, prepend=-2) != 0]
    starts = np.unique(np.concatenate([first, cuts[(cuts >= first[0]) & (cuts <= last[-1])]]))
    return starts, np.append(starts[1:] - step, last[-1])
