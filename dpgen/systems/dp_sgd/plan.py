"""Privacy plan and configuration of a training by DP-SGD."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.mechanisms import (
    Relation,
    Sampling,
    allocated_gaussian_event,
    count_event,
    effective_multiplier,
    gaussian_event,
    require_positive,
    require_whole,
    steps_of_epoch,
    subsampled_gaussian_event,
)
from dpgen.systems.plan import CALIBRATED, RowPlan, large

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.callbacks import Clipping

DEFAULT_EPSILON = 3.0
MOST_STEPS = 10**9
_FREQUENCIES = 100  # of a channel of large images
_ROUNDING = 1e-6
SIZES, MEANS = "cluster sizes", "cluster means"
"""Notes of what is released of clusters that labels make, and of any."""

STEPS, EPOCHS = "training steps", "training epochs"
NOTES: dict[Sampling, str] = {"poisson": STEPS, "allocation": EPOCHS}
"""Notes of training steps in the ledger, and of epochs of random allocation."""

NOT_CALIBRATED = "the plan's noise is not set: call calibrated() first"


def require_frequencies(asked: int | None) -> None:
    """Refuse a number of frequencies that is none."""
    if asked is not None and asked < 0:
        raise ValueError(f"frequencies is {asked}; it must be at least 1, or 0 for pixels")


def chosen_frequencies(asked: int | None, image_shape: tuple[int, ...] | None) -> int | None:
    """Lowest frequencies of each channel that networks see in place of pixels; None: pixels, which is what 0 asks for.

    >>> chosen_frequencies(None, (28, 28)), chosen_frequencies(None, (8, 8)), chosen_frequencies(0, (28, 28))
    (100, None, None)
    """
    if asked is not None:
        return asked or None
    return _FREQUENCIES if large(image_shape) else None


@dataclass(frozen=True, kw_only=True)
class DPSGDConfig:
    """Optimizer and clipping of DP-SGD; none of these choices is private.

    Arguments:
        optimizer: "adam", "sgd", or "auto": what the networks say, momentum for centred ones and Adam for others.
        lr: learning rate of the first step; of momentum in units that the networks choose. It falls linearly to zero, which
            averages the noise away.
        clipping: "auto", "fixed" or "dpnorm".
        clip_bound: bound of "fixed", C_max of DPNorm.
        micro_batch: most records whose activations are in memory at once; one Poisson draw is split, never several joined.

    """

    optimizer: Literal["auto", "adam", "sgd"] = "auto"
    lr: float = 0.1
    clipping: Literal["auto", "fixed", "dpnorm"] = "auto"
    clip_bound: float = 10.0
    micro_batch: int = 1024

    def __post_init__(self) -> None:
        require_whole("micro_batch", self.micro_batch)
        require_positive("lr", self.lr)
        require_positive("clip_bound", self.clip_bound)

    @property
    def releases_means(self) -> bool:
        """Whether the means of the clusters are released before training, see `dpgen.systems.dp_sgd.partition`."""
        return False

    @property
    def adaptive(self) -> bool:
        """Whether steps release a norm histogram."""
        return self.clipping == "dpnorm"

    def clipping_callback(self, plan: "DPSGDPlan[Any]") -> "Clipping":
        """The clipping policy as a Lightning callback."""
        from dpgen.callbacks import AutomaticClipping, BoundedClipping, DPNorm

        if self.clipping == "auto":
            return AutomaticClipping()
        if self.clipping == "fixed":
            return BoundedClipping(bound=self.clip_bound)
        return DPNorm(noise_multiplier=plan.sigma_norm, c_max=self.clip_bound)


C = TypeVar("C", bound=DPSGDConfig)


@dataclass(frozen=True, kw_only=True)
class DPSGDPlan(RowPlan, Generic[C]):
    r"""Public, data-independent numbers of a training by DP-SGD; noise multipliers are std / add-remove sensitivity.

    Give `epsilon` and the noise follows (`calibrated`); or give `noise_multiplier` and the ledger reports epsilon. A step of
    training releases (norm histogram, clipped sums) of one Poisson(q) draw, which one subsampled Gaussian with
    :math:`1/\sigma_{eff}^2 = 1/\sigma_C^2 + 1/\sigma_S^2` dominates. Before the first step the sizes of the clusters are
    released, and their means where networks begin at these. Their noise, `sigma_count` and `sigma_means`, follows from shares
    of epsilon, of 3 where it is not given; these and `sigma_norm`, sigma_C, are fields of the plan and no options.

    Arguments:
        epsilon: budget in nats; None with `noise_multiplier` means: report what is spent. 3 when neither is given.
        delta: of the (epsilon, delta) guarantee, in (0, 1).
        relation: neighbouring relation of the budget, "add_remove" or "replace_one".
        sampling_rate: rate q in (0, 1] at which records take part in a step.
        sampling: "poisson": by a coin for each record and step; "allocation": each record takes part in one step of an epoch of
            1 / q steps, drawn by itself, which costs a little less. Under add_remove only; a last epoch that is cut costs all.
        steps: training steps T.
        noise_multiplier: sigma_S, noise std of clipped sums / the clip bound; None: calibrated.
        partition_share: share of epsilon that clustering alone would use, in (0, 1).
        means_share: share of mu^2 that the released means of the clusters take, in (0, 1), with mu the parameter of the one
            Gaussian that all of epsilon would pay for.

    Source: Abadi et al. 2016, Algorithm 1.
    """

    epsilon: float | None = None
    delta: float = 1e-5
    relation: Relation = "add_remove"
    sampling_rate: float = 0.05
    sampling: Sampling = "poisson"
    steps: int = 1000
    noise_multiplier: float | None = None
    partition_share: float = 0.1
    means_share: float = 0.1
    sigma_norm: float = field(default=10.0, metadata=CALIBRATED)
    sigma_count: float | None = field(default=None, metadata=CALIBRATED)
    sigma_means: float | None = field(default=None, metadata=CALIBRATED)
    several_rows: ClassVar[bool] = True
    gaussian: ClassVar[bool] = True
    reports: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.epsilon is None and self.noise_multiplier is None:
            object.__setattr__(self, "epsilon", DEFAULT_EPSILON)
        super().__post_init__()
        self._require_noise()
        steps_of_epoch(self.sampling_rate, self.sampling)
        if self.sampling == "allocation" and self.relation != "add_remove":
            raise ValueError(f"relation is {self.relation!r}; it must be 'add_remove' with sampling='allocation'")
        if require_whole("steps", self.steps) > MOST_STEPS:
            raise ValueError(f"steps is {self.steps}; it must be at most {MOST_STEPS:,}")
        for option in ("partition_share", "means_share"):
            if not 0 < getattr(self, option) < 1:
                raise ValueError(f"{option} is {getattr(self, option)}; it must be in (0, 1)")

    def _require_noise(self) -> None:
        for option in ("noise_multiplier", *(own.name for own in fields(self) if own.name.startswith("sigma_"))):
            value = getattr(self, option)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{option} must be positive and finite, got {value}")

    # -- events --------------------------------------------------------------------------------------------------------

    def clusters(self, config: C) -> tuple[Planned, ...]:
        """Releases of the clusters: noisy sizes."""
        if self.sigma_count is None:
            raise ValueError(NOT_CALIBRATED)
        return (Planned(count_event(self.sigma_count, self.relation), SIZES),)

    def planned(self, config: C) -> tuple[Planned, ...]:
        """Everything that a calibrated plan releases: the clusters, their means where networks begin there, and the steps."""
        lines = list(self.clusters(config))
        if config.releases_means:
            if self.sigma_means is None:
                raise ValueError(NOT_CALIBRATED)
            lines.append(Planned(gaussian_event(self.sigma_means), MEANS))
        return (*lines, self.steps_planned(config))

    def steps_planned(self, config: C) -> Planned:
        """All steps of training."""
        return Planned(self.step_event(config), NOTES[self.sampling], self.events)

    @property
    def drawn(self) -> dict[str, Any]:
        """Arguments of `PoissonLoader`: the way of records into steps."""
        return {"sampling_rate": self.sampling_rate, "sampling": self.sampling}

    @property
    def together(self) -> int:
        """Steps that are paid for by one event: all of an epoch of random allocation."""
        return steps_of_epoch(self.sampling_rate, self.sampling) if self.sampling == "allocation" else 1

    @property
    def events(self) -> int:
        """Events of all steps."""
        return -(-self.steps // self.together)

    def multipliers(self, config: C) -> tuple[float, ...]:
        """Noise of the releases of one step."""
        if self.noise_multiplier is None:
            raise ValueError(NOT_CALIBRATED)
        return (self.noise_multiplier, self.sigma_norm) if config.adaptive else (self.noise_multiplier,)

    def step_event(self, config: C) -> "DpEvent":
        """One training step, or an epoch of random allocation."""
        sigma = effective_multiplier(*self.multipliers(config))
        if self.sampling == "allocation":
            return allocated_gaussian_event(self.together, sigma)
        return subsampled_gaussian_event(self.sampling_rate, sigma)

    def event(self, config: C) -> "DpEvent":
        """The whole run of a calibrated plan."""
        from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

        return ComposedDpEvent([SelfComposedDpEvent(line.event, line.count) for line in self.planned(config)])

    # -- calibration ---------------------------------------------------------------------------------------------------

    def calibrated(self, config: C) -> Self:
        """The plan with all of its noise set: what is not given is the least that keeps the whole run within the budget.

        Raises:
            ValueError: the budget is too small for the noise that was given; says what it costs. Or a number of released
                means where the configuration releases none.
        """
        from dpgen.privacy.accountants import calibrate_noise, epsilon

        for option in ("means_share", "sigma_means"):
            if not config.releases_means and getattr(self, option) != getattr(DPSGDPlan, option):
                raise ValueError(f"{option} is {getattr(self, option)}; this run releases no means: it needs centred")
        plan = self._with_cluster_noise(config)
        if config.releases_means and plan.sigma_means is None:
            whole = Budget(self._target, self.delta)
            of_all = calibrate_noise(gaussian_event, whole, relation=self.relation)
            plan = replace(plan, sigma_means=of_all / self.means_share**0.5)
        if plan.budget is None:
            return plan
        if plan.noise_multiplier is None:
            given = partial(replace, plan)
            noise = calibrate_noise(lambda s: given(noise_multiplier=s).event(config), plan.budget, relation=self.relation)
            return given(noise_multiplier=noise)
        cost = epsilon(plan.event(config), self.delta, relation=self.relation)
        if cost > plan.budget.epsilon * (1 + _ROUNDING):
            raise ValueError(
                f"epsilon is {self.epsilon:g}; {self.steps} steps of the given noise cost {cost:.4g} at delta {self.delta:g}: "
                "raise epsilon or noise_multiplier, or leave the noise to be calibrated"
            )
        return plan

    @property
    def _target(self) -> float:
        return self.epsilon if self.epsilon is not None else DEFAULT_EPSILON

    def _with_cluster_noise(self, config: C) -> Self:
        """The plan whose clusters alone cost `partition_share` of epsilon, where their noise is not given."""
        if self.sigma_count is not None:
            return self
        return replace(self, sigma_count=self._cluster_noise(lambda sigma: count_event(sigma, self.relation)))

    def _cluster_noise(self, event: "Callable[[float], DpEvent]") -> float:
        """The least noise with which `event` alone costs `partition_share` of epsilon."""
        from dpgen.privacy.accountants import calibrate_noise

        try:
            return calibrate_noise(event, Budget(self.partition_share * self._target, self.delta), relation=self.relation)
        except ValueError as error:
            name = f"partition_share {self.partition_share:g} of epsilon {self._target:g}"
            raise ValueError(f"{name} cannot be met: {error}") from error
