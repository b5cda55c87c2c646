"""Records that stay on disk: memory-mapped shards of NumPy or Arrow, of which a draw reads its own rows and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dpgen.data.table_files import unreadable

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
    def open(cls, path: str) -> MappedRows:
        """Map npy files into memory, several by a glob, in the order of their names.

        Raises:
            ValueError: no such file, or one that is no array.
        """
        files = sorted(glob(path))
        if not files:
            raise ValueError(f"path is {path!r}: there is no such file")
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

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Rows (b, d) by their numbers (b,)."""
        numbers = rows.numpy()
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

    def fingerprint(self) -> str:
        """Hash of all rows in order."""
        digest = hashlib.sha256(repr((self.shape, self.dtype)).encode())
        for part in self.split(max(1, _CHUNK // self.shape[1])):
            digest.update(part.numpy().data)
        return digest.hexdigest()


def _mapped(file: str) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(Path(file), mmap_mode="r")
    except (OSError, ValueError) as error:
        raise unreadable(file, "npy", error) from error
    return array
