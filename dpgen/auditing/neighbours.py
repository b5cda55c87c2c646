"""Black-box audit of any system: fits on a worst-case pair of neighbouring data sets, and what to look at in a release."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpgen.data import Columns, Points, Records, Users
from dpgen.discretized import DiscretizedColumn
from dpgen.quiet import quiet_runtime, quiet_training
from dpgen.release import Draws, PublicModel, RecordModel, Release
from dpgen.systems import SYSTEMS
from dpgen.systems.continuous.draw_plan import DrawPlan
from dpgen.systems.ordered.distribution import OrderedDistribution

_RECORDS, _BITS = 400, 4
_VALUES, _GRID = 60, 64
_POINTS, _CLOSE = 20, 1e-3
_CATEGORIES = 4
_SAMPLES = 5000
_MOST_NUMBERS = 128


@dataclass(frozen=True)
class Pair:
    """Two neighbouring data sets, in words and in full."""

    description: str
    first: Any
    second: Any


# -- pairs -----------------------------------------------------------------------------------------------------------


def records_pair(relation: str, size: int) -> Pair:
    """Records of all zeros or all ones in equal parts, and one more of ones; or of ones instead of zeros."""
    x = (torch.arange(_RECORDS) % 2)[:, None].expand(_RECORDS, _BITS).to(torch.uint8)
    ones, zeros = (torch.full((1, _BITS), bit, dtype=torch.uint8) for bit in (1, 0))

    def records(*extra: Tensor) -> Records:
        return Records("neighbours", torch.cat([x, *extra]), ones)

    if relation == "replace_one":
        return Pair("one record of zeros becomes ones", records(ones), records(zeros))
    return Pair("one record of ones, or not", records(ones), records())


def columns_pair(relation: str, size: int) -> Pair:
    """All values at one end of the grid, and one record at the other end."""
    domain = DiscretizedColumn.integers(_GRID)

    def columns(*extra: int) -> Columns:
        values = np.array([0] * _VALUES + list(extra), np.int64)
        return Columns("neighbours", {"x": values}, {"x": domain})

    if relation == "replace_one":
        return Pair("one value at the other end", columns(_GRID - 1), columns(0))
    return Pair("one value at the other end, or not", columns(_GRID - 1), columns())


def points_pair(relation: str, size: int, *, whole: bool = True) -> Pair:
    """All points at one end of a box and all at the other; or all but one at the same end."""
    near = torch.linspace(0.0, _CLOSE, _POINTS, dtype=torch.float64)[:, None]
    box = torch.tensor([[0.0, 1.0]], dtype=torch.float64)

    def points(x: Tensor) -> Points:
        return Points("neighbours", x, near[:2], bounds=box)

    if whole:
        return Pair("all points at one end or at the other", points(1 - near), points(near))
    far, here = torch.ones(1, 1, dtype=torch.float64), near[:1]
    if relation == "replace_one":
        return Pair("one point at the other end", points(torch.cat([near, far])), points(torch.cat([near, here])))
    return Pair("one point at the other end, or not", points(torch.cat([near, far])), points(near))


def users_pair(relation: str, size: int) -> Pair:
    """Users who all hold the first category, or all the last: draws of users are independent, so each is a trial."""

    def users(category: int) -> Users:
        counts = torch.zeros(size, _CATEGORIES, dtype=torch.float64)
        counts[:, category] = 1.0
        names = tuple(f"user {i}" for i in range(size))
        return Users("neighbours", counts, names, tuple(f"category {j}" for j in range(_CATEGORIES)))

    return Pair("a user of one category or of another", users(0), users(_CATEGORIES - 1))


NEIGHBOURS: dict[str, Callable[[str, int], Pair]] = {
    "records": records_pair,
    "columns": columns_pair,
    "points": points_pair,
    "users": users_pair,
}
"""Worst-case neighbours of each kind of data, by relation and number of trials in a fit."""


# -- what to look at -------------------------------------------------------------------------------------------------


def statistics(release: Release) -> Tensor:
    """What an adversary looks at, (trials, a): numbers of a released model, or the draws of every trial.

    Raises:
        ValueError: a kind of release that the audit does not know.
    """
    if isinstance(release, Draws):
        return _of_draws(release)
    if isinstance(release, OrderedDistribution):
        places = np.linspace(1, _GRID - 1, 7).astype(np.int64)
        return torch.from_numpy(np.concatenate([cdf.below(places) for cdf in release.cdfs.values()]))[None]
    if isinstance(release, RecordModel):
        numbers, size = _numbers(release), float(release.size)
        return torch.cat([torch.tensor([size]), numbers, size * numbers])[None]
    if isinstance(release, PublicModel):
        return _tensors(release)[None]
    raise ValueError(f"release is a {type(release).__name__}: the audit knows public models and draws")


def _numbers(model: RecordModel) -> Tensor:
    if set(model.tensors()) <= {"probabilities", "weights", "counts"}:
        return _tensors(model)
    return model.sample(_SAMPLES, seed=0).x.double().mean(0)


def _tensors(model: PublicModel) -> Tensor:
    return torch.cat([value.double().reshape(-1) for value in model.tensors().values()])[:_MOST_NUMBERS]


def _of_draws(release: Draws) -> Tensor:
    table = release.table
    if "user" not in table:
        return torch.tensor(table.to_numpy(np.float64))
    names = [f"category {j}" for j in range(_CATEGORIES)]
    answers = torch.from_numpy(np.stack([table["category"].to_numpy() == name for name in names], 1)).double()
    draws = int(table["draw"].max()) + 1
    return answers.reshape(-1, draws, len(names)).sum(1)


def with_direction(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Both (m, a) with one more column: Fisher's linear discriminant, found on the even rows, which are not counted.

    Several weak signs of a record's presence are one strong sign together.
    """
    a, b = first[0::2], second[0::2]
    scale = torch.cat([a, b]).std(0).clamp_min(1e-12)
    spread = (torch.cov((a / scale).T).reshape(len(scale), -1) + torch.cov((b / scale).T).reshape(len(scale), -1)) / 2
    ridge = 1e-3 * torch.eye(len(scale), dtype=torch.float64)
    weights = torch.linalg.solve(spread + ridge, (a.mean(0) - b.mean(0)) / scale) / scale
    return torch.cat([first, (first @ weights)[:, None]], 1), torch.cat([second, (second @ weights)[:, None]], 1)


# -- fits ------------------------------------------------------------------------------------------------------------


class Trials(NamedTuple):
    """Statistics (trials, a) of one fit and the epsilon that it claims for one trial."""

    values: Tensor
    claimed: float


@dataclass(frozen=True, kw_only=True)
class BlackBoxAudit:
    """One question to a system of the registry: does it keep the epsilon that its statement claims?

    Samplers of single draws, and of users, make all trials in one fit; of everything else a fit is one trial.

    Arguments:
        model: name of the system.
        plan: what one fit, or one trial of a sampler, may spend.
        config: of the system.
        trials: of each data set.
        seed: public.
    """

    model: str
    plan: Any
    config: Any
    trials: int
    seed: int = 0

    @property
    def at_once(self) -> bool:
        """Whether one fit makes all trials."""
        return self.by_draw or SYSTEMS[self.model].kinds[0] == "users"

    @property
    def by_draw(self) -> bool:
        """Whether the trials of a fit are draws from one data set, each at its own price."""
        return SYSTEMS[self.model].kinds[0] == "points" and isinstance(self.plan, DrawPlan)

    def pair(self) -> Pair:
        """The neighbours that are worst for the system's kind of data and unit of privacy."""
        kind, relation = SYSTEMS[self.model].kinds[0], str(self.plan.open_ledger().relation)
        if kind == "points" and not self.by_draw:
            return points_pair(relation, self.trials, whole=False)
        return NEIGHBOURS[kind](relation, self.trials)


def fit_once(audit: BlackBoxAudit, data: Any) -> Trials:
    """One fit of the system, and what it gives away."""
    plan, price = audit.plan, 1
    if audit.by_draw:
        price = audit.trials
        plan = replace(plan, epsilon=plan.per_draw * price, draws=price)
    with TemporaryDirectory() as directory, quiet_training():
        runtime = quiet_runtime(Path(directory), audit.seed)
        release = SYSTEMS[audit.model].fit(data, plan=plan, config=audit.config, ledger=plan.open_ledger(), runtime=runtime)
    return Trials(statistics(release), release.statement.epsilon / price)
