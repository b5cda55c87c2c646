"""Data of the papers' figures: Avazu clicks, MovieLens ratings, lepton momenta and call-detail records of a simulated city."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtr
from torch import Tensor

from dpgen.data import Columns, Records, Users, load_columns

# -- Avazu -------------------------------------------------------------------------------------------------------------

NO_DEVICE = "a99f214a"
"""Device of the log whose id is not known: most rows, and not one user."""


def read_clicks(path: Path, attribute: str) -> pd.DataFrame:
    """The clicks of known devices (device_id, site_id, attribute), read a million rows at a time: the log has 40 million."""
    columns = ["device_id", "site_id", "click", attribute]
    chunks = pd.read_csv(path, usecols=columns, dtype=str, keep_default_na=False, chunksize=10**6)
    return pd.concat([part[(part["click"] == "1") & (part["device_id"] != NO_DEVICE)] for part in chunks])


def click_users(name: str, clicks: pd.DataFrame, *, top_sites: int, min_clicks: int) -> Users | None:
    """Devices with ``min_clicks`` clicks or more on the most clicked sites (Zamanlooy et al. 2025, section 5.3).

    Sites and devices are chosen on the clicks themselves, and the prior is the average of these devices: a simulation of
    public knowledge, not a private release. None: there are fewer than two sites, or no device.
    """
    totals = clicks["site_id"].value_counts().sort_index().sort_values(ascending=False, kind="stable")
    kept = clicks[clicks["site_id"].isin(totals.index[:top_sites])]
    counts = pd.crosstab(kept["device_id"], kept["site_id"])
    counts = counts[counts.sum(axis=1) >= min_clicks]
    if counts.shape[1] < 2 or counts.empty:
        return None
    table = torch.tensor(counts.to_numpy(np.float64))
    prior = (table / table.sum(1, keepdim=True)).mean(0)
    return Users(name, table, tuple(counts.index), tuple(counts.columns), prior=prior, prior_origin="average of these users")


# -- MovieLens ---------------------------------------------------------------------------------------------------------

GENRES = (
    "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
"""The genres of both data sets, as their public documentation lists them."""

AGE_GROUPS = {"under 18": 1, "18-24": 18, "25-34": 25, "35-44": 35, "45-49": 45, "50-55": 50, "56+": 56}
"""Age groups of MovieLens 1M and their least age, which is how its users.dat writes them; 100K gives years."""


def load_movielens(root: Path, version: Literal["100k", "1m"]) -> Users:
    """Ratings of each user, summed over the first genre of the movies, by age group (Zamanlooy et al. 2025, section 5.4).

    Arguments:
        root: folder with ``ml-100k/`` (u.data, u.item, u.user) or ``ml-1m/`` (ratings.dat, movies.dat, users.dat).
        version: which of them.
    """
    if version == "100k":
        ratings = _fields(root / "ml-100k" / "u.data", "\t", {0: "user", 1: "movie", 2: "rating"})
        members = _fields(root / "ml-100k" / "u.user", "|", {0: "user", 1: "age"})
        movies = _fields(root / "ml-100k" / "u.item", "|", {0: "movie"} | {6 + i: name for i, name in enumerate(GENRES)})
        flags = movies[list(GENRES)].astype(int)
        genre = flags.idxmax(axis=1).where(flags.any(axis=1))
    else:
        ratings = _fields(root / "ml-1m" / "ratings.dat", "::", {0: "user", 1: "movie", 2: "rating"})
        members = _fields(root / "ml-1m" / "users.dat", "::", {0: "user", 2: "age"})
        movies = _fields(root / "ml-1m" / "movies.dat", "::", {0: "movie", 2: "genres"})
        genre = movies["genres"].str.split("|").str[0]
        genre = genre.where(genre.isin(GENRES))
    ratings["genre"] = ratings["movie"].map(dict(zip(movies["movie"], genre)))  # movies without a genre are left out
    ratings["rating"] = ratings["rating"].astype(float)
    counts = ratings.pivot_table(index="user", columns="genre", values="rating", aggfunc="sum", fill_value=0.0)
    counts = counts.reindex(columns=list(GENRES), fill_value=0.0)
    places = np.searchsorted(list(AGE_GROUPS.values()), members["age"].astype(int), side="right") - 1
    group = dict(zip(members["user"], np.array(list(AGE_GROUPS))[places.clip(0)]))
    groups = tuple(str(group[user]) for user in counts.index)
    table = torch.tensor(counts.to_numpy(np.float64))
    return Users(f"MovieLens {version.upper()}", table, tuple(counts.index), GENRES, groups=groups)


def _fields(path: Path, separator: str, columns: dict[int, str]) -> pd.DataFrame:
    """Named columns, as text, of a file without a header."""
    rows = [line.split(separator) for line in path.read_text("latin-1").splitlines() if line]
    return pd.DataFrame([[row[i] for i in columns] for row in rows], columns=list(columns.values()))


# -- lepton momenta ----------------------------------------------------------------------------------------------------


def load_cms(*, data_root: str) -> Columns:
    """138,556 transverse momenta of leptons that CMS recorded (CC BY 4.0), in GeV below 10^9, on a grid of 10^18 values."""
    path = Path(data_root) / "cms_lepton_pt" / "cms_lepton_pt.csv.gz"
    return load_columns(path=str(path), columns=["pt"], low=0.0, high=1e9, resolution=1e-9)


def load_higgs(*, data_root: str) -> Columns:
    """10,984 simulated lepton momenta of the UCI HIGGS set (the paper had all 11 million), on the same grid."""
    path = Path(data_root) / "higgs_11k" / "higgs.csv.gz"
    return load_columns(path=str(path), columns=["lepton_pT"], low=0.0, high=1e9, resolution=1e-9)


# -- call-detail records -----------------------------------------------------------------------------------------------

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


def load_call_detail(*, n_users: int = 20_000, seed: int = 0) -> Records:
    """The first users of a simulated city as records, one column per tower; about a fifth of them are test records."""
    x = torch.cat([visits.dense() for visits in CallDetail(n_users, seed)])
    test = torch.from_numpy(np.random.default_rng([seed, 3]).random(len(x)) < 0.2)
    return Records("call detail", x[~test], x[test], columns=[f"tower {j + 1}" for j in range(TOWERS)])


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
