r"""Gaussians of the classes of images, grey or in colour: a public map, one noisy release of exact sums, cleaned up.

**The map** takes images to frequencies, in blocks, as directions with radii:

1. **Colours.** Opponent channels, orthonormal: luma :math:`(1, 1, 1) / \sqrt 3`, chroma :math:`(1, 0, -1) / \sqrt 2` and
   :math:`(1, -2, 1) / \sqrt 6` of red, green, blue; a grey image is its own luma.
2. **Frequencies.** The orthonormal cosine transform of each channel over :math:`\sqrt{h w}`, so that coefficients do not
   depend on the resolution. Of frequency (i, j), :math:`f = s \sqrt{(i / h)^2 + (j / w)^2}` with :math:`s = \sqrt{h w}`, the K
   lowest of luma and the .4 K lowest of each chroma are kept. Natural images have about the same energy in every octave, so
   :math:`u = g (1 + f)` times the coefficient is about equally large in all of them; g is 1, 4 and 6 for the channels.
3. **Blocks.** With :math:`R = \sqrt{4 K / \pi}`, the radius of the kept quarter disc: luma up to R/5, up to R/2, and the rest;
   both chroma up to R/5, and the rest. Of a block of m coefficients :math:`r = |u|` is the radius and
   :math:`z = \kappa u / r` the direction, :math:`\kappa^2 \propto \sqrt m` with :math:`\sum \kappa^2 = 1` over the blocks.
   :math:`L = .1 \ln(r / (.14 \sqrt m))`, within :math:`\pm .12`, is the log-radius. Images have heavy tails, which so are in
   the radii; directions have norm at most 1 whatever the image.
4. **Mirror images.** A coefficient of odd horizontal frequency changes its sign, everything else stays: (L, even z) and
   odd z are kept apart.

All constants are public. They were chosen on CIFAR-10 with the accuracy on a training split in view, which no budget covers.
What an image gives depends on that image alone, bit for bit: pixels and weights are whole numbers whose products and sums
float64 holds exactly, log-radii are found by comparison, and the rest is arithmetic that IEEE 754 rounds by itself.

**The release.** An image of class c with log-radii L, even directions e and odd directions o adds :math:`v v^\top` with
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from dpgen.facts import Fact, Said
from dpgen.nets.cosines import cosines, frequencies
from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import GRAM_GRID, MOST_RECORDS, BoundedSum, clipped, row_squares, whole
from dpgen.release import ImageModel, RandomState, draw_components, sampling_generator
from dpgen.samples import ImageSamples
from dpgen.statement import PrivacyStatement
from dpgen.systems.gaussian.plan import GaussianConfig
from dpgen.systems.gaussian.releases import NOTES, gram, members, symmetric

# -- the map -----------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from dpgen.data import Images

CHROMA_SHARE = 0.4
_GAINS = (1.0, 4.0, 6.0)
_LEVEL = 0.14
_LEVELS = 120  # steps of L to either side of 0
_MOST_LOG_RADIUS = 0.12
_LEAST_RADIUS = 2.0**-15
_DECAY = (0.4, 1.5)  # of texture above the kept frequencies, luma and chroma
_OPPONENT = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]], dtype=torch.float64)
_AT_ONCE = 1024


@dataclass(frozen=True)
class Frequencies:
    """The map of images of one shape.

    >>> map = Frequencies((32, 32, 3), 100)
    >>> [int(m) for m in map.block_sizes], map.even_size, map.odd_size
    ([8, 22, 70, 16, 64], 102, 83)
    """

    shape: tuple[int, int, int]  # height, width, 1 or 3 channels
    luma: int = 100  # K, frequencies of luma that are kept; at most half of all
    mirror: bool = True  # whether mirror images count as well; otherwise no coordinate is odd

    @cached_property
    def _grid(self) -> Tensor:
        """f of all frequencies (h * w,)."""
        return frequencies(*self.shape[:2])

    @cached_property
    def kept(self) -> tuple[Tensor, ...]:
        """Positions in [0, h * w) of the kept frequencies of each channel."""
        order = self._grid.sort(stable=True).indices
        most = max(1, len(order) // 2)
        sizes = (self.luma, *(round(CHROMA_SHARE * self.luma),) * 2)[: self.shape[2]]
        return tuple(order[: max(1, min(size, most))] for size in sizes)

    @cached_property
    def _f(self) -> Tensor:
        return torch.cat([self._grid[kept] for kept in self.kept])

    @cached_property
    def channel(self) -> Tensor:
        """Channel of every kept coefficient."""
        return torch.cat([torch.full((len(kept),), c) for c, kept in enumerate(self.kept)])

    @cached_property
    def block(self) -> Tensor:
        """Block of every kept coefficient."""
        radius = math.sqrt(4.0 * len(self.kept[0]) / math.pi)
        luma = (self._f > radius / 5).long() + (self._f > radius / 2).long()
        block = torch.where(self.channel == 0, luma, 3 + (self._f > radius / 5).long())
        return block.unique(return_inverse=True)[1]

    @cached_property
    def block_sizes(self) -> Tensor:
        """m of every block."""
        return torch.bincount(self.block).double()

    @cached_property
    def odd(self) -> Tensor:
        """Whether a coefficient changes its sign in the mirror."""
        return (torch.cat(self.kept) % self.shape[1] % 2 == 1) & self.mirror

    @property
    def even_size(self) -> int:
        """Log-radii and even coordinates."""
        return len(self.block_sizes) + int((~self.odd).sum())

    @property
    def odd_size(self) -> int:
        """Odd coordinates."""
        return int(self.odd.sum())

    @property
    def log_radius_square(self) -> float:
        """The largest sum of the squares of an image's log-radii."""
        return len(self.block_sizes) * _MOST_LOG_RADIUS**2

    @cached_property
    def _kappa(self) -> Tensor:
        root = self.block_sizes.sqrt()
        return (root / root.sum()).sqrt()

    @cached_property
    def _scale(self) -> Tensor:
        """g (1 + f) of every kept coefficient."""
        return torch.tensor(_GAINS, dtype=torch.float64)[self.channel] * (1.0 + self._f)

    # -- images to coordinates ---------------------------------------------------------------------------------------

    @cached_property
    def _weights(self) -> list[tuple[Tensor, float]]:
        """Per channel whole numbers (h * w, kept) that make u of whole opponent pixels, and their step."""
        height, width, _ = self.shape
        result = []
        for c, kept in enumerate(self.kept):
            rows, columns = cosines(height)[kept // width], cosines(width)[kept % width]
            basis = (rows[:, :, None] * columns[:, None, :]).flatten(1) * self._scale[self.channel == c][:, None]
            norm = 1.0 if self.shape[2] == 1 else float(_OPPONENT[c].norm())
            most = 255.0 * (1.0 if self.shape[2] == 1 else float(_OPPONENT[c].abs().sum()))
            basis /= 2.0 * 255.0 * norm * math.sqrt(height * width)
            step = 2.0 ** math.ceil(math.log2(float(basis.abs().max()) * height * width * most) - 52)
            result.append(((basis.T / step).round().contiguous(), step))
        return result

    def coefficients(self, x: Tensor) -> Tensor:
        """u (b, kept) float64 of images (b, h, w, c) uint8; exact multiples of a step."""
        pixels = x.flatten(1, 2).double().mul_(2.0).sub_(255.0)  # (b, h * w, c), odd whole numbers
        parts = []
        for c, (weights, step) in enumerate(self._weights):
            plane = pixels[:, :, 0] if self.shape[2] == 1 else pixels @ _OPPONENT[c].to(x.device)
            parts.append((plane @ weights.to(x.device)).mul_(step))
        return torch.cat(parts, 1)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-radii L (b, blocks), even z and odd z of images (b, h, w, c) uint8, float64; |even z|^2 + |odd z|^2 <= 1."""
        parts = [self._encoded(rows) for rows in x.split(_AT_ONCE)] or [self._encoded(x)]
        logs, even, odd = zip(*parts)
        return torch.cat(logs), torch.cat(even), torch.cat(odd)

    def _encoded(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u = self.coefficients(x)
        logs = torch.empty(len(x), len(self.block_sizes), dtype=torch.float64, device=x.device)
        for b, (m, kappa) in enumerate(zip(self.block_sizes.tolist(), self._kappa.tolist())):
            place = (self.block == b).nonzero().flatten()
            radius = row_squares(u[:, place]).sqrt_().add_(_LEAST_RADIUS)
            steps = torch.bucketize(radius, _EDGES.to(radius) * (_LEVEL * math.sqrt(m))) - _LEVELS
            logs[:, b] = steps.double() * (_MOST_LOG_RADIUS / _LEVELS)
            u[:, place] = u[:, place] * (kappa / radius)[:, None]
        return logs, u[:, ~self.odd], u[:, self.odd]

    # -- coordinates to images ---------------------------------------------------------------------------------------

    def decode(self, logs: Tensor, even: Tensor, odd: Tensor, generator: torch.Generator) -> Tensor:
        """Images (b, h, w, c) uint8 of coordinates; what is above the kept frequencies is random texture.

        Its u has a variance that falls like :math:`(1 + f)^{-2 \\gamma}`, continued from that of the highest block.
        """
        height, width, channels = self.shape
        z = torch.empty(len(logs), len(self.block))
        z[:, ~self.odd], z[:, self.odd] = even.float(), odd.float()
        radius = _LEVEL * self.block_sizes.sqrt().float() * (logs.float().clamp(-0.12, 0.12) / 0.1).exp()
        length = torch.zeros(radius.shape).index_add_(1, self.block, z.square()).sqrt_().clamp_min_(1e-9)
        z *= (radius / length)[:, self.block]
        planes = torch.randn(len(z), channels, height * width, generator=generator)
        for c, kept in enumerate(self.kept):
            own = self.channel == c
            top = int(self.block[own].max())  # the block of the highest frequencies
            decay = (1.0 + self._grid) ** (-2.0 * _DECAY[min(c, 1)])
            level = decay / (1.0 + self._f[self.block == top]).pow(-2.0 * _DECAY[min(c, 1)]).mean()
            weight = level.sqrt() / (_GAINS[c] * (1.0 + self._grid))
            planes[:, c] *= weight.float() * (radius[:, top] / self.block_sizes[top].sqrt().float())[:, None]
            planes[:, c, kept] = z[:, own] / self._scale[own].float()
        planes = planes.reshape(-1, channels, height, width)
        planes = cosines(height).float().T @ planes @ cosines(width).float() * math.sqrt(height * width)
        if channels == 3:
            planes = torch.einsum("bkhw,kc->bchw", planes, torch.nn.functional.normalize(_OPPONENT).float())
        pixels = (planes + 0.5).mul_(255.0).round_().clamp_(0.0, 255.0).to(torch.uint8)
        return pixels.permute(0, 2, 3, 1).contiguous()


_EDGES = torch.exp((torch.arange(-_LEVELS, _LEVELS).double() + 0.5) * (10.0 * _MOST_LOG_RADIUS / _LEVELS))
"""Radii, over their public level, at which the log-radius rises by a step."""


# -- the released model ---------------------------------------------------------------------------------------------------

_BATCH = 4096


class GaussianImages(ImageModel, kind="gaussian_images"):
    """Per class N(mean, even) of log-radii and even directions and N(0, odd) of odd ones, and texture above them.

    Released: means (k, p), positive definite even (k, p, p) and odd (k, q, q), noisy counts (k,); the map is public.
    """

    def __init__(
        self,
        map: Frequencies,
        means: Tensor,
        even: Tensor,
        odd: Tensor,
        *,
        counts: Tensor,
        class_names: Sequence[str],
        statement: PrivacyStatement,
    ) -> None:
        self.map, self.means, self.even, self.odd = map, means, even, odd
        self.counts, self.class_names, self.image_shape = counts.double(), tuple(class_names), map.shape
        self.statement = statement

    def samples(self, n: int, *, random_state: RandomState = None, clusters: Sequence[int] | None = None) -> ImageSamples:
        generator = sampling_generator(n, random_state)
        labels = draw_components(self.weights, n, clusters, generator)
        roots = [torch.linalg.cholesky(covariances).float() for covariances in (self.even, self.odd)]
        x = torch.empty(n, *self.image_shape, dtype=torch.uint8)
        for c in labels.unique().tolist():
            for rows in (labels == c).nonzero().flatten().split(_BATCH):
                even, odd = (torch.randn(len(rows), root.shape[1], generator=generator) @ root[c].T for root in roots)
                even += self.means[c].float()
                blocks = len(self.map.block_sizes)
                x[rows] = self.map.decode(even[:, :blocks], even[:, blocks:], odd, generator)
        return ImageSamples(x=x, labels=labels, class_names=self.class_names)

    def classify(self, x: Tensor) -> Tensor:
        """The likeliest class (n,) of images (n, h, w, c) uint8 under the released Gaussians."""
        parts = []
        for images in x.split(_BATCH):
            logs, even, odd = self.map.encode(images)
            scores = _log_densities(torch.cat([logs, even], 1), self.means, self.even)
            scores += _log_densities(odd, torch.zeros(len(self.odd), odd.shape[1], dtype=torch.float64), self.odd)
            parts.append((scores + self.weights.clamp_min(1e-12).log()).argmax(1))
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)

    def tensors(self) -> dict[str, Tensor]:
        return {"means": self.means, "even": self.even, "odd": self.odd, "counts": self.counts}

    def description(self) -> dict[str, Any]:
        return {
            "shape": self.map.shape,
            "frequencies": self.map.luma,
            "mirror": self.map.mirror,
            "class_names": self.class_names,
        }

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> GaussianImages:
        height, width, channels = description["shape"]
        map = Frequencies((height, width, channels), description["frequencies"], description["mirror"])
        return cls(map, statement=statement, class_names=description["class_names"], **tensors)


def _log_densities(x: Tensor, means: Tensor, covariances: Tensor) -> Tensor:
    """log N(x; mean_c, S_c) (n, k) up to a constant, for rows x (n, m)."""
    columns = []
    for mean, root in zip(means, torch.linalg.cholesky(covariances)):
        white = torch.linalg.solve_triangular(root, (x - mean).T, upper=False)
        columns.append(-0.5 * white.square().sum(0) - root.diagonal().log().sum())
    return torch.stack(columns, 1)


# -- sums --------------------------------------------------------------------------------------------------------------

BORDER = math.sqrt(0.1)
EVEN, ODD = 0.6, 0.3
"""Largest squares A and B of the clipped directions; without mirror images the even ones are all, and A is 1."""

FACTS = (Fact.ONE_IMAGE, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.EXACT_SUMS(record="image"), Fact.EXACT_INTEGERS)
"""Facts of the statement of a fit to images."""

_BANDS = 6
_POOL_BANDS = 4
_CUT = 0.5
_CAUTION = 1.5  # differences are shrunk as if they were so much noisier: classes share most of what they are
_DETECTED = 4.0  # noise stds of a count below which a class is not told from an empty one


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
    for images, classes in zip(x.split(_BATCH), labels.split(_BATCH)):
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
    def of(cls, noisy: Tensor, noise_std: float, map: Frequencies, k: int) -> Moments:
        """Moments of noisy `image_sums`."""
        p, q = 1 + map.even_size, map.odd_size
        even, odd = symmetric(noisy[: k * p * p].reshape(k, p, p)), symmetric(noisy[k * p * p :].reshape(k, q, q))
        counts = even[:, 0, 0] / BORDER**2
        safe = counts.clamp_min(1.0)[:, None]
        means = even[:, 0, 1:] / (BORDER * safe)
        covariances = even[:, 1:, 1:] / safe[..., None] - means[:, :, None] * means[:, None, :]
        return cls(counts, means, covariances, odd / safe[..., None], noise_std)

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


def fit_images(data: Images, config: GaussianConfig, budget: GaussianBudget, *, device: str = "cpu") -> GaussianImages:
    """Spend the budget on one release of the sums of all classes, and clean it up."""
    map = Frequencies(tuple(data.x.shape[1:]), config.frequencies, config.mirror)  # type: ignore[arg-type]
    k = data.n_classes
    sums = image_sums(data.x, data.labels, map, k=k, device=device)
    moments = Moments.of(*budget.sums(NOTES["images"], sums, budget.left), map, k)
    return GaussianImages(
        map,
        *cleaned(moments),
        counts=moments.counts,
        class_names=data.class_names,
        statement=PrivacyStatement.from_ledger(budget.curator.ledger, facts=(*FACTS, *_fallbacks(moments))),
    )


def _fallbacks(moments: Moments) -> Iterator[Said]:
    """Fallbacks, which depend on released values alone."""
    found = moments.detected
    if not bool(found.any()):
        yield Fact.NOT_FITTED()
    elif not bool(found.all()):
        names = ", ".join(map(str, (~found).nonzero().flatten().tolist()))
        yield Fact.POOLED_CLASSES(classes=names, records="images")
