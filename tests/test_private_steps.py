"""The private number of steps: its score's sensitivity by enumeration, its arithmetic against a linear programme."""

import numpy as np
import pytest
from scipy.optimize import linprog
from small_domains import neighbours

from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.systems.ordered.merr_budget import StepBudget, StepTerms, step_budget
from dpgen.systems.ordered.private_steps import choose_steps, corners, least_errors, pieces_needed, step_cost

N = 10**18


def budgets(epsilon: float = 1.0, selection: str = "points") -> dict[int, StepBudget]:
    terms = {"composition": "zcdp", "share": 0.5, "relation": "replace_one", "levels": 61, "size": 1e5}
    return {
        t: step_budget(StepTerms(selection=selection, steps=t, **terms), epsilon=epsilon, delta=1e-6)  # type: ignore[arg-type]
        for t in (2, 4, 8, 16, 32)
    }


def least_error_of_one_line(x: np.ndarray, y: np.ndarray) -> float:
    rows = np.stack([x, np.ones_like(x), -np.ones_like(x)], axis=1)
    below = np.stack([-x, -np.ones_like(x), -np.ones_like(x)], axis=1)
    limits = np.concatenate([y, -y])
    free = [(None, None), (None, None), (0, None)]
    return float(linprog([0, 0, 1], A_ub=np.concatenate([rows, below]), b_ub=limits, bounds=free).fun)


def test_pieces_agree_with_linear_programmes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        x, y = np.cumsum(rng.integers(1, 6, 9)), np.cumsum(rng.integers(0, 5, 9))
        error = float(rng.integers(0, 4)) + 0.25
        first, pieces = 0, 0
        while first < x.size:
            last = first + 1
            while last < x.size and least_error_of_one_line(x[first : last + 1], y[first : last + 1]) <= error + 1e-9:
                last += 1
            first, pieces = last, pieces + 1
        assert pieces_needed(x, y, error) == pieces


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_scores_move_by_at_most_stride_plus_one(stride: int, relation: str) -> None:
    histograms, first, second = neighbours(6, 5, relation)
    errors = np.array([least_errors(*corners(np.repeat(np.arange(6), h), 6, stride), [1, 2, 3]) for h in histograms.tolist()])
    assert np.abs(errors[first] - errors[second]).max() <= stride + 1


def test_more_pieces_never_fit_worse() -> None:
    values = np.sort((np.random.default_rng(1).beta(2, 5, 5000) * N).astype(np.int64))
    errors = least_errors(*corners(values, N, 1), [1, 2, 4, 8, 16])
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
        ledger = Ledger(Budget(1.0, 1e-6), relation="replace_one")
        chosen[name] = choose_steps(values, budgets(0.5), N=N, size=1e5, epsilon=1.0, ledger=ledger, source=SecureSource())
        assert ledger.epsilon() == pytest.approx(1.0, rel=1e-4)
        assert "exponential mechanism over [2, 4, 8, 16, 32]" in ledger.entries()[0].note
    assert chosen["flat"] == 2
    assert chosen["wavy"] >= 4


def test_an_empty_purse_refuses() -> None:
    ledger = Ledger(Budget(0.1, 1e-6), relation="replace_one")
    with pytest.raises(BudgetExceeded, match="number of steps"):
        choose_steps(np.arange(9), budgets(), N=N, size=9, epsilon=1.0, ledger=ledger, source=SecureSource())
