"""Fields of a public table schema: values of one column as codes of a finite domain, and back.

Words and types are those of the Frictionless Table Schema; dpgen's own keys begin with `dpgen:`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.discretized import DiscretizedColumn
from dpgen.values import LARGEST, NUMBER, REPRESENTED, Violation, numbers, numbers_or_gaps, times, to_microseconds

Codes = npt.NDArray[np.int64]
Uniform = npt.NDArray[np.float64]
Type = Literal["string", "boolean", "integer", "number", "date", "datetime", "year"]
Law = Literal["linear", "uniform", "log"]
"""Of values in their bin: of a density that is piecewise linear across bins of known shares, the same of 1/x, or uniform."""
Source = Literal["public", "private", "dp"]
"""Where the domain of a field comes from: public knowledge, the private records unprotected, or a private release."""

Descriptor = Mapping[str, Any]

_BINS = 32
EXACT = 64  # a grid of at most so many values has a bin for each
_DIGITS = 6  # decimal places of a number without a rounding, below the leading one of its range
_PLAIN_KEYS = {"name", "type", "format", "constraints", "title", "description", "example", "rdfType", "trueValues"}
_PLAIN_KEYS |= {"falseValues", "missingValues", "categories", "categoriesOrdered"}
_OWN_KEYS = {"dpgen:bins", "dpgen:law", "dpgen:rounding", "dpgen:source", "dpgen:key", "dpgen:outside", "dpgen:fill"}
_CONSTRAINTS = {"required", "unique", "enum", "minimum", "maximum"}
_TRUE, _FALSE = ("true", "True", "TRUE", "1"), ("false", "False", "FALSE", "0")


def nearest(what: str, name: str, choices: Sequence[str]) -> ValueError:
    """The error of a name that is none of the choices, with the nearest of them."""
    close = get_close_matches(name, choices, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return ValueError(f"{what} is {name!r}; it must be one of {', '.join(choices)}{hint}")


# -- kinds of fields ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Field(ABC):
    """One column of a table, as its schema declares it.

    `source` says where the domain comes from; `fill` is the value that stands for a missing one where none may be missing,
    None: it is refused.
    """

    name: str
    type: Type
    nullable: bool = True
    source: Source = "public"
    fill: Any = None

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of codes, that of a missing value not counted."""

    @property
    def ordered(self) -> bool:
        """Whether codes are in the order of their values."""
        return False

    @abstractmethod
    def parse(self, values: pd.Series) -> pd.Series:
        """Values (n,), none of them missing, in the type that `decode` gives."""

    def cleaned(self, values: pd.Series) -> pd.Series:
        """Values (n,) that `parse` takes, each by itself: what is not of the type is missing."""
        return values

    def typed(self, values: pd.Series) -> pd.Series:
        """Values (n,) in the type of samples, each by itself, whatever the domain is: what is not of the type is missing."""
        cleaned = self.cleaned(values)
        rows = np.flatnonzero(cleaned.notna().to_numpy())
        return pd.Series(self.parse(cleaned.iloc[rows].reset_index(drop=True)).array, index=rows).reindex(range(len(cleaned)))

    @abstractmethod
    def encode(self, values: pd.Series) -> Codes:
        """Codes (n,) of parsed values."""

    @property
    def gap(self) -> int:
        """Code of a missing value, that of `fill` where none may be missing; -1: it is refused."""
        if self.nullable:
            return self.size
        return -1 if self.fill is None else int(self.encode(self.parse(pd.Series([self.fill])))[0])

    @abstractmethod
    def decode(self, codes: Codes, uniform: Callable[[int], Uniform]) -> pd.Series:
        """Values (n,) of codes; `uniform(n)` gives n public numbers in [0, 1)."""

    def inside(self, codes: Codes, uniform: Uniform, shares: Uniform) -> Uniform:
        """Numbers in [0, 1) that `decode` takes for uniform ones (n,), where the codes have these released shares (size,)."""
        return uniform

    def labels(self) -> list[str]:
        """Every code in words: its value, or the first one of its bin."""
        return [str(value)[:10] if self.type == "date" else str(value) for value in pd.Series(self.bounds()[0])]

    def bounds(self) -> tuple[Any, Any]:
        """Least and greatest value (size,) of every code, comparable with parsed values."""
        raise ValueError(f"field {self.name!r} is {self.type} and has no order")


@dataclass(frozen=True, kw_only=True)
class CategoryField(Field):
    """A field that lists its values, which are its codes in this order.

    `true` and `false` are texts of booleans; `outside` is the one of the values that stands for all others, None: those are
    refused.

    >>> sex = CategoryField(name="sex", type="string", values=("Female", "Male"))
    >>> sex.encode(sex.parse(pd.Series(["Male", "Female"]))).tolist()
    [1, 0]
    """

    values: tuple[Any, ...]
    in_order: bool = False
    true: tuple[str, ...] = _TRUE
    false: tuple[str, ...] = _FALSE
    outside: Any = None

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"enum of field {self.name!r} is empty; it must list at least one value")
        if len(set(self.values)) != len(self.values):
            raise ValueError(f"enum of field {self.name!r} lists a value twice; its values must differ")
        if self.outside is not None and self.outside not in self.values:
            raise nearest(f"dpgen:outside of field {self.name!r}", str(self.outside), [str(v) for v in self.values[:20]])

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def ordered(self) -> bool:
        return self.in_order

    def parse(self, values: pd.Series) -> pd.Series:
        if self.type == "boolean":
            if pd.api.types.is_bool_dtype(values.dtype):
                return values.astype(bool)
            texts = values.astype(object).map(str)
            wrong = ~texts.isin([*self.true, *self.false])
            if wrong.any():
                raise Violation("it holds booleans")
            return texts.isin(self.true)
        if self.type == "string":
            return values if values.dtype == "str" else values.astype(object).map(str)
        return numbers(values, whole=self.type != "number")

    @cached_property
    def _index(self) -> pd.Index:
        return pd.Index(self.values, dtype=object if self.type in ("string", "boolean") else None)

    def cleaned(self, values: pd.Series) -> pd.Series:
        if self.type in ("integer", "number", "year"):
            found = numbers_or_gaps(values).astype("float64")
            return found if self.type == "number" else found.clip(-LARGEST, LARGEST).round()
        if self.type != "boolean" or pd.api.types.is_bool_dtype(values.dtype):
            return values
        texts = values.astype(object).map(lambda value: str(value).strip())
        return texts.where(texts.isin([*self.true, *self.false]) & values.notna(), None)

    def encode(self, values: pd.Series) -> Codes:
        codes = np.asarray(self._index.get_indexer(pd.Index(values)), np.int64)
        if self.outside is not None:
            codes = np.where(codes < 0, self.values.index(self.outside), codes)
        if (codes < 0).any():
            raise Violation(f"its values are the {self.size} of enum")
        return codes

    def decode(self, codes: Codes, uniform: Callable[[int], Uniform]) -> pd.Series:
        values = pd.Series(np.array(self.values, dtype=object)[codes])
        kinds = {"string": "str", "boolean": "bool", "number": "float64"}
        return values.astype(kinds.get(self.type, "int64"))

    def labels(self) -> list[str]:
        return [str(value) for value in self.values]

    def bounds(self) -> tuple[Any, Any]:
        if self.type in ("string", "boolean"):
            return super().bounds()
        values = np.array(self.values, np.float64)
        return values, values


@dataclass(frozen=True, kw_only=True)
class NumberField(Field):
    r"""Numbers, years, dates or times on a public grid, whose cells are grouped to bins: the codes.

    A value is drawn uniformly from the grid points of its bin; of logarithmic bins with the density 1/x. With the law "linear"
    and known shares of all bins, this density is multiplied by one that is piecewise linear and continuous across bins, see
    `inside`.

    `starts` are the index in the grid of the first value of each bin, and the grid's size. Whole numbers and years have
    resolution 1, dates one day, times one second or more. `logarithmic` bins have a density that falls as 1/x, `clamp` moves
    values outside of the grid to its nearer end, `format` is of dates as texts, ISO where it is "".
    """

    grid: DiscretizedColumn
    starts: tuple[int, ...]
    logarithmic: bool = False
    format: str = ""
    clamp: bool = False
    law: Law = "uniform"

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    @property
    def ordered(self) -> bool:
        return True

    @property
    def of_dates(self) -> bool:
        """Whether values are dates or times."""
        return self.grid.kind == "date"

    def parse(self, values: pd.Series) -> pd.Series:
        if not self.of_dates:
            return numbers(values, whole=self.type != "number")
        if values.dtype.kind != "M":
            odd = ~values.astype(object).map(lambda value: isinstance(value, str | date)).to_numpy(bool)
            if odd.any():
                raise Violation(f"it holds a {self.type}")
            values = values.astype(object).map(lambda value: value.isoformat() if isinstance(value, date) else value)
            values = values if self.format else values.map(to_microseconds)
        text = self.format if values.dtype.kind != "M" else ""
        iso = None if values.dtype.kind == "M" else "ISO8601"
        found = pd.to_datetime(values, errors="coerce", utc=True, format=text or iso)
        if found.isna().any():
            raise Violation(f"it holds a {self.type} ({self.format or 'ISO 8601'})")
        day = pd.Timedelta(days=1)  # beyond the bounds it is only known that a date is beyond, for nanoseconds end in 2262
        low, high = pd.Timestamp(self.grid.low) - day, pd.Timestamp(self.grid.high) + 2 * day
        naive = found.dt.tz_localize(None).clip(low, high).astype("datetime64[ns]")
        return naive.dt.normalize() if self.type == "date" else naive

    def typed(self, values: pd.Series) -> pd.Series:
        if not self.of_dates:
            return numbers_or_gaps(values)
        if self.format and values.dtype.kind != "M":
            values = pd.to_datetime(values, errors="coerce", format=self.format)
        return pd.Series(pd.to_datetime(np.clip(times(values), *REPRESENTED), unit="s"))

    def cleaned(self, values: pd.Series) -> pd.Series:
        if self.of_dates:
            seconds = np.clip(times(values), *REPRESENTED)
            return pd.Series(pd.to_datetime(seconds, unit="s"), index=values.index)
        found = numbers_or_gaps(values)
        if self.type == "number":
            return found.astype("float64").clip(*self.grid.float_bounds(np.dtype(np.float64)))
        return found if found.dtype.kind == "i" else found.clip(-float(LARGEST), float(LARGEST)).round().astype("Int64")

    def encode(self, values: pd.Series) -> Codes:
        index, outside = self.grid.encode_clamped(values.to_numpy())
        if outside.any() and not self.clamp:
            zone = ", in UTC, to which times of a timezone are converted" if self.type == "datetime" else ""
            raise Violation(f"minimum is {self.grid.low} and maximum is {self.grid.high}{zone}")
        return np.searchsorted(self._starts[1:-1], index, side="right").astype(np.int64)

    @cached_property
    def _starts(self) -> Codes:
        return np.array(self.starts, np.int64)

    def decode(self, codes: Codes, uniform: Callable[[int], Uniform]) -> pd.Series:
        first, after = self._starts[codes], self._starts[codes + 1]
        share = uniform(len(codes))
        if self.logarithmic:
            share = _in_logs(self.grid.as_float(first), self.grid.as_float(after), share)
        index = np.minimum(first + np.floor(share * (after - first)).astype(np.int64), after - 1)
        return pd.Series(self._values(index))

    def inside(self, codes: Codes, uniform: Uniform, shares: Uniform) -> Uniform:
        r"""Places in bins of a continuous density that is linear on both halves of each bin and keeps the bin's share.

        With h the height of a bin, its share by its width, the density at an edge is the harmonic mean of both heights, at most
        twice the lower one, and in the middle of a bin :math:`2 h - (l + r) / 2 \ge 0`, l and r those at its edges. The
        outermost edges, and those of a bin of a single value, have the height of the bin beside them.
        """
        if self.law == "uniform":
            return uniform
        width = np.diff(self._starts)
        scale = width.astype(np.float64)
        if self.logarithmic:
            scale = _decades(self.grid.as_float(self._starts[:-1]), self.grid.as_float(self._starts[1:]))
        height = np.maximum(shares[: self.size], 1e-12) / scale
        both = (width[1:] > 1) & (width[:-1] > 1) & np.isfinite(scale[1:] + scale[:-1])
        edge = 2.0 / (1.0 / np.where(both, height[1:], 1.0) + 1.0 / np.where(both, height[:-1], 1.0))
        left = np.r_[1.0, np.where(both, edge / np.where(both, height[1:], 1.0), 1.0)][codes]
        right = np.r_[np.where(both, edge / np.where(both, height[:-1], 1.0), 1.0), 1.0][codes]
        middle = 2.0 - (left + right) / 2.0
        first = (left + middle) / 4.0  # mass of the first half
        ahead = uniform < first
        begin, mass = np.where(ahead, left, right), np.where(ahead, uniform, 1.0 - uniform)
        root = np.sqrt(np.maximum(begin**2 + 4.0 * (middle - begin) * mass, 0.0))
        place = 2.0 * mass / np.maximum(begin + root, 1e-300)
        return np.clip(np.where(ahead, place, 1.0 - place), 0.0, np.nextafter(1.0, 0.0))

    def _values(self, index: Codes) -> npt.NDArray[Any]:
        values = self.grid.decode(index)
        return values.astype(np.float64) if self.type == "number" else values

    def bounds(self) -> tuple[Any, Any]:
        return self._values(self._starts[:-1]), self._values(self._starts[1:] - 1)


def _decades(low: Uniform, high: Uniform) -> Uniform:
    """log of the ratio of the ends of bins; infinite where they are not of one sign."""
    one_sign = low * high > 0
    return np.where(one_sign, np.abs(np.log(np.where(one_sign, high / np.where(one_sign, low, 1.0), 1.0))), np.inf)


def _in_logs(low: Uniform, high: Uniform, share: Uniform) -> Uniform:
    """The place (n,) in its bin [low, high) of the quantile `share` of the density 1/|x|, of bins with 0 of a uniform one."""
    decades = np.where(np.isfinite(found := _decades(low, high)) & (found > 0), found, 0.0)
    near, far = np.minimum(np.abs(low), np.abs(high)), np.maximum(np.abs(low), np.abs(high))
    ahead = np.where(low < 0, 1.0 - share, share)
    moved = near * np.expm1(ahead * decades) / np.where(far > near, far - near, 1.0)
    return np.where(decades > 0, np.where(low < 0, 1.0 - moved, moved), share)


@dataclass(frozen=True, kw_only=True)
class GivenField(Field):
    """A field that no model sees: a key that is generated, or a value that a constraint computes from other fields.

    `pattern` of a key is a text with `{}` or `{:06d}` for the number of the row; "": the number itself.
    """

    pattern: str = ""

    @property
    def size(self) -> int:
        return 0

    def parse(self, values: pd.Series) -> pd.Series:
        if self.type in ("date", "datetime"):
            return pd.to_datetime(values)
        return values if self.type in ("string", "boolean") else numbers(values, whole=self.type != "number")

    def encode(self, values: pd.Series) -> Codes:
        return np.zeros(len(values), np.int64)

    def decode(self, codes: Codes, uniform: Callable[[int], Uniform]) -> pd.Series:
        """Keys by the numbers 0, 1, ... of their rows."""
        if self.pattern:
            return pd.Series([self.pattern.format(number + 1) for number in codes], dtype="str")
        numbers = pd.Series(codes + 1)
        return numbers if self.type in ("integer", "year") else numbers.astype("str")


# -- from a descriptor -------------------------------------------------------------------------------------------------


def field_of(descriptor: Descriptor, *, key: bool = False, computed: bool = False) -> Field:
    """The field that a descriptor of the Table Schema declares.

    `key`: its values are generated; `computed`: a constraint computes them.

    >>> age = field_of({"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}})
    >>> age.size, age.nullable
    (32, True)
    """
    name = descriptor.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"name of a field is {name!r}; it must be a text")
    kind = descriptor.get("type", "string")
    if kind not in get_args(Type):
        raise nearest(f"type of field {name!r}", str(kind), get_args(Type))
    for found in descriptor:
        if found not in _PLAIN_KEYS | _OWN_KEYS:
            raise nearest(f"a key of field {name!r}", str(found), sorted(_PLAIN_KEYS | _OWN_KEYS))
    rules = descriptor.get("constraints", {})
    if not isinstance(rules, Mapping):
        raise ValueError(f"constraints of field {name!r} are {rules!r}; they must be a mapping")
    for found in rules:
        if found not in _CONSTRAINTS:
            raise nearest(f"a constraint of field {name!r}", str(found), sorted(_CONSTRAINTS))
    source = descriptor.get("dpgen:source", "public")
    if source not in get_args(Source):
        raise nearest(f"dpgen:source of field {name!r}", str(source), get_args(Source))
    common: dict[str, Any] = {"name": name, "type": kind, "nullable": not rules.get("required", False), "source": source}
    common["fill"] = descriptor.get("dpgen:fill")
    if key or computed:
        return GivenField(**common, pattern=_pattern(name, descriptor.get("dpgen:key", "")))
    if rules.get("unique"):
        raise ValueError(f"unique of field {name!r} is true; it must be the primaryKey, whose values are generated")
    listed, in_order = _listed(name, descriptor, rules)
    if kind == "boolean":
        texts: dict[str, Any] = {
            "true": tuple(descriptor.get("trueValues", _TRUE)),
            "false": tuple(descriptor.get("falseValues", _FALSE)),
        }
        return CategoryField(**common, values=(False, True) if listed is None else listed, in_order=in_order, **texts)
    if listed is not None:
        outside = descriptor.get("dpgen:outside")
        return CategoryField(**common, values=_typed_values(name, kind, listed), in_order=in_order, outside=outside)
    if kind == "string":
        raise ValueError(f"field {name!r} has no domain: a string needs constraints.enum, its public categories")
    return _number_field(common, descriptor, rules)


def _pattern(name: str, pattern: Any) -> str:
    try:
        distinct = not pattern or pattern.format(1) != pattern.format(2)
    except (ValueError, IndexError, KeyError, AttributeError):
        distinct = False
    if not distinct:
        raise ValueError(f"dpgen:key of field {name!r} is {pattern!r}; it must be a text with {{}} or {{:06d}} for the row")
    return str(pattern)


def _listed(name: str, descriptor: Descriptor, rules: Descriptor) -> tuple[tuple[Any, ...] | None, bool]:
    """The values that a field lists, in `enum` or in `categories`, and whether they are in order."""
    values, in_order = rules.get("enum"), bool(descriptor.get("categoriesOrdered", False))
    if values is None and (categories := descriptor.get("categories")) is not None:
        values = [entry["value"] if isinstance(entry, Mapping) else entry for entry in categories]
    if values is not None and not isinstance(values, list | tuple):
        raise ValueError(f"enum of field {name!r} is {values!r}; it must be a list")
    return None if values is None else tuple(values), in_order


def _typed_values(name: str, kind: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    if kind == "string":
        if wrong := [value for value in values if not isinstance(value, str)]:
            raise ValueError(f"enum of field {name!r} lists {wrong[0]!r}; a string lists texts (in quotes, in YAML)")
        return values
    if kind in ("date", "datetime"):
        raise ValueError(f"enum of field {name!r} lists dates; a {kind} needs minimum and maximum instead")
    try:
        return tuple(numbers(pd.Series(values, dtype=object), whole=kind != "number").tolist())
    except Violation as error:
        raise ValueError(f"enum of field {name!r} does not fit its type: {error}") from None


def _number_field(common: dict[str, Any], descriptor: Descriptor, rules: Descriptor) -> Field:
    name, kind = common["name"], common["type"]
    count, edges, logarithmic = _bins_of(name, descriptor.get("dpgen:bins"))
    low = rules.get("minimum", edges[0] if edges else None)
    high = rules.get("maximum", edges[-1] if edges else None)
    if low is None or high is None:
        raise ValueError(f"field {name!r} has no domain: {kind} needs a public minimum and maximum in constraints")
    if kind not in ("date", "datetime") and str(low) == str(high):
        [value] = _typed_values(name, kind, (low,))
        return CategoryField(**common, values=(value,), outside=value if descriptor.get("dpgen:outside") == "clamp" else None)
    grid = _grid(name, kind, low, high, descriptor.get("dpgen:rounding"))
    if edges:
        starts = _edge_starts(name, grid, edges)
    elif logarithmic:
        starts = _log_starts(name, grid, count)
    else:
        count = min(count or (grid.size if grid.size <= EXACT else _BINS), grid.size)
        starts = [i * grid.size // count for i in range(count + 1)]
    form = descriptor.get("format", "default")
    text = "" if form in ("default", "any") else str(form)
    outside = descriptor.get("dpgen:outside")
    if outside not in (None, "clamp"):
        raise ValueError(f"dpgen:outside of field {name!r} is {outside!r}; of a {kind} it must be 'clamp' or left out")
    law = descriptor.get("dpgen:law", "linear" if kind == "number" else "uniform")  # whole numbers and dates have spikes
    if law not in get_args(Law):
        raise nearest(f"dpgen:law of field {name!r}", str(law), get_args(Law))
    clamp, logarithmic = outside == "clamp", logarithmic or law == "log"
    return NumberField(**common, grid=grid, starts=tuple(starts), logarithmic=logarithmic, format=text, clamp=clamp, law=law)


def _bins_of(name: str, bins: Any) -> tuple[int | None, list[Any], bool]:
    """Number of bins, their edges, and whether they are logarithmic, of `{"equal": 20}`, `{"log": 20}` or a list of edges."""
    allowed = f'dpgen:bins of field {name!r} is {bins!r}; it must be {{"equal": N}}, {{"log": N}} or {{"edges": [...]}}'
    if bins is None:
        return None, [], False
    if isinstance(bins, list):
        bins = {"edges": bins}
    if not isinstance(bins, Mapping) or len(bins) != 1:
        raise ValueError(allowed)
    [(way, value)] = bins.items()
    if way == "edges" and isinstance(value, list) and len(value) >= 2:
        return None, value, False
    if way in ("equal", "log") and isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value, [], way == "log"
    raise ValueError(allowed)


def _grid(name: str, kind: Type, low: Any, high: Any, rounding: Any) -> DiscretizedColumn:
    dates = kind in ("date", "datetime")
    if isinstance(low, bool) or isinstance(high, bool) or not (dates or (_is_number(low) and _is_number(high))):
        raise ValueError(f"minimum and maximum of field {name!r} are {low!r} and {high!r}; they must be of type {kind}")
    step = "86400" if kind == "date" else "1"
    if rounding is not None:
        if kind not in ("number", "datetime", "integer"):
            raise ValueError(f"dpgen:rounding of field {name!r} is {rounding!r}; a {kind} has none")
        step = str(rounding)
    elif kind == "number":
        width = Decimal(str(high)) - Decimal(str(low))
        step = str(Decimal(1).scaleb(width.adjusted() - _DIGITS)) if width > 0 else "1"
    try:
        return DiscretizedColumn(kind="date" if dates else "number", low=str(low), high=str(high), resolution=step)
    except ValueError as error:
        raise ValueError(f"field {name!r}: {error}") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | str) and NUMBER.fullmatch(str(value)) is not None


def _edge_starts(name: str, grid: DiscretizedColumn, edges: list[Any]) -> list[int]:
    """First grid index of each bin [e_i, e_(i+1)); an edge that stands twice is a bin of this one value."""
    try:
        index, outside = grid.encode_clamped([str(edge) for edge in edges])
    except ValueError as error:
        raise ValueError(f"edges of field {name!r}: {error}") from None
    if outside.any() or index[0] != 0 or index[-1] != grid.size - 1:
        raise ValueError(f"edges of field {name!r} reach from {edges[0]} to {edges[-1]}; they must go from minimum to maximum")
    starts, atom = list[int](), False
    for i in range(len(edges) - 1):
        start, last = int(index[i]) + atom, i == len(edges) - 2
        if not (atom and not last and start == index[i + 1]):  # between a value alone and the next one there is none
            starts.append(start)
        atom = bool(index[i] == index[i + 1]) and not atom
    starts.append(grid.size)
    if any(left >= right for left, right in pairwise(starts)):
        wrong = (i for i in range(1, len(edges)) if index[i] < index[i - 1] or (i > 1 and index[i] == index[i - 2]))
        raise ValueError(
            f"edges of field {name!r} hold {edges[next(wrong, -1)]!r} out of order; they must increase by at least the "
            "rounding, a value at most twice"
        )
    return starts


def _log_starts(name: str, grid: DiscretizedColumn, count: int | None) -> list[int]:
    """Bins of equal ratio of the values above 0, and of those below it; 0 has a bin of its own."""
    if grid.kind == "date":
        raise ValueError(f"dpgen:bins of field {name!r} are logarithmic; dates have equal bins or edges")
    count = count or _BINS
    step, (low, high) = float(Decimal(grid.resolution)), grid.as_float([0, grid.size - 1])
    sides = [(start if start > 0 else step, end) for start, end in ((low, high), (-high, -low))]  # distances from 0
    decades = [math.log(far / near) if far > near else 0.0 for near, far in sides]
    starts = {0, grid.size}
    if low <= 0 <= high:
        zero = math.ceil(-low / step - 1e-9)
        starts |= {zero, zero + 1} if abs(low + zero * step) < 1e-9 * step else {zero}
    for sign, (near, far), own in zip((1, -1), sides, decades):
        bins = max(1, round(count * own / (sum(decades) or 1.0)))
        edges = (sign * near * (far / near) ** (np.arange(1, bins) / bins) - low) / step if own else np.empty(0)
        starts |= {int(i) for i in (np.ceil(edges - 1e-9) if sign > 0 else np.floor(edges + 1e-9) + 1)}
    return sorted(i for i in starts if 0 <= i <= grid.size)
