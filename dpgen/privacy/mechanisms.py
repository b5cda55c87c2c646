"""Mechanisms as events: what a release costs, as a ledger writes it down.

A Gaussian event states its noise in units of the add/remove sensitivity; an (epsilon, delta) or zCDP event is a guarantee for
the neighbouring relation of the ledger that is charged. Events are `dp_accounting`'s, so other tools can read a ledger; it is
imported when the first event is made, so that importing this module stays cheap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, get_args

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from dp_accounting import DpEvent
    from torch import Tensor

_MOST_EPSILON = 600  # of several steps with a delta each, whose factors e^epsilon fit float64


def require_whole(name: str, value: int, low: int = 1, high: int | None = None) -> int:
    """A whole number in [low, high], or from `low` on; ValueError for anything else.

    >>> require_whole("rounds", 20)
    20
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        allowed = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise ValueError(f"{name} is {value!r}; it must be a whole number {allowed}")
    return value


def require_within(name: str, value: float, limits: tuple[float, float], of: str = "") -> float:
    """A number in [low, high], in (0, high] where low is 0; else a ValueError, whose sentence `of` ends.

    >>> require_within("epsilon", 0.5, (1e-6, 100.0), " for one draw")
    0.5
    """
    low, high = limits
    if isinstance(value, bool) or not isinstance(value, int | float) or not (low <= value <= high and value != 0):
        raise ValueError(f"{name} is {value!r}; it must be in {'[' if low else '('}{low:g}, {high:g}]{of}")
    return float(value)


def require_positive(name: str, value: float | None) -> float:
    """A finite number above 0; ValueError for anything else.

    >>> require_positive("noise_multiplier", 0.5)
    0.5
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}; it must be a finite number > 0")
    return float(value)


Relation = Literal["add_remove", "replace_one"]
"""Neighbouring relation: data sets differ in one unit more or less, or in the value of one."""


def require_relation(relation: str) -> Relation:
    """A neighbouring relation; ValueError for anything else."""
    if relation not in get_args(Relation):
        raise ValueError(f"relation is {relation!r}; choose one of {', '.join(get_args(Relation))}")
    return cast(Relation, relation)


def keeps_size(relation: Relation, rows: int = 1, always_used: bool = True) -> bool:
    """Whether all neighbouring data sets have equally many rows that are used, so that their number is public.

    People differ in how many `rows` they have. `always_used`: every unit has a row that is used whatever it holds; not where
    rows with gaps are left out, nor where units are people: whoever replaces one may have no row.

    >>> keeps_size("replace_one"), keeps_size("replace_one", 5), keeps_size("replace_one", 1, False), keeps_size("add_remove")
    (True, False, False, False)
    """
    return require_relation(relation) == "replace_one" and rows == 1 and always_used


T_co = TypeVar("T_co", covariant=True)


class UnsupportedEvent(ValueError):
    """An event that this accountant cannot bound."""


class Secrets(Protocol):
    """Secret randomness as a mechanism sees it, once the curator has charged for the draw."""

    def words(self, *shape: int, bits: int = 64) -> npt.NDArray[np.uint64]:
        """Whole numbers, uniform in [0, 2^bits)."""

    def uniform(self, *shape: int) -> Tensor:
        """float64 uniforms strictly inside (0, 1)."""

    def rounded_normal(self, *shape: int, noise_std: float) -> Tensor:
        r"""int64 draws of :math:`N(0, \sigma^2)`, rounded."""

    def random_bytes(self, count: int) -> bytes:
        """Uniform bytes."""


class Mechanism(Protocol[T_co]):
    """A private draw that carries its own price, so that nobody can pay for one and make another.

    `event` is what one draw costs under the ledger's relation; `draw` makes `count` of them.
    """

    @property
    def event(self) -> DpEvent: ...

    def draw(self, secrets: Secrets, count: int) -> T_co: ...


@dataclass(frozen=True)
class Budget:
    """Privacy budget of a run: `epsilon` in nats, finite and > 0, at `delta` in [0, 1); at 0 only pure events fit.

    >>> Budget(2.0, 1e-5)
    Budget(epsilon=2.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        if not (isinstance(self.delta, int | float) and 0 <= self.delta < 1):
            raise ValueError(f"delta is {self.delta!r}; it must lie in [0, 1)")


def gaussian_event(noise_multiplier: float, count: int = 1) -> DpEvent:
    """`count` releases `f(D) + N(0, (noise_multiplier * sensitivity)^2 I)`, sensitivity under add/remove-one.

    >>> gaussian_event(2.0)
    GaussianDpEvent(noise_multiplier=2.0)
    """
    from dp_accounting import GaussianDpEvent, SelfComposedDpEvent

    event = GaussianDpEvent(require_positive("noise_multiplier", noise_multiplier))
    return event if require_whole("count", count) == 1 else SelfComposedDpEvent(event, int(count))


def subsampled_gaussian_event(sampling_rate: float, noise_multiplier: float) -> DpEvent:
    """One Gaussian release on a Poisson draw of the records: each record takes part with probability `sampling_rate` in (0, 1].

    Only a fresh, secret, independent draw per event earns this event (Mironov, Talwar, Zhang 2019, section 3); a
    shuffled loader does not. `sampling_rate` 1 is the plain Gaussian.

    >>> subsampled_gaussian_event(0.01, 1.5)
    PoissonSampledDpEvent(sampling_probability=0.01, event=GaussianDpEvent(noise_multiplier=1.5))
    """
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    if not 0 < sampling_rate <= 1:
        raise ValueError(f"sampling_rate is {sampling_rate!r}; it must lie in (0, 1]")
    event = GaussianDpEvent(require_positive("noise_multiplier", noise_multiplier))
    return event if sampling_rate == 1 else PoissonSampledDpEvent(float(sampling_rate), event)


Sampling = Literal["poisson", "allocation"]
"""Ways of records into draws: each into every one by a coin, or each into one draw of an epoch."""


def steps_of_epoch(sampling_rate: float, sampling: Sampling = "poisson") -> int:
    """Draws of an epoch; ValueError for random allocation at a rate that is not 1 / a whole number.

    >>> steps_of_epoch(0.3), steps_of_epoch(0.05, "allocation")
    (4, 20)
    """
    if not 0.0 < sampling_rate <= 1.0:
        raise ValueError(f"sampling_rate is {sampling_rate}; it must be in (0, 1]")
    if sampling not in get_args(Sampling):
        raise ValueError(f"sampling is {sampling!r}; choose one of {', '.join(get_args(Sampling))}")
    steps = max(2, round(1.0 / sampling_rate))
    if sampling == "poisson":
        return math.ceil(1.0 / sampling_rate - 1e-9)
    if abs(steps * sampling_rate - 1.0) > 1e-9:
        raise ValueError(
            f"sampling_rate is {sampling_rate:g}; with sampling='allocation' it must be 1 / the steps of an epoch, at least 2, "
            f"as {1 / steps!r}"
        )
    return steps


@dataclass(frozen=True)
class AllocatedDpEvent:
    """An epoch of `steps` >= 2 releases of `event`, a Gaussian: each record takes part in one of them, drawn by itself.

    Only independent, secret, uniform draws for every record earn this event; a permutation cut into batches does not. See
    `pld.py`; add/remove only.
    """

    steps: int
    event: DpEvent

    def __post_init__(self) -> None:
        require_whole("steps", self.steps, 2)


def allocated_gaussian_event(steps: int, noise_multiplier: float) -> DpEvent:
    """An epoch of Gaussian releases by random allocation over this number of steps; 1 is the plain Gaussian.

    >>> allocated_gaussian_event(20, 1.5)
    AllocatedDpEvent(steps=20, event=GaussianDpEvent(noise_multiplier=1.5))
    """
    event = gaussian_event(noise_multiplier)
    return event if steps == 1 else AllocatedDpEvent(steps, event)


def effective_multiplier(*noise_multipliers: float) -> float:
    """The one Gaussian that dominates the joint release of several: `1 / sigma^2 = sum 1 / sigma_i^2`; inf adds nothing.

    They may share a Poisson draw: condition on the draw, compose there, then mix over the draw, which is
    linear in the output distribution. (Adding moments of the parts, as Acs et al. 2017, Theorem 3, bounds nothing.)

    >>> round(effective_multiplier(2.0, 2.0) ** 2, 12)
    2.0
    """
    if not noise_multipliers:
        raise ValueError("noise_multipliers is empty; give at least one")
    if len(noise_multipliers) == 1 and noise_multipliers[0] != math.inf:
        return require_positive("noise_multiplier", noise_multipliers[0])  # to the last bit, as it was declared
    precision = sum(require_positive("noise_multiplier", value) ** -2 for value in noise_multipliers if value != math.inf)
    return math.inf if precision == 0 else precision**-0.5


def count_event(noise_count: float, relation: Relation) -> DpEvent:
    """Sizes of disjoint groups with noise of this std, in a ledger of this relation, which doubles Gaussians under replace_one.

    A replaced record lowers one size and raises another: sqrt 2 in L2.

    >>> count_event(5.0, "add_remove"), count_event(5.0, "replace_one")
    (GaussianDpEvent(noise_multiplier=5.0), GaussianDpEvent(noise_multiplier=7.07106...))
    """
    return gaussian_event(noise_count if relation == "add_remove" else noise_count * (2.0 * 1.0 / math.sqrt(2.0)))


def walk(event: DpEvent, count: int = 1) -> Iterator[tuple[DpEvent, int]]:
    """Leaves of a composition with their multiplicities; what does nothing is left out.

    >>> [(e.noise_multiplier, n) for e, n in walk(gaussian_event(1.0, 3), 2)]
    [(1.0, 6)]
    """
    import dp_accounting as dpa

    if isinstance(event, dpa.SelfComposedDpEvent):
        yield from walk(event.event, count * require_whole("count", event.count, 0))
    elif isinstance(event, dpa.ComposedDpEvent):
        for part in event.events:
            yield from walk(part, count)
    elif not isinstance(event, dpa.NoOpDpEvent) and count:
        yield event, count


def gaussian_parts(event: DpEvent) -> Counter[tuple[float, float]]:
    """`{(sampling_rate, noise_multiplier): count}` of (Poisson-sampled) Gaussians, else `UnsupportedEvent`; 0: no privacy.

    The rate of an epoch of random allocation is the number of its steps, which is above 1.
    """
    import dp_accounting as dpa

    parts: Counter[tuple[float, float]] = Counter()
    for leaf, count in walk(event):
        rate, inner = _drawn(leaf)
        if isinstance(inner, dpa.NonPrivateDpEvent):
            parts[1.0, 0.0] += count if rate else 0
            continue
        if not isinstance(inner, dpa.GaussianDpEvent):
            raise UnsupportedEvent(f"event {leaf!r} is not a Gaussian, Poisson-sampled or not")
        sigma = float(inner.noise_multiplier)
        if not sigma >= 0:
            raise ValueError(f"noise_multiplier is {sigma!r}; it must be >= 0")
        if rate > 0 and sigma < math.inf:
            parts[rate, sigma] += count
    return parts


def _drawn(event: DpEvent) -> tuple[float, DpEvent]:
    """The sampling rate of an event, or the number of steps of an epoch, and the event that is drawn."""
    import dp_accounting as dpa

    if isinstance(event, AllocatedDpEvent):
        return float(event.steps), event.event
    if not isinstance(event, dpa.PoissonSampledDpEvent):
        return 1.0, event
    rate = float(event.sampling_probability)
    if not 0 <= rate <= 1:
        raise ValueError(f"sampling_probability is {rate!r}; it must lie in [0, 1]")
    return rate, event.event


# -- events that dp_accounting has no class for: mechanisms known by their guarantee, for the ledger's own relation ---------


@dataclass(frozen=True)
class ApproximateDpEvent:
    """Any mechanism that is (epsilon, delta)-DP, epsilon >= 0 in nats and delta in [0, 1); pure when `delta` is 0."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
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


@dataclass(frozen=True)
class OneOfDpEvent:
    """One of at least one event, drawn at random whatever the data and released: it costs what the worst one costs."""

    events: Sequence[DpEvent]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        if not self.events:
            raise ValueError("events is (); it must hold at least one")


def repeated_event(event: DpEvent, mean: float) -> DpEvent:
    """The best of a Poisson number of runs of `event`, of this mean in [2, 1000]; see `selection`."""
    from dp_accounting.dp_event import RepeatAndSelectDpEvent

    require_within("mean", mean, (2.0, 1000.0), ", the expected number of runs")
    return RepeatAndSelectDpEvent(event, float(mean), math.inf)


# -- guarantees read for units of several rows, and for replaced records ----------------------------------------------------


def row_epsilon(epsilon: float, rows: int) -> float:
    """Epsilon of a pure mechanism for one row, such that a person with at most so many rows has `epsilon`.

    >>> row_epsilon(0.5, 1), round(row_epsilon(0.5, 5), 9)
    (0.5, 0.1)
    """
    return epsilon if rows == 1 else epsilon / rows * (1 - 1e-12)  # `for_rows` must not round above it


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

    >>> for_rows(pure_event(0.5), 3), for_rows(gaussian_event(6.0), 3)
    (ApproximateDpEvent(epsilon=1.5, delta=0.0), GaussianDpEvent(noise_multiplier=2.0))
    """
    if rows == 1:
        return event
    if isinstance(event, ApproximateDpEvent):
        delta = event.delta * _steps_delta(event.epsilon, rows) if event.delta else 0.0
        if delta >= 1:
            raise UnsupportedEvent(f"event {event!r} says nothing about people with up to {rows} rows")
        return approximate_event(rows * event.epsilon, delta)
    import dp_accounting as dpa

    if isinstance(event, dpa.ZCDpEvent) and not event.xi:
        return dpa.ZCDpEvent(rows**2 * event.rho)
    if isinstance(event, dpa.GaussianDpEvent):
        return dpa.GaussianDpEvent(event.noise_multiplier / rows)
    raise UnsupportedEvent(f"event {event!r} is of one row; for people with up to {rows} rows there is no guarantee")


def for_two_records(event: DpEvent) -> DpEvent:
    """An add/remove guarantee read under replace_one, which is two steps; Gaussians are left as they are.

    (epsilon, delta) becomes (2 epsilon, (1 + e^epsilon) delta), rho-zCDP becomes 4 rho (Bun, Steinke 2016, Prop. 1.9).

    >>> for_two_records(pure_event(0.5))
    ApproximateDpEvent(epsilon=1.0, delta=0.0)
    """
    import dp_accounting as dpa
    from dp_accounting.dp_event import RepeatAndSelectDpEvent

    if isinstance(event, dpa.SelfComposedDpEvent):
        return dpa.SelfComposedDpEvent(for_two_records(event.event), event.count)
    if isinstance(event, dpa.ComposedDpEvent | OneOfDpEvent):
        return type(event)([for_two_records(part) for part in event.events])
    if isinstance(event, RepeatAndSelectDpEvent):
        return RepeatAndSelectDpEvent(for_two_records(event.event), event.mean, event.shape)
    if isinstance(event, AllocatedDpEvent):
        raise UnsupportedEvent(f"event {event!r} has no bound for replaced records")
    if isinstance(event, ApproximateDpEvent):
        return _two_steps(event)
    if isinstance(event, dpa.ZCDpEvent):
        if event.xi:
            raise UnsupportedEvent(f"event {event!r} with xi > 0 is not supported under replace_one")
        return dpa.ZCDpEvent(4 * finite_rho(event.rho))
    return event


def _two_steps(event: ApproximateDpEvent) -> DpEvent:
    grown = 1 + math.exp(event.epsilon) if event.epsilon <= _MOST_EPSILON else math.inf
    delta = event.delta * grown if event.delta else 0.0
    if delta >= 1:
        raise UnsupportedEvent(f"event {event!r} says nothing about replacing a record")
    return ApproximateDpEvent(2 * event.epsilon, delta)


def finite_rho(rho: float) -> float:
    """A zCDP loss; ValueError for one that is negative or not finite."""
    if not 0 <= rho < math.inf:
        raise ValueError(f"rho is {rho!r}; it must be a finite number >= 0")
    return rho


# -- events in files --------------------------------------------------------------------------------------------------------


def encode_event(event: DpEvent) -> list[Any]:
    """`[class name, {field: value}]`, events inside encoded likewise; numbers must be finite.

    >>> encode_event(gaussian_event(2.0))
    ['GaussianDpEvent', {'noise_multiplier': 2.0}]
    """
    import attr

    names = fields(event) if is_dataclass(event) else attr.fields(type(event))
    values = {f.name: _encode_value(getattr(event, f.name)) for f in names}
    if values.get("shape") == math.inf:  # a Poisson number of runs; JSON has no number for it
        values["shape"] = "inf"
    return [type(event).__name__, values]


def _encode_value(value: Any) -> Any:
    import numpy as np
    from dp_accounting import DpEvent

    if isinstance(value, DpEvent | AllocatedDpEvent | ApproximateDpEvent | OneOfDpEvent):
        return encode_event(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_encode_value(v) for v in value]
    return value


def decode_event(code: Any) -> DpEvent:
    """Inverse of `encode_event`; ValueError for an event that this version does not know.

    >>> decode_event(['GaussianDpEvent', {'noise_multiplier': 2.0}])
    GaussianDpEvent(noise_multiplier=2.0)
    """
    from dp_accounting import DpEvent, dp_event

    own = {kind.__name__: kind for kind in (AllocatedDpEvent, ApproximateDpEvent, OneOfDpEvent)}
    try:
        name, values = code
        kind = own.get(name) or getattr(dp_event, name)
        if not (name in own or issubclass(kind, DpEvent)):
            raise TypeError(name)
        return kind(**{key: _decode_value(value) for key, value in values.items()})
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"event {code!r} is unknown: {error}") from None


def _decode_value(value: Any) -> Any:
    if not isinstance(value, list):
        return math.inf if value == "inf" else value
    if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
        return decode_event(value)
    return [_decode_value(v) for v in value]
