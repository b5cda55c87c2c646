"""Worst-case neighbours for every system, and what an adversary sees of the fits on them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from dpgen.auditing.options import AuditJob
from dpgen.containers import in_memory
from dpgen.data import Columns, LinkedTables, Points, Records, Table, Users, load_linked
from dpgen.discretized import DiscretizedColumn
from dpgen.privacy.curator import Curator
from dpgen.release import PublicModel
from dpgen.runtime import quiet_runtime, quiet_training
from dpgen.schema import Schema
from dpgen.systems.mbde.plan import DrawPlan
from dpgen.systems.registry import systems

_RECORDS, _BITS = 40, 4
_VALUES, _GRID = 60, 64
_POINTS, _CLOSE = 20, 1e-3
_CATEGORIES = 4
_ROWS = 4  # of a person

Numbers = npt.NDArray[np.float64]


class Pair(NamedTuple):
    """Two neighbouring data sets, in words and in full."""

    description: str
    first: Any
    second: Any


# -- pairs -----------------------------------------------------------------------------------------------------------


def records_pair(relation: str, copies: int = 1) -> Pair:
    """Records of all zeros or all ones in equal parts, and `copies` more of ones; or of ones instead of zeros."""
    x = (torch.arange(_RECORDS) % 2)[:, None].expand(_RECORDS, _BITS).to(torch.uint8)
    ones, zeros = (torch.full((copies, _BITS), bit, dtype=torch.uint8) for bit in (1, 0))
    first = Records("neighbours", torch.cat([x, ones]), ones)
    if relation == "replace_one":
        return Pair("one record of zeros becomes ones", first, Records("neighbours", torch.cat([x, zeros]), ones))
    return Pair("one record of ones, or not", first, Records("neighbours", x, ones))


def table_pair(relation: str, copies: int = 1) -> Pair:
    """Rows with one answer to all questions, half of them yes; one row of yes more, or one of yes in place of no."""
    answers = {"type": "string", "constraints": {"required": True, "enum": ["no", "yes"]}, "dpgen:source": "public"}
    schema = Schema.from_descriptor({"fields": [{"name": f"question {c}", **answers} for c in range(_BITS)]})
    codes = (torch.arange(_RECORDS) % 2)[:, None].expand(_RECORDS, _BITS)
    yes, no = (torch.full((copies, _BITS), code) for code in (1, 0))
    first = Table("neighbours", torch.cat([codes, yes]), schema, yes)
    if relation == "replace_one":
        return Pair("one row of no becomes yes", first, Table("neighbours", torch.cat([codes, no]), schema, yes))
    return Pair("one row of yes, or not", first, Table("neighbours", codes, schema, yes))


def linked_pair(relation: str) -> Pair:
    """People with m rows and one answer to all questions, half of them yes; one of yes more, or one of yes in place of no."""
    answer = {"type": "string", "constraints": {"required": True, "enum": ["no", "yes"]}}
    schema = {"fields": [{"name": "answer", **answer}]}
    options: dict[str, Any] = {"person": "person", "max_rows": _ROWS, "test_fraction": 0.0}

    def tables(*more: bool) -> LinkedTables:
        answers = np.array([i % 2 == 0 for i in range(_RECORDS)] + list(more))
        people, rows = (pd.DataFrame({"person": np.repeat(np.arange(len(answers)), k)}) for k in (1, _ROWS))
        both = [in_memory(t.assign(answer=np.where(answers[t["person"]], "yes", "no"))) for t in (people, rows)]
        both[0].table, both[1].table = "people", "rows"
        return load_linked(path=both[1], people_path=both[0], schema=schema, people_schema=schema, **options)

    if relation == "replace_one":
        return Pair(f"a person with {_ROWS} rows of yes has no in all of them", tables(True), tables(False))
    return Pair(f"a person with {_ROWS} rows of yes, or not", tables(True), tables())


def columns_pair(relation: str, copies: int = 1) -> Pair:
    """All values at the upper end of the grid, and one record at the lower end, which moves all counts below it."""
    domain = DiscretizedColumn.integers(_GRID)

    def columns(*extra: int) -> Columns:
        values = np.array([_GRID - 1] * _VALUES + list(extra) * copies, np.int64)
        return Columns("neighbours", {"x": values}, {"x": domain})

    if relation == "replace_one":
        return Pair("one value at the other end", columns(0), columns(_GRID - 1))
    return Pair("one value at the other end, or not", columns(0), columns())


def _points(x: Tensor) -> Points:
    return Points("neighbours", x, x[:2], bounds=torch.tensor([[0.0, 1.0]], dtype=torch.float64))


def _near() -> Tensor:
    return torch.linspace(0.0, _CLOSE, _POINTS, dtype=torch.float64)[:, None]


def whole_points_pair() -> Pair:
    """All points at one end of a box, and all at the other."""
    return Pair("all points at one end or at the other", _points(1 - _near()), _points(_near()))


def points_pair(relation: str, copies: int = 1) -> Pair:
    """All points at one end of a box, but for one in the middle."""
    near, far = _near(), torch.full((copies, 1), 0.5, dtype=torch.float64)
    first = _points(torch.cat([near, far]))
    if relation == "replace_one":
        return Pair("one point in the middle", first, _points(torch.cat([near, near[:1].expand(copies, 1)])))
    return Pair("one point in the middle, or not", first, _points(near))


def users_pair(users: int) -> Pair:
    """Users who all hold the first category, or all the last: draws of users are independent, so each is a trial."""

    def holding(category: int) -> Users:
        counts = torch.zeros(users, _CATEGORIES, dtype=torch.float64)
        counts[:, category] = 1.0
        names = tuple(f"user {i}" for i in range(users))
        return Users("neighbours", counts, names, tuple(f"category {j}" for j in range(_CATEGORIES)))

    return Pair("a user of one category or of another", holding(0), holding(_CATEGORIES - 1))


def by_draw(job: AuditJob) -> bool:
    """Whether the trials of a fit are draws from one data set, each at its own price."""
    return systems()[job.model].kinds[0] == "points" and isinstance(job.plan, DrawPlan)


def pair_of(job: AuditJob, trials: int) -> Pair:
    """The neighbours that are worst for the system's kind of data and unit of privacy: people have all equal rows."""
    kind, relation, copies = systems()[job.model].kinds[0], str(job.plan.open_ledger().relation), job.plan.rows
    if kind == "users":
        return users_pair(trials)
    if kind == "points":
        return whole_points_pair() if by_draw(job) else points_pair(relation, copies)
    if kind == "linked":
        return linked_pair(relation)
    return {"records": records_pair, "table": table_pair, "columns": columns_pair}[kind](relation, copies)


# -- releases ----------------------------------------------------------------------------------------------------------


def released(job: AuditJob, side: int, trials: int) -> tuple[Numbers, float]:
    """Statistics (trials, a) of releases from one of the two data sets, and the epsilon that is claimed for one of them."""
    pair, plan, price = pair_of(job, trials), job.plan, 1
    found: list[Tensor] = []
    data, system = (pair.first, pair.second)[side], systems()[job.model]
    if by_draw(job):
        price, plan = trials, replace(plan, epsilon=plan.per_draw * trials, draws=trials)
    while len(found) < trials:
        with TemporaryDirectory() as directory, quiet_training():
            runtime, curator = quiet_runtime(Path(directory), job.options.seed), Curator(plan.open_ledger())
            release = system.fit(data, plan=plan, config=job.config, curator=curator, runtime=runtime)
        found += _numbers(release) if isinstance(release, PublicModel) else _draws(release)
    return pad_sequence(found, batch_first=True).numpy(), release.statement.epsilon / price


def _numbers(release: PublicModel) -> list[Tensor]:
    """All numbers of a released model: one trial."""
    tensors = release.tensors()
    return [torch.cat([tensors[name].double().reshape(-1) for name in sorted(tensors)]).nan_to_num(0.0, 1e9, -1e9)]


def _draws(release: Any) -> list[Tensor]:
    """The draws themselves, each of them a trial, or how often each category came for every user."""
    table = release.to_pandas()
    if "user" not in table:
        return list(torch.tensor(table.to_numpy(np.float64)))
    answers = torch.tensor([[value == f"category {j}" for j in range(_CATEGORIES)] for value in table["category"]])
    return list(answers.double().reshape(-1, int(table["draw"].max()) + 1, _CATEGORIES).sum(1))


def joined(*sides: Sequence[Numbers]) -> tuple[Tensor, ...]:
    """Statistics (trials, a) of each side from those of its parts, with zeros where a model has fewer numbers."""
    width = max(part.shape[1] for side in sides for part in side)
    return tuple(torch.cat([pad(torch.from_numpy(part), (0, width - part.shape[1])) for part in side]) for side in sides)


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
