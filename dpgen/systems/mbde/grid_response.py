"""Randomised response on a public grid: the plainest private draw from a continuous distribution."""

import math

import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.mechanisms import Secrets
from dpgen.release import Draws
from dpgen.runtime import Runtime
from dpgen.systems.mbde.certificates import WORD, CellLaw, Lattice, release_draws, words
from dpgen.systems.mbde.plan import GRID_CELLS, DrawPlan, GridResponseConfig
from dpgen.systems.private_data import PrivatePoints


class GridResponse(CellLaw):
    r"""Randomised response over the $K$ cells of a grid, then a uniform point of the answered cell.

    A record's cell is kept with probability $e^\epsilon / (e^\epsilon + K - 1)$, every other answered with
    $1 / (e^\epsilon + K - 1)$ (Warner 1965; Kairouz, Bonawitz and Ramage 2016, section 3.1). A random record's answer has
    the law $(1 - \lambda) P + \lambda U$, a mollification: any data set may replace any other at $\epsilon$.

    Probabilities are whole multiples of $2^{-52}$, rounded so that their ratio never exceeds $e^\epsilon$.

    Arguments:
        x: private points (n, d) inside the box.
        lattice: public, at most 2^24 cells.
        epsilon: of one draw, in nats.

    Raises:
        ValueError: too many cells, or epsilon too large for 52 bits.
    """

    def __init__(self, x: Tensor, *, lattice: Lattice, epsilon: float) -> None:
        super().__init__(x, lattice=lattice, epsilon=epsilon)
        self.size = lattice.per_axis**lattice.d
        if self.size > GRID_CELLS[1]:
            raise ValueError(f"cells is {lattice.per_axis}; {lattice.per_axis}^{lattice.d} cells are above {GRID_CELLS[1]}")
        if not 0 < epsilon <= 20:
            raise ValueError(f"epsilon is {epsilon!r} a draw; it must be in (0, 20]")
        self.other = math.ceil(WORD / (math.exp(epsilon) + self.size - 1)) + 1  # one word above all rounding
        self.own = WORD - (self.size - 1) * self.other
        if self.own < self.other:  # the words above rounding, one for each cell, would be more than epsilon gives
            raise ValueError(
                f"epsilon is {epsilon!r} for {self.size} cells; 52 bits cannot hold it: take fewer cells or a larger epsilon"
            )
        counts = torch.bincount(lattice.flat(self._cells), minlength=self.size).to(torch.float64)
        self._shares = counts / counts.sum()

    def _ratio(self, cells: Tensor) -> Tensor:
        law = (self.other + (self.own - self.other) * self._shares) / WORD
        return law[self.lattice.flat(cells)] * self.size

    def send(self, cells: Tensor, secrets: Secrets) -> Tensor:
        return self.lattice.unflat(self.answer(self.lattice.flat(cells), words(len(cells), secrets)))

    def answer(self, number: Tensor, word: Tensor) -> Tensor:
        """Answers (k,) for cells (k,) and words (k,): own cell below `own`, then `other` words for each other cell."""
        step = 1 + (word - self.own).clamp_min(0) // self.other
        return torch.where(word < self.own, number, (number + step) % self.size)


def fit(data: PrivatePoints, *, plan: DrawPlan, config: GridResponseConfig, curator: Curator, runtime: Runtime) -> Draws:
    """Draws by randomised response on the grid of the public bounds."""
    runtime.require_one_process()
    note = "randomised response on a public grid"
    return release_draws(GridResponse, data, cells=config.cells, plan=plan, curator=curator, note=note)
