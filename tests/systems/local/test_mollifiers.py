"""The vocabulary of mollifiers."""

import math

import pytest
import torch
from finite_cases import dirichlet

from dpgen.systems.local.kernels import MechanismSampler, MinimaxSampler, RandomizedResponse
from dpgen.systems.local.mollifiers import (
    in_convex_hull,
    in_relative_mollifier,
    is_mollifier,
    mechanism_mollifier,
    mixture,
    mollifier_epsilon,
    mollifier_ranges,
    mollify_density,
)

KERNEL = MinimaxSampler(1.0, dirichlet(4, seed=0)).kernel()


def test_definition() -> None:
    assert mollifier_epsilon(KERNEL) == pytest.approx(1.0, abs=1e-12)
    assert is_mollifier(KERNEL, 1.0)
    assert not is_mollifier(KERNEL, 0.999)
    assert is_mollifier(KERNEL[:1], 1e-6), "one distribution is a mollifier for every epsilon"
    assert mollifier_epsilon(torch.eye(3)) == math.inf
    assert mollifier_epsilon(torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]])) == pytest.approx(math.log(2))
    with pytest.raises(ValueError, match="members has a row whose sum is off"):
        is_mollifier(torch.ones(2, 2), 1.0)


def test_the_hull_of_a_mollifier_is_one() -> None:
    points = mixture(KERNEL, dirichlet(4, seed=3, rows=200))
    assert is_mollifier(torch.cat([points, KERNEL]), 1.0)
    assert in_convex_hull(points[0], KERNEL)
    assert not in_convex_hull(torch.tensor([1.0, 0, 0, 0]), KERNEL)


def test_the_mollifier_of_a_mechanism_is_what_its_sampler_draws_from() -> None:
    sampler = MechanismSampler(torch.cat([KERNEL, KERNEL.mean(0, keepdim=True), KERNEL[:1]]))
    vertices = mechanism_mollifier(sampler.kernel())
    assert vertices.shape == (4, 4), "a mixture and a repeated row are no vertices"
    assert in_convex_hull(sampler.apply(dirichlet(6, seed=1)), vertices)
    assert mechanism_mollifier(RandomizedResponse(1.0, 3).kernel()).shape == (3, 3)


def test_relative_mollifier() -> None:
    q = dirichlet(5, seed=2)
    assert in_relative_mollifier(q, q, 1e-6).item()
    shifted = q * torch.tensor([1.1, 1.0, 1.0, 1.0, 1.0])
    shifted[1] -= 0.1 * q[0]
    assert in_relative_mollifier(torch.stack([q, shifted]), q, 0.01).tolist() == [True, False]
    assert not in_relative_mollifier(torch.tensor([1.0, 0, 0, 0, 0]), q, 600.0).item()


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_scale_and_shift(epsilon: float) -> None:
    x = (torch.arange(200_000).double() + 0.5) / 200_000
    low, high = mollifier_ranges(epsilon)["sufficient"]
    assert (low * high, mollifier_ranges(epsilon)["necessary"]) == (pytest.approx(1), (math.exp(-epsilon), math.exp(epsilon)))
    for density, bounds in (
        (lambda x: 1 + 0.9 * torch.sin(2 * math.pi * x), (0.1, 1.9)),
        (lambda x: 3 * x**2, (0.0, 3.0)),
        (lambda x: torch.ones_like(x), (1.0, 1.0)),
    ):
        g = mollify_density(density, epsilon, bounds=bounds)
        values = g(x)
        assert float(values.mean()) == pytest.approx(1, abs=1e-9)
        assert low - 1e-12 <= float(values.min()) <= float(values.max()) <= high + 1e-12
        assert torch.equal(values.argmax(), density(x).argmax()), "modes stay"
        assert torch.allclose(values.diff(), g.scale * density(x).diff(), atol=1e-12), "the derivative is scaled"
        assert g.scale == 1 or float(values.min()) < low * 1.001 or float(values.max()) > high * 0.999, "as little as needed"


def test_a_density_that_breaks_its_bounds_stays_private() -> None:
    g = mollify_density(lambda x: 4 * x**3, 1.0, bounds=(0.5, 1.5))
    assert float(g(torch.tensor(1.0))) == pytest.approx(math.exp(0.5))


@pytest.mark.parametrize("bounds", [(1.2, 2.0), (-0.1, 2.0), (0.5, 0.9), (0.0, math.inf), (math.nan, 2.0)])
def test_bad_bounds(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="must be 0 <= m <= 1 <= M"):
        mollify_density(lambda x: x, 1.0, bounds=bounds)
