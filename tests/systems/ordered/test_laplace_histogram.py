"""Theorem 3: exact hockey-stick of the counts, the printed scale rejected, projection, normalisation."""

import numpy as np
import pytest

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.ordered.estimator import LaplaceHistogram


def pmf(scale: float, reach: int = 200) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(k) / scale)
    return weights / weights.sum()


def hockey_stick(scale: float, epsilon: float, relation: Relation) -> float:
    """delta(epsilon) of two counts with integer Laplace noise, one record inserted or moved from one to the other."""
    base = pmf(scale)
    first = np.multiply.outer(base, base)
    second = np.multiply.outer(np.roll(base, 1), base if relation == "add_remove" else np.roll(base, -1))
    inner = slice(2, -2)
    return float(np.maximum(first - np.exp(epsilon) * second, 0)[inner, inner].sum())


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_printed_scale_is_rejected_under_replace_one(epsilon: float) -> None:
    """Laplace(1 / (epsilon n)) on shares is Laplace(1 / epsilon) on counts: it costs 2 epsilon."""
    assert hockey_stick(1 / epsilon, epsilon, "replace_one") > 0.01
    assert hockey_stick(1 / epsilon, 2 * epsilon, "replace_one") < 1e-12


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_total_is_noisy_where_it_is_private(relation: Relation) -> None:
    """The sum of ten noisy counts is n with a chance of about 1/8: all of twelve with 1e-11."""
    values, totals = np.repeat(np.arange(10), 1000), set()
    for _ in range(12):
        curator = Curator(Ledger(None, delta=1e-9, relation=relation))
        totals.add(LaplaceHistogram(epsilon=1.0).fit_counts(values, N=10, curator=curator).counts[-1])
    assert totals == {10_000.0} if relation == "replace_one" else len(totals) > 1
    assert all(abs(total - 10_000) < 200 for total in totals)
