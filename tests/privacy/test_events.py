"""Events of mechanisms: numbers out of range, guarantees beside exact compositions, people with several rows."""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent, ZCDpEvent
from scipy.stats import binom, norm

from dpgen.privacy.accountants import delta, epsilon, event_alphas, moments
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.mechanisms import (
    OneOfDpEvent,
    UnsupportedEvent,
    allocated_gaussian_event,
    approximate_event,
    decode_event,
    effective_multiplier,
    encode_event,
    for_rows,
    for_two_records,
    gaussian_event,
    gaussian_parts,
    pure_event,
    repeated_event,
    require_positive,
    require_whole,
    row_epsilon,
    subsampled_gaussian_event,
    walk,
)


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
        gaussian_event(5.0),
        subsampled_gaussian_event(0.1, 2.0),
        allocated_gaussian_event(4, 3.0),
        ZCDpEvent(0.01),
        approximate_event(0.1, 1e-7),
        repeated_event(gaussian_event(5.0), 2.0),
        OneOfDpEvent([gaussian_event(5.0), ZCDpEvent(0.01)]),
    ],
)
def test_several_runs_cost_what_they_cost_one_by_one(event):
    again, listed = SelfComposedDpEvent(event, 3), ComposedDpEvent([event] * 3)
    assert epsilon(event, 1e-5) < epsilon(again, 1e-5) == pytest.approx(epsilon(listed, 1e-5), rel=1e-12)
    found = [moments(one, "add_remove", (4.0,)) for one in (event, again, listed)]
    costs = [(float(alphas[0]), *others) for alphas, *others in found]
    assert costs[1] == pytest.approx(costs[2], rel=1e-12)
    assert costs[1] == pytest.approx([3 * cost for cost in costs[0]], rel=1e-12)


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


def both(*events):
    return ComposedDpEvent(list(events))


def response_stick(epsilons, at):
    """Hockey stick of independent binary randomised responses, outcome by outcome."""
    pairs = [(1.0, 1.0)]
    for e in epsilons:
        p = math.exp(e) / (1 + math.exp(e))
        pairs = [(a * x, b * y) for a, b in pairs for x, y in ((p, 1 - p), (1 - p, p))]
    return sum(max(a - math.exp(at) * b, 0.0) for a, b in pairs)


@pytest.mark.parametrize("count", [1, 3, 10])
@pytest.mark.parametrize("each", [0.01, 0.3, 2.0, 60.0])
def test_at_delta_zero_pure_events_cost_their_sum(each, count):
    event = SelfComposedDpEvent(pure_event(each), count)
    assert epsilon(event, 0.0) == math.fsum([each * count])
    assert epsilon(both(event, gaussian_event(5.0)), 0.0) == math.inf
    assert epsilon(gaussian_event(5.0), 0.0) == math.inf
    assert epsilon(both(), 0.0) == 0


@pytest.mark.parametrize("at", [0.0, 0.3, 0.9, 1.4])
def test_delta_of_pure_events_is_that_of_randomised_responses(at):
    epsilons = [0.2, 0.2, 0.2, 0.5, 0.5]
    assert delta(both(*map(pure_event, epsilons)), at) == pytest.approx(response_stick(epsilons, at), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("target", [1e-3, 1e-6])
def test_epsilon_of_many_pure_events_is_tight_and_never_below(target):
    count, each = 40, 0.1
    value = epsilon(SelfComposedDpEvent(pure_event(each), count), target)
    heads = np.arange(count + 1)
    p = 1 / (1 + math.exp(-each))
    first, second = binom.pmf(heads, count, p), binom.pmf(heads, count, 1 - p)

    def stick(at):
        return np.maximum(first - np.exp(at) * second, 0).sum()

    assert stick(value) <= target * (1 + 1e-6)
    assert stick(value * 0.9999) > target, "not above what is needed"
    assert value < 0.75 * count * each


def test_pure_and_gaussian_together_by_quadrature():
    event, at = both(pure_event(0.4), gaussian_event(2.0)), 0.7
    x, p = np.linspace(-30, 30, 400_001), math.exp(0.4) / (1 + math.exp(0.4))
    g1, g0 = norm.pdf(x, 1, 2), norm.pdf(x, 0, 2)
    exact = sum(np.maximum(a * g1 - math.exp(at) * b * g0, 0).sum() * (x[1] - x[0]) for a, b in ((p, 1 - p), (1 - p, p)))
    assert delta(event, at) == pytest.approx(exact, rel=1e-4)
    assert delta(event, at) >= exact * (1 - 1e-9)
    value = epsilon(event, 1e-5)
    assert value < 0.4 + epsilon(gaussian_event(2.0), 1e-5), "better than basic composition"
    assert delta(event, value) <= 1e-5 * (1 + 1e-6)


def test_a_failure_probability_adds_to_delta():
    event = SelfComposedDpEvent(approximate_event(0.3, 1e-7), 3)
    assert epsilon(event, 3e-7) == pytest.approx(0.9)
    assert epsilon(event, 2.9e-7) == math.inf
    assert delta(event, 5.0) == pytest.approx(3e-7)
    assert delta(event, 0.1) == pytest.approx(3e-7 + response_stick([0.3] * 3, 0.1))


def test_zcdp_is_a_gaussian_seen_through_its_moments():
    rho = 0.02
    same = gaussian_event(1 / math.sqrt(2 * rho))
    np.testing.assert_allclose(event_alphas(ZCDpEvent(rho)), event_alphas(same), rtol=1e-9)
    value = epsilon(ZCDpEvent(rho), 1e-6)
    assert epsilon(same, 1e-6) <= value <= 1.2 * epsilon(same, 1e-6)
    mixed = epsilon(both(ZCDpEvent(rho), pure_event(0.1)), 1e-6)
    assert value < mixed <= value + 0.1
    assert 0 < delta(ZCDpEvent(rho), value) <= 1e-6 * (1 + 1e-3)


def test_replacing_is_two_steps():
    assert for_two_records(pure_event(0.5)) == pure_event(1.0)
    assert for_two_records(ZCDpEvent(0.1)) == ZCDpEvent(0.4)
    assert for_two_records(gaussian_event(2.0)) == gaussian_event(2.0)
    assert for_two_records(approximate_event(1.0, 1e-6)).delta == pytest.approx(1e-6 * (1 + math.e))
    nested = for_two_records(SelfComposedDpEvent(both(pure_event(0.5)), 3))
    assert epsilon(nested, 0.0) == 3.0
    for event in (approximate_event(5.0, 0.1), approximate_event(700.0, 1e-9), ZCDpEvent(0.1, 0.1)):
        with pytest.raises(UnsupportedEvent, match="replac"):
            for_two_records(event)


# -- people with m rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 2, 3, 40])
@pytest.mark.parametrize("std", [1.0, 30.0])
def test_m_rows_of_a_person_cost_what_the_greatest_move_costs(m, std):
    """A sum that a row moves by 1 is moved by m: what an event says of m rows is never below that one."""
    moved = gaussian_event(std / m)
    assert for_rows(gaussian_event(std), m) == moved
    exact = epsilon(moved, 1e-6)
    assert epsilon(for_rows(ZCDpEvent(0.5 / std**2), m), 1e-6) >= exact * (1 - 1e-9)
    if std > 1:
        stated = for_rows(approximate_event(epsilon(gaussian_event(std), 1e-9), 1e-9), m)
        assert delta(moved, stated.epsilon) <= stated.delta * (1 + 1e-6)
    # Laplace noise reaches m epsilon: log p(x) - log p(x - m) is m / std at x <= 0
    assert for_rows(pure_event(1 / std), m).epsilon == pytest.approx(m / std, rel=1e-12)


@pytest.mark.parametrize("m", [2, 3, 40])
def test_a_delta_of_one_row_grows_step_by_step(m):
    """P_0 <= e^eps P_1 + delta, and P_1 <= e^eps P_2 + delta: the recursion of the proof."""
    grown = 0.0
    for _ in range(m):
        grown = 1e-8 + math.exp(0.2) * grown
    assert for_rows(approximate_event(0.2, 1e-8), m).delta == pytest.approx(grown, rel=1e-12)
    assert for_rows(approximate_event(0.0, 1e-8), m).delta == pytest.approx(m * 1e-8, rel=1e-12)


@pytest.mark.parametrize("m", [1, 3, 40])
@pytest.mark.parametrize("whole", [0.01, 1.0, 500.0])
def test_the_share_of_one_row_never_costs_a_person_more_than_the_whole(whole, m):
    each = row_epsilon(whole, m)
    assert 0.999 * whole <= for_rows(pure_event(each), m).epsilon <= whole


@pytest.mark.parametrize(
    "event",
    [
        ZCDpEvent(0.1, xi=0.1),
        OneOfDpEvent((gaussian_event(1.0),)),
        subsampled_gaussian_event(0.1, 1.0),
        approximate_event(1.0, 0.5),
        approximate_event(400.0, 1e-6),
    ],
)
def test_what_several_rows_cost_is_known_or_refused(event):
    assert for_rows(event, 1) == event
    with pytest.raises(UnsupportedEvent):
        for_rows(event, 3)


def test_a_ledger_reads_its_own_relation_and_doubles_for_the_other():
    own = Ledger(Budget(3.0, 1e-5))
    own.charge(pure_event(0.5), note="draw")
    assert own.epsilon() == pytest.approx(0.5, rel=1e-4)
    assert own.epsilon(relation="replace_one") == pytest.approx(1.0, rel=1e-4)
    local = Ledger(Budget(1.0, 0.0), relation="replace_one")
    local.charge(pure_event(0.5), 2, note="draws")
    assert local.epsilon() == 1.0
    for event in (pure_event(0.5), gaussian_event(50.0)):
        with pytest.raises(BudgetExceeded):
            local.charge(event, note="one too many, or without a delta")
    with pytest.raises(UnsupportedEvent, match="replace_one"):
        local.epsilon(relation="add_remove")


@pytest.mark.parametrize("beside", [0.0, 0.25])
def test_what_a_guarantee_takes_of_delta_the_gaussians_cannot_spend(beside):
    """A mechanism that fails with probability d leaves exactly (delta - d) / (1 - d) to what runs beside it."""
    failing, left = 9e-6, 1e-6 / (1 - 9e-6)
    spent = epsilon(both(gaussian_event(3.0), approximate_event(beside, failing)), 1e-5)
    assert epsilon(gaussian_event(3.0), left) <= spent <= 1.0001 * (beside + epsilon(gaussian_event(3.0), 1e-6))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((lambda value=value: pure_event(value), "epsilon") for value in (-1.0, math.nan, math.inf)),
        *((lambda value=value: approximate_event(1.0, value), "delta") for value in (1.0, -0.1)),
        *((lambda rho=rho: epsilon(ZCDpEvent(rho), 1e-5), "rho") for rho in (-3.0, math.inf, math.nan)),
        *((lambda rho=rho: for_two_records(ZCDpEvent(rho)), "rho") for rho in (-3.0, math.inf, math.nan)),
        *(
            (lambda rho=rho: Ledger(Budget(1.0, 1e-5)).charge(ZCDpEvent(rho), note=""), "rho")
            for rho in (-3.0, math.inf, math.nan)
        ),
    ],
)
def test_what_has_no_guarantee_is_refused(make, name):
    with pytest.raises(ValueError, match=name):
        make()


@pytest.mark.parametrize(
    "event",
    [
        dpa.GaussianDpEvent(1.5),
        dpa.PoissonSampledDpEvent(0.1, dpa.LaplaceDpEvent(2.0)),
        dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(0.1 + 0.2), 7), dpa.NoOpDpEvent()]),
        dpa.dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]),
    ],
)
def test_events_survive_the_file(event):
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize("code", [["os", {}], ["DpEvent"], 3, ["GaussianDpEvent", {"sigma": 1}], ["annotations", {}]])
def test_unknown_events(code):
    with pytest.raises(ValueError, match="unknown"):
        decode_event(code)
