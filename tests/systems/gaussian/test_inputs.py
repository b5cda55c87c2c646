"""Public choices of a fit, resolved."""

from typing import Any

import pytest
import tiny
import torch

from dpgen.systems.gaussian.fit import Inputs
from dpgen.systems.gaussian.plan import GaussianOptions
from dpgen.systems.gaussian.sums import checked
from dpgen.systems.gaussian.warps import Warp


def inputs(d: int = 16, *, n_classes: int = 2, shape: tuple[int, int] | None = None, **options: Any) -> Inputs:
    return Inputs(values=[], bits=[], d=d, options=GaussianOptions(**options), n_classes=n_classes, image_shape=shape)


def test_auto_is_a_public_rule() -> None:
    assert [inputs(d, n_classes=k).form for d, k in ((16, 0), (1303, 0), (1303, 2))] == ["latent", "sizes", "latent"]
    assert inputs(1600, n_classes=0, shape=(40, 40)).form == "latent"
    assert [inputs(d).calibration for d in (100, 500)] == ["pairs", "thresholds"]
    assert inputs(shape=(4, 4)).calibration == "thresholds"
    assert inputs(shape=(4, 4)).warp == Warp.of_strength(0.8, (4, 4))
    assert inputs().warp is None


def test_records_become_streams() -> None:
    records = tiny.records()
    made = Inputs.of(records, GaussianOptions(), clusters="kmeans", k=3, seed=0)
    assert (made.n_classes, made.k, made.groups) == (0, 3, 1)
    assert next(iter(made.values))[1] is None
    assert Inputs.of(records, GaussianOptions(), clusters="labels", k=None, seed=0).groups == 2


def test_shares_of_all_sizes_begin_alike() -> None:
    made = inputs()
    assert made.shares(1)["mean"] == made.shares(5)["mean"], "the mean is released before the size is known"
    with pytest.raises(ValueError, match="calibration='pairs' needs at most 256 features, got 300"):
        _ = inputs(300, calibration="pairs").calibration


def test_streams_are_checked_each_time() -> None:
    stream = checked([(torch.full((2, 3), 2.0), None)], 3, 0)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"x must be in \[0, 1\]"):
            list(stream)
