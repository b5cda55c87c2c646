r"""A score that is paid for: how far counts of released records are from those of the private ones, with noise.

A query asks whether a record has a one in both of two columns, perhaps the same. With
:math:`q_j(x) \in \{0, 1\}` the answers of a record x to m queries and :math:`p_j` the share of released records that satisfy
query j, rounded to whole 1024ths,

.. math:: S = \sum_j \Bigl| \sum_x (q_j(x) - p_j) \Bigr|

is exact in int64 on the grid 1/1024. A record moves each term by at most 1, added, removed or replaced, so S by at most m: the
mean error of a count, S / m, by one record. Comparisons do not round, so an answer depends on its record alone, bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dpgen.privacy.composition import Planned
from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import Relation, require_positive
from dpgen.privacy.noise import PublicRandomness
from dpgen.release import PublicModel, Release
from dpgen.samples import RecordSamples

NOTE = "score of a run"
"""Note of the score in a ledger."""

MOST_QUERIES = 1000
_GRID = 1024
_SAMPLES = 20_000


class Queries(NamedTuple):
    """m queries: two columns of each (m, 2), and the released shares of records that have ones in both (m,)."""

    columns: Tensor
    shares: Tensor

    def counts(self, values: Tensor) -> Tensor:
        """Numbers (m,) int64 of the records (n, d), 0 and 1, that satisfy each query."""
        rows = values.T.bool().contiguous()
        return torch.tensor([int((rows[a] & rows[b]).sum()) for a, b in self.columns.tolist()], dtype=torch.int64)

    def errors(self, values: Tensor) -> BoundedSum:
        """S of the module, (1,), of private records (n, d)."""
        wanted = len(values) * (self.shares * _GRID).round().to(torch.int64)
        total = (_GRID * self.counts(values) - wanted).abs().sum()[None]
        m = float(len(self.shares))
        return BoundedSum(total, m, "errors of counts", replaced=m, step=1 / _GRID)


def queries(release: Release, data: Any, *, seed: int) -> tuple[Queries, Tensor]:
    """Queries on a release, chosen by public randomness and the release alone, and the private values (n, d).

    They are of every column and every class, and of random pairs of them.
    """
    samples = release.samples(_SAMPLES, random_state=seed) if isinstance(release, PublicModel) else release
    if not isinstance(samples, RecordSamples):
        raise ValueError(f"the release has {type(samples).__name__}; a paid score counts the records of a released model")
    generator = PublicRandomness(seed).spawn("queries of a paid score").generator
    released = _joined(samples.x, samples.labels if data.labels is not None else None, data.n_classes)
    columns = _pairs(released.shape[1], generator)
    plain = Queries(columns, torch.zeros(len(columns)))
    asked = plain._replace(shares=plain.counts(released).double() / max(1, len(released)))
    return asked, _joined(data.x, data.labels if samples.labels is not None else None, data.n_classes)


def _pairs(d: int, generator: torch.Generator) -> Tensor:
    """Each of d columns by itself, then random pairs of two, (m, 2)."""
    alone = torch.arange(d)[:, None].expand(d, 2)[:MOST_QUERIES]
    every = torch.combinations(torch.arange(d)) if d <= 100 else torch.randint(d, (2 * MOST_QUERIES, 2), generator=generator)
    every = every[every[:, 0] != every[:, 1]]
    chosen = every[torch.randperm(len(every), generator=generator)[: max(0, MOST_QUERIES - d)]]
    return torch.cat([alone, chosen])


def _joined(x: Tensor, labels: Tensor | None, n_classes: int) -> Tensor:
    return x if labels is None else torch.cat([x, one_hot(labels.long(), n_classes).to(x.dtype)], 1)


def price(noise: float, relation: Relation) -> tuple[Planned, ...]:
    """The charge of one score with noise of this standard deviation, in records: the same for every m."""
    any_sum = Queries(torch.zeros(1, 2).long(), torch.zeros(1)).errors(torch.zeros(0, 1))
    return (Planned(gaussian_price(any_sum, require_positive("noise", noise), relation), NOTE),)


def score(release: Release, data: Any, curator: Curator, *, noise: float, seed: int) -> float:
    """Minus the mean error of a count, in records, with noise of this standard deviation, which is charged."""
    asked, values = queries(release, data, seed=seed)
    return -float(curator.gaussian(NOTE, asked.errors(values), noise)) / len(asked.shares)
