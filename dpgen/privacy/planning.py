"""What a DPGM run will cost before it runs, and how much noise a budget asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpgen.privacy.accountants import epsilon
from dpgen.privacy.calibration import calibrate_noise
from dpgen.privacy.ledger import Budget
from dpgen.privacy.mechanisms import effective_multiplier, gaussian_event, subsampled_gaussian_event
from dpgen.privacy.moments import general_moments_epsilon

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class EpochCost:
    """Epsilon after `steps` steps: two guarantees under add_remove, the published value, and replace_one."""

    epoch: float
    steps: int
    tight: float
    rdp: float
    general_moments: float  # as published, not a guarantee
    replace_one: float


@dataclass(frozen=True)
class Schedule:
    """Joint DPGM schedule: `kmeans_rounds` Gaussian rounds, then `steps` Poisson steps at `sampling_rate`.

    All sigmas are noise multipliers (std / add-remove sensitivity). A step releases the clipped sum (`sigma_sgd`)
    and, with DPNorm, a histogram (`sigma_norm`) of the same draw: one Gaussian with `effective_multiplier(sigma_norm,
    sigma_sgd)`. A k-means round releases counts (`sigma_count`) and sums (`sigma_sum`).

    Raises:
        ValueError: a number outside its range, or k-means rounds without their sigmas.

    >>> schedule = Schedule(sampling_rate=0.0017, steps=11765, sigma_sgd=1.0, delta=1e-5)
    >>> round(schedule.epsilon(), 2), schedule.steps_per_epoch
    (0.93, 589)
    """

    sampling_rate: float
    steps: int
    sigma_sgd: float
    delta: float
    sigma_norm: float | None = None
    kmeans_rounds: int = 0
    sigma_count: float | None = None
    sigma_sum: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(f"sampling_rate is {self.sampling_rate!r}; it must lie in (0, 1]")
        for name in ("steps", "kmeans_rounds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be >= 0")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta is {self.delta!r}; it must lie in (0, 1)")
        for name in ("sigma_sgd", "sigma_norm", "sigma_count", "sigma_sum"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value!r}; it must be a finite number > 0")
        if self.kmeans_rounds and (self.sigma_count is None or self.sigma_sum is None):
            raise ValueError(f"kmeans_rounds is {self.kmeans_rounds}; give sigma_count and sigma_sum with it")

    @property
    def steps_per_epoch(self) -> int:
        """`ceil(1 / sampling_rate)`, as the paper counts."""
        return math.ceil(1 / self.sampling_rate - 1e-9)

    def event(self, steps: int | None = None) -> DpEvent:
        """The plan, or its first `steps` steps after k-means."""
        from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

        parts = []
        if self.kmeans_rounds and self.sigma_count is not None and self.sigma_sum is not None:
            parts.append(gaussian_event(effective_multiplier(self.sigma_count, self.sigma_sum), self.kmeans_rounds))
        count = self.steps if steps is None else steps
        if count:
            sigma = effective_multiplier(self.sigma_sgd, self.sigma_norm or math.inf)
            parts.append(SelfComposedDpEvent(subsampled_gaussian_event(self.sampling_rate, sigma), count))
        return ComposedDpEvent(parts)

    def epsilon(self) -> float:
        """Guaranteed epsilon (nats) of the whole plan under add_remove."""
        return epsilon(self.event(), self.delta)

    def cost(self, steps: int) -> EpochCost:
        """Every reading of epsilon after `steps` steps."""
        event = self.event(steps)
        return EpochCost(
            epoch=steps / self.steps_per_epoch,
            steps=steps,
            tight=epsilon(event, self.delta),
            rdp=epsilon(event, self.delta, accountant="rdp"),
            general_moments=general_moments_epsilon(
                sampling_rate=self.sampling_rate,
                steps=steps,
                sigma_sgd=self.sigma_sgd,
                sigma_norm=self.sigma_norm,
                kmeans_rounds=self.kmeans_rounds,
                sigma_kmeans=self.sigma_sum,
                sigma_count=self.sigma_count,
                delta=self.delta,
            ),
            replace_one=epsilon(event, self.delta, relation="replace_one"),
        )

    def by_epoch(self, rows: int = 20) -> list[EpochCost]:
        """Costs after (at most `rows`) evenly spaced whole epochs and at the end."""
        epochs = self.steps // self.steps_per_epoch
        shown = sorted({math.ceil(i * epochs / rows) * self.steps_per_epoch for i in range(1, rows + 1)} | {self.steps})
        return [self.cost(steps) for steps in shown if steps or not self.steps]

    def calibrated(self, budget: Budget) -> Schedule:
        """The same plan with the least SGD noise that `budget` allows.

        Raises:
            ValueError: k-means and DPNorm alone exceed the budget; the message states the smallest epsilon reachable.
        """
        sigma = calibrate_noise(lambda s: replace(self, sigma_sgd=s).event(), budget)
        return replace(self, sigma_sgd=sigma, delta=budget.delta)
