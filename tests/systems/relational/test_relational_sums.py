"""Sums over people with their rows: as a slow count has them, and what the conformance table rejects."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import rows_relational as table
from conformance import SumRow, check_pairs, check_tight

from dpgen.privacy.exact_sums import WHOLE, BoundedSum
from dpgen.systems.relational import sums
from dpgen.systems.relational.sums import Branch, Counts, Histories, Instances, Layout, Shape, Table, people_count, place_of


def some_people(n: int = 40, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [table.a_person(rng) for _ in range(n)]


def slow(people: list[Any], wanted: Table) -> np.ndarray:
    """The same sums by a loop over people, rows and pairs."""
    kind, left, right = wanted.block
    sizes = table.SHAPE.sizes(left)[wanted.left], table.SHAPE.sizes(right)[wanted.right]
    total = np.zeros(sizes, np.int64)
    for own, rows in people:
        person = (*own, len(rows))
        begin = {"all": 0, "later": 1, "first": 0}

        def value(stack: str, column: int, t: int) -> int:
            if stack in ("person", "position"):
                return person[column] if stack == "person" else t  # noqa: B023
            return rows[t][table.SHAPE.columns(stack)[column]]  # noqa: B023

        if kind == "people":
            cells = [(0, 0)]
        elif kind in ("both", "row", "place"):
            first = max(begin.get(left, 0), begin.get(right, 0))
            last = 1 if "first" in (left, right) else len(rows)
            cells = [(t, t) for t in range(first, min(last, len(rows)))]
        else:
            ahead = 2 if kind == "next" else len(rows) + 1
            cells = [(s, t) for s in range(begin[left], len(rows)) for t in range(s + 1, min(s + ahead, len(rows)))]
        for s, t in cells:
            total[value(left, wanted.left, s), value(right, wanted.right, t)] += int(Fraction(WHOLE, len(cells)))
    return total


@pytest.mark.parametrize("block", table.SHAPE.blocks[4:], ids=str)
def test_sums_are_those_of_a_slow_count(block: Any) -> None:
    people = some_people()
    counts = Counts.of(table.histories(people), table.LAYOUT)
    for wanted in table.LAYOUT.tables(0):
        if wanted.block == block:
            assert np.array_equal(counts.values[table.LAYOUT.cells(wanted)], slow(people, wanted))


def slow_of_tree(people: list[table.TreePerson], block: tuple[str, str, str], left: int, right: int) -> np.ndarray:
    """Sums of prescriptions, a child of a child, by loops: a person's whole is divided by visits, then by their rows."""
    kind, above, _ = block
    stacks = [place_of(side) for side in block[1:]]
    total = np.zeros([table.TREE.sizes(side)[c] for side, c in zip(block[1:], (left, right))], np.int64)
    for own, visits, others in people:
        begin, end = {"first": (0, 1), "later": (1, 99)}.get(place_of(above)[1] if place_of(above)[0] == 1 else "", (0, 99))
        used = visits[begin:end]
        for a, later, first, below in used:
            columns = {"person": (own, len(visits), len(others)), "all": (a, len(below)), "later": (later,), "first": (first,)}

            def value(side: str, column: int, t: int) -> int:
                number, span = place_of(side)
                if number == 3:
                    return t if span == "position" else below[t][0 if span == "all" else 1]  # noqa: B023
                return columns["person" if number == 0 else span][column]  # noqa: B023

            least = max(span == "later" for number, span in stacks if number == 3)
            ahead = {"pair": len(below), "next": 2}.get(kind, 1)
            start = int(stacks[0] == (3, "later")) if kind in ("pair", "next") else int(least)
            cells = [
                (s, s + d)
                for s in range(start, len(below))
                for d in range(kind in ("pair", "next"), ahead)
                if s + d < len(below)
            ]
            for s, t in cells:
                total[value(above, left, s), value(block[2], right, t)] += int(Fraction(WHOLE, len(used) * len(cells)))
    return total


@pytest.mark.parametrize("block", [b for b in table.TREE.blocks if place_of(b[2])[0] == 3], ids=str)
def test_sums_of_rows_of_rows_are_those_of_a_slow_count(block: Any) -> None:
    """Visits without prescriptions have their share, and it is in no table."""
    rng = np.random.default_rng(1)
    people = [table.a_tree_person(rng) for _ in range(40)]
    assert any(visit[3] == [] for person in people for visit in person[1])
    counts = Counts.of(table.tree_histories(people), table.TREE_LAYOUT)
    for wanted in table.TREE_LAYOUT.tables(0):
        if wanted.block == block:
            found = counts.values[table.TREE_LAYOUT.cells(wanted)]
            assert np.array_equal(found, slow_of_tree(people, block, wanted.left, wanted.right))


def test_groups_are_sums_of_their_codes() -> None:
    counts = Counts.of(table.histories(some_people()), table.LAYOUT)
    fine = counts.values[table.LAYOUT.cells(Table(("both", "person", "all"), 1, 0, 0))]
    coarse = counts.values[table.LAYOUT.cells(Table(("both", "person", "all"), 1, 0, 1))]
    assert np.array_equal(coarse, [[fine[:2, 0].sum(), fine[:2, 1:].sum()], [fine[2, 0], fine[2, 1:].sum()]])


def test_parts_of_people_do_not_change_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    data = table.histories(some_people())
    whole = Counts.of(data, table.LAYOUT).values
    monkeypatch.setattr(sums, "_PEOPLE", 7)
    assert np.array_equal(Counts.of(data, table.LAYOUT).values, whole)


def test_people_without_rows_are_people() -> None:
    people = [((0, 0), []), ((1, 1), [table.ZERO])]
    assert people_count(len(table.histories(people).people)).values.tolist() == [2]
    counts = table.single("person", 2)(people)
    assert counts.values.tolist() == [WHOLE, WHOLE, 0, 0, 0, 0]


def with_parts(change: Any) -> Any:
    """The sums with other parts of a person's instances."""
    made = sums.instances

    def instances(data: Histories, shape: Shape, block: Any) -> Instances:
        found = made(data, shape, block)
        return replace(found, parts=change(found.parts, data, shape, block))

    return instances


def rejected(row: SumRow, relation: Any) -> bool:
    try:
        check_pairs(row, relation)
        check_tight(row, relation)
    except AssertionError:
        return True
    return False


NEXT = next(row for row in table.ROWS if row.sums is table._TABLES[10][0])
PAIR = next(row for row in table.ROWS if row.sums is table._TABLES[7][0])
ROW = next(row for row in table.ROWS if row.sums is table._TABLES[4][0])
BELOW = next(row for row in table.ROWS if row.sums is table._OF_TREE[1][0])
PAIR_BELOW = next(row for row in table.ROWS if row.sums is table._OF_TREE[8][0])


def of_one_level(parts: Any, data: Histories, shape: Shape, block: Any) -> Any:
    """What a person's visits share is given to each of them."""
    visits = np.diff(data.starts[0])
    return parts * visits.max(initial=1) if place_of(block[2])[0] == 3 else parts


FAULTS: dict[str, tuple[SumRow, Any]] = {
    "weights of rows instead of people": (ROW, lambda parts, *_: np.full_like(parts, WHOLE)),
    "k - 1 taken as k": (NEXT, lambda parts, *_: WHOLE // (WHOLE // np.maximum(parts, 1) + 1)),
    "k taken as k - 1": (ROW, lambda parts, *_: WHOLE // np.maximum(WHOLE // np.maximum(parts, 1) - 1, 1)),
    "pairs counted twice": (PAIR, lambda parts, *_: 2 * parts),
    "a child of a child counted with m of one level": (BELOW, of_one_level),
    "weights of rows of rows instead of people": (BELOW, lambda parts, *_: np.full_like(parts, WHOLE)),
    "pairs below counted twice": (PAIR_BELOW, lambda parts, *_: 2 * parts),
    "rounded up": (ROW, lambda parts, *_: parts + 1),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faulty_sums_are_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row, change = FAULTS[name]
    assert not rejected(row, "add_remove")
    monkeypatch.setattr(sums, "instances", with_parts(change))
    assert rejected(row, "add_remove")


def test_a_sensitivity_of_half_is_rejected() -> None:
    def half(people: Any) -> BoundedSum:
        return replace(ROW.sums(people), replaced=1.0)

    assert rejected(replace(ROW, sums=half), "replace_one")


def test_a_table_that_is_not_there_has_no_cells() -> None:
    with pytest.raises(KeyError):
        table.LAYOUT.cells(Table(("row", "later", "first"), 0, 0, 0))


def test_one_row_at_most_has_no_pairs() -> None:
    shape = Shape((2, 2), (Branch((3,), ("all",), 1),))
    assert {block[0] for block in shape.blocks} == {"one", "people", "both", "row"}
    assert isinstance(Layout(shape, ()), Layout)
