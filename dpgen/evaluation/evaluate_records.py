"""How good a model of binary records is, on records that it was not trained on."""

from pathlib import Path

import torch
from torch import Tensor

from dpgen.data import Records
from dpgen.evaluation.evaluation import Evaluation
from dpgen.evaluation.record_figures import samples_figure
from dpgen.evaluation.scores import Score
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
from dpgen.release import RecordModel
from dpgen.samples import RecordSamples

MOST_SYNTHETIC = 60_000
MOST_COMPARED = 10_000
"""Records whose marginals and correlations are compared; a random choice where there are more."""

MOST_TESTED = 2_000
"""Records of each sample that the classifier two-sample test uses."""

_LEAST_TESTED = 20

NOT_COVERED = (
    "reference values in metrics.json (a classifier, queries and marginals on private records) "
    "and real pictures in samples.png are not covered"
)
"""What a statement says about the files of an evaluation."""


def evaluate_records(release: RecordModel, records: Records, *, seed: int) -> Evaluation:
    """Scores of a release against the test records, and the synthetic records that were scored.

    Train-on-synthetic accuracy stands beside the same classifier trained on the private records; counting queries, pairs
    of columns and the classifier two-sample test (1/2: nothing tells the samples apart) stand beside what the private
    records and their independent marginals reach. These reference values, like the test records
    themselves, are not covered by the privacy guarantee. The number of synthetic records is the release's own noisy
    size, for the number of private records is private too.
    """
    samples = release.sample(min(max(release.size, 1), MOST_SYNTHETIC), seed=seed)

    def picture(path: Path) -> None:
        samples_figure(records.test_x, samples.by_cluster(), records.image_shape, path)

    generator = torch.Generator().manual_seed(seed)
    rivals = (samples.x, records.x, independent_marginals(records.x, records.n, generator=generator))
    return Evaluation(
        scores=[
            *_label_scores(release, samples, records, seed),
            *_query_scores(records.test_x, rivals, seed),
            *_joint_scores(records.test_x, rivals, seed),
        ],
        released={"samples.npz": samples.save},
        pictures={"samples.png": picture},
    )


def _label_scores(release: RecordModel, samples: RecordSamples, records: Records, seed: int) -> list[Score]:
    if records.labels is None or records.test_labels is None:
        return []
    scores, chance = [], chance_level(records.test_labels)
    if samples.labels is not None:
        for name, (synthetic_x, real_x, test_x) in _views(samples, records).items():
            synthetic, real = (
                train_on_synthetic_accuracy(x, labels, test_x, records.test_labels, image_shape=records.image_shape, seed=seed)
                for x, labels in ((synthetic_x, samples.labels), (real_x, records.labels))
            )
            scores.append(Score(name, synthetic, real=real, chance=chance))
    clusters = release.assign(records.test_x)
    if clusters is not None:
        accuracy = clustering_accuracy(records.test_labels, clusters)
        scores.append(Score("clustering accuracy", accuracy, chance=chance))
    return scores


def _views(samples: RecordSamples, records: Records) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Synthetic, private and test records as a classifier sees them: bits, and grey values where all three have them."""
    name = "train on synthetic, test on real: accuracy"
    views = {name: (samples.x, records.x, records.test_x)}
    grey = getattr(samples, "grey", None)
    if grey is not None and records.grey is not None and records.test_grey is not None:
        views[f"{name} on grey values"] = (grey / 255, records.grey / 255, records.test_grey / 255)
    return views


def _query_scores(test_x: Tensor, rivals: tuple[Tensor, ...], seed: int) -> list[Score]:
    errors = [query_errors(test_x, x, seed=seed) for x in rivals]
    return [_beside_marginals(f"counting queries {name}: relative error", [e[name] for e in errors]) for name in errors[0]]


def _joint_scores(test_x: Tensor, rivals: tuple[Tensor, ...], seed: int) -> list[Score]:
    """What columns do together, where there are columns and records enough to say it."""
    generator = torch.Generator().manual_seed(seed)
    real, *others = (x[torch.randperm(len(x), generator=generator)[:MOST_COMPARED]] for x in (test_x, *rivals))
    scores = []
    if real.shape[1] >= 2:
        distances = [float(marginal_errors(real, x, 2, seed=seed).mean()) for x in others]
        scores.append(_beside_marginals("2-way marginals: mean total variation", distances))
    if int((real.amax(0) > real.amin(0)).sum()) >= 2:
        errors = [float(correlation_errors(real, x).mean()) for x in others]
        scores.append(_beside_marginals("pairwise correlations: mean absolute error", errors))
    if min(map(len, (real, *others))) >= _LEAST_TESTED:
        tests = [classifier_two_sample_test(real, x, most=MOST_TESTED, seed=seed).accuracy for x in others]
        scores.append(_beside_marginals("classifier two-sample test: accuracy", tests))
    return scores


def _beside_marginals(name: str, values: list[float]) -> Score:
    """A score whose values are the synthetic records', the private records' and their independent marginals'."""
    value, real, chance = values
    return Score(name, value, real=real, chance=chance, better="lower", baseline="independent marginals")
