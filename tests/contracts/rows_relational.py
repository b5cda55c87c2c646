"""People and their rows: numbers of people and of rows, single columns, tables of two columns, and the choice of a table."""

from typing import Any

import numpy as np
from conformance import Law, LawRow, Pair, SumRow

from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.selection import GaussianSelection
from dpgen.systems.relational.fit import COLUMN, COUNT, MEASUREMENT, NUMBER, SELECTION
from dpgen.systems.relational.sums import Counts, Histories, Layout, Level, Shape, Table, people_count, single_counts
from dpgen.systems.tables.marginals import SCALE, Coarsening

MOST = 5
SHAPE = Shape((2, 3, MOST + 1), (3, 2, 4, 2), ("all", "all", "later", "first"), MOST)
GROUPS = Level(
    Coarsening((np.array([0, 1]), np.array([0, 0, 1]), np.arange(MOST + 1)), (2, 2, MOST + 1)),
    Coarsening((np.array([0, 1, 1]), np.arange(2), np.array([0, 0, 1, 1]), np.arange(2)), (2, 2, 2, 2)),
)
LAYOUT = Layout(SHAPE, (Level(Coarsening.full(SHAPE.people), Coarsening.full(SHAPE.rows)), GROUPS))

Person = tuple[tuple[int, ...], list[tuple[int, ...]]]
"""Codes of a person, and of the rows in order of time."""


def histories(people: list[Person]) -> Histories:
    """The data set of some people."""
    codes = np.array([(*own, len(rows)) for own, rows in people], np.int64).reshape(-1, 3)
    rows = np.array([row for _, own in people for row in own], np.int64).reshape(-1, len(SHAPE.rows))
    return Histories(codes, rows, np.cumsum([0, *(len(own) for _, own in people)]))


def a_person(rng: np.random.Generator) -> Person:
    """A person with up to m rows, often of equal values."""
    rows = [tuple(int(rng.integers(0, size)) for size in SHAPE.rows) for _ in range(rng.integers(0, MOST + 1))]
    alike = rng.random() < 0.3
    return (int(rng.integers(0, 2)), int(rng.integers(0, 3))), [rows[0]] * len(rows) if alike and rows else rows


def neighbours(rng: np.random.Generator, relation: Relation) -> Pair:
    """Some people, and one person more, less or another one with all of their rows, in another order of people."""
    common = [a_person(rng) for _ in range(rng.integers(0, 5))]
    first = [*common, a_person(rng)]
    second = common if relation == "add_remove" else [*common, a_person(rng)]
    both = [[people[i] for i in rng.permutation(len(people))] for people in (first, second)]
    return (both[0], both[1]) if rng.random() < 0.5 else (both[1], both[0])


ZERO, ONE = (0, 0, 0, 0), (2, 1, 3, 1)


def moved(count: int) -> Any:
    """A person with so many equal rows leaves, or another one with other values comes in their place."""
    own, other = ((0, 0), [ZERO] * count), ((1, 2), [ONE] * count)
    beside = ((1, 0), [ZERO, ONE, ZERO])
    return lambda relation: ([beside, own], [beside] if relation == "add_remove" else [beside, other])


def alone(relation: Relation) -> Pair:
    """The same with nobody beside them."""
    first, second = moved(4)(relation)
    return first[1:], second[1:]


def a_row_more(relation: Relation) -> Pair:
    """A person leaves, or has another number of rows."""
    return [((0, 0), [ZERO])], [] if relation == "add_remove" else [((0, 0), [])]


def counted(*block: str, left: int = 0, right: int = 0, level: int = 0) -> Any:
    """The sums of one table among all others."""
    return lambda people: Counts.of(histories(people), LAYOUT).sums(Table((block[0], block[1], block[2]), left, right, level))


def single(stack: str, column: int) -> Any:
    return lambda people: single_counts(histories(people), SHAPE, stack, column)


def number_of_people(people: list[Person]) -> BoundedSum:
    return people_count(len(histories(people).people))


def selected(people: list[Person], relation: Relation) -> Law:
    """The choice between two tables; the person of the stated pair raises the score of one and lowers that of the other."""
    counts = Counts.of(histories(people), LAYOUT)
    cells = [LAYOUT.cells(Table(block, 0, 1, 0)) for block in (("people", "person", "person"), ("row", "all", "all"))]
    expected = np.zeros(len(counts.values))
    for own, sign in zip(cells, (1.0, -1.0)):
        expected[own[0, 0]], expected[own[-1, -1]] = 40.0 * sign, -40.0 * sign
    offsets = np.array([79.5, 80.5] if relation == "add_remove" else [80.0, 80.0])
    scores = counts.scores([own.ravel() for own in cells], expected, np.ones(2, np.int64), offsets)
    mechanism = GaussianSelection(scores, 2.0, SCALE)
    return Law(mechanism.event, mechanism.log_probabilities())


_TABLES = [
    (counted("people", "person", "person", right=1), 0),
    (counted("both", "person", "all", left=1), 1),
    (counted("both", "person", "later", level=1), 2),
    (counted("both", "person", "first"), 4),
    (counted("row", "all", "all", right=1, level=1), 4),
    (counted("row", "all", "later"), 3),
    (counted("row", "all", "first"), 3),
    (counted("pair", "all", "all"), 2),
    (counted("pair", "all", "later", level=1), 2),
    (counted("pair", "later", "all"), 3),
    (counted("next", "all", "all", right=1), 2),
    (counted("next", "all", "all"), 5),
    (counted("next", "later", "later"), 3),
]

ROWS = [
    SumRow("relational", (COUNT,), neighbours, moved(0), sums=number_of_people, relations=("add_remove",)),
    SumRow("relational", (NUMBER,), neighbours, a_row_more, sums=single("person", 2)),
    *(
        SumRow("relational", (COLUMN,), neighbours, moved(4), sums=single(*of))
        for of in (("person", 1), ("all", 0), ("first", 0))
    ),
    SumRow("relational", (COLUMN,), neighbours, moved(3), sums=single("later", 0)),
    *(SumRow("relational", (MEASUREMENT,), neighbours, moved(count), sums=sums, pairs=60) for sums, count in _TABLES),
    SumRow(
        "relational",
        (MEASUREMENT,),
        neighbours,
        lambda relation: (
            [((0, 0), [ZERO])],
            [] if relation == "add_remove" else [((0, 0), [ONE])],
        ),
        sums=counted("place", "position", "all"),
        pairs=60,
    ),
    LawRow("relational", (SELECTION,), neighbours, alone, law=selected, at=(1e-6, 0.2, 0.5), pairs=60),
]
