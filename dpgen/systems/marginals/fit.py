"""Baselines on binary records: independent noisy marginals, and MWEM (Hardt, Ligett, McSherry 2012)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dpgen.facts import Fact
from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.exact_sums import BoundedSum, Each, totals
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.mechanisms import for_rows, pure_event, row_epsilon
from dpgen.privacy.noise import PublicRandomness
from dpgen.privacy.selection import ExponentialMechanism
from dpgen.progress import steps
from dpgen.statement import PrivacyStatement
from dpgen.systems.marginals.model import JointModel, ProductMixture, binary_digits
from dpgen.systems.marginals.plan import MWEMConfig, MWEMPlan
from dpgen.systems.plan import NoOptions, SumsPlan

if TYPE_CHECKING:
    from dpgen.data import Records
    from dpgen.data.stored import StreamedRecords
    from dpgen.runtime import Runtime

NOTE = "marginals"
FACTS = (Fact.ONE_RECORD, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.EXACT_INTEGERS)


def truncated(x: Tensor, max_items: int, public: PublicRandomness) -> Tensor:
    """Records (n, d) with at most `max_items` ones each: those that come first in a public random order of the columns.

    A function of each record alone, so one record still moves the sums by its own row.
    """
    order = torch.randperm(x.shape[1], generator=public.spawn("item order").generator)
    kept = [part[:, order] * (part[:, order].cumsum(1, dtype=torch.int32) <= max_items) for part in x.split(4096)]
    return torch.cat(kept)[:, order.argsort()].to(x.dtype)


def _weight(d: int) -> int:
    """w, what a record counts in the column of counts, beside d bits: about a tenth of their squared norm."""
    return max(1, round(math.sqrt(0.1 * d)))


def bit_sums(batches: Any, d: int, k: int) -> BoundedSum:
    r"""Sums (k, 1 + d) of batches of bits x (n, d) and rows (n,) in [0, k): a record adds :math:`(w, 2x - 1)` to its own row.

    The L2 norm of that is :math:`\sqrt{w^2 + d}`. A replaced record moves two rows by it, or one by at most
    :math:`2 \sqrt d`, where all bits are different.
    """
    weight = _weight(d)

    def added(parts: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
        total = torch.zeros(k, 1 + d, dtype=torch.int64)
        for x, row in parts:
            counts = torch.bincount(row, minlength=k)
            ones = torch.stack([x[row == c].sum(0, dtype=torch.int64) for c in range(k)])
            total += torch.cat([weight * counts[:, None], 2 * ones - counts[:, None]], 1).cpu()
        return total

    sensitivity, within = math.sqrt(weight**2 + d), 2 * math.sqrt(d)
    replaced = max(within, math.sqrt(2) * sensitivity) if k > 1 else within
    return BoundedSum(totals(batches, added), sensitivity, "ones", replaced=replaced)


def bit_probabilities(noisy: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities (k, d) and record counts (k,) from noisy `bit_sums` (k, 1 + d)."""
    noisy = noisy.double()
    counts = noisy[:, 0] / _weight(noisy.shape[1] - 1)
    mean = noisy[:, 1:] / counts.clamp_min(1.0)[:, None]
    return ((mean + 1) / 2).clamp(0.0, 1.0), counts


def fit_marginals(
    data: Records | StreamedRecords,
    *,
    plan: SumsPlan,
    config: NoOptions,
    curator: Curator,
    runtime: Runtime,
) -> ProductMixture:
    """Release noisy marginals, one row per class if there are labels.

    ValueError is raised for values other than 0 and 1, labels out of range, or a budget too small for any noise.
    """
    batches, d = records_of(data)
    k = max(data.n_classes, 1)
    nobody = bit_sums([], d, k)  # how far a record could move the sums is public
    sigma = calibrate_noise(
        lambda multiplier: gaussian_price(nobody, multiplier, curator.relation),
        Budget(plan.epsilon, plan.delta),
        relation=curator.relation,
    )
    curator.declare(Planned(gaussian_price(nobody, sigma, curator.relation), NOTE))

    def rows(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        return x, torch.zeros(len(x), dtype=torch.int64) if labels is None else labels.long()

    probabilities, counts = bit_probabilities(curator.gaussian(NOTE, bit_sums(Each(batches, rows), d, k), sigma))
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=FACTS)
    return ProductMixture(probabilities, counts, statement=statement, n_classes=data.n_classes, columns=data.columns)


def records_of(records: Records | StreamedRecords) -> tuple[Any, int]:
    """A source of batches of bits (b, d) and labels (b,) or None, for `totals`, and d; records in memory are checked here."""
    if hasattr(records, "stream"):
        return records.stream(labelled=records.n_classes > 0), records.d
    require_records(records)
    return [(records.x, records.labels if records.n_classes else None)], records.x.shape[1]


def require_records(records: Records) -> None:
    """The public schema of binary records: how many there are is private, and no reason to refuse them."""
    x, labels = records.x, records.labels
    if x.ndim != 2:
        raise ValueError(f"records have shape {tuple(x.shape)}; it must be (n, d)")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise ValueError("records must be finite, got NaN or infinite values")
    if not bool(((x == 0) | (x == 1)).all()):
        raise ValueError("records must be 0 or 1")
    if not records.n_classes:
        return
    if labels is None:
        raise ValueError(f"n_classes={records.n_classes} needs labels, got none")
    if labels.shape != (len(x),):
        raise ValueError(f"labels must have shape ({len(x)},), got {tuple(labels.shape)}")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < records.n_classes:
        raise ValueError(f"labels must be in [0, {records.n_classes}), got [{int(labels.min())}, {int(labels.max())}]")


MOST_CELLS = 2**16
"""Most combinations of bits and label that are kept one by one."""

_WAYS = 2  # columns of the marginals that are queries on cells, labels included
_REPLAYS = 10  # passes over all measurements after each round, for free
COUNT, TOTAL = "noisy number of records", "noisy total"
SELECTION, MEASUREMENT = "selection of a query", "measurement of a query"


def record_count(batches: Any) -> BoundedSum:
    """The number of records of a source; it is never asked for where all neighbours have as many, for it is public there."""
    count = totals(batches, lambda parts: torch.tensor([sum(len(x) for x, _ in parts)]))
    return BoundedSum(count, 1.0, norm="l1")


@dataclass(frozen=True, eq=False)
class Answers:
    r"""Answers of private records to the queries: whole numbers, PRIVATE.

    A query adds up what each record holds of it, a number in :math:`[0, \Delta]`. So a record that comes, goes or is replaced
    moves an answer by at most :math:`\Delta`, and the score :math:`|q(A) - q(B)|` as well, whatever the weights A are.
    """

    values: np.ndarray  # q(B) (m,), int64
    sensitivity: int  # Delta

    def measured(self, query: int) -> BoundedSum:
        """One answer, for a noisy measurement."""
        own = torch.from_numpy(self.values[query : query + 1])
        return BoundedSum(own, float(self.sensitivity), "items", replaced=float(self.sensitivity), norm="l1")

    def selection(self, chosen: np.ndarray, estimates: np.ndarray, step: float) -> ExponentialMechanism:
        r"""A draw of one of the queries `chosen` (c,), the worse answered by `estimates` (m,) the likelier; it costs `step`.

        The weight is :math:`\exp(\epsilon_s |q(A) - q(B)| / (2 \Delta))`, exactly.
        """
        scores = np.abs(np.rint(estimates[chosen]).astype(np.int64) - self.values[chosen])
        return ExponentialMechanism.pure(scores, Fraction(step) / (2 * self.sensitivity), self.sensitivity)


def multiplicative_weights(answers: Answers, weights: Weights, *, rounds: int, step: float, curator: Curator) -> None:
    r"""T rounds: draw the query that is answered worst, measure it, let the weights learn it.

    A query is drawn among those not measured yet, and measured as :math:`q(B) + \text{Lap}_Z(\Delta / \epsilon_s)`; each is
    epsilon_s-DP.
    """
    unmeasured = np.ones(len(answers.values), bool)
    for _ in steps(range(rounds), "rounds"):
        chosen = np.flatnonzero(unmeasured)
        selection = answers.selection(chosen, weights.answers(), row_epsilon(step, curator.rows))
        picked = curator.release(SELECTION, selection)
        query = int(chosen[picked[0]])
        unmeasured[query] = False
        weights.learn(query, float(curator.laplace(MEASUREMENT, answers.measured(query), step)))


def fit_mwem(
    data: Records | StreamedRecords, *, plan: MWEMPlan, config: MWEMConfig, curator: Curator, runtime: Runtime
) -> ProductMixture | JointModel:
    """Release what MWEM learns about random sums over items, or about the marginals of a small table.

    On items the weights become independent probabilities of the columns: A_j / n with the noisy n. ValueError is raised for bad
    records or labels, or too many columns for cells.
    """
    batches, d = records_of(data)
    k = max(data.n_classes, 1)
    weights = _weights(config, d, k, runtime.seed)
    on_cells = isinstance(weights, Cells)
    plan = replace(plan, rounds=min(plan.rounds, len(weights.queries)))  # no query is measured twice
    counted = not curator.keeps_size
    notes = [*([COUNT] if counted else []), *([] if on_cells else [TOTAL])]  # on cells every record counts once
    share, step = plan.total_epsilon(max(1, len(notes))), plan.step_epsilon(len(notes))
    totals = [Planned(pure_event(share), note) for note in notes]
    chosen = for_rows(pure_event(row_epsilon(step, curator.rows)), curator.rows)
    curator.declare(*totals, *(Planned(e, n, plan.rounds) for e, n in ((chosen, SELECTION), (pure_event(step), MEASUREMENT))))
    count = record_count(batches)
    size = max(1.0, float(curator.laplace(COUNT, count, share)) if counted else int(count.values))
    histogram = weights.histogram(batches)
    total = size if on_cells else max(1.0, float(curator.laplace(TOTAL, weights.mass(histogram), share)))
    weights.start(total)
    answers = weights.asked(histogram)
    multiplicative_weights(answers, weights, rounds=plan.rounds, step=step, curator=curator)
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=FACTS)
    if on_cells:
        cells = torch.from_numpy(weights.weights / weights.weights.sum())
        counts = torch.tensor([size], dtype=torch.float64)
        about: dict[str, Any] = {"n_classes": data.n_classes, "statement": statement, "columns": data.columns}
        return JointModel(cells, d=d, counts=counts, **about)
    # Labels take no part in sums over items: every class gets the same marginals and an equal share of the records.
    probabilities = torch.from_numpy(weights.weights / size).clamp(0.0, 1.0).expand(k, d).contiguous()
    counts = torch.full((k,), size / k, dtype=torch.float64)
    return ProductMixture(probabilities, counts, statement=statement, n_classes=data.n_classes, columns=data.columns)


def _weights(config: MWEMConfig, d: int, k: int, seed: int) -> Weights:
    """Weights of the cells of a small table of k classes, or of the items of another one."""
    on_cells = config.domain == "cells" or (config.domain == "auto" and d <= 12 and k * 2**d <= MOST_CELLS)
    if on_cells and k * 2**d > MOST_CELLS:
        raise ValueError(f"domain='cells' allows {MOST_CELLS} combinations, {d} columns have {k * 2**d}; use domain='items'")
    return Cells(d, k) if on_cells else Items(d, config, PublicRandomness(seed))


class Weights(ABC):
    """Linear queries (m, cells) of 0 and 1, and weights (cells,) that answer them and learn, from `start` on.

    It never sees records, but through `histogram`; `sensitivity` is the most that one record adds to a query.
    """

    queries: np.ndarray
    sensitivity: int

    @abstractmethod
    def added(self, x: Tensor, labels: Tensor | None) -> Tensor:
        """Sums (cells,), int64, of records (b, d) and their labels."""

    def histogram(self, batches: Any) -> np.ndarray:
        """Sums (cells,), int64, of a source of private records."""
        cells = self.queries.shape[1]
        nobody = torch.zeros(cells, dtype=torch.int64)
        return totals(batches, lambda parts: sum((self.added(*part) for part in parts), nobody)).numpy()

    def mass(self, histogram: np.ndarray) -> BoundedSum:
        """The sum over all cells: one more query, which one record moves by no more than the others."""
        total = torch.tensor([int(histogram.sum())])
        return BoundedSum(total, float(self.sensitivity), "items", replaced=float(self.sensitivity), norm="l1")

    def asked(self, histogram: np.ndarray) -> Answers:
        """The answers of the records; sums of whole numbers below 2^53 are exact in float64, in any order."""
        return Answers((self.queries.astype(np.float64) @ histogram).astype(np.int64), self.sensitivity)

    def start(self, total: float) -> None:
        """Equal weights that sum to `total`."""
        cells = self.queries.shape[1]
        self.weights = np.full(cells, total / cells)
        self.total = total
        self.measured: dict[int, float] = {}

    def answers(self) -> np.ndarray:
        """Answers (m,) of the weights."""
        return np.asarray(self.queries @ self.weights)

    def learn(self, query: int, value: float) -> None:
        """Multiply by exp(q (m - q(A)) / (2 n)) and normalise, over all measurements so far."""
        self.measured[query] = value
        for _ in range(1 + _REPLAYS):
            for q, m in self.measured.items():
                cells = self.queries[q].astype(bool)
                error = m - self.weights[cells].sum()
                self.weights[cells] *= math.exp(max(-30.0, min(30.0, error / (2 * self.total))))
                self.weights *= self.total / self.weights.sum()


class Items(Weights):
    """One weight per column; a query sums a random set of columns over records of at most `max_items` ones."""

    def __init__(self, d: int, config: MWEMConfig, public: PublicRandomness) -> None:
        generator = public.spawn("queries").generator
        longest = min(config.longest or d, d)
        lengths = [
            1 + int(torch.randint(max(1, longest * (i % 5 + 1) // 5), (1,), generator=generator)) for i in range(config.queries)
        ]
        self.queries = np.zeros((config.queries, d), bool)
        for row, length in zip(self.queries, lengths):
            row[torch.randperm(d, generator=generator)[:length].numpy()] = True
        self.sensitivity, self._public = min(config.max_items, d), public

    def added(self, x: Tensor, labels: Tensor | None) -> Tensor:
        return truncated(x, self.sensitivity, self._public).sum(0, dtype=torch.int64)


class Cells(Weights):
    """One weight per combination of d bits and one of k labels; a query is one cell of a marginal of few columns."""

    def __init__(self, d: int, k: int) -> None:
        self.d, self.k = d, k
        values = binary_digits(torch.arange(2**d).repeat_interleave(k), d).numpy()
        columns = [*values.T, *([np.arange(k * 2**d) % k] if k > 1 else [])]
        rows = [
            np.logical_and.reduce([columns[c] == v for c, v in zip(chosen, point)])
            for way in range(1, min(_WAYS, len(columns)) + 1)
            for chosen in combinations(range(len(columns)), way)
            for point in np.ndindex(*[k if c == d else 2 for c in chosen])
        ]
        self.queries, self.sensitivity = np.array(rows, np.float32), 1

    def added(self, x: Tensor, labels: Tensor | None) -> Tensor:
        number = (x.long() << torch.arange(self.d - 1, -1, -1)).sum(1) * self.k
        cell = number if labels is None else number + labels.long()
        return torch.bincount(cell, minlength=self.k * 2**self.d)
