r"""How many steps the maximum error rule should take, chosen by an exponential mechanism (the outlook of the 2015 paper).

More steps follow the data more closely and leave less budget for each. Let c(x) be the records below x = 0 ... N, and
$F_p$ the functions on 0 ... N that are linear on each of p runs of neighbouring integers. A candidate t costs the error
$E_p(c) = \min_{f \in F_p} \max_x |c(x) - f(x)|$, p = t / 2, rounded up to whole records, plus public terms for the noise.

Sensitivity 1: neighbours have $|c(x) - c'(x)| \le 1$ at every x, and $F_p$ is the same for both. With f the best for c,
$E_p(c') \le \max_x |c'(x) - f(x)| \le E_p(c) + 1$, and the same with c and c' exchanged; rounding up keeps it.

With many records only every s-th of the sorted ones is kept. Below x there are $\lceil c(x) / s \rceil$ of these, which
moves by at most 1 when c(x) does: the same proof gives sensitivity 1 in kept records, s in records.

Lines that are held to the data only where records are have no such bound: their breaks lie in gaps that the records
make, and one record inside a gap moves their error by the order of n.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numba
import numpy as np

from dpgen.privacy.curator import Curator
from dpgen.privacy.selection import ExponentialMechanism
from dpgen.systems.ordered.knots import Integers
from dpgen.systems.ordered.merr_budget import StepBudget

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
