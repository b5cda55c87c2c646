"""PartitionCDF: a private partition, then private prefix counts at its cell ends; the recommended estimator."""

import math
from dataclasses import dataclass

import numpy as np

from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.counts import cell_counts, planned_size, records_moved, released_size, size_is_free
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.gaussian_budget import gaussian_beside, relation_gaussian
from dpgen.systems.ordered.knots import Integers, MonotoneCounts, monotone_counts
from dpgen.systems.ordered.private_tree import PrivateTree, TreeNoise, TreeRule

_TREE, _PREFIXES = "partition: tree", "partition: prefix counts"


def leaf_counts(values: Integers, ends: Integers, relation: Relation) -> BoundedSum:
    """Records of the leaves that end at `ends` (m,), under replace-one without the last: it holds the rest of a public n."""
    inner = ends[:-1] if records_moved(relation) == 2 else ends
    return cell_counts(values, np.concatenate([[0], inner]), norm="l2")


@dataclass(frozen=True, kw_only=True)
class PartitionCDF(OrderedEstimator):
    r"""Approximates the CDF as well as the data do: error close to that of the empirical CDF from about 10^4 records on.

    1. `PrivateTree` splits dyadic cells above :math:`\sqrt n / 2` records, at `tree_share` of epsilon.
    2. Prefix counts at the ends of its leaves with correlated Gaussian noise (`noisy_prefix_sums`), at what is left.
    3. Isotonic regression and clipping to [0, n], which is free; inside a leaf records count as spread evenly.

    Under add/remove n is private: without `size` a noisy n is bought with `size_share` of epsilon (it only sets the
    threshold), and the CDF is divided by the last noisy prefix count. Under replace-one n is public.

    Arguments:
        epsilon: this column's budget in nats.
        delta: this column's delta, in (0, 1).
        size: public number of records; None: see above.
        tree_share: share of epsilon for the tree, in (0, 1).
        size_share: share of epsilon for a noisy n, where it is needed.
    """

    tree_share: float = 0.27
    size_share: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta <= 0:
            raise ValueError(f"delta is {self.delta!r}; PartitionCDF adds Gaussian noise and needs delta in (0, 1)")
        if not (0 < self.tree_share < 1 and 0 < self.size_share < 1 - self.tree_share):
            raise ValueError(
                f"tree_share is {self.tree_share!r} and size_share {self.size_share!r}; both must be > 0, their sum < 1"
            )

    def _rule(self, size: float, relation: Relation) -> TreeRule:
        """When cells are split, of a public or noisy number of records."""
        noise = TreeNoise.of(self.tree_share * self.epsilon, relation)
        return TreeRule(threshold=max(1, round(math.sqrt(max(size, 1.0)) / 2)), noise=noise, relation=relation)

    def _multiplier(self, relation: Relation) -> float:
        """Noise of the prefix counts, std over sensitivity under `relation`: what the budget leaves beside the pure parts."""
        tree, size = self.tree_share * self.epsilon, self.size_share * self.epsilon
        pure = (tree,) if size_is_free(self.size, relation) else (tree, size)
        return gaussian_beside(pure, self.epsilon, self.delta, relation)

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        """The number of records where it is private, the tree, the prefix counts."""
        return [
            *planned_size(self.size, self.size_share * self.epsilon, relation),
            Planned(self._rule(1.0, relation).event, _TREE),
            Planned(relation_gaussian(self._multiplier(relation), relation), _PREFIXES),
        ]

    def release(self, values: Integers, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of sorted values (n,) int64 in [0, N)."""
        relation = curator.relation
        size = released_size(values, self.size, epsilon=self.size_share * self.epsilon, curator=curator)
        [ends] = curator.release(_TREE, PrivateTree(values, N=N, rule=self._rule(size, relation)))
        known = records_moved(relation) == 2  # then all records lie below N, and the last prefix count needs no noise
        if known and len(ends) == 1:
            return MonotoneCounts(np.array([0, N], np.int64), np.array([0.0, size]))
        cells = leaf_counts(values, ends, relation)
        sums, variances = curator.prefix_sums(_PREFIXES, cells, self._multiplier(relation))
        if known:
            return monotone_counts(ends[:-1], sums, variances, N=N, size=size)
        return monotone_counts(ends[:-1], sums[:-1], variances[:-1], N=N, size=max(float(sums[-1]), 0.0))
