"""Mixed tables - categories, numbers, dates and gaps - as codes of a public schema, and their files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import torch
from torch import Tensor

from dpgen.columns.fields import BinnedField, CategoryField, DensityField, Field, NumberField
from dpgen.columns.writings import writing_of
from dpgen.columns.writings.table import DIGITS, TRUTHS
from dpgen.containers import Form, InMemory, in_memory
from dpgen.data.raw_tables import (
    Chosen,
    Dates,
    Descriptor,
    RawTable,
    any_blank,
    descriptor_of,
    draft_of,
    foreseen,
    load_raw,
    raw_in_engine,
    types_of,
    unnamed,
)
from dpgen.data.split import People, Split, SplitOptions
from dpgen.data.table_files import MISSING, form_of, header, in_engine, name_of, sample_form, table_path
from dpgen.facts import Fact, Said
from dpgen.schema import Schema

if TYPE_CHECKING:
    from dpgen.data.batches import KeptCodes, SparkCodes
    from dpgen.data.engines import EngineTable


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Private rows of a mixed table, beside rows for evaluation that are not protected.

    Codes are int64 (n, d), column c in [0, schema.domain.sizes[c]), or those that an engine made and keeps. `rows` and
    `test_rows` are as they were read, where they are kept, for an evaluation by values; `form` is that of samples. `prior` are
    public rows.
    """

    name: str
    codes: Tensor | KeptCodes | SparkCodes
    schema: Schema
    test_codes: Tensor
    facts: tuple[Fact | Said, ...] = ()
    form: Form | None = None
    rows: pd.DataFrame | None = None
    test_rows: pd.DataFrame | None = None
    prior: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        sizes = torch.tensor(self.schema.domain.sizes)
        for name, codes in (("codes", self.codes), ("test_codes", self.test_codes)):
            if not isinstance(codes, Tensor):
                continue  # which a schema made
            if codes.dtype != torch.int64 or codes.ndim != 2 or codes.shape[1] != len(sizes):
                raise ValueError(f"{name} are {codes.dtype} {tuple(codes.shape)}; they must be int64 (n, {len(sizes)})")
            if not bool(((codes >= 0) & (codes < sizes)).all()):
                raise ValueError(f"{name} hold a code outside of its column's domain; they must be in [0, size)")

    def __repr__(self) -> str:
        return f"Table({self.name!r}: {self.n} private, {len(self.test_codes)} test rows of {self.test_codes.shape[1]} columns)"

    @property
    def n(self) -> int:
        """Number of private rows."""
        return len(self.codes)

    @property
    def foreseen(self) -> tuple[str, ...]:
        """Sentences on what the release will not have, as far as public facts tell."""
        return foreseen(self.facts, self.schema.source)

    def some(self, most: int, generator: torch.Generator) -> Tensor:
        """At most so many of the private rows, int64 (m, d): a random choice where there are more."""
        if not isinstance(self.codes, Tensor):
            return self.codes.some(most, int(torch.randint(2**62, (1,), generator=generator)))
        return self.codes if self.n <= most else self.codes[torch.randperm(self.n, generator=generator)[:most]]


def load_table(
    *,
    path: str | None = None,
    schema: dict[str, Any] | str | None = None,
    target: str | None = None,
    key: str | None = None,
    test_fraction: float | None = None,
    test_path: str | None = None,
    split_key: Path | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    dates: Dates | None = None,
    columns: list[str] | None = None,
    drop: list[str] | None = None,
    engine: bool = False,
    people: People | None = None,
) -> Table | RawTable:
    """A csv, tsv (plain or .gz) or parquet file, or a table in an engine; what no public schema says of it, the fit buys.

    DuckDB and Spark read a column six times at most for what is bought. Then the table is read once, and codes are kept, one or
    two bytes a value: of DuckDB in a temporary file, of Spark on its executors.

    Arguments:
        path: file to read, or FILE.duckdb::TABLE, or parquet or csv files larger than memory, as in "visits/*.parquet"; without
            it simulated visits to a hospital, with their own schema.
        schema: file of the public Table Schema in JSON or YAML, or the schema itself; every part of it may be missing, and
            `dpgen schema FILE` drafts one. It leaves out columns that it does not name if it states all of its fields' domains.
        target: column that users want to predict, in place of the schema's dpgen:target.
        key: column that is no data, whose values are generated, in place of the schema's primaryKey.
        test_fraction: probability of each row to be kept for evaluation, in [0, 1). None: .2 of files, 0 in an engine.
        test_path: file of the test rows, with the same columns; then all of ``path`` is private.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
        delimiter: of a csv file, the one character between two fields, or "tab"; without it the one of the header line.
        encoding: of a csv file, by its name in Python, as cp1252; without it UTF-8, of other lines cp1252.
        dates: whether 03/04/2023 is in April, "day_first", or in March, "month_first", where no day beyond 12 tells it.
        columns: those that are released, and paid for; without it all.
        drop: columns that are not released, and cost nothing.
        engine: DuckDB reads a single file, too, which is larger than memory.
    """
    source, schema = _source(path, schema, delimiter, encoding, engine)
    far = in_engine(source, engine)
    options = SplitOptions.of(test_fraction, test_path, split_key, engine=far, missing=None, people=people)
    chosen = Chosen(target, key, dates, columns, drop or ())
    if far:
        return _in_engine(source, schema, people, chosen)
    unit = None if people is None else people.column
    name = name_of(source) if path is not None else "visits"
    declared = draft_of(source, schema, chosen, unit=unit)
    if any_blank(declared["fields"]):
        made = partial(_table_of, source, name)
        return load_raw(source, dict(declared), options, name=name, table_of=made)
    return _of_schema(source, name, declared, options, unit)


def _source(
    path: str | None, schema: dict[str, Any] | str | None, delimiter: str | None, encoding: str | None, engine: bool
) -> tuple[str, dict[str, Any] | str | None]:
    """The table and its schema; without a path simulated visits with their own."""
    if path is not None:
        return table_path(path, delimiter, encoding), schema
    if delimiter is not None or encoding is not None or engine:
        raise ValueError("path is None: delimiter, encoding and engine must be left out, for they are of a file")
    if schema is not None:
        shown = "given" if isinstance(schema, dict) else repr(str(schema))
        raise ValueError(f"path is None and schema is {shown}; path must name the table that the schema describes")
    return simulated_visits(), dict(VISITS)


def _of_schema(source: str, name: str, declared: Descriptor, options: SplitOptions, unit: str | None) -> Table:
    """A file all of whose domains are declared, as codes; `unit` is the column of people."""
    public = Schema.from_descriptor(declared)
    names = list(header(source))
    wanted = _wanted(names, public)
    table, split = options.read(
        source,
        wanted,
        text=[field.name for field in public.fields if field.type in ("string", "boolean", "date", "datetime")],
        missing=public.missing_values,
        contents=lambda rows: pd.DataFrame(public.encode(rows).numpy()),
        whole=[field.name for field in public.fields if field.type in ("integer", "year")],
    )
    codes = public.encode(table)
    test = split.test_rows(len(codes))
    return Table(
        name=name,
        codes=codes[~test],
        schema=public,
        test_codes=codes[test],
        facts=(*public.facts, split.fact("rows"), *unnamed(source, declared, unit)),
        form=form_of_samples(source, public, [name for name in names if name in table]),
        rows=table[~test.numpy()],
        test_rows=table[test.numpy()],
    )


def _wanted(names: Sequence[str], schema: Schema) -> list[str]:
    """Columns that are read: those that have one value, in the order of the file, then those that are modelled."""
    modelled = [field.name for field in schema.modelled]
    fixed = {field.name for field in schema.fields} - {*modelled}
    return [name for name in names if name in fixed] + modelled


def _in_engine(path: str, schema: dict[str, Any] | str | None, people: People | None, chosen: Chosen) -> Table | RawTable:
    """A table that an engine reads."""
    from dpgen.data.batches import EngineBatches  # here and below: data in memory need no engine
    from dpgen.data.engines import open_table

    missing = MISSING if schema is None else descriptor_of(schema).get("missingValues", [""])
    opened = open_table(path, text=None, missing=missing)
    unit = None if people is None else people.column
    declared = draft_of(opened, schema, chosen, unit=unit)
    if unit in [field["name"] for field in declared["fields"]]:
        raise ValueError(f"unit is {unit!r}; it must be no field of the schema")
    if any_blank(declared["fields"]):
        made = partial(_table_of, opened, opened.name)
        return raw_in_engine(opened, declared, people, table_of=made)
    public = Schema.from_descriptor(declared)
    names = opened.schema.names
    wanted = _wanted(names, public)
    rows = opened.columns(wanted if unit is None else [*wanted, unit])
    read = partial(_codes, schema=public, people=people)
    batches = EngineBatches(rows, read, by=unit)
    codes = batches.kept(len(public.modelled), max(public.domain.sizes))
    if not len(codes):
        raise ValueError(f"{opened.name} is empty: it has {len(names)} columns and no record")
    return Table(
        name=opened.name,
        codes=codes,
        schema=public,
        test_codes=torch.empty(0, len(public.modelled), dtype=torch.int64),
        facts=(*public.facts, *opened.kept_facts, Split(0.0).fact("rows"), *unnamed(opened, declared, unit)),
        form=form_of_samples(opened, public, [name for name in names if name in wanted]),
    )


def _table_of(source: str | EngineTable, name: str, schema: Schema, codes: Any, test: Tensor) -> Table:
    """The table of a raw one, once its schema is complete."""
    names = {field.name for field in schema.fields}
    form = form_of_samples(source, schema, [name for name in types_of(source) if name in names])
    return Table(name=name, codes=codes, schema=schema, test_codes=test, facts=schema.facts, form=form)


def form_of_samples(
    source: str | EngineTable, schema: Schema, names: list[str], times: Mapping[str, tuple[str, str]] | None = None
) -> Form:
    """The form of samples: what is no text and no number goes back as the schema says that it is written, or as it came.

    `times` are type and format of dates that the schema has no field of.
    """
    declared, of_texts = types_of(source), form_of(source) == "csv" if isinstance(source, str) else source.of_texts
    if not isinstance(source, str):
        source = InMemory(source.name, source.schema.empty_table(), source.form(source.schema.names))
    named = {name: schema.by_name.get(name) for name in names}
    categories = {name: tuple(map(str, own.values)) for name, own in named.items() if isinstance(own, CategoryField)}
    form = sample_form(source, names, categories=categories)
    dtypes = form.types * (len(form.names) if len(form.types) == 1 else 1)
    native = _STAMP if form.container in ("pandas", "series") else ""
    columns = ((str(name), _Column(declared[str(name)], dtype, of_texts, native)) for name, dtype in zip(form.names, dtypes))
    return replace(form, types=tuple(starmap(partial(_dtype_of, schema, times or {}), columns)))


class _Column(NamedTuple):
    """A column of samples: its `declared` type, its `dtype`, whether all values came as texts, and the dtype of other times."""

    declared: str
    dtype: str
    of_texts: bool
    native: str

    @property
    def is_open(self) -> bool:
        """Whether it may hold texts."""
        return not self.dtype or re.search("str|object", self.dtype) is not None

    def of_dates(self, kind: str, form: str, *, stated: bool) -> str:
        """The dtype of dates, which are written in this form, "": by ISO 8601; `stated`: a schema says how."""
        if self.declared.startswith("date"):
            return f"{self.dtype}[date]"
        return f"{self.dtype or 'str'}[{form or _ISO[kind]}]" if self.dtype or stated or self.of_texts else self.native


def _dtype_of(schema: Schema, times: Mapping[str, tuple[str, str]], name: str, column: _Column) -> str:
    """The dtype of a column of samples."""
    field = schema.by_name.get(name)
    if field is None and name in times:
        return _dtype_of_time(*times[name], column)
    if column.dtype == "object" and column.declared.startswith("decimal"):
        return "object[decimal]"
    if not column.is_open:
        return column.dtype
    if written := _written(field, column.declared):
        return written
    if not isinstance(field, BinnedField) or not field.of_dates:
        return column.dtype
    return column.of_dates(field.type, field.written_as, stated=bool(field.format))


def _dtype_of_time(kind: str, form: str, column: _Column) -> str:
    """The dtype of dates without a field."""
    if not column.is_open:
        return column.dtype
    if form and not column.declared.startswith(("date", "timestamp")) and writing_of(form) is not None:
        return f"str[={form};0]"
    return column.of_dates(kind, form, stated=bool(form))


def _written(field: Field | None, own: str) -> str:
    """The type of a column whose values go back as they were written; "": they have no writing."""
    if field is None or own.startswith(("date", "timestamp")):
        return ""
    words = f"{field.true[0]}/{field.false[0]}" if isinstance(field, CategoryField) and field.type == "boolean" else ""
    if words in TRUTHS:
        return f"str[={words};0]"
    if writing_of(field.written_as) is None:
        return ""
    return f"{'Int64' if field.written_as in DIGITS else 'str'}[={field.written_as};{_decimals(field)}]"


def _decimals(field: Field) -> int:
    """Decimal places of the values of a field."""
    if field.type != "number":
        return 0
    step = "0.01"
    if isinstance(field, NumberField):
        step = field.grid.resolution
    elif isinstance(field, DensityField):
        step = str(field.axis.rounding().get("dpgen:rounding", step))
    return max(0, -int(Decimal(step).normalize().as_tuple().exponent))


_STAMP = str(pd.to_datetime(pd.Series(["2020-01-01"])).dtype)
"""The type that pandas gives to times."""
_ISO = {"date": "%Y-%m-%d", "datetime": "%Y-%m-%dT%H:%M:%S"}


def _field(
    name: str, kind: str, own: Mapping[str, Any] | None = None, *, required: bool = True, **rules: Any
) -> dict[str, Any]:
    keys = {f"dpgen:{key}": value for key, value in (own or {}).items()}
    return {"name": name, "type": kind, "constraints": {"required": required, **rules}, **keys}


_WARDS = {
    "cardiology": "medicine",
    "maternity": "women",
    "orthopaedics": "surgery",
    "paediatrics": "medicine",
    "trauma": "surgery",
}

VISITS: Mapping[str, Any] = {
    "name": "visits",
    "fields": [
        _field("visit", "string", {"key": "V{:06d}"}),
        _field("age", "integer", {"bins": {"equal": 32}}, minimum=0, maximum=99),
        _field("sex", "string", enum=["female", "male"]),
        _field("ward", "string", enum=sorted(_WARDS)),
        _field("department", "string"),
        _field("admitted", "date", {"bins": {"equal": 8}}, minimum="2023-01-01", maximum="2024-12-31"),
        _field("discharged", "date", {"bins": {"equal": 12}}, minimum="2023-01-01", maximum="2025-12-31"),
        _field("weight", "number", {"rounding": 0.1, "bins": {"equal": 32}}, required=False, minimum=0, maximum=200),
        _field("smoker", "boolean", required=False),
        _field("care", "number", {"rounding": 0.01, "bins": {"log": 24}}, minimum=0, maximum=100_000),
        _field("drugs", "number", {"rounding": 0.01, "bins": {"log": 24}}, minimum=0, maximum=100_000),
        _field("bill", "number"),
        _field("readmitted", "boolean"),
    ],
    "primaryKey": "visit",
    "dpgen:target": "readmitted",
    "dpgen:constraints": [
        {"forbidden": {"sex": "male", "ward": "maternity"}},
        {"forbidden": {"ward": "paediatrics", "age": {"minimum": 18}}},
        {"less_equal": ["admitted", "discharged"]},
        {"sum": ["care", "drugs"], "total": "bill"},
        {"depends": "department", "on": "ward", "table": _WARDS},
    ],
}
"""Schema of the simulated visits."""


def simulated_visits(n: int = 6000, *, seed: int = 0) -> InMemory:
    """Visits to a hospital by a public rule, with gaps that depend on other columns; no record is of a person.

    >>> len(simulated_visits(3).content)
    3
    """
    rng = np.random.default_rng(seed)
    male = rng.random(n) < 0.47
    age = np.clip(np.where(rng.random(n) < 0.15, rng.gamma(2, 4, n), rng.normal(58, 19, n)), 0, 99).astype(int)
    wards = np.array(sorted(_WARDS))
    weights = np.stack(
        [age > 40, 2.0 * (~male & (age > 17) & (age < 46)), 0.3 + age / 90, 9.0 * (age < 18), 0.8 - age / 200], axis=1
    )
    ward = (weights.cumsum(1) / weights.sum(1, keepdims=True) < rng.random((n, 1))).sum(1)
    stay = np.minimum(rng.poisson(np.exp(0.4 + 0.015 * age)), 300)
    start = rng.integers(0, 731, n)
    weight = np.where(age < 18, 4 + 3.4 * age, np.where(male, 83, 70)) * np.exp(0.16 * rng.standard_normal(n))
    smoker = rng.random(n) < np.where(age < 16, 0.0, 0.28 - 0.001 * age)
    care = np.exp(6.2 + 0.55 * np.log1p(stay) + 0.5 * rng.standard_normal(n))
    drugs = np.where(rng.random(n) < 0.2, 0.0, np.exp(3.5 + 0.02 * age + 0.9 * rng.standard_normal(n)))
    logit = -3.4 + 0.03 * age + 0.9 * smoker + 0.12 * stay + 0.4 * (ward == 0)
    readmitted = rng.random(n) < 1 / (1 + np.exp(-logit))
    day = np.datetime64("2023-01-01", "ns")
    care, drugs = np.clip(care, 1, 1e5).round(2), np.clip(drugs, 0, 1e5).round(2)
    frame = pd.DataFrame(
        {
            "visit": [f"V{number:06d}" for number in range(1, n + 1)],
            "age": age,
            "sex": np.where(male, "male", "female"),
            "ward": wards[ward],
            "department": [_WARDS[name] for name in wards[ward]],
            "admitted": day + start * np.timedelta64(1, "D"),
            "discharged": day + (start + stay) * np.timedelta64(1, "D"),
            "weight": np.where(rng.random(n) < np.where(ward == 4, 0.5, 0.05), np.nan, np.clip(weight, 2, 200).round(1)),
            "smoker": pd.Series(smoker, dtype="boolean").mask(rng.random(n) < np.where(age < 16, 0.7, 0.1)),
            "care": care,
            "drugs": drugs,
            "bill": (care + drugs).round(2),
            "readmitted": readmitted,
        }
    )
    return in_memory(frame, "public")


def _codes(batches: Iterable[pyarrow.RecordBatch], schema: Schema, people: People | None) -> Iterator[npt.NDArray[np.int64]]:
    """Codes of the rows of each batch that are used."""
    from dpgen.data.batches import frames

    for table in frames(batches, people):
        rows = table if people is None else table.drop(columns=people.column)
        codes = schema.encode(rows).numpy()
        if people is None:
            yield codes
        else:
            yield people.bounded(pd.DataFrame(codes).assign(**{people.column: table[people.column]}))[0].to_numpy()
