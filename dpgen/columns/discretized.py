"""Public grids of ordered values: decimals, floats, dates, integers and categories to integers in [0, N) and back."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

Integers = npt.NDArray[np.int64]
Encoded = tuple[Integers, npt.NDArray[np.bool_]]
MOST_CELLS = 2**62
_ARROW_SCALE = 18
_NANOSECOND = Fraction(1, 10**9)
_DAY = 86_400
_MOST_DIGITS = 400  # before or behind the point: more than floats have
DECIMAL = 1e-3  # of a unit: floats this dense are read as the decimals that they were written as


class Ranks(Protocol):
    """The records of one column as counts on its grid, wherever they are kept; a sorted array (n,) says the same.

    All of it is exact, and a function of the records' values alone: an engine, any number of threads or machines, and a
    sorted array in memory give the same whole numbers.
    """

    def __len__(self) -> int:
        """Number of records."""

    def below(self, positions: npt.ArrayLike) -> Integers:
        """Records below each position (m,), int64."""

    def outline(self, threshold: int, decay: int) -> tuple[Integers, Integers]:
        """Increasing positions (m,) and the records below each and in all, (m + 1,), that tell the counts of heavy cells.

        A dyadic cell of depth h is heavy with more than threshold + (h - 1) decay records. Counts between the positions are
        exact for it; a cell that is not heavy may get any count up to its own.
        """

    def in_order(self) -> Integers:
        """All positions (n,), sorted: as much memory as there are records."""


@dataclass(frozen=True, kw_only=True)
class DiscretizedColumn:
    r"""A public grid :math:`low + i \cdot resolution`, :math:`i = 0 \ldots N - 1`, both ends included.

    Values are rounded to the nearest point of the grid, halves up; those from the last point to `high` go to it, and only
    what is below `low` or above `high` is outside. On a grid of whole days `high` is the whole day. Arithmetic is exact:
    18 digits survive when they arrive as integers, `Decimal` or text (a float64 holds 15). Bounds, resolution and
    categories must be public: they may not be read from the records.

    `kind` is "number", "date" (datetime64 or ISO text, UTC) or "category", which has `categories` in order. `low`, `high` and
    `resolution` are decimal texts, bounds of dates ISO dates and their resolution seconds.

    >>> price = DiscretizedColumn(low="0", high="1000000000", resolution="1e-9")
    >>> price.size, price.encode(["123456789.123456789"]).tolist()
    (1000000000000000001, [123456789123456789])
    >>> price.decode(np.array([123456789123456789]))[0]
    Decimal('123456789.123456789')
    """

    kind: Literal["number", "date", "category"] = "number"
    low: str = ""
    high: str = ""
    resolution: str = "1"
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("number", "date", "category"):
            raise ValueError(f"kind is {self.kind!r}; it must be one of 'number', 'date', 'category'")
        if self.kind == "category":
            if len(set(self.categories)) != len(self.categories):
                raise ValueError("categories hold a name twice; they must be distinct")
        else:
            low, step, high = self._start, self._step, self._exact("high", self.high)
            if step <= 0:
                raise ValueError(f"resolution is {self.resolution!r}; it must be > 0")
            if high < low:
                raise ValueError(f"high is {self.high!r}; it must be above low = {self.low!r}")
        if not 2 <= self.size <= MOST_CELLS:
            shown = str(self.size) if self.size < 10**20 else f"about 10^{math.log10(self.size):.0f}"
            raise ValueError(f"the domain has N = {shown} values; N must be in [2, 2^62]")

    # -- the grid as exact numbers -----------------------------------------------------------------------------------

    def _exact(self, name: str, text: str) -> Fraction:
        try:
            if self.kind == "date" and name != "resolution":
                return int(pd.Timestamp(text).tz_localize(None).as_unit("ns").value) * _NANOSECOND
            return Fraction(_plain_decimal(text))
        except (ValueError, InvalidOperation, OverflowError, TypeError):
            wanted = "an ISO date" if self.kind == "date" and name != "resolution" else "a finite decimal number"
            raise ValueError(f"{name} is {text!r}; it must be {wanted}") from None

    @cached_property
    def _start(self) -> Fraction:
        return self._exact("low", self.low)

    @cached_property
    def _step(self) -> Fraction:
        return self._exact("resolution", self.resolution)

    @cached_property
    def size(self) -> int:
        """N, the number of values."""
        if self.kind == "category":
            return len(self.categories)
        return int((self._exact("high", self.high) - self._start) / self._step) + 1

    @cached_property
    def _last(self) -> Fraction:
        """The largest value inside: `high`, and on a grid of whole days all of that day."""
        high = self._exact("high", self.high)
        if self.kind == "date" and self._step % _DAY == 0 and high % _DAY == 0:
            return high + _DAY - _NANOSECOND
        return high

    @cached_property
    def units(self) -> tuple[int, int, int]:
        """Denominator q of one unit, the start and the step in units: grid points are (start + i step) / q."""
        q = math.lcm(self._start.denominator, self._step.denominator)
        return q, int(self._start * q), int(self._step * q)

    # -- values to integers ------------------------------------------------------------------------------------------

    def encode(self, values: Any) -> Integers:
        """Grid index (n,) int64 of each value (n,), rounded to the nearest; refuses what is missing or out of range."""
        indices, outside = self.encode_clamped(values)
        if outside.any():
            raise ValueError(
                f"value in row {int(outside.argmax()) + 1} is outside [{self.low}, {self.high}]: widen the public "
                "bounds, or choose out_of_range='clamp'"
            )
        return indices

    def encode_clamped(self, values: Any) -> Encoded:
        """Grid index of each value, those outside the bounds moved to the nearer end, and which ones those were (n,)."""
        if self.kind == "category":
            return self._encode_names(values)
        first = None if isinstance(values, np.ndarray) else next(iter(values), None)
        exact: dict[type, Any] = {str: object, Decimal: object, datetime: "datetime64[ns]"}  # not by way of float64
        array = np.asarray(values, next((dtype for kind, dtype in exact.items() if isinstance(first, kind)), None))
        if array.ndim != 1:
            raise ValueError(f"values have shape {array.shape}; they must be one column (n,)")
        if self.kind == "date":
            array = _nanoseconds(array)
            return self._from_units(array, 10**9)
        if array.dtype.kind in "ui":
            return self._from_units(array, 1)
        if array.dtype.kind == "b":
            raise ValueError("values are True and False; they must be numbers")
        if array.dtype.kind == "f":
            return self._from_floats(array)
        return self._from_text(array)

    def _encode_names(self, values: Any) -> Encoded:
        names = pd.Index(self.categories)
        codes, different = pd.factorize(np.asarray(values, dtype=object), use_na_sentinel=False)
        indices = names.get_indexer(pd.Index(list(map(str, different)), dtype=object)).astype(np.int64)[codes]
        if (indices < 0).any():
            row = int((indices < 0).argmax())
            raise ValueError(f"value in row {row + 1} is none of the {self.size} public categories")
        return indices, np.zeros(len(indices), bool)

    def float_bounds(self, dtype: npt.DTypeLike) -> tuple[float, float]:
        """The bounds that floats of this type are compared with."""
        with np.errstate(over="ignore"):  # a float16 cannot hold every bound
            low, high = np.array([float(self._start), float(self._last)]).astype(dtype)
        return float(low), float(high)

    def _from_units(self, whole: npt.NDArray[Any], per: int) -> Encoded:
        """Values `whole / per` to indices; Python's big integers only where int64 could overflow."""
        q, start, step = self.units
        fine = math.lcm(q, per)
        first, last = math.ceil(self._start * per), math.floor(self._last * per)
        times, origin, width = fine // per, start * (fine // q), step * (fine // q)
        below, above = np.asarray(whole < first), np.asarray(whole > last)
        if max(abs(first * times), abs(last * times), abs(origin), (last - first) * times) >= 2**62:
            return self._indices([Fraction(int(v), per) for v in whole]), below | above
        if whole.dtype == np.uint64:
            whole = np.minimum(whole, np.uint64(2**63 - 1))
        indices = self._nearest(np.clip(whole.astype(np.int64, copy=False), first, last) * times - origin, width)
        indices[below], indices[above] = 0, self.size - 1  # the whole number next to a bound may be cells away from it
        return indices, below | above

    def _nearest(self, units: Integers, step: int) -> Integers:
        """Index of the nearest grid point, halves up, of whole units after the first one; the last cell takes the rest."""
        return (units if step == 1 else (units + step // 2) // step).clip(0, self.size - 1)

    def _from_floats(self, values: npt.NDArray[Any]) -> Encoded:
        if not np.isfinite(values).all():
            row = int((~np.isfinite(values)).argmax())
            raise ValueError(f"value in row {row + 1} is not finite: remove or replace missing values first")
        low, high = self.float_bounds(values.dtype)
        wide = values.astype(np.float64, copy=False)
        outside = (wide < low) | (wide > high)
        inside = np.clip(wide, low, high)
        q, start, step = self.units
        if (abs(low) + abs(high)) * q + abs(start) >= 2**62:  # indices would pass int64
            return self._indices([Fraction(v) for v in inside.tolist()]), outside
        # The whole part times q is exact in int64; only the fraction is rounded, once.
        whole = np.floor(inside)
        rest = (inside - whole) * q
        slack = 4 * float(np.finfo(values.dtype).eps) * (abs(inside) * q + 1)
        # 0.15 stands for the decimal, which is half a step of 0.1; every value is judged by itself, whatever is beside it.
        halves = np.rint(2 * rest) / 2
        rest = np.where((slack < DECIMAL) & (abs(rest - halves) <= slack), halves, rest)
        units = np.floor(rest)
        if step % 2:  # cells of an odd number of units end between two units
            units += rest - units >= 0.5
        return self._nearest(whole.astype(np.int64) * q + units.astype(np.int64) - start, step), outside

    def _from_text(self, values: npt.NDArray[Any]) -> Encoded:
        q, start, step = self.units
        digits = len(str(q)) - 1
        if q == 10**digits and digits <= _ARROW_SCALE and step < 2**31 and abs(start) < 2**61:
            found = _decimal_units(values, digits, (self.low, self.high), halves_up=step % 2 == 1)
            if found is not None:
                units, outside = found
                return self._nearest(units - start, step), outside
        exact = []
        for row, value in enumerate(values.tolist()):
            try:
                exact.append(Fraction(value if isinstance(value, Decimal) else _plain_decimal(str(value))))
            except (InvalidOperation, ValueError, OverflowError):
                raise ValueError(f"value in row {row + 1} is not a finite number") from None
        return self._indices(exact), np.array([not self._start <= x <= self._last for x in exact], bool)

    def _indices(self, exact: list[Fraction]) -> Integers:
        last, half = self.size - 1, Fraction(1, 2)
        return np.array([min(max(math.floor((x - self._start) / self._step + half), 0), last) for x in exact], np.int64)

    # -- integers to values ------------------------------------------------------------------------------------------

    @property
    def whole(self) -> bool:
        """Whether every grid point is a whole number."""
        return self.kind == "number" and self.units[0] == 1

    @property
    def decimals(self) -> bool:
        """Whether the grid is finer than float64: values come back as `Decimal`."""
        if self.kind != "number" or self.whole:
            return False
        _, start, step = self.units
        return max(abs(start), abs(start + (self.size - 1) * step)) > 10**15

    def _inside(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if indices.size and not (indices.min() >= 0 and indices.max() < self.size):
            raise ValueError(f"indices reach from {indices.min()} to {indices.max()}; they must be in [0, {self.size - 1}]")
        return indices

    def decode(self, indices: npt.ArrayLike) -> npt.NDArray[Any]:
        """Values of grid indices: int64, float64, `Decimal`, datetime64[ns] or names; the inverse of `encode`."""
        array = self._inside(np.asarray(indices, np.int64))
        if self.kind == "category":
            return np.asarray(self.categories, dtype=object)[array]
        if self.kind == "date":
            return self._times(array)
        q, start, step = self.units
        if self.whole and abs(start) + self.size * step < 2**62:
            return array * step + start
        if not self.decimals and not self.whole and max(abs(start), q) + self.size * step < 2**53:
            return (array * step + start) / q  # both exact in float64, so that the quotient is the nearest float
        return self._exact_numbers(array)

    def _exact_numbers(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Numbers of grid indices, by integers of any length."""
        q, start, step = self.units
        units = [start + int(i) * step for i in indices.ravel()]
        if self.whole:
            return np.array(units, dtype=object).reshape(indices.shape)
        if not self.decimals:
            return np.array([u / q for u in units], np.float64).reshape(indices.shape)
        digits = self._digits
        return np.array([Decimal(u * 10**digits // q).scaleb(-digits) for u in units], dtype=object).reshape(indices.shape)

    def _times(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.datetime64]:
        """Times of grid indices: by arithmetic of 64 bits where it is exact."""
        q, start, step = self.units
        scale = Fraction(10**9, q)
        if scale.denominator == 1 and (abs(start) + self.size * step) * scale < 2**63:
            return ((indices * step + start) * int(scale)).astype("datetime64[ns]")
        times = [int((start + int(i) * step) * scale) for i in indices.ravel()]
        return np.array(times, "datetime64[ns]").reshape(indices.shape)

    @cached_property
    def _digits(self) -> int:
        """Decimal places that every grid point has."""
        q, digits = self.units[0], 0
        while 10**digits % q and digits < 40:
            digits += 1
        return digits

    def as_float(self, indices: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Positions on the value axis for plots: numbers, seconds since 1970 for dates, the index for categories."""
        array = np.asarray(indices, np.float64)
        return array if self.kind == "category" else float(self._start) + array * float(self._step)

    # -- files -------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The grid as JSON."""
        return asdict(self) | {"categories": list(self.categories)}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> "DiscretizedColumn":
        """The inverse of `to_dict`."""
        return cls(**{**description, "categories": tuple(description["categories"])})

    @classmethod
    def integers(cls, size: int) -> "DiscretizedColumn":
        """The grid 0, 1, ..., size - 1.

        >>> DiscretizedColumn.integers(16).size
        16
        """
        return cls(low="0", high=str(size - 1))


def _plain_decimal(text: str) -> Decimal:
    """A decimal number as files write it; Python alone would read the underscores and the digits of other scripts too.

    >>> _plain_decimal(" -1.5e3")
    Decimal('-1.5E+3')
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text!r} is no decimal number")
    number = Decimal(text)
    if number and abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError(f"{text!r} has too many digits")
    return number


def _decimal_units(values: npt.NDArray[Any], digits: int, bounds: tuple[str, str], *, halves_up: bool) -> Encoded | None:
    """Decimal numbers times 10^digits as int64, rounded half up or down, and which are out of bounds.

    None where Arrow's 38 digits do not hold them.
    """
    import pyarrow
    import pyarrow.compute as compute

    kind = pyarrow.decimal128(38, _ARROW_SCALE)
    try:
        text = [str(value) if isinstance(value, Decimal) else value for value in values.tolist()]
        numbers = pyarrow.array(text, pyarrow.string()).cast(kind)
        low, high = (pyarrow.scalar(Decimal(bound), kind) for bound in bounds)
        outside = compute.or_(compute.less(numbers, low), compute.greater(numbers, high))
        rounded = compute.round(numbers, ndigits=digits, round_mode="half_up" if halves_up else "down")
        fixed = rounded.cast(pyarrow.decimal128(38, digits))
    except (pyarrow.ArrowException, TypeError):
        return None
    if fixed.null_count:
        return None
    words = np.frombuffer(fixed.buffers()[1], np.int64).reshape(-1, 2)[fixed.offset : fixed.offset + len(fixed)]
    last, first = words[:, 0], words[:, 1]
    whole = (first == last >> 63) & (last > -(2**61)) & (last < 2**61)  # the high word only repeats the sign
    return (last.copy(), outside.to_numpy(zero_copy_only=False)) if whole.all() else None


def _nanoseconds(values: npt.NDArray[Any]) -> Integers:
    if values.dtype.kind in "fiub":
        raise ValueError(f"values have dtype {values.dtype}; dates must be datetime64 or ISO text")
    try:
        parsed = pd.to_datetime(pd.Series(values), utc=True, format=None if values.dtype.kind == "M" else "ISO8601")
    except (ValueError, TypeError):  # pandas quotes the value, which is private
        raise ValueError("values hold what is no ISO date") from None
    if parsed.isna().any():
        raise ValueError(f"value in row {int(parsed.isna().to_numpy().argmax()) + 1} is no date: remove missing values first")
    return parsed.dt.tz_localize(None).to_numpy(dtype="datetime64[ns]").astype(np.int64)
