r"""Forms of values: what each value of a column is by itself, and how it is read.

A container chooses one type for all values of a column together: pandas makes floats of whole numbers where one is missing, and
objects or texts where one is no number; a reader makes dates of texts where all of them are dates. So its type tells of single
records. Here a value is looked at alone:

| a value | is | its token |
|---|---|---|
| a number of any type; of Decimals the nearest float | the same as its text: 1, 1.0 and "1" are one value | "1", "0.5" |
| a truth value | the same as its text | "True" |
| a text | itself | itself |
| a date, a time stamp | to the second, the same as its text by ISO 8601 | \0d2020-01-02, \0d2020-01-02T10:30:00 |
| a list, a mapping, bytes, a whole number of more than 4000 digits | no single value | \0n |
| another object | its text, the empty one if that fails | its text |

`FORMS` is the table of forms of values that all containers know, `dpgen.columns.writings` that of those that only texts can
have. Which one a column has nobody knows but its owner: a schema states type and format, or a noisy histogram decides
(`dpgen.columns.votes`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
from pyarrow import compute

if TYPE_CHECKING:
    from dpgen.columns.writings import Writing

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LARGEST = 2**60
"""Whole numbers beyond it are taken for it, where they are counted."""
REPRESENTED = (-106_747 * 86_400, 106_747 * 86_400)
"""Seconds since 1970, whole days, that fit nanoseconds, from 1677 to 2262; times beyond them are taken for them."""
DAY = 86_400
TOLD = 3.0
"""Noise stds of a count that is said, or that decides."""
LEAST = 0.01
"""Share of the values that a type or a rounding must have."""

_MOST_WHOLE = 10**18  # numbers from here on are no whole numbers to the vote, however they are stored
_EXACT = 2**62
_LONGEST = 10**4_000  # Python writes no whole numbers of more than 4300 digits


class Violation(ValueError):
    """A column breaks a rule of its field, in words."""


# -- values by themselves ----------------------------------------------------------------------------------------------

_DATE, NESTED, _TEXT = "\0d", "\0n", "\0t"
_SEVERAL = (list, tuple, set, frozenset, dict, bytes, bytearray, np.ndarray)
_PLAIN = {"i": "int64", "u": "uint64", "f": "float64", "b": "bool"}


def token(value: Any) -> str:
    """A value that is there as a text, which tells what it is.

    >>> token(1.0), token(True), token("1.0"), token(Decimal("0.50")), token(date(2020, 1, 2)), token([1])
    ('1', 'True', '1.0', '0.5', '\\x00d2020-01-02', '\\x00n')
    """
    if isinstance(value, str):
        return _TEXT + value if value.startswith("\0") else str(value)
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(value) if abs(int(value)) < _LONGEST else NESTED
    if isinstance(value, float | np.floating | Decimal):
        return _written(value)
    if isinstance(value, datetime):
        return _DATE + _naive(value).isoformat(timespec="seconds").removesuffix("T00:00:00")
    if isinstance(value, date):
        return _DATE + value.isoformat()
    return NESTED if isinstance(value, _SEVERAL) else token(_text_of(value))


def _naive(value: datetime) -> datetime:
    """A time without its zone, of UTC; at both ends of all years the time of its zone, which is as far away."""
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        return value.replace(tzinfo=None)


def _text_of(value: Any) -> str:
    """The text of an object, the empty one if it has none."""
    try:
        return str(value)
    except Exception:  # of whatever class its owner made: what a single value is stops no fit
        return ""


def _written(value: float | np.floating[Any] | Decimal) -> str:
    number = float(value)
    if np.isfinite(number) and abs(number) < _MOST_WHOLE and value == int(value):
        return str(int(value))
    return repr(number)


def plain(tokens: Array) -> Array:
    """The texts that tokens (n,) stand for."""
    return np.array([text[2:] if text.startswith("\0") else text for text in tokens], object)


_EQUAL = {
    str,
    int,
    bool,
    float,
    Decimal,
    date,
    datetime,
    pd.Timestamp,
    np.str_,
    np.bool_,
}  # of one such type, equal ones are one

_ALIKE = {"string", "integer", "floating", "date", "datetime", "decimal", "boolean"}


def _tokens(values: Array) -> tuple[Integers, Array]:
    """Place and tokens of objects, of one type after the other: among those of several True is 1, and so is 1.0."""
    if pd.api.types.infer_dtype(values, skipna=False) in _ALIKE:
        place, different = pd.factorize(values)
        return place.astype(np.int64), np.array([token(value) for value in different], object)
    place, tokens = np.empty(len(values), np.int64), list[str]()
    kinds, types = pd.factorize(np.array([type(value) for value in values], object))
    for number, kind in enumerate(types):
        own = np.flatnonzero(kinds == number)
        at, different = pd.factorize(values[own]) if kind in _EQUAL else (np.arange(len(own)), values[own])
        place[own] = at + len(tokens)
        tokens += map(token, different)
    return place, np.array(tokens, object)


class Atoms(NamedTuple):
    """Values of a column that are there: their rows (m,), and `different` values (k,) of which each has one, `place` (m,).

    `different` are numbers, truth values or time stamps of NumPy, or tokens. It may hold a value twice.
    """

    rows: Integers
    place: Integers | None
    different: Array

    @classmethod
    def of(cls, values: pd.Series) -> Atoms:
        """The values of a column that are there, each by itself."""
        if isinstance(values.dtype, pd.CategoricalDtype):
            values = values.astype(object)
        rows = np.flatnonzero(values.notna().to_numpy())
        present = values if len(rows) == len(values) else values.iloc[rows]
        kind = getattr(present.dtype, "kind", "O")
        if kind == "M":
            return cls(rows, None, pd.to_datetime(present, utc=True).dt.tz_localize(None).to_numpy("datetime64[s]"))
        if kind in _PLAIN:
            return cls(rows, None, present.to_numpy(_PLAIN[kind]))
        if isinstance(present.dtype, pd.StringDtype):
            place, different = pd.factorize(present)
            return cls(rows, place.astype(np.int64), np.array([token(text) for text in different], object))
        return cls(rows, *_tokens(present.to_numpy(object)))

    def spread(self, found: Array) -> Array:
        """Findings of the different values (k,), for all of them (m,)."""
        return found if self.place is None else found[self.place]


# -- readers -----------------------------------------------------------------------------------------------------------


class Read(NamedTuple):
    """Values (n,) read in one form.

    `there` says which are of it; `values` are numbers, seconds since 1970, truth values, or texts, `whole` numbers exactly;
    `fine` says which need the finer type of the form: numbers with a fraction, dates with a time of day.
    """

    there: Flags
    values: Array
    whole: Integers
    fine: Flags

    @classmethod
    def of(cls, there: Flags, values: Array, fine: Flags | None = None) -> Read:
        """Values that are no whole numbers."""
        n = len(there)
        return cls(there, values, np.zeros(n, np.int64), np.zeros(n, bool) if fine is None else fine)

    def only(self) -> Read:
        """Values that are of the form."""
        return Read(self.there[self.there], self.values[self.there], self.whole[self.there], self.fine[self.there])


NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


def numbers(values: Array) -> Read:
    """Numbers by themselves: whole ones exactly, whatever the others are; infinite ones are none."""
    if values.dtype.kind == "O":
        return _numbers_of_texts(values)
    if values.dtype.kind not in "iuf":
        return _none(len(values))
    x = values.astype(np.float64)
    there = np.isfinite(x)
    if values.dtype.kind == "f":
        whole = np.rint(np.clip(np.where(there, x, 0.0), -float(_EXACT), float(_EXACT))).astype(np.int64)
    else:
        whole = np.clip(values, -_EXACT if values.dtype.kind == "i" else 0, _EXACT).astype(np.int64)
    fine = (values != whole) | (whole <= -_MOST_WHOLE) | (whole >= _MOST_WHOLE)
    return Read(there, np.where(there, x, np.nan), whole, there & fine)


def _numbers_of_texts(tokens: Array) -> Read:
    x, whole, fine = np.full(len(tokens), np.nan), np.zeros(len(tokens), np.int64), np.zeros(len(tokens), bool)
    for i, text in enumerate(tokens):
        text = text.strip()
        if NUMBER.fullmatch(text) and np.isfinite(number := float(text)):
            digits = text.lstrip("+-").isdigit()
            exact = int(text) if digits else round(number)
            x[i], whole[i] = number, max(-_EXACT, min(_EXACT, exact))
            fine[i] = abs(exact) >= _MOST_WHOLE or not (digits or number.is_integer())
    return Read(np.isfinite(x), x, whole, fine)


def _none(n: int) -> Read:
    return Read.of(np.zeros(n, bool), np.full(n, np.nan))


def dates(values: Array, format: str = "") -> Read:
    """Dates and times by themselves in whole seconds since 1970: time stamps, dates, and texts as ISO 8601 or `format` says."""
    if values.dtype.kind == "M":
        there = ~np.isnat(values)
        seconds = np.where(there, values.astype("datetime64[s]").astype(np.int64), 0).astype(np.float64)
    elif values.dtype.kind == "O":
        native = np.array([text.startswith(_DATE) for text in values], bool)
        seconds = np.full(len(values), np.nan)
        for those, how in ((native, "ISO8601"), (~native, format or "ISO8601")):
            texts = [to_microseconds(text) for text in plain(values[those])]
            found = pd.to_datetime(pd.Series(texts, dtype=object), errors="coerce", utc=True, format=how)
            stamps = found.dt.tz_localize(None).to_numpy("datetime64[s]")
            seconds[those] = np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64).astype(np.float64))
        there = np.isfinite(seconds)
    else:
        return _none(len(values))
    return Read.of(there, seconds, there & (np.where(there, seconds, 0.0) % DAY != 0))


def to_microseconds(text: str) -> str:
    """A time as text without what is finer: of one with nanoseconds pandas would read none of the others beyond 1677 to 2262.

    >>> to_microseconds("2024-02-29T10:30:00.123456789Z")
    '2024-02-29T10:30:00.123456Z'
    """
    return _FINER.sub(r"\1", text) if len(text) > _TO_MICROSECONDS else text


_TO_MICROSECONDS = len("20240229T103000.123456")
_FINER = re.compile(r"([.,]\d{6})\d+")
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")


def truths(values: Array) -> Read:
    """Truth values by themselves."""
    if values.dtype.kind == "b":
        return Read.of(np.ones(len(values), bool), values)
    texts = np.array([text.strip() for text in values] if values.dtype.kind == "O" else [""] * len(values), object)
    return Read.of(np.isin(texts, [*TRUE, *FALSE]), np.isin(texts, TRUE))


def texts(values: Array) -> Read:
    """The texts of values; lists and the like have none."""
    tokens = values if values.dtype.kind == "O" else _of_numbers(values)
    finite = np.isfinite(values) if values.dtype.kind == "f" else np.ones(len(values), bool)
    return Read.of((tokens != NESTED) & finite, plain(tokens))


def _of_numbers(values: Array) -> Array:
    """Tokens (n,) of numbers, truth values or time stamps of NumPy, each different one written once."""
    place, different = pd.factorize(values, use_na_sentinel=False)
    return np.array([token(value) for value in different.astype(object)], object)[place]


# -- the table of forms ------------------------------------------------------------------------------------------------


Reader = Callable[[Array], tuple[Integers, Read]]


@dataclass(frozen=True)
class ValueForm:
    """A form of values: a line of the table of forms.

    Arguments:
        name: in facts and schemas.
        types: of the field that it makes, the finer one last.
        holds: what its tokens look like, without blanks around them; which of them are of the form the reader decides.
        read: reads those.
        kinds: of arrays of NumPy that hold such values.
    """

    name: str
    types: tuple[str, ...]
    holds: re.Pattern[str]
    read: Callable[[Array], Read]
    kinds: str = ""

    def of(self, values: Array) -> tuple[Integers, Read]:
        """Different values that are of this form by their looks, and what they are."""
        if values.dtype.kind in self.kinds:
            return self.as_it_is(values)
        tokens = values if values.dtype.kind == "O" else ()
        some = np.flatnonzero([bool(self.holds.fullmatch(text.strip())) for text in tokens])
        places, found = self.as_it_is(values[some])
        return some[places], found

    def as_it_is(self, values: Array) -> tuple[Integers, Read]:
        """Places and values that are read, whatever they look like."""
        found = self.read(values)
        return np.flatnonzero(found.there), found.only()


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII | re.DOTALL)


FORMS = (
    ValueForm("truth value", ("boolean",), _pattern("true|false|True|False|TRUE|FALSE"), truths, "b"),
    ValueForm("number", ("integer", "number"), _pattern(rf"(?![-+]?0\d+$){NUMBER.pattern}"), numbers, "iuf"),  # 007 is a code
    ValueForm(
        "date",
        ("date", "datetime"),
        _pattern(rf"{_DATE}.*|\d{{4}}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[-+]\d\d:?\d\d)?)?"),
        dates,
        "M",
    ),
    ValueForm("text", ("string",), _pattern(".*"), texts),
)
"""Forms of values; the first one that a value has counts."""

BY_NAME = {form.name: form for form in FORMS}
_INFINITE = _pattern(r"[-+]?inf(inity)?")

_COARSE = {"year": "integer"} | {kind: form.types[0] for form in FORMS for kind in form.types}


def family(kind: str) -> tuple[ValueForm, ...]:
    """The forms whose values a field of this type can have."""
    return tuple(form for form in FORMS if form.types[0] == _COARSE[kind])


def read(values: pd.Series, kind: str, format: str = "", *, strict: bool = False) -> tuple[Integers, Array]:
    """Rows (m,) whose values are of a type, and these: int64, float64, seconds since 1970, truth values or texts.

    A fraction of a whole number is rounded; `strict`: it is none.
    """
    atoms, whole = Atoms.of(values), kind in ("integer", "year")
    types: dict[str, Any] = {"string": object, "boolean": bool} | dict.fromkeys(("integer", "year"), np.int64)
    made = np.zeros(len(atoms.different), types.get(kind, np.float64))
    there = np.zeros(len(atoms.different), bool)
    for _, at, found in found_of(atoms.different, kind, format):
        made[at], there[at] = found.whole if whole else found.values, True
        if strict and whole:
            there[at] = found.values == np.rint(found.values)
    chosen = atoms.spread(there)
    return atoms.rows[chosen], atoms.spread(made)[chosen]


def found_of(different: Array, kind: str, format: str) -> Iterator[tuple[ValueForm, Integers, Read]]:
    """The different values (k,) that are of each form that a column of this type can have, and what these are.

    What a type says of a value that looks like none of its forms, such as 007 of a number, is said by the first of them.
    """
    left = np.arange(len(different))
    if kind == "string":
        yield (text := BY_NAME["text"], *text.as_it_is(different))
        return
    if different.dtype.kind == "O":
        left = np.flatnonzero((different != NESTED) & ~_infinite(different))
    asked: list[tuple[ValueForm, Reader]] = [(form, form.of) for form in (FORMS if kind == "any" else family(kind))]
    if format:
        asked = [(form, _in_format(format)) for form, _ in asked[:1]]
    elif kind in ("integer", "number", "year", "date", "datetime"):
        asked += [(form, form.as_it_is) for form in family(kind)]
    for form, of in asked:
        places, found = of(different[left])
        yield form, left[places], found
        left = np.delete(left, places)


def _in_format(format: str) -> Reader:
    from dpgen.columns.writings import writing_of  # here: few columns state a format

    writing = writing_of(format)

    def of(values: Array) -> tuple[Integers, Read]:
        found = dates(values, format) if writing is None else _in_writing(values, writing)
        return np.flatnonzero(found.there), found.only()

    return of


def _in_writing(values: Array, writing: Writing) -> Read:
    """Values (n,) by a writing; dates that are no texts as they are."""
    if values.dtype.kind == "M":
        return dates(values)
    tokens = values if values.dtype.kind == "O" else _of_numbers(values)
    there, x = writing.read(np.array([text.strip() for text in tokens], object))
    if writing.kind in ("date", "datetime"):
        native = np.array([text.startswith(_DATE) for text in tokens], bool)
        there[native], x[native] = True, dates(tokens[native]).values
    whole = np.rint(np.clip(np.where(there, x, 0.0), -float(_EXACT), float(_EXACT))).astype(np.int64)
    return Read(there, x == 1.0 if writing.kind == "boolean" else x, whole, there & (np.where(there, x, 0.0) != whole))


def infinite(values: pd.Series) -> Flags:
    """Values (n,) that are infinite numbers: these count as gaps where nobody states a range."""
    atoms, found = Atoms.of(values), np.zeros(len(values), bool)
    if atoms.different.dtype.kind == "f":
        found[atoms.rows] = np.isinf(atoms.different)
    elif atoms.different.dtype.kind == "O":
        found[atoms.rows] = atoms.spread(_infinite(atoms.different))
    return found


def _infinite(tokens: Array) -> Flags:
    return np.array([_INFINITE.fullmatch(text.strip().lower()) is not None for text in tokens], bool)


def floats(values: pd.Series, kind: str, format: str = "") -> Reals:
    """Numbers, or seconds since 1970 of dates in `REPRESENTED`, of a column (n,); NaN for what is none."""
    rows, found = read(values, kind, format)
    found = np.clip(found, *REPRESENTED) if kind in ("date", "datetime") else found
    made = np.full(len(values), np.nan)
    made[rows] = found
    return made


def number(value: Any) -> float:
    """One number; a `Violation` where it is none."""
    found = float(floats(pd.Series([value], dtype=object), "number")[0])
    if np.isnan(found):
        raise Violation("it must be a number")
    return found


def texts_of(values: pd.Series) -> Array:
    """The texts (m,) of the values that are there, each by itself."""
    return read(values, "string")[1]


def spellings(values: pd.Series) -> tuple[Integers, Array]:
    """Rows (m,) that have a value, and one text for all values that are the same number or truth value.

    >>> spellings(pd.Series(["1.0", 1, None, "true", " x"]))[1].tolist()
    ['1', '1', 'True', ' x']
    """
    atoms = Atoms.of(values)
    made = texts(atoms.different).values
    for form, at, found in found_of(atoms.different, "any", ""):
        if form.types[-1] in ("number", "boolean"):
            made[at] = [token(value) for value in found.values.astype(object)]
    return atoms.rows, atoms.spread(made)


def spelled(value: Any) -> str:
    """The text of one value by this rule."""
    return str(spellings(pd.Series([value], dtype=object))[1][0])


def natural_order(name: str) -> tuple[int, int, str]:
    """Sorting key: numbers in numeric order, then names in alphabetical order.

    >>> sorted(["10", "b", "9", "a"], key=natural_order)
    ['9', '10', 'a', 'b']
    """
    return (0, int(name), name) if name.isdecimal() and len(name) < 100 else (1, 0, name)


def tallied(values: Array) -> tuple[Array, Integers]:
    """The different ones of values (m,), numbers or texts, in their order, and how often each occurs.

    >>> tallied(np.array(["b", "a", "b"], object))
    (array(['a', 'b'], dtype=object), array([1, 2]))
    """
    if values.dtype.kind != "O":
        return np.unique(values, return_counts=True)
    found = pyarrow.array(values, pyarrow.large_string()).value_counts()
    order = compute.sort_indices(found.field(0))
    texts, counts = (found.field(i).take(order) for i in (0, 1))
    return texts.to_numpy(zero_copy_only=False).astype(object), counts.to_numpy(zero_copy_only=False).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Different:
    """Different values of a column, PRIVATE, sorted: how many rows have each (k,), and those at places (m,) in [0, k).

    `counts` are of the smallest type of whole numbers that holds them.
    """

    counts: Array
    named: Callable[[Integers], Array]
