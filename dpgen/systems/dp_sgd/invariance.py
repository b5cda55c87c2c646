r"""Per-record gradients that depend on their own record alone, bit for bit: shapes of products, and the test of them.

A matrix product gives a row other last bits when the number of rows changes, for libraries choose their kernels by shape. A
record at a kink of its loss (ReLU) then has another gradient beside other records, and what is charged for one record is
not what one record moves. So the rows of a cluster are padded with zeros to whole multiples of `unit` and multiplied
at most `most` at a time, and before training the shapes that can occur are tried on random records: in every shape, at
every place, beside full and beside absent neighbours, a record must have the same gradient and norm. Kernels choose the
order of their sums by shape and place, not by value, so equal bits on random records mean the same order for all.

| case | what holds |
|---|---|
| all multiples of `unit` agree | one product per cluster, with less than `unit` rows of padding |
| they do not | every product has one shape, by the size that a cluster is expected to have, or `unit` |
| no shape agrees at several places | the same shapes of transposed products, in which every record is a column |
| nor do those | one record at a time, slowly; each has the same shape, place and neighbours: none |
| not even that | `fitting_shapes` refuses: the device is not deterministic |

Source: batch-invariant kernels, He et al. 2025 ("Defeating nondeterminism in LLM inference").
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from itertools import accumulate, cycle, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from dpgen.nets import ModelBank, RecordGradients
from dpgen.nets.bank import Noise
from dpgen.privacy.clipping import clipped_sums, gradient_norms

_UNIT = 16
_MOST = 128
_ENTRIES = 2**20  # of gradients that are multiplied out: more rows would make them no faster
_TRIALS = 16  # at least, and two of every shape: one with all rows present, one with some


class Shapes(NamedTuple):
    """Rows of a cluster are padded to multiples of `unit` and multiplied `most` at a time.

    Arguments:
        alone: one call per record.
        transposed: affine maps multiply transposed records.
    """

    unit: int
    most: int
    alone: bool = False
    transposed: bool = False

    def bounds(self, present: Sequence[int]) -> list[int]:
        """First padded row of every cluster, and the end, (k + 1,).

        >>> Shapes(16, 128).bounds([3, 0, 17])
        [0, 16, 16, 48]
        """
        return [0, *accumulate(-(-n // self.unit) * self.unit for n in present)]

    def gradients(self, bank: ModelBank, x: Tensor, present: Sequence[int], noise: Noise) -> RecordGradients:
        """Gradients of padded rows x (b, d), `present` (k,) records first in every cluster, each from that record alone."""
        bounds = self.bounds(present)
        bank.most_rows, bank.transposed = self.most, self.transposed
        if not self.alone or bounds[-1] == 0:
            made = bank.gradients(x, bounds, noise)
        else:
            rows = (
                bank.gradients(x[r : r + 1], [0] * (c + 1) + [1] * (bank.k - c), noise)
                for c, (a, b) in enumerate(pairwise(bounds))
                for r in range(a, b)
            )
            made = _joined(list(rows))
        return made.full()._replace(bounds=bounds, present=present, most_rows=self.most)


def _joined(parts: Sequence[RecordGradients]) -> RecordGradients:
    columns = zip(*(part.factors for part in parts))
    factors = [
        column[0]._replace(
            outputs=torch.cat([f.outputs for f in column]),
            inputs=None if column[0].inputs is None else torch.cat([f.inputs for f in column if f.inputs is not None]),
        )
        for column in columns
    ]
    return parts[0]._replace(factors=factors)


def candidates(expected: float, most_rows: int) -> list[Shapes]:
    """Shapes to try, the fastest first, for clusters of `expected` records in a draw and at most so many rows at once.

    >>> [(s.unit, s.most) for s in candidates(60.0, 1024)]  # the last but two are transposed, the last one is alone
    [(16, 128), (80, 80), (16, 16), (16, 128), (16, 16), (1, 1)]
    """
    top = max(1, min(most_rows, _MOST))
    unit = min(_UNIT, 2 ** (top.bit_length() - 1))
    most = top // unit * unit
    fixed = min(most, max(1, math.ceil((expected + 2.0 * math.sqrt(expected)) / unit)) * unit)
    tried = [Shapes(unit, most), Shapes(fixed, fixed), Shapes(unit, unit)]
    transposed = [Shapes(unit, rows, transposed=True) for rows in (most, unit)]
    return list(dict.fromkeys([*tried, *transposed, Shapes(1, 1, alone=True)]))


def fitting_shapes(
    bank: ModelBank, d: int, *, categories: int = 0, expected: float, micro_batch: int, declared: bool = False
) -> Shapes:
    """The fastest shapes that pass the test on the device, in the precision and with the threads of this moment.

    Arguments:
        d: columns of a record.
        categories: how many of them, the last, are a one-hot label.
        expected: records of a cluster in a draw.
        micro_batch: most rows in one call.
        declared: in half precision it is an assumption that records do not depend on each other: where no shapes pass at
            once, the first ones are taken.

    Raises:
        ValueError: not even a record by itself has the same gradient twice.
    """
    generator = torch.Generator().manual_seed(0)  # public: random records of its own
    at_once = min(micro_batch, max(_UNIT, _ENTRIES // bank.p)) if bank.dense else micro_batch
    tried = candidates(expected, at_once)
    for shapes in tried:
        if declared and shapes.alone:
            return tried[0]
        if _Trials(bank, shapes, d, categories, generator).passed(max(micro_batch, shapes.unit)):
            if shapes.alone and micro_batch > 1:
                warnings.warn(
                    f"on this device a record of {type(bank).__name__} has another gradient beside other records, whatever the "
                    "shape of the batch: gradients are taken one record at a time, which is slow",
                    stacklevel=2,
                )
            return shapes
    raise ValueError(
        f"the gradient of a record of {type(bank).__name__} is not the same twice on {bank.theta.device}, so no sensitivity "
        "holds: use deterministic kernels (torch.use_deterministic_algorithms) or another device"
    )


class _Trials:
    """Random records with latent noise of their own, in many batches; their gradients' bits as one number each."""

    def __init__(self, bank: ModelBank, shapes: Shapes, d: int, categories: int, generator: torch.Generator) -> None:
        self.bank, self.shapes, self.generator, self.device = bank, shapes, generator, bank.theta.device
        x = torch.rand(shapes.most, d, generator=generator)
        if categories:
            x[:, -categories:] = 0.0
            x[torch.arange(len(x)), d - categories + torch.arange(len(x)) % categories] = 1.0
        self.x = x.to(self.device)
        self._latents: dict[int, Tensor] = {}
        self._offset = torch.randn(bank.theta.shape, generator=generator).to(self.device) if bank.has_offset else None

    def passed(self, most: int) -> bool:
        """Whether every record has the same bits in all batches of up to `most` rows, and a cluster's sum beside any other."""
        everybody = torch.arange(self.shapes.most)
        nobody = everybody[:0]
        k = self.bank.k
        alone = [self._bits([everybody if c == own else nobody for c in range(k)])[own] for own in range(k)]
        for chosen in self._batches(most):
            found = self._bits(chosen)
            if not all(torch.equal(own[rows], bits) for own, rows, bits in zip(alone, chosen, found)):
                return False
            fewer = [rows if c % 2 else nobody for c, rows in enumerate(chosen)]
            if not torch.equal(self._sums(chosen)[1::2], self._sums(fewer)[1::2]):
                return False
        return True

    def _batches(self, most: int) -> Iterator[list[Tensor]]:
        """Which records each cluster has: every size is tried with all places taken, then with some, as often again."""
        sizes = range(self.shapes.unit, self.shapes.most + 1, self.shapes.unit)
        visits = max(2, -(-_TRIALS // len(sizes)))
        left = [(size, visit % 2 == 0) for visit in range(visits) for size in sizes]
        clusters = cycle(range(self.bank.k))
        while left:
            chosen, rows = [torch.arange(0)] * self.bank.k, 0
            for _ in range(self.bank.k):
                if left and (rows == 0 or rows + left[0][0] <= most):
                    size, full = left.pop(0)
                    n = (
                        size
                        if full
                        else int(torch.randint(max(1, size - self.shapes.unit + 1), size + 1, (), generator=self.generator))
                    )
                    chosen[next(clusters)] = torch.randperm(self.shapes.most, generator=self.generator)[:n]
                    rows += size
            next(clusters)
            yield chosen

    def _gradients(self, chosen: Sequence[Tensor]) -> RecordGradients:
        present = [len(rows) for rows in chosen]
        bounds = self.shapes.bounds(present)
        owner = torch.randint(self.shapes.most, (bounds[-1],), generator=self.generator)
        x = self.x.new_zeros(bounds[-1], self.x.shape[1])
        for start, rows in zip(bounds, chosen):
            owner[start : start + len(rows)] = rows
            x[start : start + len(rows)] = self.x[rows.to(self.device)]
        asked = 0

        def noise(*shape: int) -> Tensor:
            nonlocal asked
            b, width = shape
            if width not in self._latents:
                self._latents[width] = torch.randn(self.shapes.most, width, generator=self.generator)
            asked += b
            return self._latents[width][owner[asked - b : asked]].to(self.device)

        with torch.enable_grad():
            made = self.shapes.gradients(self.bank, x, present, noise)
        return made if self._offset is None else made._replace(offset=self._offset)

    def _bits(self, chosen: Sequence[Tensor]) -> list[Tensor]:
        """A number (n_c,) for every record of every cluster: of its factors and its norm."""
        made = self._gradients(chosen)
        parts = [v for f in made.factors for v in (f.outputs, f.inputs) if v is not None]
        total = sum(_hashed(v) for v in (*parts, gradient_norms(made)[:, None]))
        assert isinstance(total, Tensor)
        return [total[start : start + len(rows)] for start, rows in zip(made.bounds, chosen)]

    def _sums(self, chosen: Sequence[Tensor]) -> Tensor:
        made = self._gradients(chosen)
        norms = gradient_norms(made)
        weights = torch.zeros_like(norms)
        for start, n in zip(made.bounds, made.present or ()):
            weights[start : start + n] = 1.0 / norms[start : start + n]
        return clipped_sums(made, weights, torch.empty_like(self.bank.theta))


def _hashed(rows: Tensor) -> Tensor:
    """A number for each row (b, m) that differs if a bit does; 0 and -0 are the same."""
    words = (rows.detach().contiguous() + 0.0).view(torch.int32 if rows.dtype == torch.float32 else torch.int64).long()
    odd = torch.randint(2**62, (words.shape[1],), generator=torch.Generator().manual_seed(words.shape[1])) * 2 + 1
    return (words * odd.to(words.device)).sum(1)
