r"""What a Gaussian fit pays, and for what: shares of :math:`\mu^2`, accounted exactly.

Every release is a Gaussian mechanism, so a fit of shares :math:`f_i` is one Gaussian of multiplier s: release i gets
:math:`\sigma_i = s / \sqrt{f_i}`, and :math:`\sum_i 1 / \sigma_i^2 = 1 / s^2` (add/remove; Dong, Roth, Su 2022,
Corollary 3.3). Under replace-one each release costs its own exact factor.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dp_accounting import ComposedDpEvent

from dpgen.privacy.calibration import calibrate_noise
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import effective_multiplier, gaussian_event

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.accountants import Relation

BORDER = 0.5
"""Weight a of the count beside a vector of norm at most 1: a^2 = 1/4 costs the second moment 1.25 in noise."""

MEAN_BORDER = MEAN_SQUARE = 0.3
"""Weights of the count and of the squared norm beside the first mean."""

NOTES = {
    "mean": "mean, count and mean square of the records",
    "subspace": "second moment of the records (principal axes)",
    "radius": "histogram of norms (clip radius)",
    "classes": "count, mean and second moment of every class",
    "clusters": "k-means inside the classes: counts and sums",
    "components": "count, mean and second moment of every component",
    "marginals": "marginals of the binary features",
    "pairs": "pairwise marginals of the binary features",
    "sizes": "histogram of record sizes",
    "items": "item counts",
}
"""Every release of this package, by its name in `shares`, and what the ledger calls it."""

_REPLACE_ONE = {
    "mean": math.sqrt((4.0 + MEAN_SQUARE**2) / (1.0 + MEAN_BORDER**2 + MEAN_SQUARE**2)),
    "subspace": math.sqrt(2.0),
    "radius": math.sqrt(2.0),
    "classes": math.sqrt(2.0),
    "clusters": 2.0 / math.sqrt(1.0 + BORDER**2),
    "components": math.sqrt(2.0),
    "marginals": 2.0 / math.sqrt(1.0 + BORDER**2),
    "pairs": math.sqrt(2.0),
    "sizes": math.sqrt(2.0),
}
"""Replace-one over add/remove sensitivity; 2 where nothing better is known."""


def require_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """The shares of mu^2, normalised to sum 1.

    Raises:
        ValueError: an unknown release, or a share that is not positive and finite.
    """
    for name, share in shares.items():
        if name not in NOTES:
            raise ValueError(f"shares has {name!r}; choose from {', '.join(NOTES)}")
        if not 0 < share < math.inf:
            raise ValueError(f"shares[{name!r}] must be positive and finite, got {share}")
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}


@dataclass(frozen=True)
class Spending:
    """Noise and events of the releases of one fit.

    Arguments:
        scale: multiplier s of the one Gaussian that the releases in `shares` are together, under add/remove.
        shares: share of 1 / s^2 of each release; they sum to 1.
        relation: of the ledger that is charged.
        paid: name and multiplier of releases that have been made already.

    >>> spending = Spending.within(Budget(1.0, 1e-5), {"mean": 0.5, "components": 0.5})
    >>> round(1 / spending.scale, 3), round(spending.multiplier("mean") / spending.scale, 3)
    (0.268, 1.414)
    """

    scale: float
    shares: Mapping[str, float]
    relation: "Relation" = "add_remove"
    paid: tuple[tuple[str, float], ...] = ()

    @classmethod
    def within(
        cls,
        budget: Budget,
        shares: Mapping[str, float],
        relation: "Relation" = "add_remove",
        paid: tuple[tuple[str, float], ...] = (),
    ) -> "Spending":
        """The least noise that keeps all releases, those already paid for included, within the budget.

        Raises:
            ValueError: bad shares, or a budget that no noise in range reaches.
        """
        shares = require_shares(shares)
        scale = calibrate_noise(lambda s: cls(s, shares, relation, paid).total(), budget, relation=relation, high=1e6)
        return cls(scale, shares, relation, paid)

    def continued(self, budget: Budget, done: Iterable[str], shares: Mapping[str, float]) -> "Spending":
        """What is left of the budget after the releases in `done`, for those in `shares`; what will not be made costs nothing.

        Raises:
            ValueError: bad shares, or nothing is left.
        """
        paid = (*self.paid, *((name, self.multiplier(name)) for name in done))
        return Spending.within(budget, shares, self.relation, paid)

    @property
    def whole(self) -> float:
        """Multiplier of the one Gaussian that everything is, what was paid included, under add/remove."""
        return effective_multiplier(self.scale, *(multiplier for _, multiplier in self.paid))

    def multiplier(self, name: str, rounds: int = 1) -> float:
        """Noise std / add-remove sensitivity of each of the `rounds` runs of a release."""
        return self.scale * math.sqrt(rounds / self.shares[name])

    def event(self, name: str, rounds: int = 1) -> "DpEvent":
        """What one of `rounds` runs of the release costs under the relation."""
        return self._event(name, self.multiplier(name, rounds))

    def _event(self, name: str, multiplier: float) -> "DpEvent":
        if self.relation == "replace_one":  # the ledger doubles the sensitivity of every Gaussian
            multiplier *= 2.0 / _REPLACE_ONE.get(name, 2.0)
        return gaussian_event(multiplier)

    def total(self) -> "DpEvent":
        """Everything that the fit releases."""
        paid = [self._event(name, multiplier) for name, multiplier in self.paid]
        return ComposedDpEvent([*paid, *(self.event(name) for name in self.shares)])

    def charge(self, ledger: Ledger, name: str, rounds: int = 1) -> float:
        """Ask the ledger for one of `rounds` runs of a release; returns the noise multiplier it may run with.

        Raises:
            BudgetExceeded: the budget does not allow it; nothing was recorded.
        """
        ledger.charge(self.event(name, rounds), note=NOTES[name])
        return self.multiplier(name, rounds)
