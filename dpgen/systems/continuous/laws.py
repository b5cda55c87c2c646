"""What a draw follows ideally: Q0 tilted by bounded classifiers, or clipped to a box. PRIVATE: only draws may leave."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from dpgen.systems.continuous.box import Box, mollified
from dpgen.systems.continuous.references import Reference

PrivateFunction = Callable[[Tensor], Tensor]
"""Points (n, d) in the user's units to values (n,): learned from private data, trusted in nothing."""

LARGEST_LOGIT = 50.0
_ROWS = 4096
_EDGE = 1e-4
_PUBLIC_POINTS = 2**17


def bounded(values: Tensor, n: int, limit: float = LARGEST_LOGIT) -> Tensor:
    """Values of a network as float64 (n,) in [-limit, limit]; what is not finite becomes 0.

    Raises:
        ValueError: not one value for each point.
    """
    if values.numel() != n:
        raise ValueError(f"the classifier gave values of shape {tuple(values.shape)}; it must give one for each of {n} points")
    values = values.detach().reshape(n).to("cpu", torch.float64)
    return torch.where(torch.isfinite(values), values, 0.0).clamp(-limit, limit)


@torch.no_grad()
def evaluated(function: PrivateFunction, x: Tensor, limit: float = LARGEST_LOGIT) -> Tensor:
    """`bounded` values (n,) at points (n, d), a part at a time: the number of calls depends on n only."""
    return torch.cat([bounded(function(part), len(part), limit) for part in x.split(_ROWS)])


def logits_of(module: nn.Module, reference: Reference) -> PrivateFunction:
    """A network's logits as a function of points in the user's units."""

    def function(x: Tensor) -> Tensor:
        values: Tensor = module(reference.standardised(x))
        return values

    return function


class Law(ABC):
    r"""Density of one draw relative to the reference, as far as it is known: private, for evaluation on this machine.

    Arguments:
        function: private function of points.
        reference: Q0.
        box: what the density ratio stays in.
        epsilon: of one draw.

    Source: Husain et al. 2018, Lemma 4: densities of an epsilon-mollifier may be sampled, not shown.
    """

    def __init__(self, function: PrivateFunction, reference: Reference, *, box: Box, epsilon: float) -> None:
        self.function, self.reference, self.box, self.epsilon = function, reference, box, epsilon
        self.rows: list[dict[str, Any]] = []
        self._constant: float | None = None

    def certificates(self) -> list[dict[str, Any]]:
        """What is known about the quality, a row for each round: computed on private data, not for release."""
        return self.rows

    @abstractmethod
    def log_ratio(self, x: Tensor) -> Tensor:
        """log dQ/dQ0 (n,) at points (n, d); normalised up to the error of a mean over 2^17 public points."""

    def _public_values(self) -> Tensor:
        return evaluated(self.function, self.reference.evaluation_points(_PUBLIC_POINTS))

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be saved, pickled or copied: it is not private, only draws are")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={self.epsilon:g}, reference={self.reference!r})"


class TiltedLaw(Law):
    r"""MBDE's density :math:`Q \propto Q_0 e^f` with :math:`|f| \le B`, so Q/Q0 is in :math:`[e^{-2B}, e^{2B}]`.

    Arguments:
        function: the tilt f; clamped to [-bound, bound] here as well.
        reference: Q0.
        bound: B in nats, > 0 and at most epsilon / 4.
        epsilon: of one draw.

    Raises:
        ValueError: bound out of range.

    Source: Husain et al. 2020, equation 9 and Theorem 4.
    """

    def __init__(self, function: PrivateFunction, reference: Reference, *, bound: float, epsilon: float) -> None:
        if not 0 < bound <= epsilon / 4 * (1 + 1e-12):
            raise ValueError(f"bound is {bound!r}; it must be in (0, epsilon / 4 = {epsilon / 4:g}]")
        super().__init__(function, reference, box=Box(math.exp(-2 * bound), math.exp(2 * bound)), epsilon=epsilon)
        self.bound = bound

    def log_normaliser(self) -> float:
        """log of the mean of e^f under Q0, from 2^17 public points."""
        if self._constant is None:
            values = self._public_values().clamp(-self.bound, self.bound)
            self._constant = float(torch.logsumexp(values, 0)) - math.log(len(values))
        return self._constant

    def log_ratio(self, x: Tensor) -> Tensor:
        return evaluated(self.function, x, self.bound) - self.log_normaliser()


class ClippedLaw(Law):
    """The plug-in mollification clip(r / C, a, b) Q0 that SIR draws follow as the codebook grows.

    `function` is the log density ratio of P to Q0, learned or known; it serves every epsilon.

    Source: Husain et al. 2020, equation 8.
    """

    def log_ratio(self, x: Tensor) -> Tensor:
        if self._constant is None:
            values = self._public_values()
            weights = mollified(values, self.box)
            free = (weights > self.box.low * (1 + _EDGE)) & (weights < self.box.high * (1 - _EDGE))
            constants = (values - weights.log())[free if bool(free.any()) else slice(None)]
            self._constant = float(constants.median())
        return (evaluated(self.function, x) - self._constant).clamp(math.log(self.box.low), math.log(self.box.high))
