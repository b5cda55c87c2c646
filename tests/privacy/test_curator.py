"""The curator: what is charged is what the noise that comes out pays for."""

import math
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from fixed_source import FixedKeySource
from scipy.special import expit, ndtri
from scipy.stats import norm
from torch import Tensor

from dpgen.privacy.accountants import epsilon
from dpgen.privacy.curator import Curator, GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.mechanisms import ApproximateDpEvent, Relation, Secrets, pure_event, subsampled_gaussian_event
from dpgen.privacy.noise import PublicRandomness, prefix_sensitivity
from dpgen.privacy.sampling import PoissonMask
from dpgen.privacy.selection import ExponentialMechanism, bounded_range


def curator(relation: Any = "add_remove", *, budget: float = 100.0, delta: float = 1e-6) -> Curator:
    return Curator(Ledger(Budget(budget, delta), relation=relation), source=FixedKeySource())


def charged(curator: Curator) -> list[tuple[Any, int]]:
    return [(entry.event, entry.count) for entry in curator.ledger.entries()]


def whole(values: Any, *bounds: Any, **more: Any) -> BoundedSum:
    return BoundedSum(torch.tensor(values), *bounds, **more)


# -- Gaussian ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "step"), [(torch.int64, 1.0), (torch.int64, 2.0**-20), (torch.float64, 1.0), (torch.float32, 1.0)]
)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_gaussian_noise_has_the_deviation_that_the_charge_pays_for(relation: str, dtype: torch.dtype, step: float) -> None:
    one = curator(relation)
    sums = BoundedSum(torch.zeros(20_000, dtype=dtype), 3.0, "grams", replaced=4.0, step=step)
    noise = one.gaussian("weights", sums, 5.0)
    assert noise.dtype == (torch.float64 if step < 1 else dtype)
    assert torch.equal(noise / step, (noise / step).round()) or dtype != torch.int64
    assert float(noise.double().std()) == pytest.approx(15.0, rel=0.02)
    ((event, count),) = charged(one)
    # the ledger doubles a Gaussian's sensitivity under replace-one: std 15 over a change of 4 is a multiplier of 15 / 4
    assert count == 1
    assert event.noise_multiplier == pytest.approx(5.0 if relation == "add_remove" else 2 * 15.0 / 4.0)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda one: one.gaussian("sums", whole([1], 1.0), 0.01), "would bring it to"),
        (lambda one: one.gaussian("sums", whole([math.nan], 1.0), 50.0), "NaN or infinite"),
        (lambda one: one.gaussian("sums", whole([math.inf], 1.0), 50.0), "NaN or infinite"),
        (lambda one: one.gaussian("sums", whole([1], 1.0, norm="l1"), 50.0), "l2"),
        (lambda one: one.gaussian("sums", torch.zeros(3), 50.0), "BoundedSum"),
        (lambda one: one.gaussian("sums", whole([1], 1.0), 0.0), "noise_multiplier"),
        (lambda one: one.laplace("counts", whole([1], 1.0), 0.1), "l1"),
        (lambda one: one.laplace("counts", whole([1.0], 1.0, norm="l1"), 0.1), "whole numbers"),
        (lambda one: one.release("coins", Coin(1), 0), "count"),
        (lambda one: one.prefix_sums("prefix sums", whole([1, 2], 2.0), 1.0), "counts"),
        (lambda one: one.prefix_sums("prefix sums", whole([1.0, 1.0], 1.0), 1.0), "counts"),
        (lambda one: one.prefix_sums("prefix sums", whole([1, 2], 1.0, step=0.5), 1.0), "counts"),
        (lambda one: one.prefix_sums("prefix sums", whole([[1]], 1.0), 1.0), "counts"),
        (pickle.dumps, "pickled"),
        (lambda one: Curator(one.ledger, source=PublicRandomness(0)), "SecureSource"),
    ],
)
def test_what_is_refused_is_neither_charged_nor_drawn(act: Callable[[Curator], object], said: str) -> None:
    one = curator()
    with pytest.raises((ValueError, TypeError, BudgetExceeded), match=said):
        act(one)
    assert charged(one) == []


@pytest.mark.parametrize(
    "act",
    [
        lambda one: one.gaussian("sums", whole([1], 1.0), 1.0),
        lambda one: one.laplace("counts", whole([1], 1.0, norm="l1"), 1.0),
        lambda one: one.prefix_sums("prefix sums", whole([1, 2], 1.0), 1.0),
        lambda one: one.release("coins", Coin(1)),
    ],
)
def test_nothing_is_drawn_where_the_budget_refuses(act: Callable[[Curator], object], monkeypatch: pytest.MonkeyPatch) -> None:
    one = curator(budget=0.1)
    monkeypatch.setattr(FixedKeySource, "stream", lambda self: pytest.fail("drew before the ledger agreed"))
    with pytest.raises(BudgetExceeded):
        act(one)


# -- Laplace and mechanisms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1.0, 0.125])
@pytest.mark.parametrize(("relation", "l1"), [("add_remove", 2.0), ("replace_one", 3.0)])
def test_laplace_noise_has_the_scale_of_the_relation(relation: str, l1: float, step: float) -> None:
    one, values = curator(relation), torch.zeros(40_000, dtype=torch.int64)
    noise = one.laplace("counts", BoundedSum(values, 2.0, replaced=3.0, norm="l1", step=step), 0.1)
    assert float(noise.double().abs().mean()) == pytest.approx(l1 / 0.1, rel=0.03)
    assert charged(one) == [(pure_event(0.1), 1)]


class Coin:
    """Randomised response on one bit: epsilon log 3."""

    event: ApproximateDpEvent = pure_event(math.log(3.0))

    def __init__(self, bit: int) -> None:
        self.bit = bit

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        lies = torch.from_numpy(secrets.words(count, bits=2).astype("int64")) == 0
        return (self.bit + lies.long()) % 2


def test_a_mechanism_is_paid_for_every_draw() -> None:
    one = curator()
    drawn = one.release("coins", Coin(1), 7)
    assert len(drawn) == 7
    assert charged(one) == [(Coin.event, 7)]


# -- correlated noise, and a budget of one's own ------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_prefix_sums_have_the_noise_that_the_charge_pays_for(relation: str) -> None:
    one = curator(relation)
    cells = whole([7] * 40, 1.0, replaced=2.0**0.5)
    runs = np.stack([one.prefix_sums("prefix sums", cells, 5.0)[0] for _ in range(500)])
    std = 5.0 * prefix_sensitivity(40, relation)  # type: ignore[arg-type]
    assert float(runs[:, 0].std()) == pytest.approx(std, rel=0.15)  # the first sum is one cell with one normal
    _, variances = one.prefix_sums("prefix sums", cells, 5.0)
    assert variances[0] == pytest.approx(std**2)
    assert float(runs[:, 39].std()) == pytest.approx(variances[39] ** 0.5, rel=0.15)
    assert {event.noise_multiplier for event, _ in charged(one)} == {5.0 if relation == "add_remove" else 10.0}


# -- one Poisson draw --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1.0, 0.125])
def test_parts_of_a_draw_are_one_event_at_the_rate_of_the_mask(step: float) -> None:
    one = curator()
    assert one.draw("steps", PoissonMask(1.0), {"gradients": 0.01}) is None, "the budget refuses it"
    draw = one.draw("steps", PoissonMask(0.25), {"norms": 1.0, "gradients": 1.0})
    assert draw is not None
    with draw:
        counts = draw.gaussian("norms", whole([0] * 10_000, 3.0, step=step))
        sums = draw.gaussian("gradients", BoundedSum(torch.zeros(10_000), 2.0))
    assert (float(counts.double().std()), float(sums.std())) == (pytest.approx(3.0, rel=0.05), pytest.approx(2.0, rel=0.05))
    assert charged(one) == [(PoissonSampledDpEvent(0.25, GaussianDpEvent(0.5**0.5)), 1)]


def test_a_draw_serves_once_and_releases_exactly_what_it_declared() -> None:
    one, mask = curator(), PoissonMask(0.5)
    draw = one.draw("steps", mask, {"norms": 4.0, "gradients": 4.0})
    assert draw is not None
    with pytest.raises(RuntimeError, match="has been used"):
        one.draw("steps", mask, {"norms": 4.0})
    with pytest.raises(ValueError, match="'losses' is not declared"):
        draw.gaussian("losses", whole([0], 1.0))
    draw.gaussian("norms", whole([0], 1.0))
    with pytest.raises(ValueError, match="'norms' is not declared or has been released; open: gradients"):
        draw.gaussian("norms", whole([0], 1.0))
    with pytest.raises(RuntimeError, match="declared and not released: gradients"), draw:
        pass
    assert len(charged(one)) == 1


def apart(rate: float, multipliers: tuple[float, float], steps: int) -> float:
    """Broken twin of a draw: its parts charged one by one, as if each had a Poisson draw of its own."""
    parts = [SelfComposedDpEvent(subsampled_gaussian_event(rate, m), steps) for m in multipliers]
    return epsilon(ComposedDpEvent(parts), 1e-5)


def test_charging_the_parts_of_a_step_apart_would_state_too_little() -> None:
    """The published mistake: 2.58 stated where 4.48 is true (q .01, T 1000, both multipliers 1)."""
    one = curator(budget=1e6, delta=1e-5)
    draw = one.draw("steps", PoissonMask(0.01), {"norms": 1.0, "gradients": 1.0})
    assert draw is not None
    ((event, _),) = charged(one)
    stated = epsilon(SelfComposedDpEvent(event, 1000), 1e-5)
    assert stated == pytest.approx(4.48, abs=0.01)
    assert apart(0.01, (1.0, 1.0), 1000) == pytest.approx(2.58, abs=0.01)


# -- plans -------------------------------------------------------------------------------------------------------------


# -- parts of a Gaussian -----------------------------------------------------------------------------------------------


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
