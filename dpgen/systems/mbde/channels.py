r"""Randomised response on a public grid: private draws that send a record's cell through a channel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd
import torch
from torch import Tensor

from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import Secrets, pure_event, require_whole
from dpgen.release import Draws, PrivateDensity, PrivateSampler
from dpgen.statement import PrivacyStatement
from dpgen.systems.mbde.densities import UniformReference
from dpgen.systems.mbde.plan import GRID_CELLS, DrawPlan, GridResponseConfig
from dpgen.systems.plan import PrivatePoints

if TYPE_CHECKING:
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


def require_box(data: PrivatePoints) -> Tensor:
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


def fit_grid_response(
    data: PrivatePoints, *, plan: DrawPlan, config: GridResponseConfig, curator: Curator, runtime: Runtime
) -> Draws:
    """Draws by randomised response on the grid of the public bounds; the density stays with them for evaluation."""
    runtime.require_one_process()
    note = "randomised response on a public grid"
    density = GridResponse(data.x, bounds=require_box(data), per_axis=config.cells, epsilon=plan.per_draw)
    curator.declare(Planned(pure_event(plan.per_draw), note, plan.draws))
    points = CellSampler(density, curator=curator, note=note).sample(plan.draws)
    table = pd.DataFrame(points.numpy(), columns=list(data.columns))
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=(Fact.CHOSEN_BLIND, Fact.SECURE_NOISE))
    return Draws(table, statement=statement, origin=density)
