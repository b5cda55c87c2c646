"""The repaired choosing mechanism: exact draws, exact privacy, and the twin without its test."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from fixed_source import FixedKeySource
from small_domains import chi_square, dyadic, hockey_stick, interval_cells, models, neighbours

from dpgen.privacy.events import ApproximateDpEvent
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.ordered import selection as module
from dpgen.systems.ordered.counts import MonotoneCounts
from dpgen.systems.ordered.selection import ChoosingConstants, ChoosingSelection, interval_score, levels, scores_moved

RELATIONS = ["add_remove", "replace_one"]
GUARANTEES = [(0.5, 0.3), (2.0, 0.1), (6.0, 0.02), (12.0, 0.01), (25.0, 1e-4)]


def enumerated(
    histograms: np.ndarray, model: MonotoneCounts, constants: ChoosingConstants, *, tested: bool = True
) -> np.ndarray:
    """Chances (m, k + 1) of every dyadic interval, and of stopping."""
    counts, public = interval_cells(histograms, model)
    scores = np.abs(counts - public)
    gap = constants.threshold - np.maximum(scores.max(axis=1), constants.least)
    tail = np.exp(-constants.test_rate * np.abs(gap)) / 2
    passes = np.where(gap >= 0, tail, 1 - tail) if tested else np.ones(len(scores))
    weights = np.where(scores >= constants.least, np.exp(constants.draw_rate * scores / 2), 0.0)
    some = weights.sum(axis=1) > 0
    passes = np.where(some, passes, 0.0)
    drawn = passes[:, None] * weights / np.where(some, weights.sum(axis=1), 1.0)[:, None]
    return np.concatenate([drawn, 1 - passes[:, None]], axis=1)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("N", [8, 16])
def test_no_pair_of_neighbours_exceeds_epsilon_and_delta(N: int, relation: str) -> None:
    broken = 0.0
    for size in [None] if relation == "add_remove" else [1, 2, 3, 4]:
        histograms, first, second = neighbours(N, 4, relation, size)
        for model in models(N, float(size or 3)):
            for epsilon, delta in GUARANTEES:
                constants = ChoosingConstants.of(epsilon, delta, moved=scores_moved(levels(N), relation))
                chances = enumerated(histograms, model, constants)
                assert hockey_stick(chances[first], chances[second], epsilon) <= delta
                untested = enumerated(histograms, model, constants, tested=False)
                broken = max(broken, hockey_stick(untested[first], untested[second], epsilon) - delta)
    assert broken > 0.1  # without the noisy test the same check fails


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_threshold_near_tau_is_caught(relation: str) -> None:
    """Scores up to 60 records, thresholds in their range: the bound is not idle."""
    moved, excess = scores_moved(4, relation), 0.0
    constants = ChoosingConstants.of(2.0, 1e-3, moved=moved)
    low = ChoosingConstants(constants.test_rate, constants.draw_rate, 0.0, 1.0, constants.least)
    model = MonotoneCounts(np.array([0, 8]), np.array([0.0, 1.0]))
    for n in range(1, 60):
        first = np.zeros((2, 8), np.int64)
        first[:, 2] = n
        first[1, 2 if relation == "add_remove" else 7] += 1
        first[1, 2] -= 0 if relation == "add_remove" else 1
        for used, limit in ((constants, 1e-3), (low, math.inf)):
            chances = enumerated(first, model, used)
            found = max(hockey_stick(chances[[0, 1]], chances[[1, 0]], 2.0), 0.0)
            assert found <= limit
            excess = max(excess, found - 1e-3)
    assert excess > 0


@pytest.mark.parametrize("tested", [True, False])
def test_draws_agree_with_enumeration(tested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not tested:
        monkeypatch.setattr(module, "laplace_exceeds", lambda *_: True)
    rng = np.random.default_rng(0)
    values = np.sort(rng.choice(13, 12, p=rng.dirichlet(np.full(13, 0.4))))
    constants = ChoosingConstants(0.5, 0.4, above=2.0, beyond=4.0)
    for model in models(13, 14.0):
        selection = ChoosingSelection(values, N=13, constants=constants, relation="add_remove")
        draws = selection.given(model).draw(FixedKeySource(3), 1500)
        chances = enumerated(np.bincount(values, minlength=13)[None], model, constants, tested=tested)[0]
        found: dict[tuple[int, int] | None, float] = {None: float(chances[-1])}
        for ends, chance in zip(map(tuple, dyadic(13).tolist()), chances.tolist()):
            found[ends] = found.get(ends, 0.0) + chance
        seen = np.array([draws.count(ends) for ends in found])
        assert seen.sum() == len(draws)
        assert chi_square(seen, np.array(list(found.values()))) > 1e-5


def test_nothing_above_least_is_a_stop() -> None:
    model = MonotoneCounts(np.array([0, 4]), np.array([0.0, 4.0]))
    constants = ChoosingConstants(1.0, 1.0, above=-1.0, beyond=-50.0)
    selection = ChoosingSelection(np.arange(4), N=4, constants=constants, relation="add_remove")
    assert selection.given(model).draw(FixedKeySource(0)) == [None]


def test_who_is_above_tau_is_settled_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A score of tau is in, one that is 2^-40 less is out, beside counts of 10^6."""
    monkeypatch.setattr(module, "laplace_exceeds", lambda *_: True)
    values, model = np.zeros(10**6, np.int64), MonotoneCounts(np.array([0, 2]), np.array([0.0, 2e6 - 2 - 2**-31]))
    constants = ChoosingConstants(1.0, 1e-9, above=-1.0, beyond=-50.0)
    selection = ChoosingSelection(values, N=2, constants=constants, relation="add_remove")
    score = interval_score(np.array([0, 10**6]), 0, 1, model)
    assert score == 1 + Fraction(1, 2**32)
    for least, chosen in ((score, True), (score + Fraction(1, 2**40), False)):
        selection.constants = dataclasses.replace(constants, least=float(least))
        drawn = set(selection.given(model).draw(FixedKeySource(0), 200))
        assert ((0, 1) in drawn) == chosen


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_price_is_that_of_the_scores_that_move(relation: Relation) -> None:
    constants = ChoosingConstants.of(0.3, 1e-7, moved=scores_moved(4, relation))
    draw = ChoosingSelection(np.arange(4), N=8, constants=constants, relation=relation).given(models(8, 4.0)[0])
    event = draw.event
    assert isinstance(event, ApproximateDpEvent)
    assert (event.epsilon, event.delta) == pytest.approx((0.3, 1e-7))


@pytest.mark.parametrize(("epsilon", "delta"), [*GUARANTEES, (1e-3, 1e-9)])
def test_plan_spends_exactly_its_guarantee(epsilon: float, delta: float) -> None:
    constants = ChoosingConstants.of(epsilon, delta, moved=120).for_size(1e7)
    spent = constants.guarantee(120)
    assert spent[0] == pytest.approx(epsilon)
    assert delta * 0.9 <= spent[1] <= delta * (1 + 1e-6)
    assert constants.least == 200.0


@pytest.mark.parametrize("size", [1.0, 40_000.0, 1e7])
def test_a_plan_for_another_size_is_the_plan_of_that_size(size: float) -> None:
    made = ChoosingConstants.of(0.3, 1e-7, moved=120)
    moved = made.for_size(1e6).for_size(size)
    assert dataclasses.astuple(moved) == dataclasses.astuple(made.for_size(size))
    assert moved.guarantee(120) == pytest.approx((0.3, 1e-7))
    assert moved.event(120) == made.event(120), "the price does not depend on the size, to the last bit"


def test_a_tiny_delta_beside_a_large_epsilon_still_has_a_plan() -> None:
    constants = ChoosingConstants.of(1000.0, 1e-300, moved=120)
    assert 0 < constants.least < constants.least + constants.above < constants.threshold < 20


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (1.0, 0.0), (1.0, 0.5), (math.inf, 0.1)])
def test_bad_plans_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="choosing needs epsilon > 0"):
        ChoosingConstants.of(epsilon, delta, moved=4)
