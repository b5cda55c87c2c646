"""Marginals against counting every cell, correlations against numpy and scipy."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from dpgen.metrics.queries import correlation_errors, marginal_errors


def categories(n: int, sizes: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    columns = [(torch.rand(n, generator=generator) ** 2 * size).long().clamp_max(size - 1) for size in sizes]
    return torch.stack(columns, 1)


def by_counting(real: Tensor, synthetic: Tensor, k: int) -> list[float]:
    """The definition: count the cells of each marginal, and add up what differs."""
    errors = []
    for chosen in combinations(range(real.shape[1]), k):
        own, other = (Counter(map(tuple, x[:, list(chosen)].tolist())) for x in (real, synthetic))
        errors.append(sum(abs(own[c] / len(real) - other[c] / len(synthetic)) for c in own | other) / 2)
    return errors


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("sizes", [(2,) * 5, (2, 7, 1, 30, 3)])
def test_marginals_agree_with_counting(sizes: tuple[int, ...], k: int) -> None:
    real, synthetic = categories(80, sizes, 0), categories(33, sizes, 1)
    found = marginal_errors(real, synthetic, k)
    assert found.tolist() == pytest.approx(by_counting(real, synthetic, k), abs=1e-12)
    assert marginal_errors(real.to(torch.uint8), synthetic.to(torch.uint8), k).tolist() == found.tolist()


def test_a_random_choice_of_sets_is_one_of_all() -> None:
    real, synthetic = categories(50, (2,) * 12, 0), categories(50, (2,) * 12, 1)
    every = set(marginal_errors(real, synthetic, 3).tolist())
    some, again, other = (marginal_errors(real, synthetic, 3, n_sets=20, seed=seed).tolist() for seed in (0, 0, 1))
    assert len(some) == 20
    assert set(some) <= every
    assert some == again != other


def test_marginals_of_equal_and_disjoint_records() -> None:
    x = torch.tensor([[0, 1], [1, 0]])
    assert marginal_errors(x, x.flip(0), 2).tolist() == [0]
    assert marginal_errors(x, 1 - x, 2).tolist() == [0]
    assert marginal_errors(x, torch.full((1, 2), 5), 2).tolist() == [1], "categories that the real records never have"


@pytest.mark.parametrize("kind", ["real", "binary", "far", "tiny"])
def test_correlations_agree_with_numpy(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    real, synthetic = (torch.randn(n, 5, generator=generator, dtype=torch.float64) @ mixing for n in (60, 40))
    change = {
        "real": lambda x: x,
        "binary": lambda x: (x > 0).to(torch.uint8),
        "far": lambda x: x + 1e5,
        "tiny": lambda x: x / 1e200,
    }
    real, synthetic = change[kind](real), change[kind](synthetic)
    scale = 1e200 if kind == "tiny" else 1
    own, other = (np.corrcoef(x.double().numpy().T * scale) for x in (real, synthetic))
    expected = np.abs(own - other)[np.triu_indices(5, 1)]
    assert correlation_errors(real, synthetic).tolist() == pytest.approx(expected, abs=1e-9)


def test_correlation_of_bits_is_phi() -> None:
    x = categories(50, (2, 2), 0)
    table = np.histogram2d(*x.numpy().T, bins=2)[0]
    phi = math.sqrt(stats.chi2_contingency(table, correction=False).statistic / len(x))
    without = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert correlation_errors(without, x).tolist() == pytest.approx([phi], abs=1e-9)


def test_constant_columns() -> None:
    x = torch.tensor([[0.0, 0.0, 7.0], [1.0, 1.0, 7.0], [2.0, 0.0, 7.0]])
    assert len(correlation_errors(x, x)) == 1, "the column that is constant in the real records is left out"
    still = x.clone()
    still[:, 1] = 0.1
    still[:, 2] = torch.arange(3.0)
    assert correlation_errors(torch.tensor([[0, 0, 7], [1, 1, 7]]), still).tolist() == pytest.approx([1])


X = torch.zeros(4, 3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: marginal_errors(X[:0], X), r"real has shape \(0, 3\)"),
        (lambda: marginal_errors(X, X[0]), r"synthetic has shape \(3,\)"),
        (lambda: marginal_errors(X, X[:, :2]), "synthetic has 2 columns, real has 3: they must agree"),
        (lambda: marginal_errors(X, X.float()), "synthetic has dtype torch.float32: categories must be integers"),
        (lambda: marginal_errors(X - 1, X), "real has -1: categories must be >= 0"),
        (lambda: marginal_errors(X, X, 0), r"k is 0: it must be in \[1, 3\]"),
        (lambda: marginal_errors(X, X, 4), r"k is 4: it must be in \[1, 3\]"),
        (lambda: marginal_errors(X, X, n_sets=0), "n_sets is 0: it must be >= 1"),
        (lambda: marginal_errors(X + 3000, X), r"columns \(0, 1\) have a marginal of 9006001 cells"),
        (lambda: correlation_errors(X, X), "real has 0 columns that vary: at least 2 are needed"),
        (lambda: correlation_errors(X / 0, X), "real has a value that is not finite"),
        (lambda: correlation_errors(X, X[:0]), r"synthetic has shape \(0, 3\)"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
