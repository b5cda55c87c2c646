"""How records are clipped in private training, as Lightning callbacks; `dpnorm.py` holds the adaptive ones."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from dpgen.privacy.clipping import automatic_coefficients, flat_coefficients
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.noise_shares import place


class Clipping(Callback, ABC):
    """Turns gradient norms into coefficients; private training uses the one among the trainer's callbacks.

    Every policy bounds each record's term by 1 in units of its cluster's bound, so that a step is a Gaussian mechanism of
    sensitivity 1 whatever the bounds are; the bounds, functions of released values, scale the noisy sum afterwards.

    `noise_multiplier` is None for policies that look at nothing private; otherwise the policy asks for one (k, w)
    histogram of norms per step, a `BoundedSum` that is released with that multiplier.
    """

    noise_multiplier: float | None = None

    def begin(self, k: int) -> None:
        """Called when training starts or resumes, with the number of clusters."""

    def histogram(self, norms: Tensor, cluster: Tensor) -> BoundedSum:
        """Counts (k, w) of the norms (b,) of a draw: the private query of adaptive policies."""
        raise NotImplementedError(f"{type(self).__name__} releases no histogram")

    def observe(self, released: Tensor) -> None:
        """Take in the released histogram (k, w)."""

    @abstractmethod
    def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
        """Weights (b,) with |weight * gradient| <= 1 for every record."""

    def scale(self) -> Tensor | None:
        """Clip bound (k,) of every cluster, a function of released values; None when sums are normalised to 1."""
        return None

    def released_norms(self) -> tuple[Tensor, Tensor] | None:
        """Upper edges (w - 1,) of the bins and the noisy counts (k, w) released last, if the policy has any."""
        return None


class AutomaticClipping(Clipping):
    r"""Normalised gradients :math:`g / (|g| + \gamma)` (Bu et al. 2023): no bound to choose, no budget for choosing it.

    Arguments:
        stability: gamma > 0, in units of the gradient.
    """

    def __init__(self, *, stability: float = 0.01) -> None:
        if not stability > 0:
            raise ValueError(f"stability must be positive, got {stability}")
        self.stability = stability

    def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
        return automatic_coefficients(norms, self.stability)


class BoundedClipping(Clipping):
    """Clipping at one bound per cluster (Abadi et al. 2016); with nothing adaptive, the fixed policy.

    Arguments:
        bound: initial (here: permanent) clip bound > 0, in units of the gradient.
    """

    def __init__(self, *, bound: float = 1.0) -> None:
        if not 0 < bound < float("inf"):
            raise ValueError(f"bound must be positive and finite, got {bound}")
        self.bound = bound
        self._bounds: Tensor | None = None

    def begin(self, k: int) -> None:
        if self._bounds is None:
            self._bounds = torch.full((k,), self.bound)
        elif self._bounds.shape != (k,):
            raise ValueError(f"the restored clip state has {self._bounds.numel()} clusters, the model has {k}")

    @property
    def bounds(self) -> Tensor:
        """Clip bound (k,) of every cluster."""
        if self._bounds is None:
            raise RuntimeError(f"{type(self).__name__}.begin(k) has not been called")
        return self._bounds

    def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
        return flat_coefficients(norms, self.placed_bounds(norms)[cluster])

    def placed_bounds(self, norms: Tensor) -> Tensor:
        """The bounds where the norms are; once there, they stay."""
        self._bounds = place(self.bounds, norms.device)
        return self._bounds.to(norms.dtype)

    def scale(self) -> Tensor:
        return self.bounds

    def state_dict(self) -> dict[str, Any]:
        return {"bounds": self._bounds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._bounds = state_dict["bounds"]
