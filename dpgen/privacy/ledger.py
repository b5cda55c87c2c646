"""The ledger: every mechanism asks it before it runs, and what it has written survives a crash."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dpgen.privacy.ledger_file import LedgerError, LedgerFile, decode_event, encode_event
from dpgen.privacy.limits import require_positive, require_whole
from dpgen.privacy.parallel import Loads, Mechanism, Relation, rdp_bound, worst

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.accountants import Accountant

__all__ = ["Budget", "BudgetExceeded", "Ledger", "LedgerEntry", "LedgerError"]

_FORMAT = 1


@dataclass(frozen=True)
class Budget:
    """What a run may spend: `epsilon` in nats, finite and > 0, at `delta` in [0, 1); at 0 only pure events fit.

    >>> Budget(2.0, 1e-5)
    Budget(epsilon=2.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        if not (isinstance(self.delta, int | float) and 0 <= self.delta < 1):
            raise ValueError(f"delta is {self.delta!r}; it must lie in [0, 1)")


class BudgetExceeded(RuntimeError):
    """A charge that would spend more than the budget; nothing was recorded and the mechanism must not run."""


@dataclass(frozen=True)
class LedgerEntry:
    """`count` consecutive charges of one event under one note."""

    note: str
    event: DpEvent
    count: int
    group: str | None


class Ledger:
    """Asks, records, then lets the mechanism run; never the other way round.

    A charge is refused with `BudgetExceeded` before anything is recorded. What is recorded counts as spent, also when
    the process dies before the mechanism runs, and also when a resumed run does the same step again.

    `group` is parallel composition: charges of different groups must touch disjoint records. Under add_remove the
    total is the worst of (ungrouped + one group); under replace_one a record may leave one group for another, so the
    two worst groups add. Guarantees of `events.py` hold for the ledger's own relation.

    `budget` None only reports, at `delta`. `path` is a new file (`Ledger.open` resumes one); without it nothing is
    kept.

    Raises:
        ValueError: budget and delta both or neither given, or an unknown relation.
        LedgerError: `path` holds a ledger already or is being written.

    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> ledger = Ledger(Budget(1.0, 1e-5))
    >>> ledger.charge(gaussian_event(10.0), note="histogram")
    >>> round(ledger.epsilon(), 2), ledger.allowance(gaussian_event(10.0))
    (0.34, 6)
    """

    def __init__(
        self,
        budget: Budget | None,
        *,
        delta: float | None = None,
        relation: Relation = "add_remove",
        unit: str = "one record",
        path: Path | None = None,
    ) -> None:
        if (budget is None) == (delta is None):
            raise ValueError("give either budget, or budget=None together with delta (report only)")
        if relation not in ("add_remove", "replace_one"):
            raise ValueError(f"relation is {relation!r}; choose one of add_remove, replace_one")
        self.budget = budget
        self.delta = budget.delta if budget else Budget(1.0, cast(float, delta)).delta
        self.relation: Relation = relation
        self.unit = unit
        self._declared: list[Mechanism] = []
        self._known: dict[Any, Mechanism] = {}
        self._runs: list[list[Any]] = []
        self._charged = array("q")  # charges up to and including each line
        self._cache: dict[Any, Any] = {}
        self._clock = 0
        self._certified = math.inf  # epsilon of the counts `allowed`, which are never below the charged ones
        self._file = LedgerFile(Path(path) if path is not None else None)
        self._file.create()
        self._append([json.dumps(self._header(), separators=(",", ":"))], charged=0)
        self._file.sync()

    def _header(self) -> dict[str, Any]:
        return {
            "dpgen_ledger": _FORMAT,
            "epsilon": self.budget.epsilon if self.budget else None,
            "delta": self.delta,
            "relation": self.relation,
            "unit": self.unit,
        }

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Resume the ledger at `path`, locked against a second writer.

        Raises:
            LedgerError: missing, empty, locked, cut inside a line, edited, or written by another version.
        """
        file = LedgerFile(Path(path))
        lines = file.read()
        header = next(lines)
        try:
            if header.get("dpgen_ledger") != _FORMAT:
                raise LedgerError(f"{path}: line 1 is no header of a version {_FORMAT} ledger")
            budget = None if header["epsilon"] is None else Budget(header["epsilon"], header["delta"])
            delta = header["delta"] if budget is None else None
            ledger = cls(budget, delta=delta, relation=header["relation"], unit=header["unit"])
            for line in lines:
                ledger._replay(line)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            file.close()
            raise LedgerError(f"{path}: line {file.lines} cannot be understood: {error!r}") from None
        except LedgerError:
            file.close()
            raise
        ledger._file = file
        return ledger

    def _replay(self, line: dict[str, Any]) -> None:
        if "declare" in line:
            if line["declare"] != len(self._declared):
                raise ValueError(f"mechanism {line['declare']} declared out of order")
            mechanism = self._find(decode_event(line["event"]), line["note"], line["group"])
            self._declare(mechanism)
            self._charged.append(self._charged[-1])
        else:
            mechanism, count = self._declared[line["charge"]], require_whole("count", line["count"])
            self._book(mechanism, count)
            self._charged.append(self._charged[-1] + count)

    def _append(self, bodies: list[str], *, charged: int) -> None:
        self._file.append(bodies)
        total = self._charged[-1] if self._charged else 0
        for _ in bodies[1:]:
            self._charged.append(total)
        self._charged.append(total + charged)

    def _find(self, event: DpEvent, note: str, group: str | None) -> Mechanism:
        try:
            key: Any = (event, note, group)
            found = self._known.get(key)
        except TypeError:  # a composed event holds a list
            key = (json.dumps(encode_event(event)), note, group)
            found = self._known.get(key)
        if found is None:
            if not (isinstance(note, str) and (group is None or isinstance(group, str))):
                raise ValueError(f"note is {note!r} and group is {group!r}; both must be strings, group may be None")
            self._require_sound(event, group)
            found = Mechanism.of(event, note, group)
            self._known[key] = found
        return found

    def _require_sound(self, event: DpEvent, group: str | None) -> None:
        """A record that leaves one group for another is removed here and added there: only Gaussians have both bounds."""
        if group is not None and self.relation == "replace_one":
            from dpgen.privacy.events import holds_for_own_relation

            if holds_for_own_relation(event):
                raise ValueError(
                    f"group is {group!r}; under replace_one {type(event).__name__} must be charged without a group"
                )

    def _declare(self, mechanism: Mechanism) -> None:
        mechanism.number = len(self._declared)
        self._declared.append(mechanism)

    def _book(self, mechanism: Mechanism, count: int) -> None:
        mechanism.count += count
        self._clock += 1
        mechanism.last, mechanism.size = self._clock, count
        if self._runs and self._runs[-1][0] is mechanism:
            self._runs[-1][1] += count
        else:
            self._runs.append([mechanism, count])
        if self._cache:
            self._cache.clear()

    def charge(self, event: DpEvent, count: int = 1, *, note: str, group: str | None = None) -> None:
        """Ask for `count` runs of `event`, record them, return; only then may the mechanism run.

        Microseconds for events that are charged again and again: what still fits is worked out ahead.

        Raises:
            BudgetExceeded: it would spend more than the budget; nothing was recorded.
            LedgerError: it could not be recorded; the file is as it was.
            ValueError: a bad count, note or event.
        """
        if count.__class__ is not int or count < 1:
            count = require_whole("count", count)
        mechanism = self._find(event, note, group)
        try:
            self._ask_and_record(mechanism, count)
        except BaseException:
            # What was worked out ahead counted on this charge: with it unrecorded, nothing is known to fit.
            self._certified = math.inf
            for known in self._known.values():
                known.allowed = 0
            raise
        self._book(mechanism, count)

    def _ask_and_record(self, mechanism: Mechanism, count: int) -> None:
        if self.budget is not None and mechanism.count + count > mechanism.allowed:
            self._extend(mechanism, count)
        if mechanism.number is None:
            number = len(self._declared)
            event = json.loads(mechanism.code)
            declaration = {"declare": number, "event": event, "note": mechanism.note, "group": mechanism.group}
            bodies = [json.dumps(declaration, separators=(",", ":")), f'{{"charge":{number},"count":{count}}}']
            self._append(bodies, charged=count)
            self._declare(mechanism)
        else:
            self._append([f'{{"charge":{mechanism.number},"count":{count}}}'], charged=count)

    def _extend(self, mechanism: Mechanism, count: int) -> None:
        """Find counts that fit the budget with room for more of what was charged lately, `mechanism` at least.

        RDP is asked first: it is cheap, never below the truth, and enough while the budget is far.
        """
        budget = cast(Budget, self.budget)
        asked = self._loads(mechanism, count)
        needed = self._rdp(asked)
        if needed > budget.epsilon:
            needed = self._spent(asked)
        if needed > budget.epsilon:
            raise BudgetExceeded(
                f"budget epsilon {budget.epsilon:.6g} at delta {budget.delta:g} ({self.relation}, {self.unit}): "
                f"spent {self.epsilon():.6g}, {count} x {mechanism.note!r} would bring it to {needed:.6g}"
            )
        since = self._clock - 2 * len(self._declared) - 8
        rates = {id(m): m.size if m.last > since else 0 for m, _ in asked} | {id(mechanism): count}

        def scaled(scale: int) -> Loads:
            return [(m, n + scale * rates[id(m)]) for m, n in asked]

        best = _largest(lambda scale: self._rdp(scaled(scale)) <= budget.epsilon)
        self._certified = self._rdp(scaled(best))
        if best == 0:
            # RDP is above the tight value by a factor that changes slowly: one tight look at what it predicts
            factor = 1.002 * needed / max(self._certified, 1e-300)
            best = _largest(lambda scale: factor * self._rdp(scaled(scale)) <= budget.epsilon)
            self._certified = self._spent(scaled(best))
        if best == 0 or self._certified > budget.epsilon:
            best = _largest(lambda scale: self._spent(scaled(scale)) <= budget.epsilon)
            self._certified = self._spent(scaled(best))
        for m, n in scaled(best):
            m.allowed = n

    def allowance(self, event: DpEvent, *, group: str | None = None) -> int:
        """How many more charges of `event` fit the budget; without a budget there is no limit to state.

        Raises:
            ValueError: the ledger has no budget, or the event costs nothing.
        """
        if self.budget is None:
            raise ValueError("budget is None; a ledger that only reports has no allowance")
        limit, extra = self.budget.epsilon, Mechanism.of(event, "", group)
        key = ("allowance", extra.code, group)
        if key not in self._cache:
            self._cache[key] = _largest(lambda n: self._spent([*self._loads(), (extra, n)]) <= limit, exact=True)
        return int(self._cache[key])

    def _loads(self, mechanism: Mechanism | None = None, count: int = 0) -> Loads:
        """What was charged, with `count` more of `mechanism`."""
        loads = [(m, m.count + (count if m is mechanism else 0)) for m in self._declared]
        return loads if mechanism is None or mechanism.number is not None else [*loads, (mechanism, count)]

    def _spent(
        self,
        loads: Loads,
        *,
        delta: float | None = None,
        relation: Relation | None = None,
        accountant: Accountant = "tightest",
    ) -> float:
        at, relation = self.delta if delta is None else delta, relation or self.relation
        return worst(loads, at, relation, accountant, own=self.relation)[0]

    def epsilon(
        self, delta: float | None = None, *, relation: Relation | None = None, accountant: Accountant = "tightest"
    ) -> float:
        """Epsilon (nats) of everything charged, at the ledger's delta and relation unless others are given."""
        key = ("epsilon", delta, relation, accountant)
        if key not in self._cache:
            value = self._spent(self._loads(), delta=delta, relation=relation, accountant=accountant)
            if delta is None and relation is None and accountant == "tightest":
                value = min(value, self._certified)
            self._cache[key] = value
        return float(self._cache[key])

    def epsilon_rdp(self) -> float:
        """The same from RDP: above the tight value by some percent, in microseconds; for the display at every step."""
        return self._rdp(self._loads())

    def _rdp(self, loads: Loads) -> float:
        if not self.delta:
            return self._spent(loads)
        try:
            return rdp_bound(loads, self.delta, self.relation)
        except ValueError:  # an event without moments, or with too little noise for them
            return self._spent(loads)

    def entries(self) -> list[LedgerEntry]:
        """Charges in order, equal neighbours merged."""
        return [LedgerEntry(m.note, m.event, count, m.group) for m, count in self._runs]

    def event(self) -> DpEvent:
        """One composed event for other tools: the worst record's, see `group`."""
        return worst(self._loads(), self.delta, self.relation, "tightest")[1]

    @property
    def remaining(self) -> float:
        """Epsilon left of the budget, inf without one."""
        return max(0.0, self.budget.epsilon - self.epsilon()) if self.budget else math.inf

    @property
    def path(self) -> Path | None:
        """File of the ledger, None in memory."""
        return self._file.path

    def position(self) -> dict[str, Any]:
        """Where the ledger stands, for a checkpoint: `{"lines": int, "head": hexadecimal}`."""
        return {"lines": self._file.lines, "head": self._file.head}

    def verify_contains(self, position: dict[str, Any]) -> int:
        """Number of charges recorded after `position`: work that is about to be done again, and is paid again.

        Raises:
            LedgerError: the ledger does not extend `position`: cut at a line's end, replaced, or of another run.
        """
        try:
            lines, head = int(position["lines"]), str(position["head"])
        except (KeyError, TypeError, ValueError):
            raise LedgerError(f"position is {position!r}; it must hold lines and head") from None
        where = self.path or "ledger"
        if lines > self._file.lines:
            raise LedgerError(f"{where}: has {self._file.lines} lines, the checkpoint saw {lines}: the ledger was cut")
        if lines < 1 or self._file.head_at(lines) != head:
            raise LedgerError(f"{where}: differs from what the checkpoint saw at line {lines}: edited or another run")
        return int(self._charged[-1] - self._charged[lines - 1])

    def sync(self) -> None:
        """Wait until everything charged is on the disk."""
        self._file.sync()

    def close(self) -> None:
        """Sync and unlock; a closed ledger still reports and refuses charges."""
        self._file.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _largest(fits: Callable[[int], bool], *, exact: bool = False, most: int = 10**9) -> int:
    """Largest n with `fits(n)` (within 3 % unless `exact`), 0 if none, `most` at most."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 8
    if high > most:
        return most
    while high - low > (1 if exact else max(1, low // 32)):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
