"""The paid score of a run: what it asks is a function of the release, what it answers has the noise that it is charged for."""

from typing import Any

import pytest
import torch
from other_records import DATA, release

from dpgen.evaluation.paid import MOST_QUERIES, price, queries, score
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger


def ask() -> tuple[Any, Any, Any]:
    """A release, the data that it is of, and other data."""
    data, others = (DATA["records"](other) for other in (False, True))
    return release("records", data), data, others


def test_queries_do_not_depend_on_the_records() -> None:
    """Private shares would be released with the choice."""
    model, data, others = ask()
    (asked, values), (same, other_values) = queries(model, data, seed=0), queries(model, others, seed=0)
    for one, two in zip(asked, same):
        assert torch.equal(one, two)
    assert 0 < len(asked.shares) <= MOST_QUERIES
    assert len(values) != len(other_values)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_a_score_costs_what_is_said_and_has_that_noise(relation: Any) -> None:
    model, data, _ = ask()
    found = []
    ledger = Ledger(None, delta=1e-6, relation=relation)
    for _ in range(300):
        found.append(score(model, data, Curator(ledger), noise=5.0, seed=0))
    asked, values = queries(model, data, seed=0)
    exact = -float(asked.errors(values).values) / 1024 / len(asked.shares)
    noise = torch.tensor(found).double() - exact
    assert float(noise.abs().mean()) == pytest.approx(5.0 * (2 / torch.pi) ** 0.5, rel=0.25)
    [line] = price(5.0, relation)
    assert {entry.event for entry in ledger.entries()} == {line.event}
    assert sum(entry.count for entry in ledger.entries()) == 300


def test_a_release_that_is_near_scores_higher_than_one_of_other_records() -> None:
    model, data, others = ask()
    curator = Curator(Ledger(None, delta=1e-6))
    near, far = (score(model, rows, curator, noise=0.01, seed=0) for rows in (data, others))
    assert near > far
