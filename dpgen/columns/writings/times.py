"""Dates, months, quarters, weeks, times of day and durations by their layouts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property, lru_cache
from itertools import product

import numpy as np
import pandas as pd

from dpgen.columns.writings.table import (
    DATES,
    DAY,
    DIGIT,
    DIGITS,
    JOINS,
    MONTHS,
    NAMED,
    NAMED_PERIODS,
    PERIODS,
    TIMES,
    ZONES,
    Array,
    Found,
    Group,
    Integers,
    Writing,
    each,
    nothing,
    whole,
    write_each,
)

TOKEN = re.compile(r"%-?[A-Za-z]|\[hh?\]")
_READS = {
    "%d": r"(?P<d>\d\d)", "%-d": r"(?P<d>[1-9]\d?)", "%m": r"(?P<m>\d\d)", "%-m": r"(?P<m>[1-9]\d?)", "%Y": r"(?P<Y>\d{4})",
    "%y": r"(?P<y>\d\d)", "%q": r"(?P<q>[1-4])", "%G": r"(?P<Y>\d{4})", "%V": r"(?P<V>\d\d)", "%H": r"(?P<H>[01]\d|2[0-3])",
    "%-H": r"(?P<H>1?\d|2[0-3])", "%I": r"(?P<I>0[1-9]|1[0-2])", "%-I": r"(?P<I>[1-9]|1[0-2])", "%M": r"(?P<M>[0-5]\d)",
    "%S": r"(?P<S>[0-5]\d)", "%p": r"(?P<p>AM|PM)", "%P": r"(?P<p>am|pm)", "[h]": r"(?P<H>\d|[1-9]\d{1,4})",
    "[hh]": r"(?P<H>\d\d|[1-9]\d{2,4})",
}  # fmt: skip
_EPOCH = date(1970, 1, 1).toordinal()
_CENTURY = 30
"""Years of two digits below it are of 2000, others of 1900."""


@cache
def _months(key: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Short and long names of a language; of one in capitals or small letters the short ones alone."""
    name = key.removesuffix(", small").lower()
    short, long = (names.split() for names in MONTHS[name])
    if key == name:
        return tuple(short), tuple(long)
    change = str.lower if key.endswith("small") else str.upper
    return tuple(map(change, short)), ()


@cache
def _languages() -> tuple[str, ...]:
    """Keys of names of months: as they are, in capitals, in small letters."""
    bare = [key for key, (short, _) in MONTHS.items() if "." not in short]
    small = [f"{key}, small" for key in bare if MONTHS[key][0] != MONTHS[key][0].lower()]
    return (*MONTHS, *map(str.upper, bare), *small)


def _clock(seconds: int) -> dict[str, str]:
    """Tokens of a time of day, or of so many hours, minutes and seconds."""
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    half = hour % 12 or 12
    made = {"%H": f"{hour:02d}", "%-H": str(hour), "[h]": str(hour), "[hh]": f"{hour:02d}", "%I": f"{half:02d}"}
    made |= {"%-I": str(half), "%p": "AM" if hour < 12 else "PM", "%P": "am" if hour < 12 else "pm"}
    return made | {"%M": f"{minute:02d}", "%S": f"{second:02d}"}


@dataclass(frozen=True)
class Layout:
    """A date, a part of a date, or a time by a pattern; `months`: the language of their names."""

    pattern: str
    months: str = ""

    @property
    def name(self) -> str:
        """The pattern, with its language."""
        return f"{self.pattern} ({self.months})" if self.months else self.pattern

    @cached_property
    def kind(self) -> str:
        """Which units values are."""
        tokens = set(TOKEN.findall(self.pattern))
        if tokens & {"%H", "%-H", "%I", "%-I", "[h]", "[hh]"}:
            return "second" if "%S" in tokens else "minute"
        return "day" if tokens & {"%d", "%-d"} else "quarter" if "%q" in tokens else "week" if "%V" in tokens else "month"

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts, at = [""], 0
        for token in TOKEN.finditer(self.pattern):
            parts += [re.escape(self.pattern[at : token.start()]), self._reads(token[0])]
            at = token.end()
        return re.compile("".join(parts) + re.escape(self.pattern[at:]), re.ASCII)

    def _reads(self, token: str) -> str:
        if token in ("%b", "%B"):
            return f"(?P<b>{'|'.join(map(re.escape, _months(self.months)[token == '%B']))})"
        return _READS[token]

    @cached_property
    def _number(self) -> dict[str, int]:
        return {name: number for names in _months(self.months) for number, name in enumerate(names, 1)} if self.months else {}

    def read(self, text: str) -> int | None:
        """Days since 1970, months, quarters or weeks, or seconds or minutes; None: it is no such text."""
        found = self._pattern.fullmatch(text)
        return None if found is None else self._value(found.groupdict())

    def _time(self, of: Mapping[str, str]) -> int:
        """Seconds or minutes of the day."""
        hour = int(of["H"]) if "H" in of else int(of["I"]) % 12 + 12 * (of["p"] in ("PM", "pm"))
        minutes = 60 * hour + int(of["M"])
        return 60 * minutes + int(of["S"]) if self.kind == "second" else minutes

    def _value(self, of: Mapping[str, str]) -> int | None:
        if self.kind in ("second", "minute"):
            return self._time(of)
        year = int(of["Y"]) if "Y" in of else int(of["y"]) + (2000 if int(of["y"]) < _CENTURY else 1900)
        if self.kind == "quarter":
            return 4 * year + int(of["q"]) - 1
        month = self._number[of["b"]] if "b" in of else int(of.get("m", 1))
        try:
            if self.kind == "week":
                return (date.fromisocalendar(year, int(of["V"]), 1).toordinal() - 1) // 7
            day = date(year, month, int(of.get("d", 1)))
        except ValueError:
            return None
        return day.toordinal() - _EPOCH if self.kind == "day" else 12 * year + month - 1

    def write(self, value: int) -> str:
        """The text of a value."""
        made = self._fields(value)
        return TOKEN.sub(lambda token: made[token[0]], self.pattern)

    def _fields(self, value: int) -> dict[str, str]:
        if self.kind in ("second", "minute"):
            return _clock(value if self.kind == "second" else 60 * value)
        if self.kind == "day":
            day = date.fromordinal(min(max(value + _EPOCH, 1), date.max.toordinal()))
            made = {"%d": f"{day.day:02d}", "%-d": str(day.day)}
            year, month = day.year, day.month
        elif self.kind == "week":
            monday = date.fromordinal(7 * value + 1)
            year, month, made = monday.isocalendar().year, 1, {"%V": f"{monday.isocalendar().week:02d}"}
        else:
            year, part = divmod(value, 4 if self.kind == "quarter" else 12)
            month, made = part + 1, {"%q": str(part + 1)}
        if self.months:
            made |= {token: names[month - 1] for token, names in zip(("%b", "%B"), _months(self.months)) if names}
        made |= {"%m": f"{month:02d}", "%-m": str(month), "%Y": f"{year:04d}", "%G": f"{year:04d}", "%y": f"{year % 100:02d}"}
        return made


def _named(patterns: Iterable[str]) -> Iterator[Layout]:
    for pattern, language in product(patterns, _languages()):
        if _months(language)["%B" in pattern]:
            yield Layout(pattern, language)


def _short(layouts: Iterable[Layout]) -> list[Layout]:
    """With those whose days and months have no leading 0."""
    made = list[Layout]()
    for layout in layouts:
        made += [layout, Layout(re.sub("%([dm])", r"%-\1", layout.pattern), layout.months)]
    return list(dict.fromkeys(made))


class Layouts:
    """Layouts of one kind in their order, and the sets of them that one text can have."""

    def __init__(self, layouts: Sequence[Layout], probes: Iterable[int]) -> None:
        self.layouts = tuple(layouts)
        self._of: dict[str, list[int]] = {}
        named, others = dict[str, list[int]](), dict[str, None]()
        for number, layout in enumerate(self.layouts):
            for text in map(layout.write, probes):
                if layout.months:  # no other day is written so
                    named.setdefault(text, []).append(number)
                elif layout.read(text) is not None:
                    others[text] = None
                known = self._of.setdefault(outline(text), [])
                if known[-1:] != [number]:
                    known.append(number)
        self.sets = tuple(dict.fromkeys([*map(self.set_of, others), *map(tuple, named.values())]))
        self.number = {found: number for number, found in enumerate(self.sets)}

    def set_of(self, text: str) -> tuple[int, ...]:
        """The layouts that a text has."""
        return tuple(i for i in self._of.get(outline(text), ()) if self.layouts[i].read(text) is not None)

    def place(self, text: str) -> int | None:
        """The number of this set; None: a text has no layout."""
        return self.number.get(self.set_of(text))

    def knows(self, shape: str) -> bool:
        """Whether texts of this shape may have one."""
        return outline(shape) in self._of

    @cached_property
    def suiting(self) -> tuple[Integers, ...]:
        """The numbers of the sets that have each layout."""
        found: list[list[int]] = [[] for _ in self.layouts]
        for number, own in enumerate(self.sets):
            for layout in own:
                found[layout].append(number)
        return tuple(np.array(own, np.int64) for own in found)


@lru_cache(2**16)
def outline(text: str) -> str:
    """A text with 9 for each digit and a for each word of letters: all with one outline are read by the same layouts."""
    return _LETTERS.sub("a", DIGIT.sub("9", text))


_LETTERS = re.compile(r"[^\W\d_]+\.?")


@cache
def dates() -> Layouts:
    """Dates; those of three numbers first."""
    days = [date(2023, month, day).toordinal() - _EPOCH for month in range(1, 13) for day in (3, 11, 25)]
    return Layouts([*_short(map(Layout, DATES)), *_short(_named(NAMED))], days)


@cache
def periods() -> Layouts:
    """Months, quarters and weeks."""
    months = [12 * 2023 + month for month in range(12)]
    quarters, weeks = [4 * 2023 + quarter for quarter in range(4)], [105_500 + week for week in range(53)]
    return Layouts([*map(Layout, PERIODS), *_named(NAMED_PERIODS)], [*months, *quarters, *weeks])


@cache
def times() -> Layouts:
    """Times of day and durations."""
    minutes = [60 * hour + minute for hour in range(24) for minute in (5, 45)]
    return Layouts(_short(map(Layout, TIMES)), [*minutes, *(60 * minute + 7 for minute in (*minutes, 60 * 30, 60 * 100))])


@dataclass(frozen=True)
class TimeWriting(Writing):
    """Dates, their parts, or times by a layout; dates with a time of day by one of each with `join` between."""

    layout: Layout
    join: str = ""
    clock: Layout | None = None

    @property
    def kind(self) -> str:  # type: ignore[override]
        if self.clock is not None or (self.layout.kind == "day" and "%H" in self.layout.pattern):
            return "datetime"
        return "date" if self.layout.kind == "day" else "integer"

    @property
    def name(self) -> str:
        if self.clock is None:
            return self.layout.name
        months = f" ({self.layout.months})" if self.layout.months else ""
        return f"{self.layout.pattern}{self.join}{self.clock.pattern}{months}"

    @property
    def limits(self) -> tuple[int, int | None] | None:
        if self.layout.kind not in ("second", "minute"):
            return None
        most = DAY if self.layout.kind == "second" else DAY // 60
        return 0, None if "[" in self.layout.pattern else most - 1

    def _of_group(self, group: Group) -> Found:
        at = len(group.shape) if self.clock is None else clock_at(group.shape, self.join)
        if at is None:
            return nothing(len(group.rows))
        found = each(group.texts(0, at), self.layout.read)
        if self.clock is not None:
            seconds = 60 if self.clock.kind == "minute" else 1
            found = found * DAY + seconds * each(group.texts(at + len(self.join)), self.clock.read)
        elif self.layout.kind == "day":
            found = found * DAY
        return Found(np.isfinite(found), found)

    def write(self, values: Array, decimals: int) -> list[str]:
        units = whole(values)
        if self.kind == "integer":
            return write_each(units, self.layout.write)
        days, seconds = np.divmod(units, DAY)
        made = write_each(days, self.layout.write)
        if self.clock is None:
            return made
        units = seconds // 60 if self.clock.kind == "minute" else seconds
        return [f"{day}{self.join}{time}" for day, time in zip(made, write_each(units, self.clock.write))]


@lru_cache(2**16)
def clock_at(shape: str, join: str) -> int | None:
    """Where the time of day begins, with what joins it to the date, in texts of a shape."""
    if not join:
        return len("20200101")
    places = [m.start() for m in re.finditer(re.escape(join) + "(?=9)", shape)]
    known = (at for at in places if times().knows(shape[at + len(join) :]) and dates().knows(shape[:at]))
    return next(known, None)


_ZONED = re.compile(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d(.*)", re.ASCII)
_OFFSET = re.compile(r"[-+]\d\d:\d\d", re.ASCII)


def zone_of(text: str) -> tuple[str, str] | None:
    """The mark between date and time of a text by ISO 8601, and its zone of `ZONES`; None: it has none."""
    found = _ZONED.fullmatch(text)
    if found is None:
        return None
    end = re.sub(r"^\.\d{3}(?=\D)", ".000", found[2])
    zone = end if end in ZONES[:-1] else ZONES[-1] if _OFFSET.fullmatch(end) else ""
    return (found[1], zone) if zone else None


@dataclass(frozen=True)
class ZonedWriting(Writing):
    """Times by ISO 8601 with a zone, to the second; they are written back in UTC."""

    join: str
    zone: str
    kind = "datetime"

    @property
    def name(self) -> str:
        return f"%Y-%m-%d{self.join}%H:%M:%S{self.zone}"

    def _of_group(self, group: Group) -> Found:
        texts = group.texts()
        known = [zone_of(str(text)) for text in texts]
        among = (self.zone, "+00:00") if self.zone == "%z" else (self.zone,)
        own = np.array([found is not None and found[0] == self.join and found[1] in among for found in known], bool)
        stamps = pd.to_datetime(pd.Series(texts, dtype=object).where(own), errors="coerce", utc=True, format="ISO8601")
        seconds = stamps.dt.tz_localize(None).to_numpy("datetime64[s]")
        there = ~np.isnat(seconds)
        return Found(there, np.where(there, seconds.astype(np.int64), np.nan))

    def write(self, values: Array, decimals: int) -> list[str]:
        stamps = np.datetime_as_string(whole(values).astype("datetime64[s]"))
        end = self.zone.replace("%z", "+00:00")
        return [f"{str(stamp).replace('T', self.join)}{end}" for stamp in stamps]


_DURATION = re.compile(r"P(?=.)(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.ASCII)
DURATIONS = {"P1D": DAY, "PT1H": 3_600, "PT1M": 60, "PT1S": 1}
"""Durations by ISO 8601 up to a finest unit, and its seconds."""


@dataclass(frozen=True)
class DurationWriting(Writing):
    """Durations by ISO 8601, as `P1DT12H`; values are in their finest unit."""

    unit: str
    kind = "integer"
    limits = 0, None

    @property
    def name(self) -> str:
        return self.unit

    def _of_group(self, group: Group) -> Found:
        if not group.shape.startswith("P"):
            return nothing(len(group.rows))
        found = each(group.texts(), self.seconds) / DURATIONS[self.unit]
        return Found(np.isfinite(found), np.rint(found))

    @staticmethod
    def seconds(text: str) -> int | None:
        """The seconds of a text, which is as it is written back."""
        found = _DURATION.fullmatch(text)
        value = sum(size * int(part) for size, part in zip(DURATIONS.values(), found.groups("0"))) if found else 0
        return value if found and DurationWriting.text(value) in (text, f"{text}T0S") else None

    @staticmethod
    def text(seconds: int) -> str:
        """The text of so many seconds."""
        days, left = divmod(seconds, DAY)
        hours, minutes, rest = left // 3_600, left // 60 % 60, left % 60
        clock = "".join(f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M"), (rest, "S")) if count)
        day = f"{days}D" if days else ""
        return f"P{day}" + (f"T{clock}" if clock else "" if day else "T0S")

    def write(self, values: Array, decimals: int) -> list[str]:
        return write_each(np.maximum(whole(values) * DURATIONS[self.unit], 0), self.text)


SPANS = {"PT160H": 3_600, "PT160M": 60, "PT160S": 1}
"""Durations by ISO 8601 of one unit alone, however many there are, by an example, and its seconds."""
_SPAN = re.compile(r"PT(0|[1-9]\d{0,8})([HMS])", re.ASCII)


@dataclass(frozen=True)
class SpanWriting(Writing):
    """Durations by ISO 8601 of one unit, as `PT160M`; values are in this unit."""

    example: str
    kind = "integer"
    limits = 0, None

    @property
    def name(self) -> str:
        return self.example

    def _of_group(self, group: Group) -> Found:
        found = each(group.texts(), self._count)
        return Found(np.isfinite(found), found)

    def _count(self, text: str) -> int | None:
        found = _SPAN.fullmatch(text)
        return int(found[1]) if found and found[2] == self.example[-1] else None

    def write(self, values: Array, decimals: int) -> list[str]:
        return [f"PT{max(int(count), 0)}{self.example[-1]}" for count in whole(values)]


def duration_cell(text: str) -> tuple[str, int, bool] | None:
    """The cell of a duration: the number of its finest unit, and whether it has no other; None: it is none."""
    span = _SPAN.fullmatch(text)
    seconds = DurationWriting.seconds(text)
    if seconds is not None:
        unit = next(number for number, size in enumerate(DURATIONS.values()) if seconds % size == 0)
        return "duration", unit, span is not None and "DHMS".index(span[2]) == unit
    return None if span is None else ("span", "DHMS".index(span[2]), True)


@cache
def zoned_writings() -> tuple[ZonedWriting, ...]:
    """All of them."""
    return tuple(ZonedWriting(join, zone) for join in ("T", " ") for zone in ZONES)


def swapped(layout: Layout) -> Layout:
    """The layout with day and month in the place of each other."""
    change = {"%d": "%m", "%m": "%d", "%-d": "%-m", "%-m": "%-d"}
    return Layout(TOKEN.sub(lambda token: change.get(token[0], token[0]), layout.pattern), layout.months)


def time_writing(format: str) -> TimeWriting | ZonedWriting | None:
    if (zoned := next((made for made in zoned_writings() if made.name == format), None)) is not None:
        return zoned
    if format in DIGITS:
        rest = format.removeprefix(DIGITS[0])
        return TimeWriting(Layout(DIGITS[0]), "", Layout(rest) if rest else None)
    for layout in (*dates().layouts, *periods().layouts, *times().layouts):
        if layout.name == format:
            return TimeWriting(layout)
    for layout, join, clock in product(dates().layouts, JOINS, times().layouts):
        if (made := TimeWriting(layout, join, clock)).name == format:
            return made
    return None
