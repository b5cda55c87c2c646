"""Train on synthetic, test on real; the classifier two-sample test; clustering accuracy."""

from importlib import import_module
from itertools import permutations

import pytest
import torch
from refusals import refused
from scipy.stats import fisher_exact
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor

from dpgen.data import load_digits
from dpgen.metrics.classification import (
    chance_level,
    classifier_two_sample_test,
    clustering_accuracy,
    predicted_classes,
    train_on_synthetic_accuracy,
    train_on_synthetic_auc,
    trained_cnn,
)
from dpgen.metrics.queries import independent_marginals

DIGITS = load_digits()


def stripes(n: int, side: int = 16, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Images of horizontal (0) or vertical (1) lines at random places, a tenth of the pixels turned over."""
    generator = torch.Generator().manual_seed(seed)
    lines = (torch.rand(n, side, 1, generator=generator) < 0.4).expand(n, side, side)
    y = torch.randint(0, 2, (n,), generator=generator)
    images = torch.where(y[:, None, None] == 1, lines.transpose(1, 2), lines)
    turned = torch.rand(n, side, side, generator=generator) < 0.1
    return (images ^ turned).to(torch.uint8).flatten(1), y


def test_digits_are_learnt_and_records_that_carry_nothing_reach_chance() -> None:
    test = DIGITS.test_x, DIGITS.test_labels
    assert 0.92 < train_on_synthetic_accuracy(DIGITS.x, DIGITS.labels, *test, image_shape=(8, 8)) < 0.99
    labels = DIGITS.labels[torch.randperm(DIGITS.n, generator=torch.Generator().manual_seed(0))]
    assert train_on_synthetic_accuracy(DIGITS.x, labels, *test, epochs=5) < chance_level(DIGITS.test_labels) + 0.1


def test_boosting_is_that_of_scikit_learn() -> None:
    train, test = (DIGITS.x[:600], DIGITS.labels[:600]), (DIGITS.test_x, DIGITS.test_labels)
    trees = HistGradientBoostingClassifier(max_iter=5, early_stopping=False, random_state=7)
    trees.fit(*(part.numpy() for part in train))
    found = predicted_classes(*train, test[0], kind="boosting", epochs=5, seed=7)
    assert found.tolist() == trees.predict(test[0].numpy()).tolist()
    accuracy = train_on_synthetic_accuracy(*train, *test, kind="boosting", epochs=5, seed=7)
    assert accuracy == pytest.approx(trees.score(*(part.numpy() for part in test)), abs=1e-12)


def test_the_cnn_learns_what_no_single_pixel_shows_and_is_the_one_that_classifies() -> None:
    (x, y), (test_x, test_y) = stripes(600), stripes(300, seed=1)
    options = {"image_shape": (16, 16), "epochs": 6}
    assert train_on_synthetic_accuracy(x, y, test_x, test_y, **options) > 0.95
    network = trained_cnn(x, y, **options)
    assert network(test_x.float()).argmax(1).tolist() == predicted_classes(x, y, test_x, kind="cnn", **options).tolist()


@pytest.mark.parametrize("kind", ["cnn", "mlp"])
def test_seed_alone_decides(kind: str) -> None:
    (x, y), (test_x, test_y) = stripes(200), stripes(500, seed=1)
    runs = []
    for seed in (1, 1, 2, 3, 4):
        torch.rand(seed)
        options = {"image_shape": (16, 16), "kind": kind, "epochs": 1}
        runs.append(train_on_synthetic_accuracy(x, y, test_x, test_y, seed=seed, **options))
    assert runs[0] == runs[1]
    assert len(set(runs)) > 1


def test_global_random_state_and_grad_mode_are_left_alone() -> None:
    (x, y), (test_x, test_y) = stripes(50), stripes(20, seed=1)
    outside = train_on_synthetic_accuracy(x, y, test_x, test_y, epochs=1)
    before = torch.random.get_rng_state()
    with torch.inference_mode():
        assert train_on_synthetic_accuracy(x, y, test_x, test_y, epochs=1) == outside
        assert not torch.is_grad_enabled()
    assert torch.equal(before, torch.random.get_rng_state())


def test_class_that_is_missing_from_the_training_records() -> None:
    x = torch.eye(3).repeat(20, 1)
    y = x.argmax(1)
    assert train_on_synthetic_accuracy(x[y < 2], y[y < 2], x, y, epochs=40) == pytest.approx(2 / 3)
    assert train_on_synthetic_accuracy(x, y, x[y < 2], y[y < 2], epochs=40) == 1


X, Y = torch.zeros(4, 6), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        ((X[:0], Y[:0], X, Y), {}, "train_x"),
        ((X, Y, X[:, :0], Y), {}, "test_x"),
        ((X, Y[:3], X, Y), {}, "train_y"),
        ((X, Y, X, Y.float()), {}, "test_y"),
        ((X, -Y, X, Y), {}, "train_y"),
        ((X * float("nan"), Y, X, Y), {}, "train_x"),
        ((X, Y, X[:, :5], Y), {}, "test_x"),
        ((X, Y, X, Y), {"kind": "svm"}, "kind"),
        ((X, Y, X, Y), {"kind": "cnn"}, "image_shape"),
        ((X, Y, X, Y), {"kind": "cnn", "image_shape": (2, 3)}, "image_shape"),
        ((X, Y, X, Y), {"image_shape": (3, 3)}, "image_shape"),
        ((X, Y, X, Y), {"epochs": 0}, "epochs"),
    ],
)
def test_bad_input(arguments: tuple, options: dict, name: str) -> None:
    with refused(name):
        train_on_synthetic_accuracy(*arguments, **options)


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

    monkeypatch.setattr(import_module("dpgen.metrics.classification"), "predicted_classes", stub)
    real, synthetic = torch.zeros(43, 1, dtype=torch.int64), torch.ones(70, 1, dtype=torch.int64)
    found = classifier_two_sample_test(real, synthetic)
    truth, calls = seen["truth"], seen["calls"]
    assert (int((truth == 0).sum()), int((truth == 1).sum()), found.n) == (22, 22, 22)
    table = [[int(((truth == i) & (calls == j)).sum()) for j in (1, 0)] for i in (1, 0)]
    assert found.accuracy == pytest.approx(float((truth == calls).double().mean()), abs=1e-12)
    assert found.p_value == pytest.approx(fisher_exact(table, alternative="greater").pvalue, rel=1e-6)
    assert found.chance == 0.5


def test_p_values_of_one_distribution_are_not_too_small() -> None:
    small = [classifier_two_sample_test(bits(60, i), bits(60, 100 + i), seed=i).p_value < 0.2 for i in range(20)]
    assert sum(small) <= 14, "Binomial(20, 0.2) exceeds 14 with probability below 1e-6"


def test_seed_and_size() -> None:
    real, synthetic = bits(300, 0), bits(200, 1)
    first, again, other = (classifier_two_sample_test(real, synthetic, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert (first.n, classifier_two_sample_test(real, synthetic, most=41).n) == (100, 21)
    same = torch.ones(30, 2)
    assert classifier_two_sample_test(same, same)[::2] == (0.5, 1.0)


def by_enumeration(labels: list[int], clusters: list[int], size: int) -> float:
    """The definition itself: the best of all one-to-one mappings of clusters to (padded) classes."""
    return max(sum(u[c] == y for y, c in zip(labels, clusters)) for u in permutations(range(size))) / len(labels)


@pytest.mark.parametrize(("n_classes", "k"), [(5, 5), (3, 5), (5, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("seed", range(2))
def test_clustering_accuracy_agrees_with_enumeration(n_classes: int, k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, n_classes, (40,), generator=generator)
    clusters = torch.where(
        torch.rand(40, generator=generator) < 0.6, labels % k, torch.randint(0, k, (40,), generator=generator)
    )
    expected = by_enumeration(labels.tolist(), clusters.tolist(), max(n_classes, k))
    assert clustering_accuracy(labels, clusters) == pytest.approx(expected, abs=1e-12)
    assert clustering_accuracy(labels.int(), clusters.to(torch.uint8)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: classifier_two_sample_test(X[:3], X), "real"),
        (lambda: classifier_two_sample_test(X, X[:, :1]), "synthetic"),
        (lambda: classifier_two_sample_test(X, X, most=3), "most"),
        (lambda: clustering_accuracy(Y[:0], Y[:0]), "labels"),
        *((lambda c=c: clustering_accuracy(Y, torch.tensor(c)), "clusters") for c in ([1], [1, -2, 0, 0], [1.0] * 4)),
    ],
)
def test_samples_and_clusters_that_cannot_be_compared(call, name: str) -> None:
    with refused(name):
        call()


def rows(n: int, sizes: tuple[int, ...], seed: int) -> Tensor:
    """Codes of columns of these sizes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(size, (n,), generator=generator) for size in sizes], 1)


@pytest.mark.parametrize("judge", ["boosting", "logistic"])
def test_classifiers_find_what_can_be_predicted(judge: str) -> None:
    sizes, ordered = (20, 3, 3), (True, False, False)
    x = rows(1500, sizes, 7)
    x[:, 2] = (x[:, 0] > 9).long() + (x[:, 1] == 2).long()
    options = {"sizes": sizes, "ordered": ordered, "judge": judge}
    assert train_on_synthetic_auc(x[:1000], x[1000:], 2, **options) > 0.93  # type: ignore[arg-type]
    shuffled = independent_marginals(x[:1000], 1000, generator=torch.Generator().manual_seed(0))
    assert 0.35 < train_on_synthetic_auc(shuffled, x[1000:], 2, **options) < 0.65  # type: ignore[arg-type]


def test_synthetic_rows_of_one_class_predict_nothing() -> None:
    x = rows(50, (4, 2), 8)
    constant = torch.cat([x[:, :1], torch.ones(50, 1, dtype=torch.int64)], 1)
    assert train_on_synthetic_auc(constant, x, 1, sizes=(4, 2), ordered=(True, False)) == 0.5


def test_what_cannot_be_compared_is_refused() -> None:
    x = rows(5, (2, 2), 0)
    with pytest.raises(ValueError, match="judge"):
        train_on_synthetic_auc(x, x, 1, sizes=(2, 2), ordered=(True, True), judge="tree")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="test has 1 classes"):
        train_on_synthetic_auc(x, torch.zeros_like(x), 1, sizes=(2, 2), ordered=(True, True))
