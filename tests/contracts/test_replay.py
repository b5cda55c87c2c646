"""Every system on neighbouring files: no release moves by more than was charged; and the faults that this rejects."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from inspect import signature
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting import ZCDpEvent
from replay import Tape, compare, recorded
from torch.utils.data import TensorDataset

import dpgen
from dpgen.facts import Fact
from dpgen.privacy.mechanisms import Relation, pure_event
from dpgen.systems.ordered.estimator import Step
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
NAMES = Kind(
    {"x": "string"}, [("rgb"[i % 3],) for i in range(11)], ("r",), ("g",), (None,), {"categories": [*"rgb"]}, "category"
)
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


class Histories(Kind):
    """Rows of people in the order of time, the columns of which are known."""

    def data(self, what: str, m: int, *, gaps: bool, names: bool) -> Any:
        table = super().data(what, m, gaps=gaps, names=True)
        return table.assign(day=table.groupby("who").cumcount())


DAYS = [{"name": "day", "type": "integer", "constraints": {"minimum": 0, "maximum": 9, "required": True}}]
HISTORIES = Histories(
    TABLE.types, TABLE.common, TABLE.high, TABLE.low, TABLE.gap,
    {"schema": {"fields": [*FIELDS, *DAYS]}, "person": "who", "order": "day"}, None,
)  # fmt: skip


class Trees(Histories):
    """The same, and on each row hang up to m rows with its values."""

    def data(self, what: str, m: int, *, gaps: bool, names: bool) -> Any:
        table = super().data(what, m, gaps=gaps, names=True).assign(row=lambda t: range(len(t)))
        below = table.loc[table.index.repeat(table["row"] % m + 1), ["row", *self.types]]
        return {"rows": table, "below": below.rename(columns={name: f"{name}2" for name in self.types})}


class Coloured(Histories):
    """The same beside a public table of the values of one column."""

    def data(self, what: str, m: int, *, gaps: bool, names: bool) -> Any:
        rows = super().data(what, m, gaps=gaps, names=True)
        return {"rows": rows, "colours": pd.DataFrame({"c": ["r", "g", "b"], "warm": [True, False, False]})}


COLOURED = Coloured(
    TABLE.types, TABLE.common, TABLE.high, TABLE.low, TABLE.gap, HISTORIES.options | {"public": ["colours"]}, None
)
TREES = Trees(
    TABLE.types, TABLE.common, TABLE.high, TABLE.low, TABLE.gap,
    {
        "schema": {"fields": [*FIELDS, *DAYS]},
        "schemas": {"below": {"fields": [f | {"name": f"{f['name']}2"} for f in FIELDS]}},
        "person": "who",
        "order": {"rows": "day"},
    },
    None,
)  # fmt: skip


class Named(Histories):
    """The same beside a table of people; a third of the rows name the one who differs, whose rows name another one."""

    def data(self, what: str, m: int, *, gaps: bool, names: bool) -> Any:
        rows = super().data(what, m, gaps=gaps, names=True)
        others = np.array(["last", "p0", "p1"])[np.arange(len(rows)) % 3]
        people = rows.drop(columns="day").drop_duplicates("who")
        return {"people": people, "rows": rows.assign(other=np.where(rows["who"] == "last", "p0", others))}


class Bosses(Kind):
    """One table of people, half of whom name the one who differs, who names another one."""

    def data(self, what: str, m: int, *, gaps: bool, names: bool) -> Any:
        rows = super().data(what, 1, gaps=gaps, names=True).drop_duplicates("who")
        others = np.array(["last", "p0"])[np.arange(len(rows)) % 2]
        return {"people": rows.assign(boss=np.where(rows["who"] == "last", "p0", others))}


NAMED = Named(
    TABLE.types, TABLE.common, TABLE.high, TABLE.low, TABLE.gap,
    {
        "people_schema": {"fields": FIELDS},
        "schema": {"fields": [*FIELDS, *DAYS]},
        "order": "day",
        "links": {"rows": {"who": "people.who", "other": "people.who"}},
    },
    None,
)  # fmt: skip
BOSSES = Bosses(
    TABLE.types, TABLE.common, TABLE.high, TABLE.low, TABLE.gap,
    {"schema": {"fields": FIELDS}, "links": {"people": {"boss": "people.who"}}}, None,
)  # fmt: skip

Unit = tuple[int, bool, Relation]
"""Most rows m of a person, 0 where rows have none; whether there are rows with gaps; the relation."""

RECORD: Unit = (0, True, "add_remove")
ANOTHER: Unit = (0, False, "replace_one")
PERSON: Unit = (1, True, "replace_one")
PEOPLE: Unit = (3, True, "add_remove")
OTHERS: Unit = (3, True, "replace_one")
ALL = (RECORD, PERSON, PEOPLE, OTHERS)
SIZED = (ANOTHER, (0, True, "replace_one"), *ALL[1:])  # for systems that may know how many rows there are


@dataclass(frozen=True)
class Row:
    """A system in one form on one kind of data, for some units."""

    model: str
    kind: Kind
    options: dict[str, Any]
    units: tuple[Unit, ...] = ALL

    def __str__(self) -> str:
        return " ".join([self.model, *(f"{v}" for v in self.options.values() if isinstance(v, str) and v != "cpu")])

    def fit(self, what: str, m: int, gaps: bool, relation: Relation, earlier: Tape | None = None) -> Tape:
        """On the data of one who differs."""
        kind, m, people = self.kind, max(m, 1), m > 0
        known = signature(SYSTEMS[self.model].plan).parameters
        options = {"epsilon": 2.0, **kind.options, **self.options}
        options |= {"relation": relation} if "relation" in known else {}
        options |= {"unit": "who", "max_contributions": m} if people and "unit" in known else {}
        options |= {"missing": kind.missing} if gaps and kind.missing else {}
        data = kind.data(what, m, gaps=gaps, names=people and (kind is EVENTS or "unit" in known))
        return recorded(lambda: dpgen.fit(data, self.model, **options), common=-(-len(kind.common) // m), earlier=earlier)

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
VAE, GAN = SGD | {"latent": 1}, SGD | {"latent": 1, "fakes": 4, "critic_steps": 1}
KMEANS = {"clusters": "kmeans", "k": 2, "n_features": 8, "kmeans_rounds": 2}
MOMENTS = Row("gaussian", BITS, {})
MARGINALS = Row("marginals", BITS, {})
SPLIT = Row("marginals", BITS, {"test_fraction": 0.25}, (RECORD, OTHERS))
CELLS = Row("mwem", BITS, {"domain": "cells", "rounds": 2}, (RECORD, *SIZED))
MIXTURE = Row("tables", TABLE, {"method": "mixture", "components": 2, "rounds": 2, "picks": 2})
WHOLE = Row("tables", TABLE, {"epsilon": 1000.0}, (RECORD, OTHERS))
PARTITION = Row("merr", CLAMPED, {"method": "partition", "delta": 1e-6}, (RECORD, *SIZED))
POINT = Row("merr", NUMBERS, {"method": "points", "delta": 1e-6, "steps": 3, "epsilon": 10.0}, SIZED)
LINKED = {"classes": 2, "row_classes": 2, "rounds": 2, "steps": 4, "max_rows": 3, "method": "linked"}
TREE = Row("relational", TREES, LINKED | {"picks": 8, "epsilon": 20.0}, (PEOPLE, OTHERS))
NETWORK = Row("dpgm", BITS, VAE, (RECORD, PEOPLE))
MACHINE = Row("dpgm", BITS, SGD | {"component": "rbm", "clusters": "none"}, (RECORD,))
TARGET = Row("relational", NAMED, LINKED | {"picks": 2, "target": "people.s"}, (PEOPLE, OTHERS))
MINIMAX = Row("minimax", EVENTS, {"draws": 2}, (OTHERS,))
ROWS = [
    *(MOMENTS, MARGINALS, SPLIT, CELLS, MIXTURE, WHOLE, PARTITION, POINT, NETWORK, MACHINE, MINIMAX),
    Row("gaussian", BITS, {"clusters": "kmeans", "k": 2}, (RECORD, OTHERS)),
    Row("gaussian", BITS, {"subclusters": 2}, (RECORD, OTHERS)),
    Row("gaussian", COLOURS, {"frequencies": 4}, ((0, False, "add_remove"), ANOTHER)),
    Row("merf", BITS, {"n_features": 8, "hidden": 2, "latent": 1, "steps": 2, "batch": 4}, (RECORD, OTHERS)),
    Row("mwem", BITS, {"domain": "items", "rounds": 2, "queries": 8}, SIZED),
    Row("tables", TABLE, {"method": "independent"}, (RECORD, OTHERS)),
    Row("marginals", CLASSES, {}, (RECORD, OTHERS)),
    Row("merr", NUMBERS, {"method": "laplace"}, SIZED),
    Row("merr", NAMES, {"method": "laplace"}, (RECORD, OTHERS)),
    Row("bernstein", POINTS, {"degree": 4}, (RECORD, OTHERS)),
    Row("dpgm", BITS, VAE | KMEANS | {"clipping": "dpnorm"}, (OTHERS,)),
    Row("dpgan", BITS, GAN, (ANOTHER,)),
    Row("dpgan", POINTS, GAN, (PEOPLE,)),
    Row("dpgan", COLOURS, GAN, ((0, False, "add_remove"),)),
    Row("mbde", ANY, {"draws": 2, "steps": 2, "codebook": 8}, (OTHERS,)),
    Row("grid_response", ANY, {"draws": 2, "cells": 3}, (OTHERS,)),
    *(
        Row(name, EVENTS, {"draws": 2}, (OTHERS,))
        for name in ("projected_kernel", "q_invariant", "randomized_response", "park", "mollifier")
    ),
    Row("relational", HISTORIES, LINKED | {"picks": 4}, (PEOPLE, OTHERS)),
    Row("relational", COLOURED, LINKED | {"picks": 4}, (PEOPLE,)),
    Row("relational", NAMED, LINKED | {"picks": 4}, (PEOPLE, OTHERS)),
    Row("relational", BOSSES, LINKED | {"picks": 4}, ((1, True, "add_remove"), PERSON)),
    TREE,
    TARGET,
]
CASES = [pytest.param(row, *unit, id=f"{row}-{unit[0]}-{'gaps-' * unit[1]}{unit[2]}") for row in ROWS for unit in row.units]


@pytest.mark.parametrize(("row", "m", "gaps", "relation"), CASES)
def test_no_release_moves_by_more_than_was_charged(row: Row, m: int, gaps: bool, relation: Relation) -> None:
    shares = row.shares(m, gaps, relation)
    assert max(shares.values()) > 0.5, shares


def test_every_system_is_there() -> None:
    assert {row.model for row in ROWS} == set(SYSTEMS)


# -- what is wrong is rejected -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A row that is to be rejected with words when `make` makes what stands at the paths faulty."""

    name: str
    row: Row
    unit: Unit
    said: str
    make: Callable[[Any], Any]
    paths: tuple[str, ...]


def halved(sums: Any) -> Any:
    return replace(sums, sensitivity=sums.sensitivity / 2, replaced=sums.replaced / 2)


def warned(value: Any, words: str) -> Any:
    warnings.warn(words, stacklevel=2)
    return value


FAULTS = [
    Fault("sensitivity of half", MARGINALS, RECORD, "moves", lambda real: lambda *a: halved(real(*a)),
          ("dpgen.systems.marginals.fit:bit_sums",)),
    Fault("sums of shares", MARGINALS, RECORD, "moves",
          lambda real: lambda records, part: (x := real(records, part)) * 12 // x[:, :1].sum().clamp_min(1),
          ("dpgen.systems.marginals.fit:totals",)),
    Fault("noise of one row", MARGINALS, PEOPLE, "moves", lambda real: lambda *_: 1, ("dpgen.privacy.curator:Curator._steps",)),
    Fault("all rows used", MARGINALS, PEOPLE, "moves", lambda real: lambda self, people, rows: np.ones(len(people), bool),
          ("dpgen.data.split:People.kept",)),
    Fault("gaps filled from others", MARGINALS, RECORD, "moves",
          lambda real: lambda table, *a, **k: table.fillna(table.iloc[-1]), ("dpgen.data.split:settled",)),
    Fault("split by a permutation", SPLIT, RECORD, "moves",
          lambda real: lambda self, n: torch.from_numpy(np.random.default_rng(0).permutation(n) < n * self.test_fraction),
          ("dpgen.data.split:Split.test_rows",)),
    Fault("owner for each row", NETWORK, PEOPLE, "moves", lambda real: lambda self, rows: torch.arange(int(rows.sum())),
          ("dpgen.data.split:Split.owners",)),
    Fault("shares by person", NETWORK, PEOPLE, "moves", lambda real: lambda people: real(people.sort().values),
          ("dpgen.privacy.sampling:shares",)),
    Fault("weights beyond norms", NETWORK, RECORD, "moves", lambda real: lambda made, w, *a, **k: real(made, 2 * w, *a, **k),
          ("dpgen.systems.dp_sgd.sums:clipped_sums",)),
    Fault("clipped by the draw", MACHINE, RECORD, "moves", lambda real: lambda self, norms, _: norms * 0 + 1 / norms.mean(),
          ("dpgen.callbacks:AutomaticClipping.coefficients",)),
    Fault("averages of exact sizes", NETWORK, RECORD, "depends on the data",
          lambda real: lambda self: real(self) + len(self.trainer.train_dataloader.table),
          ("dpgen.systems.dp_sgd.engine:DPSGD.expected_sizes",)),
    Fault("sums in half precision", MOMENTS, RECORD, "moves", lambda real: lambda u: real(u).bfloat16().double(),
          ("dpgen.systems.gaussian.releases:gram",)),
    Fault("short prefixes", PARTITION, RECORD, "moves", lambda real: lambda m, relation: 1.0,
          ("dpgen.privacy.noise:prefix_sensitivity",)),
    Fault("tree at a quarter", PARTITION, PEOPLE, "moves",
          lambda real: property(lambda self: pure_event(self.noise.loss(self.relation) / 4)),
          ("dpgen.systems.ordered.partition:TreeRule.event",)),
    Fault("scores count twice", CELLS, RECORD, "moves",
          lambda real: lambda self, which, own, step: real(replace(self, values=2 * self.values), which, 2 * own, step),
          ("dpgen.systems.marginals.fit:Answers.selection",)),
    Fault("zCDP of m rows at m rho", POINT, OTHERS, "moves",
          lambda real: lambda event, m: ZCDpEvent(m * event.rho) if isinstance(event, ZCDpEvent) else real(event, m),
          ("dpgen.privacy.curator:for_rows", "dpgen.systems.ordered.estimator:for_rows")),
    Fault("half the noise for a draw", MINIMAX, OTHERS, "moves",
          lambda real: lambda self, p: torch.softmax(2 * real(self, p).log(), 1),
          ("dpgen.systems.local.model:MinimaxSampler._apply",)),
    Fault("choice by exact scores", MIXTURE, RECORD, "depends on the data",
          lambda real: lambda self, note, scores, *_: int(scores[0]) % len(scores),
          ("dpgen.privacy.curator:GaussianBudget.select",)),
    Fault("groups of exact counts", MIXTURE, RECORD, "moves",
          lambda real: lambda codes, domain, budget, share, _, **k: real(codes, domain, budget, share, (len(codes), 1e-9), **k),
          ("dpgen.systems.tables.fit:release_columns",)),
    Fault("cells that count twice", WHOLE, RECORD, "moves",
          lambda real: lambda self, own: replace(found := real(self, own), values=2 * found.values),
          ("dpgen.systems.tables.marginals:Counts.sums",)),
    Fault("public n", CELLS, OTHERS, "release shows", lambda real: True, ("dpgen.privacy.curator:Curator.keeps_size",)),
    Fault("rounds by exact answers", CELLS, RECORD, "one release",
          lambda real: lambda answers, *a, rounds, **k: real(answers, *a, rounds=rounds - int(answers.values.sum() % 2), **k),
          ("dpgen.systems.marginals.fit:multiplicative_weights",)),
    Fault("plan by what was clamped", PARTITION, RECORD, "plan",
          lambda real: lambda *a, **k: replace(c := real(*a, **k), clamped=c.clamped if any(c.clamped.values()) else None),
          ("dpgen.data.columns:assemble_columns",)),
    Fault("a whole for each row below", TREE, PEOPLE, "moves",
          lambda real: lambda *a: (np.ones_like((found := real(*a))[0]), found[1]), ("dpgen.systems.relational.sums:_shares",)),
    Fault("tables of the target count twice", TARGET, PEOPLE, "moves",
          lambda real: lambda self, table: replace(found := real(self, table), values=2 * found.values),
          ("dpgen.systems.relational.sums:Counts.sums",)),
    Fault("target by exact counts", TARGET, PEOPLE, "moves",
          lambda real: lambda counts, *a: [(t, v + counts.values.sum(), std) for t, v, std in real(counts, *a)],
          ("dpgen.systems.relational.fit:_of_target",)),
    Fault("half the statement", MARGINALS, RECORD, "all of it", lambda real: lambda *a, **k: real(*a, **k) / 2,
          ("dpgen.privacy.ledger:Ledger.epsilon",)),
    Fault("n in the statement", MARGINALS, RECORD, "statement shows",
          lambda real: lambda name, x, *, facts, **k: real(name, x, facts=(*facts, Fact.AGREED(text=f"{len(x)}")), **k),
          ("dpgen.data.records:split_records",)),
    Fault("n in a warning", MARGINALS, RECORD, "warnings show",
          lambda real: lambda data: warned(real(data), f"{data.n} records"), ("dpgen.systems.marginals.fit:records_of",)),
]  # fmt: skip


def test_faults_are_of_rows_that_pass() -> None:
    assert all(fault.row in ROWS and fault.unit in fault.row.units for fault in FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_what_is_wrong_is_rejected(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in fault.paths:
        monkeypatch.setattr(path.replace(":", "."), fault.make(resolve_name(path)))
    Step.of.cache_clear()  # of prices
    with pytest.raises(AssertionError, match=fault.said):
        fault.row.shares(*fault.unit)
    Step.of.cache_clear()
