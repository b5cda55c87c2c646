"""Two public logs in their own formats: Avazu clicks and MovieLens ratings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from dpgen.data.events import Known, PriorName, chosen_prior, event_frame, prior_from_file, read_categories, users_from_events
from dpgen.data.table_files import data_folder, read_bytes, table_chunks
from dpgen.data.users import Users, natural_order

# -- avazu -------------------------------------------------------------------------------------------------------------


ATTRIBUTES = ("C1", *(f"C{i}" for i in range(14, 22)))
"""The anonymous attributes of an impression, each with several values (subcategories)."""

NO_DEVICE = "a99f214a"
"""Id of devices that are not known in the log: most rows, and not one user."""

CHUNK = 1_000_000
"""Rows that are held at a time: the whole log has 40 million, of which about a sixth are clicks."""


def load_avazu(
    *,
    path: str,
    attribute: str = "C18",
    value: str | None = None,
    top_sites: int = 100,
    min_clicks: int = 20,
    categories_path: str | None = None,
    prior: PriorName | None = None,
    prior_path: str | None = None,
    public_path: str | None = None,
) -> Users:
    """Devices and the sites that they clicked on, as in Zamanlooy et al. (2025), section 5.3.

    Clicks count, not impressions, and devices that never click are nobody here. A device takes part when it has
    ``min_clicks`` clicks on the sites of the domain. Without ``categories_path`` and a public prior these sites are the
    ``top_sites`` most clicked ones of this very log, which epsilon does not cover, as ``notes`` say. Rows without a
    device id (`NO_DEVICE`) are left out.

    Arguments:
        path: csv file, plain or .gz, with the columns device_id, site_id, click and ``attribute``.
        attribute: C1 or C14 ... C21.
        value: keep the clicks where the attribute has this value (the paper's subcategory); all of them without.
        top_sites: number of sites, >= 2.
        min_clicks: least number of clicks of a device, >= 1.
        categories_path: file of public site ids, one a line.
        prior: uniform, file, public or private (see `load_events`).
        prior_path: file of probabilities, columns ``site_id`` and ``probability``.
        public_path: another log of this format whose devices are public; its most clicked sites are the domain.

    Raises:
        ValueError: if a file is missing or malformed, or an option out of range.
    """
    for name, number, least in (("top_sites", top_sites, 2), ("min_clicks", min_clicks, 1)):
        if number < least:
            raise ValueError(f"{name} is {number}: it must be >= {least}")
    kind = chosen_prior(prior, prior_path=prior_path, public_path=public_path, private_path=path)
    sites = None if categories_path is None else read_categories(categories_path)
    probabilities = None if prior_path is None else prior_from_file(prior_path, "site_id")
    public = None
    if public_path is not None:
        clicks = _with_value(read_clicks(public_path, attribute), attribute, value, public_path)
        sites = sites or most_clicked(clicks, top_sites)
        public = frequent(clicks, sites, min_clicks)
        if public.empty:
            raise ValueError(f"{public_path} has no device with min_clicks {min_clicks} on the sites of the domain")
    source = prior_path or public_path or ""
    known = Known(prior=kind, probabilities=probabilities, public=public, source=source, categories=sites)
    clicks = _with_value(read_clicks(path, attribute), attribute, value, path)
    name = "Avazu" if value is None else f"Avazu {attribute} = {value}"
    return _users_of_clicks(name, clicks, known, top_sites=top_sites, min_clicks=min_clicks)


def read_clicks(path: str, attribute: str) -> pd.DataFrame:
    """Clicks of a log, in pieces of `CHUNK` rows, as events with the further column ``attribute``.

    Raises:
        ValueError: if the file is missing or no csv, lacks a column, has a click but 0 and 1, or holds no impression.
    """
    if attribute not in ATTRIBUTES:
        raise ValueError(f"attribute is {attribute!r}: it must be one of {', '.join(ATTRIBUTES)}")
    wanted = ["device_id", "site_id", "click", attribute]
    chunks = table_chunks(path, wanted, rows=CHUNK, form="csv", text=None, missing=())
    parts = [_clicked(part, path) for part in chunks if len(part)]
    if not parts:
        raise ValueError(f"{path} is empty: it has no impression")
    clicks = pd.concat(parts, ignore_index=True)
    events = event_frame({"user": clicks["device_id"], "category": clicks["site_id"]}, source=path)
    return events.assign(**{attribute: clicks[attribute].str.strip()})


def most_clicked(clicks: pd.DataFrame, count: int) -> tuple[str, ...]:
    """The ``count`` sites with most clicks, in natural order; ties go to the smaller name."""
    totals = clicks.groupby("category")["weight"].sum()
    kept = sorted(totals.index, key=lambda site: (-totals[site], natural_order(site)))[:count]
    return tuple(sorted(kept, key=natural_order))


def frequent(clicks: pd.DataFrame, sites: Sequence[str], min_clicks: int) -> pd.DataFrame:
    """The clicks on these sites of devices that have ``min_clicks`` of them."""
    kept = clicks[clicks["category"].isin(sites)]
    return kept[kept.groupby("user")["weight"].transform("sum") >= min_clicks]


def _users_of_clicks(name: str, clicks: pd.DataFrame, known: Known, *, top_sites: int, min_clicks: int) -> Users:
    """The devices with enough clicks as `Users`; there may be none."""
    notes = []
    sites = tuple(known.probabilities or ()) or known.categories
    if sites is None:
        sites = most_clicked(clicks, top_sites)
        known = Known(prior=known.prior, categories=sites)
        notes.append(
            f"the sites (the {top_sites} most clicked, if there are so many) were chosen on the private clicks: epsilon does "
            "not cover this"
        )
    kept = frequent(clicks, sites, min_clicks)
    # Whatever the log says: neither whether there are such devices nor how many is public.
    notes.append(f"devices with fewer than {min_clicks} clicks on the sites are left out: who takes part is not covered")
    return users_from_events(name, kept, known, source=name, everyone=clicks, notes=notes)


def _clicked(part: pd.DataFrame, path: str) -> pd.DataFrame:
    wrong = ~part["click"].isin(["0", "1"]).to_numpy()
    if wrong.any():
        row = part.index[int(wrong.argmax())] + 1
        raise ValueError(f"{path} has the click {part['click'].loc[row - 1]!r} in row {row}: it must be 0 or 1")
    return part[(part["click"] == "1") & (part["device_id"] != NO_DEVICE)]


def _with_value(clicks: pd.DataFrame, attribute: str, value: str | None, path: str) -> pd.DataFrame:
    if value is None:
        return clicks
    kept = clicks[clicks[attribute] == value]
    if kept.empty:
        found = ", ".join(sorted(clicks[attribute].unique(), key=natural_order)[:20])
        raise ValueError(
            f"value is {value!r}: attribute {attribute} of {path} has {found}; take one of these, or another attribute"
        )
    return kept


# -- movielens ---------------------------------------------------------------------------------------------------------


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
    events, members = _read_movielens(root, version)
    users = users_from_events(
        f"MovieLens {version.upper()}",
        events,
        known,
        source=str(root / _FOLDERS[version]),
        everyone=members,
    )
    return users if age_group is None else users.of_group(age_group)


def _read_movielens(root: Path, version: Version) -> tuple[pd.DataFrame, pd.DataFrame]:
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
        public, _ = _read_movielens(root, other)
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
    lines = read_bytes(found).decode("latin-1").replace("\r\n", "\n").split("\n")
    rows = [line.split(separator) for line in lines if line]
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            raise ValueError(f"{path} has {len(row)} fields in line {number}: it must have {width}")
    return pd.DataFrame([[row[i] for i in columns] for row in rows], columns=list(columns.values()))
