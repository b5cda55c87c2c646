r"""Tilts that make samples agree with released marginals.

For bits b the tilted model is :math:`p'(b) \propto p(b) \exp(b^\top \Theta b)`: of all reweightings of p the one nearest to
it whose pairwise marginals are the released ones, up to their noise. Finding it and drawing from it is post-processing.
"""

import math

import torch
from torch import Tensor

from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.gaussian.sums import BORDER, Batches, Spending, gram_sums, symmetric, vector_sums

_ROUNDS = 60
_MOST = 4.0  # bound of |theta|: a weight ratio of e^4 per pair says "never" loudly enough


def marginal_sums(batches: Batches, d: int, *, k: int) -> BoundedSum:
    """Sizes and sums (k, d + 1) of the bits of every class.

    Bits minus 1/2 have norm exactly sqrt(d) / 2, so nothing is clipped; the record adds (a, 2 (x - 1/2) / sqrt d).
    """
    radius = math.sqrt(d) / 2.0

    def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        cluster = labels if k > 1 and labels is not None else torch.zeros(len(x), dtype=torch.int64, device=x.device)
        return (x - 0.5).div_(radius), cluster

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
        return (x - 0.5).div_(radius), torch.zeros(len(x), dtype=torch.int64, device=x.device)

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
