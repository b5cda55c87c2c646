"""How well clusters recover classes."""

from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torchmetrics import Metric


def clustering_accuracy(labels: Tensor, clusters: Tensor) -> float:
    """Share of records whose cluster maps to their class under the best one-to-one mapping of clusters to classes.

    ACC = max_u |{i : labels_i = u(clusters_i)}| / n over injective u (Acs et al. 2017, section IV), found by the
    Hungarian algorithm on the contingency table. With more clusters than classes the surplus clusters count as wrong.

    Arguments:
        labels: classes, int64 >= 0, shape (n,).
        clusters: assignments, int64 >= 0, shape (n,).

    Raises:
        ValueError: if the two do not agree in shape, are empty, or hold negative or fractional values.

    Example:
        >>> clustering_accuracy(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 1]))
        0.75
    """
    return _matched(contingency_table(labels, clusters)) / len(labels)


def _matched(table: Tensor) -> int:
    """Records on the best one-to-one mapping of a contingency table."""
    rows, columns = linear_sum_assignment(table.numpy(), maximize=True)
    return int(table[rows, columns].sum())


def contingency_table(labels: Tensor, clusters: Tensor) -> Tensor:
    """Counts (classes, clusters), int64: entry (i, j) is the number of records of class i in cluster j.

    Raises:
        ValueError: as `clustering_accuracy`.
    """
    for name, values in (("labels", labels), ("clusters", clusters)):
        if values.ndim != 1 or len(values) == 0:
            raise ValueError(f"{name} has shape {tuple(values.shape)}: it must be (n,) with n >= 1")
        if values.is_floating_point() or values.is_complex():
            raise ValueError(f"{name} has dtype {values.dtype}: it must be an integer type")
        if int(values.min()) < 0:
            raise ValueError(f"{name} has {int(values.min())}: it must be >= 0")
    if len(labels) != len(clusters):
        raise ValueError(f"clusters has length {len(clusters)}, labels has length {len(labels)}: they must agree")
    labels, clusters = labels.long().cpu(), clusters.long().cpu()
    n_classes, k = int(labels.max()) + 1, int(clusters.max()) + 1
    return torch.bincount(labels * k + clusters, minlength=n_classes * k).reshape(n_classes, k)


class ClusteringAccuracy(Metric):
    """`clustering_accuracy` over batches of classes and clusters (b,), whose contingency table is all that is kept.

    Arguments:
        n_classes: classes are 0 to n_classes - 1.
        k: clusters are 0 to k - 1.
        kwargs: of `torchmetrics.Metric`.

    Example:
        >>> ClusteringAccuracy(2, 2)(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 1])).item()
        0.75
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = True
    table: Tensor

    def __init__(self, n_classes: int, k: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if min(n_classes, k) < 1:
            raise ValueError(f"n_classes is {n_classes} and k {k}: both must be >= 1")
        self.add_state("table", torch.zeros(n_classes, k, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, labels: Tensor, clusters: Tensor) -> None:
        """Take classes and clusters (b,)."""
        table = contingency_table(labels, clusters)
        rows, columns = table.shape
        if rows > self.table.shape[0] or columns > self.table.shape[1]:
            raise ValueError(f"labels or clusters reach {rows} x {columns}: at most {tuple(self.table.shape)} was announced")
        self.table[:rows, :columns] += table.to(self.table.device)

    def compute(self) -> Tensor:
        """Accuracy over all records since the last reset, float64.

        Raises:
            ValueError: there was no record.
        """
        n = int(self.table.sum())
        if n == 0:
            raise ValueError("labels has no values: update the metric before it is computed")
        return torch.tensor(_matched(self.table.cpu()) / n, dtype=torch.float64, device=self.device)
