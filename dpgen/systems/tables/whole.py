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
Tables of blocks and of questions have their noise taken off by the first step (`denoised`).

Source: interactions as orthogonal parts, Xiao, He, Zhang, Kifer 2023; shrinking, James and Stein 1961; the law of greatest
entropy, Deming and Stephan 1940.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import torch

from dpgen.systems.simplex_projection import project_to_simplex
from dpgen.systems.tables.marginals import Flags, Measurement, Reals
from dpgen.systems.tables.mixture import Mixture

if TYPE_CHECKING:
    from dpgen.schema import Schema
    from dpgen.systems.tables.marginals import Columns

_SWEEPS = 30  # over pairs, and over columns
_CLEAR = 3.0  # stds of a chi-square over its mean, from which on an interaction stands out by itself
_SPARSE = 1 / 8  # of the cells above 0
_EMPTY = 0.1  # records, below which a group of a column was bought as empty


# -- interactions of columns -------------------------------------------------------------------------------------------


def denoised(y: Reals, std: float, n: float, seen: Flags) -> Reals:
    """Counts of cells with less noise: pairs of columns as they are, other interactions by what stands out."""
    first = (n * projected(_shrunk(y, std), n, seen) + seen / seen.sum()) / (n + 1)
    expected = n * of_margins(first, seen, 2)
    return np.asarray(expected + _shrunk(y - expected, std))


def _shrunk(y: Reals, std: float) -> Reals:
    """Counts whose interactions are shrunk to what stands out of the noise."""
    from scipy.linalg import helmert

    sizes_of = [size for size in y.shape if size > 1]  # columns of one value interact with none
    d, bases = len(sizes_of), [helmert(size, full=True) for size in sizes_of]
    parts = _turned(y.reshape(sizes_of), bases)
    inside = [np.minimum(np.arange(size), 1) << c for c, size in enumerate(sizes_of)]
    which = reduce(np.add.outer, inside, np.zeros((), np.int64))  # the set of columns that an entry is an interaction of
    squares = np.bincount(which.ravel(), np.square(parts).ravel(), 2**d)
    sizes = np.bincount(which.ravel(), minlength=2**d)
    order = np.array([bin(subset).count("1") for subset in range(2**d)])
    of_order = np.bincount(order, squares) / np.maximum(np.bincount(order, sizes), 1)
    mean, clear = squares / np.maximum(sizes, 1), 1.0 + _CLEAR * np.sqrt(2.0 / np.maximum(sizes, 1))
    mean = np.maximum(np.where(mean > clear * std**2, mean, 0.0), of_order[order])
    kept = np.maximum(0.0, 1.0 - std**2 / np.maximum(mean, 1e-300))
    kept[0] = 1.0
    return _turned(parts * kept[which], [basis.T for basis in bases]).reshape(y.shape)


def _turned(values: Reals, bases: Sequence[Reals]) -> Reals:
    """A linear map of every axis."""
    for axis, basis in enumerate(bases):
        values = np.moveaxis(np.tensordot(basis, values, (1, axis)), 0, axis)
    return values


def of_margins(law: Reals, seen: Flags, size: int) -> Reals:
    """The law of greatest entropy on `seen` cells with the margins of so many columns of another, by proportional fitting."""
    d, found = law.ndim, seen / seen.sum()
    others = [tuple(c for c in range(d) if c not in kept) for kept in combinations(range(d), min(size, d - 1))]
    wanted = [law.sum(axes, keepdims=True) for axes in others]
    for _ in range(_SWEEPS):
        for axes, sums in zip(others, wanted):
            found = found * (sums / np.maximum(found.sum(axes, keepdims=True), 1e-300))
    return np.asarray(found / found.sum())


def projected(y: Reals, n: float, seen: Flags) -> Reals:
    """The nearest law on `seen` cells."""
    law = np.zeros(y.shape)
    law[seen] = project_to_simplex(y[seen] / n)
    return law


# -- a table of all columns --------------------------------------------------------------------------------------------


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
    """Cells of groups of columns that the constraints of a schema do not exclude."""
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
