r"""Noisy sums of vectors and of their outer products, each one pass over the records.

A record with clipped vector u, |u| <= 1, adds :math:`v v^\top` with :math:`v = (a, u)` to the matrix of its cluster: the
count (times :math:`a^2`), the sum (times a) and the second moment at once. The upper triangle with off-diagonal entries
times :math:`\sqrt 2` has L2 norm :math:`|v v^\top|_F = |v|^2 \le 1 + a^2`, which is the exact add/remove sensitivity; a
replaced record moves it by at most :math:`\sqrt 2 (1 + a^2)`, for the inner product of two such matrices is
:math:`\langle v, v' \rangle^2 \ge 0`. The triangle is what gets the noise, so an off-diagonal entry has half the variance
of a diagonal one.

| release | sensitivity, add/remove | replace-one / add/remove |
|---|---|---|
| bordered Gram matrix | 1 + a^2 | sqrt 2 |
| bordered sum of (a, u) | sqrt(1 + a^2) | 2 / sqrt(1 + a^2) at most |
| the same with a scalar b |u|^2 | sqrt(1 + a^2 + b^2) | sqrt(4 + b^2) / sqrt(1 + a^2 + b^2) |

Claiming 1 for the Gram matrix (the second moment alone) or taking the plain Frobenius norm of independent noise on
all entries as symmetric are the usual mistakes; the audit of the tests rejects them.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from dpgen.privacy.mechanisms import GaussianMechanism
from dpgen.privacy.noise import SecureSource
from dpgen.systems.gaussian.record_stream import Batches

Encode = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""(x (b, d), labels) to (u (b, m), cluster (b,)): record by record, from released and public values only."""

_ROUNDING = 1.0 - 1e-6


def clipped(u: Tensor) -> Tensor:
    """Rows (b, m) scaled down to norm at most 1, float rounding included."""
    norms = torch.linalg.vector_norm(u, dim=1, keepdim=True)
    return u * (_ROUNDING / norms.clamp_min(_ROUNDING))


def gram_sensitivity(border: float) -> float:
    """1 + a^2, the L2 sensitivity (add/remove) of `gram_sums`."""
    return 1.0 + border**2


def sum_sensitivity(border: float, square: float = 0.0) -> float:
    """sqrt(1 + a^2 + b^2), the L2 sensitivity (add/remove) of `vector_sums`."""
    return math.sqrt(1.0 + border**2 + square**2)


def gram_sums(batches: Batches, encode: Encode, *, k: int, m: int, border: float) -> Tensor:
    """Per cluster the sum of v v^T with v = (border, clip(u)), (k, m + 1, m + 1) float64; border 0 leaves the border 0."""
    total = torch.zeros(k, m + 1, m + 1, dtype=torch.float64)
    for x, labels in batches:
        u, cluster = encode(x, labels)
        u = clipped(u)
        if k > 1:
            u = u[cluster.argsort(stable=True)]
        ends = torch.bincount(cluster, minlength=k).cumsum(0).tolist()
        for c, (start, stop) in enumerate(zip([0, *ends[:-1]], ends)):
            if stop > start:
                part = u[start:stop]
                total[c, 1:, 1:] += (part.T @ part).to("cpu", torch.float64)
                total[c, 0, 1:] += border * part.sum(0).to("cpu", torch.float64)
                total[c, 0, 0] += border**2 * (stop - start)
    total[:, 1:, 0] = total[:, 0, 1:]
    return total


def vector_sums(batches: Batches, encode: Encode, *, k: int, m: int, border: float, square: float = 0.0) -> Tensor:
    """Per cluster the sum of (border, clip(u), square |clip(u)|^2), (k, m + 2) float64."""
    total = torch.zeros(k, m + 2, dtype=torch.float64)
    for x, labels in batches:
        u, cluster = encode(x, labels)
        u = clipped(u)
        # A product with indicators is the same on every device; batches are added in float64, exact for 10^8 rows.
        member = torch.nn.functional.one_hot(cluster, k).to(u.dtype)
        total[:, 0] += border * member.sum(0).to("cpu", torch.float64)
        total[:, 1:-1] += (member.T @ u).to("cpu", torch.float64)
        if square:
            total[:, -1] += square * (member.T @ u.square().sum(1)).to("cpu", torch.float64)
    return total


def triangle(matrices: Tensor) -> Tensor:
    """Upper triangles (k, m (m + 1) / 2) of symmetric matrices (k, m, m), off-diagonal entries times sqrt 2: an isometry."""
    m = matrices.shape[1]
    rows, columns = torch.triu_indices(m, m)
    return matrices[:, rows, columns] * _isometry(rows, columns)


def from_triangle(values: Tensor, m: int) -> Tensor:
    """The inverse of `triangle`.

    >>> matrix = torch.tensor([[[1.0, 2.0], [2.0, 5.0]]]).double()
    >>> torch.allclose(from_triangle(triangle(matrix), 2), matrix)
    True
    """
    rows, columns = torch.triu_indices(m, m)
    matrices = values.new_zeros(len(values), m, m)
    entries = values / _isometry(rows, columns)
    matrices[:, rows, columns] = entries
    matrices[:, columns, rows] = entries
    return matrices


def _isometry(rows: Tensor, columns: Tensor) -> Tensor:
    return 1.0 + (rows != columns).double() * (math.sqrt(2.0) - 1.0)


def release_grams(sums: Tensor, *, border: float, noise_multiplier: float, source: SecureSource) -> Tensor:
    """`gram_sums` with noise, symmetric; one Gaussian mechanism for all clusters, for a record is in one of them."""
    mechanism = GaussianMechanism(noise_multiplier, sensitivity=gram_sensitivity(border))
    return from_triangle(mechanism.release(triangle(sums), source), sums.shape[1])


def spectral_noise(m: int, *, noise_std: float) -> float:
    """About the largest eigenvalue of the noise on a second moment (m, m): std sqrt(2 m), the edge of its semicircle."""
    return noise_std * math.sqrt(2.0 * m)
