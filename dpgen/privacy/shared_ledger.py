"""One ledger for several processes: rank 0 asks and records, the others repeat what it recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from dpgen.privacy.ledger import BudgetExceeded, Ledger, Planned
from dpgen.privacy.ranks import Ranks, RemoteFailure

if TYPE_CHECKING:
    from dp_accounting import DpEvent


class FollowerLedger(Ledger):
    """What ranks other than 0 hold: the plans and charges of rank 0's ledger, for reading. It has no file, grants nothing."""

    def charge(self, event: DpEvent, count: int = 1, *, note: str, group: str | None = None, of: str | None = None) -> NoReturn:
        """Refuse: only rank 0 charges."""
        raise RuntimeError("only rank 0 charges; the other ranks repeat what its ledger has recorded")

    def declare(self, plan: Sequence[Planned]) -> NoReturn:
        """Refuse: only rank 0 declares."""
        raise RuntimeError("only rank 0 declares a plan; the other ranks repeat what its ledger has recorded")

    def repeat(self, event: DpEvent, *, note: str, group: str | None = None) -> None:
        """Take over one charge that rank 0 has recorded."""
        with self._lock:
            mechanism = self._find(event, note, group)
            if mechanism.number is None:
                self._number(mechanism)
            self._book(mechanism, 1)

    def catch_up(self, copy: dict[str, Any]) -> None:
        """Take over everything that rank 0 has recorded."""
        with self._lock:
            self._become(copy)


class SharedLedger:
    """Rank 0's ledger as all ranks see it; every method is called by all of them at the same point.

    Formal guarantees:

    | case | what holds |
    |---|---|
    | a charge is granted, a plan is declared | it is on rank 0's file before any rank goes on; all ranks count it |
    | the budget is spent | all ranks are told so; nothing is charged anywhere |
    | a plan does not fit | all ranks stop; rank 0 raises `BudgetExceeded` |
    | rank 0 cannot record it | all ranks stop; rank 0 raises the ledger's error |
    | number of ranks | does not matter: one step is charged once |

    Arguments:
        ledger: the ledger on rank 0; on other ranks it is not looked at.
        ranks: the processes.

    Attributes:
        ledger: rank 0's ledger there, its `FollowerLedger` elsewhere.
    """

    def __init__(self, ledger: Ledger, ranks: Ranks) -> None:
        self.ranks = ranks
        budget, delta, relation, unit, limits = ranks.first(
            lambda: (ledger.budget, ledger.delta, ledger.relation, ledger.unit, ledger.filter)
        )
        self.ledger = ledger
        if ranks.index:
            self.ledger = FollowerLedger(budget, delta=None if budget else delta, relation=relation, unit=unit)
            self.ledger.filter = limits
        self.catch_up()

    def catch_up(self) -> None:
        """Repeat on all ranks what rank 0 has declared and charged by itself."""
        if self.ranks.count == 1:
            return
        copy = self.ranks.first(self.ledger._copy)
        if isinstance(self.ledger, FollowerLedger):
            self.ledger.catch_up(copy)

    def declare(self, plan: Sequence[Planned]) -> None:
        """Declare a plan, for all ranks together.

        Raises:
            BudgetExceeded: on rank 0, when the plan does not fit; `RemoteFailure` elsewhere.
            LedgerError: on rank 0, when it cannot be recorded; `RemoteFailure` elsewhere.
        """
        self.ranks.first(lambda: self.ledger.declare(plan))
        self.catch_up()

    def authorise(self, event: DpEvent, *, note: str, group: str | None = None) -> bool:
        """Charge one run of `event`, for all ranks together; False when the budget would be exceeded.

        Raises:
            LedgerError: on rank 0, when the charge cannot be recorded; `RuntimeError` elsewhere.
        """
        if self.ranks.count == 1:
            return self._charged(event, note, group)
        refused, failure = False, None  # type: bool, BaseException | None
        if self.ranks.index == 0:
            try:
                refused = not self._charged(event, note, group)
            except BaseException as error:
                failure = error
        refused, failed = self.ranks.any(refused, failure is not None)
        if failure is not None:
            raise failure
        if failed:
            raise RemoteFailure("rank 0 stopped: its ledger could not record a charge")
        if isinstance(self.ledger, FollowerLedger) and not refused:
            self.ledger.repeat(event, note=note, group=group)
        return not refused

    def _charged(self, event: DpEvent, note: str, group: str | None) -> bool:
        try:
            self.ledger.charge(event, note=note, group=group)
        except BudgetExceeded:
            return False
        return True
