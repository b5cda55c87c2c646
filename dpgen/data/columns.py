"""Columns of ordered values on public grids, and their loaders: from files, and from tables that stay in an engine."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import torch
from torch import Tensor

from dpgen.columns.discretized import DiscretizedColumn, Ranks
from dpgen.containers import Form
from dpgen.data.split import People, Split
from dpgen.data.table_files import (
    MISSING_CATEGORY,
    Missing,
    column_names,
    form_of,
    in_engine,
    name_of,
    read_npy,
    read_table,
    sample_form,
    settled,
    table_path,
)
from dpgen.data.toy import MixtureName, OrderedMixture, reference_mixture
from dpgen.facts import Fact, Said

if TYPE_CHECKING:
    from dpgen.data.batches import KeptCodes, SparkCodes

Integers = npt.NDArray[np.int64]
OutOfRange = Literal["refuse", "clamp"]

SYNTHETIC_SIZE = 10**18


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
    truth: Mapping[str, OrderedMixture] | None = None
    clamped: Mapping[str, int] | None = None
    facts: tuple[Fact | Said, ...] = ()
    form: Form | None = None

    def __post_init__(self) -> None:
        if not self.values or list(self.values) != list(self.domains):
            raise ValueError(f"values are of columns {list(self.values)}, domains of {list(self.domains)}: they must agree")
        if len(lengths := {len(column) for column in self.values.values()}) > 1:
            raise ValueError(f"columns have {sorted(lengths)} values: they must be equally long")
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
    """Rows of a table as positions on public grids, and, where values are clamped, whether each of them was.

    Values of `whole` columns, without a resolution, must be whole numbers; `numbered`: rows have numbers, which errors show.

    >>> coder = ColumnCoder("t", {"age": DiscretizedColumn(low="0", high="120")}, frozenset(), out_of_range="clamp")
    >>> coder.coded(pd.DataFrame({"age": [30, 121]})).tolist()
    [[30, 0], [120, 1]]
    """

    name: str
    domains: Mapping[str, DiscretizedColumn]
    whole: frozenset[str]
    out_of_range: OutOfRange = "refuse"
    missing: Missing = "error"
    people: People | None = None
    numbered: bool = True

    def __post_init__(self) -> None:
        if self.out_of_range not in get_args(OutOfRange):
            raise ValueError(f"out_of_range is {self.out_of_range!r}: it must be one of refuse, clamp")
        if self.people is not None and self.people.column in self.domains:
            raise ValueError(f"unit is {self.people.column!r}: it must be none of the columns {', '.join(self.domains)}")

    @property
    def columns(self) -> list[str]:
        """The columns that are read: that of people comes last."""
        return [*self.domains, *([] if self.people is None else [self.people.column])]

    @property
    def width(self) -> int:
        """Codes of a row."""
        return len(self.domains) * (2 if self.out_of_range == "clamp" else 1)

    def coded(self, table: pd.DataFrame) -> Integers:
        """Codes (n, width) of the rows that are used: positions, and behind them which values were clamped."""
        categorical = [name for name, domain in self.domains.items() if domain.kind == "category"]
        kept = settled(table, self.missing, self.name, categorical=categorical, numbered=self.numbered)
        pairs = [self._positions(name, kept[name].to_numpy()) for name in self.domains]
        codes = np.stack([part for parts in zip(*pairs) for part in parts][: self.width], axis=1)
        if self.people is None:
            return codes
        contents = pd.DataFrame(codes).assign(**{self.people.column: kept[self.people.column]})
        return self.people.bounded(contents)[0].to_numpy()

    def _positions(self, name: str, values: npt.NDArray[Any]) -> tuple[Integers, npt.NDArray[np.bool_]]:
        domain = self.domains[name]
        try:
            if name in self.whole:
                require_whole(values)
            found, outside = domain.encode_clamped(values)
            if self.out_of_range == "refuse" and outside.any():
                domain.encode(values)
        except ValueError as error:
            said = str(error) if self.numbered else re.sub(r"row \d+", "a row", str(error))
            raise ValueError(f"{'' if self.numbered else self.name} column {name!r}: {said}".strip()) from None
        return found, outside

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[Integers]:
        """Codes of batches of an engine."""
        from dpgen.data.batches import frames  # here and below: data in memory need no engine

        return map(self.coded, frames(batches, self.people))


def assemble_columns(
    name: str,
    coder: ColumnCoder,
    codes: "Integers | KeptCodes | SparkCodes",
    *,
    form: Form,
    facts: tuple[Fact | Said, ...] = (),
) -> Columns:
    """The columns of codes, in memory or where an engine keeps them."""
    if not len(codes):
        raise ValueError(f"{name} is empty: it has {len(coder.columns)} columns and no record")
    values: dict[str, Integers | Ranks] = {}
    for i, (column, domain) in enumerate(coder.domains.items()):
        values[column] = codes[:, i].copy() if isinstance(codes, np.ndarray) else codes.ranks(i, domain.size)
    facts, clamped = (Fact.PUBLIC_COLUMNS, *facts), None
    if coder.out_of_range == "clamp":
        moved = partial(_moved, d=len(values))
        counts = moved((codes,)) if isinstance(codes, np.ndarray) else codes.totals(moved)
        facts, clamped = (facts[0], Fact.CLAMPED_COLUMNS, *facts[1:]), dict(zip(values, counts.tolist()))
    return Columns(name, values, coder.domains, clamped=clamped, facts=facts, form=form)


def _moved(batches: Iterable[Integers], d: int) -> Tensor:
    """Numbers (d,) of values that were clamped."""
    return sum((torch.from_numpy(batch[:, d:].astype(np.int64).sum(0)) for batch in batches), torch.zeros(d, dtype=torch.int64))


Bound = list[str | float] | str | float | None


def public_grids(
    names: Sequence[str],
    *,
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    categories: list[str] | None = None,
) -> tuple[dict[str, DiscretizedColumn], frozenset[str]]:
    """A grid for each column, from one public bound for all of them or one for each, and those that must be whole numbers.

    Bounds that are ISO dates make a column of dates, with a resolution in seconds (1 if none is given).

    >>> [grid.size for grid in public_grids(["a", "b"], low=0, high=[9, 99])[0].values()]
    [10, 100]
    """
    if not names or len(set(names)) != len(names):
        raise ValueError(f"columns is {list(names)}: name one or more different columns")
    if categories is not None:
        return dict.fromkeys(names, DiscretizedColumn(kind="category", categories=tuple(categories))), frozenset()
    bounds = {"low": low, "high": high, "resolution": resolution}
    spread = [_spread(key, value, len(names)) for key, value in bounds.items()]
    grids = {name: _grid(name, *of) for name, *of in zip(names, *spread)}
    return grids, frozenset(name for name, step in zip(names, spread[2]) if step is None and grids[name].kind == "number")


def _grid(name: str, least: str | None, most: str | None, step: str | None) -> DiscretizedColumn:
    """The grid of a column between its bounds."""
    if least is None or most is None:
        raise ValueError(f"low and high of {name!r} are {least}, {most}: both must be given, as public bounds")
    kind: Literal["number", "date"] = "number" if _is_number(least) else "date"
    return DiscretizedColumn(kind=kind, low=least, high=most, resolution=step or "1")


def _with_gaps(categories: list[str] | None, missing: Missing) -> list[str] | None:
    """Categories with the one of missing values, where they are one."""
    new = categories is not None and missing == "category" and MISSING_CATEGORY not in categories
    return [*categories, MISSING_CATEGORY] if categories is not None and new else categories


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


def _numbered(path: str, names: Sequence[str], people: People | None) -> pd.DataFrame:
    """The table of an npy file, whose columns get these names in order."""
    if people is not None:
        raise ValueError(f"unit is {people.column!r}: it must be left out for an npy file, whose columns have no names")
    array = read_npy(path, vectors=True)
    if array.shape[1] != len(names):
        raise ValueError(f"columns has {len(names)} names: {path} has {array.shape[1]} columns")
    return pd.DataFrame(array, columns=list(names))


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
    engine: bool = False,
    people: People | None = None,
) -> Columns:
    """Columns of a csv (plain or .gz), parquet or npy file, or of a table in an engine.

    Values of a csv file on a grid finer than float64 are read as text, so that 18 digits survive. An engine reads the table
    once; positions on the grids are kept, of DuckDB in a temporary file, of Spark on its executors.

    Arguments:
        path: file to read, or FILE.duckdb::TABLE, or parquet or csv files larger than memory, as in "visits/*.parquet".
        columns: names of the columns to use, a list or "x,y"; of an npy file, names for all of its columns, in order.
        low: public lower bound, a number or an ISO date; or one for each column.
        high: public upper bound, likewise.
        resolution: public step of the grid, for dates in seconds; without it numbers must be whole.
        categories: all names in their order, for categorical columns; bounds are not used then.
        out_of_range: "refuse" values outside the bounds, or "clamp" them and release their noisy number.
        missing: "error", or "drop" records with a missing value, or let it be a "category" behind the others.
        delimiter: of a csv file, the one character between two fields, or "tab"; without it the one of the header line.
        encoding: of a csv file, by its name in Python, as cp1252; without it UTF-8, of other lines cp1252.
        engine: DuckDB reads a single file, too, which is larger than memory.
    """
    path = table_path(path, delimiter, encoding)
    names, categories = column_names(columns), _with_gaps(categories, missing)
    grids, whole = public_grids(names, low=low, high=high, resolution=resolution, categories=categories)
    named = dict.fromkeys(names, tuple(categories)) if categories else None
    if in_engine(path, engine):
        from dpgen.data.batches import EngineBatches
        from dpgen.data.engines import open_table

        opened = open_table(path, text=None)
        coder = ColumnCoder(opened.name, grids, whole, out_of_range, missing, people, numbered=False)
        rows = opened.columns(coder.columns)
        batches = EngineBatches(rows, coder, by=None if people is None else people.column)
        codes = batches.kept(coder.width, max(grid.size for grid in grids.values()))
        form, facts = rows.form(names).of_columns(names, categories=named), (*opened.kept_facts, Split(0.0).fact("rows"))
        return assemble_columns(opened.name, coder, codes, form=form, facts=facts)
    coder = ColumnCoder(path, grids, whole, out_of_range, missing, people)
    if form_of(path) == "npy":
        table = _numbered(path, names, people)
    else:
        text = [name for name, grid in grids.items() if grid.kind != "number" or grid.decimals]
        table = read_table(path, coder.columns, text=[*coder.columns[len(names) :], *text], whole=names)
    form = sample_form(path, names, categories=named)
    return assemble_columns(name_of(path), coder, coder.coded(table), form=form)


def load_mixture(
    *, mixture: MixtureName = "gaussians", n_records: int = 100_000, size: int = SYNTHETIC_SIZE, data_seed: int = 0
) -> Columns:
    """Draws of a known mixture on [0, 10^18), the default that needs no file; every error against the truth is exact.

    Arguments:
        mixture: "gaussians", "betas", "gammas", "spikes" or "mixed".
        n_records: number of draws.
        size: N, number of values of the domain.
        data_seed: of the draws.

    >>> load_mixture(n_records=100)
    Columns('gaussians': 100 records of x on 1000000000000000000 values)
    """
    known, domain = reference_mixture(mixture), DiscretizedColumn.integers(size)
    if n_records < 2:
        raise ValueError(f"n_records is {n_records}: at least 2 are needed")
    x = known.draw(n_records, size, np.random.default_rng(data_seed))
    return Columns(name=mixture, values={"x": x}, domains={"x": domain}, truth={"x": known}, facts=(Fact.SYNTHETIC,))
