"""SDMetrics' quality report of real and synthetic rows, read in as it is: one table, and linked tables.

Columns are numbers, dates or categories as `compare` reads them; keys take no part but by what they link. The package counts
distances of columns (Column Shapes), of pairs of columns, in a table and across (Trends), and of numbers of rows (Cardinality).
Each figure stands beside the same one of held-out real rows. Of tables of more than 50,000 rows it draws some at random itself.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from dpgen.data.kinds import PACKAGE
from dpgen.data.links import Key, linked_package
from dpgen.data.table_files import read_table
from dpgen.evaluation.column import Column
from dpgen.evaluation.scores import HELD_OUT, Score
from dpgen.extras import extras

Frames = dict[str, pd.DataFrame]


def report_class(kind: Literal["single_table", "multi_table"]) -> Any:
    """SDMetrics' class of quality reports.

    Raises:
        ValueError: it is not installed.
    """
    with extras():
        return import_module(f"sdmetrics.reports.{kind}").QualityReport


def of_table(report: Any, columns: Mapping[str, Column]) -> Iterator[Score]:
    """Figures of the single-table report, of columns that do not name rows."""
    columns = {name: column for name, column in columns.items() if not column.names_rows}
    if columns:
        yield from _scores(report, {part: _frame(columns, part) for part in _PARTS}, {"columns": _types(columns)})


def of_tables(
    report: Any,
    real: Path,
    synthetic: Path,
    holdout: Path | None,
    *,
    seed: int,
) -> Iterator[Score]:
    """Figures of the multi-table report, of two Data Packages with the same tables.

    Without the package `holdout` a part of the people stands for others.
    """
    package = linked_package(real)
    person, links = package.person, package.keys.private
    keys = {name: [*_keys(name, links)] for name in package.private}
    parts = {"own": _read(real, keys), "made": _read(synthetic, keys)}
    if holdout is not None:
        parts["held"] = _read(holdout, keys)
    else:
        parts["held"], parts["own"] = _split(parts["own"], package.private[0], links, person, seed)
    tables: dict[str, Any] = {}
    shown: dict[str, Frames] = {part: {} for part in _PARTS}
    for name in parts["own"]:
        read = _columns({part: parts[part][name] for part in _PARTS}, keys[name])
        tables[name] = {"columns": _types(read) | {key: {"sdtype": "id"} for key in keys[name]}}
        for part in _PARTS:
            shown[part][name] = pd.concat([parts[part][name][keys[name]], _frame(read, part)], axis=1)
    for link in links:
        tables[link.above]["primary_key"] = link.other
    words = ("parent_table_name", "parent_primary_key", "child_table_name", "child_foreign_key")
    related = [dict(zip(words, (link.above, link.other, link.table, link.column))) for link in links]
    yield from _scores(report, shown, {"tables": tables, "relationships": related})


def _columns(tables: Frames, keys: Sequence[str]) -> dict[str, Column]:
    """Columns of a table that all of its parts have, but for keys and those that name rows."""
    own = [field for field in tables["own"] if field not in keys and all(field in table for table in tables.values())]
    read = {field: Column.of({part: table[field] for part, table in tables.items()}) for field in own}
    return {field: found for field, found in read.items() if not found.names_rows}


_PARTS = ("own", "held", "made")


def _types(columns: Mapping[str, Column]) -> dict[str, dict[str, str]]:
    kinds = {
        name: "datetime" if column.dates else "numerical" if column.numeric else "categorical"
        for name, column in columns.items()
    }
    return {name: {"sdtype": kind} for name, kind in kinds.items()}


def _frame(columns: Mapping[str, Column], part: str) -> pd.DataFrame:
    return pd.DataFrame({name: _series(column, part) for name, column in columns.items()})


def _series(column: Column, part: str) -> pd.Series:
    """Values of a part as numbers, dates, or the numbers of categories as texts."""
    if column.known.numbers is None:
        codes = pd.Series(column.same[part])
        return codes.astype(str).astype(object).where(codes >= 0, None)
    numbers = pd.Series(column.known.numbers[part].astype(np.float64))
    return pd.to_datetime(numbers.round(), unit="s") if column.dates else numbers


def _scores(report: Any, parts: Mapping[str, Any], metadata: dict[str, Any]) -> Iterator[Score]:
    found: dict[str, dict[str, float]] = {}
    for part in ("made", "held"):
        one = report()
        with warnings.catch_warnings():  # on columns of one value, in words of its own
            warnings.simplefilter("ignore")
            one.generate(_copied(parts["own"]), _copied(parts[part]), metadata, verbose=False)
            each = one.get_properties()
        found[part] = {"overall": one.get_score(), **dict(zip(each["Property"], each["Score"]))}
    for name, value in found["made"].items():
        if math.isfinite(value):  # what it cannot compute it leaves out of the overall score, too
            real = found["held"][name]
            yield Score(f"SDMetrics quality report: {name}", float(value), real=float(real) if math.isfinite(real) else None)


def _copied(tables: Any) -> Any:
    """Copies that the report may change."""
    return tables.copy() if isinstance(tables, pd.DataFrame) else {name: frame.copy() for name, frame in tables.items()}


def _keys(name: str, links: Collection[Key]) -> dict[str, None]:
    """Columns of a table that link it, each once."""
    return dict.fromkeys(
        column for link in links for table, column in ((link.above, link.other), (link.table, link.column)) if table == name
    )


def _read(package: Path, keys: Mapping[str, list[str]]) -> Frames:
    """Tables of a package, their keys as texts."""
    files = linked_package(package / PACKAGE if package.is_dir() else package).files
    return {name: read_table(files[name], text=own).astype(dict.fromkeys(own, object)) for name, own in keys.items()}


def _split(tables: Frames, root: str, links: Collection[Key], person: str, seed: int) -> tuple[Frames, Frames]:
    """Tables of a random part of the people, and those of all others."""
    people = tables[root][person].to_numpy()
    held = np.random.default_rng(seed).permutation(len(people)) < max(1, round(HELD_OUT * len(people)))
    one, two = (_of_people(tables, root, links, person, people[some]) for some in (held, ~held))
    return one, two


def _of_people(tables: Frames, root: str, links: Collection[Key], person: str, people: Any) -> Frames:
    """Rows of some of the people, in all tables."""
    kept, left = {root: tables[root][tables[root][person].isin(people)]}, list(links)
    while left:
        link = next(link for link in left if link.above in kept)
        left.remove(link)
        rows = tables[link.table]
        kept[link.table] = rows[rows[link.column].isin(kept[link.above][link.other])]
    return {name: kept[name].reset_index(drop=True) for name in tables}
