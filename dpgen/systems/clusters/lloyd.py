"""The parts of DP k-means: features of bounded norm, and Lloyd's steps on released values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dpgen.privacy.clipping import flat_coefficients

FeatureMap = Callable[[Tensor], Tensor]
"""Public map of records (n, m) to features (n, d), row by row."""

_CHUNK_ENTRIES = 2**18


def require_records(name: str, x: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    """Records (n, m) as a tensor; refuse other shapes, NaN, infinities and entries outside the public range."""
    x = torch.as_tensor(x)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be (n, m) with n >= 1 and m >= 1")
    low, high = (float(v) for v in x.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{name} holds NaN or infinite entries; they must all be finite")
    if value_range is not None and not value_range[0] <= low <= high <= value_range[1]:
        raise ValueError(f"{name} has entries from {low:g} to {high:g}; value_range is {value_range}")
    return x


@dataclass(frozen=True)
class FeatureSpace:
    """Features (n, d), float64, clipped to norm at most `norm_bound`; what the sums are made of."""

    feature_map: FeatureMap
    norm_bound: float = math.inf

    def __call__(self, x: Tensor) -> Tensor:
        z = self.feature_map(x.to(torch.float32))
        if z.ndim != 2 or len(z) != len(x) or not bool(torch.isfinite(z).all()):
            raise ValueError(f"features have shape {tuple(z.shape)}; they must be finite and ({len(x)}, d)")
        z = z.to(torch.float64)
        if self.norm_bound == math.inf:
            return z
        # float64: rounding lets no norm exceed the bound by more than 1e-15 of it
        bound = z.new_tensor(self.norm_bound)
        return z * (bound * flat_coefficients(z.norm(dim=1), bound))[:, None]

    def chunks(self, x: Tensor) -> Iterator[Tensor]:
        """Features of consecutive slices of x, so that memory does not grow with n."""
        for part in x.split(max(1, _CHUNK_ENTRIES // x.shape[1])):
            yield self(part)


def nearest(z: Tensor, centres: Tensor) -> Tensor:
    """Index (n,) of the nearest centre (k, d) of every row of z (n, d); of equally near ones the first.

    Scores are compared on a grid far above rounding errors: with coinciding centres the choice would otherwise hang on
    how a matrix product rounds, which may change with a record's place in its batch, that is with other records.
    """
    lengths = centres.square().sum(1)
    step = 1e-9 * lengths.max().clamp_min(1e-300)
    return ((lengths - 2.0 * z @ centres.T) / step).round().argmin(1)


def cluster_totals(chunks: Iterable[Tensor], centres: Tensor) -> tuple[Tensor, Tensor]:
    """Private sizes (k,), int64, and sums (k, d) of the clusters of the nearest centre."""
    counts = torch.zeros(len(centres), dtype=torch.int64, device=centres.device)
    sums = torch.zeros_like(centres)
    for z in chunks:
        member = torch.nn.functional.one_hot(nearest(z, centres), len(centres))
        counts += member.sum(0)
        sums += member.to(z).T @ z
    return counts, sums


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
