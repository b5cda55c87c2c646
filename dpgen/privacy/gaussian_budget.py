r"""One declared Gaussian, spent in parts that are chosen as the run goes: sums with noise, and exponential mechanisms.

A Gaussian of multiplier s costs :math:`\mu = 1/s`, and parts of :math:`\mu_i` cost :math:`\mu^2 = \sum_i \mu_i^2` together,
also where each is chosen in the light of the earlier ones (Dong, Roth, Su 2022; adaptively, Smith and Thakurta 2022). So one
event stands in the plan, and its exact curve is what the release states.

**The exponential mechanism as a part.** With scores that one record moves by at most D and log-weights :math:`\lambda q`, the
log ratios of the probabilities of an outcome on neighbours lie in an interval of length :math:`e_0 = 2 \lambda D`, which the
common factor of the normalisers shifts. A mechanism whose log ratios lie in :math:`[t - e_0, t]` is a post-processing of the
two coins :math:`P(A) = p, Q(A) = q` whose log ratios are the ends of that interval, so :math:`\operatorname{logit} p -
\operatorname{logit} q = e_0`: its likelihood ratio is below theirs in the convex order. These coins are a post-processing of
N(mu, 1) against N(0, 1) where :math:`\Phi^{-1}(p) - \Phi^{-1}(q) \le \mu`. With :math:`g = \Phi^{-1} \circ
\operatorname{sigmoid}`, odd and of falling slope above 0, :math:`g(u) - g(u - e_0)` is largest at :math:`u = e_0 / 2`, where
it is :math:`2 g(e_0 / 2)`. So

.. math:: e_0(\mu) = 2 \operatorname{logit} \Phi(\mu / 2)

is within :math:`\mu`-GDP. Under replace-one a score moves by 2 D, the interval is twice as long, and the ledger counts
:math:`2 \mu`: :math:`e_0` is convex above 0, so :math:`e_0(2 \mu) \ge 2 e_0(\mu)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.mechanisms import approximate_event, gaussian_event, require_positive
from dpgen.privacy.selection import ExponentialMechanism, FrequentCounts, Integers

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from torch import Tensor

    from dpgen.privacy.curator import Curator
    from dpgen.privacy.exact_sums import BoundedSum

THRESHOLD = "names of frequent values"
FAILURES = 0.1
"""Share of delta for all thresholds of unknown values."""

_PRICED = 1.0 + 1e-8  # the ledger takes a divisible Gaussian to be larger by what rounding of its parts may add
_ROUNDED = 1.0 - 1e-12  # e_0 is computed in float64


def bounded_range(mu: float) -> float:
    r"""Length e_0 of the interval of log ratios that a mechanism within :math:`\mu`-GDP may have, see the module.

    >>> round(bounded_range(1.0), 4), round(bounded_range(0.01) / 0.01, 4)
    (1.6139, 1.5958)
    """
    from scipy.special import log_ndtr

    return 2.0 * float(log_ndtr(mu / 2) - log_ndtr(-mu / 2))


class GaussianSelection(ExponentialMechanism):
    r"""One of m listed candidates, i with probability proportional to :math:`e^{\lambda q_i}`, priced as a Gaussian.

    :math:`\lambda = e_0(1/s) / (2 D)`, rounded down: within :math:`1/s`-GDP, see the module.

    Arguments:
        scores: q (m,), whole numbers, private.
        noise_multiplier: s > 0 of the Gaussian that is charged.
        sensitivity: D, by which adding or removing a record moves a score at most; replacing one moves it by 2 D.

    >>> import numpy as np
    >>> GaussianSelection(np.array([0, 3]), 2.0, 1).event
    GaussianDpEvent(noise_multiplier=2.0)
    """

    def __init__(self, scores: Integers, noise_multiplier: float, sensitivity: int) -> None:
        mu = 1.0 / require_positive("noise_multiplier", noise_multiplier)
        super().__init__(scores, Fraction(bounded_range(mu) * _ROUNDED) / (2 * sensitivity), sensitivity)
        object.__setattr__(self, "noise_multiplier", noise_multiplier)

    @property
    def event(self) -> DpEvent:
        """Price of one draw."""
        return gaussian_event(self.noise_multiplier)  # type: ignore[attr-defined]


def _priced(others: Sequence[DpEvent], scale: float) -> DpEvent:
    """What the whole Gaussian costs beside these events."""
    from dp_accounting import ComposedDpEvent

    gaussian = gaussian_event(scale / _PRICED)
    return ComposedDpEvent([gaussian, *others]) if others else gaussian


class GaussianBudget:
    """The declared Gaussian of a fit, and what is left of it; a fit that is run again has what the interrupted one left.

    Arguments:
        curator: charges and adds noise.
        budget: epsilon and delta of the whole Gaussian, or its multiplier.
        note: what the ledger calls it.
        thresholds: how many lists of frequent values `frequent` may release; a tenth of delta pays for their names.

    Raises:
        ValueError: a budget that no noise in range reaches, or thresholds without a delta; later, a share that is not left.

    >>> from dpgen.privacy.curator import Curator
    >>> from dpgen.privacy.ledger import Ledger
    >>> gaussian = GaussianBudget(Curator(Ledger(Budget(1.0, 1e-5))), Budget(1.0, 1e-5), "all of a fit")
    >>> round(gaussian.left**0.5, 3)
    0.268
    """

    def __init__(self, curator: Curator, budget: Budget | float, note: str, *, thresholds: int = 0) -> None:
        self.curator = curator
        delta = budget.delta if isinstance(budget, Budget) else 0.0
        if thresholds and not delta:
            raise ValueError("delta is 0; it must be in (0, 1): values that nobody knows cannot be named at delta 0")
        self._failure = FAILURES * delta / max(1, thresholds) * (1 - 1e-9)
        names = [Planned(approximate_event(0.0, self._failure), THRESHOLD, count=thresholds)] if thresholds else []
        scale = budget
        if isinstance(scale, Budget):
            others = [line.event for line in names for _ in range(line.count)]
            scale = calibrate_noise(partial(_priced, others), scale, relation=curator.relation, low=1e-3, high=1e6)
        self.note = f"{note} (multiplier {scale:.10g})"
        curator.declare(Planned(gaussian_event(scale), note=self.note, divisible=True), *names)
        planned = sum(line.count for line in curator.ledger.promised() if line.note == self.note)
        spent = [entry for entry in curator.ledger.entries() if entry.of == self.note]
        self.left = planned * scale**-2 - sum(entry.count * entry.event.noise_multiplier**-2 for entry in spent)

    @property
    def mu(self) -> float:
        """1 / noise std of counts that one row moves by 1, sqrt(2) under replace-one, that had all that is left."""
        return 1.0 / self.noise_std(self.left)

    def noise_std(self, share: float) -> float:
        """Noise std of counts that one row moves by 1, sqrt(2) under replace-one, that get this share of 1 / s^2."""
        return self.curator.rows / math.sqrt(share * (1.0 if self.curator.relation == "add_remove" else 2.0))

    def _part(self, share: float) -> float:
        """Multiplier of a part of 1 / s^2."""
        if not 0 < share <= self.left * (1 + 1e-9):
            raise ValueError(f"share is {share!r}; it must lie in (0, {self.left!r}], what is left of {self.note!r}")
        self.left = max(0.0, self.left - share)
        return share**-0.5

    def sums(self, note: str, sums: BoundedSum, share: float) -> tuple[Tensor, float]:
        """Sums with noise as float64, and the noise std of every entry, for a share of 1 / s^2."""
        multiplier = self._part(share)
        if self.curator.relation == "replace_one":  # events count in units of twice the add/remove sensitivity there
            multiplier *= sums.under("replace_one") / (2.0 * sums.sensitivity)
        noisy = self.curator.gaussian(note, sums, multiplier, of=self.note)
        return noisy.double(), multiplier * sums.sensitivity * self.curator.rows

    def frequent(self, note: str, counts: Integers, share: float) -> tuple[Integers, Integers, float, int]:
        """Values whose noisy count passes the threshold, see `FrequentCounts`.

        Arguments:
            counts: (k,) of the values that occur; a row counts for one of them.
            share: of 1 / s^2, at most `left`.

        Returns:
            Places in `counts`, noisy counts, their noise std, and the threshold.

        Raises:
            ValueError: a share that is not left.
            BudgetExceeded: more lists than were declared; nothing was drawn.
        """
        relation, rows = self.curator.relation, self.curator.rows
        noise_std = self._part(share) * rows / (1.0 if relation == "add_remove" else math.sqrt(2.0))
        mechanism = FrequentCounts(counts, noise_std, self._failure, rows, relation)
        self.curator.ledger.charge(mechanism.failure, note=THRESHOLD)
        [(places, noisy)] = self.curator.release(note, mechanism, of=self.note)
        return places, noisy, noise_std, mechanism.threshold

    def select(self, note: str, scores: Integers, sensitivity: int, share: float) -> int:
        """The number of one candidate, the higher its score the likelier, see `GaussianSelection`."""
        multiplier = self._part(share) * self.curator.rows  # for one row; the curator charges for all of a person's
        chosen = self.curator.release(note, GaussianSelection(scores, multiplier, sensitivity), of=self.note)
        return int(chosen[0])
