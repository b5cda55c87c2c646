r"""Two releases of tables side by side by their released counts: what changed more than noise and chance explain.

Nothing private is read and nothing is spent. Each release knows its columns in cells of its own (categories, bins), with noisy
counts. For any set S of cells of one release, and the set N(S) of all cells of the other one that share a value with them,

.. math:: P(S) \le P(N(S))

if both nights have one law. A set is named where its share exceeds that of N(S) by t: by Bernstein's inequality

.. math:: t = L / (3 n) + \sqrt{(L / (3 n))^2 + 2 L V}, \quad L = \log(M / 0.01)

is exceeded by one of all M sets of all columns with probability 0.01 at most; V is the variance of the noise and of rows that
are drawn from the law, n the smaller number of rows. The sets are single cells and, of ordered columns, all cells up to one,
and from one on. What one release moves to an end, to `other` or to a fill is in that cell of it, so ranges and lists of two
nights may differ. A category that one release does not list, though frequent ones are, had a noisy count below the least one.

Source: Boucheron, Lugosi, Massart, Concentration Inequalities, 2013, theorem 2.10.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from dpgen.columns.fields import BinnedField, CategoryField, DensityField, Field
from dpgen.evaluation.scores import write_page
from dpgen.figures import new_figure
from dpgen.systems.registry import load
from dpgen.systems.tables.model import TablesModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]

FALSE_ALARMS = 0.01
"""Share of pairs of nights of one law of which anything is named, at most."""
_DRAWN, _NAMED = 12, 3  # columns on a page; values that a set of categories is called by
_LEAST = 4.0  # noise stds, at least, of the least noisy count that is listed: its threshold has a small delta


@dataclass(frozen=True, eq=False)
class Column:
    """A column of one release: noisy `counts` (k,) of cells and the `variances` of their noise.

    `cells` (codes,) are those of the codes of its `field`, the last one of gaps where it is `nullable`. A category that is not
    listed had a noisy count below `least`; None: nobody says it.
    """

    field: Field
    nullable: bool
    counts: Reals
    variances: Reals
    cells: Codes
    least: float | None = None

    @property
    def gap(self) -> int | None:
        """The code that gaps get; None: there are none."""
        if self.nullable:
            return len(self.cells) - 1
        return None if self.field.fill is None else int(self.field.encode(self.field.stated(self.field.fill))[0])

    @cached_property
    def sets(self) -> Flags:
        """The sets (m, k) of cells that are looked at."""
        single = np.eye(len(self.counts), dtype=bool)
        if not self.field.ordered:
            return single
        first = np.array([np.flatnonzero(self.cells == cell)[0] for cell in range(len(self.counts))])
        inner = first < len(self.cells) - self.nullable
        ahead = (first[:, None] >= first[None]) & inner
        found = np.concatenate([single, ahead[inner], (~ahead & inner)[inner]])
        return np.asarray(found[found.any(1)], bool)

    def named(self, chosen: Flags) -> str:
        """Some cells (k,) for people: categories, or the range that they reach over."""
        codes = np.flatnonzero(chosen[self.cells])
        values = codes[codes < len(self.cells) - self.nullable]
        gaps = ["missing"] * (len(values) < len(codes))
        if isinstance(self.field, CategoryField):
            shown = [str(self.field.values[code]) for code in values]
            more = [f"{len(shown) - _NAMED} more"] if len(shown) > _NAMED + 1 else []
            return " or ".join([*(shown[:_NAMED] if more else shown), *more, *gaps])
        runs = np.split(values, np.flatnonzero(np.diff(values) > 1) + 1) if len(values) else []
        return " or ".join([*(self._range(int(run[0]), int(run[-1])) for run in runs), *gaps])

    def _range(self, first: int, last: int) -> str:
        low, high = (str(_shown(bound[code])) for bound, code in zip(self.field.bounds(), (first, last)))
        if first == 0 and last < self.field.size - 1:
            return f"up to {high}"
        if last == self.field.size - 1 and first > 0:
            return f"from {low} on"
        return low if low == high else f"{low} to {high}"


def touching(one: Column, other: Column) -> Flags:
    """Cells (k, l) of two releases that may hold the same value."""
    sizes = one.field.size, other.field.size
    codes = np.zeros((len(one.cells), len(other.cells)), bool)
    inner = _same_category if isinstance(one.field, CategoryField) else _same_range
    codes[: sizes[0], : sizes[1]] = inner(one.field, other.field)
    if one.gap is not None and other.gap is not None:
        codes[one.gap, other.gap] = True
    found = np.zeros((len(one.counts), len(other.counts)), bool)
    first, second = np.nonzero(codes)
    found[one.cells[first], other.cells[second]] = True
    return found


def _same_category(one: Any, other: Any) -> Flags:
    """Codes of one value; what one field does not list is in the category that stands for all others there."""
    known, rest = [np.array([str(v) for v in field.values], object) for field in (one, other)], []
    for field, own, others in ((one, known[0], known[1]), (other, known[1], known[0])):
        stands = np.array([field.outside is not None and value == str(field.outside) for value in own])
        rest.append((stands, ~np.isin(own, others)))
    (here, only_here), (there, only_there) = rest
    both = (only_here[:, None] & there) | (here[:, None] & only_there) | (here[:, None] & there)
    return np.asarray((known[0][:, None] == known[1][None]) | both, bool)


def _same_range(one: Any, other: Any) -> Flags:
    """Codes whose ranges meet; of other steps, where rounding may move a value, up to the next code."""
    grids = [field.axis if isinstance(field, DensityField) else field.grid for field in (one, other)]
    ends = []
    for field in (one, other):
        low, high = (_numbers(bound) for bound in field.bounds())
        if grids[0] != grids[1]:
            low, high = np.r_[low[:1], high[:-1]], np.r_[low[1:], high[-1:]]
        if isinstance(field, DensityField) or field.clamp:
            low[0], high[-1] = -np.inf, np.inf
        ends.append((low, high))
    (low, high), (first, last) = ends
    return np.asarray((low[:, None] <= last) & (high[:, None] >= first), bool)


def _numbers(bounds: Any) -> Reals:
    values = np.asarray(bounds)
    return (values.astype("datetime64[s]").astype(np.int64) if values.dtype.kind == "M" else values).astype(np.float64)


def _shown(value: Any) -> Any:
    """A bound for people."""
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[s]")).removesuffix("T00:00:00")
    return f"{value:.6g}" if isinstance(value, float | np.floating) else value


# -- one night ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Night:
    """Facts of the release of a table: the number of rows n with its noise std, most rows of a unit, and its columns."""

    name: str
    n: float
    std: float
    most: int
    columns: Mapping[str, Column]

    @classmethod
    def of(cls, model: TablesModel, name: str) -> Night:
        """The columns of a release by the measurements of each alone, or of the fewest columns beside it."""
        schema, measured, found = model.schema, model.measured(), dict[str, Column]()
        least = {field["name"]: field.get("dpgen:least") for field in schema.descriptor()["fields"]}
        for c, column in enumerate(schema.domain.names):
            having = [one for one in measured if column in one["columns"]]
            of = min(having, key=lambda one: (len(one["columns"]), one["counts"].size))
            axis = of["columns"].index(column)
            others = tuple(i for i in range(of["counts"].ndim) if i != axis)
            variances = np.asarray(of["noise_std"], np.float64) ** 2
            field, nullable = schema.modelled[c], schema.domain.missing[c] is not None
            cells = np.asarray(of["groups"][axis], np.int64)
            found[column] = Column(field, nullable, of["counts"].sum(others), variances.sum(others), cells, least[column])
        rows = re.search(r"at most (\d+) rows", model.statement.unit)
        size, std = model.statement.records or (model.size, None)
        return cls(name, max(float(size), 1.0), std or 0.0, int(rows[1]) if rows else 1, found)

    @classmethod
    def at(cls, path: Path) -> Night:
        """The release of a run, or of a directory of a model."""
        try:
            model = load(path)
        except FileNotFoundError as error:
            raise ValueError(f"{path} is no run with a released model: {error}") from error
        if not isinstance(model, TablesModel):
            raise ValueError(
                f"{path} holds a model of the kind {model.kind!r}; what changed between two runs is told of tables "
                "(--model tables). dpgen compare DATAPACKAGE FOLDER and dpgen evaluate RUN RUN know others"
            )
        return cls.of(model, str(path))


# -- two nights --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """The set of cells of a column that changed most: its shares then and now, and how many times what noise may do that is.

    Where the cells of two nights differ, one share is that of the nearest set that holds the other one.
    """

    column: str
    values: str
    first: float
    second: float
    times: float


@dataclass(frozen=True, eq=False)
class Drift:
    """Two nights, and the strongest change of each column that both have, the strongest first."""

    first: Night
    second: Night
    strongest: Sequence[Change]
    rows_changed: bool
    others: Mapping[str, str]

    @classmethod
    def between(cls, first: Night, second: Night) -> Drift:
        """The changes from one night to another one."""
        others = _other_types(first, second)
        alike = [name for name in first.columns if name in second.columns and name not in others]
        sets = sum(len(night.columns[name].sets) for name in alike for night in (first, second))
        level = float(np.log((2 * sets + 2) / FALSE_ALARMS))  # each is looked at twice at most
        found = [_strongest(name, first, second, level) for name in alike]
        noise = float(np.hypot(first.std, second.std))
        moved = abs(second.n - first.n) > np.sqrt(2 * level) * noise
        return cls(first, second, sorted(found, key=lambda one: -one.times), bool(moved), others)

    @property
    def changes(self) -> list[Change]:
        """Changes beyond noise and chance."""
        return [change for change in self.strongest if change.times > 1]

    @property
    def appeared(self) -> list[str]:
        """Columns of the second night alone."""
        return [name for name in self.second.columns if name not in self.first.columns]

    @property
    def vanished(self) -> list[str]:
        """Columns of the first night alone."""
        return [name for name in self.first.columns if name not in self.second.columns]

    def lines(self) -> Iterator[tuple[str, str]]:
        """Changes, and columns without one, under headings."""
        counted = [f"{night.n:,.0f} (± {night.std:.0f})" for night in (self.first, self.second)]
        yield "rows", f"{counted[0]} -> {counted[1]}{'' if self.rows_changed else ', no change beyond noise'}"
        for change in self.changes:
            shares = f"{100 * change.first:.3g} % -> {100 * change.second:.3g} %"
            yield "changed", f"{change.column}: {change.values}: {shares} ({change.times:.1f} times what noise and chance do)"
        same = [change.column for change in self.strongest if change.times <= 1]
        yield from [("unchanged", f"{', '.join(sorted(same))}: no change beyond noise and chance")] if same else []
        yield from [("new", f"{', '.join(self.appeared)}: in the second release alone")] if self.appeared else []
        yield from [("gone", f"{', '.join(self.vanished)}: in the first release alone")] if self.vanished else []
        yield from (("another type", f"{name}: {why}; not compared") for name, why in self.others.items())
        yield "by", f"released counts alone; of nights of one law at most one pair in {1 / FALSE_ALARMS:.0f} has a change here"

    @property
    def values(self) -> dict[str, Any]:
        """The comparison of both nights for `--json`."""
        nights = [{"run": own.name, "rows": own.n, "std": own.std} for own in (self.first, self.second)]
        names = {"appeared": self.appeared, "vanished": self.vanished, "not_compared": self.others}
        unchanged = [change.column for change in self.strongest if change.times <= 1]
        return {"runs": nights, "rows_changed": self.rows_changed, "changes": self.changes, "unchanged": unchanged, **names}

    def save(self, path: Path | str) -> Path:
        """Write one page with all of it and a picture of each column, the most changed ones first; it may be published."""
        title = f"{self.first.name} and {self.second.name}"
        table = pd.DataFrame(list(self.lines()), columns=["", " "]).to_html(index=False, header=False)
        drawn: dict[str, Callable[[], Figure]] = {
            change.column: partial(_picture, change.column, self.first, self.second) for change in self.strongest[:_DRAWN]
        }
        mark = "By released counts alone: this page may be published."
        return write_page(Path(path), html.escape(title), drawn, table, mark=mark)


def _other_types(first: Night, second: Night) -> dict[str, str]:
    """Columns that have another type in each night, and both types in words."""
    both = [name for name in first.columns if name in second.columns]
    kinds = {name: [_kind(night.columns[name].field) for night in (first, second)] for name in both}
    return {name: f"{old}, now {new}" for name, (old, new) in kinds.items() if old != new}


def _kind(field: Field) -> str:
    return f"{field.type}: {'a range' if isinstance(field, BinnedField) else 'listed values'}"


def _strongest(name: str, first: Night, second: Night, level: float) -> Change:
    """The set of cells of a column that changed most, in either direction."""
    found = []
    for one, other in ((second, first), (first, second)):
        own, beside = one.columns[name], other.columns[name]
        near = (own.sets.astype(np.int64) @ touching(own, beside).astype(np.int64)) > 0
        new = _unlisted(own, beside)
        sets = np.concatenate([own.sets, np.eye(len(own.counts), dtype=bool)[new]])
        least = beside.least or 0.0
        held = np.r_[near @ beside.counts, np.full(len(new), least)]
        noise = np.r_[near @ beside.variances, np.full(len(new), (least / _LEAST) ** 2)]
        more, usual = _excess((one, sets @ own.counts, sets @ own.variances), (other, held, noise), level)
        best = int((more / usual).argmax())
        shares = _share(held[best] / other.n), _share(own.counts @ sets[best] / one.n)
        values = own.named(sets[best]) + (f" ({'new' if one is second else 'gone'})" if best >= len(near) else "")
        then, now = shares if one is second else shares[::-1]
        found.append(Change(name, values, then, now, float(more[best] / usual[best])))
    return max(found, key=lambda change: change.times)


def _unlisted(own: Column, beside: Column) -> Codes:
    """Cells of one category each that the other night does not list, where a frequent one would be."""
    if beside.least is None or not isinstance(own.field, CategoryField) or not isinstance(beside.field, CategoryField):
        return np.zeros(0, np.int64)
    codes = [c for c, v in enumerate(own.field.values) if v not in beside.field.values and v != own.field.outside]
    return np.array([own.cells[c] for c in codes if (own.cells == own.cells[c]).sum() == 1], np.int64)


def _share(value: float) -> float:
    return float(min(max(value, 0.0), 1.0))


def _excess(one: tuple[Night, Reals, Reals], other: tuple[Night, Reals, Reals], level: float) -> tuple[Reals, Reals]:
    """By how much the share of each set (m,) is above that of what holds it on the other night, and t, which noise may do.

    Of both nights with counts (m,) and the variances of their noise.
    """
    (here, counts, of_counts), (there, held, of_held) = one, other
    pooled = np.clip((counts + held) / (here.n + there.n), 0.0, 1.0)
    noise = of_counts / here.n**2 + of_held / there.n**2 + pooled**2 * ((here.std / here.n) ** 2 + (there.std / there.n) ** 2)
    most = max(here.most, there.most)
    step = level * most / min(here.n, there.n) / 3

    def bound(share: Reals) -> Reals:
        variance = noise + most * share * (1 - share) * (1 / here.n + 1 / there.n)
        return np.asarray(step + np.sqrt(step**2 + 2 * level * variance))

    away = bound(pooled)  # the share is not known better than this
    return counts / here.n - held / there.n, bound(np.clip(0.5, np.maximum(pooled - away, 0.0), np.minimum(pooled + away, 1.0)))


def _picture(name: str, first: Night, second: Night) -> Figure:
    """Shares of what both nights tell apart."""
    one, other = first.columns[name], second.columns[name]
    near = touching(one, other)
    graph = csr_array(np.block([[np.zeros((len(near),) * 2), near], [near.T, np.zeros((near.shape[1],) * 2)]]))
    number, parts = connected_components(graph, directed=False)
    kept = [i for i in range(number) if (parts[: len(near)] == i).any()]
    figure = new_figure(6, 0.8 + 0.28 * len(kept))
    axes = figure.add_subplot()
    for night, column, own, way in ((first, one, parts[: len(near)], -1), (second, other, parts[len(near) :], 1)):
        sums = [[float(values[own == i].sum()) for i in kept] for values in (column.counts, column.variances)]
        shares, stds = np.array(sums[0]) / night.n, np.sqrt(sums[1]) / night.n
        axes.barh(np.arange(len(kept)) + 0.2 * way, shares, 0.38, xerr=stds, label=night.name)
    axes.set_yticks(range(len(kept)), [one.named(parts[: len(near)] == i) for i in kept])
    axes.invert_yaxis()
    axes.set_xlabel(f"share of {name}, with noise stds")
    axes.legend()
    return figure


def drift(first: Path | str, second: Path | str) -> Drift:
    """Changes between two runs of tables, by what they released."""
    return Drift.between(Night.at(Path(first)), Night.at(Path(second)))
