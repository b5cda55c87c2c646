"""Items of a ledger and their composition: sequential, and parallel over disjoint groups of records."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

from dpgen.privacy.ledger_file import encode_event

if TYPE_CHECKING:
    import numpy as np
    from dp_accounting import DpEvent

    from dpgen.privacy.accountants import Accountant
    from dpgen.privacy.filters import Cost
    from dpgen.privacy.mechanisms import Relation

_SURPLUS = 1e-9  # by which the parts of a divisible Gaussian may exceed it, for rounding; it is paid for
_BITS = 256


@dataclass(frozen=True)
class Planned:
    """One line of a plan: a mechanism that may run up to `count` times.

    Arguments:
        event: what one run costs.
        note: what it is called.
        count: greatest number of runs, >= 1.
        group: disjoint group of records that it touches, None for all.
        divisible: a plain Gaussian of multiplier s that is spent in parts chosen adaptively (`charge(..., of=note)`),
            whose multipliers obey `sum 1/s_i^2 <= count/s^2`.
    """

    event: DpEvent
    note: str
    count: int = 1
    group: str | None = None
    divisible: bool = False


@dataclass(frozen=True)
class LedgerEntry:
    """`count` consecutive charges of one event under one note; `of` is the divisible Gaussian that it was a part of."""

    note: str
    event: DpEvent
    count: int
    group: str | None
    of: str | None = None


@dataclass(eq=False)
class LedgerItem:
    """One (event, note, group) of a ledger.

    Attributes:
        code: the event as JSON.
        whole: the divisible Gaussian that this one is a part of, None for anything else.
        priced: what is accounted for in its place, of a divisible Gaussian (which is spent in parts only).
        number: in the file, None before it is written there.
        planned: greatest count over all declared plans.
        count: what was charged.
        later: what was charged beyond the plans.
        precision: `1 / sigma^2` of a divisible Gaussian or of a part of one, in whole multiples of 2^-256.
        parts: precision of all parts that were charged.
    """

    event: DpEvent
    note: str
    group: str | None
    code: str
    whole: LedgerItem | None = None
    priced: LedgerItem | None = None
    number: int | None = None
    planned: int = 0
    count: int = 0
    later: int = 0
    precision: int = 0
    parts: int = 0
    alphas: dict[str, np.ndarray] = field(default_factory=dict)
    cost: Cost | None = None

    @classmethod
    def of(
        cls, event: DpEvent, note: str, group: str | None, *, whole: LedgerItem | None = None, divisible: bool = False
    ) -> LedgerItem:
        """A new item, charged for nothing.

        Raises:
            ValueError: an event that cannot be written down, that is not divisible, or that is no part of the whole.
        """
        try:
            code = json.dumps(encode_event(event), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"event {event!r} cannot be recorded: {error}") from None
        item = cls(event, note, group, code, whole)
        if divisible:
            from dp_accounting import GaussianDpEvent

            if not (isinstance(event, GaussianDpEvent) and 0 < event.noise_multiplier < math.inf):
                raise ValueError(f"event is {event!r}; only a plain Gaussian is divisible")
            shrunk = event.noise_multiplier / math.sqrt(1 + 2 * _SURPLUS)
            item.priced = cls.of(GaussianDpEvent(shrunk), note, group)
        if divisible or whole is not None:
            item.precision = _precision(event)
        return item

    @property
    def divisible(self) -> bool:
        """Whether it is spent in parts, and only in parts."""
        return self.priced is not None

    @property
    def most(self) -> int:
        """Count of the guarantee: declared, and charged beyond that; parts count with their whole."""
        return 0 if self.whole is not None else self.planned + self.later

    def beyond(self, count: int) -> int:
        """Number out of `count` more charges that no plan has room for."""
        return max(0, self.count - self.later + count - self.planned)

    @property
    def room_for_parts(self) -> int:
        """Largest sum of precisions of the parts of a divisible Gaussian."""
        return math.floor(self.precision * self.planned * (1 + Fraction(_SURPLUS)))

    def line(self, number: int) -> dict[str, Any]:
        """The line of the ledger file that declares it."""
        line = {"mechanism": number, "event": json.loads(self.code), "note": self.note, "group": self.group}
        if self.whole is not None:
            line["of"] = self.whole.number
        return line | ({"divisible": True} if self.divisible else {})


def _precision(event: DpEvent) -> int:
    """`sum 1/s^2` of plain Gaussians, in whole multiples of 2^-256, rounded up.

    Raises:
        ValueError: anything else is in the event.
    """
    from dpgen.privacy.mechanisms import gaussian_parts

    total = Fraction(0)
    for (rate, sigma), count in gaussian_parts(event).items():
        if rate != 1 or sigma == 0:
            raise ValueError(f"event is {event!r}; a part of a divisible Gaussian must be a plain Gaussian")
        total += count / Fraction(sigma) ** 2
    return math.ceil(total * (1 << _BITS))


Loads = list[tuple[LedgerItem, int]]


def cases(loads: Loads, relation: Relation) -> Iterator[Loads]:
    """The compositions one record can be in; groups with equal charges are looked at once.

    Under add_remove a record is in one group. Under replace_one it may leave one group for another: both count, each
    with the doubled sensitivity, which covers the removal in one and the addition in the other.
    """
    groups: dict[str | None, Loads] = {None: []}
    for mechanism, count in loads:
        if count:
            groups.setdefault(mechanism.group, []).append((mechanism, count))
    base = groups.pop(None)
    candidates: Iterable[Loads] = groups.values() or [[]]
    if relation == "replace_one" and len(groups) > 1:
        candidates = [a + b for a, b in combinations(groups.values(), 2)]
    seen = set()
    for extra in candidates:
        signature = tuple(sorted((m.code, n) for m, n in extra))
        if signature not in seen:
            seen.add(signature)
            yield base + extra


def read_under(event: DpEvent, own: Relation, relation: Relation) -> DpEvent:
    """An event charged under the relation `own`, as it reads under `relation`.

    Raises:
        UnsupportedEvent: a guarantee for replaced records says nothing about added or removed ones.
    """
    from dpgen.privacy.events import for_two_records
    from dpgen.privacy.mechanisms import UnsupportedEvent

    if own == relation:
        return event
    if own == "replace_one":
        raise UnsupportedEvent("relation is 'add_remove', but the charges were made under replace_one, which does not imply it")
    return for_two_records(event)


def worst(
    loads: Loads, delta: float, relation: Relation, accountant: Accountant, *, own: Relation | None = None
) -> tuple[float, DpEvent]:
    """Epsilon and composed event of the record that is touched most; `own` is the relation of the charges."""
    from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

    from dpgen.privacy.accountants import epsilon

    def read(event: DpEvent) -> DpEvent:
        return read_under(event, own or relation, relation)

    events = [ComposedDpEvent([SelfComposedDpEvent(read(m.event), n) for m, n in c]) for c in cases(loads, relation)]
    values = [epsilon(event, delta, relation=relation, accountant=accountant) for event in events]
    most = max(range(len(events)), key=values.__getitem__)
    return values[most], events[most]


def rdp_bound(loads: Loads, delta: float, relation: Relation) -> float:
    """The same epsilon from RDP, microseconds after the first call: moments are kept with the mechanisms."""
    import numpy as np

    from dpgen.privacy import moments
    from dpgen.privacy.accountants import event_alphas

    orders = np.array(moments.ORDERS)
    totals: dict[str | None, np.ndarray] = {None: np.zeros(len(orders))}
    for m, count in loads:
        if count:
            if relation not in m.alphas:
                m.alphas[relation] = event_alphas(m.event, relation)
            totals[m.group] = totals.get(m.group, 0.0) + count * m.alphas[relation]
    base = totals.pop(None)
    groups = list(totals.values())
    if relation == "replace_one" and len(groups) > 1:
        groups = [a + b for a, b in combinations(groups, 2)]
    candidates = [base + group for group in groups] or [base]
    return max(moments.rdp_epsilon(c, delta, orders) if c.any() else 0.0 for c in candidates)
