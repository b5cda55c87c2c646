r"""A column of people that others will predict from their rows: it is drawn last, given the rest of the person and the rows.

Noisy tables :math:`T_{kj}` of its class k with each other column of people, and with each column of their rows, stand in the
release. A person has one whole in each of them, see `sums`: :math:`x_j` is the share of their rows in group j of a column. The
class follows a multinomial logistic law,

.. math:: P(k \mid x) = \frac{s_k e^{w_k \cdot x}}{\sum_l s_l e^{w_l \cdot x}},

whose w lower, over people i drawn from the release,

.. math:: \sum_{kj} \frac{(\sum_i P(k \mid x_i) x_{ij} - a_{kj})^2}{2 \sigma_{kj}^2} + \frac{|w|^2}{2 \tau^2}, \quad
    a_{kj} = \frac{T_{kj}}{\sum_l T_{lj}} \sum_i x_{ij}.

So rates of classes in each group are those that were measured. All of it is post-processing of released sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dpgen.systems.relational.sums import Integers, Layout, Level, NoisySums, Reals, Shape, Table, place_of

SHARE = 0.15
"""Share of mu^2 for tables with the target."""
PEOPLE = 16_384
"""People of the public draw on which coefficients are fitted."""

_PRIOR, _STEPS = 0.6, 100  # tau, and steps of L-BFGS
_LEAST_STD = 1.0

Feature = tuple[int, int]
"""Number of a table, and of a column there."""


def target_tables(layout: Layout, level: int, c: int) -> list[Table]:
    """Tables at a level of a column of people with all others, and with the columns that all rows have; none of one group."""
    shape, found = layout.shape.grouped(layout.levels[level]), list[Table]()
    for other in range(len(shape.people)):
        found += [Table(("people", "person", "person"), min(c, other), max(c, other), level)] if other != c else []
    for block in shape.blocks:
        kind, left, right = block
        if kind == "both" and left == "person" and place_of(right)[1] == "all":
            found += [Table(block, c, other, level) for other in range(len(shape.columns(right)))]
    return [table for table in found if min(layout.cells(table).shape) > 1]


def features_of(layout: Layout, level: int, c: int) -> list[Feature]:
    """The columns beside a column of people in its tables."""
    return [feature_of(table, layout.shape, c) for table in target_tables(layout, level, c)]


def feature_of(table: Table, shape: Shape, c: int) -> Feature:
    """The column beside the target in a table."""
    number, _ = place_of(table.block[2])
    other = table.right if number or table.left == c else table.left
    return number, shape.columns(table.block[2])[other] if number else other


def groups_of(features: Sequence[Feature], level: Level) -> dict[Feature, Integers]:
    """Groups of the groups of codes of some columns."""
    return {(number, c): level[number].groups[c] for number, c in features}


@dataclass(frozen=True, eq=False)
class Target:
    """The law of a column of people given the person and the rows.

    Arguments:
        column: number of the column among those of people.
        level: of the groups, which are its classes and the values of the features.
        groups: group (size,) of each group of codes of the features, and of itself last.
        weights: w (sum of the groups of the features, classes).
        base: s (classes,).
    """

    column: int
    level: int
    groups: Mapping[Feature, Integers]
    weights: Reals
    base: Reals

    @classmethod
    def fitted(cls, noisy: NoisySums, column: int, level: int, parts: Mapping[Feature, Reals]) -> Target:
        """The law of a column from its tables at a level; `parts` are x (n, groups) of each other column, of drawn people."""
        shape, tables = noisy.layout.shape, {table: (values, std) for table, values, std in noisy.tables}
        wanted = target_tables(noisy.layout, level, column)
        measured = [_by_class(table, column, *tables[table]) for table in wanted]
        features = [feature_of(table, shape, column) for table in wanted]
        x = np.concatenate([parts[own] for own in features], axis=1)
        counts, stds = (np.concatenate(own) for own in zip(*measured))
        totals = np.maximum(np.mean([own.sum(0) for own, _ in measured], axis=0), 1.0)
        base = totals / totals.sum()
        scale = x.sum(0)[:, None] / np.maximum(counts.sum(1, keepdims=True), stds[:, :1])
        noise = np.hypot(scale * stds, _LEAST_STD)
        groups = groups_of([*features, (0, column)], noisy.layout.levels[level])
        return cls(column, level, groups, _coefficients(x, base, scale * counts, noise), base)

    @property
    def features(self) -> list[Feature]:
        """Columns that it depends on, and itself."""
        return list(self.groups)

    def law(self, parts: Mapping[Feature, Reals]) -> Reals:
        """Probabilities (n, classes) of people with these features."""
        x = np.concatenate([parts[own] for own in self.features if own != (0, self.column)], axis=1)
        logits = np.log(self.base) + x @ self.weights
        law = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(law / law.sum(1, keepdims=True))


def _by_class(table: Table, c: int, values: Reals, std: Any) -> tuple[Reals, Reals]:
    """Counts (groups, classes) of a table with column c, and their noise stds."""
    counts = values.T if table.block[0] == "both" or table.left == c else values
    return counts, np.broadcast_to(np.mean(std), counts.shape)


def _coefficients(x: Reals, base: Reals, aim: Reals, noise: Reals) -> Reals:
    """Coefficients (features, classes) whose expected counts are close to `aim`, by L-BFGS from 0."""
    features, logs, wanted, stds = (torch.from_numpy(np.ascontiguousarray(own)) for own in (x, np.log(base), aim, noise))
    w = torch.zeros_like(wanted, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        gaps = (features.T @ (logs + features @ w).softmax(1) - wanted) / stds
        loss = 0.5 * gaps.square().sum() + 0.5 * (w / _PRIOR).square().sum()
        loss.backward()
        return float(loss.detach())

    optimizer.step(closure)
    return w.detach().numpy()
