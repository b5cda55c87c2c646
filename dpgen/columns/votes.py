"""The noisy histogram of forms of a column, in which each value votes by itself, and what it decides: a type and a writing."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from dpgen.columns.forms import BY_NAME, FORMS, LEAST, NESTED, Atoms, Integers, Reals, ValueForm, family, found_of, infinite
from dpgen.columns.writings import cells as written
from dpgen.columns.writings.cells import Choice
from dpgen.columns.writings.numbers import NumberWriting
from dpgen.columns.writings.table import DIGITS
from dpgen.columns.writings.times import ZonedWriting

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
    return len(CELLS) + len(written.cells())


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
            own = written.zones_of(atoms.different[at])
            cells[at] = np.where(own < 0, cells[at], own + len(CELLS))
        elif kind == "any" and form.name == "text":
            own = written.cells_of(np.array([text.strip() for text in seen.values], object))
            cells[at] = np.where(own < 0, coarse, own + len(CELLS))
    found[atoms.rows] = atoms.spread(cells)
    found[infinite(values)] = NO_VALUE
    return found


def cells_of_digits() -> Integers:
    """The cells of whole numbers that are dates."""
    return np.array([len(CELLS) + written.cells()["digits", number] for number in range(len(DIGITS))], np.int64)


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
        found[of & (day <= lengths)] = len(CELLS) + written.cells()["digits", DIGITS.index(format)]
    return found


@dataclass(frozen=True)
class Vote:
    """Noisy counts of the cells (size(),) of a column, with one noise std; those that its type excludes are 0.

    A cell of a writing is seen where its count passes a level that noise passes in one of 20 columns, in any of all cells; half
    of that is for the usual ones (`dpgen.cells.usual`), so that many rare cells do not make these harder to see. What changes
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
            levels = written.levels(chance)[: len(counts)]
            object.__setattr__(self, name, np.where(counts > levels * self.std, counts, 0.0))

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
        return written.zones()[: len(self._seen)]

    @property
    def _digits(self) -> Integers:
        return cells_of_digits()[: len(self._seen)] - len(CELLS)

    @cached_property
    def choice(self) -> Choice | None:
        """The writing that most texts have; None: most values have a form that all containers know."""
        if not self._seen.any():
            return None
        found, known = self._seen.copy(), written.cells()
        found[known["gap",]] = 0.0
        for kind, layout in (("integer", ""), ("number", ".")):  # numbers without marks are of several writings
            count = self.counts[_NUMBERED["number", kind]]
            found[known["number", 0, layout, False]] = count if count > SEEN * self.std else 0.0
        made = written.best_of(found, month_first=self.month_first)
        if made is None:
            return None
        there = found[made.own].sum()
        plain = max(self.of(form)[0] for form in FORMS if form.types != ("string",))
        least = max(SURE * self.std, LEAST * float(self.counts[1 : len(CELLS)].sum() + found.sum()))
        if made.writing.name in DIGITS:  # each is a whole number, too
            return made if plain - there <= least else None
        if isinstance(made.writing, ZonedWriting):  # each is a time, too
            return made if max(plain, float(found[self._zones].sum())) - there <= least else None
        return made if (self._sure[made.own].sum() > least if self._beside(made) else there > plain) else None

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
            others[written.cells()["gap",]] = 0.0
            others[np.r_[self._digits, self._zones] if self.choice is None else self.choice.own] = 0.0
        if self.of(BY_NAME["text"])[0] + others.sum() > least:
            return "string"
        if self.choice is not None:
            marks = float(self._sure[written.cells()["gap",]])
            kept = self.choice.writing.kind == "boolean" and marks > least  # yes, no and unknown are categories
            return "string" if kept else self.choice.writing.kind
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
