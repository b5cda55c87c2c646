"""Options of Gaussian fits, the public rule, and what "auto" stands for."""

from typing import Any

import pytest
import tiny
import torch

from dpgen.systems.gaussian.calibration import Warp
from dpgen.systems.gaussian.fit import Inputs
from dpgen.systems.gaussian.plan import FULL, MARGINALS, SINGLE, GaussianConfig, GaussianPlan, default_shares, sizes
from dpgen.systems.gaussian.sums import checked


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((GaussianConfig, *option) for option in (("k", 0), ("axes", 0), ("radius", 0.0), ("radius", float("nan")))),
        *((GaussianConfig, *option) for option in (("cut", -0.1), ("warp", -1.0), ("frequencies", 3))),
        (GaussianPlan, "public_n", 0),
    ],
)
def test_numbers_out_of_range_are_refused(kind: Any, name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        kind(**{name: value})


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


def inputs(d: int = 16, *, n_classes: int = 2, shape: tuple[int, int] | None = None, **options: Any) -> Inputs:
    return Inputs(values=[], bits=[], d=d, config=GaussianConfig(**options), n_classes=n_classes, image_shape=shape)


def test_auto_is_a_public_rule() -> None:
    assert [inputs(d, n_classes=k).form for d, k in ((16, 0), (1303, 0), (1303, 2))] == ["latent", "sizes", "latent"]
    assert inputs(1600, n_classes=0, shape=(40, 40)).form == "latent"
    assert [inputs(d).calibration for d in (100, 500)] == ["pairs", "thresholds"]
    assert inputs(shape=(4, 4)).calibration == "thresholds"
    assert inputs(shape=(4, 4)).warp == Warp.of_strength(0.8, (4, 4))
    assert inputs().warp is None


def test_records_become_streams() -> None:
    made = Inputs.of(tiny.records(), GaussianConfig(clusters="kmeans", k=3))
    assert (made.n_classes, made.k, made.groups) == (0, 3, 1)
    assert next(iter(made.values))[1] is None
    assert Inputs.of(tiny.records(), GaussianConfig()).groups == 2


def test_shares_of_all_sizes_begin_alike() -> None:
    made = inputs()
    assert made.shares(1)["mean"] == made.shares(5)["mean"], "the mean is released before the size is known"
    with pytest.raises(ValueError, match="calibration"):
        _ = inputs(300, calibration="pairs").calibration


def test_streams_are_checked_each_time() -> None:
    stream = checked([(torch.full((2, 3), 2.0), None)], 3, 0)
    for _ in range(2):
        with pytest.raises(ValueError, match="x must be"):
            list(stream)
