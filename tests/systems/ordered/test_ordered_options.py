"""Plans: default delta, shares, refusals; every method gives its estimator."""

from typing import get_args

import pytest

from dpgen.systems.ordered.fit import ordered_estimator
from dpgen.systems.ordered.merr import MERR
from dpgen.systems.ordered.partition import PartitionCDF
from dpgen.systems.ordered.plan import DEFAULT_DELTA, Method, OrderedConfig, OrderedPlan


def test_delta_never_comes_from_the_records() -> None:
    assert OrderedPlan(delta=1e-5).resolved_delta == 1e-5
    assert OrderedPlan(public_n=10**6).resolved_delta == pytest.approx(10**-6.6)
    assert OrderedPlan().resolved_delta == DEFAULT_DELTA
    assert DEFAULT_DELTA < (10**8) ** -1.1, "safe for every number of records that is supported"


def test_the_ledger_has_the_budget_or_only_reports() -> None:
    ledger = OrderedPlan(epsilon=0.7, relation="add_remove").open_ledger()
    assert ledger.budget is not None
    assert (ledger.budget.epsilon, ledger.delta, ledger.relation) == (0.7, DEFAULT_DELTA, "add_remove")
    assert OrderedPlan(report_only=True).open_ledger().budget is None


def test_shares_add_up_to_the_budget() -> None:
    shares = OrderedPlan(epsilon=1.0, delta=1e-6, column_shares=[3, 1]).shares(2)
    assert shares[0] == pytest.approx((0.75, 7.5e-7))
    assert 1 - 1e-9 < sum(e for e, _ in OrderedPlan(epsilon=1.0).shares(7)) <= 1
    with pytest.raises(ValueError, match="2 entries; the data have 3 columns"):
        OrderedPlan(column_shares=[1, 1]).shares(3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"epsilon": 2000.0}, r"epsilon is 2000.0; it must be in \[0.001, 1000\]"),
        ({"epsilon": 1e-5}, r"epsilon is 1e-05; it must be in \[0.001, 1000\]"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"public_n": 1}, "public_n is 1"),
        ({"relation": "swap"}, "relation is 'swap'"),
        ({"column_shares": [1.0, 0.0]}, "every one must be > 0"),
    ],
)
def test_bad_plans(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        OrderedPlan(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "sketch"}, "method is 'sketch'; choose one of partition, points"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 10_001}, r"steps is 10001; it must be a whole number in \[1, 10000\]"),
        ({"cells": 0, "method": "fixed"}, "cells is 0"),
        ({"depth": 30, "method": "tree"}, r"depth is 30; it must be a whole number in \[1, 22\]"),
        ({"levels": 99, "method": "quantiles"}, r"levels is 99; it must be a whole number in \[1, 16\]"),
        ({"published_noise": True}, "published_noise is of the methods points, exponential, choosing"),
        ({"published_noise": True, "method": "points", "steps": "private"}, "steps is 'private'"),
        ({"steps": "many"}, "steps is 'many'"),
        ({"degree": 3}, "degree is 3"),
        ({"pieces": 4}, "pieces is 4"),
    ],
)
def test_bad_configurations(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        OrderedConfig(**options)


@pytest.mark.parametrize("method", get_args(Method))
def test_every_method_has_an_estimator_with_its_share(method: Method) -> None:
    estimator = ordered_estimator(OrderedConfig(method=method, steps=3), 0.5, 1e-7, 100)
    assert (estimator.epsilon, estimator.delta, estimator.size) == (0.5, 1e-7, 100)
    if method in ("points", "exponential", "choosing"):
        assert isinstance(estimator, MERR)
        assert (estimator.selection, estimator.steps) == (method, 3)
    if method == "partition":
        assert isinstance(estimator, PartitionCDF)
