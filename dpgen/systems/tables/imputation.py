"""Gaps of rows, filled by draws from a mixture of products given the rest of the row, until the constraints hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from dpgen.columns.fields import LengthField
from dpgen.containers import article
from dpgen.containers.forms import Form, as_type
from dpgen.systems.tables.marginals import Flags, Integers, Reals

if TYPE_CHECKING:
    from dpgen.systems.tables.conditions import CodedMixture

Classes = Callable[[Integers, list[bool]], Integers]
"""Components (m,) for draws of rows (m,), given which columns (d,) are to have values."""

AT_ONCE = 4096
"""Rows whose components are drawn together."""
MOST_DRAWS = 2**16
"""Draws that are made together."""

_ZONE = r"\d{2}:\d{2}.*(?:Z|[-+]\d{2}:?\d{2})$"  # of a time by ISO 8601
_MANY = 1_000
_COPIES = (1, 10, 100, _MANY)
TRIES = 2 * sum(_COPIES)
"""Draws of a row at most, until one satisfies the constraints: half of them where columns in constraints may stay null."""


@dataclass(frozen=True, eq=False)
class Gaps:
    """Rows with gaps, beside the model that fills them.

    `codes` (n, d) and `groups` (n, d) of codes are -1 where a value is not known, `known` has parsed values, null where there
    is none, and `but` (n, constraints) says which constraints known values break that a share of rows breaks.
    """

    model: CodedMixture
    codes: Integers
    groups: Integers
    known: pd.DataFrame
    but: Flags

    @classmethod
    def of(cls, model: CodedMixture, table: pd.DataFrame) -> Gaps:
        """The gaps of a table; a ValueError for a column that it lacks, or a value that the schema does not allow."""
        codes, known = model.schema.known(table)
        groups = np.where(codes < 0, -1, model.columns.coarse.apply(np.maximum(codes, 0)).T)
        return cls(model, codes, groups, known, model.schema.broken(known))

    @property
    def whole(self) -> Flags:
        """Which rows (n,) have no gaps."""
        return np.asarray(~self.known.isna().any(axis=1).to_numpy())

    @property
    def present(self) -> tuple[list[bool], list[bool]]:
        """Which columns (d,) have values in the first draws, all of them, and in later ones: those in no constraint."""
        schema = self.model.schema
        tied = {name for constraint in schema.constraints for name in constraint.names}
        return [True] * len(schema.modelled), [own.name not in tied for own in schema.modelled]

    @property
    def hopeless(self) -> Flags:
        """Which rows (n,) have known values that break a constraint."""
        found = np.zeros(len(self.known), bool)
        for i, constraint in enumerate(self.model.schema.constraints):
            if set(constraint.names) <= set(self.known):
                there = self.known[list(constraint.names)].notna().all(axis=1).to_numpy() & ~self.but[:, i]
                found[there] |= ~constraint.holds(self.known[there].infer_objects())
        return found

    def of_mixture(self, generator: np.random.Generator) -> Classes:
        """Components drawn from the law of the mixture given a row."""

        def drawn(rows: Integers, present: list[bool]) -> Integers:
            _, chance = self.model.restricted(self.model.inside(present))
            found = np.empty(len(rows), np.int64)
            for part in range(0, len(rows), AT_ONCE):
                own = self.groups[rows[part : part + AT_ONCE]]
                joint = self.model.joint(own) + (own < 0) @ chance
                found[part : part + AT_ONCE] = placed(np.exp(joint - joint.max(1, keepdims=True)), generator)
            return found

        return drawn

    def filled(
        self, rows: Integers, classes: Classes, generator: np.random.Generator, inner: torch.Generator
    ) -> tuple[pd.DataFrame, Integers]:
        """Values of some rows (m,), by their numbers, and the rows that no draw fills so that the constraints hold.

        Gaps stay null only where constraints require it, as far as draws show. Rows without gaps are as they are.
        """
        whole, hopeless, found = self.whole, self.hopeless & ~self.whole, list[pd.DataFrame]()
        left, never = rows[~hopeless[rows]], rows[hopeless[rows]]
        for present, copies in product(self.present, _COPIES):
            if not len(left):
                break
            for part in np.array_split(left, len(left) * copies // MOST_DRAWS + 1):
                own = np.repeat(part, copies)
                values, weights, holds = self._drawn(own, classes(own, present), generator, inner, present)
                kept = np.flatnonzero(holds | whole[own])
                kept = kept[_in_turn(weights[kept], generator, enough=copies == _MANY)]
                done, first = np.unique(own[kept], return_index=True)
                found.append(values.iloc[kept[first]].set_axis(done))
                left = np.setdiff1d(left, done)
        return (pd.concat(found).sort_index() if found else self.known.iloc[:0]), np.union1d(left, never)

    def _drawn(
        self, rows: Integers, component: Integers, generator: np.random.Generator, inner: torch.Generator, present: list[bool]
    ) -> tuple[pd.DataFrame, Reals, Flags]:
        """Values of rows (m,) in these components, their weights, and whether they satisfy the constraints."""
        inside = self.model.inside(present)
        mixture, _ = self.model.restricted(inside)
        groups, known = self.groups[rows], self.known.iloc[rows].reset_index(drop=True)
        for c in range(groups.shape[1]):
            gaps = np.flatnonzero(groups[:, c] < 0)
            groups[gaps, c] = placed(mixture.block(c)[:, component[gaps]].T.astype(np.float64), generator)
        codes = np.where(self.codes[rows] < 0, self.model.columns.refined(groups, inside, generator), self.codes[rows])
        values = self.model.schema.decode(torch.from_numpy(codes), inner, self.model.columns.shares, known)
        weights = self._weights(codes, component, values, known)
        holds = self.model.schema.admissible(torch.from_numpy(codes), self.but[rows]).numpy()
        return values, weights, holds & self.model.schema.satisfied(values, self.but[rows])

    def _weights(self, codes: Integers, component: Integers, values: pd.DataFrame, known: pd.DataFrame) -> Reals:
        """Weights (n,) of rows whose base of a length was drawn beside a known value; NaN where none was.

        A drawn base leaves a length, whose code it puts into `codes` (n, d). The weight is the probability of this code in the
        component, times the density of the length among those of its code.
        """
        found, columns = np.full(len(values), np.nan), self.model.columns
        for c, field in enumerate(self.model.schema.modelled):
            if isinstance(field, LengthField):
                drawn = (known[field.name].notna() & known[field.base].isna()).to_numpy()
                own, base = values[field.name][drawn], values[field.base][drawn]
                code = field.encode_beside(own, base)
                chance = self.model.mixture.block(c)[columns.coarse.groups[c][code], component[drawn]] * columns.inside(c)[code]
                found[drawn] = np.nan_to_num(found[drawn], nan=1.0) * chance * field.heights(own, base)
                codes[drawn, c] = code
        return found


def placed(weights: Reals, generator: np.random.Generator) -> Integers:
    """Places (n,) drawn by the weights (n, k) of their rows."""
    ends = weights.cumsum(1)
    return np.asarray((ends < generator.random((len(ends), 1)) * ends[:, -1:]).sum(1))


def put(table: pd.DataFrame, values: pd.DataFrame, form: Form | None) -> pd.DataFrame:
    """The table (n rows) with values (n rows) in the place of its nulls, written as the data were that have this form.

    Where the form says nothing they are written as the values that the column of the table has.
    """
    found, types = table.copy(), {} if form is None else form.dtypes
    for name in values:
        absent = table[name].isna().to_numpy()
        drawn = np.flatnonzero(absent & values[name].notna().to_numpy())
        if len(drawn):
            typed = as_type(values[name].iloc[drawn].reset_index(drop=True), types.get(str(name), ""))
            if len(drawn) == len(table):
                found[name] = typed.set_axis(table.index)
                continue
            before, own = _beside(table[name], typed)
            filled = own.set_axis(drawn).reindex(range(len(table))).set_axis(table.index)
            found[name] = before.where(~absent, filled)
    return found


def _beside(before: pd.Series, own: pd.Series) -> tuple[pd.Series, pd.Series]:
    """A column and values (m,) for its gaps, these in the type of the column, and texts or days if all others are."""
    kind = before.dtype
    if isinstance(kind, pd.CategoricalDtype):
        own = own.astype(kind.categories.dtype) if kind.categories.dtype != object else own.astype(object)
        levels = kind.categories.append(pd.Index(own.drop_duplicates()).difference(kind.categories, sort=False))
        wide = pd.CategoricalDtype(levels, kind.ordered)
        return before.astype(wide), own.astype(wide)
    if isinstance(kind, pd.DatetimeTZDtype) and own.dtype.kind == "M":
        return before, (own if own.dt.tz is not None else own.dt.tz_localize("UTC")).dt.tz_convert(kind.tz).astype(kind)
    if kind.kind == "O" or isinstance(kind, pd.StringDtype):
        others = before.dropna()
        if len(others) and others.map(lambda value: isinstance(value, str)).all():
            return before, own.map(_as_text(others)).astype(kind)
        if len(others) and own.dtype.kind == "M" and others.map(lambda value: type(value) is date).all():
            return before, own.dt.date.astype(object)
    elif kind.kind == "f" and pd.api.types.is_numeric_dtype(own.dtype):
        return before, own.astype(kind)
    return before, own


def _as_text(others: pd.Series) -> Callable[[object], str]:
    """Texts of values beside other texts: dates by ISO 8601, with a time of day where these have one, others as there."""
    timed = (others.str.len() > len("2020-01-31")).any()
    between, zone = "T" if others.str.contains("T").any() else " ", "Z" if others.str.contains(_ZONE).any() else ""
    known = {text.lower(): text for text in others.unique()}

    def written(value: object) -> str:
        if isinstance(value, pd.Timestamp):
            return value.isoformat(sep=between, timespec="seconds") + zone if timed else value.date().isoformat()
        return known.get(str(value).lower(), str(value))

    return written


def _in_turn(weights: Reals, generator: np.random.Generator, *, enough: bool) -> Integers:
    """Draws (m,) in an order in which the first one of a row is one of its draws by their weights (n,).

    Draws without a weight are in their own order; those with one above 0 are there if there are `enough` to weigh.
    """
    plain, races = np.isnan(weights), -np.log(generator.random(len(weights)))
    turn = np.where(plain, np.arange(len(weights)), races / np.where(weights > 0, weights, 1.0))
    kept = plain | ((weights > 0) & enough)
    return np.argsort(np.where(kept, turn, np.inf), kind="stable")[: int(kept.sum())]


def require_frame(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Refuse what is no DataFrame of pandas, and names of columns that are not different."""
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"{name} is {article(type(table).__name__)}; it must be a DataFrame of pandas, with nulls to fill")
    if twice := list(table.columns[table.columns.duplicated()]):
        raise ValueError(f"{name} has several columns called {twice[0]!r}; their names must differ")
    return table
