"""What private draws of points may spend, and how MBDE is configured.

What private draws from a whole data set may cost.

What a run of MBDE draws and how it learns: public choices.
"""

import math
from dataclasses import dataclass
from typing import Literal

from dpgen.privacy.ledger import Budget
from dpgen.privacy.limits import require_positive, require_whole
from dpgen.systems.plan import Plan

# -- draw plan ---------------------------------------------------------------------------------------------------------


WHOLE = "whole data set (integral privacy)"
EPSILONS = (1e-6, 100.0)
"""Range of epsilon for which whole-number weights keep the guarantee and lose nothing."""

CODEBOOKS = (2, 2**16)
"""Range of how many candidates a draw by sampling importance resampling chooses from."""

MOST_TRIES = 2**20
"""Proposals that one draw by rejection may make."""

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


# -- mbde options ------------------------------------------------------------------------------------------------------


LOG2 = math.log(2)
SHARES = ("split", "scaled")


@dataclass(frozen=True, kw_only=True)
class MBDEConfig:
    """Sampler, classifiers and training; public choices, none of them learned from private data.

    Arguments:
        sampler: "sir" (one classifier for every epsilon, whole budget), "rejection" (boosted density, exact) or "metropolis"
            (boosted density, single states of chains, as published).
        rounds: of boosting; None: 3, with "sir" 1.
        alpha: asymmetric box of "sir", in (0, 1): about the share of the reference that the data are thought to cover;
            None: symmetric box.
        codebook: points of the reference for each draw of "sir".
        tries: proposals for each draw of "rejection"; None: so many that its fallback has probability 1e-9.
        chain_length: steps for each draw of "metropolis".
        draws_by: several planned draws get epsilon / draws each ("split"), or classifiers of the whole epsilon scaled down
            by 1 / draws ("scaled"; boosted densities only).
        steps_full: scale theta so that the boosted density uses the whole budget; the paper leaves theta_T of it unused.
        reference: "gaussian" at the data's public location and scale, cut to public bounds, or "uniform" on public bounds.
        training: "fast" (Adam on minibatches with fresh points of the reference) or "paper" (Nesterov 0.01, 750 full-batch
            epochs a round on 10,000 points of the reference).
        steps: training steps a round of "fast".
        batch: private points a step of "fast".
        lr: highest learning rate of "fast".
        hidden: widths of the classifier's tanh layers.

    Source: Husain et al. 2020, section 5, for rounds, hidden and training="paper".
    """

    sampler: Literal["sir", "rejection", "metropolis"] = "sir"
    rounds: int | None = None
    alpha: float | None = None
    codebook: int = 1024
    tries: int | None = None
    chain_length: int = 1000
    draws_by: Literal["split", "scaled"] = "split"
    steps_full: bool = False
    reference: Literal["gaussian", "uniform"] = "gaussian"
    training: Literal["fast", "paper"] = "fast"
    steps: int = 600
    batch: int = 500
    lr: float = 0.02
    hidden: tuple[int, ...] = (25, 25, 25)

    def __post_init__(self) -> None:
        for name, choices in (
            ("sampler", ("sir", "rejection", "metropolis")),
            ("draws_by", SHARES),
            ("training", ("fast", "paper")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        if self.reference not in ("gaussian", "uniform"):
            raise ValueError(f"reference must be one of gaussian, uniform, got {self.reference!r}")
        for name in ("rounds", "steps", "batch", "chain_length"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name))
        for width in self.hidden:
            require_whole("a width in hidden", width)
        require_whole("codebook", self.codebook, *CODEBOOKS)
        if self.tries is not None:
            require_whole("tries", self.tries, 1, MOST_TRIES)
        require_positive("lr", self.lr)
        if self.sampler == "sir" and (self.rounds not in (None, 1) or self.draws_by == "scaled" or self.steps_full):
            raise ValueError("sampler='sir' learns one classifier: rounds must be 1 or None, draws_by 'split', steps_full off")
        if self.alpha is not None:
            if self.sampler != "sir":
                raise ValueError(f"alpha is {self.alpha}: only sampler='sir' has an asymmetric box")
            require_alpha(self.alpha)

    @property
    def total_rounds(self) -> int:
        """Rounds of boosting."""
        return self.rounds if self.rounds is not None else 1 if self.sampler == "sir" else 3


def require_alpha(alpha: float) -> float:
    """The share of the reference that an asymmetric box expects data on, in (0, 1).

    Raises:
        ValueError: it is not.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha!r}; it must lie in (0, 1), or be None for the symmetric box")
    return alpha


def step_sizes(epsilon: float, rounds: int, *, full: bool = False, draws: int = 1) -> list[float]:
    r""":math:`\theta_t = (\epsilon / (\epsilon + 4 \log 2))^t`; `full` divides by their shortfall, `draws` by their number.

    The pair supremum of the density is :math:`4 \log 2 \sum_t \theta_t = \epsilon (1 - \theta_T)` over `draws`; with `full`
    it is exactly epsilon / draws.

    Arguments:
        epsilon: of all draws together.
        rounds: T.
        full: use the whole budget.
        draws: how many draws share it.

    Source: Husain et al. 2020, Algorithm 1.

    >>> [round(theta, 4) for theta in step_sizes(1.0, 3)]
    [0.2651, 0.0703, 0.0186]
    """
    ratio = epsilon / (epsilon + 4 * LOG2)
    scale = 1 / (draws * (1 - ratio**rounds if full else 1.0))
    return [scale * ratio**t for t in range(1, rounds + 1)]
