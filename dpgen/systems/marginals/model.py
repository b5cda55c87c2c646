"""Releases of marginals and MWEM: a mixture of independent bits, or a distribution over all combinations of few bits."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpgen.release import RandomState, RecordModel, draw_components, sampling_generator
from dpgen.samples import RecordSamples
from dpgen.statement import PrivacyStatement

# -- product mixture ---------------------------------------------------------------------------------------------------

_AT_ONCE = 4096


class ProductMixture(RecordModel, kind="product_mixture"):
    """p(x) = sum_c w_c prod_j p_cj^{x_j} (1 - p_cj)^{1 - x_j}, p (k, d) in [0, 1].

    `counts` (k,) are noisy component sizes, whose positive parts are the weights; `n_classes` is 0, or k when component c is
    the records of class c.
    """

    def __init__(
        self,
        probabilities: Tensor,
        counts: Tensor,
        *,
        statement: PrivacyStatement,
        n_classes: int = 0,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.probabilities, self.counts, self.statement = probabilities.double(), counts.double(), statement
        self.n_classes, self.columns = n_classes, tuple(columns) if columns is not None else None

    def samples(self, n: int, *, random_state: RandomState = None, clusters: Sequence[int] | None = None) -> RecordSamples:
        generator = sampling_generator(n, random_state)
        component = draw_components(self.weights, n, clusters, generator)
        parts = [
            torch.rand(len(c), self.probabilities.shape[1], generator=generator) < self.probabilities[c].float()
            for c in component.split(_AT_ONCE)
        ]
        x = torch.cat(parts).to(torch.uint8)
        labels = component.clone() if self.n_classes else None
        return RecordSamples(x=x, cluster=component, labels=labels, columns=self.columns, k=len(self.counts))

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-likelihood (n,) in nats of binary records (n, d); -inf where a marginal is exactly 0 or 1 against it."""
        return torch.logsumexp(self._joint(x), 1)

    def classify(self, x: Tensor) -> Tensor:
        """The mixture's Bayes classifier: the likeliest class (n,)."""
        if not self.n_classes:
            raise ValueError("classify needs a model of labelled records, and this one has n_classes=0")
        return self._joint(x).argmax(1)

    def conjunction(self, items: Sequence[int]) -> float:
        """P(every one of the features `items` is 1), exactly: sum_c w_c prod p_cj."""
        return float(self.weights @ self.probabilities[:, list(items)].prod(1))

    def disjunction(self, items: Sequence[int]) -> float:
        """P(at least one of the features `items` is 1), exactly."""
        return float(1.0 - self.weights @ (1.0 - self.probabilities[:, list(items)]).prod(1))

    def _joint(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[1] != self.probabilities.shape[1]:
            raise ValueError(f"x must have shape (n, {self.probabilities.shape[1]}), got {tuple(x.shape)}")
        p, bits = self.probabilities.clamp(1e-12, 1 - 1e-12), x.double()
        return bits @ p.log().T + (1.0 - bits) @ torch.log1p(-p).T + self.weights.clamp_min(1e-300).log()

    def tensors(self) -> dict[str, Tensor]:
        return {"probabilities": self.probabilities, "counts": self.counts}

    def description(self) -> dict[str, Any]:
        return {"n_classes": self.n_classes, "columns": self.columns}

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> "ProductMixture":
        options = {name: description[name] for name in ("n_classes", "columns")}
        return cls(tensors["probabilities"], tensors["counts"], statement=statement, **options)


# -- joint model -------------------------------------------------------------------------------------------------------


class JointModel(RecordModel, kind="cells"):
    """A distribution over all combinations of d bits, the last `n_classes` of them none: labels are kept as a number.

    `cells` (2^d * max(n_classes, 1),) are probabilities, row-major with the label last; `counts` (1,) is the noisy number of
    records.
    """

    def __init__(
        self,
        cells: Tensor,
        *,
        d: int,
        n_classes: int,
        counts: Tensor,
        statement: PrivacyStatement,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.cells, self.d, self.n_classes, self.counts, self.statement = cells, d, n_classes, counts, statement
        self.columns = tuple(columns) if columns is not None else None

    def samples(self, n: int, *, random_state: RandomState = None, clusters: Sequence[int] | None = None) -> RecordSamples:
        if clusters is not None and list(clusters) != [0]:
            raise ValueError(f"clusters must be [0], the only one, got {list(clusters)}")
        generator = sampling_generator(n, random_state)
        edges = self.cells.double().cumsum(0)
        drawn = torch.searchsorted(edges, torch.rand(n, generator=generator, dtype=torch.float64) * edges[-1], right=True)
        cell = drawn.clamp_max(len(edges) - 1)
        labels = cell % self.n_classes if self.n_classes else None
        x = binary_digits(cell // max(self.n_classes, 1), self.d)
        cluster = torch.zeros(n, dtype=torch.int64)
        return RecordSamples(x=x, cluster=cluster, labels=labels, columns=self.columns, k=1)

    def tensors(self) -> dict[str, Tensor]:
        return {"cells": self.cells, "counts": self.counts}

    def description(self) -> dict[str, Any]:
        return {"d": self.d, "n_classes": self.n_classes, "columns": self.columns}

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> "JointModel":
        return cls(tensors["cells"], counts=tensors["counts"], statement=statement, **description)


def binary_digits(number: Tensor, d: int) -> Tensor:
    """Binary digits (n, d), highest first, of numbers (n,)."""
    return (number[:, None] >> torch.arange(d - 1, -1, -1) & 1).to(torch.uint8)
