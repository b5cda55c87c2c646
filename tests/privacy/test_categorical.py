"""Exact categorical draws: fast path against integers, tiny atoms, frequencies, and a grid of uniforms that is rejected."""

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
import torch
from fixed_source import Digits, FixedKeySource
from scipy import stats
from torch import Tensor

from dpgen.privacy.noise import SecureSource
from dpgen.privacy.selection import draw_categorical, exact_sum, resolve, running_sum, scan_error


def test_sums_are_exact() -> None:
    values = np.random.default_rng(0).random(500) * 10.0 ** np.random.default_rng(1).integers(-300, 300, 500)
    values[::7] = 0.0
    assert exact_sum(values) == sum(map(Fraction, values.tolist()))
    assert exact_sum(np.array([5e-324, 1.5])) == Fraction(5e-324) + Fraction(1.5)
    assert exact_sum(np.zeros(0)) == 0


@pytest.mark.parametrize("n", [1, 7, 4096, 5000, 300_000])
def test_running_sums_keep_their_bound_and_never_decrease(n: int) -> None:
    values = torch.rand(2, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) ** 8
    sums = running_sum(values)
    assert bool((sums.diff(dim=1) >= 0).all())
    for j in {0, n // 3, n - 1}:
        exact = exact_sum(values[1, : j + 1].numpy())
        assert abs(Fraction(float(sums[1, j])) - exact) <= scan_error(n) * exact


def test_integers_decide_like_doubles_where_both_can() -> None:
    weights = torch.rand(3, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 6
    weights[:, ::5] = 0.0
    fast = draw_categorical(FixedKeySource(4), weights, k=200)
    assert torch.equal(fast, draw_categorical(FixedKeySource(4), weights, k=200, margin=2.0))
    assert not torch.equal(fast, draw_categorical(FixedKeySource(5), weights, k=200))
    assert bool((weights.expand(200, 3, 40).gather(2, fast[..., None]) > 0).all()), "an atom of mass 0 is never drawn"


def outcome(word: int, further: bytes, weights: Iterable[float]) -> int:
    values = np.array(list(weights))
    total, n = exact_sum(values), len(values)
    found = {
        resolve(word, lambda j: exact_sum(values[: j + 1]), n, guess=guess, total=total, source=Digits(further))
        for guess in range(n)
    }
    assert len(found) == 1, "where the search starts does not matter"
    return found.pop()


def test_an_atom_of_probability_two_to_the_minus_200_has_that_probability() -> None:
    weights, ones = (1.0, 2.0**-200), 2**64 - 1
    assert outcome(ones, b"\xff" * 24, weights) == 1, "256 ones in a row"
    assert outcome(ones, b"\xff" * 16, weights) == 0, "192 ones, then zeros"
    assert outcome(ones - 1, b"\xff" * 24, weights) == 0
    # The twin that inverts 53-bit uniforms can never release it: its log-ratio to any other user is infinite.
    twin = int(torch.searchsorted(torch.tensor(weights, dtype=torch.float64).cumsum(0), 1 - 2.0**-53, right=True))
    assert twin == 0


def test_doubles_decide_nothing_that_is_close() -> None:
    weights = torch.tensor([[1.0, 2.0**-70, 1.0]], dtype=torch.float64)  # u = 1/2 lies in the middle of the second interval
    assert draw_categorical(Digits((2**63).to_bytes(8, "little")), weights).tolist() == [[1]]
    beside = Digits((2**63).to_bytes(8, "little") + b"\xff" * 8)
    assert draw_categorical(beside, weights).tolist() == [[2]]


def test_the_search_finds_every_interval_from_everywhere() -> None:
    for n in (1, 2, 3, 8, 13):
        for j in range(n):
            assert outcome((2 * j + 1) * 2**63 // n, b"", [1.0] * n) == j


def test_boundaries_belong_to_the_right() -> None:
    assert outcome(2**63, b"", (1.0, 1.0)) == 1
    assert outcome(2**63 - 1, b"\xff" * 64, (1.0, 1.0)) == 0
    assert outcome(2**62, b"", (1.0, 0.0, 3.0)) == 2
    third = 2**64 // 3
    assert outcome(third, b"\x55" * 8 + b"\x54", (1.0, 1.0, 1.0)) == 0, "1/3 = .0101..., one digit below"
    assert outcome(third, b"\x55" * 8 + b"\x56", (1.0, 1.0, 1.0)) == 1


def chi_square_p(drawn: Tensor, weights: Tensor) -> float:
    expected = weights / weights.sum() * drawn.numel()
    counts = torch.bincount(drawn, minlength=weights.numel())
    return float(stats.chisquare(counts.numpy(), expected.numpy()).pvalue)


def test_frequencies() -> None:
    weights = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 1.0, 1.0, 0.5]], dtype=torch.float64)
    drawn = draw_categorical(SecureSource(), weights, k=40_000)
    assert drawn.shape == (40_000, 2)
    for row in range(2):
        assert chi_square_p(drawn[:, row], weights[row]) > 1e-8
    assert chi_square_p(drawn[:, 0], weights[0] * torch.tensor([1.2, 1.0, 1.0, 1.0])) < 1e-8, "a weight 20 % off is seen"
    # Rows and repeats are independent of each other.
    both = drawn[:, 0] * 4 + drawn[:, 1]
    joint = (weights[0] / weights[0].sum()).outer(weights[1] / weights[1].sum()).reshape(-1)
    assert chi_square_p(both, joint) > 1e-8


def test_many_categories() -> None:
    weights = torch.ones(1, 10**5, dtype=torch.float64)
    drawn = draw_categorical(SecureSource(), weights, k=10**5)[:, 0].double()
    assert abs(float(drawn.mean()) - (10**5 - 1) / 2) < 6 * 10**5 / math.sqrt(12 * 10**5)


@pytest.mark.parametrize(
    ("weights", "k", "match"),
    [
        (torch.ones(3), 1, r"weights must have shape \(u, n\)"),
        (torch.ones(3, 0), 1, r"weights must have shape \(u, n\)"),
        (torch.ones(1, 3), -1, "k must be >= 0"),
        (torch.tensor([[1.0, -1.0]]), 1, "finite and >= 0"),
        (torch.tensor([[1.0, float("nan")]]), 1, "finite and >= 0"),
        (torch.tensor([[1.0, float("inf")]]), 1, "finite and >= 0"),
        (torch.zeros(1, 3), 1, "a positive sum"),
    ],
)
def test_bad_weights(weights: Tensor, k: int, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        draw_categorical(SecureSource(), weights, k=k)
