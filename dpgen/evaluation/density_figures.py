"""Pictures of densities: curves in one dimension, panels in two."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dpgen.figures import new_figure, save_figure
from dpgen.metrics.densities import Quadrature

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PER_ROW = 8
_SHADES = 12


def densities_figure(
    densities: Mapping[str, Tensor],
    rule: Quadrature,
    path: Path,
    *,
    points: Tensor | None = None,
    per_row: int = _PER_ROW,
    title: str = "",
) -> Path:
    """Log densities (m,) at the nodes of a rule, by name: one set of axes in 1-D, a panel each in 2-D.

    Arguments:
        densities: in the order to be shown.
        rule: where they were evaluated.
        path: file to write.
        points: (n, d) drawn over them: ticks at the foot in 1-D, dots in the last panel in 2-D.
        per_row: panels in a row.
        title: of the whole picture.

    Raises:
        ValueError: nothing to show.
    """
    if not densities:
        raise ValueError("densities is empty: there is nothing to show")
    if len(rule.bounds) == 1:
        return _curves(densities, rule, path, points, title)
    rows, columns = math.ceil(len(densities) / per_row), min(len(densities), per_row)
    figure = new_figure(1.9 * columns, 2.1 * rows + (0.3 if title else 0.0))
    if title:
        figure.suptitle(title, fontsize=8)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, (name, log_density) in zip(panels, densities.items()):
        show_density(panel, log_density, rule)
        panel.set_title(name, fontsize=8)
    for panel in panels[len(densities) :]:
        panel.set_axis_off()
    if points is not None:
        last = panels[len(densities) - 1]
        last.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=6, color="tab:red", linewidths=0)
    return save_figure(figure, path)


def show_density(axes: "Axes", log_density: Tensor, rule: Quadrature) -> None:
    """A density on the plane, each panel with its own scale of shades."""
    across, up = (axis.numpy() for axis in rule.axes)
    shape = (rule.per_axis, rule.per_axis)
    axes.contourf(across, up, log_density.exp().reshape(shape).T.numpy(), levels=_SHADES, cmap="viridis")
    axes.set(xticks=[], yticks=[], aspect="equal")


def _curves(densities: Mapping[str, Tensor], rule: Quadrature, path: Path, points: Tensor | None, title: str) -> Path:
    figure = new_figure(6.0, 3.8)
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=8)
    nodes, shown = rule.axes[0], torch.zeros(rule.per_axis, dtype=torch.bool)
    for number, (name, log_density) in enumerate(densities.items()):
        density = log_density.exp()
        axes.plot(nodes.numpy(), density.numpy(), label=name, color="black" if number == 0 else None, linewidth=1.2)
        shown |= density > 1e-3 * density.max()
    if points is not None:
        axes.plot(points[:, 0].numpy(), torch.zeros(len(points)).numpy(), "|", color="tab:red", markersize=12, label="draws")
    axes.set(xlim=(float(nodes[shown].min()), float(nodes[shown].max())), ylim=(0, None), ylabel="density")
    axes.legend(frameon=False, fontsize=7)
    return save_figure(figure, path)


def lines_figure(
    panels: Mapping[str, Mapping[str, tuple[list[float], list[float], list[float]]]], path: Path, *, xlabel: str
) -> Path:
    """A panel for each measure with a line for each method: x, mean and standard deviation, which is shown as a band.

    The horizontal axis is logarithmic.

    Raises:
        ValueError: nothing to show.
    """
    if not panels:
        raise ValueError("panels is empty: there is nothing to show")
    from matplotlib.ticker import LogLocator

    figure = new_figure(3.6 * len(panels), 3.2)
    for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items()):
        for name, (x, mean, std) in lines.items():
            finite = [i for i, value in enumerate(mean) if math.isfinite(value)]
            along, middle = [x[i] for i in finite], [mean[i] for i in finite]
            (line,) = axes.plot(along, middle, marker="o", markersize=2.5, linewidth=1.2, label=name)
            low, high = ([mean[i] + sign * std[i] for i in finite] for sign in (-1, 1))
            axes.fill_between(along, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.set(title=title, xlabel=xlabel, xscale="log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.legend(frameon=False, fontsize=6)
    return save_figure(figure, path)
