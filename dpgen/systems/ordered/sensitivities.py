"""How far one record moves what the estimators on [N] look at: every sensitivity of the family, for both relations.

Counts, never shares: the number of records is private under add/remove, so nothing is divided by it before the noise.
"""

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpgen.privacy.parallel import Relation

Answers = Literal["interval", "point"]


def _replaces(relation: Relation) -> bool:
    if relation not in ("add_remove", "replace_one"):
        raise ValueError(f"relation is {relation!r}; choose one of add_remove, replace_one")
    return relation == "replace_one"


def records_moved(relation: Relation) -> int:
    """How many insertions and deletions make a neighbour: 1 under add/remove, 2 under replace-one.

    The factor of every budget of a mechanism that is known for one insertion, such as PrivTree's paths.

    >>> records_moved("add_remove"), records_moved("replace_one")
    (1, 2)
    """
    return 2 if _replaces(relation) else 1


def size_l1(relation: Relation) -> int:
    """The number of records: changes by 1 under add/remove; replace-one keeps it, so it is public there.

    >>> size_l1("add_remove"), size_l1("replace_one")
    (1, 0)
    """
    return 0 if _replaces(relation) else 1


def cells_l1(relation: Relation) -> int:
    """Counts of disjoint cells, L1: a record enters one cell (1) or leaves one for another (2).

    >>> cells_l1("add_remove"), cells_l1("replace_one")
    (1, 2)
    """
    return records_moved(relation)


def cells_l2(relation: Relation) -> float:
    """Counts of disjoint cells, L2: 1, or sqrt(2) when a record leaves one cell for another."""
    return math.sqrt(records_moved(relation))


def tree_l1(levels: int, relation: Relation) -> int:
    """All counts of a tree of `levels` levels of disjoint cells, L1; the root counts as a level."""
    return levels * records_moved(relation)


def answers_l1(answers: Answers, relation: Relation) -> int:
    """The counts asked in one step of the maximum error rule, L1.

    "interval": the counts left of the interval and inside it, two disjoint cells. "point": one prefix count, which any
    neighbour moves by at most 1. (Diakonikolas, Hardt, Schmidt 2015, Figure 2, take 1 record for the two disjoint cells.)

    >>> answers_l1("interval", "replace_one"), answers_l1("point", "replace_one")
    (2, 1)
    """
    return 1 if answers == "point" and _replaces(relation) in (True, False) else cells_l1(relation)


def answers_l2(answers: Answers, relation: Relation) -> float:
    """The same in L2."""
    return math.sqrt(answers_l1(answers, relation))


def score(relation: Relation) -> int:
    """The error |count - model| of an interval or of a prefix, the model being public: 1 under either relation.

    >>> score("replace_one")
    1
    """
    _replaces(relation)
    return 1


def scores_moved(levels: int, relation: Relation) -> int:
    """How many dyadic intervals, of a tree with `levels` levels, have another count after one change.

    The path of the record: all levels. Under replace-one two paths without their common root.

    >>> scores_moved(61, "add_remove"), scores_moved(61, "replace_one")
    (61, 120)
    """
    return 2 * (levels - 1) if _replaces(relation) else levels


def tree_path_loss(relation: Relation) -> int:
    """PrivTree's privacy loss in units of 1 / noise scale.

    An insertion makes the splits on its path likelier, 3 in total (Zhang, Xiao, Xie 2016, Theorem 3.1). A deletion, in the
    same direction, only makes its last cell likelier not to be split, 1: replace-one costs 4 rather than twice 3.

    >>> tree_path_loss("add_remove"), tree_path_loss("replace_one")
    (3, 4)
    """
    return 4 if _replaces(relation) else 3


def prefix_factor_l2(factor: npt.NDArray[np.float64], relation: Relation) -> float:
    r"""Cell counts through a lower triangular Toeplitz matrix with the first column `factor` $f_0 \dots f_{m-1}$, L2.

    Add/remove: $\sum_k f_k^2$, squared. Replace-one, a record moving d cells on, squared:
    $\max_d \sum_{k<d} f_k^2 + \sum_{k<m-d} (f_k - f_{k+d})^2$, all d at once by one autocorrelation.

    >>> round(prefix_factor_l2(np.array([1.0, 0.5]), "add_remove") ** 2, 6)
    1.25
    >>> round(prefix_factor_l2(np.array([1.0, 0.5]), "replace_one") ** 2, 6)
    1.25
    """
    total = float(factor @ factor)
    if not _replaces(relation):
        return math.sqrt(total)
    m = factor.size
    head = np.concatenate([[0.0], np.cumsum(factor**2)])  # head[d] = sum of the first d squares
    spectrum = np.fft.rfft(factor, 2 * m)
    lagged = np.fft.irfft(spectrum * spectrum.conj(), 2 * m)[: m + 1]
    lags = np.arange(1, m + 1)
    squared = head[lags] + head[m - lags] + (total - head[lags]) - 2 * lagged[lags]
    return math.sqrt(max(total, float(squared.max()))) * (1 + 1e-9)  # never below the exact value for its rounding
