"""Forms of values: gaps, texts, truth values, numbers by their rounding, dates by their clock; and types by noisy counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.values import as_numbers, times

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

DAY = 86_400
TOLD = 3.0
"""Noise stds of a count that is said, or that decides."""
LEAST = 0.01
"""Share of the values that a type or a rounding must have."""

ROUNDINGS = tuple(Decimal(1).scaleb(k) for k in range(3, -7, -1))
_CLOCK = (86_400, 3_600, 60, 1)
GAP, TRUTH, TEXT, FIRST_NUMBER = range(4)
FINER = FIRST_NUMBER + len(ROUNDINGS)
FIRST_TIME = FINER + 1
FORMS = FIRST_TIME + len(_CLOCK)
_NUMBERS, _TIMES = set(range(FIRST_NUMBER, FIRST_TIME)), set(range(FIRST_TIME, FORMS))
# -- values ------------------------------------------------------------------------------------------------------------


def forms(values: pd.Series, kind: str) -> Integers:
    """The form (n,) of each value of a column of this type; "any": of texts, of which each shows its own type."""
    codes = np.full(len(values), GAP, np.int64)
    there = values.notna().to_numpy()
    present = values[there]
    if kind == "any":
        places, texts = pd.factorize(present)
        codes[there] = _forms_of_texts(texts)[places]
    elif kind in ("date", "datetime"):
        codes[there] = _forms_of_times(times(present))
    elif kind in ("integer", "number", "year"):
        read = as_numbers(present)
        found = _forms_of_numbers(read)
        codes[there] = found if read.dtype.kind == "i" else np.where(np.isnan(read), GAP, found)
    else:
        codes[there] = TRUTH if kind == "boolean" else TEXT
    return codes


_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_LEADING = re.compile(r"[-+]?0[0-9]+")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[-+]\d\d:?\d\d)?)?", re.ASCII)
_TRUTHS = {"true", "false", "True", "False", "TRUE", "FALSE"}


def _form_of_text(text: str) -> int:
    text = text.strip()
    if text in _TRUTHS:
        return TRUTH
    if _WHOLE.fullmatch(text):
        return FIRST_NUMBER
    if not _LEADING.fullmatch(text) and _DECIMAL.fullmatch(text):
        return FIRST_NUMBER + 1
    return FIRST_TIME if _TIME.fullmatch(text) else TEXT


def _forms_of_texts(texts: Any) -> Integers:
    """Forms of texts: what each is by itself, with the rounding of its number or the clock of its time."""
    codes = np.array([_form_of_text(text) for text in texts], np.int64)
    whole, decimal = codes == FIRST_NUMBER, codes == FIRST_NUMBER + 1
    plain = pd.Series(np.asarray(texts, object))
    if whole.any():
        codes[whole] = _forms_of_numbers(np.array([int(text.strip()) for text in plain[whole]], np.int64))
    if decimal.any():  # float64 whatever their neighbours are: pandas makes whole ones of more digits integers or objects
        codes[decimal] = _forms_of_numbers(as_numbers(plain[decimal]))
    codes[decimal & (codes < FIRST_NUMBER + 4)] = FIRST_NUMBER + 4  # 1.0 is written as a decimal number
    if (clock := codes == FIRST_TIME).any():
        codes[clock] = _forms_of_times(times(plain[clock]))
    return codes


def _forms_of_numbers(x: npt.NDArray[Any]) -> Integers:
    codes = np.full(len(x), FINER, np.int64)
    exact = x.dtype.kind in "iu"
    size = np.abs(np.where(np.isfinite(x), x, 0.0)) if not exact else x
    for i, step in reversed(list(enumerate(ROUNDINGS))):
        if exact:
            if step < 1:
                continue
            held = x % int(step) == 0
        else:
            scaled = size / float(step) if step >= 1 else size * float(1 / step)
            held = np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(scaled, 1.0)
            held &= scaled < 2**50
        codes[held] = FIRST_NUMBER + i
    return codes


def _forms_of_times(seconds: Reals) -> Integers:
    codes = np.full(len(seconds), TEXT, np.int64)
    there = np.isfinite(seconds)
    whole = np.where(there, seconds, 0).astype(np.int64)
    for i, step in reversed(list(enumerate(_CLOCK))):
        codes[there & (whole % step == 0)] = FIRST_TIME + i
    return codes


# -- forms of a column -------------------------------------------------------------------------------------------------


def possible(kind: str) -> Integers:
    """Forms that values of a type can have."""
    numbers, clock = range(FIRST_NUMBER, FIRST_TIME), range(FIRST_TIME, FORMS)
    some: dict[str, Sequence[int]] = {
        "string": [TEXT],
        "boolean": [TRUTH],
        "any": range(1, FORMS),
        "integer": range(FIRST_NUMBER, FIRST_NUMBER + 4),
        "year": range(FIRST_NUMBER, FIRST_NUMBER + 4),
        "number": numbers,
        "date": [TEXT, *clock],
        "datetime": [TEXT, *clock],
    }
    return np.array([GAP, *some[kind]], np.int64)


@dataclass(frozen=True)
class Form:
    """Noisy counts of the forms of a column."""

    counts: Reals
    std: float
    among: Flags

    def _sums(self) -> dict[str, float]:
        c = self.counts
        whole, decimal = c[FIRST_NUMBER : FIRST_NUMBER + 4].sum(), c[FIRST_NUMBER + 4 : FIRST_TIME].sum()
        dates, clock = c[FIRST_TIME], c[FIRST_TIME + 1 :].sum()
        return {"boolean": c[TRUTH], "string": c[TEXT], "integer": whole, "number": decimal, "date": dates, "datetime": clock}

    def kind(self) -> str:
        """The type: a text where more than noise and one of 100 values are texts, else what most are."""
        sums = self._sums()
        total, least = sum(sums.values()), TOLD * self.std
        if sums["string"] > max(least, LEAST * total):
            return "string"
        numbers, dates = sums["integer"] + sums["number"], sums["date"] + sums["datetime"]
        best = max(("boolean", sums["boolean"]), ("number", numbers), ("date", dates), key=lambda pair: pair[1])[0]
        if best == "number":
            return "number" if sums["number"] > max(2 * least, LEAST * total) else "integer"
        return "datetime" if best == "date" and sums["datetime"] > max(least, LEAST * total) else best

    def strange(self, kind: str) -> bool:
        """Whether some values are of another type than the column's: they become gaps."""
        own = {"integer": _NUMBERS, "number": _NUMBERS, "date": _TIMES, "datetime": _TIMES, "boolean": {TRUTH}}
        if kind == "string":
            return False
        others = self.counts[[code for code in range(1, FORMS) if code not in own[kind]]]
        return bool(others.sum() > TOLD * self.std * len(others) ** 0.5)

    def rounding(self, kind: str) -> Decimal | None:
        """The finest step that more than noise and one of 100 values need; None: they are not rounded."""
        places = np.arange(FIRST_NUMBER, FIRST_TIME)[self.among[FIRST_NUMBER:FIRST_TIME]]
        if kind in ("integer", "year"):
            places = places[places < FIRST_NUMBER + 4]
        counts = self.counts[places]
        seen = np.flatnonzero(counts > max(TOLD * self.std, LEAST * counts.sum()))
        last = int(places[seen[-1]]) if len(seen) else (FIRST_NUMBER + 3 if kind != "number" else FINER)
        return None if last == FINER else ROUNDINGS[last - FIRST_NUMBER]

    def clock(self, kind: str) -> Decimal:
        """The same of dates and times, in seconds."""
        counts = self.counts[FIRST_TIME:]
        seen = np.flatnonzero(counts > max(TOLD * self.std, LEAST * counts.sum()))
        return Decimal(DAY if kind == "date" or not len(seen) else _CLOCK[seen[-1]])
