"""Logging is a release: released values, speed and memory for every logger, pictures of the released model for TensorBoard."""

import resource
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from torch import Tensor
from torchvision.utils import make_grid

from dpgen.privacy.mechanisms import require_whole
from dpgen.progress import report


class TrainingProgress(Callback):
    """Tells the progress bar of the run how much of the training is done."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        report(0.0, "cluster")

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int) -> None:
        report(trainer.global_step / trainer.max_steps, "" if batch_idx else "train")


_EVERY = 10  # steps between two entries


class ReleaseLogger(Callback):
    """Logs released values, throughput and memory to every logger of the trainer.

    Whatever a logger does with what it gets (files, a server), it gets released quantities only: names begin with
    `released/` and `privacy/`, or with `performance/` for time and memory, which no guarantee speaks about.

    What a module has released is told by its `released_values() -> {name: value}`, and by
    `expected_records()` in a step: the drawn number itself is secret.
    """

    def __init__(self) -> None:
        self._since: tuple[int, float] = (0, 0.0)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._since = (trainer.global_step, time.monotonic())

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step, module = trainer.global_step, cast(Any, pl_module)
        if trainer.is_global_zero and trainer.loggers and step and step % _EVERY == 0:
            self._write(trainer.loggers, module, step)

    def _write(self, loggers: Sequence[Logger], module: Any, step: int) -> None:
        before, then = self._since
        self._since = step, time.monotonic()
        values = {f"performance/{name}": value for name, value in memory(module.device).items()}
        if step > before:
            speed = (step - before) / max(1e-9, self._since[1] - then)
            values["performance/steps_per_second"] = speed
        if hasattr(module, "released_values"):
            values |= {f"released/{name}": value for name, value in module.released_values().items()}
            if step > before:
                values["performance/expected_records_per_second"] = speed * module.expected_records()
        for logger in loggers:
            logger.log_metrics(values, step)


def memory(device: torch.device) -> dict[str, float]:
    """Peak memory so far in MiB: of this process, and of its device."""
    values = {"memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10}
    if device.type == "cuda":
        values["device_memory_mib"] = torch.cuda.max_memory_allocated(device) / 2**20
    return values


class Previews(Callback):
    """Writes a grid of samples of the model to TensorBoard, one row per cluster: post-processing, so it costs nothing.

    Arguments:
        draw: returns mean values (k, m, d) of m samples of each of k clusters.
        image_shape: (height, width), where ones are ink, or (channels, height, width) of images; trailing columns (labels) are
            cut off.
        every: epochs between pictures, at least 1.
    """

    def __init__(self, draw: Callable[[], Tensor], *, image_shape: tuple[int, ...], every: int = 1) -> None:
        require_whole("every", every)
        self.draw, self.image_shape, self.every = draw, image_shape, every

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if (trainer.current_epoch + 1) % self.every == 0:
            self._write(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(trainer)

    def _write(self, trainer: L.Trainer) -> None:
        channels, height, width = self.image_shape if len(self.image_shape) == 3 else (1, *self.image_shape)
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                x = self.draw()
                images = x[..., : channels * height * width].reshape(-1, channels, height, width).to(torch.float32)
                shown = images if len(self.image_shape) == 3 else 1.0 - images
                grid = make_grid(shown, nrow=x.shape[1], padding=1, pad_value=0.5)
                logger.experiment.add_image("released/samples", grid, trainer.global_step)
