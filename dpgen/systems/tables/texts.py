r"""Texts of which few values are frequent, bought: whether they repeat, their patterns, and the first characters of these.

One row has one value, one pattern (`dpgen.columns.writings.codes`) and one cell of first characters at most:

| part | what is released | one row moves it by |
|---|---|---|
| patterns | patterns of texts without a name whose noisy count passes a threshold, see `FrequentCounts` | 1 in one count |
| repeated values | how many rows there are beyond one for each value | 1 |
| first characters | how many texts without a name begin so, of each pattern: with up to three, with one | 1 in one cell |

A row more adds 1 to the rows, and 1 or nothing to the values that occur: their difference moves by 0 or 1. A row that is
replaced moves the number of values by 1 at most, and no rows.

Texts that repeat are categories: frequent values, then first characters, then patterns that hold more than noise. Those that do
not are keys, where they have one pattern, else they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from dpgen.columns.forms import TOLD, texts_of
from dpgen.columns.writings.codes import Pattern, pattern_of, prefixes, root_of, trailing
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.tables.domains import NAMES, cells

if TYPE_CHECKING:
    from dpgen.data.raw_tables import Rows
    from dpgen.privacy.curator import GaussianBudget

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Texts = npt.NDArray[Any]

REPEATED, PREFIXES = "repeated values", "first characters"
OF_SHAPES, OF_REPEATED, OF_PREFIXES, OF_FIXED = 0.2, 0.08, 0.3, 0.07
"""Shares of what a text of which few values are frequent gets beside that of its names: patterns, which may be bought twice,
repeated values, first characters, and these of each pattern up to three times to see what most of its texts have."""
REPEATS = 0.01
"""Share of the values that repeat, from which on a column is no key."""
MOST_REPEATS = 0.3
"""Share of the values whose repeats noise may hide of a key."""
MOST = 0.9
"""Share of the texts of a pattern whose first characters are a part of it."""
_MOST_FIXED = 3  # times
_MOST_ROOTS = 8  # patterns of a column
_MOST_CODES = 0.5  # share of the named values that look like codes


def are_codes(texts: Texts, counts: Integers) -> bool:
    """Whether frequent values look like codes: then the others may do so, too."""
    like = np.array([bool(pattern_of(str(text), classed=True)) for text in texts], bool)
    return bool(len(texts)) and float(counts[like].sum()) >= _MOST_CODES * float(counts.sum())


def key_of(pattern: str) -> str:
    """A pattern as the `dpgen:key` of a field."""
    return trailing(pattern) or pattern


def repeated(counts: Integers) -> BoundedSum:
    """Number of rows beyond one for each value, of the rows of all values (k,)."""
    return BoundedSum(torch.tensor(int(counts.sum()) - len(counts)), 1.0, replaced=1.0)


def patterns_of(values: pd.Series, listed: Sequence[Any] = (), *, classed: bool = False) -> Texts:
    """The patterns (m,) of texts that are there and not listed; those without one are left out."""
    texts = pd.Series(texts_of(values), dtype=object)
    place, different = pd.factorize(texts[~texts.isin(listed)])
    made = np.array([pattern_of(text, classed=classed) for text in different], object)[place]
    return made[made != ""]


def first_cells(values: pd.Series, listed: Sequence[Any], roots: tuple[str, ...], *, classed: bool, flat: bool) -> Integers:
    """The cell (m,) of the first characters of each text that is there, -1 for those listed and those without a root.

    `flat`: of the first one alone.
    """
    starts = np.cumsum([0, *(sizes(root)[flat] for root in roots)]).tolist()
    of, names = {root_of(root, classed=classed): (at, Pattern(root)) for root, at in zip(roots, starts)}, set(listed)

    def cell(text: str) -> int:
        start, own = of.get("" if text in names else pattern_of(text, classed=classed), (0, None))
        if own is None or not own.fits(text):
            return -1
        return start + own.cell(text) // (own.cells // sizes(own.text)[1] if flat else 1)

    place, different = pd.factorize(texts_of(values))
    return np.array([*map(cell, different), -1], np.int64)[place]


@cache
def sizes(root: str) -> tuple[int, int]:
    """Numbers of first characters of a pattern that are counted, and of first ones alone."""
    own = Pattern(root)
    return own.cells, len(own.places[own.first[0]]) if own.first else 1


@dataclass(frozen=True, eq=False)
class Shapes:
    """Patterns that hold more than noise, with their noisy counts (k,) and noise std; `classed`: letters are classes."""

    roots: tuple[str, ...]
    counts: Reals
    std: float
    classed: bool

    @property
    def covered(self) -> float:
        """Noisy number of texts that have one of them."""
        return float(self.counts.sum())

    def in_words(self, total: float) -> str:
        """Findings on a column."""
        if not self.roots:
            return "texts of which few are alike, and no pattern that many of them have"
        best = int(self.counts.argmax())
        share = f"{100 * min(1.0, self.counts[best] / max(total, 1.0)):.0f}"
        return f"texts of which few repeat, about {share} % (± {100 * self.std / max(total, 1.0):.1g}) like {self.roots[best]}"


def shapes(table: Rows, name: str, listed: Texts, rest: float, budget: GaussianBudget, share: float) -> Shapes:
    """Frequent patterns of texts without a name: with their letters, or with classes where these hold less than half."""
    for classed in (False, True):
        read = partial(patterns_of, listed=listed.tolist(), classed=classed)
        found = table.column(name, read).different()
        places, noisy, std, _ = budget.frequent(f"{NAMES} of {name}", found.counts, share)
        roots = [str(root) for root in found.named(places)]
        kept = [i for i in np.argsort(-noisy, kind="stable")[:_MOST_ROOTS] if Pattern(roots[i]).free and roots[i] not in listed]
        made = Shapes(tuple(roots[i] for i in kept), noisy[kept].astype(np.float64), std, classed)
        if made.covered >= rest / 2:
            break
    return made


@dataclass(frozen=True, eq=False)
class Firsts:
    """Buys first characters of a column's patterns."""

    table: Rows
    name: str
    listed: list[str]
    budget: GaussianBudget

    def counted(self, codes: Shapes, share: float, *, flat: bool) -> tuple[list[Reals], float]:
        """Noisy counts of the first characters of each pattern, and their noise std."""
        ends = np.cumsum([sizes(root)[flat] for root in codes.roots])
        read = partial(first_cells, listed=self.listed, roots=codes.roots, classed=codes.classed, flat=flat)
        values = self.table.column(self.name, read)
        noisy, std = self.budget.sums(f"{PREFIXES} of {self.name}", cells(values, lambda c: c, int(ends[-1])), share)
        return np.split(noisy.numpy(), ends[:-1]), std

    def fixed(self, codes: Shapes, share: float) -> Shapes:
        """The patterns with the first characters that most of the texts of one have."""
        for _ in range(_MOST_FIXED):
            counts, _ = self.counted(codes, share, flat=False)
            roots = tuple(_begun(root, own, count) for root, own, count in zip(codes.roots, counts, codes.counts))
            if roots == codes.roots:
                break
            codes = replace(codes, roots=roots)
        return codes

    def _begun(self, codes: Shapes, share: float) -> Iterator[tuple[str, float, float]]:
        """Beginnings of patterns, and what is left of these, with noisy counts and noise stds."""
        (deep, deep_std), (flat, flat_std) = (self.counted(codes, share / 2, flat=one) for one in (False, True))
        for root, count, below, first in zip(codes.roots, codes.counts, deep, flat):
            begun = prefixes(Pattern(root), (below, deep_std), (first, flat_std))
            yield from ((one.pattern, one.count, one.variance**0.5) for one in begun)
            left = float(count) - sum(one.count for one in begun)
            variance = codes.std**2 + sum(one.variance for one in begun)
            if left > TOLD * variance**0.5:
                yield root, left, variance**0.5

    def all(
        self, texts: Texts, named: tuple[Reals, float], codes: Shapes, share: float
    ) -> tuple[list[str], Reals, Reals, list[str]]:
        """Values with noisy counts and noise stds (k,): frequent ones, then patterns and beginnings of them; and these."""
        made = [*self._begun(codes, share)]
        alone = [("".join(Pattern(text).places), count, std) for text, count, std in made if not Pattern(text).free]
        found = [(text, float(count), named[1]) for text, count in zip(texts.tolist(), named[0])]
        found += [one for one in alone if one[0] not in self.listed]
        patterns = [one for one in made if Pattern(one[0]).free and one[0] not in self.listed]
        labels, sums, stds = zip(*found, *patterns) if found or patterns else ((), (), ())
        return list(labels), np.array(sums, np.float64), np.array(stds, np.float64), [text for text, *_ in patterns]


def _begun(root: str, counts: Reals, count: float) -> str:
    own, best = Pattern(root), int(counts.argmax())
    return own.begun(best, len(own.first)) if counts[best] >= MOST * count and len(own.first) < len(own.free) else root
