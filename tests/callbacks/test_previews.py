"""Pictures of released samples: one row per cluster, label columns cut off, at the chosen epochs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import Tensor

from dpgen.callbacks import Previews

K, M = 3, 4


class Recorder(TensorBoardLogger):
    """A TensorBoard logger that keeps pictures in memory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.pictures: list[tuple[str, Tensor, int]] = []

    @property
    def experiment(self) -> Any:
        return SimpleNamespace(add_image=lambda *picture: self.pictures.append(picture))


def trainer(*loggers: Any, epoch: int = 0) -> Any:
    return SimpleNamespace(loggers=loggers, current_epoch=epoch, global_step=17)


def draw() -> Tensor:
    """Every pixel of cluster c has the value c / K; two label columns follow the 4 pixels."""
    return (torch.arange(K) / K)[:, None, None].expand(K, M, 6)


def test_one_row_per_cluster_and_no_label_columns(tmp_path: Path) -> None:
    logger = Recorder(tmp_path)
    Previews(draw, image_shape=(2, 2)).on_train_end(trainer(logger), None)  # type: ignore[arg-type]
    [(name, picture, step)] = logger.pictures
    assert (name, step) == ("released/samples", 17)
    assert picture.shape == (3, K * 3 + 1, M * 3 + 1), "K rows of M pictures of 2 x 2 with a border of 1"
    assert torch.allclose(picture[0, 1::3, 1], 1 - torch.arange(K) / K), "ink is dark"


def test_images_in_colour_are_shown_as_they_are(tmp_path: Path) -> None:
    logger, colour = Recorder(tmp_path), torch.tensor([0.2, 0.5, 0.9])
    pixels = torch.cat([colour.repeat_interleave(4), torch.ones(2)]).expand(K, M, 14)
    Previews(lambda: pixels, image_shape=(3, 2, 2)).on_train_end(trainer(logger), None)  # type: ignore[arg-type]
    [(_, picture, _)] = logger.pictures
    assert picture.shape == (3, K * 3 + 1, M * 3 + 1)
    assert torch.allclose(picture[:, 1, 1], colour)


def test_only_every_few_epochs(tmp_path: Path) -> None:
    logger = Recorder(tmp_path)
    previews = Previews(draw, image_shape=(2, 2), every=3)
    counts = []
    for epoch in range(6):
        previews.on_train_epoch_end(trainer(logger, epoch=epoch), None)  # type: ignore[arg-type]
        counts.append(len(logger.pictures))
    assert counts == [0, 0, 1, 1, 1, 2]


def test_other_loggers_get_nothing(tmp_path: Path) -> None:
    def fail() -> Tensor:
        raise AssertionError("drawn for nobody")

    Previews(fail, image_shape=(2, 2)).on_train_end(trainer(CSVLogger(tmp_path)), None)  # type: ignore[arg-type]


def test_the_interval_is_positive() -> None:
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        Previews(draw, image_shape=(2, 2), every=0)
