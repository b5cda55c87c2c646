"""Release the distributions of ordered columns under one ledger."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tqdm.auto import tqdm

from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.ordered.distribution import OrderedDistribution, PiecewiseCDF
from dpgen.systems.ordered.estimator import OrderedEstimator, sorted_values
from dpgen.systems.ordered.knots import MonotoneCounts
from dpgen.systems.ordered.ordered_options import CLAMP_SHARE, OrderedConfig, OrderedPlan
from dpgen.systems.ordered.piecewise import piecewise_polynomial
from dpgen.systems.ordered.sensitivities import size_l1
from dpgen.systems.private_data import PrivateColumns

ASSUMPTIONS = (
    "one person is one record, a row with one value in every column",
    "bounds, resolutions, categories, the method and its options were chosen without looking at the private records",
    "noise comes from AES-256-CTR under keys of the operating system; an adversary sees what is released, not memory or "
    "run time",
    "correlated Gaussian noise is floating point: noisy values are rounded to a grid, which removes the known attack on the "
    "low bits but is no proof; every other draw is exact to 2^-128 in total variation, which delta leaves out",
)
"""What the statement of a release of ordered columns rests on."""


def check(data: PrivateColumns, *, plan: OrderedPlan, config: OrderedConfig) -> None:
    """Refuse, before anything is charged, what these choices cannot do with these columns.

    Only what is public decides: the columns, their domains, and under replace-one the number of records.

    Raises:
        ValueError: naming the option, its value and what is allowed, in one line.
    """
    if config.published_noise and not plan.report_only:
        raise ValueError("published_noise is True and report_only False; set report_only: this noise ignores epsilon")
    n = len(next(iter(data.values.values())))
    if plan.public_n is not None and not size_l1(plan.relation) and plan.public_n != n:
        raise ValueError(f"public_n is {plan.public_n}; under replace_one the number of records is public and is {n}")
    for name, estimator in _estimators(data, plan, config):
        try:
            estimator.check(data.domains[name].size, plan.relation)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from error


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
        ValueError: see `check`; nothing was charged then.
        BudgetExceeded: an estimator costs more than the budget, as published noise does.
    """
    check(data, plan=plan, config=config)
    source, names = SecureSource(), list(data.values)
    cdfs, notes, split = {}, dict[str, Any](method=config.method), []
    for (name, estimator), (epsilon, delta) in _with_progress(
        list(_estimators(data, plan, config)), plan.shares(len(names)), shown=runtime.progress_bar
    ):
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
            _size_sentence(plan, ledger),
        ),
        not_covered=("columns are released one by one: dependence between columns is not modelled",) if len(names) > 1 else (),
    )
    return OrderedDistribution(cdfs, data.domains, statement=statement, notes=notes)


def _with_progress(
    estimators: Sequence[tuple[str, OrderedEstimator]], shares: Iterable[tuple[float, float]], *, shown: bool
) -> Iterator[tuple[tuple[str, OrderedEstimator], tuple[float, float]]]:
    bar = tqdm(estimators, desc="columns", disable=not shown, unit="column")
    yield from zip(bar, shares)
    bar.close()


def _noisy_clamped(count: int, epsilon: float, ledger: Ledger, source: SecureSource) -> int:
    """Replacing a record changes the number of clamped values by at most 1, like adding one."""
    ledger.charge(pure_event(epsilon), note="number of clamped values")
    return max(0, count + int(source.discrete_laplace(1, scale=1 / epsilon)))


def _density(counts: MonotoneCounts, config: OrderedConfig) -> PiecewiseCDF:
    if config.degree is None:
        return PiecewiseCDF.from_counts(counts)
    return piecewise_polynomial(counts, degree=config.degree, pieces=config.pieces)


def _size_sentence(plan: OrderedPlan, ledger: Ledger) -> str:
    if ledger.relation == "replace_one":
        return "the number of records is public: neighbouring data sets have equally many"
    if plan.public_n is not None:
        return f"the number of records, {plan.public_n}, was declared public"
    return "the number of records is private; where it is needed a noisy number was paid for"
