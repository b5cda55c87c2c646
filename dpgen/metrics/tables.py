"""Metrics of mixed tables: associations, and classifiers trained on synthetic rows.

Rows are codes (n, d), integers; `sizes` are the numbers of codes of the columns, `ordered` says which are in order. Marginals
are those of `dpgen.metrics.queries`.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dpgen.metrics.queries import compressed, require_codes

Codes = npt.NDArray[np.int64]
Judge = Literal["boosting", "logistic"]

_MOST_BINS = 255  # categories that boosted trees take as such


def associations(codes: Tensor) -> Tensor:
    r"""Cramér's V of every two columns, corrected for its bias: (d, d), 0 independent, 1 a function of each other.

    Arguments:
        codes: rows (n, d), n >= 2.

    Source: Bergsma 2013, equation 5.

    Example:
        >>> associations(torch.tensor([[0, 0], [1, 1]] * 50)).round(decimals=2).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    columns, n = compressed(codes), len(codes)
    d = columns.shape[1]
    found = torch.eye(d, dtype=torch.float64)
    for i, j in combinations(range(d), 2):
        found[i, j] = found[j, i] = _cramers_v(columns[:, i], columns[:, j], n)
    return found


def _cramers_v(left: Codes, right: Codes, n: int) -> float:
    r, k = int(left.max()) + 1, int(right.max()) + 1
    cells, counts = np.unique(left * k + right, return_counts=True)
    expected = np.bincount(left, minlength=r)[cells // k] * np.bincount(right, minlength=k)[cells % k] / n
    phi = float((counts**2 / expected).sum()) / n - 1  # chi squared over n, empty cells included
    corrected = max(0.0, phi - (r - 1) * (k - 1) / (n - 1))
    least = min(r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)) - 1
    return min(1.0, (corrected / least) ** 0.5) if least > 0 else 0.0


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

    Arguments:
        train: codes (n, d), synthetic or real.
        test: codes (m, d).
        target: position of the column to predict.
        sizes: codes of each column.
        ordered: whether a column's codes are in order; "logistic" also sees them as numbers.
        judge: gradient boosting or logistic regression.
        seed: of the classifier.

    Raises:
        ValueError: no rows, other columns, an unknown judge, or test rows of one class.

    Example:
        >>> x = torch.tensor([[0, 0], [1, 1]] * 50)
        >>> train_on_synthetic_auc(x, x, 1, sizes=(2, 2), ordered=(False, False), judge="logistic")
        1.0
    """
    from sklearn.metrics import roc_auc_score

    require_codes(train=train, test=test)
    if judge not in get_args(Judge):
        raise ValueError(f"judge is {judge!r}; it must be one of {', '.join(get_args(Judge))}")
    truth, known = (rows[:, target].numpy() for rows in (test, train))
    asked, classes = np.unique(truth), np.unique(known)
    if len(asked) < 2:
        raise ValueError(f"test has {len(asked)} classes in column {target}; two are needed")
    others = [c for c in range(len(sizes)) if c != target and sizes[c] > 1]
    scores = np.zeros((len(truth), sizes[target]))
    if len(classes) > 1 and others:
        fit = _boosted if judge == "boosting" else _regressed
        columns = [rows[:, others].numpy() for rows in (train, test)]
        scores[:, classes] = fit(columns[0], known, columns[1], [sizes[c] for c in others], [ordered[c] for c in others], seed)
    kept = asked[-1:] if len(asked) == 2 else asked
    return float(np.mean([roc_auc_score(truth == c, scores[:, c]) for c in kept]))


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
