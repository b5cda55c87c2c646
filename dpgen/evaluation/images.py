"""Evaluation of models of images: classifiers, features, and pictures; the last two also of records that are images."""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dpgen.data import Images
from dpgen.evaluation.scores import FULL, Effort, Evaluation, Score, require_size
from dpgen.figures import new_figure, save_figure, show_images
from dpgen.metrics import chance_level, train_on_synthetic_accuracy
from dpgen.metrics.fidelity import InceptionFeatures, LeNetFeatures, fidelity, frechet_distance, inception_score
from dpgen.progress import report
from dpgen.release import ImageModel
from dpgen.samples import image_rows

MOST_VALUES = 2**26
"""Values of the images that are drawn, or that a classifier is trained on, at most: 21,845 images of 32 x 32 in colour."""

_SHOWN, _PER_ROW = 10, 8  # classes of the picture, and images of each


def evaluate(
    release: ImageModel, images: Images, *, seed: int, effort: Effort = FULL, inception: nn.Module | None = None
) -> Evaluation:
    """Scores of a release against the test images, and the synthetic images that were scored.

    Train-on-synthetic accuracy stands beside the same classifier trained on the private images; the classifier that the
    model is itself, where it is one, needs no training. Without test images scores compare with the private ones and say so
    in their names; without any image there are none. Pictures show test images only. In full, distances of features
    (`image_scores`) stand beside them, by `inception` where it is given.
    """
    require_size(release, "images", ImageModel)
    report(0.0, "sample")
    most = max(1, min(effort.trained, MOST_VALUES // math.prod(release.image_shape)))
    samples = release.samples(min(max(release.size, 1), most), random_state=seed)
    private = not len(images.test_x)
    test_x, test_labels = (images.x, images.labels) if private else (images.test_x, images.test_labels)
    generator = torch.Generator().manual_seed(seed)
    judging, training = (torch.randperm(n, generator=generator) for n in (len(test_x), images.n))
    judging, training = judging[: effort.held], training[:most]
    report(0.2, "evaluate")

    def accuracy(x: Tensor, labels: Tensor) -> float:
        shape = (x.shape[3], *x.shape[1:3])
        epochs = effort.epochs(len(x), images.x.shape[1:3])
        flat, test = _flat(x), _flat(test_x[judging])
        return train_on_synthetic_accuracy(
            flat, labels, test, test_labels[judging], image_shape=shape, seed=seed, epochs=epochs
        )

    scores, where = [], ", on the private images" * private
    if len(test_x):
        chance, sizes = chance_level(test_labels), (len(samples), images.n)
        sample = f"{most:,} images" if max(release.size, *sizes) > most or len(test_x) > effort.held else ""
        real = accuracy(images.x[training], images.labels[training]) if images.n and not private else None
        value = accuracy(samples.x, samples.labels)
        name = f"train on synthetic, test on real: accuracy{where}"
        scores.append(Score(name, value, real=real, chance=chance, sample=sample))
        if callable(classify := getattr(release, "classify", None)):
            right = classify(test_x[judging]) == test_labels[judging]
            scores.append(Score(f"the model's own classifier: accuracy{where}", float(right.double().mean()), chance=chance))
    if effort.looks and not private:
        parts = ((samples.x, samples.labels), (images.x[training], images.labels[training]), (test_x, test_labels))
        shape = (test_x.shape[3], *test_x.shape[1:3])
        shown, own, held = (Labelled(_flat(x), labels) for x, labels in parts)
        scores += image_scores(shown, own, held, image_shape=shape, inception=inception, seed=seed)

    def picture(path: Path) -> None:
        groups = {name: x.flatten(1) / 255 for name, x in list(samples.by_class().items())[:_SHOWN]}
        real = torch.ones(len(groups), _PER_ROW, math.prod(release.image_shape))
        for row, name in zip(real, groups):
            own = test_x[test_labels == release.class_names.index(name)][:_PER_ROW]
            row[: len(own)] = own.flatten(1) / 255
        samples_figure(real.flatten(0, 1), groups, release.image_shape, path, per_row=_PER_ROW)

    return Evaluation(
        scores=scores,
        released={"samples.npz": partial(samples.encoded, ".npz")},
        pictures={} if private else {"samples.png": picture},
    )


def _flat(x: Tensor) -> Tensor:
    """Images (n, h, w, c) uint8 as rows (n, c * h * w) in [0, 1]."""
    return image_rows(x) / 255


_SMALLEST = 8  # sides that a network is asked about
_LEAST, _MOST, _MOST_ON_CPU, _NEIGHBOURS = 50, 10_000, 2_000, 5_000


class Labelled(NamedTuple):
    """Images (n, channels * height * width) in [0, 1], and their classes (n,) where they have any."""

    x: Tensor
    labels: Tensor | None

    def some(self, n: int, generator: torch.Generator) -> "Labelled":
        """A random choice of n."""
        chosen = torch.randperm(len(self.x), generator=generator)[:n]
        return Labelled(self.x[chosen].float(), None if self.labels is None else self.labels[chosen])


def image_scores(
    synthetic: Labelled,
    real: Labelled,
    held: Labelled,
    *,
    image_shape: tuple[int, ...],
    inception: nn.Module | None = None,
    seed: int = 0,
    epochs: int | None = None,
) -> list[Score]:
    """Scores of synthetic images against held-out ones, beside those of the private images.

    Features are those of `inception`, or of a small convolutional network trained on the private images and their classes:
    distances by it are comparable between runs on the same data at most. All of these figures look at private or test images
    without noise. Equally many images of each kind are compared, since distances depend on their number.

    There are no scores of images whose sides (height, width), in `image_shape` the last two, are below 8.
    """
    parts = (synthetic, real, held)
    if min(image_shape[-2:]) < _SMALLEST or min(len(part.x) for part in parts) < _LEAST:
        return []
    generator = torch.Generator().manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    most = _MOST if inception is None or device == "cuda" else _MOST_ON_CPU
    n = min(most, *(len(part.x) for part in parts))
    shown, own, others = (part.some(n, generator) for part in parts)
    options: dict[str, Any] = {"image_shape": image_shape, "seed": seed, "epochs": epochs}
    judge = None if real.labels is None else LeNetFeatures(real.x, real.labels, **options)
    features: LeNetFeatures | InceptionFeatures | None = judge
    by, size = "a network trained on the private images", f"{n:,} images"
    if inception is not None:
        features, by = InceptionFeatures(inception, image_shape=image_shape, device=device), "Inception v3"
    scores = []
    if features is not None:
        found = [features(part.x) for part in (shown, own, others)]
        scores = _of_features(*found, by=by, size=size)
        seen, expected = (inception_score(features.logits(part)) for part in found[:2])
        scores.append(Score(f"inception score by {by}", seen, real=expected, chance=1.0, sample=size))
    return scores if judge is None else [*scores, *_of_classes(judge, shown, others, size)]


def _of_classes(judge: LeNetFeatures, shown: Labelled, others: Labelled, size: str) -> Iterator[Score]:
    """The share of images whose class a network sees; nothing is said of images without classes."""
    if shown.labels is not None and others.labels is not None:
        agree, right = (_agreement(judge, part) for part in (shown, others))
        yield Score("class agreement of a network trained on the private images", agree, real=right, sample=size)


def _of_features(shown: Tensor, own: Tensor, others: Tensor, *, by: str, size: str) -> list[Score]:
    """Distance and neighbourhoods of features (n, k): synthetic and private ones, each against those of the test images."""
    far, near = (frechet_distance(others, x) for x in (shown, own))
    scores = [Score(f"Fréchet distance by {by}", far, real=near, better="lower", sample=size)]
    found, expected = (fidelity(others[:_NEIGHBOURS], x[:_NEIGHBOURS]) for x in (shown, own))
    size = f"{min(_NEIGHBOURS, len(shown)):,} images"
    for name in ("precision", "recall"):
        scores.append(Score(f"{name} by {by}", getattr(found, name), real=getattr(expected, name), sample=size))
    return scores


def _agreement(judge: LeNetFeatures, images: Labelled) -> float:
    """Share of the images whose class the network sees."""
    assert images.labels is not None
    return float((judge.logits(judge(images.x)).argmax(1) == images.labels).double().mean())


def samples_figure(
    real: Tensor,
    clusters: Mapping[str, Tensor],
    image_shape: tuple[int, ...] | None,
    path: Path | str,
    *,
    per_row: int = 8,
    title: str = "",
) -> Path:
    """Real records beside samples of each cluster, one cluster a row (Fig. 3 of Acs et al. 2017).

    Without an image shape the share of ones of each feature is compared instead: real against synthetic. The real records are
    shown as they are: give records that may be shown. `real` are (n, d) in [0, 1], n >= 1; `clusters` samples (m, d) by label,
    empty ones are left blank; `image_shape` is (height, width) or (height, width, channels). The suffix of the path chooses the
    format.
    """
    if image_shape is None:
        figure = new_figure(4.5, 4.5)
        axes, synthetic = figure.add_subplot(), torch.cat([samples.float() for samples in clusters.values()])
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        axes.scatter(real.float().mean(0).numpy(), synthetic.mean(0).numpy(), s=8, alpha=0.6)
        axes.set(xlabel="share of ones, real", ylabel="share of ones, synthetic", title=f"{real.shape[1]} features")
    else:
        rows, (height, width) = len(clusters), image_shape[:2]
        figure = new_figure(2 * 0.45 * per_row + 1.6, max(0.45 * rows * height / width, 0.45) + 0.5)
        left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
        shown = [real[row * per_row : (row + 1) * per_row] for row in range(rows)]
        for axes, parts, name in ((left, shown, "real"), (right, list(clusters.values()), "synthetic")):
            show_images(axes, parts, image_shape, per_row)
            axes.set(title=name, xticks=[], yticks=[])
        right.set_yticks([(row + 0.5) * (height + 1) - 0.5 for row in range(rows)], labels=list(clusters), fontsize=7)
        right.tick_params(length=0)
    if title:
        figure.suptitle(title, fontsize=8)
    return save_figure(figure, path)
