"""Users that each hold a distribution over the same public categories: from logs of events, or synthetic; public priors."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import torch
from torch import Tensor

from dpgen.columns.forms import natural_order, read
from dpgen.containers import Form, InMemory, natural
from dpgen.data.table_files import (
    MISSING_CATEGORY,
    Missing,
    existing_file,
    in_engine,
    name_of,
    read_table,
    sample_form,
    settled,
    table_path,
)
from dpgen.facts import Fact, Said

if TYPE_CHECKING:
    from dpgen.data.engines import EngineTable

UNIFORM = "uniform"
"""Origin of the prior when no public knowledge is used."""

SUM_TOLERANCE = 1e-6
"""A prior may miss the sum 1 by this much (it is renormalised); more is refused."""

MAX_CELLS = 2**29
"""Largest table (users x categories, eight bytes each) that is built."""


@dataclass(frozen=True, eq=False, repr=False)
class Users:
    r"""Event counts ``counts`` (u, n) of u users over n public categories; user i holds :math:`P_i = c_i / \sum_j c_{ij}`.

    Private is each user's whole row; the names of users and categories, the groups and the prior are public. The
    representation shows sizes only.

    `counts` are float64 >= 0 with a positive sum in every row, n >= 2: events, clicks, sums of ratings. `groups` are public
    (age, region). `prior` is a PUBLIC distribution over the categories (n,), `prior_origin` says in words where it comes from;
    None: nothing is known, `UNIFORM`. `form` is that of draws, None: a table of user,
    group, draw and category.

    >>> Users("tiny", torch.tensor([[3.0, 1.0]], dtype=torch.float64), ("ann",), ("tea", "milk"))
    Users('tiny': 1 users, 2 categories, no groups, prior: uniform)
    """

    name: str
    counts: Tensor
    user_names: tuple[str, ...]
    categories: tuple[str, ...]
    groups: tuple[str, ...] | None = None
    prior: Tensor | None = None
    prior_origin: str = UNIFORM
    facts: tuple[Fact | Said, ...] = ()
    form: Form | None = None

    def __post_init__(self) -> None:
        _require_counts(self.counts)
        _require_names("user_names", self.user_names, self.u)
        _require_names("categories", self.categories, self.n)
        if self.groups is not None and len(self.groups) != self.u:
            raise ValueError(f"groups has length {len(self.groups)}, there are {self.u} users: they must agree")
        if (self.prior is None) != (self.prior_origin == UNIFORM):
            given = "given" if self.prior is not None else "missing"
            raise ValueError(f"prior is {given} but prior_origin is {self.prior_origin!r}: they contradict each other")
        if self.prior is not None:
            object.__setattr__(self, "prior", checked_prior(self.prior, n=self.n))

    def __repr__(self) -> str:
        groups = "no groups" if self.groups is None else f"{len(self.group_names)} groups"
        return f"Users({self.name!r}: {self.u} users, {self.n} categories, {groups}, prior: {self.prior_origin})"

    @property
    def u(self) -> int:
        """Number of users."""
        return len(self.counts)

    @property
    def n(self) -> int:
        """Number of categories."""
        return self.counts.shape[1]

    @property
    def distributions(self) -> Tensor:
        """Each user's distribution, float64, shape (u, n), rows that sum to 1."""
        return normalised(self.counts)

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups that occur, sorted; numbers in numeric order before names."""
        return tuple(sorted(set(self.groups or ()), key=natural_order))


def normalised(counts: Tensor) -> Tensor:
    """Rows of counts (u, n) divided by their sums, without overflow.

    >>> normalised(torch.tensor([[1.0, 3.0]], dtype=torch.float64)).tolist()
    [[0.25, 0.75]]
    """
    scaled = counts / counts.amax(dim=-1, keepdim=True)
    return scaled / scaled.sum(dim=-1, keepdim=True)


def checked_prior(prior: Tensor, *, n: int, name: str = "prior") -> Tensor:
    """The prior (n,) in float64, renormalised."""
    if prior.shape != (n,):
        raise ValueError(f"{name} has shape {tuple(prior.shape)}: it must be ({n},), one probability for each category")
    values = prior.to(torch.float64)
    wrong = ~(torch.isfinite(values) & (values >= 0))
    if bool(wrong.any()):
        where = int(wrong.nonzero()[0])
        raise ValueError(f"{name} has {values[where]:g} in entry {where + 1}: it must be a finite number >= 0")
    total = float(values.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise ValueError(f"{name} sums to {total:.8g}: it must sum to 1 within {SUM_TOLERANCE:g}")
    return values / total


def _require_counts(counts: Tensor) -> None:
    if counts.ndim != 2 or counts.dtype != torch.float64:
        raise ValueError(f"counts has shape {tuple(counts.shape)} and {counts.dtype}: it must be float64 (users, categories)")
    if counts.shape[1] < 2:
        raise ValueError(f"counts has {counts.shape[1]} categories: at least 2 are needed, one alone says nothing")
    wrong = ~(torch.isfinite(counts) & (counts >= 0))
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(f"counts has another value in row {row + 1}, column {column + 1}: it must be finite and >= 0")
    empty = ~(counts > 0).any(dim=1)
    if bool(empty.any()):
        raise ValueError(f"counts has no events in row {int(empty.nonzero()[0]) + 1}: users without events must be left out")


def _require_names(what: str, names: Sequence[str], length: int) -> None:
    if len(names) != length:
        raise ValueError(f"{what} has length {len(names)}: it must have {length}, as counts has")
    if len(set(names)) != length:
        [(repeated, _)] = Counter(names).most_common(1)
        raise ValueError(f"{what} names {repeated!r} more than once")


PEAKED, NEAR = "peaked", "near the prior"


def load_synthetic_users(*, n_categories: int = 100, n_users: int = 200, data_seed: int = 0) -> Users:
    r"""Users in the two regimes that decide which sampler is better, and the public prior, all drawn by a public seed.

    The prior is independent uniforms in (0, 1), normalised. Half of the users are `PEAKED`: :math:`P = (p, \frac{1-p}{n-1},
    \ldots)` with p on a grid from 1/n to 1 (both as in Zamanlooy et al. 2025, section 5.2). The other half is `NEAR` the
    prior: :math:`P_j \propto q_j e^{z_j}` with normal z of std 0.3. The two groups carry these names.

    Arguments:
        n_categories: n >= 2.
        n_users: u >= 2.
        data_seed: public seed; synthetic users have nothing to hide.

    >>> load_synthetic_users()
    Users('synthetic users': 200 users, 100 categories, 2 groups, prior: drawn at random)
    """
    for name, value in (("n_categories", n_categories), ("n_users", n_users)):
        if value < 2:
            raise ValueError(f"{name} is {value}: it must be >= 2")
    generator = torch.Generator().manual_seed(data_seed)
    uniforms = torch.rand(n_categories, generator=generator, dtype=torch.float64).clamp_min(1e-12)
    prior = uniforms / uniforms.sum()
    peaks = torch.linspace(1 / n_categories, 1, n_users - n_users // 2, dtype=torch.float64)[:, None]
    others = ((1 - peaks) / (n_categories - 1)).expand(-1, n_categories - 1)
    tilts = 0.3 * torch.randn(n_users // 2, n_categories, generator=generator, dtype=torch.float64)
    near = prior * tilts.exp()
    return Users(
        name="synthetic users",
        counts=torch.cat([torch.cat([peaks, others], dim=1), near / near.sum(1, keepdim=True)]),
        user_names=tuple(f"user {i + 1}" for i in range(n_users)),
        categories=tuple(f"category {j + 1}" for j in range(n_categories)),
        groups=(PEAKED,) * len(peaks) + (NEAR,) * len(near),
        prior=prior,
        prior_origin="drawn at random",
        facts=(Fact.SYNTHETIC,),
    )


@dataclass(frozen=True)
class EventColumns:
    """Names of the columns of a table: the user, the category, how much an event counts (1 without), the user's group."""

    user: str | None
    category: str
    weight: str | None = None
    group: str | None = None

    @property
    def named(self) -> dict[str, str]:
        """The columns that are there, by what they mean."""
        pairs = {"user": self.user, "category": self.category, "weight": self.weight, "group": self.group}
        return {meaning: name for meaning, name in pairs.items() if name is not None}

    @property
    def wanted(self) -> list[str]:
        """Names of the columns that are read, all different."""
        wanted = list(self.named.values())
        repeated = [name for name in wanted if wanted.count(name) > 1]
        if repeated:
            meanings = ", ".join(self.named)
            raise ValueError(f"column {repeated[0]!r} is named for more than one of {meanings}: each needs its own")
        return wanted


class EventCounts(NamedTuple):
    """Events of each user: counts (u, n) float64, names of the users, and the group of each."""

    counts: npt.NDArray[np.float64]
    users: tuple[str, ...]
    groups: tuple[str, ...] | None


def read_events(path: str, columns: EventColumns, missing: Missing = "error") -> pd.DataFrame:
    """Events of a file as a table with the columns user, category, weight (float64) and, where named, group.

    Names are read as text, so user 007 is not user 7; blanks around a name do not count, so " x" is "x".
    """
    # Of a csv file only an empty field is missing: a site may be called NA.
    return named_events(read_table(path, columns.wanted, text=None, missing=("",)), columns, missing, source=path)


def named_events(table: pd.DataFrame, columns: EventColumns, missing: Missing, *, source: str) -> pd.DataFrame:
    """Events of a table with these columns, one a row, or their sums of weights; errors as in `read_events`."""
    if table.empty:
        raise ValueError(f"{source} holds no events, only a header")
    table = settled(table, missing, source, categorical=[columns.category, *([columns.group] if columns.group else [])])
    return event_frame({meaning: table[name] for meaning, name in columns.named.items()}, source=source)


def event_frame(values: dict[str, Any], *, source: str) -> pd.DataFrame:
    """A table of events from columns user, category, group (text) and weight (numbers >= 0, all 1 when not given).

    Blanks around names are taken away: " x" and "x" are one category.

    >>> event_frame({"user": ["a", "a"], "category": ["x", " y"]}, source="log").to_numpy().tolist()
    [['a', 'x', 1.0], ['a', 'y', 1.0]]
    """
    columns = {"user": "all"} | values
    events = pd.DataFrame({m: columns[m] for m in ("user", "category", "group") if m in columns})
    for meaning in events.columns:
        events[meaning] = _names(events[meaning], meaning, source)
    events["weight"] = _weights(values["weight"], source) if "weight" in values else 1.0
    return events


def _names(values: pd.Series, meaning: str, source: str) -> pd.Series:
    if values.dtype == object and pd.api.types.infer_dtype(values) not in ("string", "integer"):
        plain = values.map(lambda value: pd.api.types.is_scalar(value) and not isinstance(value, bytes)).to_numpy(bool)
        if not plain.all():
            row = int(plain.argmin())
            raise ValueError(f"{source} has a {meaning} of another type in row {row + 1}: it must be text or a number")
    rows, found = read(values.reset_index(drop=True), "string")  # 3 and 3.0 are one user: a gap makes floats of whole numbers
    text = pd.Series(found, rows, "str").reindex(range(len(values))).str.strip()
    missing = (text.isna() | (text == "")).to_numpy(bool)
    if missing.any():
        raise ValueError(f"{source} has no {meaning} in row {int(missing.argmax()) + 1}: every event needs one")
    return text


def count_events(events: pd.DataFrame, categories: Sequence[str], *, source: str) -> EventCounts:
    """Sums of weights (u, n) of each user and category; users in natural order, those without any weight left out."""
    category = pd.Index(list(categories)).get_indexer(events["category"])
    if (category < 0).any():
        shown = ", ".join(categories[:5]) + (", ..." if len(categories) > 5 else "")
        raise ValueError(f"{source} has a category that is none of the {len(categories)} public ones ({shown})")
    user, names = pd.factorize(events["user"])
    if len(names) * len(categories) > MAX_CELLS:
        raise ValueError(f"{source} has {len(names)} users x {len(categories)} categories: at most {MAX_CELLS} cells fit")
    shape = (len(names), len(categories))
    with np.errstate(over="ignore"):
        flat = np.bincount(user * shape[1] + category, weights=events["weight"], minlength=shape[0] * shape[1])
    counts = flat.reshape(shape).astype(np.float64)
    if not np.isfinite(counts).all():
        raise ValueError(f"{source} has weights that add up to infinity: their sum must be finite")
    kept = [row for row in sorted(range(len(names)), key=lambda row: natural_order(names[row])) if counts[row].max() > 0]
    groups = tuple(_groups(events, source).iloc[kept]) if "group" in events else None
    return EventCounts(counts[kept], tuple(names[row] for row in kept), groups)


def _groups(events: pd.DataFrame, source: str) -> pd.Series:
    """The group of each user, in the order in which users come."""
    pairs = events[["user", "group"]].drop_duplicates()
    if pairs["user"].duplicated().any():
        raise ValueError(f"{source} puts a user into two groups: a user has one group")
    return pairs["group"]


def _weights(values: Any, source: str) -> npt.NDArray[np.float64]:
    given = pd.Series(values)
    numbers = pd.to_numeric(given, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    wrong = ~(np.isfinite(numbers) & (numbers >= 0))
    if wrong.any():
        raise ValueError(f"{source} has a weight in row {int(wrong.argmax()) + 1} that is no finite number >= 0")
    return numbers


# -- public prior ------------------------------------------------------------------------------------------------------


PROBABILITY = "probability"
"""Column of a prior's file, beside the category."""


def require_one_prior(prior_path: str | None, public_path: str | None, *, private_path: str) -> None:
    """Refuse options that ask for two priors, or for one that is read from the private users without noise."""
    if prior_path is not None and public_path is not None:
        raise ValueError(f"prior_path is {prior_path!r} and public_path is {public_path!r}: give one of them")
    if public_path is not None and Path(public_path).resolve() == Path(private_path).resolve():
        raise ValueError(
            f"public_path is {public_path!r}, the table of the private users: a prior computed from them is not public"
        )


def aligned_prior(probabilities: dict[str, float], categories: Sequence[str], *, source: str) -> Tensor:
    """Probabilities (n,) in the order of the categories, which must be public; 0 where none is given.

    >>> aligned_prior({"b": 1.0}, ["a", "b"], source="prior.csv").tolist()
    [0.0, 1.0]
    """
    unknown = [name for name in probabilities if name not in set(categories)]
    if unknown:
        raise ValueError(f"{source} has the category {unknown[0]!r}: it is none of the {len(categories)} public categories")
    return torch.tensor([probabilities.get(name, 0.0) for name in categories], dtype=torch.float64)


def public_average(events: pd.DataFrame, categories: Sequence[str], *, source: str) -> Tensor:
    """Average (n,) of the public users' distributions (Zamanlooy et al. 2025, section 5); of all events without users."""
    counts = torch.from_numpy(count_events(events.drop(columns="group", errors="ignore"), categories, source=source).counts)
    average = normalised(counts).mean(0)
    return average / average.sum()


def read_categories(path: str) -> tuple[str, ...]:
    """Names of a file with one category a line, at least two; blank lines are left out."""
    try:
        lines = existing_file(path, option="categories_path").read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file: byte {error.start} is not UTF-8") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) < 2:
        raise ValueError(f"{path} names {len(names)} categories: at least 2 are needed, one a line")
    if len(set(names)) < len(names):
        repeated = pd.Series(names).mode().iloc[0]
        raise ValueError(f"{path} names category {repeated!r} more than once")
    return names


# -- user events -------------------------------------------------------------------------------------------------------


def load_events(
    *,
    path: str,
    user: str = "user",
    category: str = "category",
    weight: str | None = None,
    group: str | None = None,
    categories_path: str | None = None,
    prior_path: str | None = None,
    public_path: str | None = None,
    missing: Missing = "error",
    delimiter: str | None = None,
    encoding: str | None = None,
    engine: bool = False,
) -> Users:
    """Users from a table of events (.csv, .tsv, .parquet, or in an engine), and the prior that is known about them.

    Which categories there are must not depend on private events. ``categories_path`` names them; else the file of the
    prior does; else the public table; else they are read from the events and ``facts`` say that epsilon does not cover it.
    The prior is uniform, or read from ``prior_path`` (columns ``category`` and ``probability``), or the average user of
    ``public_path`` (same columns as ``path``). It is never computed from ``path``. An engine adds up the events: one row for
    each pair of user and category leaves it.

    Arguments:
        path: private events: a file, or FILE.duckdb::TABLE, or parquet or csv files, as in "clicks/*.parquet".
        user: column of the user's id, read as text.
        category: column of the category.
        weight: column of how much an event counts (a rating, a 0/1 click), >= 0, in an engine whole numbers; 1 each without.
        group: column of the user's public group.
        categories_path: file of public category names, one a line.
        prior_path: file of probabilities.
        public_path: table of public users.
        missing: "error", or "drop" events with a missing value, or let it be a "category", of categories and groups.
        delimiter: of a csv file, the one character between two fields, or "tab"; without it the one of the header line.
        encoding: of a csv file, by its name in Python, as cp1252; without it UTF-8, of other lines cp1252.
        engine: DuckDB reads a single file, too.
    """
    path = table_path(path, delimiter, encoding)
    columns = EventColumns(user, category, weight, group)
    known: dict[str, Any] = {"categories_path": categories_path, "prior_path": prior_path, "missing": missing}
    known["public_path"] = public_path if public_path is None else table_path(public_path, delimiter, encoding)
    if in_engine(path, engine):
        from dpgen.data.engines import open_table  # here: data in memory need no engine

        opened = open_table(path, text=[name for name in columns.wanted if name != columns.weight], missing=[""])
        summed = replace(columns, weight=_SUM)
        read = lambda: named_events(_event_sums(opened, columns, missing), summed, missing, source=opened.name)  # noqa: E731
        return _users(opened.name, opened.name, columns, read, **known)
    users = _users(name_of(path), path, columns, lambda: read_events(path, columns, missing), **known)
    typed = isinstance(path, InMemory) or path.endswith(".parquet")
    return _as_they_came(users, path, columns) if typed else users


def _as_they_came(users: Users, path: str, columns: EventColumns) -> Users:
    """Users whose samples have the types of the source."""
    drawn = {name: meaning for meaning, name in columns.named.items() if meaning != "weight"}
    form = sample_form(path, list(drawn), categories={columns.category: users.categories})
    public = {"user": users.user_names, "category": users.categories, "group": users.groups or ()}
    types = (dtype or natural(public[drawn[str(name)]]) for name, dtype in zip(form.names, form.types))
    return replace(users, form=replace(form, types=tuple(types), renamed=drawn))


_SUM = "sum of weights"


def _event_sums(table: "EngineTable", columns: EventColumns, missing: Missing) -> pd.DataFrame:
    """Sums of weights by user, category and group; whole numbers, so that no order of rows moves them."""
    rows = table.columns(columns.wanted)
    names = [name for name in columns.wanted if name != columns.weight]
    weight = "1" if columns.weight is None else rows.quoted(columns.weight)
    if columns.weight is not None and not pyarrow.types.is_integer(kind := rows.schema.field(columns.weight).type):
        raise ValueError(f"{table.name} column {columns.weight!r} is {kind}; an engine adds up whole numbers only")
    if missing == "drop":
        rows = rows.filtered(f"{weight} is not null")
    sums = {_SUM: f"cast(sum({weight}) as bigint)", "least": f"min({weight})", "absent": f"count(*) - count({weight})"}
    found = rows.grouped(names, **sums).fetch("sums of users").to_pandas(integer_object_nulls=True)
    if len(found) and (found["absent"].sum() or found["least"].min() < 0):
        raise ValueError(f"{table.name} column {columns.weight!r} has a value that is missing or negative: it must be >= 0")
    return found[[*names, _SUM]]


def _stated_prior(path: str, category: str) -> dict[str, float]:
    """Probabilities of the categories in a file, which sum to 1."""
    table = read_events(path, EventColumns(user=None, category=category, weight=PROBABILITY))
    if (twice := table["category"].duplicated().to_numpy()).any():
        raise ValueError(f"{path} names category {table['category'].iloc[int(twice.argmax())]!r} more than once")
    checked_prior(torch.from_numpy(table["weight"].to_numpy(copy=True)), n=len(table), name=path)
    return dict(zip(table["category"], table["weight"].tolist()))


def _stated_categories(path: str, missing: Missing) -> tuple[str, ...]:
    """The categories of a file, with that of missing values where these are one."""
    categories = read_categories(path)
    return (*categories, MISSING_CATEGORY) if missing == "category" and MISSING_CATEGORY not in categories else categories


def _users(
    name: str,
    source: str,
    columns: EventColumns,
    read: Callable[[], pd.DataFrame],
    *,
    categories_path: str | None,
    prior_path: str | None,
    public_path: str | None,
    missing: Missing,
) -> Users:
    """Users from the events that `read` returns, and what the options of `load_events` say is known about them."""
    require_one_prior(prior_path, public_path, private_path=source)
    categories = None if categories_path is None else _stated_categories(categories_path, missing)
    stated = None if prior_path is None else _stated_prior(prior_path, columns.category)
    public = None if public_path is None else read_events(public_path, replace(columns, group=None))
    events, facts = read(), tuple[Fact, ...]()
    if categories is None and stated is not None:
        categories = tuple(stated)
    elif categories is None:
        shown, facts = (events, (Fact.READ_CATEGORIES,)) if public is None else (public, ())
        categories = tuple(sorted(set(shown["category"]), key=natural_order))
    distribution, origin = None, UNIFORM
    if stated is not None:
        distribution, origin = aligned_prior(stated, categories, source=str(prior_path)), f"file {Path(str(prior_path)).name}"
    elif public is not None:
        distribution = public_average(public, categories, source=str(public_path))
        origin = f"public table {Path(str(public_path)).name}"
    found = count_events(events, categories, source=source)
    return Users(
        name=name,
        counts=torch.from_numpy(found.counts),
        user_names=found.users,
        categories=categories,
        groups=found.groups,
        prior=distribution,
        prior_origin=origin,
        facts=facts,
    )
