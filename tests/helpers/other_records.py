"""Two data sets of each kind that agree in what is public, and in nothing else: what is released must not tell them apart."""

from typing import Any

import numpy as np
import torch

import dpgen
from dpgen.columns.discretized import DiscretizedColumn
from dpgen.data import Columns, Images, Points, Records
from dpgen.data.tables import Table
from dpgen.schema import Schema

SCHEMA: dict[str, Any] = {
    "fields": [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 9, "required": True}},
        {"name": "tea", "type": "boolean", "constraints": {"required": True}},
    ],
    "dpgen:target": "tea",
}


def _rng(other: bool) -> tuple[np.random.Generator, int, float]:
    """Coins, the number of private records, and the share of ones, of the first or the other data set."""
    return (np.random.default_rng(1), 170, 0.8) if other else (np.random.default_rng(0), 400, 0.3)


def _parts(values: np.ndarray, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.from_numpy(values)
    return x[:n], x[n:]


def records(other: bool) -> Records:
    rng, n, share = _rng(other)
    x, test_x = _parts((rng.random((n + 60, 6)) < share).astype(np.uint8), n)
    labels, test_labels = _parts((rng.random(n + 60) < share).astype(np.int64), n)
    return Records("r", x, labels=labels, test_x=test_x, test_labels=test_labels, n_classes=2)


def images(other: bool) -> Images:
    rng, n, share = _rng(other)
    x, test_x = _parts((rng.random((n + 60, 16, 16, 1)) * 255 * share).astype(np.uint8), n)
    labels, test_labels = _parts((rng.random(n + 60) < share).astype(np.int64), n)
    return Images("i", x, labels, test_x, test_labels, class_names=("a", "b"))


def points(other: bool) -> Points:
    rng, n, share = _rng(other)
    x, test_x = _parts(rng.random((n + 60, 2)) * share, n)
    return Points("p", x, test_x, bounds=torch.tensor([[0.0, 1.0], [0.0, 1.0]]))


def columns(other: bool) -> Columns:
    rng, n, share = _rng(other)
    grid = DiscretizedColumn(kind="number", low="0", high="99", resolution="1")
    values = {name: np.sort((rng.random(n) * 100 * share).astype(np.int64)) for name in ("x", "y")}
    return Columns("c", values, dict.fromkeys(values, grid))


def table(other: bool) -> Table:
    rng, n, share = _rng(other)
    codes = np.stack([rng.integers(0, 10, n + 60) * (rng.random(n + 60) < share), rng.random(n + 60) < share], 1)
    private, test = _parts(codes.astype(np.int64), n)
    return Table("t", private, Schema.from_descriptor(SCHEMA), test_codes=test)


DATA = {"records": records, "images": images, "points": points, "columns": columns, "table": table}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "records": ("marginals", {}),
    "images": ("gaussian", {"frequencies": 12}),
    "points": ("bernstein", {}),
    "columns": ("merr", {}),
    "table": ("tables", {"method": "independent"}),
}
"""A system of each kind, and its options."""


def release(kind: str, data: Any) -> Any:
    """A release of one of the data sets, for both."""
    model, options = MODELS[kind]
    return dpgen.fit(data, model, epsilon=5.0, **options)
