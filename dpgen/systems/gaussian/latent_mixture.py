"""A mixture of Gaussians in the coordinates of a subspace: draws, densities, posteriors."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class LatentMixture:
    """p(u) = sum_j w_j N(u; mean_j, F_j F_j^T + rest_j (I - kept directions)), all of it released values.

    Arguments:
        weights: (k,) float64, sum 1.
        means: (k, m) float64.
        vectors: orthonormal eigenvectors (k, m, m), columns by falling eigenvalue.
        eigenvalues: (k, m); those that were cut are 0.
        rest: (k,) mean of the cut eigenvalues, above 0; draws have it only if `filled`.
    """

    weights: Tensor
    means: Tensor
    vectors: Tensor
    eigenvalues: Tensor
    rest: Tensor

    @property
    def k(self) -> int:
        """Components."""
        return len(self.weights)

    def filled(self) -> "LatentMixture":
        """The mixture whose draws have variance `rest` in the directions that were cut."""
        return replace(self, eigenvalues=torch.where(self.eigenvalues > 0, self.eigenvalues, self.rest[:, None]))

    def draw(self, component: int, n: int, generator: torch.Generator) -> Tensor:
        """n draws (n, m) float32 of one component."""
        kept = self.eigenvalues[component] > 0
        factor = (self.vectors[component][:, kept] * self.eigenvalues[component][kept].sqrt()).float()
        noise = torch.randn(n, factor.shape[1], generator=generator)
        return torch.addmm(self.means[component].float(), noise, factor.T)

    def covariances(self) -> Tensor:
        """(k, m, m) covariances of the draws."""
        return (self.vectors * self.eigenvalues[:, None, :]) @ self.vectors.transpose(1, 2)

    def log_densities(self, u: Tensor) -> Tensor:
        """log w_j + log N_j(u), (n, k) float64, for coordinates u (n, m), with `rest` where eigenvalues were cut."""
        u = u.double()
        variances = self.filled().eigenvalues
        columns = []
        for j in range(self.k):
            white = (u - self.means[j]) @ self.vectors[j] / variances[j].sqrt()
            normaliser = float(variances[j].log().sum()) + u.shape[1] * math.log(2.0 * math.pi)
            columns.append(-0.5 * (white.square().sum(1) + normaliser))
        return torch.stack(columns, 1) + self.weights.log()


@dataclass(frozen=True)
class Cleaned:
    """Eigenvalues after clean-up (m,), falling, their vectors (m, m), and the mean of what was cut."""

    eigenvalues: Tensor
    vectors: Tensor
    rest: float


def clean_covariance(covariance: Tensor, edge: float) -> Cleaned:
    """Keep the eigenvalues of a noisy covariance (m, m) above `edge`, the largest that noise alone would show.

    The mean of the others is nearly free of noise; it is at least a thousandth of `edge` or 1e-9.

    >>> clean_covariance(torch.diag(torch.tensor([4.0, 0.5, 0.1], dtype=torch.float64)), 1.0).eigenvalues.tolist()
    [4.0, 0.0, 0.0]
    """
    values, vectors = torch.linalg.eigh(covariance)
    values, vectors = values.flip(0), vectors.flip(1)
    kept = values > edge
    cut = values[~kept]
    rest = max(float(cut.mean()) if len(cut) else 0.0, 1e-3 * edge, 1e-9)
    return Cleaned(torch.where(kept, values, 0.0), vectors.contiguous(), rest)
