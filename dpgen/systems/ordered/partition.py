r"""PartitionCDF, the recommended estimator: a private partition by PrivTree, then private prefix counts at its cell ends.

The partition of [0, N) into dyadic cells is fine where records are many. A cell at depth h with c records is split while
its biased count and integer Laplace noise are above a threshold:

.. math:: \max(c - h\,\gamma,\ \theta - \gamma) + X > \theta, \qquad X \sim Lap_{\mathbb Z}(\lambda), \qquad r = e^{-1/\lambda}

**The exact cost of a path.** With :math:`k = \theta + 1 - \max(c - h \gamma, \theta - \gamma)` a cell is split with
probability :math:`P(X \ge k)`, and one more record in it lowers k by 1, or changes nothing where the maximum is
:math:`\theta - \gamma`. So an inserted record adds :math:`L(k) = \ln P(X \ge k - 1) - \ln P(X \ge k)` at every split on its
path, with :math:`k \le \gamma + 1`. L does not fall with k (the tails of a log-concave distribution are log-concave). Counts
do not grow on the way down, so from one cell of the path to the next k grows by at least :math:`\gamma`: read from the
deepest cell that counts, the worst path has :math:`k = \gamma + 1, 1, 1 - \gamma, 1 - 2\gamma, \dots` and costs

.. math:: S = \sum_{j \ge 0} L(\gamma + 1 - j \gamma)
          = \frac2\lambda + \sum_{j \ge 1} \ln \frac{1 - r\,t_j}{1 - t_j}, \qquad t_j = \frac{r^{j \gamma}}{1 + r}

which many equal records reach: their counts do not fall at all. The cell that ends the path is not split, which an insertion
makes less likely: nothing is added. A deletion, in the same direction, makes every split less likely and only the end of its
path likelier, by :math:`\ln P(X < k + 1) - \ln P(X < k) \le 1/\lambda`, with equality for :math:`k \le 0`. So

- add/remove costs S (and 1/lambda in the other direction, which is less);
- replace-one costs S + 1/lambda: one record enters a path and another leaves one. Above the cell where they part no count
  changes; below it both bounds are reached at once.

Zhang, Xiao and Xie bound S by 3/lambda and replace-one by twice that. At :math:`\gamma = \lambda \ln 2` S tends to
:math:`(1 + \sum_j 1 / (2^j - 1)) / \lambda = 2.607 / \lambda` (Erdos and Borwein's constant), so 3/lambda and 4/lambda would
leave 13 % and 10 % of the budget unused. `TreeNoise.of` solves S = epsilon, or S + 1/lambda = epsilon, for lambda instead, at
the least gamma at which an empty cell is split with a chance of at most 1/4: fewer than one child of two is split again, so
the tree ends early where there are no records, as with the published gamma = lambda ln 2.

Source: Zhang, Xiao, Xie 2016 (PrivTree), section 3; the constants are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.curator import Curator
from dpgen.privacy.draws import Words, compiled, reach_thresholds
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.mechanisms import (
    Relation,
    Secrets,
    for_rows,
    gaussian_event,
    pure_event,
    require_positive,
    require_relation,
    row_epsilon,
)
from dpgen.systems.ordered.estimator import (
    Integers,
    MonotoneCounts,
    OrderedEstimator,
    Values,
    cell_counts,
    outline,
    planned_size,
)

if TYPE_CHECKING:
    from dp_accounting import DpEvent

TREE_SHARE, SIZE_SHARE = 0.27, 0.02  # of epsilon, for the tree and for a noisy number of records where it is private
_TREE, _PREFIXES = "partition: tree", "partition: prefix counts"
_FIRST_COINS = 1024
_EPSILONS = (1e-5, 400.0)  # of a tree
_FINEST = 0.01  # noise scale that `reach_thresholds` takes; smaller noise is 0 with chance 1 - e^-100 anyway
_LEVELS = 62  # cells of a path that are asked, at most
_EMPTY = 0.25  # chance of a split without records, at most
_MARGIN = 1e-12  # relative; the loss is a sum of some 60 terms in float64

_compile = compiled()


@dataclass(frozen=True, kw_only=True)
class PartitionCDF(OrderedEstimator):
    r"""Approximates the CDF as well as the data do: error close to that of the empirical CDF from about 10^4 records on.

    1. `PrivateTree` splits dyadic cells above :math:`\sqrt n / 2` records, at `TREE_SHARE` of epsilon.
    2. Prefix counts at the ends of its leaves with correlated Gaussian noise (`Curator.prefix_sums`), at what is left.
    3. Isotonic regression and clipping to [0, n], which is free; inside a leaf records count as spread evenly.

    Where n is private (`keeps_size`), without `size` a noisy n is bought with `SIZE_SHARE` of epsilon, which only sets the
    threshold, and the CDF is divided by the last noisy prefix count.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta <= 0:
            raise ValueError(f"delta is {self.delta!r}; PartitionCDF adds Gaussian noise and needs delta in (0, 1)")

    def rule(self, size: float, relation: Relation) -> TreeRule:
        """Rule of the splits, for a public or noisy number of records."""
        noise = TreeNoise.of(row_epsilon(TREE_SHARE * self.epsilon, self.rows), relation)
        return TreeRule(threshold=max(1, round(math.sqrt(max(size, 1.0)) / 2)), noise=noise, relation=relation)

    def _multiplier(self, relation: Relation) -> float:
        """Noise of the prefix counts, std over sensitivity under `relation`, that the budget leaves beside the pure parts."""
        pure = TREE_SHARE * self.epsilon, self.size_epsilon(SIZE_SHARE, relation)
        return gaussian_beside(pure, self.epsilon, self.delta, relation)

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        return [
            *planned_size(self.size_epsilon(SIZE_SHARE, relation)),
            Planned(for_rows(self.rule(1.0, relation).event, self.rows), _TREE),
            Planned(_gaussian(self._multiplier(relation), relation), _PREFIXES),
        ]

    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of values (n,) in [0, N)."""
        relation = curator.relation
        size = self.released_size(values, SIZE_SHARE * self.epsilon, curator)
        [ends] = curator.release(_TREE, PrivateTree(values, N=N, rule=self.rule(size, relation)))
        known = curator.keeps_size  # then all records lie below N, and the last prefix count needs no noise
        if known and len(ends) == 1:
            return MonotoneCounts(np.array([0, N], np.int64), np.array([0.0, size]))
        cells = leaf_counts(values, ends, known=known)
        sums, variances = curator.prefix_sums(_PREFIXES, cells, self._multiplier(relation))
        if known:
            return MonotoneCounts.fitted(ends[:-1], sums, variances, N=N, size=size)
        return MonotoneCounts.fitted(ends[:-1], sums[:-1], variances[:-1], N=N, size=max(float(sums[-1]), 0.0))


def _gaussian(noise_multiplier: float, relation: Relation) -> DpEvent:
    """The event of a Gaussian of multiplier std / L2 sensitivity under `relation`; the ledger doubles sensitivities under
    replace-one.
    """
    return gaussian_event(noise_multiplier * (2 if relation == "replace_one" else 1))


@lru_cache(maxsize=64)
def gaussian_beside(pure: tuple[float, ...], epsilon: float, delta: float, relation: Relation) -> float:
    """Least multiplier of a Gaussian that, beside mechanisms of these pure epsilons, keeps all within the budget."""
    from dp_accounting import ComposedDpEvent

    def event(multiplier: float) -> DpEvent:
        return ComposedDpEvent([*map(pure_event, filter(None, pure)), _gaussian(multiplier, relation)])

    return calibrate_noise(event, Budget(epsilon, delta), relation=relation, high=1e6)


def leaf_counts(values: Values, ends: Integers, *, known: bool) -> BoundedSum:
    """Records of the leaves that end at `ends` (m,); where n is known without the last, which holds the rest of it."""
    inner = ends[:-1] if known else ends
    return cell_counts(values, np.concatenate([[0], inner]), norm="l2")


@dataclass(frozen=True)
class TreeNoise:
    """Noise and bias of a private tree: the scale lambda of the integer Laplace noise, and the decay gamma >= 1 a level.

    >>> noise = TreeNoise.of(1.0, "add_remove")
    >>> round(noise.scale, 3), noise.decay, round(noise.loss("add_remove"), 9)
    (2.473, 2, 1.0)
    """

    scale: float
    decay: int

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, epsilon: float, relation: Relation) -> TreeNoise:
        """The least noise whose worst path costs epsilon under `relation`."""
        low, high = _EPSILONS
        if not low <= require_positive("epsilon", epsilon) <= high:
            raise ValueError(f"epsilon is {epsilon!r}; that of a tree must be in [{low:g}, {high:g}]")
        few, enough = 0, 1
        while not cls._at(epsilon, enough, relation).ends_early:
            few, enough = enough, 2 * enough
        while enough - few > 1:
            middle = (few + enough) // 2
            few, enough = (few, middle) if cls._at(epsilon, middle, relation).ends_early else (middle, enough)
        return cls._at(epsilon, enough, relation)

    @classmethod
    def _at(cls, epsilon: float, decay: int, relation: Relation) -> TreeNoise:
        """The least noise with this decay."""
        low, high = 1 / epsilon, (_LEVELS + 2) / epsilon
        for _ in range(50):
            middle = (low + high) / 2
            cheap = cls(middle, decay).loss(relation) <= epsilon * (1 - _MARGIN)
            low, high = (low, middle) if cheap else (middle, high)
        return cls(max(high, _FINEST), decay)

    @property
    def ends_early(self) -> bool:
        """Whether a cell without records is split with a chance of at most 1/4."""
        ratio = math.exp(-1 / self.scale)
        return ratio ** (self.decay + 1) / (1 + ratio) <= _EMPTY

    def loss(self, relation: Relation) -> float:
        """Epsilon of the worst path: S, and 1/lambda more under replace_one; see the module."""
        ratio = math.exp(-1 / self.scale)
        tails = np.exp(-np.arange(1, _LEVELS) * (self.decay / self.scale)) / (1 + ratio)
        above = float(np.log1p(tails * -math.expm1(-1 / self.scale) / (1 - tails)).sum())
        return above + (3 if require_relation(relation) == "replace_one" else 2) / self.scale


@dataclass(frozen=True, kw_only=True)
class TreeRule:
    """When a cell is split, all of it public: above a count theta in [1, 2^40], with this noise, priced under this relation."""

    threshold: int
    noise: TreeNoise
    relation: Relation

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= 2**40:
            raise ValueError(f"threshold is {self.threshold!r}; it must be in [1, 2^40]")

    @property
    def event(self) -> DpEvent:
        """Price of a tree: the loss of the worst path with this very noise."""
        return pure_event(self.noise.loss(self.relation))

    def chances(self) -> tuple[Words, int]:
        """128-bit chances of a split for k = theta + 1 - score, and the least k: see `reach_thresholds`."""
        return reach_thresholds(self.noise.scale, self.noise.decay + 1)

    def split_chance(self, count: int, depth: int) -> float:
        """Chance that a cell of `count` records at `depth` is split."""
        rows, least = self.chances()
        k = self.threshold + 1 - max(count - depth * self.noise.decay, self.threshold - self.noise.decay)
        return 1.0 if k < least else float(rows[k - least] @ np.array([2.0**-64, 2.0**-128]))


class PrivateTree:
    """The leaves of a private tree, a mechanism for `Curator.release`.

    Every cell down to single values is asked; only the ends of the leaves are released. All of it in integers: counts,
    thresholds, and coins that are exact to 2^-128. Of values (n,) in [0, N) only the counts of cells that can be above the
    clamp are asked for.
    """

    def __init__(self, values: Values, *, N: int, rule: TreeRule) -> None:
        self.values, self.N, self.rule, self.event = values, N, rule, rule.event

    def draw(self, secrets: Secrets, count: int = 1) -> list[Integers]:
        """Ends (m,) of the leaves that lie in [0, N), increasing to N, of each of `count` trees."""
        return [self._leaves(secrets) for _ in range(count)]

    def _leaves(self, secrets: Secrets) -> Integers:
        rule, levels, decay = self.rule, (self.N - 1).bit_length(), self.rule.noise.decay
        # A cell of depth h scores max(c - h decay, threshold - decay): what is not heavy splits as if it were empty.
        heavy, chances = outline(self.values, rule.threshold, decay), rule.chances()
        coins, count = np.empty((0, 2), np.uint64), _FIRST_COINS + 4 * (len(self.values) // rule.threshold)
        while True:
            # More coins continue the same sequence: the first ones are kept.
            fresh = secrets.words(count, 2)
            coins = np.concatenate([coins, fresh]) if len(coins) else fresh
            ends, used = _descend(heavy, chances, self.N, levels, rule.threshold, decay, coins)
            if used <= len(coins):
                return ends
            count = len(coins)


@_compile
def _descend(
    outline: tuple[Integers, Integers],
    chances: tuple[Words, int],
    N: int,
    levels: int,
    threshold: int,
    decay: int,
    coins: Words,
) -> tuple[Integers, int]:
    """Ends of leaves from left to right, and how many coins that took; more than there are means: give more and repeat."""
    (knots, ranks), (rows, least), most = outline, chances, len(coins)
    ends = np.empty(most + 1, np.int64)
    stack = np.empty((levels + 2, 4), np.int64)  # start of a cell, its depth, its first knot, past its last
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, 0, 0, len(knots)
    top, used, found = 1, 0, 0
    while top > 0:
        top -= 1
        start, depth, first, last = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        split = False
        if depth < levels:
            if used == most:
                return ends[:0], most + 1
            k = threshold + 1 - max(ranks[last] - ranks[first] - depth * decay, threshold - decay)
            split = k < least
            if not split:
                high, low = rows[k - least, 0], rows[k - least, 1]
                split = coins[used, 0] < high or (coins[used, 0] == high and coins[used, 1] < low)
            used += 1
        width = np.int64(1) << (levels - depth)
        if not split:
            ends[found] = min(start + width, N)
            found += 1
            continue
        middle = start + (width >> 1)
        between = first + np.searchsorted(knots[first:last], middle)
        if middle < N:
            stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = middle, depth + 1, between, last
            top += 1
        stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = start, depth + 1, first, between
        top += 1
    return ends[:found], used
