"""Figures as files or inline: drawn without a display or global state, written whole or not at all."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgen.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of width x height inches that needs no display."""
    # A figure of its own with the Agg canvas: pyplot's global state and back ends are never touched.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: "Figure", path: Path | str) -> Path:
    """Write a figure, whole or not at all; the suffix of the path chooses the format."""
    suffix = Path(path).suffix.lstrip(".").lower()
    choices = figure.canvas.get_supported_filetypes()
    if suffix not in choices:
        raise ValueError(f"path is {str(path)!r}: its suffix must be one of {', '.join(sorted(choices))}")
    _literal_names(figure)
    content = BytesIO()
    figure.savefig(content, format=suffix, dpi=150)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), content.getvalue())
    return Path(path)


def save_drawn(draw: "Callable[[], Figure]", path: Path) -> None:
    """Write a figure that is drawn for it."""
    save_figure(draw(), path)


def _literal_names(figure: "Figure") -> None:
    """Show text as it is: a column may be called "$_$"; the powers of logarithmic axes stay formulas."""
    from matplotlib.axis import Axis
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter

    ours = [axis for axis in figure.findobj(Axis) if isinstance(axis.get_major_formatter(), LogFormatter)]
    powers = {label for axis in ours for label in axis.get_ticklabels(which="both")}
    for text in figure.findobj(Text):
        text.set_parse_math(text in powers)


def inline_svg(figure: "Figure", name: str) -> str:
    """The figure as an `<svg>` element for a page: it scales with its column, asks for nothing outside, and has text as text.

    Identifiers inside begin with `name`, a word.

    >>> svg = inline_svg(new_figure(2.0, 1.0), "empty")
    >>> svg.startswith("<svg"), "width=" in svg[: svg.index(">")], 'id="empty-figure_1"' in svg
    (True, False, True)
    """
    from matplotlib import rc_context

    _literal_names(figure)
    content = BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's browser has fonts of its own
        figure.savefig(content, format="svg", dpi=100, metadata={"Date": None})
    text = content.getvalue().decode()
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    head, rest = text.split(">", 1)
    return re.sub(r' (?:width|height)="[^"]*"', "", head) + ">" + rest


def heat_maps(
    panels: "Mapping[str, Any]",
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    axes_names: tuple[str, str],
    label: str,
    side: float,
    styles: "Mapping[str, tuple[str, float, float]] | None" = None,
) -> "Figure":
    """Matrices (rows, columns) beside each other by title; `styles`: colours and limits, without them viridis from 0 to 1."""
    figure, first = new_figure(side * len(panels) + 0.6 * (len(panels) > 1), side), None
    for place, (title, values) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), place + 1, sharey=first)
        first = first or axes
        colours, low, high = (styles or {}).get(title, ("viridis", 0.0, 1.0))
        image = axes.imshow(values, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
        axes.set_title(title, fontsize=9)
        axes.set_xticks(range(len(columns)), labels=[name[:28] for name in columns], rotation=90, fontsize=7)
        axes.set_yticks(range(len(rows)), labels=[name[:28] for name in rows], fontsize=7)
        axes.tick_params(axis="y", labelleft=not place)
        axes.set(xlabel=axes_names[0], ylabel=axes_names[1] if not place else "")
        figure.colorbar(image, ax=axes, shrink=0.6, label=label)
    return figure


def show_images(axes: "Axes", rows: Sequence["Tensor"], image_shape: tuple[int, ...], per_row: int) -> None:
    """One sheet of images: a row of at most `per_row` of them for each of the rows (n, d), with values in [0, 1].

    `image_shape` is (height, width) of records, whose ones are ink, or (height, width, channels) of images.
    """
    import torch

    height, width, *channels = image_shape
    gap = 1.0 if channels else 0.25
    sheet = torch.full((len(rows) * (height + 1), per_row * (width + 1), *channels), gap)
    for row, part in enumerate(rows):
        for column, image in enumerate(part[:per_row]):
            top, left = row * (height + 1), column * (width + 1)
            sheet[top : top + height, left : left + width] = image.float().cpu().reshape(image_shape)
    if channels == [1]:
        sheet = sheet[:, :, 0]
    axes.imshow(sheet.numpy(), cmap="gray" if channels else "gray_r", vmin=0, vmax=1, interpolation="nearest")
