"""Clustering accuracy against the maximum over all mappings."""

from itertools import permutations

import pytest
import torch

from dpgen.metrics.classification import clustering_accuracy, contingency_table


def by_enumeration(labels: list[int], clusters: list[int], size: int) -> float:
    """The definition itself: the best of all one-to-one mappings of clusters to (padded) classes."""
    return max(sum(u[c] == y for y, c in zip(labels, clusters)) for u in permutations(range(size))) / len(labels)


def by_majority(labels: list[int], clusters: list[int]) -> float:
    """Purity: the mapping that is not one to one, which flatters many clusters."""
    return sum(
        max(sum(y == cls and c == cluster for y, c in zip(labels, clusters)) for cls in set(labels))
        for cluster in set(clusters)
    ) / len(labels)


@pytest.mark.parametrize(("n_classes", "k"), [(5, 5), (3, 5), (5, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_enumeration(n_classes: int, k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, n_classes, (40,), generator=generator)
    clusters = torch.where(
        torch.rand(40, generator=generator) < 0.6, labels % k, torch.randint(0, k, (40,), generator=generator)
    )
    expected = by_enumeration(labels.tolist(), clusters.tolist(), max(n_classes, k))
    assert clustering_accuracy(labels, clusters) == pytest.approx(expected, abs=1e-12)


def test_many_small_clusters_are_not_rewarded() -> None:
    labels, clusters = torch.arange(40) % 4, torch.arange(40)
    assert by_majority(labels.tolist(), clusters.tolist()) == 1
    assert clustering_accuracy(labels, clusters) == 0.1


def test_names_of_clusters_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 10, (500,), generator=generator)
    renamed = torch.randperm(10, generator=generator)[labels]
    assert clustering_accuracy(labels, renamed) == 1
    assert clustering_accuracy(labels.int(), renamed.to(torch.uint8)) == 1


def test_contingency_table() -> None:
    table = contingency_table(torch.tensor([0, 0, 2, 2, 2]), torch.tensor([1, 1, 1, 3, 0]))
    assert table.tolist() == [[0, 2, 0, 0], [0, 0, 0, 0], [1, 1, 0, 1]]


@pytest.mark.parametrize(
    ("labels", "clusters", "message"),
    [
        ([], [], r"labels has shape \(0,\): it must be \(n,\) with n >= 1"),
        ([[1]], [1], r"labels has shape \(1, 1\)"),
        ([1, 2], [1], "clusters has length 1, labels has length 2"),
        ([1, 2], [1, -2], "clusters has -2: it must be >= 0"),
        ([1, 2], [1.0, 2.0], "clusters has dtype torch.float32: it must be an integer type"),
    ],
)
def test_bad_input(labels: list, clusters: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        clustering_accuracy(torch.tensor(labels), torch.tensor(clusters))
