"""What figures say: titles, and names on both axes."""

from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def texts(figure: Figure, axis: str) -> str:
    """Titles of a figure, or its label for all panels."""
    return figure.get_suptitle() if axis == "title" else getattr(figure, f"get_sup{axis}label")()


def unlabelled(figure: Figure, *, titled: bool = False) -> list[str]:
    """What a reader of the figure misses; sheets of images need a title alone, and panels that share an axis one label."""
    found = []
    for axes in (axes for axes in figure.axes if axes.axison):
        if axes.get_label() == "<colorbar>":
            found += [] if axes.get_xlabel() or axes.get_ylabel() else ["label of the colours"]
            continue
        found += [] if titled or axes.get_title() or texts(figure, "title") else ["title"]
        if axes.images and not len(axes.get_xticks()):
            continue
        for axis, together in (("x", axes.get_shared_x_axes()), ("y", axes.get_shared_y_axes())):
            shared: list[Axes] = together.get_siblings(axes)
            named = texts(figure, axis) or any(getattr(panel, f"get_{axis}label")() for panel in shared)
            found += [] if named else [f"{axis} label"]
    return found


def saved_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """A list that all figures join when they are written."""
    found: list[Figure] = []
    write = Figure.savefig

    def savefig(figure: Figure, *arguments: Any, **options: Any) -> None:
        found.append(figure)
        write(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return found
