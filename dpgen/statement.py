"""Privacy statements of releases: guarantee, assumptions, conventions, and what is not covered."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any

from dpgen.facts import Fact, Said, Section, said
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.ledger_file import checksum
from dpgen.privacy.mechanisms import UnsupportedEvent

UNPROTECTED = "computed on private records without noise: not for publication"
"""The mark of figures that look at private or test records, wherever they are written."""


def person(unit: str | None, rows: int) -> str:
    """The unit of rows, or of people that a column names.

    >>> person(None, 1), person("id", 3)
    ('one record', 'one person (id) with at most 3 rows')
    """
    return "one record" if unit is None else f"one person ({unit}) with at most {rows} row{'s' if rows > 1 else ''}"


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


def _mechanisms(ledger: Ledger) -> tuple[dict[str, Any], ...]:
    """Mechanisms and their counts, the most that the guarantee allows, or the divisible Gaussian that they were a part of."""
    times = Counter[tuple[str, str, str | None]]()
    for e in ledger.entries():
        times[e.note, str(e.event), e.of] += e.count
    most = {(p.note, str(p.event), None): p.count for p in ledger.promised()}
    return tuple(
        {"note": note, "event": event, "count": times[note, event, of]}
        | ({"of": of} if of else {"most": most[note, event, None]})
        for note, event, of in dict.fromkeys([*most, *times])
    )


_TOLD = (
    Fact.CHOSEN_MODEL,
    Fact.BOUGHT,
    Fact.GENERATED_KEYS,
    Fact.LEFT_OUT,
    Fact.NOT_IN_SCHEMA,
    Fact.INDEX_LEFT_OUT,
    Fact.UNSEEN,
    Fact.INDEPENDENT,
    Fact.INDEPENDENT_BITS,
    Fact.NOT_LINKED,
    Fact.WIDE_BINS,
    Fact.MOVED,
    Fact.MOVED_OTHERS,
)
_PART = re.compile(r"GaussianDpEvent\(noise_multiplier=([^)]+)\)")


def collected(mechanisms: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mechanisms for people: parts of a divisible Gaussian that have one note are one line, priced as what they are together.

    Gaussians of multipliers s_i, also adaptive ones, are together one Gaussian with :math:`1 / s^2 = \\sum_i 1 / s_i^2`.

    >>> part = {"note": "marginals", "of": "all of a fit", "event": "GaussianDpEvent(noise_multiplier=4.0)"}
    >>> [(line["event"], line["count"]) for line in collected([part | {"count": 1}, part | {"count": 3}])]
    [('together GaussianDpEvent(noise_multiplier=2.0)', 4)]
    """
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    precision = Counter[tuple[Any, ...]]()
    for i, m in enumerate(mechanisms):
        part = _PART.fullmatch(m["event"]) if "of" in m else None
        key = (m["note"], m["of"]) if part else (i,)
        if part:
            precision[key] += m["count"] * float(part[1]) ** -2
        if key in lines:
            event = f"together GaussianDpEvent(noise_multiplier={precision[key] ** -0.5})"
            lines[key] |= {"event": event, "count": lines[key]["count"] + m["count"]}
        else:
            lines[key] = dict(m)
    return list(lines.values())


def shared_in_words(shared: dict[str, Any]) -> str:
    """What a statement says of a budget that several runs pay from.

    >>> shared_in_words({"file": "data.budget", "epsilon": 3.0, "delta": 1e-5, "spent": 1.25, "runs": 2})
    'epsilon 1.25 of 3 at delta 1e-05 is paid for by 2 runs on the data set (data.budget)'
    """
    runs = f"{shared['runs']} run{'s' if shared['runs'] != 1 else ''}"
    spent, total, delta = (rounded_up(shared[name]) for name in ("spent", "epsilon", "delta"))
    return f"epsilon {spent} of {total} at delta {delta} is paid for by {runs} on the data set ({shared['file']})"


def guessed(epsilon: float, delta: float) -> float:
    r"""Greatest probability of a right guess between two equally likely neighbours.

    .. math:: (e^\epsilon + \delta) / (e^\epsilon + 1)

    >>> guessed(0.0, 0.0), round(guessed(1.0, 1e-5), 4)
    (0.5, 0.7311)
    """
    return (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon))


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """Guarantee of a release with its unit, assumptions and limits: `facts`, see `dpgen.facts`.

    `shared` is of the budget that other runs pay from, too; `files` are SHA-256 of all that a run has released, by name.
    """

    epsilon: float
    delta: float
    relation: str
    unit: str
    accountant: str
    also: dict[str, float] = field(default_factory=dict)
    mechanisms: tuple[dict[str, Any], ...] = ()
    facts: tuple[Said, ...] = ()
    shared: dict[str, Any] | None = None
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_ledger(
        cls, ledger: Ledger, *, also: dict[str, float] | None = None, facts: Iterable[Fact | Said] = ()
    ) -> "PrivacyStatement":
        """The guarantee of the ledger, and what ran; replace-one and RDP values stand beside the headline.

        Epsilon is that of everything the ledger has declared, whatever part of it ran: that a run was stopped may itself
        depend on what it released. The mechanisms say how often each one ran, and how often the plan allowed it to.
        """
        other = dict[str, float]()
        if ledger.relation == "add_remove":
            with suppress(UnsupportedEvent):  # not every guarantee says something about replaced records
                other["replace_one"] = ledger.epsilon(relation="replace_one")
        if ledger.delta and (ledger.budget is None or not ledger.chosen_later):
            with suppress(UnsupportedEvent):
                other["rdp"] = ledger.epsilon(accountant="rdp")
        other = {name: value for name, value in other.items() if value < float("inf")}
        rows = {Fact.ONE_RECORD, Fact.ONE_IMAGE, Fact.ONE_ROW}  # of a unit that is a row
        own = [one for one in said(facts) if ledger.unit == "one record" or one.fact not in rows]
        resumed = (Fact.RESUMED,) if ledger.resumed else ()
        unplanned = (Fact.FIXED_IN_ADVANCE,) if ledger.budget is None and ledger.chosen_later else ()
        return cls(
            epsilon=ledger.epsilon(),
            delta=ledger.delta,
            relation=ledger.relation,
            unit=ledger.unit,
            accountant=ledger.accountant,
            also=other | (also or {}),
            mechanisms=_mechanisms(ledger),
            facts=said((*own, Fact.SATISFIED, *unplanned, *resumed)),
            shared=(ledger.payer.statement() or None) if ledger.payer is not None else None,
        )

    def extended(self, facts: Iterable[Fact | Said]) -> "PrivacyStatement":
        """The statement with more facts, each once."""
        return replace(self, facts=said((*self.facts, *facts)))

    def says(self, fact: Fact) -> bool:
        """Whether the statement has a fact, with whatever values."""
        return any(one.fact is fact for one in self.facts)

    def section(self, section: Section) -> tuple[str, ...]:
        """Sentences of a section."""
        return tuple(one.sentence for one in self.facts if one.fact.section is section)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Sentences of what must be true for the guarantee to hold."""
        return self.section(Section.ASSUMPTIONS)

    @property
    def conventions(self) -> tuple[str, ...]:
        """How the guarantee is to be read, in sentences."""
        return self.section(Section.CONVENTIONS)

    @property
    def told(self) -> tuple[str, ...]:
        """Sentences that belong in a summary: what was bought, left out, generated and moved."""
        return tuple(said.sentence for said in self.facts if said.fact in _TOLD)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the guarantee does not protect, in sentences."""
        return self.section(Section.NOT_COVERED)

    def in_words(self) -> str:
        """The guarantee in words, as it stands beside pictures and figures."""
        return guarantee(self.epsilon, self.delta, self.relation, self.unit)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with facts and their sentences."""
        values = asdict(replace(self, facts=())) | {"facts": [one.to_dict() for one in self.facts]}
        return values | {section.value: list(self.section(section)) for section in Section}

    def to_json(self) -> str:
        """The statement for programs, with a checksum of itself."""
        return json.dumps(self.to_dict() | {"sha256": checksum(self.to_dict())}, indent=2)

    @classmethod
    def read(cls, path: Path) -> "PrivacyStatement":
        """A statement from the file that `to_json` was written to."""
        try:
            return cls.from_dict(json.loads(path.read_bytes()))
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is damaged: {' '.join(str(error).split())}") from error

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "PrivacyStatement":
        """The statement of `to_dict`, or of `to_json`, which is compared with its checksum; one of dpgen 0.4 has no facts."""
        own = {name: value for name, value in values.items() if name != "sha256"}
        if values.get("sha256", "") != checksum(own) and ("sha256" in values or values.get("files")):
            raise ValueError("the statement does not match its own checksum: it was cut or edited")
        sentences = {section: own.pop(section.value, ()) for section in Section}
        if "facts" in own:
            own["facts"] = tuple(Said.from_dict(fact) for fact in own["facts"])
            told = Counter(fact.fact.section for fact in own["facts"])
            if any(told[section] != len(texts) for section, texts in sentences.items()):
                raise ValueError("the sentences of the statement are not those of its facts")
        else:
            free = {Section.ASSUMPTIONS: Fact.ASSUMED, Section.CONVENTIONS: Fact.AGREED, Section.NOT_COVERED: Fact.UNCOVERED}
            own["facts"] = tuple(free[section](text=text) for section, texts in sentences.items() for text in texts)
        return cls(**own | {"mechanisms": tuple(own.get("mechanisms", ()))})

    def __str__(self) -> str:
        return f"{self.in_words()}\n{self.odds()}"

    def _repr_markdown_(self) -> str:
        """The statement in a notebook: what `str` says, and what ran."""
        lines = [f"| {m['note']} | `{m['event']}` | {m['count']} |" for m in collected(self.mechanisms)]
        return "\n".join(
            [f"**{self.in_words()}**", "", self.odds(), "", "| mechanism | event | times |", "|---|---|---|", *lines]
        )

    def to_markdown(self) -> str:
        """The statement for people: the guarantee as odds and as numbers, what ran, and three lists."""
        headings = {
            Section.ASSUMPTIONS: "What the guarantee assumes",
            Section.CONVENTIONS: "How to read it",
            Section.NOT_COVERED: "Not covered",
        }
        readings, together = [], []
        if self.also:
            rows = [f"| {name.replace('_', '-')} | {rounded_up(value)} |" for name, value in self.also.items()]
            readings = ["", "| other readings of the same run | epsilon |", "|---|---|", *rows]
        if self.shared is not None:  # what holds for all runs that pay from one budget, whoever sees all of them
            together = [
                "",
                f"When this was written, {shared_in_words(self.shared)}, as if all of it had been fixed in advance. The "
                "guarantee of all runs that ever pay from it, each chosen in the light of the others, is **(epsilon = "
                f"{rounded_up(self.shared['epsilon'])}, delta = {rounded_up(self.shared['delta'])})** for the same unit, of "
                "records that none of them has held out for evaluation.",
            ]
        lines = [
            "# Privacy statement",
            "",
            f"{self.odds()}",
            "",
            f"This release is **(epsilon = {rounded_up(self.epsilon)}, delta = {rounded_up(self.delta)})-differentially "
            f"private** under the {self.relation.replace('_', '-')} relation; the protected unit is {self.unit}.",
            f"Accountant: {self.accountant}.",
            *readings,
            *together,
            "",
            "| mechanism | event | times | at most |",
            "|---|---|---|---|",
            *(
                f"| {m['note']} | `{m['event']}` | {m['count']} | {m.get('most', m['count'])} |"
                for m in collected(self.mechanisms)
            ),
            "",
        ]
        for section, heading in headings.items():
            lines += [f"## {heading}", "", *(f"- {text}" for text in self.section(section) or ["Nothing."]), ""]
        return "\n".join(lines)

    def question(self) -> str:
        """What the guarantee keeps from being known, as an indirect question."""
        if self.relation == "add_remove":
            return f"whether {self.unit} is among the data"
        return f"what {self.unit} is, one of any two possibilities"

    def odds(self) -> str:
        """The guarantee as the odds of a guess, in words; see `guessed`."""
        most = float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(100.0 * guessed(self.epsilon, self.delta))))
        return (
            f"Whoever sees this release and knows everything else guesses right {self.question()} in at most {most:g} of 100 "
            "cases. Without the release it is 50."
        )
