"""Gaussian mechanisms as events: what is released, in units of its sensitivity.

Events are `dp_accounting`'s, so other tools can read a ledger. `dp_accounting` is imported when the first event is
made: importing this module stays cheap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, cast, get_args

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from dp_accounting import DpEvent
    from torch import Tensor


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

    Arguments:
        relation: neighbouring relation.
        rows: the most rows of a unit; people differ in how many they have.
        always_used: whether every unit has a row that is used whatever it holds. Not where rows with gaps are left out, nor
            where units are people: whoever replaces one may have no row.

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

    def normal(self, *shape: int, noise_std: float = 1.0) -> Tensor:
        r"""float32 draws of :math:`N(0, \sigma^2)`."""

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
    """`{(sampling_rate, noise_multiplier): count}` of an event made of (Poisson-sampled) Gaussians only.

    A multiplier of 0 stands for no privacy at all.

    Raises:
        UnsupportedEvent: anything else is in the event.
        ValueError: a rate outside [0, 1], a negative multiplier or count, or NaN.
    """
    import dp_accounting as dpa

    parts: Counter[tuple[float, float]] = Counter()
    for leaf, count in walk(event):
        rate, inner = 1.0, leaf
        if isinstance(leaf, dpa.PoissonSampledDpEvent):
            rate, inner = float(leaf.sampling_probability), leaf.event
        if not 0 <= rate <= 1:
            raise ValueError(f"sampling_probability is {rate!r}; it must lie in [0, 1]")
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
