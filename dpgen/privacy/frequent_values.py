r"""The frequent values of a column whose values nobody knows beforehand: set selection by stability.

A value is released, with its noisy count, where that reaches a threshold that one unit alone hardly ever reaches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpgen.privacy.events import approximate_event
from dpgen.privacy.mechanisms import Relation, Secrets, gaussian_event, require_positive, require_whole
from dpgen.privacy.selection import Integers, Reals

if TYPE_CHECKING:
    from dp_accounting import DpEvent


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
