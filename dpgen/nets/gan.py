"""Critics and generators of adversarial networks: the critic sees private records, the generator never does."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import leaky_relu, softplus

from dpgen.nets.bank import ModelBank, Noise, RecordGradients, Tape
from dpgen.nets.generic import GenericBank

Loss = Literal["nonsaturating", "wgan"]
SLOPE = 0.2


def critic_loss(score: Tensor, *, real: bool, loss: Loss) -> Tensor:
    r"""Loss of the critic's scores D: real :math:`-D`, fake :math:`+D` ("wgan"); the softplus of it ("nonsaturating").

    Source: Arjovsky et al. 2017; Goodfellow et al. 2014.
    """
    signed = -score if real else score
    return signed if loss == "wgan" else softplus(signed)


class CriticBank(ModelBank):
    r"""One critic :math:`D: R^d \to R` with `depth` hidden layers, its gradients per record in factored form.

    Arguments:
        d: columns of a record, appended one-hot label included.
        hidden: units per hidden layer.
        depth: hidden layers.
        loss: "nonsaturating" or "wgan".
    """

    def __init__(self, d: int, *, hidden: int = 256, depth: int = 2, loss: Loss = "nonsaturating") -> None:
        if min(d, hidden, depth) < 1:
            raise ValueError(f"d, hidden and depth must be at least 1, got {d}, {hidden} and {depth}")
        self.d, self.hidden, self.depth, self.loss = d, hidden, depth, loss
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (a, b) in enumerate(pairwise([d, *[hidden] * depth, 1])):
            shapes |= {f"{i}.weight": (b, a), f"{i}.bias": (b,)}
        super().__init__(1, shapes)

    def architecture(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("d", "hidden", "depth", "loss")}

    def initialize(self, generator: torch.Generator) -> None:
        """Standard normal weights (the maps divide by the square root of their fan-in), zero biases."""
        for name in self.shapes:
            if name.endswith("weight"):
                weight = self.part(name)
                weight.copy_(torch.randn(weight.shape, generator=generator))

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return self._gradients(x, bounds, real=True)

    def fake_gradients(self, x: Tensor) -> RecordGradients:
        """Per-record gradients of generated records (m, d): public, for they read released parameters only."""
        return self._gradients(x, [0, len(x)], real=False)

    def _gradients(self, x: Tensor, bounds: Sequence[int], *, real: bool) -> RecordGradients:
        tape = Tape(self, bounds)
        for i in range(self.depth + 1):
            x = leaky_relu(x, SLOPE) if i else x
            x = tape.affine(str(i), x * x.shape[1] ** -0.5)
        return tape.gradients(critic_loss(x[:, 0], real=real, loss=self.loss))

    def score(self, x: Tensor) -> Tensor:
        """D(x), (m,), differentiable by x (m, d)."""
        for i in range(self.depth + 1):
            x = leaky_relu(x, SLOPE) if i else x
            x = nn.functional.linear(x * x.shape[1] ** -0.5, self.part(f"{i}.weight")[0], self.part(f"{i}.bias")[0])
        return x[:, 0]

    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        raise ValueError("a critic makes no samples: ask the generator")


class ConvCritic(nn.Module):
    """Two strided convolutions on the pixels, with the one-hot label, if any, as constant planes."""

    latent = 1

    def __init__(self, image_shape: tuple[int, int], *, categories: int = 0, width: int = 32, loss: Loss = "nonsaturating"):
        super().__init__()
        self.image_shape, self.categories, self.kind = image_shape, categories, loss
        height, breadth = ((side + 3) // 4 for side in image_shape)
        self.first = nn.Conv2d(1 + categories, width, 5, stride=2, padding=2)
        self.second = nn.Conv2d(width, 2 * width, 5, stride=2, padding=2)
        self.last = nn.Linear(2 * width * height * breadth, 1)

    def forward(self, x: Tensor) -> Tensor:
        """D(x), (b,), of x (b, height * width + categories)."""
        pixels = prod(self.image_shape)
        planes = x[:, :pixels].unflatten(1, (1, *self.image_shape))
        if self.categories:
            labels = x[:, pixels:, None, None].expand(-1, -1, *self.image_shape)
            planes = torch.cat([planes, labels], 1)
        hidden = leaky_relu(self.second(leaky_relu(self.first(planes), SLOPE)), SLOPE)
        return self.last(hidden.flatten(1))[:, 0]

    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        """Loss of private records."""
        return critic_loss(self(x), real=True, loss=self.kind)

    def fake_loss(self, x: Tensor, z: Tensor) -> Tensor:
        """Loss of generated records."""
        return critic_loss(self(x), real=False, loss=self.kind)


class ConvCriticBank(GenericBank):
    """A convolutional critic; per-record gradients are materialised, so use micro-batches."""

    def __init__(self, module: ConvCritic) -> None:
        super().__init__(1, module)

    def fake_gradients(self, x: Tensor) -> RecordGradients:
        """See `CriticBank.fake_gradients`."""
        return self.record_gradients("fake_loss", x, [0, len(x)], x.new_zeros(len(x), 1))

    def score(self, x: Tensor) -> Tensor:
        """See `CriticBank.score`."""
        return self._call("forward")(self.theta[0].detach(), x)


class Generator(nn.Module):
    """Latent noise and a one-hot label to a record; output in [0, 1] ("sigmoid") or unbounded ("identity").

    Arguments:
        d: columns of a record, label not counted.
        latent: dimension of the noise.
        categories: number of labels, 0 without.
        hidden: units per hidden layer (mlp), or channels times 8 (cnn).
        depth: hidden layers (mlp).
        image_shape: (height, width), both divisible by 4: two transposed convolutions in place of the hidden layers.
        output: "sigmoid" or "identity".
    """

    def __init__(
        self,
        d: int,
        *,
        latent: int = 32,
        categories: int = 0,
        hidden: int = 256,
        depth: int = 2,
        image_shape: tuple[int, int] | None = None,
        output: Literal["sigmoid", "identity"] = "sigmoid",
    ) -> None:
        super().__init__()
        if min(d, latent, hidden, depth) < 1 or categories < 0:
            raise ValueError(f"d, latent, hidden, depth must be at least 1, got {d}, {latent}, {hidden}, {depth}")
        self.d, self.latent, self.categories, self.hidden, self.depth = d, latent, categories, hidden, depth
        self.image_shape, self.output = image_shape, output
        self.layers = self._convolutions(image_shape) if image_shape is not None else self._mlp()

    def _mlp(self) -> nn.Sequential:
        widths = [self.latent + self.categories, *[self.hidden] * self.depth]
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], self.d))

    def _convolutions(self, image_shape: tuple[int, int]) -> nn.Sequential:
        if prod(image_shape) != self.d or any(side % 4 for side in image_shape):
            raise ValueError(f"image_shape is {image_shape}: it must have {self.d} pixels and sides divisible by 4")
        height, breadth, width = image_shape[0] // 4, image_shape[1] // 4, max(8, self.hidden // 8)
        return nn.Sequential(
            nn.Linear(self.latent + self.categories, 2 * width * height * breadth),
            nn.ReLU(),
            nn.Unflatten(1, (2 * width, height, breadth)),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
            nn.Flatten(),
        )

    def architecture(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this generator."""
        names = ("d", "latent", "categories", "hidden", "depth", "image_shape", "output")
        return {name: getattr(self, name) for name in names}

    def initialize(self, generator: torch.Generator) -> None:
        """Every parameter from public randomness: weights uniform within +-sqrt(3 / fan-in), zero biases."""
        for name, value in self.named_parameters():
            if name.endswith("weight"):
                fan_in = value[0].numel() if value.ndim == 2 else value.shape[0] * value[0, 0].numel() // 4
                draws = torch.rand(value.shape, generator=generator)
                value.copy_((2 * draws - 1) * (3 / fan_in) ** 0.5)
            else:
                value.zero_()

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """Records (m, d), followed by the one-hot labels (m, categories) if there are any."""
        if not self.categories:
            return self._record(z)
        assert labels is not None
        code = nn.functional.one_hot(labels, self.categories).to(z)
        return torch.cat([self._record(torch.cat([z, code], 1)), code], 1)

    def _record(self, z: Tensor) -> Tensor:
        x: Tensor = self.layers(z)
        return x.sigmoid() if self.output == "sigmoid" else x


def with_parameters(module: nn.Module, parameters: dict[str, Tensor], *args: Tensor | None) -> Tensor:
    """The module's output at other parameters, such as their running average."""
    output: Tensor = functional_call(module, parameters, args)
    return output
