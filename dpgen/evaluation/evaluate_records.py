"""How good a model of binary records is, on records that it was not trained on."""

from pathlib import Path

import torch

from dpgen.data import Records
from dpgen.evaluation.evaluation import Evaluation
from dpgen.metrics import (
    chance_level,
    clustering_accuracy,
    independent_marginals,
    query_errors,
    train_on_synthetic_accuracy,
)
from dpgen.release import RecordModel, Samples
from dpgen.report import Score, samples_figure

MOST_SYNTHETIC = 60_000
NOT_COVERED = (
    "reference values in metrics.json (a classifier, queries and marginals on private records) "
    "and real pictures in samples.png are not covered"
)
"""What a statement says about the files of an evaluation."""


def evaluate_records(release: RecordModel, records: Records, *, seed: int) -> Evaluation:
    """Scores of a release against the test records, and the synthetic records that were scored.

    Train-on-synthetic accuracy stands beside the same classifier trained on the private records, counting queries beside
    the private records' and their independent marginals' errors. These reference values, like the test records
    themselves, are not covered by the privacy guarantee. The number of synthetic records is the release's own noisy
    size, for the number of private records is private too.
    """
    samples = release.sample(min(max(release.size, 1), MOST_SYNTHETIC), seed=seed)

    def picture(path: Path) -> None:
        samples_figure(records.test_x, samples.by_cluster(), records.image_shape, path)

    return Evaluation(
        scores=_label_scores(release, samples, records, seed) + _query_scores(samples, records, seed),
        released={"samples.npz": samples.save},
        pictures={"samples.png": picture},
    )


def _label_scores(release: RecordModel, samples: Samples, records: Records, seed: int) -> list[Score]:
    if records.labels is None or records.test_labels is None:
        return []
    scores, chance = [], chance_level(records.test_labels)
    if samples.labels is not None:
        name = "train on synthetic, test on real: accuracy"
        parts = ((samples.x, samples.labels), (records.x, records.labels))
        synthetic, real = (
            train_on_synthetic_accuracy(
                x, labels, records.test_x, records.test_labels, image_shape=records.image_shape, seed=seed
            )
            for x, labels in parts
        )
        scores.append(Score(name, synthetic, real=real, chance=chance))
    clusters = release.assign(records.test_x)
    if clusters is not None:
        accuracy = clustering_accuracy(records.test_labels, clusters)
        scores.append(Score("clustering accuracy", accuracy, chance=chance))
    return scores


def _query_scores(samples: Samples, records: Records, seed: int) -> list[Score]:
    generator = torch.Generator().manual_seed(seed)
    baseline = independent_marginals(records.x, records.n, generator=generator)
    errors, real, marginals = (query_errors(records.test_x, x, seed=seed) for x in (samples.x, records.x, baseline))
    return [
        Score(
            f"counting queries {name}: relative error",
            errors[name],
            real=real[name],
            chance=marginals[name],
            better="lower",
            baseline="independent marginals",
        )
        for name in errors
    ]
