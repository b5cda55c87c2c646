"""What is released of single columns first: sizes of everything later depend on it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpgen.systems.simplex_projection import project_to_simplex
from dpgen.systems.tables.marginals import Coarsening, Counts, Integers, Marginal, Measurement, Reals, shape

if TYPE_CHECKING:
    from dpgen.privacy.gaussian_budget import GaussianBudget
    from dpgen.schema import TableDomain

NOTE = "marginals of columns"
MOST_CLASSES = 4
"""Of a target that is counted beside every column from the start."""
MOST_GROUPS = 64
"""Groups of a column in the mixture; codes inside a group follow their own released shares."""
_SMOOTHING = 0.5  # records that are added to every code


@dataclass(frozen=True, eq=False)
class Columns:
    """Released shares of the codes of every column.

    Arguments:
        shares: of each column (size,), above 0 and summing to 1.
        n: noisy number of records, at least 1.
        coarse: the groups of codes that the mixture sees.
        measurements: marginals of these groups.
    """

    shares: tuple[Reals, ...]
    n: float
    coarse: Coarsening
    measurements: tuple[Measurement, ...]

    @property
    def group_shares(self) -> list[Reals]:
        """Shares of the groups that the mixture sees, of each column."""
        return [np.bincount(group, share).astype(np.float64) for group, share in zip(self.coarse.groups, self.shares)]


def first_marginals(domain: TableDomain, *, alone: bool) -> list[Marginal]:
    """Every column, beside the target where that has few classes and other marginals will follow."""
    sizes, target = domain.sizes, domain.target
    paired = target is not None and not alone and sizes[target] <= MOST_CLASSES
    beside = [c for c in range(len(sizes)) if paired and c != target and sizes[c] <= MOST_GROUPS]
    pairs = [Marginal(tuple(sorted((c, target))), 0) for c in beside if target is not None]
    single = [c for c in range(len(sizes)) if c not in beside and not (beside and c == target)]
    return pairs + [Marginal((c,), 0) for c in single]


def release_columns(
    codes: Integers, domain: TableDomain, budget: GaussianBudget, share: float, count: tuple[float, float], *, alone: bool
) -> Columns:
    r"""Noisy marginals of columns for `share` of the budget's 1 / s^2.

    The error of the shares of m cells grows like :math:`m \sigma`; the sum of all errors is least where 1 / s^2 is shared like
    :math:`m^{2/3}`.

    Arguments:
        count: noisy number of records, and its noise std.
        alone: nothing else will be measured.
    """
    full = Coarsening.full(domain.sizes)
    marginals = first_marginals(domain, alone=alone)
    counts = Counts.of(codes, marginals, [full])
    cells = np.diff(counts.starts)
    parts = share * cells ** (2 / 3) / (cells ** (2 / 3)).sum()
    released = []
    for i, (marginal, part) in enumerate(zip(marginals, parts)):
        values, std = budget.sums(NOTE, counts.sums(i), float(part))
        released.append(Measurement(marginal, values.numpy().reshape(shape(marginal, [full])), std))
    n = max(1.0, _combined([count, *((float(m.values.sum()), m.noise_std * m.values.size**0.5) for m in released)]))
    shares = tuple(_shares(released, c, n) for c in range(len(domain.sizes)))
    coarse = Coarsening.of(shares, MOST_GROUPS, ordered=domain.ordered, missing=domain.missing)
    return Columns(shares, n, coarse, tuple(_in_groups(m, coarse) for m in released))


def _combined(values: Sequence[tuple[float, float]]) -> float:
    """Mean of values with these noise stds, weighted by 1 / variance."""
    weights = [std**-2 for _, std in values]
    return sum(value * weight for (value, _), weight in zip(values, weights)) / sum(weights)


def _shares(released: Sequence[Measurement], column: int, n: float) -> Reals:
    """Shares of the codes of a column, from all marginals that it is in, with half a record added to each."""
    total, precision = 0.0, 0.0
    for m in released:
        if column in m.marginal.columns:
            other = tuple(axis for axis, c in enumerate(m.marginal.columns) if c != column)
            values, weight = m.values.sum(other), values_precision(m, other)
            total, precision = total + weight * values, precision + weight
    smoothed = project_to_simplex(np.asarray(total) / precision / n) * n + _SMOOTHING
    return np.asarray(smoothed / smoothed.sum())


def values_precision(measured: Measurement, axes: tuple[int, ...]) -> float:
    """1 / variance of sums over axes."""
    cells = int(np.prod([measured.values.shape[axis] for axis in axes]))
    return 1.0 / (float(measured.noise_std) ** 2 * cells)


def _in_groups(measured: Measurement, coarse: Coarsening) -> Measurement:
    """The measurement with the codes of every column added up to groups; larger groups have more noise."""
    values, cells = measured.values, np.ones(measured.values.shape)
    for axis, c in enumerate(measured.marginal.columns):
        group, size = coarse.groups[c], coarse.sizes[c]
        if size < len(group):
            values, cells = (_added_up(x, axis, group, size) for x in (values, cells))
    return Measurement(measured.marginal, values, measured.noise_std * np.sqrt(cells))


def _added_up(values: Reals, axis: int, group: Integers, size: int) -> Reals:
    ahead = np.moveaxis(values, axis, 0)
    result = np.zeros((size, *ahead.shape[1:]))
    np.add.at(result, group, ahead)
    return np.moveaxis(result, 0, axis)
