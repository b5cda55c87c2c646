r"""The frequent values of a column whose values nobody knows beforehand: set selection by stability.

A value is released where its noisy count reaches a threshold that one record alone hardly ever reaches. `FrequentValues` has
Laplace noise and releases no counts, `FrequentCounts` has Gaussian noise and releases them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dpgen.privacy.events import approximate_event
from dpgen.privacy.mechanisms import Relation, Secrets, gaussian_event, require_positive, require_whole
from dpgen.privacy.selection import Integers, Reals, laplace_exceeds

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True, eq=False)
class FrequentValues:
    r"""All values v of count :math:`c_v` with :math:`c_v + L_v \ge t`.

    L is Laplace noise of scale :math:`1 / \epsilon_1`, and :math:`t = 1 + \ln(1 / 2 \delta_1) / \epsilon_1`. Under add/remove
    :math:`\epsilon_1 = \epsilon, \delta_1 = \delta`.

    Formal guarantee: :math:`(\epsilon_1, \delta_1)`-DP when a record with one value is added or removed. It moves the count of
    its value v by 1. If v has other records, whether v is released is a function of a count with Laplace noise:
    :math:`\epsilon`. If not, v is a candidate in one of the two data sets only, and is released there with probability
    :math:`\Pr[L \ge t - 1] = \frac12 e^{-\epsilon (t - 1)} \le \delta`; everything else has the same law. A record without a
    value moves nothing. A replaced record is two such steps: :math:`(2 \epsilon_1, (1 + e^{\epsilon_1}) \delta_1)`-DP, so under
    replace-one :math:`\epsilon_1 = \epsilon / 2, \delta_1 = \delta / (1 + e^{\epsilon_1})`. Coins are exact to 2^-192.

    Arguments:
        counts: of the values that occur, each at least 1; private.
        epsilon: in nats.
        delta: in (0, 1/2].
        relation: that epsilon and delta hold under.

    Raises:
        ValueError: a number out of its range.

    Source: Korolova, Kenthapadi, Mishra, Ntoulas 2009; Dwork and Roth 2014, section 7.2.

    >>> FrequentValues({"tea": 40}, 1.0, 1e-6).threshold
    14.12...
    """

    counts: Mapping[str, int]
    epsilon: float
    delta: float
    relation: Relation = "add_remove"

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        if not 0 < self.delta <= 0.5:
            raise ValueError(f"delta is {self.delta}; it must be in (0, 1/2]: without delta no unknown value can be released")
        if min(self.counts.values(), default=1) < 1:
            raise ValueError("counts hold a value that does not occur; counts must be at least 1")

    @property
    def event(self) -> DpEvent:
        """Price of one draw."""
        return approximate_event(self.epsilon, self.delta)

    @property
    def threshold(self) -> float:
        """The noisy count t at which a value is released."""
        return float(self._threshold)

    @property
    def _step(self) -> tuple[float, float]:
        """Epsilon and delta when a record is added or removed."""
        if self.relation == "add_remove":
            return self.epsilon, self.delta
        half = self.epsilon / 2
        return half, self.delta * math.exp(-half) / (1 + math.exp(-half)) * (1 - 1e-12)

    @property
    def _threshold(self) -> Fraction:
        epsilon, delta = self._step
        return 1 + Fraction(math.ceil(2**20 * (-math.log(2) - math.log(delta)) / epsilon), 2**20)

    def log_probabilities(self) -> dict[str, float]:
        """log P(v is released) of each candidate; as private as the counts."""
        gaps = {value: float(self._threshold - count) * self._step[0] for value, count in self.counts.items()}
        return {v: -g - math.log(2) if g >= 0 else math.log1p(-0.5 * math.exp(g)) for v, g in gaps.items()}

    def draw(self, secrets: Secrets, count: int) -> list[list[str]]:
        """`count` independent selections, each in alphabetical order."""
        rate = Fraction(self._step[0])
        return [
            [v for v in sorted(self.counts) if laplace_exceeds(secrets, self._threshold - self.counts[v], rate)]
            for _ in range(count)
        ]


@dataclass(frozen=True, eq=False)
class FrequentCounts:
    r"""All values v whose noisy count :math:`c_v + N(0, \sigma^2)` reaches t, with it; the noise is rounded to whole numbers.

    :math:`t = m + \lceil \sigma z \rceil + 1` with :math:`\Pr[N(0, 1) > z] = \delta / m`, for units of at most m rows.

    Formal guarantee: what :math:`(0, \delta)`-DP and the Gaussian mechanism of counts that a row moves by 1 cost together. Let
    A be the mechanism on D, G the same on those values that D and its neighbour both hold, and E the event that A releases
    some other value. Of these D has at most m rows, so each has a count of at most m, there are at most m of them, and
    :math:`q = \Pr[E] \le m \Pr[N(0, \sigma^2) \ge \sigma z] \le \delta`. Values have noise of their own, so given not E the law
    of A is that of G: :math:`A = (1 - q) G + q A_E`. The two G are post-processings of a Gaussian mechanism; whether E
    happens is a coin of chance q in each of the data sets, whose outcomes E differ: a (0, :math:`\max(q, q')`)-DP pair.
    So both are post-processings of the two mechanisms side by side, under add/remove and replace-one. `event` is the price of
    the Gaussian, in units of a row; `failure` that of E, of a whole unit.

    Arguments:
        counts: (k,) of the values that occur, each at least 1; private, and so is k.
        noise_std: of the counts, in rows.
        delta: in (0, 1/2].
        rows: m, the most rows of a unit.
        relation: that the guarantee holds under.

    Raises:
        ValueError: a number out of its range.

    Source: Wilkins, Kifer, Zhang, Karrer 2024 (exact analysis of the Gaussian threshold mechanism), of which this is a bound.

    >>> FrequentCounts(np.array([900, 3]), 20.0, 1e-6).threshold
    98
    """

    counts: Integers
    noise_std: float
    delta: float
    rows: int = 1
    relation: Relation = "add_remove"

    def __post_init__(self) -> None:
        require_positive("noise_std", self.noise_std)
        require_whole("rows", self.rows)
        if not 0 < self.delta <= 0.5:
            raise ValueError(f"delta is {self.delta}; it must be in (0, 1/2]: without delta no unknown value can be released")
        if self.counts.min(initial=1) < 1:
            raise ValueError("counts hold a value that does not occur; counts must be at least 1")

    @property
    def event(self) -> DpEvent:
        """Price of the counts of one row: a replaced one moves them by sqrt(2), for which the ledger takes 2."""
        return gaussian_event(self.noise_std * (1.0 if self.relation == "add_remove" else math.sqrt(2.0)))

    @property
    def failure(self) -> DpEvent:
        """Price of the names of values."""
        return approximate_event(0.0, self.delta)

    @property
    def threshold(self) -> int:
        """The noisy count t at which a value is released."""
        from scipy.special import ndtri

        z = -float(ndtri(self.delta / self.rows)) * (1 + 1e-9)
        return self.rows + math.ceil(self.noise_std * z) + 1

    def log_probabilities(self) -> Reals:
        """log P(v is released) (k,); as private as the counts."""
        from scipy.special import log_ndtr

        return np.asarray(log_ndtr((self.counts - self.threshold + 0.5) / self.noise_std))

    def draw(self, secrets: Secrets, count: int) -> list[tuple[Integers, Integers]]:
        """`count` independent releases: places in `counts` of the values, and their noisy counts.

        Places are in the order of `counts`, which is private: show the values in an order of their own.
        """
        found = []
        for _ in range(count):
            noisy = self.counts + secrets.rounded_normal(len(self.counts), noise_std=self.noise_std).numpy()
            places = np.flatnonzero(noisy >= self.threshold)
            found.append((places, noisy[places]))
        return found
