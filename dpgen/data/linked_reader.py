"""Reads the rows of linked tables whose columns are known, by rules that are the same for synthetic tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow

from dpgen.columns.descriptors import EXACT
from dpgen.containers import InMemory, in_memory
from dpgen.containers.memory import with_names
from dpgen.data.batches import EngineBatches, frames
from dpgen.data.engines import EngineTable
from dpgen.data.histories import Above, Reading, check, kept, with_rows
from dpgen.data.linked_rows import LinkedRows
from dpgen.data.linked_tables import LinkedTables, Linking, Reference
from dpgen.data.raw_tables import read_names, types_of, unnamed
from dpgen.data.split import People, Split
from dpgen.data.table_files import read_table
from dpgen.facts import Fact, Said

Source = str | EngineTable
Count = npt.NDArray[np.int64]

MOST_ROWS, MOST_BOUGHT = 200, 60
"""Rows of a person, or of a row above, at most; where their number is bought."""


def called(source: Source, table: str) -> str:
    """The name of a table in messages: its path, or the table's own name where it is in memory or a relation of an engine."""
    if isinstance(source, EngineTable):
        return source.name if source.files or source.snapshot else table
    return table if isinstance(source, InMemory) else source


def with_called(source: Source, names: Mapping[str, str]) -> InMemory:
    """A table in memory, or of a file, with other names of some columns."""
    assert not isinstance(source, EngineTable)  # refused
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
            if bought and isinstance(source, EngineTable):
                yield from source.facts

    def _unnamed(self, source: Source, draft: dict[str, Any], keys: set[str | None]) -> tuple[Said, ...]:
        return unnamed(source, {"fields": [*draft["fields"], *({"name": key} for key in keys)]}, self.linking.person)

    def reading(self, table: LinkedRows, above: str, index: pd.Index | None) -> Reading:
        """A reading of a table whose rows hang on `above`, as messages call it."""
        linking, path = self.linking, called(table.source, table.name)
        others = linking.others(table.name)
        return Reading(table, linking.person, linking.time_unit, linking.orphans, index, path, above, self.split.key, others)

    def pieces(self, tables: Sequence[LinkedRows]) -> list[Iterable[pd.DataFrame]]:
        """The rows of all tables; where rows hang on others, these have them as a text, which orders rows that are alike."""
        linking, found = self.linking, list[Any]()
        for table in tables:
            keys = [table.link, *([] if table.key is None else [table.key])]
            keys += [linking.person] if table.parent and linking.person in types_of(table.source) else []
            keys += linking.others(table.name)
            draft = table.draft | {"fields": [*table.draft["fields"], *({"name": name} for name in table.in_time)]}
            found.append(self._tables(table.source, called(table.source, table.name), keys, draft, table.made))
        if len(tables) == 1:
            return found
        frames = [pd.concat(own, ignore_index=True) for own in found]
        for number, own in reversed([*enumerate(tables, 1)]):
            if own.key is not None:
                hung = [(table, frame) for table, frame in zip(tables, frames) if table.parent == number]
                below = [(frame.drop(columns=self._keys(table, frame)), table.link) for table, frame in hung]
                keys = [own.link, own.key, linking.person, *linking.others(own.name)]
                frames[number - 1] = with_rows(frames[number - 1], keys, own.key, below)
        return [[frame] for frame in frames]

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
        if isinstance(path, EngineTable):
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
        self.readings, self.numbers, self.above = list[Reading](), list[Count](), list[Above]()
        self.named: dict[str, npt.NDArray[Any]] = {}

    def first(self) -> None:
        """Read the first table, which says who the people are where no table does; then these come in its order."""
        drafted, rows, counts = self.drafted, list[Any](), np.empty(0, np.int64)
        for first in self.tables[:1]:
            self.readings.append(reading := drafted.reading(first, drafted.of_whom, self.index))
            read = map(reading.made, self.pieces[0])
            if isinstance(first.source, EngineTable) and len(self.tables) == 1:
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

    def _count(self, table: LinkedRows, reading: Reading, counts: Count) -> None:
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
