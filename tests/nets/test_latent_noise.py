"""Why the latent noise of a VAE must be secret: a known stream moves along when a record leaves."""

import torch
from torch import Tensor

from dpgen.nets import VAEBank
from dpgen.privacy.clipping import clipped_sums, flat_coefficients, gradient_norms

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
