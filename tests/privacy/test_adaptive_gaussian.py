"""One Gaussian spent in parts: the range of an exponential mechanism within mu-GDP, shares, and what is left."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import expit, ndtri
from scipy.stats import norm

from dpgen.privacy.curator import Curator, GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.selection import ExponentialMechanism, bounded_range

MUS = (0.005, 0.05, 0.3, 1.0, 2.5, 6.0)


def opened(relation: Relation = "add_remove", epsilon: float = 1.0, rows: int = 1) -> GaussianBudget:
    ledger = Ledger(Budget(epsilon, 1e-5), relation=relation, rows=rows, unit="one person")
    return GaussianBudget(Curator(ledger), Budget(epsilon, 1e-5), "whole")


def hardest(mu: float, epsilon_0: float) -> float:
    """The largest separation, in units of mu, of two coins whose log ratios lie in an interval of this length."""
    u = np.linspace(-20.0, 20.0 + epsilon_0, 20_001)
    return float((ndtri(expit(u)) - ndtri(expit(u - epsilon_0))).max()) / mu


@pytest.mark.parametrize("mu", MUS)
def test_coins_of_the_range_are_within_the_gaussian(mu: float) -> None:
    assert hardest(mu, bounded_range(mu)) == pytest.approx(1.0, abs=2e-3)
    assert hardest(mu, bounded_range(mu)) <= 1.0 + 1e-9
    assert hardest(mu, 1.02 * bounded_range(mu)) > 1.0  # the broken twin


def test_the_range_is_convex_so_that_it_holds_for_replaced_records() -> None:
    mus = np.linspace(0.01, 8.0, 100)
    slopes = [(bounded_range(b) - bounded_range(a)) / (b - a) for a, b in pairwise(mus.tolist())]
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in pairwise(slopes))
    assert all(bounded_range(2 * mu) >= 2 * bounded_range(mu) for mu in MUS)


def excess(scores: np.ndarray, other: np.ndarray, mu: float, *, claimed: float) -> float:
    """The most by which the trade-off of two selections passes that of Gaussians of `claimed`."""
    one, two = (np.exp(ExponentialMechanism.gaussian(q, 1 / mu, 1).log_probabilities()) for q in (scores, other))
    order = np.argsort(one / two)
    alpha, beta = one[order].cumsum(), 1 - two[order].cumsum()  # errors of tests that reject outcomes which `two` prefers
    return float((norm.cdf(ndtri(np.clip(1 - alpha, 0, 1)) - claimed) - beta).max())


@pytest.mark.parametrize("mu", MUS)
def test_selections_are_within_the_gaussian_that_is_charged(mu: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        scores = rng.integers(0, 1 + int(4 / mu), 6)
        other = scores + rng.integers(-1, 2, 6)
        assert excess(scores, other, mu, claimed=mu) <= 1e-9


def test_a_selection_that_is_charged_for_half_of_it_is_found() -> None:
    assert excess(np.array([0, 1]), np.array([1, 0]), 1.0, claimed=0.5) > 0.05


def test_scores_that_are_not_bounded_are_found() -> None:
    """The twin that chooses by looking: what is wrong by far wins always."""
    assert excess(np.array([0, 20]), np.array([20, 0]), 1.0, claimed=1.0) > 0.5


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("rows", [1, 3])
def test_parts_add_up_to_the_whole(relation: Relation, rows: int) -> None:
    gaussian = opened(relation, rows=rows)
    whole, counts = gaussian.left, BoundedSum(torch.arange(4), 1.0, replaced=math.sqrt(2.0))
    for share in (0.3, 0.2):
        std = gaussian.noise_std(share * whole)
        _, noise_std = gaussian.sums("counts", counts, share * whole)
        assert noise_std == pytest.approx(std)
    assert 0 <= gaussian.select("pick", np.array([3, 1, 2]), 1, 0.5 * whole) < 3
    assert gaussian.left == pytest.approx(0.0, abs=1e-9)
    ledger = gaussian.curator.ledger
    assert [entry.of for entry in ledger.entries()] == [gaussian.note] * 3
    assert ledger.spent() <= ledger.epsilon() <= 1.0
    assert ledger.spent() == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("rows", [1, 3])
def test_names_of_frequent_values_are_paid_for_beside_their_counts(relation: Relation, rows: int) -> None:
    ledger = Ledger(Budget(1.0, 1e-5), relation=relation, rows=rows, unit="one person")
    gaussian = GaussianBudget(Curator(ledger), Budget(1.0, 1e-5), "whole", thresholds=2)
    share = 0.25 * gaussian.left
    for _ in range(2):
        places, _, noise_std, _ = gaussian.frequent("words", np.array([1, 10**9]), share)
        assert places.tolist() == [1]
        assert noise_std == pytest.approx(gaussian.noise_std(share))
    counts, names = ([e for e in ledger.entries() if (e.of is None) == named] for named in (False, True))
    assert [e.event.noise_multiplier for e in counts] == pytest.approx([share**-0.5] * 2)
    assert [e.event.delta for e in names] == pytest.approx([0.05e-5] * 2)
    with pytest.raises(BudgetExceeded):
        gaussian.frequent("words", np.array([1, 10**9]), share)


def test_nothing_is_given_out_beyond_the_whole() -> None:
    gaussian = opened()
    share = 0.6 * gaussian.left
    gaussian.select("pick", np.array([0, 1]), 1, share)
    with pytest.raises(ValueError, match="what is left of 'whole"):
        gaussian.select("pick", np.array([0, 1]), 1, share)
    gaussian.left = 1.0  # whatever this object believes
    with pytest.raises(BudgetExceeded, match="divisible Gaussian"):
        gaussian.select("pick", np.array([0, 1]), 1, share)
    assert len(gaussian.curator.ledger.entries()) == 1


def test_a_fit_that_is_run_again_has_what_was_left(tmp_path: Path) -> None:
    with Ledger(Budget(1.0, 1e-5), path=tmp_path / "ledger") as ledger:
        first = GaussianBudget(Curator(ledger), Budget(1.0, 1e-5), "whole")
        first.select("pick", np.array([0, 1]), 1, 0.25 * first.left)
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert GaussianBudget(Curator(ledger), Budget(1.0, 1e-5), "whole").left == pytest.approx(first.left)


@pytest.mark.parametrize("epsilon", [0.01, 50.0])
def test_budgets_small_and_large(epsilon: float) -> None:
    gaussian = opened(epsilon=epsilon)
    assert gaussian.curator.ledger.epsilon() <= epsilon
    assert gaussian.mu > 0
