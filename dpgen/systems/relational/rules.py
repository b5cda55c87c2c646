r"""Rules between people and their rows, found by counts of the people who break them, and kept by draws.

| kind | candidates | a person breaks it if | draws |
|---|---|---|---|
| from | a date of people, the order of rows of people | a row is before the date | first days are exchanged until they fit |
| until | the same | a row is after the date | the calendar of a person ends there |
| copy | categories of one name in both tables | a row has another value | the person's value is written into the rows |
| sum | a number of people, a number of rows | it is not the sum of the rows that are used | it is computed |

A candidate is worth a count only if independent tables of the released laws would break it in 4 % of the people, and in 9 noise
stds. A rule holds where the noisy count is below 1 % of the people, or 2.5 noise stds; a share that stands out of the noise is
that of samples as well. Prices and thresholds are those of one table, see `dpgen.systems.tables.rules`, whose search finds the
rules inside each table.

**Sensitivity.** A person, with all rows, breaks a candidate or does not: the count moves by 1 or not at all. So the counts of m
candidates move by at most :math:`\sqrt m` in L2 when a person comes, goes or is replaced: one replaced person moves each count
by at most 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from dpgen.columns.constraints import as_texts, codes_as_texts
from dpgen.columns.fields import CategoryField, Field, as_numbers
from dpgen.columns.forms import DAY
from dpgen.facts import Fact, Said
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.relational.calendars import Calendar
from dpgen.systems.relational.sums import Reals
from dpgen.systems.tables.rule_kinds import WORTH, Column
from dpgen.systems.tables.rules import Prices, said_broken

if TYPE_CHECKING:
    from dpgen.data.linked_tables import LinkedRows

Flags = npt.NDArray[np.bool_]

BREAKING = "people who break rules"
_APART = 2.0  # times by which means of totals may differ from those of sums
_WORDS = {
    "from": "{row} is never before {of}",
    "until": "{row} is never after {of}",
    "copy": "{row} is {of}",
    "sum": "{of} is the sum of {row}",
}


class Candidate(NamedTuple):
    """A rule that may hold: its kind, the table of rows, its column, that of people; people who break it by chance, a share."""

    kind: str
    table: int
    column: str
    of: str
    expected: float = 1.0


class Side(NamedTuple):
    """A table of people or rows as released: its columns by name, the calendar and the column of the order, if there are.

    `rows` is the mean number of rows of a person.
    """

    columns: Mapping[str, Column]
    rows: float = 0.0
    calendar: Calendar | None = None
    order: str = ""

    def timed(self, days: Any, seconds: int | None) -> Side:
        """The table with its calendar, released `days` of so many seconds."""
        return self._replace(calendar=Calendar(days, seconds) if days else None)


def candidates(people: Side, tables: Mapping[int, Side]) -> Iterator[Candidate]:
    """Candidates between people and the tables that hang on them, by names, types and released laws."""
    for number, side in tables.items():
        for name, own in people.columns.items():
            if side.calendar is not None and side.calendar.seconds and own.field.type in ("date", "datetime"):
                days, dates = side.calendar.steps * side.calendar.seconds, own.values
                before = float(np.searchsorted(days, dates, side="left").mean()) / len(days) * (1.0 - own.gaps)
                after = 1.0 - own.gaps - before
                yield Candidate("from" if before < after else "until", number, side.order, name, min(before, after))
            if isinstance(own.field, CategoryField) and name in side.columns:
                yield Candidate("copy", number, name, name, 1.0 - _agree(own, side.columns[name]))
            if own.field.type in ("integer", "number") and own.field.size > 1:
                sums = [given for given in side.columns.values() if given.field.type in ("integer", "number")]
                alike = [given for given in sums if _near(own.values, given.values, side.rows)]
                yield from (Candidate("sum", number, given.name, name) for given in alike)


def _near(totals: Reals, parts: Reals, rows: float) -> bool:
    """Whether totals may be sums of so many parts on average, by released laws."""
    total, part = abs(float(totals.mean())), abs(float(parts.mean())) * rows
    return total < _APART * part and part < _APART * total


def _agree(a: Column, b: Column) -> float:
    """The chance that independent values of two columns are one; 1 where they cannot be compared."""
    texts, others = codes_as_texts(a.field), codes_as_texts(b.field)
    if texts is None or others is None:
        return 1.0
    shares = {text: float(share) for text, share in zip(others, b.shares)}
    return sum(float(share) * shares.get(text, 0.0) for text, share in zip(texts, a.shares))


def breaking(
    people: pd.DataFrame, tables: Sequence[LinkedRows], fields: Sequence[Mapping[str, Field]], among: Sequence[Candidate]
) -> BoundedSum:
    """Numbers of people who break each candidate (m,); see the module for what a person moves."""
    broken = [broken_by(one, people, tables[one.table - 1], fields) for one in among]
    counts = torch.tensor([int(own.sum()) for own in broken])
    return BoundedSum(counts, math.sqrt(len(among)), "people", replaced=math.sqrt(len(among)), of_unit=True)


def broken_by(one: Candidate, people: pd.DataFrame, table: LinkedRows, fields: Sequence[Mapping[str, Field]]) -> Flags:
    """People (n,) who break a candidate."""
    counts = np.diff(table.starts)
    owner, own = np.repeat(np.arange(len(counts)), counts), fields[0][one.of].read(people[one.of]).reset_index(drop=True)
    if one.kind in ("from", "until"):
        unit = DAY if table.order is not None and table.order[1]["type"] == "date" else 1
        days, dates = as_numbers(pd.Series(table.times)), (as_numbers(own) // unit * unit)[owner]
        wrong = days < dates if one.kind == "from" else days > dates
        return np.bincount(owner, wrong, len(counts)) > 0
    given = fields[one.table][one.column].read(table.values(one.column)).reset_index(drop=True)
    if one.kind == "copy":
        wrong = as_texts(given).fillna("").to_numpy() != as_texts(own).fillna("").to_numpy()[owner]
        return np.bincount(owner, wrong, len(counts)) > 0
    found = np.bincount(owner, np.nan_to_num(as_numbers(given)), len(counts))
    return ~np.isclose(found, np.nan_to_num(as_numbers(own)), rtol=1e-9, atol=1e-6)


def found_rules(
    people: pd.DataFrame,
    tables: Sequence[LinkedRows],
    fields: Sequence[Mapping[str, Field]],
    among: Sequence[Candidate],
    n: float,
    budget: GaussianBudget,
    names: Sequence[str],
) -> tuple[list[dict[str, Any]], list[Said]]:
    """The rules of people and rows that hold, as JSON, and what is said of them; none is bought where people are too few."""
    before, prices = budget.left, Prices(budget, n, budget.whole)
    worth = sorted(
        (one for one in among if one.expected >= WORTH and prices.told(one)), key=lambda one: (one.kind == "sum", -one.expected)
    )
    worth = worth[: int(prices.most / prices.unit)]
    if not worth:
        return [], []
    share = min(prices.of(worth), prices.most)
    found, sentences, sums = list[dict[str, Any]](), list[str](), set[str]()
    for rule in prices.holding(BREAKING, worth, breaking(people, tables, fields, worth), share):
        one = rule.candidate
        if one.kind == "sum" and one.of in sums:
            continue
        sums |= {one.of} if one.kind == "sum" else set()
        found.append({"kind": one.kind, "table": one.table, "column": one.column, "of": one.of, "broken": rule.broken})
        words = _WORDS[one.kind].format(row=f"{names[one.table]}.{one.column}", of=f"{names[0]}.{one.of}")
        sentences.append(f"{words} ({said_broken(rule.share, rule.std, 'of people')})")
    price = f"{(before - budget.left) / budget.whole:.1%}"
    return found, [Fact.RULES(columns=tuple(sentences), share=price)] if found else []


# -- draws -------------------------------------------------------------------------------------------------------------


def ends(
    rules: Sequence[Mapping[str, Any]], people: pd.DataFrame, seconds: int | None, generator: np.random.Generator
) -> tuple[Reals, Reals]:
    """The first and the last unit (n,) in which rows of each person may be, without an end where no rule gives one."""
    low, high = np.full(len(people), -np.inf), np.full(len(people), np.inf)
    for rule in rules:
        if rule["kind"] in ("from", "until") and seconds is not None:
            dates = as_numbers(people[rule["of"]].reset_index(drop=True))
            free = np.isnan(dates) | (generator.random(len(people)) < rule["broken"])
            if rule["kind"] == "from":
                low = np.where(free, low, np.maximum(low, np.floor(dates / seconds)))
            else:
                high = np.where(free, high, np.minimum(high, np.floor(dates / seconds)))
    return low, high


def settled(
    rules: Sequence[Mapping[str, Any]],
    rows: pd.DataFrame,
    order: tuple[str, int],
    people: pd.DataFrame,
    owner: npt.NDArray[np.int64],
    holds: Callable[[pd.DataFrame], Flags],
) -> None:
    """Move dates of people to their own rows where no day of the calendar was left for these; `order` has its unit.

    Whose own constraints, of which `holds` says who satisfies them (n,), would be broken keep their date.
    """
    name, unit = order
    for rule in rules:
        if rule["kind"] in ("from", "until") and not rule["broken"] and len(rows):
            days = rows[name].groupby(owner).agg("min" if rule["kind"] == "from" else "max")
            ahead = as_numbers(people[rule["of"]].iloc[days.index]) // unit - as_numbers(days) // unit
            wrong = ahead > 0 if rule["kind"] == "from" else ahead < 0
            at = days.index.to_numpy()[wrong]
            if len(at):
                values = people[rule["of"]].to_numpy().copy()
                values[at] = days.to_numpy()[wrong].astype(values.dtype)
                moved = people.assign(**{rule["of"]: values})
                people[rule["of"]] = moved[rule["of"]].where(holds(moved) | ~holds(people), people[rule["of"]])


def copied(
    rules: Sequence[Mapping[str, Any]],
    rows: pd.DataFrame,
    people: pd.DataFrame,
    owner: npt.NDArray[np.int64],
    generator: np.random.Generator,
) -> None:
    """Write values of people into the rows that copy them."""
    for rule in rules:
        if rule["kind"] == "copy":
            kept = (generator.random(len(people)) >= rule["broken"])[owner]
            values = people[rule["of"]].iloc[owner].set_axis(rows.index)
            rows[rule["column"]] = values if kept.all() else values.where(kept, rows[rule["column"]])
