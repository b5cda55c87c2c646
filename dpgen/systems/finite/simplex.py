"""Distributions on n categories: what is accepted, and in which form the samplers see it."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

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
