"""Private laws: bounded evaluation, normalised ratios, and no way out of the machine."""

import copy
import math
import pickle

import pytest
import torch
from test_rejection import law as tilted

from dpgen.systems.mbde.densities import Box, ClippedDensity, GaussianReference, TiltedDensity, bounded

GRID = torch.linspace(-8, 8, 4001, dtype=torch.float64)[:, None]


def mass(law: ClippedDensity | TiltedDensity) -> float:
    return float((law.reference.log_prob(GRID) + law.log_ratio(GRID)).exp().sum() * (GRID[1] - GRID[0]))


def test_bounded_values() -> None:
    assert bounded(torch.tensor([[math.nan], [1e9], [-2.0]]), 3, 5.0).tolist() == [0.0, 5.0, -2.0]
    with pytest.raises(ValueError, match="one for each"):
        bounded(torch.zeros(3, 2), 3)


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 5.0])
def test_ratios_are_normalised_and_in_the_box(epsilon: float) -> None:
    reference = GaussianReference.standard(1)
    boosted = tilted(lambda x: 9 * x[:, 0].tanh(), epsilon=epsilon, reference=reference)
    plugged = ClippedDensity(lambda x: 3 * x[:, 0], reference, box=Box.of(epsilon), epsilon=epsilon)
    for law in (boosted, plugged):
        assert mass(law) == pytest.approx(1, abs=2e-3)
        ratio = law.log_ratio(GRID)
        assert ratio.max() - ratio.min() <= epsilon * (1 + 1e-9)


def test_a_bound_above_the_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="bound is"):
        TiltedDensity(lambda x: x[:, 0], GaussianReference.standard(1), bound=0.3, epsilon=1.0)


def test_a_law_stays_here() -> None:
    law = tilted()
    for leave in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be saved"):
            leave(law)
    assert "function" not in repr(law)
