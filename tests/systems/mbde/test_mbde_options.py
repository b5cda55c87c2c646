"""Plans and public choices of MBDE."""

import math
from typing import Any

import pytest

from dpgen.systems.mbde.plan import LOG2, DrawPlan, MBDEConfig, step_sizes


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("rounds", [1, 3, 20])
def test_step_sizes_stay_within_the_budget(epsilon: float, rounds: int) -> None:
    used = 4 * LOG2 * math.fsum(step_sizes(epsilon, rounds))
    last = (epsilon / (epsilon + 4 * LOG2)) ** rounds
    assert used == pytest.approx(epsilon * (1 - last))


@pytest.mark.parametrize(
    "option",
    [
        {"rounds": 0},
        {"reference": "cauchy"},
        {"steps": 0},
        {"batch": 0},
        {"lr": math.nan},
        {"hidden": (25, 0)},
        {"codebook": 1},
        {"codebook": 2**17},
        {"alpha": 1.5},
    ],
)
def test_refusals_name_the_option(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        MBDEConfig(**option)


@pytest.mark.parametrize(
    ("option", "value"),
    [*(("epsilon", value) for value in (0.0, math.nan, math.inf, 1000.0, 1e-7)), ("draws", 0), ("draws", True)],
)
def test_bad_plans_are_refused(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        DrawPlan(**{option: value})
