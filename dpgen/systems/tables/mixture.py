r"""A mixture of products, the law of a table: marginals, rows, what it becomes given values or ranges, and gaps that it fills.

.. math:: p(x) = \sum_k w_k \prod_c p_{kc}(x_c)

Gaps of rows are draws from the mixture given the rest of the row, until the constraints hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property, partial
from itertools import combinations, product
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from dpgen.columns.fields import Field, LengthField
from dpgen.columns.forms import number
from dpgen.containers import article
from dpgen.containers.forms import Form, as_type
from dpgen.privacy.draws import compiled
from dpgen.schema import Schema, nearest
from dpgen.systems.tables.marginals import Coarsening, Columns, Flags, Integers, Marginal, Reals, together

Floats = npt.NDArray[np.float32]
Given = Mapping[str, Any]
"""Values, lists of values and ranges by column."""
Classes = Callable[[Integers, list[bool]], Integers]
"""Components (m,) for draws of rows (m,), given which columns (d,) are to have values."""

PAIR, ONE = np.float32(2.0), np.float32(1.0)  # weights of cells of two and of three columns
_MOST_CELLS = 2**24  # of all triples together: more of them are left out
_PLACES = 4096  # in a code

AT_ONCE = 4096
"""Rows whose components are drawn together."""
MOST_DRAWS = 2**16
"""Draws that are made together."""
_MANY = 1_000
_COPIES = (1, 10, 100, _MANY)
TRIES = 2 * sum(_COPIES)
"""Draws of a row at most, until one satisfies the constraints: half of them where columns in constraints may stay null."""
_ZONE = r"\d{2}:\d{2}.*(?:Z|[-+]\d{2}:?\d{2})$"  # of a time by ISO 8601

_compile = compiled()


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mixture of K products over columns of given sizes.

    Stacked columns (sum of sizes, K), each summing to 1, and weights (K,).
    """

    probabilities: Floats
    weights: Floats
    sizes: tuple[int, ...]

    @property
    def offsets(self) -> Integers:
        """Beginning of each column in `probabilities`, and their end."""
        return np.cumsum([0, *self.sizes])

    @cached_property
    def of_cells(self) -> bool:
        """Whether each component is a cell of all columns but one."""
        most = np.maximum.reduceat(self.probabilities, self.offsets[:-1], axis=0)
        certain = ((most == 1.0) | (most == 0.0)).all(1)  # 0 of all: the component is not among what is given
        return int(certain.sum()) >= len(self.sizes) - 1 > 0

    @cached_property
    def in_cells(self) -> Flags:
        """Columns (d,) of which each component lacks some values: those of blocks."""
        return np.asarray((np.minimum.reduceat(self.probabilities, self.offsets[:-1], axis=0) == 0.0).all(1))

    def block(self, column: int) -> Floats:
        """Probabilities (size, K) of one column."""
        start, stop = self.offsets[column : column + 2]
        return self.probabilities[start:stop]

    def marginal(self, columns: Sequence[int]) -> Reals:
        """Joint probabilities of some columns, one axis for each."""
        cells = self.weights[None].astype(np.float64)
        for column in columns:
            cells = (cells[:, None] * self.block(column)[None]).reshape(-1, len(self.weights))
        return np.asarray(cells.sum(1).reshape([self.sizes[c] for c in columns]))

    def with_shares(self, column: int, groups: Integers, shares: Reals) -> Mixture:
        """The mixture with these shares (g,) of some groups of a column: by one factor in all components, the others follow."""
        probabilities, block = self.probabilities.copy(), self.block(column).astype(np.float64)
        others = np.setdiff1d(np.arange(len(block)), groups)
        now = block[groups] @ self.weights
        wanted = block[groups] * (shares / np.maximum(now, 1e-30))[:, None]
        wanted /= np.maximum(wanted.sum(0), 1.0)
        block[others] *= (1.0 - wanted.sum(0)) / np.maximum(block[others].sum(0), 1e-30)
        block[groups] = wanted
        start, stop = self.offsets[column : column + 2]
        probabilities[start:stop] = block / block.sum(0)
        return Mixture(probabilities, self.weights, self.sizes)

    def expected(self, marginals: Sequence[Marginal], levels: Sequence[Coarsening]) -> Reals:
        """Probabilities of the cells of marginals of two columns or more, one after the other."""
        found: list[Floats] = [np.empty(0, np.float32)] * len(marginals)
        for level, numbers in together(marginals):
            coarse = levels[level].matrix() @ self.probabilities
            begin = np.cumsum([0, *levels[level].sizes])
            stop = begin[1:]
            products: dict[tuple[int, ...], Floats] = {}
            for i in numbers:
                *first, last = marginals[i].columns
                if tuple(first) not in products:
                    cells: Floats = coarse[begin[first[0]] : stop[first[0]]] * self.weights
                    for c in first[1:]:
                        cells = (cells[:, None] * coarse[begin[c] : stop[c]][None]).reshape(-1, len(self.weights))
                    products[tuple(first)] = cells @ coarse[stop[first[-1]] :].T
                ahead = stop[first[-1]]
                found[i] = products[tuple(first)][:, begin[last] - ahead : stop[last] - ahead].ravel()
        return np.concatenate(found).astype(np.float64) if found else np.empty(0)


# -- rows --------------------------------------------------------------------------------------------------------------


def iid_rows(mixture: Mixture, n: int, generator: np.random.Generator) -> Integers:
    """n independent rows of codes (n, d)."""
    component = np.sort(np.searchsorted(edges(mixture.weights.astype(np.float64)), generator.random(n), side="right"))
    rows = filled(mixture, component, lambda count: generator.random(count))
    return np.asarray(generator.permutation(rows))


def matched_rows(mixture: Mixture, n: int, generator: np.random.Generator) -> Integers:
    r"""n rows whose counts in all pairs and triples of columns are close to n times the model's.

    Systematic draws of components and of values in each component, then one pass over all cells in random order: a cell whose
    value too many rows hold takes the value that lowers :math:`\sum |n p - \text{count}|` over cells of triples and, with
    weight 2, of pairs the most, but where components are cells, and in columns of blocks: their draws have their counts.
    Rows are not independent any
    more; it is post-processing of the model.
    """
    rows = filled(mixture, systematic(mixture, n, generator), partial(evenly, generator=generator))
    sizes = np.array(mixture.sizes)
    if n and len(sizes) > 1 and not mixture.of_cells:
        pairs, pair_at = _gaps(mixture, rows, 2)
        cells = sum(math.prod(chosen) for chosen in combinations(mixture.sizes, 3)) if len(sizes) < 100 else math.inf
        deep = len(sizes) > 2 and cells <= _MOST_CELLS
        triples, triple_at = _gaps(mixture, rows, 3) if deep else (np.zeros(1, np.float32), np.zeros((1, 1, 1), np.int64))
        order = generator.permutation(rows.size)
        order = order[~mixture.in_cells[order % len(sizes)]]
        _move(rows, order, sizes, pairs, pair_at, triples, triple_at, deep)
    return np.asarray(generator.permutation(rows))


def systematic(mixture: Mixture, n: int, generator: np.random.Generator) -> Integers:
    """Components (n,), sorted, whose shares are close to the weights."""
    ends = edges(mixture.weights.astype(np.float64))
    return np.searchsorted(ends, (np.arange(n) + generator.random()) / max(n, 1), side="right")


def evenly(count: int, generator: np.random.Generator) -> Reals:
    """Numbers in [0, 1), one in each interval of length 1 / count, in random order."""
    return np.asarray(generator.permutation((np.arange(count) + generator.random()) / max(count, 1)))


def edges(weights: Reals) -> Reals:
    """Upper ends of the components but the last on [0, 1)."""
    total = np.cumsum(weights)
    return np.asarray(total[:-1] / total[-1])


def filled(mixture: Mixture, component: Integers, uniforms) -> Integers:  # type: ignore[no-untyped-def]
    """Integers (n, d) of rows whose components (n,) are sorted."""
    ends = np.bincount(component, minlength=len(mixture.weights)).cumsum()
    rows = np.empty((len(component), len(mixture.sizes)), np.int64)
    for c in range(rows.shape[1]):
        block = mixture.block(c).astype(np.float64)
        for k, (start, stop) in enumerate(zip([0, *ends], ends)):
            if stop > start:
                rows[start:stop, c] = np.searchsorted(edges(block[:, k]), uniforms(stop - start), side="right")
    return rows


def _gaps(mixture: Mixture, rows: Integers, order: int) -> tuple[Floats, Integers]:
    """Counts less n times the model for all pairs or triples, one after the other, and where each begins."""
    d, n, gaps = len(mixture.sizes), len(rows), []
    at, begin = np.zeros((d,) * order, np.int64), 0
    for *first, second in combinations(range(d), order - 1):
        cells, cell = mixture.weights[None], np.zeros(n, np.int64)
        for c in (*first, second):
            cells = (cells[:, None] * mixture.block(c)[None]).reshape(-1, len(mixture.weights))
            cell = cell * mixture.sizes[c] + rows[:, c]
        for last in range(second + 1, d):
            expected = (cells @ mixture.block(last).T).ravel()
            count = np.bincount(cell * mixture.sizes[last] + rows[:, last], minlength=len(expected))
            gaps.append((count - n * expected).astype(np.float32))
            at[(*first, second, last)] = begin
            begin += len(expected)
    return np.concatenate(gaps), at


@_compile
def _move(rows, order, sizes, pairs, pair_at, triples, triple_at, deep):  # type: ignore[no-untyped-def]
    """One pass over cells; `pairs` and `triples` are the gaps, which follow the rows."""
    d = rows.shape[1]
    change = np.empty(sizes.max(), np.float32)
    where = np.empty(d * d, np.int64)
    stride = np.empty(d * d, np.int64)
    for cell in order:
        i, c = cell // d, cell % d
        old, size = rows[i, c], sizes[c]
        flat = _pairs_of(rows[i], c, sizes, pair_at, where, stride)
        m = _triples_of(rows[i], c, sizes, triple_at, where, stride, flat) if deep else flat
        left = np.float32(0.0)
        for j in range(m):
            gaps, weight = (pairs, PAIR) if j < flat else (triples, ONE)
            gap = gaps[where[j] + old * stride[j]]
            left += weight * (abs(gap - 1) - abs(gap))
        if left > 0:  # too few rows hold it already; trying other values for these too takes four times as long for nothing
            continue
        change[:size] = 0.0
        for j in range(m):
            gaps, weight = (pairs, PAIR) if j < flat else (triples, ONE)
            at, step = where[j], stride[j]
            for value in range(size):
                gap = gaps[at + value * step]
                change[value] += weight * (abs(gap + 1) - abs(gap))
        change[old] = -1e-3 - left
        best = np.argmin(change[:size])
        if best != old:
            rows[i, c] = best
            for j in range(m):
                gaps = pairs if j < flat else triples
                gaps[where[j] + old * stride[j]] -= 1
                gaps[where[j] + best * stride[j]] += 1


@_compile
def _pairs_of(row, c, sizes, at, where, stride):  # type: ignore[no-untyped-def]
    """Cells of the pairs of a column of a row: where that of value 0 is, and how far the next value is; how many there are."""
    m = 0
    for b in range(len(row)):
        if b == c:
            continue
        if c < b:
            where[m], stride[m] = at[c, b] + row[b], sizes[b]
        else:
            where[m], stride[m] = at[b, c] + row[b] * sizes[c], 1
        m += 1
    return m


@_compile
def _triples_of(row, c, sizes, at, where, stride, m):  # type: ignore[no-untyped-def]
    """Cells of triples, behind m cells of pairs."""
    for b in range(len(row)):
        if b == c:
            continue
        for e in range(b + 1, len(row)):
            if e == c:
                continue
            if c < b:
                where[m], stride[m] = at[c, b, e] + row[b] * sizes[e] + row[e], sizes[b] * sizes[e]
            elif c < e:
                where[m], stride[m] = at[b, c, e] + row[b] * sizes[c] * sizes[e] + row[e], sizes[e]
            else:
                where[m], stride[m] = at[b, e, c] + (row[b] * sizes[e] + row[e]) * sizes[c], 1
            m += 1
    return m


# -- values that are given ---------------------------------------------------------------------------------------------


class CodedMixture:
    """Products over the groups of codes of a table, with the shares of codes inside each group; columns are in schema order.

    Of one table, of people, or of the rows of a table: see `TablesModel` and `LinkedMixture`.
    """

    def __init__(self, mixture: Mixture, columns: Columns, schema: Schema) -> None:
        self.mixture, self.columns, self.schema = mixture, columns, schema

    def _column(self, name: str) -> int:
        names = self.schema.domain.names
        if name not in names:
            raise ValueError(f"column is {name!r}; choose from {', '.join(names)}")
        return names.index(name)

    def _grouped(self, codes: Integers) -> Integers:
        return np.ascontiguousarray(self.columns.coarse.apply(codes).T)

    def joint(self, groups: Integers) -> Reals:
        """log w_k + sum of log p of the known groups, those >= 0: (n, K)."""
        logs = np.log(np.maximum(self.mixture.probabilities, 1e-30)).astype(np.float64)
        result = np.tile(np.log(np.maximum(self.mixture.weights, 1e-30)).astype(np.float64), (len(groups), 1))
        for c, offset in enumerate(self.mixture.offsets[:-1]):
            known = groups[:, c] >= 0
            result[known] += logs[offset + groups[known, c]]
        return result

    # -- conditions ----------------------------------------------------------------------------------------------------

    def inside(self, present: Sequence[bool] | None = None) -> list[Reals]:
        """Weights of the codes of every column, without those of missing values in columns (d,) that are to be present."""
        missing, present = self.schema.domain.missing, present or [False] * len(self.columns.shares)
        gaps = [code if wanted and code is not None else -1 for code, wanted in zip(missing, present)]
        return [share * (np.arange(len(share)) != gap) for share, gap in zip(self.columns.shares, gaps)]

    def restricted(self, inside: Sequence[Reals]) -> tuple[Mixture, Reals]:
        """The mixture given that codes are among those of weight > 0, and the log probability (d, K) of that by component."""
        blocks, chance = [], np.zeros((len(self.mixture.sizes), len(self.mixture.weights)))
        for c, (group, weight) in enumerate(zip(self.columns.coarse.groups, inside)):
            kept = np.bincount(group, weight) / np.bincount(group, self.columns.shares[c])
            block = self.mixture.block(c).astype(np.float64) * kept[:, None]
            total = block.sum(0)
            chance[c] = np.log(np.maximum(total, 1e-300))
            blocks.append(block / np.maximum(total, 1e-300))
        logs = np.log(np.maximum(self.mixture.weights, 1e-30)) + chance.sum(0)
        weights = np.exp(logs - logs.max())
        stacked = np.concatenate(blocks).astype(np.float32)
        return Mixture(stacked, (weights / weights.sum()).astype(np.float32), self.mixture.sizes), chance

    def inside_ranges(self, table: pd.DataFrame, given: Given) -> Flags:
        """Rows (n,) of values in the ranges that are given."""
        found = np.ones(len(table), bool)
        for name, value in given.items():
            if isinstance(value, Mapping):
                found &= _between(table[name].to_numpy(), *self._range(self._column(name), value))
        return found

    def conditioned(self, given: Given) -> tuple[Mixture, list[Reals]]:
        """The mixture given values of columns, and the weights of codes inside their groups."""
        inside = self.inside()
        for name, value in given.items():
            c = self._column(name)
            kept = np.zeros(len(inside[c]))
            if isinstance(self.schema.modelled[c], LengthField) and not isinstance(value, Mapping):
                kept[self._length_code(c, value, given)] = 1.0
            elif isinstance(value, Mapping):
                kept[: self.schema.modelled[c].size] = self._parts(c, *self._range(c, value))
            else:
                for one in value if isinstance(value, list) else [value]:
                    kept[self._code(c, one)] = 1.0
            if not kept.any():
                raise ValueError(f"given {name} is {value!r}; no value of the schema satisfies it")
            inside[c] = inside[c] * kept
        return (self.mixture if not given else self.restricted(inside)[0]), inside

    def _range(self, c: int, condition: Mapping[str, Any]) -> tuple[Any, Any]:
        """Least and greatest value of a condition, None where it has none."""
        field = self.schema.modelled[c]
        field.bounds()  # refuses a field that has no order
        if not condition or set(condition) - {"minimum", "maximum"}:
            raise ValueError(f"given {field.name} is {dict(condition)!r}; it must have minimum or maximum or both")
        dates = field.type in ("date", "datetime")
        try:
            found = {
                bound: field.parse(pd.Series([value])).to_numpy()[0] if dates else number(value)
                for bound, value in condition.items()
            }
        except ValueError as error:
            raise ValueError(f"given {field.name} is {dict(condition)!r}: {error}") from None
        return found.get("minimum"), found.get("maximum")

    def _parts(self, c: int, low: Any, high: Any) -> Reals:
        """Share (size,) of the values of every code that lie between two values, by the law of the field."""
        field = self.schema.modelled[c]
        first, last = field.bounds()
        if isinstance(field, LengthField):  # where a value lies is known when its base is drawn
            return (_between(last, low, None) & _between(first, None, high)).astype(np.float64)
        whole = _between(first, low, high) & _between(last, low, high)
        some = ~whole & _between(last, low, None) & _between(first, None, high)
        parts = whole.astype(np.float64)
        for code in np.flatnonzero(some):
            parts[code] = _between(quantiles(field, int(code), self.columns.shares[c]), low, high).mean()
        return parts

    def _length_code(self, c: int, value: Any, given: Given) -> int:
        """The code of a value beside its base, which must be given, too."""
        field = cast("LengthField", self.schema.modelled[c])
        base = given.get(field.base)
        if not isinstance(value, list) and (value is None or pd.isna(value)):
            return self._code(c, value)
        if isinstance(value, list) or base is None or isinstance(base, list | Mapping):
            raise ValueError(
                f"given {field.name} is {value!r}; {field.name} is modelled by its length from {field.base} on: give one value "
                f'of both, or {{"minimum": ..., "maximum": ...}} of {field.name}'
            )
        self._code(c, value)  # refuses what the schema does not allow
        pair = (pd.Series([self._exact(name, own)]) for name, own in ((field.name, value), (field.base, base)))
        return int(field.encode_beside(*pair)[0])

    def fixed(self, given: Given) -> dict[str, Any]:
        """Values that all rows have, in the type of samples."""
        return {name: self._exact(name, value) for name, value in given.items() if not isinstance(value, list | Mapping)}

    def _exact(self, name: str, value: Any) -> Any:
        """A value that is given, in the type of samples; None: it is missing."""
        return None if value is None or pd.isna(value) else self.schema.by_name[name].parse(pd.Series([value])).iloc[0]

    def _code(self, c: int, value: Any) -> int:
        field, missing = self.schema.modelled[c], self.schema.domain.missing[c]
        if value is None or pd.isna(value):
            if missing is None:
                raise ValueError(f"given {field.name} is missing; the schema requires a value")
            return missing
        try:
            parsed = field.parse(pd.Series([value]))
            listed = getattr(field, "values", None)
            if listed is not None and parsed.iloc[0] not in listed:  # none of them stands for it here
                unknown = nearest("a value", str(value), [str(known) for known in listed[:20]])
                raise ValueError(f"{unknown}; these categories were bought") if field.source == "dp" else unknown
            return int(field.encode(parsed)[0])
        except (ValueError, TypeError) as error:
            rule = getattr(error, "rule", error)
            raise ValueError(f"given {field.name} is {value!r}; it is not in the schema: {rule}") from None


def _between(values: npt.NDArray[Any], low: Any, high: Any) -> Flags:
    """Values in [low, high]; None: without this end."""
    found = np.ones(len(values), bool)
    found &= True if low is None else np.asarray(values >= low, bool)
    return found & (True if high is None else np.asarray(values <= high, bool))


def code_means(given: Field, shares: Reals) -> Reals:
    """Mean value (size,) of each code of a number, NaN of gaps."""
    means = np.full(len(shares), np.nan)
    means[: given.size] = [np.mean(quantiles(given, code, shares).astype(np.float64)) for code in range(given.size)]
    return means


def quantiles(given: Field, code: int, shares: Reals) -> npt.NDArray[Any]:
    """Quantiles of the values of a code, by the law of its field."""
    codes, places = np.full(_PLACES, code), (np.arange(_PLACES) + 0.5) / _PLACES
    return np.asarray(given.decode(codes, lambda _: given.inside(codes, places, shares)))


# -- gaps --------------------------------------------------------------------------------------------------------------


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
        """Rows (n,) without gaps."""
        return np.asarray(~self.known.isna().any(axis=1).to_numpy())

    @property
    def present(self) -> tuple[list[bool], list[bool]]:
        """Columns (d,) with values in the first draws, all of them, and in later ones: those in no constraint."""
        schema = self.model.schema
        tied = {name for constraint in schema.constraints for name in constraint.names}
        return [True] * len(schema.modelled), [own.name not in tied for own in schema.modelled]

    @property
    def hopeless(self) -> Flags:
        """Rows (n,) whose known values break a constraint."""
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
        return before, _among(before.dropna(), own)
    if kind.kind == "f" and pd.api.types.is_numeric_dtype(own.dtype):
        return before, own.astype(kind)
    return before, own


def _among(others: pd.Series, own: pd.Series) -> pd.Series:
    """Values among other objects: as texts or days if all of these are."""
    if len(others) and others.map(lambda value: isinstance(value, str)).all():
        return own.map(_as_text(others)).astype(others.dtype)
    if len(others) and own.dtype.kind == "M" and others.map(lambda value: type(value) is date).all():
        return own.dt.date.astype(object)
    return own


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
