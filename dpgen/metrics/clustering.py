"""How well clusters recover classes."""

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def clustering_accuracy(labels: Tensor, clusters: Tensor) -> float:
    """Share of records whose cluster maps to their class under the best one-to-one mapping of clusters to classes.

    ACC = max_u |{i : labels_i = u(clusters_i)}| / n over injective u (Acs et al. 2017, section IV), found by the
    Hungarian algorithm on the contingency table. With more clusters than classes the surplus clusters count as wrong.

    Args:
        labels: classes, int64 >= 0, shape (n,).
        clusters: assignments, int64 >= 0, shape (n,).

    Raises:
        ValueError: if the two do not agree in shape, are empty, or hold negative or fractional values.

    Example:
        >>> clustering_accuracy(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 1]))
        0.75
    """
    table = contingency_table(labels, clusters)
    rows, columns = linear_sum_assignment(table.numpy(), maximize=True)
    return float(table[rows, columns].sum()) / len(labels)


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
