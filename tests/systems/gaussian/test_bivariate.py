"""Orthant probabilities against quadrature."""

import pytest
import torch
from scipy.stats import multivariate_normal

from dpgen.systems.gaussian.model import orthant, upper_tail


@pytest.mark.parametrize("rho", [-0.99, -0.5, 0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize(("h", "k"), [(0.0, 0.0), (1.0, -0.5), (2.5, 2.0), (-3.0, 1.0)])
def test_orthants_are_those_of_scipy(h: float, k: float, rho: float) -> None:
    exact = multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([-h, -k])
    assert orthant(*(torch.tensor([v]) for v in (h, k, rho))).item() == pytest.approx(exact, abs=2e-6)


def test_the_limits_of_correlation() -> None:
    h = torch.tensor([0.7, 0.7, 0.7])
    found = orthant(h, h, torch.tensor([1.0, 0.0, -1.0]))
    tail = upper_tail(h[:1]).item()
    assert found.tolist() == pytest.approx([tail, tail**2, 0.0], abs=1e-4)
