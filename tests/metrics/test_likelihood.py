"""Likelihood and mode coverage from samples, against scipy, sorting by hand and the quadrature of the same density."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from dpgen.metrics.densities import (
    Quadrature,
    mean_negative_log_likelihood,
    mode_coverage,
    sampled_mode_coverage,
)


def normal(n: int, seed: int) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_likelihood_agrees_with_scipy() -> None:
    x = normal(100, 0)
    log_q = torch.distributions.Normal(torch.tensor(0.5, dtype=torch.float64), 2.0).log_prob(x)
    expected = -stats.norm(0.5, 2.0).logpdf(x.numpy()).mean()
    assert mean_negative_log_likelihood(log_q) == pytest.approx(expected, abs=1e-9)


def test_a_record_that_the_model_excludes() -> None:
    log_q = torch.tensor([-1.0, -math.inf])
    assert mean_negative_log_likelihood(log_q) == math.inf
    assert sampled_mode_coverage(log_q, torch.tensor([-2.0])) == 0.5


@pytest.mark.parametrize("level", [0.05, 0.5, 0.95, 0.999])
@pytest.mark.parametrize("m", [1, 7, 100])
def test_mode_coverage_agrees_with_sorting(level: float, m: int) -> None:
    real, synthetic = normal(50, 1), normal(m, m)
    kept = np.sort(synthetic.numpy())[::-1][: math.ceil(level * m - 1e-9)]
    expected = np.mean(real.numpy() >= kept[-1])
    assert sampled_mode_coverage(real, synthetic, level=level) == pytest.approx(expected, abs=1e-12)


def test_mode_coverage_approaches_the_quadrature() -> None:
    """A model that knows one of two modes."""
    rule = Quadrature(torch.tensor([[-12.0, 12.0]]), 2000)
    nodes = rule.nodes[:, 0]
    log_q = torch.distributions.Normal(-4.0, 1.0).log_prob
    log_p = torch.logaddexp(log_q(nodes), torch.distributions.Normal(4.0, 1.0).log_prob(nodes)) - math.log(2)
    exact = mode_coverage(log_p, log_q(nodes), rule)
    signs = torch.where(torch.arange(40_000) % 2 == 0, -4.0, 4.0)
    found = sampled_mode_coverage(log_q(normal(40_000, 2) + signs), log_q(normal(40_000, 3) - 4))
    assert found == pytest.approx(exact, abs=0.01)
    assert exact == pytest.approx(0.475, abs=0.001)


ONE = torch.zeros(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_negative_log_likelihood(ONE[:0]), r"log_prob has shape \(0,\)"),
        (lambda: mean_negative_log_likelihood(ONE / 0), "log_prob has a value that is NaN or"),
        (lambda: mean_negative_log_likelihood(ONE + math.inf), r"log_prob has a value that is NaN or \+inf"),
        (lambda: mean_negative_log_likelihood(ONE[None]), r"log_prob has shape \(1, 1\)"),
        (lambda: sampled_mode_coverage(ONE, ONE[:0]), r"log_synthetic has shape \(0,\)"),
        (lambda: sampled_mode_coverage(ONE, ONE, level=1.0), r"level is 1.0: it must be in \(0, 1\)"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
