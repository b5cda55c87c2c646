r"""Privacy loss distributions of Gaussians, Poisson-sampled or allocated at random: hockey sticks never below the truth.

Each mechanism is a pair of discrete distributions of its loss that dominates it, on a grid `step * Z`. Dominating pairs compose
adaptively (Zhu, Dong, Wang 2022, Theorem 10).

**One mechanism.** Each cell of losses keeps its mass under both distributions, split between its two ends ("connect the dots",
Doroshenko et al. 2022), so every hockey stick of the discrete pair is at least the true one. In units of the sensitivity, with
`M(+-1) = (1-q) N(0) + q N(+-1)`: `remove` is M(1) against N(0), `add` is N(0) against M(1), `replace` is M(1) against M(-1).

**Compositions.** Masses p are tilted to :math:`q(l) = p(l) e^{t l - k(t)}`, composed by one FFT, and tilted back: the losses
that decide epsilon, where the order t of Renyi moments is best, sit in the middle of a short window, and small deltas keep
their relative accuracy. Tilted mass above the window is at most `CUT` (Chernoff); it counts as revealed, at its weight
:math:`e^{k(t) - t l}` of the window's end. Mass below the window wraps around, which adds mass.

**Rounding.** A transform of m masses is off by at most :math:`u = c \log_2 m` in each coefficient :math:`f_k`, so
:math:`f_k^n` by :math:`n u (|f_k| + u)^{n - 1}`, and a mass of the composition by the mean of these over k, which is added to
every mass.

**Random allocation.** In an epoch of t Gaussian releases every record takes part in one, drawn uniformly and secretly. Take a
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

dp_accounting has the same method for Poisson sampling. Its figures agree (`tests/privacy/test_accountants.py`); it is not
called here, for its pairs take 4 s where these take .15 s (q = .0017, sigma = 1, 100,000 steps), its windows five times as long
as a whole composition, its masses have no allowance for rounding, and it has no tilt: deltas below 1e-12 are noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpgen.privacy.mechanisms import Relation

    Array = NDArray[Any]
    Key = tuple[tuple[tuple[float, float], int], ...]  # ((rate, or number of steps above 1; noise multiplier), times)

Direction = Literal["remove", "add", "replace"]

MAX_CELLS = 1 << 21


class TooFine(RuntimeError):
    """The grid would need more cells than is reasonable."""


class Grid(NamedTuple):
    """Discrete losses `(start + i) * step` with masses (m,); `infinite` is the mass that may have any loss."""

    start: int
    step: float
    masses: Array
    infinite: float

    @property
    def losses(self) -> Array:
        return (self.start + np.arange(len(self.masses))) * self.step

    def tilted(self, tilt: float) -> tuple[Array, float]:
        """The masses times `e^(tilt * loss)`, scaled to sum to 1, and the logarithm of their sum before: the log-moment."""
        with np.errstate(divide="ignore"):
            exponents = np.log(self.masses) + tilt * self.losses
        top = float(exponents.max())
        log_moment = top + math.log(float(np.exp(exponents - top).sum()))
        return np.exp(exponents - log_moment), log_moment

    def delta(self, epsilon: float) -> float:
        """Hockey stick at an epsilon of at least the least loss."""
        above = max(0, math.floor(epsilon / self.step) - self.start)
        losses = self.losses[above:]
        return self.infinite + float(self.masses[above:] @ -np.expm1(np.minimum(epsilon - losses, 0.0)))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon at `delta` from 0 and from the least loss on, to 1e-7."""
        losses = self.losses
        low, high = max(0.0, float(losses[0])), max(0.0, float(losses[-1]))
        if self.delta(low) <= delta:
            return low
        if self.delta(high) > delta:
            return math.inf
        while high - low > 1e-7 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high


# -- one mechanism -----------------------------------------------------------------------------------------------------


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


def discretise(rate: float, sigma: float, direction: Direction, step: float, tail: float) -> Grid:
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
    if last - first > MAX_CELLS:
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


# -- compositions ------------------------------------------------------------------------------------------------------


Pair = Callable[[float, float], Grid]
"""A mechanism's pair on the grid of a step, of which at most a tail is at infinity."""

Composition = Sequence[tuple[Pair, int]]
"""Mechanisms and how often each of them runs."""


CUT = 1e-15
"""Tilted mass of a composition that may be left out above its window, and below it."""
_TAILS = 1e-5  # share of delta given to cut-off tails of mechanisms
_STEP = 0.05  # of the grid, in standard deviations of one loss: adds about .04 % to the variance of the whole
_ROUNDING = 5e-16  # of a stage of a transform: a complex product, a sum and a root of unity (4.3 units of rounding)
_FAR = 1e-4  # tilted mass below an epsilon that another tilt sees better


def composed(parts: Composition, *, tilt: float, step: float, tail: float) -> tuple[Grid, float]:
    """A pair that dominates the composition from its least loss on, and the loss from which on it is close.

    `TooFine` where a grid of `step` does not fit.
    """
    grids, counts = [pair(step, tail) for pair, _ in parts], np.array([count for _, count in parts], dtype=float)
    tilted = [grid.tilted(tilt) for grid in grids]
    first, last = _window([masses for masses, _ in tilted], counts)
    if (width := last - first + 1) > MAX_CELLS:
        raise TooFine(f"{width} cells of {step:.3g} nats for the composition")
    probs = np.roll(_convolved([masses for masses, _ in tilted], counts, width), -first)[:width]
    start = first + sum(count * grid.start for grid, (_, count) in zip(grids, parts, strict=True))
    losses = (start + np.arange(width)) * step
    weights = float(counts @ [log_moment for _, log_moment in tilted]) - tilt * np.append(losses, losses[-1] + step)
    weights = np.exp(np.minimum(weights, 700.0))
    infinite = float(counts @ [grid.infinite for grid in grids]) + CUT * float(weights[-1])
    near = float(losses[min(int(np.searchsorted(np.cumsum(probs), _FAR)), width - 1)])
    return Grid(start, step, np.minimum(probs * weights[:-1], 1.0), infinite), near


def _convolved(tilted: Sequence[Array], counts: Array, width: int) -> Array:
    """Masses of the sum of so many draws of each, modulo a length of at least `width`, and what rounding may take of one."""
    from scipy.fft import irfft, next_fast_len, rfft

    size = int(next_fast_len(max(width, *map(len, tilted)), real=True))
    stage = _ROUNDING * math.log2(size)
    product, largest, off = np.ones(size // 2 + 1, dtype=np.complex128), np.ones(size // 2 + 1), np.ones(size // 2 + 1)
    for masses, count in zip(tilted, counts, strict=True):
        factors = rfft(masses, size)
        product *= factors**count
        bound = np.abs(factors) + stage
        largest *= bound**count
        off += count / bound
    return np.maximum(irfft(product, size), 0.0) + stage * 2 * float((largest * off).sum()) / size


def _window(tilted: Sequence[Array], counts: Array) -> tuple[int, int]:
    """First and last cell of the sum; `CUT` bounds the mass below the one and that above the other (Chernoff)."""
    means = [float(masses @ np.arange(len(masses))) for masses in tilted]
    offsets = [np.arange(len(masses)) - mean for masses, mean in zip(tilted, means, strict=True)]
    spread = math.sqrt(float(counts @ [masses @ x**2 for masses, x in zip(tilted, offsets, strict=True)])) + 1e-3
    centre, ends = float(counts @ means), [0.0, float(counts @ [len(masses) - 1 for masses in tilted])]
    for order in np.geomspace(0.25, 16.0, 7) / spread:
        for side, sign in enumerate((-1.0, 1.0)):
            with np.errstate(over="ignore", invalid="ignore"):  # such an order bounds nothing
                moments = [float(masses @ np.exp(sign * order * x)) for masses, x in zip(tilted, offsets, strict=True)]
            reach = (float(counts @ np.log(moments)) - math.log(CUT)) / order
            ends[side] = sign * min(sign * ends[side], sign * centre + reach)
    return math.floor(ends[0]), math.ceil(ends[1])


def _fitting(parts: Composition, *, tilt: float, spread: float, delta: float) -> tuple[Grid, float]:
    """The composition on the finest reasonable grid for a loss of this standard deviation and a delta of this size."""
    total = sum(count for _, count in parts)
    step, tail = _STEP * spread / math.sqrt(total + 400), max(_TAILS * delta / total, 1e-300)
    while True:
        try:
            # any tilt is valid, and one that sees a single cell would be useless
            return composed(parts, tilt=min(tilt, 5.0 / step), step=step, tail=tail)
        except TooFine:
            step *= 2


def _slack(parts: Composition) -> float:
    """Relative error of a delta: masses of mechanisms are good to 1e-14."""
    return 1e-9 + 2e-14 * sum(count for _, count in parts)


def epsilon(parts: Composition, delta: float, *, bound: float, tilt: float, enough: float = 0.0) -> float:
    """Epsilon at `delta`, to about .05 %, or `enough`; `bound` is what Renyi moments prove at the order `tilt` (lambda).

    >>> from functools import partial
    >>> round(epsilon([(partial(discretise, 0.01, 1.0, "remove"), 1000)], 1e-5, bound=2.1, tilt=9.0), 2)
    1.83
    """
    for _ in range(12):
        found, near = _fitting(parts, tilt=tilt, spread=math.sqrt(bound / (tilt + 0.5)), delta=delta)
        value = found.epsilon(delta * (1 - _slack(parts)))
        seen, settled = value > near, value > 0.75 * bound
        bound, tilt = min(bound, value), tilt if seen else tilt / 2
        if (seen and settled) or bound <= enough:
            break
    return bound


def delta(parts: Composition, epsilon: float, *, bound: float, tilt: float, spread: float) -> float:
    """Delta at `epsilon`, where moments prove `bound`; `spread`: standard deviation of the loss, about."""
    while bound:
        found, near = _fitting(parts, tilt=tilt, spread=spread, delta=1e-3 * bound)
        if epsilon >= float(found.losses[0]):
            bound = min(bound, found.delta(epsilon) * (1 + _slack(parts)))
        if epsilon > near or tilt < 1e-6:
            break
        tilt /= 2
    return bound


def least_epsilon(parts: Mapping[tuple[float, float], int], delta: float) -> float:
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


# -- an epoch of random allocation ---------------------------------------------------------------------------------------

LEAST_SIGMA = 0.05
"""Noise multipliers below it are left to Renyi moments: their ratios leave the range of doubles."""

_MOST_CELLS = 12_000  # of a grid of sums, whose products are taken one diagonal after the other
_RAISED = 1e-11  # nats that losses are raised by; rounding of sums moves them by less


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
        """Sums of a block of n steps, of which there are at most 2^(depth - level)."""
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


def discretised_epoch(steps: int, sigma: float, direction: Direction, step: float, tail: float) -> Grid:
    """A discrete pair that dominates an epoch of `steps` >= 2 in direction "remove" or "add"; about `tail` is at infinity."""
    if direction == "replace":
        raise ValueError("random allocation has no bound for replaced records")
    found = ratio(steps, sigma, step, tail / 8, _MOST_CELLS)
    x, q = found.values(step), found.masses
    raised = 2 * _RAISED / min(step, 1.0)
    if direction == "remove":
        masses, start, infinite = x * q, found.start, found.lost_p
    else:
        masses, start, infinite = q[::-1], 1 - found.start - len(q), found.lost_q + found.zero
    masses = np.append(masses, 0.0) + np.append(0.0, raised * masses)
    return Grid(start, step, masses, infinite)


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
    return float(logsumexp(order * y + log_transform) + math.log(y[1] - y[0]) - gammaln(order)) + _RAISED


def pairs(gaussians: Key, relation: Relation) -> list[Composition]:
    """The dominating pairs of all Gaussians, one composition for each direction of the relation.

    None at all where noise is so small that ratios of an epoch leave the range of doubles: moments bound those.
    """
    if any(rate > 1 and sigma < LEAST_SIGMA for (rate, sigma), _ in gaussians):
        return []
    directions: tuple[Direction, ...] = ("remove", "add") if relation == "add_remove" else ("replace",)
    return [[(_pair(*gaussian, direction), count) for gaussian, count in gaussians] for direction in directions]


def _pair(rate: float, sigma: float, direction: Direction) -> Pair:
    if rate > 1:
        return partial(discretised_epoch, int(rate), sigma, direction)
    return partial(discretise, rate, sigma, direction)
