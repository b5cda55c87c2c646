"""Numbers with marks of thousands and decimals, a minus, and a currency or a unit around them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from dpgen.columns.writings.table import (
    CODES,
    DIGIT,
    HARD,
    MARKS,
    ONE,
    SYMBOLS,
    THIN,
    UNITS,
    Array,
    Flags,
    Found,
    Group,
    Reals,
    Writing,
    nothing,
)

_EXACT_DIGITS = 15

_STYLES = {("", ""): "-", ("-", ""): "-", ("+", ""): "-", ("(", ")"): "()", ("", "-"): "1-", ("in", ""): "$-1", ("−", ""): "−"}
"""Writings of a minus, by what is before and after the number."""
_CORE = re.compile(
    r"(?P<whole>9{1,3}(?P<group>[.,'’ \u00a0\u202f])999(?:(?P=group)999)*|9+)(?:(?!(?P=group))(?P<mark>[.,])(?P<rest>9+))?"
)
_PLAIN_CORE = re.compile(r"(?P<whole>9+)(?:(?P<mark>[.,])(?P<rest>9+))?")
_SPLIT = re.compile(r"([^9]*)(9(?:.*9)?)([^9]*)", re.DOTALL)


@cache
def affixes() -> dict[tuple[str, str], int]:
    """Texts that may be before and after a number."""
    gaps = ("", " ", HARD)
    found = [("", "")]
    for word in (*SYMBOLS, *CODES):
        found += [(word + gap, "") for gap in gaps] + [("", gap + word) for gap in gaps]
    found += [("", gap + word) for word in "%‰" for gap in (*gaps, THIN)] + [("", THIN + "€")]
    found += [("", gap + word) for word in UNITS for gap in ("", " ")]
    return {affix: number for number, affix in enumerate(dict.fromkeys(found))}


@cache
def _heads() -> dict[str, tuple[str, str]]:
    found = dict[str, tuple[str, str]]()
    for before, _ in affixes():
        made = {before: "", "-" + before: "-", "+" + before: "+", "−" + before: "−", "(" + before: "("}
        made |= {before + "-": "in"} if before else {}
        for head, style in made.items():
            found.setdefault(head, (before, style))
    return found


@cache
def _tails() -> dict[str, tuple[str, str]]:
    found = dict[str, tuple[str, str]]()
    for _, after in affixes():
        single = after.replace(after.strip(), ONE.get(after.strip(), after.strip())) if after else ""
        for word in (after, single):
            for tail, style in ((word, ""), (word + ")", ")"), (")" + word, ")"), (word + "-", "-"), ("-" + word, "-")):
                found.setdefault(tail, (after, style))
    return found


class Shape(NamedTuple):
    """The shape of a number: what is around it, the minus, the layout, places of whole digits and of decimals."""

    affix: tuple[str, str]
    style: str
    layout: str
    whole: tuple[int, ...]
    rest: tuple[int, ...]


@lru_cache(2**16)
def number_of(shape: str) -> Shape | None:
    """The shape of a number, None of another text.

    A layout is the marks of thousands and decimals; "3," and "3.": one that may be either; ",,": thousands alone; "4" before
    it: thousands without a mark.
    """
    parts = _SPLIT.fullmatch(shape)
    if parts is None:
        return None
    head, tail = _heads().get(parts[1]), _tails().get(parts[3])
    if head is None or tail is None:
        return None
    style = _STYLES.get((head[1], tail[1]))
    core = _PLAIN_CORE.fullmatch(parts[2]) or _CORE.fullmatch(parts[2])
    if style is None or core is None or (head[0], tail[0]) not in affixes():
        return None
    start = len(parts[1])
    whole = tuple(start + found.start() for found in re.finditer("9", core["whole"]))
    rest = tuple(start + i for i in range(*core.span("rest")))
    return Shape((head[0], tail[0]), style, _layout(core, len(whole), len(rest)), whole, rest)


def _layout(core: re.Match[str], whole: int, rest: int) -> str:
    """The marks of a number with so many whole digits and decimals, see `number_of`."""
    mark, group = core["mark"] or "", core.groupdict().get("group") or ""
    if not group and whole > 3:
        return "4" + mark
    if not group and rest == 3:
        return "3" + mark
    if group and not mark:
        return group + group if group in ".," else group
    return group + mark


@dataclass(frozen=True)
class NumberWriting(Writing):
    """Numbers with marks of thousands (`group`) and decimals; `fixed`: all with as many decimals; `style`: its minus."""

    before: str = ""
    after: str = ""
    group: str = ""
    mark: str = "."
    fixed: bool = False
    style: str = "-"
    kind = "number"

    @property
    def name(self) -> str:
        example = f"1{self.group}234{self.mark}5" + "0" * self.fixed
        return example if self.style == "-" and not (self.before or self.after) else self._around(example, self.style)

    def _around(self, text: str, style: str) -> str:
        text = self.before + ("-" if style == "$-1" else "") + text + ("-" if style == "1-" else "") + self.after
        return f"({text})" if style == "()" else f"−{text}" if style == "−" else text

    def splits(self, layout: str) -> int | None:
        """Whether a text of this layout has decimals after its last mark here, 1 or 0; None: it is no such text."""
        together = 2 * self.group if self.group in (",", ".") else self.group
        if layout in ("", "4", together) or (self.group and layout == "3" + self.group):
            return 0
        return 1 if layout in (self.mark, "3" + self.mark, "4" + self.mark, self.group + self.mark) else None

    def suits(self, layout: str, *, zero: bool) -> bool:
        """Whether a column of this writing has such texts; `zero`: whose last decimal is 0."""
        split = self.splits(layout)
        if split is None or (self.group and layout.startswith("4")):
            return False
        return split == 1 if self.fixed else not (zero and split)

    def _of_group(self, group: Group) -> Found:
        shape = number_of(group.shape)
        if shape is None or shape.affix != (self.before, self.after):  # a minus of any style is one
            return nothing(len(group.rows))
        _, decimal, valid = flags(shape, group)
        there, values = np.zeros(len(valid), bool), np.full(len(valid), np.nan)
        negative = -1.0 if shape.style != "-" or group.shape.startswith("-") else 1.0
        for is_decimal in (False, True):
            split = self.splits(shape.layout.removeprefix("3") if is_decimal else shape.layout)
            those = valid & (decimal == is_decimal)
            if split is not None and those.any():
                there |= those
                values[those] = negative * _value(group, shape, those, decimals=bool(split))
        return Found(there, values)

    def write(self, values: Array, decimals: int) -> list[str]:
        return [self._written(value, decimals) for value in values.astype(np.float64)]

    def _written(self, value: float, decimals: int) -> str:
        text = f"{abs(value):,.{decimals}f}"
        if "." in text and not self.fixed:
            text = text.rstrip("0").removesuffix(".")
        whole, _, rest = text.partition(".")
        text = whole.replace(",", self.group) + (self.mark + rest if rest else "")
        below = value < 0 and float(f"{value:.{decimals}f}") != 0
        after = self.after
        if abs(value) == 1 and (word := after.strip()) in ONE:
            after = after.replace(word, ONE[word])
        style = self.style if below else "-"
        text = NumberWriting(self.before, after)._around(text, style)
        return "-" + text if below and style == "-" else text


def flags(shape: Shape, group: Group) -> tuple[Flags, Flags, Flags]:
    """Which texts (m,) end with a decimal 0, which can have a decimal mark alone, and which are numbers at all."""
    n = len(group.rows)
    first = group.digits(shape.whole[:1])[:, 0]
    valid = (first > 0) | (len(shape.whole) == 1)
    zero = group.digits(shape.rest[-1:])[:, 0] == 0 if shape.rest else np.zeros(n, bool)
    decimal = (first == 0) & shape.layout.startswith("3")
    return zero, decimal, valid


def _value(group: Group, shape: Shape, those: Flags, *, decimals: bool) -> Reals:
    """Numbers (k,) of some of the texts: the nearest float of each."""
    places = (*shape.whole, *shape.rest)
    power = len(shape.rest) if decimals else 0
    if len(places) > _EXACT_DIGITS:
        characters = group.characters[those][:, list(places)].astype(np.uint32)
        return np.array([float(f"{''.join(map(chr, row))}e-{power}") for row in characters], np.float64)
    digits = group.digits(places)[those]
    return (digits @ 10 ** np.arange(len(places) - 1, -1, -1, dtype=np.int64)) / 10.0**power


LAYOUTS = tuple(
    dict.fromkeys(
        (layout, zero)
        for layout in (
            *("", ".", ",", "3.", "3,", "4", "4.", "4,"),
            *(layout for group, mark in MARKS if group for layout in (2 * group if group in ",." else group, group + mark)),
        )
        for zero in ((False, True) if layout and layout[-1] in ".," and layout not in (",,", "..") else (False,))
    )
)
"""Layouts of numbers, and whether the last decimal is 0."""
STYLES = tuple(dict.fromkeys(style for style in _STYLES.values() if style != "-"))


def number_writing(example: str) -> NumberWriting | None:
    """The writing of which this is an example; None: it is of several, or no number."""
    shape = number_of(DIGIT.sub("9", example.strip()))
    if shape is None or shape.layout in ("3.", "3,") or (shape.layout in ("", "4") and shape.affix == ("", "")):
        return None
    marks = shape.layout.removeprefix("4")
    group = marks[0] if len(marks) == 2 or marks not in ("", ".", ",") else ""
    mark = marks[-1] if marks and marks[-1] in ".," and marks != 2 * group else "," if group == "." else "."
    fixed = bool(shape.rest) and example.strip()[shape.rest[-1]] == "0"
    return NumberWriting(*shape.affix, group=group, mark=mark, fixed=fixed, style=shape.style)
