"""Releases of DP k-means and the division of its noise: numbers only, so that planning needs no tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpgen.privacy.mechanisms import count_event, effective_multiplier, gaussian_event, require_positive, require_whole

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.accountants import Relation
    from dpgen.privacy.ledger import Planned

ROUND = "k-means: counts and sums of a round"
COUNTS = "k-means: counts of the final clusters"

SUM_STEP = 2.0**-23
"""Grid of what a round adds up, in units of the norm bound."""
_MOST_WEIGHT = 2.0**10


def round_sensitivity(weight: float) -> float:
    r"""Add/remove sensitivity of (weight * count, sum / C) of clusters: :math:`\sqrt{w^2 + 1}`.

    A record adds (w, z), |z| <= 1, to one cluster and nothing to the others.
    """
    return math.sqrt(1.0 + weight**2)


def round_replaced(weight: float) -> float:
    r"""Sensitivity of these when a record is replaced: :math:`\max(2, \sqrt{2 (1 + w^2)})`.

    Within a cluster the count stays and the sum moves by |z - z'| <= 2; from one cluster to another two of them move by
    (w, z) and (w, z').
    """
    return max(2.0, math.sqrt(2.0) * round_sensitivity(weight))


@dataclass(frozen=True, kw_only=True)
class KMeansPlan:
    r"""Releases of k-means: T rounds of (counts, sums), then the counts of the final clusters.

    .. math:: \mu^2 = T (1/\sigma_n^2 + 1/\sigma_s^2) + 1/\sigma_n^2

    A record is in one cluster and its feature vector has norm at most C, so a round is one Gaussian mechanism of
    multiplier :math:`(1/\sigma_n^2 + 1/\sigma_s^2)^{-1/2}` under add/remove-one: the release of (w counts, sums / C) with
    :math:`w = \sigma_s / \sigma_n` and one noise. A replaced record moves the sum of its cluster by 2, or counts and sums of
    two clusters, and costs less than two records do:

    .. math:: \mu^2 = T \max(4 / \sigma_s^2, \ 2/\sigma_n^2 + 2/\sigma_s^2) + 2/\sigma_n^2

    sigma_n (`noise_count`) is the std of the noise on counts, sigma_s (`noise_sum`) on sums of features / norm bound C. At
    60,000 records and 10 clusters 5 rounds serve best at epsilon .1, 20 from .2 on. `repair` shrinks noisy centres and splits
    crowded clusters (post-processing, see `update_centres`); False is the standard method.

    >>> KMeansPlan(noise_count=10.0, noise_sum=2.0, rounds=4).multiplier("add_remove")
    0.97590...
    """

    noise_count: float
    noise_sum: float
    rounds: int = 20
    repair: bool = True

    def __post_init__(self) -> None:
        require_positive("noise_count", self.noise_count)
        require_positive("noise_sum", self.noise_sum)
        require_whole("rounds", self.rounds)

    @classmethod
    def from_multiplier(
        cls, noise_multiplier: float, *, rounds: int, n_features: int, repair: bool = True, relation: Relation = "add_remove"
    ) -> KMeansPlan:
        r"""The plan that costs exactly as much as one Gaussian of this multiplier.

        Noise of a centre c is :math:`(\sqrt d \sigma_s C)^2 + (|c| \sigma_n)^2` over the squared count, least for
        :math:`\sigma_n / \sigma_s = (\sqrt d C / |c|)^{1/2}`. Centres are private, so |c| = C/2 is taken; the optimum
        is flat (5.3 at d = 200). The paper's equal noise costs 1.85 times in centre error. Under replace-one a round costs
        the same whatever :math:`\sigma_n \ge \sigma_s` is, only the last counts cost more: the least error is at
        :math:`\sigma_n / \sigma_s = \max(1, (2 d / T)^{1/4})`.
        Under replace-one mu = 2 / `noise_multiplier`, as in a ledger.
        """
        require_positive("noise_multiplier", noise_multiplier)
        require_whole("rounds", rounds)
        require_whole("n_features", n_features)
        if relation == "replace_one":
            ratio = max(1.0, (2.0 * n_features / rounds) ** 0.25)
        else:
            ratio = (2.0 * math.sqrt(n_features)) ** 0.5
        unit = cls(noise_count=ratio, noise_sum=1.0, rounds=rounds, repair=repair)
        noise_sum = noise_multiplier / unit.multiplier(relation)
        return cls(noise_count=ratio * noise_sum, noise_sum=noise_sum, rounds=rounds, repair=repair)

    @property
    def weight(self) -> float:
        """w = sigma_s / sigma_n on the grid of the sums: what a count is multiplied by, so that one noise serves both."""
        return min(max(round(self.noise_sum / self.noise_count / SUM_STEP), 1) * SUM_STEP, _MOST_WEIGHT)

    def multiplier(self, relation: Relation) -> float:
        """The one Gaussian, as a ledger of this relation reads it, that equals the whole plan."""
        parts = [line.event.noise_multiplier for line in self.planned(relation) for _ in range(line.count)]
        return effective_multiplier(*parts)

    @property
    def round_multiplier(self) -> float:
        """Noise std / add-remove sensitivity of one joint release of counts and sums."""
        return effective_multiplier(self.noise_count, self.noise_sum)

    def planned(self, relation: Relation) -> tuple[Planned, ...]:
        """Joint releases of counts and sums, then the final counts, as a ledger of this relation declares them."""
        from dpgen.privacy.ledger import Planned

        of_round = self.round_multiplier
        if relation == "replace_one":  # whose ledger doubles the sensitivity of every Gaussian
            of_round *= 2.0 * round_sensitivity(self.weight) / round_replaced(self.weight)
        return Planned(gaussian_event(of_round), ROUND, self.rounds), Planned(count_event(self.noise_count, relation), COUNTS)

    def event(self, relation: Relation) -> DpEvent:
        """Everything that the plan releases, in a ledger of this relation."""
        from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

        return ComposedDpEvent([SelfComposedDpEvent(line.event, line.count) for line in self.planned(relation)])
