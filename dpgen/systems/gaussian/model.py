"""The released mixture of Gaussians in the coordinates of a subspace: draws, likelihood, classes, counting queries."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpgen.files import under
from dpgen.release import GreySamples, RandomState, RecordModel, RecordSamples, draw_components, sampling_generator
from dpgen.statement import PrivacyStatement
from dpgen.systems.gaussian.calibration import tilted_choice
from dpgen.systems.gaussian.subspace import Subspace
from dpgen.systems.gaussian.warps import Warp, calibrated_thresholds

# -- bivariate ---------------------------------------------------------------------------------------------------------

_NODES, _WEIGHTS = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(64))


def upper_tail(h: Tensor) -> Tensor:
    """P(Z > h) of a standard normal."""
    return torch.special.ndtr(-h.double())


def orthant(h: Tensor, k: Tensor, correlation: Tensor) -> Tensor:
    r"""P(X > h, Y > k) of standard normals with a correlation, all (m,), to about 1e-9.

    .. math:: \Phi(-h)\Phi(-k) + \frac{1}{2\pi} \int_0^{\arcsin \rho}
        \exp\Big(-\frac{h^2 + k^2 - 2 h k \sin\theta}{2 \cos^2\theta}\Big) d\theta

    Source: Plackett 1954; Drezner, Wesolowsky 1990. 64 Gauss-Legendre nodes; correlations are kept within 1 - 1e-9.

    >>> orthant(torch.zeros(1), torch.zeros(1), torch.tensor([0.5])).item()
    0.33333...
    """
    h, k = h.double(), k.double()
    angle = torch.arcsin(correlation.double().clamp(-1 + 1e-9, 1 - 1e-9))
    theta = angle[:, None] * (_NODES + 1.0) / 2.0
    square = (h.square() + k.square())[:, None] - 2.0 * (h * k)[:, None] * theta.sin()
    exponent = -square / (2.0 * theta.cos().square())
    integral = (exponent.exp() @ _WEIGHTS) * angle / 2.0
    return (upper_tail(h) * upper_tail(k) + integral / (2.0 * math.pi)).clamp(0.0, 1.0)


# -- latent mixture ----------------------------------------------------------------------------------------------------


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

    >>> clean_covariance(torch.diag(torch.tensor([4.0, 0.5, 0.1], dtype=torch.float64)), 1.0).eigenvalues.tolist()
    [4.0, 0.0, 0.0]
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
    """Steps of a draw after the Gaussian, all of them public or released; declared in the model's description.

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
    """Released adjustments of the bits; see `warps.calibrated_thresholds` and `marginal_calibration.fit_tilt`.

    Arguments:
        marginals: (d,) released frequencies of ones, or None.
        thresholds: (d,) per feature that give these frequencies, or None.
        jitter: (d,) std of independent noise before the threshold: the variance that the axes leave out; or None.
        tilt: (d, d) of pairs of bits, or None.
    """

    marginals: Tensor | None = None
    thresholds: Tensor | None = None
    jitter: Tensor | None = None
    tilt: Tensor | None = None


class GaussianMixtureModel(RecordModel, kind="gaussian_mixture"):
    r"""x = place(u), u ~ sum_j w_j N(m_j, S_j), post-processed as declared.

    Arguments:
        subspace: released map between records (or their codes) and coordinates.
        mixture: released Gaussians in the coordinates, for draws.
        density: the same with covariances that densities can divide by; None: `mixture`.
        classes: class of each component (k,), int64; all 0 without labels.
        counts: noisy component sizes (k,).
        statement: what the model cost.
        n_classes: labels, 0 without.
        residual: variance per direction outside of the axes, above 0; for the density.
        post: post-processing of draws.
        calibration: of bits.
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
        **details: Any,
    ) -> None:
        self.subspace, self.mixture, self.classes, self.counts = subspace, mixture, classes, counts.double()
        self.statement, self.n_classes, self.residual = statement, n_classes, residual
        self.density = density if density is not None else mixture
        known = dict(_DETAILS) | details
        if set(known) != set(_DETAILS):
            raise ValueError(f"details are {sorted(details)}; choose from {sorted(_DETAILS)}")
        self.post: PostProcessing = known["post"]
        self.calibration: Calibration = known["calibration"]
        self.image_shape = known["image_shape"]
        self.columns = tuple(known["columns"]) if known["columns"] is not None else None
        self.declared = tuple(known["declared"])

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
        parts = [self._part(c, generator) for c in component.split(_AT_ONCE)] if n else []
        d = len(self._empty())
        bits = torch.cat([bits for bits, _, _ in parts]) if parts else torch.zeros(0, d, dtype=torch.uint8)
        if self.calibration.tilt is not None and parts:
            component = torch.cat([c for _, _, c in parts])
        classes = self.classes[component]
        cluster = classes if self.n_classes else component
        labels = classes.clone() if self.n_classes else None
        k = self.n_classes or self.mixture.k
        if not self.post.grey:
            return RecordSamples(x=bits, cluster=cluster, labels=labels, columns=self.columns, k=k)
        grey = torch.cat([g for _, g, _ in parts]) if parts else bits
        return GreySamples(x=bits, cluster=cluster, labels=labels, columns=self.columns, k=k, grey=grey)

    def _empty(self) -> Tensor:
        return self.subspace.mean.float()

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
        """Bits, grey values and components of one part of the records."""
        tilt = self.calibration.tilt
        if tilt is None:
            values = self.values(component, generator)
            return self._bits(values), self._grey(values), component
        pool = component.repeat(_CANDIDATES)
        bits = self._bits(self.values(pool, generator))
        chosen = tilted_choice(bits, tilt, len(component), generator)
        return bits[chosen], bits[chosen], pool[chosen]

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
        model = copy(self)
        model.post = replace(self.post, warp=warp)
        if self.calibration.marginals is not None:
            values = model.pilot(torch.Generator().manual_seed(seed))
            thresholds = calibrated_thresholds(values, self.calibration.marginals)
            model.calibration = replace(self.calibration, thresholds=thresholds)
        return model

    def _bits(self, values: Tensor) -> Tensor:
        threshold = self.calibration.thresholds
        return (values > (self.post.threshold if threshold is None else threshold.float())).to(torch.uint8)

    def _grey(self, values: Tensor) -> Tensor:
        return values.clamp(0.0, 1.0).mul(255.0).round_().to(torch.uint8) if self.post.grey else values[:, :0]

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
        """Log-density (n,) in nats of records (n, d) in [0, 1]: Gaussians on the axes, one variance elsewhere.

        Of the mixture before post-processing.
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

    def conjunction(self, items: Sequence[int]) -> float:
        """P(all features in `items` are 1) in closed form, for one or two of them: normal and bivariate normal orthants.

        Raises:
            ValueError: more than two items, or a warp or a tilt, which have no closed form: draw and count.
        """
        if self.post.warp is not None or self.calibration.tilt is not None:
            raise ValueError("conjunction has no closed form for a model with a warp or a tilt: use sample() and count")
        if len(items) not in (1, 2):
            raise ValueError(f"items has {len(items)} features; closed forms are known for 1 and 2: use sample() and count")
        index = torch.tensor(list(items))
        axes = self.subspace.axes[index] * self.subspace.scales
        mixture = self.mixture.filled()
        means = mixture.means @ axes.T + self.subspace.mean[index]
        covariances = axes @ mixture.covariances() @ axes.T
        if self.calibration.jitter is not None:
            covariances = covariances + torch.diag(self.calibration.jitter[index].double().square())
        own = self.calibration.thresholds
        threshold = own[index].double() if own is not None else torch.full((len(items),), self.post.threshold).double()
        std = covariances.diagonal(dim1=1, dim2=2).clamp_min(1e-18).sqrt()
        h = (threshold - means) / std
        if len(items) == 1:
            return float(mixture.weights @ upper_tail(h[:, 0]))
        return float(mixture.weights @ orthant(h[:, 0], h[:, 1], covariances[:, 0, 1] / std.prod(1)))

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


_DETAILS: dict[str, Any] = {
    "post": PostProcessing(),
    "calibration": Calibration(),
    "image_shape": None,
    "columns": None,
    "declared": (),
}
