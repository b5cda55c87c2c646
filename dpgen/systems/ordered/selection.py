r"""Private selection of the point of [0, N) where a public model of the counts is most wrong.

With c(x) the records below a point x and A(x) the public model of them, a score is :math:`|c(x) - A(x)|`. Every draw of the
exponential mechanism is exact, at N = 10^18 as well: scores are rational numbers, a count and the model's float64 values,
and weights are worked out from these. Float64 only finds candidates, in blocks with one ceiling each, whatever their number.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numba
import numpy as np

from dpgen.privacy.mechanisms import Secrets
from dpgen.privacy.selection import exponential_event, exponential_mechanism
from dpgen.systems.ordered.counts import SCORE, Integers, MonotoneCounts, Reals

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_SPAN = 2.0  # of the finest blocks of points, in units of 1/rate
_FACTORS = (64, 8, 1)  # coarser blocks, in finest ones
_NEGLIGIBLE = 3.0  # nats: all blocks that stay coarse weigh less than e^-3 of the heaviest

_compile = numba.njit(nogil=True, cache=True)


class PointSelection:
    """Draws knots x in 1 ... N - 1 with probability proportional to exp(rate |c(x) - A(x)|), exactly.

    Between two neighbouring marks c moves by at most `span` records, and blocks are cut so that A does too: one ceiling holds
    for the block's candidates. Coarse blocks that can matter are cut into finer ones.

    >>> from dpgen.privacy.curator import Curator
    >>> from dpgen.privacy.ledger import Ledger
    >>> curator, model = Curator(Ledger(None, delta=1e-6)), MonotoneCounts(np.array([0, 8]), np.array([0.0, 100.0]))
    >>> curator.release("point", PointSelection(np.full(100, 2), N=8, rate=10.0).given(model))
    [3]
    """

    def __init__(self, values: Integers, *, N: int, rate: float, zcdp: bool = False) -> None:
        self.values, self.N, self.rate, self.zcdp = values, N, rate, zcdp
        self._span = max(1, math.floor(_SPAN / rate))
        self._marks = np.ascontiguousarray(values[:: self._span])

    @property
    def event(self) -> DpEvent:
        """Price of one draw."""
        return exponential_event(self.rate, SCORE, zcdp=self.zcdp)

    def given(self, model: MonotoneCounts) -> _PointDraw:
        """The draw for one public model."""
        return _PointDraw(self, model)

    def score(self, x: int, model: MonotoneCounts) -> Fraction:
        """|c(x) - A(x)|, without rounding; A(x) is the public number that the model computes."""
        below = int(np.searchsorted(self.values, x, side="left"))
        return abs(below - Fraction(model.one(x)))

    def blocks(self, model: MonotoneCounts) -> tuple[Integers, Reals]:
        """Blocks (m, 2) and bounds (m, 2) of their scores; together they hold each candidate once."""
        edges = model.positions.copy()
        edges[0] = 1  # nothing lies below 0, so it is no candidate
        cells = np.stack([edges[:-1], np.diff(edges)], axis=1)
        cells = cells[cells[:, 1] > 0]
        scores = np.tile([0.0, max(float(self.values.size), float(model.counts[-1]))], (cells.shape[0], 1))
        for factor in _FACTORS:
            span, marks = self._span * factor, np.ascontiguousarray(self._marks[::factor])
            cells, scores = _finer(cells, scores, self.rate, marks, span, self.values.size, (model.positions, model.counts))
        return cells, scores


class _PointDraw:
    """One draw of `PointSelection`, a mechanism for `Curator.release`."""

    def __init__(self, selection: PointSelection, model: MonotoneCounts) -> None:
        self.selection, self.model, self.event = selection, model, selection.event

    def draw(self, secrets: Secrets, count: int = 1) -> list[int]:
        """`count` knots."""
        selection = self.selection
        cells, scores = selection.blocks(self.model)
        starts, sizes = cells[:, 0], np.ascontiguousarray(cells[:, 1]).view(np.uint64)
        rate, ceilings = Fraction(selection.rate), selection.rate * scores[:, 1]

        def log_weight(block: int, number: int) -> Fraction:
            return rate * selection.score(int(starts[block]) + number, self.model)

        drawn = (exponential_mechanism(secrets, sizes, ceilings, log_weight) for _ in range(count))
        return [int(starts[block]) + number for block, number in drawn]


@_compile
def _cut(
    marks: Integers,
    span: int,
    n: int,
    ends: tuple[int, int],
    model: tuple[Integers, Reals],
    out: tuple[Integers, Reals],
    used: int,
) -> int:
    """Append blocks of the points in [ends), inside one piece of the model; returns how many there are then.

    out = (cells (m, 2): first point and number of points, scores (m, 2): least and largest possible). `marks[j]` is record
    number j * span, so c(x) lies in [j span + 1, (j + 1) span] for marks[j] < x <= marks[j + 1].
    """
    (x, right), (positions, counts), (cells, scores) = ends, model, out
    i = np.searchsorted(positions, x, side="right") - 1
    origin, low, slope = positions[i], counts[i], counts[i + 1] - counts[i]
    length = np.float64(positions[i + 1] - origin)
    j = np.searchsorted(marks, x)  # marks[j - 1] < x <= marks[j]
    while x < right:
        end = right if j == marks.size else min(right, marks[j] + 1)
        fewest, most = (0 if j == 0 else (j - 1) * span + 1), (n if j == marks.size else j * span)
        change = slope * (np.float64(end - x) / length)
        parts = max(1, min(end - x, np.int64(math.ceil(change / span))))
        width = (end - x + parts - 1) // parts
        while x < end:
            stop = min(end, x + width)
            first = low + np.float64(x - origin) / length * slope
            last = low + np.float64(stop - 1 - origin) / length * slope
            cells[used, 0], cells[used, 1] = x, stop - x
            scores[used, 0] = max(0.0, fewest - last, first - most)
            scores[used, 1] = max(most - first, last - fewest)
            used += 1
            x = int(stop)
        j += 1
        while j < marks.size and marks[j] < x:  # equal records
            j += 1
    return used


@_compile
def _finer(
    cells: Integers, scores: Reals, rate: float, marks: Integers, span: int, n: int, model: tuple[Integers, Reals]
) -> tuple[Integers, Reals]:
    """The blocks, those whose candidates can matter cut at these marks."""
    weight = np.log(cells[:, 1].astype(np.float64))
    bar = (weight + rate * scores[:, 0]).max() - math.log(weight.size) - _NEGLIGIBLE
    room = 0
    for b in range(weight.size):
        room += 1
        if weight[b] + rate * scores[b, 1] >= bar:
            spread = scores[b, 1] - scores[b, 0] if scores[b, 0] > 0 else 2 * scores[b, 1]
            ranks = np.searchsorted(marks, cells[b, 0] + cells[b, 1]) - np.searchsorted(marks, cells[b, 0])
            room += 2 * ranks + int(spread / span) + 8
    out = np.empty((room, 2), np.int64), np.empty((room, 2))
    used = 0
    for b in range(weight.size):
        if weight[b] + rate * scores[b, 1] >= bar:
            used = _cut(marks, span, n, (cells[b, 0], cells[b, 0] + cells[b, 1]), model, out, used)
        else:
            out[0][used], out[1][used] = cells[b], scores[b]
            used += 1
    return out[0][:used], out[1][:used]
