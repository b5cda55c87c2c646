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
one person: one row of somebody else takes it, as the hash does not know who is named by whom; that is at most m rows. So no
more than (m + k) / q is taken away, and no more than m / q is added. Both are non-negative vectors, so the square of the norm
of their difference is at most the sum of the squares of their L1 norms. Degrees: A is counted no more, and at most m people
have a smaller degree: 1 + m counts are taken away, and m are added. For another person in A's place both happen, which is at
most twice as much. All parts are :math:`\lfloor 2^{20} / q \rfloor` of :math:`2^{-20}`.

Rows that name nobody are not counted: a boss who leaves would move all reports there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dpgen.privacy.exact_sums import WHOLE, BoundedSum
from dpgen.systems.simplex_projection import project_to_simplex

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

OF_PAIRS, OF_DEGREES = "pairs of people by a key", "how many rows name a person"
GROUPS = 8
"""Groups of a column of people in a table of pairs."""
COUNTED = 6
"""k / m: so many times the most rows of a person are counted that name the same one."""
DEGREES = np.array([0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128])
"""The least number of each bin of degrees."""
_SURE = 2.0  # noise stds that a bin of degrees, or a share of rows that name nobody, must have
_ALL = 0.9  # share of rows that name somebody from which on all do: degrees are binned
_SAMPLE, _CYCLES, _OPEN, _HIGHEST, _CHUNK = 800, 12, 256, 12, 4096


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

    def drawn(self, codes: Integers, owner: Integers, generator: np.random.Generator) -> Integers:
        """The person that each row (r,) names, -1: none, of people with groups of codes (n, columns)."""
        own = {c: self.groups[c][codes[:, c]] for c in self.pairs}
        degrees, share = self._degrees(len(codes), len(owner), generator)
        sizes = {c: np.bincount(own[c], minlength=len(values)) for c, (values, _) in self.pairs.items()}
        shrunk = {c: _shrunk(values, std, sizes[c] / len(codes)) for c, (values, std) in self.pairs.items()}
        laws = {c: law for c, law in shrunk.items() if law is not None}
        factors, weights = _fitted(laws, own, owner, generator)
        chosen = np.argsort(-(np.log(np.maximum(weights, 1e-12)) + generator.gumbel(size=len(weights))), kind="stable")
        slots = np.zeros(len(codes), np.int64)
        slots[chosen] = np.r_[generator.permutation(degrees[degrees > 0]), np.zeros((degrees == 0).sum(), np.int64)]
        draw = _Choice(factors, own, weights, generator)
        if not self.number:
            return _tree(draw, slots, share, _ranks(laws, own, len(codes)), generator)
        found = draw.among(owner, slots)
        found[generator.random(len(owner)) >= share] = -1
        return found

    def _degrees(self, n: int, rows: int, generator: np.random.Generator) -> tuple[Integers, float]:
        """Numbers of rows (n,) that name a person, at least one, and the share of rows that name somebody."""
        values, std = self.degrees
        sure, ends = np.where(values > _SURE * std, values, 0.0), np.r_[DEGREES[1:], 2 * DEGREES[-1]]
        means = (DEGREES + ends - 1) / 2
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


def _shrunk(values: Reals, std: float, people: Reals) -> Reals | None:
    """Shares (g, g) of pairs; no more than noise is told from independence, and from all being named by their shares (g,)."""
    total = float(values.sum())
    if total <= std * len(values):
        return None
    rows, named = onto(values.sum(1), total), people * total
    named = onto(named + _kept(values.sum(0) - named, std * len(values) ** 0.5) * (values.sum(0) - named), total)
    alone = np.outer(np.maximum(rows, 1e-3 * total), np.maximum(named, 1e-6 * total)) / total
    found = onto(alone + _kept(values - alone, std) * (values - alone), total) + 1e-3 * alone
    return np.asarray(found / found.sum())


def _kept(apart: Reals, std: float) -> float:
    """The share of a difference that is kept: none below the noise, all from three times its variance on."""
    return float(np.clip(((apart**2).sum() / (apart.size * std**2) - 1) / 2, 0.0, 1.0))


def _fitted(
    laws: Mapping[int, Reals], own: Mapping[int, Integers], owner: Integers, generator: np.random.Generator
) -> tuple[dict[int, Reals], Reals]:
    """Factors (g, g) of each column whose product gives pairs of all laws, and how often each person (n,) is named then."""
    n = len(next(iter(own.values()))) if own else int(owner.max(initial=-1)) + 1
    factors = {c: np.ones_like(law) for c, law in laws.items()}
    if not laws or not len(owner):
        return factors, np.ones(n)
    left = generator.permutation(owner)[:_SAMPLE]
    right = generator.permutation(n)[:_SAMPLE]
    table = np.full((len(left), len(right)), 1.0 / (len(left) * len(right)))
    for _ in range(_CYCLES):
        for c, law in laws.items():
            a, b, size = own[c][left], own[c][right], len(law)
            share = np.bincount(a, minlength=size) / len(a)
            wanted = law / law.sum(1, keepdims=True) * share[:, None]
            there = np.zeros((size, len(right)))
            np.add.at(there, a, table)
            now = np.zeros((size, size))
            np.add.at(now.T, b, there.T)
            ratio = np.where(now > 0, wanted / np.maximum(now, 1e-12), 1.0).clip(0.01, 100.0)
            factors[c] = factors[c] * ratio
            table *= ratio[a[:, None], b[None]]
        table /= np.maximum(table.sum(1, keepdims=True), 1e-300) * len(left)
    norm = _product(factors, own, left, right).sum(1, keepdims=True)
    weights = np.concatenate(
        [(_product(factors, own, left, part) / norm).sum(0) for part in np.array_split(np.arange(n), -(-n // _CHUNK))]
    )
    return factors, weights / weights.mean()


def _product(factors: Mapping[int, Reals], own: Mapping[int, Integers], left: Integers, right: Integers) -> Reals:
    """Products (l, r) of the factors of all columns."""
    found = np.ones((len(left), len(right)))
    for c, factor in factors.items():
        found *= factor[own[c][left][:, None], own[c][right][None]]
    return found


@dataclass(frozen=True, eq=False)
class _Choice:
    """The law of whom a row names."""

    factors: Mapping[int, Reals]
    own: Mapping[int, Integers]
    weights: Reals  # how often the factors alone name each person (n,)
    generator: np.random.Generator

    def one(self, person: int, candidates: Integers) -> int:
        """The place of one of some people, who may be listed several times."""
        found = 1.0 / self.weights[candidates]
        for c, factor in self.factors.items():
            found = found * factor[self.own[c][person], self.own[c][candidates]]
        ends = found.cumsum()
        return int(min(np.searchsorted(ends, self.generator.random() * ends[-1], side="right"), len(ends) - 1))

    def among(self, owner: Integers, slots: Integers) -> Integers:
        """A person for each row (r,), not its own, by slots (n,) and by the factors; -1 where there is nobody else."""
        listed = np.repeat(np.arange(len(slots)), slots)
        found = np.full(len(owner), -1, np.int64)
        for rows in np.array_split(np.arange(len(owner)), -(-len(owner) // _CHUNK)) if len(owner) else ():
            chosen = self.generator.choice(listed, (len(rows), min(_OPEN, 4 * len(listed))))
            law = (1.0 / self.weights)[chosen] * (chosen != owner[rows][:, None])
            for c, factor in self.factors.items():
                law = law * factor[self.own[c][owner[rows]][:, None], self.own[c][chosen]]
            ends = law.cumsum(1)
            place = (ends < self.generator.random((len(rows), 1)) * ends[:, -1:]).sum(1).clip(0, chosen.shape[1] - 1)
            picked = chosen[np.arange(len(rows)), place]
            found[rows] = np.where((ends[:, -1] > 0) & (picked != owner[rows]), picked, -1)
        return found


def _ranks(laws: Mapping[int, Reals], own: Mapping[int, Integers], n: int) -> Reals:
    """How high each person (n,) stands: groups are ranked so that those who are named stand one above those who name them."""
    found = np.zeros(n)
    for c, law in laws.items():
        skew = law - law.T
        weight = np.abs(skew)
        system = np.diag(weight.sum(1)) - weight
        ranks = np.linalg.pinv(system) @ skew.sum(0)
        found += weight.sum() / 2 * ranks[own[c]]
    return found


def _tree(choice: _Choice, slots: Integers, share: float, ranks: Reals, generator: np.random.Generator) -> Integers:
    """The person above each (n,), -1: none; those with slots come first, from the top down, so that there is no circle."""
    n = len(slots)
    order = np.lexsort((generator.random(n), -ranks, slots == 0))
    roots = np.zeros(n, bool)
    roots[generator.permutation(order[1:])[: round(n * (1 - share))]] = True
    roots[order[0]] = True
    found, pool = np.full(n, -1, np.int64), np.empty(2 * n + int(slots.sum()) + 1, np.int64)
    begin = size = 0
    for person in order:
        if not roots[person]:
            if begin == size:  # more people than slots: those above have one more
                above = order[: max(1, int((slots > 0).sum()))]
                above = above[(found[above] >= 0) | roots[above]]
                above = above[above != person]
                pool[: len(above)], begin, size = above, 0, len(above)
            if slots[person]:  # under those who are highest, so that there are no more levels than there must be
                at = begin + np.arange(min(_HIGHEST, size - begin))
            else:
                at = begin + (generator.integers(0, size - begin, _OPEN) if size - begin > _OPEN else np.arange(size - begin))
            place = at[choice.one(person, pool[at])]
            found[person] = pool[place]
            pool[place] = pool[begin]
            begin += 1
        pool[size : size + slots[person]] = person
        size += int(slots[person])
    return found
