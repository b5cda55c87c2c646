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
    assert MBDEConfig(sampler="metropolis", rounds=5).total_rounds == 5


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sampler": "gibbs"}, "sampler must be one of sir, rejection, metropolis, got 'gibbs'"),
        ({"sampler": "rejection", "rounds": 0}, "rounds is 0; it must be a whole number >= 1"),
        ({"rounds": 3}, "sampler='sir' learns one classifier"),
        ({"draws_by": "scaled"}, "sampler='sir' learns one classifier"),
        ({"draws_by": "shared"}, "draws_by must be one of split, scaled"),
        ({"reference": "cauchy"}, "reference must be one of gaussian, uniform"),
        ({"training": "slow"}, "training must be one of fast, paper"),
        ({"steps": 0}, "steps is 0; it must be a whole number >= 1"),
        ({"lr": math.nan}, "lr is nan; it must be a finite number > 0"),
        ({"hidden": (25, 0)}, "a width in hidden is 0; it must be a whole number >= 1"),
        ({"codebook": 1}, "codebook is 1; it must be a whole number in"),
        ({"codebook": 2**17}, "codebook is 131072"),
        ({"sampler": "rejection", "tries": 0}, "tries is 0; it must be a whole number in"),
        ({"alpha": 1.5}, "alpha is 1.5; it must lie in"),
        ({"alpha": 0.1, "sampler": "rejection"}, "only sampler='sir' has an asymmetric box"),
    ],
)
def test_bad_options(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        MBDEConfig(**options)
