r"""Exact sums over people with their rows: every person counts for one in every table, however many rows they have.

Rows hang on a person, or on a row of another table: a tree of tables. A table that is measured counts single values, or pairs
of them: of a person, of a row and what it hangs on, of one row, of a position and a row, of an earlier and a later row, of a
row and the next one. A person gives every instance of it the same whole number of parts of :math:`2^{20}`, so that all
instances of a person together have no more than :math:`2^{20}`, a whole:

| table | instances of a person | parts of each |
|---|---|---|
| `people`: two columns of the person, or `one` | 1 | 2^20 |
| `one`, `both`, `row`, `place`: rows that exist, r of them | r | floor(2^20 / r) |
| `pair`: earlier and later of r rows | r (r - 1) / 2 | floor(2^21 / (r (r - 1))) |
| `next`: successive ones of r rows | r - 1 | floor(2^20 / (r - 1)) |

Rows that hang on a row share the part of that row, whether or not others have any: the 2^20 is divided by the numbers of rows
on all levels above, too. A table with a column of a row above counts rows of this row's span alone on its level.

The parts of a person are a function of that person's own rows. They are non-negative and add up to at most one whole, so a
table has L1 and L2 sensitivity 1 when a person comes or goes; for another person in their place
:math:`|u - v|^2 \le |u|^2 + |v|^2`, so the L2 sensitivity is :math:`\sqrt 2`.

Columns of rows exist in all rows, in the `first` row alone, or in the `later` ones, from the second on (time since the last
row).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from dpgen.privacy.exact_sums import WHOLE, BoundedSum
from dpgen.systems.tables.marginals import SCALE, Coarsening

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Span = Literal["all", "later", "first"]
Stack = str
"""Columns that are counted together: `person`, `unit`, and a span or `position` of a table of rows, as in "later 2"."""
Level = tuple[Coarsening, ...]
"""Groups of the codes of the columns of all tables, people's first."""
Block = tuple[str, Stack, Stack]
"""A kind of table, and the stacks of columns of its two sides."""

SPANS: tuple[Span, ...] = ("all", "later", "first")
_INSIDE = (("all", "all"), ("all", "later"), ("all", "first"), ("later", "later"), ("first", "first"))
_ACROSS = (("all", "all"), ("all", "later"), ("later", "all"), ("later", "later"))
_PEOPLE = 2**13  # that are counted together, of at most 10 rows; fewer of more, as pairs of rows grow with their square


def in_spans(spans: Sequence[str]) -> list[int]:
    """Numbers of the columns of a table of rows in the order in which they are counted: by their spans."""
    return [c for span in SPANS for c, own in enumerate(spans) if own == span]


def stack_of(name: str, number: int) -> Stack:
    """The stack of a span, or of positions, of the rows of a table; that of the first one has no number."""
    return name if number == 1 else f"{name} {number}"


def place_of(stack: Stack) -> tuple[int, str]:
    """Number of the table of a stack, 0 for people, and its span."""
    name, _, number = stack.partition(" ")
    return (0, "all") if name in ("person", "unit") else (int(number or 1), name)


def lines_of(people: Integers, starts: Sequence[Integers], shape: Shape) -> tuple[list[Integers], list[Integers]]:
    """Numbers of the lines of some people, each as often as it is listed, in all tables, and where their rows begin there."""
    listed, begins = [people], list[Integers]()
    for at, branch in zip(starts, shape.tables):
        above = listed[branch.parent]
        counts = np.diff(at)[above]
        ends = counts.cumsum()
        listed.append(np.repeat(at[above] - ends + counts, counts) + np.arange(int(counts.sum())))
        begins.append(np.r_[0, ends].astype(np.int64))
    return listed, begins


@dataclass(frozen=True, eq=False)
class Histories:
    """People and their rows in order of time as codes of any whole type, PRIVATE.

    `people` (n, a) have numbers of rows, less the least possible one, among their columns. `rows` (r, b) are of each table;
    those of one person, or of one row above, lie together, in order of time, and begin at `starts`.
    """

    people: npt.NDArray[Any]
    rows: Sequence[npt.NDArray[Any]]
    starts: Sequence[Integers]

    def parts(self, shape: Shape, together: int = _PEOPLE) -> Iterator[Histories]:
        """Parts of these people, at most so many at a time."""
        pairs = max((shape.together(i) * branch.most for i, branch in enumerate(shape.tables, 1)), default=1)
        together = max(1, min(together, 100 * _PEOPLE // pairs))
        for first in range(0, len(self.people), together):
            ends, rows, starts = [(first, min(first + together, len(self.people)))], [], []
            for own, codes, branch in zip(self.starts, self.rows, shape.tables):
                above = own[ends[branch.parent][0] : ends[branch.parent][1] + 1]
                ends.append((int(above[0]), int(above[-1])))
                rows.append(codes[above[0] : above[-1]].astype(np.int64))
                starts.append(above - above[0])
            yield Histories(self.people[slice(*ends[0])].astype(np.int64), rows, starts)

    def grouped(self, tables: Sequence[Coarsening]) -> Histories:
        """These people and rows as groups of their codes."""
        found = []
        for codes, coarse in zip((self.people, *self.rows), tables):
            kind = np.min_scalar_type(max(coarse.sizes))
            found.append(np.stack([group.astype(kind)[codes[:, c]] for c, group in enumerate(coarse.groups)], axis=1))
        return Histories(found[0], found[1:], self.starts)

    def chosen(self, people: Integers, shape: Shape) -> Histories:
        """Some of the people, each as often as it is listed, with all of their rows."""
        lines, starts = lines_of(people, self.starts, shape)
        return Histories(self.people[people], [own[at] for own, at in zip(self.rows, lines[1:])], starts)

    def of_people(self, number: int, shape: Shape) -> Integers:
        """Beginnings (n + 1,) of the rows of each person in a table."""
        branch = shape.tables[number - 1]
        return self.starts[number - 1][self.of_people(branch.parent, shape)] if branch.parent else self.starts[number - 1]


@dataclass(frozen=True)
class Branch:
    """Public facts of a table of rows."""

    sizes: tuple[int, ...]  # of the columns, those of the span `all` first, then `later`, then `first`
    spans: tuple[str, ...]
    most: int  # m, rows of a person, or of a row above
    parent: int = 0  # number of the table that the rows hang on; 0 is that of people
    count: int = -1  # which column of that table is the number of rows


@dataclass(frozen=True)
class Shape:
    """Public facts of linked tables."""

    people: tuple[int, ...]  # sizes of the columns of people
    tables: tuple[Branch, ...]  # of rows, each after the one that it hangs on; their numbers begin with 1

    def of(self, number: int) -> tuple[int, ...]:
        """Sizes of the columns of a table."""
        return self.tables[number - 1].sizes if number else self.people

    def least(self, number: int) -> int:
        """Rows of a person, or of a row above, at least: 0 or 1."""
        branch = self.tables[number - 1]
        return branch.most + 1 - self.of(branch.parent)[branch.count]

    def together(self, number: int) -> int:
        """Rows of one person in a table at most."""
        return self.tables[number - 1].most * self.together(self.tables[number - 1].parent) if number else 1

    def above(self, number: int) -> list[int]:
        """The tables that the rows of a table hang on, the nearest one first; people come last."""
        parent = self.tables[number - 1].parent if number else -1
        return [parent, *self.above(parent)] if number else []

    def columns(self, stack: Stack) -> list[int]:
        """Numbers of the columns of a stack in their table."""
        number, span = place_of(stack)
        if span == "position" or stack == "unit":
            return [0]
        return (
            [c for c, own in enumerate(self.tables[number - 1].spans) if own == span] if number else [*range(len(self.people))]
        )

    def sizes(self, stack: Stack) -> list[int]:
        """Sizes of the columns of a stack."""
        number, span = place_of(stack)
        if span == "position" or stack == "unit":
            return [self.tables[number - 1].most if number else 1]
        return [self.of(number)[c] for c in self.columns(stack)]

    def stacks(self, number: int) -> list[Stack]:
        """Stacks of the columns of a table."""
        return [stack_of(span, number) for span in SPANS] if number else ["person"]

    def grouped(self, level: Level) -> Shape:
        """The shape of groups of the codes."""
        people, *rows = (own.sizes for own in level)
        return Shape(people, tuple(replace(branch, sizes=sizes) for branch, sizes in zip(self.tables, rows)))

    def sums(self, stack: Stack, level: Level) -> npt.NDArray[np.float32]:
        """Sums over groups of the columns of a stack, 0 or 1: (groups, codes)."""
        number, span = place_of(stack)
        if span == "position" or stack == "unit":
            return np.eye(self.sizes(stack)[0], dtype=np.float32)
        coarse, chosen = level[number], self.columns(stack)
        return Coarsening(tuple(coarse.groups[c] for c in chosen), tuple(coarse.sizes[c] for c in chosen)).matrix()

    @property
    def blocks(self) -> list[Block]:
        """Tables of single columns, and of every two, by kind and stacks."""
        found: list[Block] = [("one", "person", "unit"), ("people", "person", "person")]
        for number, branch in enumerate(self.tables, 1):
            own = self.stacks(number)
            found += [("one", stack, "unit") for stack in own]
            for above in reversed(self.above(number)):
                found += [("both", left, right) for left in self.stacks(above) for right in own]
            found += [("row", stack_of(left, number), stack_of(right, number)) for left, right in _INSIDE]
            if branch.most > 1:
                found.append(("place", stack_of("position", number), stack_of("all", number)))
                across = [(stack_of(left, number), stack_of(right, number)) for left, right in _ACROSS]
                found += [(kind, left, right) for kind in ("pair", "next") for left, right in across]
        return [block for block in found if self.columns(block[1]) and self.columns(block[2])]


# -- tables ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table that can be measured: its block, the two columns, counted in their stacks, and the level of their groups."""

    block: Block
    left: int
    right: int
    level: int


@dataclass(frozen=True, eq=False)
class Layout:
    """Places of the cells of all tables in one vector, of counts as of laws: blocks of level 0, then of level 1, ..."""

    shape: Shape  # at level 0
    levels: tuple[Level, ...]  # groups of these codes; the first one keeps all of them

    def flat(self, blocks: Mapping[Block, Reals]) -> Reals:
        """One vector of blocks at level 0 and their sums over groups; exact for whole numbers below 2^53."""
        found = []
        for level in self.levels:
            for block in self.shape.blocks:
                left, right = (self.shape.sums(stack, level).astype(np.float64) for stack in block[1:])
                found.append((left @ blocks[block] @ right.T).ravel())
        return np.concatenate(found)

    def bags(self, stack: Stack, place: int, level: int) -> list[Integers]:
        """The codes of each group of a column of a stack, counted in the stack."""
        (number, span), sizes = place_of(stack), self.shape.sizes(stack)
        codes = sum(sizes[:place]) + np.arange(sizes[place])
        if span == "position" or stack == "unit":
            return list(codes[:, None])
        groups = self.levels[level][number].groups[self.shape.columns(stack)[place]]
        return [codes[groups == group] for group in range(int(groups.max()) + 1)]

    def cells(self, table: Table) -> Integers:
        """Places (left groups, right groups) of the cells of a table."""
        begin = 0
        for number, level in enumerate(self.levels):
            shape = self.shape.grouped(level)
            for block in shape.blocks:
                left, right = shape.sizes(block[1]), shape.sizes(block[2])
                if (block, number) == (table.block, table.level):
                    rows = sum(left[: table.left]) + np.arange(left[table.left])
                    columns = sum(right[: table.right]) + np.arange(right[table.right])
                    return begin + rows[:, None] * sum(right) + columns[None]
                begin += sum(left) * sum(right)
        raise KeyError(table)

    def table_cells(self, table: Table) -> Integers:
        """Cells of a table as its values have them: of single columns (groups,)."""
        return self.cells(table)[:, 0] if table.block[0] == "one" else self.cells(table)

    def tables(self, level: int) -> list[Table]:
        """All tables of two columns at one level: of one person or row once, and no column with itself there."""
        found = list[Table]()
        for block in self.shape.blocks:
            kind, left, right = block
            same = kind in ("people", "row") and left == right
            for i in range(len(self.shape.columns(left))):
                found += [
                    Table(block, i, j, level)
                    for j in range(i + 1 if same else 0, len(self.shape.columns(right)) * (kind != "one"))
                ]
        return found


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Released sums of linked tables: tables of a layout, each with its values and noise stds.

    `counted` are the number of people, and of people, or rows above, with each number of rows in each table, with noise stds.
    """

    layout: Layout
    tables: Sequence[tuple[Table, Reals, Any]]
    counted: Sequence[tuple[Any, Any]]


# -- counts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Instances:
    """Instances of a table: codes (i, columns) of both sides, and the parts (i,) of a whole that each has of its person."""

    left: Integers
    right: Integers
    parts: Integers


def instances(data: Histories, shape: Shape, block: Block) -> Instances:
    """All instances of a block, with parts that are a function of the numbers of rows of their own person."""
    kind, left, right = block
    if left == "person" and kind != "both":
        whole = np.full(len(data.people), WHOLE, np.int64)
        return Instances(data.people, data.people if kind == "people" else np.zeros((len(whole), 1), np.int64), whole)
    (above, _), (number, _) = place_of(left), place_of(left if kind == "one" else right)
    of_left, of_right = shape.columns(left), shape.columns(right)
    codes, starts, counts = data.rows[number - 1], data.starts[number - 1], np.diff(data.starts[number - 1])
    owner = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(owner)) - starts[owner]
    if kind in ("one", "both", "row", "place"):
        spans = {place_of(side)[1] for side in (left, right) if place_of(side)[0] == number}
        span = "first" if "first" in spans else "later" if "later" in spans else "all"
        shares, there = _shares(data, shape, number, {number: span} | ({above: place_of(left)[1]} if kind == "both" else {}))
        rows = np.flatnonzero(there)
        parts = WHOLE // shares[rows]
        if kind == "one":
            return Instances(codes[rows][:, of_left], np.zeros((len(rows), 1), np.int64), parts)
        if kind == "both":
            return Instances(_of_above(data, shape, number, above, rows)[:, of_left], codes[rows][:, of_right], parts)
        own = place[rows][:, None] if kind == "place" else codes[rows][:, of_left]
        return Instances(own, codes[rows][:, of_right], parts)
    begin = int(
        place_of(left)[1] == "later"
    )  # the earlier of two rows is the second one at least, where its column begins there
    existing = counts - begin
    first, second = _earlier_and_later(owner, place, counts, begin, only_next=kind == "next")
    pairs = existing - 1 if kind == "next" else existing * (existing - 1) // 2
    shares, _ = _shares(data, shape, shape.tables[number - 1].parent, {})
    parts = WHOLE // (shares * np.maximum(pairs, 1))[owner[first]]
    return Instances(codes[first][:, of_left], codes[second][:, of_right], parts)


def _shares(data: Histories, shape: Shape, number: int, spans: Mapping[int, str]) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Into how many parts the whole of its person is divided, for each row of a table, and whether the row is of the spans."""
    if not number:
        return np.ones(len(data.people), np.int64), np.ones(len(data.people), bool)
    above, there = _shares(data, shape, shape.tables[number - 1].parent, spans)
    counts, span = np.diff(data.starts[number - 1]), spans.get(number, "all")
    owner = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(owner)) - data.starts[number - 1][owner]
    existing = {"all": counts, "later": counts - 1, "first": np.minimum(counts, 1)}[span]
    inside = (place == 0) if span == "first" else place >= (span == "later")
    return (above * np.maximum(existing, 1))[owner], there[owner] & inside


def _of_above(data: Histories, shape: Shape, number: int, above: int, rows: Integers) -> Integers:
    """Codes of the person, or of the row of a table above, on whom some rows hang."""
    while number != above:
        rows = np.searchsorted(data.starts[number - 1], rows, side="right") - 1
        number = shape.tables[number - 1].parent
    return np.asarray((data.rows[above - 1] if above else data.people)[rows])


def _earlier_and_later(
    owner: Integers, place: Integers, counts: Integers, begin: int, *, only_next: bool
) -> tuple[Integers, Integers]:
    """Every two rows of a person from row `begin` on, the earlier one first; or those that follow each other alone."""
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for distance in range(1, 2 if only_next else int(counts.max(initial=0))):
        rows = np.flatnonzero((place >= begin) & (place + distance < counts[owner]))
        first.append(rows)
        second.append(rows + distance)
    return np.concatenate(first), np.concatenate(second)


@dataclass(frozen=True, eq=False)
class Counts:
    """Exact sums of all tables of a layout, PRIVATE, in parts of 2^20; see the module for how far a person moves them."""

    layout: Layout
    values: Integers

    @classmethod
    def of(cls, data: Histories, layout: Layout) -> Counts:
        """The sums over all people: whole numbers, so that no order or chunk of people changes them."""
        blocks = {block: _zeros(layout.shape, block) for block in layout.shape.blocks}
        for part in data.parts(layout.shape):
            for block, total in blocks.items():
                _add(total, instances(part, layout.shape, block), layout.shape, block)
        return cls(layout, layout.flat(blocks).astype(np.int64))

    def sums(self, table: Table) -> BoundedSum:
        """The sums of one table; see the module for the sensitivity."""
        return whole_sums(self.values[self.layout.cells(table)])

    def scores(self, cells: Sequence[Integers], expected: Reals, weights: Integers, offsets: Reals) -> Integers:
        r"""Scores (tables,) of selections in units of 1 / 1024: :math:`w (|x - e|_1 - o)`, rounded before x is seen but once.

        A person moves x by at most 1 in L1. The distance in parts is cut to whole numbers of 1 / 1024 by a floor, which moves
        no two numbers of distance :math:`2^{20}` further apart than 1024: a score moves by at most 1024 w, twice that for a
        replaced person. `cells` are of each table, e are sums of a released model for all cells of the layout, w whole numbers
        and o public, both (tables,).
        """
        gaps = np.abs(self.values - np.rint(WHOLE * expected).astype(np.int64))
        distances = np.array([int(gaps[own].sum()) // (WHOLE // SCALE) for own in cells], np.int64)
        return np.asarray(weights * (distances - np.rint(SCALE * offsets).astype(np.int64)))


def whole_sums(parts: Integers) -> BoundedSum:
    """Sums of parts of which a person has a whole at most, non-negative ones: see the module."""
    values = torch.from_numpy(np.ascontiguousarray(parts))
    return BoundedSum(values, 1.0, "people", replaced=math.sqrt(2.0), step=1.0 / WHOLE, of_unit=True)


def people_count(n: int) -> BoundedSum:
    """The number of people, those without rows among them."""
    return BoundedSum(torch.tensor([n]), 1.0, "people", replaced=1.0, of_unit=True)


def single_counts(data: Histories, shape: Shape, stack: str, column: int) -> BoundedSum:
    """Sums of one column of a stack: of people, or of rows whose parts add up to a whole in each person."""
    size = shape.sizes(stack)[column]
    total = np.zeros(size, np.int64)
    for part in data.parts(shape):
        found = instances(part, shape, ("one", stack, "unit"))
        total += np.bincount(found.left[:, column], found.parts, size).astype(np.int64)
    return whole_sums(total)


def _zeros(shape: Shape, block: Block) -> Any:
    return np.zeros((sum(shape.sizes(block[1])), sum(shape.sizes(block[2]))))


def _add(total: Any, found: Instances, shape: Shape, block: Block) -> None:
    """Add the cells of every two columns to the sums of a block; whole numbers below 2^53 as float64."""
    kind, left, right = block
    sizes = shape.sizes(left), shape.sizes(right)
    starts = [np.cumsum([0, *own]) for own in sizes]
    for i, size in enumerate(sizes[0]):
        for j in range(i + 1 if kind in ("people", "row") and left == right else 0, len(sizes[1])):
            cell = found.left[:, i] * sizes[1][j] + found.right[:, j]
            counted = np.bincount(cell, found.parts, size * sizes[1][j]).reshape(size, sizes[1][j])
            total[starts[0][i] : starts[0][i + 1], starts[1][j] : starts[1][j + 1]] += counted
