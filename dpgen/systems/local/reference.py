"""A released model as the public prior of finite samplers: free, for it reads what has been paid for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.release import PublicModel

_SAMPLES = 2**18
_SHOWN = 5


def released_prior(model: PublicModel, categories: Sequence[str], *, column: str | None = None) -> Tensor:
    r"""Distribution (n,) of a released model over the categories of users, float64, all of it above 0.

    .. math:: q_j = \frac{c_j + 1/2}{\sum_i c_i + n/2}

    with :math:`c_j` how many of 2^18 samples (by a public seed) have category j in a column; or, where the categories are
    columns of 0 and 1 (sites, items), how many samples have a 1 there. Values are compared as texts.

    Arguments:
        model: any released model whose samples have such a column.
        categories: n names.
        column: which one; None: the columns named like categories, or the only column that holds nothing else.

    Raises:
        ValueError: no such column, several of them, or values that are no categories.

    Source: half a count for each, Krichevsky and Trofimov 1981.
    """
    table = model.samples(_SAMPLES, random_state=0).to_pandas()
    if column is None and set(categories) <= {str(name) for name in table}:
        counts = np.array([_ones(table, name) for name in categories], dtype=np.float64)
    else:
        counts = _counts(table[_column(table, model.kind, categories, column)], categories)
    q = torch.from_numpy(counts) + 0.5
    return q / q.sum()


def _column(table: pd.DataFrame, kind: str, categories: Sequence[str], column: str | None) -> str:
    """The column of these categories."""
    names = [str(name) for name in table]
    if column is not None:
        if column not in names:
            raise ValueError(f"reference_column is {column!r}; it must be one of {', '.join(names)}")
        strange = sorted(set(_texts(table[column])) - set(categories))
        if strange:
            raise ValueError(
                f"reference_column is {column!r}, whose value {strange[0]!r} is none of the {len(categories)} categories "
                f"({_list(categories)})"
            )
        return column
    found = [name for name in names if set(_texts(table[name])) <= set(categories)]
    if len(found) > 1:
        raise ValueError(f"reference_column is None; choose one of {', '.join(found)}, which all hold categories of the users")
    if not found:
        raise ValueError(
            f"reference_path is a {kind} model with the columns {_list(names)}; one of them must hold the {len(categories)} "
            f"categories ({_list(categories)}), or columns of 0 and 1 must be named like them"
        )
    return found[0]


def _ones(table: pd.DataFrame, name: str) -> float:
    """How many samples have a 1 in a column of 0 and 1."""
    values = table[name]
    if not pd.api.types.is_numeric_dtype(values) or not values.isin([0, 1]).all():
        raise ValueError(f"reference_path has a column {name!r}, named like a category; it must hold 0 and 1 alone")
    return float(values.sum())


def _counts(values: pd.Series, categories: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return _texts(values).value_counts().reindex(list(categories), fill_value=0).to_numpy(np.float64)


def _texts(values: pd.Series) -> pd.Series:
    """The values that are there, as texts: 3.0 is written 3, as in files of events."""
    known = values.dropna()
    whole = pd.api.types.is_float_dtype(known) and (known % 1 == 0).all() and (known.abs() < 2**53).all()
    return (known.astype(np.int64) if whole else known).astype(str).str.strip()


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
