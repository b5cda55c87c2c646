"""A table of rows that hang on people, or on rows of another table: what is public of it, and its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.descriptors import written_as
from dpgen.columns.distances import Distance
from dpgen.data.batches import ROWS, frames
from dpgen.data.engines import EngineTable
from dpgen.data.raw_tables import Rows, types_of

Integers = npt.NDArray[np.int64]
Descriptor = dict[str, Any]
Flags = npt.NDArray[np.bool_]
TimeUnit = Literal["day", "second"]
Orphans = Literal["error", "drop"]

SECONDS = {"day": 86_400, "second": 1}


def whole_steps(times: npt.NDArray[Any], step: int) -> Integers:
    """Times in whole steps of so many seconds."""
    return np.floor_divide(times.astype("datetime64[s]").astype(np.int64), step)


def dated(field: Mapping[str, Any]) -> bool:
    """Whether a field holds dates or times."""
    return field.get("type") in ("date", "datetime")


@dataclass(frozen=True, eq=False, repr=False)
class LinkedRows:
    """A table of private rows that hang on people, or on rows of another table.

    Arguments:
        name: of the table.
        parent: number of the table that they hang on; 0 is that of people.
        rows: those of a person, or of a row above, one after the other in order of time; in memory, or kept on disk.
        starts: where the rows of each person, or of each row above, begin.
        sample: the row that stands for all of a person who has any, with its own order; of columns that later rows alone have a
            later row's value.
        draft: what is known of their columns; fields with "dpgen:blank" have no domain yet.
        spans: of columns that later rows alone have, and the first one alone.
        most: m, rows at most.
        least: of rows; 1 where there are no people without rows.
        buys_most: whether nobody said m, and it is bought.
        link: column by which they hang on people, or rows.
        key: column that names a row, if rows of other tables hang on it.
        pattern: of this key by its owner's word, see `GivenField`; "": nobody says one.
        count: column of the table above that is their number.
        order: column of the order, if any, and its field.
        gap: column of the time since the last row.
        since: column of the time of the first row since that of the row which it hangs on, if both are in time.
        distances: columns that are times from the order of their row.
        calendar: whether there are rows whose order follows from that of other rows.
        times: order of all rows (r,), if they have one.
        source: of the table, whose container and types samples have.
    """

    name: str
    parent: int
    rows: pd.DataFrame | EngineTable
    starts: Integers
    sample: pd.DataFrame
    draft: dict[str, Any]
    spans: Mapping[str, Any]
    most: int
    least: int
    buys_most: bool
    link: str
    key: str | None
    pattern: str
    count: str
    order: tuple[str, Mapping[str, Any]] | None
    gap: str
    since: str | None
    source: str | EngineTable
    calendar: bool = False
    distances: tuple[Distance, ...] = ()
    times: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def to_buy(self) -> dict[str, Any]:
        """The draft, with the order beside it where that of the first row follows from another table."""
        more = [dict(self.order[1])] if self.order is not None and self.since is not None else []
        return {**self.draft, "fields": [*self.draft["fields"], *more]}

    def between(self, first: int, last: int) -> LinkedRows:
        """This table, whose dates are known to be in some years."""
        assert self.order is not None
        name, given = self.order
        clock = ("", "") if given["type"] == "date" else ("T00:00:00", "T23:59:59")
        limits = {"minimum": f"{first}-01-01{clock[0]}", "maximum": f"{last}-12-31{clock[1]}"}
        known = {**given, "constraints": {**given.get("constraints", {}), **limits}}
        fields = [{**own, **known} if own["name"] == name else own for own in self.draft["fields"]]
        return replace(self, order=(name, known), draft={**self.draft, "fields": fields})

    def with_distances(self, draft: Descriptor, found: tuple[Distance, ...], step: int) -> LinkedRows:
        """This table in memory, some of whose columns are times from the order of their row, in steps of so many seconds."""
        assert self.order is not None
        assert isinstance(self.rows, pd.DataFrame)
        rows, sample = self.rows, self.sample
        at, one = (whole_steps(times, step) for times in (self.times, sample[self.order[0]].to_numpy()))
        for own in found:
            rows = rows.assign(**{own.made: own.of(rows[own.column], at, step, self.name)}).drop(columns=own.column)
            sample = sample.assign(**{own.made: own.of(sample[own.column], one, step, self.name)}).drop(columns=own.column)
        return replace(self, draft=draft, rows=rows, sample=sample, distances=(*self.distances, *found))

    @property
    def made(self) -> set[str | None]:
        """Columns that the model adds to the table, its number of rows apart: it stands in the table above."""
        return {self.gap, self.since, *(own.made for own in self.distances)} if self.order is not None else set()

    @property
    def in_time(self) -> list[str]:
        """The order, and the columns that are times from there."""
        return [] if self.order is None else [self.order[0], *(own.column for own in self.distances)]

    @property
    def times_written(self) -> dict[str, tuple[str, str]]:
        """Type and format of the dates that samples have and the model of a row has not."""
        found = {own.column: (own.type, own.format) for own in self.distances if own.type != "number"}
        if self.order is not None and dated(self.order[1]):
            found[self.order[0]] = self.order[1]["type"], written_as(self.order[1])
        return found

    @property
    def all_rows(self) -> Rows:
        """The rows, wherever they are."""
        return Rows(self.rows)

    def values(self, name: str) -> pd.Series:
        """A column of all rows, wherever they are."""
        if isinstance(self.rows, pd.DataFrame):
            return self.rows[name]
        return pd.concat([part[name] for part in frames(self.rows.batches(ROWS, "read"))], ignore_index=True)

    def one_row_each(self) -> Rows:
        """A row of each person who has any; columns that later rows alone have are those of a later row, or missing."""
        return Rows(self.sample)

    def some(self, above: Flags, people: Flags, whose: Integers) -> tuple[LinkedRows, Flags, Integers]:
        """Rows of some of those (n,) above, and of some people; which rows they are, and whose all are."""
        counts = np.diff(self.starts)
        mask, owner, at, parts = np.repeat(above, counts), np.repeat(whose, counts), 0, list[pd.DataFrame]()
        for table in [self.rows] if isinstance(self.rows, pd.DataFrame) else frames(self.rows.batches(ROWS, "read")):
            parts.append(table[mask[at : at + len(table)]])
            at += len(table)
        made = replace(
            self,
            rows=pd.concat(parts, ignore_index=True),
            starts=np.r_[0, counts[above].cumsum()].astype(np.int64),
            sample=self.sample[people[np.unique(owner)]].reset_index(drop=True),
            times=self.times[mask] if len(self.times) else self.times,
        )
        return made, mask, owner

    def seconds(self, unit: TimeUnit) -> int | None:
        """Seconds of a unit of the order; None: it is no time."""
        return SECONDS[unit] if self.order is not None and dated(self.order[1]) else None

    def shown(self, unit: TimeUnit) -> dict[str, Any]:
        """Names, parent, m and units of time of this table for a released model, as JSON: what `LinkedSamples` needs of it."""
        named, order = types_of(self.source), {} if self.order is None else self.order[1]
        until = None if order.get("dpgen:blank") else order.get("constraints", {}).get("maximum")
        own = {name: getattr(self, name) for name in ("name", "parent", "most", "gap", "since", "count", "key")}
        time = {"order": self.order and self.order[0], "dated": dated(order), "seconds": SECONDS[unit], "until": until}
        time |= {"distances": [own.shown() for own in self.distances], "times": self.times_written}
        return {**own, **time, "text": self.key is not None and is_text(named[self.key])}

    @property
    def named(self) -> KeyColumn | None:
        """The key of one row of each person who has any."""
        if self.key is None:
            return None
        return KeyColumn(self.key, self.pattern, types_of(self.source)[self.key], Rows(self.sample[[self.key]]))


@dataclass(frozen=True, eq=False)
class KeyColumn:
    """A key: its name, the pattern that its owner states, its public type, and one value of each person as a text."""

    name: str
    pattern: str
    type: str
    values: Rows

    @property
    def open(self) -> bool:
        """Whether it may be of texts, and nobody says their pattern."""
        return not self.pattern and (not self.type or is_text(self.type))


def is_text(kind: str) -> bool:
    """Whether keys of a type are texts in samples: they are whole numbers where the data have them, or a file without types."""
    return bool(kind) and not kind.startswith(("int", "uint"))
