"""Products of a mixture in cells of blocks of columns, and of questions of four columns or more.

Random starts do not lead a fit to a parity. So each product of the mixture is put into one cell of the blocks: it is 0 in the
other parts of their columns, and free elsewhere. The sums of weights in cells are fitted to the table of each block, of which
noise is taken off as of a small table (`interactions.denoised`). Questions of four columns or more (`workload`) are held in the
same way, without their largest column, which products have a law of (`Held`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpgen.systems.tables.interactions import denoised
from dpgen.systems.tables.marginals import Coarsening, Marginal, Measurement
from dpgen.systems.tables.plan import DEEP, MOST_CLASSES_OF_QUESTION

if TYPE_CHECKING:
    from dpgen.systems.tables.marginals import Columns

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_ABSENT = -200.0  # logit of what is exactly 0 in float32
_SWEEPS = 50
_PRODUCTS, _MOST_PRODUCTS = 4, 512  # of the mixture for each cell, and of all cells together


@dataclass(frozen=True, eq=False)
class Held:
    """Questions of four columns or more whose cells products are put into, in their order, as long as cells are few.

    Each is without one column: the one of most groups, if no other question has products put into its groups. `tables` are
    noisy counts of what is left, `groups` those of these columns.
    """

    tables: tuple[Measurement, ...]
    groups: Mapping[int, Integers]

    @classmethod
    def of(cls, asked: Sequence[Measurement], levels: Sequence[Coarsening]) -> Held:
        """Those of measured questions that products can hold."""
        kept, groups = list[Measurement](), dict[int, Integers]()
        for m in asked:
            level, own = levels[m.marginal.level], m.marginal.columns
            fresh = [c for c in own if c not in groups]
            same = all(np.array_equal(groups[c], level.groups[c]) for c in own if c in groups)
            fresh = sorted(fresh, key=lambda c: level.sizes[c])[:-1]
            wanted = groups | {c: level.groups[c] for c in fresh}
            if len(own) >= DEEP and same and _cells(wanted) <= MOST_CLASSES_OF_QUESTION:
                kept, groups = [*kept, m], wanted
        return cls(tuple(_without(m, [c for c in m.marginal.columns if c not in groups]) for m in kept), groups)

    @property
    def busy(self) -> frozenset[int]:
        """Columns that products have one group of."""
        return frozenset(self.groups)

    @property
    def cells(self) -> int:
        """Cells of all these columns together."""
        return _cells(self.groups)

    def seeds(self, columns: Columns, components: int) -> Seeds | None:
        """Products for these questions alone, at least so many; None: there is none."""
        if not self.tables:
            return None
        parts = self.over(Coarsening.full(columns.coarse.sizes))
        return Seeds.of([], columns.group_shares, parts, columns.n, components, self.tables)

    def over(self, parts: Coarsening) -> Coarsening:
        """Other parts of columns, with the groups of these."""
        groups = tuple(self.groups.get(c, own) for c, own in enumerate(parts.groups))
        return Coarsening(groups, tuple(int(own.max()) + 1 for own in groups))


def _cells(groups: Mapping[int, Integers]) -> int:
    return math.prod(int(own.max()) + 1 for own in groups.values())


def _without(m: Measurement, columns: Sequence[int]) -> Measurement:
    """Counts of a marginal without some of its columns."""
    kept = tuple(c for c in m.marginal.columns if c not in columns)
    axes = tuple(axis for axis, c in enumerate(m.marginal.columns) if c in columns)
    variance = np.broadcast_to(np.square(m.noise_std), m.values.shape).sum(axes)
    return Measurement(Marginal(kept, m.marginal.level), m.values.sum(axes), np.sqrt(variance))


@dataclass(frozen=True, eq=False)
class Seeds:
    """Products of a mixture, each in one cell of the columns of all blocks, and of questions that are held.

    `cells` (K,) are those of products, `law` (cells,) their expected shares; `inside` (rows, K) whether a group of stacked
    columns is in the part of a product; `tables` of blocks: their cell (K,) of each product, shares of cells, and 1 / noise
    variance of shares.
    """

    law: Reals
    cells: Integers
    inside: npt.NDArray[np.bool_]
    tables: tuple[tuple[Integers, Reals, float], ...]

    @classmethod
    def of(
        cls,
        blocks: Sequence[Measurement],
        shares: Sequence[Reals],
        parts: Coarsening,
        n: float,
        components: int,
        held: Sequence[Measurement] = (),
    ) -> Seeds:
        """Products for blocks and tables of questions, at least so many, by `parts` of groups of these shares."""
        known = [*blocks, *held]
        together = sorted({c for m in known for c in m.marginal.columns})
        law = np.ones([parts.sizes[c] for c in together])
        for axis, c in enumerate(together):
            law *= np.expand_dims(np.bincount(parts.groups[c], shares[c]), [i for i in range(law.ndim) if i != axis])
        product, laws = law, list[Reals]()
        for m in known:
            counts = denoised(m.values, float(np.mean(m.noise_std)), n, np.ones(m.values.shape, bool))
            laws.append((np.maximum(counts, 0.0) + 1.0 / counts.size) / (np.maximum(counts, 0.0).sum() + 1.0))
        others = [tuple(i for i, c in enumerate(together) if c not in m.marginal.columns) for m in known]
        for _ in range(_SWEEPS):
            for axes, own in zip(others, laws):
                now = law.sum(axes, keepdims=True)
                law = law * (own.reshape(now.shape) / now)
        law = (n * law / law.sum() + product) / (n + 1)
        return cls._in_cells(law, together, laws, blocks, parts, n, components)

    @classmethod
    def _in_cells(
        cls,
        law: Reals,
        together: Sequence[int],
        laws: Sequence[Reals],
        blocks: Sequence[Measurement],
        parts: Coarsening,
        n: float,
        components: int,
    ) -> Seeds:
        """Products as the law of cells has them, one for each cell at least."""
        count = max(components, min(_PRODUCTS * law.size, _MOST_PRODUCTS))
        wanted = np.floor((count - law.size) * law.ravel().cumsum() / law.sum()).astype(np.int64)
        cells = np.repeat(np.arange(law.size), 1 + np.diff(wanted, prepend=0))
        signs = dict(zip(together, np.unravel_index(cells, law.shape)))
        inside = [
            parts.groups[c][:, None] == signs[c][None] if c in signs else np.ones((len(group), len(cells)), bool)
            for c, group in enumerate(parts.groups)
        ]
        tables = []
        for m, own in zip(blocks, laws):
            place = np.ravel_multi_index([signs[c] for c in m.marginal.columns], own.shape)
            tables.append((place, own.ravel(), (n / float(np.mean(m.noise_std))) ** 2))
        return cls(law.ravel(), cells, np.concatenate(inside), tuple(tables))

    @property
    def weights(self) -> Floats:
        """Logits (K,) of the products' weights at first."""
        return np.log(self.law[self.cells] / np.bincount(self.cells)[self.cells]).astype(np.float32)

    def within(self, prior: Floats, starts: Integers, column: Integers) -> Floats:
        """Logits (rows, K) of released columns inside of the parts of each product."""
        found = np.where(self.inside, np.exp(prior.astype(np.float64)), 0.0)
        found /= np.add.reduceat(found, starts, axis=0)[column]
        return np.asarray(np.where(self.inside, np.log(np.maximum(found, 1e-300)), _ABSENT), np.float32)

    def add_gradients(self, w: Floats, of_w: Floats) -> None:
        """Add gradients of the squared errors of the tables of blocks, in the weights w."""
        for place, shares, precision in self.tables:
            gap = np.bincount(place, w, len(shares)) - shares
            of_w += (precision * gap[place]).astype(np.float32)
