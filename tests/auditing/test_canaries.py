"""The pieces of an audit of private training: the worst-case bank, and the engines that are broken on purpose."""

import pytest
import torch

from dpgen.auditing.engine import STEEPNESS, CanaryBank
from dpgen.privacy.clipping import clipped_sums, flat_coefficients, gradient_norms
from dpgen.privacy.sampling import PoissonLoader


def test_the_gradient_of_a_record_is_the_record() -> None:
    bank = CanaryBank(2, 3)
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
    slow = torch.autograd.functional.jacobian(lambda theta: STEEPNESS * (theta * x).sum(1), torch.zeros(2, 3))
    gradients = bank.gradients(x, [0, 1, 2], torch.randn)
    found = gradients.factors[0].outputs
    assert torch.equal(found, torch.stack([slow[r, r] for r in range(2)]))


def test_a_clipped_canary_has_norm_one_and_its_own_coordinate() -> None:
    gradients = CanaryBank(1, 3).gradients(torch.eye(3), [0, 3], torch.randn)
    norms = gradient_norms(gradients)
    sums = clipped_sums(gradients, flat_coefficients(norms, torch.tensor(10.0)), torch.empty(1, 3))
    assert sums[0].tolist() == pytest.approx([1.0, 1.0, 1.0], abs=1e-4)


def test_the_loader_draws_batches_of_several_sizes() -> None:
    sizes = [len(batch.x) for batch in PoissonLoader(torch.eye(40), sampling_rate=0.25) for _ in range(1)]
    sizes += [len(batch.x) for _ in range(20) for batch in PoissonLoader(torch.eye(40), sampling_rate=0.25)]
    assert len(set(sizes)) > 2
