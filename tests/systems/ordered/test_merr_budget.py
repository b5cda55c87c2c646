"""What a step may spend, and that the noise bought with it is enough: exact divergences of whole steps."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from small_domains import dyadic, exponential, interval_cells, models, neighbours, point_cells

from dpgen.auditing.lower_bounds import delta_lower_bound
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.systems.ordered.steps import StepBudget, StepTerms, step_budget, zcdp_budget

RELATIONS = ["add_remove", "replace_one"]


def terms(selection: str = "exponential", **changes: object) -> StepTerms:
    values: dict = {"steps": 4, "composition": "basic", "share": 0.5, "relation": "replace_one", "levels": 4}
    return StepTerms(selection=selection, **(values | changes))  # type: ignore[arg-type]


def charged(budget: StepBudget, delta: float) -> float:
    ledger = Ledger(None, delta=delta, relation=budget.relation)
    ledger.declare(budget.planned())
    return ledger.epsilon()


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("selection", ["choosing", "exponential", "points"])
@pytest.mark.parametrize(("epsilon", "delta", "steps"), [(1.0, 1e-6, 1), (0.2, 1e-5, 20), (4.0, 1e-7, 12)])
def test_steps_fit_the_budget_and_use_it(selection: str, relation: str, epsilon: float, delta: float, steps: int) -> None:
    for composition in ("basic", "zcdp"):
        public = terms(selection, relation=relation, steps=steps, composition=composition, levels=61)
        spent = charged(step_budget(public, epsilon=epsilon, delta=delta), delta)
        assert spent <= epsilon
        assert composition == "basic" or spent > 0.999 * epsilon
    pure = Ledger(Budget(epsilon, 0.0), relation=relation)  # type: ignore[arg-type]
    if selection != "choosing":
        pure.declare(step_budget(terms(selection, relation=relation, steps=steps), epsilon=epsilon, delta=0).planned())
        assert pure.epsilon() == pytest.approx(epsilon)


def test_noise_of_basic_composition_is_the_corrected_one() -> None:
    budget = step_budget(terms(steps=20), epsilon=1.0, delta=0)
    assert budget.noise("interval") == pytest.approx(4 * 20)  # 4 T / epsilon records, for Laplace(4 T / (epsilon n))
    assert budget.rate == pytest.approx(1 / (4 * 20))
    zcdp = step_budget(terms(steps=20, composition="zcdp"), epsilon=1.0, delta=1e-6)
    rho = zcdp_budget(1.0, 1e-6)
    assert zcdp.rate == pytest.approx(math.sqrt(rho / 20), rel=2e-3)
    assert zcdp.noise("interval") == pytest.approx(math.sqrt(2 * 20 / rho), rel=2e-3)
    assert zcdp.noise("point") == pytest.approx(zcdp.noise("interval") / math.sqrt(2))


def test_zcdp_budget_is_tight_and_checked() -> None:
    orders = np.logspace(-3, 4, 200_000) + 1
    for epsilon, delta in ((1.0, 1e-6), (0.1, 1e-4), (8.0, 1e-9)):
        rho = zcdp_budget(epsilon, delta)
        logs = (orders - 1) * (orders * rho - epsilon) - np.log(orders - 1) + orders * np.log1p(-1 / orders)
        assert math.exp(logs.min()) == pytest.approx(delta, rel=1e-4)
    with pytest.raises(ValueError, match="zcdp needs"):
        zcdp_budget(1.0, 0.0)


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("composition", ["basic", "zcdp"])
def test_variances_are_those_of_the_noise(composition: str, published: bool) -> None:
    budget = step_budget(terms(steps=1, composition=composition, published=published), epsilon=1.0, delta=1e-3)
    for asked, cells in (("interval", 2), ("point", 1)):
        curator = Curator(Ledger(None, delta=1e-3, relation=budget.relation))
        values, knots = np.repeat([0, 1], 7), [1, 2][:cells]
        draws = np.array([budget.answer(values, knots, curator) for _ in range(3000)]) - 7
        assert {entry.event for entry in curator.ledger.entries()} == {budget.answer_event}
        assert draws.var() == pytest.approx(budget.variance(asked), rel=0.35)  # type: ignore[arg-type]
        assert (draws == draws.round()).all()


def laplace_ratios(scale: float, cells: int) -> list[tuple[float, float]]:
    """(chance, likelihood ratio) of discrete Laplace noise on cells that all change by 1."""
    r = math.exp(-1 / scale)
    one = [(1 / (1 + r), 1 / r), (r / (1 + r), r)]
    return [(math.prod(p for p, _ in some), math.prod(q for _, q in some)) for some in product(one, repeat=cells)]


def step_divergence(
    pairs: tuple[np.ndarray, np.ndarray], chances: np.ndarray, answers: list[np.ndarray], scales: np.ndarray, epsilon: float
) -> float:
    """Largest hockey stick of (selected, noisy counts): `answers[k]` (m, cells) are the counts asked after selecting k."""
    total = np.zeros(len(pairs[0]))
    for k, asked in enumerate(answers):
        p, q = chances[pairs[0], k], chances[pairs[1], k]
        change = np.abs(asked[pairs[0]] - asked[pairs[1]])
        assert change.max(initial=0) <= 1
        for moved in range(asked.shape[1] + 1):
            rows = change.sum(axis=1) == moved
            for mass, ratio in laplace_ratios(scales[k], moved):
                total[rows] += mass * np.maximum(0, p[rows] - math.exp(epsilon) * q[rows] / ratio)
    return float(total.max())


def test_laplace_ratios_agree_with_a_sum() -> None:
    y, scale = np.arange(-400, 401), 1.7
    mass = np.exp(-np.abs(y) / scale)
    mass /= mass.sum()
    moved = np.exp(-np.abs(y - 1) / scale) / np.exp(-np.abs(y) / scale).sum()
    for limit in (0.1, 1.0, 1.5):
        slow = np.maximum(0, mass - limit * moved).sum()
        fast = sum(p * max(0, 1 - limit / q) for p, q in laplace_ratios(scale, 1))
        assert slow == pytest.approx(fast, abs=1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("selection", ["exponential", "points"])
@pytest.mark.parametrize("N", [8, 16])
def test_no_step_exceeds_its_epsilon_and_the_printed_noise_does(N: int, selection: str, relation: str) -> None:
    """One whole step, selection and answers together; the steps of a run add up."""
    steps, epsilon, printed = 4, 1.0, 0.0
    for size in [None] if relation == "add_remove" else [1, 2, 3, 4]:
        histograms, first, second = neighbours(N, 4, relation, size)
        below = np.concatenate([np.zeros((len(histograms), 1), int), np.cumsum(histograms, axis=1)], axis=1)
        for model in models(N, float(size or 3)):
            ends = dyadic(N) if selection == "exponential" else np.stack([np.arange(1, N)] * 2, axis=1)
            cells = interval_cells if selection == "exponential" else point_cells
            scores = np.abs(np.subtract(*cells(histograms, model)))
            inner = [sorted({x for x in pair if 0 < x < N}) for pair in ends.tolist()]
            answers = [np.diff(below[:, [0, *some]], axis=1) for some in inner]
            for published in (False, True):
                public = terms(selection, steps=steps, relation=relation, published=published)
                budget = step_budget(public, epsilon=epsilon, delta=0)
                scales = np.array([budget.noise("interval" if len(some) == 2 else "point") for some in inner])
                chances = exponential(scores, budget.rate)
                found = step_divergence((first, second), chances, answers, scales, epsilon / steps)
                assert published or found <= 1e-12
                if published:
                    printed = max(printed, found)
                    true = float(sum(line.event.epsilon for line in budget.planned()))
                    assert step_divergence((first, second), chances, answers, scales, true) <= 1e-12
    assert printed > 0.1


def test_the_true_cost_of_the_printed_noise() -> None:
    """T = 20 and epsilon = 1: 80.5 under replace-one instead of 1."""
    budget = step_budget(terms(steps=20, published=True), epsilon=1.0, delta=0)
    ledger = Ledger(None, delta=1e-300, relation="replace_one")
    ledger.declare(budget.planned())
    assert sum(20 * line.event.epsilon for line in budget.planned()) == pytest.approx(80.5)
    assert 60 < ledger.epsilon() <= 80.5 * (1 + 1e-9)


@pytest.mark.parametrize("published", [False, True])
def test_audit_rejects_the_printed_noise_only(published: bool) -> None:
    """Both cells of one interval, asked in each of T = 4 steps, on two data sets that differ by a replaced record."""
    budget = step_budget(terms(published=published), epsilon=1.0, delta=0)
    curator = Curator(Ledger(None, delta=1e-6, relation="replace_one"))

    def statistic(counts: list[int]) -> torch.Tensor:
        values = np.repeat([0, 1], counts)
        asked = np.array([[budget.answer(values, [1, 2], curator) for _ in range(4)] for _ in range(300)])
        # the log-likelihood ratio of one more record on the left, one fewer inside
        return torch.from_numpy(np.clip(asked - [10, 10], -0.5, 0.5).sum(axis=1) @ [1.0, -1.0])

    found = delta_lower_bound(statistic([11, 10]), statistic([10, 11]), 1.0)
    assert (found > 1e-3) == published
