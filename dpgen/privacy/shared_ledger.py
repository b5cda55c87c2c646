"""One ledger for several processes: rank 0 asks and records, the others repeat what it recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from dpgen.privacy.ledger import BudgetExceeded, Ledger, LedgerEntry
from dpgen.privacy.ranks import Ranks, RemoteFailure

if TYPE_CHECKING:
    from dp_accounting import DpEvent


class FollowerLedger(Ledger):
    """What ranks other than 0 hold: the charges of rank 0's ledger so far, for reading. It has no file and grants nothing."""

    def charge(self, event: DpEvent, count: int = 1, *, note: str, group: str | None = None) -> NoReturn:
        """Refuse: only rank 0 charges."""
        raise RuntimeError("only rank 0 charges; the other ranks repeat what its ledger has recorded")

    def repeat(self, entries: list[LedgerEntry]) -> None:
        """Take over charges that rank 0 has recorded."""
        for entry in entries:
            super().charge(entry.event, entry.count, note=entry.note, group=entry.group)


class SharedLedger:
    """Rank 0's ledger as all ranks see it; every method is called by all of them at the same point.

    Formal guarantees:

    | case | what holds |
    |---|---|
    | a charge is granted | it is on rank 0's file before any rank goes on; all ranks count it |
    | the budget is spent | all ranks are told so; nothing is charged anywhere |
    | rank 0 cannot record it | all ranks stop; rank 0 raises the ledger's error |
    | number of ranks | does not matter: one step is charged once |

    Arguments:
        ledger: the ledger on rank 0; on other ranks it is not looked at.
        ranks: the processes.

    Attributes:
        ledger: rank 0's ledger there, its `FollowerLedger` elsewhere.
    """

    def __init__(self, ledger: Ledger, ranks: Ranks) -> None:
        self.ranks, self._seen = ranks, 0
        delta, relation, unit = ranks.first(lambda: (ledger.delta, ledger.relation, ledger.unit))
        self.ledger = ledger if ranks.index == 0 else FollowerLedger(None, delta=delta, relation=relation, unit=unit)
        self.catch_up()

    def catch_up(self) -> None:
        """Repeat on all ranks what rank 0 has charged by itself since the last time."""
        if self.ranks.count == 1:
            return
        news = self.ranks.first(self._news)
        if isinstance(self.ledger, FollowerLedger):
            self.ledger.repeat(news)

    def _news(self) -> list[LedgerEntry]:
        """Charges since the last call, on rank 0."""
        news, passed = [], 0
        for entry in self.ledger.entries():
            fresh = min(entry.count, passed + entry.count - self._seen)
            passed += entry.count
            if fresh > 0:
                news.append(LedgerEntry(entry.note, entry.event, fresh, entry.group))
        self._seen = passed
        return news

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
            self.ledger.repeat([LedgerEntry(note, event, 1, group)])
        self._seen += not refused
        return not refused

    def _charged(self, event: DpEvent, note: str, group: str | None) -> bool:
        try:
            self.ledger.charge(event, note=note, group=group)
        except BudgetExceeded:
            return False
        return True
