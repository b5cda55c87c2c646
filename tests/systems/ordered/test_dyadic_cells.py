"""Heavy dyadic intervals against a list of all of them."""

import numpy as np
import pytest
from small_domains import dyadic, models

from dpgen.systems.ordered.counts import MonotoneCounts
from dpgen.systems.ordered.selection import DyadicCells, levels


@pytest.mark.parametrize(("N", "depth"), [(2, 1), (3, 2), (8, 3), (9, 4), (2**62, 62)])
def test_levels(N: int, depth: int) -> None:
    assert levels(N) == depth + 1


@pytest.mark.parametrize(("N", "n", "least"), [(8, 4, 1.0), (13, 50, 3.0), (1000, 300, 0.5), (1000, 300, 40.0)])
def test_heavy_cells_are_all_there(N: int, n: int, least: float) -> None:
    values = np.sort((np.random.default_rng(N).beta(0.4, 2, n) * N).astype(np.int64))
    for model in models(N, 1.2 * n):
        cells = DyadicCells(values, N=N, least=least)
        heavy = cells.heavy(model)
        stops = np.minimum(heavy.start + (1 << (cells.depth - heavy.level)), N)
        ends = dyadic(N)
        counts = np.searchsorted(values, ends[:, 1]) - np.searchsorted(values, ends[:, 0])
        public = model.at(ends[:, 1]) - model.at(ends[:, 0])
        expected = np.maximum(counts, public) >= least
        expected[0] = True
        found = sorted(zip(heavy.start.tolist(), stops.tolist()))
        assert found == sorted(map(tuple, ends[expected].tolist()))
        assert (heavy.ranks == np.searchsorted(values, np.stack([heavy.start, stops], axis=1))).all()
        assert heavy.scores == pytest.approx(np.abs(np.diff(heavy.ranks)[:, 0] - (model.at(stops) - model.at(heavy.start))))


def test_the_largest_domain() -> None:
    N = 2**62
    values = np.array([0, N // 3, N - 1, N - 1])
    model = MonotoneCounts(np.array([0, N]), np.array([0.0, 4.0]))
    heavy = DyadicCells(values, N=N, least=1.0).heavy(model)
    assert heavy.level.max() == 62
    assert set(heavy.start[heavy.level == 62].tolist()) == set(values.tolist())


def test_room_grows_with_what_the_model_says() -> None:
    values = np.array([5])
    model = MonotoneCounts(np.array([0, 2**20]), np.array([0.0, 2.0**14]))
    assert DyadicCells(values, N=2**20, least=1.0).heavy(model).level.size >= 2**15 - 1
    with pytest.raises(ValueError, match=r"least is 0\.0"):
        DyadicCells(values, N=8, least=0.0)
