"""The journal of a run: what it was given it gets again, bit for bit, and nothing twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpgen.privacy.curator import Curator
from dpgen.privacy.events import pure_event
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.journal import Journal
from dpgen.privacy.ledger import Budget, Ledger, LedgerError, Planned
from dpgen.privacy.ledger_file import LedgerFile
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.sampling import PoissonMask

BUDGET = Budget(3.0, 1e-5)
COUNTS = BoundedSum(torch.tensor([100, 200, 300]), 1.0)
REALS = BoundedSum(torch.tensor([[0.5, 0.25]], dtype=torch.float64), 1.0)
L1 = BoundedSum(torch.tensor([7]), 1.0, norm="l1")


class Picks:
    """A mechanism whose draws are of every form that has one in a journal."""

    event = pure_event(0.01)

    def draw(self, secrets: Any, count: int) -> Any:
        word = int(secrets.words(1)[0] >> np.uint64(32))
        return [(word, 0.5, None), np.array([word, 1]), np.float64(word), "text", True][:count]


class Held:
    """A mechanism whose draw no file can hold."""

    event = pure_event(0.01)

    def draw(self, secrets: Any, count: int) -> Any:
        return object()


STEPS: list[Callable[[Curator], Any]] = [
    lambda c: c.gaussian("counts", COUNTS, 10.0),
    lambda c: c.gaussian("reals", REALS, 20.0),
    lambda c: c.laplace("number", L1, 0.05),
    lambda c: c.prefix_sums("prefixes", COUNTS, 30.0),
    lambda c: c.release("picks", Picks(), 5),
    lambda c: c.enclosed("inside", Budget(0.1, 1e-6)).laplace("inner", L1, 0.1),
    lambda c: c.laplace("number", L1, 0.05),
]
PLAN = [
    Planned(gaussian_event(10.0), "counts"),
    Planned(gaussian_event(20.0), "reals"),
    Planned(gaussian_event(30.0), "prefixes"),
    Planned(pure_event(0.05), "number", 2),
    Planned(pure_event(0.01), "picks", 5),
]


def opened(directory: Path) -> Curator:
    """The curator of a run in the directory, begun or gone on with."""
    path = directory / "ledger.jsonl"
    ledger = Ledger.open(path) if path.exists() else Ledger(BUDGET, path=path)
    try:
        curator = Curator(ledger, journal=Journal(directory / "journal.jsonl", ledger))
    except BaseException:
        ledger.close()
        raise
    ledger.declare(PLAN)
    return curator


def closed(curator: Curator) -> None:
    assert curator._journal is not None
    curator._journal.close()
    curator.ledger.close()


def went(directory: Path, *steps: Callable[[Curator], Any]) -> list[Any]:
    """What a process is given that makes these steps, and its ledger's guarantee."""
    curator = opened(directory)
    try:
        return [step(curator) for step in steps]
    finally:
        closed(curator)


def same(one: Any, two: Any) -> bool:
    if isinstance(one, list | tuple):
        return type(one) is type(two) and len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and torch.equal(one, two)
    return bool(np.array_equal(one, two)) and type(one) is type(two)


@pytest.mark.parametrize("steps", range(len(STEPS) + 1))
def test_a_run_that_died_gets_the_same_again_and_pays_nothing(steps: int, tmp_path: Path) -> None:
    before = went(tmp_path, *STEPS[:steps])
    content = (tmp_path / "ledger.jsonl").read_bytes()
    assert same(went(tmp_path, *STEPS[:steps]), before)
    assert (tmp_path / "ledger.jsonl").read_bytes() == content, "nothing was charged"
    curator = opened(tmp_path)
    assert same([step(curator) for step in STEPS[:steps]], before)
    after = [step(curator) for step in STEPS[steps:]]
    entries = [(e.note, e.count) for e in curator.ledger.entries()]
    assert entries == [("counts", 1), ("reals", 1), ("number", 1), ("prefixes", 1), ("picks", 5), ("inside", 1), ("number", 1)]
    assert curator.ledger.epsilon() <= BUDGET.epsilon
    closed(curator)
    assert same(went(tmp_path, *STEPS), [*before, *after])


MOMENTS = ("charged", "drawn", "kept", "given")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("step", [0, 2, 5])
def test_death_at_every_moment_of_a_release(step: int, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One charge and one value that anybody could have seen, wherever the process died."""

    class Died(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Died("gone")

    before, seen = went(tmp_path, *STEPS[:step]), []
    value = Journal.value
    curator = opened(tmp_path)
    for earlier in STEPS[:step]:
        earlier(curator)
    with monkeypatch.context() as patch:
        if moment == "charged":
            patch.setattr(Journal, "value", die)
        elif moment == "drawn":
            append = LedgerFile.append
            patch.setattr(
                LedgerFile, "append", lambda f, lines: die() if f.path == tmp_path / "journal.jsonl" else append(f, lines)
            )
        elif moment == "kept":
            patch.setattr(Ledger, "give", die)
        else:
            patch.setattr(Journal, "value", lambda *a: (seen.append(value(*a)), die()))
        with pytest.raises(Died, match="gone"):
            STEPS[step](curator)
    closed(curator)
    again = went(tmp_path, *STEPS)
    assert same(again[:step], before)
    if seen:
        assert same(again[step], seen[0])
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        assert sum(e.count for e in ledger.entries()) == 11
        assert len(ledger.given) == len(STEPS)


def test_a_journal_that_lost_a_value_is_refused(tmp_path: Path) -> None:
    """Else the run would look again, with fresh noise, for one payment: the broken twin of a journal."""
    path = tmp_path / "journal.jsonl"
    first = went(tmp_path, *STEPS[:2])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(LedgerError, match="lacks values that were given out, or has others: a second noisy look"):
        opened(tmp_path)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:-20])
    with pytest.raises(LedgerError, match="a second noisy look"):
        opened(tmp_path)
    path.unlink()
    with pytest.raises(LedgerError, match="cannot open the ledger"):
        opened(tmp_path)
    went(_directory(tmp_path / "other"), *STEPS[:2])
    path.write_bytes((tmp_path / "other" / "journal.jsonl").read_bytes())
    with pytest.raises(LedgerError, match="lacks values that were given out, or has others"):
        opened(tmp_path)
    path.write_bytes(b"".join(lines))
    assert same(went(tmp_path, *STEPS[:2]), first)


def _directory(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_value_that_was_cut_while_it_was_written_was_never_given_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise RuntimeError("gone")

    went(tmp_path, STEPS[0])
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "give", die)
        with pytest.raises(RuntimeError, match="gone"):
            went(tmp_path, *STEPS[:2])
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    after = went(tmp_path, *STEPS)
    assert same(went(tmp_path, *STEPS), after)


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (
            lambda c: c.gaussian("counts", COUNTS, 11.0),
            "now 1 x 'counts' is: another run",
        ),
        (lambda c: c.gaussian("sizes", COUNTS, 10.0), "1 x 'counts' was charged here before, now 1 x 'sizes' is: another run"),
        (lambda c: c.gaussian("counts", BoundedSum(torch.zeros(4).long(), 1.0), 10.0), "release 1 of this run was"),
        (lambda c: c.gaussian("counts", BoundedSum(torch.zeros(3).long(), 2.0), 10.0), "release 1 of this run was"),
    ],
    ids=["scale", "name", "shape", "sensitivity"],
)
def test_another_request_is_refused(step: Callable[[Curator], Any], match: str, tmp_path: Path) -> None:
    went(tmp_path, STEPS[0])
    content = (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(LedgerError, match=match):
        went(tmp_path, step)
    assert (tmp_path / "ledger.jsonl").read_bytes() == content


def test_what_no_journal_keeps_is_not_given_for_an_earlier_charge(tmp_path: Path) -> None:
    went(tmp_path, STEPS[0])
    curator = opened(tmp_path)
    with pytest.raises(LedgerError, match="was charged here before"):
        curator.draw("counts", PoissonMask(0.5), {"counts": 10.0})
    closed(curator)
    curator = opened(tmp_path)
    with pytest.raises(LedgerError, match="was charged here before"):
        curator.ledger.charge(gaussian_event(10.0), note="counts")
    closed(curator)


def test_the_journal_of_another_run_is_refused_before_anything_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise RuntimeError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(Curator, "_noisy", die)
        with pytest.raises(RuntimeError, match="gone"):
            went(tmp_path, STEPS[0])
    monkeypatch.setattr(f"{__name__}.BUDGET", Budget(2.5, 1e-5))
    went(_directory(tmp_path / "other"), STEPS[0])
    (tmp_path / "journal.jsonl").write_bytes((tmp_path / "other" / "journal.jsonl").read_bytes())
    with pytest.raises(LedgerError, match="is no journal of this run"):
        opened(tmp_path)


def test_a_run_that_asks_for_less_releases_nothing(tmp_path: Path) -> None:
    went(tmp_path, *STEPS[:2])
    curator = opened(tmp_path)
    STEPS[0](curator)
    with pytest.raises(LedgerError, match="'reals' was charged before and is not asked for again"):
        curator.ledger.sync(released="sum")
    closed(curator)


def test_a_value_without_a_form_is_given_out_once(tmp_path: Path) -> None:
    def held(curator: Curator) -> Any:
        return curator.release("held", Held())

    [value] = went(tmp_path, held)
    assert type(value) is object
    with pytest.raises(LedgerError, match="release 1 could not be kept; what the run had paid for is lost"):
        went(tmp_path, held)


def test_edited_data_do_not_change_what_was_given(tmp_path: Path) -> None:
    [before] = went(tmp_path, STEPS[0])
    edited = BoundedSum(torch.tensor([1, 2, 3]), 1.0)
    [after] = went(tmp_path, lambda c: c.gaussian("counts", edited, 10.0))
    assert torch.equal(before, after)


def test_nothing_is_drawn_for_a_value_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    went(tmp_path, *STEPS)

    def drawn(*_: object, **__: object) -> None:
        raise AssertionError("noise was drawn for a value that was given out before")

    for name in ("rounded_normal", "add_normal_", "discrete_laplace", "words"):
        monkeypatch.setattr(SecureSource, name, drawn)
    assert len(went(tmp_path, *STEPS)) == len(STEPS)
