"""Columns under one ledger: the split, clamped values, methods, published noise, and the whole command line."""

from typing import get_args

import numpy as np
import pytest
import tiny
from refusals import refused

from dpgen.columns.discretized import DiscretizedColumn
from dpgen.data import load_mixture
from dpgen.data.columns import Columns
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.runtime import Runtime
from dpgen.systems.ordered.fit import fit
from dpgen.systems.ordered.model import OrderedDistribution
from dpgen.systems.ordered.plan import DEFAULT_DELTA, Method, OrderedConfig, OrderedPlan

QUIET = Runtime(progress_bar=False)


def columns(clamped: dict[str, int] | None = None) -> Columns:
    rng = np.random.default_rng(0)
    values = {"a": rng.integers(0, 100, 3000), "b": rng.integers(20, 50, 3000)}
    return Columns("two", values, {name: DiscretizedColumn.integers(100) for name in values}, clamped=clamped)


def release(plan: OrderedPlan, config: OrderedConfig, data: Columns | None = None) -> OrderedDistribution:
    return fit(data or columns(), plan=plan, config=config, curator=Curator(plan.open_ledger()), runtime=QUIET)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("method", get_args(Method))
def test_every_method_keeps_the_budget_of_several_columns(method: Method, relation: str) -> None:
    plan = OrderedPlan(epsilon=2.0, delta=1e-6, relation=relation)  # type: ignore[arg-type]
    model = release(plan, OrderedConfig(method=method, steps=3))
    assert 1.99 < model.statement.epsilon <= 2.0, "shares are as large as exact composition allows"
    assert model.columns == ("a", "b")
    split = tiny.told(model.statement)[Fact.SPLIT_BUDGET]["split"]
    first, second = (float(part.split(",")[0]) for part in split.split(" eps ")[1:])
    gained = method != "laplace"
    assert first == second
    assert (first > 1.05) == gained
    assert abs(model.cdf([49], "b")[0] - 1) < 0.5


def test_pure_shares_and_those_of_one_column_add_up() -> None:
    both = columns()
    one = Columns("one", {"a": both.values["a"]}, {"a": both.domains["a"]})
    pure = release(OrderedPlan(epsilon=2.0, delta=0.0), OrderedConfig(method="laplace"), both)
    assert tiny.told(pure.statement)[Fact.SPLIT_BUDGET]["split"] == "a eps 1, delta 0; b eps 1, delta 0"
    alone = release(OrderedPlan(epsilon=2.0, delta=1e-6), OrderedConfig(), one)
    assert tiny.told(alone.statement)[Fact.BUDGET_OF_A_COLUMN]["split"] == "a eps 2, delta 1e-06"


def test_the_noisy_number_of_clamped_values_is_paid_for() -> None:
    plan = OrderedPlan(epsilon=1.0, delta=1e-6)
    model = release(plan, OrderedConfig(), columns({"a": 700, "b": 0}))
    notes = [m["note"] for m in model.statement.mechanisms]
    assert "number of clamped values" in notes
    assert model.notes["clamped values of a, noisy"] != model.notes["clamped values of b, noisy"]
    assert abs(model.notes["clamped values of a, noisy"] - 700) < 4000
    assert model.statement.epsilon <= 1.0


def test_pieces_are_merged_on_demand() -> None:
    plan, data = OrderedPlan(), load_mixture(n_records=20_000)
    assert release(plan, OrderedConfig(degree=2), data).cdfs["x"].degree == 2


@pytest.mark.parametrize(
    ("plan", "config", "said"),
    [
        ({"public_n": 2999}, {}, "public_n is 2999"),
        ({"epsilon": 0.0015}, {}, "epsilon"),
        ({"delta": 0.0}, {}, "delta"),
        ({"epsilon": 0.0022, "delta": 1e-300}, {"method": "points", "steps": 10_000}, "column 'a': epsilon"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_charged(plan: dict, config: dict, said: str) -> None:
    some, public = OrderedPlan(**plan), OrderedConfig(**config)
    for data in (columns(), columns({"a": 1, "b": 2})):
        ledger = some.open_ledger()
        with refused(*said.split(": ")):
            fit(data, plan=some, config=public, curator=Curator(ledger), runtime=QUIET)
        assert ledger.entries() == []


@pytest.mark.parametrize("method", get_args(Method))
@pytest.mark.parametrize("epsilon", [1e-3, 1e3])
def test_every_epsilon_that_is_allowed_can_be_spent(epsilon: float, method: Method) -> None:
    plan = OrderedPlan(epsilon=epsilon)
    data = Columns("one", {"x": np.arange(60)}, {"x": DiscretizedColumn.integers(100)})
    assert 0 < release(plan, OrderedConfig(method=method, steps=1), data).statement.epsilon <= epsilon


def test_the_number_of_records_is_explained() -> None:
    for options, fact in [
        ({"relation": "replace_one"}, Fact.KNOWN_SIZE),
        ({"relation": "add_remove"}, Fact.NOISY_SIZE),
        ({"relation": "add_remove", "public_n": 3000}, Fact.PUBLIC_SIZE),
    ]:
        model = release(OrderedPlan(**options), OrderedConfig())  # type: ignore[arg-type]
        assert model.statement.says(fact)


# -- plans and options ---------------------------------------------------------------------------------------------------


def test_delta_never_comes_from_the_records() -> None:
    assert OrderedPlan(delta=1e-5).resolved_delta == 1e-5
    assert OrderedPlan(public_n=10**6).resolved_delta == pytest.approx(10**-6.6)
    assert OrderedPlan().resolved_delta == DEFAULT_DELTA
    assert DEFAULT_DELTA < (10**8) ** -1.1, "safe for every number of records that is supported"
