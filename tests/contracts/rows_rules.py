"""Rules of raw tables: rows that break candidates, values of a dependency, and the parts of a length."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from conformance import Law, LawRow, SumRow, pairs_of, swapped

from dpgen.data.raw_tables import Rows
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.selection import ExponentialMechanism
from dpgen.schema import Schema
from dpgen.systems.tables.domains import BINS, cells, in_parts
from dpgen.systems.tables.rule_kinds import Candidate
from dpgen.systems.tables.rules import CHOICE, TABLE, VIOLATIONS, chances, length_axis, length_units, table_counts, violations

NUMBERS, NAMES, EDGES = ("a", "b", "c"), ("city", "region"), [0, 1, 2, 5, 10]


def number(name: str) -> dict[str, Any]:
    law = {"edges": EDGES, "logs": [[0.0, 0.0]] * (len(EDGES) - 1)}
    return {"name": name, "type": "integer", "dpgen:bins": {"edges": EDGES}, "dpgen:density": law}


LISTED = [{"name": name, "type": "string", "constraints": {"enum": [*"rgb"]}} for name in NAMES]
TIME = {"name": "time", "type": "datetime", "dpgen:bins": {"equal": 8}}
TIME |= {"constraints": {"required": False, "minimum": "2020-01-01T00:00:00", "maximum": "2020-01-01T23:59:59"}}
SCHEMA = Schema.from_descriptor({"fields": [*map(number, NUMBERS), *LISTED, TIME]})
FOLLOWS = Candidate({"follows": "region", "on": "city"}, 0.5)
ALONE: list[dict[str, Any]] = [
    {"less_equal": ["a", "b"]},
    {"less_equal": ["b", "c"]},
    {"one_of": [*NUMBERS]},
    {"sum": ["b"], "total": "a"},
    {"missing": "a", "on": "c", "value": "2", "both": False},
    {"product": ["a"], "times": 2.0, "plus": 1.0, "total": "c", "places": 0},
    {"forbidden": {"a": 9, "b": 5}},
    {"dated": "b", "on": "time", "part": "hour", "values": None},
    {"part_of": "time", "part": "weekday", "total": "c", "values": {"2": 1}},
]
AMONG = [*(Candidate(rule, 0.5) for rule in ALONE), FOLLOWS]
ROWS_OF = pairs_of(
    lambda rng, n: np.column_stack([rng.integers(0, 10, (n, 3)), rng.integers(0, 3, (n, 2))]) - (rng.random((n, 5)) < 0.1) * 99
)
PLAIN = np.tile([0, 0, 1, 0, 0], (9, 1))
MOVED = swapped(np.concatenate([PLAIN, [[9, 5, 2, 0, 1]]]), PLAIN[:1])
"""A record that breaks all rules beside some that break none is left out, or becomes like these."""


def rows_of(x: np.ndarray) -> Rows:
    """Rows (n, 5) of codes as a raw table; what is below 0 is a gap."""
    whole = pd.DataFrame(x[:, :3], columns=[*NUMBERS]).astype("Int64")
    texts = pd.DataFrame(np.array([*"rgb"], object)[np.maximum(x[:, 3:], 0)], columns=[*NAMES])
    time = pd.Timestamp("2020-01-01") + pd.to_timedelta(pd.Series(x[:, 0]), unit="h")  # a Wednesday, the 2 of weekdays
    return Rows(pd.concat([whole.mask(whole < 0), texts.mask(x[:, 3:] < 0), time.mask(x[:, 0] < 0).rename("time")], axis=1))


def broken(x: np.ndarray) -> BoundedSum:
    """Rows that break orders, a group, a copy, a gap, a unit, an implication, parts of a time and a dependency."""
    return violations(rows_of(x), SCHEMA, AMONG)


def broken_once(x: np.ndarray) -> BoundedSum:
    """Wrong: as if a row broke one of the rules at most."""
    return replace(broken(x), sensitivity=1.0, replaced=1.0)


def broken_shares(x: np.ndarray) -> BoundedSum:
    """Wrong: a dependency counts all rows of a value that has several: one row moves many."""
    rows, [(counts, _)] = rows_of(x), table_counts(rows_of(x), SCHEMA, [FOLLOWS])
    undetermined = int(counts[(counts > 0).sum(1) > 1].sum())
    found = violations(rows, SCHEMA, AMONG)
    return replace(found, values=torch.cat([found.values[:-1], torch.tensor([undetermined])]))


def listed(x: np.ndarray) -> BoundedSum:
    """Pairs of values of a dependency."""
    [(counts, _)] = table_counts(rows_of(x), SCHEMA, [FOLLOWS])
    return BoundedSum(torch.from_numpy(counts.copy()), 1.0, replaced=math.sqrt(2.0))


def long(x: np.ndarray) -> BoundedSum:
    """Parts of the length from a on to b, and gaps."""
    ends: Any = (SCHEMA.by_name["a"], SCHEMA.by_name["b"])
    axis, unit, _ = length_axis(*ends)
    units = rows_of(x).together(["a", "b"], partial(length_units, ends=ends, axis=axis, unit=unit, gaps=True))
    return cells(units, partial(in_parts, starts=np.array([0, 1, 4, 10])), 4)


THREE = ("zone", "kind", "fare")
OF_TEXTS = Schema.from_descriptor(
    {"fields": [{"name": name, "type": "string", "constraints": {"enum": [*"rgb"], "required": True}} for name in THREE]}
)
ON_TWO = [Candidate({"follows": last, "on": [name for name in THREE if name != last]}, 0.5) for last in THREE]
TEXTS_OF = pairs_of(lambda rng, n: rng.integers(0, 3, (n, 3)))
APART = np.repeat([[0, 0, 1], [0, 1, 0], [1, 0, 0]], 4, axis=0)
BREAKS_THREE = swapped(np.concatenate([APART, [[0, 0, 0]]]), APART[:1])
"""A record that breaks that each column follows from the others."""
ALONG = np.array([[0, 0, 1], [0, 0, 1], [0, 1, 0], [0, 1, 0], [1, 0, 2], [1, 0, 2], [2, 2, 0], [2, 2, 1]])
BREAKS_ONE = swapped(np.concatenate([ALONG, [[0, 0, 2]]]), np.array([[2, 0, 1]]))
"""A record that breaks that the fare follows, not that the kind does."""


def texts_of(x: np.ndarray) -> Rows:
    return Rows(pd.DataFrame(np.array([*"rgb"], object)[x], columns=[*THREE]))


def on_two(x: np.ndarray) -> BoundedSum:
    """Rows that break dependencies on two columns."""
    return violations(texts_of(x), OF_TEXTS, ON_TWO)


def chosen(x: np.ndarray, relation: Relation) -> Law:
    """The choice between two dependencies on two columns, which is nearly even."""
    scores = chances(on_two(x))[1:] + np.array([0, 3 if relation == "add_remove" else 2])
    mechanism = ExponentialMechanism.gaussian(scores, 2.0, 1)
    return Law(mechanism.event, mechanism.log_probabilities())


def cells_of_three(x: np.ndarray) -> BoundedSum:
    """Values of a dependency on two columns."""
    [(counts, _)] = table_counts(texts_of(x), OF_TEXTS, ON_TWO[:1])
    return BoundedSum(torch.from_numpy(counts.copy()), 1.0, replaced=math.sqrt(2.0))


ROWS = [
    SumRow("tables", (VIOLATIONS,), TEXTS_OF, BREAKS_THREE, sums=on_two),
    LawRow("tables", (CHOICE,), TEXTS_OF, BREAKS_ONE, law=chosen, at=(1e-6, 0.2, 0.5)),
    SumRow("tables", (TABLE,), TEXTS_OF, BREAKS_THREE, sums=cells_of_three),
    SumRow("tables", (VIOLATIONS,), ROWS_OF, MOVED, sums=broken),
    SumRow("tables", (TABLE,), ROWS_OF, MOVED, sums=listed),
    SumRow("tables", (f"{BINS} of * from * on",), ROWS_OF, MOVED, sums=long),
]
