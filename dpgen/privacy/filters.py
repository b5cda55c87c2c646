r"""The privacy filter: what bounds mechanisms that are chosen in the light of what was released before.

Composition theorems fix the mechanisms in advance. Where each one is chosen after looking, the sum of what they cost may be
bounded instead (a filter): at ONE Renyi order :math:`\alpha`, fixed in advance, the composition of mechanisms whose Renyi
losses sum to at most B in every possible course is :math:`(\alpha, B)`-Renyi private (Feldman and Zrnic 2021, Theorem 3.1).
The order may not be picked afterwards, and privacy loss distributions have no such theorem: on them 400 Gaussians of
multiplier 20 that are stopped in the light of released values reach delta .033 where the counts say .01.

With :math:`\lambda = \alpha - 1`, the log-moment :math:`A = \lambda B` and a reserved share r of delta, what is enforced is

.. math::
    \frac{A}{\lambda} + \log\frac{\lambda}{\lambda + 1} - \frac{\log(\delta (1 - r)(\lambda + 1))}{\lambda} \le \epsilon,
    \qquad \sum_i \delta_i \le r \delta,

the conversion of Canonne, Kamath, Steinke 2020, Proposition 12; :math:`(\epsilon_i, \delta_i)` guarantees count as binary
randomised response of :math:`\epsilon_i` that fails with probability :math:`\delta_i` (Kairouz, Oh, Viswanath 2015; Rogers et
al. 2016). A course in which all are :math:`(\epsilon_i, \delta_i)` guarantees also fits while
:math:`\sum_i \epsilon_i \le \epsilon`: there the loss itself is at most epsilon unless a mechanism failed, so such courses
add nothing to the delta of the others.

A record that is in one of several disjoint groups has its own course: the filter holds for each record, see `parallel.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from dpgen.privacy.limits import require_positive

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.mechanisms import Relation

_BITS = 256
_INFINITE = 1 << 4 * _BITS
RESERVED = 0.1
"""Share of delta that (epsilon, delta) guarantees may use up beside the Renyi losses."""


def _units(value: float) -> int:
    """Whole multiples of 2^-256, rounded up: sums of them are exact in any order."""
    return _INFINITE if value == math.inf else math.ceil(Fraction(value) * (1 << _BITS))


def _float_up(units: int) -> float:
    """The least float that is not below `units`."""
    if units >= _INFINITE:
        return math.inf
    value = float(Fraction(units, 1 << _BITS))
    return value if _units(value) >= units else math.nextafter(value, math.inf)


@dataclass(frozen=True)
class Budget:
    """Privacy budget of a run: `epsilon` in nats, finite and > 0, at `delta` in [0, 1); at 0 only pure events fit.

    >>> Budget(2.0, 1e-5)
    Budget(epsilon=2.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        if not (isinstance(self.delta, int | float) and 0 <= self.delta < 1):
            raise ValueError(f"delta is {self.delta!r}; it must lie in [0, 1)")


class BudgetExceeded(RuntimeError):
    """A charge or a plan that would spend more than the budget; nothing was recorded and the mechanism must not run."""


class Cost(NamedTuple):
    """Charges as the filter counts them, in whole multiples of 2^-256.

    Arguments:
        renyi: log-moments at the filter's order.
        pure: sum of epsilons where all are (epsilon, delta) guarantees.
        delta: sum of their deltas.
    """

    renyi: int = 0
    pure: int = 0
    delta: int = 0

    def times(self, count: int) -> Cost:
        """The cost of `count` of them."""
        return Cost(self.renyi * count, self.pure * count, self.delta * count)

    def plus(self, other: Cost) -> Cost:
        """The cost of both."""
        return Cost(self.renyi + other.renyi, self.pure + other.pure, self.delta + other.delta)


@dataclass(frozen=True)
class Filter:
    """Filter of one budget: whether charges fit it, also where each was chosen after looking at earlier releases.

    Arguments:
        epsilon: of the budget, in nats.
        delta: of the budget; at 0 only pure guarantees fit, and their epsilons add up.
        order: Renyi order > 1, None at delta 0.
        reserved: share of delta for the deltas of (epsilon, delta) guarantees, in [0, 1).

    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> round(Filter.best(1.0, 1e-5).epsilon_of(gaussian_event(4.0)), 2)
    1.02
    """

    epsilon: float
    delta: float
    order: float | None
    reserved: float = RESERVED

    def __post_init__(self) -> None:
        if not 0 <= self.reserved < 1:
            raise ValueError(f"reserved is {self.reserved!r}; it must lie in [0, 1)")
        if (self.order is None) != (self.delta == 0):
            raise ValueError(f"order is {self.order!r} at delta {self.delta!r}; it must be None at delta 0, and only there")
        if self.order is not None and not 1 < self.order < math.inf:
            raise ValueError(f"order is {self.order!r}; it must be a finite number > 1")

    @classmethod
    def best(cls, epsilon: float, delta: float, *, order: float | None = None, reserved: float = RESERVED) -> Filter:
        """The filter of the order (None: chosen here) that grants the least noise to one Gaussian."""
        if order is None and delta:
            order = _best_order(epsilon, delta * (1 - reserved))
        return cls(epsilon, delta, order, reserved)

    def cost(self, event: DpEvent, relation: Relation) -> Cost:
        """Cost of one run of `event`; whatever has no finite moments counts infinitely much."""
        from dpgen.privacy.accountants import filter_cost

        renyi, pure, delta = filter_cost(event, (self.order or 2.0) - 1, relation)
        return Cost(_units(renyi if self.order else math.inf), _units(pure), _units(delta))

    def fits(self, total: Cost) -> bool:
        """Whether everything that one record can be touched by is within the budget."""
        if total.delta > self._limits[1]:
            return False
        return total.renyi <= self._limits[0] or total.pure <= self._limits[2]

    @property
    def _limits(self) -> tuple[int, int, int]:
        return _limits(self)

    def total_epsilon(self, total: Cost) -> float:
        """Epsilon, at the budget's delta, of charges that were fixed to sum to `total` in advance."""
        if total.delta > self._limits[1]:
            return math.inf
        best = _float_up(total.pure)
        if self.order is not None and total.renyi < _INFINITE:
            lam = self.order - 1
            best = min(best, max(0.0, _float_up(total.renyi) / lam + _offset(lam, self.delta * (1 - self.reserved))))
        return best

    @staticmethod
    def pure_epsilon(total: Cost) -> float:
        """Sum of the pure epsilons, inf where something is not pure: it bounds the loss itself, whatever was chosen when."""
        return math.inf if total.delta else _float_up(total.pure)

    def epsilon_of(self, event: DpEvent, relation: Relation = "add_remove") -> float:
        """Epsilon that the filter counts for `event`: for the calibration of events that are chosen adaptively."""
        return self.total_epsilon(self.cost(event, relation))

    def guarantee(self, delta: float) -> float:
        """Epsilon at another delta of anything that fits; inf where this filter proves none."""
        if delta >= self.delta:
            return self.epsilon
        if self.order is None or delta <= self.reserved * self.delta:
            return math.inf
        lam = self.order - 1
        moment = lam * (self.epsilon - _offset(lam, self.delta * (1 - self.reserved)))
        return max(self.epsilon, moment / lam + _offset(lam, delta - self.reserved * self.delta))


def _offset(lam: float, delta: float) -> float:
    """Term that the conversion adds to `A / lambda`."""
    return math.log(lam / (lam + 1)) - math.log(delta * (lam + 1)) / lam


@lru_cache(maxsize=64)
def _limits(limits: Filter) -> tuple[int, int, int]:
    """Largest log-moment, delta and sum of pure epsilons within the budget; the moment is -1 where the order proves nothing."""
    moment = -1
    if limits.order is not None:
        lam = limits.order - 1
        room = lam * (limits.epsilon - _offset(lam, limits.delta * (1 - limits.reserved)))
        moment = math.floor(Fraction(room * (1 - 1e-12)) * (1 << _BITS)) if room > 0 else -1
    reserved = math.floor(Fraction(limits.delta) * Fraction(limits.reserved) * (1 << _BITS))
    # epsilons that were divided by a count, each rounded to 53 digits, add up to the whole again
    return moment, reserved, math.floor(Fraction(limits.epsilon) * (1 + Fraction(1, 1 << 50)) * (1 << _BITS))


def _best_order(epsilon: float, delta: float) -> float:
    """The order with the largest limit on `1 / sigma^2`: a Gaussian's log-moment is `lambda (lambda + 1) / (2 sigma^2)`."""
    from dpgen.privacy.moments import ORDERS

    return 1 + max(ORDERS, key=lambda lam: (epsilon - _offset(lam, delta)) / (lam + 1))


class FilterTotals:
    """Costs that a filter counts, by group of disjoint records, and the heaviest that one record can be touched by.

    Arguments:
        limits: the filter.
        relation: neighbouring relation; under replace_one a record may leave one group for another.
        costs: group (None: all records) and cost of everything counted so far.
    """

    def __init__(self, limits: Filter, relation: Relation, costs: Iterable[tuple[str | None, Cost]]) -> None:
        self.limits, self.relation = limits, relation
        self._totals: dict[str | None, Cost] = {None: Cost()}
        for group, cost in costs:
            self.add(group, cost)

    def add(self, group: str | None, cost: Cost) -> None:
        """Count `cost` for the records of `group`."""
        self._totals[group] = self._totals.get(group, Cost()).plus(cost)

    def heaviest(self, added: Mapping[str | None, Cost] | None = None) -> Cost:
        """All records' cost and one group's, two under replace_one: the largest of each kind of cost, `added` included."""
        totals = dict(self._totals)
        for group, cost in (added or {}).items():
            totals[group] = totals.get(group, Cost()).plus(cost)
        base = totals.pop(None)
        if not totals:
            return base
        touched = 2 if self.relation == "replace_one" else 1
        return base.plus(Cost(*(sum(sorted(kind)[-touched:]) for kind in zip(*totals.values()))))

    def room(self, cost: Cost, group: str | None) -> int:
        """Number of further runs of `cost` that fit; the cost must not be zero."""
        room, step = 0, 1
        while self.limits.fits(self.heaviest({group: cost.times(room + step)})):
            room, step = room + step, 2 * step
        while step > 1:
            step //= 2
            room += step * self.limits.fits(self.heaviest({group: cost.times(room + step)}))
        return room
