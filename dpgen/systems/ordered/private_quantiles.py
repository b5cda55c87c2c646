"""A baseline: approximate quantiles by recursive private medians."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dpgen.privacy.curator import Curator
from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Planned
from dpgen.privacy.limits import require_whole
from dpgen.privacy.mechanisms import Secrets
from dpgen.privacy.parallel import Relation
from dpgen.privacy.selection import exponential_mechanism
from dpgen.systems.ordered.counts import NO_RECORDS, records_moved
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.knots import Integers, MonotoneCounts, monotone_counts
from dpgen.systems.ordered.public_limits import LEVELS

if TYPE_CHECKING:
    from dp_accounting import DpEvent


class RecursiveMedians:
    r"""Private medians of medians, a mechanism for `Curator.release`.

    A median x of n' records in (low, high) is drawn with probability proportional to
    :math:`\exp(-\lambda |c(x) - n'/2|)` over all integers between, c(x) being the records below x. An inserted record moves
    c(x) by 0 or 1 and n'/2 by 1/2, hence every score by 1/2, so a draw is :math:`\lambda`-private (the normaliser moves
    too); a level touches a record once, or twice when it is replaced. Scores are exact halves, the rate is a rational
    number, and the price is worked out from both.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        N: domain size.
        rate: lambda, per record.
        levels: halvings.
        relation: neighbouring relation that the price is for.

    Source: Kaplan, Schnapp, Stemmer 2022 (approximate quantiles), Algorithm 1.
    """

    def __init__(self, values: Integers, *, N: int, rate: Fraction, levels: int, relation: Relation) -> None:
        self.values, self.N, self.rate, self.levels, self.relation = values, N, rate, levels, relation

    @property
    def event(self) -> "DpEvent":
        """Lambda for each level and touched record: basic composition over levels, whose parts are disjoint."""
        return pure_event(float(self.rate * self.levels * records_moved(self.relation)))

    def draw(self, secrets: Secrets, count: int = 1) -> list[Integers]:
        """The 2^levels - 1 medians, not decreasing, `count` times."""
        return [self._medians(secrets) for _ in range(count)]

    def _medians(self, secrets: Secrets) -> Integers:
        knots = [0, self.N]
        for _ in range(self.levels):
            middles = [_median(self.values, low, high, self.rate, secrets) for low, high in pairwise(knots)]
            knots = [knot for pair in zip(knots, middles) for knot in pair] + [self.N]
        return np.array(knots[1:-1], np.int64)


@dataclass(frozen=True, kw_only=True)
class PrivateQuantiles(OrderedEstimator):
    r"""The 2^levels - 1 quantiles j / 2^levels: a private median, then medians of both halves, and so on.

    The budget is divided evenly over the levels, :math:`\lambda = \epsilon / levels` (replace-one: half of it), see
    `RecursiveMedians`. Epsilon-private, delta 0, and n need not be known.

    Arguments:
        levels: halvings h >= 1. More of them resolve more and are noisier.
    """

    levels: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("levels", self.levels, *LEVELS)

    def _mechanism(self, values: Integers, N: int, relation: Relation) -> RecursiveMedians:
        rate = Fraction(self.epsilon) / (self.levels * records_moved(relation))
        return RecursiveMedians(values, N=N, rate=rate, levels=self.levels, relation=relation)

    @property
    def _note(self) -> str:
        return f"{2**self.levels - 1} quantiles"

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        """All quantiles at once."""
        return [Planned(self._mechanism(NO_RECORDS, N, relation).event, self._note)]

    def release(self, values: Integers, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of sorted values (n,) int64 in [0, N)."""
        [inner] = curator.release(self._note, self._mechanism(values, N, curator.relation))
        size = float(len(values) if records_moved(curator.relation) == 2 else self.size or 1)
        counts = size * np.arange(1, len(inner) + 1) / (len(inner) + 1)
        return monotone_counts(inner, counts, np.ones(len(inner)), N=N, size=size)


def _median(values: Integers, low: int, high: int, rate: Fraction, secrets: Secrets) -> int:
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
    block, number = exponential_mechanism(secrets, sizes, ceilings, lambda b, _: -rate / 2 * int(twice[b]))
    return int(ends[block]) + 1 + number
