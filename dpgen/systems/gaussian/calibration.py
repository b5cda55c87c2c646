r"""Tilts that make samples agree with released marginals and with released sizes of sets.

**Pairs of bits.** For bits b the tilted model is :math:`p'(b) \propto p(b) \exp(b^\top \Theta b)`: of all reweightings of p
the one nearest to it whose pairwise marginals are the released ones, up to their noise. Finding it and drawing from it is
post-processing.

**Sizes of sparse sets**, in closed form: independent items given the size of the set,

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
from dpgen.systems.gaussian.sums import BORDER, Batches, Spending, gram_sums, symmetric, vector_sums

# -- marginal calibration ----------------------------------------------------------------------------------------------

_ROUNDS = 60
_MOST = 4.0  # bound of |theta|: a weight ratio of e^4 per pair says "never" loudly enough


def marginal_sums(batches: Batches, d: int, *, k: int) -> BoundedSum:
    """Sizes and sums (k, d + 1) of the bits of every class.

    Bits minus 1/2 have norm exactly sqrt(d) / 2, so nothing is clipped; the record adds (a, 2 (x - 1/2) / sqrt d).
    """
    radius = math.sqrt(d) / 2.0

    def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        cluster = labels if k > 1 and labels is not None else torch.zeros(len(x), dtype=torch.int64, device=x.device)
        return (x - 0.5) / radius, cluster

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
        return (x - 0.5) / radius, torch.zeros(len(x), dtype=torch.int64, device=x.device)

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

    The last term leaves a pair wrong by s |theta|, so that noise of std s is not fitted.

    Arguments:
        bits: public samples (n, d) of the model.
        pairs: released pairwise frequencies (d, d).
        noise_std: s, std of an entry's noise, above 0.

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
    """Positions (n,) among candidate rows, drawn with repeats in proportion to exp(b^T Theta b).

    Source: sampling-importance-resampling (Rubin 1987).
    """
    weights = torch.softmax(pair_scores(bits, tilt), 0)
    return torch.multinomial(weights, n, replacement=True, generator=generator)


# -- size tilt ---------------------------------------------------------------------------------------------------------

SHARES = {"sizes": 0.1, "items": 0.9}
"""Shares of mu^2 of the two releases."""

_CLIP_QUANTILE = 0.8
_GRID = 2.0**24
_GROWTH = 1.2  # of the bins of sizes; those up to 8 have width 1
_LEVEL_GROWTH = 1.35


@dataclass(frozen=True)
class _SizeTilt:
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
    detected = (tails > 3.0 * noise_std * left.sqrt()).nonzero().flatten()
    end = int(detected[-1]) + 1 if len(detected) else 1
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


def fit_size_tilt(histogram: Tensor, bins: Tensor, counts: Tensor, *, clip: float, records: float) -> _SizeTilt:
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
    return _SizeTilt(weights, p, records)


def _deconvolved(weights: Tensor, kernel: Tensor, histogram: Tensor) -> Tensor:
    for _ in range(100):  # EM for the weights of a known kernel
        weights = weights * (kernel @ (histogram / (weights @ kernel).clamp_min(1e-15)))
        weights = weights / weights.sum()
    return weights


def release_size_tilt(batches: Batches, d: int, *, spending: Spending) -> _SizeTilt:
    """The whole fit: sizes, then item counts, then post-processing."""
    bins = size_bins(d)
    sizes, size_std = spending.release("sizes", size_histogram(batches, bins))
    histogram = cleaned_histogram(sizes, size_std)
    reached = (histogram.cumsum(0) >= _CLIP_QUANTILE).nonzero().flatten()
    clip = max(1, int(bins[min(int(reached[0]) + 1, len(bins) - 1)]))
    counts, item_std = spending.release("items", item_sums(batches, d, clip))
    records = max(1.0, float(sizes.sum()))
    return fit_size_tilt(histogram, bins, shrunken_counts(counts, item_std), clip=clip, records=records)
