"""Several processes: what they agree on, one ledger, one noise; and noise that is drawn ahead."""

import functools
import math
import operator
import os
from typing import Any

import pytest
import torch
from fixed_source import FixedKeySource

from dpgen.privacy.curator import Curator
from dpgen.privacy.distributed import NoiseAhead, Ranks, launched_rank, release_sum_
from dpgen.privacy.ledger import Budget, Ledger, LedgerError, Planned
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.privacy.noise import SecureSource, grid_step
from dpgen.privacy.sampling import PoissonMask

Results = dict[int, dict[str, Any]]
SIZE, N = 90_003, 200_001
several = pytest.mark.parametrize("count", [2, 3])


@several
def test_decisions_and_sums_reach_all_ranks(rank_results: Results, count: int) -> None:
    seen = rank_results[count]["agreement"]
    assert [rank["first"] for rank in seen] == [7] * count, "rank 0's value"
    assert all(rank["any"] == [True, False, True] for rank in seen)
    assert all(rank["sum"] == [sum(range(count)), count] for rank in seen)
    assert all(rank["broadcast"] == [3.0] for rank in seen)
    assert [rank["launched"] for rank in seen] == list(range(count))
    first, *others = (rank["failure"] for rank in seen)
    assert first == "ValueError: no"
    assert set(others) == {"RemoteFailure: rank 0 stopped: ValueError: no"}
    assert all(rank["same"] == "" for rank in seen)
    assert all(rank["different"].startswith("ValueError: the thing must be the same") for rank in seen)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 20, 21])
def test_shares_are_disjoint_and_cover(n: int, count: int) -> None:
    for share in (Ranks.shard, Ranks.block):
        parts = [list(range(n))[share(Ranks(index, count), n)] for index in range(count)]
        assert sorted(functools.reduce(operator.iadd, parts, [])) == list(range(n))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, 0),
        ({"RANK": "3", "LOCAL_RANK": "0"}, 3),
        ({"LOCAL_RANK": "1", "NODE_RANK": "0"}, 1),
        ({"LOCAL_RANK": "0", "NODE_RANK": "0"}, 0),
        ({"LOCAL_RANK": "0", "NODE_RANK": "2"}, 2),
        ({"SLURM_PROCID": "4"}, 4),
        ({"SLURM_PROCID": "0"}, 0),
    ],
)
def test_the_rank_before_there_is_a_process_group(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: int
) -> None:
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launched_rank() == rank


def alone() -> tuple[Curator, list[bool]]:
    """The same charges as in the processes, by one."""
    ledger = Ledger(Budget(1.0, 1e-5))
    ledger.charge(gaussian_event(50.0), 3, note="before")
    curator = Curator(ledger)
    return curator, [curator.draw("step", PoissonMask(1.0), {"": 10.0}) is not None for _ in range(9)]


@several
def test_all_ranks_are_told_the_same_and_count_the_same(rank_results: Results, count: int) -> None:
    seen = rank_results[count]["shared_ledger"]
    _, granted = alone()
    assert all(rank["granted"] == granted for rank in seen), "the number of ranks does not matter"
    assert True in granted
    assert False in granted
    assert all(rank["counts"] == {"before": 3, "step": sum(granted), "alone": 2} for rank in seen)
    assert len({rank["delta"] for rank in seen}) == 1
    assert max(rank["epsilon"] for rank in seen) - min(rank["epsilon"] for rank in seen) < 1e-9
    assert seen[0]["path"].endswith("shared.jsonl")
    assert all(rank["path"] == "None" and rank["refusal"].startswith("LedgerError") for rank in seen[1:])
    assert seen[0]["broken"].startswith("LedgerError:")
    assert all(rank["broken"].startswith("RemoteFailure: rank 0 stopped") for rank in seen[1:])


def test_a_follower_repeats_and_grants_nothing() -> None:
    first = alone()[0].ledger
    first.declare([Planned(gaussian_event(90.0), "whole", divisible=True)])
    first.charge(gaussian_event(180.0), note="part", of="whole")
    follower = Ledger.follower(first.copy())
    assert follower.entries() == first.entries()
    assert follower.epsilon() == pytest.approx(first.epsilon(), rel=1e-6)
    first.charge(gaussian_event(200.0), note="more")
    follower.repeat(gaussian_event(200.0), note="more")
    assert follower.entries() == first.entries()
    follower.commit()
    assert not follower.committed
    with pytest.raises(LedgerError):
        follower.charge(gaussian_event(50.0), note="own")
    with pytest.raises(LedgerError):
        follower.declare([Planned(gaussian_event(50.0), "own")])


@several
def test_the_sum_of_all_ranks_gets_its_noise_once(rank_results: Results, count: int) -> None:
    seen = rank_results[count]["noise"]
    assert all(rank["equal"] for rank in seen), "bit for bit"
    assert all(rank["on_grid"] for rank in seen)
    assert abs(seen[0]["mean"] - sum(range(count))) < 6 * 2.0 / math.sqrt(SIZE)
    assert abs(seen[0]["std"] / 2.0 - 1.0) < 6 / math.sqrt(2 * SIZE), "sigma, not sigma sqrt(W) or sigma / W"
    assert all("values must be finite" in rank["infinite"] for rank in seen)
    ends = [rank["own"] for rank in seen]
    assert [a for a, _ in ends] == [0, *[b for _, b in ends[:-1]]], "every coordinate has one owner"
    assert ends[-1][1] == SIZE


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


@pytest.fixture
def ahead() -> NoiseAhead:
    return NoiseAhead(SecureSource(), torch.device("cpu"))


def test_draws_are_normal_and_never_the_same(ahead: NoiseAhead) -> None:
    draws = torch.stack([ahead.draw(N, noise_std=3.0).clone() for _ in range(4)]).double()
    assert float((draws.std(1) / 3.0 - 1.0).abs().max()) < 6 / math.sqrt(2 * N)
    assert float(draws.mean(1).abs().max()) < 6 * 3.0 / math.sqrt(N)
    correlation = (draws / 3.0) @ (draws / 3.0).T / N - torch.eye(4)
    assert float(correlation.fill_diagonal_(0).abs().max()) < 6 / math.sqrt(N)
    halves = draws[:, : N // 2] * draws[:, N // 2 : 2 * (N // 2)] / 9.0
    assert float(halves.mean(1).abs().max()) < 6 / math.sqrt(N // 2), "the threads' parts differ"


def test_draws_are_not_rounded_to_the_grid_of_the_sums(ahead: NoiseAhead) -> None:
    in_grid = ahead.draw(1000, noise_std=3.0, dtype=torch.float64) / grid_step(3.0)
    assert float((in_grid == in_grid.round()).double().mean()) < 0.01


def test_another_size_or_std_is_not_mixed_up(ahead: NoiseAhead) -> None:
    assert ahead.draw(10, noise_std=1.0).shape == (10,)
    assert ahead.draw(7, noise_std=1.0).shape == (7,)
    assert float(ahead.draw(10, noise_std=1e-9).abs().max()) < 1e-7
    assert ahead.draw(3, noise_std=1.0, dtype=torch.float64).dtype == torch.float64


def test_a_release_with_it_has_its_noise(ahead: NoiseAhead) -> None:
    ranks = Ranks(0, 2)
    object.__setattr__(ranks, "sum_", lambda values: values)  # the other rank has nothing
    sums = release_sum_(torch.zeros(2, N), noise_std=2.0, source=SecureSource(), ranks=ranks, ahead=ahead)
    assert abs(float(sums[0].std()) / 2.0 - 1.0) < 6 / math.sqrt(2 * N)
    assert float(sums[1].abs().max()) == 0.0


def test_a_forked_process_may_not_use_it(ahead: NoiseAhead, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead.draw(10, noise_std=1.0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="cannot be used in a forked process"):
        ahead.draw(10, noise_std=1.0)
