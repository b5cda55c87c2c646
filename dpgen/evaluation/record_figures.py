"""Pictures of real and synthetic records side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dpgen.figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def samples_figure(
    real: Tensor,
    synthetic_by_cluster: Mapping[str, Tensor] | Sequence[Tensor],
    image_shape: tuple[int, int] | None,
    path: Path | str,
    *,
    per_row: int = 8,
) -> Path:
    """Real records beside samples of each cluster, one cluster a row (Fig. 3 of Acs et al. 2017).

    Without an image shape the share of ones of each feature is compared instead: real against synthetic.
    The real records are shown as they are: give records that may be shown.

    Arguments:
        real: records, values in [0, 1], shape (n, d).
        synthetic_by_cluster: samples (m_c, d) of each cluster, by label or in order; empty ones are left blank.
        image_shape: (height, width) with height * width = d, or None.
        path: file to write; its suffix chooses the format (.png, .pdf, .svg).
        per_row: samples shown of each cluster.

    Raises:
        ValueError: if there is nothing to show or the shapes do not agree.
    """
    if not isinstance(synthetic_by_cluster, Mapping):
        synthetic_by_cluster = {f"cluster {c}": samples for c, samples in enumerate(synthetic_by_cluster)}
    _require_samples(real, synthetic_by_cluster, image_shape)
    if per_row < 1:
        raise ValueError(f"per_row is {per_row}: it must be >= 1")
    if image_shape is None:
        return save_figure(_marginals_figure(real, synthetic_by_cluster), path)
    return save_figure(_images_figure(real, synthetic_by_cluster, image_shape, per_row), path)


def _images_figure(real: Tensor, clusters: Mapping[str, Tensor], image_shape: tuple[int, int], per_row: int) -> "Figure":
    rows, (height, width) = len(clusters), image_shape
    figure = new_figure(2 * 0.45 * per_row + 1.6, max(0.45 * rows * height / width, 0.45) + 0.5)
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    real_rows = [real[row * per_row : (row + 1) * per_row] for row in range(rows)]
    titles = ("real", "synthetic")
    for axes, parts, title in zip((left, right), (real_rows, list(clusters.values())), titles):
        axes.imshow(_tiles(parts, image_shape, per_row), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axes.set(title=title, xticks=[], yticks=[])
    right.set_yticks([(row + 0.5) * (height + 1) - 0.5 for row in range(rows)], labels=list(clusters), fontsize=7)
    right.tick_params(length=0)
    return figure


def _tiles(parts: Sequence[Tensor], image_shape: tuple[int, int], per_row: int) -> Any:
    height, width = image_shape
    sheet = torch.full((len(parts) * (height + 1), per_row * (width + 1)), 0.25)
    for row, part in enumerate(parts):
        for column, image in enumerate(part[:per_row]):
            top, left = row * (height + 1), column * (width + 1)
            sheet[top : top + height, left : left + width] = image.float().cpu().reshape(height, width)
    return sheet.numpy()


def _marginals_figure(real: Tensor, clusters: Mapping[str, Tensor]) -> "Figure":
    figure = new_figure(4.5, 4.5)
    axes = figure.add_subplot()
    synthetic = torch.cat([samples.float().cpu() for samples in clusters.values() if len(samples)])
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    axes.scatter(real.float().cpu().mean(0).numpy(), synthetic.mean(0).numpy(), s=8, alpha=0.6)
    axes.set(xlabel="share of ones, real", ylabel="share of ones, synthetic", title=f"{real.shape[1]} features")
    return figure


def _require_samples(real: Tensor, clusters: Mapping[str, Tensor], image_shape: tuple[int, int] | None) -> None:
    if real.ndim != 2 or real.numel() == 0:
        raise ValueError(f"real has shape {tuple(real.shape)}: it must be (records, features), both at least 1")
    if not any(len(samples) for samples in clusters.values()):
        raise ValueError(f"synthetic_by_cluster has {len(clusters)} clusters and no sample: at least one is needed")
    for name, samples in clusters.items():
        if samples.ndim != 2 or samples.shape[1] != real.shape[1]:
            raise ValueError(f"samples of {name} have shape {tuple(samples.shape)}: they must be (m, {real.shape[1]})")
    if image_shape is not None and image_shape[0] * image_shape[1] != real.shape[1]:
        raise ValueError(f"image_shape is {image_shape}: it must have {real.shape[1]} pixels, the features of a record")
