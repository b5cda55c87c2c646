"""Estimators of one column: what they share, and the noisy histogram of a small domain."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import Relation, keeps_size, pure_event, require_whole, require_within
from dpgen.statement import PrivacyStatement
from dpgen.systems.ordered.counts import Integers, MonotoneCounts, Values, cell_counts, size_fact
from dpgen.systems.ordered.model import OrderedDistribution
from dpgen.systems.ordered.plan import CELLS, EPSILON, PER_COLUMN
from dpgen.systems.simplex_projection import project_to_simplex

MOST_VALUES = 2**62

FACTS = (Fact.ONE_ROW, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.ROUNDED_FLOATS, Fact.EXACT_BUT_CORRELATED)
"""Of the statement of a release of ordered columns."""


@dataclass(frozen=True, kw_only=True)
class OrderedEstimator(ABC):
    """Public choices of an estimator of one column on [0, N), and the share of the budget it may spend.

    Arguments:
        epsilon: this column's budget in nats, in [0.001, 1000].
        delta: this column's delta, in [0, 1).
        size: public number of records; None: known where all neighbours have as many, else bought or not needed.
        rows: the most rows m of a person, that of the ledger: sensitivities speak of one row, and noise is m times as large.
        always_used: that of the ledger, see `keeps_size`.
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

    def knows_size(self, relation: Relation) -> bool:
        """Whether all neighbours have as many records."""
        return keeps_size(relation, self.rows, self.always_used)

    def size_is_free(self, relation: Relation) -> bool:
        """Whether the number of records costs nothing: it was given, or all neighbours have as many."""
        return self.size is not None or self.knows_size(relation)

    @abstractmethod
    def planned(self, N: int, relation: Relation) -> list[Planned]:
        """Every charge of a fit on [0, N) with its greatest count; looks at no record.

        Raises:
            ValueError: [0, N) is too large for this method, or no noise fits the budget.
        """

    @abstractmethod
    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of `ranked` values (n,) in [0, N), inside a plan that has been declared."""

    def fit_counts(self, values: Any, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of private values (n,), in any order; declares its plan, then releases.

        Raises:
            ValueError: see `sorted_values`.
            BudgetExceeded: the plan does not fit into the ledger's budget.
        """
        values = ranked(values, N=N)
        curator.declare(*self.planned(N, curator.relation))
        return self.release(values, N=N, curator=curator)

    def fit(self, values: Any, *, N: int, curator: Curator) -> OrderedDistribution:
        """Release the distribution of private values (n,); raises what `fit_counts` raises."""
        counts = self.fit_counts(values, N=N, curator=curator)
        facts = (*FACTS, size_fact(self.size, known=curator.keeps_size))
        statement = PrivacyStatement.from_ledger(curator.ledger, facts=facts)
        return OrderedDistribution.from_counts(counts, statement=statement)


def ranked(values: Any, *, N: int) -> Values:
    """Values of an array, sorted; the ranks of an engine as they are: their positions were made by the same grid."""
    return values if callable(getattr(values, "outline", None)) else sorted_values(values, N=N)


def sorted_values(values: Any, *, N: int) -> Integers:
    """A sorted int64 copy of private values (n,), checked to lie in [0, N); how many there are is no reason to refuse.

    Raises:
        ValueError: N outside [2, 2^62], no column of whole numbers, or a value outside [0, N).
    """
    if not 2 <= N <= MOST_VALUES:
        raise ValueError(f"N is {N!r}; the domain must have between 2 and 2^62 values")
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"values are {array.dtype} of shape {array.shape}; they must be whole numbers (n,): discretise first")
    ordered = np.sort(array)
    if len(ordered) and not (ordered[0] >= 0 and int(ordered[-1]) < N):
        raise ValueError(f"values reach from {ordered[0]} to {ordered[-1]}; they must lie in [0, {N})")
    return ordered.astype(np.int64, copy=False)


@dataclass(frozen=True, kw_only=True)
class LaplaceHistogram(OrderedEstimator):
    """The count of every value plus integer Laplace noise, projected to the simplex; epsilon-private, delta 0.

    The scale is the L1 sensitivity over epsilon, 1/epsilon (add/remove) or 2/epsilon (replace-one). Diakonikolas, Hardt and
    Schmidt 2015, Theorem 3, add half of what replacing a record needs. Where n is private counts are normalised by their own
    noisy sum, or by the public size. For small domains and categories: the error grows with N / (epsilon n).
    """

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        """One release of all counts."""
        if CELLS < N:
            raise ValueError(f"N is {N}; a histogram of all values needs N <= {CELLS}: use method 'partition'")
        return [Planned(pure_event(self.epsilon), _note(N))]

    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of values (n,) in [0, N)."""
        edges, known = np.arange(N + 1, dtype=np.int64), curator.keeps_size
        noisy = curator.laplace(_note(N), cell_counts(values, edges, norm="l1"), self.epsilon).double().numpy()
        total = float(len(values)) if known else float(self.size or max(noisy.sum(), 1.0))
        shares = project_to_simplex(noisy, total) if total else np.zeros(len(noisy))
        prefix = np.concatenate([[0.0], np.cumsum(shares)]).clip(0.0, total)
        prefix[-1] = total
        return MonotoneCounts(edges, prefix)


def _note(N: int) -> str:
    return f"counts of {N} public cells"
