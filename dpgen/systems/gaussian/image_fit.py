r"""A Gaussian for each class of images, grey or in colour: one noisy release of exact sums, cleaned up.

An image of class c with log-radii L, even directions e and odd directions o (`frequencies`) adds :math:`v v^\top` with
:math:`v = (a, L, \mathrm{clip}_A(e))` to one matrix of its class and :math:`o o^\top` with :math:`\mathrm{clip}_B(o)` to
another. The mirror image has -o, so these are, up to what is 0 by symmetry, the moments of the image and its mirror image
together, at the price of one image:

| relation | sensitivity of both matrices of all classes |
|---|---|
| add/remove | :math:`\Delta = \sqrt{(a^2 + \ell + A)^2 + B^2}`, :math:`\ell` the largest :math:`\|L\|^2` |
| replace-one | :math:`\sqrt 2 \Delta`: records of two classes, or orthogonal ones |

It is reached: :math:`A + B < 1`, so both clips bind for some image. Claiming that of one image's own matrix,
:math:`a^2 + \ell + A + B`, and releasing image and mirror image would need twice the noise; forgetting the odd matrix is the
usual mistake.

**Clean-up** looks at released values only. The pool of all classes is denoised in frequency space, where natural images are
nearly uncorrelated: correlations are shrunk towards 0 by :math:`s^2 / (s^2 + v)` per band of frequencies, v the known
variance of the noise and :math:`s^2` what is left of their mean square; eigenvalues within the noise become their mean. In the
coordinates in which the pool is white, differences of classes from the pool are shrunk in the same manner, bands being ranks
of eigenvalues, and means likewise. Eigenvalues w < 1 of a class in these coordinates become :math:`1 / (2 - w)`, above 0.

Source: shrinkage with a known noise as in Ledoit, Wolf 2004; the band-wise mean square is James, Stein 1961.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from dpgen.facts import Fact, Said
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import GRAM_GRID, MOST_RECORDS, BoundedSum, clipped, whole
from dpgen.statement import PrivacyStatement
from dpgen.systems.gaussian.images import Frequencies, GaussianImages
from dpgen.systems.gaussian.plan import GaussianConfig
from dpgen.systems.gaussian.sums import Noisy, Spending, gram, members, symmetric
from dpgen.systems.plan import PrivateImages

if TYPE_CHECKING:
    from dpgen.privacy.ledger import Budget

BORDER = math.sqrt(0.1)
EVEN, ODD = 0.6, 0.3
"""Largest squares A and B of the clipped directions; without mirror images the even ones are all, and A is 1."""

FACTS = (Fact.ONE_IMAGE, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.EXACT_SUMS(record="image"), Fact.EXACT_INTEGERS)
"""Facts of the statement of a fit to images."""

_AT_ONCE = 8192
_BANDS = 6
_POOL_BANDS = 4
_CUT = 0.5
_CAUTION = 1.5  # differences are shrunk as if they were so much noisier: classes share most of what they are
_DETECTED = 4.0  # noise stds of a count below which a class is not told from an empty one

# -- sums --------------------------------------------------------------------------------------------------------------


def even_bound(map: Frequencies) -> float:
    """A of this map."""
    return EVEN if map.odd_size else 1.0


def image_sums(x: Tensor, labels: Tensor, map: Frequencies, *, k: int, device: str = "cpu") -> BoundedSum:
    """The even matrices (k, 1 + p, 1 + p) and the odd ones (k, q, q) of all classes, as one vector.

    Images (n, h, w, c) are uint8, labels (n,) in [0, k); `map` has p even coordinates and q odd ones.
    """
    if len(x) > MOST_RECORDS:
        raise ValueError(f"x has {len(x)} images; it must have at most {MOST_RECORDS}, whose sums fit int64")
    border = math.trunc(BORDER * GRAM_GRID) / GRAM_GRID
    totals = [torch.zeros(k, size, size, dtype=torch.int64) for size in (1 + map.even_size, map.odd_size)]
    for images, classes in zip(x.split(_AT_ONCE), labels.split(_AT_ONCE)):
        rows = _rows(images.to(device), map, border)
        for total, part in zip(totals, rows):
            for c, own in members(part, classes.to(device), k):
                total[c] += whole(gram(own), GRAM_GRID**2)
    even = border**2 + map.log_radius_square + even_bound(map)
    sensitivity = math.hypot(even, ODD if map.odd_size else 0.0)
    return BoundedSum(
        torch.cat([total.flatten() for total in totals]),
        sensitivity,
        "v v^T of frequencies",
        replaced=math.sqrt(2.0) * sensitivity,
        step=GRAM_GRID**-2,
    )


def _rows(images: Tensor, map: Frequencies, border: float) -> tuple[Tensor, Tensor]:
    """(a, L, clipped even directions) and the clipped odd directions (b, .), on the grid."""
    logs, even, odd = map.encode(images)
    logs = (logs * GRAM_GRID).trunc_() / GRAM_GRID
    count = torch.full((len(logs), 1), border, dtype=torch.float64, device=logs.device)
    even = clipped(even, most=math.sqrt(even_bound(map)))
    return torch.cat([count, logs, even], 1), clipped(odd, most=math.sqrt(ODD))


# -- clean-up ----------------------------------------------------------------------------------------------------------


class Moments(NamedTuple):
    """Noisy counts (k,), means (k, p), even and odd covariances of the classes, and the noise std of a diagonal of sums."""

    counts: Tensor
    means: Tensor
    even: Tensor
    odd: Tensor
    noise_std: float

    @classmethod
    def of(cls, noisy: Noisy, map: Frequencies, k: int) -> Moments:
        """Those of noisy `image_sums`."""
        p = 1 + map.even_size
        even, odd = noisy.values[: k * p * p].reshape(k, p, p), noisy.values[k * p * p :].reshape(k, map.odd_size, map.odd_size)
        even, odd = symmetric(even), symmetric(odd)
        counts = even[:, 0, 0] / BORDER**2
        safe = counts.clamp_min(1.0)[:, None]
        means = even[:, 0, 1:] / (BORDER * safe)
        covariances = even[:, 1:, 1:] / safe[..., None] - means[:, :, None] * means[:, None, :]
        return cls(counts, means, covariances, odd / safe[..., None], noisy.noise_std)

    @property
    def detected(self) -> Tensor:
        """Whether a class has more images than noise would show, (k,)."""
        return self.counts > _DETECTED * self.noise_std / BORDER**2


class Cleaned(NamedTuple):
    """Means (k, p) and positive definite covariances of the classes."""

    means: Tensor
    even: Tensor
    odd: Tensor


def cleaned(moments: Moments) -> Cleaned:
    """Denoised moments of all classes; those that are not detected have the pool's, and without any there is a public prior."""
    found = moments.detected
    k, p = moments.means.shape
    if not bool(found.any()):
        priors = [torch.eye(m).double().expand(k, m, m) / (p + moments.odd.shape[1]) for m in (p, moments.odd.shape[1])]
        return Cleaned(torch.zeros(k, p).double(), *(prior.clone() for prior in priors))
    counts, means = moments.counts[found], moments.means[found]
    noise_std = moments.noise_std / math.sqrt(2.0)  # of an entry off the diagonal
    even, basis, back = _cleaned_covariances(moments.even[found], counts, noise_std)
    odd = _cleaned_covariances(moments.odd[found], counts, noise_std)[0]
    centre = (counts / counts.sum()) @ means
    variances = (noise_std / (BORDER * counts))[:, None] ** 2 / back.square().sum(0) + 1.0 / counts[:, None]
    differences = _shrunken((means - centre) @ basis, variances, _bands(p, _BANDS))
    results = Cleaned(centre + differences @ back.T, even, odd)
    return Cleaned(*(_with_pool(values, counts, found) for values in results))


def _with_pool(values: Tensor, counts: Tensor, found: Tensor) -> Tensor:
    """Values of the classes that were found, and the mean of these for every other class."""
    mean = torch.einsum("k,k...->...", counts / counts.sum(), values)
    result = mean.expand(len(found), *mean.shape).clone()
    result[found] = values
    return result


def _cleaned_covariances(noisy: Tensor, counts: Tensor, noise_std: float) -> tuple[Tensor, Tensor, Tensor]:
    """Clean covariances (k, d, d), and the maps from and to coordinates (columns) in which their pool is white."""
    k, d, _ = noisy.shape
    eye = torch.eye(d, dtype=torch.float64)
    if not d:
        return noisy, eye, eye
    pool = torch.einsum("k,kij->ij", counts / counts.sum(), noisy)
    values, vectors = _cleaned_pool(pool, noise_std * math.sqrt(k) / float(counts.sum()))
    basis, back = vectors / values.sqrt(), vectors * values.sqrt()
    scale = values[:, None] * values
    variances = ((noise_std / counts)[:, None, None] ** 2 / scale + 1.0 / counts[:, None, None]) * (1.0 + eye)
    differences = _shrunken(basis.T @ (noisy - pool) @ basis, variances, _pairs(_bands(d, _BANDS)), caution=_CAUTION)
    w, turned = torch.linalg.eigh(differences + eye)
    w = torch.where(w < 1.0, 1.0 / (2.0 - w), w)
    white = (turned * w[:, None, :]) @ turned.transpose(1, 2)
    return back @ white @ back.T, basis, back


def _cleaned_pool(pool: Tensor, noise_std: float) -> tuple[Tensor, Tensor]:
    """Eigenvalues, falling, and eigenvectors of a noisy covariance (d, d) whose entries off the diagonal have this noise."""
    d = len(pool)
    edge = _CUT * 2.0 * noise_std * math.sqrt(d)  # of the semicircle
    scale = pool.diagonal().clamp_min(max(edge, 1e-9)).sqrt()
    product = scale[:, None] * scale
    correlations = (pool - torch.diag(pool.diagonal())) / product
    pairs = _pairs(_bands(d, _POOL_BANDS)).masked_fill(torch.eye(d, dtype=torch.bool), -1)
    correlations = _shrunken(correlations[None], (noise_std / product)[None] ** 2, pairs)[0]
    values, vectors = torch.linalg.eigh(correlations * product + torch.diag(scale.square()))
    values, vectors = values.flip(0), vectors.flip(1)
    low = values < max(edge, 1e-9)
    if bool(low.any()):
        values = torch.where(low, values[low].mean().clamp_min(max(0.1 * edge, 1e-9)), values)
    return values, vectors


def _bands(d: int, bands: int) -> Tensor:
    """Band (d,) of each of d ranks."""
    return torch.arange(d) * bands // max(1, d)


def _pairs(band: Tensor) -> Tensor:
    """Band (d, d) of every pair of ranks."""
    return band[:, None] * (int(band.max()) + 1) + band


def _shrunken(values: Tensor, variances: Tensor, band: Tensor, *, caution: float = 1.0) -> Tensor:
    """Values (k, ...) times s^2 / (s^2 + v), s^2 their mean square in a band less that of their noise; 0 in band -1."""
    result = torch.zeros_like(values)
    for b in band.unique().tolist():
        if b < 0:
            continue
        own = band == b
        v = variances[:, own]
        signal = (values[:, own].square() - v).mean().clamp_min(0.0)
        result[:, own] = values[:, own] * signal / (signal + caution * v).clamp_min(1e-300)
    return result


# -- fit ---------------------------------------------------------------------------------------------------------------


def fit_images(data: PrivateImages, config: GaussianConfig, *, budget: Budget, curator: Curator, device: str) -> GaussianImages:
    """Spend the budget on one release of the sums of all classes, and clean it up."""
    map = Frequencies(tuple(data.x.shape[1:]), config.frequencies, config.mirror)  # type: ignore[arg-type]
    spending = Spending(curator, budget, {"images": 1.0})
    k = data.n_classes
    sums = image_sums(data.x, data.labels, map, k=k, device=device)
    moments = Moments.of(spending.release("images", sums), map, k)
    declared = tuple(_declared(moments))
    return GaussianImages(
        map,
        *cleaned(moments),
        counts=moments.counts,
        class_names=data.class_names,
        statement=PrivacyStatement.from_ledger(curator.ledger, facts=(*FACTS, *declared)),
        declared=[fact.sentence for fact in declared],
    )


def _declared(moments: Moments) -> Iterator[Said]:
    """Fallbacks, which depend on released values alone."""
    found = moments.detected
    if not bool(found.any()):
        yield Fact.NOT_FITTED()
    elif not bool(found.all()):
        names = ", ".join(map(str, (~found).nonzero().flatten().tolist()))
        yield Fact.POOLED_CLASSES(classes=names, records="images")
