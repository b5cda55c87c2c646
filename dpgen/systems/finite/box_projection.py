r"""The nearest distribution in a box, for all f-divergences at once.

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

import torch
from torch import Tensor

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
