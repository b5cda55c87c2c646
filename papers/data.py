"""Data of the papers' figures: Avazu clicks, MovieLens ratings, lepton momenta and call-detail records of a simulated city."""

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq
from scipy.special import ndtr

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

TOWERS, MEAN_TOWERS, MOST_TOWERS = 1303, 11.42, 422
"""Cell towers, mean and largest number of towers of a user (Acs et al. 2017, Table I)."""

_SIDE = 128.1**0.5  # km, of a square city
_SPREAD, _POPULARITY = 1.0, 1.0  # of log-normals: towers of a user, users of a tower
_REACH = 0.9  # km, of trips around a home
_FAR = 0.25  # share of trips across the city


def load_call_detail(*, n_users: int = 20_000, seed: int = 0) -> Records:
    """A simulated city, one column per tower; about a fifth of the users are test records.

    A user has a home near some tower and a number of towers from a capped log-normal with mean 11.42 and maximum 422. Three
    trips of four go to towers nearby, in proportion to popularity times exp(-distance), the others anywhere in the city; the
    user's towers are the first distinct ones. So sets are heavy-tailed, and near towers go together.
    """
    rng = np.random.default_rng(seed)
    scattered = rng.uniform(0, _SIDE, (TOWERS // 2, 2))
    central = rng.normal(_SIDE / 2, _SIDE / 7, (TOWERS - len(scattered), 2))
    places = np.clip(np.concatenate([scattered, central]), 0, _SIDE)
    popularity = np.exp(_POPULARITY * rng.normal(size=TOWERS))
    popularity /= popularity.sum()
    near = np.exp(-np.linalg.norm(places[:, None] - places, axis=2) / _REACH) * popularity
    trips = _FAR * popularity + (1 - _FAR) * near / near.sum(1, keepdims=True)
    sizes = 1 + np.searchsorted(size_edges(), rng.random(n_users), side="right")
    x = torch.zeros(n_users, TOWERS, dtype=torch.uint8)
    for towers, home, size in zip(x, rng.choice(TOWERS, n_users, p=popularity), sizes):
        towers[rng.choice(TOWERS, size, replace=False, p=trips[home])] = 1
    test = torch.from_numpy(rng.random(n_users) < 0.2)
    return Records("call detail", x[~test], x[test], columns=[f"tower {j + 1}" for j in range(TOWERS)])


def size_edges() -> np.ndarray:
    """P(at most s towers), s = 1..421, of the log-normal whose mean, rounded up and capped at 422, is 11.42."""
    steps = np.log(np.arange(1, MOST_TOWERS))
    middle = brentq(lambda m: 1 + (1 - ndtr((steps - m) / _SPREAD)).sum() - MEAN_TOWERS, 0.0, 5.0)
    return np.asarray(ndtr((steps - middle) / _SPREAD))
