"""The exponential mechanism over dyadic intervals: exact draws, exact privacy."""

import numpy as np
import pytest
from fixed_source import FixedKeySource
from small_domains import chi_square, dyadic, exponential, hockey_stick, interval_cells, models, neighbours

from dpgen.systems.ordered import selection as cells
from dpgen.systems.ordered.counts import MonotoneCounts
from dpgen.systems.ordered.selection import DyadicDraw, DyadicSelection

RELATIONS = ["add_remove", "replace_one"]


def by_interval(N: int, chances: np.ndarray) -> dict[tuple[int, int], float]:
    found: dict[tuple[int, int], float] = {}
    for ends, chance in zip(map(tuple, dyadic(N).tolist()), chances.tolist()):
        found[ends] = found.get(ends, 0.0) + chance
    return found


@pytest.mark.parametrize("ceilings", [(2.0, 20.0), (0.5, 0.6), (3.0, 3.1)])
@pytest.mark.parametrize(("N", "n", "rate"), [(2, 3, 0.5), (13, 30, 0.3), (100, 60, 0.1)])
def test_draws_agree_with_enumeration(
    N: int, n: int, rate: float, ceilings: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "_CEILINGS", ceilings)  # from everything listed to almost nothing
    rng = np.random.default_rng(N + n)
    values = np.sort(rng.choice(N, n, p=rng.dirichlet(np.full(N, 0.3))))
    for model in models(N, 1.1 * n):
        selection, source = DyadicSelection(values, N=N, rate=rate), FixedKeySource(n)
        draws = selection.given(model).draw(source, 300)
        counts, public = interval_cells(np.bincount(values, minlength=N)[None], model)
        chances = by_interval(N, exponential(np.abs(counts - public), rate)[0])
        assert set(draws) <= set(chances)
        seen = np.array([draws.count(ends) for ends in chances])
        assert chi_square(seen, np.array(list(chances.values()))) > 1e-5


@pytest.mark.parametrize("least", [0.7, 3.0, 1000.0])
def test_every_interval_is_proposed_exactly_once(least: float) -> None:
    N, rate = 13, 0.5
    values = np.array([0, 0, 0, 4, 5, 12, 12])
    for model in models(N, 9.0):
        selection = DyadicSelection(values, N=N, rate=rate)
        selection.cells.least = least
        draw = DyadicDraw(selection, model)
        everything = draw.depth + 1
        sizes = [2**everything - 1, values.size * everything, draw.marks * everything] + [1] * draw.heavy.level.size
        lumps = [draw.spacing, least, least]
        found = []
        for block, size in enumerate(sizes):
            for number in range(size):
                weight = draw.log_weight(block, number)
                if weight is not None:
                    found.append(draw._node(block, number))
                    ceiling = rate * (lumps[block] if block < 3 else draw.heavy.scores[block - 3])
                    assert float(weight) <= ceiling + 1e-9
        every = [(j, a) for j in range(everything) for a in range(0, N, 1 << (draw.depth - j))]
        assert sorted(found) == every  # type: ignore[type-var]


def test_intervals_without_records_are_found_on_a_huge_domain() -> None:
    """The model puts half of its mass on the last 1000 points, where no record is: that is its largest error."""
    N, source = 10**18, FixedKeySource(0)
    values = np.linspace(0, N - 10**10, 1000).astype(np.int64)
    model = MonotoneCounts(np.array([0, N - 1000, N]), np.array([0.0, 500.0, 1000.0]))
    selection = DyadicSelection(values, N=N, rate=1.0)
    for start, stop in selection.given(model).draw(source, 20):
        assert N - 2**52 < start <= N - 1000 < N == stop


def test_nearly_flat_scores_on_a_huge_domain() -> None:
    """With a tiny rate all nodes are alike: nearly all draws are deep and empty."""
    N, source = 10**18, FixedKeySource(1)
    values = np.sort(np.random.default_rng(0).integers(0, N, 500))
    model = MonotoneCounts(np.array([0, N]), np.array([0.0, 500.0]))
    selection = DyadicSelection(values, N=N, rate=1e-3)
    widths = np.diff(selection.given(model).draw(source, 200))[:, 0]
    assert np.median(widths) <= 2
    assert (widths <= 2**20).all()


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("N", [8, 16])
def test_no_pair_of_neighbours_exceeds_epsilon(N: int, relation: str) -> None:
    worst = 0.0
    for size in [None] if relation == "add_remove" else [1, 2, 3, 4]:
        histograms, first, second = neighbours(N, 4, relation, size)
        for model in models(N, float(size or 3)):
            for epsilon in (0.1, 1.0):
                counts, public = interval_cells(histograms, model)
                chances = exponential(np.abs(counts - public), epsilon / 2)
                assert hockey_stick(chances[first], chances[second], epsilon) <= 1e-12
                twice = exponential(np.abs(counts - public), epsilon)
                worst = max(worst, hockey_stick(twice[first], twice[second], epsilon))
    assert worst > 1e-2  # a rate of epsilon instead of epsilon / 2 is caught


@pytest.mark.parametrize("relation", RELATIONS)
def test_zcdp_of_the_exponential_mechanism(relation: str) -> None:
    """Renyi divergences of order a stay below a rate^2 / 2, the bounded-range bound."""
    histograms, first, second = neighbours(8, 4, relation, None if relation == "add_remove" else 4)
    for model in models(8, 4.0):
        for rate in (0.2, 1.0):
            counts, public = interval_cells(histograms, model)
            logs = np.log(exponential(np.abs(counts - public), rate))
            for order in (1.5, 2.0, 8.0, 32.0):
                moments = np.logaddexp.reduce(order * logs[first] - (order - 1) * logs[second], axis=1)
                assert moments.max() / (order - 1) <= order * rate**2 / 2
