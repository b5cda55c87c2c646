"""Lower bounds on epsilon: they accept exact mechanisms and reject faulty ones."""

import json
import math
from dataclasses import replace
from math import comb

import pytest
import torch
from refusals import refused

from dpgen.auditing.lower_bounds import Finding, epsilon_lower_bound, guesses_p_value, one_run_lower_bound
from dpgen.privacy.accountants import epsilon
from dpgen.privacy.mechanisms import gaussian_event

M = 40_000


def outputs(noise: float, shift: float, seed: int) -> torch.Tensor:
    return shift + noise * torch.randn(M, generator=torch.Generator().manual_seed(seed))


SURE = 1 - 1e-6


@pytest.mark.parametrize("at", [1e-5, 1e-2])
def test_epsilon_of_a_gaussian_is_not_refuted_and_that_of_its_twin_is(at: float) -> None:
    claimed = epsilon(gaussian_event(2.0), at)
    first, second = outputs(2.0, 1.0, 6), outputs(2.0, 0.0, 7)
    assert 0.5 < epsilon_lower_bound(first, second, at, confidence=SURE).epsilon <= claimed
    first, second = outputs(0.3, 1.0, 8), outputs(0.3, 0.0, 9)
    assert epsilon_lower_bound(first, second, at, confidence=SURE).epsilon > claimed


def test_epsilon_uses_the_telling_statistic_the_other_order_and_the_other_side() -> None:
    noise = torch.randn(2, M, 2, generator=torch.Generator().manual_seed(10))
    first, second = noise
    second[:, 1] -= 3.0
    for pair in ((first, second), (second, first), (-first, -second)):
        bound = epsilon_lower_bound(*pair, 0.0)
        assert bound.attack == 1
        assert bound.epsilon > 4


def test_false_alarms_are_as_rare_as_the_confidence_says() -> None:
    """A mechanism at exactly its epsilon, forty audits: seeds are fixed, so the count is always the same."""
    generator = torch.Generator().manual_seed(12)
    chance = 1 / (1 + math.exp(-1.0))
    alarms = [0, 0]
    for _ in range(40):
        answers = torch.rand(2, 400, generator=generator) < torch.tensor([[chance], [1 - chance]])
        coins = torch.rand(400, generator=generator) < 0.5
        alarms[0] += epsilon_lower_bound(answers[0], answers[1], 0.0, confidence=0.9).epsilon > 1.0
        kept = torch.rand(400, generator=generator) < chance
        alarms[1] += one_run_lower_bound((coins == kept).double(), coins, 0.0, confidence=0.9).epsilon > 1.0
    assert max(alarms) <= 10, alarms


def slow_p_value(correct: int, guesses: int, canaries: int, level: float, at: float) -> float:
    """Theorem 5.2 of Steinke, Nasr and Jagielski term by term."""
    chance = math.exp(level) / (1 + math.exp(level))
    mass = [comb(guesses, w) * chance**w * (1 - chance) ** (guesses - w) for w in range(guesses + 1)]
    worst = max((sum(mass[max(0, correct - i) : correct]) / i for i in range(1, canaries + 1)), default=0.0)
    return min(1.0, sum(mass[correct:]) + 2 * canaries * at * worst)


@pytest.mark.parametrize("at", [0.0, 1e-3])
@pytest.mark.parametrize("correct", [0, 1, 9, 17, 20])
def test_the_p_value_is_the_theorems(correct: int, at: float) -> None:
    found = guesses_p_value(correct, 20, 30, epsilon=0.7, delta=at)
    assert found == pytest.approx(slow_p_value(correct, 20, 30, 0.7, at), rel=1e-9)


def test_a_mechanism_that_tells_everything_with_probability_delta_is_within_its_claim() -> None:
    """All guesses are right with probability delta: epsilon 0 must not be refuted at any level below it."""
    for m in (1, 10, 100):
        assert guesses_p_value(m, m, m, epsilon=0.0, delta=1e-3) >= 1e-3
        assert guesses_p_value(m, m, m, epsilon=0.0, delta=0.0) == 2.0**-m


def canaries(level: float, m: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Coins of m canaries, and each of them answered by randomised response beside a column of noise."""
    generator = torch.Generator().manual_seed(seed)
    coins = torch.rand(m, generator=generator) < 0.5
    kept = torch.rand(m, generator=generator) < 1 / (1 + math.exp(-level))
    return torch.stack([torch.randn(m, generator=generator), (coins == kept).float()], 1), coins


def test_one_run_passes_randomised_response_and_rejects_a_twin_of_twice_the_epsilon() -> None:
    honest = one_run_lower_bound(*canaries(1.0, 4000, 13), 1e-12, confidence=SURE)
    assert 0.5 < honest.epsilon <= 1.0
    assert honest.attack == 1
    assert one_run_lower_bound(*canaries(2.0, 4000, 14), 1e-12, confidence=SURE).epsilon > 1.0


def test_one_run_pays_for_delta() -> None:
    scores, coins = canaries(4.0, 1000, 15)
    bounds = [one_run_lower_bound(scores, coins, at).epsilon for at in (0.0, 1e-4, 1e-2)]
    assert bounds[0] > bounds[1] > bounds[2]


@pytest.mark.parametrize(("trials", "word"), [(torch.ones(19), "19"), (torch.full((30,), math.nan), "NaN")])
def test_what_cannot_be_audited_is_refused(trials: torch.Tensor, word: str) -> None:
    for bound in (epsilon_lower_bound, one_run_lower_bound):
        with refused("trials", word):
            bound(trials, torch.ones(30, dtype=torch.bool), 0.0)


def test_a_bound_above_the_claim_violates_it_and_an_equal_one_does_not() -> None:
    words = dict.fromkeys(("audited", "neighbours", "relation", "unit", "method", "attack"), "x")
    numbers = {"delta": 1e-5, "confidence": 0.95, "trainings": 200, "trials": 200, "seconds": 1.0}
    finding = Finding(claimed=1.00001, lower_bound=1.00001, **words, **numbers)  # type: ignore[arg-type]
    for part in ("epsilon 1.001 at delta 1e-05", "epsilon 1.0000", "confidence 0.95", "consistent"):
        assert part in finding.to_text()
    violated = replace(finding, lower_bound=1.2)
    assert "VIOLATED" in violated.to_text()
    record = json.loads(violated.to_json())
    assert (record["claimed"], record["lower_bound"], record["verdict"]) == (1.00001, 1.2, "VIOLATED")
