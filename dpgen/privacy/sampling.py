"""Poisson sampling and random allocation of records: the loader whose draws subsampled accounting prices."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader, Dataset, Sampler

from dpgen.privacy.distributed import Ranks
from dpgen.privacy.exact_sums import WHOLE, shares
from dpgen.privacy.mechanisms import Sampling, allocated_gaussian_event, steps_of_epoch, subsampled_gaussian_event
from dpgen.privacy.noise import SecureSource, require_secure, to_device

if TYPE_CHECKING:
    from dp_accounting import DpEvent


class PoissonMask:
    """The right to release from one secret draw, once: units of up to `rows` rows took part with chance `rate`.

    The draws of an `epoch` of random allocation are paid for together, with the first one.
    """

    def __init__(self, rate: float, rows: int = 1, epoch: "Epoch | None" = None) -> None:
        self.rate, self.rows, self.epoch, self._used = rate, rows, epoch, False

    def price(self, noise_multiplier: float) -> "DpEvent":
        """The event of this draw, or of its epoch; RuntimeError when the draw has been released from already."""
        if self._used:
            raise RuntimeError("this draw has been used: every release needs a fresh one")
        self._used = True
        if self.epoch is not None:
            return allocated_gaussian_event(self.epoch.steps, noise_multiplier)
        return subsampled_gaussian_event(self.rate, noise_multiplier)


class Epoch:
    """One random allocation: each unit is in one of `steps` draws, uniform and drawn by itself; see `pld.py`."""

    def __init__(self, steps: int) -> None:
        self.steps = steps


class Batch(NamedTuple):
    """One Poisson draw: records, the cluster and label of each (label -1: none).

    With `sizes` (k,) the rows are sorted by cluster and the host knows how many each has, so that a device is not asked.
    `mask` is what the curator wants to see before it releases anything of the draw; only a `PoissonLoader` makes one. `share`
    (b,), where people have several records, is what each counts for: a person's records together for at most 1.
    """

    x: Tensor  # (b, d) float32
    cluster: Tensor  # (b,) int64
    labels: Tensor  # (b,) int64
    sizes: Sequence[int] | None = None
    mask: PoissonMask | None = None
    share: Tensor | None = None  # (b,) float32


class Held:
    """Records in a container of tensors (n, ...), indexed like one tensor (n, 1): rows of a `PoissonLoader`."""

    ndim, dtype = 2, torch.float32

    def __init__(self, values: Any) -> None:
        self.values = values

    @property
    def shape(self) -> tuple[int, int]:
        return len(tree_leaves(self.values)[0]), 1

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def device(self) -> torch.device:
        return cast(torch.device, tree_leaves(self.values)[0].device)

    def is_floating_point(self) -> bool:
        return False

    def __getitem__(self, rows: Tensor) -> "Held":
        return Held(tree_map(lambda v: v[to_device(rows, v.device)], self.values))

    def to(self, target: Any, *args: Any, **options: Any) -> "Held":
        """On another device; values keep their types."""
        return (
            self if isinstance(target, torch.dtype) else Held(tree_map(lambda v: v.to(target, *args, **options), self.values))
        )

    def random(self, n: int) -> "Held":
        """n public records of the same form: standard normal numbers, and codes in {0, 1}."""
        generator = torch.Generator().manual_seed(0)

        def made(value: Tensor) -> Tensor:
            shape = (n, *value.shape[1:])
            if value.is_floating_point():
                return torch.randn(shape, generator=generator).to(value)
            return torch.randint(2, shape, generator=generator).to(value)

        return Held(tree_map(made, self.values))


class Owners:
    """Whose the records are, from a number (n,) for the person of each: draws take people, each with all of their records.

    `most` is the greatest number of records of a person (else ValueError), and `share` (n,) the part of a person that each
    record has, see `shares`.

    >>> owners = Owners(torch.tensor([7, 2, 7, 5]), 2)
    >>> len(owners), owners.records(torch.tensor([0, 2])).tolist()
    (3, [0, 1, 2])
    """

    def __init__(self, people: Tensor, most: int) -> None:
        _, person, rows = people.unique(return_inverse=True, return_counts=True)
        if len(rows) and int(rows.max()) > most:
            raise ValueError(f"people has {int(rows.max())} records of one person; there must be at most {most}")
        self.most, self.share = most, shares(people)
        self._records, self._rows, self._ends = person.argsort(), rows, rows.cumsum(0)

    def __len__(self) -> int:
        return len(self._rows)

    def records(self, drawn: Tensor) -> Tensor:
        """Records, in increasing order, of people by their places in [0, len)."""
        rows = self._rows[drawn]
        first = self._ends[drawn] - rows
        before = rows.cumsum(0) - rows
        return self._records[(first - before).repeat_interleave(rows) + torch.arange(int(rows.sum()))].sort().values


def one_group(n: int) -> Tensor:
    """The group 0 of each of n records, (n,) int64, in the memory of one."""
    return torch.zeros(1, dtype=torch.int64).expand(n)


Draw = tuple[Tensor, PoissonMask]
"""Indices of the records of one draw, sorted, and the right to release it."""


class PoissonTable(Dataset[Batch]):
    """Records (n, d), their clusters, labels and owners, if any; indexed by whole draws, whose values are x / white."""

    x: Any  # a tensor, or `Held`

    def __init__(self, x: Tensor | Held, labels: Tensor | None = None, owners: Owners | None = None, *, white: int = 1) -> None:
        if x.ndim != 2 or x.shape[1] == 0:
            raise ValueError(f"x must have shape (n, d) with d >= 1, got {tuple(x.shape)}")
        if isinstance(x, Tensor) and x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise ValueError("x must be finite, got NaN or infinite values")
        if labels is not None and labels.shape != (x.shape[0],):
            raise ValueError(f"labels must have shape ({x.shape[0]},), got {tuple(labels.shape)}")
        if owners is not None and len(owners.share) != x.shape[0]:
            raise ValueError(f"people has length {len(owners.share)}; it must be {x.shape[0]}, one for each record")
        self.x, self.labels, self.owners, self.white = x, labels, owners, white
        self.cluster = one_group(x.shape[0])
        self.k: int | None = None

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def __getitem__(self, draw: Draw) -> Batch:
        rows, mask = draw
        cluster = self.cluster[rows]
        sizes: tuple[int, ...] | None = None
        if self.k is not None:
            order = cluster.argsort(stable=True)
            rows, cluster = rows[order], cluster[order]
            sizes = tuple(torch.bincount(cluster, minlength=self.k).tolist())
        labels = self.labels[rows] if self.labels is not None else torch.full_like(cluster, -1)
        share = None if self.owners is None else self.owners.share[rows].float() / WHOLE  # exact
        x: Tensor = self.x[to_device(rows, self.x.device)].to(torch.float32)
        return Batch(x if self.white == 1 else x.div_(self.white), cluster, labels, sizes, mask, share)

    def fingerprint(self) -> str:
        """Hash of all records and labels in order, to tell whether two processes hold the same."""
        digest = sha256(repr((tuple(self.x.shape), self.x.dtype)).encode())
        whose = None if self.owners is None else self.owners._records
        parts = [part for part in (self.labels, whose) if part is not None]
        held = [self.x] if isinstance(self.x, Tensor) else tree_leaves(self.x.values)
        for part in (*(rows for values in held for rows in values.split(2**16)), *parts):
            digest.update(part.cpu().contiguous().numpy().data)
        return digest.hexdigest()


class _PoissonSampler(Sampler[Draw]):
    """Every record, or person, enters every draw independently with probability `sampling_rate`; draws may be empty.

    With "allocation" it enters one of the `draws` of an iteration, uniformly and independently of others. On one of several
    ranks, every one of the rank's shard does: the ranks' draws together are one draw of all, for the shards are disjoint and
    cover them, and every rank has its own secret masks.
    """

    def __init__(self, table: PoissonTable, *, sampling_rate: float, sampling: Sampling, source: SecureSource) -> None:
        self.table, self.sampling_rate, self.sampling, self.source = table, sampling_rate, sampling, source
        self.draws = steps_of_epoch(sampling_rate, sampling)
        self.ranks = Ranks()

    def __len__(self) -> int:
        return self.draws

    def __iter__(self) -> Iterator[Draw]:
        owners, rows = self.table.owners, 1 if self.table.owners is None else self.table.owners.most
        units = len(self.table if owners is None else owners)
        for places, epoch in self._allocated(units) if self.sampling == "allocation" else self._independent(units):
            shard = self.ranks.shard(units)
            drawn = shard.start + shard.step * places
            yield drawn if owners is None else owners.records(drawn), PoissonMask(self.sampling_rate, rows, epoch)

    def _independent(self, units: int) -> Iterator[tuple[Tensor, Epoch | None]]:
        for _ in range(self.draws):
            mine = len(range(units)[self.ranks.shard(units)])
            yield self.source.bernoulli_indices(mine, probability=self.sampling_rate), None

    def _allocated(self, units: int) -> Iterator[tuple[Tensor, Epoch | None]]:
        mine, bits = len(range(units)[self.ranks.shard(units)]), (self.draws - 1).bit_length()
        steps = self.source.words(mine, bits=bits)
        while (beyond := steps >= self.draws).any():  # until each is uniform on the steps
            steps[beyond] = self.source.words(int(beyond.sum()), bits=bits)
        order, epoch = np.argsort(steps, kind="stable"), Epoch(self.draws)
        for places in np.split(order, np.bincount(steps.astype(np.int64), minlength=self.draws).cumsum()[:-1]):
            yield torch.from_numpy(places), epoch


class PoissonLoader(DataLoader[Batch]):
    r"""Batches by Poisson sampling or random allocation, secretly; the only loader that private training accepts.

    Shuffled batches of fixed size are **neither**: 20 shuffled epochs at multiplier 1 booked as Poisson claim eps .93 where
    28.4 is true. One epoch is :math:`\lceil 1/q \rceil` draws.

    Arguments:
        x: records, (n, d): a tensor, or several of them.
        labels: labels (n,), int64, if the records have them.
        sampling_rate: probability q of every record, or person, in every draw, in (0, 1].
        sampling: "poisson", or "allocation": each is in one draw of an epoch, uniform and drawn by itself; q is 1 / draws.
        people: a number (n,) for the person of each record, who has `rows` records at most, drawn together.
        white: draws have values x / white.
    """

    def __init__(
        self,
        x: Tensor | Held,
        labels: Tensor | None = None,
        *,
        sampling_rate: float,
        sampling: Sampling = "poisson",
        people: Tensor | None = None,
        rows: int = 1,
        white: int = 1,
        source: SecureSource | None = None,
    ) -> None:
        steps_of_epoch(sampling_rate, sampling)
        self.sampling_rate, self.sampling = sampling_rate, sampling
        self.table = PoissonTable(x, labels, None if people is None else Owners(people, rows), white=white)
        self.poisson = _PoissonSampler(
            self.table,
            sampling_rate=sampling_rate,
            sampling=sampling,
            source=require_secure(source if source is not None else SecureSource()),
        )
        super().__init__(self.table, sampler=self.poisson, batch_size=None)

    def assign(self, cluster: Tensor, k: int | None = None) -> None:
        """Set the cluster (n,) of every record; with their number k, draws come sorted by cluster."""
        if cluster.shape != self.table.cluster.shape:
            raise ValueError(f"cluster must have shape {tuple(self.table.cluster.shape)}, got {tuple(cluster.shape)}")
        self.table.cluster, self.table.k = cluster.to(torch.int64).cpu(), k

    def share(self, ranks: Ranks) -> None:
        """Draw from this rank's shard of the records only; every rank must do so."""
        self.poisson.ranks = ranks

    def reside(self, device: torch.device) -> bool:
        """Keep the records on the device if they fill at most half of its free memory; whether they are."""
        if device.type != "cuda" or not isinstance(self.table.x, Tensor):
            return bool(self.table.x.device == device)
        free, _ = torch.cuda.mem_get_info(device)
        if self.table.x.numel() * self.table.x.element_size() <= free / 2:
            self.table.x = self.table.x.to(device)
        return self.table.x.is_cuda
