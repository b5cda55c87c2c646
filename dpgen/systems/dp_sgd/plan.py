"""Privacy plan and configuration of a training by DP-SGD."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

from dpgen.privacy.ledger import Budget
from dpgen.privacy.mechanisms import Relation, count_event, effective_multiplier, gaussian_event, subsampled_gaussian_event
from dpgen.systems.plan import RowPlan, large

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.callbacks import Clipping

DEFAULT_EPSILON = 3.0
MOST_STEPS = 10**9
_FREQUENCIES = 100  # of a channel of large images
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
        lr: learning rate of the first step; of momentum in units that the networks choose.
        lr_decay: "linear" (to zero at the last step, which averages the noise away) or "none".
        clipping: "auto", "fixed" or "dpnorm".
        clip_bound: bound of "fixed", C_max of DPNorm.
        micro_batch: most records whose activations are in memory at once; one Poisson draw is split, never several joined.

    Raises:
        ValueError: a number out of its range.
    """

    optimizer: Literal["auto", "adam", "sgd"] = "auto"
    lr: float = 0.1
    lr_decay: Literal["linear", "none"] = "linear"
    clipping: Literal["auto", "fixed", "dpnorm"] = "auto"
    clip_bound: float = 10.0
    micro_batch: int = 1024

    def __post_init__(self) -> None:
        if self.micro_batch < 1:
            raise ValueError(f"micro_batch must be at least 1, got {self.micro_batch}")
        if not 0 < self.lr < float("inf"):
            raise ValueError(f"lr must be positive and finite, got {self.lr}")

    @property
    def releases_means(self) -> bool:
        """Whether the means of the clusters are released before training, see `MeansPlan`."""
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

    Give `epsilon` and the noise follows (`calibrated`); or give the sigmas and the ledger reports epsilon. A step of
    training releases (norm histogram, clipped sums) of one Poisson(q) draw, which one subsampled Gaussian with
    :math:`1/\sigma_{eff}^2 = 1/\sigma_C^2 + 1/\sigma_S^2` dominates. Before the first step the sizes of the clusters are
    released.

    Arguments:
        epsilon: budget in nats; None with `sigma_sgd` means: report what is spent. 3 when neither is given.
        delta: of the (epsilon, delta) guarantee, in (0, 1).
        relation: neighbouring relation of the budget, "add_remove" or "replace_one".
        sampling_rate: Poisson rate q in (0, 1].
        steps: training steps T.
        sigma_sgd: sigma_S, noise on clipped sums; None: calibrated.
        sigma_norm: sigma_C, noise on norm histograms; used by adaptive clipping only.
        sigma_count: noise on cluster sizes; None: from `partition_share`.
        partition_share: share of epsilon that clustering alone would use, in (0, 1).

    Source: Abadi et al. 2016, Algorithm 1.
    """

    epsilon: float | None = None
    delta: float = 1e-5
    relation: Relation = "add_remove"
    sampling_rate: float = 0.05
    steps: int = 1000
    sigma_sgd: float | None = None
    sigma_norm: float = 10.0
    sigma_count: float | None = None
    partition_share: float = 0.1
    several_rows: ClassVar[bool] = True
    gaussian: ClassVar[bool] = True
    reports: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.epsilon is None and self.sigma_sgd is None:
            object.__setattr__(self, "epsilon", DEFAULT_EPSILON)
        super().__post_init__()
        self._require_positive("sigma_sgd", "sigma_norm", "sigma_count")
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(f"sampling_rate must be in (0, 1], got {self.sampling_rate}")
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        if self.steps > MOST_STEPS:
            raise ValueError(f"steps is {self.steps}; it must be at most {MOST_STEPS:,}")
        if not 0 < self.partition_share < 1:
            raise ValueError(f"partition_share must be in (0, 1), got {self.partition_share}")

    def _require_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be positive and finite, got {value}")

    @property
    def steps_per_epoch(self) -> int:
        """`ceil(1 / sampling_rate)`."""
        return ceil(1 / self.sampling_rate - 1e-9)

    def noise_of_share(self, share: float) -> float:
        """Multiplier of a Gaussian that takes `share` of mu^2, with mu the parameter of the one that all of epsilon buys."""
        from dpgen.privacy.accountants import calibrate_noise

        whole = Budget(self.epsilon if self.epsilon is not None else DEFAULT_EPSILON, self.delta)
        return calibrate_noise(gaussian_event, whole, relation=self.relation) / share**0.5

    # -- events --------------------------------------------------------------------------------------------------------

    def partition_event(self, config: C) -> "DpEvent":
        """The release of the clusters: noisy sizes.

        Raises:
            ValueError: the plan is not calibrated.
        """
        if self.sigma_count is None:
            raise ValueError(NOT_CALIBRATED)
        return count_event(self.sigma_count, self.relation)

    def step_event(self, config: C) -> "DpEvent":
        """One training step.

        Raises:
            ValueError: the plan is not calibrated.
        """
        if self.sigma_sgd is None:
            raise ValueError(NOT_CALIBRATED)
        sigma = effective_multiplier(self.sigma_sgd, self.sigma_norm) if config.adaptive else self.sigma_sgd
        return subsampled_gaussian_event(self.sampling_rate, sigma)

    def event(self, config: C) -> "DpEvent":
        """The whole run of a calibrated plan."""
        from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

        return ComposedDpEvent([self.partition_event(config), SelfComposedDpEvent(self.step_event(config), self.steps)])

    def affordable_steps(self, config: C) -> int:
        """The steps that the budget covers, at most `steps`: fewer where given sigmas cost more.

        A function of public numbers, known before training begins.
        """
        if self.budget is None:
            return self.steps

        def fits(steps: int) -> bool:
            assert self.budget is not None
            return replace(self, steps=steps).least_epsilon(config) <= self.budget.epsilon

        if fits(self.steps):
            return self.steps
        low, high = 1, self.steps  # one step fits, or the plan would have been refused
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def least_epsilon(self, config: C) -> float:
        """Epsilon of the whole run at the plan's delta and relation."""
        from dpgen.privacy.accountants import epsilon

        return epsilon(self.event(config), self.delta, relation=self.relation)

    # -- calibration ---------------------------------------------------------------------------------------------------

    def calibrated(self, config: C) -> Self:
        """The plan with every sigma set: those not given are the smallest that keep the whole run within the budget.

        Raises:
            ValueError: the budget is too small for the sigmas that were given (says the smallest epsilon reachable), or a
                number that the configuration ignores.
        """
        from dpgen.privacy.accountants import calibrate_noise

        self.require_use(config)
        plan = self._with_partition_noise(config)
        if plan.sigma_sgd is not None:
            plan._require_first_step(config)
        if plan.sigma_sgd is not None or plan.budget is None:
            return plan
        sigma = calibrate_noise(
            lambda s: replace(plan, sigma_sgd=s).event(config),
            plan.budget,
            relation=self.relation,
        )
        return replace(plan, sigma_sgd=sigma)

    def _require_first_step(self, config: C) -> None:
        """Given sigmas may end training early, but not before it began."""
        if self.budget is None:
            return
        least = replace(self, steps=1).least_epsilon(config)
        if least > self.budget.epsilon:
            raise ValueError(
                f"epsilon is {self.epsilon:g}; finding the clusters and one step already cost {least:.4g} at delta "
                f"{self.delta:g}: raise epsilon, sigma_sgd, sigma_count or sigma_sum, or leave the sigmas to be calibrated"
            )

    def _with_partition_noise(self, config: C) -> Self:
        if self.sigma_count is not None:
            return self
        return replace(self, sigma_count=self._partition_noise(lambda sigma: count_event(sigma, self.relation)))

    def _partition_noise(self, event: "Callable[[float], DpEvent]") -> float:
        """The least noise with which `event` alone costs `partition_share` of epsilon."""
        from dpgen.privacy.accountants import calibrate_noise

        target = self.epsilon if self.epsilon is not None else DEFAULT_EPSILON
        try:
            return calibrate_noise(event, Budget(self.partition_share * target, self.delta), relation=self.relation)
        except ValueError as error:
            name = f"partition_share {self.partition_share:g} of epsilon {target:g}"
            raise ValueError(f"{name} cannot be met: {error}") from error


@dataclass(frozen=True, kw_only=True)
class MeansPlan(DPSGDPlan[C]):
    """A plan of networks that may begin at released means of their clusters, see `dpgen.systems.dp_sgd.means`.

    Arguments:
        means_share: share of mu^2 that the released means of the clusters take, in (0, 1), with mu the parameter of the one
            Gaussian that all of epsilon would pay for.
        sigma_means: noise on these means; None: from `means_share`.
    """

    means_share: float = 0.1
    sigma_means: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_positive("sigma_means")
        if not 0 < self.means_share < 1:
            raise ValueError(f"means_share is {self.means_share}; it must be in (0, 1)")

    def _require_means(self) -> None:
        """Refuse numbers of means where none are released."""
        for name in ("means_share", "sigma_means"):
            if (value := getattr(self, name)) != getattr(MeansPlan, name):
                raise ValueError(f"{name} is {value}; this run releases no means: it needs centred")

    def partition_event(self, config: C) -> "DpEvent":
        """The release of the clusters, and of their means where networks begin there."""
        from dp_accounting import ComposedDpEvent

        clusters = self._clusters_event(config)
        if not config.releases_means:
            return clusters
        if self.sigma_means is None:
            raise ValueError(NOT_CALIBRATED)
        return ComposedDpEvent([clusters, gaussian_event(self.sigma_means)])

    def _clusters_event(self, config: C) -> "DpEvent":
        return super().partition_event(config)

    def _with_partition_noise(self, config: C) -> Self:
        plan = self._with_cluster_noise(config)
        if not config.releases_means or plan.sigma_means is not None:
            return plan
        return replace(plan, sigma_means=plan.noise_of_share(plan.means_share))

    def _with_cluster_noise(self, config: C) -> Self:
        return super()._with_partition_noise(config)
