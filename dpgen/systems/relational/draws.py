"""Synthetic people and their rows: draws of classes, and of values in classes, whose shares are close to those of their law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from dpgen.columns.constraints import constraint_of
from dpgen.columns.distances import restored
from dpgen.columns.forms import REPRESENTED
from dpgen.columns.writings.codes import numbered as keys_of
from dpgen.samples import LinkedSamples
from dpgen.schema import Schema, nearest
from dpgen.systems.relational.calendars import LEAST, Calendar, whole_units
from dpgen.systems.relational.chains import Chain
from dpgen.systems.relational.placing import Reach, Times, step_of
from dpgen.systems.relational.rules import copied, ends, settled
from dpgen.systems.relational.sums import Integers, Reals
from dpgen.systems.relational.target import Feature
from dpgen.systems.tables.mixture import CodedMixture, Gaps, evenly, filled, systematic

if TYPE_CHECKING:
    from dpgen.systems.relational.linked_mixture import LinkedMixture

TRIES, IN_CLASS = 100, 50
"""Draws of a row or a person until one satisfies the constraints; of these in its own class, before any other one is tried."""


def spread(groups: Integers, generator: np.random.Generator) -> Reals:
    """Numbers in [0, 1) for members of groups (n,): of a group of g one in each interval of length 1 / g, in random order."""
    order = np.lexsort((generator.random(len(groups)), groups))
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.diff(sorted_groups, prepend=-1))
    sizes = np.diff(starts, append=len(groups))
    rank = np.arange(len(groups)) - np.repeat(starts, sizes)
    found = np.empty(len(groups))
    found[order] = (rank + np.repeat(generator.random(len(starts)), sizes)) / np.repeat(sizes, sizes)
    return found


def picked(law: npt.NDArray[Any], given: Integers, uniform: Reals) -> Integers:
    """Classes (n,) by the rows `given` (n,) of a law (K, W), for numbers in [0, 1)."""
    ends = law.astype(np.float64).cumsum(1)
    ends /= ends[:, -1:]
    found = np.empty(len(given), np.int64)
    for row in np.unique(given):
        own = given == row
        found[own] = np.searchsorted(ends[row, :-1], uniform[own], side="right")
    return found


def _classes(
    chain: Chain,
    z: Integers,
    owner: Integers,
    place: Integers,
    counts: Integers,
    begun: Begun,
    generator: np.random.Generator,
) -> Integers:
    """Classes of all rows (r,) of classes z (n,) above; those of all but the last of given rows do not matter."""
    found = np.zeros(len(owner), np.int64)
    for t in range(max(0, begun.rows - 1), int(counts.max(initial=0))):
        rows = np.flatnonzero(place == t)
        own = z[owner[rows]]
        fresh = spread(own, generator)
        if t == 0 or t == begun.rows - 1:
            found[rows] = picked(begun.last if begun.rows else chain.first, own, fresh)
            continue
        stays = spread(own, generator) < chain.kept[own]
        before = found[rows - 1]
        found[rows] = np.where(stays, picked(chain.steps, before, spread(before, generator)), picked(chain.usual, own, fresh))
    return found


@dataclass(frozen=True, eq=False)
class Begun:
    """First rows that everybody has."""

    rows: int
    codes: Integers  # (rows, columns), -1 where a value is not known
    known: pd.DataFrame  # their values, null where they are not known
    logs: Reals  # log chance (K,) of them in each class of people
    last: Reals  # law (K, W) of the class of the last one, given that of the person and them

    def known_of(self, place: Integers) -> tuple[Integers, pd.DataFrame]:
        """Codes (r, d) and values of rows at these places (r,), as far as they are known."""
        there, at = place < self.rows, np.minimum(place, self.rows - 1)
        values = self.known.iloc[at].reset_index(drop=True)
        return np.where(there[:, None], self.codes[at], -1), values.where(np.broadcast_to(there[:, None], values.shape))

    @classmethod
    def nothing(cls, chain: Chain) -> Begun:
        """No rows."""
        return cls(0, np.empty((0, 0), np.int64), pd.DataFrame(), np.zeros(len(chain.kept)), np.zeros(chain.usual.shape))


def _in_time(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Descriptors of the order of a table, and of the columns that are times from there: the model of a row may lack them."""
    found = list[dict[str, Any]]()
    for name in [table["order"], *(own["column"] for own in table.get("distances", []))] if table["order"] else []:
        kind, form = table.get("times", {}).get(name, ("integer", ""))
        if name in table.get("times", {}) or not table["dated"]:
            found.append({"name": name, "type": kind} | ({"format": form} if form else {}))
    return found


class Draws:
    """Synthetic people and their rows, drawn from the people down to the rows that nothing hangs on.

    `generator` draws classes and values, `inner` values inside bins.
    """

    def __init__(self, model: LinkedMixture, generator: np.random.Generator, inner: torch.Generator) -> None:
        self.model, self.generator, self.inner, self.learns = model, generator, inner, False
        self._shares = dict[int, Reals]()  # parts of its person that each row of a table has

    def samples(self, n: int, given: Mapping[str, Any]) -> LinkedSamples:
        """n people with their rows; see `RelationalModel.samples`."""
        named = self.model.shown["tables"][:1] if self.model.named else []
        on_people = {table["name"]: number for number, table in enumerate(self.model.about, 1) if not table["parent"]}
        for name in given:
            if name not in (*named, *on_people):
                deeper = " (rows of other tables follow)" if name in self.model.shown["tables"] else ""
                raise ValueError(f"given is of {name!r}; it must be of {' or '.join([*named, *on_people])}{deeper}")
        values = given.get(named[0], {}) if named else {}
        if not isinstance(values, Mapping):
            raise ValueError(f"given {named[0]} is {type(values).__name__}; it must be a mapping of columns to values")
        begun, given_people = dict[int, Begun](), dict(values)
        for name, number in on_people.items():
            begun[number] = self._begun(number, given.get(name, []))
            given_people = self._with_rows(number, given_people, begun[number].rows)

        def draw(size: int) -> list[pd.DataFrame]:
            frames = self._draw(max(size, LEAST) if self._in_time else size, given_people, begun)
            return self._of_people(frames, np.arange(len(frames[0])) < size)

        return self._finished(self._satisfied(draw, n))

    def learn(self, n: int) -> None:
        """Learn from n people how rows are moved to the released days; constraints are left out."""
        if self._in_time:
            self.learns = True
            self._draw(n, {}, {})

    @property
    def _in_time(self) -> bool:
        return any(table.get("calendar") for table in self.model.about)

    def _draw(self, n: int, given: dict[str, Any], begun: Mapping[int, Begun]) -> list[pd.DataFrame]:
        """n people and their rows, before constraints on several tables."""
        people, z = self._people(n, given, sum((own.logs for own in begun.values()), np.zeros(1)))
        frames, classes, self._shares = [people], [z], {0: np.ones(n)}
        for number, table in enumerate(self.model.about, 1):
            own = begun.get(number) or Begun.nothing(self.model.tree.chains[number - 1])
            w, rows = self._linked(number, classes[table["parent"]], frames[table["parent"]], own)
            frames.append(rows)
            classes.append(w)
        self.target_last(frames, given)
        return frames

    def parts(self, n: int, features: Mapping[Feature, Integers]) -> dict[Feature, Reals]:
        """Shares (n, groups) of their rows, or of themselves, that n drawn people have in the groups of some columns."""
        return self._parts(self._draw(n, {}, {}), features)

    def _parts(self, frames: Sequence[pd.DataFrame], features: Mapping[Feature, Integers]) -> dict[Feature, Reals]:
        people, shares, found = self.model.people_of(frames), self.model.parts_of(frames), dict[Feature, Reals]()
        for (number, c), groups in features.items():
            schema, coarse = self.model.schemas[number], self.model.columns[number].coarse.groups[c]
            name = schema.domain.names[self.model.orders[number][c]]
            codes = schema.codes_of_samples(frames[number], [name])[:, 0].clip(0, len(coarse) - 1)
            size = int(groups.max()) + 1
            cells = people[number] * size + groups[coarse[codes]]
            sums = np.bincount(cells, shares[number], len(frames[0]) * size)
            found[number, c] = sums.reshape(-1, size).astype(np.float64)
        return found

    def target_last(self, frames: list[pd.DataFrame], given: Mapping[str, Any]) -> None:
        """Draw the target of people again, given all that was drawn; whoever would break a constraint keeps it."""
        target, schema, columns = self.model.target, self.model.schemas[0], self.model.columns[0]
        if target is None or (name := schema.domain.names[target.column]) in given:
            return
        law = target.law(self._parts(frames, target.groups)).cumsum(1)
        drawn = (law[:, :-1] < self.generator.random((len(law), 1))).sum(1)
        codes, group = schema.codes_of_samples(frames[0]), target.groups[0, target.column][columns.coarse.groups[target.column]]
        moved = drawn != group[codes[:, target.column].clip(0, len(group) - 1)]
        for kind in np.unique(drawn[moved]):
            share = columns.shares[target.column] * (group == kind)
            rows = np.flatnonzero(moved & (drawn == kind))
            codes[rows, target.column] = self.generator.choice(len(share), len(rows), p=share / share.sum())
        values = schema.decode(torch.from_numpy(codes), self.inner, columns.shares)[name]
        people = frames[0].assign(**{name: values.where(moved, frames[0][name])})
        kept = self._holds(schema)(people)
        frames[0] = people.assign(**{name: people[name].where(kept, frames[0][name])})

    def _finished(self, frames: list[pd.DataFrame]) -> LinkedSamples:
        """Tables with the keys that link them: numbers, by a pattern where they have one."""

        def numbered(size: int, about: Mapping[str, Any]) -> npt.NDArray[Any]:
            keys = np.arange(1, size + 1)
            pattern = about.get("pattern", "") or ("{}" if about["text"] else "")
            return keys_of(pattern, keys) if pattern else keys

        person, tables, links = self.model.shown["person"], dict[str, pd.DataFrame](), dict[str, tuple[str, str]]()
        keys, people = [numbered(len(frames[0]), self.model.shown)], self.model.people_of(frames)
        if self.model.named:
            tables[self.model.shown["tables"][0]] = frames[0].assign(**{person: keys[0]})
        for number, (table, rows) in enumerate(zip(self.model.about, frames[1:]), 1):
            keys.append(numbered(len(rows), table))
            own = {table["key"]: keys[-1]} if table["key"] is not None else {}
            above = self.model.about[table["parent"] - 1]["name"] if table["parent"] else self.model.shown["tables"][0]
            owner = keys[table["parent"]][self.model.owner(number, frames)]
            tables[table["name"]] = rows.assign(**{person: keys[0][people[number]]} | own | {self.model.link(number): owner})
            if above != table["name"]:
                links[table["name"]] = (self.model.link(number), above)
        others = self._others(frames, people, keys[0], tables)
        orders = {table["name"]: table["order"] for table in self.model.about if table["order"] is not None}
        names = [self.model.shown["tables"][0], *(table["name"] for table in self.model.about)]
        in_time = [[], *map(_in_time, self.model.about)]
        fields = {
            name: [*(own := schema.descriptor()["fields"]), *(t for t in times if t["name"] not in {f["name"] for f in own})]
            for name, schema, times in zip(names, self.model.schemas, in_time)
            if name in tables
        }
        patterns = {person: self.model.shown.get("pattern", "")}
        patterns |= {table["key"]: table.get("pattern", "") for table in self.model.about if table["key"] is not None}
        names_of_links = {"person": person, "orders": orders, "links": links, "patterns": patterns, "others": others}
        return LinkedSamples.of(tables, self.model.shown["forms"], fields=fields, **names_of_links)

    def _others(
        self,
        frames: Sequence[pd.DataFrame],
        people: Sequence[Integers],
        keys: npt.NDArray[Any],
        tables: dict[str, pd.DataFrame],
    ) -> dict[str, list[str]]:
        """Put keys of the people whom rows name into the tables; the columns by table."""
        found = dict[str, list[str]]()
        if not self.model.references:
            return found
        names, own = [self.model.shown["tables"][0], *(table["name"] for table in self.model.about)], self.model.columns[0]
        codes = own.coarse.apply(self.model.schemas[0].codes_of_samples(frames[0])).T
        for named in self.model.references:
            chosen = named.drawn(codes, people[named.number], self.generator)
            values, table = pd.Series(keys[np.maximum(chosen, 0)]), names[named.number]
            if (chosen < 0).any():
                values = (values.astype("Int64") if pd.api.types.is_integer_dtype(values) else values).mask(chosen < 0)
            tables[table] = tables[table].assign(**{named.column: values})
            found.setdefault(table, []).append(named.column)
        return found

    def _begun(self, number: int, given: Any) -> Begun:
        """The first rows of everybody in a table, as codes and as values."""
        table, schema, chain = self.model.about[number - 1], self.model.schemas[number], self.model.tree.chains[number - 1]
        of_rows, order = table["name"], table["order"]
        if not (
            isinstance(given, pd.DataFrame) or (isinstance(given, list) and all(isinstance(row, Mapping) for row in given))
        ):
            raise ValueError(
                f"given {of_rows} is {type(given).__name__}; it must be a DataFrame, or a list of a mapping for each row"
            )
        frame = pd.DataFrame(given).reset_index(drop=True)
        if not len(frame):
            return Begun.nothing(chain)
        if len(frame) > table["most"]:
            raise ValueError(f"given {of_rows} has {len(frame)} rows; it must have at most {table['most']}")
        names = [field.name for field in schema.fields if field.name != table["gap"]]
        after = [own["column"] for own in table.get("distances", []) if order in frame and order in names]
        for name in frame:
            if name not in [*names, *after]:
                raise nearest(f"a column of given {of_rows}", str(name), [*names, *after])
        full = frame.reindex(columns=[*names, *(name for name in after if name in frame)])
        full = self.model.timed(number, full, np.zeros(len(full), np.int64))[0] if order in frame else full
        gaps = Gaps.of(self.model.lines[number], full.reindex(columns=[field.name for field in schema.fields]))
        seen = self.model.chains[number - 1].seen(gaps.groups, np.arange(len(full)), self.model.spans[number - 1])
        logs, last = chain.forward(seen, np.array([0, len(full)]))
        return Begun(len(full), gaps.codes, gaps.known, logs[0], last[0])

    def _with_rows(self, number: int, given: dict[str, Any], least: int) -> dict[str, Any]:
        """Given values of people, who have so many rows at least."""
        name = self.model.about[number - 1]["count"]
        value = given.get(name)
        if not least:
            return given
        if value is None or isinstance(value, Mapping):
            return given | {name: {**(value or {}), "minimum": max(least, int((value or {}).get("minimum", 0)))}}
        kept = [one for one in (value if isinstance(value, list) else [value]) if int(one) >= least]
        if not kept:
            raise ValueError(f"given {name} is {value!r}; it must be at least {least}, for so many rows are given")
        return given | {name: kept}

    def _satisfied(self, draw: Any, n: int) -> list[pd.DataFrame]:
        """n people and their rows, drawn again where constraints on several tables are broken; sums of rows follow."""
        rules = [(constraint_of(rule), rule) for rule in self.model.shown["across"]]
        frames = draw(n)
        for _ in range(TRIES):
            owners, left = self.model.people_of(frames), np.zeros(len(frames[0]), bool)
            for rule, described in rules:
                if "sum" not in described:
                    number, joined = self.model.joined(frames, rule.names)
                    left |= np.bincount(owners[number], ~rule.holds(joined), len(left)) > 0 if len(joined) else False
            if not left.any():
                for _, described in rules:
                    if "sum" in described:
                        self.model.add_up(frames, described["sum"][0], described["total"])
                for found in [found for number in range(1, len(frames)) for found in self._rules(number)]:
                    if found["kind"] == "sum":
                        self._computed(frames, found)
                return frames
            more = draw(int(left.sum()))
            kept = self._of_people(frames, ~left)
            frames = [pd.concat(both, ignore_index=True) for both in zip(kept, more)]
        raise ValueError(
            f"constraints on several tables accept none of {TRIES} draws of {int(left.sum())} of {n} people: they contradict "
            "the model, or what is given; loosen them, or fit with a greater epsilon"
        )

    def _of_people(self, frames: Sequence[pd.DataFrame], chosen: npt.NDArray[np.bool_]) -> list[pd.DataFrame]:
        """Some of the people (n,), with all of their rows."""
        if chosen.all():
            return list(frames)
        return [frame[chosen[owner]].reset_index(drop=True) for frame, owner in zip(frames, self.model.people_of(frames))]

    def _computed(self, frames: list[pd.DataFrame], rule: Mapping[str, Any]) -> None:
        """A column of people is the sum of one of their rows, but for the share of people who break this rule."""
        before, table = frames[0][rule["of"]], self.model.about[rule["table"] - 1]["name"]
        names = f"{table}.{rule['column']}", f"{self.model.shown['tables'][0]}.{rule['of']}"
        self.model.add_up(frames, *names)
        found = frames[0][rule["of"]].where(self.generator.random(len(before)) >= rule["broken"], before)
        frames[0][rule["of"]] = found.round().astype(before.dtype) if pd.api.types.is_integer_dtype(before.dtype) else found

    def _linked(
        self,
        number: int,
        z: Integers,
        above: pd.DataFrame,
        begun: Begun,
    ) -> tuple[Integers, pd.DataFrame]:
        """Classes and values of the rows that hang on people, or rows, of classes z (n,)."""
        table = self.model.about[number - 1]
        counts = above[table["count"]].to_numpy(np.int64)
        owner = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(owner)) - np.repeat(counts.cumsum() - counts, counts)
        self._shares[number] = (self._shares[self.model.about[number - 1]["parent"]] / np.maximum(counts, 1))[owner]
        w = _classes(self.model.tree.chains[number - 1], z, owner, place, counts, begun, self.generator)
        own = CodedMixture(self.model.tree.chains[number - 1].rows, self.model.columns[number], self.model.schemas[number])
        known = begun.known_of(place) if begun.rows else None
        rows, w = self._values(own, w, known=known, places=np.argsort(self.model.orders[number]))
        fits = self._fitting(number, rows, above, owner, begun.rows)
        if not fits.all():
            rows, owner, w = rows[fits].reset_index(drop=True), owner[fits], w[fits]
            counts = np.bincount(owner, minlength=len(above))
            above[table["count"]] = counts.astype(above[table["count"]].dtype)
            self._shares[number] = (self._shares[table["parent"]] / np.maximum(counts, 1))[owner]
        self._put_in_time(number, rows, above, owner, w, begun.rows)
        if table["order"] is not None:
            holds = self._holds(self.model.schemas[table["parent"]])
            settled(self._rules(number), rows, (table["order"], int(table["seconds"])), above, owner, holds)
        copied(self._rules(number), rows, above, owner, self.generator)
        return w, rows

    def _rules(self, number: int) -> list[Mapping[str, Any]]:
        """Rules between people and the rows of a table that were found."""
        return self.model.rules(number)

    def _holds(self, schema: Schema) -> Any:
        """Rows of a table (n,) that satisfy the schema."""
        return (lambda table: np.ones(len(table), bool)) if self.learns else schema.satisfied

    def _people(self, n: int, given: dict[str, Any], logs: Any) -> tuple[pd.DataFrame, Integers]:
        """Values of n people, and their classes."""
        own = self.model.people
        mixture, inside = own.conditioned(given)
        mixture = replace(mixture, weights=mixture.weights * np.exp(logs - logs.max()))
        z = self.generator.permutation(systematic(mixture, n, self.generator))
        return self._values(CodedMixture(mixture, own.columns, own.schema), z, given, inside)

    def _values(
        self,
        own: CodedMixture,
        classes: Integers,
        given: Mapping[str, Any] | None = None,
        inside: Sequence[Reals] | None = None,
        known: tuple[Integers, pd.DataFrame] | None = None,
        places: Integers | None = None,
    ) -> tuple[pd.DataFrame, Integers]:
        """Values of people, or rows, of some classes (n,), drawn again until they satisfy the constraints, and their classes.

        All have what is `given`; codes (n, d), -1 where there is none, and parsed values that are `known` stay. A line of which
        no draw in its class satisfies the constraints gets another class. `places` are those of columns in the schema.
        """
        given, schema, inside = given or {}, own.schema, inside or own.columns.shares
        places = np.arange(len(inside)) if places is None else places
        shares = [own.columns.shares[c] for c in places]
        codes, values = known or (np.full((len(classes), 1), -1), pd.DataFrame(index=range(len(classes))))
        holds = partial(own.inside_ranges, given=given) if any(isinstance(one, Mapping) for one in given.values()) else None
        classes, left, found = classes.copy(), np.arange(len(classes)), list[pd.DataFrame]()

        def drawn(lines: Integers) -> torch.Tensor:
            groups = filled(own.mixture, classes[lines], partial(evenly, generator=self.generator))
            fresh = own.columns.refined(groups, inside, self.generator)[:, places]
            return torch.from_numpy(np.where(codes[lines] < 0, fresh, codes[lines]))

        for attempt in range(TRIES):
            if attempt >= IN_CLASS:
                classes[left] = self.generator.permutation(systematic(own.mixture, len(left), self.generator))
            order = left[np.argsort(classes[left], kind="stable")]
            fixed = {name: column.iloc[order].reset_index(drop=True) for name, column in values.items()}
            if self.learns:
                table = schema.decode(drawn(order), self.inner, shares, fixed)
            else:
                ways: dict[str, Any] = {"holds": holds, "known": fixed, "fixed": own.fixed(given), "about": given}
                table = schema.values(drawn(order), self.inner, shares, **ways)
            found.append(table.set_axis(order[table.index]))
            left = np.setdiff1d(left, order[table.index])
            if not len(left):
                break
        else:
            raise ValueError(
                f"constraints accept none of {TRIES} draws of {len(left)} of {len(classes)} lines: they contradict the model, "
                "or what is given; loosen them, or fit with a greater epsilon"
            )
        values, free = pd.concat(found).sort_index(), (codes < 0).all(axis=1)
        if free.any() and not self.learns:
            pool = partial(self.generator.choice, np.flatnonzero(free))
            breaking = schema.broken_as_said(values[free], lambda n: drawn(np.sort(pool(n))), self.inner, shares, {*given})
            values = pd.concat([breaking, values[~free]]).sort_index()
        return values, classes

    def _fitting(
        self, number: int, rows: pd.DataFrame, above: pd.DataFrame, owner: Integers, begun: int
    ) -> npt.NDArray[np.bool_]:
        """The rows that the calendar has room for; all of them where no schema states gaps."""
        timed = self._timed(number, rows, above, owner, begun)
        if timed is None or timed.calendar is None or not timed.histories.stated:
            return np.ones(len(rows), bool)
        return timed.histories.fitting(timed.calendar, timed.free)

    def _timed(self, number: int, rows: pd.DataFrame, above: pd.DataFrame, owner: Integers, begun: int) -> _Timed | None:
        """Rows in order of time: that of the first one and the times between the rows up to each; None: there is no order."""
        table = self.model.about[number - 1]
        order, gap, since = table["order"], table["gap"], table["since"]
        if order is None or (since is None and gap not in rows):
            return None
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        counts = np.diff(first, append=len(owner))
        wait = pd.to_numeric(rows[gap]).to_numpy(np.float64) if gap in rows else np.zeros(len(rows))
        wait[first] = 0.0
        total = np.maximum(wait, 0).round().astype(np.int64).cumsum()
        after, begin = total - np.repeat(total[first], counts), np.repeat(first, counts)
        if since is None:
            values = rows[order].to_numpy()[begin]
        else:
            values = above[self.model.about[table["parent"] - 1]["order"]].to_numpy()[owner]
            after = after + pd.to_numeric(rows[since]).to_numpy(np.float64).round().astype(np.int64)[begin]
        seconds = int(table["seconds"]) if values.dtype.kind == "M" else None
        fields, limits = self.model.schemas[number].by_name, None
        gaps = Reach.of(fields[gap], wait.astype(np.int64)) if gap in fields else Reach.free(len(rows), 0, 0)
        if since is not None:
            limits = Reach.of(fields[since], after[first])
        fixed = max(begun, int(since is None))
        step = step_of(fields[order]) if order in fields else 1
        histories = Times(whole_units(values, seconds), after, first, counts, fixed, gaps, limits, step)
        known = Calendar(table["calendar"], seconds) if table.get("calendar") else None
        return _Timed(histories, known, since is None and not begun, seconds, values.dtype)

    def _put_in_time(
        self, number: int, rows: pd.DataFrame, above: pd.DataFrame, owner: Integers, w: Integers, begun: int
    ) -> None:
        """The order of each row, inside the calendar."""
        table, timed, span = self.model.about[number - 1], self._timed(number, rows, above, owner, begun), None
        if timed is not None:
            own, known, seconds = timed.histories, timed.calendar, timed.seconds
            most = 2 * REPRESENTED[1] // (seconds or 1)
            units = own.base + (own.after if seconds is None else own.after.clip(-most, most))
            if known is not None:
                limits = ends(self._rules(number), above, seconds, self.generator)
                limits = limits[0][owner[own.first]], limits[1][owner[own.first]]
                groups = w[own.first] if timed.free else None
                units = own.inside(known, groups, limits, self.generator, self._shares[number] if self.learns else None)
                span = known.last - known.first
            rows[table["order"]] = _until(units, seconds, timed.dtype, table["until"])
        for away in table.get("distances", []):
            rows[away["column"]] = restored(rows, table["order"], away, int(table["seconds"]), span)


@dataclass(frozen=True, eq=False)
class _Timed:
    """Rows in order of time, and their calendar.

    `free`: first days may be exchanged. `seconds` is a unit of dates, None: the order is a whole number.
    """

    histories: Times
    calendar: Calendar | None
    free: bool
    seconds: int | None
    dtype: Any


def _until(units: Integers, seconds: int | None, dtype: Any, until: Any) -> npt.NDArray[Any]:
    """The order of rows (r,) in whole units, as it is or as dates; none is later than the last one that a schema states."""
    if seconds is None:
        return units if until is None else np.minimum(units, np.asarray(until).astype(units.dtype))
    low, high = (np.datetime64(bound, "s") for bound in REPRESENTED)
    found = np.clip((units * seconds).astype("datetime64[s]"), low, high).astype(dtype)
    return found if until is None else np.minimum(found, np.asarray(np.datetime64(until)).astype(found.dtype))
