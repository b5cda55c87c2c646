"""The VAE bank; its gradients are in test_clipping."""

import pytest
import torch
from torch import Tensor

from dpgen.nets import VAEBank
from dpgen.privacy.clipping import clipped_sums, flat_coefficients, gradient_norms


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


def test_parts_are_views_of_one_matrix() -> None:
    bank = VAEBank(3, 5, hidden=4, latent=2)
    bank.part("decoder.1.bias").fill_(7.0)
    assert int((bank.theta == 7.0).sum()) == 3 * 5
    assert bank.p == sum(part.numel() // 3 for part in (bank.part(name) for name in bank.shapes))


def test_initialize_is_public_and_reproducible() -> None:
    banks = [VAEBank(2, 5), VAEBank(2, 5)]
    for bank in banks:
        with torch.no_grad():
            bank.initialize(torch.Generator().manual_seed(3))
    assert torch.equal(banks[0].theta, banks[1].theta)


@pytest.mark.parametrize(("field", "value"), [("hidden", 0), ("latent", 0), ("depth", 0), ("categories", 9), ("k", 0)])
def test_bad_sizes_are_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=field):
        VAEBank(**{"k": 1, "d": 9} | {field: value})


def steps(bank: VAEBank, sizes: list[int]) -> list[torch.Tensor]:
    """Clipped sums of draws of several sizes, an empty one among them."""
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


# -- latent noise must be secret: a known stream moves along when a record leaves -------------------------------------

B, D = 8, 6


def _sum(vae: VAEBank, x: Tensor, latent: Tensor) -> Tensor:
    """Sum of the gradients of the records x, clipped to norm 1, with one row of latent noise each."""
    gradients = vae.gradients(x, [0, len(x)], lambda *shape: latent[: shape[0]])
    coefficients = flat_coefficients(gradient_norms(gradients), torch.ones(len(x)).double())
    return clipped_sums(gradients, coefficients, torch.zeros(1, vae.p, dtype=torch.float64))


def _moved(seed: int, *, public: bool) -> float:
    """How far the sum moves when the first record leaves: with the stream known, or with noise that is a record's own."""
    generator = torch.Generator().manual_seed(seed)
    vae = VAEBank(1, D, hidden=5, latent=2).double()
    with torch.no_grad():
        vae.initialize(generator)
    x = (torch.rand(B, D, generator=generator) < 0.5).double()
    stream = torch.randn(B, 2, generator=generator, dtype=torch.float64)
    return float((_sum(vae, x, stream) - _sum(vae, x[1:], stream if public else stream[1:])).norm())


def test_a_public_latent_stream_breaks_the_sensitivity() -> None:
    """Secret noise is the same in distribution whoever is there, so neighbours may be compared at equal own noise."""
    assert max(_moved(seed, public=False) for seed in range(30)) <= 1 + 1e-9
    assert max(_moved(seed, public=True) for seed in range(30)) > 1.05
