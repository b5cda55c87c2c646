"""Baselines on a public box: randomised response on its grid, and the Bernstein mechanism (Alda and Rubinstein 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import Secrets, pure_event, require_whole
from dpgen.release import DensityModel, Draws, PrivateDensity, PrivateSampler, RandomState, sampling_seed
from dpgen.samples import PointSamples
from dpgen.statement import PrivacyStatement
from dpgen.systems.mbde.densities import UniformReference
from dpgen.systems.mbde.plan import GRID_CELLS, BernsteinConfig, BernsteinPlan, DrawPlan, GridResponseConfig
from dpgen.systems.simplex_projection import project_to_simplex

if TYPE_CHECKING:
    from dpgen.data import Points
    from dpgen.runtime import Runtime

WORD = 2**52
"""The channel gives every cell a whole number of this many equally likely words, so their probabilities are exact."""


class CellSampler(PrivateSampler):
    """Draws of a `GridResponse`."""

    def __init__(self, density: GridResponse, *, curator: Curator, note: str) -> None:
        super().__init__(epsilon=density.epsilon, curator=curator, note=note)
        self._density = density

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        cells = self._density.send(self._density.pick(count, secrets), secrets)
        return self._density.scatter(cells, secrets)


def require_box(data: Points) -> Tensor:
    """The public bounds (d, 2) of data whose points lie inside."""
    if data.bounds is None:
        raise ValueError("bounds is None; this mechanism works in a public box: give bounds, such as [[0, 1], [-5, 5]]")
    low, high = data.bounds.unbind(1)
    if not bool(((data.x >= low) & (data.x <= high)).all()):
        raise ValueError("x has points outside its public bounds or NaN; clamp them before, or widen the bounds")
    return data.bounds


class GridResponse(PrivateDensity):
    r"""Randomised response over the $K$ cells of a grid, then a uniform point of the answered cell.

    A record's cell is kept with probability $e^\epsilon / (e^\epsilon + K - 1)$, every other answered with
    $1 / (e^\epsilon + K - 1)$ (Warner 1965; Kairouz, Bonawitz and Ramage 2016, section 3.1). A random record's answer has
    the density $(1 - \lambda) P + \lambda U$, a mollification: any data set may replace any other at $\epsilon$.

    Probabilities are whole multiples of $2^{-52}$, rounded so that their ratio never exceeds $e^\epsilon$.

    PRIVATE: it shows the points x (n, d), only draws may leave. Of no points the middle of the box stands in, for how many
    there are is private; there are at most 2^24 cells in all.
    """

    per_axis: int

    def __init__(self, x: Tensor, *, bounds: Tensor, per_axis: int, epsilon: float) -> None:
        require_whole("cells", per_axis, *GRID_CELLS)
        self.bounds, self.per_axis, self.epsilon = bounds.to(torch.float64), per_axis, epsilon
        self.reference, self.d = UniformReference(bounds), len(bounds)
        self._powers = per_axis ** torch.arange(self.d - 1, -1, -1)  # of a cell's number, in row-major order
        self._cells = self.number(x if len(x) else self.bounds.mean(1)[None])
        self.size = per_axis**self.d
        if self.size > GRID_CELLS[1]:
            raise ValueError(f"cells is {per_axis}; {per_axis}^{self.d} cells are above {GRID_CELLS[1]}")
        if not 0 < epsilon <= 20:
            raise ValueError(f"epsilon is {epsilon!r} a draw; it must be in (0, 20]")
        self.other = math.ceil(WORD / (math.exp(epsilon) + self.size - 1)) + 1  # one word above all rounding
        self.own = WORD - (self.size - 1) * self.other
        if self.own < self.other:  # the words above rounding, one for each cell, would be more than epsilon gives
            raise ValueError(
                f"epsilon is {epsilon!r} for {self.size} cells; 52 bits cannot hold it: take fewer cells or a larger epsilon"
            )
        counts = torch.bincount(self._cells, minlength=self.size).to(torch.float64)
        self._shares = counts / counts.sum()

    def log_ratio(self, x: Tensor) -> Tensor:
        """Log density (m,) at points (m, d) relative to the reference; points outside count as the nearest ones inside."""
        shares = (self.other + (self.own - self.other) * self._shares) / WORD
        return (shares[self.number(x)] * self.size).log()

    def number(self, x: Tensor) -> Tensor:
        """Cell (m,), int64, of points (m, d); points outside belong to the nearest cell."""
        low, high = self.bounds.unbind(1)
        index = ((x - low) / (high - low) * self.per_axis).floor().clamp(0, self.per_axis - 1).to(torch.int64)
        return (index * self._powers).sum(1)

    def pick(self, k: int, secrets: Secrets) -> Tensor:
        """Cells (k,) of k records, each drawn uniformly; any mixture of records keeps the guarantee."""
        return self._cells[(secrets.uniform(k) * len(self._cells)).to(torch.int64)]

    def send(self, cells: Tensor, secrets: Secrets) -> Tensor:
        """The cells (k,) that the channel makes of these (k,), in an amount of work that does not depend on them."""
        return self.answer(cells, (secrets.uniform(len(cells)) * WORD).to(torch.int64))

    def scatter(self, cells: Tensor, secrets: Secrets) -> Tensor:
        """A uniform point (k, d) of each cell (k,): independent of everything private but the cell."""
        low, high = self.bounds.unbind(1)
        index = cells[:, None] // self._powers % self.per_axis
        return low + (high - low) * (index + secrets.uniform(*index.shape)) / self.per_axis

    def answer(self, number: Tensor, word: Tensor) -> Tensor:
        """Answers (k,) for cells (k,) and words (k,): own cell below `own`, then `other` words for each other cell."""
        step = 1 + (word - self.own).clamp_min(0) // self.other
        return torch.where(word < self.own, number, (number + step) % self.size)


def fit_grid_response(data: Points, *, plan: DrawPlan, config: GridResponseConfig, curator: Curator, runtime: Runtime) -> Draws:
    """Draws by randomised response on the grid of the public bounds; the density stays with them for evaluation."""
    note = "randomised response on a public grid"
    density = GridResponse(data.x, bounds=require_box(data), per_axis=config.cells, epsilon=plan.per_draw)
    curator.declare(Planned(pure_event(plan.per_draw), note, plan.draws))
    points = CellSampler(density, curator=curator, note=note).sample(plan.draws)
    table = pd.DataFrame(points.numpy(), columns=list(data.columns))
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=(Fact.CHOSEN_BLIND, Fact.SECURE_NOISE))
    return Draws(table, statement=statement, origin=density)


# -- the Bernstein mechanism -------------------------------------------------------------------------------------------


_BITS = 24  # of a record's integer weight, over all axes: sums of 2^28 records stay exact in doubles
_SCALES = (1e-6, 1e12)  # that integer noise has
_MOST_DIMENSIONS = 8
_MOST_COEFFICIENTS = 2**20
_CHUNK = 4096
FACTS = (Fact.ONE_RECORD, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.EXACT_INTEGERS)
"""Facts of the statement."""


def kernel_mass(degree: int, bandwidth: float) -> float:
    r"""Certified largest L1 norm of one record's kernel values on the lattice: $\max_y \sum_\nu e^{-(\nu/k - y)^2 / (2h^2)}$.

    $\le \sum_{\nu \in \mathbb{Z}} e^{-(\nu/k)^2 / (2h^2)}$: the whole lattice has more points, and by Poisson's summation
    formula its sum is a cosine series in y with positive coefficients, largest at y = 0. Alda and Rubinstein (2017,
    Definition 4) take k + 1 times the largest single coefficient instead, which is 2 to 13 times more.

    >>> round(kernel_mass(100, 0.05), 6) == round(100 * 0.05 * math.sqrt(2 * math.pi), 6)
    True
    """
    reach = math.ceil(40 * degree * bandwidth) + 1
    terms = [math.exp(-0.5 * (nu / (degree * bandwidth)) ** 2) for nu in range(1, reach)]
    return (1 + 2 * math.fsum(terms)) * (1 + 1e-12)


def kernel_values(u: Tensor) -> Tensor:
    """exp(-u) of u >= 0, to 1e-9, by + - x / alone: :math:`(e^{-u/1024})^{1024}`, ten squarings of a short series.

    IEEE 754 rounds each of these operations by itself, so an entry's value is a function of that entry, bit for bit; a
    library's exp may differ between the body and the tail of an array. It is 0 from u = 64 on.
    """
    v = u.clamp_max(64.0) / 1024
    series = torch.ones_like(v)
    for i in range(6, 0, -1):
        series = 1 - v / i * series
    for _ in range(10):
        series = series * series
    return torch.where(u >= 64.0, 0.0, series)


def record_weights(y: Tensor, *, degree: int, bandwidth: float, units: int) -> Tensor:
    """Kernel values of records y (n,) in [0, 1] on the lattice, as whole numbers (n, k + 1) whose rows sum to at most units.

    A row depends on its own record alone. The certificate `kernel_mass` sets the scale; rows are scaled down if rounding should
    ever pass it.
    """
    lattice = torch.arange(degree + 1, dtype=torch.float64) / degree
    apart = (lattice - y[:, None].to(torch.float64)) / bandwidth
    weights = (kernel_values(0.5 * (apart * apart)) * (units / kernel_mass(degree, bandwidth))).floor()
    return (weights * (units / weights.sum(1, keepdim=True).clamp_min(1)).clamp_max(1)).floor()


def lattice_units(d: int) -> int:
    """Most that one record adds to the lattice sums over d axes, in L1 norm: the product of rows that sum to 2^(24 // d)."""
    return (2 ** (_BITS // d)) ** d


def lattice_sums(y: Tensor, *, config: BernsteinConfig) -> BoundedSum:
    r"""Sums over records y (n, d) in [0, 1]^d of their product weights, ((k + 1)^d), whole numbers.

    A record's weights are >= 0 and their products sum to the product of d sums, each at most :math:`2^{\lfloor 24/d \rfloor}`:
    that bounds what it adds in L1 norm. Replacing it by one that is far away moves twice as much.
    """
    d = y.shape[1]
    units = 2 ** (_BITS // d)  # of an axis
    total = torch.zeros([config.degree + 1] * d, dtype=torch.int64)
    letters = "abcdefgh"[:d]
    pattern = ",".join(f"z{letter}" for letter in letters) + "->" + letters
    for part in y.split(_CHUNK):
        axes = [record_weights(part[:, i], degree=config.degree, bandwidth=config.bandwidth, units=units) for i in range(d)]
        total += torch.einsum(pattern, *axes).to(torch.int64)  # below 2^36: exact, however the product is taken
    return BoundedSum(total, float(lattice_units(d)), "kernel weights", norm="l1")


def basis(u: Tensor, degree: int) -> Tensor:
    """Bernstein polynomials (m, k + 1) of degree k at u (m,) in [0, 1]."""
    nu = torch.arange(degree + 1, dtype=torch.float64)
    logs = torch.lgamma(torch.tensor(degree + 1.0, dtype=torch.float64)) - torch.lgamma(nu + 1) - torch.lgamma(degree - nu + 1)
    u = u[:, None].to(torch.float64)
    return (logs + torch.special.xlogy(nu, u) + torch.special.xlog1py(degree - nu, -u)).exp()


def to_weights(sums: Tensor, floor: float) -> Tensor:
    """The nearest weights >= 0 of sum 1 to noisy coefficients ((k + 1)^d), with `floor` of the uniform ones mixed in."""
    flat = sums.reshape(-1)
    uniform = torch.full_like(flat, 1 / len(flat))
    if not float(flat.sum()) > 0:
        return uniform.reshape(sums.shape)
    weights = torch.from_numpy(project_to_simplex((flat / flat.sum()).numpy()))
    weights = weights / weights.sum()
    return ((1 - floor) * weights + floor * uniform).reshape(sums.shape)


class BernsteinModel(DensityModel, kind="bernstein"):
    r"""A density on a public box (d, 2): :math:`q(u) = \sum_\nu w_\nu \prod_i (k + 1) b_{\nu_i, k}(u_i)`, a mixture of
    products of Betas.

    The released weights, ((k + 1)^d), are >= 0 with sum 1.
    """

    def __init__(self, weights: Tensor, *, bounds: Tensor, columns: Sequence[str], statement: PrivacyStatement) -> None:
        if weights.ndim != len(bounds) or len(columns) != len(bounds) or len(set(weights.shape)) != 1:
            shape = tuple(weights.shape)
            raise ValueError(f"weights has shape {shape}; it must be (k + 1)^d with d = {len(bounds)} axes and names")
        self.weights, self.bounds, self.columns = weights, bounds.to(torch.float64), tuple(columns)
        self.statement = statement

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density (n,) at points (n, d); -inf outside the box."""
        low, high = self.bounds.unbind(1)
        u = (x.to(torch.float64) - low) / (high - low)
        inside = ((u >= 0) & (u <= 1)).all(1)
        density = torch.cat([self._unit_density(part) for part in u.clamp(0, 1).split(_CHUNK)])
        return torch.where(inside, density.log() - (high - low).log().sum(), -torch.inf)

    def _unit_density(self, u: Tensor) -> Tensor:
        size, d = self.weights.shape[0], u.shape[1]
        value = basis(u[:, 0], size - 1) @ self.weights.reshape(size, -1)
        for axis in range(1, d):
            value = torch.einsum("mk,mkr->mr", basis(u[:, axis], size - 1), value.reshape(len(u), size, -1))
        return value[:, 0] * size**d

    def samples(self, n: int, *, random_state: RandomState = None) -> PointSamples:
        """n points: a weight's cell, then a Beta in each coordinate."""
        generator = np.random.default_rng(sampling_seed(n, random_state))
        weights = self.weights.reshape(-1).numpy()
        nu = np.stack(np.unravel_index(generator.choice(len(weights), n, p=weights / weights.sum()), self.weights.shape), 1)
        u = torch.from_numpy(generator.beta(nu + 1, self.weights.shape[0] - nu))
        low, high = self.bounds.unbind(1)
        return PointSamples(x=low + (high - low) * u, columns=self.columns)

    def tensors(self) -> dict[str, Tensor]:
        return {"weights": self.weights, "bounds": self.bounds}

    def description(self) -> dict[str, Any]:
        return {"columns": list(self.columns)}

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> BernsteinModel:
        return cls(tensors["weights"], bounds=tensors["bounds"], columns=description["columns"], statement=statement)


def fit_bernstein(
    data: Points, *, plan: BernsteinPlan, config: BernsteinConfig, curator: Curator, runtime: Runtime
) -> BernsteinModel:
    """Release a density; ValueError without bounds, for points outside them, or too many columns or coefficients."""
    bounds = require_box(data)
    d, cells = len(bounds), config.degree + 1
    if d > _MOST_DIMENSIONS:
        raise ValueError(f"the points have {d} columns; the Bernstein mechanism takes at most {_MOST_DIMENSIONS}: choose some")
    if cells**d > _MOST_COEFFICIENTS:
        raise ValueError(f"degree is {config.degree} in {d} dimensions: (degree + 1)^d must be at most {_MOST_COEFFICIENTS}")
    sensitivity = lattice_units(d) * curator.rows * (2 if curator.relation == "replace_one" else 1)
    low, high = sensitivity / _SCALES[1], sensitivity / _SCALES[0]  # whose integer noise has an exact sampler
    if not low <= plan.epsilon <= high:
        raise ValueError(f"epsilon is {plan.epsilon!r}; for {curator.rows} records it must be in [{low:.3g}, {high:.3g}]")
    note = f"Bernstein mechanism: {cells}^{d} coefficients"
    curator.declare(Planned(pure_event(plan.epsilon), note))
    least, most = bounds.unbind(1)
    unit = (data.x.to(torch.float64) - least) / (most - least)
    noisy = curator.laplace(note, lattice_sums(unit, config=config), plan.epsilon)
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=FACTS)
    weights = to_weights(noisy.to(torch.float64), config.floor)
    return BernsteinModel(weights, bounds=bounds, columns=data.columns, statement=statement)
