"""Runs that are told to stop: SIGTERM and SIGUSR1 end training after a step, with a checkpoint to continue from."""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from dpgen.privacy.ranks import Ranks


class Preempted(RuntimeError):
    """Training stopped because a signal asked it to; the checkpoint and the ledger are on disk. Resume to go on."""


class Preemption(Callback):
    """Ends training after the step during which one of `signals` came, on all ranks together.

    The handlers only note the signal. The checkpoint is written by the callback that writes it at the end of training,
    and the ledger holds every step that was charged, so nothing is replayed.

    Arguments:
        signals: what a scheduler sends before it ends a job.
    """

    def __init__(self, signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGUSR1)) -> None:
        self.signals = tuple(signals)
        self.received: signal.Signals | None = None
        self.stopped = False
        self._ranks = Ranks()
        self._before: dict[signal.Signals, Any] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._ranks = Ranks.join()
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self.signals}

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._ranks.any(self.received is not None)[0]:
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
