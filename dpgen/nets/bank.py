r"""k models of one architecture side by side, their layers, and per-record gradients in factored form.

On a `Tape` rows of all clusters, sorted, go through their own models and leave the factors of their gradients.
No layer here mixes records: there is no BatchNorm.

Source: Goodfellow 2015.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from dpgen.facts import Said
from dpgen.privacy.clipping import Factor, RecordGradients, segments

Noise = Callable[..., Tensor]
"""Draws standard normal noise of a shape: `noise(b, latent) -> (b, latent)`."""


def affine_shapes(prefix: str, widths: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Shapes of the affine maps of a perceptron with layers of these widths, by the names of their parameters.

    >>> affine_shapes("encoder.", [784, 200])
    {'encoder.0.weight': (200, 784), 'encoder.0.bias': (200,)}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (a, b) in enumerate(pairwise(widths)):
        shapes |= {f"{prefix}{i}.weight": (b, a), f"{prefix}{i}.bias": (b,)}
    return shapes


class Descent(NamedTuple):
    """Gradient descent with momentum on clipped gradients of norm at most 1; `rate` times the configured learning rate."""

    momentum: float
    rate: float


class ModelBank(nn.Module, ABC):
    r"""k parameter vectors of one architecture as one matrix :math:`\theta` of shape (k, p).

    One matrix makes noise, scaling and the optimizer single calls; `part(name)` is a view of one layer of all k models, whose
    parameters have these `shapes`.
    """

    passes: ClassVar[int] = 1
    """Passes through a model that a sample of it takes."""

    described: ClassVar[tuple[str, ...]] = ()
    """Attributes that are the keyword arguments of the class."""

    classifies: ClassVar[bool] = False
    """Whether it is a classifier, whose weights are released."""

    centre: Tensor | None
    _basis: Tensor | None

    descent: Descent | None = None
    """Plain gradient descent, where it trains this bank better under noise than Adam does."""

    facts: tuple[Said, ...] = ()
    """Sentences that the statement of a release of this bank assumes."""

    def __init__(self, k: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        self.k, self.shapes = k, dict(shapes)
        ends = [0, *accumulate(map(prod, self.shapes.values()))]
        self.columns = {name: slice(*ab) for name, ab in zip(self.shapes, pairwise(ends))}
        self.theta = nn.Parameter(torch.zeros(k, ends[-1]))

    @property
    def p(self) -> int:
        """Number of parameters of one model."""
        return self.theta.shape[1]

    def part(self, name: str, values: Tensor | None = None) -> Tensor:
        """The view (k, *shape) of one named parameter in `values` (k, p), by default in the parameters themselves."""
        values = self.theta.detach() if values is None else values
        return values[:, self.columns[name]].unflatten(1, self.shapes[name])

    def architecture(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this bank, for a released model."""
        return {name: getattr(self, name) for name in self.described}

    def _place(self, means: tuple[int, int] | None, basis: Tensor | None) -> None:
        """Buffers of the means (k, d) that records are seen without, 1/2 until `begin_at`, and of public coordinates."""
        self.register_buffer("centre", None if means is None else torch.full(means, 0.5))
        self.register_buffer("_basis", basis, persistent=False)

    def settle(self) -> None:
        """Refuse networks that could not be trained privately, or not be released; called before anything is spent."""

    def initialize(self, generator: torch.Generator) -> None:
        """Parameters from public randomness: standard normal weights, for maps that divide by the root of their fan-in."""
        for name in self.shapes:
            if name.endswith("weight"):
                weight = self.part(name)
                weight.copy_(torch.randn(weight.shape, generator=generator))

    @abstractmethod
    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        """Per-record gradients of the loss of x (b, d), rows sorted by cluster, at the current parameters.

        Whatever randomness acts on records comes from `noise`, which must be secret: with a known stream, removing one
        record would move the noise of all records behind it.
        """

    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        """Mean values (n, d) in [0, 1] of n new records of one model; free, for it reads released parameters only."""
        raise ValueError(f"a {type(self).__name__} makes no samples")

    def released(self) -> "ModelBank":
        """The bank that a release holds: this one, or the part of it that is public."""
        return self

    def begin_at(self, means: Tensor, generator: torch.Generator) -> None:
        """Start from released means (k, d) of each model's records, where a bank can; public randomness draws the rest."""

    def begin_step(self) -> None:
        """Called once before the gradients of a step; for state that follows released parameters, as Gibbs chains do."""


def logistic(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) whose bits do not depend on where a value stands, which those of `torch.sigmoid` do.

    `sigmoid` evaluates the last values of an array, and of each thread's share of it, by another function than the others.
    """
    return x.neg().exp_().add_(1.0).reciprocal_()


# -- layers of sorted rows ---------------------------------------------------------------------------------------------


def in_ambient_precision(*values: Tensor) -> tuple[Tensor, ...]:
    """Float32 values in the type of the autocast around, which leaves operations with `out=` alone; as they are without."""
    kind = values[0].device.type
    if not torch.is_autocast_enabled(kind):
        return values
    return tuple(v.to(torch.get_autocast_dtype(kind)) if v.dtype == torch.float32 else v for v in values)


class _SegmentAffine(torch.autograd.Function):
    """Rows of cluster c times the weights of model c; gradients flow to the rows only, the factors cover the weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, segments: Sequence[tuple[int, int, int]]) -> Tensor:
        x, weight, bias = in_ambient_precision(x, weight, bias)
        ctx.save_for_backward(weight)
        ctx.segments = segments
        y = x.new_empty(x.shape[0], weight.shape[1])
        for c, a, b in segments:
            torch.addmm(bias[c], x[a:b], weight[c].T, out=y[a:b])
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        (weight,), (grad,) = ctx.saved_tensors, grads
        out = grad.new_empty(grad.shape[0], weight.shape[2])
        for c, a, b in ctx.segments:
            torch.mm(grad[a:b], weight[c], out=out[a:b])
        return out, None, None, None


class Tape:
    """Layers with parameters `{name}.weight` and `{name}.bias` of the bank, each used at most once, on sorted rows."""

    def __init__(self, bank: ModelBank, bounds: Sequence[int]) -> None:
        self.bank, self.bounds, self._segments = bank, bounds, list(segments(bounds))
        sizes = torch.tensor(bounds).diff()
        self._models = torch.arange(bank.k).repeat_interleave(sizes).to(bank.theta.device) if bank.k > 1 else None
        self._calls: dict[str, tuple[Tensor, Tensor]] = {}

    def affine(self, name: str, x: Tensor) -> Tensor:
        """Rows (b, in) times the weights (out, in) of their own model, plus the bias."""
        if name in self._calls:
            raise ValueError(f"layer {name!r} is used twice: a shared layer has no factored norm, use the generic bank")
        weight, bias = self.bank.part(f"{name}.weight"), self.bank.part(f"{name}.bias")
        y: Tensor = _SegmentAffine.apply(x, weight, bias, self._segments)
        if not y.requires_grad:
            y.requires_grad_()
        self._calls[name] = x.detach(), y
        return y

    def fixed(self, x: Tensor, weight: Tensor) -> Tensor:
        """Rows (b, in) times public numbers (out, in) that are no parameters.

        In the shapes of the other products, so that a row has the same bits beside any others.
        """
        k, out = self.bank.k, len(weight)
        weights, biases = weight.expand(k, *weight.shape), weight.new_zeros(1, out).expand(k, out)
        made: Tensor = _SegmentAffine.apply(x, weights, biases, self._segments)
        return made

    def own(self, values: Tensor) -> Tensor:
        """Values (b, ...) of each row's model, of `values` (k, ...)."""
        return values[self._models] if self.bank.k > 1 else values.expand(self.bounds[-1], *values.shape[1:])

    def gradients(self, *known: tuple[Tensor, Tensor]) -> RecordGradients:
        """Factored gradients of a loss of which these values and its derivatives by them are known."""
        values, slopes = zip(*known)
        outputs = torch.autograd.grad(values, [y for _, y in self._calls.values()], slopes)
        columns = self.bank.columns
        factors = [
            Factor(g, x, columns[f"{name}.weight"], columns[f"{name}.bias"])
            for (name, (x, _)), g in zip(self._calls.items(), outputs)
        ]
        return RecordGradients(factors, self.bounds)
