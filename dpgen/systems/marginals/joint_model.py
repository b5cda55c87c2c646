"""A released distribution over all combinations of few bits."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpgen.release import RecordModel, sampling_generator
from dpgen.samples import RecordSamples
from dpgen.statement import PrivacyStatement


class JointModel(RecordModel, kind="cells"):
    """A distribution over all combinations of d bits, the last `n_classes` of them none: labels are kept as a number.

    Arguments:
        cells: probability of every cell, (2^d * max(n_classes, 1),), row-major with the label last.
        d: number of bits.
        n_classes: number of labels, 0 without.
        counts: noisy number of records, (1,).
        statement: what the model cost.
        columns: names of the d columns.
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

    def sample(self, n: int, *, seed: int | None = None, clusters: Sequence[int] | None = None) -> RecordSamples:
        if clusters is not None and list(clusters) != [0]:
            raise ValueError(f"clusters must be [0], the only one, got {list(clusters)}")
        generator = sampling_generator(n, seed)
        edges = self.cells.double().cumsum(0)
        drawn = torch.searchsorted(edges, torch.rand(n, generator=generator, dtype=torch.float64) * edges[-1], right=True)
        cell = drawn.clamp_max(len(edges) - 1)
        labels = cell % self.n_classes if self.n_classes else None
        x = binary_digits(cell // max(self.n_classes, 1), self.d)
        return RecordSamples(x=x, cluster=torch.zeros(n, dtype=torch.int64), labels=labels, columns=self.columns)

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
