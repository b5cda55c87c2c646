r"""Gaps between successive rows of a person: their step and whether some are zero, bought; how far a gap may be moved.

The domain of gaps is bought from one later row of each person, as that of every number. Two facts of it are bought of all later
rows before that, in one histogram: how many gaps are zero, and of the others the largest step of which each is a multiple, one
of public ones (a day, an hour, a quarter, five minutes, a minute, a second; a week, a day; powers of ten of whole numbers).

**Sensitivity.** The counts are those of a column of later rows, see `sums`: each of the r - 1 later rows of a person adds
floor(2^20 / (r - 1)) parts of a whole to one cell, on lower levels divided by the numbers of rows above, too. The gaps of a
person are a function of that person's rows alone. So L1 and L2 sensitivity are 1 when a person comes or goes, and L2
sensitivity :math:`\sqrt 2` for another person in their place.

**Use.** Where zeros do not stand out of the noise, no gap is zero: the least one is a step. A gap that is drawn stays in its
place of the released law when rows are moved to the days of the calendar, see `placing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from dpgen.columns.axes import finest
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.relational.calendars import Days, day_counts, whole_units

if TYPE_CHECKING:
    from dpgen.data.linked_tables import LinkedRows
    from dpgen.privacy.curator import GaussianBudget

GAPS = "steps of gaps between rows"
OF_GAPS = 0.02
"""Share of mu^2 for the steps of gaps, of all tables together."""

_STEPS: Mapping[int | None, tuple[int, ...]] = {
    1: (86_400, 3_600, 900, 300, 60, 1),
    86_400: (7, 1),
    None: (1_000, 100, 10, 1),
}  # in units of so many seconds; None: whole numbers
_ZEROS = 2.0  # noise stds of zeros from which on there are some


def gap_counts(days: Days) -> BoundedSum:
    """Sums (1 + steps,) of all later rows: gaps of zero, then by the largest step of which a gap is a multiple."""
    starts, steps = days.people[0].starts[days.number - 1], _STEPS[days.seconds]
    units = whole_units(days.times, days.seconds)
    gaps = np.diff(units, prepend=units[:1])
    gaps[starts[:-1][np.diff(starts) > 0]] = 0  # those of first rows are no gaps, and not counted
    held = np.stack([gaps == 0, *(gaps % step == 0 for step in steps)])
    return day_counts(*days.people, days.number, np.argmax(held, axis=0), len(held), "later")


def in_steps(
    tables: Sequence[LinkedRows], days: Sequence[Days | None], budget: GaussianBudget, share: float
) -> tuple[LinkedRows, ...]:
    """The tables whose gaps between rows have a known step, bought for a share of 1 / s^2 where nobody states their domain."""
    part = share / max(1, sum(own is not None for own in days)) * (1 - 1e-9)
    return tuple(table if own is None else with_steps(table, own, budget, part) for table, own in zip(tables, days))


def with_steps(table: LinkedRows, days: Days, budget: GaussianBudget, share: float) -> LinkedRows:
    """The table, of whose gaps the step and the least one are known; as it is where a schema states them."""
    field = next((own for own in table.draft["fields"] if own["name"] == table.gap), None)
    if field is None or not field.get("dpgen:blank") or field.get("constraints", {}).get("minimum") != 0:
        return table
    noisy, std = budget.sums(GAPS, gap_counts(days), share)
    zeros, counts = float(noisy[0]), noisy.numpy()[1:]
    step = int(finest(counts, std, tuple(map(Decimal, _STEPS[days.seconds]))) or 1)
    rules = field["constraints"] | {"minimum": 0 if zeros > _ZEROS * std else step}
    known = {**field, "constraints": rules, "dpgen:rounding": step}
    return replace(table, draft={**table.draft, "fields": [known if own is field else own for own in table.draft["fields"]]})
