"""The parts of DP k-means: features of bounded norm, exact sums, and Lloyd's steps on released values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dpgen.nets.features import NORM, RandomFourierFeatures
from dpgen.privacy.exact_sums import BoundedSum, clipped, group_sums, row_squares
from dpgen.systems.clusters.kmeans_plan import COUNT_REPLACED, SUM_STEP, round_replaced, round_sensitivity

FeatureMap = Callable[[Tensor], Tensor]
"""Public map of records (n, m), float32, to features (n, d)."""

_CHUNK_ENTRIES = 2**18
_DOT_BITS = 51  # products of rows and centres stay below 2^51, where float64 holds every whole number


def require_records(name: str, x: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    """Records (n, m) as a tensor; refuse other shapes, NaN, infinities and entries outside the public range."""
    x = torch.as_tensor(x)
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be (n, m) with m >= 1")
    if not len(x):
        return x
    low, high = (float(v) for v in x.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{name} holds NaN or infinite entries; they must all be finite")
    if value_range is not None and not value_range[0] <= low <= high <= value_range[1]:
        raise ValueError(f"{name} has entries from {low:g} to {high:g}; value_range is {value_range}")
    return x


@dataclass(frozen=True)
class FeatureSpace:
    """Features (n, d) of norm at most `norm_bound`; what the sums are made of.

    A record's features depend on that record alone, bit for bit: random Fourier features and `identity` by what they are
    made of, any other map because it is evaluated record by record, on a fresh copy of the record alone.
    """

    feature_map: FeatureMap
    norm_bound: float = math.inf

    def raw(self, x: Tensor) -> Tensor:
        """Features (n, d), float64, before they are clipped; those that are not finite are as if of norm infinity."""
        if self.feature_map is identity or isinstance(self.feature_map, RandomFourierFeatures):
            return self.feature_map(x).double()
        rows = [self.feature_map(row.to(torch.float32, copy=True)[None]) for row in x]
        for z in rows:
            if z.ndim != 2 or len(z) != 1 or z.shape != rows[0].shape:
                raise ValueError(f"features of one record have shape {tuple(z.shape)}; they must be (1, d) of one d")
        return torch.cat(rows).double() if rows else self.feature_map(x.to(torch.float32)).double()

    def whole(self, x: Tensor) -> Tensor:
        """Clipped features (n, d) in whole numbers of norm_bound * 2^-23, float64, cut towards zero: no row exceeds 2^23.

        Features that are not finite become 0.
        """
        if isinstance(self.feature_map, RandomFourierFeatures) and self.norm_bound == 1.0:
            return self.feature_map.whole(x)
        return clipped(self.raw(x) * (1.0 / self.norm_bound), NORM).mul_(NORM)

    def __call__(self, x: Tensor) -> Tensor:
        """Clipped features (n, d), float64."""
        return self.whole(x) * (self.norm_bound * SUM_STEP)

    def chunks(self, x: Tensor) -> Iterator[Tensor]:
        """`whole` of consecutive slices of x, so that memory does not grow with n; float32, which holds them."""
        for part in slices(x):
            yield self.whole(part).float()


def slices(x: Tensor) -> tuple[Tensor, ...]:
    """Consecutive rows of x, about 2^18 entries at a time."""
    return x.split(max(1, _CHUNK_ENTRIES // x.shape[1]))


@dataclass(frozen=True)
class Centres:
    r"""Released centres (k, d) on a grid so coarse that their products with features are exact.

    The nearest centre maximises :math:`z^\top c - |c|^2 / 2`. Features are whole numbers with norm at most :math:`2^{23}`,
    centres whole numbers with norm at most :math:`2^{28}`: by Cauchy and Schwarz every partial sum of a product is below
    :math:`2^{51}`, so float64 computes it without rounding in any order, and a record's scores depend on that record alone.
    """

    rows: Tensor  # (k, d), float64
    half_squares: Tensor  # (k,)

    @classmethod
    def cut(cls, centres: Tensor, norm_bound: float) -> Centres:
        """Centres (k, d) / norm_bound in whole numbers of 2^-q, cut towards zero; q serves the largest entry."""
        on_device, centres = centres.device, centres.detach().to("cpu", torch.float64) * (1.0 / norm_bound)
        bits = min(24, _DOT_BITS - 23 - math.ceil(math.log2(centres.shape[1]) / 2))
        q = bits - math.frexp(float(centres.abs().max()))[1]
        rows = (centres * 2.0**q).trunc()
        squares = rows.to(torch.int64).square().sum(1)  # below 2^56
        return cls(rows.to(on_device), (squares.double() * 2.0 ** (22 - q)).to(on_device))

    def nearest(self, z: Tensor) -> Tensor:
        """Index (n,) of the nearest centre of every row of z (n, d), whole numbers; of equally near ones the first."""
        return (self.half_squares - z.double() @ self.rows.T).argmin(1)


def cluster_sums(chunks: Iterable[Tensor], centres: Centres) -> Tensor:
    """Private (counts, sums of features) (k, 1 + d), int64, of the clusters of the nearest centre, on the CPU."""
    k, d = centres.rows.shape
    total = torch.zeros(k, 1 + d, dtype=torch.int64)
    for z in chunks:
        rows, owner = z.double(), centres.nearest(z)
        total[:, 1:] += group_sums(rows, owner, k, most=NORM).cpu()
        total[:, 0] += torch.bincount(owner, minlength=k).cpu()
    return total


def round_sums(chunks: Iterable[Tensor], centres: Centres, weight: float) -> BoundedSum:
    """(weight * count, sum of features / norm bound) of every cluster, (k, 1 + d), on one grid; see `round_sensitivity`."""
    sums = cluster_sums(chunks, centres)
    sums[:, 0] *= round(weight / SUM_STEP)
    return BoundedSum(sums, round_sensitivity(weight), replaced=round_replaced(weight), step=SUM_STEP)


def size_sums(clusters: Iterable[Tensor], k: int) -> BoundedSum:
    """Sizes (k,) of clusters: a record counts once, and a replaced one lowers one size and raises another."""
    sizes = torch.zeros(k, dtype=torch.int64)
    for cluster in clusters:
        sizes += torch.bincount(cluster, minlength=k).cpu()
    return BoundedSum(sizes, 1.0, replaced=COUNT_REPLACED)


def norm_sums(rows: Iterable[Tensor], edges: Tensor) -> BoundedSum:
    """Histogram (1, w) of the norms of rows (b, d), with upper edges (w - 1,) and the last bin for longer ones.

    A norm is folded in a fixed order, so its bin depends on its record alone; a norm of 0 (or NaN) falls in no bin.
    """
    histogram = torch.zeros(1, len(edges) + 1, dtype=torch.int64)
    for z in rows:
        norms = row_squares(z).sqrt().cpu()
        cells = torch.bucketize(norms[norms > 0], edges.to("cpu", torch.float64))
        histogram[0] += torch.bincount(cells, minlength=len(edges) + 1)
    return BoundedSum(histogram, 1.0, replaced=COUNT_REPLACED)


def update_centres(centres: Tensor, counts: Tensor, sums: Tensor, *, sum_std: float, floor: float, shrink: bool) -> Tensor:
    r"""New centres (k, d) from released counts (k,) and sums (k, d): post-processing, free of charge.

    Plain means :math:`\tilde S_c / \tilde n_c`, or (`shrink`) drawn towards the mean of all records by the
    positive-part James-Stein factor, which cuts what is more noise than signal:

    .. math:: c = \bar c + s_c (\tilde S_c / \tilde n_c - \bar c), \quad
        s_c = \left(1 - \frac{d \, (\sigma / \tilde n_c)^2}{|\tilde S_c / \tilde n_c - \bar c|^2}\right)_+, \quad
        \bar c = \sum_c \tilde S_c / \sum_c \tilde n_c

    A cluster whose noisy count is below `floor` keeps its centre. Counts are clamped to at least 1 as divisors.

    Arguments:
        sum_std: noise std of every entry of sums, in units of the features.
        floor: least noisy count of a cluster that is taken to have records.

    Source: James and Stein 1961; Efron and Morris 1973. Acs et al. 2017 use plain means.
    """
    sizes = counts.clamp_min(1.0)[:, None]
    means = sums / sizes
    if shrink:
        pooled = sums.sum(0) / counts.sum().clamp_min(1.0)
        offset = means - pooled
        noise = means.shape[1] * (sum_std / sizes).square()
        means = pooled + (1.0 - noise / offset.square().sum(1, keepdim=True).clamp_min(1e-300)).clamp_min(0.0) * offset
    return torch.where((counts < floor)[:, None], centres, means)


def split_largest(centres: Tensor, counts: Tensor, nudges: Tensor, *, floor: float) -> Tensor:
    """Centres (k, d) where each cluster with a noisy count below `floor` takes half of a large one's place."""
    centres = centres.clone()
    starving = torch.nonzero(counts < floor).flatten().tolist()
    donors = [c for c in counts.argsort(descending=True).tolist() if c not in starving]
    for i, cluster in enumerate(starving if donors else []):
        donor = donors[i % len(donors)]
        centres[cluster] = centres[donor] + nudges[cluster]
        centres[donor] -= nudges[cluster]
    return centres


def kmeans_plus_plus(z: Tensor, k: int, generator: torch.Generator) -> list[int]:
    """Rows of public z (p, d) chosen with probability proportional to the squared distance to those chosen before."""
    chosen = [int(torch.randint(len(z), (1,), generator=generator))]
    while len(chosen) < k:
        distance = torch.cdist(z, z[chosen]).square().amin(1).cpu()
        distance[chosen] = 0.0
        if not bool(distance.sum() > 0):  # fewer than k distinct records
            distance[[i for i in range(len(z)) if i not in chosen]] = 1.0
        chosen.append(int(torch.multinomial(distance, 1, generator=generator)))
    return chosen


def identity(x: Tensor) -> Tensor:
    """The feature map of standard k-means."""
    return x
