"""Whether a classifier can tell synthetic from real records: 1/2 is the best that a release can reach."""

from typing import Any, NamedTuple

import torch
from scipy.stats import hypergeom
from torch import Tensor

from dpgen.metrics.classification import Kind, predicted_classes
from dpgen.metrics.sample_pair import SamplePair


class TwoSampleTest(NamedTuple):
    """Outcome of a classifier two-sample test.

    Arguments:
        accuracy: share of the tested records that the classifier assigns to the right sample.
        chance: accuracy without any difference between the samples; exactly 1/2, for both have as many tested records.
        p_value: probability of this accuracy or a higher one if both samples come from one distribution.
        n: tested records of each sample.
    """

    accuracy: float
    chance: float
    p_value: float
    n: int


def classifier_two_sample_test(
    real: Tensor,
    synthetic: Tensor,
    *,
    kind: Kind = "boosting",
    image_shape: tuple[int, int] | None = None,
    most: int | None = None,
    seed: int = 0,
) -> TwoSampleTest:
    """Train a classifier to tell real from synthetic records and test it on others (C2ST).

    As many records of each sample, drawn without replacement, one half to train and one half to test. The p-value is
    exact (Fisher's test of the answers against the truth), for records of one distribution can change places. A record
    that is in both samples, or twice in one, counts as evidence: copies of training records are what it also finds.

    Arguments:
        real: records, (n, d), n >= 4.
        synthetic: records, (m, d), m >= 4.
        kind: of classifier, see `train_on_synthetic_accuracy`; trees see interactions of features, "logistic" none.
        image_shape: (height, width), for the "cnn".
        most: at most so many records of each sample are used; None: all that both have.
        seed: of the choice of records and of the classifier.

    Raises:
        ValueError: fewer than four records of a sample, or as `train_on_synthetic_accuracy`.

    Source: Lopez-Paz and Oquab 2017; their p-value is the normal approximation.

    Example:
        >>> x = torch.arange(400.0)[:, None]
        >>> classifier_two_sample_test(x[:200], x[200:]).accuracy > 0.95
        True
    """
    for name, x in (("real", real), ("synthetic", synthetic)):
        if x.ndim != 2 or x.shape[1] == 0 or len(x) < 4:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: it must be (records >= 4, features >= 1)")
    if most is not None and most < 4:
        raise ValueError(f"most is {most}: it must be >= 4, or None")
    if real.shape[1] != synthetic.shape[1]:
        raise ValueError(f"synthetic has {synthetic.shape[1]} features, real has {real.shape[1]}: they must agree")
    size = min(len(real), len(synthetic), most or len(real))
    half = size // 2
    generator = torch.Generator().manual_seed(seed)
    train, test = [], []
    for x in (real.cpu(), synthetic.cpu()):
        chosen = x[torch.randperm(len(x), generator=generator)[:size]]
        train.append(chosen[:half])
        test.append(chosen[half:])
    n = size - half
    train_y = torch.arange(2).repeat_interleave(half)
    options: dict[str, Any] = {"kind": kind, "image_shape": image_shape, "seed": seed}
    calls = predicted_classes(torch.cat(train), train_y, torch.cat(test), n_classes=2, **options)
    found, false = int(calls[n:].sum()), int(calls[:n].sum())
    p_value = float(hypergeom.sf(found - 1, 2 * n, n, found + false))
    return TwoSampleTest((found + n - false) / (2 * n), 0.5, min(1.0, p_value), n)


class ClassifierTwoSampleTest(SamplePair):
    """`classifier_two_sample_test` over batches (b, d): a dictionary with accuracy, chance, p_value and n.

    Arguments:
        options: `kind`, `image_shape`, `most` and `seed`.
        kwargs: of `torchmetrics.Metric`.
    """

    higher_is_better = False

    def __init__(self, options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.options = dict(options or {})

    def _compare(self, real: Tensor, synthetic: Tensor) -> dict[str, float]:
        return classifier_two_sample_test(real, synthetic, **self.options)._asdict()
