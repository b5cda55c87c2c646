"""Release the distributions of ordered columns under one ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpgen.facts import Fact, Said
from dpgen.privacy.curator import Curator
from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Ledger, Planned
from dpgen.privacy.mechanisms import Relation
from dpgen.progress import steps
from dpgen.statement import PrivacyStatement
from dpgen.systems.ordered.counts import MonotoneCounts, clamped_count, size_fact
from dpgen.systems.ordered.estimator import FACTS, OrderedEstimator, ranked
from dpgen.systems.ordered.histogram import LaplaceHistogram
from dpgen.systems.ordered.merr import MERR
from dpgen.systems.ordered.model import RECORDS, OrderedDistribution, PiecewiseCDF, piecewise_polynomial
from dpgen.systems.ordered.partition import PartitionCDF
from dpgen.systems.ordered.plan import CLAMP_SHARE, EPSILON, OrderedConfig, OrderedPlan
from dpgen.systems.plan import PrivateColumns

if TYPE_CHECKING:
    from dpgen.runtime import Runtime

_CLAMPED_NOTE = "number of clamped values"
_FACTOR_STEP, _ROUNDING = 1e-3, 1e-9


@dataclass(frozen=True)
class _Column:
    """One column's estimator and its shares of the budget, all of it public; `clamped` is None where nothing can be clamped."""

    name: str
    N: int
    estimator: OrderedEstimator
    epsilon: float
    delta: float
    clamped: float | None

    def planned(self, relation: Relation) -> list[Planned]:
        """Every charge of this column.

        Raises:
            ValueError: the estimator cannot serve this column's domain or budget.
        """
        counted = [] if self.clamped is None else [Planned(pure_event(self.clamped), _CLAMPED_NOTE)]
        try:
            return [*counted, *self.estimator.planned(self.N, relation)]
        except ValueError as error:
            raise ValueError(f"column {self.name!r}: {error}") from error


def ordered_estimator(
    config: OrderedConfig, epsilon: float, delta: float, size: int | None, *, rows: int = 1, always_used: bool = True
) -> OrderedEstimator:
    """The estimator of one column with this share of the budget and a public number of records, for the unit of a ledger.

    Raises:
        ValueError: the method needs delta > 0, or an option is out of its range.
    """
    common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "size": size, "rows": rows, "always_used": always_used}
    match config.method:
        case "partition":
            return PartitionCDF(**common)
        case "laplace":
            return LaplaceHistogram(**common)
    return MERR(**common, steps=config.steps)


def _columns(
    data: PrivateColumns, plan: OrderedPlan, config: OrderedConfig, ledger: Ledger, *, factor: float = 1.0
) -> list[_Column]:
    """Estimator and budget of each column, `factor` times its share of epsilon.

    Only public facts decide: names, domains, whether values may have been clamped.
    """
    size, found = None if ledger.keeps_size else plan.public_n, []
    kept, clamped = (1.0, None) if data.clamped is None else (1 - CLAMP_SHARE, CLAMP_SHARE)
    for name, (share, delta) in zip(data.values, plan.shares(len(data.values))):
        epsilon = factor * share
        try:
            estimator = ordered_estimator(config, kept * epsilon, delta, size, rows=ledger.rows, always_used=ledger.always_used)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error
        counted = None if clamped is None else clamped * epsilon
        found.append(_Column(name, data.domains[name].size, estimator, epsilon, delta, counted))
    return found


def _composed(data: PrivateColumns, plan: OrderedPlan, config: OrderedConfig, ledger: Ledger) -> list[_Column]:
    r"""The columns with the greatest common factor on their shares at which all releases together cost the budget.

    Shares that add up to epsilon cost less than it at delta > 0: Gaussian noise and zCDP compose better than their epsilons.
    The factor is a function of the plan alone, found by bisection in [1, k]; 1 where nothing is gained.
    """
    columns = _columns(data, plan, config, ledger)
    if not plan.resolved_delta or len(columns) == 1:
        return columns
    low, high = 1.0, min(float(len(columns)), EPSILON[1] / max(column.epsilon for column in columns))
    while high - low > _FACTOR_STEP:
        middle = (low + high) / 2
        tried = _columns(data, plan, config, ledger, factor=middle)
        if _cost(tried, plan) <= plan.epsilon * (1 - _ROUNDING):
            low, columns = middle, tried
        else:
            high = middle
    return columns


def _cost(columns: list[_Column], plan: OrderedPlan) -> float:
    """Epsilon of all releases of the columns at the plan's delta."""
    ledger = Ledger(None, delta=plan.resolved_delta, relation=plan.relation)
    ledger.declare([line for column in columns for line in column.planned(plan.relation)])
    return ledger.epsilon()


def fit(
    data: PrivateColumns, *, plan: OrderedPlan, config: OrderedConfig, curator: Curator, runtime: Runtime
) -> OrderedDistribution:
    """Release one distribution for each column, each with its share of the budget, see `_composed`.

    The plan of all columns is declared before any of them is looked at. Where values may have been clamped, 2 % of a
    column's epsilon release their noisy number.

    Raises:
        ValueError: choices that contradict each other, or that cannot serve these columns; nothing was charged then.
    """
    _require_public_n(data, plan, known=curator.keeps_size)
    columns = _composed(data, plan, config, curator.ledger)
    curator.declare(*(line for column in columns for line in column.planned(plan.relation)))
    cdfs, facts, split = {}, dict[str, Any](method=config.method), []
    for column in steps(columns, "columns"):
        name, N = column.name, column.N
        split.append(f"{name} eps {column.epsilon:.4g}, delta {column.delta:.3g}")
        if data.clamped is not None and column.clamped is not None:
            noisy = curator.laplace(_CLAMPED_NOTE, clamped_count(data.clamped[name]), column.clamped)
            facts[f"clamped values of {name}, noisy"] = max(0, int(noisy))
        counts = column.estimator.release(ranked(data.values[name], N=N), N=N, curator=curator)
        cdfs[name] = _density(counts, config)
        facts[RECORDS] = max(facts.get(RECORDS, 0), round(counts.counts[-1]))
    statement = PrivacyStatement.from_ledger(
        curator.ledger,
        facts=(
            *FACTS,
            _split(split),
            size_fact(plan.public_n, known=curator.keeps_size),
            *((Fact.NO_DEPENDENCE,) if len(columns) > 1 else ()),
        ),
    )
    return OrderedDistribution(cdfs, data.domains, statement=statement, notes=facts)


def _split(split: list[str]) -> Said:
    if len(split) == 1:
        return Fact.BUDGET_OF_A_COLUMN(split=split[0])
    return Fact.SPLIT_BUDGET(columns=len(split), split="; ".join(split))


def _require_public_n(data: PrivateColumns, plan: OrderedPlan, *, known: bool) -> None:
    """Refuse another public number of records than that of the data, where it is `known`."""
    n = len(next(iter(data.values.values())))
    if plan.public_n is not None and known and plan.public_n != n:
        raise ValueError(f"public_n is {plan.public_n}; under replace_one the number of records is public and is {n}")


def _density(counts: MonotoneCounts, config: OrderedConfig) -> PiecewiseCDF:
    if config.degree is None:
        return PiecewiseCDF.from_counts(counts)
    return piecewise_polynomial(counts, degree=config.degree, pieces=config.pieces)
