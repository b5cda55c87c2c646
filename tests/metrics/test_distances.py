"""Distances of distributions against scipy and hand-made cases."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr
from torch import Tensor

from dpgen.metrics.distances import (
    distribution_divergence,
    kolmogorov_distance,
    kolmogorov_distance_to,
    wasserstein_distance,
)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def dirichlet(rows: int, n: int, seed: int) -> Tensor:
    weights = torch.rand(rows, n, generator=generator(seed), dtype=torch.float64).log().neg()
    return weights / weights.sum(1, keepdim=True)


REFERENCES = {
    "tv": lambda p, q: 0.5 * np.abs(p - q).sum(),
    "kl": lambda p, q: stats.entropy(p, q),
    "reverse_kl": lambda p, q: rel_entr(q, p).sum(),
    "chi2": lambda p, q: stats.chisquare(p, q).statistic,
    "hellinger": lambda p, q: 1 - np.sqrt(p * q).sum(),
    "js": lambda p, q: jensenshannon(p, q) ** 2,
}


@pytest.mark.parametrize("name", list(REFERENCES))
def test_divergences_agree_with_scipy(name: str) -> None:
    p, q = dirichlet(20, 7, 0), dirichlet(20, 7, 1)
    expected = [REFERENCES[name](*rows) for rows in zip(p.numpy(), q.numpy())]
    assert distribution_divergence(p, q, name).tolist() == pytest.approx(expected, abs=1e-9)
    assert float(distribution_divergence(p[0], q[0], name)) == pytest.approx(expected[0], abs=1e-9)


def test_divergences_of_disjoint_and_equal_distributions() -> None:
    p, q = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    most = {"tv": 1, "kl": math.inf, "reverse_kl": math.inf, "chi2": math.inf, "hellinger": 1, "js": math.log(2)}
    for name, value in most.items():
        assert float(distribution_divergence(p, q, name)) == pytest.approx(value)
        assert float(distribution_divergence(p, p, name)) == 0


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 50), (37, 20), (200, 300)])
def test_two_samples_agree_with_scipy(n: int, m: int, ties: bool) -> None:
    real, synthetic = torch.randn(n, generator=generator(n)), 0.3 + 2 * torch.randn(m, generator=generator(m))
    if ties:
        real, synthetic = real.round().long(), synthetic.round().long()
    expected = stats.ks_2samp(real.numpy(), synthetic.numpy(), method="exact").statistic
    assert kolmogorov_distance(real, synthetic) == pytest.approx(expected, abs=1e-12)
    expected = stats.wasserstein_distance(real.double().numpy(), synthetic.double().numpy())
    assert wasserstein_distance(real, synthetic) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 40, 1000])
def test_a_sample_against_a_distribution_agrees_with_scipy(n: int) -> None:
    x = 0.5 + torch.randn(n, generator=generator(n))
    expected = stats.kstest(x.double().numpy(), stats.norm.cdf).statistic
    assert kolmogorov_distance_to(x, torch.special.ndtr) == pytest.approx(expected, abs=1e-12)


def test_degenerate_samples() -> None:
    one, far = torch.full((5,), 3.0), torch.full((2,), -1.0)
    assert kolmogorov_distance(one, one[:2]) == wasserstein_distance(one, one[:2]) == 0
    assert (kolmogorov_distance(one, far), wasserstein_distance(one, far)) == (1, 4)
    assert kolmogorov_distance_to(torch.full((4,), 0.5), lambda t: t.clamp(0, 1)) == 0.5
    large = torch.tensor([2**60])
    assert kolmogorov_distance(large, large + 1) == 1, "integers that no float64 tells apart"


def no_cdf(values: Tensor) -> Tensor:
    return -values


P = torch.tensor([0.5, 0.5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: distribution_divergence(torch.tensor([0.5, 0.6]), P), "p has a row whose sum is off 1 by 0.1"),
        (lambda: distribution_divergence(P, torch.tensor([1.5, -0.5])), "q has an entry that is negative or NaN"),
        (lambda: distribution_divergence(P, P * math.nan), "q has an entry that is negative or NaN"),
        (lambda: distribution_divergence(P, torch.ones(3) / 3), "q has 3 categories, p has 2: they must agree"),
        (lambda: distribution_divergence(P[:0], P), r"p has shape \(0,\)"),
        (lambda: distribution_divergence(P[None, None], P), r"p has shape \(1, 1, 2\)"),
        (lambda: distribution_divergence(P, P, "l2"), "divergence is 'l2'; choose one of"),
        (lambda: kolmogorov_distance(P[:0], P), r"real has shape \(0,\): it must be \(n,\)"),
        (lambda: wasserstein_distance(P, P[None]), r"synthetic has shape \(1, 2\)"),
        (lambda: wasserstein_distance(P, P / 0), "synthetic has a value that is not finite"),
        (lambda: kolmogorov_distance(P * math.nan, P), "real has a value that is not finite"),
        (lambda: kolmogorov_distance_to(P[:0], torch.special.ndtr), r"x has shape \(0,\)"),
        (lambda: kolmogorov_distance_to(P, no_cdf), "cdf gives values that do not increase from 0 to 1"),
        (lambda: kolmogorov_distance_to(P, lambda t: t.sum()), "cdf gives values"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
