"""Linear samplers: the implicit kernel against the recursion and a linear programme, its draws row by row, bad mechanisms."""

import math

import pytest
import torch
from finite_cases import EXCESS, best_kernel_tv, dirichlet, explicit_kernel, ldp_excess, users
from scipy import stats
from torch import Tensor

from dpgen.privacy.noise import SecureSource
from dpgen.systems.local.model import MinimaxSampler, RandomizedResponse


def minimax_failures(kernel: Tensor, q: Tensor, epsilon: float, *, tolerance: float = EXCESS) -> list[str]:
    """What keeps a matrix from being the minimax kernel."""
    least = float(q.min())
    worst = (1 - least) / (math.expm1(epsilon) * least + 1)
    found = {
        "rows sum to 1": float((kernel.sum(1) - 1).abs().max()) <= tolerance,
        "qK = q": float((q @ kernel - q).abs().max()) <= tolerance,
        "epsilon-LDP": ldp_excess(kernel, epsilon) <= tolerance,
        "worst case": abs(float((1 - kernel.diagonal()).max()) - worst) <= tolerance,
    }
    return [name for name, holds in found.items() if not holds]


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 700.0])
@pytest.mark.parametrize("n", [2, 20, 200])
def test_the_kernel_is_the_recursion_and_keeps_its_promises(n: int, epsilon: float) -> None:
    q = dirichlet(n, seed=n, sharpness=3.0)
    sampler = MinimaxSampler(epsilon, q)
    kernel = sampler.kernel()
    assert minimax_failures(kernel, q, epsilon) == []
    if n <= 20:
        assert torch.allclose(kernel, explicit_kernel(q, epsilon), rtol=0, atol=1e-12)
    p = users(n, seed=1)
    assert torch.allclose(sampler.apply(p), p @ kernel, rtol=1e-13, atol=0)
    assert torch.equal(sampler.apply(p[0]), sampler.apply(p[:1])[0])
    assert torch.allclose(sampler.lower(), kernel.amin(0), rtol=0, atol=0)
    assert torch.allclose(sampler.misses(), kernel.clone().fill_diagonal_(0).sum(1), rtol=1e-12, atol=0)


@pytest.mark.parametrize("entry", [(0, 0), (1, 3), (4, 2)])
def test_a_kernel_with_one_entry_one_percent_off_is_rejected(entry: tuple[int, int]) -> None:
    q = dirichlet(5, seed=0)
    kernel = MinimaxSampler(1.0, q).kernel()
    kernel[entry] *= 1.01
    assert {"rows sum to 1", "qK = q"} <= set(minimax_failures(kernel, q, 1.0))
    off = kernel / kernel.sum(1, keepdim=True)
    assert minimax_failures(off, q, 1.0) != []


@pytest.mark.parametrize("epsilon", [1.0, 300.0])
def test_a_million_categories(epsilon: float) -> None:
    n = 10**6
    q = dirichlet(n, seed=3, sharpness=4.0)
    sampler = MinimaxSampler(epsilon, q)
    p = dirichlet(n, seed=4, sharpness=4.0)
    both = sampler.apply(torch.stack([q, p]))
    assert float((both[0] / q - 1).abs().max()) <= EXCESS, "qK = q, in relative terms"
    assert abs(float(both[1].sum()) - 1) <= EXCESS
    kept = sampler.keeps()
    assert float((kept + sampler.misses() - 1).abs().max()) <= EXCESS, "every row sums to 1"
    order = q.argsort(stable=True)
    corners = torch.zeros(3, n, dtype=torch.float64)
    corners[[0, 1, 2], order[[0, n // 2, n - 1]]] = 1.0
    assert ldp_excess(sampler.apply(corners), epsilon) <= EXCESS
    rarest = float(q.min())
    assert sampler.worst_case() == pytest.approx((1 - rarest) / (math.expm1(epsilon) * rarest + 1), abs=EXCESS)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_no_kernel_does_better_by_linear_programme(epsilon: float) -> None:
    for n in (2, 3, 4, 5):
        q = dirichlet(n, seed=10 + n)
        assert MinimaxSampler(epsilon, q).worst_case() == pytest.approx(best_kernel_tv(q, epsilon), abs=1e-8)


def test_randomized_response_is_warners() -> None:
    n, epsilon = 7, 1.3
    kernel = RandomizedResponse(epsilon, dirichlet(n, seed=0)).kernel()
    expected = torch.full((n, n), 1.0).double().fill_diagonal_(math.exp(epsilon)) / (math.exp(epsilon) + n - 1)
    assert torch.allclose(kernel, expected, rtol=1e-13, atol=0)
    assert torch.equal(RandomizedResponse(epsilon, n).kernel(), kernel)


def chi_square_p(drawn: Tensor, expected: Tensor) -> float:
    counts = torch.bincount(drawn, minlength=expected.numel())
    return float(stats.chisquare(counts.numpy(), (expected * drawn.numel()).numpy()).pvalue)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0])
def test_every_row_is_drawn_as_it_stands(epsilon: float) -> None:
    q = dirichlet(5, seed=6)
    minimax = MinimaxSampler(epsilon, q)
    for sampler in (minimax, RandomizedResponse(epsilon, 5)):
        kernel = sampler.kernel()
        drawn = sampler.sample(torch.eye(5), k=20_000, secrets=SecureSource()).T
        assert drawn.shape == (5, 20_000)
        for row in range(5):
            assert chi_square_p(drawn[row], kernel[row]) > 1e-9
    shifted = kernel[0].clone()
    shifted[shifted.argmin()] *= 2
    assert chi_square_p(drawn[0], shifted / shifted.sum()) < 1e-9, "a row that is off is seen"
