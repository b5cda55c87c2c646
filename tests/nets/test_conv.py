"""Convolutional autoencoders: gradients of each record, a fit, models as dpgen 0.4 saved them."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from refusals import refused

import dpgen
from dpgen.nets import ConvVAEBank
from dpgen.systems.dpgm.plan import DPGMConfig

SIZES: dict[str, Any] = {"hidden": 50, "latent": 10, "label_weight": 10.0}


def begun(categories: int, centred: bool, shape: tuple[int, ...] = (8, 4)) -> ConvVAEBank:
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
    bank = begun(categories, centred, shape)
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
    network, x, z = begun(3, True).network(0), torch.rand(4, 35), torch.randn(4, 10)
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
    bank = begun(0, True, (8, 8))
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
    assert list(begun(2, True).state_dict()) == ["theta", "centre"]
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
