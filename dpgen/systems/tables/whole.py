r"""A small table, released whole: its noisy cells as a law of all columns together.

The cells y have noise of one standard deviation :math:`\sigma`. Three things are known of a table beside them, and each takes
noise away without holding back what stands out of it:

1. Dependence is of low order as a rule. m is the law of greatest entropy with the pairs of columns of y, and what y has beyond
   n m is cut into interactions, one for each set of columns: those parts are orthogonal, and noise has :math:`\sigma^2` in
   each of their dimensions. Each is multiplied by :math:`\max(0, 1 - \sigma^2 / \bar e)`, with :math:`\bar e` the mean square
   of a dimension: its own where it clearly stands out of noise, or that of all interactions of its order if that is greater.
   So a parity of four columns stays whole, and the other interactions shrink.
2. Cells are at least 0, and together 1: the nearest such law.
3. Columns were counted alone as well: their shares are the mean of both counts, weighted by 1 / variance. Cells that are cut
   at 0 would make rare values frequent.

A record is added, spread like independent columns, so no cell that constraints allow is impossible.

The law is a mixture of products: a class for each cell of all columns but the largest, which has its own law in each class.

Source: interactions as orthogonal parts, Xiao, He, Zhang, Kifer 2023; shrinking, James and Stein 1961; the law of greatest
entropy, Deming and Stephan 1940.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import torch

from dpgen.systems.simplex_projection import project_to_simplex
from dpgen.systems.tables.interactions import Flags, Reals, denoised, projected
from dpgen.systems.tables.marginals import Measurement
from dpgen.systems.tables.mixture import Mixture

if TYPE_CHECKING:
    from dpgen.schema import Schema
    from dpgen.systems.tables.marginals import Columns

_SWEEPS = 30  # over pairs, and over columns
_SPARSE = 1 / 8  # of the cells above 0
_EMPTY = 0.1  # records, below which a group of a column was bought as empty


def table_of(measurements: Sequence[Measurement], d: int) -> Measurement:
    """The one of all d columns together."""
    return next(m for m in measurements if len(m.marginal.columns) == d)


def whole_mixture(columns: Columns, schema: Schema, measurements: Sequence[Measurement] | None = None) -> Mixture:
    """The law of all columns together, by noisy counts of all their cells, and of columns alone, as a mixture.

    `measurements` stand in for those of the columns.
    """
    measurements, shares, n = columns.measurements if measurements is None else measurements, columns.group_shares, columns.n
    table, allowed = table_of(measurements, len(shares)), _allowed(columns, schema)
    alone = [[m for m in measurements if m.marginal.columns == (c,)] for c in range(len(shares))]
    seen = allowed & (reduce(np.minimum.outer, shares) > _EMPTY / n)
    std = float(np.mean(np.square(table.noise_std)) ** 0.5)
    y = np.where(seen, table.values, 0.0)
    law = projected(denoised(y, std, n, seen), n, seen)
    law = _with_columns(law, [_column(y, law, c, own, std, n) for c, own in enumerate(alone)], seen)
    product = np.where(allowed, reduce(np.multiply.outer, shares), 0.0)
    return table_mixture((n * law + product / product.sum()) / (n + 1))


def _allowed(columns: Columns, schema: Schema) -> Flags:
    """Which cells of groups of columns the constraints of a schema do not exclude."""
    sizes = columns.coarse.sizes
    found = np.zeros(sizes, bool)
    codes = np.stack(np.unravel_index(np.arange(math.prod(schema.domain.sizes)), schema.domain.sizes), axis=1)
    there = codes[schema.admissible(torch.from_numpy(codes)).numpy()]
    found[tuple(columns.coarse.apply(there))] = True
    return found


def table_mixture(law: Reals) -> Mixture:
    """The law of a table (sizes) as a mixture.

    >>> law = np.array([[0.1, 0.2, 0.0], [0.3, 0.0, 0.4]])
    >>> bool(np.allclose(table_mixture(law).marginal([0, 1]), law))
    True
    """
    last = int(np.argmax(law.shape))
    rows = np.moveaxis(law, last, -1).reshape(-1, law.shape[last])
    weights = rows.sum(1)
    there = np.flatnonzero(weights > 0)
    others = [size for c, size in enumerate(law.shape) if c != last]
    blocks = [np.equal.outer(np.arange(size), own) for size, own in zip(others, np.unravel_index(there, others))]
    blocks.insert(last, (rows[there] / weights[there, None]).T)
    total = weights[there] / weights[there].sum()
    return Mixture(np.concatenate(blocks).astype(np.float32), total.astype(np.float32), law.shape)


def _column(y: Reals, law: Reals, c: int, alone: Sequence[Measurement], std: float, n: float) -> Reals:
    """Shares of a column: the mean of what cells y and its own counts say, by 1 / variance.

    Cells say it without bias. Of a law of few cells above 0 noise is in these alone.
    """
    axes, sparse = _but(c, law.ndim), float((law > 0).mean()) < _SPARSE
    cells = np.maximum((law > 0).sum(axes), 1) if sparse else np.full(law.shape[c], law.size / law.shape[c])
    precision = 1.0 / (std**2 * cells)
    total = precision * (n * law if sparse else y).sum(axes)
    for m in alone:
        own = 1.0 / np.square(np.broadcast_to(m.noise_std, m.values.shape))
        total, precision = total + own * m.values, precision + own
    return project_to_simplex(total / precision / n)


def _with_columns(law: Reals, wanted: Sequence[Reals], seen: Flags) -> Reals:
    """The law with these shares of its columns: all cells above 0 that a share is about move by the same amount.

    A value that noise hides in every cell goes along with the other columns as all values do.
    """
    for c, shares in enumerate(wanted):
        hidden = np.where(law.sum(_but(c, law.ndim)) > 0, 0.0, shares)
        law = law + seen * law.sum(c, keepdims=True) * np.expand_dims(hidden, _but(c, law.ndim))
    live = law > 0
    for _ in range(_SWEEPS):
        for c, shares in enumerate(wanted):
            axes = _but(c, law.ndim)
            gap = (shares - law.sum(axes)) / np.maximum(live.sum(axes), 1)
            law = np.maximum(law + live * np.expand_dims(gap, axes), 0.0)
    return np.asarray(law / law.sum())


def _but(c: int, d: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(d) if axis != c)
