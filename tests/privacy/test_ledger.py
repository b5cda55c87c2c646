"""The ledger: what is granted, what is written, what it guarantees, and broken twins that are rejected."""

import contextlib
import errno
import json
import math
import os
import threading
import time

import dp_accounting as dpa
import pytest

from dpgen.privacy.accountants import epsilon
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger, LedgerEntry, LedgerError, Planned
from dpgen.privacy.ledger_file import LedgerFile
from dpgen.privacy.mechanisms import UnsupportedEvent, approximate_event, gaussian_event, pure_event, subsampled_gaussian_event

SGD = subsampled_gaussian_event(0.02, 1.5)
SUM = gaussian_event(10.0)
BUDGET = Budget(1.0, 1e-5)
REPORT = Ledger(None, delta=1e-5)


def together(ledger):
    """One event for everything that the guarantee of a ledger counts."""
    return dpa.ComposedDpEvent([times(line.event, line.count) for line in ledger.promised()])


def counted(limits, event):
    """Epsilon that a filter counts for an event."""
    return limits.total_epsilon(limits.cost(event))


def times(event, count):
    return dpa.SelfComposedDpEvent(event, count)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((lambda value=value: Budget(value, 1e-5), "epsilon") for value in (0, -1, math.inf, math.nan, "1")),
        *((lambda value=value: Budget(1.0, value), "delta") for value in (1, -1e-5, math.nan, None)),
        (lambda: Ledger(None, delta=1), "delta"),
        (lambda: Ledger(BUDGET, delta=1e-5), "budget"),
        (lambda: Ledger(BUDGET, relation="swap"), "relation"),
        *((lambda count=count: REPORT.charge(SGD, count, note="sgd"), "count") for count in (0, -1, 1.0, True, "1")),
        (lambda: REPORT.charge(SGD, note=3), "note"),
        (lambda: REPORT.charge(dpa.GaussianDpEvent(math.nan), note="nan"), "event"),
        (lambda: REPORT.charge("gaussian", note="text"), "event"),
        (lambda: REPORT.allowance(SGD), "budget"),
        (lambda: Ledger(BUDGET).allowance(dpa.NoOpDpEvent()), "costs nothing"),
    ],
)
def test_refusals_record_nothing(make, name):
    with pytest.raises(ValueError, match=name):
        make()
    assert REPORT.entries() == []


def test_spends_exactly_the_allowance():
    ledger = Ledger(BUDGET)
    ledger.charge(SUM, 2, note="sums")
    room = ledger.allowance(SGD)
    for _ in range(room):
        ledger.charge(SGD, note="sgd")
    assert ledger.allowance(SGD) == 0
    assert ledger.epsilon() == 1.0, "a filter's guarantee is its budget"
    assert ledger.spent() == epsilon(dpa.ComposedDpEvent([times(SUM, 2), times(SGD, room)]), 1e-5)
    with pytest.raises(BudgetExceeded, match=r"spent 0.9\d+, 1 x 'sgd'"):
        ledger.charge(SGD, note="sgd")
    with pytest.raises(BudgetExceeded, match="inf"):
        ledger.charge(dpa.NonPrivateDpEvent(), note="raw data")
    assert ledger.entries() == [LedgerEntry("sums", SUM, 2), LedgerEntry("sgd", SGD, room)]


def test_epsilon_under_another_relation_or_accountant():
    ledger, plan = Ledger(None, delta=1e-6), times(SGD, 200)
    assert ledger.epsilon() == ledger.spent_rdp() == 0
    ledger.charge(SGD, 200, note="sgd")
    assert ledger.epsilon() == epsilon(plan, 1e-6) == epsilon(together(ledger), 1e-6)
    assert ledger.epsilon(relation="replace_one") == epsilon(plan, 1e-6, relation="replace_one")
    assert ledger.epsilon(accountant="rdp") == pytest.approx(ledger.spent_rdp(), rel=1e-12)


@pytest.mark.parametrize("budget", [None, Budget(4.0, 1e-5)])
def test_resume_continues_the_same_ledger(tmp_path, budget):
    path, both = tmp_path / "l.jsonl", dpa.ComposedDpEvent([SUM, SGD])
    with Ledger(budget, delta=None if budget else 1e-6, relation="replace_one", unit="one user", path=path) as ledger:
        ledger.charge(SUM, note="sum")
        ledger.charge(SGD, 3, note="sgd")
        ledger.charge(both, note="both")
        spent, entries, position = ledger.epsilon(), ledger.entries(), ledger.position()
    with Ledger.open(path) as resumed:
        assert (resumed.budget, resumed.delta, resumed.terms, resumed.path) == (budget, ledger.delta, ledger.terms, path)
        assert (resumed.epsilon(), resumed.entries(), resumed.position()) == (spent, entries, position)
        resumed.charge(SGD, note="sgd")
        resumed.charge(both, note="both")
        assert resumed.verify_contains(position) == 2
    assert len(json.loads(path.read_text())["mechanisms"]) == 3
    with Ledger.open(path) as again:
        assert sum(entry.count for entry in again.entries()) == 7


def test_checkpoint_against_ledger():
    ledger = Ledger(BUDGET)
    ledger.charge(SGD, note="sgd")
    early = ledger.position()
    ledger.charge(SGD, 4, note="sgd")
    ledger.charge(SUM, 2, note="sum")
    late = ledger.position()
    assert ledger.verify_contains(late) == 0
    assert ledger.verify_contains(early) == 6
    other = Ledger(BUDGET)
    other.charge(SGD, 3, note="sgd")
    for bad in (late, early, {}, None):
        with pytest.raises(LedgerError, match=r"checkpoint|position"):
            other.verify_contains(bad)


@pytest.mark.parametrize(
    "change",
    [
        {"charges": [[5, 1]]},
        {"charges": [[0]]},
        {"plans": [[[5, 1]]]},
        {"mechanisms": [{"event": ["os", {}], "note": ""}]},
        {"dpgen_ledger": 99},
    ],
)
def test_consistent_but_senseless_files(tmp_path, change):
    path = tmp_path / "l.jsonl"
    Ledger(BUDGET, path=path).close()
    file = LedgerFile(path)
    file.write(file.read() | change)
    file.close()
    for _ in range(2):  # the lock is given up after the error
        with pytest.raises(LedgerError, match=r"understood|unknown event|version"):
            Ledger.open(path)


def test_a_plan_that_could_not_be_written_ends_the_ledger(tmp_path, monkeypatch):
    ledger = Ledger(Budget(1.0, 1e-5), path=tmp_path / "l.jsonl")
    before = (tmp_path / "l.jsonl").read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(LedgerError, match="space"):
            ledger.declare([Planned(SUM, "a")])
    for ask in (lambda: ledger.charge(SUM, note="a"), lambda: ledger.declare([Planned(SUM, "a")])):
        with pytest.raises(LedgerError, match="closed"):
            ask()
    assert (tmp_path / "l.jsonl").read_bytes() == before


class TestPlans:
    """A plan is checked as a whole before anything is recorded; inside of it charges are granted at once."""

    PLAN = (Planned(SUM, "sums", 2), Planned(SGD, "sgd", 100), Planned(SGD, "sgd", 50))

    def test_the_guarantee_is_that_of_the_whole_plan(self):
        ledger = Ledger(Budget(2.0, 1e-5))
        ledger.declare(self.PLAN)
        whole = epsilon(dpa.ComposedDpEvent([times(SUM, 2), times(SGD, 150)]), 1e-5)
        assert ledger.epsilon() == whole
        assert ledger.spent() == ledger.spent_rdp() == 0
        ledger.charge(SGD, 30, note="sgd")
        assert ledger.epsilon() == whole > ledger.spent() == epsilon(times(SGD, 30), 1e-5)
        assert not ledger.chosen_later
        assert ledger.promised() == [Planned(SUM, "sums", 2), Planned(SGD, "sgd", 150)]
        assert ledger.epsilon(relation="replace_one") > whole

    def test_exact_accounting_decides_where_the_filter_would_not(self):
        ledger = Ledger(BUDGET)
        room = int(1.05 * ledger.allowance(SGD))
        assert epsilon(times(SGD, room), 1e-5) <= 1
        ledger.declare([Planned(SGD, "sgd", room)])
        ledger.charge(SGD, room, note="sgd")
        for later in (SGD, gaussian_event(1e4)):
            with pytest.raises(BudgetExceeded, match="1 x 'later' would bring it to"):
                ledger.charge(later, note="later")
        with pytest.raises(BudgetExceeded, match="a second plan"):
            ledger.declare([Planned(gaussian_event(1e4), "tiny")])
        assert ledger.epsilon() <= 1

    def test_a_plan_that_does_not_fit_is_not_written(self, tmp_path):
        path = tmp_path / "l.jsonl"
        with Ledger(BUDGET, path=path) as ledger:
            before = path.read_bytes()
            with pytest.raises(BudgetExceeded, match=r"a plan of 1 x 'a', 3 x 'b' would bring it to \d"):
                ledger.declare([Planned(SUM, "a"), Planned(gaussian_event(1.0), "b", 3)])
            assert path.read_bytes() == before
            ledger.declare([Planned(SUM, "a", divisible=True)])
            assert ledger.epsilon() > 0

    def test_what_is_chosen_later_goes_through_the_filter_with_everything_else(self):
        ledger = Ledger(Budget(2.0, 1e-5))
        ledger.declare([Planned(SUM, "sums", 2)])
        ledger.charge(SGD, 20, note="sgd")
        assert ledger.chosen_later
        assert ledger.epsilon() == 2.0
        with pytest.raises(UnsupportedEvent, match="chosen adaptively"):
            ledger.epsilon(relation="replace_one")
        room = ledger.allowance(SGD)
        total = dpa.ComposedDpEvent([times(SUM, 2), times(SGD, 20 + room)])
        assert counted(ledger.filter, total) <= 2 < counted(ledger.filter, dpa.ComposedDpEvent([total, SGD]))
        ledger.charge(SGD, room, note="sgd")
        with pytest.raises(BudgetExceeded, match=r"spent 1\.9\d+, 1 x 'sgd' would bring it to 2"):
            ledger.charge(SGD, note="sgd")
        ledger.charge(SUM, 2, note="sums")  # promised at the start

    def test_pure_charges_chosen_later_cost_twice_as_much_where_records_are_replaced(self):
        ledger = Ledger(Budget(1.0, 0.0))
        for _ in range(2):
            ledger.charge(pure_event(0.25), note="later")
        assert (ledger.epsilon(), ledger.epsilon(relation="replace_one")) == (0.5, 1.0)

    def test_deltas_have_their_share(self):
        ledger = Ledger(Budget(1.0, 1e-6))
        ledger.declare([Planned(gaussian_event(50.0), "sums")])
        ledger.charge(approximate_event(0.1, 0.9e-7), note="choice")
        with pytest.raises(BudgetExceeded, match="would bring it to inf"):
            ledger.charge(approximate_event(0.1, 0.2e-7), note="choice")

    def test_plans_survive(self, tmp_path):
        path = tmp_path / "l.jsonl"
        plan = [*self.PLAN, Planned(gaussian_event(20.0), "split", divisible=True)]
        with Ledger(Budget(2.0, 1e-5), path=path) as ledger:
            ledger.declare(plan)
            ledger.charge(SGD, 100, note="sgd")
            ledger.charge(gaussian_event(30.0), note="half", of="split")
            guarantee, entries = ledger.epsilon(), ledger.entries()
        written = json.loads(path.read_text())
        assert written["filter"] == {"order": ledger.filter.order}
        assert written["plans"] == [[[0, 2], [1, 150], [2, 1]]]
        with Ledger.open(path) as resumed:
            assert (resumed.epsilon(), resumed.entries(), resumed.filter) == (guarantee, entries, ledger.filter)
            resumed.declare(plan)  # taken up, not added
            assert resumed.epsilon() == guarantee
            resumed.charge(SGD, 50, note="sgd")
            with pytest.raises(BudgetExceeded, match="would take"):
                resumed.charge(gaussian_event(25.0), note="half", of="split")
            assert not resumed.chosen_later
            resumed.declare([Planned(gaussian_event(200.0), "another")])
            assert resumed.chosen_later
            assert resumed.epsilon() == 2.0

    def test_reports_only(self):
        ledger = Ledger(None, delta=1e-5)
        ledger.declare([Planned(SGD, "sgd", 10)])
        assert ledger.epsilon() == epsilon(times(SGD, 10), 1e-5)
        assert not ledger.chosen_later
        ledger.charge(SGD, 12, note="sgd")
        assert ledger.chosen_later
        assert ledger.epsilon() == epsilon(times(SGD, 12), 1e-5)


class TestDivisible:
    """Parts of a Gaussian, chosen along the way: their precisions add up to its own, never more."""

    @staticmethod
    def ledger():
        ledger = Ledger(BUDGET)
        ledger.declare([Planned(gaussian_event(5.0), "rounds", divisible=True)])
        return ledger

    def test_parts_that_fill_it(self):
        ledger = self.ledger()
        for i in range(7):
            ledger.charge(gaussian_event(5.0 * math.sqrt(7)), note=f"round {i}", of="rounds")
        assert ledger.spent() == pytest.approx(ledger.epsilon(), rel=1e-8)
        assert ledger.spent() <= ledger.epsilon(), "what rounding may add is paid for"
        assert [entry.of for entry in ledger.entries()] == ["rounds"] * 7
        with pytest.raises(BudgetExceeded, match=r"'rounds' of multiplier 5 has .* left; 1 x 'more' would take"):
            ledger.charge(gaussian_event(1e4), note="more", of="rounds")

    def test_several_parts_at_once_count_several_times(self):
        ledger = self.ledger()
        ledger.charge(gaussian_event(10.0), 3, note="three quarters", of="rounds")
        with pytest.raises(BudgetExceeded, match=r"has 0\.25 of it left; 1 x 'half' would take 0\.5"):
            ledger.charge(gaussian_event(5.0 * math.sqrt(2)), note="half", of="rounds")
        ledger.charge(gaussian_event(10.0), note="the last quarter", of="rounds")

    def test_the_surplus_is_for_rounding_only(self):
        ledger = self.ledger()
        with pytest.raises(BudgetExceeded, match="would take"):
            ledger.charge(gaussian_event(5.0 * (1 - 1e-8)), note="all", of="rounds")
        ledger.charge(gaussian_event(5.0 * (1 - 1e-11)), note="all", of="rounds")

    def test_refusals(self):
        ledger = self.ledger()
        with pytest.raises(ValueError, match="it must name a divisible Gaussian that was declared: 'rounds'"):
            ledger.charge(gaussian_event(50.0), note="x", of="round")
        with pytest.raises(ValueError, match="must be a plain Gaussian"):
            ledger.charge(SGD, note="x", of="rounds")
        with pytest.raises(ValueError, match="only a plain Gaussian is divisible"):
            ledger.declare([Planned(SGD, "x", divisible=True)])
        with pytest.raises(ValueError, match="another divisible Gaussian has this note"):
            ledger.declare([Planned(gaussian_event(90.0), "rounds", divisible=True)])
        assert ledger.entries() == []


class Unlocked(Ledger):
    """Broken: threads ask one by one, but record together."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._lock = contextlib.nullcontext()


def contract_threads(kind, monkeypatch):
    """Many threads, one ledger: what all of them are granted is what one of them would be."""
    ledger = kind(Budget(4.0, 1e-5))
    ledger.declare([Planned(SUM, "declared", 20)])
    room, granted = ledger.allowance(SUM), []
    assert 0 < room < 1000
    book = kind._book

    def slow(self, mechanism, count):
        time.sleep(1e-4)
        book(self, mechanism, count)

    def spend():
        with contextlib.suppress(BudgetExceeded):
            while len(granted) < 10_000:
                ledger.charge(SUM, note="declared")
                granted.append(1)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "_book", slow)
        threads = [threading.Thread(target=spend) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(granted) == 20 + room, "threads were granted more than fits"
    assert ledger.entries() == [LedgerEntry("declared", SUM, len(granted))]


def test_threads_share_a_ledger(monkeypatch):
    contract_threads(Ledger, monkeypatch)
    with pytest.raises(AssertionError, match="threads were granted more than fits"):
        contract_threads(Unlocked, monkeypatch)


def test_what_was_not_committed_is_forgotten_and_what_was_is_kept(tmp_path):
    path = tmp_path / "l.jsonl"
    ledger = Ledger(BUDGET, path=path)
    ledger.declare([Planned(SUM, "sums", 3)])
    ledger.charge(SUM, note="sums")
    assert not ledger.committed
    ledger.commit()
    ledger.charge(SUM, note="sums")
    ledger.drop()  # what a killed process leaves
    with Ledger.open(path) as again:
        assert again.committed
        assert again.entries() == [LedgerEntry("sums", SUM, 1)]
        assert again.promised() == [Planned(SUM, "sums", 3)]


def test_what_fits_depends_on_the_relation():
    """A replaced record moves the sums of a Gaussian twice as far."""
    one, two = (Ledger(BUDGET, relation=relation) for relation in ("add_remove", "replace_one"))
    assert two.allowance(gaussian_event(20.0)) == one.allowance(gaussian_event(10.0)) > 0
    one.declare([Planned(gaussian_event(4.0), "sums")])
    with pytest.raises(BudgetExceeded):
        two.declare([Planned(gaussian_event(4.0), "sums")])
    two.declare([Planned(gaussian_event(8.0), "sums")])
    assert one.epsilon() == pytest.approx(two.epsilon())


def test_what_is_planned_costs_twice_as_much_where_records_are_replaced():
    one, two = (Ledger(Budget(1.0, 0.0), relation=relation) for relation in ("add_remove", "replace_one"))
    for ledger in (one, two):
        ledger.declare([Planned(pure_event(0.25), "choice", 2)])
    assert (one.epsilon(), one.epsilon(relation="replace_one"), two.epsilon()) == (0.5, 1.0, 0.5)
    with pytest.raises(UnsupportedEvent, match="which does not imply it"):
        two.epsilon(relation="add_remove")


def test_a_commit_that_could_not_be_written_is_made_by_the_next_one(tmp_path, monkeypatch):
    path = tmp_path / "l.jsonl"

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with Ledger(BUDGET, path=path) as ledger:
        ledger.charge(SUM, note="sum")
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(LedgerError, match="space"):
                ledger.commit()
        assert not ledger.committed
        ledger.commit()
        assert json.loads(path.read_text())["charges"] == [[0, 1]]


def test_a_ledger_commits_one_release(tmp_path):
    path = tmp_path / "l.jsonl"
    with Ledger(BUDGET, path=path) as ledger:
        ledger.charge(SUM, note="sum")
        ledger.commit(released="one")
    with Ledger.open(path) as again:
        again.commit(released="one")
        with pytest.raises(LedgerError, match="has released something else before"):
            again.commit(released="two")
        assert again.commits == 1


def test_files_become_visible_with_the_commit_or_when_it_is_resumed(tmp_path):
    path, shown = tmp_path / "l.jsonl", tmp_path / "shown"
    with Ledger(BUDGET, path=path) as ledger:
        ledger.charge(SUM, note="sum")
        staged = ledger.staged(shown)
        staged.write_text("noisy")
        ledger.commit(moves=[(staged, shown)])
        assert shown.read_text() == "noisy"
    shown.rename(staged)  # it died after the commit, before the file had its name
    with Ledger.open(path) as again:
        assert not shown.exists()
        again.resume()
        assert shown.read_text() == "noisy"
        again.charge(SUM, note="sum")
        again.staged(shown).write_text("not committed")
        again.drop()
    with Ledger.open(path) as third:
        third.resume()
        assert shown.read_text() == "noisy"


def test_the_surplus_of_divisible_parts_is_paid_for():
    ledger = Ledger(None, delta=1e-5)
    ledger.declare([Planned(gaussian_event(4.0), "whole", divisible=True)])
    exact = epsilon(gaussian_event(4.0), 1e-5)
    assert exact * (1 + 3e-10) < ledger.epsilon() < exact * (1 + 1e-7)


def test_the_filter_counts_every_run():
    ledger = Ledger(Budget(1.0, 0.0))
    with pytest.raises(BudgetExceeded, match=r"4 x 'later' would bring it to 1\.2"):
        ledger.charge(pure_event(0.3), 4, note="later")
    ledger.declare([Planned(pure_event(0.6), "part")])
    with pytest.raises(BudgetExceeded, match=r"1 x 'later' would bring it to 1\.2"):
        ledger.charge(pure_event(0.6), note="later")


def test_a_resumed_plan_is_taken_up_once(tmp_path):
    plan = [Planned(pure_event(0.4), "whole")]
    with Ledger(Budget(1.0, 0.0), path=tmp_path / "ledger") as ledger:
        ledger.declare(plan)
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.declare(plan)
        assert ledger.epsilon() == pytest.approx(0.4)
        ledger.declare(plan)
        assert ledger.epsilon() == pytest.approx(0.8)


def test_a_plan_after_charges_is_counted_with_them():
    ledger = Ledger(Budget(1.0, 0.0))
    ledger.charge(pure_event(0.6), note="first")
    with pytest.raises(BudgetExceeded, match=r"1 x 'plan' would bring it to 1\.2"):
        ledger.declare([Planned(pure_event(0.6), "plan")])
