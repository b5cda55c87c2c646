"""Privacy budgets of local users' draws, and public choices of finite samplers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpgen.privacy.mechanisms import require_within
from dpgen.systems.mbde.plan import DrawPlan

USER = "one user's whole distribution"
NEIGHBOURHOODS = (1.0, 1e100)
"""Of a sampler around a prior, see `dpgen.systems.local.samplers.RelativeMollifier`."""


@dataclass(frozen=True, kw_only=True)
class LocalPlan(DrawPlan):
    """Draws per user under local privacy: any distribution may replace a user's (Husain et al. 2020, eq. 1).

    The number of users costs nothing; the draws of one user share its epsilon, and a user who takes part several times pays for
    each time.

    Arguments:
        epsilon: of everything that one user pays for, in nats; a draw gets at most 700 of them.
        draws: draws per user.
        prior_epsilon: part of epsilon for measuring the prior on the users (a trusted curator's Laplace histogram); None if
            the prior is public.

    Raises:
        ValueError: an argument is out of its range.

    >>> LocalPlan(epsilon=2.0, draws=3, prior_epsilon=0.5).per_draw
    0.5
    """

    prior_epsilon: float | None = None
    limits: ClassVar[tuple[float, float]] = (0.0, 700.0)  # beyond, e^eps leaves the range of doubles

    def __post_init__(self) -> None:
        if self.prior_epsilon is not None and not 0 < self.prior_epsilon < self.epsilon:
            raise ValueError(
                f"prior_epsilon is {self.prior_epsilon!r}; it must lie in (0, {self.epsilon:g}), below epsilon, or None"
            )
        super().__post_init__()

    @property
    def per_draw(self) -> float:
        """Epsilon of one draw; rounded down, so that draws and prior together are never above epsilon."""
        prior = self.prior_epsilon or 0.0
        share = (self.epsilon - prior) / self.draws
        while math.fsum((prior, share * self.draws)) > self.epsilon:
            share = math.nextafter(share, 0.0)
        return share

    @property
    def protected(self) -> str:
        return USER


@dataclass(frozen=True, kw_only=True)
class PriorlessConfig:
    """Public choices of samplers that take only the number of categories from the prior: there are none."""


@dataclass(frozen=True, kw_only=True)
class LocalConfig:
    """Public choices of a sampler with a prior.

    Arguments:
        reference_path: directory of a released model (or of its run) that the prior is read from.
        reference_column: column of that model that holds the categories, where there are several.

    Raises:
        ValueError: a column of no model.
    """

    reference_path: str | None = None
    reference_column: str | None = None

    def __post_init__(self) -> None:
        if self.reference_column is not None and self.reference_path is None:
            raise ValueError(
                f"reference_column is {self.reference_column!r}, and reference_path is not given: it names the model"
            )


@dataclass(frozen=True, kw_only=True)
class MollifierConfig(LocalConfig):
    """Public choices of the sampler around a prior q.

    Arguments:
        neighbourhood: gamma >= 1 of the distributions P, with q / gamma <= P <= gamma q, that it is best for; None:
            e^(epsilon / 2). Others cost no privacy.
    """

    neighbourhood: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbourhood is not None:
            require_within("neighbourhood", self.neighbourhood, NEIGHBOURHOODS)
