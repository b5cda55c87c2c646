"""One ledger for several processes: rank 0 asks, all count the same, and the number of ranks changes nothing."""

from typing import Any

import pytest

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger, LedgerError, Planned
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.privacy.sampling import PoissonMask

Results = dict[int, dict[str, Any]]


def alone() -> tuple[Curator, list[bool]]:
    """The same charges as in the processes, by one."""
    ledger = Ledger(Budget(1.0, 1e-5))
    ledger.charge(gaussian_event(50.0), 3, note="before")
    curator = Curator(ledger)
    return curator, [curator.draw("step", PoissonMask(1.0), {"": 10.0}) is not None for _ in range(9)]


@pytest.mark.parametrize("count", [2, 3])
def test_all_ranks_are_told_the_same_and_count_the_same(rank_results: Results, count: int) -> None:
    seen = rank_results[count]["shared_ledger"]
    _, granted = alone()
    assert all(rank["granted"] == granted for rank in seen), "the number of ranks does not matter"
    assert True in granted
    assert False in granted
    assert all(rank["counts"] == {"before": 3, "step": sum(granted), "alone": 2} for rank in seen)
    assert len({rank["delta"] for rank in seen}) == 1
    assert max(rank["epsilon"] for rank in seen) - min(rank["epsilon"] for rank in seen) < 1e-9


@pytest.mark.parametrize("count", [2, 3])
def test_only_rank_0_has_the_file(rank_results: Results, count: int) -> None:
    first, *others = rank_results[count]["shared_ledger"]
    assert first["path"].endswith("shared.jsonl")
    assert {rank["path"] for rank in others} == {"None"}
    assert all(rank["refusal"].startswith("LedgerError") for rank in others)


@pytest.mark.parametrize("count", [2, 3])
def test_a_ledger_that_cannot_record_stops_all(rank_results: Results, count: int) -> None:
    first, *others = (rank["broken"] for rank in rank_results[count]["shared_ledger"])
    assert first.startswith("LedgerError:")
    assert set(others) == {"RemoteFailure: rank 0 stopped: its ledger could not record a charge"}


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
    with pytest.raises(LedgerError):
        follower.charge(gaussian_event(50.0), note="own")
    with pytest.raises(LedgerError):
        follower.declare([Planned(gaussian_event(50.0), "own")])
