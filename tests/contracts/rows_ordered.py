"""Ordered columns: counts with noise, selections of the maximum error rule, private trees."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import torch
from conformance import RELATIONS, Law, LawRow, Pair, Row, SumRow, pairs_of, swapped

from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.noise import prefix_sensitivity, square_root_factor
from dpgen.systems.ordered import estimator as counts
from dpgen.systems.ordered.estimator import MonotoneCounts, PointSelection, Step
from dpgen.systems.ordered.partition import PartitionCDF, leaf_counts

N = 8
EPSILON = 1.0
DELTA = 1e-6
RANDOM = pairs_of(lambda rng, n: rng.integers(0, N, n))


FIRST_AND_LAST = swapped(np.array([2, 5, 0]), np.array([N - 1]))
"""A record of the first value comes, or was one of the last."""
TWO_CELLS = swapped(np.array([5, 0]), np.array([2]))
"""A record leaves one of the cells that are asked for another."""


def of_sorted(sums: Callable[[np.ndarray], BoundedSum]) -> Callable[[np.ndarray], BoundedSum]:
    """Estimators sort before they count."""
    return lambda x: sums(np.sort(x))


def counted(note: str, sums: Callable[[np.ndarray], BoundedSum], *relations: Relation) -> SumRow:
    return SumRow("merr", (note,), RANDOM, FIRST_AND_LAST, sums=of_sorted(sums), relations=relations or RELATIONS)


def with_gap(relation: Relation) -> Pair:
    """A complete record is replaced by one with a gap, which is left out."""
    return FIRST_AND_LAST("add_remove")


def of_gaps(rng: np.random.Generator, relation: Relation) -> Pair:
    """Records are replaced by any others, complete or not."""
    return RANDOM(rng, "add_remove" if rng.random() < 0.5 else "replace_one")


def where_rows_vanish(note: str, sums: Callable[[np.ndarray], BoundedSum], *, tight: Any = with_gap, **how: Any) -> SumRow:
    """A release of data whose number of used rows is private although the relation is replace-one."""
    return SumRow("merr", (note,), of_gaps, tight, sums=of_sorted(sums), relations=("replace_one",), **how)


def factored(x: np.ndarray) -> BoundedSum:
    """What correlated noise is added to in the proof: cells, without the last one, through the square root of prefix sums."""
    cells = counts.cell_counts(x, np.arange(N), norm="l2").values.double().numpy()
    m, factor = len(cells), square_root_factor(len(cells))
    product_ = np.array([sum(factor[i - j] * cells[j] for j in range(i + 1)) for i in range(m)])
    alone, both = (prefix_sensitivity(m, relation) for relation in ("add_remove", "replace_one"))  # type: ignore[arg-type]
    return BoundedSum(torch.from_numpy(product_), alone, replaced=both)


def farthest(relation: Relation) -> Pair:
    """The worst distance that a record is moved by."""
    few, B = np.array([2, 5]), np.tril(square_root_factor(N - 1)[np.abs(np.subtract.outer(np.arange(N - 1), np.arange(N - 1)))])
    if relation == "add_remove":
        return np.append(few, 0), few
    padded = np.concatenate([B, np.zeros((N - 1, 1))], axis=1)
    to = int(np.argmax(np.linalg.norm(padded - B[:, :1], axis=0)))
    return np.append(few, 0), np.append(few, to)


# -- selections --------------------------------------------------------------------------------------------------------

POINTS = MonotoneCounts(np.array([0, 1, 2, N]), np.array([0.0, 0.0, 90.0, 90.0]))
"""Far too few records below 1 and far too many below 2: a record at 0 moves the two errors in opposite directions."""
BALANCED = MonotoneCounts(np.array([0, 1, 2, N]), np.array([0.0, 0.0, 4.0, 4.0]))
"""The same, with errors so small that both kinds of point are drawn."""


def normalised(weights: list[float]) -> np.ndarray:
    return np.array(weights) - np.logaddexp.reduce(weights)


def chosen(law: Any, **how: Any) -> LawRow:
    return LawRow("merr", ("MERR, points selection",), RANDOM, FIRST_AND_LAST, law=law, **how)


def point_law(delta: float, model: MonotoneCounts) -> Callable[[np.ndarray, Relation], Law]:
    def law(x: np.ndarray, relation: Relation) -> Law:
        step = Step.of(1, EPSILON, delta, rows=1, relation=relation)
        selection = PointSelection(np.sort(x), N=N, rate=step.rate, zcdp=step.zcdp)
        scores = [float(selection.score(k, model)) for k in range(1, N)]
        return Law(selection.given(model).event, normalised([selection.rate * score for score in scores]))

    return law


# -- trees -------------------------------------------------------------------------------------------------------------

TREE_LEVELS = 12
TREE_N = 2**TREE_LEVELS


def tree_law(x: np.ndarray, relation: Relation) -> Law:
    """Of a function of the tree: how deep the leaf of value 0 is, and whether the upper half of the domain is split."""
    estimator = PartitionCDF(epsilon=EPSILON, delta=DELTA, size=64)
    rule = estimator.rule(64.0, relation)
    assert rule.event in [line.event for line in estimator.planned(TREE_N, relation)]
    rows, least = rule.chances()
    decay = rule.noise.decay

    def chances(records: int, depth: int) -> tuple[float, float]:
        k = rule.threshold + 1 - max(records - depth * decay, rule.threshold - decay)
        assert k >= least
        split = Fraction((int(rows[k - least, 0]) << 64) + int(rows[k - least, 1]), 2**128)
        return float(np.log(float(split))), float(np.log(float(1 - split)))

    path = [chances(int((x < TREE_N >> depth).sum()), depth) for depth in range(TREE_LEVELS)]
    other = chances(int((x >= TREE_N // 2).sum()), 1)
    depths = [path[d][1] + sum(split for split, _ in path[1:d]) for d in range(1, TREE_LEVELS)]
    depths.append(sum(split for split, _ in path[1:]))
    return Law(rule.event, np.array([path[0][1], *(path[0][0] + o + d for o, d in product(other, depths))]))


TREES = pairs_of(lambda rng, n: rng.choice(np.array([0, 1, 5, 700, TREE_N - 1]), n), most=60)


def one_path(relation: Relation) -> Pair:
    """Equal records, so many that all their cells but the last count; and others that keep the upper half whole."""
    rule = PartitionCDF(epsilon=EPSILON, delta=DELTA, size=64).rule(64.0, relation)
    decay = rule.noise.decay
    path = np.zeros(rule.threshold + (TREE_LEVELS - 2) * decay, np.int64)
    if relation == "add_remove":
        return np.append(path, 0), path
    half = np.full(rule.threshold + decay + 1, TREE_N - 1)
    return np.concatenate([path, [0], half[1:]]), np.concatenate([path, half])


_NORMS: tuple[Any, ...] = ("l1", "l2")
_CURVE = "zCDP bounds all orders at once, which the curve of a choice between two kinds of candidate does not reach"


def leaves(known: bool) -> Callable[[np.ndarray], BoundedSum]:
    return of_sorted(lambda x: leaf_counts(x, np.array([1, 4, N]), known=known))


ROWS: list[Row] = [
    counted(counts.RECORDS_NOTE, lambda x: counts.number_of(len(x)), "add_remove"),
    counted("number of clamped values", lambda x: counts.number_of(int((x < 1).sum()))),
    counted("counts of * public cells", lambda x: counts.cell_counts(x, np.arange(N + 1), norm="l1")),
    where_rows_vanish(counts.RECORDS_NOTE, lambda x: counts.number_of(len(x))),
    where_rows_vanish("partition: prefix counts", leaves(False), tight=TWO_CELLS),
    *(counted("MERR, noisy counts", lambda x, norm=norm: counts.prefix_count(x, 1, norm=norm)) for norm in _NORMS),  # type: ignore[misc]
    chosen(point_law(0.0, POINTS)),
    chosen(point_law(DELTA, BALANCED), at=(0.05, 0.1), reaches=0.3, why=_CURVE, pairs=100),
    LawRow("merr", ("partition: tree",), TREES, one_path, law=tree_law, pairs=100),
    *(
        SumRow("merr", ("partition: prefix counts",), RANDOM, TWO_CELLS, sums=leaves(r == "replace_one"), relations=(r,))
        for r in RELATIONS
    ),
    SumRow("merr", ("partition: prefix counts",), RANDOM, farthest, sums=of_sorted(factored)),
]
