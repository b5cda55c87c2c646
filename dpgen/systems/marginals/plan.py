"""Privacy budget and public choices of MWEM."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from dpgen.privacy.mechanisms import Relation, require_whole
from dpgen.systems.plan import RowPlan

if TYPE_CHECKING:
    from dp_accounting import DpEvent


TOTAL_SHARE = 0.05
"""Share of epsilon for the noisy totals, if there are any."""


@dataclass(frozen=True, kw_only=True)
class MWEMPlan(RowPlan):
    r"""Budget of MWEM: noisy totals, then T rounds of one selection and one measurement of equal cost.

    With delta = 0 a round costs :math:`.95\,\epsilon / T` and the totals the rest, as in the paper; with delta > 0 the same
    pure mechanisms are composed by the accountant, which leaves each of them more. Totals are the number of records,
    unless it is public (`keeps_size`), and the sum over items, which on cells is the number of records again.

    Arguments:
        epsilon: budget in nats.
        delta: of the guarantee, in [0, 1).
        relation: neighbouring relation; every query is a sum of contributions in [0, max_items], so that both relations
            have the same sensitivity.
        rounds: T.

    Source: Hardt, Ligett, McSherry 2012, Figure 1; 50 rounds as in Acs et al. 2017, section IV.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    relation: Relation = "add_remove"
    rounds: int = 50
    several_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("rounds", self.rounds)

    def total_epsilon(self, totals: int = 2) -> float:
        """Cost of each of the noisy totals, the number of records and the sum over items."""
        return TOTAL_SHARE * self.epsilon / totals

    def event(self, step: float, totals: int = 2) -> "DpEvent":
        """Everything that is released when a selection or a measurement costs `step`."""
        from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

        from dpgen.privacy.mechanisms import pure_event

        rounds = SelfComposedDpEvent(pure_event(step), 2 * self.rounds)
        if not totals:
            return rounds
        return ComposedDpEvent([SelfComposedDpEvent(pure_event(self.total_epsilon(totals)), totals), rounds])

    def step_epsilon(self, totals: int = 2) -> float:
        """The largest cost of one selection, and of one measurement, with which the run fits the budget."""
        from dpgen.privacy.accountants import epsilon

        share = TOTAL_SHARE if totals else 0.0
        low = (1 - share) * self.epsilon / (2 * self.rounds) * (1 - 1e-12)
        if not self.delta:
            return low
        high = self.epsilon
        while high / low > 1 + 1e-4:
            middle = math.sqrt(low * high)
            fits = epsilon(self.event(middle, totals), self.delta, relation=self.relation) <= self.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return low


@dataclass(frozen=True, kw_only=True)
class MWEMConfig:
    """Public choices of MWEM.

    Arguments:
        domain: "items" keeps one weight per column and answers sums over columns, as Acs et al. 2017 used MWEM; "cells"
            keeps one weight for every combination of bits and label, at most 65,536; "auto": cells up to 12 columns.
        max_items: largest number of ones of a record that count, the sensitivity of a query on items; of more, those
            that come first in a public random order of the columns. Ignored on cells, where a record counts once.
        queries: number of random queries on items (five length classes up to `longest`).
        longest: longest query on items, in columns; None: all of them.
    """

    domain: Literal["auto", "items", "cells"] = "auto"
    max_items: int = 12
    queries: int = 1000
    longest: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_items", "queries"):
            require_whole(name, getattr(self, name))
        if self.longest is not None:
            require_whole("longest", self.longest)
