"""Synthetic data: draws of mixtures whose density or CDF is known exactly, and simulated patients with their visits."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
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


_WARDS = ["cardiology", "dialysis", "general", "orthopaedics", "psychiatry", "trauma"]
_REASONS = ["check", "emergency", "infection", "injury", "pain", "surgery", "therapy"]
_MOST = 12


def _field(name: str, kind: str, own: Mapping[str, Any] | None = None, **rules: Any) -> dict[str, Any]:
    keys = {f"dpgen:{key}": value for key, value in (own or {}).items()}
    return {"name": name, "type": kind, "constraints": {"required": True, **rules}, **keys}


PATIENTS: Mapping[str, Any] = {
    "name": "patients",
    "fields": [
        _field("age", "integer", {"bins": {"equal": 12}}, minimum=0, maximum=95),
        _field("sex", "string", enum=["female", "male"]),
        _field("region", "string", enum=["east", "north", "south", "west"]),
        _field("insurance", "string", enum=["basic", "none", "plus"]),
        _field("smoker", "boolean"),
        _field("diabetic", "boolean"),
    ],
    "dpgen:target": "diabetic",
}
"""Schema of the patients."""

VISITS: Mapping[str, Any] = {
    "name": "visits",
    "fields": [
        _field("date", "date", {"bins": {"equal": 12}}, minimum="2020-01-01", maximum="2022-12-31"),
        _field("ward", "string", enum=_WARDS),
        _field("reason", "string", enum=_REASONS),
        _field("severity", "integer", minimum=1, maximum=5),
        _field("cost", "number", {"rounding": 1, "bins": {"log": 24}}, minimum=1, maximum=100_000),
        _field("days since the last", "integer", {"bins": {"log": 24}}, minimum=0, maximum=1095),
    ],
}
"""Schema of their visits, and of the time between two of them, which is no column."""


def simulated_patients(n: int = 20_000, *, seed: int = 0) -> dict[str, pd.DataFrame]:
    """n patients, and up to 12 visits of each, by a public rule: habits and frailty of a patient show in all of the visits.

    >>> {name: list(table.columns)[:3] for name, table in simulated_patients(50).items()}
    {'patients': ['patient', 'age', 'sex'], 'visits': ['patient', 'date', 'ward']}
    """
    rng = np.random.default_rng(seed)
    age = np.clip(np.where(rng.random(n) < 0.2, rng.gamma(2, 6, n), rng.normal(55, 18, n)), 0, 95).astype(int)
    male, smoker = rng.random(n) < 0.48, rng.random(n) < np.where(age < 16, 0.0, 0.26)
    region = rng.choice(4, n, p=[0.4, 0.2, 0.25, 0.15])
    frail = rng.normal(0, 1, n) + 0.025 * (age - 50) + 0.5 * smoker
    weights = np.stack([np.full(n, 1.6), 0.2 + (age / 60) ** 2, 0.15 + age / 160, 0.25 + (age < 45)], 1)
    habit = (weights.cumsum(1) / weights.sum(1, keepdims=True) < rng.random((n, 1))).sum(1)
    insurance = (rng.random(n)[:, None] < np.stack([0.15 + 0.1 * (region == 1), 0.75 - 0.004 * age], 1)).sum(1)
    logit = -2.6 + 0.03 * (age - 50) + 0.5 * frail + 1.8 * (habit == 2) + 0.7 * (habit == 1)
    count = np.minimum(rng.poisson(np.exp(0.55 + 0.33 * frail + 0.25 * (habit == 2))), _MOST)
    owner = np.repeat(np.arange(n), count)
    place = np.arange(len(owner)) - np.repeat(count.cumsum() - count, count)
    ward = np.zeros(len(owner), int)
    usual = np.array([2, 0, 1, 4])[habit][owner]
    for t in range(_MOST):
        rows = np.flatnonzero(place == t)
        drawn, kind = rng.random(len(rows)), usual[rows]
        fresh = np.where(drawn < 0.45, kind, np.where(drawn < 0.7, 2, rng.choice([0, 3, 5], len(rows))))
        stays = (rng.random(len(rows)) < np.array([0.5, 0.75, 0.3, 0.45, 0.6, 0.15])[ward[rows - 1]]) & (t > 0)
        ward[rows] = np.where(stays, ward[rows - 1], fresh)
    table = np.array(
        [
            [0.4, 0.25, 0.02, 0.0, 0.23, 0.1, 0.0],
            [0.05, 0.05, 0.05, 0.0, 0.05, 0.0, 0.8],
            [0.4, 0.05, 0.35, 0.05, 0.15, 0.0, 0.0],
            [0.1, 0.0, 0.0, 0.25, 0.25, 0.3, 0.1],
            [0.1, 0.1, 0.0, 0.0, 0.1, 0.0, 0.7],
            [0.0, 0.45, 0.05, 0.4, 0.1, 0.0, 0.0],
        ]
    )
    reason = (table.cumsum(1)[ward] < rng.random((len(owner), 1))).sum(1)
    strong = 0.8 * frail[owner] + 0.9 * np.isin(ward, [0, 5]) + 1.0 * (reason == 1) - 0.8 * (reason == 0)
    severity = np.clip(np.rint(2.3 + strong + 0.6 * rng.standard_normal(len(owner))), 1, 5).astype(int)
    cost = np.exp(
        4.5 + 0.55 * severity + 1.2 * (reason == 5) + 0.5 * np.isin(ward, [0, 1]) + 0.4 * rng.standard_normal(len(owner))
    )
    wait = np.exp(5.0 - 0.35 * severity - 1.6 * (ward == 1) + 0.7 * rng.standard_normal(len(owner)))
    start = rng.integers(0, 500, n)[owner]
    gaps = np.where(place == 0, 0, np.maximum(1, wait)).astype(int)
    total = gaps.cumsum()
    day = start + total - np.repeat(total[place == 0], count[count > 0])
    kept = day < 1096  # later visits are after the end of the study
    visits = pd.DataFrame(
        {
            "patient": owner + 1,
            "date": np.datetime64("2020-01-01", "s") + day * np.timedelta64(1, "D"),
            "ward": np.array(_WARDS)[ward],
            "reason": np.array(_REASONS)[reason],
            "severity": severity,
            "cost": np.clip(cost, 1, 1e5).round(),
        }
    )
    patients = pd.DataFrame(
        {
            "patient": np.arange(1, n + 1),
            "age": age,
            "sex": np.where(male, "male", "female"),
            "region": np.array(["east", "north", "south", "west"])[region],
            "insurance": np.array(["plus", "basic", "none"])[insurance],
            "smoker": smoker,
            "diabetic": rng.random(n) < 1 / (1 + np.exp(-logit)),
        }
    )
    return {"patients": patients, "visits": visits[kept].reset_index(drop=True)}
