"""Ranges of public choices: their ends, rounding, and what is no number."""

import math

import pytest

from dpgen.privacy.mechanisms import require_within
from dpgen.systems.ordered.plan import STEPS, OrderedConfig, OrderedPlan


def test_ends_are_inside_also_when_rounded() -> None:
    for end in (1e-3, 1e3):
        OrderedPlan(epsilon=end)
        OrderedPlan(epsilon=end / (1 + 1e-12))
    for whole in STEPS:
        OrderedConfig(steps=whole)


@pytest.mark.parametrize("epsilon", [0.000999, 1000.1])
def test_other_epsilons_are_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match=rf"epsilon is {epsilon!r}; it must be in \[0\.001, 1000\]"):
        OrderedPlan(epsilon=epsilon)


@pytest.mark.parametrize("value", [0, 10_001, True, 2.5, "3"])
def test_other_numbers_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match=rf"steps is {value!r}; it must be a whole number in \[1, 10000\]"):
        OrderedConfig(steps=value)


@pytest.mark.parametrize("value", [0.0, -1.0, 0.5, 3.1, math.nan, math.inf, True, "1", None])
def test_a_range_refuses_what_is_outside_and_what_is_no_number(value: float) -> None:
    with pytest.raises(ValueError, match=rf"rate is {value!r}; it must be in \[1, 3\] each"):
        require_within("rate", value, (1.0, 3.0), " each")


def test_a_range_from_zero_leaves_zero_out() -> None:
    assert require_within("rate", 1e-300, (0.0, 3.0)) == 1e-300
    with pytest.raises(ValueError, match=r"rate is 0; it must be in \(0, 3\]$"):
        require_within("rate", 0, (0.0, 3.0))
