"""Options of networks."""

import math
from typing import Any

import pytest

from dpgen.systems.dpgm.plan import NetworkOptions


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"micro_batch": 0}, "micro_batch must be at least 1, got 0"),
        ({"lr": 0.0}, "lr must be positive and finite, got 0"),
        ({"lr": math.nan}, "lr must be positive and finite, got nan"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        NetworkOptions(**options)


def test_only_measured_bounds_are_released() -> None:
    ways: list[Any] = ["auto", "fixed", "dpnorm", "dpnorm_published", "quantile"]
    assert [NetworkOptions(clipping=way).adaptive for way in ways] == [False, False, True, True, True]
