"""k models of one architecture trained side by side, with per-record gradients in factored form."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

Noise = Callable[..., Tensor]
"""Draws standard normal noise of a shape: `noise(b, latent) -> (b, latent)`."""


Segments = Sequence[tuple[int, int, int]]
"""Products to take: cluster, first and last row (excluded) of each."""


def segments(bounds: Sequence[int], most: int | None) -> Iterator[tuple[int, int, int]]:
    """Cluster, first and last row (excluded) of every product: the rows of a cluster, `most` at a time.

    >>> list(segments([0, 0, 5], 3))
    [(1, 0, 3), (1, 3, 5)]
    """
    for c, (a, b) in enumerate(pairwise(bounds)):
        for start in range(a, b, most or b - a or 1):
            yield c, start, min(b, start + most) if most else b


class Factor(NamedTuple):
    r"""Per-record gradients of one affine map :math:`y = W a + \beta`, never multiplied out.

    Record r has weight gradient :math:`g_r a_r^\top` and bias gradient :math:`g_r`. A factor without `inputs` is dense:
    its gradient is `outputs` itself, in the columns `bias`.
    """

    outputs: Tensor  # (b, out)
    inputs: Tensor | None  # (b, in)
    weight: slice | None
    bias: slice | None


class RecordGradients(NamedTuple):
    """Gradients of b records, sorted by cluster: cluster c owns the rows `bounds[c]:bounds[c + 1]`.

    `offset` (k, p), if given, holds public values: record r of cluster c has gradient (factors of r) - offset[c].
    `present` (k,), if given, says how many of a cluster's rows are records; they come first, the rest only pads.
    `most_rows`, if given, is how many rows one product may have.
    """

    factors: Sequence[Factor]
    bounds: Sequence[int]
    offset: Tensor | None = None
    present: Sequence[int] | None = None
    most_rows: int | None = None

    def segments(self) -> Iterator[tuple[int, int, int]]:
        """See `segments`."""
        return segments(self.bounds, self.most_rows)

    def full(self) -> "RecordGradients":
        """The same gradients with every factor at least float32: those of half precision count with the values they have."""
        factors = [Factor(_full(f.outputs), f.inputs if f.inputs is None else _full(f.inputs), *f[2:]) for f in self.factors]
        return self._replace(factors=factors, offset=None if self.offset is None else _full(self.offset))


def _full(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.to(torch.float32)


class Descent(NamedTuple):
    """Gradient descent with momentum on clipped gradients of norm at most 1; `rate` times the configured learning rate."""

    momentum: float
    rate: float


class ModelBank(nn.Module, ABC):
    r"""k parameter vectors of one architecture as one matrix :math:`\theta` of shape (k, p).

    One matrix makes noise, scaling and the optimizer single calls; `part(name)` is a view of one layer of all k models.

    Arguments:
        k: number of models, at least 1.
        shapes: shape of every named parameter of one model.
    """

    dense: ClassVar[bool] = False
    """Whether gradients are multiplied out, p numbers for every record."""

    passes: ClassVar[int] = 1
    """Passes through a model that a sample of it takes."""

    has_offset: ClassVar[bool] = False
    """Whether gradients come with public values to be taken off, see `RecordGradients`."""

    descent: Descent | None = None
    """Plain gradient descent, where it trains this bank better under noise than Adam does."""

    assumptions: tuple[str, ...] = ()
    """What a statement rests on because of this bank."""

    def __init__(self, k: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        self.k, self.shapes = k, dict(shapes)
        ends = torch.tensor([prod(s) for s in self.shapes.values()]).cumsum(0).tolist()
        self.columns = {name: slice(a, b) for name, a, b in zip(self.shapes, [0, *ends[:-1]], ends)}
        self.theta = nn.Parameter(torch.zeros(k, ends[-1]))
        self.most_rows: int | None = None
        """Rows of one product at most; None: as many as a cluster has."""
        self.transposed = False
        """Affine maps multiply the transposed records: slower, but every record is a column, and treated like any other.

        A bank without affine maps of its own gives every record a product of its own instead.
        """

    def segments(self, bounds: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """See `segments`, with this bank's `most_rows`."""
        return segments(bounds, self.most_rows)

    @property
    def p(self) -> int:
        """Number of parameters of one model."""
        return self.theta.shape[1]

    def part(self, name: str, values: Tensor | None = None) -> Tensor:
        """The view (k, *shape) of one named parameter in `values` (k, p), by default in the parameters themselves."""
        values = self.theta.detach() if values is None else values
        return values[:, self.columns[name]].unflatten(1, self.shapes[name])

    @abstractmethod
    def architecture(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this bank, for a released model."""

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

    @abstractmethod
    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        """Mean values (n, d) in [0, 1] of n new records of one model; free, for it reads released parameters only."""

    def released(self) -> "ModelBank":
        """What a release holds of this bank."""
        return self

    def fuse(self) -> None:
        """Compile what a bank computes entry by entry with `torch.compile`; results change by rounding only."""

    def begin_at(self, means: Tensor, generator: torch.Generator) -> None:
        """Start from released means (k, d) of each model's records, where a bank can; public randomness draws the rest."""

    def begin_step(self) -> None:
        """Called once before the gradients of a step; for state that follows released parameters, as Gibbs chains do."""


def in_ambient_precision(*values: Tensor) -> tuple[Tensor, ...]:
    """Float32 values in the type of the autocast around, which leaves operations with `out=` alone; as they are without."""
    kind = values[0].device.type
    if not torch.is_autocast_enabled(kind):
        return values
    return tuple(v.to(torch.get_autocast_dtype(kind)) if v.dtype == torch.float32 else v for v in values)


def logistic(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) whose bits do not depend on where a value stands, which those of `torch.sigmoid` do.

    `sigmoid` evaluates the last values of an array, and of each thread's share of it, by another function than the others.
    """
    return x.neg().exp_().add_(1.0).reciprocal_()


class _SegmentAffine(torch.autograd.Function):
    """Rows of cluster c times the weights of model c; gradients flow to the rows only, the factors cover the weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, segments: Segments, transposed: bool) -> Tensor:
        x, weight, bias = in_ambient_precision(x, weight, bias)
        ctx.save_for_backward(weight)
        ctx.segments, ctx.transposed = segments, transposed
        y = x.new_empty(x.shape[0], weight.shape[1])
        for c, a, b in segments:
            if transposed:
                torch.add((weight[c] @ x[a:b].T).T, bias[c], out=y[a:b])
            else:
                torch.addmm(bias[c], x[a:b], weight[c].T, out=y[a:b])
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None, None, None, None
        (weight,), (grad,) = ctx.saved_tensors, grads
        out = grad.new_empty(grad.shape[0], weight.shape[2])
        for c, a, b in ctx.segments:
            if ctx.transposed:
                out[a:b] = (weight[c].T @ grad[a:b].T).T
            else:
                torch.mm(grad[a:b], weight[c], out=out[a:b])
        return out, None, None, None, None


class Tape:
    """Applies the affine maps of a bank to sorted rows and remembers what their factored gradients need."""

    def __init__(self, bank: ModelBank, bounds: Sequence[int]) -> None:
        self.bank, self.bounds, self._segments = bank, bounds, list(bank.segments(bounds))
        self._calls: list[tuple[str, Tensor, Tensor]] = []

    def affine(self, name: str, x: Tensor) -> Tensor:
        """Rows times `{name}.weight` of their own model plus `{name}.bias`; each map may be used once per record."""
        if any(used == name for used, _, _ in self._calls):
            raise ValueError(f"layer {name!r} is used twice: a shared layer has no factored norm, use the generic bank")
        weight, bias = self.bank.part(f"{name}.weight"), self.bank.part(f"{name}.bias")
        y = _SegmentAffine.apply(x, weight, bias, self._segments, self.bank.transposed)
        if not y.requires_grad:
            y.requires_grad_()
        self._calls.append((name, x.detach(), y))
        return y

    def gradients(self, losses: Tensor | None, *known: tuple[Tensor, Tensor]) -> RecordGradients:
        """Factored gradients of per-record losses (b,), if any, plus `known` terms: a value and the term's derivative by it."""
        summed: list[tuple[Tensor, Tensor | None]] = [] if losses is None else [(losses.sum(), None)]
        values, slopes = zip(*summed, *known)
        outputs = torch.autograd.grad(values, [y for _, _, y in self._calls], slopes)
        columns = self.bank.columns
        factors = [
            Factor(g, a, columns[f"{name}.weight"], columns[f"{name}.bias"]) for (name, a, _), g in zip(self._calls, outputs)
        ]
        return RecordGradients(factors, self.bounds)
