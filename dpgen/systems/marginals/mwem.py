"""MWEM: multiplicative weights with the exponential mechanism (Hardt, Ligett, McSherry 2012)."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.events import pure_event
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.noise import PublicRandomness
from dpgen.privacy.selection import ExponentialMechanism
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.marginals.model import JointModel, ProductMixture, binary_digits
from dpgen.systems.marginals.noisy_marginals import require_records, truncated
from dpgen.systems.marginals.plan import MWEMConfig, MWEMPlan
from dpgen.systems.plan import CHOSEN_BLIND, EXACT_INTEGERS, ONE_RECORD, SECURE_NOISE
from dpgen.systems.private_data import PrivateRecords

MOST_CELLS = 2**16
"""Most combinations of bits and label that are kept one by one."""

COUNT, TOTAL = "noisy number of records", "noisy total"
SELECTION, MEASUREMENT = "selection of a query", "measurement of a query"

ASSUMPTIONS = (ONE_RECORD, CHOSEN_BLIND, SECURE_NOISE, EXACT_INTEGERS)


def record_count(x: Tensor) -> BoundedSum:
    """The number of records; a replaced record does not move it, so under replace-one it is public and never asked for."""
    return BoundedSum(torch.tensor([len(x)]), 1.0, norm="l1")


@dataclass(frozen=True, eq=False)
class Answers:
    r"""What private records answer to the queries: whole numbers, PRIVATE.

    A query adds up what each record holds of it, a number in :math:`[0, \Delta]`. So a record that comes, goes or is replaced
    moves an answer by at most :math:`\Delta`, and the score :math:`|q(A) - q(B)|` as well, whatever the weights A are.

    Arguments:
        values: q(B) (m,), int64.
        sensitivity: Delta.
    """

    values: np.ndarray
    sensitivity: int

    def measured(self, query: int) -> BoundedSum:
        """One answer, for a noisy measurement."""
        own = torch.from_numpy(self.values[query : query + 1])
        return BoundedSum(own, float(self.sensitivity), "items", replaced=float(self.sensitivity), norm="l1")

    def selection(self, chosen: np.ndarray, estimates: np.ndarray, step: float) -> ExponentialMechanism:
        r"""A draw of one of the queries `chosen` (c,), the worse answered by `estimates` (m,) the likelier; it costs `step`.

        The weight is :math:`\exp(\epsilon_s |q(A) - q(B)| / (2 \Delta))`, exactly.
        """
        scores = np.abs(np.rint(estimates[chosen]).astype(np.int64) - self.values[chosen])
        return ExponentialMechanism(scores, Fraction(step) / (2 * self.sensitivity), self.sensitivity)


def multiplicative_weights(
    answers: Answers, weights: "Weights", *, rounds: int, step: float, curator: Curator, runtime: Runtime
) -> None:
    r"""T rounds: draw the query that is answered worst, measure it, let the weights learn it.

    A query is drawn among those not measured yet, and measured as :math:`q(B) + \text{Lap}_Z(\Delta / \epsilon_s)`; each is
    epsilon_s-DP.

    Arguments:
        answers: what the records say.
        weights: what answers the queries meanwhile.
        rounds: T, at most the number of queries.
        step: epsilon_s.
    """
    unmeasured = np.ones(len(answers.values), bool)
    for _ in runtime.progress(range(rounds), "MWEM"):
        chosen = np.flatnonzero(unmeasured)
        picked = curator.release(SELECTION, answers.selection(chosen, weights.answers(), step))
        query = int(chosen[picked[0]])
        unmeasured[query] = False
        weights.learn(query, float(curator.laplace(MEASUREMENT, answers.measured(query), step)))


def fit(
    data: PrivateRecords, *, plan: MWEMPlan, config: MWEMConfig, curator: Curator, runtime: Runtime
) -> ProductMixture | JointModel:
    """Release what MWEM learns about random sums over items, or about the marginals of a small table.

    On items the weights become independent probabilities of the columns: A_j / n with the noisy n.

    Raises:
        ValueError: bad records or labels, or too many columns for cells.
        BudgetExceeded: the ledger allows less than the plan; nothing was released.
    """
    require_records(data)
    d, k = data.x.shape[1], max(data.n_classes, 1)
    on_cells = config.domain == "cells" or (config.domain == "auto" and d <= 12 and k * 2**d <= MOST_CELLS)
    if on_cells and k * 2**d > MOST_CELLS:
        raise ValueError(f"domain='cells' allows {MOST_CELLS} combinations, {d} columns have {k * 2**d}; use domain='items'")
    weights = Cells(d, k, config) if on_cells else Items(d, config, PublicRandomness(runtime.seed))
    plan = replace(plan, rounds=min(plan.rounds, len(weights.queries)))  # no query is measured twice
    counted = curator.relation == "add_remove"
    notes = [*([COUNT] if counted else []), *([] if on_cells else [TOTAL])]  # on cells every record counts once
    share, step = plan.total_epsilon(max(1, len(notes))), plan.step_epsilon(len(notes))
    totals = [Planned(pure_event(share), note) for note in notes]
    curator.declare(*totals, *(Planned(pure_event(step), note, plan.rounds) for note in (SELECTION, MEASUREMENT)))
    size = max(1.0, float(curator.laplace(COUNT, record_count(data.x), share)) if counted else len(data.x))
    histogram = weights.histogram(data)
    total = size if on_cells else max(1.0, float(curator.laplace(TOTAL, weights.mass(histogram), share)))
    weights.start(total)
    answers = weights.asked(histogram)
    multiplicative_weights(answers, weights, rounds=plan.rounds, step=step, curator=curator, runtime=runtime)
    statement = PrivacyStatement.from_ledger(curator.ledger, assumptions=ASSUMPTIONS)
    if on_cells:
        return JointModel(
            torch.from_numpy(weights.weights / weights.weights.sum()),
            d=d,
            n_classes=data.n_classes,
            counts=torch.tensor([size], dtype=torch.float64),
            statement=statement,
            columns=data.columns,
        )
    # Labels take no part in sums over items: every class gets the same marginals and an equal share of the records.
    probabilities = torch.from_numpy(weights.weights / size).clamp(0.0, 1.0).expand(k, d).contiguous()
    counts = torch.full((k,), size / k, dtype=torch.float64)
    return ProductMixture(probabilities, counts, statement=statement, n_classes=data.n_classes, columns=data.columns)


class Weights(ABC):
    """Linear queries, and weights on cells that answer them and learn; it never sees records, but through `histogram`.

    Attributes:
        queries: (m, cells), 0 or 1.
        sensitivity: most that one record adds to a query.
        weights: (cells,), from `start` on.
    """

    queries: np.ndarray
    sensitivity: int
    replays: int

    @abstractmethod
    def histogram(self, records: PrivateRecords) -> np.ndarray:
        """Sums (cells,), int64, of private records."""

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
        """What the weights answer, (m,)."""
        return np.asarray(self.queries @ self.weights)

    def learn(self, query: int, value: float) -> None:
        """Multiply by exp(q (m - q(A)) / (2 n)) and normalise, over all measurements so far."""
        self.measured[query] = value
        for _ in range(1 + self.replays):
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
        self.sensitivity, self.replays, self._public = min(config.max_items, d), config.replays, public

    def histogram(self, records: PrivateRecords) -> np.ndarray:
        return truncated(records.x, self.sensitivity, self._public).sum(0, dtype=torch.int64).numpy()


class Cells(Weights):
    """One weight per combination of d bits and one of k labels; a query is one cell of a marginal of few columns."""

    def __init__(self, d: int, k: int, config: MWEMConfig) -> None:
        self.d, self.k = d, k
        values = binary_digits(torch.arange(2**d).repeat_interleave(k), d).numpy()
        columns = [*values.T, *([np.arange(k * 2**d) % k] if k > 1 else [])]
        rows = [
            np.logical_and.reduce([columns[c] == v for c, v in zip(chosen, point)])
            for way in range(1, min(config.ways, len(columns)) + 1)
            for chosen in combinations(range(len(columns)), way)
            for point in np.ndindex(*[k if c == d else 2 for c in chosen])
        ]
        self.queries, self.sensitivity, self.replays = np.array(rows, np.float32), 1, config.replays

    def histogram(self, records: PrivateRecords) -> np.ndarray:
        number = (records.x.long() << torch.arange(self.d - 1, -1, -1)).sum(1) * self.k
        cell = number + records.labels.long() if records.labels is not None and records.n_classes else number
        return torch.bincount(cell, minlength=self.k * 2**self.d).numpy()
