"""Release the distributions of ordered columns under one ledger."""

from collections.abc import Iterator
from typing import Any

from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.ordered.distribution import OrderedDistribution, PiecewiseCDF
from dpgen.systems.ordered.estimator import ASSUMPTIONS, OrderedEstimator, sorted_values
from dpgen.systems.ordered.knots import MonotoneCounts
from dpgen.systems.ordered.ordered_options import CLAMP_SHARE, OrderedConfig, OrderedPlan
from dpgen.systems.ordered.piecewise import piecewise_polynomial
from dpgen.systems.ordered.record_count import size_sentence
from dpgen.systems.ordered.sensitivities import size_l1
from dpgen.systems.private_data import PrivateColumns


def _estimators(data: PrivateColumns, plan: OrderedPlan, config: OrderedConfig) -> Iterator[tuple[str, OrderedEstimator]]:
    size = plan.public_n if size_l1(plan.relation) else None
    kept = 1.0 if data.clamped is None else 1 - CLAMP_SHARE
    for name, (epsilon, delta) in zip(data.values, plan.shares(len(data.values))):
        try:
            yield name, config.estimator(kept * epsilon, delta, size)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error


def fit(
    data: PrivateColumns, *, plan: OrderedPlan, config: OrderedConfig, ledger: Ledger, runtime: Runtime
) -> OrderedDistribution:
    """Release one distribution for each column, each with its share of the budget.

    Where values may have been clamped, 2 % of a column's epsilon release their noisy number.

    Raises:
        ValueError: what these choices cannot do with these columns; nothing was charged then.
        BudgetExceeded: an estimator costs more than the budget, as published noise does.
    """
    _require_possible(data, plan, config)
    source, names = SecureSource(), list(data.values)
    cdfs, notes, split = {}, dict[str, Any](method=config.method), []
    estimators = list(zip(_estimators(data, plan, config), plan.shares(len(names))))
    for (name, estimator), (epsilon, delta) in runtime.progress(estimators, "columns"):
        split.append(f"{name} eps {epsilon:.4g}, delta {delta:.3g}")
        if data.clamped is not None:
            spent = CLAMP_SHARE * epsilon
            notes[f"clamped values of {name}, noisy"] = _noisy_clamped(data.clamped[name], spent, ledger, source)
        N = data.domains[name].size
        counts = estimator.fit_counts(sorted_values(data.values[name], N=N), N=N, ledger=ledger, source=source)
        cdfs[name] = _density(counts, config)
    statement = PrivacyStatement.from_ledger(
        ledger,
        assumptions=(
            *ASSUMPTIONS,
            f"the budget was split over {len(names)} column{'s' if len(names) > 1 else ''}: {'; '.join(split)}",
            size_sentence(plan.public_n, ledger.relation),
        ),
        not_covered=("columns are released one by one: dependence between columns is not modelled",) if len(names) > 1 else (),
    )
    return OrderedDistribution(cdfs, data.domains, statement=statement, notes=notes)


def _require_possible(data: PrivateColumns, plan: OrderedPlan, config: OrderedConfig) -> None:
    """Choices that these columns allow; only what is public decides: domains, and under replace-one the number of records."""
    if config.published_noise and not plan.report_only:
        raise ValueError("published_noise is True and report_only False; set report_only: this noise ignores epsilon")
    n = len(next(iter(data.values.values())))
    if plan.public_n is not None and not size_l1(plan.relation) and plan.public_n != n:
        raise ValueError(f"public_n is {plan.public_n}; under replace_one the number of records is public and is {n}")
    for name, estimator in _estimators(data, plan, config):
        try:
            estimator.require_domain(data.domains[name].size, plan.relation)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error


def _noisy_clamped(count: int, epsilon: float, ledger: Ledger, source: SecureSource) -> int:
    """Replacing a record changes the number of clamped values by at most 1, like adding one."""
    ledger.charge(pure_event(epsilon), note="number of clamped values")
    return max(0, count + int(source.discrete_laplace(1, scale=1 / epsilon)))


def _density(counts: MonotoneCounts, config: OrderedConfig) -> PiecewiseCDF:
    if config.degree is None:
        return PiecewiseCDF.from_counts(counts)
    return piecewise_polynomial(counts, degree=config.degree, pieces=config.pieces)
