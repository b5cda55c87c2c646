"""What private draws from a whole data set may cost."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpgen.privacy.ledger import Budget, Ledger
from dpgen.runtime import Runtime
from dpgen.systems.continuous.box import EPSILONS

WHOLE = "whole data set (integral privacy)"
_ROUNDING = 1e-12  # draws x (epsilon / draws) may round above epsilon


@dataclass(frozen=True, kw_only=True)
class DrawPlan:
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
        if isinstance(self.epsilon, bool) or not 0 < self.epsilon < math.inf:
            raise ValueError(f"epsilon is {self.epsilon!r}; it must be a finite number > 0")
        if isinstance(self.draws, bool) or not isinstance(self.draws, int) or self.draws < 1:
            raise ValueError(f"draws is {self.draws!r}; it must be a whole number >= 1")
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

    def open_ledger(self, path: Path | None = None) -> Ledger:
        """A new ledger with this pure budget; the relation replaces the whole data set."""
        return Ledger(Budget(self.epsilon * (1 + _ROUNDING), 0.0), relation="replace_one", unit=WHOLE, path=path)


@dataclass(frozen=True, kw_only=True)
class RecordPlan:
    """One release of a density under central privacy.

    Arguments:
        epsilon: in nats, pure.
        relation: between neighbouring data sets.
        group_size: how many records are protected together; the noise grows with it.

    Raises:
        ValueError: epsilon, relation or group_size out of range.
    """

    epsilon: float = 1.0
    relation: Literal["add_remove", "replace_one"] = "add_remove"
    group_size: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.epsilon, bool) or not 0 < self.epsilon < math.inf:
            raise ValueError(f"epsilon is {self.epsilon!r}; it must be a finite number > 0")
        if self.relation not in ("add_remove", "replace_one"):
            raise ValueError(f"relation is {self.relation!r}; choose one of add_remove, replace_one")
        if isinstance(self.group_size, bool) or not isinstance(self.group_size, int) or self.group_size < 1:
            raise ValueError(f"group_size is {self.group_size!r}; it must be a whole number >= 1")

    def open_ledger(self, path: Path | None = None) -> Ledger:
        """A new ledger with this pure budget."""
        unit = "record" if self.group_size == 1 else f"group of up to {self.group_size} records"
        unit = f"one {unit}"
        return Ledger(Budget(self.epsilon, 0.0), relation=self.relation, unit=unit, path=path)


def require_one_device(runtime: Runtime) -> None:
    """These systems run in one process on one device: a draw needs one function of the points, and no sums over records.

    Raises:
        ValueError: several devices or machines were asked for.
    """
    if runtime.processes > 1:
        raise ValueError(
            f"devices is {runtime.devices} and num_nodes is {runtime.num_nodes}; both must be 1 here: a draw needs one "
            "classifier and no sums over records that devices could share"
        )
