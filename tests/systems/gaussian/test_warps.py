"""Affine warps and thresholds."""

import pytest
import torch
from torch.nn.functional import affine_grid, grid_sample

from dpgen.systems.gaussian.warps import Warp, calibrated_thresholds


def test_no_warp_is_the_identity() -> None:
    x = torch.rand(5, 48, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(Warp(0.0, 0.0, 0.0)(x, (6, 8), torch.Generator()), x, atol=1e-5)


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


def test_strength_scales_with_the_picture() -> None:
    assert Warp.of_strength(1.0, (28, 28)) == Warp()
    assert Warp.of_strength(0.5, (8, 8)).shift == pytest.approx(0.75 * 8 / 28)


def test_a_negative_warp_is_refused() -> None:
    with pytest.raises(ValueError, match="shift must be at least 0 and finite, got -1"):
        Warp(shift=-1.0)


def test_thresholds_give_the_marginals_of_every_feature() -> None:
    pilot = torch.randn(1000, 6, generator=torch.Generator().manual_seed(0)) * torch.arange(1.0, 7.0)
    wanted = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.99, 1.0])
    found = (pilot > calibrated_thresholds(pilot, wanted)).double().mean(0)
    assert torch.allclose(found, wanted.double(), atol=1e-3)
