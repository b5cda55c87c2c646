"""Sampling-importance-resampling inside a public box: exactly private, in constant work, with no normaliser.

A codebook of M points of Q0 is drawn; point i is released with probability w_i / M, where the weights w lie in [a, b] and
have mean 1. Whatever the codebook, two data sets give its points probabilities within a factor b / a <= e^epsilon, and so
also on average over codebooks: the guarantee holds even if the codebook is known.
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
from dpgen.systems.continuous.box import Box, mollified
from dpgen.systems.continuous.laws import Law, evaluated

NOTE = "SIR draws"
TOTAL_BITS = 62
CODEBOOKS = (2, 2**16)
_VALUES_AT_ONCE = 2**17


def whole_weights(log_ratio: Tensor, box: Box) -> Tensor:
    r"""Weights (k, m) in whole numbers that sum to exactly 2^62, each within [a, b] 2^62 / m: the law of a SIR draw.

    Formal guarantees, for any finite input:
        - rows sum to 2^62, so a draw needs no normaliser and no rounding;
        - every weight lies between ceil(a 2^62 / m) and floor(b 2^62 / m): two inputs differ by a factor of at most b / a.

    Arguments:
        log_ratio: log density ratio at the m points of each codebook (k, m), finite.
        box: the public box.

    Raises:
        ValueError: m outside [2, 2^16].
    """
    m = log_ratio.shape[1]
    require_whole("codebook", m, *CODEBOOKS)
    unit = 2**TOTAL_BITS / m
    least, most = math.ceil(box.low * unit), math.floor(min(box.high, m) * unit)
    weights = (mollified(log_ratio, box) * unit).to(torch.int64).clamp(least, most)
    missing = 2**TOTAL_BITS - weights.sum(1, keepdim=True)
    weights += _filled(missing.clamp_min(0), most - weights) - _filled((-missing).clamp_min(0), weights - least)
    return weights


def _filled(amount: Tensor, room: Tensor) -> Tensor:
    """Spread `amount` (k, 1) over the first places that have room (k, m)."""
    room = room.minimum(amount)
    before = room.cumsum(1) - room  # at most m * amount, and the amount is a rounding error: no overflow
    return (amount - before).clamp_min(0).minimum(room)


def chosen(weights: Tensor, secrets: Secrets) -> Tensor:
    """An index (k,) for each row of `whole_weights`, with exactly their probabilities."""
    target = torch.from_numpy(secrets.words(len(weights), bits=TOTAL_BITS).astype(np.int64))
    return torch.searchsorted(weights.cumsum(1), target[:, None], right=True).squeeze(1)


class SIRSampler(PrivateSampler):
    """Private draws from a learned density ratio by SIR.

    Formal guarantees: every draw is epsilon-private for any private function, whatever it was learned from, as long as
    the reference and the box are public. Work, network evaluations and memory depend on k and the codebook's size only.

    Arguments:
        law: private function, reference and box; of a `TiltedLaw` the tilt is the log density ratio.
        curator: charges epsilon for each draw.
        codebook: points of Q0 for each draw; the law of a draw comes near the ideal one as 1 / codebook.

    Raises:
        ValueError: codebook out of range, or a box wider than epsilon.

    >>> from dpgen.privacy.curator import Curator
    >>> from dpgen.privacy.ledger import Budget, Ledger
    >>> from dpgen.systems.continuous.laws import ClippedLaw
    >>> from dpgen.systems.continuous.references import GaussianReference
    >>> curator = Curator(Ledger(Budget(2.0, 0.0), relation="replace_one", unit="the whole data set"))
    >>> law = ClippedLaw(lambda x: x.sum(1), GaussianReference.standard(2), box=Box.of(1.0), epsilon=1.0)
    >>> SIRSampler(law, curator=curator).sample(2).shape, curator.ledger.epsilon()
    (torch.Size([2, 2]), 2.0)
    """

    def __init__(self, law: Law, *, curator: Curator, codebook: int = 1024) -> None:
        require_whole("codebook", codebook, *CODEBOOKS)
        if law.box.epsilon > law.epsilon * (1 + 1e-12):
            raise ValueError(
                f"box is {law.box}: its log-ratio {law.box.epsilon:.6g} is above epsilon {law.epsilon:g} of a draw"
            )
        super().__init__(epsilon=law.epsilon, curator=curator, note=NOTE)
        self._law, self._codebook = law, codebook

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        at_once = max(1, _VALUES_AT_ONCE // self._codebook)
        sizes = [min(at_once, count - done) for done in range(0, count, at_once)]
        return torch.cat([self._part(size, secrets) for size in sizes])

    def _part(self, k: int, secrets: Secrets) -> Tensor:
        points = self._law.reference.draw(k * self._codebook, secrets)
        values = evaluated(self._law.function, points).reshape(k, self._codebook)
        index = chosen(whole_weights(values, self._law.box), secrets)
        return points.reshape(k, self._codebook, -1)[torch.arange(k), index]
