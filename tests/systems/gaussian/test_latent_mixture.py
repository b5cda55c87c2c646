"""Gaussians in coordinates: draws against densities."""

import math

import pytest
import torch

from dpgen.systems.gaussian.model import LatentMixture, clean_covariance


def mixture() -> LatentMixture:
    """Two components in two dimensions, the second of rank one."""
    turn = torch.tensor([[0.8, -0.6], [0.6, 0.8]]).double()
    return LatentMixture(
        weights=torch.tensor([0.3, 0.7]).double(),
        means=torch.tensor([[0.0, 0.0], [3.0, 1.0]]).double(),
        vectors=torch.stack([torch.eye(2).double(), turn]),
        eigenvalues=torch.tensor([[1.0, 0.25], [0.5, 0.0]]).double(),
        rest=torch.tensor([0.01, 0.04]).double(),
    )


def test_densities_are_torchs() -> None:
    u = torch.randn(20, 2, generator=torch.Generator().manual_seed(0)).double()
    made = mixture()
    covariances = made.filled().covariances()
    for j in range(2):
        normal = torch.distributions.MultivariateNormal(made.means[j], covariances[j])
        wanted = normal.log_prob(u) + math.log(float(made.weights[j]))
        assert torch.allclose(made.log_densities(u)[:, j], wanted)


@pytest.mark.parametrize("filled", [False, True])
def test_draws_have_the_moments(filled: bool) -> None:
    made = mixture().filled() if filled else mixture()
    u = made.draw(1, 40_000, torch.Generator().manual_seed(0)).double()
    assert torch.allclose(u.mean(0), made.means[1], atol=0.02)
    assert torch.allclose(u.T.cov(), made.covariances()[1], atol=0.02)
    assert int(torch.linalg.matrix_rank(u.T.cov(), tol=1e-6)) == (2 if filled else 1)


def test_clean_up_keeps_what_stands_out() -> None:
    cleaned = clean_covariance(torch.diag(torch.tensor([0.2, 5.0, -0.4, 0.6]).double()), 1.0)
    assert cleaned.eigenvalues.tolist() == [5.0, 0.0, 0.0, 0.0]
    assert cleaned.rest == pytest.approx(0.4 / 3)
    assert clean_covariance(torch.zeros(2, 2).double(), 1.0).rest == pytest.approx(1e-3), "never 0"
