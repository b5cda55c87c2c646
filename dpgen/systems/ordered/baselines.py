"""Baselines of ordered columns: noisy histograms of public cells, consistent dyadic trees, recursive private medians."""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.events import for_rows, pure_event, row_epsilon
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import Relation, Secrets, require_whole
from dpgen.privacy.selection import exponential_mechanism
from dpgen.systems.ordered.counts import (
    NO_RECORDS,
    Integers,
    MonotoneCounts,
    Reals,
    Values,
    cell_counts,
    curator_multiplier,
    gaussian_beside,
    in_order,
    monotone_counts,
    records_moved,
    tree_counts,
)
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.plan import CELLS, DEPTH, LEVELS
from dpgen.systems.simplex_projection import project_to_simplex

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True, kw_only=True)
class LaplaceHistogram(OrderedEstimator):
    """The count of every value plus integer Laplace noise, projected to the simplex; epsilon-private, delta 0.

    The scale is the L1 sensitivity of disjoint counts over epsilon, 1/epsilon (add/remove) or 2/epsilon (replace-one).
    Diakonikolas, Hardt and Schmidt 2015, Theorem 3, add Laplace(1 / (epsilon n)) to shares, which is half of what replacing
    a record needs; shares also need n, which is private under add/remove. There counts are normalised by their own noisy
    sum, or by the public size. For small domains and categories: the error grows with N / (epsilon n).
    """

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        """One release of all counts."""
        return [Planned(pure_event(self.epsilon), self._note(N))]

    def _note(self, N: int) -> str:
        return f"counts of {len(self.edges(N)) - 1} public cells"

    def edges(self, N: int) -> Integers:
        """Public cell ends (m + 1,) from 0 to N."""
        if CELLS[1] < N:
            raise ValueError(f"N is {N}; a histogram of all values needs N <= {CELLS[1]}: use method 'partition' or 'fixed'")
        return np.arange(N + 1, dtype=np.int64)

    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of values (n,) in [0, N)."""
        edges, known = self.edges(N), curator.keeps_size
        noisy = curator.laplace(self._note(N), cell_counts(values, edges, norm="l1"), self.epsilon).double().numpy()
        total = float(len(values)) if known else float(self.size or max(noisy.sum(), 1.0))
        shares = project_to_simplex(noisy, total) if total else np.zeros(len(noisy))
        prefix = np.concatenate([[0.0], np.cumsum(shares)]).clip(0.0, total)
        prefix[-1] = total
        return MonotoneCounts(edges, prefix)


@dataclass(frozen=True, kw_only=True)
class FixedPartitionHistogram(LaplaceHistogram):
    """Counts of t public cells plus integer Laplace noise, projected to the simplex; values spread evenly in a cell.

    Learns histograms on the given partition with O(t / alpha^2 + t / (alpha epsilon)) records.

    Source: Diakonikolas, Hardt, Schmidt 2015, Theorem 4.

    Arguments:
        cells: number t of cells of equal width.
    """

    cells: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("cells", self.cells, *CELLS)

    def edges(self, N: int) -> Integers:
        """Public cell ends (t + 1,) from 0 to N."""
        return _equal_edges(N, min(self.cells, N))


def consistent_leaves(levels: list[Reals], root: float | None = None) -> Reals:
    r"""Least-squares leaves (2^h,) of a complete binary tree whose nodes were counted with equal noise.

    Upwards :math:`z_v = \frac{2^l - 2^{l-1}}{2^l - 1} y_v + \frac{2^{l-1} - 1}{2^l - 1} (z_{left} + z_{right})` with l the
    number of levels under and including v; downwards half of what the children miss of their parent goes to each.

    Source: Hay, Rastogi, Miklau, Suciu 2010, Theorem 3.

    Arguments:
        levels: noisy counts of each level from the top (2^0,) (or from (2^1,) with `root`) to the leaves.
        root: the exact total, where it is public.
    """
    up = [levels[-1]]
    for height, noisy in enumerate(reversed(levels[:-1]), start=2):
        below = up[-1].reshape(-1, 2).sum(1)
        up.append((2 ** (height - 1) * noisy + (2 ** (height - 1) - 1) * below) / (2**height - 1))
    down = up.pop() if root is None else np.array([root])
    for children in reversed(up):
        missing = down - children.reshape(-1, 2).sum(1)
        down = children + np.repeat(missing / 2, 2)
    return np.asarray(down)


@dataclass(frozen=True, kw_only=True)
class DyadicTree(OrderedEstimator):
    """Counts of all cells of `depth` halvings of the domain, integer Gaussian noise (Laplace when delta is 0).

    Source: Hay, Rastogi, Miklau, Suciu 2010.

    Arguments:
        depth: halvings, at least 1; 2^depth equal cells at the bottom.
    """

    depth: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("depth", self.depth, *DEPTH)

    def edges(self, N: int) -> Integers:
        """Public ends (2^h + 1,) of the cells at the bottom, h = depth or as many halvings as [0, N) has."""
        return _equal_edges(N, 2 ** min(self.depth, (N - 1).bit_length()))

    def _counts(self, values: Values, N: int, relation: Relation) -> BoundedSum:
        """Counts of all levels; the root is n, and is left out where that is public."""
        root = not self.knows_size(relation)
        return tree_counts(values, self.edges(N), root=root, norm="l2" if self.delta else "l1")

    def _note(self, N: int, relation: Relation) -> str:
        return f"counts of a tree of {(len(self.edges(N)) - 1).bit_length() - self.knows_size(relation)} levels"

    def _multiplier(self, sums: BoundedSum, relation: Relation) -> float:
        return curator_multiplier(gaussian_beside((), self.epsilon, self.delta, relation), sums, relation)

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        """One release of the counts of all levels."""
        note, sums = self._note(N, relation), self._counts(NO_RECORDS, N, relation)
        if not self.delta:
            return [Planned(pure_event(self.epsilon), note)]
        return [Planned(gaussian_price(sums, self._multiplier(sums, relation), relation), note)]

    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of values (n,) in [0, N)."""
        relation, edges = curator.relation, self.edges(N)
        note, sums = self._note(N, relation), self._counts(values, N, relation)
        if self.delta:
            noisy = curator.gaussian(note, sums, self._multiplier(sums, relation))
        else:
            noisy = curator.laplace(note, sums, self.epsilon)
        known, leaves = curator.keeps_size, len(edges) - 1
        sizes = [2**level for level in range(1 if known else 0, leaves.bit_length())]
        levels = np.split(noisy.double().numpy(), np.cumsum(sizes)[:-1])
        fitted = consistent_leaves(levels, float(len(values)) if known else None)
        below = np.cumsum(fitted)
        size = float(len(values)) if known else float(self.size or max(below[-1], 0.0))
        return monotone_counts(edges[1:-1], below[:-1], np.ones(len(below) - 1), N=N, size=size)


class _RecursiveMedians:
    r"""Private medians of medians, a mechanism for `Curator.release`.

    A median x of n' records in (low, high) is drawn with probability proportional to
    :math:`\exp(-\lambda |c(x) - n'/2|)` over all integers between, c(x) being the records below x. An inserted record moves
    c(x) by 0 or 1 and n'/2 by 1/2, hence every score by 1/2, so a draw is :math:`\lambda`-private (the normaliser moves
    too); a level touches a record once, or twice when it is replaced. Scores are exact halves, the rate is a rational
    number, and the price is worked out from both.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        N: domain size.
        rate: lambda, per record.
        levels: halvings.
        relation: neighbouring relation that the price is for.

    Source: Kaplan, Schnapp, Stemmer 2022 (approximate quantiles), Algorithm 1.
    """

    def __init__(self, values: Integers, *, N: int, rate: Fraction, levels: int, relation: Relation) -> None:
        self.values, self.N, self.rate, self.levels, self.relation = values, N, rate, levels, relation

    @property
    def event(self) -> "DpEvent":
        """Lambda for each level and touched record: basic composition over levels, whose parts are disjoint."""
        return pure_event(float(self.rate * self.levels * records_moved(self.relation)))

    def draw(self, secrets: Secrets, count: int = 1) -> list[Integers]:
        """The 2^levels - 1 medians, not decreasing, `count` times."""
        return [self._medians(secrets) for _ in range(count)]

    def _medians(self, secrets: Secrets) -> Integers:
        knots = [0, self.N]
        for _ in range(self.levels):
            middles = [_median(self.values, low, high, self.rate, secrets) for low, high in pairwise(knots)]
            knots = [knot for pair in zip(knots, middles) for knot in pair] + [self.N]
        return np.array(knots[1:-1], np.int64)


@dataclass(frozen=True, kw_only=True)
class PrivateQuantiles(OrderedEstimator):
    r"""The 2^levels - 1 quantiles j / 2^levels: a private median, then medians of both halves, and so on.

    The budget is divided evenly over the levels, :math:`\lambda = \epsilon / levels` (replace-one: half of it), see
    `_RecursiveMedians`. Epsilon-private, delta 0, and n need not be known.

    Arguments:
        levels: halvings h >= 1. More of them resolve more and are noisier.
    """

    levels: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("levels", self.levels, *LEVELS)

    def _mechanism(self, values: Integers, N: int, relation: Relation) -> _RecursiveMedians:
        rate = Fraction(row_epsilon(self.epsilon, self.rows)) / (self.levels * records_moved(relation))
        return _RecursiveMedians(values, N=N, rate=rate, levels=self.levels, relation=relation)

    @property
    def _note(self) -> str:
        return f"{2**self.levels - 1} quantiles"

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        """All quantiles at once."""
        return [Planned(for_rows(self._mechanism(NO_RECORDS, N, relation).event, self.rows), self._note)]

    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of values (n,) in [0, N)."""
        [inner] = curator.release(self._note, self._mechanism(in_order(values), N, curator.relation))
        size = float(len(values) if curator.keeps_size else self.size or 1)
        counts = size * np.arange(1, len(inner) + 1) / (len(inner) + 1)
        return monotone_counts(inner, counts, np.ones(len(inner)), N=N, size=size)


def _median(values: Integers, low: int, high: int, rate: Fraction, secrets: Secrets) -> int:
    """A private median in (low, high); low where there is nothing between."""
    if high - low < 2:
        return low
    first, last = np.searchsorted(values, [low, high])
    inside = values[first:last]
    # Block c: the integers x with exactly c records below, from one record (exclusive) to the next (inclusive).
    ends = np.concatenate([[low], np.clip(inside, low, high - 1), [high - 1]])
    sizes = np.diff(ends).astype(np.uint64)
    twice = np.abs(2 * np.arange(len(sizes)) - len(inside))
    ceilings = -float(rate) / 2 * twice
    block, number = exponential_mechanism(secrets, sizes, ceilings, lambda b, _: -rate / 2 * int(twice[b]))
    return int(ends[block]) + 1 + number


@lru_cache(maxsize=2)
def _equal_edges(N: int, cells: int) -> Integers:
    """Ends (cells + 1,) of the cells of [0, N) whose widths differ by at most one, some 0 for cells > N; read-only.

    >>> _equal_edges(10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    edges = np.array([N * i // cells for i in range(cells + 1)], np.int64)
    edges.setflags(write=False)
    return edges
