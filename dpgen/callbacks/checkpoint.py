"""Checkpoints that are whole, verified on loading, and never ahead of the ledger."""

import hashlib
import io
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback

from dpgen.files import write_atomically


class SealedCheckpointIO(TorchCheckpointIO):
    """Writes `sha256 + newline + torch file` atomically and refuses to load anything else; nothing is unpickled freely."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        body = buffer.getvalue()
        write_atomically(Path(path), hashlib.sha256(body).hexdigest().encode() + b"\n" + body)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        digest, _, body = Path(path).read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise ValueError(
                f"checkpoint {Path(path).name} does not match its checksum: it was cut or edited; delete it to "
                "start training again (the ledger keeps what was spent)"
            )
        return torch.load(io.BytesIO(body), map_location=map_location or "cpu", weights_only=True)


class Checkpoint(Callback):
    """Saves `path` every few steps and at the end of training.

    Arguments:
        path: file to (over)write.
        every: steps between two checkpoints, at least 1; at most so many steps are replayed, and paid twice, after a crash.
    """

    def __init__(self, path: Path, *, every: int = 100) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self.path, self.every = path, every

    def save(self, trainer: L.Trainer) -> None:
        """Write the checkpoint now."""
        trainer.save_checkpoint(self.path)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % self.every == 0:
            self.save(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.save(trainer)
