r"""What a Gaussian fit pays, and for what: one declared Gaussian, spent in parts.

Every release is a Gaussian mechanism, so a fit is one Gaussian of multiplier s, which the plan declares before private data
are touched; release i gets a share :math:`f_i` of :math:`1 / s^2`: :math:`\sigma_i = s / \sqrt{f_i}`, and
:math:`\sum_i 1 / \sigma_i^2 = 1 / s^2` (Dong, Roth, Su 2022, Corollary 3.3). Shares may be chosen in the light of what has
been released: Gaussian differential privacy composes fully adaptively (Smith, Thakurta 2022). :math:`\sigma_i` is noise std /
sensitivity under add/remove, and twice that under replace-one (where the ledger doubles every Gaussian); sums know both.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.mechanisms import effective_multiplier, gaussian_event

BORDER = 0.5
"""Weight a of the count beside a vector of norm at most 1: a^2 = 1/4 costs the second moment 1.25 in noise."""

MEAN_BORDER = MEAN_SQUARE = 0.3
"""Weights of the count and of the squared norm beside the first mean."""

WHOLE = "Gaussian fit: all its noisy sums together"
"""What the ledger calls the one Gaussian, with its multiplier: several fits may share a ledger."""

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

_PRICED = 1.0 + 1e-8  # the ledger takes a divisible Gaussian to be larger by what rounding of its parts may add


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


class Noisy(NamedTuple):
    """Released sums, and the standard deviation of the noise of every entry."""

    values: Tensor
    noise_std: float


class Spending:
    """The Gaussian of a fit: what is left of it, and who shares that.

    A fit that is run again on the ledger of an interrupted one has what that left.

    Arguments:
        curator: charges and adds noise.
        scale: multiplier s of the Gaussian, declared here.
        shares: share of 1 / s^2 of each release to come; they sum to 1.

    >>> from dpgen.privacy.ledger import Ledger
    >>> curator = Curator(Ledger(Budget(1.0, 1e-5)))
    >>> spending = Spending.within(curator, Budget(1.0, 1e-5), {"mean": 0.5, "components": 0.5})
    >>> round(1 / spending.scale, 3), round(spending.multiplier("mean") / spending.scale, 3)
    (0.268, 1.414)
    """

    def __init__(self, curator: Curator, scale: float, shares: Mapping[str, float]) -> None:
        self.scale = scale
        self._curator, self._shares = curator, require_shares(shares)
        self._note = f"{WHOLE} (multiplier {scale:.10g})"
        self._made: list[float] = []
        curator.declare(Planned(gaussian_event(scale), note=self._note, divisible=True))
        planned = sum(line.count for line in curator.ledger.promised() if line.note == self._note)
        spent = [entry for entry in curator.ledger.entries() if entry.of == self._note]
        # 1 / s^2 of what is left now, and of what was when it was shared out
        self._precision = planned * scale**-2 - sum(entry.count * entry.event.noise_multiplier**-2 for entry in spent)
        self._shared = self._precision

    @classmethod
    def within(cls, curator: Curator, budget: Budget, shares: Mapping[str, float]) -> "Spending":
        """The least noise that keeps all releases within the budget.

        Raises:
            ValueError: bad shares, or a budget that no noise in range reaches.
            BudgetExceeded: the curator's ledger does not allow it.
        """
        relation = curator.relation
        scale = calibrate_noise(lambda s: gaussian_event(s / _PRICED), budget, relation=relation, high=1e6)
        return cls(curator, scale, shares)

    @property
    def mu(self) -> float:
        """1 / multiplier of a moment matrix that had all of the budget; a replaced record moves it by sqrt 2 as much."""
        return (1.0 if self._curator.relation == "add_remove" else math.sqrt(2.0)) / self.scale

    @property
    def whole(self) -> float:
        """Multiplier of the one Gaussian that everything released so far is under add/remove; it holds under both relations."""
        return effective_multiplier(*self._made)

    def share(self, shares: Mapping[str, float]) -> None:
        """Share what is left among the releases to come; what will not be made costs nothing.

        Raises:
            ValueError: bad shares, or nothing is left.
        """
        if not self._precision > 1e-9 * self.scale**-2:
            raise ValueError(f"nothing is left of the Gaussian of multiplier {self.scale:g}")
        self._shares, self._shared = require_shares(shares), self._precision

    def multiplier(self, name: str, rounds: int = 1) -> float:
        """Multiplier of the event of each of the `rounds` runs of a release: what the ledger is charged."""
        return math.sqrt(rounds / (self._shares[name] * self._shared))

    def release(self, name: str, sums: BoundedSum, rounds: int = 1) -> Noisy:
        """One of `rounds` runs of a release, charged before it is made.

        Raises:
            BudgetExceeded: the Gaussian does not hold it any more; nothing was released.
        """
        own = self.multiplier(name, rounds)
        if self._curator.relation == "replace_one":  # events count in units of twice the add/remove sensitivity there
            multiplier = own * sums.under("replace_one") / (2.0 * sums.sensitivity)
        else:
            multiplier = own
        values = self._curator.gaussian(NOTES[name], sums, multiplier, of=self._note)
        self._precision -= own**-2
        self._made.append(multiplier)
        return Noisy(values.double(), multiplier * sums.sensitivity)
