"""The processes of one run: who is first, what they agree on, and sums that reach all of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


class RemoteFailure(RuntimeError):
    """Rank 0 failed at something that all ranks wait for; rank 0 itself raises the error that says why."""


def launched_rank() -> int:
    """Rank of this process as its launcher numbers it (Lightning, torchrun, Slurm), 0 where nobody does.

    Known before the process group exists, when the first process alone may open the ledger and write files.

    >>> launched_rank()
    0
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"):
        if value := os.environ.get(name):
            # Lightning numbers the processes of a machine: the first one of another machine is not the first.
            return int(value) or (int(os.environ.get("NODE_RANK", "0")) if name == "LOCAL_RANK" else 0)
    return 0


@dataclass(frozen=True)
class Ranks:
    """The processes that train together, each on its own share of the records; alone where there is no process group.

    Every method is called by all ranks at the same point. Decisions travel between the CPUs (`control`, a gloo group),
    so that no device is waited for; sums travel through the group of the devices.

    Arguments:
        index: this process, in [0, count).
        count: processes.
        control: group for decisions; None: the default group.

    >>> Ranks().first(lambda: 7), Ranks().any(False, True), Ranks().shard(5)
    (7, [False, True], slice(0, 5, 1))
    """

    index: int = 0
    count: int = 1
    control: Any = None

    @classmethod
    def join(cls) -> Ranks:
        """The ranks of the default process group, if there is one."""
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return cls()
        control = None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
        return cls(dist.get_rank(), dist.get_world_size(), control)

    def shard(self, n: int) -> slice:
        """This rank's share of n records: every `count`-th one. Shares are disjoint, cover all, and may be empty."""
        return slice(self.index, n, self.count)

    def block(self, n: int) -> slice:
        """This rank's share of n coordinates: one block out of `count` neighbouring ones, disjoint and covering all."""
        return slice(n * self.index // self.count, n * (self.index + 1) // self.count)

    def sum_(self, values: Tensor) -> Tensor:
        """Replace values by their sum over the ranks, the same bits everywhere."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def broadcast_(self, values: Tensor) -> Tensor:
        """Replace values by rank 0's."""
        if self.count > 1:
            dist.broadcast(values, src=0)
        return values

    def any(self, *flags: bool) -> list[bool]:
        """For every flag, whether some rank has set it."""
        if self.count == 1:
            return list(flags)
        votes = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=self.control)
        return [bool(vote) for vote in votes.tolist()]

    def first(self, action: Callable[[], T]) -> T:
        """What `action` returns on rank 0, which alone calls it.

        Raises:
            RemoteFailure: on the other ranks, when the action failed; rank 0 raises what the action raised.
        """
        if self.count == 1:
            return action()
        outcome: list[Any] = [None, None]
        try:
            if self.index == 0:
                outcome = [action(), None]
        except BaseException as error:
            dist.broadcast_object_list([None, f"{type(error).__name__}: {error}"], group=self.control)
            raise
        dist.broadcast_object_list(outcome, group=self.control)
        value, failure = outcome
        if failure is not None:
            raise RemoteFailure(f"rank 0 stopped: {failure}")
        return value

    def require_same(self, what: str, value: object) -> None:
        """Refuse to go on when the ranks disagree.

        Raises:
            ValueError: on every rank, when the value differs from rank 0's somewhere.
        """
        different = value != self.first(lambda: value)
        if self.any(different)[0]:
            where = f"rank {self.index} differs from rank 0" if different else "another rank differs from this one"
            raise ValueError(f"{what} must be the same for all {self.count} processes: {where}")
