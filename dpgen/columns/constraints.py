"""Constraints of rows that everybody knows: they hold in every synthetic row, by construction or by rejecting the others."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.fields import CategoryField, DensityField, Field, LengthField, nearest
from dpgen.columns.forms import NUMBER, spelled

Rows = npt.NDArray[np.bool_]
Reals = npt.NDArray[np.float64]

_MOST_PAIRS = 2**22  # codes of two fields together that are compared one by one


@dataclass(frozen=True)
class Constraint(ABC):
    """A public condition that every row satisfies, such as that nobody leaves before they come, or all but a share of rows."""

    broken: float = field(default=0.0, kw_only=True)
    """Share of rows that break it."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Fields that it is about."""

    @property
    def compared(self) -> tuple[str, ...]:
        """Fields whose values it compares, as numbers or dates."""
        return ()

    @abstractmethod
    def holds(self, table: pd.DataFrame) -> Rows:
        """Rows (n,) of parsed values that satisfy the constraint."""

    def built_in(self, fields: Mapping[str, Field]) -> bool:
        """Whether all values of codes satisfy it, so that no row is rejected."""
        return False

    def possible(self, codes: Mapping[str, npt.NDArray[np.int64]], fields: Mapping[str, Field]) -> Rows | None:
        """Rows (n,) of codes with values that satisfy the constraint, as far as codes tell; None: all."""
        return None

    def impossible(self, fields: Mapping[str, Field]) -> tuple[Reals, ...] | None:
        """The codes that `possible` denies, as factors (t, codes) of each of `names`, the code of a missing value last.

        A factor for t says which codes of its field take part in the t-th product of sets. None: codes do not tell, or there
        are too many.
        """
        return None


@dataclass(frozen=True)
class Forbidden(Constraint):
    """A combination that does not occur, `{"forbidden": {"sex": "Male", "pregnant": true}}`.

    A condition is a value, a list of values, null for a missing value, or `{"minimum": ..., "maximum": ...}`.
    """

    conditions: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.conditions)

    @property
    def compared(self) -> tuple[str, ...]:
        return tuple(name for name, condition in self.conditions.items() if isinstance(condition, Mapping))

    def holds(self, table: pd.DataFrame) -> Rows:
        found = [_meets(table[name], condition) for name, condition in self.conditions.items()]
        return ~np.logical_and.reduce(found)

    def possible(self, codes: Mapping[str, npt.NDArray[np.int64]], fields: Mapping[str, Field]) -> Rows | None:
        found = []
        for name, condition in self.conditions.items():
            if name not in codes:
                return None
            found.append(_certain(fields[name], condition)[codes[name]])
        return ~np.logical_and.reduce(found)

    def impossible(self, fields: Mapping[str, Field]) -> tuple[Reals, ...] | None:
        if any(fields[name].size == 0 for name in self.names):
            return None
        return tuple(_certain(fields[name], condition)[None].astype(np.float64) for name, condition in self.conditions.items())


def _meets(values: pd.Series, condition: Any) -> Rows:
    if condition is None:
        return values.isna().to_numpy()
    if isinstance(condition, Mapping):
        low, high = (_comparable(values, condition.get(key)) for key in ("minimum", "maximum"))
        inside = ~values.isna()
        if low is not None:
            inside &= (values >= low).fillna(False).astype(bool)
        if high is not None:
            inside &= (values <= high).fillna(False).astype(bool)
        return inside.to_numpy(bool)
    wanted = condition if isinstance(condition, list) else [condition]
    some = values.isin([_comparable(values, value) for value in wanted if value is not None]).to_numpy(bool)
    return some | (values.isna().to_numpy() if None in wanted else False)


def _comparable(values: pd.Series, value: Any) -> Any:
    """A value of a condition in the type of a column; where nobody knows this type, values are texts."""
    if value is None:
        return None
    if values.dtype == object and not isinstance(value, str):
        return spelled(value)
    if isinstance(value, str) and values.dtype.kind in "iuf" and NUMBER.fullmatch(value):
        return float(value)
    return pd.Timestamp(value) if values.dtype.kind == "M" else value


def _certain(given: Field, condition: Any) -> Rows:
    """Codes (size + 1,) all of whose values meet a condition, that of a missing value last."""
    codes = np.arange(given.size)
    if isinstance(given, CategoryField):
        met = _meets(given.decode(codes, np.zeros), condition)
    else:
        low, high = (pd.Series(bound) for bound in given.bounds())
        same = isinstance(condition, Mapping) or (low == high).to_numpy()
        met = _meets(low, condition) & _meets(high, condition) & same
    absent = condition is None or (isinstance(condition, list) and None in condition)
    return np.append(met, absent)


@dataclass(frozen=True)
class LessEqual(Constraint):
    """An order of two fields: where both are there, the first is at most the second.

    Written `{"less_equal": ["admitted", "discharged"]}`. It is built in where the second is coded by its length from the first
    (`LengthField`).
    """

    left: str
    right: str

    @property
    def names(self) -> tuple[str, ...]:
        return self.left, self.right

    @property
    def compared(self) -> tuple[str, ...]:
        return self.names

    def holds(self, table: pd.DataFrame) -> Rows:
        left, right = table[self.left], table[self.right]
        return np.asarray((left <= right).fillna(False), bool) | (left.isna() | right.isna()).to_numpy(bool)

    def built_in(self, fields: Mapping[str, Field]) -> bool:
        right = fields[self.right]
        return isinstance(right, LengthField) and right.base == self.left

    def possible(self, codes: Mapping[str, npt.NDArray[np.int64]], fields: Mapping[str, Field]) -> Rows | None:
        if self.left not in codes or self.right not in codes or self.built_in(fields):
            return None
        (low, _), (_, high) = fields[self.left].bounds(), fields[self.right].bounds()
        left, right = codes[self.left], codes[self.right]
        absent = (left >= len(low)) | (right >= len(high))
        return absent | (low[np.minimum(left, len(low) - 1)] <= high[np.minimum(right, len(high) - 1)])

    def impossible(self, fields: Mapping[str, Field]) -> tuple[Reals, ...] | None:
        left, right = (fields[name].size for name in self.names)
        if not left or not right or (left + 1) * (right + 1) > _MOST_PAIRS or self.built_in(fields):
            return None
        codes = np.indices((left + 1, right + 1)).reshape(2, -1)
        allowed = self.possible(dict(zip(self.names, codes)), fields)
        assert allowed is not None
        return np.eye(left + 1), (~allowed).reshape(left + 1, right + 1).astype(np.float64)


@dataclass(frozen=True)
class Follows(Constraint):
    """A field has one value beside each listed one of another, `{"follows": "land", "on": "city", "table": {"Rome": "Italy"}}`.

    Or beside listed pairs of two others, `{"follows": "fee", "on": ["ward", "stay"], "table": {"surgery": {"day": "120"}}}`.
    All have few values, which the table holds as texts, null for a missing one. Beside values that are not listed it is free.
    """

    name: str
    on: tuple[str, ...]
    table: Mapping[tuple[str, ...], str | None]

    @property
    def names(self) -> tuple[str, ...]:
        return *self.on, self.name

    def holds(self, table: pd.DataFrame) -> Rows:
        keys = [pd.Index([*dict.fromkeys(key[i] for key in self.table)], object) for i in range(len(self.on))]
        wanted = np.full([len(own) + 1 for own in keys], None, object)  # the last of each is any other value, or a gap
        for key, value in self.table.items():
            wanted[tuple(own.get_loc(text) for own, text in zip(keys, key))] = value or ""
        codes = tuple(own.get_indexer(as_texts(table[name])) for own, name in zip(keys, self.on))
        said = wanted[codes]
        return np.asarray(pd.isna(said) | (said == as_texts(table[self.name]).fillna("").to_numpy()), bool)

    def _denied(self, fields: Mapping[str, Field]) -> tuple[npt.NDArray[np.int64], Rows] | None:
        """Codes (t, columns) of the listed values, and which codes (t, m) they exclude; None: these do not tell."""
        known = _all_texts([fields[name] for name in self.names])
        if known is None:
            return None
        *on, own = known
        keys = [[*map(str, texts[:-1])] for texts in on]
        cells = zip(np.ndindex(*map(len, keys)), product(*keys))
        listed = {cell: self.table[key] or "" for cell, key in cells if key in self.table}
        texts = np.array([text or "" for text in own], object)
        wanted = np.array([*listed.values()], object)
        return np.array([*listed], np.int64).reshape(-1, len(on)), wanted[:, None] != texts[None]

    def possible(self, codes: Mapping[str, npt.NDArray[np.int64]], fields: Mapping[str, Field]) -> Rows | None:
        if not set(self.names) <= set(codes) or (denied := self._denied(fields)) is None:
            return None
        listed, excluded = denied
        place = np.full([fields[name].size + 1 for name in self.on], -1)
        place[tuple(listed.T)] = np.arange(len(listed))
        rows = place[tuple(codes[name] for name in self.on)]
        return np.asarray((rows < 0) | ~np.append(excluded, [[False] * excluded.shape[1]], 0)[rows, codes[self.name]], bool)

    def impossible(self, fields: Mapping[str, Field]) -> tuple[Reals, ...] | None:
        if (denied := self._denied(fields)) is None:
            return None
        listed, excluded = denied
        keys = [np.eye(fields[name].size + 1)[own] for name, own in zip(self.on, listed.T)]
        return *keys, excluded.astype(np.float64)


@dataclass(frozen=True)
class OneOf(Constraint):
    """Exactly one of some truth values, or of numbers 0 and 1, is set: `{"one_of": ["red", "green", "blue"]}`.

    `{"one_of": [...], "or_none": true}`: at most one.
    """

    parts: tuple[str, ...]
    or_none: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts

    def holds(self, table: pd.DataFrame) -> Rows:
        return self._allowed(sum(_is_set(table[name]).astype(int) for name in self.parts))

    def _allowed(self, count: Any) -> Rows:
        return np.asarray((count == 1) | (self.or_none & (count == 0)), bool)

    def possible(self, codes: Mapping[str, npt.NDArray[np.int64]], fields: Mapping[str, Field]) -> Rows | None:
        ones = [_ones(fields[name]) for name in self.parts]
        if not set(self.names) <= set(codes) or any(one is None for one in ones):
            return None
        return self._allowed(sum(one[codes[name]].astype(int) for one, name in zip(ones, self.parts) if one is not None))

    def impossible(self, fields: Mapping[str, Field]) -> tuple[Reals, ...] | None:
        """Two of them together, for each pair, and none of them unless this is allowed."""
        ones = [one.astype(np.float64) for name in self.parts if (one := _ones(fields[name])) is not None]
        if len(ones) < len(self.parts):
            return None
        pairs = list(combinations(range(len(ones)), 2))
        return tuple(
            np.stack([*(one if i in pair else np.ones_like(one) for pair in pairs), *([] if self.or_none else [1.0 - one])])
            for i, one in enumerate(ones)
        )


def _is_set(values: pd.Series) -> Rows:
    """Values (n,) that are true or 1."""
    return np.asarray((values == 1).fillna(False), bool)


def _ones(field: Field) -> Rows | None:
    """Codes that are true or 1, that of a missing value last."""
    texts = codes_as_texts(field)
    return None if texts is None else np.array([text in ("True", "1", "1.0") for text in texts])


@dataclass(frozen=True)
class Missing(Constraint):
    """A field is missing beside a value of another one, null for a gap: `{"missing": "births", "on": "sex", "value": "M"}`.

    Values are texts. `both`: and nowhere else.
    """

    name: str
    on: str
    value: str | None
    both: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.on, self.name

    def holds(self, table: pd.DataFrame) -> Rows:
        there = (as_texts(table[self.on]).fillna("") == (self.value or "")).to_numpy(bool)
        gaps = table[self.name].isna().to_numpy()
        return there == gaps if self.both else ~there | gaps

    def _denied(self, fields: Mapping[str, Field]) -> Rows | None:
        """Codes (k, m) of both that exclude each other, None: these do not tell."""
        on, given = fields[self.on], fields[self.name]
        texts = codes_as_texts(on) if self.value is not None else [*[""] * on.size, None]
        if texts is None or not on.size or not given.size:
            return None
        there = np.array([text == self.value for text in texts])
        gap = np.arange(given.size + 1) == given.size
        denied = there[:, None] & ~gap
        return denied | (~there[:, None] & gap) if self.both else denied

    def possible(self, codes: Mapping[str, npt.NDArray[np.int64]], fields: Mapping[str, Field]) -> Rows | None:
        if not set(self.names) <= set(codes) or (denied := self._denied(fields)) is None:
            return None
        return ~denied[codes[self.on], codes[self.name]]

    def impossible(self, fields: Mapping[str, Field]) -> tuple[Reals, ...] | None:
        denied = self._denied(fields)
        return None if denied is None else (np.eye(len(denied)), denied.astype(np.float64))


def as_texts(values: pd.Series) -> pd.Series:
    """Parsed values (n,) as texts, null where one is missing."""
    codes, different = pd.factorize(values)
    texts = np.array([*map(str, different), None], object)
    return pd.Series(texts[codes], values.index, object)


def _all_texts(fields: Sequence[Field]) -> list[list[str | None]] | None:
    """The texts of the codes of fields; None: those of one do not tell."""
    found = [texts for field in fields if (texts := codes_as_texts(field)) is not None]
    return found if len(found) == len(fields) else None


def codes_as_texts(field: Field) -> list[str | None] | None:
    """The value of every code as a text, null for a missing one at last; None: a code has several values, or dates."""
    if isinstance(field, CategoryField):
        return [*map(str, field.values), None]
    if field.type in ("date", "datetime") or not field.size or isinstance(field, LengthField):
        return None
    if isinstance(field, DensityField):
        units = field.single()
        return None if units is None else [*as_texts(pd.Series(field.axis.values(units))), None]
    low, high = field.bounds()
    return [*as_texts(pd.Series(low)), None] if (np.asarray(low) == np.asarray(high)).all() else None


class Computed(Constraint):
    """A constraint by which the value of one field follows from others: no model sees this field."""

    name: str

    def built_in(self, fields: Mapping[str, Field]) -> bool:
        return True

    @abstractmethod
    def compute(self, table: pd.DataFrame) -> pd.Series:
        """The values (n,) of the field in rows of the others."""


@dataclass(frozen=True)
class Total(Computed):
    """A field is the sum of others, missing where one of them is: `{"sum": ["rent", "food"], "total": "spent"}`."""

    parts: tuple[str, ...]
    name: str

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.parts, self.name)

    @property
    def compared(self) -> tuple[str, ...]:
        return self.names

    def compute(self, table: pd.DataFrame) -> pd.Series:
        total = table[self.parts[0]]
        for part in self.parts[1:]:
            total = total + table[part]
        return total.round(9) if pd.api.types.is_float_dtype(total.dtype) else total

    def holds(self, table: pd.DataFrame) -> Rows:
        wanted, found = (
            pd.to_numeric(column).to_numpy(np.float64, na_value=np.nan) for column in (self.compute(table), table[self.name])
        )
        return np.isclose(wanted, found, rtol=1e-9, atol=1e-6, equal_nan=True)


@dataclass(frozen=True)
class Product(Computed):
    """A field is the product of others, rounded: `{"product": ["quantity", "price"], "total": "paid", "places": 2}`.

    It may be divided by `over`, multiplied with a constant, and have a constant added, as in
    `{"product": ["paid"], "over": ["income"], "times": 100, "total": "share", "places": 1}` or
    `{"product": ["celsius"], "times": 1.8, "plus": 32, "total": "fahrenheit", "places": 1}`. It is missing where a part is, and
    where one of `over` is 0.
    """

    parts: tuple[str, ...]
    name: str
    places: int
    over: tuple[str, ...] = ()
    times: float = 1.0
    plus: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.parts, *self.over, self.name)

    @property
    def compared(self) -> tuple[str, ...]:
        return self.names

    def _exact(self, table: pd.DataFrame) -> pd.Series:
        total = table[self.parts[0]]
        for part in self.parts[1:]:
            total = total * table[part]
        for part in self.over:
            total = total / table[part].where(table[part] != 0)
        total = total if self.times == 1.0 else total * self.times
        return total if self.plus == 0.0 else total + self.plus

    def compute(self, table: pd.DataFrame) -> pd.Series:
        total = self._exact(table)
        return total.round(self.places) if pd.api.types.is_float_dtype(total.dtype) else total

    def holds(self, table: pd.DataFrame) -> Rows:
        """Rows (n,) that have the product, of columns up to another way of rounding; a unit is rounded to the nearest."""
        wanted, found = (
            pd.to_numeric(column).to_numpy(np.float64, na_value=np.nan) for column in (self._exact(table), table[self.name])
        )
        off = 0.505 if self.times != 1.0 and not self.over else 1.505
        return np.isclose(wanted, found, rtol=1e-9, atol=off * 10.0**-self.places, equal_nan=True)


@dataclass(frozen=True)
class Depends(Computed):
    """A field is a function of another: `{"depends": "country", "on": "city", "table": {"Rome": "Italy"}}`."""

    name: str
    on: str
    table: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        return self.on, self.name

    def compute(self, table: pd.DataFrame) -> pd.Series:
        key = table[self.on].astype(object)
        return key.where(key.isna(), key.map(str)).map(dict(self.table)).infer_objects()

    def holds(self, table: pd.DataFrame) -> Rows:
        wanted, found = self.compute(table).astype(object), table[self.name].astype(object)
        equal = (wanted == found) | (wanted.isna() & found.isna())
        return np.asarray(equal.fillna(False), bool)


PARTS = ("year", "quarter", "month", "day", "weekday", "hour")


def part_of(times: pd.Series, part: str) -> pd.Series:
    """Numbers (n,) of a part of dates or times; weekdays from 0, a Monday."""
    return getattr(times.dt, "day_of_week" if part == "weekday" else part)


@dataclass(frozen=True)
class Part(Computed):
    """A field is a part of a date: `{"part_of": "came", "part": "weekday", "total": "day", "values": {"0": "Mo", "1": "Tu"}}`.

    `part` is one of `PARTS`; `values` has what stands for each number, null: the number itself. It is
    missing where the date is.
    """

    on: str
    part: str
    name: str
    values: Mapping[int, Any] | None

    @property
    def names(self) -> tuple[str, ...]:
        return self.on, self.name

    def compute(self, table: pd.DataFrame) -> pd.Series:
        found = part_of(pd.to_datetime(table[self.on]), self.part)
        if self.values is not None:
            found = found.map(dict(self.values)).infer_objects()
        return found.astype("Int64" if found.isna().any() else "int64") if found.dtype.kind in "if" else found

    def holds(self, table: pd.DataFrame) -> Rows:
        wanted, found = (as_texts(values).fillna("").to_numpy() for values in (self.compute(table), table[self.name]))
        return np.asarray(wanted == found, bool)


@dataclass(frozen=True)
class Dated(Constraint):
    """A part of a date in a modelled field: `{"dated": "day", "on": "came", "part": "weekday", "values": {"0": "Mo", ...}}`.

    Bins of dates have all weekdays and hours, so what depends on these would be lost if the field were computed.
    """

    part: Part

    @property
    def names(self) -> tuple[str, ...]:
        return self.part.names

    def holds(self, table: pd.DataFrame) -> Rows:
        return self.part.holds(table)


# -- rows that break constraints ---------------------------------------------------------------------------------------


def moved(constraint: Constraint, among: Sequence[Constraint], held: Collection[str] = ()) -> str | None:
    """The column of another row in rows that break a constraint: the last one that the fewest others are about.

    None: all of its columns are held.
    """
    free = [name for name in constraint.names if name not in held]
    times = {name: sum(name in other.names for other in among) for name in free}
    return min(reversed(free), key=lambda name: times[name], default=None)


def with_broken(
    table: pd.DataFrame, pool: pd.DataFrame, among: Sequence[Constraint], held: Collection[str], rng: np.random.Generator
) -> pd.DataFrame:
    """Rows (n,) that satisfy constraints, of which shares break them, as `Constraint.broken` says.

    In a row that breaks one, a column has the value of a row of the pool, by which the others hold as before. Columns that
    are held stay, and so does a row for which no such value is found.
    """
    table = table.copy()
    for constraint in among:
        left = np.flatnonzero(rng.random(len(table)) < constraint.broken) if constraint.broken else np.zeros(0, np.int64)
        name = moved(constraint, among, held)
        others = [other for other in among if other is not constraint and name in other.names]
        for _ in range(_SWAPS if name is not None else 0):
            if not len(left):
                break
            own = table.iloc[left]
            tried = own.assign(**{str(name): pool[name].array.take(rng.integers(0, len(pool), len(left)))})
            done = ~constraint.holds(tried)
            for other in others:
                done &= other.holds(tried) == other.holds(own)
            column = table.columns.get_loc(name)
            table.iloc[left[done], column] = tried[name].array[done]
            left = left[~done]
    return table


_SWAPS = 100  # values that are tried in a row that is to break a constraint


# -- by their descriptors, as a schema has them -------------------------------------------------------------------------


Descriptor = Mapping[str, Any]

MOST_BROKEN = 0.1
"""Share of rows that may break a constraint, at most."""


def constraint_of(descriptor: Any) -> Constraint:
    if not isinstance(descriptor, Mapping) or not descriptor:
        raise ValueError(f"a constraint is {descriptor!r}; it must be a mapping with one of {', '.join(_FORMS)}")
    form = next((form for form in _FORMS if form in descriptor), "")
    if not form:
        raise nearest("a constraint", str(next(iter(descriptor))), list(_FORMS))
    way = _FORMS[form]
    if set(descriptor) - {"broken"} - way.more != {form} | way.keys:
        needed = ", ".join(sorted({form} | way.keys))
        raise ValueError(f"a constraint has the keys {', '.join(descriptor)}; {form} has {needed}")
    share = _broken(form, descriptor.get("broken", 0.0))
    if not way.fits(descriptor):
        raise ValueError(
            f"constraint {form} is {descriptor[form]!r}; its docstring in dpgen.columns.constraints has an example"
        )
    return replace(way.made(descriptor), broken=share)


def _broken(form: str, share: Any) -> float:
    """The share of rows that may break a constraint."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= MOST_BROKEN:
        raise ValueError(f"broken of constraint {form} is {share!r}; it must be a share of rows in [0, {MOST_BROKEN}]")
    return float(share)


def _flat(table: Any, depth: int) -> dict[tuple[str, ...], str | None]:
    """Values of a nested table by their keys, as texts."""
    if not depth:
        return {(): None if table is None else str(table)}
    if not isinstance(table, Mapping):
        raise ValueError(f"a table of constraint follows has {table!r}; it must have a level for each column of on")
    return {(str(key), *rest): value for key, own in table.items() for rest, value in _flat(own, depth - 1).items()}


class _Form(NamedTuple):
    """Keys beside its name that a constraint must have, and may have (`more`); which descriptors fit, and what they make."""

    keys: set[str]
    fits: Callable[[Descriptor], bool]
    made: Callable[[Descriptor], Constraint]
    more: frozenset[str] = frozenset()


def _is_list(name: str, least: int, most: float = math.inf) -> Callable[[Descriptor], bool]:
    return lambda given: isinstance(given[name], list) and least <= len(given[name]) <= most


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values))


def _follows(given: Descriptor) -> Constraint:
    columns = _texts(given["on"] if isinstance(given["on"], list) else [given["on"]])
    return Follows(str(given["follows"]), columns, _flat(given["table"], len(columns)))


def _missing(given: Descriptor) -> Constraint:
    beside = None if given["value"] is None else str(given["value"])
    return Missing(str(given["missing"]), str(given["on"]), beside, bool(given["both"]))


def _product(given: Descriptor) -> Constraint:
    times, plus = float(given.get("times", 1)), float(given.get("plus", 0))
    return Product(
        _texts(given["product"]), str(given["total"]), int(given["places"]), _texts(given.get("over", [])), times, plus
    )


def _is_part(given: Descriptor) -> bool:
    return given["part"] in PARTS and isinstance(given["values"], Mapping | None)


def _part(on: Any, name: Any, given: Descriptor) -> Part:
    known = given["values"] and {int(number): own for number, own in given["values"].items()}
    return Part(str(on), str(given["part"]), str(name), known)


_FORMS = {
    "forbidden": _Form(
        set(),
        lambda given: isinstance(given["forbidden"], Mapping) and len(given["forbidden"]) > 0,
        lambda given: Forbidden(dict(given["forbidden"])),
    ),
    "less_equal": _Form(set(), _is_list("less_equal", 2, 2), lambda given: LessEqual(*_texts(given["less_equal"]))),
    "sum": _Form({"total"}, _is_list("sum", 1), lambda given: Total(_texts(given["sum"]), str(given["total"]))),
    "depends": _Form(
        {"on", "table"},
        lambda given: isinstance(given["table"], Mapping),
        lambda given: Depends(str(given["depends"]), str(given["on"]), {str(k): v for k, v in given["table"].items()}),
    ),
    "follows": _Form({"on", "table"}, lambda given: isinstance(given["table"], Mapping), _follows),
    "one_of": _Form(
        set(),
        _is_list("one_of", 2),
        lambda given: OneOf(_texts(given["one_of"]), bool(given.get("or_none", False))),
        frozenset({"or_none"}),
    ),
    "missing": _Form({"on", "value", "both"}, lambda given: True, _missing),
    "product": _Form(
        {"total", "places"},
        lambda given: _is_list("product", 1)(given) and isinstance(given.get("over", []), list),
        _product,
        frozenset({"over", "times", "plus"}),
    ),
    "part_of": _Form({"part", "total", "values"}, _is_part, lambda given: _part(given["part_of"], given["total"], given)),
    "dated": _Form({"on", "part", "values"}, _is_part, lambda given: Dated(_part(given["on"], given["dated"], given))),
}
