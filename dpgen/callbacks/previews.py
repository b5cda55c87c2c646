"""Pictures of the released model in TensorBoard."""

from collections.abc import Callable

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor
from torchvision.utils import make_grid


class Previews(Callback):
    """Writes a grid of samples of the model to TensorBoard, one row per cluster: post-processing, so it costs nothing.

    Arguments:
        draw: returns mean values (k, m, d) of m samples of each of k clusters.
        image_shape: height and width with height * width <= d; trailing columns (labels) are cut off.
        every: epochs between pictures, at least 1.
    """

    def __init__(self, draw: Callable[[], Tensor], *, image_shape: tuple[int, int], every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self.draw, self.image_shape, self.every = draw, image_shape, every

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if (trainer.current_epoch + 1) % self.every == 0:
            self._write(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(trainer)

    def _write(self, trainer: L.Trainer) -> None:
        height, width = self.image_shape
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                x = self.draw()
                images = x[..., : height * width].reshape(-1, 1, height, width)
                grid = make_grid(1.0 - images.to(torch.float32), nrow=x.shape[1], padding=1, pad_value=0.5)
                logger.experiment.add_image("released/samples", grid, trainer.global_step)
