"""Noise of a sum over ranks: once per coordinate, of full std, rounded last, the same bits everywhere."""

import math
from typing import Any

import pytest
import torch
from fixed_source import FixedKeySource

from dpgen.privacy.distributed import Ranks, release_sum_
from dpgen.privacy.noise import grid_step, to_device

Results = dict[int, dict[str, Any]]
SIZE = 90_003


@pytest.mark.parametrize("count", [2, 3])
def test_the_sum_of_all_ranks_gets_its_noise_once(rank_results: Results, count: int) -> None:
    seen = rank_results[count]["noise"]
    assert all(rank["equal"] for rank in seen), "bit for bit"
    assert all(rank["on_grid"] for rank in seen)
    assert abs(seen[0]["mean"] - sum(range(count))) < 6 * 2.0 / math.sqrt(SIZE)
    assert abs(seen[0]["std"] / 2.0 - 1.0) < 6 / math.sqrt(2 * SIZE), "sigma, not sigma sqrt(W) or sigma / W"


@pytest.mark.parametrize("count", [2, 3])
def test_every_coordinate_has_one_owner(rank_results: Results, count: int) -> None:
    ends = [rank["own"] for rank in rank_results[count]["noise"]]
    assert [a for a, _ in ends] == [0, *[b for _, b in ends[:-1]]]
    assert ends[-1][1] == SIZE


@pytest.mark.parametrize("count", [2, 3])
def test_values_that_are_not_finite_are_refused(rank_results: Results, count: int) -> None:
    assert all("values must be finite" in rank["infinite"] for rank in rank_results[count]["noise"])


def test_alone_it_is_the_source_itself() -> None:
    values = torch.arange(6.0).view(2, 3)
    released = release_sum_(values.clone(), noise_std=0.5, source=FixedKeySource(1), ranks=Ranks())
    assert torch.equal(released, FixedKeySource(1).add_normal_(values, noise_std=0.5))


class Loopback(Ranks):
    """The first of two ranks; the other one's contribution is given."""

    def __init__(self, other: torch.Tensor) -> None:
        super().__init__(0, 2)
        object.__setattr__(self, "other", other)

    def sum_(self, values: torch.Tensor) -> torch.Tensor:
        return values.add_(self.other)  # type: ignore[attr-defined]


def test_rounding_comes_after_the_ranks_are_added() -> None:
    """What is below the grid on another rank moves as many coordinates as under one Gaussian; rounded first, none."""
    n, grid = 100_000, grid_step(1.0)

    def released(part: float) -> torch.Tensor:
        other = torch.full((2 * n,), part * grid)
        return release_sum_(torch.zeros(2 * n), noise_std=1.0, source=FixedKeySource(2), ranks=Loopback(other))[:n]

    base, moved = released(0.0), released(0.3)
    assert 0.98 < float(base.std()) < 1.02
    assert torch.equal(base / grid, (base / grid).round())
    assert abs(float((base != moved).double().mean()) - 0.3) < 6 * math.sqrt(0.21 / n) + 0.002


def test_to_the_cpu_nothing_is_copied() -> None:
    values = torch.ones(3)
    assert to_device(values, torch.device("cpu")) is values
