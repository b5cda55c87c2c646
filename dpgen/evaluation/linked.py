"""Evaluation of people and their rows: tables of two columns within people, within rows and across, beside no link at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from dpgen.data.linked import LinkedTables, load_linked
from dpgen.data.packages import PACKAGE, linked_package
from dpgen.data.table_files import read_table
from dpgen.evaluation.compare import HELD_OUT
from dpgen.evaluation.scores import Evaluation, Score
from dpgen.figures import heat_maps, new_figure, save_drawn
from dpgen.metrics import associations
from dpgen.progress import report
from dpgen.systems.relational.sums import SPANS, Histories, Integers, Shape, instances
from dpgen.values import as_numbers, times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMED = {
    "people": "error of people's pairs of columns (total variation)",
    "both": "error of pairs of a person and a row",
    "row": "error of pairs in a row",
    "pair": "error of pairs of two rows of a person",
    "next": "error of pairs of successive rows",
}
NO_LINK = "rows dealt to people at random"
_MOST = 20_000


def evaluate(release: Any, data: LinkedTables, *, seed: int) -> Evaluation:
    """Mean total variation distance of tables of two columns, where every row counts once, beside held-out people.

    Private people are the measure. Where there are no people for evaluation, nothing stands for real data. The plain baseline
    has the private rows without noise, dealt to people at random: it knows all but whose a row is. Without a synthetic row
    there is nothing to compare.
    """
    report(0.0, "sample")
    samples = release.samples(max(1, min(release.size, _MOST)), random_state=seed)
    released: dict[str, Callable[[], bytes]] = {
        f"synthetic/{name}": partial(bytes, content) for name, content in samples.package().items()
    }
    data = data.bounded(release.shown["most"]) if data.buys_most else data
    if data.n > _MOST or not isinstance(data.rows, pd.DataFrame):
        data = data.some(np.random.default_rng(seed).permutation(data.n) < _MOST)
    if data.n < 4 or not data.starts[-1] or not len(samples.tables[data.names["tables"][-1]]):
        return Evaluation([], released=released)
    report(0.3, "evaluate")
    made = data.alike(samples.restored())
    pictures = {name: partial(save_drawn, draw) for name, draw in drawn({"private": data, "synthetic": made}).items()}
    return Evaluation(_scored(data, made, seed), released=released, pictures=pictures)


def compared(real: Path, synthetic: Path, *, seed: int) -> list[Score]:
    """Scores of the Data Package of one synthetic pair of tables against a real one, of which people are held out."""
    data = load_linked(path=str(real), test_fraction=HELD_OUT)
    *files, person, _ = linked_package(synthetic / PACKAGE if synthetic.is_dir() else synthetic)
    if person != data.names["person"]:
        raise ValueError(f"{synthetic} links by {person!r}; it must be {data.names['person']!r}, as in {real}")
    return _scored(data, data.alike({name: read_table(file) for name, file in zip(data.names["tables"], files)}), seed)


def _scored(data: LinkedTables, made: LinkedTables, seed: int) -> list[Score]:
    shape, coded = coder(data)
    private, synthetic = coded(data), coded(made)
    held = {} if data.test is None else errors(private, coded(data.test), shape)
    found, dealt = errors(private, synthetic, shape), errors(private, without_link(private, seed), shape)
    return [
        Score(text, found[kind], real=held.get(kind), chance=dealt[kind], better="lower", baseline=NO_LINK)
        for kind, text in NAMED.items()
        if kind in found
    ]


def drawn(parts: Mapping[str, LinkedTables]) -> Mapping[str, Callable[[], Any]]:
    """Pictures of people and their rows side by side, by the names of their files; made when they are called."""
    shown = {
        label: LinkedFrames(data.people.iloc[:, :-1], data.frame, data.starts, data.names["order"])
        for label, data in parts.items()
    }
    return {f"{name}.png": partial(draw, shown) for name, draw in PICTURES.items()}


def unscored(release: Any, *, seed: int) -> Evaluation:
    """The synthetic tables alone."""
    samples = release.samples(max(1, min(release.size, _MOST)), random_state=seed)
    return Evaluation([], released={f"synthetic/{name}": partial(bytes, made) for name, made in samples.package().items()})


def coder(data: LinkedTables) -> tuple[Shape, Callable[[LinkedTables], Histories]]:
    """The shape of tables in at most 12 groups of values of each column, and how linked tables become codes of it.

    Groups are quantiles of the private numbers and dates, and the most frequent other values, whatever codes a model has.
    """
    spans = {name: data.spans.get(name, "all") for name in data.frame}
    order = [name for span in SPANS for name, own in spans.items() if own == span]
    *columns, count = data.people
    groups = [[groups_of(frame[name]) for name in names] for frame, names in ((data.people, columns), (data.frame, order))]
    people = (*(size for _, size in groups[0]), data.most + 1 - data.least)
    shape = Shape(people, tuple(size for _, size in groups[1]), tuple(spans[name] for name in order), data.most)

    def coded(part: LinkedTables) -> Histories:
        own = [code(column_of(part.people, name)) for name, (code, _) in zip(columns, groups[0])]
        numbers = np.clip(part.people[count].to_numpy(np.int64) - data.least, 0, people[-1] - 1)
        rows = [code(column_of(part.frame, name)) for name, (code, _) in zip(order, groups[1])]
        return Histories(np.stack([*own, numbers], 1), np.stack(rows, 1), part.starts)

    return shape, coded


def errors(real: Histories, other: Histories, shape: Shape) -> Mapping[str, float]:
    """Mean total variation distance of all tables of two columns of each kind, where every instance counts once."""
    found: dict[str, list[float]] = {}
    for block in shape.blocks:
        kind, left, right = block
        if kind not in NAMED:
            continue
        both = [instances(data, shape, block) for data in (real, other)]
        sizes = shape.sizes(left), shape.sizes(right)
        same = kind in ("people", "row") and left == right
        for i, size in enumerate(sizes[0]):
            for j in range(i + 1 if same else 0, len(sizes[1])):
                cells = [np.bincount(x.left[:, i] * sizes[1][j] + x.right[:, j], minlength=size * sizes[1][j]) for x in both]
                laws = [cell / max(1, cell.sum()) for cell in cells]
                found.setdefault(kind, []).append(0.5 * float(np.abs(laws[0] - laws[1]).sum()))
    return {kind: float(np.mean(values)) for kind, values in found.items()}


def without_link(data: Histories, seed: int) -> Histories:
    """The same people and rows, each row at a random place."""
    return replace(data, rows=np.random.default_rng(seed).permutation(data.rows))


MOST_GROUPS = 12
"""Of a column, by the private values, beside gaps and all others."""
_READ = 0.9  # of the values of a column, from which on it holds numbers, or dates

_MOST_COLUMNS = 12  # of a table, in a heat map
_PEOPLE = 5  # whose rows are shown
_SIDE = 4.4  # inches of a panel


@dataclass(frozen=True, eq=False)
class LinkedFrames:
    """People and their rows, those of a person one after the other in order.

    `starts` (n + 1,) are where the rows of each person begin, `order` is the column of the order, if any.
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
    axes = f"{column} of the next row", column
    return heat_maps(panels, names, names, axes_names=axes, label="share of the next rows", side=_SIDE)


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
    people = [*people, "number of rows"]
    return heat_maps(panels, people, rows, axes_names=("rows", "people"), label="Cram\u00e9r's V", side=_SIDE)


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
