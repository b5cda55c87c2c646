r"""The steps of the Maximum Error Rule: the budget and the noise of each, and a private choice of their number.

basic: pure epsilons that add up; a step's selection has rate $\lambda = \epsilon_{sel} / 2$, its answers discrete Laplace
noise of scale $\Delta_1 / \epsilon_{ans}$. zcdp: the budget is turned into rho first; a selection has rate
$\sqrt{2 \rho_{sel}}$, the answers rounded Gaussian noise of std $\Delta_2 / \sqrt{2 \rho_{ans}}$.

Diakonikolas, Hardt and Schmidt (2015), Figure 2, print Laplace(1/(2n)) for the answers whatever epsilon and T are: scale
1/2 in records where $4 T / \epsilon$ is needed. A run of T steps then costs 4 T beside the selections.

The number of steps, the outlook of that paper: more of them follow the data more closely and leave less budget for each. Let
c(x) be the records below x = 0 ... N, and $F_p$ the functions on 0 ... N that are linear on each of p runs of neighbouring
integers. A candidate t costs the error $E_p(c) = \min_{f \in F_p} \max_x |c(x) - f(x)|$, p = t / 2, rounded up to whole
records, plus public terms for the noise; an exponential mechanism chooses.

Sensitivity 1: neighbours have $|c(x) - c'(x)| \le 1$ at every x, and $F_p$ is the same for both. With f the best for c,
$E_p(c') \le \max_x |c'(x) - f(x)| \le E_p(c) + 1$, and the same with c and c' exchanged; rounding up keeps it.

With many records only every s-th of the sorted ones is kept. Below x there are $\lceil c(x) / s \rceil$ of these, which
moves by at most 1 when c(x) does: the same proof gives sensitivity 1 in kept records, s in records.

Lines that are held to the data only where records are have no such bound: their breaks lie in gaps that the records
make, and one record inside a gap moves their error by the order of n.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numba
import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize_scalar

from dpgen.privacy.accountants import epsilon as epsilon_of
from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.events import for_rows, pure_event, row_epsilon
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.selection import ExponentialMechanism, exponential_event
from dpgen.systems.ordered.counts import NO_RECORDS, SCORE, Integers, asked_counts, curator_multiplier
from dpgen.systems.ordered.selection import ChoosingConstants, scores_moved

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Composition = Literal["basic", "zcdp"]
Selection = Literal["choosing", "exponential", "points"]
Answers = Literal["interval", "point"]

PUBLISHED_SCALE = 0.5  # of the Laplace noise in Figure 2, in records
CANDIDATES = (1, 2, 4, 8, 12, 20, 40, 80)
CHOICE_NOTE = f"number of steps, exponential mechanism over {list(CANDIDATES)}"
_ANSWERS_NOTE = "MERR, noisy counts"
_WIDEST = 2.0**20  # how far, as a factor, the ledger's own accountant may move rho
_LOOKED_AT = 2**16  # records that the choice keeps
_HALF = 31  # bits

_compile = numba.njit(nogil=True, cache=True)


@dataclass(frozen=True, kw_only=True)
class StepTerms:
    """Public choices that a step's budget depends on, beside epsilon and delta.

    Arguments:
        selection: by points or by dyadic intervals, the latter exponential or choosing.
        steps: T.
        composition: of the steps.
        share: of each step for its selection; the rest is for its answers.
        relation: neighbouring relation.
        levels: of the dyadic tree over [N].
        published: answers get the noise that Figure 2 prints.
        rows: the most rows of a person.
    """

    selection: Selection
    steps: int
    composition: Composition
    share: float
    relation: Relation
    levels: int
    published: bool = False
    rows: int = 1


@dataclass(frozen=True, kw_only=True)
class StepBudget(StepTerms):
    """One step: the rate of its selection (or the constants of choosing), and the noise of its answers.

    Arguments:
        rate: lambda of the exponential mechanism.
        choosing: constants of the choosing mechanism, where it selects.
        unit_noise: of an answer that a person moves by 1: scale of Laplace, std of Gaussian noise.
    """

    rate: float
    choosing: ChoosingConstants | None
    unit_noise: float

    @property
    def answers(self) -> Answers:
        """Whether a selection asks for the two ends of an interval, or for one point."""
        return "point" if self.selection == "points" else "interval"

    @property
    def selection_note(self) -> str:
        """Name of a selection in the ledger."""
        return f"MERR, {self.selection} selection"

    def for_size(self, size: float) -> "StepBudget":
        """The same when a public or noisy number of records is known; only choosing looks at it, and for free."""
        return self if self.choosing is None else replace(self, choosing=self.choosing.for_size(size))

    def planned(self) -> list[Planned]:
        """The charges of all steps."""
        charges = (self.selection_event, self.selection_note), (self.answer_event, _ANSWERS_NOTE)
        return [Planned(event, note, self.steps) for event, note in charges]

    @property
    def selection_event(self) -> "DpEvent":
        """Price of one selection."""
        if self.choosing is not None:
            return self.choosing.event(scores_moved(self.levels, self.relation))
        return for_rows(exponential_event(self.rate, SCORE, zcdp=self.composition == "zcdp"), self.rows)

    @property
    def laplace(self) -> bool:
        """Whether answers get discrete Laplace noise, else rounded Gaussian noise."""
        return self.composition == "basic" or self.published

    def _sums(self, asked: Answers, values: Integers = NO_RECORDS, knots: tuple[int, ...] = (1, 2)) -> BoundedSum:
        """The counts at one or two knots."""
        return asked_counts(values, list(knots[: 1 if asked == "point" else 2]), norm="l1" if self.laplace else "l2")

    @property
    def answer_event(self) -> "DpEvent":
        """Price of the answers of one step."""
        if self.laplace:
            return pure_event(self._answer_epsilon)
        return gaussian_price(self._sums(self.answers), self._multiplier(self.answers), self.relation)

    @property
    def _answer_epsilon(self) -> float:
        """Of the answers of one step, as their noise costs."""
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
            return self.rows * self._sums(asked).under(self.relation) / self._answer_epsilon
        return self.rows * self._multiplier(asked) * self._sums(asked).sensitivity

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
        return _cost(_zcdp(claimed, some, delta), delta) - epsilon

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


def _cost(budget: StepBudget, delta: float) -> float:
    from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

    parts = [SelfComposedDpEvent(line.event, line.count) for line in budget.planned()]
    return epsilon_of(ComposedDpEvent(parts), delta, relation=budget.relation)


def _basic(terms: StepTerms, epsilon: float, delta: float) -> StepBudget:
    each = epsilon * (1 - 1e-12) / terms.steps  # the sum of the parts must not round up
    select, answer = terms.share * each, (1 - terms.share) * each
    return _assemble(
        terms, row_epsilon(select, terms.rows) / (2 * SCORE), select, delta * (1 - 1e-12) / terms.steps, 1 / answer
    )


def _zcdp(terms: StepTerms, rho: float, delta: float) -> StepBudget:
    # A pure guarantee e costs e^2 / 2; an exponential mechanism of rate e has losses in a range 2e and costs the same.
    select = math.sqrt(2 * terms.share * rho / terms.steps)
    unit_noise = 1 / math.sqrt(2 * (1 - terms.share) * rho / terms.steps)
    return _assemble(terms, row_epsilon(select, terms.rows) / SCORE, select, delta / (2 * terms.steps), unit_noise)


def _assemble(terms: StepTerms, rate: float, select: float, extra: float, unit_noise: float) -> StepBudget:
    choosing = None
    if terms.selection == "choosing":
        moved = scores_moved(terms.levels, terms.relation)
        choosing = ChoosingConstants.of(select, extra, moved=moved)
    return StepBudget(**vars(terms), rate=rate, choosing=choosing, unit_noise=unit_noise)


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


def corners(values: Integers, N: int) -> tuple[Integers, Integers]:
    """Points (x, records below x) before and after each of the sorted values, and at the ends of 0 ... N.

    >>> [part.tolist() for part in corners(np.array([3, 3, 5]), 8)]
    [[0, 3, 4, 5, 6, 8], [0, 0, 2, 2, 3, 3]]
    """
    some = np.unique(values)
    x = np.unique(np.concatenate([[0], some, some + 1, [N]]))
    return x, np.searchsorted(values, x, side="left")


def least_errors(x: Integers, y: Integers, pieces: list[int]) -> list[int]:
    """For each number of pieces the least whole error with which so many lines pass, as in `pieces_needed`.

    >>> least_errors(np.arange(5), np.array([0, 0, 4, 4, 4]), [1, 2])
    [2, 0]
    """
    known: dict[int, int] = {}

    def needed(error: int) -> int:
        if error not in known:
            known[error] = int(pieces_needed(x, y, error, max(pieces)))
        return known[error]

    found = []
    for allowed in pieces:
        high = min([int(y[-1]), *(error for error, lines in known.items() if lines <= allowed)])
        low = max([-1, *(error for error, lines in known.items() if lines > allowed)])
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if needed(middle) <= allowed else (middle, high)
        found.append(high)
    return found


def step_cost(error: int, budget: StepBudget) -> int:
    """Expected error in records when the best model is off by `error`; it moves with `error` by at most as much.

    The noise of the answers, and what selections overlook: about 1 / rate among points, 12 / rate among the 2^61 dyadic
    intervals of [10^18]; choosing stops at its threshold. The two numbers were measured on synthetic mixtures.
    """
    overlooked = 1.0 if budget.answers == "point" else 0.2 * budget.levels
    if budget.choosing is not None:
        error, overlooked = max(error, math.ceil(budget.choosing.threshold)), 0.0
    return error + math.ceil(math.sqrt(budget.variance(budget.answers)) + overlooked / budget.rate)


def step_costs(values: Integers, budgets: Mapping[int, StepBudget], *, N: int, stride: int = 1) -> list[int]:
    """Cost in records of each candidate; one record moves each by at most `stride`.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        budgets: of the steps of each candidate.
        stride: every so many records one is looked at; public.
    """
    x, y = corners(values[::stride], N)
    errors = least_errors(x, y, [max(1, steps // 2) for steps in budgets])
    return [step_cost(stride * error, budget) for error, budget in zip(errors, budgets.values())]


def choice(costs: Sequence[int], *, epsilon: float, stride: int = 1) -> ExponentialMechanism:
    """The choice among candidates of these costs, each of which one record moves by at most `stride`.

    >>> choice([3, 0, 9], epsilon=0.5).event
    ApproximateDpEvent(epsilon=0.5, delta=0.0)
    """
    return ExponentialMechanism(-np.array(costs, np.int64), Fraction(epsilon) / (2 * stride), stride)


def choose_steps(
    values: Integers, budgets: Mapping[int, StepBudget], *, N: int, size: float, epsilon: float, curator: Curator
) -> int:
    """One of the keys of `budgets`, by an epsilon-private choice; `size` is a public or noisy number of records."""
    stride = max(1, math.ceil(size / _LOOKED_AT))
    costs = step_costs(values, budgets, N=N, stride=stride)
    [picked] = curator.release(CHOICE_NOTE, choice(costs, epsilon=epsilon, stride=stride))
    return list(budgets)[int(picked)]


@_compile
def _product(height: int, width: int) -> tuple[int, int, int]:
    """height * width in digits of 31 bits, the highest signed; |height| < 2^61, 0 < width <= 2^62."""
    mask = (1 << _HALF) - 1
    top, low, wide, rest = height >> _HALF, height & mask, width >> _HALF, width & mask
    last = low * rest
    middle = top * rest + low * wide + (last >> _HALF)
    return top * wide + (middle >> _HALF), middle & mask, last & mask


@_compile
def _steeper(height: int, width: int, other: int, other_width: int) -> bool:
    """Whether height / width > other / other_width, exactly."""
    return _product(height, other_width) > _product(other, width)


@_compile
def _push(x: Integers, y: Integers, hull: Integers, first: int, last: int, point: int, side: int) -> int:
    """Add a point to the hull[first:last], which bends up (side 1) or down (side -1); returns the new end."""
    while last >= first + 2:
        o, a = hull[last - 2], hull[last - 1]
        if side > 0 and _steeper(y[point] - y[o], x[point] - x[o], y[a] - y[o], x[a] - x[o]):
            break
        if side < 0 and _steeper(y[a] - y[o], x[a] - x[o], y[point] - y[o], x[point] - x[o]):
            break
        last -= 1
    hull[last] = point
    return last + 1


@_compile
def _passes(x: Integers, y: Integers, gap: int, ends: tuple[int, int, int, int], i: int) -> bool:
    """Whether a line that passes the run so far also passes point i; ends as in `pieces_needed`."""
    a, b, c, d = ends
    if _steeper(y[b] - y[a] - gap, x[b] - x[a], y[i] - y[b] + gap, x[i] - x[b]):
        return False
    return not _steeper(y[i] - y[d] - gap, x[i] - x[d], y[d] - y[c] + gap, x[d] - x[c])


@_compile
def _grow(x: Integers, y: Integers, gap: int, start: int) -> tuple[int, tuple[int, int, int, int]]:
    """The first point after `start` that no line through the run can pass, and the four points that say so."""
    upper, lower = np.empty(x.size, np.int64), np.empty(x.size, np.int64)
    a, b, c, d = start, start + 1, start, start + 1
    upper[0], upper[1], lower[0], lower[1] = a, b, a, b
    first_up, last_up, first_low, last_low = 0, 2, 0, 2
    i = start + 2
    while i < x.size and _passes(x, y, gap, (a, b, c, d), i):
        lowers = _steeper(y[d] - y[c] + gap, x[d] - x[c], y[i] - y[c] + gap, x[i] - x[c])
        raises = _steeper(y[i] - y[a] - gap, x[i] - x[a], y[b] - y[a] - gap, x[b] - x[a])
        if lowers:
            while first_low + 1 < last_low:
                p, q = lower[first_low], lower[first_low + 1]
                if _steeper(y[i] - y[q] + gap, x[i] - x[q], y[i] - y[p] + gap, x[i] - x[p]):
                    break
                first_low += 1
            c, d = lower[first_low], i
            last_up = _push(x, y, upper, first_up, last_up, i, 1)
        if raises:
            while first_up + 1 < last_up:
                p, q = upper[first_up], upper[first_up + 1]
                if _steeper(y[i] - y[p] - gap, x[i] - x[p], y[i] - y[q] - gap, x[i] - x[q]):
                    break
                first_up += 1
            a, b = upper[first_up], i
            last_low = _push(x, y, lower, first_low, last_low, i, -1)
        i += 1
    return i, (a, b, c, d)


@_compile
def pieces_needed(x: Integers, y: Integers, error: int, most: int) -> int:
    """Fewest lines, each for a run of neighbouring integers, within `error` of the counts at all integers.

    One pass with exact arithmetic (O'Rourke 1981): the least slope that still passes a run leads from upper point a to
    lower point b, the greatest from lower point c to upper point d. A run that cannot reach the next corner ends inside
    the gap before it, as far on as it can.

    Arguments:
        x: (m,) int64, strictly increasing.
        y: (m,) int64; neighbours more than 1 apart in x have the same y, which all integers between them have too.
        error: whole records, vertically.
        most: more pieces than these are not counted: most + 1 is returned.
    """
    x, gap = x.copy(), 2 * error
    i, pieces = 0, 0
    while i < x.size and pieces <= most:
        pieces += 1
        if i + 1 == x.size:
            break
        i, ends = _grow(x, y, gap, i)
        if i < x.size and y[i] == y[i - 1]:
            corner, passed, failed = x[i], x[i - 1], x[i]
            while failed - passed > 1:
                x[i] = passed + (failed - passed) // 2
                if _passes(x, y, gap, ends, i):
                    passed = x[i]
                else:
                    failed = x[i]
            x[i] = corner
            if failed < corner:
                i -= 1
                x[i] = failed
    return pieces
