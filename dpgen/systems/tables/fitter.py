r"""The fit of a mixture of products to noisy marginals and public constraints.

Marginals of any order are sums over components, so a fit never looks at records: it lowers, over logits of p and weights w,

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

Random starts do not lead a fit to a parity. So where there are blocks of columns (`rounds`), or questions of four columns or
more (`workload`), each product is put into one cell of these: it is 0 in the other parts of their columns, and free elsewhere.
The sums of weights in cells are fitted to the table of each block, of which noise is taken off as of a small table
(`whole.denoised`). A question is held in the same way (`Held`), without its largest column, which products have a law of.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen.systems.tables.marginals import Coarsening, Flags, Integers, Marginal, Measurement, Reals, shape, together
from dpgen.systems.tables.mixture import Floats, Mixture
from dpgen.systems.tables.plan import DEEP, MOST_CLASSES_OF_QUESTION
from dpgen.systems.tables.whole import denoised

if TYPE_CHECKING:
    from dpgen.schema import Schema
    from dpgen.systems.tables.marginals import Columns

_MOMENTS = (0.9, 0.99)  # Adam's
AVOIDED, EXCLUDED = 0.5, 5.0
"""Loss of every record that the model expects where constraints allow none: at first, and at the end of a fit."""
HELD = 2.0  # shares of columns that such constraints are about, beside what constraints exclude
FORCED = 0.3  # of beta in columns whose dependence is partly forced by such constraints
_SURE, _CORRECTED = 3.0, 0.5  # stds of a chi-square over which a measurement is aimed at further, and by what share
_FOLLOWED = 0.5  # of a chi-square, for one that is followed
_RIDGE = 1e-3  # keeps logits of cells that nothing measures where they are
_CHUNK = 16  # triples that are computed together: what they need stays in the cache
_CALL, _CELL = 500, 2.5  # what a pair and its cells take, in cells of a product that has all pairs of a level
_ABSENT = -200.0  # logit of what is exactly 0 in float32
_SWEEPS = 50  # over tables of blocks and of questions
_PRODUCTS, _MOST_PRODUCTS = 4, 512  # of the mixture for each cell, and of all cells together


class Fitter:
    """A mixture that is fitted again whenever there are more measurements, by Adam on its logits, from where it was.

    `shares` are released marginals of columns, above 0; `n` is the released number of records, `information` beta; `followed`
    are marginals whose measurements bias would spoil; `seeds` put products into cells of blocks; `generator` is public.
    """

    def __init__(
        self,
        shares: Sequence[Reals],
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
        self._held = np.arange(len(self._column))[_rows_of(self._zeros, len(self._column))]
        self._information[self._held] = FORCED * information
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
        """Fit these measurements from now on; of one marginal their mean, weighted by 1 / variance.

        `prior` are pairs of columns that a public prior expects; the fit follows them as well, and never aims beyond them.
        `corrected`: it aims further where it was held back. For marginals that are `followed` it does so in any case.
        """
        self._aim_further(self._fitted if corrected else [m for m in self._fitted if m.marginal in self._followed])
        merged, self._levels, self._prior = _merged(measurements), levels, prior
        self._fitted = [m for m in merged if len(m.marginal.columns) > 1]
        aims = [replace(m, values=m.values + self._beyond.get(m.marginal, 0.0)) for m in merged]
        inside = None if self._seeds is None else self._seeds.inside
        self._errors = squared_errors([*aims, *prior], levels, self.sizes, self.n, inside)

    def _aim_further(self, measurements: Sequence[Measurement]) -> None:
        r"""Add to what is fitted in the place of y, for good, where the penalty held the fit back.

        It does so the more the stronger the dependence is. Where the gap :math:`g = y - n p` of a marginal of m cells is more
        than noise, :math:`\chi^2 = |g / \sigma|^2 > t = m + 3 \sqrt{2 m}`, half of :math:`(1 - t / \chi^2) g` is added. Where
        marginals are `followed`, t is m / 2.

        Source: Bregman iterations of Osher, Burger, Goldfarb, Xu, Yin 2005, up to the discrepancy of Morozov 1966.
        """
        for m, expected in zip(measurements, self._expected(measurements)):
            gap = m.values - expected
            square, most = float(((gap / m.noise_std) ** 2).sum()), gap.size + _SURE * (2 * gap.size) ** 0.5
            most = _FOLLOWED * gap.size if m.marginal in self._followed else most
            if square > most:
                self._beyond[m.marginal] = self._beyond.get(m.marginal, 0.0) + _CORRECTED * (1 - most / square) * gap

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
            slope = np.float32(2 * HELD * self._avoided) * gap
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
        """Probability (K,) of the question in components whose stacked columns are p (sum of groups, K)."""
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


def _rows_of(zeros: Sequence[Zero], count: int) -> Flags:
    """Groups (count,) of the columns that these are about."""
    found = np.zeros(count, bool)
    for rows in [rows for zero in zeros for rows in zero.rows]:
        found[rows] = True
    return found


def zeros_of(schema: Schema, columns: Columns, names: Sequence[str] | None = None) -> list[Zero]:
    """Combinations of groups of released columns that the constraints of a schema exclude; `names` are of columns in order."""
    names, ends = names or schema.domain.names, np.cumsum([0, *columns.coarse.sizes])
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


# -- squared errors of measured marginals ------------------------------------------------------------------------------

# Each class takes marginals of one kind, and adds the gradients of their half squared errors by precision in stacked
# probabilities p (sum of sizes, K) and weights w (K,).


def squared_errors(
    measurements: Sequence[Measurement], levels: Sequence[Coarsening], sizes: tuple[int, ...], n: float, inside: Flags | None
) -> list[Pairs | Triples | Deep]:
    """Errors of marginals of one and two columns, of three by level, and of each with more; for `inside` see `Deep`."""
    of = {order: [m for m in measurements if min(len(m.marginal.columns), 4) == order] for order in (1, 2, 3, 4)}
    by_level = together([m.marginal for m in of[3]])
    threes = [Triples([of[3][i] for i in numbers], levels[level], n) for level, numbers in by_level]
    deep = [Deep(m, levels[m.marginal.level], sizes, n, inside) for m in of[4]]
    return [Pairs(of[1], of[2], levels, sizes, n), *threes, *deep]


class Pairs:
    """Measured marginals of one or two columns: of one as a sparse matrix, of two by level (`_Level`)."""

    def __init__(
        self,
        singles: Sequence[Measurement],
        pairs: Sequence[Measurement],
        levels: Sequence[Coarsening],
        sizes: tuple[int, ...],
        n: float,
    ) -> None:
        from scipy.sparse import csr_matrix

        offsets, rows, columns, base = np.cumsum([0, *sizes]), [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
        for m in singles:
            [c] = m.marginal.columns
            rows.append(base + levels[m.marginal.level].groups[c])
            columns.append(offsets[c] + np.arange(sizes[c]))
            base += m.values.size
        at = np.concatenate(rows), np.concatenate(columns)
        self._sums = csr_matrix((np.ones(len(at[0]), np.float32), at), shape=(base, offsets[-1]))
        self._spread = self._sums.T.tocsr()
        self._values = np.concatenate([np.empty(0), *(m.values.ravel() / n for m in singles)]).astype(np.float32)
        self._precisions = np.concatenate([np.empty(0), *(_precisions(m, n).ravel() for m in singles)]).astype(np.float32)
        self._levels = [
            _Level([pairs[i] for i in numbers], levels[level], n) for level, numbers in together([m.marginal for m in pairs])
        ]

    def add_gradients(self, p: Floats, w: Floats, of_p: Floats, of_w: Floats) -> None:
        single = self._spread @ (self._precisions * (self._sums @ (p @ w) - self._values))
        of_w += single @ p
        of_p += single[:, None] * w
        for level in self._levels:
            level.add_gradients(p, w, of_p, of_w)


class _Level:
    """Measured pairs of columns at one level: each as a product of matrices, or all in one product where these take longer."""

    def __init__(self, measurements: Sequence[Measurement], level: Coarsening, n: float) -> None:
        from scipy.sparse import csr_matrix

        begin, full = np.cumsum([0, *level.sizes]), all(len(group) == size for group, size in zip(level.groups, level.sizes))
        self._sums = None if full else csr_matrix(level.matrix())
        self._spread = None if self._sums is None else self._sums.T.tocsr()
        self._parts = []
        for m in measurements:
            rows, columns = (slice(int(begin[c]), int(begin[c + 1])) for c in m.marginal.columns)
            self._parts.append((rows, columns, (m.values / n).astype(np.float32), _precisions(m, n).astype(np.float32)))
        cells = sum(m.values.size for m in measurements)
        self._all: tuple[Floats, Floats] | None = None
        if begin[-1] ** 2 <= _CALL * len(measurements) + _CELL * cells:
            precisions, aims = np.zeros((2, begin[-1], begin[-1]))
            for rows, columns, values, own in self._parts:  # of one pair there may be two
                precisions[rows, columns] += own
                aims[rows, columns] += own * values
            aims /= np.maximum(precisions, 1e-300)
            self._all = aims.astype(np.float32), precisions.astype(np.float32)

    def add_gradients(self, p: Floats, w: Floats, of_p: Floats, of_w: Floats) -> None:
        coarse = p if self._sums is None else self._sums @ p
        weighted = coarse * w
        if self._all is not None:
            values, precisions = self._all
            slope = weighted @ coarse.T
            slope -= values
            slope *= precisions
            pulled = slope @ coarse + slope.T @ coarse
        else:
            pulled = np.zeros_like(coarse)
            for rows, columns, values, precisions in self._parts:
                slope = precisions * (weighted[rows] @ coarse[columns].T - values)
                pulled[rows] += slope @ coarse[columns]
                pulled[columns] += slope.T @ coarse[rows]
        of_w += 0.5 * np.einsum("dk,dk->k", coarse, pulled)
        pulled *= w
        of_p += pulled if self._spread is None else self._spread @ pulled


def _precisions(m: Measurement, n: float) -> Reals:
    """1 / noise variance of each share of a marginal."""
    return np.broadcast_to((n / np.asarray(m.noise_std)) ** 2, m.values.shape)


class Triples:
    """Measured marginals of three columns at one level, padded to one shape."""

    def __init__(self, measurements: Sequence[Measurement], level: Coarsening, n: float) -> None:
        from scipy.sparse import csr_matrix

        self._sums = csr_matrix(level.matrix())
        self._spread = self._sums.T.tocsr()
        begin, m = np.cumsum([0, *level.sizes]), max(level.sizes[c] for x in measurements for c in x.marginal.columns)
        padding = begin[-1]  # a row of zeros below all groups
        self._index = np.full((3, len(measurements), m), padding, np.int64)
        self._values = np.zeros((len(measurements), m, m, m), np.float32)
        for i, x in enumerate(measurements):
            cells = shape(x.marginal, [level] * (x.marginal.level + 1))
            for axis, (c, size) in enumerate(zip(x.marginal.columns, cells)):
                self._index[axis, i, :size] = begin[c] + np.arange(size)
            self._values[i, : cells[0], : cells[1], : cells[2]] = x.values / n
        stds = np.array([float(np.mean(x.noise_std)) for x in measurements])  # of a release that was loaded: one for each cell
        self._precisions = ((n / stds) ** 2).astype(np.float32)[:, None, None, None]
        flat = self._index.ravel()
        ones = np.ones(len(flat), np.float32)
        self._gather = csr_matrix((ones, (flat, np.arange(len(flat)))), shape=(padding + 1, len(flat)))

    def add_gradients(self, p: Floats, w: Floats, of_p: Floats, of_w: Floats) -> None:
        coarse = np.concatenate([self._sums @ p, np.zeros((1, len(w)), np.float32)])
        slopes = np.empty((*self._index.shape, len(w)), np.float32)
        for start in range(0, slopes.shape[1], _CHUNK):
            part = slice(start, start + _CHUNK)
            of_w += self._slopes(coarse[self._index[:, part]], w, part, slopes[:, part])
        of_p += self._spread @ (self._gather @ slopes.reshape(-1, len(w)))[:-1]

    def _slopes(self, coarse: Floats, w: Floats, part: slice, slopes: Floats) -> Floats:
        """Gradients of some triples, in their three columns (3, t, m, K) and in w, which is returned."""
        a, b, c = coarse
        t, m, k = a.shape
        first = ((a * w)[:, :, None] * b[:, None]).reshape(t, m * m, k)
        residual = np.matmul(first, c.transpose(0, 2, 1)).reshape(t, m, m, m)
        residual = (self._precisions[part] * (residual - self._values[part])).reshape(t, m * m, m)
        of_first = np.matmul(residual, c).reshape(t, m, m, k)
        of_a = np.einsum("tabk,tbk->tak", of_first, b)
        np.multiply(of_a, w, out=slopes[0])
        np.multiply(np.einsum("tabk,tak->tbk", of_first, a), w, out=slopes[1])
        np.matmul(residual.transpose(0, 2, 1), first, out=slopes[2])
        return np.asarray(np.einsum("tak,tak->k", of_a, a))


class Deep:
    """A measured marginal of four columns or more.

    Where products lie in one group each of all its columns, or of all but one, as `inside` (sum of sizes, K) says, its cells
    are sums over these. Else they are sums of products of columns.
    """

    def __init__(self, m: Measurement, level: Coarsening, sizes: Sequence[int], n: float, inside: Flags | None = None) -> None:
        starts = np.cumsum([0, *sizes])
        parts = {
            c: (slice(starts[c], starts[c + 1]), np.eye(level.sizes[c], dtype=np.float32)[:, level.groups[c]])
            for c in m.marginal.columns
        }
        touched = {} if inside is None else {c: sums @ inside[rows] > 0 for c, (rows, sums) in parts.items()}
        certain = [c for c in touched if (touched[c].sum(0) == 1).all()]
        order = sorted(parts, key=lambda c: c not in certain)
        self._parts, cells = [parts[c] for c in order], [level.sizes[c] for c in order]
        self._held = len(order) - len(certain) < 2
        if self._held:
            self._place = np.ravel_multi_index([touched[c].argmax(0) for c in order[:-1]], cells[:-1])
        axes = list(map(m.marginal.columns.index, order))
        self._values = (m.values.transpose(axes).reshape(-1, cells[-1]) / n).astype(np.float32)
        self._precision = np.float32((n / float(np.mean(m.noise_std))) ** 2)

    def add_gradients(self, p: Floats, w: Floats, of_p: Floats, of_w: Floats) -> None:
        blocks = [sums @ p[rows] for rows, sums in self._parts]
        last, (last_rows, last_sums) = blocks[-1], self._parts[-1]
        if self._held:
            joint = self._joint(last * w)
            slope = (self._precision * (joint - self._values))[self._place].T
            of_w += np.einsum("mk,mk->k", slope, last)
            of_p[last_rows] += last_sums.T @ (slope * w)
            return
        lefts = [np.ones((1, len(w)), np.float32)]
        for block in blocks[:-1]:
            lefts.append((lefts[-1][:, None] * block[None]).reshape(-1, len(w)))
        residual = self._precision * ((lefts[-1] * w) @ last.T - self._values)
        of_p[last_rows] += last_sums.T @ (residual.T @ lefts[-1] * w)
        slope = residual @ last
        of_w += np.einsum("rk,rk->k", slope, lefts[-1])
        for (rows, sums), block, left in reversed(list(zip(self._parts[:-1], blocks, lefts))):
            slope = slope.reshape(len(left), len(block), -1)
            of_p[rows] += sums.T @ (np.einsum("lgk,lk->gk", slope, left) * w)
            slope = np.einsum("lgk,gk->lk", slope, block)

    def _joint(self, weighted: Floats) -> Floats:
        """Sums (cells of the first columns, m) of what products (m, K) have in the last one."""
        return np.stack([np.bincount(self._place, own, len(self._values)) for own in weighted], axis=1).astype(np.float32)


# -- products in cells -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Held:
    """Questions of four columns or more whose cells products are put into, in their order, as long as cells are few.

    Each is without one column: the one of most groups, if no other question has products put into its groups. `tables` are
    noisy counts of what is left, `groups` those of these columns.
    """

    tables: tuple[Measurement, ...]
    groups: Mapping[int, Integers]

    @classmethod
    def of(cls, asked: Sequence[Measurement], levels: Sequence[Coarsening]) -> Held:
        """Tables of measured questions that products can hold."""
        kept, groups = list[Measurement](), dict[int, Integers]()
        for m in asked:
            own = {c: levels[m.marginal.level].groups[c] for c in m.marginal.columns}
            same = all(np.array_equal(groups[c], own[c]) for c in own.keys() & groups.keys())
            fresh = sorted(own.keys() - groups.keys(), key=lambda c: (own[c].max(), c))[:-1]
            wanted = groups | {c: own[c] for c in fresh}
            if len(own) >= DEEP and same and _cells(wanted) <= MOST_CLASSES_OF_QUESTION:
                kept, groups = [*kept, m], wanted
        return cls(tuple(_of_columns(m, groups) for m in kept), groups)

    @property
    def busy(self) -> frozenset[int]:
        """Columns that products have one group of."""
        return frozenset(self.groups)

    @property
    def cells(self) -> int:
        """Cells of all these columns together."""
        return _cells(self.groups)

    def seeds(self, columns: Columns, components: int) -> Seeds | None:
        """Products for these questions alone, at least so many; None: there is none."""
        if not self.tables:
            return None
        parts = self.over(Coarsening.full(columns.coarse.sizes))
        return Seeds.of([], columns.group_shares, parts, columns.n, components, self.tables)

    def over(self, parts: Coarsening) -> Coarsening:
        """Other parts of columns, with the groups of these."""
        groups = tuple(self.groups.get(c, own) for c, own in enumerate(parts.groups))
        return Coarsening(groups, tuple(int(own.max()) + 1 for own in groups))


def _cells(groups: Mapping[int, Integers]) -> int:
    return math.prod(int(own.max()) + 1 for own in groups.values())


def _of_columns(m: Measurement, columns: Container[int]) -> Measurement:
    """Counts of those columns of a marginal that are among `columns`."""
    kept = tuple(c for c in m.marginal.columns if c in columns)
    axes = tuple(axis for axis, c in enumerate(m.marginal.columns) if c not in columns)
    variance = np.broadcast_to(np.square(m.noise_std), m.values.shape).sum(axes)
    return Measurement(Marginal(kept, m.marginal.level), m.values.sum(axes), np.sqrt(variance))


@dataclass(frozen=True, eq=False)
class Seeds:
    """Products of a mixture, each in one cell of the columns of all blocks, and of questions that are held.

    `cells` (K,) are those of products, `law` (cells,) their expected shares; `inside` (rows, K) whether a group of stacked
    columns is in the part of a product; `tables` of blocks: their cell (K,) of each product, shares of cells, and 1 / noise
    variance of shares.
    """

    law: Reals
    cells: Integers
    inside: Flags
    tables: tuple[tuple[Integers, Reals, float], ...]

    @classmethod
    def of(
        cls,
        blocks: Sequence[Measurement],
        shares: Sequence[Reals],
        parts: Coarsening,
        n: float,
        components: int,
        held: Sequence[Measurement] = (),
    ) -> Seeds:
        """Products for blocks and tables of questions, at least so many, by `parts` of groups of these shares."""
        known = [*blocks, *held]
        together = sorted({c for m in known for c in m.marginal.columns})
        law = reduce(np.multiply.outer, [np.bincount(parts.groups[c], shares[c]) for c in together], np.ones(()))
        product, laws = law, list[Reals]()
        for m in known:
            counts = denoised(m.values, float(np.mean(m.noise_std)), n, np.ones(m.values.shape, bool))
            laws.append((np.maximum(counts, 0.0) + 1.0 / counts.size) / (np.maximum(counts, 0.0).sum() + 1.0))
        others = [tuple(i for i, c in enumerate(together) if c not in m.marginal.columns) for m in known]
        for _ in range(_SWEEPS):
            for axes, own in zip(others, laws):
                now = law.sum(axes, keepdims=True)
                law = law * (own.reshape(now.shape) / now)
        law = (n * law / law.sum() + product) / (n + 1)
        return cls._in_cells(law, together, laws, blocks, parts, n, components)

    @classmethod
    def _in_cells(
        cls,
        law: Reals,
        together: Sequence[int],
        laws: Sequence[Reals],
        blocks: Sequence[Measurement],
        parts: Coarsening,
        n: float,
        components: int,
    ) -> Seeds:
        """Products as the law of cells has them, one for each cell at least."""
        count = max(components, min(_PRODUCTS * law.size, _MOST_PRODUCTS))
        wanted = np.floor((count - law.size) * law.ravel().cumsum() / law.sum()).astype(np.int64)
        cells = np.repeat(np.arange(law.size), 1 + np.diff(wanted, prepend=0))
        signs = dict(zip(together, np.unravel_index(cells, law.shape)))
        inside = [
            parts.groups[c][:, None] == signs[c][None] if c in signs else np.ones((len(group), len(cells)), bool)
            for c, group in enumerate(parts.groups)
        ]
        tables = []
        for m, own in zip(blocks, laws):
            place = np.ravel_multi_index([signs[c] for c in m.marginal.columns], own.shape)
            tables.append((place, own.ravel(), (n / float(np.mean(m.noise_std))) ** 2))
        return cls(law.ravel(), cells, np.concatenate(inside), tuple(tables))

    @property
    def weights(self) -> Floats:
        """Logits (K,) of the products' weights at first."""
        return np.log(self.law[self.cells] / np.bincount(self.cells)[self.cells]).astype(np.float32)

    def within(self, prior: Floats, starts: Integers, column: Integers) -> Floats:
        """Logits (rows, K) of released columns inside of the parts of each product."""
        found = np.where(self.inside, np.exp(prior.astype(np.float64)), 0.0)
        found /= np.add.reduceat(found, starts, axis=0)[column]
        return np.asarray(np.where(self.inside, np.log(np.maximum(found, 1e-300)), _ABSENT), np.float32)

    def add_gradients(self, w: Floats, of_w: Floats) -> None:
        """Add gradients of the squared errors of the tables of blocks, in the weights w."""
        for place, shares, precision in self.tables:
            gap = np.bincount(place, w, len(shares)) - shares
            of_w += (precision * gap[place]).astype(np.float32)
