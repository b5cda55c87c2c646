"""Partitions: sizes are charged and noisy, assignment is a function of one record and released values."""

from typing import Any

import pytest
import torch
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from fixed_source import FixedKeySource
from torch import Tensor

from dpgen.privacy.accountants import epsilon
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.systems.dp_sgd.partition import LabelPartition, Partition
from dpgen.systems.dpgm.fit import KMeansPartition
from dpgen.systems.kmeans.fit import DPKMeans, KMeansPlan

N, D, K = 60, 8, 3
LABELS = torch.arange(N) % 2  # label 2 has no record


def x() -> Tensor:
    return (torch.rand(N, D, generator=torch.Generator().manual_seed(0)) < 0.5).to(torch.uint8)


def label_partition(noise: float = 5.0) -> LabelPartition:
    return LabelPartition(K, noise_count=noise)


def kmeans_partition() -> KMeansPartition:
    plan = KMeansPlan(noise_count=5.0, noise_sum=1.0, rounds=2)
    return KMeansPartition(DPKMeans(K, plan, gamma=0.1, n_features=8))


def ledger() -> Ledger:
    return Ledger(None, delta=1e-5)


@pytest.mark.parametrize("make", [label_partition, kmeans_partition])
def test_the_contract(make: type[LabelPartition] | type[KMeansPartition]) -> None:
    partition: Partition = make()  # type: ignore[call-arg]
    book = ledger()
    partition.fit(x(), LABELS, curator=Curator(book))
    assert book.epsilon() > 0
    cluster = partition.assign(x(), LABELS)
    assert cluster.shape == (N,)
    assert cluster.dtype == torch.int64
    assert 0 <= int(cluster.min()) <= int(cluster.max()) < K
    assert partition.counts.shape == (K,)
    alone = torch.cat([partition.assign(x()[i : i + 1], LABELS[i : i + 1]) for i in range(N)])
    assert torch.equal(cluster, alone), "no record's cluster depends on another record"

    restored: Partition = make()  # type: ignore[call-arg]
    restored.load_state_dict(partition.state_dict())
    assert torch.equal(restored.counts, partition.counts)
    assert torch.equal(restored.assign(x(), LABELS), cluster)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("make", [label_partition, kmeans_partition])
def test_what_is_planned_is_what_is_charged(make: Any, relation: Any) -> None:
    """Under both relations: a declared plan is the guarantee, and the fit takes nothing beyond it."""
    partition: Partition = make()
    book = Ledger(None, delta=1e-5, relation=relation)
    curator = Curator(book)
    curator.declare(*partition.planned(relation))
    declared = book.epsilon()
    assert declared == pytest.approx(epsilon(partition_event(partition, relation), 1e-5, relation=relation), rel=1e-3)
    partition.fit(x(), LABELS, curator=curator)
    assert book.epsilon() == declared
    assert book.spent() == pytest.approx(declared, rel=1e-3)


def partition_event(partition: Partition, relation: Any) -> Any:
    return ComposedDpEvent([SelfComposedDpEvent(line.event, line.count) for line in partition.planned(relation)])


@pytest.mark.parametrize("make", [label_partition, kmeans_partition])
def test_nothing_is_released_without_budget(make: type[LabelPartition] | type[KMeansPartition]) -> None:
    partition: Partition = make()  # type: ignore[call-arg]
    book = Ledger(Budget(0.01, 1e-5))
    with pytest.raises(BudgetExceeded, match="would bring it to"):
        partition.fit(x(), LABELS, curator=Curator(book))
    assert book.entries() == []
    assert bool((partition.counts == 0).all())


def spread(noise: float) -> tuple[float, float]:
    """Mean error and standard deviation of 1200 released sizes."""
    source, errors = FixedKeySource(0), []
    for _ in range(400):
        partition = label_partition(noise)
        partition.fit(x(), LABELS, curator=Curator(ledger(), source=source))
        errors.append(partition.counts - torch.tensor([N / 2, N / 2, 0]))
    values = torch.stack(errors).double()
    return float(values.mean()), float(values.std())


def test_sizes_have_the_noise_that_is_charged() -> None:
    mean, std = spread(5.0)
    assert abs(mean) < 0.7
    assert 4.6 < std < 5.4
    assert spread(4.0)[1] < 4.6, "a twin with .8 of the noise is noticed"


def test_label_sizes_are_one_integer_release() -> None:
    partition, book = label_partition(), ledger()
    partition.fit(x(), LABELS, curator=Curator(book))
    assert torch.equal(partition.counts, partition.counts.round())
    [entry] = book.entries()
    assert (entry.note, entry.count, entry.event) == ("cluster sizes", 1, gaussian_event(5.0))


def test_one_cluster_ignores_labels() -> None:
    partition = LabelPartition(1, noise_count=5.0, labelled=False)
    assert partition.assign(x(), None).unique().tolist() == [0]
    assert partition.assign(x(), LABELS).unique().tolist() == [0]


def test_labels_must_be_there_and_in_range() -> None:
    with pytest.raises(ValueError, match="needs labelled records; use clusters='kmeans' or 'none'"):
        label_partition().assign(x(), None)
    for wrong in (-1, K):
        labels = LABELS.clone()
        labels[7] = wrong
        with pytest.raises(ValueError, match=r"labels must be in \[0, 3\)"):
            label_partition().assign(x(), labels)
    assert label_partition().assign(x()[:0], LABELS[:0]).numel() == 0
