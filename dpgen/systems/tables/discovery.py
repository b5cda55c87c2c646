r"""What nobody knows of a raw table, bought inside the budget of its fit: types, gaps, rounding, categories, bins of numbers.

Every part is a release of the one declared Gaussian, and every released count is used by the fit as a measurement:

| part | what is released | one row moves it by |
|---|---|---|
| form | how many values are gaps, and of each form in `dpgen.forms.FORMS` | 1 in one cell |
| step | numbers of each rounding, times of each clock | 1 in one cell |
| names | the values of a column whose noisy count passes a threshold, see `FrequentCounts` | 1 in one count |
| scale | other numbers of each sign and binary exponent, dates in each 41 days | 1 in one cell |
| bins | values in each part: heavy parts of the scale are cut into 64, heavy ones of these again | 1 in one cell |

So a value that many share is a bin of its own, and light neighbours share a wide one. Beyond the outermost parts that the
noise lets see, counts follow a tail where there is one (`Leaves`); what lies outside of both is moved to the outermost bin.
All later choices depend on released counts and on the row alone.

Source: adaptive histograms of dyadic counts, Qardaji, Yang, Li 2013; the threshold, see `FrequentCounts`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.stats import norm

from dpgen.constraints import constraint_of
from dpgen.facts import Fact, Said
from dpgen.forms import CELLS, DAY, TOLD, Vote, possible, read, texts_of, votes
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.tables.bins import Grid, Leaves, cells, finest, places, steps, steps_of

if TYPE_CHECKING:
    from dpgen.data import RawTable
    from dpgen.data.raw_tables import Rows
    from dpgen.privacy.curator import Curator
    from dpgen.systems.plan import SumsPlan

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Descriptor = dict[str, Any]

COUNT, FORM, STEP, NAMES = "number of records", "form of values", "step of values", "frequent values"
SCALE, BINS = "scale of values", "bins of values"

SHARES = {FORM: 0.007, STEP: 0.003, "texts": 0.12, "numbers": 0.14}
"""Of mu^2, for all columns together: their forms, steps of numbers, names of texts, and all else that is bought of numbers."""
FEW, MOST_OF_FORMS = 8.0, 7.0
"""Noise stds of counts of forms that all rows should be, and how many times the share of forms goes into them for that."""
_OF_NUMBERS = {NAMES: 0.3, SCALE: 0.3}
_OF_BINS = (0.2, 0.1, 0.1)
_PIECES = 48  # into which all numbers that are not frequent would be cut
_MOVED = 8  # sentences on values that were moved, at most
_TOLD_SHARE = 0.001  # of the values of a column that noise may hide, from which on it is said
_SURE = 6.0  # noise stds that a piece should have

OTHER = "other"
"""Category of all values that are not frequent."""
MOST_SPIKES = 64
"""Values of a number that are a bin of their own, at most."""
_RANGE = 0.001  # probability that noise makes the range of a column wider, by a cell of the scale, of all columns together
_DIGIT = re.compile("[0-9]")
_WORDS = {"string": "single values", "boolean": "truth values", "date": "dates", "datetime": "dates"}
_WORDS |= dict.fromkeys(("integer", "number", "year"), "numbers")
_KEYS = 0.9  # share of the values that have the pattern of a key


@dataclass(frozen=True)
class Found:
    """What was bought of a table: the complete schema, noisy counts (size,) of codes with noise stds by column, and facts."""

    descriptor: Descriptor
    counts: dict[str, tuple[Reals, Reals]]
    facts: tuple[Said, ...]


@dataclass(frozen=True)
class Gaps:
    """Noisy number of gaps of a column, with those that its values of other types become, and the noise std."""

    count: float
    std: float


def thresholds(draft: Mapping[str, Any]) -> int:
    """Lists of frequent values that a draft needs at most: of a text its values and its patterns, of a key its patterns."""
    needed = {"string": 2, "any": 2, "boolean": 0}
    return sum(1 if given["name"] == draft.get("primaryKey") else needed.get(given["type"], 1) for given in blank(draft))


def blank(draft: Mapping[str, Any]) -> list[Descriptor]:
    """The fields of a draft whose domain is not known."""
    return [given for given in draft["fields"] if given.get("dpgen:blank")]


def row_count(n: int) -> BoundedSum:
    """The number of records."""
    return BoundedSum(torch.tensor([n]), 1.0, replaced=1.0)


def release_domains(table: RawTable, *, plan: SumsPlan, curator: Curator) -> Found:
    """What a draft leaves blank, for a schema of its own: all of the budget goes into it."""
    assert plan.budget is not None
    budget = GaussianBudget(curator, plan.budget, "domains of a table", thresholds=thresholds(table.draft))
    noisy, _ = budget.sums(COUNT, row_count(len(table.rows)), 0.02 * budget.left)
    shares = {part: share / sum(SHARES.values()) * (1 - 1e-9) for part, share in SHARES.items()}
    return Discovery(table.rows, table.draft, budget, max(1.0, float(noisy)), shares).run()


# -- a table -----------------------------------------------------------------------------------------------------------


@dataclass
class Discovery:
    """Buys what a draft leaves blank, column by column: fields with "dpgen:blank"; columns of the type "any" are texts.

    `n` is the noisy number of rows, `shares` are of 1 / s^2, see `SHARES`.
    """

    table: Rows
    draft: Descriptor
    budget: GaussianBudget
    n: float
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES)
    counts: dict[str, tuple[Reals, Reals]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    verbatim: list[str] = field(default_factory=list)
    moved: list[Said] = field(default_factory=list)
    hidden: dict[Fact, dict[str, float]] = field(default_factory=dict)  # the most that noise hides, a share of each column
    odd: list[Said] = field(default_factory=list)
    chance: float = _RANGE  # that noise makes the range of one column wider

    def run(self) -> Found:
        """All columns: forms first, then names and bins."""
        whole, blanks = self.budget.left, blank(self.draft)
        if not blanks:
            return Found(self.draft, {}, ())
        keys = [given for given in blanks if given["name"] == self.draft.get("primaryKey")]
        others = [given for given in blanks if given not in keys]
        of_form = self._of_form(len(blanks), whole)
        rest = sum(share for part, share in self.shares.items() if part != FORM)
        part_of = min(1.0, (1 - 1e-9) * (1 - len(blanks) * of_form / whole) / rest)  # forms of few rows leave less to others
        shares = {part: share * part_of for part, share in self.shares.items()}
        voted = {given["name"]: self.vote(given, of_form) for given in others}
        texts = max(1, len(keys) + sum(given["type"] == "string" for given, _ in voted.values()))
        numbers = max(1, sum(given["type"] not in ("string", "boolean") for given, _ in voted.values()))
        self.chance = _RANGE / numbers
        made: dict[str, Descriptor | None] = {}
        for given in keys:
            kind = self.vote(given, of_form)[0]["type"] if given["type"] == "any" else "string"
            number = kind in ("integer", "number")
            pattern = {} if number else self._pattern(given["name"], self.n, shares["texts"] * whole / texts)
            plain = {key: value for key, value in given.items() if key != "constraints"}
            made[given["name"]] = plain | {"type": "integer" if number else "string"} | pattern
        for name, (given, counted) in voted.items():
            if given["type"] == "string":
                made[name] = self.text_of(given, counted, shares["texts"] * whole / texts)
            elif given["type"] == "boolean":
                made[name] = given if not given["constraints"]["required"] else given | {"dpgen:fill": False}
            else:
                own = (shares[part] * whole / numbers for part in (STEP, "numbers"))
                made[name] = self.number_of(given, counted, *own)
        rules = {name: given.get("constraints", {}) for name, given in made.items() if given}
        self.unseen += [name for name, own in rules.items() if own.get("enum") == [OTHER]]
        constant = [name for name, own in rules.items() if name not in self.unseen and _single(own)]
        names = [given["name"] for given in self.draft["fields"] if made.get(given["name"], given) is not None]
        if set(names) <= {*self.keys, self.draft.get("primaryKey")}:  # a model has one column at least
            name = next(name for name, (given, _) in voted.items() if given["type"] == "string")
            made[name] = self._unnamed(voted[name][0])
        fields = [made.get(given["name"], given) for given in self.draft["fields"]]
        kept = [{key: value for key, value in given.items() if key != "dpgen:blank"} for given in fields if given is not None]
        facts = self._facts(list(made), constant, (whole - self.budget.left) / self.budget.whole)
        descriptor = without(self.draft, [name for name, given in made.items() if given is None or name in self.keys])
        return Found({**descriptor, "fields": kept}, self.counts, facts)

    def _facts(self, names: Sequence[str], constant: Sequence[str], share: float) -> tuple[Said, ...]:
        gone = {*self.unseen, *self.keys, *self.left_out}
        moved = [one for one in self.moved if dict(one.values)["column"] not in gone]
        most = sorted(moved, key=lambda said: -float(dict(said.values)["share"]))
        others = dict.fromkeys(str(dict(said.values)["column"]) for said in most[_MOVED:])
        lists = {
            Fact.GENERATED_KEYS: self.keys,
            Fact.VERBATIM: self.verbatim,
            Fact.LEFT_OUT: self.left_out,
            Fact.UNSEEN: self.unseen,
            Fact.CONSTANT: constant,
            Fact.MOVED_OTHERS: others,
        }
        found = [fact(columns=tuple(columns)) for fact, columns in lists.items() if columns]
        for fact, shares in self.hidden.items():
            told = {name: share for name, share in shares.items() if share >= _TOLD_SHARE and name not in gone}
            if told:
                found.append(fact(columns=tuple(told), share=percent(max(told.values()))))
        return (Fact.BOUGHT(columns=tuple(names), share=f"{share:.0%}"), *found, *most[:_MOVED], *self.odd[:_MOVED])

    # -- forms ---------------------------------------------------------------------------------------------------------

    def _of_form(self, columns: int, whole: float) -> float:
        """The share of a column's forms: more of few rows, whose types noise would hide."""
        needed = columns * (FEW * self.budget.noise_std(whole) / self.n) ** 2
        return min(max(1.0, needed / self.shares[FORM]), MOST_OF_FORMS) * self.shares[FORM] * whole / columns

    def vote(self, given: Descriptor, share: float) -> tuple[Descriptor, Gaps]:
        """The field with its type, and whether it has gaps; their noisy number."""
        among = possible(given["type"])
        codes = self.table.column(given["name"], partial(votes, kind=given["type"], format=dates_as(given)))
        noisy, std = self.budget.sums(f"{FORM} of {given['name']}", cells(codes, partial(places, among[1:]), len(among)), share)
        vote = Vote(np.zeros(len(CELLS)), std)
        vote.counts[among] = noisy.numpy()
        kind = vote.kind() if given["type"] == "any" else given["type"]
        strange, noise = vote.strange(kind)
        gaps = Gaps(vote.gaps, std)
        if is_strange := strange > TOLD * noise:
            gaps = Gaps(vote.gaps + strange, float(np.hypot(std, noise)))
            shares = {"share": percent(strange / self.n), "std": percent(noise / self.n)}
            self.odd.append(Fact.OTHER_FORMS(**shares, column=given["name"], kind=_WORDS[kind]))
        required = given.get("constraints", {}).get("required")
        nullable = (gaps.count > TOLD * std or is_strange) if required is None else not required
        if required is None and not nullable:
            self.hidden.setdefault(Fact.HIDDEN_GAPS, {})[given["name"]] = TOLD * std / self.n
        rules = given.get("constraints", {}) | {"required": not nullable}
        return given | {"type": kind, "constraints": rules, "dpgen:source": given.get("dpgen:source", "dp")}, gaps

    # -- texts ---------------------------------------------------------------------------------------------------------

    def text_of(self, given: Descriptor, gaps: Gaps, share: float) -> Descriptor | None:
        """Categories, a key by its pattern, or None: free text, which is left out."""
        name = given["name"]
        texts, noisy, std = self._frequent(name, self.table.column(name, texts_of), 0.75 * share)
        total = max(self.n - gaps.count, 0.0)
        empty = total < TOLD * np.hypot(gaps.std, self.budget.noise_std(share))
        if not empty and noisy.sum() < _KEYS / 3 * total and noisy.sum() + TOLD * std < total:
            pattern = self._pattern(name, total, 0.25 * share)
            self.left_out += [] if pattern else [name]
            return {"name": name, "type": "string", **pattern} if pattern else None
        listed, counts = texts.tolist(), noisy.astype(np.float64)
        self.verbatim += [name] if listed else []
        rest, rest_std = total - counts.sum(), float(np.hypot(gaps.std, std * np.sqrt(len(listed))))
        stds = [std] * len(listed)
        other = next(label for label in (OTHER, "(other)", "(other value)", *map(str, range(99))) if label not in listed)
        label = given.get("dpgen:outside", other)
        if rest > TOLD * rest_std or not listed:
            if label in listed:
                counts[listed.index(label)] += rest
                stds[listed.index(label)] = rest_std
            else:
                listed, counts, stds = [*listed, label], np.append(counts, max(rest, 0.0)), [*stds, rest_std]
        else:
            label = listed[int(counts.argmax())]
        rules = given["constraints"] | {"enum": listed}
        made = given | {"constraints": rules, "dpgen:outside": label}
        return self._finished(made, counts, np.array(stds), listed[int(counts.argmax())], gaps)

    def _unnamed(self, given: Descriptor) -> Descriptor:
        """A text without any frequent value, as one category."""
        self.keys, self.left_out = ([name for name in listed if name != given["name"]] for listed in (self.keys, self.left_out))
        return given | {"constraints": given["constraints"] | {"enum": [OTHER]}, "dpgen:outside": OTHER, "dpgen:fill": OTHER}

    def _frequent(self, name: str, values: Any, share: float) -> tuple[npt.NDArray[Any], Integers, float]:
        """Frequent values in their own order, with noisy counts and the noise std of these."""
        found = values.different()
        places, noisy, std, _ = self.budget.frequent(f"{NAMES} of {name}", found.counts, share)
        return found.named(places), noisy, std

    def _pattern(self, name: str, total: float, share: float) -> Descriptor:
        """The pattern of a key, where most texts have one; else nothing."""
        patterns, noisy, _ = self._frequent(name, self.table.column(name, _patterns), share)
        best = int(noisy.argmax()) if len(noisy) else -1
        pattern = str(patterns[best]) if best >= 0 else ""
        digits = re.search(r"9+$", pattern)
        if best < 0 or noisy[best] < _KEYS * total or digits is None or re.search(r"9", pattern[: digits.start()]):
            return {}
        self.keys.append(name)
        start = pattern[: digits.start()].replace("{", "{{").replace("}", "}}")
        return {"dpgen:key": f"{start}{{:0{len(digits[0])}d}}"}

    # -- numbers -------------------------------------------------------------------------------------------------------

    def number_of(self, given: Descriptor, gaps: Gaps, of_step: float, share: float) -> Descriptor:
        """Bins: frequent values alone, the others by their quantiles."""
        name, kind, form = given["name"], given["type"], dates_as(given)
        limits = _limits(given, kind)
        grid = Grid(self._step(given, of_step), kind, form)
        column = self.table.column(name, grid.read)
        parts = {part: of * share for part, of in _OF_NUMBERS.items()}
        levels = [of * share for of in _OF_BINS]
        values, spikes, spike_std = self._frequent(name, column, parts[NAMES])
        total = max(self.n - gaps.count, 1.0)
        chosen = np.lexsort((values, -spikes))[:MOST_SPIKES]  # ties by value: the order of rows is private
        chosen = chosen[spikes[chosen] >= total / 128]
        values, spikes = values[chosen], spikes[chosen].astype(np.float64)
        self.verbatim += [name] if len(values) else []
        bare = not len(values) and (total > TOLD * gaps.std or gaps.count <= TOLD * gaps.std)  # not gaps alone
        edges = grid.scale(limits)
        told = cells(column, partial(on_scale, edges=edges, frequent=values), len(edges) - 1)
        edges, inside = self._scale(name, told, grid, edges, parts[SCALE], limits, values, bare=bare)
        fixed, edges, values = grid.fixed(edges, values)
        if fixed is not grid:
            grid, column = fixed, self.table.column(name, fixed.read)
        values, order = np.unique(values, return_inverse=True)  # a step that follows from the range can join some
        joined = np.bincount(order, minlength=len(values)).astype(np.float64)
        sums = np.bincount(order, spikes, len(values)).astype(np.float64)
        tree = Leaves.of(edges, inside, (values, sums, spike_std * joined**0.5), tails=not grid.dates)
        others = max(total - float(spikes.sum()), 1.0)
        for part in levels:
            least = max(others / _PIECES, _SURE * self.budget.noise_std(part))
            tree.split(least)
            if tree.fresh:
                noisy, std = self.budget.sums(f"{BINS} of {name}", tree.histogram(column), part)
                tree.add(noisy.numpy(), std)
        starts, counts, stds = tree.bins(others, limits)
        self._tell_ends(given, grid, tree, total, limits)
        return self.described(given, grid, starts, counts, stds, gaps)

    def _step(self, given: Descriptor, share: float) -> Decimal | None:
        """The step of numbers or times: what a schema says, else the finest one that noisy counts show; None: there is none."""
        kind, own = given["type"], given.get("dpgen:rounding")
        if kind == "date":
            return Decimal(DAY)
        if own is not None and (kind == "number" or Decimal(str(own)) % 1 == 0):
            return Decimal(str(own))
        codes = self.table.column(given["name"], partial(steps, kind=kind, format=dates_as(given)))
        counts = cells(codes, lambda found: found, len(steps_of(kind)))
        noisy, std = self.budget.sums(f"{STEP} of {given['name']}", counts, share)
        return finest(noisy.numpy(), std, kind)

    def _scale(
        self,
        name: str,
        counts: BoundedSum,
        grid: Grid,
        edges: npt.NDArray[Any],
        share: float,
        limits: tuple[Any, Any],
        values: npt.NDArray[Any],
        *,
        bare: bool,
    ) -> tuple[npt.NDArray[Any], tuple[Reals, Reals]]:
        """Edges of the cells that hold values, noisy counts, variances; where noise hides all, of frequent `values`."""
        noisy, std = self.budget.sums(f"{SCALE} of {name}", counts, share)
        found = noisy.numpy()
        if None not in limits:
            return edges, (found, np.full(len(found), std**2))
        some = norm.isf(self.chance / len(found)) * std
        seen = _seen(found, std, self.chance) if grid.dates else np.flatnonzero(found > some)
        hidden = not len(seen)
        if hidden:
            self.unseen += [name] if bare else []
            known = values if len(values) else np.zeros(1)  # the greatest noise is anywhere, up to 10^18
            seen = np.clip(places(edges, np.array([known.min(), known.max()])) - 1, 0, len(found) - 1)
        first, last = int(seen[0]), int(seen[-1])
        kept = np.arange(first, last + 2) if hidden else grid.around(first, last, edges)
        if limits[0] is not None:
            kept = np.concatenate([np.arange(first), kept[kept >= first]])
        if limits[1] is not None:
            kept = np.concatenate([kept[kept <= last], np.arange(last + 1, len(edges))])
        return edges[kept], (np.add.reduceat(found[: kept[-1]], kept[:-1]), std**2 * np.diff(kept))

    def _tell_ends(self, given: Descriptor, grid: Grid, tree: Leaves, total: float, limits: tuple[Any, Any]) -> None:
        """What was moved to the ends of a range, by noisy counts, and what noise may hide of it."""
        ends = ("below", tree.below, tree.starts[0]), ("above", tree.above, tree.starts[-1] - 1)
        for (where, count, unit), std, limit in zip(ends, tree.outer_stds, limits):
            if count > TOLD * std:
                shares = {"share": percent(count / total), "std": percent(std / total)}
                self.moved.append(Fact.MOVED(**shares, column=given["name"], where=where, bound=str(grid.label(unit))))
            elif limit is None and total > TOLD * std:
                hidden, most = self.hidden.setdefault(Fact.HIDDEN_ENDS, {}), (max(count, 0.0) + TOLD * std) / total
                hidden[given["name"]] = max(most, hidden.get(given["name"], 0.0))

    def described(self, given: Descriptor, grid: Grid, starts: Integers, counts: Reals, stds: Reals, gaps: Gaps) -> Descriptor:
        if grid.dates and starts[-1] == starts[0] + 1:  # a range of dates has two at least
            starts, counts, stds = np.append(starts, starts[-1] + 1), np.append(counts, 0.0), np.append(stds, stds)
        labels = [grid.label(unit) for unit in (*starts[:-1], starts[-1] - 1)]
        rules = given["constraints"] | {"minimum": labels[0], "maximum": labels[-1]}
        made = given | {"constraints": rules, "dpgen:bins": {"edges": labels}, "dpgen:outside": "clamp"}
        assert grid.step is not None
        if given["type"] == "number" or (given["type"] in ("integer", "datetime") and grid.step != 1):
            made["dpgen:rounding"] = format(grid.step, "f") if given["type"] == "number" else int(grid.step)
        low, high = starts[:-1].astype(np.float64), starts[1:].astype(np.float64) - 1
        wide = (low * high > 0) & (np.maximum(np.abs(low), np.abs(high)) > 4 * np.minimum(np.abs(low), np.abs(high)))
        if given["type"] in ("number", "integer"):
            made["dpgen:law"] = "log" if wide.any() else "linear"
        if len(starts) == 2 and labels[0] == labels[-1]:  # one value
            made = {key: value for key, value in made.items() if key not in ("dpgen:bins", "dpgen:law", "dpgen:rounding")}
        return self._finished(made, counts, stds, labels[int(counts.argmax())], gaps)

    def _finished(self, made: Descriptor, noisy: Reals, stds: Reals, fill: Any, gaps: Gaps) -> Descriptor:
        """The field, whose counts are kept; a gap that noise hides gets its most frequent value."""
        if not made["constraints"]["required"]:
            noisy, stds = np.append(noisy, gaps.count), np.append(stds, gaps.std)
        else:
            made = made | {"dpgen:fill": fill}
        self.counts[made["name"]] = noisy, stds
        return made


def _seen(counts: Reals, std: float, chance: float) -> Integers:
    """First and last cell that hold more than noise; where none does, those of the smallest blocks of 2, ..., 64 that do."""
    seen = np.zeros(0, np.int64)
    for size in (1, 2, 4, 8, 16, 32, 64):
        blocks = np.add.reduceat(counts, np.arange(0, len(counts), size))
        seen = np.flatnonzero(blocks > norm.isf(chance / len(blocks)) * std * size**0.5)
        if len(seen):
            return np.array([seen[0] * size, min((seen[-1] + 1) * size, len(counts)) - 1])
    return seen


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


def _patterns(values: pd.Series) -> npt.NDArray[Any]:
    """The texts of the values that are there, with 9 for every digit."""
    return np.array([_DIGIT.sub("9", text) for text in texts_of(values)], object)


def on_scale(values: npt.NDArray[Any], edges: npt.NDArray[Any], frequent: npt.NDArray[Any]) -> Integers:
    """Cells between edges of values (m,), -1 for frequent ones."""
    return np.where(np.isin(values, frequent), -1, places(edges, values) - 1)


def dates_as(given: Descriptor) -> str:
    """The pattern of dates that are texts, where a schema says it."""
    form = str(given.get("format", ""))
    return form if "%" in form else ""


def _limits(given: Descriptor, kind: str) -> tuple[Any, Any]:
    """Public bounds of a column, None where there is none."""
    rules = given.get("constraints", {})
    found = [rules.get("minimum"), rules.get("maximum")]
    if kind in ("date", "datetime"):
        found = [None if bound is None else int(read(pd.Series([str(bound)]), kind)[1][0]) for bound in found]
    return found[0], found[1]
