r"""Dates of a row that are never before its own time, or never after it, found by noisy counts.

A row's time follows from the rows before it, so a discharge has no place beside the admission in the model of a row, but the
time from one to the other has: see `dpgen.columns.distances`. Where a schema orders both, that is known. Else it is asked of
the columns of rows whose domain nobody states, before these are bought. A person is in one cell for each column:

| cell | values of the column in the rows of a person |
|---|---|
| 0 | there are none |
| 1 | all are at the time of their row or after it, one is after it |
| 2 | all are at it or before it, one is before it |
| 3 | all are at it |
| 4 | one is after it and one before, or one is more than 400 days away, no date, or no whole number of units |

A column comes after the row's time where so many people are in cells 1 and 3 that noise cannot make it so, and the noisy number
in cells 2 and 4 is below 1 % of these, or below 2.5 stds. A value on the other side is then taken to be at the row's time.

**Sensitivity.** Of each column a person is in one cell, by that person's rows alone. So the counts of m columns move by
:math:`\sqrt m` in L2 when a person comes or goes, and by :math:`\sqrt{2 m}` for another person in their place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from dpgen.columns.constraints import constraint_of
from dpgen.columns.descriptors import written_as
from dpgen.columns.forms import DAY, floats
from dpgen.facts import Fact, Said
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.relational.sums import Integers
from dpgen.systems.tables.rules import APART, BROKEN, FINE, LEFT, said_broken

if TYPE_CHECKING:
    from dpgen.data import LinkedTables
    from dpgen.systems.tables.plan import Rules

ORDERS = "people by dates of rows beside the row's own"
OF_ORDERS = 0.02
"""Share of mu^2 at most, for all dates of all tables."""
CELLS, MOST_DAYS = 5, 400

_COARSE = 50.0  # n by the noise std, below which nothing is asked


class Asked(NamedTuple):
    """A column that may hold dates beside the order of its rows: number of the table, name, and how its dates are written."""

    number: int
    column: str
    format: str = ""


def candidates(data: LinkedTables, among: Rules) -> list[Asked]:
    """Columns of rows in time whose domain nobody states, by names and public types."""
    shared = {name for rule in data.across for name in constraint_of(rule).names}
    found = list[Asked]()
    for number, table in enumerate(data.tables, 1):
        if table.order is None or table.seconds(data.linking.time_unit) is None or not isinstance(table.rows, pd.DataFrame):
            continue
        ruled = {name for rule in table.draft.get("dpgen:constraints", []) for name in constraint_of(rule).names}
        keys = {table.order[0], table.key, *table.made, *(key.key.column for key in data.public(number))}
        for field in table.draft["fields"]:
            name = field["name"]
            if name in {*keys, *ruled} or f"{table.name}.{name}" in shared or name not in table.rows or not _open(field):
                continue
            if _wanted(among, *(f"{table.name}.{own}" for own in (name, table.order[0]))):
                found.append(Asked(number, name, written_as(field) or written_as(table.order[1])))
    return found


def _open(field: Mapping[str, Any]) -> bool:
    """Whether a field may hold dates whose domain nobody states."""
    limits = {"minimum", "maximum", "enum"} & {*field.get("constraints", {})}
    return field.get("type", "any") in ("any", "date", "datetime") and bool(field.get("dpgen:blank")) and not limits


def _wanted(among: Rules, *names: str) -> bool:
    """Whether rules are looked for between these columns, as TABLE.COLUMN."""
    return among != "off" and (among == "auto" or {*names} <= {*among})


def people_by_dates(data: LinkedTables, among: Sequence[Asked]) -> BoundedSum:
    """Numbers (m, 5) of people by cells; see the module for what a person moves."""
    counts = np.stack([np.bincount(cells_of(data, one), minlength=CELLS) for one in among])
    size = float(len(among))
    return BoundedSum(torch.from_numpy(counts), math.sqrt(size), "people", replaced=math.sqrt(2 * size), of_unit=True)


def cells_of(data: LinkedTables, one: Asked) -> Integers:
    """The cell (n,) of each person for a column."""
    table = data.tables[one.number - 1]
    step, values = table.seconds(data.linking.time_unit) or 1, table.values(one.column)
    seconds, there = floats(values, "datetime", one.format), values.notna().to_numpy(bool)
    at = np.floor_divide(table.times.astype("datetime64[s]").astype(np.int64), step)
    away, known = np.floor_divide(seconds, step) - at, np.isfinite(seconds)
    bad = there & ~(known & (np.abs(away) <= MOST_DAYS * DAY // step) & (np.nan_to_num(seconds) % step == 0))
    whose = np.repeat(np.arange(len(table.starts) - 1), np.diff(table.starts))
    for number in reversed(data.path(one.number)[:-1]):
        starts = data.tables[number - 1].starts
        whose = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[whose]
    any_of = (np.bincount(whose, flags, data.n) > 0 for flags in (there, bad, there & (away > 0), there & (away < 0)))
    some, wrong, after, before = any_of
    return np.select([~some, wrong | (after & before), after, before], [0, 4, 1, 2], 3).astype(np.int64)


def in_order(
    data: LinkedTables, n: float, among: Rules, budget: GaussianBudget, whole: float
) -> tuple[LinkedTables, list[Said]]:
    """The tables with times from the row's own for dates that come after it or before it, and what is said of them."""
    asked, noise = candidates(data, among), budget.noise_std(1.0) / n
    share = min(len(asked) * (FINE * noise) ** 2, OF_ORDERS * whole)
    if not asked or math.sqrt(len(asked) / share) * noise > 1 / _COARSE:
        return data, []
    noisy, std = budget.sums(ORDERS, people_by_dates(data, asked), share * (1 - 1e-9))
    signs, sentences = dict[tuple[int, str], int](), list[str]()
    both = std * math.sqrt(2)
    for one, (_, after, before, same, neither) in zip(asked, noisy.tolist()):
        for sign, right, wrong in ((1, after + same, before + neither), (-1, before + same, after + neither)):
            enough = right > APART * both and wrong < max(LEFT * right, BROKEN * both)
            if enough and (one.number, one.column) not in signs:
                table, order = data.tables[one.number - 1], str((data.tables[one.number - 1].order or ("",))[0])
                signs[one.number, one.column] = sign
                told = said_broken(wrong / n, both / n, "of people")
                side = "before" if sign == 1 else "after"
                sentences.append(f"{table.name}.{one.column} is never {side} {table.name}.{order} ({told})")
    if not signs:
        return data, []
    return data.with_distances(signs), [Fact.RULES(columns=tuple(sentences), share=f"{share / whole:.1%}")]
