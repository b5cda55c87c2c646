"""Fit of all finite samplers: private draws of every user, and a prior that is measured on the users or read from a release."""

from __future__ import annotations

import math
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
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import pure_event
from dpgen.release import Draws, PublicModel
from dpgen.statement import PrivacyStatement
from dpgen.systems.local.model import PRIOR_FLOOR, SUM_TOLERANCE, FiniteSampler, distributions
from dpgen.systems.local.plan import LocalConfig, LocalPlan, MollifierConfig, PriorlessConfig
from dpgen.systems.local.samplers import (
    MinimaxSampler,
    ParkSampler,
    ProjectedKernel,
    QInvariantMinimax,
    RandomizedResponse,
    RelativeMollifier,
)
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

PRIVATE_ORIGIN = "private histogram"
"""``prior_origin`` of data whose prior is to be measured on the users."""

PRIOR_NOTE = "prior: Laplace histogram of the users' distributions"

UNIT = 2**24
"""Parts that one user's probability mass is divided into: integers, so that the noise is exact."""

_LEAST = 5e-324  # divides nothing by itself

MOST_DRAWS = 2**25
"""Largest table of draws (draws times users) that is made: some gigabytes."""


def fit(
    name: str, data: Users, *, plan: LocalPlan, config: LocalConfig | PriorlessConfig, curator: Curator, runtime: Runtime
) -> Draws:
    """Private draws of all users with the sampler `name` of `SAMPLERS`; a user without events draws from the prior.

    They have columns user, group (if there are groups), draw and category; `origin` is the public mechanism. ValueError is
    raised before anything is charged for counts, a prior or options that draws cannot be made with.
    """
    path = config.reference_path if isinstance(config, LocalConfig) else None
    _require_possible(data, plan, path)
    prior: Tensor | int = len(data.categories) if data.prior is None else data.prior
    if isinstance(config, LocalConfig) and path is not None:
        prior = released_prior(released("reference_path", path, curator), data.categories, column=config.reference_column)
    note, part = f"{name} sampler: a draw of every user", plan.prior_epsilon
    paid = () if part is None else (Planned(pure_event(part), PRIOR_NOTE),)
    curator.declare(*paid, Planned(pure_event(plan.per_draw), note, plan.draws))
    counts = data.counts.detach().to(torch.float64)
    scaled = counts / counts.amax(1, keepdim=True).clamp_min(_LEAST)
    p = scaled / scaled.sum(1, keepdim=True).clamp_min(_LEAST)
    if part is not None:
        prior = private_prior(p, epsilon=part, curator=curator)
    options = {"neighbourhood": config.neighbourhood} if isinstance(config, MollifierConfig) else {}
    mechanism = SAMPLERS[name](plan.per_draw, prior, **options)
    # Who has no events holds the prior: a distribution like any other, so that nobody sees whose counts are all 0.
    p = torch.where((counts > 0).any(1, keepdim=True), p, mechanism.prior.to(p.device))
    draws = mechanism.bind(p, curator, note=note).sample(plan.draws)
    price = "" if part is None else f" + {part:g} for the prior"
    told = [Fact.NAMED_PRIOR(origin=data.prior_origin if path is None else "that of a released model")]
    if isinstance(config, LocalConfig) and mechanism.raised:
        told.append(Fact.RAISED_PRIOR(count=mechanism.raised, n=mechanism.n, floor=PRIOR_FLOOR))
    told.append(Fact.COST_OF_A_USER(draws=plan.draws, per_draw=plan.per_draw, prior=price, epsilon=plan.epsilon))
    facts = (*FACTS, *told, *(() if part is None else (Fact.MEASURED_PRIOR,)), Fact.ABSENT_USERS)
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=facts)
    return Draws(_table(data, draws), statement=statement, origin=mechanism)


fit_minimax = partial(fit, "minimax")
fit_mollifier = partial(fit, "mollifier")
fit_projected_kernel = partial(fit, "projected_kernel")
fit_q_invariant = partial(fit, "q_invariant")
fit_randomized_response = partial(fit, "randomized_response")
fit_park = partial(fit, "park")


def _require_possible(data: Users, plan: LocalPlan, reference_path: str | None) -> None:
    """Data and options that draws can be made with; called before anything is charged."""
    users, n = len(data.user_names), len(data.categories)
    if tuple(data.counts.shape) != (users, n):
        raise ValueError(f"counts have shape {tuple(data.counts.shape)}; they must be {users, n}, users by categories")
    if not bool(((data.counts >= 0) & data.counts.isfinite()).all()):
        raise ValueError("counts must be finite and >= 0")
    if plan.draws * users > MOST_DRAWS:
        raise ValueError(
            f"draws is {plan.draws} for {users} users; draws x users must be <= {MOST_DRAWS}, so draws <= {MOST_DRAWS // users}"
        )
    measured = data.prior_origin == PRIVATE_ORIGIN
    if measured != (plan.prior_epsilon is not None):
        raise ValueError(
            f"prior_epsilon is {plan.prior_epsilon!r} and the prior is {data.prior_origin!r}; a prior measured on the private "
            "users needs prior_epsilon > 0, and any other prior must not have it"
        )
    if plan.prior_epsilon is not None:
        noise_scale(plan.prior_epsilon, relation="replace_one")
    if data.prior is not None and distributions(data.prior, n, name="prior").ndim != 1:
        raise ValueError(f"prior has shape {tuple(data.prior.shape)}; it must be ({n},), one probability per category")
    if reference_path is not None and (data.prior is not None or measured):
        raise ValueError(f"reference_path is given and the prior of the data is {data.prior_origin!r}; give one of them")


def _table(data: Users, draws: Tensor) -> pd.DataFrame:
    k = draws.shape[0]
    columns: dict[str, Any] = {"user": np.array(data.user_names, dtype=object).repeat(k)}
    if data.groups is not None:
        columns["group"] = np.array(data.groups, dtype=object).repeat(k)
    columns["draw"] = np.tile(np.arange(k), len(data.user_names))
    columns["category"] = np.array(data.categories, dtype=object)[draws.T.reshape(-1).cpu().numpy()]
    return pd.DataFrame(columns)


def private_prior(p: Tensor, *, epsilon: float, curator: Curator) -> Tensor:
    r"""The average user's distribution with Laplace noise, prior (n,) > 0; epsilon-private for a whole user.

    .. math:: h_j = \sum_u \lfloor 2^{24} P_{uj} \rfloor + Z_j, \quad P(Z_j = z) \propto e^{-|z| \epsilon / \Delta},
              \quad q_j \propto \max(h_j, \Delta / \epsilon)

    A user adds at most :math:`2^{24}` units, so the L1 sensitivity is :math:`\Delta = 2^{24}` under add/remove and twice that
    under replace-one (noise on integers: Ghosh et al. 2009). The floor is the noise scale, which is public: a prior atom of
    zero would forbid a category. Costs add up: a user pays this epsilon and that of the draws.

    Rows of P (u, n) sum to 1, or to 0 for a user who has nothing to say. Below about 3.4e-5 the noise has no exact sampler.
    """
    scale = noise_scale(epsilon, relation=curator.relation)
    noisy = curator.laplace(PRIOR_NOTE, histogram(p), epsilon)
    floored = noisy.to(torch.float64).clamp_min(scale)
    return floored / floored.sum()


def noise_scale(epsilon: float, *, relation: str) -> float:
    """Scale of the noise in units, and the floor of the noisy counts.

    >>> noise_scale(1.0, relation="replace_one") / UNIT
    2.0...
    """
    least = 2 * UNIT / 1e12
    if not least <= epsilon < math.inf:
        raise ValueError(f"prior_epsilon is {epsilon!r}: it must be a finite number >= {least:.2g}")
    return {"add_remove": UNIT, "replace_one": 2 * UNIT}[relation] / epsilon


def histogram(p: Tensor) -> BoundedSum:
    """Column sums (n,) of the users' distributions (u, n), in whole units: a user adds at most `UNIT`."""
    values = p.detach().to("cpu", torch.float64)
    if values.ndim != 2 or not values.shape[1]:
        raise ValueError(f"distributions have shape {tuple(values.shape)}: it must be (users, categories)")
    empty = (values == 0).all(1)
    wrong = ~(torch.isfinite(values) & (values >= 0)).all(1) | ((values.sum(1) - 1).abs() > SUM_TOLERANCE) & ~empty
    if bool(wrong.any()):
        raise ValueError(f"distributions have a row ({int(wrong.nonzero()[0]) + 1}) that is not >= 0 with sum 1 within 1e-6")
    # Shrunk by more than a row's sum may exceed 1: what one user adds is at most UNIT, exactly, after rounding down.
    units = (values * (UNIT * (1 - 2 * SUM_TOLERANCE))).floor().to(torch.int64)
    return BoundedSum(units.sum(0), float(UNIT), "units of probability", norm="l1")


# -- the prior of a release ----------------------------------------------------------------------------------------------

_SAMPLES = 2**18


def released_prior(model: PublicModel, categories: Sequence[str], *, column: str | None = None) -> Tensor:
    r"""Distribution (n,) of a released model over the categories of users, float64, all of it above 0.

    .. math:: q_j = \frac{c_j + 1/2}{\sum_i c_i + n/2}

    with :math:`c_j` how many of 2^18 samples (by a public seed) have category j in a column; or, where the categories are
    columns of 0 and 1 (sites, items), how many samples have a 1 there. Values are compared as texts.

    `column` None: the columns named like categories, or the only column that holds nothing else.

    Source: half a count for each, Krichevsky and Trofimov 1981.
    """
    table = model.samples(_SAMPLES, random_state=0).to_pandas()
    if column is None and set(categories) <= {str(name) for name in table}:
        counts = np.array([_ones(table, name) for name in categories], dtype=np.float64)
    else:
        values = _texts(table[_column(table, model.kind, categories, column)])
        counts = values.value_counts().reindex(list(categories), fill_value=0).to_numpy(np.float64)
    q = torch.from_numpy(counts) + 0.5
    return q / q.sum()


def _column(table: pd.DataFrame, kind: str, categories: Sequence[str], column: str | None) -> str:
    """The column of these categories."""
    names, held = [str(name) for name in table], f"the categories of the users, {shorten(', '.join(categories), 80)}"
    if column is not None:
        if column not in names:
            raise ValueError(f"reference_column is {column!r}; it must be one of {', '.join(names)}")
        strange = sorted(set(_texts(table[column])) - set(categories))
        if strange:
            raise ValueError(f"reference_column is {column!r}, whose value {strange[0]!r} is none of {held}")
        return column
    found = [name for name in names if set(_texts(table[name])) <= set(categories)]
    if len(found) > 1:
        raise ValueError(f"reference_column is None; choose one of {', '.join(found)}, which all hold categories of the users")
    if not found:
        has = shorten(", ".join(names), 80)
        raise ValueError(
            f"reference_path is a {kind} model with the columns {has}; one of them must hold {held}, or columns of 0 and 1 "
            "must be named like them"
        )
    return found[0]


def _ones(table: pd.DataFrame, name: str) -> float:
    """How many samples have a 1 in a column of 0 and 1."""
    values = table[name]
    if not pd.api.types.is_numeric_dtype(values) or not values.isin([0, 1]).all():
        raise ValueError(f"reference_path has a column {name!r}, named like a category; it must hold 0 and 1 alone")
    return float(values.sum())


def _texts(values: pd.Series) -> pd.Series:
    """The values that are there, as texts: 3.0 is written 3, as in files of events."""
    known = values.dropna()
    whole = pd.api.types.is_float_dtype(known) and (known % 1 == 0).all() and (known.abs() < 2**53).all()
    return (known.astype(np.int64) if whole else known).astype(str).str.strip()
