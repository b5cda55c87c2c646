"""Options of Gaussian fits."""

import pytest

from dpgen.systems.gaussian.plan import GaussianConfig


@pytest.mark.parametrize(
    ("name", "value"),
    [("k", 0), ("axes", 0), ("radius", float("nan")), ("cut", -0.1), ("warp", -1.0)],
)
def test_numbers_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        GaussianConfig(**{name: value})  # type: ignore[arg-type]
