import math

import dp_accounting as dpa
import pytest

from dpgen.privacy.mechanisms import (
    UnsupportedEvent,
    effective_multiplier,
    gaussian_event,
    gaussian_parts,
    subsampled_gaussian_event,
    walk,
)


def test_events_are_those_of_dp_accounting():
    assert gaussian_event(2.0) == dpa.GaussianDpEvent(2.0)
    assert gaussian_event(2.0, 3) == dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(2.0), 3)
    assert subsampled_gaussian_event(0.1, 2.0) == dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(2.0))
    assert subsampled_gaussian_event(1.0, 2.0) == dpa.GaussianDpEvent(2.0)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "1"])
def test_multiplier_out_of_range(value):
    with pytest.raises(ValueError, match=r"noise_multiplier is .*; it must be a finite number > 0"):
        gaussian_event(value)
    with pytest.raises(ValueError, match=r"noise_multiplier is .*; it must be a finite number > 0"):
        subsampled_gaussian_event(0.5, value)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_rate_out_of_range(rate):
    with pytest.raises(ValueError, match=r"sampling_rate is .*; it must lie in \(0, 1\]"):
        subsampled_gaussian_event(rate, 1.0)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_count_out_of_range(count):
    with pytest.raises(ValueError, match=r"count is .*; it must be a whole number >= 1"):
        gaussian_event(1.0, count)


def test_effective_multiplier_adds_precisions():
    assert effective_multiplier(3.0) == 3.0
    assert effective_multiplier(0.7, 0.7) == pytest.approx(0.7 / math.sqrt(2), rel=1e-15)
    assert effective_multiplier(1.0, math.inf) == 1.0
    assert effective_multiplier(math.inf) == math.inf
    with pytest.raises(ValueError, match="noise_multipliers is empty"):
        effective_multiplier()
    with pytest.raises(ValueError, match="noise_multiplier is 0"):
        effective_multiplier(1.0, 0)


def test_parts_of_nested_compositions():
    step = subsampled_gaussian_event(0.1, 2.0)
    event = dpa.ComposedDpEvent(
        [dpa.SelfComposedDpEvent(dpa.ComposedDpEvent([step, gaussian_event(3.0, 2)]), 5), dpa.NoOpDpEvent(), step]
    )
    assert gaussian_parts(event) == {(0.1, 2.0): 6, (1.0, 3.0): 10}
    assert sum(count for _, count in walk(event)) == 16
    assert gaussian_parts(dpa.PoissonSampledDpEvent(0.0, dpa.GaussianDpEvent(1.0))) == {}
    assert gaussian_parts(dpa.NonPrivateDpEvent()) == {(1.0, 0.0): 1}
    with pytest.raises(UnsupportedEvent, match="is not a Gaussian"):
        gaussian_parts(dpa.LaplaceDpEvent(1.0))


@pytest.mark.parametrize(
    "event",
    [
        dpa.GaussianDpEvent(-1.0),
        dpa.GaussianDpEvent(math.nan),
        dpa.PoissonSampledDpEvent(1.5, dpa.GaussianDpEvent(1.0)),
        dpa.PoissonSampledDpEvent(math.nan, dpa.GaussianDpEvent(1.0)),
        dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(1.0), -3),
    ],
)
def test_events_out_of_range_are_refused(event):
    with pytest.raises(ValueError, match="must"):
        gaussian_parts(event)
