"""DP kernel k-means: exact without noise, private by audit, charged before every release, clear about bad input."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refused
from sklearn.datasets import load_digits
from torch import Tensor

from dpgen.metrics.classification import clustering_accuracy
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import gaussian_parts
from dpgen.privacy.noise import PublicRandomness
from dpgen.systems.kmeans.fit import DPKMeans, KMeansPlan
from dpgen.systems.kmeans.plan import SUM_STEP, round_sensitivity

SILENT = KMeansPlan(noise_count=1e-5, noise_sum=1e-9, rounds=6)
LOUD = KMeansPlan(noise_count=20.0, noise_sum=4.0, rounds=3)


def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    return torch.tensor(data.data > 7).to(torch.uint8), torch.tensor(data.target)


def blobs(n: int = 300, seed: int = 0) -> Tensor:
    """Binary records around three prototypes of 12 entries."""
    g = torch.Generator().manual_seed(seed)
    prototypes = torch.tensor([[1] * 4 + [0] * 8, [0] * 4 + [1] * 4 + [0] * 4, [0] * 8 + [1] * 4])
    flips = torch.rand(n, 12, generator=g) < 0.05
    return (prototypes[torch.arange(n) % 3].bool() ^ flips).to(torch.uint8)


def fit(x: Tensor, k: int = 3, plan: KMeansPlan = SILENT, **options: Any) -> DPKMeans:
    fitting = {name: options.pop(name) for name in ("value_range",) if name in options}
    fitting["curator"] = Curator(options.pop("ledger", Ledger(None, delta=1e-5)), source=options.pop("source", None))  # type: ignore[arg-type]
    return DPKMeans(k, plan, **({"gamma": 0.1, "n_features": 16} | options)).fit(x, **fitting)


def lloyd_reference(z: np.ndarray, centres: np.ndarray, rounds: int) -> np.ndarray:
    """Lloyd's algorithm, record by record."""
    for _ in range(rounds):
        owner = np.array([np.argmin([np.sum((row - c) ** 2) for c in centres]) for row in z])
        centres = np.stack([z[owner == c].mean(0) if (owner == c).any() else centres[c] for c in range(len(centres))])
    return centres


# -- what it computes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_without_noise_it_is_lloyds_algorithm(kernel: str, repair: bool) -> None:
    x, plan = blobs(), KMeansPlan(noise_count=1e-5, noise_sum=1e-9, rounds=4, repair=repair)
    found = fit(x, plan=plan, kernel=kernel, init=blobs(3, seed=7), seed=2)
    assert found.space is not None
    order = torch.randperm(3, generator=PublicRandomness(2).spawn("centres").generator)
    start = found.space(blobs(3, seed=7))[order]
    expected = lloyd_reference(found.space(x).numpy(), start.numpy(), 4)
    np.testing.assert_allclose(found.centres_.numpy(), expected, atol=1e-6)
    assert found.counts_.tolist() == torch.bincount(found.predict(x), minlength=3).tolist()


def test_counts_belong_to_what_predict_says() -> None:
    """Under noise too: the counts are of the clusters of the released centres, not of the round before."""
    x = torch.rand(900, 12, generator=torch.Generator().manual_seed(0))
    plan = KMeansPlan(noise_count=0.05, noise_sum=30.0, rounds=1)  # noise of .05 on whole numbers is none
    for seed in range(20):
        found = fit(x, plan=plan, seed=seed)
        assert torch.equal(found.counts_, torch.bincount(found.predict(x), minlength=3).clamp_min(1).float())


def test_it_finds_the_digits_and_noise_costs_accuracy() -> None:
    x, labels = digits()

    def accuracy(multiplier: float) -> float:
        plan = KMeansPlan.from_multiplier(multiplier, rounds=5, n_features=100)
        return clustering_accuracy(labels, fit(x, 10, plan, gamma=0.05, n_features=100, seed=3).predict(x))

    assert accuracy(1e-3) > 0.6
    assert accuracy(1.0) > 0.45
    assert accuracy(300.0) < 0.35  # pure noise: better would mean that noise is missing


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_fewer_records_than_clusters_refuse_nothing(kernel: str, n: int) -> None:
    found = fit(blobs()[:n], plan=LOUD, kernel=kernel)
    assert found.counts_.shape == (3,)
    assert bool(torch.isfinite(found.centres_).all())


def test_empty_clusters_are_reseeded_and_counts_clamped() -> None:
    same = torch.zeros(200, 12, dtype=torch.uint8)
    found = fit(same, plan=LOUD, kernel="linear", norm_bound=1.0)
    assert float(found.counts_.min()) >= 1
    # ten clusters, nine of them far from every record: without splitting they stay empty
    far = torch.ones(10, 12)
    far[0] = 0
    x = blobs(600)
    plans = [KMeansPlan(noise_count=0.1, noise_sum=0.02, rounds=8, repair=repair) for repair in (False, True)]
    kept = [fit(x, 10, plan, kernel="linear", init=far) for plan in plans]
    used = [int((torch.bincount(one.predict(x), minlength=10) > 0).sum()) for one in kept]
    assert used[0] <= 4 < 6 <= used[1]


@pytest.mark.parametrize("init", [None, blobs(9, seed=8)], ids=["random", "public"])
def test_initial_centres_are_public_and_repeatable(init: Tensor | None) -> None:
    """Under noise that hides every cluster centres stay where they are."""
    x, still = blobs(), KMeansPlan(noise_count=1e9, noise_sum=1e-3, rounds=1, repair=False)
    one, two, other = (fit(rows, plan=still, init=init, seed=4).centres_ for rows in (x, x, 1 - x))
    assert torch.equal(one, two)
    assert torch.equal(one, other), "whatever the private records are"
    if init is not None:
        assert all(any(torch.allclose(row, z.float()) for z in fit(x, plan=still, seed=4).space(init)) for row in one)


def test_state_goes_through_tensors_only() -> None:
    for kernel in ("rbf", "linear"):
        found, empty = fit(blobs(), kernel=kernel), DPKMeans(3, SILENT, kernel=kernel)
        state = found.state_dict()
        assert all(isinstance(value, Tensor) for value in state.values())
        empty.load_state_dict(copy.deepcopy(state))
        assert torch.equal(empty.predict(blobs(seed=3)), found.predict(blobs(seed=3)))
        assert torch.equal(empty.counts_, found.counts_)
        with refused("state"):
            DPKMeans(4, SILENT, kernel=kernel).load_state_dict(state)


# -- norm bounds -----------------------------------------------------------------------------------------------------


def test_analytic_bounds() -> None:
    assert fit(blobs()).norm_bound_ == 1.0
    assert fit(blobs(), kernel="linear").norm_bound_ == pytest.approx(12**0.5)
    assert fit(blobs(), kernel="linear", value_range=(-3.0, 1.0)).norm_bound_ == pytest.approx(3 * 12**0.5)
    assert fit(blobs(), norm_bound=0.5).centres_.norm(dim=1).max() <= 0.5 * (1 + 1e-6)


# -- bad input -------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("k", {"k": 0}),
    ("kernel", {"kernel": "poly"}),
    ("norm_bound", {"norm_bound": -1.0}),
    ("gamma", {"gamma": -1.0}),
    ("n_features", {"n_features": 7}),
    ("init", {"init": torch.ones(2, 12)}),
    ("init", {"init": torch.ones(9, 5)}),
    ("init", {"init": 2 * torch.ones(9, 12)}),
    ("x has shape", {"x": torch.ones(12)}),
    ("x has shape", {"x": torch.ones(5, 0)}),
    ("x holds NaN", {"x": torch.full((9, 2), math.nan)}),
    ("value_range", {"x": 2 * torch.ones(9, 2)}),
    ("value_range", {"x": torch.tensor([[0, 255]], dtype=torch.uint8)}),
]


@pytest.mark.parametrize(("name", "options"), REFUSED)
def test_what_is_wrong_is_refused(name: str, options: dict[str, Any]) -> None:
    with refused(name):
        fit(**({"x": blobs()} | options))


def test_predict_refuses_what_fit_would_and_before_it() -> None:
    fitted = fit(blobs())
    for x in (torch.full((2, 12), math.nan), torch.ones(2, 5)):
        with refused("x"):
            fitted.predict(x)
    with refused("not fitted", error=RuntimeError):
        DPKMeans(3, SILENT).state_dict()


# -- plans -------------------------------------------------------------------------------------------------------------


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
