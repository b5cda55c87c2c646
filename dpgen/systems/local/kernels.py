"""Linear samplers Q = PK: the minimax kernel with a public prior, and randomised response."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dpgen.privacy.draws import compiled
from dpgen.privacy.selection import running_sum
from dpgen.systems.local.model import FiniteSampler

Reals = npt.NDArray[np.float64]
Ranks = npt.NDArray[np.int64]

MOST_EXPLICIT = 4096
_BLOCK = 1023  # sums are taken in blocks of 1024, so that errors grow like 1024 + n / 1024


class MinimaxSampler(FiniteSampler, kind="minimax"):
    r"""The kernel that is minimax optimal, for every f-divergence, among those that leave the public prior q as it is.

    With q sorted increasingly, $E = e^\epsilon - 1$ and $S_k = \sum_{j \ge k} q_j$, the recursion of Zamanlooy et al. 2025,
    Algorithm 1, unrolls to $K_{ij} = a_{\min(i,j)} q_j$ off the diagonal and $K_{ii} = e^\epsilon a_i q_i$ on it:

    $$ a_1 = \frac{1}{E q_1 + 1}, \qquad \frac{a_{k+1}}{a_k} = \frac{E q_k + S_{k+1}}{E q_{k+1} + S_{k+1}} . $$

    K is row-stochastic, qK = q, and the worst user holds the rarest category: total variation $(1 - q_1) / (E q_1 + 1)$
    (theorem 1). As $K_{ii} \ge q_i$, all $a_i \ge e^{-\epsilon}$: nothing underflows. K is never formed: O(n) for `apply`.
    One item that is drawn from P is enough for a draw: its one-hot code in place of P.

    >>> MinimaxSampler(1.0, torch.tensor([0.01, 0.99])).kernel()[1].tolist()
    [0.00983..., 0.99016...]
    """

    def __init__(self, epsilon: float, prior: Tensor | int) -> None:
        super().__init__(epsilon, prior)
        # q: sorted prior; a: the scales of the kernel; order: category of each rank; rank: its inverse.
        self._q, self._order = torch.sort(self.prior, stable=True)
        self._gain = math.exp(self.epsilon)
        self._tail = _after(self._q)
        self._a = _scales(self._q, self._tail, math.expm1(self.epsilon))

    @cached_property
    def _rank(self) -> Tensor:
        rank = torch.empty_like(self._order)
        rank[self._order] = torch.arange(self.n)
        return rank

    def _apply(self, p: Tensor) -> Tensor:
        rows = p.cpu().contiguous().numpy()
        mixed = mix_rows(rows, self._order.numpy(), self._q.numpy(), self._a.numpy(), self._gain)
        return torch.from_numpy(mixed).to(p.device)

    def misses(self) -> Tensor:
        missed = _before(self._a * self._q) + self._a * self._tail
        return torch.empty_like(missed).scatter_(0, self._order, missed)

    def keeps(self) -> Tensor:
        kept = self._gain * self._a * self._q
        return torch.empty_like(kept).scatter_(0, self._order, kept)

    def lower(self) -> Tensor:
        """Least entry (n,) of each column of K: row n has it, and in the last column row n - 1."""
        scale = torch.cat([self._a[:-1], self._a[-2:-1]])
        return torch.empty_like(scale).scatter_(0, self._order, scale * self._q)

    def kernel(self) -> Tensor:
        """K (n, n) as a matrix, n <= 4096; `apply` and the draws never need it."""
        if self.n > MOST_EXPLICIT:
            raise ValueError(f"kernel() has n * n entries and n is {self.n}; it must be <= {MOST_EXPLICIT} (use apply)")
        ranks = torch.arange(self.n)
        k = self._a[torch.minimum(ranks[:, None], ranks)] * self._q
        k.fill_diagonal_(0.0).diagonal().add_(self._gain * self._a * self._q)
        rank = self._rank
        return k[rank][:, rank]


class RandomizedResponse(MinimaxSampler, kind="randomized_response"):
    r"""k-ary randomised response (Warner 1965): the category itself with probability $e^\epsilon / (e^\epsilon + n - 1)$.

    It is the minimax kernel of the uniform prior (Zamanlooy et al. 2025, corollary 2); of `prior` only n is used.

    >>> round(RandomizedResponse(1.0, 2).kernel()[0, 0].item(), 4)
    0.7311
    """

    def __init__(self, epsilon: float, prior: Tensor | int) -> None:
        super().__init__(epsilon, prior if isinstance(prior, int) else int(torch.as_tensor(prior).numel()))


def _before(values: Tensor) -> Tensor:
    """Exclusive prefix sums."""
    result = torch.zeros_like(values)
    result[..., 1:] = running_sum(values[..., :-1])
    return result


def _after(values: Tensor) -> Tensor:
    """Exclusive suffix sums."""
    return _before(values.flip(-1)).flip(-1)


def _scales(q: Tensor, tail: Tensor, gap: float) -> Tensor:
    """a (n,) of increasing q, the sums `tail` after each entry and E.

    $a_k = R_k / (E q_k + S_k)$ with $R_{k+1} / R_k = 1 - q_k / (E q_k + S_k)$, what rows 1 to k - 1 leave over: each loss is at
    most 1/2, so the logarithms of R lose no digits at any epsilon.
    """
    whole = gap * q + (q + tail)
    return _before(torch.log1p(-q / whole)).exp() / whole


@compiled(error_model="numpy")
def mix_rows(p: Reals, order: Ranks, q: Reals, a: Reals, gain: float) -> Reals:
    r"""Rows $q_j (\sum_{i<j} a_i P_i + a_j \sum_{i>j} P_i + a_j e^\epsilon P_j)$ of P (u, n), j by rank, in place of j =
    order.
    """
    u, n = p.shape
    result = np.empty_like(p)
    for row in range(u):
        blocks, block = 0.0, 0.0
        for k in range(n):
            if k & _BLOCK == 0:
                blocks, block = blocks + block, 0.0
            result[row, order[k]] = blocks + block
            block += a[k] * p[row, order[k]]
        blocks, block = 0.0, 0.0
        for done in range(n):
            if done & _BLOCK == 0:
                blocks, block = blocks + block, 0.0
            k = n - 1 - done
            held = p[row, order[k]]
            result[row, order[k]] = q[k] * (result[row, order[k]] + a[k] * ((blocks + block) + gain * held))
            block += held
    return result
