"""Scores of how images look: good samples near real ones, bad ones far, by either network; none for small or few images."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor, nn

import dpgen
from dpgen.data import Images
from dpgen.evaluation import evaluate, evaluator
from dpgen.evaluation.fidelity import Labelled, image_scores
from dpgen.evaluation.scores import Score
from dpgen.metrics.fidelity import inception_network

SHAPE = (3, 8, 8)


def images(n: int, seed: int) -> Labelled:
    """Bright above (class 0) or bright below (class 1), in three colours."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    bright = (torch.arange(8)[:, None].expand(8, 8).flatten() >= 4).long().repeat(3)
    x = torch.rand(n, 192, generator=generator) * 0.4 + 0.5 * (bright == labels[:, None])
    return Labelled(x, labels)


REAL, HELD = images(120, 0), images(80, 1)


def scored(synthetic: Labelled, **options: Any) -> dict[str, Score]:
    return {score.name: score for score in image_scores(synthetic, REAL, HELD, image_shape=SHAPE, epochs=30, **options)}


class Means(nn.Module):
    """Mean colours of the upper and the lower half, in place of Inception."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1:] == (3, 299, 299)
        return nn.functional.adaptive_avg_pool2d(x, (2, 1)).flatten(1)


@pytest.mark.parametrize("inception", [None, Means()], ids=["own network", "a file's network"])
def test_good_images_are_near_and_bad_ones_far(inception: nn.Module | None) -> None:
    by = "by a network trained on the private images" if inception is None else "by Inception v3"
    names = [f"{what} {by}" for what in ("Fréchet distance", "precision", "recall")]
    names += ["class agreement of a network trained on the private images"]
    good = scored(images(100, 2), inception=inception)
    wrong = images(100, 2)
    swapped = scored(Labelled(wrong.x, 1 - wrong.labels if wrong.labels is not None else None), inception=inception)
    collapsed = scored(Labelled(wrong.x[:1].repeat(100, 1), wrong.labels), inception=inception)
    assert list(good) == names
    distance, precision, recall, agreement = (good[name] for name in names)
    assert distance.better == "lower"
    assert distance.real is not None
    assert distance.value < 0.1 * collapsed[names[0]].value
    assert min(precision.value, recall.value) > 0.7
    assert collapsed[names[2]].value < 0.3
    assert agreement.value > 0.95
    assert swapped[names[3]].value < 0.05
    assert all(score.private and score.sample for score in good.values()), "they look at private images"


def test_images_without_classes_are_compared_by_a_network_of_a_file_only() -> None:
    blank = [Labelled(part.x, None) for part in (images(100, 2), REAL, HELD)]
    assert image_scores(*blank, image_shape=SHAPE) == []
    assert len(image_scores(*blank, image_shape=SHAPE, inception=Means())) == 3


def test_small_or_few_images_have_no_scores() -> None:
    few = Labelled(HELD.x[:10], HELD.labels)
    assert image_scores(images(100, 2), REAL, few, image_shape=SHAPE) == []
    assert image_scores(images(100, 2), REAL, HELD, image_shape=(3, 4, 16)) == []


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
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(160) % 2
    x = (torch.rand(160, 4, 4, 1, generator=generator) * 100 + 120 * labels[:, None, None, None]).byte()
    data: Any = tiny.records()
    if kind == "images":
        x = x.repeat(1, 2, 2, 1)
        data = Images("noise", x[60:], labels[60:], x[:60], labels[:60], class_names=("dark", "bright"))
    model = dpgen.fit("gaussian", data, epsilon=20.0, delta=1e-3, **({"frequencies": 12} if kind == "images" else {}))
    assert "looks" in {score.name for score in evaluate(model, data).scores}
    assert "looks" not in {score.name for score in evaluate(model, data, full=False).scores}
    ((_, real, held),) = seen
    assert (len(real.x), len(held.x)) == (data.n, len(data.test_x))


def test_weights_are_read_before_anything_is_spent(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"some": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match=r"weights.pth; it must hold the tensors of torchvision's inception_v3"):
        inception_network(path)
    path.write_bytes(b"none")
    data = Images("one", *[torch.zeros(1, 8, 8, 1).byte(), torch.zeros(1).long()] * 2)
    with pytest.raises(ValueError, match=r"weights.pth; it must hold the tensors"):
        evaluator(data, fid_weights=path)
    points = dpgen.data.Points("p", torch.zeros(2, 1), torch.zeros(1, 1), columns=("a",))
    with pytest.raises(ValueError, match="it is for images, and these data are none"):
        evaluator(points, fid_weights=path)
