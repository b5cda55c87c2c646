"""Evaluation of models of binary records on records that they were not trained on, with pictures of both."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dpgen.data import Images, MappedRecords, Records, Table
from dpgen.data.stored import StreamedRecords
from dpgen.evaluation.images import Labelled, image_scores, samples_figure
from dpgen.evaluation.scores import FULL, MOST_SYNTHETIC, Effort, Evaluation, Score, beside, require_size
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
from dpgen.release import RecordModel
from dpgen.samples import RecordSamples, image_rows
from dpgen.systems.dp_sgd.model import ReleasedModule, one_hot_rows

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
        compared = _as_images(samples, records, held)
        scores += image_scores(*compared, image_shape=records.image_shape, inception=inception, seed=seed)
    return Evaluation(
        scores=scores if len(held.x) else [],
        released={"samples.npz": partial(samples.encoded, ".npz")},
        pictures={} if held.private else {"samples.png": picture},
        notes=() if drawn == size else (_FEWER.format(drawn=drawn, size=size, passes=release.passes),),
    )


def evaluate_stored(release: RecordModel, records: MappedRecords | StreamedRecords, *, seed: int, **options: Any) -> Evaluation:
    """Evaluation of a model on records on disk or in an engine, by a public choice of these."""
    evaluation = evaluate(release, records.some(LOOKED_AT), seed=seed, **options)
    chosen = (_CHOSEN.format(LOOKED_AT),) if max(records.n, records.n_test) > LOOKED_AT else ()
    return replace(evaluation, notes=(*evaluation.notes, *chosen))


def evaluate_classifier(release: ReleasedModule, data: Records | Images | Table) -> Evaluation:
    """Accuracy of a classifier on the records that were held out, beside that of the most frequent label among them."""
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
