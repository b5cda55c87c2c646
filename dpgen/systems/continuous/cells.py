"""A public lattice of cells in a box, and private draws that pass a record's cell through a channel."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NoReturn

import pandas as pd
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Planned
from dpgen.privacy.limits import require_whole
from dpgen.privacy.mechanisms import Secrets
from dpgen.release import Draws, PrivateSampler
from dpgen.statement import PrivacyStatement
from dpgen.systems.assumptions import CHOSEN_BLIND, SECURE_NOISE
from dpgen.systems.continuous.draw_plan import DrawPlan
from dpgen.systems.continuous.references import UniformReference
from dpgen.systems.private_data import PrivatePoints

WORD = 2**52
"""Channels give every cell a whole number of this many equally likely words, so their law is exact."""

CELLS = (2, 2**24)
"""On an axis; and no lattice whose law is a table has more."""


class Lattice:
    """Equal cells, `per_axis` on each axis of a public box (d, 2).

    Raises:
        ValueError: no whole number of cells in [2, 2^24] on an axis.
    """

    def __init__(self, bounds: Tensor, per_axis: int) -> None:
        require_whole("cells", per_axis, *CELLS)
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


class CellLaw(ABC):
    """The law of a draw: a record's cell, sent through a channel. PRIVATE: it shows the data, only draws may leave.

    Arguments:
        x: private points (n, d) inside the box; of none the middle of the box stands in, for how many there are is private.
        lattice: public.
        epsilon: of one draw.
    """

    def __init__(self, x: Tensor, *, lattice: Lattice, epsilon: float) -> None:
        self.lattice, self.epsilon = lattice, epsilon
        self._cells = lattice.index(x if len(x) else lattice.bounds.mean(1)[None])

    @property
    def reference(self) -> UniformReference:
        """The public reference, uniform on the box."""
        return self.lattice.reference

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
    """Draws of a `CellLaw`."""

    def __init__(self, law: CellLaw, *, curator: Curator, note: str) -> None:
        super().__init__(epsilon=law.epsilon, curator=curator, note=note)
        self._law = law

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        return self._law.lattice.scatter(self._law.send(self._law.pick(count, secrets), secrets), secrets)


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
    make: Callable[..., CellLaw], data: PrivatePoints, *, cells: int, plan: DrawPlan, curator: Curator, note: str
) -> Draws:
    """Declare and make the draws of a law, with their statement; the law stays with the release for evaluation.

    Arguments:
        make: the law of points x with `lattice` and `epsilon`.
        cells: of the lattice, on each axis.
        note: what the draws are called in the ledger.

    Raises:
        ValueError: points outside the public bounds, or numbers that the law cannot serve; nothing was declared.
        BudgetExceeded: the ledger does not allow the draws.
    """
    law = make(data.x, lattice=Lattice(require_box(data), cells), epsilon=plan.per_draw)
    curator.declare(Planned(pure_event(plan.per_draw), note, plan.draws))
    points = CellSampler(law, curator=curator, note=note).sample(plan.draws)
    table = pd.DataFrame(points.numpy(), columns=list(data.columns))
    statement = PrivacyStatement.from_ledger(curator.ledger, assumptions=(CHOSEN_BLIND, SECURE_NOISE))
    return Draws(table, statement=statement, origin=law)
