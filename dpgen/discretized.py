"""Public grids of ordered values: decimals, floats, dates, integers and categories to integers in [0, N) and back."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

Integers = npt.NDArray[np.int64]
MOST_CELLS = 2**62
_ARROW_SCALE = 18
_NANOSECOND = Fraction(1, 10**9)


@dataclass(frozen=True, kw_only=True)
class DiscretizedColumn:
    r"""A public grid :math:`low + i \cdot resolution`, :math:`i = 0 \ldots N - 1`, both ends included.

    Values are rounded to the nearest point of the grid. Arithmetic is exact: 18 digits survive when they arrive as
    integers, `Decimal` or text (a float64 holds 15). Bounds, resolution and categories must be public: they may not be
    read from the records.

    Arguments:
        kind: "number", "date" (datetime64 or ISO text, UTC) or "category" (an ordered list of names).
        low: smallest value, as decimal text or ISO date; of numbers and dates.
        high: largest value, likewise.
        resolution: step of the grid as decimal text, for dates in seconds.
        categories: the names in order, for kind "category".

    Raises:
        ValueError: a bound that cannot be read, high <= low, resolution <= 0, N < 2 or N > 2^62.

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
            raise ValueError(f"the domain has N = {self.size} values; N must be in [2, 2^62]")

    # -- the grid as exact numbers -----------------------------------------------------------------------------------

    def _exact(self, name: str, text: str) -> Fraction:
        try:
            if self.kind == "date" and name != "resolution":
                return int(pd.Timestamp(text).tz_localize(None).as_unit("ns").value) * _NANOSECOND
            return Fraction(Decimal(text))
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
    def _units(self) -> tuple[int, int, int]:
        """Denominator q of one unit, the start and the step in units: grid points are (start + i step) / q."""
        q = lcm(self._start.denominator, self._step.denominator)
        return q, int(self._start * q), int(self._step * q)

    # -- values to integers ------------------------------------------------------------------------------------------

    def encode(self, values: Any) -> Integers:
        """Grid index (n,) int64 of each value (n,), rounded to the nearest; refuses what is missing or out of range.

        Raises:
            ValueError: naming the first value that is NaN, unreadable, unknown or outside [low, high].
        """
        indices, outside = self.encode_clamped(values)
        if outside.any():
            worst = np.asarray(values)[int(outside.argmax())]
            raise ValueError(
                f"value {worst} in row {int(outside.argmax()) + 1} is outside [{self.low}, {self.high}]: widen the public "
                "bounds, or choose out_of_range='clamp'"
            )
        return indices

    def encode_clamped(self, values: Any) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Grid index of each value, those outside the bounds moved to the nearer end, and which ones those were (n,)."""
        if self.kind == "category":
            return self._encode_names(values)
        array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=_dtype_of(values))
        if array.ndim != 1:
            raise ValueError(f"values have shape {array.shape}; they must be one column (n,)")
        if self.kind == "date":
            array = _nanoseconds(array)
            q, start, step = self._units
            return self._from_units(array, 10**9, q, start, step)
        if array.dtype.kind in "bui":
            return self._from_units(array, 1, *self._units)
        if array.dtype.kind == "f":
            return self._from_floats(array.astype(np.float64, copy=False))
        return self._from_text(array)

    def _encode_names(self, values: Any) -> tuple[Integers, npt.NDArray[np.bool_]]:
        names = pd.Index(self.categories)
        indices = names.get_indexer(pd.Index(np.asarray(values, dtype=object)).map(str)).astype(np.int64)
        if (indices < 0).any():
            row = int((indices < 0).argmax())
            raise ValueError(f"value {values[row]!r} in row {row + 1} is none of the {self.size} public categories")
        return indices, np.zeros(len(indices), bool)

    def _from_units(self, whole: npt.NDArray[Any], per: int, q: int, start: int, step: int) -> Any:
        """Values `whole / per` to indices; Python's big integers only where int64 could overflow."""
        if per == q == 1 and abs(start) < 2**62 and step < 2**61:
            if whole.dtype == np.uint64:
                outside = (whole < np.uint64(max(start, 0))) | (whole > np.uint64(max(start + (self.size - 1) * step, 0)))
                clipped = np.clip(whole, np.uint64(max(start, 0)), np.uint64(max(start + (self.size - 1) * step, 0)))
                return (clipped.astype(np.int64) - start + step // 2) // step, outside
            last = start + (self.size - 1) * step
            signed = whole.astype(np.int64, copy=False)
            outside = (signed < start) | (signed > last + step // 2)
            return self._steps(np.clip(signed, start, last) - start, step), outside
        if whole.size == 0:
            return np.empty(0, np.int64), np.empty(0, bool)
        if self._fits(int(whole.min()) * q // per - 1, int(whole.max()) * q // per + 1, start) and q % per == 0:
            units = whole.astype(np.int64) * (q // per) - start
            return self._clamped_steps(units, step)
        exact = [(Fraction(int(v), per) * q - start) / step for v in whole]
        return self._rounded(exact)

    @staticmethod
    def _fits(least: int, most: int, start: int) -> bool:
        return max(abs(least), abs(most)) + abs(start) < 2**62

    def _steps(self, units: Integers, step: int) -> Integers:
        return units if step == 1 else np.minimum((units + step // 2) // step, self.size - 1)

    def _clamped_steps(self, units: Integers, step: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
        last = (self.size - 1) * step
        outside = (units < 0) | (units > last + step // 2)
        return self._steps(np.clip(units, 0, last), step), outside

    def _from_floats(self, values: npt.NDArray[np.float64]) -> tuple[Integers, npt.NDArray[np.bool_]]:
        if not np.isfinite(values).all():
            row = int((~np.isfinite(values)).argmax())
            raise ValueError(f"value {values[row]} in row {row + 1} is not finite: remove or replace missing values first")
        q, start, step = self._units
        low, high = float(self._start), float(self._start + (self.size - 1) * self._step)
        outside = (values < low - 1e-12 * abs(low)) | (values > high + float(self._step) / 2 + 1e-12 * abs(high))
        inside = np.clip(values, low, high)
        if (abs(low) + abs(high)) * q + abs(start) >= 2**62:
            return self._rounded([(Fraction(v) * q - start) / step for v in inside.tolist()])[0], outside
        # The whole part times q is exact in int64; only the fraction is rounded, once.
        whole = np.floor(inside)
        units = whole.astype(np.int64) * q + np.rint((inside - whole) * q).astype(np.int64) - start
        return self._clamped_steps(units, step)[0], outside

    def _from_text(self, values: npt.NDArray[Any]) -> tuple[Integers, npt.NDArray[np.bool_]]:
        q, start, step = self._units
        digits = len(str(q)) - 1
        if q == 10**digits and digits <= _ARROW_SCALE and step < 2**31:
            units = _decimal_units(values, digits)
            if units is not None and abs(start) < 2**61:
                return self._clamped_steps(units - start, step)
        exact = []
        for row, value in enumerate(values.tolist()):
            try:
                exact.append((Fraction(Decimal(value if isinstance(value, Decimal) else str(value))) * q - start) / step)
            except (InvalidOperation, ValueError, OverflowError):
                raise ValueError(f"value {str(value)[:40]!r} in row {row + 1} is not a finite number") from None
        return self._rounded(exact)

    def _rounded(self, exact: list[Fraction]) -> tuple[Integers, npt.NDArray[np.bool_]]:
        last, half = self.size - 1, Fraction(1, 2)
        outside = np.array([x < 0 or x > last + half for x in exact], bool)
        return np.array([min(max(int(x + half), 0), last) for x in exact], np.int64), outside

    # -- integers to values ------------------------------------------------------------------------------------------

    @property
    def whole(self) -> bool:
        """Whether every grid point is a whole number."""
        return self.kind == "number" and self._units[0] == 1

    @property
    def decimals(self) -> bool:
        """Whether the grid is finer than float64: values come back as `Decimal`."""
        if self.kind != "number" or self.whole:
            return False
        _, start, step = self._units
        return max(abs(start), abs(start + (self.size - 1) * step)) > 10**15

    def decode(self, indices: npt.ArrayLike) -> npt.NDArray[Any]:
        """Values of grid indices: int64, float64, `Decimal`, datetime64[ns] or names; the inverse of `encode`."""
        array = np.asarray(indices, np.int64)
        if array.size and not (array.min() >= 0 and array.max() < self.size):
            raise ValueError(f"indices reach from {array.min()} to {array.max()}; they must be in [0, {self.size - 1}]")
        if self.kind == "category":
            return np.asarray(self.categories, dtype=object)[array]
        q, start, step = self._units
        if self.kind == "date":
            scale = Fraction(10**9, q)
            return np.array([int((start + int(i) * step) * scale) for i in array.ravel()], "datetime64[ns]").reshape(
                array.shape
            )
        if self.whole and abs(start) + self.size * step < 2**62:
            return array * step + start
        units = [start + int(i) * step for i in array.ravel()]
        if self.whole:
            return np.array(units, dtype=object).reshape(array.shape)
        if not self.decimals:
            return np.array([u / q for u in units], np.float64).reshape(array.shape)
        digits = self._digits
        return np.array([Decimal(u * 10**digits // q).scaleb(-digits) for u in units], dtype=object).reshape(array.shape)

    @cached_property
    def _digits(self) -> int:
        """Decimal places that every grid point has."""
        q, digits = self._units[0], 0
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


def _dtype_of(values: Any) -> Any:
    """Lists of text, decimals, dates and large whole numbers must not pass through float64."""
    first = next(iter(values), None)
    if isinstance(first, str | Decimal):
        return object
    return None if not isinstance(first, datetime) else "datetime64[ns]"


def _decimal_units(values: npt.NDArray[Any], digits: int) -> Integers | None:
    """Decimal numbers times 10^digits as int64, rounded half up; None where Arrow's 38 digits do not hold them."""
    import pyarrow
    import pyarrow.compute

    try:
        text = [str(value) if isinstance(value, Decimal) else value for value in values.tolist()]
        numbers = pyarrow.array(text, pyarrow.string()).cast(pyarrow.decimal128(38, _ARROW_SCALE))
        rounded = pyarrow.compute.round(numbers, ndigits=digits, round_mode="half_towards_infinity")
        fixed = rounded.cast(pyarrow.decimal128(38, digits))
    except (pyarrow.ArrowException, TypeError):
        return None
    if fixed.null_count:
        return None
    words = np.frombuffer(fixed.buffers()[1], np.int64).reshape(-1, 2)[fixed.offset : fixed.offset + len(fixed)]
    low, high = words[:, 0], words[:, 1]
    inside = (high == low >> 63) & (np.abs(low) < 2**61)  # the high word only repeats the sign
    return low.copy() if inside.all() else None


def _nanoseconds(values: npt.NDArray[Any]) -> Integers:
    if values.dtype.kind in "fiub":
        raise ValueError(f"values have dtype {values.dtype}; dates must be datetime64 or ISO text")
    try:
        parsed = pd.to_datetime(pd.Series(values), utc=True, format=None if values.dtype.kind == "M" else "ISO8601")
    except (ValueError, TypeError) as error:
        raise ValueError(f"values hold what is no ISO date: {' '.join(str(error).split())[:120]}") from None
    if parsed.isna().any():
        raise ValueError(f"value in row {int(parsed.isna().to_numpy().argmax()) + 1} is no date: remove missing values first")
    return parsed.dt.tz_localize(None).to_numpy(dtype="datetime64[ns]").astype(np.int64)
