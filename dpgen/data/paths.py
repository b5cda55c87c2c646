"""Where tables lie: files by their name and form, and how the text of a csv file is written."""

import codecs
import csv
import glob
import os
import zlib
from pathlib import Path
from typing import Literal

from dpgen.containers import InMemory

FileForm = Literal["csv", "parquet", "npy"]

UNREADABLE = (ValueError, OSError, EOFError, zlib.error, csv.Error)
"""Exceptions of readers at files that are cut, damaged or of another form."""

ENCODINGS = ("utf-8", "cp1252", "latin-1", "utf-16")
"""Encodings that a message suggests; all of Python's are taken."""


class CsvPath(str):
    """The path of a csv file whose fields are apart by another character than its ending says, or that is not UTF-8."""

    dialect: tuple[str | None, str | None]


def csv_path(path: str, delimiter: str | None = None, encoding: str | None = None) -> str:
    """The path, with what its owner says of the text of the file; the path itself where nothing is said.

    Arguments:
        path: of a csv file, where something is said.
        delimiter: the one character between two fields, or "tab"; without it a comma, or of a .tsv file a tab.
        encoding: of the text, by its name in Python; without it UTF-8.

    Raises:
        ValueError: a delimiter of several characters, an unknown encoding, or a file that is no csv.
    """
    if delimiter is None and encoding is None:
        return path
    delimiter = "\t" if delimiter in ("tab", "\\t") else delimiter
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0'):
        raise ValueError(f"delimiter is {delimiter!r}: it must be one character such as , ; | or tab, and no quote")
    try:
        known = encoding is None or codecs.lookup(encoding)._is_text_encoding
    except LookupError:
        known = False
    if not known:
        raise ValueError(f"encoding is {encoding!r}: it must be a text encoding such as {', '.join(ENCODINGS)}")
    option = f"delimiter is {delimiter!r}" if encoding is None else f"encoding is {encoding!r}"
    if isinstance(path, InMemory) or is_source(path) or form_of(path) != "csv":
        raise ValueError(f"{option}: it must be left out, for {path} is no csv file")
    described = CsvPath(path)
    described.dialect = (delimiter, encoding)
    return described


def same_dialect(path: str, other: str) -> str:
    """The path of a file that is written as another one."""
    return csv_path(path, *other.dialect) if isinstance(other, CsvPath) else path


def dialect_of(path: str | Path) -> tuple[str, str]:
    """Delimiter and encoding of a csv file: what its owner says, else by its ending, and UTF-8.

    >>> dialect_of("visits.tsv.gz"), dialect_of("visits.csv")
    (('\\t', 'utf-8'), (',', 'utf-8'))
    """
    delimiter, encoding = path.dialect if isinstance(path, CsvPath) else (None, None)
    return delimiter or ("\t" if ".tsv" in Path(path).suffixes else ","), encoding or "utf-8"


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
    if path.is_dir():
        raise ValueError(f"{option} is {str(path)!r}: it is a folder, and must be a file")
    if not path.is_file():
        raise ValueError(f"{option} is {str(path)!r}: there is no such file")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    return path


def name_of(path: str | Path) -> str:
    """Name of the data in a file: that of the file up to the first dot.

    Example:
        >>> name_of("logs/clicks.csv.gz")
        'clicks'
    """
    return Path(path).name.split(".")[0]


def one_line(error: BaseException) -> str:
    """Message of an error on one line of at most 200 characters."""
    return " ".join(str(error).split())[:200]


def unreadable(path: str | Path, form: str, error: BaseException) -> ValueError:
    """The error of a file that is not of its form."""
    if isinstance(error, UnicodeDecodeError):
        return ValueError(f"{path} cannot be read as {form}: its text is not UTF-8: give its encoding")
    return ValueError(f"{path} cannot be read as {form}: {one_line(error)}")


def form_of(path: str | Path) -> FileForm:
    """Form of a file, by its ending and its first bytes.

    Raises:
        ValueError: the file is missing or empty.
    """
    if isinstance(path, InMemory):
        return "parquet" if path.like == "parquet" else "npy"
    with existing_file(path).open("rb") as file:
        start = file.read(6)
    ending = Path(path).suffix
    if ending == ".parquet" or start[:4] == b"PAR1":
        return "parquet"
    return "npy" if ending in (".npy", ".npz") or start == b"\x93NUMPY" else "csv"


def is_source(path: str | Path) -> bool:
    """Whether an engine reads what has this name: a DuckDB file, or several files by a glob.

    >>> is_source("w.duckdb"), is_source("visits/*.parquet"), is_source("visits.csv")
    (True, True, False)
    """
    return Path(path).suffix in (".duckdb", ".ddb") or (not Path(path).exists() and glob.has_magic(str(path)))
