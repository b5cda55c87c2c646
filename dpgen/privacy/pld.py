"""Privacy loss distributions of composed Gaussians, Poisson-sampled or allocated: hockey sticks that are never below the truth.

A mechanism becomes a pair of discrete distributions of its loss that dominates it (`Grid`). The pair lives on the
grid `step * Z`. Each cell of losses keeps its mass under both distributions, split between its two ends ("connect the
dots", Doroshenko et al. 2022), so every hockey stick of the discrete pair is at least the true one. In units of the
sensitivity, with `M(+-1) = (1-q) N(0) + q N(+-1)`: `remove` is M(1) against N(0), `add` is N(0) against M(1), and
`replace` is M(1) against M(-1). A rate above 1 is the number of steps of an epoch of random allocation, see `allocation.py`.

Dominating pairs compose adaptively (Zhu, Dong, Wang 2022, Theorem 10). Masses are tilted by `e^(tilt * loss)` before
the FFT, so that the losses that decide epsilon sit in the middle of a short window and small deltas keep their
relative accuracy. Mass above the window is bounded by Chernoff and added to delta; mass below it can only wrap
around, which adds mass. Rounding errors get an allowance. The grid is halved until epsilon settles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """A discrete pair that dominates one sampled Gaussian, or epoch; at most `tail` of its mass is put at infinity."""
    from scipy.special import ndtri

    if rate > 1:
        from dpgen.privacy.allocation import discretised_epoch

        return discretised_epoch(int(rate), sigma, direction, step=step, tail=tail, max_cells=max_cells)
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
    if rate > 1:
        return math.log1p(math.expm1(min(sigma**-2, 700.0)) / rate)
    z = np.linspace(-9, 9, 721)
    weights = np.exp(-(z**2) / 2)
    weights /= weights.sum()
    shares = ((1.0, 0.0),) if direction == "add" else ((1 - rate, 0.0), (rate, 1.0))
    x = np.concatenate([shift + sigma * z for _, shift in shares])
    mass = np.concatenate([share * weights for share, _ in shares])
    loss = _loss(x, rate, sigma) - (_loss(-x, rate, sigma) if direction == "replace" else 0.0)
    return float(mass @ (loss - mass @ loss) ** 2)


Parts = Mapping[tuple[float, float], int]

_CUT = 1e-5  # share of delta given to cut-off tails
_WRAP = 1e-9  # tilted mass allowed to wrap around
_REFINED = 3e-4  # relative error at which refining stops
_COARSE_CELLS = 10_000


@dataclass(frozen=True)
class _Tail:
    """Hockey stick on a window of losses (m,): masses strictly above each loss, scaled by `e^-log_scale`."""

    losses: Array
    centre: float
    log_scale: float
    above: Array
    above_other: Array  # the same under the other distribution, times e^centre
    infinite: float

    def epsilon(self, delta: float) -> float | None:
        """Smallest epsilon of the window at `delta`, None when the window starts above it."""
        if delta <= self.infinite:
            return math.inf
        hockey = self.above - np.exp(self.losses - self.centre) * self.above_other
        deltas = self.infinite + np.exp(np.minimum(self.log_scale + np.log(np.maximum(hockey, 1e-320)), 0.0))
        i = int(np.searchsorted(-deltas, -delta, side="left"))
        if i == 0:
            return None
        if i == len(self.losses):
            return math.inf
        left = self.above[i - 1] - math.exp(math.log(delta - self.infinite) - self.log_scale)
        if left <= 0 or self.above_other[i - 1] <= 0:
            return float(self.losses[i])
        exact = self.centre + math.log(left / self.above_other[i - 1])
        return float(min(max(exact, self.losses[i - 1]), self.losses[i]))


class Composition:
    """`counts[i]` copies of `grids[i]`, all of one step."""

    def __init__(self, grids: Sequence[Grid], counts: Sequence[int]) -> None:
        self.grids, self.counts = grids, counts
        self.step = grids[0].step
        self.infinite = sum(n * g.infinite for g, n in zip(grids, counts))  # >= 1 - prod (1 - infinite)^n

    def log_moment(self, tilt: float) -> float:
        """`log E e^(tilt * loss)` of the sum of all losses."""
        return sum(n * g.log_moment(tilt) for g, n in zip(self.grids, self.counts))

    def tail(self, tilt: float, low: float, high: float, log_above: float) -> _Tail:
        """Hockey stick between `low` and `high`, by one FFT; the mass above `high` is at most `e^log_above`."""
        from scipy.fft import irfft, next_fast_len, rfft

        first = math.floor(low / self.step)
        width = math.ceil(high / self.step) - first + 2
        if width > MAX_CELLS:
            raise TooFine(f"{width} cells of {self.step:.3g} nats for the composition")
        size = int(next_fast_len(width, real=True))
        product = np.ones(size // 2 + 1, dtype=np.complex128)
        shift, log_scale, mean = 0, 0.0, 0.0
        for grid, count in zip(self.grids, self.counts):
            log_moment = grid.log_moment(tilt)
            tilted = np.exp(grid.log_masses + tilt * grid.losses - log_moment)
            middle = float(tilted @ np.arange(len(tilted)))
            product *= rfft(_fold(tilted, round(middle), size)) ** count
            shift += count * (grid.start + round(middle))
            mean += count * (grid.start + middle) * self.step
            log_scale += count * log_moment
        composed = irfft(product, size)
        # each Fourier coefficient is off by a few units in the last place per factor
        allowance = 1e-15 * (8 + sum(self.counts)) * float(np.abs(product).mean())
        composed = np.roll(np.maximum(composed, 0.0) + allowance, shift - first)[:width]
        losses = (first + np.arange(width)) * self.step
        return _tail_of(composed, losses, mean, tilt, log_scale, self.infinite + math.exp(log_above))


def _tail_of(tilted: Array, losses: Array, centre: float, tilt: float, log_scale: float, infinite: float) -> _Tail:
    """Undo the tilt and sum from above, where exponentials do not overflow (delta spans e^+-600 there)."""
    reach = 600.0 / (1.0 + tilt)
    kept = losses >= centre - reach
    tilted, losses = tilted[kept], losses[kept]
    masses = tilted * np.exp(np.maximum(-tilt * (losses - centre), -700.0))
    others = masses * np.exp(np.maximum(centre - losses, -700.0))
    above, above_other = (np.append(np.cumsum(m[:0:-1])[::-1], 0.0) for m in (masses, others))
    kept = losses <= centre + reach
    return _Tail(losses[kept], centre, log_scale - tilt * centre, above[kept], above_other[kept], infinite)


def _fold(values: Array, origin: int, size: int) -> Array:
    """Circular array (size,) with `values[origin]` at 0."""
    padded = np.zeros(math.ceil(len(values) / size) * size)
    padded[: len(values)] = values
    return np.roll(padded.reshape(-1, size).sum(axis=0), -origin)


def _minimise(objective: Callable[[float], float], scale: float) -> float:
    """Positive argument that makes `objective` smallest, to a few percent, searched about `scale`."""
    logs = math.log(scale) + np.arange(-9.0, 8.0, 1.0)
    best = float(logs[int(np.argmin([objective(math.exp(x)) for x in logs]))])
    low, high = best - 1.0, best + 1.0
    for _ in range(8):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if objective(math.exp(left)) < objective(math.exp(right)) else (left, high)
    return math.exp((low + high) / 2)


class Plan:
    """Steps, tilts and tails for one composition in one direction, found on a coarse grid."""

    def __init__(self, parts: Parts, direction: Direction, log_tail: float) -> None:
        self.parts, self.direction = parts, direction
        total = sum(parts.values())
        self.tail = math.exp(max(log_tail, -690.0)) / total
        variance = sum(n * loss_variance(q, s, direction) for (q, s), n in parts.items())
        self.spread = math.sqrt(variance)
        # a step h adds about h^2 / 6 to the variance of each loss: start at 1 %, finer where losses are few
        self.step = max(0.25 * self.spread / math.sqrt(total + 400), 1e-300)
        coarse = self.step
        while True:
            try:
                self.coarse = self.compose(coarse, _COARSE_CELLS)
                break
            except TooFine:
                coarse *= 2

    def compose(self, step: float, max_cells: int = MAX_CELLS) -> Composition:
        grids = [discretise(q, s, self.direction, step=step, tail=self.tail, max_cells=max_cells) for q, s in self.parts]
        return Composition(grids, list(self.parts.values()))

    def tilt_for_delta(self, log_delta: float) -> float:
        """Minimiser of the Chernoff epsilon `(K(tilt) - log delta) / tilt`."""
        scale = math.sqrt(max(-2 * log_delta, 1e-6)) / self.spread
        return self.limited(_minimise(lambda t: (self.coarse.log_moment(t) - log_delta) / t, scale))

    def limited(self, tilt: float) -> float:
        """Any tilt is valid; one that sees a single cell (bounded losses ask for it) would be useless."""
        return min(tilt, 5.0 / self.step)

    def levels(self, tilt: float, log_cut: float) -> Iterator[_Tail]:
        """Ever finer hockey sticks, each an upper bound, with at most `2 e^log_cut` of delta from cut-off tails."""
        moment, log_wrap = self.coarse.log_moment, math.log(_WRAP)
        steep = self.tilt_for_delta(log_cut)
        scale = math.sqrt(-2 * log_wrap) / self.spread
        up = _minimise(lambda u: (moment(tilt + u) - moment(tilt) - log_wrap) / u, scale)
        down = _minimise(lambda u: (moment(tilt - u) - moment(tilt) - log_wrap) / u, scale)
        step = self.step
        while True:
            try:
                fine = self.compose(step)
                at_tilt = fine.log_moment(tilt)
                high = max((fine.log_moment(steep) - log_cut) / steep, (fine.log_moment(tilt + up) - at_tilt - log_wrap) / up)
                low = (log_wrap + at_tilt - fine.log_moment(tilt - down)) / down
                yield fine.tail(tilt, low, high, log_cut)
            except TooFine:
                if step < self.step:
                    return
                self.step = step = 4 * step
            step /= 2


def epsilon(parts: Parts, delta: float, direction: Direction, *, enough: float = 0.0) -> float:
    """Epsilon at `delta` of `{(sampling_rate, noise_multiplier): count}` in one direction, to .03 % or `enough`.

    >>> round(epsilon({(0.01, 1.0): 1000}, 1e-5, "remove"), 2)
    1.83
    """
    log_delta = math.log(delta)
    log_cut = log_delta + math.log(_CUT)
    plan = Plan(parts, direction, log_cut)
    tilt = plan.tilt_for_delta(log_delta)
    best = math.inf
    for _ in range(60):
        found: float | None = None
        for tail in plan.levels(tilt, log_cut):
            found = tail.epsilon(delta * (1 - 1e-9))
            value = max(0.0, float(tail.losses[0]) if found is None else found)
            settled = value <= enough or best - value < 3 * _REFINED * value
            best = min(best, value)
            if found is None or settled:
                break
        if found is not None or best <= enough:
            break
        tilt /= 2  # bounded losses: Chernoff, and with it the window, is far above epsilon
    return best
