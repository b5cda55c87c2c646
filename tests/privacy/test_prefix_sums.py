"""Correlated noise: the factor, its sensitivity against all neighbours, and the size of the noise."""

import math

import numpy as np
import pytest
from fixed_source import FixedKeySource

from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.noise import (
    SecureSource,
    grid_step,
    noisy_prefix_sums,
    prefix_sensitivity,
    square_root_factor,
    toeplitz_product,
)


def matrix(m: int) -> np.ndarray:
    factor = square_root_factor(m)
    return np.array([[factor[i - j] if i >= j else 0.0 for j in range(m)] for i in range(m)])


@pytest.mark.parametrize("m", [1, 2, 7, 40])
def test_the_factor_squares_to_prefix_sums(m: int) -> None:
    assert matrix(m) @ matrix(m) == pytest.approx(np.tri(m))
    x = np.random.default_rng(0).normal(size=m)
    assert toeplitz_product(square_root_factor(m), x) == pytest.approx(matrix(m) @ x)


def moves(m: int, relation: Relation) -> list[np.ndarray]:
    """Every difference of the counts of neighbours; under replace-one the last cell may be left out."""
    cells = [*np.eye(m), np.zeros(m)]
    if relation == "add_remove":
        return cells[:-1]
    return [a - b for i, a in enumerate(cells) for j, b in enumerate(cells) if i != j]


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("m", [1, 2, 3, 5, 16, 33])
def test_the_sensitivity_is_that_of_the_worst_neighbours(m: int, relation: Relation) -> None:
    B = matrix(m)
    worst = max(float(np.linalg.norm(B @ move)) for move in moves(m, relation))
    assert worst <= prefix_sensitivity(m, relation) <= worst * (1 + 1e-6)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_a_twin_that_forgets_the_factor_is_rejected(relation: Relation) -> None:
    """Sensitivity 1 (or sqrt 2), as of plain counts, would move B x by more than the noise multiplier allows."""
    B, plain = matrix(64), 1.0 if relation == "add_remove" else math.sqrt(2)
    assert max(float(np.linalg.norm(B @ move)) for move in moves(64, relation)) > 1.15 * plain


def test_noise_has_the_stated_variance_and_not_less() -> None:
    """400 runs of 30 correlated sums: mean squares within 35 % (more than 6 standard errors of the slowest)."""
    counts = np.arange(30)
    runs = np.array(
        [noisy_prefix_sums(counts, noise_multiplier=3.0, relation="replace_one", source=SecureSource())[0] for _ in range(400)]
    )
    _, variances = noisy_prefix_sums(counts, noise_multiplier=3.0, relation="replace_one", source=SecureSource())
    B, std = matrix(30), 3.0 * prefix_sensitivity(30, "replace_one")
    assert variances == pytest.approx(std**2 * (B**2).sum(1))
    ratio = ((runs - np.cumsum(counts)) ** 2).mean(0) / variances
    assert ratio.min() > 0.55
    assert ratio.max() < 1.65


def fast_product(cells: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The broken twin: counts and noise through the same fast Fourier transform."""
    factor = square_root_factor(len(cells))
    return toeplitz_product(factor, toeplitz_product(factor, cells.astype(float)) + noise)


@pytest.mark.parametrize("multiplier", [1e-3, 0.3, 40.0, 1e7])
def test_a_record_moves_what_is_released_by_whole_numbers_below_it_alone(multiplier: float) -> None:
    """Same noise, one record more in cell 500 of 1000: sums before it keep every bit, those after it grow by exactly 1."""
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 10**6, 1000)
    more = cells.copy()
    more[500] += 1
    first, second = (
        noisy_prefix_sums(x, noise_multiplier=multiplier, relation="add_remove", source=FixedKeySource(1))[0]
        for x in (cells, more)
    )
    grid = min(1.0, grid_step(multiplier * prefix_sensitivity(1000, "add_remove")))
    assert (first / grid == np.rint(first / grid)).all()
    assert (second - first).tolist() == [0.0] * 500 + [1.0] * 500
    assert (first != np.cumsum(cells)).any()
    twin = fast_product(more, np.zeros(1000)) - fast_product(cells, np.zeros(1000))
    assert (twin[:500] != 0).any(), "in floating point every sum moves"
