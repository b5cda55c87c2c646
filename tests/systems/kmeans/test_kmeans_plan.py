"""What k-means pays: its plan against the sum of its releases, and how the noise is divided."""

import pytest

from dpgen.privacy.mechanisms import gaussian_parts
from dpgen.systems.kmeans.plan import SUM_STEP, KMeansPlan, round_sensitivity


def test_plan_costs_what_its_event_says() -> None:
    plan = KMeansPlan(noise_count=10.0, noise_sum=2.0, rounds=4)
    mu_squared = 4 * (1 / 10**2 + 1 / 2**2) + 1 / 10**2
    assert plan.multiplier("add_remove") == pytest.approx(mu_squared**-0.5, rel=1e-12)
    parts = gaussian_parts(plan.event("add_remove"))
    assert sum(count / sigma**2 for (_, sigma), count in parts.items()) == pytest.approx(mu_squared, rel=1e-12)
    assert sorted(parts.values()) == [1, 4]


@pytest.mark.parametrize("rounds", [1, 5, 20])
@pytest.mark.parametrize("n_features", [1, 200, 784])
def test_plan_from_multiplier_spends_exactly_that(rounds: int, n_features: int) -> None:
    """A ledger doubles the sensitivity of Gaussians, the mu of a multiplier s is 2 / s; parts by hand."""
    plan = KMeansPlan.from_multiplier(7.3, rounds=rounds, n_features=n_features)
    assert plan.multiplier("add_remove") == pytest.approx(7.3, rel=1e-12)
    assert plan.rounds == rounds
    plan = KMeansPlan.from_multiplier(7.3, rounds=rounds, n_features=n_features, relation="replace_one")
    count, total = plan.noise_count, plan.noise_sum
    mu_squared = rounds * max(4 / total**2, 2 / total**2 + 2 / count**2) + 2 / count**2
    assert mu_squared == pytest.approx((2 / 7.3) ** 2, rel=1e-6)
    assert plan.multiplier("replace_one") == pytest.approx(7.3, rel=1e-6)
    parts = gaussian_parts(plan.event("replace_one"))
    assert sum(4 * times / sigma**2 for (_, sigma), times in parts.items()) == pytest.approx(mu_squared, rel=1e-6)
    assert sum(line.count for line in plan.planned("replace_one")) == rounds + 1


def test_allocation_under_replace_one_is_the_best_split_for_a_centre_of_half_the_bound() -> None:
    def error(ratio: float) -> float:
        plan = KMeansPlan(noise_count=ratio, noise_sum=1.0, rounds=5)
        return (200 + 0.25 * ratio**2) / plan.multiplier("replace_one") ** 2

    plan = KMeansPlan.from_multiplier(1.0, rounds=5, n_features=200, relation="replace_one")
    assert error(plan.noise_count / plan.noise_sum) <= min(error(0.1 * i) for i in range(1, 300)) * (1 + 1e-4)


@pytest.mark.parametrize("ratio", [1e-9, 1e-4, 0.2, 1.0, 300.0, 1e9])
def test_the_weight_is_on_the_grid_and_one_noise_serves_both(ratio: float) -> None:
    plan = KMeansPlan(noise_count=1.0, noise_sum=ratio, rounds=1)
    steps = plan.weight / SUM_STEP
    assert steps == round(steps)
    assert 1 <= steps <= 2**33
    noise = plan.round_multiplier * round_sensitivity(plan.weight)
    if 1e-3 < ratio < 1e3:
        assert noise == pytest.approx(plan.noise_sum, rel=1e-4)
        assert noise / plan.weight == pytest.approx(plan.noise_count, rel=1e-4)
    assert noise >= 0.999 * plan.round_multiplier


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
