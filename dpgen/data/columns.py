"""Columns of ordered values on public grids, and their loaders: from files, and from tables that stay in an engine."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import torch
from torch import Tensor

from dpgen.containers import Form
from dpgen.data.batches import EngineBatches, KeptCodes, SparkCodes, frames
from dpgen.data.engines import open_table
from dpgen.data.split import People, Split
from dpgen.data.table_files import (
    Missing,
    column_names,
    csv_path,
    form_of,
    name_of,
    read_npy,
    read_table,
    sample_form,
    settled,
)
from dpgen.discretized import DiscretizedColumn, Ranks
from dpgen.facts import Fact, Said

Integers = npt.NDArray[np.int64]
OutOfRange = Literal["refuse", "clamp"]


class KnownDistribution(Protocol):
    """A distribution on [0, N) whose distribution function is known exactly."""

    def below(self, positions: npt.ArrayLike, N: int) -> npt.NDArray[np.float64]: ...


@dataclass(frozen=True, repr=False)
class Columns:
    """Private columns as integers on public grids; every column has one value per record.

    `values` are grid indices (n,) int64 or their ranks, where an engine keeps the records; `truth` is the distribution that a
    column was drawn from, where it is known; `clamped` how many values of each were moved to the bounds, a private number,
    None: none may be. `form` is that of samples, None: a table.
    """

    name: str
    values: Mapping[str, Integers | Ranks]
    domains: Mapping[str, DiscretizedColumn]
    truth: Mapping[str, KnownDistribution] | None = None
    clamped: Mapping[str, int] | None = None
    facts: tuple[Fact | Said, ...] = ()
    form: Form | None = None

    def __post_init__(self) -> None:
        if not self.values or list(self.values) != list(self.domains):
            raise ValueError(f"values are of columns {list(self.values)}, domains of {list(self.domains)}: they must agree")
        if len({len(column) for column in self.values.values()}) > 1:
            raise ValueError(f"columns have {sorted({len(c) for c in self.values.values()})} values: they must be equally long")
        for name, column in self.values.items():
            if not isinstance(column, np.ndarray):
                continue
            outside = len(column) and not 0 <= column.min() <= column.max() < self.domains[name].size
            if column.dtype != np.int64 or outside:
                raise ValueError(f"column {name!r} must hold int64 in [0, {self.domains[name].size})")

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} on {domain.size} values" for name, domain in self.domains.items())
        return f"Columns({self.name!r}: {self.n} records of {sizes})"

    @property
    def n(self) -> int:
        """Number of private records."""
        return len(next(iter(self.values.values())))


@dataclass(frozen=True)
class ColumnReader:
    """The public grid of a column, and what happens to values that have no place on it.

    `whole`: values must be whole numbers, for no resolution was given.

    >>> reader = ColumnReader("age", DiscretizedColumn(low="0", high="120"), out_of_range="clamp", whole=True)
    >>> reader.coded(np.array([30, 121]))
    (array([ 30, 120]), array([False,  True]))
    """

    name: str
    domain: DiscretizedColumn
    out_of_range: OutOfRange
    whole: bool

    def __post_init__(self) -> None:
        if self.out_of_range not in get_args(OutOfRange):
            raise ValueError(f"out_of_range is {self.out_of_range!r}: it must be one of refuse, clamp")

    def coded(self, values: Any, name: str = "") -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Grid indices of values (m,), and which were moved to the bounds; `name`: of a table without numbers of rows."""
        try:
            if self.whole:
                require_whole(values)
            indices, outside = self.domain.encode_clamped(values)
            if self.out_of_range == "refuse" and outside.any():
                self.domain.encode(values)
        except ValueError as error:
            said = re.sub(r"row \d+", "a row", str(error)) if name else str(error)
            raise ValueError(f"{name} column {self.name!r}: {said}".strip()) from None
        return indices, outside


_NOT_WHOLE = "is no whole number: give the public resolution of the column"


def require_whole(values: Any) -> None:
    """Refuse numbers that are not whole, naming a row: without a resolution the grid is that of the integers."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and np.isfinite(array).all():
        broken = array != np.floor(array)
        if broken.any():
            raise ValueError(f"value in row {int(broken.argmax()) + 1} {_NOT_WHOLE}")
    if array.dtype.kind in "OU":
        for row, value in enumerate(array.tolist(), start=1):
            if "." in str(value) and str(value).rstrip("0")[-1] != ".":
                raise ValueError(f"value in row {row} {_NOT_WHOLE}")


@dataclass(frozen=True)
class ColumnCoder:
    """Rows of a table as positions on the grids, and, where values may be clamped, whether each of them was.

    `numbered`: rows have numbers, which errors show.
    """

    name: str
    readers: tuple[ColumnReader, ...]
    missing: Missing
    people: People | None
    numbered: bool

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [reader.name for reader in self.readers]

    @property
    def columns(self) -> list[str]:
        """The columns that are read: that of people comes last."""
        return [*self.names, *([] if self.people is None else [self.people.column])]

    @property
    def parts(self) -> int:
        """Codes of a value."""
        return 2 if self.readers[0].out_of_range == "clamp" else 1

    def coded(self, table: pd.DataFrame) -> npt.NDArray[Any]:
        """Codes (n, columns x parts) of the rows that are used."""
        kept = settled(table, self.missing, self.name, numbered=self.numbered)
        where = "" if self.numbered else self.name
        found = [reader.coded(kept[reader.name].to_numpy(), where) for reader in self.readers]
        codes = np.stack([part for pair in found for part in pair[: self.parts]], axis=1)
        if self.people is None:
            return codes
        contents = pd.DataFrame(codes).assign(**{self.people.column: kept[self.people.column]})
        return self.people.bounded(contents)[0].to_numpy()

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[npt.NDArray[Any]]:
        """Codes of batches of an engine."""
        return map(self.coded, frames(batches, self.people))


def assemble_columns(
    name: str,
    coder: ColumnCoder,
    codes: npt.NDArray[Any] | KeptCodes | SparkCodes,
    *,
    form: Form,
    facts: tuple[Fact | Said, ...] = (),
) -> Columns:
    """The columns of codes, in memory or where an engine keeps them."""
    if not len(codes):
        raise ValueError(f"{name} is empty: it has {len(coder.columns)} columns and no record")
    moved = partial(_moved, columns=len(coder.readers))
    values: dict[str, Integers | Ranks] = {}
    for reader, i in zip(coder.readers, range(0, len(coder.readers) * coder.parts, coder.parts)):
        values[reader.name] = codes[:, i].copy() if isinstance(codes, np.ndarray) else codes.ranks(i, reader.domain.size)
    clamped = None
    if coder.parts == 2:
        counts = moved((codes,)) if isinstance(codes, np.ndarray) else codes.totals(moved)
        clamped = dict(zip(coder.names, counts.tolist()))
    return Columns(
        name=name,
        values=values,
        domains={reader.name: reader.domain for reader in coder.readers},
        clamped=clamped,
        facts=(Fact.PUBLIC_COLUMNS, *((Fact.CLAMPED_COLUMNS,) if clamped is not None else ()), *facts),
        form=form,
    )


def _moved(batches: Iterable[npt.NDArray[Any]], columns: int) -> Tensor:
    """Numbers (d,) of values outside of the bounds of their column, each moved to the nearer one."""
    total = torch.zeros(columns, dtype=torch.int64)
    for batch in batches:
        total += torch.from_numpy(batch[:, 1::2].astype(np.int64).sum(0))
    return total


Bound = list[str | float] | str | float | None


def column_readers(
    names: Sequence[str],
    *,
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    categories: list[str] | None = None,
    out_of_range: OutOfRange = "refuse",
) -> list[ColumnReader]:
    """A reader for each column, from one public bound for all of them or one for each.

    Bounds that are ISO dates make a column of dates, with a resolution in seconds (1 if none is given).

    >>> [reader.domain.size for reader in column_readers(["a", "b"], low=0, high=[9, 99])]
    [10, 100]
    """
    if not names or len(set(names)) != len(names):
        raise ValueError(f"columns is {list(names)}: name one or more different columns")
    if categories is not None:
        grid = DiscretizedColumn(kind="category", categories=tuple(categories))
        return [ColumnReader(name, grid, out_of_range=out_of_range, whole=False) for name in names]
    bounds = {"low": low, "high": high, "resolution": resolution}
    spread = {key: _spread(key, value, len(names)) for key, value in bounds.items()}
    readers = []
    for i, name in enumerate(names):
        one = {key: values[i] for key, values in spread.items()}
        if one["low"] is None or one["high"] is None:
            raise ValueError(f"low and high of {name!r} are {one['low']}, {one['high']}: both must be given, as public bounds")
        date = not _is_number(one["low"])
        grid = DiscretizedColumn(
            kind="date" if date else "number", low=one["low"], high=one["high"], resolution=one["resolution"] or "1"
        )
        readers.append(ColumnReader(name, grid, out_of_range=out_of_range, whole=not date and one["resolution"] is None))
    return readers


def _spread(key: str, value: Bound, count: int) -> list[Any]:
    values = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(values) != count:
        raise ValueError(f"{key} has {len(values)} entries for {count} columns: give one, or one for each")
    return [None if v is None else str(v) for v in values]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def load_columns(
    *,
    path: str,
    columns: list[str] | str = "x",
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    categories: list[str] | None = None,
    out_of_range: OutOfRange = "refuse",
    missing: Missing = "error",
    delimiter: str | None = None,
    encoding: str | None = None,
    people: People | None = None,
) -> Columns:
    """Columns of a csv (plain or .gz), parquet or npy file.

    Values of a csv file on a grid finer than float64 are read as text, so that 18 digits survive.

    Arguments:
        path: file to read, of a form that `table_files` recognises.
        columns: names of the columns to use, a list or "x,y"; of an npy file, names for all of its columns, in order.
        low: public lower bound, a number or an ISO date; or one for each column.
        high: public upper bound, likewise.
        resolution: public step of the grid, for dates in seconds; without it numbers must be whole.
        categories: all names in their order, for categorical columns; bounds are not used then.
        out_of_range: "refuse" values outside the bounds, or "clamp" them and release their noisy number.
        missing: "error", or "drop" records with a missing value.
        delimiter: of a csv file, the one character between two fields, or "tab"; without it a comma, or of .tsv a tab.
        encoding: of a csv file, by its name in Python, as cp1252; without it UTF-8.
    """
    path = csv_path(path, delimiter, encoding)
    grids = {"low": low, "high": high, "resolution": resolution, "categories": categories, "out_of_range": out_of_range}
    coder, named = _coder(path, columns, missing, people, grids, numbered=True)
    if form_of(path) == "npy":
        if people is not None:
            raise ValueError(f"unit is {people.column!r}: it must be left out for an npy file, whose columns have no names")
        array = read_npy(path, vectors=True)
        if array.shape[1] != len(coder.names):
            raise ValueError(f"columns has {len(coder.names)} names: {path} has {array.shape[1]} columns")
        table = pd.DataFrame(array, columns=coder.names)
    else:
        text = [reader.name for reader in coder.readers if reader.domain.kind != "number" or reader.domain.decimals]
        table = read_table(path, coder.columns, text=[*coder.columns[len(coder.names) :], *text], whole=coder.names)
    form = sample_form(path, coder.names, categories=named)
    return assemble_columns(name_of(path), coder, coder.coded(table), form=form)


def load_sql_columns(
    *,
    source: str,
    table: str | None = None,
    columns: list[str] | str = "x",
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    categories: list[str] | None = None,
    out_of_range: OutOfRange = "refuse",
    missing: Missing = "error",
    people: People | None = None,
) -> Columns:
    """Columns of a table in DuckDB, of parquet or csv files larger than memory, or in Spark.

    The table is read once. What is kept are positions on the grids: of DuckDB in a temporary file, of Spark on its executors.

    Arguments:
        source: a DuckDB file, or parquet or csv files, as in "visits/*.parquet".
        table: of the DuckDB file; it may be left out where there is one.
        columns: names of the columns to use, a list or "x,y".
        low: public lower bound, a number or an ISO date; or one for each column.
        high: public upper bound, likewise.
        resolution: public step of the grid, for dates in seconds; without it numbers must be whole.
        categories: all names in their order, for categorical columns; bounds are not used then.
        out_of_range: "refuse" values outside the bounds, or "clamp" them and release their noisy number.
        missing: "error", or "drop" records with a missing value.
    """
    opened = open_table(source, table, text=None)
    grids = {"low": low, "high": high, "resolution": resolution, "categories": categories, "out_of_range": out_of_range}
    coder, named = _coder(opened.name, columns, missing, people, grids, numbered=False)
    rows = opened.columns(coder.columns)
    largest = max(reader.domain.size for reader in coder.readers)
    by = None if people is None else people.column
    codes = EngineBatches(rows, coder, by=by).kept(len(coder.names) * coder.parts, largest)
    form = rows.form(coder.names).of_columns(coder.names, categories=named)
    return assemble_columns(opened.name, coder, codes, form=form, facts=(*opened.kept_facts, Split(0.0).fact("rows")))


def _coder(
    name: str, columns: list[str] | str, missing: Missing, people: People | None, grids: dict[str, Any], *, numbered: bool
) -> tuple[ColumnCoder, dict[str, tuple[str, ...]]]:
    """The coder that options of a loader ask for, and the categories of its columns."""
    names, categories = column_names(columns), grids["categories"]
    readers = column_readers(names, **grids)
    if people is not None and people.column in names:
        raise ValueError(f"unit is {people.column!r}: it must be none of the columns {', '.join(names)}")
    coder = ColumnCoder(name, tuple(readers), missing, people, numbered=numbered)
    return coder, {} if categories is None else dict.fromkeys(names, tuple(categories))
