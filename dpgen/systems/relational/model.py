"""The released model of people and their rows: linked samples, also given values of people, and its laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import islice
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.columns.forms import floats
from dpgen.release import PublicModel, RandomState, sampling_seed
from dpgen.samples import LinkedSamples
from dpgen.schema import Schema, nearest
from dpgen.statement import PrivacyStatement
from dpgen.systems.relational.chains import Chain, Tree, TreeFitter
from dpgen.systems.relational.draws import Draws
from dpgen.systems.relational.plan import sizes
from dpgen.systems.relational.references import Named
from dpgen.systems.relational.sums import (
    SPANS,
    WHOLE,
    Branch,
    Counts,
    Histories,
    Integers,
    Layout,
    Level,
    Reals,
    Shape,
    Table,
    place_of,
)
from dpgen.systems.tables.marginals import Coarsening, Columns
from dpgen.systems.tables.mixture import Mixture
from dpgen.systems.tables.model import TablesModel

Kind = Literal["same", "pair", "next"]

_REFITTED, _REFIT_STEPS, _HELD_BACK = 48, 400, 0.01  # classes and steps of a fit for intervals, and its information
_LEAST_PEOPLE = 4_000  # that a statistic is computed on
_AT_ONCE = 256  # people whose histories are gone through together


class RelationalModel(PublicModel, kind="relational"):
    """Classes of people, chains of classes of rows (see `chains`), and released shares of the codes inside each group.

    Arguments:
        tree: over groups of codes.
        columns: released ones of people, and of each table of rows, by their spans.
        spans: of the columns of each table of rows.
        schemas: of people and of each table of rows.
        size: noisy number of people.
        shown: how samples are given back: names of the tables, people's first if there is one, and of the person's column,
            the forms of the tables, and of each table of rows, `rows`, which one it hangs on, its key, m, the column that is
            their number, and those of the order and of times, see `dpgen.data.linked.LinkedRows`.
        statement: what the model cost.
        layout: of the tables that were measured.
        sums: tables with their noisy values and noise stds.
        counted: the noisy number of people with its noise std, and for each table of rows those of people, or of rows above,
            with each number of rows.
        named: sums of the keys by which rows name other people, see `references`.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        columns: Sequence[Columns],
        spans: Sequence[Sequence[str]],
        schemas: Sequence[Schema],
        size: int,
        shown: Mapping[str, Any],
        statement: PrivacyStatement,
        layout: Layout,
        sums: Sequence[tuple[Table, Reals, Any]],
        counted: Sequence[tuple[Any, Any]],
        named: Sequence[Named] = (),
    ) -> None:
        self.references = tuple(named)
        self._layout, self._sums, self._counted = layout, sums, counted
        orders = [[c for span in SPANS for c, own in enumerate(of) if own == span] for of in spans]
        self.orders = [list(range(len(columns[0].shares))), *orders]
        self.tree, self.columns, self.spans, self.schemas = tree, tuple(columns), spans, tuple(schemas)
        self.shown, self.statement, self._size = dict(shown), statement, size
        full = [Coarsening.full(columns[0].coarse.sizes)]
        own, schema = columns[0], schemas[0]
        self.people = TablesModel(tree.people, own, schema=schema, measurements=[], levels=full, statement=statement)

    @property
    def size(self) -> int:
        """A released (noisy) estimate of how many people the model was fitted to."""
        return max(1, self._size)

    @property
    def about(self) -> list[dict[str, Any]]:
        """Shown facts of each table of rows."""
        return list(self.shown["rows"])

    @property
    def shape(self) -> Shape:
        """Public facts of the tables, in groups of codes."""
        return self._layout.shape

    # -- laws ----------------------------------------------------------------------------------------------------------

    def counts(self) -> pd.DataFrame:
        """Released numbers of people and of their rows that are used: `estimate`, and `std` of the noise; one line a table.

        Of rows that hang on a row it is the model's number, without a std.
        """
        (n, std), *numbers = self._counted
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

    @property
    def named(self) -> bool:
        """Whether there is a table of people."""
        return len(self.shown["tables"]) > len(self.about)

    def measured(self) -> list[dict[str, Any]]:
        """Released tables: `kind` as in `sums`, columns, the group (size,) of each code, noisy sums, and their noise std.

        Every person has one whole in each table, in equal parts for all instances, see `sums`.
        """
        layout, names, found = self._layout, self._names(), []
        for table, values, std in self._sums:
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
        layout, sums = self._layout, self._sums if measurements is None else measurements
        precision = float(np.sqrt(sum(float(np.min(std)) ** -2 for _, _, std in sums)))
        shape = self.tree.chains[0].usual.shape if self.tree.chains else (len(self.tree.people.weights), 1)
        fitter = TreeFitter(
            layout,
            [own.group_shares for own in self.columns],
            float(self.size),
            classes=(min(_REFITTED, shape[0]), min(_REFITTED, shape[1])),
            information=_HELD_BACK * sizes(precision, self.size).information,
            generator=torch.Generator().manual_seed(int(generator.integers(2**62))),
        )
        fitter.measure(sums)
        fitter.run(_REFIT_STEPS, 0.05, 0.001)
        found = copy(self)
        found.tree, found.people, found._sums = fitter.tree, copy(self.people), sums
        found.people.mixture = found.tree.people
        found.__dict__.pop("_blocks", None)
        return found

    def measured_again(self, generator: np.random.Generator) -> list[tuple[Table, Reals, Any]]:
        """The measured tables of as many people of the model, with noise as there.

        They are drawn with replacement from four times as many: samples have systematic draws, which vary too little.
        """
        tables = self.samples(4 * self.size, random_state=generator).tables
        codes = self._codes(tables if len(tables) > 1 else next(iter(tables.values())))
        people = codes.chosen(generator.integers(0, len(codes.people), self.size), self.shape)
        layout, private = self._layout, people.grouped([own.coarse for own in self.columns])
        sums = Counts.of(private, layout).values / WHOLE
        return [
            (table, sums[layout.table_cells(table)] + std * generator.standard_normal(values.shape), std)
            for table, values, std in self._sums
        ]

    def population(self, generator: np.random.Generator, more: int = 1) -> Any:
        """So many people that a statistic of them and their rows says what it is of the model."""
        return self.samples(more * max(self.size, _LEAST_PEOPLE), random_state=generator).restored()

    def _names(self) -> list[list[str]]:
        """Names of the columns of each table, people's first, in the order of the tree."""
        prefixes = [f"{self.shown['tables'][0]}." if self.named else "", *(f"{table['name']}." for table in self.about)]
        return [
            [prefix + schema.domain.names[c] for c in order]
            for prefix, schema, order in zip(prefixes, self.schemas, self.orders)
        ]

    def marginal(self, columns: Sequence[str], kind: Kind = "same") -> Reals:
        """Joint probabilities of one column, or of two, over all of their codes; exact for the model before constraints.

        A row is one of a random person's: every person who has such rows counts as much as every other one.

        Arguments:
            columns: names with those of their tables, as "patients.sex" and "visits.ward".
            kind: "same" is of a person, or a row, and one of the rows that hang on it, "pair" of an earlier and a later row,
                "next" of a row and the one that follows it.

        Raises:
            ValueError: a column or a kind that is not there, or more than two columns.
        """
        if kind not in get_args(Kind):
            raise ValueError(f"kind is {kind!r}; choose one of {', '.join(get_args(Kind))}")
        if not 1 <= len(columns) <= 2:
            raise ValueError(f"columns has {len(columns)} names; it must have one or two")
        shape, names = self.shape, self._names()
        known = {name: (number, c) for number, own in reversed([*enumerate(names)]) for c, name in enumerate(own)}
        placed = []
        for name in columns:
            if name not in known:
                raise nearest("column", name, list(known))
            number, c = known[name]
            span = SPANS.index(shape.tables[number - 1].spans[c]) if number else 0
            stack = shape.stacks(number)[span]
            placed.append(((number, span), stack, shape.columns(stack).index(c), self.columns[number], c))
        flip = kind == "same" and len(placed) == 2 and placed[0][0] > placed[1][0]
        placed = placed[::-1] if flip else placed
        tables = [number for (number, _), *_ in placed]
        of_two = "both" if tables[0] != tables[-1] else "row" if tables[0] else "people"
        kind_of = kind if kind != "same" else "one" if len(placed) == 1 else of_two
        block = (kind_of, placed[0][1], placed[1][1] if len(placed) > 1 else "unit")
        if block not in shape.blocks or (placed[0] == placed[-1] and len(placed) == 2 and kind == "same"):
            raise ValueError(f"columns are {', '.join(columns)} with kind {kind!r}; the model has no such table")
        law = self._blocks[block]
        starts = [np.cumsum([0, *shape.sizes(stack)])[place] for _, stack, place, _, _ in placed]
        sizes = [own.coarse.sizes[c] for *_, own, c in placed]
        law = law[starts[0] : starts[0] + sizes[0]]
        law = law[:, starts[1] : starts[1] + sizes[1]] if len(placed) == 2 else law[:, 0]
        for axis, (*_, own, c) in enumerate(placed):
            law = own.spread(law, axis, c)
        return np.asarray((law.T if flip else law) / law.sum())

    @cached_property
    def _blocks(self) -> dict[Any, Reals]:
        return self.tree.blocks(self.shape)

    def log_prob(self, tables: Mapping[str, pd.DataFrame] | pd.DataFrame) -> Tensor:
        """Log probability (n,) in nats of each person with all rows in order, as in samples; of a number: of its bin.

        It is that of the model before constraints, in the order of the table of people, or of their keys where there is none.

        Raises:
            ValueError: tables of other names or columns, values outside of the schemas, or more rows of a person than m.
        """
        shape = self.shape
        return torch.from_numpy(
            np.concatenate([np.empty(0), *map(self._log_prob, self._codes(tables).parts(shape, together=_AT_ONCE))])
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

    def _codes(self, tables: Mapping[str, pd.DataFrame] | pd.DataFrame) -> Histories:
        """Codes of people and of rows in order of time, in the order of the tree."""
        person, wanted = self.shown["person"], self.shown["tables"]
        given = dict(tables) if isinstance(tables, Mapping) else {wanted[-1]: tables}
        if set(given) != set(wanted):
            raise ValueError(f"tables are {', '.join(map(str, given))}; they must be {', '.join(wanted)}")
        first = given[wanted[0]]
        if person not in first:
            raise ValueError(f"{wanted[0]} has no column {person!r}, which names the person")
        texts = first[person].astype(str)
        keys = [pd.Index(texts if self.named else sorted(set(texts)))]
        frames = [(first if self.named else pd.DataFrame(index=range(len(keys[0])))).reset_index(drop=True)]
        stamps, starts = list[Any]([None]), []
        for number, table in enumerate(self.about, 1):
            rows, link, above = given[table["name"]], self.link(number), keys[table["parent"]]
            if link not in rows:
                raise ValueError(f"{table['name']} has no column {link!r}, which names the person or the row it hangs on")
            owner = above.get_indexer(pd.Index(rows[link].astype(str))) if above.is_unique else np.full(len(rows), -1)
            if (owner < 0).any() or not above.is_unique:
                of = [*wanted, person][0] if not table["parent"] else self.about[table["parent"] - 1]["name"]
                what = "person once in {of}, and everybody who has rows" if not table["parent"] else "row once in {of}"
                raise ValueError(f"tables must have each {what.format(of=of)}")
            counts = np.bincount(owner, minlength=len(above))
            if counts.max(initial=0) > table["most"]:
                what = "person" if not table["parent"] else "row"
                raise ValueError(f"tables have a {what} with {counts.max()} rows; it must be at most {table['most']}")
            frames[table["parent"]] = frames[table["parent"]].assign(**{table["count"]: counts})
            rows, exact = self.timed(number, rows, owner, stamps[table["parent"]])
            frames.append(rows)
            stamps.append(exact)
            keys.append(pd.Index(rows[table["key"]].astype(str)) if table["key"] in rows else pd.Index([]))
            starts.append(np.r_[0, counts.cumsum()].astype(np.int64))
        codes = [s.encode(frame).numpy()[:, order] for s, frame, order in zip(self.schemas, frames, self.orders)]
        return Histories(codes[0], codes[1:], starts)

    def link(self, number: int) -> str:
        """The column by which rows hang on people, or on rows of another table."""
        parent = self.about[number - 1]["parent"]
        return str(self.about[parent - 1]["key"] if parent else self.shown["person"])

    def timed(self, number: int, rows: pd.DataFrame, owner: Integers, above: Any = None) -> tuple[pd.DataFrame, Any]:
        """Rows by owner and time, ties as they come, with the times between them; later ones have the order of the first.

        Of rows that follow the time of another row, `above`, the first one has the time since then.
        """
        table, schema = self.about[number - 1], self.schemas[number]
        order, gap, since = table["order"], table["gap"], table["since"]
        if order is None:
            return rows.iloc[np.argsort(owner, kind="stable")].reset_index(drop=True), None
        dated = table["dated"]
        form = schema.by_name[order].written_as if dated and order in schema.by_name else ""
        exact = floats(rows[order], "datetime" if dated else "number", form)
        if not np.isfinite(exact).all():
            raise ValueError(f"{order!r} must be known in every row")
        exact = np.floor_divide(exact, table["seconds"] if dated else 1).astype(np.int64)
        sort = np.lexsort((exact, owner))
        exact, owner, rows = exact[sort], owner[sort], rows.iloc[sort].reset_index(drop=True)
        fresh = np.diff(owner, prepend=-1) != 0
        first = np.flatnonzero(fresh)[fresh.cumsum() - 1]
        if gap in schema.by_name:
            least = schema.by_name[gap].bounds()[0][0]
            rows = rows.assign(**{gap: np.where(fresh, least, np.diff(exact, prepend=0)).astype(np.int64)})
        if since is not None:
            return rows.assign(**{since: exact[first] - above[owner]}), exact
        return rows.assign(**{order: rows[order].iloc[first].to_numpy()}), exact

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

    # -- files ---------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        arrays: dict[str, Any] = {"people": self.tree.people.probabilities, "weights": self.tree.people.weights}
        for number, chain in enumerate(self.tree.chains, 1):
            parts = (chain.usual, chain.first, chain.steps, chain.kept, chain.rows.probabilities)
            arrays |= {_numbered(name, number): part for name, part in zip(_PARTS, parts)}
        for number, columns in enumerate(self.columns):
            name = _numbered("rows", number) if number else "people"
            arrays |= {
                f"{name}.groups": np.concatenate(columns.coarse.groups),
                f"{name}.shares": np.concatenate(columns.shares),
            }
        sums = self._sums
        stds = [np.broadcast_to(std, values.shape).ravel() for _, values, std in sums]
        arrays |= {"measured": np.concatenate([v.ravel() for _, v, _ in sums]), "noise_std": np.concatenate(stds)}
        arrays |= {"counts": np.stack([np.r_[of] for of in zip(*self._counted)])}
        for i, level in enumerate(self._layout.levels):
            arrays[f"level.{i}"] = np.concatenate([group for own in level for group in own.groups])
        for i, named in enumerate(self.references):
            arrays |= {f"others.{i}.groups": np.concatenate(named.groups), f"others.{i}.degrees": named.degrees[0]}
            arrays |= {f"others.{i}.pairs.{c}": values for c, (values, _) in named.pairs.items()}
        return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}

    def description(self) -> dict[str, Any]:
        return {
            "schemas": [schema.descriptor() for schema in self.schemas],
            "sizes": [own.coarse.sizes for own in self.columns],
            "spans": self.spans,
            "n": self._size,
            "shown": self.shown,
            "tables": [[table.block, table.left, table.right, table.level] for table, _, _ in self._sums],
            "levels": [[own.sizes for own in level] for level in self._layout.levels],
            "others": [
                {
                    "table": named.number,
                    "column": named.column,
                    "pairs": {str(c): std for c, (_, std) in named.pairs.items()},
                    "degrees": named.degrees[1],
                }
                for named in self.references
            ],
        }

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> RelationalModel:
        schemas = [Schema.from_descriptor(schema) for schema in description["schemas"]]
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        shown, spans = description["shown"], description["spans"]
        orders = [[c for span in SPANS for c, own in enumerate(of) if own == span] for of in spans]
        widths = [schemas[0].domain.sizes, *([s.domain.sizes[c] for c in order] for s, order in zip(schemas[1:], orders))]
        columns = []
        for number, (grouped, own) in enumerate(zip(description["sizes"], widths)):
            name, ends = (_numbered("rows", number) if number else "people"), np.cumsum(own)[:-1]
            coarse = Coarsening(tuple(np.split(arrays[f"{name}.groups"], ends)), tuple(grouped))
            columns.append(Columns(tuple(np.split(arrays[f"{name}.shares"], ends)), description["n"], coarse, (), ()))
        weights, chains, branches = [arrays["weights"]], list[Chain](), list[Branch]()
        for number, (table, own, order) in enumerate(zip(shown["rows"], spans, orders), 1):
            usual, first, steps, kept, rows = (arrays[_numbered(name, number)] for name in _PARTS)
            weights.append(weights[table["parent"]] @ usual)
            chains.append(Chain(Mixture(rows, weights[-1], columns[number].coarse.sizes), usual, first, steps, kept))
            above = schemas[table["parent"]].domain.names.index(table["count"])
            count = orders[table["parent"] - 1].index(above) if table["parent"] else above
            sizes_of, spans_of = columns[number].coarse.sizes, tuple(own[c] for c in order)
            branches.append(Branch(sizes_of, spans_of, table["most"], table["parent"], count))
        shape, levels = Shape(columns[0].coarse.sizes, tuple(branches)), list[Level]()
        inner = [own.coarse.sizes for own in columns]
        for i, level in enumerate(description["levels"]):
            groups = iter(np.split(arrays[f"level.{i}"], np.cumsum([size for own in inner for size in own])[:-1]))
            levels.append(tuple(Coarsening(tuple(islice(groups, len(own))), tuple(own)) for own in level))
        layout, sums, at = Layout(shape, tuple(levels)), list[Any](), 0
        for block, left, right, number in description["tables"]:
            measured = Table(tuple(block), left, right, number)
            cells = layout.table_cells(measured)
            part = slice(at, at := at + cells.size)
            sums.append((measured, *(arrays[name][part].reshape(cells.shape) for name in ("measured", "noise_std"))))
        ends, named = np.cumsum(description["sizes"][0])[:-1], list[Named]()
        for i, own in enumerate(description.get("others", [])):
            pairs = {int(c): (arrays[f"others.{i}.pairs.{c}"], std) for c, std in own["pairs"].items()}
            degrees = arrays[f"others.{i}.degrees"], own["degrees"]
            named.append(Named(own["table"], own["column"], np.split(arrays[f"others.{i}.groups"], ends), pairs, degrees))
        tree, counted = Tree(Mixture(arrays["people"], weights[0], columns[0].coarse.sizes), tuple(chains)), list[Any]()
        values, stds, at = *arrays["counts"], 1
        for number, branch in enumerate(shape.tables, 1):
            part = slice(at, at := at + branch.most + 1 - shape.least(number))
            counted.append((values[part], stds[part]))
        counted = [(float(values[0]), float(stds[0])), *counted]
        options = {"schemas": schemas, "size": description["n"], "shown": shown, "statement": statement}
        options["named"] = named
        return cls(tree, columns=columns, spans=spans, layout=layout, sums=sums, counted=counted, **options)


_PARTS = ("usual", "first", "steps", "kept", "rows")


def _numbered(name: str, number: int) -> str:
    """The name of an array of a table of rows; of the first one it has no number."""
    return name if number == 1 else f"{name}.{number}"
