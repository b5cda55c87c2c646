"""Several processes: who is first, what they agree on, how an error on rank 0 reaches the others."""

import functools
import operator
from typing import Any

import pytest
import torch

from dpgen.privacy.distributed import Ranks, launched_rank

Results = dict[int, dict[str, Any]]


@pytest.mark.parametrize("count", [2, 3])
def test_decisions_and_sums_reach_all_ranks(rank_results: Results, count: int) -> None:
    seen = rank_results[count]["agreement"]
    assert [rank["first"] for rank in seen] == [7] * count, "rank 0's value"
    assert all(rank["any"] == [True, False, True] for rank in seen)
    assert all(rank["sum"] == [sum(range(count)), count] for rank in seen)
    assert all(rank["broadcast"] == [3.0] for rank in seen)


@pytest.mark.parametrize("count", [2, 3])
def test_a_failure_on_rank_0_stops_all(rank_results: Results, count: int) -> None:
    first, *others = (rank["failure"] for rank in rank_results[count]["agreement"])
    assert first == "ValueError: no"
    assert set(others) == {"RemoteFailure: rank 0 stopped: ValueError: no"}


@pytest.mark.parametrize("count", [2, 3])
def test_disagreement_stops_all(rank_results: Results, count: int) -> None:
    seen = rank_results[count]["agreement"]
    assert all(rank["same"] == "" for rank in seen)
    assert all(f"the thing must be the same for all {count} processes" in rank["different"] for rank in seen)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 20, 21])
def test_shares_are_disjoint_and_cover(n: int, count: int) -> None:
    for share in (Ranks.shard, Ranks.block):
        parts = [list(range(n))[share(Ranks(index, count), n)] for index in range(count)]
        assert sorted(functools.reduce(operator.iadd, parts, [])) == list(range(n))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_alone_nothing_is_exchanged() -> None:
    values = torch.ones(2)
    assert Ranks.join() == Ranks()
    assert Ranks().sum_(values) is values
    assert Ranks().broadcast_(values) is values
    Ranks().require_same("anything", object())


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


@pytest.mark.parametrize("count", [2, 3])
def test_the_rank_in_a_process_group(rank_results: Results, count: int) -> None:
    assert [rank["launched"] for rank in rank_results[count]["agreement"]] == list(range(count))
