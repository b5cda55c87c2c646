"""Convolutional autoencoders of images, as networks of one's own are trained."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, relu

from dpgen.nets.bank import Descent, ModelBank, Noise
from dpgen.nets.cosines import planes
from dpgen.nets.own import NETWORK, GenericBank, OwnClass
from dpgen.nets.vae import RATE, SHRINK, log_odds
from dpgen.privacy.clipping import RecordGradients


class ConvVAE(nn.Module):
    """An autoencoder: two convolutions that halve the sides of images, and two transposed ones that double them.

    Inputs of every layer are divided by the root of how many of them an output has, for weights that are standard normal.
    """

    def __init__(
        self, d: int, image_shape: Sequence[int], hidden: int, latent: int, categories: int, label_weight: float, centred: bool
    ) -> None:
        super().__init__()
        self.bits, self.latent, self.label_weight, self.centred = d - categories, latent, label_weight, centred
        self.shape, a = planes(tuple(image_shape)), max(8, hidden // 32 * 4)
        channels, height, width = self.shape
        features = 2 * a * height * width // 16
        steps: Any = {"kernel_size": 4, "stride": 2, "padding": 1}
        first, last = nn.Conv2d(channels, a, **steps), nn.ConvTranspose2d(a, channels, **steps)
        between = nn.Conv2d(a, 2 * a, **steps), nn.ConvTranspose2d(2 * a, a, **steps)
        self.encoder = nn.ModuleList([first, between[0], nn.Linear(features + categories, 2 * latent)])
        self.decoder = nn.ModuleDict({"0": nn.Linear(latent, features), "1": between[1], "2": last})
        if categories:
            self.decoder["label"] = nn.Linear(latent, categories)

    def _active(self, x: Tensor) -> Tensor:
        return x.tanh() if self.centred else relu(x)

    def logits(self, z: Tensor, centre: Tensor | None) -> Tensor:
        """Logits (b, d) of the records of codes z (b, latent): they begin at those of the centre."""
        _, height, width = self.shape
        z = z * self.latent**-0.5
        x = self._active(self.decoder["0"](z)).unflatten(1, (-1, height // 4, width // 4))
        x = self._active(self.decoder["1"](x * (4 * x.shape[1]) ** -0.5))
        x = self.decoder["2"](x * (4 * x.shape[1]) ** -0.5).flatten(1)
        if "label" in self.decoder:
            x = torch.cat([x, self.decoder["label"](z)], 1)
        return x if centre is None else x + log_odds(centre, self.bits)

    def loss(self, x: Tensor, z: Tensor, centre: Tensor | None = None) -> Tensor:
        """Loss (b,) of records x (b, d) with noise z (b, latent) and their means (b, d)."""
        seen = x if centre is None else x - centre
        image = seen[:, : self.bits].unflatten(1, self.shape)
        for layer in (self.encoder[0], self.encoder[1]):
            image = self._active(layer(image * (16 * image.shape[1]) ** -0.5))
        features = torch.cat([image.flatten(1), seen[:, self.bits :]], 1)
        mean, log_var = self.encoder[2](features * features.shape[1] ** -0.5).chunk(2, 1)
        divergence = 0.5 * (mean.square() + log_var.exp() - 1.0 - log_var).sum(1)
        logits = self.logits(mean + (0.5 * log_var).exp() * z, centre)
        lost = binary_cross_entropy_with_logits(logits[:, : self.bits], x[:, : self.bits], reduction="none").sum(1)
        labels = -(logits[:, self.bits :].log_softmax(1) * x[:, self.bits :]).sum(1)
        return divergence + lost + self.label_weight * labels

    def sample(self, z: Tensor, centre: Tensor | None = None) -> Tensor:
        """Mean values (n, d) of z (n, latent)."""
        logits = self.logits(z, centre)
        return torch.cat([logits[:, : self.bits].sigmoid(), logits[:, self.bits :].softmax(1)], 1)


class ConvVAEBank(GenericBank):
    """k `ConvVAE`; arguments, loss and label columns are those of `VAEBank`, `hidden` counts as 8 channels for 64 units.

    Arguments:
        image_shape: (height, width) or (channels, height, width), sides divisible by 4.
    """

    described = ("k", "d", "hidden", "latent", "categories", "label_weight", "centred", "image_shape")

    def __init__(
        self,
        k: int,
        d: int,
        *,
        image_shape: Sequence[int],
        hidden: int = 200,
        latent: int = 2,
        categories: int = 0,
        label_weight: float = 1.0,
        centred: bool = False,
        frequencies: None = None,  # of models of dpgen 0.4
    ) -> None:
        if prod(image_shape) != d - categories or any(side % 4 for side in image_shape[-2:]):
            raise ValueError(
                f"image_shape is {tuple(image_shape)}; a convolutional autoencoder needs (height, width) or (channels, height, "
                f"width) of {d - categories} values, with sides divisible by 4"
            )
        options = {"image_shape": list(image_shape), "hidden": hidden, "latent": latent, "label_weight": label_weight}
        own = OwnClass(ConvVAE, NETWORK, options | {"categories": categories, "centred": centred}, d=d)
        super().__init__(k, own)
        self.d, self.hidden, self.latent, self.categories, self.label_weight = d, hidden, latent, categories, label_weight
        self.centred, self.image_shape, self.facts = centred, list(image_shape), ()
        self._place((k, d) if centred else None, None)
        self.descent = Descent(momentum=0.9, rate=RATE) if centred else None
        self.__dict__["template"] = self._modules.pop("template")  # all its values are those of theta

    def initialize(self, generator: torch.Generator) -> None:
        ModelBank.initialize(self, generator)

    def begin_at(self, means: Tensor, generator: torch.Generator) -> None:
        if self.centre is not None:
            self.centre.copy_(means)
            for name in ("decoder.2.weight", *["decoder.label.weight"] * (self.categories > 0)):
                self.part(name).mul_(SHRINK)

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        z = noise(x.shape[0], self.latent).to(x)
        if self.centre is None:
            return self.record_gradients("loss", bounds, x, z)
        sizes = torch.tensor(bounds).diff()
        cluster = torch.arange(self.k).repeat_interleave(sizes).to(x.device)
        return self.record_gradients("loss", bounds, x, z, self.centre[cluster])

    @torch.no_grad()
    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        z = torch.randn(n, self.latent, generator=generator).to(self.theta)
        made: Tensor = self.network(cluster).sample(z, None if self.centre is None else self.centre[cluster].expand(n, -1))
        return made
