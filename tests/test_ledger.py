import contextlib
import errno
import json
import math
import os
import signal
import subprocess
import sys
import time

import dp_accounting as dpa
import pytest

from dpgen.privacy.accountants import epsilon
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger, LedgerEntry, LedgerError
from dpgen.privacy.mechanisms import gaussian_event, subsampled_gaussian_event

SGD = subsampled_gaussian_event(0.02, 1.5)
SUM = gaussian_event(10.0)
BUDGET = Budget(1.0, 1e-5)


def times(event, count):
    return dpa.SelfComposedDpEvent(event, count)


@pytest.mark.parametrize("values", [(0, 1e-5), (-1, 1e-5), (math.inf, 1e-5), (math.nan, 1e-5), ("1", 1e-5)])
def test_budget_epsilon(values):
    with pytest.raises(ValueError, match=r"epsilon is .*; it must be a finite number > 0"):
        Budget(*values)


@pytest.mark.parametrize("delta", [1, -1e-5, math.nan, None])
def test_budget_delta(delta):
    with pytest.raises(ValueError, match=r"delta is .*; it must lie in \[0, 1\)"):
        Budget(1.0, delta)
    with pytest.raises(ValueError, match="delta"):
        Ledger(None, delta=delta)


def test_construction_refuses():
    with pytest.raises(ValueError, match="give either budget, or budget=None together with delta"):
        Ledger(BUDGET, delta=1e-5)
    with pytest.raises(ValueError, match="relation is 'swap'; choose one of add_remove, replace_one"):
        Ledger(BUDGET, relation="swap")


def test_spends_exactly_the_allowance():
    ledger = Ledger(BUDGET)
    ledger.charge(SUM, 2, note="sums")
    room = ledger.allowance(SGD)
    assert epsilon(dpa.ComposedDpEvent([times(SUM, 2), times(SGD, room)]), 1e-5) <= 1
    assert epsilon(dpa.ComposedDpEvent([times(SUM, 2), times(SGD, room + 2)]), 1e-5) > 1
    for _ in range(room):
        ledger.charge(SGD, note="sgd")
    assert ledger.allowance(SGD) == 0
    assert 0.99 < ledger.epsilon() <= 1
    assert ledger.remaining == pytest.approx(1 - ledger.epsilon())
    with pytest.raises(
        BudgetExceeded,
        match=r"budget epsilon 1 at delta 1e-05 \(add_remove, one record\): spent 0.9\d+, 1 x 'sgd' would bring",
    ):
        ledger.charge(SGD, note="sgd")
    assert ledger.entries() == [LedgerEntry("sums", SUM, 2, None), LedgerEntry("sgd", SGD, room, None)]


def test_refused_charge_records_nothing(tmp_path):
    path = tmp_path / "l.jsonl"
    with Ledger(BUDGET, path=path) as ledger:
        before = path.read_bytes(), ledger.position()
        with pytest.raises(BudgetExceeded, match="would bring it to inf"):
            ledger.charge(dpa.NonPrivateDpEvent(), note="raw data")
        with pytest.raises(BudgetExceeded, match="'big'"):
            ledger.charge(gaussian_event(0.1), note="big")
        assert (path.read_bytes(), ledger.position()) == before
        ledger.charge(SUM, note="sum")
    assert Ledger.open(path).entries() == [LedgerEntry("sum", SUM, 1, None)]


def test_epsilon_of_other_questions():
    ledger = Ledger(None, delta=1e-6, unit="one user")
    assert ledger.epsilon() == ledger.epsilon_rdp() == 0
    ledger.charge(SGD, 200, note="sgd")
    plan = times(SGD, 200)
    assert ledger.epsilon() == epsilon(plan, 1e-6)
    assert ledger.epsilon(1e-3) == epsilon(plan, 1e-3)
    assert ledger.epsilon(relation="replace_one") == epsilon(plan, 1e-6, relation="replace_one")
    assert ledger.epsilon(accountant="rdp") == pytest.approx(ledger.epsilon_rdp(), rel=1e-12)
    assert epsilon(ledger.event(), 1e-6) == ledger.epsilon()
    assert ledger.remaining == math.inf
    assert ledger.unit == "one user"
    with pytest.raises(ValueError, match="budget is None"):
        ledger.allowance(SGD)


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "1"])
def test_bad_counts(count):
    with pytest.raises(ValueError, match=r"count is .*; it must be a whole number >= 1"):
        Ledger(None, delta=1e-5).charge(SGD, count, note="sgd")


def test_bad_notes_and_events():
    ledger = Ledger(None, delta=1e-5)
    with pytest.raises(ValueError, match="note is 3"):
        ledger.charge(SGD, note=3)
    with pytest.raises(ValueError, match="cannot be recorded"):
        ledger.charge(dpa.GaussianDpEvent(math.nan), note="nan")
    with pytest.raises(ValueError, match="cannot be recorded"):
        ledger.charge("gaussian", note="text")
    assert ledger.entries() == []


class TestGroups:
    """Disjoint records: the worst group counts, under replace_one the two worst."""

    def test_add_remove_takes_the_worst(self):
        ledger = Ledger(None, delta=1e-5)
        ledger.charge(SUM, note="all")
        ledger.charge(SUM, 3, note="a", group="a")
        ledger.charge(SUM, 5, note="b", group="b")
        ledger.charge(SUM, 5, note="c", group="c")
        assert ledger.epsilon() == pytest.approx(epsilon(times(SUM, 6), 1e-5))
        assert ledger.epsilon_rdp() == pytest.approx(epsilon(times(SUM, 6), 1e-5, accountant="rdp"))
        assert epsilon(ledger.event(), 1e-5) == ledger.epsilon()

    def test_replace_one_adds_the_two_worst(self):
        ledger = Ledger(None, delta=1e-5, relation="replace_one")
        ledger.charge(SUM, note="all")
        for group, count in (("a", 3), ("b", 5), ("c", 4)):
            ledger.charge(SUM, count, note="x", group=group)
        expected = epsilon(times(SUM, 10), 1e-5, relation="replace_one")
        assert ledger.epsilon() == pytest.approx(expected)
        assert ledger.epsilon_rdp() >= expected

    def test_one_group_adds_to_the_rest(self):
        for relation in ("add_remove", "replace_one"):
            ledger = Ledger(None, delta=1e-5, relation=relation)
            ledger.charge(SUM, note="all")
            ledger.charge(SUM, note="a", group="a")
            assert ledger.epsilon() == pytest.approx(epsilon(times(SUM, 2), 1e-5, relation=relation))

    def test_budget_is_per_group(self):
        ledger = Ledger(BUDGET)
        alone = ledger.allowance(SGD)
        for group in "abc":
            ledger.charge(SGD, alone, note="sgd", group=group)
        assert ledger.allowance(SGD, group="a") == 0
        assert ledger.allowance(SGD, group="d") == alone
        assert ledger.allowance(SGD) == 0
        with pytest.raises(BudgetExceeded, match="'sgd'"):
            ledger.charge(SGD, note="sgd", group="b")


def test_interleaved_events_reach_the_budget_and_stay_fast():
    ledger, timings = Ledger(Budget(2.0, 1e-5)), []
    small = subsampled_gaussian_event(0.02, 8.0)
    ledger.charge(gaussian_event(30.0), 20, note="kmeans")

    def spend_everything():
        while True:
            for event, note in ((small, "norms"), (SGD, "sgd")):
                start = time.perf_counter()
                ledger.charge(event, note=note)
                timings.append(time.perf_counter() - start)

    with pytest.raises(BudgetExceeded, match="would bring it to"):
        spend_everything()
    assert len(timings) > 1000
    assert sum(t > 2e-3 for t in timings) < 25
    assert 1.99 < ledger.epsilon() <= 2


def test_repeated_charges_cost_microseconds(tmp_path):
    ledger = Ledger(Budget(8.0, 1e-5), path=tmp_path / "l.jsonl")
    ledger.charge(SGD, note="sgd")
    timings = []
    for _ in range(2000):
        start = time.perf_counter()
        ledger.charge(SGD, note="sgd")
        timings.append(time.perf_counter() - start)
    assert sorted(timings)[1000] < 50e-6
    assert (tmp_path / "l.jsonl").stat().st_size < 80 * 2010


def test_resume_continues_the_same_ledger(tmp_path):
    path = tmp_path / "l.jsonl"
    with Ledger(Budget(4.0, 1e-5), relation="replace_one", unit="one user", path=path) as ledger:
        ledger.charge(SUM, note="sum")
        ledger.charge(SGD, 3, note="sgd", group="a")
        ledger.charge(dpa.ComposedDpEvent([SUM, SGD]), note="both")
        spent, entries, position = ledger.epsilon(), ledger.entries(), ledger.position()
    with Ledger.open(path) as resumed:
        assert (resumed.budget, resumed.delta, resumed.relation) == (Budget(4.0, 1e-5), 1e-5, "replace_one")
        assert (resumed.unit, resumed.path) == ("one user", path)
        assert (resumed.epsilon(), resumed.entries(), resumed.position()) == (spent, entries, position)
        resumed.charge(SGD, note="sgd", group="a")
        resumed.charge(dpa.ComposedDpEvent([SUM, SGD]), note="both")
        assert resumed.verify_contains(position) == 2
    declared = [line for line in path.read_text().splitlines() if '"declare"' in line]
    assert len(declared) == 3
    with Ledger.open(path) as again:
        assert sum(entry.count for entry in again.entries()) == 7


def test_report_only_ledger_resumes(tmp_path):
    path = tmp_path / "l.jsonl"
    Ledger(None, delta=1e-6, path=path).close()
    with Ledger.open(path) as ledger:
        assert ledger.budget is None
        assert ledger.delta == 1e-6


def test_resumed_ledger_enforces_what_was_spent(tmp_path):
    path = tmp_path / "l.jsonl"
    with Ledger(BUDGET, path=path) as ledger:
        room = ledger.allowance(SGD)
        ledger.charge(SGD, room, note="sgd")
    with Ledger.open(path) as resumed, pytest.raises(BudgetExceeded, match="'again'"):
        resumed.charge(SGD, note="again")


def test_checkpoint_against_ledger(tmp_path):
    path = tmp_path / "l.jsonl"
    with Ledger(BUDGET, path=path) as ledger:
        ledger.charge(SGD, note="sgd")
        early = ledger.position()
        ledger.charge(SGD, 4, note="sgd")
        ledger.charge(SUM, 2, note="sum")
        late = ledger.position()
        assert ledger.verify_contains(late) == 0
        assert ledger.verify_contains(early) == 6
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    with Ledger.open(path) as cut, pytest.raises(LedgerError, match=r"the checkpoint saw \d+: the ledger was cut"):
        cut.verify_contains(late)
    other = Ledger(BUDGET)
    other.charge(SGD, 3, note="sgd")
    with pytest.raises(LedgerError, match="edited or another run"):
        other.verify_contains(early)
    for bad in ({}, {"lines": "x", "head": ""}, None):
        with pytest.raises(LedgerError, match="it must hold lines and head"):
            other.verify_contains(bad)
    with pytest.raises(LedgerError, match="edited or another run"):
        other.verify_contains({"lines": 0, "head": ""})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"charge":5,"count":1}', "line 2 cannot be understood"),
        ('{"charge":0}', "line 2 cannot be understood"),
        ('{"declare":1,"event":["NoOpDpEvent",{}],"note":"","group":null}', "declared out of order"),
        ('{"declare":0,"event":["os",{}],"note":"","group":null}', "unknown event"),
    ],
)
def test_consistent_but_senseless_files(tmp_path, line, message):
    ledger = Ledger(BUDGET, path=tmp_path / "l.jsonl")
    ledger._file.append([line])
    ledger.close()
    for _ in range(2):  # the lock is given up after the error
        with pytest.raises(LedgerError, match=message):
            Ledger.open(tmp_path / "l.jsonl")


def test_other_files_are_no_ledgers(tmp_path):
    from dpgen.privacy.ledger_file import LedgerFile

    file = LedgerFile(tmp_path / "x")
    file.create()
    file.append([json.dumps({"dpgen_ledger": 99})])
    file.close()
    with pytest.raises(LedgerError, match="no header of a version 1 ledger"):
        Ledger.open(tmp_path / "x")


CRASHING = """
import sys
from pathlib import Path
from dpgen.privacy.ledger import Ledger, Budget
from dpgen.privacy.mechanisms import subsampled_gaussian_event
event = subsampled_gaussian_event(0.02, 1.5)
ledger = Ledger(Budget(50.0, 1e-5), path=Path(sys.argv[1]))
while True:
    ledger.charge(event, note="sgd")
    print("ran", flush=True)  # the mechanism
"""


def test_kill_9_never_forgets_a_mechanism_that_ran(tmp_path):
    path = tmp_path / "l.jsonl"
    process = subprocess.Popen([sys.executable, "-c", CRASHING, str(path)], stdout=subprocess.PIPE)
    ran = [process.stdout.readline() for _ in range(300)]
    os.kill(process.pid, signal.SIGKILL)
    ran = len(ran) + len(process.stdout.read().splitlines())
    process.stdout.close()
    process.wait()
    with Ledger.open(path) as ledger:
        recorded = sum(entry.count for entry in ledger.entries())
    assert ran <= recorded <= ran + 1


class Interrupted(Exception):
    """The process dies while a mechanism runs: noise may already have left it."""


def run_step(ledger, mechanism):
    """What every system does: ask and record, then run."""
    ledger.charge(SGD, note="step")
    mechanism()


def run_step_backwards(ledger, mechanism):
    """Broken: records when the mechanism is done."""
    mechanism()
    ledger.charge(SGD, note="step")


def contract_interrupted_mechanisms_count(step):
    ledger = Ledger(BUDGET)

    def die():
        raise Interrupted("killed")

    with pytest.raises(Interrupted, match="killed"):
        step(ledger, die)
    assert ledger.epsilon() > 0, "an interrupted mechanism was not booked"


def test_interrupted_mechanisms_count():
    contract_interrupted_mechanisms_count(run_step)
    with pytest.raises(AssertionError, match="an interrupted mechanism was not booked"):
        contract_interrupted_mechanisms_count(run_step_backwards)


class IgnoresReplays(Ledger):
    """Broken: a step that is done again after a resume is not charged again."""

    def charge(self, event, count=1, *, note, group=None):
        if all(entry.note != note for entry in self.entries()):
            super().charge(event, count, note=note, group=group)


def contract_replays_count(kind, path):
    """Steps 0-3 ran, the checkpoint is of step 2: six noisy releases were made."""
    with kind(Budget(3.0, 1e-5), path=path) as ledger:
        for step in range(4):
            if step == 2:
                position = ledger.position()
            ledger.charge(SGD, note=f"step {step}")
    with kind.open(path) as resumed:
        assert resumed.verify_contains(position) == 2
        for step in range(2, 4):
            resumed.charge(SGD, note=f"step {step}")
        assert resumed.epsilon() >= 0.999 * epsilon(times(SGD, 6), 1e-5), "replayed steps were not booked"


def test_replays_count(tmp_path):
    contract_replays_count(Ledger, tmp_path / "good.jsonl")
    with pytest.raises(AssertionError, match="replayed steps were not booked"):
        contract_replays_count(IgnoresReplays, tmp_path / "bad.jsonl")


def test_import_is_light():
    """Only dpgen's own package init may load heavy libraries; the ledger itself needs none of them."""
    code = (
        "import sys, types; m = types.ModuleType('dpgen'); m.__path__ = [sys.argv[1]]; sys.modules['dpgen'] = m; "
        "import dpgen.privacy.ledger; "
        "print(sorted({'torch', 'scipy', 'numpy', 'dp_accounting', 'opacus', 'lightning'} & set(sys.modules)))"
    )
    import dpgen

    result = subprocess.run([sys.executable, "-c", code, dpgen.__path__[0]], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_write_that_failed_leaves_nothing_that_seems_to_fit(tmp_path, monkeypatch):
    """What was worked out ahead for the charge that could not be recorded must not be spent twice over."""
    first, second = gaussian_event(20.0), gaussian_event(21.0)
    ledger = Ledger(Budget(1.0, 1e-5), path=tmp_path / "l.jsonl")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(LedgerError, match="space"):
            ledger.charge(first, note="a")
    for event, note in ((second, "b"), (first, "a")):
        with contextlib.suppress(BudgetExceeded):
            for _ in range(1000):
                ledger.charge(event, note=note)
    truth = epsilon(ledger.event(), 1e-5)
    assert truth <= 1.0
    assert ledger.epsilon() >= truth * (1 - 1e-6)
