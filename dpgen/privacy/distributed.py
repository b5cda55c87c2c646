"""Several processes that release together.

`Ranks` are the processes and what they agree on; rank 0 alone charges (`Curator`). `release_sum_` adds the noise of a sum over
all of them once, every coordinate's by the process that owns it; `NoiseAhead` draws it in CPU threads while a fast device
computes the step before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from dpgen.privacy.noise import SecureSource, grid_step, multiply_rows_, require_secure

T = TypeVar("T")


class RemoteFailure(RuntimeError):
    """Rank 0 failed at something that all ranks wait for; rank 0 itself raises the error that says why."""


class ShareDone(SystemExit):
    """This process has trained its share; the first one releases. Not caught, it ends the process with exit code 0.

    Lightning starts the other processes with the same script, which would otherwise go on there without a release.
    """

    def __init__(self) -> None:
        super().__init__(0)


def launched_rank() -> int:
    """Rank of this process as its launcher numbers it (Lightning, torchrun, Slurm), 0 where nobody does.

    Known before there is a process group, when the first process alone may open the ledger and write files.
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

    Every method is called by all ranks at the same point. Decisions travel between the CPUs (`control`, a gloo group; None: the
    default group), so that no device is waited for; sums travel through the group of the devices.

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
        """Result of `action` on rank 0, which alone calls it, for all ranks; where it fails, `RemoteFailure` on the others."""
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
        """Refuse to go on, with a ValueError on every rank, when some rank has another value than rank 0."""
        different = value != self.first(lambda: value)
        if self.any(different)[0]:
            where = f"rank {self.index} differs from rank 0" if different else "another rank differs from this one"
            raise ValueError(f"{what} must be the same for all {self.count} processes: {where}")


_LEAST = 2**16  # values per thread below which another thread is not worth it
_MOST_THREADS = 8


class NoiseAhead:
    r"""The next draw of :math:`N(0, \sigma^2)`, ready on the device when it is asked for; every draw is given out once.

    Each thread draws its part under its own keys from the source. A draw waits in (pinned) memory until it is used,
    at most one step, and is dropped unused after a fork, so that no two processes share it.

    >>> NoiseAhead(SecureSource(), torch.device("cpu")).draw(5, noise_std=2.0).shape
    torch.Size([5])
    """

    def __init__(self, source: SecureSource, device: torch.device) -> None:
        self.source, self.device = require_secure(source), device
        threads = max(1, min(_MOST_THREADS, (os.cpu_count() or 2) - 1))
        self._threads, self._pool = threads, ThreadPoolExecutor(threads, thread_name_prefix="noise")
        self._pid = os.getpid()
        self._ready: dict[tuple[int, float, torch.dtype], tuple[Tensor, list[Future[None]]]] = {}
        self._in_use: list[tuple[Tensor, Any]] = []

    def draw(self, n: int, *, noise_std: float, dtype: torch.dtype = torch.float32) -> Tensor:
        """n values on the device, unrounded: the sum that they are added to has to be rounded to the grid afterwards."""
        if os.getpid() != self._pid:
            raise RuntimeError("noise drawn ahead cannot be used in a forked process: make a new NoiseAhead there")
        asked = (n, noise_std, dtype)
        values, parts = self._ready.pop(asked) if asked in self._ready else self._begin(*asked)
        for part in parts:
            part.result()
        result = self._on_device(values)
        self._ready[asked] = self._begin(*asked)
        return result

    def _begin(self, n: int, noise_std: float, dtype: torch.dtype) -> tuple[Tensor, list[Future[None]]]:
        values = torch.empty(n, dtype=dtype, pin_memory=self.device.type == "cuda")

        def fill(part: Tensor) -> None:
            part.copy_(self.source.unrounded_normal(part.numel(), noise_std=noise_std, dtype=dtype))

        size = max(_LEAST, -(-n // self._threads))
        return values, [self._pool.submit(fill, part) for part in values.split(size)]

    def _on_device(self, values: Tensor) -> Tensor:
        if self.device.type != "cuda":
            return values
        result = values.to(self.device, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        # The allocator of pinned memory must not hand the buffer out again before the copy is done.
        self._in_use = [(v, e) for v, e in self._in_use if not e.query()] + [(values, copied)]
        return result

    def close(self) -> None:
        """Stop the threads and drop what is ready."""
        self._ready.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)


@torch.no_grad()
def release_sum_(
    sums: Tensor,
    *,
    noise_std: float,
    source: SecureSource,
    ranks: Ranks,
    ahead: NoiseAhead | None = None,
    factor: Tensor | None = None,
) -> Tensor:
    r"""Replace `sums` by :math:`g\,\text{round}((\sum_r S_r + N(0, \sigma^2)) / g)`, the same bits on every rank.

    Coordinates are split into one block per rank; a rank adds the whole noise of its block to its own sums, unrounded,
    and the sums of all ranks are added. So each coordinate carries exactly one draw of std sigma, and only the noisy total is
    ever used. Noise on every rank would have std :math:`\sqrt W \sigma`; noise divided by the number of ranks W,
    :math:`\sigma / W` or :math:`\sigma / \sqrt W`. Rounding before the ranks are added would be part of the query.

    `sums` are this rank's, contiguous, float32 or float64, and overwritten; the k rows of what is released are multiplied by
    `factor` (k,), public. Values that are not finite are refused: on a CUDA device by an assertion of its own, because it is
    never waited for.
    """
    if ranks.count == 1 and sums.device.type == "cpu":
        return source.add_normal_(sums, noise_std=noise_std, factor=factor)
    flat = sums.view(-1)
    block = flat[ranks.block(flat.numel())]
    if ahead is not None:
        block.add_(ahead.draw(block.numel(), noise_std=noise_std, dtype=sums.dtype))
    else:
        block.add_(source.normal_on(sums.device, block.numel(), noise_std=noise_std, dtype=sums.dtype))
    ranks.sum_(flat)
    grid = grid_step(noise_std)
    flat.div_(grid).round_().mul_(grid)
    finite, text = flat.isfinite().all(), "values must be finite before noise is added, got NaN or infinite entries"
    if flat.device.type != "cpu":
        torch._assert_async(finite, text)
    elif not bool(finite):
        raise ValueError(text)
    return multiply_rows_(sums, factor)
