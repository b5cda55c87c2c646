r"""The Maximum Error Rule: find where the model is most wrong, ask there, repeat (Diakonikolas, Hardt, Schmidt 2015).

Each of T steps has two halves of equal strength s: a selection of the point with the largest error, and a noisy prefix count
there. Without delta epsilons add up: :math:`s = \epsilon / (2 T)`, a selection has rate s / 2 and the count discrete Laplace
noise of scale 1 / s. With delta both halves are s^2 / 2-zCDP: a selection has rate s and the count Gaussian noise of std 1 / s.

The paper selects dyadic intervals by the choosing mechanism and prints noise that is 8 T / epsilon times too small:
`papers/diakonikolas2015.py` has that algorithm.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.draws import compiled
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.mechanisms import Relation, Secrets, for_rows, pure_event, require_whole, row_epsilon
from dpgen.privacy.selection import exponential_event, exponential_mechanism
from dpgen.systems.ordered.estimator import (
    NO_RECORDS,
    SCORE,
    Integers,
    MonotoneCounts,
    OrderedEstimator,
    Reals,
    Values,
    in_order,
    planned_size,
    prefix_count,
)
from dpgen.systems.ordered.plan import STEPS

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_SIZE_SHARE = 0.05  # of epsilon, for the number of records where it is private
_SELECTION, _ANSWERS = "MERR, points selection", "MERR, noisy counts"
_NOISE = (1e-3, 1e8)  # records; where the noise of a step is searched


@dataclass(frozen=True, kw_only=True)
class MERR(OrderedEstimator):
    """Piecewise linear model of the prefix counts, refined where a private selection finds the largest error.

    Formal guarantees:
        - `fit` is (epsilon, delta)-DP under the relation of the ledger that is charged; with delta 0 it is pure.
        - Split: 5 % of epsilon for a noisy number of records, under add/remove without `size`; the rest evenly over the steps.
        - T selections and T answers are declared before the data are looked at.

    Source: Diakonikolas, Hardt, Schmidt 2015, Figure 2, with corrected noise and points instead of intervals.

    >>> from dpgen.privacy.ledger import Ledger
    >>> rule = MERR(epsilon=50.0, steps=6)
    >>> fit = rule.fit_counts(np.full(10**4, 3), N=8, curator=Curator(Ledger(None, delta=1e-6)))
    >>> bool(abs(fit.at(np.array([3, 4])) - [0, 10**4]).max() < 200)
    True
    """

    steps: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("steps", self.steps, *STEPS)

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        selection, answer = self.step(relation).events(relation)
        steps = Planned(selection, _SELECTION, self.steps), Planned(answer, _ANSWERS, self.steps)
        return [*planned_size(self.size_epsilon(_SIZE_SHARE, relation)), *steps]

    def step(self, relation: Relation) -> Step:
        """The strength of each step."""
        size = self.size_epsilon(_SIZE_SHARE, relation)
        return Step.of(self.steps, self.epsilon, self.delta, rows=self.rows, relation=relation, size=size)

    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of values (n,) in [0, N), at knots that are selected from all of them in memory."""
        values, step = in_order(values), self.step(curator.relation)
        size = self.released_size(values, _SIZE_SHARE * self.epsilon, curator)
        selection = PointSelection(values, N=N, rate=step.rate, zcdp=step.zcdp)
        knots, counts = np.empty(self.steps, np.int64), np.empty(self.steps)
        variances = np.full(self.steps, step.variance)
        model = MonotoneCounts(np.array([0, N]), np.array([0.0, size]))
        for t in range(self.steps):
            [knots[t]] = curator.release(_SELECTION, selection.given(model))
            counts[t] = step.answer(values, int(knots[t]), curator)
            model = MonotoneCounts.fitted(knots[: t + 1], counts[: t + 1], variances[: t + 1], N=N, size=size)
        return model


@dataclass(frozen=True)
class Step:
    """One selection and one answer of strength s each: the epsilon of each half, or sqrt(2 rho) with `zcdp`; `rows` of a
    person.
    """

    strength: float
    zcdp: bool
    rows: int = 1

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, steps: int, epsilon: float, delta: float, *, rows: int, relation: Relation, size: float = 0.0) -> Step:
        """The strongest step of which `steps` cost (epsilon, delta) under `relation`, beside a pure epsilon of `size`."""
        if not delta:
            # the sum of the parts must not round up
            return cls((epsilon - size) * (1 - 1e-12) / (2 * steps), zcdp=False, rows=rows)

        def whole(noise: float) -> DpEvent:
            from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

            parts = cls(1 / noise, zcdp=True, rows=rows).events(relation)
            return ComposedDpEvent([pure_event(size), *(SelfComposedDpEvent(part, steps) for part in parts)])

        low, high = _NOISE
        return cls(1 / calibrate_noise(whole, Budget(epsilon, delta), relation=relation, low=low, high=high), True, rows)

    @property
    def rate(self) -> float:
        """Lambda of the exponential mechanism."""
        return row_epsilon(self.strength, self.rows) / (SCORE if self.zcdp else 2 * SCORE)

    def events(self, relation: Relation) -> tuple[DpEvent, DpEvent]:
        """Prices of the selection and of the answer."""
        selection = for_rows(exponential_event(self.rate, SCORE, zcdp=self.zcdp), self.rows)
        if not self.zcdp:
            return selection, pure_event(self.strength)
        return selection, gaussian_price(prefix_count(NO_RECORDS, 0, norm="l2"), 1 / self.strength, relation)

    @property
    def variance(self) -> float:
        """Variance of an answer, in records squared."""
        scale = self.rows / self.strength
        if self.zcdp:
            return scale**2 + 1 / 12
        ratio = math.exp(-1 / scale)
        return 2 * ratio / (1 - ratio) ** 2

    def answer(self, values: Integers, knot: int, curator: Curator) -> float:
        """Noisy number of records below a knot."""
        if self.zcdp:
            return float(curator.gaussian(_ANSWERS, prefix_count(values, knot, norm="l2"), 1 / self.strength))
        return float(curator.laplace(_ANSWERS, prefix_count(values, knot, norm="l1"), self.strength))


# -- the exponential mechanism over points -------------------------------------------------------------------------------

_SPAN = 2.0  # of the finest blocks of points, in units of 1/rate
_FACTORS = (64, 8, 1)  # coarser blocks, in finest ones
_NEGLIGIBLE = 3.0  # nats: all blocks that stay coarse weigh less than e^-3 of the heaviest

_compile = compiled()


class PointSelection:
    """Draws knots x in 1 ... N - 1 with probability proportional to exp(rate |c(x) - A(x)|), exactly.

    c(x) are the records below x, A(x) the public model of them. Scores are rational numbers, a count and the model's float64
    values, and weights are worked out from these, at N = 10^18 as well. Float64 only finds candidates: between two
    neighbouring marks c moves by at most `span` records, and blocks are cut so that A does too, so one ceiling holds for a
    block. Coarse blocks that can matter are cut into finer ones.

    >>> from dpgen.privacy.ledger import Ledger
    >>> curator, model = Curator(Ledger(None, delta=1e-6)), MonotoneCounts(np.array([0, 8]), np.array([0.0, 100.0]))
    >>> curator.release("point", PointSelection(np.full(100, 2), N=8, rate=10.0).given(model))
    [3]
    """

    model: MonotoneCounts | None = None

    def __init__(self, values: Integers, *, N: int, rate: float, zcdp: bool = False) -> None:
        self.values, self.N, self.rate, self.zcdp = values, N, rate, zcdp
        self._span = max(1, math.floor(_SPAN / rate))
        self._marks = np.ascontiguousarray(values[:: self._span])

    @property
    def event(self) -> DpEvent:
        """Price of one draw."""
        return exponential_event(self.rate, SCORE, zcdp=self.zcdp)

    def given(self, model: MonotoneCounts) -> PointSelection:
        """The mechanism for one public model."""
        made = copy(self)
        made.model = model
        return made

    def draw(self, secrets: Secrets, count: int = 1) -> list[int]:
        """Knots for the model that was given."""
        assert self.model is not None
        model, (cells, scores) = self.model, self.blocks(self.model)
        starts, sizes = cells[:, 0], np.ascontiguousarray(cells[:, 1]).view(np.uint64)
        rate, ceilings = Fraction(self.rate), self.rate * scores[:, 1]

        def log_weight(block: int, number: int) -> Fraction:
            return rate * self.score(int(starts[block]) + number, model)

        drawn = (exponential_mechanism(secrets, sizes, ceilings, log_weight) for _ in range(count))
        return [int(starts[block]) + number for block, number in drawn]

    def score(self, x: int, model: MonotoneCounts) -> Fraction:
        """|c(x) - A(x)|, without rounding; A(x) is the public number that the model computes."""
        below = int(np.searchsorted(self.values, x, side="left"))
        return abs(below - Fraction(float(model.at(np.array([x]))[0])))

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
