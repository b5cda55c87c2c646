"""How good a release is, on records that it was not trained on."""

from typing import Protocol

import torch
from torch import Tensor

from dpgen.data import Records
from dpgen.metrics import (
    chance_level,
    clustering_accuracy,
    independent_marginals,
    query_errors,
    train_on_synthetic_accuracy,
)
from dpgen.release import PublicModel, Samples
from dpgen.report import Score

MOST_SYNTHETIC = 60_000
NOT_COVERED = (
    "reference values in metrics.json (a classifier, queries and marginals on private records) and real pictures in samples.png"
)
"""What a statement says about the files of an evaluation."""


class Clusters(Protocol):
    """A release that can tell the cluster of a record."""

    def assign(self, x: Tensor) -> Tensor: ...


def evaluate(release: PublicModel, records: Records, *, seed: int) -> tuple[list[Score], Samples]:
    """Scores of a release against the test records, and the synthetic records that were scored.

    Train-on-synthetic accuracy stands beside the same classifier trained on the private records, counting queries beside
    the private records' and their independent marginals' errors. These reference values, like the test records
    themselves, are not covered by the privacy guarantee.
    """
    samples = release.sample(min(records.n, MOST_SYNTHETIC), seed=seed)
    scores = []
    if samples.labels is not None and records.labels is not None and records.test_labels is not None:
        test = (records.test_x, records.test_labels)
        shape = records.image_shape
        scores.append(
            Score(
                "train on synthetic, test on real: accuracy",
                train_on_synthetic_accuracy(samples.x, samples.labels, *test, image_shape=shape, seed=seed),
                real=train_on_synthetic_accuracy(records.x, records.labels, *test, image_shape=shape, seed=seed),
                chance=chance_level(records.test_labels),
            )
        )
    clusters = release.assign(records.test_x) if hasattr(release, "assign") else None
    if clusters is not None and records.test_labels is not None:
        scores.append(
            Score("clustering accuracy", clustering_accuracy(records.test_labels, clusters), chance=chance_level(records.test_labels))
        )
    generator = torch.Generator().manual_seed(seed)
    errors = query_errors(records.test_x, samples.x, seed=seed)
    real = query_errors(records.test_x, records.x, seed=seed)
    marginals = query_errors(records.test_x, independent_marginals(records.x, records.n, generator=generator), seed=seed)
    scores += [
        Score(f"counting queries {name}: relative error", value, real=real[name], chance=marginals[name], better="lower",
            baseline="independent marginals")
        for name, value in errors.items()
    ]
    return scores, samples
