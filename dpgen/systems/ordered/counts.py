r"""Counts of the estimators on [0, N): how far one record moves them, their noise, and the monotone fit to noisy ones.

Every count is a difference of ranks, the numbers of records below positions: exact, and a function of the records' values
alone, not of their order. Values are sorted int64 positions in memory, or the `Ranks` of records that an engine keeps.
Counts, never shares: the number of records is private under add/remove, so nothing is divided by it before the noise. Sums
of no records have the same sensitivities, which is how a plan learns them.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import isotonic_regression

from dpgen.discretized import Ranks
from dpgen.facts import Fact, Said
from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.mechanisms import Relation, gaussian_event, pure_event

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.curator import Curator

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Values = Integers | Ranks
"""Sorted positions (n,) of the records of one column, or their ranks."""
Norm = Literal["l1", "l2"]

NO_RECORDS: Integers = np.empty(0, np.int64)
RECORDS_NOTE = "number of records, discrete Laplace"
SCORE = 1.0
"""Sensitivity of a score |count - model| of a prefix under either relation: the model is public."""


def records_moved(relation: Relation) -> int:
    """Number of insertions and deletions that make a neighbour: 1 under add/remove, 2 under replace-one."""
    if relation not in ("add_remove", "replace_one"):
        raise ValueError(f"relation is {relation!r}; choose one of add_remove, replace_one")
    return 2 if relation == "replace_one" else 1


def below(values: Values, positions: npt.ArrayLike) -> Integers:
    """Records below each position (m,)."""
    if isinstance(values, np.ndarray):
        return np.searchsorted(values, positions).astype(np.int64, copy=False)
    return values.below(positions)


def outline(values: Values, threshold: int, decay: int) -> tuple[Integers, Integers]:
    """Positions (m,) and ranks (m + 1,) with the counts of all heavy cells, see `Ranks.outline`; in memory those of all
    cells.
    """
    if not isinstance(values, np.ndarray):
        return values.outline(threshold, decay)
    first = np.flatnonzero(np.diff(values, prepend=-1))
    return values[first], np.append(first, len(values))


def in_order(values: Values) -> Integers:
    """All positions (n,), sorted, in memory."""
    return values if isinstance(values, np.ndarray) else values.in_order()


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


def record_count(values: Values) -> BoundedSum:
    """The number of records (1,), which one record moves by 1 where it comes or goes; where it is kept it is public."""
    return _bounded(np.array([len(values)], np.int64), 1, 1, "l1")


def clamped_count(count: int) -> BoundedSum:
    """The number of values (1,) that were clamped to the domain: a record is one of them or not, also when it is replaced."""
    return _bounded(np.array([count], np.int64), 1, 1, "l1")


def size_fact(size: int | None, *, known: bool) -> Said:
    """What a statement says of the number of records; `known`: all neighbours have as many."""
    if known:
        return Fact.KNOWN_SIZE()
    return Fact.NOISY_SIZE() if size is None else Fact.PUBLIC_SIZE(n=size)


def planned_size(epsilon: float, *, free: bool) -> list[Planned]:
    """The charge of `released_size`, if there is any."""
    return [] if free else [Planned(pure_event(epsilon), RECORDS_NOTE)]


def released_size(values: Values, size: int | None, *, epsilon: float, curator: "Curator") -> float:
    """The number of records to work with: the public one, or a noisy one that is at least 1.

    Noise of `epsilon` is charged only where n is private, as the curator decides, and no size was given.
    """
    if curator.keeps_size:
        if size is not None and size != len(values):
            raise ValueError(f"size is {size}; under replace_one the number of records is public and is {len(values)}")
        return float(len(values))
    if size is not None:
        return float(size)
    return float(max(1, int(curator.laplace(RECORDS_NOTE, record_count(values), epsilon))))


def relation_gaussian(noise_multiplier: float, relation: Relation) -> "DpEvent":
    """The event of a Gaussian of multiplier std / L2 sensitivity under `relation`; the ledger doubles sensitivities under
    replace-one.
    """
    return gaussian_event(noise_multiplier * records_moved(relation))


@lru_cache(maxsize=64)
def gaussian_beside(pure: tuple[float, ...], epsilon: float, delta: float, relation: Relation) -> float:
    """Least multiplier of a Gaussian that, beside mechanisms of these pure epsilons, keeps all within the budget."""
    from dp_accounting import ComposedDpEvent

    def event(multiplier: float) -> "DpEvent":
        return ComposedDpEvent([*map(pure_event, pure), relation_gaussian(multiplier, relation)])

    return calibrate_noise(event, Budget(epsilon, delta), relation=relation, high=1e6)


@dataclass(frozen=True)
class MonotoneCounts:
    """A piecewise linear, non-decreasing prefix count: `counts[i]` records lie below `positions[i]`.

    positions (m,) int64 increase strictly from 0 to N; counts (m,) float64 run from 0 to the (noisy) number of records.
    """

    positions: Integers
    counts: Reals

    def at(self, x: Integers) -> Reals:
        """Prefix counts at x; differences are taken in integers, since float64 has steps of 128 at 10^18.

        >>> MonotoneCounts(np.array([0, 10**18]), np.array([0.0, 8.0])).at(np.array([5 * 10**17]))
        array([4.])
        """
        piece = np.clip(np.searchsorted(self.positions, x, side="right") - 1, 0, self.positions.size - 2)
        left, right = self.positions[piece], self.positions[piece + 1]
        share = (x - left).astype(np.float64) / (right - left).astype(np.float64)
        return self.counts[piece] + np.clip(share, 0.0, 1.0) * (self.counts[piece + 1] - self.counts[piece])


def monotone_counts(knots: Integers, counts: Reals, variances: Reals, *, N: int, size: float) -> MonotoneCounts:
    """The monotone prefix count that fits noisy answers at knots (m,) in [0, N] best; `size` is the public or noisy number of
    records.

    Answers at the same knot are averaged by inverse variance, isotonic regression follows, then clipping to [0, size]. None of
    it increases the largest error at the knots beyond that of the averages. Answers at 0 and N are dropped.

    >>> fit = monotone_counts(np.array([4, 4, 6]), np.array([2.0, 4.0, 1.0]), np.ones(3), N=8, size=5)
    >>> fit.positions.tolist(), fit.counts.round(3).tolist()
    ([0, 4, 6, 8], [0.0, 2.333, 2.333, 5.0])
    """
    inside = (knots > 0) & (knots < N)
    knots, counts, weights = knots[inside], counts[inside], 1 / variances[inside]
    positions, groups = np.unique(knots, return_inverse=True)
    if positions.size == 0:
        return MonotoneCounts(np.array([0, N], np.int64), np.array([0.0, float(size)]))
    total = np.bincount(groups, weights)
    means = np.bincount(groups, weights * counts) / total
    fitted = isotonic_regression(means, weights=total).x.clip(0.0, float(size))
    return MonotoneCounts(
        np.concatenate([[0], positions, [N]]).astype(np.int64), np.concatenate([[0.0], fitted, [float(size)]])
    )
