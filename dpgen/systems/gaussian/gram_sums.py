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

A sensitivity speaks of sums of what each record adds by itself. Floating-point sums are not that: a removed record shifts
the batches, and other records round otherwise. Here a record's vector is computed by operations whose result does not
depend on the batch around it, cut towards zero to a grid, and added exactly: products of grid values in float64 without
any rounding, batches in int64.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from dpgen.privacy.mechanisms import GaussianMechanism
from dpgen.privacy.noise import SecureSource
from dpgen.systems.gaussian.record_stream import Batches

Encode = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""(x (b, d), labels) to (u (b, m), cluster (b,)): record by record, from released and public values only."""

_GRAM_GRID = 2.0**18  # products are whole multiples of 2^-36: sums of 2^16 rows fit float64, of 2^27 rows int64
_SUM_GRID = 2.0**30
_ROWS = 2**16
_IN_CACHE = 512  # rows: several times as fast as temporaries of megabytes
_MOST_RECORDS = 2**27
_ROUNDING = 1.0 - 1e-6  # its distance from 1 exceeds what the last rounding, of whole sums, moves: 2^27 records * 2^-52


def row_squares(u: Tensor) -> Tensor:
    """|u|^2 (b,) in float64 of rows (b, m), folded in a fixed order: the same for a row whatever rows are beside it."""
    squares = u.double().square()
    while squares.shape[1] > 1:
        half = squares.shape[1] // 2
        folded = squares[:, :half] + squares[:, half : 2 * half]
        if squares.shape[1] % 2:
            folded[:, 0] += squares[:, -1]
        squares = folded
    return squares[:, 0]


def clipped(u: Tensor, grid: float = _GRAM_GRID) -> Tensor:
    """Rows (b, m) scaled down to norm at most 1 and cut towards zero to multiples of 1 / grid, float64.

    The norm is right to 2^-48 and cutting lowers it: it is at most 1 whatever m.
    """
    result = torch.empty(u.shape, dtype=torch.float64, device=u.device)
    for rows, part in zip(u.split(_IN_CACHE), result.split(_IN_CACHE)):
        norms = row_squares(rows).sqrt_()[:, None]
        torch.mul(rows, _ROUNDING / norms.clamp_min_(_ROUNDING), out=part).mul_(grid).trunc_().div_(grid)
    return result


def gram_sensitivity(border: float) -> float:
    """1 + a^2, the L2 sensitivity (add/remove) of `gram_sums`."""
    return 1.0 + border**2


def sum_sensitivity(border: float, square: float = 0.0) -> float:
    """sqrt(1 + a^2 + b^2), the L2 sensitivity (add/remove) of `vector_sums`."""
    return math.sqrt(1.0 + border**2 + square**2)


def _clipped_rows(batches: Batches, encode: Encode, grid: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Clipped rows and their clusters, at most 2^16 at a time."""
    seen = 0
    for x, labels in batches:
        u, cluster = encode(x, labels)
        seen += len(u)
        if seen > _MOST_RECORDS:
            raise ValueError(f"there are more than {_MOST_RECORDS} records, whose sums would not fit int64")
        for rows, members in zip(u.split(_ROWS), cluster.split(_ROWS)):
            yield clipped(rows, grid), members


def _whole(values: Tensor, grid: float) -> Tensor:
    """Exact multiples of 1 / grid as whole numbers on the CPU."""
    return (values * grid).to("cpu", torch.int64)


def _gram(u: Tensor) -> Tensor:
    """u^T u; NumPy sees that it is symmetric and does half of the work."""
    if u.device.type != "cpu":
        return u.T @ u
    rows = u.numpy()
    return torch.from_numpy(rows.T @ rows)


def gram_sums(batches: Batches, encode: Encode, *, k: int, m: int, border: float) -> Tensor:
    """Per cluster the sum of v v^T with v = (border, clip(u)), (k, m + 1, m + 1) float64; border 0 leaves the border 0."""
    total = torch.zeros(k, m + 1, m + 1, dtype=torch.int64)
    for u, cluster in _clipped_rows(batches, encode, _GRAM_GRID):
        if k > 1:
            u = u[cluster.argsort(stable=True)]
        ends = torch.bincount(cluster, minlength=k).cumsum(0).tolist()
        for c, (start, stop) in enumerate(zip([0, *ends[:-1]], ends)):
            if stop > start:
                part = u[start:stop]
                total[c, 1:, 1:] += _whole(_gram(part), _GRAM_GRID**2)
                total[c, 0, 1:] += _whole(part.sum(0), _GRAM_GRID)
                total[c, 0, 0] += stop - start
    sums = total.double()
    sums[:, 1:, 1:] /= _GRAM_GRID**2
    sums[:, 0, 1:] *= border / _GRAM_GRID
    sums[:, 0, 0] *= border**2
    sums[:, 1:, 0] = sums[:, 0, 1:]
    return sums


def vector_sums(batches: Batches, encode: Encode, *, k: int, m: int, border: float, square: float = 0.0) -> Tensor:
    """Per cluster the sum of (border, clip(u), square |clip(u)|^2), (k, m + 2) float64."""
    total = torch.zeros(k, m + 2, dtype=torch.int64)
    for u, cluster in _clipped_rows(batches, encode, _SUM_GRID):
        member = torch.nn.functional.one_hot(cluster, k).double()
        total[:, 0] += torch.bincount(cluster, minlength=k).cpu()
        total[:, 1:-1] += _whole(member.T @ u, _SUM_GRID)
        if square:
            total[:, -1] += _whole(member.T @ (row_squares(u) * _SUM_GRID).trunc_(), 1.0)
    return total.double() * torch.tensor([border, *[1 / _SUM_GRID] * m, square / _SUM_GRID], dtype=torch.float64)


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
