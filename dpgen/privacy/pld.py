r"""Privacy loss distributions of composed Gaussians, Poisson-sampled or allocated: hockey sticks never below the truth.

Each mechanism becomes a pair of discrete distributions of its loss that dominates it; of an epoch of random allocation a "rate"
above 1 is the number of steps. Dominating pairs compose adaptively (Zhu, Dong, Wang 2022, Theorem 10). Masses are tilted by
`e^(tilt * loss)` before the FFT, so that the losses that decide epsilon sit in the middle of a short window and small deltas
keep their relative accuracy. Mass above the window is bounded by Chernoff and added to delta; mass below it can only wrap
around, which adds mass. Rounding errors get an allowance. The grid is halved until epsilon settles.

**One mechanism** is a pair on the grid `step * Z`. Each cell of losses keeps its mass under both distributions, split between
its two ends ("connect the dots", Doroshenko et al. 2022), so every hockey stick of the discrete pair is at least the true one.
In units of the sensitivity, with `M(+-1) = (1-q) N(0) + q N(+-1)`: `remove` is M(1) against N(0), `add` is N(0) against M(1),
and `replace` is M(1) against M(-1).

**Random allocation**: in an epoch of t Gaussian releases every record takes part in one, drawn uniformly and secretly. Take a
neighbour with one record more. The draws of the others do not depend on that record's, so they may be held fixed (hockey sticks
are jointly convex). In its step the record adds a vector, a function of all answers before; let :math:`g_s` be what it would
add in step s, of norm at most 1 in units of the sensitivity, and :math:`b_s` be 1 in its step and 0 elsewhere. Take :math:`z_s
\sim N(b_s, \sigma^2)`. Then :math:`|g_s| z_s` in the direction of :math:`g_s`, with independent noise that fills the variance
up to :math:`\sigma^2` in every direction, is the answer of step s, whatever :math:`b_s` is. So all answers, chosen adaptively,
are post-processing of a draw of one of

.. math:: P = \frac{1}{t} \sum_{i \le t} N(e_i, \sigma^2 I_t), \qquad Q = N(0, \sigma^2 I_t),

which the epoch attains where :math:`g_s` is one unit vector: the bound is exact. Several Gaussian releases of a step have one
sufficient statistic for :math:`b_s`, so they count as one (`effective_multiplier`). Epochs with fresh draws compose (Zhu, Dong,
Wang 2022, Theorem 10), and to stop inside of one is post-processing. Not covered: a replaced record, whose two vectors need
not lie on one line, and batches of fixed size cut from a permutation, where the records' draws depend on each other.

**Numbers of an epoch.** The likelihood ratio :math:`X = \frac{1}{t} \sum_i e^{(2 z_i - 1) / (2 \sigma^2)}` has mean 1 under Q,
and both directions are means of convex functions of it: :math:`E_Q (X - e^\epsilon)_+` and :math:`E_Q (1 - e^\epsilon X)_+`. So
a spread of X that keeps its mean never lowers them, and sums of independent spreads are spreads. Every summand is spread over
the points :math:`e^{jh}` of a grid, each part of its mass over two neighbours, and so are sums of two, by halving t. What is
above the grid counts as revealed; what is below goes to 0 and to the lowest point.

Source: Feldman, Shenfeld 2025 (arXiv 2502.08202) for the pair; 2026 (arXiv 2602.17284) for sums on a geometric grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# -- one mechanism -----------------------------------------------------------------------------------------------------


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


# -- an epoch of random allocation -------------------------------------------------------------------------------------


LEAST_SIGMA = 0.05
"""Noise multipliers below it are left to Renyi moments: their ratios leave the range of doubles."""

_MOST_CELLS = 12_000  # of a grid of sums, whose products are taken one diagonal after the other
_ROUNDING = 1e-11  # nats that losses are raised by; rounding of sums moves them by less


class Sums(NamedTuple):
    """Masses (m,) under Q of sums at `e^((start + i) h)`, and at 0; what was left out above has these masses under P and Q."""

    start: int
    masses: Array
    zero: float
    lost_p: float = 0.0
    lost_q: float = 0.0

    def values(self, step: float) -> Array:
        """The sums (m,)."""
        return np.exp((self.start + np.arange(len(self.masses))) * step)


def _summand(steps: int, sigma: float, step: float, tail: float) -> Sums:
    """One summand `e^loss / t`, spread over a grid of `step`; at most `tail` of its mass under N(1, sigma^2) is left out."""
    from scipy.special import ndtr, ndtri

    reach, shift = -float(ndtri(tail)), math.log(steps)
    first, last = (math.floor((sign * reach / sigma + half / sigma**2 - shift) / step) for sign, half in ((-1, -0.5), (1, 0.5)))
    losses = np.arange(first, last + 2) * step + shift
    x = sigma**2 * losses + 0.5
    with_record = connect(normal_mass(x, 1.0, sigma), normal_mass(x, 0.0, sigma), losses[:-1], step)
    masses = with_record * np.exp(-losses)
    # Below the grid: so much to its lowest point that the mean stays, the rest to 0.
    up = float(ndtr((x[0] - 1) / sigma)) * math.exp(-losses[0])
    masses[0] += up
    zero = max(0.0, float(ndtr(x[0] / sigma)) - up)
    return Sums(first, masses, zero, float(ndtr((1 - x[-1]) / sigma)) / steps, float(ndtr(-x[-1] / sigma)))


def _added(one: Sums, two: Sums, fine: int, step: float) -> Sums:
    """The sum of two independent ones on grids of `fine * step`, spread over a grid of `step`."""
    (a, p), (b, q) = one[:2], two[:2]
    end_a, end_b = a + len(p) - 1, b + len(q) - 1
    start = fine * min(a, b)
    out = np.zeros(fine * max(end_a, end_b) + math.ceil(math.log(2) / step) + 2 - start)
    for d in range(a - end_b, end_a - b + 1):  # the larger summand is e^(|d| fine step) times the smaller one
        first, last = max(a, b + d), min(end_a, end_b + d)
        masses = p[first - a : last - a + 1] * q[first - d - b : last - d - b + 1]
        above = math.log1p(math.exp(-abs(d) * fine * step))
        cells = math.floor(above / step)
        up = math.expm1(above - cells * step) / math.expm1(step)
        at = fine * max(first, first - d) + cells - start
        width = fine * len(masses)
        out[at : at + width : fine] += masses * (1 - up)
        out[at + 1 : at + 1 + width : fine] += masses * up
    out[fine * a - start : fine * end_a - start + 1 : fine] += p * two.zero
    out[fine * b - start : fine * end_b - start + 1 : fine] += q * one.zero
    return Sums(start, out, one.zero * two.zero)


def _trimmed(sums: Sums, step: float, tail: float) -> Sums:
    """The sums without the ends whose masses under P and Q are at most `tail`."""
    x, q = sums.values(step), sums.masses
    above = np.cumsum(((x + 1.0) * q)[::-1])[::-1]
    last = max(0, int(np.searchsorted(-above, -tail)) - 1)
    first = min(int(np.searchsorted(np.cumsum(q), tail)), last)
    up = float((x * q)[:first].sum() / x[first])
    kept = q[first : last + 1].copy()
    kept[0] += up
    zero = sums.zero + max(0.0, float(q[:first].sum()) - up)
    return Sums(sums.start + first, kept, zero, float((x * q)[last + 1 :].sum()), float(q[last + 1 :].sum()))


@lru_cache(maxsize=64)
def ratio(steps: int, sigma: float, step: float, tail: float, max_cells: int) -> Sums:
    """X under Q, spread over a grid of its logarithm; about `tail` of P and Q is left out above; else `TooFine`."""
    depth = (steps - 1).bit_length()
    # A block of 2^-k of all steps may have a grid that is coarser by 2^(k/3): its errors average out.
    fines = [2 if (depth - level) % 3 == 2 else 1 for level in range(1, depth + 1)]
    grids = [step * math.prod(fines[level:]) for level in range(depth + 1)]
    lost_p = lost_q = 0.0

    @cache
    def sums(n: int, level: int) -> Sums:
        """Of a block of n steps, of which there are at most 2^(depth - level)."""
        nonlocal lost_p, lost_q
        if level == 0:
            found = _summand(steps, sigma, grids[0], tail / steps) if n else Sums(0, np.zeros(1), 1.0)
        else:
            halves = sums(n // 2, level - 1), sums(n - n // 2, level - 1)
            found = _trimmed(_added(*halves, fines[level - 1], grids[level]), grids[level], tail * n / steps)
        if len(found.masses) > max_cells:
            raise TooFine(f"{len(found.masses)} cells of {grids[level]:.3g} for {n} of {steps} steps")
        blocks = min(2 ** (depth - level), steps // max(n, 1))
        # X is the block, or others, whose mean is at most 1 and which do not depend on it
        lost_p, lost_q = lost_p + blocks * (found.lost_p + found.lost_q), lost_q + blocks * found.lost_q
        return found

    return sums(steps, depth)._replace(lost_p=lost_p, lost_q=lost_q)


def discretised_epoch(steps: int, sigma: float, direction: Direction, *, step: float, tail: float, max_cells: int) -> Grid:
    """A discrete pair that dominates an epoch of `steps` >= 2 in direction "remove" or "add"; about `tail` is at infinity."""
    if direction == "replace":
        raise ValueError("random allocation has no bound for replaced records")
    found = ratio(steps, sigma, step, tail / 8, min(max_cells, _MOST_CELLS))
    x, q = found.values(step), found.masses
    raised = 2 * _ROUNDING / min(step, 1.0)
    if direction == "remove":
        masses, start, infinite = x * q, found.start, found.lost_p
    else:
        masses, start, infinite = q[::-1], 1 - found.start - len(q), found.lost_q + found.zero
    masses = np.append(masses, 0.0) + np.append(0.0, raised * masses)
    return Grid(start, step, masses, infinite)


def epoch_variance(steps: int, sigma: float) -> float:
    """Variance of the loss of an epoch, good to some percent: a scale, not a bound."""
    return math.log1p(math.expm1(min(sigma**-2, 700.0)) / steps)


@lru_cache(maxsize=8)
def _log_transform(steps: int, sigma: float) -> tuple[Array, Array]:
    """log s, and the logarithm of `E e^(-s X)` under Q."""
    z = np.linspace(-14.0, 14.0, 1401)
    weights = np.exp(-(z**2) / 2)
    summands = np.exp((z - 0.5 / sigma) / sigma) / steps
    y = np.linspace(-40.0, 14.0 / sigma + 0.5 / sigma**2 + 12.0, 3000)
    values = (weights / weights.sum()) @ np.exp(-np.multiply.outer(summands, np.exp(y)))
    with np.errstate(divide="ignore"):
        return y, steps * np.log(values)


def added_alpha(order: float, steps: int, sigma: float) -> float:
    r"""Log-moment of the direction "add", order > 0, from above.

    .. math:: E_Q X^{-a} = \frac{1}{\Gamma(a)} \int_0^\infty s^{a-1} (E e^{-s e^l / t})^t ds, \qquad a \ge 1,

    by the trapezoid rule; below 1 it is a chord from 0, for log-moments are convex. Where the rule is too coarse, X is taken at
    its least, the geometric mean of its terms.
    """
    from scipy.special import gammaln, logsumexp

    if order < 1:
        return order * added_alpha(1.0, steps, sigma)
    if sigma < LEAST_SIGMA or order > min(1000.0, 6.0 * steps * sigma):  # the z that decide are about -order / (steps sigma)
        return order * (1 + order / steps) / (2 * sigma**2)
    y, log_transform = _log_transform(steps, sigma)
    return float(logsumexp(order * y + log_transform) + math.log(y[1] - y[0]) - gammaln(order)) + _ROUNDING


# -- compositions ------------------------------------------------------------------------------------------------------


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


def least_epsilon(parts: Parts, delta: float) -> float:
    """An epsilon that Poisson-sampled Gaussians cost at the least, far faster than what they cost.

    One record is in K ~ Bin(n, q) of n steps, so the sum of all noisy values is N(K, n s^2) with it and N(0, n s^2) without it.
    The event {sum > t} gives epsilon >= log((Pr[K >= k] Pr[N(k, n s^2) > t] - delta) / Pr[N(0, n s^2) > t]) for all k and t. A
    neighbour that has another record instead makes the second probability smaller only.
    """
    from scipy.special import log_ndtr
    from scipy.stats import binom

    least = 0.0
    for (rate, sigma), n in parts.items():
        if not (0 < rate < 1 and 0 < sigma < math.inf):
            continue
        k = np.floor(np.maximum(n * rate - np.arange(6) * math.sqrt(n * rate), 0))[:, None]
        t = np.linspace(-4, 40, 2000)  # in standard deviations of the noise
        passed = binom.sf(k - 1, n, rate) * np.exp(log_ndtr(k / (sigma * math.sqrt(n)) - t)) - delta
        with np.errstate(divide="ignore", invalid="ignore"):
            least = max(least, float(np.max(np.where(passed > 0, np.log(passed) - log_ndtr(-t), 0.0))))
    return least
