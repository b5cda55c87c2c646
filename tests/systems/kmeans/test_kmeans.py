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
from dpgen.privacy.noise import PublicRandomness
from dpgen.systems.kmeans.fit import DPKMeans, KMeansPlan

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
