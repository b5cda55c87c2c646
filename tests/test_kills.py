"""A run that dies at any moment: what was seen of it is paid for, what was not seen is free, and the same command ends it."""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pandas as pd
import pytest
import tiny
from seen import committed, seen, understated

import dpgen
from dpgen.callbacks.accountant import HeldTensorBoard, PrivacyAccountant
from dpgen.cli.main import main
from dpgen.config import parse_job
from dpgen.files import is_finished, write_atomically
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.shared_budget import Payer, SharedBudget
from dpgen.run import run
from dpgen.statement import PrivacyStatement

STEPS, EVERY = 8, 4


def table(directory: Path) -> tuple[str, ...]:
    np.save(directory / "bits.npy", tiny.table()[:, : tiny.D])
    return "--data=npy", f"--path={directory / 'bits.npy'}", "--progress_bar=false"


def training(directory: Path) -> tuple[str, ...]:
    numbers = (f"--steps={STEPS}", f"--checkpoint_every={EVERY}", "--sampling_rate=0.2", "--evaluation=none")
    clusters = ("--clusters=kmeans", "--k=2", "--n_features=4")
    small = [option for option in tiny.SMALL if not option.startswith(("--steps", "--sampling_rate", "--progress_bar"))]
    return "--model=dpgm", "--epsilon=null", "--noise_multiplier=4", *clusters, *numbers, *small, *table(directory)


def closed_form(directory: Path) -> tuple[str, ...]:
    return "--model=marginals", "--epsilon=1", *table(directory)


def private_draws(directory: Path) -> tuple[str, ...]:
    return "--model=grid_response", "--data=mixture_1d", "--n_points=40", "--n_test=20", "--cells=4", "--progress_bar=false"


def local_draws(directory: Path) -> tuple[str, ...]:
    data = ("--data=synthetic_users", "--n_users=6", "--n_categories=4", "--progress_bar=false")
    return "--model=minimax", "--evaluation=none", *data


def night(directory: Path) -> tuple[str, ...]:
    """A job of every night: a table whose domains are public, so that all runs charge for the same sums."""
    rng = np.random.default_rng(0)
    pd.DataFrame({"age": rng.integers(20, 60, 200), "ward": rng.choice(["A", "B"], 200)}).to_csv(
        directory / "visits.csv", index=False
    )
    age = {"name": "age", "type": "integer", "constraints": {"required": True, "minimum": 20, "maximum": 60}}
    ward = {"name": "ward", "type": "string", "constraints": {"required": True, "enum": ["A", "B"]}}
    (directory / "schema.json").write_text(json.dumps({"fields": [age, ward]}))
    given = ("--model=tables", "--data=table", f"--path={directory / 'visits.csv'}", f"--schema={directory / 'schema.json'}")
    return *given, "--epsilon=3", "--delta=1e-7", "--method=independent", "--progress_bar=false"


RUNS: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "training": training,
    "closed form": closed_form,
    "private draws": private_draws,
    "local draws": local_draws,
    "night": night,
}


def arguments(kind: str, directory: Path, shared: bool) -> list[str]:
    given = [*RUNS[kind](directory), f"--run_dir={directory / 'run'}"]
    if not shared:
        return given
    if not (directory / "budget").exists():
        plan = parse_job(given).privacy
        total = Budget(1000.0, plan.resolved_delta)
        SharedBudget.create(directory / "budget", total, relation=plan.relation, unit=plan.protected)
    return [*given, f"--ledger={directory / 'budget'}"]


def left(directory: Path) -> set[str]:
    """Names of what is in a run directory, hidden files included, with every file of a log as one."""
    return {path.name.partition(".dpgen-")[0] for path in directory.rglob("*") if not path.name.startswith("events")}


class Moments:
    """One run, looked at before and after each of its writes to the disk, as if it was killed there.

    Arguments:
        directory: where the run is.
        options: of the run.
        shared: budget that it pays from.
        keep: whether the files of every moment are copied.
    """

    def __init__(self, directory: Path, options: list[str], shared: Path | None, *, keep: Path | None = None) -> None:
        self.directory, self.options, self.shared, self.keep = directory, options, shared, keep
        self.found: list[str] = []
        self.states: dict[str, Path] = {}

    def watch(self, monkeypatch: pytest.MonkeyPatch, whole: Counter[str]) -> None:
        """Run once to the end."""
        with monkeypatch.context() as patch:
            for name in ("replace", "link"):
                patch.setattr(os, name, self.looked(getattr(os, name), whole))
            run(parse_job(self.options))
        self.look(whole)

    def looked(self, write: Callable[..., None], whole: Counter[str]) -> Callable[..., None]:
        def looked(*paths: Any) -> None:
            self.look(whole, keep=self.keep)
            write(*paths)
            self.look(whole)

        return looked

    def look(self, whole: Counter[str], *, keep: Path | None = None) -> None:
        run_dir = self.directory / "run"
        self.found += understated(run_dir, whole, self.shared)
        state = json.dumps([sorted(left(run_dir)), committed(run_dir)])
        if keep is not None and run_dir.exists() and state not in self.states:
            self.states[state] = keep / str(len(self.states))
            shutil.copytree(self.directory, self.states[state])


CASES = [("training", False), ("training", True), ("closed form", True), ("private draws", False), ("local draws", True)]
NAMES = [f"{kind}, {'shared budget' if shared else 'alone'}" for kind, shared in CASES]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("kind", "shared"), CASES, ids=NAMES)
def test_death_at_any_write_leaves_nothing_seen_unpaid_and_a_run_that_can_be_ended(
    kind: str, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    options = arguments(kind, here, shared)
    whole = expected(kind, tmp_path)
    moments = Moments(here, options, here / "budget" if shared else None, keep=tmp_path)
    moments.watch(monkeypatch, whole)
    assert moments.found == []
    assert committed(here / "run") == whole
    assert len(moments.states) >= 8
    names, finished = left(here / "run"), parse_job(options).runtime.evaluation
    for state in moments.states.values():
        shutil.rmtree(here)
        state.rename(here)
        before = committed(here / "run")
        if is_finished(here / "run", finished):
            continue
        run(parse_job(options))
        assert is_finished(here / "run", finished)
        assert committed(here / "run") == whole, "everything is paid once"
        assert left(here / "run") <= names, "nothing hidden stays; a picture of a density that is not kept may be missing"
        assert understated(here / "run", whole, moments.shared) == []
        assert before <= whole
        if shared:
            assert SharedBudget(here / "budget").spending().runs == 1


def expected(kind: str, directory: Path) -> Counter[str]:
    """Charges of a complete run."""
    whole = directory / "whole"
    whole.mkdir()
    run(parse_job(arguments(kind, whole, shared=False)))
    return committed(whole / "run")


@pytest.mark.usefixtures("quiet")
def test_the_reservation_of_a_dead_run_is_given_back_by_its_number_unless_it_has_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, file = tmp_path / "here", tmp_path / "here" / "budget"
    here.mkdir()
    options, whole = arguments("closed form", here, shared=True), expected("closed form", tmp_path)
    moments = Moments(here, options, file, keep=tmp_path)
    moments.watch(monkeypatch, whole)
    given_back = kept = 0
    for state in moments.states.values():
        shutil.rmtree(here)
        state.rename(here)
        before = SharedBudget(file).spending()
        if not before.runs:
            continue
        [payment] = before.kept
        capsys.readouterr()
        code, said = main(["budget", str(file), "--release", payment.run]), "".join(capsys.readouterr())
        after = SharedBudget(file).spending()
        if payment.run in before.standings:
            kept += 1
            assert (code, said.startswith("error: release is"), after.document) == (2, True, before.document)
            continue
        given_back += 1
        assert (code, "nothing is paid for yet" in said, after.runs, after.epsilon) == (0, True, 0, 0.0)
        assert seen(here / "run", whole) == Counter()
        assert main(["budget", str(file), "--release", payment.run]) == 2, "once"
    assert given_back
    assert kept
    assert main(["budget", str(file), "--release", "nobody"]) == 2


HONEST = Ledger.commit


def shown_before_its_commit(self: Ledger, *, released: str = "", moves: Sequence[tuple[Path, Path]] = ()) -> None:
    for hidden, visible in moves:
        os.replace(hidden, visible)
    HONEST(self, released=released)


def checkpoint_without_commit(self: PrivacyAccountant, trainer: L.Trainer, path: Path) -> None:
    self._staged = True
    trainer.save_checkpoint(path)


def logs_before_the_commit(self: PrivacyAccountant, trainer: L.Trainer, path: Path) -> None:
    for logger in trainer.loggers:
        if isinstance(logger, HeldTensorBoard):
            logger.show()
    HONEST_SAVE(self, trainer, path)


HONEST_SAVE = PrivacyAccountant.save


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("kind", "place", "name", "faulty"),
    [
        ("closed form", Ledger, "commit", shown_before_its_commit),
        ("private draws", Ledger, "commit", shown_before_its_commit),
        ("training", Ledger, "commit", shown_before_its_commit),
        ("training", PrivacyAccountant, "save", checkpoint_without_commit),
        ("training", PrivacyAccountant, "save", logs_before_the_commit),
        ("closed form", Payer, "stand", lambda *_: None),
    ],
)
def test_faulty_variants_are_seen_unpaid(
    kind: str, place: type, name: str, faulty: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, here = expected(kind, tmp_path), tmp_path / "here"
    here.mkdir()
    moments = Moments(here, arguments(kind, here, shared=True), here / "budget")
    monkeypatch.setattr(place, name, faulty)
    moments.watch(monkeypatch, whole)
    assert moments.found


MANY = ("--steps=30", "--checkpoint_every=5")


def killed(kind: str, shared: bool, directory: Path, shots: int) -> None:
    """Kill a run at random moments, in time and after commits, look at what is left each time, and end it."""
    generator = random.Random(int.from_bytes(os.urandom(4), "big"))
    aims = [lambda: str(generator.randint(1, 3)), lambda: f"{generator.uniform(0, 1.1):.3f}x"]
    moments = [aims[1](), *(generator.choice(aims)() for _ in range(shots - 1))]
    options = [*arguments(kind, directory, shared), *(MANY if kind == "training" else ()), "--evaluation=quick"]
    given = list({option.partition("=")[0]: option for option in options}.values())
    program = Path(__file__).parent / "helpers" / "killed_runs.py"
    command = [sys.executable, str(program), str(directory / "run"), ",".join(moments), "--", *given]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=3000, env=environment)
    assert ended.returncode == 0, f"{moments}: {ended.stderr}"
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert len(found) == shots
    assert [shot for shot in found if shot["understated"]] == []
    for before, after in pairwise(found):
        assert before["finished"] or before["key"] in (None, after["key"]), "a run that goes on splits by the same key"
    whole = committed(directory / "run.whole")
    runs = [path for path in directory.glob("run*") if path.is_dir() and path.name != "run.whole"]
    assert (directory / "run") in runs
    for path in runs:
        assert is_finished(path, "none")
        assert committed(path) == whole, moments
        assert left(path) <= left(directory / "run.whole"), moments
        stated = PrivacyStatement.from_dict(json.loads((path / "privacy.json").read_text()))
        with Ledger.open(path / "ledger.jsonl") as ledger:
            assert ledger.spent() <= stated.epsilon * (1 + 1e-9)
        if shared:
            noted = SharedBudget(directory / "budget").spending()
            assert ledger.payer is not None
            assert noted.standings[ledger.payer.run].released


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared budget"])
@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("shots", [pytest.param(50, marks=pytest.mark.slow)])
def test_kill_9_at_random(shots: int, kind: str, shared: bool, tmp_path: Path) -> None:
    killed(kind, shared, tmp_path, shots)


def test_kill_9_of_a_training_on_a_shared_budget(tmp_path: Path) -> None:
    killed("training", True, tmp_path, 2)


@pytest.mark.usefixtures("quiet")
def test_a_full_disk_ends_the_run_and_the_next_one_goes_on(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    calls: list[Path] = []

    def full(path: Path, data: bytes) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_atomically(path, data)

    job = parse_job(arguments("training", tmp_path, shared=False))
    with monkeypatch.context() as patch:
        patch.setattr("dpgen.callbacks.accountant.write_atomically", full)
        code = main(["train", "--json", *arguments("training", tmp_path, shared=False)])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["exit_code"]) == (75, 75)
    assert "free some space; epsilon" in found["problem"]
    assert found["spent"] > 0
    assert found["problem"].endswith("goes on")
    assert committed(tmp_path / "run")["training steps"] == EVERY, "charged, and not forgotten"
    assert not (tmp_path / "run" / "privacy.json").exists()
    run(job)
    assert committed(tmp_path / "run")["training steps"] == STEPS + EVERY


FULL = OSError(errno.ENOSPC, "No space left on device")
ENDS: dict[str, tuple[str, Exception, int]] = {
    "a full disk": ("write_files", FULL, 2),
    "a bug": ("write_files", KeyError("a bug"), 1),
    "a value": ("write_files", ValueError("a bad value"), 2),
    "a full disk for the ledger": ("os.replace", FULL, 75),
}


@pytest.mark.parametrize("case", ENDS)
def test_an_error_after_a_release_says_what_was_spent(case: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """What nobody can go on with is lost, and no job is told to try again; what was not committed is free."""
    place, error, code = ENDS[case]

    calls: list[Any] = []
    replace = os.replace

    def fail(source: Any, target: Any) -> None:
        calls.append(target)
        if place == "write_files" or calls.count(target) > 2:  # the ledger is written at birth, and with its plan
            raise error
        replace(source, target)

    given = arguments("closed form", tmp_path, shared=False)
    with monkeypatch.context() as patch:
        patch.setattr(os if place == "os.replace" else sys.modules["dpgen.run"], place.removeprefix("os."), fail)
        assert main(["train", "--json", *given]) == code
    found = json.loads(capsys.readouterr().out)
    lost = code != 75
    assert found["spent"] == pytest.approx(float(lost), rel=1e-3)
    assert ("epsilon 1 was spent, and nothing was released: that is lost" in found["problem"]) == lost
    assert main(["train", *given]) == (2 if lost else 0)
    assert ("ended with an error after it had spent epsilon 1" in capsys.readouterr().err) == lost


def test_an_error_after_a_release_in_memory_has_a_note(monkeypatch: Any) -> None:
    monkeypatch.setattr(PrivacyStatement, "extended", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError) as raised:
        dpgen.fit(np.eye(4), "marginals", epsilon=1.0)
    [note] = raised.value.__notes__
    assert note == "epsilon 1 was spent, and nothing was released: that is lost, and a new run spends anew"
