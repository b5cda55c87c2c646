r"""k models of one architecture side by side, their layers, and per-record gradients in factored form.

A network is written once, for `Layers`: on a `Tape` rows of all clusters, sorted, go through their own models and leave the
factors of their gradients; `OneModel` is the ordinary, differentiable pass through one of them.
No layer here mixes records: there is no BatchNorm.

A convolution takes patches :math:`a_{rt}` of record r to :math:`y_{rt} = W a_{rt} + \beta` at every position t, so its
weight gradient is :math:`\sum_{t \le T} g_{rt} a_{rt}^\top`, of `out` rows and `in` columns. Of the two ways to its norm the
cheaper one is taken, layer by layer:

| where | what is kept | norm |
|---|---|---|
| :math:`c T^2 <` out in | the two factors, T (in + out) numbers | from T x T products of patches and of slopes ("ghost") |
| otherwise | the gradient itself, out in numbers | its own |

A transposed convolution is the same with image and slopes changed about; groups are layers side by side.

Source: Goodfellow 2015; Bu, Mao, Xu 2022, section 4 (mixed ghost clipping; c = 2, for memory). Here c = `_GHOST`, for time:
what is not multiplied out is added up in float64, see `dpgen.privacy.clipping`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d, group_norm, linear, pad

from dpgen.facts import Said

_GHOST = 64
"""Multiple c of T^2 from which on a layer of so many parameters is not multiplied out."""

MOST_POSITIONS = 4096
"""Of a factor; more are multiplied out."""

Noise = Callable[..., Tensor]
"""Draws standard normal noise of a shape: `noise(b, latent) -> (b, latent)`."""

Segments = Sequence[tuple[int, int, int]]
"""Products to take: cluster, first and last row (excluded) of each."""


def segments(bounds: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Cluster, first and last row (excluded) of every cluster that has rows.

    >>> list(segments([0, 0, 5]))
    [(1, 0, 5)]
    """
    return ((c, a, b) for c, (a, b) in enumerate(pairwise(bounds)) if b > a)


class Factor(NamedTuple):
    r"""Per-record gradients of one affine map :math:`y = W a + \beta`, never multiplied out.

    Record r has weight gradient :math:`g_r a_r^\top` and bias gradient :math:`g_r`. A factor without `inputs` is dense:
    its gradient is `outputs` itself, in the columns `bias`. A map that acts at T positions of a record, as convolutions
    do, has weight gradient :math:`\sum_t g_{rt} a_{rt}^\top`; its bias is a factor of its own. One-hot outputs may be codes.
    """

    outputs: Tensor  # (b, out) or (b, T, out), or (b, T) int64
    inputs: Tensor | None  # (b, in) or (b, T, in)
    weight: slice | None
    bias: slice | None


class RecordGradients(NamedTuple):
    """Gradients of b records, sorted by cluster: cluster c owns the rows `bounds[c]:bounds[c + 1]`.

    `offset` (k, p), if given, holds public values: record r of cluster c has gradient (factors of r) - offset[c].
    `present` (k,), if given, says how many of a cluster's rows are records; they come first, the rest only pads.
    """

    factors: Sequence[Factor]
    bounds: Sequence[int]
    offset: Tensor | None = None
    present: Sequence[int] | None = None

    def segments(self) -> Iterator[tuple[int, int, int]]:
        """See `segments`."""
        return segments(self.bounds)

    def full(self) -> "RecordGradients":
        """The same gradients with every factor at least float32: those of half precision count with the values they have."""
        factors = [
            Factor(full_precision(f.outputs), f.inputs if f.inputs is None else full_precision(f.inputs), *f[2:])
            for f in self.factors
        ]
        return self._replace(factors=factors, offset=None if self.offset is None else full_precision(self.offset))


def affine_shapes(prefix: str, widths: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Shapes of the affine maps of a perceptron with layers of these widths, by the names of their parameters.

    >>> affine_shapes("encoder.", [784, 200])
    {'encoder.0.weight': (200, 784), 'encoder.0.bias': (200,)}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (a, b) in enumerate(pairwise(widths)):
        shapes |= {f"{prefix}{i}.weight": (b, a), f"{prefix}{i}.bias": (b,)}
    return shapes


def full_precision(values: Tensor) -> Tensor:
    """Values of half precision as float32; others as they are."""
    return values.to(torch.float32) if values.is_floating_point() and values.dtype != torch.float64 else values


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


# -- layers ---------------------------------------------------------------------------------------------------------------


class Geometry(NamedTuple):
    """How a convolution moves over an image, in `torch.nn.Conv2d`'s words; `transposed`: as `ConvTranspose2d`.

    Weights count `scale` times: dividing them by the root of an output's inputs costs less than dividing images.
    """

    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    scale: float = 1.0

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution of images (b, channels, height, width)."""
        weight = weight * self.scale
        if self.transposed:
            return conv_transpose2d(x, weight, bias, self.stride, self.padding, 0, self.groups, self.dilation)
        return conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def slopes(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Derivatives by x (b, channels, height, width), given those by the output."""
        stride, padding, dilation = ([value] * 2 for value in (self.stride, self.padding, self.dilation))
        moves = (stride, padding, dilation, self.transposed, [0, 0], self.groups)
        made: Tensor = torch.ops.aten.convolution_backward(grad, x, weight * self.scale, None, *moves, [True, False, False])[0]
        return made

    def pairs(self, x: Tensor, grad: Tensor, kernel: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Slopes (b, groups, T, out) and patches (b, groups, T, in) whose products, summed over T, are weight gradients."""
        rows, image = (x, grad) if self.transposed else (grad, x)
        return (
            (rows * self.scale).flatten(2).unflatten(1, (self.groups, -1)).transpose(2, 3),
            self._patches(image, *kernel).unflatten(1, (self.groups, -1)).transpose(2, 3),
        )

    def _patches(self, image: Tensor, height: int, width: int) -> Tensor:
        """`torch.nn.functional.unfold`, (b, channels * height * width, T), as one copy of a view, in half the time."""
        x = pad(image, (self.padding,) * 4)
        down, right = ((n - self.dilation * (k - 1) - 1) // self.stride + 1 for n, k in zip(x.shape[2:], (height, width)))
        b, c, h, w = x.stride()
        view = x.as_strided(
            (*x.shape[:2], height, width, down, right),
            (b, c, h * self.dilation, w * self.dilation, h * self.stride, w * self.stride),
        )
        return view.reshape(len(x), x.shape[1] * height * width, down * right)


# -- layers of sorted rows -----------------------------------------------------------------------------------------------


def in_ambient_precision(*values: Tensor) -> tuple[Tensor, ...]:
    """Float32 values in the type of the autocast around, which leaves operations with `out=` alone; as they are without."""
    kind = values[0].device.type
    if not torch.is_autocast_enabled(kind):
        return values
    return tuple(v.to(torch.get_autocast_dtype(kind)) if v.dtype == torch.float32 else v for v in values)


class _SegmentAffine(torch.autograd.Function):
    """Rows of cluster c times the weights of model c; gradients flow to the rows only, the factors cover the weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, segments: Segments) -> Tensor:
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


class _SegmentConvolution(torch.autograd.Function):
    """Images of cluster c convolved with the weights of model c; gradients flow to the images only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, segments: Segments, geometry: Geometry) -> Tensor:
        x, weight, bias = in_ambient_precision(x, weight, bias)
        ctx.save_for_backward(x, weight)
        ctx.segments, ctx.geometry = segments, geometry
        made = [geometry(x[a:b], weight[c], bias[c]) for c, a, b in segments]
        return torch.cat(made) if made else geometry(x, weight[0], bias[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None, None, None, None
        (x, weight), (grad,) = ctx.saved_tensors, grads
        made = [ctx.geometry.slopes(grad[a:b].contiguous(), x[a:b], weight[c]) for c, a, b in ctx.segments]
        return (torch.cat(made) if made else torch.zeros_like(x)), None, None, None, None


class _Call(NamedTuple):
    """A layer as it was used: its output, and the factors of its gradients, given the slopes (b, ...) by the output."""

    name: str
    output: Tensor
    factors: Callable[[Tensor], Iterator[Factor]]


class Tape:
    """Layers with parameters `{name}.weight` and `{name}.bias` of the bank, each used at most once, on sorted rows."""

    def __init__(self, bank: ModelBank, bounds: Sequence[int]) -> None:
        self.bank, self.bounds, self._segments = bank, bounds, list(segments(bounds))
        sizes = torch.tensor(bounds).diff()
        self._models = torch.arange(bank.k).repeat_interleave(sizes).to(bank.theta.device) if bank.k > 1 else None
        self._calls: list[_Call] = []

    def affine(self, name: str, x: Tensor) -> Tensor:
        """Rows (b, in) times the weights (out, in) of their own model, plus the bias."""
        weight, bias, columns = self._parameters(name)
        inputs, y = x.detach(), _SegmentAffine.apply(x, weight, bias, self._segments)
        return self._kept(name, y, lambda slopes: iter([Factor(slopes, inputs, *columns)]))

    def fixed(self, x: Tensor, weight: Tensor) -> Tensor:
        """Rows (b, in) times public numbers (out, in) that are no parameters.

        In the shapes of the other products, so that a row has the same bits beside any others.
        """
        k, out = self.bank.k, len(weight)
        weights, biases = weight.expand(k, *weight.shape), weight.new_zeros(1, out).expand(k, out)
        made: Tensor = _SegmentAffine.apply(x, weights, biases, self._segments)
        return made

    def convolution(self, name: str, x: Tensor, geometry: Geometry) -> Tensor:
        """Convolved images (b, channels, height, width); weights are as in `torch.nn.Conv2d` or `ConvTranspose2d`."""
        weight, bias, (columns, of_bias) = self._parameters(name)
        images = full_precision(x.detach())
        y = _SegmentConvolution.apply(x, weight, bias, self._segments, geometry)

        def factors(slopes: Tensor) -> Iterator[Factor]:
            slopes = full_precision(slopes)
            yield Factor(slopes.flatten(2).sum(2), None, None, of_bias)
            yield from weight_factors(*geometry.pairs(images, slopes, weight.shape[3:]), columns)

        return self._kept(name, y, factors)

    def group_norm(self, name: str, x: Tensor, groups: int) -> Tensor:
        """Each record's channels normalised over their group, times the weight of their channel, plus its bias."""
        weight, bias, (columns, of_bias) = self._parameters(name)
        normal = group_norm(x, groups)
        of_row = (..., *[None] * (x.ndim - 2))
        values = full_precision(normal.detach())

        def factors(slopes: Tensor) -> Iterator[Factor]:
            slopes = full_precision(slopes)
            yield Factor((slopes * values).flatten(2).sum(2), None, None, columns)
            yield Factor(slopes.flatten(2).sum(2), None, None, of_bias)

        return self._kept(name, normal * self.own(weight)[of_row] + self.own(bias)[of_row], factors)

    def own(self, values: Tensor) -> Tensor:
        """Those of each row's model (b, ...), of `values` (k, ...)."""
        return values[self._models] if self.bank.k > 1 else values.expand(self.bounds[-1], *values.shape[1:])

    def gradients(self, losses: Tensor | None, *known: tuple[Tensor, Tensor]) -> RecordGradients:
        """Factored gradients of per-record losses (b,), if any, plus `known` terms: a value and the term's derivative by it."""
        summed: list[tuple[Tensor, Tensor | None]] = [] if losses is None else [(losses.sum(), None)]
        values, slopes = zip(*summed, *known)
        outputs = torch.autograd.grad(values, [call.output for call in self._calls], slopes)
        factors = [factor for call, g in zip(self._calls, outputs) for factor in call.factors(g)]
        return RecordGradients(factors, self.bounds)

    def _parameters(self, name: str) -> tuple[Tensor, Tensor, tuple[slice, slice]]:
        if any(call.name == name for call in self._calls):
            raise ValueError(f"layer {name!r} is used twice: a shared layer has no factored norm, use the generic bank")
        weight, bias = f"{name}.weight", f"{name}.bias"
        columns = self.bank.columns
        return self.bank.part(weight), self.bank.part(bias), (columns[weight], columns[bias])

    def _kept(self, name: str, y: Tensor, factors: Callable[[Tensor], Iterator[Factor]]) -> Tensor:
        if not y.requires_grad:
            y.requires_grad_()
        self._calls.append(_Call(name, y, factors))
        return y


def multiplied_out(positions: int, size: int) -> bool:
    """Whether the gradient of so many parameters, a sum over positions, is cheaper than its factors."""
    return positions > MOST_POSITIONS or _GHOST * positions**2 >= size


def weight_factors(slopes: Tensor, patches: Tensor, columns: slice) -> Iterator[Factor]:
    """Factors of the weight gradients sum_t slopes patches^T of every group: as they are, or multiplied out."""
    b, groups, positions, out = slopes.shape
    size = out * patches.shape[3]
    if multiplied_out(positions, size):
        with torch.autocast(slopes.device.type, enabled=False):
            gradient = torch.bmm(slopes.flatten(0, 1).mT, patches.flatten(0, 1))
        yield Factor(gradient.reshape(b, groups * size), None, None, columns)
        return
    for j in range(groups):
        part = slice(columns.start + j * size, columns.start + (j + 1) * size)
        yield Factor(slopes[:, j], patches[:, j], part, None)


class OneModel:
    """The layers of `Tape` for one model of a bank, differentiable by their input: the ordinary pass, which records nothing."""

    def __init__(self, bank: ModelBank, cluster: int = 0) -> None:
        self.bank, self.cluster = bank, cluster

    def _of(self, name: str) -> tuple[Tensor, Tensor]:
        return self.bank.part(f"{name}.weight")[self.cluster], self.bank.part(f"{name}.bias")[self.cluster]

    def affine(self, name: str, x: Tensor) -> Tensor:
        return linear(x, *self._of(name))

    def fixed(self, x: Tensor, weight: Tensor) -> Tensor:
        return linear(x, weight)

    def convolution(self, name: str, x: Tensor, geometry: Geometry) -> Tensor:
        return geometry(x, *self._of(name))

    def group_norm(self, name: str, x: Tensor, groups: int) -> Tensor:
        return group_norm(x, groups, *self._of(name))

    def own(self, values: Tensor) -> Tensor:
        return values[self.cluster]


Layers = Tape | OneModel
"""What a network is written for."""


# -- convolutions that halve or double the sides of images ----------------------------------------------------------------

KERNEL, HALVING = 4, Geometry(stride=2, padding=1)
DOUBLING = HALVING._replace(transposed=True)


def channels_of(hidden: int) -> int:
    """Channels of a first convolution where another network would have `hidden` units: an eighth, at least 8, in fours."""
    return max(8, hidden // 32 * 4)


def require_sides(image_shape: tuple[int, ...] | None, d: int, side: int, network: str) -> tuple[int, ...]:
    """The shape of images of d values whose sides are divisible by `side`, refused otherwise."""
    if image_shape is None or prod(image_shape) != d or any(length % side for length in image_shape[-2:]):
        raise ValueError(
            f"image_shape is {image_shape}; {network} needs (height, width) or (channels, height, width) of {d} values, with "
            f"sides divisible by {side}"
        )
    return tuple(image_shape)


def scaled(layers: Layers, name: str, x: Tensor, geometry: Geometry, gain: float = 1.0) -> Tensor:
    """A convolution whose weights are divided by the root of how many inputs an output has."""
    fan_in = x.shape[1] * KERNEL**2 // (geometry.stride**2 if geometry.transposed else 1)
    return layers.convolution(name, x, geometry._replace(scale=gain * fan_in**-0.5))
