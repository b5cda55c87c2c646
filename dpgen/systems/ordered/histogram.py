"""The noisy histogram of a small ordered domain."""

from dataclasses import dataclass

import numpy as np

from dpgen.privacy.curator import Curator
from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.ordered.counts import MonotoneCounts, Values, cell_counts
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.plan import CELLS
from dpgen.systems.simplex_projection import project_to_simplex


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
        if CELLS < N:
            raise ValueError(f"N is {N}; a histogram of all values needs N <= {CELLS}: use method 'partition'")
        return [Planned(pure_event(self.epsilon), _note(N))]

    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of values (n,) in [0, N)."""
        edges, known = np.arange(N + 1, dtype=np.int64), curator.keeps_size
        noisy = curator.laplace(_note(N), cell_counts(values, edges, norm="l1"), self.epsilon).double().numpy()
        total = float(len(values)) if known else float(self.size or max(noisy.sum(), 1.0))
        shares = project_to_simplex(noisy, total) if total else np.zeros(len(noisy))
        prefix = np.concatenate([[0.0], np.cumsum(shares)]).clip(0.0, total)
        prefix[-1] = total
        return MonotoneCounts(edges, prefix)


def _note(N: int) -> str:
    return f"counts of {N} public cells"
