"""The dyadic intervals of [N] on which the data or a model put many records, found from the top down."""

from dataclasses import dataclass

import numba
import numpy as np

from dpgen.systems.ordered.knots import Integers, MonotoneCounts, Reals

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
