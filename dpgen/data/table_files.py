"""Files of tables - csv, parquet, npy - read strictly: what is malformed is refused in one line, never repaired."""

import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

BLANKS = r"\s+"
"""Separator of text files whose fields are apart by any number of blanks."""

UNREADABLE = (ValueError, OSError, EOFError, zlib.error)
"""What readers raise at files that are cut, damaged or of another form."""

_SHOWN = 20
_BLOCK = 2**24  # bytes of a csv file that are counted at a time; no row may be longer


def data_folder(name: str, data_root: str | None) -> Path:
    """The folder in which ``name`` is looked for: ``data_root``, or without it what DPGEN_DATA names.

    Raises:
        ValueError: neither is given.
    """
    root = data_root or os.environ.get("DPGEN_DATA")
    if not root:
        raise ValueError(f"data_root is not set and neither is DPGEN_DATA: one of them must name the folder with {name}")
    return Path(root)


def existing_file(path: str | Path, *, option: str = "path") -> Path:
    """The path of a file that is there and not empty.

    Raises:
        ValueError: it is not.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{option} is {str(path)!r}: there is no such file")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    return path


def name_of(path: str | Path) -> str:
    """What data from a file are called: its name up to the first dot.

    Example:
        >>> name_of("logs/clicks.csv.gz")
        'clicks'
    """
    return Path(path).name.split(".")[0]


def one_line(error: BaseException) -> str:
    """What an error says, on one line of at most 200 characters."""
    return " ".join(str(error).split())[:200]


def unreadable(path: str | Path, what: str, error: BaseException) -> ValueError:
    """The error of a file that is not of the form ``what``."""
    return ValueError(f"{path} cannot be read as {what}: {one_line(error)}")


def column_names(columns: Sequence[str] | str) -> list[str]:
    """Names of columns as users write them, a list or one text.

    Example:
        >>> column_names("x, y"), column_names(["x, y"])
        (['x', 'y'], ['x, y'])
    """
    return [name.strip() for name in columns.split(",")] if isinstance(columns, str) else [str(name) for name in columns]


def require_columns(path: str | Path, wanted: Iterable[str], present: Iterable[Any]) -> None:
    """Refuse a table that lacks a column, and say which it has.

    Raises:
        ValueError: naming the first column that is not there.
    """
    names = [str(name) for name in present]
    known = set(names)
    for name in wanted:
        if name not in known:
            choices = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            raise ValueError(f"{path} has no column {name!r}: its columns are {choices}")


def require_different_names(path: str | Path, separator: str = ",") -> None:
    """Refuse a header that says a name twice; pandas would rename the second.

    Raises:
        ValueError: naming it.
    """
    header = pd.read_csv(path, sep=separator, header=None, nrows=1, dtype=str, index_col=False, engine="python")
    names = header.iloc[0].astype(str).tolist()
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"it has {names.count(repeated[0])} columns called {repeated[0]!r}: their names must differ")


def read_csv(path: str | Path, *, separator: str = ",", what: str = "csv", **options: Any) -> pd.DataFrame:
    """All columns of a text file with a header line, plain or .gz.

    Arguments:
        path: file to read.
        separator: of the fields: one character, or `BLANKS`.
        what: form of the file, for errors.
        options: further options of `pandas.read_csv`: types of columns, what counts as missing.

    Raises:
        ValueError: the file is missing, empty or no such text, or a row has more or fewer fields than the header.
    """
    existing_file(path)
    try:
        require_rectangle(path, separator)
        require_different_names(path, separator)
        options |= {"engine": "python"} if separator == BLANKS else {"low_memory": False}
        return pd.read_csv(path, sep=separator, index_col=False, **options)
    except UNREADABLE as error:
        raise unreadable(path, what, error) from error


def csv_chunks(
    path: str | Path, columns: Sequence[str], *, rows: int, what: str = "csv", **options: Any
) -> Iterator[pd.DataFrame]:
    """Some columns of a csv file in pieces of ``rows`` rows; other arguments and errors as in `read_csv`.

    Raises:
        ValueError: also if a column is not there.
    """
    existing_file(path)
    try:
        require_rectangle(path)
        require_different_names(path)
        present = pd.read_csv(path, nrows=0, index_col=False).columns
    except UNREADABLE as error:
        raise unreadable(path, what, error) from error
    require_columns(path, columns, present)
    options |= {"usecols": columns, "chunksize": rows, "low_memory": False}
    try:
        with pd.read_csv(path, index_col=False, **options) as chunks:
            yield from chunks
    except UNREADABLE as error:
        raise unreadable(path, what, error) from error


def read_parquet(path: str | Path, *, what: str = "parquet") -> pd.DataFrame:
    """All columns of a parquet file, their names as text.

    Raises:
        ValueError: the file is missing, empty or unreadable.
    """
    import pyarrow

    existing_file(path)
    try:
        table = pd.read_parquet(path)
    except (*UNREADABLE, pyarrow.ArrowException) as error:
        raise unreadable(path, what, error) from error
    table.columns = pd.Index([str(name) for name in table.columns])
    return table


def parquet_chunks(path: str | Path, columns: Sequence[str], *, rows: int) -> Iterator[pd.DataFrame]:
    """Some columns of a parquet file in pieces of at most ``rows`` rows.

    Raises:
        ValueError: the file is missing, empty or unreadable, or lacks a column.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(existing_file(path)) as file:
            require_columns(path, columns, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=rows, columns=list(columns)):
                yield batch.to_pandas(ignore_metadata=True)
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable(path, "parquet", error) from error


def read_npy(path: str | Path, *, kinds: str = "biuf", vectors: bool = False) -> npt.NDArray[Any]:
    """The array (n, d) of a numpy file, mapped into memory; no pickles.

    Arguments:
        path: file to read.
        kinds: letters of the types that are allowed, as `numpy.dtype.kind` has them.
        vectors: whether an array (n,) is taken too, as (n, 1).

    Raises:
        ValueError: the file is missing, empty, unreadable or holds something else.
    """
    existing_file(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        raise unreadable(path, "npy", error) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError(f"{path} holds an archive of arrays: it must hold one array of shape (records, columns)")
    if array.dtype.kind not in kinds or array.ndim not in (1, 2)[1 - vectors :]:
        found, numbers = f"{array.dtype} {array.shape}", "numbers or dates" if "M" in kinds else "numbers"
        raise ValueError(f"{path} holds {found}: it must hold one array of {numbers} of shape (records, columns)")
    return array if array.ndim == 2 else array[:, None]


def numbered(array: npt.NDArray[Any], prefix: str = "") -> pd.DataFrame:
    """An array (n, d) as a table whose columns are called 0, 1, ... after a prefix."""
    return pd.DataFrame(array, columns=[f"{prefix}{column}" for column in range(array.shape[1])])


def column_number(option: str, number: int | None, width: int, prefix: str = "") -> str | None:
    """The name that `numbered` gives to a column.

    Raises:
        ValueError: there is no such column.
    """
    if number is None:
        return None
    if not -width <= number < width:
        raise ValueError(f"{option} is {number}: it must be in [0, {width - 1}]")
    return f"{prefix}{number % width}"


def read_bytes(path: Path | str) -> bytes:
    """Content of a file, decompressed when it starts with the gzip signature.

    Raises:
        ValueError: if the file is missing, empty, or its compressed stream is cut or damaged.
    """
    content = existing_file(path).read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file: {error}") from error
    if not content:
        raise ValueError(f"{path} is empty")
    return content


def require_rectangle(path: str | Path, separator: str = ",") -> None:
    """Refuse text with zero bytes, and rows that have more or fewer fields than the header.

    pandas drops surplus fields, shifts columns or takes them for an index, depending on its options, and fills short rows.

    Raises:
        ValueError: naming the row, counted from 1 without the header, and its number of fields.
        OSError: the compressed stream is damaged.
    """
    import pyarrow
    from pyarrow import csv

    with pyarrow.input_stream(str(path), compression="detect") as stream:
        text = pyarrow.TransformInputStream(stream, _without_zeros)
        if separator == BLANKS:
            return _require_equal_widths(io.TextIOWrapper(text, encoding="utf-8"))
        try:
            with csv.open_csv(
                text,
                csv.ReadOptions(autogenerate_column_names=True, block_size=_BLOCK, use_threads=False),  # threads count no rows
                csv.ParseOptions(delimiter=separator, newlines_in_values=True),
                csv.ConvertOptions(include_columns=["f0"], column_types={"f0": pyarrow.binary()}),
            ) as blocks:
                for _ in blocks:
                    pass
        except pyarrow.ArrowInvalid as error:
            # The row itself, which Arrow quotes, is private.
            found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
            raise ValueError(_width(*map(int, found.groups())) if found else "its rows cannot be told apart") from None


def _require_equal_widths(lines: Iterable[str]) -> None:
    widths = (fields for line in lines if (fields := len(line.split())))
    header = next(widths, 0)
    for line, fields in enumerate(widths, start=2):
        if fields != header:
            raise ValueError(_width(line, header, fields))


def _width(line: int, header: int, fields: int) -> str:
    return f"row {line - 1} has {fields} fields, the header has {header}"


def _without_zeros(block: Any) -> Any:
    if b"\0" in bytes(block):
        raise ValueError("it holds zero bytes")
    return block
