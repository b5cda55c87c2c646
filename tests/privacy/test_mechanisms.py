import math

import dp_accounting as dpa
import pytest

from dpgen.privacy.mechanisms import (
    effective_multiplier,
    gaussian_event,
    gaussian_parts,
    require_positive,
    require_whole,
    subsampled_gaussian_event,
    walk,
)


def test_events_are_those_of_dp_accounting():
    assert gaussian_event(2.0) == dpa.GaussianDpEvent(2.0)
    assert gaussian_event(2.0, 3) == dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(2.0), 3)
    assert subsampled_gaussian_event(0.1, 2.0) == dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(2.0))
    assert subsampled_gaussian_event(1.0, 2.0) == dpa.GaussianDpEvent(2.0)


def test_effective_multiplier_adds_precisions():
    assert effective_multiplier(3.0) == 3.0
    assert effective_multiplier(0.7, 0.7) == pytest.approx(0.7 / math.sqrt(2), rel=1e-15)
    assert effective_multiplier(1.0, math.inf) == 1.0
    assert effective_multiplier(math.inf) == math.inf


def test_parts_of_nested_compositions():
    step = subsampled_gaussian_event(0.1, 2.0)
    event = dpa.ComposedDpEvent(
        [dpa.SelfComposedDpEvent(dpa.ComposedDpEvent([step, gaussian_event(3.0, 2)]), 5), dpa.NoOpDpEvent(), step]
    )
    assert gaussian_parts(event) == {(0.1, 2.0): 6, (1.0, 3.0): 10}
    assert sum(count for _, count in walk(event)) == 16
    assert gaussian_parts(dpa.PoissonSampledDpEvent(0.0, dpa.GaussianDpEvent(1.0))) == {}
    assert gaussian_parts(dpa.NonPrivateDpEvent()) == {(1.0, 0.0): 1}


@pytest.mark.parametrize(
    "event",
    [
        dpa.GaussianDpEvent(-1.0),
        dpa.GaussianDpEvent(math.nan),
        dpa.PoissonSampledDpEvent(1.5, dpa.GaussianDpEvent(1.0)),
        dpa.PoissonSampledDpEvent(math.nan, dpa.GaussianDpEvent(1.0)),
        dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(1.0), -3),
        dpa.LaplaceDpEvent(1.0),
    ],
)
def test_events_that_are_no_gaussians_are_refused(event):
    with pytest.raises(ValueError):  # noqa: PT011
        gaussian_parts(event)


@pytest.mark.parametrize(
    ("make", "values", "name"),
    [
        (gaussian_event, (0.0, -1.0, math.nan, math.inf, "1"), "noise_multiplier"),
        (lambda value: subsampled_gaussian_event(0.5, value), (0.0, math.nan), "noise_multiplier"),
        (lambda value: subsampled_gaussian_event(value, 1.0), (0.0, -0.1, 1.1, math.nan), "sampling_rate"),
        (lambda value: gaussian_event(1.0, value), (0, -1, 1.5, True), "count"),
        (lambda value: effective_multiplier(*value), ((), (1.0, 0)), "noise_multiplier"),
        (lambda value: require_whole("rounds", value), (0, -1, 2.0, True, "3", None, math.nan), "rounds"),
        (lambda value: require_whole("cells", value, 2, 5), (1, 6, 2.5), r"cells.*\[2, 5\]"),
        (lambda value: require_positive("epsilon", value), (0, -1.0, math.inf, math.nan, True, "1", None), "epsilon"),
    ],
)
def test_numbers_out_of_range_are_refused(make, values, name):
    for value in values:
        with pytest.raises(ValueError, match=name):
            make(value)


def test_numbers_in_range_come_back():
    assert [require_whole("rounds", *given) for given in ((1,), (10**30,), (0, 0), (2, 2, 5), (5, 2, 5))] == [
        1,
        10**30,
        0,
        2,
        5,
    ]
    for value in (1, 0.5, 5e-324, 1e308):
        assert require_positive("epsilon", value) == value
