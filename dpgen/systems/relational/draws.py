"""Draws of classes, and of values in classes, whose shares are close to those of their law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from dpgen.schema import Schema
from dpgen.systems.relational.sums import Integers, Reals
from dpgen.systems.tables.marginals import Columns
from dpgen.systems.tables.mixture import Mixture, filled

TRIES = 100
"""Draws of a row or a person until one satisfies the constraints."""


def drawn(
    classes: Integers,
    mixture: Mixture,
    columns: Columns,
    inside: Sequence[Reals],
    schema: Schema,
    shares: Sequence[Reals],
    holds: Any,
    generator: np.random.Generator,
    inner: torch.Generator,
    *,
    places: Integers | None = None,
) -> pd.DataFrame:
    """Values of the classes (n,), drawn again in the same class until they satisfy `holds`; `places`: order of the columns."""
    left, found = np.arange(len(classes)), list[pd.DataFrame]()
    for _ in range(TRIES):
        order = left[np.argsort(classes[left], kind="stable")]
        groups = filled(
            mixture, classes[order], lambda count: generator.permutation((np.arange(count) + generator.random()) / count)
        )
        codes = columns.refined(groups, inside, generator)
        table = schema.decode(torch.from_numpy(codes if places is None else codes[:, places]), inner, shares)
        kept = holds(table)
        found.append(table[kept].set_axis(order[kept]))
        left = np.sort(order[~kept])
        if not len(left):
            return pd.concat(found).sort_index()
    raise ValueError(
        f"constraints accept none of {TRIES} draws of {len(left)} of {len(classes)} lines: they contradict the model, or what "
        "is given; loosen them, or fit with a greater epsilon"
    )


def systematic(groups: Integers, generator: np.random.Generator) -> Reals:
    """Numbers in [0, 1) for members of groups (n,): of a group of g one in each interval of length 1 / g, in random order."""
    order = np.lexsort((generator.random(len(groups)), groups))
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.diff(sorted_groups, prepend=-1))
    sizes = np.diff(starts, append=len(groups))
    rank = np.arange(len(groups)) - np.repeat(starts, sizes)
    found = np.empty(len(groups))
    found[order] = (rank + np.repeat(generator.random(len(starts)), sizes)) / np.repeat(sizes, sizes)
    return found


def picked(law: npt.NDArray[Any], given: Integers, uniform: Reals) -> Integers:
    """Classes (n,) by the rows `given` (n,) of a law (K, W), for numbers in [0, 1)."""
    ends = law.astype(np.float64).cumsum(1)
    ends /= ends[:, -1:]
    found = np.empty(len(given), np.int64)
    for row in np.unique(given):
        own = given == row
        found[own] = np.searchsorted(ends[row, :-1], uniform[own], side="right")
    return found
