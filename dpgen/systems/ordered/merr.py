r"""The Maximum Error Rule, and the private choice of how many steps it takes.

How many steps the maximum error rule should take, chosen by an exponential mechanism (the outlook of the 2015 paper).

More steps follow the data more closely and leave less budget for each. Let c(x) be the records below x = 0 ... N, and
$F_p$ the functions on 0 ... N that are linear on each of p runs of neighbouring integers. A candidate t costs the error
$E_p(c) = \min_{f \in F_p} \max_x |c(x) - f(x)|$, p = t / 2, rounded up to whole records, plus public terms for the noise.

Sensitivity 1: neighbours have $|c(x) - c'(x)| \le 1$ at every x, and $F_p$ is the same for both. With f the best for c,
$E_p(c') \le \max_x |c'(x) - f(x)| \le E_p(c) + 1$, and the same with c and c' exchanged; rounding up keeps it.

With many records only every s-th of the sorted ones is kept. Below x there are $\lceil c(x) / s \rceil$ of these, which
moves by at most 1 when c(x) does: the same proof gives sensitivity 1 in kept records, s in records.

Lines that are held to the data only where records are have no such bound: their breaks lie in gaps that the records
make, and one record inside a gap moves their error by the order of n.

The Maximum Error Rule: find where the model is most wrong, ask there, repeat (Diakonikolas, Hardt, Schmidt 2015).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

import numba
import numpy as np

from dpgen.privacy.curator import Curator
from dpgen.privacy.events import approximate_event
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.limits import require_whole
from dpgen.privacy.mechanisms import Mechanism
from dpgen.privacy.parallel import Relation
from dpgen.privacy.selection import ExponentialMechanism
from dpgen.systems.ordered.cells import DyadicSelection, levels
from dpgen.systems.ordered.counts import planned_size, released_size, size_is_free
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.knots import Integers, MonotoneCounts, monotone_counts
from dpgen.systems.ordered.merr_budget import Composition, Selection, StepBudget, StepTerms, step_budget
from dpgen.systems.ordered.plan import DELTA_BELOW, STEPS
from dpgen.systems.ordered.selection import ChoosingSelection, PointSelection

# -- private steps -----------------------------------------------------------------------------------------------------


CANDIDATES = (1, 2, 4, 8, 12, 20, 40, 80)
CHOICE_NOTE = f"number of steps, exponential mechanism over {list(CANDIDATES)}"
_LOOKED_AT = 2**16
_HALF = 31  # bits

_compile = numba.njit(nogil=True, cache=True)


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
def pieces_needed(x: Integers, y: Integers, error: int, most: int, anywhere: bool = True) -> int:
    """Fewest lines, each for a run of neighbouring integers, within `error` of the counts at all integers.

    One pass with exact arithmetic (O'Rourke 1981): the least slope that still passes a run leads from upper point a to
    lower point b, the greatest from lower point c to upper point d. A run that cannot reach the next corner ends inside
    the gap before it, as far on as it can.

    Arguments:
        x: (m,) int64, strictly increasing.
        y: (m,) int64; neighbours more than 1 apart in x have the same y, which all integers between them have too.
        error: whole records, vertically.
        most: more pieces than these are not counted: most + 1 is returned.
        anywhere: False ignores what lies between the corners, which has no bounded sensitivity; the tests show it.
    """
    x, gap = x.copy(), 2 * error
    i, pieces = 0, 0
    while i < x.size and pieces <= most:
        pieces += 1
        if i + 1 == x.size:
            break
        i, ends = _grow(x, y, gap, i)
        if anywhere and i < x.size and y[i] == y[i - 1]:
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


def corners(values: Integers, N: int) -> tuple[Integers, Integers]:
    """Points (x, records below x) before and after each of the sorted values, and at the ends of 0 ... N.

    >>> [part.tolist() for part in corners(np.array([3, 3, 5]), 8)]
    [[0, 3, 4, 5, 6, 8], [0, 0, 2, 2, 3, 3]]
    """
    some = np.unique(values)
    x = np.unique(np.concatenate([[0], some, some + 1, [N]]))
    return x, np.searchsorted(values, x, side="left")


def least_errors(x: Integers, y: Integers, pieces: list[int], *, anywhere: bool = True) -> list[int]:
    """For each number of pieces the least whole error with which so many lines pass, as in `pieces_needed`.

    >>> least_errors(np.arange(5), np.array([0, 0, 4, 4, 4]), [1, 2])
    [2, 0]
    """
    known: dict[int, int] = {}

    def needed(error: int) -> int:
        if error not in known:
            known[error] = int(pieces_needed(x, y, error, max(pieces), anywhere))
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


def step_costs(
    values: Integers, budgets: Mapping[int, StepBudget], *, N: int, stride: int = 1, anywhere: bool = True
) -> list[int]:
    """Cost in records of each candidate; one record moves each by at most `stride`.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        budgets: for each candidate what its steps may spend.
        stride: every so many records one is looked at; public.
        anywhere: see `pieces_needed`.
    """
    x, y = corners(values[::stride], N)
    errors = least_errors(x, y, [max(1, steps // 2) for steps in budgets], anywhere=anywhere)
    return [step_cost(stride * error, budget) for error, budget in zip(errors, budgets.values())]


def choice(costs: Sequence[int], *, epsilon: float, stride: int = 1) -> ExponentialMechanism:
    """The mechanism that chooses among candidates of these costs, each of which one record moves by at most `stride`.

    >>> choice([3, 0, 9], epsilon=0.5).event
    ApproximateDpEvent(epsilon=0.5, delta=0.0)
    """
    return ExponentialMechanism(-np.array(costs, np.int64), Fraction(epsilon) / (2 * stride), stride)


def choose_steps(
    values: Integers, budgets: Mapping[int, StepBudget], *, N: int, size: float, epsilon: float, curator: Curator
) -> int:
    """One of the keys of `budgets`, chosen epsilon-privately.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        budgets: for each candidate what its steps may spend.
        size: public or noisy number of records.
        epsilon: in nats, of the choice.

    Raises:
        BudgetExceeded: nothing was drawn.
    """
    stride = max(1, math.ceil(size / _LOOKED_AT))
    costs = step_costs(values, budgets, N=N, stride=stride)
    [chosen] = curator.release(CHOICE_NOTE, choice(costs, epsilon=epsilon, stride=stride))
    return list(budgets)[int(chosen)]


# -- merr --------------------------------------------------------------------------------------------------------------


class _Selector(Protocol):
    """Who finds where a public model is wrong: a point, the ends of an interval, or None to stop."""

    def given(self, model: MonotoneCounts) -> Mechanism[Sequence[int | tuple[int, int] | None]]: ...


_SIZE_SHARE = 0.05  # of epsilon, for the number of records where it is private
_STEPS_SHARE = 0.1  # of epsilon, for a private number of steps
_WHOLE_NOTE = "MERR, the steps of any candidate"


@dataclass(frozen=True, kw_only=True)
class MERR(OrderedEstimator):
    r"""Piecewise linear model of the prefix counts, refined where a private selection finds the largest error.

    Each of T steps selects a dyadic interval (or a point) with a large error |count - model| and adds noisy prefix counts
    at its ends. After every step the answers are averaged, made monotone and clipped.

    Formal guarantees:
        - `fit` is (epsilon, delta)-DP under the relation of the ledger that is charged; delta is used by "zcdp" and
          "choosing" only.
        - Split: 5 % of epsilon for a noisy number of records, under add/remove without `size`; 10 % for a private number
          of steps; the rest evenly over the steps, `share` of it for the selections.
        - A fixed number of steps is a plan: T selections and T answers, declared before the data are looked at. Choosing may
          stop earlier; what is stated is the whole plan.
        - After a private choice of T all that is left is charged at once, as the guarantee that every candidate keeps:
          what a chosen T really costs depends on the outcome, and the worst of them is what holds. The steps then run under
          a ledger of their own, which enforces it.

    Arguments:
        epsilon: in nats.
        delta: 0 for a pure guarantee.
        selection: "points", "exponential" (dyadic intervals) or "choosing" (dyadic intervals, approximate).
        steps: T, or "private": an exponential mechanism over `private_steps.CANDIDATES`.
        composition: "basic" (Laplace noise) or "zcdp" (Gaussian noise).
        share: of a step's budget for its selection; None: 0.5, and 0.7 for dyadic intervals in zcdp.
        size: number of records, if it is public under add/remove.
        published_noise: the noise that Figure 2 prints, Laplace(1/2) per count; its true cost, 4 T under replace-one, is
            charged beside the selections, so a ledger with budget epsilon refuses it.

    Raises:
        ValueError: a value out of range.

    Source: Diakonikolas, Hardt, Schmidt 2015, Figure 2, with corrected noise; Lemma 2 does not hold as printed.

    >>> from dpgen.privacy.ledger import Ledger
    >>> rule = MERR(epsilon=50.0, steps=6, composition="basic")
    >>> fit = rule.fit_counts(np.full(10**4, 3), N=8, curator=Curator(Ledger(None, delta=1e-6)))
    >>> bool(abs(fit.at(np.array([3, 4])) - [0, 10**4]).max() < 200)
    True
    """

    selection: Selection = "points"
    steps: int | Literal["private"] = 20
    composition: Composition = "zcdp"
    share: float | None = None
    published_noise: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.delta < DELTA_BELOW:
            raise ValueError(f"delta is {self.delta!r}; it must lie in [0, {DELTA_BELOW})")
        if self.selection not in ("choosing", "exponential", "points"):
            raise ValueError(f"selection is {self.selection!r}; choose one of choosing, exponential, points")
        if self.composition not in ("basic", "zcdp"):
            raise ValueError(f"composition is {self.composition!r}; choose one of basic, zcdp")
        if self.delta == 0 and (self.composition == "zcdp" or self.selection == "choosing"):
            raise ValueError(f"delta is 0; composition {self.composition!r} with selection {self.selection!r} needs delta > 0")
        if self.steps != "private":
            require_whole("steps", self.steps, *STEPS)
        elif self.published_noise:
            raise ValueError("steps is 'private'; published_noise needs a fixed number, its cost depends on it")
        if self.share is not None and not 0 < self.share < 1:
            raise ValueError(f"share is {self.share!r}; it must be None or lie in (0, 1)")

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        """The number of records where it is private, the steps; or the choice of their number and all candidates at once."""
        epsilon, budgets = self._budgets(N, relation)
        size = planned_size(self.size, _SIZE_SHARE * self.epsilon, relation)
        if self.steps != "private":
            return [*size, *budgets[self.steps].planned(self.steps)]
        whole = self._whole(epsilon)
        chosen = Planned(choice([], epsilon=_STEPS_SHARE * self.epsilon).event, CHOICE_NOTE)
        return [*size, chosen, Planned(approximate_event(whole.epsilon, whole.delta), _WHOLE_NOTE)]

    def _whole(self, epsilon: float) -> Budget:
        pure = self.composition == "basic" and self.selection != "choosing"
        return Budget(epsilon, 0.0 if pure else self.delta)

    def release(self, values: Integers, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of sorted values (n,) int64 in [0, N), at the knots that were selected."""
        epsilon, budgets = self._budgets(N, curator.relation)
        size = released_size(values, self.size, epsilon=_SIZE_SHARE * self.epsilon, curator=curator)
        budgets = {t: budget.for_size(size) for t, budget in budgets.items()}
        if self.steps != "private":
            return _refine(values, budgets[self.steps], steps=self.steps, N=N, size=size, curator=curator)
        steps = choose_steps(values, budgets, N=N, size=size, epsilon=_STEPS_SHARE * self.epsilon, curator=curator)
        inner = curator.enclosed(_WHOLE_NOTE, self._whole(epsilon))
        inner.declare(*budgets[steps].planned(steps))
        return _refine(values, budgets[steps], steps=steps, N=N, size=size, curator=inner)

    def _budgets(self, N: int, relation: Relation) -> tuple[float, dict[int, StepBudget]]:
        """What is left for the steps, and how each number of steps that may be taken divides it."""
        epsilon = self.epsilon if size_is_free(self.size, relation) else (1 - _SIZE_SHARE) * self.epsilon
        if self.steps != "private":
            return epsilon, {self.steps: self._budget(self.steps, epsilon, N, relation)}
        epsilon = (1 - 1e-12) * (epsilon - _STEPS_SHARE * self.epsilon)  # the sum of the parts must not round up
        return epsilon, {t: self._budget(t, epsilon, N, relation) for t in CANDIDATES}

    def _budget(self, steps: int, epsilon: float, N: int, relation: Relation) -> StepBudget:
        terms = StepTerms(
            selection=self.selection,
            steps=steps,
            composition=self.composition,
            share=self.share or (0.7 if self.composition == "zcdp" and self.selection != "points" else 0.5),
            relation=relation,
            levels=levels(N),
            size=1.0,
            published=self.published_noise,
        )
        return step_budget(terms, epsilon=epsilon, delta=self.delta)


def _selector(values: Integers, budget: StepBudget, N: int) -> _Selector:
    if budget.choosing is not None:
        return ChoosingSelection(values, N=N, constants=budget.choosing, relation=budget.relation)
    kind = PointSelection if budget.answers == "point" else DyadicSelection
    return kind(values, N=N, rate=budget.rate, zcdp=budget.composition == "zcdp")


def _refine(values: Integers, budget: StepBudget, *, steps: int, N: int, size: float, curator: Curator) -> MonotoneCounts:
    """The T steps; choosing may stop earlier."""
    selector = _selector(values, budget, N)
    knots: list[int] = []
    counts: list[float] = []
    variances: list[float] = []
    model = MonotoneCounts(np.array([0, N]), np.array([0.0, size]))
    for _ in range(steps):
        [selected] = curator.release(budget.selection_note, selector.given(model))
        if selected is None:
            break
        ends = (selected, selected) if isinstance(selected, int) else selected
        for knot, count, variance in ask(values, ends, budget, N=N, curator=curator):
            knots.append(knot)
            counts.append(count)
            variances.append(variance)
        model = monotone_counts(np.array(knots, np.int64), np.array(counts), np.array(variances), N=N, size=size)
    return model


def ask(
    values: Integers, ends: tuple[int, int], budget: StepBudget, *, N: int, curator: Curator
) -> list[tuple[int, float, float]]:
    """Noisy prefix counts at both ends of an interval, or at a point (two equal ends): (knot, count, variance) each.

    The cells left of the interval and inside it are asked, as in Figure 2; ends at 0 or N need no answer.
    """
    inner = sorted({x for x in ends if 0 < x < N})
    if not inner:
        return []
    prefixes = np.cumsum(budget.answer(values, inner, curator))
    variance = budget.variance("interval" if len(inner) == 2 else "point")
    return [(knot, float(prefix), variance * (i + 1)) for i, (knot, prefix) in enumerate(zip(inner, prefixes))]
