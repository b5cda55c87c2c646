r"""Repeat and select: run a mechanism a secret number of times K, release the best output, and pay for the choice.

The base mechanism Q draws one of the public options, each as likely, runs it, and scores what came out; score and output
are what one run of Q gives, so whatever the score reads of private data is part of Q. The selection draws K, runs Q so
often, and gives out the output of the best score; nothing tells how many runs there were.

With :math:`R(\alpha)` the Renyi loss of Q, for all :math:`\alpha, \beta > 1` the selection loses at most

.. math::
    R(\alpha) + (1 + \eta) \left[(1 - 1/\beta) R(\beta) + \log(1/\gamma) / \beta\right] + \log(E K) / (\alpha - 1),
    \qquad R(\alpha) + \mu \delta + \log(\mu) / (\alpha - 1),

the first for a truncated negative binomial K of shape :math:`\eta`, the second for a Poisson K of mean :math:`\mu`, where Q is
:math:`(\log(1 + 1/(\alpha - 1)), \delta)`-DP (Papernot and Steinke 2022, Theorems 2 and 6). Of an epsilon-DP base the first is
:math:`(2 + \eta) \epsilon`-DP (both orders to infinity), as in Liu and Talwar 2019; a Poisson number has no pure bound.

Why a mixture of options costs what the worst of them costs: the drawn option is part of the output, independent of the data,
so :math:`e^{(\alpha - 1) R}` is the mean over the options, and the same delta serves where each has at most that.

Why the first of the best runs may be kept: given K the runs are independent and alike, so of those with an equal score the
first one is a uniform one, as if a secret uniform number that each run draws settled it: a total order on outputs, which the
theorems need. A run that fails ends the selection: failure stands above all scores in that order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from dpgen.privacy.composition import Budget, BudgetExceeded, LedgerItem, Loads, Planned, cases
from dpgen.privacy.events import OneOfDpEvent
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import Relation, Secrets, require_within
from dpgen.privacy.moments import success
from dpgen.privacy.shared_budget import Payer, same_plan

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.dp_event import RepeatAndSelectDpEvent

SELECTION = "the best of a secret number of runs"
"""Note of a selection in the ledger."""

Number = Literal["poisson", "geometric", "logarithmic"]
_SHAPES: dict[Number, float] = {"poisson": math.inf, "geometric": 1.0, "logarithmic": 0.0}
_BITS = 192
_DIGITS = 320


@dataclass(frozen=True)
class Repetitions:
    r"""Law of the secret number of runs K.

    Poisson: :math:`e^{-\mu} \mu^k / k!`, k >= 0; nothing is released where it is 0. Geometric (shape 1):
    :math:`\gamma (1 - \gamma)^{k - 1}`; logarithmic (shape 0): :math:`(1 - \gamma)^k / (k \log(1/\gamma))`, k >= 1.

    Arguments:
        mean: expected number of runs, in [2, 1000].
        law: "poisson", the cheapest where delta is above 0; "geometric" or "logarithmic", which pure guarantees need.

    Raises:
        ValueError: one of them is not as described.

    >>> from dpgen.privacy.events import pure_event
    >>> Repetitions(10, "geometric").event(pure_event(1.0))
    RepeatAndSelectDpEvent(event=ApproximateDpEvent(epsilon=1.0, delta=0.0), mean=10.0, shape=1.0)
    """

    mean: float
    law: Number = "poisson"

    def __post_init__(self) -> None:
        require_within("mean", self.mean, (2.0, 1000.0), ", the expected number of runs")
        if self.law not in get_args(Number):
            raise ValueError(f"law is {self.law!r}; choose one of {', '.join(get_args(Number))}")

    def event(self, base: DpEvent) -> RepeatAndSelectDpEvent:
        """Price of the best of K runs of `base`."""
        from dp_accounting.dp_event import RepeatAndSelectDpEvent

        return RepeatAndSelectDpEvent(base, float(self.mean), _SHAPES[self.law])

    def draw(self, secrets: Secrets) -> int:
        """K, by inversion of 192 uniform bits with 320 digits of the law: within 2^-128 of it in total variation."""
        from mpmath import MPContext  # type: ignore[import-untyped]

        context: Any = MPContext()
        context.prec = _DIGITS
        uniform = context.mpf(2 * int.from_bytes(secrets.random_bytes(_BITS // 8), "big") + 1) * context.mpf(2) ** -(_BITS + 1)
        k, below, (term, following) = (0 if self.law == "poisson" else 1), context.mpf(0), self._terms(context)
        while (below := below + term) <= uniform:
            k += 1
            term = following(term, k)
        return k

    def _terms(self, context: Any) -> tuple[Any, Callable[[Any, int], Any]]:
        """The first probability of the law, and the one of k from the one before it."""
        mean = context.mpf(self.mean)
        if self.law == "poisson":
            return context.exp(-mean), lambda term, k: term * mean / k
        gamma = context.mpf(success(float(self.mean), _SHAPES[self.law]))
        if self.law == "geometric":
            return gamma, lambda term, _: term * (1 - gamma)
        return (1 - gamma) / context.log(1 / gamma), lambda term, k: term * (1 - gamma) * (k - 1) / k


@dataclass(frozen=True)
class Trial:
    """One option of a selection: the whole plan of its run, and how its ledger is opened.

    Arguments:
        plan: events with their greatest counts, all that the run may be charged for.
        open_ledger: a new ledger in memory that asks the given payer for its plan.
    """

    plan: Loads
    open_ledger: Callable[[Payer], Ledger]


@dataclass(frozen=True)
class _Allowance(Payer):
    """Pays for one plan, once: what a selection has been charged for."""

    plan: Loads = field(default_factory=list)
    _spent: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, plan: Loads) -> _Allowance:  # type: ignore[override]
        """The allowance of a plan; nobody pays, so it names nobody."""
        return cls(path=Path(), run="", model="", user="", directory="", plan=plan)

    def pay(self, loads: Loads, budget: Budget | None) -> None:
        """Grant the plan, and nothing else.

        Raises:
            BudgetExceeded: another plan, a second one, or a charge beyond it.
        """
        if self._spent or not same_plan(loads, self.plan):
            names = ", ".join(f"{count} x {item.note!r}" for item, count in loads)
            raise BudgetExceeded(f"a run of a selection asks for {names}, which the selection has not paid for")
        self._spent.append(1)

    def require_current(self, commit: int, released: str = "") -> None:
        """Nobody has seen anything of it."""

    def give_back(self) -> None:
        """Nothing is reserved."""

    def stand(self, commit: int, released: str) -> None:
        """Nothing to note: the run ends with the selection."""

    def statement(self) -> dict[str, Any]:
        """Nothing: the selection states what it has paid."""
        return {}


def granted(trial: Trial, whole: Ledger) -> Ledger:
    """The ledger of one run of a trial that `whole` has been charged for; it grants the trial's plan once.

    Raises:
        ValueError: the trial does not open a new ledger that asks its payer, or one of another unit.
    """
    allowance = _Allowance.of(trial.plan)
    ledger = trial.open_ledger(allowance)
    if ledger.payer is not allowance or ledger.promised():
        raise ValueError("open_ledger must give a new ledger that asks its payer")
    if ledger.terms != whole.terms:
        raise ValueError(f"open_ledger gives a ledger of {ledger.terms}; it must be of {whole.terms}, as the selection")
    return ledger


def scoring(priced: Sequence[Planned], ledger: Ledger) -> Ledger:
    """The ledger of one score of a selection that `ledger` has been charged for; it grants what is priced, once."""
    allowance = _Allowance.of(_loads(priced))
    inner = Ledger(None, delta=ledger.delta, payer=allowance, **ledger.terms)
    inner.declare(priced)
    return inner


def _loads(priced: Sequence[Planned]) -> Loads:
    return [(LedgerItem.of(p.event, p.note, p.group, divisible=p.divisible), p.count) for p in priced]


def selection_event(
    trials: Sequence[Trial], priced: Sequence[Planned], repetitions: Repetitions, relation: Relation
) -> RepeatAndSelectDpEvent:
    """Price of the best of K scored runs of trials drawn at random: of the worst trial, for the record that it touches most.

    Raises:
        ValueError: no trials.
    """
    from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

    bases: list[DpEvent] = []
    for trial in trials:
        for loads in cases([(m.priced or m, n) for m, n in [*trial.plan, *_loads(priced)]], relation):
            base = ComposedDpEvent([m.event if n == 1 else SelfComposedDpEvent(m.event, n) for m, n in loads])
            bases += [base] if base not in bases else []
    if not bases:
        raise ValueError("trials are empty; a selection needs at least one")
    return repetitions.event(bases[0] if len(bases) == 1 else OneOfDpEvent(tuple(bases)))
