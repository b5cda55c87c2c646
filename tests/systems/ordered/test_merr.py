"""The Maximum Error Rule and its selection of points: what steps cost and release, exactly on small domains and as a whole."""

import math
from fractions import Fraction

import numpy as np
import pytest
from fixed_source import FixedKeySource
from small_domains import chi_square, exponential, models, neighbours, point_cells

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.ordered.estimator import MERR, MonotoneCounts, PointSelection, Step

N = 10**18
RELATIONS: list[Relation] = ["add_remove", "replace_one"]
DELTAS = [0.0, 1e-6]


def skewed(n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    return np.sort((rng.beta(2, 8, n) * 0.8 * N).astype(np.int64))


def kolmogorov(counts: MonotoneCounts, values: np.ndarray) -> float:
    at = counts.at(values) / counts.counts[-1]
    return float(np.abs(at - np.arange(values.size) / values.size).max())


# -- as a whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_finds_the_distribution_within_the_budget(delta: float, relation: Relation) -> None:
    values, ledger = skewed(100_000), Ledger(Budget(2.0, delta), relation=relation)
    fit = MERR(epsilon=2.0, delta=delta, steps=8).fit_counts(values, N=N, curator=Curator(ledger))
    assert 1.99 < ledger.epsilon() <= 2.0
    assert 1e-4 < kolmogorov(fit, values) < 0.03  # too good would mean that noise is missing
    assert kolmogorov(fit, values) < 0.2 * kolmogorov(MonotoneCounts(np.array([0, N]), np.array([0.0, 1.0])), values)


# -- a step ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("epsilon", "delta", "steps"), [(1.0, 1e-6, 1), (0.2, 1e-5, 20), (1e3, 1e-9, 1)])
def test_steps_fit_the_budget_and_use_it(relation: Relation, rows: int, epsilon: float, delta: float, steps: int) -> None:
    for some, least in ((delta, 0.999), (0.0, 1 - 1e-9)):
        ledger = Ledger(Budget(epsilon, some), relation=relation, rows=rows)
        ledger.declare(MERR(epsilon=epsilon, delta=some, steps=steps, size=9, rows=rows).planned(N, relation))
        assert least * epsilon < ledger.epsilon() <= epsilon


def test_noise_is_the_corrected_one() -> None:
    """Two halves of each of T steps: the printed Laplace(1/(2n)) would not depend on T or epsilon."""
    pure = Step.of(20, 1.0, 0.0, rows=1, relation="replace_one")
    assert pure.strength == pytest.approx(1 / 40)
    assert pure.rate == pytest.approx(1 / 80)
    zcdp = Step.of(20, 1.0, 1e-6, rows=1, relation="replace_one")
    assert zcdp.strength == zcdp.rate == pytest.approx(math.sqrt(0.02436 / 20), rel=2e-3)  # rho of (1, 1e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("rows", [1, 4])
def test_variances_are_those_of_the_noise(delta: float, rows: int) -> None:
    step = Step.of(1, 1.0, delta, rows=rows, relation="replace_one")
    curator = Curator(Ledger(None, delta=1e-3, relation="replace_one", rows=rows))
    draws = np.array([step.answer(np.repeat([0, 1], 7), 1, curator) for _ in range(1000)]) - 7
    assert {entry.event for entry in curator.ledger.entries()} == {step.events("replace_one")[1]}
    assert draws.var() == pytest.approx(step.variance, rel=0.35)
    assert (draws == draws.round()).all()


def step_divergence(
    first: np.ndarray, second: np.ndarray, chances: np.ndarray, below: np.ndarray, step: Step, to: float
) -> float:
    """Largest hockey stick of (selected point, its count with discrete Laplace noise) over pairs of data sets."""
    r, total = math.exp(-step.strength), np.zeros(len(first))
    for k in range(chances.shape[1]):
        p, q = chances[first, k], chances[second, k]
        change = np.abs(below[first, k] - below[second, k])
        assert change.max() <= 1
        for moved, outcomes in ((0, [(1.0, 1.0)]), (1, [(1 / (1 + r), 1 / r), (r / (1 + r), r)])):
            for mass, ratio in outcomes:
                total += np.where(change == moved, mass * np.maximum(0, p - math.exp(to) * q / ratio), 0)
    return float(total.max())


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.4, 4.0])
def test_no_pair_of_neighbours_exceeds_a_whole_step_and_twice_its_strength_does(relation: Relation, epsilon: float) -> None:
    small, twice = 8, 0.0
    step = Step.of(1, epsilon, 0.0, rows=1, relation=relation)
    for size in [None] if relation == "add_remove" else [1, 2, 3, 4]:
        histograms, first, second = neighbours(small, 4, relation, size)
        for model in models(small, float(size or 3)):
            below, public = point_cells(histograms, model)
            for faulty in (False, True):
                some = Step(2 * step.strength, zcdp=False) if faulty else step
                chances = exponential(np.abs(below - public), some.rate)
                found = step_divergence(first, second, chances, below, some, epsilon)
                assert faulty or found <= 1e-12
                twice = max(twice, found) if faulty else twice
    assert twice > 0.01


@pytest.mark.parametrize(("N", "n", "rate"), [(2, 3, 0.5), (8, 4, 0.05), (100, 60, 0.05), (100, 400, 0.2)])
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


@pytest.mark.parametrize(("N", "n", "rate"), [(8, 4, 2.0), (10**4, 300, 0.02), (10**18, 2000, 0.4)])
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
