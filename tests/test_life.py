"""The life of a run: whatever dies after something was released is finished by the same command, and costs nothing more."""

import json
import os
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import tiny

from dpgen.callbacks.checkpoint import Checkpoint
from dpgen.cli.main import main
from dpgen.config import RunConfig, parse_job
from dpgen.files import is_finished, is_released, write_atomically
from dpgen.privacy.journal import Journal
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.run import run
from dpgen.statement import RECOVERED, RESUMED, UNTRAINED, PrivacyStatement

pytestmark = pytest.mark.usefixtures("quiet")

OF_NETWORKS = ("--hidden", "--latent", "--steps", "--sampling_rate", "--accelerator")


def records(directory: Path, *extra: str) -> RunConfig:
    return parse_job(["--model=marginals", *closed_form(directory, *extra)])


def closed_form(directory: Path, *extra: str) -> list[str]:
    """Arguments of a run without labels that trains nothing."""
    unlabelled = ("--label_column=null", "--image_shape=null", *extra)
    return [a for a in tiny.arguments(directory, *unlabelled) if not a.startswith(OF_NETWORKS)]


def users(directory: Path, *extra: str) -> RunConfig:
    data = ("--data=synthetic_users", "--n_users=6", "--n_categories=4", "--prior_epsilon=null", "--progress_bar=false")
    return parse_job(["--model=minimax", *data, f"--run_dir={directory / 'run'}", *extra])


def points(directory: Path, *extra: str) -> RunConfig:
    data = ("--data=mixture_1d", "--n_points=40", "--n_test=20", "--cells=4", "--progress_bar=false")
    return parse_job(["--model=grid_response", *data, f"--run_dir={directory / 'run'}", *extra])


JOBS: dict[str, Callable[..., RunConfig]] = {"records": records, "users": users, "points": points}


class Died(BaseException):
    """The process is gone; nothing catches it."""


def dies(monkeypatch: pytest.MonkeyPatch, *, at: int | str) -> list[str]:
    """Let a run die instead of its write of this number, or of the file of this name; the names of the files written."""
    written: list[str] = []

    def write(path: Path, data: bytes | str) -> None:
        if at in (len(written), path.name):
            raise Died("gone")
        written.append(path.name)
        write_atomically(path, data)

    for place in ("files", "run", "release", "evaluation.scores", "evaluation.users", "figures"):
        monkeypatch.setattr(sys.modules[f"dpgen.{place}"], "write_atomically", write)
    return written


def die_at(job: RunConfig, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        dies(patch, at=file)
        with pytest.raises(Died, match="gone"):
            run(job)


def finished(job: RunConfig) -> PrivacyStatement:
    """The statement of a run that is finished now."""
    outcome = run(job)
    assert outcome.problem == ""
    assert is_finished(outcome.directory, job.runtime.evaluation)
    stored = PrivacyStatement.from_dict(json.loads((outcome.directory / "privacy.json").read_text()))
    assert stored == outcome.release.statement
    return stored


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("file", ["metrics.json", "METRICS.md"])
def test_what_died_while_it_was_evaluated_is_finished_for_free(
    kind: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, ledger = JOBS[kind](tmp_path), tmp_path / "run" / "ledger.jsonl"
    die_at(job, file, monkeypatch)
    assert is_released(tmp_path / "run")
    before = ledger.read_bytes()
    finished(job)
    assert ledger.read_bytes() == before
    with pytest.raises(ValueError, match="holds a finished run; choose another directory"):
        run(job)


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("number", range(17))
def test_death_at_any_write(kind: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """51 deaths: the run begins anew before anything is spent, and is finished for free after that."""
    job, directory = JOBS[kind](tmp_path), tmp_path / "run"
    with monkeypatch.context() as patch:
        dies(patch, at=number)
        try:
            run(job)
        except Died:
            pass
        else:
            assert is_finished(directory)
            return
    charges = 0
    if directory.exists():
        with Ledger.open(directory / "ledger.jsonl") as ledger:
            charges = ledger.charges
    finished(job)
    with Ledger.open(directory / "ledger.jsonl") as ledger:
        assert charges in (0, ledger.charges), "nothing is charged twice"


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("moment", ["charge", "value", "give"])
def test_death_at_the_last_release_of_a_closed_form(
    kind: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies between its charge and the value, the value and its mark, or after it: one charge, one value, one release."""
    job, directory = JOBS[kind](tmp_path, "--evaluation=none"), tmp_path / "run"
    owner, name = {"charge": (Journal, "value"), "value": (Ledger, "give"), "give": (sys.modules["dpgen.run"], "_publish")}[
        moment
    ]

    def die(*_: object, **__: object) -> None:
        raise Died("gone")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, die)
        with pytest.raises(Died, match="gone"):
            run(job)
    with Ledger.open(directory / "ledger.jsonl") as ledger:
        charges = ledger.charges
        assert charges
        assert bool(ledger.given) == (moment == "give")
    before = (directory / "ledger.jsonl").read_bytes()
    finished(job)
    after = (directory / "ledger.jsonl").read_bytes()
    assert after.startswith(before)
    statement = PrivacyStatement.from_dict(json.loads((directory / "privacy.json").read_text()))
    assert RESUMED in statement.assumptions
    if moment == "give":
        assert after == before, "all of it had been paid for and given"
    assert not (directory / "journal.jsonl").exists(), "the release holds what was paid for"


def test_kill_9_of_a_closed_form_after_its_release(tmp_path: Path) -> None:
    moments = ["model/model.json", "samples.npz"]
    options = closed_form(tmp_path, "--clusters=none")
    program = Path(__file__).parent / "helpers" / "killed_runs.py"
    command = [sys.executable, str(program), str(tmp_path / "run"), ",".join(moments), "--", "--model=gaussian", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert ended.returncode == 0, ended.stderr
    shots = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    lengths = [shot["lines"] for shot in shots]
    assert len(set(lengths)) == 1, "once released, nothing more is charged"
    assert is_finished(tmp_path / "run")


# -- a ledger whose last line was cut --------------------------------------------------------------------------------


EVENT = gaussian_event(30.0)


def cut(directory: Path, lost: int) -> None:
    path = directory / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-lost])


def test_a_cut_ledger_after_the_release_states_the_whole_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = records(tmp_path, "--epsilon=2")
    die_at(job, "metrics.json", monkeypatch)
    cut(tmp_path / "run", 5)
    statement = finished(job)
    assert statement.epsilon <= 2.0, "what was released states what it cost: its ledger was whole then"
    with Ledger.open(tmp_path / "run" / "ledger.jsonl") as ledger:
        assert (ledger.recovered, ledger.epsilon()) == (True, 2.0)


def test_a_training_whose_ledger_was_cut_releases_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tiny.job(tmp_path, *tiny.UNLABELLED, "--steps=6", "--checkpoint_every=4", "--epsilon=2", "--evaluation=none")
    save = Checkpoint.on_train_batch_end

    def die(self: Checkpoint, trainer: L.Trainer, *rest: Any) -> None:
        save(self, trainer, *rest)
        if trainer.global_step == 5:
            raise Died("gone")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_train_batch_end", die)
        with pytest.raises(Died, match="gone"):
            run(job)
    cut(tmp_path / "run", 3)  # the charge of step 5; the checkpoint is that of step 4
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        statement = finished(job)
    assert any("the budget ended training after 4 of 6 steps" in str(warning.message) for warning in heard)
    assert statement.epsilon == 2.0
    assert RECOVERED in statement.assumptions


def test_a_release_that_was_never_trained_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = tiny.arguments(tmp_path, *tiny.UNLABELLED, "--epsilon=2", "--evaluation=none")

    def die(*_: object, **__: object) -> None:
        raise Died("gone")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_train_batch_end", die)
        with pytest.raises(Died, match="gone"):
            main(["train", *arguments])
    cut(tmp_path / "run", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["train", *arguments]) == 3
    out, errors = capsys.readouterr()
    assert "the budget ended training after 0 of 3 steps" in errors
    assert UNTRAINED in out
    assert UNTRAINED in errors
    statement = PrivacyStatement.from_dict(json.loads((tmp_path / "run" / "privacy.json").read_text()))
    assert UNTRAINED in statement.not_covered
    assert {RECOVERED, RESUMED} < set(statement.assumptions)


def test_the_statement_says_that_a_line_was_cut(tmp_path: Path) -> None:
    job = records(tmp_path, "--epsilon=2")
    with job.plan.open_ledger(tmp_path / "l.jsonl") as ledger:
        ledger.charge(EVENT, note="marginals")
    content = (tmp_path / "l.jsonl").read_bytes()
    (tmp_path / "l.jsonl").write_bytes(content[:-4])
    with Ledger.open(tmp_path / "l.jsonl", recover=True) as mended:
        statement = PrivacyStatement.from_ledger(mended)
    assert (statement.epsilon, statement.accountant) == (2.0, "the whole budget, whatever was spent of it")
    assert RECOVERED in statement.assumptions
    assert statement.also == {}


# -- evaluation ------------------------------------------------------------------------------------------------------


def test_a_run_that_is_not_evaluated_can_be_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = records(tmp_path, "--evaluation=none")
    outcome = run(job)
    assert not (outcome.directory / "metrics.json").exists()
    assert "not evaluated; dpgen evaluate" in outcome.summary
    with pytest.raises(ValueError, match="holds a finished run"):
        run(job)
    before = (outcome.directory / "ledger.jsonl").read_bytes()
    for _ in range(2):  # at any time, as often as somebody likes
        assert main(["evaluate", str(outcome.directory), "--evaluation=quick"]) == 0
        assert "counting queries" in capsys.readouterr().out
        assert is_finished(outcome.directory)
    assert (outcome.directory / "ledger.jsonl").read_bytes() == before


def test_private_draws_are_evaluated_by_the_run_that_made_them_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = run(points(tmp_path)).directory
    metrics = (directory / "metrics.json").read_bytes()
    assert main(["evaluate", str(directory)]) == 2
    assert "never kept" in capsys.readouterr().err
    assert (directory / "metrics.json").read_bytes() == metrics


def test_what_was_never_released_is_not_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} is no run: config.yaml is missing\n"


def test_a_failed_evaluation_has_a_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no picture today")

    monkeypatch.setattr(sys.modules["dpgen.evaluation.records"], "query_errors", broken)
    assert main(["train", "--model=marginals", *closed_form(tmp_path)]) == 3
    out, errors = capsys.readouterr()
    assert out.startswith("marginals on tiny\n")
    assert errors.count("\n") == 1
    assert "is complete, but its evaluation failed: RuntimeError('no picture today'); dpgen evaluate" in errors


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("evaluator", "interrupted before anything was spent"),
        ("_publish", "is what any release of this run states; the same command with --run_dir .* goes on"),
        ("_evaluated", "while evaluating: the release in .* is complete .*, or dpgen evaluate .*, finishes it"),
    ],
)
def test_ctrl_c_says_where_the_run_stands(place: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["dpgen.run"], place, interrupt)
    with pytest.raises(KeyboardInterrupt, match=said):
        run(records(tmp_path))
    assert (tmp_path / "run").exists() == (place != "evaluator")


def test_ctrl_c_while_training_saves_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = tiny.arguments(tmp_path, *tiny.UNLABELLED, "--steps=6", "--evaluation=none")
    save = Checkpoint.on_train_batch_end

    def press(self: Checkpoint, trainer: L.Trainer, *rest: Any) -> None:
        save(self, trainer, *rest)
        if trainer.global_step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_train_batch_end", press)
        assert main(["train", *arguments]) == 130
    errors = capsys.readouterr().err.splitlines()
    assert errors[-1].startswith("interrupted: eps ")
    assert f"the same command with --run_dir {tmp_path / 'run'} goes on" in errors[-1]
    assert main(["train", *arguments]) == 0
    with Ledger.open(tmp_path / "run" / "ledger.jsonl") as ledger:
        assert {e.note: e.count for e in ledger.entries()}["training steps"] == 6, "no step twice"


def test_random_bytes_at_the_end_of_a_ledger(tmp_path: Path) -> None:
    """Whatever a torn page leaves behind the last whole line: the whole budget is booked."""
    generator = random.Random(0)
    job = records(tmp_path, "--epsilon=2")
    with job.plan.open_ledger(tmp_path / "l.jsonl") as ledger:
        ledger.charge(EVENT, note="marginals")
    content = (tmp_path / "l.jsonl").read_bytes()
    for size in (1, 2, 30, 700):
        (tmp_path / "l.jsonl").write_bytes(content + generator.randbytes(size).replace(b"\n", b" "))
        with Ledger.open(tmp_path / "l.jsonl", recover=True) as mended:
            assert mended.epsilon() == 2.0
        with Ledger.open(tmp_path / "l.jsonl") as again:
            assert (again.recovered, again.epsilon()) == (True, 2.0)
