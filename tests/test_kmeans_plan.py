"""What k-means pays: its plan against the sum of its releases, and how the noise is divided."""

import math

import pytest

from dpgen.privacy.mechanisms import gaussian_parts
from dpgen.systems.clusters.kmeans_plan import KMeansPlan


def test_plan_costs_what_its_event_says() -> None:
    plan = KMeansPlan(noise_count=10.0, noise_sum=2.0, rounds=4)
    mu_squared = 4 * (1 / 10**2 + 1 / 2**2) + 1 / 10**2
    assert plan.noise_multiplier == pytest.approx(mu_squared**-0.5, rel=1e-12)
    parts = gaussian_parts(plan.event)
    assert sum(count / sigma**2 for (_, sigma), count in parts.items()) == pytest.approx(mu_squared, rel=1e-12)
    assert sorted(parts.values()) == [1, 4]


@pytest.mark.parametrize("rounds", [1, 5, 20])
@pytest.mark.parametrize("n_features", [1, 200, 784])
def test_plan_from_multiplier_spends_exactly_that(rounds: int, n_features: int) -> None:
    plan = KMeansPlan.from_multiplier(7.3, rounds=rounds, n_features=n_features)
    assert plan.noise_multiplier == pytest.approx(7.3, rel=1e-12)
    assert plan.rounds == rounds


def test_allocation_is_the_best_split_for_a_centre_of_half_the_bound() -> None:
    def error(ratio: float) -> float:
        """d sigma_s^2 + |c|^2 sigma_n^2 at mu = 1, one round."""
        noise_sum = (1 + ratio**-2) ** 0.5
        return 200 * noise_sum**2 + 0.25 * (ratio * noise_sum) ** 2

    plan = KMeansPlan.from_multiplier(1.0, rounds=1, n_features=200)
    ratio = plan.noise_count / plan.noise_sum
    assert ratio == pytest.approx(5.32, abs=0.01)
    assert error(ratio) <= min(error(0.1 * i) for i in range(1, 300)) * (1 + 1e-4)
    assert error(1.0) / error(ratio) == pytest.approx(1.87, abs=0.02)  # the published equal split


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_count": 0.0}, "noise_count is 0.0; it must be a finite number > 0"),
        ({"noise_sum": math.inf}, "noise_sum is inf; it must be a finite number > 0"),
        ({"noise_sum": math.nan}, "noise_sum is nan; it must be a finite number > 0"),
        ({"rounds": 0}, "rounds is 0; it must be a whole number >= 1"),
        ({"rounds": 2.5}, "rounds is 2.5; it must be a whole number >= 1"),
    ],
)
def test_plan_refuses(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KMeansPlan(**({"noise_count": 1.0, "noise_sum": 1.0, "rounds": 3} | change))


def test_plan_from_multiplier_refuses() -> None:
    with pytest.raises(ValueError, match="noise_multiplier is -1; it must be a finite number > 0"):
        KMeansPlan.from_multiplier(-1, rounds=3, n_features=10)
    with pytest.raises(ValueError, match="n_features is 0; it must be a whole number >= 1"):
        KMeansPlan.from_multiplier(1.0, rounds=3, n_features=0)
