"""Saved releases of people and their rows: each part as arrays and JSON, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgen.schema import Schema
from dpgen.systems.relational.chains import Chain, Tree
from dpgen.systems.relational.references import Named
from dpgen.systems.relational.sums import Branch, Layout, Level, NoisySums, Shape, Table, in_spans
from dpgen.systems.relational.target import Target, groups_of
from dpgen.systems.tables.marginals import Coarsening, Columns
from dpgen.systems.tables.mixture import Mixture

Arrays = dict[str, npt.NDArray[Any]]
Description = Mapping[str, Any]

_PARTS = ("usual", "first", "steps", "kept", "rows")


def _numbered(name: str, number: int) -> str:
    """The name of an array of a table of rows; of the first one it has no number."""
    return name if number == 1 else f"{name}.{number}"


def _of_codes(number: int) -> str:
    """The name of the arrays of the codes of a table."""
    return _numbered("rows", number) if number else "people"


def _split(array: npt.NDArray[Any], sizes: Iterable[int]) -> list[npt.NDArray[Any]]:
    """Parts of an array, of these sizes."""
    return np.split(array, np.cumsum([*sizes])[:-1])


# -- columns -----------------------------------------------------------------------------------------------------------


def columns_saved(columns: Sequence[Columns]) -> Arrays:
    """Groups of the codes of all tables, and their shares."""
    found = Arrays()
    for number, own in enumerate(columns):
        name = _of_codes(number)
        found |= {f"{name}.groups": np.concatenate(own.coarse.groups), f"{name}.shares": np.concatenate(own.shares)}
    return found


def columns_read(arrays: Arrays, description: Description, schemas: Sequence[Schema]) -> list[Columns]:
    """Columns of all tables, without what was measured of them."""
    orders = [range(len(schemas[0].domain.sizes)), *map(in_spans, description["spans"])]
    found = []
    for number, (grouped, schema, order) in enumerate(zip(description["sizes"], schemas, orders)):
        name, sizes = _of_codes(number), [schema.domain.sizes[c] for c in order]
        coarse = Coarsening(tuple(_split(arrays[f"{name}.groups"], sizes)), tuple(grouped))
        found.append(Columns(tuple(_split(arrays[f"{name}.shares"], sizes)), description["n"], coarse, (), ()))
    return found


# -- tree --------------------------------------------------------------------------------------------------------------


def tree_saved(tree: Tree) -> Arrays:
    """Probabilities of a tree."""
    found: Arrays = {"people": tree.people.probabilities, "weights": tree.people.weights}
    for number, chain in enumerate(tree.chains, 1):
        parts = (chain.usual, chain.first, chain.steps, chain.kept, chain.rows.probabilities)
        found |= {_numbered(name, number): part for name, part in zip(_PARTS, parts)}
    return found


def tree_read(arrays: Arrays, shape: Shape) -> Tree:
    """The tree of a shape."""
    weights, chains = [arrays["weights"]], list[Chain]()
    for number, branch in enumerate(shape.tables, 1):
        usual, first, steps, kept, rows = (arrays[_numbered(name, number)] for name in _PARTS)
        weights.append(weights[branch.parent] @ usual)
        chains.append(Chain(Mixture(rows, weights[-1], branch.sizes), usual, first, steps, kept))
    return Tree(Mixture(arrays["people"], weights[0], shape.people), tuple(chains))


def shape_read(description: Description, schemas: Sequence[Schema], columns: Sequence[Columns]) -> Shape:
    """Public facts of the tables, in groups of codes."""
    branches = []
    for table, own, spans in zip(description["shown"]["rows"], columns[1:], description["spans"]):
        parent = table["parent"]
        count = schemas[parent].domain.names.index(table["count"])
        count = in_spans(description["spans"][parent - 1]).index(count) if parent else count
        branches.append(Branch(own.coarse.sizes, tuple(spans[c] for c in in_spans(spans)), table["most"], parent, count))
    return Shape(columns[0].coarse.sizes, tuple(branches))


# -- sums --------------------------------------------------------------------------------------------------------------


def sums_saved(noisy: NoisySums) -> Arrays:
    """Sums and numbers with their noise stds, and the groups of the levels."""
    stds = [np.broadcast_to(std, values.shape).ravel() for _, values, std in noisy.tables]
    found: Arrays = {"measured": np.concatenate([v.ravel() for _, v, _ in noisy.tables]), "noise_std": np.concatenate(stds)}
    found["counts"] = np.stack([np.r_[of] for of in zip(*noisy.counted)])
    for i, level in enumerate(noisy.layout.levels):
        found[f"level.{i}"] = np.concatenate([group for own in level for group in own.groups])
    return found


def sums_described(noisy: NoisySums) -> dict[str, Any]:
    """Which tables were measured, and the numbers of groups on each level."""
    return {
        "tables": [[table.block, table.left, table.right, table.level] for table, _, _ in noisy.tables],
        "levels": [[own.sizes for own in level] for level in noisy.layout.levels],
    }


def sums_read(arrays: Arrays, description: Description, shape: Shape) -> NoisySums:
    """The sums of a release."""
    layout = Layout(shape, _levels(arrays, description))
    tables, at = list[Any](), 0
    for block, left, right, level in description["tables"]:
        table = Table(tuple(block), left, right, level)
        cells = layout.table_cells(table)
        part = slice(at, at := at + cells.size)
        tables.append((table, *(arrays[name][part].reshape(cells.shape) for name in ("measured", "noise_std"))))
    values, stds = arrays["counts"]
    sizes = [1, *(branch.most + 1 - shape.least(number) for number, branch in enumerate(shape.tables, 1))]
    people, *rows = zip(_split(values, sizes), _split(stds, sizes))
    return NoisySums(layout, tables, ((float(people[0][0]), float(people[1][0])), *rows))


def _levels(arrays: Arrays, description: Description) -> tuple[Level, ...]:
    """Groups of the groups of codes, level by level."""
    found, sizes = list[Level](), [size for own in description["sizes"] for size in own]
    for i, level in enumerate(description["levels"]):
        groups = iter(_split(arrays[f"level.{i}"], sizes))
        found.append(tuple(Coarsening(tuple(islice(groups, len(own))), tuple(own)) for own in level))
    return tuple(found)


# -- target ------------------------------------------------------------------------------------------------------------


def target_saved(target: Target | None) -> Arrays:
    """Coefficients and shares of the classes."""
    return {} if target is None else {"target.weights": target.weights, "target.base": target.base}


def target_described(target: Target | None) -> dict[str, Any]:
    """The column that is drawn last, and those that it depends on."""
    if target is None:
        return {}
    return {"target": {"column": target.column, "level": target.level, "features": [*target.features]}}


def target_read(arrays: Arrays, description: Description, levels: Sequence[Level]) -> Target | None:
    """The law of a column that is drawn last, if there is one; `levels` are of the groups of the release."""
    own = description.get("target")
    if own is None:
        return None
    features = [(number, c) for number, c in own["features"]]
    weights, base = arrays["target.weights"], arrays["target.base"]
    return Target(own["column"], own["level"], groups_of(features, levels[own["level"]]), weights, base)


# -- keys that name other people ---------------------------------------------------------------------------------------


def keys_saved(references: Sequence[Named]) -> Arrays:
    """Sums of keys by which rows name other people."""
    found = Arrays()
    for i, named in enumerate(references):
        found |= {f"others.{i}.groups": np.concatenate(named.groups), f"others.{i}.degrees": named.degrees[0]}
        found |= {f"others.{i}.pairs.{c}": values for c, (values, _) in named.pairs.items()}
    return found


def keys_described(references: Sequence[Named]) -> list[dict[str, Any]]:
    """Table and column of each key, and the noise stds of its sums."""
    return [
        {
            "table": named.number,
            "column": named.column,
            "pairs": {str(c): std for c, (_, std) in named.pairs.items()},
            "degrees": named.degrees[1],
        }
        for named in references
    ]


def keys_read(arrays: Arrays, description: Description) -> list[Named]:
    """Keys by which rows name other people."""
    found = []
    for i, own in enumerate(description.get("others", [])):
        pairs = {int(c): (arrays[f"others.{i}.pairs.{c}"], std) for c, std in own["pairs"].items()}
        groups = _split(arrays[f"others.{i}.groups"], description["sizes"][0])
        degrees = arrays[f"others.{i}.degrees"], own["degrees"]
        found.append(Named(own["table"], own["column"], groups, pairs, degrees))
    return found
