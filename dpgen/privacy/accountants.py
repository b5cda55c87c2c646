"""Accountants: epsilon and delta of composed events, and the least noise whose epsilon fits a budget.

All are valid upper bounds, sharp to about .1 %.

| case | who serves it |
|---|---|
| Gaussians without sampling | closed form (Balle, Wang 2018) |
| Poisson-sampled Gaussians, also with Gaussians | `pld.py`: dp_accounting's method, faster, no floor on delta |
| (epsilon, delta) guarantees and zCDP, also with Gaussians | `events.py`: basic, binary randomised response, or Renyi |
| the best of several runs (`tuning.py`), one of several events | Renyi moments, or pure epsilons |
| what else `dp_accounting` knows (Laplace, mixtures) | its `PLDAccountant`, refined until epsilon settles |
| `accountant="rdp"` | the stable moments of `moments.py` |

Replace-one: the sensitivity of EVERY Gaussian doubles. A replaced record may turn its bounded vector around while it
stays in the same cluster, so sums move by 2 and not by sqrt(2); sqrt(2) only covers counts, and sums of a record that
moves from one cluster to another. dp_accounting's RDP accountant leaves the factor out; its PLD has it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from dpgen.privacy import moments, pld
from dpgen.privacy.mechanisms import Budget, Relation, UnsupportedEvent, gaussian_parts

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.events import Parts

    Key = tuple[tuple[tuple[float, float], int], ...]

Accountant = Literal["tightest", "rdp"]


def _check_relation(relation: str) -> None:
    """Raises ValueError listing the choices."""
    if relation not in get_args(Relation):
        raise ValueError(f"relation is {relation!r}; choose one of {', '.join(get_args(Relation))}")


def _check_delta(delta: float) -> None:
    """Raises ValueError unless `delta` lies in [0, 1)."""
    if not 0 <= delta < 1:
        raise ValueError(f"delta is {delta!r}; it must lie in [0, 1)")


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
    _check_delta(delta)
    _check_relation(relation)
    if accountant not in get_args(Accountant):
        raise ValueError(f"accountant is {accountant!r}; choose one of {', '.join(get_args(Accountant))}")
    try:
        key = _key(event)
    except UnsupportedEvent:
        return _other_epsilon(event, delta, relation, accountant)
    if delta == 0:
        return math.inf if key else 0.0
    if accountant == "rdp":
        return _rdp(key, delta, relation)
    return _gaussian_epsilon(key, delta, relation)


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
    _check_relation(relation)
    try:
        key = _key(event)
    except UnsupportedEvent:
        return _other_delta(event, epsilon, relation)
    return _gaussian_delta(key, float(epsilon), relation)


def _key(event: DpEvent) -> Key:
    """Canonical form: unsampled Gaussians merged into one."""
    parts = gaussian_parts(event)
    precision = 0.0
    merged: Counter[tuple[float, float]] = Counter()
    for (rate, sigma), count in parts.items():
        if rate == 1:
            precision = math.inf if sigma == 0 else precision + count / sigma**2
        else:
            merged[rate, sigma] += count
    if precision:
        merged[1.0, precision**-0.5] = 1
    return tuple(sorted(merged.items()))


def _plain(key: Key, relation: Relation) -> float | None:
    """`mu` of a pure Gaussian composition (0 for nothing, inf for no privacy), None when something is sampled."""
    if any(sigma == 0 for (_, sigma), _ in key):
        return math.inf
    if any(rate < 1 for (rate, _), _ in key):
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
    bound = _rdp(key, delta, relation)
    if bound == 0:
        return 0.0
    worst = 0.0
    for direction in _directions(relation):
        worst = max(worst, pld.epsilon(dict(key), delta, direction, enough=worst))
    return min(bound, worst)


@lru_cache(maxsize=4096)
def _gaussian_delta(key: Key, epsilon: float, relation: Relation) -> float:
    mu = _plain(key, relation)
    if mu is not None:
        return _gaussian_delta_of(mu, epsilon)
    if epsilon == math.inf:
        return 0.0
    high, low = 0.0, -60.0  # of log(delta); the bound at low is not asked for
    if _gaussian_epsilon(key, math.exp(low), relation) <= epsilon:
        return math.exp(low)
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if _gaussian_epsilon(key, math.exp(middle), relation) <= epsilon else (middle, high)
    return math.exp(high)


def _directions(relation: Relation) -> tuple[pld.Direction, ...]:
    return ("replace",) if relation == "replace_one" else ("remove", "add")


@lru_cache(maxsize=256)
def _alphas(rate: float, sigma: float, relation: Relation) -> np.ndarray:
    """Log-moments at `moments.ORDERS`, inf at orders so high (losses of 1000 nats) that they never decide."""
    function = moments.replaced_alpha if relation == "replace_one" else moments.subsampled_gaussian_alpha
    highest = max(2.0, 2000 * sigma**2)
    return np.array([function(order, rate, sigma) if order <= highest else math.inf for order in moments.ORDERS])


def _rdp(key: Key, delta: float, relation: Relation) -> float:
    if not key:
        return 0.0
    if any(sigma == 0 for (_, sigma), _ in key):
        return math.inf
    total = sum(count * _alphas(rate, sigma, relation) for (rate, sigma), count in key)
    return moments.rdp_epsilon(np.asarray(total), delta, np.array(moments.ORDERS))


def event_alphas(event: DpEvent, relation: Relation = "add_remove") -> np.ndarray:
    """Log-moments of `event` at `moments.ORDERS`, (t,).

    Raises:
        UnsupportedEvent: a part has no moments, such as an (epsilon, delta) guarantee with delta > 0.
    """
    try:
        key = _key(event)
    except UnsupportedEvent:
        return _mixed_alphas(_parts(event), relation)
    total = np.zeros(len(moments.ORDERS))
    for (rate, sigma), count in key:
        total = total + (count * _alphas(rate, sigma, relation) if sigma > 0 else math.inf)
    return total


@lru_cache(maxsize=4096)
def _alpha_at(lam: float, rate: float, sigma: float, relation: Relation) -> float:
    """Log-moment at one order, inf where the noise is too small for it."""
    function = moments.replaced_alpha if relation == "replace_one" else moments.subsampled_gaussian_alpha
    if sigma == 0 or lam > max(2.0, 2000 * sigma**2):
        return math.inf
    try:
        return function(lam, rate, sigma)
    except ValueError:  # the grid of such a peak would not fit into memory
        return math.inf


def filter_cost(event: DpEvent, lam: float, relation: Relation) -> tuple[float, float, float]:
    """Cost of `event` under a filter of log-moment order `lam`: log-moment, sum of pure epsilons (inf unless all parts
    have one), sum of deltas."""
    try:
        parts = _parts(event)
    except UnsupportedEvent:
        try:
            key = _key(event)
        except UnsupportedEvent:
            return math.inf, math.inf, 0.0
        return math.fsum(n * _alpha_at(lam, *part, relation) for part, n in key), math.inf if key else 0.0, 0.0
    from dpgen.privacy.events import pure_alphas, zcdp_alphas

    key, orders = _key(parts.gaussian), np.array([lam])
    losses = [n * _alpha_at(lam, *part, relation) for part, n in key] + [float(zcdp_alphas(parts.rho, orders)[0])]
    losses += [n * float(pure_alphas(e, orders)[0]) for e, n in parts.pure]
    pure = [math.inf if key or parts.rho else parts.total]
    for compound, n in parts.compounds:
        [moment], epsilon = _compound_costs(compound, [lam], relation)
        losses.append(n * float(moment))
        pure.append(n * epsilon)
    return math.fsum(losses), math.fsum(pure), parts.delta


def _compound_costs(event: DpEvent, orders: Sequence[float], relation: Relation) -> tuple[np.ndarray, float]:
    """Log-moments at `orders` (t,), and epsilon, inf where it is not pure; an event that may fail has neither."""
    from dpgen.privacy.events import OneOfDpEvent, inside

    costs = np.array([[filter_cost(part, lam, relation) for part in inside(event)] for lam in orders])  # (t, parts, 3)
    if costs[..., 2].any():
        return np.full(len(orders), math.inf), math.inf
    base, pure = costs[..., 0].max(1), float(costs[..., 1].max())
    if isinstance(event, OneOfDpEvent):
        return base, pure
    whole, mean = event_alphas(event.event, relation), event.mean
    deltas = [_moment_delta(event.event, whole, math.log1p(1 / lam), relation) for lam in orders]
    return base + np.array(orders) * mean * deltas + math.log(mean), math.inf if pure else 0.0


def _moment_delta(event: DpEvent, alphas: np.ndarray, epsilon: float, relation: Relation) -> float:
    """A delta of `event` at epsilon: in closed form for Gaussians without sampling, from its moments otherwise."""
    from dpgen.privacy.events import OneOfDpEvent

    worst = 0.0
    for part in event.events if isinstance(event, OneOfDpEvent) else (event,):
        try:
            mu = _plain(_key(part), relation)
        except UnsupportedEvent:
            mu = None
        if mu is None:
            return moments.rdp_delta(alphas, epsilon, np.array(moments.ORDERS))
        worst = max(worst, _gaussian_delta_of(mu, epsilon))
    return worst


def _parts(event: DpEvent) -> Parts:
    from dpgen.privacy.events import Parts

    return Parts.of(event)


def _mixed_alphas(parts: Parts, relation: Relation) -> np.ndarray:
    from dpgen.privacy.events import pure_alphas, zcdp_alphas

    if parts.delta:
        raise UnsupportedEvent(f"a guarantee that fails with probability {parts.delta:g} has no moments")
    orders = np.array(moments.ORDERS)
    total = event_alphas(parts.gaussian, relation) + zcdp_alphas(parts.rho, orders)
    for epsilon, count in parts.pure:
        total = total + count * pure_alphas(epsilon, orders)
    for compound, count in parts.compounds:
        total = total + count * _compound_costs(compound, moments.ORDERS, relation)[0]
    return np.asarray(total)


def _sum_of_pure(parts: Parts, relation: Relation) -> float:
    """Sum of the pure epsilons, compounds included; inf where one of them is not pure."""
    return parts.total + math.fsum(n * _compound_costs(compound, [1.0], relation)[1] for compound, n in parts.compounds)


def _other_epsilon(event: DpEvent, delta: float, relation: Relation, accountant: Accountant) -> float:
    """Epsilon of events that are not Gaussians only."""
    try:
        parts = _parts(event)
    except UnsupportedEvent:
        if accountant == "rdp":
            raise
        return _library_epsilon(event, delta, relation) if delta else math.inf
    if accountant == "rdp":
        return moments.rdp_epsilon(_mixed_alphas(parts, relation), delta, np.array(moments.ORDERS)) if delta else math.inf
    return _mixed_epsilon(parts, delta, relation)


def _mixed_epsilon(parts: Parts, delta: float, relation: Relation) -> float:
    """The smallest of basic composition, enumerated losses and Renyi moments."""
    from dpgen.privacy.events import mixed_delta, smallest

    key = _key(parts.gaussian)
    if not key and not parts.rho and parts.delta <= delta:
        bound = _sum_of_pure(parts, relation)
    elif parts.delta >= delta:
        return math.inf
    else:
        rest = _mixed_alphas(replace(parts, pure=(), delta=0.0), relation)
        by_moments = moments.rdp_epsilon(rest, delta - parts.delta, np.array(moments.ORDERS))
        bound = parts.total + (by_moments if parts.by_moments else _gaussian_epsilon(key, delta - parts.delta, relation))
    if delta > parts.delta and (parts.pure or parts.compounds):
        every = _mixed_alphas(replace(parts, delta=0.0), relation)
        bound = min(bound, moments.rdp_epsilon(every, delta - parts.delta, np.array(moments.ORDERS)))
        if not parts.by_moments and _plain(key, relation) is not None and parts.losses() is not None:
            bound = smallest(lambda e: mixed_delta(parts, e, _stick(key, relation)) - delta, bound)
    return bound


def _stick(key: Key, relation: Relation) -> Callable[[float], float]:
    """The Gaussians' hockey stick at any real epsilon, never below the truth in either direction."""

    def delta_at(epsilon: float) -> float:
        if epsilon >= 0:
            return _gaussian_delta(key, epsilon, relation)
        return 1.0 - math.exp(epsilon) * (1.0 - _gaussian_delta(key, -epsilon, relation))

    return delta_at


def _other_delta(event: DpEvent, epsilon: float, relation: Relation) -> float:
    from dpgen.privacy.events import mixed_delta, smallest

    try:
        parts = _parts(event)
    except UnsupportedEvent:
        return _library_delta(event, epsilon, relation)
    key = _key(parts.gaussian)
    if not parts.by_moments and parts.losses() is not None:
        return mixed_delta(parts, epsilon, _stick(key, relation))
    if not math.isfinite(_mixed_epsilon(parts, 1.0 - 1e-12, relation)):
        return 1.0
    log = smallest(lambda t: _mixed_epsilon(parts, math.exp(-60 + t), relation) - epsilon, 60 - 1e-12)
    return min(1.0, math.exp(-60 + log))


def _library(event: DpEvent, relation: Relation, step: float):  # type: ignore[no-untyped-def]
    import dp_accounting as dpa
    from dp_accounting.pld import PLDAccountant

    neighbours = dpa.NeighboringRelation
    accountant = PLDAccountant(
        neighbours.REPLACE_ONE if relation == "replace_one" else neighbours.ADD_OR_REMOVE_ONE,
        value_discretization_interval=step,
    )
    try:
        return accountant.compose(event)
    except dpa.UnsupportedEventError as error:
        raise UnsupportedEvent(f"no accountant bounds this event under {relation}: {error}") from None


def _library_epsilon(event: DpEvent, delta: float, relation: Relation) -> float:
    step, best = 1e-2, math.inf
    while step > 2e-5:
        value = float(_library(event, relation, step).get_epsilon(delta))
        if best < math.inf and best - value <= 1e-3 * value:
            return min(best, value)
        best, step = min(best, value), step / 4
    return best


def _library_delta(event: DpEvent, epsilon: float, relation: Relation) -> float:
    return min(1.0, float(_library(event, relation, 1e-4).get_delta(epsilon)))


def calibrate_noise(
    event_at: Callable[[float], DpEvent],
    budget: Budget,
    *,
    relation: Relation = "add_remove",
    low: float = 0.05,
    high: float = 1e4,
    tolerance: float = 1e-4,
) -> float:
    """Smallest noise scale `s` in [low, high] with `epsilon(event_at(s)) <= budget.epsilon`, at most `tolerance`
    (relative) above.

    `event_at(s)` is the whole plan at scale `s`: epsilon must fall as `s` grows. The result was itself checked to fit.

    Raises:
        ValueError: even `high` does not fit; the message states the smallest epsilon reachable. Or `low >= high`.

    >>> from dpgen.privacy.ledger import Budget
    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> round(calibrate_noise(gaussian_event, Budget(1.0, 1e-5)), 2)
    3.73
    """
    if not 0 < low < high < math.inf:
        raise ValueError(f"low is {low!r} and high is {high!r}; 0 < low < high < inf must hold")

    def excess(scale: float, accountant: Accountant = "tightest") -> float:
        spent = epsilon(event_at(scale), budget.delta, relation=relation, accountant=accountant)
        return math.log(max(spent, 1e-300) / budget.epsilon)

    least = _least_epsilon(event_at(high), budget.delta)
    if least <= budget.epsilon and excess(high) > 0:
        least = math.exp(excess(high)) * budget.epsilon
    if least > budget.epsilon:
        raise ValueError(
            f"epsilon is {budget.epsilon:g}; at delta {budget.delta:g} this plan reaches no less than {least:.4g}, "
            f"even with noise scale {high:g}: raise epsilon or delta, take fewer steps, or add noise to the rest"
        )
    return _root(excess, *_bracket(excess, low, high), tolerance)


def _least_epsilon(event: DpEvent, delta: float) -> float:
    """An epsilon that Poisson-sampled Gaussians of the plan cost at the least, far faster than what they cost.

    One record is in K ~ Bin(n, q) of n steps, so the sum of all noisy values is N(K, n s^2) with it and N(0, n s^2) without it.
    The event {sum > t} gives epsilon >= log((Pr[K >= k] Pr[N(k, n s^2) > t] - delta) / Pr[N(0, n s^2) > t]) for all k and t. A
    neighbour that has another record instead makes the second probability smaller only.
    """
    from scipy.special import log_ndtr
    from scipy.stats import binom

    try:
        parts = gaussian_parts(event)
    except UnsupportedEvent:
        return 0.0
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
