"""The noisy histogram of forms of a column, in which each value votes by itself, and what it decides: a type and a writing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm

from dpgen.columns.forms import BY_NAME, FORMS, LEAST, NESTED, Atoms, ValueForm, family, found_of, infinite
from dpgen.columns.writings import writing_of
from dpgen.columns.writings.numbers import LAYOUTS, STYLES, NumberWriting, Shape, affixes, flags, number_of
from dpgen.columns.writings.table import (
    DIGITS,
    GAPS,
    JOINS,
    MARKS,
    MONEY,
    TRUTHS,
    Array,
    Flags,
    Group,
    Integers,
    Reals,
    Writing,
    each,
    groups,
)
from dpgen.columns.writings.times import (
    DURATIONS,
    SPANS,
    DurationWriting,
    Layouts,
    SpanWriting,
    TimeWriting,
    ZonedWriting,
    clock_at,
    dates,
    duration_cell,
    periods,
    swapped,
    times,
    zone_of,
    zoned_writings,
)

SEEN, SURE = 2.5, 3.5
"""Noise stds of a type, and of a few values that change it."""

GAP, NO_VALUE = 0, 1
CELLS = (
    ("gap", ""),
    ("no single value", ""),
    *((form.name, kind) for form in FORMS for kind in form.types),
)
"""Cells of the histogram of forms: a form, and the type of a field that a value needs. Infinite numbers are no value."""
_NUMBERED = {cell: number for number, cell in enumerate(CELLS)}


def size() -> int:
    """The number of cells of a column of which nobody says the type: behind `CELLS` there are those of all writings."""
    return len(CELLS) + len(of_writings())


def possible(kind: str) -> Integers:
    """Cells that values of a column of this type can have; "any": all."""
    if kind == "any":
        return np.arange(size())
    coarse = kind in ("integer", "year")
    own = [_NUMBERED[form.name, of] for form in family(kind) for of in form.types[: 1 if coarse else 2]]
    return np.array([GAP, NO_VALUE, *own], np.int64)


def votes(values: pd.Series, kind: str, format: str = "") -> Integers:
    """The cell (n,) of each value of a column of this type; "any": it is not known."""
    atoms, found = Atoms.of(values), np.full(len(values), GAP, np.int64)
    cells = np.full(len(atoms.different), GAP, np.int64)
    if atoms.different.dtype.kind == "O":
        cells[atoms.different == NESTED] = NO_VALUE
    for form, at, seen in found_of(atoms.different, kind, format):
        coarse, fine = (_NUMBERED[form.name, form.types[i]] for i in (0, -1))
        cells[at] = coarse if kind in ("integer", "year") else np.where(seen.fine, fine, coarse)
        if kind == "any" and form.name == "number":
            cells[at] = np.where(seen.fine, fine, _of_digits(seen.whole, coarse))
        elif kind == "any" and form.name == "date" and atoms.different.dtype.kind == "O":
            own = zones_of(atoms.different[at])
            cells[at] = np.where(own < 0, cells[at], own + len(CELLS))
        elif kind == "any" and form.name == "text":
            own = cells_of(np.array([text.strip() for text in seen.values], object))
            cells[at] = np.where(own < 0, coarse, own + len(CELLS))
    found[atoms.rows] = atoms.spread(cells)
    found[infinite(values)] = NO_VALUE
    return found


def cells_of_digits() -> Integers:
    """The cells of whole numbers that are dates."""
    return np.array([len(CELLS) + of_writings()["digits", number] for number in range(len(DIGITS))], np.int64)


def _of_digits(whole: Integers, otherwise: int) -> Integers:
    """Cells of whole numbers, of which some are dates."""
    found = np.full(len(whole), otherwise, np.int64)
    for format, size in zip(DIGITS, (1, 10**6)):
        days, clock = np.divmod(whole, size)
        year, month, day = days // 10_000, days // 100 % 100, days % 100
        of = (year >= 1900) & (year < 2100) & (month >= 1) & (month <= 12) & (day >= 1)
        of &= (clock < 240_000) & (clock // 100 % 100 < 60) & (clock % 100 < 60)
        first = (np.where(of, 12 * (year - 1970) + month - 1, 0)).astype("datetime64[M]")
        lengths = ((first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")).astype(np.int64)
        found[of & (day <= lengths)] = len(CELLS) + of_writings()["digits", DIGITS.index(format)]
    return found


@dataclass(frozen=True)
class Vote:
    """Noisy counts of the cells (size(),) of a column, with one noise std; those that its type excludes are 0.

    A cell of a writing is seen where its count passes a level that noise passes in one of 20 columns, in any of all cells; half
    of that is for the usual ones (`usual`), so that many rare cells do not make these harder to see. What changes
    the type of a column that has another form passes a level that noise passes in one of 10^5.
    """

    counts: Reals
    std: float
    month_first: bool = False
    _seen: Reals = field(init=False, repr=False)
    _sure: Reals = field(init=False, repr=False)

    def __post_init__(self) -> None:
        counts = self.counts[len(CELLS) :]
        for name, chance in (("_seen", _CHANCE), ("_sure", _RARE)):
            passed = counts > levels(chance)[: len(counts)] * self.std
            object.__setattr__(self, name, np.where(passed, counts, 0.0))

    @property
    def gaps(self) -> float:
        """Noisy number of gaps."""
        return float(self.counts[GAP])

    def of(self, form: ValueForm) -> tuple[float, float]:
        """Noisy numbers of values of a form: that are there, and that need its finer type; 0 where it has none."""
        counts = [float(self.counts[_NUMBERED[form.name, kind]]) for kind in form.types]
        digits = float(self._seen[self._digits].sum()) if form.name == "number" else 0.0
        zoned = float(self._seen[self._zones].sum()) if form.name == "date" else 0.0
        return sum(counts) + digits + zoned, counts[1] + zoned if len(counts) > 1 else 0.0

    @property
    def _zones(self) -> Integers:
        return zones()[: len(self._seen)]

    @property
    def _digits(self) -> Integers:
        return cells_of_digits()[: len(self._seen)] - len(CELLS)

    @cached_property
    def choice(self) -> Choice | None:
        """The writing that most texts have; None: most values have a form that all containers know."""
        if not self._seen.any():
            return None
        found, known = self._seen.copy(), of_writings()
        found[known["gap",]] = 0.0
        for kind, layout in (("integer", ""), ("number", ".")):  # numbers without marks are of several writings
            count = self.counts[_NUMBERED["number", kind]]
            found[known["number", 0, layout, False]] = count if count > SEEN * self.std else 0.0
        made = best_of(found, month_first=self.month_first)
        return made if made is not None and self._is_of_most(made, found) else None

    def _is_of_most(self, made: Choice, found: Reals) -> bool:
        """Whether more texts are of a writing than values of a form, or more than noise where values of that form are, too."""
        there = found[made.own].sum()
        plain = max(self.of(form)[0] for form in FORMS if form.types != ("string",))
        least = max(SURE * self.std, LEAST * float(self.counts[1 : len(CELLS)].sum() + found.sum()))
        if made.writing.name in DIGITS:  # each is a whole number, too
            return bool(plain - there <= least)
        if isinstance(made.writing, ZonedWriting):  # each is a time, too
            return bool(max(plain, float(found[self._zones].sum())) - there <= least)
        return bool(self._sure[made.own].sum() > least if self._beside(made) else there > plain)

    def _beside(self, choice: Choice) -> tuple[int, ...]:
        """Cells of `CELLS` that texts of a writing can have: a number without marks has no other form."""
        writing = choice.writing
        if not isinstance(writing, NumberWriting) or writing.before or writing.after:
            return ()
        return tuple(
            _NUMBERED["number", kind] for kind in ("integer", "number")[: 2 if "." in (writing.mark, writing.group) else 1]
        )

    def kind(self) -> str:
        """The type: a text where more than noise and one of 100 values are texts, else that of the form that most have.

        Likewise the finer type, where more than noise and one of 100 values need it, or most do. A column of which noise hides
        what it is holds texts, which all values have. Texts of another writing than the chosen one are texts.
        """
        least = max(SURE * self.std, LEAST * float(self.counts[1 : len(CELLS)].sum() + self._seen.sum()))
        others = self._sure.copy()
        if len(others):
            others[of_writings()["gap",]] = 0.0
            others[np.r_[self._digits, self._zones] if self.choice is None else self.choice.own] = 0.0
        if self.of(BY_NAME["text"])[0] + others.sum() > least:
            return "string"
        if self.choice is not None:
            marks = float(self._sure[of_writings()["gap",]])
            kept = self.choice.writing.kind == "boolean" and marks > least  # yes, no and unknown are categories
            return "string" if kept else self.choice.writing.kind
        return self._kind_of_most(least)

    def _kind_of_most(self, least: float) -> str:
        """The type of the form that most values have, the finer one where more than `least` or most of them need it."""
        best = max((form for form in FORMS if form.types != ("string",)), key=lambda form: self.of(form)[0])
        (there, fine), hidden = self.of(best), SEEN * self.std * len(best.types) ** 0.5
        if there < hidden:
            return "string"
        return best.types[-1] if fine > least or 2 * fine > there else best.types[0]

    def strange(self, kind: str) -> tuple[float, float]:
        """Noisy number of values that are of none of the forms of the type, and its noise std; all single ones have texts."""
        own = {_NUMBERED[form.name, of] for form in (FORMS if kind == "string" else family(kind)) for of in form.types}
        others = self._sure.copy()
        if kind == "string":
            others[:] = 0.0
        elif self.choice is not None:
            own, others[self.choice.own] = set(self._beside(self.choice)), 0.0
        elif kind in ("integer", "number", "date", "datetime"):
            others[self._digits if kind in ("integer", "number") else self._zones] = 0.0
        others = np.concatenate([others[others > 0], self.counts[[cell for cell in range(1, len(CELLS)) if cell not in own]]])
        return float(others.sum()), self.std * len(others) ** 0.5


def reading(values: pd.Series) -> tuple[str, str]:
    """Type and format of the values of a column, counted without noise: how a fit reads it whose noise hides nothing.

    >>> reading(pd.Series(["1,5", "2,25"] * 9)), reading(pd.Series(["31.12.2023"] * 9)), reading(pd.Series(["x"] * 9))
    (('number', '1234,50'), ('date', '%d.%m.%Y'), ('string', ''))
    """
    counts = np.bincount(votes(values, "any"), minlength=size()).astype(np.float64)
    vote = Vote(counts, 1e-9)
    kind, choice = vote.kind(), vote.choice
    written = choice is not None and kind not in ("string", "boolean")
    return kind, choice.writing.name if written and choice else ""


_CHANCE, _RARE = 0.05, 1e-5


# -- cells of writings, and the writing that most values of a column have ------------------------------------------------

# A text is in the cell of all texts that the same writings of the table (`dpgen.columns.writings`) could have made, as far as
# one text tells: 03/04/2023 may have its day or its month first, 13/04/2023 its day alone. So a cell follows from one text and
# from public tables; a writing is chosen by the sum of its cells.

Cell = tuple[Any, ...]


@cache
def of_writings() -> dict[Cell, int]:
    """All cells of the histogram of writings, and their numbers: public."""
    found: list[Cell] = [
        ("gap",),
        *product(["duration"], range(len(DURATIONS)), (False, True)),
        *product(["span"], range(1, len(DURATIONS)), [True]),
        *product(["digits"], range(len(DIGITS))),
        *(("zone", made.join, made.zone) for made in zoned_writings()),
        *product(["word"], dict.fromkeys("/".join(TRUTHS).split("/"))),
        *(("number", affix, *layout) for affix, layout in product(affixes().values(), LAYOUTS)),
        *product(["style"], affixes().values(), STYLES),
        *product(["day"], range(len(dates().sets))),
        *product(["period"], range(len(periods().sets))),
        *product(["time"], range(len(times().sets))),
    ]
    return {cell: number for number, cell in enumerate([*found, *_moments()])}


def _moments() -> Iterator[Cell]:
    """Cells of a date and a time of day together."""
    clocks = range(len(times().sets))
    plain = [number for number in clocks if any(times().layouts[i].pattern in _USUAL for i in times().sets[number])]
    for day, (first, *_) in enumerate(dates().sets):
        named = bool(dates().layouts[first].months)  # with the most usual times alone
        yield from (("both", day, *pair) for pair in (product(JOINS[:1], plain) if named else product(JOINS, clocks)))


_USUAL = ("%H:%M", "%H:%M:%S")


@cache
def usual() -> Flags:
    """Cells of numbers without units, of the most usual ones, or of dates of three numbers."""
    spaced = [(word, gap) for word in _SOME for gap in ("", " ")]
    some = {("", ""), *((word + gap, "") for word, gap in spaced), *(("", gap + word) for word, gap in spaced)}
    numeric = {number for number, found in enumerate(dates().sets) if not dates().layouts[found[0]].months}
    of: dict[str, set[Any]] = {
        "number": {affixes()[affix] for affix in some},
        "day": numeric,
        "period": set(range(len(periods().sets))),
    }
    of |= {"zone": {"T", " "}, "style": of["number"], "time": set(range(len(times().sets)))}
    return np.array([cell[1] in of.get(cell[0], ()) if len(cell) > 1 else True for cell in of_writings()], bool)


@cache
def levels(chance: float) -> Reals:
    """Noise stds of each cell that one of all passes with a probability of `chance`, half of it for the usual ones."""
    return np.where(usual(), *(norm.isf(chance / 2 / int(those.sum())) for those in (usual(), ~usual())))


_SOME = ("$", "€", "£", "EUR", "USD", "GBP", "CHF")


def cells_of(texts: Array) -> Integers:
    """The cell (n,) of each text without blanks around it; -1: it has none, it is no more than a text."""
    found, known = np.full(len(texts), -1, np.int64), of_writings()
    for group in groups(texts):
        shape = number_of(group.shape)
        if shape is not None:
            found[group.rows] = _numbered(shape, group)
        elif "9" not in group.shape:
            found[group.rows] = known.get(("gap",) if group.shape in GAPS else ("word", group.shape), -1)
        elif group.shape.startswith("P"):
            found[group.rows] = [known.get(duration_cell(str(text)) or (), -1) for text in group.texts()]
        else:
            found[group.rows] = _timed(group)
    found[[text == "" for text in texts]] = known["gap",]
    return found


def _numbered(shape: Shape, group: Group) -> Integers:
    """Cells of numbers of one shape."""
    known, affix = of_writings(), affixes()[shape.affix]
    zero, decimal, valid = flags(shape, group)
    if shape.style != "-":
        return np.where(valid, known["style", affix, shape.style], -1)
    bare = shape.layout.removeprefix("3")
    of = {
        (is_zero, is_decimal): known.get(("number", affix, bare if is_decimal else shape.layout, is_zero), -1)
        for is_zero in (False, True)
        for is_decimal in (False, True)
    }
    found = np.select([zero & decimal, zero, decimal], [of[True, True], of[True, False], of[False, True]], of[False, False])
    return np.where(valid, found, -1)


def _timed(group: Group) -> Integers:
    """Cells of dates, their parts and times of one shape."""
    known = of_writings()
    if _zoned(group.shape):
        return zones_of(group.texts())
    for name, layouts in (("day", dates()), ("period", periods()), ("time", times())):
        if layouts.knows(group.shape):
            places = each(group.texts(), layouts.place)
            return np.where(np.isnan(places), -1, known[name, 0] + np.nan_to_num(places)).astype(np.int64)
    for join in JOINS:
        if (at := clock_at(group.shape, join)) is not None:
            days, clocks = each(group.texts(0, at), dates().place), each(group.texts(at + len(join)), times().place)
            both, size = days * len(times().sets) + clocks, len(times().sets)
            pairs = [int(pair) for pair in pd.unique(both) if pair >= 0]
            return _looked_up(both, {pair: known.get(("both", pair // size, join, pair % size), -1) for pair in pairs})
    return np.full(len(group.rows), -1, np.int64)


@lru_cache(2**16)
def _zoned(shape: str) -> bool:
    return zone_of(shape.replace("9", "0")) is not None


def zones_of(texts: Array) -> Integers:
    """The cell (n,) of each time with a zone; -1: it has none."""
    found = (zone_of(str(text)) for text in texts)
    return np.array([-1 if zone is None else of_writings()["zone", *zone] for zone in found], np.int64)


@cache
def zones() -> Integers:
    """All cells of times with a zone."""
    return _places(cell for cell in of_writings() if cell[0] == "zone")


def _looked_up(places: Reals, numbers: Mapping[int, int]) -> Integers:
    """Numbers (n,) of places, -1 where there is none."""
    place, different = pd.factorize(places, use_na_sentinel=True)
    found = np.array([numbers.get(int(value), -1) for value in different] + [-1], np.int64)
    return found[place]


# -- the choice --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The writing of a column, and the cells of its texts; `rival`: one that no date speaks against either."""

    writing: Writing
    own: Integers
    rival: str = ""


Choose = Callable[[Reals, bool], Choice]


class Family(NamedTuple):
    """Writings of which a column may have one: all of their cells, and how counts of these choose it."""

    own: Integers
    choose: Choose


def best_of(counts: Reals, *, month_first: bool = False) -> Choice | None:
    """The writing of most, by counts (k,) of all cells, 0 where noise hides them; None: all are 0.

    Of writings that differ by less than a hundredth, the first one in the table; `month_first`: of dates one of these.
    """
    if not counts.any():
        return None
    best = max(_families(), key=lambda family: float(counts[family.own].sum()))
    return best.choose(counts, month_first)


_LEAST = 0.01  # of the values that an earlier writing must miss


def _first(counts: Reals, of: Sequence[Integers]) -> int:
    """The first of several sets of cells that holds as much as the best one, but for a share of `_LEAST`."""
    sums = np.array([counts[own].sum() for own in of])
    return int(np.argmax(sums >= sums.max() - _LEAST * counts.sum()))


@cache
def _families() -> tuple[Family, ...]:
    found = [_alone(format, ("digits", number)) for number, format in enumerate(DIGITS)]
    found += [_alone(words, *(("word", word) for word in words.split("/"))) for words in TRUTHS]
    found += [_zones(), _durations()]
    found += [_numbers_with(affix) for affix in affixes()]
    found += [_layouts("period", periods()), _layouts("time", times())]
    return (*found, Family(_places(cell for cell in of_writings() if cell[0] in ("day", "both")), _choose_date))


def _places(names: Any) -> Integers:
    known = of_writings()
    return np.array([known[name] for name in names], np.int64)


def _alone(format: str, *names: Cell) -> Family:
    writing, own = writing_of(format), _places(names)
    assert writing is not None
    return Family(own, lambda counts, month_first: Choice(writing, own))


def _numbers_with(affix: tuple[str, str]) -> Family:
    """Numbers with the same around them."""
    number, is_money = affixes()[affix], any(part.strip() in MONEY for part in affix if part)
    table = _places(("number", number, *layout) for layout in LAYOUTS)
    styles = _places(("style", number, style) for style in STYLES)
    marks = sorted(MARKS, key=lambda marks: not marks[0]) if is_money else MARKS

    def choose(counts: Reals, month_first: bool) -> Choice:
        writings = [NumberWriting(*affix, *both, fixed) for both in marks for fixed in (True, False)]
        suiting = [table[[w.suits(layout, zero=zero) for layout, zero in LAYOUTS]] for w in writings]
        chosen = writings[_first(counts, suiting)]
        style = STYLES[int(np.argmax(counts[styles]))] if counts[styles].any() else "-"
        read = table[[chosen.splits(layout) is not None for layout, _ in LAYOUTS]]
        return Choice(replace(chosen, style=style), np.concatenate([read, styles[[own == style for own in STYLES]]]))

    return Family(np.concatenate([table, styles]), choose)


def _among(made: Sequence[Writing], of: Sequence[Integers]) -> Choose:
    """The first writing whose cells hold as much as those of any."""

    def choose(counts: Reals, month_first: bool) -> Choice:
        place = _first(counts, of)
        return Choice(made[place], of[place])

    return choose


def _zones() -> Family:
    made = zoned_writings()
    of = [
        _places(("zone", one.join, zone) for zone in ((one.zone, "+00:00") if one.zone == "%z" else (one.zone,)))
        for one in made
    ]
    return Family(zones(), _among(made, of))


def _durations() -> Family:
    by_unit = [[("duration", number, single) for single in (False, True)] for number in range(len(DURATIONS))]
    of = [_places(chain(*by_unit[: number + 1])) for number in range(len(by_unit))]
    of += [_places([("duration", number, True), ("span", number, True)]) for number in range(1, len(DURATIONS))]
    made = [*map(DurationWriting, DURATIONS), *map(SpanWriting, SPANS)]
    return Family(np.unique(np.concatenate(of)), _among(made, of))


def _layouts(name: str, layouts: Layouts) -> Family:
    of = [_places((name, number) for number in own) for own in layouts.suiting]
    made = [TimeWriting(layout) for layout in layouts.layouts]
    return Family(_places((name, number) for number in range(len(layouts.sets))), _among(made, of))


@cache
def _of_dates() -> tuple[Integers, Integers, Integers, Integers]:
    """Cells of dates: their places, the set of each one's date, how it is joined, and the set of its time, -1: it has none."""
    names = [cell for cell in of_writings() if cell[0] in ("day", "both")]
    joins = [JOINS.index(cell[2]) if cell[0] == "both" else -1 for cell in names]
    clocks = [cell[3] if cell[0] == "both" else -1 for cell in names]
    days = np.array([cell[1] for cell in names], np.int64)
    return _places(names), days, np.array(joins, np.int64), np.array(clocks, np.int64)


def _choose_date(counts: Reals, month_first: bool) -> Choice:
    """A date, or a date and a time: both layouts, each by the sum over those of the other."""
    places, days, joins, clocks = _of_dates()
    own, layouts = counts[places], dates().layouts
    timed = own[clocks >= 0].sum() > own[clocks < 0].sum()
    among = (clocks >= 0) == timed
    by_day = np.bincount(days[among], own[among], len(dates().sets)).astype(np.float64)
    order = sorted(range(len(layouts)), key=lambda i: month_first and not re.match("%-?m", layouts[i].pattern))
    suiting = [dates().suiting[i] for i in order]
    first = _first(by_day, suiting)
    layout, rival = layouts[order[first]], swapped(layouts[order[first]])
    other = suiting[order.index(layouts.index(rival))] if rival in layouts and rival != layout else suiting[first][:0]
    doubtful = by_day[other].sum() >= by_day[suiting[first]].sum() - _LEAST * by_day.sum()
    among &= np.isin(days, suiting[first])
    if not timed:
        return Choice(TimeWriting(layout), places[among], rival.name if doubtful else "")
    join = int(np.argmax(np.bincount(joins[among], own[among], len(JOINS))))
    among &= joins == join
    by_clock = np.bincount(clocks[among], own[among], len(times().sets)).astype(np.float64)
    suits = times().suiting
    clock = _first(by_clock, suits)
    among &= np.isin(clocks, suits[clock])
    writing = TimeWriting(layout, JOINS[join], times().layouts[clock])
    return Choice(writing, places[among], rival.name if doubtful else "")
