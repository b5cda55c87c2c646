"""The life of a run after its release, and what Ctrl-C does; `test_kills.py` has deaths."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import tiny

from dpgen.callbacks.checkpoint import Checkpoint
from dpgen.cli.main import main
from dpgen.config import RunConfig, parse_job
from dpgen.files import is_finished
from dpgen.privacy.ledger import Ledger
from dpgen.run import run

pytestmark = pytest.mark.usefixtures("quiet")

OF_NETWORKS = ("--hidden", "--latent", "--steps", "--sampling_rate", "--accelerator")


def records(directory: Path, *extra: str) -> RunConfig:
    return parse_job(["--model=marginals", *closed_form(directory, *extra)])


def closed_form(directory: Path, *extra: str) -> list[str]:
    """Arguments of a run without labels that trains nothing."""
    unlabelled = ("--label_column=null", "--image_shape=null", *extra)
    return [a for a in tiny.arguments(directory, *unlabelled) if not a.startswith(OF_NETWORKS)]


def points(directory: Path, *extra: str) -> RunConfig:
    data = ("--data=mixture_1d", "--n_points=40", "--n_test=20", "--cells=4", "--progress_bar=false")
    return parse_job(["--model=grid_response", *data, f"--run_dir={directory / 'run'}", *extra])


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
