r"""Private records as a stream, their exact sums in one pass, and the private releases of Gaussians on principal axes.

Each release adds up records, pays a share of 1 / s^2 of the fit's one Gaussian (`GaussianBudget`), and cleans up what it gets.

A record with clipped vector u, |u| <= 1, adds :math:`v v^\top` with :math:`v = (a, u)` to the matrix of its cluster: the
count (times :math:`a^2`), the sum (times a) and the second moment at once. All :math:`(m + 1)^2` entries are one vector of
L2 norm :math:`|v v^\top|_F = |v|^2`, get independent noise, and are averaged with their mirror images afterwards: an
off-diagonal entry ends with half the variance of a diagonal one. `gram_sums` and `vector_sums` have the sensitivities.

Claiming 1 for the Gram matrix (the second moment alone), or noise on one triangle that is copied to the other, are the usual
mistakes; the audit of the tests rejects them.

The sums are exact (`privacy.exact_sums`): a record's vector depends on that record alone and is cut towards zero to a grid,
products of grid values are exact in float64, and batches are added in int64. Borders are rounded to the same grid.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dpgen.privacy.curator import GaussianBudget
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
from dpgen.systems.gaussian.model import Components, LatentMixture, Subspace
from dpgen.systems.gaussian.plan import Sizes
from dpgen.systems.kmeans.fit import NORM, Centres, update_centres
from dpgen.systems.marginals.fit import bit_probabilities, bit_sums

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
    if n_classes:
        _require_labels(labels, len(x), n_classes)
    return x, labels if n_classes else None


def _require_labels(labels: Tensor | None, n: int, n_classes: int) -> None:
    if labels is None or labels.shape != (n,):
        raise ValueError(f"labels must have shape ({n},), got {None if labels is None else tuple(labels.shape)}")
    if n and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise ValueError(f"labels must be in [0, {n_classes}), got [{int(labels.min())}, {int(labels.max())}]")


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
    "sizes": "histogram of record sizes",
    "items": "item counts",
    "frequent": "conjunctions of frequent items, and how many others sets hold",
    "images": "count, mean and second moments of the frequencies of every class",
}
"""Every release of a Gaussian fit, by the name of its share, and what the ledger calls it."""


# -- first moments -----------------------------------------------------------------------------------------------------

MEAN_BORDER = MEAN_SQUARE = 0.3
"""Weights of the count and of the squared norm beside the first mean."""


@dataclass(frozen=True)
class Location:
    """Noisy number of records, at least 1; mean (d,) clamped to [0, 1]; mean of |x - mean|^2, above 0."""

    count: float
    mean: Tensor
    spread: float


def centred(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Records in [0, 1]^d around the middle of the cube, in units of its half diagonal: nothing is clipped."""
    return (x - 0.5).div_(math.sqrt(x.shape[1]) / 2.0), one_class(x)


def location_sums(batches: Batches, d: int) -> BoundedSum:
    """Count, sum and sum of squares of `centred` records."""
    return vector_sums(batches, centred, k=1, m=d, border=MEAN_BORDER, square=MEAN_SQUARE)


def release_location(batches: Batches, d: int, *, budget: GaussianBudget, share: float) -> Location:
    """Count, mean and mean square from noisy `location_sums`."""
    radius = math.sqrt(d) / 2.0
    [noisy], noise_std = budget.sums(NOTES["mean"], location_sums(batches, d), share)
    count = max(1.0, float(noisy[0]) / MEAN_BORDER)
    mean = noisy[1:-1] * radius / count
    # E|x - m~|^2 = E|x - c|^2 - |m~ - c|^2 + 2 E|noise|^2: the noise of the mean is known and taken into account
    square = float(noisy[-1]) / MEAN_SQUARE * radius**2 / count
    noise = d * (noise_std * radius / count) ** 2
    spread = square - float(mean.square().sum()) + 2.0 * noise
    return Location(count, (mean + 0.5).clamp(0.0, 1.0), min(max(spread, 1e-3 * radius**2), radius**2))


# -- axes --------------------------------------------------------------------------------------------------------------

_POWER = 0.5
_LEAST_EIGENVALUE = 0.3  # in units of the noise edge: an axis below cannot be told from noise and is not magnified more


def spectral_noise(m: int, noise_std: float) -> float:
    """About the largest eigenvalue of the noise on a second moment (m, m), for `noise_std` of a diagonal entry."""
    return noise_std * math.sqrt(2.0 * m)


def centred_moments(batches: Batches, location: Location, clip: float) -> BoundedSum:
    """Second moment (1, d, d) of clip(x - mean), in units of clip^2."""

    def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        return (x - location.mean.to(x)).div_(clip), one_class(x)

    return gram_sums(batches, encode, k=1, m=len(location.mean), border=0.0)


def release_subspace(
    batches: Batches,
    location: Location,
    *,
    axes: int,
    radius: float,
    clip: float,
    budget: GaussianBudget,
    share: float,
    within: Tensor | None = None,
) -> Subspace:
    r"""Eigenvectors of the noisy second moment of clip(x - mean) (DP-PCA by the Gaussian mechanism).

    With `within`, orthonormal public rows B (r, d), they are those of :math:`B M B^\top`, whose noise is that of a matrix of r
    rows: its largest eigenvalue falls with the root of r / d, and only what B leaves out of the signal is lost.

    Axis i gets the scale :math:`R \lambda_i^{p/2}`, with :math:`R^2 = r^2 \sum_i s_i \lambda_i^{-p}` and s the eigenvalues
    without noise: p = 0 keeps distances, p = 1 whitens; p = 1/2 spreads the noise of the moments best. R is r = `radius` times
    the root mean square norm of the projected records according to released eigenvalues: clipping looks at no record.

    Source: Dwork, Talwar, Thakurta, Zhang 2014 ("Analyze Gauss"), Algorithm 1.
    """
    noisy, noise_std = budget.sums(NOTES["subspace"], centred_moments(batches, location, clip), share)
    unit = clip**2 / location.count
    moments = symmetric(noisy)[0] * unit
    if within is not None:
        moments = within @ moments @ within.T
    values, vectors = torch.linalg.eigh(moments)
    edge = spectral_noise(len(moments), noise_std * unit)
    values, vectors = values.flip(0)[:axes], vectors.flip(1)[:, :axes]
    if within is not None:
        vectors = within.T @ vectors
    safe = values.clamp_min(_LEAST_EIGENVALUE * edge)
    # A spike s shows up at s + (edge / 2)^2 / s (Benaych-Georges, Nadakuditi 2011); its size without noise sets the radius.
    spikes = (safe + (safe.square() - edge**2).clamp_min(0.0).sqrt()) / 2.0
    scales = safe.pow(_POWER / 2.0) * radius * float((spikes * safe.pow(-_POWER)).sum()) ** 0.5
    return Subspace(location.mean, vectors.contiguous(), scales, edge, values)


# -- k-means inside classes --------------------------------------------------------------------------------------------

ROUNDS = 4
"""Rounds of k-means; more make each round noisier, four were as good as any on the training splits."""

_SPREAD = 0.7  # initial centres are drawn from the class Gaussian, shrunk
_STARVING = 3.0  # noise stds of a count below which a centre is not moved


def nearest(encode: Encode, centres: Tensor) -> Encode:
    """Clipped coordinates, and component class * s + nearest of the s centres of the own class, for centres (k, s, m)."""

    def assigned(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        u, classes = encode(x, labels)
        u = clipped(u)
        component = classes * centres.shape[1]
        for c in classes.unique().tolist():
            own = classes == c
            component[own] += Centres.cut(centres[c].to(u.device), 1.0).nearest(u[own].double() * NORM)
        return u, component

    return assigned


def centre_sums(batches: Batches, encode: Encode, centres: Tensor) -> BoundedSum:
    """(count, sum) of the records nearest to every centre of their own class, (k s, m + 1), for centres (k, s, m)."""
    k, s, m = centres.shape
    return vector_sums(batches, nearest(encode, centres), k=k * s, m=m, border=BORDER)


def release_centres(
    batches: Batches, encode: Encode, centres: Tensor, *, budget: GaussianBudget, share: float, rounds: int = ROUNDS
) -> Tensor:
    """Lloyd's rounds with noisy (counts, sums) of every class at once, from released centres (k, s, m).

    One record is in one class, so a round is one Gaussian.
    """
    for _ in range(rounds):
        noisy, std = budget.sums(NOTES["clusters"], centre_sums(batches, encode, centres), share / rounds)
        counts, floor = noisy[:, 0] / BORDER, _STARVING * std / BORDER
        moved = update_centres(centres.flatten(0, 1), counts, noisy[:, 1:], sum_std=std, floor=floor, shrink=False)
        centres = moved.reshape(centres.shape)
    return centres


# -- components --------------------------------------------------------------------------------------------------------

_DETECTED = 4.0  # noise stds of a count below which a component is not told from an empty one


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
        return spectral_noise(self.means.shape[1], self.noise_std) / self.counts.clamp_min(1.0)


def release_moments(
    batches: Batches, encode: Encode, *, k: int, m: int, note: str, budget: GaussianBudget, share: float
) -> Moments:
    """One noisy (count, sum, second moment) matrix per cluster, one Gaussian mechanism for all of them."""
    values, noise_std = budget.sums(note, gram_sums(batches, encode, k=k, m=m, border=BORDER), share)
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


Cleaned = tuple[Tensor, Tensor, float]
"""Eigenvalues after clean-up (m,), falling, their vectors (m, m), and what stands for those that were cut."""


def clean_covariance(covariance: Tensor, edge: float) -> Cleaned:
    """Keep the eigenvalues of a noisy covariance (m, m) above `edge`, the largest that noise alone would show.

    The mean of the others is nearly free of noise; it is at least a thousandth of `edge` or 1e-9.
    """
    values, vectors = torch.linalg.eigh(covariance)
    values, vectors = values.flip(0), vectors.flip(1)
    kept = values > edge
    cut = values[~kept]
    rest = max(float(cut.mean()) if len(cut) else 0.0, 1e-3 * edge, 1e-9)
    return torch.where(kept, values, 0.0), vectors.contiguous(), rest


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
    return values.clamp_min(least).flip(0), vectors.flip(1).contiguous(), least


def _mixture(weights: Tensor, means: Tensor, covariances: list[Cleaned]) -> LatentMixture:
    eigenvalues, vectors, rest = zip(*covariances)
    rests = torch.tensor(rest, dtype=torch.float64)
    return LatentMixture(weights, means, torch.stack(vectors), torch.stack(eigenvalues), rests)


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


def release_components(
    batches: Batches,
    encode: Encode,
    *,
    k: int,
    sizes: Sizes,
    cut: float,
    budget: GaussianBudget,
    shares: Mapping[str, float],
    generator: torch.Generator,
) -> Components:
    """Gaussians of k classes with `sizes.subclusters` each on `sizes.axes` axes, from one to six passes over the records.

    `encode` gives (coordinates (b, m), class (b,)). "components" pays, or "classes", "clusters" and "components".
    """

    def moments(name: str, encode: Encode, k: int) -> Moments:
        return release_moments(batches, encode, k=k, m=sizes.axes, note=NOTES[name], budget=budget, share=shares[name])

    if sizes.subclusters == 1:
        return mixture_of(moments("components", encode, k), torch.arange(k), cut)
    classes = mixture_of(moments("classes", encode, k), torch.arange(k), cut)
    mixture, starts = classes.mixture, []
    for j in classes.classes.argsort().tolist():  # drawn from the released Gaussian of each class with public randomness
        drawn = mixture.draw(j, sizes.subclusters, generator).double()
        starts.append(mixture.means[j] + _SPREAD * (drawn - mixture.means[j]))
    centres = release_centres(batches, encode, torch.stack(starts), budget=budget, share=shares["clusters"])
    found = moments("components", nearest(encode, centres), k * sizes.subclusters)
    return mixture_of(found, torch.arange(k).repeat_interleave(sizes.subclusters), cut)


# -- bits --------------------------------------------------------------------------------------------------------------


def marginal_sums(batches: Batches, d: int, *, k: int) -> BoundedSum:
    """Sizes and sums (k, d + 1) of the bits of every class, see `bit_sums`."""

    def rows(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        return x > 0.5, labels if k > 1 and labels is not None else one_class(x)

    return bit_sums(Each(batches, rows), d, k)


def release_marginals(batches: Batches, d: int, *, k: int, budget: GaussianBudget, share: float) -> tuple[Tensor, Tensor]:
    """Noisy sizes (k,) and frequencies of ones (k, d) in [0, 1] of every class of binary records."""
    noisy, _ = budget.sums(NOTES["marginals"], marginal_sums(batches, d, k=k), share)
    frequencies, counts = bit_probabilities(noisy)
    return counts, frequencies
