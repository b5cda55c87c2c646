"""What public choices of the ordered family may be: numbers that plans, configurations and estimators check alike."""

from dpgen.privacy.limits import require_whole as whole

EPSILON = (1e-3, 1e3)
"""Of one column: every noise scale of every method can be drawn exactly in this range."""

DELTA_BELOW = 0.5
STEPS = (1, 10_000)
CELLS = (1, 2**24)
DEPTH = (1, 22)
LEVELS = (1, 16)

_ROUNDING = 1e-9  # shares of a budget at the end of the range are rounded


def require_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that no noise can be scaled to.

    Raises:
        ValueError: not a number in `EPSILON`.

    >>> require_epsilon(1.0)
    """
    low, high = EPSILON
    wide = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if not (wide and low * (1 - _ROUNDING) <= epsilon <= high * (1 + _ROUNDING)):
        raise ValueError(f"epsilon is {epsilon!r}; it must be in [{low:g}, {high:g}] for each column")


def require_whole(name: str, value: int, limits: tuple[int, int]) -> int:
    """`dpgen.privacy.limits.require_whole` for a pair of limits."""
    return whole(name, value, *limits)
