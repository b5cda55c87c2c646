r"""Rejection from Q0 in constant work: R proposals, the first accepted one, else a fresh draw of Q0.

Plain rejection draws from :math:`Q \propto Q_0 e^f` exactly, but how many proposals it looks at depends on the data. Here
R + 1 proposals are always made and looked at, in a secret random order; the last one in the order is taken if all others
were rejected. The density of a draw is :math:`(1 - w) Q + w Q_0` with :math:`w \le (1 - e^{-2B})^R`.

Why it is private even when the R + 1 proposals are known: proposal i is taken with probability
:math:`a_i S_i + (1 - a_i) L_i`, where :math:`a_i \in [l, 1]`, :math:`l = e^{-2B}`, is its chance of being accepted,
:math:`S_i` the chance that the order reaches it, and :math:`L_i \le S_i` the chance that it is reached in the last place,
where :math:`a_i` is not asked. This rises with :math:`a_i` and falls with every other :math:`a_j`, so it lies between
:math:`l / (R + 1)` and :math:`(1 - (1 - l)^{R + 1}) / (l (R + 1))`, and two data sets differ by less than
:math:`l^{-2} = e^{4B} \le e^\epsilon`. Without the secret order the second proposal alone would tell them apart.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.limits import require_whole
from dpgen.privacy.mechanisms import Secrets
from dpgen.release import PrivateSampler
from dpgen.systems.continuous.laws import TiltedLaw, evaluated

NOTE = "rejection draws"
WORD_BITS = 62
FALLBACK = 1e-9
MOST_TRIES = 2**20
_SHRINK = 1e-9
_VALUES_AT_ONCE = 2**17


def tries_for(bound: float, fallback: float = FALLBACK) -> int:
    """Proposals R after which the fallback has probability of about `fallback` at most, (1 - e^(-2B))^R.

    Raises:
        ValueError: more than 2^20 proposals, or `fallback` not in (0, 1).

    >>> tries_for(0.25)
    23
    """
    if not 0 < fallback < 1:
        raise ValueError(f"fallback is {fallback!r}; it must lie in (0, 1)")
    tries = max(1, math.ceil(math.log(fallback) / math.log1p(-math.exp(-2 * bound)) - 1e-9))
    if tries > MOST_TRIES:
        raise ValueError(f"tries would be {tries} at bound {bound:g}; at most {MOST_TRIES} are made: use sampler='sir'")
    return tries


def acceptance_words(tilt: Tensor, bound: float) -> Tensor:
    """Of 2^62 equally likely words, how many accept a proposal of tilt f: e^(f - B) in whole numbers, int64 like `tilt`.

    Never below ceil(e^(-2B) 2^62) nor above 2^62, whatever the tilt.
    """
    bound = bound * (1 - _SHRINK)
    least = math.ceil(math.exp(-2 * bound) * 2**WORD_BITS)
    chance = (tilt.to(torch.float64).clamp(-bound, bound) - bound).exp()
    return (chance * 2.0**WORD_BITS).to(torch.int64).clamp(least, 2**WORD_BITS)


def first_accepted(words: Tensor, secrets: Secrets) -> Tensor:
    """Index (k,) of the first accepted of r proposals in a secret order; the last in the order is always accepted.

    Arguments:
        words: `acceptance_words` (k, r).
        secrets: gives the coins and the order.
    """
    coins, order = (torch.from_numpy(secrets.words(*words.shape, bits=WORD_BITS).astype(np.int64)) for _ in range(2))
    accepted = (coins < words).scatter(1, order.argmax(1, keepdim=True), True)
    return torch.where(accepted, order, 2**63 - 1).argmin(1)


class RejectionSampler(PrivateSampler):
    """Private draws from MBDE's density by constant-work rejection.

    Formal guarantees: every draw is epsilon-private, whatever the tilt (it is clamped to [-B, B], NaN counts as 0). R + 1
    proposals and evaluations a draw, never more nor less.

    Arguments:
        law: tilt, reference and bound B <= epsilon / 4.
        curator: charges epsilon for each draw.
        tries: R; None: so many that the fallback has probability of at most 1e-9.

    Raises:
        ValueError: tries out of range.

    Source: Husain et al. 2020, Theorem 4; the constant work is an addition.
    """

    def __init__(self, law: TiltedLaw, *, curator: Curator, tries: int | None = None) -> None:
        self._tries = tries_for(law.bound) if tries is None else require_whole("tries", tries, 1, MOST_TRIES)
        super().__init__(epsilon=law.epsilon, curator=curator, note=NOTE)
        self._law = law

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        at_once = max(1, _VALUES_AT_ONCE // (self._tries + 1))
        return torch.cat([self._part(min(at_once, count - done), secrets) for done in range(0, count, at_once)])

    def _part(self, k: int, secrets: Secrets) -> Tensor:
        points = self._law.reference.draw(k * (self._tries + 1), secrets)
        tilt = evaluated(self._law.function, points, self._law.bound).reshape(k, self._tries + 1)
        index = first_accepted(acceptance_words(tilt, self._law.bound), secrets)
        return points.reshape(k, self._tries + 1, -1)[torch.arange(k), index]
