"""Classes of people and of their rows with released columns: the part of a release that samples and probabilities come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dpgen.columns.distances import Distance
from dpgen.columns.forms import floats
from dpgen.schema import Schema
from dpgen.systems.relational.chains import Chain, Tree
from dpgen.systems.relational.references import Named
from dpgen.systems.relational.sums import Histories, Integers, Reals, Shape, in_spans
from dpgen.systems.relational.target import Target
from dpgen.systems.tables.conditions import CodedMixture
from dpgen.systems.tables.imputation import require_frame
from dpgen.systems.tables.marginals import Coarsening, Columns
from dpgen.systems.tables.mixture import Mixture

_PLACE = "\0place"  # column of the place of a row in its table as it is given


@dataclass(frozen=True, eq=False)
class Walked:
    """Linked tables in the order of the model.

    Arguments:
        frames: of people and of each table of rows, by owner and time, with the columns of the model.
        starts: where the rows of each person, or of each row above, begin.
        times: order of all rows in whole units, None of people and of a table without one.
        people: whose each line of each table is.
        places: where each line of each table stood.
    """

    frames: list[pd.DataFrame]
    starts: list[Integers]
    times: list[Any]
    people: list[Integers]
    places: list[Integers]


class LinkedMixture:
    """A tree over groups of codes, released shares of the codes inside each group, and the tables that samples are.

    Arguments: see `RelationalModel`; `shape` is of groups of codes. `target` is the law of a column that is drawn last.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        columns: Sequence[Columns],
        spans: Sequence[Sequence[str]],
        schemas: Sequence[Schema],
        shown: Mapping[str, Any],
        shape: Shape,
        named: Sequence[Named] = (),
    ) -> None:
        self.tree, self.columns, self.spans, self.schemas = tree, tuple(columns), spans, tuple(schemas)
        self.orders = [list(range(len(columns[0].shares))), *map(in_spans, spans)]
        self.shown, self.shape, self.references = dict(shown), shape, tuple(named)
        self.target: Target | None = None

    @property
    def people(self) -> CodedMixture:
        """Products over the columns of people."""
        return self.lines[0]

    @cached_property
    def lines(self) -> list[CodedMixture]:
        """Products over the columns of people, and of the rows of each table, in schema order; weights of rows are means."""
        mixtures = [self.tree.people, *(chain.rows for chain in self.tree.chains)]
        return [_in_order(*own) for own in zip(mixtures, self.columns, self.schemas, map(np.argsort, self.orders))]

    @cached_property
    def chains(self) -> list[Chain]:
        """The chains of the tables of rows, with columns in schema order."""
        return [replace(chain, rows=own.mixture) for chain, own in zip(self.tree.chains, self.lines[1:])]

    @property
    def about(self) -> list[dict[str, Any]]:
        """Shown facts of each table of rows."""
        return list(self.shown["rows"])

    @property
    def named(self) -> bool:
        """Whether there is a table of people."""
        return len(self.shown["tables"]) > len(self.about)

    def names(self) -> list[list[str]]:
        """Names of the columns of each table, people's first, in the order of the tree."""
        prefixes = [f"{self.shown['tables'][0]}." if self.named else "", *(f"{table['name']}." for table in self.about)]
        return [
            [prefix + schema.domain.names[c] for c in order]
            for prefix, schema, order in zip(prefixes, self.schemas, self.orders)
        ]

    # -- values to codes -----------------------------------------------------------------------------------------------

    def coded(self, tables: Mapping[str, pd.DataFrame] | pd.DataFrame, *, drawn: bool = False) -> Histories:
        """Codes of people and of rows in order of time, in the order of the tree; `drawn`: of values as samples have them."""
        walked = self.walked(self.by_name(tables))
        both = zip(self.schemas, walked.frames, self.orders)
        codes = [(s.codes_of_samples(own) if drawn else s.encode(own).numpy())[:, order] for s, own, order in both]
        return Histories(codes[0], codes[1:], walked.starts)

    def walked(self, given: Mapping[str, pd.DataFrame], *, bounded: bool = True) -> Walked:
        """Tables by name as those of the model; not `bounded`: numbers of rows above m count as m.

        ValueError for keys that are missing or do not match, and more rows than m if they are bounded.
        """
        keys, frames = self._people(given)
        stamps, starts, people = list[Any]([None]), list[Integers](), [np.arange(len(frames[0]))]
        places = [people[0]]
        for number, table in enumerate(self.about, 1):
            rows, above = given[table["name"]], table["parent"]
            owner, counts = self._owners(number, rows, keys[above], bounded=bounded)
            frames[above] = frames[above].assign(**{table["count"]: np.minimum(counts, table["most"])})
            rows, exact = self.timed(number, rows.assign(**{_PLACE: np.arange(len(rows))}), owner, stamps[above])
            places.append(rows.pop(_PLACE).to_numpy())
            frames.append(rows)
            stamps.append(exact)
            keys.append(pd.Index(rows[table["key"]].astype(str)) if table["key"] in rows else pd.Index([]))
            starts.append(np.r_[0, counts.cumsum()].astype(np.int64))
            people.append(np.repeat(people[above], counts))
        return Walked(frames, starts, stamps, people, places)

    def by_name(self, tables: Mapping[str, pd.DataFrame] | pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Tables by their names, which must be those of the release, with its own names of keys."""
        wanted = self.shown["tables"]
        given = dict(tables) if isinstance(tables, Mapping) else {wanted[-1]: require_frame(tables, "tables")}
        if set(given) != set(wanted):
            raise ValueError(f"tables are {', '.join(map(str, given))}; they must be {', '.join(wanted)}")
        called = {name: self.shown["forms"].get(name, {}).get("renamed", {}) for name in wanted}
        return {name: require_frame(table, str(name)).rename(columns=called[name]) for name, table in given.items()}

    def _people(self, given: Mapping[str, pd.DataFrame]) -> tuple[list[pd.Index], list[pd.DataFrame]]:
        """Keys of people and their table, of those who have rows where there is none."""
        person, name = self.shown["person"], self.shown["tables"][0]
        first = given[name]
        if person not in first:
            raise ValueError(f"{name} has no column {person!r}, which names the person")
        if first[person].isna().any():
            raise ValueError(f"{name} has a row without {person!r}, which names the person; it must be known")
        texts = first[person].astype(str)
        keys = pd.Index(texts if self.named else sorted(set(texts)))
        return [keys], [(first if self.named else pd.DataFrame(index=range(len(keys)))).reset_index(drop=True)]

    def _owners(self, number: int, rows: pd.DataFrame, above: pd.Index, *, bounded: bool) -> tuple[Integers, Integers]:
        """The person, or the row above, of each row of a table, and how many rows each of these has."""
        table, link = self.about[number - 1], self.link(number)
        if link not in rows:
            raise ValueError(f"{table['name']} has no column {link!r}, which names the person or the row it hangs on")
        if rows[link].isna().any():
            raise ValueError(f"{table['name']} has a row without {link!r}, which names what it hangs on; it must be known")
        owner = above.get_indexer(pd.Index(rows[link].astype(str))) if above.is_unique else np.full(len(rows), -1)
        if (owner < 0).any() or not above.is_unique:
            of = self.about[table["parent"] - 1]["name"] if table["parent"] else self.shown["tables"][0]
            what = f"row once in {of}" if table["parent"] else f"person once in {of}, and everybody who has rows"
            raise ValueError(f"tables must have each {what}")
        counts = np.bincount(owner, minlength=len(above))
        if bounded and counts.max(initial=0) > table["most"]:
            what = "person" if not table["parent"] else "row"
            raise ValueError(f"tables have a {what} with {counts.max()} rows; it must be at most {table['most']}")
        return owner, counts

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
        if order not in rows:
            raise ValueError(f"{table['name']} has no column {order!r}, by which its rows are ordered")
        form = schema.by_name[order].written_as if dated and order in schema.by_name else ""
        exact = floats(rows[order], "datetime" if dated else "number", form)
        if not np.isfinite(exact).all():
            raise ValueError(f"{order!r} must be known in every row")
        step = table["seconds"] if dated else 1
        exact = np.floor_divide(exact, step).astype(np.int64)
        for own in (Distance(**given) for given in table.get("distances", []) if given["column"] in rows):
            away = own.of(rows[own.column], exact, step, table["name"])
            if (away < 0).any():
                ends = (order, own.column)[:: own.sign]
                raise ValueError(f"{table['name']} has a row whose {ends[1]!r} is before {ends[0]!r}")
            rows = rows.assign(**{own.made: away})
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

    # -- drawn tables --------------------------------------------------------------------------------------------------

    def rules(self, number: int) -> list[Mapping[str, Any]]:
        """Rules between people and the rows of a table that were found."""
        return [rule for rule in self.shown.get("rules", []) if rule["table"] == number]

    def owner(self, number: int, frames: Sequence[pd.DataFrame]) -> Integers:
        """The person, or the row of another table, on whom each row hangs."""
        above = frames[self.about[number - 1]["parent"]]
        return np.repeat(np.arange(len(above)), above[self.about[number - 1]["count"]].to_numpy(np.int64))

    def people_of(self, frames: Sequence[pd.DataFrame]) -> list[Integers]:
        """Whose each row of each table is."""
        found = [np.arange(len(frames[0]))]
        for number, table in enumerate(self.about, 1):
            found.append(found[table["parent"]][self.owner(number, frames)])
        return found

    def parts_of(self, frames: Sequence[pd.DataFrame]) -> list[Reals]:
        """Which part of its person each row of each table has."""
        found = [np.ones(len(frames[0]))]
        for number, table in enumerate(self.about, 1):
            counts = frames[table["parent"]][table["count"]].to_numpy(np.int64)
            found.append((found[table["parent"]] / np.maximum(counts, 1))[self.owner(number, frames)])
        return found

    def joined(self, frames: Sequence[pd.DataFrame], names: Sequence[str]) -> tuple[int, pd.DataFrame]:
        """The rows of the lowest of some tables with columns of those above, and its number."""
        wanted = {number: [name for name in names if self._number(name) == number] for number in map(self._number, names)}
        lowest = max(wanted)
        number, rows, found = lowest, np.arange(len(frames[lowest])), dict[str, Any]()
        while True:
            for name in wanted.get(number, []):
                found[name] = frames[number][name.partition(".")[2]].iloc[rows].reset_index(drop=True)
            if not number:
                return lowest, pd.DataFrame(found)
            rows, number = self.owner(number, frames)[rows], self.about[number - 1]["parent"]

    def add_up(self, frames: list[pd.DataFrame], column: str, total: str) -> None:
        """A column of a table is the sum of one of rows that hang on it."""
        low, high = self._number(column), self._number(total)
        values, number = pd.to_numeric(frames[low][column.partition(".")[2]]).to_numpy(np.float64), low
        rows = np.arange(len(values))
        while number != high:
            rows, number = self.owner(number, frames)[rows], self.about[number - 1]["parent"]
        frames[high][total.partition(".")[2]] = np.bincount(rows, values, len(frames[high])).round(9)

    def _number(self, name: str) -> int:
        """The number of the table of a column with the name of its table."""
        tables = ([] if self.named else [""]) + list(self.shown["tables"])
        return tables.index(next(table for table in tables if table and name.startswith(f"{table}.")))


def _in_order(mixture: Mixture, columns: Columns, schema: Schema, places: Integers) -> CodedMixture:
    """A mixture whose columns stand at these places."""
    coarse, sizes = columns.coarse, tuple(mixture.sizes[c] for c in places)
    groups, shares = tuple(coarse.groups[c] for c in places), tuple(columns.shares[c] for c in places)
    stacked = np.concatenate([mixture.probabilities[:0], *(mixture.block(c) for c in places)])
    own = Columns(shares, columns.n, Coarsening(groups, sizes), (), ())
    return CodedMixture(Mixture(stacked, mixture.weights, sizes), own, schema)
