"""Sheets of Excel files as tables in memory: each cell as it is, whatever other cells of its column hold."""

import datetime
import re
import warnings
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pandas as pd

from dpgen.containers import InMemory, in_memory
from dpgen.extras import extras

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
        sheets = [sheet.title for sheet in book.worksheets]
        chosen = named["sheet"] or (sheets[0] if len(sheets) == 1 else None)
        if chosen not in sheets:
            raise ValueError(f"{file} has the sheets {', '.join(sheets)}; name one of them, as {file}::{sheets[0]}")
        try:
            found = [[_value(cell) for cell in row] for row in book[chosen].iter_rows()]
        except (KeyError, ValueError, TypeError, OverflowError):
            raise ValueError(f"{file} has a cell that cannot be read") from None
        finally:
            book.close()
    return _table(str(path), found)


def _value(cell: Any) -> Any:
    value = cell.value
    if isinstance(value, datetime.datetime) and not re.search("[hs]", re.sub(r"\[[^]]*\]|\"[^\"]*\"", "", cell.number_format)):
        return value.date()
    return None if value == "" else value


def _table(name: str, found: list[list[Any]]) -> InMemory:
    rows = [row for row in found if any(value is not None for value in row)]
    if not rows:
        raise ValueError(f"{name} is empty: its sheet has no row")
    names, width = rows[0], max(map(len, rows))
    names = names + [None] * (width - len(names))
    rows = [row + [None] * (width - len(row)) for row in rows[1:]]
    values = dict[str, pd.Series]()
    for i, column in enumerate(names):
        cells = pd.Series([row[i] for row in rows], dtype=object)
        if column is None and not cells.notna().any():
            continue
        if column is None:
            raise ValueError(f"{name} has no name in column {i + 1} of its first row; write one")
        if str(column) in values:
            count = [str(other) for other in names].count(str(column))
            raise ValueError(f"{name} has {count} columns called {str(column)!r}: their names must differ")
        values[str(column)] = cells
    made = in_memory(pd.DataFrame(values))
    return InMemory(name, made.content, made.form, types=made.types, own_types=made.own_types)
