"""The cosine transform of images and its lowest frequencies."""

import math

import pytest
import torch
from refusals import refused

from dpgen.nets import ModelBank, RBMBank, VAEBank
from dpgen.nets.cosines import frequencies, lowest_frequencies, planes


@pytest.mark.parametrize("shape", [(4, 6), (3, 4, 6)])
def test_all_frequencies_give_an_image_back(shape: tuple[int, ...]) -> None:
    channels, height, width = planes(shape)
    rows = lowest_frequencies(shape, height * width)
    x = torch.rand(5, math.prod(shape), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(x @ rows.T @ rows, x)
    assert len(rows) == channels * height * width


def test_channels_share_nothing() -> None:
    rows = lowest_frequencies((3, 4, 6), 2)
    assert rows.view(3, 2, 3, 24).abs().sum((1, 3)).count_nonzero() == 3


def test_the_lowest_come_first_whatever_the_sides() -> None:
    f = frequencies(8, 16)
    assert float(f[0]) == 0.0
    assert float(f[2 * 16]) == float(f[4])  # half the side, half the frequencies of it
    constant, along = lowest_frequencies((8, 16), 2).view(2, 8, 16)
    torch.testing.assert_close(constant, torch.full((8, 16), 1 / math.sqrt(128)))
    torch.testing.assert_close(along, along[:1].expand(8, 16))  # slow along the longer side


@pytest.mark.parametrize("count", [0, 25])
def test_other_numbers_are_refused(count: int) -> None:
    with refused(f"frequencies is {count}", "[1, 24]"):
        lowest_frequencies((4, 6), count)


@pytest.mark.parametrize("kind", [RBMBank, VAEBank])
def test_networks_of_frequencies_begin_at_means_and_are_rebuilt(kind: type[ModelBank]) -> None:
    options = {"hidden": 4, "categories": 2, "centred": True, "frequencies": 6, "image_shape": (4, 5)}
    banks = [kind(2, 22, **options), None]
    banks[1] = kind(**banks[0].architecture())
    means = torch.rand(2, 22, generator=torch.Generator().manual_seed(0)) * 0.8 + 0.1
    means[:, 20:] = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    with torch.no_grad():
        banks[0].initialize(torch.Generator().manual_seed(1))
        banks[0].begin_at(means, torch.Generator().manual_seed(2))
    banks[1].load_state_dict(banks[0].state_dict())
    drawn = [torch.stack([bank.sample(c, 4000, torch.Generator().manual_seed(3)) for c in range(2)]) for bank in banks]
    assert torch.equal(*drawn)
    assert float((drawn[0].mean(1) - means).abs().max()) < 0.05


@pytest.mark.parametrize("kind", [RBMBank, VAEBank])
def test_what_networks_of_frequencies_write_is_smooth(kind: type[ModelBank]) -> None:
    """Whatever the parameters are, log-odds differ from those of the means by the lowest frequencies alone."""
    bank = kind(1, 64, hidden=4, centred=True, frequencies=6, image_shape=(8, 8))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        bank.initialize(generator)
        bank.begin_at(torch.full((1, 64), 0.5), generator)
        bank.theta.add_(torch.randn(bank.theta.shape, generator=generator))
        if isinstance(bank, RBMBank):
            bank.part("visible_bias").zero_()
    logits = bank.sample(0, 50, generator).double().clamp(1e-6, 1 - 1e-6).logit()
    rows = lowest_frequencies((8, 8), 6).double()
    above = logits - logits @ rows.T @ rows
    assert float(above.norm() / logits.norm()) < 1e-3


def test_frequencies_need_means() -> None:
    for kind in (RBMBank, VAEBank):
        with pytest.raises(ValueError, match="frequencies is 6; it needs centred=True"):
            kind(1, 64, frequencies=6, image_shape=(8, 8))
