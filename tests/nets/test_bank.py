"""The parameter matrix of k models and the affine maps on sorted rows."""

import pytest
import torch

from dpgen.nets import VAEBank


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


def test_k_must_be_positive() -> None:
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        VAEBank(0, 5)
