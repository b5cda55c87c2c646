"""Toy targets: their densities integrate to 1 and describe their samples."""

import math
from typing import Any

import pytest
import torch

from dpgen.data.toy import (
    GaussianMixture,
    gaussian_ring,
    load_mixture_1d,
    load_random_gaussians,
    load_ring,
    mixture_1d,
    random_gaussians,
)

TARGETS = {
    "ring": gaussian_ring(),
    "variance": mixture_1d("variance"),
    "std": mixture_1d("std"),
    "random 1-D": random_gaussians(7, seed=3),
    "random 2-D": random_gaussians(4, d=2, low=-3, high=3, variance=0.3),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_density_integrates_to_one_and_its_box_holds_it(target: GaussianMixture) -> None:
    axes = [torch.linspace(low, high, 4001 if target.d == 1 else 501, dtype=torch.float64) for low, high in target.box()]
    nodes = torch.cartesian_prod(*axes).reshape(-1, target.d)
    cell = math.prod(float(axis[1] - axis[0]) for axis in axes)
    assert float(target.log_prob(nodes).exp().sum() * cell) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_samples_follow_the_density(target: GaussianMixture) -> None:
    """Mean and second moment, against the mixture's own, within 7 standard errors."""
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


def test_seeds_and_readings() -> None:
    assert torch.equal(random_gaussians(3, seed=1).means, random_gaussians(3, seed=1).means)
    assert not torch.equal(random_gaussians(3, seed=1).means, random_gaussians(3, seed=2).means)
    assert mixture_1d("variance").variances.tolist() == [0.01, 0.1, 0.1]
    assert mixture_1d("std").variances.tolist() == pytest.approx([1e-4, 0.01, 0.01])
    assert gaussian_ring(5, radius=2).means.norm(dim=1).tolist() == pytest.approx([2.0] * 5)
    assert gaussian_ring().sample(0, generator=torch.Generator()).shape == (0, 2)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: mixture_1d("sd"), "reading is 'sd': it must be one of"),
        (lambda: gaussian_ring(0), "modes is 0"),
        (lambda: random_gaussians(0), "k is 0"),
        (lambda: random_gaussians(1, low=1, high=1), "low < high"),
        (lambda: GaussianMixture(torch.zeros(3), torch.ones(3)), r"means has shape \(3,\)"),
        (lambda: GaussianMixture(torch.zeros(2, 1), torch.tensor([1.0, 0.0])), "2 entries > 0"),
        (lambda: GaussianMixture(torch.zeros(2, 1), torch.ones(2), torch.tensor([0.9, 0.9])), "with sum 1"),
        (lambda: GaussianMixture(torch.full((1, 1), math.nan), torch.ones(1)), "means has entries that are not finite"),
        (lambda: gaussian_ring().log_prob(torch.zeros(3, 1)), r"it must be \(n, 2\)"),
        (lambda: gaussian_ring().sample(-1, generator=torch.Generator()), "n is -1"),
    ],
)
def test_bad_arguments_are_refused(make, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize("load", [load_ring, load_mixture_1d, load_random_gaussians])
def test_synthetic_points_know_their_density(load: Any) -> None:
    points = load(n_points=50, n_test=20)
    assert (points.n, len(points.test_x)) == (50, 20)
    assert points.target.log_prob(points.x).shape == (50,)
    assert points.scale.tolist() == [1.0] * points.d
    assert not set(map(tuple, points.x.tolist())) & set(map(tuple, points.test_x.tolist()))
    assert torch.equal(points.x, load(n_points=50, n_test=20).x)
