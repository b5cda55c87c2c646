"""The pieces of an audit of private training: the worst-case bank, and the engines that are broken on purpose."""

import pytest
import torch

from dpgen.auditing.engine import STEEPNESS, CanaryBank, ReusedNoise, ShuffledLoader, public_batches
from dpgen.privacy.clipping import clipped_sums, flat_coefficients, gradient_norms
from dpgen.privacy.sampling import PoissonLoader


def test_the_gradient_of_a_record_is_the_record() -> None:
    bank = CanaryBank(2, 3)
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
    slow = torch.autograd.functional.jacobian(lambda theta: STEEPNESS * (theta * x).sum(1), torch.zeros(2, 3))
    gradients = bank.gradients(x, [0, 1, 2], torch.randn)
    found = gradients.factors[0].outputs
    assert torch.equal(found, torch.stack([slow[r, r] for r in range(2)]))


def test_a_clipped_canary_has_norm_one_and_its_own_coordinate() -> None:
    gradients = CanaryBank(1, 3).gradients(torch.eye(3), [0, 3], torch.randn)
    norms = gradient_norms(gradients)
    sums = clipped_sums(gradients, flat_coefficients(norms, torch.tensor(10.0)), torch.empty(1, 3))
    assert sums[0].tolist() == pytest.approx([1.0, 1.0, 1.0], abs=1e-4)


def test_reused_noise_cancels_in_differences() -> None:
    source = ReusedNoise()
    first, second, other = torch.zeros(2, 3), torch.ones(2, 3), torch.zeros(4)
    for values in (first, second, other):
        source.add_normal_(values, noise_std=1.0)
    assert first.std() > 0
    assert torch.equal(second - first, torch.ones(2, 3))
    assert other.std() > 0


def test_a_public_order_puts_everybody_into_one_batch_of_nearly_equal_size() -> None:
    batch = public_batches(10, 3, epoch=0, seed=1)
    assert sorted(torch.bincount(batch, minlength=3).tolist()) == [3, 3, 4]
    assert torch.equal(batch, public_batches(10, 3, epoch=0, seed=1))
    assert not torch.equal(batch, public_batches(10, 3, epoch=1, seed=1))


def test_the_shuffled_twin_shows_everybody_once_an_epoch_where_the_order_says() -> None:
    ids = torch.tensor([0, 1, 2, 4, 6])  # 3 and 5 are absent
    x = torch.eye(7)[ids]
    loader = ShuffledLoader(x, None, sampling_rate=0.25, ids=ids, people=7, seed=3)
    for epoch in range(2):
        batches = list(loader)
        assert len(batches) == 4
        assert torch.equal(sum(batch.x.sum(0) for batch in batches), x.sum(0))
        order = public_batches(7, 4, epoch=epoch, seed=3)
        for number, batch in enumerate(batches):
            assert set(batch.x.argmax(1).tolist()) == set(ids[order[ids] == number].tolist())


def test_the_real_loader_does_no_such_thing() -> None:
    sizes = [len(batch.x) for batch in PoissonLoader(torch.eye(40), sampling_rate=0.25) for _ in range(1)]
    sizes += [len(batch.x) for _ in range(20) for batch in PoissonLoader(torch.eye(40), sampling_rate=0.25)]
    assert len(set(sizes)) > 2
