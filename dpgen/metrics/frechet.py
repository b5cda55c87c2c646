"""Fréchet distance of features: how far real and synthetic samples are apart by mean and covariance."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dpgen.metrics.image_features import ImageFeatures
from dpgen.metrics.sample_pair import SamplePair

PLAIN = "the records themselves"
"""Description of a distance without a feature extractor."""

_ROUNDING = 1e-6


class FrechetResult(NamedTuple):
    """A distance, and what its features are: distances by different features are not comparable."""

    distance: float
    features: str


def gaussian_frechet_distance(real: tuple[Tensor, Tensor], synthetic: tuple[Tensor, Tensor]) -> float:
    r"""Squared Wasserstein-2 distance of Gaussians, $|\mu - \nu|^2 + \mathrm{tr}(S + T - 2 (S^{1/2} T S^{1/2})^{1/2})$.

    Arguments:
        real: mean (k,) and covariance (k, k), symmetric and positive semidefinite, which may be singular.
        synthetic: the same of the other.

    Raises:
        ValueError: wrong shapes, values that are not finite, or a matrix that is no covariance.

    Source: Dowson and Landau 1982.

    Example:
        >>> one = torch.zeros(1), torch.eye(1)
        >>> round(gaussian_frechet_distance(one, (torch.ones(1), 4 * torch.eye(1))), 9)
        2.0
    """
    (mean, covariance), (other_mean, other) = _gaussian(*real, "real"), _gaussian(*synthetic, "synthetic")
    if mean.shape != other_mean.shape:
        raise ValueError(f"synthetic has {len(other_mean)} features, real has {len(mean)}: they must agree")
    # Singular values of S^(1/2) T^(1/2): roots of eigenvalues near 0 would lose half of the digits.
    cross = torch.linalg.svdvals(_root(covariance).T @ _root(other)).sum()
    apart = (mean - other_mean).square().sum() + covariance.trace() + other.trace() - 2 * cross
    return max(0.0, float(apart))


def frechet_distance(real: Tensor, synthetic: Tensor, features: ImageFeatures | None = None) -> FrechetResult:
    r"""`gaussian_frechet_distance` of the features' means and (unbiased) covariances, which is FID with Inception features.

    It shrinks with more samples: compare distances from equal numbers only.

    Arguments:
        real: samples (n, d), n >= 2.
        synthetic: samples (m, d), m >= 2.
        features: such as `PCAFeatures`, `LeNetFeatures`, `InceptionFeatures`; None: the samples themselves.

    Raises:
        ValueError: fewer than two samples, wrong shapes, or values that are not finite.

    Source: Heusel et al. 2017, equation 6.

    Example:
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> frechet_distance(x, x + 3)
        FrechetResult(distance=9.0, features='the records themselves')
    """
    description = PLAIN if features is None else features.description
    own, other = (x if features is None else features(x) for x in (real, synthetic))
    distance = gaussian_frechet_distance(_moments(own, "real"), _moments(other, "synthetic"))
    return FrechetResult(distance, description)


class FrechetDistance(SamplePair):
    """`frechet_distance` over batches (b, d), whose features it keeps.

    Arguments:
        features: see `frechet_distance`; `description` says which.
        kwargs: of `torchmetrics.Metric`.
    """

    higher_is_better = False

    def __init__(self, features: ImageFeatures | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.features = features
        self.description = PLAIN if features is None else features.description

    def update(self, real: Tensor | None = None, synthetic: Tensor | None = None) -> None:
        """Take a batch of either sample or of both."""
        super().update(*(x if x is None or self.features is None else self.features(x) for x in (real, synthetic)))

    def _compare(self, real: Tensor, synthetic: Tensor) -> float:
        return frechet_distance(real, synthetic).distance


def _root(covariance: Tensor) -> Tensor:
    """R with R R^T the covariance."""
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp_min(0).sqrt()


def _moments(x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Mean (k,) and unbiased covariance (k, k) of samples (n, k)."""
    if x.ndim != 2 or x.shape[1] == 0 or len(x) < 2:
        raise ValueError(f"{name} has shape {tuple(x.shape)}: it must be (samples >= 2, features >= 1)")
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{name} has a value that is not finite: every feature must be a number")
    mean = x.double().mean(0)
    centred = x.double() - mean
    return mean, centred.T @ centred / (len(x) - 1)


def _gaussian(mean: Tensor, covariance: Tensor, name: str) -> tuple[Tensor, Tensor]:
    if mean.ndim != 1 or len(mean) == 0 or covariance.shape != (len(mean), len(mean)):
        shapes = f"{tuple(mean.shape)} and {tuple(covariance.shape)}"
        raise ValueError(f"{name} has a mean and covariance of shapes {shapes}: they must be (k,) and (k, k)")
    mean, covariance = mean.double(), covariance.double()
    if not bool(torch.isfinite(mean).all() and torch.isfinite(covariance).all()):
        raise ValueError(f"{name} has a value that is not finite: moments must be numbers")
    scale = float(covariance.abs().max())
    if float((covariance - covariance.T).abs().max()) > _ROUNDING * scale:
        raise ValueError(f"{name} has a covariance that is not symmetric")
    lowest = float(torch.linalg.eigvalsh(covariance).min())
    if lowest < -_ROUNDING * scale:
        raise ValueError(f"{name} has a covariance with the eigenvalue {lowest:.3g}: it must be positive semidefinite")
    return mean, covariance
