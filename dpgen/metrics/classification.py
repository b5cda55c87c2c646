"""Train on synthetic, test on real: what a classifier learns from released records."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor, nn

Kind = Literal["auto", "cnn", "mlp", "logistic"]

CNN_SIDE = 16
"""Images with both sides at least this long get the convolutional network."""

_BATCH = {"cnn": 256, "mlp": 64, "logistic": 64}
_PEAK_RATE = {"cnn": 4e-3, "mlp": 5e-3, "logistic": 2e-2}


def train_on_synthetic_accuracy(
    train_x: Tensor,
    train_y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    *,
    image_shape: tuple[int, int] | None = None,
    kind: Kind = "auto",
    seed: int = 0,
    epochs: int | None = None,
) -> float:
    """Accuracy on (test_x, test_y) of a classifier trained on (train_x, train_y).

    Given synthetic records it is the usual utility measure of a release; given real ones, its reference. The result
    depends on ``seed`` only, and the global random state is left as it was.

    Args:
        train_x: training records, shape (n, d), finite values.
        train_y: their classes, integers >= 0, shape (n,).
        test_x: test records, shape (n_test, d).
        test_y: their classes, shape (n_test,).
        image_shape: (height, width) with height * width = d, needed by the "cnn".
        kind: "cnn" (two convolutions), "mlp" (one hidden layer), "logistic", or "auto": "cnn" for images of at least
            16 x 16 pixels, "mlp" otherwise.
        seed: of initial weights and batches.
        epochs: passes over the training records; by default 4, or more where that gives fewer than 1,000 steps.

    Returns:
        Share of the test records that are classified correctly, in [0, 1].

    Raises:
        ValueError: if shapes do not agree, a part is empty, a value is not finite, or ``kind`` is unknown.

    Example:
        >>> x = torch.eye(2).repeat(50, 1)
        >>> train_on_synthetic_accuracy(x, x.argmax(1), x, x.argmax(1), epochs=20)
        1.0
    """
    _require_part("train", train_x, train_y)
    _require_part("test", test_x, test_y)
    if train_x.shape[1] != test_x.shape[1]:
        raise ValueError(f"test_x has {test_x.shape[1]} features, train_x has {train_x.shape[1]}: they must agree")
    if epochs is not None and epochs < 1:
        raise ValueError(f"epochs is {epochs}: it must be >= 1")
    kind = _choose(kind, image_shape, train_x.shape[1])
    n_classes = int(max(train_y.max(), test_y.max())) + 1
    with _own_randomness(seed):
        classifier = _classifier(kind, train_x.shape[1], n_classes, image_shape)
        _train(classifier, train_x.cpu(), train_y.long().cpu(), kind=kind, epochs=epochs)
        return _accuracy(classifier, test_x.cpu(), test_y.long().cpu())


def chance_level(test_y: Tensor) -> float:
    """Accuracy of always answering the most frequent class of ``test_y`` (n_test,): what knowing no record reaches.

    Raises:
        ValueError: if there is no label.

    Example:
        >>> chance_level(torch.tensor([0, 1, 1, 2]))
        0.5
    """
    if test_y.numel() == 0:
        raise ValueError("test_y is empty: at least one label is needed")
    return int(test_y.unique(return_counts=True)[1].max()) / test_y.numel()


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    # Layers draw their initial weights from the global generator; the fork restores it. Callers may be evaluating.
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        torch.random.default_generator.manual_seed(seed)
        yield


def _choose(kind: Kind, image_shape: tuple[int, int] | None, d: int) -> Kind:
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}: it must be one of {', '.join(get_args(Kind))}")
    if image_shape is not None and image_shape[0] * image_shape[1] != d:
        raise ValueError(f"image_shape is {image_shape}: it must have {d} pixels, the features of a record")
    if kind == "auto":
        return "cnn" if image_shape is not None and min(image_shape) >= CNN_SIDE else "mlp"
    if kind == "cnn" and (image_shape is None or min(image_shape) < 4):
        raise ValueError(f"image_shape is {image_shape}: kind 'cnn' needs (height, width), both at least 4")
    return kind


def _classifier(kind: Kind, d: int, n_classes: int, image_shape: tuple[int, int] | None) -> nn.Module:
    if kind == "logistic":
        return nn.Linear(d, n_classes)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(d, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, n_classes))
    assert image_shape is not None
    height, width = ((side + 1) // 2 // 2 for side in image_shape)
    return nn.Sequential(
        nn.Unflatten(1, (1, *image_shape)),
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * height * width, 128),
        nn.ReLU(),
        nn.Linear(128, n_classes),
    ).to(memory_format=torch.channels_last)


def _train(classifier: nn.Module, x: Tensor, y: Tensor, *, kind: Kind, epochs: int | None) -> None:
    batch = _BATCH[kind]
    batches = -(-len(x) // batch)
    epochs = epochs or max(4, 1000 // batches)
    optimizer = torch.optim.Adam(classifier.parameters(), weight_decay=1e-5, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _PEAK_RATE[kind], total_steps=epochs * batches)
    for _ in range(epochs):
        for chosen in torch.randperm(len(x)).split(batch):
            loss = nn.functional.cross_entropy(classifier(x[chosen].float()), y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def _accuracy(classifier: nn.Module, x: Tensor, y: Tensor) -> float:
    classifier.eval()
    right = sum(
        int((classifier(x_part.float()).argmax(1) == y_part).sum()) for x_part, y_part in zip(x.split(2000), y.split(2000))
    )
    return right / len(x)


def _require_part(part: str, x: Tensor, y: Tensor) -> None:
    if x.ndim != 2 or x.numel() == 0:
        raise ValueError(f"{part}_x has shape {tuple(x.shape)}: it must be (records, features), both at least 1")
    if y.shape != x.shape[:1] or y.is_floating_point():
        raise ValueError(f"{part}_y is {y.dtype} {tuple(y.shape)}: it must be integers of shape ({len(x)},)")
    if int(y.min()) < 0:
        raise ValueError(f"{part}_y has {int(y.min())}: classes must be >= 0")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise ValueError(f"{part}_x has a value that is not finite: every feature must be a number")
