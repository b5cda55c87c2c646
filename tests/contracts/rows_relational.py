"""People and their rows: numbers of people and of rows, single columns, tables of two columns, and the choice of a table."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from conformance import Law, LawRow, Pair, SumRow

from dpgen.columns.descriptors import field_of
from dpgen.data.linked_tables import Reference
from dpgen.data.raw_tables import Rows
from dpgen.privacy.exact_sums import WHOLE, BoundedSum
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.selection import ExponentialMechanism
from dpgen.schema import Schema
from dpgen.systems.relational.calendars import DAYS, OF_YEARS, Days, day_counts
from dpgen.systems.relational.domains import COUNT, NUMBER, WITH_ROWS
from dpgen.systems.relational.fit import COLUMN, MEASUREMENT, SELECTION
from dpgen.systems.relational.gaps import GAPS, gap_counts
from dpgen.systems.relational.hours import HOURS, hour_counts, leading
from dpgen.systems.relational.references import CHOICE, OF_DEGREES, OF_PAIRS, degree_sums, pair_score, pair_sums
from dpgen.systems.relational.row_orders import CELLS, ORDERS, Asked, cells_of, people_by_dates
from dpgen.systems.relational.rules import BREAKING, Candidate, breaking
from dpgen.systems.relational.sums import Branch, Counts, Histories, Layout, Shape, Table, people_count, single_counts
from dpgen.systems.tables.marginals import SCALE, Coarsening
from dpgen.systems.tables.rule_kinds import Candidate as RowRule
from dpgen.systems.tables.rules import TABLE, VIOLATIONS, table_counts, violations

MOST = 5
SHAPE = Shape((2, 3, MOST + 1), (Branch((3, 2, 4, 2), ("all", "all", "later", "first"), MOST),))
GROUPS = (
    Coarsening((np.array([0, 1]), np.array([0, 0, 1]), np.arange(MOST + 1)), (2, 2, MOST + 1)),
    Coarsening((np.array([0, 1, 1]), np.arange(2), np.array([0, 0, 1, 1]), np.arange(2)), (2, 2, 2, 2)),
)
LAYOUT = Layout(SHAPE, (tuple(Coarsening.full(SHAPE.of(i)) for i in (0, 1)), GROUPS))

FIELDS_OF = [
    {"joined": "date", "left": "date", "city": "string", "spent": "integer"},
    {"city": "string", "cost": "integer"},
]

Person = tuple[tuple[int, ...], list[tuple[int, ...]]]
"""Codes of a person, and of the rows in order of time."""


def histories(people: list[Person]) -> Histories:
    """The data set of some people."""
    codes = np.array([(*own, len(rows)) for own, rows in people], np.int64).reshape(-1, 3)
    rows = np.array([row for _, own in people for row in own], np.int64).reshape(-1, len(SHAPE.of(1)))
    return Histories(codes, [rows], [np.cumsum([0, *(len(own) for _, own in people)])])


def a_person(rng: np.random.Generator) -> Person:
    """A person with up to m rows, often of equal values."""
    rows = [tuple(int(rng.integers(0, size)) for size in SHAPE.of(1)) for _ in range(rng.integers(0, MOST + 1))]
    alike = rng.random() < 0.3
    return (int(rng.integers(0, 2)), int(rng.integers(0, 3))), [rows[0]] * len(rows) if alike and rows else rows


def neighbours(rng: np.random.Generator, relation: Relation, made: Any = a_person) -> Pair:
    """Some people, and one person more, less or another one with all of their rows, in another order of people."""
    common = [made(rng) for _ in range(rng.integers(0, 5))]
    first = [*common, made(rng)]
    second = common if relation == "add_remove" else [*common, made(rng)]
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


def in_days(people: list[Person]) -> BoundedSum:
    """Days of all rows, here one of their columns."""
    data = histories(people)
    return day_counts(data, SHAPE, 1, data.rows[0][:, 2], 4)


def in_whole_days(people: list[Person]) -> BoundedSum:
    """Wrong: each row of a person counts as a whole."""
    counts = np.bincount(histories(people).rows[0][:, 2], minlength=4) * WHOLE
    return replace(in_days(people), values=torch.from_numpy(counts))


def in_years(people: list[Person]) -> BoundedSum:
    """Years of all rows, as they are counted for a range, those beyond among them."""
    data = histories(people)
    years = np.array([1_850, 1_999, 2_000, 2_001])[data.rows[0][:, 2]]
    times = (years - 1970).astype("datetime64[Y]").astype("datetime64[s]")
    return Days(times, 86_400, (data, SHAPE), 1, 10.0).year_counts()


def _gaps_of(people: list[Person]) -> Days:
    """Rows whose gaps are zero, an hour, a day and some seconds by their codes, from a moment of their person on."""
    data = histories(people)
    gaps = np.array([0, 3_600, 86_400, 7])[data.rows[0][:, 2]]
    return Days(gaps.cumsum().astype("datetime64[s]"), 1, (data, SHAPE), 1, 10.0)


def in_steps(people: list[Person]) -> BoundedSum:
    """Steps of the gaps of later rows."""
    return gap_counts(_gaps_of(people))


def in_steps_of_rows(people: list[Person]) -> BoundedSum:
    """Wrong: each later row of a person counts as a whole."""
    data = histories(people)
    places = np.concatenate([np.empty(0, np.int64), *(np.arange(n) for n in np.diff(data.starts[0]))])
    held = np.array([0, 2, 1, 6])[data.rows[0][places > 0, 2]]
    return replace(in_steps(people), values=torch.from_numpy(np.bincount(held, minlength=7) * WHOLE))


def _by_hour(data: Histories, shape: Shape, number: int, column: int) -> Days:
    """Rows a day apart at 0, 6, 12 or 18 hours by their codes, but for some, five minutes after the row before."""
    codes, counts = data.rows[number - 1], np.diff(data.starts[number - 1])
    place = np.arange(len(codes)) - np.repeat(data.starts[number - 1][:-1], counts)
    day = (place - ((codes[:, 0] == 1) & (place > 0))) * 86_400 + 300 * (codes[:, 0] == 1)
    return Days((day + 21_600 * codes[:, column]).astype("datetime64[s]"), 1, (data, shape), number, 10.0)


def in_hours(people: list[Person]) -> BoundedSum:
    """Hours of the rows that do not follow within half a day."""
    return hour_counts(_by_hour(histories(people), SHAPE, 1, 2), None)


def in_hours_of_rows(people: list[Person]) -> BoundedSum:
    """Wrong: each of these rows counts as a whole."""
    days = _by_hour(histories(people), SHAPE, 1, 2)
    hours = days.times.astype(np.int64)[leading(days, None)] % 86_400 // 3_600
    return replace(in_hours(people), values=torch.from_numpy(np.bincount(hours, minlength=24) * WHOLE))


FIELDS = [
    {name: field_of({"name": name, "type": kind, "dpgen:blank": True}) for name, kind in own.items()} for own in FIELDS_OF
]
AMONG = [
    Candidate("from", 1, "day", "joined"),
    Candidate("until", 1, "day", "left"),
    Candidate("copy", 1, "city", "city"),
    Candidate("sum", 1, "cost", "spent"),
]


def as_tables(people: list[Person]) -> tuple[pd.DataFrame, Any]:
    """People whose codes are their values, and rows that have a day, a city and a cost by theirs."""
    own = np.array([codes for codes, _ in people], np.int64).reshape(-1, 2)
    rows = np.array([row for _, of in people for row in of], np.int64).reshape(-1, len(SHAPE.of(1)))
    day = np.datetime64("2020-01-02", "s")
    dates = day + own[:, 0] * np.timedelta64(1, "D")
    frame = {"joined": dates, "left": dates, "city": own[:, 1].astype(str), "spent": own[:, 1]}
    below = pd.DataFrame({"city": rows[:, 0].astype(str), "cost": rows[:, 1]})
    starts = np.cumsum([0, *(len(of) for _, of in people)])
    return pd.DataFrame(frame), SimpleNamespace(
        values=below.get,
        rows=below,
        starts=starts,
        order=("day", {"type": "date"}),
        times=day + (rows[:, 2] - 1) * np.timedelta64(1, "D"),
    )


def broken_rules(people: list[Person]) -> BoundedSum:
    """People who break an order of dates, a copy and a sum."""
    frame, table = as_tables(people)
    return breaking(frame, [table], FIELDS, AMONG)


OF_ROW = Schema.from_descriptor(
    {
        "fields": [
            {"name": name, "type": "string", "constraints": {"enum": [*"abc"], "required": True}} for name in ("city", "land")
        ]
        + [
            {"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": 3, "required": True}}
            for name in ("first", "last")
        ]
    }
)
BETWEEN = [
    RowRule({"less_equal": ["first", "last"]}, 0.5),
    RowRule({"forbidden": {"city": "a", "land": "b"}}, 0.5),
    RowRule({"follows": "land", "on": "city"}, 0.5),
]
"""Rules between the columns of rows."""
BREAKS = (0, 1, 3, 1)


def breaks_between(relation: Relation) -> Pair:
    """A person all of whose rows break each rule leaves, or somebody comes in their place who breaks none."""
    beside, own = [((0, 0), [ZERO])] * 3, ((1, 1), [BREAKS] * 4)
    return [*beside, own], beside if relation == "add_remove" else [*beside, ((0, 0), [ZERO])]


def _rows_of(people: list[Person], whole: bool) -> Rows:
    """All rows of people, or one of each: which one, a person's own codes say."""
    rows = [row for own, of in people if of for row in (of if whole else [of[sum(own) % len(of)]])]
    codes = np.array(rows, np.int64).reshape(-1, len(SHAPE.of(1)))
    texts = np.array([*"abcd"], object)[codes[:, :2]]
    return Rows(pd.DataFrame({"city": texts[:, 0], "land": texts[:, 1], "first": codes[:, 2], "last": codes[:, 3]}))


def broken_between(people: list[Person]) -> BoundedSum:
    """People whose row breaks an order, a combination and a dependency."""
    return violations(_rows_of(people, whole=False), OF_ROW, BETWEEN)


def broken_in_all_rows(people: list[Person]) -> BoundedSum:
    """Wrong: all rows of a person count at the price of one."""
    return violations(_rows_of(people, whole=True), OF_ROW, BETWEEN)


def pairs_between(people: list[Person], *, whole: bool = False) -> BoundedSum:
    """Pairs of values of the row of a person."""
    [(counts, _)] = table_counts(_rows_of(people, whole), OF_ROW, BETWEEN[-1:])
    return BoundedSum(torch.from_numpy(counts.copy()), 1.0, replaced=math.sqrt(2.0))


def pairs_in_all_rows(people: list[Person]) -> BoundedSum:
    """Wrong: pairs of values of all rows of a person."""
    return pairs_between(people, whole=True)


def broken_by_rows(people: list[Person]) -> BoundedSum:
    """Wrong: every row that breaks a copy counts, not the person."""
    frame, table = as_tables(people)
    owner = np.repeat(np.arange(len(frame)), np.diff(table.starts))
    wrong = int((table.rows["city"].to_numpy() != frame["city"].to_numpy()[owner]).sum())
    found = broken_rules(people)
    return replace(found, values=torch.cat([found.values[:2], torch.tensor([wrong]), found.values[3:]]))


def dates_move(relation: Relation) -> Pair:
    """A person with dates of all rows on one side leaves, or another one has none or other ones."""
    good: Person = ((1, 0), [])
    late: Person = ((1, 2), [(0, 0, 3, 0)] * 3)
    return [good, late], [good] if relation == "add_remove" else [good, good]


def breaks_all(relation: Relation) -> Pair:
    """A person who breaks all rules leaves, or another one comes who keeps them."""
    good: Person = ((1, 0), [])
    bad: Person = ((1, 2), [(0, 0, 0, 0), (0, 0, 3, 0)])
    return [good, bad], [good] if relation == "add_remove" else [good, good]


DATES = [Asked(1, "seen"), Asked(1, "left"), Asked(1, "kind")]


def with_dates(people: list[Person]) -> Any:
    """Rows of one day each, with dates that are before it, at it, after it or missing by their codes, and a text."""
    rows = np.array([row for _, of in people for row in of], np.int64).reshape(-1, len(SHAPE.of(1)))
    day = np.datetime64("2020-01-02", "s") + np.arange(len(rows)) * np.timedelta64(1, "D")
    seen = pd.Series(day + (rows[:, 2] - 1) * np.timedelta64(1, "D")).mask(rows[:, 0] == 1)
    below = pd.DataFrame({"seen": seen, "left": pd.Series(day - (rows[:, 2] - 2) * np.timedelta64(1, "D")), "kind": "a"})
    starts = np.cumsum([0, *(len(of) for _, of in people)])
    table = SimpleNamespace(values=below.get, starts=starts, times=day, seconds=lambda unit: 86_400)
    return SimpleNamespace(tables=[table], n=len(people), path=lambda number: [1], linking=SimpleNamespace(time_unit="day"))


def people_in_order(people: list[Person]) -> BoundedSum:
    """People by where the dates of their rows lie."""
    return people_by_dates(with_dates(people), DATES)


def rows_in_order(people: list[Person]) -> BoundedSum:
    """Wrong: each row of a person counts."""
    data, found = with_dates(people), people_in_order(people)
    each = np.diff(data.tables[0].starts)
    counts = np.stack([np.bincount(cells_of(data, one), each, CELLS) for one in DATES]).astype(np.int64)
    return replace(found, values=torch.from_numpy(counts))


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
    mechanism = ExponentialMechanism.gaussian(scores, 2.0, SCALE)
    return Law(mechanism.event, mechanism.log_probabilities())


# -- a tree of tables: visits of people with what was prescribed there, and other rows of people ---------------------------

TREE = Shape(
    (2, MOST, 3),
    (
        Branch((2, 4, 3, 2), ("all", "all", "later", "first"), MOST - 1, count=1),
        Branch((2,), ("all",), 2, count=2),
        Branch((3, 2), ("all", "later"), 3, parent=1, count=1),
    ),
)
TREE_LAYOUT = Layout(TREE, (tuple(Coarsening.full(TREE.of(i)) for i in range(4)),))

Visit = tuple[int, int, int, list[tuple[int, int]]]
"""Codes of the columns of a visit but for the number of its prescriptions, and these."""
TreePerson = tuple[int, list[Visit], list[int]]


def tree_histories(people: list[TreePerson]) -> Histories:
    """The data set of some people."""
    visits = [visit for _, own, _ in people for visit in own]
    codes = [
        [(own, len(of), len(others)) for own, of, others in people],
        [(a, len(below), later, first) for a, later, first, below in visits],
        [(value,) for *_, others in people for value in others],
        [row for *_, below in visits for row in below],
    ]
    tables = [np.array(rows, np.int64).reshape(-1, len(TREE.of(i))) for i, rows in enumerate(codes)]
    counts = [[len(of) for _, of, _ in people], [len(others) for *_, others in people], [len(below) for *_, below in visits]]
    return Histories(tables[0], tables[1:], [np.cumsum([0, *own]).astype(np.int64) for own in counts])


def a_tree_person(rng: np.random.Generator) -> TreePerson:
    """A person with up to m rows on every level, often of equal values."""
    visits: list[Visit] = []
    for _ in range(rng.integers(0, MOST)):
        below = [(int(rng.integers(0, 3)), int(rng.integers(0, 2))) for _ in range(rng.integers(0, 4))]
        visits.append((int(rng.integers(0, 2)), int(rng.integers(0, 3)), int(rng.integers(0, 2)), below))
    alike = rng.random() < 0.3
    return int(rng.integers(0, 2)), [visits[0]] * len(visits) if alike and visits else visits, [0, 1][: rng.integers(0, 3)]


def tree_neighbours(rng: np.random.Generator, relation: Relation) -> Pair:
    return neighbours(rng, relation, a_tree_person)


def tree_moved(visits: int, rows: int) -> Any:
    """A person with so many equal visits with so many equal rows each leaves, or comes with other values."""

    def person(value: int) -> TreePerson:
        return value, [(value, 2 * value, value, [(2 * value, value)] * rows)] * visits, [value, value]

    beside: TreePerson = (1, [(0, 1, 1, [(1, 0)]), (1, 0, 0, [])], [1])
    return lambda relation: ([beside, person(0)], [beside] if relation == "add_remove" else [beside, person(1)])


def tree_counted(*block: str, left: int = 0, right: int = 0) -> Any:
    table = Table((block[0], block[1], block[2]), left, right, 0)
    return lambda people: Counts.of(tree_histories(people), TREE_LAYOUT).sums(table)


def tree_single(stack: str, column: int) -> Any:
    return lambda people: single_counts(tree_histories(people), TREE, stack, column)


def tree_days(people: list[TreePerson]) -> BoundedSum:
    """Days of the rows of the lowest table."""
    data = tree_histories(people)
    return day_counts(data, TREE, 3, data.rows[2][:, 0], 3)


def tree_hours(people: list[TreePerson]) -> BoundedSum:
    """Hours of the rows of the lowest table, some of which come a minute after the row above."""
    data = tree_histories(people)
    since = np.where(data.rows[2][:, 1] == 1, 60.0, 86_400.0) if len(data.rows[2]) else np.empty(0)
    return hour_counts(_by_hour(data, TREE, 3, 0), since)


def people_with_rows(people: list[TreePerson]) -> BoundedSum:
    """As a fit counts those who have rows in the lowest table."""
    return people_count(int((np.diff(tree_histories(people).of_people(3, TREE)) > 0).sum()))


def tree_hours_moved(relation: Relation) -> Pair:
    """A person with visits of two rows each, all at one hour, leaves, or another one comes with rows at another hour."""
    visits: list[list[Visit]] = [[(0, 0, 0, [(value, 0)] * 2)] * 4 for value in (0, 2)]
    beside: TreePerson = (1, [(0, 1, 1, [(1, 0)]), (1, 0, 0, [])], [1])
    first = [beside, (0, visits[0], [])]
    return first, [beside] if relation == "add_remove" else [beside, (1, visits[1], [])]


def rows_come(relation: Relation) -> Pair:
    """A person whose visit has one row more, or a person with one."""
    person: TreePerson = (0, [(0, 0, 0, [(0, 0)])], [])
    return [person], [] if relation == "add_remove" else [(0, [(0, 0, 0, [])], [])]


# -- rows that name other people -----------------------------------------------------------------------------------------

NAMES, SENT, NAMED_BY = range(8), 3, 2
NOT_ALL = "places that are freed are not all taken by rows of one cell, nor do all degrees fall from one bin to one"
OF_BOTH = "of a person who leaves it reaches all; one who comes in their place takes from a cell to which that adds"

Sender = tuple[int, int, tuple[int, ...]]
"""Name and group of a person, and the names of those whom the rows name, at most `SENT`; they may be gone."""


def as_reference(people: list[Sender]) -> tuple[Any, Any, Any, Any]:
    """Owners, targets, hashes and groups, as a reader makes them."""
    keys = np.array([str(name) for name, *_ in people], object)
    owner = np.repeat(np.arange(len(people)), [len(named) for *_, named in people])
    named = np.array([str(other) for *_, others in people for other in others], object)
    place = np.concatenate([np.empty(0, np.int64), *(np.arange(len(named)) for *_, named in people)])
    own = Reference.of(1, "receiver", named, (owner, place), keys, b"key")
    return own.owner, own.targets, own.ranks, np.array([group for _, group, _ in people], np.int64)


def naming_pairs(people: list[Sender]) -> BoundedSum:
    owner, targets, ranks, groups = as_reference(people)
    return pair_sums(owner, targets, ranks, groups, 2, most=NAMED_BY)


def _weights(owner: Any, of: Any) -> Any:
    """Parts of a whole of each row, by how many of some rows its person has."""
    return WHOLE // np.maximum(np.bincount(owner, of, len(NAMES) + 2), 1).astype(np.int64)[owner]


def pairs_of_all(people: list[Sender]) -> BoundedSum:
    """Wrong: all rows that name a person are counted."""
    owner, targets, _, groups = as_reference(people)
    there = targets >= 0
    cells = groups[owner[there]] * 2 + groups[targets[there]]
    found = np.bincount(cells, _weights(owner, np.ones(len(owner)))[there], 4).astype(np.int64)
    return replace(naming_pairs(people), values=torch.from_numpy(found.reshape(2, 2)))


def pairs_of_named(people: list[Sender]) -> BoundedSum:
    """Wrong: a row weighs by how many rows of its person name somebody who is there, which others decide."""
    owner, targets, ranks, groups = as_reference(people)
    there = targets >= 0
    return pair_sums(owner[there], targets[there], ranks[there], groups, 2, most=NAMED_BY)


def pairs_of_rows(people: list[Sender]) -> BoundedSum:
    """Wrong: each row of a person counts as a whole."""
    owner, targets, _, groups = as_reference(people)
    there = targets >= 0
    found = np.bincount(groups[owner[there]] * 2 + groups[targets[there]], minlength=4) * WHOLE
    return replace(naming_pairs(people), values=torch.from_numpy(found.reshape(2, 2)))


def degrees_of(people: list[Sender]) -> BoundedSum:
    _, targets, _, groups = as_reference(people)
    return degree_sums(targets, len(groups), rows=SENT)


def degrees_of_one(people: list[Sender]) -> BoundedSum:
    """Wrong: as if only the person who leaves were counted elsewhere."""
    return replace(degrees_of(people), sensitivity=1.0)


def column_of_pairs(people: list[Sender], relation: Relation) -> Law:
    """The choice between the groups of people and halves of their names."""
    owner, targets, ranks, groups = as_reference(people)
    halves = np.array([name % 2 for name, *_ in people], np.int64)
    found = [pair_score(owner, targets, ranks, own, np.array([0.5, 0.5]), most=NAMED_BY) for own in (groups, halves)]
    mechanism = ExponentialMechanism.gaussian(np.array([apart for apart, _ in found]), 0.5, found[0][1])
    return Law(mechanism.event, mechanism.log_probabilities())


def naming_neighbours(rng: np.random.Generator, relation: Relation) -> Pair:
    """People who name each other and one more, less or another one, whom others keep naming."""

    def one(name: int) -> Sender:
        return (
            name,
            int(rng.integers(0, 2)),
            tuple(map(int, rng.integers(0, 4 if rng.random() < 0.5 else 8, rng.integers(0, 4)))),
        )

    if rng.random() < 0.2:
        return hub_leaves(relation)
    people = [one(name) for name in NAMES]
    gone = int(rng.integers(0, 8))
    other = [] if relation == "add_remove" else [one(gone if rng.random() < 0.5 else 9)]
    second = [*people[:gone], *people[gone + 1 :], *other]
    return (people, second) if rng.random() < 0.5 else (second, people)


def hub_leaves(relation: Relation) -> Pair:
    """One whom all name, and who names three, leaves; under the other relation one of the other group comes."""
    rest: list[Sender] = [(name, 1, (0,) * SENT) for name in NAMES if name]
    hub: Sender = (0, 0, (1, 2, 3))
    return [hub, *rest], rest if relation == "add_remove" else [*rest, (9, 1, ())]


def a_place_is_freed(relation: Relation) -> Pair:
    """One whom two name, and who names somebody for whom two of the other group wait, leaves; another one names nobody."""
    others: list[Sender] = [(1, 0, ()), (2, 0, (0,)), (3, 0, (0,)), (8, 1, (1,)), (9, 1, (1,))]
    return [(0, 0, (1,)), *others], others if relation == "add_remove" else [*others, (10, 0, ())]


def all_weigh_more(relation: Relation) -> Pair:
    """Of two whom each person names one leaves, whom all name."""
    rest: list[Sender] = [(name, 1, (0, 1 + name % 7)) for name in NAMES if name]
    return [(0, 0, (1,)), *rest], rest if relation == "add_remove" else [*rest, (9, 1, ())]


_OF_TREE = [
    (tree_counted("both", "person", "all 2"), (1, 1)),
    (tree_counted("both", "person", "all 3"), (4, 2)),
    (tree_counted("both", "person", "later 3", right=0), (4, 3)),
    (tree_counted("both", "all", "all 3"), (2, 2)),
    (tree_counted("both", "later", "all 3"), (3, 2)),
    (tree_counted("both", "first", "later 3"), (4, 2)),
    (tree_counted("row", "all", "all", right=1), (4, 2)),
    (tree_counted("row", "all 3", "later 3"), (2, 3)),
    (tree_counted("pair", "all 3", "all 3"), (4, 2)),
    (tree_counted("pair", "all 3", "later 3"), (2, 2)),
    (tree_counted("next", "all 3", "all 3"), (4, 3)),
    (tree_counted("next", "later 3", "later 3"), (4, 3)),
]
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
    *(SumRow("relational", (MEASUREMENT,), neighbours, moved(count), sums=sums, pairs=20) for sums, count in _TABLES),
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
    SumRow("relational", (NUMBER,), tree_neighbours, tree_moved(4, 2), sums=tree_single("all", 1), relations=("add_remove",)),
    SumRow("relational", (NUMBER,), tree_neighbours, rows_come, sums=tree_single("all", 1), relations=("replace_one",)),
    SumRow("relational", (BREAKING,), neighbours, breaks_all, sums=broken_rules),
    SumRow("relational", (VIOLATIONS,), neighbours, breaks_between, sums=broken_between),
    SumRow("relational", (TABLE,), neighbours, breaks_between, sums=pairs_between),
    SumRow("relational", (ORDERS,), neighbours, dates_move, sums=people_in_order),
    SumRow("relational", (DAYS,), neighbours, moved(4), sums=in_days),
    SumRow("relational", (OF_YEARS,), neighbours, moved(4), sums=in_years),
    SumRow("relational", (GAPS,), neighbours, moved(3), sums=in_steps),
    SumRow("relational", (HOURS,), neighbours, moved(4), sums=in_hours),
    SumRow("relational", (HOURS,), tree_neighbours, tree_hours_moved, sums=tree_hours),
    SumRow("relational", (DAYS,), tree_neighbours, tree_moved(4, 2), sums=tree_days),
    SumRow("relational", (WITH_ROWS,), tree_neighbours, rows_come, sums=people_with_rows),
    SumRow("relational", (COLUMN,), tree_neighbours, tree_moved(4, 2), sums=tree_single("all 3", 0)),
    SumRow("relational", (COLUMN,), tree_neighbours, tree_moved(2, 3), sums=tree_single("later 3", 0)),
    *(SumRow("relational", (MEASUREMENT,), tree_neighbours, tree_moved(*rows), sums=sums, pairs=20) for sums, rows in _OF_TREE),
    SumRow(
        "relational",
        (MEASUREMENT,),
        tree_neighbours,
        lambda relation: tree_moved(4, 1)(relation),
        sums=tree_counted("place", "position 3", "all 3"),
        pairs=60,
    ),
    SumRow("relational", (OF_PAIRS,), naming_neighbours, a_place_is_freed, sums=naming_pairs, reaches=0.5, why=OF_BOTH),
    SumRow("relational", (OF_DEGREES,), naming_neighbours, hub_leaves, sums=degrees_of, reaches=0.2, why=NOT_ALL),
    LawRow(
        "relational", (CHOICE,), naming_neighbours, hub_leaves, law=column_of_pairs, at=(1e-6, 0.1), reaches=0.01, why=NOT_ALL
    ),
    LawRow("relational", (SELECTION,), neighbours, alone, law=selected, at=(1e-6, 0.2, 0.5), pairs=60),
]
