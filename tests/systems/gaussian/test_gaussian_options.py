"""Options of Gaussian fits, which are fields of the DPGM configuration too."""

from dataclasses import fields

import pytest

from dpgen.systems.dpgm.plan import DPGMConfig
from dpgen.systems.gaussian.plan import GaussianConfig, ImageOptions


def test_the_configuration_takes_every_option_and_hides_none() -> None:
    names = {field.name for field in fields(GaussianConfig)} - {field.name for field in fields(ImageOptions)}
    assert names < {field.name for field in fields(DPGMConfig)}
    assert not any(callable(getattr(DPGMConfig(), name)) for name in names), "no method of the configuration has its name"


@pytest.mark.parametrize(
    ("name", "value"),
    [("k", 0), ("axes", 0), ("radius", float("nan")), ("clip", 0.0), ("cut", -0.1), ("warp", -1.0), ("whitening", 2.0)],
)
def test_numbers_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        GaussianConfig(**{name: value})  # type: ignore[arg-type]
