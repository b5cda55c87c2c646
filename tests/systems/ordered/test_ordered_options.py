"""Plans: default delta, shares, refusals; every method gives its estimator."""

from typing import Any

import pytest
from refusals import refused

from dpgen.systems.ordered.plan import DEFAULT_DELTA, STEPS, OrderedConfig, OrderedPlan


def test_delta_never_comes_from_the_records() -> None:
    assert OrderedPlan(delta=1e-5).resolved_delta == 1e-5
    assert OrderedPlan(public_n=10**6).resolved_delta == pytest.approx(10**-6.6)
    assert OrderedPlan().resolved_delta == DEFAULT_DELTA
    assert DEFAULT_DELTA < (10**8) ** -1.1, "safe for every number of records that is supported"


REFUSED: list[tuple[type, str, Any]] = [
    *((OrderedPlan, "epsilon", value) for value in (0.0, -1.0, 2000.0, 1e-5, 0.000999, 1000.1)),
    (OrderedPlan, "delta", 1.0),
    (OrderedPlan, "public_n", 1),
    (OrderedPlan, "relation", "swap"),
    (OrderedConfig, "method", "sketch"),
    *((OrderedConfig, "steps", value) for value in (0, 10_001, "private", True, 2.5, "3")),
    (OrderedConfig, "degree", 3),
    (OrderedConfig, "pieces", 4),
]


@pytest.mark.parametrize(("kind", "option", "value"), REFUSED)
def test_refusals_name_the_option(kind: type, option: str, value: Any) -> None:
    with refused(option):
        kind(**{option: value})


def test_ends_are_inside_also_when_rounded() -> None:
    for end in (1e-3, 1e3):
        OrderedPlan(epsilon=end)
        OrderedPlan(epsilon=end / (1 + 1e-12))
    for whole in STEPS:
        OrderedConfig(steps=whole)
