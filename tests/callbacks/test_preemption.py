"""Signals are noted, not obeyed at once; handlers come and go with training; Slurm is asked for the right job."""

import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from dpgen.callbacks.checkpoint import Preemption, requeue


def started() -> tuple[Preemption, Any]:
    callback, trainer = Preemption(), SimpleNamespace(should_stop=False)
    callback.on_train_start(trainer, None)  # type: ignore[arg-type]
    return callback, trainer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_training_stops_after_the_step(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    callback, trainer = started()
    try:
        callback.on_train_batch_end(trainer, None, None, None, 0)  # type: ignore[arg-type]
        assert not trainer.should_stop
        os.kill(os.getpid(), number)
        assert callback.received == number
        assert not trainer.should_stop, "not in the middle of a step"
        callback.on_train_batch_end(trainer, None, None, None, 1)  # type: ignore[arg-type]
        assert trainer.should_stop
        assert callback.stopped
    finally:
        callback.on_train_end(trainer, None)  # type: ignore[arg-type]
    assert signal.getsignal(number) == before


def test_handlers_go_when_training_fails() -> None:
    before = signal.getsignal(signal.SIGTERM)
    callback, trainer = started()
    assert signal.getsignal(signal.SIGTERM) != before
    callback.on_exception(trainer, None, RuntimeError())  # type: ignore[arg-type]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({"SLURM_JOB_ID": "42"}, "42"),
        ({"SLURM_JOB_ID": "45", "SLURM_ARRAY_JOB_ID": "42", "SLURM_ARRAY_TASK_ID": "0"}, "42_0"),
    ],
)
def test_the_job_is_requeued(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], job: str) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], check: bool) -> Any:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("dpgen.callbacks.checkpoint.subprocess.run", run)
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    assert not requeue()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert requeue()
    assert asked == [["scontrol", "requeue", job]]
