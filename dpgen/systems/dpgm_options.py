"""The public choices of a DPGM run: what it may spend (the only numbers that reach the ledger), and the model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from dpgen.privacy.accountants import Relation, epsilon
from dpgen.privacy.calibration import calibrate_noise
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import effective_multiplier, gaussian_event, subsampled_gaussian_event
from dpgen.systems.gaussian.gaussian_options import GaussianOptions
from dpgen.systems.kmeans_plan import KMeansPlan

if TYPE_CHECKING:  # imported where they are made: planning needs neither torch nor Lightning
    from dpgen.callbacks import Clipping
    from dpgen.nets import ModelBank

DEFAULT_EPSILON = 3.0


@dataclass(frozen=True, kw_only=True)
class DPGMPlan:
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
        prior_multiplier: noise multiplier of the one Gaussian that an earlier release of the same records cost, which the
            budget covers too; a warm start sets it.

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
    prior_multiplier: float | None = None

    def __post_init__(self) -> None:
        if self.epsilon is None and self.sigma_sgd is None:
            object.__setattr__(self, "epsilon", DEFAULT_EPSILON)
        Budget(self.epsilon if self.epsilon is not None else 1.0, self.delta)
        if not self.delta:
            raise ValueError("delta is 0; it must lie in (0, 1): Gaussian noise has no guarantee at delta 0")
        for name in ("sigma_sgd", "sigma_norm", "sigma_count", "sigma_sum", "prior_multiplier"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be positive and finite, got {value}")
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(f"sampling_rate must be in (0, 1], got {self.sampling_rate}")
        if min(self.steps, self.kmeans_rounds) < 1:
            raise ValueError(f"steps and kmeans_rounds must be at least 1, got {self.steps} and {self.kmeans_rounds}")
        if not 0 < self.partition_share < 1:
            raise ValueError(f"partition_share must be in (0, 1), got {self.partition_share}")
        if self.relation not in ("add_remove", "replace_one"):
            raise ValueError(f"relation must be one of 'add_remove', 'replace_one', got {self.relation!r}")

    @property
    def steps_per_epoch(self) -> int:
        """`ceil(1 / sampling_rate)`, as the paper counts."""
        return ceil(1 / self.sampling_rate - 1e-9)

    @property
    def budget(self) -> Budget | None:
        """The budget that the ledger enforces; None: report only."""
        return None if self.epsilon is None else Budget(self.epsilon, self.delta)

    def open_ledger(self, path: Path | None = None) -> Ledger:
        """A new ledger that enforces the budget, or only reports at `delta`; kept in the file `path` if given."""
        delta = self.delta if self.budget is None else None
        return Ledger(self.budget, delta=delta, relation=self.relation, path=path)

    def kmeans_plan(self) -> KMeansPlan:
        """Rounds and noise of k-means."""
        if self.sigma_count is None or self.sigma_sum is None:
            raise ValueError("the plan's k-means noise is not set: call calibrated() first")
        return KMeansPlan(noise_count=self.sigma_count, noise_sum=self.sigma_sum, rounds=self.kmeans_rounds)

    def partition_event(self, *, kmeans: bool) -> DpEvent:
        """Everything that finding the clusters releases: noisy sizes, and with k-means its rounds."""
        if kmeans:
            return self.kmeans_plan().event
        if self.sigma_count is None:
            raise ValueError("the plan's noise is not set: call calibrated() first")
        return gaussian_event(self.sigma_count)

    def step_event(self, *, adaptive: bool, rate: float | None = None) -> DpEvent:
        """One training step at Poisson rate `rate` (default: sampling_rate)."""
        if self.sigma_sgd is None:
            raise ValueError("the plan's noise is not set: call calibrated() first")
        sigma = effective_multiplier(self.sigma_sgd, self.sigma_norm) if adaptive else self.sigma_sgd
        return subsampled_gaussian_event(self.sampling_rate if rate is None else rate, sigma)

    def event(self, *, kmeans: bool, adaptive: bool, parts: int = 1) -> DpEvent:
        """The whole run; with the published schedule over `parts` equal clusters, as a record of one of them sees it.

        Under replace_one a record may leave one cluster for another: it sees the steps of both.
        """
        seen = 2 if parts > 1 and self.relation == "replace_one" else 1
        steps, rate = seen * ceil(self.steps / parts), min(1.0, self.sampling_rate * parts)
        step = self.step_event(adaptive=adaptive, rate=rate)
        prior = [] if self.prior_multiplier is None else [gaussian_event(self.prior_multiplier)]
        return ComposedDpEvent([*prior, self.partition_event(kmeans=kmeans), SelfComposedDpEvent(step, steps)])

    def calibrated(self, *, features: int | None, adaptive: bool, parts: int = 1) -> "DPGMPlan":
        """The plan with every sigma set: those not given are the smallest that keep the whole run within the budget.

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
        )
        return replace(plan, sigma_sgd=sigma)

    def _require_first_step(self, *, kmeans: bool, adaptive: bool, parts: int) -> None:
        """Given sigmas may end training early, but not before it began."""
        if self.budget is not None:
            first = replace(self, steps=1).event(kmeans=kmeans, adaptive=adaptive, parts=parts)
            least = epsilon(first, self.delta, relation=self.relation)
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
            sigma = calibrate_noise(gaussian_event, share, relation=self.relation)
        except ValueError as error:
            name = f"partition_share {self.partition_share:g} of epsilon {target:g}"
            raise ValueError(f"{name} cannot be met: {error}") from error
        if features is None:
            return replace(self, sigma_count=sigma)
        split = KMeansPlan.from_multiplier(sigma, rounds=self.kmeans_rounds, n_features=features)
        return replace(self, sigma_count=self.sigma_count or split.noise_count, sigma_sum=self.sigma_sum or split.noise_sum)


@dataclass(frozen=True, kw_only=True)
class DPGMConfig(GaussianOptions):
    """The model and its training; public choices, none of them private.

    Arguments:
        component: of each cluster: a network, "vae" or "rbm", or "gaussian", fitted in closed form by `GaussianOptions`.
        k: number of clusters; None: the number of labels with clusters="labels", 1 with "none", else 10.
        clusters: "labels", "kmeans" (DP kernel k-means), "none" (one model), or "auto": labels if there are any, else
            k-means. With "kmeans" and "none" labels become columns of the record; with component="gaussian", whose k-means
            is its own, they are left out, and samples have none.
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
        warm_start: directory of a released model whose samples the networks learn from before private training (vae, rbm).
        warm_start_steps: of that learning.
        warm_start_origin: whether the release is of the same "records", and its cost part of the budget, or "public".
    """

    component: Literal["vae", "rbm", "gaussian"] = "vae"
    k: int | None = None
    clusters: Literal["auto", "labels", "kmeans", "none"] = "auto"
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
    micro_batch: int = 512
    gamma: float = 0.01
    n_features: int = 200
    init: Literal["random", "public", "kmeans++"] = "random"
    warm_start: Path | None = None
    warm_start_steps: int = 2000
    warm_start_origin: Literal["records", "public"] = "records"

    def __post_init__(self) -> None:
        for name in ("k", "micro_batch"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.lr < float("inf"):
            raise ValueError(f"lr must be positive and finite, got {self.lr}")
        if self.warm_start is not None and self.component == "gaussian":
            raise ValueError(f"warm_start is {str(self.warm_start)!r}; component='gaussian' has no networks that could use it")

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
    def adaptive(self) -> bool:
        """Whether steps release a norm histogram."""
        return self.clipping not in ("auto", "fixed")

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
        """`plan` with every sigma set for what this model releases; see `DPGMPlan.calibrated`."""
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
