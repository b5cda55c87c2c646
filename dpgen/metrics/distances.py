"""Distances of distributions: f-divergences on finite domains, Kolmogorov and Wasserstein distances on the line."""

from collections.abc import Callable

import torch
from torch import Tensor

from dpgen.divergences import Divergence, f_divergence

CDF = Callable[[Tensor], Tensor]

_ROUNDING = 1e-6


def require_samples(rows: int = 1, /, **samples: Tensor) -> None:
    """Refuse samples, given by name, that are not finite matrices (n, d) of one width d >= 1 with n >= `rows`.

    Raises:
        ValueError: naming the first sample that is wrong.
    """
    for name, x in samples.items():
        if x.ndim != 2 or x.shape[1] == 0 or len(x) < rows:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: it must be (n >= {rows}, d >= 1)")
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise ValueError(f"{name} has a value that is not finite: every value must be a number")
    (first, x), *others = samples.items()
    for name, other in others:
        if other.shape[1] != x.shape[1]:
            raise ValueError(f"{name} has {other.shape[1]} columns, {first} has {x.shape[1]}: they must agree")


def distribution_divergence(p: Tensor, q: Tensor, divergence: Divergence = "tv") -> Tensor:
    r"""$D_f(P \| Q) = \sum_j Q_j f(P_j / Q_j)$ of distributions, which may be infinite.

    Arguments:
        p: distributions (n,) or (b, n); rows must be >= 0 and sum to 1 within 1e-6.
        q: the same, broadcast against p.
        divergence: "tv", "kl", "reverse_kl", "chi2", "hellinger" (squared), "js" (nats), or a convex f with f(1) = 0.

    Returns:
        One value a row, float64.

    Raises:
        ValueError: not distributions, different domains, or an unknown name.

    Source: Csiszár 1967.

    Example:
        >>> distribution_divergence(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])).item()
        0.25
    """
    _require_distributions(p, "p")
    _require_distributions(q, "q")
    if p.shape[-1] != q.shape[-1]:
        raise ValueError(f"q has {q.shape[-1]} categories, p has {p.shape[-1]}: they must agree")
    return f_divergence(p, q, divergence)


def kolmogorov_distance(real: Tensor, synthetic: Tensor) -> float:
    r"""$\sup_t |F(t) - G(t)|$ of the empirical distribution functions of two samples (n,) and (m,).

    Raises:
        ValueError: a sample is empty, not one-dimensional, or not finite.

    Example:
        >>> kolmogorov_distance(torch.tensor([1, 2, 3, 4]), torch.tensor([3, 4]))
        0.5
    """
    real, synthetic = _two_samples(real, synthetic)
    at = torch.cat([real, synthetic])
    return float((_share_up_to(real, at) - _share_up_to(synthetic, at)).abs().max())


def kolmogorov_distance_to(x: Tensor, cdf: CDF) -> float:
    r"""$\sup_t |F_n(t) - F(t)|$ of the empirical distribution function of a sample and a continuous one.

    Arguments:
        x: sample (n,).
        cdf: continuous distribution function F on float64 tensors (n,).

    Raises:
        ValueError: the sample is empty, not one-dimensional or not finite, or F is not a distribution function.

    Example:
        >>> kolmogorov_distance_to(torch.tensor([0.5]), lambda t: t.clamp(0, 1))
        0.5
    """
    x = _sample(x, "x").double().sort().values
    below = cdf(x).double()
    if below.shape != x.shape or not bool(((below >= 0) & (below <= 1)).all()) or bool((below.diff() < 0).any()):
        raise ValueError("cdf gives values that do not increase from 0 to 1: it must be a distribution function")
    steps = torch.arange(len(x) + 1, dtype=torch.float64, device=x.device) / len(x)
    return float(torch.maximum(steps[1:] - below, below - steps[:-1]).max())


def wasserstein_distance(real: Tensor, synthetic: Tensor) -> float:
    r"""$W_1 = \int |F(t) - G(t)|\,dt$ of two samples (n,) and (m,) on the line, in the unit of the samples.

    Raises:
        ValueError: a sample is empty, not one-dimensional, or not finite.

    Source: Vallender 1974.

    Example:
        >>> wasserstein_distance(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.5]))
        0.5
    """
    real, synthetic = (values.double() for values in _two_samples(real, synthetic))
    at = torch.cat([real, synthetic]).sort().values
    gaps = (_share_up_to(real, at) - _share_up_to(synthetic, at)).abs()
    return float((gaps[:-1] * at.diff()).sum())


def _share_up_to(sample: Tensor, at: Tensor) -> Tensor:
    """Empirical distribution function of a sample (n,) at points (m,)."""
    return torch.searchsorted(sample.sort().values, at, right=True).double() / len(sample)


def _two_samples(real: Tensor, synthetic: Tensor) -> tuple[Tensor, Tensor]:
    real, synthetic = _sample(real, "real"), _sample(synthetic, "synthetic")
    whole = not (real.is_floating_point() or synthetic.is_floating_point())  # integers above 2^53 stay exact
    return (real.long(), synthetic.long()) if whole else (real.double(), synthetic.double())


def _sample(x: Tensor, name: str) -> Tensor:
    if x.ndim != 1 or len(x) == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}: it must be (n,) with n >= 1")
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{name} has a value that is not finite: every value must be a number")
    return x


def _require_distributions(p: Tensor, name: str) -> None:
    if p.ndim not in (1, 2) or p.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(p.shape)}: it must be (n,) or (b, n), not empty")
    if not bool((p >= 0).all()):
        raise ValueError(f"{name} has an entry that is negative or NaN: probabilities must be in [0, 1]")
    worst = float((p.double().sum(-1) - 1).abs().max())
    if not worst <= _ROUNDING:
        raise ValueError(f"{name} has a row whose sum is off 1 by {worst:.3g}: it must be within {_ROUNDING:g}")
