"""Optional public codecs of images: exact changes of coordinates in which strokes are closer to Gaussian.

A codec maps each record by itself, by a public rule, so it neither costs privacy nor moves a sensitivity. Codes lie in
[0, 1]; `decode(encode(x))` gives back binary images exactly.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpgen.systems.gaussian.record_stream import Batches


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


@dataclass(frozen=True)
class EncodedStream:
    """A stream of records as codes."""

    batches: Batches
    codec: Codec

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        for x, labels in self.batches:
            yield self.codec.encode(x), labels
