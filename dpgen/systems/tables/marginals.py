r"""Marginals of coded tables: those of columns, released first, coarsenings, exact counts of candidates, and their scores.

A marginal counts the records in the cells of some columns, each column in groups of its codes. One record is in one
cell, so it moves a marginal by 1 (L2), a replaced one by :math:`\sqrt 2`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from dpgen.columns.fields import DensityField
from dpgen.privacy.exact_sums import BoundedSum, totals
from dpgen.systems.simplex_projection import project_to_simplex

if TYPE_CHECKING:
    from dpgen.privacy.curator import GaussianBudget
    from dpgen.schema import Schema, TableDomain

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Reals = npt.NDArray[np.float64]

SCALE = 1024
"""Scores of selections are whole numbers of 1 / 1024 records."""

_ROWS = 2**16  # that are counted together: cells of this many stay in the cache


@dataclass(frozen=True, eq=False)
class Coarsening:
    """Groups of the codes of every column: the group (size,) of each code, and how many groups there are."""

    groups: tuple[Integers, ...]
    sizes: tuple[int, ...]

    @classmethod
    def full(cls, sizes: Sequence[int]) -> Coarsening:
        """Every code is a group."""
        return cls(tuple(np.arange(size) for size in sizes), tuple(sizes))

    @classmethod
    def of(
        cls,
        shares: Sequence[Reals],
        most: int,
        *,
        ordered: Sequence[bool],
        missing: Sequence[int | None],
        kinds: Mapping[int, Integers] | None = None,
    ) -> Coarsening:
        """At most `most` groups of each column, from released shares of its codes.

        Neighbouring codes of about equal mass where the codes are ordered, else the most frequent codes and the rest together,
        by `kinds` of the codes of some columns; missing values are a group of their own.
        """
        about = enumerate(zip(shares, ordered, missing))
        groups = [_grouped(p, most, in_order, gap, (kinds or {}).get(c)) for c, (p, in_order, gap) in about]
        return cls(tuple(groups), tuple(int(group.max()) + 1 for group in groups))

    def apply(self, codes: Integers) -> Integers:
        """Groups (d, n) of codes (n, d)."""
        return np.stack([group[codes[:, c]] for c, group in enumerate(self.groups)])

    def replaced(self, others: Mapping[int, tuple[Integers, int]]) -> Coarsening:
        """The coarsening with other groups, and their number, of some columns."""
        both = [others.get(c, own) for c, own in enumerate(zip(self.groups, self.sizes))]
        return Coarsening(tuple(groups for groups, _ in both), tuple(size for _, size in both))

    def then(self, coarser: Coarsening) -> Coarsening:
        """Groups of these groups, of the same codes."""
        return Coarsening(tuple(own[group] for group, own in zip(self.groups, coarser.groups)), coarser.sizes)

    def matrix(self) -> npt.NDArray[np.float32]:
        """The sums over groups of stacked columns, (sum of group sizes, sum of sizes), 0 or 1."""
        result = np.zeros((sum(self.sizes), sum(len(group) for group in self.groups)), np.float32)
        row = column = 0
        for group, size in zip(self.groups, self.sizes):
            result[row + group, column + np.arange(len(group))] = 1.0
            row, column = row + size, column + len(group)
        return result


def _grouped(p: Reals, most: int, ordered: bool, missing: int | None, kinds: Integers | None = None) -> Integers:
    if len(p) <= most:
        return np.arange(len(p))
    live = np.array([code for code in range(len(p)) if code != missing])
    kept = max(1, most - (missing is not None))
    group = np.empty(len(p), np.int64)
    if ordered:
        middle = (p[live].cumsum() - p[live] / 2) / p[live].sum()
        group[live] = np.unique(np.minimum(middle * kept, kept - 1).astype(np.int64), return_inverse=True)[1]
    else:
        by_share = live[np.argsort(-p[live], kind="stable")]
        there = np.zeros(1, np.int64) if kinds is None else np.unique(kinds[live])
        lone = kept - min(len(there), kept)
        group[by_share[:lone]] = np.arange(lone)
        rest = by_share[lone:]
        group[rest] = lone if kinds is None else lone + np.unique(kinds[rest] % kept, return_inverse=True)[1]
    if missing is not None:
        group[missing] = group[live].max() + 1
    return group


@dataclass(frozen=True)
class Marginal:
    """Columns in increasing order, at one level of a list of coarsenings."""

    columns: tuple[int, ...]
    level: int


def candidates(
    levels: Sequence[Coarsening], pairs: Sequence[int], triples: Sequence[int], *, target: int | None, most_triples: int
) -> list[Marginal]:
    """The marginals that a fit chooses from: all pairs at the levels `pairs`, none twice, and triples at `triples`.

    Where there are more than `most_triples` triples, those with the target only; none where there are too many of these.
    """
    d, found, seen = len(levels[0].sizes), [], set[tuple[int, ...]]()
    for columns in combinations(range(d), 2):
        for level in pairs:
            sizes = tuple(levels[level].sizes[c] for c in columns)
            if (*columns, *sizes) not in seen and min(sizes) > 1:
                seen.add((*columns, *sizes))
                found.append(Marginal(columns, level))
    wanted = [Marginal(columns, level) for columns in _triples(d, target, most_triples) for level in triples]
    return found + [m for m in wanted if min(levels[m.level].sizes[c] for c in m.columns) > 1]


def _triples(d: int, target: int | None, most: int) -> list[tuple[int, ...]]:
    """All triples of d columns if there are `most` at most, else those with the target if these are so few."""
    if math.comb(d, 3) <= most:
        return list(combinations(range(d), 3))
    if target is not None and math.comb(d - 1, 2) <= most:
        return [columns for columns in combinations(range(d), 3) if target in columns]
    return []


@dataclass(frozen=True, eq=False)
class Counts:
    """Exact counts (cells,) of all candidates, PRIVATE, one after the other, and where each begins, (candidates + 1,)."""

    values: Integers
    starts: Integers

    @classmethod
    def of(cls, codes: Any, marginals: Sequence[Marginal], levels: Sequence[Coarsening]) -> Counts:
        """Counts of codes (n, d), an array or a source of arrays (`totals`), in passes over rows that stay in the cache."""
        shapes = [shape(m, levels) for m in marginals]
        starts = np.cumsum([0, *(math.prod(s) for s in shapes)])

        def counted(batches: Iterable[Integers]) -> torch.Tensor:
            values = np.zeros(starts[-1], np.int64)
            for batch in batches:
                for first in range(0, len(batch), _ROWS):
                    _count(values, batch[first : first + _ROWS], marginals, levels, starts)
            return torch.from_numpy(values)

        return cls(totals(codes, counted).numpy(), starts)

    def sums(self, candidate: int) -> BoundedSum:
        """The counts of one candidate: a record is in one of the cells."""
        start, stop = self.starts[candidate : candidate + 2]
        return BoundedSum(torch.from_numpy(self.values[start:stop].copy()), 1.0, replaced=math.sqrt(2.0))

    def scores(self, expected: Reals, weights: Integers, offsets: Reals) -> Integers:
        """Scores (candidates,) of selections, in units of 1 / 1024: :math:`w (|x - e|_1 - o)`, rounded before x is seen.

        e (cells,) are counts of a released model, w whole numbers and o public, both (candidates,). A record moves one count by
        1, hence a score by at most 1024 w, twice that if it is replaced.
        """
        gaps = np.abs(SCALE * self.values - np.rint(SCALE * expected).astype(np.int64))
        distances = np.add.reduceat(gaps, self.starts[:-1])
        return np.asarray(weights * (distances - np.rint(SCALE * offsets).astype(np.int64)))


def _count(
    values: Integers, codes: Integers, marginals: Sequence[Marginal], levels: Sequence[Coarsening], starts: Integers
) -> None:
    """Add the cells of codes (b, d) to counts of all marginals."""
    grouped = {level: levels[level].apply(codes) for level in {m.level for m in marginals}}
    for start, stop, m in zip(starts, starts[1:], marginals):
        rows = grouped[m.level]
        cell = rows[m.columns[0]]
        for c, size in zip(m.columns[1:], shape(m, levels)[1:]):
            cell = cell * size + rows[c]
        values[start:stop] += np.bincount(cell, minlength=stop - start)


def shape(marginal: Marginal, levels: Sequence[Coarsening]) -> tuple[int, ...]:
    """Groups of each column of a marginal."""
    return tuple(levels[marginal.level].sizes[c] for c in marginal.columns)


@dataclass(frozen=True, eq=False)
class Measurement:
    """A released marginal: noisy counts of its shape, and the noise std of every value, or one for each."""

    marginal: Marginal
    values: Reals
    noise_std: float | Reals
    fitted: Reals | None = None
    """Expected counts of a density through finer counts; None: nothing is known of it."""


def together(marginals: Sequence[Marginal]) -> Iterator[tuple[int, list[int]]]:
    """Numbers of the marginals of each level."""
    for level in sorted({m.level for m in marginals}):
        yield level, [i for i, m in enumerate(marginals) if m.level == level]


# -- columns, released first -------------------------------------------------------------------------------------------


class Known(NamedTuple):
    """Noisy counts (size,) of the codes of a column that were bought with its domain, their stds, and fitted counts.

    `drawn` codes were drawn to be there (`domains.surviving`): what is measured later does not move their fitted counts.
    """

    counts: Reals
    stds: Reals
    fitted: Reals
    drawn: Flags

    @classmethod
    def of(cls, counts: Reals, stds: Reals, fitted: Reals, drawn: Flags | None = None) -> Known:
        """Without `drawn` none were."""
        return cls(counts, stds, fitted, np.zeros(len(counts), bool) if drawn is None else drawn)

    def and_one(self, count: float, std: float, fitted: float) -> Known:
        """These counts with one more code."""
        return Known(*(np.append(own, more) for own, more in zip(self, (count, std, fitted, fitted > max(count, 0.0)))))


NOTE = "marginals of columns"
JOINT = "table of all columns"
OF_JOINT = 0.95
"""Share of a table of all columns; single columns get the rest."""
MOST_CLASSES = 4
"""Classes of a target that is counted beside every column from the start, at most."""
MOST_GROUPS = 64
"""Groups of a column in the mixture; codes inside a group follow their own released shares."""
MOST_SMOOTHED = 512
"""Ordered codes of a column that are smoothed together."""
_PENALTIES = np.array([0.0, *(10.0 ** np.arange(-1.0, 5.0, 0.5))])
_SMOOTHING = 0.5  # records that are added to every code
_DRAWN = 1 / 32  # of the noise std of counts that later ones should not move
_AT_ENDS = 0.01  # to empty ends of a range: half a record at a million would move the mean


@dataclass(frozen=True, eq=False)
class Columns:
    """Released shares of the codes of every column, (size,) each, above 0 and summing to 1, and the noisy number of records.

    `coarse` are the groups of codes that the mixture sees; `measurements` the marginals of these as measured, `smooth`
    smoothed.
    """

    shares: tuple[Reals, ...]
    n: float
    coarse: Coarsening
    measurements: tuple[Measurement, ...]
    smooth: tuple[Measurement, ...]

    @property
    def group_shares(self) -> list[Reals]:
        """Shares of the groups that the mixture sees, of each column."""
        return [np.bincount(group, share).astype(np.float64) for group, share in zip(self.coarse.groups, self.shares)]

    def coarser(self, most: int, domain: TableDomain) -> Coarsening:
        """At most `most` groups of each column of the groups that the mixture sees."""
        missing = [None if code is None else size - 1 for code, size in zip(domain.missing, self.coarse.sizes)]
        return Coarsening.of(self.group_shares, most, ordered=domain.ordered, missing=missing)

    def within(self, codes: Integers) -> Reals:
        """Log share (n, d) of each of the codes (n, d) in its group."""
        return np.stack([np.log(self.inside(c))[codes[:, c]] for c in range(codes.shape[1])], axis=1)

    def inside(self, c: int) -> Reals:
        """Share (size,) of each code of a column in its group."""
        group, share = self.coarse.groups[c], self.shares[c]
        return np.asarray(share / np.bincount(group, share)[group])

    def with_measured(self, more: Sequence[Measurement]) -> Columns:
        """These columns with more measured marginals of codes."""
        own = tuple(in_groups(m, self.coarse) for m in more)
        return replace(self, measurements=(*self.measurements, *own), smooth=(*self.smooth, *own))

    def spread(self, law: Reals, axis: int, c: int) -> Reals:
        """The law of groups of a column, along an axis, as that of its codes."""
        return np.moveaxis(np.moveaxis(law, axis, -1)[..., self.coarse.groups[c]] * self.inside(c), -1, axis)

    def refined(self, groups: Integers, inside: Sequence[Reals], generator: np.random.Generator) -> Integers:
        """Codes (n, d) of groups (n, d), drawn by the weights (size,) of codes inside their group."""
        codes = groups.copy()
        for c, (group, weight) in enumerate(zip(self.coarse.groups, inside)):
            if self.coarse.sizes[c] < len(group):
                order = np.argsort(group, kind="stable")
                edges = np.concatenate([[0.0], weight[order].cumsum()])
                ends = np.bincount(group, minlength=self.coarse.sizes[c]).cumsum()
                low, high = edges[np.r_[0, ends[:-1]]][groups[:, c]], edges[ends][groups[:, c]]
                place = np.searchsorted(edges, low + generator.random(len(codes)) * (high - low), side="right") - 1
                codes[:, c] = order[np.clip(place, np.r_[0, ends[:-1]][groups[:, c]], ends[groups[:, c]] - 1)]
        return codes


def wide_bins(schema: Schema, shares: Sequence[Reals], but: Sequence[str] = ()) -> tuple[str, ...]:
    """The columns in which a bin holds more than a fifth of the values and spans more than a tenth of the range, with it."""
    found = []
    for given, share in zip(schema.modelled, shares):
        if given.type in ("string", "boolean") or given.name in but or isinstance(given, DensityField):
            continue
        low, high = (np.asarray(values) for values in given.bounds())
        wide = (high - low) > (high[-1] - low[0]) / 10
        heavy = wide & (share[: given.size] > 0.2)
        if heavy.any():
            worst = int(np.argmax(np.where(heavy, share[: given.size], 0.0)))
            found.append(f"{given.name} ({100 * share[worst]:.0f} % between {_text(low[worst])} and {_text(high[worst])})")
    return tuple(found)


def _text(value: Any) -> str:
    return str(value.astype("datetime64[s]")) if value.dtype.kind == "M" else f"{value:g}"


def first_marginals(domain: TableDomain, *, alone: bool) -> list[Marginal]:
    """Every column, beside the target where that has few classes and other marginals will follow."""
    pairs = [] if alone else _beside_target(domain)
    taken = set[int]().union(*(m.columns for m in pairs))
    return pairs + [Marginal((c,), 0) for c in range(len(domain.sizes)) if c not in taken]


def _beside_target(domain: TableDomain) -> list[Marginal]:
    """Pairs of a column of few groups and a target of few classes."""
    sizes, target = domain.sizes, domain.target
    if target is None or sizes[target] > MOST_CLASSES:
        return []
    return [Marginal(tuple(sorted((c, target))), 0) for c in range(len(sizes)) if c != target and sizes[c] <= MOST_GROUPS]


def release_columns(
    codes: Any,
    domain: TableDomain,
    budget: GaussianBudget,
    share: float,
    count: tuple[float, float],
    *,
    alone: bool,
    joint: bool = False,
    known: Mapping[int, Known] = MappingProxyType({}),
    prior: Callable[[list[Measurement], TableDomain, float], Sequence[Measurement]] | None = None,
) -> Columns:
    r"""Noisy marginals of columns of codes (`Counts.of`) for `share` of the budget's 1 / s^2.

    The error of the shares of m cells grows like :math:`m \sigma`; the sum of all errors is least where 1 / s^2 is shared like
    :math:`m^{2/3}`. `count` is the noisy number of records and its std; `alone`: nothing else will be measured; `joint`: but
    the table of all columns, with most of the share; columns in `known`, counts that were released before, cost only what they
    need beyond that. A public `prior` stands beside what was released.
    """
    full = Coarsening.full(domain.sizes)
    marginals = first_marginals(domain, alone=alone or joint)
    tables = [Marginal(tuple(range(len(domain.sizes))), 0)] if joint else []
    counts = Counts.of(codes, [*marginals, *tables], [full])
    cells = np.diff(counts.starts)[: len(marginals)]
    parts = (1 - OF_JOINT if joint else 1.0) * share * cells ** (2 / 3) / (cells ** (2 / 3)).sum()
    released = [Measurement(Marginal((c,), 0), own.counts, own.stds, own.fitted) for c, own in known.items()]
    before: dict[tuple[int, ...], float] = {(c,): _precision(budget, float(np.median(own.stds))) for c, own in known.items()}
    for i, (marginal, part) in enumerate(zip(marginals, parts)):
        part -= before.get(marginal.columns, 0.0)
        if part <= 0:
            continue
        values, std = budget.sums(NOTE, counts.sums(i), float(part))
        share -= part
        released.append(Measurement(marginal, values.numpy().reshape(shape(marginal, [full])), std))
    for marginal in tables:
        values, std = budget.sums(JOINT, counts.sums(len(marginals)), (1 - 1e-9) * share)
        released.append(Measurement(marginal, values.numpy().reshape(domain.sizes), std))
    n = _records(released, count)
    return settled_columns(released, domain, known, n, () if prior is None else prior(released, domain, n))


def _records(released: Sequence[Measurement], count: tuple[float, float]) -> float:
    """The number of records by their noisy count, of this std, and by the sums of marginals, each by 1 / variance."""
    variances = [float((np.broadcast_to(m.noise_std, m.values.shape) ** 2).sum()) for m in released]
    sums = np.array([count[0], *(float(m.values.sum()) for m in released)])
    return max(1.0, float(np.average(sums, weights=1 / np.array([count[1] ** 2, *variances]))))


def settled_columns(
    released: Sequence[Measurement],
    domain: TableDomain,
    known: Mapping[int, Known],
    n: float | None = None,
    prior: Sequence[Measurement] = (),
    whole: Collection[int] = (),
) -> Columns:
    """Shares and groups of released columns of n records; None: of as many as the marginals of each column say.

    Each code of the columns in `whole` is a group.
    """
    smooth = [_smooth(m, domain, known) for m in released]

    def number(those: Sequence[Measurement]) -> float:
        return n or max(1.0, float(np.mean([m.values.sum() for m in those])))

    def shares_in(c: int) -> Reals:
        empty = (known[c].fitted == 0.0) & domain.ordered[c] if c in known else None
        return shares_of([*smooth, *prior], c, number([m for m in smooth if m.marginal.columns == (c,)]), empty)

    shares = [shares_in(c) for c in range(len(domain.sizes))]
    kinds = {c: np.array(own) for c, own in domain.kinds.items()}
    coarse = Coarsening.of(shares, MOST_GROUPS, ordered=domain.ordered, missing=domain.missing, kinds=kinds)
    coarse = coarse.replaced({c: (np.arange(size), size) for c, size in enumerate(domain.sizes) if c in whole})
    both = [tuple(in_groups(m, coarse) for m in found) for found in (released, [*smooth, *prior])]
    return Columns(tuple(shares), number(smooth), coarse, *both)


def _smooth(measured: Measurement, domain: TableDomain, known: Mapping[int, Known]) -> Measurement:
    """The smoothed measurement; of codes that were drawn to be there it has less noise, so that later ones do not move it."""
    smooth = replace(measured, values=smoothed_marginal(measured, domain))
    drawn = np.zeros(1, bool) if measured.fitted is None else known[measured.marginal.columns[0]].drawn
    return replace(smooth, noise_std=np.where(drawn, _DRAWN, 1.0) * smooth.noise_std) if drawn.any() else smooth


def _precision(budget: GaussianBudget, noise_std: float) -> float:
    """The share of 1 / s^2 for which counts have this noise."""
    return float((budget.noise_std(1.0) / noise_std) ** 2)


def smoothed_marginal(measured: Measurement, domain: TableDomain) -> Reals:
    """Noisy counts, smoothed along columns whose codes are ordered, missing values apart; classes of a target are not."""
    values, noise_std = measured.values, measured.noise_std
    if measured.fitted is not None:
        return measured.fitted
    if not isinstance(noise_std, float) or values.ndim > 2:  # of bins that were chosen so that their counts stand out
        return values
    for axis, c in enumerate(measured.marginal.columns):
        if domain.ordered[c] and c != domain.target:
            live = domain.sizes[c] - (domain.missing[c] is not None)
            ahead = np.moveaxis(values, axis, 0).copy()
            ahead[:live] = smoothed(ahead[:live].reshape(live, -1), noise_std).reshape(ahead[:live].shape)
            values = np.moveaxis(ahead, 0, axis)
    return values


def smoothed(values: Reals, noise_std: float) -> Reals:
    r"""Noisy counts (m, k) of ordered codes, each column of them with the least estimated error among smoothing splines.

    :math:`f = (I + \lambda D^\top D)^{-1} y` with D the second differences, and lambda that of the least
    :math:`|y - f|^2 + 2 \sigma^2 \operatorname{tr}(I + \lambda D^\top D)^{-1}`, which estimates the error without bias whatever
    the counts are: jumps are kept where they stand out of the noise.

    Source: Whittaker 1923; Stein 1981.
    """
    m = len(values)
    if not 4 <= m <= MOST_SMOOTHED:
        return values
    second = np.diff(np.eye(m), 2, axis=0)
    eigenvalues, basis = np.linalg.eigh(second.T @ second)
    shrunk = 1.0 / (1.0 + np.maximum(eigenvalues, 0.0)[:, None] * _PENALTIES)  # (m, penalties)
    spectrum = basis.T @ values
    risk = ((1.0 - shrunk)[:, :, None] * spectrum[:, None]) ** 2
    best = (risk.sum(0) + 2.0 * noise_std**2 * shrunk.sum(0)[:, None]).argmin(0)
    return np.asarray(basis @ (shrunk[:, best] * spectrum))


def shares_of(released: Sequence[Measurement], column: int, n: float, empty: Flags | None) -> Reals:
    """Shares of the codes of a column, from all marginals that it is in, with half a record added to each.

    What was bought as `empty`, the end of a public range, stays so: noise of later measurements would move the mean.
    """
    total, precision = np.zeros(1), np.zeros(1)
    for m in released:
        if column in m.marginal.columns:
            other = tuple(axis for axis, c in enumerate(m.marginal.columns) if c != column)
            values, weight = m.values.sum(other), 1.0 / (np.broadcast_to(m.noise_std, m.values.shape) ** 2).sum(other)
            total, precision = total + weight * values, precision + weight
    counts = np.asarray(total / precision)
    kept = np.ones(len(counts), bool) if empty is None or empty.all() else ~empty
    smoothed = np.where(kept, _SMOOTHING, _AT_ENDS)
    smoothed[kept] += project_to_simplex(counts[kept] / n) * n
    return np.asarray(smoothed / smoothed.sum())


def in_groups(measured: Measurement, coarse: Coarsening) -> Measurement:
    """The measurement with the codes of every column added up to groups; larger groups have more noise."""
    values, variances = measured.values, np.broadcast_to(measured.noise_std, measured.values.shape) ** 2
    for axis, c in enumerate(measured.marginal.columns):
        group, size = coarse.groups[c], coarse.sizes[c]
        if size < len(group):
            values, variances = (summed(x, axis, group, size) for x in (values, variances))
    return Measurement(measured.marginal, values, np.sqrt(variances))


def summed(values: Reals, axis: int, group: Integers, size: int) -> Reals:
    """Values added up to groups along an axis."""
    ahead = np.moveaxis(values, axis, 0)
    result = np.zeros((size, *ahead.shape[1:]))
    np.add.at(result, group, ahead)
    return np.moveaxis(result, 0, axis)
