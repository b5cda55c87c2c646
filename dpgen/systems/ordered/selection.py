r"""Private selection of the point or interval where a model is most wrong.

The exponential mechanism over all points x of [N]: where is the model of the prefix counts most wrong?

The score is $|c(x) - A(x)|$ with c(x) the number of records below x and A the public model. Between two neighbouring marks
c moves by at most `span` records, and blocks are cut so that A does too: one ceiling then holds for the block's candidates,
whatever their number, and the draw stays exact. Coarse blocks that can matter are cut into finer ones.

The choosing mechanism (Beimel, Nissim, Stemmer 2013) in a form that holds for the scores of the maximum error rule.

Published: draw among the candidates with score >= 1 after a noisy test of the largest score; the proof needs scores that
are 0 on the empty data set and grow with it. $|c(J) - A(J)|$ does neither. What is used of it here is only that one change
of the data moves at most k scores, each by at most 1:

1. stop unless $\max(q_\max, \tau) + \mathrm{Lap}(1/\epsilon_1) \ge \theta$;
2. draw J among $\{q \ge \tau\}$ with probability proportional to $e^{\epsilon_2 q(J) / 2}$.

For any $Q_0 > \tau$ and $\gamma = k e^{-\epsilon_2 (Q_0 - \tau) / 2}$ this is $(\epsilon_1 + \epsilon_2 + \gamma, \delta)$-DP
with $\delta = \max(\gamma e^{\epsilon_2 / 2}, e^{-\epsilon_1 (\theta - Q_0)} / 2)$. If $q_\max < Q_0$, step 1 passes with
probability at most the second term. Otherwise the normaliser is at least $e^{\epsilon_2 Q_0 / 2}$, the at most k
candidates that enter or leave $\{q \ge \tau\}$ have a score below $\tau + 1$ on the side where they are in, so they change
the normaliser by a factor of at most $e^{\epsilon_2 / 2} (1 + \gamma)$ and carry a probability of at most
$\gamma e^{\epsilon_2 / 2}$.

Scores are rational numbers: a count, exact, and the public model's float64 values. $q_\max$, who is above $\tau$, and the
weights are worked out from these; float64 only finds who is far from both.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numba
import numpy as np

from dpgen.privacy.events import approximate_event
from dpgen.privacy.mechanisms import Secrets
from dpgen.privacy.parallel import Relation
from dpgen.privacy.selection import exponential_event, exponential_mechanism, laplace_exceeds
from dpgen.systems.ordered.cells import DyadicCells, HeavyCells, interval_score, levels
from dpgen.systems.ordered.counts import records_moved
from dpgen.systems.ordered.knots import SCORE, Integers, MonotoneCounts, Reals

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# -- point selection ---------------------------------------------------------------------------------------------------


_SPAN = 2.0  # of the finest blocks, in units of 1/rate
_FACTORS = (64, 8, 1)  # coarser blocks, in finest ones
_NEGLIGIBLE = 3.0  # nats: all blocks that stay coarse weigh less than e^-3 of the heaviest

_compile = numba.njit(nogil=True, cache=True)


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


class PointSelection:
    """Draws knots x in 1 ... N - 1 with probability proportional to exp(rate |c(x) - A(x)|), exactly.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        N: domain size, at least 2.
        rate: lambda, per record.
        zcdp: account for draws by zCDP rather than by a pure guarantee.

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

    def given(self, model: MonotoneCounts) -> "PointDraw":
        """The draw for one public model."""
        return PointDraw(self, model)

    def score(self, x: int, model: MonotoneCounts) -> Fraction:
        """|c(x) - A(x)|, without rounding; A(x) is the public number that the model computes."""
        below = int(np.searchsorted(self.values, x, side="left"))
        return abs(below - Fraction(model.one(x)))

    def _blocks(self, model: MonotoneCounts) -> tuple[Integers, Reals]:
        """Blocks (m, 2) and bounds (m, 2) of their scores; together they hold each candidate once."""
        edges = model.positions.copy()
        edges[0] = 1  # nothing lies below 0, so it is no candidate
        cells = np.stack([edges[:-1], np.diff(edges)], axis=1)
        cells, scores = cells[cells[:, 1] > 0], np.empty((0, 2))
        bounds = np.tile([0.0, max(float(self.values.size), float(model.counts[-1]))], (cells.shape[0], 1))
        scores = bounds
        for factor in _FACTORS:
            span, marks = self._span * factor, np.ascontiguousarray(self._marks[::factor])
            cells, scores = _finer(cells, scores, self.rate, marks, span, self.values.size, (model.positions, model.counts))
        return cells, scores


class PointDraw:
    """One draw of `PointSelection`, a mechanism for `Curator.release`."""

    def __init__(self, selection: PointSelection, model: MonotoneCounts) -> None:
        self.selection, self.model = selection, model

    @property
    def event(self) -> "DpEvent":
        """What one draw costs."""
        return exponential_event(self.selection.rate, SCORE, zcdp=self.selection.zcdp)

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


# -- choosing ----------------------------------------------------------------------------------------------------------


_LISTED = 5e4  # tau grows with n / 5e4 records, which bounds the number of candidates
_NEAR = 1e-3  # scores in float64, from counts below 2^40, are good to this: what is closer to tau is settled exactly


def scores_moved(levels: int, relation: Relation) -> int:
    """k: how many dyadic intervals, of a tree with `levels` levels, have another count after one change.

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
    def of(cls, epsilon: float, delta: float, *, moved: int, size: float) -> "ChoosingConstants":
        r"""The lowest threshold for (epsilon, delta), with :math:`\epsilon_1 : \epsilon_2` chosen for it.

        Arguments:
            epsilon: in nats, of one draw.
            delta: of one draw, in (0, 1/2).
            moved: k.
            size: public or noisy number of records; tau is max(1, size / 50 000), which keeps the candidates listable.

        Raises:
            ValueError: epsilon not > 0 or delta outside (0, 1/2).

        >>> constants = ChoosingConstants.of(0.1, 1e-6, moved=120, size=1e4)
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
        return cls(test_rate, draw_rate, draw_cost / draw_rate, test_cost / test_rate).for_size(size)

    def for_size(self, size: float) -> "ChoosingConstants":
        """The same draw, at the same price, for another public or noisy number of records."""
        return replace(self, least=max(1.0, size / _LISTED))

    @property
    def threshold(self) -> float:
        """Theta, in records."""
        return self.least + self.above + self.beyond

    def guarantee(self, moved: int) -> tuple[float, float]:
        """(epsilon, delta) of one draw when a change of the data moves `moved` scores; see the module."""
        gamma = moved * math.exp(-self.draw_rate * self.above / 2)
        passes = math.exp(-self.test_rate * self.beyond) / 2
        return self.test_rate + self.draw_rate + gamma, max(gamma * math.exp(self.draw_rate / 2), passes)

    def event(self, moved: int) -> "DpEvent":
        """What one draw costs when a change of the data moves `moved` scores."""
        return approximate_event(*self.guarantee(moved))


class ChoosingSelection:
    """Draws dyadic intervals with large errors, or nothing when no error is surely large.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        N: domain size, at least 2.
        constants: of each draw.
        relation: neighbouring relation that the price is for.
        tested: False leaves out step 1, which breaks the guarantee; the tests show it.
    """

    def __init__(
        self, values: Integers, *, N: int, constants: ChoosingConstants, relation: Relation, tested: bool = True
    ) -> None:
        self.values, self.N, self.constants, self.relation, self.tested = values, N, constants, relation, tested
        self.cells = DyadicCells(values, N=N, least=constants.least - _NEAR)

    def given(self, model: MonotoneCounts) -> "ChoosingDraw":
        """The draw for one public model."""
        return ChoosingDraw(self, model)


class ChoosingDraw:
    """One draw of `ChoosingSelection`, a mechanism for `Curator.release`."""

    def __init__(self, selection: ChoosingSelection, model: MonotoneCounts) -> None:
        self.selection, self.model = selection, model

    @property
    def event(self) -> "DpEvent":
        """What one draw costs."""
        return self.selection.constants.event(scores_moved(levels(self.selection.N), self.selection.relation))

    def draw(self, secrets: Secrets, count: int = 1) -> list[tuple[int, int] | None]:
        """Ends (start, stop) of an interval, or None when the noisy test says stop, `count` times."""
        heavy = self.selection.cells.heavy(self.model)
        return [self._one(secrets, heavy) for _ in range(count)]

    def _one(self, secrets: Secrets, heavy: HeavyCells) -> tuple[int, int] | None:
        constants = self.selection.constants
        starts, stops = heavy.start, heavy.stops(self.selection.cells)

        def score(i: int) -> Fraction:
            return interval_score(heavy.ranks[i], int(starts[i]), int(stops[i]), self.model)

        least = Fraction(constants.least)
        largest = max(score(i) for i in np.flatnonzero(heavy.scores >= heavy.scores.max() - _NEAR).tolist())
        gap = Fraction(constants.threshold) - max(largest, least)
        if self.selection.tested and not laplace_exceeds(secrets, gap, Fraction(constants.test_rate)):
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
