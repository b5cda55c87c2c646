"""Figures as files: drawn without a display or global state, written whole or not at all."""

from collections.abc import Mapping, Sequence
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
    from matplotlib.axis import Axis
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter

    suffix = Path(path).suffix.lstrip(".").lower()
    choices = figure.canvas.get_supported_filetypes()
    if suffix not in choices:
        raise ValueError(f"path is {str(path)!r}: its suffix must be one of {', '.join(sorted(choices))}")
    ours = [axis for axis in figure.findobj(Axis) if isinstance(axis.get_major_formatter(), LogFormatter)]
    powers = {label for axis in ours for label in axis.get_ticklabels(which="both")}
    for text in figure.findobj(Text):
        text.set_parse_math(text in powers)  # a column may be called "$_$"
    content = BytesIO()
    figure.savefig(content, format=suffix, dpi=150)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), content.getvalue())
    return Path(path)


def epsilon_figure(epochs: Sequence[float], epsilons: Mapping[str, Sequence[float]], path: Path | str, *, delta: float) -> Path:
    """Epsilon spent after each epoch, one line for each accountant or setting (Fig. 2 of Acs et al. 2017).

    Raises:
        ValueError: if a line has another length than ``epochs``.
    """
    for name, values in epsilons.items():
        if len(values) != len(epochs):
            raise ValueError(f"epsilons[{name!r}] has length {len(values)}, epochs has length {len(epochs)}")
    figure = new_figure(5.0, 3.5)
    axes = figure.add_subplot()
    for name, values in epsilons.items():
        axes.plot(epochs, values, marker="o", markersize=2, label=name)
    axes.set(xlabel="epoch", ylabel=f"epsilon (delta = {delta:g})", ylim=(0, None))
    if epsilons:
        axes.legend(frameon=False)
    return save_figure(figure, path)
