"""A private table to a released model: columns first, then the marginals that the model is most wrong about."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from dpgen.facts import Fact, Said, columns_of
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum, totals
from dpgen.privacy.noise import PublicRandomness
from dpgen.progress import steps
from dpgen.schema import Schema, TableDomain, nearest
from dpgen.statement import PrivacyStatement
from dpgen.systems.plan import SumsPlan
from dpgen.systems.tables.blocks import Held, Seeds
from dpgen.systems.tables.blocks import Search as Blocks
from dpgen.systems.tables.discovery import Discovery, Found, blank, row_count, thresholds
from dpgen.systems.tables.marginals import (
    SCALE,
    Coarsening,
    Columns,
    Counts,
    Measurement,
    Reals,
    candidates,
    release_columns,
    shape,
    wide_bins,
)
from dpgen.systems.tables.mixture import EXCLUDED, Fitter, Mixture, zeros_of
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.plan import LEAST_SIGNAL, Question, Sizes, TablesConfig, few_cells, sizes
from dpgen.systems.tables.prior import Dependence, Prior
from dpgen.systems.tables.rules import MOST_LENGTHS, Search, in_domain
from dpgen.systems.tables.whole import table_of, whole_mixture
from dpgen.systems.tables.workload import MOST_OF_LEFT, OF_WORKLOAD, Answer, Workload, require_columns, sorted_out

if TYPE_CHECKING:
    from dpgen.data import RawTable, Table
    from dpgen.privacy.curator import Curator
    from dpgen.runtime import Runtime

WHOLE = "tables: all marginals and choices together"
COUNT, SELECTION, MEASUREMENT = "number of records", "choice of a marginal", "marginal of several columns"
FACTS = (Fact.ONE_RECORD, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.EXACT_INTEGERS)

COUNTING = 0.01
"""Share of mu^2 for the number of records."""
COLUMNS = 0.45
"""Share of mu^2 for marginals of columns."""
LEAST_COLUMNS = 0.1
"""Share of mu^2 for them where most has been bought before: it pairs columns with the target."""
MOST_OF_NUMBERS = {False: 0.3, True: 0.75}
"""Share of mu^2 for all that is bought of numbers, at most; True: where columns stay single."""
SELECTING = 0.1
"""Share of mu^2 of a round that selects; the rest measures."""
GROWTH = 2.0
"""Growth of mu^2 of a pick from the first round to the last."""
PENALTY = 0.2
"""Share of the expected noise of a marginal that is taken off its score."""
WEIGHTS = {2: 2, 3: 1}
"""Weights of scores of pairs and triples; three times as much with the target."""
MOST_TRIPLES = 1_000

LEAST_ROUNDS, LAST_ROUNDS = 10, 3
"""Rounds from which on blocks are looked for, and those that follow: what pairs explain must be in the model."""

_RARE = 0.02  # share of a category that is rare
_FORCED_COMPONENTS = 64  # where constraints alone tie columns
_RATE, _FIRST, _EACH, _LAST = 0.1, 60, 80, 300  # steps of the fit at first, after each round and at the end
_SEEDED = 300  # where products were put into cells of blocks


def fit(data: Table | RawTable, *, plan: SumsPlan, config: TablesConfig, curator: Curator, runtime: Runtime) -> TablesModel:
    """Release a model of a mixed table.

    ValueError is raised for a budget too small for any noise, `BudgetExceeded` where the ledger allows less than the plan.
    """
    assert plan.budget is not None
    raw = cast("RawTable", data) if hasattr(data, "draft") else None
    names = _require_columns(config, data)
    prior = Prior.of(config.prior, data, names, curator)
    budget = GaussianBudget(curator, plan.budget, WHOLE, thresholds=0 if raw is None else _lists(raw.draft, config))
    whole, mu = budget.left, budget.mu
    count = record_count(cast("Table", data).codes) if raw is None else row_count(len(raw.rows))
    noisy, std = budget.sums(COUNT, count, COUNTING * whole)
    size = max(1.0, float(noisy))
    hidden = raw is not None and _apart(config, mu * size, len(raw.draft["fields"]))
    most = MOST_OF_NUMBERS[hidden]
    found, tables = (None, []) if raw is None else _discovered(raw, budget, size, most, config)
    table: Any = data if raw is None or found is None else raw.coded(Schema.from_descriptor(_priced(found.descriptor, plan)))
    domain = table.schema.domain
    d = len(domain.sizes)
    codes = table.codes.numpy() if isinstance(table.codes, torch.Tensor) else table.codes
    known = {} if found is None else {domain.names.index(name): counts for name, counts in found.counts.items()}
    asked, unasked = sorted_out(config.questions, table.schema)
    reserved = min(OF_WORKLOAD * whole, MOST_OF_LEFT * budget.left) if asked else 0.0
    joint = not asked and _joint(config, domain.sizes, mu * size)
    alone = not joint and _apart(config, mu * size, d)
    bought = (1 - COUNTING) * whole - budget.left
    least = min(LEAST_COLUMNS * whole, budget.left / 2)
    share = max(COLUMNS * whole - bought, least) if known else COLUMNS * whole
    share = budget.left - reserved if alone or joint else share
    coded = None if prior is None else prior.coded(table.schema)
    singles: dict[str, Any] = {"alone": alone, "joint": joint, "known": known, "prior": coded}
    columns = release_columns(codes, domain, budget, share, (float(noisy), std), **singles)
    columns = columns.with_measured(in_domain(tables, domain.names))
    rule, generator = sizes(mu, columns.n), np.random.default_rng(PublicRandomness(runtime.seed).spawn("logits").seed)
    levels, picks, workload, dependence = [Coarsening.full(columns.coarse.sizes)], 0, None, None
    measurements, answers, blocks, of_blocks = list(columns.measurements), list[Answer](), list[Measurement](), list[Said]()
    if joint:
        mixture = whole_mixture(columns, table.schema, None if coded is None else coded.beside_table(columns))
    elif alone and not asked:
        mixture = _alone(columns, table.schema, rule, generator)
    else:
        levels = _levels(columns, rule, domain)
        workload = Workload.measure(codes, columns, table.schema, asked, budget, reserved, len(levels))
        levels = [*levels, *workload.coarsenings]
        dependence = None if coded is None else Dependence(coded, columns, levels)
        choices = _Choices(config, 0 if alone else config.rounds, rule, levels, generator, dependence)
        fitter, picked, blocks, of_blocks = _in_rounds(codes, columns, table.schema, choices, workload.measurements, budget)
        mixture, picks, levels = with_rare(fitter.mixture, columns, domain), len(picked), choices.levels
        measurements += [*workload.measurements, *picked, *blocks]
        measured, place = [*columns.smooth, *workload.measurements, *picked], len(columns.measurements)
        answers = workload.answers(fitter, mixture, measured, levels, place, choices.rounds, rule.corrected) if asked else []
    declared = _of_table(columns) if joint else _declared(picks, mu, size, d)
    told = joint or (alone and config.method == "auto" and d > 1)
    of_prior = [] if prior is None else prior.facts(dependence, joint=joint)
    facts = [*FACTS, *of_prior, *([declared] if told else ()), *of_blocks]
    facts += _of_workload(workload, answers, unasked, reserved / whole)
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=facts)
    if found is not None:
        statement = statement.extended(found.facts)
    wide = wide_bins(table.schema, columns.shares, but=columns_of(statement.facts, Fact.UNSEEN))
    statement = statement.extended([Fact.WIDE_BINS(columns=wide)] if wide else [])
    model = TablesModel(
        mixture,
        columns,
        schema=table.schema,
        measurements=measurements,
        levels=levels,
        statement=statement,
        declared=(declared.sentence,),
        answers=answers,
        blocks=len(blocks),
    )
    model.size_std = std
    if found is not None:
        model.form = table.form
    return model


def _lists(draft: Mapping[str, Any], config: TablesConfig) -> int:
    """Lists of frequent values at most: those of what a draft leaves blank, and of lengths."""
    return thresholds(draft) + (MOST_LENGTHS if blank(draft) and config.rules != "off" else 0)


def _require_columns(config: TablesConfig, data: Table | RawTable) -> list[str]:
    """Names of columns; those of `rules` and `workload` that are not among them are refused: names are public."""
    fields = data.draft["fields"] if hasattr(data, "draft") else data.schema.descriptor()["fields"]
    names = [str(given["name"]) for given in fields]
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
    shares, zeros = columns.group_shares, zeros_of(schema, columns)
    if not zeros:
        return Mixture(np.concatenate(shares)[:, None].astype(np.float32), np.ones(1, np.float32), columns.coarse.sizes)
    options: dict[str, Any] = {"components": _FORCED_COMPONENTS, "information": rule.information, "zeros": zeros}
    fitter = Fitter(shares, columns.n, **options, generator=generator)
    fitter.measure(columns.smooth, [Coarsening.full(columns.coarse.sizes)])
    fitter.run(_LAST, _RATE, _RATE / 2)
    fitter.run(_LAST, _RATE / 2, _RATE / 50, avoided=EXCLUDED)
    return fitter.mixture


def _declared(picks: int, mu: float, size: float, d: int) -> Said:
    if picks:
        return Fact.MEASURED_MARGINALS(count=picks)
    wanted = LEAST_SIGNAL * d
    if mu * size >= wanted or d < 2:
        return Fact.INDEPENDENT(enough="")
    more = f"{wanted / (mu * size):.2g}"
    return Fact.INDEPENDENT(
        enough=f" For about {size:.0f} records of {d} columns they are worth it from about {more} times this epsilon on."
    )


def _of_table(columns: Columns) -> Said:
    table = table_of(columns.measurements, len(columns.shares))
    cells = math.prod(len(share) for share in columns.shares)
    return Fact.WHOLE_TABLE(columns=len(columns.shares), cells=cells, std=f"{np.mean(table.noise_std):.3g}")


@dataclass(frozen=True, eq=False)
class _Choices:
    """Public choices of a fit in rounds."""

    config: TablesConfig
    rounds: int
    rule: Sizes
    levels: list[Coarsening]
    generator: np.random.Generator
    dependence: Dependence | None = None

    @property
    def deep(self) -> bool:
        """Whether blocks are looked for: where as many pairs are measured as the rule says."""
        return self.rounds >= LEAST_ROUNDS and self.config.picks is None and self.config.components is None


def _levels(columns: Columns, rule: Sizes, domain: TableDomain) -> list[Coarsening]:
    """All groups, those of pairs, and those of triples, which stand last."""
    groups = (*rule.pair_groups, rule.triple_groups)
    return [Coarsening.full(columns.coarse.sizes), *(columns.coarser(most, domain) for most in groups)]


def _in_rounds(
    codes: Any, columns: Columns, schema: Schema, choices: _Choices, asked: Sequence[Measurement], budget: GaussianBudget
) -> tuple[Fitter, list[Measurement], list[Measurement], list[Said]]:
    """A mixture that was fitted to chosen marginals, with these: select marginals, measure them, fit it again.

    What was `asked` is measured already. All that is left is spent, where there are rounds.
    """
    domain, rule, levels, rounds = schema.domain, choices.rule, choices.levels, choices.rounds
    pairs, triples = [*range(1, len(rule.pair_groups) + 1), 0], [len(rule.pair_groups) + 1]
    marginals = candidates(levels, pairs, triples, target=domain.target, most_triples=MOST_TRIPLES) if rounds else []
    weights = np.array([WEIGHTS[len(m.columns)] * (3 if domain.target in m.columns else 1) for m in marginals], np.int64)
    first, picked, blocks = [*columns.smooth, *asked], list[Measurement](), list[Measurement]()

    def measure(fitter: Fitter, *, corrected: bool = False) -> None:
        known = [*columns.measurements, *asked, *picked]
        expected = [] if choices.dependence is None else choices.dependence.measurements(known)
        fitter.measure([*first, *picked], levels, corrected=corrected, prior=expected)

    def started(seeds: Seeds | None) -> Fitter:
        fitter = Fitter(
            columns.group_shares,
            columns.n,
            components=choices.config.components or rule.components,
            information=rule.information,
            zeros=zeros_of(schema, columns),
            followed=[m.marginal for m in asked],
            seeds=seeds,
            generator=choices.generator,
        )
        measure(fitter)
        fitter.run(_FIRST if seeds is None else _SEEDED, _RATE, _RATE)
        return fitter

    held = Held.of(asked, levels)
    search = Blocks.of(columns, domain, budget, held)
    kept = search.price if choices.deep else 0.0
    fitter = started(held.seeds(columns, choices.config.components or rule.components))
    picks = max(1, round((choices.config.picks or rule.picks) / max(1, rounds)))
    counts = Counts.of(codes, marginals, [columns.coarse.then(level) for level in levels])
    for i, share in enumerate(steps(growing(rounds), "rounds")):
        if kept and i == rounds - LAST_ROUNDS:
            fitter, blocks = search.run(codes, fitter, levels, started)
            levels.extend([search.parts] if blocks else [])
            kept = 0.0
        part = share * (budget.left - kept) / picks * (1 - 1e-9)
        expected = fitter.n * fitter.mixture.expected(marginals, levels)
        noise = math.sqrt(2 / math.pi) * budget.noise_std((1 - SELECTING) * part)
        scores = counts.scores(expected, weights, PENALTY * noise * np.diff(counts.starts))
        times = Counter(m.marginal.columns for m in ([] if rule.again else picked))  # together in earlier rounds
        least = min((times[m.columns] for m in marginals), default=0)
        free = np.array([i for i, m in enumerate(marginals) if times[m.columns] == least], np.int64)
        for _ in range(picks):
            if not len(free):
                break
            best = int(free[budget.select(SELECTION, scores[free], SCALE * int(weights.max()), SELECTING * part)])
            values, std = budget.sums(MEASUREMENT, counts.sums(best), (1 - SELECTING) * part)
            picked.append(Measurement(marginals[best], values.numpy().reshape(shape(marginals[best], levels)), std))
            taken = _pairs(marginals[best].columns)  # no two marginals of a round share a pair of columns
            free = np.array([i for i in free if not taken & _pairs(marginals[i].columns)], np.int64)
        measure(fitter, corrected=rule.corrected and i > 0)
        fitter.run(_EACH, _RATE, _RATE / 2)
    measure(fitter, corrected=rule.corrected)
    fitter.run(_LAST, _RATE / 2, _RATE / 50, avoided=EXCLUDED)
    return fitter, picked, blocks, search.told(blocks, domain.names)


def _of_workload(workload: Workload | None, answers: Sequence[Answer], unasked: Sequence[Question], share: float) -> list[Said]:
    """Facts of questions, for a statement."""
    found = list[Said]()
    if workload is not None and answers:
        told = tuple(f"{workload.told[i]} ({_error(a.noise_std)}, {_error(a.model_std)})" for i, a in enumerate(answers))
        found.append(Fact.WORKLOAD(share=f"{share:.0%}", questions=told))
    return found + ([Fact.NOT_ASKED(questions=tuple(map(str, unasked)))] if unasked else [])


def _error(std: float | None) -> str:
    return "unknown" if std is None else f"{std:.3g}"


def with_rare(mixture: Mixture, columns: Columns, domain: TableDomain) -> Mixture:
    """The mixture with the released shares of rare categories and gaps: marginals of several columns pull these down."""
    for c, shares in enumerate(columns.group_shares):
        rare, missing = shares < _RARE, domain.missing[c]
        if domain.ordered[c]:
            rare &= np.arange(len(shares)) == (-1 if missing is None else columns.coarse.groups[c][missing])
        if rare.any() and not rare.all():
            mixture = mixture.with_shares(c, np.flatnonzero(rare), shares[rare])
    return mixture


def growing(rounds: int) -> list[float]:
    """Share of what is left of mu^2 that each round spends, the last one twice as much as the first."""
    growth = GROWTH ** np.linspace(0.0, 1.0, rounds)
    return (growth / growth[::-1].cumsum()[::-1]).tolist()


def _pairs(columns: Sequence[int]) -> set[tuple[int, ...]]:
    return set(combinations(columns, 2))
