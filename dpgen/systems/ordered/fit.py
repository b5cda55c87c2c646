"""Release the distributions of ordered columns under one ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpgen.facts import Fact, Said
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger, Planned
from dpgen.privacy.mechanisms import pure_event
from dpgen.statement import PrivacyStatement
from dpgen.systems.ordered.estimator import FACTS, MERR, LaplaceHistogram, OrderedEstimator, number_of, ranked
from dpgen.systems.ordered.model import RECORDS, OrderedDistribution, PiecewiseCDF, piecewise_polynomial
from dpgen.systems.ordered.plan import CLAMP_SHARE, EPSILON, OrderedConfig, OrderedPlan

if TYPE_CHECKING:
    from dpgen.data import Columns
    from dpgen.runtime import Runtime

_CLAMPED_NOTE = "number of clamped values"
_FACTOR_STEP, _ROUNDING = 1e-3, 1e-9


@dataclass(frozen=True)
class _Share:
    """Share of each column: an estimator, epsilon, and the part of it for the number of clamped values, or 0.

    `planned` are the charges of all columns.
    """

    estimator: OrderedEstimator
    epsilon: float
    clamped: float
    planned: list[Planned]


def ordered_estimator(
    config: OrderedConfig, epsilon: float, delta: float, size: int | None, *, rows: int = 1, always_used: bool = True
) -> OrderedEstimator:
    """The estimator of one column with this share of the budget and a public number of records, for the unit of a ledger."""
    common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "size": size, "rows": rows, "always_used": always_used}
    match config.method:
        case "partition":
            from dpgen.systems.ordered.partition import PartitionCDF  # the others do without

            return PartitionCDF(**common)
        case "laplace":
            return LaplaceHistogram(**common)
    return MERR(**common, steps=config.steps)


def _share(data: Columns, plan: OrderedPlan, config: OrderedConfig, ledger: Ledger, *, factor: float = 1.0) -> _Share:
    """The share of each column for `factor` times its share of epsilon; only public facts decide."""
    share, delta = plan.share(len(data.values))
    size, part = None if ledger.keeps_size else plan.public_n, 0.0 if data.clamped is None else CLAMP_SHARE
    epsilon = factor * share
    left, clamped = (1 - part) * epsilon, part * epsilon
    estimator = ordered_estimator(config, left, delta, size, rows=ledger.rows, always_used=ledger.always_used)
    planned: list[Planned] = []
    for name in data.values:
        planned += [Planned(pure_event(clamped), _CLAMPED_NOTE)] if clamped else []
        try:
            planned += estimator.planned(data.domains[name].size, plan.relation)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error
    return _Share(estimator, epsilon, clamped, planned)


def _composed(data: Columns, plan: OrderedPlan, config: OrderedConfig, ledger: Ledger) -> _Share:
    r"""The greatest common factor on the shares at which all releases together cost the budget.

    Shares that add up to epsilon cost less than it at delta > 0: Gaussian noise and zCDP compose better than their epsilons.
    The factor is a function of the plan alone, found by bisection in [1, k]; 1 where nothing is gained.
    """
    found, k = _share(data, plan, config, ledger), len(data.values)
    if not plan.resolved_delta or k == 1:
        return found
    low, high = 1.0, min(float(k), EPSILON[1] / found.epsilon)
    while high - low > _FACTOR_STEP:
        middle = (low + high) / 2
        tried = _share(data, plan, config, ledger, factor=middle)
        whole = Ledger(None, delta=plan.resolved_delta, relation=plan.relation)
        whole.declare(tried.planned)
        if whole.epsilon() <= plan.epsilon * (1 - _ROUNDING):
            low, found = middle, tried
        else:
            high = middle
    return found


def _of_size(plan: OrderedPlan, known: bool) -> Said:
    """The fact on the number of records, which neighbours share where it is `known`."""
    if known:
        return Fact.KNOWN_SIZE()
    return Fact.NOISY_SIZE() if plan.public_n is None else Fact.PUBLIC_SIZE(n=plan.public_n)


def fit(data: Columns, *, plan: OrderedPlan, config: OrderedConfig, curator: Curator, runtime: Runtime) -> OrderedDistribution:
    """Release one distribution for each column, each with its share of the budget, see `_composed`.

    The plan of all columns is declared before any of them is looked at. Where values may have been clamped, 2 % of a
    column's epsilon release their noisy number. ValueError is raised before anything is charged.
    """
    n, known = len(next(iter(data.values.values()))), curator.keeps_size
    if plan.public_n is not None and known and plan.public_n != n:
        raise ValueError(f"public_n is {plan.public_n}; under replace_one the number of records is public and is {n}")
    own = _composed(data, plan, config, curator.ledger)
    curator.declare(*own.planned)
    cdfs, notes = {}, dict[str, Any](method=config.method)
    for name, values in data.values.items():
        N = data.domains[name].size
        if data.clamped is not None:
            noisy = curator.laplace(_CLAMPED_NOTE, number_of(data.clamped[name]), own.clamped)
            notes[f"clamped values of {name}, noisy"] = max(0, int(noisy))
        counts = own.estimator.release(ranked(values, N=N), N=N, curator=curator)
        degree = config.degree
        cdfs[name] = PiecewiseCDF.from_counts(counts) if degree is None else piecewise_polynomial(counts, degree=degree)
        notes[RECORDS] = max(notes.get(RECORDS, 0), round(counts.counts[-1]))
    split = "; ".join(f"{name} eps {own.epsilon:.4g}, delta {own.estimator.delta:.3g}" for name in cdfs)
    several = (Fact.SPLIT_BUDGET(columns=len(cdfs), split=split), Fact.NO_DEPENDENCE)
    told = several if len(cdfs) > 1 else (Fact.BUDGET_OF_A_COLUMN(split=split),)
    facts = (*FACTS, *told, _of_size(plan, known))
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=facts)
    return OrderedDistribution(cdfs, data.domains, statement=statement, notes=notes)
