r"""Keys by which rows name other people (the boss of an employee, the receiver of a transfer): sums, and draws of them.

A row belongs to its person alone, and the tables of `sums` do not look at whom it names. Two kinds of sums do. With at most
:math:`m` rows of a person, of which the first :math:`k` that name the same person are counted, by a keyed hash of the row's
own person and its place there, each with the weight :math:`1/q`, :math:`q = \max(m, k)`:

| sums | what they count | L2 sensitivity |
|---|---|---|
| pairs, of one column of people | counted rows: groups of both people | :math:`\sqrt{(m/q + k/q)^2 + (m/q)^2}` |
| degrees | people, by the number of rows that name them | :math:`\sqrt{(1 + m)^2 + m^2}` |

**Proof.** A person A leaves, and all others keep their rows; a row that names A names nobody now, as one with a gap does.
Pairs: at most m rows of A leave the counts, and at most k that name A. A counted row of A frees a place among those that name
one person: one row of somebody else takes it, as the hash does not know who is named by whom; that is at most m rows. (Rows of
one person that are alike but for whom they name share a place, for their order would be that of the data; where a window has
some of them alone, they name nobody.) So no more than (m + k) / q is taken away, and no more than m / q is added. Both are
non-negative vectors, so the square of the norm of their difference is at most the sum of the squares of their L1 norms.
Degrees: A is counted no more, and at most m people have a smaller degree: 1 + m counts are taken away, and m are added. For
another person in A's place both happen, which is at most twice as much. All parts are :math:`\lfloor 2^{20} / q \rfloor` of
:math:`2^{-20}`.

Rows that name nobody are not counted: a boss who leaves would move all reports there.

At most four columns of people are chosen, by the exponential mechanism, by how far their pairs T, in whole rows, are from what
released shares s of groups of people make of the total p: :math:`\sum_{ab} |T_{ab} - p s_a s_b|`, rounded down. Adding w to one
cell moves this by 2 w at most. A person who leaves moves T by at most 2 m + k in L1, and the score by :math:`2 (2 m + k) + 1`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import torch

from dpgen.privacy.exact_sums import WHOLE, BoundedSum
from dpgen.systems.simplex_projection import project_to_simplex

if TYPE_CHECKING:
    from dpgen.data.linked_tables import Reference
    from dpgen.privacy.curator import GaussianBudget
    from dpgen.systems.tables.marginals import Coarsening, Columns

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

OF_PAIRS, OF_DEGREES, CHOICE = "pairs of people by a key", "how many rows name a person", "choice of a column of pairs"
OF_NUMBERS, OF_CHOICE = 0.2, 0.1
"""Shares of the precision 1 / s^2 of a key for how often people are named, and for the choice of columns."""
MOST_COLUMNS = 4
"""Columns of people whose pairs are released."""
GROUPS = 8
"""Groups of a column of people in a table of pairs."""
COUNTED = 6
"""k / m: so many times the most rows of a person are counted that name the same one."""
DEGREES = np.array([0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128])
"""The least number of each bin of degrees."""
_MANY = 10.0  # noise stds of all people from which on nobody is named where noise shows nobody
_SURE = 2.0  # noise stds that a bin of degrees, or a share of rows that name nobody, must have
_ALL = 0.9  # share of rows that name somebody from which on all do: degrees are binned
_HIDDEN = 1.5  # noise stds from independence, up to which a cell is as if it were independent
_SWEEPS, _TRIES, _CLASSES = 60, 4, 400


def counted(owner: Integers, targets: Integers, ranks: npt.NDArray[Any], most: int) -> npt.NDArray[np.bool_]:
    """Which rows (r,) are the first `most` that name the same person, by hashes (r, 4); those of no person, -1, are not."""
    order = np.lexsort((*ranks.T[::-1], targets))
    named = targets[order]
    starts = np.flatnonzero(np.diff(named, prepend=-2))
    place = np.arange(len(named)) - np.repeat(starts, np.diff(starts, append=len(named)))
    found = np.empty(len(named), bool)
    found[order] = (place < most) & (named >= 0)
    return found


def _sums(values: Any, taken: float, added: float) -> BoundedSum:
    """Sums of parts of 2^20; a person takes away at most `taken` in L1, and adds at most `added` to other cells."""
    whole = torch.from_numpy(np.ascontiguousarray(values, np.int64))
    return BoundedSum(whole, math.hypot(taken, added), "people", step=1.0 / WHOLE, of_unit=True)


def pair_sums(
    owner: Integers, targets: Integers, ranks: npt.NDArray[Any], groups: Integers, size: int, *, rows: int, most: int
) -> BoundedSum:
    """Counted rows (size, size) by the group of their person and of the one they name; see the module.

    Arguments:
        owner: person of each row (r,); a person has at most `rows`.
        targets: person that each names (r,); -1: none.
        ranks: hashes (r, 4) that do not depend on `targets`.
        groups: of all people (n,), in [0, size).
        most: k, counted rows that name the same person.
    """
    q, used = max(rows, most), counted(owner, targets, ranks, most)
    cells = groups[owner[used]] * size + groups[targets[used]]
    found = np.bincount(cells, minlength=size * size) * (WHOLE // q)
    return _sums(found.reshape(size, size), rows / q + most / q, rows / q)


def pair_score(
    owner: Integers, targets: Integers, ranks: npt.NDArray[Any], groups: Integers, shares: Reals, *, rows: int, most: int
) -> tuple[int, int]:
    """Distance of pairs of groups from their released shares (g,), and how far a person moves it; see `pair_sums`."""
    used, size = counted(owner, targets, ranks, most), len(shares)
    table = np.bincount(groups[owner[used]] * size + groups[targets[used]], minlength=size * size)
    apart = np.abs(table - table.sum() * np.outer(shares, shares).ravel()).sum()
    return math.floor(float(apart)), 2 * (2 * rows + most) + 1


def degree_sums(targets: Integers, n: int, *, rows: int) -> BoundedSum:
    """People by the bin of the number of rows that name them; a person has at most `rows`."""
    degrees = np.bincount(targets[targets >= 0], minlength=n)
    bins = np.searchsorted(DEGREES, degrees, side="right") - 1
    return _sums(np.bincount(bins, minlength=len(DEGREES)) * WHOLE, 1.0 + rows, float(rows))


# -- what is released --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Named:
    """Released sums of a key of a table to people.

    Arguments:
        number: of the table; 0: people name people, without a circle.
        column: of the key.
        groups: of the groups of codes of each column of people.
        pairs: by column of people, noisy pairs (g, g) in rows, and their noise std.
        degrees: noisy counts of people, and their noise std.
    """

    number: int
    column: str
    groups: Sequence[Integers]
    pairs: Mapping[int, tuple[Reals, float]]
    degrees: tuple[Reals, float]

    @classmethod
    def measure(
        cls,
        own: Reference,
        people: Integers,
        columns: Columns,
        coarse: Coarsening,
        budget: GaussianBudget,
        share: float,
        *,
        rows: int,
        n: int,
    ) -> Self:
        """Noisy sums of a key, for a share of 1 / s^2, by groups of the codes of n people, who have so many rows at most."""
        wide = [c for c, size in enumerate(coarse.sizes) if size > 1]
        picks, most, pairs = min(MOST_COLUMNS, len(wide)), COUNTED * rows, dict[int, tuple[Reals, float]]()
        of_choice = OF_CHOICE * share if len(wide) > picks else 0.0
        of_pairs = ((1 - OF_NUMBERS) * share - of_choice) / max(1, picks)
        for _ in range(picks):
            about = [(own.owner, own.targets, own.ranks, coarse.groups[c][people[:, c]]) for c in wide]
            at = 0
            if of_choice:
                shares = [np.bincount(coarse.groups[c], columns.group_shares[c]).astype(np.float64) for c in wide]
                apart, moves = zip(*(pair_score(*one, s, rows=rows, most=most) for one, s in zip(about, shares)))
                at = budget.select(CHOICE, np.array(apart, np.int64), moves[0], of_choice / picks)
            values, std = budget.sums(OF_PAIRS, pair_sums(*about[at], coarse.sizes[wide[at]], rows=rows, most=most), of_pairs)
            pairs[wide.pop(at)] = values.numpy(), std
        values, std = budget.sums(OF_DEGREES, degree_sums(own.targets, n, rows=rows), OF_NUMBERS * share)
        return cls(own.number, own.column, coarse.groups, pairs, (values.numpy(), std))

    def drawn(self, codes: Integers, owner: Integers, generator: np.random.Generator) -> Integers:
        """The person that each row (r,) names, -1: none, of people with groups of codes (n, columns).

        A class of people is one group of each column that was chosen. Rows draw a class by the law of greatest entropy with all
        pairs, and people of it are named as often as people are.
        """
        own = {c: self.groups[c][codes[:, c]] for c in self.pairs}
        laws = self._clearest(own)
        sizes = [len(law) for law in laws.values()]
        classes = np.ravel_multi_index([own[c] for c in laws], sizes) if laws else np.zeros(len(codes), np.int64)
        degrees, share = self._degrees(len(codes), len(owner), generator)
        names = generator.random(len(owner)) < share
        if not self.number and len(owner):  # those whose class is named most, beside how many it is, are at the top
            often = _named_often([*laws.values()], [own[c] for c in laws], len(codes))
            names[:] = True
            names[np.lexsort((generator.random(len(codes)), -often))[: max(1, round(len(codes) * (1 - share)))]] = False
        rows, wanted = np.flatnonzero(names), np.full(len(owner), -1)
        law = _law([*laws.values()], classes, owner[rows], sizes)
        edges = law[classes[owner[rows]]].cumsum(1)
        wanted[rows] = (edges < generator.random((len(rows), 1)) * edges[:, -1:]).sum(1)
        room = np.zeros(len(codes), np.int64)
        for kind in np.unique(wanted[rows]):
            _make_room(
                room, int((wanted == kind).sum()), np.flatnonzero(classes == kind), degrees[degrees > 0], names, generator
            )
        if not self.number:
            return _placed(wanted, classes, room, generator)
        return _shared_out(wanted, classes, room, owner, generator)

    def _clearest(self, own: Mapping[int, Integers]) -> dict[int, Reals]:
        """Shares of pairs of the columns that tell most of whom a row names, as many as make few classes."""
        found, apart = dict[int, Reals](), dict[int, float]()
        for c, (values, std) in self.pairs.items():
            if (law := _denoised(values, std)) is not None:
                shares = np.bincount(own[c], minlength=len(law)) / len(own[c])
                found[c], apart[c] = law, float(np.abs(law - np.outer(law.sum(1), shares)).sum())
        kept = dict[int, Reals]()
        for c in sorted(found, key=lambda c: -apart[c]):
            if math.prod(map(len, kept.values())) * len(found[c]) <= _CLASSES:
                kept[c] = found[c]
        return kept

    def _degrees(self, n: int, rows: int, generator: np.random.Generator) -> tuple[Integers, float]:
        """Numbers of rows (n,) that name a person, at least one, and the share of rows that name somebody."""
        values, std = self.degrees
        sure, ends = np.where(values > _SURE * std, values, 0.0), np.r_[DEGREES[1:], 2 * DEGREES[-1]]
        means = (DEGREES + ends - 1) / 2
        noise = std * len(values) ** 0.5
        if not sure[1:].any() and values.sum() > _MANY * noise and values[1:].sum() < _SURE * noise:
            return np.zeros(n, np.int64), 0.0
        if not sure[1:].any():
            return np.maximum(generator.poisson(rows / max(n, 1), n), np.arange(n) == 0).astype(np.int64), 1.0
        sure *= n / sure.sum()
        share, off = float(means @ sure) / max(rows, 1), float(np.linalg.norm(means)) * std / max(rows, 1)
        if share + max(_SURE * off, 1 - _ALL) >= 1:
            share, sure = 1.0, _with_total(values * n / max(values.sum(), 1.0), means, n, rows)
        uniform = generator.permutation((np.arange(n) + generator.random()) / n)
        bins = np.searchsorted((sure / sure.sum()).cumsum()[:-1], uniform, side="right")
        found = DEGREES[bins] + ((ends - DEGREES)[bins] * generator.random(n)).astype(np.int64)
        found[0] = max(found[0], 1)
        return found, share


def _with_total(values: Reals, means: Reals, n: int, rows: int) -> Reals:
    """The non-negative counts nearest to noisy ones that are n people in all, whom so many rows name."""

    def of_n(slope: float) -> Reals:
        return onto(values - slope * means, float(n))

    low, high = -1e3, 1e3
    for _ in range(60):
        slope = (low + high) / 2
        low, high = (slope, high) if means @ of_n(slope) > rows else (low, slope)
    return of_n(high)


def onto(values: Reals, total: float) -> Reals:
    """The nearest non-negative numbers with a total."""
    return project_to_simplex(values.ravel(), total).reshape(values.shape)


def _denoised(values: Reals, std: float) -> Reals | None:
    """Shares (g, g) of noisy pairs, where cells that noise may move from independence are independent; None: all is noise."""
    total = float(values.sum())
    if total <= std * len(values):
        return None
    law = onto(values, total) / total
    alone = np.outer(law.sum(1), law.sum(0))
    clear = np.abs(values - total * alone) > _HIDDEN * std
    found = np.where(clear, np.maximum(values / total, 0.0), alone)
    return np.asarray((total * found / found.sum() + alone) / (total + 1.0))


def _named_often(laws: Sequence[Reals], own: Sequence[Integers], n: int) -> Reals:
    """Frequency (n,) at which people are named by the product of all columns, beside people of all groups."""
    found = np.ones(n)
    for law, group in zip(laws, own):
        share = np.bincount(group, minlength=len(law)) / len(group)
        found = found * (law.sum(0) / np.maximum(share, 1.0 / len(group)))[group]
    return found


def _law(laws: Sequence[Reals], classes: Integers, owner: Integers, sizes: Sequence[int]) -> Reals:
    """Expected numbers (classes, classes) of rows by the class of their person and of the one they name."""
    count = math.prod(sizes)
    below, above = np.bincount(classes[owner], minlength=count), np.bincount(classes, minlength=count)
    found = np.outer(below, above) / max(1, above.sum())
    for _ in range(_SWEEPS if sizes else 0):
        for law, place in zip(laws, np.unravel_index(np.arange(count), sizes)):
            cells = place[:, None] * len(law) + place[None, :]
            sums = np.bincount(cells.ravel(), found.ravel(), law.size)
            found *= (below.sum() * law.ravel() / np.maximum(sums, 1e-300))[cells]
        found *= (below / np.maximum(found.sum(1), 1e-300))[:, None]
    return np.asarray(found + 1e-9 * np.outer(np.ones(count), above))


def _make_room(
    room: Integers, count: int, among: Integers, degrees: Integers, names: Flags, generator: np.random.Generator
) -> None:
    """Say how often people `among` others are named, `count` times together; those who name nobody come first."""
    among = generator.permutation(among)
    first = np.argsort(names[among], kind="stable") if len(names) == len(room) else slice(None)
    chosen = among[first][: max(1, round(count / float(degrees.mean())))]
    own = generator.choice(degrees, len(chosen))
    if (left := count - int(own.sum())) > 0:
        own += np.bincount(generator.choice(len(own), left, p=own / own.sum()), minlength=len(own))
    room[chosen] = own


def _shared_out(
    wanted: Integers, classes: Integers, room: Integers, owner: Integers, generator: np.random.Generator
) -> Integers:
    """People whom rows (r,) of the `wanted` classes name, each as often as there is room, and nobody by an own row."""
    found = np.full(len(wanted), -1)
    for kind in np.unique(wanted[wanted >= 0]):
        rows, people = np.flatnonzero(wanted == kind), np.flatnonzero((classes == kind) & (room > 0))
        places = generator.permutation(np.repeat(people, room[people]))[: len(rows)]
        for _ in range(_TRIES):
            own = np.flatnonzero(places == owner[rows])
            other = generator.integers(0, len(rows), len(own))
            for one, two in zip(own, other):
                places[one], places[two] = places[two], places[one]
        found[rows] = places
    alone = np.flatnonzero(found == owner)
    found[alone] = (owner[alone] + generator.integers(1, max(2, len(room)), len(alone))) % len(room) if len(room) > 1 else -1
    return found


def _placed(wanted: Integers, classes: Integers, room: Integers, generator: np.random.Generator) -> Integers:
    """People (n,) whom people of the `wanted` classes name, -1: nobody; `room` (n,) is how often people are named.

    People who name nobody are placed; the others follow, those who are named themselves first, so there is no circle. Where
    nobody of a class is placed, one person names another one who is.
    """
    above, room, waiting = np.full(len(wanted), -1), room.copy(), wanted >= 0
    while waiting.any():
        moved = False
        for kind in np.unique(wanted[waiting]):
            people = np.flatnonzero(~waiting & (classes == kind) & (room > 0))
            rows = generator.permutation(np.flatnonzero(waiting & (wanted == kind)))
            rows = rows[np.argsort(room[rows] == 0, kind="stable")]
            slots = generator.permutation(np.repeat(people, room[people]))[: len(rows)]
            above[rows[: len(slots)]] = slots
            room -= np.bincount(slots, minlength=len(room))
            waiting[rows[: len(slots)]] = False
            moved |= len(slots) > 0
        if not moved:
            row = int(np.flatnonzero(waiting)[np.argmax(room[waiting])])
            above[row] = _any_placed(wanted[row], waiting, classes, room, generator)
            waiting[row] = False
    return above


def _any_placed(kind: int, waiting: Flags, classes: Integers, room: Integers, generator: np.random.Generator) -> int:
    """Somebody who is placed: of this class, else one who may be named, else anybody."""
    for fits in (classes == kind, room > 0, ~waiting):
        if len(among := np.flatnonzero(~waiting & fits)):
            return int(generator.choice(among))
    return -1
