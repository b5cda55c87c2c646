"""Timelines of linked tables: rows over time, times between rows, first and next rows, as pictures and as scores, and rules.

Every row counts once. What a row "is" on a timeline, its state, is one column: the first column of texts that repeat, else the
first column of numbers, in groups by the quantiles of the first data set.

Rules between successive rows of one person, which real rows keep, and how many synthetic people keep them:

| rule | example | who is looked at |
|---|---|---|
| never falls, never rises | the number of a visit, age | people with two values or more |
| never changes | sex in all rows | the same |
| one state is never followed by another one | dead, then admitted | people who have the first state, with a row after it |
| a state is always last | churn | people who have the state |

Rows of one time have no order: a rule is broken by rows of two times alone. A rule is one if at least 99 % of the real people
who are looked at keep it, and if `WORTH` of them, `NEVER` people at least, would break it were rows dealt to people at random:
so hardly a rule that does not hold seems to. It is looked for in the real rows as they are, without noise: scores are not for
publication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.forms import DAY
from dpgen.data.linked import LinkedTables
from dpgen.evaluation.column import Numbers, column_of, farthest
from dpgen.evaluation.rules import BROKEN, WORTH
from dpgen.evaluation.scores import Score
from dpgen.figures import heat_maps, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MOST_STATES, _GROUPS, _REPEAT = 12, 6, 0.5
_PEOPLE = 5  # whose rows are shown
_SIDE, _WIDTH, _HEIGHT = 4.4, 6.4, 3.4  # inches
_BARS, _STEPS, _DRAWN = 40, 24, 2000
_CODES = {"year": "Y", "month": "M", "day": "D", "hour": "h", "minute": "m"}
_SPANS = {"year": 20 * 366 * DAY, "month": 183 * DAY, "day": 3 * DAY, "hour": 6 * 3600, "minute": 0}
"""Seconds that rows span at least for bins of this unit."""
_COLOURS = ("0.35", "0.7", "C0")  # real, held-out, synthetic
NO_LINK = "rows dealt to people at random"


@dataclass(frozen=True, eq=False)
class LinkedFrames:
    """People, or rows, and the rows that hang on them, those of one after the other in order.

    Arguments:
        people: columns of what the rows hang on.
        rows: columns of the rows.
        starts: where the rows of each person begin (n + 1,).
        order: column of the order, if any.
        times: order of each row (r,), dates or whole numbers; nothing without an order.
        name: of the table.
        above: what one of those is called that rows hang on.
        timing: columns of the rows that are none of their contents: the order, times between rows, numbers of other rows.
    """

    people: pd.DataFrame
    rows: pd.DataFrame
    starts: Integers
    order: str | None
    times: npt.NDArray[Any]
    name: str
    above: str
    timing: frozenset[str] = frozenset()

    @classmethod
    def of(cls, data: LinkedTables, number: int) -> LinkedFrames:
        """A table of rows of linked tables."""
        own, frames = data.tables[number - 1], data.frames
        above = frames[own.parent].drop(columns=[t.count for t in data.tables if t.parent == own.parent])
        counts = {table.count for table in data.tables if table.parent == number}
        order = None if own.order is None else own.order[0]
        timing = frozenset({own.gap, *counts, *([own.since] if own.since else []), *([order] if order else [])})
        called = f"row of {data.tables[own.parent - 1].name}" if own.parent else "person"
        return cls(above, frames[number], own.starts, order, own.times, own.name, called, timing)

    @property
    def owner(self) -> Integers:
        """Whose each row is."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @property
    def all_above(self) -> str:
        """The plural of `above`."""
        return "people" if self.above == "person" else self.above.replace("row of", "rows of", 1)

    @property
    def dated(self) -> bool:
        """Whether the order is of dates."""
        return self.times.dtype.kind == "M"

    @property
    def moments(self) -> Reals:
        """The order of each row, in seconds since 1970 or as it is."""
        return self.times.astype("datetime64[s]" if self.dated else np.float64).astype(np.float64)

    @property
    def between(self) -> Reals:
        """Times between successive rows, in days or as they are."""
        same = np.diff(self.owner) == 0
        return np.diff(self.moments)[same] / (DAY if self.dated else 1)

    @property
    def firsts(self) -> Integers:
        """Places of first rows."""
        return self.starts[:-1][np.diff(self.starts) > 0]

    @property
    def befores(self) -> Integers:
        """Places of rows that another row follows."""
        return np.flatnonzero(np.diff(self.owner) == 0)


# -- what is counted ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class States:
    """A column of rows in groups: its most frequent values, or ranges of numbers, by those of one data set."""

    column: str
    names: tuple[str, ...]
    edges: Reals | None = None
    way: Numbers | None = None

    @classmethod
    def of(cls, part: LinkedFrames) -> States | None:
        """Groups of the first column of texts that repeat, else of numbers; None: there is no such column."""
        numbers: tuple[str, Numbers] | None = None
        for column in [name for name in part.rows if name not in part.timing]:
            values = part.rows[column].dropna()
            way = Numbers.of(values)
            if way is not None:
                numbers = numbers or ((str(column), way) if way.kind == "number" else None)
                continue
            counts = values.astype(str).value_counts()
            few = counts.iloc[:MOST_STATES].sum() >= _REPEAT * len(values)
            if few and len(counts) > 1:
                return cls(str(column), tuple(map(str, counts.index[:MOST_STATES])))
        return None if numbers is None else cls._of_numbers(*numbers, part.rows[numbers[0]])

    @classmethod
    def _of_numbers(cls, column: str, way: Numbers, values: pd.Series) -> States:
        found = way.read(values)
        found = found[np.isfinite(found)]
        different = np.unique(found)
        if len(different) <= MOST_STATES:
            edges = (different[1:] + different[:-1]) / 2
            return cls(column, tuple(f"{value:.4g}" for value in different), edges, way)
        edges = np.unique(np.quantile(found, np.linspace(0, 1, _GROUPS + 1)[1:-1]))
        named = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges)]
        return cls(column, (f"below {edges[0]:.4g}", *named, f"from {edges[-1]:.4g}"), edges, way)

    def codes(self, part: LinkedFrames) -> Integers:
        """States of all rows; one more than there are names for gaps and all other values."""
        if self.column not in part.rows:
            return np.full(len(part.rows), len(self.names))
        values = part.rows[self.column]
        if self.edges is None or self.way is None:
            found = pd.Index(self.names).get_indexer(pd.Index(values.astype(str)))
            return np.where(found < 0, len(self.names), found)
        numbers = self.way.read(values)
        return np.where(np.isnan(numbers), len(self.names), np.searchsorted(self.edges, numbers, side="right"))

    def first(self, part: LinkedFrames, codes: Integers) -> Reals:
        """Shares of the states of first rows."""
        return _shares(np.bincount(codes[part.firsts], minlength=len(self.names) + 1))

    def following(self, part: LinkedFrames, codes: Integers) -> Reals:
        """Shares of the states of a row and of the next one (s, s)."""
        size, before = len(self.names) + 1, part.befores
        return _shares(np.bincount(codes[before] * size + codes[before + 1], minlength=size**2)).reshape(size, size)


@dataclass(frozen=True)
class Bins:
    """Times in bins: minutes, hours, days, months or years of the calendar, or whole numbers by a step, from a first one on."""

    unit: str
    step: float
    first: int
    last: int

    @classmethod
    def of(cls, part: LinkedFrames) -> Bins:
        """The coarsest unit that the rows span enough of: a month from half a year on, a year from 20 years on."""
        moments = part.moments
        span = float(moments.max() - moments.min())
        if not part.dated:
            step = max(1.0, np.ceil((span + 1) / _STEPS))
            return cls("", step, int(moments.min() // step), int(moments.max() // step))
        unit = next(unit for unit, enough in _SPANS.items() if span >= enough)
        found = part.times.astype(f"datetime64[{_CODES[unit]}]").astype(np.int64)
        return cls(unit, 1.0, int(found.min()), int(found.max()))

    def places(self, part: LinkedFrames) -> Integers:
        """The bin of each row, from 0; those far outside are in the last ones: a whole span before and after the first."""
        size = self.last - self.first + 1
        found = (
            part.times.astype(f"datetime64[{_CODES[self.unit]}]").astype(np.int64)
            if self.unit and part.dated
            else np.floor_divide(part.moments, self.step).astype(np.int64)
        )
        return np.clip(found - self.first, -size, 2 * size - 1) + size

    def shares(self, part: LinkedFrames) -> Reals:
        """Shares (3 b,) of rows in the bins, and in as many before and after them."""
        return _shares(np.bincount(self.places(part), minlength=3 * (self.last - self.first + 1)))

    @property
    def starts(self) -> npt.NDArray[Any]:
        """Beginnings of the bins (3 b,)."""
        size = self.last - self.first + 1
        found = np.arange(self.first - size, self.last + size + 1)
        return found.astype(f"datetime64[{_CODES[self.unit]}]").astype("datetime64[s]") if self.unit else found * self.step

    @property
    def named(self) -> str:
        """The unit in words."""
        return self.unit or ("1" if self.step == 1 else f"{self.step:g} units")


def _shares(counts: npt.NDArray[Any]) -> Reals:
    return counts / max(1, counts.sum())


def _variation(one: Reals, other: Reals) -> float:
    size = max(len(one), len(other))
    padded = [np.pad(x, (0, size - len(x))) if x.ndim == 1 else x for x in (one, other)]
    return 0.5 * float(np.abs(padded[0] - padded[1]).sum())


def timeline_scores(data: LinkedTables, made: LinkedTables, seed: int) -> list[Score]:
    """Errors of what pictures of timelines show, for each table of rows, beside those of held-out people."""
    found = list[Score]()
    for number, (own, other, held) in enumerate(_parts(data, made), 1):
        prefix = f"{own.name}: " if number > 1 else ""
        for name, error in _errors(own).items():
            real = None if held is None or not len(held.rows) else error(held)
            found.append(Score(prefix + name, error(other), real=real, better="lower"))
        states = None if own.order is None else States.of(own)
        if states is not None and len(own.befores):
            found += _of_states(states, (own, other, held), prefix, seed)
    return found


def _parts(data: LinkedTables, made: LinkedTables) -> Iterator[tuple[LinkedFrames, LinkedFrames, LinkedFrames | None]]:
    """Real, synthetic and held-out rows of each table of rows."""
    for number in range(1, len(data.tables) + 1):
        held = None if data.test is None else LinkedFrames.of(data.test, number)
        yield LinkedFrames.of(data, number), LinkedFrames.of(made, number), held


def _errors(own: LinkedFrames) -> Mapping[str, Callable[[LinkedFrames], float]]:
    """Errors of the numbers of rows, and where there is an order of times and of times between rows, by what they are."""

    def counts(part: LinkedFrames) -> Reals:
        return _shares(np.bincount(np.diff(part.starts)))

    found: dict[str, Callable[[LinkedFrames], float]] = {
        f"rows for each {own.above}: total variation": lambda part: _variation(counts(own), counts(part))
    }
    if own.order is not None and len(own.rows):
        bins = Bins.of(own)
        name = f"rows over time, by {bins.named}: total variation"
        found[name] = lambda part: _variation(bins.shares(own), bins.shares(part))
        if len(own.between):
            found["time between rows: Kolmogorov-Smirnov"] = lambda part: farthest(own.between, part.between)
    return found


def _of_states(
    states: States, parts: tuple[LinkedFrames, LinkedFrames, LinkedFrames | None], prefix: str, seed: int
) -> list[Score]:
    own, other, held = parts
    real = states.codes(own)
    dealt, found = np.random.default_rng(seed).permutation(real), list[Score]()
    for name, law in (("first row", states.first), ("a row and the next", states.following)):
        errors = {
            label: _variation(law(own, real), law(part, codes))
            for label, part, codes in (
                ("value", other, states.codes(other)),
                *([("real", held, states.codes(held))] if held is not None and len(held.rows) else []),
                ("chance", own, dealt),
            )
        }
        called = f"{prefix}{name}, {states.column}: total variation"
        value, chance = errors["value"], errors["chance"]
        found.append(Score(called, value, errors.get("real"), chance, better="lower", baseline=NO_LINK))
    return found


# -- rules between successive rows -------------------------------------------------------------------------------------

Kept = tuple[Flags, Flags]
"""Which people (n,) are looked at, and which of them break a rule."""

KEEP = "people who keep: "
"""The beginning of the names of these scores."""
NEVER = 20.0
"""Real people who would break a rule by chance, at least."""
LISTED = 20
"""Rules of a table of rows that are listed, those first that most synthetic people break."""
_COLUMNS = 40  # of a table that are looked at


@dataclass(frozen=True)
class Rule:
    """A rule in words, and which people of a data set are looked at and break it."""

    text: str
    check: Callable[[LinkedFrames], Kept]

    def share(self, part: LinkedFrames) -> tuple[float, int]:
        """Share of the people who are looked at who keep the rule, NaN of nobody, and how many they are."""
        asked, broken = self.check(part)
        count = int(asked.sum())
        return (1.0 - float(broken[asked].mean()) if count else float("nan")), count


@dataclass(frozen=True)
class Found:
    """A rule of real rows: shares of real, synthetic, held-out (None: there are none) and dealt people who keep it."""

    rule: str
    real: float
    synthetic: float
    held: float | None
    dealt: float


def successive_rules(data: LinkedTables, made: LinkedTables, seed: int = 0) -> list[Found]:
    """Rules between successive rows that real people keep, those first that fewest synthetic people keep.

    Tables without an order have none. A share is NaN where no synthetic person has what the rule is about.
    """
    found = list[Found]()
    for own, other, held in _parts(data, made):
        if own.order is None or not len(own.befores):
            continue
        dealt = replace(own, rows=own.rows.iloc[np.random.default_rng(seed).permutation(len(own.rows))].reset_index(drop=True))
        listed = [_found(rule, own, other, held, dealt) for rule in _rules(own)]
        some = [one for one in listed if one is not None]
        found += sorted(some, key=lambda one: (np.nan_to_num(one.synthetic, nan=2.0), one.rule))[:LISTED]
    return found


def successive_scores(data: LinkedTables, made: LinkedTables, seed: int) -> list[Score]:
    """The shares of `successive_rules` as scores, beside those of held-out people, or of the real ones without these."""
    shown = [one for one in successive_rules(data, made, seed) if not np.isnan(one.synthetic)]
    held = [one.real if one.held is None else one.held for one in shown]
    return [Score(KEEP + one.rule, one.synthetic, real, one.dealt, baseline=NO_LINK) for one, real in zip(shown, held)]


def _found(rule: Rule, own: LinkedFrames, other: LinkedFrames, held: LinkedFrames | None, dealt: LinkedFrames) -> Found | None:
    """The shares of a rule; None: real people do not keep it, are too few, or keep it by chance."""
    real, _ = rule.share(own)
    by_chance, count = rule.share(dealt)
    if not (real >= 1 - BROKEN and by_chance <= 1 - WORTH and count * (1 - by_chance) >= NEVER):
        return None
    of_held, held_count = (float("nan"), 0) if held is None else rule.share(held)
    return Found(rule.text, real, rule.share(other)[0], of_held if held_count else None, by_chance)


def _rules(own: LinkedFrames) -> Iterator[Rule]:
    """Rules that may hold, of the columns of real rows but those of time."""
    for column in [name for name in own.rows if name not in own.timing][:_COLUMNS]:
        values, called = own.rows[column].dropna(), f"{own.name}.{column}"
        constant = Rule(f"{called} never changes", partial(_changes, column=column))
        yield constant
        numbers = Numbers.of(values)
        if numbers is not None and constant.share(own)[0] < 1 - BROKEN:
            for way, says in ((1, "falls"), (-1, "rises")):
                yield Rule(f"{called} never {says}", partial(_turns, column=column, ways=numbers, way=way))
        states = sorted(pd.unique(_texts(values)))
        if 1 < len(states) <= MOST_STATES:
            yield from _rules_of_states(own, column, called, states)


def _rules_of_states(own: LinkedFrames, column: str, called: str, states: Sequence[str]) -> Iterator[Rule]:
    """Rules of the states of a column: one that is always last has no others."""
    for state in states:
        last = Rule(f"{called} {state} is always last", partial(_goes_on, column=column, state=state))
        yield last
        if last.share(own)[0] < 1 - BROKEN:
            for then in states:
                text = f"{called} {state} is never followed by {'itself' if then == state else then}"
                yield Rule(text, partial(_followed, column=column, state=state, then=then))


def _people(part: LinkedFrames, rows: Integers) -> Flags:
    """People who have one of some rows."""
    return np.bincount(part.owner[rows], minlength=len(part.starts) - 1) > 0


def _pairs(part: LinkedFrames, there: Flags) -> tuple[Integers, Integers]:
    """Successive rows of those that are `there` (r,), of one person and of two times: the earlier and the later ones."""
    rows = np.flatnonzero(there)
    same = (part.owner[rows[:-1]] == part.owner[rows[1:]]) & (part.times[rows[:-1]] != part.times[rows[1:]])
    return rows[:-1][same], rows[1:][same]


def _texts(values: pd.Series) -> pd.Series:
    """Values as texts, None for gaps: 1 and 1.0 are one value."""
    numeric = values.dtype.kind in "iuf"
    return values.map(lambda value: None if pd.isna(value) else f"{value:.15g}" if numeric else str(value)).astype(object)


def _changes(part: LinkedFrames, *, column: str) -> Kept:
    codes, _ = pd.factorize(_texts(column_of(part.rows, column)))
    before, after = _pairs(part, codes >= 0)
    return _people(part, before), _people(part, before[codes[before] != codes[after]])


def _turns(part: LinkedFrames, *, column: str, ways: Numbers, way: int) -> Kept:
    numbers = ways.read(column_of(part.rows, column))
    before, after = _pairs(part, np.isfinite(numbers))
    return _people(part, before), _people(part, before[way * (numbers[after] - numbers[before]) < 0])


def _goes_on(part: LinkedFrames, *, column: str, state: str) -> Kept:
    having = np.flatnonzero(_texts(column_of(part.rows, column)) == state)
    last = part.starts[part.owner[having] + 1] - 1
    return _people(part, having), _people(part, having[part.times[having] != part.times[last]])


def _followed(part: LinkedFrames, *, column: str, state: str, then: str) -> Kept:
    states = _texts(column_of(part.rows, column)).to_numpy(object)
    before, after = _pairs(part, np.ones(len(states), bool))
    first = states[before] == state
    return _people(part, before[first]), _people(part, before[first & (states[after] == then)])


# -- pictures ----------------------------------------------------------------------------------------------------------

Parts = Mapping[str, LinkedFrames]


def rows_per_person(parts: Parts) -> Figure:
    """Shares of people, or of rows above, with each number of rows."""
    first = next(iter(parts.values()))
    most = max(int(np.diff(part.starts).max(initial=0)) for part in parts.values())
    step = -(-(most + 1) // _BARS)
    axes, width = _axes(f"{first.name}: rows for each {first.above}"), 0.8 * step / len(parts)
    for place, ((label, part), colour) in enumerate(zip(parts.items(), _colours(parts))):
        shares = _shares(np.bincount(np.diff(part.starts) // step))
        axes.bar(np.arange(len(shares)) * step + place * width, shares, width, label=label, color=colour, align="edge")
    axes.set(xlabel=f"rows for one {first.above}", ylabel=f"share of {first.all_above}")
    if step == 1 and most <= 20:
        axes.set_xticks(np.arange(most + 1) + 0.4, labels=[str(i) for i in range(most + 1)])
    return _with_legend(axes)


def over_time(parts: Parts) -> Figure:
    """Shares of rows in each month, or in other bins of the time of the first data set."""
    first = next(iter(parts.values()))
    bins = Bins.of(first)
    axes, found = _axes(f"{first.name}: rows over time, by {bins.named}"), {n: bins.shares(p) for n, p in parts.items()}
    used = np.flatnonzero(sum(found.values()))
    inside = slice(int(used.min()), int(used.max()) + 1)
    style: dict[str, Any] = {"marker": "." if inside.stop - inside.start < 60 else None, "linewidth": 1.3}
    for (label, shares), colour in zip(found.items(), _colours(parts)):
        axes.plot(bins.starts[inside], shares[inside], label=label, color=colour, **style)
    axes.set(xlabel=first.order or "time", ylabel="share of the rows", ylim=(0, None))
    axes.tick_params(axis="x", rotation=30 if bins.unit else 0)
    return _with_legend(axes)


def _unit(frames: LinkedFrames) -> tuple[float, str]:
    """The unit in which times between rows are shown, and how many of it are one of theirs."""
    if not frames.dated:
        return 1.0, f"units of {frames.order}"
    most = np.quantile(frames.between, 0.9) if len(frames.between) else np.inf
    if most >= 2:
        return 1.0, "days"
    return (24.0, "hours") if most > 1 / 12 else (1440.0, "minutes")


def gaps(parts: Parts) -> Figure:
    """Distribution functions of the time between successive rows of one person."""
    first = next(iter(parts.values()))
    known, (scale, unit) = first.between, _unit(first)
    axes = _axes(f"{first.name}: time between rows")
    for (label, part), colour in zip(parts.items(), _colours(parts)):
        x = np.sort(part.between) * scale
        some = np.unique(np.linspace(0, len(x) - 1, _DRAWN).astype(np.int64)) if len(x) else np.array([], np.int64)
        axes.step(x[some], (some + 1) / max(1, len(x)), where="post", label=label, color=colour, linewidth=1.5)
    if len(known) and np.quantile(known, 0.99) > 20 * max(np.quantile(known, 0.5), 1e-9):
        axes.set_xscale("symlog", linthresh=max(1e-9, float(np.quantile(known, 0.5)) * scale) or 1.0)
    axes.set(xlabel=f"time to the next row, {unit}", ylabel="share of the times up to here", ylim=(0, 1.02))
    return _with_legend(axes)


def first_rows(parts: Parts) -> Figure:
    """Shares of the states of the first rows of people."""
    first = next(iter(parts.values()))
    states = States.of(first)
    assert states is not None
    named, width = [*states.names, "others, gaps"], 0.8 / len(parts)
    found = {label: states.first(part, states.codes(part)) for label, part in parts.items()}
    shown = len(named) if any(law[-1] for law in found.values()) else len(states.names)
    axes = _axes(f"{first.name}: {states.column} of first rows", max(_HEIGHT, 0.8 + 0.3 * shown))
    for place, ((label, law), colour) in enumerate(zip(found.items(), _colours(parts))):
        axes.barh(np.arange(shown) + place * width, law[:shown], width, label=label, color=colour, align="edge")
    axes.set_yticks(np.arange(shown) + 0.4, labels=[name[:28] for name in named[:shown]], fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="share of first rows", ylabel=states.column)
    return _with_legend(axes)


def transitions(parts: Parts) -> Figure:
    """States of the next row of a person, given the state of the row before."""
    first = next(iter(parts.values()))
    states = States.of(first)
    assert states is not None
    names, panels, next_row = list(states.names), {}, "the next" if first.order else "another"
    for label, part in parts.items():
        table = states.following(part, states.codes(part))[: len(names), : len(names)]
        panels[label] = table / np.maximum(table.sum(1, keepdims=True), 1e-12)
    axes = f"{states.column} of {next_row} row", states.column
    figure = heat_maps(panels, names, names, axes_names=axes, label=f"share of {next_row} rows", side=_SIDE)
    figure.suptitle(f"{first.name}: {states.column} of a row and of {next_row} one", fontsize=10)
    return figure


def timelines(part: LinkedFrames) -> Figure:
    """The rows of five people along time, or their number, with the state of each."""
    states, axes = States.of(part), _axes(f"{part.name}: rows of five people")
    able = np.flatnonzero(np.diff(part.starts) > 1)[:_PEOPLE]
    for line, person in enumerate(able):
        own = slice(int(part.starts[person]), int(part.starts[person + 1]))
        at = np.arange(own.stop - own.start) if part.order is None else part.times[own]
        axes.plot(at, np.full(len(at), line), "o-", markersize=4, linewidth=0.8)
        for x, text in zip(at, part.rows[states.column].iloc[own] if states is not None and len(at) <= _STEPS else ()):
            said = f"{text:.4g}" if isinstance(text, float) else str(text)[:12]
            axes.annotate(said, (x, line), rotation=30, fontsize=6, xytext=(2, 4), textcoords="offset points")
    axes.set_yticks(range(len(able)), labels=[f"person {i + 1}" for i in range(len(able))], fontsize=7)
    axes.set(xlabel=part.order or "number of the row", ylabel="person", ylim=(-0.5, len(able)))
    axes.tick_params(axis="x", labelsize=7)
    return axes.get_figure(root=True)  # type: ignore[return-value]


def pictures_of(parts: Parts) -> Mapping[str, Callable[[Parts], Figure]]:
    """Pictures that a table has, by the names of their files."""
    first = next(iter(parts.values()))
    states = States.of(first) if len(first.befores) else None
    able: dict[str, tuple[bool, Callable[[Parts], Figure]]] = {
        "rows_per_person": (True, rows_per_person),
        "over_time": (first.order is not None and len(first.rows) > 0, over_time),
        "gaps": (first.order is not None and len(first.between) > 0, gaps),
        "first_rows": (first.order is not None and states is not None, first_rows),
        "transitions": (states is not None, transitions),
    }
    return {name: draw for name, (there, draw) in able.items() if there}


def _colours(parts: Parts) -> tuple[str, ...]:
    return {1: _COLOURS[2:], 2: (_COLOURS[0], _COLOURS[2])}.get(len(parts), _COLOURS)


def _axes(title: str, height: float = _HEIGHT) -> Axes:
    axes = new_figure(_WIDTH, height).add_subplot()
    axes.set_title(title, fontsize=10)
    axes.tick_params(labelsize=8)
    return axes


def _with_legend(axes: Axes) -> Figure:
    axes.legend(fontsize=8)
    return axes.get_figure(root=True)  # type: ignore[return-value]
