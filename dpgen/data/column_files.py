"""Columns of ordered values from csv, parquet and npy files, in chunks."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpgen.data.columns import ColumnReader, Columns, OutOfRange, assemble_columns
from dpgen.data.table_files import column_names, csv_chunks, name_of, parquet_chunks, read_npy
from dpgen.discretized import DiscretizedColumn

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


def load_columns_csv(
    *,
    path: str,
    columns: list[str] | str,
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    categories: list[str] | None = None,
    out_of_range: OutOfRange = "refuse",
) -> Columns:
    """Columns of a csv file with a header line, read in chunks; compressed files (.gz) too.

    Values on a grid finer than float64 are read as text, so that 18 digits survive.

    Arguments:
        path: file to read.
        columns: names of the columns to use, a list or "x,y".
        low: public lower bound, a number or an ISO date; or one for each column.
        high: public upper bound, likewise.
        resolution: public step of the grid, for dates in seconds; without it numbers must be whole.
        categories: all names in their order, for categorical columns; bounds are not used then.
        out_of_range: "refuse" values outside the bounds, or "clamp" them and release their noisy number.

    Raises:
        ValueError: a missing file or column, a malformed row, a value that is missing, unreadable or outside the bounds, bad
            bounds.
    """
    readers = column_readers(
        column_names(columns), low=low, high=high, resolution=resolution, categories=categories, out_of_range=out_of_range
    )
    text = {r.name: str for r in readers if r.domain.kind != "number" or r.domain.decimals}
    return _collected(csv_chunks(path, [reader.name for reader in readers], rows=CHUNK, dtype=text), path, readers)


def load_columns_parquet(
    *,
    path: str,
    columns: list[str] | str,
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    categories: list[str] | None = None,
    out_of_range: OutOfRange = "refuse",
) -> Columns:
    """Columns of a parquet file, read in batches; errors as in `load_columns_csv`.

    Arguments:
        path: file to read.
        columns: names of the columns to use, a list or "x,y".
        low: public lower bound, a number or an ISO date; or one for each column.
        high: public upper bound, likewise.
        resolution: public step of the grid, for dates in seconds; without it numbers must be whole.
        categories: all names in their order, for categorical columns; bounds are not used then.
        out_of_range: "refuse" values outside the bounds, or "clamp" them and release their noisy number.
    """
    readers = column_readers(
        column_names(columns), low=low, high=high, resolution=resolution, categories=categories, out_of_range=out_of_range
    )
    return _collected(parquet_chunks(path, [reader.name for reader in readers], rows=CHUNK), path, readers)


def load_columns_npy(
    *,
    path: str,
    columns: list[str] | str = "x",
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    out_of_range: OutOfRange = "refuse",
) -> Columns:
    """An npy file with an array (n,) or (n, columns), mapped into memory, in chunks; errors as in `load_columns_csv`.

    Arguments:
        path: file to read.
        columns: names that the columns of the array get, in order, a list or "x,y".
        low: public lower bound, a number or an ISO date; or one for each column.
        high: public upper bound, likewise.
        resolution: public step of the grid, for dates in seconds; without it numbers must be whole.
        out_of_range: "refuse" values outside the bounds, or "clamp" them and release their noisy number.
    """
    readers = column_readers(column_names(columns), low=low, high=high, resolution=resolution, out_of_range=out_of_range)
    table = read_npy(path, kinds="iufM", vectors=True)
    if table.shape[1] != len(readers):
        raise ValueError(f"columns has {len(readers)} names: {path} has {table.shape[1]} columns")
    for start in range(0, len(table), CHUNK):
        for j, reader in enumerate(readers):
            reader.add(np.asarray(table[start : start + CHUNK, j]))
    return assemble_columns(name_of(path), readers)


def _collected(chunks: Iterable[pd.DataFrame], path: str, readers: Sequence[ColumnReader]) -> Columns:
    for chunk in chunks:
        for reader in readers:
            reader.add(_missing_refused(chunk[reader.name]))
    return assemble_columns(name_of(path), readers)


def _missing_refused(values: pd.Series) -> Any:
    missing = values.isna().to_numpy()
    if missing.any():
        row = values.index[int(missing.argmax())] + 1
        raise ValueError(f"column {values.name!r} has no value in row {row}: remove missing values first")
    return values.to_numpy()
