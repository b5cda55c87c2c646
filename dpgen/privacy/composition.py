r"""Composition of the charges of a ledger: in sequence, and under a filter.

**The privacy filter** bounds mechanisms that are chosen in the light of what was released before. Composition theorems fix
the mechanisms in advance. Where each one is chosen after looking, the sum of what they cost may be bounded instead: at ONE
Renyi order :math:`\alpha`, fixed in advance, the composition of mechanisms whose Renyi losses sum to at most B in every
possible course is :math:`(\alpha, B)`-Renyi private (Feldman and Zrnic 2021, Theorem 3.1). The order may not be picked
afterwards, and privacy loss distributions have no such theorem: on them 400 Gaussians of multiplier 20 that are stopped in
the light of released values reach delta .033 where the counts say .01.

With :math:`\lambda = \alpha - 1`, the log-moment :math:`A = \lambda B` and a reserved share r of delta, what is enforced is

.. math::
    \frac{A}{\lambda} + \log\frac{\lambda}{\lambda + 1} - \frac{\log(\delta (1 - r)(\lambda + 1))}{\lambda} \le \epsilon,
    \qquad \sum_i \delta_i \le r \delta,

the conversion of Canonne, Kamath, Steinke 2020, Proposition 12; :math:`(\epsilon_i, \delta_i)` guarantees count as binary
randomised response of :math:`\epsilon_i` that fails with probability :math:`\delta_i` (Kairouz, Oh, Viswanath 2015; Rogers et
al. 2016). A course in which all are :math:`(\epsilon_i, \delta_i)` guarantees also fits while
:math:`\sum_i \epsilon_i \le \epsilon`: there the loss itself is at most epsilon unless a mechanism failed, so such courses
add nothing to the delta of the others.

**Why exact accounting and the filter hold on one ledger.** Whether the first plan fits the filter is known before anything is
released. If it does not, nothing is ever granted beside it, and the exact value covers all that can happen. If it does, all
that can happen obeys the filter, and the exact value is never used for anything but the plan by itself.

**Why the order of a plan's events may be chosen adaptively.** Let M be the events that are left. The first of them is
dominated by its pair; given its outcome, the rest is such a procedure on the others, by induction dominated by the product
of their pairs, whatever the order; so all are dominated by the product over M (Zhu, Dong, Wang 2022, Theorem 10). Leaving
events out is post-processing. A part of a divisible Gaussian with `1/s_i^2 = (j/N)/s^2` is post-processing of j out of N
equal Gaussians of multiplier `s sqrt(N)`, which are such events; N grows without bound (Smith and Thakurta 2022 prove
it for Gaussians alone).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from dpgen.privacy.mechanisms import Budget, Relation, UnsupportedEvent, encode_event, for_two_records, gaussian_parts

if TYPE_CHECKING:
    import numpy as np
    from dp_accounting import DpEvent

    from dpgen.privacy.accountants import Accountant


_SURPLUS = 1e-9  # by which the parts of a divisible Gaussian may exceed it, for rounding; it is paid for
BITS = 256


@dataclass(frozen=True)
class Planned:
    """One line of a plan: a mechanism that may run up to `count` times, `event` being what one run costs.

    A `divisible` one is a plain Gaussian of multiplier s that is spent in parts chosen adaptively (`charge(..., of=note)`),
    whose multipliers obey `sum 1/s_i^2 <= count/s^2`.
    """

    event: DpEvent
    note: str
    count: int = 1
    divisible: bool = False

    @property
    def key(self) -> str:
        """Event and note as text, by which lines of different ledgers are the same."""
        return json.dumps([self.note, as_json(self.event), self.divisible])

    @property
    def priced(self) -> DpEvent:
        """The event of one run in accounts: of a divisible Gaussian all parts, with their rounding."""
        if not self.divisible:
            return self.event
        from dp_accounting import GaussianDpEvent

        if not (isinstance(self.event, GaussianDpEvent) and 0 < self.event.noise_multiplier < math.inf):
            raise ValueError(f"event is {self.event!r}; only a plain Gaussian is divisible")
        return GaussianDpEvent(self.event.noise_multiplier / math.sqrt(1 + 2 * _SURPLUS))


def as_json(event: DpEvent) -> str:
    """An event as a file holds it; ValueError for one that cannot be written."""
    try:
        return json.dumps(encode_event(event), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"event {event!r} cannot be recorded: {error}") from None


@dataclass(frozen=True)
class LedgerEntry:
    """`count` consecutive charges of one event under one note; `of` is the divisible Gaussian that it was a part of."""

    note: str
    event: DpEvent
    count: int
    of: str | None = None


@dataclass(eq=False)
class LedgerItem:
    """One event under one note of a ledger, with what was planned and charged of it."""

    event: DpEvent
    note: str
    priced: DpEvent
    code: str  # the event as JSON
    divisible: bool = False  # spent in parts, and only in parts
    whole: LedgerItem | None = None  # the divisible Gaussian that this one is a part of
    number: int | None = None  # in the ledger, None before it is declared or charged
    planned: int = 0  # greatest count over all declared plans
    count: int = 0  # what was charged
    later: int = 0  # what was charged beyond the plans
    precision: int = 0  # 1 / sigma^2 of a divisible Gaussian or of a part of one, in whole multiples of 2^-256
    parts: int = 0  # precision of all parts that were charged
    alphas: np.ndarray | None = None  # log-moments under the ledger's relation
    cost: Cost | None = None  # as the ledger's filter counts it

    @classmethod
    def of(cls, event: DpEvent, note: str, *, whole: LedgerItem | None = None, divisible: bool = False) -> LedgerItem:
        """A new item; ValueError for an event that cannot be written or divided, or is no part of the whole."""
        item = cls(event, note, Planned(event, note, divisible=divisible).priced, as_json(event), divisible, whole)
        if divisible or whole is not None:
            item.precision = _precision(event)
        return item

    @property
    def most(self) -> int:
        """Count of the guarantee: declared, and charged beyond that; parts count with their whole."""
        return 0 if self.whole is not None else self.planned + self.later

    def line(self, count: int) -> Planned:
        """A line of a plan with so many runs."""
        return Planned(self.event, self.note, count, self.divisible)

    def beyond(self, count: int) -> int:
        """Number out of `count` more charges that no plan has room for."""
        return max(0, self.count - self.later + count - self.planned)

    def require_room(self, count: int) -> None:
        """Refuse `count` more charges of this part that its whole has no room for."""
        if (whole := self.whole) is None:
            return
        more, room = count * self.precision, math.floor(whole.precision * whole.planned * (1 + Fraction(_SURPLUS)))
        if whole.parts + more > room:
            used, taken = (float(Fraction(p, whole.planned * whole.precision)) for p in (whole.parts, more))
            raise BudgetExceeded(
                f"the divisible Gaussian {whole.note!r} of multiplier {whole.event.noise_multiplier:.6g} has {1 - used:.6g} "
                f"of it left; {count} x {self.note!r} would take {taken:.6g}"
            )

    def record(self) -> dict[str, Any]:
        """The line of the ledger file."""
        line: dict[str, Any] = {"event": json.loads(self.code), "note": self.note}
        if self.whole is not None:
            line["of"] = self.whole.number
        return line | ({"divisible": True} if self.divisible else {})


def _precision(event: DpEvent) -> int:
    """`sum 1/s^2` of plain Gaussians, in whole multiples of 2^-256, rounded up; ValueError for anything else."""
    parts = gaussian_parts(event)
    if any(rate != 1 or sigma == 0 for rate, sigma in parts):
        raise ValueError(f"event is {event!r}; a part of a divisible Gaussian must be a plain Gaussian")
    return math.ceil(sum(count / Fraction(sigma) ** 2 for (_, sigma), count in parts.items()) * (1 << BITS))


def worst(
    counts: Iterable[tuple[DpEvent, int]],
    delta: float,
    relation: Relation,
    accountant: Accountant = "tightest",
    *,
    own: Relation | None = None,
) -> float:
    """Epsilon of so many runs of each event; `own` is the relation of the charges, `relation` the one asked for."""
    from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

    from dpgen.privacy.accountants import epsilon

    def read(event: DpEvent) -> DpEvent:
        if own in (None, relation):
            return event
        if own == "replace_one":
            raise UnsupportedEvent("relation is 'add_remove'; the charges were made under replace_one, which does not imply it")
        return for_two_records(event)

    event = ComposedDpEvent([SelfComposedDpEvent(read(event), n) for event, n in counts if n])
    return epsilon(event, delta, relation=relation, accountant=accountant)


_INFINITE = 1 << 4 * BITS
RESERVED = 0.1
"""Share of delta that (epsilon, delta) guarantees may use up beside the Renyi losses."""


def _units(value: float) -> int:
    """Whole multiples of 2^-256, rounded up: sums of them are exact in any order."""
    return _INFINITE if value == math.inf else math.ceil(Fraction(value) * (1 << BITS))


def _float_up(units: int) -> float:
    """The least float that is not below `units`."""
    if units >= _INFINITE:
        return math.inf
    value = float(Fraction(units, 1 << BITS))
    return value if _units(value) >= units else math.nextafter(value, math.inf)


class BudgetExceeded(RuntimeError):
    """A charge or a plan that would spend more than the budget; nothing was recorded and the mechanism must not run."""


@dataclass(frozen=True)
class Moments:
    """Log-moments (t,) at `ORDERS`, sum of pure epsilons and sum of deltas of charges that are added up, for a display.

    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> round((Moments.of(gaussian_event(4.0), "add_remove") + Moments.of(gaussian_event(4.0), "add_remove")).epsilon(1e-5), 2)
    1.48
    """

    alphas: np.ndarray | float = 0.0
    pure: float = 0.0
    delta: float = 0.0

    @classmethod
    def of(cls, event: DpEvent, relation: Relation) -> Moments:
        """Moments of one event; infinite where nothing is proved of it."""
        from dpgen.privacy.accountants import moments

        return cls(*moments(event, relation))

    def times(self, count: int) -> Moments:
        """Moments of so many such events."""
        return Moments(count * self.alphas, count * self.pure, count * self.delta)

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.alphas + other.alphas, self.pure + other.pure, self.delta + other.delta)

    def epsilon(self, delta: float) -> float:
        """Epsilon at delta, of charges that were fixed in advance."""
        import numpy as np

        from dpgen.privacy.accountants import ORDERS, rdp_epsilon

        left = delta * (1 - 1e-12) - self.delta  # the sum of deltas is rounded
        bound = self.pure if left >= 0 or not self.delta else math.inf
        return min(bound, rdp_epsilon(np.broadcast_to(self.alphas, len(ORDERS)), left)) if left > 0 else bound


class Cost(NamedTuple):
    """Charges as the filter counts them, in whole multiples of 2^-256."""

    renyi: int = 0  # log-moments at the filter's order
    pure: int = 0  # sum of epsilons where all are (epsilon, delta) guarantees
    delta: int = 0  # sum of their deltas

    def times(self, count: int) -> Cost:
        """The cost of `count` of them."""
        return Cost(self.renyi * count, self.pure * count, self.delta * count)

    def plus(self, other: Cost) -> Cost:
        """The cost of both."""
        return Cost(self.renyi + other.renyi, self.pure + other.pure, self.delta + other.delta)


def total_cost(costs: Iterable[Cost]) -> Cost:
    """The cost of all of them."""
    return reduce(Cost.plus, costs, Cost())


@dataclass(frozen=True)
class Filter:
    """Filter of one budget: whether charges fit it, also where each was chosen after looking at earlier releases.

    `order` is the Renyi order > 1, None at delta 0, where only pure guarantees fit and their epsilons add up.

    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> limits = Filter.best(Budget(1.0, 1e-5), "add_remove")
    >>> round(limits.total_epsilon(limits.cost(gaussian_event(4.0))), 2)
    1.02
    """

    budget: Budget
    relation: Relation
    order: float | None

    def __post_init__(self) -> None:
        if (self.order is None) != (self.budget.delta == 0):
            raise ValueError(f"order is {self.order!r}; it must be None at delta 0, and only there")
        if self.order is not None and not 1 < self.order < math.inf:
            raise ValueError(f"order is {self.order!r}; it must be a finite number > 1")

    @classmethod
    def best(cls, budget: Budget, relation: Relation) -> Filter:
        """The filter of the best order for one Gaussian, whose log-moment is `lambda (lambda + 1) / (2 s^2)`."""
        from dpgen.privacy.accountants import ORDERS  # here: a plan is read and explained without NumPy

        if not budget.delta:
            return cls(budget, relation, None)
        order = max(ORDERS, key=lambda lam: (budget.epsilon - _offset(lam, budget.delta * (1 - RESERVED))) / (lam + 1))
        return cls(budget, relation, 1 + order)

    @property
    def name(self) -> str:
        """The filter in words."""
        return "sum of epsilons" if self.order is None else f"filter of Renyi order {self.order:.4g}"

    @property
    def header(self) -> dict[str, Any]:
        """Entries of files, beside budget and relation."""
        return {"order": self.order}

    def cost(self, event: DpEvent) -> Cost:
        """Cost of one run of `event`; whatever has no finite moments counts infinitely much."""
        from dpgen.privacy.accountants import moments

        [renyi], pure, delta = moments(event, self.relation, ((self.order or 2.0) - 1,))
        return Cost(_units(float(renyi) if self.order else math.inf), _units(pure), _units(delta))

    def room(self, cost: Cost, total: Cost) -> int:
        """Number of further runs of `cost` that fit beside `total`; ValueError for one that costs nothing."""
        if cost == Cost():
            raise ValueError("the event costs nothing; there is no limit to state")

        def fits(count: int) -> bool:
            return self.fits(total.plus(cost.times(count)))

        room, step = 0, 1
        while fits(room + step):
            room, step = room + step, 2 * step
        while step > 1:
            step //= 2
            room += step * fits(room + step)
        return room

    @cached_property
    def _limits(self) -> Cost:
        """Largest log-moment, sum of pure epsilons and delta within the budget; -1 where the order proves nothing."""
        moment = -1
        if self.order is not None:
            lam = self.order - 1
            room = lam * (self.budget.epsilon - _offset(lam, self.budget.delta * (1 - RESERVED)))
            moment = math.floor(Fraction(room * (1 - 1e-12)) * (1 << BITS)) if room > 0 else -1
        # epsilons that were divided by a count, each rounded to 53 digits, add up to the whole again
        pure = math.floor(Fraction(self.budget.epsilon) * (1 + Fraction(1, 1 << 50)) * (1 << BITS))
        return Cost(moment, pure, math.floor(Fraction(self.budget.delta) * Fraction(RESERVED) * (1 << BITS)))

    def fits(self, total: Cost) -> bool:
        """Whether everything that one record can be touched by is within the budget."""
        most = self._limits
        return total.delta <= most.delta and (total.renyi <= most.renyi or total.pure <= most.pure)

    def delta_left(self, total: Cost) -> float:
        """Largest delta a tenth of which (epsilon, delta) guarantees can use up beside `total`; 0 where nothing else fits."""
        if not self.fits(total):
            return 0.0
        return float(Fraction(self._limits.delta - total.delta, 1 << BITS) / Fraction(RESERVED))

    def share(self, total: Cost) -> float:
        """Part of what the filter grants that `total` takes up, for a display; above 1 where it does not fit."""
        renyi, pure, delta = (n / limit if limit > 0 else math.inf for n, limit in zip(total, self._limits))
        return max(min(renyi, pure), delta if total.delta else 0.0)

    def total_epsilon(self, total: Cost) -> float:
        """Epsilon, at the budget's delta, of charges that were fixed to sum to `total` in advance."""
        if total.delta > self._limits.delta:
            return math.inf
        best = _float_up(total.pure)
        if self.order is not None and total.renyi < _INFINITE:
            lam = self.order - 1
            best = min(best, max(0.0, _float_up(total.renyi) / lam + _offset(lam, self.budget.delta * (1 - RESERVED))))
        return best

    def chosen_later(self, total: Cost, relation: Relation) -> float:
        """Epsilon of charges chosen adaptively, as it reads under `relation`."""
        pure = math.inf if total.delta else _float_up(total.pure)  # bounds the loss itself, at any time
        if relation == self.relation:
            return min(pure, self.budget.epsilon)
        if relation == "replace_one" and pure < math.inf:
            return 2 * pure
        raise UnsupportedEvent(
            f"relation is {relation!r}; charges chosen adaptively under {self.relation} have no guarantee under it"
        )


def _offset(lam: float, delta: float) -> float:
    """Term that the conversion adds to `A / lambda`."""
    return math.log(lam / (lam + 1)) - math.log(delta * (lam + 1)) / lam
