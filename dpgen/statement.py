"""What a release guarantees, for whom, and what it does not cover."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from decimal import ROUND_CEILING, Context
from typing import Any

from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import UnsupportedEvent

RELATIONS = {"add_remove": "add or remove", "replace_one": "replace"}
"""The neighbouring relations in words."""


def rounded_up(value: float) -> str:
    """Four digits of an epsilon or a delta, never less than it is.

    >>> rounded_up(2.99961), rounded_up(1.00001), rounded_up(3.16227766e-6)
    ('3', '1.001', '3.163e-06')
    """
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(float(value)))):g}"


def guarantee(epsilon: float, delta: float, relation: str, unit: str = "one record") -> str:
    """A guarantee in words.

    >>> guarantee(2.99961, 1e-5, "add_remove")
    'epsilon 3 at delta 1e-05 (add or remove one record)'
    """
    return f"epsilon {rounded_up(epsilon)} at delta {rounded_up(delta)} ({RELATIONS.get(relation, relation)} {unit})"


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """What a release guarantees, for whom, under which assumptions, and what it does not cover."""

    epsilon: float
    delta: float
    relation: str
    unit: str
    accountant: str
    also: dict[str, float] = field(default_factory=dict)
    mechanisms: tuple[dict[str, Any], ...] = ()
    assumptions: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()

    @classmethod
    def from_ledger(
        cls,
        ledger: Ledger,
        *,
        also: dict[str, float] | None = None,
        assumptions: Sequence[str] = (),
        not_covered: Sequence[str] = (),
    ) -> "PrivacyStatement":
        """The statement of everything that the ledger has charged; replace-one and RDP values stand beside the headline."""
        other: dict[str, float] = {}
        if ledger.relation == "add_remove":
            with suppress(UnsupportedEvent):  # not every guarantee says something about replaced records
                other["replace_one"] = ledger.epsilon(relation="replace_one")
        if ledger.delta:
            other["rdp"] = ledger.epsilon_rdp()
        other = {name: value for name, value in other.items() if value < float("inf")}
        times = Counter[tuple[str, str, str | None]]()
        for e in ledger.entries():
            times[e.note, str(e.event), e.group] += e.count
        mechanisms = tuple(
            {"note": note, "event": event, "count": count, "group": group} for (note, event, group), count in times.items()
        )
        return cls(
            epsilon=ledger.epsilon(),
            delta=ledger.delta,
            relation=ledger.relation,
            unit=ledger.unit,
            accountant="tightest valid of PLD, Renyi and closed forms",
            also=other | (also or {}),
            mechanisms=mechanisms,
            assumptions=tuple(assumptions),
            not_covered=tuple(not_covered),
        )

    def extended(self, notes: Sequence[str], *, private_logs: bool = False) -> "PrivacyStatement":
        """The statement with facts about the data and the run that it must repeat."""
        logs = ("losses on private records were logged (private_logs): the logs are not covered",) if private_logs else ()
        return replace(self, not_covered=(*self.not_covered, *notes, *logs))

    def headline(self) -> dict[str, Any]:
        """What a summary shows: the guarantee and the other readings of it."""
        return {name: getattr(self, name) for name in ("epsilon", "delta", "relation", "unit")} | self.also

    def to_json(self) -> str:
        """The statement for programs."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "PrivacyStatement":
        sequences = ("mechanisms", "assumptions", "not_covered")
        fields: dict[str, Any] = {n: tuple(value) if n in sequences else value for n, value in values.items()}
        return cls(**fields)

    def to_markdown(self) -> str:
        """The statement for people."""
        lines = [
            "# Privacy statement",
            "",
            f"This release is **(epsilon = {rounded_up(self.epsilon)}, delta = {rounded_up(self.delta)})-differentially "
            f"private** under the {self.relation.replace('_', '-')} relation; the protected unit is {self.unit}.",
            f"Accountant: {self.accountant}.",
            "",
            "| other readings of the same run | epsilon |",
            "|---|---|",
            *(f"| {name.replace('_', '-')} | {rounded_up(value)} |" for name, value in self.also.items()),
            "",
            "| mechanism | event | times | disjoint group |",
            "|---|---|---|---|",
            *(f"| {m['note']} | `{m['event']}` | {m['count']} | {m['group'] or ''} |" for m in self.mechanisms),
            "",
            "## Assumptions",
            *(f"- {text}" for text in self.assumptions),
            "",
            "## Not covered",
            *(f"- {text}" for text in self.not_covered),
            "",
        ]
        return "\n".join(lines)
