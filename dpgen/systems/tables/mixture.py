r"""A mixture of products, its fit to noisy marginals and public constraints, and its rows.

.. math:: p(x) = \sum_k w_k \prod_c p_{kc}(x_c)

Marginals of any order are sums over components, so a fit never looks at records: it lowers, over logits of p and w,

.. math:: \tfrac12 \sum_r \sum_i (n p_r(i) - y_{ri})^2 / \sigma_r^2 + \beta \sum_k w_k \sum_c KL(p_{kc} \| p_c)
    + \nu n \Big( \sum_z p(z) + 2 \sum_c \sum_g (p(g) - p_c(g))^2 / p_c(g) \Big)

with y the measured marginals, :math:`p_c` the released marginals of single columns, and z what public constraints exclude.
The second sum is the mutual information of the component with each column. It bounds how far the columns are from
independence, so what was not measured stays as independent as what was measured allows: without it a mixture of many
components invents dependence where nobody looked, and fits noise where somebody did. In columns that z is about, beta is .3
as large: their dependence is partly forced. The last sum is over the groups g of these columns. It keeps small groups: a fit
that only lowered p(z) would rather give up the children than find all their gaps. :math:`\nu` is .5, and 5 in the last steps,
after which next to nothing is left that would be rejected.

The second sum pulls strong dependence down, of a column that is a function of another most: `Fitter.measure` moves y until its
gap is that of noise.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpgen.privacy.draws import compiled
from dpgen.systems.tables.errors import Deep, Pairs, Triples
from dpgen.systems.tables.marginals import Coarsening, Marginal, Measurement, together

if TYPE_CHECKING:
    from dpgen.schema import Schema
    from dpgen.systems.tables.marginals import Columns
    from dpgen.systems.tables.seeds import Seeds

Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_MOMENTS = (0.9, 0.99)  # Adam's
AVOIDED, EXCLUDED = 0.5, 5.0
"""Loss of every record that the model expects where constraints allow none: at first, and at the end of a fit."""
_HELD = 2.0  # shares of columns that such constraints are about, beside what constraints exclude
_FORCED = 0.3  # of beta in columns whose dependence is partly forced by such constraints
_SURE, _CORRECTED = 3.0, 0.5  # stds of a chi-square over which a measurement is aimed at further, and by what share
_FOLLOWED = 0.5  # of a chi-square, for one that is followed
_RIDGE = 1e-3  # keeps logits of cells that nothing measures where they are


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mixture of K products over columns of given sizes.

    Stacked columns (sum of sizes, K), each summing to 1, and weights (K,).
    """

    probabilities: Floats
    weights: Floats
    sizes: tuple[int, ...]

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where each column begins in `probabilities`, and their end."""
        return np.cumsum([0, *self.sizes])

    @cached_property
    def of_cells(self) -> bool:
        """Whether each component is a cell of all columns but one."""
        most = np.maximum.reduceat(self.probabilities, self.offsets[:-1], axis=0)
        certain = ((most == 1.0) | (most == 0.0)).all(1)  # 0 of all: the component is not among what is given
        return int(certain.sum()) >= len(self.sizes) - 1 > 0

    @cached_property
    def in_cells(self) -> npt.NDArray[np.bool_]:
        """Columns (d,) of which each component lacks some values: those of blocks."""
        return np.asarray((np.minimum.reduceat(self.probabilities, self.offsets[:-1], axis=0) == 0.0).all(1))

    def block(self, column: int) -> Floats:
        """Probabilities (size, K) of one column."""
        start, stop = self.offsets[column : column + 2]
        return self.probabilities[start:stop]

    def marginal(self, columns: Sequence[int]) -> npt.NDArray[np.float64]:
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

    def expected(self, marginals: Sequence[Marginal], levels: Sequence[Coarsening]) -> npt.NDArray[np.float64]:
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


class Fitter:
    """A mixture that is fitted again whenever there are more measurements, by Adam on its logits, from where it was.

    `shares` are released marginals of columns, above 0; `n` is the released number of records, `information` beta; `followed`
    are marginals whose measurements bias would spoil; `seeds` put products into cells of blocks; `generator` is public.
    """

    def __init__(
        self,
        shares: Sequence[npt.NDArray[np.float64]],
        n: float,
        *,
        components: int,
        information: float,
        zeros: Sequence[Zero] = (),
        followed: Sequence[Marginal] = (),
        seeds: Seeds | None = None,
        generator: np.random.Generator,
    ) -> None:
        self.sizes, self.n, self._zeros = tuple(len(p) for p in shares), n, tuple(zeros)
        self._followed = frozenset(followed)
        self._starts = np.cumsum([0, *self.sizes[:-1]])
        self._column = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self._shares, self._seeds = np.concatenate(shares).astype(np.float32), seeds
        self.prior = np.log(self._shares)[:, None]
        if seeds is not None:
            self.prior, components = seeds.within(self.prior, self._starts, self._column), len(seeds.cells)
        self._information = np.full((len(self._column), 1), information, np.float32)
        for rows in [rows for zero in self._zeros for rows in zero.rows]:
            self._information[rows] = _FORCED * information
        held = [np.arange(len(self._column))[rows] for zero in self._zeros for rows in zero.rows]
        self._held = np.unique(np.concatenate(held)) if held else np.empty(0, np.int64)
        noise = generator.normal(0.0, 1.0, (len(self._column), components))
        weights = np.zeros(components, np.float32) if seeds is None else seeds.weights
        self.logits: list[Floats] = [(self.prior + noise).astype(np.float32), weights]
        self._first = [np.zeros_like(values) for values in self.logits]
        self._second = [np.zeros_like(values) for values in self.logits]
        self._steps, self._avoided = 0, AVOIDED * n
        self._errors: list[Pairs | Triples | Deep] = []
        self._fitted: list[Measurement] = []
        self._levels: Sequence[Coarsening] = ()
        self._beyond: dict[Marginal, Any] = {}
        self._prior: Sequence[Measurement] = ()

    def measure(
        self,
        measurements: Sequence[Measurement],
        levels: Sequence[Coarsening],
        *,
        corrected: bool = False,
        prior: Sequence[Measurement] = (),
    ) -> None:
        r"""Fit these measurements from now on; of one marginal their mean, weighted by 1 / variance.

        `prior` are pairs of columns that a public prior expects; the fit follows them as well, and never aims beyond them.

        The penalty holds a fit back, the more the stronger the dependence is. `corrected`: where the gap :math:`g = y - n p` of
        a marginal of m cells that was fitted is more than noise, :math:`\chi^2 = |g / \sigma|^2 > t = m + 3 \sqrt{2 m}`,
        half of :math:`(1 - t / \chi^2) g` is added for good to what is fitted in the place of y. For those that are `followed`
        it is so in any case, with t = m / 2.

        Source: Bregman iterations of Osher, Burger, Goldfarb, Xu, Yin 2005, up to the discrepancy of Morozov 1966.
        """
        further = self._fitted if corrected else [m for m in self._fitted if m.marginal in self._followed]
        for m, expected in zip(further, self._expected(further)):
            gap = m.values - expected
            square, most = float(((gap / m.noise_std) ** 2).sum()), gap.size + _SURE * (2 * gap.size) ** 0.5
            most = _FOLLOWED * gap.size if m.marginal in self._followed else most
            if square > most:
                self._beyond[m.marginal] = self._beyond.get(m.marginal, 0.0) + _CORRECTED * (1 - most / square) * gap
        merged, self._levels, self._prior = _merged(measurements), levels, prior
        self._fitted = [m for m in merged if len(m.marginal.columns) > 1]
        aims = [replace(m, values=m.values + self._beyond.get(m.marginal, 0.0)) for m in merged]
        few = [m for m in aims if len(m.marginal.columns) < 3]
        threes = [m for m in aims if len(m.marginal.columns) == 3]
        inside = None if self._seeds is None else self._seeds.inside
        self._errors = [
            Pairs([*few, *prior], levels, self.sizes, self.n),
            *(
                Triples([threes[i] for i in numbers], levels[level], self.n)
                for level, numbers in together([m.marginal for m in threes])
            ),
            *(Deep(m, levels[m.marginal.level], self.sizes, self.n, inside) for m in aims if len(m.marginal.columns) > 3),
        ]

    def _expected(self, measurements: Sequence[Measurement]) -> list[Reals]:
        """Counts that the mixture expects in marginals of several columns."""
        if not measurements:
            return []
        counts = self.n * self.mixture.expected([m.marginal for m in measurements], self._levels)
        ends = np.cumsum([m.values.size for m in measurements])[:-1]
        return [own.reshape(m.values.shape) for m, own in zip(measurements, np.split(counts, ends))]

    @property
    def mixture(self) -> Mixture:
        """The mixture as it is now."""
        p, w = self._softmax()
        return Mixture(p, w, self.sizes)

    def run(self, steps: int, rate: float, last: float, *, avoided: float = AVOIDED) -> None:
        """Steps of a rate that falls from `rate` to `last` along half a cosine."""
        self._avoided = avoided * self.n
        for i in range(steps):
            self._step(last + (rate - last) * (0.5 + 0.5 * math.cos(math.pi * i / steps)))

    def again(
        self, measurements: Sequence[Measurement], levels: Sequence[Coarsening], times: int, *run: Any, corrected: bool
    ) -> Mixture:
        """The mixture after more steps (`run`) on other measurements, several times; the fitter stays as it is."""
        own = copy.copy(self)
        own.logits, own._first, own._second = ([x.copy() for x in xs] for xs in (self.logits, self._first, self._second))
        own._beyond = dict(self._beyond)
        for i in range(times):
            own.measure(measurements, levels, corrected=corrected and i > 0, prior=self._prior)
            own.run(*run)
        return own.mixture

    def _softmax(self) -> tuple[Floats, Floats]:
        logits, weights = self.logits
        p: Floats = logits - np.maximum.reduceat(logits, self._starts, axis=0)[self._column]
        np.exp(p, out=p)
        p /= np.add.reduceat(p, self._starts, axis=0)[self._column]
        w = np.exp(weights - weights.max())
        return p, w / w.sum()

    def _step(self, rate: float) -> None:
        self._steps += 1
        b1, b2 = _MOMENTS
        for value, gradient, first, second in zip(self.logits, self.gradients(), self._first, self._second):
            scratch = gradient - first  # large arrays: what can be is worked out in place
            scratch *= 1 - b1
            first += scratch
            gradient *= gradient
            gradient -= second
            gradient *= 1 - b2
            second += gradient
            np.divide(second, 1 - b2**self._steps, out=scratch)
            np.sqrt(scratch, out=scratch)
            scratch += 1e-8
            np.multiply(first, rate / (1 - b1**self._steps), out=gradient)
            gradient /= scratch
            value -= gradient

    def gradients(self) -> tuple[Floats, Floats]:
        """Gradients of the loss, in the logits of p and of w."""
        p, w = self._softmax()
        of_p, of_w = np.zeros_like(p), np.zeros_like(w)
        for part in self._errors:
            part.add_gradients(p, w, of_p, of_w)
        if len(self._held):
            gap = p[self._held] @ w / self._shares[self._held] - 1
            slope = np.float32(2 * _HELD * self._avoided) * gap
            of_p[self._held] += slope[:, None] * w
            of_w += slope @ p[self._held]
        if self._seeds is not None:
            self._seeds.add_gradients(w, of_w)
        for zero in self._zeros:
            zero.add_gradients(self._avoided, p, w, of_p, of_w)
        ratio = np.maximum(p, 1e-30)
        np.log(ratio, out=ratio)
        ratio -= self.prior
        ratio *= self._information
        of_w += np.einsum("dk,dk->k", p, ratio)
        ratio *= w
        of_p += ratio
        np.multiply(of_p, p, out=ratio)
        of_p -= np.add.reduceat(ratio, self._starts, axis=0)[self._column]
        of_p *= p
        logits, weights = self.logits
        np.subtract(logits, self.prior, out=ratio)
        ratio *= 2 * _RIDGE
        of_p += ratio
        return of_p, w * (of_w - np.float32(w @ of_w)) + 2 * _RIDGE * weights


def _merged(measurements: Sequence[Measurement]) -> list[Measurement]:
    """One measurement of each marginal."""
    found: dict[Marginal, Measurement] = {}
    for m in measurements:
        if (old := found.get(m.marginal)) is not None:
            a, b = 1 / np.square(old.noise_std), 1 / np.square(m.noise_std)
            m = Measurement(m.marginal, (a * old.values + b * m.values) / (a + b), (a + b) ** -0.5)
        found[m.marginal] = m
    return list(found.values())


# -- combinations that constraints exclude -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Zero:
    r"""Groups that do not occur together: a sum of products of sets, :math:`\sum_t \prod_c F_c[t] \cdot p_{kc}` in a component.

    `rows` are where the groups of each of its columns stand among the stacked ones, `factors` F (t, groups), the share of a
    group.
    """

    rows: tuple[slice, ...]
    factors: tuple[Floats, ...]

    def mass(self, p: Floats) -> Floats:
        """Its probability (K,) in components whose stacked columns are p (sum of groups, K)."""
        return np.asarray(np.multiply.reduce(self._parts(p)).sum(0))

    def add_gradients(self, weight: float, p: Floats, w: Floats, of_p: Floats, of_w: Floats) -> None:
        """Add the gradients of `weight` times its probability, in p and w."""
        parts = self._parts(p)
        of_w += weight * np.multiply.reduce(parts).sum(0)
        for i, (rows, factor) in enumerate(zip(self.rows, self.factors)):
            others = np.multiply.reduce(parts[:i] + parts[i + 1 :])
            of_p[rows] += weight * w * (factor.T @ others if len(parts) > 1 else factor.sum(0)[:, None])

    def _parts(self, p: Floats) -> list[Floats]:
        return [factor @ p[rows] for rows, factor in zip(self.rows, self.factors)]


def zeros_of(schema: Schema, columns: Columns) -> list[Zero]:
    """Combinations of groups of released columns that the constraints of a schema exclude."""
    names, ends = schema.domain.names, np.cumsum([0, *columns.coarse.sizes])
    found = []
    for constraint in schema.constraints:
        numbers = [names.index(name) for name in constraint.names if name in names]
        factors = constraint.impossible(schema.by_name) if len(numbers) == len(constraint.names) else None
        if factors is None:
            continue
        grouped = list[Floats]()
        for c, factor in zip(numbers, factors):
            group = columns.coarse.groups[c]
            inside = np.zeros((len(group), columns.coarse.sizes[c]), np.float32)
            inside[np.arange(len(group)), group] = columns.inside(c)
            grouped.append(factor[:, : len(group)].astype(np.float32) @ inside)
        if len(grouped) == 2 and len(grouped[0]) > grouped[0].shape[1]:  # the same sum of products with fewer of them
            grouped = [np.eye(grouped[0].shape[1], dtype=np.float32), grouped[0].T @ grouped[1]]
        found.append(Zero(tuple(slice(ends[c], ends[c + 1]) for c in numbers), tuple(grouped)))
    return found


# -- rows --------------------------------------------------------------------------------------------------------------


Codes = npt.NDArray[np.int64]

_compile = compiled()

_MOST_CELLS = 2**24  # of all triples together: more of them are left out
PAIR, ONE = np.float32(2.0), np.float32(1.0)  # weights of cells of two and of three columns


def iid_rows(mixture: Mixture, n: int, generator: np.random.Generator) -> Codes:
    """n independent rows of codes (n, d)."""
    component = np.sort(np.searchsorted(edges(mixture.weights.astype(np.float64)), generator.random(n), side="right"))
    rows = filled(mixture, component, lambda count: generator.random(count))
    return np.asarray(generator.permutation(rows))


def matched_rows(mixture: Mixture, n: int, generator: np.random.Generator) -> Codes:
    r"""n rows whose counts in all pairs and triples of columns are close to n times the model's.

    Systematic draws of components and of values in each component, then one pass over all cells in random order: a cell whose
    value too many rows hold takes the value that lowers :math:`\sum |n p - \text{count}|` over cells of triples and, with
    weight 2, of pairs the most, but where components are cells, and in columns of blocks: their draws have their counts.
    Rows are not independent any
    more; it is post-processing of the model.
    """
    ends = edges(mixture.weights.astype(np.float64))
    component = np.searchsorted(ends, (np.arange(n) + generator.random()) / max(n, 1), side="right")

    def systematic(count: int) -> npt.NDArray[np.float64]:
        return np.asarray(generator.permutation((np.arange(count) + generator.random()) / max(count, 1)))

    rows = filled(mixture, component, systematic)
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


def edges(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Upper ends of the components but the last on [0, 1)."""
    total = np.cumsum(weights)
    return np.asarray(total[:-1] / total[-1])


def filled(mixture: Mixture, component: Codes, uniforms) -> Codes:  # type: ignore[no-untyped-def]
    """Codes (n, d) of rows whose components (n,) are sorted."""
    ends = np.bincount(component, minlength=len(mixture.weights)).cumsum()
    rows = np.empty((len(component), len(mixture.sizes)), np.int64)
    for c in range(rows.shape[1]):
        block = mixture.block(c).astype(np.float64)
        for k, (start, stop) in enumerate(zip([0, *ends], ends)):
            if stop > start:
                rows[start:stop, c] = np.searchsorted(edges(block[:, k]), uniforms(stop - start), side="right")
    return rows


def _gaps(mixture: Mixture, rows: Codes, order: int) -> tuple[Floats, npt.NDArray[np.int64]]:
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
    """The same of triples, behind m cells of pairs."""
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
