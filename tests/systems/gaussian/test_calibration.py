"""Released marginals, tilts and thresholds towards them, and warps."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.systems.gaussian.calibration import (
    Warp,
    calibrated_thresholds,
    fit_tilt,
    release_marginals,
    release_pairs,
    tilted_choice,
)
from dpgen.systems.gaussian.sums import RecordStream, Spending


def spending(scale: float) -> Spending:
    return Spending(Curator(Ledger(None, delta=1e-5)), scale, {"marginals": 0.5, "pairs": 0.5})


def bits(n: int = 3000) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 5, generator=generator) < torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])
    x[:, 1] = torch.where(torch.rand(n, generator=generator) < 0.8, x[:, 0], x[:, 1])
    return x.to(torch.uint8)


def test_without_noise_releases_are_exact_frequencies() -> None:
    x, labels = bits(), torch.arange(3000) % 3
    quiet = spending(1e-6)
    counts, p = release_marginals(RecordStream(x, labels), 5, k=3, spending=quiet)
    assert counts.tolist() == pytest.approx([1000.0] * 3, abs=0.1)
    assert torch.allclose(p[1], x[labels == 1].double().mean(0), atol=1e-4)
    pairs, noise_std = release_pairs(RecordStream(x, None), 5, spending=quiet)
    assert torch.allclose(pairs, x.double().T @ x.double() / 3000, atol=1e-4)
    assert 0 < noise_std < 1e-6


def test_the_noise_of_pairs_is_as_large_as_stated() -> None:
    x = torch.ones(4000, 40, dtype=torch.uint8)
    x[:, ::2] = 0
    pairs, noise_std = release_pairs(RecordStream(x, None), 40, spending=spending(5.0))
    above = torch.triu(torch.ones(20, 20), 1).bool()
    noise = (pairs[1::2, ::2] - 0.0)[above]  # of pairs that are never on together, half of it cut off at 0
    assert float((noise > 0).double().mean()) == pytest.approx(0.5, abs=0.15)
    assert float(noise[noise > 0].square().mean().sqrt()) == pytest.approx(noise_std, rel=0.25)


def test_a_tilt_moves_independent_bits_to_the_released_pairs() -> None:
    x = bits(20_000)
    pairs = x.double().T @ x.double() / len(x)
    generator = torch.Generator().manual_seed(2)
    pilot = (torch.rand(20_000, 5, generator=generator) < x.double().mean(0)).to(torch.uint8)
    tilt = fit_tilt(pilot, pairs, noise_std=1e-3)
    chosen = pilot[tilted_choice(pilot, tilt, 4000, generator)].double()
    before = float((pilot.double().T @ pilot.double() / len(pilot) - pairs).abs().max())
    after = float((chosen.T @ chosen / len(chosen) - pairs).abs().max())
    assert after < 0.35 * before


# -- warps and thresholds -------------------------------------------------------------------------------------------------


def test_the_fast_grid_is_pytorchs() -> None:
    x = torch.rand(4, 48, generator=torch.Generator().manual_seed(0))
    warped = Warp(10.0, 0.1, 1.0)(x, (6, 8), torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    angle = torch.randn(4, generator=generator).deg2rad() * 10.0
    scale = 1.0 + 0.1 * torch.randn(4, generator=generator)
    shift = torch.randn(4, 2, generator=generator) * torch.tensor([2.0 / 8, 2.0 / 6])
    cos, sin = angle.cos() * scale, angle.sin() * scale
    maps = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
    grid = affine_grid(maps, [4, 1, 6, 8], align_corners=False)
    slow = grid_sample(x.reshape(4, 1, 6, 8), grid, align_corners=False).flatten(1)
    assert torch.allclose(warped, slow, atol=1e-5)


def test_shifts_are_as_large_as_stated() -> None:
    x = torch.zeros(4000, 21 * 21)
    x[:, 10 * 21 + 10] = 1.0
    warped = Warp(0.0, 0.0, 1.5)(x, (21, 21), torch.Generator().manual_seed(0)).reshape(-1, 21, 21)
    rows = (warped.sum(2) * torch.arange(21.0)).sum(1)
    assert float(rows.std()) == pytest.approx(1.5, rel=0.05)


def test_thresholds_give_the_marginals_of_every_feature() -> None:
    pilot = torch.randn(1000, 6, generator=torch.Generator().manual_seed(0)) * torch.arange(1.0, 7.0)
    wanted = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.99, 1.0])
    found = (pilot > calibrated_thresholds(pilot, wanted)).double().mean(0)
    assert torch.allclose(found, wanted.double(), atol=1e-3)
