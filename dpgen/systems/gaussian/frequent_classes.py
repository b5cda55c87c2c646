r"""Classes of sets that explain released conjunctions of frequent items; post-processing.

Class k has the level l(k), the weight :math:`w_k = u_{l(k)} v_k`, with v summing to 1 in each level, and probabilities
:math:`p_{ki}`. Over logits of p and v, Adam lowers

.. math:: \tfrac12 \sum_r |n e_r - y_r|^2 / \sigma_r^2 + \beta \sum_k w_k \sum_i KL(p_{ki} \| p_i)

over the released blocks y (`FrequentItems`), e what the model expects of them. The second sum is the mutual information of
class and items: what was not measured, or not above the noise, stays as independent as what was measured allows. Of
conjunctions of o items clipping leaves, in class k, the share

.. math:: r_{ko} = E_k[c_o(h) \tbinom{h}{o}] / E_k[\tbinom{h}{o}],

where h, the number of frequent items in a set, is a sum of independent bits and :math:`c_o(h)` is what its conjunctions count.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

_CLASSES = 100  # that the levels share by their weights, beside one for each
_STEPS, _RATE, _LAST_RATE = 600, 0.1, 0.002
_MOMENTS = (0.9, 0.99)  # Adam's
_RIDGE = 1e-3  # keeps logits that nothing moves where they are


@dataclass(frozen=True)
class Conjunctions:
    """Released blocks of `FrequentItems`, and the noise std of each.

    Arguments:
        count: records (1,).
        others: by bin of how many other items they hold (bins,).
        held: by h (f + 1,).
        items: with each item (f,).
        by_group: with each item, by group of bins (f, groups).
        pairs: with both items (pairs,).
        triples: with all three (triples,).
        stds: of the blocks.
        kept: what a conjunction of o of h items counts (4, f + 1).
        groups: group of each bin (bins,).
    """

    count: Tensor
    others: Tensor
    held: Tensor
    items: Tensor
    by_group: Tensor
    pairs: Tensor
    triples: Tensor
    stds: tuple[float, ...]
    kept: Tensor
    groups: Tensor

    @property
    def n(self) -> float:
        """Noisy number of records, at least 1."""
        return max(1.0, float(self.count))


@dataclass(frozen=True)
class Classes:
    """Weights (k,), levels (k,) int64 and probabilities (k, f) of frequent items."""

    weights: Tensor
    level: Tensor
    probabilities: Tensor


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
) -> Classes:
    """Classes for levels of given weights.

    Arguments:
        found: released blocks.
        weights: u (l,).
        by_group: P(group of others) of each level (l, groups).
        information: beta.
        generator: public, of the first logits.
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
        return Classes(model.weights(parameters[1]), level, parameters[0].sigmoid())


class _Model:
    """The loss of `fit_classes`."""

    def __init__(self, found: Conjunctions, weights: Tensor, level: Tensor, by_group: Tensor, information: float) -> None:
        n, f = found.n, len(found.items)
        self._level, self._level_weights, self._by_group = level, weights, by_group[level]
        self._information = information
        self._marginals = (found.items / n).clamp(1e-6, 1.0 - 1e-6)
        self.prior = torch.logit(self._marginals)
        self._pairs = torch.combinations(torch.arange(f), 2).T
        self._triples = torch.combinations(torch.arange(f), 3).T
        self._subsets = torch.tensor([[float(math.comb(h, o)) for h in range(f + 1)] for o in range(4)]).double()
        self._kept = found.kept * self._subsets
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
        """What the blocks but the first two are expected to be, over n."""
        held = held_shares(p)
        fixed = held.detach()
        share = (fixed @ self._kept.T) / (fixed @ self._subsets.T).clamp_min(1e-300)  # r (k, 4)
        i, j = self._pairs
        first, second, third = self._triples
        single = (w * share[:, 1])[:, None] * p
        return [
            w @ held,
            single.sum(0),
            single.T @ self._by_group,
            (((w * share[:, 2])[:, None] * p).T @ p)[i, j],
            self._triple((w * share[:, 3])[:, None] * p, p)[first, second, third],
        ]

    def _triple(self, weighted: Tensor, p: Tensor) -> Tensor:
        k, f = p.shape
        both = (weighted[:, :, None] * p[:, None, :]).reshape(k, f * f)
        return (both.T @ p).reshape(f, f, f)
