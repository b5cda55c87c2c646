"""Public choices of MBDE."""

import math
from typing import Any

import pytest

from dpgen.systems.mbde.plan import LOG2, MBDEConfig, step_sizes


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("rounds", [1, 3, 20])
def test_step_sizes_stay_within_the_budget(epsilon: float, rounds: int) -> None:
    used = 4 * LOG2 * math.fsum(step_sizes(epsilon, rounds))
    last = (epsilon / (epsilon + 4 * LOG2)) ** rounds
    assert used == pytest.approx(epsilon * (1 - last))
    assert 4 * LOG2 * math.fsum(step_sizes(epsilon, rounds, full=True)) == pytest.approx(epsilon)
    assert 4 * LOG2 * math.fsum(step_sizes(epsilon, rounds, draws=7)) == pytest.approx(epsilon * (1 - last) / 7)


@pytest.mark.parametrize(("epsilon", "percent"), [(1.0, 2), (2.0, 7), (5.0, 27)])
def test_three_rounds_leave_budget_unused(epsilon: float, percent: int) -> None:
    assert round(100 * step_sizes(epsilon, 3)[-1]) == percent


def test_rounds_by_sampler() -> None:
    assert MBDEConfig().total_rounds == 1
    assert MBDEConfig(sampler="rejection").total_rounds == 3
    assert MBDEConfig(sampler="rejection", rounds=5).total_rounds == 5


@pytest.mark.parametrize(
    ("option", "others"),
    [
        ({"sampler": "gibbs"}, {}),
        ({"rounds": 0}, {"sampler": "rejection"}),
        ({"rounds": 3}, {}),
        ({"draws_by": "scaled"}, {}),
        ({"draws_by": "shared"}, {}),
        ({"reference": "cauchy"}, {}),
        ({"steps": 0}, {}),
        ({"batch": 0}, {}),
        ({"lr": math.nan}, {}),
        ({"hidden": (25, 0)}, {}),
        ({"codebook": 1}, {}),
        ({"codebook": 2**17}, {}),
        ({"tries": 0}, {"sampler": "rejection"}),
        ({"alpha": 1.5}, {}),
        ({"alpha": 0.1}, {"sampler": "rejection"}),
    ],
)
def test_refusals_name_the_option(option: dict[str, Any], others: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        MBDEConfig(**option, **others)
