"""Accountants: epsilon and delta of composed events, and the least noise whose epsilon fits a budget.

All are valid upper bounds, sharp to about .1 %.

| case | who serves it |
|---|---|
| Gaussians without sampling | closed form (Balle, Wang 2018) |
| Poisson-sampled Gaussians, also with Gaussians | privacy loss distributions (`pld.py`), without a floor on delta |
| epochs of random allocation, also with both | the same, of the pair of an epoch; add/remove only |
| (epsilon, delta) guarantees and zCDP, also with Gaussians | basic composition, binary randomised response, or Renyi |
| the best of several runs (`selection.py`), one of several events | Renyi moments, or pure epsilons |
| anything else | nobody: `UnsupportedEvent`; say what is proved of it, as an (epsilon, delta) guarantee |
| `accountant="rdp"` | log-moments, free of cancellation at small rates and large noise |

Replace-one: the sensitivity of EVERY Gaussian doubles. A replaced record may turn its bounded vector around while it
stays in the same cluster, so sums move by 2; sqrt(2) only covers counts, and sums of a record that changes its cluster.
dp_accounting's RDP accountant leaves the factor out; its PLD has it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from dpgen.privacy import pld
from dpgen.privacy.mechanisms import (
    ApproximateDpEvent,
    Budget,
    OneOfDpEvent,
    Relation,
    UnsupportedEvent,
    finite_rho,
    gaussian_parts,
    require_relation,
    walk,
)

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from numpy.typing import NDArray

    from dpgen.privacy.pld import Key

    Array = NDArray[Any]

Accountant = Literal["tightest", "rdp"]

_MOST_LOSSES = 20_000  # of pure guarantees that are enumerated

# Orders (lambda) at which moments are kept: fine where epsilon is decided, sparse at both ends.
ORDERS: tuple[float, ...] = tuple(
    float(f"{x:.4g}") for x in [*np.geomspace(1e-3, 0.9, 14), *np.geomspace(1, 64, 61), *np.geomspace(70, 2e4, 30)]
)


def epsilon(event: DpEvent, delta: float, *, relation: Relation = "add_remove", accountant: Accountant = "tightest") -> float:
    """Smallest proved `epsilon` (nats) such that `event` is (epsilon, delta)-DP; inf when there is none.

    `tightest` is the smaller of PLD and RDP: both are proofs, in both directions of the relation. At delta 0 only pure
    events have a finite epsilon, their sum.

    Raises:
        ValueError: delta outside [0, 1), an unknown relation or accountant, or an event that the accountant cannot
        bound.

    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> round(epsilon(gaussian_event(1.0), 1e-5), 4)
    4.3772
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta is {delta!r}; it must lie in [0, 1)")
    require_relation(relation)
    if accountant not in get_args(Accountant):
        raise ValueError(f"accountant is {accountant!r}; choose one of {', '.join(get_args(Accountant))}")
    parts = Parts.of(event)
    if accountant == "rdp" and delta:
        return rdp_epsilon(_alphas(parts, relation), delta)
    return _epsilon(parts, delta, relation)


def delta(event: DpEvent, epsilon: float, *, relation: Relation = "add_remove") -> float:
    """Smallest proved `delta` at which `event` is (epsilon, delta)-DP.

    Raises:
        ValueError: epsilon negative or NaN, an unknown relation, or an event that cannot be bounded.

    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> round(delta(gaussian_event(1.0), 1.0), 4)
    0.1269
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon is {epsilon!r}; it must be >= 0")
    require_relation(relation)
    parts = Parts.of(event)
    if (losses := parts.losses()) is not None:
        return _delta(parts, losses, float(epsilon), relation)
    if not math.isfinite(_epsilon(parts, 1.0 - 1e-12, relation)):
        return 1.0
    log = _smallest(lambda t: _epsilon(parts, math.exp(-60 + t), relation) - epsilon, 60 - 1e-12)
    return min(1.0, math.exp(-60 + log))


@dataclass(frozen=True)
class Parts:
    """A composition sorted by how its pieces can be bounded."""

    pure: tuple[tuple[float, int], ...]  # (epsilon, times)
    delta: float
    rho: float
    key: Key  # ((rate, noise multiplier), times) of Gaussians; those without sampling merged into one
    compounds: tuple[tuple[DpEvent, int], ...]  # (event, times)

    @classmethod
    def of(cls, event: DpEvent) -> Parts:
        """Raises UnsupportedEvent for anything but Gaussians, zCDP, (epsilon, delta) guarantees and compounds."""
        import dp_accounting as dpa

        pure, gaussians = Counter[float](), Counter[tuple[float, float]]()
        delta = rho = 0.0
        compounds: list[tuple[DpEvent, int]] = []
        for leaf, count in walk(event):
            if isinstance(leaf, ApproximateDpEvent):
                pure[leaf.epsilon] += count if leaf.epsilon else 0
                delta += count * leaf.delta
            elif isinstance(leaf, dpa.ZCDpEvent) and not leaf.xi:
                rho += count * finite_rho(leaf.rho)
            elif _inside(leaf):
                compounds.append((leaf, count))
            else:
                try:
                    own = gaussian_parts(leaf)
                except UnsupportedEvent:
                    text = f"event {leaf!r} is not a Gaussian, zCDP or an (epsilon, delta) guarantee"
                    raise UnsupportedEvent(text) from None
                for part, n in own.items():
                    gaussians[part] += count * n
        return cls(tuple(sorted((+pure).items())), delta, rho, _key(gaussians), tuple(compounds))

    @property
    def by_moments(self) -> bool:
        """Whether something in it has moments and no losses that could be enumerated."""
        return bool(self.rho or self.compounds)

    @property
    def total(self) -> float:
        """Sum of the pure epsilons: basic composition."""
        return math.fsum(epsilon * count for epsilon, count in self.pure)

    def losses(self) -> tuple[Array, Array] | None:
        """Privacy losses (m,) of the pure part and their probabilities; None for too many, or where a part has moments only.

        An epsilon-DP mechanism is dominated by binary randomised response (Kairouz, Oh, Viswanath 2015): losses
        +-epsilon with probability e^(+-epsilon/2) / (2 cosh(epsilon/2)). Dominating pairs compose adaptively.
        """
        if self.by_moments or math.prod(count + 1 for _, count in self.pure) > _MOST_LOSSES:
            return None
        from scipy.stats import binom

        losses, weights = np.zeros(1), np.ones(1)
        for epsilon, count in self.pure:
            heads = np.arange(count + 1)
            losses = np.add.outer(losses, (2 * heads - count) * epsilon).ravel()
            weights = np.multiply.outer(weights, binom.pmf(heads, count, 1 / (1 + math.exp(-epsilon)))).ravel()
        return losses, weights


def _key(gaussians: Counter[tuple[float, float]]) -> Key:
    """Canonical form: unsampled Gaussians merged into one."""
    precision = 0.0
    merged: Counter[tuple[float, float]] = Counter()
    for (rate, sigma), count in gaussians.items():
        if rate == 1:
            precision = math.inf if sigma == 0 else precision + count / sigma**2
        else:
            merged[rate, sigma] += count
    if precision:
        merged[1.0, precision**-0.5] = 1
    return tuple(sorted(merged.items()))


def _inside(event: DpEvent) -> tuple[DpEvent, ...]:
    """The events that a compound one is made of, whose cost is worked out from theirs; none of any other."""
    from dp_accounting.dp_event import RepeatAndSelectDpEvent

    if isinstance(event, RepeatAndSelectDpEvent) and event.shape == math.inf:
        return (event.event,)
    return tuple(event.events) if isinstance(event, OneOfDpEvent) else ()


def _plain(key: Key, relation: Relation) -> float | None:
    """`mu` of a pure Gaussian composition (0 for nothing, inf for no privacy), None when something is sampled."""
    if any(sigma == 0 for (_, sigma), _ in key):
        return math.inf
    if any(rate != 1 for (rate, _), _ in key):
        return None
    return sum(1 / sigma for (_, sigma), _ in key) * (2 if relation == "replace_one" else 1)


def _gaussian_delta_of(mu: float, epsilon: float) -> float:
    """`Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)`, from logarithms so that tiny values survive."""
    from scipy.special import log_ndtr

    if mu in (0, math.inf):
        return 0.0 if mu == 0 else 1.0
    if epsilon == math.inf:
        return 0.0
    a = float(log_ndtr(mu / 2 - epsilon / mu))
    b = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(a) * -math.expm1(min(b - a, 0.0))


def _gaussian_epsilon_of(mu: float, delta: float) -> float:
    """Epsilon of a Gaussian with `mu = sensitivity / std`, from above, to 1e-10."""
    if mu in (0, math.inf):
        return mu
    if _gaussian_delta_of(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _gaussian_delta_of(mu, middle) > delta else (low, middle)
    return high * (1 + 1e-10)  # room for the rounding of the logarithms


@lru_cache(maxsize=4096)
def _gaussian_epsilon(key: Key, delta: float, relation: Relation) -> float:
    mu = _plain(key, relation)
    if mu is not None:
        return _gaussian_epsilon_of(mu, delta)
    alphas = _key_alphas(key, relation, ORDERS)
    bound = rdp_epsilon(alphas, delta)
    if bound == 0 or not (directions := pld.pairs(key, relation)):
        return bound
    tilt = min(zip(ORDERS, alphas, strict=True), key=lambda at: rdp_epsilon(np.array(at[1:]), delta, at[:1]))[0]
    worst = 0.0
    for parts in directions:
        worst = max(worst, pld.epsilon(parts, delta, bound=bound, tilt=tilt, enough=worst))
    return min(bound, worst)


@lru_cache(maxsize=4096)
def _gaussian_delta(key: Key, epsilon: float, relation: Relation) -> float:
    mu = _plain(key, relation)
    if mu is not None:
        return _gaussian_delta_of(mu, epsilon)
    if epsilon == math.inf:
        return 0.0
    alphas = _key_alphas(key, relation, ORDERS)
    bound = rdp_delta(alphas, epsilon)
    if not alphas.any() or not (directions := pld.pairs(key, relation)):
        return bound
    tilt = min(zip(ORDERS, alphas, strict=True), key=lambda at: rdp_delta(np.array(at[1:]), epsilon, at[:1]))[0]
    # the mean of the loss is the slope of log-moments at 0, and half its variance where it is normal
    spread = math.sqrt(2 * float(alphas[0]) / ORDERS[0])
    return max(pld.delta(parts, epsilon, bound=bound, tilt=tilt, spread=spread) for parts in directions)


@lru_cache(maxsize=4096)
def _gaussian_alphas(rate: float, sigma: float, relation: Relation, orders: tuple[float, ...]) -> Array:
    """Log-moments at `orders` (t,), inf at orders so high (losses of 1000 nats) that they never decide, and without noise."""
    function = replaced_alpha if relation == "replace_one" else subsampled_gaussian_alpha
    highest = max(2.0, 2000 * sigma**2) if sigma else 0.0
    if rate > 1 and relation == "replace_one":
        raise UnsupportedEvent("random allocation has no guarantee under replace_one, only under add_remove")

    def at(order: float) -> float:
        try:
            if order > highest:
                return math.inf
            return allocation_alpha(order, int(rate), sigma) if rate > 1 else function(order, rate, sigma)
        except ValueError:  # the grid of such a peak would not fit into memory
            return math.inf

    return np.array([at(order) for order in orders])


def _key_alphas(key: Key, relation: Relation, orders: tuple[float, ...]) -> Array:
    total = np.zeros(len(orders))
    for (rate, sigma), count in key:
        total = total + count * _gaussian_alphas(rate, sigma, relation, orders)
    return total


def event_alphas(event: DpEvent, relation: Relation = "add_remove", orders: tuple[float, ...] = ORDERS) -> Array:
    """Log-moments of `event` at `orders`, (t,); `UnsupportedEvent` where a part has none, as a guarantee with delta > 0."""
    return _alphas(Parts.of(event), relation, orders)


def _alphas(parts: Parts, relation: Relation, orders: tuple[float, ...] = ORDERS) -> Array:
    if parts.delta:
        raise UnsupportedEvent(f"a guarantee that fails with probability {parts.delta:g} has no moments")
    at = np.array(orders)
    total = _key_alphas(parts.key, relation, orders) + at * (at + 1) * parts.rho
    for epsilon, count in parts.pure:  # binary randomised response
        heads, tails = -np.logaddexp(0.0, -epsilon), -np.logaddexp(0.0, epsilon)
        total = total + count * np.asarray(np.logaddexp(heads + at * epsilon, tails - at * epsilon))
    for compound, count in parts.compounds:
        total = total + count * _compound_costs(compound, relation, orders)[0]
    return np.asarray(total)


def moments(event: DpEvent, relation: Relation, orders: tuple[float, ...] = ORDERS) -> tuple[Array, float, float]:
    """Log-moments (t,) at `orders`, sum of pure epsilons (inf unless all parts have one) and sum of deltas; inf and 0 where
    nothing is proved."""
    try:
        parts = Parts.of(event)
        return _alphas(replace(parts, delta=0.0), relation, orders), _sum_of_pure(parts, relation), parts.delta
    except UnsupportedEvent:
        return np.full(len(orders), math.inf), math.inf, 0.0


def _compound_costs(event: DpEvent, relation: Relation, orders: tuple[float, ...]) -> tuple[Array, float]:
    """Log-moments at `orders` (t,), and epsilon, inf where it is not pure; an event that may fail has neither."""
    parts = [Parts.of(part) for part in _inside(event)]
    if any(part.delta for part in parts):
        return np.full(len(orders), math.inf), math.inf
    base = np.max([_alphas(part, relation, orders) for part in parts], axis=0)
    pure = max(_sum_of_pure(part, relation) for part in parts)
    if isinstance(event, OneOfDpEvent):
        return base, pure
    whole, mean = event_alphas(event.event, relation), event.mean
    deltas = [_moment_delta(event.event, whole, math.log1p(1 / lam), relation) for lam in orders]
    return base + np.array(orders) * mean * deltas + math.log(mean), math.inf if pure else 0.0


def _moment_delta(event: DpEvent, alphas: Array, epsilon: float, relation: Relation) -> float:
    """A delta of `event` at epsilon: in closed form for Gaussians without sampling, from its moments otherwise."""
    worst = 0.0
    for part in event.events if isinstance(event, OneOfDpEvent) else (event,):
        parts = Parts.of(part)
        mu = _plain(parts.key, relation)
        if mu is None or parts.pure or parts.delta or parts.by_moments:
            return rdp_delta(alphas, epsilon)
        worst = max(worst, _gaussian_delta_of(mu, epsilon))
    return worst


def _sum_of_pure(parts: Parts, relation: Relation) -> float:
    """Sum of the pure epsilons, compounds included; inf where something is not pure."""
    if parts.rho or parts.key:
        return math.inf
    return parts.total + math.fsum(n * _compound_costs(compound, relation, (1.0,))[1] for compound, n in parts.compounds)


def _epsilon(parts: Parts, delta: float, relation: Relation) -> float:
    """The smallest of basic composition, enumerated losses and Renyi moments."""
    left = delta - parts.delta
    bound = _basic(parts, left, relation)
    if left > 0 and (parts.pure or parts.compounds):
        bound = min(bound, rdp_epsilon(_alphas(replace(parts, delta=0.0), relation), left))
        losses = parts.losses()
        if losses is not None and _plain(parts.key, relation) is not None:
            bound = _smallest(lambda e: _delta(parts, losses, e, relation) - delta, bound)
    return bound


def _basic(parts: Parts, left: float, relation: Relation) -> float:
    """Basic composition: pure epsilons and that of all else at what is `left` of delta beside that of guarantees."""
    if not parts.key and not parts.rho and left >= 0:
        return _sum_of_pure(parts, relation)
    if left <= 0:
        return math.inf
    if parts.by_moments:
        return parts.total + rdp_epsilon(_alphas(replace(parts, pure=(), delta=0.0), relation), left)
    return parts.total + _gaussian_epsilon(parts.key, left, relation)


def calibrate_noise(
    event_at: Callable[[float], DpEvent],
    budget: Budget,
    *,
    relation: Relation = "add_remove",
    low: float = 0.05,
    high: float = 1e4,
    tolerance: float = 1e-4,
) -> float:
    """Smallest noise scale `s` in [low, high] with `epsilon(event_at(s)) <= budget.epsilon`, up to `tolerance` (relative).

    `event_at(s)` is the whole plan at scale `s`: epsilon must fall as `s` grows. The result was itself checked to fit.

    Raises:
        ValueError: even `high` does not fit; the message states the smallest epsilon reachable. Or `low >= high`.

    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> round(calibrate_noise(gaussian_event, Budget(1.0, 1e-5)), 2)
    3.73
    """
    if not 0 < low < high < math.inf:
        raise ValueError(f"low is {low!r} and high is {high!r}; 0 < low < high < inf must hold")

    def excess(scale: float, accountant: Accountant = "tightest") -> float:
        spent = epsilon(event_at(scale), budget.delta, relation=relation, accountant=accountant)
        return math.log(max(spent, 1e-300) / budget.epsilon)

    least = pld.least_epsilon(dict(Parts.of(event_at(high)).key), budget.delta)
    if least <= budget.epsilon and excess(high) > 0:
        least = math.exp(excess(high)) * budget.epsilon
    if least > budget.epsilon:
        raise ValueError(
            f"epsilon is {budget.epsilon:g}; at delta {budget.delta:g} this plan reaches no less than {least:.4g}, "
            f"even with noise scale {high:g}: raise epsilon or delta, take fewer steps, or add noise to the rest"
        )
    return _root(excess, *_bracket(excess, low, high), tolerance)


def _bracket(excess: Callable[..., float], low: float, high: float) -> tuple[float, float]:
    """Scales around the answer: RDP, cheap and never too small, finds the upper one."""
    try:
        wide_low, wide_high = low, high
        while wide_high / wide_low > 1.05:
            middle = math.sqrt(wide_low * wide_high)
            wide_low, wide_high = (wide_low, middle) if excess(middle, "rdp") <= 0 else (middle, wide_high)
        high = wide_high
    except UnsupportedEvent:
        pass
    bottom = high
    while bottom > low:
        bottom = max(low, bottom / 1.4)
        if excess(bottom) > 0:
            break
        high = bottom
    return bottom, high


def _root(excess: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """A scale that fits, at most `tolerance` above one that does not, by false position (Illinois) in logarithms."""
    below, above = excess(low), excess(high)
    if below <= 0:
        return low
    side = 0
    while high / low - 1 > tolerance:
        share = min(max(below / (below - above), 0.02), 0.98) if math.isfinite(below) else 0.5
        # aim a little to the safe side, so that the bracket closes from both ends
        middle = math.exp(math.log(low) + share * math.log(high / low) + 0.3 * tolerance)
        if not low < middle < high:
            middle = math.sqrt(low * high)
        value = excess(middle)
        if value > 0:
            low, below, above, side = middle, value, above / (2 if side > 0 else 1), 1
        else:
            high, above, below, side = middle, value, below / (2 if side < 0 else 1), -1
    return high


# -- log-moments: alpha(lambda) = log E_P (P / Q)^lambda = lambda * RDP(lambda + 1), the worse of both directions -----------

_SMALL, _TERMS = 0.25, 16


def _exp_remainder(u: Array) -> Array:
    """`e^u - 1 - u` without cancellation."""
    near = np.abs(u) < _SMALL
    v = np.where(near, u, 0.0)
    series = np.zeros_like(v)
    for n in range(_TERMS, 1, -1):
        series = (series + 1.0) * v / n
    return np.where(near, series * v, np.expm1(np.minimum(u, 700.0)) - u)


def _log_remainder(x: Array) -> Array:
    """`log(1 + x) - x` without cancellation, `x > -1`."""
    near = np.abs(x) < _SMALL
    v = np.where(near, x, 0.0)
    # log1p(x) = 2 artanh(x / (2 + x)); the odd series in s converges as 0.12^2n
    s = v / (2.0 + v)
    series = np.zeros_like(v)
    for n in range(_TERMS, 0, -1):
        series = (series + 1.0 / (2 * n + 1)) * s * s
    return np.where(near, 2.0 * s * series - s * v, np.log1p(x) - x)


def _grid(centre: float, noise_multiplier: float) -> tuple[Array, Array]:
    """Trapezoid nodes and log-weights of N(0, sigma^2), wide enough for a tilt that moves the mass to `centre`."""
    reach = 12.0 * noise_multiplier
    # the integrand is analytic up to |Im z| = pi sigma^2 (a zero of the mixture), the Gaussian asks for sigma / 3
    step = min(noise_multiplier / 4.0, noise_multiplier**2 / 2.5)
    low, high = min(0.0, centre) - reach, max(0.0, centre) + reach
    count = math.ceil((high - low) / step)
    if count > 4_000_000:
        raise ValueError(f"noise_multiplier is {noise_multiplier!r}; it is too small for order {centre:.3g}")
    z = low + step * np.arange(count + 1)
    return z, -0.5 * (z / noise_multiplier) ** 2 + math.log(step / (noise_multiplier * math.sqrt(2 * math.pi)))


def _ratio(z: Array, sampling_rate: float, noise_multiplier: float) -> tuple[Array, Array]:
    """`x = q (e^t - 1)` (capped) and `log(1 + x)` (not capped), with `t` the loss of the unsampled Gaussian at z."""
    t = (2.0 * z - 1.0) / (2.0 * noise_multiplier**2)
    x = sampling_rate * np.expm1(np.minimum(t, 700.0))
    kept = math.log1p(-sampling_rate) if sampling_rate < 1 else -math.inf
    far = np.logaddexp(kept, math.log(sampling_rate) + t)
    log_ratio = np.where(np.abs(x) < 0.5, np.log1p(np.clip(x, -0.5, 0.5)), far)  # 1 + x would cancel at x near -1
    return x, log_ratio


def _log_mean(log_weights: Array, exponent: Array, linear: Array) -> float:
    """`log(1 + sum w (e^u - 1 - u + r))` for nonnegative summands, in log space where `e^u` is large."""
    large = exponent > 30.0
    with np.errstate(divide="ignore"):
        small = np.log(np.maximum(np.where(large, 0.0, _exp_remainder(np.where(large, 0.0, exponent)) + linear), 0.0))
    log_terms = log_weights + np.where(large, exponent, small)
    top = float(log_terms.max())
    if top == -math.inf:
        return 0.0
    return float(np.logaddexp(0.0, top + math.log(float(np.exp(log_terms - top).sum()))))


def subsampled_gaussian_alpha(order: float, sampling_rate: float, noise_multiplier: float) -> float:
    """Log-moment `alpha(order)` of one Poisson-sampled Gaussian, any real order > 0, add/remove-one.

    `alpha = log E_z (1 + x)^(order + 1)`, `x = q (e^((2z - 1) / (2 sigma^2)) - 1)`, `z ~ N(0, sigma^2)`, by the
    trapezoid rule on `(1 + x)^a - 1 - a x` (nonnegative, and `E x = 0`), so that nothing cancels at small q or large
    sigma. Removing a record is the worse direction (Mironov, Talwar, Zhang 2019, Theorem 5).

    >>> round(subsampled_gaussian_alpha(3.0, 1.0, 2.0), 12) == 3 * 4 / (2 * 2.0**2)
    True
    """
    if sampling_rate == 1:
        return order * (order + 1) / (2 * noise_multiplier**2)
    power = order + 1
    z, log_weights = _grid(power, noise_multiplier)
    x, log_ratio = _ratio(z, sampling_rate, noise_multiplier)
    return _log_mean(log_weights, power * log_ratio, power * np.where(power * log_ratio > 30, 0.0, _log_remainder(x)))


def replaced_alpha(order: float, sampling_rate: float, noise_multiplier: float) -> float:
    """Log-moment for replace-one: `(1-q) N(0) + q N(-1)` against `(1-q) N(0) + q N(1)`, in units of the sensitivity."""
    if sampling_rate == 1:
        return 4 * order * (order + 1) / (2 * noise_multiplier**2)
    # at rates near 1 the ratio tilts the mass by order + 1 one way and by order the same way again
    z, log_weights = _grid(2 * order + 1, noise_multiplier)
    x, log_up = _ratio(z, sampling_rate, noise_multiplier)
    y, log_down = _ratio(-z, sampling_rate, noise_multiplier)
    exponent = (order + 1) * log_up - order * log_down
    linear = (order + 1) * _log_remainder(x) - order * _log_remainder(y)
    return _log_mean(log_weights, exponent, np.where(exponent > 30, 0.0, linear))


def allocation_alpha(order: float, steps: int, noise_multiplier: float) -> float:
    r"""Log-moment of an epoch of random allocation under add/remove, order > 0, from above.

    For whole a >= 2, :math:`E_Q X^a` is the mean of :math:`\prod_i e^{K_i (K_i - 1) / (2 \sigma^2)}` with K multinomial. Its
    entries are negatively associated, so it is at most the product of the means, that of t Poisson draws of rate 1/t (Joag-Dev,
    Proschan 1983). In between it is a chord, for log-moments are convex; and X is a mean, so sampling never raises a moment.
    """
    below = math.floor(order)
    ends = [steps * subsampled_gaussian_alpha(n, 1 / steps, noise_multiplier) if n else 0.0 for n in (below, below + 1)]
    removed = ends[0] + (order - below) * (ends[1] - ends[0])
    return min(max(removed, pld.added_alpha(order, steps, noise_multiplier)), order * (order + 1) / (2 * noise_multiplier**2))


def rdp_epsilon(alphas: Array, delta: float, at: tuple[float, ...] = ORDERS) -> float:
    """Smallest `epsilon` that the log-moments `alphas` (t,) at orders (t,) prove at `delta`; 0 for nothing.

    `eps = min alpha / lambda + log(lambda / (lambda + 1)) - log(delta (lambda + 1)) / lambda`: Canonne, Kamath,
    Steinke 2020, Proposition 12, at Renyi order `lambda + 1`.

    >>> 0 < rdp_epsilon(np.array([0.1]), 1e-5, (5.0,)) < 3
    True
    """
    if not alphas.any():
        return 0.0
    orders = np.array(at)
    values = alphas / orders + np.log(orders / (orders + 1)) - (math.log(delta) + np.log(orders + 1)) / orders
    return max(0.0, float(np.min(np.where(np.isnan(values), np.inf, values))))


def rdp_delta(alphas: Array, epsilon: float, at: tuple[float, ...] = ORDERS) -> float:
    """Smallest `delta` that the log-moments prove at `epsilon`: the same proposition, solved for delta.

    >>> round(rdp_delta(np.array([0.1]), rdp_epsilon(np.array([0.1]), 1e-5, (5.0,)), (5.0,)), 12)
    1e-05
    """
    orders = np.array(at)
    logs = alphas - orders * epsilon + (orders + 1) * np.log(orders / (orders + 1)) - np.log(orders)
    return float(np.exp(min(0.0, float(np.min(np.where(np.isnan(logs), np.inf, logs))))))


def _delta(parts: Parts, losses: tuple[Array, Array], epsilon: float, relation: Relation) -> float:
    """Delta of pure and Gaussian pieces together: the Gaussians' hockey stick averaged over the pure losses."""

    def stick(epsilon: float) -> float:  # at any real epsilon, never below the truth
        if epsilon >= 0:
            return _gaussian_delta(parts.key, epsilon, relation)
        return 1.0 - math.exp(epsilon) * (1.0 - _gaussian_delta(parts.key, -epsilon, relation))

    delta = math.fsum(w * stick(epsilon - loss) for loss, w in zip(*(part.tolist() for part in losses)) if w)
    return min(1.0, delta * (1 + 1e-12) + parts.delta)


def _smallest(excess: Callable[[float], float], high: float) -> float:
    """Smallest value in [0, high] where the falling function `excess` is not positive, from above, to 1e-9."""
    low = 0.0
    if excess(low) <= 0:
        return low
    while high - low > 1e-9 * max(high, 1e-9):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high
