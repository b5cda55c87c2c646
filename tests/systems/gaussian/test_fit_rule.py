"""The public rule."""

import pytest

from dpgen.systems.gaussian.plan import FULL, MARGINALS, SINGLE, default_shares, sizes


def test_more_signal_never_gives_fewer_axes_or_clusters() -> None:
    found = [sizes(mu, 60_000, d=784, k=10) for mu in (0.01, 0.1, 0.268, 0.5, 1.0, 2.0, 10.0)]
    assert [s.axes for s in found] == sorted(s.axes for s in found)
    assert [s.subclusters for s in found] == sorted(s.subclusters for s in found)
    assert found[-1].subclusters == 10


@pytest.mark.parametrize(("n", "d"), [(1.0, 2), (-50.0, 1), (10.0, 784)])
def test_hopeless_sizes_still_give_one_of_each(n: float, d: int) -> None:
    found = sizes(0.1, n, d=d, k=10)
    assert (found.axes >= 1, found.subclusters) == (True, 1)


def test_axes_are_at_most_half_the_features() -> None:
    assert sizes(2.0, 10**9, d=16, k=1).axes == 8


def test_ways_agree_on_what_is_released_before_they_part() -> None:
    ways = [default_shares(subclusters=s) for s in (1, 5)]
    assert [sum(way.values()) for way in ways] == pytest.approx([1.0] * 2)
    assert len({way["mean"] for way in (SINGLE, FULL)}) == 1
    assert default_shares(subclusters=1, extra=("pairs",))["pairs"] == MARGINALS
