r"""Dyadic intervals of [0, N): those with many records, and the exponential mechanism over all of them.

The dyadic intervals of [N] on which the data or a model put many records, found from the top down.

The exponential mechanism over all dyadic intervals of [N], $2^{61}$ of them at N = 10^18, drawn exactly.

The score of an interval is $|c(J) - A(J)|$, also where it holds no record. Only intervals with many records, or much of
the model, are listed. The others are proposed from three lumps that together hold each of them exactly once:

- no record and no *mark* of the model (every 1/rate of its mass has one): the number of a node, ceiling rate * spacing;
- a record: a record and a level, when it is the first record of its interval;
- a mark and no record: a mark and a level, when it is the first mark of its interval.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numba
import numpy as np

from dpgen.privacy.mechanisms import Secrets
from dpgen.privacy.selection import exponential_event, exponential_mechanism
from dpgen.systems.ordered.knots import SCORE, Integers, MonotoneCounts, Reals

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# -- dyadic cells ------------------------------------------------------------------------------------------------------


_compile = numba.njit(nogil=True, cache=True)


def levels(N: int) -> int:
    """Levels of the dyadic tree over [N], the root included: the least L + 1 with 2^L >= N.

    >>> levels(2), levels(10**18)
    (2, 61)
    """
    return (N - 1).bit_length() + 1


@dataclass(frozen=True)
class HeavyCells:
    """Dyadic intervals with many records or much of the model, (m,) each: level (0 is all of [N]), first point, scores.

    `ranks` (m, 2) are the numbers of records below the interval's ends; `scores` (m,) are |count - model| in float64.
    """

    level: Integers
    start: Integers
    ranks: Integers
    scores: Reals

    def stops(self, cells: "DyadicCells") -> Integers:
        """Ends (m,) of the intervals, cut at N."""
        return np.minimum(self.start + (1 << (cells.depth - self.level)), cells.N)


@_compile
def _at(x: int, positions: Integers, counts: Reals) -> float:
    if x >= positions[-1]:
        return counts[-1]
    i = np.searchsorted(positions, x, side="right") - 1
    share = np.float64(x - positions[i]) / np.float64(positions[i + 1] - positions[i])
    return counts[i] + share * (counts[i + 1] - counts[i])


@_compile
def _rank(values: Integers, x: int, low: int, high: int) -> int:
    """Number of values below x, known to be in [low, high]."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low


@_compile
def _split_ranks(values: Integers, depth: int, least: float, tree: Integers) -> int:
    """Fill tree (m, 3) with (rank of the middle, left child, right child) of cells of at least `least` records.

    Children with fewer are -1. Returns the number of cells, beyond m if there is no room.
    """
    room = tree.shape[0]
    stack = np.empty((2 * depth + 4, 5), np.int64)  # start, level, low, high, link
    stack[0] = (0, 0, 0, values.size, -1)
    top, used = 1, 0
    while top:
        top -= 1
        start, level, low, high, link = stack[top]
        if used >= room:
            return room + 1
        here = used
        used += 1
        if link >= 0:
            tree[link // 2, 1 + link % 2] = here
        tree[here] = (low, -1, -1)
        if level < depth:
            half = 1 << (depth - level - 1)
            middle = _rank(values, start + half, low, high)
            tree[here, 0] = middle
            if high - middle >= least:
                stack[top] = (start + half, level + 1, middle, high, 2 * here + 1)
                top += 1
            if middle - low >= least:
                stack[top] = (start, level + 1, low, middle, 2 * here)
                top += 1
    return used


@_compile
def _expand(
    values: Integers,
    depth: int,
    least: float,
    tree: Integers,
    positions: Integers,
    counts: Reals,
    cells: Integers,
    scores: Reals,
) -> int:
    """Fill cells (m, 4) and scores with every dyadic interval of max(count, model) >= least; returns their number."""
    room, end = cells.shape[0], positions[-1]
    stack, ends = np.empty((2 * depth + 4, 5), np.int64), np.empty((2 * depth + 4, 2))
    stack[0], ends[0] = (0, 0, 0, values.size, 0), (0.0, counts[-1])
    top, used = 1, 0
    while top:
        top -= 1
        start, level, low, high, node = stack[top]
        below, upto = ends[top]
        if used >= room:
            return room + 1
        cells[used] = (level, start, low, high)
        scores[used] = abs((high - low) - (upto - below))
        used += 1
        if level == depth:
            continue
        middle = start + (1 << (depth - level - 1))
        rank = tree[node, 0] if node >= 0 else _rank(values, middle, low, high)
        left, right = (tree[node, 1], tree[node, 2]) if node >= 0 else (-1, -1)
        model = _at(middle, positions, counts)
        if middle < end and max(high - rank, upto - model) >= least:
            stack[top], ends[top] = (middle, level + 1, rank, high, right), (model, upto)
            top += 1
        if max(rank - low, model - below) >= least:
            stack[top], ends[top] = (start, level + 1, low, rank, left), (below, model)
            top += 1
    return used


class DyadicCells:
    """Heavy dyadic intervals of sorted values, for one model after another; the data's own splits are found once.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        N: domain size, at least 2.
        least: an interval is heavy when it holds at least so many records, or the model says so; > 0.
    """

    def __init__(self, values: Integers, *, N: int, least: float) -> None:
        if not least > 0:
            raise ValueError(f"least is {least!r}; it must be > 0")
        self.values, self.N, self.least, self.depth = values, N, least, levels(N) - 1
        room = 1024
        while True:
            tree = np.empty((room, 3), np.int64)
            used = _split_ranks(values, self.depth, least, tree)
            if used <= room:
                break
            room *= 4
        self._tree, self._room = tree[:used].copy(), 4 * used + 1024

    def heavy(self, model: MonotoneCounts) -> HeavyCells:
        """All heavy intervals, the whole domain always among them."""
        while True:
            cells, scores = np.empty((self._room, 4), np.int64), np.empty(self._room)
            used = _expand(self.values, self.depth, self.least, self._tree, model.positions, model.counts, cells, scores)
            if used <= self._room:
                cells = cells[:used]
                return HeavyCells(cells[:, 0].copy(), cells[:, 1].copy(), cells[:, 2:].copy(), scores[:used].copy())
            self._room *= 4


# -- dyadic selection --------------------------------------------------------------------------------------------------


_LUMPS = 3
_SPACING = 1.0  # of marks, in units of 1/rate
_CEILINGS = (2.0, 20.0)  # least and largest exponent of intervals that are not listed


def interval_score(ranks: Integers, start: int, stop: int, model: MonotoneCounts) -> Fraction:
    """|count - A(stop) + A(start)| without rounding beyond that of the public model."""
    return abs(int(ranks[1] - ranks[0]) - Fraction(model.one(stop) - model.one(start)))


class DyadicSelection:
    """Draws dyadic intervals J with probability proportional to exp(rate |c(J) - A(J)|), exactly.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        N: domain size, at least 2.
        rate: lambda, per record.
        zcdp: account for draws by zCDP rather than by a pure guarantee.

    >>> from dpgen.privacy.curator import Curator
    >>> from dpgen.privacy.ledger import Ledger
    >>> curator, model = Curator(Ledger(None, delta=1e-6)), MonotoneCounts(np.array([0, 8]), np.array([0.0, 100.0]))
    >>> curator.release("interval", DyadicSelection(np.full(100, 2), N=8, rate=10.0).given(model))
    [(2, 3)]
    """

    def __init__(self, values: Integers, *, N: int, rate: float, zcdp: bool = False) -> None:
        self.values, self.N, self.rate, self.zcdp = values, N, rate, zcdp
        low, high = _CEILINGS
        # So large that a lump of records with this ceiling weighs less than all the empty intervals.
        depth = (N - 1).bit_length()
        free = math.log(2) * depth - math.log(4 * (depth + 1) * max(1, values.size))
        self.cells = DyadicCells(values, N=N, least=min(high, max(low, free)) / rate)
        self._depth = depth

    def given(self, model: MonotoneCounts) -> "DyadicDraw":
        """The draw for one public model."""
        return DyadicDraw(self, model)


class DyadicDraw:
    """One draw of `DyadicSelection`, a mechanism for `Curator.release`: the listed intervals and the lumps of the others."""

    def __init__(self, selection: DyadicSelection, model: MonotoneCounts) -> None:
        self.values, self.N, self.depth = selection.values, selection.N, selection._depth
        self.rate, self.least, self.zcdp = selection.rate, selection.cells.least, selection.zcdp
        self.model = model
        self.heavy: HeavyCells = selection.cells.heavy(model)
        self.spacing = _SPACING / self.rate
        self.marks = int(model.counts[-1] / self.spacing) + 1

    @property
    def event(self) -> "DpEvent":
        """What one draw costs."""
        return exponential_event(self.rate, SCORE, zcdp=self.zcdp)

    def draw(self, secrets: Secrets, count: int = 1) -> list[tuple[int, int]]:
        """Ends (start, stop) of an interval, start <= x < stop, `count` times."""
        return [self._interval(secrets) for _ in range(count)]

    def _interval(self, secrets: Secrets) -> tuple[int, int]:
        sizes = np.ones(_LUMPS + self.heavy.level.size, np.uint64)
        everything = self.depth + 1
        sizes[:_LUMPS] = 2**everything - 1, self.values.size * everything, self.marks * everything
        lumps = np.array([self.spacing, self.least, self.least])
        ceilings = self.rate * np.concatenate([lumps, self.heavy.scores])
        block, number = exponential_mechanism(secrets, sizes, ceilings, self.log_weight)
        found = self._node(block, number)
        assert found is not None  # log_weight has accepted it
        level, start = found
        return start, self._stop(level, start)

    def _stop(self, level: int, start: int) -> int:
        return min(self.N, start + (1 << (self.depth - level)))

    def log_weight(self, block: int, number: int) -> Fraction | None:
        """rate * score of a proposal, None for those that are listed, proposed by another lump, or outside [N]."""
        node = self._node(block, number)
        if node is None:
            return None
        level, start = node
        stop = self._stop(level, start)
        ranks = np.searchsorted(self.values, [start, stop])
        if block < _LUMPS and not self._proposed_here(block, number, level, start, stop, ranks):
            return None
        return Fraction(self.rate) * interval_score(ranks, start, stop, self.model)

    def _node(self, block: int, number: int) -> tuple[int, int] | None:
        """(level, start) of a proposal."""
        if block >= _LUMPS:
            return int(self.heavy.level[block - _LUMPS]), int(self.heavy.start[block - _LUMPS])
        if block == 0:
            level = (number + 1).bit_length() - 1
            start = (number + 1 - (1 << level)) << (self.depth - level)
            return (level, start) if start < self.N else None
        item, level = divmod(number, self.depth + 1)
        point = int(self.values[item]) if block == 1 else self.mark(item)
        return level, point >> (self.depth - level) << (self.depth - level)

    def _proposed_here(self, block: int, number: int, level: int, start: int, stop: int, ranks: Integers) -> bool:
        if ((self.heavy.start == start) & (self.heavy.level == level)).any():
            return False
        if block == 1:
            return number // (self.depth + 1) == ranks[0]
        if ranks[0] != ranks[1]:
            return False
        first = self.first_mark(start)
        if block == 2:
            return number // (self.depth + 1) == first
        return first is None or self.mark(first) >= stop

    def mark(self, j: int) -> int:
        """Mark number j: the last point x of [N] below which the model has at most j * spacing records."""
        target = j * self.spacing
        i = int(np.searchsorted(self.model.counts, target, side="right")) - 1
        if i >= self.model.counts.size - 1:
            return self.N - 1
        left, right = int(self.model.positions[i]), int(self.model.positions[i + 1])
        low, high = float(self.model.counts[i]), float(self.model.counts[i + 1])
        return min(self.N - 1, right - 1, left + int((right - left) * ((target - low) / (high - low))))

    def first_mark(self, start: int) -> int | None:
        """Number of the first mark at or after `start`; marks do not decrease."""
        j = min(self.marks, int(self.model.one(start) / self.spacing))
        while j > 0 and self.mark(j - 1) >= start:
            j -= 1
        while j < self.marks and self.mark(j) < start:
            j += 1
        return j if j < self.marks else None
