"""A baseline: noisy counts of all cells of a fixed dyadic tree, made consistent by least squares."""

import math
from dataclasses import dataclass

import numpy as np

from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.limits import require_whole
from dpgen.privacy.noise import SecureSource, require_secure
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.gaussian_budget import gaussian_beside, relation_gaussian
from dpgen.systems.ordered.knots import Integers, MonotoneCounts, Reals, monotone_counts
from dpgen.systems.ordered.public_limits import DEPTH
from dpgen.systems.ordered.sensitivities import cells_l2, tree_l1


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

    def require_domain(self, N: int, relation: Relation) -> None:
        """Refuse a budget that no Gaussian noise fits."""
        if self.delta:
            gaussian_beside((), self.epsilon, self.delta, relation)

    def _fit_counts(self, values: Integers, *, N: int, ledger: Ledger, source: SecureSource) -> MonotoneCounts:
        """Noisy monotone prefix counts of sorted values (n,) int64 in [0, N)."""
        source, relation = require_secure(source), ledger.relation
        depth = min(self.depth, (N - 1).bit_length())
        edges = np.array([N * i // 2**depth for i in range(2**depth + 1)], np.int64)
        leaves = np.diff(np.searchsorted(values, edges))
        known = relation == "replace_one"  # the root is n
        counts = [leaves.reshape(2**level, -1).sum(1) for level in range(1 if known else 0, depth + 1)]
        note = f"counts of a tree of {len(counts)} levels"
        if self.delta:
            multiplier = gaussian_beside((), self.epsilon, self.delta, relation)
            ledger.charge(relation_gaussian(multiplier, relation), note=note)
            std = multiplier * math.sqrt(len(counts)) * cells_l2(relation)
            noisy = [level + source.rounded_normal(len(level), noise_std=std).numpy() for level in counts]
        else:
            ledger.charge(pure_event(self.epsilon), note=note)
            scale = tree_l1(len(counts), relation) / self.epsilon
            noisy = [level + source.discrete_laplace(len(level), scale=scale).numpy() for level in counts]
        fitted = consistent_leaves([np.asarray(level, np.float64) for level in noisy], float(len(values)) if known else None)
        sums = np.cumsum(fitted)
        size = float(len(values)) if known else float(self.size or max(sums[-1], 0.0))
        return monotone_counts(edges[1:-1], sums[:-1], np.ones(len(sums) - 1), N=N, size=size)
