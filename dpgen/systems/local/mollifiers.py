r"""Mollifiers: sets of distributions that are all within $e^\epsilon$ of each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dpgen.privacy.mechanisms import require_within
from dpgen.systems.local.model import EPSILON, distributions

_EXCESS = 1e-12


def mollifier_epsilon(members: Tensor) -> float:
    r"""Least $\epsilon$ for which the distributions `members` (m, n) form an $\epsilon$-mollifier; infinite if none.

    It is $\max_x \log \max_i Q_i(x) / \min_i Q_i(x)$ (Husain et al. 2020, definition 1); of a mechanism's rows, the
    epsilon of local differential privacy.

    >>> round(mollifier_epsilon(torch.tensor([[0.5, 0.5], [0.25, 0.75]])), 4)
    0.6931
    """
    members = torch.as_tensor(members).to(torch.float64)
    most, least = members.amax(0), members.amin(0)
    return float(torch.where(most > 0, most.log() - least.log(), 0.0).amax())


def is_mollifier(members: Tensor, epsilon: float) -> bool:
    """Whether the distributions `members` (m, n) are an epsilon-mollifier, to a log-ratio of 1e-12.

    >>> is_mollifier(torch.tensor([[0.5, 0.5], [0.25, 0.75]]), 0.5)
    False
    """
    members = torch.as_tensor(members)
    return (
        mollifier_epsilon(distributions(members, members.shape[-1], name="members"))
        <= require_within("epsilon", epsilon, EPSILON, " nats") + _EXCESS
    )


def in_relative_mollifier(q: Tensor, reference: Tensor, epsilon: float) -> Tensor:
    r"""Whether $e^{-\epsilon/2} \le Q(x) / Q_0(x) \le e^{\epsilon/2}$ for all x (Husain et al. 2020, eq. 5); per row of Q.

    >>> in_relative_mollifier(torch.tensor([0.5, 0.5]), torch.tensor([0.4, 0.6]), 0.5).item()
    True
    """
    reference = distributions(reference, reference.shape[-1], name="reference")
    q = distributions(q, reference.shape[-1], name="Q")
    ratio = torch.where(q == reference, 0.0, q.log() - reference.log())
    return ratio.abs().amax(-1) <= require_within("epsilon", epsilon, EPSILON, " nats") / 2 + _EXCESS


def mixture(members: Tensor, weights: Tensor) -> Tensor:
    r"""The point $\sum_i \alpha_i Q_i$ of the convex hull of `members` (m, n), for weights (m,) or (b, m) in the simplex.

    The hull of an epsilon-mollifier is one again: both sides of the defining inequality are linear.
    """
    members = distributions(members, members.shape[-1], name="members")
    return distributions(weights, members.shape[0], name="weights") @ members


def in_convex_hull(q: Tensor, members: Tensor, *, tolerance: float = 1e-9) -> bool:
    """Whether the distribution `q` (n,) is a mixture of `members` (m, n), by a linear programme; for small m and n.

    >>> in_convex_hull(torch.tensor([0.4, 0.6]), torch.tensor([[0.5, 0.5], [0.25, 0.75]]))
    True
    """
    from scipy.optimize import linprog

    members = distributions(members, members.shape[-1], name="members")
    q = distributions(q, members.shape[-1], name="Q")
    m, n = members.shape
    # Least total slack s with | sum_i alpha_i Q_i - q | <= s entrywise.
    left = torch.cat([members.T, -members.T]).numpy()
    slack = -torch.eye(n, dtype=torch.float64).repeat(2, 1).numpy()
    matrix = torch.cat([torch.from_numpy(left), torch.from_numpy(slack)], 1).numpy()
    bound = torch.cat([q, -q]).numpy()
    total = [[1.0] * m + [0.0] * n]
    found = linprog([0.0] * m + [1.0] * n, A_ub=matrix, b_ub=bound, A_eq=total, b_eq=[1.0], method="highs")
    return bool(found.status == 0 and found.fun <= tolerance)


def mechanism_mollifier(matrix: Tensor) -> Tensor:
    """Vertices (v, m) of M_R, the hull of a mechanism's rows: exactly the distributions of draws of A_R (their eq. 4).

    Rows that are mixtures of the others are left out; for small matrices.
    """
    rows = torch.unique(distributions(matrix, matrix.shape[-1], name="matrix"), dim=0)
    kept = list(range(len(rows)))
    for i in range(len(rows)):
        others = [j for j in kept if j != i]
        if others and in_convex_hull(rows[i], rows[others], tolerance=1e-12):
            kept = others
    return rows[kept]


def mollifier_ranges(epsilon: float) -> dict[str, tuple[float, float]]:
    r"""Values that continuous densities on [0, 1] must ("necessary") or may ("sufficient") take in an epsilon-mollifier.

    A density has the value 1 somewhere, so no other member leaves $(e^{-\epsilon}, e^\epsilon)$; all densities within
    $[e^{-\epsilon/2}, e^{\epsilon/2}]$ form one (Husain et al. 2018, Figure 3).
    """
    e = require_within("epsilon", epsilon, EPSILON, " nats")
    return {"necessary": (math.exp(-e), math.exp(e)), "sufficient": (math.exp(-e / 2), math.exp(e / 2))}


@dataclass(frozen=True)
class _MollifiedDensity:
    """1 + scale (f - 1): a bounded density on [0, 1] brought into the range $[e^{-eps/2}, e^{eps/2}]$."""

    density: Callable[[Tensor], Tensor]
    scale: float
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        """The mollified density at x; values outside the range, from an f that broke its bounds, are clipped."""
        low, high = mollifier_ranges(self.epsilon)["sufficient"]
        return (1 + self.scale * (self.density(x) - 1)).clamp(low, high)


def mollify_density(density: Callable[[Tensor], Tensor], epsilon: float, *, bounds: tuple[float, float]) -> _MollifiedDensity:
    r"""Scale and shift a density f on [0, 1] with m <= f <= M as little as an epsilon-mollifier asks for.

    $$ g = 1 + s (f - 1), \qquad s = \min\left(1, \frac{1 - e^{-\epsilon/2}}{1 - m}, \frac{e^{\epsilon/2} - 1}{M - 1}\right) $$

    g integrates to 1, keeps f's modes, and its derivative is s f' (Husain et al. 2018, Figure 3 right).

    Raises:
        ValueError: epsilon or bounds out of range.

    >>> round(mollify_density(lambda x: 2 * x, 1.0, bounds=(0.0, 2.0)).scale, 4)
    0.3935
    """
    low, high = bounds
    if not 0 <= low <= 1 <= high < math.inf:
        raise ValueError(f"bounds are {bounds!r}; they must be 0 <= m <= 1 <= M, finite, as a density on [0, 1] has mean 1")
    e = require_within("epsilon", epsilon, EPSILON, " nats")
    down = -math.expm1(-e / 2) / (1 - low) if low < 1 else 1.0
    up = math.expm1(e / 2) / (high - 1) if high > 1 else 1.0
    return _MollifiedDensity(density, min(1.0, down, up), e)
