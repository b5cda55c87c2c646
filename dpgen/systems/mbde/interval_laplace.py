"""The Laplace mechanism on a bounded interval, in each coordinate of a public box."""

import math

import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.limits import require_whole
from dpgen.privacy.mechanisms import Secrets
from dpgen.release import Draws
from dpgen.runtime import Runtime
from dpgen.systems.mbde.certificates import WORD, CellLaw, Lattice, release_draws, words
from dpgen.systems.mbde.plan import INTERVAL_CELLS, DrawPlan, IntervalLaplaceConfig
from dpgen.systems.private_data import PrivatePoints

_CHUNK = 2**22


def laplace_channel(cells: int, epsilon: float) -> Tensor:
    r"""Truncated Laplace on a line of cells, as whole numbers (cells, cells), int64, with rows of sum 2^52.

    $P(j | i) \propto r^{|i - j|}$ with $r = e^{-\epsilon / (L - 1)}$, normalised in each row. Normalising costs nothing when
    the scale is that of the whole interval: the worst ratio is at an end, $r^0 Z_{L-1} / (r^{L-1} Z_0) = e^\epsilon$, as the
    normalisers of the two ends are equal. (Holohan et al. 2018 need more noise because they assume a lower sensitivity.)

    Raises:
        ValueError: cells or epsilon out of range.

    >>> laplace_channel(3, 1.0).sum(1).tolist() == [WORD] * 3
    True
    """
    require_whole("cells", cells, *INTERVAL_CELLS)
    if not 0 < epsilon <= 12:
        raise ValueError(f"epsilon is {epsilon!r} a draw and coordinate; it must be in (0, 12]")
    place = torch.arange(cells, dtype=torch.float64)
    # The part 1e-9 that is kept back pays for rounding to whole words.
    weights = (-(epsilon * (1 - 1e-9) / (cells - 1)) * (place[:, None] - place).abs()).exp()
    edges = ((weights / weights.sum(1, keepdim=True)).cumsum(1) * WORD).round().to(torch.int64)
    edges[:, -1] = WORD
    law = edges.diff(dim=1, prepend=torch.zeros(cells, 1, dtype=torch.int64))
    if channel_loss(law) > epsilon:
        raise ValueError(
            f"epsilon is {epsilon!r} for {cells} cells; 52 bits cannot hold it: take fewer cells or a larger epsilon"
        )
    return law


def channel_loss(law: Tensor) -> float:
    """The exact epsilon of a channel (i, j): the largest log-ratio within a column."""
    law = law.to(torch.float64)
    return float((law.amax(0) / law.amin(0)).log().max()) if bool((law > 0).all()) else math.inf


class IntervalLaplace(CellLaw):
    r"""Laplace noise on a bounded interval, epsilon / d in each coordinate, truncated to the interval and renormalised.

    A draw is a random record's cell through `laplace_channel`, then a uniform point of the answered cell. Being a mixture
    over records, any data set may replace any other at epsilon.

    Arguments:
        x: private points (n, d) inside the box.
        lattice: public, at most 2048 cells on an axis.
        epsilon: of one draw, in nats.
    """

    def __init__(self, x: Tensor, *, lattice: Lattice, epsilon: float) -> None:
        super().__init__(x, lattice=lattice, epsilon=epsilon)
        self.channel = laplace_channel(lattice.per_axis, epsilon / lattice.d)
        self._edges = self.channel.cumsum(1)
        self._table = self._smoothed() if lattice.d <= 2 else None

    def _smoothed(self) -> Tensor:
        """Law of the answered cell, on the lattice of one or two axes."""
        size, channel = self.lattice.per_axis, self.channel.to(torch.float64) / WORD
        counts = torch.bincount(self.lattice.flat(self._cells), minlength=size**self.lattice.d).to(torch.float64)
        table = (counts / counts.sum()).reshape([size] * self.lattice.d)
        for _ in range(self.lattice.d):
            table = torch.tensordot(table, channel, dims=([0], [0]))  # the new axis comes last: a full turn restores order
        return table

    def _ratio(self, cells: Tensor) -> Tensor:
        size = float(self.lattice.per_axis**self.lattice.d)  # 256 cells on 8 axes are more than an int64 holds
        if self._table is not None:
            return self._table[tuple(cells.unbind(1))] * size
        step = max(1, _CHUNK // len(self._cells))
        return torch.cat([self._mean(part) for part in cells.split(step)]) * size

    def _mean(self, cells: Tensor) -> Tensor:
        """Law (m,) of answered cells (m, d), record by record."""
        product = torch.ones(len(cells), len(self._cells), dtype=torch.float64)
        for axis in range(self.lattice.d):
            product *= self.channel[self._cells[:, axis]].T[cells[:, axis]].to(torch.float64) / WORD
        return product.mean(1)

    def send(self, cells: Tensor, secrets: Secrets) -> Tensor:
        flat = cells.reshape(-1)
        answer = torch.searchsorted(self._edges[flat], words(len(flat), secrets)[:, None], right=True)
        return answer.reshape(cells.shape)


def fit(data: PrivatePoints, *, plan: DrawPlan, config: IntervalLaplaceConfig, curator: Curator, runtime: Runtime) -> Draws:
    """Draws by the Laplace mechanism on the public bounds."""
    runtime.require_one_process()
    note = "Laplace mechanism on bounded intervals"
    return release_draws(IntervalLaplace, data, cells=config.cells, plan=plan, curator=curator, note=note)
