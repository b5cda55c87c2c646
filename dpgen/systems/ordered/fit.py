"""Release the distributions of ordered columns under one ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger, Planned
from dpgen.privacy.mechanisms import pure_event
from dpgen.statement import PrivacyStatement
from dpgen.systems.ordered.estimator import FACTS, LaplaceHistogram, OrderedEstimator, number_of, ranked
from dpgen.systems.ordered.merr import MERR
from dpgen.systems.ordered.model import RECORDS, OrderedDistribution, PiecewiseCDF, piecewise_polynomial
from dpgen.systems.ordered.partition import PartitionCDF
from dpgen.systems.ordered.plan import CLAMP_SHARE, EPSILON, OrderedConfig, OrderedPlan

if TYPE_CHECKING:
    from dpgen.data import Columns
    from dpgen.runtime import Runtime

_CLAMPED_NOTE = "number of clamped values"
_FACTOR_STEP, _ROUNDING = 1e-3, 1e-9


@dataclass(frozen=True)
class _Column:
    """One column's estimator, its share of epsilon and its charges; `clamped` is None where nothing can be clamped."""

    name: str
    N: int
    estimator: OrderedEstimator
    epsilon: float
    clamped: float | None
    planned: list[Planned]


def ordered_estimator(
    config: OrderedConfig, epsilon: float, delta: float, size: int | None, *, rows: int = 1, always_used: bool = True
) -> OrderedEstimator:
    """The estimator of one column with this share of the budget and a public number of records, for the unit of a ledger."""
    common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "size": size, "rows": rows, "always_used": always_used}
    match config.method:
        case "partition":
            return PartitionCDF(**common)
        case "laplace":
            return LaplaceHistogram(**common)
    return MERR(**common, steps=config.steps)


def _columns(data: Columns, plan: OrderedPlan, config: OrderedConfig, ledger: Ledger, *, factor: float = 1.0) -> list[_Column]:
    """Estimator and budget of each column, `factor` times its share of epsilon; only public facts decide."""
    size, found = None if ledger.keeps_size else plan.public_n, []
    share, delta = plan.share(len(data.values))
    share_of_clamped, epsilon = 0.0 if data.clamped is None else CLAMP_SHARE, factor * share
    for name in data.values:
        N = data.domains[name].size
        clamped = share_of_clamped * epsilon if share_of_clamped else None
        counted = [] if clamped is None else [Planned(pure_event(clamped), _CLAMPED_NOTE)]
        try:
            left = (1 - share_of_clamped) * epsilon
            estimator = ordered_estimator(config, left, delta, size, rows=ledger.rows, always_used=ledger.always_used)
            planned = [*counted, *estimator.planned(N, plan.relation)]
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error
        found.append(_Column(name, N, estimator, epsilon, clamped, planned))
    return found


def _composed(data: Columns, plan: OrderedPlan, config: OrderedConfig, ledger: Ledger) -> list[_Column]:
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
    ledger.declare([line for column in columns for line in column.planned])
    return ledger.epsilon()


def fit(data: Columns, *, plan: OrderedPlan, config: OrderedConfig, curator: Curator, runtime: Runtime) -> OrderedDistribution:
    """Release one distribution for each column, each with its share of the budget, see `_composed`.

    The plan of all columns is declared before any of them is looked at. Where values may have been clamped, 2 % of a
    column's epsilon release their noisy number. ValueError is raised before anything is charged.
    """
    n, known = len(next(iter(data.values.values()))), curator.keeps_size
    if plan.public_n is not None and known and plan.public_n != n:
        raise ValueError(f"public_n is {plan.public_n}; under replace_one the number of records is public and is {n}")
    columns = _composed(data, plan, config, curator.ledger)
    curator.declare(*(line for column in columns for line in column.planned))
    cdfs, notes, shares = {}, dict[str, Any](method=config.method), []
    for column in columns:
        name, N = column.name, column.N
        shares.append(f"{name} eps {column.epsilon:.4g}, delta {column.estimator.delta:.3g}")
        if data.clamped is not None and column.clamped is not None:
            noisy = curator.laplace(_CLAMPED_NOTE, number_of(data.clamped[name]), column.clamped)
            notes[f"clamped values of {name}, noisy"] = max(0, int(noisy))
        counts = column.estimator.release(ranked(data.values[name], N=N), N=N, curator=curator)
        if config.degree is None:
            cdfs[name] = PiecewiseCDF.from_counts(counts)
        else:
            cdfs[name] = piecewise_polynomial(counts, degree=config.degree, pieces=config.pieces)
        notes[RECORDS] = max(notes.get(RECORDS, 0), round(counts.counts[-1]))
    split = "; ".join(shares)
    several = (Fact.SPLIT_BUDGET(columns=len(columns), split=split), Fact.NO_DEPENDENCE)
    told = several if len(columns) > 1 else (Fact.BUDGET_OF_A_COLUMN(split=split),)
    size = Fact.NOISY_SIZE() if plan.public_n is None else Fact.PUBLIC_SIZE(n=plan.public_n)
    facts = (*FACTS, *told, Fact.KNOWN_SIZE() if known else size)
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=facts)
    return OrderedDistribution(cdfs, data.domains, statement=statement, notes=notes)
