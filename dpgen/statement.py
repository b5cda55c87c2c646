"""Privacy statements of releases: guarantee, assumptions, conventions, and what is not covered."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Context, Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from dpgen import __version__
from dpgen.facts import Fact, Said, Section, listed, said
from dpgen.files import IN_WORDS, STATEMENT
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


_PART = re.compile(r"GaussianDpEvent\(noise_multiplier=([^)]+)\)")


def _other_epsilons(ledger: Ledger) -> dict[str, float]:
    """Finite epsilons of another relation, and by another accountant."""
    other = dict[str, float]()
    if ledger.relation == "add_remove":
        with suppress(UnsupportedEvent):  # not every guarantee says something about replaced records
            other["replace_one"] = ledger.epsilon(relation="replace_one")
    if ledger.delta and (ledger.budget is None or not ledger.chosen_later):
        with suppress(UnsupportedEvent):
            other["rdp"] = ledger.epsilon(accountant="rdp")
    return {name: value for name, value in other.items() if value < float("inf")}


def _facts(ledger: Ledger, facts: Iterable[Fact | Said]) -> Iterator[Fact | Said]:
    """Facts of a release, and those that its ledger knows."""
    rows = {Fact.ONE_RECORD, Fact.ONE_IMAGE}  # of a unit that is a row
    yield from (one for one in said(facts) if ledger.unit == "one record" or one.fact not in rows)
    yield Fact.SATISFIED
    if ledger.budget is None and ledger.chosen_later:
        yield Fact.FIXED_IN_ADVANCE
    if ledger.resumed:
        yield Fact.RESUMED
    if ledger.payer is not None and ledger.payer.last:
        yield Fact.NO_SECOND_RUN(file=ledger.payer.path.name)


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """A statement without its checksum, which it must match where it has one, or names files."""
    own = {name: value for name, value in values.items() if name != "sha256"}
    if values.get("sha256", "") != checksum(own) and ("sha256" in values or values.get("files")):
        raise ValueError("the statement does not match its own checksum: it was cut or edited")
    return own


def _taken(facts: Iterable[dict[str, Any]], sentences: Mapping[str, list[str]]) -> list[Said]:
    """Facts whose sentence stands in one of the lists, out of which it is taken."""
    kept = list[Said]()
    for fact in facts:
        with suppress(ValueError):
            one = Said.from_dict(fact)
            place = next((texts for texts in sentences.values() if one.sentence in texts), None)
            if place is not None:
                place.remove(one.sentence)
                kept.append(one)
    return kept


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
    """Sentence of a statement on a budget that several runs pay from.

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


def right_of_100(epsilon: float, delta: float) -> str:
    """Right guesses of 100, never less than they are: one digit after the point, more where all but few guesses are right.

    >>> right_of_100(1.0, 1e-5), right_of_100(8.0, 0.0), right_of_100(0.0, 0.0)
    ('73.2', '99.97', '50')
    """
    percent = Decimal(repr(100.0 * guessed(epsilon, delta)))
    digits = 1 if percent >= 100 else max(1, -math.floor(math.log10(100 - percent)))
    return f"{percent.quantize(Decimal(1).scaleb(-digits), ROUND_CEILING).normalize():f}"


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """Guarantee of a release with its unit, assumptions and limits: `facts`, see `dpgen.facts`.

    `shared` is of the budget that other runs pay from, too; `files` are SHA-256 of all that a run has released, by name;
    `title` names the data in the owner's words; `records` is a released number of records with the noise std where that is
    known; `signer` is the key that has signed.
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
    title: str = ""
    date: str = ""
    version: str = ""
    records: tuple[float, float | None] | None = None
    signer: str = ""

    @classmethod
    def from_ledger(
        cls, ledger: Ledger, *, also: dict[str, float] | None = None, facts: Iterable[Fact | Said] = ()
    ) -> "PrivacyStatement":
        """The guarantee of the ledger, and what ran; replace-one and RDP values stand beside the headline.

        Epsilon is that of everything the ledger has declared, whatever part of it ran: that a run was stopped may itself
        depend on what it released. The mechanisms say how often each one ran, and how often the plan allowed it to.
        """
        return cls(
            epsilon=ledger.epsilon(),
            delta=ledger.delta,
            relation=ledger.relation,
            unit=ledger.unit,
            accountant=ledger.accountant,
            also=_other_epsilons(ledger) | (also or {}),
            mechanisms=_mechanisms(ledger),
            facts=said(_facts(ledger, facts)),
            shared=(ledger.payer.statement() or None) if ledger.payer is not None else None,
            date=datetime.now(UTC).date().isoformat(),
            version=__version__,
        )

    def of_records(self, size: float | None, std: float | None = None) -> "PrivacyStatement":
        """The statement with a released number of records, and with warnings of an epsilon or a delta that protect little."""
        warned: list[Said] = []
        if size and self.delta >= 1 / size:  # judged by the released number alone
            warned.append(Fact.LARGE_DELTA(delta=self.delta, n=round(size), records=self.counted, most=1 / size))
        if guessed(self.epsilon, self.delta) > _CLEAR:
            warned.append(Fact.LARGE_EPSILON(epsilon=rounded_up(self.epsilon)))
        return replace(self.extended(warned), records=None if size is None else (float(size), std))

    def sealed(self, files: Mapping[str, bytes]) -> tuple["PrivacyStatement", dict[str, bytes]]:
        """The statement with the checksums of released files, and all of these as they are written, the statement first."""
        own = replace(self, files=self.files | {name: sha256(data).hexdigest() for name, data in files.items()})
        in_words = own.to_markdown().encode()
        own = replace(own, files=own.files | {IN_WORDS: sha256(in_words).hexdigest()})
        return own, {STATEMENT: own.to_json().encode(), IN_WORDS: in_words, **files}

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
    def not_covered(self) -> tuple[str, ...]:
        """Limits of the guarantee, in sentences."""
        return self.section(Section.NOT_COVERED)

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """Facts to be known before the release is used, for programs."""
        return self._coded(Section.WARNINGS)

    @property
    def notes(self) -> list[dict[str, Any]]:
        """Facts on how the release was made and on what the guarantee does not cover, for programs."""
        return self._coded(Section.MADE, Section.NOT_COVERED)

    def _coded(self, *sections: Section) -> list[dict[str, Any]]:
        """Facts of sections: their names as `code`, their values, and their sentences."""
        found = [one for one in self.facts if one.fact.section in sections]
        return [{"code": one.fact.name, **dict(one.values), "text": one.sentence} for one in found]

    @property
    def told(self) -> tuple[str, ...]:
        """Sentences of a summary: what to know before the release is used, how it was made, that records are no people."""
        order = {Section.WARNINGS: 0, Section.MADE: 1, Section.UNIT: 2}
        found = [one for one in self.facts if one.fact.section in order]
        found = [one for one in found if one.fact.section is not Section.UNIT or one.fact is Fact.ONE_RECORD]
        return tuple(one.short for one in sorted(found, key=lambda one: order[one.fact.section]))

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
        """The statement of `to_dict`, or of `to_json`, which is compared with its checksum.

        What an earlier version said stays as it said it: a fact that has another sentence by now, or is gone, is its text.
        """
        own = _checked(values)
        names = [*(section.value for section in Section), "conventions"]  # the last until 0.5
        sentences = {name: list(own.pop(name, ())) for name in names}
        facts = own.get("facts", ())
        if "facts" in own and len(facts) != sum(map(len, sentences.values())):
            raise ValueError("the sentences of the statement are not those of its facts")
        kept = _taken(facts, sentences)
        free = {"assumptions": Fact.ASSUMED, "not_covered": Fact.UNCOVERED}
        own["facts"] = (*kept, *(free.get(name, Fact.AGREED)(text=text) for name, texts in sentences.items() for text in texts))
        records = own.get("records")
        return cls(**own | {"mechanisms": tuple(own.get("mechanisms", ())), "records": records and tuple(records)})

    def __str__(self) -> str:
        return f"{self.in_words()}\n{self.odds()}"

    def _repr_markdown_(self) -> str:
        """The statement in a notebook: what `str` says, and what ran."""
        lines = [f"| {m['note']} | `{m['event']}` | {m['count']} |" for m in collected(self.mechanisms)]
        return "\n".join(
            [f"**{self.in_words()}**", "", self.odds(), "", "| mechanism | event | times |", "|---|---|---|", *lines]
        )

    def to_markdown(self) -> str:
        """The statement for people: what it is about, what to know before, eight questions and answers, and what ran."""
        about = "\n".join("| {} | {} |".format(*(cell.replace("|", r"\|") for cell in row)) for row in self.about())
        lines = [f"# Privacy statement{': ' * bool(self.title)}{self.title}", "", "| | |", "|---|---|", about, ""]
        for heading, texts in (
            ("Before you use it", self.section(Section.WARNINGS)),
            *((f"{number}. {question}", answers) for number, (question, answers) in enumerate(self.questions(), 1)),
            ("How it was made", self.section(Section.MADE)),
        ):
            lines += [f"## {heading}", "", *(f"- {text}" for text in texts), ""] if texts else []
        ran = collected(self.mechanisms)
        return "\n".join(
            [
                *lines,
                f"<details><summary>{self.measured()}</summary>",
                "",
                "| mechanism | event | times | at most |",
                "|---|---|---|---|",
                *(f"| {m['note']} | `{m['event']}` | {m['count']} | {m.get('most', m['count'])} |" for m in ran),
                "",
                "</details>",
                "",
            ]
        )

    def about(self) -> list[tuple[str, str]]:
        """Facts of the release, under names: the data, when and with what it was made, how many records, the files."""
        made = " ".join([self.date or "at an unknown time", f"with dpgen {self.version}" * bool(self.version)])
        rows = [("data", self.title or "not named (`title` names them)"), ("made", made), ("guarantee", self.in_words())]
        if self.records is not None:
            rows.append((self.counted, self._number(*self.records)))
        if self.files:
            rows += [(f"SHA-256 of {name}", f"`{found}`") for name, found in self.files.items() if name != IN_WORDS]
        return [*rows, ("signed", f"with the key {self.signer}" if self.signer else "no")]

    def _number(self, size: float, std: float | None) -> str:
        """The number of records in words, with the standard deviation of its noise."""
        if self.says(Fact.PUBLIC_SIZE) or self.says(Fact.KNOWN_SIZE):
            return f"{size:,.0f}"
        noise = "" if std is None else f"; the standard deviation of the noise is {std:.0f}"
        return f"about {size:,.0f} (a noisy number{noise})"

    @property
    def counted(self) -> str:
        """The unit that `records` counts."""
        return "people" if self.says(Fact.ONE_PERSON_LINKED) or self.says(Fact.ONE_PERSON_TRAINED) else "records"

    def measured(self) -> str:
        """Outputs that looked at the private data, in one line."""
        notes = dict.fromkeys(m["note"] for m in self.mechanisms if m["count"])
        times = sum(m["count"] for m in self.mechanisms)
        return f"Mechanisms that looked at the private data, {times:,} times in all: {listed([*notes], 4) or 'none'}."

    def questions(self) -> list[tuple[str, list[str]]]:
        """Eight questions of a privacy officer, and what the statement answers."""
        relation = self.relation.replace("_", "-")
        exact = f"({rounded_up(self.epsilon)}, {rounded_up(self.delta)})"
        price = [
            self.odds(),
            f"The release is (epsilon, delta) = {exact}-differentially private under the {relation} relation. Accountant: "
            f"{self.accountant}.",
        ]
        price += [f"The same run has epsilon {rounded_up(v)} {_READINGS.get(name, name)}." for name, v in self.also.items()]
        beside = ["Runs with budgets of their own on the same data come on top: their epsilons and deltas add up."]
        if self.shared is not None:  # what holds for all runs that pay from one budget, whoever sees all of them
            whole = f"({rounded_up(self.shared['epsilon'])}, {rounded_up(self.shared['delta'])})"
            beside = [
                f"When this was written, {shared_in_words(self.shared)}, as if all of it had been fixed in advance.",
                "All runs that ever pay from that budget, each chosen in the light of the others, have together (epsilon, "
                f"delta) = {whole} for the same unit, of records that none of them has held out for evaluation.",
            ]
        verbatim = () if self.says(Fact.VERBATIM) else ("No list of values of the records is released.",)
        signed = (
            f"It is signed. `dpgen verify DIR --key FILE` compares with the owner's public key, {self.signer}."
            if self.signer
            else "It is not signed: nothing shows from whom it is. The owner can sign it by `dpgen sign`."
        )
        return [
            ("Who is protected?", [f"The protected unit is {self.unit}.", *self.section(Section.UNIT)]),
            ("By how much?", [*price, *self.section(Section.PRICE)]),
            (
                "Against whom?",
                ["Whoever sees the release, whatever else they know and compute, as long as this holds.", *self.assumptions],
            ),
            ("What is released as it is in the data?", [*verbatim, *self.section(Section.AS_IS)]),
            (
                "What is not covered?",
                [*self.not_covered, "Whether a run was refused, how long it took, and the sizes of its files."],
            ),
            ("What else was released?", [*beside, *self.section(Section.BESIDE)]),
            (
                "Who can check it, and how?",
                [
                    f"Whoever has the files: `dpgen verify DIR` compares them with {STATEMENT}. The holder of the run compares "
                    "the ledger, too.",
                    signed,
                ],
            ),
            (
                "What must never be published beside it?",
                [
                    "The data, and all files of the run that are not named above: keys, checkpoints, scores, pictures beside "
                    "real values.",
                    *self.section(Section.PRIVATE),
                ],
            ),
        ]

    def question(self) -> str:
        """The question that the guarantee leaves open, in indirect speech."""
        if self.relation == "add_remove":
            return f"whether {self.unit} is among the data"
        return f"which of any two possibilities holds for {self.unit}"

    def odds(self) -> str:
        """The guarantee as the odds of a guess, in words; see `guessed`."""
        return (
            f"Whoever sees this release and knows everything else guesses right {self.question()} in at most "
            f"{right_of_100(self.epsilon, self.delta)} of 100 cases. Without the release it is 50."
        )


_READINGS = {"replace_one": "if the unit is replaced by another", "rdp": "by Renyi accounting alone"}
_CLEAR = 0.95  # share of right guesses above which little is ruled out


class Spent(str):
    """A note on an error that came after a release: what was spent; `again`: the same command again may go on."""

    epsilon: float
    again: bool

    def __new__(cls, text: str, epsilon: float, *, again: bool) -> Self:
        made = super().__new__(cls, text)
        made.epsilon, made.again = epsilon, again
        return made

    @classmethod
    def of(cls, error: BaseException) -> "Spent | None":
        """The note on an error; None: nothing was spent."""
        return next((note for note in getattr(error, "__notes__", ()) if isinstance(note, Spent)), None)


@contextmanager
def told(ledger: Ledger, goes_on: Callable[[], str] = str, *, since: int = 0) -> Iterator[None]:
    """Errors that come after committed charges, of which there were `since` before, get a note on what was spent.

    `goes_on` says how the work goes on; an empty text: it is lost. An error of the machine, such as a full disk, may be over by
    then.
    """
    try:
        yield
    except Exception as error:
        if ledger.committed and ledger.charges > since and Spent.of(error) is None:
            epsilon, way = ledger.epsilon(), goes_on()
            lost = "nothing was released: that is lost, and a new run spends anew"
            machine = isinstance(error, OSError) or isinstance(error.__context__, OSError)
            said = f"epsilon {rounded_up(epsilon)} was spent, and {way or lost}"
            error.add_note(Spent(said, epsilon, again=bool(way) and machine))
        raise
