r"""Classes of people and of their rows with released columns: what samples, probabilities and values for gaps come from.

Gaps of people and of their rows are filled by draws from the model given all else of the person. Classes are drawn from their
law given all known values of a person. With :math:`e_t(w)` the chance of row t, and of all rows that hang on it, in class w,
laws of the tables below go up to the person,

.. math:: \alpha_1(w) \propto q_1(w \mid z) \, e_1(w), \quad
    \alpha_{t+1}(w) \propto \sum_v \alpha_t(v) \, P(w \mid v, z) \, e_{t+1}(w), \quad
    P(w \mid v, z) = (1 - \rho_z) \, q(w \mid z) + \rho_z R_{vw},

z is drawn from :math:`\pi_z` times the chance of the person's own columns and of all rows, and classes of rows from the last
one back, :math:`w_t \sim \alpha_t(w) P(w_{t+1} \mid w, z)`. Columns are independent given the class, so gaps are draws in it.

Source: forward filtering, backward sampling; Carter and Kohn 1994, Biometrika 81(3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch

from dpgen.columns.constraints import constraint_of
from dpgen.columns.distances import Distance, restored
from dpgen.columns.fields import as_numbers
from dpgen.columns.forms import floats
from dpgen.containers import Form
from dpgen.schema import Schema
from dpgen.systems.relational.chains import Chain, Tree
from dpgen.systems.relational.references import Named
from dpgen.systems.relational.rules import settled
from dpgen.systems.relational.sums import Histories, Integers, Reals, Shape, in_spans, lines_of
from dpgen.systems.relational.target import Target
from dpgen.systems.tables.marginals import Coarsening, Columns, Flags
from dpgen.systems.tables.mixture import Classes, CodedMixture, Gaps, Mixture, placed, put, require_frame

Frames = list[pd.DataFrame]

_TOGETHER = 256
"""People whose classes are drawn together."""
_TRIES = 20
"""Draws of a person's classes until all of their gaps are filled so that the constraints hold."""
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
        if table["parent"]:
            what, of, more = "row", self.about[table["parent"] - 1]["name"], ""
        else:
            what, of, more = "person", self.shown["tables"][0], ", and everybody who has rows"
        owner = above.get_indexer(pd.Index(rows[link].astype(str))) if above.is_unique else np.full(len(rows), -1)
        if (owner < 0).any() or not above.is_unique:
            raise ValueError(f"tables must have each {what} once in {of}{more}")
        counts = np.bincount(owner, minlength=len(above))
        if bounded and counts.max(initial=0) > table["most"]:
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
        rows = _with_distances(table, rows, exact, step)
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
        """Part of its person that each row of each table has."""
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


def _with_distances(table: Mapping[str, Any], rows: pd.DataFrame, exact: Any, step: int) -> pd.DataFrame:
    """Rows with how far other times are from their own, `exact` in units of `step`."""
    for own in (Distance(**given) for given in table.get("distances", []) if given["column"] in rows):
        away = own.of(rows[own.column], exact, step, table["name"])
        if (away < 0).any():
            ends = (table["order"], own.column)[:: own.sign]
            raise ValueError(f"{table['name']} has a row whose {ends[1]!r} is before {ends[0]!r}")
        rows = rows.assign(**{own.made: away})
    return rows


def _in_order(mixture: Mixture, columns: Columns, schema: Schema, places: Integers) -> CodedMixture:
    """A mixture whose columns stand at these places."""
    coarse, sizes = columns.coarse, tuple(mixture.sizes[c] for c in places)
    groups, shares = tuple(coarse.groups[c] for c in places), tuple(columns.shares[c] for c in places)
    stacked = np.concatenate([mixture.probabilities[:0], *(mixture.block(c) for c in places)])
    own = Columns(shares, columns.n, Coarsening(groups, sizes), (), ())
    return CodedMixture(Mixture(stacked, mixture.weights, sizes), own, schema)


# -- gaps --------------------------------------------------------------------------------------------------------------


def imputed(
    model: LinkedMixture,
    tables: Mapping[str, pd.DataFrame] | pd.DataFrame,
    generator: np.random.Generator,
    inner: torch.Generator,
    last: Callable[[Frames], None],
) -> Any:
    """Linked tables with their gaps filled, as they are given; see `RelationalModel.impute`.

    `generator` draws classes and values, `inner` values inside bins, and `last` what is drawn last, in filled tables.
    """
    given, names = model.by_name(tables), [*([] if model.named else [""]), *model.shown["tables"]]
    walked = model.walked(given, bounded=False)
    people = _with_gaps(model, walked)
    walked = _copied(model, walked)
    gaps = [_gaps(*own) for own in zip(names, model.lines, walked.frames)]
    filled = _Filling.of(model, generator, inner, walked, gaps).run(people, last)
    found = dict(tables) if isinstance(tables, Mapping) else {names[-1]: tables}
    for number, name in enumerate(names):
        if name in given:
            places = walked.places[number]
            values = filled[number].set_axis(places[filled[number].index]).reindex(range(len(given[name])))
            form = model.shown["forms"].get(name)
            wanted = [column for column in values if column in found[name]]
            found[name] = put(found[name], values[wanted], None if form is None else Form.from_dict(form))
    return found if isinstance(tables, Mapping) else found[names[-1]]


def _gaps(name: str, lines: Any, frame: pd.DataFrame) -> Gaps:
    """The gaps of a table."""
    try:
        return Gaps.of(lines, frame)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _with_gaps(model: LinkedMixture, walked: Walked) -> Integers:
    """The people who have gaps, in their own columns or in their rows."""
    found = np.zeros(len(walked.frames[0]), bool)
    for schema, frame, people in zip(model.schemas, walked.frames, walked.people):
        known = [given.name for given in schema.fields if given.name in frame]
        np.logical_or.at(found, people, frame[known].isna().any(axis=1).to_numpy())
    return np.flatnonzero(found)


def _copied(model: LinkedMixture, walked: Walked) -> Walked:
    """The tables with values that copy each other where one of both is known."""
    frames = list(walked.frames)
    for rule in model.shown.get("rules", []):
        if rule["kind"] == "copy":
            number, people, rows = rule["table"], frames[0], frames[rule["table"]]
            owner = np.repeat(np.arange(len(people)), np.diff(walked.starts[number - 1]))
            first = rows[rule["column"]].groupby(owner).first()  # the first one that is known
            own = people[rule["of"]].astype(object)
            own = own.where(own.notna(), first.reindex(range(len(people))))
            frames[0] = people.assign(**{rule["of"]: own})
            above, below = own.iloc[owner].set_axis(rows.index), rows[rule["column"]].astype(object)
            frames[number] = rows.assign(**{rule["column"]: below.where(below.notna(), above)})
    return replace(walked, frames=frames)


@dataclass(frozen=True, eq=False)
class _Filling:
    """People with gaps, in their own columns or in those of their rows.

    `chances` (d, K) are the log chances of each class that a column has a value, and `absent` says of each value of a table
    whether it is to be filled. Gaps of `lax` lines may stay in columns that a constraint names.
    """

    model: LinkedMixture
    generator: np.random.Generator
    inner: torch.Generator
    walked: Walked
    gaps: Sequence[Gaps]
    chances: Sequence[Reals]
    absent: Frames
    lax: Sequence[Flags]

    @classmethod
    def of(
        cls, model: LinkedMixture, generator: np.random.Generator, inner: torch.Generator, walked: Walked, gaps: Sequence[Gaps]
    ) -> _Filling:
        """From tables in the order of the model."""
        chances = [own.restricted(own.inside(gap.present[0]))[1] for own, gap in zip(model.lines, gaps)]
        absent = [own.known.isna() for own in gaps]
        for number, table in enumerate(model.about, 1):
            absent[table["parent"]] = absent[table["parent"]].assign(**{table["count"]: np.diff(walked.starts[number - 1])})
            in_time = {own["column"]: absent[number][own["made"]] for own in table.get("distances", [])}
            absent[number] = absent[number].assign(**in_time | ({table["order"]: False} if table["order"] else {}))
        lax = [np.zeros(len(own.codes), bool) for own in gaps]
        return cls(model, generator, inner, walked, gaps, chances, absent, lax)

    def run(self, left: Integers, last: Callable[[Frames], None]) -> Frames:
        """Values of the lines of some people, by the numbers of the lines in their tables; `last` draws what comes last."""
        found: list[Frames] = [[own.known.iloc[:0]] for own in self.gaps]
        breaking = [people[own.hopeless & ~own.whole] for own, people in zip(self.gaps, self.walked.people)]
        never = np.intersect1d(np.concatenate(breaking), left)
        for attempt in range(0 if len(never) else _TRIES):
            if not len(left):
                break
            frames, people = self._attempt(left, last=attempt == _TRIES - 1)
            for own, frame in zip(found, frames):
                own.append(frame)
            left = np.setdiff1d(left, people)
        if len(left):
            raise ValueError(
                f"tables have {len(never) or len(left)} of {len(self.gaps[0].codes)} people whose gaps no draw fills so that "
                "the constraints hold; their other values must satisfy the constraints"
            )
        return self._finished([pd.concat(own[1:] or own).sort_index() for own in found], last)

    # -- one attempt ---------------------------------------------------------------------------------------------------

    def _attempt(self, people: Integers, *, last: bool) -> tuple[Frames, Integers]:
        """Values of the lines of people whose gaps are filled so that constraints hold, and these people, of some of all."""
        lines, _ = lines_of(people, self.walked.starts, self.model.shape)
        classes, drawn, failed = self._classes(people), list[pd.DataFrame](), np.zeros(len(self.gaps[0].codes), bool)
        for number, own in enumerate(self.gaps):
            of_all = np.zeros(len(own.codes), np.int64)
            of_all[lines[number]] = classes[number]
            values, bad = own.filled(lines[number], _fixed(of_all), self.generator, self.inner)
            drawn.append(values)
            self.lax[number][bad] = True
            failed[self.walked.people[number][bad]] = True
        kept = people[~failed[people]]
        frames = self._timed(kept, drawn)
        kept = kept[~self._broken(kept, frames, last=last)]
        lines, _ = lines_of(kept, self.walked.starts, self.model.shape)
        return [frame.loc[own] for frame, own in zip(frames, lines)], kept

    def _classes(self, people: Integers) -> list[Integers]:
        """Classes of all lines of some people, of their law given what is known of these people."""
        found: list[list[Integers]] = [[np.empty(0, np.int64)] for _ in self.gaps]
        for first in range(0, len(people), _TOGETHER):
            lines, starts = lines_of(people[first : first + _TOGETHER], self.walked.starts, self.model.shape)
            logs = [self._seen(number, own, starts) for number, own in enumerate(lines)]
            for number in range(len(self.model.chains), 0, -1):
                parent = self.model.shape.tables[number - 1].parent
                logs[parent] = logs[parent] + self.model.chains[number - 1].forward(logs[number], starts[number - 1])[0]
            classes = [placed(np.exp(logs[0] - logs[0].max(1, keepdims=True)), self.generator)]
            for number, chain in enumerate(self.model.chains, 1):
                above = classes[self.model.shape.tables[number - 1].parent]
                classes.append(states(chain, above, logs[number], starts[number - 1], self.generator))
            for own, more in zip(found, classes):
                own.append(more)
        return [np.concatenate(own) for own in found]

    def _seen(self, number: int, lines: Integers, starts: Sequence[Integers]) -> Reals:
        """Log chance (r, classes) of what is known of lines, and that the rest is there, by their own class."""
        groups = self.gaps[number].groups[lines]
        free = self.lax[number][lines, None] & ~np.array(self.gaps[number].present[1], bool)
        there = ((groups < 0) & ~free) @ self.chances[number]
        if not number:
            return self.model.people.joint(groups) + there
        counts = np.diff(starts[number - 1])
        place = np.arange(len(lines)) - np.repeat(starts[number - 1][:-1], counts)
        return self.model.chains[number - 1].seen(groups, place, self.model.spans[number - 1]) + there

    def _timed(self, people: Integers, drawn: Frames) -> Frames:
        """The lines of some people with their own times, what lies at a distance from these, and numbers of rows."""
        lines, starts = lines_of(people, self.walked.starts, self.model.shape)
        frames = [frame.loc[own] for frame, own in zip(drawn, lines)]
        for number, table in enumerate(self.model.about, 1):
            frames[table["parent"]] = frames[table["parent"]].assign(**{table["count"]: np.diff(starts[number - 1])})
            if table["order"] is not None:
                frames[number] = _in_time(frames[number], table, self.walked.times[number][lines[number]])
        return frames

    # -- rules between tables ------------------------------------------------------------------------------------------

    def _broken(self, people: Integers, frames: Frames, *, last: bool) -> Flags:
        """People (m,) who break a constraint between tables by a value that was filled.

        A date that must not be after a row, or before it, is drawn again, but in a `last` attempt.
        """
        lines, _ = lines_of(people, self.walked.starts, self.model.shape)
        absent = [own.iloc[rows] for own, rows in zip(self.absent, lines)]
        owners, found = self.model.people_of(frames), np.zeros(len(people), bool)
        for described in self.model.shown["across"]:
            if "sum" in described:
                continue
            rule = constraint_of(described)
            number, joined = self.model.joined(frames, rule.names)
            filled = self.model.joined(absent, rule.names)[1].to_numpy(bool).any(axis=1)
            np.logical_or.at(found, owners[number], ~rule.holds(joined) & filled)
        for dated in [] if last else self._dated():
            number, column, filled = dated["table"], dated["of"], absent[0][dated["of"]].to_numpy()[owners[dated["table"]]]
            days, unit = as_numbers(frames[number][self.model.about[number - 1]["order"]]), self._unit(number)
            ahead = (as_numbers(frames[0][column]) // unit)[owners[number]] - days // unit
            wrong = ahead > 0 if dated["kind"] == "from" else ahead < 0
            np.logical_or.at(found, owners[number], wrong & filled)
        return found

    def _unit(self, number: int) -> int:
        """Seconds of a unit of time of a table."""
        return int(self.model.about[number - 1]["seconds"])

    def _dated(self) -> list[Mapping[str, Any]]:
        """Rules of which nobody breaks that no row is before a date of its person, or none after it."""
        rules = self.model.shown.get("rules", [])
        return [rule for rule in rules if rule["kind"] in ("from", "until") and not rule["broken"]]

    def _follow_rules(self, frames: Frames, number: int, table: Mapping[str, Any]) -> None:
        """Columns that follow by rules between people and the rows of a table: dates at rows, copies, sums."""
        owner, rules = self.model.owner(number, frames), self.model.rules(number)
        if table["order"] is not None:
            in_units, holds = (table["order"], self._unit(number)), self.model.schemas[0].satisfied
            settled(rules, frames[number], in_units, frames[0], owner, holds)
        for rule in rules:
            if rule["kind"] == "copy":
                frames[number][rule["column"]] = frames[0][rule["of"]].iloc[owner].to_numpy()
            elif rule["kind"] == "sum":
                names = f"{table['name']}.{rule['column']}", f"{self.model.shown['tables'][0]}.{rule['of']}"
                self.model.add_up(frames, *names)

    def _finished(self, frames: Frames, last: Callable[[Frames], None]) -> Frames:
        """The lines with what follows from others: copies, dates at their rows, sums, and a target that is drawn last."""
        if not len(frames[0]):
            return frames
        lines = [frame.index for frame in frames]
        frames = [frame.reset_index(drop=True) for frame in frames]
        for number, table in enumerate(self.model.about, 1):
            self._follow_rules(frames, number, table)
        for described in self.model.shown["across"]:
            if "sum" in described:
                self.model.add_up(frames, described["sum"][0], described["total"])
        last(frames)
        return [frame.set_axis(own) for frame, own in zip(frames, lines)]


def _fixed(classes: Integers) -> Classes:
    """The classes (n,) of the lines of a table, whatever is tried."""
    return lambda rows, _: classes[rows]


def states(chain: Chain, z: Integers, seen: Reals, starts: Integers, generator: np.random.Generator) -> Integers:
    """Classes (r,) of rows by their law given all of them, from log chances `seen` (r, W), and the classes z (n,) above."""
    counts, laws, found = np.diff(starts), np.zeros(seen.shape), np.zeros(len(seen), np.int64)
    fresh, kept = ((1 - chain.kept)[:, None] * chain.usual)[z], chain.kept[z][:, None]
    for t in range(int(counts.max(initial=0))):
        on = np.flatnonzero(counts > t)
        rows = starts[on] + t
        law = chain.first[z[on]] if not t else fresh[on] + kept[on] * (laws[rows - 1] @ chain.steps)
        joint = law * np.exp(seen[rows] - seen[rows].max(1, keepdims=True))
        laws[rows] = joint / joint.sum(1, keepdims=True)
    for t in reversed(range(int(counts.max(initial=0)))):
        on = np.flatnonzero(counts > t)
        rows, law = starts[on] + t, laws[starts[on] + t]
        follow = np.flatnonzero(counts[on] > t + 1)
        after = found[rows[follow] + 1]
        law[follow] *= fresh[on[follow], after][:, None] + kept[on[follow]] * chain.steps[:, after].T
        found[rows] = placed(law, generator)
    return found


def _in_time(rows: pd.DataFrame, table: Mapping[str, Any], units: Integers) -> pd.DataFrame:
    """Rows with their own times, in whole units, and the columns at a distance from these."""
    order, seconds = table["order"], int(table["seconds"])
    kind = rows[order].dtype if order in rows else np.dtype("datetime64[s]" if table["dated"] else "int64")
    times = (units * seconds).astype("datetime64[s]").astype(kind) if table["dated"] else units
    rows = rows.assign(**{order: times})
    return rows.assign(**{own["column"]: restored(rows, order, own, seconds) for own in table.get("distances", [])})
