"""Call-detail records of a simulated city: who was seen at which cell towers, any number of users, in chunks."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from dpgen.data.records import Records, split_records
from dpgen.data.sets import MAX_CELLS
from dpgen.data.split import Split

TOWERS, MEAN_TOWERS, MOST_TOWERS, USERS = 1303, 11.42, 422, 4_427_486
"""Cell towers, mean and largest number of towers of a user, and users (Acs et al. 2017, Table I)."""

_SIDE = 128.1**0.5  # km, of a square city
_CHUNK = 16_384
_SLOTS = 4096  # of a table that stands for a distribution over towers
_SPREAD, _POPULARITY = 1.0, 1.0  # of log-normals: towers of a user, users of a tower
_REACH = 0.9  # km, of trips around a home
_FAR = 0.25  # share of trips across the city
_TRIES = 40


class Visits(NamedTuple):
    """Sets of towers of consecutive users: user i has ``towers[offsets[i]:offsets[i + 1]]``, distinct.

    Arguments:
        offsets: int64, shape (users + 1,).
        towers: int64 in [0, 1303), shape (offsets[-1],).
    """

    offsets: Tensor
    towers: Tensor

    def dense(self) -> Tensor:
        """The same as a uint8 matrix (users, 1303) of zeros and ones."""
        u = len(self.offsets) - 1
        x = torch.zeros(u, TOWERS, dtype=torch.uint8)
        x[torch.repeat_interleave(torch.arange(u), self.offsets.diff()), self.towers] = 1
        return x


@dataclass(frozen=True)
class CallDetail:
    """A simulated city that can be read again and again: 1,303 towers in the plane, users around their homes.

    A user has a home near some tower and a number of towers from a capped log-normal with mean 11.42 and maximum 422. Three
    trips of four go to towers nearby, in proportion to popularity times exp(-distance), the others anywhere in the
    city; the user's towers are the first distinct ones. So sets are heavy-tailed, and near towers go together. The first
    users of a longer stream are those of a shorter one.

    Arguments:
        n_users: number of users, in [1, 4427486].
        seed: public seed; simulated people have nothing to hide.

    Raises:
        ValueError: ``n_users`` is out of range.

    Example:
        >>> chunk = next(iter(CallDetail(1000)))
        >>> len(chunk.offsets), chunk.dense().shape
        (1001, torch.Size([1000, 1303]))
    """

    n_users: int = USERS
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.n_users <= USERS:
            raise ValueError(f"n_users is {self.n_users}: it must be in [1, {USERS}]")

    def __iter__(self) -> Iterator[Visits]:
        """Chunks of at most 16,384 users."""
        for number, start in enumerate(range(0, self.n_users, _CHUNK)):
            visits = self._chunk(np.random.default_rng([self.seed, 1, number]))
            yield _first(visits, self.n_users - start)

    def batches(self) -> Iterator[tuple[Tensor, None]]:
        """Dense float32 chunks (users, 1303), without labels: what fits that read a stream of records want."""
        for visits in self:
            yield visits.dense().float(), None

    @cached_property
    def positions(self) -> np.ndarray:
        """Towers in the plane, (1303, 2) in km: half of them all over the city, half about its centre."""
        random = np.random.default_rng([self.seed, 0])
        scattered = random.uniform(0, _SIDE, (TOWERS // 2, 2))
        central = random.normal(_SIDE / 2, _SIDE / 7, (TOWERS - len(scattered), 2))
        return np.clip(np.concatenate([scattered, central]), 0, _SIDE)

    @cached_property
    def popularity(self) -> np.ndarray:
        """Log-normal weights (1303,) of the towers, sum 1."""
        weights = np.exp(_POPULARITY * np.random.default_rng([self.seed, 2]).normal(size=TOWERS))
        return np.asarray(weights / weights.sum())

    @cached_property
    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Towers of trips near every tower (1303, slots), and of those across the city (16 slots each)."""
        distance = np.linalg.norm(self.positions[:, None] - self.positions, axis=2)
        near = np.exp(-distance / _REACH) * self.popularity
        return np.stack([_table(row, _SLOTS) for row in near]), _table(self.popularity, 16 * _SLOTS)

    def _chunk(self, random: np.random.Generator) -> Visits:
        near, far = self._tables
        wanted = 1 + np.searchsorted(_SIZES, random.random(_CHUNK), side="right")
        home = far[random.integers(len(far), size=_CHUNK)]
        user, tower = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for _ in range(_TRIES):
            missing = wanted - np.bincount(user, minlength=_CHUNK)
            if not missing.any():
                break
            traveller = np.repeat(np.arange(_CHUNK), np.where(missing > 0, missing + missing // 2, 0))
            trips = near[home[traveller], random.integers(_SLOTS, size=len(traveller))]
            across = random.random(len(traveller)) < _FAR
            trips[across] = far[random.integers(len(far), size=int(across.sum()))]
            user, tower = _distinct(np.concatenate([user, traveller]), np.concatenate([tower, trips]), wanted)
        offsets = np.concatenate([[0], np.bincount(user, minlength=_CHUNK).cumsum()])
        return Visits(torch.from_numpy(offsets), torch.from_numpy(tower))


def load_call_detail(
    *,
    n_users: int = 20_000,
    data_seed: int = 0,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    public_records: int = 0,
) -> Records:
    """The first users of a simulated city as records in memory, one column per tower; needs no file.

    Arguments:
        n_users: number of users, training and test part together.
        data_seed: public seed of the city and of its users.
        test_fraction: probability of each record to be kept for evaluation, in [0, 1).
        split_seed: public seed of the split and of the choice of public records.
        public_records: number of training records to declare public.

    Raises:
        ValueError: if an option is out of range, or the table would not fit.
    """
    if n_users * TOWERS > MAX_CELLS:
        raise ValueError(f"n_users is {n_users}: at most {MAX_CELLS // TOWERS} fit into a table; read CallDetail in chunks")
    x = torch.cat([visits.dense() for visits in CallDetail(n_users, data_seed)])
    return split_records(
        "call detail",
        x,
        split=Split.public(split_seed, test_fraction),
        public_records=public_records,
        columns=[f"tower {j + 1}" for j in range(TOWERS)],
        notes=("the users are simulated: nobody's data are in them",),
    )


def _first(visits: Visits, users: int) -> Visits:
    offsets = visits.offsets[: users + 1]
    return Visits(offsets, visits.towers[: int(offsets[-1])])


def _table(weights: np.ndarray, slots: int) -> np.ndarray:
    """An array (slots,) in which towers appear in proportion to their weights."""
    edges = weights.cumsum() / weights.sum()
    return np.searchsorted(edges, (np.arange(slots) + 0.5) / slots).clip(max=len(weights) - 1)


def _distinct(user: np.ndarray, tower: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first distinct towers of every user, at most ``wanted`` of them, by user and in the order of the trips."""
    _, first = np.unique(user * TOWERS + tower, return_index=True)
    first = first[np.lexsort((first, user[first]))]
    user, tower = user[first], tower[first]
    start = np.concatenate([[0], np.bincount(user, minlength=len(wanted)).cumsum()])
    kept = np.arange(len(user)) - start[user] < wanted[user]
    return user[kept], tower[kept]


def _size_edges() -> np.ndarray:
    """P(at most s towers), s = 1..421, of the log-normal whose mean, rounded up and capped at 422, is 11.42."""
    steps = np.log(np.arange(1, MOST_TOWERS))
    low, high = 0.0, 5.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        below = ndtr((steps - middle) / _SPREAD)
        mean = 1 + (1 - below).sum()
        low, high = (middle, high) if mean < MEAN_TOWERS else (low, middle)
    return np.asarray(ndtr((steps - low) / _SPREAD))


_SIZES = _size_edges()
