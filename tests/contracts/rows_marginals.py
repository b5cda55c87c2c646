"""Marginals and MWEM: sums of bits, and the choice of the query that is answered worst."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from conformance import Law, LawRow, SumRow, pairs_of, swapped

from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.noise import PublicRandomness
from dpgen.systems.marginals.fit import (
    COUNT,
    MEASUREMENT,
    NOTE,
    SELECTION,
    TOTAL,
    Cells,
    Items,
    MWEMConfig,
    bit_sums,
    record_count,
    records_of,
)

D = 6
BITS = pairs_of(lambda rng, n: (rng.random((n, 1 + D)) < rng.random()).astype(np.uint8))
"""Records of six bits; the first column is their class, 0 or 1."""


def one_more(row: int, *ones: int) -> np.ndarray:
    """Two records, the second of a class and with ones in some columns."""
    x = np.zeros((2, 1 + D), np.uint8)
    x[1, 0], x[1, [1 + i for i in ones]] = row, 1
    return x


def pair(first: np.ndarray, other: np.ndarray) -> Any:
    """`first`, and the same without its last record or with that of `other`."""
    return swapped(first, other[1:])


# -- noisy marginals -----------------------------------------------------------------------------------------------------


def sums(k: int) -> Any:
    """The sums of records in k classes."""

    def of(x: np.ndarray) -> BoundedSum:
        return bit_sums([(torch.from_numpy(x[:, 1:]), torch.from_numpy(x[:, 0].astype(np.int64)) * (k > 1))], D, k)

    return of


ALL = tuple(range(D))
MARGINALS = [
    SumRow("marginals", (NOTE,), BITS, pair(one_more(0, *ALL), one_more(0)), sums=sums(1)),
    SumRow("marginals", (NOTE,), BITS, pair(one_more(1, *ALL), one_more(1)), sums=sums(2)),
]


# -- MWEM ------------------------------------------------------------------------------------------------------------------

ITEMS = Items(D, MWEMConfig(domain="items", max_items=2, queries=40), PublicRandomness(1))
PAIRS = Items(2, MWEMConfig(domain="items", max_items=2, queries=40), PublicRandomness(0))
CELLS = Cells(3, 2)
LONGEST = int(ITEMS.queries.sum(1).argmax())


def records(x: np.ndarray, d: int) -> Any:
    """Records of d bits with their class."""
    labels = torch.from_numpy(x[:, 0].astype(np.int64))
    return SimpleNamespace(x=torch.from_numpy(x[:, 1 : 1 + d]), labels=labels, n_classes=2)


def answers(weights: Items | Cells, d: int, x: np.ndarray) -> Any:
    """What records answer."""
    return weights.asked(weights.histogram(records_of(records(x, d))[0]))


def selected(x: np.ndarray, relation: Relation) -> Law:
    """Three queries that both columns belong to: the record lowers the score of the first and raises those of the others."""
    chosen = np.flatnonzero(PAIRS.queries.all(1))[:3]
    estimates = np.full(len(PAIRS.queries), -120.0)
    estimates[chosen[0]] = 40.0
    mechanism = answers(PAIRS, 2, x).selection(chosen, estimates, 0.8)
    return Law(mechanism.event, mechanism.log_probabilities())


def selected_cells(x: np.ndarray, relation: Relation) -> Law:
    """All queries on cells, from equal weights."""
    CELLS.start(8.0)
    mechanism = answers(CELLS, 3, x).selection(np.arange(len(CELLS.queries)), CELLS.answers(), 0.8)
    return Law(mechanism.event, mechanism.log_probabilities())


def measured(x: np.ndarray) -> BoundedSum:
    """The answer to the longest query on items."""
    return answers(ITEMS, D, x).measured(LONGEST)


def mass(x: np.ndarray) -> BoundedSum:
    """The sum over all items."""
    return ITEMS.mass(ITEMS.histogram(records_of(records(x, D))[0]))


def count(x: np.ndarray) -> BoundedSum:
    """The number of records."""
    return record_count([(torch.from_numpy(x), None)])


def measured_cell(x: np.ndarray) -> BoundedSum:
    """The answer to the first query on cells: records whose first bit is 0."""
    return answers(CELLS, 3, x).measured(0)


WIDE = pair(one_more(1, *ALL), one_more(1))
_EQUAL = "from equal weights no other query dominates the one whose score a record moves"
ROWS = [
    *MARGINALS,
    SumRow("mwem", (COUNT,), BITS, pair(one_more(0), one_more(0)), sums=count, relations=("add_remove",)),
    SumRow("mwem", (TOTAL,), BITS, WIDE, sums=mass),
    SumRow("mwem", (MEASUREMENT,), BITS, WIDE, sums=measured),
    SumRow("mwem", (MEASUREMENT,), BITS, pair(one_more(0), one_more(0, 0)), sums=measured_cell),
    LawRow("mwem", (SELECTION,), BITS, WIDE, law=selected),
    LawRow("mwem", (SELECTION,), BITS, pair(one_more(0), one_more(1, 0, 1, 2)), law=selected_cells, reaches=0.35, why=_EQUAL),
]
