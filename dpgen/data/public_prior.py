"""What is known before anybody is asked: a prior over the categories, from a file or from a public table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pandas as pd
import torch
from torch import Tensor

from dpgen.data.event_files import EventColumns, count_events, read_events
from dpgen.data.users import checked_prior, normalised

PriorName = Literal["uniform", "file", "public", "private"]
"""Nothing is known; a file of probabilities; a table of public users; a measurement on the private users that is paid for."""

PROBABILITY = "probability"
"""Column of a prior's file, beside the category."""


def chosen_prior(prior: PriorName | None, *, prior_path: str | None, public_path: str | None, private_path: str) -> PriorName:
    """The kind of prior that was asked for; without a name, the file that was given says it.

    Raises:
        ValueError: if the options contradict each other, or the public table is the private one.

    Example:
        >>> chosen_prior(None, prior_path=None, public_path="survey.csv", private_path="clicks.csv")
        'public'
    """
    paths = {"file": ("prior_path", prior_path), "public": ("public_path", public_path)}
    given = [kind for kind, (_, path) in paths.items() if path is not None]
    if len(given) > 1:
        raise ValueError(f"prior_path is {prior_path!r} and public_path is {public_path!r}: give one of them")
    if given and prior not in (None, given[0]):
        option, path = paths[given[0]]
        raise ValueError(f"prior is {prior!r} but {option} is {path!r}: that is for prior={given[0]}")
    if prior in paths and not given:
        raise ValueError(f"prior is {prior!r}: {paths[prior][0]} must name its file")
    if public_path is not None and Path(public_path).resolve() == Path(private_path).resolve():
        raise ValueError(
            f"public_path is {public_path!r}, the table of the private users: a prior computed from them is not public; "
            "use prior=private, which pays for it"
        )
    found: list[PriorName] = [kind for kind in ("file", "public") if kind in given]
    return prior or (found[0] if found else "uniform")


def prior_from_file(path: str, category: str) -> dict[str, float]:
    """Probability of each category of a table with the columns ``category`` and ``probability``.

    Raises:
        ValueError: as `read_events`, or a category comes twice, or the sum is further than 1e-6 from 1.
    """
    table = read_events(path, EventColumns(user=None, category=category, weight=PROBABILITY))
    twice = table["category"].duplicated().to_numpy()
    if twice.any():
        raise ValueError(f"{path} names category {table['category'].iloc[int(twice.argmax())]!r} more than once")
    checked_prior(torch.from_numpy(table["weight"].to_numpy(copy=True)), n=len(table), name=path)
    return dict(zip(table["category"], table["weight"].tolist()))


def aligned_prior(probabilities: dict[str, float], categories: Sequence[str], *, source: str) -> Tensor:
    """Probabilities (n,) in the order of the categories; 0 where none is given.

    Raises:
        ValueError: if a category is not public.

    Example:
        >>> aligned_prior({"b": 1.0}, ["a", "b"], source="prior.csv").tolist()
        [0.0, 1.0]
    """
    unknown = [name for name in probabilities if name not in set(categories)]
    if unknown:
        raise ValueError(f"{source} has the category {unknown[0]!r}: it is none of the {len(categories)} public categories")
    return torch.tensor([probabilities.get(name, 0.0) for name in categories], dtype=torch.float64)


def public_average(events: pd.DataFrame, categories: Sequence[str], *, source: str) -> Tensor:
    """Average (n,) of the public users' distributions (Zamanlooy et al. 2025, section 5); of all events without users.

    Raises:
        ValueError: as `count_events`.
    """
    counts = torch.from_numpy(count_events(events.drop(columns="group", errors="ignore"), categories, source=source).counts)
    average = normalised(counts).mean(0)
    return average / average.sum()
