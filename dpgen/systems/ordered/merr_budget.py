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

from dpgen.privacy.accountants import epsilon as epsilon_of
from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.events import pure_event
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.parallel import Relation
from dpgen.privacy.selection import exponential_event
from dpgen.systems.ordered.counts import NO_RECORDS, asked_counts, curator_multiplier
from dpgen.systems.ordered.knots import SCORE, Integers
from dpgen.systems.ordered.selection import ChoosingConstants, scores_moved

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Composition = Literal["basic", "zcdp"]
Selection = Literal["choosing", "exponential", "points"]
Answers = Literal["interval", "point"]

PUBLISHED_SCALE = 0.5  # of the Laplace noise in Figure 2, in records
_WIDEST = 2.0**20  # how far, as a factor, the ledger's own accountant may move rho
_ANSWERS_NOTE = "MERR, noisy counts"


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


@dataclass(frozen=True, kw_only=True)
class StepBudget:
    """One step: the rate of its selection (or the constants of choosing), and the noise of its answers.

    Arguments:
        selection: who selects.
        composition: of the steps.
        relation: neighbouring relation.
        rate: lambda of the exponential mechanism.
        choosing: constants of the choosing mechanism, where it selects.
        unit_noise: of an answer with sensitivity 1: scale of Laplace, std of Gaussian noise.
        levels: of the dyadic tree over [N].
        published: answers get the noise that Figure 2 prints.
    """

    selection: Selection
    composition: Composition
    relation: Relation
    rate: float
    choosing: ChoosingConstants | None
    unit_noise: float
    levels: int
    published: bool = False

    @property
    def answers(self) -> Answers:
        """What a selection asks for: the two ends of an interval, or one point."""
        return "point" if self.selection == "points" else "interval"

    @property
    def selection_note(self) -> str:
        """What the ledger calls a selection."""
        return f"MERR, {self.selection} selection"

    def for_size(self, size: float) -> "StepBudget":
        """The same when a public or noisy number of records is known; only choosing looks at it, and for free."""
        return self if self.choosing is None else replace(self, choosing=self.choosing.for_size(size))

    def planned(self, steps: int) -> list[Planned]:
        """The charges of so many steps."""
        return [Planned(self.selection_event, self.selection_note, steps), Planned(self.answer_event, _ANSWERS_NOTE, steps)]

    @property
    def selection_event(self) -> "DpEvent":
        """What one selection costs."""
        if self.choosing is not None:
            return self.choosing.event(scores_moved(self.levels, self.relation))
        return exponential_event(self.rate, SCORE, zcdp=self.composition == "zcdp")

    @property
    def laplace(self) -> bool:
        """Whether answers get discrete Laplace noise, else rounded Gaussian noise."""
        return self.composition == "basic" or self.published

    def _sums(self, asked: Answers, values: Integers = NO_RECORDS, knots: tuple[int, ...] = (1, 2)) -> BoundedSum:
        """The counts at one or two knots."""
        return asked_counts(values, list(knots[: 1 if asked == "point" else 2]), norm="l1" if self.laplace else "l2")

    @property
    def answer_event(self) -> "DpEvent":
        """What the answers of one step cost."""
        if self.laplace:
            return pure_event(self._answer_epsilon)
        return gaussian_price(self._sums(self.answers), self._multiplier(self.answers), self.relation)

    @property
    def _answer_epsilon(self) -> float:
        """Of the answers of one step: what their noise costs."""
        most = self._sums(self.answers).under(self.relation)
        return most / PUBLISHED_SCALE if self.published else 1 / self.unit_noise

    def _multiplier(self, asked: Answers) -> float:
        """In the curator's units, such that one or two answers cost the same event, to the last bit."""
        most = curator_multiplier(self.unit_noise, self._sums(self.answers), self.relation)
        if asked == self.answers or self.relation == "add_remove":
            return most
        # one knot where an interval has two: it moves by 1 instead of sqrt 2, and its noise is so much smaller
        event = gaussian_price(self._sums(self.answers), most, self.relation)
        return float(event.noise_multiplier) / 2

    def noise(self, asked: Answers) -> float:
        """Scale (Laplace) or std (Gaussian), in records, of answers of this kind."""
        if self.published:
            return PUBLISHED_SCALE
        if self.laplace:
            return self._sums(asked).under(self.relation) / self._answer_epsilon
        return self._multiplier(asked) * self._sums(asked).sensitivity

    def variance(self, asked: Answers) -> float:
        """Variance of one such answer, in records squared."""
        noise = self.noise(asked)
        if not self.laplace:
            return noise**2 + 1 / 12
        ratio = math.exp(-1 / noise)
        return 2 * ratio / (1 - ratio) ** 2

    def answer(self, values: Integers, knots: list[int], curator: Curator) -> npt.NDArray[np.float64]:
        """Noisy counts of one step at one or two knots: records below the first, and between both."""
        asked: Answers = "interval" if len(knots) == 2 else "point"
        sums = self._sums(asked, values, tuple(knots))
        if not self.laplace:
            noisy = curator.gaussian(_ANSWERS_NOTE, sums, self._multiplier(asked))
        elif self.published:  # the printed scale, whatever is asked: one knot pays for two
            most = self._sums(self.answers)
            noisy = curator.laplace(_ANSWERS_NOTE, replace(sums, replaced=most.replaced), self._answer_epsilon)
        else:
            noisy = curator.laplace(_ANSWERS_NOTE, sums, self._answer_epsilon)
        return np.asarray(noisy.numpy(), np.float64)


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
    from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

    parts = [SelfComposedDpEvent(line.event, line.count) for line in budget.planned(terms.steps)]
    return epsilon_of(ComposedDpEvent(parts), delta, relation=terms.relation)


def _basic(terms: StepTerms, epsilon: float, delta: float) -> StepBudget:
    each = epsilon * (1 - 1e-12) / terms.steps  # the sum of the parts must not round up
    select, answer = terms.share * each, (1 - terms.share) * each
    return _assemble(terms, select / (2 * SCORE), select, delta * (1 - 1e-12) / terms.steps, 1 / answer)


def _zcdp(terms: StepTerms, rho: float, delta: float) -> StepBudget:
    # A pure guarantee e costs e^2 / 2; an exponential mechanism of rate e has losses in a range 2e and costs the same.
    select = math.sqrt(2 * terms.share * rho / terms.steps)
    unit_noise = 1 / math.sqrt(2 * (1 - terms.share) * rho / terms.steps)
    return _assemble(terms, select / SCORE, select, delta / (2 * terms.steps), unit_noise)


def _assemble(terms: StepTerms, rate: float, select: float, extra: float, unit_noise: float) -> StepBudget:
    choosing = None
    if terms.selection == "choosing":
        moved = scores_moved(terms.levels, terms.relation)
        choosing = ChoosingConstants.of(select, extra, moved=moved, size=terms.size)
    return StepBudget(
        selection=terms.selection,
        composition=terms.composition,
        relation=terms.relation,
        rate=rate,
        choosing=choosing,
        unit_noise=unit_noise,
        levels=terms.levels,
        published=terms.published,
    )
