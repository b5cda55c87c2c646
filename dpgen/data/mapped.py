"""Records that stay on disk: memory-mapped shards of NumPy or Arrow, of which a draw reads its own rows and nothing else.

Memory does not depend on how many there are: values are checked, and sums made, in passes over chunks of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from dpgen.containers import Form
from dpgen.data.paths import unreadable
from dpgen.data.records import PIXEL_THRESHOLD, Records, class_labels, require_labels
from dpgen.data.split import Split
from dpgen.data.table_files import require_columns
from dpgen.facts import Fact, Said
from dpgen.progress import rows_read

_CHUNK = 2**22  # entries that a pass holds at once


class MappedRows:
    """Rows (n, d) of numbers in shards one behind the other, used like a tensor (n, d) where rows are drawn by number.

    What a draw costs in memory are its own rows, whatever n is: the system keeps pages of the files as long as it has room.
    Values are not looked at before they are drawn; clipping bounds what any of them moves, and a row that is not finite
    moves nothing.

    Arguments:
        shards: arrays (n_i, d) of one dtype, bool, uint8 or floating point, which may be memory-mapped.
        without: column that is left out, as one of labels; the shards then have d + 1.

    Raises:
        ValueError: no shards, or shards of different columns or types.

    >>> rows = MappedRows([np.eye(3, dtype=np.uint8), np.ones((2, 3), np.uint8)])
    >>> rows.shape, rows[torch.tensor([1, 4, 0])].tolist()
    ((5, 3), [[0, 1, 0], [1, 1, 1], [1, 0, 0]])
    """

    def __init__(self, shards: Sequence[npt.NDArray[Any]], *, without: int | None = None) -> None:
        if not shards:
            raise ValueError("shards is []; there must be at least one")
        for i, shard in enumerate(shards):
            if shard.ndim != 2 or shard.shape[1] == 0 or shard.shape[1] != shards[0].shape[1] or shard.dtype != shards[0].dtype:
                raise ValueError(
                    f"shard {i} has {shard.dtype} {shard.shape}; all of them must be {shards[0].dtype} (n, d) of one d >= 1"
                )
        if shards[0].dtype.kind not in "bf" and shards[0].dtype != np.uint8:
            raise ValueError(f"shards have dtype {shards[0].dtype}; it must be bool, uint8 or floating point")
        if without is not None and not 0 <= without < shards[0].shape[1] > 1:
            raise ValueError(f"without is {without}; it must be one of at least 2 columns, and there are {shards[0].shape[1]}")
        self._shards, self._ends, self._without = list(shards), np.cumsum([len(shard) for shard in shards]), without

    @classmethod
    def open(cls, path: str, *, column: str | None = None, option: str = "path") -> MappedRows:
        """Map npy or Arrow files into memory, several by a glob, in the order of their names.

        Arguments:
            path: of arrays (n, d), or of Arrow files as `datasets` and `pyarrow.ipc` write them.
            column: of Arrow files, whose rows are lists of one length; it may be left out where there is one.
            option: that names the path.

        Raises:
            ValueError: no such file, one that is neither, or no such column.
        """
        files = sorted(glob(path, recursive=True))
        if not files:
            raise ValueError(f"{option} is {path!r}: there is no such file")
        if Path(files[0]).suffix in _ARROW:
            return cls([shard for file in files for shard in cls.of_arrow(_arrow_column(file, column))._shards])
        if column is not None:
            raise ValueError(f"column is {column!r}: it must be left out for npy files, whose columns have no names")
        return cls([_mapped(file) for file in files])

    @classmethod
    def of_arrow(cls, column: Any) -> MappedRows:
        """An Arrow column of lists of one length, as `datasets.Dataset` keeps them on disk; nothing is copied.

        Arguments:
            column: chunked array of `fixed_size_list`; of a dataset `dataset.data.column(NAME)`, after `flatten_indices()`
                where rows were selected or shuffled.

        Raises:
            ValueError: another type, or rows that are missing.
        """
        if not str(column.type).startswith("fixed_size_list"):
            raise ValueError(f"column has type {column.type}; it must be lists of one length: List(Value('uint8'), length=d)")
        if column.null_count or any(chunk.flatten().null_count for chunk in column.chunks):
            raise ValueError("column has missing rows or values; there must be none")
        width = column.type.list_size
        return cls([chunk.flatten().to_numpy(zero_copy_only=True).reshape(-1, width) for chunk in column.chunks])

    def __repr__(self) -> str:
        return f"MappedRows({len(self)} x {self.shape[1]} in {len(self._shards)} shards)"

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), int(self._shards[0].shape[1]) - (self._without is not None)

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> torch.dtype:
        return torch.from_numpy(np.zeros(0, self._shards[0].dtype)).dtype

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Rows (b, d) by their numbers (b,), or from one to another."""
        numbers = np.arange(len(self))[rows] if isinstance(rows, slice) else rows.numpy()
        found = np.empty((len(numbers), self._shards[0].shape[1]), self._shards[0].dtype)
        shard = np.searchsorted(self._ends, numbers, side="right")
        for i in np.unique(shard):
            own = shard == i
            found[own] = self._shards[i][numbers[own] - (self._ends[i] - len(self._shards[i]))]
        return torch.from_numpy(found if self._without is None else np.delete(found, self._without, 1))

    def split(self, size: int) -> Iterator[Tensor]:
        """Chunks of at most `size` rows, in order."""
        for start in range(0, len(self), size):
            yield self[torch.arange(start, min(start + size, len(self)))]

    def choice(self, most: int) -> Tensor:
        """Numbers of at most so many rows, in order: of all of them, or of a choice by public randomness."""
        if len(self) <= most:
            return torch.arange(len(self))
        return torch.from_numpy(np.sort(np.random.default_rng(0).choice(len(self), most, replace=False, shuffle=False)))

    def require_bits(self, name: str) -> None:
        """One pass over all rows.

        Raises:
            ValueError: naming the row and column of the first value that is neither 0 nor 1.
        """
        size = max(1, _CHUNK // self.shape[1])
        for number, part in enumerate(rows_read(self.split(size), len(self), "check")):
            if part.dtype == torch.bool or (part.dtype == torch.uint8 and int(part.max()) <= 1):
                continue
            wrong = ((part != 0) & (part != 1)).nonzero()
            if len(wrong):
                row, column = wrong[0].tolist()
                place = f"row {number * size + row + 1}, column {column}"
                raise ValueError(f"{name} has another value in {place}: only 0 and 1 are supported")

    def fingerprint(self) -> str:
        """Hash of all rows in order."""
        digest = hashlib.sha256(repr((self.shape, self.dtype)).encode())
        for part in self.split(max(1, _CHUNK // self.shape[1])):
            digest.update(part.numpy().data)
        return digest.hexdigest()


# -- files -------------------------------------------------------------------------------------------------------------

_ARROW = (".arrow", ".feather", ".ipc")


def _mapped(file: str) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(Path(file), mmap_mode="r")
    except (OSError, ValueError) as error:
        raise unreadable(file, "npy", error) from error
    return array


def _arrow_table(file: str) -> Any:
    """An Arrow file, in either of the two forms, mapped into memory."""
    import pyarrow

    try:
        mapped = pyarrow.memory_map(file)
        try:
            return pyarrow.ipc.open_file(mapped).read_all()
        except pyarrow.ArrowInvalid:
            mapped.seek(0)
            return pyarrow.ipc.open_stream(mapped).read_all()
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable(file, "arrow", error) from error


def _arrow_column(file: str, name: str | None) -> Any:
    """A column of an Arrow file."""
    table = _arrow_table(file)
    if name is None and len(table.column_names) == 1:
        [name] = table.column_names
    if name is None:
        raise ValueError(f"column is not given: {file} has the columns {', '.join(table.column_names)}")
    require_columns(file, [name], table.column_names)
    return table.column(name)


def _other_column(file: str, label: str) -> str | None:
    """The column beside that of labels, if there is only one."""
    others = [name for name in _arrow_table(file).column_names if name != label]
    return others[0] if len(others) == 1 else None


def _opened(path: str, *, column: str | None, label: str | int | None, option: str) -> tuple[MappedRows, pd.Series[Any] | None]:
    """Rows of files, and the values of their label column."""
    if label is None or not glob(path, recursive=True):
        return MappedRows.open(path, column=column, option=option), None
    files = sorted(glob(path, recursive=True))
    if Path(files[0]).suffix in _ARROW:
        parts = [_arrow_column(file, str(label)).to_pandas() for file in files]
        rows = MappedRows.open(path, column=column or _other_column(files[0], str(label)), option=option)
        return rows, pd.concat(parts, ignore_index=True).rename(label)
    shards = [_mapped(file) for file in files]
    width = shards[0].shape[1] if shards[0].ndim == 2 else 0
    if not str(label).lstrip("-").isdigit() or not -width <= int(label) < width:
        raise ValueError(f"label_column is {label}: it must be in [0, {width - 1}]")
    number = int(label) % width
    rows = MappedRows(shards, without=number)
    return rows, pd.Series(np.concatenate([shard[:, number] for shard in shards]), name=label)


# -- records -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class MappedRecords:
    """Binary records that stay on disk, all of them private, and test records likewise; labels are in memory.

    Arguments:
        name: what the data are called in reports.
        x: private records (n, d).
        test_x: records for evaluation (m, d), if there are any.
        image_shape: (height, width) with height * width = d when the records are images.
        labels: int64 (n,) in [0, number of class names), if there are any; and `test_labels` (m,) where there are test records.
        class_names: of the labels.

    Raises:
        ValueError: test records, images or labels of another length.

    >>> MappedRecords("tiny", MappedRows([np.eye(4, dtype=np.uint8)]), image_shape=(2, 2))
    MappedRecords('tiny': 4 private and 0 test records of 4 bits on disk)
    """

    name: str
    x: MappedRows
    test_x: MappedRows | None = None
    image_shape: tuple[int, int] | None = None
    labels: Tensor | None = None
    test_labels: Tensor | None = None
    class_names: tuple[str, ...] | None = None
    facts: tuple[Fact | Said, ...] = ()

    public_x = columns = grey = people = None
    grey_threshold = PIXEL_THRESHOLD
    form = Form(container="numpy", types=("uint8",))

    def __post_init__(self) -> None:
        if self.test_x is not None and self.test_x.shape[1] != self.d:
            raise ValueError(
                f"test_path has records of {self.test_x.shape[1]} columns; they must have {self.d}, as those of path"
            )
        if self.image_shape is not None and self.image_shape[0] * self.image_shape[1] != self.d:
            height, width = self.image_shape
            raise ValueError(f"image_shape {height} x {width} has {height * width} pixels, the records have {self.d}")
        test = 0 if self.labels is None else self.n_test
        for name, labels, n in (("labels", self.labels, self.n), ("test_labels", self.test_labels, test)):
            if labels is not None:
                require_labels(labels, n=n, n_classes=self.n_classes, name=name)
        if self.labels is not None and self.test_x is not None and self.test_labels is None:
            raise ValueError("test_labels is None; test records need labels, as the others have some")

    def __repr__(self) -> str:
        return f"MappedRecords({self.name!r}: {self.n} private and {self.n_test} test records of {self.d} bits on disk)"

    @property
    def n(self) -> int:
        """Number of private records."""
        return len(self.x)

    @property
    def n_test(self) -> int:
        """Number of test records."""
        return 0 if self.test_x is None else len(self.test_x)

    @property
    def d(self) -> int:
        """Number of bits of a record."""
        return self.x.shape[1]

    @property
    def n_classes(self) -> int:
        """Number of classes, 0 without labels."""
        return 0 if self.class_names is None else len(self.class_names)

    def some(self, most: int) -> Records:
        """At most so many private and test records in memory, by a public choice."""
        none, chosen = torch.zeros(0, self.d, dtype=torch.uint8), self.x.choice(most)
        tested = None if self.test_x is None else self.test_x.choice(most)
        own = None if self.labels is None else torch.zeros(0, dtype=torch.int64)
        return Records(
            self.name,
            self.x[chosen].to(torch.uint8),
            none if self.test_x is None or tested is None else self.test_x[tested].to(torch.uint8),
            labels=None if self.labels is None else self.labels[chosen],
            test_labels=own if self.test_labels is None or tested is None else self.test_labels[tested],
            n_classes=self.n_classes,
            class_names=self.class_names,
            image_shape=self.image_shape,
            form=self.form,
        )


def load_mapped(
    *,
    path: str,
    column: str | None = None,
    label_column: str | int | None = None,
    test_path: str | None = None,
    image_shape: tuple[int, int] | None = None,
) -> MappedRecords:
    """Shards of NumPy or Arrow whose values are all 0/1, which stay on disk; their labels, 8 bytes each, are read.

    Arguments:
        path: npy files, each an array (n, d) of bool, uint8 or floats, or Arrow files, as in "shards/*.npy".
        column: of Arrow files, whose rows are lists of one length; it may be left out where there is no other.
        label_column: column with the class of each record, of npy files by its number from 0; the classes are sorted.
        test_path: files of the test records, of the same form; without them there are none, and all of `path` is private.
        image_shape: (height, width) when the columns are the pixels of an image, row by row.

    Raises:
        ValueError: no such files or column, shards of different widths or types, a value that is neither 0 nor 1, a label
            that is missing, or one of test records that the others do not have.
    """
    x, values = _opened(path, column=column, label=label_column, option="path")
    test = test_values = None
    if test_path is not None:
        test, test_values = _opened(test_path, column=column, label=label_column, option="test_path")
    files = sorted(glob(path, recursive=True))
    name = Path(files[0]).stem if len(files) == 1 else Path(files[0]).resolve().parent.name
    facts: tuple[Fact | Said, ...] = (Split(0.0, held_out=None if test is None else len(test)).fact(), Fact.UNCHANGED_FILES)
    labels = test_labels = class_names = None
    if values is not None:
        labels, class_names = class_labels(_present(values, path))
        facts = (Fact.READ_CLASSES(k=len(class_names)), *facts)
    if class_names is not None and test_values is not None and test_path is not None:
        test_labels = _test_labels(class_names, _present(test_values, test_path), test_path)
    records = MappedRecords(name, x, test, image_shape, labels, test_labels, class_names, facts)
    x.require_bits(path)
    if test is not None:
        test.require_bits(str(test_path))
    return records


def _present(values: pd.Series[Any], path: str) -> pd.Series[Any]:
    if values.isna().any():
        raise ValueError(
            f"{path} column {values.name!r} has no value in row {int(values.isna().argmax()) + 1}: labels need one"
        )
    return values


def _test_labels(class_names: Sequence[str], test: pd.Series[Any], path: str) -> Tensor:
    codes = pd.Index(class_names, dtype=object).get_indexer(pd.Index(test.map(str), dtype=object))
    if (codes < 0).any():
        raise ValueError(f"{path} has a label in row {int((codes < 0).argmax()) + 1} that no other record has")
    return torch.from_numpy(codes.astype(np.int64))
