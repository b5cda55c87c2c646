"""Interactions of columns in a table of counts: orthogonal parts, one for each set of columns, shrunk to what noise leaves.

Source: Xiao, He, Zhang, Kifer 2023; shrinking, James and Stein 1961; the law of greatest entropy, Deming and Stephan 1940.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpgen.systems.simplex_projection import project_to_simplex

Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_SWEEPS = 30  # over pairs
_CLEAR = 3.0  # stds of a chi-square over its mean, from which on an interaction stands out by itself


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
    which = reduce(
        np.add.outer, inside, np.zeros((), np.int64)
    )  # of each entry, the set of columns that it is an interaction of
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
