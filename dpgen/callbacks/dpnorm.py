"""Clip bounds that follow released norm histograms: DPNorm (Acs et al. 2017) and the quantile rule (Andrew et al. 2021)."""

import math
import warnings
from typing import Any, Literal

import lightning as L
import torch
from torch import Tensor

from dpgen.callbacks.policies import BoundedClipping
from dpgen.privacy.noise_shares import place


def bin_edges(c_max: float, bins: int, spacing: Literal["linear", "log"]) -> Tensor:
    """Upper edges (bins,) of the norm bins: C_max j / w as published, or three decades up to C_max evenly in log."""
    if spacing == "linear":
        return c_max * torch.arange(1, bins + 1) / bins
    return c_max * 10.0 ** torch.linspace(-3.0, 0.0, bins)


def count_cells(cells: Tensor, seen: Tensor, width: int) -> Tensor:
    """How many of the seen records are in each of `width` cells, int64, without asking the device for a number."""
    totals = torch.zeros(width + 1, dtype=torch.int64, device=cells.device)
    return totals.index_add_(0, torch.where(seen, cells, width), torch.ones_like(cells))[:width]


class DPNorm(BoundedClipping):
    r"""The mode of a noisy histogram of gradient norms as clip bound, one per cluster (Acs et al. 2017, Algorithm 3).

    Every step releases, for each cluster, the counts of norms in :math:`(C_{j-1}, C_j]` and of norms above
    :math:`C_{max}` plus :math:`N(0, \sigma_C^2)`; a record is in one bin of one cluster, so the sensitivity is 1. The
    bound is the upper edge of the fullest bin of the sum over the last `window` released histograms.

    The published form is `DPNorm(noise_multiplier=4, bins=100, spacing="linear", window=1)`. At a few records per cluster
    its choice is mostly noise; log-spaced bins and a window of 10 choose the right bin in nearly every step from 40 records
    on. Mind `c_max`: losses summed over hundreds of pixels have gradient
    norms of 50-300, of which C_max = 10 sees none.

    Arguments:
        noise_multiplier: sigma_C > 0, in counts.
        c_max: largest bound, in units of the gradient.
        bins: number w of bins below c_max.
        spacing: "linear" (published) or "log".
        window: released histograms to sum, at least 1; free post-processing.
    """

    def __init__(
        self,
        *,
        noise_multiplier: float = 10.0,
        c_max: float = 10.0,
        bins: int = 20,
        spacing: Literal["linear", "log"] = "log",
        window: int = 10,
    ) -> None:
        super().__init__(bound=c_max)
        if not noise_multiplier > 0:
            raise ValueError(f"noise_multiplier must be positive, got {noise_multiplier}")
        if min(bins, window) < 1:
            raise ValueError(f"bins and window must be at least 1, got bins={bins}, window={window}")
        if spacing not in ("linear", "log"):
            raise ValueError(f"spacing must be one of 'linear', 'log', got {spacing!r}")
        self.noise_multiplier: float = noise_multiplier
        self.edges, self.window = bin_edges(c_max, bins, spacing), window
        self._released: list[Tensor] = []
        self._warned = False

    def histogram(self, norms: Tensor, cluster: Tensor) -> Tensor:
        self.edges = place(self.edges, norms.device)
        width = self.edges.numel() + 1
        cells = cluster * width + torch.bucketize(norms, self.edges.to(norms.dtype))
        # a norm of 0 (or NaN) falls in no bin
        return count_cells(cells, norms > 0, self.bounds.numel() * width).view(-1, width)

    def observe(self, released: Tensor) -> None:
        self.edges = place(self.edges, released.device)
        self._released = [*(place(r, released.device) for r in self._released), released.double()][-self.window :]
        mode = torch.stack(self._released).sum(0).argmax(1)
        self._bounds = self.edges[mode.clamp_max(self.edges.numel() - 1)].to(self.bounds.dtype)
        if released.device.type == "cpu":
            self._warn_if_poor()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._warn_if_poor()  # here a device may be waited for

    def released_norms(self) -> tuple[Tensor, Tensor] | None:
        return (self.edges.cpu(), self._released[-1].cpu()) if self._released else None

    def _warn_if_poor(self) -> None:
        if self._warned or len(self._released) < self.window:
            return
        total = torch.stack(self._released).sum(0).cpu()
        best, mode = total.max(1)
        overflow = int((mode == self.edges.numel()).sum())
        # The largest of w pure noises is about sigma sqrt(2 ln w); below that the mode says nothing about the data.
        floor = self.noise_multiplier * math.sqrt(2.0 * len(self._released) * math.log(total.shape[1]))
        silent = int((best < floor).sum())
        if overflow or silent:
            self._warned = True
            warnings.warn(
                f"DPNorm: in {overflow} of {mode.numel()} clusters most norms exceed c_max={self.bound:g} and in {silent} "
                "the fullest bin is within the noise, so the clip bound is poorly chosen: raise c_max or window, or use "
                "clipping 'auto'",
                stacklevel=2,
            )

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"released": self._released}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._released = list(state_dict["released"])


class QuantileClipping(BoundedClipping):
    r"""Clip bounds that track a quantile of the norms: :math:`C \leftarrow C \exp(-\eta (\tilde b - \gamma))`.

    Every step releases per cluster how many norms are at most C and how many exceed it, plus :math:`N(0, \sigma_C^2)`;
    :math:`\tilde b` is the noisy share of the first, averaged over `window` released pairs.

    Source: Andrew, Thakkar, McMahan, Ramaswamy 2021, Algorithm 1 (here with both counts noisy, so no size is assumed).

    Arguments:
        noise_multiplier: sigma_C > 0, in counts.
        quantile: target gamma in (0, 1).
        learning_rate: eta > 0.
        bound: initial bound.
        window: released pairs that are averaged.
    """

    def __init__(
        self,
        *,
        noise_multiplier: float = 10.0,
        quantile: float = 0.5,
        learning_rate: float = 0.2,
        bound: float = 10.0,
        window: int = 10,
    ) -> None:
        super().__init__(bound=bound)
        if not noise_multiplier > 0:
            raise ValueError(f"noise_multiplier must be positive, got {noise_multiplier}")
        if not 0 < quantile < 1:
            raise ValueError(f"quantile must be in (0, 1), got {quantile}")
        if not learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {learning_rate}")
        if window < 1:
            raise ValueError(f"window must be at least 1, got {window}")
        self.noise_multiplier: float = noise_multiplier
        self.quantile, self.learning_rate, self.window = quantile, learning_rate, window
        self._released: list[Tensor] = []

    def histogram(self, norms: Tensor, cluster: Tensor) -> Tensor:
        above = (norms > self.placed_bounds(norms)[cluster]).long()
        return count_cells(cluster * 2 + above, torch.isfinite(norms), 2 * self.bounds.numel()).view(-1, 2)

    def observe(self, released: Tensor) -> None:
        self._released = [*(place(r, released.device) for r in self._released), released.double()][-self.window :]
        below, above = torch.stack(self._released).sum(0).unbind(1)
        share = (below / (below + above).clamp_min(1.0)).clamp(0.0, 1.0)
        self._bounds = place(self.bounds, share.device) * (-self.learning_rate * (share - self.quantile)).exp().float()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"released": self._released}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._released = list(state_dict["released"])
