"""Events beside dp_accounting's: mechanisms known by their guarantee only, and what all of them cost together.

These guarantees hold for the neighbouring relation of the ledger that is charged; a Gaussian event states its noise in
units of the add/remove sensitivity instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import attr
import numpy as np
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)
from dp_accounting.dp_event import RepeatAndSelectDpEvent

from dpgen.privacy.mechanisms import Relation, UnsupportedEvent, require_within, walk

_MOST_LOSSES = 20_000
_MOST_EPSILON = 600  # of several steps with a delta each, whose factors e^epsilon fit float64


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ApproximateDpEvent(DpEvent):
    """Any mechanism that is (epsilon, delta)-DP; pure when `delta` is 0.

    Attributes:
        epsilon: in nats, finite and >= 0.
        delta: in [0, 1).
    """

    epsilon: float
    delta: float = 0.0

    def __attrs_post_init__(self) -> None:
        if not (isinstance(self.epsilon, int | float) and 0 <= self.epsilon < math.inf):
            raise ValueError(f"epsilon is {self.epsilon!r}; it must be a finite number >= 0")
        if not (isinstance(self.delta, int | float) and 0 <= self.delta < 1):
            raise ValueError(f"delta is {self.delta!r}; it must lie in [0, 1)")


def pure_event(epsilon: float) -> ApproximateDpEvent:
    """Any epsilon-DP mechanism.

    >>> pure_event(0.5)
    ApproximateDpEvent(epsilon=0.5, delta=0.0)
    """
    return approximate_event(epsilon, 0.0)


def approximate_event(epsilon: float, delta: float) -> ApproximateDpEvent:
    """Any (epsilon, delta)-DP mechanism."""
    return ApproximateDpEvent(float(epsilon), float(delta))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class OneOfDpEvent(DpEvent):
    """One of at least one event, drawn at random whatever the data and released: it costs what the worst one costs."""

    events: tuple[DpEvent, ...] = attr.ib(converter=tuple)

    def __attrs_post_init__(self) -> None:
        if not self.events:
            raise ValueError("events is (); it must hold at least one")


def repeated_event(event: DpEvent, mean: float) -> RepeatAndSelectDpEvent:
    """The best of a Poisson number of runs of `event`, of this mean in [2, 1000]; see `tuning`."""
    require_within("mean", mean, (2.0, 1000.0), ", the expected number of runs")
    return RepeatAndSelectDpEvent(event, float(mean), math.inf)


_COMPOUNDS = (OneOfDpEvent, RepeatAndSelectDpEvent)


def inside(event: DpEvent) -> tuple[DpEvent, ...]:
    """The events that a compound one is made of, whose cost is worked out from theirs; none of any other."""
    if isinstance(event, RepeatAndSelectDpEvent):
        return (event.event,)
    return event.events if isinstance(event, OneOfDpEvent) else ()


def holds_for_own_relation(event: DpEvent) -> bool:
    """Whether a part of `event` is a guarantee for the ledger's own relation only."""
    return any(
        isinstance(leaf, ApproximateDpEvent | ZCDpEvent) or any(map(holds_for_own_relation, inside(leaf)))
        for leaf, _ in walk(event)
    )


def row_epsilon(epsilon: float, rows: int) -> float:
    """Epsilon of a pure mechanism for one row, such that a person with at most so many rows has `epsilon`.

    >>> row_epsilon(0.5, 1), round(row_epsilon(0.5, 5), 9)
    (0.5, 0.1)
    """
    return epsilon if rows == 1 else epsilon / rows * (1 - 1e-12)  # `for_rows` must not round above it


def row_delta(delta: float, epsilon: float, rows: int) -> float:
    """Delta of an (epsilon, delta) mechanism for one row, such that `for_rows` makes `delta` of it.

    >>> row_delta(1e-6, 0.5, 1), round(row_delta(1e-6, 0.5, 5) * 1e6, 4)
    (1e-06, 0.058)
    """
    return delta if rows == 1 else delta / _steps_delta(epsilon, rows) * (1 - 1e-12)


def _steps_delta(epsilon: float, rows: int) -> float:
    """The sum of e^(i epsilon) over i = 0, ..., m - 1."""
    if rows * epsilon > _MOST_EPSILON:
        raise UnsupportedEvent(
            f"epsilon is {rows * epsilon:g} for {rows} rows; with a delta it must be at most {_MOST_EPSILON}"
        )
    return math.expm1(rows * epsilon) / math.expm1(epsilon) if epsilon else float(rows)


def for_rows(event: DpEvent, rows: int) -> DpEvent:
    r"""A guarantee for one row, read for a person with at most m rows, which is m steps of one row each.

    :math:`(\epsilon, \delta)` becomes :math:`(m \epsilon, \sum_{i < m} e^{i \epsilon} \delta)`; rho-zCDP becomes
    :math:`m^2 \rho`; a Gaussian of multiplier s one of s / m, which is exact; anything else is an `UnsupportedEvent`. Under
    replace_one a step may also insert or delete a row: the guarantee has to cover these three.

    Source: Vadhan 2017, Lemma 2.2; Bun and Steinke 2016, Proposition 1.9; Dong, Roth and Su 2022, Theorem 2.14.

    >>> for_rows(pure_event(0.5), 3), for_rows(GaussianDpEvent(6.0), 3)
    (ApproximateDpEvent(epsilon=1.5, delta=0.0), GaussianDpEvent(noise_multiplier=2.0))
    """
    if rows == 1:
        return event
    if isinstance(event, ApproximateDpEvent):
        delta = event.delta * _steps_delta(event.epsilon, rows) if event.delta else 0.0
        if delta >= 1:
            raise UnsupportedEvent(f"event {event!r} says nothing about people with up to {rows} rows")
        return approximate_event(rows * event.epsilon, delta)
    if isinstance(event, ZCDpEvent) and not event.xi:
        return ZCDpEvent(rows**2 * event.rho)
    if isinstance(event, GaussianDpEvent):
        return GaussianDpEvent(event.noise_multiplier / rows)
    raise UnsupportedEvent(f"event {event!r} is of one row; for people with up to {rows} rows there is no guarantee")


def require_grouped(event: DpEvent, group: str, relation: Relation, rows: int) -> None:
    """Refuse a charge for one of several disjoint groups of rows where a unit may be in more than one of them.

    Rows of one person may lie in any groups; a record that leaves one for another is removed here and added there, and only
    Gaussians have both bounds.
    """
    if rows > 1:
        raise ValueError(f"group is {group!r}; it must be None where a person has up to {rows} rows, in any groups")
    if relation == "replace_one" and holds_for_own_relation(event):
        raise ValueError(f"group is {group!r}; under replace_one {type(event).__name__} must be charged without a group")


def for_two_records(event: DpEvent) -> DpEvent:
    """An add/remove guarantee read under replace_one, which is two steps; Gaussians are left as they are.

    (epsilon, delta) becomes (2 epsilon, (1 + e^epsilon) delta), rho-zCDP becomes 4 rho (Bun, Steinke 2016, Prop. 1.9).

    >>> for_two_records(pure_event(0.5))
    ApproximateDpEvent(epsilon=1.0, delta=0.0)
    """
    if isinstance(event, SelfComposedDpEvent):
        return SelfComposedDpEvent(for_two_records(event.event), event.count)
    if isinstance(event, ComposedDpEvent | OneOfDpEvent):
        return type(event)([for_two_records(part) for part in event.events])
    if isinstance(event, RepeatAndSelectDpEvent):
        return RepeatAndSelectDpEvent(for_two_records(event.event), event.mean, event.shape)
    if isinstance(event, ApproximateDpEvent):
        grown = 1 + math.exp(event.epsilon) if event.epsilon <= _MOST_EPSILON else math.inf
        delta = event.delta * grown if event.delta else 0.0
        if delta >= 1:
            raise UnsupportedEvent(f"event {event!r} says nothing about replacing a record")
        return ApproximateDpEvent(2 * event.epsilon, delta)
    if isinstance(event, ZCDpEvent):
        if event.xi:
            raise UnsupportedEvent(f"event {event!r} with xi > 0 is not supported under replace_one")
        return ZCDpEvent(4 * _checked(event.rho))
    return event


def _checked(rho: float) -> float:
    if not 0 <= rho < math.inf:
        raise ValueError(f"rho is {rho!r}; it must be a finite number >= 0")
    return rho


@dataclass(frozen=True)
class Parts:
    """A composition sorted by how its pieces can be bounded."""

    pure: tuple[tuple[float, int], ...]  # (epsilon, times)
    delta: float
    rho: float
    gaussian: DpEvent
    compounds: tuple[tuple[DpEvent, int], ...] = ()  # (event, times)

    @classmethod
    def of(cls, event: DpEvent) -> Parts:
        """Raises UnsupportedEvent for anything but Gaussians, zCDP, (epsilon, delta) guarantees and compounds."""
        pure: Counter[float] = Counter()
        delta = rho = 0.0
        gaussians: list[DpEvent] = []
        compounds: list[tuple[DpEvent, int]] = []
        for leaf, count in walk(event):
            inner = leaf.event if isinstance(leaf, PoissonSampledDpEvent) else leaf
            if isinstance(leaf, ApproximateDpEvent):
                pure[leaf.epsilon] += count if leaf.epsilon else 0
                delta += count * leaf.delta
            elif isinstance(leaf, ZCDpEvent) and not leaf.xi:
                rho += count * _checked(leaf.rho)
            elif isinstance(inner, GaussianDpEvent | NonPrivateDpEvent):
                gaussians.append(SelfComposedDpEvent(leaf, count))
            elif isinstance(leaf, _COMPOUNDS) and getattr(leaf, "shape", math.inf) == math.inf:
                compounds.append((leaf, count))
            else:
                raise UnsupportedEvent(f"event {leaf!r} is not a Gaussian, zCDP or an epsilon-delta guarantee")
        return cls(tuple(sorted((+pure).items())), delta, rho, ComposedDpEvent(gaussians), tuple(compounds))

    @property
    def by_moments(self) -> bool:
        """Whether something in it has moments and no losses that could be enumerated."""
        return bool(self.rho or self.compounds)

    @property
    def total(self) -> float:
        """Sum of the pure epsilons: basic composition."""
        return math.fsum(epsilon * count for epsilon, count in self.pure)

    def losses(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Privacy losses (m,) of the pure part and their probabilities; None when there are too many.

        An epsilon-DP mechanism is dominated by binary randomised response (Kairouz, Oh, Viswanath 2015): losses
        +-epsilon with probability e^(+-epsilon/2) / (2 cosh(epsilon/2)). Dominating pairs compose adaptively.
        """
        if math.prod(count + 1 for _, count in self.pure) > _MOST_LOSSES:
            return None
        losses, weights = np.zeros(1), np.ones(1)
        for epsilon, count in self.pure:
            values, chances = _binomial(epsilon, count)
            losses = np.add.outer(losses, values).ravel()
            weights = np.multiply.outer(weights, chances).ravel()
        return losses, weights


@lru_cache(maxsize=256)
def _binomial(epsilon: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    from scipy.stats import binom

    heads = np.arange(count + 1)
    chance = 1 / (1 + math.exp(-epsilon))
    return (2 * heads - count) * epsilon, binom.pmf(heads, count, chance)


def pure_alphas(epsilon: float, orders: np.ndarray) -> np.ndarray:
    """Log-moments log E[e^(order loss)] of binary randomised response at `orders` (t,)."""
    heads, tails = -np.logaddexp(0.0, -epsilon), -np.logaddexp(0.0, epsilon)
    return np.asarray(np.logaddexp(heads + orders * epsilon, tails - orders * epsilon))


def zcdp_alphas(rho: float, orders: np.ndarray) -> np.ndarray:
    """Log-moments of rho-zCDP at `orders` (t,): order (order + 1) rho."""
    return np.asarray(orders * (orders + 1) * rho)


def mixed_delta(parts: Parts, epsilon: float, gaussian_delta: Callable[[float], float]) -> float:
    """Delta of pure and Gaussian pieces together: the Gaussians' hockey stick averaged over the pure losses.

    `gaussian_delta` is the hockey stick at any real epsilon; it must never be below the truth.
    """
    found = parts.losses()
    if found is None or parts.by_moments:
        raise UnsupportedEvent("too many different pieces to enumerate their losses")
    losses, weights = found
    delta = math.fsum(w * gaussian_delta(epsilon - loss) for loss, w in zip(losses.tolist(), weights.tolist()) if w)
    return min(1.0, delta * (1 + 1e-12) + parts.delta)


def smallest(excess: Callable[[float], float], high: float) -> float:
    """Smallest value in [0, high] where the falling function `excess` is not positive, from above, to 1e-9."""
    low = 0.0
    if excess(low) <= 0:
        return low
    while high - low > 1e-9 * max(high, 1e-9):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high
