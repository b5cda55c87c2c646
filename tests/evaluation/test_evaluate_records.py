"""Scores of releases of records and of images: real ones score as such, noise does not, test records are compared with."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from matplotlib.image import imread
from torch import Tensor, nn

import dpgen
from dpgen.data import Images, Records, load_digits
from dpgen.evaluation import evaluate as evaluate_any
from dpgen.evaluation import evaluator
from dpgen.evaluation.records import Labelled, evaluate, evaluate_images, image_scores, samples_figure
from dpgen.evaluation.scores import QUICK, Effort, Evaluation, Score
from dpgen.metrics.fidelity import inception_network
from dpgen.report import pictures
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


# -- images ------------------------------------------------------------------------------------------------------------


def images(n: int = 240, *, channels: int = 3, test: int = 40) -> Images:
    """Dark and bright images of noise."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 2
    x = torch.rand(n, 16, 16, channels, generator=generator) * 100 + 120 * labels[:, None, None, None]
    x = x.byte()
    return Images("noise", x[test:], labels[test:], x[:test], labels[:test], class_names=("dark", "bright"))


def released(data: Images) -> Any:
    return dpgen.fit(data, "gaussian", epsilon=20.0, delta=1e-3, frequencies=12)


def judged(data: Images, model: Any = None) -> Evaluation:
    """By classifiers of few steps."""
    return evaluate_images(model or released(data), data, seed=0, effort=Effort(trained=200, held=40, tested=20, steps=30))


def test_scores_and_files_of_a_good_model(tmp_path: Path) -> None:
    data = images()
    evaluation = judged(data)
    trained, own = evaluation.scores
    assert trained.name == "train on synthetic, test on real: accuracy"
    assert trained.real == pytest.approx(1.0, abs=0.05)
    assert min(trained.value, own.value) > 0.9
    assert trained.chance == own.chance == 0.5
    evaluation.write(tmp_path)
    with np.load(tmp_path / "samples.npz") as file:
        assert file["x"].shape[1:] == (16, 16, 3)
        assert file["class_names"].tolist() == ["dark", "bright"]
        assert len(file["labels"]) == len(file["x"])
    assert (tmp_path / "samples.png").stat().st_size > 1000


def test_labels_that_mean_nothing_are_found_out() -> None:
    data = images()
    shuffled = data.labels[torch.randperm(data.n, generator=torch.Generator().manual_seed(0))]
    model = released(Images("shuffled", data.x, shuffled, data.test_x, data.test_labels, class_names=data.class_names))
    assert max(score.value for score in judged(data, model).scores) < 0.8


def test_without_test_images_scores_say_so_and_nothing_is_drawn() -> None:
    data = images(test=0)
    evaluation = judged(data)
    assert all(score.name.endswith(", on the private images") and score.real is None for score in evaluation.scores)
    assert not evaluation.pictures


def test_a_report_shows_images_of_the_model_alone() -> None:
    titles = [picture.title for picture in pictures(released(images()))]
    assert titles == ["Synthetic images", "Average images", "Shares"]


def test_tables_of_samples_have_a_column_for_each_value() -> None:
    samples = released(images()).samples(3, random_state=0)
    table = samples.to_pandas()
    assert table.shape == (3, 16 * 16 * 3 + 1)
    assert set(table["label"]) <= {"dark", "bright"}
    assert set(samples.by_class()) <= {"dark", "bright"}


SHAPE = (3, 8, 8)


def halves(n: int, seed: int) -> Labelled:
    """Bright above (class 0) or bright below (class 1), in three colours."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    bright = (torch.arange(8)[:, None].expand(8, 8).flatten() >= 4).long().repeat(3)
    x = torch.rand(n, 192, generator=generator) * 0.4 + 0.5 * (bright == labels[:, None])
    return Labelled(x, labels)


REAL, HELD = halves(120, 0), halves(80, 1)


def scored(synthetic: Labelled, **options: Any) -> dict[str, Score]:
    return {score.name: score for score in image_scores(synthetic, REAL, HELD, image_shape=SHAPE, epochs=30, **options)}


class Means(nn.Module):
    """Mean colours of the upper and the lower half, in place of Inception; its classes are which one is brighter."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 2)
        upper = torch.tensor([1.0, 0.0] * 3)
        self.head.load_state_dict({"weight": 20 * torch.stack([upper, 1 - upper]), "bias": torch.zeros(2)})

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1:] == (3, 299, 299)
        return nn.functional.adaptive_avg_pool2d(x, (2, 1)).flatten(1)


@pytest.mark.parametrize("inception", [None, Means()], ids=["own network", "a file's network"])
def test_good_images_are_near_and_bad_ones_far(inception: nn.Module | None) -> None:
    by = "by a network trained on the private images" if inception is None else "by Inception v3"
    names = [f"{what} {by}" for what in ("Fréchet distance", "precision", "recall", "inception score")]
    names += ["class agreement of a network trained on the private images"]
    good = scored(halves(100, 2), inception=inception)
    wrong = halves(100, 2)
    swapped = scored(Labelled(wrong.x, 1 - wrong.labels if wrong.labels is not None else None), inception=inception)
    collapsed = scored(Labelled(wrong.x[:1].repeat(100, 1), wrong.labels), inception=inception)
    assert list(good) == names
    distance, precision, recall, score, agreement = (good[name] for name in names)
    assert distance.better == "lower"
    assert distance.real is not None
    assert distance.value < 0.1 * collapsed[names[0]].value
    assert min(precision.value, recall.value) > 0.7
    assert collapsed[names[2]].value < 0.3
    assert agreement.value > 0.95
    assert swapped[names[4]].value < 0.05
    assert swapped[names[3]].value == score.value > 1.8 > 1.01 > collapsed[names[3]].value, "of two classes, or one"
    assert score.real == pytest.approx(score.value, abs=0.1)
    assert all(score.private and score.sample for score in good.values()), "they look at private images"


def test_images_without_classes_are_compared_by_a_network_of_a_file_only() -> None:
    blank = [Labelled(part.x, None) for part in (halves(100, 2), REAL, HELD)]
    assert image_scores(*blank, image_shape=SHAPE) == []
    assert len(image_scores(*blank, image_shape=SHAPE, inception=Means())) == 4


def test_small_or_few_images_have_no_scores() -> None:
    few = Labelled(HELD.x[:10], HELD.labels)
    assert image_scores(halves(100, 2), REAL, few, image_shape=SHAPE) == []
    assert image_scores(halves(100, 2), REAL, HELD, image_shape=(3, 4, 16)) == []


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Labelled, ...]]:
    """What the evaluations of images and of records look at; their classifiers have tests of their own."""
    calls: list[tuple[Labelled, ...]] = []

    def scores(*parts: Labelled, image_shape: tuple[int, ...], **_: Any) -> list[Score]:
        assert parts[0].x.shape[1] == torch.tensor(image_shape).prod()
        calls.append(parts)
        return [Score("looks", 1.0)]

    monkeypatch.setattr("dpgen.evaluation.records.image_scores", scores)
    monkeypatch.setattr("dpgen.evaluation.records.train_on_synthetic_accuracy", lambda *_, **__: 0.5)
    return calls


@pytest.mark.parametrize("kind", ["images", "records"])
def test_full_evaluations_have_them(kind: str, seen: list[tuple[Labelled, ...]]) -> None:
    data: Any = tiny.records() if kind == "records" else images(160, test=60)
    model = dpgen.fit(data, "gaussian", epsilon=20.0, delta=1e-3, **({"frequencies": 12} if kind == "images" else {}))
    assert "looks" in {score.name for score in evaluate_any(model, data).scores}
    assert "looks" not in {score.name for score in evaluate_any(model, data, full=False).scores}
    ((_, real, held),) = seen
    assert (len(real.x), len(held.x)) == (data.n, len(data.test_x))


def test_weights_are_read_before_anything_is_spent(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"some": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="weights"):
        inception_network(path)
    path.write_bytes(b"none")
    data = Images("one", *[torch.zeros(1, 8, 8, 1).byte(), torch.zeros(1).long()] * 2)
    with pytest.raises(ValueError, match="weights"):
        evaluator(data, fid_weights=path)
    points = dpgen.data.Points("p", torch.zeros(2, 1), torch.zeros(1, 1), columns=("a",))
    with pytest.raises(ValueError, match="fid_weights"):
        evaluator(points, fid_weights=path)


def noise(n: int, d: int, share: float = 0.5) -> torch.Tensor:
    return (torch.rand(n, d, generator=torch.Generator().manual_seed(n)) < share).to(torch.uint8)


def darkness(path: Path) -> tuple[float, float]:
    """Mean ink of the left and the right half of a picture."""
    picture = 1 - np.asarray(imread(path), dtype=float)[..., :3].mean(-1)
    left, right = np.array_split(picture, 2, axis=1)
    return float(left.mean()), float(right.mean())


def test_samples_figure_shows_real_left_and_synthetic_right(tmp_path: Path) -> None:
    black, white = torch.ones(40, 20), torch.zeros(8, 20)
    left, right = darkness(samples_figure(black, dict.fromkeys("abcde", white), (4, 5), tmp_path / "a.png"))
    assert left > 2 * right
    left, right = darkness(samples_figure(white, {"zero": black, "one": black}, (4, 5), tmp_path / "b.png"))
    assert right > 1.5 * left


def test_records_that_are_no_images_are_compared_by_marginals(tmp_path: Path) -> None:
    path = samples_figure(noise(50, 7), {"a": noise(20, 7), "b": noise(0, 7)}, None, tmp_path / "a.svg")
    assert "<!-- share of ones, real -->" in path.read_text()
