r"""How many steps the maximum error rule should take, chosen by an exponential mechanism (the outlook of the 2015 paper).

More steps follow the data more closely and leave less budget for each. A candidate t is scored by minus the records by
which the best piecewise linear model with t / 2 pieces is off, plus public terms for the noise of t steps. That minimum
over models, which do not depend on the data, of a largest deviation moves by at most 1 with one record. It is taken over
every stride-th record, which makes it too small by at most stride - 1, and is rounded up to whole records: stride + 1
bounds its sensitivity.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

import numba
import numpy as np
import numpy.typing as npt

from dpgen.privacy.events import pure_event
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.selection import exponential_mechanism
from dpgen.systems.ordered.merr_budget import StepBudget

if TYPE_CHECKING:
    from dpgen.privacy.ledger import Ledger

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

CANDIDATES = (1, 2, 4, 8, 12, 20, 40, 80)
_LOOKED_AT = 2**16

_compile = numba.njit(nogil=True, cache=True)


@_compile
def _steeper(x: Integers, a: int, b: int, height: float, c: int, d: int, other: float) -> bool:
    """Whether the slope of `height` between points a < b exceeds that of `other` between c < d."""
    return bool(height * np.float64(x[d] - x[c]) > other * np.float64(x[b] - x[a]))


@_compile
def pieces_needed(x: Integers, y: Integers, error: float) -> int:
    """Fewest lines, each for a run of neighbouring points, that pass all points (x, y) within `error` vertically.

    One pass (O'Rourke 1981): the least and the greatest slope that still pass the points of a run, with the parts of the
    two convex hulls that can bound them. x (m,) must increase strictly.
    """
    upper, lower = np.empty(x.size, np.int64), np.empty(x.size, np.int64)
    gap = 2 * error
    i, pieces = 0, 0
    while i < x.size:
        pieces += 1
        if i + 1 == x.size:
            break
        # The least slope runs from upper point a to lower point b, the greatest from lower point c to upper point d.
        a, b, c, d = i, i + 1, i, i + 1
        upper[0], upper[1], lower[0], lower[1] = i, i + 1, i, i + 1
        first_up, last_up, first_low, last_low = 0, 2, 0, 2
        i += 2
        while i < x.size:
            least, greatest = y[b] - y[a] - gap, y[d] - y[c] + gap
            if _steeper(x, a, b, least, b, i, y[i] - y[b] + gap) or _steeper(x, d, i, y[i] - y[d] - gap, c, d, greatest):
                break
            lowers_greatest = _steeper(x, c, d, greatest, c, i, y[i] - y[c] + gap)
            raises_least = _steeper(x, a, i, y[i] - y[a] - gap, a, b, least)
            if lowers_greatest:
                while first_low + 1 < last_low and not _steeper(
                    x,
                    lower[first_low + 1],
                    i,
                    y[i] - y[lower[first_low + 1]] + gap,
                    lower[first_low],
                    i,
                    y[i] - y[lower[first_low]] + gap,
                ):
                    first_low += 1
                c, d = lower[first_low], i
                last_up = _push(x, y, upper, first_up, last_up, i, 1.0)
            if raises_least:
                while first_up + 1 < last_up and not _steeper(
                    x,
                    upper[first_up],
                    i,
                    y[i] - y[upper[first_up]] - gap,
                    upper[first_up + 1],
                    i,
                    y[i] - y[upper[first_up + 1]] - gap,
                ):
                    first_up += 1
                a, b = upper[first_up], i
                last_low = _push(x, y, lower, first_low, last_low, i, -1.0)
            i += 1
    return pieces


@_compile
def _push(x: Integers, y: Integers, hull: Integers, first: int, last: int, point: int, side: float) -> int:
    """Add a point to the hull[first:last], which bends up (side 1) or down (side -1); returns the new end."""
    while last >= first + 2:
        o, a = hull[last - 2], hull[last - 1]
        turn = np.float64(x[a] - x[o]) * (y[point] - y[o]) - (y[a] - y[o]) * np.float64(x[point] - x[o])
        if side * turn > 0:
            break
        last -= 1
    hull[last] = point
    return last + 1


def corners(values: Integers, N: int, stride: int) -> tuple[Integers, Integers]:
    """Points (x, records below x) before and after every stride-th of the sorted values, and at the ends of [N].

    >>> [part.tolist() for part in corners(np.array([3, 3, 5]), 8, 1)]
    [[0, 3, 4, 5, 6, 8], [0, 0, 2, 2, 3, 3]]
    """
    some = np.unique(values[::stride])
    x = np.unique(np.concatenate([[0], some, some + 1, [N]]))
    return x, np.searchsorted(values, x, side="left")


def least_errors(x: Integers, y: Integers, pieces: list[int]) -> list[int]:
    """For each number of pieces the least whole error with which so many lines pass all points.

    >>> least_errors(np.arange(5), np.array([0, 0, 4, 4, 4]), [1, 2])
    [2, 0]
    """
    known: dict[int, int] = {}

    def needed(error: int) -> int:
        if error not in known:
            known[error] = int(pieces_needed(x, y, float(error)))
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


def choose_steps(
    values: Integers,
    budgets: Mapping[int, StepBudget],
    *,
    N: int,
    size: float,
    epsilon: float,
    ledger: "Ledger",
    source: SecureSource,
) -> int:
    """One of the keys of `budgets`, chosen epsilon-privately; charges the ledger first.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        budgets: for each candidate what its steps may spend.
        size: public or noisy number of records.
        epsilon: in nats, of the choice.
    """
    ledger.charge(pure_event(epsilon), note=f"number of steps, exponential mechanism over {list(budgets)}")
    stride = max(1, math.ceil(size / _LOOKED_AT))
    errors = least_errors(*corners(values, N, stride), [max(1, steps // 2) for steps in budgets])
    rate = epsilon / (2 * (stride + 1))
    costs = np.array([step_cost(error, budget) for error, budget in zip(errors, budgets.values())])
    weights = [Fraction(rate) * -int(cost) for cost in costs]
    sizes = np.ones(len(weights), np.uint64)
    chosen, _ = exponential_mechanism(source, sizes, -rate * costs.astype(np.float64), lambda block, _: weights[block])
    return list(budgets)[chosen]
