"""Rows of some people at a time: in order of time, at most m of each person, and one that stands for all of them.

What is used of a person is a function of that person's rows alone, under a secret key, so it does not matter in which pieces
they come.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow

from dpgen.data.batches import stored
from dpgen.data.engines import EngineTable
from dpgen.data.raw_tables import stated
from dpgen.data.split import People
from dpgen.values import times

Integers = npt.NDArray[np.int64]
TimeUnit = Literal["day", "second"]
Orphans = Literal["error", "drop", "keep"]

SECONDS = {"day": 86_400, "second": 1}
MEMORY = "200MB"
"""Of DuckDB for each of three tables: rows as they are, those that are used, people."""


@dataclass
class Reading:
    """Rows that are used of some people at a time, who are gathered in the order in which they come.

    `people` and `path` are what people and rows are called in messages, `index` the people, None: those who have rows, `gap`
    the name of the time since the last row, which later rows have if `timed`. `draft` is of rows, `most` is m, `show`: a
    message shows a value.
    """

    person: str
    order: str | None
    time_unit: TimeUnit
    orphans: Orphans
    timed: bool
    index: pd.Index | None
    path: str
    people: str
    draft: dict[str, Any]
    key: bytes
    most: int
    gap: str
    show: bool

    def __post_init__(self) -> None:
        self.found: list[tuple[npt.NDArray[np.object_], Integers]] = []
        self.samples: list[pd.DataFrame] = []
        known = {field["name"]: field for field in self.draft["fields"]}
        self._dated = self.order is not None and known[self.order]["type"] in ("date", "datetime")
        self._least = int(known[self.gap].get("constraints", {}).get("minimum") or 0) if self.timed else 0

    @property
    def stamp(self) -> Any:
        """The type of the order where it is a date."""
        return pyarrow.timestamp("s") if self._dated else None

    @property
    def keys(self) -> npt.NDArray[np.object_]:
        """People who have rows."""
        return np.concatenate([keys for keys, _ in self.found])

    @property
    def counts(self) -> Integers:
        """How many rows of each are used."""
        return np.concatenate([counts for _, counts in self.found])

    def made(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows that are used of the people in a table, who are in no other one."""
        person, order = self.person, self.order
        of_rows = rows[person].astype(str).to_numpy(object)
        if self.index is not None and self.orphans != "keep":
            known = self.index.get_indexer(pd.Index(of_rows)) >= 0
            if not known.all() and self.orphans == "error":
                raise ValueError(
                    f"{self.path} has rows whose person is not in {self.people}; add the people, or say what such rows are: "
                    "orphans=drop, or orphans=keep"
                )
            rows, of_rows = rows[known].reset_index(drop=True), of_rows[known]
        owner, keys = pd.factorize(of_rows, sort=True)  # numpy's texts end before a last zero byte
        rows, starts = self._ordered(rows, owner.astype(np.int64), len(keys))
        rows, starts, chosen = self._bounded(rows, starts, keys)
        counts = np.diff(starts)
        if order is not None:  # the order of later rows follows from the times between them
            if self.gap in rows:
                rows.loc[rows.index[starts[:-1]], self.gap] = self._least
            rows[order] = rows[order].iloc[np.repeat(starts[:-1], counts)].to_numpy()
        rows = rows.drop(columns=person)
        check(rows, self.draft, show=self.show)
        sample = rows.iloc[starts[:-1] + chosen[:, 0]].reset_index(drop=True)
        if self.gap in rows:
            later = rows[self.gap].iloc[np.minimum(starts[:-1] + chosen[:, 1], max(0, len(rows) - 1))]
            sample[self.gap] = later.reset_index(drop=True).astype(np.float64).mask(counts < 2)
        self.found.append((keys, counts))
        self.samples.append(sample)
        return rows

    def _ordered(self, rows: pd.DataFrame, owner: Integers, n: int) -> tuple[pd.DataFrame, Integers]:
        """Rows by person and time, ties by a keyed hash of their contents, with the time since the last one."""
        person, name = self.person, self.order
        exact, counted = np.zeros(len(rows)), np.zeros(len(rows), np.int64)
        if name is not None:
            exact = times(rows[name]) if self._dated else pd.to_numeric(rows[name], errors="coerce").to_numpy(np.float64)
            if not np.isfinite(exact).all():
                what = "date (whole numbers need the type integer in schema)" if self._dated else "whole number"
                raise ValueError(f"{self.path} has a row whose {name!r} is missing or no {what}: it must be known in every row")
            step = SECONDS[self.time_unit] if self._dated else 1
            counted = np.floor_divide(exact, step).astype(np.int64)
            if self._dated:
                rows = rows.assign(**{name: (counted * step).astype("datetime64[s]")})
        ranks = np.zeros((len(rows), 4), np.uint64)
        groups = pd.DataFrame({"owner": owner, "time": exact})
        tied = np.flatnonzero(groups.duplicated(keep=False).to_numpy())
        if len(tied):
            part = rows.iloc[tied]
            ranks[tied] = People(person, 1, self.key).ranks(part[person], part.drop(columns=person))
        # "01" and "1" have one rank, whatever the type of their column; as texts they would be in the order of the engine.
        texts = np.zeros(len(rows), np.int64)
        same = np.flatnonzero(groups.assign(rank=ranks[:, 0]).duplicated(keep=False).to_numpy())
        if len(same):
            texts[same], _ = pd.factorize(rows.iloc[same].map(str).agg("\0".join, axis=1), sort=True)
        order = np.lexsort((texts, *ranks.T[::-1], exact, owner))
        starts = np.r_[0, np.bincount(owner, minlength=n).cumsum()].astype(np.int64)
        rows = rows.iloc[order].reset_index(drop=True)
        if self.timed:
            rows[self.gap] = np.diff(counted[order], prepend=0)
        return rows, starts

    def _bounded(self, rows: pd.DataFrame, starts: Integers, keys: npt.NDArray[Any]) -> tuple[pd.DataFrame, Integers, Integers]:
        """At most m successive rows of each person, and the rows that stand for all of them."""
        salt = hashlib.sha256(b"dpgen windows" + self.key).digest()
        digests = b"".join(hashlib.sha256(salt + str(text).encode()).digest() for text in keys)
        words = np.frombuffer(digests, ">u8").reshape(-1, 4).astype(np.uint64)
        counts = np.diff(starts)
        spare = np.maximum(counts - self.most, 0)
        begin = (words[:, 0] % (spare + 1).astype(np.uint64)).astype(np.int64)
        kept = np.minimum(counts, self.most)
        place = np.arange(len(rows)) - np.repeat(starts[:-1] + begin, counts)
        inside = (place >= 0) & (place < np.repeat(kept, counts))
        one = words[:, 1] % np.maximum(kept, 1).astype(np.uint64)
        later = 1 + words[:, 2] % np.maximum(kept - 1, 1).astype(np.uint64)
        chosen = np.stack([one, later], axis=1).astype(np.int64)
        return rows[inside].reset_index(drop=True), np.r_[0, kept.cumsum()].astype(np.int64), chosen


def check(frame: pd.DataFrame, draft: dict[str, Any], *, show: bool) -> None:
    """Refuse what contradicts the part of a schema that is stated, before anything is spent."""
    public = stated(draft)
    if public is not None:
        public.encode(frame, show=show, numbered=False)


def kept(source: EngineTable, tables: Iterator[pd.DataFrame], types: Mapping[str | None, Any]) -> EngineTable:
    """All tables in one of DuckDB, on disk where it is large; columns have the types of their source, or other ones."""
    first = next(tables)
    own = [pyarrow.field(name, types.get(name) or source.schema.field(name).type) for name in first]
    batches = (pyarrow.RecordBatch.from_pandas(t, pyarrow.schema(own), preserve_index=False) for t in chain([first], tables))
    return stored(source.name, pyarrow.schema(own), batches, memory=MEMORY)
