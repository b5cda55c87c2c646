r"""f-divergences $D_f(P \| Q) = \sum_j Q_j f(P_j / Q_j)$, f convex with f(1) = 0, by their perspective q f(p / q)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Perspective = Callable[[Tensor, Tensor], Tensor]


def _kl(p: Tensor, q: Tensor) -> Tensor:
    return torch.where(p > 0, p * (p / q).log(), 0.0)


DIVERGENCES: dict[str, Perspective] = {
    "tv": lambda p, q: (p - q).abs() / 2,
    "kl": _kl,
    "reverse_kl": lambda p, q: _kl(q, p),
    "chi2": lambda p, q: torch.where(p == q, 0.0, (p - q) ** 2 / q),
    "hellinger": lambda p, q: (p.sqrt() - q.sqrt()) ** 2 / 2,
    "js": lambda p, q: (_kl(p, (p + q) / 2) + _kl(q, (p + q) / 2)) / 2,
}
"""Total variation, Kullback-Leibler, its reverse, chi-square, squared Hellinger distance (in [0, 1]), Jensen-Shannon (nats)."""

Divergence = str | Callable[[Tensor], Tensor]


def perspective(divergence: Divergence) -> Perspective:
    """q f(p / q) of a name in `DIVERGENCES` or of a convex function f itself, which is taken to grow faster than t."""
    if callable(divergence):
        f = divergence
        return lambda p, q: torch.where(q > 0, q * f(p / q.clamp_min(5e-324)), torch.where(p > 0, torch.inf, 0.0))
    if divergence not in DIVERGENCES:
        raise ValueError(f"divergence is {divergence!r}; choose one of {sorted(DIVERGENCES)} or give a function f")
    return DIVERGENCES[divergence]


def f_divergence(p: Tensor, q: Tensor, divergence: Divergence = "tv") -> Tensor:
    r"""$D_f(P \| Q)$ of distributions (n,) or (u, n) (broadcast), one value per row; see `perspective`.

    >>> f_divergence(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])).item()
    0.25
    """
    return perspective(divergence)(p.to(torch.float64), q.to(torch.float64)).sum(-1)
