"""Sensitivities of the ordered family against enumeration of all neighbours."""

import math

import numpy as np
import pytest
from small_domains import dyadic, interval_cells, models, neighbours, point_cells

from dpgen.systems.ordered import sensitivities
from dpgen.systems.ordered.dyadic_cells import levels

RELATIONS = ["add_remove", "replace_one"]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("N", [5, 8])
def test_scores_cells_and_answers_move_as_stated(N: int, relation: str) -> None:
    histograms, first, second = neighbours(N, 3, relation)
    change = histograms[first] - histograms[second]
    assert np.abs(change).sum(axis=1).max() == sensitivities.cells_l1(relation)
    assert np.linalg.norm(change, axis=1).max() == pytest.approx(sensitivities.cells_l2(relation))
    assert np.abs(change.sum(axis=1)).max() == sensitivities.size_l1(relation)
    for model in models(N, 3.0):
        for cells in (point_cells, interval_cells):
            counts, public = cells(histograms, model)
            scores = np.abs(counts - public)
            assert np.abs(scores[first] - scores[second]).max() <= sensitivities.score(relation) + 1e-12
            moved = (counts[first] != counts[second]).sum(axis=1).max()
            if cells is interval_cells and N == 8:
                assert moved == sensitivities.scores_moved(levels(N), relation)
                assert moved <= sensitivities.tree_l1(levels(N), relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_answers_of_one_step(relation: str) -> None:
    histograms, first, second = neighbours(8, 3, relation)
    below = np.concatenate([np.zeros((len(histograms), 1)), np.cumsum(histograms, axis=1)], axis=1)
    worst = {"interval": np.zeros(2), "point": np.zeros(2)}
    for start, stop in dyadic(8):
        both = np.stack([below[:, start], below[:, stop] - below[:, start]], axis=1)
        for kind, asked in (("interval", both), ("point", below[:, [start]])):
            change = asked[first] - asked[second]
            norms = np.abs(change).sum(axis=1).max(), np.linalg.norm(change, axis=1).max()
            worst[kind] = np.maximum(worst[kind], norms)
    for kind, (l1, l2) in worst.items():
        assert l1 == sensitivities.answers_l1(kind, relation)  # type: ignore[arg-type]
        assert l2 == pytest.approx(sensitivities.answers_l2(kind, relation))  # type: ignore[arg-type]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("m", [1, 2, 7, 16])
def test_prefix_factor(m: int, relation: str) -> None:
    k = np.arange(1, m)
    factor = np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))
    matrix = np.array([[factor[i - j] if i >= j else 0.0 for j in range(m)] for i in range(m)])
    columns = [matrix[:, j] for j in range(m)]
    if relation == "add_remove":
        exact = max(np.linalg.norm(c) for c in columns)
    else:
        exact = max([np.linalg.norm(a - b) for a in columns for b in columns] + [np.linalg.norm(columns[0])])
    assert exact <= sensitivities.prefix_factor_l2(factor, relation) <= exact * (1 + 1e-6)


def test_unknown_relations_are_refused() -> None:
    for name in ("records_moved", "size_l1", "cells_l1", "cells_l2", "score"):
        with pytest.raises(ValueError, match="relation is 'both'"):
            getattr(sensitivities, name)("both")
    with pytest.raises(ValueError, match="relation is 'both'"):
        sensitivities.answers_l1("point", "both")  # type: ignore[arg-type]
    assert math.isclose(sensitivities.answers_l2("interval", "replace_one"), math.sqrt(2))
