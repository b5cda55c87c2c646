"""Histograms over a partition that is public: no privacy is spent on finding it (Theorem 4)."""

from dataclasses import dataclass

import numpy as np

from dpgen.privacy.limits import require_whole
from dpgen.systems.ordered.knots import Integers
from dpgen.systems.ordered.laplace_histogram import LaplaceHistogram
from dpgen.systems.ordered.public_limits import CELLS


def equal_edges(N: int, cells: int) -> Integers:
    """Ends (t + 1,) of t = min(cells, N) cells of [0, N) whose widths differ by at most one.

    >>> equal_edges(10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    require_whole("cells", cells, *CELLS)
    t = min(cells, N)
    return np.array([N * i // t for i in range(t + 1)], np.int64)


@dataclass(frozen=True, kw_only=True)
class FixedPartitionHistogram(LaplaceHistogram):
    """Counts of t public cells plus integer Laplace noise, projected to the simplex; values spread evenly in a cell.

    Learns histograms on the given partition with O(t / alpha^2 + t / (alpha epsilon)) records.

    Source: Diakonikolas, Hardt, Schmidt 2015, Theorem 4.

    Arguments:
        cells: number t of cells of equal width.
        cell_edges: ends of other public cells, increasing from 0 to N; replaces `cells`.
    """

    cells: int = 256
    cell_edges: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("cells", self.cells, *CELLS)

    def edges(self, N: int) -> Integers:
        """Public cell ends (t + 1,) from 0 to N."""
        if self.cell_edges is None:
            return equal_edges(N, self.cells)
        edges = np.array(self.cell_edges, np.int64)
        if len(edges) < 2 or edges[0] != 0 or edges[-1] != N or (np.diff(edges) <= 0).any():
            raise ValueError(f"cell_edges reach from {edges[:1]} to {edges[-1:]}; they must increase from 0 to N = {N}")
        return edges
