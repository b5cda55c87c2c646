"""MWEM: multiplicative weights with the exponential mechanism (Hardt, Ligett, McSherry 2012)."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch
from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from dpgen.privacy.accountants import Relation, epsilon
from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.limits import require_whole
from dpgen.privacy.noise import PublicRandomness, SecureSource
from dpgen.privacy.selection import exponential_mechanism
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.assumptions import CHOSEN_BLIND, EXACT_INTEGERS, ONE_RECORD, SECURE_NOISE
from dpgen.systems.marginals.joint_model import JointModel, binary_digits
from dpgen.systems.marginals.noisy_marginals import require_records, truncated
from dpgen.systems.marginals.product_mixture import ProductMixture
from dpgen.systems.plan import Plan
from dpgen.systems.private_data import PrivateRecords

MOST_CELLS = 2**16
"""Most combinations of bits and label that are kept one by one."""

ASSUMPTIONS = (ONE_RECORD, CHOSEN_BLIND, SECURE_NOISE, EXACT_INTEGERS)


@dataclass(frozen=True, kw_only=True)
class MWEMPlan(Plan):
    r"""What MWEM may spend: noisy totals, then T rounds of one selection and one measurement of equal cost.

    With delta = 0 a round costs :math:`.95\,\epsilon / T` and the totals the rest, as in the paper; with delta > 0 the same
    pure mechanisms are composed by the accountant, which leaves each of them more.

    Arguments:
        epsilon: budget in nats.
        delta: of the guarantee, in [0, 1).
        relation: neighbouring relation; every query is a sum of contributions in [0, max_items], so that both relations
            have the same sensitivity.
        rounds: T.
        total_share: share of epsilon for the noisy totals, in (0, 1).

    Source: Hardt, Ligett, McSherry 2012, Figure 1; 50 rounds as in Acs et al. 2017, section IV.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    relation: Relation = "add_remove"
    rounds: int = 50
    total_share: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("rounds", self.rounds)
        if not 0 < self.total_share < 1:
            raise ValueError(f"total_share must be in (0, 1), got {self.total_share}")

    @property
    def total_epsilon(self) -> float:
        """Cost of the noisy number of records, and again of the noisy mass."""
        return self.total_share * self.epsilon / 2

    def event(self, step: float) -> DpEvent:
        """Everything that is released when a selection or a measurement costs `step`."""
        totals = SelfComposedDpEvent(pure_event(self.total_epsilon), 2)
        return ComposedDpEvent([totals, SelfComposedDpEvent(pure_event(step), 2 * self.rounds)])

    @property
    def step_epsilon(self) -> float:
        """The largest cost of one selection, and of one measurement, with which the run fits the budget."""
        low = (1 - self.total_share) * self.epsilon / (2 * self.rounds) * (1 - 1e-12)
        if not self.delta:
            return low
        high = self.epsilon
        while high / low > 1 + 1e-4:
            middle = math.sqrt(low * high)
            fits = epsilon(self.event(middle), self.delta, relation=self.relation) <= self.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return low


@dataclass(frozen=True, kw_only=True)
class MWEMConfig:
    """Public choices of MWEM.

    Arguments:
        domain: "items" keeps one weight per column and answers sums over columns, as Acs et al. 2017 used MWEM; "cells"
            keeps one weight for every combination of bits and label, at most 65,536; "auto": cells up to 12 columns.
        max_items: largest number of ones of a record that count, the sensitivity of a query on items; of more, those
            that come first in a public random order of the columns. Ignored on cells, where a record counts once.
        queries: number of random queries on items (five length classes up to `longest`).
        longest: longest query on items, in columns; None: all of them.
        ways: queries on cells are all marginals of up to this many columns, labels included.
        replays: passes over all measurements after each round, for free.
    """

    domain: Literal["auto", "items", "cells"] = "auto"
    max_items: int = 12
    queries: int = 1000
    longest: int | None = None
    ways: int = 2
    replays: int = 10

    def __post_init__(self) -> None:
        for name in ("max_items", "queries", "ways"):
            require_whole(name, getattr(self, name))
        require_whole("replays", self.replays, 0)
        if self.longest is not None:
            require_whole("longest", self.longest)


def selection_weights(scores: np.ndarray, step: float, sensitivity: int) -> list[Fraction]:
    r"""Exact log-weights :math:`\epsilon_s s / (2 \Delta)` of whole scores (m,), each of which moves by at most Delta."""
    slope = Fraction(step) / (2 * sensitivity)
    return [int(score) * slope for score in scores]


def _select(source: SecureSource, weights: list[Fraction]) -> int:
    ceilings = np.array([float(weight) for weight in weights])
    return exponential_mechanism(source, np.ones(len(weights), np.uint64), ceilings, lambda block, _: weights[block])[0]


def multiplicative_weights(
    truth: np.ndarray,
    answer: Any,
    update: Any,
    *,
    plan: MWEMPlan,
    sensitivity: int,
    ledger: Ledger,
    source: SecureSource,
    runtime: Runtime,
) -> None:
    r"""T rounds: draw the query that is answered worst, measure it, let the weights learn it.

    A query is drawn with probability proportional to :math:`\exp(\epsilon_s |q(A) - q(B)| / (2 \Delta))` among those not
    measured yet, and measured as :math:`q(B) + \text{Lap}_Z(\Delta / \epsilon_s)`; each is epsilon_s-DP.

    Arguments:
        truth: q(B), (m,) integers.
        answer: function that returns q(A) of all queries, (m,).
        update: function (query, measured value) that moves the weights.
        sensitivity: Delta, the most that one record changes any query.
    """
    step, open_queries = plan.step_epsilon, np.ones(len(truth), bool)
    for _ in runtime.progress(range(plan.rounds), "MWEM"):
        chosen = np.flatnonzero(open_queries)
        weights = selection_weights(np.abs(np.rint(answer()[chosen]) - truth[chosen]), step, sensitivity)
        ledger.charge(pure_event(step), note="selection of a query")
        picked = _select(source, weights)
        query = int(chosen[picked])
        ledger.charge(pure_event(step), note="measurement of a query")
        noise = source.discrete_laplace(1, scale=sensitivity / step)
        open_queries[query] = False
        update(query, int(truth[query]) + int(noise))


def fit(
    data: PrivateRecords, *, plan: MWEMPlan, config: MWEMConfig, ledger: Ledger, runtime: Runtime
) -> ProductMixture | JointModel:
    """Release what MWEM learns about random sums over items, or about the marginals of a small table.

    On items the weights become independent probabilities of the columns: A_j / n with the noisy n.

    Raises:
        ValueError: bad records or labels, or too many columns for cells.
    """
    require_records(data)
    d, k = data.x.shape[1], max(data.n_classes, 1)
    on_cells = config.domain == "cells" or (config.domain == "auto" and d <= 12 and k * 2**d <= MOST_CELLS)
    if on_cells and k * 2**d > MOST_CELLS:
        raise ValueError(f"domain='cells' allows {MOST_CELLS} combinations, {d} columns have {k * 2**d}; use domain='items'")
    run = _Cells(data, config) if on_cells else _Items(data, config, PublicRandomness(runtime.seed))
    source = SecureSource()
    totals = []
    for value, most, note in ((len(data.x), 1, "number of records"), (int(run.histogram.sum()), run.sensitivity, "total")):
        ledger.charge(pure_event(plan.total_epsilon), note=f"noisy {note}")
        totals.append(max(1.0, value + float(source.discrete_laplace(1, scale=most / plan.total_epsilon))))
    run.start(totals[1])
    plan = replace(plan, rounds=min(plan.rounds, len(run.truth)))  # no query is measured twice
    multiplicative_weights(
        run.truth,
        run.answers,
        run.learn,
        plan=plan,
        sensitivity=run.sensitivity,
        ledger=ledger,
        source=source,
        runtime=runtime,
    )
    statement = PrivacyStatement.from_ledger(ledger, assumptions=ASSUMPTIONS)
    if on_cells:
        return JointModel(
            torch.from_numpy(run.weights / run.weights.sum()),
            d=d,
            n_classes=data.n_classes,
            counts=torch.tensor([totals[0]], dtype=torch.float64),
            statement=statement,
            columns=data.columns,
        )
    # Labels take no part in sums over items: every class gets the same marginals and an equal share of the records.
    probabilities = torch.from_numpy(run.weights / totals[0]).clamp(0.0, 1.0).expand(k, d).contiguous()
    counts = torch.full((k,), totals[0] / k, dtype=torch.float64)
    return ProductMixture(probabilities, counts, statement=statement, n_classes=data.n_classes, columns=data.columns)


class _Weights:
    """A histogram, linear queries on it, and weights that learn their answers."""

    histogram: np.ndarray
    queries: np.ndarray  # (m, cells) bool
    sensitivity: int
    replays: int

    def start(self, total: float) -> None:
        self.weights = np.full(len(self.histogram), total / len(self.histogram))
        self.total = total
        self.truth = (self.queries.astype(np.float64) @ self.histogram).astype(np.int64)
        self.measured: dict[int, float] = {}

    def answers(self) -> np.ndarray:
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


class _Items(_Weights):
    """One weight per column; a query sums a random set of columns."""

    def __init__(self, records: PrivateRecords, config: MWEMConfig, public: PublicRandomness) -> None:
        x = truncated(records.x, config.max_items, public)
        d, generator = x.shape[1], public.spawn("queries").generator
        self.histogram = x.sum(0, dtype=torch.int64).numpy()
        longest = min(config.longest or d, d)
        lengths = [
            1 + int(torch.randint(max(1, longest * (i % 5 + 1) // 5), (1,), generator=generator)) for i in range(config.queries)
        ]
        self.queries = np.zeros((config.queries, d), bool)
        for row, length in zip(self.queries, lengths):
            row[torch.randperm(d, generator=generator)[:length].numpy()] = True
        self.sensitivity, self.replays = min(config.max_items, d), config.replays


class _Cells(_Weights):
    """One weight per combination of bits and label; a query is one cell of a marginal of few columns."""

    def __init__(self, records: PrivateRecords, config: MWEMConfig) -> None:
        d, k = records.x.shape[1], max(records.n_classes, 1)
        number = (records.x.long() << torch.arange(d - 1, -1, -1)).sum(1) * k
        cell = number + records.labels.long() if records.labels is not None and records.n_classes else number
        self.histogram = torch.bincount(cell, minlength=k * 2**d).numpy()
        values = binary_digits(torch.arange(2**d).repeat_interleave(k), d).numpy()
        columns = [*values.T, *([np.arange(k * 2**d) % k] if k > 1 else [])]
        rows = [
            np.logical_and.reduce([columns[c] == v for c, v in zip(chosen, point)])
            for way in range(1, min(config.ways, len(columns)) + 1)
            for chosen in combinations(range(len(columns)), way)
            for point in np.ndindex(*[k if c == d else 2 for c in chosen])
        ]
        self.queries, self.sensitivity, self.replays = np.array(rows, np.float32), 1, config.replays
