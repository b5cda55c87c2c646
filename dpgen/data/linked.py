r"""People and their rows: two linked tables, or one long table of histories, with all that belongs to a person together.

| what | how |
|---|---|
| order | rows of a person by the column `order`; those of one time by a keyed hash of their contents, never by their position |
| at most m rows | of a person with more a window of m successive ones, which begins at a keyed hash of the person |
| the time of a row | that of the first row, and for later ones the time since the row before |
| one row of each person, for domains that are bought | a keyed hash of the person chooses it |

Each of these is a function of that person's rows alone, under a secret key. People without rows stay people; without a table of
people those who have rows are all there are. An engine sorts rows by person and hands them over some people at a time; what is
used of them is kept on disk, so the same code reads files and engines.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow

from dpgen.constraints import constraint_of
from dpgen.containers import InMemory, in_memory
from dpgen.data.batches import ROWS, EngineBatches, frames
from dpgen.data.engines import EngineTable, open_table
from dpgen.data.histories import MEMORY, SECONDS, Orphans, Reading, TimeUnit, check, kept
from dpgen.data.packages import PACKAGE, linked_package
from dpgen.data.raw_tables import EngineRows, FrameRows, descriptor_of, draft_of, read_names, type_of, types_of, unnamed
from dpgen.data.split import TEST_FRACTION, People, Split, SplitOptions
from dpgen.data.table_files import MISSING, csv_path, name_of, read_table
from dpgen.data.tables import form_of_samples
from dpgen.data.toy import PATIENTS, VISITS, simulated_patients
from dpgen.facts import Fact, Said
from dpgen.schema import Schema, nearest

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Source = str | EngineTable

MOST_ROWS = 60
"""Of a person, at most."""
ORDER = "dpgen:order"


@dataclass(frozen=True, eq=False, repr=False)
class LinkedTables:
    """Private people and their rows, beside people for evaluation that are not protected.

    Arguments:
        name: what the data are called in reports.
        people: private people; the last column is their number of rows.
        rows: private rows, those of a person one after the other in order of time; in memory, or kept on disk.
        starts: (n + 1,) where the rows of each person begin.
        sample: the row that stands for all of a person who has any; of columns that later rows alone have a later row's value.
        people_draft: what is known of the columns of people; fields with "dpgen:blank" have no domain yet.
        rows_draft: the same of rows.
        spans: of columns that later rows alone have, and the first one alone.
        most: m, rows of a person at most.
        least: of rows; 1 where there are no people without rows.
        names: of the tables, and of the columns of the person, the order, and the time since the last row.
        sources: of the tables, whose containers and types samples have.
        time_unit: of the order.
        facts: what a privacy statement says of them.
        again: reads the same with another m, where m is to be bought; None: m is public.
        test: the people for evaluation, if there are any.
    """

    name: str
    people: pd.DataFrame
    rows: pd.DataFrame | EngineTable
    starts: Integers
    sample: pd.DataFrame
    people_draft: dict[str, Any]
    rows_draft: dict[str, Any]
    spans: Mapping[str, Any]
    most: int
    least: int
    names: Mapping[str, Any]
    sources: tuple[Source | None, Source]
    time_unit: TimeUnit
    facts: tuple[Fact | Said, ...] = ()
    again: "Callable[[int], LinkedTables] | None" = None
    test: "LinkedTables | None" = None

    def __repr__(self) -> str:
        return f"LinkedTables({self.name!r}: {self.n} people, {int(self.starts[-1])} rows)"

    @property
    def n(self) -> int:
        """Number of private people."""
        return len(self.starts) - 1

    @property
    def all_rows(self) -> FrameRows | EngineRows:
        """The private rows, wherever they are."""
        return EngineRows(self.rows) if isinstance(self.rows, EngineTable) else FrameRows(self.rows)

    @property
    def frame(self) -> pd.DataFrame:
        """The private rows in memory."""
        return self.rows if isinstance(self.rows, pd.DataFrame) else self.some(np.ones(self.n, bool)).frame

    def one_of_each(self) -> FrameRows:
        """The private people, for domains that are bought."""
        return FrameRows(self.people)

    def one_row_each(self) -> FrameRows:
        """A row of each person who has any; columns that later rows alone have are those of a later row, or missing."""
        return FrameRows(self.sample)

    def coded(self, people: Schema, rows: Schema) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Codes of complete schemas: of people (n, ...) and of rows (r, ...), in a small type."""
        found = []
        for source, schema in ((self.one_of_each(), people), (self.all_rows, rows)):
            codes = source.codes(schema)
            batches = [codes.numpy()] if hasattr(codes, "numpy") else list(codes)  # type: ignore[arg-type]
            kind = np.min_scalar_type(max(schema.domain.sizes))
            found.append(np.concatenate([np.empty((0, len(schema.domain.sizes)), kind), *(b.astype(kind) for b in batches)]))
        return found[0], found[1]

    @property
    def buys_most(self) -> bool:
        """Whether nobody said m, and it is bought."""
        return self.again is not None

    def bounded(self, most: int) -> "LinkedTables":
        """The same people with at most so many rows, where nobody said how many."""
        return self if self.again is None else self.again(most)

    def some(self, chosen: Flags) -> "LinkedTables":
        """Some of the people (n,), with all of their rows, in memory."""
        counts = np.diff(self.starts)
        mask, at, parts = np.repeat(chosen, counts), 0, list[pd.DataFrame]()
        for table in [self.rows] if isinstance(self.rows, pd.DataFrame) else frames(self.rows.batches(ROWS, "read")):
            parts.append(table[mask[at : at + len(table)]])
            at += len(table)
        return replace(
            self,
            people=self.people[chosen].reset_index(drop=True),
            rows=pd.concat(parts, ignore_index=True),
            starts=np.r_[0, counts[chosen].cumsum()].astype(np.int64),
            sample=self.sample[chosen[counts > 0]].reset_index(drop=True),
        )

    def alike(self, tables: Any) -> "LinkedTables":
        """Other tables of the same names and columns, in memory, read by the same rules: synthetic ones."""
        named = tables if isinstance(tables, Mapping) else {self.names["tables"][-1]: tables}
        *people, rows = (in_memory(named[name]) for name in self.names["tables"])
        reader = _Reader(
            self.names["person"], self.names["order"], self.most, self.time_unit, "drop", tuple(self.names["tables"])
        )
        return reader.read(people[0] if people else None, rows, None, None, SplitOptions(0.0), show=False)

    def shown(self, people: Schema, rows: Schema) -> dict[str, Any]:
        """How samples are given back: names and forms, as JSON."""
        forms = {}
        for table, source, schema in zip(self.names["tables"][::-1], self.sources[::-1], (rows, people)):
            assert source is not None
            wanted = {field.name for field in schema.fields} - {self.names["gap"], self.names["count"]} | {self.names["person"]}
            totals = [rule["total"] for rule in self.names["across"] if "sum" in rule]
            wanted |= {name.removeprefix(f"{table}.") for name in totals if name.startswith(f"{table}.")}
            names = [name for name in types_of(source) if name in wanted]
            forms[table] = form_of_samples(source, schema, names).to_dict()
        order: dict[str, Any] = next((f for f in self.rows_draft["fields"] if f["name"] == self.names["order"]), {})
        until = None if order.get("dpgen:blank") else order.get("constraints", {}).get("maximum")
        text = types_of(self.sources[1])[self.names["person"]]
        numbered = text.startswith(("int", "uint")) or not text
        shown = {"seconds": SECONDS[self.time_unit], "until": until, "text": not numbered, "forms": forms, "most": self.most}
        return {**self.names, **shown}


def load_linked(
    *,
    path: str | None = None,
    people_path: str | None = None,
    person: str = "person",
    order: str | None = None,
    max_rows: int | None = 10,
    schema: dict[str, Any] | str | None = None,
    people_schema: dict[str, Any] | str | None = None,
    time_unit: TimeUnit = "day",
    orphans: Orphans = "error",
    test_fraction: float = TEST_FRACTION,
    split_key: Path | None = None,
    show_values: bool = False,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> LinkedTables:
    """Rows of people in order of time, and a table of these people: csv, tsv or parquet files, or a Data Package of both.

    What no public schema says of their columns the fit buys inside of its budget.

    Arguments:
        path: file of the rows, or a `datapackage.json` of two tables with a foreign key; without it simulated patients.
        people_path: file of the people, one line for each; without it people are those who have rows.
        person: column that names the person, in both files; it is no data.
        order: column of a date, a time or a whole number by which the rows of a person are ordered; None: they have no order.
        max_rows: m, rows of a person that are used, in [1, 60]; of more a window of successive ones. None: it is bought, the
            least m that 95 % of noisy people keep to.
        schema: file of the public Table Schema of the rows, or the schema itself; every part of it may be missing.
        people_schema: the same of the people.
        time_unit: in which dates and times are modelled, "day" or "second"; times of a day are left out of samples by day.
        orphans: rows of nobody in the file of people are an "error"; "drop" them, or "keep" people of unknown columns for them.
        test_fraction: probability of each person to be kept for evaluation, in [0, 1).
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
        show_values: whether an error shows the first private value that a schema forbids.
        delimiter: of csv files, the one character between two fields, or "tab"; without it a comma, or of .tsv a tab.
        encoding: of csv files, by its name in Python, as cp1252; without it UTF-8.

    Raises:
        ValueError: a file is missing or malformed, a person is missing or listed twice, a row has no time or belongs to nobody,
            or values outside of the schema.
    """
    tables: tuple[str, ...]
    if path is None:
        if stated := next((v for v in (people_path, delimiter, encoding) if v is not None), None):
            raise ValueError(f"path is None and {stated!r} is given; path must name the table of rows that it is about")
        simulated = simulated_patients()
        people_path, path = (in_memory(simulated[name]) for name in ("patients", "visits"))
        person, order, tables = "patient", "date", ("patients", "visits")
        people_schema, schema = dict(PATIENTS), dict(VISITS)
    elif not isinstance(path, InMemory) and Path(path).name == PACKAGE:
        if people_path is not None or person != "person":
            raise ValueError(f"path is {str(path)!r}; people_path and person must be left out: the package says them")
        people_path, path, person, (people_schema, of_rows) = linked_package(Path(path))
        named = of_rows.pop(ORDER, None)
        order, schema = named if order is None else order, of_rows
        tables = _names((people_path, path))
    else:
        tables = _names([source for source in (people_path, path) if source is not None])
    if delimiter is not None or encoding is not None:
        path = csv_path(path, delimiter, encoding)
        people_path = people_path and csv_path(people_path, delimiter, encoding)
    return _Reader(person, order, max_rows, time_unit, orphans, tables).read(
        people_path, path, people_schema, schema, SplitOptions(test_fraction, split_key=split_key), show=show_values
    )


def load_sql_linked(
    *,
    source: str,
    people_source: str | None = None,
    rows: str | None = None,
    person: str = "person",
    order: str | None = None,
    max_rows: int | None = 10,
    schema: dict[str, Any] | str | None = None,
    people_schema: dict[str, Any] | str | None = None,
    time_unit: TimeUnit = "day",
    orphans: Orphans = "error",
    split_key: Path | None = None,
    show_values: bool = False,
) -> LinkedTables:
    """People and their rows in DuckDB, in parquet or csv files larger than memory, or in Spark.

    The engine sorts rows by person; the rows that are used are kept in a temporary folder, and people are held in memory. No
    people are held out for evaluation.

    Arguments:
        source: a DuckDB file, or the parquet or csv files of the rows, as in "visits/*.parquet".
        people_source: the parquet or csv files of the people; without it, and without a table in `person`, people are those
            who have rows.
        rows: table of the rows in a DuckDB file; it may be left out where there is one.
        person: column that names the person, in both tables; TABLE.COLUMN names the table of people of a DuckDB file, too.
        order: column of a date, a time or a whole number by which the rows of a person are ordered; None: they have no order.
        max_rows: m, rows of a person that are used, in [1, 60]; of more a window of successive ones. None: it is bought.
        schema: file of the public Table Schema of the rows, or the schema itself; every part of it may be missing.
        people_schema: the same of the people.
        time_unit: in which dates and times are modelled, "day" or "second"; times of a day are left out of samples by day.
        orphans: rows of nobody among the people are an "error"; "drop" them, or "keep" people of unknown columns for them.
        split_key: file of the secret key by which windows are chosen; a run has its own without it.
        show_values: whether an error shows the first private value that a schema forbids.
    """
    table, _, column = person.rpartition(".")
    if people_source is not None or isinstance(source, InMemory):
        table, column = "", person
    known = [MISSING if given is None else descriptor_of(given).get("missingValues", [""]) for given in (schema, people_schema)]
    opened = open_table(source, rows, text=None, missing=known[0], memory=MEMORY, option="rows")
    people = None
    if people_source is not None:
        people = open_table(people_source, text=None, missing=known[1], memory=MEMORY)
    elif table:
        people = open_table(source, table, text=None, missing=known[1], memory=MEMORY, option="the table of person")
    named = [part for part in (people_source or (people and table), rows or source) if part]
    tables = (table, rows) if table and rows else _names(named)
    return _Reader(column, order, max_rows, time_unit, orphans, tables).read(
        people, opened, people_schema, schema, SplitOptions(0.0, split_key=split_key), show=show_values
    )


def _called(source: Source, table: str) -> str:
    """What messages call a table: its file, or its name where it is in memory or handed over."""
    if isinstance(source, EngineTable):
        return source.name if source.files or source.snapshot else table
    return table if isinstance(source, InMemory) else source


def _names(sources: Sequence[Any]) -> tuple[str, ...]:
    """Names of tables in samples: their own, or those of their files, of many in a folder that of the folder; rows."""
    stems = [
        "rows" if isinstance(source, InMemory) else name_of(source).strip("*?-_") or Path(source).parent.name
        for source in sources
    ]
    return tuple(getattr(source, "table", None) or stem for source, stem in zip(sources, stems))


@dataclass(frozen=True)
class _Reader:
    """Reads both tables by the options of `load_linked`."""

    person: str
    order: str | None
    most: int | None
    time_unit: TimeUnit
    orphans: Orphans
    tables: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.most is not None and (type(self.most) is not int or not 1 <= self.most <= MOST_ROWS):
            raise ValueError(f"max_rows is {self.most!r}; it must be a whole number in [1, {MOST_ROWS}], or None: it is bought")
        for option, value, known in (("time_unit", self.time_unit, TimeUnit), ("orphans", self.orphans, Orphans)):
            if value not in get_args(known):
                raise ValueError(f"{option} is {value!r}; choose one of {', '.join(get_args(known))}")
        if len(set(self.tables)) < len(self.tables):
            raise ValueError(f"both tables are called {self.tables[0]!r}; people and rows must have two names")

    def read(
        self, people_path: Source | None, path: Source, people_schema: Any, schema: Any, options: SplitOptions, *, show: bool
    ) -> LinkedTables:
        gap, _ = self._new_names(path, people_path)
        (people_schema, of_people), (schema, of_rows) = self._across(people_schema, 0), self._across(schema, -1)
        schema, of_gap = _without(schema, gap)
        rows_draft = self._draft(path, schema)
        spans: dict[str, str] = {}
        if self.order is not None:
            self._date(rows_draft, path)
            self._require_free(rows_draft, gap)
            spans = {self.order: "first"} | ({gap: "later"} if self.most != 1 else {})
            blank = {"type": "integer", "constraints": {"required": True, "minimum": 0}, "dpgen:blank": True}
            rows_draft["fields"] = [*rows_draft["fields"], *([of_gap or {"name": gap, **blank}] if self.most != 1 else [])]
        people_draft: dict[str, Any] = {"fields": []}
        if people_path is not None and (people_schema is not None or list(types_of(people_path)) != [self.person]):
            people_draft = self._draft(people_path, people_schema)
        across = self._require_known([*of_people, *of_rows], people_draft, rows_draft)
        if self.orphans == "keep" and people_path is not None:  # a type without gaps says nothing of people who are not there
            stated_fields = {str(field.get("name")) for field in descriptor_of(people_schema)["fields"]}
            for field in people_draft["fields"]:
                if field["name"] not in stated_fields:
                    field.get("constraints", {}).pop("required", None)
        read = partial(self._read, people_path, path, (people_draft, rows_draft), spans, options.split(), across, show=show)
        return read(MOST_ROWS, again=read) if self.most is None else read(self.most)

    def _read(
        self,
        people_path: Source | None,
        path: Source,
        drafts: tuple[dict[str, Any], dict[str, Any]],
        spans: Mapping[str, str],
        split: Split,
        across: Sequence[Mapping[str, Any]],
        most: int,
        *,
        show: bool,
        again: Any = None,
    ) -> LinkedTables:
        """The tables with at most so many rows of each person."""
        (of_people, rows_draft), (gap, count) = drafts, self._new_names(path, people_path)
        least = int(people_path is None)
        whole = {"required": True, "minimum": least, "maximum": most}
        people_draft = of_people | {"fields": [*of_people["fields"], {"name": count, "type": "integer", "constraints": whole}]}
        people, index = pd.DataFrame(), None
        of_whom, of_what = _called(people_path or "", self.tables[0]), _called(path, self.tables[-1])
        if people_path is not None:
            people = pd.concat(self._tables(people_path, of_whom, people_draft, count, split.key), ignore_index=True)
            index = pd.Index(people[self.person].astype(str).to_numpy(object))
            if not index.is_unique:
                raise ValueError(f"{of_whom} has a person of {self.person!r} twice; each must have one line")
        options = (self.person, self.order, self.time_unit, self.orphans, gap in spans)
        reading = Reading(*options, index, of_what, of_whom, rows_draft, split.key, most, gap, show)
        tables = map(reading.made, self._tables(path, of_what, rows_draft, gap, split.key))
        rows: pd.DataFrame | EngineTable
        if isinstance(path, EngineTable):
            rows = kept(path, tables, {self.order: reading.stamp, gap: pyarrow.int64()})
        else:
            (rows,) = tables
        keys, counts = reading.keys, reading.counts
        if index is not None:
            known = people.set_index(index)
            left = index.difference(pd.Index(keys, dtype=object), sort=False)
            keys, counts = np.r_[keys, left.to_numpy(object)], np.r_[counts, np.zeros(len(left), np.int64)]
            # As objects: gaps of others would make numbers of whole ones and of truth values.
            people = known.astype(object).reindex(keys) if self.orphans == "keep" else known.loc[keys]
        people = pd.DataFrame(people, index=pd.Index(keys, dtype=object)).reset_index(drop=True)
        people = people.drop(columns=self.person, errors="ignore").assign(**{count: counts})
        check(people, people_draft, show=show)
        placed = Fact.WINDOW_OF_ROWS(most=most) if self.order is not None else Fact.ROWS_IN_NO_ORDER(most=most)
        twice = (source.facts for source in (path, people_path) if again and isinstance(source, EngineTable))
        orphans = {"drop": (Fact.ORPHANS_LEFT_OUT,), "keep": (Fact.ORPHANS_KEPT,)}.get(self.orphans, ())
        sources = (source for source in (path, people_path) if source is not None)
        left_out = [unnamed(source, draft, self.person) for source, draft in zip(sources, (rows_draft, people_draft))]
        found = replace(split, people=keys.tolist())
        made = LinkedTables(
            name=self.tables[0],
            people=people,
            rows=rows,
            starts=np.r_[0, counts.cumsum()].astype(np.int64),
            sample=pd.concat(reading.samples, ignore_index=True),
            people_draft=people_draft,
            rows_draft=rows_draft,
            spans=spans,
            most=most,
            least=least,
            names={
                "tables": list(self.tables),
                "person": self.person,
                "order": self.order,
                "gap": gap,
                "count": count,
                "across": across,
            },
            sources=(people_path, path),
            time_unit=self.time_unit,
            facts=(*(() if again else (placed,)), *orphans, found.fact("people"), *chain(*left_out, *twice)),
            again=again,
        )
        test = found.test_rows(len(keys)).numpy()
        return replace(made.some(~test), test=made.some(test)) if test.any() else made

    def _across(self, schema: Any, place: int) -> tuple[Any, list[Mapping[str, Any]]]:
        """A schema without its constraints on columns of both tables, and these, with the name of its own table."""
        if schema is None or len(self.tables) < 2:
            return schema, []
        given, own = descriptor_of(schema), self.tables[place]
        prefixes = tuple(f"{table}." for table in self.tables)
        known, rules = {str(field.get("name")) for field in given["fields"]}, given.get("dpgen:constraints", [])
        both = [
            rule for rule in rules if any(name.startswith(prefixes) and name not in known for name in constraint_of(rule).names)
        ]
        left = {**given, "dpgen:constraints": [rule for rule in rules if rule not in both]}

        def full(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {full(name): condition for name, condition in value.items()}
            if isinstance(value, list):
                return [full(name) for name in value]
            return value if value.startswith(prefixes) and value not in known else f"{own}.{value}"

        return (left if both else schema), [{key: full(value) for key, value in rule.items()} for rule in both]

    def _require_known(
        self, rules: Sequence[Mapping[str, Any]], people: dict[str, Any], rows: dict[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """Refuse constraints on both tables that no sample could satisfy; what they compute is no column of the model."""
        drafts = dict(zip(self.tables, (people, rows)))
        for rule in rules:
            names, total = constraint_of(rule).names, rule.get("total", "")
            kinds = {}
            for name in names:
                table, _, column = name.partition(".")
                field = next((field for field in drafts[table]["fields"] if field["name"] == column), None)
                if field is None:
                    raise nearest(f"a column of a constraint on {table}", column, [f["name"] for f in drafts[table]["fields"]])
                kinds[name] = field["type"]
            unknown = [name for name, kind in kinds.items() if kind == "any"]
            if unknown and "forbidden" not in rule:
                raise ValueError(f"a constraint is on {unknown[0]!r}; the schema must state its type")
            dated = {kind in ("date", "datetime") for kind in kinds.values()}
            if "depends" in rule or ("less_equal" in rule and len(dated) > 1):
                raise ValueError(
                    f"a constraint is on {' and '.join(names)}; it must be forbidden, less_equal of alike types, or sum"
                )
            if "sum" in rule:
                alike = (
                    len(names) == 2 and total.startswith(f"{self.tables[0]}.") and names[0].startswith(f"{self.tables[-1]}.")
                )
                if not alike or not {*kinds.values()} <= {"integer", "number"}:
                    raise ValueError(
                        f"a constraint is the sum {total!r}; it must be of one number of rows, for a number of people"
                    )
                column = total.partition(".")[2]
                people["fields"] = [field for field in people["fields"] if field["name"] != column]
        return rules

    def _new_names(self, path: Source, people_path: Source | None) -> tuple[str, str]:
        """Names of the time since the last row and of the number of rows, which no column has."""
        present = {*types_of(path), *(() if people_path is None else types_of(people_path))}
        for option, name, source in (
            ("person", self.person, path),
            ("order", self.order, path),
            ("person", self.person, people_path),
        ):
            if name is not None and source is not None and name not in types_of(source):
                raise nearest(option, name, list(types_of(source)))
        found = [f"{self.time_unit}s since the last", f"number of {self.tables[-1]}"]
        return (*(name if name not in present else f"{name} of the model" for name in found),)  # type: ignore[return-value]

    def _draft(self, path: Source, schema: Any) -> dict[str, Any]:
        draft = draft_of(path, schema, target=None, key=None, unit=self.person)
        if "dpgen:privacy" in draft:
            raise ValueError(
                "schema has domains that were bought for single rows; leave them out: the fit buys them for people"
            )
        if any(field["name"] == self.person for field in draft["fields"]):
            raise ValueError(f"person is {self.person!r}; it must be no field of the schema")
        return draft

    def _date(self, draft: dict[str, Any], path: Source) -> None:
        """The field of the order: a date by day, a time by second, or a whole number."""
        field = next((field for field in draft["fields"] if field["name"] == self.order), None)
        if field is None:  # a schema that states all of its fields leaves others out, but not this one
            kind = type_of(text) if (text := types_of(path)[str(self.order)]) else "any"
            field = {"name": self.order, "type": kind, "dpgen:blank": True}
            draft["fields"] = [*draft["fields"], field]
        if field["type"] in ("any", "string", "date", "datetime"):
            field["type"] = {"day": "date", "second": "datetime"}[self.time_unit]
        elif field["type"] not in ("integer", "year"):
            raise ValueError(f"order is {self.order!r}, a {field['type']}; it must hold dates, times or whole numbers")
        field["constraints"] = field.get("constraints", {}) | {"required": True}

    def _require_free(self, draft: dict[str, Any], gap: str) -> None:
        """Refuse constraints on the order or on times between rows: later rows get theirs from the rows before."""
        for rule in draft.get("dpgen:constraints", []):
            for name in {self.order, gap} & set(constraint_of(rule).names) if self.most != 1 else ():
                raise ValueError(
                    f"a constraint of the schema is on {name!r}; with max_rows above 1 none may be on the order of rows or the "
                    "time between them, which follow from other rows"
                )

    def _tables(self, path: Source, called: str, draft: dict[str, Any], made: str, key: bytes) -> Iterator[pd.DataFrame]:
        """The used columns of a table, in one piece, or of an engine in several with all lines of a person in one of them."""
        people, found = People(self.person, 1, key), False
        wanted = [self.person, *(name for name in read_names(draft) if name not in (self.person, made))]
        pieces: Iterable[pd.DataFrame]
        if isinstance(path, EngineTable):
            pieces = EngineBatches(path.columns(wanted), partial(frames, people=people), by=self.person)
        else:
            pieces = [read_table(path, wanted, text=wanted, missing=draft.get("missingValues", [""]))]
        for table in pieces:
            if table[self.person].isna().any():
                raise ValueError(f"{called} has a line without {self.person!r}: every line needs its person")
            people.require_names(table[self.person])
            found = found or len(table) > 0
            if found:
                yield table
        if not found:
            raise ValueError(f"{called} is empty: it has {len(types_of(path))} columns and no record")


def _without(schema: Any, name: str) -> tuple[Any, dict[str, Any] | None]:
    """A schema without a field that no column has, and this field, if it is there."""
    if schema is None:
        return None, None
    given = descriptor_of(schema)
    found = next((field for field in given["fields"] if field.get("name") == name), None)
    return {**given, "fields": [field for field in given["fields"] if field.get("name") != name]}, found
