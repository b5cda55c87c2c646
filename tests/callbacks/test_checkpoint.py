"""Sealed checkpoints: whole or refused, written atomically, never unpickled freely."""

import hashlib
import io
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dpgen.callbacks.checkpoint import Checkpoint, SealedCheckpointIO

STATE: dict[str, Any] = {"step": 7, "weights": torch.arange(6.0).view(2, 3), "ledger": {"lines": 3, "head": "ab"}}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "last.ckpt"
    SealedCheckpointIO().save_checkpoint(STATE, path)
    return path


def test_what_was_saved_is_loaded(saved: Path) -> None:
    loaded = SealedCheckpointIO().load_checkpoint(saved)
    assert loaded["step"] == 7
    assert torch.equal(loaded["weights"], STATE["weights"])
    assert loaded["ledger"] == STATE["ledger"]
    assert [p.name for p in saved.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.999])
def test_a_cut_checkpoint_is_refused(saved: Path, share: float) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"last\.ckpt does not match its checksum: it was cut or edited; delete it"):
        SealedCheckpointIO().load_checkpoint(saved)


@pytest.mark.parametrize("position", [0, 64, 300, -1])
def test_an_edited_checkpoint_is_refused(saved: Path, position: int) -> None:
    content = bytearray(saved.read_bytes())
    content[position] ^= 1
    saved.write_bytes(content)
    with pytest.raises(ValueError, match="does not match its checksum"):
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
    assert SealedCheckpointIO().load_checkpoint(saved)["step"] == 7


def test_saves_every_few_steps_and_at_the_end(tmp_path: Path) -> None:
    steps: list[int] = []
    trainer: Any = SimpleNamespace(callbacks=[], global_step=0, save_checkpoint=lambda path: steps.append(trainer.global_step))
    callback = Checkpoint(tmp_path / "last.ckpt", every=3)
    for trainer.global_step in range(1, 9):
        callback.on_train_batch_end(trainer, None, None, None, 0)  # type: ignore[arg-type]
    callback.on_train_end(trainer, None)  # type: ignore[arg-type]
    assert steps == [3, 6, 8]


def test_the_interval_is_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        Checkpoint(tmp_path / "last.ckpt", every=0)
