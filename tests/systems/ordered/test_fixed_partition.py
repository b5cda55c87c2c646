"""Theorem 4: public cells of any domain."""

import numpy as np
import pytest

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.systems.ordered.baselines import FixedPartitionHistogram


def test_equal_cells_cover_the_domain_exactly() -> None:
    for N, cells in [(10**18, 7), (10, 4), (3, 100), (2**62, 256)]:
        edges = FixedPartitionHistogram(epsilon=1.0, cells=cells).edges(N)
        assert (edges[0], edges[-1], len(edges)) == (0, N, min(cells, N) + 1)
        assert np.ptp(np.diff(edges)) <= 1
    with pytest.raises(ValueError, match="cells is 0"):
        FixedPartitionHistogram(epsilon=1.0, cells=0)


def test_cells_are_counted() -> None:
    values = np.repeat([0, 5 * 10**17, 10**18 - 1], [3000, 5000, 2000])
    model = FixedPartitionHistogram(epsilon=1.0, cells=4).fit(
        values, N=10**18, curator=Curator(Ledger(None, delta=1e-9, relation="replace_one"))
    )
    assert model.cdfs["x"].knots.tolist() == [0, 25 * 10**16, 5 * 10**17, 75 * 10**16, 10**18]
    assert np.diff(model.cdfs["x"].values) == pytest.approx([0.3, 0, 0.5, 0.2], abs=0.01)
