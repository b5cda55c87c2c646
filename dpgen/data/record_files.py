"""Tables of zeros and ones: csv, parquet and npy files."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.data.records import Records, require_binary, split_records
from dpgen.data.split import Split, SplitOptions
from dpgen.data.table_files import column_number, name_of, numbered, read_csv, read_npy, read_parquet, require_columns

MAX_CLASSES = 1000
"""A label column with more distinct values than this is refused: it is a quantity or a key, not a class."""


def load_records_csv(
    *,
    path: str,
    label_column: str | None = None,
    image_shape: tuple[int, int] | None = None,
    test_fraction: float = 0.2,
    test_path: str | None = None,
    split_column: str | None = None,
    split_key: Path | None = None,
    public_records: int = 0,
) -> Records:
    """A csv file with a header line, every column 0/1 but ``label_column``; compressed files (.gz) are read too.

    Arguments:
        path: file to read.
        label_column: column with the class of each record, of any type; the classes are sorted.
        image_shape: (height, width) when the columns are the pixels of an image, row by row.
        test_fraction: probability of each record to be kept for evaluation, in [0, 1).
        test_path: file of the test records, with the same columns; then all of ``path`` is private.
        split_column: column, no feature, whose hash is the coin of a record; without it the coin is a secret one.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
        public_records: number of training records to declare public.

    Raises:
        ValueError: if the file is missing, empty or malformed, lacks a column, or has values but 0 and 1.
    """
    options = SplitOptions(test_fraction, test_path, split_column, split_key)

    def read(path: str) -> pd.DataFrame:
        # The key is read as text: the type that pandas guesses depends on other records.
        table = read_csv(path, dtype={} if split_column is None else {split_column: str})
        if len(table.columns) > 1 and all(name.split(".")[0] in ("0", "1") for name in table.columns):
            shown = ", ".join(table.columns[:5])
            raise ValueError(f"{path} has no header: its first line is {shown}, ... where names belong")
        return table

    return _from_table(*options.read(path, read), path, label_column, image_shape, public_records)


def load_records_parquet(
    *,
    path: str,
    label_column: str | None = None,
    image_shape: tuple[int, int] | None = None,
    test_fraction: float = 0.2,
    test_path: str | None = None,
    split_column: str | None = None,
    split_key: Path | None = None,
    public_records: int = 0,
) -> Records:
    """A parquet file, every column 0/1 but ``label_column``; errors as in `load_records_csv`.

    Arguments:
        path: file to read.
        label_column: column with the class of each record, of any type; the classes are sorted.
        image_shape: (height, width) when the columns are the pixels of an image, row by row.
        test_fraction: probability of each record to be kept for evaluation, in [0, 1).
        test_path: file of the test records, with the same columns; then all of ``path`` is private.
        split_column: column, no feature, whose hash is the coin of a record; without it the coin is a secret one.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
        public_records: number of training records to declare public.
    """
    options = SplitOptions(test_fraction, test_path, split_column, split_key)
    return _from_table(*options.read(path, read_parquet), path, label_column, image_shape, public_records)


def load_records_npy(
    *,
    path: str,
    label_column: int | None = None,
    image_shape: tuple[int, int] | None = None,
    test_fraction: float = 0.2,
    test_path: str | None = None,
    split_column: int | None = None,
    split_key: Path | None = None,
    public_records: int = 0,
) -> Records:
    """A numpy file with one array (n, d), every column 0/1 but ``label_column``; no pickles, errors as in `load_records_csv`.

    Arguments:
        path: file to read.
        label_column: number of the column with the class of each record, from 0; the classes are sorted.
        image_shape: (height, width) when the columns are the pixels of an image, row by row.
        test_fraction: probability of each record to be kept for evaluation, in [0, 1).
        test_path: file of the test records, with as many columns; then all of ``path`` is private.
        split_column: number of a column, no feature, whose hash is the coin of a record; without it the coin is secret.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
        public_records: number of training records to declare public.
    """
    width = read_npy(path).shape[1]
    label, key = (column_number(*given, width) for given in (("label_column", label_column), ("split_column", split_column)))
    options = SplitOptions(test_fraction, test_path, key, split_key)
    read = options.read(path, lambda path: numbered(read_npy(path)))
    return _from_table(*read, path, label, image_shape, public_records)


def binary_table(table: pd.DataFrame, name: str = "table") -> Tensor:
    """Matrix (n, d) of uint8 of a table whose values all equal 0 or 1 (or False and True).

    Raises:
        ValueError: naming the first column, row (counted from 1) and value that is neither.

    Example:
        >>> binary_table(pd.DataFrame({"a": [0, 1], "b": [True, False]})).tolist()
        [[0, 1], [1, 0]]
    """
    columns = []
    for column, values in table.items():
        missing = values.isna().to_numpy()
        if missing.any():
            raise ValueError(f"{name} column {column!r} has no value in row {int(missing.argmax()) + 1}: it must be 0 or 1")
        right = values.isin([0, 1]).to_numpy()
        if not right.all():
            row = int((~right).argmax())
            raise ValueError(
                f"{name} column {column!r} has {str(values.iloc[row])[:40]!r} in row {row + 1}: only 0 and 1 are supported"
            )
        columns.append(values.to_numpy().astype(np.uint8))
    if not columns:
        raise ValueError(f"{name} has no 0/1 columns: at least one is needed")
    x = torch.from_numpy(np.stack(columns, axis=1))
    require_binary(x, name=name, columns=[str(column) for column in table.columns])
    return x


def class_labels(values: pd.Series) -> tuple[Tensor, tuple[str, ...]]:
    """Classes 0..c-1 of a column, in sorted order, and their names.

    Raises:
        ValueError: if a value is missing, or there are more than `MAX_CLASSES` classes.

    Example:
        >>> class_labels(pd.Series(["no", "yes", "no"], name="label"))
        (tensor([0, 1, 0]), ('no', 'yes'))
    """
    missing = values.isna().to_numpy()
    if missing.any():
        raise ValueError(f"label_column {values.name!r} has no value in row {int(missing.argmax()) + 1}")
    if values.nunique() > MAX_CLASSES:
        raise ValueError(f"label_column {values.name!r} has {values.nunique()} distinct values: at most {MAX_CLASSES} classes")
    try:
        codes, names = pd.factorize(values, sort=True)
    except TypeError:
        codes, names = pd.factorize(values.astype(str), sort=True)
    return torch.from_numpy(codes.astype(np.int64)), tuple(str(name) for name in names)


def _from_table(
    table: pd.DataFrame,
    split: Split,
    path: str,
    label_column: str | None,
    image_shape: tuple[int, int] | None,
    public_records: int,
) -> Records:
    labels, class_names = None, None
    notes: tuple[str, ...] = ("the names of the columns are public",)
    if label_column is not None:
        require_columns(path, [label_column], table.columns)
        labels, class_names = class_labels(table.pop(label_column))
        notes += (f"the {len(class_names)} classes were read from the records: epsilon does not cover it",)
    return split_records(
        name_of(path),
        binary_table(table, path),
        split=split,
        labels=labels,
        n_classes=0 if class_names is None else len(class_names),
        image_shape=image_shape,
        columns=list(table.columns),
        class_names=class_names,
        public_records=public_records,
        notes=notes,
    )
