"""The public box and the best density inside it."""

import math
from collections.abc import Callable

import pytest
import torch
from enumeration import adversarial
from scipy.optimize import linprog

from dpgen.systems.mbde.densities import Box, mollified


@pytest.mark.parametrize("epsilon", [1e-6, 0.25, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("alpha", [None, 0.01, 0.5, 0.99])
def test_a_box_never_exceeds_its_budget_and_uses_it(epsilon: float, alpha: float | None) -> None:
    box = Box.of(epsilon, alpha)
    assert epsilon * (1 - 1e-8) - 1e-15 <= box.epsilon <= epsilon
    assert box.low < 1 < box.high


@pytest.mark.parametrize("m", [2, 3, 64])
@pytest.mark.parametrize("box", [Box.of(0.01), Box.of(1.0), Box.of(5.0, 0.05), Box.of(40.0)], ids=str)
def test_weights_stay_in_the_box_with_mean_one(m: int, box: Box) -> None:
    weights = mollified(adversarial(m), box)
    assert bool((weights >= box.low).all())
    assert bool((weights <= box.high).all())
    assert (weights.mean(1) - 1).abs().max() < 1e-12


def test_solution_is_the_clipped_ratio_and_no_worse_than_any_other() -> None:
    generator = torch.Generator().manual_seed(3)
    box = Box.of(1.0)
    for _ in range(20):
        log_ratio = 3 * torch.randn(50, dtype=torch.float64, generator=generator)
        p = torch.softmax(log_ratio, 0)
        best = mollified(log_ratio, box)
        inside = (best > box.low * (1 + 1e-9)) & (best < box.high * (1 - 1e-9))
        constant = (log_ratio - best.log())[inside]
        assert constant.max() - constant.min() < 1e-9
        # KL is convex: no direction inside the box improves on the optimum (first-order condition as a linear programme)
        gradient = (-p / best).numpy()
        answer = linprog(gradient, A_eq=[[1.0] * 50], b_eq=[50.0], bounds=[(box.low, box.high)] * 50)
        assert answer.fun >= float(gradient @ best.numpy()) - 1e-7


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 5.0])
def test_steep_ratios_are_solved_to_the_end(epsilon: float) -> None:
    """Newton alone creeps here and leaves the rest to a constant: the solution must be one clipped multiple of the ratio."""
    z = torch.special.ndtri((torch.arange(4000, dtype=torch.float64) + 0.5) / 4000)
    for slope in (0.1, 1.0, 3.0, 8.0, 30.0):
        log_ratio, box = (slope * (z.abs() - 2)).clamp(-50, 50), Box.of(epsilon)
        best = mollified(log_ratio, box)
        inside = (best > box.low * (1 + 1e-4)) & (best < box.high * (1 - 1e-4))
        if bool(inside.any()):
            constant = (log_ratio - best.log())[inside]
            assert constant.max() - constant.min() < 1e-6
            assert torch.allclose((log_ratio - constant.mean()).exp().clamp(box.low, box.high), best, rtol=1e-5)


def test_masses_replace_repeated_points() -> None:
    box = Box.of(2.0)
    few = mollified(torch.tensor([0.0, 3.0], dtype=torch.float64), box, masses=torch.tensor([0.75, 0.25]).double())
    many = mollified(torch.tensor([0.0, 0.0, 0.0, 3.0], dtype=torch.float64), box)
    assert torch.allclose(few, many[-2:], atol=1e-12)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        *(
            (lambda epsilon=epsilon: Box.of(epsilon), "epsilon")
            for epsilon in (0.0, -1.0, math.nan, math.inf, 1e-9, 1000.0, True)
        ),
        *((lambda alpha=alpha: Box.of(1.0, alpha), "alpha") for alpha in (0.0, 1.0, -0.1, math.nan)),
        (lambda: Box(0.0, 2.0), "low"),
    ],
)
def test_boxes_out_of_range_are_refused(make: Callable[[], Box], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
