"""Columns of ordered values on public grids, and how raw values become their indices, in chunks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dpgen.discretized import DiscretizedColumn

Integers = npt.NDArray[np.int64]
OutOfRange = Literal["refuse", "clamp"]


class KnownLaw(Protocol):
    """A distribution on [0, N) whose distribution function is known exactly."""

    def below(self, positions: npt.ArrayLike, N: int) -> npt.NDArray[np.float64]: ...


@dataclass(frozen=True, repr=False)
class Columns:
    """Private columns as integers on public grids; every column has one value per record.

    Arguments:
        name: of the data set.
        values: grid indices (n,) int64 of each column.
        domains: the grid of each column.
        truth: the distribution that a column was drawn from, where it is known.
        clamped: how many values of each column were moved to the bounds, a private number; None: none may be.
        notes: facts that a statement must repeat.

    Raises:
        ValueError: no columns, unequal lengths, or indices outside the grid. How many records there are is private.
    """

    name: str
    values: Mapping[str, Integers]
    domains: Mapping[str, DiscretizedColumn]
    truth: Mapping[str, KnownLaw] | None = None
    clamped: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.values or list(self.values) != list(self.domains):
            raise ValueError(f"values are of columns {list(self.values)}, domains of {list(self.domains)}: they must agree")
        if len({len(column) for column in self.values.values()}) > 1:
            raise ValueError(f"columns have {sorted({len(c) for c in self.values.values()})} values: they must be equally long")
        for name, column in self.values.items():
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

    def add(self, values: Any) -> None:
        """Encode one chunk (m,).

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
            raise ValueError(f"column {self.name!r}{where}: {error}") from None
        self.clamped += int(outside.sum())
        self.rows += len(indices)
        self._parts.append(indices)

    def finish(self) -> Integers:
        """All indices (n,); the chunks are given up."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.empty(0, np.int64)])


def require_whole(values: Any) -> None:
    """Refuse numbers that are not whole: without a resolution the grid is that of the integers.

    Raises:
        ValueError: naming the first such value.
    """
    array = np.asarray(values)
    if array.dtype.kind == "f" and np.isfinite(array).all():
        broken = array != np.floor(array)
        if broken.any():
            raise ValueError(f"value {array[broken][0]} is no whole number: give the public resolution of the column")
    if array.dtype.kind in "OU":
        for value in array.tolist():
            if "." in str(value) and str(value).rstrip("0")[-1] != ".":
                raise ValueError(f"value {value} is no whole number: give the public resolution of the column")


def assemble_columns(
    name: str, readers: Iterable[ColumnReader], *, notes: tuple[str, ...] = (), truth: Mapping[str, Any] | None = None
) -> Columns:
    """The data set that filled readers hold."""
    readers = list(readers)
    clamp = any(reader.out_of_range == "clamp" for reader in readers)
    clamped = {reader.name: reader.clamped for reader in readers} if clamp else None
    bounds = "bounds, resolution and names of the columns were declared public"
    extra = ("values outside the bounds were moved to the nearer bound; their noisy number is released",) if clamp else ()
    if any(reader.rows == 0 for reader in readers):
        raise ValueError(f"{name} is empty: it has {len(readers)} columns and no record")
    return Columns(
        name=name,
        values={reader.name: reader.finish() for reader in readers},
        domains={reader.name: reader.domain for reader in readers},
        truth=truth,
        clamped=clamped,
        notes=(bounds, *extra, *notes),
    )
