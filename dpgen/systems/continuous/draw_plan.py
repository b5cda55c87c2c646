"""What private draws from a whole data set may cost."""

from dataclasses import dataclass

from dpgen.privacy.ledger import Budget
from dpgen.privacy.limits import require_whole
from dpgen.systems.plan import Plan

WHOLE = "whole data set (integral privacy)"
EPSILONS = (1e-6, 100.0)
"""Range of epsilon for which whole-number weights keep the guarantee and lose nothing."""

_ROUNDING = 1e-12  # draws x (epsilon / draws) may round above epsilon


@dataclass(frozen=True, kw_only=True)
class DrawPlan(Plan):
    """Draws from a sampler under integral privacy (Husain et al. 2018, Definition 2): any data set may replace any other.

    With a data set of one record this is local privacy.

    Arguments:
        epsilon: of all draws together, in nats; in [1e-6, 100] for each.
        draws: how many are made; each may cost epsilon / draws.

    Raises:
        ValueError: epsilon or draws out of range.

    >>> DrawPlan(epsilon=1.0, draws=4).per_draw
    0.25
    """

    epsilon: float = 1.0
    draws: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("draws", self.draws)
        self._require_share()

    def _require_share(self) -> None:
        low, high = EPSILONS
        if not low <= self.per_draw <= high:
            raise ValueError(
                f"epsilon is {self.epsilon!r} for draws {self.draws}, {self.per_draw:g} each; it must be in "
                f"[{low:g}, {high:g}] for one draw"
            )

    @property
    def per_draw(self) -> float:
        """Epsilon of one draw."""
        return self.epsilon / self.draws

    @property
    def unit(self) -> str:
        return WHOLE

    @property
    def budget(self) -> Budget:
        """The pure budget of all draws, with room for the rounding of their sum."""
        return Budget(self.epsilon * (1 + _ROUNDING), 0.0)
