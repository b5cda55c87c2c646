"""Every system on neighbouring files: no release moves by more than was charged; and the faults that this rejects."""

from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import pandas as pd
import pytest
import torch
from conformance import RELATIONS
from replay import Tape, compare, recorded
from torch.utils.data import TensorDataset

import dpgen
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.registry import SYSTEMS

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Kind:
    """Rows of one kind of data: common ones, two that are as different as can be, one with a gap; and how they are read.

    Arguments:
        missing: what becomes of rows with a gap; None: their gaps stay.
    """

    types: dict[str, str]
    common: Rows
    high: tuple[Any, ...]
    low: tuple[Any, ...]
    gap: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    missing: str | None = "drop"

    def own(self, what: str, m: int) -> Rows:
        """The rows of the unit that differs."""
        alike = {"nobody": [], "high": [self.high] * m, "low": [self.low] * m, "same": self.common[-1:]}
        return {**alike, "gap": [self.high] * (m - 1) + [self.gap], "crowd": [self.low, self.high] * m}[what]

    def data(self, what: str, m: int, *, gaps: bool, names: bool) -> Any:
        """A person with a gap, common ones with up to m rows, and who differs: last, but for a row of a common person."""
        who = [("gap", self.gap)] * gaps + [(f"p{i // m}", row) for i, row in enumerate(self.common)]
        end = len(who) - (names and len(who) > 1)
        people, rows = zip(*who[:end], *(("last", row) for row in self.own(what, m)), *who[end:])
        table = pd.DataFrame(rows, columns=list(self.types)).astype(self.types)
        return table.assign(who=people) if names else table


class Pictures(Kind):
    """Images of one colour."""

    def data(self, what: str, m: int, *, gaps: bool, names: bool) -> Any:
        rows = [*self.common, *self.own(what, m)]
        colours = torch.tensor([row[:3] for row in rows], dtype=torch.uint8)
        return TensorDataset(colours[:, None, None].repeat(1, 4, 4, 1), torch.tensor([row[3] for row in rows]))


BITS = Kind(
    dict.fromkeys("abcdy", "Int64"),
    [tuple(int(c) for c in f"{5 * i % 16:04b}{i % 2}") for i in range(11)],
    (1, 1, 1, 1, 1), (0, 0, 0, 0, 0), (1, None, 1, 1, 1), {"label_column": "y"},
)  # fmt: skip
CLASSES = replace(BITS, gap=(1, 0, 1, 1, None), missing="category")
COLOURS = Pictures(
    {}, [(20 * i, 255 - 20 * i, 7 * i, i % 2) for i in range(11)], (255, 255, 0, 1), (0, 0, 0, 0), (), {"epsilon": 30.0}
)
POINTS = Kind(
    dict.fromkeys("uv", "float64"),
    [(i / 12, 5 * i % 12 / 12) for i in range(11)],
    (1.0, 1.0), (0.0, 0.0), (None, 0.5), {"bounds": [[0, 1], [0, 1]]},
)  # fmt: skip
ANY = replace(POINTS, common=[])
NUMBERS = Kind({"x": "Int64"}, [(7 * i % 16,) for i in range(11)], (0,), (15,), (None,), {"low": 0, "high": 15})
CLAMPED = replace(NUMBERS, high=(-9,), options=NUMBERS.options | {"out_of_range": "clamp"})
NAMES = Kind({"x": "string"}, [("rgb"[i % 3],) for i in range(11)], ("r",), ("g",), (None,), {"categories": [*"rgb"]}, "category")
FIELDS = [
    {"name": "c", "type": "string", "constraints": {"enum": ["r", "g", "b"]}},
    {"name": "k", "type": "integer", "constraints": {"minimum": 0, "maximum": 7}},
    {"name": "s", "type": "boolean"},
]
TABLE = Kind(
    {"c": "string", "k": "Int64", "s": "boolean"},
    [("rgb"[i % 3], 5 * i % 8, i % 2 == 0) for i in range(11)],
    ("r", 7, True), ("g", 0, False), ("b", None, None), {"schema": {"fields": FIELDS}}, None,
)  # fmt: skip
EVENTS = Kind({"item": "string"}, [*"xyzxxyzzyxy"], ("x",), ("y",), (None,), {"user": "who", "category": "item"})

ADDED, REPLACED = RELATIONS
ALL = ((0, True, ADDED), (1, True, REPLACED), (3, True, ADDED), (3, True, REPLACED))
SIZED = ((0, False, REPLACED), (0, True, REPLACED), *ALL[1:])  # where the number of rows matters
FEW = ((0, True, ADDED), (3, True, REPLACED))
RECORDS = ((0, False, ADDED), (0, False, REPLACED))
WHOLE = ((3, True, REPLACED),)


@dataclass(frozen=True)
class Row:
    """A system in one form on one kind of data, for units of m rows (0: a unit each), with gaps or without, under relations."""

    model: str
    kind: Kind
    options: dict[str, Any]
    units: tuple[tuple[int, bool, Relation], ...] = ALL

    def __str__(self) -> str:
        return " ".join([self.model, *(f"{v}" for v in self.options.values() if isinstance(v, str) and v != "cpu")])

    def fit(self, what: str, m: int, gaps: bool, relation: Relation, earlier: Tape | None = None) -> Tape:
        """On the data of one who differs."""
        kind, m, people = self.kind, max(m, 1), m > 0
        known = signature(SYSTEMS[self.model].plan).parameters
        options = {"epsilon": 2.0, **kind.options, **self.options}
        options |= {"relation": relation} if "relation" in known else {}
        options |= {"unit": "who", "rows_per_unit": m} if people and "unit" in known else {}
        options |= {"missing": kind.missing} if gaps and kind.missing else {}
        data = kind.data(what, m, gaps=gaps, names=people and bool({"unit", "prior_epsilon"} & set(known)))
        return recorded(lambda: dpgen.fit(self.model, data, **options), common=-(-len(kind.common) // m), earlier=earlier)

    def shares(self, m: int, gaps: bool, relation: Relation) -> dict[str, float]:
        """By the note of each release, the largest share of its charge that it moved by, over pairs of neighbours."""
        people = m > 0 and "unit" in signature(SYSTEMS[self.model].plan).parameters
        if relation == "add_remove":
            first, others = "nobody", ["high", "crowd"] if m > 1 else ["high", "same", *["gap"] * gaps]
        else:
            first, others = "high", ["low", *["gap"] * gaps, *["nobody"] * people]
        one, found = self.fit(first, m, gaps, relation), dict[str, float]()
        for what in others:
            try:
                shares = compare(one, self.fit(what, m, gaps, relation, one))
            except AssertionError as error:
                raise AssertionError(f"{first} and {what}: {error}") from error
            found |= {note: max(share, found.get(note, 0.0)) for note, share in shares.items()}
        return found


SGD = {"steps": 2, "sampling_rate": 0.5, "hidden": 2, "accelerator": "cpu"}
VAE, GAN = SGD | {"latent": 1}, SGD | {"latent": 1, "fakes": 4}
KMEANS = {"clusters": "kmeans", "k": 2, "n_features": 8, "kmeans_rounds": 2}
ROWS = [
    Row("gaussian", BITS, {}),
    Row("gaussian", BITS, {"clusters": "kmeans", "k": 2}, FEW),
    Row("gaussian", BITS, {"subclusters": 2, "clip": "quantile"}, FEW),
    Row("gaussian", COLOURS, {"frequencies": 4}, RECORDS),
    Row("marginals", BITS, {}),
    Row("marginals", BITS, {"test_fraction": 0.25}, FEW),
    Row("marginals", CLASSES, {}, FEW),
    Row("mwem", BITS, {"domain": "cells", "rounds": 2}, SIZED),
    Row("mwem", BITS, {"domain": "items", "rounds": 2, "queries": 8}, SIZED),
    Row("tables", TABLE, {"method": "mixture", "components": 2, "rounds": 1, "picks": 2}),
    Row("tables", TABLE, {"method": "independent"}, FEW),
    Row("merr", CLAMPED, {"method": "partition", "delta": 1e-6}, SIZED),
    Row("merr", NUMBERS, {"method": "points", "delta": 1e-6, "steps": 3, "epsilon": 10.0}, SIZED),
    Row("merr", NUMBERS, {"method": "laplace"}, SIZED),
    Row("merr", NAMES, {"method": "laplace"}, FEW),
    Row("merr", NUMBERS, {"method": "tree", "delta": 1e-6}, SIZED),
    Row("bernstein", POINTS, {"degree": 4}, FEW),
    Row("dpgm", BITS, VAE, ALL[3:]),
    Row("dpgm", BITS, VAE | KMEANS | {"clipping": "dpnorm"}, ALL[2:3]),
    Row("dpgm", BITS, SGD | {"component": "rbm", "chains": 4}, RECORDS[:1]),
    Row("dpgan", BITS, GAN, RECORDS[1:]),
    Row("dpgan", POINTS, GAN, ALL[2:3]),
    Row("dpgan", COLOURS, GAN, RECORDS[:1]),
    Row("mbde", ANY, {"draws": 2, "steps": 2, "codebook": 8}, WHOLE),
    Row("grid_response", ANY, {"draws": 2, "cells": 3}, WHOLE),
    Row("interval_laplace", ANY, {"draws": 2, "cells": 4}, WHOLE),
    *(Row(name, EVENTS, {"draws": 2}, WHOLE) for name in SYSTEMS if SYSTEMS[name].kinds == ("users",)),
    Row("mollifier", EVENTS, {"draws": 2, "prior": "private", "prior_epsilon": 1.0}, WHOLE),
]
CASES = [pytest.param(row, *unit, id=f"{row}-{unit[0]}-{'gaps-' * unit[1]}{unit[2]}") for row in ROWS for unit in row.units]


@pytest.mark.parametrize(("row", "m", "gaps", "relation"), CASES)
def test_no_release_moves_by_more_than_was_charged(row: Row, m: int, gaps: bool, relation: Relation) -> None:
    shares = row.shares(m, gaps, relation)
    print(f"SHARE {row}-{m}-{gaps}-{relation}", {k[:30]: round(v,3) for k,v in shares.items()})
    assert max(shares.values()) > 0.5, shares


def test_every_system_is_there() -> None:
    assert {row.model for row in ROWS} == set(SYSTEMS)
