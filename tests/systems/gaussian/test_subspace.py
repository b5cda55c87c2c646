"""Location, axes and radius."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.systems.gaussian.subspace import Location, release_location, release_subspace
from dpgen.systems.gaussian.sums import RecordStream, Spending

SHARES = {"mean": 0.3, "subspace": 0.4, "radius": 0.3}


def how(scale: float) -> dict[str, Any]:
    return {"spending": Spending(Curator(Ledger(None, delta=1e-5)), scale, SHARES)}


def records(n: int = 4000) -> Tensor:
    """Ten features: one strong axis, one weaker, the rest small."""
    z = torch.randn(n, 10, generator=torch.Generator().manual_seed(0)) * torch.tensor([0.15, 0.08] + [0.01] * 8)
    return (z + 0.4).clamp(0.0, 1.0)


def test_without_noise_first_moments_are_exact() -> None:
    x = records()
    location = release_location(RecordStream(x, None), 10, **how(1e-5))
    assert location.count == pytest.approx(4000, rel=1e-4)
    assert torch.allclose(location.mean, x.double().mean(0), atol=1e-5)
    assert location.spread == pytest.approx(float((x - x.mean(0)).square().sum(1).mean()), rel=1e-3)


def subspace(scale: float, clip: float = 1.0) -> Any:
    x = records()
    location = Location(4000.0, x.double().mean(0), 1.0)
    stream = RecordStream(x, None)
    return release_subspace(stream, location, axes=3, radius=1.0, clip=clip, **how(scale))


def test_without_noise_axes_are_principal() -> None:
    found, x = subspace(1e-5), records().double()
    values, vectors = torch.linalg.eigh((x - x.mean(0)).T @ (x - x.mean(0)) / 4000)
    assert torch.allclose(found.eigenvalues, values.flip(0)[:3], rtol=1e-3)
    assert abs(float(found.axes[:, 0] @ vectors[:, -1])) == pytest.approx(1.0, abs=1e-4)
    assert torch.allclose(found.axes.T @ found.axes, torch.eye(3).double(), atol=1e-9)


def test_coordinates_have_norm_one_on_average_and_go_back() -> None:
    found, x = subspace(1e-5), records()
    u = found.project(x)
    assert float(u.square().sum(1).mean()) == pytest.approx(1.0, rel=0.01)
    back = found.place(u) - found.mean
    assert torch.allclose(back @ found.axes, (x.double() - found.mean) @ found.axes, atol=1e-5)


def test_coordinates_see_records_on_a_grid_only() -> None:
    """So that float64 holds every sum of products, in whatever order a library adds them."""
    x = torch.rand(50, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    location = Location(50.0, x.mean(0), 1.0)
    found = release_subspace(RecordStream(x, None), location, axes=40, radius=1.0, clip=5.0, **how(1e-3))
    grid = 2.0**21  # 43 bits are left beside sums over 300 columns: half of them for records
    assert torch.equal(found.project(x), found.project((x * grid).round() / grid))


def test_axes_within_public_rows_hold_less_noise_and_the_signal_that_is_there() -> None:
    """The edge falls with the root of the rows; an axis in their span is found where among all directions it is lost."""
    generator = torch.Generator().manual_seed(0)
    d, r = 400, 40
    within = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))[0][:r]
    axis = within[:5].sum(0) / 5**0.5
    x = 0.5 + 0.2 * torch.randn(3000, 1, generator=generator) * axis.float() + 0.01 * torch.randn(3000, d, generator=generator)
    location = Location(3000.0, x.double().mean(0), 1.0)
    found = [
        release_subspace(RecordStream(x, None), location, axes=3, radius=1.0, clip=1.0, within=rows, **how(5.0))
        for rows in (None, within)
    ]
    assert found[1].edge == pytest.approx(found[0].edge * (r / d) ** 0.5)
    seen = [abs(float(subspace.axes[:, 0] @ axis)) for subspace in found]
    assert seen[1] > 0.85 > 0.75 > seen[0]
    assert torch.allclose(found[1].axes.T @ found[1].axes, torch.eye(3).double(), atol=1e-9)
    assert torch.allclose(within.T @ within @ found[1].axes, found[1].axes, atol=1e-9)
