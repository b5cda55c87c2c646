"""Exact laws of lattice samplers, for tests of privacy by enumeration."""

import math

import torch
from torch import Tensor

from dpgen.privacy.noise import SecureSource
from dpgen.systems.mbde.boxes import GridResponse


def log_density(law: GridResponse, x: Tensor) -> Tensor:
    """Log density of a draw with respect to length, area, ..."""
    return law.reference.log_prob(x) + law.log_ratio(x)


def worst_loss(first: GridResponse, second: GridResponse, x: Tensor) -> float:
    """Largest absolute log-ratio of two laws over points x; infinite where only one of them has mass."""
    a, b = log_density(first, x), log_density(second, x)
    both = (a > -math.inf) | (b > -math.inf)
    return float((a[both] - b[both]).abs().max())


class CountingSource(SecureSource):
    """Counts the random numbers that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, ...]] = []

    def uniform(self, *shape: int) -> Tensor:
        self.asked.append(shape)
        return super().uniform(*shape)


def extremes(d: int) -> list[Tensor]:
    """Data sets in [0, 1]^d that are as different as data sets can be, and one in between."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.rand(12, d, dtype=torch.float64, generator=generator)
    return [torch.zeros(12, d).double(), torch.ones(12, d).double(), torch.full((12, d), 0.5).double(), spread]
