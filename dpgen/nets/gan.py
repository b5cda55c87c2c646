"""Critics and generators of adversarial networks: the critic sees private records, the generator never does."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, softplus

from dpgen.facts import Said
from dpgen.nets.bank import ModelBank, Noise, Tape, affine_shapes, logistic
from dpgen.nets.cosines import coordinates, planes
from dpgen.privacy.clipping import RecordGradients

SLOPE = 0.2
GAIN = 2.0**0.5


def critic_loss(score: Tensor, *, real: bool) -> Tensor:
    r"""The softplus of the critic's scores D of fake records, of :math:`-D` of real ones (Goodfellow et al. 2014)."""
    return softplus(-score if real else score)


def _critic_slope(score: Tensor, *, real: bool) -> Tensor:
    """Derivative of `critic_loss` by the scores."""
    sign = -1.0 if real else 1.0
    return logistic(sign * score) * sign


def sameness(x: Tensor, z: Tensor) -> Tensor:
    r"""Likeness of records x (2m, d) for noises z (2m, latent): mean of :math:`|z_i - z_{i+m}| / |x_i - x_{i+m}|`, i < m.

    A generator that ignores its noise makes it large. Source: Mao et al. 2019, equation 2, turned over as in their code.
    """
    m = len(x) // 2
    apart, drawn = ((v[:m] - v[m : 2 * m]).abs().mean(1) for v in (x, z))
    return (drawn / (apart + 1e-3)).mean()


def paired(labels: Tensor | None) -> Tensor | None:
    """Labels (n,) whose second half is the first again, so that `sameness` compares records of one label."""
    if labels is None or len(labels) < 2:
        return labels
    half = labels[: len(labels) // 2]
    return torch.cat([half, half, labels[2 * len(half) :]])


class CriticBank(ModelBank):
    r"""Critics :math:`D(x, y) = v_y \cdot \phi(x) + b_y` with `depth` hidden layers, gradients per record in factored form.

    The label selects one of the last layer's outputs: as 10 of 794 inputs it would hardly be seen. Several critics have their
    own records each, such as those of a class, and share nothing.

    Arguments:
        d: columns of a record, label not counted.
        k: critics.
        categories: number of labels, 0 without; a record's one-hot label follows its columns.
        hidden: units per hidden layer.
        depth: hidden layers.
        image_shape: of images, see `dpgen.nets.cosines.planes`; needed with `frequencies`.
        frequencies: the critic sees so many of the lowest frequencies of each channel in place of pixels, and has as many
            fewer parameters that noise is added to.
        centred: records are seen minus the means that `begin_at` is given, 1/2 without.

    Source: Miyato and Koyama 2018 (labels by projection).
    """

    described = ("k", "d", "categories", "hidden", "depth", "image_shape", "frequencies", "centred")

    def __init__(
        self,
        d: int,
        *,
        k: int = 1,
        categories: int = 0,
        hidden: int = 256,
        depth: int = 2,
        image_shape: tuple[int, ...] | None = None,
        frequencies: int | None = None,
        centred: bool = False,
    ) -> None:
        if min(d, hidden, depth) < 1:
            raise ValueError(f"d, hidden and depth must be at least 1, got {d}, {hidden} and {depth}")
        self.d, self.categories, self.hidden, self.depth = d, categories, hidden, depth
        self.image_shape, self.frequencies, self.centred = image_shape, frequencies, centred
        basis = coordinates(d, image_shape, frequencies, categories=0)
        width = d if basis is None else len(basis)
        super().__init__(k, affine_shapes("", [width, *[hidden] * depth, max(categories, 1)]))
        self._place((k, d) if centred else None, basis)

    def begin_at(self, means: Tensor, generator: torch.Generator) -> None:
        if self.centre is not None:
            self.centre.copy_(means)

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return self._gradients(x, bounds, real=True)

    def fake_gradients(self, x: Tensor, bounds: Sequence[int]) -> RecordGradients:
        """Per-record gradients of generated records (m, d): public, for they read released parameters only."""
        return self._gradients(x, bounds, real=False)

    def _gradients(self, x: Tensor, bounds: Sequence[int], *, real: bool) -> RecordGradients:
        tape = Tape(self, bounds)
        scores = self._scores(x, tape)
        return tape.gradients((scores, _critic_slope(scores.detach(), real=real)))

    def score(self, x: Tensor, bounds: Sequence[int]) -> Tensor:
        """D(x), (m,), differentiable by x (m, d + categories), rows sorted by critic."""
        return self._scores(x, Tape(self, bounds))

    def _scores(self, x: Tensor, layers: Tape) -> Tensor:
        x, code = x[:, : self.d], x[:, self.d :]
        if self.centre is not None:
            x = x - layers.own(self.centre)
        if self._basis is not None:
            x = layers.fixed(x, self._basis)
        for i in range(self.depth + 1):
            x = GAIN * leaky_relu(x, SLOPE) if i else x
            x = layers.affine(str(i), x * x.shape[1] ** -0.5)
        return (x * code).sum(1) if self.categories else x[:, 0]


class Generator(nn.Module):
    """Latent noise and a one-hot label to a record; output in [0, 1] ("sigmoid") or unbounded ("identity").

    Arguments:
        d: columns of a record, label not counted.
        latent: dimension of the noise.
        categories: number of labels, 0 without.
        hidden: units per hidden layer.
        depth: hidden layers.
        image_shape: of images; without `frequencies` two transposed convolutions stand in place of the hidden layers, which
            models of dpgen 0.4 may have.
        output: "sigmoid" or "identity".
        frequencies: the last layer writes so many of the lowest frequencies of each channel in place of pixels.
        centred: records begin at the log-odds of the means of their label that `begin_at` is given.
    """

    facts: tuple[Said, ...] = ()

    def __init__(
        self,
        d: int,
        *,
        latent: int = 32,
        categories: int = 0,
        hidden: int = 256,
        depth: int = 2,
        image_shape: tuple[int, ...] | None = None,
        output: Literal["sigmoid", "identity"] = "sigmoid",
        frequencies: int | None = None,
        centred: bool = False,
    ) -> None:
        super().__init__()
        if min(d, latent, hidden, depth) < 1 or categories < 0:
            raise ValueError(f"d, latent, hidden and depth must be at least 1, got {d}, {latent}, {hidden} and {depth}")
        self.d, self.latent, self.categories, self.hidden, self.depth = d, latent, categories, hidden, depth
        self.image_shape, self.output, self.frequencies, self.centred = image_shape, output, frequencies, centred
        basis = coordinates(d, image_shape, frequencies, categories=0)
        written = None if basis is None else basis * (d / len(basis)) ** 0.5
        self._basis: Tensor | None
        self.register_buffer("_basis", written, persistent=False)
        self.base: Tensor | None
        self.register_buffer("base", torch.zeros(max(categories, 1), d) if centred else None)
        if image_shape is None or basis is not None:
            self.layers = self._mlp(d if basis is None else len(basis))
        else:
            self.layers = self._convolutions(image_shape)

    def _mlp(self, outputs: int) -> nn.Sequential:
        widths = [self.latent + self.categories, *[self.hidden] * self.depth]
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))

    def _convolutions(self, image_shape: tuple[int, ...]) -> nn.Sequential:
        if prod(image_shape) != self.d or any(side % 4 for side in image_shape[-2:]):
            raise ValueError(f"image_shape is {image_shape}: it must have {self.d} values and sides divisible by 4")
        channels, height, breadth = planes(image_shape)
        height, breadth, width = height // 4, breadth // 4, max(8, self.hidden // 8)
        return nn.Sequential(
            nn.Linear(self.latent + self.categories, 2 * width * height * breadth),
            nn.ReLU(),
            nn.Unflatten(1, (2 * width, height, breadth)),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(width, channels, 4, stride=2, padding=1),
            nn.Flatten(),
        )

    def architecture(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this generator."""
        names = ("d", "latent", "categories", "hidden", "depth", "image_shape", "output", "frequencies", "centred")
        return {name: getattr(self, name) for name in names}

    def initialize(self, generator: torch.Generator) -> None:
        """Every parameter from public randomness: weights uniform within +-sqrt(3 / fan-in), zero biases.

        Weights of the one-hot label are sqrt(latent) times as large: it shall count as much as all the noise together.
        """
        for name, value in self.named_parameters():
            if name.endswith("weight"):
                draws = torch.rand(value.shape, generator=generator)
                value.copy_((2 * draws - 1) * (3 / value.shape[1]) ** 0.5)
            else:
                value.zero_()
        first = next(layer for layer in self.layers if isinstance(layer, nn.Linear))
        first.weight[:, self.latent :] *= self.latent**0.5

    def begin_at(self, means: Tensor) -> None:
        """Begin at released means in (0, 1) of the records of each label (max(categories, 1), d), where `centred`."""
        if self.base is not None:
            self.base.copy_(means.logit())

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """Records (m, d), followed by the one-hot labels (m, categories) if there are any."""
        if not self.categories:
            return self._record(z)
        assert labels is not None
        code = nn.functional.one_hot(labels, self.categories).to(z)
        return torch.cat([self._record(torch.cat([z, code], 1)), code], 1)

    def _record(self, z: Tensor) -> Tensor:
        x: Tensor = self.layers(z)
        if self._basis is not None:
            x = x @ self._basis
        if self.base is not None:
            x = x + (z[:, self.latent :] @ self.base if self.categories else self.base)
        return x.sigmoid() if self.output == "sigmoid" else x


class Correction(Generator):
    r"""A record z of a released model, changed to :math:`\text{clamp}(z + f(z, y), 0, 1)`; dpgen 0.4 trained such networks."""

    def __init__(self, d: int, **options: Any) -> None:
        super().__init__(d, **options | {"latent": d, "output": "identity"})

    def _record(self, z: Tensor) -> Tensor:
        return (z[:, : self.d] + super()._record(z) * self.hidden**-0.5).clamp(0.0, 1.0)
