r"""Keys by which rows name other people (the boss of an employee, the receiver of a transfer): sums, and draws of them.

A row belongs to its person alone, and the tables of `sums` do not look at whom it names. Two kinds of sums do. With r rows of
a person, at most :math:`m`, each weighs :math:`1/r`, so all of a person weigh one at most, however many rows there may be:

| sums | what they count | L2 sensitivity |
|---|---|---|
| pairs, of one column | weights by groups of both people, :math:`k` at most for each named | :math:`\sqrt{(1 + k)^2 + 1}` |
| degrees | people, by the number of rows that name them | :math:`\sqrt{(1 + m)^2 + m^2}` |

**Weights that are counted.** Rows that name one person lie one after the other on a line, each as long as its weight, in the
order of a keyed hash of the row's own person and its place there. What is inside of [0, k] is counted, of the row at the end a
part. Where people name people r is 1, and these are the first k that name the same person.

**Proof.** A person A leaves, and all others keep their rows; a row that names A names nobody now, as one with a gap does. Its
weight is a function of how many rows its own person has, whomever they name, so no weight of others changes. Pairs: the rows of
A leave, of weight :math:`o_t` inside of the line of each person t, :math:`\sum_t o_t \le 1`, and the line of A, of k at most:
no more than 1 + k is taken away. Without the rows of A others on the line of t move towards 0, so none of them counts less. The
line holds min(k, its length), which does not grow, so they count at most :math:`o_t` more, together at most 1: no more is
added. The hash does not know who is named by whom. (Rows of one person that are alike but for whom they name share a place, for
their order would be that of the data; where a window has some of them alone, they name nobody. They weigh the same and are of
one cell, so their order on a line changes nothing.) Both are non-negative vectors, so the square of the norm of their
difference is at most the sum of the squares of their L1 norms. Degrees: A is counted no more, and at most m people have a
smaller degree: 1 + m counts are taken away, and m are added. For another person in A's place both happen, which is at most
twice as much. Weights are :math:`\lfloor 2^{20} / r \rfloor` of :math:`2^{-20}`, and k is whole: all of it is exact.

Rows that name nobody are not counted: a boss who leaves would move all reports there.

At most four columns of people are chosen, by the exponential mechanism, by how far their pairs T, in whole people, are from
what released shares s of groups of people make of the total p: :math:`\sum_{ab} |T_{ab} - p s_a s_b|`, rounded down. Adding w
to one cell moves this by 2 w at most. A person who leaves moves T by at most 2 + k in L1, and the score by
:math:`2 (2 + k) + 1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import torch

from dpgen.facts import Fact, Said
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
COUNTED, FEW = 6, 3
"""k: of rows that name one person as many weigh as those of so many people, and where people are few and each has rows."""
ENOUGH = 4_500.0
"""People by noise stds of their number at the share of one column, from which on k of rows is that of many people."""
DEGREES = np.array([0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128])
"""The least number of each bin of degrees."""
_MANY = 10.0  # noise stds of all people from which on nobody is named where noise shows nobody
_SURE = 2.0  # noise stds that a bin of degrees, or a share of rows that name nobody, must have
_ALL = 0.9  # share of rows that name somebody from which on all do: degrees are binned
_HIDDEN = 1.5  # noise stds from independence, up to which a cell is as if it were independent
_SHOWN = 3.0  # noise stds of what stands out of the noise
_SWEEPS, _TRIES, _CLASSES = 60, 4, 400


def weighed(owner: Integers, targets: Integers, ranks: npt.NDArray[Any], most: int) -> Integers:
    """Parts (r,) of 2^20 that count of each row, see the module: all of a person at most a whole, and `most` that name one.

    Arguments:
        owner: person of each row (r,).
        targets: person that each names (r,); -1: none.
        ranks: hashes (r, 4) that do not depend on `targets`.
        most: k.
    """
    weights = WHOLE // np.bincount(owner)[owner] if len(owner) else np.zeros(0, np.int64)
    order = np.lexsort((*ranks.T[::-1], targets))
    named, own = targets[order], weights[order]
    ends, fresh = own.cumsum(), np.diff(named, prepend=-2) != 0
    starts = ends - own
    before = starts - starts[np.maximum.accumulate(np.where(fresh, np.arange(len(own)), 0))]
    found = np.zeros(len(own), np.int64)
    found[order] = np.where(named >= 0, np.clip(most * WHOLE - before, 0, own), 0)
    return found


def _sums(values: Any, taken: float, added: float) -> BoundedSum:
    """Sums of parts of 2^20; a person takes away at most `taken` in L1, and adds at most `added` to other cells."""
    whole = torch.from_numpy(np.ascontiguousarray(values, np.int64))
    return BoundedSum(whole, math.hypot(taken, added), "people", step=1.0 / WHOLE, of_unit=True)


def _pairs(owner: Integers, targets: Integers, ranks: npt.NDArray[Any], groups: Integers, size: int, most: int) -> Integers:
    """Parts (size * size,) of pairs of groups: whole numbers below 2^53 as float64."""
    parts = weighed(owner, targets, ranks, most)
    used = parts > 0
    cells = groups[owner[used]] * size + groups[targets[used]]
    return np.bincount(cells, parts[used], size * size).astype(np.int64)


def pair_sums(
    owner: Integers, targets: Integers, ranks: npt.NDArray[Any], groups: Integers, size: int, *, most: int
) -> BoundedSum:
    """Weights (size, size) of rows by the group of their person and of the one they name; see the module and `weighed`.

    `groups` are those of all people (n,), in [0, size).
    """
    found = _pairs(owner, targets, ranks, groups, size, most)
    return _sums(found.reshape(size, size), 1.0 + most, 1.0)


def pair_score(
    owner: Integers, targets: Integers, ranks: npt.NDArray[Any], groups: Integers, shares: Reals, *, most: int
) -> tuple[int, int]:
    """Distance of pairs of groups from their released shares (g,), and how far a person moves it; see `pair_sums`."""
    table = _pairs(owner, targets, ranks, groups, len(shares), most) / WHOLE
    apart = np.abs(table - table.sum() * np.outer(shares, shares).ravel()).sum()
    return math.floor(float(apart)), 2 * (2 + most) + 1


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
        pairs: by column of people, noisy pairs (g, g) in people who name others, and their noise std.
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
        size: float,
    ) -> Self:
        """Noisy sums of a key, for a share of 1 / s^2, by groups of the codes of n people, who have so many rows at most.

        `size` is their noisy number.
        """
        wide = [c for c, size in enumerate(coarse.sizes) if size > 1]
        picks, pairs = min(MOST_COLUMNS, len(wide)), dict[int, tuple[Reals, float]]()
        of_choice = OF_CHOICE * share if len(wide) > picks else 0.0
        of_pairs = ((1 - OF_NUMBERS) * share - of_choice) / max(1, picks)
        most = FEW if rows > 1 and size < ENOUGH * budget.noise_std(of_pairs) else COUNTED
        for _ in range(picks):
            about = [(own.owner, own.targets, own.ranks, coarse.groups[c][people[:, c]]) for c in wide]
            at = 0
            if of_choice:
                shares = [np.bincount(coarse.groups[c], columns.group_shares[c]).astype(np.float64) for c in wide]
                apart, moves = zip(*(pair_score(*one, s, most=most) for one, s in zip(about, shares)))
                at = budget.select(CHOICE, np.array(apart, np.int64), moves[0], of_choice / picks)
            values, std = budget.sums(OF_PAIRS, pair_sums(*about[at], coarse.sizes[wide[at]], most=most), of_pairs)
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
        kinds, classes = _classes([own[c] for c in laws], len(codes))
        degrees, share = self._degrees(len(codes), len(owner), generator)
        names = generator.random(len(owner)) < share
        if not self.number and len(owner):  # those whose class is named most, beside how many it is, are at the top
            often = _named_often([*laws.values()], [own[c] for c in laws], len(codes))
            names[:] = True
            names[np.lexsort((generator.random(len(codes)), -often))[: max(1, round(len(codes) * (1 - share)))]] = False
        rows, wanted = np.flatnonzero(names), np.full(len(owner), -1)
        laws = {c: _of_rows(law, own[c][owner[rows]]) for c, law in laws.items()}
        law = _law([*laws.values()], kinds, classes, owner[rows])
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

    def hidden(self, people: float) -> float | None:
        """Number of times by which less noise shows that people of one group are named twice as often as by chance.

        That is `_SHOWN` noise stds of a cell, of so many people who name others. None: the pairs of a column are farther from
        independence than noise is, by as many stds of their sum of squares, or would be so if they were.
        """
        found = list[float]()
        for values, std in self.pairs.values():
            free = max(1, (len(values) - 1) ** 2)
            if (law := _denoised(values, std)) is not None:
                apart = float(np.square(_from_independence(values, law) / std).sum())
                if apart > free + _SHOWN * math.sqrt(2 * free):
                    return None
            found.append(_SHOWN * std * values.size / max(people, 1.0))
        least = min(found, default=0.0)
        return least if least > 1 else None

    def _clearest(self, own: Mapping[int, Integers]) -> dict[int, Reals]:
        """Shares of pairs of the columns that tell most of whom a row names, as many as make few classes."""
        found, apart = dict[int, Reals](), dict[int, float]()
        for c, (values, std) in self.pairs.items():
            if (law := _denoised(values, std)) is not None:
                shares = np.bincount(own[c], minlength=len(law)) / len(own[c])
                found[c], apart[c] = law, float(np.abs(law - np.outer(law.sum(1), shares)).sum())
        kept = dict[int, Reals]()
        for c in sorted(found, key=lambda c: -apart[c]):
            if len(_classes([own[k] for k in (*kept, c)], len(own[c]))[0]) <= _CLASSES:
                kept[c] = found[c]
        return kept

    @property
    def _somebody(self) -> bool:
        """Whether the weight of all pairs of a column stands out of the noise: then rows name somebody, if only few people."""
        return any(float(values.sum()) > _SHOWN * std * values.size**0.5 for values, std in self.pairs.values())

    def _degrees(self, n: int, rows: int, generator: np.random.Generator) -> tuple[Integers, float]:
        """Numbers of rows (n,) that name a person, at least one, and the share of rows that name somebody."""
        values, std = self.degrees
        sure, ends = np.where(values > _SURE * std, values, 0.0), np.r_[DEGREES[1:], 2 * DEGREES[-1]]
        means = (DEGREES + ends - 1) / 2
        noise = std * len(values) ** 0.5
        nobody = values.sum() > _MANY * noise and values[1:].sum() < _SURE * noise and not self._somebody
        if not sure[1:].any() and nobody:
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


def said_of(
    named: Sequence[Named], tables: Sequence[str], people: Sequence[float], epsilon: Callable[[float], str]
) -> list[Said]:
    """Facts of a statement on keys by which rows name other people, and where noise hides whom.

    Arguments:
        named: the keys.
        tables: names of all tables, people's first.
        people: noisy numbers of those who have rows of each table.
        epsilon: that of so many times the Gaussian-DP parameter.
    """
    found = list[Said]()
    for own in named:
        column = f"{tables[own.number]}.{own.column}"
        found.append(Fact.NAMES_OTHERS(column=column))
        if (times := own.hidden(people[own.number])) is not None:
            found.append(Fact.HIDDEN_PAIRS(column=column, more=epsilon(times)))
    return found


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
    clear = np.abs(_from_independence(values, law)) > _HIDDEN * std
    found = np.where(clear, np.maximum(values / total, 0.0), alone)
    return np.asarray((total * found / found.sum() + alone) / (total + 1.0))


def _from_independence(values: Reals, law: Reals) -> Reals:
    """Distance (g, g) of noisy pairs from those of independent sides of a law."""
    return np.asarray(values - float(values.sum()) * np.outer(law.sum(1), law.sum(0)))


def _of_rows(law: Reals, groups: Integers) -> Reals:
    """Shares (g, g) of pairs where rows have owners of these groups (r,): whom these name stays what it is."""
    below = np.bincount(groups, minlength=len(law)) / max(1, len(groups))
    return np.asarray(law * (below / np.maximum(law.sum(1), 1e-300))[:, None])


def _named_often(laws: Sequence[Reals], own: Sequence[Integers], n: int) -> Reals:
    """Frequency (n,) at which people are named by the product of all columns, beside people of all groups."""
    found = np.ones(n)
    for law, group in zip(laws, own):
        share = np.bincount(group, minlength=len(law)) / len(group)
        found = found * (law.sum(0) / np.maximum(share, 1.0 / len(group)))[group]
    return found


def _classes(groups: Sequence[Integers], n: int) -> tuple[Integers, Integers]:
    """Classes (k, columns) of groups that some of n people are in, and the class (n,) of each."""
    if not groups:
        return np.zeros((1, 0), np.int64), np.zeros(n, np.int64)
    kinds, classes = np.unique(np.column_stack(groups), axis=0, return_inverse=True)
    return kinds, classes.reshape(n)


def _law(laws: Sequence[Reals], kinds: Integers, classes: Integers, owner: Integers) -> Reals:
    """Expected numbers (k, k) of rows by the class of their person and of the one they name, of classes of `kinds`."""
    count = len(kinds)
    below, above = np.bincount(classes[owner], minlength=count), np.bincount(classes, minlength=count)
    found = np.outer(below, above) / max(1, above.sum())
    for _ in range(_SWEEPS if laws else 0):
        for law, place in zip(laws, kinds.T):
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
