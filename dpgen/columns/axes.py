"""Axes of numbers and times: each value as a whole unit, exactly, and back; the steps that values need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.density import Digits, Integers, Reals
from dpgen.columns.forms import DAY, LEAST, TOLD, read
from dpgen.columns.writings import writing_of
from dpgen.columns.writings.times import TimeWriting

FAR = 2**62 - 2**10
"""Units of numbers with a step lie within this distance of 0."""
_INFINITE = np.int64(0x7FF << 52)  # code of infinity
_LARGEST = np.finfo(np.float64).max
_FROM, _DENSE, _UNTIL = (-719_162, -135_140, 157_054), 41, 2_932_896
"""Days of the years 1, 1600 and 2400, the days of one cell between the last two, and 9999-12-31."""


@dataclass(frozen=True)
class Axis(ABC):
    """Values of a column as whole numbers, units, in their order; `signed`: 0 is more than a convention."""

    @property
    def signed(self) -> bool:
        return True

    @abstractmethod
    def rounding(self) -> dict[str, Any]:
        """The part of a descriptor that states the axis, beside the type; see `axis_of`."""

    @abstractmethod
    def units(self, values: npt.NDArray[Any]) -> Integers:
        """The unit (n,) that each value is, or is nearest to."""

    @abstractmethod
    def values(self, units: Integers) -> npt.NDArray[Any]:
        """The values (n,) of units."""

    def digits(self, most: float) -> tuple[Digits, ...]:
        """Public cells of periods that values may crowd in, the longest period first: of a day about `most` cells at most."""
        return ()

    @abstractmethod
    def scale(self) -> Integers:
        """Public edges of cells, in which values of any size can be told apart by their size."""

    @abstractmethod
    def label(self, unit: int) -> Any:
        """The value of a unit as JSON has it."""

    @abstractmethod
    def unit(self, label: Any) -> int:
        """The unit of a value as JSON has it."""

    def lengths(self, first: Integers, after: Integers) -> Reals:
        """Lengths (n,) from units to later ones."""
        span = np.asarray(after, np.int64).astype(np.uint64) - np.asarray(first, np.int64).astype(np.uint64)  # exact
        return span.astype(np.float64)

    def between(self, first: Integers, after: Integers, share: Reals) -> Integers:
        """The unit (n,) at a share (n,) in [0, 1) of the length from `first` to `after`, which is not reached."""
        whole = np.floor(np.minimum(share * self.lengths(first, after), float(FAR))).astype(np.int64)
        return np.asarray(np.minimum(first + whole, after - 1))

    def moved(self, unit: int, distances: Reals) -> Integers:
        """Units (n,) at distances from one."""
        return unit + np.clip(np.rint(distances), -float(FAR), float(FAR)).astype(np.int64)

    def cut(self, first: int, after: int, pieces: int) -> list[int]:
        """Inner edges of about so many pieces of equal length, each of one unit at least."""
        return sorted({first + (after - first) * i // pieces for i in range(1, pieces)} - {first, after})


@dataclass(frozen=True)
class Steps(Axis):
    """Multiples of a step; `whole` ones come back as int64.

    >>> cents = Steps(Decimal("0.01"), whole=False)
    >>> cents.units(np.array([0.1, 19.99])).tolist(), cents.values(np.array([1999])).tolist()
    ([10, 1999], [19.99])
    """

    step: Decimal
    whole: bool

    def rounding(self) -> dict[str, Any]:
        if self.whole:
            return {} if self.step == 1 else {"dpgen:rounding": int(self.step)}
        return {"dpgen:rounding": format(self.step, "f")}

    def units(self, values: npt.NDArray[Any]) -> Integers:
        if values.dtype.kind == "f":
            with np.errstate(over="ignore"):  # a warning would tell of the records
                scaled = values / float(self.step) if self.step >= 1 else values * float(1 / self.step)
            return np.rint(np.clip(scaled, -float(FAR), float(FAR))).astype(np.int64)
        step, found = int(self.step), values.clip(-FAR, FAR).astype(np.int64)
        return found if step == 1 else np.floor_divide(found + step // 2, step)

    def values(self, units: Integers) -> npt.NDArray[Any]:
        if self.whole:
            return units * int(self.step)
        if self.step >= 1:
            return units.astype(np.float64) * float(self.step)
        return units.astype(np.float64) / float(1 / self.step)  # the quotient is the float of the decimal

    def digits(self, most: float) -> tuple[Digits, ...]:
        period = 100 if self.step == Decimal("0.01") else 10
        return (Digits(period, 0, np.ones(period)),)

    def scale(self) -> Integers:
        powers = 2 ** np.arange(0, 62, dtype=np.int64)
        return np.concatenate([1 - powers[::-1], powers, [FAR + 1]])

    def label(self, unit: int) -> Any:
        value = int(unit) * self.step
        if self.whole or value == value.to_integral_value():
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)

    def unit(self, label: Any) -> int:
        return int((Decimal(str(label)) / self.step).to_integral_value())


@dataclass(frozen=True)
class Floats(Axis):
    """All floats of 64 bits, infinite ones among them: units are the numbers of their order, 0 that of 0.

    >>> Floats().values(Floats().units(np.array([1e-300, -2.5, np.inf]))).tolist()
    [1e-300, -2.5, inf]
    """

    def rounding(self) -> dict[str, Any]:
        return {}

    def units(self, values: npt.NDArray[Any]) -> Integers:
        bits = (np.asarray(values, np.float64) + 0.0).view(np.int64)
        return np.where(bits >= 0, bits, -(bits & np.int64(2**63 - 1)))

    def values(self, units: Integers) -> npt.NDArray[Any]:
        units = np.asarray(units, np.int64)
        return np.where(units >= 0, units, -units | np.int64(-(2**63))).view(np.float64)

    def scale(self) -> Integers:
        binades = np.arange(1, 0x7FF + 1, dtype=np.int64) << 52
        return np.unique(np.concatenate([-binades, [1 - _INFINITE, 0, 1], binades, [_INFINITE + 1]]))

    def label(self, unit: int) -> Any:
        value = float(self.values(np.array([unit]))[0])
        return value if np.isfinite(value) else str(value)

    def unit(self, label: Any) -> int:
        return int(self.units(np.array([float(label)]))[0])

    def _finite(self, units: Integers) -> Reals:
        return np.nan_to_num(self.values(units), nan=_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)

    def lengths(self, first: Integers, after: Integers) -> Reals:
        low, high = self._finite(first), self._finite(after)
        with np.errstate(over="ignore"):
            return np.where(np.asarray(after) - np.asarray(first) == 1, 1.0, np.minimum(high - low, _LARGEST))

    def between(self, first: Integers, after: Integers, share: Reals) -> Integers:
        low, high = self._finite(first), self._finite(after)
        return np.clip(self.units(low * (1.0 - share) + high * share), first, np.asarray(after) - 1)

    def moved(self, unit: int, distances: Reals) -> Integers:
        return self.units(np.clip(self.values(np.array([unit])) + distances, -_LARGEST, _LARGEST))

    def cut(self, first: int, after: int, pieces: int) -> list[int]:
        share = np.arange(1, pieces) / pieces
        found = self.between(np.full(len(share), first), np.full(len(share), after), share)
        return sorted(set(found.tolist()) - {first, after})


@dataclass(frozen=True)
class Times(Axis):
    """Times in units of so many seconds since 1970, `whole` days as dates."""

    seconds: int
    days: bool

    @property
    def signed(self) -> bool:
        return False

    def rounding(self) -> dict[str, Any]:
        return {} if self.days or self.seconds == 1 else {"dpgen:rounding": self.seconds}

    def units(self, values: npt.NDArray[Any]) -> Integers:
        """Units of seconds since 1970 (n,)."""
        found = np.asarray(values, np.float64)
        return np.floor_divide(found + self.seconds // 2, self.seconds).astype(np.int64)

    def values(self, units: Integers) -> npt.NDArray[Any]:
        return (units * self.seconds).astype("datetime64[s]")

    def digits(self, most: float) -> tuple[Digits, ...]:
        day = DAY // self.seconds  # weeks begin on Mondays, 1970 with a Thursday
        times = min(day, next((cells for cells in _OF_DAY if cells <= most), _OF_DAY[-1]))
        week = Digits(7 * day, 3 * day, np.ones(7 * times), 7) if day else None
        return tuple(d for d in (week, Digits(day, 0, np.ones(times)) if day > 1 else None) if d is not None)

    def scale(self) -> Integers:
        first, dense, sparse = _FROM
        centuries = [np.arange(first, dense, 36_525), np.arange(sparse, _UNTIL, 36_525)]
        days = np.concatenate([centuries[0], np.arange(dense, sparse, _DENSE), centuries[1], [_UNTIL + 1]])
        return np.unique(-(-days * DAY // self.seconds)).astype(np.int64)

    def label(self, unit: int) -> Any:
        stamp = np.datetime64(int(unit) * self.seconds, "s")
        return str(stamp.astype("datetime64[D]")) if self.days else str(stamp)

    def unit(self, label: Any) -> int:
        return int(np.datetime64(str(label), "s").astype(np.int64)) // self.seconds


# -- steps -------------------------------------------------------------------------------------------------------------

STEPS = tuple(Decimal(1).scaleb(k) for k in range(3, -7, -1))
_WHOLE = sum(step >= 1 for step in STEPS)
_SURE = 4.0  # noise stds
_CLOCK = (DAY, 3_600, 900, 300, 60, 1)
_OF_DAY = (48, 24, 12, 8)  # cells of a day


def steps(values: pd.Series, kind: str, format: str = "") -> Integers:
    """The place of the largest step in `steps_of` of which each number or time of a column (m,) is a multiple; -1 of 0."""
    x, among = read(values, kind, format)[1], steps_of(kind, format)
    if x.dtype.kind == "i" or among[0] != STEPS[0]:  # whole ones, or times
        held = [x % int(step) == 0 for step in among if step is not None and step >= 1]
    else:
        held = [*_multiples(np.minimum(np.abs(x), 2.0**60)), np.ones(len(x), bool)]  # no product overflows
    if not len(x):
        return np.zeros(0, np.int64)
    found = np.argmax(held, axis=0).astype(np.int64)
    return found if kind == "datetime" else np.where(x == 0, -1, found)


def _multiples(size: Reals) -> list[npt.NDArray[np.bool_]]:
    """Which numbers (m,) are multiples of each of `STEPS`."""
    scaled = [size / float(step) if step >= 1 else size * float(1 / step) for step in STEPS]
    return [(np.abs(s - np.rint(s)) <= 1e-9 * np.maximum(s, 1.0)) & (s < 2**50) for s in scaled]


def steps_of(kind: str, format: str = "") -> tuple[Decimal | None, ...]:
    """Steps of numbers, or of times in their unit, from the largest one on; None: they are not rounded."""
    writing = writing_of(format)
    if kind == "datetime":
        return tuple(map(Decimal, _CLOCK))
    if isinstance(writing, TimeWriting) and writing.limits is not None:  # times of a day and durations
        unit = 60 if writing.layout.kind == "minute" else 1
        return tuple(Decimal(step // unit) for step in _CLOCK[1:] if step >= unit)
    return STEPS[:_WHOLE] if kind in ("integer", "year") else (*STEPS, None)


def finest(counts: Reals, std: float, among: Sequence[Decimal | None]) -> Decimal | None:
    """The finest step that more than noise and one of 100 values need; where noise hides all, that of most columns.

    A step finer than that of most values has to be sure: few of many columns may have one by noise.
    """
    sure = np.where(np.arange(len(counts)) > counts.argmax(), _SURE, TOLD)
    seen = np.flatnonzero(counts > np.maximum(sure * std, LEAST * counts.sum()))
    return among[int(seen[-1])] if len(seen) else among[0] if among[0] == DAY else among[-1]


def axis_of(kind: str, rounding: Any) -> Axis:
    """The axis of a type of the Table Schema and a rounding: a step of numbers, or seconds; numbers without one are floats.

    >>> axis_of("number", 0.01), axis_of("date", None)
    (Steps(step=Decimal('0.01'), whole=False), Times(seconds=86400, days=True))
    """
    if kind in ("date", "datetime"):
        return Times(DAY if kind == "date" else int(rounding or 1), kind == "date")
    if kind == "number":
        return Floats() if rounding is None else Steps(Decimal(str(rounding)), whole=False)
    return Steps(Decimal(str(rounding or 1)), whole=True)
