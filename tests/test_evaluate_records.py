"""Scores of a release: real records score as real records, noise does not, and test records are what is compared with."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor

from dpgen.data import Records
from dpgen.evaluation import evaluate
from dpgen.release import Samples
from dpgen.report import Score


def release(x: Tensor, labels: Tensor | None, *, clusters: Any = None, size: int | None = None) -> Any:
    """A release that hands out given records."""
    drawn: list[int] = []

    def sample(n: int, *, seed: int) -> Samples:
        drawn.append(n)
        rows = torch.arange(n) % len(x)
        return Samples(x=x[rows], cluster=rows * 0, labels=labels[rows] if labels is not None else None)

    return SimpleNamespace(sample=sample, drawn=drawn, size=size or len(x), assign=lambda x: clusters)


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, ...]]:
    """Replaces the classifier, which has tests of its own; lists what it was given."""
    calls: list[tuple[Tensor, ...]] = []

    def stub(*tensors: Tensor, **_: Any) -> float:
        calls.append(tensors)
        return len(calls) / 10

    monkeypatch.setattr(sys.modules["dpgen.evaluation.evaluate_records"], "train_on_synthetic_accuracy", stub)
    return calls


def evaluated(model: Any, records: Records, *, seed: int) -> tuple[list[Score], Samples]:
    """Scores, and the samples that are kept."""
    evaluation = evaluate(model, records, seed=seed)
    writer: Any = evaluation.released["samples.npz"]
    return evaluation.scores, writer.__self__


def by_name(scores: list[Score]) -> dict[str, Score]:
    return {score.name: score for score in scores}


def test_the_classifier_trains_on_each_and_is_tested_on_test_records(accuracy: list[tuple[Tensor, ...]]) -> None:
    records = tiny.records()
    synthetic = 1 - records.x
    scores, samples = evaluated(release(synthetic, records.labels), records, seed=0)
    score = by_name(scores)["train on synthetic, test on real: accuracy"]
    assert (score.value, score.real) == (0.1, 0.2)
    assert score.chance == pytest.approx(11 / 16), "the commonest class of the test records"
    (first, _, *test), (second, _, *same) = accuracy
    assert torch.equal(first, samples.x)
    assert torch.equal(second, records.x)
    for tensors in (test, same):
        assert torch.equal(tensors[0], records.test_x)
        assert torch.equal(tensors[1], records.test_labels)


@pytest.mark.usefixtures("accuracy")
def test_queries_tell_real_records_from_noise() -> None:
    records = tiny.records()
    noise = (torch.rand(64, tiny.D, generator=torch.Generator().manual_seed(0)) < 0.5).to(torch.uint8)
    same, other = (by_name(evaluated(release(x, records.labels), records, seed=0)[0]) for x in (records.x, noise))
    queries = [name for name in same if name.startswith("counting queries")]
    assert len(queries) >= 5
    for name in queries:
        assert same[name].value == same[name].real, "the private records score as themselves"
        assert same[name].better == "lower"
    assert sum(other[name].value > same[name].value for name in queries) > len(queries) / 2


def test_clusters_are_scored_when_the_release_has_them(accuracy: list[tuple[Tensor, ...]]) -> None:
    records = tiny.records()
    assert records.test_labels is not None
    swapped = release(records.x, None, clusters=1 - records.test_labels)
    scores = by_name(evaluated(swapped, records, seed=0)[0])
    assert scores["clustering accuracy"].value == 1.0, "names of clusters do not matter"
    assert accuracy == [], "no labels, no classifier"


@pytest.mark.usefixtures("accuracy")
def test_records_without_labels_get_queries_only() -> None:
    records: Records = tiny.records(labelled=False)
    scores, _ = evaluated(release(records.x, None), records, seed=0)
    assert {score.name.split()[0] for score in scores} == {"counting"}


@pytest.mark.usefixtures("accuracy")
def test_the_number_of_synthetic_records_is_the_noisy_size() -> None:
    """The true number of private records is private."""
    records = tiny.records()
    for size, drawn in ((37, 37), (-5, 1), (10**7, 60_000)):
        made = release(records.x, records.labels, size=size)
        evaluate(made, records, seed=0)
        assert made.drawn == [drawn]


@pytest.mark.usefixtures("accuracy")
def test_scores_repeat_under_one_seed() -> None:
    records = tiny.records(labelled=False)
    assert evaluated(release(records.x, None), records, seed=4)[0] == evaluated(release(records.x, None), records, seed=4)[0]
