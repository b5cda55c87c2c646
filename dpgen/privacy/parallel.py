"""What one record can be touched by: sequential composition, and parallel composition over disjoint groups."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from dpgen.privacy.ledger_file import encode_event

if TYPE_CHECKING:
    import numpy as np
    from dp_accounting import DpEvent

    from dpgen.privacy.accountants import Accountant
    from dpgen.privacy.filters import Cost

Relation = Literal["add_remove", "replace_one"]


@dataclass(eq=False)
class Mechanism:
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
    whole: Mechanism | None = None
    priced: Mechanism | None = None
    number: int | None = None
    planned: int = 0
    count: int = 0
    later: int = 0
    precision: int = 0
    parts: int = 0
    alphas: dict[str, np.ndarray] = field(default_factory=dict)
    cost: Cost | None = None

    @classmethod
    def of(cls, event: DpEvent, note: str, group: str | None) -> Mechanism:
        """Raises ValueError for an event that cannot be written down."""
        try:
            code = json.dumps(encode_event(event), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"event {event!r} cannot be recorded: {error}") from None
        return cls(event, note, group, code)

    @property
    def divisible(self) -> bool:
        """Whether it is spent in parts, and only in parts."""
        return self.priced is not None

    @property
    def most(self) -> int:
        """What the guarantee counts: what was declared and what was charged beyond it; parts count with their whole."""
        return 0 if self.whole is not None else self.planned + self.later

    def beyond(self, count: int) -> int:
        """How many of `count` more charges no plan has room for."""
        return max(0, self.count - self.later + count - self.planned)


Loads = list[tuple[Mechanism, int]]


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
