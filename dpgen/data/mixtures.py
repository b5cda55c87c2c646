"""Targets whose density or CDF is known exactly: Gaussian mixtures on R^d, and ordered mixtures on [0, N)."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor

Reading = Literal["variance", "std"]
Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
MixtureName = Literal["gaussians", "betas", "gammas", "spikes", "mixed"]


@dataclass(frozen=True, eq=False, repr=False)
class GaussianMixture:
    r"""Mixture of isotropic Gaussians, $p(x) = \sum_j w_j N(x; \mu_j, v_j I)$, in float64.

    `means` are (k, d), `variances` > 0 (k,), `weights` (k,) >= 0 with sum 1; None: equal ones.

    >>> target = GaussianMixture(torch.zeros(1, 1), torch.ones(1))
    >>> target.log_prob(torch.zeros(1, 1)).item() == -0.5 * math.log(2 * math.pi)
    True
    >>> target
    GaussianMixture(1 component in 1 dimension)
    """

    means: Tensor
    variances: Tensor
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        weights = torch.full((len(self.means),), 1 / max(len(self.means), 1)) if self.weights is None else self.weights
        for name, values in (("means", self.means), ("variances", self.variances), ("weights", weights)):
            object.__setattr__(self, name, values.detach().to(torch.float64))
            if not bool(torch.isfinite(values).all()):
                raise ValueError(f"{name} has entries that are not finite: they must all be finite")
        if self.means.ndim != 2 or self.means.numel() == 0:
            raise ValueError(f"means has shape {tuple(self.means.shape)}: it must be (k, d), both at least 1")
        if self.variances.shape != (self.k,) or not bool((self.variances > 0).all()):
            raise ValueError(f"variances is {self.variances.tolist()}: it must have {self.k} entries > 0")
        if weights.shape != (self.k,) or bool((weights < 0).any()) or abs(float(weights.sum()) - 1) > 1e-6:
            raise ValueError(f"weights is {weights.tolist()}: it must have {self.k} entries >= 0 with sum 1")

    @property
    def k(self) -> int:
        """Number of components."""
        return len(self.means)

    @property
    def d(self) -> int:
        """Dimension."""
        return self.means.shape[1]

    def __repr__(self) -> str:
        components, dimensions = "component" + "s" * (self.k > 1), "dimension" + "s" * (self.d > 1)
        return f"GaussianMixture({self.k} {components} in {self.d} {dimensions})"

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density (n,) in nats at points (n, d)."""
        if x.ndim != 2 or x.shape[1] != self.d:
            raise ValueError(f"x has shape {tuple(x.shape)}: it must be (n, {self.d})")
        x, weights = x.to(torch.float64), self.weights
        assert weights is not None  # set in __post_init__
        squared = torch.stack([(x - mean).square().sum(1) for mean in self.means], dim=1)
        constant = weights.log() - 0.5 * self.d * (2 * math.pi * self.variances).log()
        return torch.logsumexp(constant - 0.5 * squared / self.variances, dim=1)

    def sample(self, n: int, *, generator: torch.Generator) -> Tensor:
        """n independent points (n, d)."""
        assert self.weights is not None
        component = torch.multinomial(self.weights, n, replacement=True, generator=generator) if n else torch.empty(0).long()
        noise = torch.randn(n, self.d, generator=generator, dtype=torch.float64)
        return self.means[component] + self.variances[component, None].sqrt() * noise

    def box(self, stds: float = 6.0) -> Tensor:
        """Bounds (d, 2) that leave out at most 2 d P(N(0, 1) > stds) of the mass: 4e-9 for two dimensions at 6."""
        reach = stds * self.variances[:, None].sqrt()
        return torch.stack([(self.means - reach).amin(0), (self.means + reach).amax(0)], dim=1)


def gaussian_ring(modes: int = 8, *, radius: float = 4.0, variance: float = 0.5) -> GaussianMixture:
    """Gaussians spaced evenly on a circle (Goodfellow 2016; Husain et al. 2018, section 5).

    The papers print neither radius nor covariance; radius 4 and covariance 0.5 I are a choice.

    >>> gaussian_ring()
    GaussianMixture(8 components in 2 dimensions)
    """
    if modes < 1 or not 0 <= radius < math.inf:
        raise ValueError(f"modes is {modes} and radius {radius}: modes must be >= 1, radius finite and >= 0")
    angles = 2 * math.pi * torch.arange(modes, dtype=torch.float64) / modes
    return GaussianMixture(radius * torch.stack([angles.cos(), angles.sin()], 1), torch.full((modes,), variance))


def mixture_1d(reading: Reading = "variance") -> GaussianMixture:
    """(N(0.3, .01) + N(0.5, .1) + N(0.7, .1)) / 3 of Husain et al. 2018, section 5, who do not say what .1 is."""
    if reading not in ("variance", "std"):
        raise ValueError(f"reading is {reading!r}: it must be one of 'variance', 'std'")
    second = torch.tensor([0.01, 0.1, 0.1], dtype=torch.float64)
    return GaussianMixture(
        torch.tensor([[0.3], [0.5], [0.7]], dtype=torch.float64), second if reading == "variance" else second**2
    )


@dataclass(frozen=True)
class OrderedMixture:
    r"""A mixture on [0, 1) whose draws u become the integers :math:`\lfloor u N \rfloor`; mass outside is cut off.

    `weights` (k,) have sum 1, `parts` are frozen scipy.stats distributions.

    >>> mixture = reference_mixture("betas")
    >>> mixture.below(np.array([0, 10**18]), 10**18).tolist()
    [0.0, 1.0]
    """

    name: str
    weights: tuple[float, ...]
    parts: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"OrderedMixture({self.name!r}, {len(self.parts)} parts)"

    def _raw(self, u: Reals) -> Reals:
        return np.asarray(sum(w * part.cdf(u) for w, part in zip(self.weights, self.parts)))

    def below(self, positions: npt.ArrayLike, N: int) -> Reals:
        """Exact P(X < p) at integer positions p of [0, N], in float64."""
        low, high = self._raw(np.array([0.0, 1.0]))
        return (self._raw(np.asarray(positions, np.float64) / N) - low) / (high - low)

    def draw(self, n: int, N: int, rng: np.random.Generator) -> Integers:
        """n independent integers in [0, N), with random low digits below what float64 resolves."""
        out, filled = np.empty(n, np.float64), 0
        while filled < n:
            counts = rng.multinomial(n - filled, self.weights)
            u = np.concatenate([p.rvs(int(c), random_state=rng) for p, c in zip(self.parts, counts)])
            u = u[(u >= 0) & (u < 1)]
            out[filled : filled + len(u)] = u
            filled += len(u)
        rng.shuffle(out)
        x = (out * N).astype(np.int64)
        if N > 2**53:
            x += rng.integers(0, max(1, N >> 53), n)
        return np.minimum(x, N - 1)


def reference_mixture(name: MixtureName) -> OrderedMixture:
    """One of the five sets on which the estimators are compared.

    Gaussian, Beta and Gamma mixtures as in Diakonikolas, Hardt, Schmidt 2015, section 5 (whose parameters are in an
    appendix that is not reproduced here), one with a narrow spike on a broad floor, and one with all three kinds.
    """
    if name not in get_args(MixtureName):
        raise ValueError(f"mixture is {name!r}; it must be one of {', '.join(get_args(MixtureName))}")
    norm, beta, gamma, uniform = stats.norm, stats.beta, stats.gamma, stats.uniform
    sets: dict[str, tuple[tuple[float, ...], tuple[Any, ...]]] = {
        "gaussians": ((0.65, 0.35), (norm(0.45, 0.15), norm(0.75, 0.05))),
        "betas": ((0.4, 0.6), (beta(0.8, 4.0), beta(2.0, 2.0))),
        "gammas": ((0.7, 0.3), (gamma(2.0, scale=0.08), gamma(7.5, scale=0.08))),
        "spikes": ((0.5, 0.3, 0.2), (norm(0.3, 0.1), norm(0.62, 0.002), uniform(0.0, 1.0))),
        "mixed": ((0.3, 0.4, 0.3), (norm(0.2, 0.03), beta(6.0, 3.0), gamma(4.0, scale=0.04))),
    }
    weights, parts = sets[name]
    return OrderedMixture(name, weights, parts)


REFERENCE_MIXTURES: tuple[MixtureName, ...] = get_args(MixtureName)
