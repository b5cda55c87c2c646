"""Ranges of public choices: their ends, rounding, and what is no number."""

import math

import pytest

from dpgen.systems.ordered.plan import EPSILON, STEPS, require_epsilon, require_whole


def test_ends_are_inside_also_when_rounded() -> None:
    for end in EPSILON:
        require_epsilon(end)
        require_epsilon(end / (1 + 1e-12))
    for whole in STEPS:
        require_whole("steps", whole, STEPS)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 0.000999, 1000.1, math.nan, math.inf, True, "1"])
def test_other_epsilons_are_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match=rf"epsilon is {epsilon!r}; it must be in \[0\.001, 1000\]"):
        require_epsilon(epsilon)


@pytest.mark.parametrize("value", [0, 10_001, True, 2.5, "3"])
def test_other_numbers_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match=rf"steps is {value!r}; it must be a whole number in \[1, 10000\]"):
        require_whole("steps", value, STEPS)
