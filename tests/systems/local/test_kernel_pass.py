"""The compiled passes against the matrix and against torch's scans."""

import pytest
import torch
from finite_cases import EPSILONS, dirichlet, users

from dpgen.systems.local.kernels import MinimaxSampler, mix_rows


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("n", [2, 50, 1024, 1025, 30_000])
def test_compiled_and_torch_agree(n: int, epsilon: float) -> None:
    sampler = MinimaxSampler(epsilon, dirichlet(n, seed=n, sharpness=3.0))
    p = users(n, seed=0, rows=2)[:4]
    assert torch.allclose(sampler._apply(p), sampler._apply_anywhere(p), rtol=1e-13, atol=0)
    assert torch.equal(sampler._apply(p.T.contiguous().T), sampler._apply(p))


def test_by_hand() -> None:
    sampler = MinimaxSampler(1.0, torch.tensor([0.7, 0.1, 0.2]).double())
    p = torch.tensor([[0.2, 0.5, 0.3]]).double()
    arrays = (p.numpy(), sampler._order.numpy(), sampler._q.numpy(), sampler._a.numpy())
    assert torch.allclose(torch.from_numpy(mix_rows(*arrays, sampler._gain)), p @ sampler.kernel(), rtol=1e-14)
    assert mix_rows(p[:0].numpy(), *arrays[1:], 2.0).shape == (0, 3)
