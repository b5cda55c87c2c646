"""Scores of a release: real records score as real records, noise does not, and test records are what is compared with."""

from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor

from dpgen.data import Records, load_digits
from dpgen.evaluation.records import evaluate
from dpgen.evaluation.scores import QUICK, Effort, Score
from dpgen.samples import RecordSamples

GENERATOR = torch.Generator().manual_seed(0)


def release(x: Tensor, labels: Tensor | None, *, clusters: Any = None, size: int | None = None) -> Any:
    """A release that hands out given records."""
    drawn: list[int] = []

    def sample(n: int, *, random_state: int) -> RecordSamples:
        drawn.append(n)
        rows = torch.arange(n) % len(x)
        return RecordSamples(x=x[rows], cluster=rows * 0, labels=labels[rows] if labels is not None else None)

    return SimpleNamespace(samples=sample, drawn=drawn, size=size or len(x), passes=1, assign=lambda x: clusters)


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, ...]]:
    """Replaces the classifier, which has tests of its own; lists what it was given."""
    calls: list[tuple[Tensor, ...]] = []

    def stub(*tensors: Tensor, **_: Any) -> float:
        calls.append(tensors)
        return len(calls) / 10

    monkeypatch.setattr(import_module("dpgen.evaluation.records"), "train_on_synthetic_accuracy", stub)
    return calls


def evaluated(model: Any, records: Records, *, seed: int) -> tuple[list[Score], RecordSamples]:
    """Scores, and the samples that are kept."""
    evaluation = evaluate(model, records, seed=seed)
    writer: Any = evaluation.released["samples.npz"]
    return evaluation.scores, writer.func.__self__


def by_name(scores: list[Score]) -> dict[str, Score]:
    return {score.name: score for score in scores}


def test_the_classifier_trains_on_each_and_is_tested_on_test_records(accuracy: list[tuple[Tensor, ...]]) -> None:
    records = tiny.records()
    synthetic = 1 - records.x
    scores, samples = evaluated(release(synthetic, records.labels), records, seed=0)
    score = by_name(scores)["train on synthetic, test on real: accuracy"]
    assert (score.value, score.real) == (0.1, 0.2)
    assert score.chance == pytest.approx(9 / 17), "the commonest class of the test records"
    (first, _, *test), (second, _, *same) = accuracy
    assert torch.equal(first, samples.x)
    assert torch.equal(second, records.x)
    for tensors in (test, same):
        assert torch.equal(tensors[0], records.test_x)
        assert torch.equal(tensors[1], records.test_labels)


@pytest.mark.usefixtures("accuracy")
def test_queries_tell_real_records_from_noise() -> None:
    records = tiny.records()
    noise = (torch.rand(records.n, tiny.D, generator=torch.Generator().manual_seed(0)) < 0.5).to(torch.uint8)
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
def test_records_without_labels_get_no_scores_of_labels() -> None:
    records: Records = tiny.records(labelled=False)
    scores, _ = evaluated(release(records.x, None), records, seed=0)
    assert {score.name.split()[0] for score in scores} == {"counting", "2-way", "pairwise"}


@pytest.mark.usefixtures("accuracy")
def test_what_columns_do_together_tells_real_records_from_independent_columns() -> None:
    digits = load_digits()
    records = Records(
        "digits", digits.x[:500], digits.test_x[:200], digits.labels[:500], digits.test_labels[:200], n_classes=10
    )
    shuffled = torch.stack([column[torch.randperm(len(column), generator=GENERATOR)] for column in records.x.T], 1)
    same, other = (by_name(evaluated(release(x, records.labels), records, seed=0)[0]) for x in (records.x, shuffled))
    joint = [name for name in same if name.startswith(("2-way", "pairwise", "classifier"))]
    assert [name.split(":")[0] for name in joint] == ["2-way marginals", "pairwise correlations", "classifier two-sample test"]
    for name in joint:
        assert same[name].value == pytest.approx(same[name].real, abs=0.1)
        assert other[name].value > 1.3 * same[name].value
        assert other[name].value == pytest.approx(other[name].chance, abs=0.1), "the same marginals, and nothing else"
        assert same[name].better == "lower"


def test_one_column_or_constant_columns_have_nothing_together() -> None:
    x = torch.ones(30, 1, dtype=torch.uint8)
    for d, expected in ((1, {"classifier"}), (3, {"classifier", "2-way"})):
        records = Records("constant", x.repeat(1, d), x.repeat(1, d))
        scores = evaluated(release(records.x, None), records, seed=0)[0]
        assert {score.name.split()[0] for score in scores} == {"counting", *expected}


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


def test_grey_values_are_scored_beside_the_bits(accuracy: list[tuple[Tensor, ...]]) -> None:
    records = tiny.records()
    grey, test_grey = records.x * 200, records.test_x * 255
    shades = replace(records, grey=grey, test_grey=test_grey)
    model = release(records.x, records.labels)
    bits = model.samples

    def sample(n: int, *, random_state: int) -> Any:
        drawn = bits(n, random_state=random_state)
        return replace(drawn, grey=drawn.x * 128)

    model.samples = sample
    scores = by_name(evaluate(model, shades, seed=0).scores)
    assert scores["train on synthetic, test on real: accuracy on grey values"].value == 0.3
    assert float(accuracy[2][0].max()) == pytest.approx(128 / 255)
    assert torch.equal(accuracy[3][2], test_grey / 255)


def test_a_quick_evaluation_says_what_it_looked_at(accuracy: list[tuple[Tensor, ...]]) -> None:
    records = tiny.records()
    effort = Effort(trained=20, held=5, tested=4)
    found = evaluate(release(records.x, records.labels), records, seed=0, effort=effort).scores
    assert [len(part) for part in accuracy[0]] == [20, 20, 5, 5]
    said = {score.name.split(":")[0]: score.sample for score in found}
    assert said["train on synthetic, test on real"] == "20 records"
    assert said["counting queries all_1"] == "", "they look at all"
    assert (QUICK.epochs(10_000, (28, 28)), QUICK.epochs(10_000, (8, 8)), QUICK.epochs(10_000, None)) == (3, None, None)
    assert all(score.sample == "" for score in evaluate(release(records.x, records.labels), records, seed=0).scores)


def test_of_a_slow_model_a_quick_evaluation_draws_less_and_says_so(accuracy: list[tuple[Tensor, ...]]) -> None:
    records = tiny.records()
    for passes, drawn in ((1, 30), (200, 20)):
        model = release(records.x, records.labels, size=30)
        model.passes = passes
        notes = evaluate(model, records, seed=0, effort=Effort(trained=20, held=5, tested=4, slow=20)).notes
        assert model.drawn == [drawn]
        assert ("20 synthetic records were drawn and scored, not 30" in " ".join(notes)) == (passes > 1)


def test_without_test_records_scores_are_of_the_private_ones_and_say_so(accuracy: list[tuple[Tensor, ...]]) -> None:
    records = tiny.records()
    alone = replace(records, test_x=records.test_x[:0], test_labels=records.test_labels[:0])  # type: ignore[index]
    evaluation = evaluate(release(1 - records.x, records.labels, clusters=records.labels), alone, seed=0)
    assert len(evaluation.scores) > 4
    for score in evaluation.scores:
        assert score.name.endswith(", on the private records")
        assert score.private
        assert score.real is None
    assert [torch.equal(x, records.x) for _, _, x, _ in accuracy] == [True]
    assert not evaluation.pictures, "pictures show test records only"


@pytest.mark.parametrize("labelled", [True, False])
def test_without_private_records_nothing_stands_beside_a_score(labelled: bool, accuracy: list[tuple[Tensor, ...]]) -> None:
    records = tiny.records(labelled=labelled)
    nobody = replace(records, x=records.x[:0], labels=None if records.labels is None else records.labels[:0])
    scores = evaluate(release(1 - records.x, records.labels), nobody, seed=0).scores
    assert scores
    assert [score.real for score in scores] == [None] * len(scores)
    neither = replace(nobody, test_x=records.x[:0], test_labels=nobody.labels)
    evaluation = evaluate(release(1 - records.x, records.labels), neither, seed=0)
    assert evaluation.scores == []
    assert set(evaluation.released) == {"samples.npz"}
