"""Domains of columns: histograms for ranges, and the choice of frequent categories."""

from itertools import product
from typing import Any

import numpy as np
from conformance import Law, LawRow, SumRow, pairs_of, swapped

from dpgen.privacy.events import for_rows, row_delta, row_epsilon
from dpgen.privacy.frequent_values import FrequentValues
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.domains import COARSE, FINE, FREQUENT, coarse_edges, counted, histogram

NUMBERS = pairs_of(lambda rng, n: rng.normal(0, 10.0 ** rng.integers(-2, 4), (n, 1)))
LETTERS = pairs_of(lambda rng, n: rng.integers(0, 3, (n, 1)))


FAR_APART = swapped(np.array([[1.0], [5.0]]), np.array([[-700.0]]))
ALONE = swapped(np.array([[0], [1]]), np.array([[2]]))


def many(relation: Relation) -> Any:
    """So many records of a value, or of two, that it is as likely released as not."""
    if relation == "add_remove":
        return np.zeros((17, 1), int), np.zeros((16, 1), int)
    half = np.repeat([[0], [1]], 40, axis=0)
    return np.append(half, [[0]], axis=0), np.append(half, [[1]], axis=0)


M = 3


def of_people(rng: np.random.Generator, relation: Relation) -> Any:
    """Up to 3 rows of a person come, or are replaced by up to 3 of another one."""
    common = rng.integers(0, 3, (int(rng.integers(0, 40)), 1)) % int(rng.integers(1, 4))
    own, other = (rng.integers(0, 3, (int(rng.integers(0, M + 1)), 1)) for _ in range(2))
    more = common if relation == "add_remove" else np.append(common, other, axis=0)
    return np.append(common, own, axis=0), more


def of_nobody_else(relation: Relation) -> Any:
    """A person alone has a value, in all rows."""
    few = np.array([[0]])
    return np.append(few, [[1]] * M, axis=0), few if relation == "add_remove" else np.append(few, [[2]] * M, axis=0)


def selected(epsilon: float, delta: float, rows: int = 1) -> Any:
    """The law of the released sets of three letters, and its price for people with up to so many rows."""

    def law(x: np.ndarray, relation: Relation) -> Law:
        step = row_epsilon(epsilon, rows)
        values = counted([str(value) for value in x[:, 0]])
        mechanism = FrequentValues(values, step, row_delta(delta, step, rows), relation)
        logs = mechanism.log_probabilities()
        chances = [np.exp(logs[letter]) if letter in logs else 0.0 for letter in "012"]
        sets = [np.prod([p if inside else 1 - p for p, inside in zip(chances, chosen)]) for chosen in product([0, 1], repeat=3)]
        with np.errstate(divide="ignore"):
            return Law(for_rows(mechanism.event, rows), np.log(np.array(sets)))

    return law


def cells(kind: Any) -> Any:
    return lambda x: histogram(x[:, 0], coarse_edges(kind))


FINE_EDGES = np.linspace(-8.0, 8.0, 9)

_BOTH = "epsilon and delta are of different values, and no pair moves both"
_STEPS = f"{_BOTH}; the bound of several steps takes the worst of each"


def chosen(tight: Any, law: Any, at: float, neighbours: Any = LETTERS, **how: Any) -> LawRow:
    return LawRow("domains", (f"{FREQUENT} of *",), neighbours, tight, law=law, at=(at,), **how)


ROWS = [
    SumRow("domains", (f"{COARSE} of *",), NUMBERS, FAR_APART, sums=cells("numbers")),
    SumRow("domains", (f"{COARSE} of *",), NUMBERS, FAR_APART, sums=cells("days")),
    SumRow("domains", (f"{FINE} of *",), NUMBERS, FAR_APART, sums=lambda x: histogram(x[:, 0], FINE_EDGES)),
    chosen(ALONE, selected(1.0, 1e-3), 1.0, relations=("add_remove",)),
    chosen(ALONE, selected(1.0, 1e-3), 1.0, relations=("replace_one",), reaches=0.37, why=_STEPS),
    chosen(many, selected(0.2, 0.02), 0.1, relations=("add_remove",), reaches=0.6, why=_BOTH),
    chosen(many, selected(0.2, 0.02), 0.1, relations=("replace_one",), reaches=0.34, why=_STEPS),
    chosen(of_nobody_else, selected(1.0, 1e-3, M), 1.0, of_people, reaches=0.14, why=_STEPS),
]
