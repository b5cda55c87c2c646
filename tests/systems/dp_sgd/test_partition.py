"""Clusters and their means: what they cost, how near they are, and that a record is assigned by itself alone."""

import math
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from fixed_source import FixedKeySource
from refusals import refused
from torch import Tensor

from dpgen import Runtime
from dpgen.callbacks import PrivacyAccountant
from dpgen.privacy.accountants import epsilon
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import shared_sizes, shares
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.privacy.sampling import PoissonLoader
from dpgen.systems.dp_sgd.partition import MEANS, LabelPartition, Partition, estimated_means, release_means, sign_sums
from dpgen.systems.dpgm.fit import DPGM, fit
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan
from dpgen.systems.kmeans.fit import DPKMeans, KMeansPlan

N, D, K = 60, 8, 3
LABELS = torch.arange(N) % 2  # label 2 has no record


def x() -> Tensor:
    return (torch.rand(N, D, generator=torch.Generator().manual_seed(0)) < 0.5).to(torch.uint8)


def label_partition(noise: float = 5.0) -> LabelPartition:
    return LabelPartition(K, noise_count=noise)


def kmeans_partition() -> DPKMeans:
    plan = KMeansPlan(noise_count=5.0, noise_sum=1.0, rounds=2)
    return DPKMeans(K, plan, gamma=0.1, n_features=8)


def ledger() -> Ledger:
    return Ledger(None, delta=1e-5)


@pytest.mark.parametrize("make", [label_partition, kmeans_partition])
def test_the_contract(make: type[LabelPartition] | type[DPKMeans]) -> None:
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
@pytest.mark.parametrize(("make", "clusters"), [(label_partition, "labels"), (kmeans_partition, "kmeans")])
def test_what_is_planned_is_what_is_charged(make: Any, clusters: Any, relation: Any) -> None:
    """Under both relations: a declared plan is the guarantee, and the fit takes nothing beyond it."""
    plan = DPGMPlan(sigma_count=5.0, sigma_sum=1.0, noise_multiplier=1.0, kmeans_rounds=2, relation=relation)
    lines = plan.clusters(DPGMConfig(clusters=clusters, k=K))
    book = Ledger(None, delta=1e-5, relation=relation)
    curator = Curator(book)
    curator.declare(*lines)
    declared = book.epsilon()
    event = ComposedDpEvent([SelfComposedDpEvent(line.event, line.count) for line in lines])
    assert declared == pytest.approx(epsilon(event, 1e-5, relation=relation), rel=1e-3)
    make().fit(x(), LABELS, curator=curator)
    assert book.epsilon() == declared
    assert book.spent() == pytest.approx(declared, rel=1e-3)


@pytest.mark.parametrize("make", [label_partition, kmeans_partition])
def test_nothing_is_released_without_budget(make: type[LabelPartition] | type[DPKMeans]) -> None:
    partition: Partition = make()  # type: ignore[call-arg]
    book = Ledger(Budget(0.01, 1e-5))
    with refused("budget", error=BudgetExceeded):
        partition.fit(x(), LABELS, curator=Curator(book))
    assert book.entries() == []


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


def test_labels_must_be_there_and_in_range() -> None:
    with refused("clusters"):
        label_partition().assign(x(), None)
    for wrong in (-1, K):
        labels = LABELS.clone()
        labels[7] = wrong
        with refused("labels"):
            label_partition().assign(x(), labels)
    assert label_partition().assign(x()[:0], LABELS[:0]).numel() == 0


pytestmark = pytest.mark.usefixtures("quiet")

SMALL: dict[str, Any] = {"clusters": "labels", "hidden": 3}


def fitted(directory: Path, **options: Any) -> tuple[Any, Ledger]:
    plan = DPGMPlan(epsilon=4.0, steps=3, sampling_rate=0.5)
    ledger = plan.open_ledger()
    runtime = Runtime(run_dir=directory, accelerator="cpu", progress_bar=False)
    config = DPGMConfig(**SMALL | options)
    return fit(tiny.records(), plan=plan, config=config, curator=Curator(ledger), runtime=runtime), ledger


@pytest.mark.parametrize("component", ["vae", "rbm"])
def test_the_means_are_one_gaussian_of_the_declared_plan(component: str, tmp_path: Path) -> None:
    model, ledger = fitted(tmp_path, component=component)
    assert [entry.note for entry in ledger.entries()] == ["cluster sizes", MEANS, "training steps"]
    plan = DPGMPlan(epsilon=4.0, steps=3, sampling_rate=0.5).calibrated(DPGMConfig(**SMALL, k=2))
    assert ledger.entries()[1].event == gaussian_event(plan.sigma_means or 0.0)
    assert ledger.epsilon() == pytest.approx(epsilon(plan.event(DPGMConfig(**SMALL, k=2)), 1e-5), rel=1e-3)
    assert MEANS in {mechanism["note"] for mechanism in model.statement.mechanisms}
    centre = model.bank.state_dict()["centre"]
    assert float(centre[0].mean()) > 0.5 > float(centre[1].mean())  # class 0 is mostly ones


def test_their_share_is_of_the_gaussian_that_all_of_epsilon_pays_for() -> None:
    plans = [DPGMPlan(epsilon=2.0, means_share=share).calibrated(DPGMConfig(**SMALL, k=2)) for share in (0.1, 0.4)]
    assert plans[0].sigma_means == pytest.approx(2.0 * (plans[1].sigma_means or 0.0))
    assert epsilon(gaussian_event((plans[0].sigma_means or 0.0) * math.sqrt(0.1)), 1e-5) == pytest.approx(2.0, rel=1e-3)
    assert (plans[0].noise_multiplier or 0.0) < (plans[1].noise_multiplier or 0.0)


@pytest.mark.parametrize("component", ["vae", "rbm"])
def test_as_published_no_means_are_paid_for(component: str, tmp_path: Path) -> None:
    model, ledger = fitted(tmp_path, component=component, centred=False)
    assert MEANS not in {entry.note for entry in ledger.entries()}
    assert "centre" not in model.bank.state_dict()


def test_released_means_are_near_the_true_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(2, 30, generator=generator)
    labels = torch.arange(20_000) % 2
    x = torch.bernoulli(p[labels], generator=generator)
    partition, curator = LabelPartition(2, noise_count=1.0), Curator(Ledger(None, delta=1e-5))
    partition.fit(x, labels, curator=curator)
    means = release_means(partition, x, labels, curator=curator, noise_multiplier=2.0, categories=2)
    assert means.shape == (2, 32)
    assert float((means[:, :30] - p).abs().max()) < 0.03
    assert float(means[:, 30:].diagonal().min()) > 0.98


def test_columns_that_only_noise_tells_apart_get_one_mean() -> None:
    """Shrinkage: the error of columns whose clusters do not differ falls towards that of the pooled mean."""
    generator = torch.Generator().manual_seed(0)
    signs = -800.0 + 200.0 * torch.randn(10, 500, generator=generator)  # means .1, noise .1
    means = estimated_means(signs, torch.full((10,), 1000.0), 200.0)
    plain = (signs / 1000 + 1) / 2
    assert float((means - 0.1).square().mean()) < 0.5 * float((plain - 0.1).square().mean())
    assert 0.02 * 10**-0.5 * (1 - 1e-6) <= float(means.min()) < 0.1  # a fifth of what is left of the noise, at least


def test_whatever_a_record_holds_it_adds_signs() -> None:
    x = torch.tensor([[float("nan"), 1e30, -5.0, 0.4]])
    assert sign_sums(x, torch.tensor([1]), 2).values.tolist() == [[0, 0, 0, 0], [-1, 1, -1, -1]]
    assert sign_sums(x, torch.tensor([1]), 2).sensitivity == 2.0


def test_pixels_are_added_up_around_their_middle() -> None:
    """Black is -1 and white 1: an image moves the sums by no more than its bits would."""
    x = torch.tensor([[0, 255, 51, 204]], dtype=torch.uint8)
    sums = sign_sums(x, torch.tensor([1]), 2, white=255)
    torch.testing.assert_close(sums.values * sums.step, torch.tensor([[0, 0, 0, 0], [-1, 1, -0.6, 0.6]]))
    assert sums.sensitivity == 2.0
    with refused("white"):
        sign_sums(x, torch.tensor([0]), 1, share=torch.ones(1), white=255)


def test_momentum_follows_gradients_in_units_of_the_clip_bound() -> None:
    """The rate of a bank is for gradients of norm at most 1, whatever bound they were clipped at; Adam has the bounds."""
    x, labels = tiny.records().x, tiny.records().labels
    factors = {}
    for optimizer in ("auto", "adam"):
        for bound in (1.0, 7.0):
            config = DPGMConfig(**SMALL, component="rbm", clipping="fixed", clip_bound=bound, optimizer=optimizer)  # type: ignore[arg-type]
            module = DPGM(d=tiny.D, plan=DPGMPlan(steps=1, sampling_rate=0.5), config=config, n_classes=2)
            trainer = tiny.trainer(PrivacyAccountant(Curator(module.plan.open_ledger())), steps=1)
            trainer.fit(module, PoissonLoader(x, labels, sampling_rate=0.5))
            factors[optimizer, bound] = float((module.averaging() * module.expected_sizes())[0])
    assert factors == pytest.approx({("auto", 1.0): 1.0, ("auto", 7.0): 1.0, ("adam", 1.0): 1.0, ("adam", 7.0): 7.0})


def test_labels_among_the_columns_are_signs_like_others() -> None:
    sums = sign_sums(torch.tensor([[1, 0, 0]]), torch.tensor([1]), 2, labels=torch.tensor([2]), categories=4)
    assert sums.values.tolist() == [[0] * 7, [1, -1, -1, -1, -1, 1, -1]]
    assert float(sums.values.double().norm()) == pytest.approx(sums.sensitivity)


def test_sizes_count_people_where_these_have_several_records() -> None:
    people, cluster = torch.arange(9000) // 3, torch.arange(9000) % 2
    partition = LabelPartition(2, noise_count=1.0)
    partition.fit(torch.zeros(9000, 1), cluster, curator=Curator(Ledger(None, delta=1e-5, rows=3)), share=shares(people))
    assert partition.counts.tolist() == pytest.approx([1500.0, 1500.0], abs=10.0)


def test_all_rows_of_a_person_move_sizes_and_signs_as_one() -> None:
    """Ann has three rows in two clusters, Bob one: without her sums of signs differ by her average, of norm sqrt(d) at most."""
    x = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 0], [0, 1, 1]], dtype=torch.uint8)
    people, cluster = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 1, 1])
    share = shares(people)
    sizes, signs = shared_sizes(cluster, 2, share), sign_sums(x, cluster, 2, share=share)
    torch.testing.assert_close(sizes.values * sizes.step, torch.tensor([1 / 3, 5 / 3]), atol=1e-5, rtol=0)
    bob = sign_sums(x[3:], cluster[3:], 2, share=share[3:])
    moved = (signs.values - bob.values) * signs.step
    torch.testing.assert_close(moved.sum(0), torch.tensor([1.0, 1.0, -1.0]), atol=1e-5, rtol=0)
    assert float(moved.double().norm()) <= signs.sensitivity == math.sqrt(3)
    assert signs.of_unit
    assert sizes.of_unit


@pytest.mark.parametrize("options", [{"means_share": 0.2}, {"sigma_means": 3.0}])
def test_numbers_of_means_need_means(options: dict[str, float]) -> None:
    with refused(next(iter(options))):
        DPGMPlan(epsilon=2.0, **options).calibrated(DPGMConfig(**SMALL, k=2, centred=False))
