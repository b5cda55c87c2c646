"""The released model of people and their rows: linked samples, also given values of people, its laws, and its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from dpgen.release import PublicModel, RandomState, sampling_seed
from dpgen.samples import LinkedSamples
from dpgen.schema import Schema, nearest
from dpgen.statement import PrivacyStatement
from dpgen.systems.relational.chains import Chain, Tree, TreeFitter
from dpgen.systems.relational.draws import Draws
from dpgen.systems.relational.linked_mixture import LinkedMixture, imputed
from dpgen.systems.relational.plan import sizes
from dpgen.systems.relational.references import Named
from dpgen.systems.relational.sums import (
    SPANS,
    WHOLE,
    Block,
    Branch,
    Counts,
    Histories,
    Layout,
    Level,
    NoisySums,
    Reals,
    Shape,
    Stack,
    Table,
    in_spans,
    place_of,
)
from dpgen.systems.relational.target import PEOPLE, Target, features_of, groups_of
from dpgen.systems.tables.fitter import EXCLUDED, zeros_of
from dpgen.systems.tables.marginals import Coarsening, Columns
from dpgen.systems.tables.mixture import Mixture

Kind = Literal["same", "pair", "next"]
Arrays = dict[str, npt.NDArray[Any]]
Description = Mapping[str, Any]

_REFITTED, _REFIT_STEPS, _HELD_BACK = 48, 400, 0.01  # classes and steps of a fit for intervals, and its information
_LEAST_PEOPLE = 4_000  # that a statistic is computed on
_AT_ONCE = 256  # people whose histories are gone through together
_PARTS = ("usual", "first", "steps", "kept", "rows")  # of a chain, as arrays are named


@dataclass(frozen=True, eq=False)
class _Column:
    """A column of a model: its table, its span, its place there and in a stack, and its released shares."""

    number: int
    span: int
    stack: Stack
    place: int
    c: int
    columns: Columns

    def cells(self, sizes: Sequence[int]) -> slice:
        """Cells of the target in a stack of these sizes."""
        begin = int(sum(sizes[: self.place]))
        return slice(begin, begin + sizes[self.place])


class RelationalModel(PublicModel, LinkedMixture, kind="relational"):
    """Classes of people, chains of classes of rows (see `chains`), and released shares of the codes inside each group.

    Arguments:
        tree: over groups of codes.
        columns: released ones of people, and of each table of rows, by their spans.
        spans: of the columns of each table of rows.
        schemas: of people and of each table of rows.
        shown: how samples are given back: names of the tables, people's first if there is one, and of the person's column,
            the forms of the tables, and of each table of rows, `rows`, which one it hangs on, its key, m, the column that is
            their number, and those of the order and of times, see `dpgen.data.linked.LinkedRows`.
        statement: what the model cost.
        noisy: the sums that the tree was fitted to, and the noisy numbers of people and of rows.
        named: sums of the keys by which rows name other people, see `references`.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        columns: Sequence[Columns],
        spans: Sequence[Sequence[str]],
        schemas: Sequence[Schema],
        shown: Mapping[str, Any],
        statement: PrivacyStatement,
        noisy: NoisySums,
        named: Sequence[Named] = (),
    ) -> None:
        options: dict[str, Any] = {"spans": spans, "schemas": schemas, "shown": shown, "named": named}
        LinkedMixture.__init__(self, tree, columns=columns, shape=noisy.layout.shape, **options)
        self.statement, self._noisy = statement, noisy

    @property
    def size(self) -> int:
        """A released (noisy) estimate of how many people the model was fitted to."""
        return round(max(1.0, self._noisy.counted[0][0]))

    # -- laws ----------------------------------------------------------------------------------------------------------

    def counts(self) -> pd.DataFrame:
        """Released numbers of people and of their rows that are used: `estimate`, and `std` of the noise; one line a table.

        Of rows that hang on a row it is the model's number, without a std.
        """
        (n, std), *numbers = self._noisy.counted
        names = self.shown["tables"]
        found: dict[str, tuple[float, float]] = {(names[0] if self.named else self.shown["person"]): (n, std)}
        laws = [n * self.tree.people.weights / self.tree.people.weights.sum()]
        for number, (branch, chain, (values, stds)) in enumerate(zip(self.shape.tables, self.tree.chains, numbers), 1):
            places, least = np.arange(len(values)), self.shape.least(number)
            above = self.tree.chains[branch.parent - 1].rows if branch.parent else self.tree.people
            chance, total, law = above.block(branch.count), np.zeros(chain.usual.shape[1]), chain.first
            for t in range(1, branch.most + 1):
                law = law if t == 1 else (1 - chain.kept)[:, None] * chain.usual + chain.kept[:, None] * (law @ chain.steps)
                total = total + (laws[branch.parent] * chance[places + least >= t].sum(0)) @ law
            laws.append(total)
            exact = float((places + least) @ values), float(np.linalg.norm((places + least) * stds))
            found[self.about[number - 1]["name"]] = (float(total.sum()), np.nan) if branch.parent else exact
        return pd.DataFrame.from_dict(found, orient="index", columns=["estimate", "std"])

    def measured(self) -> list[dict[str, Any]]:
        """Released tables: `kind` as in `sums`, columns, the group (size,) of each code, noisy sums, and their noise std.

        Every person has one whole in each table, in equal parts for all instances, see `sums`.
        """
        layout, names, found = self._noisy.layout, self.names(), []
        for table, values, std in self._noisy.tables:
            level, groups = layout.levels[table.level], list[Any]()
            kind, *stacks = table.block
            for stack, place in zip(stacks, (table.left, table.right)):
                number, span = place_of(stack)
                if span == "position" or stack == "unit":
                    continue
                c = layout.shape.columns(stack)[place]
                groups.append((names[number][c], level[number].groups[c][self.columns[number].coarse.groups[c]]))
            columns, codes = [name for name, _ in groups], [group for _, group in groups]
            noise = np.broadcast_to(std, values.shape)
            found.append({"kind": kind, "columns": columns, "groups": codes, "counts": values, "noise_std": noise})
        return found

    def refitted(self, generator: np.random.Generator, measurements: Any = None) -> RelationalModel:
        """This release with a tree that is fitted to its own or to other sums of its tables, hardly held back."""
        noisy = self._noisy if measurements is None else replace(self._noisy, tables=measurements)
        layout, sums = noisy.layout, noisy.tables
        names = [[schema.domain.names[c] for c in order] for schema, order in zip(self.schemas, self.orders)]
        precision = float(np.sqrt(sum(float(np.min(std)) ** -2 for _, _, std in sums)))
        shape = self.tree.chains[0].usual.shape if self.tree.chains else (len(self.tree.people.weights), 1)
        fitter = TreeFitter(
            layout,
            [own.group_shares for own in self.columns],
            float(self.size),
            classes=(min(_REFITTED, shape[0]), min(_REFITTED, shape[1])),
            information=_HELD_BACK * sizes(precision, self.size).information,
            zeros=[zeros_of(*own) for own in zip(self.schemas, self.columns, names)],
            generator=torch.Generator().manual_seed(int(generator.integers(2**62))),
        )
        fitter.measure(sums)
        fitter.run(_REFIT_STEPS, 0.05, 0.001, avoided=EXCLUDED)
        found = copy(self)
        found.tree, found._noisy = fitter.tree, noisy
        for name in ("_blocks", "lines", "chains"):
            found.__dict__.pop(name, None)
        return found if self.target is None else found.predicting(self.target.column, self.target.level, generator)

    def predicting(self, column: int, level: int, generator: np.random.Generator) -> RelationalModel:
        """This release, which draws a column of people last, by its measured tables at a level."""
        self.target = None
        inner = torch.Generator().manual_seed(int(generator.integers(2**62)))
        features = groups_of(features_of(self._noisy.layout, level, column), self._noisy.layout.levels[level])
        parts = Draws(self, generator, inner).parts(PEOPLE, features)
        self.target = Target.fitted(self._noisy, column, level, parts)
        return self

    def measured_again(self, generator: np.random.Generator) -> list[tuple[Table, Reals, Any]]:
        """The measured tables of as many people of the model, with noise as there.

        They are drawn with replacement from four times as many: samples have systematic draws, which vary too little.
        """
        tables = self.samples(4 * self.size, random_state=generator).tables
        codes = self.coded(tables if len(tables) > 1 else next(iter(tables.values())), drawn=True)
        people = codes.chosen(generator.integers(0, len(codes.people), self.size), self.shape)
        layout, private = self._noisy.layout, people.grouped([own.coarse for own in self.columns])
        sums = Counts.of(private, layout).values / WHOLE
        return [
            (table, sums[layout.table_cells(table)] + std * generator.standard_normal(values.shape), std)
            for table, values, std in self._noisy.tables
        ]

    def population(self, generator: np.random.Generator, more: int = 1) -> Any:
        """So many people that a statistic of them and their rows says what it is of the model."""
        return self.samples(more * max(self.size, _LEAST_PEOPLE), random_state=generator).restored()

    def marginal(self, columns: Sequence[str], kind: Kind = "same") -> Reals:
        """Joint probabilities of one column, or of two, over all of their codes; exact for the model before constraints.

        A row is one of a random person's: every person who has such rows counts as much as every other one. A target has its
        law before it is drawn last.

        Arguments:
            columns: names with those of their tables, as "patients.sex" and "visits.ward".
            kind: "same" is of a person, or a row, and one of the rows that hang on it, "pair" of an earlier and a later row,
                "next" of a row and the one that follows it.

        Raises:
            ValueError: a column or a kind that is not there, or more than two columns.
        """
        placed = self._placed(columns, kind)
        flip = kind == "same" and (placed[0].number, placed[0].span) > (placed[-1].number, placed[-1].span)
        placed = placed[::-1] if flip else placed
        block = _block(placed, kind)
        if block not in self.shape.blocks or (kind == "same" and len({*columns}) < len(columns)):
            raise ValueError(f"columns are {', '.join(columns)} with kind {kind!r}; the model has no such table")
        law = self._blocks[block][placed[0].cells(self.shape.sizes(block[1]))]
        law = law[:, placed[1].cells(self.shape.sizes(block[2]))] if len(placed) == 2 else law[:, 0]
        for axis, own in enumerate(placed):
            law = own.columns.spread(law, axis, own.c)
        return np.asarray((law.T if flip else law) / law.sum())

    def _placed(self, columns: Sequence[str], kind: Kind) -> list[_Column]:
        if kind not in get_args(Kind):
            raise ValueError(f"kind is {kind!r}; choose one of {', '.join(get_args(Kind))}")
        if not 1 <= len(columns) <= 2:
            raise ValueError(f"columns has {len(columns)} names; it must have one or two")
        return [self._column(name) for name in columns]

    def _column(self, name: str) -> _Column:
        """The column of a name; of two that are alike, that of the first table."""
        shape = self.shape
        known = {name: (number, c) for number, own in reversed([*enumerate(self.names())]) for c, name in enumerate(own)}
        if name not in known:
            raise nearest("column", name, list(known))
        number, c = known[name]
        span = SPANS.index(shape.tables[number - 1].spans[c]) if number else 0
        stack = shape.stacks(number)[span]
        return _Column(number, span, stack, shape.columns(stack).index(c), c, self.columns[number])

    @cached_property
    def _blocks(self) -> dict[Any, Reals]:
        return self.tree.blocks(self.shape)

    def log_prob(self, tables: Mapping[str, pd.DataFrame] | pd.DataFrame) -> Tensor:
        """Log probability (n,) in nats of each person with all rows in order, as in samples; of a number: of its bin.

        It is that of the model before constraints and before a target is drawn last, in the order of the table of people, or of
        their keys where there is none.

        Raises:
            ValueError: tables of other names or columns, values outside of the schemas, or more rows of a person than m.
        """
        shape = self.shape
        return torch.from_numpy(
            np.concatenate([np.empty(0), *map(self._log_prob, self.coded(tables).parts(shape, together=_AT_ONCE))])
        )

    def _log_prob(self, codes: Histories) -> Reals:
        """Log probabilities of a few people, from the rows that nothing hangs on up to the people."""
        shape, columns = self.shape, self.columns
        logs: list[Any] = [self.people.joint(columns[0].coarse.apply(codes.people).T), *(0.0 for _ in codes.rows)]
        inside = columns[0].within(codes.people).sum(1)
        for number in range(len(codes.rows), 0, -1):
            rows, starts, branch = codes.rows[number - 1], codes.starts[number - 1], shape.tables[number - 1]
            place = np.arange(len(rows)) - np.repeat(starts[:-1], np.diff(starts))
            there = np.array([[p == 0 if s == "first" else p > 0 or s == "all" for s in branch.spans] for p in (0, 1)])
            owner = np.searchsorted(codes.of_people(number, shape), np.arange(len(rows)), side="right") - 1
            within = (columns[number].within(rows) * there[np.minimum(place, 1)]).sum(1)
            inside = inside + np.bincount(owner, within, len(inside))
            seen = self.tree.chains[number - 1].seen(columns[number].coarse.apply(rows).T, place, branch.spans)
            logs[branch.parent] = logs[branch.parent] + self.tree.chains[number - 1].forward(seen + logs[number], starts)[0]
        return np.asarray(np.logaddexp.reduce(logs[0], axis=1) + inside)

    # -- samples -------------------------------------------------------------------------------------------------------

    def sample(self, n: int | None = None, random_state: RandomState = None, **options: Any) -> Any:
        """n synthetic people with their rows as the data came: tables by name, or the rows alone; free of further cost.

        Without n they are as many as the noisy number of people.
        """
        return self.samples(self.size if n is None else n, random_state=random_state, **options).restored()

    def samples(self, n: int, *, random_state: RandomState = None, given: Mapping[str, Any] | None = None) -> LinkedSamples:
        """n synthetic people with their rows, free of further privacy cost.

        Classes, numbers of rows and values are systematic draws in each class: their shares are close to the model's.

        Arguments:
            given: by the names of the tables, values of people, see `TablesModel.samples`, and the first rows of all of them in
                tables that hang on people, a DataFrame or a list of mappings, without the columns that are not known: people
                follow the model's law given both, and so do their other rows.

        Raises:
            ValueError: a table, column or value that is not there, more first rows than there can be, or next to no draw
                satisfies all of it.
        """
        seed = sampling_seed(int(n), random_state)
        return Draws(self, np.random.default_rng(seed), torch.Generator().manual_seed(seed)).samples(int(n), given or {})

    def impute(self, tables: Mapping[str, pd.DataFrame] | pd.DataFrame, *, random_state: RandomState = None) -> Any:
        """The tables with nulls of people and rows replaced by draws from the model given the rest of the person; not kept.

        What a person has is complete: no rows are added. Keys, and the order of rows, must be known; columns that the model has
        not, and keys that name other people, stay. Of a person with more rows than m all are used. Values are drawn until they
        satisfy the constraints, within a row and between tables, as far as values that were filled are in them; a known total
        does not change the rows that it is the sum of. A null that constraints require stays. A target is drawn last.

        Arguments:
            tables: by name, or the rows alone where there is no table of people.

        Returns:
            Copies of the tables, in the order of their rows, with values written as those of the data were.

        Raises:
            TypeError: a table that is no DataFrame of pandas.
            ValueError: tables of other names or columns, keys that are missing or match nobody, values that the schemas do not
                allow, or gaps that no draw fills so that the constraints hold.
        """
        seed = sampling_seed(0, random_state)
        draws = Draws(self, np.random.default_rng(seed), torch.Generator().manual_seed(seed))
        return imputed(self, tables, draws.generator, draws.inner, partial(draws.target_last, given={}))

    # -- files ---------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        arrays = tree_saved(self.tree) | columns_saved(self.columns)
        arrays |= sums_saved(self._noisy) | keys_saved(self.references) | target_saved(self.target)
        return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}

    def description(self) -> dict[str, Any]:
        return {
            "schemas": [schema.descriptor() for schema in self.schemas],
            "sizes": [own.coarse.sizes for own in self.columns],
            "spans": self.spans,
            "n": self.size,
            "shown": self.shown,
            **sums_described(self._noisy),
            "others": keys_described(self.references),
            **target_described(self.target),
        }

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> RelationalModel:
        schemas = [Schema.from_descriptor(schema) for schema in description["schemas"]]
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        columns = columns_read(arrays, description, schemas)
        shape = shape_read(description, schemas, columns)
        noisy = sums_read(arrays, description, shape)
        found = cls(
            tree_read(arrays, shape),
            columns=columns,
            spans=description["spans"],
            schemas=schemas,
            shown=description["shown"],
            statement=statement,
            noisy=noisy,
            named=keys_read(arrays, description),
        )
        found.target = target_read(arrays, description, noisy.layout.levels)
        return found


def _block(placed: Sequence[_Column], kind: Kind) -> Block:
    """The table of one column, or of two of which the first one is not below the second."""
    if len(placed) == 1:
        return (kind if kind != "same" else "one", placed[0].stack, "unit")
    first, second = placed
    of_two = "both" if first.number != second.number else "row" if first.number else "people"
    return (kind if kind != "same" else of_two, first.stack, second.stack)


# -- saved releases: each part as arrays and JSON, and back ------------------------------------------------------------


def _numbered(name: str, number: int) -> str:
    """The name of an array of a table of rows; of the first one it has no number."""
    return name if number == 1 else f"{name}.{number}"


def _of_codes(number: int) -> str:
    """The name of the arrays of the codes of a table."""
    return _numbered("rows", number) if number else "people"


def _split(array: npt.NDArray[Any], sizes: Iterable[int]) -> list[npt.NDArray[Any]]:
    """Parts of an array, of these sizes."""
    return np.split(array, np.cumsum([*sizes])[:-1])


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


def sums_saved(noisy: NoisySums) -> Arrays:
    """Sums and numbers with their noise stds, and the groups of the levels."""
    stds = [np.broadcast_to(std, values.shape).ravel() for _, values, std in noisy.tables]
    found: Arrays = {"measured": np.concatenate([v.ravel() for _, v, _ in noisy.tables]), "noise_std": np.concatenate(stds)}
    found["counts"] = np.stack([np.r_[of] for of in zip(*noisy.counted)])
    for i, level in enumerate(noisy.layout.levels):
        found[f"level.{i}"] = np.concatenate([group for own in level for group in own.groups])
    return found


def sums_described(noisy: NoisySums) -> dict[str, Any]:
    """The tables that were measured, and the numbers of groups on each level."""
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
