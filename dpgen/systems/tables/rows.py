"""Rows of a mixture: independent draws, and whole tables whose counts agree with the model's."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpgen.privacy.draws import compiled
from dpgen.systems.tables.mixture import Floats, Mixture

Codes = npt.NDArray[np.int64]

_compile = compiled()

_MOST_CELLS = 2**24  # of all triples together: more of them are left out
PAIR, ONE = np.float32(2.0), np.float32(1.0)  # weights of cells of two and of three columns


def iid_rows(mixture: Mixture, n: int, generator: np.random.Generator) -> Codes:
    """n independent rows of codes (n, d)."""
    component = np.sort(np.searchsorted(edges(mixture.weights.astype(np.float64)), generator.random(n), side="right"))
    rows = filled(mixture, component, lambda count: generator.random(count))
    return np.asarray(generator.permutation(rows))


def matched_rows(mixture: Mixture, n: int, generator: np.random.Generator) -> Codes:
    r"""n rows whose counts in all pairs and triples of columns are close to n times the model's.

    Systematic draws of components and of values in each component, then one pass over all cells in random order: a cell whose
    value too many rows hold takes the value that lowers :math:`\sum |n p - \text{count}|` over cells of triples and, with
    weight 2, of pairs the most. Rows are not independent any more; it is post-processing of the model.
    """
    ends = edges(mixture.weights.astype(np.float64))
    component = np.searchsorted(ends, (np.arange(n) + generator.random()) / max(n, 1), side="right")

    def systematic(count: int) -> npt.NDArray[np.float64]:
        return np.asarray(generator.permutation((np.arange(count) + generator.random()) / max(count, 1)))

    rows = filled(mixture, component, systematic)
    sizes = np.array(mixture.sizes)
    if n and len(sizes) > 1:
        pairs, pair_at = _gaps(mixture, rows, 2)
        cells = sum(math.prod(chosen) for chosen in combinations(mixture.sizes, 3)) if len(sizes) < 100 else math.inf
        deep = len(sizes) > 2 and cells <= _MOST_CELLS
        triples, triple_at = _gaps(mixture, rows, 3) if deep else (np.zeros(1, np.float32), np.zeros((1, 1, 1), np.int64))
        _move(rows, generator.permutation(rows.size), sizes, pairs, pair_at, triples, triple_at, deep)
    return np.asarray(generator.permutation(rows))


def edges(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Upper ends of the components but the last on [0, 1)."""
    total = np.cumsum(weights)
    return np.asarray(total[:-1] / total[-1])


def filled(mixture: Mixture, component: Codes, uniforms) -> Codes:  # type: ignore[no-untyped-def]
    """Codes (n, d) of rows whose components (n,) are sorted."""
    ends = np.bincount(component, minlength=len(mixture.weights)).cumsum()
    rows = np.empty((len(component), len(mixture.sizes)), np.int64)
    for c in range(rows.shape[1]):
        block = mixture.block(c).astype(np.float64)
        for k, (start, stop) in enumerate(zip([0, *ends], ends)):
            if stop > start:
                rows[start:stop, c] = np.searchsorted(edges(block[:, k]), uniforms(stop - start), side="right")
    return rows


def _gaps(mixture: Mixture, rows: Codes, order: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Counts less n times the model for all pairs or triples, one after the other, and where each begins."""
    d, n, gaps = len(mixture.sizes), len(rows), []
    at, begin = np.zeros((d,) * order, np.int64), 0
    for *first, second in combinations(range(d), order - 1):
        cells, cell = mixture.weights[None], np.zeros(n, np.int64)
        for c in (*first, second):
            cells = (cells[:, None] * mixture.block(c)[None]).reshape(-1, len(mixture.weights))
            cell = cell * mixture.sizes[c] + rows[:, c]
        for last in range(second + 1, d):
            expected = (cells @ mixture.block(last).T).ravel()
            count = np.bincount(cell * mixture.sizes[last] + rows[:, last], minlength=len(expected))
            gaps.append((count - n * expected).astype(np.float32))
            at[(*first, second, last)] = begin
            begin += len(expected)
    return np.concatenate(gaps), at


@_compile
def _move(rows, order, sizes, pairs, pair_at, triples, triple_at, deep):  # type: ignore[no-untyped-def]
    """One pass over cells; `pairs` and `triples` are the gaps, which follow the rows."""
    d = rows.shape[1]
    change = np.empty(sizes.max(), np.float32)
    where = np.empty(d * d, np.int64)
    stride = np.empty(d * d, np.int64)
    for cell in order:
        i, c = cell // d, cell % d
        old, size = rows[i, c], sizes[c]
        change[:size] = 0.0
        m = 0
        for b in range(d):
            if b == c:
                continue
            x = rows[i, b]
            if c < b:
                where[m], stride[m] = pair_at[c, b] + x, sizes[b]
            else:
                where[m], stride[m] = pair_at[b, c] + x * size, 1
            m += 1
        flat = m
        if deep:
            for b in range(d):
                if b == c:
                    continue
                x = rows[i, b]
                for e in range(b + 1, d):
                    if e == c:
                        continue
                    y = rows[i, e]
                    if c < b:
                        where[m], stride[m] = triple_at[c, b, e] + x * sizes[e] + y, sizes[b] * sizes[e]
                    elif c < e:
                        where[m], stride[m] = triple_at[b, c, e] + x * size * sizes[e] + y, sizes[e]
                    else:
                        where[m], stride[m] = triple_at[b, e, c] + (x * sizes[e] + y) * size, 1
                    m += 1
        left = np.float32(0.0)
        for j in range(m):
            gaps, weight = (pairs, PAIR) if j < flat else (triples, ONE)
            gap = gaps[where[j] + old * stride[j]]
            left += weight * (abs(gap - 1) - abs(gap))
        if left > 0:  # too few rows hold it already; trying other values for these too takes four times as long for nothing
            continue
        for j in range(m):
            gaps, weight = (pairs, PAIR) if j < flat else (triples, ONE)
            at, step = where[j], stride[j]
            for value in range(size):
                gap = gaps[at + value * step]
                change[value] += weight * (abs(gap + 1) - abs(gap))
        change[old] = -1e-3 - left
        best = np.argmin(change[:size])
        if best != old:
            rows[i, c] = best
            for j in range(m):
                gaps = pairs if j < flat else triples
                gaps[where[j] + old * stride[j]] -= 1
                gaps[where[j] + best * stride[j]] += 1
