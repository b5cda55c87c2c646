"""Evaluation of models of binary records on records that they were not trained on, with pictures of both."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dpgen.data import MappedRecords, Records
from dpgen.data.sql_records import StreamedRecords
from dpgen.evaluation.fidelity import Labelled, image_scores
from dpgen.evaluation.scores import Evaluation, Score, require_size
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
from dpgen.metrics.classification import CNN_SIDE
from dpgen.progress import report
from dpgen.release import GreySamples, RecordModel, RecordSamples

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# -- figures -----------------------------------------------------------------------------------------------------------


def samples_figure(
    real: Tensor,
    synthetic_by_cluster: Mapping[str, Tensor] | Sequence[Tensor],
    image_shape: tuple[int, ...] | None,
    path: Path | str,
    *,
    per_row: int = 8,
    title: str = "",
) -> Path:
    """Real records beside samples of each cluster, one cluster a row (Fig. 3 of Acs et al. 2017).

    Without an image shape the share of ones of each feature is compared instead: real against synthetic.
    The real records are shown as they are: give records that may be shown.

    Arguments:
        real: records, values in [0, 1], shape (n, d).
        synthetic_by_cluster: samples (m_c, d) of each cluster, by label or in order; empty ones are left blank.
        image_shape: (height, width) or (height, width, channels) of d values, or None.
        path: file to write; its suffix chooses the format (.png, .pdf, .svg).
        per_row: samples shown of each cluster.
        title: of the whole picture, such as the guarantee of the samples.

    Raises:
        ValueError: if there is nothing to show or the shapes do not agree.
    """
    if not isinstance(synthetic_by_cluster, Mapping):
        synthetic_by_cluster = {f"cluster {c}": samples for c, samples in enumerate(synthetic_by_cluster)}
    _require_samples(real, synthetic_by_cluster, image_shape)
    if per_row < 1:
        raise ValueError(f"per_row is {per_row}: it must be >= 1")
    if image_shape is None:
        figure = _marginals_figure(real, synthetic_by_cluster)
    else:
        figure = _images_figure(real, synthetic_by_cluster, image_shape, per_row)
    if title:
        figure.suptitle(title, fontsize=8)
    return save_figure(figure, path)


def _images_figure(real: Tensor, clusters: Mapping[str, Tensor], image_shape: tuple[int, ...], per_row: int) -> "Figure":
    rows, (height, width) = len(clusters), image_shape[:2]
    figure = new_figure(2 * 0.45 * per_row + 1.6, max(0.45 * rows * height / width, 0.45) + 0.5)
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    real_rows = [real[row * per_row : (row + 1) * per_row] for row in range(rows)]
    titles = ("real", "synthetic")
    for axes, parts, title in zip((left, right), (real_rows, list(clusters.values())), titles):
        show_images(axes, parts, image_shape, per_row)
        axes.set(title=title, xticks=[], yticks=[])
    right.set_yticks([(row + 0.5) * (height + 1) - 0.5 for row in range(rows)], labels=list(clusters), fontsize=7)
    right.tick_params(length=0)
    return figure


def _marginals_figure(real: Tensor, clusters: Mapping[str, Tensor]) -> "Figure":
    figure = new_figure(4.5, 4.5)
    axes = figure.add_subplot()
    synthetic = torch.cat([samples.float().cpu() for samples in clusters.values() if len(samples)])
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    axes.scatter(real.float().cpu().mean(0).numpy(), synthetic.mean(0).numpy(), s=8, alpha=0.6)
    axes.set(xlabel="share of ones, real", ylabel="share of ones, synthetic", title=f"{real.shape[1]} features")
    return figure


def _require_samples(real: Tensor, clusters: Mapping[str, Tensor], image_shape: tuple[int, ...] | None) -> None:
    if real.ndim != 2 or real.numel() == 0:
        raise ValueError(f"real has shape {tuple(real.shape)}: it must be (records, features), both at least 1")
    if not any(len(samples) for samples in clusters.values()):
        raise ValueError(f"synthetic_by_cluster has {len(clusters)} clusters and no sample: at least one is needed")
    for name, samples in clusters.items():
        if samples.ndim != 2 or samples.shape[1] != real.shape[1]:
            raise ValueError(f"samples of {name} have shape {tuple(samples.shape)}: they must be (m, {real.shape[1]})")
    if image_shape is not None and math.prod(image_shape) != real.shape[1]:
        raise ValueError(f"image_shape is {image_shape}: it must have {real.shape[1]} pixels, the features of a record")


# -- evaluation --------------------------------------------------------------------------------------------------------


MOST_SYNTHETIC = 60_000
MOST_COMPARED = 10_000
"""Records whose marginals and correlations are compared; a random choice where there are more."""

_LEAST_TESTED = 20


@dataclass(frozen=True)
class Effort:
    """Numbers of records of each sample that figures are computed on, at most; a random choice where there are more.

    Arguments:
        trained: by the classifier that is trained on synthetic records.
        held: of the test records that judge that classifier.
        tested: by the classifier two-sample test.
        slow: synthetic records that are drawn, and scored, of a model that takes many passes for each.
        steps: of training a convolutional network; None: as many as it usually has.
        looks: whether features of images are compared, by a network that takes minutes.
    """

    trained: int
    held: int
    tested: int
    slow: int = MOST_SYNTHETIC
    steps: int | None = None
    looks: bool = False

    def epochs(self, n: int, image_shape: tuple[int, ...] | None) -> int | None:
        """Passes over n records of training; None: the usual ones."""
        if self.steps is None or image_shape is None or min(image_shape[:2]) < CNN_SIDE:
            return None
        return max(1, self.steps * 256 // n)


FULL = Effort(trained=MOST_SYNTHETIC, held=MOST_SYNTHETIC, tested=2_000, looks=True)
QUICK = Effort(trained=10_000, held=2_000, tested=500, slow=10_000, steps=120)
"""Up to a minute on a core for 60,000 images of 784 pixels; counting queries look at all records."""

_FEWER = (
    "{drawn:,} synthetic records were drawn and scored, not {size:,}, for each takes {passes} passes through the model: "
    "--evaluation full, or dpgen sample, draws more"
)
LOOKED_AT = 60_000
"""Records on disk or in an engine, of each part, that an evaluation holds in memory."""

_CHOSEN = "scores look at {:,} of the records at most, a choice by public randomness"


@dataclass(frozen=True)
class _Held:
    """The records that scores compare with: the test records or, where there are none, the private ones themselves."""

    x: Tensor
    labels: Tensor | None
    grey: Tensor | None
    private: bool

    @classmethod
    def of(cls, records: Records) -> "_Held":
        if len(records.test_x):
            return cls(records.test_x, records.test_labels, records.test_grey, private=False)
        return cls(records.x, records.labels, records.grey, private=True)

    @property
    def where(self) -> str:
        """Suffix of the names of scores."""
        return ", on the private records" if self.private else ""


def evaluate(
    release: RecordModel,
    records: Records,
    *,
    seed: int,
    effort: Effort = FULL,
    inception: nn.Module | None = None,
) -> Evaluation:
    """Scores of a release against the test records, and the synthetic records that were scored.

    Train-on-synthetic accuracy stands beside the same classifier trained on the private records; counting queries, pairs
    of columns and the classifier two-sample test (1/2: nothing tells the samples apart) stand beside what the private
    records and their independent marginals reach. These reference values, like the test records
    themselves, are not covered by the privacy guarantee. The number of synthetic records is the release's own noisy
    size, for the number of private records is private too.

    Without test records scores compare with the private records, say so in their names, and have no value of real data
    beside them; without any record there are none. Pictures show test records only.

    Of more records than `effort` allows a random choice is looked at, whose size stands beside the score. In full, distances
    of features of images stand beside them (`image_scores`), by `inception` where it is given.
    """
    require_size(release, "records", RecordModel)
    report(0.0, "sample")
    size = min(max(release.size, 1), MOST_SYNTHETIC)
    drawn = min(size, effort.slow) if release.passes > 1 else size
    samples = release.samples(drawn, random_state=seed)
    held = _Held.of(records)

    def picture(path: Path) -> None:
        title = release.statement.in_words()
        samples_figure(held.x, samples.by_cluster(), records.image_shape, path, title=title)

    generator = torch.Generator().manual_seed(seed)
    rivals = {"value": samples.x}
    if not held.private and records.n:
        rivals["real"] = records.x
    if records.n:
        rivals["chance"] = independent_marginals(records.x, records.n, generator=generator)
    report(0.1, "evaluate")
    scores = [*_query_scores(held, rivals, seed), *_joint_scores(held, rivals, seed, effort)]
    report(0.5)
    scores = [*_label_scores(release, samples, records, held, seed, effort), *scores]
    if effort.looks and records.image_shape is not None and not held.private:
        views = list(_views(samples, records, held).values())[-1]
        labels = (samples.labels, records.labels, held.labels)
        shown, own, test = (Labelled(x, of) for x, of in zip(views, labels))
        scores += image_scores(shown, own, test, image_shape=records.image_shape, inception=inception, seed=seed)
    return Evaluation(
        scores=scores if len(held.x) else [],
        released={"samples.npz": partial(samples.encoded, ".npz")},
        pictures={} if held.private else {"samples.png": picture},
        notes=() if drawn == size else (_FEWER.format(drawn=drawn, size=size, passes=release.passes),),
    )


def evaluate_stored(release: RecordModel, records: MappedRecords | StreamedRecords, *, seed: int, **options: Any) -> Evaluation:
    """The same for records on disk or in an engine, of which a public choice is looked at."""
    evaluation = evaluate(release, records.some(LOOKED_AT), seed=seed, **options)
    chosen = (_CHOSEN.format(LOOKED_AT),) if max(records.n, records.n_test) > LOOKED_AT else ()
    return replace(evaluation, notes=(*evaluation.notes, *chosen))


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
        return train_on_synthetic_accuracy(
            x[chosen],
            labels[chosen],
            test_x[judging],
            held.labels[judging],
            image_shape=shape,
            seed=seed,
            epochs=effort.epochs(len(chosen), shape),
        )

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
    if isinstance(samples, GreySamples) and records.grey is not None and held.grey is not None:
        views[f"{name} on grey values"] = (samples.grey / 255, records.grey / 255, held.grey / 255)
    return views


def _query_scores(held: _Held, rivals: dict[str, Tensor], seed: int) -> list[Score]:
    if not len(held.x):
        return []
    errors = {rival: query_errors(held.x, x, seed=seed) for rival, x in rivals.items()}
    return [
        _beside_marginals(f"counting queries {name}: relative error{held.where}", {r: own[name] for r, own in errors.items()})
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
        scores.append(_beside_marginals(f"2-way marginals: mean total variation{held.where}", distances, size))
    if int((real.amax(0) > real.amin(0)).sum()) >= 2:
        errors = {rival: float(correlation_errors(real, x).mean()) for rival, x in others.items()}
        scores.append(_beside_marginals(f"pairwise correlations: mean absolute error{held.where}", errors, size))
    if min(map(len, (real, *chosen))) >= _LEAST_TESTED:
        tests = {
            rival: classifier_two_sample_test(real, x, most=effort.tested, seed=seed).accuracy for rival, x in others.items()
        }
        scores.append(
            _beside_marginals(f"classifier two-sample test: accuracy{held.where}", tests, _of(effort.tested, real, *chosen))
        )
    return scores


def _beside_marginals(name: str, values: dict[str, float], sample: str = "") -> Score:
    """A score whose values are the synthetic records', the private records' and their independent marginals'."""
    real, chance = values.get("real"), values.get("chance")
    return Score(
        name, values["value"], real=real, chance=chance, better="lower", baseline="independent marginals", sample=sample
    )
