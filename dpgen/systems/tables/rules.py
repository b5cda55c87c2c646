r"""Rules of a table, found by counts of the rows that break them, and kept by the model.

The candidates (`rule_kinds`) depend on what was released before and on names and types. With :math:`v_i` the count of
candidate i,

1. where there are many, all v_i are released with noise of n / 60, and those go on that are near 0,
2. those that go on are counted anew with noise of std s, n / 1,500 where that is cheap and n / 225 at most; with few rows
   n / 100 at most, so that six can be paid for. Rules are those of which n / 100 or fewer are counted, where s is large 2.5 s,
3. of dependencies on two columns the likeliest is chosen, and counted in the same way, until one is none.

So 2 % of the rows that break a rule are told from none, with few rows 5 %. A count of more than 3 s is seen, and its share of
samples breaks the rule; with fewer, none does. A candidate is one only if independent columns of the released laws would break
it in 4 % of the rows, and in 9 s: with probability 4e-11 at most noise makes a rule of it.

**Sensitivity.** A record is added or removed. A row breaks an order, a group, a gap or a total by itself: the count moves by 1
or not at all. Of a dependency it is, over the named values of a, or
of pairs (a, a'),

.. math:: v = \sum_a \Big( n_a - \max_b n_{ab} \Big), \qquad n_a = \sum_b n_{ab}.

A record of (a, b) moves :math:`n_a` by 1 and :math:`\max_b n_{ab}` by 0 or 1, both in the same direction, so v by 0 or 1 and in
this direction. So of m candidates the vector v moves by at most :math:`\sqrt m` in L2. A record is replaced: v_i moves by 0 or
1 up and by 0 or 1 down, so by at most 1 in all, and the vector by at most :math:`\sqrt m`, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from dpgen.columns.axes import Axis, Floats, Steps, Times
from dpgen.columns.constraints import Constraint, LessEqual, codes_as_texts, constraint_of
from dpgen.columns.descriptors import described, field_of
from dpgen.columns.fields import DensityField, Field, as_numbers
from dpgen.facts import Fact, Said
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum, totals
from dpgen.schema import Schema
from dpgen.systems.tables.densities import law
from dpgen.systems.tables.discovery import Found, blank, percent, thresholds
from dpgen.systems.tables.domains import GAP, Asked, bought
from dpgen.systems.tables.marginals import Coarsening, Counts, Known, Marginal, Measurement
from dpgen.systems.tables.rule_kinds import MOST_VALUES, Candidate, Column, candidates, named, needed, on_two, reaches

if TYPE_CHECKING:
    from dpgen.data.raw_tables import AnyRows as Rows

Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

VIOLATIONS, TABLE = "rows that break rules", "values of a dependency"
OF_FEW, OF_MANY, OF_SEARCH, OF_TABLES = 0.02, 0.005, 0.03, 0.01
"""Shares of mu^2 at most: for counts of few candidates, of many before, all of the search, and tables of dependencies."""
OF_TABLE = 0.01
"""Share of mu^2 for one table, at most."""
AGAIN, OF_ALL_AGAIN, UNSURE = 0.02, 0.05, 0.002
"""Shares of a second measurement of a table, and of those of all tables; share of the rows with values left to noise from which
a table is measured again."""
FINE, FEW, LEAST, MANY = 1_500.0, 225.0, 100.0, 60.0
"""n by the noise std of the counts of few candidates, at best, with many rows and with few; and of many candidates."""
ENOUGH, APART = 6, 9.0
"""Candidates that few rows are to pay for; noise stds by which independent columns would break one."""
BROKEN, LEFT, SEEN = 2.5, 0.01, 3.0
"""Violations of a rule at most: so many noise stds, or a share of the rows if this is more; stds from which they are seen."""
CHOICE, OF_CHOICE, LEAST_BESIDE = "which column follows from two others", 0.0025, 20.0
"""Note and share of mu^2 of one choice, and rows of a pair of values on average, at least."""
LEAST_KEPT = 0.005
"""Share of drawn rows whose weekdays and hours agree with their dates, at least: one weekday and one hour are .006."""
MOST_LENGTHS = 4
"""Columns that are coded by their length from another one."""

_NEAR = 3.0  # noise stds of the violations of a candidate that goes on
_CHANCE = 1e-4  # that noise makes the range of a length longer
_NAMED = 2.0  # noise stds of the count of a value that a table lists, and by which it is above those of others


@dataclass(frozen=True)
class Rule:
    """A rule that holds by noisy counts: the noisy share of rows, or people, that break it, and the noise std of this."""

    candidate: Any
    share: float
    std: float

    @property
    def broken(self) -> float:
        """The share of samples that break it: 0 where noise may hide that there are none."""
        return round(self.share, 6) if self.share > SEEN * self.std else 0.0

    @property
    def seen(self) -> dict[str, float]:
        """Share of samples that break it, as a part of a constraint."""
        return {"broken": self.broken} if self.broken else {}

    @property
    def sentence(self) -> str:
        """The rule in words."""
        return f"{self.candidate.text} ({said_broken(self.share, self.std)}{', of samples as well' * bool(self.seen)})"


def said_broken(share: float, std: float, whom: str = "") -> str:
    """A noisy share of those who break a rule, in words.

    >>> said_broken(-0.001, 0.002), said_broken(0.004, 0.002, "of people")
    ('broken by 0.0 ± 0.2 %', 'broken by 0.4 ± 0.2 % of people')
    """
    return f"broken by {percent(max(0.0, share))} ± {percent(std)} %{' ' * bool(whom)}{whom}"


@dataclass(frozen=True)
class Prices:
    """Shares of 1 / s^2 of counts of the rows, or people, that break rules; by a noisy number of these alone.

    `n` is this number, `whole` the part of mu^2 of which shares are.
    """

    budget: GaussianBudget
    n: float
    whole: float

    @property
    def noise(self) -> float:
        """Noise std of a count for all of the budget, by n."""
        return self.budget.noise_std(1.0) / self.n

    @property
    def most(self) -> float:
        """Share of all counts of few candidates, at most."""
        return OF_FEW * self.whole

    @property
    def fine(self) -> float:
        """n by the noise std of a count, at least."""
        return min(FEW, max(LEAST, math.sqrt(self.most / ENOUGH) / self.noise))

    @property
    def unit(self) -> float:
        """The share that one candidate needs."""
        return (self.fine * self.noise) ** 2

    def of(self, among: Sequence[Any], fine: float = FINE) -> float:
        """The share of candidates whose counts have a noise std of n / `fine`."""
        return len(among) * (fine * self.budget.noise_std(1.0) / self.n) ** 2

    def told(self, one: Any) -> bool:
        """Whether noise does not make a rule of a candidate that independent columns break as often as it expects."""
        return bool(one.expected * self.fine >= APART)

    def holding(self, note: str, among: Sequence[Any], counts: BoundedSum, share: float) -> list[Rule]:
        """The candidates that hold, by noisy counts of those who break each of them (m,)."""
        noisy, std = self.budget.sums(note, counts, share * (1 - 1e-9))
        limit = max(LEFT * self.n, BROKEN * std)
        return [Rule(one, count / self.n, std / self.n) for one, count in zip(among, noisy.tolist()) if count <= limit]


# -- counts ------------------------------------------------------------------------------------------------------------


def violations(rows: Rows, schema: Schema, among: Sequence[Candidate]) -> BoundedSum:
    """Numbers of rows that break each candidate (m,), see the module for what a record moves."""
    found = np.zeros(len(among), np.int64)
    alone = [i for i, one in enumerate(among) if one.kind != "follows"]
    if alone:
        names = list(dict.fromkeys(name for i in alone for name in among[i].names))
        rules = [constraint_of(among[i].rule) for i in alone]
        broken = rows.together(names, partial(_broken, fields=[schema.by_name[name] for name in names], rules=rules))
        found[alone] = totals(broken, partial(_added, size=len(alone))).numpy()
    others = [i for i, one in enumerate(among) if one.kind == "follows"]
    if others:
        found[others] = [_undetermined(n, on) for n, on in table_counts(rows, schema, [among[i] for i in others])]
    return BoundedSum(torch.from_numpy(found), math.sqrt(len(among)), replaced=math.sqrt(len(among)))


def _added(batches: Iterable[Flags], size: int) -> torch.Tensor:
    return torch.from_numpy(sum((batch.sum(0, dtype=np.int64) for batch in batches), np.zeros(size, np.int64)))


def _broken(table: pd.DataFrame, fields: Sequence[Field], rules: Sequence[Constraint]) -> Flags:
    """Rows (m,) that break each of the rules, each row by itself."""
    parsed = pd.DataFrame({field.name: field.read(table[field.name]) for field in fields})
    return np.stack([~rule.holds(parsed) for rule in rules], axis=1)


def table_counts(rows: Rows, schema: Schema, among: Sequence[Candidate]) -> list[tuple[Integers, tuple[Field, ...]]]:
    """Counts (codes of each) of the columns of each dependency, and the fields but the last; PRIVATE."""
    names = list(dict.fromkeys(name for one in among for name in one.names))
    own = part_of(schema, names)
    sizes, places = own.domain.sizes, {name: c for c, name in enumerate(own.domain.names)}
    sets = [[places[name] for name in one.names] for one in among]
    marginals = [Marginal(tuple(sorted(chosen)), 0) for chosen in sets]
    codes = rows.codes(own)
    counts = Counts.of(codes.numpy() if isinstance(codes, torch.Tensor) else codes, marginals, [Coarsening.full(sizes)])
    found = []
    for i, (chosen, one) in enumerate(zip(sets, among)):
        cells = counts.values[counts.starts[i] : counts.starts[i + 1]].reshape([sizes[c] for c in sorted(chosen)])
        in_order = cells.transpose([sorted(chosen).index(c) for c in chosen])
        found.append((in_order, tuple(own.by_name[name] for name in one.names[:-1])))
    return found


def _undetermined(counts: Integers, on: Sequence[Field]) -> int:
    """Rows whose last value is not the most frequent one beside the others, named ones."""
    own = counts[np.ix_(*map(named, on))]
    return int(own.sum() - own.max(-1).sum())


def chances(counts: BoundedSum) -> Integers:
    """Scores by which one is chosen of candidates that few rows break, see `Search`."""
    return np.asarray(-2 * counts.values.numpy())


def part_of(schema: Schema, names: Sequence[str]) -> Schema:
    """The schema of some fields alone, without constraints."""
    fields = [given for given in schema.descriptor()["fields"] if given["name"] in names]
    return Schema.from_descriptor({"fields": fields, "missingValues": list(schema.missing_values)})


def lists_of(draft: Mapping[str, Any], among: Any) -> int:
    """Lists of frequent values at most: of what a draft leaves blank, and of lengths where rules are looked for."""
    return thresholds(draft) + (MOST_LENGTHS if blank(draft) and among != "off" else 0)


# -- the search --------------------------------------------------------------------------------------------------------


@dataclass
class Search:
    """Finds the rules of a table whose domains were bought, and writes them into its schema.

    `n` is the noisy number of rows, `of_number` the share of 1 / s^2 of the law of a length, `columns` are those between which
    rules are looked for, None: all. `part` is the part of the usual shares of mu^2 that the search may spend, `table` stands
    before what is said of a rule.
    """

    rows: Rows
    found: Found
    budget: GaussianBudget
    n: float
    of_number: float
    columns: Collection[str] | None = None
    part: float = 1.0
    table: str = ""
    tables: list[tuple[tuple[str, str], Reals, float]] = field(default_factory=list)
    """Names of two columns, their noisy counts, and the noise std: measured marginals."""

    @property
    def whole(self) -> float:
        """The part of mu^2 of which shares are."""
        return self.part * self.budget.whole

    @property
    def prices(self) -> Prices:
        """Prices of counts."""
        return Prices(self.budget, self.n, self.whole)

    def run(self) -> Found:
        """The schema with its rules, counts of codes and facts; `tables` are what was measured of dependencies."""
        finer, before, prices = with_single_values(self.found), self.budget.left, self.prices
        schema = Schema.from_descriptor(finer.descriptor)
        names = {*finer.counts} if self.columns is None else {*finer.counts} & {*self.columns}
        columns = [Column.of(given, finer.counts[given.name]) for given in schema.modelled if given.name in names]
        among = [one for one in _free(candidates(columns), schema) if prices.told(one)]
        if among and prices.unit > prices.most:
            more = math.sqrt(prices.unit / prices.most)
            return self._with(schema, [], [Fact.NO_RULES(n=f"{self.n:.0f}", more=f"{math.ceil(10 * more) / 10:g}")])
        hold = without_rare(self._rules(schema, among)) if among else []
        kept = needed([rule.candidate for rule in hold])
        rules = sorted((rule for rule in hold if rule.candidate in kept), key=lambda rule: kept.index(rule.candidate))
        declared = [Candidate({"one_of": [*one.names]}, 0.0) for one in schema.constraints]
        rules += self._on_two(schema, columns, [*(rule.candidate for rule in hold), *declared], before)
        return self._with(schema, rules, [], (before - self.budget.left) / self.budget.whole)

    def _rules(self, schema: Schema, among: list[Candidate]) -> list[Rule]:
        """Rules of the candidates that hold; all are counted at first if there are many."""
        most = int(self.prices.most / self.prices.unit)
        if len(among) > most:
            share = min(self.prices.of(among, MANY), OF_MANY * self.whole) * (1 - 1e-9)
            counts, std = self.budget.sums(VIOLATIONS, violations(self.rows, schema, among), share)
            near = [one for one, count in zip(among, counts.tolist()) if count <= _NEAR * std]
            left = near if len(near) <= most else needed(near)
            times = {one.name for one in schema.modelled if isinstance(one, DensityField) and one.of_dates}
            among = sorted(left, key=lambda one: (_rank(one, times), 0.0 if one.computes else -one.expected))[:most]
        return self._holding(schema, among, min(self.prices.of(among), self.prices.most)) if among else []

    def _on_two(self, schema: Schema, columns: Sequence[Column], found: Sequence[Candidate], before: float) -> list[Rule]:
        """Dependencies on two columns together, the likeliest first, while one holds; `before`: mu^2 before the search.

        Counts v are chosen by :math:`-2 v`. A record moves all v by 0 or 1 in one direction, so :math:`-2 v` by 1 at most about
        a common move, which leaves the choice as it is (`chances`).
        """
        rules, choice, floor = list[Rule](), OF_CHOICE * self.whole, before - OF_SEARCH * self.whole
        busy = {name for one in found if one.computes or one.kind == "less_equal" for name in one.names}
        columns = [column for column in columns if column.name not in busy]
        while (share := self.prices.of([None], FEW)) <= choice and self.budget.left >= floor + choice + share:
            among = on_two(columns, [*found, *(rule.candidate for rule in rules)], self.n / LEAST_BESIDE)
            if not among:
                break
            one = among[self.budget.select(CHOICE, chances(violations(self.rows, schema, among)), 1, choice)]
            if not (held := self._holding(schema, [one], share)):
                break
            rules += held
        return rules

    def _holding(self, schema: Schema, among: Sequence[Candidate], share: float) -> list[Rule]:
        return self.prices.holding(VIOLATIONS, among, violations(self.rows, schema, among), share)

    # -- the schema that keeps them ------------------------------------------------------------------------------------

    def _with(self, schema: Schema, rules: Sequence[Rule], said: Sequence[Said], price: float = 0.0) -> Found:
        """The table with its rules: fields that are lengths, constraints, and facts of them."""
        fields, counts = {given["name"]: given for given in self.found.descriptor["fields"]}, dict(self.found.counts)
        found = [rule.candidate for rule in rules]
        apart = _apart(found)
        finer = with_single_values(self.found)
        fields |= {given["name"]: given for given in finer.descriptor["fields"] if given["name"] in apart}
        counts |= {name: known for name, known in finer.counts.items() if name in apart}
        self._add_lengths(schema, rules, apart, fields, counts)
        constraints = [*schema.descriptor().get("dpgen:constraints", []), *self._constraints(schema, rules, fields)]
        computed = {one.names[-1] for one in found if one.computes}
        counts = {name: known for name, known in counts.items() if name not in computed}
        descriptor = {**schema.descriptor(), "fields": list(fields.values())}
        descriptor |= {"dpgen:constraints": constraints} if constraints else {}
        sentences = tuple(f"{self.table}{rule.sentence}" for rule in rules)
        facts = [Fact.RULES(columns=sentences, share=f"{price:.1%}")] if rules else []
        return Found(descriptor, counts, (*self.found.facts, *facts, *said))

    def _add_lengths(
        self,
        schema: Schema,
        rules: Sequence[Rule],
        apart: Collection[str],
        fields: dict[str, Any],
        counts: dict[str, Known],
    ) -> None:
        """Code columns that are never below another one by their distance from it, but those with codes of single values."""
        orders = {(one.left, one.right): 0.0 for one in schema.constraints if isinstance(one, LessEqual)}
        for rule in (rule for rule in rules if rule.candidate.kind == "less_equal"):
            base, name = rule.candidate.names
            orders[base, name] = rule.broken
        for (base, name), broken in orders.items():
            free = name not in apart and self._by_length(schema, fields, base, name)
            if free and (made := self._length(schema, base, name, broken)):
                fields[name], counts[name] = fields[name] | {"dpgen:length": made[0]}, made[1]

    def _constraints(self, schema: Schema, rules: Sequence[Rule], fields: dict[str, Any]) -> list[dict[str, Any]]:
        """Constraints of rules, those with a table last; a field that follows from others has a code for each value."""
        found = [{**rule.candidate.rule, **rule.seen} for rule in rules if rule.candidate.kind != "follows"]
        tables = [rule for rule in rules if rule.candidate.kind == "follows"]
        for rule in tables:
            found.append(self._table(schema, rule.candidate, len(tables)) | rule.seen)
            last = rule.candidate.names[-1]
            fields[last] = single_valued(fields[last], schema.by_name[last])
        return found

    def _by_length(self, schema: Schema, fields: Mapping[str, Any], base: str, name: str) -> bool:
        """Whether a field is to be coded by its length from another one: not where codes of both are single values."""
        a, b = schema.by_name[base], schema.by_name[name]
        lengths = [one for one in fields.values() if "dpgen:length" in one]
        bought_ones = isinstance(a, DensityField) and isinstance(b, DensityField) and {base, name} <= set(self.found.counts)
        free = "dpgen:length" not in fields[name] and len(lengths) < MOST_LENGTHS and name != schema.target
        small = all(isinstance(one, DensityField) and np.diff(one.starts).max() == 1 for one in (a, b))
        return bought_ones and free and not small and not reaches(_edges(lengths), name, base)

    def _length(self, schema: Schema, base: str, name: str, broken: float) -> tuple[dict[str, Any], Known] | None:
        """The law of a length as a part of a descriptor, and counts of the codes; None: noise hides it.

        Of the share of rows that break the order the law of lengths knows nothing.
        """
        a, b = schema.by_name[base], schema.by_name[name]
        assert isinstance(a, DensityField)
        assert isinstance(b, DensityField)
        axis, unit, kind = length_axis(a, b)
        read = partial(length_units, ends=(a, b), axis=axis, unit=unit)
        units, present = (self.rows.together([base, name], partial(read, gaps=gaps)) for gaps in (True, False))
        asked = Asked(f"{name} from {base} on", axis, (0, None), self.n, _CHANCE)
        share = min(self.of_number, self.budget.left / 4)
        measured = bought(units, present, asked, self.budget, share)
        told = law(measured, asked)
        if told is None:
            return None
        made = {"from": base, "unit": unit, "type": kind} | described(axis, told.starts, told.density) | axis.rounding()
        own = self.found.counts[name]
        gaps, std = measured.gaps
        if b.nullable:
            gaps, std = gaps - float(own.counts[-1]), math.hypot(std, float(own.stds[-1]))
        gaps -= broken * self.n
        alone = gaps if a.nullable and gaps > BROKEN * std else 0.0
        first = Known.of(np.array([gaps]), np.array([std]), np.array([alone]))
        known = Known(*(np.concatenate(pair) for pair in zip(first, told.known)))
        return made, known.and_one(*(float(x[-1]) for x in own[:3])) if b.nullable else known

    def _table(self, schema: Schema, one: Candidate, among: int) -> dict[str, Any]:
        """The constraint of a dependency: its table is measured."""
        values, std, on = self._values(schema, one, among)
        for pair in combinations(range(len(one.names)), 2):
            others = tuple({*range(values.ndim)} - {*pair})
            kept = math.sqrt(math.prod(values.shape[c] for c in others))
            self.tables.append(((one.names[pair[0]], one.names[pair[1]]), values.sum(others), std * kept))
        *keys, texts = (codes_as_texts(schema.by_name[name]) or [] for name in one.names)
        sure, table = _sure(values, std), dict[Any, Any]()
        for cell in product(*map(named, on)):
            if sure[cell]:
                level = table
                for own, code in zip(keys[:-1], cell):
                    level = level.setdefault(own[code], {})
                level[keys[-1][cell[-1]]] = texts[int(values[cell].argmax())]
        return {**one.rule, "table": table}

    def _values(self, schema: Schema, one: Candidate, among: int) -> tuple[Reals, float, tuple[Field, ...]]:
        """Noisy counts of the columns of a dependency, their noise std, and the fields but the last.

        A record is in one cell. The counts are released a second time, with more of the budget, where noise leaves values of
        more than `UNSURE` of the rows undecided; both are averaged by their precision.
        """
        [(counts, on)] = table_counts(self.rows, schema, [one])
        sums = BoundedSum(torch.from_numpy(counts.copy()), 1.0, replaced=math.sqrt(2.0))
        values, precision = np.zeros(counts.shape), 0.0
        for most, of_all in ((OF_TABLE, OF_TABLES), (AGAIN, OF_ALL_AGAIN)):
            share = min(most, of_all / among) * self.whole
            noisy, std = self.budget.sums(TABLE, sums, min(share, self.budget.left / 4))
            weight = std**-2
            values = (precision * values + weight * noisy.numpy().reshape(counts.shape)) / (precision + weight)
            precision += weight
            unsure = (values.sum(-1) * ~_sure(values, precision**-0.5))[np.ix_(*map(named, on))]
            if unsure.sum() <= UNSURE * self.n:
                break
        return values, precision**-0.5, on


def _free(among: Sequence[Candidate], schema: Schema) -> list[Candidate]:
    """Candidates that the declared constraints do not decide, and that compute no column of these and no target."""
    tied = [set(one.names) for one in schema.constraints]
    bound = {schema.target, *(name for names in tied for name in names)}
    undecided = (one for one in among if not any(names >= set(one.names) for names in tied))
    return [one for one in undecided if not (one.computes and one.names[-1] in bound)]


def _apart(found: Sequence[Candidate]) -> set[str]:
    """Columns whose single values have a code each: those of rules on values, not on sizes."""
    names = {name for one in found if one.kind in ("follows", "one_of", "forbidden") for name in one.names}
    names |= {one.names[-1] for one in found if one.kind == "dated"}
    return names | {one.names[0] for one in found if one.kind == "missing" and one.rule["value"] is not None}


def _sure(values: Reals, std: float) -> Flags:
    """Whether noise tells the last code of each cell of the other ones: the highest count is above 0 and above the next one."""
    highest = np.sort(values, axis=-1)
    return (highest[..., -1] > _NAMED * std) & (highest[..., -1] - highest[..., -2] > _NAMED * std)


def without_rare(rules: Sequence[Rule]) -> list[Rule]:
    """Rules but those of parts of dates by which fewer than `LEAST_KEPT` of the drawn rows would be kept."""
    kept, share, places = list[Rule](), 1.0, set[tuple[str, str]]()
    for rule in rules:
        if (one := rule.candidate).kind == "dated" and (place := (one.names[0], one.rule["part"])) not in places:
            if share * (1.0 - one.expected) < LEAST_KEPT:
                continue
            share, places = share * (1.0 - one.expected), places | {place}
        kept.append(rule)
    return kept


def _rank(one: Candidate, times: Collection[str]) -> int:
    """Rank of a rule where not all can be counted: orders of times first, totals, and orders of numbers last."""
    if one.kind == "less_equal":
        return 0 if one.names[0] in times else 3
    return 1 if one.computes else 2


def _edges(lengths: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(given["dpgen:length"]["from"], given["name"]) for given in lengths]


def with_single_values(found: Found) -> Found:
    """The columns with codes of few values cut into these, as the density of each number knows them: light ones were joined."""
    fields, counts = [], dict(found.counts)
    for given in found.descriptor["fields"]:
        if given["name"] in counts and "dpgen:density" in given:
            given, counts[given["name"]] = _cut(given, counts[given["name"]])
        fields.append(given)
    return replace(found, descriptor={**found.descriptor, "fields": fields}, counts=counts)


def _cut(given: dict[str, Any], known: Known) -> tuple[dict[str, Any], Known]:
    """A number whose codes are cut into the parts of its density where all of these are single values."""
    made = field_of(given)
    if not isinstance(made, DensityField) or made.size > MOST_VALUES or made.single() is not None:
        return given, known
    edges, masses = made.density.edges, made.density.masses
    first, after = (np.searchsorted(edges, ends) for ends in (made.starts[:-1], made.starts[1:]))
    lone = np.diff(edges) == 1
    into = [range(i, j) if lone[i:j].all() else [i] for i, j in zip(first, after)]
    begins, pieces = np.concatenate([[*own] for own in into]), np.array([len(own) for own in into])
    if len(begins) > MOST_VALUES or (pieces == 1).all():
        return given, known
    rest = len(known.counts) - made.size
    whole = np.maximum(np.add.reduceat(masses, first), 1e-300)
    share = np.append(masses[begins], np.ones(rest)) / np.append(np.repeat(whole, pieces), np.ones(rest))
    times = np.append(pieces, np.ones(rest, np.int64))
    share[: len(begins)][np.repeat(pieces, pieces) == 1] = 1.0
    counts, stds, fitted = (np.repeat(x, times) for x in known[:3])
    cut = Known(counts * share, stds / np.sqrt(np.repeat(times, times)), fitted * share, np.repeat(known.drawn, times))
    labels = [made.axis.label(int(edges[i])) for i in begins] + [given["dpgen:bins"]["edges"][-1]]
    return given | {"dpgen:bins": {"edges": labels}}, cut


def single_valued(given: dict[str, Any], made: Field) -> dict[str, Any]:
    """The descriptor of a field whose codes stand for one value each, with a density of these alone."""
    units = made.single() if isinstance(made, DensityField) else None
    if units is None:
        return given
    assert isinstance(made, DensityField)
    kept = np.isin(made.density.edges[:-1], units)
    logs = [pair if keep else [None, None] for pair, keep in zip(given["dpgen:density"]["logs"], kept)]
    return given | {"dpgen:density": given["dpgen:density"] | {"logs": logs}}


# -- lengths -----------------------------------------------------------------------------------------------------------


def length_axis(a: DensityField, b: DensityField) -> tuple[Axis, int, str]:
    """The axis of b - a, its unit in seconds where both are times, else 1, and its type."""
    if isinstance(a.axis, Times) and isinstance(b.axis, Times):
        return Steps(Decimal(1), whole=True), math.gcd(a.axis.seconds, b.axis.seconds), "integer"
    if isinstance(a.axis, Steps) and isinstance(b.axis, Steps):
        whole = a.axis.whole and b.axis.whole
        return Steps(min(a.axis.step, b.axis.step), whole=whole), 1, "integer" if whole else "number"
    return Floats(), 1, "number"


def length_units(
    table: pd.DataFrame, ends: tuple[DensityField, DensityField], axis: Axis, unit: int, *, gaps: bool
) -> Integers:
    """Units of b - a of rows (m,), `GAP` where one is missing or a > b; without `gaps` of the others alone."""
    a, b = (as_numbers(end.read(table[end.name])) for end in ends)
    lengths = (b - a) / unit
    told = lengths >= 0
    found = axis.units(lengths[told])
    if not gaps:
        return found
    units = np.full(len(lengths), GAP)
    units[told] = found
    return units


def in_domain(measured: Sequence[tuple[tuple[str, str], Reals, float]], names: Sequence[str]) -> list[Measurement]:
    """Measured tables of two columns as marginals of a domain."""
    found = []
    for pair, values, std in measured:
        c = [names.index(name) for name in pair]
        found.append(Measurement(Marginal((min(c), max(c)), 0), values if c[0] < c[1] else values.T, std))
    return found
