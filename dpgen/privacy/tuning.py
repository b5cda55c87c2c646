r"""Repeat and select: run a mechanism a secret number of times K, release the best output, and pay for the choice.

The base mechanism Q draws one of the public options, each as likely, runs it, and scores what came out; whatever the score
reads of private data is part of Q. K is Poisson of mean :math:`\mu`; where it is 0 nothing is released.

With :math:`R(\alpha)` the Renyi loss of Q, the selection loses at most
:math:`R(\alpha) + \mu \delta + \log(\mu) / (\alpha - 1)` where Q is :math:`(\log(1 + 1/(\alpha - 1)), \delta)`-DP
(Papernot and Steinke 2022, Theorem 6). It has no pure bound.

Why a mixture of options costs what the worst of them costs: the drawn option is part of the output, independent of the data,
so :math:`e^{(\alpha - 1) R}` is the mean over the options, and the same delta serves where each has at most that.

Why the first of the best runs may be kept: given K the runs are independent and alike, so of those with an equal score the
first one is a uniform one, as if a secret uniform number that each run draws settled it: a total order on outputs, which the
theorem needs. A run that fails ends the selection: failure stands above all scores in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgen.privacy.composition import BudgetExceeded, LedgerItem, Loads, Planned, cases
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import Budget, OneOfDpEvent, Relation, Secrets, repeated_event
from dpgen.privacy.shared_budget import Payer, same_plan

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.dp_event import RepeatAndSelectDpEvent

SELECTION = "the best of a secret number of runs"
"""Note of a selection in the ledger."""

_BITS = 192


def draw_runs(mean: float, secrets: Secrets) -> int:
    """K, by inversion of 192 uniform bits with 320 bits of the Poisson law: within 2^-128 of it in total variation."""
    from dpgen.privacy.draws import exact_context

    context = exact_context()
    uniform = context.mpf(2 * int.from_bytes(secrets.random_bytes(_BITS // 8), "big") + 1) * context.mpf(2) ** -(_BITS + 1)
    k, term = 0, context.exp(-context.mpf(mean))
    below = term
    while below <= uniform:
        k += 1
        term = term * mean / k
        below += term
    return k


@dataclass(frozen=True)
class Trial:
    """One option of a selection: the whole plan of its run, and how its ledger is opened.

    Arguments:
        plan: events with their greatest counts, all that the run may be charged for.
        open_ledger: a new ledger in memory that asks the given payer for its plan.
    """

    plan: Loads
    open_ledger: Callable[[Payer], Ledger]


class _Allowance(Payer):
    """Grants one plan, once: what a selection has been charged for. The ledger that asks it has no file."""

    def __init__(self, plan: Loads) -> None:
        super().__init__(path=Path(), run="", model="", user="", directory="")
        object.__setattr__(self, "open", [plan])

    def pay(self, loads: Loads, budget: Budget | None) -> None:
        """Raises BudgetExceeded for another plan, a second one, or a charge beyond it."""
        plans: list[Loads] = self.open  # type: ignore[attr-defined]
        if not (plans and same_plan(loads, plans[0])):
            names = ", ".join(f"{count} x {item.note!r}" for item, count in loads)
            raise BudgetExceeded(f"a run of a selection asks for {names}, which the selection has not paid for")
        plans.clear()

    def require_current(self, commit: int, released: str = "") -> None:
        """Nobody has seen anything of it."""

    stand = require_current

    def give_back(self) -> None:
        """Nothing is reserved."""

    def statement(self) -> dict[str, Any]:
        """Nothing: the selection states what it has paid."""
        return {}


def granted(trial: Trial, whole: Ledger) -> Ledger:
    """The ledger of one run of a trial that `whole` has been charged for; it grants the trial's plan once.

    Raises:
        ValueError: the trial does not open a new ledger that asks its payer, or one of another unit.
    """
    allowance = _Allowance(trial.plan)
    ledger = trial.open_ledger(allowance)
    if ledger.payer is not allowance or ledger.promised() or ledger.terms != whole.terms:
        raise ValueError(f"open_ledger must give a new ledger of {whole.terms} that asks its payer, not one of {ledger.terms}")
    return ledger


def scoring(priced: Sequence[Planned], ledger: Ledger) -> Ledger:
    """The ledger of one score of a selection that `ledger` has been charged for; it grants what is priced, once."""
    inner = Ledger(None, delta=ledger.delta, payer=_Allowance(_loads(priced)), **ledger.terms)
    inner.declare(priced)
    return inner


def _loads(priced: Sequence[Planned]) -> Loads:
    return [(LedgerItem.of(p.event, p.note, p.group, divisible=p.divisible), p.count) for p in priced]


def selection_event(
    trials: Sequence[Trial], priced: Sequence[Planned], mean: float, relation: Relation
) -> RepeatAndSelectDpEvent:
    """Price of the best of K scored runs of trials drawn at random: of the worst trial, for the record that it touches most.

    Raises:
        ValueError: no trials, or a mean outside [2, 1000].
    """
    from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

    bases: list[DpEvent] = []
    for trial in trials:
        for loads in cases([(m.priced or m, n) for m, n in [*trial.plan, *_loads(priced)]], relation):
            base = ComposedDpEvent([m.event if n == 1 else SelfComposedDpEvent(m.event, n) for m, n in loads])
            bases += [base] if base not in bases else []
    if not bases:
        raise ValueError("trials are empty; a selection needs at least one")
    return repeated_event(bases[0] if len(bases) == 1 else OneOfDpEvent(tuple(bases)), mean)
