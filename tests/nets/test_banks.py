"""Banks of autoencoders and Boltzmann machines; their gradients are in test_clipping."""

import itertools
from typing import Any

import pytest
import torch
from refusals import refused
from torch import Tensor

from dpgen.nets import ModelBank, RBMBank, Tape, VAEBank
from dpgen.privacy.clipping import clipped_sums, flat_coefficients, gradient_norms


def begun(bank: Any, seed: int = 0) -> Any:
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(seed))
    return bank


@pytest.mark.parametrize(
    ("bank", "gradient_steps"), [(VAEBank(1, 6, hidden=16, latent=2), 300), (RBMBank(1, 6, hidden=8, chains=64), 400)]
)
def test_two_patterns_are_learned_without_privacy(bank: ModelBank, gradient_steps: int) -> None:
    begun(bank)
    x = torch.tensor([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]).repeat(10, 1)
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam([bank.theta], lr=0.02)
    for _ in range(gradient_steps):
        bank.begin_step()
        gradients = bank.gradients(x, [0, 20], lambda *shape: torch.randn(*shape, generator=generator))
        bank.theta.grad = clipped_sums(gradients, torch.full((20,), 1 / 20), torch.zeros_like(bank.theta))
        optimizer.step()
    bits = (bank.sample(0, 300, torch.Generator().manual_seed(2)) > 0.5).float()
    assert (bits[:, None] == x[:2]).all(2).any(1).float().mean() > 0.8


@pytest.mark.parametrize("kind", [VAEBank, RBMBank])
def test_weights_are_public_and_parts_are_views_of_them(kind: Any) -> None:
    first, again = begun(kind(3, 5, hidden=4)), begun(kind(3, 5, hidden=4))
    assert torch.equal(first.theta, again.theta)
    name = "decoder.1.bias" if kind is VAEBank else "visible_bias"
    first.part(name).fill_(7.0)
    assert int((first.theta == 7.0).sum()) == 3 * 5


BAD = [
    *((VAEBank, field, 0) for field in ("hidden", "latent", "depth", "k")),
    (VAEBank, "categories", 9),
    (VAEBank, "label_weight", 0.0),
    *((RBMBank, field, 0) for field in ("hidden", "chains", "gibbs_steps")),
    (RBMBank, "frequencies", 3),
]


@pytest.mark.parametrize(("kind", "field", "value"), BAD)
def test_bad_sizes_are_refused(kind: Any, field: str, value: float) -> None:
    with refused(field):
        kind(**{"k": 1, "d": 9} | {field: value})


def test_a_layer_that_is_used_twice_is_refused() -> None:
    """Its gradient is a sum of two, whose norm is not that of either."""
    tape, x = Tape(begun(VAEBank(1, 9, hidden=4, latent=2)), [0, 3]), torch.zeros(3, 9)
    tape.affine("encoder.0", x)
    with refused("'encoder.0' is used twice"):
        tape.affine("encoder.0", x)


# -- autoencoders ------------------------------------------------------------------------------------------------------


def test_samples_are_means_and_label_columns_sum_to_one() -> None:
    mean = begun(VAEBank(2, 9, hidden=4, latent=2, categories=3)).sample(1, 50, torch.Generator().manual_seed(1))
    assert mean.shape == (50, 9)
    assert bool(((mean >= 0) & (mean <= 1)).all())
    assert torch.allclose(mean[:, -3:].sum(1), torch.ones(50))


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
    """A known stream moves along when a record leaves; secret noise may be compared at equal own noise."""
    assert max(_moved(seed, public=False) for seed in range(30)) <= 1 + 1e-9
    assert max(_moved(seed, public=True) for seed in range(30)) > 1.05


# -- Boltzmann machines ------------------------------------------------------------------------------------------------


def small_bank() -> RBMBank:
    bank: RBMBank = begun(RBMBank(2, 6, hidden=3, chains=400))
    with torch.no_grad():
        bank.theta.add_(torch.randn(bank.theta.shape, generator=torch.Generator().manual_seed(1)))
    return bank


def test_gibbs_samples_have_the_exact_marginals() -> None:
    """Beside the mean of every visible unit by summing over all configurations."""
    bank = small_bank()
    v = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)))
    hidden = v @ bank.weights()[0].T + bank.part("hidden_bias")[0]
    log_p = v @ bank.part("visible_bias")[0] + torch.nn.functional.softplus(hidden).sum(1)
    exact = (log_p.softmax(0)[:, None] * v).sum(0)
    mean = bank.sample(0, 20_000, torch.Generator().manual_seed(5)).mean(0)
    assert (mean - exact).abs().max() < 0.02


def test_the_offset_is_minus_the_chains_mean_and_needs_no_record() -> None:
    bank = small_bank()
    bank.begin_step()
    gradients = bank.gradients(torch.zeros(0, 6), [0, 0, 0], lambda *shape: torch.zeros(shape))
    assert gradients.offset is not None
    assert torch.allclose(bank.part("visible_bias", gradients.offset), -bank.visible.mean(1))


def test_public_state_survives_saving() -> None:
    first, second = small_bank(), RBMBank(2, 6, hidden=3, chains=400)
    first.begin_step()
    second.load_state_dict(first.state_dict())
    first.begin_step()
    second.begin_step()
    assert torch.equal(first.visible, second.visible)


@pytest.mark.parametrize("centred", [True, False])
def test_columns_below_a_share_are_silent_and_the_trained_bank_stays(centred: bool) -> None:
    bank: RBMBank = begun(RBMBank(2, 6, hidden=3, chains=64, categories=1, centred=centred))
    bias = torch.tensor([-4.0, -4.0, 0.0, 2.0, -4.0, -4.0])  # shares of about .02, and .12, .5, .9
    bank.part("visible_bias")[:] = bias
    bank.part("visible_bias")[1, 1] = -1.0  # on in every tenth record of both machines together
    before = bank.theta.clone()
    silent = bank.silenced(torch.tensor([600.0, 400.0]), 0.05)
    means = torch.stack([silent.sample(i, 2000, torch.Generator().manual_seed(1)).mean(0) for i in range(2)])
    assert (means.max(0).values < 1e-20).tolist() == [True, False, False, False, True, False], "a category stays"
    assert torch.equal(bank.theta, before)
