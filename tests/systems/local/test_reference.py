"""A released model as the public prior: its distribution, what the statement says, and what is refused for nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from refusals import refused

import dpgen
from dpgen.data.users import Users
from dpgen.facts import Fact
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.release import PublicModel
from dpgen.samples import ColumnSamples
from dpgen.systems.local.fit import released_prior
from dpgen.systems.marginals.model import ProductMixture

CATEGORIES = ("tea", "milk", "rum")
COUNTS = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 5.0]], dtype=torch.float64)


def users(**options: Any) -> Users:
    return Users("tiny", COUNTS, ("ann", "bob"), CATEGORIES, **options)


def items(columns: tuple[str, ...] = ("rum", "tea", "milk")) -> ProductMixture:
    probabilities = torch.tensor([[0.2, 0.6, 0.4], [0.8, 0.6, 0.0]])
    return ProductMixture(probabilities, torch.tensor([3.0, 1.0]), statement=tiny.statement(), columns=columns)


class Table(PublicModel):
    """Samples are the rows of a table, again and again."""

    kind = "table"

    def __init__(self, **columns: Any) -> None:
        self.columns, self.statement = columns, tiny.statement()

    def samples(self, n: int, *, random_state: Any = None) -> ColumnSamples:
        frame = pd.DataFrame(self.columns)
        return ColumnSamples(values=frame.iloc[np.arange(n) % len(frame)])

    tensors = description = rebuild = None  # type: ignore[assignment]


# -- the distribution --------------------------------------------------------------------------------------------------


def test_shares_of_columns_that_are_named_like_categories() -> None:
    """P(tea, milk, rum is 1) is .6, .3 and .35."""
    wanted = torch.tensor([0.6, 0.3, 0.35], dtype=torch.float64)
    found = released_prior(items(), CATEGORIES)
    assert torch.allclose(found, wanted / wanted.sum(), atol=0.004)
    assert torch.equal(found, released_prior(items(), CATEGORIES)), "a public seed"


@pytest.mark.parametrize("values", [["1", "2", "2", "4"], [1, 2, 2, 4], [1.0, 2.0, 2.0, 4.0], [" 1", "2 ", "2", "4"]])
def test_values_of_a_column_are_compared_as_texts(values: list[Any]) -> None:
    found = released_prior(Table(x=values, y=["a", "b", "c", None]), ("1", "2", "3", "4"))
    assert found.tolist() == pytest.approx([0.25, 0.5, 0.0, 0.25], abs=1e-5)
    assert found[2] > 0
    assert float(found.sum()) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    "model",
    [
        Table(x=["tea", "gin"]),
        Table(x=["tea"], y=["rum"]),
        Table(tea=[0.5], milk=[1], rum=[0]),
        Table(tea=["a"], milk=[1], rum=[0]),
        items(("tea", "milk", "gin")),
    ],
)
def test_another_domain_is_refused_in_one_line(model: PublicModel) -> None:
    with refused("reference_path"):
        released_prior(model, CATEGORIES)


# -- a fit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["minimax", "q_invariant"])
def test_samplers_take_the_prior_and_the_statement_names_the_release(model: str, tmp_path: Path) -> None:
    items().save(tmp_path)
    drawn = dpgen.fit(users(), model, epsilon=1.0, reference_path=tmp_path, release_origin="public")
    assert torch.allclose(drawn.origin.prior, released_prior(items(), CATEGORIES))
    text = " ".join(drawn.statement.not_covered)
    assert f"sha256 {dpgen.load(tmp_path).sha256}" in text
    assert tiny.statement().in_words() in text
    assert tiny.told(drawn.statement)[Fact.NAMED_PRIOR] == {"origin": "that of a released model"}
    assert drawn.epsilon == pytest.approx(1.0)
    plain = dpgen.fit(users(), model, epsilon=1.0)
    assert Fact.READ_RELEASE not in tiny.told(plain.statement)


@pytest.mark.parametrize(
    ("options", "data", "name"),
    [
        ({"reference_path": "absent"}, {}, "reference_path"),
        ({}, {"prior": torch.ones(3) / 3, "prior_origin": "a survey"}, "reference_path"),
        ({}, {"categories": ("tea", "milk", "gin")}, "reference_path"),
        ({"release_origin": "records"}, {}, "unit"),
    ],
)
def test_refusals_cost_nothing(options: dict[str, Any], data: dict[str, Any], name: str, tmp_path: Path) -> None:
    items().save(tmp_path / "model")
    ledger = Ledger(Budget(2.0, 0.0), relation="replace_one", unit="one user's whole distribution")
    given = {"reference_path": tmp_path / "model", "release_origin": "public"} | options
    made = Users("tiny", COUNTS, ("ann", "bob"), **{"categories": CATEGORIES} | data)
    with refused(name):
        dpgen.fit(made, "minimax", epsilon=1.0, ledger=ledger, **given)
    assert (ledger.entries(), ledger.promised()) == ([], [])
