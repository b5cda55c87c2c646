"""Evaluation of people and their rows: tables of two columns within people, within rows and across, beside no link at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpgen.data.linked import LinkedTables
from dpgen.evaluation.scores import Evaluation, Score
from dpgen.progress import report
from dpgen.systems.relational.sums import SPANS, Histories, Integers, Shape, instances
from dpgen.systems.tables.marginals import Coarsening

NAMED = {
    "people": "error of people's pairs of columns (total variation)",
    "both": "error of pairs of a person and a row",
    "row": "error of pairs in a row",
    "pair": "error of pairs of two rows of a person",
    "next": "error of pairs of successive rows",
}
NO_LINK = "rows dealt to people at random"
MOST_GROUPS = 12
"""Of a column, by the shares of the private data."""

_MOST = 20_000


def evaluate(release: Any, data: LinkedTables, *, seed: int) -> Evaluation:
    """Mean total variation distance of tables of two columns, where every row counts once, beside held-out people.

    Private people are the measure. Where there are no people for evaluation, nothing stands for real data. The plain baseline
    has the private rows without noise, dealt to people at random: it knows all but whose a row is.
    """
    report(0.0, "sample")
    samples = release.samples(max(1, min(release.size, _MOST)), random_state=seed)
    released: dict[str, Callable[[], bytes]] = {
        f"synthetic/{name}": partial(bytes, made) for name, made in samples.package().items()
    }
    if data.n < 4 or not len(data.rows):
        return Evaluation([], released=released)
    report(0.3, "evaluate")
    shape, coded = coder(release.schemas, data)
    private, synthetic = coded(data), coded(data.alike(samples.restored()))
    held = {} if data.test is None else errors(private, coded(data.test), shape)
    found, dealt = errors(private, synthetic, shape), errors(private, without_link(private, seed), shape)
    scores = [
        Score(text, found[kind], real=held.get(kind), chance=dealt[kind], better="lower", baseline=NO_LINK)
        for kind, text in NAMED.items()
        if kind in found
    ]
    return Evaluation(scores, released=released)


def unscored(release: Any, *, seed: int) -> Evaluation:
    """The synthetic tables alone."""
    samples = release.samples(max(1, min(release.size, _MOST)), random_state=seed)
    return Evaluation([], released={f"synthetic/{name}": partial(bytes, made) for name, made in samples.package().items()})


def coder(schemas: Any, data: LinkedTables) -> tuple[Shape, Callable[[LinkedTables], Histories]]:
    """The shape of tables in at most 12 groups of a column, by the private data, and how linked tables become its codes."""
    people, rows = schemas
    names = rows.domain.names
    spans = [data.spans.get(name, "all") for name in names]
    order = [c for span in SPANS for c, own in enumerate(spans) if own == span]

    def codes(part: LinkedTables) -> tuple[Integers, Integers]:
        found = [np.asarray(schema.encode(schema.cleaned(frame))) for schema, frame in zip(schemas, (part.people, part.rows))]
        return found[0], found[1][:, order]

    coarse = []
    for schema, found, chosen in zip(schemas, codes(data), (range(len(people.domain.names)), order)):
        domain = schema.domain
        shares = [np.bincount(found[:, i], minlength=domain.sizes[c]) + 1e-3 for i, c in enumerate(chosen)]
        flags = {name: [getattr(domain, name)[c] for c in chosen] for name in ("ordered", "missing")}
        coarse.append(Coarsening.of([share / share.sum() for share in shares], MOST_GROUPS, **flags))
    counts = Coarsening.full(people.domain.sizes)
    kept = (*coarse[0].groups[:-1], counts.groups[-1]), (*coarse[0].sizes[:-1], counts.sizes[-1])
    coarse[0] = Coarsening(*kept)
    shape = Shape(coarse[0].sizes, coarse[1].sizes, tuple(spans[c] for c in order), data.most)

    def coded(part: LinkedTables) -> Histories:
        both = [own.apply(found).T for own, found in zip(coarse, codes(part))]
        return Histories(both[0], both[1], part.starts)

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
