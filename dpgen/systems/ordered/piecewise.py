"""From many private cells to few smooth pieces: agnostic histograms and piecewise polynomials by pairwise merging."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dpgen.systems.ordered.distribution import PiecewiseCDF
from dpgen.systems.ordered.knots import Integers, MonotoneCounts, Reals

_COARSE = 6  # merging in pairs stops at this many times the pieces wanted; one by one after that
_AUTOMATIC = 48  # pieces at which automatic choice starts to merge one by one
_PENALTY = 5.0  # chi-square per parameter that a further piece must explain
_MEDIAN = 0.4549  # of chi-square with one degree of freedom


@dataclass(frozen=True)
class _Cells:
    """Masses of the private cells, and the variance that sampling and noise give each."""

    knots: Integers  # (m + 1,)
    mass: Reals  # (m,)
    variance: Reals  # (m,)

    def moments(self, first: int, last: int, degree: int) -> tuple[Reals, Reals]:
        r"""Integrals (last - first, degree + 1) over each cell of 1, 2t - 1, 6t^2 - 6t + 1 in the piece's own t."""
        k = self.knots[first : last + 1]
        t = (k - k[0]) / (k[-1] - k[0])
        integrals = np.stack([t, t * t - t, 2 * t**3 - 3 * t * t + t][: degree + 1])
        return np.diff(integrals, axis=1).T, self.mass[first:last]


def _fit(cells: _Cells, first: int, last: int, degree: int) -> tuple[Reals, float]:
    """Coefficients (degree + 1,) of the density on cells first ... last - 1, and the chi-square of what they miss."""
    design, mass = cells.moments(first, last, degree)
    used = min(degree + 1, last - first)
    weight = cells.variance[first:last] ** -0.5
    a, y = design[:, :used] * weight[:, None], mass * weight
    coefficients = np.zeros(degree + 1)
    coefficients[:used] = np.linalg.lstsq(a, y, rcond=None)[0]
    missed = y - a @ coefficients[:used]
    return coefficients, float(missed @ missed)


def _variances(counts: MonotoneCounts) -> Reals:
    """Variance (m,) of the share of each cell: Poisson, plus noise as large as neighbouring cells show.

    The squared difference of neighbouring densities, over what Poisson counts would give, has the median .455 (chi-square,
    one degree of freedom) if there is no noise; what it has more is put down to noise of equal variance in every cell.
    """
    width, n = np.diff(counts.positions).astype(np.float64), np.diff(counts.counts)
    near = [np.convolve(np.pad(v, 2, mode="edge"), np.ones(5), "valid") for v in (n, width)]
    poisson = np.maximum(np.maximum(near[0] / near[1] * width, 0.5 * n), 0.5)
    noise = 0.0
    if len(n) > 2:
        share = width[:-1] / (width[:-1] + width[1:])
        # c_1 - s (c_1 + c_2) has mean 0 where the density is constant
        differences = (n[:-1] * (1 - share) - n[1:] * share) ** 2
        per_noise = (1 - share) ** 2 + share**2
        plain = poisson[:-1] * (1 - share) ** 2 + poisson[1:] * share**2
        noise = max(0.0, float(np.median((differences / _MEDIAN - plain) / per_noise)))
    return np.asarray((poisson + noise) / counts.counts[-1] ** 2)


def piecewise_polynomial(counts: MonotoneCounts, *, degree: int = 2, pieces: int | None = None) -> PiecewiseCDF:
    r"""A density of few polynomial pieces that fits private cell counts: post-processing, free of privacy cost.

    Neighbouring pieces are merged in pairs, all but those whose best common polynomial misses most (as many as pieces are
    wanted), and one by one at the end. What a polynomial misses is the chi-square of the cells' masses.
    Automatic: pieces are merged while that raises chi-square by less than 3 for every parameter saved.

    Source: Diakonikolas, Hardt, Schmidt 2015, Theorem 5, step 2; merging: Acharya, Diakonikolas, Li, Schmidt 2017, with
    weighted least squares in place of the A_k distance, which is close to maximum likelihood.

    Arguments:
        counts: private prefix counts of many cells, such as those of `PartitionCDF`.
        degree: 0 (histogram), 1 or 2.
        pieces: how many pieces; None: automatic.

    Raises:
        ValueError: degree or pieces out of range.
    """
    if degree not in (0, 1, 2):
        raise ValueError(f"degree is {degree!r}; it must be 0, 1 or 2")
    if pieces is not None and pieces < 1:
        raise ValueError(f"pieces is {pieces!r}; it must be at least 1")
    if not counts.counts[-1] > 0:
        return PiecewiseCDF.from_counts(counts)
    cells = _Cells(counts.positions, np.diff(counts.counts) / counts.counts[-1], _variances(counts))
    edges = _merge_pairs(cells, degree, pieces or _AUTOMATIC)
    edges = _merge_singly(cells, edges, degree, pieces)
    return _assemble(cells, edges, degree)


def _merge_pairs(cells: _Cells, degree: int, wanted: int) -> list[int]:
    """Cell indices that bound about `_COARSE * wanted` pieces; pairs shift by one piece every other round."""
    edges, shift = list(range(len(cells.mass) + 1)), 0
    while len(edges) - 1 > _COARSE * wanted:
        starts = list(range(shift, len(edges) - 2, 2))
        missed = np.array([_fit(cells, edges[i], edges[i + 2], degree)[1] for i in starts])
        kept = set(np.argsort(-missed, kind="stable")[:wanted].tolist())
        inner = {edges[i + 1] for j, i in enumerate(starts) if j not in kept}
        edges, shift = [edge for edge in edges if edge not in inner], 1 - shift
    return edges


def _merge_singly(cells: _Cells, edges: list[int], degree: int, wanted: int | None) -> list[int]:
    """Merge the neighbours that lose least, until `wanted` pieces are left or a merge would lose too much."""
    alone = [_fit(cells, a, b, degree)[1] for a, b in pairwise(edges)]
    joint = [_fit(cells, a, c, degree)[1] for a, c in zip(edges, edges[2:])]
    while joint:
        loss = [joint[i] - alone[i] - alone[i + 1] for i in range(len(joint))]
        best = int(np.argmin(loss))
        if len(alone) <= wanted if wanted else loss[best] > _PENALTY * (degree + 1):
            break
        edges = edges[: best + 1] + edges[best + 2 :]
        alone[best : best + 2] = [joint[best]]
        del joint[best]
        for i in (best - 1, best):
            if 0 <= i < len(joint):
                joint[i] = _fit(cells, edges[i], edges[i + 2], degree)[1]
    return edges


def _assemble(cells: _Cells, edges: list[int], degree: int) -> PiecewiseCDF:
    fits = np.array([_fit(cells, a, b, degree)[0] for a, b in pairwise(edges)])
    mass = np.maximum(fits[:, 0], 0.0)
    if not mass.sum() > 0:
        mass = np.add.reduceat(cells.mass, edges[:-1])
    safe = np.where(mass > 0, mass, 1.0)
    shapes = [np.where(mass > 0, fits[:, j] / safe, 0.0) for j in range(1, degree + 1)]
    shrink = _shrinkage(*(shapes + [np.zeros(len(mass))] * (2 - degree)))
    values = np.concatenate([[0.0], np.cumsum(mass / mass.sum())]).clip(0.0, 1.0)
    values[-1] = 1.0
    named = dict(zip(("slopes", "curves"), (shape * shrink for shape in shapes)))
    return PiecewiseCDF(cells.knots[edges], values, **named)


def _shrinkage(a: Reals, b: Reals) -> Reals:
    """Largest factor <= 1 on both shapes that keeps 1 + a (2t - 1) + b (6t^2 - 6t + 1) >= 0 on [0, 1]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(b > 0, np.clip(0.5 - a / (6 * b), 0, 1), 0.0)
    depth = -np.minimum(-np.abs(a) + b, a * (2 * inner - 1) + b * (6 * inner**2 - 6 * inner + 1))
    return np.where(depth > 1, 1 / np.maximum(depth, 1.0), 1.0)
