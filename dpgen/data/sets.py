"""Set-valued records: the places a user visited, the items of a basket."""

from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpgen.data.records import Records, split_records
from dpgen.data.split import SplitOptions
from dpgen.data.table_files import name_of, read_bytes

MAX_CELLS = 4 * 2**30
"""Largest table (records x items, one byte each) that is built."""


def load_sets(
    *,
    path: str,
    top_items: int | None = None,
    items_path: str | None = None,
    test_fraction: float = 0.2,
    test_path: str | None = None,
    split_key: Path | None = None,
    public_records: int = 0,
) -> Records:
    """One record per line, item ids separated by blanks, plain or gzipped; feature j is 1 when item j is in the record.

    Which items are kept must not depend on private records. ``items_path`` names them from outside. Otherwise they
    are read from the records themselves - all of them, or the ``top_items`` most frequent - and ``notes`` say that
    epsilon does not cover this choice. An empty line is a record without items, except at the end of the file.

    Arguments:
        path: file of records.
        top_items: number of most frequent items to keep (ties: the smaller id).
        items_path: file of item ids, separated by blanks or lines, that are public.
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
    items, note = _universe(baskets, top_items=top_items, items_path=items_path)
    baskets += test
    if len(baskets) * len(items) > MAX_CELLS:
        raise ValueError(
            f"{path} has {len(baskets)} records x {len(items)} items: at most {MAX_CELLS} cells fit; lower top_items"
        )
    return split_records(
        name_of(path),
        indicator_matrix(baskets, items),
        split=options.split(held_out=None if test_path is None else len(test)),
        columns=items,
        public_records=public_records,
        notes=note,
    )


def read_baskets(path: Path | str) -> list[list[str]]:
    """Item ids of each line of a file.

    Raises:
        ValueError: if the file is missing, empty, not UTF-8 text, or its ids are not separated by blanks.
    """
    try:
        text = read_bytes(path).decode("utf-8").rstrip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file: byte {error.start} is not UTF-8") from error
    if not text:
        raise ValueError(f"{path} holds no items")
    if "\x00" in text:
        raise ValueError(f"{path} is not a text file: it holds zero bytes")
    baskets = [line.split() for line in text.split("\n")]
    for number, basket in enumerate(baskets, start=1):
        for item in basket:
            if "," in item or ";" in item:
                raise ValueError(f"{path} line {number} has {item[:40]!r}: item ids must be separated by blanks")
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


def _universe(baskets: list[list[str]], *, top_items: int | None, items_path: str | None) -> tuple[list[str], tuple[str, ...]]:
    if items_path is not None:
        if top_items is not None:
            raise ValueError(f"top_items is {top_items} and items_path is {items_path!r}: give one of them")
        return _public_items(items_path), ()
    if top_items is not None and top_items < 1:
        raise ValueError(f"top_items is {top_items}: it must be at least 1")
    counts = Counter(item for basket in baskets for item in set(basket))
    if top_items is None:
        return sorted(counts, key=_by_id), (f"the {len(counts)} items were read from the records: epsilon does not cover it",)
    kept = sorted(counts, key=lambda item: (-counts[item], _by_id(item)))[:top_items]
    note = f"the {top_items} most frequent items were chosen on the records: epsilon does not cover this choice"
    return sorted(kept, key=_by_id), (note,)


def _public_items(items_path: str) -> list[str]:
    items = [item for basket in read_baskets(items_path) for item in basket]
    repeated = [item for item, count in Counter(items).items() if count > 1]
    if repeated:
        raise ValueError(f"{items_path} names item {repeated[0]!r} more than once: each item is a column of its own")
    return items


def _by_id(item: str) -> tuple[int, int, str]:
    # Numbers in numeric order before names in alphabetical order; isdecimal keeps out what int() cannot read.
    return (0, int(item), item) if item.isdecimal() else (1, 0, item)
