"""Evaluation of people and their rows: tables of two columns within people, within rows and across, beside no link at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpgen.data.linked import LinkedTables, load_linked
from dpgen.data.packages import PACKAGE, linked_package
from dpgen.data.table_files import read_table
from dpgen.evaluation.compare import HELD_OUT
from dpgen.evaluation.linked_pictures import PICTURES, LinkedFrames, column_of, groups_of
from dpgen.evaluation.scores import Evaluation, Score
from dpgen.figures import save_figure
from dpgen.progress import report
from dpgen.systems.relational.sums import SPANS, Histories, Shape, instances

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
    pictures = {name: partial(_saved, draw) for name, draw in drawn({"private": data, "synthetic": made}).items()}
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


def _saved(draw: Callable[[], Any], path: Path) -> None:
    save_figure(draw(), path)


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
