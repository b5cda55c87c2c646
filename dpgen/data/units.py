r"""People instead of rows: of each person at most m rows are used, chosen by what that person's rows hold and nothing else.

A row's rank is the SHA-256 of a secret salt, its person and its contents as texts; of a person with more than m rows those
with the m smallest ranks are kept. Whole numbers or texts name the people, and other texts are other people: "01" is not "1";
in a csv file everything is a text. Contents are what the row counts as: its position on a grid, its codes under a schema, its
coordinates. So

- one person more or less, or another one in their place, changes what is kept of nobody else: neighbouring data sets differ
  in at most m rows of one person, under any key;
- the position of a row, and the order in which an engine reads rows, change nothing: rows of equal rank hold the same;
- any engine that knows SHA-256 keeps the same rows. In SQL a rank is
  `sha256(salt || ',' || person || ',' || column_1 || ',' || column_2 ...)` in hexadecimal, the salt likewise, texts with a
  backslash before each comma and backslash. What that does to the salt is no matter: privacy holds for any.
"""

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

KEY_BYTES = 32

Contents = Callable[[pd.DataFrame], pd.DataFrame]
"""Rows of a table to their values as a loader reads them, by which rows of a person are ranked."""

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class People:
    """Whose a row is, and how many rows of a person are used.

    Arguments:
        column: that names the person of a row; it is no data.
        most: m, rows of a person that are used.
        key: 32 secret bytes; without it fresh ones of the operating system.

    Example:
        >>> table = pd.DataFrame({"x": [3, 1, 4, 1, 5]})
        >>> People("user", 2, bytes(32)).kept(pd.Series(["ann", "ann", "bob", "ann", "ann"]), table).tolist()
        [False, True, True, True, False]
    """

    column: str
    most: int
    key: bytes = field(default_factory=lambda: os.urandom(KEY_BYTES), repr=False)

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError(f"max_contributions is {self.most}: it must be at least 1")
        if len(self.key) != KEY_BYTES:
            raise ValueError(f"key has {len(self.key)} bytes: it must have {KEY_BYTES}")

    @property
    def salt(self) -> str:
        """The beginning of what is hashed, 64 hexadecimal digits that do not tell the key."""
        return hashlib.sha256(b"dpgen rows" + self.key).hexdigest()

    def kept(self, people: pd.Series, rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Which rows (n,) are used, of the person of each (n,) and all that is used of it (n, c)."""
        self.require_names(people)
        codes, _ = pd.factorize(people)
        crowded = np.flatnonzero(np.bincount(codes)[codes] > self.most) if len(codes) else codes
        kept = np.ones(len(codes), bool)
        if len(crowded):
            ranks, person = self.ranks(people.iloc[crowded], rows.iloc[crowded]), codes[crowded]
            order = np.lexsort((*ranks.T[::-1], person))
            starts = np.flatnonzero(np.diff(person[order], prepend=-1))
            place = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
            kept[crowded[order[place >= self.most]]] = False
        return kept

    def bounded(self, table: pd.DataFrame, contents: Contents | None = None) -> tuple[pd.DataFrame, list[str]]:
        """The rows of a table that are used, without the column of people, and the person of each.

        Arguments:
            table: with the column of people.
            contents: what rows (n, c) count as, (n, ...); None: their values.
        """
        people, rows = table[self.column], table.drop(columns=self.column)
        absent = people.isna().to_numpy()
        if absent.any():
            raise ValueError(f"unit {self.column!r} has no value in row {int(absent.argmax()) + 1}: every row needs its person")
        kept = self.kept(people, rows if contents is None else contents(rows))
        return rows[kept].reset_index(drop=True), people[kept].astype(str).tolist()

    def require_names(self, people: pd.Series) -> None:
        """Refuse people of a type whose values do not name people everywhere alike, such as 1.0."""
        named = people.cat.categories if isinstance(people.dtype, pd.CategoricalDtype) else people
        kind = pd.api.types.infer_dtype(named, skipna=True)
        if kind not in ("integer", "string", "empty"):
            found = kind if kind == "mixed" else people.dtype
            raise ValueError(f"unit {self.column!r} is {found}; it must hold whole numbers or text")

    def ranks(self, people: pd.Series, rows: pd.DataFrame) -> npt.NDArray[np.uint64]:
        """Ranks (n, 4), most significant word first."""
        contents = [texts(rows[name]) for name in rows.columns]
        columns = [_escaped(values) for values in (np.asarray(people.astype(str), object), *contents)]
        digests = [hashlib.sha256(",".join((self.salt, *row)).encode()).digest() for row in zip(*columns)]
        return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 4).astype(np.uint64)


def texts(values: pd.Series) -> npt.NDArray[np.object_]:
    """Values as texts that do not depend on how their column is stored: 1, 1.0, True and "01" are the same one.

    What type the column of a file without types gets depends on the values of others, who would otherwise choose with it.

    >>> texts(pd.Series([1.0, 2.5])).tolist(), texts(pd.Series(["01", "true", " b"])).tolist()
    (['1', '2.5'], ['1', '1', ' b'])
    """
    if values.dtype.kind in "iu":
        return np.asarray(values.astype(str), object)
    return _by_value(values, _text)


def _escaped(values: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    return _by_value(pd.Series(values), lambda text: text.replace("\\", "\\\\").replace(",", "\\,"))


def _by_value(values: pd.Series, function: Callable[[Any], str]) -> npt.NDArray[np.object_]:
    codes, different = pd.factorize(values, use_na_sentinel=False)
    return np.array([function(value) for value in different], object)[codes] if len(codes) else np.empty(0, object)


def _text(value: Any) -> str:
    if pd.isna(value):
        return ""
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    text = str(value)
    plain = text.strip()
    if plain.casefold() in ("true", "false"):
        return str(int(plain.casefold() == "true"))
    if _NUMBER.fullmatch(plain) is None:
        return text
    if plain.lstrip("+-").isdigit():
        return str(int(plain))
    number = float(plain)
    return str(int(number)) if number.is_integer() else repr(number)
