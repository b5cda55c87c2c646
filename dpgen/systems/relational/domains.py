"""Domains of linked tables: rows of a person are bounded, what nobody states of columns is bought, and rules are looked for.

The columns of a table are searched by `tables.rules` where their domains are bought: those of people always, those of rows
where there is signal enough (`plan.RULED`). All searches together pay what that of one table may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen.columns.constraints import constraint_of
from dpgen.facts import Fact, Said, said
from dpgen.schema import Schema, TableDomain
from dpgen.systems.relational import rules
from dpgen.systems.relational.calendars import FEW, OF_DAYS, Days
from dpgen.systems.relational.gaps import OF_GAPS, in_steps
from dpgen.systems.relational.hours import OF_HOURS, bought
from dpgen.systems.relational.plan import DOMAINS, RULED, Method, RelationalConfig, RelationalPlan, measured, signal
from dpgen.systems.relational.row_orders import in_order
from dpgen.systems.relational.sums import (
    Branch,
    Histories,
    Integers,
    Reals,
    Shape,
    Span,
    in_spans,
    people_count,
    single_counts,
    stack_of,
)
from dpgen.systems.tables.discovery import SHARES, Discovery, Found
from dpgen.systems.tables.marginals import Known, Marginal, Measurement
from dpgen.systems.tables.plan import COUNTING
from dpgen.systems.tables.rule_kinds import Column
from dpgen.systems.tables.rules import Search, in_domain

if TYPE_CHECKING:
    from dpgen.data import LinkedTables
    from dpgen.data.linked_tables import KeyColumn, LinkedRows
    from dpgen.data.public_tables import PublicKey
    from dpgen.data.raw_tables import Rows
    from dpgen.privacy.curator import GaussianBudget

COUNT, NUMBER, WITH_ROWS = "number of people", "rows of a person", "number of people with rows that hang on a row"

QUANTILE = 0.95
"""Share of people who have rows, whose rows are all used where m is bought."""
SEEN, USUAL = 3.0, 10
"""Noise stds of a number of rows that people have, and m where there is none."""

Pairs = list[tuple[tuple[str, str], Reals, float]]
"""Names of two columns, their noisy counts, and the noise std."""

_APART = 32  # kinds of keys to a public table


# -- numbers of people and of rows -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Counted:
    """Linked tables, PRIVATE, in which nobody has more rows than m, and noisy numbers of people and of rows.

    `people` is their number with its noise std, `numbers` are of people, or of rows above, by their number of rows in each
    table, and `with_rows` of people who have any there. `whole` is the precision 1 / s^2 of the budget, `mu` its Gaussian-DP
    parameter.
    """

    data: LinkedTables
    whole: float
    mu: float
    people: tuple[float, float]
    numbers: Sequence[Measurement]
    with_rows: Sequence[float]
    facts: Sequence[Said]

    @classmethod
    def of(cls, data: LinkedTables, budget: GaussianBudget) -> Counted:
        """Count, and bound the rows of a person where nobody said m; each sum has the part :data:`COUNTING` of the budget."""
        whole, mu, share = budget.left, budget.mu, COUNTING * budget.left
        noisy, std = budget.sums(COUNT, people_count(data.n), share)
        numbers, with_rows, facts = list[Measurement](), list[float](), list[Said]()
        for number in range(1, len(data.tables) + 1):
            data, count, found = _bounded(data, number, _number_of_rows(data, number, budget, share))
            numbers.append(count)
            facts += found
            with_rows.append(_with_rows(data, number, count, budget, share))
        return cls(data, whole, mu, (float(noisy), std), numbers, with_rows, facts)

    @property
    def n(self) -> float:
        """The noisy number of people, 1 at least."""
        return max(1.0, self.people[0])

    @property
    def sizes(self) -> list[float]:
        """People, and those with rows in each table."""
        return [self.n, *self.with_rows]

    @property
    def fewest(self) -> float:
        """People with rows in the table where they are the fewest."""
        return min(self.with_rows, default=self.n)

    @property
    def sums(self) -> int:
        """The number of sums that were released."""
        return 1 + len(self.numbers) + sum(table.parent > 0 for table in self.data.tables)

    @property
    def means(self) -> list[float]:
        """Rows of a person above the least number on average, by table; 0 of people."""
        return [0.0, *(float(np.arange(len(own.values)) @ np.maximum(own.values, 0) / self.n) for own in self.numbers)]

    @property
    def released(self) -> tuple[tuple[Any, Any], ...]:
        """The number of people, and the numbers of rows of each table, with their noise stds."""
        return self.people, *((own.values, np.broadcast_to(own.noise_std, own.values.shape)) for own in self.numbers)

    def method(self, config: RelationalConfig, columns: tuple[int, int]) -> Method:
        """The method that is asked for, or that of the public rule for so many columns of people and of rows."""
        return config.method if config.method != "auto" else measured(self.mu, self.n, self.fewest, columns)


def _numbers(data: LinkedTables) -> tuple[Histories, Shape]:
    """The people and their rows with nothing but numbers of rows."""
    codes, sizes, counts = [np.zeros((data.n, 0), np.int64)], [()], list[int]()  # type: list[Any], list[tuple[int, ...]], Any
    for table in data.tables:
        own = np.diff(table.starts) - table.least
        counts.append(len(sizes[table.parent]))
        codes[table.parent] = np.column_stack([codes[table.parent], own])
        sizes[table.parent] += (table.most + 1 - table.least,)
        codes.append(np.zeros((int(table.starts[-1]), 0), np.int64))
        sizes.append(())
    branches = [
        Branch(size, ("all",) * len(size), table.most, table.parent, count)
        for size, table, count in zip(sizes[1:], data.tables, counts)
    ]
    return Histories(codes[0], codes[1:], [table.starts for table in data.tables]), Shape(sizes[0], tuple(branches))


def _number_of_rows(data: LinkedTables, number: int, budget: GaussianBudget, share: float) -> Measurement:
    """Noisy counts of people with so many rows, or of rows of the table above, whose parts add up to a whole in each person."""
    alone, shape = _numbers(data)
    branch = shape.tables[number - 1]
    stack = stack_of("all", branch.parent) if branch.parent else "person"
    values, std = budget.sums(NUMBER, single_counts(alone, shape, stack, branch.count), share)
    return Measurement(Marginal((0,), 0), values.numpy(), std)


def _with_rows(data: LinkedTables, number: int, count: Measurement, budget: GaussianBudget, share: float) -> float:
    """A noisy number of people who have rows in a table."""
    table = data.tables[number - 1]
    if not table.parent:
        return max(1.0, float(count.values.sum() if table.least else count.values[1:].sum()))
    alone, shape = _numbers(data)
    noisy, _ = budget.sums(WITH_ROWS, people_count(int((np.diff(alone.of_people(number, shape)) > 0).sum())), share)
    return max(1.0, float(noisy))


def _bounded(data: LinkedTables, number: int, count: Measurement) -> tuple[LinkedTables, Measurement, list[Said]]:
    """The least m that 95 % of the noisy people who have rows keep to, where nobody said it; a window may follow in it.

    Rows that hang on a row count by the rows above in place of people. Cells that do not stand out of the noise at the end of
    the counts are no people; where none does, m is a usual one.
    """
    table = data.tables[number - 1]
    if not table.buys_most:
        return data, count, []
    values, std = count.values[1 - table.least :], np.broadcast_to(count.noise_std, count.values.shape)
    seen = np.flatnonzero(values > SEEN * std[1 - table.least :])
    ends = np.maximum(values[: seen[-1] + 1], 0.0).cumsum() if len(seen) else np.zeros(0)
    most = max(2, int(np.searchsorted(ends, QUANTILE * ends[-1])) + 1) if len(seen) else USUAL
    kept = most + 1 - table.least
    values = np.r_[count.values[: kept - 1], count.values[kept - 1 :].sum()]
    stds = np.r_[std[: kept - 1], np.linalg.norm(std[kept - 1 :])]
    bounded = data.bounded(number, most)
    order = "time" if table.spans else "the order of keyed hashes"
    fact = Fact.ROWS_BOUGHT(most=most, order=order) if not table.parent else Fact.ROWS_OF_ROWS_BOUGHT(most=most, order=order)
    return bounded, replace(count, values=values, noise_std=stds), [fact]


# -- domains -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Side:
    """A table with its domain: codes are PRIVATE."""

    schema: Schema
    domain: TableDomain
    codes: Integers
    known: dict[int, Known]
    spans: tuple[Span, ...] = ()
    days: Mapping[str, Any] = field(default_factory=dict)  # the field of the days of all rows, and its counts in a sample
    of_days: Known | None = None
    public: Mapping[int, Sequence[Integers]] = field(default_factory=dict)  # groups of the codes of keys to public tables
    pairs: Sequence[Measurement] = ()  # what was measured of two columns for rules, of one row of each person


@dataclass(frozen=True, eq=False)
class Bought:
    """Linked tables as codes, PRIVATE, people's first, and what was bought for them.

    `target` is the number of the column of people that others will predict, if there is one and it is not left out.
    `calendars` are released days of the rows of each table, `patterns` those of the keys of all tables, and `kept` the rules
    between people and their rows.
    """

    data: LinkedTables
    sides: Sequence[Side]
    calendars: Sequence[Any]
    patterns: Sequence[str]
    kept: list[dict[str, Any]]
    facts: list[Fact | Said]
    target: int | None

    @classmethod
    def of(
        cls,
        counted: Counted,
        keys: Sequence[KeyColumn | None],
        plan: RelationalPlan,
        config: RelationalConfig,
        budget: GaussianBudget,
    ) -> Bought:
        """Buy patterns of keys, years, domains, rules of each table, calendars and rules between tables, in this order."""
        data, whole = counted.data, counted.whole
        patterns, of_keys = _patterns(data, keys, budget, counted.sizes, COUNTING * whole)
        drafted = len(data.people_draft["fields"]), sum(len(table.draft["fields"]) for table in data.tables)
        method = counted.method(config, drafted)
        more = DOMAINS[method]
        data, ordered = in_order(data, counted.n, config.rules, budget, whole)
        days = _days(data, counted.with_rows)
        of_days = OF_DAYS * whole / max(1, sum(own is not None for own in days)) * (1 - 1e-9)
        data = _in_years(data, days, budget, of_days)
        data = replace(data, tables=in_steps(data.tables, days, budget, OF_GAPS * whole))
        of_tables = _drafted(data, budget, counted.sizes, more)
        released = [_released(data, i, own, rows) for i, ((own, _), rows) in enumerate(zip(of_tables, counted.means))]
        ruled = method == "linked" and signal(counted.mu, counted.fewest, drafted) >= RULED
        among = [_names(data, i, released, config) if ruled or not i else [] for i in range(len(released))]
        found, pairs = _searched(data, counted.sizes, of_tables, among, budget)
        sides, facts = _sides(data, plan, found, pairs)
        calendars = [own and own.released(side.days, side.of_days, budget, of_days) for own, side in zip(days, sides[1:])]
        _buy_hours(calendars, data, days, budget, OF_HOURS * whole)
        units = [table.seconds(data.linking.time_unit) for table in data.tables]
        timed = [released[0], *(own.timed(days, unit) for own, days, unit in zip(released[1:], calendars, units))]
        fields, between = [side.schema.by_name for side in sides], _across(data, timed, config)
        kept, told = rules.found_rules(data.people, data.tables, fields, between, counted.n, budget, data.names)
        target, names = str(config.target).partition(".")[2], sides[0].domain.names
        place = names.index(target) if config.target is not None and target in names else None
        said = [*facts, *of_keys, *counted.facts, *ordered, *told, *_apart(data, sides)]
        return cls(data, sides, calendars, patterns, kept, said, place)

    @property
    def columns(self) -> tuple[int, int]:
        """Numbers of columns: of people, and of the rows of all tables."""
        return len(self.sides[0].domain.sizes), sum(len(side.domain.sizes) for side in self.sides[1:])

    @property
    def spans(self) -> list[list[str]]:
        """Spans of the columns of each table of rows, in the order of their schema."""
        return [
            [table.spans.get(name, "all") for name in side.schema.domain.names]
            for table, side in zip(self.data.tables, self.sides[1:])
        ]

    @property
    def shown(self) -> dict[str, Any]:
        """The forms in which samples are given back, see `RelationalModel`."""
        return self.data.shown([side.schema for side in self.sides], self.patterns, self.calendars) | {"rules": self.kept}

    @property
    def private(self) -> Histories:
        """All codes, PRIVATE."""
        return Histories(
            self.sides[0].codes, [side.codes for side in self.sides[1:]], [table.starts for table in self.data.tables]
        )

    @property
    def shape(self) -> Shape:
        """Public facts of the tables as codes."""
        branches = []
        for table, side in zip(self.data.tables, self.sides[1:]):
            count = self.sides[table.parent].domain.names.index(table.count)
            branches.append(Branch(side.domain.sizes, side.spans, table.most, table.parent, count))
        return Shape(self.sides[0].domain.sizes, tuple(branches))


def _drafted(data: LinkedTables, budget: GaussianBudget, sizes: Sequence[float], more: float) -> list[tuple[Found, float]]:
    """The domains of all tables, bought where they are not known, from one row of each person, for `more` shares.

    Beside each is the share of 1 / s^2 that the law of one of its numbers has.
    """
    shares = {part: (more if part != "codes" else 1.0) * share / len(sizes) for part, share in SHARES.items()}
    whole, found = budget.left, list[tuple[Found, float]]()
    for (source, draft), size in zip(_sources(data), sizes):
        left = {part: share * whole / budget.left for part, share in shares.items()}
        own = Discovery(source, draft, budget, size, left)
        found.append((own.run(), own.of_number))
    return found


def _sources(data: LinkedTables) -> list[tuple[Rows, dict[str, Any]]]:
    """One row of each person for the domain of each table, and its draft."""
    return [(data.one_of_each(), data.people_draft), *((table.one_row_each(), table.to_buy) for table in data.tables)]


def _sides(
    data: LinkedTables, plan: RelationalPlan, found: Sequence[Found], pairs: Sequence[Pairs]
) -> tuple[list[Side], list[Fact | Said]]:
    """All tables as codes of complete domains, with what was measured of two columns of each."""
    drafts, tables = [draft for _, draft in _sources(data)], [None, *data.tables]
    made = [_Completed.of(own, draft, table, plan) for own, draft, table in zip(found, drafts, tables)]
    of_people, *of_rows = data.coded([own.schema for own in made])
    sides = [made[0].of_people(of_people, data.public(0))]
    for number, (own, codes, rows) in enumerate(zip(made[1:], of_rows, data.tables), 1):
        sides.append(own.of_rows(codes, rows, data.public(number)))
    measured = [in_domain(own, side.domain.names) for own, side in zip(pairs, sides)]
    of_samples = [measured[0], *([_of_sampled(m) for m in own] for own in measured[1:])]
    sides = [replace(side, pairs=own) for side, own in zip(sides, of_samples)]
    return sides, [fact for own in made for fact in own.facts]


@dataclass(frozen=True, eq=False)
class _Completed:
    """A schema without blanks, the noisy counts of its columns that were bought with it, and what is said of them."""

    schema: Schema
    known: dict[int, Known]
    days: dict[str, Any]
    of_days: Known | None
    facts: list[Fact | Said]

    @classmethod
    def of(cls, found: Found, draft: Mapping[str, Any], table: LinkedRows | None, plan: RelationalPlan) -> _Completed:
        """The schema of people, or of rows of a table, from a draft."""
        bought = {"dpgen:privacy": plan.paid} if found.facts else {}
        descriptor, days, of_days = _calendar(found, table)
        schema = Schema.from_descriptor({**descriptor, **bought})
        earlier = any(field.get("dpgen:source") == "dp" for field in draft["fields"])
        facts = [fact for fact in said(schema.facts) if earlier or fact.fact is not Fact.BOUGHT_DOMAINS]
        known = {schema.domain.names.index(name): values for name, values in found.counts.items()}
        return cls(schema, known, days, of_days, [*facts, *found.facts])

    def of_people(self, codes: Integers, keys: Sequence[PublicKey]) -> Side:
        """People as codes."""
        domain, groups = _with_groups(self.schema.domain, keys)
        return Side(self.schema, domain, codes, self.known, public=groups)

    def of_rows(self, codes: Integers, table: LinkedRows, keys: Sequence[PublicKey]) -> Side:
        """Rows as codes, their columns by span.

        One row of a person stands for all of them: bought counts have the error of a sample beside the noise.
        """
        own = self.schema.domain
        spans = [table.spans.get(name, "all") for name in own.names]
        order = in_spans(spans)
        domain = TableDomain(
            names=tuple(own.names[c] for c in order),
            sizes=tuple(own.sizes[c] for c in order),
            ordered=tuple(own.ordered[c] for c in order),
            missing=tuple(own.missing[c] for c in order),
        )
        domain, groups = _with_groups(domain, keys)
        known = {place: _of_sample(self.known[c]) for place, c in enumerate(order) if c in self.known}
        own_spans = tuple(spans[c] for c in order)
        return Side(self.schema, domain, codes[:, order], known, own_spans, self.days, self.of_days, groups)


def _of_sample(own: Known) -> Known:
    """Counts of one row of each person, as those of all rows."""
    return own._replace(stds=np.hypot(own.stds, np.sqrt(np.maximum(own.counts, 1.0))))


def _of_sampled(own: Measurement) -> Measurement:
    """A table of one row of each person, as one of all rows."""
    return replace(own, noise_std=np.hypot(own.noise_std, np.sqrt(np.maximum(own.values, 1.0))))


def _with_groups(domain: TableDomain, keys: Sequence[PublicKey]) -> tuple[TableDomain, dict[int, list[Integers]]]:
    """The domain of a table, and the groups (codes,) by each attribute of the codes of its keys to public tables.

    Codes that join, as they are too many, stay apart by the first attributes, as many as make at most `_APART` kinds.
    """
    found, kinds = dict[int, list[Integers]](), dict(domain.kinds)
    for key in keys:
        if key.key.column in domain.names and key.groups:
            c = domain.names.index(key.key.column)
            gaps = [0] * (domain.missing[c] is not None)
            found[c] = [np.array([*of, *(max(of) + 1 for _ in gaps)]) for of in key.groups.values()]
            for first in range(1, len(found[c]) + 1):
                _, alike = np.unique(np.stack(found[c][:first]), axis=1, return_inverse=True)
                if alike.max() < _APART:
                    kinds[c] = tuple(map(int, alike.ravel()))
    return replace(domain, kinds=kinds), found


def _patterns(
    data: LinkedTables, keys: Sequence[KeyColumn | None], budget: GaussianBudget, sizes: Sequence[float], share: float
) -> tuple[list[str], list[Said]]:
    """Patterns of the keys of all tables, stated or bought; "": numbers. Those that are bought count one key of each person."""
    found, columns = [key.pattern if key else "" for key in data.named], list[str]()
    for i, (key, size) in enumerate(zip(keys, sizes)):
        if key is not None:
            made = Discovery(key.values, {"fields": []}, budget, size).pattern(key.name, size, share * (1 - 1e-9))
            pattern = made.get("dpgen:key", "")
            found[i] = pattern if key.type or not pattern.startswith("{:") else ""  # digits alone may be numbers
            columns += [key.name] if found[i] else []
    return found, [Fact.GENERATED_KEYS(columns=tuple(columns))] if columns else []


# -- calendars and rules -----------------------------------------------------------------------------------------------


def _calendar(found: Found, table: LinkedRows | None) -> tuple[dict[str, Any], dict[str, Any], Known | None]:
    """A complete schema, the field of the days of all rows, if rows have a calendar, and the counts bought with it.

    Its domain is that of first days, too, but not its counts. Where first days follow from another table it is no column.
    """
    if table is None or not table.calendar or table.order is None:
        return found.descriptor, {}, None
    name, fields = table.order[0], found.descriptor["fields"]
    days = next(given for given in fields if given["name"] == name)
    left = fields if table.since is None else [given for given in fields if given is not days]
    return {**found.descriptor, "fields": left}, days, found.counts.pop(name, None)


def _days(data: LinkedTables, with_rows: Sequence[float]) -> list[Days | None]:
    """The rows of each table that has a calendar."""
    found = list[Days | None]()
    for number, (table, n) in enumerate(zip(data.tables, with_rows), 1):
        seconds = table.seconds(data.linking.time_unit)
        found.append(Days(table.times, seconds, _numbers(data), number, n) if table.calendar else None)
    return found


def _in_years(data: LinkedTables, days: Sequence[Days | None], budget: GaussianBudget, share: float) -> LinkedTables:
    """The tables with dates between years that are bought, where people are too few for cells and nobody states limits."""
    tables = list(data.tables)
    for i, (table, own) in enumerate(zip(tables, days)):
        if own is None or own.seconds is None or table.order is None or own.cells(budget, share) >= FEW:
            continue
        given = table.order[1]
        if given.get("dpgen:blank") and not {"minimum", "maximum"} & {*given.get("constraints", {})}:
            tables[i] = table.between(*years) if (years := own.years(budget, share)) else table
    return replace(data, tables=tuple(tables))


def _buy_hours(
    calendars: Sequence[Any], data: LinkedTables, days: Sequence[Days | None], budget: GaussianBudget, share: float
) -> None:
    """Put the hours of rows into the calendars of times by second, bought for a share of 1 / s^2."""
    wanted = [(known, table, own) for known, table, own in zip(calendars, data.tables, days) if own and own.seconds == 1]
    for known, table, own in wanted:
        if hours := bought(table, own, budget, share / len(wanted) * (1 - 1e-9)):
            known["hours"] = hours


def _searched(
    data: LinkedTables,
    sizes: Sequence[float],
    drafted: Sequence[tuple[Found, float]],
    among: Sequence[Sequence[str]],
    budget: GaussianBudget,
) -> tuple[list[Found], list[Pairs]]:
    r"""The domains with the rules `among` some columns of each table, and what was measured of two columns for these.

    **Sensitivity.** A person has one row in the table that is searched, that of `LinkedRows.sample`, which is chosen by this
    person's rows alone, however many they are. So what `tables.rules` says of a record holds of a person with all rows: counts
    of m candidates move by at most :math:`\sqrt m` in L2, and a table of a dependency by 1, :math:`\sqrt 2` for another
    person in their place.
    """
    searched = [[name for name in names if name in own.counts] for names, (own, _) in zip(among, drafted)]
    part = 1.0 / max(1, sum(len(names) > 1 for names in searched))
    tables = [data.names[0], *(table.name for table in data.tables)]
    found, pairs = [own for own, _ in drafted], list[Pairs]([[] for _ in drafted])
    for i, ((source, _), (own, of_number), names) in enumerate(zip(_sources(data), drafted, searched)):
        if len(names) > 1:
            search = Search(source, own, budget, sizes[i], of_number, names, part, f"{tables[i]}: ")
            found[i], pairs[i] = search.run(), search.tables
    return found, pairs


def _names(data: LinkedTables, number: int, released: Sequence[rules.Side], config: RelationalConfig) -> list[str]:
    """Columns of a table between which rules are looked for: those that nothing else follows from, or decides.

    Left out are what the model adds, the order of rows, keys to public tables, columns of constraints on several tables, the
    target, and columns that may copy one of people, or be the sum of one of rows.
    """
    if config.rules == "off":
        return []
    table = data.tables[number - 1].name if number else data.names[0]
    tied = {f"{data.names[0]}.{one.of}" for one in _across(data, released, config) if one.kind == "sum"}
    for one in _across(data, released, config):
        tied |= {f"{data.tables[one.table - 1].name}.{one.column}"} if one.kind == "copy" else set()
    tied |= {f"{table}.{key.key.column}" for key in data.public(number)} | {str(config.target)}
    tied |= {name for rule in data.across for name in constraint_of(rule).names}
    names = [name for name in released[number].columns if f"{table}.{name}" not in tied]
    return [name for name in names if config.rules == "auto" or f"{table}.{name}" in config.rules]


def _across(data: LinkedTables, released: Sequence[rules.Side], config: RelationalConfig) -> list[rules.Candidate]:
    """Rules that may hold between people and the rows that hang on them, and that are looked for."""
    if config.rules == "off" or data.source is None:
        return []
    of_people = {i: side for i, side in enumerate(released) if i and not data.tables[i - 1].parent}
    among = [(f"{data.names[0]}.{one.of}", one) for one in rules.candidates(released[0], of_people)]
    if isinstance(config.rules, tuple):
        asked = {*config.rules}
        among = [(of, one) for of, one in among if {of, f"{data.names[one.table]}.{one.column}"} <= asked]
    return [one for of, one in among if of != config.target]  # it is drawn after the rows


def _apart(data: LinkedTables, sides: Sequence[Side]) -> list[Said]:
    """Dates of rows beside the one that orders them, by the released schemas."""
    found = list[Said]()
    for table, side in zip(data.tables, sides[1:]):
        if table.calendar and table.order is not None:
            names = [own.name for own in side.schema.fields if own.type in ("date", "datetime")]
            found += [Fact.TIMES_APART(column=name, order=table.order[0]) for name in names if name not in table.in_time]
    return found


def _released(data: LinkedTables, number: int, found: Found, rows: float) -> rules.Side:
    """A table as it was released; of rows with so many of a person above the least number, on average."""
    made = {child.count for child in data.tables if child.parent == number}
    table, order = None, ""
    if number:
        table = data.tables[number - 1]
        order = table.order[0] if table.order else ""
        made |= {order, *map(str, table.made)}
    fields = [given for given in Schema.from_descriptor(found.descriptor).modelled if given.name not in made]
    columns = {given.name: Column.of(given, found.counts.get(given.name)) for given in fields}
    return rules.Side(columns, 0.0 if table is None else table.least + rows, order=order)
