"""Evaluation of models of images on images that they were not trained on, with pictures of both."""

import math
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from dpgen.data import Images
from dpgen.evaluation.fidelity import Labelled, image_scores
from dpgen.evaluation.records import FULL, Effort, samples_figure
from dpgen.evaluation.scores import Evaluation, Score, require_size
from dpgen.metrics import chance_level, train_on_synthetic_accuracy
from dpgen.progress import report
from dpgen.release import ImageModel, image_rows

MOST_VALUES = 2**26
"""Values of the images that are drawn, or that a classifier is trained on, at most: 21,845 images of 32 x 32 in colour."""

_SHOWN, _PER_ROW = 10, 8  # classes of the picture, and images of each


def evaluate(
    release: ImageModel, images: Images, *, seed: int, effort: Effort = FULL, inception: nn.Module | None = None
) -> Evaluation:
    """Scores of a release against the test images, and the synthetic images that were scored.

    Train-on-synthetic accuracy stands beside the same classifier trained on the private images; the classifier that the
    model is itself, where it is one, needs no training. The reference, like the test images, is not covered by the guarantee.
    Without test images scores compare with the private ones, say so in their names, and have no value of real data beside
    them; without any image there are none. Pictures show test images only. In full, distances of features stand beside them
    (`image_scores`), by `inception` where it is given.
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
