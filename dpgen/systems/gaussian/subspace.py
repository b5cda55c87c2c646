"""Noisy mean and principal axes of the records: the space in which components are Gaussians."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.gaussian.sums import (
    MEAN_BORDER,
    MEAN_SQUARE,
    Batches,
    Spending,
    gram_sums,
    one_class,
    spectral_noise,
    symmetric,
    vector_sums,
)

_IN_CACHE = 512  # rows
_POWER = 0.5
_LEAST_EIGENVALUE = 0.3  # in units of the noise edge: an axis below cannot be told from noise and is not magnified more


@dataclass(frozen=True)
class Location:
    """Released first moments: noisy number of records, at least 1; mean (d,) clamped to [0, 1]; mean of |x - mean|^2, above
    0.
    """

    count: float
    mean: Tensor
    spread: float


@dataclass(frozen=True)
class Subspace:
    r"""The released affine map u = (x - mean) axes / scales, under which most records have norm at most 1.

    Axis i is divided by :math:`R \lambda_i^{p/2}`, with :math:`R^2 = r^2 \sum_i s_i \lambda_i^{-p}` and s the eigenvalues
    without noise: p = 0 keeps distances, p = 1 whitens; p = 1/2 spreads the noise of the moments best. R is r times the root
    mean square norm of the projected records according to released eigenvalues: clipping looks at no record.

    Arguments:
        mean: (d,) float64.
        axes: orthonormal columns (d, m) float64.
        scales: (m,) float64, above 0.
        edge: largest eigenvalue that noise alone would show, in the units of `eigenvalues`.
        eigenvalues: noisy eigenvalues (m,).
    """

    mean: Tensor
    axes: Tensor
    scales: Tensor
    edge: float
    eigenvalues: Tensor

    def project(self, x: Tensor) -> Tensor:
        """Coordinates (b, m) float64 of records (b, d) in [0, 1]; not clipped.

        Records, the mean and weights are rounded to grids so fine that float64 holds every sum of their products: what a
        record gives does not depend on the batch that it is in.
        """
        bits = 52 - math.ceil(math.log2(len(self.mean)))
        grid = 2.0 ** min(24, bits // 2)
        weights = self.axes / self.scales
        step = 2.0 ** (math.ceil(math.log2(float(weights.abs().max()))) - (bits - round(math.log2(grid))))
        weights = (weights / step).round() * step
        weights = (weights / grid).to(x.device)
        offset = (self.mean[None].to(x.device) * grid).round_() @ weights
        result = torch.empty(len(x), weights.shape[1], dtype=torch.float64, device=x.device)
        for rows, part in zip(x.split(_IN_CACHE), result.split(_IN_CACHE)):
            torch.mm((rows * grid).round_().double(), weights, out=part)
        return result.sub_(offset)

    def place(self, u: Tensor) -> Tensor:
        """Records (b, d) of coordinates (b, m)."""
        return (u * self.scales.to(u)) @ self.axes.T.to(u) + self.mean.to(u)


def location_sums(batches: Batches, d: int) -> BoundedSum:
    r"""Count, sum and sum of squares of records in [0, 1]^d around the middle of the cube, whose corners are at norm R.

    .. math:: \sum_r (a, (x_r - 1/2) / R, b |x_r - 1/2|^2 / R^2), \quad R = \sqrt d / 2.

    The centre and R are public, so no record is clipped.
    """
    radius = math.sqrt(d) / 2.0

    def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        return (x - 0.5).div_(radius), one_class(x)

    return vector_sums(batches, encode, k=1, m=d, border=MEAN_BORDER, square=MEAN_SQUARE)


def release_location(batches: Batches, d: int, *, spending: Spending) -> Location:
    """Count, mean and mean square from noisy `location_sums`."""
    radius = math.sqrt(d) / 2.0
    values, noise_std = spending.release("mean", location_sums(batches, d))
    noisy = values[0]
    count = max(1.0, float(noisy[0]) / MEAN_BORDER)
    mean = noisy[1:-1] * radius / count
    # E|x - m~|^2 = E|x - c|^2 - |m~ - c|^2 + 2 E|noise|^2: the noise of the mean is known and taken into account
    square = float(noisy[-1]) / MEAN_SQUARE * radius**2 / count
    noise = d * (noise_std * radius / count) ** 2
    spread = square - float(mean.square().sum()) + 2.0 * noise
    return Location(count, (mean + 0.5).clamp(0.0, 1.0), min(max(spread, 1e-3 * radius**2), radius**2))


def centred_moments(batches: Batches, location: Location, clip: float) -> BoundedSum:
    """Second moment (1, d, d) of clip(x - mean), in units of clip^2."""

    def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        return (x - location.mean.to(x)).div_(clip), one_class(x)

    return gram_sums(batches, encode, k=1, m=len(location.mean), border=0.0)


def release_subspace(
    batches: Batches,
    location: Location,
    *,
    axes: int,
    radius: float,
    clip: float,
    spending: Spending,
    within: Tensor | None = None,
) -> Subspace:
    r"""Eigenvectors of the noisy second moment of clip(x - mean) (DP-PCA by the Gaussian mechanism).

    With `within`, orthonormal public rows B (r, d), they are those of :math:`B M B^\top`, whose noise is that of a matrix of r
    rows: its largest eigenvalue falls with the root of r / d, and only what B leaves out of the signal is lost. `clip` is
    public or released; `radius` is r of `Subspace`.

    Source: Dwork, Talwar, Thakurta, Zhang 2014 ("Analyze Gauss"), Algorithm 1.
    """
    noisy, noise_std = spending.release("subspace", centred_moments(batches, location, clip))
    unit = clip**2 / location.count
    moments = symmetric(noisy)[0] * unit
    if within is not None:
        moments = within @ moments @ within.T
    values, vectors = torch.linalg.eigh(moments)
    edge = spectral_noise(len(moments), noise_std=noise_std * unit)
    values, vectors = values.flip(0)[:axes], vectors.flip(1)[:, :axes]
    if within is not None:
        vectors = within.T @ vectors
    safe = values.clamp_min(_LEAST_EIGENVALUE * edge)
    # A spike s shows up at s + (edge / 2)^2 / s (Benaych-Georges, Nadakuditi 2011); its size without noise sets the radius.
    spikes = (safe + (safe.square() - edge**2).clamp_min(0.0).sqrt()) / 2.0
    scales = safe.pow(_POWER / 2.0) * radius * float((spikes * safe.pow(-_POWER)).sum()) ** 0.5
    return Subspace(location.mean, vectors.contiguous(), scales, edge, values)
