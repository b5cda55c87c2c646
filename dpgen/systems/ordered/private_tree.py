"""PrivTree on dyadic cells: a private partition of [0, N) that is fine where records are many."""

import math
from dataclasses import dataclass

import numba
import numpy as np

from dpgen.privacy.discrete import Words
from dpgen.privacy.limits import require_positive
from dpgen.privacy.noise import SecureSource, require_secure
from dpgen.privacy.parallel import Relation
from dpgen.privacy.tail_coins import reach_thresholds
from dpgen.systems.ordered.knots import Integers
from dpgen.systems.ordered.sensitivities import tree_path_loss

_compile = numba.njit(nogil=True, cache=True)
_FIRST_COINS = 1024
_SCALES = (0.01, 1e6)  # that `reach_thresholds` takes


@dataclass(frozen=True, kw_only=True)
class PrivateTree:
    r"""Splits a dyadic cell at depth h while its noisy, biased count is above a threshold.

    .. math:: \max(c - h\,\gamma,\ \theta - \gamma) + X > \theta, \qquad X \sim Lap_{\mathbb Z}(\lambda),\
        \gamma = \lceil \lambda \ln 2 \rceil

    Every cell down to single values is asked; only the leaves are released. The loss along the path of one inserted
    record is at most :math:`3/\lambda` and that of one deleted record in the same direction only :math:`1/\lambda` (its
    last cell is not split): :math:`\lambda = 3/\epsilon` under add/remove and :math:`4/\epsilon` under replace-one. All of
    it in integers, so that the coins are exact; the proof carries over because integer Laplace tails satisfy
    :math:`\ln P(X \ge k - 1) - \ln P(X \ge k) \le \min(1, e^{(k - 1)/\lambda}) / \lambda`.

    Source: Zhang, Xiao, Xie 2016 (PrivTree), Theorem 3.1, which doubles the add/remove loss for replace-one.

    Arguments:
        epsilon: cost of the tree in nats under `relation`, > 0.
        threshold: count theta >= 1 above which a cell is split; public.
        relation: neighbouring relation.
        noise_scale: lambda; None: the smallest that costs epsilon.
    """

    epsilon: float
    threshold: int
    relation: Relation = "replace_one"
    noise_scale: float | None = None

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        if not 1 <= self.threshold <= 2**40:
            raise ValueError(f"threshold is {self.threshold!r}; it must be in [1, 2^40]")
        if self.noise_scale is None:
            loss, (low, high) = tree_path_loss(self.relation), _SCALES
            if not low <= loss / self.epsilon <= high:
                raise ValueError(f"epsilon is {self.epsilon!r}; that of a tree must be in [{loss / high:g}, {loss / low:g}]")
            object.__setattr__(self, "noise_scale", loss / self.epsilon)

    @property
    def decay(self) -> int:
        """gamma, by which a count is lowered at every level."""
        assert self.noise_scale is not None
        return math.ceil(self.noise_scale * math.log(2))

    def chances(self) -> tuple[Words, int]:
        """128-bit chances of a split for k = theta + 1 - score, and the least k: see `reach_thresholds`."""
        assert self.noise_scale is not None
        return reach_thresholds(self.noise_scale, self.decay + 1)

    def split_chance(self, count: int, depth: int) -> float:
        """Chance that a cell of `count` records at `depth` is split; the audit's view of the mechanism."""
        rows, least = self.chances()
        k = self.threshold + 1 - max(count - depth * self.decay, self.threshold - self.decay)
        return 1.0 if k < least else float(rows[k - least] @ np.array([2.0**-64, 2.0**-128]))

    def leaves(self, values: Integers, *, N: int, source: SecureSource) -> tuple[Integers, Integers]:
        """Ends (m,) of the leaves that lie in [0, N), increasing to N: released; and records below each end: private.

        Arguments:
            values: sorted records (n,) int64 in [0, N).
            N: domain size in [2, 2^62]; cells beyond it hold nothing and are left out.
            source: secure noise. The ledger must have been charged before.
        """
        source = require_secure(source)
        rows, least = self.chances()
        levels = (N - 1).bit_length()
        coins, count = np.empty((0, 2), np.uint64), _FIRST_COINS + 4 * (len(values) // self.threshold)
        while True:
            # More coins continue the same sequence: the first ones are kept.
            fresh = source.words(count, 2)
            coins = np.concatenate([coins, fresh]) if len(coins) else fresh
            ends, below, used = _descend(values, N, levels, self.threshold, self.decay, rows, least, coins)
            if used <= len(coins):
                return ends, below
            count = len(coins)


@_compile
def _descend(
    values: Integers, N: int, levels: int, threshold: int, decay: int, rows: Words, least: int, coins: Words
) -> tuple[Integers, Integers, int]:
    """Leaves from left to right, and how many coins that took; more than there are means: give more and repeat."""
    most = len(coins)
    ends, below = np.empty(most + 1, np.int64), np.empty(most + 1, np.int64)
    stack = np.empty((levels + 2, 4), np.int64)  # start of a cell, its depth, its first record, past its last
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, 0, 0, len(values)
    top, used, found = 1, 0, 0
    while top > 0:
        top -= 1
        start, depth, first, last = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        split = False
        if depth < levels:
            if used == most:
                return ends[:0], below[:0], most + 1
            k = threshold + 1 - max(last - first - depth * decay, threshold - decay)
            split = k < least
            if not split:
                high, low = rows[k - least, 0], rows[k - least, 1]
                split = coins[used, 0] < high or (coins[used, 0] == high and coins[used, 1] < low)
            used += 1
        width = np.int64(1) << (levels - depth)
        if not split:
            ends[found], below[found] = min(start + width, N), last
            found += 1
            continue
        middle = start + (width >> 1)
        a, b = first, last
        while a < b:
            c = (a + b) >> 1
            if values[c] < middle:
                a = c + 1
            else:
                b = c
        if middle < N:
            stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = middle, depth + 1, a, last
            top += 1
        stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = start, depth + 1, first, a
        top += 1
    return ends[:found], below[:found], used
