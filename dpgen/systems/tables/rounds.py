"""Rounds of a fit: select the marginals that the model is most wrong about, measure them, fit it again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen.progress import steps
from dpgen.systems.tables.blocks import Search as Blocks
from dpgen.systems.tables.marginals import (
    SCALE,
    Coarsening,
    Columns,
    Counts,
    Integers,
    Marginal,
    Measurement,
    Reals,
    candidates,
    shape,
)
from dpgen.systems.tables.mixture import EXCLUDED, Fitter, Mixture, zeros_of
from dpgen.systems.tables.seeds import Held, Seeds

if TYPE_CHECKING:
    from dpgen.facts import Said
    from dpgen.privacy.curator import GaussianBudget
    from dpgen.privacy.exact_sums import BoundedSum
    from dpgen.schema import Schema, TableDomain
    from dpgen.systems.tables.plan import Sizes, TablesConfig
    from dpgen.systems.tables.prior import Dependence

SELECTION, MEASUREMENT = "choice of a marginal", "marginal of several columns"

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
RATE, FIRST, _EACH, LAST = 0.1, 60, 80, 300  # steps of the fit at first, after each round and at the end
_SEEDED = 300  # where products were put into cells of blocks


def growing(rounds: int) -> list[float]:
    """Share of what is left of mu^2 that each round spends, the last one twice as much as the first."""
    growth = GROWTH ** np.linspace(0.0, 1.0, rounds)
    return (growth / growth[::-1].cumsum()[::-1]).tolist()


@dataclass(frozen=True, eq=False)
class Round:
    """One round: so many candidates are selected by their scores, each is measured, each pick for the same part of mu^2.

    `notes` are those of the selection and of the measurement. A candidate's sums have the sensitivity that they state.
    """

    budget: GaussianBudget
    part: float
    picks: int
    notes: tuple[str, str] = (SELECTION, MEASUREMENT)

    @property
    def penalty(self) -> float:
        """Score that each cell of a candidate loses: :data:`PENALTY` of the expected size of its noise."""
        return PENALTY * math.sqrt(2 / math.pi) * self.budget.noise_std((1 - SELECTING) * self.part)

    def run(
        self,
        scores: Integers,
        free: Integers,
        *,
        sensitivity: int,
        sums: Callable[[int], BoundedSum],
        beside: Callable[[int, int], bool],
    ) -> Iterator[tuple[int, Reals, float]]:
        """The number of each selected candidate, with its noisy sums and their noise std.

        Candidates that are `free` can be selected, after a first one those that may be measured `beside` it in this round.
        One record moves a score by `sensitivity` at most.
        """
        select, measure = self.notes
        for _ in range(self.picks):
            if not len(free):
                return
            best = int(free[self.budget.select(select, scores[free], sensitivity, SELECTING * self.part)])
            values, std = self.budget.sums(measure, sums(best), (1 - SELECTING) * self.part)
            yield best, values.numpy(), std
            free = np.array([i for i in free if beside(best, int(i))], np.int64)


def levels_of(columns: Columns, rule: Sizes, domain: TableDomain) -> list[Coarsening]:
    """All groups, those of pairs, and those of triples, which stand last."""
    groups = (*rule.pair_groups, rule.triple_groups)
    return [Coarsening.full(columns.coarse.sizes), *(columns.coarser(most, domain) for most in groups)]


@dataclass(frozen=True, eq=False)
class Rounds:
    """A fit of a mixture to marginals of coded records; the codes are PRIVATE.

    `count` is the number of rounds. What was `asked` is measured already. All that is left of the budget is spent, where there
    are rounds. `picked` and `blocks` are what was measured, `told` facts of it.
    """

    codes: Any
    columns: Columns
    schema: Schema
    config: TablesConfig
    count: int
    rule: Sizes
    levels: list[Coarsening]
    generator: np.random.Generator
    budget: GaussianBudget
    asked: Sequence[Measurement] = ()
    dependence: Dependence | None = None
    picked: list[Measurement] = field(default_factory=list)
    blocks: list[Measurement] = field(default_factory=list)
    told: list[Said] = field(default_factory=list)

    @property
    def deep(self) -> bool:
        """Whether blocks are looked for: where as many pairs are measured as the rule says."""
        return self.count >= LEAST_ROUNDS and self.config.picks is None and self.config.components is None

    @property
    def components(self) -> int:
        """Products of the mixture."""
        return self.config.components or self.rule.components

    def run(self) -> Fitter:
        """The fitter of the mixture, after all rounds."""
        held = Held.of(self.asked, self.levels)
        search = Blocks.of(self.columns, self.schema.domain, self.budget, held)
        kept = search.price if self.deep else 0.0
        marginals = self._candidates()
        fitter = self._started(held.seeds(self.columns, self.components))
        counts = Counts.of(self.codes, marginals, [self.columns.coarse.then(level) for level in self.levels])
        for i, share in enumerate(steps(growing(self.count), "rounds")):
            if kept and i == self.count - LAST_ROUNDS:
                fitter = self._with_blocks(search, fitter)
                kept = 0.0
            self._round(share * (self.budget.left - kept), fitter, marginals, counts)
            self._measure(fitter, corrected=self.rule.corrected and i > 0)
            fitter.run(_EACH, RATE, RATE / 2)
        self._measure(fitter, corrected=self.rule.corrected)
        fitter.run(LAST, RATE / 2, RATE / 50, avoided=EXCLUDED)
        self.told.extend(search.told(self.blocks, self.schema.domain.names))
        return fitter

    def _candidates(self) -> list[Marginal]:
        last, target = len(self.rule.pair_groups), self.schema.domain.target
        pairs, triples = [*range(1, last + 1), 0], [last + 1]
        return candidates(self.levels, pairs, triples, target=target, most_triples=MOST_TRIPLES) if self.count else []

    def _weights(self, marginals: Sequence[Marginal]) -> Integers:
        target = self.schema.domain.target
        return np.array([WEIGHTS[len(m.columns)] * (3 if target in m.columns else 1) for m in marginals], np.int64)

    def _started(self, seeds: Seeds | None) -> Fitter:
        """A fitter of all that is measured, after its first steps."""
        fitter = Fitter(
            self.columns.group_shares,
            self.columns.n,
            components=self.components,
            information=self.rule.information,
            zeros=zeros_of(self.schema, self.columns),
            followed=[m.marginal for m in self.asked],
            seeds=seeds,
            generator=self.generator,
        )
        self._measure(fitter)
        fitter.run(FIRST if seeds is None else _SEEDED, RATE, RATE)
        return fitter

    def _measure(self, fitter: Fitter, *, corrected: bool = False) -> None:
        """Tell the fitter all that is measured, and what a prior expects of the rest."""
        known = [*self.columns.measurements, *self.asked, *self.picked]
        expected = [] if self.dependence is None else self.dependence.measurements(known)
        told = [*self.columns.smooth, *self.asked, *self.picked]
        fitter.measure(told, self.levels, corrected=corrected, prior=expected)

    def _with_blocks(self, search: Blocks, fitter: Fitter) -> Fitter:
        """The fitter with blocks of columns, where some are found."""
        fitter, found = search.run(self.codes, fitter, self.levels, self._started)
        self.blocks.extend(found)
        self.levels.extend([search.parts] if found else [])
        return fitter

    def _round(self, share: float, fitter: Fitter, marginals: Sequence[Marginal], counts: Counts) -> None:
        """Measure the marginals that the mixture is most wrong about, for a share of mu^2.

        No two of a round have a pair of columns together. Where the rule says so, columns are not measured together again
        before all others were.
        """
        picks = max(1, round((self.config.picks or self.rule.picks) / max(1, self.count)))
        now = Round(self.budget, share / picks * (1 - 1e-9), picks)
        weights = self._weights(marginals)
        expected = fitter.n * fitter.mixture.expected(marginals, self.levels)
        scores = counts.scores(expected, weights, now.penalty * np.diff(counts.starts))
        times = Counter(m.marginal.columns for m in ([] if self.rule.again else self.picked))  # together in earlier rounds
        least = min((times[m.columns] for m in marginals), default=0)
        free = np.array([i for i, m in enumerate(marginals) if times[m.columns] == least], np.int64)
        pairs = [_pairs(m.columns) for m in marginals]
        for best, values, std in now.run(
            scores,
            free,
            sensitivity=SCALE * int(weights.max(initial=1)),
            sums=counts.sums,
            beside=lambda one, other: not pairs[one] & pairs[other],
        ):
            self.picked.append(Measurement(marginals[best], values.reshape(shape(marginals[best], self.levels)), std))


def with_rare(mixture: Mixture, columns: Columns, domain: TableDomain) -> Mixture:
    """The mixture with the released shares of rare categories and gaps: marginals of several columns pull these down."""
    for c, shares in enumerate(columns.group_shares):
        rare, missing = shares < _RARE, domain.missing[c]
        if domain.ordered[c]:
            rare &= np.arange(len(shares)) == (-1 if missing is None else columns.coarse.groups[c][missing])
        if rare.any() and not rare.all():
            mixture = mixture.with_shares(c, np.flatnonzero(rare), shares[rare])
    return mixture


def _pairs(columns: Sequence[int]) -> set[tuple[int, ...]]:
    return set(combinations(columns, 2))
