"""People and their rows to a released model: sizes and columns first, then the tables that the model is most wrong about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen.columns.constraints import constraint_of
from dpgen.facts import Fact, Said
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.noise import PublicRandomness
from dpgen.progress import steps
from dpgen.schema import nearest
from dpgen.statement import PrivacyStatement
from dpgen.systems.relational.calendars import POOL
from dpgen.systems.relational.chains import TreeFitter
from dpgen.systems.relational.domains import Bought, Counted, Side
from dpgen.systems.relational.draws import Draws
from dpgen.systems.relational.model import RelationalModel
from dpgen.systems.relational.plan import LINKED, Method, RelationalConfig, RelationalPlan, Sizes, epsilon_of, sizes
from dpgen.systems.relational.references import GROUPS, Named, said_of
from dpgen.systems.relational.sums import (
    Counts,
    Histories,
    Layout,
    Level,
    NoisySums,
    Reals,
    Shape,
    Table,
    place_of,
    single_counts,
)
from dpgen.systems.relational.target import SHARE, target_tables
from dpgen.systems.tables.fitter import EXCLUDED, zeros_of
from dpgen.systems.tables.marginals import SCALE, Coarsening, Columns, Marginal, Measurement, settled_columns
from dpgen.systems.tables.plan import COUNTING, LEAST_COLUMNS
from dpgen.systems.tables.rules import lists_of

if TYPE_CHECKING:
    from dpgen.data import LinkedTables
    from dpgen.data.linked_tables import KeyColumn
    from dpgen.privacy.curator import Curator
    from dpgen.runtime import Runtime

WHOLE_FIT = "relational: all sums and choices together"
COLUMN = "columns of people and rows"
SELECTION, MEASUREMENT = "choice of a table of people", "table of two columns of people"
FACTS = (Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.EXACT_INTEGERS)

COLUMNS = 0.25
"""Share of mu^2 for single columns, what was bought of their domains among it."""
NAMING = 0.25
"""Share of mu^2 for each key by which rows name other people, of several at most twice that."""
POOR = 2.0
"""Loss for each measured cell above which a fit begins anew."""

_RATE = 0.05  # of the fit
_BESIDE = 2  # the level of groups of columns beside those of attributes of a public table


@dataclass(frozen=True, eq=False)
class _Way:
    """The measurements of a fit, by public facts: method, sizes, and parts of 1 / s^2 for columns and keys that name people."""

    method: Method
    rule: Sizes
    of_columns: float
    of_others: float
    of_target: float

    @classmethod
    def of(cls, counted: Counted, bought: Bought, config: RelationalConfig, budget: GaussianBudget) -> _Way:
        """The way of a fit, for what is left of its budget."""
        whole, others = counted.whole, len(bought.data.references)
        method = counted.method(config, bought.columns)
        of_others = min(min(NAMING * others, 2 * NAMING) * whole, 0.6 * budget.left)
        share = max((COLUMNS - counted.sums * COUNTING) * whole - (whole - budget.left), LEAST_COLUMNS * whole)
        of_target = 0.0 if bought.target is None else min(SHARE * whole, 0.3 * (budget.left - of_others))
        share = budget.left - of_others - of_target if method == "independent" else share
        return cls(method, sizes(counted.mu, counted.n), share, of_others, of_target)


def fit(
    data: LinkedTables, *, plan: RelationalPlan, config: RelationalConfig, curator: Curator, runtime: Runtime
) -> RelationalModel:
    """Release a model of people and their rows.

    ValueError is raised for a budget too small for any noise, `BudgetExceeded` where the ledger allows less than the plan.
    """
    assert plan.budget is not None
    _require_columns(config, data)
    lists, keys = _unknown(data, config)
    budget = GaussianBudget(curator, plan.budget, WHOLE_FIT, thresholds=lists)
    counted = Counted.of(data, budget)
    bought = Bought.of(counted, keys, plan, config, budget)
    way = _Way.of(counted, bought, config, budget)
    columns = _released_columns(counted, bought, budget, way.of_columns)
    private = bought.private.grouped([own.coarse for own in columns])
    named = _named(counted, bought, private, columns[0], budget, min(way.of_others, budget.left))
    fitter = _fitter(bought, columns, counted.n, way, config, runtime.seed)
    single, smooth = (
        _released(fitter.layout.shape, found) for found in zip(*((own.measurements, own.smooth) for own in columns))
    )
    among = _candidates(fitter.layout, _KINDS[way.method], _public_keys(bought.sides))
    counts = Counts.of(private, fitter.layout) if among or bought.target is not None else None
    asked = _of_target(counts, fitter.layout, bought.target, budget, min(way.of_target, budget.left))
    picked = _in_rounds(counts, fitter, [*smooth, *asked], among, config, way.rule, budget)
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=FACTS)
    told = _told(way.method, config, len(picked), counted, bought.columns, plan.resolved_delta)
    told += _on_target(config, way, counted, asked)
    tables = [data.names[0], *(table.name for table in data.tables)]
    others = said_of(named, tables, counted.sizes, lambda times: epsilon_of(times * counted.mu, plan.resolved_delta))
    model = RelationalModel(
        fitter.tree,
        columns=columns,
        spans=bought.spans,
        schemas=[side.schema for side in bought.sides],
        shown=bought.shown,
        statement=statement.extended([*told, *bought.facts, *others]),
        noisy=NoisySums(fitter.layout, (*single, *asked, *picked), counted.released),
        named=named,
    )
    model.size_std = counted.people[1]
    Draws(model, np.random.default_rng(runtime.seed), PublicRandomness(runtime.seed).spawn("calendar").generator).learn(POOL)
    if bought.target is None or not asked:  # of one value, or noise hides all others: it depends on nothing
        return model
    seed = PublicRandomness(runtime.seed).spawn("target").seed
    return model.predicting(bought.target, _level_of_target(fitter.layout), np.random.default_rng(seed))


def _unknown(data: LinkedTables, config: RelationalConfig) -> tuple[int, list[KeyColumn | None]]:
    """Number of lists of values and patterns that are bought, and the keys among these; where all else is stated, none are."""
    lists = sum(lists_of(draft, config.rules) for draft in [data.people_draft, *(table.to_buy for table in data.tables)])
    keys = [key if lists and key and key.open else None for key in data.named]
    return lists + sum(key is not None for key in keys), keys


def _require_columns(config: RelationalConfig, data: LinkedTables) -> None:
    """Refuse columns of `rules` that no table has: names are public."""
    fields = {data.names[0]: data.people_draft["fields"]} if data.source is not None else {}
    fields |= {table.name: table.to_buy["fields"] for table in data.tables}
    names = [f"{table}.{given['name']}" for table, own in fields.items() for given in own]
    for name in config.rules if isinstance(config.rules, tuple) else ():
        if name not in names:
            raise nearest("a column of rules", name, names)
    if config.target is not None:
        _require_target(str(config.target), data)


def _require_target(target: str, data: LinkedTables) -> None:
    """Refuse a target that is no column of people, or that a constraint names, as it is drawn when all else is there."""
    people = data.names[0]
    numbers = {table.count for table in data.tables}
    fields = [given["name"] for given in data.people_draft["fields"] if given["name"] not in numbers]
    names = [f"{people}.{name}" for name in fields] if data.source is not None else []
    if not names:
        raise ValueError(f"target is {target!r}; it must be a column of the table of people, and there is none")
    if target not in names:
        raise nearest("target", target, names)
    own = [f"{people}.{name}" for rule in data.people_draft.get("dpgen:constraints", []) for name in constraint_of(rule).names]
    if target in own + [name for rule in data.across for name in constraint_of(rule).names]:
        raise ValueError(f"target is {target!r}, which a constraint names; it must be a column without constraints")


def _released(shape: Shape, tables: Sequence[Sequence[Measurement]]) -> list[tuple[Table, Reals, Any]]:
    """Released sums of groups of single columns, and of two columns of one stack, by their tables."""
    found = []
    for number, side in enumerate(tables):
        for stack in shape.stacks(number):
            chosen = shape.columns(stack)
            for m in [m for m in side if {*m.marginal.columns} <= {*chosen}]:
                first, *second = [chosen.index(c) for c in m.marginal.columns]
                block = ("row" if number else "people", stack, stack) if second else ("one", stack, "unit")
                found.append((Table(block, first, second[0] if second else 0, 0), m.values, m.noise_std))
    return found


def _told(
    method: Method, config: RelationalConfig, picks: int, counted: Counted, columns: tuple[int, int], delta: float
) -> list[Said]:
    """The measured marginals, and from where on there would be more."""
    found = [Fact.MEASURED_LINKED(count=picks)] if picks else []
    if method == "linked" or config.method != "auto":
        return found
    more = epsilon_of(LINKED * (columns[0] + 2 * columns[1]) / counted.fewest, delta)
    return [*found, Fact.NOT_LINKED(people=f"{counted.fewest:.0f}", more=more)]


def _on_target(config: RelationalConfig, way: _Way, counted: Counted, asked: Sequence[Any]) -> list[Said]:
    """The tables with the column that others will predict."""
    share = f"{way.of_target / counted.whole:.0%}"
    return [Fact.TARGET_TABLES(count=len(asked), column=str(config.target), share=share)] if asked else []


# -- single columns ----------------------------------------------------------------------------------------------------


def _released_columns(counted: Counted, bought: Bought, budget: GaussianBudget, share: float) -> list[Columns]:
    """Noisy sums of all single columns for `share` of 1 / s^2, which is shared like size^(2/3); numbers of rows are there."""
    data, shape, sides = bought.private, bought.shape, bought.sides
    numbers = {(branch.parent, branch.count): own for branch, own in zip(shape.tables, counted.numbers)}
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
    settled = [settled_columns(own, s.domain, s.known, whole=those) for s, own, those in zip(sides, found, whole)]
    return [own.with_measured(side.pairs) for own, side in zip(settled, sides)]


def _named(
    counted: Counted, bought: Bought, private: Histories, columns: Columns, budget: GaussianBudget, share: float
) -> list[Named]:
    """Noisy sums of the keys by which rows name other people, of groups of the columns of people, for `share` of 1 / s^2."""
    data, side = bought.data, bought.sides[0]
    coarse, part = columns.coarser(GROUPS, side.domain), share / max(1, len(data.references)) * (1 - 1e-9)
    most = [1, *(table.most for table in data.tables)]
    return [
        Named.measure(own, private.people, columns, coarse, budget, part, rows=most[own.number], n=data.n, size=counted.n)
        for own in data.references
    ]


def _level_of_target(layout: Layout) -> int:
    """The level of the groups of tables with a target."""
    return min(_BESIDE, len(layout.levels) - 1)


def _of_target(
    counts: Counts | None, layout: Layout, column: int | None, budget: GaussianBudget, share: float
) -> list[tuple[Table, Reals, float]]:
    """Noisy tables of the column that others will predict with all others, for `share` of 1 / s^2; see `sums`."""
    if counts is None or column is None:
        return []
    tables, found = target_tables(layout, _level_of_target(layout), column), []
    for table in tables:
        values, std = budget.sums(MEASUREMENT, counts.sums(table), share / len(tables) * (1 - 1e-9))
        found.append((table, values.numpy(), std))
    return found


# -- rounds ------------------------------------------------------------------------------------------------------------


def _fitter(bought: Bought, columns: Sequence[Columns], n: float, way: _Way, config: RelationalConfig, seed: int) -> TreeFitter:
    """The fitter of the tree, to tables of the groups that the model sees and, where columns depend, of fewer groups."""
    levels, rule = [tuple(Coarsening.full(own.coarse.sizes) for own in columns)], way.rule
    for most in rule.groups if way.method != "independent" or bought.target is not None else ():
        levels.append(tuple(own.coarser(most, side.domain) for own, side in zip(columns, bought.sides)))
    if way.method != "independent":
        levels += _by_attributes(levels[min(_BESIDE, len(levels) - 1)], columns, bought.sides)
    return TreeFitter(
        Layout(bought.shape.grouped(levels[0]), tuple(levels)),
        [own.group_shares for own in columns],
        n,
        classes=(config.classes or rule.classes[0], config.row_classes or rule.classes[1]),
        information=rule.information,
        zeros=[zeros_of(side.schema, own, side.domain.names) for side, own in zip(bought.sides, columns)],
        generator=PublicRandomness(seed).spawn("chain").generator,
    )


def _in_rounds(
    counts: Counts | None,
    fitter: TreeFitter,
    single: Sequence[tuple[Table, Reals, Any]],
    tables: list[Table],
    config: RelationalConfig,
    rule: Sizes,
    budget: GaussianBudget,
) -> list[tuple[Table, Reals, float]]:
    """The tables that a tree is fitted to: select some of them, measure them, fit it again; spends all that is left."""
    if tables:
        from dpgen.systems.tables.rounds import Round, growing  # here, because columns alone have no rounds
    layout, picked = fitter.layout, list[tuple[Table, Reals, float]]()
    cells = [layout.cells(table).ravel() for table in tables]
    picks = max(1, round((config.picks or rule.picks) / config.rounds))
    fitter.measure(single)
    first, each = -(-3 * config.steps // 8), -(-3 * config.steps // 20)
    fitter.run(first, _RATE, _RATE)
    for share in steps(growing(config.rounds), "rounds") if tables else ():
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
    if fitter.run(config.steps, _RATE / 2, _RATE / 50, avoided=EXCLUDED) > POOR:  # it is stuck, by released numbers alone
        fitter.restart()
        fitter.run(first + each * config.rounds, _RATE, _RATE / 2)
        fitter.run(config.steps, _RATE / 2, _RATE / 50, avoided=EXCLUDED)
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


def _public_keys(sides: Sequence[Side]) -> list[tuple[int, int]]:
    """Table and column of the keys to public tables, once for each attribute."""
    return [(number, c) for number, side in enumerate(sides) for c, groups in side.public.items() for _ in groups]


def _by_attributes(level: Level, columns: Sequence[Columns], sides: Sequence[Side]) -> list[Level]:
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
