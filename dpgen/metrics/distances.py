"""Distances of distributions: f-divergences on finite domains, Kolmogorov and Wasserstein distances on the line."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from dpgen.divergences import Divergence, f_divergence, perspective
from dpgen.metrics.sample_pair import SamplePair

CDF = Callable[[Tensor], Tensor]

_ROUNDING = 1e-6


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


class FDivergence(Metric):
    r"""Mean of $D_f(P \| Q)$ over the pairs of rows of p and q, see `distribution_divergence`.

    Example:
        >>> FDivergence("tv")(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])).item()
        0.25
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = False
    total: Tensor
    rows: Tensor

    def __init__(self, divergence: Divergence = "tv", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        perspective(divergence)
        self.divergence = divergence
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("rows", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, p: Tensor, q: Tensor) -> None:
        """Take distributions (n,) or (b, n)."""
        values = distribution_divergence(p, q, self.divergence)
        self.total += values.sum()
        self.rows += values.numel()

    def compute(self) -> Tensor:
        """Mean over all rows since the last reset.

        Raises:
            ValueError: there was no row.
        """
        if int(self.rows) == 0:
            raise ValueError("p has no rows: update the metric before it is computed")
        return self.total / self.rows


class KolmogorovDistance(SamplePair):
    """`kolmogorov_distance` of real and synthetic samples (b,); with a continuous `cdf`, of the synthetic ones and it.

    Example:
        >>> KolmogorovDistance()(torch.tensor([1, 2, 3, 4]), torch.tensor([3, 4])).item()
        0.5
    """

    higher_is_better = False

    def __init__(self, cdf: CDF | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cdf = cdf

    def _all(self, name: str) -> Tensor:
        return torch.empty(0) if self.cdf is not None and name == "real" else super()._all(name)

    def _compare(self, real: Tensor, synthetic: Tensor) -> float:
        return kolmogorov_distance(real, synthetic) if self.cdf is None else kolmogorov_distance_to(synthetic, self.cdf)


class WassersteinDistance(SamplePair):
    """`wasserstein_distance` of real and synthetic samples (b,)."""

    higher_is_better = False

    def _compare(self, real: Tensor, synthetic: Tensor) -> float:
        return wasserstein_distance(real, synthetic)


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
