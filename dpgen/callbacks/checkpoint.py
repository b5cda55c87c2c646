"""Checkpoints: whole, verified on loading, never ahead of the ledger; SIGTERM and SIGUSR1 end training with one."""

import hashlib
import io
import os
import signal
import subprocess
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback

from dpgen.callbacks.accountant import PrivacyAccountant
from dpgen.files import write_atomically
from dpgen.privacy.distributed import Ranks
from dpgen.privacy.mechanisms import require_whole


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
    """Saves `path` after every `every` steps and at the end of training; at most so many steps run again after a crash.

    Steps that are paid for together are not parted: it is saved at the end of the epoch of random allocation.
    """

    def __init__(self, path: Path, *, every: int = 100) -> None:
        require_whole("every", every)
        self.path, self.every = path, every

    def save(self, trainer: L.Trainer) -> None:
        """Write the checkpoint now."""
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, PrivacyAccountant):
                return callback.save(trainer, self.path)
        trainer.save_checkpoint(self.path)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        together = _together(pl_module)
        if trainer.global_step % (-(-self.every // together) * together) == 0:
            self.save(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.save(trainer)


def _together(module: L.LightningModule) -> int:
    """Steps of a module that are paid for by one event."""
    return int(getattr(module, "steps_together", 1))


class Preempted(RuntimeError):
    """Training stopped because a signal asked it to; the checkpoint and the ledger are on disk. Resume to go on."""


class Preemption(Callback):
    """Ends training after the step, or epoch of random allocation, in which one of `signals` came, on all ranks together.

    The handlers only note the signal. The checkpoint is written by the callback that writes it at the end of training,
    so nothing is done again. A second Ctrl-C does not wait.
    """

    signals = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.stopped = False
        self._ranks = Ranks()
        self._before: dict[signal.Signals, Any] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._ranks = Ranks.join()
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self.signals}

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % _together(pl_module) == 0 and self._ranks.any(self.received is not None)[0]:
            self.stopped = trainer.should_stop = True

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._restore()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._restore()


def requeue() -> bool:
    """Ask Slurm to run this job again, which ends it now; False where there is no Slurm job.

    Called for SIGUSR1 only, the warning before a time limit (`#SBATCH --signal=USR1@120`): after SIGTERM Slurm itself
    requeues a preempted job, and a cancelled one must not come back.
    """
    job, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    name = f"{job}_{task}" if job and task else os.environ.get("SLURM_JOB_ID")
    if not name:
        return False
    return subprocess.run(["scontrol", "requeue", name], check=False).returncode == 0
