r"""Unknown parts of a raw table, bought inside the budget of its fit: types, gaps, rounding, categories, bins of numbers.

Every part is a release of the one declared Gaussian, and every released count is used by the fit as a measurement:

| part | what is released | one row moves it by |
|---|---|---|
| form | how many values are gaps, and of each form in `dpgen.columns.forms.FORMS` | 1 in one cell |
| step | numbers of each rounding, times of each clock | 1 in one cell |
| rare | gaps of texts and their values without a name; gaps and truth values | 1 in one cell |
| names | the values of a column whose noisy count passes a threshold, see `FrequentCounts` | 1 in one count |
| codes | what `dpgen.systems.tables.domains` buys of texts of which few are frequent | 1 in one count |
| digits, scale, bins | what `dpgen.systems.tables.domains` buys of a number | 1 in one cell |

All later choices depend on released counts and on the row alone.

Source: adaptive histograms of dyadic counts, Qardaji, Yang, Li 2013; the threshold, see `FrequentCounts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from dpgen.columns.axes import Axis, Times, axis_of, finest, steps, steps_of
from dpgen.columns.constraints import constraint_of
from dpgen.columns.descriptors import described, field_of, written_as
from dpgen.columns.fields import Field
from dpgen.columns.forms import DAY, TOLD, read, texts_of
from dpgen.columns.votes import CELLS, Choice, Vote, possible, votes
from dpgen.columns.writings import TruthWriting
from dpgen.columns.writings.codes import is_pattern, matcher
from dpgen.facts import Fact, Said, columns_of
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.tables import domains
from dpgen.systems.tables.densities import Law, law, unseen
from dpgen.systems.tables.domains import (
    MOST_REPEATS,
    NAMES,
    NEARLY_ALL,
    OF_FIXED,
    OF_PREFIXES,
    OF_REPEATED,
    OF_SHAPES,
    REPEATED,
    REPEATS,
    Asked,
    Firsts,
    Shapes,
    are_codes,
    bought,
    cells,
    key_of,
    patterns_of,
    places,
    repeated,
    shapes,
    surviving,
)
from dpgen.systems.tables.marginals import Integers, Known, Reals

if TYPE_CHECKING:
    from dpgen.data import RawTable
    from dpgen.data.raw_tables import AnyRows as Rows
    from dpgen.privacy.curator import Curator
    from dpgen.systems.plan import SumsPlan

Descriptor = dict[str, Any]

TEXTS = "text"
"""Mark of a field without a domain: its owner's type is that of texts, of which some have other forms."""
COUNT, FORM, STEP, RARE = "number of records", "form of values", "step of values", "rare values"

SHARES = {FORM: 0.007, STEP: 0.003, "texts": 0.12, "codes": 0.1, "numbers": 0.14}
"""Shares of mu^2, for all columns together: their forms, steps of numbers, names of texts, patterns of those of which few have
a name, and all else that is bought of numbers."""
FEW, MOST_OF_FORMS = 8.0, 7.0
"""Noise stds of counts of forms that all rows should be, and how many times the share of forms goes into them for that."""
_CELLS = 48  # of a number, in which noise should be no larger than sampling error
_MOVED = 8  # sentences on values that were moved, at most
_TOLD_SHARE = 0.001  # of the values of a column that noise may hide, from which on it is said
_CLEAR, _LITTLE = 1.5, 0.01  # noise stds of gaps, or values without a name, below which none are drawn, as most columns have
# none; the share of the rows that noise may hide without drawing
_OF_RARE = 0.25  # of what a text gets, for gaps and values without a name, or for the pattern of a key

OTHER = "other"
"""Category of all values that are not frequent."""
OTHERS = (OTHER, "(other)", "(other value)", *map(str, range(99)))
"""Its names: the first one that is no value."""
_RANGE = 0.001  # probability that noise makes the range of a column wider, by a cell of the scale, of all columns together
_WORDS = {"string": "single values", "boolean": "truth values", "date": "dates", "datetime": "dates"}
_WORDS |= dict.fromkeys(("integer", "number", "year"), "finite numbers")
_LEAST_NAMED = 0.3  # share of the values with a name, from which on a column is one of categories
_LEFT = 0.02  # of mu^2, which numbers leave to what comes after them
_MUCH = 0.05  # share of the values of codes that have no name, from which on their patterns are bought
_WAY = "Categories (enum) in the schema keep it, primaryKey generates its values anew, drop saves its price."
_COUNTED, _MOST_OF_THEM = 2.0**53, 0.8  # no count is as large; a share of identifiers


@dataclass(frozen=True)
class Found:
    """A bought table: the complete schema, noisy counts (size,) of codes with noise stds by column, and facts."""

    descriptor: Descriptor
    counts: dict[str, Known]
    facts: tuple[Said, ...]


class Noisy(NamedTuple):
    """A noisy number of values, or of gaps with what becomes one, and the noise std."""

    number: float
    std: float


def thresholds(draft: Mapping[str, Any]) -> int:
    """Lists of frequent values that a draft needs at most: of a text its values and its patterns twice, of a key these."""
    needed = {"string": 3, "any": 3, "boolean": 0}
    return sum(1 if given["name"] == draft.get("primaryKey") else needed.get(given["type"], 1) for given in blank(draft))


def blank(draft: Mapping[str, Any]) -> list[Descriptor]:
    """The fields of a draft whose domain is not known."""
    return [given for given in draft["fields"] if given.get("dpgen:blank")]


def row_count(n: int) -> BoundedSum:
    """The number of records."""
    return BoundedSum(torch.tensor([n]), 1.0, replaced=1.0)


def release_domains(table: RawTable, *, plan: SumsPlan, curator: Curator) -> Found:
    """Blanks of a draft, for a schema of its own: all of the budget goes into them."""
    assert plan.budget is not None
    budget = GaussianBudget(curator, plan.budget, "domains of a table", thresholds=thresholds(table.draft))
    noisy, _ = budget.sums(COUNT, row_count(len(table.rows)), 0.02 * budget.left)
    shares = {part: share / sum(SHARES.values()) * (1 - 1e-9) for part, share in SHARES.items()}
    return Discovery(table.rows, table.draft, budget, max(1.0, float(noisy)), shares, rest=True).run()


# -- a table -----------------------------------------------------------------------------------------------------------


@dataclass
class Discovery:
    """Buys what a draft leaves blank, column by column: fields with "dpgen:blank"; columns of the type "any" are texts.

    `n` is the noisy number of rows, `shares` are of 1 / s^2, see `SHARES`. Numbers get more of it where their counts would have
    more noise than sampling error, up to `most` of all: s^2 is n / 48 for all counts of a number together.
    """

    table: Rows
    draft: Descriptor
    budget: GaussianBudget
    n: float
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES)
    most: float = 0.0
    counts: dict[str, Known] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    verbatim: list[str] = field(default_factory=list)
    unrepeated: dict[str, float] = field(default_factory=dict)  # keys, with the share of repeated values that noise hides
    drawn: list[str] = field(default_factory=list)  # of which rare values are drawn by patterns
    choices: dict[str, Choice] = field(default_factory=dict)  # writings that not enough values have
    moved: list[Said] = field(default_factory=list)
    hidden: dict[Fact, dict[str, float]] = field(default_factory=dict)  # the most that noise hides, a share of each column
    odd: list[Said] = field(default_factory=list)
    open: set[str] = field(default_factory=set)  # columns of which nobody says whether they have gaps
    rest: bool = False  # nothing comes after it: numbers get what codes leave
    coded: int = 0  # texts of which patterns were bought
    of_codes: float = 0.0  # of 1 / s^2, for a text of which few values are frequent
    of_number: float = 0.0  # share of 1 / s^2 of a number
    chance: float = _RANGE  # that noise makes the range of one column wider

    def run(self) -> Found:
        """All columns: forms first, then names and bins."""
        whole, blanks = self.budget.left, blank(self.draft)
        if not blanks:
            return Found(self.draft, {}, ())
        form, shares, scale = self._shares(len(blanks), whole)
        keys = [given for given in blanks if given["name"] == self.draft.get("primaryKey")]
        voted = {given["name"]: self.vote(given, form) for given in blanks if given not in keys}
        kinds = Counter(given["type"] for given, _ in voted.values())
        texts, truths = kinds["string"], kinds["boolean"]
        numbers = max(1, kinds.total() - texts - truths)
        of_text = shares["texts"] * whole / max(1.0, len(keys) + texts + _OF_RARE * truths)
        self.chance = _RANGE / numbers
        self.of_codes = shares["codes"] * whole / max(1, texts)
        made: dict[str, Descriptor | None] = {given["name"]: self._declared_key(given, form, of_text) for given in keys}
        made |= {name: self.text_of(given, gaps, of_text) for name, (given, gaps) in voted.items() if given["type"] == "string"}
        unused = self.rest * self.of_codes * (texts - self.coded) / whole
        self.of_number = (self._wanted(numbers, shares, scale) + unused) * whole / numbers
        made |= self._truths_and_numbers(voted, _OF_RARE * of_text, shares[STEP] * whole / numbers)
        constant = self._constant(made)
        self._require_one(made, voted)
        share = (whole - self.budget.left) / self.budget.whole
        return self._found(made, self._facts(blanks, constant, share))

    def _truths_and_numbers(
        self, voted: Mapping[str, tuple[Descriptor, Noisy]], of_truth: float, of_step: float
    ) -> Iterator[tuple[str, Descriptor | None]]:
        """The fields of columns of truth values, and of numbers and times."""
        for name, (given, gaps) in voted.items():
            if given["type"] == "boolean":
                yield name, self.truth_of(given, gaps, of_truth)
            elif given["type"] != "string":
                yield name, self.number_of(given, gaps, of_step, self.of_number)

    def _shares(self, columns: int, whole: float) -> tuple[float, dict[str, float], float]:
        """Part of 1 / s^2 for the form of one column; the share of each part of a table; the scale of those other than forms.

        Forms of few rows get more, so the scale may be below 1.
        """
        form = self._of_form(columns, whole)
        more = columns * form / (self.shares[FORM] * whole)
        rest = sum(share * (more if part == STEP else 1.0) for part, share in self.shares.items() if part != FORM)
        scale = min(1.0, (1 - 1e-9) * (1 - columns * form / whole) / rest)
        shares = {part: share * scale for part, share in self.shares.items()} | {FORM: columns * form / whole}
        shares[STEP] *= more
        return form, shares, scale

    def _wanted(self, numbers: int, shares: Mapping[str, float], scale: float) -> float:
        """The share of all numbers: `_CELLS` cells of each have as much noise as sampling error; at most what is left."""
        wanted = numbers * _CELLS * self.budget.noise_std(1.0) ** 2 / self.n
        most = 1 - 1e-9 - shares[FORM] - shares[STEP] - shares["texts"] - shares["codes"]
        return max(shares["numbers"], min(self.most, wanted, most - _LEFT) * scale)

    def _declared_key(self, given: Descriptor, form: float, share: float) -> Descriptor:
        """The field of a primary key, of which type and pattern are bought alone."""
        kind = self.vote(given, form)[0]["type"] if given["type"] == "any" else "string"
        plain = {key: value for key, value in given.items() if key != "constraints"}
        if kind in ("integer", "number"):
            return plain | {"type": "integer"}
        return plain | {"type": "string"} | self.pattern(given["name"], self.n, share)

    def _require_one(self, made: dict[str, Descriptor | None], voted: Mapping[str, tuple[Descriptor, Noisy]]) -> None:
        """One column of categories in `made` where keys alone are left: a model has one column at least."""
        names = {given["name"] for given in self.draft["fields"] if made.get(given["name"], given) is not None}
        if names <= {*self.keys, self.draft.get("primaryKey")}:
            name = next((name for name, (given, _) in voted.items() if given["type"] == "string"), next(iter(voted)))
            made[name] = self._unnamed(voted[name][0] | {"type": "string"})

    def _constant(self, made: Mapping[str, Descriptor | None]) -> list[str]:
        """Columns with a single value; texts of which no value is frequent are added to `unseen`."""
        rules = {name: given.get("constraints", {}) for name, given in made.items() if given}
        self.unseen += [name for name, own in rules.items() if own.get("enum") == [OTHER]]
        return [name for name, own in rules.items() if name not in (*self.unseen, *self.drawn) and _single(own)]

    def _found(self, made: Mapping[str, Descriptor | None], facts: tuple[Said, ...]) -> Found:
        """The table whose columns were bought as `made`, of which None are left out."""
        fields = [made.get(given["name"], given) for given in self.draft["fields"]]
        kept = [{key: value for key, value in given.items() if key != "dpgen:blank"} for given in fields if given is not None]
        descriptor = without(self.draft, [name for name, given in made.items() if given is None or name in self.keys])
        return Found({**descriptor, "fields": kept}, self.counts, facts)

    def _facts(self, blanks: Sequence[Descriptor], constant: Sequence[str], share: float) -> tuple[Said, ...]:
        gone = {*self.unseen, *self.keys, *self.left_out}
        moved = [one for one in self.moved if dict(one.values)["column"] not in gone]
        most = sorted(moved, key=lambda said: -float(dict(said.values)["share"]))
        others = dict.fromkeys(str(dict(said.values)["column"]) for said in most[_MOVED:])
        lists = {
            Fact.GENERATED_KEYS: [name for name in self.keys if name not in self.unrepeated],
            Fact.DRAWN_CODES: self.drawn,
            Fact.VERBATIM: self.verbatim,
            Fact.LEFT_OUT: self.left_out,
            Fact.UNSEEN: self.unseen,
            Fact.CONSTANT: constant,
            Fact.MOVED_OTHERS: others,
        }
        found = [fact(columns=tuple(columns)) for fact, columns in lists.items() if columns]
        if self.unrepeated:
            hidden = percent(max(self.unrepeated.values()))
            found.append(Fact.UNREPEATED_KEYS(columns=tuple(self.unrepeated), share=hidden))
        found += self._hidden(gone)
        names = tuple(given["name"] for given in blanks)
        return (Fact.BOUGHT(columns=names, share=f"{share:.0%}"), *found, *most[:_MOVED], *self.odd[:_MOVED])

    def _hidden(self, gone: Container[str]) -> Iterator[Said]:
        """Facts of what noise hides, where it may be more than hardly anything."""
        for fact, shares in self.hidden.items():
            told = {name: share for name, share in shares.items() if share >= _TOLD_SHARE and name not in gone}
            if told:
                yield fact(columns=tuple(told), share=percent(max(told.values())))

    # -- forms ---------------------------------------------------------------------------------------------------------

    def _of_form(self, columns: int, whole: float) -> float:
        """The share of a column's forms: more of few rows, whose types noise would hide."""
        needed = columns * (FEW * self.budget.noise_std(whole) / self.n) ** 2
        return min(max(1.0, needed / self.shares[FORM]), MOST_OF_FORMS) * self.shares[FORM] * whole / columns

    def vote(self, given: Descriptor, share: float) -> tuple[Descriptor, Noisy]:
        """The field with its type; its noisy number of gaps."""
        among = possible(given["type"])
        codes = self.table.column(given["name"], partial(votes, kind=given["type"], format=written_as(given)))
        noisy, std = self.budget.sums(f"{FORM} of {given['name']}", cells(codes, partial(places, among[1:]), len(among)), share)
        counts = np.zeros(max(len(CELLS), len(among)))
        counts[among] = noisy.numpy()
        vote = Vote(counts, std, self.draft.get("dpgen:dates") == "month_first")
        kind = _kind(given, vote)
        strange, noise = vote.strange(kind)
        gaps = Noisy(vote.gaps, std)
        if strange > TOLD * noise:
            gaps = Noisy(vote.gaps + strange, float(np.hypot(std, noise)))
            shares = {"share": percent(strange / self.n), "std": percent(noise / self.n)}
            self.odd.append(Fact.OTHER_FORMS(**shares, column=given["name"], kind=_WORDS[kind]))
        required = given.get("constraints", {}).get("required")
        self.open |= {given["name"]} if required is None else set()
        rules = given.get("constraints", {}) | {"required": bool(required)}
        choice = vote.choice if given["type"] == "any" else None
        if choice is not None and kind == "string":
            self.choices[given["name"]], choice = choice, None
        written, source = self._written(given["name"], choice), given.get("dpgen:source", "dp")
        limits = dict(zip(("minimum", "maximum"), (choice and choice.writing.limits) or ()))
        return given | written | {"type": kind, "constraints": limits | rules, "dpgen:source": source}, gaps

    def _written(self, name: str, choice: Choice | None) -> Descriptor:
        """The writing of values by a schema."""
        if choice is None:
            return {}
        if choice.rival and "dpgen:dates" not in self.draft:
            self.odd.append(Fact.DAY_OR_MONTH(column=name, format=choice.writing.name, other=choice.rival))
        if isinstance(choice.writing, TruthWriting):
            true, false = choice.writing.words
            return {"trueValues": [true], "falseValues": [false]}
        return {"format": choice.writing.name}

    # -- texts ---------------------------------------------------------------------------------------------------------

    def text_of(self, given: Descriptor, gaps: Noisy, share: float) -> Descriptor | None:
        """Categories, among them patterns of codes; a key by its pattern; or None: free text, which is left out."""
        name = given["name"]
        texts, noisy, std, (least, counts) = self._frequent(name, self.table.column(name, texts_of), (1 - _OF_RARE) * share)
        total = max(self.n - gaps.number, 0.0)
        empty = total < TOLD * np.hypot(gaps.std, self.budget.noise_std(share))
        hidden = not empty and noisy.sum() < _LEAST_NAMED * total and noisy.sum() + TOLD * std < total
        rest, noise = total - noisy.sum(), np.hypot(gaps.std, std * np.sqrt(len(texts)))
        codes = None
        if hidden or (not empty and rest > max(TOLD * noise, _MUCH * total) and are_codes(texts, noisy)):
            self.coded += 1
            codes = shapes(self.table, name, texts, rest, self.budget, OF_SHAPES * self.of_codes)
        if hidden and codes is not None:
            again = None if codes.covered < rest / 2 else self._repeated(name, counts, total)
            if again is None or not again.number:
                return self._key(name, codes, total, again)
        rule = {} if codes is not None and codes.roots else {"dpgen:least": least}
        return self._categories(given | rule, (texts, noisy.astype(np.float64), std), total, gaps, codes, share)

    def _categories(
        self, given: Descriptor, named: tuple[Any, Reals, float], total: float, gaps: Noisy, codes: Shapes | None, share: float
    ) -> Descriptor:
        """Frequent values, patterns that hold others, and one category for what is left."""
        name, (texts, counts, std) = given["name"], named
        listed, stds, patterns = texts.tolist(), np.full(len(counts), std), list[str]()
        other = next(label for label in OTHERS if label not in listed)
        if codes is not None and codes.roots:
            left = total - counts.sum()
            codes = (bought := Firsts(self.table, name, listed, self.budget)).fixed(codes, OF_FIXED * self.of_codes)
            found = bought.all(texts, (counts, std), codes, OF_PREFIXES * self.of_codes)
            listed, counts, stds, patterns = found
            other = codes.roots[0] if codes.covered >= NEARLY_ALL * left else other  # what else there is looks like the others
        told, few = self._rare(name, partial(unnamed_of, listed=listed, patterns=tuple(patterns)), 2, _OF_RARE * share)
        rest = Noisy(told[1], few)
        if not patterns:
            rest = _mean(Noisy(total - counts.sum(), float(np.hypot(gaps.std, std * np.sqrt(len(listed))))), rest)
        left = self._survive(rest) if listed else max(rest.number, 0.0)
        label, listed, known = _with_rest(listed, counts, stds, given.get("dpgen:outside", other), rest, left)
        patterns = [one for one in listed if one in patterns or (one == other != OTHER and is_pattern(one))]
        self.verbatim += [name] if len(listed) > len(patterns) + (label == OTHER) else []
        self.drawn += [name] if patterns else []
        made = given | {"constraints": given["constraints"] | {"enum": listed}, "dpgen:outside": label}
        made |= {"dpgen:patterns": patterns} if patterns else {}
        return self._finished(made, known, listed[int(known.fitted.argmax())], _mean(gaps, Noisy(told[0], few)))

    def _repeated(self, name: str, counts: Integers, total: float) -> Noisy:
        """Rows beyond one for each value, 0 where none are seen, and the most that noise hides."""
        noisy, std = self.budget.sums(f"{REPEATED} of {name}", repeated(counts), OF_REPEATED * self.of_codes)
        number, most = max(float(noisy), 0.0), TOLD * std
        told = number > max(most, REPEATS * total) or most > MOST_REPEATS * total  # of which noise hides much may repeat, too
        return Noisy(max(number, 1.0) if told else 0.0, number + most)

    def _key(self, name: str, codes: Shapes, total: float, again: Noisy | None) -> Descriptor | None:
        """A key of values that are not seen to repeat, where most have one pattern; else they are left out."""
        if again is not None and codes.covered >= NEARLY_ALL * total and len(codes.roots) == 1:
            self.keys.append(name)
            self.unrepeated[name] = again.std / total
            codes = Firsts(self.table, name, [], self.budget).fixed(codes, OF_FIXED * self.of_codes)
            return {"name": name, "type": "string", "dpgen:key": key_of(codes.roots[0])}
        self.left_out.append(name)
        choice = self.choices.get(name)
        form = f"some values written as {choice.writing.name}, and others" if choice is not None else codes.in_words(total)
        way = f"The format {choice.writing.name} in the schema keeps these, others become gaps." if choice is not None else _WAY
        self.odd.append(Fact.LEFT_OUT_AS(columns=(name,), form=form, way=way))
        return None

    def truth_of(self, given: Descriptor, gaps: Noisy, share: float) -> Descriptor:
        """Truth values, and whether there are gaps."""
        words: Descriptor = {name: given[name] for name in ("trueValues", "falseValues") if name in given}
        field = field_of({"name": given["name"], "type": "boolean", **words})
        told, std = self._rare(given["name"], partial(truths_of, field=field), 3, share)
        known = Known.of(told[1:], np.full(2, std), np.maximum(told[1:], 0.0))
        return self._finished(given, known, bool(told[2] > told[1]), _mean(gaps, Noisy(told[0], std)))

    def _rare(self, name: str, place: Any, size: int, share: float) -> tuple[Reals, float]:
        noisy, std = self.budget.sums(f"{RARE} of {name}", cells(self.table.column(name, place), lambda c: c, size), share)
        return noisy.numpy(), std

    def _unnamed(self, given: Descriptor) -> Descriptor:
        """A text without any frequent value, as one category."""
        self.unrepeated.pop(given["name"], None)
        self.odd = [one for one in self.odd if columns_of([one], Fact.LEFT_OUT_AS) != (given["name"],)]
        self.keys, self.left_out = ([name for name in listed if name != given["name"]] for listed in (self.keys, self.left_out))
        return given | {"constraints": given["constraints"] | {"enum": [OTHER]}, "dpgen:outside": OTHER, "dpgen:fill": OTHER}

    def _frequent(self, name: str, values: Any, share: float) -> tuple[Any, Integers, float, tuple[int, Integers]]:
        """Frequent values in their own order, noisy counts, their noise std; the least noisy count, private ones of all."""
        found = values.different()
        places, noisy, std, least = self.budget.frequent(f"{NAMES} of {name}", found.counts, share)
        return found.named(places), noisy, std, (least, found.counts)

    def pattern(self, name: str, total: float, share: float) -> Descriptor:
        """The pattern of a declared key, where most texts have one; else nothing."""
        patterns, noisy, *_ = self._frequent(name, self.table.column(name, patterns_of), share)
        best = int(noisy.argmax()) if len(noisy) else -1
        if best < 0 or noisy[best] < NEARLY_ALL * total:
            return {}
        self.keys.append(name)
        return {"dpgen:key": key_of(str(patterns[best]))}

    # -- numbers -------------------------------------------------------------------------------------------------------

    def number_of(self, given: Descriptor, gaps: Noisy, of_step: float, share: float) -> Descriptor | None:
        """Codes and a density: frequent values alone, the others by their quantiles; None: identifiers, which are left out."""
        name, kind, rules = given["name"], given["type"], given.get("constraints", {})
        axis, form = axis_of(kind, self._step(given, of_step)), written_as(given)
        limits = tuple(None if rules.get(end) is None else axis.unit(rules[end]) for end in ("minimum", "maximum"))
        asked = Asked(name, axis, (limits[0], limits[1]), max(self.n - gaps.number, 1.0), self.chance)
        read_as = partial(units_of, axis=axis, kind=kind, format=form)
        units, present = (self.table.column(name, partial(read_as, gaps=all_rows)) for all_rows in (True, False))
        found = bought(units, present, asked, self.budget, share)
        gaps = _mean(gaps, Noisy(*found.gaps))
        known = law(found, asked)
        if known is not None and asked.limits == (None, None) and identifies(known, axis):
            self.left_out.append(name)
            return None
        self.verbatim += [name] if found.parts.alone.any() else []
        known = self._unseen(asked, gaps) if known is None else known
        self._tell_ends(given, axis, known, asked)
        return self.described(given, axis, known, gaps)

    def _unseen(self, asked: Asked, gaps: Noisy) -> Law:
        """The law of a number where noise hides all."""
        most = gaps.number > TOLD * gaps.std and gaps.number >= 0.5 * self.n  # are gaps: these are what is seen
        self.unseen += [] if most else [asked.name]
        return unseen(asked)

    def _step(self, given: Descriptor, share: float) -> Decimal | None:
        """The step of numbers or times: what a schema says, else the finest one that noisy counts show; None: there is none."""
        kind, own = given["type"], given.get("dpgen:rounding")
        if kind == "date":
            return Decimal(DAY)
        if own is not None and (kind == "number" or Decimal(str(own)) % 1 == 0):
            return Decimal(str(own))
        codes = self.table.column(given["name"], partial(steps, kind=kind, format=written_as(given)))
        among = steps_of(kind, written_as(given))
        counts = cells(codes, lambda found: found, len(among))
        noisy, std = self.budget.sums(f"{STEP} of {given['name']}", counts, share)
        return finest(noisy.numpy(), std, among)

    def _tell_ends(self, given: Descriptor, axis: Axis, known: Law, asked: Asked) -> None:
        """Values moved to the ends of a range, by noisy counts, and what noise may hide of them."""
        ends, total = (("below", known.starts[0]), ("above", known.starts[-1] - 1)), asked.total
        for (where, unit), (count, std), limit in zip(ends, known.beyond, asked.limits):
            if count > TOLD * std:
                shares = {"share": percent(count / total), "std": percent(std / total)}
                self.moved.append(Fact.MOVED(**shares, column=given["name"], where=where, bound=str(axis.label(unit))))
            elif limit is None and total > TOLD * std:
                hidden, most = self.hidden.setdefault(Fact.HIDDEN_ENDS, {}), (max(count, 0.0) + TOLD * std) / total
                hidden[given["name"]] = max(most, hidden.get(given["name"], 0.0))

    def described(self, given: Descriptor, axis: Axis, known: Law, gaps: Noisy) -> Descriptor:
        """The field of a number that was bought."""
        law = described(axis, known.starts, known.density)
        labels = law["dpgen:bins"]["edges"]
        last = axis.label(int(known.starts[0]) + 1) if len(labels) == 2 and labels[0] == labels[-1] else labels[-1]
        rules = given["constraints"] | {"minimum": labels[0], "maximum": labels[-1] if axis.signed else last}  # two dates
        made = {key: value for key, value in given.items() if key not in ("dpgen:bins", "dpgen:rounding")}
        made |= {"constraints": rules, "dpgen:outside": "clamp"}
        if labels[0] != labels[-1] or not axis.signed:
            made |= law | axis.rounding()
        return self._finished(made, known.known, labels[int(known.known.fitted.argmax())], gaps)

    def _survive(self, rare: Noisy) -> float:
        """Number of gaps, or of values without a name: drawn where noise hides a share of them that matters."""
        if TOLD * rare.std > _LITTLE * self.n:
            return surviving(*rare, _CLEAR)
        return rare.number if rare.number > TOLD * rare.std else 0.0

    def _finished(self, made: Descriptor, known: Known, fill: Any, gaps: Noisy) -> Descriptor:
        """The field, whose counts are kept; gaps that noise hides get its most frequent value."""
        name, rules, left = made["name"], made["constraints"], 0.0
        if name in self.open:
            left = self._survive(gaps)
            rules = rules | {"required": left == 0.0}
            self.hidden.setdefault(Fact.HIDDEN_GAPS, {})[name] = TOLD * gaps.std / self.n * rules["required"]
        if not rules["required"]:
            known = known.and_one(*gaps, max(left, gaps.number, 0.0))
        self.counts[name] = known
        return made | {"constraints": rules} | ({"dpgen:fill": fill} if rules["required"] else {})


def _kind(given: Descriptor, vote: Vote) -> str:
    """The type of a column; digits that their owner calls a text are one."""
    kind = str(vote.kind() if given["type"] == "any" else given["type"])
    text = given.get("dpgen:blank") == TEXTS and vote.choice is None and kind in ("integer", "number", "boolean")
    return "string" if text else kind


def identifies(known: Law, axis: Axis) -> bool:
    """Whether numbers are spread over 16 to 20 digits as identifiers are: evenly, not by size, and without frequent values.

    That is, by the released density: four of five are no smaller than a tenth of the largest ones, and their outer deciles are
    more than a 16th of these and `_COUNTED` apart. Times in nanoseconds are nearer to each other.
    """
    share = np.linspace(0.005, 0.995, 100)
    ends, starts = (np.full(100, end) for end in known.starts[[-1, 0]])
    drawn = axis.values(known.density.quantiles(starts, ends, share)).astype(np.float64)
    if isinstance(axis, Times) or len(np.unique(drawn)) < 90:
        return False
    most, half = float(np.abs(drawn).max()), float(drawn[90] / 2 - drawn[10] / 2)  # floats can be too far apart for a number
    even = (np.abs(drawn) >= most / 10).mean() >= _MOST_OF_THEM
    return bool(even and most < 2.0**64 and half > max(_COUNTED, most / 16) / 2)


def unnamed_of(values: pd.Series, listed: Sequence[Any], patterns: tuple[str, ...] = ()) -> Integers:
    """0 for gaps of texts (n,), 1 for those without a name and a pattern, -1 for others."""
    found = np.zeros(len(values), np.int64)
    rows, texts = read(values, "string")
    known = pd.Series(texts, dtype=object).isin(listed).to_numpy(bool, copy=True)
    if patterns:
        known[~known] = matcher(patterns)(texts[~known]) >= 0
    found[rows] = np.where(known, -1, 1)
    return found


def truths_of(values: pd.Series, field: Field) -> Integers:
    """0 for gaps of truth values (n,), 1 for false ones, 2 for true ones."""
    found = field.read(values)
    return np.where(found.isna(), 0, 1 + found.fillna(False).astype(int)).astype(np.int64)


def units_of(values: pd.Series, axis: Axis, kind: str, format: str = "", *, gaps: bool) -> Integers:
    """Units of a column (n,), `domains.GAP` where there is no value; without `gaps` of those alone that have one."""
    rows, found = read(values, kind, format)
    if not gaps:
        return axis.units(found)
    units = np.full(len(values), domains.GAP)
    units[rows] = axis.units(found)
    return units


def _mean(one: Noisy, other: Noisy) -> Noisy:
    """Two noisy numbers of the same as one."""
    weights = np.array([one.std**-2, other.std**-2])
    return Noisy(float(np.average([one.number, other.number], weights=weights)), float(weights.sum()) ** -0.5)


def _with_rest(
    listed: list[str], counts: Reals, stds: Reals, label: str, rest: Noisy, left: float
) -> tuple[str, list[str], Known]:
    """A label for values that are not listed, of which `left` are fitted, the list with it, and what is known of these."""
    if label in listed:
        own = np.array([one == label for one in listed])
        counts, stds = counts + rest.number * own, np.where(own, np.hypot(stds, rest.std), stds)
        return label, listed, Known.of(counts, stds, np.maximum(counts, 0.0))
    fitted = np.maximum(counts, 0.0)
    if not left and listed:
        return listed[int(counts.argmax())], listed, Known.of(counts, stds, fitted)
    drawn = np.append(np.zeros(len(listed), bool), left > rest.number)
    counts, stds = np.append(counts, rest.number), np.append(stds, rest.std)
    return label, [*listed, label], Known.of(counts, stds, np.append(fitted, left), drawn)


def percent(share: float) -> str:
    """A share in percent, two digits.

    >>> percent(0.03449), percent(0.996), percent(1.2)
    ('3.4', '100', '100')
    """
    return f"{100 * min(1.0, share):.{0 if share >= 0.0995 else 1}f}"


def _single(rules: Mapping[str, Any]) -> bool:
    """Whether constraints leave a single value."""
    return len(rules.get("enum", ())) == 1 or (rules.get("minimum") is not None and rules["minimum"] == rules.get("maximum"))


def without(draft: Descriptor, gone: Sequence[str]) -> Descriptor:
    """A draft that says nothing more of columns that no model sees: they are no target, and no constraint is on them."""
    left = {key: value for key, value in draft.items() if key != "dpgen:target" or value not in gone}
    if rules := [rule for rule in draft.get("dpgen:constraints", []) if set(constraint_of(rule).names).isdisjoint(gone)]:
        return left | {"dpgen:constraints": rules}
    return {key: value for key, value in left.items() if key != "dpgen:constraints"}
