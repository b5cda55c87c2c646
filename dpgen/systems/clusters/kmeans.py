"""Differentially private kernel k-means (Acs et al. 2017, Algorithm 2), and standard DP k-means as its baseline."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from dpgen.callbacks.dpnorm import DPNorm
from dpgen.nets.features import RandomFourierFeatures
from dpgen.privacy.limits import require_positive, require_whole
from dpgen.privacy.mechanisms import GaussianMechanism, gaussian_event
from dpgen.privacy.noise import PublicRandomness, SecureSource, require_secure
from dpgen.systems.clusters.kmeans_plan import KMeansPlan
from dpgen.systems.clusters.lloyd import (
    FeatureMap,
    FeatureSpace,
    cluster_totals,
    identity,
    kmeans_plus_plus,
    nearest,
    require_records,
    split_largest,
    update_centres,
)

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.ledger import Ledger

__all__ = ["DPKMeans", "KMeansPlan"]

_CACHE_ENTRIES = 2**26
_STARVING = 3.0  # noise stds of a count below which a cluster counts as empty
_NUDGE = 0.1  # in units of the norm bound


class DPKMeans:
    r"""Differentially private k-means in the feature space of a kernel, used like scikit-learn's `KMeans`.

    `kernel="rbf"`: on random Fourier features of norm exactly 1 (`RandomFourierFeatures`), so the sums need noise that
    depends neither on d nor on the data. `kernel="linear"`: standard DP k-means on the records themselves. Or any
    public map of records to features.

    Formal guarantees:
        - `fit` releases what `event` says, under add/remove-one, whatever x holds: features are clipped.
        - The ledger is charged before each release; if it refuses, nothing of that round is drawn.
        - Everything else (initial centres, frequencies, splits) is public or post-processing.

    Edge cases:
        - Empty cluster: its counts and sums are released like any other's. Below 3 noise stds of a count it is
          re-seeded next to a large cluster (`plan.repair`), in the last round it keeps its centre.
        - Noisy counts below 1 are given as 1 in `counts_`.

    Arguments:
        k: clusters, at least 1.
        plan: rounds and noise.
        kernel: "rbf", "linear", or a public map (n, m) -> (n, d), which may not learn from x.
        gamma: width of the RBF kernel exp(-gamma |x - y|^2).
        n_features: random Fourier features d, even.
        norm_bound: clip norm C of features; None: the analytic bound (1 with "rbf"; the corner of the value range with
            "linear", 28 for 784 binary entries; custom features have none); "dpnorm" or a `DPNorm`: the mode of a noisy
            histogram of norms, which is charged.
        init: "random": features of k records with every entry either end of the value range by a public fair coin,
            scaled to norm C; "public": k of the public records; "kmeans++": k-means++ seeds among them.
        seed: public randomness of frequencies, initial centres and splits.

    Attributes after `fit`, all released values: `centres_` (k, d), `counts_` (k,) noisy sizes of the clusters of
    exactly these centres, `norm_bound_`.

    Source: Acs et al. 2017, Algorithm 2 and Theorem 2, with [cos, sin] features, separate noise for counts and sums,
    and shrunken means. The paper's noise std sqrt(2) sigma_K is `noise_*` = sqrt(2) sigma_K here.

    >>> from dpgen.privacy.ledger import Budget, Ledger
    >>> x = (torch.arange(2000)[:, None] % 2 == torch.arange(8) % 2).to(torch.uint8)
    >>> kmeans = DPKMeans(2, KMeansPlan(noise_count=20.0, noise_sum=4.0, rounds=5), gamma=0.1, n_features=16)
    >>> kmeans = kmeans.fit(x, ledger=Ledger(Budget(4.0, 1e-5)), source=SecureSource())
    >>> bool((kmeans.counts_ - 1000).abs().max() < 200), len(kmeans.predict(x[:2]).unique())
    (True, 2)
    """

    centres_: Tensor
    counts_: Tensor
    norm_bound_: float

    def __init__(
        self,
        k: int,
        plan: KMeansPlan,
        *,
        kernel: Literal["rbf", "linear"] | FeatureMap = "rbf",
        gamma: float = 0.01,
        n_features: int = 200,
        norm_bound: float | Literal["dpnorm"] | DPNorm | None = None,
        init: Literal["random", "public", "kmeans++"] = "random",
        seed: int | PublicRandomness = 0,
    ) -> None:
        require_whole("k", k)
        if not (callable(kernel) or kernel in ("rbf", "linear")):
            raise ValueError(f"kernel is {kernel!r}; it must be one of 'rbf', 'linear' or a map of records to features")
        if init not in ("random", "public", "kmeans++"):
            raise ValueError(f"init is {init!r}; it must be one of 'random', 'public', 'kmeans++'")
        if norm_bound is None and callable(kernel):
            raise ValueError("norm_bound is None; features without an analytic bound need a number > 0 or 'dpnorm'")
        if norm_bound is not None and norm_bound != "dpnorm" and not isinstance(norm_bound, DPNorm):
            if isinstance(norm_bound, str):
                raise ValueError(f"norm_bound is {norm_bound!r}; it must be None, a number > 0, 'dpnorm' or a DPNorm")
            require_positive("norm_bound", norm_bound)
        self.k, self.plan, self.kernel, self.gamma, self.n_features = k, plan, kernel, gamma, n_features
        self.norm_bound, self.init, self.seed = norm_bound, init, seed
        self._space: FeatureSpace | None = None

    @property
    def event(self) -> DpEvent:
        """Everything that `fit` will charge: the norm histogram, if any, and the plan."""
        from dp_accounting import ComposedDpEvent

        if not isinstance(self.norm_bound, str | DPNorm):
            return self.plan.event
        return ComposedDpEvent([gaussian_event(self._dpnorm(1.0).noise_multiplier), self.plan.event])

    def fit(
        self,
        x: Tensor,
        *,
        ledger: Ledger,
        source: SecureSource,
        public_x: Tensor | None = None,
        value_range: tuple[float, float] = (0.0, 1.0),
    ) -> DPKMeans:
        """Release centres and counts of private records; after a failure the estimator is as before.

        Arguments:
            x: private records (n, m), any real dtype, n >= k.
            ledger: is charged before each release.
            source: secure noise.
            public_x: public records (p, m), p >= k, for init "public" and "kmeans++".
            value_range: public range of the entries.

        Raises:
            ValueError: records of a wrong shape, too few, not finite or outside the range.
            BudgetExceeded: the next release does not fit into the ledger's budget.
        """
        source = require_secure(source)
        x = require_records("x", x, value_range)
        if len(x) < self.k:
            raise ValueError(f"x has {len(x)} records; there must be at least k = {self.k}")
        seeds = self._seed_records(x, public_x, value_range)
        space = FeatureSpace(self._feature_map(x, self._public("features")))
        space = FeatureSpace(space.feature_map, self._bound(space, x, value_range, ledger, source))
        centres = self._lloyd(space, x, self._initial(space, seeds), ledger, source)
        # Rounded before they are counted, so that the clusters of the stored centres are the counted ones.
        centres = centres.to(torch.float32)
        ledger.charge(gaussian_event(self.plan.noise_count), 1, note="k-means: counts of the final clusters")
        counts, _ = cluster_totals(space.chunks(x), centres.to(torch.float64))
        counts = GaussianMechanism(self.plan.noise_count).release(counts, source)
        self.centres_, self.counts_ = centres, counts.clamp_min(1).to(torch.float32)
        self.norm_bound_, self._space = space.norm_bound, space
        return self

    def predict(self, x: Tensor) -> Tensor:
        """Cluster (n,), int64, of records (n, m): the nearest of `centres_`, whose private sizes `counts_` counts."""
        if self._space is None:
            raise RuntimeError("DPKMeans is not fitted: call fit or load_state_dict before predict")
        x = require_records("x", x, None)
        features = self._space.feature_map
        width = len(features.frequencies) if isinstance(features, RandomFourierFeatures) else self.centres_.shape[1]
        if x.shape[1] != width and not callable(self.kernel):
            raise ValueError(f"x has shape {tuple(x.shape)}; it must be (n, {width}), as in fit")
        centres = self.centres_.to(x.device, torch.float64)
        return torch.cat([nearest(z, centres) for z in self._space.chunks(x)])

    assign = predict

    def state_dict(self) -> dict[str, Tensor]:
        """Released and public tensors; a custom `kernel` is given again to the constructor."""
        if self._space is None:
            raise RuntimeError("DPKMeans is not fitted: it has no state to save")
        state = {
            "centres": self.centres_,
            "counts": self.counts_,
            "norm_bound": torch.tensor(self.norm_bound_, dtype=torch.float64),
        }
        if isinstance(self._space.feature_map, RandomFourierFeatures):
            state["frequencies"] = self._space.feature_map.frequencies
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`.

        Raises:
            ValueError: the state does not belong to this k and kernel.
        """
        wanted = {"centres", "counts", "norm_bound"} | ({"frequencies"} if self.kernel == "rbf" else set())
        if set(state) != wanted or len(state["centres"]) != self.k or state["counts"].shape != (self.k,):
            raise ValueError(f"state has entries {sorted(state)}; it must have {sorted(wanted)} of k = {self.k}")
        feature_map: FeatureMap = identity if self.kernel == "linear" else self.kernel  # type: ignore[assignment]
        if self.kernel == "rbf":
            feature_map = RandomFourierFeatures(1, 2, gamma=1.0, generator=torch.Generator())
            feature_map.frequencies = state["frequencies"]
        self.centres_, self.counts_, self.norm_bound_ = state["centres"], state["counts"], float(state["norm_bound"])
        self._space = FeatureSpace(feature_map, self.norm_bound_)

    # -- steps of fit ------------------------------------------------------------------------------------------------

    def _public(self, name: str) -> torch.Generator:
        public = self.seed if isinstance(self.seed, PublicRandomness) else PublicRandomness(self.seed)
        return public.spawn(name).generator

    def _feature_map(self, x: Tensor, generator: torch.Generator) -> FeatureMap:
        if callable(self.kernel):
            return self.kernel
        if self.kernel == "linear":
            return identity
        return RandomFourierFeatures(x.shape[1], self.n_features, gamma=self.gamma, generator=generator).to(x.device)

    def _dpnorm(self, c_max: float) -> DPNorm:
        return copy.deepcopy(self.norm_bound) if isinstance(self.norm_bound, DPNorm) else DPNorm(c_max=c_max, window=1)

    def _bound(
        self, space: FeatureSpace, x: Tensor, value_range: tuple[float, float], ledger: Ledger, source: SecureSource
    ) -> float:
        corner = math.sqrt(x.shape[1]) * max(map(abs, value_range))
        if self.norm_bound is None:
            return 1.0 if self.kernel == "rbf" else corner
        if not isinstance(self.norm_bound, str | DPNorm):
            return float(self.norm_bound)
        dpnorm = self._dpnorm(corner if self.kernel == "linear" else 10.0)
        dpnorm.begin(1)
        mechanism = GaussianMechanism(dpnorm.noise_multiplier)
        ledger.charge(mechanism.event, 1, note="k-means: histogram of feature norms")
        norms = torch.cat([z.norm(dim=1) for z in space.chunks(x)])
        histogram = dpnorm.histogram(norms, torch.zeros(len(norms), dtype=torch.int64, device=x.device))
        dpnorm.observe(mechanism.release(histogram, source))
        return float(dpnorm.bounds[0])

    def _seed_records(self, x: Tensor, public_x: Tensor | None, value_range: tuple[float, float]) -> Tensor:
        if self.init == "random":
            low, high = value_range
            coins = torch.rand(self.k, x.shape[1], generator=self._public("records")) < 0.5
            return (low + (high - low) * coins).to(x.device)
        if public_x is None:
            raise ValueError(f"public_x is None; init={self.init!r} needs at least k = {self.k} public records")
        public_x = require_records("public_x", public_x, value_range)
        if len(public_x) < self.k or public_x.shape[1] != x.shape[1]:
            raise ValueError(f"public_x has shape {tuple(public_x.shape)}; it must be (p, {x.shape[1]}) with p >= k = {self.k}")
        return public_x.to(x.device)

    def _initial(self, space: FeatureSpace, records: Tensor) -> Tensor:
        z = torch.cat(list(space.chunks(records)))
        generator = self._public("centres")
        if self.init == "random":
            # One common norm: else the shortest draw would attract nearly everything.
            return space.norm_bound * z / z.norm(dim=1, keepdim=True).clamp_min(1e-12)
        if self.init == "public":
            return z[torch.randperm(len(z), generator=generator)[: self.k].to(z.device)]
        return z[kmeans_plus_plus(z, self.k, generator)]

    def _lloyd(self, space: FeatureSpace, x: Tensor, centres: Tensor, ledger: Ledger, source: SecureSource) -> Tensor:
        plan, floor = self.plan, max(1.0, _STARVING * self.plan.noise_count)
        counting = GaussianMechanism(plan.noise_count)
        summing = GaussianMechanism(plan.noise_sum, sensitivity=space.norm_bound)
        generator = self._public("splits")
        cache = list(space.chunks(x)) if len(x) * centres.shape[1] <= _CACHE_ENTRIES else None
        for done in range(1, plan.rounds + 1):
            ledger.charge(plan.round_event, 1, note="k-means: counts and sums of a round")
            counts, sums = cluster_totals(cache or space.chunks(x), centres)
            counts, sums = counting.release(counts, source).to(sums), summing.release(sums, source)
            centres = update_centres(centres, counts, sums, sum_std=summing.noise_std, floor=floor, shrink=plan.repair)
            if plan.repair and done < plan.rounds:
                nudges = torch.randn(centres.shape, generator=generator, dtype=torch.float64)
                nudges *= _NUDGE * space.norm_bound / nudges.norm(dim=1, keepdim=True)
                centres = split_largest(centres, counts, nudges.to(centres), floor=floor)
        return centres
