"""Noisy Gaussians of classes and of the sub-clusters that private k-means finds in them, cleaned up."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dpgen.privacy.exact_sums import BoundedSum, clipped, row_squares
from dpgen.systems.gaussian.model import Cleaned, LatentMixture, clean_covariance
from dpgen.systems.gaussian.sums import BORDER, Batches, Encode, Spending, gram_sums, spectral_noise, symmetric, vector_sums

_DETECTED = 4.0  # noise stds of a count below which a component is not told from an empty one
_SPREAD = 0.7  # initial centres are drawn from the class Gaussian, shrunk
ROUNDS = 4
"""Rounds of k-means; more make each round noisier, four were as good as any on the training splits."""

_BITS = 34  # of a product with a coordinate of 18 bits, in the 53 of float64
_STARVING = 3.0  # noise stds of a count below which a centre is not moved


@dataclass(frozen=True)
class Centres:
    """Released centres (k, s, m) of s sub-clusters of each of k classes, and their noisy sizes (k, s) a round earlier."""

    centres: Tensor
    counts: Tensor
    sum_std: float

    def assign(self, u: Tensor, classes: Tensor) -> Tensor:
        """Component (b,) = class * s + nearest centre of the class, for clipped coordinates u (b, m)."""
        s, m = self.centres.shape[1:]
        # Clipped coordinates lie on a grid; with centres on another one float64 products are exact, and ties fall the same
        # way in any batch.
        reach = max(float(self.centres.abs().max()) * m**0.5, 2.0**-20)
        grid = 2.0 ** (_BITS - math.ceil(math.log2(reach)))
        result = torch.empty(len(u), dtype=torch.int64, device=u.device)
        for c in classes.unique().tolist():
            chosen = classes == c
            centres = (self.centres[c].to(u.device) * grid).round() / grid
            # |u|^2 is the same for all centres of a record
            distances = row_squares(centres) - 2.0 * (u[chosen].double() @ centres.T)
            result[chosen] = c * s + distances.argmin(1)
        return result


def nearest(encode: Encode, centres: Centres) -> Encode:
    """Clipped coordinates, and the component of the nearest centre of the own class."""

    def assigned(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        u, classes = encode(x, labels)
        u = clipped(u)
        return u, centres.assign(u, classes)

    return assigned


def centre_sums(batches: Batches, encode: Encode, centres: Centres) -> BoundedSum:
    """(count, sum) of the records nearest to every centre of their own class, (k s, m + 1)."""
    k, s, m = centres.centres.shape
    return vector_sums(batches, nearest(encode, centres), k=k * s, m=m, border=BORDER)


def release_centres(batches: Batches, encode: Encode, initial: Tensor, *, spending: Spending, rounds: int = ROUNDS) -> Centres:
    """Lloyd's rounds with noisy (counts, sums) of every class at once, from released centres (k, s, m).

    One record is in one class, so a round is one Gaussian; "clusters" pays for all rounds together.
    """
    k, s, m = initial.shape
    found = Centres(initial.clone(), torch.zeros(k, s, dtype=torch.float64), 0.0)
    for _ in range(rounds):
        noisy, noise_std = spending.release("clusters", centre_sums(batches, encode, found), rounds)
        noisy = noisy.reshape(k, s, m + 1)
        counts = noisy[..., 0] / BORDER
        moved = noisy[..., 1:] / counts.clamp_min(1.0)[..., None]
        detected = counts > _STARVING * noise_std / BORDER
        found = Centres(torch.where(detected[..., None], moved, found.centres), counts, noise_std)
    return found


@dataclass(frozen=True)
class Components:
    """Released Gaussians: for draws and for densities, the class (k,) and noisy size (k,) of each, and what was pooled."""

    mixture: LatentMixture
    density: LatentMixture
    classes: Tensor
    counts: Tensor
    pooled: tuple[int, ...] = ()


@dataclass(frozen=True)
class Moments:
    """Noisy counts (k,), means (k, m), covariances (k, m, m), and the noise std of a diagonal entry of their sums."""

    counts: Tensor
    means: Tensor
    covariances: Tensor
    noise_std: float

    @property
    def detected(self) -> Tensor:
        """Whether a component has more records than noise would show, (k,)."""
        return self.counts > _DETECTED * self.noise_std / BORDER**2

    @property
    def edges(self) -> Tensor:
        """Largest eigenvalue (k,) that noise alone shows in each covariance."""
        return spectral_noise(self.means.shape[1], noise_std=self.noise_std) / self.counts.clamp_min(1.0)


def release_moments(batches: Batches, encode: Encode, *, k: int, m: int, name: str, spending: Spending) -> Moments:
    """One noisy (count, sum, second moment) matrix per cluster, one Gaussian mechanism for all of them."""
    values, noise_std = spending.release(name, gram_sums(batches, encode, k=k, m=m, border=BORDER))
    noisy = symmetric(values)
    counts = noisy[:, 0, 0] / BORDER**2
    safe = counts.clamp_min(1.0)
    means = noisy[:, 0, 1:] / BORDER / safe[:, None]
    covariances = noisy[:, 1:, 1:] / safe[:, None, None] - means[:, :, None] * means[:, None, :]
    return Moments(counts, means, covariances, noise_std)


def pooled(moments: Moments) -> Moments:
    """The moments of all components together: one component, of noise sqrt(k)."""
    weights = moments.counts.clamp_min(0.0)
    total = weights.sum().clamp_min(1.0)
    mean = (weights[:, None] * moments.means).sum(0) / total
    second = moments.covariances + moments.means[:, :, None] * moments.means[:, None, :]
    second = (weights[:, None, None] * second).sum(0) / total
    noise_std = moments.noise_std * len(weights) ** 0.5
    return Moments(total[None], mean[None], (second - torch.outer(mean, mean))[None], noise_std)


def shrunken(covariance: Tensor, target: Tensor, noise_std: float) -> Cleaned:
    """A noisy covariance (m, m) moved towards a steadier one, as far as noise explains their distance; for densities.

    A likelihood divides by eigenvalues: cutting them would make every record infinitely unlikely. They are kept above a tenth
    of the target's mean.

    Source: the shrinkage of Ledoit, Wolf 2004 with a known noise, noise_std on the diagonal and / sqrt 2 elsewhere.
    """
    m = len(covariance)
    noise = noise_std**2 * m * (m + 1) / 2.0
    weight = min(1.0, noise / max(float((covariance - target).square().sum()), 1e-300))
    values, vectors = torch.linalg.eigh((1.0 - weight) * covariance + weight * target)
    least = max(0.1 * float(target.trace()) / m, 1e-9)
    return Cleaned(values.clamp_min(least).flip(0), vectors.flip(1).contiguous(), least)


def _mixture(weights: Tensor, means: Tensor, covariances: list[Cleaned]) -> LatentMixture:
    return LatentMixture(
        weights=weights,
        means=means,
        vectors=torch.stack([c.vectors for c in covariances]),
        eigenvalues=torch.stack([c.eigenvalues for c in covariances]),
        rest=torch.tensor([c.rest for c in covariances], dtype=torch.float64),
    )


def mixture_of(moments: Moments, owners: Tensor, cut: float) -> Components:
    """Clean components; a class that is not detected takes the pooled Gaussian, a sub-cluster that is not detected is left out.

    `owners` are the classes (k,) of the components; eigenvalues below `cut` noise edges are cut.
    """
    detected, whole = moments.detected, pooled(moments)
    undetected = [c for c in range(int(owners.max()) + 1) if not bool(detected[owners == c].any())]
    own = [float(moments.counts[owners == c].sum().clamp_min(1.0)) for c in undetected]
    few = len(undetected)
    sizes = torch.cat([moments.counts[detected], torch.tensor(own, dtype=torch.float64)])
    classes = torch.cat([owners[detected], torch.tensor(undetected, dtype=torch.int64)])
    means = torch.cat([moments.means[detected], whole.means.expand(few, -1)])
    covariances = torch.cat([moments.covariances[detected], whole.covariances.expand(few, -1, -1)])
    edges = torch.cat([moments.edges[detected], whole.edges.expand(few)]).tolist()
    weights = sizes / sizes.sum()
    # The spread inside components, not between them, is what a component is likely to have.
    target = torch.einsum("k,kij->ij", weights, covariances)
    cleaned = [clean_covariance(one, cut * edge) for one, edge in zip(covariances, edges)]
    dense = [shrunken(one, target, edge / math.sqrt(2.0 * len(target))) for one, edge in zip(covariances, edges)]
    mixture, density = (_mixture(weights, means, kind) for kind in (cleaned, dense))
    return Components(mixture, density, classes, sizes, tuple(undetected))


def _initial_centres(classes: Components, s: int, generator: torch.Generator) -> Tensor:
    """s centres (k, s, m) of each class, drawn from its released Gaussian with public randomness."""
    mixture, result = classes.mixture, []
    for j in classes.classes.argsort().tolist():
        result.append(mixture.means[j] + _SPREAD * (mixture.draw(j, s, generator).double() - mixture.means[j]))
    return torch.stack(result)


def release_components(
    batches: Batches,
    encode: Encode,
    *,
    k: int,
    m: int,
    subclusters: int,
    cut: float,
    spending: Spending,
    generator: torch.Generator,
) -> Components:
    """Gaussians of k classes with `subclusters` each, from one to six passes over the records.

    `encode` gives (coordinates (b, m), class (b,)). "components" pays, or "classes", "clusters" and "components".
    """
    if subclusters == 1:
        moments = release_moments(batches, encode, k=k, m=m, name="components", spending=spending)
        return mixture_of(moments, torch.arange(k), cut)
    classes = release_moments(batches, encode, k=k, m=m, name="classes", spending=spending)
    start = _initial_centres(mixture_of(classes, torch.arange(k), cut), subclusters, generator)
    centres = release_centres(batches, encode, start, spending=spending)
    moments = release_moments(batches, nearest(encode, centres), k=k * subclusters, m=m, name="components", spending=spending)
    return mixture_of(moments, torch.arange(k).repeat_interleave(subclusters), cut)
