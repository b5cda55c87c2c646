r"""Estimators of a column on [0, N): counts, how far a record moves them, the monotone fit to noisy ones, and two of them.

Every count is a difference of ranks, the numbers of records below positions: exact, and a function of the records' values
alone, not of their order. Values are sorted int64 positions in memory, or the `Ranks` of records that an engine keeps.
Counts, never shares: the number of records is private under add/remove, so nothing is divided by it before the noise. Sums
of no records have the same sensitivities, which is how a plan learns them.

**The Maximum Error Rule**: find where the model is most wrong, ask there, repeat (Diakonikolas, Hardt, Schmidt 2015). Each of
T steps has two halves of equal strength s: a selection of the point with the largest error, and a noisy prefix count there.
Without delta epsilons add up: :math:`s = \epsilon / (2 T)`, a selection has rate s / 2 and the count discrete Laplace noise of
scale 1 / s. With delta both halves are s^2 / 2-zCDP: a selection has rate s and the count Gaussian noise of std 1 / s.

The paper selects dyadic intervals by the choosing mechanism and prints noise that is 8 T / epsilon times too small:
`papers/diakonikolas2015.py` has that algorithm.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import isotonic_regression

from dpgen.columns.discretized import Ranks
from dpgen.facts import Fact
from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.draws import compiled
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.mechanisms import (
    Relation,
    Secrets,
    for_rows,
    keeps_size,
    pure_event,
    require_whole,
    require_within,
    row_epsilon,
)
from dpgen.privacy.selection import exponential_event, exponential_mechanism
from dpgen.systems.ordered.plan import CELLS, EPSILON, PER_COLUMN, STEPS
from dpgen.systems.simplex_projection import project_to_simplex

if TYPE_CHECKING:
    from dp_accounting import DpEvent


Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Values = Integers | Ranks
"""Sorted positions (n,) of the records of one column, or their ranks."""
Norm = Literal["l1", "l2"]

MOST_VALUES = 2**62
NO_RECORDS: Integers = np.empty(0, np.int64)
RECORDS_NOTE = "number of records, discrete Laplace"
SCORE = 1.0
"""Sensitivity of a score |count - model| of a prefix under either relation: the model is public."""

FACTS = (Fact.ONE_RECORD, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.ROUNDED_FLOATS, Fact.EXACT_BUT_CORRELATED)
"""Facts of the statement of a release of ordered columns."""


# -- values and their ranks ----------------------------------------------------------------------------------------------


def ranked(values: Any, *, N: int) -> Values:
    """Values of an array, sorted; the ranks of an engine as they are: their positions were made by the same grid."""
    return values if callable(getattr(values, "outline", None)) else sorted_values(values, N=N)


def sorted_values(values: Any, *, N: int) -> Integers:
    """A sorted int64 copy of private values (n,), checked to lie in [0, N); how many there are is no reason to refuse."""
    if not 2 <= N <= MOST_VALUES:
        raise ValueError(f"N is {N!r}; the domain must have between 2 and 2^62 values")
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"values are {array.dtype} of shape {array.shape}; they must be whole numbers (n,): discretise first")
    ordered = np.sort(array)
    if len(ordered) and not (ordered[0] >= 0 and int(ordered[-1]) < N):
        raise ValueError(f"values reach from {ordered[0]} to {ordered[-1]}; they must lie in [0, {N})")
    return ordered.astype(np.int64, copy=False)


def below(values: Values, positions: npt.ArrayLike) -> Integers:
    """Records below each position (m,)."""
    if isinstance(values, np.ndarray):
        return np.searchsorted(values, positions).astype(np.int64, copy=False)
    return values.below(positions)


def outline(values: Values, threshold: int, decay: int) -> tuple[Integers, Integers]:
    """Positions (m,) and ranks (m + 1,) with the counts of all heavy cells, see `Ranks.outline`; in memory of all cells."""
    if not isinstance(values, np.ndarray):
        return values.outline(threshold, decay)
    first = np.flatnonzero(np.diff(values, prepend=-1))
    return values[first], np.append(first, len(values))


def in_order(values: Values) -> Integers:
    """All positions (n,), sorted, in memory."""
    return values if isinstance(values, np.ndarray) else values.in_order()


# -- counts ----------------------------------------------------------------------------------------------------------------


def _bounded(counts: Integers, cells: int, left: int, norm: Norm) -> BoundedSum:
    """Counts of which a record is in `cells`, and a replaced one changes `left`, each by 1."""
    size = (lambda changed: float(changed)) if norm == "l1" else math.sqrt
    return BoundedSum(torch.from_numpy(counts), size(cells), "records", replaced=size(left), norm=norm)


def cell_counts(values: Values, ends: Integers, *, norm: Norm) -> BoundedSum:
    """Records (m,) in each of the disjoint cells [ends[i], ends[i + 1]) of ends (m + 1,).

    A record is in one cell at most: 1 count moves by 1. A replaced one leaves a cell for another: 2 counts.
    """
    return _bounded(np.diff(below(values, ends)), 1, 2, norm)


def prefix_count(values: Values, knot: int, *, norm: Norm) -> BoundedSum:
    """Records (1,) below a knot: any neighbour moves the count by 1 at most, also where a record is replaced."""
    return _bounded(below(values, np.array([knot], np.int64)), 1, 1, norm)


def number_of(records: int) -> BoundedSum:
    """A number (1,) of records, all of them or those that were clamped: each is one of them or not, also when replaced."""
    return _bounded(np.array([records], np.int64), 1, 1, "l1")


# -- estimators ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MonotoneCounts:
    """A piecewise linear, non-decreasing prefix count: `counts[i]` records lie below `positions[i]`.

    positions (m,) int64 increase strictly from 0 to N; counts (m,) float64 run from 0 to the (noisy) number of records.
    """

    positions: Integers
    counts: Reals

    @classmethod
    def fitted(cls, knots: Integers, counts: Reals, variances: Reals, *, N: int, size: float) -> MonotoneCounts:
        """The counts that fit noisy answers at knots (m,) in [0, N] best; `size` is the public or noisy number of records.

        Answers at the same knot are averaged by inverse variance, isotonic regression follows, then clipping to [0, size].
        None of it increases the largest error at the knots beyond that of the averages. Answers at 0 and N are dropped.

        >>> fit = MonotoneCounts.fitted(np.array([4, 4, 6]), np.array([2.0, 4.0, 1.0]), np.ones(3), N=8, size=5)
        >>> fit.positions.tolist(), fit.counts.round(3).tolist()
        ([0, 4, 6, 8], [0.0, 2.333, 2.333, 5.0])
        """
        inside = (knots > 0) & (knots < N)
        knots, counts, weights = knots[inside], counts[inside], 1 / variances[inside]
        positions, groups = np.unique(knots, return_inverse=True)
        if positions.size == 0:
            return cls(np.array([0, N], np.int64), np.array([0.0, float(size)]))
        total = np.bincount(groups, weights)
        means = np.bincount(groups, weights * counts) / total
        fitted = isotonic_regression(means, weights=total).x.clip(0.0, float(size))
        ends = np.concatenate([[0], positions, [N]]).astype(np.int64)
        return cls(ends, np.concatenate([[0.0], fitted, [float(size)]]))

    def at(self, x: Integers) -> Reals:
        """Prefix counts at x; differences are taken in integers, since float64 has steps of 128 at 10^18.

        >>> MonotoneCounts(np.array([0, 10**18]), np.array([0.0, 8.0])).at(np.array([5 * 10**17]))
        array([4.])
        """
        piece = np.clip(np.searchsorted(self.positions, x, side="right") - 1, 0, self.positions.size - 2)
        left, right = self.positions[piece], self.positions[piece + 1]
        share = (x - left).astype(np.float64) / (right - left).astype(np.float64)
        return self.counts[piece] + np.clip(share, 0.0, 1.0) * (self.counts[piece + 1] - self.counts[piece])


@dataclass(frozen=True, kw_only=True)
class OrderedEstimator(ABC):
    """Public choices of an estimator of one column on [0, N), and the share of the budget it may spend.

    epsilon is in [0.001, 1000] nats; `size` is the public number of records, None: known where all neighbours have as many
    (`keeps_size`), else bought or not needed. `rows` is the most rows m of a person, by which noise is larger.
    """

    epsilon: float
    delta: float = 0.0
    size: int | None = None
    rows: int = 1
    always_used: bool = True

    def __post_init__(self) -> None:
        require_within("epsilon", self.epsilon, EPSILON, PER_COLUMN)
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta is {self.delta!r}; it must be in [0, 1)")
        if self.size is not None and not 1 <= self.size <= MOST_VALUES:
            raise ValueError(f"size is {self.size!r}; a public number of records must be at least 1")
        require_whole("rows", self.rows)

    @abstractmethod
    def planned(self, N: int, relation: Relation) -> list[Planned]:
        """Every charge of a fit on [0, N) with its greatest count; looks at no record."""

    @abstractmethod
    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of `ranked` values (n,) in [0, N), inside a plan that has been declared."""

    def fit_counts(self, values: Any, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of private values (n,), in any order; declares its plan, then releases."""
        values = ranked(values, N=N)
        curator.declare(*self.planned(N, curator.relation))
        return self.release(values, N=N, curator=curator)

    def size_epsilon(self, share: float, relation: Relation) -> float:
        """Epsilon of a noisy number of records: a share of the budget; 0 where it was given, or all neighbours have as many."""
        free = self.size is not None or keeps_size(relation, self.rows, self.always_used)
        return 0.0 if free else share * self.epsilon

    def released_size(self, values: Values, epsilon: float, curator: Curator) -> float:
        """The number of records to work with: the public one, or a noisy one that is at least 1."""
        if curator.keeps_size:
            if self.size is not None and self.size != len(values):
                raise ValueError(f"size is {self.size}; under replace_one the number of records is public and is {len(values)}")
            return float(len(values))
        if self.size is not None:
            return float(self.size)
        return float(max(1, int(curator.laplace(RECORDS_NOTE, number_of(len(values)), epsilon))))


def planned_size(epsilon: float) -> list[Planned]:
    """The charge of `released_size`, if there is any."""
    return [Planned(pure_event(epsilon), RECORDS_NOTE)] if epsilon else []


@dataclass(frozen=True, kw_only=True)
class LaplaceHistogram(OrderedEstimator):
    """The count of every value plus integer Laplace noise, projected to the simplex; epsilon-private, delta 0.

    The scale is the L1 sensitivity over epsilon, 1/epsilon (add/remove) or 2/epsilon (replace-one). Diakonikolas, Hardt and
    Schmidt 2015, Theorem 3, add half of what replacing a record needs. Where n is private counts are normalised by their own
    noisy sum, or by the public size. For small domains and categories: the error grows with N / (epsilon n).
    """

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        if CELLS < N:
            raise ValueError(f"N is {N}; a histogram of all values needs N <= {CELLS}: use method 'partition'")
        return [Planned(pure_event(self.epsilon), _note(N))]

    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        edges, known = np.arange(N + 1, dtype=np.int64), curator.keeps_size
        noisy = curator.laplace(_note(N), cell_counts(values, edges, norm="l1"), self.epsilon).double().numpy()
        total = float(len(values)) if known else float(self.size or max(noisy.sum(), 1.0))
        shares = project_to_simplex(noisy, total) if total else np.zeros(len(noisy))
        prefix = np.concatenate([[0.0], np.cumsum(shares)]).clip(0.0, total)
        prefix[-1] = total
        return MonotoneCounts(edges, prefix)


def _note(N: int) -> str:
    return f"counts of {N} public cells"


# -- the maximum error rule --------------------------------------------------------------------------------------------


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
