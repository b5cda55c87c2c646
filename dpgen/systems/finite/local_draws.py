"""One fit for all finite samplers: every user's private draws, paid for, with the mechanism that made them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import pandas as pd
import torch
from torch import Tensor

from dpgen.privacy.ledger import Ledger
from dpgen.release import Draws
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.finite.boxes import ParkSampler, ProjectedKernel, QInvariantMinimax, RelativeMollifier
from dpgen.systems.finite.kernels import MinimaxSampler, RandomizedResponse
from dpgen.systems.finite.local_plan import LocalConfig, LocalPlan
from dpgen.systems.finite.private_prior import ASSUMPTION, PRIVATE_ORIGIN, private_prior
from dpgen.systems.finite.sampler import FiniteSampler

SAMPLERS: dict[str, Callable[..., FiniteSampler]] = {
    sampler.kind: sampler
    for sampler in (MinimaxSampler, RelativeMollifier, ProjectedKernel, QInvariantMinimax, RandomizedResponse, ParkSampler)
}
"""Samplers by name, all made by `sampler(epsilon, prior)`."""

ASSUMPTIONS = (
    "local privacy: each user's draws are covered against everybody who sees them, whatever all other users release; the "
    "program that makes them (here: this machine) sees the users' distributions and must run at the user or be trusted",
    "user names, categories, groups, the prior and the number of draws are public",
    "one user is one row: a person under two names, or in two files or runs, pays once for each",
)


class UserDistributions(Protocol):
    """What `fit` reads of its data."""

    @property
    def counts(self) -> Tensor:
        """Events (u, n) >= 0 of u users over n public categories."""

    @property
    def user_names(self) -> tuple[str, ...]:
        """u names."""

    @property
    def categories(self) -> tuple[str, ...]:
        """n names."""

    @property
    def groups(self) -> tuple[str, ...] | None:
        """The public group of each user, or None."""

    @property
    def prior(self) -> Tensor | None:
        """Public prior (n,), or None: uniform, or to be measured on the users."""

    @property
    def prior_origin(self) -> str:
        """Where the prior comes from, in words."""

    @property
    def skipped(self) -> int:
        """Users left out already, for they have no events."""


def fit(name: str, data: UserDistributions, *, plan: LocalPlan, config: LocalConfig, ledger: Ledger, runtime: Runtime) -> Draws:
    """Private draws of all users with the sampler `name` of `SAMPLERS`; users without events are left out and counted.

    Returns:
        Draws with columns user, group (if there are groups), draw and category; `origin` is the public mechanism.

    Raises:
        ValueError: counts that are negative, not finite or of the wrong shape, no user with events, or a plan whose
            `prior_epsilon` does not fit the data's prior.
        BudgetExceeded: the ledger refuses; nothing was drawn.
    """
    counts = _checked_counts(data)
    active = (counts > 0).any(1)
    if not bool(active.any()):
        raise ValueError(f"counts of all {counts.shape[0]} users are 0; at least one user must have events")
    scaled = counts[active] / counts[active].amax(1, keepdim=True)
    p = scaled / scaled.sum(1, keepdim=True)
    prior, assumptions = _prior(data, p, plan, ledger)
    mechanism = SAMPLERS[name](plan.per_draw, prior, **config.options())
    draws = mechanism.bind(p, ledger, note=f"{name} sampler: a draw of every user").sample(plan.draws)
    skipped = data.skipped + int((~active).sum())
    statement = PrivacyStatement.from_ledger(
        ledger,
        assumptions=(*ASSUMPTIONS, f"the prior is {data.prior_origin}", _composition(plan), *assumptions),
        not_covered=_absent(skipped),
    )
    return Draws(_table(data, active, draws), statement=statement, origin=mechanism)


def _checked_counts(data: UserDistributions) -> Tensor:
    counts = data.counts.detach().to(torch.float64)
    shape = len(data.user_names), len(data.categories)
    if tuple(counts.shape) != shape:
        raise ValueError(f"counts have shape {tuple(counts.shape)}; they must be {shape}, users by categories")
    if counts.numel() and not bool(((counts >= 0) & counts.isfinite()).all()):
        raise ValueError(
            f"counts have entries from {float(counts.min())} to {float(counts.max())}; they must be finite and >= 0"
        )
    return counts


def _prior(data: UserDistributions, p: Tensor, plan: LocalPlan, ledger: Ledger) -> tuple[Tensor | int, tuple[str, ...]]:
    measured = data.prior_origin == PRIVATE_ORIGIN
    if measured != (plan.prior_epsilon is not None):
        raise ValueError(
            f"prior_epsilon is {plan.prior_epsilon!r} and the prior is {data.prior_origin!r}; a prior measured on the private "
            "users needs prior_epsilon > 0, and any other prior must not have it"
        )
    if plan.prior_epsilon is not None:
        return private_prior(p, epsilon=plan.prior_epsilon, ledger=ledger), (ASSUMPTION,)
    return (len(data.categories) if data.prior is None else data.prior), ()


def _composition(plan: LocalPlan) -> str:
    prior = f" + {plan.prior_epsilon:g} for the prior" if plan.prior_epsilon is not None else ""
    return f"one user's total is {plan.draws} x {plan.per_draw:g}{prior} = {plan.epsilon:g}, however many users there are"


def _absent(skipped: int) -> tuple[str, ...]:
    if not skipped:
        return ()
    return (
        f"{skipped} users without events were left out: who they are, and this count, can be seen; the guarantee hides what "
        "a user's events are, not whether there are any",
    )


def _table(data: UserDistributions, active: Tensor, draws: Tensor) -> pd.DataFrame:
    rows = active.nonzero()[:, 0].tolist()
    k = draws.shape[0]
    columns: dict[str, Any] = {"user": [data.user_names[row] for row in rows for _ in range(k)]}
    if data.groups is not None:
        columns["group"] = [data.groups[row] for row in rows for _ in range(k)]
    columns["draw"] = list(range(k)) * len(rows)
    columns["category"] = [data.categories[j] for j in draws.T.reshape(-1).tolist()]
    return pd.DataFrame(columns)


FITS: dict[str, Callable[..., Draws]] = {name: partial(fit, name) for name in SAMPLERS}
"""The fit of each sampler, as the registry wants it."""
