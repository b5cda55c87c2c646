"""The parts of DP k-means: its plan of releases, features of bounded norm, and Lloyd's steps on released values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..privacy.clipping import flat_coefficients
from ..privacy.mechanisms import effective_multiplier, gaussian_event

if TYPE_CHECKING:
    from dp_accounting import DpEvent

FeatureMap = Callable[[Tensor], Tensor]
"""Public map of records (n, m) to features (n, d), row by row."""

_CHUNK_ENTRIES = 2**18


def require_positive(name: str, value: float) -> None:
    """Refuse what is not a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}; it must be a finite number > 0")


def require_whole(name: str, value: int) -> None:
    """Refuse what is not a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number >= 1")


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


@dataclass(frozen=True, kw_only=True)
class KMeansPlan:
    r"""What k-means releases: T rounds of (counts, sums), then the counts of the final clusters.

    .. math:: \mu^2 = T (1/\sigma_n^2 + 1/\sigma_s^2) + 1/\sigma_n^2

    A record is in one cluster and its feature vector has norm at most C, so a round is one Gaussian mechanism of
    multiplier :math:`(1/\sigma_n^2 + 1/\sigma_s^2)^{-1/2}` under add/remove-one. The last counts belong to the released
    centres themselves: what `DPKMeans.predict` says and what `counts_` counts are the same clusters, and no sum is paid
    for that is not used.

    Arguments:
        noise_count: sigma_n, std of the noise on counts.
        noise_sum: sigma_s, std of the noise on sums of features / norm bound C.
        rounds: rounds T >= 1. At 60,000 records and 10 clusters 5 serve best at epsilon .1, 20 from .2 on.
        repair: shrink noisy centres and split crowded clusters (post-processing, see `update_centres`); False is the
            standard method.

    >>> KMeansPlan(noise_count=10.0, noise_sum=2.0, rounds=4).noise_multiplier
    0.97590...
    """

    noise_count: float
    noise_sum: float
    rounds: int = 20
    repair: bool = True

    def __post_init__(self) -> None:
        require_positive("noise_count", self.noise_count)
        require_positive("noise_sum", self.noise_sum)
        require_whole("rounds", self.rounds)

    @classmethod
    def from_multiplier(
        cls, noise_multiplier: float, *, rounds: int, n_features: int, repair: bool = True
    ) -> KMeansPlan:
        r"""The plan that costs exactly as much as one Gaussian of this multiplier, :math:`\mu` = 1 / multiplier.

        Noise of a centre c is :math:`(\sqrt d \sigma_s C)^2 + (|c| \sigma_n)^2` over the squared count, least for
        :math:`\sigma_n / \sigma_s = (\sqrt d C / |c|)^{1/2}`. Centres are private, so |c| = C/2 is taken; the optimum
        is flat (5.3 at d = 200). The paper's equal noise costs 1.85 times in centre error.

        Raises:
            ValueError: an argument is out of its range.
        """
        require_positive("noise_multiplier", noise_multiplier)
        require_whole("rounds", rounds)
        require_whole("n_features", n_features)
        ratio = (2.0 * math.sqrt(n_features)) ** 0.5
        noise_sum = noise_multiplier * (rounds + (rounds + 1) / ratio**2) ** 0.5
        return cls(noise_count=ratio * noise_sum, noise_sum=noise_sum, rounds=rounds, repair=repair)

    @property
    def noise_multiplier(self) -> float:
        """The one Gaussian that equals the whole plan."""
        counts, sums = [self.noise_count] * (self.rounds + 1), [self.noise_sum] * self.rounds
        return effective_multiplier(*counts, *sums)

    @property
    def round_event(self) -> DpEvent:
        """One joint release of counts and sums."""
        return gaussian_event(effective_multiplier(self.noise_count, self.noise_sum))

    @property
    def event(self) -> DpEvent:
        """Everything that the plan releases."""
        from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

        return ComposedDpEvent([SelfComposedDpEvent(self.round_event, self.rounds), gaussian_event(self.noise_count)])


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


def update_centres(
    centres: Tensor, counts: Tensor, sums: Tensor, *, sum_std: float, floor: float, shrink: bool
) -> Tensor:
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
