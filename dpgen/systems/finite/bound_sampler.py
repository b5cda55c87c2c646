"""A mechanism bound to users' distributions: private, paid per draw, never saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from dpgen.release import PrivateSampler
from dpgen.systems.finite.simplex import distributions

if TYPE_CHECKING:
    from dpgen.privacy.ledger import Ledger
    from dpgen.privacy.noise import SecureSource
    from dpgen.systems.finite.sampler import FiniteSampler


class BoundSampler(PrivateSampler):
    r"""Draws of a public mechanism for users with distributions P; k draws of each user cost k epsilon.

    The ledger's unit must be one user's whole distribution, under replace_one: one user is one record of it, and users
    are disjoint, so a draw of all of them together costs epsilon once.

    Arguments:
        mechanism: public sampler on n categories.
        p: private distributions (n,) or (u, n).
        ledger: charged with epsilon before each draw.
        note: name of the draws in the ledger.

    Raises:
        ValueError: P is not made of distributions, or the ledger's relation is not replace_one.
    """

    def __init__(self, mechanism: FiniteSampler, p: Tensor, *, ledger: Ledger, note: str) -> None:
        if ledger.relation != "replace_one":
            raise ValueError(f"ledger has the relation {ledger.relation!r}; a local sampler needs 'replace_one'")
        self._p = distributions(p, mechanism.n)
        super().__init__(epsilon=mechanism.epsilon, ledger=ledger, note=note)
        self.mechanism = mechanism

    def _draw(self, k: int, source: SecureSource) -> Tensor:
        return self.mechanism.sample(self._p, k=k, source=source)
