r"""Sums over records that are exact, and how far one record can move them.

A sensitivity speaks of :math:`S(D) = \sum_{x \in D} f(x)`. A floating-point sum is not of that form: a matrix product of 334
rows and one of 3 rows round the same row differently, a removed record shifts the batches, and what is decided hard
afterwards (nearest centre, bin, clip) flips for *other* records. Sums of this module are of that form, bit for bit:

1. **A record's vector depends on that record alone.** It comes from operands on grids so coarse that every product and
   partial sum is a whole multiple of one step below :math:`2^{53}` steps, hence exact in float64 in any order, followed by
   elementwise :math:`+ - \times / \sqrt{}` and truncation, which IEEE 754 rounds correctly for every element by itself.
2. **It is cut towards zero to a grid** :math:`2^{-g}`, which can only lower its norm. Sums of rows are again whole multiples
   below :math:`2^{53}` steps: a product of memberships and at most :math:`2^{53 - g}` rows of entries in [-1, 1] is exact.
3. **Chunks are added in int64**, which is associative. :math:`2^{63 - g}` such rows fit.

So S(D) of any order of records, chunk size, number of threads, processes and devices is the same number, and
:math:`S(D \cup \{x\}) - S(D) = f(x)` exactly: add/remove moves it by at most :math:`\max_x |f(x)|`, a replaced record by
:math:`\max |f(x) - f(x')|`, at most twice as much.

| case | what holds |
|---|---|
| no records | the sum is 0, with its full shape |
| a row that is longer than 1 | scaled down: its norm after the cut is at most 1, whatever its size or number of entries |
| a row with a NaN or infinite entry | `clipped` makes it 0: it moves nothing |
| a row that is short | kept, cut to the grid |
| entries below the grid | 0 |
| more rows than a float64 product holds exactly | split; the parts are added in int64 |
| more than 2^27 records | refused by whoever streams them: int64 could overflow |

Source: exact accumulation on a grid, Demmel and Nguyen 2015; why it matters for privacy, Mironov 2012 and Casacuberta et
al. 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dpgen.privacy.mechanisms import Relation, require_positive, require_relation

GRAM_GRID = 2.0**18  # products are whole multiples of 2^-36: sums of 2^16 rows fit float64, of 2^27 rows int64
SUM_GRID = 2.0**25
CHUNK = 2**16
"""Rows of one product."""
MOST_RECORDS = 2**27
_IN_CACHE = 512  # rows: several times as fast as temporaries of megabytes
_EXACT = 2.0**26  # norms of rows of whole numbers below it are roots of exact squares, below 2^52
_ROUNDING = 1.0 - 1e-6  # its distance from 1 exceeds what the last rounding, of whole sums, moves: 2^27 records * 2^-52


@dataclass(frozen=True, eq=False)
class BoundedSum:
    """Sums over records with their sensitivity, made by the code that adds up and nowhere else.

    Arguments:
        values: this process's private sums: int64 whole numbers, whose real values are `values * step`, or float32/float64.
        sensitivity: add/remove: the largest change by one record, in units of the real values.
        unit: what is counted or added, for messages.
        replaced: the same when a record is replaced; None: 2 * sensitivity, which always holds.
        norm: of the change, "l2" (Gaussian noise) or "l1" (Laplace noise).
        step: grid of int64 values.
        of_unit: whether the sensitivities are of a whole unit, however many rows it has, and not of one of its rows.

    Raises:
        ValueError: a number is out of its range, or the values have another dtype.

    >>> counts = BoundedSum(torch.tensor([3, 0, 5]), 1.0, replaced=2.0**0.5)
    >>> counts.under("add_remove"), round(counts.under("replace_one"), 4)
    (1.0, 1.4142)
    """

    values: Tensor
    sensitivity: float
    unit: str = "records"
    replaced: float | None = None
    norm: Literal["l1", "l2"] = "l2"
    step: float = 1.0
    of_unit: bool = False

    def __post_init__(self) -> None:
        if self.values.dtype not in (torch.int64, torch.float32, torch.float64):
            raise ValueError(f"values have dtype {self.values.dtype}; they must be int64, float32 or float64")
        require_positive("sensitivity", self.sensitivity)
        require_positive("step", self.step)
        if self.step != 1.0 and self.values.dtype != torch.int64:
            raise ValueError(f"step is {self.step!r} with values of {self.values.dtype}; only int64 values have a grid")
        if self.norm not in ("l1", "l2"):
            raise ValueError(f"norm is {self.norm!r}; it must be one of 'l1', 'l2'")
        if self.replaced is not None and not 0 < self.replaced <= 2.0 * self.sensitivity:
            raise ValueError(
                f"replaced is {self.replaced!r}; it must lie in (0, {2.0 * self.sensitivity!r}], twice the sensitivity"
            )

    def under(self, relation: Relation) -> float:
        """Sensitivity under a neighbouring relation, in units of the real values."""
        if require_relation(relation) == "add_remove":
            return self.sensitivity
        return 2.0 * self.sensitivity if self.replaced is None else self.replaced


def totals(records: Any, part: Callable[[Iterable[Any]], Tensor]) -> Tensor:
    """The sum over all records of what `part` adds up of batches of them, int64: the same wherever they lie.

    `records` are all of them in an array or a tensor; or an iterable of batches, read anew each time; or a source with a method
    `totals(part)` of its own, which adds up batches where its records lie, such as the executors of a cluster. `part` gives of
    any batches the exact sum, zeros of its shape where there are none.

    >>> totals([torch.ones(2, 3), torch.ones(1, 3)], lambda batches: sum(batch.long().sum(0) for batch in batches)).tolist()
    [3, 3, 3]
    """
    if hasattr(records, "totals"):
        found: Tensor = records.totals(part)
        return found
    return part((records,) if isinstance(records, np.ndarray | Tensor) else records)


@dataclass(frozen=True)
class Each:
    """A source of records for `totals` whose batches are changed one by one, record by record, where the records are."""

    batches: Any
    change: Callable[..., Any]

    def __iter__(self) -> Iterator[Any]:
        return starmap(self.change, self.batches)

    def totals(self, part: Callable[[Iterable[Any]], Tensor]) -> Tensor:
        """See the function of this name."""
        change = self.change  # alone: executors get what `part` holds, which must not be the source
        return totals(self.batches, lambda batches: part(starmap(change, batches)))


def row_squares(u: Tensor) -> Tensor:
    """|u|^2 (b,) in float64 of rows (b, m), folded in a fixed order: the same for a row whatever rows are beside it."""
    squares = u.double().square() if u.shape[1] else u.new_zeros(len(u), 1).double()
    while squares.shape[1] > 1:
        half = squares.shape[1] // 2
        folded = squares[:, :half] + squares[:, half : 2 * half]
        if squares.shape[1] % 2:
            folded[:, 0] += squares[:, -1]
        squares = folded
    return squares[:, 0]


def whole_squares(rows: Tensor) -> Tensor:
    """|t|^2 (b,) of rows (b, m) of whole numbers, float64: exact where it is below 2^53, at least 2^53 where it is not."""
    if rows.device.type != "cpu":
        return rows.square().sum(1)
    values = rows.numpy()
    return torch.from_numpy(np.einsum("ij,ij->i", values, values))


def clipped(u: Tensor, grid: float = GRAM_GRID, most: float = 1.0) -> Tensor:
    """Rows (b, m) cut towards zero to multiples of 1 / grid and, where they are longer than `most`, scaled down; float64.

    Norms of cut rows are exact up to 2^26 / grid and right to 2^-48 above, and cutting lowers them: they are at most `most`
    whatever m. Rows with a norm that is not finite become 0.
    """
    result = torch.empty(u.shape, dtype=torch.float64, device=u.device)
    reach = most * _ROUNDING * grid
    for rows, part in zip(u.split(_IN_CACHE), result.split(_IN_CACHE)):
        norms = whole_squares(_cut(part.copy_(rows).mul_(grid))).sqrt_()
        far = (~(norms < _EXACT)).nonzero()[:, 0]
        if len(far):  # NaN and infinite norms, too
            longer = rows[far].double().mul_(grid)
            length = row_squares(longer).sqrt_()
            lost = ~torch.isfinite(length)
            part[far], norms[far] = longer.masked_fill_(lost[:, None], 0.0), length.masked_fill_(lost, 0.0)
        if len(far) or bool((norms > reach).any()):  # the short ones are divided by themselves, and not by a rounded reciprocal
            _cut(part.mul_(torch.full_like(norms, reach).div_(norms.clamp_min_(reach))[:, None]))
        part.mul_(1.0 / grid)
    return result


def _cut(values: Tensor) -> Tensor:
    """The values, float64, cut towards zero in place; NumPy takes an eighth of the time of torch."""
    if values.device.type != "cpu":
        return values.trunc_()
    np.trunc(values.numpy(), out=values.numpy())
    return values


def whole(values: Tensor, grid: float) -> Tensor:
    """Exact multiples of 1 / grid as whole numbers on the CPU, int64."""
    return (values * grid).to("cpu", torch.int64)


def size_sums(groups: Iterable[Tensor], k: int) -> BoundedSum:
    """Sizes (k,) of disjoint groups, from group numbers (b,): a replaced record lowers one size and raises another."""
    sizes = torch.zeros(k, dtype=torch.int64)
    for group in groups:
        sizes += torch.bincount(group, minlength=k).cpu()
    return BoundedSum(sizes, 1.0, replaced=math.sqrt(2.0))


WHOLE = 2**20
"""A unit in parts: each of its k rows has floor(2^20 / k) of them, so that all together have no more than a whole."""


def shares(people: Tensor) -> Tensor:
    """Parts (n,), int64, of `WHOLE` that each row has of its person (n,): a function of that person's rows alone.

    >>> shares(torch.tensor([7, 2, 7, 7])).tolist()
    [349525, 1048576, 349525, 349525]
    """
    _, person, rows = people.unique(return_inverse=True, return_counts=True)
    return (WHOLE // rows)[person]


def shared_sizes(group: Tensor, k: int, share: Tensor) -> BoundedSum:
    r"""Sizes (k,) of groups in which the rows of a person count for one together, from their groups (n,) and `shares` (n,).

    A person adds non-negative numbers of sum at most 1: L2 norm at most 1, and :math:`\sqrt 2` for another in their place.

    >>> people, group = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])
    >>> sizes = shared_sizes(group, 2, shares(people))
    >>> (sizes.values * sizes.step).tolist()
    [0.5, 1.5]
    """
    sizes = torch.zeros(k, dtype=torch.int64).index_add_(0, group, share)
    return BoundedSum(sizes, 1.0, "people", replaced=math.sqrt(2.0), step=1.0 / WHOLE, of_unit=True)


def group_sums(rows: Tensor, group: Tensor, k: int, *, most: float) -> Tensor:
    """Sums (k, m), int64, of the rows (b, m), whole numbers as float64, of each group (b,).

    `most` bounds their absolute values, at most 2^52; products take so many rows that 2^53 is never passed.

    >>> group_sums(torch.tensor([[1.0], [2.0], [4.0]]).double(), torch.tensor([0, 2, 0]), 3, most=4.0).flatten().tolist()
    [5, 0, 2]
    """
    if not 0 < most <= 2.0**52:
        raise ValueError(f"most is {most!r}; it must lie in (0, 2^52]")
    total = torch.zeros(k, rows.shape[1], dtype=torch.int64, device=rows.device)
    size = min(CHUNK, int(2.0**53 / most))
    for part, members in zip(rows.split(size), group.split(size)):
        member = torch.nn.functional.one_hot(members, k).to(part)
        total += (member.T @ part).to(torch.int64)
    return total
