"""Timelines of linked tables: rows over time, times between rows, first and next rows, as pictures and as scores.

Every row counts once. What a row "is" on a timeline, its state, is one column: the first column of texts that repeat, else the
first column of numbers, in groups by the quantiles of the first data set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.forms import DAY, floats
from dpgen.columns.votes import reading
from dpgen.data.linked import LinkedTables
from dpgen.evaluation.scores import Score
from dpgen.figures import heat_maps, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

MOST_STATES, _GROUPS, _REPEAT = 12, 6, 0.5
READ = 0.9
"""Share of the values of a column from which on it holds numbers, or dates."""
_PEOPLE = 5  # whose rows are shown
_SIDE, _WIDTH, _HEIGHT = 4.4, 6.4, 3.4  # inches
_BARS, _STEPS, _DRAWN = 40, 24, 2000
_CODES = {"year": "Y", "month": "M", "day": "D", "hour": "h", "minute": "m"}
_SPANS = {"year": 20 * 366 * DAY, "month": 183 * DAY, "day": 3 * DAY, "hour": 6 * 3600, "minute": 0}
"""Seconds that rows span at least for bins of this unit."""
_COLOURS = ("0.35", "0.7", "C0")  # real, held-out, synthetic
STATES_DEALT = "rows dealt to people at random"


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


@dataclass(frozen=True)
class Numbers:
    """The way in which a column is read as numbers, or as dates in seconds since 1970 (`kind`: number or datetime)."""

    kind: str
    form: str = ""

    @classmethod
    def of(cls, values: pd.Series) -> Numbers | None:
        """By nine of ten values that are there, plain ones or of one writing; None: they are neither numbers nor dates.

        >>> Numbers.of(pd.Series(["1.5", "2", None])), Numbers.of(pd.Series(["a", "2"]))
        (Numbers(kind='number', form=''), None)
        >>> Numbers.of(pd.Series(["31.12.2023"] * 9))
        Numbers(kind='datetime', form='%d.%m.%Y')
        """
        there = values.dropna()
        if not len(there) or there.dtype.kind == "b":
            return None
        kinds = ["number"] if pd.api.types.is_numeric_dtype(there.dtype) else ["number", "datetime"]
        plain = next((way for way in map(cls, kinds) if way.reads(there)), None)
        if plain is not None or there.dtype.kind not in "OU":
            return plain
        kind, form = reading(there.astype(object))
        way = cls("datetime" if kind in ("date", "datetime") else "number", form)
        return way if form and way.reads(there) else None

    def reads(self, values: pd.Series) -> bool:
        """Whether it reads nine of ten values."""
        return float(np.isfinite(self.read(values)).mean()) >= READ

    def read(self, values: pd.Series) -> Reals:
        """The values (n,); NaN for what is none."""
        return floats(values, self.kind, self.form)


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
        """Where bins begin (3 b,)."""
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


def farthest(one: Reals, other: Reals) -> float:
    """Largest distance of two distribution functions (Kolmogorov, Smirnov); 1 where one has no value.

    >>> farthest(np.array([1.0, 2.0]), np.array([2.0, 3.0])), farthest(np.array([1.0]), np.array([]))
    (0.5, 1.0)
    """
    if not len(one) or not len(other):
        return float(len(one) != len(other))
    grid = np.unique(np.concatenate([one, other]))
    below = [np.searchsorted(np.sort(x), grid, side="right") / len(x) for x in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


def timeline_scores(data: LinkedTables, made: LinkedTables, seed: int) -> list[Score]:
    """Errors of what pictures of timelines show, for each table of rows, beside those of held-out people."""
    found = list[Score]()
    for number, table in enumerate(data.tables, 1):
        own, other = LinkedFrames.of(data, number), LinkedFrames.of(made, number)
        held = None if data.test is None else LinkedFrames.of(data.test, number)
        prefix = f"{table.name}: " if number > 1 else ""
        for name, error in _errors(own).items():
            real = None if held is None or not len(held.rows) else error(held)
            found.append(Score(prefix + name, error(other), real=real, better="lower"))
        states = None if own.order is None else States.of(own)
        if states is not None and len(own.befores):
            found += _of_states(states, (own, other, held), prefix, seed)
    return found


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
        found.append(Score(called, value, errors.get("real"), chance, better="lower", baseline=STATES_DEALT))
    return found


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
    """Those of these pictures that a table has, by the names of their files."""
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
