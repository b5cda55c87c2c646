"""Where and how a run executes: directory, hardware, trainer. Nothing here reaches the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, TQDMProgressBar
from lightning.pytorch.loggers import TensorBoardLogger

from dpgen.callbacks.checkpoint import Checkpoint, SealedCheckpointIO


class EpsilonBar(TQDMProgressBar):
    """Lightning's progress bar with what was logged for it (epsilon), without the logger's version."""

    def get_metrics(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
        return {name: value for name, value in super().get_metrics(trainer, pl_module).items() if name != "v_num"}


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Execution of a run.

    Arguments:
        run_dir: directory of the run; None: `runs/<model>-<data>-<date>`. An unfinished run in it is resumed.
        seed: of public randomness only (initial weights, features, splits), in [0, 2^32); noise and sampling masks ignore
            it.
        accelerator: "auto", "cpu" or "gpu".
        devices: number of devices; private training uses 1.
        num_nodes: number of machines; private training uses 1.
        private_logs: log losses of private records too; marks the directory and the statement as not covered.
        progress_bar: show one.
        checkpoint_every: steps between checkpoints.
        threads: CPU threads; None leaves PyTorch's choice.
    """

    run_dir: Path | None = None
    seed: int = 0
    accelerator: str = "auto"
    devices: int = 1
    num_nodes: int = 1
    private_logs: bool = False
    progress_bar: bool = True
    checkpoint_every: int = 200
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("devices", "num_nodes", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.devices * self.num_nodes != 1:
            raise ValueError(
                f"devices and num_nodes must be 1, got {self.devices} and {self.num_nodes}: sharded private training is not "
                "supported yet"
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be in [0, 2^32), got {self.seed}")
        if self.accelerator not in ("auto", "cpu", "gpu"):
            raise ValueError(f"accelerator must be one of 'auto', 'cpu', 'gpu', got {self.accelerator!r}")
        if self.accelerator == "gpu" and not torch.cuda.is_available():
            raise ValueError("accelerator='gpu' but PyTorch sees no GPU here; use 'auto' or 'cpu'")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")

    @property
    def directory(self) -> Path:
        """The run directory, which `run` has chosen by now."""
        if self.run_dir is None:
            raise ValueError("run_dir has not been set")
        return self.run_dir

    @property
    def checkpoint(self) -> Path:
        """The one checkpoint file of the run."""
        return self.directory / "last.ckpt"

    def trainer(self, *, max_steps: int, callbacks: Sequence[Callback]) -> L.Trainer:
        """A Lightning trainer that logs to TensorBoard in the run directory and checkpoints through a checksum."""
        own: list[Callback] = [Checkpoint(self.checkpoint, every=self.checkpoint_every)]
        if self.progress_bar:
            own.append(EpsilonBar(refresh_rate=10))
        return L.Trainer(
            accelerator=self.accelerator,
            devices=self.devices,
            num_nodes=self.num_nodes,
            max_steps=max_steps,
            max_epochs=-1,
            callbacks=[*callbacks, *own],
            logger=TensorBoardLogger(self.directory, name=None, version="tensorboard"),
            plugins=[SealedCheckpointIO()],
            enable_checkpointing=False,
            enable_progress_bar=self.progress_bar,
            enable_model_summary=False,
            log_every_n_steps=10,
            use_distributed_sampler=False,
        )

    def fit(self, module: L.LightningModule, loader: Any, *, max_steps: int, callbacks: Sequence[Callback]) -> None:
        """Train, resuming from the run's checkpoint if there is one."""
        resume = self.checkpoint if self.checkpoint.exists() else None
        trainer = self.trainer(max_steps=max_steps, callbacks=callbacks)
        trainer.fit(module, loader, ckpt_path=resume, weights_only=True)
