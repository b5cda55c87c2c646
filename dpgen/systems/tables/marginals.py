r"""Marginals of coded tables: coarsenings of columns, exact counts of candidates, and how wrong a model is about them.

A marginal counts the records in the cells of two or three columns, each column in groups of its codes. One record is in one
cell, so it moves a marginal by 1 (L2), a replaced one by :math:`\sqrt 2`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dpgen.privacy.exact_sums import BoundedSum, totals

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

SCALE = 1024
"""Scores of selections are whole numbers of 1 / 1024 records."""

_ROWS = 2**16  # that are counted together: cells of this many stay in the cache


@dataclass(frozen=True, eq=False)
class Coarsening:
    """Groups of the codes of every column.

    Arguments:
        groups: of each column, the group (size,) of each code.
        sizes: how many groups each column has.
    """

    groups: tuple[Integers, ...]
    sizes: tuple[int, ...]

    @classmethod
    def full(cls, sizes: Sequence[int]) -> Coarsening:
        """Every code is a group."""
        return cls(tuple(np.arange(size) for size in sizes), tuple(sizes))

    @classmethod
    def of(cls, shares: Sequence[Reals], most: int, *, ordered: Sequence[bool], missing: Sequence[int | None]) -> Coarsening:
        """At most `most` groups of each column, from released shares of its codes.

        Neighbouring codes of about equal mass where the codes are ordered, else the most frequent codes and the rest together;
        missing values are a group of their own.
        """
        groups = [_grouped(p, most, *about) for p, about in zip(shares, zip(ordered, missing))]
        return cls(tuple(groups), tuple(int(group.max()) + 1 for group in groups))

    def apply(self, codes: Integers) -> Integers:
        """Groups (d, n) of codes (n, d)."""
        return np.stack([group[codes[:, c]] for c, group in enumerate(self.groups)])

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


def _grouped(p: Reals, most: int, ordered: bool, missing: int | None) -> Integers:
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
        group[by_share] = np.minimum(np.arange(len(live)), kept - 1)
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
    if math.comb(d, 3) <= most_triples:
        chosen: list[tuple[int, ...]] = list(combinations(range(d), 3))
    elif target is not None and math.comb(d - 1, 2) <= most_triples:
        chosen = [columns for columns in combinations(range(d), 3) if target in columns]
    else:
        chosen = []
    wanted = [Marginal(columns, level) for columns in chosen for level in triples]
    return found + [m for m in wanted if min(levels[m.level].sizes[c] for c in m.columns) > 1]


@dataclass(frozen=True, eq=False)
class Counts:
    """Exact counts of all candidates, PRIVATE, one after the other.

    Arguments:
        values: (cells,) int64.
        starts: (candidates + 1,) where each begins.
    """

    values: Integers
    starts: Integers

    @classmethod
    def of(cls, codes: Any, marginals: Sequence[Marginal], levels: Sequence[Coarsening]) -> Counts:
        """Counts of codes (n, d), in passes over rows that stay in the cache.

        Arguments:
            codes: an array, or a source of arrays, see `totals`.
        """
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
        r"""Scores (candidates,) of selections, in units of 1 / 1024: :math:`w (|x - e|_1 - o)`, rounded before x is seen.

        A record moves one count by 1, hence a score by at most 1024 w, twice that if it is replaced.

        Arguments:
            expected: e (cells,), counts of a released model.
            weights: w (candidates,), whole numbers.
            offsets: o (candidates,), public.
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
    """A released marginal.

    Arguments:
        marginal: which one.
        values: noisy counts, of its shape.
        noise_std: of every value, or one for each.
    """

    marginal: Marginal
    values: Reals
    noise_std: float | Reals


def together(marginals: Sequence[Marginal]) -> Iterator[tuple[int, list[int]]]:
    """Numbers of the marginals of each level."""
    for level in sorted({m.level for m in marginals}):
        yield level, [i for i, m in enumerate(marginals) if m.level == level]
