"""Moments of classes and sub-clusters, cleaned up."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import clipped
from dpgen.privacy.ledger import Ledger
from dpgen.systems.gaussian.components import (
    Centres,
    Components,
    pooled,
    release_centres,
    release_components,
    release_moments,
    shrunken,
)
from dpgen.systems.gaussian.plan import FULL, SINGLE
from dpgen.systems.gaussian.sums import RecordStream, Spending


def stream(n: int = 6000) -> RecordStream:
    """Class 0: two tight groups on the first axis; class 1: one round group."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 2
    side = torch.where(torch.arange(n) % 4 < 2, 0.5, -0.5)
    x = 0.08 * torch.randn(n, 3, generator=generator)
    x[:, 0] += torch.where(labels == 0, side, 0.0)
    return RecordStream(x, labels)


def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    assert labels is not None
    return x, labels


def how(scale: float, shares: dict[str, float]) -> dict[str, Any]:
    return {"spending": Spending(Curator(Ledger(None, delta=1e-5)), scale, shares)}


def fitted(shares: dict[str, float], scale: float = 0.5, k: int = 2, **options: Any) -> Components:
    chosen: dict[str, Any] = {"subclusters": 1, "cut": 0.6} | options
    generator = torch.Generator().manual_seed(1)
    return release_components(stream(), encode, k=k, m=3, generator=generator, **chosen, **how(scale, shares))


def test_without_noise_moments_are_exact() -> None:
    moments = release_moments(stream(), encode, k=2, m=3, name="components", **how(1e-5, SINGLE))
    x = stream().x[0::2].double()
    assert torch.allclose(moments.means[0], x.mean(0), atol=1e-4)
    assert torch.allclose(moments.covariances[0], x.T.cov(correction=0), atol=1e-4)
    whole = stream().x.double()
    assert torch.allclose(pooled(moments).covariances[0], whole.T.cov(correction=0), atol=1e-4)


def test_subclusters_keep_mean_and_spread_of_their_class() -> None:
    found = fitted(FULL, scale=0.2, subclusters=2)
    own = found.classes == 0
    weights = found.mixture.weights[own] / found.mixture.weights[own].sum()
    mean = weights @ found.mixture.means[own]
    offset = found.mixture.means[own] - mean
    spread = torch.einsum("k,kij->ij", weights, found.mixture.covariances()[own]) + (offset.T * weights) @ offset
    x = stream().x[0::2].double()
    assert torch.allclose(mean, x.mean(0), atol=0.03)
    assert float(spread[0, 0]) == pytest.approx(float(x[:, 0].var()), rel=0.1)
    assert float(found.mixture.weights.sum()) == pytest.approx(1.0)


def test_a_class_without_records_takes_the_gaussian_of_all() -> None:
    found = fitted(SINGLE, k=3)
    assert found.pooled == (2,)
    assert sorted(found.classes.tolist()) == [0, 1, 2]
    assert float(found.mixture.weights.min()) > 0


def test_shrinkage_goes_as_far_as_the_noise() -> None:
    truth = torch.diag(torch.tensor([1.0, 0.5, 0.2]).double())
    assert shrunken(truth * 3, truth, 1e-6).eigenvalues.tolist() == pytest.approx([3.0, 1.5, 0.6], rel=1e-3)
    noise = torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).double()
    assert shrunken(truth + (noise + noise.T) / 2, truth, 50.0).eigenvalues.tolist() == pytest.approx([1.0, 0.5, 0.2])
    assert float(shrunken(-truth, truth, 1e-6).eigenvalues.min()) > 0


# -- k-means inside classes -----------------------------------------------------------------------------------------------


def test_assignment_is_to_the_nearest_centre_of_the_own_class() -> None:
    generator = torch.Generator().manual_seed(0)
    centres, u = torch.randn(3, 4, 2, generator=generator).double(), torch.randn(50, 2, generator=generator)
    classes = torch.arange(50) % 3
    slow = [c * 4 + int((centres[c] - x).norm(dim=1).argmin()) for x, c in zip(u.double(), classes.tolist())]
    assert Centres(centres, torch.zeros(3, 4), 0.0).assign(u, classes).tolist() == slow


def test_rounds_find_clusters_and_an_empty_class_stays_where_it_was() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([[0.5, 0.5], [-0.5, 0.5]])
    u = truth[torch.arange(2000) % 2] + 0.05 * torch.randn(2000, 2, generator=generator)
    start = torch.tensor([[[0.2, 0.1], [-0.2, 0.1]], [[0.0, 0.3], [0.3, 0.0]]]).double()
    ledger = Ledger(None, delta=1e-5)
    found = release_centres(
        RecordStream(u, torch.zeros(2000, dtype=torch.int64)),
        lambda x, labels: (x, labels if labels is not None else torch.zeros(len(x)).long()),
        start,
        spending=Spending(Curator(ledger), 2.0, {"clusters": 1.0}),
        rounds=3,
    )
    assert torch.allclose(found.centres[0].float(), truth, atol=0.08)
    assert float((found.centres[1] - start[1]).abs().max()) < 1.0
    assert torch.allclose(found.counts[0], torch.tensor([1000.0, 1000.0]).double(), atol=60.0)
    assert sum(entry.count for entry in ledger.entries()) == 3


def test_ties_fall_the_same_way_in_any_batch() -> None:
    """Otherwise one record less could move many others from one cluster to another."""
    generator = torch.Generator().manual_seed(0)
    u = clipped(torch.randn(300, 40, generator=generator))
    near = torch.randn(40, generator=generator).double()
    centres = Centres(torch.stack([near, -near, near.roll(1), near + 1e-12, near - 1e-12])[None], torch.zeros(1, 5), 0.0)
    u = torch.cat([u, torch.zeros(5, 40), (u - u.flip(0))])
    whole = centres.assign(u, torch.zeros(len(u)).long())
    assert not bool((whole >= 3).any()), "on the grid they are the first centre: a tie, which the first one wins"
    for size in (1, 3, 7):
        parts = [centres.assign(part, torch.zeros(len(part)).long()) for part in u.split(size)]
        assert torch.equal(torch.cat(parts), whole)
