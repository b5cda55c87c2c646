"""The private number of steps: its score's sensitivity by enumeration, its errors against their definition."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from fixed_source import FixedKeySource
from small_domains import chi_square, neighbours

from dpgen.privacy.curator import Curator
from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger, Planned
from dpgen.systems.ordered import steps as module
from dpgen.systems.ordered.steps import (
    CHOICE_NOTE,
    StepBudget,
    StepTerms,
    _grow,
    _steeper,
    choice,
    choose_steps,
    corners,
    least_errors,
    step_budget,
    step_cost,
    step_costs,
)

N = 10**18


def budgets(epsilon: float = 1.0, selection: str = "points") -> dict[int, StepBudget]:
    terms = {"composition": "zcdp", "share": 0.5, "relation": "replace_one", "levels": 61}
    return {
        t: step_budget(StepTerms(selection=selection, steps=t, **terms), epsilon=epsilon, delta=1e-6)  # type: ignore[arg-type]
        for t in (2, 4, 8, 16, 32)
    }


def least_error_of_one_line(x: np.ndarray, y: np.ndarray) -> Fraction:
    """Half of the largest distance of a point from the line through two others around it: the Chebyshev line."""
    points = list(zip(x.tolist(), y.tolist()))
    bends = [
        Fraction(abs((q - p) * (c - a) - (b - a) * (r - p)), 2 * (c - a)) for (a, p), (b, q), (c, r) in combinations(points, 3)
    ]
    return max(bends, default=Fraction(0))


def errors_by_enumeration(values: np.ndarray, N: int, pieces: list[int]) -> list[int]:
    """The definition: the best of all ways to cut 0 ... N into runs, one line for each."""
    x = np.arange(N + 1)
    y = np.searchsorted(values, x)
    one = {(i, j): least_error_of_one_line(x[i:j], y[i:j]) for i, j in combinations(range(N + 2), 2)}
    best = {0: Fraction(0)}
    found = {}
    for p in range(1, max(pieces) + 1):
        best = {0: Fraction(0)} | {j: min(max(error, one[i, j]) for i, error in best.items() if i < j) for j in range(1, N + 2)}
        found[p] = math.ceil(best[N + 1])
    return [found[p] for p in pieces]


def test_errors_are_those_of_the_best_of_all_models() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        N = int(rng.integers(2, 13))
        values = np.sort(rng.choice(rng.integers(0, N, 4), rng.integers(1, 20)))
        assert least_errors(*corners(values, N), [1, 2, 3, 4]) == errors_by_enumeration(values, N, [1, 2, 3, 4])


def test_slopes_are_compared_exactly() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        height, other = (int(v) for v in rng.integers(-(2**60), 2**60, 2))
        width, other_width = (int(v) for v in rng.integers(1, 2**62, 2))
        assert _steeper(height, width, other, other_width) == (height * other_width > other * width)
        assert not _steeper(height, width, height, width)
        if abs(height) < 2**59 and width < 2**61:
            assert _steeper(2 * height + 1, 2 * width, height, width)
            assert not _steeper(2 * height, 2 * width, height, width)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_errors_move_by_at_most_one_kept_record(stride: int, relation: str) -> None:
    histograms, first, second = neighbours(7, 5, relation)
    data = [np.repeat(np.arange(7), h)[::stride] for h in histograms.tolist()]
    errors = np.array([least_errors(*corners(values, 7), [1, 2, 3]) for values in data])
    assert np.abs(errors[first] - errors[second]).max() == 1


def clusters(extra: int) -> np.ndarray:
    """Two crowds with 10^6 empty values between them, and one more record."""
    crowd = np.repeat(np.arange(100), 105)  # so many that the extra record is kept at stride 7
    return np.sort(np.concatenate([crowd, 10**6 + crowd, [extra]]))


def pieces_at_records(x: np.ndarray, y: np.ndarray, error: int, most: int) -> int:
    """The rejected twin of `pieces_needed`: lines are held to the data at records only, and break anywhere in a gap."""
    i, pieces = 0, 0
    while i < x.size and pieces <= most:
        i, pieces = _grow(x, y, 2 * error, i)[0] if i + 1 < x.size else x.size, pieces + 1
    return pieces


@pytest.mark.parametrize("stride", [1, 7])
def test_one_record_in_a_gap_moves_no_cost_by_more_than_the_stride(stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines held to the data at records only, the rejected twin, move by the order of n."""
    moved = {}
    for anywhere in (True, False):
        if not anywhere:
            monkeypatch.setattr(module, "pieces_needed", pieces_at_records)
        near, far = (np.array(step_costs(clusters(x), budgets(), N=10**6 + 100, stride=stride)) for x in (50, 500_000))
        moved[anywhere] = int(np.abs(near - far).max())
    assert moved[True] <= stride
    assert moved[False] > 1000


@pytest.mark.parametrize("anywhere", [True, False])
def test_chances_of_the_choice_keep_their_epsilon(anywhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = []
    if not anywhere:
        monkeypatch.setattr(module, "pieces_needed", pieces_at_records)
    for extra in (50, 500_000):
        weights = -0.1 / 2 * np.array(step_costs(clusters(extra), budgets(), N=10**6 + 100))
        logs.append(weights - np.logaddexp.reduce(weights))
    assert (np.abs(logs[0] - logs[1]).max() <= 0.1) == anywhere


def test_more_pieces_never_fit_worse() -> None:
    values = np.sort((np.random.default_rng(1).beta(2, 5, 5000) * N).astype(np.int64))
    errors = least_errors(*corners(values, N), [1, 2, 4, 8, 16])
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 500 > 100 > errors[-1]


@pytest.mark.parametrize("selection", ["points", "exponential", "choosing"])
def test_cost_grows_with_the_steps_and_moves_with_the_error(selection: str) -> None:
    costs = [step_cost(100, budget) for budget in budgets(selection=selection).values()]
    assert costs == sorted(costs)
    for budget in budgets(selection=selection).values():
        by_error = np.array([step_cost(error, budget) for error in range(3000)])
        assert set(np.diff(by_error).tolist()) <= {0, 1}


def test_choice_pays_and_follows_the_data() -> None:
    rng = np.random.default_rng(2)
    wavy = np.sort(((rng.integers(0, 8, 100_000) + rng.beta(0.3, 0.3, 100_000) * 0.8) / 8 * N).astype(np.int64))
    flat = np.linspace(0, N - 1, 100_000).astype(np.int64)
    chosen = {}
    for name, values in (("wavy", wavy), ("flat", flat)):
        # At epsilon 100 nearly every choice is the best one; at 1 every fifth is the first.
        ledger = Ledger(Budget(100.0, 1e-6), relation="replace_one")
        curator = Curator(ledger)
        curator.declare(Planned(choice([], epsilon=100.0).event, CHOICE_NOTE))
        chosen[name] = choose_steps(values, budgets(0.5), N=N, size=1e5, epsilon=100.0, curator=curator)
        assert ledger.epsilon() == pytest.approx(100.0, rel=1e-4)
        assert [(entry.event.epsilon, entry.note) for entry in ledger.entries()] == [(100.0, CHOICE_NOTE)]
    assert chosen["flat"] == 2
    assert chosen["wavy"] >= 4


@pytest.mark.parametrize("stride", [1, 3])
def test_the_rate_is_what_the_price_pays_for(stride: int) -> None:
    """Costs that a record moves by the stride, in opposite directions: the log-ratio of a chance comes close to epsilon."""
    epsilon, losses = 0.8, []
    for costs in ([0] + [stride] * 10**5, [stride] + [0] * 10**5):
        chosen = choice(costs, epsilon=epsilon, stride=stride)
        assert chosen.event == pure_event(epsilon)
        losses.append(chosen.log_probabilities())
    assert 0.99 * epsilon < np.abs(losses[0] - losses[1]).max() <= epsilon * (1 + 1e-9)


def test_the_choice_is_drawn_with_that_rate() -> None:
    costs = [0, 2, 5]
    seen = np.bincount(choice(costs, epsilon=1.0).draw(FixedKeySource(0), 3000), minlength=3)
    chances = np.exp(-0.5 * np.array(costs))
    assert chi_square(seen, chances / chances.sum()) > 1e-5


def test_an_empty_purse_refuses() -> None:
    curator = Curator(Ledger(Budget(0.1, 1e-6), relation="replace_one"))
    with pytest.raises(BudgetExceeded, match="number of steps"):
        choose_steps(np.arange(9), budgets(), N=N, size=9, epsilon=1.0, curator=curator)
