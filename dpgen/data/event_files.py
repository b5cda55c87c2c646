"""Tables with one event a row - who did what, how much - read from text and parquet files, and counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.data.table_files import BLANKS, UNREADABLE, existing_file, read_csv, read_parquet, require_columns, unreadable
from dpgen.data.users import MAX_CELLS, natural_order

SEPARATORS = {".csv": ",", ".tsv": "\t", ".log": BLANKS, ".txt": BLANKS}
"""Text files by their ending; all have a header line and may end in .gz as well."""


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


@dataclass(frozen=True, eq=False, repr=False)
class EventCounts:
    """What each user did: counts (u, n) float64, names of users and categories, group of each user."""

    counts: npt.NDArray[np.float64]
    users: tuple[str, ...]
    categories: tuple[str, ...]
    groups: tuple[str, ...] | None


def read_events(path: str, columns: EventColumns) -> pd.DataFrame:
    """Events of a file as a table with the columns user, category, weight (float64) and, where named, group.

    The ending chooses the format: .csv, .tsv, .log or .txt (separated by blanks), each with a header line and plain or
    .gz; .jsonl (one object a line); .parquet. Names are read as text, so user 007 is not user 7; blanks around a name do
    not count, so " x" is "x".

    Raises:
        ValueError: if the file is missing, empty or unreadable, lacks a column, or an entry is missing, no name (an
            object, a list, bytes), not a number, infinite or negative.
    """
    wanted = list(columns.named.values())
    repeated = [name for name in wanted if wanted.count(name) > 1]
    if repeated:
        raise ValueError(f"column {repeated[0]!r} is named for more than one of {', '.join(columns.named)}: each needs its own")
    table = _read(Path(path), wanted)
    if table.empty:
        raise ValueError(f"{path} holds no events, only a header")
    return event_frame({meaning: table[name] for meaning, name in columns.named.items()}, source=path)


def event_frame(values: dict[str, Any], *, source: str) -> pd.DataFrame:
    """A table of events from columns user, category, group (text) and weight (numbers >= 0, all 1 when not given).

    Blanks around names are taken away: " x" and "x" are one category.

    Raises:
        ValueError: naming the column, the row (counted from 1, without the header) and the value that is wrong.

    Example:
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
            raise ValueError(
                f"{source} has the {meaning} {str(values.iloc[row])[:40]!r} in row {row + 1}: it must be text or a number"
            )
    text = values.astype(str).str.strip()
    missing = (values.isna() | (text == "")).to_numpy(bool)
    if missing.any():
        raise ValueError(f"{source} has no {meaning} in row {int(missing.argmax()) + 1}: every event needs one")
    return text


def count_events(events: pd.DataFrame, categories: Sequence[str], *, source: str) -> EventCounts:
    """Sums of weights (u, n) of each user and category; users in natural order, those without any weight left out.

    Raises:
        ValueError: if an event's category is not one of ``categories``, a user is in two groups, or the table is too large.
    """
    category = pd.Index(list(categories)).get_indexer(events["category"])
    if (category < 0).any():
        found = str(events["category"].iloc[int((category < 0).argmax())])[:40]
        shown = ", ".join(categories[:5]) + (", ..." if len(categories) > 5 else "")
        raise ValueError(f"{source} has the category {found!r}: it must be one of the {len(categories)} public ones ({shown})")
    user, names = pd.factorize(events["user"])
    if len(names) * len(categories) > MAX_CELLS:
        raise ValueError(f"{source} has {len(names)} users x {len(categories)} categories: at most {MAX_CELLS} cells fit")
    shape = (len(names), len(categories))
    with np.errstate(over="ignore"):
        flat = np.bincount(user * shape[1] + category, weights=events["weight"], minlength=shape[0] * shape[1])
    counts = flat.reshape(shape).astype(np.float64)
    if not np.isfinite(counts).all():
        raise ValueError(f"{source} has weights that add up to infinity: their sum must be finite")
    groups = _group_of_each(events, source).reindex(names) if "group" in events else None
    kept = [row for row in sorted(range(len(names)), key=lambda row: natural_order(names[row])) if counts[row].max() > 0]
    return EventCounts(
        counts=counts[kept],
        users=tuple(names[row] for row in kept),
        categories=tuple(categories),
        groups=None if groups is None else tuple(groups.iloc[row] for row in kept),
    )


def _group_of_each(events: pd.DataFrame, source: str) -> pd.Series:
    pairs = events[["user", "group"]].drop_duplicates()
    twice = pairs["user"].duplicated().to_numpy()
    if twice.any():
        user = pairs["user"].iloc[int(twice.argmax())]
        first, second = pairs.loc[pairs["user"] == user, "group"].iloc[:2]
        raise ValueError(f"{source} puts user {user!r} into the groups {first!r} and {second!r}: a user has one group")
    return pairs.set_index("user")["group"]


def _weights(values: Any, source: str) -> npt.NDArray[np.float64]:
    given = pd.Series(values)
    numbers = pd.to_numeric(given, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    wrong = ~(np.isfinite(numbers) & (numbers >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{source} has the weight {str(given.iloc[row])[:40]!r} in row {row + 1}: it must be a finite number >= 0"
        )
    return numbers


def _read(path: Path, wanted: list[str]) -> pd.DataFrame:
    ending = Path(path.name.removesuffix(".gz")).suffix
    what = ending or "a table"
    if ending in SEPARATORS:
        # Only an empty field is missing: a site may be called NA.
        table = read_csv(path, separator=SEPARATORS[ending], what=what, dtype=str, keep_default_na=False, na_values=[""])
    elif ending == ".parquet":
        table = read_parquet(path, what=what)
    elif ending == ".jsonl":
        try:
            table = pd.read_json(existing_file(path), lines=True, dtype=False)
        except (*UNREADABLE, TypeError, AttributeError, KeyError) as error:  # of lines that hold no object
            raise unreadable(path, what, error) from error
    else:
        endings = ", ".join([*SEPARATORS, ".jsonl", ".parquet"])
        raise ValueError(f"{existing_file(path)} cannot be read as {what}: its name must end in one of {endings}")
    require_columns(path, wanted, table.columns)
    return table[wanted]
