"""The released mixture of Gaussians in the coordinates of a subspace: draws, likelihood, classes, counting queries."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from dpgen.files import under
from dpgen.release import GreySamples, RandomState, RecordModel, RecordSamples, draw_components, sampling_generator
from dpgen.statement import PrivacyStatement
from dpgen.systems.gaussian.calibration import Warp, calibrated_thresholds, tilted_choice
from dpgen.systems.gaussian.subspace import Subspace


@dataclass(frozen=True)
class LatentMixture:
    """p(u) = sum_j w_j N(u; mean_j, F_j F_j^T + rest_j (I - kept directions)), all of it released values.

    Arguments:
        weights: (k,) float64, sum 1.
        means: (k, m) float64.
        vectors: orthonormal eigenvectors (k, m, m), columns by falling eigenvalue.
        eigenvalues: (k, m); those that were cut are 0.
        rest: (k,) mean of the cut eigenvalues, above 0; draws have it only if `filled`.
    """

    weights: Tensor
    means: Tensor
    vectors: Tensor
    eigenvalues: Tensor
    rest: Tensor

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

    def covariances(self) -> Tensor:
        """(k, m, m) covariances of the draws."""
        return (self.vectors * self.eigenvalues[:, None, :]) @ self.vectors.transpose(1, 2)

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
class Cleaned:
    """Eigenvalues after clean-up (m,), falling, their vectors (m, m), and the mean of what was cut."""

    eigenvalues: Tensor
    vectors: Tensor
    rest: float


def clean_covariance(covariance: Tensor, edge: float) -> Cleaned:
    """Keep the eigenvalues of a noisy covariance (m, m) above `edge`, the largest that noise alone would show.

    The mean of the others is nearly free of noise; it is at least a thousandth of `edge` or 1e-9.
    """
    values, vectors = torch.linalg.eigh(covariance)
    values, vectors = values.flip(0), vectors.flip(1)
    kept = values > edge
    cut = values[~kept]
    rest = max(float(cut.mean()) if len(cut) else 0.0, 1e-3 * edge, 1e-9)
    return Cleaned(torch.where(kept, values, 0.0), vectors.contiguous(), rest)


# -- gaussian model ----------------------------------------------------------------------------------------------------

_AT_ONCE = 8192
_CANDIDATES = 4


@dataclass(frozen=True, kw_only=True)
class PostProcessing:
    """Public steps of a draw after the Gaussian; declared in the model's description.

    Arguments:
        warp: random affine warp of images; None: none.
        grey: whether grey values are given out, clamped to [0, 1].
        threshold: a bit is 1 above it, unless the model has thresholds of its own per feature.
    """

    warp: Warp | None = None
    grey: bool = False
    threshold: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Released adjustments of the bits; None: without.

    Arguments:
        marginals: (d,) released frequencies of ones.
        thresholds: (d,) per feature that give these frequencies.
        jitter: (d,) std of independent noise before the threshold: the variance that the axes leave out.
        tilt: (d, d) of pairs of bits.
    """

    marginals: Tensor | None = None
    thresholds: Tensor | None = None
    jitter: Tensor | None = None
    tilt: Tensor | None = None


class GaussianMixtureModel(RecordModel, kind="gaussian_mixture"):
    """x = place(u), u ~ sum_j w_j N(m_j, S_j), post-processed as declared.

    Arguments:
        subspace: released map between records and coordinates.
        mixture: released Gaussians in the coordinates, for draws.
        density: the same with covariances that densities can divide by; None: `mixture`.
        classes: class of each component (k,), int64; all 0 without labels.
        counts: noisy component sizes (k,).
        n_classes: labels, 0 without.
        residual: variance per direction outside of the axes, above 0; for the density.
        image_shape: (height, width), if records are images.
        columns: names of the features.
        declared: what was done, in sentences.
    """

    def __init__(
        self,
        subspace: Subspace,
        mixture: LatentMixture,
        *,
        classes: Tensor,
        counts: Tensor,
        statement: PrivacyStatement,
        n_classes: int = 0,
        residual: float = 1e-3,
        density: LatentMixture | None = None,
        post: PostProcessing | None = None,
        calibration: Calibration | None = None,
        image_shape: tuple[int, int] | None = None,
        columns: Sequence[str] | None = None,
        declared: Sequence[str] = (),
    ) -> None:
        self.subspace, self.mixture, self.classes, self.counts = subspace, mixture, classes, counts.double()
        self.statement, self.n_classes, self.residual = statement, n_classes, residual
        self.density, self.image_shape, self.declared = density or mixture, image_shape, tuple(declared)
        self.post, self.calibration = post or PostProcessing(), calibration or Calibration()
        self.columns = None if columns is None else tuple(columns)

    # -- draws -------------------------------------------------------------------------------------------------------

    def samples(
        self,
        n: int,
        *,
        random_state: RandomState = None,
        clusters: Sequence[int] | None = None,
        components: Sequence[int] | None = None,
    ) -> RecordSamples:
        """n synthetic records, free of further privacy cost.

        Arguments:
            n: number of records, at least 0.
            random_state: None, a seed, or a generator of NumPy; noise never came from a seed.
            clusters: of these classes only (components, without labels).
            components: of these components only.

        Raises:
            ValueError: n below 0, or a cluster that is not there.
        """
        generator = sampling_generator(n, random_state)
        component = draw_components(self.mixture.weights, n, self._allowed(clusters, components), generator)
        bits, grey = torch.zeros(2, 0, len(self.subspace.mean), dtype=torch.uint8)
        if n:
            bits, grey, component = map(torch.cat, zip(*(self._part(c, generator) for c in component.split(_AT_ONCE))))
        classes = self.classes[component]
        shared: dict[str, Any] = {
            "x": bits,
            "cluster": classes if self.n_classes else component,
            "labels": classes.clone() if self.n_classes else None,
            "columns": self.columns,
            "k": self.n_classes or self.mixture.k,
        }
        return GreySamples(**shared, grey=grey) if self.post.grey else RecordSamples(**shared)

    def _allowed(self, clusters: Sequence[int] | None, components: Sequence[int] | None) -> list[int] | None:
        if clusters is not None and components is not None:
            raise ValueError("give clusters or components, not both")
        if clusters is None or not self.n_classes:
            chosen = components if clusters is None else clusters
            return None if chosen is None else list(chosen)
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
        """The same release with another warp, its thresholds calibrated anew to the released marginals; free.

        Warped pictures teach classifiers more, unwarped bits answer conjunctions better.

        Raises:
            ValueError: the records are no images.
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

    def posterior(self, x: Tensor) -> Tensor:
        """P(component | x), (n, k), for records (n, d) in [0, 1]."""
        return torch.softmax(self._joint(x)[0], 1)

    def classify(self, x: Tensor) -> Tensor:
        """The mixture's own Bayes classifier: likeliest class (n,) of records (n, d) in [0, 1].

        Raises:
            ValueError: the model has no classes.
        """
        if not self.n_classes:
            raise ValueError("classify needs a model of labelled records, and this one has n_classes=0")
        onehot = torch.nn.functional.one_hot(self.classes, self.n_classes).double()
        return (self.posterior(x) @ onehot).argmax(1)

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
            "declared": self.declared,
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
        shape = options.pop("image_shape")
        options.pop("noise_multiplier", None)  # of dpgen 0.4
        return cls(
            Subspace(edge=options.pop("edge"), **under("subspace", tensors)),
            LatentMixture(**under("mixture", tensors)),
            density=LatentMixture(**under("density", tensors)),
            classes=tensors["classes"],
            counts=tensors["counts"],
            statement=statement,
            post=PostProcessing(**post, warp=warp),
            calibration=Calibration(**under("calibration", tensors)),
            image_shape=tuple(shape) if shape else None,
            **options,
        )
