"""PartitionCDF: a private partition, then private prefix counts at its cell ends; the recommended estimator."""

import math
from dataclasses import dataclass, replace

import numpy as np

from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.gaussian_budget import gaussian_beside, relation_gaussian
from dpgen.systems.ordered.knots import Integers, MonotoneCounts, monotone_counts
from dpgen.systems.ordered.prefix_sums import noisy_prefix_sums
from dpgen.systems.ordered.private_tree import PrivateTree
from dpgen.systems.ordered.record_count import released_size, size_is_free


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

    tree_share: float = 0.3
    size_share: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta <= 0:
            raise ValueError(f"delta is {self.delta!r}; PartitionCDF adds Gaussian noise and needs delta in (0, 1)")
        if not (0 < self.tree_share < 1 and 0 < self.size_share < 1 - self.tree_share):
            raise ValueError(
                f"tree_share is {self.tree_share!r} and size_share {self.size_share!r}; both must be > 0, their sum < 1"
            )

    def require_domain(self, N: int, relation: Relation) -> None:
        """Refuse a budget that no noise fits."""
        self._noise(relation)

    def _noise(self, relation: Relation) -> tuple[PrivateTree, float]:
        """The tree, for a threshold that is not known yet, and the noise multiplier of the prefix counts."""
        tree_epsilon, size_epsilon = self.tree_share * self.epsilon, self.size_share * self.epsilon
        free = size_is_free(self.size, relation)
        pure = (tree_epsilon,) if free else (tree_epsilon, size_epsilon)
        tree = PrivateTree(epsilon=tree_epsilon, threshold=1, relation=relation)
        return tree, gaussian_beside(pure, self.epsilon, self.delta, relation)

    def _fit_counts(self, values: Integers, *, N: int, ledger: Ledger, source: SecureSource) -> MonotoneCounts:
        """Noisy monotone prefix counts of sorted values (n,) int64 in [0, N)."""
        relation, size_epsilon = ledger.relation, self.size_share * self.epsilon
        tree, multiplier = self._noise(relation)
        size = released_size(values, self.size, epsilon=size_epsilon, ledger=ledger, source=source)
        ledger.charge(pure_event(tree.epsilon), note="partition: tree")
        ledger.charge(relation_gaussian(multiplier, relation), note="partition: prefix counts")
        tree = replace(tree, threshold=max(1, round(math.sqrt(max(size, 1)) / 2)))
        ends, below = tree.leaves(values, N=N, source=source)
        known = relation == "replace_one"  # then all records lie below N, and the last prefix count needs no noise
        if known and len(ends) == 1:
            return MonotoneCounts(np.array([0, N], np.int64), np.array([0.0, size]))
        cells = np.diff(below[:-1] if known else below, prepend=0)
        sums, variances = noisy_prefix_sums(cells, noise_multiplier=multiplier, relation=relation, source=source)
        if known:
            return monotone_counts(ends[:-1], sums, variances, N=N, size=size)
        return monotone_counts(ends[:-1], sums[:-1], variances[:-1], N=N, size=max(float(sums[-1]), 0.0))
