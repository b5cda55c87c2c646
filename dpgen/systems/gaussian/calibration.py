r"""Post-processing that a released model declares: tilts and thresholds towards released marginals, and warps of images.

For bits b the tilted model is :math:`p'(b) \propto p(b) \exp(b^\top \Theta b)`: of all reweightings of p the one nearest to
it whose pairwise marginals are the released ones, up to their noise.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.gaussian.sums import BORDER, Batches, Spending, gram_sums, one_class, symmetric, vector_sums

_ROUNDS = 60
_MOST = 4.0  # bound of |theta|: a weight ratio of e^4 per pair says "never" loudly enough


def marginal_sums(batches: Batches, d: int, *, k: int) -> BoundedSum:
    """Sizes and sums (k, d + 1) of the bits of every class.

    Bits minus 1/2 have norm exactly sqrt(d) / 2, so nothing is clipped; the record adds (a, 2 (x - 1/2) / sqrt d).
    """
    radius = math.sqrt(d) / 2.0

    def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        return (x - 0.5).div_(radius), labels if k > 1 and labels is not None else one_class(x)

    return vector_sums(batches, encode, k=k, m=d, border=BORDER)


def release_marginals(batches: Batches, d: int, *, k: int, spending: Spending) -> tuple[Tensor, Tensor]:
    """Noisy sizes (k,) and frequencies of ones (k, d) in [0, 1] of every class of binary records."""
    noisy, _ = spending.release("marginals", marginal_sums(batches, d, k=k))
    counts = noisy[:, 0] / BORDER
    frequencies = 0.5 + noisy[:, 1:] * (math.sqrt(d) / 2.0) / counts.clamp_min(1.0)[:, None]
    return counts, frequencies.clamp(0.0, 1.0)


def pair_sums(batches: Batches, d: int) -> BoundedSum:
    """Count, sum and second moment (1, d + 1, d + 1) of bits minus 1/2, in units of their norm."""
    radius = math.sqrt(d) / 2.0

    def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        return (x - 0.5).div_(radius), one_class(x)

    return gram_sums(batches, encode, k=1, m=d, border=BORDER)


def release_pairs(batches: Batches, d: int, *, spending: Spending) -> tuple[Tensor, float]:
    """Noisy pairwise frequencies (d, d), the marginals on the diagonal, and the noise std of a pair's sum over the count."""
    radius = math.sqrt(d) / 2.0
    values, noise_std = spending.release("pairs", pair_sums(batches, d))
    noisy = symmetric(values)[0]
    count = max(1.0, float(noisy[0, 0]) / BORDER**2)
    mean = noisy[0, 1:] * radius / (BORDER * count)
    # x y = (x - 1/2)(y - 1/2) + (x - 1/2)/2 + (y - 1/2)/2 + 1/4
    pairs = noisy[1:, 1:] * radius**2 / count + mean[:, None] / 2 + mean[None, :] / 2 + 0.25
    pairs.diagonal().copy_(mean + 0.5)
    return pairs.clamp(0.0, 1.0), noise_std * radius**2 / (math.sqrt(2.0) * count)


def pair_scores(bits: Tensor, tilt: Tensor) -> Tensor:
    """b^T Theta b of every row (n,)."""
    bits = bits.to(tilt.dtype)
    return ((bits @ tilt) * bits).sum(1)


def fit_tilt(bits: Tensor, pairs: Tensor, *, noise_std: float) -> Tensor:
    r"""Theta (d, d), symmetric: minimises :math:`\log E e^{b^\top \Theta b} - \langle \Theta, \Pi \rangle + (s/2)|\Theta|^2`.

    b are public samples (n, d) of the model, Pi released pairwise frequencies (d, d), s > 0 the std of an entry's noise: the
    last term leaves a pair wrong by s |theta|, so that noise is not fitted.

    Source: maximum entropy with relaxed constraints (Dudik, Phillips, Schapire 2007).
    """
    b = bits.double()
    tilt = torch.zeros(b.shape[1], b.shape[1], dtype=torch.float64)
    step, moment, square = 0.2, torch.zeros_like(tilt), torch.zeros_like(tilt)
    for i in range(1, _ROUNDS + 1):  # Adam: the features are correlated and a plain ascent crawls
        weights = torch.softmax(pair_scores(b, tilt), 0)
        gradient = pairs - (b * weights[:, None]).T @ b - noise_std * tilt
        moment, square = 0.8 * moment + 0.2 * gradient, 0.95 * square + 0.05 * gradient.square()
        slope = moment / (1 - 0.8**i) / ((square / (1 - 0.95**i)).sqrt() + noise_std + 1e-6)
        tilt = (tilt + step * slope * (1 - (i - 1) / _ROUNDS)).clamp(-_MOST, _MOST)
    return tilt


def tilted_choice(bits: Tensor, tilt: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Positions (n,) among candidate rows, drawn with repeats in proportion to exp(b^T Theta b) (resampling, Rubin 1987)."""
    weights = torch.softmax(pair_scores(bits, tilt), 0)
    return torch.multinomial(weights, n, replacement=True, generator=generator)


# -- images and thresholds -----------------------------------------------------------------------------------------------

_AT_ONCE = 4096


@dataclass(frozen=True)
class Warp:
    """Rotation (degrees), relative scale and shift (pixels) of every image, normal with these standard deviations, at least 0.

    They stand for the ways of writing that few Gaussians do not have; being public, they cost nothing.
    """

    rotation: float = 8.6
    scale: float = 0.10
    shift: float = 1.5

    def __post_init__(self) -> None:
        for name in ("rotation", "scale", "shift"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")

    @classmethod
    def of_strength(cls, strength: float, shape: tuple[int, int]) -> "Warp":
        """`strength` times the warp that suits handwriting on 28 pixels, its shift in proportion to the shorter side."""
        return cls(rotation=8.6 * strength, scale=0.10 * strength, shift=1.5 * strength * min(shape) / 28.0)

    def __call__(self, x: Tensor, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Warped images (n, height * width) float32 in the range of x, bilinear, with zeros from outside."""
        n, (height, width) = len(x), shape
        angle = torch.randn(n, generator=generator) * math.radians(self.rotation)
        scale = 1.0 + torch.randn(n, generator=generator) * self.scale
        shift = torch.randn(n, 2, generator=generator) * self.shift * torch.tensor([2.0 / width, 2.0 / height])
        cos, sin = angle.cos() * scale, angle.sin() * scale
        sides = ((torch.arange(side) + 0.5) * (2.0 / side) - 1.0 for side in shape)  # middles of the pixels from -1 to 1
        y, x_ = torch.meshgrid(*sides, indexing="ij")
        parts = []
        for rows in torch.arange(n).split(_AT_ONCE):
            c, s, move = cos[rows, None, None], sin[rows, None, None], shift[rows, :, None, None]
            grid = torch.stack([c * x_ - s * y + move[:, 0], s * x_ + c * y + move[:, 1]], 3)
            images = x[rows].float().reshape(-1, 1, height, width)
            parts.append(grid_sample(images, grid, align_corners=False).flatten(1))
        return torch.cat(parts) if parts else x.float()


def calibrated_thresholds(pilot: Tensor, marginals: Tensor) -> Tensor:
    """Thresholds t (d,) with P(pilot_j > t_j) = marginals_j, for public samples (n, d) and released frequencies of ones (d,).

    >>> t = calibrated_thresholds(torch.arange(8.0)[:, None], torch.tensor([0.25]))
    >>> int((torch.arange(8.0) > t).sum())
    2
    """
    n = len(pilot)
    # NumPy sorts values alone, and rows, several times as fast as torch sorts columns with their positions.
    ordered = torch.from_numpy(np.sort(pilot.T.contiguous().cpu().numpy(), axis=1)).T
    below = ((1.0 - marginals.cpu().clamp(0.0, 1.0)) * n).round().long()
    lower = ordered.gather(0, (below - 1).clamp_min(0)[None])[0]
    upper = ordered.gather(0, below.clamp_max(n - 1)[None])[0]
    middle = (lower + upper) / 2.0
    middle = torch.where(below == 0, ordered[0] - 1.0, middle)
    return torch.where(below == n, ordered[-1] + 1.0, middle)
