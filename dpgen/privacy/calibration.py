"""How much noise a budget asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpgen.privacy.accountants import Relation, epsilon

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.ledger import Budget


def calibrate_noise(
    event_at: Callable[[float], DpEvent],
    budget: Budget,
    *,
    relation: Relation = "add_remove",
    low: float = 0.05,
    high: float = 1e4,
    tolerance: float = 1e-4,
) -> float:
    """Smallest noise scale `s` in [low, high] with `epsilon(event_at(s)) <= budget.epsilon`, at most `tolerance` (relative) above.

    `event_at(s)` is the whole plan at scale `s`: epsilon must fall as `s` grows. The result was itself checked to fit.

    Raises:
        ValueError: even `high` does not fit; the message states the smallest epsilon reachable. Or `low >= high`.

    >>> from dpgen.privacy.ledger import Budget
    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> round(calibrate_noise(gaussian_event, Budget(1.0, 1e-5)), 2)
    3.73
    """
    if not 0 < low < high < math.inf:
        raise ValueError(f"low is {low!r} and high is {high!r}; 0 < low < high < inf must hold")

    def fits(scale: float) -> bool:
        return epsilon(event_at(scale), budget.delta, relation=relation) <= budget.epsilon

    if fits(low):
        return low
    top = low
    while not fits(min(2 * top, high)):
        if 2 * top >= high:
            least = epsilon(event_at(high), budget.delta, relation=relation)
            raise ValueError(
                f"epsilon is {budget.epsilon:g}; at delta {budget.delta:g} this plan reaches no less than {least:.4g}, "
                f"even with noise scale {high:g}: raise epsilon or delta, take fewer steps, or add noise to the rest"
            )
        top *= 2
    low, high = top, min(2 * top, high)
    while high / low - 1 > tolerance:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
