"""Records with few ones, kept on disk: rows of 0 and 1 that are made dense only when they are drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_NAMES = ("starts.npy", "items.npy")


@dataclass(frozen=True, repr=False)
class SparseRows:
    """n rows of d bits as the items that are 1: `items[starts[r]:starts[r + 1]]` of row r. Used like a tensor (n, d).

    Only what a loader needs of a tensor is there: its shape, rows by number, and chunks of rows. The arrays may be
    memory-mapped; a drawn batch is all that becomes dense.

    Arguments:
        starts: (n + 1,) int64, from 0 upwards.
        items: columns of the ones, whole numbers in [0, d).
        d: columns.

    Raises:
        ValueError: arrays that do not describe rows of d bits.

    >>> rows = SparseRows(np.array([0, 2, 2, 3]), np.array([0, 2, 1]), 3)
    >>> rows[torch.tensor([0, 1, 2])].tolist()
    [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    """

    starts: npt.NDArray[np.int64]
    items: npt.NDArray[np.integer]
    d: int

    def __post_init__(self) -> None:
        starts, items = self.starts, self.items
        if starts.ndim != 1 or len(starts) < 2 or starts[0] != 0 or starts[-1] != len(items) or (np.diff(starts) < 0).any():
            raise ValueError(f"starts must rise from 0 to the number of items {len(items)}, got {starts.shape} numbers")
        if not np.issubdtype(items.dtype, np.integer):
            raise ValueError(f"items must be whole numbers, got {items.dtype}")
        if len(items) and not 0 <= int(items.min()) <= int(items.max()) < self.d:
            raise ValueError(f"items must be in [0, {self.d}), got [{items.min()}, {items.max()}]")

    def __repr__(self) -> str:
        return f"SparseRows({len(self)} x {self.d})"

    @classmethod
    def open(cls, directory: Path, *, d: int) -> SparseRows:
        """Map the arrays that `write_sparse_rows` wrote into memory."""
        missing = [name for name in _NAMES if not (directory / name).is_file()]
        if missing:
            raise ValueError(f"{directory} holds no sparse rows: {missing[0]} is missing")
        starts, items = (np.load(directory / name, mmap_mode="r") for name in _NAMES)
        return cls(starts, items, d)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.d

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def is_floating_point(self) -> bool:
        return False

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Dense rows (b, d), uint8."""
        numbers = np.arange(len(self))[rows] if isinstance(rows, slice) else rows.numpy()
        starts = self.starts[numbers]
        sizes = self.starts[numbers + 1] - starts
        within = np.arange(sizes.sum()) - np.repeat(sizes.cumsum() - sizes, sizes)
        dense = np.zeros((len(numbers), self.d), np.uint8)
        dense[np.repeat(np.arange(len(numbers)), sizes), self.items[np.repeat(starts, sizes) + within]] = 1
        return torch.from_numpy(dense)

    def split(self, size: int) -> Iterator[Tensor]:
        """Dense chunks of at most `size` rows, in order."""
        for start in range(0, len(self), size):
            yield self[slice(start, start + size)]

    def fingerprint(self) -> str:
        """Hash of all rows in order, without making them dense."""
        digest = hashlib.sha256(repr((self.shape, self.items.dtype)).encode())
        for array in (self.starts, self.items):
            for start in range(0, len(array), 2**22):
                digest.update(np.ascontiguousarray(array[start : start + 2**22]).data)
        return digest.hexdigest()


def write_sparse_rows(directory: Path, sets: Iterable[npt.NDArray[np.integer]], *, dtype: npt.DTypeLike = np.uint16) -> int:
    """Write rows, each given as the array of its items, for `SparseRows.open`; returns how many there were."""
    directory.mkdir(parents=True, exist_ok=True)
    starts, parts = [np.zeros(1, np.int64)], []
    total = 0
    for items in sets:
        unique = np.unique(items).astype(dtype)
        total += len(unique)
        starts.append(np.array([total]))
        parts.append(unique)
    np.save(directory / _NAMES[0], np.concatenate(starts).astype(np.int64))
    np.save(directory / _NAMES[1], np.concatenate(parts) if parts else np.zeros(0, dtype))
    return len(parts)
