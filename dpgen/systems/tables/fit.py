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

from dpgen.facts import Fact, Said
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum, totals
from dpgen.privacy.noise import PublicRandomness
from dpgen.progress import steps
from dpgen.schema import Schema
from dpgen.statement import PrivacyStatement
from dpgen.systems.tables.discovery import Discovery, row_count, thresholds
from dpgen.systems.tables.marginals import (
    SCALE,
    Coarsening,
    Columns,
    Counts,
    Integers,
    Marginal,
    Measurement,
    candidates,
    release_columns,
    shape,
    wide_bins,
)
from dpgen.systems.tables.mixture import EXCLUDED, Fitter, Mixture, zeros_of
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.plan import LEAST_SIGNAL, Sizes, TablesConfig, TablesPlan, sizes

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
"""Of it where most has been bought before: what pairs columns with the target."""
SELECTING = 0.1
"""Share of mu^2 of a round that selects; the rest measures."""
GROWTH = 2.0
"""Of mu^2 of a pick from the first round to the last."""
PENALTY = 0.2
"""Share of the expected noise of a marginal that is taken off its score."""
WEIGHTS = {2: 2, 3: 1}
"""Of scores of pairs and triples; three times as much with the target."""
MOST_TRIPLES = 1_000

_FORCED_COMPONENTS = 64  # where constraints alone tie columns
_RATE, _FIRST, _EACH, _LAST = 0.1, 60, 80, 300  # steps of the fit at first, after each round and at the end


def fit(data: Table | RawTable, *, plan: TablesPlan, config: TablesConfig, curator: Curator, runtime: Runtime) -> TablesModel:
    """Release a model of a mixed table.

    ValueError is raised for a budget too small for any noise, `BudgetExceeded` where the ledger allows less than the plan.
    """
    assert plan.budget is not None
    raw = cast("RawTable", data) if hasattr(data, "draft") else None
    budget = GaussianBudget(curator, plan.budget, WHOLE, thresholds=0 if raw is None else thresholds(raw.draft))
    whole, mu = budget.left, budget.mu
    count = record_count(cast("Table", data).codes) if raw is None else row_count(len(raw.rows))
    noisy, std = budget.sums(COUNT, count, COUNTING * whole)
    size = max(1.0, float(noisy))
    found = None if raw is None else Discovery(raw.rows, raw.draft, budget, size).run()
    table: Any = data if raw is None or found is None else raw.coded(Schema.from_descriptor(_priced(found.descriptor, plan)))
    domain = table.schema.domain
    d = len(domain.sizes)
    codes = table.codes.numpy() if isinstance(table.codes, torch.Tensor) else table.codes
    known = {} if found is None else {domain.names.index(name): counts for name, counts in found.counts.items()}
    alone = config.method == "independent" or d < 2 or (config.method == "auto" and mu * size < LEAST_SIGNAL * d)
    bought = (1 - COUNTING) * whole - budget.left
    share = budget.left if alone else max(COLUMNS * whole - bought, LEAST_COLUMNS * whole) if known else COLUMNS * whole
    columns = release_columns(codes, domain, budget, share, (float(noisy), std), alone=alone, known=known)
    generator = np.random.default_rng(PublicRandomness(runtime.seed).spawn("logits").seed)
    if alone:
        measurements, levels = list(columns.measurements), [Coarsening.full(columns.coarse.sizes)]
        mixture = _alone(columns, table.schema, sizes(mu, columns.n), generator)
    else:
        mixture, measurements, levels = Rounds.of(columns, table.schema, config, mu, generator).run(codes, budget)
    declared = _declared(len(measurements) - len(columns.measurements), mu, size, d)
    fell_back = alone and config.method == "auto" and d > 1
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=(*FACTS, declared) if fell_back else FACTS)
    if found is not None:
        statement = statement.extended(found.facts)
    wide = wide_bins(table.schema, columns.shares)
    statement = statement.extended([Fact.WIDE_BINS(columns=wide)] if wide else [])
    model = TablesModel(
        mixture,
        columns,
        schema=table.schema,
        measurements=measurements,
        levels=levels,
        statement=statement,
        declared=(declared.sentence,),
    )
    if found is not None:
        model.form = table.form
    return model


def _priced(descriptor: Mapping[str, Any], plan: TablesPlan) -> dict[str, Any]:
    """The schema with what its domains cost: all of this budget, and what was paid for others before."""
    earlier = descriptor.get("dpgen:privacy", {})
    both = {name: earlier.get(name, 0.0) + plan.paid[name] for name in ("epsilon", "delta")}
    return {**descriptor, "dpgen:privacy": plan.paid | both}


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
        enough=f" For {size:.0f} records of {d} columns they are worth their noise from about {more} times this epsilon on."
    )


@dataclass(frozen=True, eq=False)
class Rounds:
    """Rounds of selecting marginals, measuring them, and fitting the mixture again."""

    columns: Columns
    levels: list[Coarsening]
    marginals: list[Marginal]
    weights: Integers
    fitter: Fitter
    rounds: int
    picks: int  # of a round
    again: bool
    corrected: bool

    @classmethod
    def of(cls, columns: Columns, schema: Schema, config: TablesConfig, mu: float, generator: np.random.Generator) -> Rounds:
        rule, shares, domain = sizes(mu, columns.n), columns.group_shares, schema.domain
        missing = [None if code is None else size - 1 for code, size in zip(domain.missing, columns.coarse.sizes)]
        groups = (*rule.pair_groups, rule.triple_groups)
        coarser = [Coarsening.of(shares, most, ordered=domain.ordered, missing=missing) for most in groups]
        levels = [Coarsening.full(columns.coarse.sizes), *coarser]
        pairs, triples = [*range(1, len(levels) - 1), 0], [len(levels) - 1]
        found = candidates(levels, pairs, triples, target=domain.target, most_triples=MOST_TRIPLES)
        weights = [WEIGHTS[len(m.columns)] * (3 if domain.target in m.columns else 1) for m in found]
        fitter = Fitter(
            shares,
            columns.n,
            components=config.components or rule.components,
            information=rule.information,
            zeros=zeros_of(schema, columns),
            generator=generator,
        )
        picks = max(1, round((config.picks or rule.picks) / config.rounds))
        weighted = np.array(weights, np.int64)
        return cls(columns, levels, found, weighted, fitter, config.rounds, picks, rule.again, rule.corrected)

    def run(self, codes: Any, budget: GaussianBudget) -> tuple[Mixture, list[Measurement], list[Coarsening]]:
        """The mixture with what it was fitted to; spends all that is left."""
        counts = Counts.of(codes, self.marginals, [self.columns.coarse.then(level) for level in self.levels])
        picked, fitter = list[Measurement](), self.fitter
        fitter.measure(self.columns.smooth, self.levels)
        fitter.run(_FIRST, _RATE, _RATE)
        growth = GROWTH ** np.linspace(0.0, 1.0, self.rounds)
        rest = growth[::-1].cumsum()[::-1]
        for i, share in enumerate(steps((growth / rest).tolist(), "rounds")):
            part = share * budget.left / self.picks * (1 - 1e-9)
            picked += self._round(counts, budget, part, [] if self.again else picked)
            fitter.measure([*self.columns.smooth, *picked], self.levels, corrected=self.corrected and i > 0)
            fitter.run(_EACH, _RATE, _RATE / 2)
        fitter.measure([*self.columns.smooth, *picked], self.levels, corrected=self.corrected)
        fitter.run(_LAST, _RATE / 2, _RATE / 50, avoided=EXCLUDED)
        return fitter.mixture, [*self.columns.measurements, *picked], self.levels

    def _round(self, counts: Counts, budget: GaussianBudget, part: float, before: Sequence[Measurement]) -> list[Measurement]:
        """Marginals of one round, `part` of 1 / s^2 each, no two of which share a pair of columns.

        They are of columns that were measured together least often `before`.
        """
        expected = self.fitter.n * self.fitter.mixture.expected(self.marginals, self.levels)
        noise = math.sqrt(2 / math.pi) * budget.noise_std((1 - SELECTING) * part)
        scores = counts.scores(expected, self.weights, PENALTY * noise * np.diff(counts.starts))
        times = Counter(m.marginal.columns for m in before)
        least = min((times[m.columns] for m in self.marginals), default=0)
        free = np.array([i for i, m in enumerate(self.marginals) if times[m.columns] == least], np.int64)
        chosen = list[Measurement]()
        for _ in range(self.picks):
            if not len(free):
                break
            sensitivity = SCALE * int(self.weights.max())
            best = int(free[budget.select(SELECTION, scores[free], sensitivity, SELECTING * part)])
            values, std = budget.sums(MEASUREMENT, counts.sums(best), (1 - SELECTING) * part)
            marginal = self.marginals[best]
            chosen.append(Measurement(marginal, values.numpy().reshape(shape(marginal, self.levels)), std))
            taken = _pairs(marginal.columns)
            free = np.array([i for i in free if not taken & _pairs(self.marginals[i].columns)], np.int64)
        return chosen


def _pairs(columns: Sequence[int]) -> set[tuple[int, ...]]:
    return set(combinations(columns, 2))
