"""Reads linked tables: columns and their names first, then rows, by rules that are the same for synthetic tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow

from dpgen.columns.constraint_descriptors import constraint_of
from dpgen.columns.descriptors import stated_key
from dpgen.columns.votes import CELLS, cells_of_digits, votes
from dpgen.containers import InMemory, in_memory
from dpgen.containers.memory import with_names
from dpgen.data.batches import EngineBatches, frames
from dpgen.data.engines import EngineTable
from dpgen.data.histories import Above, Orphans, Reading, TimeUnit, check, dated, kept, with_rows
from dpgen.data.linked_tables import LinkedRows, LinkedTables, Reference
from dpgen.data.public_tables import PublicKey, with_keys
from dpgen.data.raw_tables import descriptor_of, draft_of, read_names, type_of, types_of, unnamed
from dpgen.data.split import People, Split, SplitOptions
from dpgen.data.table_files import read_table
from dpgen.facts import Fact, Said
from dpgen.schema import nearest

Source = str | EngineTable

MOST_ROWS = 60
"""Rows of a person, or of a row above, at most."""


@dataclass(frozen=True)
class Spec:
    """A table of rows as it was named: what it hangs on, 0 are people, by which column, and its own key."""

    name: str
    source: Source
    schema: Any
    parent: int
    link: str
    key: str | None
    order: str | None
    most: int | None

    def __post_init__(self) -> None:
        if self.most is not None and (type(self.most) is not int or not 1 <= self.most <= MOST_ROWS):
            raise ValueError(f"max_rows is {self.most!r}; it must be a whole number in [1, {MOST_ROWS}], or None: it is bought")


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
class Reader:
    """Reads all tables by the options of `load_linked`."""

    person: str
    people: str | None
    specs: tuple[Spec, ...]
    time_unit: TimeUnit
    orphans: Orphans
    pattern: str = ""  # of the person's key, by its owner's word
    drop: Mapping[str, Sequence[str]] = field(default_factory=dict)  # columns that are not released, by table
    public: Mapping[str, tuple[PublicKey, ...]] = field(default_factory=dict)  # keys of tables to public ones
    references: Mapping[str, Sequence[str]] = field(default_factory=dict)  # columns that name other people, by table
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # owners' keys, and their names here, by table

    def __post_init__(self) -> None:
        for option, value, known in (("time_unit", self.time_unit, TimeUnit), ("orphans", self.orphans, Orphans)):
            if value not in get_args(known):
                raise ValueError(f"{option} is {value!r}; choose one of {', '.join(get_args(known))}")

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of all tables, people's first if there is one."""
        return (*([] if self.people is None else [self.people]), *(spec.name for spec in self.specs))

    def of(self, sources: Mapping[str, Source], most: Sequence[int]) -> LinkedTables:
        """Other tables of the same names and columns; of each table of rows at most so many."""
        sources = {n: with_called(own, self.renamed[n]) if n in self.renamed else own for n, own in sources.items()}
        specs = [replace(s, source=sources[s.name], schema=None, most=m) for s, m in zip(self.specs, most)]
        reader = replace(self, specs=tuple(specs), orphans="drop", public={})
        return reader.read(None if self.people is None else sources[self.people], None, SplitOptions(0.0))

    def read(self, people_path: Source | None, people_schema: Any, options: SplitOptions) -> LinkedTables:
        for option, name, source in self._named(people_path):
            if name is not None and name not in types_of(source):
                raise nearest(option, name, list(types_of(source)))
        people_schema, across = self._across(people_schema, self.people)
        people_schema, patterns = _without_patterns(people_schema, {self.person})
        people_draft: dict[str, Any] = {"fields": []}
        own_keys: set[str | None] = {self.person, *self.references.get(self.people or "", ())}
        kept = set[str]() if people_path is None else {*types_of(people_path)} - {*self.drop.get(self.people or "", ())}
        if people_path is not None and (people_schema is not None or kept != own_keys):
            people_draft = self._draft(self.people or "", people_path, people_schema, own_keys)
        if not self.specs and not people_draft["fields"]:
            raise ValueError(f"table {self.people!r} has no column but keys; it must have one more")
        tables, orders = list[LinkedRows](), dict[str, Mapping[str, Any]]()
        for spec in self.specs:
            schema, own = _without_patterns(spec.schema, {self.person, spec.link, spec.key})
            patterns = own | patterns
            made, rules = self._table(replace(spec, schema=schema), people_path, tables)
            tables.append(replace(made, pattern=own.get(spec.key or "", "")))
            across = [*across, *rules]
        drafts = {self.people or "": people_draft} | {table.name: table.draft for table in tables}
        orders = {table.name: table.order[1] for table in tables if table.order is not None}
        self._require_known(across, drafts, orders)
        most = [spec.most for spec in self.specs]
        reader = replace(self, pattern=patterns.get(self.person, ""))
        return reader._read(people_path, people_draft, tables, options.split(), across, most)

    def _named(self, people_path: Source | None) -> Iterator[tuple[str, str | None, Source]]:
        """Columns that options name, and the tables that must have them."""
        for spec in self.specs:
            yield from (("person", None if spec.parent else self.person, spec.source), ("order", spec.order, spec.source))
        if people_path is not None:
            yield "person", self.person, people_path
            yield from (("links", name, people_path) for name in self.references.get(self.people or "", ()))

    def _table(
        self, spec: Spec, people_path: Source | None, tables: Sequence[LinkedRows]
    ) -> tuple[LinkedRows, list[Mapping[str, Any]]]:
        """A table of rows whose rows are not read yet, and its constraints on columns of several tables."""
        above = tables[spec.parent - 1] if spec.parent else None
        present = {*types_of(spec.source), *types_of(above.source if above else people_path or spec.source)}

        def new(name: str) -> str:
            return name if name not in present else f"{name} of the model"

        gap, since = new(f"{self.time_unit}s since the last"), None
        if above is not None and above.order is not None and spec.order is not None:
            since = new(f"{self.time_unit}s since {above.name}")
        schema, rules = self._across(spec.schema, spec.name)
        schema, of_gap = _without(schema, gap)
        schema, of_since = _without(schema, since)
        keys = {self.person, spec.link, spec.key, *self.references.get(spec.name, ())}
        draft = self._draft(spec.name, spec.source, schema, keys, spec.order)
        spans, order = dict[str, str](), None
        if not draft["fields"] and spec.order is None and spec.key is None:
            raise ValueError(f"table {spec.name!r} has no column but keys; it must have one more")
        if spec.order is not None:
            order = spec.order, self._date(draft, spec.order, spec.source)
            if since is not None and dated(order[1]) != dated(above.order[1]):  # type: ignore[union-attr, index]
                since = None
            self._require_free(draft, {spec.order, gap} if spec.most != 1 or since else set())
            blank = {"type": "integer", "constraints": {"required": True}, "dpgen:blank": True}
            fields = [field for field in draft["fields"] if since is None or field["name"] != spec.order]
            if since is not None:
                fields.append(of_since or {"name": since, **blank})
            spans = {since or spec.order: "first"} | ({gap: "later"} if spec.most != 1 else {})
            waits = blank | {"constraints": {"required": True, "minimum": 0}}
            draft["fields"] = [*fields, *([of_gap or {"name": gap, **waits}] if spec.most != 1 else [])]
        made = LinkedRows(
            name=spec.name,
            parent=spec.parent,
            rows=pd.DataFrame(),
            starts=np.zeros(1, np.int64),
            sample=pd.DataFrame(),
            draft=draft,
            spans=spans,
            most=0,
            least=int(people_path is None and not spec.parent),
            buys_most=spec.most is None,
            link=spec.link,
            key=spec.key,
            pattern="",
            count=new(f"number of {spec.name}"),
            order=order,
            gap=gap,
            since=since,
            source=spec.source,
            calendar=spec.order is not None and (spec.most != 1 or since is not None),
        )
        return made, rules

    def _read(
        self,
        people_path: Source | None,
        people_draft: dict[str, Any],
        tables: Sequence[LinkedRows],
        split: Split,
        across: Sequence[Mapping[str, Any]],
        most: Sequence[int | None],
    ) -> LinkedTables:
        """The tables with at most so many rows of each person, or of a row above; None: as many as there can be."""
        tables = [replace(t, most=MOST_ROWS if m is None else m, buys_most=m is None) for t, m in zip(tables, most)]
        people_draft = _with_counts(people_draft, 0, tables)
        people, index = pd.DataFrame(), None
        of_whom = called(people_path or "", self.tables[0])
        if people_path is not None:
            made = {table.count for table in tables if not table.parent}
            named_keys = [self.person, *self.references.get(self.people or "", ())]
            people = pd.concat(self._tables(people_path, of_whom, named_keys, people_draft, made, split.key), ignore_index=True)
            index = pd.Index(people[self.person].astype(str).to_numpy(object))
            if not index.is_unique:
                raise ValueError(f"{of_whom} has a person of {self.person!r} twice; each must have one line")
        pieces = self._pieces(tables, split.key)
        readings, numbers, below = list[Reading](), list[Any](), list[Any]()
        keys, counts = np.empty(0, object), np.empty(0, np.int64)
        for first in tables[:1]:
            readings.append(reading := self._reading(first, of_whom, index, split.key))
            read = map(reading.made, pieces[0])
            rows: Any
            if isinstance(first.source, EngineTable) and len(tables) == 1:
                rows = kept(first.source, read, {first.order and first.order[0]: reading.stamp, first.gap: pyarrow.int64()})
            else:
                (rows,) = read
            below.append(rows)
            keys, counts = reading.keys, reading.counts
        if index is not None:
            known = people.set_index(index)
            left = index.difference(pd.Index(keys, dtype=object), sort=False)
            keys, counts = np.r_[keys, left.to_numpy(object)], np.r_[counts, np.zeros(len(left), np.int64)]
            people = known.loc[keys]
        people = pd.DataFrame(people, index=pd.Index(keys, dtype=object)).reset_index(drop=True)
        named = {name: people[name].to_numpy(object) for name in self.references.get(self.people or "", ())}
        each = np.arange(len(keys)), np.zeros(len(keys), np.int64), named
        frames = [people.drop(columns=[self.person, *named], errors="ignore"), *below]
        above = [Above(keys, pd.Index(keys), keys, np.arange(len(keys)), keys, keys)]
        for first in tables[:1]:
            frames[0] = frames[0].assign(**{first.count: counts})
            above.append(readings[0].below(above[0], counts))
            numbers.append(counts)
        for table, own in zip(tables[1:], pieces[1:]):
            parent = tables[table.parent - 1]
            of_what = called(parent.source, parent.name) if table.parent else of_whom
            reading = self._reading(table, of_what, None, split.key)
            frames.append(*(reading.under(frame, above[table.parent]) for frame in own))
            frames[table.parent] = frames[table.parent].assign(**{table.count: reading.counts})
            above.append(reading.below(above[table.parent], reading.counts))
            readings.append(reading)
            numbers.append(reading.counts)
        check(frames[0], people_draft)
        bought, sources = None in most, [people_path, *(table.source for table in tables)]
        twice = (source.facts for source in sources[::-1] if bought and isinstance(source, EngineTable))
        orphans = (Fact.ORPHANS_LEFT_OUT,) if self.orphans == "drop" else ()
        more: dict[str, set[str | None]] = {name: {*own} for name, own in self.references.items()}
        left_out = [
            self._unnamed(t.source, t.draft, {t.link, t.key, t.order and t.order[0]} | more.get(t.name, set())) for t in tables
        ]
        of_people = more.get(self.people or "", set[str | None]())
        left_out += [] if people_path is None else [self._unnamed(people_path, people_draft, of_people)]
        found = replace(split, people=keys.tolist())
        result = LinkedTables(
            name=self.tables[0],
            references=tuple(
                Reference.of(number, name, texts, (owner, place), keys, split.key)
                for number, (owner, place, named_there) in enumerate([each, *(r.named for r in readings)])
                for name, texts in named_there.items()
            ),
            people=frames[0],
            tables=tuple(
                replace(
                    table,
                    rows=frame,
                    starts=np.r_[0, count.cumsum()].astype(np.int64),
                    sample=pd.concat(own.samples, ignore_index=True),
                    times=np.concatenate(own.times_of_rows) if own.times_of_rows else table.times,
                    draft=_with_counts(table.draft, number, tables),
                )
                for number, (table, frame, count, own) in enumerate(zip(tables, frames[1:], numbers, readings), 1)
            ),
            people_draft=people_draft,
            names=self.tables,
            person=self.person,
            keys=keys,
            across=across,
            source=people_path,
            reader=self,
            facts=(*_placed(tables), *orphans, found.fact("people"), *chain(*left_out, *twice)),
            again=partial(self._read, people_path, people_draft, tables, split, across) if bought else None,
        )
        test = found.test_rows(len(keys)).numpy()
        return replace(result.some(~test), test=result.some(test)) if test.any() else result

    def _reading(self, table: LinkedRows, above: str, index: pd.Index | None, secret: bytes) -> Reading:
        path = called(table.source, table.name)
        others = tuple(self.references.get(table.name, ()))
        return Reading(table, self.person, self.time_unit, self.orphans, index, path, above, secret, others)

    def _pieces(self, tables: Sequence[LinkedRows], secret: bytes) -> list[Iterable[pd.DataFrame]]:
        """The rows of all tables; where rows hang on others, these have them as a text, which orders rows that are alike."""
        found: list[Any] = []
        for table in tables:
            keys = [table.link, *([] if table.key is None else [table.key])]
            keys += [self.person] if table.parent and self.person in types_of(table.source) else []
            keys += self.references.get(table.name, ())
            made = {table.gap, table.since} if table.order else set[str | None]()
            order = [table.order[0]] if table.order else []
            draft = table.draft | {"fields": [*table.draft["fields"], *({"name": name} for name in order)]}
            found.append(self._tables(table.source, called(table.source, table.name), keys, draft, made, secret))
        if len(tables) == 1:
            return found
        frames = [pd.concat(own, ignore_index=True) for own in found]
        for number in range(len(tables), 0, -1):
            own, below = tables[number - 1], list[tuple[pd.DataFrame, str]]()
            for table, frame in zip(tables, frames):
                if table.parent == number:
                    others = {*self.references.get(table.name, ())}
                    keys = [str(name) for name in {table.key, self.person, *others} - {table.link} if name in frame]
                    below.append((frame.drop(columns=keys), table.link))
            if own.key is not None:
                others = {*self.references.get(own.name, ())}
                frames[number - 1] = with_rows(frames[number - 1], [own.link, own.key, self.person, *others], own.key, below)
        return [[frame] for frame in frames]

    def _across(self, schema: Any, own: str | None) -> tuple[Any, list[Mapping[str, Any]]]:
        """A schema without its constraints on columns of several tables, and these, with the name of its own table."""
        if schema is None or len(self.tables) < 2:
            return schema, []
        given, prefixes = descriptor_of(schema), tuple(f"{table}." for table in self.tables)
        known, rules = {str(field.get("name")) for field in given["fields"]}, given.get("dpgen:constraints", [])
        both = [
            rule for rule in rules if any(name.startswith(prefixes) and name not in known for name in constraint_of(rule).names)
        ]
        if shared := next((rule for rule in both if "broken" in rule), None):
            raise ValueError(
                f"a constraint is on {', '.join(constraint_of(shared).names)}, of several tables; leave out broken"
            )
        left = {**given, "dpgen:constraints": [rule for rule in rules if rule not in both]}

        def full(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {full(name): condition for name, condition in value.items()}
            if isinstance(value, list):
                return [full(name) for name in value]
            return value if value.startswith(prefixes) and value not in known else f"{own}.{value}"

        return (left if both else schema), [{key: full(value) for key, value in rule.items()} for rule in both]

    def _require_known(
        self,
        rules: Sequence[Mapping[str, Any]],
        drafts: Mapping[str, dict[str, Any]],
        orders: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Refuse constraints on several tables that no sample could satisfy; what they compute is no column of the model."""
        for rule in rules:
            names, total = constraint_of(rule).names, rule.get("total", "")
            kinds, tables = {}, {}
            for name in names:
                table = next(own for own in self.tables if name.startswith(f"{own}."))
                column, fields = name.removeprefix(f"{table}."), [*drafts[table]["fields"]]
                fields += [orders[table]] if table in orders else []
                field = next((field for field in fields if field["name"] == column), None)
                if field is None:
                    raise nearest(f"a column of a constraint on {table}", column, [f["name"] for f in fields])
                kinds[name], tables[name] = field["type"], table
            unknown = [name for name, kind in kinds.items() if kind == "any"]
            if unknown and "forbidden" not in rule:
                raise ValueError(f"a constraint is on {unknown[0]!r}; the schema must state its type")
            dates = {kind in ("date", "datetime") for kind in kinds.values()}
            if "depends" in rule or ("less_equal" in rule and len(dates) > 1):
                raise ValueError(
                    f"a constraint is on {' and '.join(names)}; it must be forbidden, less_equal of alike types, or sum"
                )
            paths = {table: self._path(table) for table in tables.values()}
            lowest = max(paths, key=lambda table: len(paths[table]))
            if not set(paths) <= set(paths[lowest]):
                raise ValueError(f"a constraint is on {' and '.join(names)}; one of these rows must hang on the other")
            if "sum" in rule:
                alike = len(names) == 2 and tables[names[0]] == lowest != tables.get(total, lowest)
                if not alike or not {*kinds.values()} <= {"integer", "number"}:
                    raise ValueError(
                        f"a constraint is the sum {total!r}; it must be of one number of rows, for a number of people"
                    )
                above = drafts[tables[total]]
                above["fields"] = [field for field in above["fields"] if f"{tables[total]}.{field['name']}" != total]

    def _path(self, table: str) -> list[str]:
        """A table, and those that it hangs on."""
        spec = next((spec for spec in self.specs if spec.name == table), None)
        above = "" if spec is None else self.specs[spec.parent - 1].name if spec.parent else self.people or ""
        return [table, *(self._path(above) if above else [])]

    def _draft(self, table: str, path: Source, schema: Any, keys: set[str | None], order: str | None = None) -> dict[str, Any]:
        types = {} if order is None else {order: self._type(path, order)}
        drop = self.drop.get(table, ())
        stated = with_keys(schema, self.public.get(table, ()))
        draft = draft_of(path, stated, target=None, key=None, unit=self.person, types=types, drop=drop)
        if "dpgen:privacy" in draft:
            raise ValueError(
                "schema has domains that were bought for single rows; leave them out: the fit buys them for people"
            )
        if any(field["name"] == self.person for field in draft["fields"]):
            raise ValueError(f"person is {self.person!r}; it must be no field of the schema")
        fields = [field for field in draft["fields"] if field["name"] not in keys]
        return {k: v for k, v in draft.items() if k != "primaryKey" or v not in keys} | {"fields": fields}

    def _type(self, path: Source, order: str) -> str:
        """The type of the order, in the words of Arrow: a date or a whole number, which is public, for all rows must be so."""
        of_dates = {"day": "date32[day]", "second": "timestamp[s]"}[self.time_unit]
        return types_of(path)[order] or ("int64" if _is_counted(path, order) else of_dates)

    def _date(self, draft: dict[str, Any], order: str, path: Source) -> dict[str, Any]:
        """The field of the order: a date by day, a time by second, or a whole number."""
        field = next((field for field in draft["fields"] if field["name"] == order), None)
        if field is None:  # a schema that states all of its fields leaves others out, but not this one
            field = {"name": order, "type": type_of(self._type(path, order)), "dpgen:blank": True}
            draft["fields"] = [*draft["fields"], field]
        if field["type"] in ("any", "string", "date", "datetime"):
            field["type"] = {"day": "date", "second": "datetime"}[self.time_unit]
        elif field["type"] not in ("integer", "year"):
            raise ValueError(f"order is {order!r}, a {field['type']}; it must hold dates, times or whole numbers")
        field["constraints"] = field.get("constraints", {}) | {"required": True}
        return field

    def _require_free(self, draft: dict[str, Any], names: set[str]) -> None:
        """Refuse constraints on the order or on times between rows: later rows get theirs from the rows before."""
        for rule in draft.get("dpgen:constraints", []):
            for name in names & set(constraint_of(rule).names):
                raise ValueError(
                    f"a constraint of the schema is on {name!r}; with max_rows above 1 none may be on the order of rows or the "
                    "time between them, which follow from other rows"
                )

    def _unnamed(self, source: Source, draft: dict[str, Any], keys: set[str | None]) -> tuple[Said, ...]:
        return unnamed(source, {"fields": [*draft["fields"], *({"name": key} for key in keys)]}, self.person)

    def _tables(
        self, path: Source, called: str, keys: Sequence[str], draft: dict[str, Any], made: set[Any], secret: bytes
    ) -> Iterator[pd.DataFrame]:
        """The used columns of a table, in one piece, or of an engine in several with all lines of a person in one of them."""
        (link, *_), found = keys, False
        people = People(link, 1, secret)
        wanted = [*dict.fromkeys([*keys, *(name for name in read_names(draft) if name not in made)])]
        pieces: Iterable[pd.DataFrame]
        if isinstance(path, EngineTable):
            pieces = EngineBatches(path.columns(wanted), partial(frames, people=people), by=link)
        else:
            pieces = [read_table(path, wanted, text=wanted, missing=draft.get("missingValues", [""]))]
        for table in pieces:
            if table[link].isna().any():
                whom = "its person" if link == self.person else "the row it hangs on"
                raise ValueError(f"{called} has a line without {link!r}: every line needs {whom}")
            people.require_names(table[link])
            found = found or len(table) > 0
            if found:
                yield table
        if not found:
            raise ValueError(f"{called} is empty: it has {len(types_of(path))} columns and no record")


def _is_counted(source: Source, order: str) -> bool:
    """Whether a column of an order holds whole numbers, not dates."""
    if isinstance(source, EngineTable):
        return str(source.schema.field(order).type).startswith(("int", "uint"))
    if not isinstance(source, InMemory):
        return False
    whole = [CELLS.index(("number", "integer")), *cells_of_digits()]
    return bool(np.isin(votes(read_table(source, [order])[order], "any"), whole).all())


def _with_counts(draft: Mapping[str, Any], number: int, tables: Sequence[LinkedRows]) -> dict[str, Any]:
    """The draft of a table's schema with one integer field in [least, most] for each table that hangs on its rows."""
    counts = [
        {"name": t.count, "type": "integer", "constraints": {"required": True, "minimum": t.least, "maximum": t.most}}
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


def _without_patterns(schema: Any, keys: set[str | None]) -> tuple[Any, dict[str, str]]:
    """A schema without the keys whose pattern it states, and these patterns."""
    given = {"fields": []} if schema is None else descriptor_of(schema)
    own = [field for field in given["fields"] if field.get("name") in keys]
    found = {field["name"]: stated_key(field) for field in own if stated_key(field)}
    if not found:
        return schema, {}
    left = {k: v for k, v in given.items() if k != "primaryKey" or v not in (*found, *([name] for name in found))}
    return left | {"fields": [f for f in given["fields"] if f.get("name") not in found]}, found


def _without(schema: Any, name: str | None) -> tuple[Any, dict[str, Any] | None]:
    """A schema without a field that no column has, and this field, if it is there."""
    if schema is None or name is None:
        return schema, None
    given = descriptor_of(schema)
    found = next((field for field in given["fields"] if field.get("name") == name), None)
    if found is not None:  # no row is without it
        found = {**found, "constraints": {**found.get("constraints", {}), "required": True}}
    return {**given, "fields": [field for field in given["fields"] if field.get("name") != name]}, found
