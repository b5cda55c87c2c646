r"""Sparse sets in closed form: independent items given the size of the set, tilted so that the sizes are right.

.. math:: p(x) = \sum_l w_l \prod_j \mathrm{Bernoulli}(x_j; \sigma(\theta_j + t_l)), \quad \sum_j \sigma(\theta_j + t_l) = s_l

for sizes :math:`s_l` on a public grid. Two releases: a histogram of sizes over public bins, and item counts in which a
record of size s weighs :math:`\min(1, \sqrt{c / s})`, so that its L2 norm is at most :math:`\sqrt c`; c is a quantile of the
released histogram. Weights w are deconvolved from the histogram and theta fitted to the counts: the model knows
how large sets were down-weighted, so clipping leaves no bias that the sizes explain. Counts near the noise are shrunk by
the empirical Bayes estimate under their own non-parametric prior.

Random subsets of items are hit in proportion to the sizes of the sets, which independent marginals get wrong.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dpgen.privacy.exact_sums import CHUNK, BoundedSum
from dpgen.systems.gaussian.record_stream import Batches
from dpgen.systems.gaussian.spending import Spending

SHARES = {"sizes": 0.1, "items": 0.9}
"""Shares of mu^2 of the two releases."""

_CLIP_QUANTILE = 0.8
_GRID = 2.0**24
_GROWTH = 1.2  # of the bins of sizes; those up to 8 have width 1
_LEVEL_GROWTH = 1.35


@dataclass(frozen=True)
class SizeTilt:
    """Weights (l,) and item probabilities (l, d) of the levels, and the noisy number of records."""

    weights: Tensor
    probabilities: Tensor
    count: float


def size_bins(d: int) -> Tensor:
    """Lower ends of the public bins of sizes 0..d, int64.

    >>> size_bins(12).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12]
    """
    ends, end = list(range(min(d, 8) + 1)), 8.0
    while round(end * _GROWTH) <= d:
        end *= _GROWTH
        ends.append(round(end))
    return torch.tensor(sorted(set(ends)))


def size_histogram(batches: Batches, bins: Tensor) -> BoundedSum:
    """Records (bins,) by size: one record, one bin; a replaced one leaves another."""
    histogram = torch.zeros(len(bins), dtype=torch.int64)
    for x, _ in batches:
        where = torch.bucketize((x > 0.5).sum(1).cpu(), bins, right=True) - 1
        histogram += torch.bincount(where, minlength=len(bins))
    return BoundedSum(histogram, 1.0, "records by size", replaced=math.sqrt(2.0))


def item_sums(batches: Batches, d: int, clip: int) -> BoundedSum:
    r"""Item counts (d,) in which a record of size s weighs :math:`w_s = \min(1, \sqrt{c / s})`, c = `clip`.

    A record adds :math:`w_s` at s places, :math:`|w_s x|^2 = s w_s^2 \le c`; a replaced one moves the counts by at most
    :math:`\sqrt{2 c}`, for two records have no entries of different signs. Weights are cut to whole numbers of 2^-24.
    """
    one = round(_GRID)
    weights = torch.tensor([math.isqrt(clip * one**2 // max(size, clip)) for size in range(d + 1)])
    total = torch.zeros(d, dtype=torch.int64)
    for x, _ in batches:
        for items in (x > 0.5).split(CHUNK):  # products below 2^40, exact in float64
            weight = weights.to(x.device)[items.sum(1)].double()
            total += (weight @ items.double()).long().cpu()
    return BoundedSum(total, math.sqrt(clip), "weighted items", replaced=math.sqrt(2.0 * clip), step=1.0 / _GRID)


def cleaned_histogram(noisy: Tensor, noise_std: float) -> Tensor:
    """Shares (bins,) of the sizes: zero from where all that is left is within three stds of noise, and never negative."""
    tails = noisy.flip(0).cumsum(0).flip(0)
    left = torch.arange(len(noisy), 0, -1).double()
    heard = (tails > 3.0 * noise_std * left.sqrt()).nonzero().flatten()
    end = int(heard[-1]) + 1 if len(heard) else 1
    kept = torch.where(torch.arange(len(noisy)) < end, noisy, 0.0).clamp_min(0.0)
    return kept / kept.sum() if kept.sum() > 0 else torch.nn.functional.one_hot(torch.tensor(0), len(noisy)).double()


def shrunken_counts(noisy: Tensor, noise_std: float) -> Tensor:
    """Posterior means of counts (d,) under the prior that explains the noisy counts best (Robbins 1956; Kiefer, Wolfowitz).

    >>> y = torch.cat([torch.full((50,), 3.0), torch.full((50,), -3.0), torch.tensor([900.0])]).double()
    >>> shrunken = shrunken_counts(y, 3.0)
    >>> bool(shrunken.min() >= 0), bool(abs(shrunken[-1] - 900) < 10)
    (True, True)
    """
    top = max(float(noisy.max()) * 1.1, noise_std)
    grid = torch.cat([torch.zeros(1).double(), torch.logspace(math.log10(noise_std / 20), math.log10(top), 200).double()])
    exponent = -0.5 * ((noisy[:, None] - grid) / noise_std).square()
    likelihood = (exponent - exponent.max(1, keepdim=True).values).exp()
    prior = torch.full_like(grid, 1.0 / len(grid))
    for _ in range(200):
        joint = likelihood * prior
        prior = (joint / joint.sum(1, keepdim=True)).mean(0) + 1e-9
    joint = likelihood * prior
    return (joint * grid).sum(1) / joint.sum(1)


def tilts(log_odds: Tensor, sizes: Tensor) -> Tensor:
    """t (l,) with sum_j sigmoid(log_odds_j + t) = sizes, by bisection."""
    low, high = torch.full_like(sizes, -60.0), torch.full_like(sizes, 60.0)
    for _ in range(50):
        middle = (low + high) / 2.0
        below = torch.sigmoid(log_odds + middle[:, None]).sum(1) < sizes
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2.0


def _binned_sizes(probabilities: Tensor, bins: Tensor) -> Tensor:
    """P(size in bin) (l, bins) of sums of independent bits, by the refined normal approximation with continuity."""
    mean = probabilities.sum(1)
    variance = (probabilities * (1.0 - probabilities)).sum(1).clamp_min(1e-9)
    # A gamma of the same two moments keeps the skewness of small sizes, where a normal would reach below 0.
    from scipy.special import gammainc

    edges = (bins[1:].double() - 0.5)[None, :]
    shape, rate = (mean + 0.5) ** 2 / variance, (mean + 0.5) / variance
    below = torch.from_numpy(gammainc(shape[:, None].numpy(), (rate[:, None] * (edges + 0.5)).numpy()))
    cdf = torch.cat([torch.zeros(len(mean), 1).double(), below, torch.ones(len(mean), 1).double()], 1)
    return cdf.diff(dim=1).clamp_min(1e-15)


def fit_size_tilt(histogram: Tensor, bins: Tensor, counts: Tensor, *, clip: float, records: float) -> SizeTilt:
    """Levels, weights and probabilities that explain the released values; post-processing.

    Arguments:
        histogram: cleaned shares of the bins.
        bins: their lower ends.
        counts: shrunken item counts (d,), sets above `clip` down-weighted.
        clip: c.
        records: noisy number of records.
    """
    d = len(counts)
    top = float(bins[int(histogram.nonzero().max())])
    grid, size = [0.02], 0.5
    while size < min(top * 1.1 + 0.5, d - 0.5):
        grid.append(size)
        size *= _LEVEL_GROWTH
    levels = torch.tensor(grid, dtype=torch.float64)
    target = (counts / max(records, 1.0)).clamp(1e-9, 1.0)
    log_odds = torch.logit(target.clamp(1e-9, 0.99))
    weights = torch.full_like(levels, 1.0 / len(levels))
    for _ in range(12):
        p = torch.sigmoid(log_odds + tilts(log_odds, levels)[:, None])
        weights = _deconvolved(weights, _binned_sizes(p, bins), histogram)
        expected = (weights * (clip / levels.clamp_min(clip)).sqrt()) @ p
        log_odds = log_odds + (target / expected.clamp_min(1e-12)).log().clamp(-2.0, 2.0)
    p = torch.sigmoid(log_odds + tilts(log_odds, levels)[:, None])
    return SizeTilt(weights, p, records)


def _deconvolved(weights: Tensor, kernel: Tensor, histogram: Tensor) -> Tensor:
    for _ in range(100):  # EM for the weights of a known kernel
        weights = weights * (kernel @ (histogram / (weights @ kernel).clamp_min(1e-15)))
        weights = weights / weights.sum()
    return weights


def release_size_tilt(batches: Batches, d: int, *, spending: Spending) -> SizeTilt:
    """The whole fit: sizes, then item counts, then post-processing."""
    bins = size_bins(d)
    sizes, size_std = spending.release("sizes", size_histogram(batches, bins))
    histogram = cleaned_histogram(sizes, size_std)
    reached = (histogram.cumsum(0) >= _CLIP_QUANTILE).nonzero().flatten()
    clip = max(1, int(bins[min(int(reached[0]) + 1, len(bins) - 1)]))
    counts, item_std = spending.release("items", item_sums(batches, d, clip))
    records = max(1.0, float(sizes.sum()))
    return fit_size_tilt(histogram, bins, shrunken_counts(counts, item_std), clip=clip, records=records)
