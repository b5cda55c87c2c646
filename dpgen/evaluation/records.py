"""Evaluation of models of records and of images on records that they were not trained on: classifiers, queries, pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from dpgen.evaluation.scores import FULL, MOST_SYNTHETIC, Effort, Evaluation, Score, beside, require_size
from dpgen.figures import new_figure, save_figure, show_images
from dpgen.metrics import (
    chance_level,
    classifier_two_sample_test,
    clustering_accuracy,
    correlation_errors,
    independent_marginals,
    marginal_errors,
    query_errors,
    train_on_synthetic_accuracy,
)
from dpgen.progress import report
from dpgen.release import ImageModel, RecordModel
from dpgen.samples import RecordSamples, image_rows

if TYPE_CHECKING:
    from dpgen.data import Images, MappedRecords, Records, Table
    from dpgen.data.stored import StreamedRecords
    from dpgen.metrics import InceptionFeatures, LeNetFeatures
    from dpgen.systems.dp_sgd.model import ReleasedModule

MOST_COMPARED = 10_000
"""Records whose marginals and correlations are compared; a random choice where there are more."""

_JUDGED = 2048  # records that a classifier sees at once
_LEAST_TESTED = 20
_FEWER = (
    "{drawn:,} synthetic records were drawn and scored, not {size:,}, for each takes {passes} passes through the model: "
    "--evaluation full, or dpgen sample, draws more"
)
INDEPENDENT = "independent marginals"
LOOKED_AT = 60_000
"""Records on disk or in an engine, of each part, that an evaluation holds in memory."""

_CHOSEN = "scores look at {:,} of the records at most, a choice by public randomness"


class _Held:
    """The records that scores compare with: the test records or, where there are none, the private ones themselves."""

    def __init__(self, records: Records) -> None:
        self.private = not len(records.test_x)
        test, own = (records.test_x, records.test_labels, records.test_grey), (records.x, records.labels, records.grey)
        self.x, self.labels, self.grey = own if self.private else test
        self.where = ", on the private records" * self.private  # suffix of the names of scores


def _as_images(samples: RecordSamples, records: Records, held: _Held) -> Iterator[Labelled]:
    """Synthetic, private and held-out records in the finest view that all have, with their labels."""
    views = list(_views(samples, records, held).values())[-1]
    return (Labelled(x, labels) for x, labels in zip(views, (samples.labels, records.labels, held.labels)))


def evaluate(
    release: RecordModel, records: Records, *, seed: int, effort: Effort = FULL, inception: nn.Module | None = None
) -> Evaluation:
    """Scores of a release against the test records, and the synthetic records that were scored.

    Train-on-synthetic accuracy stands beside the same classifier trained on the private records; counting queries, pairs
    of columns and the classifier two-sample test (1/2: nothing tells the samples apart) stand beside what the private
    records and their independent marginals reach. None of these is covered by the guarantee. As many records are drawn as
    the release's own noisy size says, for the number of private records is private too.

    Without test records scores compare with the private records and say so in their names; without any record there are
    none. Pictures show test records only. Of more records than `effort` allows a random choice is looked at.
    """
    require_size(release, "records", RecordModel)
    report(0.0, "sample")
    size = min(max(release.size, 1), MOST_SYNTHETIC)
    drawn = min(size, effort.slow) if release.passes > 1 else size
    samples = release.samples(drawn, random_state=seed)
    held = _Held(records)

    def picture(path: Path) -> None:
        title = release.statement.in_words()
        samples_figure(held.x, samples.by_cluster(), records.image_shape, path, title=title)

    rivals = _rivals(samples, records, held, seed)
    report(0.1, "evaluate")
    scores = [*_query_scores(held, rivals, seed), *_joint_scores(held, rivals, seed, effort)]
    report(0.5)
    scores = [*_label_scores(release, samples, records, held, seed, effort), *scores]
    if effort.looks and records.image_shape is not None and not held.private:
        compared = _as_images(samples, records, held)
        scores += image_scores(*compared, image_shape=records.image_shape, inception=inception, seed=seed)
    return Evaluation(
        scores=scores if len(held.x) else [],
        released={"samples.npz": partial(samples.encoded, ".npz")},
        pictures={} if held.private else {"samples.png": picture},
        notes=() if drawn == size else (_FEWER.format(drawn=drawn, size=size, passes=release.passes),),
    )


def _rivals(samples: RecordSamples, records: Records, held: _Held, seed: int) -> dict[str, Tensor]:
    """Records that stand beside each other in scores, by their roles: there may be no private ones, or none that are others."""
    rivals = {"value": samples.x}
    if records.n:
        rivals |= {} if held.private else {"real": records.x}
        rivals["chance"] = independent_marginals(records.x, records.n, generator=torch.Generator().manual_seed(seed))
    return rivals


def evaluate_stored(release: RecordModel, records: MappedRecords | StreamedRecords, *, seed: int, **options: Any) -> Evaluation:
    """Evaluation of a model on records on disk or in an engine, by a public choice of these."""
    evaluation = evaluate(release, records.some(LOOKED_AT), seed=seed, **options)
    chosen = (_CHOSEN.format(LOOKED_AT),) if max(records.n, records.n_test) > LOOKED_AT else ()
    return replace(evaluation, notes=(*evaluation.notes, *chosen))


def evaluate_classifier(release: ReleasedModule, data: Records | Images | Table) -> Evaluation:
    """Accuracy of a classifier on the records that were held out, beside that of the most frequent label among them."""
    from dpgen.data import Images, Table  # here, because few releases are classifiers
    from dpgen.systems.dp_sgd.model import one_hot_rows

    note = "the release is the weights of a classifier: dpgen.load(DIRECTORY).predict(records), and .module() is the network"
    if isinstance(data, Table):
        x, labels = one_hot_rows(data.test_codes, data.schema, labelled=True)
    else:
        x, labels = image_rows(data.test_x) if isinstance(data, Images) else data.test_x, data.test_labels
        x = getattr(data, "test_grey", x) if release.grey else x
    if labels is None or not len(labels):
        return Evaluation([], notes=(note, "no records were held out, so its accuracy is not known"))
    found = [release.predict(part.float() / (255 if release.grey else 1)) for part in x.split(_JUDGED)]
    right = float((torch.cat(found) == labels).double().mean())
    return Evaluation([Score("accuracy on the held-out records", right, chance=chance_level(labels))], notes=(note,))


def _some(x: Tensor, most: int, seed: int) -> Tensor:
    """Positions (m,) of at most so many rows of x, all in order or a random choice."""
    if len(x) <= most:
        return torch.arange(len(x))
    return torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:most]


def _of(most: int, *samples: Tensor) -> str:
    """The note beside a score that has not looked at all records, "" for one that has."""
    return f"{most:,} records" if any(len(x) > most for x in samples) else ""


def _label_scores(
    release: RecordModel, samples: RecordSamples, records: Records, held: _Held, seed: int, effort: Effort
) -> list[Score]:
    if held.labels is None or not len(held.x):
        return []
    scores, chance, shape = [], chance_level(held.labels), records.image_shape
    judging = _some(held.x, effort.held, seed)
    size = _of(effort.trained, samples.x, records.x) or _of(effort.held, held.x)

    def accuracy(x: Tensor, labels: Tensor | None, test_x: Tensor) -> float:
        assert labels is not None
        assert held.labels is not None
        chosen = _some(x, effort.trained, seed)
        data = x[chosen], labels[chosen], test_x[judging], held.labels[judging]
        epochs = effort.epochs(len(chosen), shape)
        return train_on_synthetic_accuracy(*data, image_shape=shape, seed=seed, epochs=epochs)

    if samples.labels is not None:
        for name, (synthetic_x, real_x, test_x) in _views(samples, records, held).items():
            value = accuracy(synthetic_x, samples.labels, test_x)
            real = None if held.private or not records.n else accuracy(real_x, records.labels, test_x)
            scores.append(Score(name + held.where, value, real=real, chance=chance, sample=size))
    clusters = release.assign(held.x)
    if clusters is not None:
        scores.append(Score("clustering accuracy" + held.where, clustering_accuracy(held.labels, clusters), chance=chance))
    return scores


def _views(samples: RecordSamples, records: Records, held: _Held) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Synthetic, private and test records as a classifier sees them: bits, and grey values where all three have them."""
    name = "train on synthetic, test on real: accuracy"
    views = {name: (samples.x, records.x, held.x)}
    if samples.grey is not None and records.grey is not None and held.grey is not None:
        views[f"{name} on grey values"] = (samples.grey / 255, records.grey / 255, held.grey / 255)
    return views


def _query_scores(held: _Held, rivals: dict[str, Tensor], seed: int) -> list[Score]:
    if not len(held.x):
        return []
    errors = {rival: query_errors(held.x, x, seed=seed) for rival, x in rivals.items()}
    return [
        beside(
            f"counting queries {name}: relative error{held.where}",
            {rival: own[name] for rival, own in errors.items()},
            INDEPENDENT,
            kind="counting queries",
        )
        for name in errors["value"]
    ]


def _joint_scores(held: _Held, rivals: dict[str, Tensor], seed: int, effort: Effort) -> list[Score]:
    """Marginals, correlations and the two-sample test, where there are columns and records enough."""
    if not len(held.x):
        return []
    generator = torch.Generator().manual_seed(seed)
    real, *chosen = (x[torch.randperm(len(x), generator=generator)[:MOST_COMPARED]] for x in (held.x, *rivals.values()))
    others, size = dict(zip(rivals, chosen)), _of(MOST_COMPARED, held.x, *rivals.values())
    scores = []
    if real.shape[1] >= 2:
        distances = {rival: float(marginal_errors(real, x, 2, seed=seed).mean()) for rival, x in others.items()}
        scores.append(beside(f"2-way marginals: mean total variation{held.where}", distances, INDEPENDENT, size))
    if int((real.amax(0) > real.amin(0)).sum()) >= 2:
        errors = {rival: float(correlation_errors(real, x).mean()) for rival, x in others.items()}
        scores.append(beside(f"pairwise correlations: mean absolute error{held.where}", errors, INDEPENDENT, size))
    if min(map(len, (real, *chosen))) >= _LEAST_TESTED:
        tests = {
            rival: classifier_two_sample_test(real, x, most=effort.tested, seed=seed).accuracy for rival, x in others.items()
        }
        scores.append(
            beside(f"classifier two-sample test: accuracy{held.where}", tests, INDEPENDENT, _of(effort.tested, real, *chosen))
        )
    return scores


# -- images ------------------------------------------------------------------------------------------------------------


MOST_VALUES = 2**26
"""Values of the images that are drawn, or that a classifier is trained on, at most: 21,845 images of 32 x 32 in colour."""

_SHOWN, _PER_ROW = 10, 8  # classes of the picture, and images of each


def evaluate_images(
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
    judging = torch.randperm(len(test_x), generator=generator)[: effort.held]
    training = torch.randperm(images.n, generator=generator)[:most]
    judged_x, judged = test_x[judging], test_labels[judging]
    report(0.2, "evaluate")

    def accuracy(x: Tensor, labels: Tensor) -> float:
        shape, epochs = (x.shape[3], *x.shape[1:3]), effort.epochs(len(x), images.x.shape[1:3])
        return train_on_synthetic_accuracy(
            _flat(x), labels, _flat(judged_x), judged, image_shape=shape, seed=seed, epochs=epochs
        )

    scores, where = [], ", on the private images" * private
    if len(test_x):
        chance = chance_level(test_labels)
        some = max(release.size, len(samples), images.n) > most or len(test_x) > effort.held
        real = accuracy(images.x[training], images.labels[training]) if images.n and not private else None
        value = accuracy(samples.x, samples.labels)
        name = f"train on synthetic, test on real: accuracy{where}"
        scores.append(Score(name, value, real=real, chance=chance, sample=f"{most:,} images" * some))
        scores += _of_own_classifier(release, judged_x, judged, where, chance)
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


def _of_own_classifier(release: ImageModel, x: Tensor, labels: Tensor, where: str, chance: float) -> Iterator[Score]:
    """Accuracy of the classifier that a model is itself; nothing of models that are none."""
    if callable(classify := getattr(release, "classify", None)):
        right = float((classify(x) == labels).double().mean())
        yield Score(f"the model's own classifier: accuracy{where}", right, chance=chance)


def _flat(x: Tensor) -> Tensor:
    """Images (n, h, w, c) uint8 as rows (n, c * h * w) in [0, 1]."""
    return image_rows(x) / 255


_SMALLEST = 8  # sides that a network is asked about
_LEAST, _NEIGHBOURS = 50, 5_000
_MOST = {"cuda": 10_000, "cpu": 2_000}  # images that Inception looks at, by its device


class Labelled(NamedTuple):
    """Images (n, channels * height * width) in [0, 1], and their classes (n,) where they have any."""

    x: Tensor
    labels: Tensor | None

    def some(self, n: int, generator: torch.Generator) -> Labelled:
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
    n = min(len(part.x) for part in parts)
    if min(image_shape[-2:]) < _SMALLEST or n < _LEAST:
        return []
    from dpgen.metrics.fidelity import InceptionFeatures, LeNetFeatures  # here, because few evaluations look at images

    options: dict[str, Any] = {"image_shape": image_shape, "seed": seed, "epochs": epochs}
    judge = None if real.labels is None else LeNetFeatures(real.x, real.labels, **options)
    features: LeNetFeatures | InceptionFeatures | None = judge
    by, most = "a network trained on the private images", _MOST["cuda"]
    if inception is not None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        features, by, most = InceptionFeatures(inception, image_shape=image_shape, device=device), "Inception v3", _MOST[device]
    n, generator = min(most, n), torch.Generator().manual_seed(seed)
    shown, own, others = (part.some(n, generator) for part in parts)
    scores, size = list[Score](), f"{n:,} images"
    if features is not None:
        scores += _of_features(features, shown, own, others, by=by, size=size)
    if judge is not None:
        scores += _of_classes(judge, shown, others, size)
    return scores


def _of_classes(judge: LeNetFeatures, shown: Labelled, others: Labelled, size: str) -> Iterator[Score]:
    """The share of images whose class a network sees; nothing is said of images without classes."""
    if shown.labels is not None and others.labels is not None:
        agree, right = (_agreement(judge, part) for part in (shown, others))
        yield Score("class agreement of a network trained on the private images", agree, real=right, sample=size)


def _of_features(
    network: LeNetFeatures | InceptionFeatures, synthetic: Labelled, real: Labelled, held: Labelled, *, by: str, size: str
) -> list[Score]:
    """Distance, neighbourhoods and inception score by features: of synthetic and private images, against the test images."""
    from dpgen.metrics.fidelity import fidelity, frechet_distance, inception_score

    shown, own, others = (network(part.x) for part in (synthetic, real, held))
    far, near = (frechet_distance(others, x) for x in (shown, own))
    scores = [Score(f"Fréchet distance by {by}", far, real=near, better="lower", sample=size)]
    found, expected = (fidelity(others[:_NEIGHBOURS], x[:_NEIGHBOURS]) for x in (shown, own))
    some = f"{min(_NEIGHBOURS, len(shown)):,} images"
    for name in ("precision", "recall"):
        scores.append(Score(f"{name} by {by}", getattr(found, name), real=getattr(expected, name), sample=some))
    seen, usual = (inception_score(network.logits(x)) for x in (shown, own))
    return [*scores, Score(f"inception score by {by}", seen, real=usual, chance=1.0, sample=size)]


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
