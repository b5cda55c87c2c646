"""Points from tables - csv, parquet and npy files - with public bounds."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.data.points import CLAMPED, OutOfRange, Points, place, require_bounds, require_points, split_points
from dpgen.data.split import Split, SplitOptions
from dpgen.data.table_files import (
    column_names,
    column_number,
    name_of,
    numbered,
    read_csv,
    read_npy,
    read_parquet,
    require_columns,
)


def load_points_csv(
    *,
    path: str,
    bounds: list[list[float]] | str,
    columns: list[str] | str | None = None,
    out_of_range: OutOfRange = "refuse",
    test_fraction: float = 0.2,
    test_path: str | None = None,
    split_column: str | None = None,
    split_key: Path | None = None,
) -> Points:
    """A csv file with a header line and columns of numbers; compressed files (.gz) are read too.

    Arguments:
        path: file to read.
        bounds: public low and high of each column in its own unit, "low,high,low,high" or `[[low, high], ...]`; one pair
            serves all columns.
        columns: names of the columns to use, a list or "x,y"; without it all of them.
        out_of_range: "refuse" a point outside the bounds, or "clamp" it to them.
        test_fraction: probability of each point to be kept for evaluation, in [0, 1).
        test_path: file of the test points, with the same columns; then all of ``path`` is private.
        split_column: column, no coordinate, whose hash is the coin of a point; without it the coin is a secret one.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.

    Raises:
        ValueError: the file is missing, empty or malformed, a column absent or not numeric, a value missing, not finite or
            out of range.
    """
    options = SplitOptions(test_fraction, test_path, split_column, split_key)
    # The key is read as text: the type that pandas guesses depends on other records.
    text = {} if split_column is None else {split_column: str}
    return _from_table(*options.read(path, lambda path: read_csv(path, dtype=text)), path, bounds, columns, out_of_range)


def load_points_parquet(
    *,
    path: str,
    bounds: list[list[float]] | str,
    columns: list[str] | str | None = None,
    out_of_range: OutOfRange = "refuse",
    test_fraction: float = 0.2,
    test_path: str | None = None,
    split_column: str | None = None,
    split_key: Path | None = None,
) -> Points:
    """A parquet file with columns of numbers; errors as in `load_points_csv`.

    Arguments:
        path: file to read.
        bounds: public low and high of each column in its own unit, "low,high,low,high" or `[[low, high], ...]`; one pair
            serves all columns.
        columns: names of the columns to use, a list or "x,y"; without it all of them.
        out_of_range: "refuse" a point outside the bounds, or "clamp" it to them.
        test_fraction: probability of each point to be kept for evaluation, in [0, 1).
        test_path: file of the test points, with the same columns; then all of ``path`` is private.
        split_column: column, no coordinate, whose hash is the coin of a point; without it the coin is a secret one.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
    """
    options = SplitOptions(test_fraction, test_path, split_column, split_key)
    return _from_table(*options.read(path, read_parquet), path, bounds, columns, out_of_range)


def load_points_npy(
    *,
    path: str,
    bounds: list[list[float]] | str,
    out_of_range: OutOfRange = "refuse",
    test_fraction: float = 0.2,
    test_path: str | None = None,
    split_column: int | None = None,
    split_key: Path | None = None,
) -> Points:
    """A numpy file with one array (n, d) of numbers; no pickles, errors as in `load_points_csv`.

    Arguments:
        path: file to read.
        bounds: public low and high of each column in its own unit, "low,high,low,high" or `[[low, high], ...]`; one pair
            serves all columns.
        out_of_range: "refuse" a point outside the bounds, or "clamp" it to them.
        test_fraction: probability of each point to be kept for evaluation, in [0, 1).
        test_path: file of the test points, with as many columns; then all of ``path`` is private.
        split_column: number of a column, no coordinate, whose hash is the coin of a point; without it the coin is secret.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
    """
    key = column_number("split_column", split_column, read_npy(path, kinds="iuf").shape[1], "x")
    options = SplitOptions(test_fraction, test_path, key, split_key)
    read = options.read(path, lambda path: numbered(read_npy(path, kinds="iuf"), "x"))
    return _from_table(*read, path, bounds, None, out_of_range)


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
    split: Split,
    path: str,
    bounds: list[list[float]] | str,
    columns: list[str] | str | None,
    out_of_range: OutOfRange,
) -> Points:
    names = list(table.columns) if columns is None else column_names(columns)
    require_columns(path, names, table.columns)
    for name in names:
        if table[name].dtype.kind not in "iufb":
            raise ValueError(f"column {name!r} of {path} is not numeric: give the numeric ones in columns")
    if not names:
        raise ValueError(f"{path} has no column but the one that it is split by: a point needs a coordinate")
    box = parse_bounds(bounds, len(names))
    x = place(require_points(torch.from_numpy(np.array(table[names], dtype=np.float64))), box, out_of_range, names)
    return split_points(
        name_of(path),
        x,
        bounds=box,
        columns=tuple(names),
        split=split,
        notes=(
            f"the columns and the bounds {box.tolist()} are public: they must have been chosen without looking at the records",
            *((CLAMPED,) if out_of_range == "clamp" else ()),
        ),
    )
