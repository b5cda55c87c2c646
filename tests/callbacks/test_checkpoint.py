"""Sealed checkpoints: whole or refused, never unpickled freely; signals end training after the step, Slurm requeues the job."""

import hashlib
import io
import os
import pickle
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from refusals import refused

from dpgen.callbacks.accountant import Checkpoint, Preemption, SealedCheckpointIO, requeue

STATE: dict[str, Any] = {"step": 7, "weights": torch.arange(6.0).view(2, 3), "ledger": {"lines": 3, "head": "ab"}}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "last.ckpt"
    SealedCheckpointIO().save_checkpoint(STATE, path)
    return path


@pytest.mark.parametrize("edit", [0.0, 0.5, 0.999, 0, 64, -1])
def test_a_cut_or_edited_checkpoint_is_refused(saved: Path, edit: float) -> None:
    content = bytearray(saved.read_bytes())
    if isinstance(edit, int):
        content[edit] ^= 1
    else:
        del content[int(edit * len(content)) :]
    saved.write_bytes(content)
    with refused("checksum"):
        SealedCheckpointIO().load_checkpoint(saved)


def test_a_sealed_pickle_is_not_executed(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    buffer = io.BytesIO()
    torch.save({"state": Bomb()}, buffer)
    body = buffer.getvalue()
    path = tmp_path / "last.ckpt"
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        SealedCheckpointIO().load_checkpoint(path)
    assert not (tmp_path / "executed").exists()


def test_a_failed_save_keeps_the_last_checkpoint(saved: Path) -> None:
    with pytest.raises((AttributeError, pickle.PicklingError), match=r"local object|lambda"):
        SealedCheckpointIO().save_checkpoint({"state": lambda: None}, saved)
    loaded = SealedCheckpointIO().load_checkpoint(saved)
    assert torch.equal(loaded.pop("weights"), STATE["weights"])
    assert loaded == {name: value for name, value in STATE.items() if name != "weights"}
    assert [p.name for p in saved.parent.iterdir()] == ["last.ckpt"]


def test_saves_every_few_steps_and_at_the_end(tmp_path: Path) -> None:
    steps: list[int] = []
    trainer: Any = SimpleNamespace(callbacks=[], global_step=0, save_checkpoint=lambda path: steps.append(trainer.global_step))
    callback = Checkpoint(tmp_path / "last.ckpt", every=3)
    for trainer.global_step in range(1, 9):
        callback.on_train_batch_end(trainer, None, None, None, 0)  # type: ignore[arg-type]
    callback.on_train_end(trainer, None)  # type: ignore[arg-type]
    assert steps == [3, 6, 8]


# -- signals -----------------------------------------------------------------------------------------------------------


def started() -> tuple[Preemption, Any]:
    callback, trainer = Preemption(), SimpleNamespace(should_stop=False, global_step=0)
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

    monkeypatch.setattr("dpgen.callbacks.accountant.subprocess.run", run)
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    assert not requeue()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert requeue()
    assert asked == [["scontrol", "requeue", job]]
