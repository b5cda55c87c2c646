"""`dpgen budget FILE`: a budget that all runs on a data set pay from: who paid for what, and what is left.

dpgen budget census.budget --create --epsilon 10 --delta 1e-5 --runs 30
dpgen budget clinic.budget --create --epsilon 10 --delta 1e-5 --unit patient --max_contributions 5
dpgen budget census.budget
dpgen budget --dp_sgd --n 60000 --batch 600 --epochs 10 --noise 1.0 --delta 1e-5
"""

import argparse
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgen.cli.main import Ended, OneLineParser, aligned
from dpgen.options import require_writable
from dpgen.privacy.accountants import calibrate_noise, epsilon
from dpgen.privacy.ledger import Budget
from dpgen.privacy.ledger_file import is_locked
from dpgen.privacy.mechanisms import require_positive, require_whole, subsampled_gaussian_event
from dpgen.privacy.shared_budget import Payment, SharedBudget, Spending
from dpgen.statement import guarantee, person, rounded_up

if TYPE_CHECKING:
    from dp_accounting import DpEvent

COLUMNS = ("time", "user", "model", "run", "id", "alone", "together")


def parser() -> OneLineParser:
    result = OneLineParser(
        "dpgen budget",
        description="A budget that all runs on a data set pay from: who paid, what is left. What a run would cost says "
        "dpgen train with --ledger FILE --dry_run. --dp_sgd: epsilon or noise of plain DP-SGD.",
    )
    result.add_argument("file", type=Path, nargs="?", metavar="FILE", help="the budget; runs pay from it with --ledger FILE")
    result.add_argument("--create", action="store_true", help="make FILE, with")
    result.add_argument("--epsilon", type=float, help="its total in nats,")
    result.add_argument("--delta", type=float, default=1e-5, help="at this delta (default 1e-05),")
    result.add_argument("--relation", choices=["add_remove", "replace_one"], default="add_remove", help="of neighbouring data")
    result.add_argument(
        "--unit",
        help="that differ in one person, whom this column names (default: in one record), or words, as "
        "'one person with all of their rows' of linked tables;",
    )
    result.add_argument("--max_contributions", type=int, help="with so many rows of each person (default 1)")
    result.add_argument("--runs", type=int, help="so many runs share it: each has the same part, unless it names its own")
    result.add_argument("--release", metavar="RUN", help="give back what this run has reserved, which never committed")
    result.add_argument("--dp_sgd", action="store_true", help="without FILE: plain DP-SGD on Poisson samples, by")
    result.add_argument("--n", type=int, help="records,")
    result.add_argument("--batch", type=int, help="expected records of a step,")
    result.add_argument("--epochs", type=float, default=1.0, help="expected uses of a record (default 1), and")
    result.add_argument("--noise", type=float, help="noise multiplier; or --epsilon, which says the least noise")
    return result


def main(arguments: list[str]) -> Ended:
    """Make a budget, show it, or say what a run would cost."""
    options = parser().parse_args(arguments)
    file = options.file
    if options.dp_sgd:
        return _dp_sgd(options)
    if file is None:
        raise ValueError("FILE is missing; dpgen budget needs the file of a budget, or --dp_sgd")
    if options.create:
        if options.epsilon is None:
            raise ValueError("epsilon is missing; --create needs the total, as in --epsilon 3")
        require_writable(file, "file")
        total = Budget(options.epsilon, options.delta)
        shared = SharedBudget.create(file, total, relation=options.relation, unit=_unit(options), runs=options.runs)
    elif options.epsilon is not None:
        raise ValueError(f"epsilon is {options.epsilon:g}; the total is fixed when a budget is made, with --create")
    elif not file.exists():
        raise ValueError(f"{str(file)!r} does not exist; dpgen budget {file} --create --epsilon E --delta D makes it")
    else:
        shared = SharedBudget(file)
        if options.release is not None:
            shared.give_back(options.release)
    spending = shared.spending()
    lines = [*_table(shared, spending), *_left(spending), *_reserved(shared, spending)]
    return Ended("\n".join(lines), values=_values(shared, spending))


def _unit(options: argparse.Namespace) -> str:
    """The unit in the words of a run's statement: of a column of people, or words that begin with "one"."""
    unit, most = options.unit, options.max_contributions
    if unit is not None and not unit.startswith("one "):
        return person(unit, require_whole("max_contributions", 1 if most is None else most))
    if most is not None:
        raise ValueError(f"max_contributions is {most}; it needs --unit COLUMN, the column that names people")
    return unit or "one record"


def _dp_sgd(options: argparse.Namespace) -> Ended:
    """The epsilon of plain DP-SGD, or the least noise for an epsilon."""
    if options.file is not None:
        raise ValueError(f"FILE is {str(options.file)!r}; it must be left out with --dp_sgd")
    if (options.noise is None) == (options.epsilon is None):
        raise ValueError("give one of noise and epsilon with --dp_sgd; the other one is computed")
    for name in ("n", "batch"):
        if getattr(options, name) is None:
            raise ValueError(f"{name} is missing; --dp_sgd needs n, batch and epochs")
    n = require_whole("n", options.n)
    batch, epochs = require_whole("batch", options.batch, 1, n), require_positive("epochs", options.epochs)
    relation, budget, unit = options.relation, Budget(options.epsilon or 1.0, options.delta), _unit(options)
    from dp_accounting import SelfComposedDpEvent

    rate, steps = batch / n, math.ceil(epochs * n / batch)

    def run(noise: float) -> "DpEvent":
        return SelfComposedDpEvent(subsampled_gaussian_event(rate, noise), steps)

    noise = options.noise
    if noise is None:
        noise = calibrate_noise(run, budget, relation=relation)
    cost = epsilon(run(require_positive("noise", noise)), budget.delta, relation=relation)
    text = f"DP-SGD: {steps} steps, each a Poisson sample of rate {rate:.6g}, noise multiplier {noise:.6g}"
    values = {"steps": steps, "sampling_rate": rate, "noise_multiplier": noise}
    values |= {"epsilon": cost, "delta": budget.delta, "relation": relation, "unit": unit}
    return Ended(f"{text}\n{guarantee(cost, budget.delta, relation, unit)}", values=values)


def _table(shared: SharedBudget, spending: Spending) -> list[str]:
    total = guarantee(spending.budget.epsilon, spending.budget.delta, spending.limits.relation, spending.unit)
    lines = [f"{shared.path.name}: {total} in all", _share(spending)]
    if not spending.kept:
        return [*lines, "nothing is paid for yet"]
    rows = [COLUMNS, *(_row(spending, number) for number, payment in enumerate(spending.payments) if not payment.returned)]
    meant = (
        "alone: epsilon of the run at its own delta, or of what it paid beyond its plan; together: with all above it, at delta "
    )
    return [*lines, *aligned(rows), f"{meant}{rounded_up(spending.budget.delta)}"]


def _share(spending: Spending) -> str:
    """The default epsilon and delta of a run that pays from the budget, in words."""
    share = spending.share
    if share.runs is None:
        return f"a run without --delta: delta {share.delta:g}, or that of its model if it is smaller"
    return (
        f"made for {share.runs} runs: one without --epsilon and --delta has epsilon {share.epsilon:g} at delta {share.delta:g}"
    )


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
        "runs": spending.runs,
        "runs_left": spending.runs_left,
        "epsilon_left": 0.0 if full else spending.left,
        "delta_left": spending.delta_left,
        "share_left": 0.0 if full else max(0.0, 1 - spending.limits.share(spending.total)),
        "share": spending.share._asdict(),
        "payments": [dict(zip(COLUMNS, _row(spending, number))) for number in kept],
        "reservations": [
            {
                "id": p.run,
                "user": p.user,
                "model": p.model,
                "run": p.directory,
                "time": p.time,
                "age": _age(p),
                "state": _state(p),
            }
            for p in spending.reservations
        ],
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


def _left(spending: Spending) -> list[str]:
    total, runs = rounded_up(spending.budget.epsilon), spending.runs
    if spending.kept and not spending.limits.fits(spending.total):
        return [f"paid for: epsilon {total}, by one run that needs all of it: nothing is left"]
    share = max(0.0, 1 - spending.limits.share(spending.total))
    lines = [
        f"paid for: epsilon {rounded_up(spending.epsilon)} of {total}; {100 * share:.3g} % of what the filter grants is left: "
        f"{spending.fitting}"
    ]
    if spending.budget.delta:
        lines.append(f"delta left: {spending.delta_left:g}, of which a run uses up a tenth of its own, or none")
    if runs > 1:
        lines.append(
            "epsilons of runs do not add up: losses of several runs are rarely great at once, and each run's epsilon is "
            "at a delta of its own"
        )
    if runs:
        like = spending.runs_left
        lines.append(f"runs left: {'any number' if like is None else like} like the last one")
    return lines


def _reserved(shared: SharedBudget, spending: Spending) -> list[str]:
    """Lines on runs that have reserved something and shown nothing yet."""
    lines = []
    for payment in spending.reservations:
        state = _state(payment)
        age = f"{_age(payment) / 3600:.1f} h"
        free = "" if state == "running" else f"; if it will not go on: dpgen budget {shared.path} --release {payment.run}"
        lines.append(f"reserved: by {payment.run} ({payment.model}, {payment.user}), {age} ago, {state}{free}")
    return lines


def _age(payment: Payment) -> int:
    """Seconds since the payment."""
    return max(0, round((datetime.now(UTC) - datetime.fromisoformat(payment.time)).total_seconds()))


def _state(payment: Payment) -> str:
    """Whether a run that has not committed is running or dead, or unknown: in memory, or on a disk that is not here."""
    locked = is_locked(Path(payment.directory, "ledger.jsonl")) if payment.directory else None
    return {True: "running", False: "dead", None: "unknown"}[locked]
