"""Post-processing that a released model declares, random affine warps of images and thresholds, and public codecs of images.

A codec is an exact change of coordinates in which strokes are closer to Gaussian. It maps each record by itself, by a public
rule, so it neither costs privacy nor moves a sensitivity. Codes lie in [0, 1]; `decode(encode(x))` gives back binary images
exactly.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from dpgen.privacy.exact_sums import Each
from dpgen.systems.gaussian.sums import Batches

# -- warps -------------------------------------------------------------------------------------------------------------

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


# -- codecs ------------------------------------------------------------------------------------------------------------


class Codec(ABC):
    """A public map of images (b, height * width) in [0, 1] to codes (b, code_size) in [0, 1], and back.

    Arguments:
        shape: (height, width).
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape

    @property
    @abstractmethod
    def code_size(self) -> int:
        """Length of a code."""

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """Codes of images."""

    @abstractmethod
    def decode(self, code: Tensor) -> Tensor:
        """Images of codes; any real code has an image."""


class ShearCodec(Codec):
    """Rows are rolled by whole pixels until the picture stands upright; the slope is kept as a last coordinate.

    The slope is the regression of the column on the row over the picture's mass, rounded to 1/32 pixel a row and at most
    1 in size; rolling wraps around, so nothing is lost.
    """

    _STEPS = 32

    @property
    def code_size(self) -> int:
        return self.shape[0] * self.shape[1] + 1

    def encode(self, x: Tensor) -> Tensor:
        images = x.reshape(-1, *self.shape)
        slope = self._slope(images)
        coordinate = (slope + 1.0) / 2.0
        return torch.cat([self._rolled(images, -slope).flatten(1), coordinate[:, None].to(x)], 1)

    def decode(self, code: Tensor) -> Tensor:
        slope = self._rounded(code[:, -1] * 2.0 - 1.0)
        return self._rolled(code[:, :-1].reshape(-1, *self.shape), slope).flatten(1)

    def _rounded(self, slope: Tensor) -> Tensor:
        return (slope.nan_to_num(0.0).clamp(-1.0, 1.0) * self._STEPS).round() / self._STEPS

    def _slope(self, images: Tensor) -> Tensor:
        height, width = self.shape
        images = (images.double() * 2.0**16).round()  # whole numbers, whose sums are exact in any order
        rows, columns = torch.arange(height).to(images), torch.arange(width).to(images)
        mass = images.sum((1, 2)).clamp_min(1e-9)
        row = (images.sum(2) @ rows) / mass
        column = (images.sum(1) @ columns) / mass
        both = torch.einsum("nhw,h,w->n", images, rows, columns) / mass - row * column
        square = (images.sum(2) @ rows.square()) / mass - row.square()
        return self._rounded(both / square.clamp_min(1e-9)).float()

    def _rolled(self, images: Tensor, slope: Tensor) -> Tensor:
        height, width = self.shape
        middle = (height - 1) / 2.0
        shift = (slope[:, None] * (torch.arange(height).to(slope) - middle)).round().long()
        source = (torch.arange(width, device=images.device)[None, None, :] - shift[:, :, None].to(images.device)) % width
        return images.gather(2, source)


class DistanceCodec(Codec):
    """Signed distances to the edge of the stroke, clipped at 4 pixels: bits become a smooth surface with the edge at 1/2."""

    _REACH = 4.0

    @property
    def code_size(self) -> int:
        return self.shape[0] * self.shape[1]

    def encode(self, x: Tensor) -> Tensor:
        from scipy.ndimage import distance_transform_edt

        images = (x.reshape(-1, *self.shape) > 0.5).cpu().numpy()
        levels = np.empty(images.shape, dtype=np.float32)
        for i, image in enumerate(images):
            if image.all() or not image.any():
                levels[i] = self._REACH if image.any() else -self._REACH
            else:
                levels[i] = distance_transform_edt(image) - distance_transform_edt(~image)
        code = torch.from_numpy(levels).clamp_(-self._REACH, self._REACH).div_(2.0 * self._REACH).add_(0.5)
        return code.flatten(1).to(x.device, torch.float32)

    def decode(self, code: Tensor) -> Tensor:
        # A ramp of one pixel around the edge: grey like a scanned stroke, and exact at 1/2 for bits.
        return ((code - 0.5) * 2.0 * self._REACH + 0.5).clamp(0.0, 1.0)


CODECS: dict[str, type[Codec]] = {"shear": ShearCodec, "distance": DistanceCodec}
"""Codecs by name."""


def encoded(batches: Batches, codec: Codec) -> Batches:
    """A stream of records as codes."""
    return Each(batches, lambda x, labels: (codec.encode(x), labels))
