"""Columns from csv, parquet and npy files in chunks, and two columns of particle physics."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpgen.data.columns import ColumnReader, Columns, OutOfRange, assemble_columns, existing_file
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
        raise ValueError(f"column is {list(names)}: name one or more different columns")
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


def _names(column: list[str] | str) -> list[str]:
    return [column] if isinstance(column, str) else [str(name) for name in column]


def _require_columns(path: str, names: Sequence[str], present: Sequence[str]) -> None:
    for name in names:
        if name not in present:
            choices = ", ".join(list(present)[:20]) + (", ..." if len(present) > 20 else "")
            raise ValueError(f"column is {name!r}: {path} has the columns {choices}")


def load_column_csv(
    *,
    path: str,
    column: list[str] | str,
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    categories: list[str] | None = None,
    out_of_range: OutOfRange = "refuse",
) -> Columns:
    """Columns of a csv file with a header line, read in chunks; compressed files (.gz) too.

    Values on a grid finer than float64 are read as text, so that 18 digits survive.

    Args:
        path: file to read.
        column: name of a column, or a list of names.
        low: public lower bound, a number or an ISO date; or one for each column.
        high: public upper bound, likewise.
        resolution: public step of the grid, for dates in seconds; without it numbers must be whole.
        categories: all names in their order, for categorical columns; bounds are not used then.
        out_of_range: "refuse" values outside the bounds, or "clamp" them and release their noisy number.

    Raises:
        ValueError: a missing file or column, a value that is missing, unreadable or outside the bounds, bad bounds.
    """
    readers = column_readers(
        _names(column), low=low, high=high, resolution=resolution, categories=categories, out_of_range=out_of_range
    )
    names = [reader.name for reader in readers]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            _require_columns(path, names, pd.read_csv(existing_file(path), nrows=0).columns)
            text = {r.name: str for r in readers if r.domain.kind != "number" or r.domain.decimals}
            chunks = pd.read_csv(path, usecols=names, dtype=text, chunksize=CHUNK, low_memory=False, keep_default_na=True)
            with chunks:
                for chunk in chunks:
                    for reader in readers:
                        reader.add(_missing_refused(chunk[reader.name]))
    except (OSError, EOFError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise ValueError(f"{path} cannot be read as csv: {' '.join(str(error).split())[:200]}") from error
    return assemble_columns(Path(path).name.split(".")[0], readers)


def _missing_refused(values: pd.Series) -> Any:
    missing = values.isna().to_numpy()
    if missing.any():
        row = values.index[int(missing.argmax())] + 1
        raise ValueError(f"column {values.name!r} has no value in row {row}: remove missing values first")
    return values.to_numpy()


def load_column_parquet(
    *,
    path: str,
    column: list[str] | str,
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    categories: list[str] | None = None,
    out_of_range: OutOfRange = "refuse",
) -> Columns:
    """Columns of a parquet file, read in batches; arguments and errors as in `load_column_csv`."""
    import pyarrow
    import pyarrow.parquet

    readers = column_readers(
        _names(column), low=low, high=high, resolution=resolution, categories=categories, out_of_range=out_of_range
    )
    names = [reader.name for reader in readers]
    try:
        with pyarrow.parquet.ParquetFile(existing_file(path)) as file:
            _require_columns(path, names, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=CHUNK, columns=names):
                for reader in readers:
                    reader.add(_missing_refused(batch.column(reader.name).to_pandas().rename(reader.name)))
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(f"{path} cannot be read as parquet: {' '.join(str(error).split())[:200]}") from error
    return assemble_columns(Path(path).name.split(".")[0], readers)


def load_column_npy(
    *,
    path: str,
    column: list[str] | str = "x",
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    out_of_range: OutOfRange = "refuse",
) -> Columns:
    """An npy file with an array (n,) or (n, columns), mapped into memory and encoded in chunks.

    `column` names the columns of the array in order; other arguments and errors as in `load_column_csv`.
    """
    readers = column_readers(_names(column), low=low, high=high, resolution=resolution, out_of_range=out_of_range)
    try:
        array = np.load(existing_file(path), mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as npy: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(array, np.ndarray) or array.ndim not in (1, 2) or array.dtype.kind not in "iufM":
        raise ValueError(f"{path} must hold one array of numbers or dates, (n,) or (n, columns)")
    table = array if array.ndim == 2 else array[:, None]
    if table.shape[1] != len(readers):
        raise ValueError(f"column names {len(readers)} columns: {path} has {table.shape[1]}")
    for start in range(0, len(table), CHUNK):
        for j, reader in enumerate(readers):
            reader.add(np.asarray(table[start : start + CHUNK, j]))
    return assemble_columns(Path(path).name.split(".")[0], readers)


def load_cms(*, data_root: str, high: float = 1e9, resolution: float = 1e-9) -> Columns:
    """138,556 transverse momenta of leptons that CMS recorded, in GeV, on a grid of 10^18 values.

    Public file `cms_lepton_pt/cms_lepton_pt.csv.gz` (CMS open data, CC BY 4.0).
    """
    path = str(Path(data_root) / "cms_lepton_pt" / "cms_lepton_pt.csv.gz")
    return load_column_csv(path=path, column="pt", low=0.0, high=high, resolution=resolution)


def load_higgs(*, data_root: str, high: float = 1e9, resolution: float = 1e-9) -> Columns:
    """10,984 simulated lepton momenta of the UCI HIGGS set, whose 11 million Diakonikolas et al. 2015 used.

    Public file `higgs_11k/higgs.csv.gz`; the grid has 10^18 values.
    """
    path = str(Path(data_root) / "higgs_11k" / "higgs.csv.gz")
    return load_column_csv(path=path, column="lepton_pT", low=0.0, high=high, resolution=resolution)
