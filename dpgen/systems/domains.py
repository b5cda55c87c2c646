"""Private releases of the domains of columns: frequent categories, and ranges of numbers and dates.

They fill the blanks of a table's schema, whose user then pays for them on top of the model: see `release_domains`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from dpgen.privacy.events import for_rows, pure_event, row_delta, row_epsilon
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.selection import FrequentValues
from dpgen.systems.plan import RowPlan

if TYPE_CHECKING:
    from dpgen.privacy.curator import Curator
    from dpgen.privacy.mechanisms import Relation

Reals = npt.NDArray[np.float64]
Kind = Literal["categories", "numbers", "days"]

FREQUENT = "frequent categories"
COARSE = "coarse range"
FINE = "fine range"

_CELLS = 512
_FALSE_CELL = 0.01
"""Probability that noise alone makes some empty cell of a histogram look occupied."""
_POWERS = 2.0 ** np.arange(-40, 65)
_FIRST_DAY, _LAST_DAY, _YEAR = -25_567, 84_006, 365  # 1900 to 2199, in days since 1970


@dataclass(frozen=True, kw_only=True)
class DomainsPlan(RowPlan):
    """Privacy budget of the domains of a table, shared equally by its columns.

    Arguments:
        epsilon: budget in nats.
        delta: of the guarantee, in [0, 1): categories that nobody knows cannot be named at 0.
        relation: neighbouring relation of the budget, "add_remove" or "replace_one".
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    relation: Relation = "add_remove"
    several_rows: ClassVar[bool] = True

    @property
    def paid(self) -> dict[str, Any]:
        """The price, as a schema with these domains states it."""
        unit = {"unit": self.unit, "rows_per_unit": self.rows_per_unit}
        return {"epsilon": self.epsilon, "delta": self.resolved_delta, "relation": self.relation, **unit}


def release_domains(
    columns: Mapping[str, tuple[Kind, Any]], *, plan: DomainsPlan, curator: Curator
) -> dict[str, list[str] | tuple[float, float]]:
    """Categories, or a range (low, high), of each column; missing values are left out before.

    Arguments:
        columns: kind and private values (n,) by name: texts, finite numbers, or days since 1970; of a unit at most as many in
            each column as it has rows.
        plan: the budget.
        curator: charges, and adds the noise.

    Raises:
        ValueError: an unknown kind, or categories at delta 0.
        BudgetExceeded: the curator's ledger allows less; nothing was drawn.
    """
    for name, (kind, _) in columns.items():
        if kind not in get_args(Kind):
            raise ValueError(f"kind of column {name!r} is {kind!r}; it must be one of {', '.join(get_args(Kind))}")
    epsilon = plan.epsilon / max(1, len(columns)) * (1 - 1e-12)
    named = sum(kind == "categories" for kind, _ in columns.values())
    delta = plan.resolved_delta / max(1, named) * (1 - 1e-9)
    if named and not delta:
        raise ValueError("delta is 0; it must be in (0, 1): categories that nobody knows cannot be named at delta 0")
    rows, lines = curator.rows, []
    step = row_epsilon(epsilon, rows)

    def frequent(values: Sequence[str]) -> FrequentValues:
        return FrequentValues(counted(values), step, row_delta(delta, step, rows), curator.relation)

    for name, (kind, _) in columns.items():
        if kind == "categories":
            lines.append(Planned(for_rows(frequent([]).event, rows), f"{FREQUENT} of {name}"))
        else:
            lines += [Planned(pure_event(epsilon / 2), f"{part} of {name}") for part in (COARSE, FINE)]
    curator.declare(*lines)
    found: dict[str, list[str] | tuple[float, float]] = {}
    for name, (kind, values) in columns.items():
        if kind == "categories":
            [found[name]] = curator.release(f"{FREQUENT} of {name}", frequent(values))
        else:
            found[name] = _range(name, np.asarray(values, np.float64), coarse_edges(kind), epsilon / 2, curator)
    return found


def counted(values: Sequence[str]) -> dict[str, int]:
    """How often each text occurs."""
    names, counts = np.unique(np.asarray(values, dtype=str), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist()))


def coarse_edges(kind: Kind) -> Reals:
    """Public cells of the first histogram: powers of two of either sign, or years."""
    if kind == "days":
        return np.arange(_FIRST_DAY, _LAST_DAY + _YEAR, _YEAR, dtype=np.float64)
    return np.concatenate([-_POWERS[::-1], [0.0], _POWERS])


def histogram(values: Reals, edges: Reals) -> BoundedSum:
    """Records in the cells [e_i, e_(i+1)), those outside in the nearest: one record moves one cell by 1.

    >>> histogram(np.array([0.5, 7.0, -3.0]), np.array([0.0, 1.0, 2.0])).values.tolist()
    [2, 1]
    """
    cell = (np.searchsorted(edges, values, side="right") - 1).clip(0, len(edges) - 2)
    counts = np.bincount(cell, minlength=len(edges) - 1).astype(np.int64)
    return BoundedSum(torch.from_numpy(counts), 1.0, norm="l1")


def _range(name: str, values: Reals, edges: Reals, epsilon: float, curator: Curator) -> tuple[float, float]:
    """From the first to the last cell that looks occupied: of public cells, then of equal parts of what they leave.

    There are as many parts as the budget can see: their average count is four times what noise alone reaches in one.
    """
    for part in (COARSE, FINE):
        counts = histogram(values, edges)
        noisy = curator.laplace(f"{part} of {name}", counts, epsilon).numpy()
        visible = (1 + math.log(len(noisy) / _FALSE_CELL)) * curator.rows * counts.under(curator.relation) / epsilon
        occupied = np.flatnonzero(noisy >= visible)
        if len(occupied):
            edges = edges[[occupied[0], occupied[-1] + 1]]
        elif part == COARSE:  # too few records for this budget: the likeliest cell
            edges = edges[[noisy.argmax(), noisy.argmax() + 1]]
        if part == COARSE:
            total = noisy[occupied].sum() if len(occupied) else 0
            edges = np.linspace(edges[0], edges[1], int(np.clip(total / (4 * visible), 4, _CELLS)) + 1)
    return float(edges[0]), float(edges[-1])
