"""Counts of public cells with integer Laplace noise: the whole domain, when it is small (Theorem 3)."""

from dataclasses import dataclass

import numpy as np

from dpgen.privacy.curator import Curator
from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Planned
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.counts import cell_counts, records_moved
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.knots import Integers, MonotoneCounts
from dpgen.systems.ordered.public_limits import CELLS
from dpgen.systems.simplex_projection import project_to_simplex

MOST_CELLS = CELLS[1]


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
        if N > MOST_CELLS:
            raise ValueError(f"N is {N}; a histogram of all values needs N <= {MOST_CELLS}: use method 'partition' or 'fixed'")
        return np.arange(N + 1, dtype=np.int64)

    def release(self, values: Integers, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of sorted values (n,) int64 in [0, N)."""
        edges, known = self.edges(N), records_moved(curator.relation) == 2
        noisy = curator.laplace(self._note(N), cell_counts(values, edges, norm="l1"), self.epsilon).double().numpy()
        total = float(len(values)) if known else float(self.size or max(noisy.sum(), 1.0))
        shares = project_to_simplex(noisy, total) if total else np.zeros(len(noisy))
        prefix = np.concatenate([[0.0], np.cumsum(shares)]).clip(0.0, total)
        prefix[-1] = total
        return MonotoneCounts(edges, prefix)
