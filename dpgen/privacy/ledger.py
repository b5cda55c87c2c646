"""The ledger: every mechanism asks it before it runs, and what it has written survives a crash."""

from __future__ import annotations

import json
import threading
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dpgen.privacy.composition import (
    Budget,
    BudgetExceeded,
    Cost,
    Earlier,
    Filter,
    FilterTotals,
    LedgerEntry,
    LedgerItem,
    Loads,
    Planned,
    rdp_bound,
    worst,
)
from dpgen.privacy.ledger_file import LedgerError, LedgerFile, compact, decode_event, encode_event
from dpgen.privacy.mechanisms import Relation, UnsupportedEvent, keeps_size, require_whole
from dpgen.privacy.shared_budget import Payer

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.accountants import Accountant

__all__ = ["Budget", "BudgetExceeded", "Ledger", "LedgerEntry", "LedgerError", "Planned"]

_FORMAT = 2


class Ledger:
    r"""Asks, records, then lets the mechanism run; never the other way round.

    **Plans.** `declare` takes the whole plan of a run, every event with its greatest count, before private data are
    touched. A ledger's first plan is checked with exact accounting (privacy loss distributions, closed forms) and is its
    guarantee, whatever part of it runs, in any order, stopped whenever. Charges inside of it are granted at once.

    **What is chosen later** - a charge beyond the declared counts, one that no plan declared, a second plan - is granted only
    by the filter (`composition.py`): Renyi losses at one order, fixed in the file's header, of everything together, the first
    plan included. Then the guarantee is the budget; where all are pure guarantees it is their sum. Why: `composition.py`.

    A charge is refused with `BudgetExceeded` before anything is recorded. What is recorded counts as spent, also when the run
    dies before the mechanism runs, and when a resumed run does the same step again.

    `group` is parallel composition: charges of different groups must touch disjoint records. Under add_remove the
    total is the worst of (ungrouped + one group); under replace_one a record may leave one group for another, so the
    two worst groups add. Guarantees of `events.py` hold for the ledger's own relation.

    Arguments:
        budget: what is enforced; None only reports, at `delta`: a declared plan's guarantee, and of undeclared charges what
            they cost if they were fixed in advance (`chosen_later`).
        delta: of a ledger that only reports.
        relation: neighbouring relation of all guarantees.
        unit: what neighbouring data sets differ in.
        rows: the most rows that a unit has; sensitivities speak of one row, see `Curator`.
        always_used: whether every unit has a row that is used whatever it holds, see `keeps_size`.
        path: a new file (`Ledger.open` resumes one); a power cut may lose what came after the last `sync`.
        order: Renyi order > 1 of the filter; None: the best one.
        payer: the run in a shared budget, which pays there for every plan and for what goes beyond it, see `shared_budget.py`.

    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> ledger = Ledger(Budget(1.0, 1e-5))
    >>> ledger.declare([Planned(gaussian_event(10.0), "histogram", 5)])
    >>> ledger.charge(gaussian_event(10.0), note="histogram")
    >>> round(ledger.epsilon(), 2), round(ledger.spent(), 2)
    (0.82, 0.34)
    """

    def __init__(
        self,
        budget: Budget | None,
        *,
        delta: float | None = None,
        relation: Relation = "add_remove",
        unit: str = "one record",
        rows: int = 1,
        always_used: bool = True,
        path: Path | None = None,
        order: float | None = None,
        payer: Payer | None = None,
    ) -> None:
        if (budget is None) == (delta is None):
            raise ValueError("give either budget, or budget=None together with delta (report only)")
        if relation not in ("add_remove", "replace_one"):
            raise ValueError(f"relation is {relation!r}; choose one of add_remove, replace_one")
        if budget is None and order is not None:
            raise ValueError(f"order is {order!r}; a ledger that only reports has no filter")
        self.budget = budget
        self.delta = budget.delta if budget else Budget(1.0, cast(float, delta)).delta
        self.relation: Relation = relation
        self.unit = unit
        self.rows = require_whole("rows", rows)
        self.always_used = always_used
        self.payer = payer
        self.filter = Filter.best(budget.epsilon, budget.delta, order=order) if budget else None
        self._lock = threading.RLock()
        self._declared: list[LedgerItem] = []
        self._known: dict[Any, LedgerItem] = {}
        self._divisible: dict[tuple[str, str | None], LedgerItem] = {}
        self._plans: list[dict[int, int]] = []  # number of a mechanism: greatest count
        self._unfinished: list[dict[int, int]] = []  # plans of the file that a resumed run may take up again
        self._again = Earlier()  # charges that a journal lets a resumed run ask for again
        self.given: list[str] = []  # checksums of the values that a journal gave out
        self.recovered = self.resumed = False
        self._filtered: FilterTotals | None = None
        self._runs: list[list[Any]] = []
        self._charged = array("q")  # charges up to and including each line
        self._cache: dict[Any, Any] = {}
        self._guarantees: dict[Any, float] = {}
        self._file = LedgerFile(Path(path) if path is not None else None)
        self._file.create()
        self._append([compact(self._header())], charged=0)
        self._file.sync()

    @property
    def terms(self) -> dict[str, Any]:
        """Relation and unit, as another ledger of the same records takes them."""
        return {"relation": self.relation, "unit": self.unit, "rows": self.rows, "always_used": self.always_used}

    @property
    def keeps_size(self) -> bool:
        """Whether the number of rows is public: all neighbours have as many."""
        return keeps_size(self.relation, self.rows, self.always_used)

    def _header(self) -> dict[str, Any]:
        return {
            "dpgen_ledger": _FORMAT,
            "epsilon": self.budget.epsilon if self.budget else None,
            "delta": self.delta,
            "relation": self.relation,
            "unit": self.unit,
            **({"rows": self.rows} if self.rows > 1 else {}),
            "always_used": self.always_used,
            "filter": {"order": self.filter.order, "reserved": self.filter.reserved} if self.filter else None,
            **({"shared": self.payer.reference} if self.payer else {}),
        }

    @classmethod
    def open(cls, path: Path, *, recover: bool = False) -> Ledger:
        """Resume the ledger at `path`, locked against a second writer.

        Declaring a plan that the file holds takes it up where it stopped, once for each time that it was declared.

        Arguments:
            recover: accept a last line that was cut. What was lost with it is unknown, but was within the budget: all of that
                is booked (`recovered`), and nothing is granted any more.

        Raises:
            LedgerError: missing, empty, locked, cut inside a line, edited, or written by another version.
        """
        file = LedgerFile(Path(path))
        lines = file.read(torn=recover)
        header = next(lines)
        try:
            if header.get("dpgen_ledger") == 1:
                raise LedgerError(f"{path}: a version 1 ledger, of dpgen 0.3; finish its run with that version")
            if header.get("dpgen_ledger") != _FORMAT:
                raise LedgerError(f"{path}: line 1 is no header of a version {_FORMAT} ledger")
            budget = None if header["epsilon"] is None else Budget(header["epsilon"], header["delta"])
            delta = header["delta"] if budget is None else None
            unit = {"relation": header["relation"], "unit": header["unit"], "rows": header.get("rows", 1)}
            ledger = cls(budget, delta=delta, always_used=header.get("always_used", False), **unit)  # 0.4 does not say
            if budget is not None:
                ledger.filter = Filter(budget.epsilon, budget.delta, **header["filter"])
            ledger.payer = Payer.of(header["shared"], Path(path).parent) if "shared" in header else None
            for line in lines:
                ledger._replay(line)
            if file.torn:
                if budget is None:
                    raise LedgerError(f"{path}: cut in its last line, and there is no budget that could be booked for it")
                ledger._replay(file.mend())
        except (KeyError, TypeError, ValueError, IndexError) as error:
            file.close()
            raise LedgerError(f"{path}: line {file.lines} cannot be understood: {error!r}") from None
        except LedgerError:
            file.close()
            raise
        ledger._file = file
        ledger._unfinished, ledger.resumed = list(ledger._plans), bool(ledger._runs)
        return ledger

    def _replay(self, line: dict[str, Any]) -> None:
        charged = 0
        if "mechanism" in line:
            if line["mechanism"] != len(self._declared):
                raise ValueError(f"mechanism {line['mechanism']} declared out of order")
            whole = self._declared[line["of"]] if "of" in line else None
            event = decode_event(line["event"])
            self._number(self._find(event, line["note"], line["group"], whole=whole, divisible=line.get("divisible", False)))
        elif "plan" in line:
            self._enter_plan({int(n): require_whole("count", count) for n, count in line["plan"]})
        elif "recovered" in line:
            self.recovered = True
        elif "given" in line:
            self.given.append(line["given"])
        else:
            mechanism, charged = self._declared[line["charge"]], require_whole("count", line["count"])
            self._book(mechanism, charged)
        self._charged.append(self._charged[-1] + charged)

    def _append(self, bodies: list[str], *, charged: int) -> None:
        self._file.append(bodies)
        total = self._charged[-1] if self._charged else 0
        for _ in bodies[1:]:
            self._charged.append(total)
        self._charged.append(total + charged)

    def _find(
        self, event: DpEvent, note: str, group: str | None, *, whole: LedgerItem | None = None, divisible: bool = False
    ) -> LedgerItem:
        kind = whole.note if whole else divisible
        try:
            key: Any = (event, note, group, kind)
            found = self._known.get(key)
        except TypeError:  # a composed event holds a list
            key = (json.dumps(encode_event(event)), note, group, kind)
            found = self._known.get(key)
        if found is None:
            if not (isinstance(note, str) and (group is None or isinstance(group, str))):
                raise ValueError(f"note is {note!r} and group is {group!r}; both must be strings, group may be None")
            if group is not None:
                from dpgen.privacy.events import require_grouped

                require_grouped(event, group, self.relation, self.rows)
            found = self._known[key] = LedgerItem.of(event, note, group, whole=whole, divisible=divisible)
        return found

    def _number(self, mechanism: LedgerItem) -> None:
        mechanism.number = len(self._declared)
        self._declared.append(mechanism)
        if mechanism.divisible:
            self._divisible[mechanism.note, mechanism.group] = mechanism

    # -- plans ---------------------------------------------------------------------------------------------------------

    def declare(self, plan: Sequence[Planned]) -> None:
        """Record a plan, the whole of which the budget has to cover, before private data are touched.

        Lines of one event, note and group add up. In a ledger that was opened again, a plan of the file is taken up where it
        stopped. An empty plan changes nothing.

        Raises:
            BudgetExceeded: the plan does not fit (see the class); nothing was recorded.
            LedgerError: it could not be recorded.
            ValueError: a bad count, note or event, or an event that is not divisible.
        """
        with self._lock:
            lines: Counter[LedgerItem] = Counter()
            for line in plan:
                require_whole("count", line.count)
                lines[self._find(line.event, line.note, line.group, divisible=line.divisible)] += line.count
            self._require_one_each([m for m in lines if m.divisible])
            if not lines or self._taken_up(lines):
                return
            self._require_whole()
            if self.budget is not None:
                self._require_fit(lines)
            if self.payer is not None:
                self.payer.pay(list(lines.items()), self.budget)
            fresh = [m for m in lines if m.number is None]
            numbers = {id(m): len(self._declared) + i for i, m in enumerate(fresh)}
            counts = {numbers[id(m)] if m.number is None else m.number: n for m, n in lines.items()}
            bodies = [compact(m.line(number)) for m, number in zip(fresh, numbers.values())]
            self._append([*bodies, compact({"plan": [[number, n] for number, n in counts.items()]})], charged=0)
            self._file.sync()
            for mechanism in fresh:
                self._number(mechanism)
            self._enter_plan(counts)

    def _require_one_each(self, divisible: list[LedgerItem]) -> None:
        found = dict(self._divisible)
        for mechanism in divisible:
            if found.setdefault((mechanism.note, mechanism.group), mechanism) is not mechanism:
                raise ValueError(f"note is {mechanism.note!r}; another divisible Gaussian has this note")

    def _taken_up(self, lines: Counter[LedgerItem]) -> bool:
        """Whether a resumed run declares again what the file holds."""
        counts = {m.number: n for m, n in lines.items() if m.number is not None}
        if len(counts) < len(lines) or counts not in self._unfinished:
            return False
        if self.payer is not None:
            self.payer.require_paid(list(lines.items()), self._file)
        self._unfinished.remove(counts)
        return True

    def _require_fit(self, lines: Counter[LedgerItem]) -> None:
        budget, names = cast(Budget, self.budget), ", ".join(f"{n} x {m.note!r}" for m, n in lines.items())
        if self._plans or any(m.most for m in self._declared):
            added: dict[str | None, Cost] = {}
            for mechanism, count in lines.items():
                cost = self._cost(mechanism).times(count)
                added[mechanism.group] = added.get(mechanism.group, Cost()).plus(cost)
            self._require_filter(added, f"a second plan of {names}")
            return
        loads = [(m.priced or m, n) for m, n in lines.items()]
        needed = self._rdp(loads)
        if needed > budget.epsilon:
            needed = self._spent(loads)
        if needed > budget.epsilon:
            raise BudgetExceeded(f"{self._terms()}: a plan of {names} would bring it to {needed:.6g}")

    def _require_whole(self) -> None:
        if self.recovered:
            raise BudgetExceeded(f"{self._terms()}: all of it is booked, since a line of the ledger was cut")

    def _terms(self) -> str:
        budget = cast(Budget, self.budget)
        return f"budget epsilon {budget.epsilon:.6g} at delta {budget.delta:g} ({self.relation}, {self.unit})"

    def _enter_plan(self, counts: dict[int, int]) -> None:
        for number, count in counts.items():
            self._declared[number].planned += count
        self._plans.append(counts)
        self._filtered = None
        self._cache.clear()
        self._guarantees.clear()

    # -- the filter ----------------------------------------------------------------------------------------------------

    def _cost(self, mechanism: LedgerItem) -> Cost:
        priced = mechanism.priced or mechanism
        if priced.cost is None:
            priced.cost = cast(Filter, self.filter).cost(priced.event, self.relation)
        return priced.cost

    def _totals(self) -> FilterTotals:
        """Filter costs of everything promised and charged."""
        if self._filtered is None:
            promised = ((m.group, self._cost(m).times(m.most)) for m in self._declared if m.most)
            self._filtered = FilterTotals(cast(Filter, self.filter), self.relation, promised)
        return self._filtered

    def _require_filter(self, added: dict[str | None, Cost], name: str) -> None:
        limits, totals = cast(Filter, self.filter), self._totals()
        total = totals.heaviest(added)
        if not limits.fits(total):
            before, after = limits.total_epsilon(totals.heaviest()), limits.total_epsilon(total)
            by = "sum of epsilons" if limits.order is None else f"filter of Renyi order {limits.order:.4g}"
            raise BudgetExceeded(
                f"{self._terms()}: spent {before:.6g}, {name} would bring it to {after:.6g} ({by}: what was not declared at "
                "the start is counted so, with everything else)"
            )

    # -- charges -------------------------------------------------------------------------------------------------------

    def take_up(self) -> None:
        """Go back to the first charge of the file: a journal has the values, and the run asks for all of it again.

        What the guarantee counts stays. Asked for again, in their order, charges are free; nothing else is granted before.
        """
        self._again, self._runs = Earlier((item, count) for item, count in self._runs), []
        for mechanism in self._declared:
            mechanism.count = mechanism.parts = 0
        self._cache.clear()

    def give(self, checksum: str) -> None:
        """Write down that the next value of the run's journal is given out."""
        with self._lock:
            self._append([compact({"given": checksum})], charged=0)
            self.given.append(checksum)

    def charge(
        self, event: DpEvent, count: int = 1, *, note: str, group: str | None = None, of: str | None = None, again: bool = False
    ) -> None:
        """Ask for `count` runs of `event`, record them, return; only then may the mechanism run.

        Microseconds for what a plan declared, tens of them for what is chosen later.

        Arguments:
            event: what one run costs.
            count: runs, >= 1.
            note: what they are called.
            group: disjoint group of records that they touch, None for all.
            of: note of the declared divisible Gaussian (of the same group) that these runs are a part of.
            again: whether a journal gives their values out, so that what a resumed run was charged before costs nothing.

        Raises:
            BudgetExceeded: it would spend more than the budget, or than is left of the divisible Gaussian; nothing was
                recorded.
            LedgerError: it could not be recorded; the file is as it was.
            ValueError: a bad count, note or event, or no such divisible Gaussian.
        """
        if count.__class__ is not int or count < 1:
            count = require_whole("count", count)
        with self._lock:
            mechanism = self._find(event, note, group, whole=None if of is None else self._whole(of, group))
            if self._again:
                self._again.take(mechanism, count, allowed=again)
                return self._book(mechanism, count)
            self._require_whole()
            if mechanism.whole is not None:
                mechanism.require_room(count)
            elif later := mechanism.beyond(count):
                if self.budget is not None:
                    self._require_filter({group: self._cost(mechanism).times(later)}, f"{count} x {note!r}")
                if self.payer is not None:
                    self.payer.pay([(mechanism, later)], self.budget)
            self._record(mechanism, count)
            self._book(mechanism, count)

    def _whole(self, of: str, group: str | None) -> LedgerItem:
        found = self._divisible.get((of, group))
        if found is None or not found.planned:
            known = ", ".join(repr(note) for (note, _), m in self._divisible.items() if m.planned) or "none"
            raise ValueError(f"of is {of!r}, group {group!r}; it must name a divisible Gaussian that was declared: {known}")
        return found

    def _record(self, mechanism: LedgerItem, count: int) -> None:
        if mechanism.number is not None:
            self._append([f'{{"charge":{mechanism.number},"count":{count}}}'], charged=count)
            return
        number = len(self._declared)
        self._append([compact(mechanism.line(number)), f'{{"charge":{number},"count":{count}}}'], charged=count)
        self._number(mechanism)

    def _book(self, mechanism: LedgerItem, count: int) -> None:
        later = mechanism.beyond(count)
        mechanism.count += count
        if mechanism.whole is not None:
            mechanism.whole.parts += count * mechanism.precision
        elif later:
            mechanism.later += later
            self._guarantees.clear()
            if self._filtered is not None:
                self._filtered.add(mechanism.group, self._cost(mechanism).times(later))
        if self._runs and self._runs[-1][0] is mechanism:
            self._runs[-1][1] += count
        else:
            self._runs.append([mechanism, count])
        self._cache.clear()

    def allowance(self, event: DpEvent, *, group: str | None = None) -> int:
        """Number of charges of `event`, beside what was declared, that the filter would still grant.

        Raises:
            ValueError: the ledger has no budget, or the event costs nothing.
        """
        if self.budget is None:
            raise ValueError("budget is None; a ledger that only reports has no allowance")
        with self._lock:
            cost = self._cost(LedgerItem.of(event, "", group))
            if cost == Cost():
                raise ValueError(f"event {event!r} costs nothing; there is no limit to state")
            return 0 if self.recovered else self._totals().room(cost, group)

    def _guaranteed(self) -> Loads:
        """Plans as a whole, and what was charged beyond them: the guarantee counts these."""
        if not self.recovered:
            return [(m.priced or m, m.most) for m in self._declared if m.most]
        from dpgen.privacy.events import approximate_event

        whole = cast(Budget, self.budget)
        return [(LedgerItem.of(approximate_event(whole.epsilon, whole.delta), "the whole budget", None), 1)]

    def _ran(self) -> Loads:
        return self._guaranteed() if self.recovered else [(m, m.count) for m in self._declared]

    def _spent(
        self, loads: Loads, delta: float | None = None, relation: Relation | None = None, accountant: Accountant = "tightest"
    ) -> float:
        at = self.delta if delta is None else delta
        return worst(loads, at, relation or self.relation, accountant, own=self.relation)[0]

    @property
    def chosen_later(self) -> bool:
        """Whether anything stands beside the first plan, or may have; with a budget, the filter then makes the guarantee."""
        return self.recovered or len(self._plans) > 1 or any(m.later for m in self._declared)

    def epsilon(
        self, delta: float | None = None, *, relation: Relation | None = None, accountant: Accountant = "tightest"
    ) -> float:
        """The guarantee: epsilon (nats) at the ledger's delta and relation unless others are given.

        That of the whole plan, whatever part of it has run; where something was chosen later, that of the filter: the
        budget, or the sum where all are pure. Without a budget: of the plans and what was charged beside them, taken as
        fixed in advance.

        Raises:
            UnsupportedEvent: what was chosen later has no guarantee under another relation.
        """
        with self._lock:
            key = (delta, relation, accountant)
            if key not in self._guarantees:
                exact = self.filter is None or not self.chosen_later
                self._guarantees[key] = self._spent(self._guaranteed(), *key) if exact else self._of_filter(delta, relation)
            return self._guarantees[key]

    def _of_filter(self, delta: float | None, relation: Relation | None) -> float:
        limits, total = cast(Filter, self.filter), self._totals().heaviest()
        if self.recovered:
            if delta in (None, self.delta) and relation in (None, self.relation):
                return cast(Budget, self.budget).epsilon
            raise UnsupportedEvent("a line of the ledger was cut: what is known is its budget, at its own delta and relation")
        return limits.chosen_later(total, self.delta if delta is None else delta, relation or self.relation, own=self.relation)

    @property
    def accountant(self) -> str:
        """Accounting behind the guarantee, in words."""
        if self.recovered:
            return "the whole budget, whatever was spent of it"
        if self.filter is None or not self.chosen_later:
            return "tightest valid of PLD, Renyi and closed forms"
        return f"filter of Renyi order {self.filter.order:.4g}" if self.filter.order else "sum of pure epsilons"

    def spent(
        self, delta: float | None = None, *, relation: Relation | None = None, accountant: Accountant = "tightest"
    ) -> float:
        """Epsilon of what has run so far, as if it had been fixed in advance: for a display; the guarantee is `epsilon`."""
        with self._lock:
            key = ("spent", delta, relation, accountant)
            if key not in self._cache:
                self._cache[key] = self._spent(self._ran(), delta, relation, accountant)
            return float(self._cache[key])

    def spent_rdp(self) -> float:
        """The same from RDP: above the tight value by some percent, in microseconds; for the display at every step."""
        with self._lock:
            return self._rdp(self._ran())

    def _rdp(self, loads: Loads) -> float:
        if not self.delta:
            return self._spent(loads)
        try:
            return rdp_bound(loads, self.delta, self.relation)
        except ValueError:  # an event without moments, or with too little noise for them
            return self._spent(loads)

    def entries(self) -> list[LedgerEntry]:
        """Charges in order, equal neighbours merged."""
        with self._lock:
            return [LedgerEntry(m.note, m.event, n, m.group, m.whole.note if m.whole else None) for m, n in self._runs]

    def promised(self) -> list[Planned]:
        """Everything declared with its greatest count, and what was charged beyond it: the guarantee counts these."""
        with self._lock:
            return [Planned(m.event, m.note, m.most, m.group, m.divisible) for m in self._declared if m.most]

    def event(self) -> DpEvent:
        """One composed event for other tools: what the guarantee counts for the worst record, see `group`."""
        with self._lock:
            return worst(self._guaranteed(), self.delta, self.relation, "tightest")[1]

    @property
    def charges(self) -> int:
        """Number of charges in the file, also of those that a resumed run has not asked for again yet."""
        return int(self._charged[-1])

    @property
    def path(self) -> Path | None:
        """File of the ledger, None in memory."""
        return self._file.path

    def position(self) -> dict[str, Any]:
        """Position of the ledger, for a checkpoint: `{"lines": int, "head": hexadecimal}`."""
        return self._file.position()

    def verify_contains(self, position: dict[str, Any]) -> int:
        """Number of charges recorded after `position`: work that is about to be done again, and is paid again.

        Raises:
            LedgerError: the ledger does not extend `position`: cut at a line's end, replaced, or of another run.
        """
        lines = self._file.require_extends(position)
        return int(self._charged[-1] - self._charged[lines - 1])

    def sync(self, *, released: str = "") -> None:
        """Wait until all is on the disk; a shared budget notes how far it is, and the checksum of what is about to be released.

        Raises:
            LedgerError: the shared budget has seen a later ledger of this run, or another release; or not all that the run was
                charged before was asked for again.
        """
        if released and self._again:
            raise LedgerError(
                f"{self.path}: {self._again[0][0].note!r} was charged before and is not asked for again: another run"
            )
        self._file.sync()
        if self.payer is not None:
            self.payer.stand(self._file, released)

    def close(self) -> None:
        """Sync and unlock; a closed ledger still reports and refuses charges."""
        self._file.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
