"""Convolutional networks: a critic and an autoencoder of images, with the norms of `tape`."""

from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from dpgen.cosines import planes
from dpgen.nets.bank import Geometry, Layers
from dpgen.nets.gan import GAIN, SLOPE, CriticBank, of_label
from dpgen.nets.vae import SHRINK, VAEBank

_KERNEL, _HALVING = 4, Geometry(stride=2, padding=1)
_DOUBLING = _HALVING._replace(transposed=True)
_NORMALISED = 4  # channels of a group


def channels_of(hidden: int) -> int:
    """Channels of a first convolution where another network would have `hidden` units: an eighth, at least 8, in fours."""
    return max(8, hidden // 32 * 4)


def _require_sides(image_shape: tuple[int, ...] | None, d: int, side: int, network: str) -> tuple[int, ...]:
    if image_shape is None or prod(image_shape) != d or any(length % side for length in image_shape[-2:]):
        raise ValueError(
            f"image_shape is {image_shape}; {network} needs (height, width) or (channels, height, width) of {d} values, with "
            f"sides divisible by {side}"
        )
    return tuple(image_shape)


def _scaled(layers: Layers, name: str, x: Tensor, geometry: Geometry, gain: float = 1.0) -> Tensor:
    """A convolution whose weights are divided by the root of how many inputs an output has."""
    fan_in = x.shape[1] * _KERNEL**2 // (geometry.stride**2 if geometry.transposed else 1)
    return layers.convolution(name, x, geometry._replace(scale=gain * fan_in**-0.5))


class ConvCriticBank(CriticBank):
    r"""A critic of images: `depth` convolutions that halve the sides, each but the first followed by GroupNorm.

    Channels double from layer to layer, and the last layer has an output for every label, as in `CriticBank`, whose arguments
    these are; `hidden` counts as 8 channels for 64 units.

    Arguments:
        image_shape: (height, width) or (channels, height, width), sides divisible by 2^depth.

    Source: Radford, Metz, Chintala 2016, with GroupNorm (Wu and He 2018) for BatchNorm, which mixes records.
    """

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        if self.frequencies is not None or self.centred:
            what = f"frequencies is {self.frequencies} and centred {self.centred}"
            raise ValueError(f"{what}; a convolutional critic sees pixels as they are")
        shape = _require_sides(self.image_shape, self.d, 2**self.depth, "a convolutional critic")
        channels, height, width = planes(shape)
        widths = [channels, *(channels_of(self.hidden) * 2**i for i in range(self.depth))]
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (a, b) in enumerate(pairwise(widths)):
            shapes |= {f"{i}.weight": (b, a, _KERNEL, _KERNEL), f"{i}.bias": (b,)}
            if i:
                shapes |= {f"norm.{i}.weight": (b,), f"norm.{i}.bias": (b,)}
        features, outputs = widths[-1] * height * width // 4**self.depth, max(self.categories, 1)
        return shapes | {f"{self.depth}.weight": (outputs, features), f"{self.depth}.bias": (outputs,)}

    def initialize(self, generator: torch.Generator) -> None:
        super().initialize(generator)
        for i in range(1, self.depth):
            self.part(f"norm.{i}.weight").fill_(1.0)

    def _scores(self, x: Tensor, layers: Layers) -> Tensor:
        assert self.image_shape is not None
        x, code = x[:, : self.d], x[:, self.d :]
        x = x.unflatten(1, planes(self.image_shape))
        for i in range(self.depth):
            x = _scaled(layers, str(i), x, _HALVING, GAIN if i else 1.0)
            x = leaky_relu(layers.group_norm(f"norm.{i}", x, x.shape[1] // _NORMALISED) if i else x, SLOPE)
        x = x.flatten(1)
        return of_label(layers.affine(str(self.depth), x * (GAIN * x.shape[1] ** -0.5)), code)


class ConvVAEBank(VAEBank):
    r"""k autoencoders of images: two convolutions that halve the sides, and two transposed ones that double them.

    Arguments, loss and label columns are those of `VAEBank`; `hidden` counts as 8 channels for 64 units.

    Arguments:
        image_shape: (height, width) or (channels, height, width), sides divisible by 4.
    """

    def __init__(self, k: int, d: int, *, image_shape: tuple[int, ...], **options: Any) -> None:
        self._image_shape = _require_sides(image_shape, d - options.get("categories", 0), 4, "a convolutional autoencoder")
        super().__init__(k, d, **options)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        channels, height, width = planes(self._image_shape)
        a, b = channels_of(self.hidden), 2 * channels_of(self.hidden)
        features = b * height * width // 16
        weights: dict[str, tuple[int, ...]] = {
            "encoder.0": (a, channels, _KERNEL, _KERNEL),
            "encoder.1": (b, a, _KERNEL, _KERNEL),
            "encoder.2": (2 * self.latent, features + self.categories),
            "decoder.0": (features, self.latent),
            "decoder.1": (b, a, _KERNEL, _KERNEL),
            "decoder.2": (a, channels, _KERNEL, _KERNEL),
        }
        if self.categories:
            weights["decoder.label"] = (self.categories, self.latent)
        transposed = ("decoder.1", "decoder.2")
        shapes = ({f"{n}.weight": shape, f"{n}.bias": (shape[n in transposed],)} for n, shape in weights.items())
        return {name: shape for pair in shapes for name, shape in pair.items()}

    def architecture(self) -> dict[str, Any]:
        made = super().architecture()
        return {**{name: value for name, value in made.items() if name != "depth"}, "image_shape": list(self._image_shape)}

    def begin_at(self, means: Tensor, generator: torch.Generator) -> None:
        if self.centre is None:
            return
        self.centre.copy_(means)
        self.part("decoder.2.weight").mul_(SHRINK)
        if self.categories:
            self.part("decoder.label.weight").mul_(SHRINK)

    def _encoded(self, layers: Layers, x: Tensor) -> Tensor:
        bits = self.d - self.categories
        image, code = x[:, :bits].unflatten(1, planes(self._image_shape)), x[:, bits:]
        for i in range(2):
            image = self._active(_scaled(layers, f"encoder.{i}", image, _HALVING))
        features = torch.cat([image.flatten(1), code], 1)
        return layers.affine("encoder.2", features * features.shape[1] ** -0.5)

    def _decoded(self, layers: Layers, z: Tensor) -> Tensor:
        """Logits: where the bank is centred they begin at those of its means."""
        _, height, width = planes(self._image_shape)
        z = z * self.latent**-0.5
        image = self._active(layers.affine("decoder.0", z)).unflatten(1, (-1, height // 4, width // 4))
        image = self._active(_scaled(layers, "decoder.1", image, _DOUBLING))
        logits = _scaled(layers, "decoder.2", image, _DOUBLING).flatten(1)
        if self.categories:
            logits = torch.cat([logits, layers.affine("decoder.label", z)], 1)
        return logits if self.centre is None else logits + layers.own(self._log_odds(self.centre))
