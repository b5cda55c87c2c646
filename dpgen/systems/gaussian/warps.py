"""Post-processing that a released model declares: random affine warps of images, and thresholds of bits."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

_AT_ONCE = 4096


@dataclass(frozen=True)
class Warp:
    """Rotation, scale and shift of every image, normally distributed with these standard deviations.

    They stand for the ways of writing that few Gaussians do not have; being public, they cost nothing.

    Arguments:
        rotation: degrees, at least 0.
        scale: relative, at least 0.
        shift: pixels, at least 0.
    """

    rotation: float = 8.6
    scale: float = 0.10
    shift: float = 1.5

    def __post_init__(self) -> None:
        for name in ("rotation", "scale", "shift"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")

    @classmethod
    def of_strength(cls, strength: float, shape: tuple[int, int]) -> "Warp":
        """`strength` times the warp that suits handwriting on 28 pixels, its shift in proportion to the shorter side."""
        return cls(rotation=8.6 * strength, scale=0.10 * strength, shift=1.5 * strength * min(shape) / 28.0)

    def __call__(self, x: Tensor, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Warped images (n, height * width) float32 in the range of x, bilinear, with zeros from outside."""
        n, (height, width) = len(x), shape
        angle = torch.randn(n, generator=generator) * math.radians(self.rotation)
        scale = 1.0 + torch.randn(n, generator=generator) * self.scale
        shift = torch.randn(n, 2, generator=generator) * self.shift * torch.tensor([2.0 / width, 2.0 / height])
        cos, sin = angle.cos() * scale, angle.sin() * scale
        y, x_ = torch.meshgrid(_middles(height), _middles(width), indexing="ij")
        parts = []
        for rows in torch.arange(n).split(_AT_ONCE):
            c, s, move = cos[rows, None, None], sin[rows, None, None], shift[rows, :, None, None]
            grid = torch.stack([c * x_ - s * y + move[:, 0], s * x_ + c * y + move[:, 1]], 3)
            images = x[rows].float().reshape(-1, 1, height, width)
            parts.append(grid_sample(images, grid, align_corners=False).flatten(1))
        return torch.cat(parts) if parts else x.float()


def _middles(pixels: int) -> Tensor:
    """Middles of the pixels of a side from -1 to 1."""
    return (torch.arange(pixels) + 0.5) * (2.0 / pixels) - 1.0


def calibrated_thresholds(pilot: Tensor, marginals: Tensor) -> Tensor:
    """Thresholds t (d,) with P(pilot_j > t_j) = marginals_j: what makes bits of real-valued samples right on average.

    Arguments:
        pilot: samples (n, d) of the model, public.
        marginals: released frequencies of ones (d,), in [0, 1].

    Source: post-processing of released values; free.

    >>> t = calibrated_thresholds(torch.arange(8.0)[:, None], torch.tensor([0.25]))
    >>> int((torch.arange(8.0) > t).sum())
    2
    """
    n = len(pilot)
    # NumPy sorts values alone, and rows, several times as fast as torch sorts columns with their positions.
    ordered = torch.from_numpy(np.sort(pilot.T.contiguous().cpu().numpy(), axis=1)).T
    below = ((1.0 - marginals.cpu().clamp(0.0, 1.0)) * n).round().long()
    lower = ordered.gather(0, (below - 1).clamp_min(0)[None])[0]
    upper = ordered.gather(0, below.clamp_max(n - 1)[None])[0]
    middle = (lower + upper) / 2.0
    middle = torch.where(below == 0, ordered[0] - 1.0, middle)
    return torch.where(below == n, ordered[-1] + 1.0, middle)
