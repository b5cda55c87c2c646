r"""Private draws of a density inside a public box by sampling importance resampling (SIR): in constant work, no normaliser.

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
from dpgen.privacy.mechanisms import Secrets, require_whole
from dpgen.release import PrivateSampler
from dpgen.systems.mbde.densities import Box, ClippedDensity, evaluated, mollified
from dpgen.systems.mbde.plan import CODEBOOKS

SIR_DRAWS = "SIR draws"
WORD_BITS = 62
_VALUES_AT_ONCE = 2**17


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


class SIRSampler(PrivateSampler):
    """Private draws from a learned density ratio by SIR.

    Every draw is epsilon-private for any private function, whatever it was learned from, as long as the reference and the box
    are public. Work, network evaluations and memory depend on k and the codebook's size only. `codebook` is the number of
    points of Q0 for each draw, whose density comes near the ideal one as 1 / codebook.

    >>> from dpgen.privacy.curator import Curator
    >>> from dpgen.privacy.ledger import Budget, Ledger
    >>> from dpgen.systems.mbde.densities import ClippedDensity, GaussianReference
    >>> curator = Curator(Ledger(Budget(2.0, 0.0), relation="replace_one", unit="the whole data set"))
    >>> density = ClippedDensity(lambda x: x.sum(1), GaussianReference.standard(2), box=Box.of(1.0), epsilon=1.0)
    >>> SIRSampler(density, curator=curator).sample(2).shape, curator.ledger.epsilon()
    (torch.Size([2, 2]), 2.0)
    """

    def __init__(self, density: ClippedDensity, *, curator: Curator, codebook: int = 1024) -> None:
        require_whole("codebook", codebook, *CODEBOOKS)
        if density.box.epsilon > density.epsilon * (1 + 1e-12):
            raise ValueError(
                f"box is {density.box}: its log-ratio {density.box.epsilon:.6g} is above epsilon {density.epsilon:g} of a draw"
            )
        super().__init__(epsilon=density.epsilon, curator=curator, note=SIR_DRAWS)
        self._density, self._codebook = density, codebook

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        at_once = max(1, _VALUES_AT_ONCE // self._codebook)  # so that memory stays bounded
        sizes = [min(at_once, count - done) for done in range(0, count, at_once)]
        return torch.cat([self._part(size, secrets) for size in sizes])

    def _part(self, k: int, secrets: Secrets) -> Tensor:
        """k independent draws (k, d), each out of fresh points of the reference."""
        m = self._codebook
        points = self._density.reference.draw(k * m, secrets)
        log_ratio = evaluated(self._density.function, points).reshape(k, m)
        return points.reshape(k, m, -1)[torch.arange(k), chosen(whole_weights(log_ratio, self._density.box), secrets)]
