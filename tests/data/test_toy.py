"""Toy targets: densities that integrate to 1 and describe their samples, exact distribution functions of their draws."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from dpgen.data import load_mixture, load_mixture_1d, load_ring
from dpgen.data.toy import (
    REFERENCE_MIXTURES,
    GaussianMixture,
    gaussian_ring,
    mixture_1d,
    reference_mixture,
)

PLANE = GaussianMixture(torch.tensor([[0.0, 1.0], [2.0, -1.0]]), torch.tensor([0.3, 0.1]), torch.tensor([0.2, 0.8]))
TARGETS = {"ring": gaussian_ring(), "variance": mixture_1d("variance"), "std": mixture_1d("std"), "weights": PLANE}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_density_integrates_to_one_in_its_box_and_describes_samples(target: GaussianMixture) -> None:
    """Mean and second moment of samples, against the mixture's own, within 7 standard errors."""
    axes = [torch.linspace(low, high, 4001 if target.d == 1 else 501, dtype=torch.float64) for low, high in target.box()]
    nodes = torch.cartesian_prod(*axes).reshape(-1, target.d)
    cell = math.prod(float(axis[1] - axis[0]) for axis in axes)
    assert float(target.log_prob(nodes).exp().sum() * cell) == pytest.approx(1, abs=1e-6)
    x = target.sample(20_000, generator=torch.Generator().manual_seed(0))
    weights = target.weights
    assert weights is not None
    mean = (weights[:, None] * target.means).sum(0)
    square = (weights[:, None] * (target.means.square() + target.variances[:, None])).sum(0)
    for values, expected in ((x, mean), (x.square(), square)):
        assert bool(((values.mean(0) - expected).abs() < 7 * values.std(0) / 20_000**0.5).all())


def test_one_component_is_torchs_normal() -> None:
    target = GaussianMixture(torch.tensor([[1.0, -2.0]]), torch.tensor([0.25]))
    x = torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    normal = torch.distributions.Normal(torch.tensor([1.0, -2.0], dtype=torch.float64), 0.5)
    assert torch.allclose(target.log_prob(x), normal.log_prob(x).sum(1))


def test_readings_and_radii() -> None:
    assert mixture_1d("variance").variances.tolist() == [0.01, 0.1, 0.1]
    assert mixture_1d("std").variances.tolist() == pytest.approx([1e-4, 0.01, 0.01])
    assert gaussian_ring(5, radius=2).means.norm(dim=1).tolist() == pytest.approx([2.0] * 5)
    assert gaussian_ring().sample(0, generator=torch.Generator()).shape == (0, 2)


@pytest.mark.parametrize("load", [load_ring, load_mixture_1d])
def test_synthetic_points_know_their_density(load: Any) -> None:
    points = load(n_points=50, n_test=20)
    assert (points.n, len(points.test_x)) == (50, 20)
    assert points.target.log_prob(points.x).shape == (50,)
    assert points.scale.tolist() == [1.0] * points.d
    assert not set(map(tuple, points.x.tolist())) & set(map(tuple, points.test_x.tolist()))
    assert torch.equal(points.x, load(n_points=50, n_test=20).x)


@pytest.mark.parametrize("name", REFERENCE_MIXTURES)
@pytest.mark.parametrize("N", [1000, 10**18])
def test_draws_follow_the_distribution_function(name: str, N: int) -> None:
    """Fixed seed; a Kolmogorov statistic above 2.6 / sqrt(n) has chance 3e-6."""
    mixture, n = reference_mixture(name), 20_000  # type: ignore[arg-type]
    x = np.sort(mixture.draw(n, N, np.random.default_rng(0)))
    assert x[0] >= 0
    assert x[-1] < N
    assert np.abs(mixture.below(x + 1, N) - np.searchsorted(x, x, side="right") / n).max() < 2.6 / n**0.5
    assert mixture.below([0, N], N).tolist() == [0.0, 1.0]
    assert sum(mixture.weights) == pytest.approx(1)
    assert N == 1000 or len(set((x % 64).tolist())) > 50, "low digits are drawn too"


def test_a_mixture_as_data() -> None:
    one, again = (load_mixture(mixture="spikes", n_records=1000, data_seed=1) for _ in range(2))
    assert one.values["x"].tolist() == again.values["x"].tolist()  # type: ignore[union-attr]
    assert one.truth is not None
    assert one.domains["x"].size == 10**18


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: mixture_1d("sd"), "reading"),  # type: ignore[arg-type]
        (lambda: gaussian_ring(0), "modes"),
        (lambda: GaussianMixture(torch.zeros(3), torch.ones(3)), "means"),
        (lambda: GaussianMixture(torch.zeros(2, 1), torch.tensor([1.0, 0.0])), "variances"),
        (lambda: GaussianMixture(torch.zeros(2, 1), torch.ones(2), torch.tensor([0.9, 0.9])), "weights"),
        (lambda: GaussianMixture(torch.full((1, 1), math.nan), torch.ones(1)), "means"),
        (lambda: gaussian_ring().log_prob(torch.zeros(3, 1)), "x"),
        (lambda: load_mixture(mixture="x"), "mixture"),  # type: ignore[arg-type]
        (lambda: load_mixture(n_records=1), "n_records"),
        (lambda: load_mixture(size=1), "N"),
    ],
)
def test_bad_arguments_are_refused(make: Any, named: str) -> None:
    with pytest.raises(ValueError, match=rf"\b{named}\b"):
        make()
