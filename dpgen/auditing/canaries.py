"""A worst-case problem for private training, the eyes of an adversary on it, and engines that are broken on purpose."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dpgen.nets.bank import Factor, ModelBank, Noise, RecordGradients
from dpgen.privacy.curator import Draw
from dpgen.privacy.noise import PublicRandomness, SecureSource, grid_step, multiply_rows_
from dpgen.privacy.sampling import Batch, PoissonDraw, PoissonLoader, PoissonMask
from dpgen.systems.networks.dpgm import DPGM

STEEPNESS = 1e6
"""Gradients are so large that every clipping policy cuts them to its bound."""


class CanaryBank(ModelBank):
    r"""k linear models with loss :math:`10^6 \langle \theta, x \rangle`: the gradient of a record is the record itself.

    Records along different axes have orthogonal gradients, so one coordinate of a released sum tells of one record alone.
    """

    def __init__(self, k: int, d: int) -> None:
        super().__init__(k, {"direction": (d,)})

    def architecture(self) -> dict[str, Any]:
        return {"d": self.p}

    def initialize(self, generator: torch.Generator) -> None:
        self.theta.zero_()

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return RecordGradients([Factor(STEEPNESS * x, None, None, slice(0, self.p))], bounds)

    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        return torch.full((n, self.p), 0.5)


class Seen(NamedTuple):
    """What one step released about the canaries: the step, its Poisson rate, and their coordinates (m,)."""

    step: int
    rate: float
    values: Tensor


class WatchedDPGM(DPGM):
    """The real engine, whose releases an adversary writes down.

    Arguments:
        target: cluster of the canaries; they are the coordinates from 1 on.
        options: of `DPGM`.
    """

    def __init__(self, *, target: int, **options: Any) -> None:
        super().__init__(**options)
        self.target = target
        self.seen: list[Seen] = []

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        self._group = batch.group
        super().training_step(batch, batch_idx)

    def noisy_sums(self, batch: Batch, draw: Draw, out: Tensor | None = None, *, averaged: bool = False) -> Tensor:
        released = super().noisy_sums(batch, draw, out, averaged=averaged)
        if self._group in (-1, self.target):
            rate = self._loader().poisson.rate(self._group)
            values = released[self.target, 1:].double() / (self.averaging()[self.target] if averaged else 1.0)
            self.seen.append(Seen(self.global_step, rate, values))
        return released


class ReusedNoise(SecureSource):
    """The broken twin of the secure source: one draw of noise for all sums of a shape."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[tuple[int, ...], Tensor] = {}

    def add_normal_(self, values: Tensor, *, noise_std: float, factor: Tensor | None = None) -> Tensor:
        shape = tuple(values.shape)
        if shape not in self._kept:
            self._kept[shape] = self.unrounded_normal(*shape, noise_std=noise_std, dtype=values.dtype)
        grid = grid_step(noise_std)
        return multiply_rows_(values.add_(self._kept[shape]).div_(grid).round_().mul_(grid), factor)


def public_batches(people: int, batches: int, *, epoch: int, seed: int) -> Tensor:
    """In which batch of an epoch each of the people (people,) is, when a seeded generator shuffles them."""
    order = torch.randperm(people, generator=PublicRandomness(seed).spawn(f"order {epoch}").generator)
    return torch.empty_like(order).index_put_((order,), torch.arange(people) * batches // people)


class ShuffledLoader(PoissonLoader):
    """The broken twin of the loader: each epoch is a seeded shuffle cut into batches, booked as Poisson draws.

    Arguments:
        x: records (n, d).
        labels: labels (n,).
        sampling_rate: 1 / batches of an epoch.
        ids: who each record belongs to, (n,) in [0, people).
        people: all that may be in the data.
        seed: public.
    """

    def __init__(self, x: Tensor, labels: Tensor | None, *, sampling_rate: float, ids: Tensor, people: int, seed: int) -> None:
        super().__init__(x, labels, sampling_rate=sampling_rate)
        self.ids, self.people, self.seed = ids, people, seed
        self.epoch = 0

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        batches, epoch = len(self), self.epoch
        batch_of = public_batches(self.people, batches, epoch=epoch, seed=self.seed)[self.ids]
        for number in range(batches):
            self.epoch = epoch + 1
            yield self.table[PoissonDraw((batch_of == number).nonzero()[:, 0], mask=PoissonMask(self.sampling_rate))]
