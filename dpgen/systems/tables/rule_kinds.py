r"""Kinds of rules, and which of them may hold in a table by what was released of its columns before.

| kind | candidates | a row breaks it if | the model has |
|---|---|---|---|
| order, a <= b | numbers or times; b has the higher law | a > b, and both are there | b by its length (`LengthField`) |
| dependency, a -> b | few values each, b no richer than a | see `rules` | no other pairs (`Follows`) |
| dependency on two, (a, b) -> c | the same; of many the likeliest is chosen | see `rules` | no other triples (`Follows`) |
| one of a group | three or more truth values whose shares add up to 1 | none or several are set | no others (`OneOf`) |
| one at most | the same, whose shares add up to less | several are set | no others (`OneOf`) |
| truth, a implies b | up to 12 truth values, a no more often | a without b | no others (`Forbidden`) |
| gaps | beside a gap, or a value, of another column; shares agree | a gap lacks, or is elsewhere | no others (`Missing`) |
| sum, product, copy | numbers whose means, or means of logs, add up | the total is another | it computed (`Computed`) |
| unit, share | the same, with a constant of `UNITS`, or for 1 or 100 times a share | the total is another | it computed |
| part of a date | values that are years, or written as `WRITTEN` has it | the date has another part | it computed |

Each is a constraint that says of one row alone whether it holds. A candidate is worth a count only if independent columns of
the released laws would break it in 4 % of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, groupby, permutations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.axes import Floats, Steps
from dpgen.columns.constraints import codes_as_texts, constraint_of, part_of
from dpgen.columns.fields import CategoryField, DensityField, Field, as_numbers
from dpgen.systems.tables.discovery import OTHERS
from dpgen.systems.tables.marginals import Known

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

WORTH = 0.04
"""Share of rows in which independent columns would break a rule, at least."""
MOST_VALUES = 64
"""Codes of a column of few values."""
MOST_KEYS = 1_000
"""Codes of a column on which others depend."""
_APART_PARTS = 0.2  # total variation of a column from a part of a date
_APART = 0.05  # by which laws of a <= b may seem to be in the other order
_DRAWS = 2_000  # values that stand for a released law
_AGREE, _EACH = 0.02, 0.005  # by which shares that should agree may differ, and more for each column
_LONGEST = 40  # columns of one group
_MEANS, _PARTS = 0.1, 8  # stds by which means of totals may differ, and parts of a total at most
_MOST_NUMBERS = 24  # columns whose sums and products are looked at
_WORTH_OF_TWO = 0.2  # share of rows in which independent columns would break a dependency on two, at least
_MOST_OF_TWO, _MOST_CELLS = 2_000, 2**22  # dependencies on two columns among which is chosen, and their cells together
_MOST_TRUTHS = 12  # columns of which one may imply another
_UNITS = 4  # conversions of two columns that are counted
_ALIKE = 1.15  # by which stds that should agree may differ
_TIMES = [2, 7, 10, 12, 24, 52, 60, 100, 365, 1_000, 1_440, 3_600, 10_000, 86_400, 1_000_000, 2.54, 25.4, 30.48, 0.3048, 0.9144]
_TIMES += [1.609344, 0.45359237, 28.349523, 3.785411784, 4.184, 1.95583]
_TIMES += [1 + tax / 100 for tax in (5, 7, 10, 16, 18, 19, 20, 21, 25)]
_TIMES += [0.05, 0.07, 0.16, 0.18, 0.19, 0.2, 0.21]
UNITS = [(float(k), 0.0) for k in _TIMES] + [(1.0 / k, 0.0) for k in _TIMES] + [(1.8, 32.0), (1 / 1.8, -32 / 1.8)]
"""Conversions k a + c of a unit, or of an amount with a tax, to another one."""


@dataclass(frozen=True, eq=False)
class Column:
    """A column as it was released: its field, the shares of its codes, and that of gaps."""

    field: Field
    shares: Reals
    gaps: float

    @classmethod
    def of(cls, given: Field, known: Known | None) -> Column:
        """From released counts of its codes; None: all of them are alike."""
        counts = np.maximum(known.fitted, 0.0) if known is not None else np.ones(given.size)
        shares = counts / max(float(counts.sum()), 1e-300)
        return cls(given, shares, float(shares[given.size :].sum()))

    @property
    def name(self) -> str:
        return self.field.name

    @cached_property
    def values(self) -> Reals:
        """Sorted values that stand for its law."""
        own = self.shares[: self.field.size]
        ends = own.cumsum() / max(float(own.sum()), 1e-300)
        codes = np.minimum(np.searchsorted(ends, (np.arange(_DRAWS) + 0.5) / _DRAWS), len(own) - 1)
        uniform = np.random.default_rng(0).random(_DRAWS)
        return np.sort(as_numbers(self.field.decode(codes, lambda n: uniform[:n])))


@dataclass(frozen=True)
class Candidate:
    """A constraint that may hold, of a dependency without its table; the share of rows that break it by chance."""

    rule: Mapping[str, Any]
    expected: float

    @property
    def kind(self) -> str:
        """The constraint's."""
        return next(iter(self.rule))

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that it is about: of a dependency the one that follows is last, of a total the total."""
        given = self.rule[self.kind]
        listed = [given] if isinstance(given, str) else list(given)
        on = self.rule.get("on", [])
        return (
            *([on] if isinstance(on, str) else on),
            *listed,
            *self.rule.get("over", ()),
            *([self.rule["total"]] if "total" in self.rule else []),
        )

    @property
    def computes(self) -> bool:
        """Whether its last column follows from the others."""
        return "total" in self.rule

    @property
    def text(self) -> str:
        """The rule in words."""
        *first, last = self.names
        if self.computes:
            return f"{self._formula(first)} = {last}"
        if self.kind == "dated":
            return f"{self.rule['part']} of {first[0]} = {last}"
        if self.kind == "one_of":
            return f"{'at most ' * ('or_none' in self.rule)}one of {', '.join(self.names)}"
        if self.kind == "forbidden":
            return f"{last} where {first[0]}"
        if self.kind == "missing":
            value = "is missing" if self.rule["value"] is None else f"is {self.rule['value']}"
            return f"{last} is missing {'just ' * self.rule['both']}where {first[0]} {value}"
        return f"{', '.join(first)} {'<=' if self.kind == 'less_equal' else '->'} {last}"

    def _formula(self, parts: Sequence[str]) -> str:
        """A total in words."""
        if self.kind == "part_of":
            return f"{self.rule['part']} of {parts[0]}"
        times, plus, over = (self.rule.get(key) for key in ("times", "plus", "over"))
        factors = [*([f"{times:.6g}"] if times else []), *(name for name in parts if name not in (over or ()))]
        whole = " + ".join(parts) if self.kind == "sum" else " / ".join([" * ".join(factors), *(over or ())])
        return whole + (f" {'+' if plus > 0 else '-'} {abs(plus):.4g}" if plus else "")


def candidates(columns: Sequence[Column]) -> list[Candidate]:
    """Candidates for rules by released laws."""
    kinds = (totals_of, units, parts_of_dates, orders, dependencies, groups, implications, gaps)
    return [one for kind in kinds for one in kind(columns)]


# -- parts of dates ----------------------------------------------------------------------------------------------------


def _counted(first: int, count: int, form: str = "{}") -> list[str]:
    return [form.format(number) for number in range(first, first + count)]


_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
_MONATE = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()  # noqa: SIM905
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_TAGE = ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"]
_SUNDAY_FIRST = [*range(1, 7), 0]
WRITTEN: Mapping[str, tuple[int, Sequence[Sequence[str]]]] = {
    "weekday": (
        0,
        [
            *(names for own in (_DAYS, _TAGE) for names in (own, [day[:2] for day in own], [day[:3] for day in own])),
            [*_TAGE[:5], "Sonnabend", "Sonntag"],
            *(_counted(first, 7) for first in (0, 1)),
            *([str(first + day) for day in _SUNDAY_FIRST] for first in (0, 1)),
        ],
    ),
    "month": (
        1,
        [
            _MONTHS,
            _MONATE,
            *([m[:3] for m in own] for own in (_MONTHS, _MONATE)),
            *(_counted(1, 12, f) for f in ("{}", "{:02d}")),
        ],
    ),
    "quarter": (1, [_counted(1, 4, form) for form in ("{}", "Q{}")]),
    "day": (1, [_counted(1, 31, form) for form in ("{}", "{:02d}")]),
    "hour": (0, [_counted(0, 24, form) for form in ("{}", "{:02d}")]),
}
"""By the part of a date: its first number, and ways to write all of them."""


def parts_of_dates(columns: Sequence[Column]) -> Iterator[Candidate]:
    """Columns whose released values are the writings of a part of a date, of about its law."""
    dates = [column for column in columns if isinstance(column.field, DensityField) and column.field.of_dates]
    for column in columns if dates else ():
        there = _shares_of_texts(column)
        for part, values in _ways([*there], whole=column.field.type != "string"):
            for date in dates:
                found = part_of(pd.Series(pd.to_datetime(date.values, unit="s")), part)
                law = (found if values is None else found.map(values)).astype(str).value_counts(normalize=True)
                beside = [(share, float(law.get(text, 0.0))) for text, share in there.items()]
                expected = (1 - date.gaps) * (1 - column.gaps - sum(of_date * share for share, of_date in beside))
                apart = sum(max(0.0, share - of_date) for share, of_date in beside)
                if expected >= WORTH and apart <= _APART_PARTS:
                    yield Candidate(_part_rule(column.name, date.name, part, values), expected)


def _part_rule(column: str, date: str, part: str, values: Mapping[int, Any] | None) -> dict[str, Any]:
    """The rule that a column is a part of a date: a year, a quarter, a month or a day is computed."""
    listed = None if values is None else {str(number): own for number, own in values.items()}
    own = {"dated": column, "on": date} if part in ("weekday", "hour") else {"part_of": date, "total": column}
    return own | {"part": part, "values": listed}


def _shares_of_texts(column: Column) -> dict[str, float]:
    """Shares of the values of a text, an integer or a year with two codes or more, as texts."""
    given = column.field
    texts = codes_as_texts(given) if given.type in ("string", "integer", "year") and given.size >= 2 else None
    return {str(texts[i]): float(column.shares[i]) for i in named(given)} if texts is not None else {}


def _ways(texts: Sequence[str], *, whole: bool) -> Iterator[tuple[str, dict[int, Any] | None]]:
    """Parts of dates whose writings these texts are, with what stands for each number; None: the number itself."""
    if len(texts) < 2:
        return
    if all(len(text) == 4 and text.isdigit() for text in texts):
        yield "year", None if whole else {year: str(year) for year in range(int(min(texts)) - 99, int(max(texts)) + 100)}
    own = {text.casefold(): text for text in texts}
    for part, (first, ways) in WRITTEN.items():
        for way in ways:
            if own.keys() <= {text.casefold() for text in way}:
                yield part, {first + i: int(text) if whole else own.get(text.casefold(), text) for i, text in enumerate(way)}


# -- two columns -------------------------------------------------------------------------------------------------------


def orders(columns: Sequence[Column]) -> Iterator[Candidate]:
    """Pairs of numbers or times of which one has the lower law."""
    lie = [(column, column.field, column.values) for column in columns if isinstance(column.field, DensityField)]
    for (a, first, low), (b, second, high) in permutations(lie, 2):
        if not (isinstance(first, DensityField) and isinstance(second, DensityField)) or first.of_dates != second.of_dates:
            continue
        above = 1 - float(np.searchsorted(low, high, side="right").mean()) / len(low)
        ends = np.concatenate([low, high])
        apart = np.searchsorted(high, ends, side="right") - np.searchsorted(low, ends, side="right")
        expected = above * (1 - a.gaps) * (1 - b.gaps)
        if expected >= WORTH and apart.max() / len(low) <= _APART + a.gaps + b.gaps:
            yield Candidate({"less_equal": [a.name, b.name]}, expected)


def dependencies(columns: Sequence[Column]) -> Iterator[Candidate]:
    """Pairs of columns of few values, of which the second is no richer than the first."""
    keys = [column for column in columns if 1 < column.field.size <= MOST_KEYS and codes_as_texts(column.field)]
    for a, b in permutations(keys, 2):
        if b.field.size > MOST_VALUES:
            continue
        own = a.shares[named(a.field)]
        expected = float(own.sum()) * (1 - float(b.shares.max()))
        tops = float(b.shares.max()) >= float(own.max(initial=0.0)) - _APART
        if expected >= WORTH and tops and _entropy(b.shares) <= _entropy(a.shares) + _APART:
            yield Candidate({"follows": b.name, "on": a.name}, expected)


def on_two(columns: Sequence[Column], found: Sequence[Candidate], most: float) -> list[Candidate]:
    """Columns of few values that may follow from two others together, of which `found` says nothing yet.

    At most `most` pairs of values: beside too few rows each of them has one value by chance. Of many those of fewer cells.
    """
    keys = {column.name: column for column in columns if 1 < column.field.size <= MOST_VALUES and codes_as_texts(column.field)}
    told, richness = _Told(found), {name: _entropy(column.shares) for name, column in keys.items()}
    among = list[tuple[int, Candidate]]()
    for a, b in combinations(keys.values(), 2):
        own, beside = a.shares[named(a.field)], b.shares[named(b.field)]
        if told.tied(a.name, b.name) or len(own) * len(beside) > min(MOST_KEYS, most):
            continue
        richest = richness[a.name] + richness[b.name] + _APART
        for c in keys.values():
            expected = float(own.sum() * beside.sum()) * (1 - float(c.shares.max()))
            new = c.name not in (a.name, b.name) and expected >= _WORTH_OF_TWO and richness[c.name] <= richest
            if new and not told.says(a.name, b.name, c.name):
                cells = len(own) * len(beside) * c.field.size
                among.append((cells, Candidate({"follows": c.name, "on": [a.name, b.name]}, expected)))
    return _smallest(among)


def _smallest(among: Sequence[tuple[int, Candidate]]) -> list[Candidate]:
    """Candidates of the fewest cells, as many as may be counted together, of candidates and their cells."""
    some = sorted(among, key=lambda pair: pair[0])[:_MOST_OF_TWO]
    whole = np.cumsum([cells for cells, _ in some])
    return [one for (_, one), cells in zip(some, whole) if cells <= _MOST_CELLS]


class _Told:
    """Rules by columns: dependencies on one as edges, and sets of columns of all others."""

    def __init__(self, found: Sequence[Candidate]) -> None:
        self.ways = [one.names for one in found if one.kind == "follows" and len(one.names) == 2]
        self.sets = [{*one.names} for one in found if one.names not in self.ways]
        self.on_two = [one.names for one in found if one.kind == "follows" and len(one.names) == 3]

    def beside(self, first: str, last: str) -> bool:
        """Whether the last follows from the first, or a rule is about both."""
        return reaches(self.ways, first, last) or any({first, last} <= names for names in self.sets)

    def tied(self, first: str, last: str) -> bool:
        """Whether one follows from the other, or a rule is about both."""
        return self.beside(first, last) or self.beside(last, first)

    def says(self, first: str, second: str, last: str) -> bool:
        """Whether the last follows from one of them, or a rule is of these three, or of columns tied to them."""
        return (
            self.beside(first, last)
            or self.beside(second, last)
            or any(self._linked(names, (first, second, last)) for names in self.on_two)
        )

    def _linked(self, names: Sequence[str], others: Sequence[str]) -> bool:
        pairs = {(a, b) for a in names for b in others if reaches(self.ways, a, b) or reaches(self.ways, b, a)}
        return {a for a, _ in pairs} == {*names} and {b for _, b in pairs} == {*others}


def named(given: Field) -> Integers:
    """Codes that are single values: neither gaps nor all others together, nor texts of a pattern."""
    if not isinstance(given, CategoryField):
        return np.arange(given.size)
    others = given.outside == given.values[-1] and given.outside in OTHERS
    return np.array([i for i, value in enumerate(given.values[: given.size - others]) if value not in given.patterns], np.int64)


def _entropy(shares: Reals) -> float:
    there = shares[shares > 0]
    return float(-(there * np.log(there)).sum())


def gaps(columns: Sequence[Column]) -> Iterator[Candidate]:
    """Gaps beside gaps of another column, or beside one of its values."""
    with_gaps = [column for column in columns if column.gaps >= WORTH]
    for place, b in enumerate(with_gaps):
        later = [a for a in with_gaps[place + 1 :] if a.gaps < b.gaps - _AGREE]
        beside = [(a, None, a.gaps) for a in (*with_gaps[:place], *later)]
        for a, value, share in (*beside, *_single_values(a for a in columns if a is not b)):
            both = abs(share - b.gaps) <= _AGREE
            expected = share * (1 - b.gaps) + (b.gaps * (1 - share) if both else 0.0)
            if expected >= WORTH and share <= b.gaps + _AGREE:
                yield Candidate({"missing": b.name, "on": a.name, "value": value, "both": both}, expected)


def _single_values(columns: Iterable[Column]) -> Iterator[tuple[Column, str | None, float]]:
    """Values of columns of few ones, and their shares."""
    for column in columns:
        if column.field.size <= MOST_VALUES and (texts := codes_as_texts(column.field)):
            yield from ((column, texts[code], float(column.shares[code])) for code in named(column.field))


# -- groups and totals -------------------------------------------------------------------------------------------------


def groups(columns: Sequence[Column]) -> Iterator[Candidate]:
    """Columns of truth values beside each other, or of one prefix, whose shares of true ones add up to 1."""
    set_in = {column.name: share for column in columns if (share := _set_share(column)) is not None}
    longest = longest_groups([column.name for column in columns], set_in)
    whole = {*longest.beside, *longest.prefixed}
    for names in longest.groups():
        shares = np.array([set_in[name] for name in names])
        alone, none = chances_of_one(shares)
        if abs(shares.sum() - 1) <= _AGREE + _EACH * len(names) and 1 - alone >= WORTH:
            yield Candidate({"one_of": list(names)}, 1 - alone)
        elif names in whole and shares.sum() < 1 and 1 - alone - none >= WORTH:
            yield Candidate({"one_of": list(names), "or_none": True}, 1 - alone - none)


def chances_of_one(shares: Reals) -> tuple[float, float]:
    """Chances that exactly one of independent truth values with these shares (k,) is true, and that none is."""
    alone = sum(share * np.prod(1 - np.delete(shares, i)) for i, share in enumerate(shares))
    return float(alone), float(np.prod(1 - shares))


class Longest(NamedTuple):
    """Names of truth values that stand beside each other, and of those that have the same prefix before their last "_"."""

    beside: list[tuple[str, ...]]
    prefixed: list[tuple[str, ...]]

    def groups(self) -> list[tuple[str, ...]]:
        """Different groups of 3 to 40 names: those in a row, whole or in part, and those of one prefix."""
        parts = [names[i:j] for names in self.beside for i, j in combinations(range(len(names) + 1), 2)]
        return [names for names in dict.fromkeys([*parts, *self.prefixed]) if 3 <= len(names) <= _LONGEST]


def longest_groups(names: Sequence[str], truths: Collection[str]) -> Longest:
    """Names of columns in their order, of which `truths` are truth values, as groups that may be longer than any rule.

    >>> longest_groups(["sex_m", "sex_f", "age", "sick", "sex_x"], {"sex_m", "sex_f", "sick", "sex_x"})
    Longest(beside=[('sex_m', 'sex_f'), ('sick', 'sex_x')], prefixed=[('sex_m', 'sex_f', 'sex_x')])
    """
    beside = [tuple(run) for true, run in groupby(names, key=lambda name: name in truths) if true]
    prefixes = dict[str, list[str]]()
    for name in (name for name in names if name in truths and "_" in name[1:]):
        prefixes.setdefault(name.rpartition("_")[0], []).append(name)
    return Longest(beside, [tuple(own) for own in prefixes.values()])


def implications(columns: Sequence[Column]) -> Iterator[Candidate]:
    """Truth values of which one may be true only where another one is."""
    set_in = {column.name: share for column in columns if (share := _set_share(column)) is not None}
    for first, last in permutations(set_in, 2) if len(set_in) <= _MOST_TRUTHS else ():
        expected = set_in[first] * (1 - set_in[last])
        if expected >= WORTH and set_in[first] <= set_in[last] + _AGREE:
            values = [next(column.field for column in columns if column.name == name) for name in (first, last)]
            yes, no = [_truth(given, code) for given, code in zip(values, (1, 0))]
            yield Candidate({"forbidden": {first: yes, last: no}}, expected)


def _truth(given: Field, code: int) -> bool | float:
    """The value of a code of truth values, or of 0 and 1."""
    value = given.decode(np.array([code]), np.zeros)[0]
    return bool(value) if isinstance(given, CategoryField) else float(value)


def _set_share(column: Column) -> float | None:
    """The share of true values, or of 1 beside 0; None: it has others."""
    texts = codes_as_texts(column.field) if column.field.size == 2 else None
    if texts is None or texts[:2] not in (["False", "True"], ["0", "1"], ["0.0", "1.0"]):
        return None
    return float(column.shares[1])


def totals_of(columns: Sequence[Column]) -> Iterator[Candidate]:
    """Sums and products of numbers, by means and means of logs, which these have whatever their dependence is."""
    columns_of, plain, logs = _moments(columns)
    names = [*columns_of]
    for total in names:
        others = [name for name in names if name != total]
        place = names.index(total)
        for parts in _sets(others, names, place):
            if abs(columns_of[total].gaps - max(columns_of[name].gaps for name in parts)) > _AGREE + 0.05:
                continue
            if (len(parts) > 1 or parts[0] < total) and _adds_up(plain, parts, total):
                yield from _total({"sum": list(parts), "total": total}, columns_of)
            if len(parts) == 2 and {*parts, total} <= set(logs) and _adds_up(logs, parts, total):
                rule = {"product": list(parts), "total": total, "places": _places(columns_of[total].field)}
                yield from _total(rule, columns_of)


Moments = Mapping[str, tuple[float, float]]


def _moments(columns: Sequence[Column]) -> tuple[dict[str, Column], Moments, Moments]:
    """Numbers by name, and means and stds of them and of the logs of those above 0."""
    lie = [(c, c.values) for c in columns if isinstance(c.field, DensityField) and not c.field.of_dates and c.field.size > 2]
    lie = lie[:_MOST_NUMBERS]
    plain = {c.name: (float(v.mean()), float(v.std())) for c, v in lie}
    logs = {c.name: (float(np.log(v).mean()), float(np.log(v).std())) for c, v in lie if v[0] > 0}
    return {c.name: c for c, _ in lie}, plain, logs


def units(columns: Sequence[Column]) -> Iterator[Candidate]:
    """Numbers in another unit or with a tax, and shares of two numbers as fractions or in percent."""
    columns_of, _, logs = _moments(columns)
    yield from _conversions(columns_of)
    for part, whole, share in permutations(logs, 3):
        for k in (1.0, 100.0):
            mean, std = logs[share]
            near = abs(logs[part][0] - logs[whole][0] + math.log(k) - mean) <= _MEANS * std
            if (
                near
                and std > 0
                and abs(logs[part][1] - logs[whole][1]) / _ALIKE <= std <= _ALIKE * (logs[part][1] + logs[whole][1])
            ):
                rule = {"product": [part], "over": [whole], "total": share, "places": _places(columns_of[share].field)}
                yield from _total(rule | ({"times": k} if k > 1 else {}), columns_of)


def _total(rule: Mapping[str, Any], columns_of: Mapping[str, Column]) -> Iterator[Candidate]:
    """A total as a candidate, if independent columns would break it often: of few values, or rounded ones, they need not."""
    constraint, rng = constraint_of(rule), np.random.default_rng(0)
    drawn = pd.DataFrame({name: rng.permutation(columns_of[name].values) for name in constraint.names})
    there = float(np.prod([1 - columns_of[name].gaps for name in constraint.names]))
    expected = there * float(1 - constraint.holds(drawn).mean())
    if expected >= WORTH:
        yield Candidate(rule, expected)


def _conversions(columns_of: Mapping[str, Column]) -> list[Candidate]:
    """Numbers in another unit, from the coarser steps to the finer ones first: those that are rounded less follow."""
    inner = {name: np.sort(column.values)[_DRAWS // 10 : -_DRAWS // 10] for name, column in columns_of.items()}  # no tails
    found = list[tuple[float, Candidate]]()
    for first, last in permutations(inner, 2):
        low, high, a, b = inner[first], inner[last], columns_of[first], columns_of[last]
        ratio, spread = float(low.std()) / max(float(high.std()), 1e-300), float(high.std())
        off = {(k, c): abs(k * low.mean() + c - high.mean()) for k, c in UNITS if 1 / _ALIKE < k * ratio < _ALIKE}
        for k, c in sorted(off, key=lambda unit: off[unit])[:_UNITS]:
            if off[k, c] <= _MEANS * spread and abs(a.gaps - b.gaps) <= _AGREE + 0.05:
                rule = {"product": [first], "total": last, "places": _places(b.field), "times": k} | ({"plus": c} if c else {})
                found += [(-k * _step(a.field) / _step(b.field), one) for one in _total(rule, columns_of)]
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _sets(others: Sequence[str], names: Sequence[str], place: int) -> Iterable[tuple[str, ...]]:
    """Parts of a total: one, two, or more that stand before or after it in a row."""
    yield from ((name,) for name in others)
    yield from combinations(others, 2)
    yield from runs_beside(names, place)


def runs_beside(names: Sequence[str], place: int) -> Iterator[tuple[str, ...]]:
    """Three to eight names that stand in a row before a place, or after it."""
    for count in range(3, _PARTS + 1):
        if place - count >= 0:
            yield tuple(names[place - count : place])
        if place + count < len(names):
            yield tuple(names[place + 1 : place + 1 + count])


def _adds_up(moments: Mapping[str, tuple[float, float]], parts: Sequence[str], total: str) -> bool:
    """Whether the mean of a total is the sum of those of its parts, and its std no larger than the sum of theirs."""
    mean, std = moments[total]
    stds = [moments[name][1] for name in parts]
    near = abs(sum(moments[name][0] for name in parts) - mean) <= _MEANS * std
    return near and std > 0 and max(stds) > 0 and std <= _ALIKE * sum(stds) and (len(parts) > 1 or std >= stds[0] / _ALIKE)


def _places(field: Field) -> int:
    """Decimal places of a number."""
    axis = field.axis if isinstance(field, DensityField) else None
    if isinstance(axis, Steps):
        return max(0, -int(axis.step.as_tuple().exponent))
    return 9 if isinstance(axis, Floats) else 0


def _step(field: Field) -> float:
    """The step that a number is rounded to."""
    axis = field.axis if isinstance(field, DensityField) else None
    return float(axis.step) if isinstance(axis, Steps) else 1e-9


# -- what follows from what --------------------------------------------------------------------------------------------


def needed(among: Sequence[Candidate]) -> list[Candidate]:
    """Rules that do not follow from others, totals behind their parts, and of equal columns one direction.

    Rules of other kinds about a computed column are left out.
    """
    computed = dict[str, Candidate]()
    for one in sorted((one for one in among if one.computes), key=lambda one: (len(one.names), one.kind)):
        *parts, total = one.names
        edges = [(part, end) for end, other in computed.items() for part in other.names[:-1]]
        if total not in computed and not any(reaches(edges, total, part) for part in parts):
            computed[total] = one
    others = [one for one in among if not one.computes and not set(one.names) & set(computed)]
    return _parts_first(computed) + _unlinked(others)


def _parts_first(computed: Mapping[str, Candidate]) -> list[Candidate]:
    """Rules of computed columns, each behind those of its parts."""
    kept = list[Candidate]()
    while len(kept) < len(computed):
        there = {one.names[-1] for one in kept}
        left = [one for name, one in computed.items() if name not in there]
        kept += [one for one in left if not (set(one.names[:-1]) & set(computed)) - there]
    return kept


def _unlinked(among: Sequence[Candidate]) -> list[Candidate]:
    """Without what follows along a way of others."""
    left = sorted(among, key=lambda one: (one.kind != "less_equal", one.expected))

    def links(kind: str, but: Candidate) -> list[tuple[str, ...]]:
        return [one.names for one in left if one is not but and one.kind == kind]

    for one in [one for one in left if one.kind in ("less_equal", "follows")]:
        first, last = one.names
        tables = links("follows", one)
        beside = one.kind == "less_equal" and (reaches(tables, first, last) or reaches(tables, last, first))
        if beside or reaches(links(one.kind, one), first, last):
            left.remove(one)
    for one in [one for one in left if one.kind in ("less_equal", "follows")]:
        if one.names[::-1] in links(one.kind, one):
            left.remove(one)
    return left[::-1]


def reaches(edges: Sequence[tuple[str, ...]], first: str, last: str) -> bool:
    """Whether a way along the edges leads from one name to another."""
    there = {first}
    for _ in edges:
        there |= {end for start, end in edges if start in there}
    return last in there
