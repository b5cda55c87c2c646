"""Points from tables - csv, parquet and npy files - with public bounds."""

import json

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.data.points import CLAMPED, OutOfRange, Points, place, require_bounds, require_points, split_points
from dpgen.data.table_files import column_names, name_of, read_csv, read_npy, read_parquet, require_columns


def load_points_csv(
    *,
    path: str,
    bounds: list[list[float]] | str,
    columns: list[str] | str | None = None,
    out_of_range: OutOfRange = "refuse",
    test_fraction: float = 0.2,
    split_seed: int = 0,
) -> Points:
    """A csv file with a header line and columns of numbers; compressed files (.gz) are read too.

    Arguments:
        path: file to read.
        bounds: public low and high of each column in its own unit, "low,high,low,high" or `[[low, high], ...]`; one pair
            serves all columns.
        columns: names of the columns to use, a list or "x,y"; without it all of them.
        out_of_range: "refuse" a point outside the bounds, or "clamp" it to them.
        test_fraction: share of points kept for evaluation, in (0, 1).
        split_seed: public seed of the split.

    Raises:
        ValueError: the file is missing or malformed, a column absent, not numeric or constant, a value missing, not finite or
            out of range, or fewer than 10 private points.
    """
    return _from_table(read_csv(path), path, bounds, columns, out_of_range, test_fraction, split_seed)


def load_points_parquet(
    *,
    path: str,
    bounds: list[list[float]] | str,
    columns: list[str] | str | None = None,
    out_of_range: OutOfRange = "refuse",
    test_fraction: float = 0.2,
    split_seed: int = 0,
) -> Points:
    """A parquet file with columns of numbers; errors as in `load_points_csv`.

    Arguments:
        path: file to read.
        bounds: public low and high of each column in its own unit, "low,high,low,high" or `[[low, high], ...]`; one pair
            serves all columns.
        columns: names of the columns to use, a list or "x,y"; without it all of them.
        out_of_range: "refuse" a point outside the bounds, or "clamp" it to them.
        test_fraction: share of points kept for evaluation, in (0, 1).
        split_seed: public seed of the split.
    """
    return _from_table(read_parquet(path), path, bounds, columns, out_of_range, test_fraction, split_seed)


def load_points_npy(
    *,
    path: str,
    bounds: list[list[float]] | str,
    out_of_range: OutOfRange = "refuse",
    test_fraction: float = 0.2,
    split_seed: int = 0,
) -> Points:
    """A numpy file with one array (n, d) of numbers; no pickles, errors as in `load_points_csv`.

    Arguments:
        path: file to read.
        bounds: public low and high of each column in its own unit, "low,high,low,high" or `[[low, high], ...]`; one pair
            serves all columns.
        out_of_range: "refuse" a point outside the bounds, or "clamp" it to them.
        test_fraction: share of points kept for evaluation, in (0, 1).
        split_seed: public seed of the split.
    """
    array = read_npy(path, kinds="iuf")
    table = pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])
    return _from_table(table, path, bounds, None, out_of_range, test_fraction, split_seed)


def parse_bounds(bounds: list[list[float]] | str, d: int) -> Tensor:
    """Public box (d, 2) of what a user wrote; one pair serves all columns.

    Raises:
        ValueError: not numbers, or neither 2 nor 2 d of them, or low >= high.

    Example:
        >>> parse_bounds("-1,1", 2).tolist()
        [[-1.0, 1.0], [-1.0, 1.0]]
    """
    try:
        value = json.loads(f"[{bounds}]") if isinstance(bounds, str) else bounds
        numbers = np.asarray(value, dtype=np.float64).ravel()
    except (ValueError, TypeError) as error:
        raise ValueError(f"bounds is {bounds!r}: it must be numbers such as [[0, 1], [-5, 5]] or 0,1,-5,5") from error
    if len(numbers) not in (2, 2 * d):
        raise ValueError(f"bounds has {len(numbers)} numbers: 2 are needed, or {2 * d} for {d} columns")
    rows = numbers.reshape(-1, 2).tolist()
    return require_bounds(rows * d if len(rows) == 1 else rows, d)


def _from_table(
    table: pd.DataFrame,
    path: str,
    bounds: list[list[float]] | str,
    columns: list[str] | str | None,
    out_of_range: OutOfRange,
    test_fraction: float,
    split_seed: int,
) -> Points:
    names = list(table.columns) if columns is None else column_names(columns)
    require_columns(path, names, table.columns)
    for name in names:
        if table[name].dtype.kind not in "iufb":
            raise ValueError(f"column {name!r} of {path} is not numeric: give the numeric ones in columns")
    if not names or not len(table):
        raise ValueError(f"{path} has {len(table)} points and {len(names)} columns: it is empty")
    box = parse_bounds(bounds, len(names))
    x = place(require_points(torch.from_numpy(np.array(table[names], dtype=np.float64))), box, out_of_range, names)
    return split_points(
        name_of(path),
        x,
        bounds=box,
        columns=tuple(names),
        test_fraction=test_fraction,
        split_seed=split_seed,
        notes=(
            f"the columns and the bounds {box.tolist()} are public: they must have been chosen without looking at the records",
            *((CLAMPED,) if out_of_range == "clamp" else ()),
        ),
    )
