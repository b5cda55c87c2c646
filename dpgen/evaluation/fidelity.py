"""Scores of synthetic images: Fréchet distance, precision and recall of features, and agreement with their class."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dpgen.evaluation.scores import Score
from dpgen.metrics.fidelity import ImageFeatures, InceptionFeatures, LeNetFeatures, fidelity, frechet_distance

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

    Arguments:
        synthetic: of the release.
        real: the private images, which train the network.
        held: the test images.
        image_shape: (height, width) or (channels, height, width), sides at least 8; smaller images have no scores.
        inception: see `dpgen.metrics.fidelity.inception_network`.
        seed: of the choice of images, and of the network.
        epochs: of its training; None: the usual ones.
    """
    if min(image_shape[-2:]) < _SMALLEST or min(len(part.x) for part in (synthetic, real, held)) < _LEAST:
        return []
    generator = torch.Generator().manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    most = _MOST if inception is None or device == "cuda" else _MOST_ON_CPU
    n = min(most, len(synthetic.x), len(real.x), len(held.x))
    shown, own, others = (part.some(n, generator) for part in (synthetic, real, held))
    options: dict[str, Any] = {"image_shape": image_shape, "seed": seed, "epochs": epochs}
    judge = None if real.labels is None else LeNetFeatures(real.x, real.labels, **options)
    features: ImageFeatures | None = judge
    if inception is not None:
        features = InceptionFeatures(image_shape=image_shape, white=1.0, network=inception, device=device)
    size = f"{n:,} images"
    scores = []
    if features is not None:
        by = "Inception v3" if inception is not None else "a network trained on the private images"
        scores = _of_features(features(shown.x), features(own.x), features(others.x), by=by, size=size)
    if judge is not None and shown.labels is not None and others.labels is not None:
        agree, expected = (_agreement(judge, part) for part in (shown, others))
        scores.append(Score("class agreement of a network trained on the private images", agree, real=expected, sample=size))
    return scores


def _of_features(shown: Tensor, own: Tensor, others: Tensor, *, by: str, size: str) -> list[Score]:
    """Distance and neighbourhoods of features (n, k): synthetic and private ones, each against those of the test images."""
    far, near = (frechet_distance(others, x).distance for x in (shown, own))
    scores = [Score(f"Fréchet distance by {by}", far, real=near, better="lower", sample=size)]
    found, expected = (fidelity(others[:_NEIGHBOURS], x[:_NEIGHBOURS]) for x in (shown, own))
    size = f"{min(_NEIGHBOURS, len(shown)):,} images"
    for name in ("precision", "recall"):
        scores.append(Score(f"{name} by {by}", getattr(found, name), real=getattr(expected, name), sample=size))
    return scores


def _agreement(judge: LeNetFeatures, images: Labelled) -> float:
    """Share of the images whose class the network sees."""
    assert images.labels is not None
    return float((judge.classes(judge(images.x)) == images.labels).double().mean())
