"""Domains of columns: histograms for ranges, and the choice of frequent categories."""

from itertools import product
from typing import Any

import numpy as np
from conformance import Law, LawRow, SumRow, pairs_of

from dpgen.privacy.frequent_values import FrequentValues
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.domains import COARSE, FINE, FREQUENT, coarse_edges, counted, histogram

NUMBERS = pairs_of(lambda rng, n: rng.normal(0, 10.0 ** rng.integers(-2, 4), (n, 1)))
LETTERS = pairs_of(lambda rng, n: rng.integers(0, 3, (n, 1)))


def far_apart(relation: Relation) -> Any:
    one, other = np.array([[1.0], [5.0]]), np.array([[1.0], [-700.0]])
    return (one, one[:1]) if relation == "add_remove" else (one, other)


def alone(relation: Relation) -> Any:
    return np.array([[0], [1]]), np.array([[0]])


def many(relation: Relation) -> Any:
    return np.zeros((17, 1), int), np.zeros((16, 1), int)


def selected(epsilon: float, delta: float, stated: float | None = None) -> Any:
    """The law of the released sets of three letters."""

    def law(x: np.ndarray, relation: Relation) -> Law:
        mechanism = FrequentValues(counted([str(value) for value in x[:, 0]]), epsilon, delta)
        logs = mechanism.log_probabilities()
        chances = [np.exp(logs[letter]) if letter in logs else 0.0 for letter in "012"]
        sets = [np.prod([p if inside else 1 - p for p, inside in zip(chances, chosen)]) for chosen in product([0, 1], repeat=3)]
        with np.errstate(divide="ignore"):
            return Law(mechanism.event, np.log(np.array(sets)))

    return law


def cells(kind: Any) -> Any:
    return lambda x: histogram(x[:, 0], coarse_edges(kind))


FINE_EDGES = np.linspace(-8.0, 8.0, 9)

ROWS = [
    SumRow("domains", (f"{COARSE} of *",), NUMBERS, far_apart, sums=cells("numbers")),
    SumRow("domains", (f"{COARSE} of *",), NUMBERS, far_apart, sums=cells("days")),
    SumRow("domains", (f"{FINE} of *",), NUMBERS, far_apart, sums=lambda x: histogram(x[:, 0], FINE_EDGES)),
    LawRow(
        "domains", (f"{FREQUENT} of *",), LETTERS, alone, law=selected(1.0, 1e-3), at=(1.0,), relations=("add_remove",),
    ),
    LawRow(
        "domains",
        (f"{FREQUENT} of *",),
        LETTERS,
        many,
        law=selected(0.2, 0.02),
        at=(0.1,),
        relations=("add_remove",),
        reaches=0.6,
        why="epsilon and delta are of different values, and no pair moves both",
    ),
]  # fmt: skip
