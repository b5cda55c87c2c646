"""Pictures of people and their rows, beside others: how many rows, what follows what, associations across the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from dpgen.figures import new_figure
from dpgen.metrics import associations
from dpgen.systems.relational.sums import Integers, Reals
from dpgen.values import as_numbers, times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_GROUPS = 12
"""Of a column, by the private values, beside gaps and all others."""
_READ = 0.9  # of the values of a column, from which on it holds numbers, or dates

_MOST_COLUMNS = 12  # of a table, in a heat map
_PEOPLE = 5  # whose rows are shown
_SIDE = 4.4  # inches of a panel


@dataclass(frozen=True, eq=False)
class LinkedFrames:
    """People and their rows, those of a person one after the other in order.

    Arguments:
        people: columns of people.
        rows: columns of rows.
        starts: (n + 1,) where the rows of each person begin.
        order: column of the order, if any.
    """

    people: pd.DataFrame
    rows: pd.DataFrame
    starts: Integers
    order: str | None

    @property
    def owner(self) -> Integers:
        """Whose each row is."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


def rows_per_person(parts: Mapping[str, LinkedFrames]) -> Figure:
    """Shares of people with each number of rows."""
    counts = {label: np.bincount(np.diff(part.starts)) for label, part in parts.items()}
    figure, width = new_figure(6.4, 3.2), 0.8 / len(parts)
    axes = figure.add_subplot()
    for place, (label, found) in enumerate(counts.items()):
        axes.bar(np.arange(len(found)) + place * width, found / max(1, found.sum()), width, label=label)
    axes.set(xlabel="rows of a person", ylabel="share of people")
    axes.legend()
    return figure


def transitions(parts: Mapping[str, LinkedFrames]) -> Figure:
    """What the next row holds, given the row before: of the first column of texts, else of the first one."""
    first = next(iter(parts.values()))
    texts = [name for name in first.rows if name != first.order and first.rows[name].dtype.kind not in "iufbM"]
    column = str((texts or list(first.rows))[0])
    named = first.rows[column].dropna().astype(str).value_counts().index[:MOST_GROUPS]
    panels = {}
    for label, part in parts.items():
        codes = pd.Index(named).get_indexer(pd.Index(column_of(part.rows, column).astype(str)))
        before = np.flatnonzero(np.diff(part.owner) == 0)
        pairs = codes[before], codes[before + 1]
        known = (pairs[0] >= 0) & (pairs[1] >= 0)
        table = np.zeros((len(named), len(named)))
        np.add.at(table, (pairs[0][known], pairs[1][known]), 1.0)
        panels[label] = table / np.maximum(table.sum(1, keepdims=True), 1.0)
    names = [str(name) for name in named]
    return _heat_maps(panels, names, names, (f"{column} of the next row", column), "share of the next rows")


def associations_across(parts: Mapping[str, LinkedFrames]) -> Figure:
    """Association (Cramer's V) of each column of people, and of the number of rows, with each column of rows."""
    first = next(iter(parts.values()))
    people, rows = ([str(name) for name in list(frame)[:_MOST_COLUMNS]] for frame in (first.people, first.rows))
    groups = [[groups_of(frame[name]) for name in names] for frame, names in ((first.people, people), (first.rows, rows))]
    panels = {}
    for label, part in parts.items():
        codes = [code(column_of(part.people, name))[part.owner] for name, (code, _) in zip(people, groups[0])]
        codes += [np.diff(part.starts)[part.owner]]
        codes += [code(column_of(part.rows, name)) for name, (code, _) in zip(rows, groups[1])]
        found = (
            associations(torch.from_numpy(np.stack(codes, 1))) if len(part.rows) > 1 else torch.zeros(len(codes), len(codes))
        )
        panels[label] = found[: len(people) + 1, len(people) + 1 :].numpy()
    return _heat_maps(panels, [*people, "number of rows"], rows, ("rows", "people"), "Cram\u00e9r's V")


def timelines(part: LinkedFrames) -> Figure:
    """The rows of five people along time, or their number: what the first column of texts holds."""
    figure, texts = new_figure(6.4, 3.2), [name for name in part.rows if part.rows[name].dtype.kind not in "iufbM"]
    axes = figure.add_subplot()
    able = np.flatnonzero(np.diff(part.starts) > 1)[:_PEOPLE]
    for line, person in enumerate(able):
        own = part.rows.iloc[part.starts[person] : part.starts[person + 1]]
        at = np.arange(len(own)) if part.order is None else own[part.order].to_numpy()
        axes.plot(at, np.full(len(own), line), "o-", markersize=4, linewidth=0.8)
        for x, text in zip(at, own[texts[0]] if texts else ()):
            axes.annotate(str(text)[:12], (x, line), rotation=30, fontsize=6, xytext=(2, 4), textcoords="offset points")
    axes.set_yticks(range(len(able)), labels=[f"person {i + 1}" for i in range(len(able))], fontsize=7)
    axes.set(xlabel=part.order or "row", ylim=(-0.5, len(able)))
    axes.tick_params(axis="x", labelsize=7)
    return figure


PICTURES: Mapping[str, Callable[[Mapping[str, LinkedFrames]], Figure]] = {
    "rows_per_person": rows_per_person,
    "transitions": transitions,
    "associations_across": associations_across,
}
"""Pictures of one or more data sets beside each other."""


def _heat_maps(
    panels: Mapping[str, Reals], rows: list[str], columns: list[str], axes_names: tuple[str, str], label: str
) -> Figure:
    figure = new_figure(_SIDE * len(panels) + 0.6, _SIDE)
    for place, (title, values) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), place + 1)
        image = axes.imshow(values, cmap="viridis", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.set_title(title, fontsize=9)
        axes.set_xticks(range(len(columns)), labels=[name[:18] for name in columns], rotation=90, fontsize=7)
        axes.set_yticks(range(len(rows)), labels=[name[:18] for name in rows] if not place else [], fontsize=7)
        axes.set(xlabel=axes_names[0], ylabel=axes_names[1] if not place else "")
        figure.colorbar(image, ax=axes, shrink=0.6, label=label)
    return figure


def column_of(table: pd.DataFrame, name: str) -> pd.Series:
    """A column of a table; gaps where a release left it out."""
    return table[name] if name in table else pd.Series(None, index=table.index, dtype=object)


def groups_of(private: pd.Series) -> tuple[Callable[[pd.Series], Integers], int]:
    """How values of a column become groups, by its private values, and how many there are; gaps are the last one."""
    for read in (as_numbers, times) if private.dtype.kind not in "bM" else (times,) if private.dtype.kind == "M" else ():
        values = np.asarray(read(private), np.float64)
        if np.isfinite(values).sum() >= _READ * private.notna().sum() > 0:
            edges = np.unique(np.nanquantile(values, np.linspace(0, 1, MOST_GROUPS + 1)[1:-1]))

            def numbered(column: pd.Series, read: Any = read, edges: Any = edges) -> Integers:
                found = np.asarray(read(column), np.float64)
                return np.where(np.isnan(found), len(edges) + 1, np.searchsorted(edges, found, side="right"))

            return numbered, len(edges) + 2
    named = private.dropna().astype(str).value_counts().index[: MOST_GROUPS - 1]

    def listed(column: pd.Series) -> Integers:
        place = pd.Index(named).get_indexer(pd.Index(column.astype(str)))
        return np.where(column.isna(), len(named) + 1, np.where(place < 0, len(named), place))

    return listed, len(named) + 2
