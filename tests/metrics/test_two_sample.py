"""The classifier two-sample test against scipy's exact test, on samples that differ, that do not, and that overlap."""

import math
import sys

import pytest
import torch
from scipy.stats import fisher_exact
from torch import Tensor

from dpgen.metrics.classification import classifier_two_sample_test

MODULE = sys.modules["dpgen.metrics.classification"]


def bits(n: int, seed: int, d: int = 8) -> Tensor:
    return torch.randint(0, 2, (n, d), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


@pytest.mark.parametrize("share", [0.0, 0.4, 0.5, 0.7, 1.0])
def test_accuracy_and_p_value_agree_with_fisher(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stub in place of the classifier; the truth of a record is its first feature."""
    seen: dict[str, Tensor] = {}

    def stub(train_x: Tensor, train_y: Tensor, test_x: Tensor, **_: object) -> Tensor:
        assert torch.equal(train_x[:, 0], train_y), "real records are class 0"
        right = torch.rand(len(test_x), generator=torch.Generator().manual_seed(1)) < share
        seen["truth"], seen["calls"] = test_x[:, 0], torch.where(right, test_x[:, 0], 1 - test_x[:, 0])
        return seen["calls"]

    monkeypatch.setattr(MODULE, "predicted_classes", stub)
    real, synthetic = torch.zeros(43, 1, dtype=torch.int64), torch.ones(70, 1, dtype=torch.int64)
    found = classifier_two_sample_test(real, synthetic)
    truth, calls = seen["truth"], seen["calls"]
    assert (int((truth == 0).sum()), int((truth == 1).sum()), found.n) == (22, 22, 22)
    table = [[int(((truth == i) & (calls == j)).sum()) for j in (1, 0)] for i in (1, 0)]
    assert found.accuracy == pytest.approx(float((truth == calls).double().mean()), abs=1e-12)
    assert found.p_value == pytest.approx(fisher_exact(table, alternative="greater").pvalue, rel=1e-6)
    assert found.chance == 0.5


@pytest.mark.parametrize("kind", ["boosting", "logistic"])
def test_one_distribution_gives_chance(kind: str) -> None:
    found = classifier_two_sample_test(bits(400, 0), bits(400, 1), kind=kind)
    assert abs(found.accuracy - 0.5) < 4 * math.sqrt(0.25 / 400)
    assert found.p_value > 1e-4


def test_p_values_of_one_distribution_are_not_too_small() -> None:
    small = [classifier_two_sample_test(bits(60, i), bits(60, 100 + i), seed=i).p_value < 0.2 for i in range(40)]
    assert sum(small) <= 22, "Binomial(40, 0.2) exceeds 22 with probability below 1e-6"


def test_dependence_that_no_marginal_shows() -> None:
    """Parity of the first two bits: trees see it, a linear classifier cannot."""
    real = bits(800, 0)
    real[:, 1] = real[:, 0]
    trees, linear = (classifier_two_sample_test(real, bits(800, 1), kind=kind) for kind in ("boosting", "logistic"))
    assert trees.accuracy > 0.7
    assert trees.p_value < 1e-9
    assert linear.accuracy < 0.6


def test_seed_and_size() -> None:
    real, synthetic = bits(300, 0), bits(200, 1)
    first, again, other = (classifier_two_sample_test(real, synthetic, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert (first.n, classifier_two_sample_test(real, synthetic, most=41).n) == (100, 21)


def test_degenerate_samples() -> None:
    same = torch.ones(30, 2)
    found = classifier_two_sample_test(same, same)
    assert (found.accuracy, found.p_value) == (0.5, 1.0)
    assert classifier_two_sample_test(same[:4], same - 1, kind="logistic").accuracy == 1


X = torch.zeros(8, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: classifier_two_sample_test(X[:3], X), r"real has shape \(3, 2\): it must be \(n >= 4"),
        (lambda: classifier_two_sample_test(X, X[0]), r"synthetic has shape \(2,\)"),
        (lambda: classifier_two_sample_test(X, X[:, :1]), "synthetic has 1 columns, real has 2"),
        (lambda: classifier_two_sample_test(X, X, most=3), "most is 3: it must be >= 4"),
        (lambda: classifier_two_sample_test(X * math.nan, X), "real has a value that is not finite"),
        (lambda: classifier_two_sample_test(X, X, kind="svm"), "kind is 'svm'"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
