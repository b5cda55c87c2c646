"""Dry run: the settings of a run, the plan that it declares and the cost of that plan; nothing is spent."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from dpgen.config import RunConfig
from dpgen.privacy.composition import Planned, worst
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget
from dpgen.privacy.shared_budget import Payer, SharedBudget
from dpgen.runtime import quiet_runtime
from dpgen.statement import guarantee, rounded_up


class _Planned(Exception):
    """The plan that a run has declared, instead of running."""

    def __init__(self, plan: Sequence[Planned]) -> None:
        super().__init__("declared")
        self.plan = plan


class _Quoting(Payer):
    """Takes the plan of a run, and ends it."""

    def pay(self, plan: Sequence[Planned], budget: Budget | None) -> NoReturn:
        """Pays nothing."""
        raise _Planned(plan)


def declared(job: RunConfig, data: Any) -> Sequence[Planned]:
    """The plan of a job, which it declares before it looks at a record, and ends there; nothing is spent."""
    curator = Curator(job.new_ledger(payer=_Quoting(Path(), "planned", job.model.name, "", "")))
    with TemporaryDirectory(prefix="dpgen-") as scratch:
        try:
            job.fit(data, curator, quiet_runtime(Path(scratch), 0))
        except _Planned as found:
            return found.plan
    raise ValueError(f"model {job.model.name} declares no plan: what it would cost is known once it has run")


def dry_run(job: RunConfig, choices: Sequence[str] = ()) -> str:
    """The settings of a job, or the choices of a selection, its plan and its price in words.

    The data are read, nothing is spent.
    """
    with TemporaryDirectory(prefix="dpgen-") as scratch:
        alone = replace(job, runtime=replace(job.runtime, ledger=None))
        plans = declared(job, alone.load(Path(scratch)))
    plan: Any = job.privacy
    delta, relation = plan.resolved_delta, plan.relation
    cost = worst([(line.priced, line.count) for line in plans], delta, relation)
    lines = [f"{job.title} on {job.data.name}, dry run: the data were read, nothing is spent, nothing is written"]
    lines += [] if job.base is None else [f"settings {job.base}"]
    lines += [f"choice {choice}" for choice in choices]
    for title in () if choices else ("privacy", "model", "data"):
        lines += [title, *(f"  {name:<16} {value}" for name, value in job.settings[title].items())]
    lines += ["plan", *(f"  {line.count} x {line.note}: {line.event}" for line in plans)]
    lines += [f"  cost             {guarantee(cost, delta, relation, plan.protected)}"]
    if (shared := job.shared_budget()) is not None:
        lines += _shared(job, shared, plans)
    return "\n".join(lines)


def _shared(job: RunConfig, shared: SharedBudget, plan: Sequence[Planned]) -> list[str]:
    """Lines on the budget that the run would pay from."""
    spending = shared.spending()
    payment = job.payer(shared).quote(plan, job.new_ledger().budget, spending.limits)
    line = f"{shared.path.name}: it would bring all runs to epsilon {rounded_up(spending.plus(payment).epsilon)}"
    if not spending.fits(payment):
        return [f"{line}: refused, it does not fit"]
    room = spending.room(payment)
    times = f"{room} time{'s' if room != 1 else ''}" if room else "and nothing beside it"
    return [f"{line}: it fits, {times}"]
