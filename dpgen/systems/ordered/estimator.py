r"""Common parts of estimators of a column on [0, N): counts, how far a record moves them, the monotone fit to noisy ones.

Every count is a difference of ranks, the numbers of records below positions: exact, and a function of the records' values
alone, not of their order. Values are sorted int64 positions in memory, or the `Ranks` of records that an engine keeps.
Counts, never shares: the number of records is private under add/remove, so nothing is divided by it before the noise. Sums
of no records have the same sensitivities, which is how a plan learns them.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import isotonic_regression

from dpgen.columns.discretized import Ranks
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import Relation, keeps_size, pure_event, require_whole, require_within
from dpgen.systems.ordered.plan import CELLS, EPSILON, PER_COLUMN
from dpgen.systems.simplex_projection import project_to_simplex

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
    def fitted(cls, knots: Integers, counts: Reals, variances: Reals, *, N: int, size: float) -> "MonotoneCounts":
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
