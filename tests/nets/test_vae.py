"""The VAE bank; its gradients are in test_clipping."""

import pytest
import torch

from dpgen.nets import VAEBank


def test_samples_are_means_and_label_columns_sum_to_one() -> None:
    bank = VAEBank(2, 9, hidden=4, latent=2, categories=3)
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(0))
    mean = bank.sample(1, 50, torch.Generator().manual_seed(1))
    assert mean.shape == (50, 9)
    assert bool(((mean >= 0) & (mean <= 1)).all())
    assert torch.allclose(mean[:, -3:].sum(1), torch.ones(50))


def test_architecture_rebuilds_the_bank() -> None:
    bank = VAEBank(2, 9, hidden=4, latent=3, depth=2, categories=1)
    assert VAEBank(**bank.architecture()).theta.shape == bank.theta.shape


def test_non_private_training_learns_two_patterns() -> None:
    """Plain gradient descent through the factored gradients brings the loss to the entropy of two patterns."""
    from dpgen.privacy.clipping import clipped_sums

    bank = VAEBank(1, 8, hidden=16, latent=2)
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(0))
    x = torch.tensor([[1.0, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]]).repeat(20, 1)
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam([bank.theta], lr=0.02)
    for _ in range(300):
        gradients = bank.gradients(x, [0, 40], lambda *shape: torch.randn(*shape, generator=generator))
        bank.theta.grad = clipped_sums(gradients, torch.full((40,), 1 / 40), torch.zeros_like(bank.theta))
        optimizer.step()
    bits = (bank.sample(0, 400, generator) > 0.5).float()
    matches = (bits[:, None] == x[:2]).all(2).any(1).float().mean()
    assert matches > 0.9


@pytest.mark.parametrize(("field", "value"), [("hidden", 0), ("latent", 0), ("depth", 0), ("categories", 9)])
def test_bad_sizes_are_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field}={value}"):
        VAEBank(1, 9, **{field: value})


def steps(bank: VAEBank, sizes: list[int]) -> list[torch.Tensor]:
    """Clipped sums of draws of several sizes, an empty one among them."""
    from dpgen.privacy.clipping import clipped_sums

    generator = torch.Generator().manual_seed(1)
    sums = []
    for b in sizes:
        x = (torch.rand(b, 9, generator=generator) < 0.5).float()
        gradients = bank.gradients(x, [0, b // 2, b], lambda *shape: torch.randn(*shape, generator=generator))
        sums.append(clipped_sums(gradients, torch.ones(b), torch.zeros_like(bank.theta)))
    return sums


def fused(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: compile_(function, backend=backend, **options))
    banks = [VAEBank(2, 9, hidden=4, latent=2, categories=3) for _ in range(2)]
    for bank in banks:
        with torch.no_grad():
            bank.initialize(torch.Generator().manual_seed(0))
    banks[1].fuse()
    sizes = [6, 9, 0, 1, 7, 8]
    for plain, compiled in zip(steps(banks[0], sizes), steps(banks[1], sizes)):
        assert torch.allclose(plain, compiled, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_fusing_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fused("aot_eager", monkeypatch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_compiler_changes_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    fused("inductor", monkeypatch)
