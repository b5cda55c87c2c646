r"""Writings: how texts show numbers, dates, times and truth values, read and written back alike.

The table (`dpgen.columns.writings.table`) is what a reader extends by a line. Which writings could have made a text follows
from this text and from the table alone; a noisy histogram (`dpgen.columns.votes`) decides which one a column has. Its name is
the `format` of a field:

| texts | format | value |
|---|---|---|
| numbers | an example, as `1.234,50 €`; one that ends with a 0: all have as many decimals | the number without its unit |
| dates, with times | a pattern of strptime, as `%d.%m.%Y %H:%M`; `%-d`: no leading 0; `%d %b %Y (de)`: a language | seconds |
| months, quarters, weeks | such a pattern; `%q` is a quarter | their number since the year 0 |
| times of day, durations | such a pattern; `[h]:%M:%S`: beyond a day; `P1D`, `PT1M`; `PT160M`: of one unit | the finest unit |
| truth values | both words, as `ja/nein` | a truth value |

What pandas reads as a number, a truth value or an ISO date is no writing: it has one form, whether it comes as a text or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from dpgen.columns.writings.numbers import number_writing
from dpgen.columns.writings.table import TRUTHS, Array, Found, Group, Writing
from dpgen.columns.writings.times import DURATIONS, SPANS, TOKEN, DurationWriting, SpanWriting, time_writing


@dataclass(frozen=True)
class TruthWriting(Writing):
    """Truth values by two words."""

    words: tuple[str, str]
    kind = "boolean"

    @property
    def name(self) -> str:
        return "/".join(self.words)

    def _of_group(self, group: Group) -> Found:
        raise NotImplementedError("truth words are read whole")

    def read(self, texts: Array) -> Found:
        return Found(np.isin(texts, self.words), (texts == self.words[0]).astype(np.float64))

    def write(self, values: Array, decimals: int) -> list[str]:
        return [self.words[not value] for value in values]


@cache
def writing_of(format: str) -> Writing | None:
    """The writing with this name; None: there is none in the table.

    >>> [writing_of(name).kind for name in ("1.234,50 €", "%d.%m.%Y", "%H:%M", "ja/nein")]
    ['number', 'date', 'integer', 'boolean']
    """
    if format in DURATIONS:
        return DurationWriting(format)
    if format in SPANS:
        return SpanWriting(format)
    if format in TRUTHS:
        true, false = format.split("/")
        return TruthWriting((true, false))
    if "%" in format and TOKEN.search(format):
        return time_writing(format)
    return number_writing(format)
