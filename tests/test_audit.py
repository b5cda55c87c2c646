"""The audit itself: it must accept exact mechanisms and reject broken ones."""

import math

import pytest
import torch

from dpgen.metrics.audit import delta_lower_bound
from dpgen.privacy.accountants import delta
from dpgen.privacy.mechanisms import gaussian_event

M = 40_000


def outputs(noise: float, shift: float, seed: int) -> torch.Tensor:
    return shift + noise * torch.randn(M, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_a_gaussian_passes_and_four_fifths_of_its_noise_does_not(epsilon: float) -> None:
    claimed = delta(gaussian_event(1.0), epsilon)
    assert delta_lower_bound(outputs(1.0, 1.0, 0), outputs(1.0, 0.0, 1), epsilon) <= claimed
    assert delta_lower_bound(outputs(0.8, 1.0, 2), outputs(0.8, 0.0, 3), epsilon) > claimed


def test_the_bound_is_close_to_the_truth() -> None:
    truth = delta(gaussian_event(1.0), 1.0)
    assert truth - 0.06 < delta_lower_bound(outputs(1.0, 1.0, 4), outputs(1.0, 0.0, 5), 1.0) <= truth


def test_disjoint_outputs_have_delta_near_one() -> None:
    assert delta_lower_bound(torch.ones(M), torch.zeros(M), 1.0) > 1 - 100 * math.e / M


def test_too_few_values_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 100 values"):
        delta_lower_bound(torch.ones(10), torch.ones(10), 1.0)
    with pytest.raises(ValueError, match="confidence must be in"):
        delta_lower_bound(torch.ones(200), torch.ones(200), 1.0, confidence=1.0)
