"""The released mixture of Gaussians in the coordinates of a subspace: draws, likelihood, classes, counting queries."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from dpgen.files import under
from dpgen.release import RandomState, RecordLayout, RecordModel, draw_components, sampling_generator
from dpgen.samples import RecordSamples
from dpgen.statement import PrivacyStatement

_IN_CACHE = 512  # rows


@dataclass(frozen=True)
class Subspace:
    """The released affine map u = (x - mean) axes / scales, under which most records have norm at most 1; float64."""

    mean: Tensor  # (d,)
    axes: Tensor  # orthonormal columns (d, m)
    scales: Tensor  # (m,), above 0
    edge: float  # the largest eigenvalue that noise alone would show
    eigenvalues: Tensor  # (m,), noisy

    def project(self, x: Tensor) -> Tensor:
        """Coordinates (b, m) float64 of records (b, d) in [0, 1]; not clipped.

        Records, the mean and weights are rounded to grids so fine that float64 holds every sum of their products: what a
        record gives does not depend on the batch that it is in.
        """
        bits = 52 - math.ceil(math.log2(len(self.mean)))
        grid = 2.0 ** min(24, bits // 2)
        weights = self.axes / self.scales
        step = 2.0 ** (math.ceil(math.log2(float(weights.abs().max()))) - (bits - round(math.log2(grid))))
        weights = (weights / step).round() * step
        weights = (weights / grid).to(x.device)
        offset = (self.mean[None].to(x.device) * grid).round_() @ weights
        result = torch.empty(len(x), weights.shape[1], dtype=torch.float64, device=x.device)
        for rows, part in zip(x.split(_IN_CACHE), result.split(_IN_CACHE)):
            torch.mm((rows * grid).round_().double(), weights, out=part)
        return result.sub_(offset)

    def place(self, u: Tensor) -> Tensor:
        """Records (b, d) of coordinates (b, m)."""
        return (u * self.scales.to(u)) @ self.axes.T.to(u) + self.mean.to(u)


@dataclass(frozen=True)
class LatentMixture:
    """p(u) = sum_j w_j N(u; mean_j, F_j F_j^T + rest_j (I - kept directions)), all of it released values; float64."""

    weights: Tensor  # (k,), sum 1
    means: Tensor  # (k, m)
    vectors: Tensor  # orthonormal eigenvectors (k, m, m), columns by falling eigenvalue
    eigenvalues: Tensor  # (k, m); those that were cut are 0
    rest: Tensor  # (k,) mean of the cut eigenvalues, above 0; draws have it only if `filled`

    @property
    def k(self) -> int:
        """Components."""
        return len(self.weights)

    def filled(self) -> "LatentMixture":
        """The mixture whose draws have variance `rest` in the directions that were cut."""
        return replace(self, eigenvalues=torch.where(self.eigenvalues > 0, self.eigenvalues, self.rest[:, None]))

    def draw(self, component: int, n: int, generator: torch.Generator) -> Tensor:
        """n draws (n, m) float32 of one component."""
        kept = self.eigenvalues[component] > 0
        factor = (self.vectors[component][:, kept] * self.eigenvalues[component][kept].sqrt()).float()
        noise = torch.randn(n, factor.shape[1], generator=generator)
        return torch.addmm(self.means[component].float(), noise, factor.T)

    def log_densities(self, u: Tensor) -> Tensor:
        """log w_j + log N_j(u), (n, k) float64, for coordinates u (n, m), with `rest` where eigenvalues were cut."""
        u = u.double()
        variances = self.filled().eigenvalues
        columns = []
        for j in range(self.k):
            white = (u - self.means[j]) @ self.vectors[j] / variances[j].sqrt()
            normaliser = float(variances[j].log().sum()) + u.shape[1] * math.log(2.0 * math.pi)
            columns.append(-0.5 * (white.square().sum(1) + normaliser))
        return torch.stack(columns, 1) + self.weights.log()


@dataclass(frozen=True)
class Components:
    """Released Gaussians: for draws and for densities, whose covariances can be divided by; the class (k,) int64 and noisy size
    (k,) of each; and the classes that were pooled."""

    mixture: LatentMixture
    density: LatentMixture
    classes: Tensor
    counts: Tensor
    pooled: tuple[int, ...] = ()


# -- post-processing ---------------------------------------------------------------------------------------------------

_AT_ONCE = 4096


@dataclass(frozen=True)
class Warp:
    """Rotation (degrees), relative scale and shift (pixels) of every image, normal with these standard deviations, at least 0.

    They stand for the ways of writing that few Gaussians do not have; being public, they cost nothing.
    """

    rotation: float = 8.6
    scale: float = 0.10
    shift: float = 1.5

    @classmethod
    def of_strength(cls, strength: float, shape: tuple[int, int]) -> "Warp":
        """`strength` times the warp that suits handwriting on 28 pixels, its shift in proportion to the shorter side."""
        return cls(rotation=8.6 * strength, scale=0.10 * strength, shift=1.5 * strength * min(shape) / 28.0)

    def __call__(self, x: Tensor, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Warped images (n, height * width) float32 in the range of x, bilinear, with zeros from outside."""
        n, (height, width) = len(x), shape
        angle = torch.randn(n, generator=generator) * math.radians(self.rotation)
        scale = 1.0 + torch.randn(n, generator=generator) * self.scale
        shift = torch.randn(n, 2, generator=generator) * self.shift * torch.tensor([2.0 / width, 2.0 / height])
        cos, sin = angle.cos() * scale, angle.sin() * scale
        sides = ((torch.arange(side) + 0.5) * (2.0 / side) - 1.0 for side in shape)  # middles of the pixels from -1 to 1
        y, x_ = torch.meshgrid(*sides, indexing="ij")
        parts = []
        for rows in torch.arange(n).split(_AT_ONCE):
            c, s, move = cos[rows, None, None], sin[rows, None, None], shift[rows, :, None, None]
            grid = torch.stack([c * x_ - s * y + move[:, 0], s * x_ + c * y + move[:, 1]], 3)
            images = x[rows].float().reshape(-1, 1, height, width)
            parts.append(grid_sample(images, grid, align_corners=False).flatten(1))
        return torch.cat(parts) if parts else x.float()


def calibrated_thresholds(pilot: Tensor, marginals: Tensor) -> Tensor:
    """Thresholds t (d,) with P(pilot_j > t_j) = marginals_j, for public samples (n, d) and released frequencies of ones (d,).

    >>> t = calibrated_thresholds(torch.arange(8.0)[:, None], torch.tensor([0.25]))
    >>> int((torch.arange(8.0) > t).sum())
    2
    """
    n = len(pilot)
    # NumPy sorts values alone, and rows, several times as fast as torch sorts columns with their positions.
    ordered = torch.from_numpy(np.sort(pilot.T.contiguous().cpu().numpy(), axis=1)).T
    below = ((1.0 - marginals.cpu().clamp(0.0, 1.0)) * n).round().long()
    lower = ordered.gather(0, (below - 1).clamp_min(0)[None])[0]
    upper = ordered.gather(0, below.clamp_max(n - 1)[None])[0]
    middle = (lower + upper) / 2.0
    middle = torch.where(below == 0, ordered[0] - 1.0, middle)
    return torch.where(below == n, ordered[-1] + 1.0, middle)


def tilted_choice(bits: Tensor, tilt: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Positions (n,) among candidate rows, drawn with repeats in proportion to exp(b^T Theta b) (resampling, Rubin 1987)."""
    values = bits.to(tilt.dtype)
    weights = torch.softmax(((values @ tilt) * values).sum(1), 0)
    return torch.multinomial(weights, n, replacement=True, generator=generator)


# -- gaussian model ----------------------------------------------------------------------------------------------------

_DRAWN_AT_ONCE = 8192
_CANDIDATES = 4


@dataclass(frozen=True, kw_only=True)
class PostProcessing:
    """Public steps of a draw after the Gaussian; declared in the model's description."""

    warp: Warp | None = None
    grey: bool = False  # whether grey values are given out, clamped to [0, 1]
    threshold: float = 0.5  # a bit is 1 above it, unless the model has thresholds of its own per feature


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Released adjustments of the bits; None: without."""

    marginals: Tensor | None = None  # (d,) released frequencies of ones
    thresholds: Tensor | None = None  # (d,), which give these frequencies
    jitter: Tensor | None = None  # (d,) std of noise before the threshold: the variance that the axes leave out
    tilt: Tensor | None = None  # (d, d) of pairs of bits, in models of dpgen 0.4


class GaussianMixtureModel(RecordModel, kind="gaussian_mixture"):
    """x = place(u), u ~ sum_j w_j N(m_j, S_j), post-processed as declared.

    Without labels all components are of class 0; `residual` > 0 is the variance per direction outside of the axes.
    """

    def __init__(
        self,
        subspace: Subspace,
        components: Components,
        *,
        statement: PrivacyStatement,
        layout: RecordLayout,
        residual: float = 1e-3,
        post: PostProcessing | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.subspace, self.mixture, self.density = subspace, components.mixture, components.density
        self.classes, self.counts = components.classes, components.counts.double()
        self.statement, self.residual = statement, residual
        self.n_classes, self.image_shape = layout.n_classes, layout.image_shape
        self.columns = None if layout.columns is None else tuple(layout.columns)
        self.post, self.calibration = post or PostProcessing(), calibration or Calibration()

    # -- draws -------------------------------------------------------------------------------------------------------

    def samples(self, n: int, *, random_state: RandomState = None, clusters: Sequence[int] | None = None) -> RecordSamples:
        """n synthetic records, free of further privacy cost; of these `clusters` only (components, without labels)."""
        generator = sampling_generator(n, random_state)
        component = draw_components(self.mixture.weights, n, self._components(clusters), generator)
        bits, grey = torch.zeros(2, 0, len(self.subspace.mean), dtype=torch.uint8)
        if n:
            bits, grey, component = map(torch.cat, zip(*(self._part(c, generator) for c in component.split(_DRAWN_AT_ONCE))))
        classes = self.classes[component]
        shared: dict[str, Any] = {
            "x": bits,
            "cluster": classes if self.n_classes else component,
            "labels": classes.clone() if self.n_classes else None,
            "columns": self.columns,
            "k": self.n_classes or self.mixture.k,
        }
        return RecordSamples(**shared, grey=grey if self.post.grey else None)

    def _components(self, clusters: Sequence[int] | None) -> list[int] | None:
        """Components of these clusters."""
        if clusters is None or not self.n_classes:
            return None if clusters is None else list(clusters)
        if not clusters or not all(0 <= c < self.n_classes for c in clusters):
            raise ValueError(f"clusters must be a non-empty list of numbers in [0, {self.n_classes}), got {list(clusters)}")
        return torch.isin(self.classes, torch.tensor(list(clusters))).nonzero().flatten().tolist()

    def _part(self, component: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Bits, grey values (or bits again) and components of one part of the records."""
        own, tilt = self.calibration.thresholds, self.calibration.tilt
        pool = component if tilt is None else component.repeat(_CANDIDATES)
        values = self.values(pool, generator)
        bits = (values > (self.post.threshold if own is None else own.float())).to(torch.uint8)
        if tilt is not None:
            chosen = tilted_choice(bits, tilt, len(component), generator)
            return bits[chosen], bits[chosen], pool[chosen]
        return bits, values.clamp(0.0, 1.0).mul(255.0).round_().to(torch.uint8) if self.post.grey else bits, component

    def values(self, component: Tensor, generator: torch.Generator) -> Tensor:
        """Real values (n, d) of one draw of each component (n,), warped and jittered, before clamping and thresholds."""
        order = component.argsort(stable=True)
        sizes = torch.bincount(component, minlength=self.mixture.k).tolist()
        mixture = self.mixture.filled()
        drawn = [mixture.draw(j, size, generator) for j, size in enumerate(sizes) if size]
        u = torch.empty(len(component), len(self.subspace.scales))
        u[order] = torch.cat(drawn)
        x = self.subspace.place(u)
        if self.post.warp is not None and self.image_shape is not None:
            x = self.post.warp(x.clamp(-0.05, 1.05), self.image_shape, generator)
        if self.calibration.jitter is not None:
            x = x + self.calibration.jitter.float() * torch.randn(x.shape, generator=generator)
        return x

    def pilot(self, generator: torch.Generator, n: int = 20_000) -> Tensor:
        """Real values (n, d) of n draws, for calibration."""
        return self.values(torch.multinomial(self.mixture.weights, n, replacement=True, generator=generator), generator)

    def with_warp(self, warp: Warp | None, *, seed: int = 0) -> "GaussianMixtureModel":
        """This release with another warp, its thresholds calibrated anew to the released marginals; free.

        Warped pictures teach classifiers more, unwarped bits answer conjunctions better.
        """
        if self.image_shape is None:
            raise ValueError("with_warp needs a model of images, and image_shape is None")
        model, marginals = copy(self), self.calibration.marginals
        model.post = replace(self.post, warp=warp)
        if marginals is not None:
            thresholds = calibrated_thresholds(model.pilot(torch.Generator().manual_seed(seed)), marginals)
            model.calibration = replace(self.calibration, thresholds=thresholds)
        return model

    # -- density -----------------------------------------------------------------------------------------------------

    def _joint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log w_j p_j (n, k), and log-density of what the axes leave out (n,)."""
        x = x.to(torch.float32)
        d, m = self.subspace.axes.shape
        if x.ndim != 2 or x.shape[1] != d:
            raise ValueError(f"x must have shape (n, {d}), got {tuple(x.shape)}")
        centred = x.double() - self.subspace.mean
        along = centred @ self.subspace.axes
        outside = (centred.square().sum(1) - along.square().sum(1)).clamp_min(0.0)
        normal = -0.5 * (outside / self.residual + (d - m) * torch.log(torch.tensor(2 * torch.pi * self.residual)))
        joint = self.density.log_densities(along / self.subspace.scales) - self.subspace.scales.log().sum()
        return joint, normal

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density (n,) in nats of records (n, d) in [0, 1], before post-processing: Gaussians on the axes, one variance
        elsewhere.
        """
        joint, outside = self._joint(x)
        return torch.logsumexp(joint, 1) + outside

    def classify(self, x: Tensor) -> Tensor:
        """The mixture's own Bayes classifier: likeliest class (n,) of records (n, d) in [0, 1]."""
        if not self.n_classes:
            raise ValueError("classify needs a model of labelled records, and this one has n_classes=0")
        onehot = torch.nn.functional.one_hot(self.classes, self.n_classes).double()
        return (torch.softmax(self._joint(x)[0], 1) @ onehot).argmax(1)

    def assign(self, x: Tensor) -> Tensor | None:
        """Likeliest component (n,) of records (n, d); None when clusters are labels."""
        return None if self.n_classes else self._joint(x)[0].argmax(1)

    # -- files -------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        parts = {f"subspace.{f.name}": getattr(self.subspace, f.name) for f in fields(Subspace) if f.name != "edge"}
        parts |= {f"mixture.{f.name}": getattr(self.mixture, f.name) for f in fields(LatentMixture)}
        parts |= {f"density.{f.name}": getattr(self.density, f.name) for f in fields(LatentMixture)}
        given = {f.name: getattr(self.calibration, f.name) for f in fields(Calibration)}
        parts |= {f"calibration.{name}": value for name, value in given.items() if value is not None}
        return {name: value.clone() for name, value in parts.items()} | {"classes": self.classes, "counts": self.counts}

    def description(self) -> dict[str, Any]:
        return {
            "edge": self.subspace.edge,
            "n_classes": self.n_classes,
            "residual": self.residual,
            "post": asdict(self.post),
            "image_shape": self.image_shape,
            "columns": self.columns,
        }

    @classmethod
    def rebuild(
        cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement
    ) -> "GaussianMixtureModel":
        options = dict(description)
        post = options.pop("post")
        warp = Warp(**post.pop("warp")) if post["warp"] is not None else post.pop("warp")
        codec, filled = post.pop("codec", None), post.pop("fill", True)  # of dpgen 0.4
        if codec is not None or not filled:
            raise ValueError(f"the model has codec {codec!r} and fill {filled}; such models of dpgen 0.4 need that version")
        for name in ("noise_multiplier", "declared"):  # of dpgen 0.4
            options.pop(name, None)
        return cls(
            Subspace(edge=options.pop("edge"), **under("subspace", tensors)),
            Components(
                LatentMixture(**under("mixture", tensors)),
                LatentMixture(**under("density", tensors)),
                tensors["classes"],
                tensors["counts"],
            ),
            statement=statement,
            layout=RecordLayout.taken(options),
            post=PostProcessing(**post, warp=warp),
            calibration=Calibration(**under("calibration", tensors)),
            **options,
        )
