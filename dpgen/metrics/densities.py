"""Likelihood and mode coverage of densities, by quadrature or from samples, and the optimal mollification."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_NEGLIGIBLE = 1e-6
_BISECTIONS = 200


@dataclass(frozen=True, eq=False, repr=False)
class Quadrature:
    """Midpoint rule on a box (d, 2), d of 1 or 2: exact far below 1e-6 for smooth densities whose scale is above the spacing.

    >>> rule = Quadrature(torch.tensor([[0.0, 1.0]]), 100)
    >>> round(rule.integral(rule.nodes[:, 0] ** 2).item(), 4)
    0.3333
    """

    bounds: Tensor
    per_axis: int

    def __post_init__(self) -> None:
        bounds = self.bounds
        if bounds.ndim != 2 or bounds.shape[1] != 2 or not 1 <= len(bounds) <= 2:
            raise ValueError(f"bounds has shape {tuple(bounds.shape)}: it must be (1, 2) or (2, 2)")
        if not bool(torch.isfinite(bounds).all()) or not bool((bounds[:, 0] < bounds[:, 1]).all()):
            raise ValueError(f"bounds is {bounds.tolist()}: each row must be finite and increasing")
        if self.per_axis < 2:
            raise ValueError(f"per_axis is {self.per_axis}: it must be at least 2")
        object.__setattr__(self, "bounds", bounds.to(torch.float64))

    @property
    def axes(self) -> list[Tensor]:
        """Nodes on each axis, d tensors of shape (per_axis,)."""
        steps = (torch.arange(self.per_axis, dtype=torch.float64) + 0.5) / self.per_axis
        return [low + (high - low) * steps for low, high in self.bounds]

    @property
    def nodes(self) -> Tensor:
        """All nodes, (per_axis^d, d); the last axis moves fastest."""
        return torch.cartesian_prod(*self.axes).reshape(-1, len(self.bounds))

    @property
    def weight(self) -> float:
        """Volume of one cell."""
        return float((self.bounds[:, 1] - self.bounds[:, 0]).prod()) / self.per_axis ** len(self.bounds)

    def integral(self, values: Tensor) -> Tensor:
        """Integral of a function given at the nodes (m,)."""
        return values.sum() * self.weight

    def log_integral(self, log_values: Tensor) -> Tensor:
        """Logarithm of the integral of a function given by its logarithm at the nodes (m,)."""
        return torch.logsumexp(log_values, 0) + math.log(self.weight)

    def normalised(self, log_density: Tensor) -> Tensor:
        """The log density (m,) whose integral over the box is 1."""
        return log_density - self.log_integral(log_density)


def negative_log_likelihood(log_p: Tensor, log_q: Tensor, rule: Quadrature) -> float:
    r"""$-\int p \log q$ in nats (Husain et al. 2018, section 5); infinite where q is 0 on more than 1e-6 of P.

    Both log densities (m,) are taken at the nodes as they are: normalise them first.

    >>> rule = Quadrature(torch.tensor([[-9.0, 9.0]]), 500)
    >>> log_p = rule.normalised(-0.5 * rule.nodes[:, 0] ** 2)
    >>> round(negative_log_likelihood(log_p, log_p, rule), 4) == round(0.5 * math.log(2 * math.pi * math.e), 4)
    True
    """
    log_p, log_q = _pair(log_p, log_q)
    p, supported = log_p.exp(), log_q > -math.inf
    if float(rule.integral(p * ~supported)) > _NEGLIGIBLE:
        return math.inf
    return -float(rule.integral(torch.where(supported, p * log_q, 0.0)))


def mode_coverage(log_p: Tensor, log_q: Tensor, rule: Quadrature, *, level: float = 0.95) -> float:
    r"""Mass of the target where the model is dense: $P(q \ge t)$ with the largest t for which $Q(q \ge t) \ge$ level.

    Husain et al. 2018 and 2020 print P(dQ < t) with Q(dQ < t) = .95, which is the region of *low* density; meant is the
    region of high density (Tolstikhin et al. 2017).
    """
    log_p, log_q = _pair(log_p, log_q)
    return float(rule.integral(log_p.exp() * (log_q >= dense_threshold(log_q, log_q, level=level))))


def dense_threshold(log_q: Tensor, log_mass: Tensor, *, level: float = 0.95) -> float:
    r"""log t for the largest t with $Q(q \ge t) \ge$ level; Q has `log_mass` (m,), up to a constant, at nodes of `log_q` (m,).

    >>> q = torch.tensor([0.1, 0.2, 0.7]).log()
    >>> round(math.exp(dense_threshold(q, q, level=0.85)), 6)
    0.2
    """
    if not 0 < level < 1:
        raise ValueError(f"level is {level}: it must be in (0, 1)")
    order = log_q.argsort(descending=True)
    cumulated = torch.softmax(log_mass.to(torch.float64), 0)[order].cumsum(0)
    last = int(torch.searchsorted(cumulated, level).clamp_max(len(order) - 1))
    return float(log_q[order[last]])


def optimal_mollification(log_p: Tensor, log_q0: Tensor, rule: Quadrature, *, low: float, high: float) -> Tensor:
    r"""The density nearest to P, in KL(P, Q), among all with $a \le q / q_0 \le b$: $q = q_0\,\mathrm{clip}(C p/q_0, a, b)$.

    Lagrange: where no bound holds, p/q is constant. C is found by bisection, so that q integrates to 1. Log densities are (m,),
    at the nodes; that of the reference is normalised, and so is the result.
    """
    log_p, log_q0 = _pair(log_p, log_q0)
    if not 0 < low <= 1 <= high < math.inf:
        raise ValueError(f"low is {low} and high {high}: 0 < low <= 1 <= high is needed")
    log_ratio, log_low, log_high = (log_p - log_q0).nan_to_num(nan=-math.inf), math.log(low), math.log(high)
    finite = log_ratio[log_ratio.isfinite()]
    lower, upper = log_low - float(finite.max()) - 1, log_high - float(finite.min()) + 1
    for _ in range(_BISECTIONS):
        middle = (lower + upper) / 2
        above = float(rule.log_integral(log_q0 + (log_ratio + middle).clamp(log_low, log_high))) > 0
        lower, upper = (lower, middle) if above else (middle, upper)
    return rule.normalised(log_q0 + (log_ratio + lower).clamp(log_low, log_high))


def _pair(log_p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor]:
    if log_p.ndim != 1 or log_p.shape != log_q.shape:
        raise ValueError(f"log_p and log_q have shapes {tuple(log_p.shape)} and {tuple(log_q.shape)}: both must be (m,)")
    for name, values in (("log_p", log_p), ("log_q", log_q)):
        if bool(values.isnan().any()) or bool((values == math.inf).any()):
            raise ValueError(f"{name} has entries that are NaN or +inf: it must be finite or -inf")
    return log_p.to(torch.float64), log_q.to(torch.float64)
