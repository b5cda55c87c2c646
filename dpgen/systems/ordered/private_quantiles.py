"""A baseline: approximate quantiles by recursive private medians."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.limits import require_whole
from dpgen.privacy.noise import SecureSource, require_secure
from dpgen.privacy.selection import exponential_mechanism
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.knots import Integers, MonotoneCounts, monotone_counts
from dpgen.systems.ordered.public_limits import LEVELS
from dpgen.systems.ordered.sensitivities import records_moved


@dataclass(frozen=True, kw_only=True)
class PrivateQuantiles(OrderedEstimator):
    r"""The 2^levels - 1 quantiles j / 2^levels: a private median, then medians of both halves, and so on.

    A median x of n' records in (low, high) is drawn with probability proportional to
    :math:`\exp(-\lambda |c(x) - n'/2|)` over all integers between, c(x) being the records below x. One insertion moves every
    score by 1/2, so a draw is :math:`\lambda`-private; a level touches a record once (replace-one: twice), so
    :math:`\lambda = \epsilon / levels` (half of it). Epsilon-private, delta 0, and n need not be known.

    Source: Kaplan, Schnapp, Stemmer 2022 (approximate quantiles), Algorithm 1.

    Arguments:
        levels: halvings h >= 1. More of them resolve more and are noisier.
    """

    levels: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("levels", self.levels, *LEVELS)

    def _fit_counts(self, values: Integers, *, N: int, ledger: Ledger, source: SecureSource) -> MonotoneCounts:
        """Noisy monotone prefix counts of sorted values (n,) int64 in [0, N)."""
        source = require_secure(source)
        ledger.charge(pure_event(self.epsilon), note=f"{2**self.levels - 1} quantiles")
        rate = Fraction(self.epsilon) / (self.levels * records_moved(ledger.relation))
        knots = [0, N]
        for _ in range(self.levels):
            middles = [_median(values, low, high, rate, source) for low, high in pairwise(knots)]
            knots = [knot for pair in zip(knots, middles) for knot in pair] + [N]
        size = float(len(values) if ledger.relation == "replace_one" else self.size or 1)
        counts = size * np.arange(len(knots)) / (len(knots) - 1)
        inner = np.array(knots[1:-1], np.int64)
        return monotone_counts(inner, counts[1:-1], np.ones(len(inner)), N=N, size=size)


def _median(values: Integers, low: int, high: int, rate: Fraction, source: SecureSource) -> int:
    """A private median in (low, high); low where there is nothing between."""
    if high - low < 2:
        return low
    first, last = np.searchsorted(values, [low, high])
    inside = values[first:last]
    # Block c: the integers x with exactly c records below, from one record (exclusive) to the next (inclusive).
    ends = np.concatenate([[low], np.clip(inside, low, high - 1), [high - 1]])
    sizes = np.diff(ends).astype(np.uint64)
    twice = np.abs(2 * np.arange(len(sizes)) - len(inside))
    ceilings = -float(rate) / 2 * twice
    block, number = exponential_mechanism(source, sizes, ceilings, lambda b, _: -rate / 2 * int(twice[b]))
    return int(ends[block]) + 1 + number
