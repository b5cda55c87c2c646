"""Loaders of binary records, grey values and sets that stay in an engine, and are added up where they are read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import pyarrow.compute
import torch
from torch import Tensor

from dpgen.containers import Form
from dpgen.data.batches import ROWS, EngineBatches, frames, whole_groups
from dpgen.data.engines import CHANGED, EngineTable, open_table
from dpgen.data.records import WHITE, Records, class_labels, pixels, require_grey, require_threshold, split_records, white_of
from dpgen.data.sets import public_items
from dpgen.data.split import Split
from dpgen.data.table_files import Missing, require_columns
from dpgen.data.units import People
from dpgen.facts import Fact, Said

Values = tuple[Tensor, Tensor | None]
"""uint8 (b, d) and labels (b,)."""

_CELLS = 2**21
"""Values of a batch, at most."""


@dataclass(frozen=True, eq=False, repr=False)
class StreamedRecords:
    """Records that stay in an engine; see `dpgen.data.Records` for what is not said here.

    Arguments:
        name: what the data are called in reports.
        rows: PRIVATE, batches of `Values`: bits, or grey values where there is a threshold.
        n: private number of records.
        d: features of a record.
        grey_threshold: values above it are ones; None: records are bits.
    """

    name: str
    rows: EngineBatches
    n: int
    d: int
    n_classes: int = 0
    class_names: tuple[str, ...] | None = None
    image_shape: tuple[int, int] | None = None
    columns: list[str] | None = None
    grey_threshold: int | None = None
    facts: tuple[Fact | Said, ...] = ()
    form: Form | None = None

    def __repr__(self) -> str:
        return f"StreamedRecords({self.name!r}: {self.n} private records of {self.d} features)"

    def stream(self, *, labelled: bool = False, grey: bool = False) -> EngineBatches:
        """Batches of x (b, d) float32 in [0, 1] and labels (b,) or None, PRIVATE.

        Arguments:
            labelled: whether records come with their labels.
            grey: whether x are grey values; else bits.
        """
        return self.rows.each(partial(_between, labelled=labelled, grey=grey, threshold=self.grey_threshold))

    @property
    def n_test(self) -> int:
        """Number of test records: there are none."""
        return 0

    def some(self, most: int, seed: int = 0) -> Records:
        """About so many of the records at most, in memory, PRIVATE."""
        batches = self.rows.some(min(1.0, most / max(1, self.n)), seed)
        values = torch.cat([torch.empty(0, self.d, dtype=torch.uint8), *(x for x, _ in batches)])
        labels = torch.cat([torch.empty(0, dtype=torch.int64), *(own for _, own in batches if own is not None)])
        return split_records(
            self.name,
            values,
            split=Split(0.0),
            labels=labels if self.n_classes else None,
            n_classes=self.n_classes,
            image_shape=self.image_shape,
            columns=self.columns,
            class_names=self.class_names,
            grey_threshold=self.grey_threshold,
        )


def _between(values: Values, *, labelled: bool, grey: bool, threshold: int | None) -> Values:
    x, labels = values
    if threshold is not None and not grey:
        x = x > threshold
    return x.to(torch.float32) / (WHITE if grey else 1.0), labels if labelled else None


def load_sql_records(
    *,
    source: str,
    table: str | None = None,
    label_column: str | None = None,
    image_shape: tuple[int, int] | None = None,
    grey_threshold: int | None = None,
    width: int | None = None,
    missing: Missing = "error",
    people: People | None = None,
) -> StreamedRecords:
    """0/1 columns, or grey values, of a table in DuckDB, in parquet or csv files larger than memory, or in Spark.

    All columns but `label_column` are features, or a single one that holds a list or bytes for each record. They are read
    several times, in batches. No records are held out for evaluation.

    Arguments:
        source: a DuckDB file, or parquet or csv files, as in "scans/*.parquet".
        table: of the DuckDB file; it may be left out where there is one.
        label_column: column with the class of each record; the classes are sorted.
        image_shape: (height, width) when the features are the pixels of an image, row by row.
        grey_threshold: features are grey values, whole numbers from 0 to 255, or from 0 to 1 where their type is floating
            point; those above this number of 255 are ones for systems that work on bits. None: they are bits.
        width: public length of lists, unless image_shape says it.
        missing: "error", or "drop" records with a missing value.

    Raises:
        ValueError: no such source, table or column, or a value that is missing, or no bit or grey value.
    """
    if missing not in ("error", "drop"):
        raise ValueError(f"missing is {missing!r}; it must be error or drop for records in an engine")
    if grey_threshold is not None:
        require_threshold(grey_threshold)
    opened = open_table(source, table, text=[] if people is None else [people.column])
    own = [name for name in (label_column, None if people is None else people.column) if name is not None]
    require_columns(opened.name, own, opened.schema.names)
    rows = opened.complete() if missing == "drop" else opened
    features = [name for name in rows.schema.names if name not in own]
    if not features:
        raise ValueError(f"{opened.name} has no columns but {', '.join(own)}: at least one must be a feature")
    label = None if label_column is None else _Label.of(rows, label_column)
    lists = features[0] if len(features) == 1 and _holds_lists(rows.schema.field(features[0]).type) else None
    form = None if lists else _form(opened, label, people)
    white = None if grey_threshold is None else _white(rows.schema.field(lists).type) if form is None else white_of(form)
    reader = _Columns(
        opened.name, len(features) if lists is None else _width(lists, image_shape, width), lists, label, white, people
    )
    return _streamed(
        rows,
        reader,
        by=None if people is None else people.column,
        label=label,
        image_shape=image_shape,
        columns=features if lists is None else None,
        grey_threshold=grey_threshold,
        form=form if form is None or white is None else replace(form, white=white),
    )


def load_sql_sets(
    *,
    source: str,
    table: str | None = None,
    set_column: str = "user",
    item_column: str = "item",
    items_path: str | None = None,
    items: list[str] | None = None,
) -> StreamedRecords:
    """Sets in a table of one row for each set and item, in DuckDB, in parquet or csv files, or in Spark.

    A record is a set, as bits of the public items; other items are left out, and a row without an item says that there is a
    set. The engine sorts the table by set.

    Arguments:
        source: a DuckDB file, or parquet or csv files, as in "baskets/*.parquet".
        table: of the DuckDB file; it may be left out where there is one.
        set_column: column that names the set of a row.
        item_column: column of the item, read as text.
        items_path: file of item ids, separated by blanks or lines, that are public.
        items: these ids themselves.

    Raises:
        ValueError: no such source, table or column, no items, or a row without a set.
    """
    known = public_items(items_path=items_path, items=items)
    opened = open_table(source, table, text=[set_column, item_column], missing=[""])
    reader = _Sets(opened.name, set_column, item_column, pd.Index(known, dtype=object))
    form = Form(container="sets", names=tuple(known), types=("str",))
    return _streamed(opened.columns([set_column, item_column]), reader, by=set_column, columns=known, form=form)


def _streamed(
    table: EngineTable,
    reader: "_Columns | _Sets",
    *,
    by: str | None,
    label: "_Label | None" = None,
    **public: Any,
) -> StreamedRecords:
    """The records that a reader makes, all of them checked."""
    size = max(1, min(ROWS, _CELLS // reader.d))
    batches = EngineBatches(table, reader, by=by, size=size, count=table.count())
    n, above = batches.totals(_numbers).tolist()
    if not n:
        raise ValueError(f"{table.name} is empty: it has {len(table.schema)} columns and no record")
    require_grey(table.name, bits=reader.white == WHITE and not above)
    facts: tuple[Fact | Said, ...] = (Fact.PUBLIC_NAMES,)
    if label is not None:
        facts += (Fact.READ_CLASSES(k=len(label.names)),)
    return StreamedRecords(
        name=table.name,
        rows=batches,
        n=n,
        d=reader.d,
        n_classes=0 if label is None else len(label.names),
        class_names=None if label is None else label.names,
        facts=(*facts, *table.facts, Split(0.0).fact()),
        **public,
    )


def _numbers(batches: Iterable[Values]) -> Tensor:
    """The number of records and that of values above 1, (2,) int64."""
    total = torch.zeros(2, dtype=torch.int64)
    for x, _ in batches:
        total += torch.tensor([len(x), int((x > 1).sum())])
    return total


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Label:
    """The column of classes: its values in order."""

    column: str
    values: "pd.Index[Any]"
    names: tuple[str, ...]

    @classmethod
    def of(cls, table: EngineTable, column: str) -> "_Label":
        found = table.columns([column]).grouped([column]).fetch("classes")[column].to_pandas().dropna()
        names = class_labels(found.rename(column))[1]
        return cls(column, pd.Index(found.sort_values()), names)


def _holds_lists(kind: Any) -> bool:
    listed = (pyarrow.types.is_list, pyarrow.types.is_large_list, pyarrow.types.is_fixed_size_list)
    return any(fits(kind) for fits in (*listed, pyarrow.types.is_binary, pyarrow.types.is_large_binary))


def _white(kind: Any) -> int:
    return 1 if hasattr(kind, "value_type") and pyarrow.types.is_floating(kind.value_type) else WHITE


def _width(column: str, image_shape: tuple[int, int] | None, width: int | None) -> int:
    sides = None if image_shape is None else image_shape[0] * image_shape[1]
    found = sides if width is None else width
    if found is None or found < 1 or sides not in (None, found):
        wanted = "the public length of the lists" if sides is None else f"{sides}, the pixels of image_shape"
        raise ValueError(f"width is {width}; column {column!r} holds lists, and it must be {wanted}")
    return found


def _form(table: EngineTable, label: _Label | None, people: People | None) -> Form:
    """The form of samples, by the types of the columns."""
    empty = table.schema.empty_table()
    kept = [name for name in empty.column_names if people is None or name != people.column]
    types = tuple(str(dtype) for dtype in empty.select(kept).to_pandas().dtypes)
    form = Form(container="pandas", names=tuple(kept), types=types)
    return form if label is None else form.of_columns(kept, label=label.column, categories={label.column: label.names})


@dataclass(frozen=True)
class _Columns:
    """Batches of rows as records: features in columns, or in the one of `lists`."""

    name: str
    d: int
    lists: str | None
    label: _Label | None
    white: int | None
    people: People | None

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[Values]:
        tables = frames(batches) if self.lists is None else (self._unfolded(batch, self.lists) for batch in batches)
        if self.people is not None:
            tables = (self.people.bounded(table)[0] for table in whole_groups(tables, self.people.column))
        for table in tables:
            yield self._values(table)

    def _unfolded(self, batch: pyarrow.RecordBatch, column: str) -> pd.DataFrame:
        """The table with the values of a list in columns of their own."""
        found = pd.DataFrame(_matrix(batch[column], self.d, f"{self.name} column {column!r}"), copy=False)
        found.columns = pd.Index([f"{column}[{i}]" for i in range(self.d)])
        others = batch.drop_columns([column])
        return found.assign(**others.to_pandas(integer_object_nulls=True)) if others.num_columns else found

    def _values(self, table: pd.DataFrame) -> Values:
        if self.people is not None:
            table = table.drop(columns=self.people.column, errors="ignore")
        absent = table.isna().any()
        if absent.any():
            raise ValueError(
                f"{self.name} column {absent.idxmax()!r} has rows without a value: fill them, or choose missing=drop"
            )
        labels = None
        if self.label is not None:
            codes = self.label.values.get_indexer(pd.Index(table[self.label.column]))
            if (codes < 0).any():
                raise ValueError(CHANGED.format(self.name))
            labels, table = torch.from_numpy(codes.astype(np.int64)), table.drop(columns=self.label.column)
        return pixels(table, self.name, white=self.white, numbered=False), labels


def _matrix(column: pyarrow.Array, d: int, name: str) -> npt.NDArray[Any]:
    """Lists or bytes (b, d) of numbers."""
    if column.null_count:
        raise ValueError(f"{name} has rows without a value: fill them, or choose missing=drop")
    binary = pyarrow.types.is_binary(column.type) or pyarrow.types.is_large_binary(column.type)
    if not pyarrow.types.is_fixed_size_list(column.type):
        lengths = pyarrow.compute.binary_length(column) if binary else pyarrow.compute.list_value_length(column)
        if pyarrow.compute.any(pyarrow.compute.not_equal(lengths, d)).as_py():
            raise ValueError(f"{name} has a list of another length than {d}: all must have the public length")
    elif column.type.list_size != d:
        raise ValueError(f"{name} has lists of length {column.type.list_size}; width must be that")
    if not binary:
        return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(-1, d)
    offsets = np.frombuffer(column.buffers()[1], np.int64 if pyarrow.types.is_large_binary(column.type) else np.int32)
    start = int(offsets[column.offset]) if len(column) else 0
    data = column.buffers()[2]
    return np.frombuffer(data or b"", np.uint8)[start : start + len(column) * d].reshape(-1, d)


@dataclass(frozen=True)
class _Sets:
    """Batches of rows of a set and an item each, sorted by set, as records of bits."""

    name: str
    whose: str
    item: str
    items: "pd.Index[Any]"
    white: int | None = None

    @property
    def d(self) -> int:
        return len(self.items)

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[Values]:
        for table in whole_groups(frames(batches), self.whose):
            sets = table[self.whose]
            if sets.isna().any():
                raise ValueError(f"{self.name} column {self.whose!r} has rows without a value: every row needs its set")
            record, different = pd.factorize(sets)
            texts = table[self.item].astype(object).map(str, na_action="ignore")
            column = self.items.get_indexer(pd.Index(texts, dtype=object))
            x = torch.zeros(len(different), self.d, dtype=torch.uint8)
            x[torch.from_numpy(record[column >= 0]), torch.from_numpy(column[column >= 0])] = 1
            yield x, None
