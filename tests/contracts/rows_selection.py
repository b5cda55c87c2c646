"""The best of a secret number of runs: the paid score of a run, and the law of what is selected."""

import math
from typing import Any

import numpy as np
import torch
from conformance import Law, LawRow, Row, SumRow, pairs_of, swapped

from dpgen.cli.select import SCORE, Queries
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import Relation, pure_event, repeated_event
from dpgen.privacy.selection import SELECTION as NOTE

D, EPSILON = 4, 0.5
BITS = pairs_of(lambda rng, n: (rng.random((n, D)) < rng.random()).astype(np.uint8))
ASKED = Queries(torch.tensor([[0, 0], [1, 1], [0, 3], [2, 1]]), torch.tensor([0.0, 0.0, 0.0, 0.0]))
HALVES = ASKED._replace(shares=torch.tensor([0.5, 0.25, 0.999, 0.3]))


ALL_OR_NOTHING = swapped(np.array([[0] * D] * 19 + [[1] * D], np.uint8), np.zeros((1, D), np.uint8))
"""Twenty records, the last one with all bits: gone, or replaced by one without any."""
TWO_OR_LESS = swapped(np.ones((2, D), np.uint8), np.zeros((1, D), np.uint8))
"""Two records with the first bit, and one of them without it, or gone."""


def errors(asked: Queries) -> Any:
    """The sum behind the score of a release with the shares of `asked`."""

    def of(x: np.ndarray) -> BoundedSum:
        return asked.errors(torch.from_numpy(x))

    return of


def selected(mean: float) -> Any:
    """The best of K answers 0 or 1 to whether there are two records or more with the first bit; or nothing, of no runs."""

    def law(x: np.ndarray, relation: Relation) -> Law:
        heads = 1 / (1 + math.exp(EPSILON if x[:, 0].sum() < 2 else -EPSILON))
        below = np.exp(mean * (np.array([0.0, 1 - heads, 1.0]) - 1))
        chances = np.array([below[0], below[1] - below[0], below[2] - below[1]])
        with np.errstate(divide="ignore"):
            return Law(repeated_event(pure_event(EPSILON), mean), np.log(chances))

    return law


_SLACK = "the bound counts the number of runs and the best run apart; two answers do not reach both"
_INSIDE = "released shares are inside (0, 1)"
ROWS: list[Row] = [
    SumRow("selection", (SCORE,), BITS, ALL_OR_NOTHING, sums=errors(ASKED)),
    SumRow("selection", (SCORE,), BITS, ALL_OR_NOTHING, sums=errors(HALVES), reaches=0.45, why=_INSIDE),
    LawRow("selection", (NOTE,), BITS, TWO_OR_LESS, law=selected(3), at=(0.1, 0.5), reaches=0.1, why=_SLACK, pairs=8),
]
