"""A baseline: noisy counts of all cells of a fixed dyadic tree, made consistent by least squares."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.events import pure_event
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.limits import require_whole
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.counts import NO_RECORDS, records_moved, tree_counts
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.gaussian_budget import curator_multiplier, gaussian_beside
from dpgen.systems.ordered.knots import Integers, MonotoneCounts, Reals, monotone_counts
from dpgen.systems.ordered.public_limits import DEPTH


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


@lru_cache(maxsize=4)
def _edges(N: int, depth: int) -> Integers:
    """Ends (2^h + 1,) of the cells at the bottom, h = depth or as many halvings as [0, N) has."""
    cells = 2 ** min(depth, (N - 1).bit_length())
    edges = np.array([N * i // cells for i in range(cells + 1)], np.int64)
    edges.setflags(write=False)
    return edges


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

    def _counts(self, values: Integers, N: int, relation: Relation) -> BoundedSum:
        """Counts of all levels; under replace-one the root is n, which is public, and is left out."""
        root = records_moved(relation) == 1
        return tree_counts(values, _edges(N, self.depth), root=root, norm="l2" if self.delta else "l1")

    def _note(self, N: int, relation: Relation) -> str:
        return f"counts of a tree of {(len(_edges(N, self.depth)) - 1).bit_length() - records_moved(relation) + 1} levels"

    def _multiplier(self, sums: BoundedSum, relation: Relation) -> float:
        return curator_multiplier(gaussian_beside((), self.epsilon, self.delta, relation), sums, relation)

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        """One release of the counts of all levels."""
        note, sums = self._note(N, relation), self._counts(NO_RECORDS, N, relation)
        if not self.delta:
            return [Planned(pure_event(self.epsilon), note)]
        return [Planned(gaussian_price(sums, self._multiplier(sums, relation), relation), note)]

    def release(self, values: Integers, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of sorted values (n,) int64 in [0, N)."""
        relation, edges = curator.relation, _edges(N, self.depth)
        note, sums = self._note(N, relation), self._counts(values, N, relation)
        if self.delta:
            noisy = curator.gaussian(note, sums, self._multiplier(sums, relation))
        else:
            noisy = curator.laplace(note, sums, self.epsilon)
        known, leaves = records_moved(relation) == 2, len(edges) - 1
        sizes = [2**level for level in range(1 if known else 0, leaves.bit_length())]
        levels = np.split(noisy.double().numpy(), np.cumsum(sizes)[:-1])
        fitted = consistent_leaves(levels, float(len(values)) if known else None)
        below = np.cumsum(fitted)
        size = float(len(values)) if known else float(self.size or max(below[-1], 0.0))
        return monotone_counts(edges[1:-1], below[:-1], np.ones(len(below) - 1), N=N, size=size)
