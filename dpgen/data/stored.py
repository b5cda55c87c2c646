"""0/1 records and grey values that stay in DuckDB or Spark: sums are made in passes over batches of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

from dpgen.containers import Form, natural
from dpgen.data.batches import ROWS, EngineBatches, frames, whole_groups
from dpgen.data.engines import CHANGED, EngineTable, open_table
from dpgen.data.records import WHITE, Records, class_labels, pixels, require_grey, require_threshold, split_records, white_of
from dpgen.data.split import People, Split
from dpgen.data.table_files import Missing, require_columns
from dpgen.facts import Fact, Said

Values = tuple[Tensor, Tensor | None]
"""uint8 (b, d) and labels (b,)."""

_CELLS = 2**21
"""Values of a batch, at most."""
_LISTS = ("list", "large_list", "fixed_size_list", "binary", "large_binary")


@dataclass(frozen=True, eq=False, repr=False)
class StreamedRecords:
    """Records that stay in an engine; see `dpgen.data.Records` for what is not said here.

    `rows`, PRIVATE, are batches of `Values`: bits, or grey values of which those above `grey_threshold` are ones.
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
        """Batches of x (b, d) float32 in [0, 1], bits or `grey` values, and labels (b,) if `labelled`, PRIVATE."""
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


def load_streamed(
    *,
    path: str,
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
        path: FILE.duckdb::TABLE, or parquet or csv files, as in "scans/*.parquet".
        label_column: column with the class of each record; the classes are sorted.
        image_shape: (height, width) when the features are the pixels of an image, row by row.
        grey_threshold: features are grey values, whole numbers from 0 to 255, or from 0 to 1 where their type is floating
            point; those above this number of 255 are ones for systems that work on bits. None: they are bits.
        width: public length of lists, unless image_shape says it.
        missing: "error", or "drop" records with a missing value.
    """
    _require_options(missing, grey_threshold)
    by = None if people is None else people.column
    opened = open_table(path, text=[] if by is None else [by])
    own = [name for name in (label_column, by) if name is not None]
    require_columns(opened.name, own, opened.schema.names)
    rows = opened.complete() if missing == "drop" else opened
    label = None if label_column is None else _Label.of(rows, label_column)
    features = _Features.of(rows, own, grey_threshold)
    form = features.form(opened, [name for name in opened.schema.names if name != by], label)
    d = features.width(image_shape, width)
    reader = _Columns(opened.name, d, features.lists, label, features.white, people)
    batches = EngineBatches(rows, reader, by=by, size=max(1, min(ROWS, _CELLS // d)), count=rows.count())
    n, above = batches.totals(_numbers).tolist()
    if not n:
        raise ValueError(f"{opened.name} is empty: it has {len(rows.schema)} columns and no record")
    require_grey(opened.name, bits=features.white == WHITE and not above)
    classes = () if label is None else label.names
    classes_read = (Fact.READ_CLASSES(k=len(classes)),) if label is not None else ()
    return StreamedRecords(
        name=opened.name,
        rows=batches,
        n=n,
        d=d,
        n_classes=len(classes),
        class_names=classes or None,
        image_shape=image_shape,
        columns=features.names,
        grey_threshold=grey_threshold,
        facts=(Fact.PUBLIC_NAMES, *classes_read, *rows.facts, Split(0.0).fact()),
        form=form,
    )


def _require_options(missing: Missing, grey_threshold: int | None) -> None:
    """Refuse what records in an engine cannot have."""
    if missing not in ("error", "drop"):
        raise ValueError(f"missing is {missing!r}; it must be error or drop for records in an engine")
    if grey_threshold is not None:
        require_threshold(grey_threshold)


@dataclass(frozen=True)
class _Features:
    """Features in columns of these names, or in the one of `lists`; `white` is that of grey values, None: they are bits."""

    names: list[str] | None
    lists: str | None
    white: int | None

    @classmethod
    def of(cls, rows: EngineTable, own: Sequence[str], grey_threshold: int | None) -> _Features:
        """The features of a table, whose `own` columns are none."""
        names = [name for name in rows.schema.names if name not in own]
        if not names:
            raise ValueError(f"{rows.name} has no columns but {', '.join(own)}: at least one must be a feature")
        types, grey = [rows.schema.field(name).type for name in names], grey_threshold is not None
        if len(names) == 1 and str(types[0]).startswith(_LISTS):
            return cls(None, names[0], _white(types[0]) if grey else None)
        return cls(names, None, white_of([*map(str, types)]) if grey else None)

    def width(self, image_shape: tuple[int, int] | None, width: int | None) -> int:
        """The number of features: of lists the public length."""
        if self.names is not None:
            return len(self.names)
        sides = None if image_shape is None else image_shape[0] * image_shape[1]
        found = sides if width is None else width
        if found is None or found < 1 or sides not in (None, found):
            wanted = "the public length of the lists" if sides is None else f"{sides}, the pixels of image_shape"
            raise ValueError(f"width is {width}; column {self.lists!r} holds lists, and it must be {wanted}")
        return found

    def form(self, table: EngineTable, names: list[str], label: _Label | None) -> Form | None:
        """The form of samples of these columns: bits and grey values are whole numbers, classes as they are; None: of lists."""
        if self.lists is not None:
            return None
        form = replace(table.form(names), white=self.white)
        if not table.declared:
            types = ("int64" if label is None or name != label.column else natural(label.names) for name in names)
            form = replace(form, types=tuple(types))
        classes = {} if label is None else {label.column: label.names}
        return form.of_columns(names, label=None if label is None else label.column, categories=classes)


def _numbers(batches: Iterable[Values]) -> Tensor:
    """The number of records and that of values above 1, (2,) int64."""
    total = torch.zeros(2, dtype=torch.int64)
    for x, _ in batches:
        total += torch.tensor([len(x), int((x > 1).sum())])
    return total


@dataclass(frozen=True)
class _Label:
    """The column of classes: its values in order."""

    column: str
    values: pd.Index[Any]
    names: tuple[str, ...]

    @classmethod
    def of(cls, table: EngineTable, column: str) -> _Label:
        found = table.columns([column]).grouped([column]).fetch("classes")[column].to_pandas().dropna()
        names = class_labels(found.rename(column))[1]
        return cls(column, pd.Index(found.sort_values()), names)


def _white(kind: Any) -> int:
    return 1 if hasattr(kind, "value_type") and pyarrow.types.is_floating(kind.value_type) else WHITE


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
        tables: Iterator[pd.DataFrame]
        if self.lists is not None:
            tables = (self._unfolded(batch, self.lists) for batch in batches)
            tables = tables if self.people is None else whole_groups(tables, self.people.column)
        else:
            tables = frames(batches, self.people)
        for table in tables:
            yield self._values(table if self.people is None else self.people.bounded(table)[0])

    def _unfolded(self, batch: pyarrow.RecordBatch, column: str) -> pd.DataFrame:
        """The table with the values of a list in columns of their own."""
        found = pd.DataFrame(_matrix(batch[column], self.d, f"{self.name} column {column!r}"), copy=False)
        found.columns = pd.Index([f"{column}[{i}]" for i in range(self.d)])
        others = batch.drop_columns([column])
        return found.assign(**others.to_pandas(integer_object_nulls=True)) if others.num_columns else found

    def _values(self, table: pd.DataFrame) -> Values:
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
    lengths = pyarrow.compute.binary_length(column) if binary else pyarrow.compute.list_value_length(column)
    if pyarrow.compute.any(pyarrow.compute.not_equal(lengths, d)).as_py():
        raise ValueError(f"{name} has a list of another length than {d}: all must have the public length")
    if binary:
        return np.frombuffer(b"".join(column.to_pylist()), np.uint8).reshape(-1, d)
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(-1, d)
