"""Privacy loss distributions of composed Gaussians, Poisson-sampled or allocated: hockey sticks that are never below the truth.

Each mechanism becomes a pair of discrete distributions of its loss that dominates it: `pairs.py`, and `allocation.py` for
epochs, of which a "rate" above 1 is the number of steps. Dominating pairs compose adaptively (Zhu, Dong, Wang 2022, Theorem
10). Masses are tilted by `e^(tilt * loss)` before the FFT, so that the losses that decide epsilon sit in the middle of a short
window and small deltas keep their relative accuracy. Mass above the window is bounded by Chernoff and added to delta; mass
below it can only wrap around, which adds mass. Rounding errors get an allowance. The grid is halved until epsilon settles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen.privacy.allocation import discretised_epoch, epoch_variance
from dpgen.privacy.pairs import MAX_CELLS, Direction, Grid, TooFine, discretise, loss_variance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

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
        variance = sum(
            n * (epoch_variance(int(q), s) if q > 1 else loss_variance(q, s, direction)) for (q, s), n in parts.items()
        )
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
        fine: dict[str, Any] = {"step": step, "tail": self.tail, "max_cells": max_cells}
        grids = [
            discretised_epoch(int(q), s, self.direction, **fine) if q > 1 else discretise(q, s, self.direction, **fine)
            for q, s in self.parts
        ]
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
