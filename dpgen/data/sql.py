"""Loaders of columns and of events that stay in an engine: columns as positions, events as counts of users."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import torch
from torch import Tensor

from dpgen.containers import Form
from dpgen.data.batches import EngineBatches, frames, whole_groups
from dpgen.data.columns import Bound, ColumnReader, Columns, OutOfRange, column_facts, column_readers
from dpgen.data.engines import EngineTable, open_table
from dpgen.data.events import EventColumns, Known, PriorName, named_events, users_from_events
from dpgen.data.split import Split
from dpgen.data.table_files import MISSING_CATEGORY, Missing, column_names, settled
from dpgen.data.units import People
from dpgen.data.users import Users

# -- columns -----------------------------------------------------------------------------------------------------------


def load_sql_columns(
    *,
    source: str,
    table: str | None = None,
    columns: list[str] | str = "x",
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    categories: list[str] | None = None,
    out_of_range: OutOfRange = "refuse",
    missing: Missing = "error",
    people: People | None = None,
) -> Columns:
    """Columns of a table in DuckDB, of parquet or csv files larger than memory, or in Spark.

    The table is read once. What is kept are positions on the grids: of DuckDB in a temporary file, of Spark on its executors.

    Arguments:
        source: a DuckDB file, or parquet or csv files, as in "visits/*.parquet".
        table: of the DuckDB file; it may be left out where there is one.
        columns: names of the columns to use, a list or "x,y".
        low: public lower bound, a number or an ISO date; or one for each column.
        high: public upper bound, likewise.
        resolution: public step of the grid, for dates in seconds; without it numbers must be whole.
        categories: all names in their order, for categorical columns; bounds are not used then.
        out_of_range: "refuse" values outside the bounds, or "clamp" them and release their noisy number.
        missing: "error", or "drop" records with a missing value, or let it be a "category" behind the others.

    Raises:
        ValueError: no such source, table or column, a value that is missing, not on the grid or outside the bounds, bad bounds,
            or a table that changed while it was read.
    """
    if missing == "category" and categories is not None and MISSING_CATEGORY not in categories:
        categories = [*categories, MISSING_CATEGORY]
    names = column_names(columns)
    readers = column_readers(names, low=low, high=high, resolution=resolution, categories=categories, out_of_range=out_of_range)
    whose = [] if people is None else [people.column]
    if set(whose) & set(names):
        raise ValueError(f"unit is {whose[0]!r}: it must be none of the columns {', '.join(names)}")
    opened = open_table(source, table, text=whose)
    rows = opened.columns([*names, *whose])
    read = _Coder(opened.name, tuple(readers), missing, people, categorical=categories is not None)
    codes = EngineBatches(rows, read, by=None if people is None else people.column).kept(
        len(names) * read.parts, max(reader.domain.size for reader in readers)
    )
    if not len(codes):
        raise ValueError(f"{opened.name} is empty: it has {len(opened.schema)} columns and no record")
    clamped = dict(zip(names, codes.totals(partial(_moved, columns=len(names))).tolist())) if read.parts == 2 else None
    named = {} if categories is None else dict.fromkeys(names, tuple(categories))
    types = tuple(_pandas_type(rows.schema.field(name).type) for name in names)
    form = Form(container="pandas", names=tuple(names), types=types)
    return Columns(
        name=opened.name,
        values={reader.name: codes.ranks(i * read.parts, reader.domain.size) for i, reader in enumerate(readers)},
        domains={reader.name: reader.domain for reader in readers},
        clamped=clamped,
        facts=(*column_facts(out_of_range == "clamp"), *opened.kept_facts, Split(0.0).fact("rows")),
        form=form.of_columns(names, categories=named),
    )


def _pandas_type(kind: Any) -> str:
    numeric = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)
    return str(np.dtype(kind.to_pandas_dtype())) if numeric else ""


def _moved(batches: Iterable[npt.NDArray[Any]], columns: int) -> Tensor:
    """How many values of each column were moved to its bounds."""
    total = torch.zeros(columns, dtype=torch.int64)
    for batch in batches:
        total += torch.from_numpy(batch[:, 1::2].astype(np.int64).sum(0))
    return total


@dataclass(frozen=True)
class _Coder:
    """Batches of rows as positions on the grids, and, where values may be clamped, whether each of them was."""

    name: str
    readers: tuple[ColumnReader, ...]
    missing: Missing
    people: People | None
    categorical: bool

    @property
    def parts(self) -> int:
        """Codes of a value."""
        return 2 if self.readers[0].out_of_range == "clamp" else 1

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[npt.NDArray[Any]]:
        names = [reader.name for reader in self.readers]
        tables = frames(batches) if self.people is None else whole_groups(frames(batches), self.people.column)
        for table in tables:
            kept = settled(table, self.missing, self.name, categorical=names if self.categorical else (), numbered=False)
            found = [reader.coded(kept[reader.name].to_numpy(), self.name) for reader in self.readers]
            codes = np.stack([part for pair in found for part in pair[: self.parts]], axis=1)
            if self.people is None:
                yield codes
                continue
            contents = pd.DataFrame(codes).assign(**{self.people.column: kept[self.people.column]})
            yield self.people.bounded(contents)[0].to_numpy()


# -- events ------------------------------------------------------------------------------------------------------------


def load_sql_events(
    *,
    source: str,
    table: str | None = None,
    user: str = "user",
    category: str = "category",
    weight: str | None = None,
    group: str | None = None,
    only_group: str | None = None,
    categories_path: str | None = None,
    prior: PriorName | None = None,
    prior_path: str | None = None,
    public_path: str | None = None,
    missing: Missing = "error",
) -> Users:
    """Users from a table of events in DuckDB, in parquet or csv files, or in Spark, which the engine adds up.

    One row for each pair of user and category leaves the engine. Categories and prior are as for events of a file.

    Arguments:
        source: a DuckDB file, or parquet or csv files, as in "clicks/*.parquet".
        table: of the DuckDB file; it may be left out where there is one.
        user: column of the user's id, read as text.
        category: column of the category.
        weight: column of how much an event counts, whole numbers >= 0; 1 each without.
        group: column of the user's public group.
        only_group: keep the users of this group.
        categories_path: file of public category names, one a line.
        prior: uniform, file, public or private; without it, the path that is given decides.
        prior_path: file of probabilities.
        public_path: table of public users, a file.
        missing: "error", or "drop" events with a missing value, or let it be a "category", of categories and groups.

    Raises:
        ValueError: no such source, table or column, a category is unknown, or the options contradict each other.
    """
    columns = EventColumns(user, category, weight, group)
    known = Known.of(
        columns,
        private_path=source,
        only_group=only_group,
        categories_path=categories_path,
        prior=prior,
        prior_path=prior_path,
        public_path=public_path,
        missing=missing,
    )
    opened = open_table(source, table, text=[name for name in columns.wanted if name != columns.weight], missing=[""])
    events = named_events(_event_sums(opened, columns, missing), replace(columns, weight=_SUM), missing, source=opened.name)
    users = users_from_events(opened.name, events, known, source=opened.name)
    return users if only_group is None else users.of_group(only_group)


_SUM = "sum of weights"


def _event_sums(table: EngineTable, columns: EventColumns, missing: Missing) -> pd.DataFrame:
    """Sums of weights by user, category and group; whole numbers, so that no order of rows moves them.

    Raises:
        ValueError: the weights are no whole numbers, or one of them is negative or missing.
    """
    rows = table.columns(columns.wanted)
    names = [name for name in columns.wanted if name != columns.weight]
    weight = "1" if columns.weight is None else rows.quoted(columns.weight)
    if columns.weight is not None and not pyarrow.types.is_integer(kind := rows.schema.field(columns.weight).type):
        raise ValueError(f"{table.name} column {columns.weight!r} is {kind}; an engine adds up whole numbers only")
    if missing == "drop":
        rows = rows.filtered(f"{weight} is not null")
    sums = {_SUM: f"cast(sum({weight}) as bigint)", "least": f"min({weight})", "absent": f"count(*) - count({weight})"}
    found = rows.grouped(names, **sums).fetch("sums of users").to_pandas(integer_object_nulls=True)
    if len(found) and (found["absent"].sum() or found["least"].min() < 0):
        raise ValueError(f"{table.name} column {columns.weight!r} has a value that is missing or negative: it must be >= 0")
    return found[[*names, _SUM]]
