r"""Private draws that send a record's cell through a channel: randomised response and Laplace noise on a public lattice."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import pandas as pd
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import Secrets, require_whole
from dpgen.release import Draws, PrivateDensity, PrivateSampler
from dpgen.statement import PrivacyStatement
from dpgen.systems.mbde.densities import UniformReference
from dpgen.systems.mbde.plan import GRID_CELLS, INTERVAL_CELLS, DrawPlan, GridResponseConfig, IntervalLaplaceConfig
from dpgen.systems.plan import CHOSEN_BLIND, SECURE_NOISE, PrivatePoints

if TYPE_CHECKING:
    from dpgen.runtime import Runtime

_CHUNK = 2**22
WORD = 2**52
"""Channels give every cell a whole number of this many equally likely words, so their probabilities are exact."""


class Lattice:
    """Equal cells, `per_axis` on each axis of a public box (d, 2).

    Raises:
        ValueError: no whole number of cells in [2, 2^24] on an axis.
    """

    def __init__(self, bounds: Tensor, per_axis: int) -> None:
        require_whole("cells", per_axis, *GRID_CELLS)
        self.bounds, self.per_axis, self.reference = bounds.to(torch.float64), per_axis, UniformReference(bounds)

    @property
    def d(self) -> int:
        """Number of axes."""
        return len(self.bounds)

    def index(self, x: Tensor) -> Tensor:
        """Cell (n, d), int64, of points (n, d); points outside belong to the nearest cell."""
        low, high = self.bounds.unbind(1)
        return ((x - low) / (high - low) * self.per_axis).floor().clamp(0, self.per_axis - 1).to(torch.int64)

    def flat(self, index: Tensor) -> Tensor:
        """Number (n,) of cells (n, d) in row-major order."""
        powers = self.per_axis ** torch.arange(self.d - 1, -1, -1)
        return (index * powers).sum(1)

    def unflat(self, number: Tensor) -> Tensor:
        """Cells (n, d) of their numbers (n,)."""
        powers = self.per_axis ** torch.arange(self.d - 1, -1, -1)
        return number[:, None] // powers % self.per_axis

    def scatter(self, index: Tensor, secrets: Secrets) -> Tensor:
        """A uniform point (n, d) of each cell: independent of everything private but the cell."""
        low, high = self.bounds.unbind(1)
        return low + (high - low) * (index + secrets.uniform(*index.shape)) / self.per_axis


class CellDensity(PrivateDensity):
    """Density of a draw: a record's cell, sent through a channel. PRIVATE: it shows the data, only draws may leave.

    Arguments:
        x: private points (n, d) inside the box; of none the middle of the box stands in, for how many there are is private.
        lattice: public.
        epsilon: of one draw.
    """

    def __init__(self, x: Tensor, *, lattice: Lattice, epsilon: float) -> None:
        self.lattice, self.reference, self.epsilon = lattice, lattice.reference, epsilon
        self._cells = lattice.index(x if len(x) else lattice.bounds.mean(1)[None])

    def log_ratio(self, x: Tensor) -> Tensor:
        """Log density (m,) at points (m, d) relative to the reference; points outside count as the nearest ones inside."""
        return self._ratio(self.lattice.index(x)).log()

    @abstractmethod
    def _ratio(self, cells: Tensor) -> Tensor:
        """Density (m,) in cells (m, d), relative to the reference."""

    @abstractmethod
    def send(self, cells: Tensor, secrets: Secrets) -> Tensor:
        """The cells (k, d) that the channel makes of these (k, d), in an amount of work that does not depend on them."""

    def pick(self, k: int, secrets: Secrets) -> Tensor:
        """Cells (k, d) of k records, each drawn uniformly; any mixture of records keeps the guarantee."""
        return self._cells[(secrets.uniform(k) * len(self._cells)).to(torch.int64)]

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be saved, pickled or copied: it holds the cell of every record")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={self.epsilon:g}, {self.lattice.per_axis}^{self.lattice.d} cells)"


class CellSampler(PrivateSampler):
    """Draws of a `CellDensity`."""

    def __init__(self, density: CellDensity, *, curator: Curator, note: str) -> None:
        super().__init__(epsilon=density.epsilon, curator=curator, note=note)
        self._density = density

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        return self._density.lattice.scatter(self._density.send(self._density.pick(count, secrets), secrets), secrets)


def words(count: int, secrets: Secrets) -> Tensor:
    """Uniform whole numbers (count,), int64, in [0, WORD)."""
    return (secrets.uniform(count) * WORD).to(torch.int64)


def require_box(data: PrivatePoints) -> Tensor:
    """The public bounds (d, 2) of data whose points lie inside.

    Raises:
        ValueError: there are none, or a point lies outside.
    """
    if data.bounds is None:
        raise ValueError("bounds is None; this mechanism works in a public box: give bounds, such as [[0, 1], [-5, 5]]")
    low, high = data.bounds.unbind(1)
    if not bool(((data.x >= low) & (data.x <= high)).all()):
        raise ValueError("x has points outside its public bounds or NaN; clamp them before, or widen the bounds")
    return data.bounds


def release_draws(
    make: Callable[..., CellDensity], data: PrivatePoints, *, cells: int, plan: DrawPlan, curator: Curator, note: str
) -> Draws:
    """Declare and make the draws of a density, with their statement; the density stays with the release for evaluation.

    Arguments:
        make: the density of points x with `lattice` and `epsilon`.
        cells: of the lattice, on each axis.
        note: what the draws are called in the ledger.

    Raises:
        ValueError: points outside the public bounds, or numbers that the density cannot serve; nothing was declared.
        BudgetExceeded: the ledger does not allow the draws.
    """
    density = make(data.x, lattice=Lattice(require_box(data), cells), epsilon=plan.per_draw)
    curator.declare(Planned(pure_event(plan.per_draw), note, plan.draws))
    points = CellSampler(density, curator=curator, note=note).sample(plan.draws)
    table = pd.DataFrame(points.numpy(), columns=list(data.columns))
    statement = PrivacyStatement.from_ledger(curator.ledger, assumptions=(CHOSEN_BLIND, SECURE_NOISE))
    return Draws(table, statement=statement, origin=density)


class GridResponse(CellDensity):
    r"""Randomised response over the $K$ cells of a grid, then a uniform point of the answered cell.

    A record's cell is kept with probability $e^\epsilon / (e^\epsilon + K - 1)$, every other answered with
    $1 / (e^\epsilon + K - 1)$ (Warner 1965; Kairouz, Bonawitz and Ramage 2016, section 3.1). A random record's answer has
    the density $(1 - \lambda) P + \lambda U$, a mollification: any data set may replace any other at $\epsilon$.

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
        shares = (self.other + (self.own - self.other) * self._shares) / WORD
        return shares[self.lattice.flat(cells)] * self.size

    def send(self, cells: Tensor, secrets: Secrets) -> Tensor:
        return self.lattice.unflat(self.answer(self.lattice.flat(cells), words(len(cells), secrets)))

    def answer(self, number: Tensor, word: Tensor) -> Tensor:
        """Answers (k,) for cells (k,) and words (k,): own cell below `own`, then `other` words for each other cell."""
        step = 1 + (word - self.own).clamp_min(0) // self.other
        return torch.where(word < self.own, number, (number + step) % self.size)


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
    channel = edges.diff(dim=1, prepend=torch.zeros(cells, 1, dtype=torch.int64))
    if channel_loss(channel) > epsilon:
        raise ValueError(
            f"epsilon is {epsilon!r} for {cells} cells; 52 bits cannot hold it: take fewer cells or a larger epsilon"
        )
    return channel


def channel_loss(channel: Tensor) -> float:
    """The exact epsilon of a channel (i, j): the largest log-ratio within a column."""
    channel = channel.to(torch.float64)
    return float((channel.amax(0) / channel.amin(0)).log().max()) if bool((channel > 0).all()) else math.inf


class IntervalLaplace(CellDensity):
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
        """Density of the answered cell, on the lattice of one or two axes."""
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
        """Density (m,) of answered cells (m, d), record by record."""
        product = torch.ones(len(cells), len(self._cells), dtype=torch.float64)
        for axis in range(self.lattice.d):
            product *= self.channel[self._cells[:, axis]].T[cells[:, axis]].to(torch.float64) / WORD
        return product.mean(1)

    def send(self, cells: Tensor, secrets: Secrets) -> Tensor:
        flat = cells.reshape(-1)
        answer = torch.searchsorted(self._edges[flat], words(len(flat), secrets)[:, None], right=True)
        return answer.reshape(cells.shape)


def fit_grid_response(
    data: PrivatePoints, *, plan: DrawPlan, config: GridResponseConfig, curator: Curator, runtime: Runtime
) -> Draws:
    """Draws by randomised response on the grid of the public bounds."""
    runtime.require_one_process()
    note = "randomised response on a public grid"
    return release_draws(GridResponse, data, cells=config.cells, plan=plan, curator=curator, note=note)


def fit_interval_laplace(
    data: PrivatePoints, *, plan: DrawPlan, config: IntervalLaplaceConfig, curator: Curator, runtime: Runtime
) -> Draws:
    """Draws by the Laplace mechanism on the public bounds."""
    runtime.require_one_process()
    note = "Laplace mechanism on bounded intervals"
    return release_draws(IntervalLaplace, data, cells=config.cells, plan=plan, curator=curator, note=note)
