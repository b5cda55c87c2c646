"""Set-valued records - places visited, items of a basket - as bits, and as sparse rows on disk."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dpgen.containers import Form, InMemory
from dpgen.data.paths import UNREADABLE, existing_file, name_of, unreadable
from dpgen.data.records import Records, split_records
from dpgen.data.split import SplitOptions
from dpgen.data.table_files import read_bytes
from dpgen.data.users import natural_order
from dpgen.facts import Fact, Said

# -- sparse rows -------------------------------------------------------------------------------------------------------


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


# -- sets --------------------------------------------------------------------------------------------------------------


MAX_CELLS = 4 * 2**30
"""Largest table (records x items, one byte each) that is built."""


def load_sets(
    *,
    path: str,
    top_items: int | None = None,
    items_path: str | None = None,
    items: list[str] | None = None,
    test_fraction: float = 0.2,
    test_path: str | None = None,
    split_key: Path | None = None,
    public_records: int = 0,
) -> Records:
    """One record per line, item ids separated by blanks, plain or gzipped; feature j is 1 when item j is in the record.

    Which items are kept must not depend on private records. ``items`` or ``items_path`` name them from outside. Otherwise
    they are read from the records themselves - all of them, or the ``top_items`` most frequent - and ``facts`` say that
    epsilon does not cover this choice. An empty line is a record without items.

    Arguments:
        path: file of records.
        top_items: number of most frequent items to keep (ties: the smaller id).
        items_path: file of item ids, separated by blanks or lines, that are public.
        items: these ids themselves.
        test_fraction: probability of each record to be kept for evaluation, in [0, 1).
        test_path: file of the test records, of the same form; then all of ``path`` is private.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
        public_records: number of training records to declare public.

    Raises:
        ValueError: if a file is missing, empty or not of this form, or an option is out of range.
    """
    options = SplitOptions(test_fraction, test_path, split_key=split_key)
    baskets = read_baskets(path)
    test = [] if test_path is None else read_baskets(test_path)
    universe, facts = _universe(baskets, top_items=top_items, items_path=items_path, items=items)
    baskets = [*baskets, *test]
    if len(baskets) * len(universe) > MAX_CELLS:
        raise ValueError(
            f"{path} has {len(baskets)} records x {len(universe)} items: at most {MAX_CELLS} cells fit; lower top_items"
        )
    form = path.form if isinstance(path, InMemory) else Form(container="sets", types=("str",))
    return split_records(
        name_of(path),
        indicator_matrix(baskets, universe),
        split=options.split(held_out=None if test_path is None else len(test)),
        columns=universe,
        public_records=public_records,
        facts=facts,
        form=replace(form, names=tuple(universe)),
    )


def load_sparse(
    *,
    path: str,
    n_items: int | None = None,
    test_fraction: float = 0.2,
    split_key: Path | None = None,
    public_records: int = 0,
) -> Records:
    """Sparse rows of item numbers as bits: a scipy.sparse matrix (.npz), or a folder that `write_sparse_rows` wrote.

    Arguments:
        path: file of `scipy.sparse.save_npz`, or folder of starts.npy and items.npy.
        n_items: public number of items, so of columns; of a .npz file its own shape says it.
        test_fraction: probability of each record to be kept for evaluation, in [0, 1).
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
        public_records: number of training records to declare public.

    Raises:
        ValueError: no such rows, values but 0 and 1, or more cells than fit.
    """
    split = SplitOptions(test_fraction, split_key=split_key).split()
    rows = _matrix_rows(path) if path.endswith(".npz") else None
    if rows is None:
        if n_items is None:
            raise ValueError("n_items is None; it must be the public number of items: the rows do not say it")
        rows = SparseRows.open(Path(path), d=n_items)
    elif n_items not in (None, rows.d):
        raise ValueError(f"n_items is {n_items}; it must be {rows.d}, the columns of {path}")
    if len(rows) * rows.d > MAX_CELLS:
        raise ValueError(f"{path} has {len(rows)} records x {rows.d} items: at most {MAX_CELLS} cells fit")
    return split_records(
        name_of(path),
        rows[slice(0, len(rows))],
        split=split,
        columns=[str(item) for item in range(rows.d)],
        public_records=public_records,
        facts=(Fact.PUBLIC_ITEMS,),
        form=Form(container="sets", names=tuple(str(item) for item in range(rows.d)), types=("int64",)),
    )


def _matrix_rows(path: str) -> SparseRows:
    from scipy.sparse import load_npz

    try:
        matrix = load_npz(existing_file(path)).tocsr()
    except (*UNREADABLE, KeyError) as error:
        raise unreadable(path, "a sparse matrix", error) from error
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if (matrix.data != 1).any():
        raise ValueError(f"{path} has another value: only 0 and 1 are supported")
    return SparseRows(matrix.indptr.astype(np.int64), matrix.indices, matrix.shape[1])


def read_baskets(path: Path | str) -> list[list[str]]:
    """Item ids of each line of a file.

    Raises:
        ValueError: if the file is missing, empty, not UTF-8 text, or its ids are not separated by blanks.
    """
    if isinstance(path, InMemory):
        found: list[list[str]] = path.content
        return found
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file: byte {error.start} is not UTF-8") from error
    if not text.strip():
        raise ValueError(f"{path} holds no items")
    if "\x00" in text:
        raise ValueError(f"{path} is not a text file: it holds zero bytes")
    baskets = [line.split() for line in text.removesuffix("\n").split("\n")]
    for number, basket in enumerate(baskets, start=1):
        for item in basket:
            if "," in item or ";" in item:
                raise ValueError(f"{path} line {number} has an item with , or ; in it: item ids must be separated by blanks")
    return baskets


def indicator_matrix(baskets: list[list[str]], items: list[str]) -> Tensor:
    """Matrix (len(baskets), len(items)) of uint8: 1 where the basket holds the item; other items are left out.

    Example:
        >>> indicator_matrix([["3", "7"], [], ["7", "9"]], ["7", "3"]).tolist()
        [[1, 1], [0, 0], [1, 0]]
    """
    position = {item: column for column, item in enumerate(items)}
    x = np.zeros((len(baskets), len(items)), dtype=np.uint8)
    for row, basket in enumerate(baskets):
        x[row, [position[item] for item in basket if item in position]] = 1
    return torch.from_numpy(x)


def _universe(
    baskets: list[list[str]], *, top_items: int | None, items_path: str | None, items: list[str] | None
) -> tuple[list[str], tuple[Said, ...]]:
    options = {"top_items": top_items, "items_path": items_path, "items": items}
    given = {name: value for name, value in options.items() if value is not None}
    if len(given) > 1:
        first, second = list(given.items())[:2]
        raise ValueError(f"{first[0]} is {first[1]!r} and {second[0]} is {second[1]!r}: give one of them")
    if items is not None or items_path is not None:
        return public_items(items_path=items_path, items=items), ()
    if top_items is not None and top_items < 1:
        raise ValueError(f"top_items is {top_items}: it must be at least 1")
    counts = Counter(item for basket in baskets for item in set(basket))
    if top_items is None:
        return sorted(counts, key=natural_order), (Fact.READ_ITEMS(how="all of them"),)
    kept = sorted(counts, key=lambda item: (-counts[item], natural_order(item)))[:top_items]
    return sorted(kept, key=natural_order), (Fact.READ_ITEMS(how=f"the {top_items} most frequent"),)


def public_items(*, items_path: str | None, items: list[str] | None) -> list[str]:
    """Ids of public items, in their order, from a file or as they are given.

    Raises:
        ValueError: none or both are given, or an item is named twice.
    """
    if (items is None) == (items_path is None):
        raise ValueError(f"items is {items} and items_path is {items_path!r}: one of them must name the public items")
    if items is not None:
        return _different(items, "items")
    return _different([item for basket in read_baskets(str(items_path)) for item in basket], str(items_path))


def _different(items: list[str], source: str) -> list[str]:
    if not items:
        raise ValueError(f"{source} names no item: at least one is needed")
    repeated = [item for item, count in Counter(items).items() if count > 1]
    if repeated:
        raise ValueError(f"{source} names item {repeated[0]!r} more than once: each item is a column of its own")
    return items
