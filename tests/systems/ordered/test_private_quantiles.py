"""Recursive medians: exact chances, exact privacy loss on all small neighbours, a twin rejected."""

from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.systems.ordered.baselines import PrivateQuantiles, _median

N = 8


def chances(values: tuple[int, ...], low: int, high: int, rate: float) -> np.ndarray:
    """Chance of each median in (low, high)."""
    inside = [v for v in values if low <= v < high]
    x = np.arange(low + 1, high)
    score = -np.abs(np.array([sum(v < k for v in inside) for k in x]) - len(inside) / 2)
    weights = np.exp(rate * score)
    return weights / weights.sum()


def test_medians_have_their_chances() -> None:
    """Chi-square with 6 degrees of freedom: above 70 with chance < 1e-12."""
    values, draws, rate = (0, 2, 2, 3, 7), 3000, Fraction(1)
    seen = Counter(_median(np.array(values), 0, N, rate, SecureSource()) for _ in range(draws))
    expected = draws * chances(values, 0, N, 1.0)
    assert set(seen) <= set(range(1, N))
    assert sum((seen[k + 1] - e) ** 2 / e for k, e in enumerate(expected)) < 70


def tree_loss(first: tuple[int, ...], second: tuple[int, ...], rate: float, levels: int, low: int = 0, high: int = N) -> float:
    """Largest log-ratio of the whole recursion."""
    if levels == 0 or high - low < 2:
        return 0.0
    ratio = np.log(chances(first, low, high, rate) / chances(second, low, high, rate))
    halves = [
        tree_loss(first, second, rate, levels - 1, low, k) + tree_loss(first, second, rate, levels - 1, k, high)
        for k in range(low + 1, high)
    ]
    return float((ratio + np.array(halves)).max())


def test_no_neighbours_lose_more_than_epsilon_and_a_twin_does() -> None:
    epsilon, levels, losses, twin = 2.0, 2, [], []
    for n in (1, 2, 3, 4):
        for data in combinations_with_replacement(range(N), n):
            less = data[1:]
            losses.append(max(tree_loss(data, less, epsilon / levels, levels), tree_loss(less, data, epsilon / levels, levels)))
            other = (*less, (data[0] + 5) % N)
            moved = tree_loss(data, other, epsilon / (2 * levels), levels)
            losses.append(moved)
            twin.append(tree_loss(data, other, epsilon / levels, levels))
    assert max(losses) <= epsilon + 1e-9
    assert max(twin) > 1.02 * epsilon, "the add/remove rate is not enough under replace-one"


def test_quantiles_are_near_their_ranks() -> None:
    values = np.sort(np.random.default_rng(0).integers(0, 10**18, 20_000))
    counts = PrivateQuantiles(epsilon=1.0, levels=4).fit_counts(
        values, N=10**18, curator=Curator(Ledger(None, delta=1e-9, relation="replace_one"))
    )
    assert len(counts.positions) == 17
    ranks = np.searchsorted(values, counts.positions)
    assert np.abs(ranks - counts.counts).max() < 1500
    with pytest.raises(ValueError, match="levels is 0"):
        PrivateQuantiles(epsilon=1.0, levels=0)
