"""A prior measured on the private users themselves, by a Laplace histogram that pays for it."""

import math

import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.local.simplex import SUM_TOLERANCE

PRIVATE_ORIGIN = "private histogram"
"""``prior_origin`` of data whose prior is to be measured on the users."""

ASSUMPTION = (
    "the prior was measured on the users' distributions by a trusted curator (Laplace histogram): "
    "for this part the collector is trusted, for the draws it is not"
)
"""What a statement has to say when `private_prior` was used."""

NOTE = "prior: Laplace histogram of the users' distributions"

UNIT = 2**24
"""Parts that one user's probability mass is divided into: integers, so that the noise is exact."""


def private_prior(distributions: Tensor, *, epsilon: float, curator: Curator) -> Tensor:
    r"""The average user's distribution with Laplace noise; epsilon-private for a whole user.

    .. math:: h_j = \sum_u \lfloor 2^{24} P_{uj} \rfloor + Z_j, \quad P(Z_j = z) \propto e^{-|z| \epsilon / \Delta},
              \quad q_j \propto \max(h_j, \Delta / \epsilon)

    A user adds at most :math:`2^{24}` units, so the L1 sensitivity is :math:`\Delta = 2^{24}` under add/remove-one and
    :math:`2 \cdot 2^{24}` under replace-one (Dwork et al. 2006; noise on integers: Ghosh et al. 2009). The floor is the
    noise scale, which is public: a smaller count cannot be told from noise, and a prior atom of zero would forbid a
    category. Floor and normalisation are post-processing. Costs add up: a user pays this epsilon and that of the draws.

    Arguments:
        distributions: P, rows >= 0 that sum to 1, or to 0 for a user who has nothing to say, shape (u, n).
        epsilon: in nats; below about 3.4e-5 the noise has no exact sampler.
        curator: charges; its relation decides the sensitivity.

    Returns:
        prior (n,), float64, > 0, sums to 1.

    Raises:
        ValueError: epsilon out of range, or rows that are no distributions.
        BudgetExceeded: the ledger refuses; nothing was measured.
    """
    scale = noise_scale(epsilon, relation=curator.relation)
    noisy = curator.laplace(NOTE, histogram(distributions), epsilon)
    floored = noisy.to(torch.float64).clamp_min(scale)
    return floored / floored.sum()


def noise_scale(epsilon: float, *, relation: str) -> float:
    """Scale of the noise in units, and the floor of the noisy counts.

    Example:
        >>> noise_scale(1.0, relation="replace_one") / UNIT
        2.0...
    """
    least = 2 * UNIT / 1e12
    if not least <= epsilon < math.inf:
        raise ValueError(f"prior_epsilon is {epsilon!r}: it must be a finite number >= {least:.2g}")
    sensitivity = {"add_remove": UNIT, "replace_one": 2 * UNIT}[relation]
    return sensitivity / epsilon


def histogram(distributions: Tensor) -> BoundedSum:
    """Column sums (n,) of the users' distributions (u, n), in whole units.

    A user adds at most `UNIT` units, whatever the row; two users who share no category are `2 UNIT` apart.

    Raises:
        ValueError: rows that are no distributions.
    """
    return BoundedSum(_units(distributions).sum(0), float(UNIT), "units of probability", norm="l1")


def _units(distributions: Tensor) -> Tensor:
    values = distributions.detach().to("cpu", torch.float64)
    if values.ndim != 2 or not values.shape[1]:
        raise ValueError(f"distributions have shape {tuple(values.shape)}: it must be (users, categories)")
    empty = (values == 0).all(1)
    wrong = ~(torch.isfinite(values) & (values >= 0)).all(1) | ((values.sum(1) - 1).abs() > SUM_TOLERANCE) & ~empty
    if bool(wrong.any()):
        raise ValueError(f"distributions have a row ({int(wrong.nonzero()[0]) + 1}) that is not >= 0 with sum 1 within 1e-6")
    # Shrunk by more than a row's sum may exceed 1: what one user adds is at most UNIT, exactly, after rounding down.
    return (values * (UNIT * (1 - 2 * SUM_TOLERANCE))).floor().to(torch.int64)
