"""The release of every ordered system: a piecewise polynomial CDF of each column, in the user's own units."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from dpgen.columns.discretized import DiscretizedColumn
from dpgen.files import under
from dpgen.release import PublicModel, RandomState, sampling_seed
from dpgen.samples import ColumnSamples
from dpgen.statement import PrivacyStatement
from dpgen.systems.ordered.estimator import Integers, MonotoneCounts, Reals

_COARSE, _KEPT = 6, 48  # merging in pairs keeps the worst 48 pairs, and stops at six times as many pieces
_PENALTY = 5.0  # chi-square per parameter that a further piece must explain
_MEDIAN = 0.4549  # of chi-square with one degree of freedom

RECORDS = "records"
"""Note on the number of records, which is noisy or public."""


def _require_cdf(knots: Integers, values: Reals) -> None:
    """Refuse points (m,) between which a CDF on 0 ... N - 1 is not a line."""
    if knots.ndim != 1 or len(knots) < 2 or knots.shape != values.shape:
        raise ValueError(f"knots {knots.shape} and values {values.shape} must be vectors of one length >= 2")
    if knots[0] != 0 or (np.diff(knots) <= 0).any():
        raise ValueError(f"knots must increase from 0 to N, got {knots[:3]} ... {knots[-1]}")
    if not (values[0] == 0 and values[-1] == 1 and (np.diff(values) >= 0).all()):
        raise ValueError("values must not decrease, from 0 to 1")


@dataclass(frozen=True, eq=False)
class PiecewiseCDF:
    r"""A distribution on [0, N): mass below each knot, and the shape of the density between knots.

    With :math:`t \in [0, 1]` the position in piece i of mass :math:`m_i` the density is proportional to
    :math:`1 + a_i (2t - 1) + b_i (6t^2 - 6t + 1)`, so

    .. math:: F(k_i + t w_i) = F_i + m_i [t + a_i (t^2 - t) + b_i (2t^3 - 3t^2 + t)].

    The mass of the integer x is F(x + 1) - F(x); t comes from integer differences, so that nothing is lost at N = 10^18.

    Knots (m + 1,) int64 increase from 0 to N, `values` (m + 1,) are F there; `slopes` a (m,) and `curves` b (m,), None: 0.

    >>> uniform = PiecewiseCDF(np.array([0, 10]), np.array([0.0, 1.0]))
    >>> uniform.below(np.array([3])).tolist(), uniform.inverse(np.array([0.25])).tolist()
    ([0.3], [2])
    """

    knots: Integers
    values: Reals
    slopes: Reals | None = None
    curves: Reals | None = None

    def __post_init__(self) -> None:
        knots, values = np.asarray(self.knots, np.int64), np.asarray(self.values, np.float64)
        _require_cdf(knots, values)
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "values", values)
        for name in ("slopes", "curves"):
            shape = getattr(self, name)
            if shape is not None:
                object.__setattr__(self, name, np.asarray(shape, np.float64))
                if getattr(self, name).shape != (len(knots) - 1,):
                    raise ValueError(f"{name} must have one entry for each of the {len(knots) - 1} pieces")
        if self.lowest_density() < -1e-9:
            raise ValueError("slopes and curves make a density negative; shrink them")

    @classmethod
    def from_counts(cls, counts: MonotoneCounts) -> "PiecewiseCDF":
        """The CDF of noisy prefix counts; uniform when none of them is above 0."""
        total = counts.counts[-1]
        if not total > 0:
            return cls(counts.positions[[0, -1]], np.array([0.0, 1.0]))
        values = counts.counts / total
        values[-1] = 1.0
        return cls(counts.positions, values)

    def __repr__(self) -> str:
        return f"PiecewiseCDF({len(self.values) - 1} pieces of degree {self.degree} on {self.size} values)"

    @property
    def size(self) -> int:
        """Number of values N of the domain."""
        return int(self.knots[-1])

    @property
    def degree(self) -> int:
        """Largest degree of the density: 0, 1 or 2."""
        return 2 if self.curves is not None else 1 if self.slopes is not None else 0

    def _shape(self) -> tuple[Reals, Reals]:
        zero = np.zeros(len(self.knots) - 1)
        return (zero if self.slopes is None else self.slopes), (zero if self.curves is None else self.curves)

    def lowest_density(self) -> float:
        """Least value of 1 + a (2t - 1) + b (6t^2 - 6t + 1) over all pieces with mass."""
        return float(np.where(np.diff(self.values) > 0, 1 + _least_shape(*self._shape()), 1.0).min())

    def below(self, positions: npt.ArrayLike) -> Reals:
        """F(p) = P(X < p) at integer positions p in [0, N]."""
        p = np.clip(np.asarray(positions, np.int64), 0, self.size)
        i = np.clip(np.searchsorted(self.knots, p, side="right") - 1, 0, len(self.knots) - 2)
        t = (p - self.knots[i]) / (self.knots[i + 1] - self.knots[i])
        return self.values[i] + (self.values[i + 1] - self.values[i]) * self._within(i, t)

    def _within(self, i: Integers, t: Reals) -> Reals:
        if self.degree == 0:
            return t
        a, b = self._shape()
        return t + a[i] * (t * t - t) + b[i] * (2 * t**3 - 3 * t * t + t)

    def inverse(self, probabilities: npt.ArrayLike) -> Integers:
        """Smallest x with P(X <= x) >= p, up to the rounding of float64, for p in [0, 1]."""
        p = np.asarray(probabilities, np.float64)
        if p.size and not (p.min() >= 0 and p.max() <= 1):
            raise ValueError("probabilities must be in [0, 1]")
        i = np.clip(np.searchsorted(self.values, p, side="left") - 1, 0, len(self.knots) - 2)
        # Bisection on integers: exact for every degree, and in pieces wider than float64 resolves.
        low, high = self.knots[i].copy(), self.knots[i + 1] - 1
        while (low < high).any():
            middle = low + (high - low) // 2
            reached = self.below(middle + 1) >= p
            high = np.where(reached, middle, high)
            low = np.where(reached, low, np.minimum(middle + 1, high))
        return low

    def draw(self, n: int, rng: np.random.Generator) -> Integers:
        """n integers: a piece by its mass, then a uniform integer in it, thinned to the density by rejection."""
        pieces = rng.choice(len(self.knots) - 1, size=n, p=np.diff(self.values))
        low, high = self.knots[pieces], self.knots[pieces + 1]
        if self.degree == 0:
            return rng.integers(low, high)
        a, b = (shape[pieces] for shape in self._shape())
        out, todo = np.empty(n, np.int64), np.arange(n)
        while todo.size:
            x = rng.integers(low[todo], high[todo])
            t = (x - low[todo] + 0.5) / (high[todo] - low[todo])
            height = 1 + a[todo] * (2 * t - 1) + b[todo] * (6 * t * t - 6 * t + 1)
            kept = rng.random(todo.size) * (1 + np.abs(a[todo]) + np.abs(b[todo])) < height
            out[todo[kept]] = x[kept]
            todo = todo[~kept]
        return out


class OrderedDistribution(PublicModel, kind="ordered"):
    """The released distributions of one or several columns, independent in what is sampled.

    Every method takes values in the user's units, and `column` where there is more than one; `notes` are released facts.
    """

    def __init__(
        self,
        cdfs: Mapping[str, PiecewiseCDF],
        domains: Mapping[str, DiscretizedColumn],
        *,
        statement: PrivacyStatement,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        if not cdfs or list(cdfs) != list(domains):
            raise ValueError(f"cdfs are of columns {list(cdfs)}, domains of {list(domains)}; they must agree")
        for name, cdf in cdfs.items():
            if cdf.size != domains[name].size:
                raise ValueError(f"column {name!r}: the CDF ends at {cdf.size}, the domain has N = {domains[name].size}")
        self.cdfs, self.domains, self.statement = dict(cdfs), dict(domains), statement
        self.notes = dict(notes or {})

    @classmethod
    def from_counts(
        cls, counts: MonotoneCounts, *, statement: PrivacyStatement, domain: DiscretizedColumn | None = None, column: str = "x"
    ) -> "OrderedDistribution":
        """The release of one column; without a domain its values are the integers 0 ... N - 1."""
        domain = domain or DiscretizedColumn.integers(int(counts.positions[-1]))
        return cls({column: PiecewiseCDF.from_counts(counts)}, {column: domain}, statement=statement)

    @property
    def size(self) -> int | None:
        return self.notes.get(RECORDS)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.cdfs)

    def _pick(self, column: str | None) -> tuple[PiecewiseCDF, DiscretizedColumn]:
        if column is None and len(self.cdfs) > 1:
            raise ValueError(f"column is None; choose one of {', '.join(self.cdfs)}")
        name = column if column is not None else next(iter(self.cdfs))
        if name not in self.cdfs:
            raise ValueError(f"column is {name!r}; it must be one of {', '.join(self.cdfs)}")
        return self.cdfs[name], self.domains[name]

    def cdf(self, x: Any, column: str | None = None) -> Reals:
        """P(X <= x) of values (m,); 0 below the domain and 1 above it."""
        cdf, domain = self._pick(column)
        values = x if np.ndim(x) else [x]
        index, outside = domain.encode_clamped(values)
        return np.where(outside, np.where(index == 0, 0.0, 1.0), cdf.below(index + 1))

    def quantile(self, p: npt.ArrayLike, column: str | None = None) -> npt.NDArray[Any]:
        """Smallest value x with P(X <= x) >= p, for p (m,) in [0, 1]."""
        cdf, domain = self._pick(column)
        return domain.decode(cdf.inverse(np.atleast_1d(np.asarray(p, np.float64))))

    def histogram(self, edges: Any, column: str | None = None) -> Reals:
        """Mass of each bin [e_j, e_{j+1}) of increasing edges (m + 1,); (m,)."""
        cdf, domain = self._pick(column)
        index, outside = domain.encode_clamped(edges)
        position = np.where(outside & (index > 0), domain.size, index)
        if len(position) < 2 or (np.diff(position) < 0).any():
            raise ValueError("edges must be two or more increasing values")
        return np.diff(cdf.below(position))

    def samples(self, n: int, *, random_state: RandomState = None) -> ColumnSamples:
        """n synthetic values of each column, free of further privacy cost."""
        rng = np.random.default_rng(sampling_seed(n, random_state))
        values = {name: self.domains[name].decode(cdf.draw(n, rng)) for name, cdf in self.cdfs.items()}
        return ColumnSamples(values=pd.DataFrame(values))

    def tensors(self) -> dict[str, Tensor]:
        """Knots, values and shapes of every column."""
        out: dict[str, Tensor] = {}
        for i, cdf in enumerate(self.cdfs.values()):
            parts = {"knots": cdf.knots, "values": cdf.values, "slopes": cdf.slopes, "curves": cdf.curves}
            out |= {f"{i}.{name}": torch.from_numpy(part.copy()) for name, part in parts.items() if part is not None}
        return out

    def description(self) -> dict[str, Any]:
        """Names and grids of the columns."""
        columns = [{"name": name, "domain": domain.to_dict()} for name, domain in self.domains.items()]
        return {"columns": columns, "notes": self.notes}

    @classmethod
    def rebuild(
        cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement
    ) -> "OrderedDistribution":
        """The inverse of `tensors` and `description`."""
        cdfs, domains = {}, {}
        for i, column in enumerate(description["columns"]):
            parts = {name: part.numpy() for name, part in under(str(i), tensors).items()}
            cdfs[column["name"]] = PiecewiseCDF(**parts)
            domains[column["name"]] = DiscretizedColumn.from_dict(column["domain"])
        return cls(cdfs, domains, statement=statement, notes=description["notes"])


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

    The squared difference of neighbouring densities, over what Poisson counts would give, has the median .455 without noise;
    what it has more is put down to noise of equal variance in every cell.
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


def piecewise_polynomial(counts: MonotoneCounts, *, degree: int = 2) -> PiecewiseCDF:
    """A density of few polynomial pieces that fits private cell counts: post-processing, free of privacy cost.

    Neighbouring pieces are merged in pairs, all but those whose best common polynomial misses most, and one by one at the end,
    while that raises what is missed, the chi-square of the cells' masses, by less than 5 for every parameter saved.

    Source: Diakonikolas, Hardt, Schmidt 2015, Theorem 5, step 2; merging: Acharya, Diakonikolas, Li, Schmidt 2017, with
    weighted least squares in place of the A_k distance.
    """
    if not counts.counts[-1] > 0:
        return PiecewiseCDF.from_counts(counts)
    cells = _Cells(counts.positions, np.diff(counts.counts) / counts.counts[-1], _variances(counts))
    edges = _merge_pairs(cells, degree)
    edges = _merge_singly(cells, edges, degree)
    return _assemble(cells, edges, degree)


def _merge_pairs(cells: _Cells, degree: int) -> list[int]:
    """Cell indices that bound about `_COARSE * _KEPT` pieces; pairs shift by one piece every other round."""
    edges, shift = list(range(len(cells.mass) + 1)), 0
    while len(edges) - 1 > _COARSE * _KEPT:
        starts = list(range(shift, len(edges) - 2, 2))
        missed = np.array([_fit(cells, edges[i], edges[i + 2], degree)[1] for i in starts])
        kept = set(np.argsort(-missed, kind="stable")[:_KEPT].tolist())
        inner = {edges[i + 1] for j, i in enumerate(starts) if j not in kept}
        edges, shift = [edge for edge in edges if edge not in inner], 1 - shift
    return edges


def _merge_singly(cells: _Cells, edges: list[int], degree: int) -> list[int]:
    """Merge the neighbours that lose least, until a merge would lose too much."""
    alone = [_fit(cells, a, b, degree)[1] for a, b in pairwise(edges)]
    joint = [_fit(cells, a, c, degree)[1] for a, c in zip(edges, edges[2:])]
    while joint:
        loss = [joint[i] - alone[i] - alone[i + 1] for i in range(len(joint))]
        best = int(np.argmin(loss))
        if loss[best] > _PENALTY * (degree + 1):
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
    depth = -_least_shape(*(shapes + [np.zeros(len(mass))] * (2 - degree)))
    shrink = 1 / np.maximum(depth, 1.0)  # which keeps densities above 0
    values = np.concatenate([[0.0], np.cumsum(mass / mass.sum())]).clip(0.0, 1.0)
    values[-1] = 1.0
    named = dict(zip(("slopes", "curves"), (shape * shrink for shape in shapes)))
    return PiecewiseCDF(cells.knots[edges], values, **named)


def _least_shape(a: Reals, b: Reals) -> Reals:
    """Least value of a (2t - 1) + b (6t^2 - 6t + 1) on [0, 1]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(b > 0, np.clip(0.5 - a / (6 * b), 0, 1), 0.0)
    return np.asarray(np.minimum(-np.abs(a) + b, a * (2 * inner - 1) + b * (6 * inner**2 - 6 * inner + 1)))
