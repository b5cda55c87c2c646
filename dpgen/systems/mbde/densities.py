"""Densities of one draw: Q0 tilted by bounded classifiers, or clipped to a public box. PRIVATE: only draws may leave."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dpgen.release import PrivateDensity
from dpgen.systems.mbde.plan import EPSILONS, require_alpha
from dpgen.systems.mbde.references import Reference

_SHRINK = 1e-9
_BISECTIONS, _NEWTON_STEPS = 32, 6
_RANGE = 600.0  # nats; no box is wider, and exponentials stay finite


def require_epsilon(epsilon: float) -> float:
    """A finite epsilon inside `EPSILONS`.

    Raises:
        ValueError: it is not.
    """
    low, high = EPSILONS
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not low <= epsilon <= high:
        raise ValueError(f"epsilon is {epsilon!r}; it must be in [{low:g}, {high:g}] for one draw")
    return float(epsilon)


@dataclass(frozen=True)
class Box:
    r"""All densities with :math:`a \le Q / Q_0 \le b`: an epsilon-mollifier if :math:`b / a \le e^\epsilon`.

    Arguments:
        low: a in (0, 1].
        high: b >= 1, finite.

    Raises:
        ValueError: bounds out of range.

    Source: Husain et al. 2020, section 2.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= 1 <= self.high < math.inf:
            raise ValueError(f"low is {self.low!r} and high is {self.high!r}; they must satisfy 0 < low <= 1 <= high < inf")

    @classmethod
    def of(cls, epsilon: float, alpha: float | None = None) -> Box:
        r"""The box of a budget: symmetric, or asymmetric with :math:`a = 1 / (1 + \alpha (e^\epsilon - 1))`, b = a e^epsilon.

        The most that KL(P, Q0) can fall by is log b: epsilon / 2 in the symmetric box, up to epsilon for small alpha.
        A density inside gives the value b to at most a fraction alpha of Q0, so alpha should be what P is thought to
        cover of Q0. It is public. alpha = 1 / (1 + e^(epsilon / 2)) is the symmetric box; with Q0 as the ceiling of P up
        to a factor 1 / alpha, it is the minimax sampler of Park et al. 2024.

        The budget is shrunk by 1e-9 of itself, so that rounding cannot leave it.

        Raises:
            ValueError: epsilon or alpha out of range.

        >>> box = Box.of(2.0)
        >>> round(box.low * box.high, 12), round(math.log(box.high), 6)
        (1.0, 1.0)
        """
        epsilon = require_epsilon(epsilon) * (1 - _SHRINK)
        if alpha is None:
            return cls(math.exp(-epsilon / 2), math.exp(epsilon / 2))
        low = 1 / (1 + require_alpha(alpha) * math.expm1(epsilon))
        return cls(low, low * math.exp(epsilon))

    @property
    def epsilon(self) -> float:
        """Largest log-ratio of two densities inside, in nats."""
        return math.log(self.high / self.low)

    @property
    def ceiling(self) -> float:
        """The most that KL(P, Q) can be below KL(P, Q0) inside the box: log b."""
        return math.log(self.high)


def mollified(log_ratio: Tensor, box: Box, masses: Tensor | None = None) -> Tensor:
    r"""The density ratio :math:`\mathrm{clip}(r / C, a, b)` whose mean is 1, row by row.

    It minimises KL(P, Q) over the box when :math:`r = dP / dQ_0`. C is found by a fixed number of bisections and
    guarded Newton steps; what they leave is made up by a mixture with a constant ratio, so the mean is 1 and the box holds
    for any input.

    Arguments:
        log_ratio: (..., m), finite.
        box: the public box.
        masses: probabilities (m,) of the m points; None: equal.

    Source: Husain et al. 2020, equation 8.

    >>> mollified(torch.tensor([[0.0, 9.0]]), Box(0.5, 2.0)).round(decimals=9).tolist()
    [[0.5, 1.5]]
    """
    values = log_ratio.to(torch.float64)
    top = values.amax(-1, keepdim=True)
    values = values.maximum(top - _RANGE)
    ratio = (values - top).exp()  # <= 1, whatever the inputs
    low = (values.amin(-1, keepdim=True) - top) - math.log(box.high)
    high = torch.full_like(low, -math.log(box.low))
    for _ in range(_BISECTIONS):  # to 1e-7 nats; from afar Newton creeps
        log_c = (low + high) / 2
        heavy = _mean((ratio * (-log_c).exp()).clamp(box.low, box.high), masses) > 1
        low, high = torch.where(heavy, log_c, low), torch.where(heavy, high, log_c)
    scale = (-(low + high) / 2).exp()
    for _ in range(_NEWTON_STEPS):  # the mean is piecewise linear in 1 / C: exact once the clipped points are known
        scaled = ratio * scale
        weights = scaled.clamp(box.low, box.high)
        free = torch.where(weights == scaled, ratio, 0.0)
        guess = scale + (1 - _mean(weights, masses)) / _mean(free, masses)
        scale = torch.where((guess > (-high).exp()) & (guess < (-low).exp()), guess, scale)
    return _with_mean_one((ratio * scale).clamp(box.low, box.high), box, masses)


def _mean(values: Tensor, masses: Tensor | None) -> Tensor:
    return values.mean(-1, keepdim=True) if masses is None else (values * masses).sum(-1, keepdim=True)


def _with_mean_one(weights: Tensor, box: Box, masses: Tensor | None) -> Tensor:
    """Move every weight towards the same end of the box until the mean is 1."""
    mean = _mean(weights, masses)
    end = torch.where(mean < 1, torch.full_like(mean, box.high), torch.full_like(mean, box.low))
    share = ((1 - mean) / (end - mean)).nan_to_num(0.0).clamp(0.0, 1.0)
    return (weights + share * (end - weights)).clamp(box.low, box.high)


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


class Density(PrivateDensity):
    r"""Density of one draw relative to the reference, as far as it is known: private, for evaluation on this machine.

    Arguments:
        function: private function of points.
        reference: Q0.
        box: what the density ratio stays in.
        epsilon: of one draw.

    The ratio is normalised up to the error of a mean over 2^17 public points.

    Source: Husain et al. 2018, Lemma 4: densities of an epsilon-mollifier may be sampled, not shown.
    """

    def __init__(self, function: PrivateFunction, reference: Reference, *, box: Box, epsilon: float) -> None:
        self.function, self.reference, self.box, self.epsilon = function, reference, box, epsilon
        self.rows: list[dict[str, Any]] = []
        self._constant: float | None = None

    def certificates(self) -> list[dict[str, Any]]:
        return self.rows

    def _public_values(self) -> Tensor:
        return evaluated(self.function, self.reference.evaluation_points(_PUBLIC_POINTS))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={self.epsilon:g}, reference={self.reference!r})"


class TiltedDensity(Density):
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


class ClippedDensity(Density):
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
