"""How much noise a budget asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpgen.privacy.accountants import Accountant, Relation, epsilon
from dpgen.privacy.mechanisms import UnsupportedEvent

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.filters import Filter
    from dpgen.privacy.ledger import Budget


def calibrate_noise(
    event_at: Callable[[float], DpEvent],
    budget: Budget,
    *,
    relation: Relation = "add_remove",
    low: float = 0.05,
    high: float = 1e4,
    tolerance: float = 1e-4,
    limits: Filter | None = None,
) -> float:
    """Smallest noise scale `s` in [low, high] with `epsilon(event_at(s)) <= budget.epsilon`, at most `tolerance`
    (relative) above.

    `event_at(s)` is the whole plan at scale `s`: epsilon must fall as `s` grows. The result was itself checked to fit.
    With `limits` epsilon is what that filter counts, for plans whose events are chosen in the light of what they release.

    Raises:
        ValueError: even `high` does not fit; the message states the smallest epsilon reachable. Or `low >= high`.

    >>> from dpgen.privacy.ledger import Budget
    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> round(calibrate_noise(gaussian_event, Budget(1.0, 1e-5)), 2)
    3.73
    """
    if not 0 < low < high < math.inf:
        raise ValueError(f"low is {low!r} and high is {high!r}; 0 < low < high < inf must hold")

    def excess(scale: float, accountant: Accountant = "tightest") -> float:
        if limits is not None:
            spent = limits.epsilon_of(event_at(scale), relation)
        else:
            spent = epsilon(event_at(scale), budget.delta, relation=relation, accountant=accountant)
        return math.log(max(spent, 1e-300) / budget.epsilon)

    if excess(high) > 0:
        least = math.exp(excess(high)) * budget.epsilon
        raise ValueError(
            f"epsilon is {budget.epsilon:g}; at delta {budget.delta:g} this plan reaches no less than {least:.4g}, "
            f"even with noise scale {high:g}: raise epsilon or delta, take fewer steps, or add noise to the rest"
        )
    return _root(excess, *_bracket(excess, low, high), tolerance)


def _bracket(excess: Callable[..., float], low: float, high: float) -> tuple[float, float]:
    """Scales around the answer: RDP, cheap and never too small, finds the upper one."""
    try:
        wide_low, wide_high = low, high
        while wide_high / wide_low > 1.05:
            middle = math.sqrt(wide_low * wide_high)
            wide_low, wide_high = (wide_low, middle) if excess(middle, "rdp") <= 0 else (middle, wide_high)
        high = wide_high
    except UnsupportedEvent:
        pass
    bottom = high
    while bottom > low:
        bottom = max(low, bottom / 1.4)
        if excess(bottom) > 0:
            break
        high = bottom
    return bottom, high


def _root(excess: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """A scale that fits, at most `tolerance` above one that does not, by false position (Illinois) in logarithms."""
    below, above = excess(low), excess(high)
    if below <= 0:
        return low
    side = 0
    while high / low - 1 > tolerance:
        share = min(max(below / (below - above), 0.02), 0.98) if math.isfinite(below) else 0.5
        # aim a little to the safe side, so that the bracket closes from both ends
        middle = math.exp(math.log(low) + share * math.log(high / low) + 0.3 * tolerance)
        if not low < middle < high:
            middle = math.sqrt(low * high)
        value = excess(middle)
        if value > 0:
            low, below, above, side = middle, value, above / (2 if side > 0 else 1), 1
        else:
            high, above, below, side = middle, value, below / (2 if side < 0 else 1), -1
    return high
