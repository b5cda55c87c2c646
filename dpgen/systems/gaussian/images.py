r"""The public map between images and what their Gaussians are of: frequencies, in blocks, as directions with radii.

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
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dpgen.cosines import cosines, frequencies
from dpgen.privacy.exact_sums import row_squares
from dpgen.release import ImageModel, ImageSamples, RandomState, draw_components, sampling_generator
from dpgen.statement import PrivacyStatement

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

    Arguments:
        shape: (height, width, channels), 1 or 3 channels.
        luma: K, frequencies of luma that are kept at most; half of all at most.
        mirror: whether mirror images count as well; otherwise no coordinate is odd.

    >>> map = Frequencies((32, 32, 3), 100)
    >>> [int(m) for m in map.block_sizes], map.even_size, map.odd_size
    ([8, 22, 70, 16, 64], 102, 83)
    """

    shape: tuple[int, int, int]
    luma: int = 100
    mirror: bool = True

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

    Arguments:
        map: between images and coordinates, public.
        means: (k, p), released.
        even: (k, p, p), positive definite.
        odd: (k, q, q), positive definite.
        counts: noisy numbers of images (k,).
        class_names: k public names.
        declared: what was done, in sentences.
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
        declared: Sequence[str] = (),
    ) -> None:
        self.map, self.means, self.even, self.odd = map, means, even, odd
        self.counts, self.class_names, self.image_shape = counts.double(), tuple(class_names), map.shape
        self.statement, self.declared = statement, tuple(declared)

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
            "declared": self.declared,
        }

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> "GaussianImages":
        height, width, channels = description["shape"]
        map = Frequencies((height, width, channels), description["frequencies"], description["mirror"])
        told = {name: description[name] for name in ("class_names", "declared")}
        return cls(map, statement=statement, **told | tensors)


def _log_densities(x: Tensor, means: Tensor, covariances: Tensor) -> Tensor:
    """log N(x; mean_c, S_c) (n, k) up to a constant, for rows x (n, m)."""
    columns = []
    for mean, root in zip(means, torch.linalg.cholesky(covariances)):
        white = torch.linalg.solve_triangular(root, (x - mean).T, upper=False)
        columns.append(-0.5 * white.square().sum(0) - root.diagonal().log().sum())
    return torch.stack(columns, 1)
