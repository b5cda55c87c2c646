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
import torch
from torch import Tensor

from dpgen.containers import Form
from dpgen.data.records import PIXEL_THRESHOLD, Records
from dpgen.data.split import Split
from dpgen.data.table_files import require_columns, unreadable
from dpgen.progress import rows_read

_CHUNK = 2**22  # entries that a pass holds at once


class MappedRows:
    """Rows (n, d) of numbers in shards one behind the other, used like a tensor (n, d) where rows are drawn by number.

    What a draw costs in memory are its own rows, whatever n is: the system keeps pages of the files as long as it has room.
    Values are not looked at before they are drawn; clipping bounds what any of them moves, and a row that is not finite
    moves nothing.

    Arguments:
        shards: arrays (n_i, d) of one dtype, bool, uint8 or floating point, which may be memory-mapped.

    Raises:
        ValueError: no shards, or shards of different columns or types.

    >>> rows = MappedRows([np.eye(3, dtype=np.uint8), np.ones((2, 3), np.uint8)])
    >>> rows.shape, rows[torch.tensor([1, 4, 0])].tolist()
    ((5, 3), [[0, 1, 0], [1, 1, 1], [1, 0, 0]])
    """

    def __init__(self, shards: Sequence[npt.NDArray[Any]]) -> None:
        if not shards:
            raise ValueError("shards is []; there must be at least one")
        for i, shard in enumerate(shards):
            if shard.ndim != 2 or shard.shape[1] == 0 or shard.shape[1] != shards[0].shape[1] or shard.dtype != shards[0].dtype:
                raise ValueError(
                    f"shard {i} has {shard.dtype} {shard.shape}; all of them must be {shards[0].dtype} (n, d) of one d >= 1"
                )
        if shards[0].dtype.kind not in "bf" and shards[0].dtype != np.uint8:
            raise ValueError(f"shards have dtype {shards[0].dtype}; it must be bool, uint8 or floating point")
        self._shards, self._ends = list(shards), np.cumsum([len(shard) for shard in shards])

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
        return len(self), int(self._shards[0].shape[1])

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
        found = np.empty((len(numbers), self.shape[1]), self._shards[0].dtype)
        shard = np.searchsorted(self._ends, numbers, side="right")
        for i in np.unique(shard):
            own = shard == i
            found[own] = self._shards[i][numbers[own] - (self._ends[i] - len(self._shards[i]))]
        return torch.from_numpy(found)

    def split(self, size: int) -> Iterator[Tensor]:
        """Chunks of at most `size` rows, in order."""
        for start in range(0, len(self), size):
            yield self[torch.arange(start, min(start + size, len(self)))]

    def some(self, most: int) -> Tensor:
        """At most so many rows: all of them, or a choice by public randomness."""
        if len(self) <= most:
            return self[torch.arange(len(self))]
        chosen = np.random.default_rng(0).choice(len(self), most, replace=False, shuffle=False)
        return self[torch.from_numpy(np.sort(chosen))]

    def require_bits(self, name: str) -> None:
        """One pass over all rows.

        Raises:
            ValueError: naming the first value that is neither 0 nor 1.
        """
        size = max(1, _CHUNK // self.shape[1])
        for number, part in enumerate(rows_read(self.split(size), len(self), "check")):
            if part.dtype == torch.bool or (part.dtype == torch.uint8 and int(part.max()) <= 1):
                continue
            wrong = ((part != 0) & (part != 1)).nonzero()
            if len(wrong):
                row, column = wrong[0].tolist()
                raise ValueError(
                    f"{name} has {part[row, column]:g} in row {number * size + row + 1}, column {column}: only 0 and 1 are "
                    "supported"
                )

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


def _arrow_column(file: str, name: str | None) -> Any:
    """A column of an Arrow file, in either of the two forms, mapped into memory."""
    import pyarrow

    try:
        mapped = pyarrow.memory_map(file)
        try:
            table = pyarrow.ipc.open_file(mapped).read_all()
        except pyarrow.ArrowInvalid:
            mapped.seek(0)
            table = pyarrow.ipc.open_stream(mapped).read_all()
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable(file, "arrow", error) from error
    if name is None and len(table.column_names) == 1:
        [name] = table.column_names
    if name is None:
        raise ValueError(f"column is not given: {file} has the columns {', '.join(table.column_names)}")
    require_columns(file, [name], table.column_names)
    return table.column(name)


# -- records -----------------------------------------------------------------------------------------------------------

_UNCHANGED = "the files of the records stay as they are while a run reads them"


@dataclass(frozen=True, eq=False, repr=False)
class MappedRecords:
    """Binary records without labels that stay on disk, all of them private, and test records likewise.

    Arguments:
        name: what the data are called in reports.
        x: private records (n, d).
        test_x: records for evaluation (m, d), if there are any.
        image_shape: (height, width) with height * width = d when the records are images.

    Raises:
        ValueError: test records, or images, of another width.

    >>> MappedRecords("tiny", MappedRows([np.eye(4, dtype=np.uint8)]), image_shape=(2, 2))
    MappedRecords('tiny': 4 private and 0 test records of 4 bits on disk)
    """

    name: str
    x: MappedRows
    test_x: MappedRows | None = None
    image_shape: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()

    labels = test_labels = public_x = columns = grey = people = None
    n_classes = 0
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

    def some(self, most: int) -> Records:
        """At most so many private and test records in memory, by a public choice."""
        none = torch.zeros(0, self.d, dtype=torch.uint8)
        test = none if self.test_x is None else self.test_x.some(most).to(torch.uint8)
        return Records(self.name, self.x.some(most).to(torch.uint8), test, image_shape=self.image_shape, form=self.form)


def load_mapped(
    *,
    path: str,
    column: str | None = None,
    test_path: str | None = None,
    image_shape: tuple[int, int] | None = None,
) -> MappedRecords:
    """Shards of NumPy or Arrow whose values are all 0/1, which stay on disk; labels are not among them.

    Arguments:
        path: npy files, each an array (n, d) of bool, uint8 or floats, or Arrow files, as in "shards/*.npy".
        column: of Arrow files, whose rows are lists of one length; it may be left out where there is one.
        test_path: files of the test records, of the same form; without them there are none, and all of `path` is private.
        image_shape: (height, width) when the columns are the pixels of an image, row by row.

    Raises:
        ValueError: no such files, shards of different widths or types, or a value that is neither 0 nor 1.
    """
    x = MappedRows.open(path, column=column)
    test = None if test_path is None else MappedRows.open(test_path, column=column, option="test_path")
    files = sorted(glob(path, recursive=True))
    name = Path(files[0]).stem if len(files) == 1 else Path(files[0]).resolve().parent.name
    split = Split(0.0, held_out=None if test is None else len(test))
    records = MappedRecords(name, x, test, image_shape, (split.note(), _UNCHANGED))
    x.require_bits(path)
    if test is not None:
        test.require_bits(str(test_path))
    return records
