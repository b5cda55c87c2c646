r"""Private draws of a density inside a public box: rejection, sampling importance resampling.

**Rejection** from Q0 in constant work: R proposals, the first accepted one, else a fresh draw of Q0.

Plain rejection draws from :math:`Q \propto Q_0 e^f` exactly, but how many proposals it looks at depends on the data. Here
R + 1 proposals are always made and looked at, in a secret random order; the last one in the order is taken if all others
were rejected. The density of a draw is :math:`(1 - w) Q + w Q_0` with :math:`w \le (1 - e^{-2B})^R`.

Why it is private even when the R + 1 proposals are known: proposal i is taken with probability
:math:`a_i S_i + (1 - a_i) L_i`, where :math:`a_i \in [l, 1]`, :math:`l = e^{-2B}`, is its chance of being accepted,
:math:`S_i` the chance that the order reaches it, and :math:`L_i \le S_i` the chance that it is reached in the last place,
where :math:`a_i` is not asked. This rises with :math:`a_i` and falls with every other :math:`a_j`, so it lies between
:math:`l / (R + 1)` and :math:`(1 - (1 - l)^{R + 1}) / (l (R + 1))`, and two data sets differ by less than
:math:`l^{-2} = e^{4B} \le e^\epsilon`. Without the secret order the second proposal alone would tell them apart.

**Sampling-importance-resampling** inside a public box: exactly private, in constant work, with no normaliser.

A codebook of M points of Q0 is drawn; point i is released with probability w_i / M, where the weights w lie in [a, b] and
have mean 1. Whatever the codebook, two data sets give its points probabilities within a factor b / a <= e^epsilon, and so
also on average over codebooks: the guarantee holds even if the codebook is known.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.mechanisms import Secrets, require_whole
from dpgen.release import PrivateSampler
from dpgen.systems.mbde.densities import LARGEST_LOGIT, Box, Density, TiltedDensity, evaluated, mollified
from dpgen.systems.mbde.plan import CODEBOOKS, MOST_TRIES

REJECTION_DRAWS, SIR_DRAWS = "rejection draws", "SIR draws"
WORD_BITS = 62
_FALLBACK = 1e-9
_SHRINK = 1e-9
_VALUES_AT_ONCE = 2**17


def tries_for(bound: float) -> int:
    """Proposals R after which the fallback has probability of about 1e-9 at most, (1 - e^(-2B))^R.

    Raises:
        ValueError: more than 2^20 proposals.

    >>> tries_for(0.25)
    23
    """
    tries = max(1, math.ceil(math.log(_FALLBACK) / math.log1p(-math.exp(-2 * bound)) - 1e-9))
    if tries > MOST_TRIES:
        raise ValueError(f"tries would be {tries} at bound {bound:g}; at most {MOST_TRIES} are made: use sampler='sir'")
    return tries


def acceptance_words(tilt: Tensor, bound: float) -> Tensor:
    """Of 2^62 equally likely words, how many accept a proposal of tilt f: e^(f - B), never below ceil(e^(-2B) 2^62), int64
    like `tilt`.
    """
    bound = bound * (1 - _SHRINK)
    least = math.ceil(math.exp(-2 * bound) * 2**WORD_BITS)
    chance = (tilt.to(torch.float64).clamp(-bound, bound) - bound).exp()
    return (chance * 2.0**WORD_BITS).to(torch.int64).clamp(least, 2**WORD_BITS)


def first_accepted(words: Tensor, secrets: Secrets) -> Tensor:
    """Index (k,) of the first accepted of `words` (k, r) proposals in a secret order; the last in the order is always
    accepted.
    """
    coins, order = (torch.from_numpy(secrets.words(*words.shape, bits=WORD_BITS).astype(np.int64)) for _ in range(2))
    accepted = (coins < words).scatter(1, order.argmax(1, keepdim=True), True)
    return torch.where(accepted, order, 2**63 - 1).argmin(1)


class _DensitySampler(PrivateSampler):
    """Draws of a density, so many at once that memory stays bounded."""

    def __init__(self, density: Density, *, curator: Curator, note: str, at_once: int) -> None:
        super().__init__(epsilon=density.epsilon, curator=curator, note=note)
        self._density, self._at_once = density, max(1, at_once)

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        sizes = [min(self._at_once, count - done) for done in range(0, count, self._at_once)]
        return torch.cat([self._part(size, secrets) for size in sizes])

    @abstractmethod
    def _part(self, k: int, secrets: Secrets) -> Tensor:
        """k independent draws (k, d)."""

    def _one_of(self, m: int, k: int, secrets: Secrets, choose: Callable[[Tensor], Tensor], limit: float) -> Tensor:
        """k draws (k, d), each out of m fresh points of the reference; `choose` maps their values (k, m) to places (k,)."""
        points = self._density.reference.draw(k * m, secrets)
        values = evaluated(self._density.function, points, limit).reshape(k, m)
        return points.reshape(k, m, -1)[torch.arange(k), choose(values)]


class RejectionSampler(_DensitySampler):
    """Private draws from MBDE's density by constant-work rejection.

    Every draw is epsilon-private, whatever the tilt (it is clamped to [-B, B], NaN counts as 0), at R + 1 proposals and
    evaluations a draw, never more nor less. R is so large that the fallback has probability 1e-9 at most.

    Source: Husain et al. 2020, Theorem 4; the constant work is an addition.
    """

    def __init__(self, density: TiltedDensity, *, curator: Curator) -> None:
        self._proposals = 1 + tries_for(density.bound)
        self._bound = density.bound
        super().__init__(density, curator=curator, note=REJECTION_DRAWS, at_once=_VALUES_AT_ONCE // self._proposals)

    def _part(self, k: int, secrets: Secrets) -> Tensor:
        def choose(tilt: Tensor) -> Tensor:
            return first_accepted(acceptance_words(tilt, self._bound), secrets)

        return self._one_of(self._proposals, k, secrets, choose, self._bound)


def whole_weights(log_ratio: Tensor, box: Box) -> Tensor:
    """Weights (k, m) in whole numbers that sum to exactly 2^62, each within [a, b] 2^62 / m: the density of a SIR draw.

    `log_ratio` (k, m) is finite, m in [2, 2^16]. A draw needs no normaliser and no rounding, and two inputs differ by a factor
    of at most b / a.
    """
    m = log_ratio.shape[1]
    require_whole("codebook", m, *CODEBOOKS)
    unit = 2**WORD_BITS / m
    least, most = math.ceil(box.low * unit), math.floor(min(box.high, m) * unit)
    weights = (mollified(log_ratio, box) * unit).to(torch.int64).clamp(least, most)
    missing = 2**WORD_BITS - weights.sum(1, keepdim=True)
    weights += _filled(missing.clamp_min(0), most - weights) - _filled((-missing).clamp_min(0), weights - least)
    return weights


def _filled(amount: Tensor, room: Tensor) -> Tensor:
    """Spread `amount` (k, 1) over the first places that have room (k, m)."""
    room = room.minimum(amount)
    before = room.cumsum(1) - room  # at most m * amount, and the amount is a rounding error: no overflow
    return (amount - before).clamp_min(0).minimum(room)


def chosen(weights: Tensor, secrets: Secrets) -> Tensor:
    """An index (k,) for each row of `whole_weights`, with exactly their probabilities."""
    target = torch.from_numpy(secrets.words(len(weights), bits=WORD_BITS).astype(np.int64))
    return torch.searchsorted(weights.cumsum(1), target[:, None], right=True).squeeze(1)


class SIRSampler(_DensitySampler):
    """Private draws from a learned density ratio by SIR.

    Every draw is epsilon-private for any private function, whatever it was learned from, as long as the reference and the box
    are public. Work, network evaluations and memory depend on k and the codebook's size only. `codebook` is the number of
    points of Q0 for each draw, whose density comes near the ideal one as 1 / codebook; of a `TiltedDensity` the tilt is the
    log density ratio.

    >>> from dpgen.privacy.curator import Curator
    >>> from dpgen.privacy.ledger import Budget, Ledger
    >>> from dpgen.systems.mbde.densities import ClippedDensity, GaussianReference
    >>> curator = Curator(Ledger(Budget(2.0, 0.0), relation="replace_one", unit="the whole data set"))
    >>> density = ClippedDensity(lambda x: x.sum(1), GaussianReference.standard(2), box=Box.of(1.0), epsilon=1.0)
    >>> SIRSampler(density, curator=curator).sample(2).shape, curator.ledger.epsilon()
    (torch.Size([2, 2]), 2.0)
    """

    def __init__(self, density: Density, *, curator: Curator, codebook: int = 1024) -> None:
        require_whole("codebook", codebook, *CODEBOOKS)
        if density.box.epsilon > density.epsilon * (1 + 1e-12):
            raise ValueError(
                f"box is {density.box}: its log-ratio {density.box.epsilon:.6g} is above epsilon {density.epsilon:g} of a draw"
            )
        super().__init__(density, curator=curator, note=SIR_DRAWS, at_once=_VALUES_AT_ONCE // codebook)
        self._codebook = codebook

    def _part(self, k: int, secrets: Secrets) -> Tensor:
        def choose(log_ratio: Tensor) -> Tensor:
            return chosen(whole_weights(log_ratio, self._density.box), secrets)

        return self._one_of(self._codebook, k, secrets, choose, LARGEST_LOGIT)
