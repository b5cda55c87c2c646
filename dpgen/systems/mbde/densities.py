"""Public references Q0, the density of one draw relative to them, clipped to a box, and its draws.

A reference is sampled freely and has a density where there is one. Densities of a draw are PRIVATE: only draws may leave.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from dpgen.privacy.curator import Curator
from dpgen.privacy.mechanisms import Secrets, require_whole, require_within
from dpgen.release import PrivateDensity, PrivateSampler, PublicModel
from dpgen.systems.mbde.plan import CODEBOOKS, EPSILONS, require_alpha

PublicSampler = Callable[[int, torch.Generator], Tensor]
"""Gives n points (n, d) of Q0 from public randomness."""


class Reference(ABC):
    """A public distribution on R^d of public centre and scale (d,), in the user's units; networks see (x - location) / scale.

    `bounds` is a public box (d, 2) that the support is cut to, or None.
    """

    bounds: Tensor | None = None

    def __init__(self, location: Tensor, scale: Tensor) -> None:
        self.location, self.scale = (torch.as_tensor(values, dtype=torch.float64) for values in (location, scale))
        if self.location.ndim != 1 or not len(self.location) or not bool(torch.isfinite(self.location).all()):
            raise ValueError(f"location is {self.location.tolist()}; it must be a vector (d,) of finite numbers, d at least 1")
        if self.location.shape != self.scale.shape or not bool(((self.scale > 0) & torch.isfinite(self.scale)).all()):
            raise ValueError(f"scale is {self.scale.tolist()}; it must have finite entries > 0, one for each of location")

    @property
    def d(self) -> int:
        """Dimension."""
        return len(self.location)

    @abstractmethod
    def sample(self, n: int, *, generator: torch.Generator) -> Tensor:
        """n points (n, d) in float64 from public randomness."""

    def draw(self, n: int, secrets: Secrets) -> Tensor:
        """n fresh points (n, d) for a private draw, from a generator that is seeded anew.

        That is enough: the guarantee of a draw holds for every set of candidates, known or not.
        """
        seed = int.from_bytes(secrets.random_bytes(8), "big") >> 1
        return self.sample(n, generator=torch.Generator().manual_seed(seed))

    def evaluation_points(self, n: int) -> Tensor:
        """n points (n, d), always the same, whose means stand for expectations under Q0."""
        return self.sample(n, generator=torch.Generator().manual_seed(0))

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density (n,) in nats at points (n, d)."""
        raise ValueError(f"the reference {type(self).__name__} has no density, which likelihoods need")

    def standardised(self, x: Tensor) -> Tensor:
        """Points as networks see them: float32 (n, d) in public units."""
        return ((x - self.location) / self.scale).to(torch.float32)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(d={self.d})"


class StandardReference(Reference):
    """A reference with independent coordinates and a quantile function, so that it can be drawn securely."""

    def __init__(self, location: Tensor, scale: Tensor, *, bounds: Tensor | None = None) -> None:
        super().__init__(location, scale)
        self.bounds = None if bounds is None else require_bounds(bounds, self.d)
        low, high = torch.full_like(self.location, -math.inf), torch.full_like(self.location, math.inf)
        if self.bounds is not None:
            low, high = ((self.bounds - self.location[:, None]) / self.scale[:, None]).unbind(1)
        self._low, self._high = low, high
        self._floor, ceiling = self._cdf(low), self._cdf(high)
        self._mass = ceiling - self._floor
        if not bool((self._mass > 1e-6).all()):
            raise ValueError("bounds must hold more than 1e-6 of the reference in every column; move location or scale")

    @abstractmethod
    def _cdf(self, z: Tensor) -> Tensor: ...

    @abstractmethod
    def _inverse_cdf(self, p: Tensor) -> Tensor: ...

    @abstractmethod
    def _log_density(self, z: Tensor) -> Tensor: ...

    def _points(self, u: Tensor) -> Tensor:
        """Points of uniforms in (0, 1), both (n, d), never outside the bounds."""
        z = self._inverse_cdf(self._floor + self._mass * u).maximum(self._low).minimum(self._high)
        x = self.location + self.scale * z
        return x if self.bounds is None else x.maximum(self.bounds[:, 0]).minimum(self.bounds[:, 1])

    def sample(self, n: int, *, generator: torch.Generator) -> Tensor:
        u = torch.rand(n, self.d, dtype=torch.float64, generator=generator).clamp(2.0**-53, 1 - 2.0**-53)
        return self._points(u)

    def draw(self, n: int, secrets: Secrets) -> Tensor:
        return self._points(secrets.uniform(n, self.d))

    def evaluation_points(self, n: int) -> Tensor:
        """Quasi-random points: the error of a mean falls almost as 1 / n."""
        u = SobolEngine(self.d, scramble=True, seed=0).draw(n, dtype=torch.float64)
        return self._points(u.clamp(2.0**-53, 1 - 2.0**-53))

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density (n,) in nats; -inf outside the support."""
        z = (x.to(torch.float64) - self.location) / self.scale
        inside = (z >= self._low) & (z <= self._high)
        standard = torch.where(inside, self._log_density(z) - self._mass.log(), -math.inf).sum(1)
        return standard - self.scale.log().sum()


class GaussianReference(StandardReference):
    """N(location, diag(scale^2)), cut to the bounds if there are any; the paper's Q0 is location 0, scale 1.

    >>> GaussianReference.standard(2).log_prob(torch.zeros(1, 2)).item() == -math.log(2 * math.pi)
    True
    """

    @classmethod
    def standard(cls, d: int) -> GaussianReference:
        """N(0, I) in d dimensions."""
        return cls(torch.zeros(d), torch.ones(d))

    def _cdf(self, z: Tensor) -> Tensor:
        return torch.special.ndtr(z)

    def _inverse_cdf(self, p: Tensor) -> Tensor:
        return torch.special.ndtri(p)

    def _log_density(self, z: Tensor) -> Tensor:
        return -0.5 * z * z - 0.5 * math.log(2 * math.pi)


class UniformReference(StandardReference):
    """The uniform distribution on a public box (d, 2)."""

    def __init__(self, bounds: Tensor) -> None:
        bounds = require_bounds(bounds, len(bounds))
        super().__init__(bounds.mean(1), (bounds[:, 1] - bounds[:, 0]) / 2, bounds=bounds)

    def _cdf(self, z: Tensor) -> Tensor:
        return (z + 1) / 2

    def _inverse_cdf(self, p: Tensor) -> Tensor:
        return 2 * p - 1

    def _log_density(self, z: Tensor) -> Tensor:
        return torch.full_like(z, -math.log(2))


class ModelReference(Reference):
    """A generative model of public data: a released model, or any callable (n, generator) -> points (n, d)."""

    def __init__(self, model: PublicModel | PublicSampler) -> None:
        self.model = model
        public = self._sample(4096, torch.Generator().manual_seed(0))
        super().__init__(public.mean(0), public.std(0).clamp_min(1e-6))

    def _sample(self, n: int, generator: torch.Generator, d: int | None = None) -> Tensor:
        if isinstance(self.model, PublicModel):
            drawn: Any = self.model.samples(n, random_state=int(torch.randint(2**62, (), generator=generator)))
            x = getattr(drawn, "x", None)
            if not isinstance(x, Tensor):
                raise ValueError(
                    f"the model {type(self.model).__name__} draws no records x (n, d); wrap it in a callable that does"
                )
        else:
            x = self.model(n, generator)
        if x.ndim != 2 or len(x) != n or d not in (None, x.shape[1]) or not bool(torch.isfinite(x).all()):
            raise ValueError(
                f"the reference drew an array of shape {tuple(x.shape)}; it must be finite points ({n}, {d or 'd'})"
            )
        return x.to(torch.float64)

    def sample(self, n: int, *, generator: torch.Generator) -> Tensor:
        return self._sample(n, generator, self.d)


def require_bounds(bounds: Tensor, d: int) -> Tensor:
    """A public box (d, 2) in float64."""
    if hasattr(bounds, "fit") or hasattr(bounds, "transform"):
        raise ValueError(
            f"bounds is a {type(bounds).__name__}: a scaler fitted to private records is not public; give the numbers of a box "
            "that is known without looking at the records"
        )
    bounds = torch.as_tensor(bounds, dtype=torch.float64)
    if bounds.shape != (d, 2):
        raise ValueError(f"bounds has shape {tuple(bounds.shape)}; it must be ({d}, 2): low and high of each column")
    if not bool(torch.isfinite(bounds).all()) or not bool((bounds[:, 0] < bounds[:, 1]).all()):
        raise ValueError(f"bounds is {bounds.tolist()}; every row must be finite and increasing")
    return bounds


_SHRINK = 1e-9
_BISECTIONS, _NEWTON_STEPS = 32, 6
_RANGE = 600.0  # nats; no box is wider, and exponentials stay finite


@dataclass(frozen=True)
class Box:
    r"""All densities with :math:`a \le Q / Q_0 \le b`, 0 < a <= 1 <= b: an epsilon-mollifier if :math:`b / a \le e^\epsilon`.

    Source: Husain et al. 2020, section 2.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= 1 <= self.high < math.inf:
            raise ValueError(f"low is {self.low!r} and high is {self.high!r}; they must satisfy 0 < low <= 1 <= high < inf")

    @classmethod
    def of(cls, epsilon: float, alpha: float | None = None) -> Box:
        r"""The box of a budget: symmetric, or asymmetric with :math:`a = 1 / (1 + \alpha (e^\epsilon - 1))`, b = a e^epsilon.

        The most that KL(P, Q0) can fall by is log b: epsilon / 2 in the symmetric box, up to epsilon for small alpha. A
        density inside gives the value b to at most a fraction alpha of Q0, so alpha, which is public, should be what P is
        thought to cover of Q0. alpha = 1 / (1 + e^(epsilon / 2)) is the symmetric box; with Q0 as the ceiling of P up to a
        factor 1 / alpha, it is the minimax sampler of Park et al. 2024. The budget is shrunk by 1e-9 of itself, so that
        rounding cannot leave it.

        >>> box = Box.of(2.0)
        >>> round(box.low * box.high, 12), round(math.log(box.high), 6)
        (1.0, 1.0)
        """
        epsilon = require_within("epsilon", epsilon, EPSILONS, " for one draw") * (1 - _SHRINK)
        if alpha is None:
            return cls(math.exp(-epsilon / 2), math.exp(epsilon / 2))
        low = 1 / (1 + require_alpha(alpha) * math.expm1(epsilon))
        return cls(low, low * math.exp(epsilon))

    @property
    def epsilon(self) -> float:
        """Largest log-ratio of two densities inside, in nats."""
        return math.log(self.high / self.low)


def mollified(log_ratio: Tensor, box: Box) -> Tensor:
    r"""The density ratio :math:`\mathrm{clip}(r / C, a, b)` whose mean is 1, row by row.

    It minimises KL(P, Q) over the box when :math:`r = dP / dQ_0`. C is found by a fixed number of bisections and guarded Newton
    steps; what they leave is made up by a mixture with a constant ratio, so the mean is 1 and the box holds for any input.
    `log_ratio` (..., m) is finite.

    Source: Husain et al. 2020, equation 8.

    >>> mollified(torch.tensor([[0.0, 9.0]]), Box(0.5, 2.0)).round(decimals=9).tolist()
    [[0.5, 1.5]]
    """
    values = log_ratio.to(torch.float64)
    top = values.amax(-1, keepdim=True)
    values = values.maximum(top - _RANGE)
    ratio = (values - top).exp()  # <= 1, whatever the inputs
    low = (values.amin(-1, keepdim=True) - top) - math.log(box.high)
    high = torch.full_like(low, -math.log(box.low))
    for _ in range(_BISECTIONS):  # to 1e-7 nats; from afar Newton creeps
        log_c = (low + high) / 2
        heavy = _mean((ratio * (-log_c).exp()).clamp(box.low, box.high)) > 1
        low, high = torch.where(heavy, log_c, low), torch.where(heavy, high, log_c)
    scale = (-(low + high) / 2).exp()
    for _ in range(_NEWTON_STEPS):  # the mean is piecewise linear in 1 / C: exact once the clipped points are known
        scaled = ratio * scale
        weights = scaled.clamp(box.low, box.high)
        free = torch.where(weights == scaled, ratio, 0.0)
        guess = scale + (1 - _mean(weights)) / _mean(free)
        scale = torch.where((guess > (-high).exp()) & (guess < (-low).exp()), guess, scale)
    return _with_mean_one((ratio * scale).clamp(box.low, box.high), box)


def _mean(values: Tensor) -> Tensor:
    return values.mean(-1, keepdim=True)


def _with_mean_one(weights: Tensor, box: Box) -> Tensor:
    """Move every weight towards the same end of the box until the mean is 1."""
    mean = _mean(weights)
    end = torch.where(mean < 1, torch.full_like(mean, box.high), torch.full_like(mean, box.low))
    share = ((1 - mean) / (end - mean)).nan_to_num(0.0).clamp(0.0, 1.0)
    return (weights + share * (end - weights)).clamp(box.low, box.high)


PrivateFunction = Callable[[Tensor], Tensor]
"""Points (n, d) in the user's units to values (n,): learned from private data, trusted in nothing."""

LARGEST_LOGIT = 50.0
_ROWS = 4096
_EDGE = 1e-4
_PUBLIC_POINTS = 2**17


def bounded(values: Tensor, n: int) -> Tensor:
    """Values of a network as float64 (n,) in [-50, 50], one for each point; what is not finite becomes 0."""
    if values.numel() != n:
        raise ValueError(f"the classifier gave values of shape {tuple(values.shape)}; it must give one for each of {n} points")
    values = values.detach().reshape(n).to("cpu", torch.float64)
    return torch.where(torch.isfinite(values), values, 0.0).clamp(-LARGEST_LOGIT, LARGEST_LOGIT)


@torch.no_grad()
def evaluated(function: PrivateFunction, x: Tensor) -> Tensor:
    """`bounded` values (n,) at points (n, d), a part at a time: the number of calls depends on n only."""
    return torch.cat([bounded(function(part), len(part)) for part in x.split(_ROWS)])


class ClippedDensity(PrivateDensity):
    r"""The density clip(r / C, a, b) Q0 that draws follow as the codebook grows, private: normalised up to the error of a mean
    over 2^17 public points.

    `function` estimates the log density ratio of P to Q0 from private data; `box` has a and b; epsilon is of one draw. Of a
    boosted f with :math:`|f| \le \epsilon / 4` nothing is clipped: this is :math:`Q_0 e^f / E_{Q_0} e^f` (2020, Theorem 4).

    Source: Husain et al. 2018, Lemma 4 (densities of an epsilon-mollifier may be sampled, not shown); 2020, equation 8.
    """

    def __init__(self, function: PrivateFunction, reference: Reference, *, box: Box, epsilon: float) -> None:
        self.function, self.reference, self.box, self.epsilon = function, reference, box, epsilon
        self._constant: float | None = None

    def log_ratio(self, x: Tensor) -> Tensor:
        if self._constant is None:
            values = evaluated(self.function, self.reference.evaluation_points(_PUBLIC_POINTS))
            weights = mollified(values, self.box)
            free = (weights > self.box.low * (1 + _EDGE)) & (weights < self.box.high * (1 - _EDGE))
            constants = (values - weights.log())[free if bool(free.any()) else slice(None)]
            self._constant = float(constants.median())
        return (evaluated(self.function, x) - self._constant).clamp(math.log(self.box.low), math.log(self.box.high))


# -- draws by sampling importance resampling ---------------------------------------------------------------------------


SIR_DRAWS = "SIR draws"
WORD_BITS = 62
_VALUES_AT_ONCE = 2**17


def whole_weights(log_ratio: Tensor, box: Box) -> Tensor:
    """Weights (k, m) in whole numbers that sum to exactly 2^62, each within [a, b] 2^62 / m: the density of a SIR draw.

    `log_ratio` (k, m) is finite, m in [2, 2^16]. A draw needs no normaliser and no rounding, and two inputs differ by a factor
    of at most b / a.
    """
    m = log_ratio.shape[1]
    require_whole("codebook", m, *CODEBOOKS)
    unit = 2**WORD_BITS / m
    least, most = math.ceil(box.low * unit), math.floor(min(box.high, m) * unit)
    weights = (mollified(log_ratio, box) * unit).to(torch.int64).clamp(least, most)
    missing = 2**WORD_BITS - weights.sum(1, keepdim=True)
    weights += _filled(missing.clamp_min(0), most - weights) - _filled((-missing).clamp_min(0), weights - least)
    return weights


def _filled(amount: Tensor, room: Tensor) -> Tensor:
    """Spread `amount` (k, 1) over the first places that have room (k, m)."""
    room = room.minimum(amount)
    before = room.cumsum(1) - room  # at most m * amount, and the amount is a rounding error: no overflow
    return (amount - before).clamp_min(0).minimum(room)


def chosen(weights: Tensor, secrets: Secrets) -> Tensor:
    """An index (k,) for each row of `whole_weights`, with exactly their probabilities."""
    target = torch.from_numpy(secrets.words(len(weights), bits=WORD_BITS).astype(np.int64))
    return torch.searchsorted(weights.cumsum(1), target[:, None], right=True).squeeze(1)


class SIRSampler(PrivateSampler):
    """Private draws from a learned density ratio by sampling importance resampling (SIR), without a normaliser.

    A codebook of M points of Q0 is drawn; point i is released with probability w_i / M, the weights w in [a, b] of mean 1.
    Whatever the codebook, two data sets give its points probabilities within a factor b / a <= e^epsilon: a draw is
    epsilon-private for any private function, also if the codebook is known, as long as reference and box are public. Work
    and memory depend on k and M (`codebook`) only; the density comes near the ideal one as 1 / M.

    >>> from dpgen.privacy.curator import Curator
    >>> from dpgen.privacy.ledger import Budget, Ledger
    >>> from dpgen.systems.mbde.densities import ClippedDensity, GaussianReference
    >>> curator = Curator(Ledger(Budget(2.0, 0.0), relation="replace_one", unit="the whole data set"))
    >>> density = ClippedDensity(lambda x: x.sum(1), GaussianReference.standard(2), box=Box.of(1.0), epsilon=1.0)
    >>> SIRSampler(density, curator=curator).sample(2).shape, curator.ledger.epsilon()
    (torch.Size([2, 2]), 2.0)
    """

    def __init__(self, density: ClippedDensity, *, curator: Curator, codebook: int = 1024) -> None:
        require_whole("codebook", codebook, *CODEBOOKS)
        if density.box.epsilon > density.epsilon * (1 + 1e-12):
            raise ValueError(
                f"box is {density.box}: its log-ratio {density.box.epsilon:.6g} is above epsilon {density.epsilon:g} of a draw"
            )
        super().__init__(epsilon=density.epsilon, curator=curator, note=SIR_DRAWS)
        self._density, self._codebook = density, codebook

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        at_once = max(1, _VALUES_AT_ONCE // self._codebook)  # so that memory stays bounded
        sizes = [min(at_once, count - done) for done in range(0, count, at_once)]
        return torch.cat([self._part(size, secrets) for size in sizes])

    def _part(self, k: int, secrets: Secrets) -> Tensor:
        """k independent draws (k, d), each out of fresh points of the reference."""
        m = self._codebook
        points = self._density.reference.draw(k * m, secrets)
        log_ratio = evaluated(self._density.function, points).reshape(k, m)
        return points.reshape(k, m, -1)[torch.arange(k), chosen(whole_weights(log_ratio, self._density.box), secrets)]
