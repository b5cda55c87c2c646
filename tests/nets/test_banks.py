"""Banks of autoencoders and Boltzmann machines; their gradients are in test_clipping."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from refusals import refused
from torch import Tensor

import dpgen
from dpgen.nets import ConvVAEBank, ModelBank, RBMBank, Tape, VAEBank
from dpgen.privacy.clipping import clipped_sums, flat_coefficients, gradient_norms
from dpgen.systems.dpgm.plan import DPGMConfig


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


# -- convolutions ------------------------------------------------------------------------------------------------------


SIZES: dict[str, Any] = {"hidden": 50, "latent": 10, "label_weight": 10.0}


def begun_conv(categories: int, centred: bool, shape: tuple[int, ...] = (8, 4)) -> ConvVAEBank:
    d = int(torch.tensor(shape).prod()) + categories
    bank = ConvVAEBank(3, d, image_shape=shape, categories=categories, centred=centred, **SIZES)
    public = torch.Generator().manual_seed(0)
    with torch.no_grad():
        bank.initialize(public)
        bank.begin_at(torch.rand(3, d, generator=public) * 0.8 + 0.1, public)
    return bank


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("categories", "shape"), [(0, (8, 4)), (3, (3, 4, 8))])
def test_gradients_are_those_of_each_record(categories: int, shape: tuple[int, ...], centred: bool) -> None:
    bank = begun_conv(categories, centred, shape)
    public = torch.Generator().manual_seed(1)
    x, z = torch.rand(5, bank.d, generator=public).round(), torch.randn(5, 10, generator=public)
    if categories:
        x[:, -categories:] = torch.eye(categories)[torch.arange(5) % categories]
    found = tiny.one_by_one(bank.gradients(x, [0, 2, 2, 5], lambda *shape: z), 3, bank.p).float()
    for r, c in enumerate([0, 0, 2, 2, 2]):
        network = bank.network(c).requires_grad_()
        centre = None if bank.centre is None else bank.centre[c : c + 1]
        slow = torch.autograd.grad(network.loss(x[r : r + 1], z[r : r + 1], centre).sum(), list(network.parameters()))
        torch.testing.assert_close(found[r], torch.cat([g.flatten() for g in slow]), rtol=1e-4, atol=1e-4)


def test_the_encoder_sees_records_minus_their_means_and_labels_have_their_weight() -> None:
    network, x, z = begun_conv(3, True).network(0), torch.rand(4, 35), torch.randn(4, 10)
    seen, centre = list[torch.Tensor](), torch.full((4, 35), 0.3)
    network.encoder[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    losses = []
    for weight in (0.0, 1.0, 10.0):
        network.label_weight = weight
        losses.append(network.loss(x, z, centre))
    torch.testing.assert_close(seen[0].flatten(1) * 16**0.5, (x - centre)[:, :32])
    torch.testing.assert_close(losses[2] - losses[0], 10 * (losses[1] - losses[0]), rtol=1e-3, atol=1e-3)
    assert bool((losses[1] > losses[0]).all())


def test_samples_begin_at_released_means() -> None:
    bank = begun_conv(0, True, (8, 8))
    assert bank.centre is not None
    for c in range(3):
        found = bank.sample(c, 200, torch.Generator().manual_seed(2)).mean(0)
        assert float((found - bank.centre[c]).abs().mean()) < 0.1


@pytest.mark.usefixtures("quiet")
def test_it_is_trained_released_and_loaded(tmp_path: Path) -> None:
    release: Any = dpgen.fit(
        tiny.records(), "dpgm", epsilon=4.0, component="conv_vae", hidden=3, latent=2, steps=2, sampling_rate=0.5
    )
    release.save(tmp_path)
    again: Any = dpgen.load(tmp_path)
    assert torch.equal(release.samples(9, random_state=1).x, again.samples(9, random_state=1).x)
    assert not any("ConvVAE" in text for text in release.statement.assumptions), "it is no network of somebody's own"


def test_models_of_earlier_versions_have_these_tensors() -> None:
    """One matrix, whose columns are those of the layers in this order."""
    bank = ConvVAEBank(10, 64, image_shape=[8, 8], categories=0, centred=False, frequencies=None, **SIZES)
    assert list(bank.state_dict()) == ["theta"]
    assert list(begun_conv(2, True).state_dict()) == ["theta", "centre"]
    assert [(name, shape) for name, shape in bank.shapes.items() if name.endswith("weight")] == [
        ("encoder.0.weight", (8, 1, 4, 4)),
        ("encoder.1.weight", (16, 8, 4, 4)),
        ("encoder.2.weight", (20, 64)),
        ("decoder.0.weight", (64, 10)),
        ("decoder.1.weight", (16, 8, 4, 4)),
        ("decoder.2.weight", (8, 1, 4, 4)),
    ]
    assert bank.p == 6389


def test_it_is_for_images_whose_sides_can_be_halved_twice() -> None:
    with refused("component"):
        DPGMConfig(k=3, component="conv_vae").bank(66, 2)
    with refused("image_shape"):
        ConvVAEBank(2, 30, image_shape=(4, 8))
