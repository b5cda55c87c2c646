"""Figures as files: drawn without a display or global state, written whole or not at all."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from dpgen.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of width x height inches that needs no display."""
    # A figure of its own with the Agg canvas: pyplot's global state and back ends are never touched.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: "Figure", path: Path | str) -> Path:
    """Write a figure, whole or not at all; the suffix of the path chooses the format.

    Raises:
        ValueError: an unknown suffix; the message lists the known ones.
    """
    from matplotlib.text import Text

    suffix = Path(path).suffix.lstrip(".").lower()
    choices = figure.canvas.get_supported_filetypes()
    if suffix not in choices:
        raise ValueError(f"path is {str(path)!r}: its suffix must be one of {', '.join(sorted(choices))}")
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a column may be called "$_$"
    content = BytesIO()
    figure.savefig(content, format=suffix, dpi=150)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), content.getvalue())
    return Path(path)
