"""Train on synthetic, test on real."""

import os
import time

import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from dpgen.data import load_digits, load_mnist
from dpgen.metrics.classification import (
    chance_level,
    predicted_classes,
    train_on_synthetic_accuracy,
    trained_cnn,
)


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def stripes(n: int, side: int = 16, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of horizontal (0) or vertical (1) lines at random places, a tenth of the pixels turned over."""
    generator = torch.Generator().manual_seed(seed)
    lines = (torch.rand(n, side, 1, generator=generator) < 0.4).expand(n, side, side)
    y = torch.randint(0, 2, (n,), generator=generator)
    images = torch.where(y[:, None, None] == 1, lines.transpose(1, 2), lines)
    turned = torch.rand(n, side, side, generator=generator) < 0.1
    return (images ^ turned).to(torch.uint8).flatten(1), y


@pytest.mark.parametrize(("kind", "least"), [("auto", 0.92), ("logistic", 0.88)])
def test_digits_are_learnt(digits, kind: str, least: float) -> None:
    accuracy = train_on_synthetic_accuracy(
        digits.x, digits.labels, digits.test_x, digits.test_labels, image_shape=(8, 8), kind=kind
    )
    assert least < accuracy < 0.99


def test_logistic_regression_and_boosting_are_those_of_scikit_learn(digits) -> None:
    train, test = (digits.x[:600], digits.labels[:600]), (digits.test_x, digits.test_labels)
    reference = LogisticRegression(C=10, max_iter=1000).fit(*(part.numpy() for part in train))
    expected = reference.score(*(part.numpy() for part in test))
    assert train_on_synthetic_accuracy(*train, *test, kind="logistic") == pytest.approx(expected, abs=0.03)
    trees = HistGradientBoostingClassifier(max_iter=5, early_stopping=False, random_state=7)
    trees.fit(*(part.numpy() for part in train))
    found = predicted_classes(*train, test[0], kind="boosting", epochs=5, seed=7)
    assert found.tolist() == trees.predict(test[0].numpy()).tolist()
    accuracy = train_on_synthetic_accuracy(*train, *test, kind="boosting", epochs=5, seed=7)
    assert accuracy == pytest.approx(trees.score(*(part.numpy() for part in test)), abs=1e-12)


def test_boosting_with_one_class_and_with_labels_that_have_gaps() -> None:
    x = torch.eye(3).repeat(40, 1)
    y = 2 * x.argmax(1)
    assert train_on_synthetic_accuracy(x[y == 4], y[y == 4], x, y, kind="boosting") == pytest.approx(1 / 3)
    assert train_on_synthetic_accuracy(x, y, x, y, kind="boosting") == 1


def test_the_cnn_is_the_one_that_classifies() -> None:
    (x, y), (test_x, _) = stripes(100), stripes(50, seed=1)
    options = {"image_shape": (16, 16), "seed": 5, "epochs": 1}
    network = trained_cnn(x, y, **options)
    assert network(test_x.float()).argmax(1).tolist() == predicted_classes(x, y, test_x, kind="cnn", **options).tolist()


def test_records_that_carry_nothing_reach_chance(digits) -> None:
    labels = digits.labels[torch.randperm(digits.n, generator=torch.Generator().manual_seed(0))]
    accuracy = train_on_synthetic_accuracy(digits.x, labels, digits.test_x, digits.test_labels, epochs=5)
    assert accuracy < chance_level(digits.test_labels) + 0.1


def test_cnn_learns_what_no_single_pixel_shows() -> None:
    (x, y), (test_x, test_y) = stripes(600), stripes(300, seed=1)
    options = {"image_shape": (16, 16), "epochs": 6}
    assert train_on_synthetic_accuracy(x, y, test_x, test_y, **options) > 0.95
    assert train_on_synthetic_accuracy(x, y, test_x, test_y, kind="logistic", **options) < 0.75


@pytest.mark.parametrize("kind", ["cnn", "mlp", "logistic"])
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


def test_chance_level() -> None:
    assert chance_level(torch.tensor([2, 2, 2, 0])) == 0.75
    with pytest.raises(ValueError, match="test_y is empty"):
        chance_level(torch.tensor([]))


X, Y = torch.zeros(4, 6), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((X[:0], Y[:0], X, Y), {}, r"train_x has shape \(0, 6\)"),
        ((X, Y, X[:, :0], Y), {}, r"test_x has shape \(4, 0\)"),
        ((X, Y[:3], X, Y), {}, r"train_y is torch.int64 \(3,\): it must be integers of shape \(4,\)"),
        ((X, Y, X, Y.float()), {}, r"test_y is torch.float32 \(4,\)"),
        ((X, -Y, X, Y), {}, "train_y has -1: classes must be >= 0"),
        ((X * float("nan"), Y, X, Y), {}, "train_x has a value that is not finite"),
        ((X, Y, X[:, :5], Y), {}, "test_x has 5 columns, train_x has 6"),
        ((X, Y, X, Y), {"kind": "svm"}, "kind is 'svm': it must be one of auto, cnn, mlp, logistic, boosting"),
        ((X, Y, X, Y), {"kind": "cnn"}, "image_shape is None: kind 'cnn' needs"),
        ((X, Y, X, Y), {"kind": "cnn", "image_shape": (2, 3)}, r"image_shape is \(2, 3\): kind 'cnn' needs"),
        ((X, Y, X, Y), {"image_shape": (3, 3)}, r"image_shape is \(3, 3\): it must have 6 pixels"),
        ((X, Y, X, Y), {"epochs": 0}, "epochs is 0: it must be >= 1"),
    ],
)
def test_bad_input(arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_on_synthetic_accuracy(*arguments, **options)


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("DPGEN_DATA"), reason="DPGEN_DATA names no folder with real data")
def test_real_mnist() -> None:
    records, start = load_mnist(), time.perf_counter()
    accuracy = train_on_synthetic_accuracy(
        records.x, records.labels, records.test_x, records.test_labels, image_shape=records.image_shape
    )
    print(f"real MNIST: accuracy {accuracy:.4f} in {time.perf_counter() - start:.0f} s")
    assert accuracy >= 0.985
