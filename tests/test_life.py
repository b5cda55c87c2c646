"""The life of a run: whatever dies after something was released is finished by the same command, and costs nothing more."""

import json
import os
import signal
import subprocess
import sys
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
from dpgen.privacy.ledger import Ledger
from dpgen.run import run
from dpgen.statement import PrivacyStatement

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
            charges = ledger.charges  # that were committed
    finished(job)
    with Ledger.open(directory / "ledger.jsonl") as ledger:
        assert charges in (0, ledger.charges), "nothing is charged twice"


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("committed", [False, True])
def test_death_at_the_release_of_a_closed_form(
    kind: str, committed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit nothing was seen: it runs again, for free. After it, what was written becomes visible."""
    job, directory = JOBS[kind](tmp_path, "--evaluation=none"), tmp_path / "run"

    def die(*_: object, **__: object) -> None:
        raise Died("gone")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_finish_moves" if committed else "commit", die)
        with pytest.raises(Died, match="gone"):
            run(job)
    assert not (directory / "privacy.json").exists()
    with Ledger.open(directory / "ledger.jsonl") as ledger:
        assert ledger.committed == committed
        assert bool(ledger.charges) == committed
    before = (directory / "ledger.jsonl").read_bytes()
    finished(job)
    assert ((directory / "ledger.jsonl").read_bytes() == before) == committed
    with Ledger.open(directory / "ledger.jsonl") as ledger:
        assert all(line.count == sum(e.count for e in ledger.entries() if e.note == line.note) for line in ledger.promised())
    assert not list(directory.glob(".*"))


def test_kill_9_of_a_closed_form_after_its_release(tmp_path: Path) -> None:
    moments = ["model/model.json", "samples.npz"]
    options = closed_form(tmp_path, "--clusters=none")
    program = Path(__file__).parent / "helpers" / "killed_runs.py"
    command = [sys.executable, str(program), str(tmp_path / "run"), ",".join(moments), "--", "--model=gaussian", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert ended.returncode == 0, ended.stderr
    shots = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    lengths = [shot["commits"] for shot in shots]
    assert len(set(lengths)) == 1, "once released, nothing more is charged"
    assert is_finished(tmp_path / "run")


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
