r"""Gaps of people and of their rows, filled by draws from the model given all else of the person.

Classes are drawn from their law given all known values of a person. With :math:`e_t(w)` the chance of row t, and of all rows
that hang on it, in class w, laws of the tables below go up to the person,

.. math:: \alpha_1(w) \propto q_1(w \mid z) \, e_1(w), \quad
    \alpha_{t+1}(w) \propto \sum_v \alpha_t(v) \, P(w \mid v, z) \, e_{t+1}(w), \quad
    P(w \mid v, z) = (1 - \rho_z) \, q(w \mid z) + \rho_z R_{vw},

z is drawn from :math:`\pi_z` times the chance of the person's own columns and of all rows, and classes of rows from the last
one back, :math:`w_t \sim \alpha_t(w) P(w_{t+1} \mid w, z)`. Columns are independent given the class, so gaps are draws in it.

Source: forward filtering, backward sampling; Carter and Kohn 1994, Biometrika 81(3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from dpgen.columns.constraints import constraint_of
from dpgen.columns.distances import restored
from dpgen.columns.fields import as_numbers
from dpgen.containers import Form
from dpgen.systems.relational.chains import Chain
from dpgen.systems.relational.draws import Draws
from dpgen.systems.relational.linked_mixture import LinkedMixture, Walked
from dpgen.systems.relational.rules import settled
from dpgen.systems.relational.sums import Integers, Reals, lines_of
from dpgen.systems.tables.imputation import Classes, Gaps, placed, put

Flags = npt.NDArray[np.bool_]
Frames = list[pd.DataFrame]

_TOGETHER = 256
"""People whose classes are drawn together."""
_TRIES = 20
"""Draws of a person's classes until all of their gaps are filled so that the constraints hold."""


def imputed(model: LinkedMixture, tables: Mapping[str, pd.DataFrame] | pd.DataFrame, seed: int) -> Any:
    """Linked tables with their gaps filled, as they are given; see `RelationalModel.impute`."""
    given, names = model.by_name(tables), [*([] if model.named else [""]), *model.shown["tables"]]
    walked = model.walked(given, bounded=False)
    people = _with_gaps(model, walked)
    walked = _copied(model, walked)
    gaps = [_gaps(*own) for own in zip(names, model.lines, walked.frames)]
    filled = _Filling.of(model, walked, gaps, seed).run(people)
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

    `chains` have the columns of rows in the order of their schema, `chances` (d, K) are the log chances of each class that a
    column has a value, and `absent` says of each value of a table whether it is to be filled. Gaps of `lax` lines may stay in
    columns that a constraint names.
    """

    model: LinkedMixture
    draws: Draws
    walked: Walked
    gaps: Sequence[Gaps]
    chains: Sequence[Chain]
    chances: Sequence[Reals]
    absent: Frames
    lax: Sequence[Flags] = field(default_factory=list)

    @classmethod
    def of(cls, model: LinkedMixture, walked: Walked, gaps: Sequence[Gaps], seed: int) -> _Filling:
        """From tables in the order of the model."""
        draws = Draws(model, np.random.default_rng(seed), torch.Generator().manual_seed(seed))
        chances = [own.restricted(own.inside(gap.present[0]))[1] for own, gap in zip(model.lines, gaps)]
        absent = [own.known.isna() for own in gaps]
        for number, table in enumerate(model.about, 1):
            absent[table["parent"]] = absent[table["parent"]].assign(**{table["count"]: np.diff(walked.starts[number - 1])})
            in_time = {own["column"]: absent[number][own["made"]] for own in table.get("distances", [])}
            absent[number] = absent[number].assign(**in_time | ({table["order"]: False} if table["order"] else {}))
        return cls(model, draws, walked, gaps, model.chains, chances, absent, [np.zeros(len(own.codes), bool) for own in gaps])

    def run(self, left: Integers) -> Frames:
        """Values of the lines of some people, by the numbers of the lines in their tables."""
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
        frames = [pd.concat(own[1:] or own).sort_index() for own in found]
        return self._finished(frames)

    # -- one attempt ---------------------------------------------------------------------------------------------------

    def _attempt(self, people: Integers, *, last: bool) -> tuple[Frames, Integers]:
        """Values of the lines of people whose gaps are filled so that constraints hold, and these people, of some of all."""
        lines, _ = lines_of(people, self.walked.starts, self.model.shape)
        classes, drawn, failed = self._classes(people), list[pd.DataFrame](), np.zeros(len(self.gaps[0].codes), bool)
        for number, own in enumerate(self.gaps):
            of_all = np.zeros(len(own.codes), np.int64)
            of_all[lines[number]] = classes[number]
            values, bad = own.filled(lines[number], _fixed(of_all), self.draws.generator, self.draws.inner)
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
            for number in range(len(self.chains), 0, -1):
                parent = self.model.shape.tables[number - 1].parent
                logs[parent] = logs[parent] + self.chains[number - 1].forward(logs[number], starts[number - 1])[0]
            classes = [placed(np.exp(logs[0] - logs[0].max(1, keepdims=True)), self.draws.generator)]
            for number, chain in enumerate(self.chains, 1):
                above = classes[self.model.shape.tables[number - 1].parent]
                classes.append(states(chain, above, logs[number], starts[number - 1], self.draws.generator))
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
        return self.chains[number - 1].seen(groups, place, self.model.spans[number - 1]) + there

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
        """Which of some people (m,) break a constraint between tables by a value that was filled.

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

    def _finished(self, frames: Frames) -> Frames:
        """The lines with what follows from others: copies, dates at their rows, sums, and a target that is drawn last."""
        if not len(frames[0]):
            return frames
        lines = [frame.index for frame in frames]
        frames = [frame.reset_index(drop=True) for frame in frames]
        for number, table in enumerate(self.model.about, 1):
            owner, rules = self.model.owner(number, frames), self.model.rules(number)
            if table["order"] is not None:
                settled(rules, frames[number], (table["order"], self._unit(number)), frames[0], owner)
            for rule in rules:
                if rule["kind"] == "copy":
                    frames[number][rule["column"]] = frames[0][rule["of"]].iloc[owner].to_numpy()
                elif rule["kind"] == "sum":
                    names = f"{table['name']}.{rule['column']}", f"{self.model.shown['tables'][0]}.{rule['of']}"
                    self.model.add_up(frames, *names)
        for described in self.model.shown["across"]:
            if "sum" in described:
                self.model.add_up(frames, described["sum"][0], described["total"])
        self.draws.target_last(frames, {})
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
