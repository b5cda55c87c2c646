"""Combinations of groups that public constraints exclude, which a fit gives next to no probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from dpgen.schema import Schema
    from dpgen.systems.tables.columns import Columns

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Zero:
    r"""Groups that do not occur together: a sum of products of sets, :math:`\sum_t \prod_c F_c[t] \cdot p_{kc}` in a component.

    Arguments:
        rows: where the groups of each of its columns stand among the stacked ones.
        factors: F of each of its columns (t, groups), the share of a group that takes part.
    """

    rows: tuple[slice, ...]
    factors: tuple[Floats, ...]

    def mass(self, p: Floats) -> Floats:
        """Its probability (K,) in components whose stacked columns are p (sum of groups, K)."""
        return np.asarray(np.multiply.reduce(self._parts(p)).sum(0))

    def add_gradients(self, weight: float, p: Floats, w: Floats, of_p: Floats, of_w: Floats) -> None:
        """Of `weight` times its probability, in p and w."""
        parts = self._parts(p)
        of_w += weight * np.multiply.reduce(parts).sum(0)
        for i, (rows, factor) in enumerate(zip(self.rows, self.factors)):
            others = np.multiply.reduce(parts[:i] + parts[i + 1 :])
            of_p[rows] += weight * w * (factor.T @ others if len(parts) > 1 else factor.sum(0)[:, None])

    def _parts(self, p: Floats) -> list[Floats]:
        return [factor @ p[rows] for rows, factor in zip(self.rows, self.factors)]


def zeros_of(schema: Schema, columns: Columns) -> list[Zero]:
    """What the constraints of a schema exclude among the groups of released columns."""
    names, ends = schema.domain.names, np.cumsum([0, *columns.coarse.sizes])
    found = []
    for constraint in schema.constraints:
        numbers = [names.index(name) for name in constraint.names if name in names]
        factors = constraint.impossible(schema.by_name) if len(numbers) == len(constraint.names) else None
        if factors is None:
            continue
        grouped = list[Floats]()
        for c, factor in zip(numbers, factors):
            group, share, size = columns.coarse.groups[c], columns.shares[c], columns.coarse.sizes[c]
            inside = np.zeros((len(group), size), np.float32)
            inside[np.arange(len(group)), group] = share / np.bincount(group, share)[group]
            grouped.append(factor[:, : len(group)].astype(np.float32) @ inside)
        if len(grouped) == 2 and len(grouped[0]) > grouped[0].shape[1]:  # the same sum of products with fewer of them
            grouped = [np.eye(grouped[0].shape[1], dtype=np.float32), grouped[0].T @ grouped[1]]
        found.append(Zero(tuple(slice(ends[c], ends[c + 1]) for c in numbers), tuple(grouped)))
    return found
