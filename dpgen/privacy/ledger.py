"""The ledger: every mechanism asks it before it runs, and what has left the process is in its file."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, cast

from dpgen.privacy.composition import (
    BudgetExceeded,
    Cost,
    Filter,
    LedgerEntry,
    LedgerItem,
    Planned,
    total_cost,
    worst,
)
from dpgen.privacy.ledger_file import LedgerError, LedgerFile
from dpgen.privacy.mechanisms import (
    Budget,
    Relation,
    UnsupportedEvent,
    decode_event,
    encode_event,
    keeps_size,
    require_whole,
)

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.accountants import Accountant
    from dpgen.privacy.shared_budget import Payer

__all__ = ["Budget", "BudgetExceeded", "Ledger", "LedgerEntry", "LedgerError", "Planned"]

_FORMAT = 3


class Ledger:
    r"""Asks, counts, then lets the mechanism run; what was counted is in the file before anything derived from it is shown.

    **Commits.** Charges are counted in memory; `commit` writes all of them, and must come before anything that depends on their
    noise leaves the process. What was not committed is forgotten with its noise. See docs/guarantees.md.

    **Plans.** `declare` takes the whole plan of a run, every event with its greatest count, before private data are
    touched. A ledger's first plan is checked with exact accounting and is its guarantee, whatever part of it runs.

    **What is chosen later** - a charge beyond the declared counts, one that no plan declared, a second plan - is granted only
    by a filter of everything together, the first plan included. Then the guarantee is the budget; where all are pure
    guarantees it is their sum. Why: `composition.py`.

    Arguments:
        budget: what is enforced; None only reports, at `delta`, undeclared charges as if they were fixed in advance.
        unit: what neighbouring data sets differ in, of at most `rows` rows (`Curator`); `always_used`: see `keeps_size`.
        path: a new file (`Ledger.open` resumes one); without it nothing is kept.
        payer: the run in a shared budget, which pays there for every plan and for what goes beyond it, see `shared_budget.py`.

    `LedgerError` is raised by a ledger that is closed, damaged or of another version, by files that cannot be written or were
    restored from a copy, and in forked processes.

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
        payer: Payer | None = None,
    ) -> None:
        if (budget is None) == (delta is None):
            raise ValueError("give either budget, or budget=None together with delta (report only)")
        self.budget = budget
        self.delta = budget.delta if budget else Budget(1.0, cast(float, delta)).delta
        self.relation: Relation = relation
        self.unit = unit
        self.rows = require_whole("rows", rows)
        self.always_used = always_used
        self.keeps_size = keeps_size(relation, rows, always_used)
        """Whether the number of rows is public: all neighbours have as many."""
        self.payer = payer
        self.filter = Filter.best(budget, relation) if budget else None
        self.resumed = False
        self.commits = 0
        self._lock = threading.RLock()
        self._closed = False
        self._shown: list[list[int]] = []  # charges as of the last commit, by number
        self._released = ""
        self._moves: list[list[str]] = []
        self._identity = secrets.token_hex(16)
        self._empty()
        self._file = LedgerFile(Path(path) if path is not None else None)
        self._file.create()
        self._write()

    def _empty(self) -> None:
        """Hold no plan and no charge."""
        self._declared: list[LedgerItem] = []
        self._known: dict[Any, LedgerItem] = {}
        self._divisible: dict[str, LedgerItem] = {}
        self._plans: list[dict[int, int]] = []  # number of a mechanism: greatest count
        self._unfinished: list[dict[int, int]] = []  # plans of the file that a resumed run may take up again
        self._runs: list[list[Any]] = []
        self._filtered: Cost | None = None
        self._spent: float | None = None
        self._guarantees: dict[Any, float] = {}

    @property
    def terms(self) -> dict[str, Any]:
        """Relation and unit, as another ledger of the same records takes them."""
        return {"relation": self.relation, "unit": self.unit, "rows": self.rows, "always_used": self.always_used}

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """The ledger at `path`, locked against a second writer; its plans are taken up by being declared again."""
        from dpgen.privacy.shared_budget import Payer

        file = LedgerFile(Path(path))
        document = file.read()
        try:
            if document.get("dpgen_ledger") != _FORMAT:
                raise LedgerError(f"{path}: is no ledger of version {_FORMAT}")
            ledger = cls._of(document)
            ledger.payer = Payer.of(document["shared"], Path(path).parent) if "shared" in document else None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            file.close()
            raise LedgerError(f"{path}: cannot be understood: {error!r}") from None
        except LedgerError:
            file.close()
            raise
        ledger._file, ledger._unfinished, ledger.resumed = file, list(ledger._plans), bool(ledger._runs)
        return ledger

    @classmethod
    def _of(cls, document: dict[str, Any]) -> Ledger:
        """A ledger in memory with what a document holds."""
        budget = None if document["epsilon"] is None else Budget(document["epsilon"], document["delta"])
        names = ("relation", "unit", "rows", "always_used")
        ledger = cls(budget, delta=document["delta"] if budget is None else None, **{name: document[name] for name in names})
        if budget is not None:
            ledger.filter = Filter(budget, ledger.relation, document["filter"]["order"])
        ledger._identity, ledger.commits = document["identity"], require_whole("commits", document["commits"], 0)
        ledger._shown, ledger._released, ledger._moves = document["charges"], document["released"], document["moves"]
        ledger.follow(document)
        return ledger

    def follow(self, document: dict[str, Any]) -> None:
        """Hold the plans and charges of a document, and no others."""
        with self._lock:
            self._empty()
            for line in document["mechanisms"]:
                whole = self._declared[line["of"]] if "of" in line else None
                event, divisible = decode_event(line["event"]), line.get("divisible", False)
                self._number(self._find(event, line["note"], whole=whole, divisible=divisible))
            for plan in document["plans"]:
                self._enter_plan({int(n): require_whole("count", count) for n, count in plan})
            for number, count in document["charges"]:
                self._book(self._declared[number], require_whole("count", count))

    def _document(self, charges: list[list[int]]) -> dict[str, Any]:
        """Header, plans and these charges."""
        return {
            "dpgen_ledger": _FORMAT,
            "identity": self._identity,
            "epsilon": self.budget.epsilon if self.budget else None,
            "delta": self.delta,
            **self.terms,
            "filter": self.filter.header if self.filter else None,
            **({"shared": self.payer.reference} if self.payer else {}),
            "mechanisms": [m.record() for m in self._declared],
            "plans": [[[number, n] for number, n in plan.items()] for plan in self._plans],
            "charges": charges,
            "commits": self.commits,
            "released": self._released,
            "moves": self._moves,
        }

    def _write(self) -> None:
        """The file: all plans, and the charges of the last commit."""
        self._file.write(self._document(self._shown))

    # -- other processes -----------------------------------------------------------------------------------------------

    def copy(self) -> dict[str, Any]:
        """Everything declared and charged, for a `follower` in another process."""
        with self._lock:
            return self._document(self._charged())

    def _charged(self) -> list[list[int]]:
        return [[cast(int, m.number), n] for m, n in self._runs]

    @classmethod
    def follower(cls, copy: dict[str, Any]) -> Ledger:
        """A closed ledger in memory, for reading what another process has recorded; it grants nothing."""
        ledger = cls._of(copy)
        ledger.drop()
        return ledger

    def repeat(self, event: DpEvent, *, note: str) -> None:
        """Count one charge that another process has recorded, whose ledger this one follows."""
        with self._lock:
            self._book(self._find(event, note), 1)

    # -- commits -------------------------------------------------------------------------------------------------------

    def commit(self, *, released: str = "", moves: Sequence[tuple[Path, Path]] = ()) -> None:
        """Write all charges to the disk; what depends on them may leave the process when this has returned, and not before.

        `released` is the checksum of what is about to be released, one thing in a run; `moves` are files or folders beside the
        ledger that become visible with this commit, from and to.
        """
        if self._closed and self.path is None:
            return  # a follower: another process commits
        with self._lock:
            charges = self._charged()
            if charges == self._shown and not moves and released in ("", self._released):
                return
            self._require_same_release(released)
            before = self._shown, self.commits, self._released, self._moves
            self._shown, self.commits, self._released = charges, self.commits + 1, released or self._released
            self._moves = [[os.path.relpath(path, self._directory) for path in move] for move in moves]
            try:
                self._write()
            except BaseException:
                self._shown, self.commits, self._released, self._moves = before
                raise
            self.resume()

    def _require_same_release(self, released: str) -> None:
        """Refuse a second release, and a ledger that was restored from a copy where a shared budget has seen more of it."""
        if released and self._released not in ("", released):
            raise LedgerError(f"{self.path}: this run has released something else before; begin a new run")
        if self.payer is not None:
            self.payer.require_current(self.commits, released)

    def resume(self) -> None:
        """Finish the last commit, also of a run that died; LedgerError where the ledger was restored from a copy."""
        if self.payer is not None and self.commits:
            self.payer.stand(self.commits, self._released)
        for source, target in self._moves:
            if (self._directory / source).exists():
                if (self._directory / target).is_dir():
                    rmtree(self._directory / target)
                os.replace(self._directory / source, self._directory / target)

    def staged(self, path: Path) -> Path:
        """Where something is written that the next commit moves to `path`; what a dying process leaves there is removed."""
        return path.with_name(f".{path.name}.dpgen-{self.commits + 1:08d}")

    @property
    def _directory(self) -> Path:
        return Path() if self.path is None else self.path.parent

    @property
    def committed(self) -> bool:
        """Whether anything that was charged may have left the process."""
        return bool(self.commits)

    # -- plans ---------------------------------------------------------------------------------------------------------

    def declare(self, plan: Sequence[Planned]) -> None:
        """Record a plan, the whole of which the budget has to cover; in a ledger that was opened again, take it up.

        Raises:
            BudgetExceeded: the plan does not fit; nothing was recorded.
            ValueError: a bad count, note or event, or an event that is not divisible.
        """
        self._file.require_open()
        with self._lock:
            lines = self._lines(plan)
            if not lines or self._taken_up(lines):
                return
            if self.budget is not None:
                self._require_fit(lines)
            self._pay(lines)
            for mechanism in lines:
                if mechanism.number is None:
                    self._number(mechanism)
            self._enter_plan({cast(int, m.number): n for m, n in lines.items()})
            try:
                self._write()
            except BaseException:
                self._file.close()  # whatever is asked next is refused
                raise

    def _lines(self, plan: Sequence[Planned]) -> Counter[LedgerItem]:
        """The mechanisms of a plan with their greatest counts."""
        lines, wholes = Counter[LedgerItem](), dict(self._divisible)
        for line in plan:
            mechanism = self._find(line.event, line.note, divisible=line.divisible)
            if line.divisible and wholes.setdefault(line.note, mechanism) is not mechanism:
                raise ValueError(f"note is {line.note!r}; another divisible Gaussian has this note")
            lines[mechanism] += require_whole("count", line.count)
        return lines

    def _find(self, event: DpEvent, note: str, *, whole: LedgerItem | None = None, divisible: bool = False) -> LedgerItem:
        kind = whole.note if whole else divisible
        try:
            key: Any = (event, note, kind)
            found = self._known.get(key)
        except TypeError:  # a composed event holds a list
            key = (json.dumps(encode_event(event)), note, kind)
            found = self._known.get(key)
        if found is None:
            if not isinstance(note, str):
                raise ValueError(f"note is {note!r}; it must be a string")
            found = self._known[key] = LedgerItem.of(event, note, whole=whole, divisible=divisible)
        return found

    def _number(self, mechanism: LedgerItem) -> None:
        mechanism.number = len(self._declared)
        self._declared.append(mechanism)
        if mechanism.divisible:
            self._divisible[mechanism.note] = mechanism

    def _pay(self, more: Counter[LedgerItem]) -> None:
        """Let the shared budget reserve everything that the guarantee counts, with `more`."""
        if self.payer is not None:
            total = Counter({m: m.most for m in self._declared if m.most}) + more
            self.payer.pay([m.line(n) for m, n in total.items()], self.budget)

    def _taken_up(self, lines: Counter[LedgerItem]) -> bool:
        """Whether a resumed run declares again what the file holds."""
        counts = {m.number: n for m, n in lines.items() if m.number is not None}
        if len(counts) < len(lines) or counts not in self._unfinished:
            return False
        if self.payer is not None:
            self.payer.require_current(self.commits)
            self._pay(Counter())
        self._unfinished.remove(counts)
        return True

    def _require_fit(self, lines: Counter[LedgerItem]) -> None:
        budget, names = cast(Budget, self.budget), ", ".join(f"{n} x {m.note!r}" for m, n in lines.items())
        if self._plans or any(m.most for m in self._declared):
            self._require_filter(lines, f"a second plan of {names}")
            return
        needed = worst([(m.priced, n) for m, n in lines.items()], self.delta, self.relation)
        if needed > budget.epsilon:
            raise BudgetExceeded(f"{self._terms()}: a plan of {names} would bring it to {needed:.6g}")

    def _terms(self) -> str:
        budget = cast(Budget, self.budget)
        return f"budget epsilon {budget.epsilon:.6g} at delta {budget.delta:g} ({self.relation}, {self.unit})"

    def _enter_plan(self, counts: dict[int, int]) -> None:
        for number, count in counts.items():
            self._declared[number].planned += count
        self._plans.append(counts)
        self._filtered = None
        self._spent = None
        self._guarantees.clear()

    # -- the filter ----------------------------------------------------------------------------------------------------

    def _cost(self, mechanism: LedgerItem) -> Cost:
        if mechanism.cost is None:
            mechanism.cost = cast(Filter, self.filter).cost(mechanism.priced)
        return mechanism.cost

    def _total(self) -> Cost:
        """Filter cost of everything promised and charged."""
        if self._filtered is None:
            self._filtered = total_cost(self._cost(m).times(m.most) for m in self._declared if m.most)
        return self._filtered

    def _require_filter(self, more: Counter[LedgerItem], name: str) -> None:
        limits = cast(Filter, self.filter)
        total = total_cost([self._total(), *(self._cost(mechanism).times(count) for mechanism, count in more.items())])
        if not limits.fits(total):
            before, after = limits.total_epsilon(self._total()), limits.total_epsilon(total)
            raise BudgetExceeded(
                f"{self._terms()}: spent {before:.6g}, {name} would bring it to {after:.6g} ({limits.name}: what was not "
                "declared at the start is counted so, with everything else)"
            )

    # -- charges -------------------------------------------------------------------------------------------------------

    def charge(self, event: DpEvent, count: int = 1, *, note: str, of: str | None = None) -> None:
        """Ask for `count` runs of `event`, count them, return; only then may the mechanism run.

        `of` is the note of the declared divisible Gaussian that these runs are a part of.

        `BudgetExceeded` is raised, and nothing counted, where it would spend more than the budget, or than is left of the
        divisible Gaussian; ValueError for a bad count, note or event, or no such Gaussian.
        """
        require_whole("count", count)
        self._file.require_open()
        with self._lock:
            mechanism = self._find(event, note, whole=None if of is None else self._whole(of))
            if mechanism.whole is not None:
                mechanism.require_room(count)
            elif later := mechanism.beyond(count):
                more = Counter({mechanism: later})
                if self.budget is not None:
                    self._require_filter(more, f"{count} x {note!r}")
                self._pay(more)
            self._book(mechanism, count)

    def _whole(self, of: str) -> LedgerItem:
        found = self._divisible.get(of)
        if found is None or not found.planned:
            known = ", ".join(repr(note) for note, m in self._divisible.items() if m.planned) or "none"
            raise ValueError(f"of is {of!r}; it must name a divisible Gaussian that was declared: {known}")
        return found

    def _book(self, mechanism: LedgerItem, count: int) -> None:
        if mechanism.number is None:
            self._number(mechanism)
        later = mechanism.beyond(count)
        mechanism.count += count
        if mechanism.whole is not None:
            mechanism.whole.parts += count * mechanism.precision
        elif later:
            mechanism.later += later
            self._guarantees.clear()
            if self._filtered is not None:
                self._filtered = self._filtered.plus(self._cost(mechanism).times(later))
        if self._runs and self._runs[-1][0] is mechanism:
            self._runs[-1][1] += count
        else:
            self._runs.append([mechanism, count])
        self._spent = None

    def allowance(self, event: DpEvent) -> int:
        """Number of charges of `event`, beside what was declared, that the filter would still grant; ValueError without one."""
        if self.filter is None:
            raise ValueError("budget is None; a ledger that only reports has no allowance")
        with self._lock:
            return self.filter.room(self.filter.cost(event), self._total())

    # -- reports -------------------------------------------------------------------------------------------------------

    @property
    def chosen_later(self) -> bool:
        """Whether anything stands beside the first plan; with a budget, the filter then makes the guarantee."""
        return len(self._plans) > 1 or any(m.later for m in self._declared)

    def epsilon(self, *, relation: Relation | None = None, accountant: Accountant = "tightest") -> float:
        """The guarantee (see the class): epsilon (nats) at the ledger's delta, and its relation unless another is given.

        `UnsupportedEvent` is raised where what was chosen later has no guarantee under another relation.
        """
        with self._lock:
            key = (relation, accountant)
            if key not in self._guarantees:
                asked = relation or self.relation
                if self.filter is None or not self.chosen_later:
                    counts = [(m.priced, m.most) for m in self._declared]
                    self._guarantees[key] = worst(counts, self.delta, asked, accountant, own=self.relation)
                else:
                    self._guarantees[key] = self.filter.chosen_later(self._total(), asked)
            return self._guarantees[key]

    @property
    def accountant(self) -> str:
        """Accounting behind the guarantee, in words."""
        if self.filter is None or not self.chosen_later:
            return "tightest valid of PLD, Renyi and closed forms"
        return self.filter.name if self.filter.order else "sum of pure epsilons"

    def spent(self) -> float:
        """Epsilon of what has run so far, as if it had been fixed in advance; the guarantee is `epsilon`."""
        with self._lock:
            if self._spent is None:
                self._spent = worst([(m.event, m.count) for m in self._declared], self.delta, self.relation)
            return self._spent

    def spent_rdp(self) -> float:
        """Epsilon from RDP: above the tight value by some percent, in microseconds; for the display at every step."""
        import numpy as np

        from dpgen.privacy.accountants import ORDERS, event_alphas, rdp_epsilon

        with self._lock, suppress(UnsupportedEvent):  # an event without moments
            if self.delta:
                total = np.zeros(len(ORDERS))
                for m in self._declared:
                    if m.count:
                        if m.alphas is None:
                            m.alphas = event_alphas(m.event, self.relation)
                        total += m.count * m.alphas
                return rdp_epsilon(total, self.delta)
        return self.spent()

    def entries(self) -> list[LedgerEntry]:
        """Charges in order, equal neighbours merged."""
        with self._lock:
            return [LedgerEntry(m.note, m.event, n, m.whole.note if m.whole else None) for m, n in self._runs]

    def promised(self, *, later: bool = True) -> list[Planned]:
        """Everything declared with its greatest count and, if `later`, all charged beyond it: the guarantee counts both."""
        with self._lock:
            return [m.line(n) for m in self._declared if (n := m.most if later else m.planned)]

    @property
    def charges(self) -> int:
        """Number of charges."""
        return sum(count for _, count in self._runs)

    @property
    def path(self) -> Path | None:
        """File of the ledger, None in memory."""
        return self._file.path

    def position(self) -> dict[str, Any]:
        """Position of the ledger, for a checkpoint: which ledger it is, and how many charges it has."""
        return {"ledger": self._identity, "charges": self.charges}

    def verify_contains(self, position: dict[str, Any]) -> int:
        """Number of charges after `position`: work that was shown, is done again, and is paid again.

        Raises:
            LedgerError: the ledger does not extend `position`: restored from an older copy, or of another run.
        """
        if not isinstance(position, dict) or position.keys() != {"ledger", "charges"}:
            raise LedgerError(f"position is {position!r}; it must be that of a ledger, as a checkpoint holds it")
        if position["ledger"] != self._identity or position["charges"] > self.charges:
            raise LedgerError(
                f"{self.path or 'ledger'}: has {self.charges} charges, the checkpoint saw {position['charges']}: an older "
                "copy or another run"
            )
        return self.charges - int(position["charges"])

    def close(self) -> None:
        """Commit and unlock; a closed ledger still reports and refuses commits and plans."""
        try:
            if not self._closed:
                self.commit()
        finally:
            self._closed = True
            self._file.close()

    def drop(self) -> None:
        """Unlock without a commit; a run that never committed gives its reservation in a shared budget back."""
        if self.payer is not None and not self.committed:
            self.payer.give_back()
        self._closed = True
        self._file.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
