"""Private records as a stream of mini-batches that can be read several times: nothing else is held in memory."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Batches = Iterable[tuple[Tensor, Tensor | None]]
"""Anything that yields (x (b, d) float32 in [0, 1], labels (b,) or None) each time it is read, on any device."""


@dataclass(frozen=True, eq=False, repr=False)
class RecordStream:
    """Records (n, d) in slices of at most `batch_size`, as float32 between 0 and 1.

    Every private sum of this package is one pass over such a stream; with sub-clusters, clipped coordinates are kept
    beside records that are in memory anyway. Any other re-readable iterable of (x, labels) serves as well; of that a fit
    holds one slice and its sums only.

    Arguments:
        x: records (n, d), uint8 or floating point in [0, top].
        labels: int64 (n,), or None.
        top: value that becomes 1: 1 for bits, 255 for grey values.
        batch_size: records of a slice.
        device: where a slice is sent.

    >>> stream = RecordStream(torch.tensor([[0, 255], [255, 0], [0, 0]]).byte(), None, top=255, batch_size=2)
    >>> [x.tolist() for x, _ in stream]
    [[[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.0]]]
    """

    x: Tensor
    labels: Tensor | None
    top: float = 1.0
    batch_size: int = 8192
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.x.ndim != 2 or self.x.shape[1] < 1:  # there may be no records: their number is private
            raise ValueError(f"x must have shape (n, d), d at least 1, got {tuple(self.x.shape)}")
        if self.labels is not None and self.labels.shape != self.x.shape[:1]:
            raise ValueError(f"labels must have shape {tuple(self.x.shape[:1])}, got {tuple(self.labels.shape)}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        for start in range(0, len(self.x), self.batch_size):
            part = slice(start, start + self.batch_size)
            labels = None if self.labels is None else self.labels[part].to(self.device)
            yield self.x[part].to(self.device).div(self.top).to(torch.float32), labels


def checked(batches: Batches, d: int, n_classes: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    """The batches, each refused unless it is (b, d), finite, in [0, 1], with labels in [0, n_classes) if there are any.

    Raises:
        ValueError: naming what is wrong.
    """
    for x, labels in batches:
        if x.ndim != 2 or x.shape[1] != d:
            raise ValueError(f"x must have shape (b, {d}), got {tuple(x.shape)}")
        if x.numel():
            low, high = (float(end) for end in x.aminmax())  # NaN if any entry is
            if not math.isfinite(low) or not math.isfinite(high):
                raise ValueError("x must be finite, got NaN or infinite entries")
            if not 0.0 <= low <= high <= 1.0:
                raise ValueError(f"x must be in [0, 1], got [{low:g}, {high:g}]")
        if n_classes:
            _require_labels(labels, len(x), n_classes)
        yield x, labels if n_classes else None


def _require_labels(labels: Tensor | None, b: int, n_classes: int) -> None:
    if labels is None or labels.shape != (b,):
        raise ValueError(f"labels must have shape ({b},), got {None if labels is None else tuple(labels.shape)}")
    if b and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise ValueError(f"labels must be in [0, {n_classes}), got [{int(labels.min())}, {int(labels.max())}]")
