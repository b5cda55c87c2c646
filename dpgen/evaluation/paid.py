r"""A score that is paid for: how far counts of released records are from those of the private ones, with noise.

A query asks whether a record has a value of at least s in one column and of at least t in another (perhaps the same). With
:math:`q_j(x) \in \{0, 1\}` the answers of a record x to m queries and :math:`p_j` the share of released records that satisfy
query j, rounded to whole 1024ths,

.. math:: S = \sum_j \Bigl| \sum_x (q_j(x) - p_j) \Bigr|

is exact in int64 on the grid 1/1024. A record moves each term by at most 1, added, removed or replaced, so S by at most m: the
mean error of a count, S / m, by one record. Comparisons do not round, so an answer depends on its record alone, bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dpgen.privacy.composition import Planned
from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import Relation, require_positive
from dpgen.privacy.noise import PublicRandomness
from dpgen.release import PointSamples, PublicModel, RecordSamples, Release

NOTE = "score of a run"
"""Note of the score in a ledger."""

MOST_QUERIES = 1000
_GRID = 1024
_SAMPLES = 20_000


class Queries(NamedTuple):
    """m queries: two columns of each (m, 2), the least values that satisfy it (m, 2), and the released shares that do (m,)."""

    columns: Tensor
    low: Tensor
    shares: Tensor

    def counts(self, values: Tensor) -> Tensor:
        """Numbers (m,) int64 of the records (n, d) that satisfy each query."""
        rows, found = values.T.contiguous(), []
        for (a, b), (s, t) in zip(self.columns.tolist(), self.low):
            found.append(int(((rows[a] >= s) & (rows[b] >= t)).sum()))
        return torch.tensor(found, dtype=torch.int64)

    def errors(self, values: Tensor) -> BoundedSum:
        """S of the module, (1,), of private records (n, d)."""
        wanted = len(values) * (self.shares * _GRID).round().to(torch.int64)
        total = (_GRID * self.counts(values) - wanted).abs().sum()[None]
        m = float(len(self.shares))
        return BoundedSum(total, m, "errors of counts", replaced=m, step=1 / _GRID)


def queries(release: Release, data: Any, *, seed: int) -> tuple[Queries, Tensor]:
    """Queries on a release, chosen by public randomness and the release alone, and the private values (n, d).

    Records: every column, every class, and random pairs of them. Points: random pairs of columns at released
    quartiles. Columns of ordered values: quantiles of the released distributions.
    """
    if not isinstance(release, PublicModel):
        raise ValueError(f"the release is {type(release).__name__}; only a released model has records to be counted")
    generator = PublicRandomness(seed).spawn("queries of a paid score").generator
    cdfs = getattr(release, "cdfs", None)
    if cdfs is not None:
        return _of_columns(cdfs, data)
    samples = release.samples(_SAMPLES, random_state=seed)
    if isinstance(samples, RecordSamples):
        labelled = data.labels if samples.labels is not None else None
        released = _joined(samples.x, samples.labels if data.labels is not None else None, data.n_classes)
        columns = _pairs(released.shape[1], generator)
        return _on(released, columns, torch.ones(len(columns), 2, dtype=torch.uint8)), _joined(data.x, labelled, data.n_classes)
    if isinstance(samples, PointSamples):
        released = samples.x.to(data.x.dtype)
        columns = _pairs(released.shape[1], generator).repeat(9, 1)
        grid = torch.cartesian_prod(*2 * [torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)])
        quantiles = grid.repeat_interleave(len(columns) // 9, 0)
        order = released.sort(0).values
        low = torch.stack([order[(quantiles[:, i] * (len(order) - 1)).long(), columns[:, i]] for i in (0, 1)], 1)
        return _on(released, columns, low), data.x
    raise ValueError(f"samples are {type(samples).__name__}; a paid score counts records, points and columns only")


def _pairs(d: int, generator: torch.Generator) -> Tensor:
    """Each of d columns by itself, then random pairs of two, (m, 2)."""
    alone = torch.arange(d)[:, None].expand(d, 2)[:MOST_QUERIES]
    every = torch.combinations(torch.arange(d)) if d <= 100 else torch.randint(d, (2 * MOST_QUERIES, 2), generator=generator)
    every = every[every[:, 0] != every[:, 1]]
    chosen = every[torch.randperm(len(every), generator=generator)[: max(0, MOST_QUERIES - d)]]
    return torch.cat([alone, chosen])


def _joined(x: Tensor, labels: Tensor | None, n_classes: int) -> Tensor:
    return x if labels is None else torch.cat([x, one_hot(labels.long(), n_classes).to(x.dtype)], 1)


def _on(released: Tensor, columns: Tensor, low: Tensor) -> Queries:
    plain = Queries(columns, low, torch.zeros(len(columns)))
    return plain._replace(shares=plain.counts(released).double() / max(1, len(released)))


def _of_columns(cdfs: Any, data: Any) -> tuple[Queries, Tensor]:
    probabilities = np.linspace(0, 1, 34)[1:-1]
    columns, low, shares = [], [], []
    for number, cdf in enumerate(cdfs.values()):
        positions = np.unique(cdf.inverse(probabilities))
        columns += [[number, number]] * len(positions)
        low += [[int(p), int(p)] for p in positions]
        shares += (1 - cdf.below(positions)).tolist()
    values = torch.from_numpy(np.stack([np.asarray(data.values[name], np.int64) for name in cdfs], 1))
    asked = Queries(torch.tensor(columns), torch.tensor(low), torch.tensor(shares, dtype=torch.float64))
    return asked, values


def price(noise: float, relation: Relation) -> tuple[Planned, ...]:
    """The charge of one score with noise of this standard deviation, in records: the same for every m."""
    any_sum = Queries(torch.zeros(1, 2).long(), torch.zeros(1, 2), torch.zeros(1)).errors(torch.zeros(0, 1))
    return (Planned(gaussian_price(any_sum, require_positive("noise", noise), relation), NOTE),)


def score(release: Release, data: Any, curator: Curator, *, noise: float, seed: int) -> float:
    """Minus the mean error of a count, in records, with noise of this standard deviation, which is charged.

    Raises:
        ValueError: no model that could be scored.
        BudgetExceeded: the curator grants no score.
    """
    asked, values = queries(release, data, seed=seed)
    return -float(curator.gaussian(NOTE, asked.errors(values), noise)) / len(asked.shares)
