"""Rules of raw tables: rows that break candidates, values of a dependency, and the parts of a length."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from conformance import SumRow, pairs_of, swapped

from dpgen.data.raw_tables import Rows
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.schema import Schema
from dpgen.systems.tables.domains import BINS, cells, in_parts
from dpgen.systems.tables.rule_kinds import Candidate
from dpgen.systems.tables.rules import TABLE, VIOLATIONS, length_axis, length_units, table_counts, violations

NUMBERS, NAMES, EDGES = ("a", "b", "c"), ("city", "region"), [0, 1, 2, 5, 10]


def number(name: str) -> dict[str, Any]:
    law = {"edges": EDGES, "logs": [[0.0, 0.0]] * (len(EDGES) - 1)}
    return {"name": name, "type": "integer", "dpgen:bins": {"edges": EDGES}, "dpgen:density": law}


LISTED = [{"name": name, "type": "string", "constraints": {"enum": [*"rgb"]}} for name in NAMES]
SCHEMA = Schema.from_descriptor({"fields": [*map(number, NUMBERS), *LISTED]})
FOLLOWS = Candidate({"follows": "region", "on": "city"}, 0.5)
ALONE: list[dict[str, Any]] = [
    {"less_equal": ["a", "b"]},
    {"less_equal": ["b", "c"]},
    {"one_of": [*NUMBERS]},
    {"sum": ["b"], "total": "a"},
    {"missing": "a", "on": "c", "value": "2", "both": False},
    {"product": ["a"], "times": 2.0, "plus": 1.0, "total": "c", "places": 0},
    {"forbidden": {"a": 9, "b": 5}},
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
    return Rows(pd.concat([whole.mask(whole < 0), texts.mask(x[:, 3:] < 0)], axis=1))


def broken(x: np.ndarray) -> BoundedSum:
    """Rows that break orders, a group, a copy, a gap, a unit, an implication and a dependency."""
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


ROWS = [
    SumRow("tables", (VIOLATIONS,), ROWS_OF, MOVED, sums=broken),
    SumRow("tables", (TABLE,), ROWS_OF, MOVED, sums=listed),
    SumRow("tables", (f"{BINS} of * from * on",), ROWS_OF, MOVED, sums=long),
]
