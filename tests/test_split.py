"""Public splits: disjoint, complete, of the stated size, and the same as ever."""

import math

import pytest
import torch

from dpgen.data.split import Stream, public_order, public_split


@pytest.mark.parametrize("stream", ["records", "points"])
@pytest.mark.parametrize(("n", "fraction", "n_test"), [(10, 0.25, 2), (100, 0.3, 30), (6, 1e-9, 1), (6, 0.999, 5), (2, 0.5, 1)])
def test_parts_are_disjoint_complete_and_in_order(n: int, fraction: float, n_test: int, stream: Stream) -> None:
    train, test = public_split(n, fraction, 3, stream=stream)
    assert len(test) == n_test
    assert sorted(torch.cat([train, test]).tolist()) == list(range(n))
    assert train.tolist() == sorted(train.tolist())
    assert test.tolist() == sorted(test.tolist())


def test_the_streams_of_a_seed_differ_and_are_what_they_were() -> None:
    """Released models name their split by a seed: the shuffles may never change."""
    orders = {stream: public_order(8, 5, stream=stream).tolist() for stream in ("records", "public", "points")}
    expected = {stream: torch.randperm(8, generator=torch.Generator().manual_seed(state)).tolist()
                for stream, state in (("records", 10), ("public", 11), ("points", 5))}  # fmt: skip
    assert orders == expected
    assert len(set(map(tuple, orders.values()))) == 3


def test_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    public_split(50, 0.2, 0, stream="records")
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_bad_fractions_are_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"test_fraction is .*: it must be in \(0, 1\)"):
        public_split(10, fraction, 0, stream="points")
