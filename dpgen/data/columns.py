"""Columns of ordered values on public grids, and their files, read in pieces."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.containers import Form
from dpgen.data.paths import csv_path, form_of, name_of
from dpgen.data.table_files import MISSING_CATEGORY, Missing, column_names, read_npy, sample_form, settled, table_chunks
from dpgen.data.units import People
from dpgen.discretized import DiscretizedColumn, Ranks
from dpgen.facts import Fact, Said

# -- columns -----------------------------------------------------------------------------------------------------------


Integers = npt.NDArray[np.int64]
OutOfRange = Literal["refuse", "clamp"]


class KnownDistribution(Protocol):
    """A distribution on [0, N) whose distribution function is known exactly."""

    def below(self, positions: npt.ArrayLike, N: int) -> npt.NDArray[np.float64]: ...


@dataclass(frozen=True, repr=False)
class Columns:
    """Private columns as integers on public grids; every column has one value per record.

    Arguments:
        name: of the data set.
        values: grid indices (n,) int64 of each column, or their ranks, where an engine keeps the records.
        domains: the grid of each column.
        truth: the distribution that a column was drawn from, where it is known.
        clamped: how many values of each column were moved to the bounds, a private number; None: none may be.
        facts: what a privacy statement says of them.
        form: in which samples are given back, a public fact; None: as a table.

    Raises:
        ValueError: no columns, unequal lengths, or indices outside the grid. How many records there are is private.
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


class ColumnReader:
    """Collects chunks of raw values as grid indices, so that only 8 bytes a value stay in memory.

    Arguments:
        name: of the column, for errors.
        domain: its public grid.
        out_of_range: whether values outside the bounds are refused or clamped.
        whole: whether values must be whole numbers (no resolution was given).

    >>> reader = ColumnReader("age", DiscretizedColumn(low="0", high="120"), out_of_range="clamp", whole=True)
    >>> reader.add(np.array([30, 121]))
    >>> reader.finish().tolist(), reader.clamped
    ([30, 120], 1)
    """

    def __init__(self, name: str, domain: DiscretizedColumn, *, out_of_range: OutOfRange, whole: bool) -> None:
        if out_of_range not in ("refuse", "clamp"):
            raise ValueError(f"out_of_range is {out_of_range!r}: it must be one of refuse, clamp")
        self.name, self.domain, self.out_of_range, self.whole = name, domain, out_of_range, whole
        self.clamped, self.rows = 0, 0
        self._parts: list[Integers] = []
        self._outside: list[npt.NDArray[np.bool_]] = []

    def coded(self, values: Any, name: str = "") -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Grid indices of values (m,), and which of them were moved to the bounds.

        Arguments:
            name: of a table whose rows have no numbers.

        Raises:
            ValueError: a value is missing, unreadable, no whole number where it must be, or outside the bounds.
        """
        try:
            if self.whole:
                require_whole(values)
            indices, outside = self.domain.encode_clamped(values)
            if self.out_of_range == "refuse" and outside.any():
                self.domain.encode(values)
        except ValueError as error:
            where = f" after row {self.rows}" if self.rows else ""
            said = re.sub(r"row \d+", "a row", str(error)) if name else str(error)
            raise ValueError(f"{name} column {self.name!r}{where}: {said}".strip()) from None
        return indices, outside

    def add(self, values: Any) -> None:
        """Encode one chunk (m,); errors as in `coded`."""
        indices, outside = self.coded(values)
        self.clamped += int(outside.sum())
        self.rows += len(indices)
        self._parts.append(indices)
        if self.out_of_range == "clamp":
            self._outside.append(outside)

    @property
    def contents(self) -> dict[str, Any]:
        """All that is used of the values, (n,) each: their indices, and whether they were clamped where they may be."""
        found = {self.name: self._whole(self._parts)}
        return found if self.out_of_range == "refuse" else found | {f"{self.name} clamped": self._whole(self._outside)}

    def keep(self, used: npt.NDArray[np.bool_]) -> None:
        """Forget the values that are not used (n,)."""
        self._parts = [self._whole(self._parts)[used]]
        if self.out_of_range == "clamp":
            self._outside = [self._whole(self._outside)[used]]
            self.clamped = int(self._outside[0].sum())

    @staticmethod
    def _whole(parts: list[Any]) -> Any:
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.empty(0, np.int64)])

    def finish(self) -> Integers:
        """All indices (n,); the chunks are given up."""
        parts, self._parts = self._parts, []
        self._outside = []
        return np.asarray(self._whole(parts), np.int64)


_NOT_WHOLE = "is no whole number: give the public resolution of the column"


def require_whole(values: Any) -> None:
    """Refuse numbers that are not whole: without a resolution the grid is that of the integers.

    Raises:
        ValueError: naming the row of the first such value.
    """
    array = np.asarray(values)
    if array.dtype.kind == "f" and np.isfinite(array).all():
        broken = array != np.floor(array)
        if broken.any():
            raise ValueError(f"value in row {int(broken.argmax()) + 1} {_NOT_WHOLE}")
    if array.dtype.kind in "OU":
        for row, value in enumerate(array.tolist(), start=1):
            if "." in str(value) and str(value).rstrip("0")[-1] != ".":
                raise ValueError(f"value in row {row} {_NOT_WHOLE}")


def column_facts(clamp: bool) -> tuple[Fact, ...]:
    """Facts of columns of declared bounds."""
    return (Fact.PUBLIC_COLUMNS, Fact.CLAMPED_COLUMNS) if clamp else (Fact.PUBLIC_COLUMNS,)


def assemble_columns(
    name: str,
    readers: Iterable[ColumnReader],
    *,
    facts: tuple[Fact | Said, ...] = (),
    truth: Mapping[str, Any] | None = None,
    form: Form | None = None,
) -> Columns:
    """The data set that filled readers hold."""
    readers = list(readers)
    clamp = any(reader.out_of_range == "clamp" for reader in readers)
    clamped = {reader.name: reader.clamped for reader in readers} if clamp else None
    if any(reader.rows == 0 for reader in readers):
        raise ValueError(f"{name} is empty: it has {len(readers)} columns and no record")
    return Columns(
        name=name,
        values={reader.name: reader.finish() for reader in readers},
        domains={reader.name: reader.domain for reader in readers},
        truth=truth,
        clamped=clamped,
        facts=(*column_facts(clamp), *facts),
        form=form,
    )


# -- column files ------------------------------------------------------------------------------------------------------


CHUNK = 2**20
"""Values of a column that are held as text or floats at a time."""

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

    Raises:
        ValueError: bounds are missing, of another number than columns, or no grid.

    Example:
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
            raise ValueError(
                f"low and high of column {name!r} are {one['low']} and {one['high']}: both must be given, as public bounds "
                "(they may not be read from the records)"
            )
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
    """Columns of a csv (plain or .gz), parquet or npy file, read in pieces.

    Values of a csv file on a grid finer than float64 are read as text, so that 18 digits survive.

    Arguments:
        path: file to read, of a form that `table_files` recognises.
        columns: names of the columns to use, a list or "x,y"; of an npy file, names for all of its columns, in order.
        low: public lower bound, a number or an ISO date; or one for each column.
        high: public upper bound, likewise.
        resolution: public step of the grid, for dates in seconds; without it numbers must be whole.
        categories: all names in their order, for categorical columns; bounds are not used then.
        out_of_range: "refuse" values outside the bounds, or "clamp" them and release their noisy number.
        missing: "error", or "drop" records with a missing value, or let it be a "category" behind the others.
        delimiter: of a csv file, the one character between two fields, or "tab"; without it a comma, or of .tsv a tab.
        encoding: of a csv file, by its name in Python, as cp1252; without it UTF-8.

    Raises:
        ValueError: a missing file or column, a malformed row, a value that is missing, unreadable or outside the bounds, bad
            bounds.
    """
    path = csv_path(path, delimiter, encoding)
    if missing == "category" and categories is not None and MISSING_CATEGORY not in categories:
        categories = [*categories, MISSING_CATEGORY]
    owners: list[pd.Series] = []
    readers = column_readers(
        column_names(columns), low=low, high=high, resolution=resolution, categories=categories, out_of_range=out_of_range
    )
    names = [reader.name for reader in readers]
    if form_of(path) == "npy":
        array = read_npy(path, vectors=True)
        if array.shape[1] != len(names):
            raise ValueError(f"columns has {len(names)} names: {path} has {array.shape[1]} columns")
        parts = (np.asarray(array[start : start + CHUNK]) for start in range(0, len(array), CHUNK))
        if people is not None:
            raise ValueError(f"unit is {people.column!r}: it must be left out for an npy file, whose columns have no names")
        pieces: Iterable[pd.DataFrame] = (pd.DataFrame(part, columns=names) for part in parts)
    else:
        whose = [] if people is None else [people.column]
        if set(whose) & set(names):
            raise ValueError(f"unit is {whose[0]!r}: it must be none of the columns {', '.join(names)}")
        text = [*whose, *(r.name for r in readers if r.domain.kind != "number" or r.domain.decimals)]
        pieces = table_chunks(path, [*names, *whose], rows=CHUNK, text=text)
    for number, piece in enumerate(pieces):
        kept = settled(piece, missing, path, categorical=() if categories is None else names, first_row=number * CHUNK)
        for reader in readers:
            reader.add(kept[reader.name].to_numpy())
        if people is not None:
            owners.append(kept[people.column])
    if people is not None:
        contents = {name: values for reader in readers for name, values in reader.contents.items()}
        used = people.kept(pd.concat(owners, ignore_index=True), pd.DataFrame(contents))
        for reader in readers:
            reader.keep(used)
    named = {} if categories is None else dict.fromkeys(names, tuple(categories))
    return assemble_columns(name_of(path), readers, form=sample_form(path, names, categories=named))
