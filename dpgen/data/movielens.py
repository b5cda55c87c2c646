"""MovieLens 100K and 1M in their own files: what each user gave to each genre."""

import csv
import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from dpgen.data.event_files import event_frame
from dpgen.data.public_prior import PriorName, chosen_prior, prior_from_file
from dpgen.data.table_files import data_folder, read_bytes, unreadable
from dpgen.data.user_events import Known, users_from_events
from dpgen.data.users import Users

GENRES = (
    "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
"""The genres of both data sets, as their public documentation lists them."""

AGE_GROUPS = {"under 18": 1, "18-24": 18, "25-34": 25, "35-44": 35, "45-49": 45, "50-55": 50, "56+": 56}
"""Age groups of MovieLens 1M and their least age, which is how its users.dat writes them; 100K gives years."""

Version = Literal["100k", "1m"]
_FOLDERS = {"100k": "ml-100k", "1m": "ml-1m"}


def load_movielens(
    *,
    data_root: str | None = None,
    version: Version = "1m",
    age_group: str | None = None,
    prior: PriorName | None = None,
    prior_path: str | None = None,
) -> Users:
    """MovieLens users as in Zamanlooy et al. (2025), section 5.4: ratings summed over the primary genre of the movies.

    The primary genre is the first that a movie lists; movies without a genre are left out. Groups are age groups. With
    ``prior=public`` the users of the other version (of the same age group) are taken to be public and their average is
    the prior: for 1M that is the paper's choice.

    Arguments:
        data_root: folder with ``ml-100k/`` (u.data, u.item, u.user) and ``ml-1m/`` (ratings.dat, movies.dat, users.dat),
            each file plain or .gz; without it the environment variable DPGEN_DATA counts.
        version: which of them is private.
        age_group: keep the users of this age group.
        prior: uniform, file, public or private (see `load_events`).
        prior_path: file of probabilities, columns ``category`` and ``probability``.

    Raises:
        ValueError: if a file is missing or malformed, or an option out of range.
    """
    root = data_folder("ml-1m/", data_root)
    if age_group is not None and age_group not in AGE_GROUPS:
        raise ValueError(f"age_group is {age_group!r}: it must be one of {', '.join(AGE_GROUPS)}")
    other: Version = "100k" if version == "1m" else "1m"
    known = _known(root, other, age_group=age_group, prior=prior, prior_path=prior_path)
    events, members = read_movielens(root, version)
    users = users_from_events(
        f"MovieLens {version.upper()}",
        events,
        known,
        source=str(root / _FOLDERS[version]),
        everyone=members,
    )
    return users if age_group is None else users.of_group(age_group)


def read_movielens(root: Path, version: Version) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ratings as a table of events (user, category = primary genre, weight = rating, group = age), and all users.

    Raises:
        ValueError: if a file is missing or malformed, or a rating names an unknown user or movie.
    """
    folder = root / _FOLDERS[version]
    if version == "100k":
        ratings = _table(folder / "u.data", "\t", {0: "user", 1: "movie", 2: "rating"}, width=4)
        members = _table(folder / "u.user", "|", {0: "user", 1: "age"}, width=5)
        movies = _table(folder / "u.item", "|", {0: "movie"} | {6 + i: genre for i, genre in enumerate(GENRES)}, width=24)
        genre = _flagged(movies, folder / "u.item")
    else:
        ratings = _table(folder / "ratings.dat", "::", {0: "user", 1: "movie", 2: "rating"}, width=4)
        members = _table(folder / "users.dat", "::", {0: "user", 2: "age"}, width=5)
        movies = _table(folder / "movies.dat", "::", {0: "movie", 2: "genres"}, width=3)
        genre = movies["genres"].str.split("|").str[0].replace({"(no genres listed)": None})
    age = dict(zip(members["user"], _age_groups(members["age"], folder)))
    listed = dict(zip(movies["movie"], genre.where(genre.notna(), None)))
    for what, names in (("user", age), ("movie", listed)):
        unknown = ~ratings[what].isin(list(names)).to_numpy()
        if unknown.any():
            row = int(unknown.argmax())
            name = ratings[what].iloc[row]
            raise ValueError(f"{folder} has a rating (line {row + 1}) with {what} {name!r}, which its list lacks")
    ratings = ratings[ratings["movie"].map(listed).notna()]
    columns = {
        "user": ratings["user"],
        "category": ratings["movie"].map(listed),
        "group": ratings["user"].map(age),
        "weight": ratings["rating"],
    }
    members = pd.DataFrame({"user": list(age), "group": list(age.values())})
    return event_frame(columns, source=str(folder)), event_frame({**members}, source=str(folder))


def _known(root: Path, other: Version, *, age_group: str | None, prior: PriorName | None, prior_path: str | None) -> Known:
    if prior == "public":
        if prior_path is not None:
            raise ValueError(f"prior is 'public' but prior_path is {prior_path!r}: that is for prior=file")
        public, _ = read_movielens(root, other)
        public = public if age_group is None else public[public["group"] == age_group]
        if public.empty:
            raise ValueError(f"{root / _FOLDERS[other]} has no ratings in age_group {age_group!r}: there is no public prior")
        return Known(prior="public", public=public, source=f"MovieLens {other.upper()}", categories=GENRES)
    kind = chosen_prior(prior, prior_path=prior_path, public_path=None, private_path="")
    probabilities = None if prior_path is None else prior_from_file(prior_path, "category")
    return Known(prior=kind, probabilities=probabilities, source=prior_path or "", categories=GENRES)


def _flagged(movies: pd.DataFrame, path: Path) -> pd.Series:
    flags = movies[list(GENRES)].to_numpy()
    if not np.isin(flags, ["0", "1"]).all():
        raise ValueError(f"{path} has a genre column with something but 0 and 1: columns 6 to 24 must be flags")
    on = flags == "1"
    names = np.array([*GENRES], dtype=object)[on.argmax(1)]
    return pd.Series(np.where(on.any(1), names, None), index=movies.index)


def _age_groups(age: pd.Series, folder: Path) -> list[str]:
    years = pd.to_numeric(age, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    wrong = ~((years >= 0) & (years < 200))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{folder} has the age {str(age.iloc[row])!r} for user {row + 1}: it must be a number of years")
    names = list(AGE_GROUPS)
    return [names[max(0, place)] for place in np.searchsorted(list(AGE_GROUPS.values()), years, side="right") - 1]


def _table(path: Path, separator: str, columns: dict[int, str], *, width: int) -> pd.DataFrame:
    """Named columns, as text, of a file without header whose lines have ``width`` fields."""
    found = path if path.is_file() else path.with_name(f"{path.name}.gz")
    if not found.is_file():
        raise ValueError(f"{path} is missing, plain and .gz")
    text = read_bytes(found).decode("latin-1")
    if "\0" in text:
        raise ValueError(f"{path} cannot be read as a table: it holds zero bytes")
    if separator == "::":  # pandas is fast with separators of one character only, and no title holds a tab
        text, separator = text.replace("::", "\t"), "\t"
    options: dict[str, Any] = {"dtype": str, "keep_default_na": False, "na_values": [""]}
    try:
        table = pd.read_csv(io.StringIO(text), sep=separator, quoting=csv.QUOTE_NONE, header=None, **options)
    except ValueError as error:
        raise unreadable(path, "a table", error) from error
    if table.shape[1] != width:
        raise ValueError(f"{path} has {table.shape[1]} fields in a line: it must have {width}")
    missing = table[[*columns, width - 1]].isna().any(axis=1).to_numpy()
    if missing.any():
        raise ValueError(f"{path} lacks a field in line {int(missing.argmax()) + 1}: it must have {width}")
    return table[list(columns)].rename(columns=columns)
