"""Public choices of components that are networks, as fields of the DPGM configuration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


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
