r"""Choice of the rows of a person that are used, and of the records that are held out: it depends on nobody else.

A row's rank is the SHA-256 of a secret salt, its person and its contents as texts; of a person with more than m rows those with
the m smallest ranks are kept. Whole numbers or texts name the people, and other texts are other people: "01" is not "1"; in a
csv file everything is a text. Contents are what the row counts as: its position on a grid, its codes under a schema, its
coordinates. So

- one person more or less, or another one in their place, changes what is kept of nobody else: neighbouring data sets differ in
  at most m rows of one person, under any key;
- the position of a row, and the order in which an engine reads rows, change nothing: rows of equal rank hold the same;
- any engine that knows SHA-256 keeps the same rows. In SQL a rank is
  `sha256(salt || ',' || person || ',' || column_1 || ',' || column_2 ...)` in hexadecimal, the salt likewise, texts with a
  backslash before each comma and backslash. What that does to the salt is no matter: privacy holds for any.

Every record joins the test part by a coin of its own, or of its person.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from dpgen.data.table_files import Missing, column_name, existing_file, read_table, require_columns, same_dialect, settled
from dpgen.facts import Fact, Said
from dpgen.files import create_private

KEY_BYTES = 32

Contents = Callable[[pd.DataFrame], pd.DataFrame]
"""Rows of a table to their values as a loader reads them, by which rows of a person are ranked."""

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class People:
    """Whose a row is, and how many rows of a person are used.

    `column` names the person of a row and is no data, `most` is m, `key` has 32 secret bytes, fresh ones where none are given.

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
        """Rows (n,) that are used, by the person of each (n,) and all that is used of it (n, c)."""
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

        `contents`: what rows (n, c) count as; None: their values.
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
        contents = [np.asarray(people.astype(str), object), *(texts(rows[name]) for name in rows.columns)]
        columns = [_by_value(pd.Series(v), lambda text: text.replace("\\", "\\\\").replace(",", "\\,")) for v in contents]
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


KEY_FILE = "split.key"
"""Name of the key of a run's split, in its directory; nobody but the owner may read it, and nothing prints it."""

TEST_FRACTION = 0.2

_WORD = 2**64
_WAIT = 600.0  # seconds that a process waits for the key that the first one makes


@dataclass(frozen=True, eq=False)
class Split:
    r"""A choice of the records for evaluation, each by a coin of its own.

    Record i is for evaluation when its word $w_i$, uniform on the integers below $2^{64}$, is below $2^{64} f$ for the
    test fraction f. The words are

    | given | words | a record's part depends on |
    |---|---|---|
    | none of the others | SHAKE-256 of the secret ``key``, eight bytes a position | its own secret coin |
    | ``people``, one text a record | the first eight bytes of SHA-256 of key and text, big-endian | a coin of its person |
    | ``held_out`` | none: the last ``held_out`` records are for evaluation, no other one | its file |

    Somebody who adds or removes a line shifts the positions behind it. Under a secret key that changes nothing: the
    coins are independent and equally distributed, so whatever is computed from the parts has the distribution that it would
    have if every record had kept its coin. Given that a line is in the training part, one line of the file is one training
    record. Under a key that others know this fails, and a split whose sizes are functions of n fails with or without a key.
    Replaced lines are covered where both are in the training part: by position they have the same coin.

    test_fraction is exact to 2^-64. Without a key there are 32 fresh bytes of the operating system. With ``held_out`` people
    draw no coins. `seed` is the public one that the key was made of, see `Split.public`.

    >>> Split(0.25, key=bytes(32)).test_rows(8).tolist()
    [True, False, True, False, True, True, False, False]
    """

    test_fraction: float = TEST_FRACTION
    key: bytes = field(default_factory=lambda: os.urandom(KEY_BYTES), repr=False)
    held_out: int | None = None
    seed: int | None = None
    people: Sequence[str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.test_fraction < 1:
            raise ValueError(f"test_fraction is {self.test_fraction}: it must be in [0, 1)")
        if len(self.key) != KEY_BYTES:
            raise ValueError(f"key has {len(self.key)} bytes: it must have {KEY_BYTES}")

    @classmethod
    def public(cls, seed: int, test_fraction: float = TEST_FRACTION) -> "Split":
        """Coins that everybody can repeat, for data that are public themselves: they protect nobody."""
        return cls(test_fraction, hashlib.sha256(f"dpgen public split {seed}".encode()).digest(), seed=seed)

    def test_rows(self, n: int) -> Tensor:
        """Records for evaluation among n, bool (n,)."""
        if self.held_out is not None:
            return torch.arange(n) >= n - self.held_out
        if self.people is not None and len(self.people) != n:
            raise ValueError(f"people has length {len(self.people)}: it must be {n}, one for each record")
        if self.people is None:
            words = np.frombuffer(hashlib.shake_256(b"dpgen test" + self.key).digest(8 * n), dtype=">u8").astype(np.uint64)
        else:
            hashed = {text: hashlib.sha256(b"dpgen person" + self.key + text.encode()).digest() for text in set(self.people)}
            words = np.array([int.from_bytes(hashed[text][:8], "big") for text in self.people], np.uint64)
        return torch.from_numpy(words < np.uint64(int(Fraction(self.test_fraction) * _WORD)))

    def owners(self, rows: Tensor) -> Tensor | None:
        """A number for the person of each of the rows that are chosen of (n,), int64; None where rows are split one by one."""
        if self.people is None:
            return None
        codes, _ = pd.factorize(np.asarray(self.people, object))
        return torch.from_numpy(codes.astype(np.int64))[rows]

    def fact(self, what: str = "records") -> Said:
        """The fact on how test records were chosen, or that there are none."""
        if self.held_out is None and self.test_fraction == 0:
            return Fact.NO_TEST_PART()
        if self.seed is not None:
            origin = f"public data, split by the public seed {self.seed}"
        elif self.held_out is not None:
            origin = "from a file of their own"
        else:
            joins = (
                "each joins them by a secret hash of its position"
                if self.people is None
                else "people join them by secret hashes"
            )
            origin = f"{joins}, with probability {self.test_fraction:g}"
        return Fact.TEST_PART(what=what, origin=origin)


@dataclass(frozen=True)
class SplitOptions:
    """Options of loaders that split a file, and, where a person has several rows, choose those that are used."""

    test_fraction: float = TEST_FRACTION
    test_path: str | None = None
    split_key: Path | None = None
    missing: Missing | None = "error"
    """Treatment of missing values; None: they stay."""
    people: People | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.test_fraction < 1:
            raise ValueError(f"test_fraction is {self.test_fraction}: it must be in [0, 1)")
        if self.test_path is not None:
            if self.test_fraction not in (0, TEST_FRACTION):
                raise ValueError(f"test_fraction is {self.test_fraction} with a test_path: it must be 0 or left out")
            existing_file(self.test_path, option="test_path")

    @classmethod
    def of(
        cls, test_fraction: float | None, test_path: str | None, split_key: Path | None, *, engine: bool, **more: Any
    ) -> "SplitOptions":
        """Options of a file in memory, or of a table in an engine, of which nothing is held out; its key is not used."""
        held_out = {"test_fraction": test_fraction or None, "test_path": test_path}
        given = held_out if engine else {}
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name} is {value!r}; it must be left out: nothing is held out of a table in an engine")
        usual = 0.0 if engine else TEST_FRACTION
        return cls(usual if test_fraction is None else test_fraction, test_path, split_key, **more)

    def split(self, *, people: Sequence[str] | None = None, held_out: int | None = None) -> Split:
        """The split, under the key of the file ``split_key``, or a fresh one that is kept nowhere."""
        key = os.urandom(KEY_BYTES) if self.split_key is None else secret_key(self.split_key)
        return Split(self.test_fraction, key, people=people, held_out=held_out)

    def read(
        self,
        path: str,
        columns: Sequence[str] | None = None,
        *,
        categorical: Sequence[str] = (),
        text: Sequence[str] = (),
        contents: Contents | None = None,
        **reading: Any,
    ) -> tuple[pd.DataFrame, Split]:
        """The columns of a file with the test records, if they have their own, behind it; its split.

        Of people with many rows those that are used, without the column that names people.

        A file without a record is refused: it has no types, so it cannot satisfy a schema. That is a fact about the form of
        a file, as a missing header is; with one record or more, how many there are is no reason to refuse.
        """
        files = [path] if self.test_path is None else [path, same_dialect(self.test_path, path)]
        parts = [self._table(file, columns, text, reading) for file in files]
        if self.test_path is not None:
            require_columns(self.test_path, parts[0].columns, parts[1].columns)
            require_columns(path, parts[1].columns, parts[0].columns)
            parts[1] = parts[1][parts[0].columns]
        if self.missing is not None:
            parts = [settled(part, self.missing, file, categorical=categorical) for file, part in zip(files, parts)]
        people: list[str] | None = None
        if self.people is not None:
            tables, owners = zip(*(self.people.bounded(part, contents) for part in parts))
            parts, people = [*tables], [*chain.from_iterable(owners)]
        if self.test_path is not None:
            return pd.concat(parts, ignore_index=True), self.split(people=people, held_out=len(parts[1]))
        return parts[0], self.split(people=people)

    def _table(self, path: str, columns: Sequence[str] | None, text: Sequence[str], reading: Mapping[str, Any]) -> pd.DataFrame:
        key = [] if self.people is None else [self.people.column]
        wanted = None if columns is None else [*columns, *(name for name in key if name not in columns)]
        # The key is text: whether a column holds numbers alone depends on other records.
        table = read_table(path, wanted, text=(*key, *text), **reading)
        if len(table) == 0:
            raise ValueError(f"{path} is empty: it has {len(table.columns)} columns and no record")
        require_columns(path, key, table.columns)
        return table


def people_of(path: str | Path, people: People | None, prefix: str = "") -> People | None:
    """People by the name of their column, where a number names that of an npy file."""
    if people is None:
        return None
    return replace(people, column=str(column_name("unit", people.column, path, prefix)))


def needs_key(options: Mapping[str, Any]) -> bool:
    """Whether a loader with these options draws coins under a secret key."""
    return "split_key" in options and bool(options.get("test_fraction")) and options.get("test_path") is None


def secret_key(path: Path, *, create: bool = True) -> bytes:
    """The key in a file, which is made, readable for its owner only, if it is not there and may be made.

    Of several processes that make it at once, one does, and all of them read the same.
    """
    try:
        if create and not path.exists():
            create_private(path, os.urandom(KEY_BYTES))
        key = path.read_bytes()
    except OSError as error:
        raise ValueError(f"split_key {str(path)!r} cannot be used: {error.strerror or error}") from error
    if len(key) != KEY_BYTES:
        raise ValueError(f"split_key {str(path)!r} is damaged: it has {len(key)} bytes and must have {KEY_BYTES}")
    return key


def await_key(path: Path, *, seconds: float = _WAIT) -> None:
    """Wait until another process has made the key; a ValueError if it does not within so many seconds."""
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise ValueError(f"split_key {str(path)!r} is missing: the first process has not made it in {seconds:g} seconds")
        time.sleep(0.05)


def rows_of(values: Tensor | None, rows: Tensor) -> Tensor | None:
    """The chosen rows of values that may not be there; None where they are not."""
    return None if values is None else values[rows]
