"""Several processes that release together: one charge, one noise.

`Ranks` are the processes and what they agree on. `SharedLedger` lets rank 0 ask and record; the others repeat what it
recorded. `release_sum_` adds the noise of a sum over all of them once, every coordinate's by the process that owns it;
`NoiseAhead` draws it in CPU threads while a fast device computes the step before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from dpgen.privacy.ledger import BudgetExceeded, Ledger, Planned
from dpgen.privacy.noise import SecureSource, grid_step, multiply_rows_, require_secure, to_device

if TYPE_CHECKING:
    from dp_accounting import DpEvent


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
        """Result of `action` on rank 0, which alone calls it, for all ranks.

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


class FollowerLedger(Ledger):
    """Copy of rank 0's plans and charges on the other ranks, for reading. It has no file and grants nothing."""

    def charge(self, event: DpEvent, count: int = 1, **_: Any) -> NoReturn:
        """Refuse: only rank 0 charges."""
        raise RuntimeError("only rank 0 charges; the other ranks repeat what its ledger has recorded")

    def declare(self, plan: Sequence[Planned]) -> NoReturn:
        """Refuse: only rank 0 declares."""
        raise RuntimeError("only rank 0 declares a plan; the other ranks repeat what its ledger has recorded")

    def repeat(self, event: DpEvent, *, note: str, group: str | None = None) -> None:
        """Take over one charge that rank 0 has recorded."""
        with self._lock:
            mechanism = self._find(event, note, group)
            if mechanism.number is None:
                self._number(mechanism)
            self._book(mechanism, 1)

    def catch_up(self, copy: dict[str, Any]) -> None:
        """Take over everything that rank 0 has recorded."""
        with self._lock:
            self._declared, self._known, self._divisible, self._runs = [], {}, {}, []
            for event, note, group, divisible, whole, *counts in copy["mechanisms"]:
                whole = None if whole is None else self._declared[whole]
                item = self._find(event, note, group, whole=whole, divisible=divisible)
                item.planned, item.count, item.later, item.parts = counts
                self._number(item)
            self._plans, self._filtered = copy["plans"], None
            self._runs = [[self._declared[n], count] for n, count in copy["runs"]]
            self._cache.clear()
            self._guarantees.clear()


def _copied(ledger: Ledger) -> dict[str, Any]:
    """Plans and charges of a ledger, for another rank."""
    with ledger._lock:
        numbers = {id(m): i for i, m in enumerate(ledger._declared)}
        fields = [
            (m.event, m.note, m.group, m.divisible, numbers.get(id(m.whole)), m.planned, m.count, m.later, m.parts)
            for m in ledger._declared
        ]
        runs = [(numbers[id(m)], n) for m, n in ledger._runs]
        return {"mechanisms": fields, "plans": list(ledger._plans), "runs": runs}


class SharedLedger:
    """Rank 0's ledger as all ranks see it; every method is called by all of them at the same point.

    Formal guarantees:

    | case | what holds |
    |---|---|
    | a charge is granted, a plan is declared | it is on rank 0's file before any rank goes on; all ranks count it |
    | the budget is spent | all ranks are told so; nothing is charged anywhere |
    | a plan does not fit | all ranks stop; rank 0 raises `BudgetExceeded` |
    | rank 0 cannot record it | all ranks stop; rank 0 raises the ledger's error |
    | number of ranks | does not matter: one step is charged once |

    Arguments:
        ledger: the ledger on rank 0; on other ranks it is not looked at.
        ranks: the processes.

    Attributes:
        ledger: rank 0's ledger there, its `FollowerLedger` elsewhere.
    """

    def __init__(self, ledger: Ledger, ranks: Ranks) -> None:
        self.ranks = ranks
        budget, delta, terms, limits = ranks.first(lambda: (ledger.budget, ledger.delta, ledger.terms, ledger.filter))
        self.ledger = ledger
        if ranks.index:
            self.ledger = FollowerLedger(budget, delta=None if budget else delta, **terms)
            self.ledger.filter = limits
        self.catch_up()

    def catch_up(self) -> None:
        """Repeat on all ranks what rank 0 has declared and charged by itself."""
        if self.ranks.count == 1:
            return
        copy = self.ranks.first(lambda: _copied(self.ledger))
        if isinstance(self.ledger, FollowerLedger):
            self.ledger.catch_up(copy)

    def declare(self, plan: Sequence[Planned]) -> None:
        """Declare a plan, for all ranks together.

        Raises:
            BudgetExceeded: on rank 0, when the plan does not fit; `RemoteFailure` elsewhere.
            LedgerError: on rank 0, when it cannot be recorded; `RemoteFailure` elsewhere.
        """
        self.ranks.first(lambda: self.ledger.declare(plan))
        self.catch_up()

    def authorise(self, event: DpEvent, *, note: str, group: str | None = None) -> bool:
        """Charge one run of `event`, for all ranks together; False when the budget would be exceeded.

        Raises:
            LedgerError: on rank 0, when the charge cannot be recorded; `RuntimeError` elsewhere.
        """
        if self.ranks.count == 1:
            return self._charged(event, note, group)
        refused, failure = False, None  # type: bool, BaseException | None
        if self.ranks.index == 0:
            try:
                refused = not self._charged(event, note, group)
            except BaseException as error:
                failure = error
        refused, failed = self.ranks.any(refused, failure is not None)
        if failure is not None:
            raise failure
        if failed:
            raise RemoteFailure("rank 0 stopped: its ledger could not record a charge")
        if isinstance(self.ledger, FollowerLedger) and not refused:
            self.ledger.repeat(event, note=note, group=group)
        return not refused

    def _charged(self, event: DpEvent, note: str, group: str | None) -> bool:
        try:
            self.ledger.charge(event, note=note, group=group)
        except BudgetExceeded:
            return False
        return True


_LEAST = 2**16  # values per thread below which another thread is not worth it
_MOST_THREADS = 8


class NoiseAhead:
    r"""The next draw of :math:`N(0, \sigma^2)`, ready on the device when it is asked for; every draw is given out once.

    Each thread draws its part under its own keys from the source. A draw waits in (pinned) memory until it is used,
    at most one step, and is dropped unused after a fork, so that no two processes share it.

    Arguments:
        source: secure noise.
        device: where draws are wanted; copies to a CUDA device are not waited for.

    Example:
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
        size = max(_LEAST, -(-n // self._threads))
        return values, [self._pool.submit(self._fill, part, noise_std) for part in values.split(size)]

    def _fill(self, part: Tensor, noise_std: float) -> None:
        part.copy_(self.source.unrounded_normal(part.numel(), noise_std=noise_std, dtype=part.dtype))

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
    and the sums of all ranks are added. So each coordinate carries exactly one draw of std sigma, drawing it takes
    1 / ranks of the time, and only the noisy total is ever used. Noise on every rank would have std
    :math:`\sqrt W \sigma`; noise divided by the number of ranks W, :math:`\sigma / W` or :math:`\sigma / \sqrt W`.

    Rounding to the grid comes last, as in `SecureSource.add_normal_`: rounding before the ranks are added would be part
    of the query.

    Arguments:
        sums: this rank's sums, contiguous, float32 or float64; overwritten.
        noise_std: sigma, in the units of the sums.
        source: secure noise of this process.
        ranks: the processes; one alone adds all of the noise.
        ahead: noise drawn ahead for a device, which is then never waited for.
        factor: (k,), public: what the k rows of the released values are multiplied by.

    Raises:
        ValueError: values that are not finite, or noise out of range. (On a CUDA device without waiting for it: the
            device itself stops with an assertion.)
    """
    if ranks.count == 1 and sums.device.type == "cpu":
        return source.add_normal_(sums, noise_std=noise_std, factor=factor)
    flat = sums.view(-1)
    block = flat[ranks.block(flat.numel())]
    if ahead is not None:
        block.add_(ahead.draw(block.numel(), noise_std=noise_std, dtype=sums.dtype))
    else:
        noise = source.unrounded_normal(block.numel(), noise_std=noise_std, dtype=sums.dtype)
        block.add_(to_device(noise, sums.device))
    ranks.sum_(flat)
    grid = grid_step(noise_std)
    flat.div_(grid).round_().mul_(grid)
    _require_finite(flat)
    return multiply_rows_(sums, factor)


def _require_finite(values: Tensor) -> None:
    text = "values must be finite before noise is added, got NaN or infinite entries"
    if values.device.type == "cpu":
        if not bool(values.isfinite().all()):
            raise ValueError(text)
    else:
        torch._assert_async(values.isfinite().all(), text)
