r"""Exact sums over people with their rows: every person counts for one in every table, however many rows they have.

A table counts single values, or pairs of them: of a person, of a person and a row, of one row, of a position and a row, of an
earlier and a later row, of a row and the next one. A person gives every instance of a table the same whole number of parts of
:math:`2^{20}`, so that all instances of a person together have no more than :math:`2^{20}`, a whole:

| table | instances of a person | parts of each |
|---|---|---|
| `people`: two columns of the person, or `one` | 1 | 2^20 |
| `one`, `both`, `row`, `place`: rows that exist, r of them | r | floor(2^20 / r) |
| `pair`: earlier and later of r rows | r (r - 1) / 2 | floor(2^21 / (r (r - 1))) |
| `next`: successive ones of r rows | r - 1 | floor(2^20 / (r - 1)) |

The parts of a person are a function of that person's own rows. They are non-negative and add up to at most one whole, so a
table has L1 and L2 sensitivity 1 when a person comes or goes; for another person in their place
:math:`|u - v|^2 \le |u|^2 + |v|^2`, so the L2 sensitivity is :math:`\sqrt 2`.

Columns of rows exist in all rows, in the `first` row alone, or in the `later` ones, from the second on (time since the last
row).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from dpgen.privacy.exact_sums import WHOLE, BoundedSum
from dpgen.systems.tables.marginals import SCALE, Coarsening

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Span = Literal["all", "later", "first"]
Block = tuple[str, str, str]
"""A kind of table, and the stacks of columns of its two sides: `person`, `position`, `unit`, or a span of columns of rows."""

SPANS: tuple[Span, ...] = ("all", "later", "first")
_INSIDE = (("all", "all"), ("all", "later"), ("all", "first"), ("later", "later"), ("first", "first"))
_ACROSS = (("all", "all"), ("all", "later"), ("later", "all"), ("later", "later"))
_PEOPLE = 2**13  # that are counted together, of at most 10 rows; fewer of more, as pairs of rows grow with their square


@dataclass(frozen=True, eq=False)
class Histories:
    """People and their rows in order of time as codes, PRIVATE.

    Arguments:
        people: codes (n, a + 1) of the columns of people; the last one is the number of rows, less the least possible one.
        rows: codes (r, b); those of one person lie together, in order of time. Codes have any whole type.
        starts: (n + 1,) where the rows of each person begin.
    """

    people: npt.NDArray[Any]
    rows: npt.NDArray[Any]
    starts: Integers

    def parts(self, most: int) -> Iterator[Histories]:
        """The same people, of `most` rows, some at a time."""
        together = min(_PEOPLE, 100 * _PEOPLE // most**2)
        for first in range(0, len(self.people), together):
            starts = self.starts[first : first + together + 1]
            people, rows = self.people[first : first + together], self.rows[starts[0] : starts[-1]]
            yield Histories(people.astype(np.int64), rows.astype(np.int64), starts - starts[0])

    def grouped(self, people: Coarsening, rows: Coarsening) -> Histories:
        """The same people and rows as groups of their codes."""
        found = []
        for codes, coarse in ((self.people, people), (self.rows, rows)):
            kind = np.min_scalar_type(max(coarse.sizes))
            found.append(np.stack([group.astype(kind)[codes[:, c]] for c, group in enumerate(coarse.groups)], axis=1))
        return Histories(found[0], found[1], self.starts)


@dataclass(frozen=True)
class Shape:
    """What is public of two linked tables.

    Arguments:
        people: sizes of the columns of people; the last one is the number of rows.
        rows: sizes of the columns of rows, those of the span `all` first, then `later`, then `first`.
        spans: of the columns of rows.
        most: m, rows of a person at most.
    """

    people: tuple[int, ...]
    rows: tuple[int, ...]
    spans: tuple[Span, ...]
    most: int

    @property
    def least(self) -> int:
        """Rows of a person at least, 0 or 1."""
        return self.most + 1 - self.people[-1]

    def columns(self, stack: str) -> list[int]:
        """Numbers of the columns of a stack."""
        if stack in ("position", "unit"):
            return [0]
        return list(range(len(self.people))) if stack == "person" else [c for c, s in enumerate(self.spans) if s == stack]

    def sizes(self, stack: str) -> list[int]:
        """Sizes of the columns of a stack."""
        if stack == "position":
            return [self.most]
        if stack == "unit":
            return [1]
        sizes = self.people if stack == "person" else self.rows
        return [sizes[c] for c in self.columns(stack)]

    @property
    def blocks(self) -> list[Block]:
        """Tables of single columns, and of every two, by kind and stacks."""
        found: list[Block] = [("one", stack, "unit") for stack in ("person", *SPANS)]
        found += [("people", "person", "person"), *(("both", "person", span) for span in SPANS)]
        found += [("row", *two) for two in _INSIDE]
        if self.most > 1:
            found += [("place", "position", "all"), *((kind, *two) for kind in ("pair", "next") for two in _ACROSS)]
        return [block for block in found if self.columns(block[1]) and self.columns(block[2])]


@dataclass(frozen=True)
class Level:
    """Groups of the codes of people's and of rows' columns."""

    people: Coarsening
    rows: Coarsening

    def shape(self, full: Shape) -> Shape:
        """The shape of the groups."""
        return Shape(self.people.sizes, self.rows.sizes, full.spans, full.most)

    def matrix(self, stack: str, full: Shape) -> npt.NDArray[np.float32]:
        """Sums over groups of the columns of a stack, 0 or 1: (groups, codes)."""
        if stack == "position":
            return np.eye(full.most, dtype=np.float32)
        if stack == "unit":
            return np.ones((1, 1), np.float32)
        coarse = self.people if stack == "person" else self.rows
        chosen = full.columns(stack)
        return Coarsening(tuple(coarse.groups[c] for c in chosen), tuple(coarse.sizes[c] for c in chosen)).matrix()


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
    """Where the cells of all tables lie in one vector, of counts as of laws: blocks of level 0, then of level 1, ...

    Arguments:
        shape: at level 0.
        levels: groups of these codes; the first one keeps all of them.
    """

    shape: Shape
    levels: tuple[Level, ...]

    def flat(self, blocks: Mapping[Block, Reals]) -> Reals:
        """One vector of blocks at level 0 and their sums over groups; exact for whole numbers below 2^53."""
        found = []
        for level in self.levels:
            for block in self.shape.blocks:
                left, right = (level.matrix(stack, self.shape).astype(np.float64) for stack in block[1:])
                found.append((left @ blocks[block] @ right.T).ravel())
        return np.concatenate(found)

    def cells(self, table: Table) -> Integers:
        """Places (left groups, right groups) of the cells of a table."""
        begin = 0
        for number, level in enumerate(self.levels):
            shape = level.shape(self.shape)
            for block in shape.blocks:
                left, right = shape.sizes(block[1]), shape.sizes(block[2])
                if (block, number) == (table.block, table.level):
                    rows = sum(left[: table.left]) + np.arange(left[table.left])
                    columns = sum(right[: table.right]) + np.arange(right[table.right])
                    return begin + rows[:, None] * sum(right) + columns[None]
                begin += sum(left) * sum(right)
        raise KeyError(table)

    def table_cells(self, table: Table) -> Integers:
        """The same as the values of the table have them: of single columns (groups,)."""
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


# -- counts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Instances:
    """Instances of a table: codes (i, columns) of both sides, and the parts (i,) of a whole that each has of its person."""

    left: Integers
    right: Integers
    parts: Integers


def instances(data: Histories, shape: Shape, block: Block) -> Instances:
    """All instances of a block, with parts that are a function of the number of rows of their own person."""
    kind, left, right = block
    counts = np.diff(data.starts)
    of_left, of_right = (shape.columns(stack) for stack in (left, right))
    if left == "person" and kind != "both":
        whole = np.full(len(data.people), WHOLE, np.int64)
        return Instances(data.people, data.people if kind == "people" else np.zeros((len(whole), 1), np.int64), whole)
    owner = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(owner)) - data.starts[owner]
    if kind in ("one", "both", "row", "place"):
        span = "first" if "first" in (left, right) else "later" if "later" in (left, right) else "all"
        rows = np.flatnonzero((place == 0) if span == "first" else place >= (span == "later"))
        existing = {"all": counts, "later": counts - 1, "first": np.minimum(counts, 1)}[span]
        parts = (WHOLE // np.maximum(existing, 1))[owner[rows]]
        if kind == "one":
            return Instances(data.rows[rows][:, of_left], np.zeros((len(rows), 1), np.int64), parts)
        if kind == "both":
            return Instances(data.people[owner[rows]], data.rows[rows][:, of_right], parts)
        own = place[rows][:, None] if kind == "place" else data.rows[rows][:, of_left]
        return Instances(own, data.rows[rows][:, of_right], parts)
    begin = int(left == "later")  # the earlier of two rows is the second one at least, where its column begins there
    existing = counts - begin
    first, second = _earlier_and_later(owner, place, counts, begin, only_next=kind == "next")
    number = existing - 1 if kind == "next" else existing * (existing - 1) // 2
    parts = (WHOLE // np.maximum(number, 1))[owner[first]]
    return Instances(data.rows[first][:, of_left], data.rows[second][:, of_right], parts)


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
        for part in data.parts(layout.shape.most):
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
        replaced person.

        Arguments:
            cells: of each table.
            expected: e of all cells of the layout, sums of a released model.
            weights: w (tables,), whole numbers.
            offsets: o (tables,), public.
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
    for part in data.parts(shape.most):
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
