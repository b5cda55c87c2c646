"""Fit of all finite samplers: private draws of every user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import pure_event
from dpgen.release import Draws, PublicModel
from dpgen.statement import PrivacyStatement
from dpgen.systems.local.model import (
    PRIOR_FLOOR,
    FiniteSampler,
    MinimaxSampler,
    ParkSampler,
    ProjectedKernel,
    QInvariantMinimax,
    RandomizedResponse,
    RelativeMollifier,
)
from dpgen.systems.local.plan import LocalConfig, LocalPlan, MollifierConfig
from dpgen.systems.plan import NoOptions
from dpgen.systems.registry import released

if TYPE_CHECKING:
    from dpgen.data import Users
    from dpgen.runtime import Runtime

SAMPLERS: dict[str, Callable[..., FiniteSampler]] = {
    sampler.kind: sampler
    for sampler in (MinimaxSampler, RelativeMollifier, ProjectedKernel, QInvariantMinimax, RandomizedResponse, ParkSampler)
}
"""Samplers by name, all made by `sampler(epsilon, prior)`."""

FACTS = (Fact.LOCAL, Fact.TRUSTED_SAMPLER, Fact.PUBLIC_USERS, Fact.ONE_USER)

_LEAST = 5e-324  # divides nothing by itself

MOST_DRAWS = 2**25
"""Largest table of draws (draws times users) that is made: some gigabytes."""


def fit(
    name: str, data: Users, *, plan: LocalPlan, config: LocalConfig | NoOptions, curator: Curator, runtime: Runtime
) -> Draws:
    """Private draws of all users with the sampler `name` of `SAMPLERS`; a user without events draws from the prior.

    They have columns user, group (if there are groups), draw and category; `origin` is the public mechanism. ValueError is
    raised before anything is charged for a prior or options that draws cannot be made with.
    """
    users, categories = len(data.user_names), data.categories
    if plan.draws * users > MOST_DRAWS:
        raise ValueError(
            f"draws is {plan.draws} for {users} users; draws x users must be <= {MOST_DRAWS}, so draws <= {MOST_DRAWS // users}"
        )
    prior, origin = len(categories) if data.prior is None else data.prior, data.prior_origin
    path = config.reference_path if isinstance(config, LocalConfig) else None
    if path is not None:
        if data.prior is not None:
            raise ValueError(f"reference_path is given and the prior of the data is {origin!r}; give one of them")
        prior, origin = released_prior(released("reference_path", path, curator), categories), "that of a released model"
    options = {"neighbourhood": config.neighbourhood} if isinstance(config, MollifierConfig) else {}
    mechanism = SAMPLERS[name](plan.per_draw, prior, **options)
    note = f"{name} sampler: a draw of every user"
    curator.declare(Planned(pure_event(plan.per_draw), note, plan.draws))
    counts = data.counts.detach().to(torch.float64)
    scaled = counts / counts.amax(1, keepdim=True).clamp_min(_LEAST)
    p = scaled / scaled.sum(1, keepdim=True).clamp_min(_LEAST)
    # Who has no events holds the prior: a distribution like any other, so that nobody sees whose counts are all 0.
    p = torch.where((counts > 0).any(1, keepdim=True), p, mechanism.prior.to(p.device))
    draws = mechanism.bind(p, curator, note=note).sample(plan.draws)
    told = [Fact.NAMED_PRIOR(origin=origin)]
    if mechanism.raised:
        told.append(Fact.RAISED_PRIOR(count=mechanism.raised, n=mechanism.n, floor=PRIOR_FLOOR))
    told.append(Fact.COST_OF_A_USER(draws=plan.draws, per_draw=plan.per_draw, epsilon=plan.epsilon))
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=(*FACTS, *told, Fact.ABSENT_USERS))
    return Draws(_table(data, draws), statement=statement, origin=mechanism)


fit_minimax = partial(fit, "minimax")
fit_mollifier = partial(fit, "mollifier")
fit_projected_kernel = partial(fit, "projected_kernel")
fit_q_invariant = partial(fit, "q_invariant")
fit_randomized_response = partial(fit, "randomized_response")
fit_park = partial(fit, "park")


def _table(data: Users, draws: Tensor) -> pd.DataFrame:
    k = draws.shape[0]
    columns: dict[str, Any] = {"user": np.array(data.user_names, dtype=object).repeat(k)}
    if data.groups is not None:
        columns["group"] = np.array(data.groups, dtype=object).repeat(k)
    columns["draw"] = np.tile(np.arange(k), len(data.user_names))
    columns["category"] = np.array(data.categories, dtype=object)[draws.T.reshape(-1).cpu().numpy()]
    return pd.DataFrame(columns)


# -- the prior of a release ----------------------------------------------------------------------------------------------

_SAMPLES = 2**18


def released_prior(model: PublicModel, categories: Sequence[str]) -> Tensor:
    r"""Distribution (n,) of a released model over the categories of users, float64, all of it above 0.

    .. math:: q_j = \frac{c_j + 1/2}{\sum_i c_i + n/2}

    with :math:`c_j` how many of 2^18 samples (by a public seed) have category j in the column that holds nothing else; or,
    where the categories are columns of 0 and 1 (sites, items), have a 1 there. Values are compared as texts.

    Source: half a count for each, Krichevsky and Trofimov 1981.
    """
    table = model.samples(_SAMPLES, random_state=0).to_pandas()
    table.columns = table.columns.astype(str)
    named = table[list(categories)] if set(categories) <= set(table.columns) else None
    if named is not None and bool(named.isin([0, 1]).all(axis=None)):
        counts = (named == 1).sum().to_numpy(np.float64)
    else:
        fitting = [values for values in (_texts(table[name]) for name in table) if set(values) <= set(categories)]
        if len(fitting) != 1:
            columns, held = (shorten(", ".join(names), 80) for names in (table, categories))
            raise ValueError(
                f"reference_path is a {model.kind} model with the columns {columns}; one of them must hold the categories of "
                f"the users, {held}, or columns of 0 and 1 must be named like them"
            )
        counts = fitting[0].value_counts().reindex(list(categories), fill_value=0).to_numpy(np.float64)
    q = torch.from_numpy(counts) + 0.5
    return q / q.sum()


def _texts(values: pd.Series) -> pd.Series:
    """The values that are there, as texts: 3.0 is written 3, as in files of events."""
    known = values.dropna()
    whole = pd.api.types.is_float_dtype(known) and (known % 1 == 0).all() and (known.abs() < 2**53).all()
    return (known.astype(np.int64) if whole else known).astype(str).str.strip()
