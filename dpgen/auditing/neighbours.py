"""Worst-case neighbours for every system, its fits on them, and what an adversary looks at."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpgen.auditing.releases import CuratorAudit
from dpgen.data import Columns, Points, Records, Table, Users
from dpgen.discretized import DiscretizedColumn
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.release import Draws, PublicModel
from dpgen.runtime import quiet_runtime, quiet_training
from dpgen.schema import Schema
from dpgen.systems.mbde.plan import DrawPlan
from dpgen.systems.registry import systems

_RECORDS, _BITS = 40, 4
_VALUES, _GRID = 60, 64
_POINTS, _CLOSE = 20, 1e-3
_CATEGORIES = 4


@dataclass(frozen=True)
class Pair:
    """Two neighbouring data sets, in words and in full."""

    description: str
    first: Any
    second: Any


# -- pairs -----------------------------------------------------------------------------------------------------------


def records_pair(relation: str, size: int, copies: int = 1) -> Pair:
    """Records of all zeros or all ones in equal parts, and one more of ones; or of ones instead of zeros.

    Arguments:
        size: trials of a fit, for data whose units are trials.
        copies: rows of the one who differs.
    """
    x = (torch.arange(_RECORDS) % 2)[:, None].expand(_RECORDS, _BITS).to(torch.uint8)
    ones, zeros = (torch.full((copies, _BITS), bit, dtype=torch.uint8) for bit in (1, 0))

    def records(*extra: Tensor) -> Records:
        return Records("neighbours", torch.cat([x, *extra]), ones)

    if relation == "replace_one":
        return Pair("one record of zeros becomes ones", records(ones), records(zeros))
    return Pair("one record of ones, or not", records(ones), records())


def table_pair(relation: str, size: int, copies: int = 1) -> Pair:
    """Rows with one answer to all questions, half of them yes, and one more of yes; or of yes instead of no."""
    answers = {"type": "string", "constraints": {"required": True, "enum": ["no", "yes"]}, "dpgen:source": "public"}
    schema = Schema.from_descriptor({"fields": [{"name": f"question {c}", **answers} for c in range(_BITS)]})
    codes = (torch.arange(_RECORDS) % 2)[:, None].expand(_RECORDS, _BITS)
    yes, no = (torch.full((copies, _BITS), code) for code in (1, 0))

    def table(*extra: Tensor) -> Table:
        return Table("neighbours", torch.cat([codes, *extra]), schema, yes)

    if relation == "replace_one":
        return Pair("one row of no becomes yes", table(yes), table(no))
    return Pair("one row of yes, or not", table(yes), table())


def columns_pair(relation: str, size: int, copies: int = 1) -> Pair:
    """All values at the upper end of the grid, and one record at the lower end, which moves all counts below it."""
    domain = DiscretizedColumn.integers(_GRID)

    def columns(*extra: int) -> Columns:
        values = np.array([_GRID - 1] * _VALUES + list(extra) * copies, np.int64)
        return Columns("neighbours", {"x": values}, {"x": domain})

    if relation == "replace_one":
        return Pair("one value at the other end", columns(0), columns(_GRID - 1))
    return Pair("one value at the other end, or not", columns(0), columns())


def points_pair(relation: str, size: int, copies: int = 1, *, whole: bool = True) -> Pair:
    """All points at one end of a box and all at the other; or all but one, in the middle, at the same end."""
    near = torch.linspace(0.0, _CLOSE, _POINTS, dtype=torch.float64)[:, None]
    box = torch.tensor([[0.0, 1.0]], dtype=torch.float64)

    def points(x: Tensor) -> Points:
        return Points("neighbours", x, near[:2], bounds=box)

    if whole:
        return Pair("all points at one end or at the other", points(1 - near), points(near))
    far, here = torch.full((copies, 1), 0.5, dtype=torch.float64), near[:1].expand(copies, 1)
    if relation == "replace_one":
        return Pair("one point in the middle", points(torch.cat([near, far])), points(torch.cat([near, here])))
    return Pair("one point in the middle, or not", points(torch.cat([near, far])), points(near))


def users_pair(relation: str, size: int, copies: int = 1) -> Pair:
    """Users who all hold the first category, or all the last: draws of users are independent, so each is a trial."""

    def users(category: int) -> Users:
        counts = torch.zeros(size, _CATEGORIES, dtype=torch.float64)
        counts[:, category] = 1.0
        names = tuple(f"user {i}" for i in range(size))
        return Users("neighbours", counts, names, tuple(f"category {j}" for j in range(_CATEGORIES)))

    return Pair("a user of one category or of another", users(0), users(_CATEGORIES - 1))


NEIGHBOURS: dict[str, Callable[[str, int, int], Pair]] = {
    "records": records_pair,
    "table": table_pair,
    "columns": columns_pair,
    "points": points_pair,
    "users": users_pair,
}
"""Worst-case neighbours of each kind of data, by relation and number of trials in a fit."""


# -- statistics ------------------------------------------------------------------------------------------------------


def released_numbers(release: PublicModel) -> Tensor:
    """All numbers of a released model."""
    tensors = release.tensors()
    return torch.cat([tensors[name].double().reshape(-1) for name in sorted(tensors)])


def statistics(release: Draws) -> Tensor:
    """Statistics of draws, (trials, a): the draws themselves, or how often each category came for every user."""
    table = release.to_pandas()
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


@dataclass(frozen=True, kw_only=True)
class Game:
    """A distinguishing game: which of two neighbouring data sets did a system see?

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
        return self.by_draw or systems()[self.model].kinds[0] == "users"

    @property
    def by_draw(self) -> bool:
        """Whether the trials of a fit are draws from one data set, each at its own price."""
        return systems()[self.model].kinds[0] == "points" and isinstance(self.plan, DrawPlan)

    def pair(self) -> Pair:
        """The neighbours that are worst for the system's kind of data and unit of privacy: people have all equal rows."""
        kind, relation = systems()[self.model].kinds[0], str(self.plan.open_ledger().relation)
        copies = self.plan.rows
        if kind == "points" and not self.by_draw:
            return points_pair(relation, self.trials, copies, whole=False)
        return NEIGHBOURS[kind](relation, self.trials, copies)

    def fit(self, directory: Path, data: Any, plan: Any, curator: Curator) -> Any:
        """One fit of the system."""
        runtime = quiet_runtime(directory, self.seed)
        return systems()[self.model].fit(data, plan=plan, config=self.config, curator=curator, runtime=runtime)


class _Trials(NamedTuple):
    """Statistics (trials, a) and the epsilon that was claimed for one trial."""

    values: Tensor
    claimed: float


def draw_once(game: Game, data: Any) -> _Trials:
    """One fit of a sampler, which makes all trials: black box."""
    plan, price = game.plan, 1
    if game.by_draw:
        price = game.trials
        plan = replace(plan, epsilon=plan.per_draw * price, draws=price)
    with TemporaryDirectory() as directory, quiet_training():
        release = game.fit(Path(directory), data, plan, Curator(plan.open_ledger()))
    return _Trials(statistics(release), release.statement.epsilon / price)


@contextmanager
def curator_audit(game: Game) -> Iterator[CuratorAudit]:
    """Audit of a system's fits on the game's two data sets; every fit has a reporting ledger of its own."""
    plan, pair = game.plan, game.pair()
    whole = plan.open_ledger()

    def report() -> Ledger:
        return Ledger(None, delta=whole.delta, **whole.terms)

    with TemporaryDirectory() as directory, quiet_training():
        first, second = (partial(game.fit, Path(directory), data, plan) for data in (pair.first, pair.second))
        yield CuratorAudit((first, second), report)


def claim_of(game: Game) -> float:
    """The epsilon that the ledger of one whole fit states."""
    curator = Curator(game.plan.open_ledger())
    with TemporaryDirectory() as directory, quiet_training():
        game.fit(Path(directory), game.pair().first, game.plan, curator)
    return curator.ledger.epsilon()
