"""Theorem 4: public cells of any domain."""

import numpy as np
import pytest

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.systems.ordered.baselines import FixedPartitionHistogram, equal_edges


def test_equal_cells_cover_the_domain_exactly() -> None:
    for N, cells in [(10**18, 7), (10, 4), (3, 100), (2**62, 256)]:
        edges = equal_edges(N, cells)
        assert (edges[0], edges[-1], len(edges)) == (0, N, min(cells, N) + 1)
        assert np.ptp(np.diff(edges)) <= 1
    with pytest.raises(ValueError, match="cells is 0"):
        equal_edges(10, 0)


def test_own_cells_are_counted() -> None:
    values = np.repeat([0, 5, 10**18 - 1], [3000, 5000, 2000])
    edges = (0, 4, 10, 10**18)
    model = FixedPartitionHistogram(epsilon=1.0, cell_edges=edges).fit(
        values, N=10**18, curator=Curator(Ledger(None, delta=1e-9, relation="replace_one"))
    )
    assert model.cdfs["x"].knots.tolist() == list(edges)
    assert np.diff(model.cdfs["x"].values) == pytest.approx([0.3, 0.5, 0.2], abs=0.01)


@pytest.mark.parametrize("edges", [(0,), (1, 8), (0, 4), (0, 4, 4, 8)])
def test_cells_that_are_no_partition_are_refused(edges: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must increase from 0 to N = 8"):
        FixedPartitionHistogram(epsilon=1.0, cell_edges=edges).fit(
            np.array([1, 2]), N=8, curator=Curator(Ledger(None, delta=1e-9))
        )
