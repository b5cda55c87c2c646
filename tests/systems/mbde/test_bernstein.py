"""The Bernstein mechanism: its certificate by brute force, its noise, twins that are not private, its density."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen.privacy.curator import Curator
from dpgen.runtime import Runtime
from dpgen.systems.mbde import boxes
from dpgen.systems.mbde.boxes import (
    BernsteinConfig,
    BernsteinModel,
    BernsteinPlan,
    basis,
    fit_bernstein,
    kernel_mass,
    lattice_sums,
    record_weights,
    to_weights,
)

SMALL = BernsteinConfig(degree=4, bandwidth=0.2, floor=0.0)


def data(x: torch.Tensor, bounds: torch.Tensor | None = None) -> SimpleNamespace:
    box = torch.tensor([[0.0, 1.0]] * x.shape[1], dtype=torch.float64) if bounds is None else bounds
    return SimpleNamespace(x=x, bounds=box, columns=tuple("abcdefghi"[: x.shape[1]]))


def released(x: torch.Tensor, config: BernsteinConfig, **plan: Any) -> BernsteinModel:
    made = BernsteinPlan(**plan)
    return fit_bernstein(data(x), plan=made, config=config, curator=Curator(made.open_ledger()), runtime=Runtime())


# -- the certificate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [1, 20, 100])
@pytest.mark.parametrize("bandwidth", [0.002, 0.03, 0.2, 1.0])
def test_no_record_has_more_kernel_mass_than_certified(degree: int, bandwidth: float) -> None:
    y = torch.linspace(0, 1, 3001, dtype=torch.float64)[:, None]
    lattice = torch.arange(degree + 1, dtype=torch.float64) / degree
    worst = float((-0.5 * ((lattice - y) / bandwidth) ** 2).exp().sum(1).max())
    certified = kernel_mass(degree, bandwidth)
    assert worst <= certified
    if 3 * bandwidth < 0.5:  # the kernel fits into the box: the certificate is attained
        assert certified <= worst * (1 + 2e-3)


def test_the_published_sensitivity_is_two_to_thirteen_times_larger() -> None:
    """(k + 1) times the largest change of one coefficient, where the certificate takes the largest sum of changes."""
    for degree, bandwidth in ((20, 0.15), (60, 0.03), (100, 0.1)):
        assert 2 <= (degree + 1) / kernel_mass(degree, bandwidth) <= 14


def test_an_understated_certificate_still_cannot_move_more_than_the_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "kernel_mass", lambda degree, bandwidth: 0.3)
    weights = record_weights(torch.rand(200, dtype=torch.float64), degree=20, bandwidth=0.1, units=2**10)
    assert float(weights.sum(1).max()) <= 2**10


# -- privacy ---------------------------------------------------------------------------------------------------------


# -- sums and weights ------------------------------------------------------------------------------------------------


def test_sums_are_those_of_one_record_after_another() -> None:
    y = torch.rand(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sums = lattice_sums(y, config=SMALL)
    slow = torch.zeros(5, 5, dtype=torch.int64)
    for row in y:
        first, second = (record_weights(row[i : i + 1], degree=4, bandwidth=0.2, units=2**12)[0].long() for i in (0, 1))
        slow += first[:, None] * second
    assert torch.equal(sums.values, slow)
    assert sums.sensitivity == 2**24


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), chunk=st.integers(1, 40), d=st.integers(1, 3))
def test_sums_have_the_same_bits_for_any_order_and_chunk_size(seed: int, chunk: int, d: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    y = torch.rand(37, d, dtype=torch.float64, generator=generator)
    config = BernsteinConfig(degree=9, bandwidth=0.07)
    expected = lattice_sums(y, config=config).values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes, "_CHUNK", chunk)
        assert torch.equal(lattice_sums(y[torch.randperm(37, generator=generator)], config=config).values, expected)
    apart = sum(lattice_sums(row[None], config=config).values for row in y)
    assert torch.equal(apart, expected), "what a record adds depends on that record alone"


def test_the_kernel_is_that_of_gauss() -> None:
    u = torch.cat([torch.linspace(0, 70, 9001, dtype=torch.float64), torch.tensor([1e300, math.inf]).double()])
    assert float((boxes.kernel_values(u) - (-u).exp()).abs().max()) < 1e-9


def test_weights_are_the_nearest_density_and_hopeless_noise_gives_the_uniform_one() -> None:
    sums = 100 * torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 40
    target, weights = sums / sums.sum(), to_weights(sums, 0.0)
    generator = torch.Generator().manual_seed(2)
    for _ in range(200):  # first-order condition of the projection, against random points of the simplex
        other = torch.rand(5, 5, dtype=torch.float64, generator=generator)
        other /= other.sum()
        assert float(((target - weights) * (other - weights)).sum()) <= 1e-12
    assert float(weights.sum()) == pytest.approx(1)
    assert float(weights.min()) >= 0
    assert to_weights(-sums.abs(), 0.0).unique().tolist() == [0.04]
    assert float(to_weights(sums, 0.1).min()) == pytest.approx(0.1 / 25)


@pytest.mark.parametrize("degree", [1, 7, 300])
def test_the_basis_is_scipys_binomial(degree: int) -> None:
    from scipy.stats import binom

    u = torch.tensor([0.0, 0.1, 0.5, 0.99, 1.0])
    expected = binom.pmf(np.arange(degree + 1), degree, u.double().numpy()[:, None])
    assert np.allclose(basis(u, degree), expected, atol=1e-12)


# -- the released model ----------------------------------------------------------------------------------------------


def two_humps(n: int = 4000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    centre = torch.where(torch.rand(n, 1, generator=generator) < 0.5, 0.25, 0.7).double()
    return (centre + 0.05 * torch.randn(n, 1, generator=generator, dtype=torch.float64)).clamp(0, 1)


def test_the_density_integrates_to_one_and_its_samples_follow_it() -> None:
    x = torch.cat([two_humps(), two_humps().flip(0)], 1)
    model = released(x, BernsteinConfig(degree=20, bandwidth=0.05), epsilon=2.0)
    axis = (torch.arange(200, dtype=torch.float64) + 0.5) / 200
    nodes = torch.cartesian_prod(axis, axis)
    density = model.log_prob(nodes).exp() / 200**2
    assert float(density.sum()) == pytest.approx(1, abs=1e-4)
    drawn = model.samples(20_000, random_state=1).x
    expected = (density[:, None] * nodes).sum(0)
    assert bool(((drawn.mean(0) - expected).abs() < 7 * drawn.std(0) / 20_000**0.5).all())
    assert bool((model.log_prob(torch.tensor([[1.5, 0.5], [0.5, -0.1]])) == -math.inf).all())


def test_more_budget_fits_better_and_less_budget_hides() -> None:
    """Too good at a tiny epsilon would mean that the noise is missing."""
    x, test = two_humps(), two_humps(500)
    config = BernsteinConfig(degree=100, bandwidth=0.03)

    def gain(epsilon: float) -> float:
        return float(released(x, config, epsilon=epsilon).log_prob(test).mean())

    assert gain(10.0) > 0.4
    # One density of noise alone gains .33 at most out of 60, -.5 on average, and is above 0 in a third of the fits.
    assert sum(gain(1e-4) for _ in range(20)) / 20 < 0.2


@pytest.mark.parametrize(
    ("x", "config", "plan", "said"),
    [
        (torch.rand(20, 9), BernsteinConfig(degree=1), {}, "columns"),
        (torch.rand(20, 2), BernsteinConfig(degree=2000), {}, "degree"),
        (torch.rand(20, 1), SMALL, {"epsilon": 1e-6}, "epsilon"),
        (torch.full((20, 1), 3.0), SMALL, {}, "x has points"),
        (torch.full((20, 1), math.nan), SMALL, {}, "x has points"),
    ],
)
def test_what_cannot_be_released_is_refused_before_it_is_charged(
    x: Any, config: Any, plan: dict[str, float], said: str
) -> None:
    made = BernsteinPlan(**plan)  # type: ignore[arg-type]
    ledger = made.open_ledger()
    with pytest.raises(ValueError, match=said):
        fit_bernstein(data(x), plan=made, config=config, curator=Curator(ledger), runtime=Runtime())
    assert ledger.promised() == []


def test_the_narrowest_kernel_and_the_most_columns_are_served() -> None:
    assert kernel_mass(1, 1e-6) == pytest.approx(1)
    model = released(torch.rand(20, 8, dtype=torch.float64), BernsteinConfig(degree=1))
    assert model.weights.shape == (2,) * 8
