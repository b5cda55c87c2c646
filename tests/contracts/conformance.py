r"""One table of every release: what a record can change of it, and what the ledger is charged for it.

A file `rows_<system>.py` beside this one holds `ROWS: list[Row]`; the tests of `test_conformance.py` walk all of them. A row is
one release, named by the notes that the ledger is charged under (patterns of `fnmatch`: `"* quantiles"`), and one of

`SumRow`
    noise is added to sums over records. `sums(data)` calls the system's own adding code and returns its `BoundedSum`.
    Random neighbouring pairs never differ by more than `sums.under(relation)`; the stated pair `tight(relation)` reaches
    99 % of it under both relations (kind "exact"), or the share `reaches` that the row states instead (kind "bound", with
    `why` it is no more). Whole numbers are compared exactly.
`LawRow`
    a choice, an answer or a draw whose law is known. `law(data, relation)` returns `Law(event, log_probabilities)`: what
    the system charges under the relation, and the exact log-probabilities (or log-densities at fixed points) of all
    outcomes in a fixed order. For pure events the largest \|log p / p'\| is at most epsilon, and the stated pair reaches
    the share `reaches` of it (kind "loss range"). Otherwise the row gives epsilons `at` which the hockey-stick divergence
    of the two laws is at most the event's delta, both ways, and the stated pair reaches the share `reaches` of it at one
    of them (kind "trade-off curve").

Data sets are whatever the system's code takes; `neighbours(rng, relation)` makes a random pair of them, and
`pairs_of(rows)` does so from a function that makes n random records, for data that are arrays with a record in each row.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import torch
from dp_accounting import DpEvent
from torch import Tensor

from dpgen.privacy import accountants
from dpgen.privacy.accountants import delta
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import Relation, UnsupportedEvent, for_rows

RELATIONS: tuple[Relation, ...] = get_args(Relation)
SLACK = 1e-9
"""Relative; what float64 may lose on the way to a number that is compared."""

PAIRS = int(os.environ.get("DPGEN_PAIRS", "60"))
"""Random pairs of a row that are tried at most: the stated pair is what reaches the sensitivity; nightly there are more."""

Pair = tuple[Any, Any]
Neighbours = Callable[[np.random.Generator, Relation], Pair]


@dataclass(frozen=True, kw_only=True)
class _Extra:
    relations: tuple[Relation, ...] = RELATIONS  # under which the system works at all
    reaches: float = 0.99  # share of what is stated that the tight pair reaches
    why: str = ""  # it reaches less than 99 %
    pairs: int = 300  # random ones that are tried under each relation


@dataclass(frozen=True)
class Row(_Extra, ABC):
    """One release: the `system` it belongs to, the `notes` it is charged under, a random pair and one that is tight."""

    system: str
    notes: tuple[str, ...]
    neighbours: Neighbours
    tight: Callable[[Relation], Pair]

    def __post_init__(self) -> None:
        if not (0 < self.reaches <= 1 and (self.reaches >= 0.99 or self.why)):
            raise ValueError(f"{self}: reaches is {self.reaches}; below .99 the row must say why")

    def __str__(self) -> str:
        return f"{self.system}, {self.notes[0]}"

    def covers(self, note: str) -> bool:
        """Whether the release is charged under this note."""
        return any(fnmatchcase(note, pattern) for pattern in self.notes)

    @abstractmethod
    def excess(self, first: Any, second: Any, relation: Relation) -> tuple[float, str]:
        """The difference of two data sets over what is stated, and both in words."""


@dataclass(frozen=True)
class SumRow(Row):
    """Noise on sums; see the module."""

    sums: Callable[[Any], BoundedSum]

    @property
    def kind(self) -> str:
        """As DESIGN's table calls it."""
        return "exact" if self.reaches >= 0.99 else "bound"

    def excess(self, first: Any, second: Any, relation: Relation) -> tuple[float, str]:
        one, two = self.sums(first), self.sums(second)
        stated, other = one.under(relation), two.under(relation)
        assert stated == other, f"{self}: the sensitivity depends on the data, {stated} and {other} ({relation})"
        assert (one.step, one.norm, one.values.dtype) == (two.step, two.norm, two.values.dtype), f"{self}: another grid"
        moved = distance(one, two)
        return moved / stated, f"a neighbour moves the sums by {moved:.6g}, stated is {stated:.6g} ({relation})"


class Law(NamedTuple):
    """What a choice costs, and the log-probabilities of its outcomes, -inf for those that cannot be."""

    event: DpEvent
    log_probabilities: npt.NDArray[np.float64]


@dataclass(frozen=True)
class LawRow(Row):
    """A choice, an answer or a draw whose law is known; see the module."""

    law: Callable[[Any, Relation], Law]
    at: Sequence[float] = ()  # epsilons where an event that is not pure is compared

    @property
    def kind(self) -> str:
        """As DESIGN's table calls it."""
        return "trade-off curve" if self.at else "loss range"

    def excess(self, first: Any, second: Any, relation: Relation) -> tuple[float, str]:
        one, two = self.law(first, relation), self.law(second, relation)
        assert one.event == two.event, f"{self}: the price depends on the data, {one.event} and {two.event} ({relation})"
        if not self.at:
            stated, moved = pure_epsilon(one.event), log_ratio(one.log_probabilities, two.log_probabilities)
            return moved / stated, f"a neighbour moves a log-probability by {moved:.6g}, stated is {stated:.6g} ({relation})"
        worst = (0.0, "")
        for epsilon in self.at:
            stated = delta(one.event, epsilon, relation=relation)
            moved = hockey_stick(one.log_probabilities, two.log_probabilities, epsilon)
            words = f"delta is {moved:.6g} at epsilon {epsilon:g}, stated is {stated:.6g} ({relation})"
            worst = max(worst, (moved / stated, words))
        return worst


def distance(one: BoundedSum, two: BoundedSum) -> float:
    """How far apart two sums are, in the norm that their sensitivity is stated in."""
    difference = (one.values - two.values).double().flatten() * one.step  # int64 differences are exact
    return float(torch.linalg.vector_norm(difference, ord=1 if one.norm == "l1" else 2))


def pure_epsilon(event: DpEvent) -> float:
    """Epsilon of an event made of pure parts only."""
    value = accountants.epsilon(event, 0.0)
    if value == math.inf:
        raise ValueError(f"{event} is not pure; the row must give epsilons `at` which it is compared")
    return value


def log_ratio(one: npt.NDArray[np.float64], two: npt.NDArray[np.float64]) -> float:
    """Largest |log p / p'|; inf where only one of them can be."""
    possible = ~(np.isneginf(one) & np.isneginf(two))
    return float(np.abs(one[possible] - two[possible]).max())


def hockey_stick(one: npt.NDArray[np.float64], two: npt.NDArray[np.float64], epsilon: float) -> float:
    """The larger of sum (p - e^eps p')_+ and sum (p' - e^eps p)_+."""
    p, q, factor = np.exp(one), np.exp(two), math.exp(epsilon)
    return float(max(np.clip(p - factor * q, 0, None).sum(), np.clip(q - factor * p, 0, None).sum()))


def check_pairs(row: Row, relation: Relation, *, pairs: int | None = None, seed: int = 0) -> None:
    """No random neighbouring pair passes what is stated."""
    rng = np.random.default_rng(seed)
    for _ in range(pairs or min(row.pairs, PAIRS)):
        share, words = row.excess(*row.neighbours(rng, relation), relation)
        assert share <= 1 + SLACK, f"{row}: {words}"


def check_tight(row: Row, relation: Relation) -> None:
    """The stated pair reaches its share of what is stated, and does not pass it."""
    share, words = row.excess(*row.tight(relation), relation)
    assert share <= 1 + SLACK, f"{row}: {words}"
    assert share >= row.reaches, f"{row}: the stated pair reaches {share:.4f} only: {words}"


def people_pair(row: Row, relation: Relation, m: int) -> Pair | None:
    """The stated pair with m of the one record that differs, the person's rows; None where the data are no arrays."""
    first, second = row.tight(relation)
    if not (isinstance(first, np.ndarray | Tensor) and type(first) is type(second)):
        return None
    own, other = _left(first, second), _left(second, first)
    if max(len(own), len(other)) != 1:
        return None
    return _more(first, own, m - 1), _more(second, other, m - 1)


def _left(rows: Any, others: Any) -> list[int]:
    """Indices of the rows that are not among the others, each of which stands for one."""
    rest = [np.asarray(record).tobytes() for record in others]
    left = []
    for i, record in enumerate(rows):
        key = np.asarray(record).tobytes()
        if key in rest:
            rest.remove(key)
        else:
            left.append(i)
    return left


def _more(rows: Any, own: list[int], times: int) -> Any:
    return _taken(rows, np.array([*range(len(rows)), *own * times]))


def check_vanishing(row: LawRow) -> None:
    """Whoever replaces a unit may have no row that is used, or more of them: the price under replace-one covers that, too."""
    first, second = (row.law(x, "replace_one") for x in row.tight("add_remove"))
    if not row.at:
        moved = log_ratio(first.log_probabilities, second.log_probabilities)
        assert moved <= pure_epsilon(first.event) * (1 + SLACK), (
            f"{row}: a row that vanishes moves a log-probability by {moved:.6g}"
        )
    for epsilon in row.at:
        moved = hockey_stick(first.log_probabilities, second.log_probabilities, epsilon)
        stated = delta(first.event, epsilon, relation="replace_one")
        assert moved <= stated * (1 + SLACK), f"{row}: a row that vanishes has delta {moved:.6g} at {epsilon:g}"


def check_people(row: Row, relation: Relation, m: int) -> None:
    """What a person with m equal rows moves: never more than m steps of one row, and sums by as much.

    Sums: m times the larger of what is stated of rows that come, go and are replaced. Laws: the price of the event for m rows.
    """
    pair = people_pair(row, relation, m)
    assert pair is not None
    first, second = pair
    if isinstance(row, SumRow):
        one, two = row.sums(first), row.sums(second)
        stated = m * max(one.under(relation), one.sensitivity)
        moved = distance(one, two)
        assert moved <= stated * (1 + SLACK), (
            f"{row}: a person with {m} rows moves the sums by {moved:.6g}, stated {stated:.6g}"
        )
        assert moved >= 0.99 * row.reaches * m * one.under(relation), f"{row}: a person with {m} rows moves them by {moved:.6g}"
        return
    law, other = row.law(first, relation), row.law(second, relation)
    try:
        event = for_rows(law.event, m)
    except UnsupportedEvent:
        return  # the curator refuses it
    if not row.at:
        moved = log_ratio(law.log_probabilities, other.log_probabilities)
        assert moved <= pure_epsilon(event) * (1 + SLACK), (
            f"{row}: a person with {m} rows moves a log-probability by {moved:.6g}"
        )
    for epsilon in row.at:
        moved = hockey_stick(law.log_probabilities, other.log_probabilities, epsilon)
        stated = delta(event, epsilon, relation=relation)
        assert moved <= stated * (1 + SLACK), f"{row}: a person with {m} rows has delta {moved:.6g} at {epsilon:g}"


def pairs_of(rows: Callable[[np.random.Generator, int], Any], *, least: int = 1, most: int = 6) -> Neighbours:
    """Random neighbouring pairs of data sets of `least` to `most` records, arrays or tensors with a record in each row.

    The records of the two data sets stand in different orders: no release may depend on the order.
    """

    def pair(rng: np.random.Generator, relation: Relation) -> Pair:
        more = relation == "add_remove"
        n = int(rng.integers(least, most + 1 - more))
        drawn, common = rows(rng, n + 1), np.arange(n if more else n - 1)
        first, second = (_taken(drawn, rng.permutation([*common, *own])) for own in ([n], [] if more else [n - 1]))
        return (first, second) if rng.random() < 0.5 else (second, first)

    return pair


def swapped(first: Any, instead: Any) -> Callable[[Relation], Pair]:
    """The pair of `first` and the same without its last record, or with the record `instead` in its place."""
    rest, join = first[:-1], torch.cat if isinstance(first, Tensor) else np.concatenate
    other = join([rest, instead])  # type: ignore[operator]
    return lambda relation: (first, rest if relation == "add_remove" else other)


def _taken(rows: Any, index: npt.NDArray[Any]) -> Any:
    index = index.astype(np.int64)  # of nothing it would be a float
    return rows[torch.from_numpy(index)] if isinstance(rows, Tensor) else rows[index]


def all_rows() -> list[Row]:
    """Rows of all files beside this one."""
    files = sorted(Path(__file__).parent.glob("rows_*.py"))
    return [row for file in files for row in import_module(file.stem).ROWS]
