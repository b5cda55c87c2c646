"""Set-valued records - places visited, items of a basket - as bits."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpgen.containers import Form, InMemory
from dpgen.data.records import Records, split_records
from dpgen.data.split import TEST_FRACTION, SplitOptions
from dpgen.data.table_files import name_of, read_bytes
from dpgen.data.users import natural_order
from dpgen.facts import Fact, Said

MAX_CELLS = 4 * 2**30
"""Largest table (records x items, one byte each) that is built."""


def load_sets(
    *,
    path: str,
    top_items: int | None = None,
    items_path: str | None = None,
    items: list[str] | None = None,
    test_fraction: float = TEST_FRACTION,
    test_path: str | None = None,
    split_key: Path | None = None,
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
    """
    options = SplitOptions(test_fraction, test_path, split_key=split_key)
    baskets = read_baskets(path)
    test = [] if test_path is None else read_baskets(test_path)
    universe, facts = _universe(baskets, top_items=top_items, items_path=items_path, items=items)
    baskets = [*baskets, *test]
    if len(baskets) * len(universe) > MAX_CELLS:
        raise ValueError(f"{path} has {len(baskets)} records x {len(universe)} items: at most {MAX_CELLS} fit; lower top_items")
    form = path.form if isinstance(path, InMemory) else Form(container="sets", types=("str",))
    return split_records(
        name_of(path),
        indicator_matrix(baskets, universe),
        split=options.split(held_out=None if test_path is None else len(test)),
        columns=universe,
        facts=facts,
        form=replace(form, names=tuple(universe)),
    )


def read_baskets(path: Path | str) -> list[list[str]]:
    """Item ids of each line of a file."""
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

    >>> indicator_matrix([["3", "7"], [], ["7", "9"]], ["7", "3"]).tolist()
    [[1, 1], [0, 0], [1, 0]]
    """
    position = {item: column for column, item in enumerate(items)}
    x = np.zeros((len(baskets), len(items)), dtype=np.uint8)
    for row, basket in enumerate(baskets):
        x[row, [position[item] for item in basket if item in position]] = 1
    return torch.from_numpy(x)


def _require_one(**options: Any) -> None:
    given = [f"{name} is {value!r}" for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{given[0]} and {given[1]}: give one of them")


def _universe(
    baskets: list[list[str]], *, top_items: int | None, items_path: str | None, items: list[str] | None
) -> tuple[list[str], tuple[Said, ...]]:
    _require_one(top_items=top_items, items_path=items_path, items=items)
    if items is not None:
        return _different("items", items), ()
    if items_path is not None:
        return _different(items_path, [item for basket in read_baskets(items_path) for item in basket]), ()
    if top_items is not None and top_items < 1:
        raise ValueError(f"top_items is {top_items}: it must be at least 1")
    counts = Counter(item for basket in baskets for item in set(basket))
    if top_items is None:
        return sorted(counts, key=natural_order), (Fact.READ_ITEMS(how="all of them"),)
    kept = sorted(counts, key=lambda item: (-counts[item], natural_order(item)))[:top_items]
    return sorted(kept, key=natural_order), (Fact.READ_ITEMS(how=f"the {top_items} most frequent"),)


def _different(source: str, items: list[str]) -> list[str]:
    """The items, once it is known that there are some and that no two are the same."""
    if not items:
        raise ValueError(f"{source} names no item: at least one is needed")
    if repeated := [item for item, count in Counter(items).items() if count > 1]:
        raise ValueError(f"{source} names item {repeated[0]!r} more than once: each item is a column of its own")
    return items
