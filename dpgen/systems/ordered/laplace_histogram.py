"""Counts of public cells with integer Laplace noise: the whole domain, when it is small (Theorem 3)."""

from dataclasses import dataclass

import numpy as np

from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import SecureSource, require_secure
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.knots import Integers, MonotoneCounts
from dpgen.systems.ordered.public_limits import CELLS
from dpgen.systems.ordered.sensitivities import cells_l1
from dpgen.systems.simplex_projection import project_to_simplex

MOST_CELLS = CELLS[1]


def noise_scale(epsilon: float, relation: Relation) -> float:
    """Scale of the noise on counts of disjoint cells: L1 sensitivity / epsilon, 1 (add/remove) or 2 (replace-one) / eps.

    Diakonikolas, Hardt and Schmidt 2015, Theorem 3, add Laplace(1 / (epsilon n)) to shares, which is half of what
    replacing a record needs; shares also need n, which is private under add/remove.

    >>> noise_scale(0.5, "replace_one")
    4.0
    """
    return cells_l1(relation) / epsilon


@dataclass(frozen=True, kw_only=True)
class LaplaceHistogram(OrderedEstimator):
    """The count of every value plus integer Laplace noise, projected to the simplex; epsilon-private, delta 0.

    Under add/remove counts are normalised by their own noisy sum, or by the public size. For small domains and
    categories: the error grows with N / (epsilon n).

    Source: Diakonikolas, Hardt, Schmidt 2015, Theorem 3, with the scale of `noise_scale`.
    """

    def require_domain(self, N: int, relation: Relation) -> None:
        """Refuse a domain that these cells do not fit."""
        self.edges(N)

    def edges(self, N: int) -> Integers:
        """Public cell ends (m + 1,) from 0 to N."""
        if N > MOST_CELLS:
            raise ValueError(f"N is {N}; a histogram of all values needs N <= {MOST_CELLS}: use method 'partition' or 'fixed'")
        return np.arange(N + 1, dtype=np.int64)

    def _fit_counts(self, values: Integers, *, N: int, ledger: Ledger, source: SecureSource) -> MonotoneCounts:
        """Noisy monotone prefix counts of sorted values (n,) int64 in [0, N)."""
        source, edges = require_secure(source), self.edges(N)
        ledger.charge(pure_event(self.epsilon), note=f"counts of {len(edges) - 1} public cells")
        counts = np.diff(np.searchsorted(values, edges))
        noise = source.discrete_laplace(len(counts), scale=noise_scale(self.epsilon, ledger.relation)).numpy()
        noisy = (counts + noise).astype(np.float64)
        total = float(len(values)) if ledger.relation == "replace_one" else float(self.size or max(noisy.sum(), 1.0))
        prefix = np.concatenate([[0.0], np.cumsum(project_to_simplex(noisy, total))]).clip(0.0, total)
        prefix[-1] = total
        return MonotoneCounts(edges, prefix)
