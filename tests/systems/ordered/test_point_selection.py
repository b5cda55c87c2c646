"""The exponential mechanism over points: exact draws, exact privacy."""

from fractions import Fraction

import numpy as np
import pytest
from fixed_source import FixedKeySource
from small_domains import chi_square, exponential, hockey_stick, models, neighbours, point_cells

from dpgen.systems.ordered.counts import MonotoneCounts
from dpgen.systems.ordered.merr import PointSelection

RELATIONS = ["add_remove", "replace_one"]


@pytest.mark.parametrize(("N", "n", "rate"), [(2, 3, 0.5), (8, 4, 0.05), (16, 30, 0.5), (100, 60, 0.05), (100, 400, 0.2)])
def test_draws_agree_with_enumeration(N: int, n: int, rate: float) -> None:
    rng = np.random.default_rng(N + n)
    values = np.sort(rng.choice(N, n, p=rng.dirichlet(np.full(N, 0.3))))
    for model in models(N, 1.1 * n):
        selection, source = PointSelection(values, N=N, rate=rate), FixedKeySource(n)
        draws = selection.given(model).draw(source, 600)
        counts, public = point_cells(np.bincount(values, minlength=N)[None], model)
        chances = exponential(np.abs(counts - public), rate)[0]
        assert min(draws) >= 1
        assert chi_square(np.bincount(draws, minlength=N)[1:], chances) > 1e-5


@pytest.mark.parametrize(("N", "n", "rate"), [(8, 4, 2.0), (10**4, 300, 0.02), (10**18, 2000, 0.01), (10**18, 2000, 0.4)])
def test_blocks_hold_every_candidate_once_and_bound_its_score(N: int, n: int, rate: float) -> None:
    rng = np.random.default_rng(n)
    values = np.sort((rng.beta(2, 5, n) ** 3 * N).astype(np.int64))
    values[: n // 4] = values[n // 8]  # many equal records
    values.sort()
    edges = np.unique(np.concatenate([[0], rng.integers(1, N, 5), values[::500], [N]]))
    model = MonotoneCounts(edges, np.concatenate([[0.0], np.sort(rng.uniform(0, n, edges.size - 2)), [float(n)]]))
    selection = PointSelection(values, N=N, rate=rate)
    cells, scores = selection.blocks(model)
    order = np.argsort(cells[:, 0])
    starts, sizes = cells[order, 0], cells[order, 1]
    assert starts[0] == 1
    assert (starts[1:] == starts[:-1] + sizes[:-1]).all()
    assert starts[-1] + sizes[-1] == N
    for block in rng.choice(len(cells), min(200, len(cells)), replace=False):
        low, width = int(cells[block, 0]), int(cells[block, 1])
        for x in {low, low + width - 1, low + width // 2}:
            score = float(selection.score(x, model))
            assert scores[block, 0] - 1e-6 <= score <= scores[block, 1] + 1e-6


def test_scores_are_exact() -> None:
    selection = PointSelection(np.array([2, 2, 5]), N=9, rate=1.0)
    model = MonotoneCounts(np.array([0, 9]), np.array([0.0, 3.0]))
    assert [selection.score(x, model) for x in (2, 3)] == [Fraction(2.0 / 9.0 * 3.0), abs(2 - Fraction(3.0 / 9.0 * 3.0))]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("N", [8, 16])
def test_no_pair_of_neighbours_exceeds_epsilon(N: int, relation: str) -> None:
    worst = 0.0
    for size in [None] if relation == "add_remove" else [1, 2, 3, 4]:
        histograms, first, second = neighbours(N, 4, relation, size)
        for model in models(N, float(size or 3)):
            for epsilon in (0.1, 1.0):
                counts, public = point_cells(histograms, model)
                chances = exponential(np.abs(counts - public), epsilon / 2)
                assert hockey_stick(chances[first], chances[second], epsilon) <= 1e-12
                twice = exponential(np.abs(counts - public), epsilon)
                worst = max(worst, hockey_stick(twice[first], twice[second], epsilon))
    assert worst > 1e-2  # a rate of epsilon instead of epsilon / 2 is caught
