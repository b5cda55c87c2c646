r"""A public prior of a table: rows of a public table, or an earlier release, beside today's noisy counts.

All of it is post-processing of counts that are paid for, so it costs nothing. With y noisy counts of a marginal of noise stds
:math:`\sigma` and E = n p what the prior expects, the fit follows E beside y, as if it had been counted with the variance

.. math:: v = \phi (E + 1) + \max(0, (y - E)^2 - 4 \sigma^2)

1. :math:`\phi` is what a record of the prior and one of today differ by: at least 1 + n / m, the sampling error of m rows and
   of today's n, and at least what the counts say, :math:`(|y - E|^2 - |\sigma|^2) / n` and one standard error of it. So a prior
   of other people weighs less; of ordered codes sums of neighbours are asked as well, in which a shift stands out of noise.
2. The second term frees a cell whose own count contradicts: what the prior moves a count by stays below about two noise stds.

Of pairs of columns only the dependence is the prior's: its table is fitted to today's shares of both columns, and shrunk to
:math:`I + \lambda D`, where I is the table of independent columns and D what the prior has beyond it. :math:`\lambda` is the
regression of today's measured dependence on D over all measured pairs,

.. math:: \hat\lambda = \frac{\sum (y - I) D / \sigma^2}{\sum D^2 / \sigma^2}, \qquad
    \lambda = \min(1, \hat\lambda) \max(0, 1 - 4 s^2 / \hat\lambda^2), \quad s^{-2} = \sum D^2 / \sigma^2

so a prior whose dependence noise hides, or that has none of today's, is not used. A pair that was not measured takes
:math:`\phi` in proportion to its dependence, as measured pairs of its columns have it.

Source: James and Stein 1961; limited translation, Efron and Morris 1972; tables fitted to shares, Deming and Stephan 1940.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen.containers.forms import as_type
from dpgen.facts import Fact, Said
from dpgen.schema import nearest
from dpgen.systems.registry import released
from dpgen.systems.tables.marginals import Coarsening, Columns, Integers, Marginal, Measurement, Reals, summed
from dpgen.systems.tables.mixture import Mixture
from dpgen.systems.tables.whole import table_of

if TYPE_CHECKING:
    import pandas as pd

    from dpgen.data import RawTable, Table
    from dpgen.privacy.curator import Curator
    from dpgen.schema import Schema, TableDomain
    from dpgen.systems.tables.model import TablesModel


_FREE = 4.0  # sigma^2, from which on a cell's own count frees it
_SURE = 4.0  # s^2 of lambda, below which a prior is not used
_CLEAR = 3.0  # stds of a chi-square from which on a pair of the prior is dependent
_SWEEPS = 8  # of proportional fitting


@dataclass(frozen=True, eq=False)
class Prior:
    """Public rows of a table, or a released model of one; `rows` are how many records it knows of."""

    name: str
    rows: float
    table: pd.DataFrame | None = None
    model: TablesModel | None = None

    @classmethod
    def of(cls, path: str, data: Table | RawTable, names: Sequence[str], curator: Curator) -> Prior:
        """The prior that an option gives: rows that were read with the data, or the release at a path.

        ValueError for a release of another system, or with columns that are not among `names`.
        """
        if data.prior is not None:
            return cls(f"{len(data.prior):,} rows of a table", float(len(data.prior)), table=data.prior)
        model: Any = released("prior", path, curator)
        if model.kind != "tables":
            raise ValueError(f"prior is {str(path)!r}, a release of {model.kind}; it must be one of tables, or a table")
        for name in model.schema.domain.names:
            if name not in names:
                raise nearest("a column of prior", name, list(names))
        return cls(f"a release of {model.size:,} records", float(max(1, model.size)), model=model)

    def facts(self, dependence: Dependence | None, *, joint: bool) -> list[Fact | Said]:
        """Facts of the prior for a statement."""
        used = "single columns alone"
        if joint:
            used = "the cells of the table of all columns"
        elif dependence is not None and dependence.weight:
            used = f"single columns, and with the dependence of pairs (weight {dependence.weight:.2f} of 1)"
        return [Fact.PRIOR(prior=self.name, used=used), *([Fact.PUBLIC_PRIOR] if self.model is None else [])]

    def coded(self, schema: Schema) -> Coded:
        """The prior in codes of a schema."""
        return Coded.of_table(self, schema) if self.model is None else Coded.of_model(self, self.model, schema)


def _codes_today(model: TablesModel, values: pd.DataFrame, schema: Schema) -> Integers:
    """Codes (n, d) of a schema of values of an earlier release; those of another type are read as its data were written."""
    dtypes = {} if model.form is None else model.form.dtypes
    today = schema.codes(values.assign(**{name: as_type(values[name], dtypes.get(name, "")) for name in values})).numpy()
    alike = [given.name for given in schema.modelled if (of := model.schema.by_name.get(given.name)) and of.type == given.type]
    if alike:
        today[:, [schema.domain.names.index(name) for name in alike]] = schema.codes_of_samples(values, alike)
    return today


@dataclass(frozen=True, eq=False)
class Coded:
    """A prior in codes of a schema: codes (m, d) of rows, or a mixture over codes; it has columns that are `known`."""

    prior: Prior
    known: frozenset[int]
    codes: Integers | None = None
    mixture: Mixture | None = None

    @classmethod
    def of_table(cls, prior: Prior, schema: Schema) -> Coded:
        """Codes of rows; columns most of whose values are not of the type that was bought are not known."""
        assert prior.table is not None
        typed, there = schema.typed(prior.table), prior.table.notna()
        known = [c for c, name in enumerate(typed) if 2 * int(typed[name].notna().sum()) >= int(there[name].sum())]
        return cls(prior, frozenset(known), codes=schema.codes(prior.table).numpy())

    @classmethod
    def of_model(cls, prior: Prior, model: TablesModel, schema: Schema) -> Coded:
        """Codes of a release: laws of its groups, each given today's codes by 65,536 public draws."""
        groups, values = model.drawn
        own, sizes, blocks, known = model.schema.domain.names, schema.domain.sizes, list[Reals](), list[int]()
        today = _codes_today(model, values.reindex(columns=list(schema.domain.names)), schema)
        for c, name in enumerate(schema.domain.names):
            if name not in own:
                blocks.append(np.full((sizes[c], len(model.mixture.weights)), 1.0 / sizes[c]))
                continue
            known.append(c)
            z = own.index(name)
            moved = np.zeros((sizes[c], model.mixture.sizes[z]))
            np.add.at(moved, (today[:, c], groups[:, z]), 1.0)
            moved += 1e-9 * moved.sum(1, keepdims=True) + 1e-12  # groups that were never drawn follow the column
            blocks.append(moved / moved.sum(0) @ model.mixture.block(z).astype(np.float64))
        stacked = np.concatenate(blocks).astype(np.float32)
        return cls(prior, frozenset(known), mixture=Mixture(stacked, model.mixture.weights, sizes))

    def law(self, columns: Sequence[int], coarse: Coarsening) -> Reals:
        """Probabilities of groups of some columns, an axis for each."""
        sizes = [coarse.sizes[c] for c in columns]
        if self.codes is not None:
            groups = [coarse.groups[c][self.codes[:, c]] for c in columns]
            cells = np.ravel_multi_index(groups, sizes)
            return np.bincount(cells, minlength=math.prod(sizes)).reshape(sizes) / max(1, len(cells))
        assert self.mixture is not None
        found = self.mixture.marginal(columns)
        for axis, c in enumerate(columns):
            found = summed(found, axis, coarse.groups[c], coarse.sizes[c])
        return found

    # -- single columns and whole tables -------------------------------------------------------------------------------

    def of_columns(self, released: Sequence[Measurement], domain: TableDomain, n: float) -> list[Measurement]:
        """Marginals of single columns that stand beside released ones, in codes."""
        full, found = Coarsening.full(domain.sizes), list[Measurement]()
        for c in sorted(self.known):
            total, precision = np.zeros(1), np.zeros(1)
            for m in released:
                if c in m.marginal.columns:
                    other = tuple(axis for axis, own in enumerate(m.marginal.columns) if own != c)
                    weight = 1.0 / (np.broadcast_to(m.noise_std, m.values.shape) ** 2).sum(other)
                    total, precision = total + weight * m.values.sum(other), precision + weight
            expected, y, noise = n * self.law([c], full), total / precision, 1.0 / precision
            live = domain.sizes[c] - (domain.missing[c] is not None)
            phi = self._phi(y, expected, noise, n, live if domain.ordered[c] and c != domain.target else 0)
            found.append(Measurement(Marginal((c,), 0), expected, np.sqrt(self._variances(y, expected, noise, n, phi))))
        return found

    def _phi(self, y: Reals, expected: Reals, noise: Reals, n: float, ordered: int = 0) -> float:
        """Variance of a count beside the prior for each record that it expects; the first `ordered` cells have neighbours."""
        gap = y - expected
        phi = max(1.0 + n / self.prior.rows, ((gap**2).sum() - noise.sum() + math.sqrt(2 * (noise**2).sum())) / n)
        block = 2
        while block <= ordered // 2:
            first = np.arange(0, ordered, block)
            sums, variances = np.add.reduceat(gap[:ordered], first), np.add.reduceat(noise[:ordered], first)
            phi = max(phi, float((sums**2).sum() - variances.sum() - math.sqrt(2 * (variances**2).sum())) / n)
            block *= 2
        return float(phi)

    def variances(self, expected: Reals, n: float, phi: float) -> Reals:
        """Variances of the prior's counts: of sampling error in proportion to a count, of what differs half evenly."""
        least = 1.0 + n / self.prior.rows
        return np.asarray(least * (expected + 1.0) + max(0.0, phi - least) * (expected + n / expected.size) / 2)

    def _variances(self, y: Reals, expected: Reals, noise: Reals, n: float, phi: float) -> Reals:
        """Variances of the prior's counts, and of what frees cells that differ from it."""
        return self.variances(expected, n, phi) + np.maximum(0.0, (y - expected) ** 2 - _FREE * noise)

    def dependence(self, columns: Columns, levels: Sequence[Coarsening]) -> Dependence:
        """The dependence of pairs, in groups of released columns."""
        return Dependence(self, columns, levels)

    def beside_table(self, columns: Columns) -> list[Measurement]:
        """The measurements of a table of all columns and of single ones, with the prior's mean in the place of the first."""
        table = table_of(columns.measurements, len(columns.shares))
        if len(self.known) < len(columns.shares):
            return list(columns.measurements)
        n, noise = columns.n, np.broadcast_to(np.square(table.noise_std), table.values.shape)
        product = np.ones(())
        for share in columns.group_shares:
            product = np.multiply.outer(product, share)
        law = _fitted((self.prior.rows * self.law(range(len(columns.shares)), columns.coarse) + product), columns.group_shares)
        phi = self._phi(table.values.ravel(), n * law.ravel(), noise.ravel(), n)
        v = self._variances(table.values, n * law, noise, n, phi)
        mean, std = (table.values / noise + n * law / v) / (1 / noise + 1 / v), (1 / noise + 1 / v) ** -0.5
        own = replace(table, values=mean, noise_std=std)
        return [own if m is table else m for m in columns.measurements]


def _fitted(law: Reals, shares: Sequence[Reals]) -> Reals:
    """A table above 0 with these shares of its columns, by proportional fitting."""
    for _ in range(_SWEEPS):
        for axis, share in enumerate(shares):
            others = tuple(other for other in range(law.ndim) if other != axis)
            law = law * np.expand_dims(share / law.sum(others), others)
    return law


# -- pairs of columns --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Dependence:
    """The dependence of pairs of columns in a prior, and the weight that today's measurements give it.

    `weight` is lambda. Pairs are those that are dependent in the prior, in groups of the released columns.
    """

    coded: Coded
    columns: Columns
    levels: Sequence[Coarsening]
    weight: float = 0.0
    _beyond: dict[tuple[int, int], Reals] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shares, n, m = self.columns.group_shares, self.columns.n, self.coded.prior.rows
        for a, b in combinations(sorted(self.coded.known), 2):
            product = np.multiply.outer(shares[a], shares[b])
            law = _fitted(m * self.coded.law((a, b), self.columns.coarse) + product, (shares[a], shares[b]))
            df = (len(shares[a]) - 1) * (len(shares[b]) - 1)
            if df and m * ((law - product) ** 2 / product).sum() > df + _CLEAR * math.sqrt(2 * df):
                self._beyond[a, b] = n * (law - product)

    def _product(self, a: int, b: int) -> Reals:
        shares = self.columns.group_shares
        return self.columns.n * np.multiply.outer(shares[a], shares[b])

    def measurements(self, measured: Sequence[Measurement]) -> list[Measurement]:
        """Marginals of pairs by the prior, weighed by what was measured; none where its dependence is not today's."""
        evidence = [own for m in measured for own in self._pairs_of(m)]
        top = sum(float((own.dependence * own.beyond / own.noise).sum()) for own in evidence)
        below = sum(float((own.beyond**2 / own.noise).sum()) for own in evidence)
        slope = top / max(below, 1e-300)
        self.weight = min(1.0, slope) * max(0.0, 1.0 - _SURE / (below * slope**2)) if slope > 0 else 0.0
        if not self.weight:
            return []
        n, least = self.columns.n, 1.0 + self.columns.n / self.coded.prior.rows
        excess, free = dict[tuple[int, int], float](), dict[tuple[int, int], Reals]()
        for own in evidence:
            gap = own.dependence - self.weight * own.beyond
            over = float((gap**2).sum() - own.noise.sum() + math.sqrt(2 * (own.noise**2).sum()))
            excess[own.pair] = max(excess.get(own.pair, 0.0), over / n)
            freed = np.maximum(0.0, gap**2 - _FREE * own.noise) / (own.product + self.weight * own.beyond + 1e-9)
            fine = freed[np.ix_(*own.groups)]
            free[own.pair] = np.maximum(free.get(own.pair, 0.0), fine)
        rates, found = self._rates(evidence), list[Measurement]()
        for (a, b), beyond in self._beyond.items():
            product = self._product(a, b)
            values = product + self.weight * beyond
            rate = max(rates[a], rates[b])
            phi = max(least, excess.get((a, b), rate * float((beyond**2).sum()) / n))
            v = self.coded.variances(values, n, phi) + free.get((a, b), 0.0) * values
            found.append(Measurement(Marginal((a, b), 0), values, np.sqrt(v)))
        return found

    def _rates(self, evidence: Sequence[_Evidence]) -> dict[int, float]:
        """Squares of what is left of measured dependence beyond the prior's, beside squares of the prior's, by column."""
        tops, belows, spreads = (dict.fromkeys(self.coded.known, 0.0) for _ in range(3))
        for own in evidence:
            gap, weight = own.dependence - self.weight * own.beyond, 1.0 / float((own.noise**2).sum()) ** 0.5
            for c in own.pair:
                tops[c] += weight * float((gap**2).sum() - own.noise.sum())
                belows[c] += weight * float((own.beyond**2).sum())
                spreads[c] += 2.0
        all_of = [sum(x.values()) for x in (tops, belows, spreads)]

        def rate(top: float, below: float, spread: float) -> float:
            return max(0.0, top + spread**0.5) / max(below, 1e-300)

        whole = rate(*all_of)
        return {c: rate(tops[c], belows[c], spreads[c]) if belows[c] else whole for c in self.coded.known}

    def _pairs_of(self, m: Measurement) -> Iterator[_Evidence]:
        """Evidence of a measured marginal on each pair of its columns that is dependent in the prior."""
        level, noise = self.levels[m.marginal.level], np.broadcast_to(np.square(m.noise_std), m.values.shape)
        for i, j in combinations(range(len(m.marginal.columns)), 2):
            pair = m.marginal.columns[i], m.marginal.columns[j]
            if pair not in self._beyond:
                continue
            others = tuple(axis for axis in range(m.values.ndim) if axis not in (i, j))
            groups = level.groups[pair[0]], level.groups[pair[1]]
            product, beyond = self._product(*pair), self._beyond[pair]
            for axis, c in enumerate(pair):
                product, beyond = (summed(x, axis, groups[axis], level.sizes[c]) for x in (product, beyond))
            values = m.values.sum(others)
            yield _Evidence(pair, groups, values - product, beyond, noise.sum(others), product)


@dataclass(frozen=True, eq=False)
class _Evidence:
    """A measured pair of columns: its dependence, the prior's, noise variances, counts of independent ones, of one shape."""

    pair: tuple[int, int]
    groups: tuple[Integers, Integers]
    dependence: Reals
    beyond: Reals
    noise: Reals
    product: Reals
