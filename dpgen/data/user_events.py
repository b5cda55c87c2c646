"""Users from a log of what they did, one event a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from dpgen.data.event_files import EventColumns, count_events, read_events
from dpgen.data.public_prior import PriorName, aligned_prior, chosen_prior, prior_from_file, public_average
from dpgen.data.table_files import existing_file, name_of
from dpgen.data.users import PRIVATE, UNIFORM, Users, natural_order


def load_events(
    *,
    path: str,
    user: str = "user",
    category: str = "category",
    weight: str | None = None,
    group: str | None = None,
    only_group: str | None = None,
    categories_path: str | None = None,
    prior: PriorName | None = None,
    prior_path: str | None = None,
    public_path: str | None = None,
) -> Users:
    """Users from a table of events (.csv, .tsv, .log, .txt, .jsonl, .parquet), and the prior that is known about them.

    Which categories there are must not depend on private events. ``categories_path`` names them; else the file of the
    prior does; else the public table; else they are read from the events and ``notes`` say that epsilon does not cover it.
    The prior is uniform, or read from ``prior_path`` (columns ``category`` and ``probability``), or the average user of
    ``public_path`` (same columns as ``path``; of the same group with ``only_group``). It is never computed from ``path``:
    ``prior=private`` asks the system to measure it there with noise, and to charge for it.

    Arguments:
        path: private events.
        user: column of the user's id, read as text.
        category: column of the category.
        weight: column of how much an event counts (a rating, a 0/1 click), >= 0; 1 each without.
        group: column of the user's public group.
        only_group: keep the users of this group.
        categories_path: file of public category names, one a line.
        prior: uniform, file, public or private; without it, the path that is given decides.
        prior_path: file of probabilities.
        public_path: table of public users.

    Raises:
        ValueError: if a file is missing or malformed, a category is unknown, or the options contradict each other.
    """
    kind = chosen_prior(prior, prior_path=prior_path, public_path=public_path, private_path=path)
    columns = EventColumns(user, category, weight, group)
    if only_group is not None and group is None:
        raise ValueError(f"only_group is {only_group!r} but group names no column")
    known = Known(
        prior=kind,
        probabilities=None if prior_path is None else prior_from_file(prior_path, category),
        public=None if public_path is None else _public_events(public_path, columns, only_group),
        source=prior_path or public_path or "",
        categories=None if categories_path is None else read_categories(categories_path),
    )
    users = users_from_events(name_of(path), read_events(path, columns), known, source=path)
    return users if only_group is None else users.of_group(only_group)


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is public about users beside their names: the categories, and a prior or where it is to come from."""

    prior: PriorName = "uniform"
    probabilities: dict[str, float] | None = None
    public: pd.DataFrame | None = None
    source: str = ""
    categories: tuple[str, ...] | None = None

    def domain(self, events: pd.DataFrame) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The categories, and what a statement has to say about them."""
        if self.categories is not None:
            return self.categories, ()
        if self.probabilities is not None:
            return tuple(self.probabilities), ()
        table = events if self.public is None else self.public
        names = tuple(sorted(set(table["category"]), key=natural_order))
        note = "the categories were read from the events: epsilon does not cover which of them occur"
        return names, (note,) if self.public is None else ()

    def distribution(self, categories: Sequence[str]) -> dict[str, Any]:
        """The arguments ``prior`` and ``prior_origin`` of `Users`."""
        if self.probabilities is not None:
            values = aligned_prior(self.probabilities, categories, source=self.source)
            return {"prior": values, "prior_origin": f"file {Path(self.source).name}"}
        if self.public is not None:
            values = public_average(self.public, categories, source=self.source)
            return {"prior": values, "prior_origin": f"public table {Path(self.source).name}"}
        return {"prior": None, "prior_origin": PRIVATE if self.prior == "private" else UNIFORM}


def users_from_events(
    name: str,
    events: pd.DataFrame,
    known: Known,
    *,
    source: str,
    everyone: pd.DataFrame | None = None,
    notes: Sequence[str] = (),
) -> Users:
    """`Users` from a table of `event_frame` and what is known about them.

    Arguments:
        name: what the data are called in reports.
        events: private events.
        known: categories and prior.
        source: file that error messages name.
        everyone: all users (columns user and, where there are groups, group), also those without events: they are skipped.
        notes: further sentences for the statement.

    Raises:
        ValueError: as `count_events` and `Users`.
    """
    categories, read = known.domain(events)
    found = count_events(events, categories, source=source)
    asked = [part.drop_duplicates("user") for part in (events, everyone) if part is not None]
    absent = pd.concat(asked).drop_duplicates("user").loc[lambda part: ~part["user"].isin(found.users)]
    return Users(
        name=name,
        counts=torch.from_numpy(found.counts),
        user_names=found.users,
        categories=found.categories,
        groups=found.groups,
        skipped=len(absent),
        skipped_groups=tuple(absent["group"]) if found.groups is not None else None,
        notes=(*notes, *read),
        **known.distribution(categories),
    )


def read_categories(path: str) -> tuple[str, ...]:
    """Names of a file with one category a line; blank lines are left out.

    Raises:
        ValueError: if the file is missing or not UTF-8 text, or names fewer than two categories or one twice.
    """
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


def _public_events(path: str, columns: EventColumns, only_group: str | None) -> pd.DataFrame:
    group = columns.group if only_group is not None else None
    events = read_events(path, EventColumns(columns.user, columns.category, columns.weight, group))
    if only_group is not None:
        events = events[events["group"] == only_group]
        if events.empty:
            raise ValueError(f"{path} has no events of only_group {only_group!r}")
    return events
