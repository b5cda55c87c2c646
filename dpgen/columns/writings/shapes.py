"""Texts by their shapes - the same but for their digits - and what a writing is."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

DIGIT = re.compile("[0-9]")
_LONGEST = 48  # characters of a text that may be more than a text


class Group(NamedTuple):
    """Texts of one shape: the same but for their digits. `rows` (m,) of them, and their characters (m, length)."""

    shape: str
    rows: Integers
    characters: npt.NDArray[np.uint32]

    def digits(self, places: Sequence[int]) -> Integers:
        """The digits (m, k) at these places."""
        return self.characters[:, list(places)].astype(np.int64) - ord("0")

    def texts(self, first: int = 0, after: int | None = None) -> Array:
        """A part of each text (m,)."""
        part = np.ascontiguousarray(self.characters[:, first:after])
        return part.view(f"<U{part.shape[1]}").ravel() if part.shape[1] else np.full(len(part), "")


def groups(texts: Array) -> Iterator[Group]:
    """Texts (n,) by their shapes; those that are too long have none."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    for length in np.unique(lengths[(lengths > 0) & (lengths <= _LONGEST)]):
        rows = np.flatnonzero(lengths == length)
        characters = np.array(texts[rows].tolist(), f"<U{length}").view(np.uint32).reshape(len(rows), length)
        shapes = np.where((characters >= ord("0")) & (characters <= ord("9")), np.uint32(ord("9")), characters)
        keys = shapes.astype(np.uint64) @ _KEYS[:length]
        place, _ = pd.factorize(keys)
        order = np.argsort(place, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(place[order])) + 1):
            while len(own):
                same = (shapes[own] == shapes[own[0]]).all(1)  # two shapes may have one key
                shape = "".join(map(chr, shapes[own[0]]))
                yield Group(shape, rows[own[same]], characters[own[same]])
                own = own[~same]


_KEYS = np.random.default_rng(0).integers(1, 2**63, _LONGEST, dtype=np.uint64) * 2 + 1


class Found(NamedTuple):
    """Which texts (n,) are of a writing, and their values (n,)."""

    there: Flags
    values: Reals


class Writing(ABC):
    """One way to write the values of a column; `kind` is the type of its field, `name` the format."""

    kind: str

    @property
    @abstractmethod
    def name(self) -> str:
        """The format of a field."""

    @property
    def limits(self) -> tuple[int, int | None] | None:
        """The least and the greatest value that can be written; None: there is none."""
        return None

    @abstractmethod
    def _of_group(self, group: Group) -> Found:
        """Those of one shape."""

    @abstractmethod
    def write(self, values: Array, decimals: int) -> list[str]:
        """Values (n,) as texts, numbers with so many decimals at most."""

    def read(self, texts: Array) -> Found:
        """Texts (n,) without blanks around them."""
        there, values = np.zeros(len(texts), bool), np.full(len(texts), np.nan)
        for group in groups(texts):
            found = self._of_group(group)
            there[group.rows], values[group.rows] = found
        return Found(there, np.where(there, values, np.nan))


def nothing(n: int) -> Found:
    return Found(np.zeros(n, bool), np.full(n, np.nan))


def each(texts: Array, read: Callable[[str], int | None]) -> Reals:
    """The value of each text (n,), read once for all that are the same; NaN of one that has none."""
    place, different = pd.factorize(texts)
    found = [read(str(text)) for text in different]
    return np.array([np.nan if value is None else value for value in found], np.float64)[place]


def write_each(values: Integers, write: Callable[[int], str]) -> list[str]:
    place, different = pd.factorize(values)
    made = [write(int(value)) for value in different]
    return [made[i] for i in place]


def whole(values: Array) -> Integers:
    return np.rint(values.astype(np.float64)).astype(np.int64)
