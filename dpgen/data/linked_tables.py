"""People and their rows as systems get them: a tree of tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.descriptors import dated, written_as
from dpgen.columns.distances import Distance, TimeUnit, with_found
from dpgen.containers import Form, in_memory
from dpgen.data.raw_tables import AnyRows, Rows, rows_of, types_of
from dpgen.data.tables import form_of_samples
from dpgen.facts import Fact, Said
from dpgen.schema import Schema

if TYPE_CHECKING:
    from dpgen.data.engines import EngineTable
    from dpgen.data.public_tables import PublicKey

Integers = npt.NDArray[np.int64]
Descriptor = dict[str, Any]
Flags = npt.NDArray[np.bool_]
Orphans = Literal["error", "drop"]

SECONDS = {"day": 86_400, "second": 1}


def whole_steps(times: npt.NDArray[Any], step: int) -> Integers:
    """Times in whole steps of so many seconds."""
    return np.floor_divide(times.astype("datetime64[s]").astype(np.int64), step)


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
    def calendar(self) -> bool:
        """Whether there are rows whose order follows from that of other rows."""
        return self.order is not None and (self.gap in self.spans or self.since is not None)

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
    def all_rows(self) -> AnyRows:
        """The rows, wherever they are."""
        return rows_of(self.rows)

    def values(self, name: str) -> pd.Series:
        """A column of all rows, wherever they are."""
        if isinstance(self.rows, pd.DataFrame):
            return self.rows[name]
        return pd.concat([part[name] for part in self._parts()], ignore_index=True)

    def _parts(self) -> Iterable[pd.DataFrame]:
        """The rows, in parts where they are on disk."""
        if isinstance(self.rows, pd.DataFrame):
            return [self.rows]
        from dpgen.data.batches import ROWS, frames  # here: data in memory need no engine

        return frames(self.rows.batches(ROWS, "read"))

    def one_row_each(self) -> Rows:
        """A row of each person who has any; columns that later rows alone have are those of a later row, or missing."""
        return Rows(self.sample)

    def some(self, above: Flags, people: Flags, whose: Integers) -> tuple[LinkedRows, Flags, Integers]:
        """Rows of some of those (n,) above, and of some people; which rows they are, and whose all are."""
        counts = np.diff(self.starts)
        mask, owner, at, parts = np.repeat(above, counts), np.repeat(whose, counts), 0, list[pd.DataFrame]()
        for table in self._parts():
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


@dataclass(frozen=True)
class Linking:
    """Names of linked tables, the keys between them, and how all of them are read.

    Arguments:
        person: column that names the person.
        people: table of people; None: there is none.
        rows: names of the tables of rows.
        time_unit: in which dates and times are modelled.
        orphans: rows of nobody in the table of people are an "error", or "drop" them.
        pattern: of the person's key, by its owner's word.
        drop: columns that are not released, by table.
        public: keys of tables to public ones.
        references: columns that name other people, by table.
        renamed: owners' keys, and their names here, by table.
    """

    person: str
    people: str | None
    rows: tuple[str, ...]
    time_unit: TimeUnit = "day"
    orphans: Orphans = "error"
    pattern: str = ""
    drop: Mapping[str, Sequence[str]] = field(default_factory=dict)
    public: Mapping[str, tuple[PublicKey, ...]] = field(default_factory=dict)
    references: Mapping[str, Sequence[str]] = field(default_factory=dict)
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for option, value, known in (("time_unit", self.time_unit, TimeUnit), ("orphans", self.orphans, Orphans)):
            if value not in get_args(known):
                raise ValueError(f"{option} is {value!r}; choose one of {', '.join(get_args(known))}")

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of all tables, people's first if there is one."""
        return (*([] if self.people is None else [self.people]), *self.rows)

    def others(self, table: str | None) -> tuple[str, ...]:
        """Columns of a table that name other people."""
        return tuple(self.references.get(table or "", ()))

    def in_samples(self, table: str, form: Form) -> Form:
        """The form of a table whose keys have the names that their owner gave them."""
        called = {new: old for old, new in self.renamed.get(table, {}).items()}
        names = tuple(called.get(str(column), column) for column in form.names)
        return replace(form, names=names, renamed={old: new for new, old in called.items()})


@dataclass(frozen=True, eq=False)
class Reference:
    """A column by which people or rows name other people, PRIVATE.

    Arguments:
        number: of the table.
        column: of the key.
        owner: person of each row (r,).
        targets: person that each row names (r,); -1: none, or one who is not there.
        ranks: keyed hashes (r, 4) of the row's own person and its place among the rows of that person; those of rows that are
            alike but for whom they name are the same.
    """

    number: int
    column: str
    owner: Integers
    targets: Integers
    ranks: npt.NDArray[np.uint64]

    @classmethod
    def of(
        cls,
        number: int,
        column: str,
        named: npt.NDArray[Any],
        rows: tuple[Integers, Integers],
        keys: npt.NDArray[Any],
        secret: bytes,
    ) -> Reference:
        """From the keys of people (n,) and those that rows (r,) name, null where they name nobody.

        `rows` are the owner of each, and its place. A gap turns whole numbers into floating-point ones, whose texts are the
        same below 2^53; larger ones are a ValueError, or one row would change whom all others name.
        """
        owner, place = rows
        salt = hashlib.sha256(b"dpgen others" + column.encode() + secret).digest()
        labels = [f"{key}\0{i}".encode() for key, i in zip(keys[owner], place)]
        digests = b"".join(hashlib.sha256(salt + label).digest() for label in labels)
        there = pd.notna(named)
        if any(not isinstance(value, str) and not abs(value) < 2**53 for value in named[there]):
            raise ValueError(f"{column!r} names a person by a number of 2^53 or more; these keys must be texts in all tables")
        texts = pd.Series(named[there], dtype=object).map(str).str.replace(r"^(-?[0-9]+)\.0$", r"\1", regex=True)
        targets = np.full(len(owner), -1, np.int64)
        targets[there] = pd.Index(keys, dtype=object).get_indexer(pd.Index(texts, dtype=object))
        return cls(number, column, owner, targets, np.frombuffer(digests, ">u8").reshape(-1, 4).astype(np.uint64))

    def some(self, rows: Flags, people: Flags) -> Reference:
        """References of some rows (r,), of some people (n,); others are named no more."""
        places = np.r_[np.where(people, people.cumsum() - 1, -1), -1]
        return replace(self, owner=places[self.owner[rows]], targets=places[self.targets[rows]], ranks=self.ranks[rows])


@dataclass(frozen=True, eq=False, repr=False)
class LinkedTables:
    """Private people and their rows, beside people for evaluation that are not protected.

    Arguments:
        name: what the data are called in reports.
        people: private people; the last columns are their numbers of rows.
        tables: of rows, each after the one that it hangs on.
        people_draft: what is known of the columns of people; fields with "dpgen:blank" have no domain yet.
        names: of the tables, people's first if there is one.
        person: column that names the person.
        keys: of the people (n,), as texts.
        across: constraints on columns of several tables.
        source: of the people, if there is a table of them.
        linking: what the tables are called, and the keys between them.
        reread: reads other tables by the same rules, with at most so many rows in each.
        references: columns that name other people.
        facts: what a privacy statement says of them.
        again: reads the same with other m, where one is to be bought; None: all m are public.
        test: the people for evaluation, if there are any.
    """

    name: str
    people: pd.DataFrame
    tables: tuple[LinkedRows, ...]
    people_draft: dict[str, Any]
    names: tuple[str, ...]
    person: str
    keys: npt.NDArray[np.object_]
    across: Sequence[Mapping[str, Any]]
    source: str | EngineTable | None
    linking: Linking
    reread: Callable[[Mapping[str, Any], Sequence[int]], LinkedTables]
    references: tuple[Reference, ...] = ()
    facts: tuple[Fact | Said, ...] = ()
    again: Callable[[Sequence[int | None]], LinkedTables] | None = None
    test: LinkedTables | None = None

    def __repr__(self) -> str:
        return f"LinkedTables({self.name!r}: {self.n} people, {', '.join(f'{len(t.all_rows)} {t.name}' for t in self.tables)})"

    @property
    def n(self) -> int:
        """Number of private people."""
        return len(self.people)

    def path(self, number: int) -> list[int]:
        """Numbers of the tables from that which hangs on people down to this one."""
        parent = self.tables[number - 1].parent
        return [*(self.path(parent) if parent else []), number]

    @property
    def frames(self) -> list[pd.DataFrame]:
        """The private people and rows in memory."""
        read = self if all(isinstance(table.rows, pd.DataFrame) for table in self.tables) else self.some(np.ones(self.n, bool))
        return [self.people, *(table.rows for table in read.tables)]

    @property
    def named(self) -> list[KeyColumn | None]:
        """The keys of all tables, one of each person: of people, and of rows on which others hang."""
        own = Rows(pd.DataFrame({self.person: self.keys}))
        kind = self._type_of_person
        return [KeyColumn(self.person, self.linking.pattern, kind, own), *(table.named for table in self.tables)]

    @property
    def _type_of_person(self) -> str:
        """The public type of the key of people."""
        source = self.tables[0].source if self.tables else self.source
        return str(types_of(source)[self.person]) if source is not None else ""

    def public(self, number: int) -> tuple[PublicKey, ...]:
        """The keys of a table to public ones."""
        name = self.tables[number - 1].name if number else self.names[0] if self.source is not None else ""
        return self.linking.public.get(name, ())

    def one_of_each(self) -> Rows:
        """The private people, for domains that are bought."""
        return Rows(self.people)

    def coded(self, schemas: Sequence[Schema]) -> list[npt.NDArray[Any]]:
        """Codes of complete schemas: of people (n, ...) and of the rows (r, ...) of each table, in a small type."""
        found = []
        for source, schema in zip((self.one_of_each(), *(table.all_rows for table in self.tables)), schemas):
            codes = source.codes(schema)
            batches = [codes.numpy()] if hasattr(codes, "numpy") else list(codes)  # type: ignore[arg-type]
            kind = np.min_scalar_type(max(schema.domain.sizes))
            found.append(np.concatenate([np.empty((0, len(schema.domain.sizes)), kind), *(b.astype(kind) for b in batches)]))
        return found

    def bounded(self, number: int, most: int) -> LinkedTables:
        """These people with at most so many rows of a table, where nobody said how many."""
        if self.again is None or not self.tables[number - 1].buys_most:
            return self
        return self.again([most if i == number else None if t.buys_most else t.most for i, t in enumerate(self.tables, 1)])

    def with_distances(self, signs: Mapping[tuple[int, str], int]) -> LinkedTables:
        """These tables with times from the row's own for dates, by number and column, after it (1) or before it (-1)."""
        tables, unit = list(self.tables), self.linking.time_unit
        for i, table in enumerate(tables):
            own = {column: sign for (number, column), sign in signs.items() if number == i + 1}
            if own and table.order is not None:
                fields, found = with_found(table.draft, {**table.order[1], "name": table.order[0]}, unit, own)
                tables[i] = table.with_distances({**table.draft, "fields": fields}, found, SECONDS[unit])
        return replace(self, tables=tuple(tables))

    def some(self, chosen: Flags) -> LinkedTables:
        """Some of the people (n,), with all of their rows, in memory."""
        masks, owners, made = [chosen], [np.arange(self.n)], list[LinkedRows]()
        for table in self.tables:
            own, mask, owner = table.some(masks[table.parent], chosen, owners[table.parent])
            made.append(own)
            masks.append(mask)
            owners.append(owner)
        people = self.people[chosen].reset_index(drop=True)
        named = [own.some(masks[own.number], chosen) for own in self.references]
        return replace(self, people=people, keys=self.keys[chosen], tables=tuple(made), references=tuple(named))

    def alike(self, tables: Any) -> LinkedTables:
        """Other tables of the same names and columns, in memory, read by the same rules: synthetic ones."""
        named = tables if isinstance(tables, Mapping) else {self.names[-1]: tables}
        return self.reread({name: in_memory(named[name]) for name in self.names}, [table.most for table in self.tables])

    def _in_samples(self, name: str, number: int, schema: Schema) -> set[str | None]:
        """Columns of a table in samples: keys, the order, those of the model but the ones that it adds, and sums of rows."""
        totals = [str(rule["total"]) for rule in self.across if "sum" in rule]
        made: set[str | None] = {child.count for child in self.tables if child.parent == number}
        own: set[str | None] = {self.person, *self.linking.others(name)}
        if number:
            table = self.tables[number - 1]
            own |= {table.link, table.key, *table.in_time}
            made |= {table.gap, *table.made}
        sums = {total.removeprefix(f"{name}.") for total in totals if total.startswith(f"{name}.")}
        return {field.name for field in schema.fields} - made | own | sums

    def shown(self, schemas: Sequence[Schema], patterns: Sequence[str], calendars: Sequence[Any]) -> dict[str, Any]:
        """Person, links, constraints across tables and forms of all tables for a released model, as JSON.

        `patterns` are those of the keys of all tables, "" where they are numbers; `calendars` the released days of each table.
        """
        above = [] if self.source is None else [(self.names[0], self.source, schemas[0], 0)]
        rows = [(t.name, t.source, schema, i) for i, (t, schema) in enumerate(zip(self.tables, schemas[1:]), 1)]
        forms = {}
        for name, source, schema, number in (*rows, *above):
            wanted = self._in_samples(name, number, schema)
            times = self.tables[number - 1].times_written if number else {}
            form = form_of_samples(source, schema, [column for column in types_of(source) if column in wanted], times)
            forms[name] = self.linking.in_samples(name, form).to_dict()
        of_person = self._type_of_person
        rows_of = zip(self.tables, patterns[1:], calendars)
        about = [t.shown(self.linking.time_unit) | {"pattern": p, "calendar": days} for t, p, days in rows_of]
        names_and_rules = {
            "tables": list(self.names),
            "person": self.person,
            "across": list(self.across),
            "pattern": patterns[0],
        }
        return {**names_and_rules, "text": is_text(of_person), "forms": forms, "rows": about}
