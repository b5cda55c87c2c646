"""What networks learn from: records of bits, or images as rows of pixels, with one scale for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from dpgen.release import image_rows
from dpgen.systems.plan import PrivateImages, PrivateRecords

WHITE = 255
"""The value of a pixel that networks see as 1."""


class Inputs(NamedTuple):
    """Values x / white in [0, 1]: a row (d,) for each record, or for each image channel by channel; and labels (n,).

    >>> Inputs(torch.tensor([[0, 51, 255]]).byte(), None, WHITE).values(torch.tensor([0])).tolist()
    [[0.0, 0.2..., 1.0]]
    """

    x: Tensor
    labels: Tensor | None
    white: int = 1

    def values(self, rows: Tensor) -> Tensor:
        """Values (b, d) float32 of rows (b,)."""
        return self.x[rows].float() / self.white


def channels_first(shape: Sequence[int]) -> tuple[int, int, int]:
    """(channels, height, width), by which networks know images (height, width, channels)."""
    height, width, channels = shape
    return channels, height, width


def pictures(values: Tensor, shape: Sequence[int]) -> Tensor:
    """Images (n, height, width, channels) uint8 of values (n, channels * height * width): the inverse of `Inputs.values`."""
    pixels = (values * WHITE).round().clamp(0, WHITE).to(torch.uint8)
    return pixels.view(-1, *channels_first(shape)).permute(0, 2, 3, 1).contiguous()


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Private data as one training by DP-SGD sees them; all but `inputs` and `people` is public.

    Arguments:
        inputs: values, and labels in [0, n_classes) if there are any.
        n_classes: number of labels, 0 without.
        image_shape: of records (height, width), of images (channels, height, width).
        people: a number (n,) for the person of each record, if people may have several.
        public_x: records that are not protected.
        columns: names of the columns of records.
        class_names: of images.
    """

    inputs: Inputs
    n_classes: int = 0
    image_shape: tuple[int, ...] | None = None
    people: Tensor | None = None
    public_x: Tensor | None = None
    columns: Sequence[str] | None = None
    class_names: Sequence[str] | None = None

    @classmethod
    def of(cls, data: PrivateRecords | PrivateImages) -> TrainingData:
        """Those of records or images."""
        if data.x.ndim == 4:
            images, shape = cast(PrivateImages, data), channels_first(data.x.shape[1:])
            inputs = Inputs(image_rows(images.x), images.labels, WHITE)
            return cls(inputs=inputs, n_classes=images.n_classes, image_shape=shape, class_names=images.class_names)
        records = cast(PrivateRecords, data)
        told = {name: getattr(records, name) for name in ("n_classes", "image_shape", "people", "public_x", "columns")}
        return cls(inputs=Inputs(records.x, records.labels), **told)

    @property
    def d(self) -> int:
        """Columns of a record, or values of an image."""
        return int(self.inputs.x.shape[1])

    @property
    def pixels(self) -> tuple[int, ...] | None:
        """(channels, height, width) of images; None of records, also where these are images of bits."""
        return self.image_shape if self.class_names is not None else None
