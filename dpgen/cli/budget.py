"""`dpgen budget FILE`: a budget that all runs on a data set pay from: who paid for what, and what is left.

dpgen budget census.budget --create --epsilon 3 --delta 1e-5
dpgen budget census.budget
"""

from pathlib import Path
from typing import Any

from dpgen.cli.main import Ended, OneLineParser, aligned
from dpgen.options import require_writable
from dpgen.privacy.ledger import Budget
from dpgen.privacy.shared_budget import Payment, SharedBudget, Spending
from dpgen.statement import guarantee, rounded_up

COLUMNS = ("time", "user", "model", "run", "id", "alone", "together")


def parser() -> OneLineParser:
    result = OneLineParser(
        "dpgen budget",
        description="A budget that all runs on a data set pay from: who paid, what is left. What a run would cost says "
        "dpgen train with --ledger FILE --dry_run.",
    )
    result.add_argument("file", type=Path, metavar="FILE", help="the budget; runs pay from it with --ledger FILE")
    result.add_argument("--create", action="store_true", help="make FILE, with")
    result.add_argument("--epsilon", type=float, help="its total in nats,")
    result.add_argument("--delta", type=float, default=1e-5, help="at this delta (default 1e-05),")
    result.add_argument("--relation", choices=["add_remove", "replace_one"], default="add_remove", help="of neighbouring data")
    result.add_argument("--unit", default="one record", help='that differ in this (default "one record")')
    result.add_argument("--release", metavar="RUN", help="give back what this run has reserved, which never committed")
    return result


def main(arguments: list[str]) -> Ended:
    """Make a budget, or show it."""
    options = parser().parse_args(arguments)
    file = options.file
    if options.create:
        if options.epsilon is None:
            raise ValueError("epsilon is missing; --create needs the total, as in --epsilon 3")
        require_writable(file, "file")
        total = Budget(options.epsilon, options.delta)
        shared = SharedBudget.create(file, total, relation=options.relation, unit=options.unit)
    elif options.epsilon is not None:
        raise ValueError(f"epsilon is {options.epsilon:g}; the total is fixed when a budget is made, with --create")
    elif not file.exists():
        raise ValueError(f"{str(file)!r} does not exist; dpgen budget {file} --create --epsilon E --delta D makes it")
    else:
        shared = SharedBudget(file)
        if options.release is not None:
            shared.give_back(options.release)
    spending = shared.spending()
    return Ended("\n".join([*_table(shared, spending), _left(spending)]), values=_values(shared, spending))


def _table(shared: SharedBudget, spending: Spending) -> list[str]:
    total = guarantee(spending.budget.epsilon, spending.budget.delta, spending.limits.relation, spending.unit)
    lines = [f"{shared.path.name}: {total} in all"]
    if not spending.kept:
        return [*lines, "nothing is paid for yet"]
    rows = [COLUMNS, *(_row(spending, number) for number, payment in enumerate(spending.payments) if not payment.returned)]
    meant = "alone: epsilon of the run, or of what it paid beyond its plan, by itself; together: with all above it"
    return [*lines, *aligned(rows), meant]


def _values(shared: SharedBudget, spending: Spending) -> dict[str, Any]:
    kept = [number for number, payment in enumerate(spending.payments) if not payment.returned]
    full = bool(spending.kept) and not spending.limits.fits(spending.total)
    return {
        "file": shared.path,
        "epsilon": spending.budget.epsilon,
        "delta": spending.budget.delta,
        "relation": spending.limits.relation,
        "unit": spending.unit,
        "spent": spending.budget.epsilon if full else spending.epsilon,
        "epsilon_left": 0.0 if full else spending.left,
        "share_left": 0.0 if full else max(0.0, 1 - spending.limits.share(spending.total)),
        "payments": [dict(zip(COLUMNS, _row(spending, number))) for number in kept],
    }


def _row(spending: Spending, number: int) -> tuple[str, ...]:
    payment = spending.payments[number]
    costs = (rounded_up(_alone(spending, payment)), rounded_up(spending.upto(number + 1).epsilon))
    identity = payment.run + ("" if payment.run in spending.standings else " (not committed)")
    return (payment.time, payment.user, payment.model, payment.directory, identity, *costs)


def _alone(spending: Spending, payment: Payment) -> float:
    """Epsilon of one payment: of the budget that its ledger enforces, unless it is an extra one or the plan needs less."""
    own = spending.budget if payment.budget is None else payment.budget
    return min(spending.limits.total_epsilon(payment.cost), own.epsilon, spending.budget.epsilon)


def _left(spending: Spending) -> str:
    total, spent = spending.budget.epsilon, spending.epsilon
    if spending.kept and not spending.limits.fits(spending.total):
        return f"paid for: epsilon {rounded_up(total)}, by one run that needs all of it: nothing is left"
    share = max(0.0, 1 - spending.limits.share(spending.total))
    return (
        f"paid for: epsilon {rounded_up(spent)} of {rounded_up(total)}; {100 * share:.3g} % of what the filter grants is left: "
        f"{spending.fitting}"
    )
