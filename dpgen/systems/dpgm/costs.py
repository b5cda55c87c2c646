"""What a DPGM run costs, epoch by epoch, before it runs: the same plan under every accountant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from dpgen.privacy.accountants import Relation, epsilon
from dpgen.privacy.moments import general_moments_epsilon
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

if TYPE_CHECKING:
    from dp_accounting import DpEvent

GENERAL_MOMENTS = "general moments (as published, not a guarantee)"


@dataclass(frozen=True)
class EpochCost:
    """Epsilon in nats of a plan cut off after `steps` steps.

    Arguments:
        epoch: steps / steps per epoch.
        steps: training steps so far; finding the clusters is always included.
        tight: the guarantee under add_remove.
        rdp: the looser guarantee from Rényi moments, under add_remove.
        replace_one: the guarantee under replace_one.
        general_moments: as published by Acs et al. 2017, not a guarantee.
    """

    epoch: float
    steps: int
    tight: float
    rdp: float
    replace_one: float
    general_moments: float


def general_moments(plan: DPGMPlan, config: DPGMConfig) -> float:
    """Epsilon that the paper's own accounting would claim for a calibrated plan: as published, not a guarantee.

    It books the published schedule as if every step drew from all records, and releases no cluster sizes but k-means'.

    Source: Acs et al. 2017, Theorems 3 and 4; see `general_moments_epsilon`.

    Raises:
        ValueError: the plan is not calibrated.
    """
    if plan.sigma_sgd is None:
        raise ValueError("the plan's noise is not set: call calibrated() first")
    return general_moments_epsilon(
        sampling_rate=plan.sampling_rate,
        steps=plan.steps,
        sigma_norm=plan.sigma_norm if config.adaptive else None,
        sigma_sgd=plan.sigma_sgd,
        kmeans_rounds=plan.kmeans_rounds if config.kmeans else 0,
        sigma_kmeans=plan.sigma_sum if config.kmeans else None,
        sigma_count=plan.sigma_count if config.kmeans else None,
        delta=plan.delta,
    )


def epoch_cost(plan: DPGMPlan, config: DPGMConfig) -> EpochCost:
    """Every reading of epsilon at the end of a calibrated plan; with the published schedule, for equal clusters.

    Raises:
        ValueError: the plan is not calibrated.
    """

    def event(relation: Relation) -> DpEvent:
        return replace(plan, relation=relation).event(kmeans=config.kmeans, adaptive=config.adaptive, parts=config.parts)

    return EpochCost(
        epoch=plan.steps / plan.steps_per_epoch,
        steps=plan.steps,
        tight=epsilon(event("add_remove"), plan.delta),
        rdp=epsilon(event("add_remove"), plan.delta, accountant="rdp"),
        replace_one=epsilon(event("replace_one"), plan.delta, relation="replace_one"),
        general_moments=general_moments(plan, config),
    )


def epoch_costs(plan: DPGMPlan, config: DPGMConfig, *, rows: int = 20) -> list[EpochCost]:
    """Costs of a calibrated plan after at most `rows` evenly spaced whole epochs, and at its end.

    Raises:
        ValueError: the plan is not calibrated, or rows < 1.

    >>> config = DPGMConfig().resolved(n_classes=10)
    >>> plan = config.calibrate(DPGMPlan(sampling_rate=0.5, steps=5))
    >>> [(cost.epoch, round(cost.tight, 1)) for cost in epoch_costs(plan, config)]
    [(1.0, 2.0), (2.0, 2.7), (2.5, 3.0)]
    """
    if rows < 1:
        raise ValueError(f"rows is {rows}; it must be >= 1")
    length = plan.steps_per_epoch
    epochs = plan.steps // length
    ends = {ceil(i * epochs / rows) * length for i in range(1, rows + 1)} - {0} | {plan.steps}
    return [epoch_cost(replace(plan, steps=steps), config) for steps in sorted(ends)]
