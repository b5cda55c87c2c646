"""People and their rows to a released model: sizes and columns first, then the tables that the model is most wrong about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen.facts import Fact, Said, said
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.noise import PublicRandomness
from dpgen.progress import steps
from dpgen.schema import Schema, TableDomain, nearest
from dpgen.statement import PrivacyStatement
from dpgen.systems.relational import rules
from dpgen.systems.relational.calendars import FEW, OF_DAYS, POOL, Calendar, Days
from dpgen.systems.relational.chains import TreeFitter
from dpgen.systems.relational.draws import Draws
from dpgen.systems.relational.gaps import OF_GAPS, in_steps
from dpgen.systems.relational.model import RelationalModel
from dpgen.systems.relational.plan import (
    DOMAINS,
    LINKED,
    Method,
    RelationalConfig,
    RelationalPlan,
    Sizes,
    epsilon_of,
    measured,
    sizes,
)
from dpgen.systems.relational.references import GROUPS, Named, said_of
from dpgen.systems.relational.sums import (
    SPANS,
    Branch,
    Counts,
    Histories,
    Integers,
    Layout,
    Level,
    Reals,
    Shape,
    Span,
    Table,
    people_count,
    place_of,
    single_counts,
    stack_of,
)
from dpgen.systems.tables.discovery import SHARES, Discovery, Found, thresholds
from dpgen.systems.tables.fit import COUNTING, LEAST_COLUMNS
from dpgen.systems.tables.marginals import (
    SCALE,
    Coarsening,
    Columns,
    Known,
    Marginal,
    Measurement,
    settled_columns,
)
from dpgen.systems.tables.rounds import Round, growing

if TYPE_CHECKING:
    from dpgen.data import LinkedTables
    from dpgen.data.linked_rows import KeyColumn, LinkedRows
    from dpgen.data.public_tables import PublicKey
    from dpgen.privacy.curator import Curator
    from dpgen.runtime import Runtime

WHOLE_FIT = "relational: all sums and choices together"
COUNT, NUMBER, COLUMN = "number of people", "rows of a person", "columns of people and rows"
WITH_ROWS = "number of people with rows that hang on a row"
SELECTION, MEASUREMENT = "choice of a table of people", "table of two columns of people"
FACTS = (Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.EXACT_INTEGERS)

COLUMNS = 0.25
"""Share of mu^2 for single columns, what was bought of their domains among it."""
NAMING = 0.25
"""Share of mu^2 for each key by which rows name other people, of several at most twice that."""
QUANTILE = 0.95
"""Share of people who have rows, whose rows are all used where m is bought."""
SEEN, USUAL = 3.0, 10
"""Noise stds of a number of rows that people have, and m where there is none."""
POOR = 2.0
"""Loss for each measured cell above which a fit begins anew."""

_RATE = 0.05  # of the fit
_APART = 32  # kinds of keys to a public table
_BESIDE = 2  # the level of groups of columns beside those of attributes of a public table


def fit(
    data: LinkedTables, *, plan: RelationalPlan, config: RelationalConfig, curator: Curator, runtime: Runtime
) -> RelationalModel:
    """Release a model of people and their rows.

    ValueError is raised for a budget too small for any noise, `BudgetExceeded` where the ledger allows less than the plan.
    """
    assert plan.budget is not None
    _require_columns(config, data)
    drafts = [data.people_draft, *(table.to_buy for table in data.tables)]
    lists = sum(map(thresholds, drafts))
    keys = [key if lists and key and key.open else None for key in data.named]  # where all else is stated, nothing is bought
    lists += sum(key is not None for key in keys)
    budget = GaussianBudget(curator, plan.budget, WHOLE_FIT, thresholds=lists)
    whole, mu = budget.left, budget.mu
    noisy, std = budget.sums(COUNT, people_count(data.n), COUNTING * whole)
    n = max(1.0, float(noisy))
    numbers, with_rows, bounded = list[Measurement](), list[float](), list[Said]()
    for number in range(1, len(data.tables) + 1):
        data, count, found = _bounded(data, number, _number_of_rows(data, number, budget, COUNTING * whole))
        numbers.append(count)
        bounded += found
        with_rows.append(_with_rows(data, number, count, budget, COUNTING * whole))
    counted = len(numbers) + sum(table.parent > 0 for table in data.tables)
    patterns, of_keys = _patterns(data, keys, budget, [n, *with_rows], COUNTING * whole)
    drafted = len(data.people_draft["fields"]), sum(len(table.draft["fields"]) for table in data.tables)
    fewest = min(with_rows, default=n)
    more = DOMAINS[config.method if config.method != "auto" else measured(mu, n, fewest, drafted)]
    days = _days(data, with_rows)
    of_days = OF_DAYS * whole / max(1, sum(own is not None for own in days)) * (1 - 1e-9)
    data = _in_years(data, days, budget, of_days)
    data = replace(data, tables=in_steps(data.tables, days, budget, OF_GAPS * whole))
    sides, facts = _domains(data, plan, budget, [n, *with_rows], more)
    calendars = [own and own.released(side.days, side.of_days, budget, of_days) for own, side in zip(days, sides[1:])]
    kept_rules, told_rules = _rules(data, sides, calendars, numbers, n, budget, config)
    share = max((COLUMNS - (1 + counted) * COUNTING) * whole - (whole - budget.left), LEAST_COLUMNS * whole)
    widths = len(sides[0].domain.sizes), sum(len(side.domain.sizes) for side in sides[1:])
    method = config.method if config.method != "auto" else measured(mu, n, fewest, widths)
    of_others = min(min(NAMING * len(data.references), 2 * NAMING) * whole, 0.6 * budget.left)
    share = budget.left - of_others if method == "independent" else share
    private = Histories(sides[0].codes, [side.codes for side in sides[1:]], [table.starts for table in data.tables])
    shape = _shape(data, sides)
    places = {(table.parent, branch.count): own for table, branch, own in zip(data.tables, shape.tables, numbers)}
    columns = _released_columns(private, shape, sides, budget, share, places)
    private = private.grouped([own.coarse for own in columns])
    named = _named(data, private, columns[0], sides[0], budget, min(of_others, budget.left), n)
    rule = sizes(mu, n)
    fitter = _fitter(shape, columns, sides, n, method, config, rule, runtime.seed)
    layout = fitter.layout
    single, smooth = (_single(layout.shape, found) for found in zip(*((own.measurements, own.smooth) for own in columns)))
    picks = max(1, round((config.picks or rule.picks) / config.rounds))
    among = _candidates(layout, _KINDS[method], _public_keys(sides))
    picked = _in_rounds(private, fitter, smooth, among, config, picks, budget)
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=FACTS)
    told = _told(method, config, len(picked), fewest, widths, plan.resolved_delta)
    tables = [data.names[0], *(table.name for table in data.tables)]
    others = said_of(named, tables, [n, *with_rows], lambda times: epsilon_of(times * mu, plan.resolved_delta))
    statement = statement.extended([*told, *facts, *of_keys, *bounded, *told_rules, *others])
    schemas = [side.schema for side in sides]
    model = RelationalModel(
        fitter.tree,
        columns=columns,
        spans=[[table.spans.get(name, "all") for name in own.domain.names] for table, own in zip(data.tables, schemas[1:])],
        schemas=schemas,
        size=round(n),
        shown=data.shown(schemas, patterns, calendars) | {"rules": kept_rules},
        statement=statement,
        layout=layout,
        sums=(*single, *picked),
        named=named,
        counted=((float(noisy), std), *((own.values, np.broadcast_to(own.noise_std, own.values.shape)) for own in numbers)),
    )
    model.size_std = std
    Draws(model, np.random.default_rng(runtime.seed), PublicRandomness(runtime.seed).spawn("calendar").generator).learn(POOL)
    return model


def _require_columns(config: RelationalConfig, data: LinkedTables) -> None:
    """Refuse columns of `rules` that no table has: names are public."""
    fields = {data.names[0]: data.people_draft["fields"]} if data.source is not None else {}
    fields |= {table.name: table.to_buy["fields"] for table in data.tables}
    names = [f"{table}.{given['name']}" for table, own in fields.items() for given in own]
    for name in config.rules if isinstance(config.rules, tuple) else ():
        if name not in names:
            raise nearest("a column of rules", name, names)


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


def _shape(data: LinkedTables, sides: Sequence[_Side]) -> Shape:
    """Public facts of the tables as codes."""
    branches = []
    for table, side in zip(data.tables, sides[1:]):
        count = sides[table.parent].domain.names.index(table.count)
        branches.append(Branch(side.domain.sizes, side.spans, table.most, table.parent, count))
    return Shape(sides[0].domain.sizes, tuple(branches))


def _single(shape: Shape, tables: Sequence[Sequence[Measurement]]) -> list[tuple[Table, Reals, Any]]:
    """Released sums of groups of single columns, by their tables."""
    found = []
    for number, side in enumerate(tables):
        for stack in shape.stacks(number):
            chosen = shape.columns(stack)
            for m in [m for m in side if m.marginal.columns[0] in chosen]:
                found.append((Table(("one", stack, "unit"), chosen.index(m.marginal.columns[0]), 0, 0), m.values, m.noise_std))
    return found


def _told(
    method: Method, config: RelationalConfig, picks: int, with_rows: float, columns: tuple[int, int], delta: float
) -> list[Said]:
    """The measured marginals, and from where on there would be more."""
    found = [Fact.MEASURED_LINKED(count=picks)] if picks else []
    if method == "linked" or config.method != "auto":
        return found
    more = epsilon_of(LINKED * (columns[0] + 2 * columns[1]) / with_rows, delta)
    return [*found, Fact.NOT_LINKED(people=f"{with_rows:.0f}", more=more)]


# -- domains and single columns ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Side:
    """A table with its domain: codes are PRIVATE."""

    schema: Schema
    domain: TableDomain
    codes: Integers
    known: dict[int, Known]
    spans: tuple[Span, ...] = ()
    days: Mapping[str, Any] = field(default_factory=dict)  # the field of the days of all rows, and its counts in a sample
    of_days: Known | None = None
    public: Mapping[int, Sequence[Integers]] = field(default_factory=dict)  # groups of the codes of keys to public tables


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


def _domains(
    data: LinkedTables, plan: RelationalPlan, budget: GaussianBudget, sizes: Sequence[float], more: float
) -> tuple[list[_Side], list[Fact | Said]]:
    """All tables as codes, their domains bought where they are not known, from one row of each person, for `more` shares."""
    shares, facts = (
        {part: (more if part != "codes" else 1.0) * share / len(sizes) for part, share in SHARES.items()},
        list[Fact | Said](),
    )
    whole = budget.left
    schemas, counts, calendars = list[Schema](), list[dict[int, Known]](), list[Any]()
    sources = [(data.one_of_each(), data.people_draft), *((table.one_row_each(), table.to_buy) for table in data.tables)]
    for (source, draft), size in zip(sources, sizes):
        left = {part: share * whole / budget.left for part, share in shares.items()}
        found = Discovery(source, draft, budget, size, left).run()
        bought = {"dpgen:privacy": plan.paid} if found.facts else {}
        descriptor, *days = _calendar(found, data.tables[len(schemas) - 1] if schemas else None)
        calendars.append(days)
        schema = Schema.from_descriptor({**descriptor, **bought})
        earlier = any(field.get("dpgen:source") == "dp" for field in draft["fields"])
        facts += [fact for fact in said(schema.facts) if earlier or fact.fact is not Fact.BOUGHT_DOMAINS]
        facts += found.facts
        schemas.append(schema)
        counts.append({schema.domain.names.index(name): values for name, values in found.counts.items()})
    of_people, *codes = data.coded(schemas)
    domain, groups = _with_groups(schemas[0].domain, data.public(0))
    sides = [_Side(schemas[0], domain, of_people, counts[0], public=groups)]
    for table, own_codes, schema, sampled, days in zip(data.tables, codes, schemas[1:], counts[1:], calendars[1:]):
        # One row of a person stands for all of them: their counts have the error of a sample beside the noise.
        widened = {c: own._replace(stds=np.hypot(own.stds, np.sqrt(np.maximum(own.counts, 1.0)))) for c, own in sampled.items()}
        own = schema.domain
        spans = [table.spans.get(name, "all") for name in own.names]
        order = [c for span in SPANS for c, of_column in enumerate(spans) if of_column == span]
        domain = TableDomain(
            names=tuple(own.names[c] for c in order),
            sizes=tuple(own.sizes[c] for c in order),
            ordered=tuple(own.ordered[c] for c in order),
            missing=tuple(own.missing[c] for c in order),
        )
        domain, groups = _with_groups(domain, data.public(len(sides)))
        placed = {place: widened[c] for place, c in enumerate(order) if c in widened}
        own_spans, own_codes = tuple(spans[c] for c in order), own_codes[:, order]
        sides.append(replace(_Side(schema, domain, own_codes, placed, own_spans, *days), public=groups))
    return sides, facts


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


def _rules(
    data: LinkedTables,
    sides: Sequence[_Side],
    calendars: Sequence[Any],
    numbers: Sequence[Measurement],
    n: float,
    budget: GaussianBudget,
    config: RelationalConfig,
) -> tuple[list[dict[str, Any]], list[Said]]:
    """Rules between people and their rows that hold by noisy counts."""
    if config.rules == "off" or data.source is None:
        return [], []
    means = [0.0, *(float(np.arange(len(own.values)) @ np.maximum(own.values, 0) / n) for own in numbers)]
    found = [_released(data, i, side, means[i], calendars[i - 1] if i else None) for i, side in enumerate(sides)]
    of_people = {i: side for i, side in enumerate(found) if i and not data.tables[i - 1].parent}
    among = list(rules.candidates(found[0], of_people))
    if isinstance(config.rules, tuple):
        named = [(f"{data.names[one.table]}.{one.column}", f"{data.names[0]}.{one.of}") for one in among]
        among = [one for one, both in zip(among, named) if {*both} <= {*config.rules}]
    fields = [side.schema.by_name for side in sides]
    return rules.found_rules(data.people, data.tables, fields, among, n, budget, data.names)


def _released(data: LinkedTables, number: int, side: _Side, rows: float, calendar: Any) -> rules.Side:
    """A table as it was released; of rows with so many of a person above the least number, on average."""
    made = {child.count for child in data.tables if child.parent == number}
    table, order, seconds = None, "", None
    if number:
        table = data.tables[number - 1]
        made |= {table.gap, str(table.since)}
        order, seconds = table.order[0] if table.order else "", table.seconds(data.linking.time_unit)
    names = {c: name for c, name in enumerate(side.domain.names) if name not in {*made, order}}
    columns = {name: rules.column(side.schema.by_name[name], side.known.get(c)) for c, name in names.items()}
    each = 0.0 if table is None else table.least + rows
    return rules.Side(columns, each, Calendar(calendar, seconds) if calendar else None, order)


def _released_columns(
    data: Histories,
    shape: Shape,
    sides: Sequence[_Side],
    budget: GaussianBudget,
    share: float,
    numbers: Mapping[tuple[int, int], Measurement],
) -> list[Columns]:
    """Noisy sums of all single columns for `share` of 1 / s^2, which is shared like size^(2/3); `numbers` of rows are there."""
    wanted = [(stack, i, c) for i in range(len(sides)) for stack in shape.stacks(i) for c in shape.columns(stack)]
    weights = [sides[i].domain.sizes[c] ** (2 / 3) for _, i, c in wanted]
    found: list[list[Measurement]] = [[] for _ in sides]
    for (stack, i, c), weight in zip(wanted, weights):
        known, part = sides[i].known.get(c), share * weight / sum(weights) * (1 - 1e-9)
        if (i, c) in numbers:
            found[i].append(replace(numbers[i, c], marginal=Marginal((c,), 0)))
        if known is not None:
            found[i].append(Measurement(Marginal((c,), 0), known.counts, known.stds, known.fitted))
            part -= (budget.noise_std(1.0) / float(np.median(known.stds))) ** 2
        if part > 0:
            sums = single_counts(data, shape, stack, shape.columns(stack).index(c))
            values, std = budget.sums(COLUMN, sums, part)
            found[i].append(Measurement(Marginal((c,), 0), values.numpy(), std))
    whole = [{c for j, c in numbers if j == i} for i in range(len(sides))]
    return [settled_columns(own, s.domain, s.known, whole=those) for s, own, those in zip(sides, found, whole)]


def _named(
    data: LinkedTables, private: Histories, columns: Columns, side: _Side, budget: GaussianBudget, share: float, size: float
) -> list[Named]:
    """Noisy sums of the keys by which rows name other people, of groups of the columns of people, for `share` of 1 / s^2."""
    coarse, part, count = columns.coarser(GROUPS, side.domain), share / max(1, len(data.references)) * (1 - 1e-9), data.n
    most = [1, *(table.most for table in data.tables)]
    return [
        Named.measure(own, private.people, columns, coarse, budget, part, rows=most[own.number], n=count, size=size)
        for own in data.references
    ]


# -- rounds ------------------------------------------------------------------------------------------------------------


def _fitter(
    shape: Shape,
    columns: Sequence[Columns],
    sides: Sequence[_Side],
    n: float,
    method: Method,
    config: RelationalConfig,
    rule: Sizes,
    seed: int,
) -> TreeFitter:
    """The fitter of the tree, to tables of the groups that the model sees and, where columns depend, of fewer groups."""
    levels = [tuple(Coarsening.full(own.coarse.sizes) for own in columns)]
    for most in rule.groups if method != "independent" else ():
        levels.append(tuple(own.coarser(most, side.domain) for own, side in zip(columns, sides)))
    if method != "independent":
        levels += _by_attributes(levels[min(_BESIDE, len(levels) - 1)], columns, sides)
    return TreeFitter(
        Layout(shape.grouped(levels[0]), tuple(levels)),
        [own.group_shares for own in columns],
        n,
        classes=(config.classes or rule.classes[0], config.row_classes or rule.classes[1]),
        information=rule.information,
        generator=PublicRandomness(seed).spawn("chain").generator,
    )


def _in_rounds(
    data: Histories,
    fitter: TreeFitter,
    single: Sequence[tuple[Table, Reals, Any]],
    tables: list[Table],
    config: RelationalConfig,
    picks: int,
    budget: GaussianBudget,
) -> list[tuple[Table, Reals, float]]:
    """The tables that a tree is fitted to: select some of them, measure them, fit it again; spends all that is left."""
    layout, picked = fitter.layout, list[tuple[Table, Reals, float]]()
    cells = [layout.cells(table).ravel() for table in tables]

    fitter.measure(single)
    first, each = -(-3 * config.steps // 8), -(-3 * config.steps // 20)
    fitter.run(first, _RATE, _RATE)
    counts = Counts.of(data, layout) if tables else None
    for share in steps(growing(config.rounds), "rounds") if counts is not None else ():
        assert counts is not None
        now = Round(budget, share * budget.left / picks * (1 - 1e-9), picks, (SELECTION, MEASUREMENT))
        expected = fitter.n * layout.flat(fitter.tree.blocks(layout.shape))
        offsets = now.penalty * np.array([len(own) for own in cells])
        scores = counts.scores(cells, expected, np.ones(len(cells), np.int64), offsets)
        found = now.run(
            scores,
            np.arange(len(cells)),
            sensitivity=SCALE,
            sums=lambda i: counts.sums(tables[i]),
            beside=lambda one, other: replace(tables[other], level=tables[one].level) != tables[one],
        )
        for best, values, std in found:
            picked.append((tables[best], values.reshape(layout.cells(tables[best]).shape), std))
        fitter.measure([*single, *picked])
        fitter.run(each, _RATE, _RATE / 2)
    if fitter.run(config.steps, _RATE / 2, _RATE / 50) > POOR:  # a fit that is stuck, by released numbers alone
        fitter.restart()
        fitter.run(first + each * config.rounds, _RATE, _RATE / 2)
        fitter.run(config.steps, _RATE / 2, _RATE / 50)
    return picked


_KINDS = {
    "independent": (),
    "apart": ("people", "row"),
    "linked": ("people", "both", "row", "place", "pair", "next"),
}  # type: dict[str, tuple[str, ...]]
"""Kinds of tables that a method measures."""


def _columns(shape: Shape, table: Table) -> list[tuple[int, int]]:
    """Table and column of both sides of a table, but of a position."""
    sides = [(place_of(stack), stack, place) for stack, place in zip(table.block[1:], (table.left, table.right))]
    return [(number, shape.columns(stack)[place]) for (number, span), stack, place in sides if span != "position"]


def _public_keys(sides: Sequence[_Side]) -> list[tuple[int, int]]:
    """Table and column of the keys to public tables, once for each attribute."""
    return [(number, c) for number, side in enumerate(sides) for c, groups in side.public.items() for _ in groups]


def _by_attributes(level: Level, columns: Sequence[Columns], sides: Sequence[_Side]) -> list[Level]:
    """Levels of groups by attributes of public tables, in the order of `_public_keys`; other columns are as in a level."""
    found = list[Level]()
    for number, c in dict.fromkeys(_public_keys(sides)):
        _, first = np.unique(columns[number].coarse.groups[c], return_index=True)
        for group in sides[number].public[c]:
            _, own = np.unique(group[first], return_inverse=True)
            groups, counts = list(level[number].groups), list(level[number].sizes)
            groups[c], counts[c] = own, int(own.max()) + 1
            found.append((*level[:number], Coarsening(tuple(groups), tuple(counts)), *level[number + 1 :]))
    return found


def _candidates(layout: Layout, kinds: Sequence[str], keys: Sequence[tuple[int, int]] = ()) -> list[Table]:
    """The tables of some kinds at all levels of groups, none twice and none of one group.

    The last levels are those of attributes of `keys`: of these, tables with the key.
    """
    found, seen = list[Table](), set[tuple[Any, ...]]()
    by_level = dict(enumerate(keys, len(layout.levels) - len(keys)))
    for level in range(1, len(layout.levels)):
        shape = layout.shape.grouped(layout.levels[level])
        for table in layout.tables(level):
            groups = shape.sizes(table.block[1])[table.left], shape.sizes(table.block[2])[table.right]
            key = (table.block, table.left, table.right, groups, level if level in by_level else 0)
            if level in by_level and by_level[level] not in _columns(shape, table):
                continue
            if table.block[0] in kinds and min(groups) > 1 and key not in seen:
                seen.add(key)
                found.append(table)
    return found
