import time

import dp_accounting as dpa
import pytest

from dpgen.privacy.accountants import calibrate_noise, epsilon
from dpgen.privacy.ledger import Budget
from dpgen.privacy.mechanisms import gaussian_event, subsampled_gaussian_event


def plan(scale, *, kmeans=5.0):
    step = dpa.SelfComposedDpEvent(subsampled_gaussian_event(0.02, scale), 500)
    return dpa.ComposedDpEvent([gaussian_event(kmeans * scale), step])


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("target", [0.3, 1.0, 10.0])
def test_fits_and_little_less_does_not(target, relation):
    scale = calibrate_noise(plan, Budget(target, 1e-5), relation=relation)
    assert epsilon(plan(scale), 1e-5, relation=relation) <= target
    assert epsilon(plan(scale / 1.001), 1e-5, relation=relation) > target * 0.9995


def test_plain_gaussian_is_the_closed_form():
    for target in (0.01, 1.0, 30.0):
        scale = calibrate_noise(gaussian_event, Budget(target, 1e-6))
        assert scale == pytest.approx(dpa.get_sigma_gaussian(target, 1e-6), rel=2e-4)
        assert epsilon(gaussian_event(scale), 1e-6) <= target


def test_other_mechanisms():
    scale = calibrate_noise(lambda s: dpa.LaplaceDpEvent(s), Budget(0.5, 1e-9), high=100.0, tolerance=1e-3)
    assert scale == pytest.approx(2.0, rel=5e-3)


def test_unreachable_budget_says_what_is_reachable():
    def fixed(scale):
        return dpa.ComposedDpEvent([gaussian_event(2.0), gaussian_event(scale)])

    with pytest.raises(ValueError, match=r"epsilon is 1; at delta 1e-05 this plan reaches no less than 1\.9\d+.*raise epsilon"):
        calibrate_noise(fixed, Budget(1.0, 1e-5))


def test_low_end_that_fits_is_returned():
    assert calibrate_noise(gaussian_event, Budget(10.0, 1e-5), low=5.0) == pytest.approx(5.0)


def test_bounds_are_checked():
    with pytest.raises(ValueError, match="0 < low < high < inf must hold"):
        calibrate_noise(gaussian_event, Budget(1.0, 1e-5), low=2.0, high=1.0)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("rate", "steps", "high"), [(0.05, 10**6, 1e4), (0.5, 1000, 30.0), (0.01, 1000, 1.0), (0.9, 5, 2.0)])
def test_only_what_cannot_be_met_is_refused_and_the_least_that_is_named_is_true(rate, steps, high, relation):
    def run(scale):
        return dpa.SelfComposedDpEvent(subsampled_gaussian_event(rate, scale), steps)

    exact = epsilon(run(high), 1e-5, relation=relation)
    assert calibrate_noise(run, Budget(exact * 1.001, 1e-5), relation=relation, high=high) <= high
    for target in (0.999 * exact, 0.9 * exact, 0.01 * exact):
        with pytest.raises(ValueError, match="epsilon") as refused:
            calibrate_noise(run, Budget(target, 1e-5), relation=relation, high=high)
        named = float(str(refused.value).split("no less than ")[1].split(",")[0])
        assert target < named <= exact * 1.0005


def test_a_budget_far_too_small_for_a_billion_steps_is_refused_at_once():
    before = time.process_time()
    with pytest.raises(ValueError, match="epsilon"):
        calibrate_noise(lambda s: dpa.SelfComposedDpEvent(subsampled_gaussian_event(0.05, s), 10**9), Budget(0.01, 1e-5))
    assert time.process_time() - before < 0.5
