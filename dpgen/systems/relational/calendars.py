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
   part of the law of gaps, by whole steps (`placing`): a gap of exactly a minute stays one.

Gaps that a schema states always hold. Rows that the calendar has no room for, even by the least stated gap, are left out before
that, the last ones of a person first (`fitting`). Where gaps are bought, such rows are on day E, all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgen.columns.descriptors import field_of
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.relational.sums import Histories, Integers, Reals, Shape, Span, single_counts, stack_of
from dpgen.systems.tables.marginals import Known, smoothed

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

_STEPS = 256  # of the function that moves later rows
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
        edges = np.array(self.about["edges"])[own.start : own.stop + 1]
        laws = [np.histogram(times[of], edges, weights=weights[of])[0] / weights.sum() for of in (~later, later)]
        noisy, noise = np.array(self.about.pop("noisy", sum(laws)))[own], self.about.pop("noise", math.inf)
        total = max(float(noisy.sum()), 1e-9)
        wanted = np.maximum(nearer(sum(laws), noisy / total, noise / total) - laws[0], 0.0)
        if not later.any() or not wanted.any():
            self.about.update({end: [float(self.first), float(self.last)] for end in ("from", "to")})
            return
        self.about.update(transport(times[later], weights[later] / weights.sum(), edges, laws[1], wanted))


def transport(values: Reals, weights: Reals, edges: Integers, law: Reals, wanted: Reals) -> dict[str, list[float]]:
    """The non-decreasing function that takes values (r,), whose cells have a law (c,), to another law, as `from` and `to`."""
    levels, order = np.linspace(0, 1, _STEPS + 1), np.argsort(values, kind="stable")
    found, before = values[order], weights[order]
    cell = np.searchsorted(edges[1:-1], found, side="right")
    empty = np.flatnonzero((law == 0) & (wanted > 0))  # no row of the draw is there: days of the cell stand for rows
    more = [np.linspace(edges[c], edges[c + 1], _STEPS, endpoint=False) for c in empty]
    filled = np.concatenate([found, *more])
    after = np.r_[before * (wanted / np.maximum(law, 1e-300))[cell], np.repeat(wanted[empty], _STEPS) / _STEPS]
    order = np.argsort(filled, kind="stable")
    order = order[after[order] > 0]
    sides, made = {"from": (found, before), "to": (filled[order], after[order])}, dict[str, list[float]]()
    for end, (days, mass) in sides.items():
        ends = mass.cumsum() / mass.sum()
        made[end] = days[np.minimum(np.searchsorted(ends, levels - 1e-12), len(days) - 1)].tolist()
    return made


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


def whole_units(values: npt.NDArray[Any], seconds: int | None) -> Integers:
    """Dates and times as units of so many seconds, whole numbers as they are."""
    if seconds is None:
        return np.asarray(values, np.int64)
    return np.floor_divide(values.astype("datetime64[s]").astype(np.int64), seconds)
