"""Choices of records by a public seed that look at no record: the split into private and test part, and other shuffles."""

from typing import Literal

import torch
from torch import Tensor

Stream = Literal["records", "public", "points"]


def public_order(n: int, seed: int, *, stream: Stream) -> Tensor:
    """A shuffle (n,) of 0, ..., n - 1 by a public seed.

    Arguments:
        n: number of records.
        seed: public.
        stream: "records" or "points" for a split, "public" for the choice of public records; shuffles of one seed that
            must not be the same.
    """
    state = {"records": 2 * seed, "public": 2 * seed + 1, "points": seed}[stream]
    return torch.randperm(n, generator=torch.Generator().manual_seed(state))


def public_split(n: int, test_fraction: float, seed: int, *, stream: Stream) -> tuple[Tensor, Tensor]:
    """Rows of the private part and of the test part, each in their old order.

    The test part has round(test_fraction * n) rows, at least 1 and at most n - 1.

    Raises:
        ValueError: ``test_fraction`` is outside (0, 1).

    Example:
        >>> [len(rows) for rows in public_split(10, 0.25, 0, stream="records")]
        [8, 2]
    """
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction is {test_fraction}: it must be in (0, 1)")
    n_test = min(max(round(test_fraction * n), 1), max(n - 1, 1))
    order = public_order(n, seed, stream=stream)
    return order[n_test:].sort().values, order[:n_test].sort().values
