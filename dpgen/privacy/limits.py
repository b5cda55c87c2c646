"""Ranges of public numbers, refused in one sentence: the name, the value, what is allowed."""

import math


def require_whole(name: str, value: int, low: int = 1, high: int | None = None) -> int:
    """A whole number in [low, high], or from `low` on.

    Raises:
        ValueError: it is not.

    >>> require_whole("rounds", 20)
    20
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        allowed = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise ValueError(f"{name} is {value!r}; it must be a whole number {allowed}")
    return value


def require_positive(name: str, value: float | None) -> float:
    """A finite number above 0.

    Raises:
        ValueError: it is not.

    >>> require_positive("noise_multiplier", 0.5)
    0.5
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}; it must be a finite number > 0")
    return float(value)
