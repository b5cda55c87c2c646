"""Classifiers as metrics: train on synthetic and test on real, two-sample test (C2ST), and accuracy of clusters."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import hypergeom
from torch import Tensor, nn

from dpgen.metrics.queries import require_codes, require_samples

Kind = Literal["auto", "cnn", "mlp", "boosting"]

CNN_SIDE = 16
"""Images with both sides at least this long get the convolutional network."""

_BATCH = {"cnn": 256, "mlp": 64}
_PEAK_RATE = {"cnn": 4e-3, "mlp": 5e-3}
_ROUNDS = 100

Codes = npt.NDArray[np.int64]
Judge = Literal["boosting", "logistic"]

_MOST_BINS = 255  # categories that boosted trees take as such


def train_on_synthetic_accuracy(
    train_x: Tensor,
    train_y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    *,
    image_shape: tuple[int, ...] | None = None,
    kind: Kind = "auto",
    seed: int = 0,
    epochs: int | None = None,
) -> float:
    """Accuracy on (test_x, test_y) of a classifier trained on (train_x, train_y).

    Given synthetic records it is the usual utility measure of a release; given real ones, its reference. The result
    depends on `seed` only, and the global random state is left as it was.

    Records are (n, d) of finite values, classes integers >= 0 (n,). `image_shape`, (height, width) or (channels, height,
    width), is needed by the `kind` "cnn" (two convolutions); "mlp" has one hidden layer, "boosting" is scikit-learn's gradient
    boosting of histogram trees, "auto" is "cnn" for images of at least 16 x 16 pixels, else "mlp". `epochs` are 4, or more
    where that gives fewer than 1,000 steps; of "boosting" rounds, 100.

    >>> x = torch.eye(2).repeat(50, 1)
    >>> train_on_synthetic_accuracy(x, x.argmax(1), x, x.argmax(1), epochs=20)
    1.0
    """
    _require_part("test", test_x, test_y)
    options: dict[str, Any] = {"image_shape": image_shape, "kind": kind, "seed": seed, "epochs": epochs}
    answers = predicted_classes(train_x, train_y, test_x, n_classes=int(test_y.max()) + 1, **options)
    return int((answers == test_y.cpu()).sum()) / len(test_y)


def predicted_classes(
    train_x: Tensor,
    train_y: Tensor,
    test_x: Tensor,
    *,
    image_shape: tuple[int, ...] | None = None,
    kind: Kind = "auto",
    seed: int = 0,
    epochs: int | None = None,
    n_classes: int = 1,
) -> Tensor:
    """Classes (n_test,) of test_x by a classifier of at least `n_classes` classes; see `train_on_synthetic_accuracy`."""
    _require_part("train", train_x, train_y)
    require_samples(train_x=train_x, test_x=test_x)
    if epochs is not None and epochs < 1:
        raise ValueError(f"epochs is {epochs}: it must be >= 1")
    kind = _choose(kind, image_shape, train_x.shape[1])
    train_x, train_y, test_x = train_x.cpu(), train_y.long().cpu(), test_x.cpu()
    if kind == "boosting":
        from sklearn.ensemble import HistGradientBoostingClassifier

        if len(train_y.unique()) == 1:  # nothing to boost
            return train_y[:1].expand(len(test_x))
        trees = HistGradientBoostingClassifier(max_iter=epochs or _ROUNDS, early_stopping=False, random_state=seed)
        trees.fit(train_x.numpy(), train_y.numpy())
        return torch.from_numpy(trees.predict(test_x.numpy())).long()
    n_classes = max(n_classes, int(train_y.max()) + 1)
    with _own_randomness(seed):
        network = _network(kind, train_x.shape[1], n_classes, image_shape)
        _train(network, train_x, train_y, kind=kind, epochs=epochs)
        return in_parts(network, test_x).argmax(1)


def trained_cnn(
    x: Tensor, y: Tensor, image_shape: tuple[int, ...], *, seed: int = 0, epochs: int | None = None
) -> nn.Sequential:
    """The "cnn" of `train_on_synthetic_accuracy`, trained on records (n, d) and their classes; the last layer classifies."""
    _require_part("train", x, y)
    _choose("cnn", image_shape, x.shape[1])
    with _own_randomness(seed):
        network = _network("cnn", x.shape[1], int(y.max()) + 1, image_shape)
        _train(network, x.cpu(), y.long().cpu(), kind="cnn", epochs=epochs)
    return network.eval()


def chance_level(test_y: Tensor) -> float:
    """Accuracy of always answering the most frequent class of `test_y` (n_test,): what knowing no record reaches.

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


def _choose(kind: Kind, image_shape: tuple[int, ...] | None, d: int) -> Kind:
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}: it must be one of {', '.join(get_args(Kind))}")
    if image_shape is not None and math.prod(image_shape) != d:
        raise ValueError(f"image_shape is {image_shape}: it must have {d} pixels, the features of a record")
    if kind == "auto":
        return "cnn" if image_shape is not None and min(image_shape[-2:]) >= CNN_SIDE else "mlp"
    if kind == "cnn" and (image_shape is None or min(image_shape[-2:]) < 4):
        raise ValueError(f"image_shape is {image_shape}: kind 'cnn' needs (height, width), both at least 4")
    return kind


def _network(kind: Kind, d: int, n_classes: int, image_shape: tuple[int, ...] | None) -> nn.Sequential:
    if kind == "mlp":
        return nn.Sequential(nn.Linear(d, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, n_classes))
    assert image_shape is not None
    channels = image_shape[0] if len(image_shape) == 3 else 1
    height, width = ((side + 1) // 2 // 2 for side in image_shape[-2:])
    return nn.Sequential(
        nn.Unflatten(1, (channels, *image_shape[-2:])),
        nn.Conv2d(channels, 16, 5, stride=2, padding=2),
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
def in_parts(network: nn.Module, x: Tensor) -> Tensor:
    """Outputs of a network in evaluation mode for records (n, d), 2,000 at a time."""
    network.eval()
    return torch.cat([network(part.float()) for part in x.split(2000)])


def _require_part(part: str, x: Tensor, y: Tensor) -> None:
    require_samples(**{f"{part}_x": x})
    if y.shape != x.shape[:1] or y.is_floating_point():
        raise ValueError(f"{part}_y is {y.dtype} {tuple(y.shape)}: it must be integers of shape ({len(x)},)")
    if int(y.min()) < 0:
        raise ValueError(f"{part}_y has {int(y.min())}: classes must be >= 0")


def train_on_synthetic_auc(
    train: Tensor,
    test: Tensor,
    target: int,
    *,
    sizes: Sequence[int],
    ordered: Sequence[bool],
    judge: Judge = "boosting",
    seed: int = 0,
) -> float:
    """Area under the ROC curve on test rows of a classifier of one column by the others; of more classes the mean over them.

    `train` (n, d) and `test` (m, d) are codes, `target` is the position of the column to predict, `sizes` are the numbers of
    codes of each column, and `ordered` says which are in order: "logistic" also sees these as numbers.

    >>> x = torch.tensor([[0, 0], [1, 1]] * 50)
    >>> train_on_synthetic_auc(x, x, 1, sizes=(2, 2), ordered=(False, False), judge="logistic")
    1.0
    """
    from sklearn.metrics import roc_auc_score

    require_codes(train=train, test=test)
    if judge not in get_args(Judge):
        raise ValueError(f"judge is {judge!r}; it must be one of {', '.join(get_args(Judge))}")
    truth = test[:, target].numpy()
    asked = np.unique(truth)
    if len(asked) < 2:
        raise ValueError(f"test has {len(asked)} classes in column {target}; two are needed")
    scores = _chances(train.numpy(), test.numpy(), target, sizes, ordered, judge, seed)
    kept = asked[-1:] if len(asked) == 2 else asked
    return float(np.mean([roc_auc_score(truth == c, scores[:, c]) for c in kept]))


def _chances(
    train: Codes, test: Codes, target: int, sizes: Sequence[int], ordered: Sequence[bool], judge: Judge, seed: int
) -> npt.NDArray[np.float64]:
    """Probabilities (m, codes) of each code of the target in test rows, by a classifier that learns from other columns."""
    known = train[:, target]
    classes = np.unique(known)
    others = [c for c in range(len(sizes)) if c != target and sizes[c] > 1]
    found = np.zeros((len(test), sizes[target]))
    if len(classes) > 1 and others:
        fit = _boosted if judge == "boosting" else _regressed
        of_others = [sizes[c] for c in others], [ordered[c] for c in others]
        found[:, classes] = fit(train[:, others], known, test[:, others], *of_others, seed)
    return found


def propensity_error(real: Tensor, made: Tensor, *, sizes: Sequence[int], ordered: Sequence[bool], seed: int = 0) -> float:
    r"""The pMSE of as many real and made rows, 4 mean (p - 1/2)^2: 0 where a logistic regression tells none apart, 1 if all.

    `real` (n, d) and `made` (m, d) are codes, `sizes` and `ordered` as of `train_on_synthetic_auc`. p is the estimated
    probability to be made, of each half of the rows by the other half.

    Source: Woo et al. 2009; Snoke et al. 2018.

    >>> x = torch.zeros(1000, 1, dtype=torch.int64)
    >>> propensity_error(x, x, sizes=(2,), ordered=(False,)), propensity_error(x, x + 1, sizes=(2,), ordered=(False,)) > 0.9
    (0.0, True)
    """
    require_codes(real=real, made=made)
    n, generator = min(len(real), len(made)), torch.Generator().manual_seed(seed)
    if n < 2:
        raise ValueError(f"real has {len(real)} rows and made {len(made)}; each must have 2")
    rows = [x[torch.randperm(len(x), generator=generator)[:n]].numpy() for x in (real, made)]
    halves = [np.concatenate([x[part::2] for x in rows]) for part in (0, 1)]
    told = [np.repeat([0, 1], len(half) // 2) for half in halves]
    found = [_regressed(halves[1 - i], told[1 - i], halves[i], sizes, ordered, seed)[:, 1] for i in (0, 1)]
    return float(4.0 * ((np.concatenate(found) - 0.5) ** 2).mean())


def _boosted(train: Codes, y: Codes, test: Codes, sizes: Sequence[int], ordered: Sequence[bool], seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    categorical = [not inside and size <= _MOST_BINS for size, inside in zip(sizes, ordered)]
    trees = HistGradientBoostingClassifier(random_state=seed, early_stopping=False, categorical_features=categorical)
    return trees.fit(train, y).predict_proba(test)


def _regressed(train: Codes, y: Codes, test: Codes, sizes: Sequence[int], ordered: Sequence[bool], seed: int) -> Any:
    from scipy.sparse import csr_matrix, hstack
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import OneHotEncoder

    numbers = [c for c, inside in enumerate(ordered) if inside]
    scale = np.array([max(1, sizes[c] - 1) for c in numbers])
    encoder = OneHotEncoder(handle_unknown="ignore").fit(train)
    views = [hstack([encoder.transform(x), csr_matrix(x[:, numbers] / scale)]).tocsr() for x in (train, test)]
    return LogisticRegression(max_iter=1000).fit(views[0], y).predict_proba(views[1])


class TwoSampleTest(NamedTuple):
    """Outcome of a classifier two-sample test.

    `accuracy` is the share of the tested records, n of each sample, that the classifier assigns to the right one; `chance` is
    1/2, that of samples without any difference; `p_value` the probability of this accuracy or a higher one for samples of one
    distribution.
    """

    accuracy: float
    chance: float
    p_value: float
    n: int


def classifier_two_sample_test(real: Tensor, synthetic: Tensor, *, most: int | None = None, seed: int = 0) -> TwoSampleTest:
    """Train boosted trees to tell real from synthetic records and test them on others (C2ST).

    As many records of each sample, drawn without replacement, one half to train and one half to test. The p-value is
    exact (Fisher's test of the answers against the truth), for records of one distribution can change places. A record
    that is in both samples, or twice in one, counts as evidence: copies of training records are what it also finds.

    Samples are (n, d) and (m, d) with n, m >= 4, of which at most `most` records each are used; `seed` is of their choice and
    of the classifier.

    Source: Lopez-Paz and Oquab 2017; their p-value is the normal approximation.

    >>> x = torch.arange(400.0)[:, None]
    >>> classifier_two_sample_test(x[:200], x[200:]).accuracy > 0.95
    True
    """
    require_samples(4, real=real, synthetic=synthetic)
    if most is not None and most < 4:
        raise ValueError(f"most is {most}: it must be >= 4, or None")
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
    calls = predicted_classes(torch.cat(train), train_y, torch.cat(test), kind="boosting", seed=seed)
    found, false = int(calls[n:].sum()), int(calls[:n].sum())
    p_value = float(hypergeom.sf(found - 1, 2 * n, n, found + false))
    return TwoSampleTest((found + n - false) / (2 * n), 0.5, min(1.0, p_value), n)


def clustering_accuracy(labels: Tensor, clusters: Tensor) -> float:
    """Share of records whose cluster maps to their class under the best one-to-one mapping of clusters to classes.

    ACC = max_u |{i : labels_i = u(clusters_i)}| / n over injective u (Acs et al. 2017, section IV), found by the Hungarian
    algorithm on the contingency table. With more clusters than classes the surplus clusters count as wrong. Both are integers
    >= 0, (n,).

    >>> clustering_accuracy(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 1]))
    0.75
    """
    from sklearn.metrics.cluster import contingency_matrix

    for name, values in (("labels", labels), ("clusters", clusters)):
        if values.ndim != 1 or len(values) == 0 or values.is_floating_point() or int(values.min()) < 0:
            raise ValueError(f"{name} is {values.dtype} {tuple(values.shape)}: it must be integers >= 0 of shape (n,), n >= 1")
    if len(labels) != len(clusters):
        raise ValueError(f"clusters has length {len(clusters)}, labels has length {len(labels)}: they must agree")
    table = contingency_matrix(labels.cpu().numpy(), clusters.cpu().numpy())
    rows, columns = linear_sum_assignment(table, maximize=True)
    return int(table[rows, columns].sum()) / len(labels)
