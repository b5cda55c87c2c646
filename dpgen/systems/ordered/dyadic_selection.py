r"""The exponential mechanism over all dyadic intervals of [N], $2^{61}$ of them at N = 10^18, drawn exactly.

The score of an interval is $|c(J) - A(J)|$, also where it holds no record. Only intervals with many records, or much of
the model, are listed. The others are proposed from three lumps that together hold each of them exactly once:

- no record and no *mark* of the model (every 1/rate of its mass has one): the number of a node, ceiling rate * spacing;
- a record: a record and a level, when it is the first record of its interval;
- a mark and no record: a mark and a level, when it is the first mark of its interval.
"""

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dpgen.privacy.mechanisms import Secrets
from dpgen.privacy.selection import exponential_event, exponential_mechanism
from dpgen.systems.ordered.dyadic_cells import DyadicCells, HeavyCells
from dpgen.systems.ordered.knots import SCORE, Integers, MonotoneCounts

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_LUMPS = 3
_SPACING = 1.0  # of marks, in units of 1/rate
_CEILINGS = (2.0, 20.0)  # least and largest exponent of intervals that are not listed


def interval_score(ranks: Integers, start: int, stop: int, model: MonotoneCounts) -> Fraction:
    """|count - A(stop) + A(start)| without rounding beyond that of the public model."""
    return abs(int(ranks[1] - ranks[0]) - Fraction(model.one(stop) - model.one(start)))


class DyadicSelection:
    """Draws dyadic intervals J with probability proportional to exp(rate |c(J) - A(J)|), exactly.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        N: domain size, at least 2.
        rate: lambda, per record.
        zcdp: account for draws by zCDP rather than by a pure guarantee.

    >>> from dpgen.privacy.curator import Curator
    >>> from dpgen.privacy.ledger import Ledger
    >>> curator, model = Curator(Ledger(None, delta=1e-6)), MonotoneCounts(np.array([0, 8]), np.array([0.0, 100.0]))
    >>> curator.release("interval", DyadicSelection(np.full(100, 2), N=8, rate=10.0).given(model))
    [(2, 3)]
    """

    def __init__(self, values: Integers, *, N: int, rate: float, zcdp: bool = False) -> None:
        self.values, self.N, self.rate, self.zcdp = values, N, rate, zcdp
        low, high = _CEILINGS
        # So large that a lump of records with this ceiling weighs less than all the empty intervals.
        depth = (N - 1).bit_length()
        free = math.log(2) * depth - math.log(4 * (depth + 1) * max(1, values.size))
        self.cells = DyadicCells(values, N=N, least=min(high, max(low, free)) / rate)
        self._depth = depth

    def given(self, model: MonotoneCounts) -> "DyadicDraw":
        """The draw for one public model."""
        return DyadicDraw(self, model)


class DyadicDraw:
    """One draw of `DyadicSelection`, a mechanism for `Curator.release`: the listed intervals and the lumps of the others."""

    def __init__(self, selection: DyadicSelection, model: MonotoneCounts) -> None:
        self.values, self.N, self.depth = selection.values, selection.N, selection._depth
        self.rate, self.least, self.zcdp = selection.rate, selection.cells.least, selection.zcdp
        self.model = model
        self.heavy: HeavyCells = selection.cells.heavy(model)
        self.spacing = _SPACING / self.rate
        self.marks = int(model.counts[-1] / self.spacing) + 1

    @property
    def event(self) -> "DpEvent":
        """What one draw costs."""
        return exponential_event(self.rate, SCORE, zcdp=self.zcdp)

    def draw(self, secrets: Secrets, count: int = 1) -> list[tuple[int, int]]:
        """Ends (start, stop) of an interval, start <= x < stop, `count` times."""
        return [self._interval(secrets) for _ in range(count)]

    def _interval(self, secrets: Secrets) -> tuple[int, int]:
        sizes = np.ones(_LUMPS + self.heavy.level.size, np.uint64)
        everything = self.depth + 1
        sizes[:_LUMPS] = 2**everything - 1, self.values.size * everything, self.marks * everything
        lumps = np.array([self.spacing, self.least, self.least])
        ceilings = self.rate * np.concatenate([lumps, self.heavy.scores])
        block, number = exponential_mechanism(secrets, sizes, ceilings, self.log_weight)
        found = self._node(block, number)
        assert found is not None  # log_weight has accepted it
        level, start = found
        return start, self._stop(level, start)

    def _stop(self, level: int, start: int) -> int:
        return min(self.N, start + (1 << (self.depth - level)))

    def log_weight(self, block: int, number: int) -> Fraction | None:
        """rate * score of a proposal, None for those that are listed, proposed by another lump, or outside [N]."""
        node = self._node(block, number)
        if node is None:
            return None
        level, start = node
        stop = self._stop(level, start)
        ranks = np.searchsorted(self.values, [start, stop])
        if block < _LUMPS and not self._proposed_here(block, number, level, start, stop, ranks):
            return None
        return Fraction(self.rate) * interval_score(ranks, start, stop, self.model)

    def _node(self, block: int, number: int) -> tuple[int, int] | None:
        """(level, start) of a proposal."""
        if block >= _LUMPS:
            return int(self.heavy.level[block - _LUMPS]), int(self.heavy.start[block - _LUMPS])
        if block == 0:
            level = (number + 1).bit_length() - 1
            start = (number + 1 - (1 << level)) << (self.depth - level)
            return (level, start) if start < self.N else None
        item, level = divmod(number, self.depth + 1)
        point = int(self.values[item]) if block == 1 else self.mark(item)
        return level, point >> (self.depth - level) << (self.depth - level)

    def _proposed_here(self, block: int, number: int, level: int, start: int, stop: int, ranks: Integers) -> bool:
        if ((self.heavy.start == start) & (self.heavy.level == level)).any():
            return False
        if block == 1:
            return number // (self.depth + 1) == ranks[0]
        if ranks[0] != ranks[1]:
            return False
        first = self.first_mark(start)
        if block == 2:
            return number // (self.depth + 1) == first
        return first is None or self.mark(first) >= stop

    def mark(self, j: int) -> int:
        """Mark number j: the last point x of [N] below which the model has at most j * spacing records."""
        target = j * self.spacing
        i = int(np.searchsorted(self.model.counts, target, side="right")) - 1
        if i >= self.model.counts.size - 1:
            return self.N - 1
        left, right = int(self.model.positions[i]), int(self.model.positions[i + 1])
        low, high = float(self.model.counts[i]), float(self.model.counts[i + 1])
        return min(self.N - 1, right - 1, left + int((right - left) * ((target - low) / (high - low))))

    def first_mark(self, start: int) -> int | None:
        """Number of the first mark at or after `start`; marks do not decrease."""
        j = min(self.marks, int(self.model.one(start) / self.spacing))
        while j > 0 and self.mark(j - 1) >= start:
            j -= 1
        while j < self.marks and self.mark(j) < start:
            j += 1
        return j if j < self.marks else None
