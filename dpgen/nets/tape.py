r"""Layers of a bank on sorted rows, and the factors of their per-record gradients.

A network is written once, for `Layers`: on a `Tape` rows of all clusters go through their own models and leave the factors of
their gradients; `OneModel` is the ordinary, differentiable pass through one of them.
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

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d, group_norm, linear, pad

from dpgen.nets.bank import Factor, ModelBank, RecordGradients, Segments, full_precision, segments

_GHOST = 64
"""Multiple c of T^2 from which on a layer of so many parameters is not multiplied out."""


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
            yield from _weight_factors(*geometry.pairs(images, slopes, weight.shape[3:]), columns)

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


def _weight_factors(slopes: Tensor, patches: Tensor, columns: slice) -> Iterator[Factor]:
    """Factors of the weight gradients sum_t slopes patches^T of every group: as they are, or multiplied out."""
    b, groups, positions, out = slopes.shape
    size = out * patches.shape[3]
    if _GHOST * positions**2 >= size:
        with torch.autocast(slopes.device.type, enabled=False):
            gradient = slopes.transpose(2, 3) @ patches
        yield Factor(gradient.reshape(b, prod(gradient.shape[1:])), None, None, columns)
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
