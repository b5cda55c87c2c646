"""Discrete pairs of distributions of the loss of one mechanism, which dominate it.

The pair lives on the grid `step * Z`. Each cell of losses keeps its mass under both distributions, split between its two ends
("connect the dots", Doroshenko et al. 2022), so every hockey stick of the discrete pair is at least the true one. In units of
the sensitivity, with `M(+-1) = (1-q) N(0) + q N(+-1)`: `remove` is M(1) against N(0), `add` is N(0) against M(1), and
`replace` is M(1) against M(-1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Direction = Literal["remove", "add", "replace"]

MAX_CELLS = 1 << 22


class TooFine(RuntimeError):
    """The grid would need more cells than is reasonable."""


def _loss(x: Array, rate: float, sigma: float) -> Array:
    """`log(1 - q + q e^((2x - 1) / (2 sigma^2)))`: the loss of removing a record, increasing in x."""
    t = (2 * x - 1) / (2 * sigma**2)
    if rate == 1:
        return t
    near = np.minimum(t, 1.0)
    return np.where(t < 1, np.log1p(rate * np.expm1(near)), np.logaddexp(math.log1p(-rate), math.log(rate) + t))


def _outcome(losses: Array, rate: float, sigma: float) -> Array:
    """Inverse of `_loss`; -inf at or below the smallest loss `log(1 - q)`."""
    if rate == 1:
        return sigma**2 * losses + 0.5
    near = np.minimum(losses, 1.0)
    far = np.maximum(losses, 0.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        small = np.log1p(np.expm1(near) / rate)
        large = far - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-far))
        t = np.where(losses < 1, np.where(np.isnan(small), -np.inf, small), large)
    return sigma**2 * t + 0.5


def _outcome_replaced(losses: Array, rate: float, sigma: float) -> Array:
    """The point at which `(1-q) N(0) + q N(1)` exceeds `(1-q) N(0) + q N(-1)` by the factor `e^loss`."""
    half = np.abs(losses) / 2
    if rate == 1:
        bent = np.zeros_like(half)
    else:
        with np.errstate(divide="ignore"):
            log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
        log_sinh = log_sinh + 0.5 / sigma**2 + math.log1p(-rate) - math.log(rate)
        bent = np.where(log_sinh < 300, np.arcsinh(np.exp(np.minimum(log_sinh, 300))), log_sinh + math.log(2))
    return sigma**2 * np.sign(losses) * (half + bent)


def normal_mass(x: Array, shift: float, sigma: float) -> Array:
    """Mass of N(shift, sigma^2) between consecutive entries of x (m + 1,) -> (m,), to relative precision."""
    from scipy.special import ndtr

    z = (x - shift) / sigma
    low, high = z[:-1], z[1:]
    mirrored = low > 0
    mass = ndtr(np.where(mirrored, -low, high)) - ndtr(np.where(mirrored, -high, low))
    with np.errstate(invalid="ignore"):
        width, mid = high - low, (high + low) / 2
        narrow = (width < 0.02) & (np.abs(mid) * width < 0.02)
    # differences of cdfs cancel in narrow cells: integrate the Taylor series about the middle
    w, m = np.where(narrow, width, 0.0), np.where(narrow, mid, 0.0)
    series = w + (m**2 - 1) * w**3 / 24 + (m**4 - 6 * m**2 + 3) * w**5 / 1920
    return np.where(narrow, np.exp(-(m**2) / 2) / math.sqrt(2 * math.pi) * series, np.maximum(mass, 0.0))


def _tail(x: float, rate: float, sigma: float, *, above: bool) -> float:
    """Mass of `(1-q) N(0) + q N(1)` above or below x."""
    from scipy.special import ndtr

    sign = -1.0 if above else 1.0
    return float((1 - rate) * ndtr(sign * x / sigma) + rate * ndtr(sign * (x - 1) / sigma))


@dataclass(frozen=True)
class Grid:
    """Discrete losses `(start + i) * step` with masses (m,); `infinite` is the mass that may have any loss."""

    start: int
    step: float
    masses: Array
    infinite: float

    @cached_property
    def losses(self) -> Array:
        return (self.start + np.arange(len(self.masses))) * self.step

    @cached_property
    def log_masses(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self.masses)

    def log_moment(self, tilt: float) -> float:
        """`log E e^(tilt * loss)` over the finite losses."""
        exponents = self.log_masses + tilt * self.losses
        top = float(exponents.max())
        return top + math.log(float(np.exp(exponents - top).sum()))


def discretise(
    rate: float, sigma: float, direction: Direction, *, step: float, tail: float, max_cells: int = MAX_CELLS
) -> Grid:
    """A discrete pair that dominates one Poisson-sampled Gaussian; at most `tail` of its mass is put at infinity."""
    from scipy.special import ndtri

    reach = -float(ndtri(max(tail, 1e-300))) * sigma
    high = reach + (0.0 if direction == "add" else 1.0)
    if direction == "replace":
        top = float(_loss(np.array(high), rate, sigma) - _loss(np.array(-high), rate, sigma))
        bottom = -top
    else:
        top = float(_loss(np.array(high), rate, sigma))
        bottom = float(_loss(np.array(-reach), rate, sigma)) if rate == 1 else math.log1p(-rate)
    first, last = math.floor(bottom / step), math.ceil(top / step)
    if last - first > max_cells:
        raise TooFine(f"{last - first} cells of {step:.3g} nats for one mechanism")
    losses = np.arange(first, last + 1) * step
    if direction == "replace":
        x = _outcome_replaced(losses, rate, sigma)
        still = (1 - rate) * normal_mass(x, 0.0, sigma) if rate < 1 else 0.0
        upper, lower = still + rate * normal_mass(x, 1.0, sigma), still + rate * normal_mass(x, -1.0, sigma)
    else:
        x = _outcome(losses, rate, sigma)
        lower = normal_mass(x, 0.0, sigma)
        upper = (1 - rate) * lower + rate * normal_mass(x, 1.0, sigma)
    if direction == "add":
        masses = connect(lower[::-1], upper[::-1], -losses[:0:-1], step)
        masses[0] += _tail(float(x[-1]), 0.0, sigma, above=True)
        return Grid(-last, step, masses, 0.0)
    masses = connect(upper, lower, losses[:-1], step)
    masses[0] += _tail(float(x[0]), rate, sigma, above=False)
    return Grid(first, step, masses, _tail(float(x[-1]), rate, sigma, above=True))


def connect(upper: Array, lower: Array, losses: Array, step: float) -> Array:
    """Split cell masses (m,) over the cell ends (m + 1,) so that both distributions keep the mass of every cell."""
    usable = (lower > 1e-290) & (upper > 1e-290)
    log_ratio = losses + np.log(np.where(usable, lower, 1.0)) - np.log(np.where(usable, upper, 1.0))
    # 2e-14 covers the rounding of the masses; it moves losses by 2e-14 nats
    up = np.where(usable, (2e-14 - np.expm1(np.minimum(log_ratio, 1.0))) / -math.expm1(-step), 1.0)
    raised = upper * np.clip(up, 0.0, 1.0)
    masses = np.zeros(len(upper) + 1)
    masses[:-1] += upper - raised
    masses[1:] += raised
    return masses


def loss_variance(rate: float, sigma: float, direction: Direction) -> float:
    """Variance of the loss of one mechanism, good to some percent: a scale, not a bound."""
    z = np.linspace(-9, 9, 721)
    weights = np.exp(-(z**2) / 2)
    weights /= weights.sum()
    shares = ((1.0, 0.0),) if direction == "add" else ((1 - rate, 0.0), (rate, 1.0))
    x = np.concatenate([shift + sigma * z for _, shift in shares])
    mass = np.concatenate([share * weights for share, _ in shares])
    loss = _loss(x, rate, sigma) - (_loss(-x, rate, sigma) if direction == "replace" else 0.0)
    return float(mass @ (loss - mass @ loss) ** 2)
