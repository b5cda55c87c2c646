r"""People and their rows: two linked tables, or one long table of histories, with all that belongs to a person together.

| what | how |
|---|---|
| order | rows of a person by the column `order`; those of one time by a keyed hash of their contents, never by their position |
| at most m rows | of a person with more a window of m successive ones, which begins at a keyed hash of the person |
| the time of a row | that of the first row, and for later ones the time since the row before |
| one row of each person, for domains that are bought | a keyed hash of the person chooses it |

Each of these is a function of that person's rows alone, under a secret key. People without rows stay people; without a table of
people those who have rows are all there are.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.constraints import constraint_of
from dpgen.containers import InMemory, in_memory
from dpgen.data.drafts import type_of
from dpgen.data.patients import PATIENTS, VISITS, simulated_patients
from dpgen.data.raw_tables import FrameRows, draft_of, read_names, stated, unnamed
from dpgen.data.split import TEST_FRACTION, SplitOptions
from dpgen.data.table_files import header, name_of, read_table
from dpgen.data.tables import form_of_samples
from dpgen.data.units import KEY_BYTES, People
from dpgen.facts import Fact, Said
from dpgen.schema import Schema, nearest, read_descriptor
from dpgen.values import times

Integers = npt.NDArray[np.int64]
TimeUnit = Literal["day", "second"]
Orphans = Literal["error", "drop"]

MOST_ROWS = 60
"""Of a person, at most."""
_SECONDS = {"day": 86_400, "second": 1}
PACKAGE, ORDER = "datapackage.json", "dpgen:order"


@dataclass(frozen=True, eq=False, repr=False)
class LinkedTables:
    """Private people and their rows, beside people for evaluation that are not protected.

    Arguments:
        name: what the data are called in reports.
        people: private people; the last column is their number of rows.
        rows: private rows, those of a person one after the other in order of time.
        starts: (n + 1,) where the rows of each person begin.
        chosen: (n, 2) the row that stands for all of a person, and for the later ones, counted in the person's own.
        people_draft: what is known of the columns of people; fields with "dpgen:blank" have no domain yet.
        rows_draft: the same of rows.
        spans: of columns that later rows alone have, and the first one alone.
        most: m, rows of a person at most.
        least: of rows; 1 where there are no people without rows.
        names: of the tables, and of the columns of the person, the order, and the time since the last row.
        sources: of the tables, whose containers and types samples have.
        time_unit: of the order.
        facts: what a privacy statement says of them.
        test: the people for evaluation, if there are any.
    """

    name: str
    people: pd.DataFrame
    rows: pd.DataFrame
    starts: Integers
    chosen: Integers
    people_draft: dict[str, Any]
    rows_draft: dict[str, Any]
    spans: Mapping[str, Any]
    most: int
    least: int
    names: Mapping[str, Any]
    sources: tuple[str | None, str]
    time_unit: TimeUnit
    facts: tuple[Fact | Said, ...] = ()
    test: "LinkedTables | None" = None

    def __repr__(self) -> str:
        return f"LinkedTables({self.name!r}: {self.n} people, {len(self.rows)} rows)"

    @property
    def n(self) -> int:
        """Number of private people."""
        return len(self.starts) - 1

    def one_of_each(self) -> FrameRows:
        """The private people, for domains that are bought."""
        return FrameRows(self.people)

    def one_row_each(self) -> FrameRows:
        """A row of each person who has any; columns that later rows alone have are those of a later row, or missing."""
        counts = np.diff(self.starts)
        able = np.flatnonzero(counts)
        found = self.rows.iloc[self.starts[able] + self.chosen[able, 0]].reset_index(drop=True)
        for name, span in self.spans.items():
            place = self.starts[able] + (0 if span == "first" else self.chosen[able, 1])
            values = self.rows[name].iloc[np.minimum(place, len(self.rows) - 1)].reset_index(drop=True)
            found[name] = values if span == "first" else values.astype(np.float64).mask(counts[able] < 2)
        return FrameRows(found)

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
            forms[table] = form_of_samples(source, schema, [name for name in header(source) if name in wanted]).to_dict()
        order: dict[str, Any] = next((f for f in self.rows_draft["fields"] if f["name"] == self.names["order"]), {})
        until = None if order.get("dpgen:blank") else order.get("constraints", {}).get("maximum")
        text = header(self.sources[1])[self.names["person"]]
        numbered = text.startswith(("int", "uint")) or not text
        return {**self.names, "seconds": _SECONDS[self.time_unit], "until": until, "text": not numbered, "forms": forms}


def load_linked(
    *,
    path: str | None = None,
    people_path: str | None = None,
    person: str = "person",
    order: str | None = None,
    max_rows: int = 10,
    schema: dict[str, Any] | str | None = None,
    people_schema: dict[str, Any] | str | None = None,
    time_unit: TimeUnit = "day",
    orphans: Orphans = "error",
    test_fraction: float = TEST_FRACTION,
    split_key: Path | None = None,
    show_values: bool = False,
) -> LinkedTables:
    """Rows of people in order of time, and a table of these people: csv, tsv or parquet files, or a Data Package of both.

    What no public schema says of their columns the fit buys inside of its budget.

    Arguments:
        path: file of the rows, or a `datapackage.json` of two tables with a foreign key; without it simulated patients.
        people_path: file of the people, one line for each; without it people are those who have rows.
        person: column that names the person, in both files; it is no data.
        order: column of a date, a time or a whole number by which the rows of a person are ordered; None: they have no order.
        max_rows: m, rows of a person that are used, in [1, 60]; of more a window of successive ones.
        schema: file of the public Table Schema of the rows, or the schema itself; every part of it may be missing.
        people_schema: the same of the people.
        time_unit: in which dates and times are modelled, "day" or "second"; times of a day are left out of samples by day.
        orphans: rows of nobody in the file of people are an "error", or "drop" them.
        test_fraction: probability of each person to be kept for evaluation, in [0, 1).
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
        show_values: whether an error shows the first private value that a schema forbids.

    Raises:
        ValueError: a file is missing or malformed, a person is missing or listed twice, a row has no time or belongs to nobody,
            or values outside of the schema.
    """
    if type(max_rows) is not int or not 1 <= max_rows <= MOST_ROWS:
        raise ValueError(f"max_rows is {max_rows!r}; it must be a whole number in [1, {MOST_ROWS}]")
    for option, value, known in (("time_unit", time_unit, TimeUnit), ("orphans", orphans, Orphans)):
        if value not in get_args(known):
            raise ValueError(f"{option} is {value!r}; choose one of {', '.join(get_args(known))}")
    tables: tuple[str, ...]
    if path is None:
        if people_path is not None:
            raise ValueError(f"path is None and people_path is {str(people_path)!r}; path must name the table of rows")
        simulated = simulated_patients()
        people_path, path = (in_memory(simulated[name]) for name in ("patients", "visits"))
        person, order, tables = "patient", "date", ("patients", "visits")
        people_schema, schema = dict(PATIENTS), dict(VISITS)
    elif not isinstance(path, InMemory) and Path(path).name == PACKAGE:
        if people_path is not None or person != "person":
            raise ValueError(f"path is {str(path)!r}; people_path and person must be left out: the package says them")
        people_path, path, person, (people_schema, of_rows) = _package(Path(path))
        named = of_rows.pop(ORDER, None)
        order, schema = named if order is None else order, of_rows
        tables = tuple(Path(name_of(source)).stem for source in (people_path, path))
    else:
        named = [source for source in (people_path, path) if source is not None]
        tables = tuple(getattr(source, "table", None) or Path(name_of(source)).stem for source in named)
    if len(set(tables)) < len(tables):
        raise ValueError(f"both tables are called {tables[0]!r}; people and rows must be two files of other names")
    return _Reader(person, order, max_rows, time_unit, orphans, tables).read(
        people_path, path, people_schema, schema, SplitOptions(test_fraction, split_key=split_key), show=show_values
    )


def _package(path: Path) -> tuple[str, str, str, tuple[Any, Any]]:
    """Files of people and of rows of a Data Package, the column that links them, and the schemas of both."""
    try:
        resources = json.loads(path.read_text(encoding="utf-8"))["resources"]
        by_name = {resource["name"]: resource for resource in resources}
        linked = [(resource, key) for resource in resources for key in resource.get("schema", {}).get("foreignKeys", [])]
        (rows, key), *more = linked or [(None, None)]
        if rows is None or more or len(resources) != 2:
            raise ValueError(
                f"{path} has {len(resources)} tables and {len(linked)} foreign keys; it must have two tables, of which one has "
                "a foreign key to the other (tables of more levels are not modelled)"
            )
        people = by_name[key["reference"]["resource"]]
        own, other = key["fields"], key["reference"]["fields"]
        own, other = (names[0] if isinstance(names, list) else names for names in (own, other))
        if own != other or people is rows:
            raise ValueError(f"{path} links {own!r} to {other!r}; the column must have one name in two tables")
        schemas = []
        for resource in (people, rows):
            known = dict(resource.get("schema", {}))
            fields = [field for field in known.pop("fields", []) if field.get("name") != own]
            link = known.get("primaryKey") in (own, [own])
            kept = {k: value for k, value in known.items() if k != "foreignKeys" and not (link and k == "primaryKey")}
            schemas.append({**kept, "fields": [f for f in fields if set(f) - {"name"}], "fieldsMatch": "partial"})
        return str(path.parent / people["path"]), str(path.parent / rows["path"]), own, (schemas[0], schemas[1])
    except (OSError, KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"path {str(path)!r} is no Data Package: {type(error).__name__}") from error


@dataclass(frozen=True)
class _Reader:
    """Reads both tables by the options of `load_linked`."""

    person: str
    order: str | None
    most: int
    time_unit: TimeUnit
    orphans: Orphans
    tables: tuple[str, ...]

    def read(
        self, people_path: str | None, path: str, people_schema: Any, schema: Any, options: SplitOptions, *, show: bool
    ) -> LinkedTables:
        key = options.split().key
        gap, count = self._new_names(path, people_path)
        schema, of_gap = _without(schema, gap)
        rows_draft = self._draft(path, schema)
        spans: dict[str, str] = {}
        if self.order is not None:
            self._date(rows_draft, path)
            self._require_free(rows_draft, gap)
            spans = {self.order: "first"} | ({gap: "later"} if self.most > 1 else {})
            blank = {"type": "integer", "constraints": {"required": True, "minimum": 0}, "dpgen:blank": True}
            rows_draft["fields"] = [*rows_draft["fields"], *([of_gap or {"name": gap, **blank}] if self.most > 1 else [])]
        people_draft: dict[str, Any] = {"fields": []} if people_path is None else self._draft(people_path, people_schema)
        least = int(people_path is None)
        whole = {"required": True, "minimum": least, "maximum": self.most}
        people_draft["fields"] = [*people_draft["fields"], {"name": count, "type": "integer", "constraints": whole}]
        rows = self._table(path, rows_draft, {gap})
        of_rows = rows[self.person].astype(str).to_numpy(object)
        if people_path is None:
            keys = np.unique(of_rows.astype(str)).astype(object)
            people = pd.DataFrame(index=range(len(keys)))
        else:
            people = self._table(people_path, people_draft, {count})
            keys = people[self.person].astype(str).to_numpy(object)
            if len(set(keys)) < len(keys):
                raise ValueError(f"{people_path} has a person of {self.person!r} twice; each person must have one line")
        owner = pd.Index(keys).get_indexer(pd.Index(of_rows))
        if (owner < 0).any() and self.orphans == "error":
            raise ValueError(
                f"{path} has rows whose person is not in {people_path}; add the people, or drop such rows: orphans=drop"
            )
        rows, owner = rows[owner >= 0].reset_index(drop=True), owner[owner >= 0]
        rows, starts = self._ordered(rows, owner, len(keys), key, rows_draft, gap, path)
        rows, starts, chosen = self._bounded(rows, starts, keys, key)
        if gap in spans:
            least_gap = _minimum(rows_draft, gap)
            rows.loc[rows.index[starts[:-1][np.diff(starts) > 0]], gap] = least_gap
        if self.order is not None:  # the order of later rows follows from the times between them
            first = np.repeat(starts[:-1], np.diff(starts))
            rows[self.order] = rows[self.order].iloc[first].to_numpy()
        people = people.drop(columns=self.person, errors="ignore").assign(**{count: np.diff(starts)})
        for frame, draft in ((people, people_draft), (rows, rows_draft)):
            public = stated(draft)
            if public is not None:
                public.encode(frame, show=show, numbered=False)  # refuses what contradicts it, before anything is spent
        names = {"tables": list(self.tables), "person": self.person, "order": self.order, "gap": gap, "count": count}
        split = replace(options, people=None).split(people=keys.tolist())
        dropped = (Fact.ORPHANS_LEFT_OUT,) if self.orphans == "drop" else ()
        placed = Fact.WINDOW_OF_ROWS(most=self.most) if self.order is not None else Fact.ROWS_IN_NO_ORDER()
        left = unnamed(path, rows_draft, self.person) + (
            () if people_path is None else unnamed(people_path, people_draft, self.person)
        )
        facts = (placed, *dropped, split.fact("people"), *left)
        made = LinkedTables(
            name=self.tables[0],
            people=people,
            rows=rows.drop(columns=self.person),
            starts=starts,
            chosen=chosen,
            people_draft=people_draft,
            rows_draft=rows_draft,
            spans=spans,
            most=self.most,
            least=least,
            names=names,
            sources=(people_path, path),
            time_unit=self.time_unit,
            facts=facts,
        )
        test = split.test_rows(len(keys)).numpy()
        return replace(_some(made, ~test), test=_some(made, test) if test.any() else None)

    def _new_names(self, path: str, people_path: str | None) -> tuple[str, str]:
        """Names of the time since the last row and of the number of rows, which no column has."""
        present = {*header(path), *(() if people_path is None else header(people_path))}
        for option, name, source in (
            ("person", self.person, path),
            ("order", self.order, path),
            ("person", self.person, people_path),
        ):
            if name is not None and source is not None and name not in header(source):
                raise nearest(option, name, list(header(source)))
        found = [f"{self.time_unit}s since the last", f"number of {self.tables[-1]}"]
        return (*(name if name not in present else f"{name} of the model" for name in found),)  # type: ignore[return-value]

    def _draft(self, path: str, schema: Any) -> dict[str, Any]:
        draft = draft_of(path, schema, target=None, key=None, unit=self.person)
        if "dpgen:privacy" in draft:
            raise ValueError(
                "schema has domains that were bought for single rows; leave them out: the fit buys them for people"
            )
        if any(field["name"] == self.person for field in draft["fields"]):
            raise ValueError(f"person is {self.person!r}; it must be no field of the schema")
        return draft

    def _date(self, draft: dict[str, Any], path: str) -> None:
        """The field of the order: a date by day, a time by second, or a whole number."""
        field = next((field for field in draft["fields"] if field["name"] == self.order), None)
        if field is None:  # a schema that states all of its fields leaves others out, but not this one
            kind = type_of(header(path)[str(self.order)])
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
            for name in {self.order, gap} & set(constraint_of(rule).names) if self.most > 1 else ():
                raise ValueError(
                    f"a constraint of the schema is on {name!r}; with max_rows above 1 none may be on the order of rows or the "
                    "time between them, which follow from other rows"
                )

    def _table(self, path: str, draft: dict[str, Any], made: set[str]) -> pd.DataFrame:
        names = [name for name in read_names(draft) if name not in made]
        wanted = [self.person, *(name for name in names if name != self.person)]
        table = read_table(path, wanted, text=wanted, missing=draft.get("missingValues", [""]))
        if not len(table):
            raise ValueError(f"{path} is empty: it has {len(table.columns)} columns and no record")
        if table[self.person].isna().any():
            raise ValueError(f"{path} has a line without {self.person!r}: every line needs its person")
        People(self.person, 1, bytes(KEY_BYTES)).require_names(table[self.person])
        return table

    def _ordered(
        self, rows: pd.DataFrame, owner: Integers, n: int, key: bytes, draft: dict[str, Any], gap: str, path: str
    ) -> tuple[pd.DataFrame, Integers]:
        """Rows by person and time, ties by a keyed hash of their contents, with the time since the last one."""
        exact, counted = np.zeros(len(rows)), np.zeros(len(rows), np.int64)
        if self.order is not None:
            kind = next(field["type"] for field in draft["fields"] if field["name"] == self.order)
            values, dated = rows[self.order], kind in ("date", "datetime")
            exact = times(values) if dated else pd.to_numeric(values, errors="coerce").to_numpy(np.float64)
            if not np.isfinite(exact).all():
                what = "date (whole numbers need the type integer in schema)" if dated else "whole number"
                raise ValueError(
                    f"{path} has a row whose {self.order!r} is missing or no {what}: order must be known in every row"
                )
            step = _SECONDS[self.time_unit] if dated else 1
            counted = np.floor_divide(exact, step).astype(np.int64)
            if dated:
                rows = rows.assign(**{self.order: (counted * step).astype("datetime64[s]")})
        ranks = np.zeros((len(rows), 4), np.uint64)
        groups = pd.DataFrame({"owner": owner, "time": exact})
        tied = np.flatnonzero(groups.duplicated(keep=False).to_numpy())
        if len(tied):
            part = rows.iloc[tied]
            ranks[tied] = People(self.person, 1, key).ranks(part[self.person], part.drop(columns=self.person))
        order = np.lexsort((*ranks.T[::-1], exact, owner))
        starts = np.r_[0, np.bincount(owner, minlength=n).cumsum()].astype(np.int64)
        rows = rows.iloc[order].reset_index(drop=True)
        if self.order is not None and self.most > 1:
            rows[gap] = np.diff(counted[order], prepend=0)
        return rows, starts

    def _bounded(
        self, rows: pd.DataFrame, starts: Integers, keys: npt.NDArray[np.object_], key: bytes
    ) -> tuple[pd.DataFrame, Integers, Integers]:
        """At most m successive rows of each person, and the rows that stand for all of them."""
        salt = hashlib.sha256(b"dpgen windows" + key).digest()
        digests = b"".join(hashlib.sha256(salt + str(text).encode()).digest() for text in keys)
        words = np.frombuffer(digests, ">u8").reshape(-1, 4).astype(np.uint64)
        counts = np.diff(starts)
        spare = np.maximum(counts - self.most, 0)
        begin = (words[:, 0] % (spare + 1).astype(np.uint64)).astype(np.int64)
        kept = np.minimum(counts, self.most)
        place = np.arange(len(rows)) - np.repeat(starts[:-1] + begin, counts)
        inside = (place >= 0) & (place < np.repeat(kept, counts))
        one = words[:, 1] % np.maximum(kept, 1).astype(np.uint64)
        later = 1 + words[:, 2] % np.maximum(kept - 1, 1).astype(np.uint64)
        chosen = np.stack([one, later], axis=1).astype(np.int64)
        return rows[inside].reset_index(drop=True), np.r_[0, kept.cumsum()].astype(np.int64), chosen


def _some(data: LinkedTables, people: npt.NDArray[np.bool_]) -> LinkedTables:
    """Some of the people, with all of their rows."""
    counts = np.diff(data.starts)
    rows = data.rows[np.repeat(people, counts)].reset_index(drop=True)
    starts = np.r_[0, counts[people].cumsum()].astype(np.int64)
    own = data.people[people].reset_index(drop=True)
    return replace(data, people=own, rows=rows, starts=starts, chosen=data.chosen[people])


def _without(schema: Any, name: str) -> tuple[Any, dict[str, Any] | None]:
    """A schema without a field that no column has, and this field, if it is there."""
    if schema is None:
        return None, None
    given = read_descriptor(Path(schema)) if isinstance(schema, str) else schema
    if not isinstance(given, Mapping) or not isinstance(given.get("fields"), list):
        return given, None  # which is refused
    found = next((field for field in given["fields"] if field.get("name") == name), None)
    return {**given, "fields": [field for field in given["fields"] if field.get("name") != name]}, found


def _minimum(draft: Mapping[str, Any], name: str) -> int:
    field = next(field for field in draft["fields"] if field["name"] == name)
    return int(field.get("constraints", {}).get("minimum") or 0)
