r"""Private records as a stream, and their exact sums in one pass.

A record with clipped vector u, |u| <= 1, adds :math:`v v^\top` with :math:`v = (a, u)` to the matrix of its cluster: the
count (times :math:`a^2`), the sum (times a) and the second moment at once. All :math:`(m + 1)^2` entries are one vector of
L2 norm :math:`|v v^\top|_F = |v|^2`, get independent noise, and are averaged with their mirror images afterwards: an
off-diagonal entry ends with half the variance of a diagonal one.

| release | add/remove | replace-one |
|---|---|---|
| bordered Gram matrix | 1 + a^2 | sqrt 2 (1 + a^2) |
| bordered sum of (a, u) or (a, u, b |u|^2), b <= 1, one cluster | sqrt(1 + a^2 + b^2) | 2 |
| the same, several clusters | sqrt(1 + a^2 + b^2) | max(2, sqrt(2 (1 + a^2 + b^2))) |

Claiming 1 for the Gram matrix (the second moment alone), or noise on one triangle that is copied to the other, are the usual
mistakes; the audit of the tests rejects them.

The sums are exact (`privacy.exact_sums`): a record's vector depends on that record alone and is cut towards zero to a grid,
products of grid values are exact in float64, and batches are added in int64. Borders are rounded to the same grid.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dpgen.privacy.exact_sums import (
    CHUNK,
    GRAM_GRID,
    MOST_RECORDS,
    SUM_GRID,
    BoundedSum,
    Each,
    clipped,
    group_sums,
    totals,
    whole,
    whole_squares,
)

_CELLS = 2**21
"""Values of a slice: its temporaries stay in memory that the process has."""

Batches = Iterable[tuple[Tensor, Tensor | None]]
"""Anything that yields (x (b, d) float32 in [0, 1], labels (b,) or None) each time it is read, on any device; a source of
`totals`."""


@dataclass(frozen=True, eq=False, repr=False)
class RecordStream:
    """Records (n, d) in slices, as float32 between 0 and 1; any other re-readable iterable of (x, labels) serves as well.

    >>> stream = RecordStream(torch.tensor([[0, 255], [255, 0], [0, 0]]).byte(), None, top=255, batch_size=2)
    >>> [x.tolist() for x, _ in stream]
    [[[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.0]]]
    """

    x: Tensor  # (n, d), uint8 or floating point in [0, top]
    labels: Tensor | None
    top: float = 1.0  # the value that becomes 1: 1 for bits, 255 for grey values
    batch_size: int | None = None  # None: as many records as have 2^21 values
    device: str = "cpu"

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        size = self.batch_size or max(1, _CELLS // self.x.shape[1])
        for start in range(0, len(self.x), size):
            part = slice(start, start + size)
            labels = None if self.labels is None else self.labels[part].to(self.device)
            yield self.x[part].to(self.device, torch.float32) / self.top, labels


def checked(batches: Batches, d: int, n_classes: int) -> Batches:
    """The batches, checked each time they are read: (b, d) in [0, 1], with labels in [0, n_classes) if there are any."""
    return Each(batches, partial(_checked, d=d, n_classes=n_classes))


def _checked(x: Tensor, labels: Tensor | None, *, d: int, n_classes: int) -> tuple[Tensor, Tensor | None]:
    if x.ndim != 2 or x.shape[1] != d:
        raise ValueError(f"x must have shape (b, {d}), got {tuple(x.shape)}")
    if x.numel():
        low, high = (float(end) for end in x.aminmax())  # NaN if any entry is
        if not math.isfinite(low) or not math.isfinite(high):
            raise ValueError("x must be finite, got NaN or infinite entries")
        if not 0.0 <= low <= high <= 1.0:
            raise ValueError(f"x must be in [0, 1], got [{low:g}, {high:g}]")
    if not n_classes:
        return x, None
    if labels is None or labels.shape != (len(x),):
        raise ValueError(f"labels must have shape ({len(x)},), got {None if labels is None else tuple(labels.shape)}")
    if len(x) and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise ValueError(f"labels must be in [0, {n_classes}), got [{int(labels.min())}, {int(labels.max())}]")
    return x, labels


# -- sums --------------------------------------------------------------------------------------------------------------

Encode = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""(x (b, d), labels) to (u (b, m), cluster (b,)): record by record, from released and public values only."""


def one_class(x: Tensor) -> Tensor:
    """The cluster (b,) of records that have none of their own."""
    return torch.zeros(len(x), dtype=torch.int64, device=x.device)


def _clipped_rows(batches: Batches, encode: Encode, grid: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Clipped rows and their clusters, at most 2^16 at a time."""
    seen = 0
    for x, labels in batches:
        u, cluster = encode(x, labels)
        seen += len(u)
        if seen > MOST_RECORDS:
            raise ValueError(f"there are more than {MOST_RECORDS} records, whose sums would not fit int64")
        for rows, members in zip(u.split(CHUNK), cluster.split(CHUNK)):
            yield clipped(rows, grid), members


def members(u: Tensor, cluster: Tensor, k: int) -> Iterator[tuple[int, Tensor]]:
    """The rows (b_c, m) of each of k clusters that has any, in order."""
    if k > 1:
        u = u[cluster.argsort(stable=True)]
    ends = torch.bincount(cluster, minlength=k).cumsum(0).tolist()
    for c, (start, stop) in enumerate(zip([0, *ends[:-1]], ends)):
        if stop > start:
            yield c, u[start:stop]


def gram(u: Tensor) -> Tensor:
    """u^T u; NumPy sees that it is symmetric and does half of the work."""
    if u.device.type != "cpu":
        return u.T @ u
    rows = u.numpy()
    return torch.from_numpy(rows.T @ rows)


def gram_sums(batches: Batches, encode: Encode, *, k: int, m: int, border: float) -> BoundedSum:
    r"""Per cluster the sum of v v^T with v = (border, clip(u)), (k, m + 1, m + 1); without a border (0), (k, m, m).

    A record adds :math:`v v^\top` to one cluster, of norm :math:`|v|^2 \le 1 + a^2`. A replaced one moves the sums by
    :math:`\sqrt{|v|^4 + |v'|^4 - 2 \langle v, v' \rangle^2} \le \sqrt 2 (1 + a^2)`, reached by orthogonal v and in two
    clusters.
    """
    a = round(border * GRAM_GRID)

    def added(batches: Batches) -> Tensor:
        total = torch.zeros(k, m + 1, m + 1, dtype=torch.int64)
        for u, cluster in _clipped_rows(batches, encode, GRAM_GRID):
            for c, part in members(u, cluster, k):
                total[c, 1:, 1:] += whole(gram(part), GRAM_GRID**2)
                if a:
                    total[c, 0, 1:] += a * whole(part.sum(0), GRAM_GRID)
                    total[c, 0, 0] += a * a * len(part)
        return total

    total = totals(batches, added)
    total[:, 1:, 0] = total[:, 0, 1:]
    sensitivity = 1.0 + (a / GRAM_GRID) ** 2
    return BoundedSum(
        total if border else total[:, 1:, 1:].contiguous(),
        sensitivity,
        "v v^T of bordered vectors",
        replaced=math.sqrt(2.0) * sensitivity,
        step=GRAM_GRID**-2,
    )


def vector_sums(batches: Batches, encode: Encode, *, k: int, m: int, border: float, square: float = 0.0) -> BoundedSum:
    r"""Per cluster the sum of (border, clip(u), square |clip(u)|^2), (k, m + 2); without a square (0), (k, m + 1).

    A record adds a vector of norm at most :math:`\sqrt{1 + a^2 + b^2}` to one cluster. A replaced one moves the sums of
    two clusters by :math:`\sqrt 2` of that; of one by :math:`(p + q)^2 (1 + b^2 (p - q)^2)` squared at most, p and q the
    norms of both, which for :math:`b \le 1` grows in both: by at most 2, where p = q = 1.
    """
    if not 0 <= square <= 1:
        raise ValueError(f"square is {square!r}; it must lie in [0, 1]")
    a = round(border * SUM_GRID)

    def added(batches: Batches) -> Tensor:
        total = torch.zeros(k, m + 2, dtype=torch.int64)
        for u, cluster in _clipped_rows(batches, encode, SUM_GRID):
            total[:, 0] += a * torch.bincount(cluster, minlength=k).cpu()
            u.mul_(SUM_GRID)
            total[:, 1:-1] += group_sums(u, cluster, k, most=SUM_GRID)
            if square:
                squares = (whole_squares(u) * (square / SUM_GRID)).trunc_()
                total[:, -1:] += group_sums(squares[:, None], cluster, k, most=SUM_GRID)
        return total

    total = totals(batches, added)
    sensitivity = math.sqrt(1.0 + (a / SUM_GRID) ** 2 + square**2)
    return BoundedSum(
        total if square else total[:, :-1].contiguous(),
        sensitivity,
        "bordered vectors",
        replaced=2.0 if k == 1 else max(2.0, math.sqrt(2.0) * sensitivity),
        step=1.0 / SUM_GRID,
    )


def symmetric(noisy: Tensor) -> Tensor:
    """Noisy matrices (k, m, m) averaged with their mirror images: off-diagonal noise loses half of its variance."""
    return (noisy + noisy.transpose(1, 2)) / 2.0


BORDER = 0.5
"""Weight a of the count beside a vector of norm at most 1: a^2 = 1/4 costs the second moment 1.25 in noise."""

WHOLE = "Gaussian fit: all its noisy sums together"
"""Note of the one Gaussian, completed by its multiplier: several fits may share a ledger."""

NOTES = {
    "mean": "mean, count and mean square of the records",
    "subspace": "second moment of the records (principal axes)",
    "classes": "count, mean and second moment of every class",
    "clusters": "k-means inside the classes: counts and sums",
    "components": "count, mean and second moment of every component",
    "marginals": "marginals of the binary features",
    "pairs": "pairwise marginals of the binary features",
    "sizes": "histogram of record sizes",
    "items": "item counts",
    "frequent": "conjunctions of frequent items, and how many others sets hold",
    "images": "count, mean and second moments of the frequencies of every class",
}
"""Every release of a Gaussian fit, by the name of its share, and what the ledger calls it."""
