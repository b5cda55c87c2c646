r"""Sparse sets: classes of sizes and of frequent items, with independent items inside each.

.. math:: p(x) = \sum_k w_k \prod_{j \in F} \mathrm{Bernoulli}(x_j; p_{kj})
    \prod_{j \notin F} \mathrm{Bernoulli}(x_j; \sigma(\theta_j + t_{l(k)})),
    \quad \sum_{j \notin F} \sigma(\theta_j + t_l) = s_l

F are the `FREQUENT` most frequent items. Class k has a level l(k) of how many other items a set holds, :math:`s_l` on a public
grid, and probabilities of its own for the items of F. Three releases:

1. **sizes**: a histogram of set sizes over public bins. c is a quantile of it.
2. **items**: item counts in which a set of s items weighs :math:`\min(1, \sqrt{c / s})`, so that its L2 norm is at most
   :math:`\sqrt c`. They choose F. Counts near the noise are shrunk by the empirical Bayes estimate under their own
   non-parametric prior.
3. **frequent**: of the items of F alone, and how many others there are (`FrequentItems`): conjunctions of one, two and three of
   them. One set holds few of them, so hundreds of conjunctions cost little more than one.

Everything else is post-processing: the weights of levels are deconvolved from the histogram of others, theta is fitted to the
item counts, where the model knows how large sets were down-weighted, and the classes to the third release (`fit_classes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import comb

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from dpgen.privacy.curator import GaussianBudget
from dpgen.privacy.exact_sums import CHUNK, BoundedSum, totals
from dpgen.systems.gaussian.releases import NOTES, Batches
from dpgen.systems.simplex_projection import project_to_simplex

SHARES = {"sizes": 0.05, "items": 0.55, "frequent": 0.4}
"""Shares of mu^2 of the three releases."""

FREQUENT = 16
"""Items whose conjunctions are counted."""
MOST_HELD = 5
"""Frequent items that a set may hold before its conjunctions count less."""

_CLIP_QUANTILE = 0.8
_GRID = 2.0**24
_GROWTH = 1.2  # of the bins of sizes; those up to 8 have width 1
_LEVEL_GROWTH = 1.35
_GROUPS = 6  # of sizes, in which single items are counted
_ROWS = 2**13  # whose pairs are held at once


# -- sums of records ---------------------------------------------------------------------------------------------------


def size_bins(d: int) -> Tensor:
    """Lower ends of the public bins of sizes 0..d, int64: of width 1 up to 8, then growing."""
    ends, end = list(range(min(d, 8) + 1)), 8.0
    while round(end * _GROWTH) <= d:
        end *= _GROWTH
        ends.append(round(end))
    return torch.tensor(sorted(set(ends)))


def size_histogram(batches: Batches, bins: Tensor) -> BoundedSum:
    """Records (bins,) by size: one record, one bin; a replaced one leaves another."""

    def counted(batches: Batches) -> Tensor:
        histogram = torch.zeros(len(bins), dtype=torch.int64)
        for x, _ in batches:
            where = torch.bucketize((x > 0.5).sum(1).cpu(), bins, right=True) - 1
            histogram += torch.bincount(where, minlength=len(bins))
        return histogram

    histogram = totals(batches, counted)
    return BoundedSum(histogram, 1.0, "records by size", replaced=math.sqrt(2.0))


def item_sums(batches: Batches, d: int, clip: int) -> BoundedSum:
    r"""Item counts (d,) in which a record of size s weighs :math:`w_s = \min(1, \sqrt{c / s})`, c = `clip`.

    A record adds :math:`w_s` at s places, :math:`|w_s x|^2 = s w_s^2 \le c`; a replaced one moves the counts by at most
    :math:`\sqrt{2 c}`, for two records have no entries of different signs. Weights are cut to whole numbers of 2^-24.
    """
    one = round(_GRID)
    weights = torch.tensor([math.isqrt(clip * one**2 // max(size, clip)) for size in range(d + 1)])

    def added(batches: Batches) -> Tensor:
        total = torch.zeros(d, dtype=torch.int64)
        for x, _ in batches:
            for items in (x > 0.5).split(CHUNK):  # products below 2^40, exact in float64
                weight = weights.to(x.device)[items.sum(1)].double()
                total += (weight @ items.double()).long().cpu()
        return total

    total = totals(batches, added)
    return BoundedSum(total, math.sqrt(clip), "weighted items", replaced=math.sqrt(2.0 * clip), step=1.0 / _GRID)


@dataclass(frozen=True, eq=False)
class FrequentItems:
    r"""Contributions of a record for the f items of F, of which it holds h, and its number of other items.

    | block | cells | :math:`a^2` | norm squared |
    |---|---|---|---|
    | count | 1 | 1 | 1 |
    | others, by bin | bins | 4 | 4 |
    | held, by h | f + 1 | 1/2 | 1/2 |
    | items | f | 1 | m |
    | items by group of others | f x groups | 1/4 | m / 4 |
    | pairs | f (f - 1) / 2 | 1/2 | :math:`\binom{m}{2} / 2` |
    | triples | f (f - 1) (f - 2) / 6 | 1/4 | :math:`\binom{m}{3} / 4` |

    A conjunction of o items that it holds gets :math:`a \min(1, \sqrt{\binom{m}{o} / \binom{h}{o}})`, m = `most`, cut to whole
    numbers of 2^-24: a block has at most the norm that h = m gives it. A replaced record keeps the count, and two records have
    no entries of different signs: they differ by at most :math:`\sqrt{2 (|v|^2 - 1)}`.

    >>> layout = FrequentItems(torch.tensor([0, 2]), size_bins(3), torch.tensor([0, 1, 1, 1]), 5)
    >>> [tuple(cells) for cells in layout.shapes], layout.norm_square
    ([(1,), (4,), (3,), (2,), (2, 2), (1,), (0,)], 8.5)
    """

    items: Tensor  # F (f,), columns of the records
    bins: Tensor  # lower ends of the bins of how many other items there are
    groups: Tensor  # (bins,) of the bins, from 0 upwards
    most: int = MOST_HELD  # m, at least 1

    @cached_property
    def pairs(self) -> Tensor:
        """Positions (2, pairs) in F."""
        return torch.combinations(torch.arange(len(self.items)), 2).T

    @cached_property
    def triples(self) -> Tensor:
        """Positions (3, triples) in F."""
        return torch.combinations(torch.arange(len(self.items)), 3).T

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the blocks."""
        f, groups = len(self.items), int(self.groups.max()) + 1
        return [(1,), (len(self.bins),), (f + 1,), (f,), (f, groups), (self.pairs.shape[1],), (self.triples.shape[1],)]

    @property
    def norm_square(self) -> float:
        """The largest squared norm of what a record adds."""
        m = min(self.most, len(self.items))
        return sum(square * comb(m, order) for square, order in zip(_SQUARES, _ORDERS))

    @cached_property
    def kept(self) -> Tensor:
        """Counts of a conjunction of o = 0, 1, 2, 3 of h = 0, ..., f items, (4, f + 1), without a."""
        return self._weights([1.0] * 4, range(4)).double() / _GRID

    def _weights(self, squares: list[float], orders: range | tuple[int, ...]) -> Tensor:
        """Whole numbers (blocks, f + 1) of 2^-24 by h: a min(1, sqrt(C(m, o) / C(h, o))), rounded down."""
        held, m = range(len(self.items) + 1), min(self.most, len(self.items))
        quarters = [round(4 * square * _GRID**2) for square in squares]
        rows = [
            [math.isqrt(most * comb(m, o) // (4 * max(comb(h, o), comb(m, o), 1))) for h in held]
            for most, o in zip(quarters, orders)
        ]
        return torch.tensor(rows)

    def sums(self, batches: Batches) -> BoundedSum:
        """All blocks, one after the other."""
        weights = self._weights(list(_SQUARES), _ORDERS)

        def added(batches: Batches) -> Tensor:
            total = torch.zeros(sum(math.prod(shape) for shape in self.shapes), dtype=torch.int64)
            for x, _ in batches:
                for rows in (x > 0.5).split(_ROWS):
                    total += torch.cat([part.flatten() for part in self._added(rows, weights.to(rows.device))]).long().cpu()
            return total

        total = totals(batches, added)
        norm2 = self.norm_square
        return BoundedSum(
            total, math.sqrt(norm2), "conjunctions of frequent items", replaced=math.sqrt(2 * (norm2 - 1)), step=1.0 / _GRID
        )

    def _added(self, x: Tensor, weights: Tensor) -> Iterator[Tensor]:
        """Blocks of whole numbers below 2^40, exact in float64."""
        y = x[:, self.items.to(x.device)]
        h = y.sum(1)
        others = torch.bucketize(x.sum(1) - h, self.bins.to(x.device), right=True) - 1
        weight, y = weights[:, h].double(), y.double()
        yield weight[0].sum()
        for row, where, cells in ((1, others, len(self.bins)), (2, h, len(self.items) + 1)):
            yield torch.bincount(where, weight[row], minlength=cells)
        yield weight[3] @ y
        group = torch.nn.functional.one_hot(self.groups.to(x.device)[others], int(self.groups.max()) + 1).double()
        yield y.T @ (group * weight[4][:, None])
        both = y[:, self.pairs[0]] * y[:, self.pairs[1]]
        yield weight[5] @ both
        triples = (both * weight[6][:, None]).T @ y  # of pair (i, j) and k; those with i < j < k
        number = torch.zeros(len(self.items), len(self.items), dtype=torch.int64)
        number[self.pairs[0], self.pairs[1]] = torch.arange(self.pairs.shape[1])
        yield triples[number[self.triples[0], self.triples[1]], self.triples[2]]

    def parted(self, noisy: Tensor, noise_std: float) -> Conjunctions:
        """The released blocks, a divided out, with the noise std of each."""
        parts = noisy.split([math.prod(shape) for shape in self.shapes])
        scales = [math.sqrt(square) for square in _SQUARES]
        blocks = [part.reshape(shape) / a for part, shape, a in zip(parts, self.shapes, scales)]
        return Conjunctions(self, tuple(noise_std / a for a in scales), *blocks)


_SQUARES = (1.0, 4.0, 0.5, 1.0, 0.25, 0.5, 0.25)  # a^2 of the blocks
_ORDERS = (0, 0, 0, 1, 1, 2, 3)  # items of their conjunctions


# -- clean-up ----------------------------------------------------------------------------------------------------------


def cleaned_histogram(noisy: Tensor, noise_std: float) -> Tensor:
    """Shares (bins,) of the sizes: zero from where all that is left is within three stds of noise, and never negative."""
    tails = noisy.flip(0).cumsum(0).flip(0)
    left = torch.arange(len(noisy), 0, -1).double()
    detected = (tails > 3.0 * noise_std * left.sqrt()).nonzero().flatten()
    end = int(detected[-1]) + 1 if len(detected) else 1
    kept = noisy[:end] / noisy[:end].sum().clamp_min(1.0)
    shares = torch.zeros(len(noisy), dtype=torch.float64)
    shares[:end] = torch.from_numpy(project_to_simplex(kept.double().numpy()))
    return shares


def shrunken_counts(noisy: Tensor, noise_std: float) -> Tensor:
    """Posterior means of counts (d,) under the prior that explains the noisy counts best (Robbins 1956; Kiefer, Wolfowitz)."""
    top = max(float(noisy.max()) * 1.1, noise_std)
    grid = torch.cat([torch.zeros(1).double(), torch.logspace(math.log10(noise_std / 20), math.log10(top), 200).double()])
    exponent = -0.5 * ((noisy[:, None] - grid) / noise_std).square()
    likelihood = (exponent - exponent.max(1, keepdim=True).values).exp()
    prior = torch.full_like(grid, 1.0 / len(grid))
    for _ in range(200):
        joint = likelihood * prior
        prior = (joint / joint.sum(1, keepdim=True)).mean(0) + 1e-9
    joint = likelihood * prior
    return (joint * grid).sum(1) / joint.sum(1)


# -- levels ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Levels:
    """Sizes s (l,), weights (l,) and item probabilities (l, items) of the levels."""

    sizes: Tensor
    weights: Tensor
    probabilities: Tensor


def tilts(log_odds: Tensor, sizes: Tensor) -> Tensor:
    """t (l,) with sum_j sigmoid(log_odds_j + t) = sizes, by bisection."""
    low, high = torch.full_like(sizes, -60.0), torch.full_like(sizes, 60.0)
    for _ in range(50):
        middle = (low + high) / 2.0
        below = torch.sigmoid(log_odds + middle[:, None]).sum(1) < sizes
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2.0


def binned_sizes(probabilities: Tensor, bins: Tensor) -> Tensor:
    r"""P(size in bin) (l, bins) of sums of independent bits, by the binomial of the same mean and variance (Ehm 1991).

    :math:`N = (\sum p)^2 / \sum p^2`, :math:`q = \sum p^2 / \sum p`; N need not be whole.
    """
    from scipy.special import betainc

    mean, squares = probabilities.sum(1, keepdim=True), probabilities.square().sum(1, keepdim=True)
    q = (squares / mean).clamp(1e-12, 1.0 - 1e-12)
    most = (bins[1:].double() - 1.0)[None, :]
    left = mean / q - most
    below = torch.from_numpy(betainc(left.clamp_min(1e-9).numpy(), (most + 1.0).numpy(), (1.0 - q).numpy()))
    below = torch.where(left > 0, below, 1.0)
    cdf = torch.cat([torch.zeros(len(mean), 1).double(), below, torch.ones(len(mean), 1).double()], 1)
    return cdf.diff(dim=1).clamp_min(1e-15)


def fit_levels(
    histogram: Tensor, bins: Tensor, counts: Tensor, *, clip: float, records: float, held: Tensor | float
) -> _Levels:
    """Levels that explain the cleaned shares of the `bins` and shrunken item counts (items,); post-processing.

    Sets above `clip` are down-weighted in the counts; `held` is the mean number of frequent items, of all sets or by level.
    """
    d = len(counts)
    top = float(bins[int(histogram.nonzero().max())])
    grid, size = [min(0.02, 0.5 * d)], 0.5
    while size < min(top * 1.1 + 0.5, d - 0.5):
        grid.append(size)
        size *= _LEVEL_GROWTH
    sizes = torch.tensor(grid, dtype=torch.float64)
    weighs = (clip / (sizes + held).clamp_min(clip)).sqrt()
    target = (counts / max(records, 1.0)).clamp(1e-9, 1.0)
    log_odds = torch.logit(target.clamp(1e-9, 0.99))
    weights = torch.full_like(sizes, 1.0 / len(sizes))
    for _ in range(12):
        p = torch.sigmoid(log_odds + tilts(log_odds, sizes)[:, None])
        weights = _deconvolved(weights, binned_sizes(p, bins), histogram)
        expected = (weights * weighs) @ p
        log_odds = log_odds + (target / expected.clamp_min(1e-12)).log().clamp(-2.0, 2.0)
    return _Levels(sizes, weights, torch.sigmoid(log_odds + tilts(log_odds, sizes)[:, None]))


def _deconvolved(weights: Tensor, kernel: Tensor, histogram: Tensor) -> Tensor:
    for _ in range(100):  # EM for the weights of a known kernel
        weights = weights * (kernel @ (histogram / (weights @ kernel).clamp_min(1e-15)))
        weights = weights / weights.sum()
    return weights


# -- classes of frequent items -------------------------------------------------------------------------------------------

_CLASSES = 100  # that the levels share by their weights, beside one for each
_STEPS, _RATE, _LAST_RATE = 600, 0.1, 0.002
_MOMENTS = (0.9, 0.99)  # Adam's
_RIDGE = 1e-3  # keeps logits that nothing moves where they are


@dataclass(frozen=True)
class Conjunctions:
    """Released blocks of `FrequentItems`, in its order, a divided out, and their noise stds."""

    layout: FrequentItems
    stds: tuple[float, ...]
    count: Tensor
    others: Tensor
    held: Tensor
    items: Tensor
    by_group: Tensor
    pairs: Tensor
    triples: Tensor

    @property
    def n(self) -> float:
        """Noisy number of records, at least 1."""
        return max(1.0, float(self.count))


def held_shares(p: Tensor) -> Tensor:
    """P(h) (k, f + 1) of sums of independent bits of probabilities (k, f), exactly.

    >>> held_shares(torch.tensor([[0.5, 0.5]]))
    tensor([[0.2500, 0.5000, 0.2500]])
    """
    shares = torch.ones(len(p), 1, dtype=p.dtype)
    for q in p.T[:, :, None]:
        shares = torch.nn.functional.pad(shares * (1.0 - q), (0, 1)) + torch.nn.functional.pad(shares * q, (1, 0))
    return shares


def fit_classes(
    found: Conjunctions, weights: Tensor, by_group: Tensor, *, information: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Weights (k,), levels (k,) and probabilities (k, f) of classes that explain released conjunctions; post-processing.

    Class k has the level l(k), the weight :math:`w_k = u_{l(k)} v_k`, with v summing to 1 in each level, and probabilities
    :math:`p_{ki}`. Over logits of p and v, Adam lowers

    .. math:: \tfrac12 \sum_r |n e_r - y_r|^2 / \sigma_r^2 + \beta \sum_k w_k \sum_i KL(p_{ki} \| p_i)

    over the released blocks y (`FrequentItems`), e what the model expects of them. The second sum is the mutual information of
    class and items: what was not measured, or not above the noise, stays independent. Of conjunctions of o items clipping
    leaves, in class k, the share

    .. math:: r_{ko} = E_k[c_o(h) \tbinom{h}{o}] / E_k[\tbinom{h}{o}],

    where h, the number of frequent items in a set, is a sum of independent bits and :math:`c_o(h)` is what its conjunctions
    count.

    `weights` are u (l,), `by_group` P(group of others) of each level (l, groups), `information` beta; `generator` is public.
    """
    level = torch.arange(len(weights)).repeat_interleave(1 + (_CLASSES * weights).round().long())
    model = _Model(found, weights, level, by_group, information)
    f = len(found.items)
    logits = model.prior + torch.randn(len(level), f, generator=generator, dtype=torch.float64)
    parameters = [logits.requires_grad_(), torch.zeros(len(level), dtype=torch.float64, requires_grad=True)]
    optimizer = torch.optim.Adam(parameters, betas=_MOMENTS)
    for step in range(_STEPS):
        rate = _LAST_RATE + (_RATE - _LAST_RATE) * (0.5 + 0.5 * math.cos(math.pi * step / _STEPS))
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        model.loss(*parameters).backward()
        optimizer.step()
    with torch.no_grad():
        return model.weights(parameters[1]), level, parameters[0].sigmoid()


class _Model:
    """The loss of `fit_classes`."""

    def __init__(self, found: Conjunctions, weights: Tensor, level: Tensor, by_group: Tensor, information: float) -> None:
        n, f = found.n, len(found.items)
        self._level, self._level_weights, self._by_group = level, weights, by_group[level]
        self._information, self._layout = information, found.layout
        self._marginals = (found.items / n).clamp(1e-6, 1.0 - 1e-6)
        self.prior = torch.logit(self._marginals)
        self._subsets = torch.tensor([[float(comb(h, o)) for h in range(f + 1)] for o in range(4)]).double()
        self._kept = found.layout.kept * self._subsets
        blocks = (found.held, found.items, found.by_group, found.pairs, found.triples)
        self._targets = [block / n for block in blocks]
        self._precisions = [(n / std) ** 2 / 2.0 for std in found.stds[2:]]

    def weights(self, logits: Tensor) -> Tensor:
        """w (k,)."""
        shares = torch.exp(logits - logits.max())
        total = torch.zeros_like(self._level_weights).index_add(0, self._level, shares)
        return (self._level_weights / total)[self._level] * shares

    def loss(self, logits: Tensor, of_weights: Tensor) -> Tensor:
        p, w = logits.sigmoid(), self.weights(of_weights)
        expected = self._expected(p, w)
        misfit = sum(q * (e - y).square().sum() for q, e, y in zip(self._precisions, expected, self._targets))
        m = self._marginals
        divergence = (p * (logsigmoid(logits) - m.log()) + (1.0 - p) * (logsigmoid(-logits) - torch.log1p(-m))).sum(1)
        ridge = (logits - self.prior).square().sum() + of_weights.square().sum()
        return misfit + self._information * (w @ divergence) + _RIDGE * ridge

    def _expected(self, p: Tensor, w: Tensor) -> list[Tensor]:
        """Expected blocks but the first two, over n."""
        held = held_shares(p)
        fixed = held.detach()
        share = (fixed @ self._kept.T) / (fixed @ self._subsets.T).clamp_min(1e-300)  # r (k, 4)

        def weighted(order: int) -> Tensor:
            return (w * share[:, order])[:, None] * p

        single, f = weighted(1), p.shape[1]
        blocks = [w @ held, single.sum(0), single.T @ self._by_group, (weighted(2).T @ p)[tuple(self._layout.pairs)]]
        both = (weighted(3)[:, :, None] * p[:, None, :]).flatten(1)
        return [*blocks, (both.T @ p).reshape(f, f, f)[tuple(self._layout.triples)]]


# -- the whole fit -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SetMixture:
    """Weights (k,) and item probabilities (k, d) of the classes, the noisy number of records, and the frequent items (f,)."""

    weights: Tensor
    probabilities: Tensor
    count: float
    frequent: Tensor


def release_sets(
    batches: Batches, d: int, *, budget: GaussianBudget, shares: Mapping[str, float], generator: torch.Generator
) -> SetMixture:
    """The whole fit: sizes, items, frequent items, then post-processing; `generator` is public."""

    def released(name: str, sums: BoundedSum) -> tuple[Tensor, float]:
        return budget.sums(NOTES[name], sums, shares[name])

    mu, bins = budget.mu, size_bins(d)
    histogram = cleaned_histogram(*released("sizes", size_histogram(batches, bins)))
    reached = (histogram.cumsum(0) >= _CLIP_QUANTILE).nonzero().flatten()
    clip = max(1, int(bins[min(int(reached[0]) + 1, len(bins) - 1)]))
    counts = shrunken_counts(*released("items", item_sums(batches, d, clip)))
    frequent = counts.argsort(descending=True, stable=True)[: min(FREQUENT, d // 2)].sort().values
    middle = histogram.cumsum(0) - histogram / 2.0  # groups of about equal mass of neighbouring bins
    groups = (middle * _GROUPS).long().clamp(0, _GROUPS - 1).unique(return_inverse=True)[1]
    layout = FrequentItems(frequent, bins, groups)
    found = layout.parted(*released("frequent", layout.sums(batches)))
    rest = torch.ones(d, dtype=torch.bool).index_fill_(0, frequent, False)
    others = cleaned_histogram(found.others, found.stds[1])

    def levels(held: Tensor | float) -> _Levels:
        return fit_levels(others, bins, counts[rest], clip=clip, records=found.n, held=held)

    first = levels(float(found.items.sum()) / found.n)
    by_group = torch.zeros(len(first.sizes), int(layout.groups.max()) + 1, dtype=torch.float64)
    by_group.index_add_(1, layout.groups, binned_sizes(first.probabilities, bins))
    information = _INFORMATION * (mu * found.n) ** 0.7
    weights, level, own = fit_classes(found, first.weights, by_group, information=information, generator=generator)
    probabilities = torch.empty(len(weights), d, dtype=torch.float64)
    probabilities[:, frequent] = own
    held = torch.zeros_like(first.weights).index_add_(0, level, weights * own.sum(1))
    held = held / first.weights.clamp_min(1e-300)  # frequent items in the sets of each level, on average
    probabilities[:, rest] = levels(held).probabilities[level]
    return SetMixture(weights, probabilities, found.n, frequent)


_INFORMATION = 0.2  # strength of independence, over (mu n)^.7
