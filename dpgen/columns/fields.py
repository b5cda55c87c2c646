"""Fields of a public table schema: values of one column as codes of a finite domain, and back.

Words and types are those of the Frictionless Table Schema; dpgen's own keys begin with `dpgen:`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.axes import Axis
from dpgen.columns.density import Density
from dpgen.columns.forms import DAY, FALSE, REPRESENTED, TRUE, Atoms, Violation, infinite, spellings, texts
from dpgen.columns.forms import read as values_of
from dpgen.columns.writings.codes import Pattern, matcher, numbered

if TYPE_CHECKING:
    from dpgen.columns.discretized import DiscretizedColumn

Codes = npt.NDArray[np.int64]
Uniform = npt.NDArray[np.float64]
Type = Literal["string", "boolean", "integer", "number", "date", "datetime", "year"]
ANY = "any"
"""The type of an open field of which nobody says it."""
Law = Literal["linear", "uniform", "log"]
"""The law of values in their bin: a density piecewise linear across bins of known shares, the same of 1/x, or uniform."""
Source = Literal["public", "private", "dp"]
"""Where the domain of a field comes from: public knowledge, the private records unprotected, or a private release."""

_SINGLE = 0.9  # share of a code in the one value that it stands for
_REDRAWS = 8  # of a value that lies outside of its range

TRUTHS = (*TRUE, "1"), (*FALSE, "0")
"""Texts of truth values, where a schema says no others."""


def nearest(what: str, name: str, choices: Sequence[str]) -> ValueError:
    """The error of a name that is none of the choices, with the nearest of them."""
    close = get_close_matches(name, choices, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return ValueError(f"{what} is {name!r}; it must be one of {', '.join(choices)}{hint}")


_TRIES = 30  # of draws of a pattern that have a code of their own

# -- kinds of fields ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Field(ABC):
    """One column of a table, as its schema declares it.

    `source` says where the domain comes from; `fill` is the value that stands for a missing one where none may be missing,
    None: it is refused. `format` is how texts show the values (`dpgen.columns.writings`), "default" of dates ISO 8601; ""
    where it is not known.
    """

    name: str
    type: Type
    nullable: bool = True
    source: Source = "public"
    fill: Any = None
    format: str = ""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of codes, that of a missing value not counted."""

    @property
    def ordered(self) -> bool:
        """Whether codes are in the order of their values."""
        return False

    def read(self, values: pd.Series, *, strict: bool = False) -> pd.Series:
        """Values (n,), each by itself, in the type of samples: what is not of the field's type is missing.

        `strict`: a number with a fraction is no whole number; else it is rounded.
        """
        rows, found = values_of(values, self.type, self.written_as, strict=strict)
        if self.type in ("date", "datetime"):
            found = (found // DAY * DAY if self.type == "date" else found).astype(np.int64).astype("datetime64[s]")
        kind = {"i": "Int64", "b": "boolean"}.get(found.dtype.kind, found.dtype)
        return pd.Series(found, rows, kind).reindex(range(len(values)))

    def parse(self, values: pd.Series) -> pd.Series:
        """Values (n,), none of them missing, in the type that `decode` gives; a `Violation` where one is not of this type."""
        found = self.read(values, strict=True)
        if found.isna().any():
            raise Violation(self.rule)
        return found.astype({"Int64": "int64", "boolean": "bool"}.get(str(found.dtype), found.dtype))

    def stated(self, value: Any) -> pd.Series:
        """A value (1,) that the schema states: dates by ISO 8601, whatever the format of the values is."""
        return replace(self, format="").parse(pd.Series([value]))

    @property
    def written_as(self) -> str:
        """The form in which texts show the values; "": that which all containers know."""
        return "" if self.format == "default" else self.format

    def strange(self, values: pd.Series, found: pd.Series) -> npt.NDArray[np.bool_]:
        """Values (n,) that are there and are not of the field's type; `found` is what `read` makes of them."""
        exact = self.read(values, strict=True) if self.type in ("integer", "year") else found
        return values.notna().to_numpy(bool) & exact.isna().to_numpy(bool)

    @property
    def rule(self) -> str:
        """The type's rule for values, in words."""
        if self.type in ("date", "datetime"):
            return f"it holds a {self.type} ({self.written_as or 'ISO 8601'})"
        if self.written_as:
            return f"it holds values written as {self.written_as}"
        words = {"boolean": "booleans", "integer": "whole numbers", "year": "whole numbers", "number": "finite numbers"}
        return f"it holds {words.get(self.type, 'single values')}"

    @property
    def limits(self) -> str:
        """The domain's rule for values, in words."""
        return ""

    @abstractmethod
    def encode(self, values: pd.Series) -> Codes:
        """Codes (n,) of values of the type, none of them missing; -1 where the domain has no place for one."""

    @property
    def gap(self) -> int:
        """Code of a missing value, that of `fill` where none may be missing; -1: it is refused."""
        if self.nullable:
            return self.size
        return -1 if self.fill is None else int(self.encode(self.stated(self.fill))[0])

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

    `true` and `false` are texts of booleans; `outside` is the one of the values that stands for all others, None: those
    are refused. Values in `patterns` stand for all other texts of a pattern (`dpgen.columns.writings.codes`), and are drawn
    by it.

    >>> sex = CategoryField(name="sex", type="string", values=("Female", "Male"))
    >>> sex.encode(sex.parse(pd.Series(["Male", "Female"]))).tolist()
    [1, 0]
    """

    values: tuple[Any, ...]
    in_order: bool = False
    true: tuple[str, ...] = TRUTHS[0]
    false: tuple[str, ...] = TRUTHS[1]
    outside: Any = None
    patterns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unlisted := [text for text in self.patterns if text not in self.values]:
            raise ValueError(f"dpgen:patterns of field {self.name!r} has {unlisted[0]!r}, which is no value of its enum")
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

    def read(self, values: pd.Series, *, strict: bool = False) -> pd.Series:
        if self.type != "boolean":
            return super().read(values, strict=strict)
        atoms = Atoms.of(values)
        words = np.array([text.strip() for text in texts(atoms.different).values], object)
        known = atoms.spread(np.isin(words, [*self.true, *self.false]))
        found = atoms.spread(np.isin(words, self.true))
        return pd.Series(found[known], atoms.rows[known], "boolean").reindex(range(len(values)))

    def stated(self, value: Any) -> pd.Series:
        return replace(self, format="", true=TRUTHS[0], false=TRUTHS[1]).parse(pd.Series([value]))

    @cached_property
    def _index(self) -> pd.Index:
        return pd.Index(self.values, dtype=object if self.type in ("string", "boolean") else None)

    @property
    def limits(self) -> str:
        return f"its values are the {self.size} of enum"

    def encode(self, values: pd.Series) -> Codes:
        plain = np.asarray(values, object if self.type in ("string", "boolean") else None)
        codes = np.asarray(self._index.get_indexer(pd.Index(plain)), np.int64)
        if self.patterns and (left := np.flatnonzero(codes < 0)).size:
            found = matcher(self.patterns)(plain[left])
            codes[left] = np.where(found < 0, -1, self._of_pattern[found])
        return codes if self.outside is None else np.where(codes < 0, self.values.index(self.outside), codes)

    def decode(self, codes: Codes, uniform: Callable[[int], Uniform]) -> pd.Series:
        values = pd.Series(np.array(self.values, dtype=object)[codes])
        for code, text in zip(self._of_pattern.tolist(), self.patterns):
            values[codes == code] = self._drawn(code, text, uniform, int((codes == code).sum()))
        kinds = {"string": "str", "boolean": "bool", "number": "float64"}
        return values.astype(kinds.get(self.type, "int64"))

    @cached_property
    def _of_pattern(self) -> Codes:
        """The codes of the patterns."""
        return np.array([self.values.index(text) for text in self.patterns], np.int64)

    def _drawn(self, code: int, text: str, uniform: Callable[[int], Uniform], n: int) -> npt.NDArray[Any]:
        """n texts of a pattern that have no code of their own, as far as some tries find such."""
        made = Pattern(text).drawn(uniform, n)
        for _ in range(_TRIES if n else 0):
            wrong = np.flatnonzero(self.encode(pd.Series(made, dtype=object)) != code)
            if not len(wrong):
                break
            made[wrong] = Pattern(text).drawn(uniform, len(wrong))
        return made

    def labels(self) -> list[str]:
        return [str(value) for value in self.values]

    def bounds(self) -> tuple[Any, Any]:
        if self.type in ("string", "boolean"):
            return super().bounds()
        values = np.array(self.values, np.float64)
        return values, values


@dataclass(frozen=True, kw_only=True)
class BinnedField(Field):
    """Numbers, years, dates or times, grouped to codes by `starts` (size + 1,), the first place of each and the end."""

    starts: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    @property
    def ordered(self) -> bool:
        return True

    @property
    def of_dates(self) -> bool:
        """Whether values are dates or times."""
        return self.type in ("date", "datetime")

    @cached_property
    def _starts(self) -> Codes:
        return np.array(self.starts, np.int64)


@dataclass(frozen=True, kw_only=True)
class NumberField(BinnedField):
    r"""Numbers, years, dates or times on a public grid, whose cells are grouped to bins: the codes.

    A value is drawn uniformly from the grid points of its bin; of logarithmic bins with the density 1/x. With the law "linear"
    and known shares of all bins, this density is multiplied by one that is piecewise linear and continuous across bins, see
    `inside`.

    `starts` are the index in the grid of the first value of each bin, and the grid's size. Whole numbers and years have
    resolution 1, dates one day, times one second or more. `logarithmic` bins have a density that falls as 1/x, `clamp` moves
    values outside of the grid to its nearer end.
    """

    grid: DiscretizedColumn
    logarithmic: bool = False
    clamp: bool = False
    law: Law = "uniform"

    @property
    def limits(self) -> str:
        return f"minimum is {self.grid.low} and maximum is {self.grid.high}{_zone(self.type)}"

    def encode(self, values: pd.Series) -> Codes:
        plain = _plain(values)
        if self.of_dates:  # grids count nanoseconds
            plain = np.clip(plain.astype("datetime64[s]").astype(np.int64), *REPRESENTED).astype("datetime64[s]")
        index, outside = self.grid.encode_clamped(plain)
        codes = np.searchsorted(self._starts[1:-1], index, side="right").astype(np.int64)
        return codes if self.clamp else np.where(outside, -1, codes)

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


def _zone(kind: str) -> str:
    return ", in UTC, to which times of a timezone are converted" if kind in ("date", "datetime") else ""


def _plain(values: pd.Series) -> npt.NDArray[Any]:
    """Values of which none is missing, in a type of NumPy."""
    return np.asarray(values, np.int64 if values.dtype.kind == "i" else None)


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
class DensityField(BinnedField):
    """Numbers, years, dates or times whose density is known: a release of it is part of the schema.

    Values are units of an axis, `starts` the first units of codes and the end. A value of a code is drawn by the density; one
    outside of the range is moved to its nearer end.
    """

    axis: Axis
    density: Density

    def _units(self, values: pd.Series) -> Codes:
        plain = np.asarray(values, "datetime64[s]").astype(np.int64) if self.of_dates else _plain(values)
        return np.clip(self.axis.units(plain), self.starts[0], self.starts[-1] - 1)

    def encode(self, values: pd.Series) -> Codes:
        return np.searchsorted(self._starts[1:-1], self._units(values), side="right").astype(np.int64)

    def decode(self, codes: Codes, uniform: Callable[[int], Uniform]) -> pd.Series:
        units = self.density.quantiles(self._starts[codes], self._starts[codes + 1], uniform(len(codes)))
        return pd.Series(self.axis.values(units))

    def bounds(self) -> tuple[Any, Any]:
        return self.axis.values(self._starts[:-1]), self.axis.values(self._starts[1:] - 1)

    def single(self) -> Codes | None:
        """The one value that each code stands for, in units (size,); None: a code has several that are frequent."""
        edges, masses, found = self.density.edges, self.density.masses, []
        for first, after in zip(*(np.searchsorted(edges, part) for part in (self._starts[:-1], self._starts[1:]))):
            best = first + int(masses[first:after].argmax())
            if edges[best + 1] - edges[best] > 1 or masses[best] < _SINGLE * masses[first:after].sum():
                return None
            found.append(int(edges[best]))
        return np.array(found)


@dataclass(frozen=True, kw_only=True)
class LengthField(DensityField):
    """A number or time that is at least another one, `base`, and is coded by how much it is more.

    Code 0 stands for a value by its own density, as where the base is missing; others are those of `length`, the difference, of
    times in so many seconds (`unit`). Values of `decode_beside` are never below the base.
    """

    base: str
    length: DensityField
    unit: int = 1

    @property
    def size(self) -> int:
        return 1 + self.length.size

    @property
    def gap(self) -> int:
        return self.size if self.nullable else -1 if self.fill is None else 0

    def bounds(self) -> tuple[Any, Any]:
        low, high = super().bounds()
        return np.repeat(low[:1], self.size), np.repeat(high[-1:], self.size)

    def labels(self) -> list[str]:
        return ["alone", *(f"+{label}" for label in self.length.labels())]

    def lengths(self, values: pd.Series, base: pd.Series) -> Uniform:
        """Differences (n,) of values and those of the base, NaN where one of both is missing."""
        return (as_numbers(values) - as_numbers(base)) / self.unit

    def encode_beside(self, values: pd.Series, base: pd.Series) -> Codes:
        """Codes (n,) of values, none of them missing, beside those of the base."""
        lengths = self.lengths(values, base)
        told = lengths >= 0
        codes = np.zeros(len(lengths), np.int64)
        codes[told] = 1 + self.length.encode(pd.Series(lengths[told]))
        return codes

    def heights(self, values: pd.Series, base: pd.Series) -> Uniform:
        """The density (n,) of the lengths of values among those of their code, 0 beyond the longest."""
        lengths = self.lengths(values, base)
        told, found = lengths >= 0, np.full(len(lengths), 1.0 / (self.starts[-1] - self.starts[0]))
        length, density = self.length, self.length.density
        whole = length.axis.units(lengths[told])
        units = np.clip(whole, length.starts[0], length.starts[-1] - 1)
        code = np.searchsorted(length.starts[1:-1], units, side="right")
        masses = density.between(np.array(length.starts))[code]
        part = np.searchsorted(density.edges, units, side="right") - 1
        found[told] = np.where(whole == units, (density.masses / density.lengths)[part] / np.maximum(masses, 1e-300), 0.0)
        return found

    def decode_beside(self, codes: Codes, uniform: Callable[[int], Uniform], base: pd.Series) -> pd.Series:
        """Values (n,) of codes beside those of the base; what lies outside is drawn again in its code, then moved."""
        start = as_numbers(base)
        there = ~np.isnan(start)
        least = np.full(len(codes), self.starts[0])
        least[there] = self.axis.units(start[there])
        least[there] += as_numbers(pd.Series(self.axis.values(least[there]))) < start[there]
        most = np.maximum(least, self.starts[-1] - 1)
        units = self._beside(codes, uniform(len(codes)), start)
        for _ in range(_REDRAWS):
            wrong = np.flatnonzero((units < least) | (units > most))
            if not len(wrong):
                break
            units[wrong] = self._beside(codes[wrong], uniform(len(codes))[wrong], start[wrong])
        return pd.Series(self.axis.values(np.clip(units, least, most)))

    def _beside(self, codes: Codes, share: Uniform, start: Uniform) -> Codes:
        """Units (n,), also outside of the range."""
        first, last = (np.full(len(codes), end) for end in (self.starts[0], self.starts[-1]))
        found, longer = self.density.quantiles(first, last, share), (codes > 0) & ~np.isnan(start)
        own = self.length.decode(codes[longer] - 1, lambda _: share[longer])
        found[longer] = self.axis.units(start[longer] + self.unit * own.to_numpy(np.float64))
        return found


def as_numbers(values: pd.Series) -> Uniform:
    """Numbers, or seconds since 1970, NaN where a value is missing."""
    if values.dtype.kind == "M":
        return np.where(values.isna(), np.nan, values.to_numpy("datetime64[s]").astype(np.int64).astype(np.float64))
    return values.to_numpy(np.float64, na_value=np.nan)


@dataclass(frozen=True, kw_only=True)
class GivenField(Field):
    """A field that no model sees: a key that is generated, or a value that a constraint computes from other fields.

    `pattern` of a key is a text with `{}` or `{:06d}` for the number of the row, or one of `dpgen.columns.writings.codes`; "":
    the number itself.
    """

    pattern: str = ""

    @property
    def size(self) -> int:
        return 0

    def encode(self, values: pd.Series) -> Codes:
        return np.zeros(len(values), np.int64)

    def decode(self, codes: Codes, uniform: Callable[[int], Uniform]) -> pd.Series:
        """Keys by the numbers 0, 1, ... of their rows."""
        if self.pattern:
            return pd.Series(numbered(self.pattern, np.asarray(codes) + 1), dtype="str")
        numbers = pd.Series(codes + 1)
        return numbers if self.type in ("integer", "year") else numbers.astype("str")


@dataclass(frozen=True, kw_only=True)
class OpenField(Field):
    """A field whose domain is bought: what a schema says of it for all that, which private values have to satisfy.

    Its type may be "any". `minimum` and `maximum` are public bounds beside which no value lies, None where there is none.
    """

    minimum: Any = None
    maximum: Any = None

    @property
    def size(self) -> int:
        raise ValueError(f"field {self.name!r} has no domain yet: it is bought")

    @property
    def limits(self) -> str:
        given = {"minimum": self.minimum, "maximum": self.maximum}
        return " and ".join(f"{name} is {bound}" for name, bound in given.items() if bound is not None) + _zone(self.type)

    def strange(self, values: pd.Series, found: pd.Series) -> npt.NDArray[np.bool_]:
        lost = super().strange(values, found)
        bounded = self.minimum is not None or self.maximum is not None
        return lost if bounded or not lost.any() else lost & ~infinite(values)

    def read(self, values: pd.Series, *, strict: bool = False) -> pd.Series:
        if self.type != ANY:
            return super().read(values, strict=strict)
        rows, found = spellings(values)
        return pd.Series(found, rows, object).reindex(range(len(values)))

    def encode(self, values: pd.Series) -> Codes:
        """0 inside of the bounds, else -1."""
        beyond = np.zeros(len(values), bool)
        for bound, below in ((self.minimum, True), (self.maximum, False)):
            if bound is not None:
                limit = self.stated(bound)[0] if self.type in ("date", "datetime") else float(bound)
                beyond |= np.asarray(values < limit if below else values > limit, bool)
        return np.where(beyond, -1, 0).astype(np.int64)

    def decode(self, codes: Codes, uniform: Callable[[int], Uniform]) -> pd.Series:
        raise ValueError(f"field {self.name!r} has no domain yet: it is bought")


# -- values as codes ----------------------------------------------------------------------------------------------------


Columns: TypeAlias = "Mapping[Any, pd.Series] | pd.DataFrame"
"""Parsed columns by name."""


def checked(given: Field, values: pd.Series, *, strict: bool) -> pd.Series:
    """Values of a field in its type, each checked by itself; `strict`: also where its domain was bought."""
    own, found = strict or given.source != "dp", given.read(values)
    if values.isna().any() and not given.nullable and given.fill is None:
        raise breach(given.name, "it is required")
    if own and given.strange(values, found).any():
        raise breach(given.name, given.rule)
    if own and (given.encode(found.dropna()) < 0).any():
        raise breach(given.name, given.limits)
    return found


def placed(given: Field, column: pd.Series) -> tuple[Codes, pd.Series, Codes]:
    """Rows (m,) of the values of a field that have a place in its domain, these values parsed, and their codes.

    Nulls have none. Of a domain that was bought others may have none, but not all; elsewhere a ValueError is raised for them.
    """
    there = np.flatnonzero(column.notna().to_numpy())
    values = column.iloc[there].reset_index(drop=True)
    if given.source == "dp":
        read = given.read(values)
        parsed = read[read.notna()]
        codes = np.asarray(given.encode(parsed))
        inside = codes >= 0
        if len(values) and not inside.any():
            rules = "; ".join(filter(None, (given.rule, given.limits)))
            raise ValueError(f"column {given.name!r} breaks a rule of the schema in all rows: {rules}")
        return there[parsed.index.to_numpy()[inside]], parsed[inside], codes[inside]
    try:
        parsed = given.parse(values)
        codes = np.asarray(given.encode(parsed))
        if (codes < 0).any():
            raise Violation(given.limits)
    except Violation as error:
        raise ValueError(f"column {given.name!r} breaks a rule of the schema: {error}") from None
    return there, parsed, codes


def codes_of(fields: Sequence[Field], parsed: Columns, *, strict: bool) -> Codes:
    """Codes (n, k) of modelled fields, as `column_codes` has them."""
    found = np.empty((len(parsed[fields[0].name]) if fields else 0, len(fields)), np.int64, order="F")
    for own, given in zip(found.T, fields):
        own[:] = column_codes(given, parsed, strict=strict)
    return np.ascontiguousarray(found)


def column_codes(given: Field, parsed: Columns, *, strict: bool) -> Codes:
    """Codes (n,) of a modelled field; `strict`: values outside of its domain are refused, else they are missing."""
    there = parsed[given.name].notna().to_numpy()
    own = np.full(len(there), given.gap, np.int64)
    own[there] = coded(given, parsed, there)
    if strict and (own < 0).any():
        raise breach(given.name, given.limits)
    own[own < 0] = max(given.gap, 0)
    return own


def coded(given: Field, parsed: Columns, there: npt.NDArray[np.bool_]) -> Codes:
    """Codes of the values of a field that are there."""
    own = parsed[given.name][there]
    return given.encode_beside(own, parsed[given.base][there]) if isinstance(given, LengthField) else given.encode(own)


def lengths(given: LengthField, found: Mapping[str, pd.Series]) -> Codes:
    """Codes (n,) of a length from values with gaps, -1 where it or its base is missing."""
    both = (found[given.name].notna() & found[given.base].notna()).to_numpy()
    codes = np.full(len(both), -1, np.int64)
    typed = {name: found[name][both].infer_objects() for name in (given.name, given.base)}
    codes[both] = coded(given, typed, np.ones(both.sum(), bool))
    return codes


def breach(name: str, rule: str) -> ValueError:
    return ValueError(f"column {name!r} breaks a rule of the schema: {rule} (which row and value is private)")
