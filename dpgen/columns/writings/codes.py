r"""Codes: texts such as postcodes, ICD codes and telephone numbers, by patterns of their characters.

A pattern is a regular expression of one class or character for each place, such as `80\d\d\d`, `[A-Z]\d\d\.\d`. That of a text
follows from this text alone: with its letters as they are or as classes, always with digits as classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import chain
from math import gcd, prod
from string import ascii_lowercase, ascii_uppercase, digits

import numpy as np
import pandas as pd
from scipy.stats import norm

from dpgen.columns.writings.table import Array, Flags, Integers, Reals

LONGEST = 48
"""Characters of a text that has a pattern, at most."""
CELLS = 2600
"""First characters of a pattern that are counted, at most: those of a letter and two digits."""
PLACES = 3
"""Number of its first digits or letters that these are, at most."""

_ANY = "[0-9A-Za-z]"
_CLASSES = {r"\d": digits, "[A-Z]": ascii_uppercase, "[a-z]": ascii_lowercase, "[0-9a-f]": "0123456789abcdef"}
_CLASSES |= {_ANY: digits + ascii_uppercase + ascii_lowercase}
_TOKEN = re.compile(rf"{'|'.join(map(re.escape, _CLASSES))}|\\.|.", re.DOTALL)
_PLAIN = {ord(c): f"\\{c}" for c in r"\[](){}.*+?^$|"} | {ord(c): r"\d" for c in digits}
_CLASSED = _PLAIN | {ord(c): "[A-Z]" for c in ascii_uppercase} | {ord(c): "[a-z]" for c in ascii_lowercase}
_KNOWN = {
    re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"): "-".join("[0-9a-f]" * size for size in (8, 4, 4, 4, 12)),
    re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}"): "[a-z]" * 10 + r"@example\.com",
}
"""Texts of many patterns that are one: UUIDs, and e-mail addresses, of which none at this domain is anybody's."""
_OF_UUID = 36
_LETTERS = 4  # of a text of letters alone that is a code, at most
_MIXED = re.compile("(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[0-9A-Za-z]{10,}")  # identifiers such as those of web services


def pattern_of(text: str, *, classed: bool = False) -> str:
    r"""The pattern of a text, `classed`: with classes for letters, too; "": it has none, or no digit and many letters.

    >>> pattern_of("J18.9"), pattern_of("J18.9", classed=True), pattern_of("a note")
    ('J\\d\\d\\.\\d', '[A-Z]\\d\\d\\.\\d', '')
    """
    if len(text) > LONGEST or not text.isprintable():
        return ""
    if ("@" in text or len(text) == _OF_UUID) and (found := _known(text)):
        return found
    if classed and _MIXED.fullmatch(text):
        return _ANY * len(text)
    few = classed and text.isupper() and len(text) <= _LETTERS
    return text.translate(_CLASSED if classed else _PLAIN) if few or _HAS_DIGIT.search(text) else ""


def _known(text: str) -> str:
    return next((known for form, known in _KNOWN.items() if form.fullmatch(text)), "")


_HAS_DIGIT = re.compile("[0-9]")


@dataclass(frozen=True)
class Pattern:
    """A pattern, place by place."""

    text: str

    @cached_property
    def places(self) -> tuple[str, ...]:
        """The characters that each place can have."""
        return tuple(_CLASSES.get(token, token[-1]) for token in _TOKEN.findall(self.text))

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The places that can have several."""
        return tuple(place for place, among in enumerate(self.places) if len(among) > 1)

    @cached_property
    def first(self) -> tuple[int, ...]:
        """The first of these, whose characters are counted."""
        if self.text in _KNOWN.values():
            return ()
        sizes = [len(self.places[place]) for place in self.free[:PLACES]]
        two = 2 if sizes[:2] == [10, 10] else PLACES  # a thousand cells of digits would hold noise alone
        return self.free[: max(k for k in range(len(sizes[:two]) + 1) if prod(sizes[:k]) <= CELLS)]

    @property
    def cells(self) -> int:
        """Number of first characters."""
        return prod(len(self.places[place]) for place in self.first)

    def begun(self, cell: int, of: int) -> str:
        """The pattern whose first `of` free places have the characters of a cell of these."""
        tokens = _TOKEN.findall(self.text)
        for place in reversed(self.first[:of]):
            cell, number = divmod(cell, len(self.places[place]))
            tokens[place] = self.places[place][number]
        return "".join(tokens)

    def cell(self, text: str) -> int:
        """The cell of the first characters of a text of this pattern."""
        found = 0
        for place in self.first:
            found = found * len(self.places[place]) + self.places[place].index(text[place])
        return found

    @cached_property
    def fits(self) -> Callable[[str], bool]:
        """Whether a text is of the pattern."""
        compiled, known = re.compile(self.text), self.text in _KNOWN.values()
        return lambda text: pattern_of(text) == self.text if known else compiled.fullmatch(text) is not None

    def drawn(self, uniform: Callable[[int], Reals], n: int) -> Array:
        """n texts of the pattern; `uniform(m)` gives m public numbers in [0, 1)."""
        made = np.array([[among[:1] for among in self.places]] * n, "<U1").reshape(n, len(self.places))
        for place in self.free:
            among = np.array(list(self.places[place]))
            made[:, place] = among[np.minimum((uniform(n) * len(among)).astype(np.int64), len(among) - 1)]
        return _joined(made)

    def numbered(self, numbers: Integers) -> Array:
        """A text of the pattern for each number >= 0 (n,), all different, in no order; numbers beyond go behind them."""
        sizes = [len(self.places[place]) for place in self.free]
        last = next(k for k in range(len(sizes) + 1) if prod(sizes[k:]) <= _MOST_NUMBERED)  # free places that count
        capacity = prod(sizes[last:])
        step = next(k for k in range(int(capacity * _GOLDEN) + 1, 2 * capacity + 2) if gcd(k, capacity) == 1)
        beyond, number = np.divmod(numbers.astype(np.int64), capacity)
        number = (number + 1) * step % capacity
        made = np.array([[among[:1] for among in self.places]] * len(numbers), "<U1").reshape(len(numbers), len(self.places))
        rest = number.astype(np.uint64)
        for k in reversed(range(len(sizes))):
            among = np.array(list(self.places[self.free[k]]))
            if k < last:  # of any value: a public function of the number
                rest = rest * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                digit = ((rest >> np.uint64(33)) % np.uint64(sizes[k])).astype(np.int64)
            else:
                number, digit = np.divmod(number, sizes[k])
            made[:, self.free[k]] = among[digit]
        texts = _joined(made)
        return np.array([text + (str(more) if more else "") for text, more in zip(texts, beyond)], object)


_MOST_NUMBERED = 2**31
_GOLDEN = (5**0.5 - 1) / 2


def _joined(characters: Array) -> Array:
    return np.array(["".join(row) for row in characters.tolist()], object)


def root_of(pattern: str, *, classed: bool) -> str:
    r"""The pattern of the texts of a pattern, of which the first characters may be fixed.

    >>> root_of(r"80\d\d\d", classed=False)
    '\\d\\d\\d\\d\\d'
    """
    if _ANY in pattern:
        return _ANY * len(Pattern(pattern).places)
    sample = "".join(among[0] for among in Pattern(pattern).places)
    return pattern if pattern in _KNOWN.values() else pattern_of(sample, classed=classed)


@dataclass(frozen=True)
class Matcher:
    """The first of several patterns that each text has: of those that it has, the one with the fewest free places."""

    patterns: tuple[str, ...]

    @cached_property
    def _of(self) -> Mapping[tuple[bool, str], list[tuple[int, Pattern]]]:
        found: dict[tuple[bool, str], list[tuple[int, Pattern]]] = {}
        for number in sorted(range(len(self.patterns)), key=lambda i: len(Pattern(self.patterns[i]).free)):
            pattern = Pattern(self.patterns[number])
            classed = any(len(pattern.places[place]) >= len(ascii_uppercase) for place in pattern.free)
            found.setdefault((classed, root_of(pattern.text, classed=classed)), []).append((number, pattern))
        return found

    @cached_property
    def _ways(self) -> tuple[bool, ...]:
        return tuple({classed for classed, _ in self._of})

    def __call__(self, texts: Array) -> Integers:
        """The number (n,) of the pattern of each text; -1: it has none of them."""
        place, different = pd.factorize(texts)
        return np.array([*map(self._one, different), -1], np.int64)[place]

    def _one(self, text: str) -> int:
        of = [self._of.get((classed, pattern_of(text, classed=classed)), []) for classed in self._ways]
        fitting = [(len(pattern.free), number) for number, pattern in chain(*of) if pattern.fits(text)]
        return min(fitting)[1] if fitting else -1


@lru_cache(256)
def matcher(patterns: tuple[str, ...]) -> Matcher:
    return Matcher(patterns)


_BARE = re.compile(rf"(?:{'|'.join(map(re.escape, _CLASSES))}|\\[^\w]|[^\\\[\](){{}}.*+?^$|])*", re.DOTALL)


@cache
def is_pattern(text: str) -> bool:
    r"""Whether a text is a pattern with a free place.

    >>> is_pattern(r"C\d\d"), is_pattern("C{:02d}"), is_pattern(r"C\d{2}")
    (True, False, False)
    """
    return _BARE.fullmatch(text) is not None and bool(Pattern(text).free)


def numbered(pattern: str, numbers: Integers) -> Array:
    """Keys of a pattern, or of one with `{}` or `{:06d}` for the number, by numbers (n,) that differ."""
    if is_pattern(pattern):
        return Pattern(pattern).numbered(numbers)
    return np.array([pattern.format(number) for number in numbers.tolist()], object)


_IN_ORDER = 8  # digits of a key that counts up, at most


@cache
def trailing(text: str) -> str:
    r"""A pattern that ends with its only free places, digits, in the words of `str.format`; "": another one.

    >>> trailing(r"K\d\d\d"), trailing(r"\+1 \d\d \d")
    ('K{:03d}', '')
    """
    found = re.fullmatch(rf"(.*?)((?:\\d){{1,{_IN_ORDER}}})", text, re.DOTALL)
    start = Pattern(found[1]) if found else None
    if found is None or start is None or start.free:
        return ""
    plain = "".join(start.places).replace("{", "{{").replace("}", "}}")
    return f"{plain}{{:0{len(found[2]) // 2}d}}"


@dataclass(frozen=True)
class Begun:
    """First characters of a pattern that hold more than noise: as a pattern, its noisy count and the variance of that."""

    pattern: str
    count: float
    variance: float


Counted = tuple[Reals, float]


def prefixes(root: Pattern, deep: Counted, flat: Counted) -> list[Begun]:
    """First characters of a pattern that are seen above noise: the longest beginnings first, then shorter ones without these.

    `deep` are noisy counts of all first characters (`cells`,) and their noise std, `flat` those of the first one alone.
    """
    (counts, std), (ones, flat_std), found = deep, flat, list[Begun]()
    free: Flags = np.ones(root.cells, bool)
    for of in range(len(root.first), 0, -1):
        size = prod(len(root.places[place]) for place in root.first[of:])
        level = float(norm.isf(_CHANCE * size / root.cells))
        for group in range(root.cells // size):
            own = np.arange(group * size, (group + 1) * size)
            left, less = own[free[own]], own[~free[own]]
            ways = [(float(counts[left].sum()), len(left) * std**2)]
            if of == 1:
                ways.append((float(ones[group] - counts[less].sum()), flat_std**2 + len(less) * std**2))
            count, variance = min(ways, key=lambda way: way[1])
            if len(left) and count > level * variance**0.5:
                found.append(Begun(root.begun(group, of), count, variance))
                free[own] = False
    return found


_CHANCE = 0.005  # that noise makes first characters, of a pattern
