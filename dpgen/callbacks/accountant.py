"""The ledger of a training: it is asked before a step, and commits before checkpoints and logs are seen.

Checkpoints are whole, verified on loading, and never ahead of the ledger; SIGTERM and SIGUSR1 end training with one.
"""

import hashlib
import io
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy

from dpgen.files import write_atomically
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.distributed import Ranks
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import require_whole
from dpgen.privacy.sampling import PoissonMask


class PrivacyAccountant(Callback):
    """Holds the curator during `Trainer.fit`: steps are charged before they run, within the budget.

    It is the general moments accountant of Acs et al. 2017: norms and sums of one draw, over every mechanism of a plan. Their
    joint moments stand in place of the sum of Theorem 3, which is no bound (`effective_multiplier`).

    What it logs is a display of what has run so far, computed from public quantities: `eps` (progress bar),
    `privacy/epsilon_rdp` and `privacy/remaining` after every step, which bound it from above (below), and the tight
    `privacy/epsilon` (tens of milliseconds to a second) after epochs. The guarantee is that of the whole plan
    (`Ledger.epsilon`), also of a run that is stopped after a look at it.

    Formal guarantees:

    | case | what holds |
    |---|---|
    | a step would exceed the budget | it does not run, training stops, nothing is charged |
    | resume with `ckpt_path` | the ledger must extend the checkpoint's position; steps that were shown stay counted |
    | killed after a checkpoint | steps since then were not shown: they run again, unpaid, with fresh noise |
    | checkpoint written | the charges are committed before it is visible |
    | a logger that does not wait for checkpoints | every step is committed before it runs |
    | several processes | rank 0's ledger alone counts; the others do what it decides, and a step is charged once |

    A trainer is refused that accumulates gradients, computes in a precision that understates norms, replaces the Poisson
    sampler, or shards parameters.

    On ranks other than 0 the curator has any ledger without a file, replaced by a copy of rank 0's when training starts;
    `every` is epochs between two tight values. `at_once`: every step is committed before it runs, whatever the loggers, for
    other callbacks may show it.
    """

    def __init__(self, curator: Curator, *, every: int = 1, at_once: bool = False) -> None:
        require_whole("every", every)
        if not isinstance(curator, Curator):
            raise TypeError(f"curator must be a Curator, got {type(curator).__name__}: PrivacyAccountant(Curator(ledger))")
        self.curator, self.every = curator, every
        self.replayed = 0
        self.exhausted = False
        self.ranks = Ranks()
        self._at_once, self._always, self._staged = at_once, at_once, False

    @property
    def ledger(self) -> Ledger:
        """The curator's ledger."""
        return self.curator.ledger

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.ranks = Ranks.join()

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.accumulate_grad_batches != 1:
            raise ValueError(
                f"accumulate_grad_batches must be 1, got {trainer.accumulate_grad_batches}: m accumulated Poisson(q) "
                "draws are not one Poisson(m q) draw; raise sampling_rate and set the module's micro_batch instead"
            )
        allowed = ["32-true", "64-true"] + ["bf16-mixed"] * bool(getattr(pl_module, "exact_sums", False))
        if trainer.precision not in allowed:
            raise ValueError(
                f"precision must be one of {', '.join(map(repr, allowed))}, got {trainer.precision!r}: half precision "
                "understates gradient norms where they are not computed in float32 from what is summed"
            )
        if torch.get_float32_matmul_precision() != "highest":
            raise ValueError(
                f"float32_matmul_precision must be 'highest', got {torch.get_float32_matmul_precision()!r}: TensorFloat-32 "
                "understates gradient norms"
            )
        if trainer.world_size > 1:
            self._require_shards(trainer, pl_module)
        self.curator.join(self.ranks, trainer.strategy.root_device)
        self._at_once = self._always or not all(isinstance(logger, HeldTensorBoard) for logger in trainer.loggers)

    @staticmethod
    def _require_shards(trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not getattr(pl_module, "shards_records", False):
            raise ValueError(
                f"devices * num_nodes must be 1 for a {type(pl_module).__name__}, got {trainer.world_size}: it does not say "
                "that its ranks share the records and the noise (shards_records)"
            )
        if not isinstance(trainer.strategy, DDPStrategy):
            raise ValueError(
                f"strategy must be 'ddp' for several processes, got {type(trainer.strategy).__name__}: sums of sharded "
                "parameters cannot be clipped"
            )
        if trainer._accelerator_connector.use_distributed_sampler:
            raise ValueError(
                "use_distributed_sampler must be False, got True: Lightning would replace the Poisson sampler by shuffled "
                "batches of fixed size, which cost far more privacy"
            )

    def draw(self, note: str, mask: PoissonMask, parts: Mapping[str, float]) -> Draw | None:
        """The curator's grant for a step of all ranks; None, now and from now on, when the budget would be exceeded."""
        if self.exhausted:
            return None
        granted = self.curator.draw(note, mask, parts)
        self.exhausted = granted is None
        if self._at_once and self.ranks.index == 0:
            self.ledger.commit()
        return granted

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.ranks.index:
            return
        # What was granted never passes the budget, so the budget bounds what Renyi accounting overstates.
        limit = self.ledger.budget.epsilon if self.ledger.budget else float("inf")
        running = min(self.ledger.spent_rdp(), limit)
        pl_module.log("eps", running, prog_bar=True, logger=False)
        pl_module.log("privacy/epsilon_rdp", running)
        if self.ledger.budget:
            pl_module.log("privacy/remaining", limit - running)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.ranks.index == 0 and (trainer.current_epoch + 1) % self.every == 0:
            pl_module.log("privacy/epsilon", self.ledger.spent(), rank_zero_only=True)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.curator.leave()

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if not self._staged:
            self.ledger.commit()

    def save(self, trainer: L.Trainer, path: Path) -> None:
        """Commit all charges together with a checkpoint, then show what was logged; called by all ranks."""
        path.parent.mkdir(parents=True, exist_ok=True)
        staged, self._staged = self.ledger.staged(path), True
        try:
            trainer.save_checkpoint(staged)
        finally:
            self._staged = False
        if self.ranks.index == 0:
            self.ledger.commit(moves=[(staged, path)])
        for logger in trainer.loggers:
            if isinstance(logger, HeldTensorBoard):
                logger.show()

    def state_dict(self) -> dict[str, Any]:
        return {"ledger": self.ledger.position()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        ledger = self.ledger
        self.replayed = self.ranks.first(lambda: ledger.verify_contains(state_dict["ledger"]))


# -- logs --------------------------------------------------------------------------------------------------------------


class HeldTensorBoard(TensorBoardLogger):
    """TensorBoard, whose entries wait in memory until `show`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    @property
    def experiment(self) -> Any:
        """A writer that remembers what it is told."""
        return _Writer(self._calls)

    def show(self) -> None:
        """Write what was logged so far: the charges behind it are committed."""
        calls, self._calls[:] = list(self._calls), []
        if calls:
            writer = super().experiment
            for name, arguments, options in calls:
                getattr(writer, name)(*arguments, **options)
            writer.flush()

    def save(self) -> None:
        """Nothing: hyperparameters are written with the results."""

    def finalize(self, status: str) -> None:
        """Close the files; what was not shown is dropped."""
        if self._experiment is not None:
            self._experiment.close()
            self._experiment = None


class _Writer:
    def __init__(self, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: self._calls.append((name, arguments, options))


# -- checkpoints -------------------------------------------------------------------------------------------------------


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
