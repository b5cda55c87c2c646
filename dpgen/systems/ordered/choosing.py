r"""The choosing mechanism (Beimel, Nissim, Stemmer 2013) in a form that holds for the scores of the maximum error rule.

Published: draw among the candidates with score >= 1 after a noisy test of the largest score; the proof needs scores that
are 0 on the empty data set and grow with it. $|c(J) - A(J)|$ does neither. What is used of it here is only that one change
of the data moves at most k scores, each by at most 1:

1. stop unless $\max(q_\max, \tau) + \mathrm{Lap}(1/\epsilon_1) \ge \theta$;
2. draw J among $\{q \ge \tau\}$ with probability proportional to $e^{\epsilon_2 q(J) / 2}$.

For any $Q_0 > \tau$ and $\gamma = k e^{-\epsilon_2 (Q_0 - \tau) / 2}$ this is $(\epsilon_1 + \epsilon_2 + \gamma, \delta)$-DP
with $\delta = \max(\gamma e^{\epsilon_2 / 2}, e^{-\epsilon_1 (\theta - Q_0)} / 2)$. If $q_\max < Q_0$, step 1 passes with
probability at most the second term. Otherwise the normaliser is at least $e^{\epsilon_2 Q_0 / 2}$, the at most k
candidates that enter or leave $\{q \ge \tau\}$ have a score below $\tau + 1$ on the side where they are in, so they change
the normaliser by a factor of at most $e^{\epsilon_2 / 2} (1 + \gamma)$ and carry a probability of at most
$\gamma e^{\epsilon_2 / 2}$.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpgen.privacy.noise import SecureSource
from dpgen.privacy.selection import exponential_mechanism, laplace_exceeds
from dpgen.systems.ordered.dyadic_cells import DyadicCells
from dpgen.systems.ordered.dyadic_selection import interval_score
from dpgen.systems.ordered.knots import Integers, MonotoneCounts

_LISTED = 5e4  # tau grows with n / 5e4 records, which bounds the number of candidates
_BORDER = 1e-6  # scores are compared with tau in float64


@dataclass(frozen=True)
class ChoosingConstants:
    """The constants of one draw: rates e1 of the test and e2 of the draw, threshold theta, least score tau, and Q0."""

    test_rate: float
    draw_rate: float
    threshold: float
    least: float
    certain: float

    @classmethod
    def of(cls, epsilon: float, delta: float, *, moved: int, size: float) -> "ChoosingConstants":
        r"""The lowest threshold for (epsilon, delta), with :math:`\epsilon_1 : \epsilon_2` chosen for it.

        Arguments:
            epsilon: in nats, of one draw.
            delta: of one draw, in (0, 1/2).
            moved: k, how many scores one change of the data moves.
            size: public or noisy number of records; tau is max(1, size / 50 000), which keeps the candidates listable.

        Raises:
            ValueError: epsilon not > 0 or delta outside (0, 1/2).

        >>> constants = ChoosingConstants.of(0.1, 1e-6, moved=120, size=1e4)
        >>> [round(value, 9) for value in constants.guarantee(120)]
        [0.1, 1e-06]
        """
        if not (0 < epsilon < math.inf and 0 < delta < 0.5):
            raise ValueError(f"epsilon is {epsilon!r} and delta is {delta!r}; choosing needs epsilon > 0 and delta in (0, 0.5)")
        log_gamma = min(math.log(delta) - epsilon / 2, math.log(epsilon / 2))
        rest = epsilon - math.exp(log_gamma)
        test_cost, draw_cost = -math.log(2 * delta), 2 * (math.log(moved) - log_gamma)
        share = math.sqrt(test_cost) / (math.sqrt(test_cost) + math.sqrt(draw_cost))
        test_rate, draw_rate = share * rest, (1 - share) * rest
        least = max(1.0, size / _LISTED)
        certain = least + _BORDER + draw_cost / draw_rate
        return cls(test_rate, draw_rate, certain + test_cost / test_rate, least, certain)

    def for_size(self, size: float) -> "ChoosingConstants":
        """The same draw for another public or noisy number of records: what counts is how far Q0 and theta are from tau."""
        change = max(1.0, size / _LISTED) - self.least
        return replace(self, least=self.least + change, certain=self.certain + change, threshold=self.threshold + change)

    def guarantee(self, moved: int) -> tuple[float, float]:
        """(epsilon, delta) of one draw when a change of the data moves at most `moved` scores."""
        gamma = moved * math.exp(-self.draw_rate * (self.certain - self.least - _BORDER) / 2)
        passes = math.exp(-self.test_rate * (self.threshold - self.certain)) / 2
        return self.test_rate + self.draw_rate + gamma, max(gamma * math.exp(self.draw_rate / 2), passes)


class ChoosingSelection:
    """Draws dyadic intervals with large errors, or nothing when no error is surely large.

    Arguments:
        values: (n,) int64, sorted, in [0, N).
        N: domain size, at least 2.
        constants: of each draw.
        tested: False leaves out step 1, which breaks the guarantee; the tests show it.
    """

    answers = "interval"

    def __init__(self, values: Integers, *, N: int, constants: ChoosingConstants, tested: bool = True) -> None:
        self.values, self.N, self.constants, self.tested = values, N, constants, tested
        self.cells = DyadicCells(values, N=N, least=constants.least)

    def draw(self, source: SecureSource, model: MonotoneCounts) -> tuple[int, int] | None:
        """Ends (start, stop) of one interval; None when the noisy test says stop. The model must be public."""
        heavy = self.cells.heavy(model)
        largest = max(float(heavy.scores.max()), self.constants.least)
        gap = Fraction(self.constants.threshold) - Fraction(largest)
        if self.tested and not laplace_exceeds(source, gap, Fraction(self.constants.test_rate)):
            return None
        chosen = np.flatnonzero(heavy.scores >= self.constants.least)
        if chosen.size == 0:
            return None
        half = Fraction(self.constants.draw_rate) / 2
        starts = heavy.start[chosen]
        stops = np.minimum(starts + (1 << (self.cells.depth - heavy.level[chosen])), self.N)
        ranks = heavy.ranks[chosen]

        def log_weight(block: int, _: int) -> Fraction:
            return half * interval_score(ranks[block], int(starts[block]), int(stops[block]), model)

        ones = np.ones(chosen.size, np.uint64)
        block, _ = exponential_mechanism(source, ones, float(half) * heavy.scores[chosen], log_weight)
        return int(starts[block]), int(stops[block])
