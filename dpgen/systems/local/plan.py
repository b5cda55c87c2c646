"""Privacy budgets of local users' draws, and public choices of finite samplers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpgen.privacy.mechanisms import require_within
from dpgen.systems.mbde.plan import DrawPlan

USER = "one user's whole distribution"
NEIGHBOURHOODS = (1.0, 1e100)
"""Range of the neighbourhood of a sampler around a prior, see `dpgen.systems.local.model.RelativeMollifier`."""


@dataclass(frozen=True, kw_only=True)
class LocalPlan(DrawPlan):
    """Draws per user under local privacy: any distribution may replace a user's (Husain et al. 2020, eq. 1).

    The number of users costs nothing; the draws of one user share its epsilon, and a user who takes part several times pays for
    each time.

    Arguments:
        epsilon: of everything that one user pays for, in nats; a draw gets at most 700 of them.
        draws: draws per user.

    Raises:
        ValueError: an argument is out of its range.

    >>> LocalPlan(epsilon=2.0, draws=4).per_draw
    0.5
    """

    limits: ClassVar[tuple[float, float]] = (0.0, 700.0)  # beyond, e^eps leaves the range of doubles

    @property
    def protected(self) -> str:
        return USER


@dataclass(frozen=True, kw_only=True)
class LocalConfig:
    """Public choices of a sampler with a prior.

    Arguments:
        reference_path: directory of a released model (or of its run) that the prior is read from: from the column that holds
            the categories, or from columns of 0 and 1 that are named like them.
    """

    reference_path: str | None = None


@dataclass(frozen=True, kw_only=True)
class MollifierConfig(LocalConfig):
    """Public choices of the sampler around a prior q.

    Arguments:
        neighbourhood: gamma >= 1 of the distributions P, with q / gamma <= P <= gamma q, that it is best for; None:
            e^(epsilon / 2). Others cost no privacy.
    """

    neighbourhood: float | None = None

    def __post_init__(self) -> None:
        if self.neighbourhood is not None:
            require_within("neighbourhood", self.neighbourhood, NEIGHBOURHOODS)
