"""Where and how a run executes: directory, budget that it shares, hardware, trainer.

PyTorch and Lightning are imported where something is trained: the options of a run are read and explained without them.
"""

import logging
import os
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from dpgen.facts import Fact

if TYPE_CHECKING:
    import lightning as L
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.loggers import TensorBoardLogger

    from dpgen.privacy.noise import SecureSource

RUN_DIR = "DPGEN_RUN_DIR"
"""Environment variable that tells processes which Lightning launches the directory that the first one has chosen."""

_LAUNCHED = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE", RUN_DIR)


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Execution of a run.

    Arguments:
        title: name of the data in the statement, in the words of their owner; None: they are not named.
        run_dir: directory of the run; None: `runs/<model>-<data>-<date>`. An unfinished run in it is resumed.
        ledger: file of a budget that all runs on the data set pay from, beside the run's own, made by `dpgen budget FILE
            --create`; None: the run's own is all.
        release_origin: of releases that options name (a reference, a schema with bought domains, files of a finished run):
            "records", the same ones, so that what each of them cost is part of epsilon and delta; or "public", records of
            other people or of the public.
        seed: of public randomness only (initial weights, features, splits), in [0, 2^32); noise and sampling masks ignore
            it.
        accelerator: "auto", "cpu" or "gpu".
        devices: devices per machine; with more than one, each trains on its own share of the records.
        num_nodes: machines. Where torchrun or Slurm starts the processes, they need one `run_dir`.
        precision: "32", or "bf16-mixed": half precision in the networks only; norms, sums and noise stay float32.
        evaluation: "none", "quick" (samples of the records, of a size that stands beside the scores) or "full"; "holdout=0.05"
            is "quick" with this share of the records held out, in place of `test_fraction`.
        fid_weights: file of torchvision's Inception v3 (.pth or .safetensors), whose features of images are compared with
            evaluation "full"; None: those of a network trained on the private images.
        progress_bar: show one, on a terminal.
        checkpoint_every: steps between checkpoints.
        threads: CPU threads of a process; None leaves PyTorch's choice.
        noise_source: where noise on sums that are on a GPU is drawn: "host", by AES; "device", by Philox, which is no cipher.
    """

    title: str | None = None
    run_dir: Path | None = None
    ledger: Path | None = None
    release_origin: Literal["records", "public"] = "records"
    seed: int = 0
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    devices: int = 1
    num_nodes: int = 1
    precision: Literal["32", "bf16-mixed"] = "32"
    evaluation: Literal["none", "quick", "full"] = "quick"
    fid_weights: Path | None = None
    progress_bar: bool = True
    checkpoint_every: int = 200
    threads: int | None = None
    noise_source: Literal["host", "device"] = "host"

    def __post_init__(self) -> None:
        for name in ("devices", "num_nodes", "checkpoint_every", "threads"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be in [0, 2^32), got {self.seed}")
        for name, kind in Runtime.__annotations__.items():
            if get_origin(kind) is Literal and getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(kind)))}, got {getattr(self, name)!r}")
        self._require_title(self.title)
        self._require_weights(self.fid_weights)
        self._require_accelerator()

    def _require_title(self, title: str | None) -> None:
        if title is not None and not (title.isprintable() and title.strip() and len(title) <= 200):
            raise ValueError(f"title is {title!r}; it must be one line of 1 to 200 characters")

    def _require_accelerator(self) -> None:
        if self.noise_source == "device" and self.accelerator == "cpu":
            raise ValueError("noise_source is 'device'; it must be 'host' with accelerator 'cpu'")
        if self.accelerator == "gpu":
            import torch

            if not torch.cuda.is_available():
                raise ValueError("accelerator='gpu' but PyTorch sees no GPU here; use 'auto' or 'cpu'")

    def _require_weights(self, file: Path | None) -> None:
        if file is None:
            return
        if self.evaluation != "full":
            raise ValueError(f"fid_weights is {str(file)!r}; it needs evaluation full, not {self.evaluation!r}")
        if not file.is_file():
            raise ValueError(f"fid_weights is {str(file)!r}; it must be a file")

    def source(self) -> "SecureSource":
        """Where private noise comes from."""
        from dpgen.privacy.noise import DeviceSource, SecureSource

        return DeviceSource() if self.noise_source == "device" else SecureSource()

    @property
    def processes(self) -> int:
        """Processes that train together."""
        return self.devices * self.num_nodes

    @property
    def first(self) -> bool:
        """Whether this process is the one that opens the ledger, writes files and releases; the others only train."""
        from dpgen.privacy.distributed import launched_rank

        return self.processes == 1 or launched_rank() == 0

    @property
    def directory(self) -> Path:
        """The run directory, which `run` has chosen by now; processes that the first one started have it from there."""
        if self.run_dir is not None:
            return self.run_dir
        if not self.first and (inherited := os.environ.get(RUN_DIR)):
            return Path(inherited)
        raise ValueError("run_dir has not been set: processes that torchrun or Slurm starts must share one")

    @property
    def checkpoint(self) -> Path:
        """The one checkpoint file of the run."""
        return self.directory / "last.ckpt"

    def begin(self) -> None:
        """Let PyTorch use as many threads as `threads` says; refuse more devices than this machine has."""
        import torch

        on_gpu = self.accelerator != "cpu" and torch.cuda.is_available()
        here = torch.cuda.device_count() if on_gpu else os.cpu_count() or 1
        if self.devices > max(1, here):
            raise ValueError(f"devices is {self.devices}; this machine has {here} {'GPUs' if on_gpu else 'CPU cores'}")
        if self.threads is not None:
            torch.set_num_threads(self.threads)

    def trainer(self, *, max_steps: int, callbacks: "Sequence[Callback]" = (), released: bool = True) -> "L.Trainer":
        """A Lightning trainer that logs and checkpoints in the run directory what may be `released`."""
        import lightning as L
        from lightning.pytorch.plugins.environments import SLURMEnvironment
        from lightning.pytorch.strategies import DDPStrategy

        from dpgen.callbacks.accountant import Checkpoint, Preemption, SealedCheckpointIO
        from dpgen.callbacks.loggers import ReleaseLogger, TrainingProgress

        if not released and self.precision != "32":
            raise ValueError(f"precision is {self.precision!r}; it must be '32' for this system")
        own: list[Callback] = []
        if released:
            own = [Preemption(), Checkpoint(self.checkpoint, every=self.checkpoint_every), ReleaseLogger()]
        # Slurm's environment without Lightning's own requeueing, which would bypass the sealed checkpoint.
        slurm = [SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else []
        self.begin()
        # Without DDP's own exchange of buffers: every rank computes the same from released values.
        return L.Trainer(
            accelerator=self.accelerator,
            devices=self.devices,
            num_nodes=self.num_nodes,
            strategy=DDPStrategy(broadcast_buffers=False) if self.processes > 1 else "auto",
            precision=self.precision,
            max_steps=max_steps,
            max_epochs=-1,
            callbacks=[*callbacks, *own, TrainingProgress()],
            logger=self.run_logger(held=True) if released else False,
            plugins=[SealedCheckpointIO(), *slurm] if released else [],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=10,
            use_distributed_sampler=False,
        )

    def run_logger(self, *, held: bool = False) -> "TensorBoardLogger":
        """TensorBoard in the run directory; `held`: its entries wait until their charges are committed."""
        from lightning.pytorch.loggers import TensorBoardLogger

        from dpgen.callbacks.accountant import HeldTensorBoard

        return (HeldTensorBoard if held else TensorBoardLogger)(self.directory, name=None, version="tensorboard")

    @property
    def logged(self) -> bool:
        """Whether something was trained, and logged about."""
        return (self.directory / "tensorboard").is_dir()

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Facts of the logs of a training, for a statement."""
        return (Fact.LOGS,) if self.logged else ()

    def log_results(self, settings: dict[str, dict[str, Any]], metrics: dict[str, float]) -> None:
        """Hyper-parameters and final metrics, for TensorBoard's tab that compares runs, if something was trained."""
        if not self.logged:
            return
        options = {f"{block}.{key}": value for block, values in settings.items() for key, value in values.items()}
        shown = {key: v if isinstance(v, int | float | str | bool) else str(v) for key, v in options.items()}
        logger = self.run_logger()
        logger.log_hyperparams(shown, metrics)
        logger.finalize("success")

    def fit(self, module: "L.LightningModule", loader: Any, *, max_steps: int, callbacks: "Sequence[Callback]") -> None:
        """Train, resuming from the run's checkpoint if there is one.

        Raises:
            Preempted: a signal ended training early; the same command continues it.
            KeyboardInterrupt: the signal was Ctrl-C; the same holds.
        """
        from dpgen.callbacks.accountant import Preempted, Preemption, requeue
        from dpgen.privacy.distributed import RemoteFailure

        resume = self.checkpoint if self.checkpoint.exists() else None
        with _launching(self.directory):
            trainer = self.trainer(max_steps=max_steps, callbacks=callbacks)
            trainer.fit(module, loader, ckpt_path=resume, weights_only=True)
        stop = next(c for c in trainer.callbacks if isinstance(c, Preemption))  # type: ignore[attr-defined]
        if stop.stopped and trainer.global_step < max_steps:
            if not self.first:
                raise RemoteFailure("stopped by a signal; rank 0 says so")
            if stop.received == signal.SIGINT:
                raise KeyboardInterrupt
            again = stop.received == signal.SIGUSR1 and requeue()
            raise Preempted(
                f"stopped by a signal after step {trainer.global_step} of {max_steps}; "
                + ("the job has been requeued" if again else "the same command with the same run_dir continues")
            )


@contextmanager
def _launching(directory: Path) -> Iterator[None]:
    """Lets processes that Lightning launches inherit the directory; leaves no process group and no variable behind."""
    import torch.distributed as dist

    before = {name: os.environ.get(name) for name in _LAUNCHED}
    os.environ[RUN_DIR] = str(directory.absolute())
    ours = not dist.is_initialized()
    try:
        yield
        if ours and dist.is_initialized():
            dist.destroy_process_group()
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def quiet_runtime(directory: Path, seed: int) -> Runtime:
    """A run on the CPU that shows nothing and is thrown away."""
    return Runtime(run_dir=directory, seed=seed, accelerator="cpu", progress_bar=False, checkpoint_every=10**6)


@contextmanager
def quiet_training() -> Iterator[None]:
    """Lightning's hints and Python warnings kept to itself; what is logged as a warning or an error is shown."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)  # levels would not do: Lightning sets its own when it is imported
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        try:
            yield
        finally:
            logging.disable(before)
