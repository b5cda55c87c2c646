r"""The Maximum Error Rule: find where the model is most wrong, ask there, repeat (Diakonikolas, Hardt, Schmidt 2015).

Each of T steps has two halves of equal strength s: a selection of the point with the largest error, and a noisy prefix count
there. Without delta epsilons add up: :math:`s = \epsilon / (2 T)`, a selection has rate s / 2 and the count discrete Laplace
noise of scale 1 / s. With delta both halves are s^2 / 2-zCDP: a selection has rate s and the count Gaussian noise of std 1 / s.

The paper selects dyadic intervals by the choosing mechanism and prints noise that is 8 T / epsilon times too small:
`papers/diakonikolas2015.py` has that algorithm.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.events import for_rows, pure_event, row_epsilon
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.mechanisms import Relation, require_whole
from dpgen.privacy.selection import exponential_event
from dpgen.systems.ordered.counts import (
    NO_RECORDS,
    SCORE,
    Integers,
    MonotoneCounts,
    Values,
    in_order,
    monotone_counts,
    planned_size,
    prefix_count,
    released_size,
)
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.plan import STEPS
from dpgen.systems.ordered.selection import PointSelection

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_SIZE_SHARE = 0.05  # of epsilon, for the number of records where it is private
_SELECTION, _ANSWERS = "MERR, points selection", "MERR, noisy counts"
_NOISE = (1e-3, 1e8)  # records; where the noise of a step is searched


@dataclass(frozen=True, kw_only=True)
class MERR(OrderedEstimator):
    r"""Piecewise linear model of the prefix counts, refined where a private selection finds the largest error.

    Each of T steps selects a point with a large error |count - model| among all of [0, N) and adds a noisy prefix count there.
    After every step the answers are averaged, made monotone and clipped.

    Formal guarantees:
        - `fit` is (epsilon, delta)-DP under the relation of the ledger that is charged; with delta 0 it is pure.
        - Split: 5 % of epsilon for a noisy number of records, under add/remove without `size`; the rest evenly over the steps.
        - T selections and T answers are declared before the data are looked at.

    Arguments:
        epsilon: in nats.
        delta: 0 for a pure guarantee.
        steps: T.
        size: number of records, if it is public under add/remove.

    Raises:
        ValueError: a value out of range.

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
        """The number of records where it is private, the steps."""
        size = planned_size(_SIZE_SHARE * self.epsilon, free=self.size_is_free(relation))
        selection, answer = self.step(relation).events(relation)
        return [*size, Planned(selection, _SELECTION, self.steps), Planned(answer, _ANSWERS, self.steps)]

    def step(self, relation: Relation) -> "Step":
        """The strength of each step."""
        size = 0.0 if self.size_is_free(relation) else _SIZE_SHARE * self.epsilon
        return Step.of(self.steps, self.epsilon, self.delta, rows=self.rows, relation=relation, size=size)

    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of values (n,) in [0, N), at knots that are selected from all of them in memory."""
        values, step = in_order(values), self.step(curator.relation)
        size = released_size(values, self.size, epsilon=_SIZE_SHARE * self.epsilon, curator=curator)
        selection = PointSelection(values, N=N, rate=step.rate, zcdp=step.zcdp)
        knots, counts = np.empty(self.steps, np.int64), np.empty(self.steps)
        variances = np.full(self.steps, step.variance)
        model = MonotoneCounts(np.array([0, N]), np.array([0.0, size]))
        for t in range(self.steps):
            [knots[t]] = curator.release(_SELECTION, selection.given(model))
            counts[t] = step.answer(values, int(knots[t]), curator)
            model = monotone_counts(knots[: t + 1], counts[: t + 1], variances[: t + 1], N=N, size=size)
        return model


@dataclass(frozen=True)
class Step:
    """One selection and one answer of strength s each.

    Arguments:
        strength: s, the epsilon of each half, or sqrt(2 rho) with `zcdp`.
        zcdp: whether halves are zCDP rather than pure.
        rows: the most rows of a person.
    """

    strength: float
    zcdp: bool
    rows: int = 1

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, steps: int, epsilon: float, delta: float, *, rows: int, relation: Relation, size: float = 0.0) -> "Step":
        """The strongest step of which `steps` cost (epsilon, delta) under `relation`, beside a pure epsilon of `size`.

        Raises:
            ValueError: no noise is found for this budget.
        """
        if not delta:
            # the sum of the parts must not round up
            return cls((epsilon - size) * (1 - 1e-12) / (2 * steps), zcdp=False, rows=rows)

        def whole(noise: float) -> "DpEvent":
            from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

            parts = cls(1 / noise, zcdp=True, rows=rows).events(relation)
            return ComposedDpEvent([pure_event(size), *(SelfComposedDpEvent(part, steps) for part in parts)])

        low, high = _NOISE
        return cls(1 / calibrate_noise(whole, Budget(epsilon, delta), relation=relation, low=low, high=high), True, rows)

    @property
    def rate(self) -> float:
        """Lambda of the exponential mechanism."""
        return row_epsilon(self.strength, self.rows) / (SCORE if self.zcdp else 2 * SCORE)

    def events(self, relation: Relation) -> tuple["DpEvent", "DpEvent"]:
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
