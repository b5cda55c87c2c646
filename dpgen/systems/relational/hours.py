r"""Hours of the day at which rows are, where times are modelled by second: bought beside the calendar, and kept by draws.

The first row's time and the times between rows are released by bins, most of which are longer than an hour. So hours are
bought, of first rows and of rows at least half a day after the one before. These rows lead: rows that follow within half a day
have no hour of their own, as it follows from the gap.

**Sensitivity.** The counts are those of a column of a table of the leading rows alone, see `sums`: each of the r leading rows
of a person adds floor(2^20 / r) parts of a whole to the cell of its hour, on lower levels divided by the numbers of rows above,
too. Which rows lead is a function of the times of a person's own rows. So L1 and L2 sensitivity are 1 when a person comes or
goes, and L2 sensitivity :math:`\sqrt 2` for another person in their place.

**Use.** Leading rows are moved inside their day by a non-decreasing function of the time of day, one of first rows and one of
later ones, which takes the law of a large public draw to the released one as far as both differ by more than noise, see
`calendars`. A row goes only so far that its gap stays in its part of the law of gaps, by whole steps, see `placing`. Rows that
follow keep their gaps: of rows a minute apart the first one moves all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpgen.columns.forms import DAY
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.relational.calendars import Days, day_counts, nearer, transport, whole_units
from dpgen.systems.relational.sums import Histories, Reals, Shape

if TYPE_CHECKING:
    from dpgen.data.linked_tables import LinkedRows

HOURS = "hours of rows"
OF_HOURS = 0.02
"""Share of mu^2 for the hours of rows, of all tables together."""
APART = DAY // 2
"""Seconds after the row before from which on a row has an hour of its own."""

_CELLS = (24, 12, 8, 6, 4)  # of a day
_EACH, _SEEN = 5.0, 1.5  # noise stds of the people that a cell should have on average, and of those in it, if there are any


def leading(days: Days, since: npt.NDArray[Any] | None) -> npt.NDArray[np.bool_]:
    """Rows (r,) with an hour of their own; `since` are seconds from the row above to a first row, None: it leads."""
    starts, units = days.people[0].starts[days.number - 1], whole_units(days.times, days.seconds)
    gaps, first = np.diff(units, prepend=units[:1]), starts[:-1][np.diff(starts) > 0]
    gaps[first] = APART if since is None else since[first]
    return gaps >= APART


def hour_counts(days: Days, since: npt.NDArray[Any] | None, cells: int = 24) -> BoundedSum:
    """Sums (cells,) of the leading rows by parts of the day, which add up to a whole in each person at most."""
    leads = leading(days, since)
    part = whole_units(days.times, days.seconds)[leads] % DAY * cells // DAY
    return day_counts(*_alone(days, leads), days.number, part, cells)


def _alone(days: Days, kept: npt.NDArray[np.bool_]) -> tuple[Histories, Shape]:
    """Some rows of a table and what they hang on, without rows of other tables."""
    (people, shape), path, above = days.people, set[int](), days.number
    while above:
        path, above = path | {above}, shape.tables[above - 1].parent
    rows, starts = list(people.rows), list(people.starts)
    for i, branch in enumerate(shape.tables):
        if i + 1 == days.number:
            owner = np.repeat(np.arange(len(starts[i]) - 1), np.diff(starts[i]))
            starts[i] = np.r_[0, np.bincount(owner[kept], minlength=len(starts[i]) - 1).cumsum()].astype(np.int64)
            rows[i] = rows[i][kept]
        elif i + 1 not in path:
            size = len(rows[branch.parent - 1]) if branch.parent else len(people.people)
            rows[i], starts[i] = rows[i][:0], np.zeros(size + 1, np.int64)
    return Histories(people.people, rows, starts), shape


def bought(table: LinkedRows, days: Days, budget: GaussianBudget, share: float) -> dict[str, Any] | None:
    """The released hours of rows of a table, as JSON; None where times are modelled by day, or people are too few."""
    most = int(days.n / (_EACH * budget.noise_std(share)))
    cells = next((own for own in _CELLS if own <= most), 0)
    if days.seconds != 1 or not cells:
        return None
    since = None if table.since is None else np.asarray(table.values(table.since), np.float64)
    noisy, std = budget.sums(HOURS, hour_counts(days, since, cells), share)
    counts = np.where(noisy.numpy() > _SEEN * std, noisy.numpy(), 0.0)
    if not counts.any():
        return None
    total = float(counts.sum())
    return {"edges": [DAY * i // cells for i in range(cells + 1)], "shares": (counts / total).tolist(), "noise": std / total}


@dataclass(frozen=True, eq=False)
class Hours:
    """Released hours of rows, and the functions that move rows inside their day.

    Arguments:
        about: edges of cells in seconds, their shares, which are 0 below 1.5 stds, the std of the `noise`, and as soon as they
            are learnt the functions of `first` and of `later` rows, each with `from` and `to`.
    """

    about: dict[str, Any]

    def learn(self, clock: Reals, first: npt.NDArray[np.bool_], weights: Reals) -> None:
        """Learn from the times of day (r,) of a large draw, in seconds; `first` ones are those of first rows."""
        edges, shares = np.array(self.about["edges"]), np.array(self.about["shares"])
        for kind, own in (("first", first), ("later", ~first)):
            mass = weights[own] / max(float(weights[own].sum()), 1e-300)
            law = np.histogram(clock[own], edges, weights=mass)[0]
            wanted = nearer(law, shares, self.about["noise"]) if law.any() else law
            wanted = wanted if np.allclose(wanted, law) else np.where(shares > 0, wanted, 0.0)
            self.about[kind] = transport(clock[own], mass, edges, law, wanted) if wanted.any() else {}

    def moved(self, clock: Reals, first: npt.NDArray[np.bool_]) -> Reals:
        """Times of day (r,), where those of a large draw follow the released law."""
        found = clock.copy()
        for kind, own in (("first", first), ("later", ~first)):
            if known := self.about.get(kind):
                found[own] = np.interp(clock[own], known["from"], known["to"])
        return np.minimum(found, DAY - 1)


def hours_of(calendar: Mapping[str, Any]) -> Hours | None:
    """The hours in a released calendar; None: there are none."""
    return Hours(calendar["hours"]) if calendar.get("hours") else None
