"""A private table to a released model: columns first, then the marginals that the model is most wrong about."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from dpgen.facts import Fact, Said, columns_of
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum, totals
from dpgen.privacy.noise import PublicRandomness
from dpgen.schema import Schema, TableDomain, nearest
from dpgen.statement import PrivacyStatement
from dpgen.systems.plan import SumsPlan
from dpgen.systems.tables.discovery import Discovery, Found, row_count
from dpgen.systems.tables.marginals import Coarsening, Columns, Measurement, Reals, release_columns, wide_bins
from dpgen.systems.tables.mixture import Mixture
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.plan import COUNTING, LEAST_COLUMNS, LEAST_SIGNAL, Question, Sizes, TablesConfig, few_cells, sizes
from dpgen.systems.tables.rules import Search, in_domain, lists_of
from dpgen.systems.tables.whole import table_of, whole_mixture

if TYPE_CHECKING:
    from dpgen.data import RawTable, Table
    from dpgen.privacy.curator import Curator
    from dpgen.runtime import Runtime
    from dpgen.systems.tables.prior import Coded, Dependence, Prior
    from dpgen.systems.tables.workload import Answer

WHOLE = "tables: all marginals and choices together"
COUNT = "number of records"
FACTS = (Fact.ONE_RECORD, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.EXACT_INTEGERS)

COLUMNS = 0.45
"""Share of mu^2 for marginals of columns."""
MOST_OF_NUMBERS = {False: 0.3, True: 0.75}
"""Share of mu^2 for all that is bought of numbers, at most; True: where columns stay single."""

_FORCED_COMPONENTS = 64  # where constraints alone tie columns


@dataclass(frozen=True, eq=False)
class _Bought:
    """A table with its domain; its rows are PRIVATE.

    `counted` are the noisy number of records and its std, `whole` the precision 1 / s^2 of the budget, `mu` its Gaussian-DP
    parameter, `found` what was bought of columns, and `of_rules` what was measured of two columns for rules.
    """

    table: Any
    counted: tuple[float, float]
    whole: float
    mu: float
    found: Found | None
    of_rules: list[tuple[tuple[str, str], Reals, float]]

    @property
    def domain(self) -> TableDomain:
        """The domain of all columns."""
        return cast("TableDomain", self.table.schema.domain)

    @property
    def said(self) -> tuple[Said, ...]:
        """Facts on what was bought."""
        return () if self.found is None else self.found.facts

    @property
    def codes(self) -> Any:
        """The codes of all rows, as an array where they are in memory."""
        return self.table.codes.numpy() if isinstance(self.table.codes, torch.Tensor) else self.table.codes

    @property
    def size(self) -> float:
        """The noisy number of records, 1 at least."""
        return max(1.0, self.counted[0])

    @property
    def signal(self) -> float:
        """mu n."""
        return self.mu * self.size


@dataclass(frozen=True, eq=False)
class _Way:
    """Kind of a fit: all columns in one table (`joint`), single columns (`alone`), or the mixture; by public facts.

    Questions that can be `asked` have a part of the precision `reserved`; `prior` is the prior in the codes of the table.
    """

    joint: bool
    alone: bool
    asked: Sequence[Question]
    unasked: Sequence[Question]
    reserved: float
    prior: Coded | None

    @classmethod
    def of(cls, config: TablesConfig, bought: _Bought, prior: Prior | None, budget: GaussianBudget) -> _Way:
        """The way of a fit."""
        asked, unasked, reserved = list[Question](), list[Question](), 0.0
        if config.questions:
            from dpgen.systems.tables.workload import MOST_OF_LEFT, OF_WORKLOAD, sorted_out  # here, as few people ask

            asked, unasked = sorted_out(config.questions, bought.table.schema)
            reserved = min(OF_WORKLOAD * bought.whole, MOST_OF_LEFT * budget.left) if asked else 0.0
        joint = not asked and _joint(config, bought.domain.sizes, bought.signal)
        return cls(
            joint,
            not joint and _apart(config, bought.signal, len(bought.domain.sizes)),
            asked,
            unasked,
            reserved,
            None if prior is None else prior.coded(bought.table.schema),
        )


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A mixture with what was measured for it."""

    mixture: Mixture
    levels: list[Coarsening]
    measurements: list[Measurement]
    picks: int = 0
    blocks: int = 0
    of_blocks: Sequence[Said] = ()
    dependence: Dependence | None = None
    told: tuple[str, ...] = ()
    answers: list[Answer] = field(default_factory=list)


def fit(data: Table | RawTable, *, plan: SumsPlan, config: TablesConfig, curator: Curator, runtime: Runtime) -> TablesModel:
    """Release a model of a mixed table.

    ValueError is raised for a budget too small for any noise, `BudgetExceeded` where the ledger allows less than the plan.
    """
    assert plan.budget is not None
    raw = cast("RawTable", data) if hasattr(data, "draft") else None
    prior = _prior(config, data, _require_columns(config, data), curator)
    budget = GaussianBudget(curator, plan.budget, WHOLE, thresholds=0 if raw is None else lists_of(raw.draft, config.rules))
    bought = _bought(data, raw, plan, config, budget)
    way = _Way.of(config, bought, prior, budget)
    columns = _columns(bought, way, budget)
    generator = np.random.default_rng(PublicRandomness(runtime.seed).spawn("logits").seed)
    if way.joint or (way.alone and not way.asked):
        fitted = _without_rounds(bought, way, columns, generator)
    else:
        fitted = _mixed(bought, way, columns, config, generator, budget)
    schema = bought.table.schema
    declared = _of_table(columns) if way.joint else _declared(fitted.picks, bought)
    facts = _facts(bought, way, fitted, prior, [declared] if _is_told(way, config, bought) else [])
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=facts).extended(bought.said)
    wide = wide_bins(schema, columns.shares, but=columns_of(statement.facts, Fact.UNSEEN))
    model = TablesModel(
        fitted.mixture,
        columns,
        schema=schema,
        measurements=fitted.measurements,
        levels=fitted.levels,
        statement=statement.extended([Fact.WIDE_BINS(columns=wide)] if wide else []),
        declared=(declared.sentence,),
        answers=fitted.answers,
        blocks=fitted.blocks,
    )
    model.size_std = bought.counted[1]
    if bought.found is not None:
        model.form = bought.table.form
    return model


def _prior(config: TablesConfig, data: Table | RawTable, names: Sequence[str], curator: Curator) -> Prior | None:
    if config.prior is None:
        return None
    from dpgen.systems.tables.prior import Prior  # here, as few fits have one

    return Prior.of(config.prior, data, names, curator)


def _bought(
    data: Table | RawTable, raw: RawTable | None, plan: SumsPlan, config: TablesConfig, budget: GaussianBudget
) -> _Bought:
    """The number of records, and the domains of columns that are not known."""
    whole, mu = budget.left, budget.mu
    count = record_count(cast("Table", data).codes) if raw is None else row_count(len(raw.rows))
    noisy, std = budget.sums(COUNT, count, COUNTING * whole)
    counted = float(noisy), std
    if raw is None:
        return _Bought(data, counted, whole, mu, None, [])
    size = max(1.0, counted[0])
    hidden = _apart(config, mu * size, len(raw.draft["fields"]))
    found, of_rules = _discovered(raw, budget, size, MOST_OF_NUMBERS[hidden], config)
    return _Bought(raw.coded(Schema.from_descriptor(_priced(found.descriptor, plan))), counted, whole, mu, found, of_rules)


def _columns(bought: _Bought, way: _Way, budget: GaussianBudget) -> Columns:
    """Released single columns, or all columns in one table."""
    domain, whole = bought.domain, bought.whole
    counts = {} if bought.found is None else bought.found.counts
    known = {domain.names.index(name): own for name, own in counts.items()}
    before = (1 - COUNTING) * whole - budget.left
    least = min(LEAST_COLUMNS * whole, budget.left / 2)
    share = max(COLUMNS * whole - before, least) if known else COLUMNS * whole
    share = budget.left - way.reserved if way.alone or way.joint else share
    ways: dict[str, Any] = {"alone": way.alone, "joint": way.joint, "known": known, "prior": way.prior and way.prior.of_columns}
    columns = release_columns(bought.codes, domain, budget, share, bought.counted, **ways)
    return columns.with_measured(in_domain(bought.of_rules, domain.names))


def _without_rounds(bought: _Bought, way: _Way, columns: Columns, generator: np.random.Generator) -> _Fitted:
    """A model of single columns, or of all columns in one table."""
    schema = bought.table.schema
    if way.joint:
        mixture = whole_mixture(columns, schema, None if way.prior is None else way.prior.beside_table(columns))
    else:
        mixture = _alone(columns, schema, sizes(bought.mu, columns.n), generator)
    return _Fitted(mixture, [Coarsening.full(columns.coarse.sizes)], list(columns.measurements))


def _mixed(
    bought: _Bought, way: _Way, columns: Columns, config: TablesConfig, generator: np.random.Generator, budget: GaussianBudget
) -> _Fitted:
    """A mixture of questions that were asked, and of the marginals of all rounds."""
    from dpgen.systems.tables.rounds import Rounds, levels_of, with_rare  # here, because small tables have no rounds
    from dpgen.systems.tables.workload import Workload

    schema, rule = bought.table.schema, sizes(bought.mu, columns.n)
    levels = levels_of(columns, rule, bought.domain)
    workload = Workload.measure(bought.codes, columns, schema, way.asked, budget, way.reserved, len(levels))
    levels += workload.coarsenings
    asked = workload.measurements
    dependence = None if way.prior is None else way.prior.dependence(columns, levels)
    count = 0 if way.alone else config.rounds
    rounds = Rounds(bought.codes, columns, schema, config, count, rule, levels, generator, budget, asked, dependence)
    fitter = rounds.run()
    mixture = with_rare(fitter.mixture, columns, bought.domain)
    measured, place = [*columns.smooth, *asked, *rounds.picked], len(columns.measurements)
    answers = workload.answers(fitter, mixture, measured, levels, place, count, rule.corrected) if way.asked else []
    return _Fitted(
        mixture,
        levels,
        [*columns.measurements, *asked, *rounds.picked, *rounds.blocks],
        len(rounds.picked),
        len(rounds.blocks),
        rounds.told,
        dependence,
        tuple(workload.told),
        answers,
    )


def _is_told(way: _Way, config: TablesConfig, bought: _Bought) -> bool:
    """Whether the statement says why columns are one table, or single."""
    return way.joint or (way.alone and config.method == "auto" and len(bought.domain.sizes) > 1)


def _facts(bought: _Bought, way: _Way, fitted: _Fitted, prior: Prior | None, declared: Sequence[Said]) -> list[Any]:
    """Facts of a fit, for a statement."""
    of_prior = [] if prior is None else prior.facts(fitted.dependence, joint=way.joint)
    of_workload = _of_workload(fitted.told, fitted.answers, way.unasked, way.reserved / bought.whole)
    return [*FACTS, *of_prior, *declared, *fitted.of_blocks, *of_workload]


def _require_columns(config: TablesConfig, data: Table | RawTable) -> list[str]:
    """Names of columns; those of `rules` and `workload` that are not among them are refused: names are public."""
    fields = data.draft["fields"] if hasattr(data, "draft") else data.schema.descriptor()["fields"]
    names = [str(given["name"]) for given in fields]
    if config.questions:
        from dpgen.systems.tables.workload import require_columns

        require_columns(config.questions, fields)
    for name in config.rules if isinstance(config.rules, tuple) else ():
        if name not in names:
            raise nearest("a column of rules", name, names)
    return names


def _discovered(
    raw: RawTable, budget: GaussianBudget, n: float, most: float, config: TablesConfig
) -> tuple[Found, list[tuple[tuple[str, str], Reals, float]]]:
    """Blanks of a draft, with rules between columns, and what was measured of two columns for these."""
    discovery = Discovery(raw.rows, raw.draft, budget, n, most=most)
    found = discovery.run()
    if config.rules == "off" or not found.counts:
        return found, []
    columns = config.rules if isinstance(config.rules, tuple) else None
    search = Search(raw.rows, found, budget, n, discovery.of_number, columns)
    return search.run(), search.tables


def _priced(descriptor: Mapping[str, Any], plan: SumsPlan) -> dict[str, Any]:
    """The schema with what its domains cost: all of this budget, and what was paid for others before."""
    earlier = descriptor.get("dpgen:privacy", {})
    both = {name: earlier.get(name, 0.0) + plan.paid[name] for name in ("epsilon", "delta")}
    return {**descriptor, "dpgen:privacy": plan.paid | both}


def _apart(config: TablesConfig, signal: float, d: int) -> bool:
    """Whether d columns stay single, for a signal mu n."""
    return config.method == "independent" or d < 2 or (config.method == "auto" and signal < LEAST_SIGNAL * d)


def _joint(config: TablesConfig, sizes: Sequence[int], signal: float) -> bool:
    """Whether columns of these sizes are released as one table, for a signal mu n."""
    asked = config.method != "auto" or config.components is not None or config.picks is not None
    return not asked and len(sizes) > 1 and few_cells(sizes, signal)


def record_count(codes: Any) -> BoundedSum:
    """The number of records."""
    rows = codes.numpy() if isinstance(codes, torch.Tensor) else codes
    count = totals(rows, lambda batches: torch.tensor([sum(len(batch) for batch in batches)]))
    return BoundedSum(count, 1.0, replaced=1.0)


def _alone(columns: Columns, schema: Schema, rule: Sizes, generator: np.random.Generator) -> Mixture:
    """The product of single columns, or what is closest to it where constraints hold."""
    from dpgen.systems.tables.fitter import EXCLUDED, Fitter, zeros_of  # here and below, as for rounds
    from dpgen.systems.tables.rounds import LAST, RATE

    shares, zeros = columns.group_shares, zeros_of(schema, columns)
    if not zeros:
        return Mixture(np.concatenate(shares)[:, None].astype(np.float32), np.ones(1, np.float32), columns.coarse.sizes)
    options: dict[str, Any] = {"components": _FORCED_COMPONENTS, "information": rule.information, "zeros": zeros}
    fitter = Fitter(shares, columns.n, **options, generator=generator)
    fitter.measure(columns.smooth, [Coarsening.full(columns.coarse.sizes)])
    fitter.run(LAST, RATE, RATE / 2)
    fitter.run(LAST, RATE / 2, RATE / 50, avoided=EXCLUDED)
    return fitter.mixture


def _declared(picks: int, bought: _Bought) -> Said:
    """Fact on what was measured of several columns; of single columns, from which epsilon on there would be more."""
    if picks:
        return Fact.MEASURED_MARGINALS(count=picks)
    d = len(bought.domain.sizes)
    wanted = LEAST_SIGNAL * d
    if bought.signal >= wanted or d < 2:
        return Fact.INDEPENDENT(enough="")
    more = f"{wanted / bought.signal:.2g}"
    return Fact.INDEPENDENT(
        enough=f" For about {bought.size:.0f} records of {d} columns they are worth it from about {more} times this epsilon on."
    )


def _of_table(columns: Columns) -> Said:
    table = table_of(columns.measurements, len(columns.shares))
    cells = math.prod(len(share) for share in columns.shares)
    return Fact.WHOLE_TABLE(columns=len(columns.shares), cells=cells, std=f"{np.mean(table.noise_std):.3g}")


def _of_workload(told: Sequence[str], answers: Sequence[Answer], unasked: Sequence[Question], share: float) -> list[Said]:
    """Facts of questions, for a statement."""
    found = list[Said]()
    if answers:
        errors = tuple(f"{told[i]} ({_error(a.noise_std)}, {_error(a.model_std)})" for i, a in enumerate(answers))
        found.append(Fact.WORKLOAD(share=f"{share:.0%}", questions=errors))
    return found + ([Fact.NOT_ASKED(questions=tuple(map(str, unasked)))] if unasked else [])


def _error(std: float | None) -> str:
    return "unknown" if std is None else f"{std:.3g}"
