"""The public choices of a DPGM run: what it may spend (the only numbers that reach the ledger), and the model.

Public choices of components that are networks, as fields of the DPGM configuration.

The public choices of a DPGM run: what it may spend (the only numbers that reach the ledger), and the model.
"""

from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpgen.privacy.accountants import Relation, calibrate_noise, epsilon
from dpgen.privacy.filters import Filter
from dpgen.privacy.ledger import Budget
from dpgen.privacy.mechanisms import effective_multiplier, gaussian_event, subsampled_gaussian_event
from dpgen.systems.gaussian.plan import GaussianOptions
from dpgen.systems.kmeans.plan import KMeansPlan, count_event
from dpgen.systems.plan import Plan

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.callbacks import Clipping
    from dpgen.nets import ModelBank

# -- network options ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """Networks, how DP-SGD trains them, and the k-means that finds their clusters; none of these choices is private.

    Arguments:
        hidden: hidden units.
        latent: latent dimension (vae).
        depth: hidden layers each way (vae).
        label_weight: how often the log-likelihood of a label column counts (vae).
        chains: persistent chains per model (rbm).
        gibbs_steps: sweeps per step (rbm).
        optimizer: "adam" or "sgd".
        lr: learning rate of the first step.
        lr_decay: "linear" (to zero at the last step, which averages the noise away) or "none".
        schedule: "joint" (every model moves in every step) or "published" (one cluster per step, at its true cost).
        clipping: "auto", "fixed", "dpnorm", "dpnorm_published" or "quantile".
        clip_bound: bound of "fixed", first bound of "quantile", C_max of DPNorm.
        micro_batch: most records whose activations are in memory at once; one Poisson draw is split, never several joined.
        gamma: RBF kernel exp(-gamma |x - y|^2) of k-means.
        n_features: random Fourier features of k-means.
        init: initial centres of k-means: "random", "public" or "kmeans++" (the last two need public records).
        warm_start: directory of a released model whose samples the networks learn from before private training.
        warm_start_steps: of that learning.
        warm_start_origin: whether the release is of the same "records", and its cost part of the budget, or "public".
    """

    hidden: int = 200
    latent: int = 10
    depth: int = 1
    label_weight: float = 10.0
    chains: int = 64
    gibbs_steps: int = 1
    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = 0.1
    lr_decay: Literal["linear", "none"] = "linear"
    schedule: Literal["joint", "published"] = "joint"
    clipping: Literal["auto", "fixed", "dpnorm", "dpnorm_published", "quantile"] = "auto"
    clip_bound: float = 10.0
    micro_batch: int = 1024
    gamma: float = 0.01
    n_features: int = 200
    init: Literal["random", "public", "kmeans++"] = "random"
    warm_start: Path | None = None
    warm_start_steps: int = 2000
    warm_start_origin: Literal["records", "public"] = "records"

    def require_networks(self) -> None:
        """Refuse numbers out of range.

        Raises:
            ValueError: naming the option, its value and what is allowed.
        """
        if self.micro_batch < 1:
            raise ValueError(f"micro_batch must be at least 1, got {self.micro_batch}")
        if not 0 < self.lr < float("inf"):
            raise ValueError(f"lr must be positive and finite, got {self.lr}")

    @property
    def adaptive(self) -> bool:
        """Whether steps release a norm histogram."""
        return self.clipping not in ("auto", "fixed")


# -- dpgm options ------------------------------------------------------------------------------------------------------


DEFAULT_EPSILON = 3.0

_OF_GAUSSIANS = ("epsilon", "delta", "relation", "public_n")


def _require_defaults(options: object, ignored: "Iterable[Field[Any]]", component: str) -> None:
    """Refuse options that the component ignores."""
    users = "'vae' or 'rbm'" if component == "gaussian" else "'gaussian'"
    for option in ignored:
        value = getattr(options, option.name)
        if value != option.default:
            raise ValueError(f"{option.name} is {value}, which only component {users} uses; component is {component!r}")


@dataclass(frozen=True, kw_only=True)
class DPGMPlan(Plan):
    r"""Public, data-independent numbers of a run; noise multipliers are std / add-remove sensitivity.

    Give `epsilon` and the noise follows (`calibrated`); or give the sigmas and the ledger reports epsilon. A step of
    training releases (norm histogram, clipped sums) of one Poisson(q) draw, which one subsampled Gaussian with
    :math:`1/\sigma_{eff}^2 = 1/\sigma_C^2 + 1/\sigma_S^2` dominates; a k-means round releases (counts, sums).

    Arguments:
        epsilon: budget in nats; None with `sigma_sgd` means: report what is spent. 3 when neither is given.
        delta: of the (epsilon, delta) guarantee, in (0, 1).
        relation: neighbouring relation of the budget, "add_remove" or "replace_one".
        sampling_rate: Poisson rate q in (0, 1].
        steps: training steps T.
        sigma_sgd: sigma_S, noise on clipped sums; None: calibrated.
        sigma_norm: sigma_C, noise on norm histograms; used by adaptive clipping only.
        kmeans_rounds: rounds T_K of k-means.
        sigma_count: noise on cluster sizes; None: from `partition_share`.
        sigma_sum: noise on sums of unit-norm features; None: from `partition_share`.
        partition_share: share of epsilon that clustering alone would use, in (0, 1).
        public_n: number of records, if it is declared public; used by component="gaussian" only, and None: a noisy number.

    Source: Acs et al. 2017, Algorithm 1, with the corrected joint schedule.
    """

    epsilon: float | None = None
    delta: float = 1e-5
    relation: Relation = "add_remove"
    sampling_rate: float = 0.05
    steps: int = 1000
    sigma_sgd: float | None = None
    sigma_norm: float = 10.0
    kmeans_rounds: int = 5
    sigma_count: float | None = None
    sigma_sum: float | None = None
    partition_share: float = 0.1
    public_n: int | None = None
    gaussian: ClassVar[bool] = True
    reports: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.epsilon is None and self.sigma_sgd is None:
            object.__setattr__(self, "epsilon", DEFAULT_EPSILON)
        super().__post_init__()
        for name in ("sigma_sgd", "sigma_norm", "sigma_count", "sigma_sum"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be positive and finite, got {value}")
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(f"sampling_rate must be in (0, 1], got {self.sampling_rate}")
        if min(self.steps, self.kmeans_rounds) < 1:
            raise ValueError(f"steps and kmeans_rounds must be at least 1, got {self.steps} and {self.kmeans_rounds}")
        if self.public_n is not None and self.public_n < 1:
            raise ValueError(f"public_n must be at least 1, got {self.public_n}")
        if not 0 < self.partition_share < 1:
            raise ValueError(f"partition_share must be in (0, 1), got {self.partition_share}")

    def require_use(self, config: object) -> None:
        """Refuse numbers that the component ignores: those of training with Gaussians, `public_n` with networks.

        Raises:
            ValueError: naming the number, its value and the components that use it.
        """
        if not isinstance(config, DPGMConfig):
            return
        closed = config.component == "gaussian"
        ignored = [f for f in fields(DPGMPlan) if (f.name not in _OF_GAUSSIANS if closed else f.name == "public_n")]
        _require_defaults(self, ignored, config.component)

    @property
    def steps_per_epoch(self) -> int:
        """`ceil(1 / sampling_rate)`, as the paper counts."""
        return ceil(1 / self.sampling_rate - 1e-9)

    def kmeans_plan(self) -> KMeansPlan:
        """Rounds and noise of k-means."""
        if self.sigma_count is None or self.sigma_sum is None:
            raise ValueError("the plan's k-means noise is not set: call calibrated() first")
        return KMeansPlan(noise_count=self.sigma_count, noise_sum=self.sigma_sum, rounds=self.kmeans_rounds)

    def partition_event(self, *, kmeans: bool) -> "DpEvent":
        """Everything that finding the clusters releases: noisy sizes, and with k-means its rounds."""
        if kmeans:
            return self.kmeans_plan().event(self.relation)
        if self.sigma_count is None:
            raise ValueError("the plan's noise is not set: call calibrated() first")
        return count_event(self.sigma_count, self.relation)

    def step_event(self, *, adaptive: bool, rate: float | None = None) -> "DpEvent":
        """One training step at Poisson rate `rate` (default: sampling_rate)."""
        if self.sigma_sgd is None:
            raise ValueError("the plan's noise is not set: call calibrated() first")
        sigma = effective_multiplier(self.sigma_sgd, self.sigma_norm) if adaptive else self.sigma_sgd
        return subsampled_gaussian_event(self.sampling_rate if rate is None else rate, sigma)

    @property
    def before(self) -> "tuple[DpEvent, ...]":
        """What the budget covers beside the run itself."""
        return ()

    def started(self, start_multiplier: float) -> "StartedPlan":
        """The plan of a run that begins at a released model, which cost one Gaussian of this noise multiplier."""
        values = {field.name: getattr(self, field.name) for field in fields(DPGMPlan)}
        return StartedPlan(**values, start_multiplier=start_multiplier)

    def event(self, *, kmeans: bool, adaptive: bool, parts: int = 1) -> "DpEvent":
        """The whole run; with the published schedule over `parts` equal clusters, as a record of one of them sees it.

        Under replace_one a record may leave one cluster for another: it sees the steps of both.
        """
        from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

        seen = 2 if parts > 1 and self.relation == "replace_one" else 1
        steps, rate = seen * ceil(self.steps / parts), min(1.0, self.sampling_rate * parts)
        step = self.step_event(adaptive=adaptive, rate=rate)
        return ComposedDpEvent([*self.before, self.partition_event(kmeans=kmeans), SelfComposedDpEvent(step, steps)])

    def affordable_steps(self, *, kmeans: bool, adaptive: bool) -> int:
        """The steps of the joint schedule that the budget covers, at most `steps`: fewer where given sigmas cost more.

        A function of public numbers, known before training begins.
        """
        if self.budget is None:
            return self.steps
        limit = self.budget.epsilon

        def fits(steps: int) -> bool:
            event = replace(self, steps=steps).event(kmeans=kmeans, adaptive=adaptive)
            return epsilon(event, self.delta, relation=self.relation) <= limit

        if fits(self.steps):
            return self.steps
        low, high = 1, self.steps  # one step fits, or the plan would have been refused
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def calibrated(self, *, features: int | None, adaptive: bool, parts: int = 1) -> "DPGMPlan":
        """The plan with every sigma set: those not given are the smallest that keep the whole run within the budget.

        The published schedule takes its rates from noisy counts, in the light of released values: its plans have to fit the
        privacy filter of the budget (`privacy/filters.py`), which asks for more noise than exact accounting.

        Arguments:
            features: features that k-means works on; None: no k-means.
            adaptive: whether steps release norm histograms.
            parts: clusters of the published schedule, 1 for the joint one.

        Raises:
            ValueError: the budget is too small for the sigmas that were given; says the smallest epsilon reachable.
        """
        plan, kmeans = self._with_partition_noise(features), features is not None
        if plan.sigma_sgd is not None:
            plan._require_first_step(kmeans=kmeans, adaptive=adaptive, parts=parts)
        if plan.sigma_sgd is not None or plan.budget is None:
            return plan
        sigma = calibrate_noise(
            lambda s: replace(plan, sigma_sgd=s).event(kmeans=kmeans, adaptive=adaptive, parts=parts),
            plan.budget,
            relation=self.relation,
            limits=plan._filter(parts),
        )
        return replace(plan, sigma_sgd=sigma)

    def _filter(self, parts: int) -> Filter | None:
        """What bounds a run whose steps are chosen along the way; None where all of them are declared at the start."""
        return None if parts == 1 or self.budget is None else Filter.best(self.budget.epsilon, self.budget.delta)

    def _require_first_step(self, *, kmeans: bool, adaptive: bool, parts: int) -> None:
        """Given sigmas may end training early, but not before it began."""
        if self.budget is not None:
            first = replace(self, steps=1).event(kmeans=kmeans, adaptive=adaptive, parts=parts)
            limits = self._filter(parts)
            least = limits.epsilon_of(first, self.relation) if limits else epsilon(first, self.delta, relation=self.relation)
            if least > self.budget.epsilon:
                raise ValueError(
                    f"epsilon is {self.epsilon:g}; finding the clusters and one step already cost {least:.4g} at delta "
                    f"{self.delta:g}: raise epsilon, sigma_sgd, sigma_count or sigma_sum, or leave the sigmas to be calibrated"
                )

    def _with_partition_noise(self, features: int | None) -> "DPGMPlan":
        if self.sigma_count is not None and (features is None or self.sigma_sum is not None):
            return self
        target = self.epsilon if self.epsilon is not None else DEFAULT_EPSILON
        share = Budget(self.partition_share * target, self.delta)
        try:
            if features is None:
                sigma = calibrate_noise(lambda s: count_event(s, self.relation), share, relation=self.relation)
            else:
                sigma = calibrate_noise(gaussian_event, share, relation=self.relation)
        except ValueError as error:
            name = f"partition_share {self.partition_share:g} of epsilon {target:g}"
            raise ValueError(f"{name} cannot be met: {error}") from error
        if features is None:
            return replace(self, sigma_count=sigma)
        split = KMeansPlan.from_multiplier(sigma, rounds=self.kmeans_rounds, n_features=features, relation=self.relation)
        return replace(self, sigma_count=self.sigma_count or split.noise_count, sigma_sum=self.sigma_sum or split.noise_sum)


@dataclass(frozen=True, kw_only=True)
class StartedPlan(DPGMPlan):
    """A plan whose budget also covers the release that the networks begin from; a warm start makes it, no option does.

    Arguments:
        start_multiplier: noise multiplier of the one Gaussian that the release of the same records cost.
    """

    start_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.start_multiplier < float("inf"):
            raise ValueError(f"start_multiplier must be positive and finite, got {self.start_multiplier}")

    @property
    def before(self) -> "tuple[DpEvent, ...]":
        return (gaussian_event(self.start_multiplier),)


@dataclass(frozen=True, kw_only=True)
class DPGANPlan(DPGMPlan):
    """The plan of one critic with a fixed way of clipping: no k-means and no norm histograms are to be paid for."""

    sigma_norm: float = field(default=DPGMPlan.sigma_norm, init=False)
    kmeans_rounds: int = field(default=DPGMPlan.kmeans_rounds, init=False)
    sigma_sum: float | None = field(default=None, init=False)
    public_n: int | None = field(default=None, init=False)


@dataclass(frozen=True, kw_only=True)
class MixtureOptions:
    """What every mixture has.

    Arguments:
        component: of each cluster: a network, "vae" or "rbm", or "gaussian", fitted in closed form.
        k: number of clusters; None: the number of labels with clusters="labels", 1 with "none", else 10.
        clusters: "labels", "kmeans" (DP kernel k-means), "none" (one model), or "auto": labels if there are any, else
            k-means. With "kmeans" and "none" labels become columns of the record; with component="gaussian", whose k-means
            is its own, they are left out, and samples have none.
    """

    component: Literal["vae", "rbm", "gaussian"] = "vae"
    k: int | None = None
    clusters: Literal["auto", "labels", "kmeans", "none"] = "auto"


@dataclass(frozen=True, kw_only=True)
class DPGMConfig(GaussianOptions, NetworkOptions, MixtureOptions):
    """The model and its training; public choices, none of them private.

    What the component does not use, `NetworkOptions` or `GaussianOptions`, must be left at its defaults.

    Raises:
        ValueError: a number out of its range, or an option of the other components.
    """

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")
        ignored = fields(NetworkOptions if self.component == "gaussian" else GaussianOptions)
        _require_defaults(self, ignored, self.component)
        if self.component == "gaussian":
            self.require_gaussian()
        else:
            self.require_networks()

    def resolved(self, *, n_classes: int) -> "DPGMConfig":
        """The configuration with `k` and `clusters` decided for records of `n_classes` labels.

        Raises:
            ValueError: labels are asked for and there are none, or k contradicts the way of clustering.
        """
        clusters = self.clusters if self.clusters != "auto" else "labels" if n_classes else "kmeans"
        if clusters == "labels" and not n_classes:
            raise ValueError("clusters='labels' needs labelled records; use 'kmeans' or 'none'")
        forced = {"labels": n_classes, "none": 1}.get(clusters)
        if forced is not None and self.k not in (None, forced):
            raise ValueError(f"k must be {forced} with clusters={clusters!r}, got {self.k}")
        return replace(self, k=forced or self.k or 10, clusters=clusters)

    @property
    def kmeans(self) -> bool:
        """Whether k-means finds the clusters; of a resolved configuration."""
        return self.clusters == "kmeans"

    @property
    def parts(self) -> int:
        """Clusters that take turns: k in the published schedule, 1 in the joint one; of a resolved configuration."""
        assert self.k is not None
        return self.k if self.schedule == "published" else 1

    def calibrate(self, plan: DPGMPlan) -> DPGMPlan:
        """`plan` with every sigma set for what this model releases; see `DPGMPlan.calibrated` and `DPGMPlan.require_use`."""
        plan.require_use(self)
        features = self.n_features if self.kmeans else None
        return plan.calibrated(features=features, adaptive=self.adaptive, parts=self.parts)

    def clipping_callback(self, plan: DPGMPlan) -> "Clipping":
        """The clipping policy as a Lightning callback."""
        from dpgen.callbacks import AutomaticClipping, BoundedClipping, DPNorm, QuantileClipping

        sigma, bound = plan.sigma_norm, self.clip_bound
        match self.clipping:
            case "auto":
                return AutomaticClipping()
            case "fixed":
                return BoundedClipping(bound=bound)
            case "quantile":
                return QuantileClipping(noise_multiplier=sigma, bound=bound)
            case "dpnorm_published":
                return DPNorm(noise_multiplier=sigma, c_max=bound, bins=100, spacing="linear", window=1)
            case _:
                return DPNorm(noise_multiplier=sigma, c_max=bound)

    def bank(self, d: int, categories: int) -> "ModelBank":
        """k untrained component models for records of d columns, the last `categories` of them a one-hot label."""
        from dpgen.nets import BANKS

        assert self.k is not None
        if self.component == "gaussian":
            raise ValueError("component='gaussian' has no networks to train: fit it with systems.gaussian.fit")
        own = {"vae": ("latent", "depth", "label_weight"), "rbm": ("chains", "gibbs_steps")}[self.component]
        options = {name: getattr(self, name) for name in own}
        make: Callable[..., ModelBank] = BANKS[self.component]
        return make(self.k, d, hidden=self.hidden, categories=categories, **options)
