"""Privacy budgets and public choices of draws of points, by MBDE, channels and the Bernstein mechanism."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from dpgen.privacy.ledger import Budget
from dpgen.privacy.mechanisms import Relation, require_whole, require_within
from dpgen.systems.plan import Plan, RowPlan

WHOLE = "whole data set (integral privacy)"
EPSILONS = (1e-6, 100.0)
"""Range of epsilon of one draw for which whole-number weights keep the guarantee and lose nothing."""

CODEBOOKS = (2, 2**16)
"""Range of how many candidates a draw by sampling importance resampling chooses from."""

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
    limits: ClassVar[tuple[float, float]] = EPSILONS
    """Least and largest epsilon of one draw."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("draws", self.draws)
        low, high = self.limits
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
    def protected(self) -> str:
        return WHOLE

    @property
    def budget(self) -> Budget:
        """The pure budget of all draws, with room for the rounding of their sum."""
        return Budget(self.epsilon * (1 + _ROUNDING), 0.0)


LOG2 = math.log(2)
ReferenceName = Literal["gaussian", "uniform"]


@dataclass(frozen=True, kw_only=True)
class MBDEConfig:
    """Draws, the classifier and its training; public choices, none of them learned from private data.

    Arguments:
        rounds: T classifiers of boosting; 1: the log-odds of one classifier, which serve every epsilon, use the whole budget
            and are nearer to the best density.
        alpha: asymmetric box, in (0, 1): about the share of the reference that the data are thought to cover;
            None: symmetric box.
        codebook: points of the reference for each draw.
        reference: "gaussian" at the data's public location and scale, cut to public bounds, or "uniform" on public bounds.
        reference_path: directory of a released model of points, whose samples are the reference instead.
        steps: training steps a round, of Adam on minibatches with fresh points of the reference.
        batch: private points a step.

    Source: Husain et al. 2020, section 5, for rounds.
    """

    rounds: int = 1
    alpha: float | None = None
    codebook: int = 1024
    reference: ReferenceName = "gaussian"
    reference_path: str | None = None
    steps: int = 600
    batch: int = 500

    def __post_init__(self) -> None:
        if self.reference not in (allowed := get_args(ReferenceName)):
            raise ValueError(f"reference must be one of {', '.join(allowed)}, got {self.reference!r}")
        for name in ("rounds", "steps", "batch"):
            require_whole(name, getattr(self, name))
        require_whole("codebook", self.codebook, *CODEBOOKS)
        if self.alpha is not None:
            require_alpha(self.alpha)


def require_alpha(alpha: float) -> float:
    """The share of the reference that an asymmetric box expects data on, in (0, 1)."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha!r}; it must lie in (0, 1), or be None for the symmetric box")
    return alpha


def step_sizes(epsilon: float, rounds: int) -> list[float]:
    r""":math:`\theta_t = (\epsilon / (\epsilon + 4 \log 2))^t`: the pair supremum of the density is
    :math:`4 \log 2 \sum_t \theta_t = \epsilon (1 - \theta_T)`.

    Source: Husain et al. 2020, Algorithm 1.

    >>> [round(theta, 4) for theta in step_sizes(1.0, 3)]
    [0.2651, 0.0703, 0.0186]
    """
    return [(epsilon / (epsilon + 4 * LOG2)) ** t for t in range(1, rounds + 1)]


GRID_CELLS = (2, 2**24)
"""Range of the cells on an axis of a lattice, and of the whole lattice."""

BANDWIDTHS = (1e-6, 1.0)
"""Range of a kernel's standard deviation, as a share of the box's width."""


@dataclass(frozen=True, kw_only=True)
class GridResponseConfig:
    """Public choices of randomised response on a grid.

    Arguments:
        cells: on each axis of the box; the grid has cells^d of them. Fewer cells keep more of a draw's truth.
    """

    cells: int = 10

    def __post_init__(self) -> None:
        require_whole("cells", self.cells, *GRID_CELLS)


@dataclass(frozen=True, kw_only=True)
class BernsteinPlan(RowPlan):
    """One release of a density under central privacy.

    Arguments:
        epsilon: in nats, pure.
        relation: between neighbouring data sets.
    """

    epsilon: float = 1.0
    relation: Relation = "add_remove"
    several_rows: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class BernsteinConfig:
    """Public choices of the Bernstein mechanism; choosing them by cross-validation on the private points would leak.

    Arguments:
        degree: k of the polynomial on each axis; there are (k + 1)^d coefficients.
        bandwidth: standard deviation of the Gaussian kernel, as a share of the box's width, in [1e-6, 1].
        floor: share of the uniform density that is mixed in, so that no point of the box has density 0.
    """

    degree: int = 60
    bandwidth: float = 0.03
    floor: float = 0.01

    def __post_init__(self) -> None:
        require_whole("degree", self.degree, high=2**14)
        require_within("bandwidth", self.bandwidth, BANDWIDTHS)
        if not 0 <= self.floor <= 1:
            raise ValueError(f"floor is {self.floor!r}; it must be in [0, 1]")
