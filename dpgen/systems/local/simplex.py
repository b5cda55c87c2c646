r"""Distributions over n categories: what they may be, and the projection into a box of probabilities.

Distributions on n categories: what is accepted, and in which form the samplers see it.

The nearest distribution in a box, for all f-divergences at once.

For a box $\{l \le Q \le u\}$ with $\sum l \le 1 \le \sum u$ the distribution

$$ Q_j = \min(\max(P_j / C, l_j), u_j), \qquad C \text{ such that } \sum_j Q_j = 1 $$

minimises $D_f(P \| Q)$ over the box for *every* convex f (Husain et al. 2020, eq. 8, has f = t log t and a relative
mollifier). Proof: $Q_j f(P_j / Q_j)$ is convex in $Q_j$, with slope $f(t) - t f'(t)$ at $t = P_j / Q_j$, which does not
increase with t; free coordinates have t = C, those at l have $t \le C$ and so slopes at least as high, those at u
have $t \ge C$: moving mass between any two coordinates cannot gain. No f enters, so total variation is minimised too and needs
no linear programme (Zamanlooy et al. 2025, appendix A.8). Atoms with P = 0 cost $Q_j f(0)$, linear in their mass: when
the positive atoms at u leave mass over, no finite 1/C exists and every way to fill the empty atoms is optimal.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

# -- simplex -----------------------------------------------------------------------------------------------------------


MAX_EPSILON = 700.0
SUM_TOLERANCE = 1e-6  # rows may miss the sum 1 by this much
PRIOR_FLOOR = 1e-6
ROUNDING = 1e-14  # sums this close to 1 are left as they are
_LEAST_ATOM = 1e-100  # far above what e^-eps could take out of the range of doubles


def require_epsilon(epsilon: float) -> float:
    """An epsilon in (0, 700]: beyond, e^eps leaves the range of doubles.

    Raises:
        ValueError: it is not.
    """
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon <= MAX_EPSILON:
        raise ValueError(f"epsilon is {epsilon!r}; it must be a number in (0, {MAX_EPSILON:g}] nats")
    return float(epsilon)


def distributions(p: Tensor, n: int, *, name: str = "P") -> Tensor:
    """`p` as float64 rows that sum to 1, (n,) or (u, n); sums off by up to 1e-6 are normalised.

    Raises:
        ValueError: wrong shape, NaN, infinite or negative entries, or a sum off by more.
    """
    p = torch.as_tensor(p, dtype=torch.float64).detach()
    if p.ndim not in (1, 2) or p.shape[-1] != n:
        raise ValueError(f"{name} has shape {tuple(p.shape)}; it must be ({n},) or (u, {n}), one column per public category")
    if p.numel() == 0:
        return p.clone()
    least, total = float(p.min()), p.sum(-1, keepdim=True)
    if not least >= 0:
        raise ValueError(f"{name} has an entry {least!r}; entries must be numbers >= 0")
    worst = float((total - 1).abs().max())
    if not worst <= SUM_TOLERANCE:
        raise ValueError(f"{name} has a row whose sum is off 1 by {worst:.3g}; it must be within {SUM_TOLERANCE:g}")
    return p / total


def public_prior(prior: Tensor | int, *, floor: float = PRIOR_FLOOR) -> Tensor:
    r"""The public prior q (n,) that the samplers use; an int n stands for the uniform one.

    An atom that is 0 (or below 1e-100) would forbid every user a category, so it is raised to floor / n and the rest is
    scaled down by the same mass, with a warning.

    Raises:
        ValueError: n < 2, a floor outside (0, 1), or what `distributions` refuses.

    >>> public_prior(4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    if not 0 < floor < 1:
        raise ValueError(f"floor is {floor!r}; it must lie in (0, 1)")
    given = _given(prior)
    n = given.numel()
    q = distributions(given, n, name="prior")
    empty = q < _LEAST_ATOM
    count = int(empty.sum())
    if not count:
        return given if math.fabs(float(given.sum()) - 1) <= ROUNDING else q
    message = f"{raised_atoms(count, n, floor)}; pass a smoothed prior or another floor if that is not meant"
    # Without a place in the code: it is about the data, and a line of Python beside it explains nothing.
    warnings.warn_explicit(message, UserWarning, filename="prior", lineno=0)
    return torch.where(empty, floor / n, q * (1 - count * floor / n))


def zero_atoms(prior: Tensor | int) -> int:
    """Number of atoms of a prior that `public_prior` raises to its floor.

    Raises:
        ValueError: what `public_prior` refuses.

    >>> zero_atoms(torch.tensor([0.0, 1.0]))
    1
    """
    given = _given(prior)
    return int((distributions(given, given.numel(), name="prior") < _LEAST_ATOM).sum())


def raised_atoms(count: int, n: int, floor: float) -> str:
    """What has been done to the prior, for warnings and statements."""
    return (
        f"{count} of {n} atoms of the prior are 0: they are raised to {floor:g}/n = {floor / n:.3g} and the other atoms "
        f"scaled by {1 - count * floor / n:.9g}"
    )


def _given(prior: Tensor | int) -> Tensor:
    """A copy of the prior in float64, its shape checked."""
    if isinstance(prior, bool):
        raise ValueError(f"prior is {prior!r}; it must be a distribution (n,) or a number of categories n >= 2")
    if isinstance(prior, int):
        prior = torch.full((max(prior, 0),), 1.0 / max(prior, 1), dtype=torch.float64)
    prior = torch.as_tensor(prior)
    if prior.ndim != 1 or prior.numel() < 2:
        raise ValueError(f"prior has shape {tuple(prior.shape)}; it must be (n,) with n >= 2 categories")
    return prior.detach().to("cpu", torch.float64, copy=True)


# -- box projection ----------------------------------------------------------------------------------------------------


_STEPS = 300
_LEAST = 1e-300  # probabilities below it are treated as 0: u / P stays finite
_CLOSE = 4e-16
_PATIENCE = 12
_WIDE = 4096
_EXACT = 1e-13  # what a row's sum may miss 1 by


def project_to_box(p: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Nearest rows (u, n) to `p` (u, n) in the box lower <= Q <= upper, both (n,), Q summing to 1 to rounding error.

    Draws follow Q / sum(Q), so privacy asks for both, entries in the box and the sum. Neither hangs on the accuracy of C:
    entries are clipped last, and a row whose sum misses 1 by more than 1e-13 is moved within the box until it does not.
    The solver keeps a bracket of 1/C and takes Newton steps on the piecewise linear sum, geometric bisection where they
    leave the bracket or are slow; sums are of positive terms only, so 60 decades of P cost no accuracy.

    Arguments:
        p: float64 >= 0, each row with a positive entry; a positive factor on a row changes nothing.
    """
    p = torch.where(p >= _LEAST, p, 0.0)
    seen = p > 0
    at_most = torch.where(seen, upper, lower).sum(1)
    result = torch.empty_like(p)
    full = at_most <= 1
    if bool(full.any()):
        result[full] = _filled(seen[full], lower, upper)
    open_rows = (~full).nonzero()[:, 0]
    if open_rows.numel():
        rest = p if open_rows.numel() == p.shape[0] else p[open_rows]
        result[open_rows] = torch.clamp(rest * _inverse_scale(rest, lower, upper)[:, None], lower, upper)
    off = (result.sum(1) - 1).abs() > _EXACT
    if bool(off.any()):
        result[off] = _moved(result[off], lower, upper)
    return result


def _moved(q: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Rows of the box whose sums are off, moved towards its lower or upper end until they are 1."""
    excess = (q.sum(1) - 1)[:, None]
    down, up = q - lower, (upper.clamp_max(1.0) - q).clamp_min(0.0)
    less = down * (excess / down.sum(1, keepdim=True).clamp_min(_LEAST)).clamp(0, 1)
    more = up * (-excess / up.sum(1, keepdim=True).clamp_min(_LEAST)).clamp(0, 1)
    return torch.clamp(torch.where(excess > 0, q - less, q + more), lower, upper)


def _filled(seen: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Positive atoms at their upper bound, empty ones at l + t (u - l): there is no finite C."""
    least = torch.where(seen, upper, lower)
    room = torch.where(seen, 0.0, upper - lower)
    share = (1 - least.sum(1)) / room.sum(1).clamp_min(_LEAST)
    return least + share.clamp(0, 1)[:, None] * room


def _inverse_scale(p: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """1/C (u,) of rows for which it exists."""
    low = torch.where(p > 0, lower / p, torch.inf).amin(1).clamp_min(_LEAST)
    high = torch.where(p > 0, upper.clamp_max(1.0) / p, 0.0).amax(1).clamp_min(low)
    if p.shape[1] > _WIDE:
        return torch.stack([_wide_row(*row, lower, upper) for row in zip(p, low, high)])
    scale = (1 / p.sum(1)).clamp(low, high)
    result = scale.clone()
    rows = torch.arange(p.shape[0], device=p.device)
    for step in range(_STEPS):
        free = p * scale[:, None]
        clipped = torch.clamp(free, lower, upper)
        result[rows] = scale
        excess, slope = clipped.sum(1) - 1, torch.where(clipped == free, p, 0.0).sum(1)
        low, high, scale, done = _narrowed(low, high, scale, excess, slope, step=step)
        if bool(done.any()):
            keep = ~done
            if not bool(keep.any()):
                break
            p, low, high, scale, rows = (x[keep] for x in (p, low, high, scale, rows))
    return result


def _wide_row(p: Tensor, low: Tensor, high: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """1/C of one long row: atoms whose state the bracket settles are summed once and left out."""
    scale = (1 / p.sum()).clamp(low, high)
    fixed, slope_of_free = torch.zeros_like(scale), torch.zeros_like(scale)
    for step in range(_STEPS):
        free = p * scale
        clipped = torch.clamp(free, lower, upper)
        slope = torch.where(clipped == free, p, 0.0).sum() + slope_of_free
        result, excess = scale, clipped.sum() + fixed + scale * slope_of_free - 1
        low, high, scale, done = _narrowed(low, high, scale, excess, slope, step=step)
        if bool(done):
            break
        if step % 3 == 2:
            least, most = p * low, p * high
            down, up, moving = most <= lower, least >= upper, (least >= lower) & (most <= upper)
            fixed = fixed + torch.where(down, lower, torch.where(up, upper, 0.0)).sum()
            slope_of_free = slope_of_free + torch.where(moving & ~down & ~up, p, 0.0).sum()
            keep = ~(down | up | moving)
            p, lower, upper = p[keep], lower[keep], upper[keep]
    return result


def _narrowed(
    low: Tensor, high: Tensor, scale: Tensor, excess: Tensor, slope: Tensor, *, step: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The bracket with `scale` as an end, the next scale, and whether this one is the solution."""
    low, high = torch.where(excess <= 0, scale, low), torch.where(excess >= 0, scale, high)
    move = torch.where(slope > 0, excess / slope, torch.inf)
    done = (excess.abs() <= _CLOSE) | (move.abs() <= _CLOSE * scale) | (high <= low * (1 + _CLOSE))
    newton = scale - move
    # Newton may cycle, for the sum is neither convex nor concave: bisection in between bounds the number of steps.
    usable = (newton > low) & (newton < high) if step < _PATIENCE or step % 3 else torch.zeros_like(done)
    return low, high, torch.where(usable, newton, low.sqrt() * high.sqrt()), done
