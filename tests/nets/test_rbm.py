"""The RBM bank; its gradients are in test_clipping."""

import itertools

import pytest
import torch

from dpgen.nets import RBMBank
from dpgen.privacy.clipping import clipped_sums


def exact_marginals(bank: RBMBank) -> torch.Tensor:
    """Mean of every visible unit of model 0 by summing over all configurations."""
    d = bank.d
    v = torch.tensor(list(itertools.product([0.0, 1.0], repeat=d)))
    hidden = v @ bank.weights()[0].T + bank.part("hidden_bias")[0]
    log_p = v @ bank.part("visible_bias")[0] + torch.nn.functional.softplus(hidden).sum(1)
    return (log_p.softmax(0)[:, None] * v).sum(0)


def small_bank(scale: float = 1.0) -> RBMBank:
    bank = RBMBank(2, 6, hidden=3, chains=400)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        bank.initialize(generator)
        bank.theta.add_(scale * torch.randn(bank.theta.shape, generator=generator))
    return bank


def test_gibbs_samples_have_the_exact_marginals() -> None:
    bank = small_bank()
    mean = bank.sample(0, 20_000, torch.Generator().manual_seed(5)).mean(0)
    assert (mean - exact_marginals(bank)).abs().max() < 0.02


def test_the_offset_is_minus_the_chains_mean_and_needs_no_record() -> None:
    bank = small_bank()
    bank.begin_step()
    gradients = bank.gradients(torch.zeros(0, 6), [0, 0, 0], lambda *shape: torch.zeros(shape))
    assert gradients.offset is not None
    assert torch.allclose(bank.part("visible_bias", gradients.offset), -bank.visible.mean(1))


def test_persistent_chains_learn_a_distribution() -> None:
    """PCD without privacy fits two complementary patterns."""
    bank = RBMBank(1, 6, hidden=8, chains=64)
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(0))
    x = torch.tensor([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]).repeat(10, 1)
    optimizer = torch.optim.Adam([bank.theta], lr=0.02)
    for _ in range(400):
        bank.begin_step()
        gradients = bank.gradients(x, [0, 20], lambda *shape: torch.zeros(shape))
        bank.theta.grad = clipped_sums(gradients, torch.full((20,), 1 / 20), torch.zeros_like(bank.theta))
        optimizer.step()
    bits = (bank.sample(0, 300, torch.Generator().manual_seed(2)) > 0.5).float()
    assert (bits[:, None] == x[:2]).all(2).any(1).float().mean() > 0.8


def test_public_state_survives_saving() -> None:
    first, second = small_bank(), RBMBank(2, 6, hidden=3, chains=400)
    first.begin_step()
    second.load_state_dict(first.state_dict())
    first.begin_step()
    second.begin_step()
    assert torch.equal(first.visible, second.visible)


@pytest.mark.parametrize(("field", "value"), [("hidden", 0), ("chains", 0), ("gibbs_steps", 0)])
def test_bad_sizes_are_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=field):
        RBMBank(1, 6, **{field: value})
