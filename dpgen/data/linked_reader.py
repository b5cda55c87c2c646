"""Reads the rows of linked tables whose columns are known, by rules that are the same for synthetic tables.

What is used of a person is a function of that person's rows alone, under a secret key, so it does not matter in which pieces
they come.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow

from dpgen.columns.descriptors import EXACT, dated, written_as
from dpgen.columns.distances import TimeUnit
from dpgen.columns.forms import LARGEST, Reals, floats
from dpgen.columns.votes import reading
from dpgen.containers import InMemory, in_memory
from dpgen.containers.memory import with_names
from dpgen.data.linked_tables import SECONDS, Integers, LinkedRows, LinkedTables, Linking, Orphans, Reference
from dpgen.data.raw_tables import is_made, read_names, types_of, unnamed
from dpgen.data.split import People, Split, texts
from dpgen.data.table_files import read_table
from dpgen.facts import Fact, Said
from dpgen.schema import Schema

if TYPE_CHECKING:
    from dpgen.data.engines import EngineTable

Source: TypeAlias = "str | EngineTable"

MOST_ROWS, MOST_BOUGHT = 200, 60
"""Rows of a person, or of a row above, at most; where their number is bought."""


def called(source: Source, table: str) -> str:
    """The name of a table in messages: its path, or the table's own name where it is in memory or a relation of an engine."""
    if not isinstance(source, str):
        return source.name if source.files or source.snapshot else table
    return table if isinstance(source, InMemory) else source


def with_called(source: Source, names: Mapping[str, str]) -> InMemory:
    """A table in memory, or of a file, with other names of some columns."""
    assert isinstance(source, str)  # others are refused
    table = source if isinstance(source, InMemory) else in_memory(read_table(source, text=None))
    return with_names(table, names)


@dataclass(frozen=True)
class Drafted:
    """Linked tables whose columns are known, and whose rows are read by `read`.

    Arguments:
        linking: what they are called, and the keys between them.
        people_path: the table of people; None: there is none.
        people_draft: what is known of the columns of people.
        tables: of rows, which are not read yet.
        split: which people are kept for evaluation.
        across: constraints on columns of several tables.
        of: reads other tables of the same names and columns, see `Reader.of`.
    """

    linking: Linking
    people_path: Source | None
    people_draft: dict[str, Any]
    tables: tuple[LinkedRows, ...]
    split: Split
    across: Sequence[Mapping[str, Any]]
    of: Callable[[Mapping[str, Any], Sequence[int]], LinkedTables]

    def read(self, most: Sequence[int | None]) -> LinkedTables:
        """The tables with at most so many rows of each person, or of a row above; None: as many as there can be."""
        tables = [replace(t, most=MOST_BOUGHT if m is None else m, buys_most=m is None) for t, m in zip(self.tables, most)]
        people_draft = _with_counts(self.people_draft, 0, tables)
        people, index = self._people(people_draft, tables)
        walk = _Walk(self, tables, people, index)
        walk.first()
        walk.further()
        check(walk.frames[0], people_draft)
        bought = None in most
        found = replace(self.split, people=walk.keys.tolist())
        result = LinkedTables(
            name=self.linking.tables[0],
            references=walk.references(),
            people=walk.frames[0],
            tables=walk.made(),
            people_draft=people_draft,
            names=self.linking.tables,
            person=self.linking.person,
            keys=walk.keys,
            across=self.across,
            source=self.people_path,
            linking=self.linking,
            reread=self.of,
            facts=(*_placed(tables), *self._facts(tables, people_draft, found.fact("people"), bought)),
            again=self.read if bought else None,
        )
        test = found.test_rows(len(walk.keys)).numpy()
        return replace(result.some(~test), test=result.some(test)) if test.any() else result

    @property
    def of_whom(self) -> str:
        """The table of people in messages."""
        return called(self.people_path or "", self.linking.tables[0])

    def _people(self, draft: dict[str, Any], tables: Sequence[LinkedRows]) -> tuple[pd.DataFrame, pd.Index | None]:
        """The table of people and their keys; None: people are those who have rows."""
        if self.people_path is None:
            return pd.DataFrame(), None
        person, made = self.linking.person, {table.count for table in tables if not table.parent}
        keys = [person, *self.linking.others(self.linking.people)]
        people = pd.concat(self._tables(self.people_path, self.of_whom, keys, draft, made), ignore_index=True)
        index = pd.Index(people[person].astype(str).to_numpy(object))
        if not index.is_unique:
            raise ValueError(f"{self.of_whom} has a person of {person!r} twice; each must have one line")
        return people, index

    def _facts(
        self, tables: Sequence[LinkedRows], people_draft: dict[str, Any], of_split: Fact | Said, bought: bool
    ) -> Iterator[Fact | Said]:
        """Facts of a statement on who is left out, who is kept apart, columns without a model, and what is read twice."""
        if self.linking.orphans == "drop":
            yield Fact.ORPHANS_LEFT_OUT
        yield of_split
        for t in tables:
            keys = {t.link, t.key, *t.in_time, *self.linking.others(t.name)}
            yield from self._unnamed(t.source, t.draft, keys)
        if self.people_path is not None:
            yield from self._unnamed(self.people_path, people_draft, {*self.linking.others(self.linking.people)})
        for source in [self.people_path, *(table.source for table in tables)][::-1]:
            if bought and not isinstance(source, str | None):
                yield from source.facts

    def _unnamed(self, source: Source, draft: dict[str, Any], keys: set[str | None]) -> tuple[Said, ...]:
        return unnamed(source, _with(draft, keys), self.linking.person)

    def reading(self, table: LinkedRows, above: str, index: pd.Index | None) -> Reading:
        """A reading of a table whose rows hang on `above`, as messages call it."""
        linking, path = self.linking, called(table.source, table.name)
        others = linking.others(table.name)
        return Reading(table, linking.person, linking.time_unit, linking.orphans, index, path, above, self.split.key, others)

    def pieces(self, tables: Sequence[LinkedRows]) -> list[Iterable[pd.DataFrame]]:
        """The rows of all tables; where rows hang on others, these have them as a text, which orders rows that are alike."""
        found: list[Iterable[pd.DataFrame]] = [self._rows(table) for table in tables]
        if len(tables) == 1:
            return found
        frames = [pd.concat(own, ignore_index=True) for own in found]
        for number, own in reversed([*enumerate(tables, 1)]):
            if own.key is not None:
                hung = [(table, frame) for table, frame in zip(tables, frames) if table.parent == number]
                below = [(frame.drop(columns=self._keys(table, frame)), table.link) for table, frame in hung]
                keys = [own.link, own.key, self.linking.person, *self.linking.others(own.name)]
                frames[number - 1] = with_rows(frames[number - 1], keys, own.key, below)
        return [[frame] for frame in frames]

    def _rows(self, table: LinkedRows) -> Iterator[pd.DataFrame]:
        """The used columns of a table of rows."""
        person = self.linking.person
        keys = [table.link] if table.key is None else [table.link, table.key]
        keys += [person] if table.parent and person in types_of(table.source) else []
        keys += self.linking.others(table.name)
        return self._tables(table.source, called(table.source, table.name), keys, _with(table.draft, table.in_time), table.made)

    def _keys(self, table: LinkedRows, frame: pd.DataFrame) -> list[str]:
        """The columns of keys in a table of rows but that by which they hang on others."""
        named = {table.key, self.linking.person, *self.linking.others(table.name)} - {table.link}
        return [str(name) for name in named if name in frame]

    def _tables(
        self, path: Source, called: str, keys: Sequence[str], draft: dict[str, Any], made: set[Any]
    ) -> Iterator[pd.DataFrame]:
        """The used columns of a table, in one piece, or of an engine in several with all lines of a person in one of them."""
        (link, *_), found = keys, False
        people = People(link, 1, self.split.key)
        wanted = [*dict.fromkeys([*keys, *(name for name in read_names(draft) if name not in made)])]
        pieces: Iterable[pd.DataFrame]
        if not isinstance(path, str):
            from dpgen.data.batches import EngineBatches, frames  # here and below: data in memory need no engine

            pieces = EngineBatches(path.columns(wanted), partial(frames, people=people), by=link)
        else:
            pieces = [read_table(path, wanted, text=wanted, missing=draft.get("missingValues", [""]))]
        for table in pieces:
            if table[link].isna().any():
                whom = "its person" if link == self.linking.person else "the row it hangs on"
                raise ValueError(f"{called} has a line without {link!r}: every line needs {whom}")
            people.require_names(table[link])
            found = found or len(table) > 0
            if found:
                yield table
        if not found:
            raise ValueError(f"{called} is empty: it has {len(types_of(path))} columns and no record")


class _Walk:
    """Rows of all tables, those above first; tables come in the order in which they hang on each other.

    `keys` are the people, `counts` their numbers of rows of the first table, `frames` the tables that are read, people's first.
    """

    def __init__(self, drafted: Drafted, tables: Sequence[LinkedRows], people: pd.DataFrame, index: pd.Index | None) -> None:
        self.drafted, self.tables, self.index = drafted, tables, index
        self.keys, self.frames = np.empty(0, object), [people]
        self.pieces = drafted.pieces(tables)
        self.readings, self.numbers, self.above = list[Reading](), list[Integers](), list[Above]()
        self.named: dict[str, npt.NDArray[Any]] = {}

    def first(self) -> None:
        """Read the first table, which says who the people are where no table does; then these come in its order."""
        drafted, rows, counts = self.drafted, list[Any](), np.empty(0, np.int64)
        for first in self.tables[:1]:
            self.readings.append(reading := drafted.reading(first, drafted.of_whom, self.index))
            read = map(reading.made, self.pieces[0])
            if not isinstance(first.source, str) and len(self.tables) == 1:
                types = {name: pyarrow.int64() for name in first.made} | {first.order and first.order[0]: reading.stamp}
                rows.append(kept(first.source, read, types))
            else:
                rows.extend(read)
            self.keys, counts = reading.keys, reading.counts
        people = self.frames[0]
        if self.index is not None:
            known = people.set_index(self.index)
            left = self.index.difference(pd.Index(self.keys, dtype=object), sort=False)
            self.keys, counts = np.r_[self.keys, left.to_numpy(object)], np.r_[counts, np.zeros(len(left), np.int64)]
            people = known.loc[self.keys]
        keys = self.keys
        people = pd.DataFrame(people, index=pd.Index(keys, dtype=object)).reset_index(drop=True)
        self.named = {name: people[name].to_numpy(object) for name in drafted.linking.others(drafted.linking.people)}
        self.frames = [people.drop(columns=[drafted.linking.person, *self.named], errors="ignore"), *rows]
        self.above.append(Above(keys, pd.Index(keys), keys, np.arange(len(keys)), keys, keys))
        for first in self.tables[:1]:
            self._count(first, self.readings[0], counts)

    def further(self) -> None:
        """Read the tables after the first one."""
        for table, own in zip(self.tables[1:], self.pieces[1:]):
            parent = self.tables[table.parent - 1]
            of_what = called(parent.source, parent.name) if table.parent else self.drafted.of_whom
            self.readings.append(reading := self.drafted.reading(table, of_what, None))
            self.frames.append(*(reading.under(frame, self.above[table.parent]) for frame in own))
            self._count(table, reading, reading.counts)

    def _count(self, table: LinkedRows, reading: Reading, counts: Integers) -> None:
        """Add the number of rows to what these hang on."""
        self.frames[table.parent] = self.frames[table.parent].assign(**{table.count: counts})
        self.above.append(reading.below(self.above[table.parent], counts))
        self.numbers.append(counts)

    def references(self) -> tuple[Reference, ...]:
        """Columns that name other people, of people and of all rows."""
        each = np.arange(len(self.keys)), np.zeros(len(self.keys), np.int64), self.named
        return tuple(
            Reference.of(number, name, texts, (owner, place), self.keys, self.drafted.split.key)
            for number, (owner, place, named_there) in enumerate([each, *(reading.named for reading in self.readings)])
            for name, texts in named_there.items()
        )

    def made(self) -> tuple[LinkedRows, ...]:
        """The tables with their rows."""
        return tuple(
            replace(
                table,
                rows=frame,
                starts=np.r_[0, count.cumsum()].astype(np.int64),
                sample=pd.concat(own.samples, ignore_index=True),
                times=np.concatenate(own.times_of_rows) if own.times_of_rows else table.times,
                draft=_with_counts(table.draft, number, self.tables),
            )
            for number, (table, frame, count, own) in enumerate(
                zip(self.tables, self.frames[1:], self.numbers, self.readings), 1
            )
        )


def _with(draft: Mapping[str, Any], names: Iterable[str | None]) -> dict[str, Any]:
    """A draft with fields of more columns, of which it says nothing."""
    return {**draft, "fields": [*draft["fields"], *({"name": name} for name in names)]}


def _with_counts(draft: Mapping[str, Any], number: int, tables: Sequence[LinkedRows]) -> dict[str, Any]:
    """The draft of a table's schema with one integer field in [least, most] for each table that hangs on its rows.

    Each number is a code, as the model says how many rows there are.
    """
    counts = [
        {
            "name": t.count,
            "type": "integer",
            "constraints": {"required": True, "minimum": t.least, "maximum": t.most},
            **({"dpgen:bins": {"equal": t.most + 1 - t.least}} if t.most > EXACT else {}),
        }
        for t in tables
        if t.parent == number
    ]
    known = {field["name"] for field in counts}
    return {**draft, "fields": [*(field for field in draft["fields"] if field["name"] not in known), *counts]}


def _placed(tables: Sequence[LinkedRows]) -> Iterator[Said]:
    """Facts of a statement on at most m rows of a person or of a row above, for each table whose m is public."""
    for number, table in enumerate(tables):
        if not table.buys_most and number:
            yield Fact.ROWS_OF_ROWS(most=table.most, table=table.name)
        elif not table.buys_most:
            yield (Fact.WINDOW_OF_ROWS if table.order is not None else Fact.ROWS_IN_NO_ORDER)(most=table.most)


# -- rows of some people at a time: in order of time, at most m of each, and one that stands for all of them -----------

MEMORY = "200MB"
"""Memory of DuckDB for each table: people, rows as they are, and those that are used of a single table of rows."""


_HIDDEN, _SPELT = "\0rows", "\0rows as they are"  # columns of what hangs on a row, as a text: by value, and letter by letter


@dataclass(frozen=True, eq=False)
class Above:
    """Persons, or rows of a table, that rows of another one hang on.

    Arguments:
        keys: that name each (n,), as texts.
        known: all keys (k,), of those that are not used, too.
        whose: the person (k,) of each of these.
        person: whose each is (n,).
        names: of all people, as texts.
        labels: texts (n,) that choose the windows of what hangs on them, functions of the person alone.
        times: of each (n,) in whole units, if they have an order.
    """

    keys: npt.NDArray[np.object_]
    known: pd.Index
    whose: npt.NDArray[np.object_]
    person: Integers
    names: npt.NDArray[np.object_]
    labels: npt.NDArray[np.object_]
    times: Integers | None = None


@dataclass
class Reading:
    """Rows of `table` that are used of some people at a time, who are gathered in the order in which they come.

    `above` is what people, or what rows hang on, are called in messages, and `path` the rows; `index` the people, None: those
    who have rows. `others` are columns that name other people, which decide nothing here.
    """

    table: LinkedRows
    person: str
    time_unit: TimeUnit
    orphans: Orphans
    index: pd.Index | None
    path: str
    above: str
    secret: bytes
    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.found: list[tuple[npt.NDArray[np.object_], Integers]] = []
        self.samples: list[pd.DataFrame] = []
        self.times_of_rows: list[npt.NDArray[Any]] = []
        self.known = pd.Index([])
        self.whose = np.empty(0, object)
        self.own_keys = np.empty(0, object)
        self.named: tuple[Integers, Integers, dict[str, npt.NDArray[Any]]] = np.empty(0, np.int64), np.empty(0, np.int64), {}
        self.times: Integers = np.empty(0, np.int64)
        self.link, self.key, self.gap = self.table.link, self.table.key, self.table.gap
        self.order = self.table.order and self.table.order[0]
        self.dated = self.table.order is not None and dated(self.table.order[1])
        self.timed = self.gap in self.table.spans
        fields = {field["name"]: field for field in self.table.draft["fields"]}
        rules = fields[self.gap].get("constraints", {}) if self.timed else {}
        self._least = int(rules.get("minimum") or min(map(int, rules.get("enum", [0]))))

    @property
    def stamp(self) -> Any:
        """The type of the order where it is a date."""
        return pyarrow.timestamp("s") if self.dated else None

    @property
    def keys(self) -> npt.NDArray[np.object_]:
        """People who have rows."""
        return np.concatenate([keys for keys, _ in self.found])

    @property
    def counts(self) -> Integers:
        """Numbers (k,) of used rows, one for each person of `keys`."""
        return np.concatenate([counts for _, counts in self.found])

    def made(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows that are used of the people in a table, who are in no other one."""
        of_rows = self.whose = rows[self.person].astype(str).to_numpy(object)
        self._name(rows)
        if self.index is not None:
            known = self._known(self.index.get_indexer(pd.Index(of_rows)) >= 0)
            rows, of_rows = rows[known].reset_index(drop=True), of_rows[known]
        owner, keys = pd.factorize(of_rows, sort=True)  # numpy's texts end before a last zero byte
        whole = Above(keys, pd.Index(keys), keys, np.arange(len(keys)), keys, keys)
        return self._used(rows, owner.astype(np.int64), whole)

    def under(self, rows: pd.DataFrame, above: Above) -> pd.DataFrame:
        """The rows that are used of a table whose rows hang on rows of another one, or on people who are known already."""
        links = pd.Index(rows[self.link].astype(str).to_numpy(object))
        self._name(rows)
        at = above.known.get_indexer(links)
        known = self._known(at >= 0)
        self.whose = np.where(known, above.whose[at], "")
        # Of rows that a window leaves out, too: they order the rows above, and would be of somebody else.
        if self.person in rows and (known & (rows[self.person].astype(str).to_numpy(object) != self.whose)).any():
            raise ValueError(f"{self.path} has a row of another {self.person!r} than the row of {self.above} it hangs on")
        owner = pd.Index(above.keys).get_indexer(links)
        used = owner >= 0
        return self._used(rows[used].reset_index(drop=True), owner[used].astype(np.int64), above)

    def _name(self, rows: pd.DataFrame) -> None:
        """Keep the keys of all rows, which must differ."""
        if self.key is not None:
            if rows[self.key].isna().any():
                raise ValueError(f"{self.path} has a row without {self.key!r}, on which other rows hang")
            People(self.key, 1, self.secret).require_names(rows[self.key])
            self.known = pd.Index(rows[self.key].astype(str).to_numpy(object))
            if not self.known.is_unique:
                raise ValueError(
                    f"{self.path} has a row of {self.key!r} twice, so no rows of another table can hang on it; if it is a key "
                    "to that table, public=[TABLE] says that everybody may know the table"
                )

    def _known(self, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Rows that hang on something."""
        if not known.all() and self.orphans == "error":
            whose, more = ("person", "people") if self.link == self.person else (repr(self.link), "rows")
            raise ValueError(
                f"{self.path} has rows whose {whose} is not in {self.above}; add the {more}, or choose orphans=drop"
            )
        return known

    def _used(self, rows: pd.DataFrame, owner: Integers, above: Above) -> pd.DataFrame:
        order = self.order
        rows, starts, counted, alike = self._ordered(rows, owner, above)
        inside, starts = self._window(starts, above.labels)
        rows, counted = rows[inside].reset_index(drop=True), counted[inside]
        counts = np.diff(starts)
        owner = np.repeat(np.arange(len(counts)), counts)
        named = dict[str, Any]()
        if order is not None:
            named[order] = rows[order].to_numpy()
            rows = self._in_time(rows, counted, starts, owner, above)
        if self.key is not None:
            named[self.key], self.times = rows[self.key].astype(str).to_numpy(object), counted
            self.own_keys = named[self.key]
        self.named = above.person[owner], *self._named(rows, owner, alike, inside)
        rows = rows.drop(columns=self._keys(rows))
        check(rows, self.table.draft)
        named = rows.assign(**named)
        self.samples.append(self._sample(named, np.arange(len(rows)) - starts[owner], above.person[owner], above.names))
        self.found.append((above.keys, counts))
        return rows

    def _in_time(self, rows: pd.DataFrame, counted: Integers, starts: Integers, owner: Integers, above: Above) -> pd.DataFrame:
        """Rows (r,) whose order has that of the first row of their owner: that of later rows follows from the times between."""
        assert self.order is not None
        begin = starts[owner]
        self.times_of_rows.append(rows[self.order].to_numpy())
        if self.gap in rows:
            rows.loc[rows.index[starts[:-1][np.diff(starts) > 0]], self.gap] = self._least
        if self.table.since is None or above.times is None:
            return rows.assign(**{self.order: rows[self.order].iloc[begin].to_numpy()})
        rows[self.table.since] = counted[begin] - above.times[owner]
        return rows.drop(columns=self.order)

    def _keys(self, rows: pd.DataFrame) -> list[str]:
        """The columns of keys that rows have."""
        return [str(name) for name in {self.person, self.link, self.key, *self.others} if name in rows]

    def _named(
        self, rows: pd.DataFrame, owner: Integers, alike: Integers, inside: npt.NDArray[np.bool_]
    ) -> tuple[Integers, dict[str, npt.NDArray[Any]]]:
        """Places of the rows (r,) that are used among those of their owner, and the other people whom they name.

        Rows that are `alike` but for whom they name come in the order of the data. So they have one place, and where a window
        has some of them alone, these name nobody.
        """
        left_out = np.bincount(alike[~inside], minlength=int(alike.max(initial=-1)) + 1) > 0
        own = alike[inside]
        first = np.searchsorted(own, own) - np.searchsorted(owner, owner)
        named: dict[str, npt.NDArray[Any]] = {name: rows[name].to_numpy(object, copy=True) for name in self.others}
        for values in named.values():
            values[left_out[own]] = None
        return first, named

    def below(self, above: Above, counts: Integers) -> Above:
        """The rows that are used, for tables whose rows hang on them; `counts` (n,) of those above."""
        person = np.repeat(above.person, counts)
        if self.key is None:
            return Above(self.own_keys, self.known, self.whose, person, above.names, self.own_keys)
        place = np.arange(len(person)) - np.searchsorted(person, person)
        labels = above.names[person] + "\0" + place.astype(str).astype(object)
        return Above(self.own_keys, self.known, self.whose, person, above.names, labels, self.times)

    def _ordered(self, rows: pd.DataFrame, owner: Integers, above: Above) -> tuple[pd.DataFrame, Integers, Integers, Integers]:
        """Rows by owner and time, ties by a keyed hash of their contents, with the time since the last one.

        Also where the rows of each begin, the times, and the number of those that are alike, which grows.
        """
        name, step = self.order, SECONDS[self.time_unit] if self.dated else 1
        exact, counted = np.zeros(len(rows)), np.zeros(len(rows), np.int64)
        if name is not None:
            exact = self._exact(rows[name], name)
            counted = np.floor_divide(exact, step).clip(-LARGEST, LARGEST).astype(np.int64)
            if self.dated:
                rows = rows.assign(**{name: (counted * step).astype("datetime64[s]")})
        ranks, as_texts = self._ranks(rows, pd.DataFrame({"owner": owner, "time": exact}), above.names[above.person[owner]])
        order = np.lexsort((as_texts, *ranks.T[::-1], exact, owner))
        fresh = np.zeros(len(rows), bool)
        for values in (owner, exact, *ranks.T, as_texts):
            fresh[1:] |= values[order][1:] != values[order][:-1]
        starts = np.r_[0, np.bincount(owner, minlength=len(above.keys)).cumsum()].astype(np.int64)
        rows, counted = rows.iloc[order].reset_index(drop=True), counted[order]
        rows = rows.drop(columns=[_HIDDEN, _SPELT], errors="ignore")
        if self.timed:
            rows[self.gap] = np.diff(counted, prepend=0)
        for own in self.table.distances:
            rows[own.made] = own.of(rows[own.column], counted, step, self.path)
            rows = rows.drop(columns=own.column)
        return rows, starts, counted, fresh.cumsum()

    def _ranks(self, rows: pd.DataFrame, groups: pd.DataFrame, whose: npt.NDArray[Any]) -> tuple[Any, Integers]:
        """Keyed hashes (r, 4) of rows that share their group, and ranks (r,) of the texts of those with one hash."""
        ranks, as_texts, keys = np.zeros((len(rows), 4), np.uint64), np.zeros(len(rows), np.int64), self._keys(rows)
        tied = np.flatnonzero(groups.duplicated(keep=False).to_numpy())
        if len(tied):
            hashed = rows.iloc[tied].drop(columns=keys).drop(columns=_SPELT, errors="ignore")
            ranks[tied] = People(self.person, 1, self.secret).ranks(pd.Series(whose[tied], dtype=object), hashed)
        # "01" and "1" have one rank, whatever the type of their column; as texts they would be in the order of the engine.
        same = np.flatnonzero(groups.assign(rank=ranks[:, 0]).duplicated(keep=False).to_numpy())
        if len(same):
            as_texts[same], _ = pd.factorize(rows.iloc[same].drop(columns=keys).map(str).agg("\0".join, axis=1), sort=True)
        return ranks, as_texts

    def _exact(self, values: pd.Series, name: str) -> Reals:
        """The order of rows as numbers, of dates in seconds; a `ValueError` says which format of dates a schema must state."""
        assert self.table.order is not None
        exact = floats(values, "datetime" if self.dated else "number", written_as(self.table.order[1]))
        if np.isfinite(exact).all():
            return exact
        kind, form = reading(values) if self.dated else ("", "")
        if kind in ("date", "datetime") and form:
            field = {"name": name, "type": "date" if self.time_unit == "day" else "datetime", "format": form}
            raise ValueError(
                f"{self.path} has a row whose {name!r} is missing or no date by ISO 8601; the table's schema must state how "
                f"its dates are written: {{'fieldsMatch': 'partial', 'fields': [{field}]}}"
            )
        what = "date (whole numbers need the type integer in schema)" if self.dated else "whole number"
        raise ValueError(f"{self.path} has a row whose {name!r} is missing or no {what}: it must be known in every row")

    def _window(self, starts: Integers, labels: npt.NDArray[Any]) -> tuple[npt.NDArray[np.bool_], Integers]:
        """Rows that are used: at most m successive ones of each person, or row above."""
        counts = np.diff(starts)
        spare = np.maximum(counts - self.table.most, 0)
        begin = np.zeros(len(counts), np.int64)
        long = np.flatnonzero(spare)
        begin[long] = (self._words(labels[long])[:, 0] % (spare[long] + 1).astype(np.uint64)).astype(np.int64)
        kept = np.minimum(counts, self.table.most)
        place = np.arange(int(starts[-1])) - np.repeat(starts[:-1] + begin, counts)
        inside = (place >= 0) & (place < np.repeat(kept, counts))
        return inside, np.r_[0, kept.cumsum()].astype(np.int64)

    def _words(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        """Keyed hashes (n, 4)."""
        salt = hashlib.sha256(b"dpgen windows" + self.secret).digest()
        digests = b"".join(hashlib.sha256(salt + str(text).encode()).digest() for text in labels)
        return np.frombuffer(digests, ">u8").reshape(-1, 4).astype(np.uint64)

    def _sample(self, rows: pd.DataFrame, place: Integers, person: Integers, names: npt.NDArray[Any]) -> pd.DataFrame:
        """One row of each person who has any, chosen by a keyed hash of the person; of times between rows a later row's."""
        people, starts, counts = np.unique(person, return_index=True, return_counts=True)
        words = self._words(names[people])
        one = starts + (words[:, 1] % np.maximum(counts, 1).astype(np.uint64)).astype(np.int64)
        sample = rows.iloc[one].reset_index(drop=True)
        if self.gap in rows:
            later = np.flatnonzero(place > 0)
            first = np.searchsorted(person[later], people)
            number = np.searchsorted(person[later], people, side="right") - first
            chosen = first + (words[:, 2] % np.maximum(number, 1).astype(np.uint64)).astype(np.int64)
            values = rows[self.gap].to_numpy(np.float64)[np.r_[later, 0][np.minimum(chosen, len(later))]] if len(rows) else []
            sample[self.gap] = pd.Series(values, dtype=np.float64).mask(number == 0)
        return sample


def with_rows(
    rows: pd.DataFrame, keys: Sequence[str | None], key: str, below: Sequence[tuple[pd.DataFrame, str]]
) -> pd.DataFrame:
    """Rows with columns of what hangs on them, as texts, where nothing else tells rows apart: keys decide nothing.

    All rows have these columns, so that what a row is hashed as is a function of its person's rows alone.

    Arguments:
        keys: columns of the rows that are none of their contents: what they hang on, their own key, the person, other people.
        key: the one that other rows name.
        below: such rows without their keys, and with the column by which they name one of these.
    """
    link, _, person, *_ = keys
    # Rows below two rows that are alike may be so, too, and order these.
    alike = rows.duplicated([name for name in rows if name not in {*keys} - {link}], keep=False).to_numpy() | (link != person)
    found = {name: np.full(len(rows), "", object) for name in (_HIDDEN, _SPELT)}
    own = pd.Index(rows[key].astype(str).to_numpy(object))
    for table, column in below if own.is_unique else ():  # others are refused
        at = own.get_indexer(pd.Index(table[column].astype(str).to_numpy(object)))
        used = np.flatnonzero(alike[at] & (at >= 0))
        chosen = table.iloc[used].drop(columns=column)
        by_value = [texts(values) for name, values in chosen.items() if name != _SPELT]
        as_they_are = [*by_value, *(chosen[name].map(str) for name in chosen)]  # gaps of others make 1 of a number 1.0
        for name, columns in ((_HIDDEN, by_value), (_SPELT, as_they_are)):
            each = pd.Series([*map("\1".join, zip(*columns))], dtype=object)
            joined = each.groupby(at[used]).agg(lambda of: "\2".join(sorted(of)))
            found[name][joined.index] += "\3" + joined.to_numpy(object)
    return rows.assign(**found)


def check(frame: pd.DataFrame, draft: dict[str, Any]) -> None:
    """Refuse what contradicts the part of a schema that is stated, before anything is spent."""
    if not all(is_made(field, draft) for field in draft["fields"]):
        Schema.from_descriptor(draft).require(frame)


def kept(source: EngineTable, tables: Iterator[pd.DataFrame], types: Mapping[str | None, Any]) -> EngineTable:
    """All tables in one of DuckDB, on disk where it is large; columns have the types of their source, or other ones."""
    from dpgen.data.batches import stored

    first = next(tables)
    own = [pyarrow.field(name, types.get(name) or source.schema.field(name).type) for name in first]
    batches = (pyarrow.RecordBatch.from_pandas(t, pyarrow.schema(own), preserve_index=False) for t in chain([first], tables))
    return stored(source.name, pyarrow.schema(own), batches, memory=MEMORY)
