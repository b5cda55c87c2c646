"""Mixed tables: the number of records, marginals, and the choice of the marginal that is answered worst."""

import math
from typing import Any

import numpy as np
import torch
from conformance import Law, LawRow, SumRow, pairs_of, swapped

from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.selection import ExponentialMechanism
from dpgen.systems.tables.fit import COUNT, record_count
from dpgen.systems.tables.marginals import JOINT, NOTE, SCALE, Coarsening, Counts, Marginal
from dpgen.systems.tables.rounds import BLOCK_CHOICE, BLOCK_TABLE, MEASUREMENT, SELECTION, Sets, parity_scores
from dpgen.systems.tables.workload import QUESTION

SIZES = (3, 2, 5)
ROWS_OF = pairs_of(lambda rng, n: np.stack([rng.integers(0, size, n) for size in SIZES], axis=1))
LEVELS = [Coarsening.full(SIZES), Coarsening((np.array([0, 0, 1]), np.arange(2), np.array([0, 1, 1, 1, 2])), (2, 2, 3))]


MOVED = swapped(np.array([[0, 0, 0], [2, 1, 4]]), np.zeros((1, 3), np.int64))
"""A record beside one at 0 is left out, or moved to 0."""


def counted(marginal: Marginal) -> Any:
    """The counts of one marginal among others."""

    def of(x: np.ndarray) -> BoundedSum:
        return Counts.of(x, [Marginal((1,), 0), marginal, Marginal((0, 2), 0)], LEVELS).sums(1)

    return of


def all_questions(x: np.ndarray) -> BoundedSum:
    """Two questions at the price of one."""
    counts = Counts.of(x, TWO, LEVELS)
    return BoundedSum(torch.from_numpy(counts.values), 1.0, replaced=math.sqrt(2.0))


TWO = [Marginal((0, 1), 0), Marginal((1, 2), 0)]


def in_two_halves(x: np.ndarray) -> BoundedSum:
    """A question of four columns as the tables of its two halves, at the price of one table."""
    counts = Counts.of(x, [Marginal((0, 1), 0), Marginal((2, 3), 0)], [HALVES])
    return BoundedSum(torch.from_numpy(counts.values), 1.0, replaced=math.sqrt(2.0))


def selected(x: np.ndarray, relation: Relation) -> Law:
    """The choice between two marginals; the record of the stated pair raises the score of one and lowers that of the other."""
    counts = Counts.of(x, TWO, LEVELS)
    expected = np.zeros(len(counts.values))
    expected[[5, 0, 6 + 9, 6]] = 40.0, -40.0, -40.0, 40.0  # cells of the record at (2, 1, 4), and of those at 0
    offsets = np.array([80.5, 79.5] if relation == "add_remove" else [81.0, 79.0])
    mechanism = ExponentialMechanism.gaussian(counts.scores(expected, np.array([2, 2]), offsets), 2.0, 2 * SCALE)
    return Law(mechanism.event, mechanism.log_probabilities())


BITS_OF = pairs_of(lambda rng, n: rng.integers(0, 2, (n, 4)))
OF_BITS = swapped(np.array([[0, 0, 0, 0], [0, 0, 0, 1]]), np.array([[0, 0, 1, 0]]))
"""A record whose parity is that of the others in one set of three columns and not in another one is left out, or replaced."""
HALVES = Coarsening.full((2,) * 4)
SETS = Sets((0, 1, 2, 3), (4,) * 4)


def of_block(x: np.ndarray) -> BoundedSum:
    """The table of four columns: of a block, or a question."""
    return Counts.of(x, [Marginal((0, 1, 2, 3), 0)], [HALVES]).sums(0)


def chosen_block(x: np.ndarray, relation: Relation, times: int = 1) -> Law:
    """The choice between two sets of three columns, by parities that are counted so many times."""
    those = [[*map(SETS.__getitem__, range(len(SETS)))].index(one) for one in ((0, 1, 2), (0, 1, 3))]
    parities = times * SETS.parities(x, HALVES)[those]
    expected = np.array([-40.0, -41.0 if relation == "add_remove" else -40.0])
    mechanism = ExponentialMechanism.gaussian(parity_scores(parities, expected), 2.0, SCALE)
    return Law(mechanism.event, mechanism.log_probabilities())


ROWS = [
    SumRow("tables", (COUNT,), ROWS_OF, MOVED, sums=record_count, relations=("add_remove",)),
    SumRow("tables", (NOTE,), ROWS_OF, MOVED, sums=counted(Marginal((2,), 0))),
    SumRow("tables", (NOTE, MEASUREMENT), ROWS_OF, MOVED, sums=counted(Marginal((0, 1), 0))),
    SumRow("tables", (MEASUREMENT,), ROWS_OF, MOVED, sums=counted(Marginal((0, 1, 2), 1))),
    SumRow("tables", (JOINT,), ROWS_OF, MOVED, sums=counted(Marginal((0, 1, 2), 0))),
    SumRow("tables", (QUESTION,), ROWS_OF, MOVED, sums=counted(Marginal((0, 2), 1))),
    SumRow("tables", (QUESTION,), BITS_OF, OF_BITS, sums=of_block),
    SumRow("tables", (BLOCK_TABLE,), BITS_OF, OF_BITS, sums=of_block),
    LawRow("tables", (BLOCK_CHOICE,), BITS_OF, OF_BITS, law=chosen_block, at=(1e-6, 0.2, 0.5)),
    LawRow("tables", (SELECTION,), ROWS_OF, MOVED, law=selected, at=(1e-6, 0.2, 0.5)),
]
