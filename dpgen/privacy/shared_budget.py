r"""One budget for a data set: a file that many runs, people and processes pay from, with one total for all of them.

A run declares its whole plan to its own ledger, which states the run's own guarantee by exact accounting. With a shared budget
the plan is reserved first: one payment of the file says which run may cause which events, with their greatest counts, and is on
the disk before anything of the run may happen. What a run is granted beyond its plan is reserved in the same way.

Formal guarantees:

| case | what holds |
|---|---|
| all runs together, each chosen in the light of all releases before it | (epsilon, delta) of the file: a Renyi filter |
| runs at the same time | the same; what they reserve is added up before either begins |
| a run that is killed after its first commit | has paid for its plan; resumed in its directory it pays no second time |
| a run that never committed | has shown nothing; its reservation can be given back |
| a first run that the filter has no room for, whose own budget is within the file's | is granted, and nothing beside it |
| a run of another relation or unit, of a larger delta, or one that does not fit | refused before anything is spent |
| a copy of a run's directory | refused: it has paid nothing |
| a directory restored from a copy at its old path | refused if its ledger has fewer commits than this file has seen |
| a run that has released something | may release nothing else: the checksum of its release is noted here before |

Why the filter: the runs are a sequence of mechanisms, each of which, and when to stop, may depend on all that was released
before (`composition.py`; its order is fixed in the file's header). Runs that overlap interleave the steps of interactive
mechanisms; Renyi privacy composes concurrently too (Lyu 2022), with losses that are chosen along the way (Haney et al. 2023).

Why one run may be granted without the filter: whether the first payment fits it is known before anything is released. If it
does not, it is granted only where that run's own ledger enforces a budget within the file's, and nothing of another run is
ever granted again: then the guarantee of that run covers all that can happen.
"""

from __future__ import annotations

import getpass
import json
import math
import os
import re
import secrets
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from dpgen.privacy.composition import BITS, RESERVED, BudgetExceeded, Cost, Filter, Moments, Planned, as_json, total_cost
from dpgen.privacy.ledger_file import LedgerError, LedgerFile
from dpgen.privacy.mechanisms import Budget, Relation, decode_event, gaussian_event, require_relation, require_whole

_FORMAT = 2
_WHO = ("run", "model", "user", "directory", "time")
_HUNDREDTH = 100  # runs that the delta of a file is for, where it does not say for how many
_SPARE = Fraction(1, 10**9)  # of the tenth of a delta, for the rounding of those who divide it
_PATIENCE = 60.0  # seconds that a payment waits for the others, which take milliseconds each


@dataclass(frozen=True)
class Payment:
    """The payment of a run, one entry of the file; one that was given back costs nothing any more."""

    run: str  # identity, drawn at random when the run began
    model: str
    user: str
    directory: str  # of its own ledger; empty in memory
    time: str  # ISO 8601
    budget: Budget | None  # that its own ledger enforces
    plan: tuple[Planned, ...]  # events with their greatest counts
    cost: Cost  # as the filter counts it
    relation: Relation = "add_remove"
    returned: bool = False

    @cached_property
    def moments(self) -> Moments:
        """Moments of the plan at all orders, under the relation of the budget."""
        own = () if self.returned else self.plan
        return sum((Moments.of(line.priced, self.relation).times(line.count) for line in own), Moments())

    @property
    def line(self) -> dict[str, Any]:
        """The payment as the file writes it."""
        own = {name: getattr(self, name) for name in _WHO}
        own |= {"epsilon": self.budget and self.budget.epsilon, "delta": self.budget and self.budget.delta}
        plan = [[p.note, json.loads(as_json(p.event)), p.count, p.divisible] for p in self.plan]
        return own | {"plan": sorted(plan, key=json.dumps), "returned": self.returned}


class Standing(NamedTuple):
    """The last commit of a run that the file has seen, by its number, and the checksum of what the run releases."""

    commit: int
    released: str = ""


class Share(NamedTuple):
    """Share of a run that names no delta, or no epsilon, of a shared budget that was made for so many `runs`, if for any.

    So many runs of Gaussian noise with this epsilon and this delta fit, whichever tenth of its delta each of them uses up.
    """

    delta: float
    runs: int | None = None
    epsilon: float | None = None
    pure: float | None = None  # epsilon of a run without delta

    @classmethod
    def of(cls, limits: Filter, runs: int | None) -> Share:
        """The share of a budget; ValueError where there is none."""
        if runs is None:
            return cls(_part(limits.budget.delta, _HUNDREDTH))
        delta, pure = _part(limits.budget.delta, require_whole("runs", runs)), _part(limits.budget.epsilon, runs)
        own = cls(delta, runs, pure, pure)
        if delta:
            found = _most(limits, lambda cost: limits.fits(cost.plus(own.tenth).times(runs)), delta)
            own = own._replace(epsilon=min(_rounded_down(found), limits.budget.epsilon))
        if not own.epsilon:
            raise ValueError(f"runs is {runs}; the budget {limits.budget} has no room for so many")
        return own

    def beside(self, paid: float, delta: float) -> Share:
        """The share of a run that reads releases of this `delta`, and of an epsilon that was `paid` from the same budget."""
        made = self._replace(delta=self.delta + delta)
        if self.epsilon is None or self.pure is None:
            return made
        return made._replace(epsilon=self.epsilon + paid, pure=self.pure + paid)

    @property
    def tenth(self) -> Cost:
        """The part of the delta of one run that guarantees which may fail use up."""
        return Cost(delta=math.floor(Fraction(self.delta) * Fraction(RESERVED) * (1 - _SPARE) * (1 << BITS)))


def _rounded_down(value: float) -> float:
    """Four digits of it, never more than it is."""
    return float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(value)))


def _part(value: float, count: int) -> float:
    """A part of which so many are no more than the value, exactly; four digits.

    >>> _part(1e-5, 30), _part(10.0, 3)
    (3.333e-07, 3.333)
    """
    part = float(Context(prec=4, rounding=ROUND_FLOOR).divide(Decimal(value), Decimal(count)))
    while Fraction(part) * count > Fraction(value):
        part = math.nextafter(part, 0.0)
    return part


def _most(limits: Filter, fits: Callable[[Cost], bool], delta: float) -> float:
    """Largest epsilon at delta of one Gaussian release whose cost fits; 0 where none does."""
    from dpgen.privacy.accountants import epsilon

    least, enough = 1e-2, 1e6
    if not fits(limits.cost(gaussian_event(enough))):
        return 0.0
    while enough / least > 1.0001:
        middle = (least * enough) ** 0.5
        least, enough = (least, middle) if fits(limits.cost(gaussian_event(middle))) else (middle, enough)
    return epsilon(gaussian_event(enough), delta, relation=limits.relation)


@dataclass(frozen=True)
class Spending:
    """Terms in the file of a shared budget, its payments in order, and the last commit of each run."""

    limits: Filter
    unit: str
    share: Share
    payments: tuple[Payment, ...] = ()
    standings: Mapping[str, Standing] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The file."""
        return {
            "dpgen_shared_budget": _FORMAT,
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "relation": self.limits.relation,
            "unit": self.unit,
            "filter": self.limits.header,
            "share": self.share._asdict(),
            "payments": [payment.line for payment in self.payments],
            "committed": {run: last._asdict() for run, last in self.standings.items()},
        }

    @property
    def budget(self) -> Budget:
        """The total."""
        return self.limits.budget

    def covers(self, budget: Budget | None) -> bool:
        """Whether a run whose own ledger enforces `budget` is, by itself, within the total."""
        return budget is not None and budget.epsilon <= self.budget.epsilon and budget.delta <= self.budget.delta

    @property
    def kept(self) -> tuple[Payment, ...]:
        """Payments that were not given back."""
        return tuple(payment for payment in self.payments if not payment.returned)

    @property
    def total(self) -> Cost:
        """Cost of all payments."""
        return total_cost(payment.cost for payment in self.kept)

    @property
    def runs(self) -> int:
        """Number of runs that have paid."""
        return len({payment.run for payment in self.kept})

    @property
    def epsilon(self) -> float:
        """Epsilon paid for so far, as if it had been fixed in advance: for a display; the guarantee is the budget's.

        The smaller of the filter at its one order and of moments at all orders.
        """
        return min(self.filtered, sum((p.moments for p in self.kept), Moments()).epsilon(self.budget.delta))

    @property
    def filtered(self) -> float:
        """Epsilon paid for by the filter alone, or by the own ledger of the only run."""
        spent = self.limits.total_epsilon(self.total)
        only = self.kept[0].budget if self.runs == 1 else None
        return min(spent, only.epsilon) if only is not None and self.covers(only) else spent

    def upto(self, count: int) -> Spending:
        """The first `count` payments."""
        return replace(self, payments=self.payments[:count])

    @property
    def left(self) -> float:
        """Largest epsilon of one more run with the delta that a run has unless it names one, of a Gaussian release and of
        guarantees that use up a tenth of that delta; rounded down, at most the total, 0 where none fits."""
        if not self.budget.delta:
            found = self.budget.epsilon - min(self.budget.epsilon, self.limits.total_epsilon(self.total))
        else:
            found = _most(
                self.limits, lambda cost: self.limits.fits(total_cost([self.total, cost, self.share.tenth])), self.share.delta
            )
        return math.floor(1000 * min(found, self.budget.epsilon)) / 1000

    @property
    def delta_left(self) -> float:
        """Largest delta of one more run that uses up a tenth of it; rounded down, at most the total."""
        return _rounded_down(min(self.limits.delta_left(self.total), self.budget.delta))

    @property
    def fitting(self) -> str:
        """The rest of the budget in words; of releases that are not Gaussian others may fit, which is not said."""
        gaussian, at = ("Gaussian ", f" at delta {self.share.delta:g}") if self.budget.delta else ("", "")
        run = f"run of {gaussian}releases with epsilon"
        return f"one {run} {self.left:g}{at} fits" if self.left else f"no {run} 0.001{at} fits"

    def left_like(self, run: str) -> int | None:
        """Number of runs that would pay as much as this one has, which the filter has room for; None if it paid nothing."""
        cost = total_cost(payment.cost for payment in self.kept if payment.run == run)
        return None if cost == Cost() else self.limits.room(cost, self.total)

    @property
    def runs_left(self) -> int | None:
        """Number of further runs like the last one; before there is one, the runs that the budget was made for."""
        return self.left_like(self.kept[-1].run) if self.kept else self.share.runs

    @property
    def reservations(self) -> tuple[Payment, ...]:
        """Payments of runs that have not committed, the first one of each run."""
        return tuple({p.run: p for p in reversed(self.kept) if p.run not in self.standings}.values())[::-1]

    def plus(self, payment: Payment) -> Spending:
        """With one more payment, whether or not it fits."""
        return replace(self, payments=(*self.payments, payment))

    def fits(self, payment: Payment) -> bool:
        """Whether one more payment is covered by the budget: by the filter, or as of the only run that is ever granted."""
        if self.limits.fits(self.total.plus(payment.cost)):
            return True
        first = self.plus(payment).kept[0]
        known_before = self.covers(first.budget) and not self.limits.fits(first.cost)
        return known_before and all(earlier.run == payment.run for earlier in self.kept)

    def room(self, payment: Payment) -> int:
        """Number of such payments, each of a run of its own, that the filter has room for; ValueError if it costs nothing."""
        return self.limits.room(payment.cost, self.total)


class SharedBudget:
    """The file of one budget for all runs on a data set; locked only while a payment is read or written.

    Arguments:
        path: the file; `SharedBudget.create` makes one.

    Raises:
        LedgerError: missing, damaged, or no shared budget.

    >>> from tempfile import mkdtemp
    >>> from dpgen.privacy.mechanisms import gaussian_event
    >>> from dpgen.privacy.ledger import Ledger, Planned
    >>> shared = SharedBudget.create(Path(mkdtemp()) / "census.budget", Budget(3.0, 1e-5))
    >>> ledger = Ledger(Budget(1.0, 1e-5), payer=shared.payer("histogram"))
    >>> ledger.declare([Planned(gaussian_event(4.0), "counts")])
    >>> round(ledger.epsilon(), 2), shared.spending().runs
    (0.93, 1)
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path).resolve()
        opened = self.spending()
        self.limits, self.unit, self.share = opened.limits, opened.unit, opened.share

    @classmethod
    def create(
        cls,
        path: Path,
        budget: Budget,
        *,
        relation: Relation = "add_remove",
        unit: str = "one record",
        runs: int | None = None,
    ) -> SharedBudget:
        """A new file, whose header fixes the budget, relation, unit and the best order of a filter for one Gaussian.

        Of `runs` runs each has the same share of epsilon and delta, unless it names its own; None: a hundredth of delta.
        """
        limits = Filter.best(budget, require_relation(relation))
        share = Share.of(limits, runs)
        file = LedgerFile(Path(path), wait=_PATIENCE)
        file.create()
        try:
            file.write(Spending(limits, unit, share).document)
        finally:
            file.close()
        return cls(path)

    @contextmanager
    def opened(self) -> Iterator[tuple[LedgerFile, Spending]]:
        """The locked file and what it says."""
        file = LedgerFile(self.path, wait=_PATIENCE)
        try:
            yield file, _spending(file)
        finally:
            file.close()

    def spending(self) -> Spending:
        """All payments so far."""
        with self.opened() as (_, spending):
            return spending

    def give_back(self, run: str) -> None:
        """Give back what a run has reserved that never committed, so that nothing of it was seen; ValueError for other runs."""
        with self.opened() as (file, spending):
            if run in spending.standings:
                raise ValueError(f"release is {run!r}; this run has committed: what it has paid for may have been seen")
            if all(payment.run != run for payment in spending.kept):
                known = ", ".join(sorted({p.run for p in spending.kept if p.run not in spending.standings})) or "none"
                raise ValueError(f"release is {run!r}; it must be a run with a reservation and without a commit: {known}")
            left = [replace(p, returned=True, cost=Cost()) if p.run == run else p for p in spending.payments]
            file.write(replace(spending, payments=tuple(left)).document)

    def payer(self, model: str, *, directory: Path | None = None, settled: Sequence[str] = ()) -> Payer:
        """A new run of `model`, whose own ledger is in `directory`, that pays from this budget, but for what is `settled`."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a container without an entry for this user
            user = str(os.getuid())
        where = "" if directory is None else str(directory.resolve())
        return Payer(self.path, secrets.token_hex(8), model, user, where, tuple(settled))

    def paid(self, stated: Mapping[str, Any] | None) -> bool:
        """Whether the run whose statement says this of its shared budget has paid from this one."""
        return stated is not None and any(payment.run == stated["run"] for payment in self.spending().kept)

    def require_same(self, *, relation: str, unit: str, delta: float) -> None:
        """Refuse, with a ValueError, a run of another relation or unit than the file fixes, or of a larger delta."""
        made = f"dpgen budget FILE --create --epsilon {self.limits.budget.epsilon:g} --delta {self.limits.budget.delta:g}"
        if relation != self.limits.relation or unit != self.unit:
            made += "".join([f" --relation {relation}" * (relation != "add_remove"), f" {unit_options(unit)}".rstrip()])
        for name, own, wanted, given in (
            ("relation", relation, self.limits.relation, f"--relation {self.limits.relation}"),
            ("unit", unit, self.unit, run_options(self.unit)),
        ):
            if own != wanted:
                raise ValueError(
                    f"{name} is {own!r}; it must be {wanted!r}, that of the shared budget {self.path}: give the run {given}, "
                    f"or a budget of its own, by {made}"
                )
        if delta > self.limits.budget.delta:
            allowed = f"{self.limits.budget.delta:g}, that of the shared budget {self.path}"
            raise ValueError(f"delta is {delta:g}; it must be at most {allowed}")


_PEOPLE = re.compile(r"one person \((.*)\) with at most (\d+) rows?", re.DOTALL)


def unit_options(unit: str) -> str:
    """Options of `dpgen budget --create` for a unit, empty for records.

    >>> unit_options("one person (id) with at most 3 rows"), unit_options("one record"), unit_options("one user")
    ('--unit id --max_contributions 3', '', "--unit 'one user'")
    """
    if found := _PEOPLE.fullmatch(unit):
        return f"--unit {shlex.quote(found[1])} --max_contributions {found[2]}"
    return "" if unit == "one record" else f"--unit {shlex.quote(unit)}"


def run_options(unit: str) -> str:
    """Words on the options of a run for a unit."""
    if unit == "one record":
        return "no --unit and no --person"
    return unit_options(unit) if _PEOPLE.fullmatch(unit) else f"a model of the unit {unit!r} (linked tables: --person COLUMN)"


def _spending(file: LedgerFile) -> Spending:
    """The text of the file."""
    document = file.read()
    if document.get("dpgen_shared_budget") != _FORMAT:
        raise LedgerError(f"{file.path}: is no shared budget; dpgen budget FILE --create makes one")
    try:
        limits = Filter(Budget(document["epsilon"], document["delta"]), document["relation"], document["filter"]["order"])
        standings = {run: Standing(**last) for run, last in document["committed"].items()}
        payments = tuple(_payment(line, limits) for line in document["payments"])
        shared = document.get("share")  # which files of 0.5 have not
        share = Share.of(limits, None) if shared is None else Share(**shared)
        return Spending(limits, document["unit"], share, payments, standings)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise LedgerError(f"{file.path}: cannot be understood: {error!r}") from None


def _cost(plan: Iterable[Planned], limits: Filter) -> Cost:
    """Cost of a plan."""
    return total_cost(limits.cost(line.priced).times(line.count) for line in plan)


def _payment(line: dict[str, Any], limits: Filter) -> Payment:
    plan = tuple(
        Planned(decode_event(event), note, require_whole("count", count), divisible)
        for note, event, count, divisible in line["plan"]
    )
    budget = None if line["epsilon"] is None else Budget(line["epsilon"], line["delta"])
    cost, returned = Cost() if line["returned"] else _cost(plan, limits), bool(line["returned"])
    own = {name: line[name] for name in _WHO}
    return Payment(**own, budget=budget, plan=plan, cost=cost, relation=limits.relation, returned=returned)


def _beyond(plan: Sequence[Planned], own: Sequence[Payment]) -> list[Planned]:
    """Part of the plan of a run that goes beyond its own payments."""
    paid = Counter[str]()
    for payment in own:
        paid.update({line.key: line.count for line in payment.plan})
    return [replace(line, count=line.count - paid[line.key]) for line in plan if line.count > paid[line.key]]


@dataclass(frozen=True)
class Payer:
    """One run that pays from a shared budget, see `Payment`; `settled` are notes of its plan that other runs have paid for."""

    path: Path
    run: str
    model: str
    user: str
    directory: str
    settled: tuple[str, ...] = ()

    @classmethod
    def of(cls, reference: dict[str, Any], directory: Path) -> Payer:
        """The run that the header of an own ledger, which is now in `directory`, refers to."""
        own = {name: reference[name] for name in ("run", "model", "user")}
        return cls(
            Path(reference["file"]), **own, directory=str(directory.resolve()), settled=tuple(reference.get("settled", ()))
        )

    @property
    def reference(self) -> dict[str, Any]:
        """Entries in the header of the own ledger."""
        own = {"file": str(self.path), "run": self.run, "model": self.model, "user": self.user}
        return own | ({"settled": list(self.settled)} if self.settled else {})

    def quote(self, plan: Iterable[Planned], budget: Budget | None, limits: Filter) -> Payment:
        """The payment for a plan without what others have paid for, not made."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        owed = tuple(line for line in plan if line.note not in self.settled)
        own = (self.run, self.model, self.user, self.directory, now, budget, owed, _cost(owed, limits))
        return Payment(*own, relation=limits.relation)

    def pay(self, plan: Sequence[Planned], budget: Budget | None) -> None:
        """Reserve what goes beyond all that this run has reserved before; on the disk before it returns.

        `plan` are all events of the run with their greatest counts; `budget` is what the own ledger enforces, None where it
        only reports. `BudgetExceeded` is raised, and nothing recorded, where there is no room.
        """
        with SharedBudget(self.path).opened() as (file, spending):
            own = [payment for payment in spending.kept if payment.run == self.run]
            if own and all(payment.directory != self.directory for payment in own):
                raise LedgerError(
                    f"{self.path}: the run {self.run} has paid in {own[0].directory}, not in {self.directory}, a copy that has "
                    "paid nothing: go on there, or begin a new run"
                )
            payment = self.quote(_beyond(plan, own), budget, spending.limits)
            if own and not payment.plan:
                return
            if not spending.fits(payment):
                total, limits = spending.budget, spending.limits
                by_delta = limits.fits(spending.total.plus(payment.cost._replace(delta=0)))
                hint = f"; its delta does not fit: one with --delta {spending.delta_left:g} may" if by_delta else ""
                raise BudgetExceeded(
                    f"the shared budget {self.path} is epsilon {total.epsilon:.6g} at delta {total.delta:g} "
                    f"({limits.relation}, {spending.unit}): spent {spending.filtered:.6g} (runs: {spending.runs}), this plan "
                    f"would bring it to {spending.plus(payment).filtered:.6g} ({limits.name}); {spending.fitting}{hint}"
                )
            file.write(spending.plus(payment).document)

    def require_current(self, commit: int, released: str = "") -> None:
        """Refuse, with a LedgerError, a ledger of this run with fewer commits than the file has seen, and another release.

        It was restored from a copy, or what it had reserved was given back, or it has released something else.
        """
        self._compare(SharedBudget(self.path).spending(), commit, released)

    def _compare(self, spending: Spending, commit: int, released: str) -> None:
        if all(payment.run != self.run for payment in spending.kept):
            raise LedgerError(f"{self.path}: holds no payment of the run {self.run}")
        last = spending.standings.get(self.run)
        if last is not None and last.commit > commit:
            raise LedgerError(
                f"{self.path}: has seen commit {last.commit} of the run {self.run}, its ledger has {commit}: it was restored "
                "from a copy, and a second release for one payment is refused: begin a new run"
            )
        if last is not None and last.released and released not in ("", last.released):
            raise LedgerError(f"{self.path}: the run {self.run} has released something else before; begin a new run")

    def stand(self, commit: int, released: str) -> None:
        """Note a commit of the own ledger that is current, and what is about to be released; on the disk before it returns."""
        with SharedBudget(self.path).opened() as (file, spending):
            self._compare(spending, commit, released)
            file.write(replace(spending, standings={**spending.standings, self.run: Standing(commit, released)}).document)

    def give_back(self) -> None:
        """Give back what the run has reserved, if it has reserved anything and never committed."""
        shared = SharedBudget(self.path)
        own = [payment for payment in shared.spending().kept if payment.run == self.run]
        if own and own[0].directory == self.directory:  # a copy of the run has reserved nothing
            with suppress(ValueError):
                shared.give_back(self.run)

    @property
    def last(self) -> bool:
        """Whether the budget has no room for a second run like this one."""
        return SharedBudget(self.path).spending().left_like(self.run) == 0

    def statement(self) -> dict[str, Any]:
        """The budget in a statement: its terms, what has been paid from it, and by how many runs."""
        return {"file": self.path.name, "run": self.run} | account(SharedBudget(self.path).spending())


def account(spending: Spending) -> dict[str, Any]:
    """The total of a shared budget, the order of its filter, and what has been paid from it, for a statement."""
    return {
        "epsilon": spending.budget.epsilon,
        "delta": spending.budget.delta,
        "order": spending.limits.order,
        "spent": spending.epsilon,
        "runs": spending.runs,
        "payments": len(spending.payments),
    }


class Declared(Exception):
    """The plan that a run has declared, instead of running."""

    def __init__(self, plan: Sequence[Planned]) -> None:
        super().__init__("declared")
        self.plan = plan


class Quoting(Payer):
    """Takes the plan of a run, and ends it."""

    def pay(self, plan: Sequence[Planned], budget: Budget | None) -> NoReturn:
        """Pays nothing."""
        raise Declared(plan)
