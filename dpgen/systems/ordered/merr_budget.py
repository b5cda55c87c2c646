r"""What each step of the maximum error rule may spend, and the noise that this buys.

basic: pure epsilons that add up; a step's selection has rate $\lambda = \epsilon_{sel} / 2$, its answers discrete Laplace
noise of scale $\Delta_1 / \epsilon_{ans}$. zcdp: the budget is turned into rho first; a selection has rate
$\sqrt{2 \rho_{sel}}$, the answers rounded Gaussian noise of std $\Delta_2 / \sqrt{2 \rho_{ans}}$.

Diakonikolas, Hardt and Schmidt (2015), Figure 2, print Laplace(1/(2n)) for the answers whatever epsilon and T are: scale
1/2 in records where $4 T / \epsilon$ is needed. A run of T steps then costs 4 T beside the selections.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize_scalar

from dpgen.privacy.events import approximate_event, pure_event
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.choosing import ChoosingConstants
from dpgen.systems.ordered.gaussian_budget import relation_gaussian
from dpgen.systems.ordered.sensitivities import Answers, answers_l1, answers_l2, score, scores_moved

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Composition = Literal["basic", "zcdp"]
Selection = Literal["choosing", "exponential", "points"]

PUBLISHED_SCALE = 0.5  # of the Laplace noise in Figure 2, in records
_WIDEST = 2.0**20  # how far, as a factor, the ledger's own accountant may move rho


def zcdp_budget(epsilon: float, delta: float) -> float:
    r"""Largest rho whose zCDP implies (epsilon, delta)-DP (Canonne, Kamath and Steinke 2020, Proposition 12).

    :math:`\delta = \min_a e^{(a - 1)(a \rho - \epsilon)} (1 - 1/a)^a / (a - 1)`.

    >>> round(zcdp_budget(1.0, 1e-6), 5)
    0.02436
    """
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise ValueError(f"epsilon is {epsilon!r} and delta is {delta!r}; zcdp needs epsilon > 0 and delta in (0, 1)")

    def log_delta(rho: float) -> float:
        def at(log_order: float) -> float:
            extra = math.exp(log_order)  # a - 1
            return extra * ((1 + extra) * rho - epsilon) - math.log(extra) - (1 + extra) * math.log1p(1 / extra)

        centre = math.log(max(epsilon / (2 * rho), 1e-3))
        return float(minimize_scalar(at, bounds=(centre - 4, centre + 4), method="bounded").fun)

    low, high = 0.0, epsilon + math.log(1 / delta)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta(middle) <= math.log(delta) else (low, middle)
    return low


@dataclass(frozen=True)
class StepBudget:
    """One step: the rate of its selection (or the constants of choosing), the noise of its answers, and the events."""

    rate: float
    choosing: ChoosingConstants | None
    answers: Answers
    composition: Composition
    unit_noise: float  # of an answer with sensitivity 1: scale of Laplace, std of Gaussian noise
    relation: Relation
    levels: int
    events: tuple[tuple["DpEvent", str], ...]
    published: bool = False

    def for_size(self, size: float) -> "StepBudget":
        """The same when a public or noisy number of records is known; only choosing looks at it, and for free."""
        return self if self.choosing is None else replace(self, choosing=self.choosing.for_size(size))

    def noise(self, asked: Answers) -> float:
        """Scale (basic) or std (zcdp), in records, of answers of this kind."""
        if self.published:
            return PUBLISHED_SCALE
        sensitivity = answers_l1 if self.composition == "basic" else answers_l2
        return self.unit_noise * sensitivity(asked, self.relation)

    def variance(self, asked: Answers) -> float:
        """Variance of one such answer, in records squared."""
        noise = self.noise(asked)
        if self.composition == "zcdp" and not self.published:
            return noise**2 + 1 / 12
        ratio = math.exp(-1 / noise)
        return 2 * ratio / (1 - ratio) ** 2

    def answer(self, counts: list[int], source: SecureSource) -> npt.NDArray[np.float64]:
        """Noisy counts of one step: two disjoint cells, or one prefix."""
        noise = self.noise("interval" if len(counts) == 2 else "point")
        laplace = self.composition == "basic" or self.published
        draw = (
            source.discrete_laplace(len(counts), scale=noise)
            if laplace
            else source.rounded_normal(len(counts), noise_std=noise)
        )
        return np.asarray(np.array(counts) + draw.numpy(), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class StepTerms:
    """What a step budget depends on beside what it may spend; all of it public.

    `share` of each step goes to the selection, the rest to its answers.
    """

    selection: Selection
    steps: int
    composition: Composition
    share: float
    relation: Relation
    levels: int
    size: float
    published: bool = False


@lru_cache(maxsize=64)
def step_budget(terms: StepTerms, *, epsilon: float, delta: float) -> StepBudget:
    """Split (epsilon, delta) evenly over the steps.

    Choosing pays its additive parts from delta: all of it (basic), or half of it (zcdp). In zcdp the rho that
    `zcdp_budget` allows is corrected until the ledger's own accountant finds epsilon.

    Raises:
        ValueError: epsilon, or with zcdp or choosing delta, out of range, or no noise is found for them.
    """
    if terms.composition == "basic":
        return _basic(terms, epsilon, delta)
    rho = zcdp_budget(epsilon, delta / 2 if terms.selection == "choosing" else delta)
    claimed = replace(terms, published=False)  # what the printed noise really costs cannot be corrected

    def excess(some: float) -> float:
        return _cost(_zcdp(claimed, some, delta), terms, delta) - epsilon

    low, high = 0.5 * rho, 3 * rho
    try:
        while excess(high) < 0 and high < _WIDEST * rho:
            low, high = high, 2 * high
        while excess(low) > 0 and low > rho / _WIDEST:
            low, high = low / 2, low
        found = (1 - 2e-4) * float(brentq(excess, low, high, xtol=1e-4 * low, rtol=1e-4))
        while excess(found) > 0:
            found *= 0.999
    except (ArithmeticError, ValueError) as error:
        raise ValueError(
            f"epsilon is {epsilon:g} and delta is {delta:g}; no noise was found for them with composition 'zcdp': "
            "take another delta, or composition 'basic'"
        ) from error
    return _zcdp(terms, found, delta)


def _cost(budget: StepBudget, terms: StepTerms, delta: float) -> float:
    ledger = Ledger(None, delta=delta, relation=terms.relation)
    for event, note in budget.events:
        ledger.charge(event, terms.steps, note=note)
    return ledger.epsilon()


def _basic(terms: StepTerms, epsilon: float, delta: float) -> StepBudget:
    each = epsilon * (1 - 1e-12) / terms.steps  # the sum of the parts must not round up
    select, answer = terms.share * each, (1 - terms.share) * each
    return _assemble(terms, select / 2, select, delta * (1 - 1e-12) / terms.steps, 1 / answer, pure_event(answer))


def _zcdp(terms: StepTerms, rho: float, delta: float) -> StepBudget:
    # A pure guarantee e costs e^2 / 2; an exponential mechanism of rate e has losses in a range 2e and costs the same.
    select = math.sqrt(2 * terms.share * rho / terms.steps)
    unit_noise = 1 / math.sqrt(2 * (1 - terms.share) * rho / terms.steps)
    answer = relation_gaussian(unit_noise, terms.relation)
    return _assemble(terms, select, select, delta / (2 * terms.steps), unit_noise, answer)


def _assemble(terms: StepTerms, rate: float, select: float, extra: float, unit_noise: float, answer: "DpEvent") -> StepBudget:
    answers: Answers = "point" if terms.selection == "points" else "interval"
    choosing = None
    if terms.selection == "choosing":
        moved = scores_moved(terms.levels, terms.relation)
        choosing = ChoosingConstants.of(select, extra, moved=moved, size=terms.size)
    if terms.published:
        answer = pure_event(answers_l1(answers, terms.relation) / PUBLISHED_SCALE)
    events = (
        (_selection_event(select, extra, choosing, terms.composition), f"{terms.selection} selection"),
        (answer, "noisy counts"),
    )
    return StepBudget(
        rate / score(terms.relation),
        choosing,
        answers,
        terms.composition,
        unit_noise,
        terms.relation,
        terms.levels,
        events,
        terms.published,
    )


def _selection_event(select: float, extra: float, choosing: ChoosingConstants | None, composition: Composition) -> "DpEvent":
    from dp_accounting import ZCDpEvent

    if choosing is not None:
        return approximate_event(select, extra)
    return pure_event(select) if composition == "basic" else ZCDpEvent(select**2 / 2)
