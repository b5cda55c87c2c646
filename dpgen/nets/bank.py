"""k models of one architecture trained side by side, with per-record gradients in factored form."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from dpgen.facts import Said

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
    do, has weight gradient :math:`\sum_t g_{rt} a_{rt}^\top`; its bias is a factor of its own.
    """

    outputs: Tensor  # (b, out) or (b, T, out)
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


def full_precision(values: Tensor) -> Tensor:
    """Values of half precision as float32; others as they are."""
    return values if values.dtype == torch.float64 else values.to(torch.float32)


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

    @abstractmethod
    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        """Mean values (n, d) in [0, 1] of n new records of one model; free, for it reads released parameters only."""

    def released(self) -> "ModelBank":
        """The bank that a release holds: this one, or the part of it that is public."""
        return self

    def fuse(self) -> None:
        """Compile what a bank computes entry by entry with `torch.compile`; results change by rounding only."""

    def begin_at(self, means: Tensor, generator: torch.Generator) -> None:
        """Start from released means (k, d) of each model's records, where a bank can; public randomness draws the rest."""

    def begin_step(self) -> None:
        """Called once before the gradients of a step; for state that follows released parameters, as Gibbs chains do."""


def logistic(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) whose bits do not depend on where a value stands, which those of `torch.sigmoid` do.

    `sigmoid` evaluates the last values of an array, and of each thread's share of it, by another function than the others.
    """
    return x.neg().exp_().add_(1.0).reciprocal_()
