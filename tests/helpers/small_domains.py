"""All neighbouring data sets on a small domain, brute-force distributions on it, and their exact divergences."""

from functools import cache
from itertools import combinations_with_replacement

import numpy as np

from dpgen.systems.ordered.estimator import MonotoneCounts


@cache
def neighbours(N: int, most: int, relation: str, size: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Histograms (m, N) of all data sets of 1 to `most` (or exactly `size`) records, and the pairs (p, 2) of neighbours."""
    sizes = [size] if size is not None else range(1, most + 1)
    sets = [records for n in sizes for records in combinations_with_replacement(range(N), n)]
    number = {records: i for i, records in enumerate(sets)}
    first, second = [], []
    for records, i in number.items():
        for gone in {records.index(x) for x in records}:
            rest = records[:gone] + records[gone + 1 :]
            others = [rest] if relation == "add_remove" else [tuple(sorted((*rest, x))) for x in range(N) if x != records[gone]]
            for other in others:
                if other in number:
                    first.append(i)
                    second.append(number[other])
    if relation == "add_remove":
        first, second = first + second, second + first
    histograms = np.array([np.bincount(records, minlength=N) for records in sets])
    return histograms, np.array(first), np.array(second)


def point_cells(histograms: np.ndarray, model: MonotoneCounts) -> tuple[np.ndarray, np.ndarray]:
    """Prefix counts (m, N - 1) at 1 ... N - 1 and the model's."""
    return np.cumsum(histograms, axis=1)[:, :-1], model.at(np.arange(1, histograms.shape[1]))


def exponential(scores: np.ndarray, rate: float) -> np.ndarray:
    """Exponential mechanism, row by row."""
    weights = np.exp(rate * (scores - scores.max(axis=1, keepdims=True)))
    return weights / weights.sum(axis=1, keepdims=True)


def models(N: int, size: float) -> list[MonotoneCounts]:
    """Public models: uniform, and one with a steep and a flat piece and counts that are no integers."""
    uniform = MonotoneCounts(np.array([0, N]), np.array([0.0, size]))
    if N < 5:
        return [uniform, MonotoneCounts(np.array([0, 1, N]), np.array([0.0, 0.93 * size, size]))]
    peaked = MonotoneCounts(np.array([0, N // 4, N // 4 + 1, N]), np.array([0.0, 0.3 * size, 0.93 * size, size]))
    return [uniform, peaked]


def chi_square(counts: np.ndarray, chances: np.ndarray) -> float:
    """P-value of observed counts (k,) under chances (k,); outcomes expected fewer than 5 times are put together."""
    from scipy.stats import chi2

    total = counts.sum()
    rare = total * chances < 5
    seen, expected = np.append(counts[~rare], counts[rare].sum()), total * np.append(chances[~rare], chances[rare].sum())
    if expected[-1] == 0:
        assert seen[-1] == 0
        seen, expected = seen[:-1], expected[:-1]
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), max(1, len(seen) - 1)))
