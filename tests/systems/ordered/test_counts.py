"""What is counted, and how far one record moves it: enumeration of all neighbours reaches every bound and passes none."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_domains import models, neighbours, point_cells

from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.systems.ordered import counts
from dpgen.systems.ordered.counts import SCORE
from dpgen.systems.ordered.partition import leaf_counts

RELATIONS = ["add_remove", "replace_one"]
N = 8


def largest_move(sums: Callable[[np.ndarray], BoundedSum], relation: str) -> float:
    """How far the worst of all neighbours moves the sums."""
    histograms, first, second = neighbours(N, 3, relation)
    made = [sums(np.repeat(np.arange(N), row)).values.numpy() for row in histograms]
    order = 1 if sums(counts.NO_RECORDS).norm == "l1" else 2
    return max(float(np.linalg.norm(made[i] - made[j], ord=order)) for i, j in zip(first, second))


SUMS: dict[str, Callable[[np.ndarray], BoundedSum]] = {
    **{f"cells {norm}": lambda x, norm=norm: counts.cell_counts(x, np.array([0, 2, 3, 8]), norm=norm) for norm in ("l1", "l2")},
    **{f"point {norm}": lambda x, norm=norm: counts.prefix_count(x, 5, norm=norm) for norm in ("l1", "l2")},
    "clamped": lambda x: counts.clamped_count(int((x > 5).sum())),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", SUMS)
def test_the_worst_neighbours_move_the_counts_by_what_is_stated(name: str, relation: Any) -> None:
    assert largest_move(SUMS[name], relation) == pytest.approx(SUMS[name](counts.NO_RECORDS).under(relation), rel=1e-12)


def test_the_number_of_records_moves_by_one() -> None:
    assert largest_move(counts.record_count, "add_remove") == counts.record_count(np.arange(3)).under("add_remove") == 1
    assert largest_move(counts.record_count, "replace_one") == 0


@pytest.mark.parametrize("relation", RELATIONS)
def test_leaf_counts_leave_out_what_is_public(relation: Any) -> None:
    values, ends = np.array([0, 3, 3, 7]), np.array([2, 4, 8])
    known = relation == "replace_one"
    assert leaf_counts(values, ends, known=known).values.tolist() == ([1, 2] if known else [1, 2, 1])
    stated = leaf_counts(counts.NO_RECORDS, ends, known=known).under(relation)
    assert largest_move(lambda x: leaf_counts(x, ends, known=known), relation) == pytest.approx(stated)


def test_counts_are_those_of_a_slow_loop() -> None:
    values = np.sort(np.random.default_rng(0).integers(0, N, 30))
    every = [int((values == x).sum()) for x in range(N)]
    assert counts.cell_counts(values, np.arange(N + 1), norm="l2").values.tolist() == every
    assert counts.prefix_count(values, 3, norm="l1").values.tolist() == [sum(every[:3])]


@pytest.mark.parametrize("relation", RELATIONS)
def test_scores_move_by_one(relation: Any) -> None:
    histograms, first, second = neighbours(N, 3, relation)
    for model in models(N, 3.0):
        scores = np.abs(np.subtract(*point_cells(histograms, model)))
        assert np.abs(scores[first] - scores[second]).max() == pytest.approx(SCORE)


def test_unknown_relations_are_refused() -> None:
    with pytest.raises(ValueError, match="relation"):
        counts.records_moved("both")  # type: ignore[arg-type]


# -- the number of records ---------------------------------------------------------------------------------------------

VALUES = np.arange(1000)


def test_replace_one_knows_the_number() -> None:
    curator = Curator(Ledger(Budget(1.0, 1e-6), relation="replace_one"))
    assert curator.keeps_size
    assert counts.planned_size(0.1, free=True) == []
    assert counts.released_size(VALUES, None, epsilon=0.1, curator=curator) == 1000
    assert curator.ledger.epsilon() == 0
    with pytest.raises(ValueError, match="size is 999; under replace_one the number of records is public and is 1000"):
        counts.released_size(VALUES, 999, epsilon=0.1, curator=curator)


@pytest.mark.parametrize("terms", [{"rows": 2}, {"always_used": False}], ids=str)
def test_replace_one_does_not_know_the_number_where_rows_may_vanish(terms: Any) -> None:
    curator = Curator(Ledger(Budget(1.0, 1e-6), relation="replace_one", **terms))
    found = {counts.released_size(VALUES, None, epsilon=0.05, curator=curator) for _ in range(10)}
    assert len(found) > 1
    assert curator.ledger.epsilon() == pytest.approx(0.5, rel=1e-4)
    assert counts.released_size(VALUES, 999, epsilon=0.1, curator=curator) == 999, "a declared number is not compared with n"


def test_add_remove_pays_for_it_or_is_told() -> None:
    curator = Curator(Ledger(Budget(1.0, 1e-6)))
    assert counts.released_size(VALUES, 5000, epsilon=0.1, curator=curator) == 5000
    assert curator.ledger.epsilon() == 0
    curator.declare(*counts.planned_size(0.5, free=False))
    noisy = counts.released_size(VALUES, None, epsilon=0.5, curator=curator)
    assert curator.ledger.epsilon() == pytest.approx(0.5, rel=1e-4)
    assert abs(noisy - 1000) < 100  # e^-50 of the draws miss
    with pytest.raises(BudgetExceeded, match="number of records"):
        counts.released_size(VALUES, None, epsilon=0.6, curator=curator)


def test_noise_is_there_and_the_result_is_at_least_one() -> None:
    curator = Curator(Ledger(None, delta=1e-6))
    found = {counts.released_size(VALUES[:1], None, epsilon=0.05, curator=curator) for _ in range(40)}
    assert len(found) > 3
    assert min(found) == 1.0
