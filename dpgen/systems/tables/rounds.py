r"""Rounds of a fit: select the marginals that the model is most wrong about, measure them, fit it again; blocks of columns.

Blocks are sets of three to seven columns that depend on each other in a way that fewer of them do not show. Codes of each
column are joined to halves of about equal released shares, with signs :math:`s = \pm 1`. Of each set S of columns in a public
list the parity :math:`x_S = \sum_{\text{rows}} \prod_{c \in S} s_c` is counted exactly, by bits. The model that was fitted so
far expects :math:`n e_S`, so what pairs and triples explain is in it. One set is chosen by :math:`|x_S - n e_S|`, and the table
of its columns in parts is measured: halves, or all groups of columns that have four at most, if cells are few. It is a block
where the parity in this table is away from what the model expects, and the table clearly from the law of greatest entropy with
all its tables of one column less, which has what fewer columns show (`stands_out`). A row moves each parity by 1, and is in one
cell of the table. Products of the mixture are put into cells of the blocks (`fitter.Seeds`).

Source: parities as orthogonal parts of a table, Barak, Chaudhuri, Dwork, Kale, McSherry, Talwar 2007.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from dpgen.facts import Fact, Said
from dpgen.privacy.exact_sums import totals
from dpgen.privacy.selection import bounded_range
from dpgen.progress import steps
from dpgen.systems.simplex_projection import project_to_simplex
from dpgen.systems.tables.fitter import EXCLUDED, Fitter, Held, Seeds, zeros_of
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
from dpgen.systems.tables.mixture import Mixture
from dpgen.systems.tables.whole import of_margins

if TYPE_CHECKING:
    from dpgen.privacy.curator import GaussianBudget
    from dpgen.privacy.exact_sums import BoundedSum
    from dpgen.schema import Schema, TableDomain
    from dpgen.systems.tables.plan import Sizes, TablesConfig
    from dpgen.systems.tables.prior import Dependence

Words = npt.NDArray[np.uint64]

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

BLOCK_CHOICE, BLOCK_TABLE = "choice of a block of columns", "table of a block of columns"
OF_CHOICE, OF_TABLE = 0.003, 0.007
"""Shares of mu^2 for one choice, and for the table of what is chosen."""
MOST_BLOCKS = 3
FEWEST, MOST = 3, 7
"""Columns of a block."""
MOST_COLUMNS = 8
"""Columns of all blocks together, in halves: 2 to this are cells, each with products of its own."""

_MOST_SETS, _MOST_WORDS = 130_000, 3e8  # sets, and words of 64 rows that their parities are counted in
_LEAST_HALF = 0.1  # share of the smaller half of a column, below which no parity of it is far from that of the others
_SHARE = 0.1  # of all rows, that the parity of a block is away from what the model expects
_UNLIKELY = 21.0  # - log of the chance that noise makes a block, 1e-9
_REACHED = 0.5  # of all rows: where a parity must miss the model's by more to be found, nothing is looked for
_APART = 4  # columns that blocks differ in, at least
_WHOLE = 4  # groups of a column, which are not joined to halves in the table of a block if all its cells are few
_SURE = 5.0  # log odds of the choice
_ROWS = 2**18  # that are counted together

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


# -- blocks of columns -------------------------------------------------------------------------------------------------


def halves(columns: Columns, domain: TableDomain) -> Coarsening:
    """Two groups of about equal released shares of the model's groups of each column; gaps go to the smaller one."""
    found = []
    for c, shares in enumerate(columns.group_shares):
        code, group = domain.missing[c], np.zeros(len(shares), np.int64)
        gap = None if code is None else int(columns.coarse.groups[c][code])
        live = np.array([i for i in range(len(shares)) if i != gap])
        weights = np.zeros(2)
        if domain.ordered[c]:
            cut = 1 + int(np.argmin(np.abs(shares[live].cumsum() - shares[live].sum() / 2)[:-1])) if len(live) > 1 else 1
            group[live[cut:]] = 1
            weights += shares[live[:cut]].sum(), shares[live[cut:]].sum()
        else:
            for i in live[np.argsort(-shares[live], kind="stable")]:
                group[i] = int(weights.argmin())
                weights[group[i]] += shares[i]
        if gap is not None:
            group[gap] = int(weights.argmin())
        found.append(group)
    return Coarsening(tuple(found), tuple(int(group.max()) + 1 for group in found))


@dataclass(frozen=True)
class Sets:
    """The public list of sets of columns: all of some sizes, and of greater sizes those with the first column.

    `columns` are those that sets are of, `deep` the most columns of a set that begins with each of them.
    """

    columns: tuple[int, ...]
    deep: tuple[int, ...]

    @classmethod
    def of(cls, columns: Columns, split: Coarsening, target: int | None, but: Container[int] = ()) -> Sets:
        """Sets of columns whose halves are both frequent, as many as can be counted soon; the target comes first."""
        least = [np.bincount(group, share, 2).min() for group, share in zip(split.groups, columns.group_shares)]
        frequent = enumerate(zip(split.sizes, least))
        there = [c for c, (size, half) in frequent if size == 2 and half >= _LEAST_HALF and c not in but]
        there = sorted(there, key=lambda c: c != target)
        p, left = len(there), min(_MOST_SETS, _MOST_WORDS * 64 / max(columns.n, 64.0))

        def longest(most: int, left: float, sets: Callable[[int], int]) -> tuple[int, float]:
            while most < MOST and sets(most + 1) <= left:
                most += 1
                left -= sets(most)
            return most, left

        most, left = longest(FEWEST - 1, left, lambda size: math.comb(p, size))
        first = longest(most, left, lambda size: math.comb(p - 1, size - 1))[0] if there[:1] == [target] else most
        return cls(tuple(there), (first, *(most,) * (p - 1))[:p])

    @cached_property
    def _stems(self) -> list[tuple[int, ...]]:
        """All but the last column of sets, by place, each after what it begins with."""

        def longer(stem: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            if len(stem) >= FEWEST - 1:
                yield stem
            if len(stem) + 1 < self.deep[stem[0]]:
                for c in range(stem[-1] + 1, len(self.columns) - 1):
                    yield from longer((*stem, c))

        return [stem for c in range(len(self.columns) - FEWEST + 1) for stem in longer((c,)) if self.deep[c] >= FEWEST]

    @cached_property
    def _ends(self) -> Integers:
        return np.cumsum([len(self.columns) - 1 - stem[-1] for stem in self._stems], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._stems else 0

    def __getitem__(self, i: int) -> tuple[int, ...]:
        at = int(np.searchsorted(self._ends, i, side="right"))
        stem = self._stems[at]
        last = stem[-1] + 1 + i - (int(self._ends[at - 1]) if at else 0)
        return tuple(sorted(self.columns[c] for c in (*stem, last)))

    def sums(self, values: Any, join: Callable[..., Any], total: Callable[..., Any]) -> Any:
        """`total` of each set, of what `join` makes of values (columns, m) of its columns but the last, and of the last."""
        stack, found = [None] * MOST, []
        for stem in self._stems:
            stack[1] = values[stem[0]]
            stack[len(stem)] = join(stack[len(stem) - 1], values[stem[-1]])
            found.append(total(stack[len(stem)], values[stem[-1] + 1 :]))
        return np.concatenate(found) if found else np.empty(0)

    def parities(self, codes: Any, split: Coarsening) -> Integers:
        """Sums (sets,) over rows of codes (n, d) of products of signs, PRIVATE; `split` are halves of codes."""
        groups = [split.groups[c].astype(np.uint8) for c in self.columns]

        def counted(batches: Iterable[Integers]) -> torch.Tensor:
            found = np.zeros(len(self), np.int64)
            for batch in batches:
                for first in range(0, len(batch), _ROWS):
                    rows = batch[first : first + _ROWS]
                    bits = np.zeros((len(groups), -(-len(rows) // 64) * 64), np.uint8)
                    for own, group, c in zip(bits, groups, self.columns):
                        own[: len(rows)] = group[rows[:, c]]
                    words = np.packbits(bits, axis=1).view(np.uint64)
                    found += len(rows) - 2 * self.sums(words, np.bitwise_xor, _ones)
            return torch.from_numpy(found)

        return totals(codes, counted).numpy()

    def expected(self, mixture: Mixture, split: Coarsening) -> Reals:
        """Mean parities (sets,) of a row of a mixture; `split` are halves of its groups."""
        signs = np.stack([(1.0 - 2.0 * split.groups[c]) @ mixture.block(c) for c in self.columns])
        signs = signs.astype(np.float64)
        return np.asarray(self.sums(signs, np.multiply, lambda stem, last: last @ (stem * mixture.weights)))

    def apart(self, blocks: Sequence[Measurement], parts: Coarsening, held: int = 1) -> Integers:
        """Numbers of the sets that differ from each block in four columns or more, and have few cells with all that is held.

        Others may be a block together with a pair or a triple that depends on it, or on its own.
        """
        together = {c for m in blocks for c in m.marginal.columns}
        fresh = np.array([c not in together for c in self.columns], np.int64)
        cells = held * math.prod(parts.sizes[c] for c in together)
        far = cells * 2.0 ** self.sums(fresh, np.add, np.add) <= 2**MOST_COLUMNS
        for m in blocks:
            other = np.array([1 - 2 * (c in m.marginal.columns) for c in self.columns])
            far &= len(m.marginal.columns) + self.sums(other, np.add, np.add) >= _APART
        return np.flatnonzero(far)


def _ones(stem: Words, last: Words) -> Integers:
    return np.bitwise_count(stem ^ last).sum(1, dtype=np.int64)


def parity_scores(parities: Integers, expected: Reals) -> Integers:
    """Scores (sets,) of a choice, in units of 1 / 1024: :math:`|x - e|`, rounded before x is seen.

    A row moves each parity x by 1, hence a score by at most 1024, twice that if it is replaced.
    """
    return np.abs(SCALE * parities - np.rint(SCALE * expected).astype(np.int64))


def price_of_block(budget: GaussianBudget, n: float, sets: Sets) -> float:
    """Share of 1 / s^2 for one choice with its table; 0: public facts say that nothing would be found."""
    if not len(sets):
        return 0.0
    lost = 2 * (math.log(len(sets)) + _SURE) / bounded_range(1 / budget.noise_std(OF_CHOICE * budget.whole))
    wanted = lost + (2 * _UNLIKELY * 2 ** (FEWEST + 1)) ** 0.5 * budget.noise_std(OF_TABLE * budget.whole)
    return (OF_CHOICE + OF_TABLE) * budget.whole if wanted <= _REACHED * n else 0.0


def stands_out(table: Reals, std: float, n: float) -> bool:
    r"""Whether noisy counts have an interaction of all columns, of a tenth of the rows or more, beyond noise and chance.

    It is what they have beyond the law of greatest entropy with all tables of one column less. Of z in m dimensions, each of
    variance v at most, :math:`|z|^2 > v (m + 2 \sqrt{m t} + 2 t)` has a chance below :math:`e^{-t}`.

    Source: Laurent, Massart 2000.
    """
    law = project_to_simplex(table.ravel() / n).reshape(table.shape)
    left = table - n * of_margins(law, np.ones(law.shape, bool), law.ndim - 1)
    for axis in range(left.ndim):
        left = left - left.mean(axis, keepdims=True)
    square, m = float((left**2).sum()), math.prod(size - 1 for size in table.shape)
    clear = (std**2 + n * float(law.max())) * (m + 2 * math.sqrt(m * _UNLIKELY) + 2 * _UNLIKELY)
    return square > max(clear, (_SHARE * n) ** 2 / table.size)


@dataclass
class Blocks:
    """The search for blocks of a table: what is kept for it of 1 / s^2 (0: it is not made), and groups of columns of blocks."""

    columns: Columns
    split: Coarsening
    sets: Sets
    price: float
    budget: GaussianBudget
    parts: Coarsening
    held: Held
    choices: int = 0

    @classmethod
    def of(cls, columns: Columns, domain: TableDomain, budget: GaussianBudget, held: Held) -> Blocks:
        """The search among released columns, those of questions that are `held` left out."""
        split = halves(columns, domain)
        sets = Sets.of(columns, split, domain.target, held.busy)
        room = held.cells * 2**FEWEST <= 2**MOST_COLUMNS
        return cls(
            columns, split, sets, price_of_block(budget, columns.n, sets) if room else 0.0, budget, held.over(split), held
        )

    def run(
        self, codes: Any, fitter: Fitter, levels: Sequence[Coarsening], again: Callable[[Seeds], Fitter]
    ) -> tuple[Fitter, list[Measurement]]:
        """Blocks one after the other, each missed by the model that has the ones before; their `parts` follow `levels`.

        `again` fits a model anew, with products in cells.
        """
        blocks = list[Measurement]()
        parities = self.sets.parities(codes, self.columns.coarse.then(self.split)) if self.price else np.zeros(0, np.int64)
        while len(blocks) < MOST_BLOCKS and self.price and self.budget.left > self.price * (1 + bool(blocks)):
            if not len(self._apart(blocks)):
                break
            self.choices += 1
            one = self._next(codes, parities, fitter, len(levels), blocks)
            if one is None:
                break
            blocks.append(one)
            shares, products = self.columns.group_shares, len(fitter.mixture.weights)
            fitter = again(Seeds.of(blocks, shares, self.parts, fitter.n, products, self.held.tables))
        return fitter, blocks

    def told(self, blocks: Sequence[Measurement], names: Sequence[str]) -> list[Said]:
        """Facts of the search for a statement, where it was made."""
        found = [" x ".join(names[c] for c in m.marginal.columns) for m in blocks]
        share = f"{self.choices * self.price / self.budget.whole:.1%}"
        return [Fact.BLOCKS(share=share, found="; ".join(found) or "there is none")] if self.choices else []

    def _apart(self, blocks: Sequence[Measurement]) -> Integers:
        return self.sets.apart(blocks, self.parts, self.held.cells)

    def _next(
        self, codes: Any, parities: Integers, fitter: Fitter, level: int, blocks: Sequence[Measurement]
    ) -> Measurement | None:
        """The table of a set whose parity neither the model nor fewer of its columns tell, apart from earlier ones, if any."""
        apart, expected = self._apart(blocks), fitter.n * self.sets.expected(fitter.mixture, self.split)
        found = parity_scores(parities, expected)
        i = int(apart[self.budget.select(BLOCK_CHOICE, found[apart], SCALE, OF_CHOICE * self.budget.whole)])
        one, share = self.sets[i], OF_TABLE * self.budget.whole
        self.parts = self._finer(one, blocks, fitter.n / self.budget.noise_std(share))
        counts = Counts.of(codes, [Marginal(one, 0)], [self.columns.coarse.then(self.parts)])
        values, std = self.budget.sums(BLOCK_TABLE, counts.sums(0), share * (1 - 1e-9))
        table = values.numpy().reshape([self.parts.sizes[c] for c in one])
        missed = abs(self._parity(table, one) - expected[i]) > _SHARE * fitter.n
        return Measurement(Marginal(one, level), table, std) if missed and stands_out(table, std, fitter.n) else None

    def _finer(self, one: Sequence[int], blocks: Sequence[Measurement], most: float) -> Coarsening:
        """Groups of columns with those of a new set: of its columns with few groups all of these, if cells are few."""
        busy = {c for m in blocks for c in m.marginal.columns}
        groups, sizes = list(self.parts.groups), list(self.parts.sizes)
        for c in one:
            own = self.columns.coarse.sizes[c]
            if c not in busy and own <= _WHOLE:
                groups[c], sizes[c] = np.arange(own), own
        all_cells = self.held.cells * math.prod(sizes[c] for c in {*busy, *one})
        few = all_cells <= 2**MOST_COLUMNS and math.prod(sizes[c] for c in one) <= most
        return Coarsening(tuple(groups), tuple(sizes)) if few else self.parts

    def _parity(self, table: Reals, columns: Sequence[int]) -> float:
        """Parity of the halves of these columns, in a table of their parts."""
        for c in columns:
            signs = np.empty(self.parts.sizes[c])
            signs[self.parts.groups[c]] = 1 - 2 * self.split.groups[c]
            table = np.tensordot(signs, table, (0, 0))
        return float(table)
