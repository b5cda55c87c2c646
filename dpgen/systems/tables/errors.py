r"""Squared errors of measured marginals, :math:`\tfrac12 \sum_i (n p(i) - y_i)^2 / \sigma^2`, with gradients in a mixture.

Each class takes marginals of one kind, and adds its gradients in stacked probabilities p (sum of sizes, K) and weights w (K,).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpgen.systems.tables.marginals import shape, together

if TYPE_CHECKING:
    from dpgen.systems.tables.marginals import Coarsening, Measurement

Floats = npt.NDArray[np.float32]

_CHUNK = 16  # triples that are computed together: what they need stays in the cache
_CALL, _CELL = 500, 2.5  # what a pair and its cells take, in cells of a product that has all pairs of a level


class Pairs:
    """Measured marginals of one or two columns: of one as a sparse matrix, of two by level (`_Level`)."""

    def __init__(
        self, measurements: Sequence[Measurement], levels: Sequence[Coarsening], sizes: tuple[int, ...], n: float
    ) -> None:
        from scipy.sparse import csr_matrix

        offsets, rows, columns, base = np.cumsum([0, *sizes]), list[Any](), list[Any](), 0
        singles = [m for m in measurements if len(m.marginal.columns) == 1]
        for m in singles:
            [c] = m.marginal.columns
            rows.append(base + levels[m.marginal.level].groups[c])
            columns.append(offsets[c] + np.arange(sizes[c]))
            base += m.values.size
        at = (np.concatenate([*rows, np.empty(0, np.int64)]), np.concatenate([*columns, np.empty(0, np.int64)]))
        self._sums = csr_matrix((np.ones(len(at[0]), np.float32), at), shape=(base, offsets[-1]))
        self._spread = self._sums.T.tocsr()
        found = [(m.values.ravel() / n, _precisions(m, n).ravel()) for m in singles]
        self._values, self._precisions = (np.concatenate([own[i] for own in found] or [np.empty(0)]) for i in (0, 1))
        self._values, self._precisions = self._values.astype(np.float32), self._precisions.astype(np.float32)
        pairs = [m for m in measurements if len(m.marginal.columns) == 2]
        self._levels = [
            _Level([pairs[i] for i in numbers], levels[level], n) for level, numbers in together([m.marginal for m in pairs])
        ]

    def add_gradients(self, p: Floats, w: Floats, of_p: Floats, of_w: Floats) -> None:
        single = self._spread @ (self._precisions * (self._sums @ (p @ w) - self._values))
        of_w += single @ p
        of_p += single[:, None] * w
        for level in self._levels:
            level.add_gradients(p, w, of_p, of_w)


class _Level:
    """Measured pairs of columns at one level: each as a product of matrices, or all in one product where these take longer."""

    def __init__(self, measurements: Sequence[Measurement], level: Coarsening, n: float) -> None:
        from scipy.sparse import csr_matrix

        begin, full = np.cumsum([0, *level.sizes]), all(len(group) == size for group, size in zip(level.groups, level.sizes))
        self._sums = None if full else csr_matrix(level.matrix())
        self._spread = None if self._sums is None else self._sums.T.tocsr()
        self._parts = []
        for m in measurements:
            rows, columns = (slice(int(begin[c]), int(begin[c + 1])) for c in m.marginal.columns)
            self._parts.append((rows, columns, (m.values / n).astype(np.float32), _precisions(m, n).astype(np.float32)))
        cells = sum(m.values.size for m in measurements)
        self._all: tuple[Floats, Floats] | None = None
        if begin[-1] ** 2 <= _CALL * len(measurements) + _CELL * cells:
            precisions, aims = np.zeros((2, begin[-1], begin[-1]))
            for rows, columns, values, own in self._parts:  # of one pair there may be two
                precisions[rows, columns] += own
                aims[rows, columns] += own * values
            aims /= np.maximum(precisions, 1e-300)
            self._all = aims.astype(np.float32), precisions.astype(np.float32)

    def add_gradients(self, p: Floats, w: Floats, of_p: Floats, of_w: Floats) -> None:
        coarse = p if self._sums is None else self._sums @ p
        weighted = coarse * w
        if self._all is not None:
            values, precisions = self._all
            slope = weighted @ coarse.T
            slope -= values
            slope *= precisions
            pulled = slope @ coarse + slope.T @ coarse
        else:
            pulled = np.zeros_like(coarse)
            for rows, columns, values, precisions in self._parts:
                slope = precisions * (weighted[rows] @ coarse[columns].T - values)
                pulled[rows] += slope @ coarse[columns]
                pulled[columns] += slope.T @ coarse[rows]
        of_w += 0.5 * np.einsum("dk,dk->k", coarse, pulled)
        pulled *= w
        of_p += pulled if self._spread is None else self._spread @ pulled


def _precisions(m: Measurement, n: float) -> npt.NDArray[np.float64]:
    """1 / noise variance of each share of a marginal."""
    return np.broadcast_to((n / np.asarray(m.noise_std)) ** 2, m.values.shape)


class Triples:
    """Measured marginals of three columns at one level, padded to one shape."""

    def __init__(self, measurements: Sequence[Measurement], level: Coarsening, n: float) -> None:
        from scipy.sparse import csr_matrix

        self._sums = csr_matrix(level.matrix())
        self._spread = self._sums.T.tocsr()
        begin, m = np.cumsum([0, *level.sizes]), max(level.sizes[c] for x in measurements for c in x.marginal.columns)
        padding = begin[-1]  # a row of zeros below all groups
        self._index = np.full((3, len(measurements), m), padding, np.int64)
        self._values = np.zeros((len(measurements), m, m, m), np.float32)
        for i, x in enumerate(measurements):
            cells = shape(x.marginal, [level] * (x.marginal.level + 1))
            for axis, (c, size) in enumerate(zip(x.marginal.columns, cells)):
                self._index[axis, i, :size] = begin[c] + np.arange(size)
            self._values[i, : cells[0], : cells[1], : cells[2]] = x.values / n
        stds = np.array([float(np.mean(x.noise_std)) for x in measurements])  # of a release that was loaded: one for each cell
        self._precisions = ((n / stds) ** 2).astype(np.float32)[:, None, None, None]
        flat = self._index.ravel()
        ones = np.ones(len(flat), np.float32)
        self._gather = csr_matrix((ones, (flat, np.arange(len(flat)))), shape=(padding + 1, len(flat)))

    def add_gradients(self, p: Floats, w: Floats, of_p: Floats, of_w: Floats) -> None:
        coarse = np.concatenate([self._sums @ p, np.zeros((1, len(w)), np.float32)])
        slopes = np.empty((*self._index.shape, len(w)), np.float32)
        for start in range(0, slopes.shape[1], _CHUNK):
            part = slice(start, start + _CHUNK)
            of_w += self._slopes(coarse[self._index[:, part]], w, part, slopes[:, part])
        of_p += self._spread @ (self._gather @ slopes.reshape(-1, len(w)))[:-1]

    def _slopes(self, coarse: Floats, w: Floats, part: slice, slopes: Floats) -> Floats:
        """Gradients of some triples, in their three columns (3, t, m, K) and in w, which is returned."""
        a, b, c = coarse
        t, m, k = a.shape
        first = ((a * w)[:, :, None] * b[:, None]).reshape(t, m * m, k)
        residual = np.matmul(first, c.transpose(0, 2, 1)).reshape(t, m, m, m)
        residual = (self._precisions[part] * (residual - self._values[part])).reshape(t, m * m, m)
        of_first = np.matmul(residual, c).reshape(t, m, m, k)
        of_a = np.einsum("tabk,tbk->tak", of_first, b)
        np.multiply(of_a, w, out=slopes[0])
        np.multiply(np.einsum("tabk,tak->tbk", of_first, a), w, out=slopes[1])
        np.matmul(residual.transpose(0, 2, 1), first, out=slopes[2])
        return np.asarray(np.einsum("tak,tak->k", of_a, a))


class Deep:
    """A measured marginal of four columns or more.

    Where products lie in one group each of all its columns, or of all but one, as `inside` (sum of sizes, K) says, its cells
    are sums over these. Else they are sums of products of columns.
    """

    def __init__(
        self, m: Measurement, level: Coarsening, sizes: Sequence[int], n: float, inside: npt.NDArray[np.bool_] | None = None
    ) -> None:
        starts = np.cumsum([0, *sizes])
        rows = {c: slice(starts[c], starts[c + 1]) for c in m.marginal.columns}
        sums = {c: np.eye(level.sizes[c], dtype=np.float32)[:, level.groups[c]] for c in m.marginal.columns}
        touched = {c: sums[c] @ inside[rows[c]] > 0 for c in rows} if inside is not None else {}
        certain = [c for c in touched if (touched[c].sum(0) == 1).all()]
        order = [*certain, *(c for c in rows if c not in certain)]
        self._held = len(order) - len(certain) < 2
        if self._held:
            places = [touched[c].argmax(0) for c in order[:-1]]
            self._place = np.ravel_multi_index(places, [level.sizes[c] for c in order[:-1]])
        self._rows, self._sums = [rows[c] for c in order], [sums[c] for c in order]
        axes = [m.marginal.columns.index(c) for c in order]
        self._values = (m.values.transpose(axes).reshape(-1, level.sizes[order[-1]]) / n).astype(np.float32)
        self._precision = np.float32((n / float(np.mean(m.noise_std))) ** 2)

    def add_gradients(self, p: Floats, w: Floats, of_p: Floats, of_w: Floats) -> None:
        blocks = [sums @ p[rows] for rows, sums in zip(self._rows, self._sums)]
        last = blocks[-1]
        if self._held:
            joint = self._joint(last * w)
            slope = (self._precision * (joint - self._values))[self._place].T
            of_w += np.einsum("mk,mk->k", slope, last)
            of_p[self._rows[-1]] += self._sums[-1].T @ (slope * w)
            return
        lefts = [np.ones((1, len(w)), np.float32)]
        for block in blocks[:-1]:
            lefts.append((lefts[-1][:, None] * block[None]).reshape(-1, len(w)))
        residual = self._precision * ((lefts[-1] * w) @ last.T - self._values)
        of_p[self._rows[-1]] += self._sums[-1].T @ (residual.T @ lefts[-1] * w)
        slope = residual @ last
        of_w += np.einsum("rk,rk->k", slope, lefts[-1])
        for rows, sums, block, left in reversed(list(zip(self._rows[:-1], self._sums, blocks, lefts))):
            slope = slope.reshape(len(left), len(block), -1)
            of_p[rows] += sums.T @ (np.einsum("lgk,lk->gk", slope, left) * w)
            slope = np.einsum("lgk,gk->lk", slope, block)

    def _joint(self, weighted: Floats) -> Floats:
        """Sums (cells of the first columns, m) of what products (m, K) have in the last one."""
        return np.stack([np.bincount(self._place, own, len(self._values)) for own in weighted], axis=1).astype(np.float32)
