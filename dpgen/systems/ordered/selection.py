r"""Private selection of the point or the dyadic interval of [0, N) where a public model of the counts is most wrong.

With c the counts of records and A the public model, a score is :math:`|c(x) - A(x)|` of the records below a point x, or
:math:`|c(J) - A(J)|` of those in a dyadic interval J, also where it holds none. Every draw of the exponential mechanism is
exact, at N = 10^18 as well: scores are rational numbers, a count and the model's float64 values, and weights are worked out
from these. Float64 only finds candidates, in blocks with one ceiling each, whatever their number.

Three selections, `PointSelection`, `DyadicSelection` and `ChoosingSelection`, each with `given(model)`, a mechanism for
`Curator.release`; below them the compiled search for blocks of points and for dyadic intervals with many records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numba
import numpy as np

from dpgen.privacy.events import approximate_event
from dpgen.privacy.mechanisms import Relation, Secrets
from dpgen.privacy.selection import exponential_event, exponential_mechanism, laplace_exceeds
from dpgen.systems.ordered.counts import SCORE, Integers, MonotoneCounts, Reals, records_moved

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_SPAN = 2.0  # of the finest blocks of points, in units of 1/rate
_FACTORS = (64, 8, 1)  # coarser blocks, in finest ones
_NEGLIGIBLE = 3.0  # nats: all blocks that stay coarse weigh less than e^-3 of the heaviest
_LUMPS = 3
_SPACING = 1.0  # of marks, in units of 1/rate
_CEILINGS = (2.0, 20.0)  # least and largest exponent of intervals that are not listed
_LISTED = 5e4  # tau grows with n / 5e4 records, which bounds the number of candidates
_NEAR = 1e-3  # scores in float64, from counts below 2^40, are good to this: closer to tau exact numbers decide

_compile = numba.njit(nogil=True, cache=True)


class _Exponential:
    """The exponential mechanism over scores |c - A|.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        N: domain size, at least 2.
        rate: lambda, per record.
        zcdp: account for draws by zCDP rather than by a pure guarantee.
    """

    def __init__(self, values: Integers, *, N: int, rate: float, zcdp: bool = False) -> None:
        self.values, self.N, self.rate, self.zcdp = values, N, rate, zcdp

    @property
    def event(self) -> DpEvent:
        """Price of one draw."""
        return exponential_event(self.rate, SCORE, zcdp=self.zcdp)


class PointSelection(_Exponential):
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
        super().__init__(values, N=N, rate=rate, zcdp=zcdp)
        self._span = max(1, math.floor(_SPAN / rate))
        self._marks = np.ascontiguousarray(values[:: self._span])

    def given(self, model: MonotoneCounts) -> _PointDraw:
        """The draw for one public model."""
        return _PointDraw(self, model)

    def score(self, x: int, model: MonotoneCounts) -> Fraction:
        """|c(x) - A(x)|, without rounding; A(x) is the public number that the model computes."""
        below = int(np.searchsorted(self.values, x, side="left"))
        return abs(below - Fraction(model.one(x)))

    def _blocks(self, model: MonotoneCounts) -> tuple[Integers, Reals]:
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
        cells, scores = selection._blocks(self.model)
        starts, sizes = cells[:, 0], np.ascontiguousarray(cells[:, 1]).view(np.uint64)
        rate, ceilings = Fraction(selection.rate), selection.rate * scores[:, 1]

        def log_weight(block: int, number: int) -> Fraction:
            return rate * selection.score(int(starts[block]) + number, self.model)

        drawn = (exponential_mechanism(secrets, sizes, ceilings, log_weight) for _ in range(count))
        return [int(starts[block]) + number for block, number in drawn]


def levels(N: int) -> int:
    """Levels of the dyadic tree over [N], the root included: the least L + 1 with 2^L >= N.

    >>> levels(2), levels(10**18)
    (2, 61)
    """
    return (N - 1).bit_length() + 1


def interval_score(ranks: Integers, start: int, stop: int, model: MonotoneCounts) -> Fraction:
    """|count - A(stop) + A(start)| without rounding beyond that of the public model."""
    return abs(int(ranks[1] - ranks[0]) - Fraction(model.one(stop) - model.one(start)))


class DyadicSelection(_Exponential):
    """Draws dyadic intervals J, of which [10^18] has 2^61, with probability proportional to exp(rate |c(J) - A(J)|), exactly.

    Only intervals with many records, or much of the model, are listed. The others are proposed from three lumps that together
    hold each of them exactly once:

    - no record and no *mark* of the model (every 1/rate of its mass has one): the number of a node, ceiling rate * spacing;
    - a record: a record and a level, when it is the first record of its interval;
    - a mark and no record: a mark and a level, when it is the first mark of its interval.

    >>> from dpgen.privacy.curator import Curator
    >>> from dpgen.privacy.ledger import Ledger
    >>> curator, model = Curator(Ledger(None, delta=1e-6)), MonotoneCounts(np.array([0, 8]), np.array([0.0, 100.0]))
    >>> curator.release("interval", DyadicSelection(np.full(100, 2), N=8, rate=10.0).given(model))
    [(2, 3)]
    """

    def __init__(self, values: Integers, *, N: int, rate: float, zcdp: bool = False) -> None:
        super().__init__(values, N=N, rate=rate, zcdp=zcdp)
        low, high = _CEILINGS
        # So large that a lump of records with this ceiling weighs less than all the empty intervals.
        free = math.log(2) * (levels(N) - 1) - math.log(4 * levels(N) * max(1, values.size))
        self.cells = DyadicCells(values, N=N, least=min(high, max(low, free)) / rate)

    def given(self, model: MonotoneCounts) -> DyadicDraw:
        """The draw for one public model."""
        return DyadicDraw(self, model)


class DyadicDraw:
    """One draw of `DyadicSelection`, a mechanism for `Curator.release`: the listed intervals and the lumps of the others."""

    def __init__(self, selection: DyadicSelection, model: MonotoneCounts) -> None:
        self.event, self.model = selection.event, model
        self.values, self.N, self.rate = selection.values, selection.N, selection.rate
        self.depth, self.least = selection.cells.depth, selection.cells.least
        self.heavy: _HeavyCells = selection.cells.heavy(model)
        self.spacing = _SPACING / self.rate
        self.marks = int(model.counts[-1] / self.spacing) + 1

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


def scores_moved(levels: int, relation: Relation) -> int:
    """k: most dyadic intervals, of a tree with `levels` levels, that have another count after one change.

    The path of the record: all levels. Under replace-one two paths without their common root.

    >>> scores_moved(61, "add_remove"), scores_moved(61, "replace_one")
    (61, 120)
    """
    return 2 * (levels - 1) if records_moved(relation) == 2 else levels


@dataclass(frozen=True)
class ChoosingConstants:
    r"""The constants of one draw: what its price depends on, and the least score tau, on which it does not depend.

    Arguments:
        test_rate: :math:`\epsilon_1`.
        draw_rate: :math:`\epsilon_2`.
        above: :math:`Q_0 - \tau` > 0.
        beyond: :math:`\theta - Q_0`.
        least: :math:`\tau`.
    """

    test_rate: float
    draw_rate: float
    above: float
    beyond: float
    least: float = 1.0

    @classmethod
    def of(cls, epsilon: float, delta: float, *, moved: int) -> ChoosingConstants:
        r"""The lowest threshold for a draw of (epsilon, delta), with the best :math:`\epsilon_1 : \epsilon_2`; k = `moved`.

        Raises:
            ValueError: epsilon not > 0 or delta outside (0, 1/2).

        >>> constants = ChoosingConstants.of(0.1, 1e-6, moved=120)
        >>> [round(value, 9) for value in constants.guarantee(120)]
        [0.1, 1e-06]
        """
        if not (0 < epsilon < math.inf and 0 < delta < 0.5):
            raise ValueError(f"epsilon is {epsilon!r} and delta is {delta!r}; choosing needs epsilon > 0 and delta in (0, 0.5)")
        log_gamma = min(math.log(delta) - epsilon / 2, math.log(epsilon / 2))
        rest = epsilon - math.exp(log_gamma)
        test_cost, draw_cost = -math.log(2 * delta), 2 * (math.log(moved) - log_gamma)
        share = math.sqrt(test_cost) / (math.sqrt(test_cost) + math.sqrt(draw_cost))
        test_rate, draw_rate = share * rest, (1 - share) * rest
        return cls(test_rate, draw_rate, draw_cost / draw_rate, test_cost / test_rate)

    def for_size(self, size: float) -> ChoosingConstants:
        """The same draw, at the same price, for a public or noisy number of records: tau is max(1, size / 50 000)."""
        return replace(self, least=max(1.0, size / _LISTED))

    @property
    def threshold(self) -> float:
        """Theta, in records."""
        return self.least + self.above + self.beyond

    def guarantee(self, moved: int) -> tuple[float, float]:
        """(epsilon, delta) of one draw when a change of the data moves `moved` scores; see `ChoosingSelection`."""
        gamma = moved * math.exp(-self.draw_rate * self.above / 2)
        passes = math.exp(-self.test_rate * self.beyond) / 2
        return self.test_rate + self.draw_rate + gamma, max(gamma * math.exp(self.draw_rate / 2), passes)

    def event(self, moved: int) -> DpEvent:
        """Price of one draw when a change of the data moves `moved` scores."""
        return approximate_event(*self.guarantee(moved))


class ChoosingSelection:
    r"""Draws dyadic intervals with large errors, or nothing when no error is surely large.

    The choosing mechanism (Beimel, Nissim, Stemmer 2013) in a form that holds for the scores of the maximum error rule.
    Published: draw among the candidates with score >= 1 after a noisy test of the largest score; the proof needs scores that
    are 0 on the empty data set and grow with it. $|c(J) - A(J)|$ does neither. All that is used here is that one change of the
    data moves at most k scores, each by at most 1:

    1. stop unless $\max(q_\max, \tau) + \mathrm{Lap}(1/\epsilon_1) \ge \theta$;
    2. draw J among $\{q \ge \tau\}$ with probability proportional to $e^{\epsilon_2 q(J) / 2}$.

    For any $Q_0 > \tau$ and $\gamma = k e^{-\epsilon_2 (Q_0 - \tau) / 2}$ this is
    $(\epsilon_1 + \epsilon_2 + \gamma, \delta)$-DP with
    $\delta = \max(\gamma e^{\epsilon_2 / 2}, e^{-\epsilon_1 (\theta - Q_0)} / 2)$. If $q_\max < Q_0$, step 1 passes with
    probability at most the second term. Otherwise the normaliser is at least $e^{\epsilon_2 Q_0 / 2}$, the at most k
    candidates that enter or leave $\{q \ge \tau\}$ have a score below $\tau + 1$ on the side where they are in, so they change
    the normaliser by a factor of at most $e^{\epsilon_2 / 2} (1 + \gamma)$ and carry a probability of at most
    $\gamma e^{\epsilon_2 / 2}$.

    Arguments:
        values, N: as for the exponential mechanism.
        constants: of each draw.
        relation: neighbouring relation that the price is for.
    """

    def __init__(self, values: Integers, *, N: int, constants: ChoosingConstants, relation: Relation) -> None:
        self.values, self.N, self.constants, self.relation = values, N, constants, relation
        self.cells = DyadicCells(values, N=N, least=constants.least - _NEAR)

    def given(self, model: MonotoneCounts) -> _ChoosingDraw:
        """The draw for one public model."""
        return _ChoosingDraw(self, model)


class _ChoosingDraw:
    """One draw of `ChoosingSelection`, a mechanism for `Curator.release`."""

    def __init__(self, selection: ChoosingSelection, model: MonotoneCounts) -> None:
        self.selection, self.model = selection, model

    @property
    def event(self) -> DpEvent:
        """Price of one draw."""
        return self.selection.constants.event(scores_moved(levels(self.selection.N), self.selection.relation))

    def draw(self, secrets: Secrets, count: int = 1) -> list[tuple[int, int] | None]:
        """Ends (start, stop) of an interval, or None when the noisy test says stop, `count` times."""
        heavy = self.selection.cells.heavy(self.model)
        return [self._one(secrets, heavy) for _ in range(count)]

    def _one(self, secrets: Secrets, heavy: _HeavyCells) -> tuple[int, int] | None:
        constants = self.selection.constants
        starts, stops = heavy.start, heavy.stops(self.selection.cells)

        def score(i: int) -> Fraction:
            return interval_score(heavy.ranks[i], int(starts[i]), int(stops[i]), self.model)

        least = Fraction(constants.least)
        largest = max(score(i) for i in np.flatnonzero(heavy.scores >= heavy.scores.max() - _NEAR).tolist())
        gap = Fraction(constants.threshold) - max(largest, least)
        if not laplace_exceeds(secrets, gap, Fraction(constants.test_rate)):
            return None
        near = np.abs(heavy.scores - constants.least) <= _NEAR
        candidates = (heavy.scores >= constants.least) & ~near
        candidates[[i for i in np.flatnonzero(near).tolist() if score(i) >= least]] = True
        chosen = np.flatnonzero(candidates)
        if chosen.size == 0:
            return None
        half = Fraction(constants.draw_rate) / 2
        ceilings = float(half) * heavy.scores[chosen]
        ones = np.ones(chosen.size, np.uint64)
        block, _ = exponential_mechanism(secrets, ones, ceilings, lambda b, _: half * score(int(chosen[b])))
        return int(starts[chosen[block]]), int(stops[chosen[block]])


@dataclass(frozen=True)
class _HeavyCells:
    """Dyadic intervals with many records or much of the model, (m,) each: level (0 is all of [N]), first point, scores.

    `ranks` (m, 2) are the numbers of records below the interval's ends; `scores` (m,) are |count - model| in float64.
    """

    level: Integers
    start: Integers
    ranks: Integers
    scores: Reals

    def stops(self, cells: DyadicCells) -> Integers:
        """Ends (m,) of the intervals, cut at N."""
        return np.minimum(self.start + (1 << (cells.depth - self.level)), cells.N)


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
        room, used = 256, 257
        while used > room:
            room *= 4
            tree = np.empty((room, 3), np.int64)
            used = _split_ranks(values, self.depth, least, tree)
        self._tree, self._room = tree[:used].copy(), 4 * used + 1024

    def heavy(self, model: MonotoneCounts) -> _HeavyCells:
        """All heavy intervals, the whole domain always among them."""
        while True:
            cells, scores = np.empty((self._room, 4), np.int64), np.empty(self._room)
            used = _expand(self.values, self.depth, self.least, self._tree, model.positions, model.counts, cells, scores)
            if used <= self._room:
                cells = cells[:used]
                return _HeavyCells(cells[:, 0].copy(), cells[:, 1].copy(), cells[:, 2:].copy(), scores[:used].copy())
            self._room *= 4


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
