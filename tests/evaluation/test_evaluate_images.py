"""Models of images: scores and files, features, pictures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from matplotlib.image import imread
from torch import Tensor, nn

import dpgen
from dpgen.data import Images
from dpgen.evaluation import Evaluation, evaluate, evaluator
from dpgen.evaluation.images import Labelled, image_scores, samples_figure
from dpgen.evaluation.images import evaluate as evaluate_images
from dpgen.evaluation.scores import Effort, Score
from dpgen.metrics.fidelity import inception_network
from dpgen.report import pictures


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

    for module in ("images", "records"):
        monkeypatch.setattr(f"dpgen.evaluation.{module}.image_scores", scores)
        monkeypatch.setattr(f"dpgen.evaluation.{module}.train_on_synthetic_accuracy", lambda *_, **__: 0.5)
    return calls


@pytest.mark.parametrize("kind", ["images", "records"])
def test_full_evaluations_have_them(kind: str, seen: list[tuple[Labelled, ...]]) -> None:
    data: Any = tiny.records() if kind == "records" else images(160, test=60)
    model = dpgen.fit(data, "gaussian", epsilon=20.0, delta=1e-3, **({"frequencies": 12} if kind == "images" else {}))
    assert "looks" in {score.name for score in evaluate(model, data).scores}
    assert "looks" not in {score.name for score in evaluate(model, data, full=False).scores}
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
