"""The released model of people and their rows: linked samples, also given values of people, and its laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from dpgen.constraints import constraint_of
from dpgen.release import LinkedSamples, PublicModel, RandomState, sampling_seed
from dpgen.schema import Schema, nearest
from dpgen.statement import PrivacyStatement
from dpgen.systems.relational.chains import Chain, ChainFitter
from dpgen.systems.relational.draws import TRIES, drawn, picked, systematic
from dpgen.systems.relational.plan import sizes
from dpgen.systems.relational.sums import SPANS, WHOLE, Counts, Histories, Integers, Layout, Level, Reals, Shape, Table
from dpgen.systems.tables.marginals import Coarsening, Columns
from dpgen.systems.tables.mixture import Mixture, edges
from dpgen.systems.tables.model import TablesModel
from dpgen.values import times

Kind = Literal["same", "pair", "next"]

_STACKS = ("person", *SPANS)
_REFITTED, _REFIT_STEPS, _HELD_BACK = 48, 400, 0.01  # classes and steps of a fit for intervals, and its information
_LEAST_PEOPLE = 4_000  # that a statistic is computed on
_AT_ONCE = 256  # people whose histories are gone through together


@dataclass(frozen=True, eq=False)
class _Begun:
    """First rows that everybody has.

    Arguments:
        rows: how many.
        known: their values, null where they are not known.
        logs: log chance (K,) of them in each class of people.
        last: law (K, W) of the class of the last one, given that of the person and them.
    """

    rows: int
    known: pd.DataFrame
    logs: Reals
    last: Reals


@dataclass(frozen=True, eq=False)
class Measured:
    """Released sums of tables, each with its noise std.

    Arguments:
        layout: of the tables.
        sums: tables with their noisy values and noise stds.
    """

    layout: Layout
    sums: Sequence[tuple[Table, Reals, Any]]


class RelationalModel(PublicModel, kind="relational"):
    """Classes of people, chains of classes of rows (see `chains`), and released shares of the codes inside each group.

    Arguments:
        chain: over groups of codes.
        people: released columns of people, the number of rows last.
        rows: released columns of rows, by their spans.
        spans: of the columns of rows.
        schemas: of people and of rows.
        size: noisy number of people.
        shown: how samples are given back: names of the tables, of the person's column, of the order and of the time since the
            last row, the seconds of its unit, the last possible value of the order, the forms of the tables.
        statement: what the model cost.
        measured: what was measured.
        counted: the noisy number of people with its noise std, and those of people with each number of rows.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        people: Columns,
        rows: Columns,
        spans: Sequence[str],
        schemas: tuple[Schema, Schema],
        size: int,
        shown: Mapping[str, Any],
        statement: PrivacyStatement,
        measured: Measured,
        counted: tuple[tuple[float, float], tuple[Reals, Reals]],
    ) -> None:
        self._measured, self._counted = measured, counted
        self._order = [c for span in SPANS for c, own in enumerate(spans) if own == span]
        self.chain, self.rows, self.spans, self.schemas = chain, rows, tuple(spans), schemas
        self.shown, self.statement, self._size = dict(shown), statement, size
        full = [Coarsening.full(people.coarse.sizes)]
        self.people = TablesModel(chain.people, people, schema=schemas[0], measurements=[], levels=full, statement=statement)

    @property
    def size(self) -> int:
        """A released (noisy) estimate of how many people the model was fitted to."""
        return max(1, self._size)

    # -- laws ----------------------------------------------------------------------------------------------------------

    def counts(self) -> pd.DataFrame:
        """Released numbers of people and of their rows that are used: `estimate`, and `std` of the noise; one line a table."""
        *named, of_rows = self.shown["tables"]
        (n, std), (people, stds) = self._counted
        numbers = np.arange(len(people)) + self._least
        found = dict.fromkeys(named or [self.shown["person"]], (n, std))
        found[of_rows] = float(numbers @ people), float(np.linalg.norm(numbers * stds))
        return pd.DataFrame.from_dict(found, orient="index", columns=["estimate", "std"])

    @property
    def _least(self) -> int:
        return int(self.shown["most"]) + 1 - int(self.chain.people.sizes[-1])

    def measured(self) -> list[dict[str, Any]]:
        """Released tables: `kind` as in `sums`, columns, the group (size,) of each code, noisy sums, and their noise std.

        Every person has one whole in each table, in equal parts for all instances, see `sums`.
        """
        layout, names, found = self._measured.layout, self._names(), []
        for table, values, std in self._measured.sums:
            level, groups = layout.levels[table.level], list[Any]()
            kind, *stacks = table.block
            for stack, place in zip(stacks, (table.left, table.right)):
                if stack in ("position", "unit"):
                    continue
                own, coarse = (self.people.columns, level.people) if stack == "person" else (self.rows, level.rows)
                c = layout.shape.columns(stack)[place]
                groups.append((names[stack == "person"][c], coarse.groups[c][own.coarse.groups[c]]))
            columns, codes = [name for name, _ in groups], [group for _, group in groups]
            noise = np.broadcast_to(std, values.shape)
            found.append({"kind": kind, "columns": columns, "groups": codes, "counts": values, "noise_std": noise})
        return found

    def refitted(self, generator: np.random.Generator, measurements: Any = None) -> RelationalModel:
        """The same release with a chain that is fitted to its own or to other sums of its tables, hardly held back."""
        layout, sums = self._measured.layout, self._measured.sums if measurements is None else measurements
        precision = float(np.sqrt(sum(float(np.min(std)) ** -2 for _, _, std in sums)))
        fitter = ChainFitter(
            layout,
            self.people.columns.group_shares,
            self.rows.group_shares,
            float(self.size),
            classes=(min(_REFITTED, self.chain.usual.shape[0]), min(_REFITTED, self.chain.usual.shape[1])),
            information=_HELD_BACK * sizes(precision, self.size).information,
            generator=torch.Generator().manual_seed(int(generator.integers(2**62))),
            kinds=sorted({table.block[0] for table, _, _ in sums}),
        )
        fitter.measure([layout.table_cells(table) for table, _, _ in sums], [v for _, v, _ in sums], [std for *_, std in sums])
        fitter.run(_REFIT_STEPS, 0.05, 0.001)
        found = copy(self)
        found.chain, found.people, found._measured = fitter.chain, copy(self.people), Measured(layout, sums)
        found.people.mixture = fitter.chain.people
        found.__dict__.pop("_blocks", None)
        return found

    def measured_again(self, generator: np.random.Generator) -> list[tuple[Table, Reals, Any]]:
        """The measured tables of as many people of the model, with noise as there.

        They are drawn with replacement from four times as many: samples have systematic draws, which vary too little.
        """
        *named, of_rows = self.shown["tables"]
        tables = self.samples(4 * self.size, random_state=generator).tables
        people, rows, starts = self._codes(tables if named else tables[of_rows])
        chosen = generator.integers(0, len(people), self.size)
        counts = np.diff(starts)[chosen]
        ends = counts.cumsum()
        rows = rows[np.repeat(starts[chosen] - ends + counts, counts) + np.arange(len(np.repeat(chosen, counts)))]
        people, starts, layout = people[chosen], np.r_[0, ends], self._measured.layout
        private = Histories(people, rows, starts).grouped(self.people.columns.coarse, self.rows.coarse)
        sums = Counts.of(private, layout).values / WHOLE
        return [
            (table, sums[layout.table_cells(table)] + std * generator.standard_normal(values.shape), std)
            for table, values, std in self._measured.sums
        ]

    def population(self, generator: np.random.Generator, more: int = 1) -> Any:
        """So many people that a statistic of them and their rows says what it is of the model."""
        return self.samples(more * max(self.size, _LEAST_PEOPLE), random_state=generator).restored()

    def _names(self) -> tuple[list[str], list[str]]:
        """Names of the columns of rows, in the order of the chain, and of people, by table."""
        *named, of_rows = self.shown["tables"]
        own = [self.schemas[1].domain.names[c] for c in self._order]
        prefix = f"{named[0]}." if named else ""
        return [f"{of_rows}.{name}" for name in own], [prefix + name for name in self.schemas[0].domain.names]

    def marginal(self, columns: Sequence[str], kind: Kind = "same") -> Reals:
        """Joint probabilities of one column, or of two, over all of their codes; exact for the model before constraints.

        A row is one of a random person's: every person who has such rows counts as much as every other one.

        Arguments:
            columns: names with those of their tables, as "patients.sex" and "visits.ward".
            kind: "same" is of one person and one of the person's rows, "pair" of an earlier and a later row, "next" of a row
                and the one that follows it.

        Raises:
            ValueError: a column or a kind that is not there, or more than two columns.
        """
        if kind not in get_args(Kind):
            raise ValueError(f"kind is {kind!r}; choose one of {', '.join(get_args(Kind))}")
        if not 1 <= len(columns) <= 2:
            raise ValueError(f"columns has {len(columns)} names; it must have one or two")
        layout, names = self._measured.layout, self._names()
        known = [*names[1], *names[0]]
        placed = []
        for name in columns:
            if name not in known:
                raise nearest("column", name, known)
            of_people = name in names[1]
            c = names[of_people].index(name)
            stack = "person" if of_people else layout.shape.spans[c]
            placed.append((stack, layout.shape.columns(stack).index(c), self.people.columns if of_people else self.rows, c))
        flip = kind == "same" and len(placed) == 2 and _STACKS.index(placed[0][0]) > _STACKS.index(placed[1][0])
        placed = placed[::-1] if flip else placed
        stacks = [stack for stack, *_ in placed]
        if kind == "same":
            kind_of = "one" if len(placed) == 1 else {0: "row", 1: "both", 2: "people"}[stacks.count("person")]
        block = (kind_of if kind == "same" else kind, stacks[0], stacks[1] if len(stacks) > 1 else "unit")
        if block not in layout.shape.blocks or (placed[0] == placed[-1] and len(placed) == 2 and kind == "same"):
            raise ValueError(f"columns are {', '.join(columns)} with kind {kind!r}; the model has no such table")
        law = self._blocks[block]
        starts = [np.cumsum([0, *layout.shape.sizes(stack)])[place] for stack, place, _, _ in placed]
        sizes = [own.coarse.sizes[c] for _, _, own, c in placed]
        law = law[starts[0] : starts[0] + sizes[0]]
        law = law[:, starts[1] : starts[1] + sizes[1]] if len(placed) == 2 else law[:, 0]
        for axis, (_, _, own, c) in enumerate(placed):
            group, share = own.coarse.groups[c], own.shares[c]
            law = np.moveaxis(np.moveaxis(law, axis, -1)[..., group] * (share / np.bincount(group, share)[group]), -1, axis)
        return np.asarray((law.T if flip else law) / law.sum())

    @cached_property
    def _blocks(self) -> dict[Any, Reals]:
        return self.chain.blocks(self._measured.layout.shape)

    def log_prob(self, tables: Mapping[str, pd.DataFrame] | pd.DataFrame) -> Tensor:
        """Log probability (n,) in nats of each person with all rows in order, as in samples; of a number: of its bin.

        It is that of the model before constraints, in the order of the table of people, or of their keys where there is none.

        Raises:
            ValueError: tables of other names or columns, values outside of the schemas, or more rows of a person than m.
        """
        people, rows, starts = self._codes(tables)
        place = np.arange(len(rows)) - np.repeat(starts[:-1], np.diff(starts))
        there = np.array([[p == 0 if s == "first" else p > 0 or s == "all" for s in self._sorted_spans] for p in (0, 1)])
        inside = np.add.reduceat(
            np.r_[(self.rows.within(rows) * there[np.minimum(place, 1)]).sum(1), 0.0], np.minimum(starts[:-1], len(rows))
        ) * (np.diff(starts) > 0)
        seen = self.chain.seen(self.rows.coarse.apply(rows).T, place, self._sorted_spans)
        result = np.empty(len(people))
        for part in range(0, len(people), _AT_ONCE):
            own = slice(part, part + _AT_ONCE)
            joint = self.people.joint(self.people.columns.coarse.apply(people[own]).T)
            begin = starts[part : part + _AT_ONCE + 1]
            logs, _ = self.chain.forward(seen[begin[0] : begin[-1]], begin - begin[0])
            result[own] = np.logaddexp.reduce(joint + logs, axis=1)
        return torch.from_numpy(result + self.people.columns.within(people).sum(1) + inside)

    @property
    def _sorted_spans(self) -> list[str]:
        return [self.spans[c] for c in self._order]

    def _codes(self, tables: Mapping[str, pd.DataFrame] | pd.DataFrame) -> tuple[Integers, Integers, Integers]:
        """Codes of people and of rows in order of time, and where the rows of each person begin."""
        *named, of_rows = self.shown["tables"]
        person, count = self.shown["person"], self.schemas[0].modelled[-1].name
        given = dict(tables) if isinstance(tables, Mapping) else {of_rows: tables}
        if set(given) != {*named, of_rows}:
            raise ValueError(f"tables are {', '.join(map(str, given))}; they must be {', '.join([*named, of_rows])}")
        rows = given[of_rows]
        for name, table in given.items():
            if person not in table:
                raise ValueError(f"{name} has no column {person!r}, which names the person")
        texts = rows[person].astype(str)
        keys = pd.Index(given[named[0]][person].astype(str) if named else sorted(set(texts)))
        owner = keys.get_indexer(pd.Index(texts)) if keys.is_unique else np.full(len(rows), -1)
        if (owner < 0).any() or not keys.is_unique:
            raise ValueError(f"tables must have each person once in {[*named, person][0]}, and everybody who has rows")
        counts = np.bincount(owner, minlength=len(keys))
        if counts.max(initial=0) > self.shown["most"]:
            raise ValueError(f"tables have a person with {counts.max()} rows; it must be at most {self.shown['most']}")
        people = (given[named[0]] if named else pd.DataFrame(index=range(len(keys)))).reset_index(drop=True)
        starts = np.r_[0, counts.cumsum()].astype(np.int64)
        rows = self._timed(rows, owner)
        codes = self.schemas[0].encode(people.assign(**{count: counts})).numpy(), self.schemas[1].encode(rows).numpy()
        return codes[0], codes[1][:, self._order], starts

    def _timed(self, rows: pd.DataFrame, owner: Integers) -> pd.DataFrame:
        """Rows by person and time, ties as they come, with the times between them; later ones have the order of the first."""
        order, gap = self.shown["order"], self.shown["gap"]
        if order is None:
            return rows.iloc[np.argsort(owner, kind="stable")].reset_index(drop=True)
        dated = self.schemas[1].by_name[order].type in ("date", "datetime")
        exact = times(rows[order]) if dated else pd.to_numeric(rows[order]).to_numpy(np.float64)
        if not np.isfinite(exact).all():
            raise ValueError(f"{order!r} must be known in every row")
        exact = np.floor_divide(exact, self.shown["seconds"] if dated else 1).astype(np.int64)
        sort = np.lexsort((exact, owner))
        exact, owner, rows = exact[sort], owner[sort], rows.iloc[sort].reset_index(drop=True)
        fresh = np.diff(owner, prepend=-1) != 0
        first = np.flatnonzero(fresh)[fresh.cumsum() - 1]
        if gap in self.schemas[1].by_name:
            least = self.schemas[1].by_name[gap].bounds()[0][0]
            rows = rows.assign(**{gap: np.where(fresh, least, np.diff(exact, prepend=0)).astype(np.int64)})
        return rows.assign(**{order: rows[order].iloc[first].to_numpy()})

    # -- samples -------------------------------------------------------------------------------------------------------

    def sample(self, n: int, random_state: RandomState = None, **options: Any) -> Any:
        """n synthetic people with their rows as the data came: tables by name, or the rows alone; free of further cost."""
        return self.samples(n, random_state=random_state, **options).restored()

    def samples(self, n: int, *, random_state: RandomState = None, given: Mapping[str, Any] | None = None) -> LinkedSamples:
        """n synthetic people with their rows, free of further privacy cost.

        Classes, numbers of rows and values are systematic draws in each class: their shares are close to the model's.

        Arguments:
            given: by the names of the tables, values of people, see `TablesModel.samples`, and the first rows of all of them,
                a DataFrame or a list of mappings, without the columns that are not known: people follow the model's law given
                both, and so do their other rows.

        Raises:
            ValueError: a table, column or value that is not there, more first rows than there can be, or next to no draw
                satisfies all of it.
        """
        seed = sampling_seed(int(n), random_state)
        generator, inner = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        *named, of_rows = self.shown["tables"]
        for name in given or {}:
            if name not in (*named, of_rows):
                raise ValueError(f"given is of {name!r}; it must be of {' or '.join([*named, of_rows])}")
        values = (given or {}).get(named[0], {}) if named else {}
        if not isinstance(values, Mapping):
            raise ValueError(f"given {named[0]} is {type(values).__name__}; it must be a mapping of columns to values")
        begun = self._begun((given or {}).get(of_rows, []))
        given_people, count = self._with_rows(dict(values), begun.rows), self.schemas[0].modelled[-1].name

        def draw(size: int) -> tuple[pd.DataFrame, pd.DataFrame]:
            people, z = self._people(size, given_people, begun, generator, inner)
            return people, self._linked(z, people[count].to_numpy(np.int64), begun, generator, inner)

        people, rows = self._satisfied(draw, int(n), count)
        counts = people[count].to_numpy(np.int64)
        keys = np.arange(1, len(counts) + 1)
        keys = keys.astype(str).astype(object) if self.shown["text"] else keys
        tables = {of_rows: rows.assign(**{self.shown["person"]: keys[np.repeat(np.arange(len(counts)), counts)]})}
        if named:
            tables = {named[0]: people.assign(**{self.shown["person"]: keys})} | tables
        return LinkedSamples.of(tables, self.shown["forms"], person=self.shown["person"], order=self.shown["order"])

    def _begun(self, given: Any) -> _Begun:
        """The first rows of everybody, as codes and as values."""
        if not (
            isinstance(given, pd.DataFrame) or (isinstance(given, list) and all(isinstance(row, Mapping) for row in given))
        ):
            of_rows = self.shown["tables"][-1]
            raise ValueError(
                f"given {of_rows} is {type(given).__name__}; it must be a DataFrame, or a list of a mapping for each row"
            )
        frame = pd.DataFrame(given).reset_index(drop=True)
        of_rows, (schema, order, gap) = self.shown["tables"][-1], (self.schemas[1], self.shown["order"], self.shown["gap"])
        k, w = self.chain.usual.shape
        if not len(frame):
            return _Begun(0, pd.DataFrame(), np.zeros(k), np.zeros((k, w)))
        if len(frame) > self.shown["most"]:
            raise ValueError(f"given {of_rows} has {len(frame)} rows; it must have at most {self.shown['most']}")
        names = [field.name for field in schema.modelled if field.name != gap]
        for name in frame:
            if name not in names:
                raise nearest(f"a column of given {of_rows}", str(name), names)
        full = frame.reindex(columns=names)
        full = self._timed(full, np.zeros(len(full), np.int64)) if order in frame else full
        codes, known = schema.known(full.reindex(columns=[field.name for field in schema.modelled]))
        groups = self.rows.coarse.apply(np.maximum(codes[:, self._order], 0)).T
        groups = np.where(codes[:, self._order] < 0, -1, groups)
        seen = self.chain.seen(groups, np.arange(len(groups)), self._sorted_spans)
        logs, last = self.chain.forward(seen, np.array([0, len(groups)]))
        return _Begun(len(groups), known, logs[0], last[0])

    def _with_rows(self, given: dict[str, Any], least: int) -> dict[str, Any]:
        """What is given of people, who have so many rows at least."""
        name = self.schemas[0].modelled[-1].name
        value = given.get(name)
        if not least:
            return given
        if value is None or isinstance(value, Mapping):
            return given | {name: {**(value or {}), "minimum": max(least, int((value or {}).get("minimum", 0)))}}
        kept = [one for one in (value if isinstance(value, list) else [value]) if int(one) >= least]
        if not kept:
            raise ValueError(f"given {name} is {value!r}; it must be at least {least}, for so many rows are given")
        return given | {name: kept}

    def _satisfied(self, draw: Any, n: int, count: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """n people and their rows, drawn again where constraints on both are broken; sums of rows follow."""
        *named, of_rows = self.shown["tables"]
        across = self.shown["across"]
        rules = [constraint_of(rule) for rule in across if "sum" not in rule]
        people, rows = draw(n)
        for _ in range(TRIES):
            owner = np.repeat(np.arange(len(people)), people[count].to_numpy(np.int64))
            holds = np.ones(len(rows), bool)
            if rules and len(rows):
                joined = rows.add_prefix(f"{of_rows}.").reset_index(drop=True)
                joined = joined.join(people.iloc[owner].add_prefix(f"{named[0]}.").reset_index(drop=True))
                holds = np.logical_and.reduce([rule.holds(joined) for rule in rules])
            left = np.bincount(owner, ~holds, len(people)) > 0
            if not left.any():
                for rule in across:
                    if "sum" in rule:
                        cost = pd.to_numeric(rows[rule["sum"][0].partition(".")[2]]).to_numpy(np.float64)
                        people[rule["total"].partition(".")[2]] = np.bincount(owner, cost, len(people)).round(9)
                return people, rows
            more = draw(int(left.sum()))
            people = pd.concat([people[~left], more[0]], ignore_index=True)
            rows = pd.concat([rows[~left[owner]], more[1]], ignore_index=True)
        raise ValueError(
            f"constraints on both tables accept none of {TRIES} draws of {int(left.sum())} of {n} people: they contradict the "
            "model, or what is given; loosen them, or fit with a greater epsilon"
        )

    def _linked(
        self,
        z: Integers,
        counts: Integers,
        begun: _Begun,
        generator: np.random.Generator,
        inner: torch.Generator,
    ) -> pd.DataFrame:
        """Rows of people of classes z (n,)."""
        owner = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(owner)) - np.repeat(counts.cumsum() - counts, counts)
        rows = self._rows(self._classes(z, owner, place, counts, begun, generator), generator, inner)
        if begun.rows and len(rows):
            own = np.flatnonzero(place < begun.rows)
            fixed = self.schemas[1].overlaid(
                rows.iloc[own].reset_index(drop=True), begun.known.iloc[place[own]].reset_index(drop=True)
            )
            rows = pd.concat([fixed.set_axis(own), rows.drop(index=own)]).sort_index()
        self._put_in_time(rows, owner, place)
        return rows

    def _people(
        self, n: int, given: dict[str, Any], begun: _Begun, generator: np.random.Generator, inner: torch.Generator
    ) -> tuple[pd.DataFrame, Integers]:
        """Values of n people, and their classes."""
        mixture, inside = self.people.conditioned(given)
        mixture = replace(mixture, weights=mixture.weights * np.exp(begun.logs - begun.logs.max()))
        z = np.searchsorted(
            edges(mixture.weights.astype(np.float64)), (np.arange(n) + generator.random()) / max(n, 1), side="right"
        )
        z = generator.permutation(z)

        def holds(table: pd.DataFrame) -> npt.NDArray[np.bool_]:
            return self.schemas[0].satisfied(table) & self.people.inside_ranges(table, given)

        shares = self.people.columns.shares
        found = drawn(z, mixture, self.people.columns, inside, self.schemas[0], shares, holds, generator, inner)
        for name, value in given.items():
            if not isinstance(value, list | Mapping) and not pd.isna(value):
                found[name] = pd.Series([value] * n, dtype=found[name].dtype)
        return found, z

    def _classes(
        self,
        z: Integers,
        owner: Integers,
        place: Integers,
        counts: Integers,
        begun: _Begun,
        generator: np.random.Generator,
    ) -> Integers:
        """Classes of all rows (r,), of people of classes z (n,); those of all but the last of given rows do not matter."""
        found = np.zeros(len(owner), np.int64)
        chain = self.chain
        for t in range(max(0, begun.rows - 1), int(counts.max(initial=0))):
            rows = np.flatnonzero(place == t)
            own = z[owner[rows]]
            fresh = systematic(own, generator)
            if t == 0 or t == begun.rows - 1:
                found[rows] = picked(begun.last if begun.rows else chain.first, own, fresh)
                continue
            stays = systematic(own, generator) < chain.kept[own]
            before = found[rows - 1]
            found[rows] = np.where(
                stays, picked(chain.steps, before, systematic(before, generator)), picked(chain.usual, own, fresh)
            )
        return found

    def _rows(self, classes: Integers, generator: np.random.Generator, inner: torch.Generator) -> pd.DataFrame:
        schema, places, inside = self.schemas[1], np.argsort(self._order), self.rows.shares
        shares, holds = [inside[place] for place in places], schema.satisfied
        return drawn(classes, self.chain.rows, self.rows, inside, schema, shares, holds, generator, inner, places=places)

    def _put_in_time(self, rows: pd.DataFrame, owner: Integers, place: Integers) -> None:
        """The order of each row: that of the first one and the times between the rows up to it."""
        order, gap = self.shown["order"], self.shown["gap"]
        if order is None or gap not in rows:
            return
        waits = np.where(place == 0, 0, np.maximum(pd.to_numeric(rows[gap]).to_numpy(np.float64), 0)).round().astype(np.int64)
        total = waits.cumsum()
        first = np.flatnonzero(place == 0)
        begin = np.repeat(first, np.diff(first, append=len(place)))
        since = total - total[begin]
        values = rows[order].to_numpy()[begin]
        if values.dtype.kind == "M":
            found = values + since * np.timedelta64(int(self.shown["seconds"]), "s")
            last = None if self.shown["until"] is None else np.datetime64(self.shown["until"])
        else:
            found, last = values + since, self.shown["until"]
        rows[order] = found if last is None else np.minimum(found, np.asarray(last).astype(found.dtype))

    # -- files ---------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        arrays = {
            "people": self.chain.people.probabilities,
            "weights": self.chain.people.weights,
            "usual": self.chain.usual,
            "first": self.chain.first,
            "steps": self.chain.steps,
            "kept": self.chain.kept,
            "rows": self.chain.rows.probabilities,
        }
        for name, columns in (("people", self.people.columns), ("rows", self.rows)):
            arrays |= {
                f"{name}.groups": np.concatenate(columns.coarse.groups),
                f"{name}.shares": np.concatenate(columns.shares),
            }
        sums = self._measured.sums
        stds = [np.broadcast_to(std, values.shape).ravel() for _, values, std in sums]
        arrays |= {"measured": np.concatenate([v.ravel() for _, v, _ in sums]), "noise_std": np.concatenate(stds)}
        arrays |= {"counts": np.stack([np.r_[of] for of in zip(*self._counted)])}
        for i, level in enumerate(self._measured.layout.levels):
            arrays[f"level.{i}"] = np.concatenate([*level.people.groups, *level.rows.groups])
        return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}

    def description(self) -> dict[str, Any]:
        return {
            "schemas": [schema.descriptor() for schema in self.schemas],
            "sizes": [self.chain.people.sizes, self.chain.rows.sizes],
            "spans": self.spans,
            "n": self._size,
            "shown": self.shown,
            "tables": [[table.block, table.left, table.right, table.level] for table, _, _ in self._measured.sums],
            "levels": [[level.people.sizes, level.rows.sizes] for level in self._measured.layout.levels],
        }

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> RelationalModel:
        schemas = [Schema.from_descriptor(schema) for schema in description["schemas"]]
        arrays, spans, made = {name: tensor.numpy() for name, tensor in tensors.items()}, description["spans"], []
        order = [c for span in SPANS for c, own in enumerate(spans) if own == span]
        widths = [schemas[0].domain.sizes, [schemas[1].domain.sizes[c] for c in order]]
        for name, grouped, own in zip(("people", "rows"), description["sizes"], widths):
            ends = np.cumsum(own)[:-1]
            coarse = Coarsening(tuple(np.split(arrays[f"{name}.groups"], ends)), tuple(grouped))
            made.append(Columns(tuple(np.split(arrays[f"{name}.shares"], ends)), description["n"], coarse, (), ()))
        people = Mixture(arrays["people"], arrays["weights"], made[0].coarse.sizes)
        rows = Mixture(arrays["rows"], arrays["weights"] @ arrays["usual"], made[1].coarse.sizes)
        chain = Chain(people, rows, *(arrays[name] for name in ("usual", "first", "steps", "kept")))
        both, inner = (schemas[0], schemas[1]), (made[0].coarse.sizes, made[1].coarse.sizes)
        shape = Shape(*inner, tuple(spans[c] for c in order), description["shown"]["most"])
        levels = []
        for i, (of_people, of_rows) in enumerate(description["levels"]):
            groups = np.split(arrays[f"level.{i}"], np.cumsum([*inner[0], *inner[1]])[:-1])
            a = len(inner[0])
            both_sides = (Coarsening(tuple(groups[:a]), tuple(of_people)), Coarsening(tuple(groups[a:]), tuple(of_rows)))
            levels.append(Level(*both_sides))
        layout, sums, at = Layout(shape, tuple(levels)), list[Any](), 0
        for block, left, right, level in description["tables"]:
            table = Table(tuple(block), left, right, level)
            cells = layout.table_cells(table)
            part = slice(at, at := at + cells.size)
            sums.append((table, *(arrays[name][part].reshape(cells.shape) for name in ("measured", "noise_std"))))
        (n, *people_counts), (std, *stds) = arrays["counts"]
        counted = ((float(n), float(std)), (np.array(people_counts), np.array(stds)))
        options = {"schemas": both, "size": description["n"], "shown": description["shown"], "statement": statement}
        options |= {"measured": Measured(layout, sums), "counted": counted}
        return cls(chain, people=made[0], rows=made[1], spans=spans, **options)
