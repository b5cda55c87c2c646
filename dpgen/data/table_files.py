"""Files of tables - csv, parquet, npy - read strictly: malformed files are refused in one line, never repaired.

A path may be `InMemory`: a table or an array, which is read as the parquet or npy file that it would make.

| form | recognised by | columns are called | values |
|---|---|---|---|
| parquet | ending .parquet, or its first bytes | as in the file | typed |
| npy | ending .npy or .npz, or its first bytes | 0, 1, ... after a prefix | one array (n, d) of numbers or dates |
| Excel | ending .xlsx or .xlsm, read into memory by `table_path` | by the first row | as they are in their cells |
| csv | everything else; plain or .gz | by the header line | numbers where all values of a column are, or text |
"""

from __future__ import annotations

import codecs
import csv
import datetime
import glob
import gzip
import io
import os
import re
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
from pyarrow import compute, parquet
from pyarrow import csv as arrow_csv

from dpgen.containers import Form, InMemory, in_memory, natural
from dpgen.extras import extras

FileForm = Literal["csv", "parquet", "npy"]

Missing = Literal["error", "drop", "category"]
"""Missing values are refused, or drop their record, or are a category of their own."""

MISSING_CATEGORY = "missing"

MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
"""Texts of a csv file that stand for no value, as in pandas."""

_SHOWN = 20
_BLOCK = 2**23  # bytes of a csv file that are parsed at a time; no row may be longer


# -- paths -------------------------------------------------------------------------------------------------------------


UNREADABLE = (ValueError, OSError, EOFError, zlib.error, csv.Error)
"""Exceptions of readers at files that are cut, damaged or of another form."""

ENCODINGS = ("utf-8", "cp1252", "latin-1", "utf-16")
"""Encodings that a message suggests; all of Python's are taken."""


class CsvPath(str):
    """The path of a csv file whose fields are apart by another character than its ending says, or that is not UTF-8."""

    dialect: tuple[str | None, str | None]


def _is_csv(path: Any) -> bool:
    return not (isinstance(path, InMemory) or is_source(path) or is_excel(path)) and form_of(path) == "csv"


def table_path(path: str, delimiter: str | None = None, encoding: str | None = None) -> str:
    """The path, with what its owner says of the text of a csv file; of a file of Excel its table in memory."""
    if delimiter is None and encoding is None:
        return read_excel(path) if is_excel(path) else path
    delimiter = "\t" if delimiter in ("tab", "\\t") else delimiter
    if delimiter is not None:
        _require_delimiter(delimiter)
    if encoding is not None:
        _require_encoding(encoding)
    if not _is_csv(path):
        option = f"delimiter is {delimiter!r}" if encoding is None else f"encoding is {encoding!r}"
        raise ValueError(f"{option}: it must be left out, for {path} is no csv file")
    described = CsvPath(path)
    described.dialect = (delimiter, encoding)
    return described


def _require_delimiter(delimiter: str) -> None:
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ValueError(f"delimiter is {delimiter!r}: it must be one character such as , ; | or tab, and no quote")


def _require_encoding(encoding: str) -> None:
    """Refuse the name of no encoding, or of one of bytes, such as hex."""
    try:
        known = codecs.lookup(encoding)._is_text_encoding
    except LookupError:
        known = False
    if not known:
        raise ValueError(f"encoding is {encoding!r}: it must be a text encoding such as {', '.join(ENCODINGS)}")


def same_dialect(path: str, other: str) -> str:
    """The path of a file that is written as another one."""
    return table_path(path, *(other.dialect if isinstance(other, CsvPath) else ()))


def dialect_of(path: str | Path) -> Dialect:
    """The dialect of a csv file: what its owner says, else its ending, or its header line."""
    delimiter, encoding = path.dialect if isinstance(path, CsvPath) else (None, None)
    return shown_dialect(_start(path), delimiter or ("\t" if ".tsv" in Path(path).suffixes else None), encoding)


_START = 2**16  # bytes in which the header must be


def _start(path: str | Path) -> bytes:
    try:
        with pyarrow.input_stream(str(existing_file(path)), compression="detect") as stream:
            return bytes(stream.read(_START))
    except UNREADABLE as error:
        raise unreadable(path, "csv", error) from error


def data_folder(name: str, data_root: str | None) -> Path:
    """The folder in which ``name`` is looked for: ``data_root``, or without it what DPGEN_DATA names."""
    root = data_root or os.environ.get("DPGEN_DATA")
    if not root:
        raise ValueError(f"data_root is not set and neither is DPGEN_DATA: one of them must name the folder with {name}")
    return Path(root)


def existing_file(path: str | Path, *, option: str = "path") -> Path:
    """The path of a file that is there and not empty, else a ValueError that names the option."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{option} is {str(path)!r}: it is a folder, and must be a file")
    if not path.is_file():
        raise ValueError(f"{option} is {str(path)!r}: there is no such file")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    return path


def name_of(path: str | Path) -> str:
    """Name of the data in a file: that of the file up to the first dot.

    >>> name_of("logs/clicks.csv.gz"), name_of("w.duckdb::visits"), name_of("visits/*.parquet")
    ('clicks', 'visits', 'visits')
    """
    file, _, table = str(path).partition("::")
    return table or Path(file).name.split(".")[0].strip("*?-_") or Path(file).resolve().parent.name


def one_line(error: BaseException) -> str:
    """Message of an error on one line of at most 200 characters.

    >>> one_line(OSError("a\\n  b")), len(one_line(OSError("c" * 300)))
    ('a b', 200)
    """
    return " ".join(str(error).split())[:200]


def unreadable(path: str | Path, form: str, error: BaseException) -> ValueError:
    """The error of a file that is not of its form."""
    return ValueError(f"{path} cannot be read as {form}: {one_line(error)}")


def form_of(path: str | Path) -> FileForm:
    """Form of a file, which is there and not empty, by its ending and its first bytes."""
    if isinstance(path, InMemory):
        return "parquet" if path.like == "parquet" else "npy"
    with existing_file(path).open("rb") as file:
        start = file.read(6)
    ending = Path(path).suffix
    if is_excel(path):
        raise ValueError(f"{path} is a file of Excel: save it as csv")
    if ending == ".parquet" or start[:4] == b"PAR1":
        return "parquet"
    return "npy" if ending in (".npy", ".npz") or start == b"\x93NUMPY" else "csv"


def is_source(path: str | Path) -> bool:
    """Whether an engine reads it: a DuckDB file or a table of one, several files by a glob, a relation or a DataFrame of Spark.

    >>> is_source("w.duckdb::visits"), is_source("visits/*.parquet"), is_source("visits.csv")
    (True, True, False)
    """
    if isinstance(path, InMemory):
        return path.like == "sql"
    file = Path(str(path).partition("::")[0])
    return file.suffix in (".duckdb", ".ddb") or (not file.exists() and glob.has_magic(str(file)))


def in_engine(path: str, engine: bool) -> bool:
    """Whether an engine reads it: `is_source`, or one file whose owner asks for DuckDB."""
    if engine and isinstance(path, CsvPath):
        raise ValueError(f"engine is true: delimiter and encoding must be left out, DuckDB reads {path} by its header line")
    if engine and isinstance(path, InMemory) and not is_source(path):
        raise ValueError(f"engine is true: it must be left out, {path} is in memory")
    return engine or is_source(path)


# -- tables ------------------------------------------------------------------------------------------------------------


def column_names(columns: Sequence[str] | str) -> list[str]:
    """Names of columns as users write them, a list or one text.

    >>> column_names("x, y"), column_names(["x, y"])
    (['x', 'y'], ['x, y'])
    """
    return [name.strip() for name in columns.split(",")] if isinstance(columns, str) else [str(name) for name in columns]


def require_columns(path: str | Path, wanted: Iterable[str], present: Iterable[Any]) -> None:
    """Refuse a table that lacks a column."""
    names = [str(name) for name in present]
    known = set(names)
    for name in wanted:
        if name not in known:
            choices = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            near = get_close_matches(name, names, n=1, cutoff=0.75)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{path} has no column {name!r}: its columns are {choices}{hint}")


def header(path: str | Path) -> dict[str, str]:
    """Names of the columns of a table in their order, and their types where these are public: "" where they are not."""
    form = form_of(path)
    if form == "npy":
        raise ValueError(f"{path} is an array; a table must be csv, tsv, parquet or a DataFrame, whose columns have names")
    if form == "csv":
        names = _csv_names(path, dialect_of(path))
        return dict.fromkeys(names[:-1] if len(names) > 1 and not names[-1] else names, "")  # lines that end with a delimiter
    if isinstance(path, InMemory):
        return dict(path.types)
    schema = parquet_schema(path)
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return {field.name: str(field.type) for field in schema if field.name not in index}


def parquet_schema(path: str | Path) -> Any:
    """The Arrow schema of a parquet file."""
    try:
        return parquet.read_schema(existing_file(path))
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable(path, "parquet", error) from error


def read_table(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    text: Collection[str] | None = (),
    missing: Collection[str] = MISSING,
    prefix: str = "",
    narrow: bool = False,
    whole: Collection[str] = (),
) -> pd.DataFrame:
    """A whole table, or some columns of it.

    Of a csv file the columns in `text` are texts even where they look like numbers, None: all of them; `missing` are texts that
    stand for no value; `narrow` columns of single digits come as uint8; `whole` columns as int64 or as text, never as float64,
    which rounds above 2^53. `prefix` is of the names of columns of an npy file.
    """
    form = form_of(path)
    if form == "csv":
        return _typed(_csv_table(path, columns, dialect_of(path), missing), text, narrow, whole)
    if form == "parquet":
        return _parquet_table(path, columns)
    array = read_npy(path)
    table = pd.DataFrame(array, columns=[f"{prefix}{number}" for number in range(array.shape[1])])
    require_columns(path, columns or (), table.columns)
    return table if columns is None else table[list(columns)]


def read_npy(path: str | Path, *, vectors: bool = False) -> npt.NDArray[Any]:
    """The array (n, d) of a numpy file, mapped into memory; no pickles. `vectors`: an array (n,) is taken too, as (n, 1)."""
    if isinstance(path, InMemory):
        return np.asarray(path.content)
    existing_file(path)
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except UNREADABLE:  # numpy quotes what it found in the file
        raise ValueError(f"{path} cannot be read as npy: it must hold one array, as numpy.save writes it") from None
    if array.dtype.kind not in "biufM" or array.ndim not in (1, 2)[1 - vectors :]:
        found = f"{array.dtype} {array.shape}"
        raise ValueError(f"{path} holds {found}: it must hold one array of numbers or dates of shape (records, columns)")
    return array if array.ndim == 2 else array[:, None]


def column_name(option: str, column: str | int | None, path: str | Path, prefix: str = "") -> str | None:
    """Name of the column that an option gives: of an npy file by its number, from 0, or from -1 backwards."""
    if column is None or form_of(path) != "npy":
        return None if column is None else str(column)
    width = read_npy(path).shape[1]
    number = re.fullmatch(rf"(?:{prefix})?(-?\d+)", str(column))
    if number is None or not -width <= int(number[1]) < width:
        raise ValueError(f"{option} is {column}: it must be in [0, {width - 1}]")
    return f"{prefix}{int(number[1]) % width}"


def read_bytes(path: Path | str) -> bytes:
    """Content of a file, decompressed when it starts with the gzip signature."""
    content = existing_file(path).read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file: {error}") from error
    if not content:
        raise ValueError(f"{path} is empty")
    return content


def sample_form(
    path: str | Path,
    names: Sequence[str],
    *,
    csv: str = "",
    label: str | None = None,
    categories: Mapping[str, tuple[str, ...]] | None = None,
) -> Form:
    """The form in which samples of these columns are given back.

    Types are those of the schema, not of the values: pandas gives whole numbers another type where one of them is missing,
    and which values are missing is private.

    `csv` is the type of values of a csv file, which has no schema, and of columns in memory whose type is not public; `label`
    the column of classes, whose names say its type, `categories` the names of values by column.
    """
    categories = categories or {}
    classes = categories.get(label or "", ())

    def untyped(name: str | int | None) -> str:
        return natural(classes) if name == label else csv

    if isinstance(path, InMemory):
        form, orders = path.form, path.orders
        own = form.names if len(form.types) == len(form.names) else [None] * len(form.types)
        form = replace(form, types=tuple(dtype or untyped(name) for name, dtype in zip(own, form.types)))
        categories = {name: _in_order(values, orders.get(name, ())) for name, values in categories.items()}
    elif form_of(path) == "npy":
        form = Form(container="numpy", types=(str(read_npy(path, vectors=True).dtype),))
    elif form_of(path) == "csv":
        form = Form(container="pandas", names=tuple(names), types=tuple(map(untyped, names)))
    else:
        table = parquet_schema(path).empty_table().to_pandas(ignore_metadata=True)
        form = Form(container="pandas", names=tuple(map(str, table.columns)), types=tuple(map(str, table.dtypes)))
    return form.of_columns(names, label=label, categories=categories)


def _in_order(values: Sequence[str], order: Sequence[str]) -> tuple[str, ...]:
    """Values in a declared order, others behind them."""
    place = {value: i for i, value in enumerate(order)}
    return tuple(sorted(values, key=lambda value: place.get(value, len(place))))


def settled(
    table: pd.DataFrame, missing: Missing, path: str | Path, *, categorical: Collection[str] = (), numbered: bool = True
) -> pd.DataFrame:
    """A table without missing values: refused, without their records, or with a category of `categorical` columns for them.

    Whether a record is dropped depends on its own values alone; `numbered`: errors show the row.
    """
    if missing not in get_args(Missing):
        raise ValueError(f"missing is {missing!r}; it must be one of {', '.join(get_args(Missing))}")
    if missing == "drop":
        return table.dropna(ignore_index=True).infer_objects()
    filled = {}
    for name, values in table.items():
        absent = values.isna().to_numpy()
        if not absent.any():
            continue
        if missing == "error" or name not in categorical:
            row = f"row {int(absent.argmax()) + 1}" if numbered else "a row"
            choices = "missing=drop" + " or category" * (name in categorical)
            raise ValueError(f"{path} column {name!r} has no value in {row}: fill it, or choose {choices}")
        filled[name] = values.astype(object).where(~absent, MISSING_CATEGORY)
    return table.assign(**filled)


# -- csv ---------------------------------------------------------------------------------------------------------------


def _csv_table(path: str | Path, columns: Sequence[str] | None, dialect: Dialect, missing: Collection[str]) -> pyarrow.Table:
    """The rows of a text file as columns of text, or of single digits."""
    names = _csv_names(path, dialect)
    wanted = names if columns is None else list(columns)
    require_columns(path, wanted, names)
    try:
        with pyarrow.input_stream(str(path), compression="detect") as stream:
            blocks = _blocks(recoded(stream, dialect), names, wanted, dialect.delimiter, missing)
            return _joined(wanted, [{name: _narrowed(block[name]) for name in wanted} for block in blocks if len(block)])
    except UNREADABLE as error:
        raise unreadable(path, "csv", error) from error


def _csv_names(path: str | Path, dialect: Dialect) -> list[str]:
    existing_file(path)
    try:
        with pyarrow.input_stream(str(path), compression="detect") as stream:
            return _header(recoded(stream, dialect), dialect.delimiter)
    except UNREADABLE as error:
        raise unreadable(path, "csv", error) from error


def _header(stream: Any, separator: str) -> list[str]:
    lines = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    rows = csv.reader(lines, delimiter=separator)
    first = next(rows, [])
    names = first or next((row for row in rows if row), [])
    if not first and len(names) == 1:  # of one column every line is a record
        raise ValueError("it begins with an empty line, where the name of its one column belongs")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"it has {names.count(repeated[0])} columns called {repeated[0]!r}: their names must differ")
    return names


def _blocks(
    stream: Any, names: list[str], wanted: list[str], separator: str, missing: Collection[str]
) -> Iterator[pyarrow.Table]:
    """The rows after the header, block by block.

    Arrow counts the fields of every row, and only without threads the rows. It may not guess types, which it would do from
    the first block alone.
    """

    def without_zeros(block: Any) -> Any:
        if b"\0" in bytes(block):
            raise ValueError("it holds zero bytes")
        return block

    text = pyarrow.TransformInputStream(stream, without_zeros)
    types = {f"f{i}": pyarrow.string() for i in range(len(names))}
    try:
        with arrow_csv.open_csv(
            text,
            arrow_csv.ReadOptions(autogenerate_column_names=True, block_size=_BLOCK, use_threads=False),
            # Of a single column an empty line is a record with a missing value; of several it is none.
            arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True, ignore_empty_lines=len(names) > 1),
            arrow_csv.ConvertOptions(
                include_columns=[f"f{names.index(name)}" for name in wanted],
                column_types=types,
                null_values=list(missing),
                strings_can_be_null=True,
            ),
        ) as blocks:
            for number, block in enumerate(blocks):
                yield pyarrow.Table.from_batches([block]).slice(0 if number else 1).rename_columns(wanted)
    except pyarrow.ArrowInvalid as error:
        # The row itself, which Arrow quotes, is private.
        found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
        if found is None:
            raise ValueError("its rows cannot be told apart") from None
        row, expected, fields = map(int, found.groups())
        raise ValueError(f"row {row - 1} has {fields} fields, the header has {expected}") from None


def _narrowed(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """A column of a block as numbers of one byte rather than texts of five, where all of its values are single digits."""
    if column.null_count or not compute.all(compute.equal(compute.binary_length(column), 1)).as_py():
        return column
    return column.cast(pyarrow.uint8()) if compute.all(compute.utf8_is_decimal(column)).as_py() else column


def _joined(names: list[str], blocks: list[dict[str, pyarrow.ChunkedArray]]) -> pyarrow.Table:
    """All blocks: a column of digits where it holds nothing else, else of text."""

    def join(name: str) -> pyarrow.ChunkedArray:
        columns = [block[name] for block in blocks]
        digits = bool(columns) and all(column.type == pyarrow.uint8() for column in columns)
        kind = pyarrow.uint8() if digits else pyarrow.string()
        return pyarrow.chunked_array([chunk for column in columns for chunk in column.cast(kind).chunks], kind)

    return pyarrow.table({name: join(name) for name in names})


def _typed(table: pyarrow.Table, text: Collection[str] | None, narrow: bool, whole: Collection[str]) -> pd.DataFrame:
    """Columns of text as numbers or truth values where all of their values are."""

    def typed(name: str, column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
        if text is None or name in text:
            return column.cast(pyarrow.string())
        if column.type == pyarrow.uint8():
            return column if narrow else column.cast(pyarrow.int64())
        guessed = _guessed(column)
        largest = compute.max(compute.abs(guessed)).as_py() if guessed.type == pyarrow.float64() else None
        rounded = largest is not None and not largest < 2**53  # whole numbers of this size have lost digits
        return column if name in whole and rounded else guessed

    columns = {name: typed(name, column) for name, column in zip(table.column_names, table.columns)}
    return pd.DataFrame({name: column.to_pandas(integer_object_nulls=True) for name, column in columns.items()})


def _guessed(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """int64, uint64 or float64, whichever holds all values first; else bool or text. Arrow alone reads 0x10 as 16."""
    plain = compute.utf8_trim_whitespace(column)

    def cast(kind: Any) -> Any:
        try:
            return plain.cast(kind)
        except pyarrow.ArrowInvalid:
            return None

    numbers = cast(pyarrow.float64())
    if numbers is None:
        truths = cast(pyarrow.bool_())
        return column if truths is None else truths
    for kind in (pyarrow.int64(), pyarrow.uint64()):
        if (whole := cast(kind)) is not None:
            return whole
    return numbers


# -- dialects of csv files: by what is public of a file, its header line -----------------------------------------------


class Dialect(NamedTuple):
    """The dialect of a csv file: delimiter, encoding, and whether its first line says the delimiter, as Excel writes it.

    The encoding "" is UTF-8, but cp1252 of each line that is not UTF-8.
    """

    delimiter: str
    encoding: str
    announced: bool


def shown_dialect(start: bytes, delimiter: str | None, encoding: str | None) -> Dialect:
    """The dialect that the first bytes of a file show, as far as its owner does not say it.

    A byte order mark, or zero bytes, show UTF-16. The delimiter is the one that most names of the header are between: a comma,
    a semicolon, a tab or |. Nothing depends on the records.

    >>> shown_dialect(b"name;born;town, street\\n1;2;3", None, None)
    Dialect(delimiter=';', encoding='', announced=False)
    """
    encoding = encoding or next((name for mark, name in _MARKS if re.match(mark, start, re.DOTALL)), "")
    text = start.decode(encoding or "utf-8-sig", "replace").removeprefix("\ufeff")
    announced = re.match(r"sep=(.)\r?\n", text)
    line = text[announced.end() if announced else 0 :].lstrip("\r\n").split("\n")[0]
    if delimiter is None:
        delimiter = announced[1] if announced else max(",;\t|", key=lambda mark: len(_names(line, mark)))
    return Dialect(delimiter, encoding, announced is not None)


_MARKS = ((rb"\xff\xfe|\xfe\xff", "utf-16"), (rb"[^\0]\0[^\0]\0", "utf-16-le"), (rb"\0[^\0]\0[^\0]", "utf-16-be"))


def _names(text: str, delimiter: str) -> list[str]:
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=False), [])


def recoded(stream: Any, dialect: Dialect) -> Any:
    """The bytes of a text in UTF-8, without a line that says the delimiter."""
    recode, first = _by_line() if dialect.encoding == "" else _decoding(dialect.encoding), dialect.announced

    def change(block: Any) -> bytes:
        nonlocal first
        made = recode(bytes(block))
        if first and made:
            made, first = made[made.index(b"\n") + 1 :], False
        return made

    return pyarrow.TransformInputStream(stream, change)


def _decoding(encoding: str) -> Callable[[bytes], bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()

    def recode(block: bytes) -> bytes:
        try:
            return decoder.decode(block, final=len(block) == 0).encode()
        except UnicodeError:  # it quotes the bytes, which are private
            raise ValueError(f"its text is not in the encoding {encoding!r}: give another one, as cp1252") from None

    return recode


def _by_line() -> Callable[[bytes], bytes]:
    """UTF-8, but cp1252 of each line that is not: one record does not change how others are read."""
    left = b""

    def recode(block: bytes) -> bytes:
        nonlocal left
        text, left = left + block, b""
        if block:
            end = text.rfind(b"\n") + 1
            text, left = text[:end], text[end:]
        return text if _is_utf8(text) else b"\n".join(map(_line, text.split(b"\n")))

    return recode


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _line(line: bytes) -> bytes:
    if _is_utf8(line):
        return line
    return "".join(_CP1252[byte] for byte in line).encode()


_CP1252 = tuple(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))
"""Characters of bytes; five of them are none in cp1252."""


# -- parquet -----------------------------------------------------------------------------------------------------------


def frame_of(table: Any) -> pd.DataFrame:
    """A table or a batch of Arrow as pandas; an error of Python's dates, which quotes the private year, shows none."""
    try:
        return table.to_pandas(ignore_metadata=True, integer_object_nulls=True)
    except (ValueError, OverflowError):
        raise ValueError("a column has a date or a time that cannot be read; it must be of the years 1 to 9999") from None


def _parquet_table(path: str | Path, columns: Sequence[str] | None) -> pd.DataFrame:
    if isinstance(path, InMemory):
        require_columns(path, columns or (), path.types)
        wanted = list(path.types if columns is None else columns)
        if isinstance(path.content, pd.DataFrame):
            return path.content[wanted].copy(deep=False)
        return frame_of(path.content.select(wanted))
    try:
        with parquet.ParquetFile(existing_file(path)) as file:
            schema = file.schema_arrow
            index = (schema.pandas_metadata or {}).get("index_columns", [])
            wanted = [name for name in schema.names if name not in index] if columns is None else list(columns)
            require_columns(path, wanted, schema.names)
            return frame_of(file.read(columns=wanted))
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable(path, "parquet", error) from error


# -- sheets of Excel ---------------------------------------------------------------------------------------------------

_NAMED = re.compile(r"(?P<file>.+\.xls[xm]?)(::(?P<sheet>.+))?", re.IGNORECASE | re.DOTALL)


def is_excel(path: Any) -> bool:
    """Whether this is the name of an Excel file, or of a sheet in one, FILE.xlsx::SHEET.

    >>> is_excel("a.xlsx"), is_excel("a.XLSX::2023"), is_excel("a.csv")
    (True, True, False)
    """
    return not isinstance(path, InMemory) and isinstance(path, str | Path) and _NAMED.fullmatch(str(path)) is not None


def read_excel(path: str | Path) -> InMemory:
    """The table of a sheet, whose first row names the columns: of a file with several sheets FILE.xlsx::SHEET names it.

    Dates are cells whose format shows no time. Rows without any value are left out, and so are columns without a name and a
    value. Formulas have the values that Excel stored.

    Raises:
        ValueError: the file or the sheet is not there, it is no such file or is encrypted, a name is missing or given twice.
    """
    named = _NAMED.fullmatch(str(path))
    assert named is not None
    file = Path(named["file"])
    if not file.is_file():
        raise ValueError(f"path is {str(file)!r}: there is no such file")
    if file.suffix.lower() == ".xls":
        raise ValueError(f"{file} is a file of Excel 97; save it as .xlsx or as csv")
    with extras():
        from openpyxl import load_workbook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they tell of cells, as the errors here may
        try:
            book = load_workbook(file, read_only=True, data_only=True)
        except (BadZipFile, KeyError, ValueError, OSError, TypeError):
            raise ValueError(f"{file} cannot be read as Excel: it is damaged, encrypted, or no .xlsx file") from None
        sheet = _sheet(book, file, named["sheet"])
        try:
            found = [[_value(cell) for cell in row] for row in sheet.iter_rows()]
        except (KeyError, ValueError, TypeError, OverflowError):
            raise ValueError(f"{file} has a cell that cannot be read") from None
        finally:
            book.close()
    return _table(str(path), found)


def _sheet(book: Any, file: Path, name: str | None) -> Any:
    """The sheet of this name, None: the only one."""
    sheets = [sheet.title for sheet in book.worksheets]
    chosen = name or (sheets[0] if len(sheets) == 1 else None)
    if chosen not in sheets:
        raise ValueError(f"{file} has the sheets {', '.join(sheets)}; name one of them, as {file}::{sheets[0]}")
    return book[chosen]


def _value(cell: Any) -> Any:
    value = cell.value
    if isinstance(value, datetime.datetime) and not re.search("[hs]", re.sub(r"\[[^]]*\]|\"[^\"]*\"", "", cell.number_format)):
        return value.date()
    return None if value == "" else value


def _table(name: str, found: list[list[Any]]) -> InMemory:
    filled = [row for row in found if any(value is not None for value in row)]
    if not filled:
        raise ValueError(f"{name} is empty: its sheet has no row")
    width, values = max(map(len, filled)), dict[str, pd.Series]()
    rows = [[*row, *[None] * (width - len(row))] for row in filled]
    for i, (column, *cells) in enumerate(zip(*rows)):
        if column is None:
            if cells.count(None) < len(cells):
                raise ValueError(f"{name} has no name in column {i + 1} of its first row; write one")
            continue
        if str(column) in values:
            count = [*map(str, rows[0])].count(str(column))
            raise ValueError(f"{name} has {count} columns called {str(column)!r}: their names must differ")
        values[str(column)] = pd.Series(cells, dtype=object)
    made = in_memory(pd.DataFrame(values))
    return InMemory(name, made.content, made.form, types=made.types, own_types=made.own_types)
