"""Rules of real rows that synthetic rows break: what looks absurd in a table, for the output of any package.

A rule is looked for in the real rows as they are, without noise. It is one if at most 1 % of them break it, also of those that
were held out where it was learnt from the others, and if it would be broken in `WORTH` of the rows were its columns
independent, 30 rows at least: with a probability of about 1e-5 a rule that does not hold seems to.

| rule | example |
|---|---|
| order of two numbers or times | admitted <= discharged |
| copy, multiple, offset, sum of two or of up to eight in a row, product of two | net + tax = gross |
| exactly one, or at most one, of truth values | one of is_red, is_green, is_blue |
| dependency on a column of up to 1,000 values, or on two | city -> region |
| gaps beside a gap or a value | births is missing where sex is M |
| values that never meet | sex M never beside pregnant yes |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.systems.tables.rule_kinds import chances_of_one, longest_groups, reaches, runs_beside

Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Reals = npt.NDArray[np.float64]

BROKEN = 0.01
"""Share of real rows that may break a rule."""
WORTH = 0.02
"""Share of rows in which independent columns would break it, at least."""
_LEAST = 30.0  # rows in which they would
_TIMES, _MORE = 3.0, 0.002  # by which more synthetic rows than real ones break a rule that is listed
_MOST_VALUES, _FEW, _MOST_NUMBERS, _MOST_COLUMNS = 1_000, 64, 24, 60
_MOST_TRIPLES, _BESIDE = 24, 20  # columns of dependencies on two, and rows beside a pair of values on average
_LISTED = 20  # rules of a sentence
_TRIED = 300  # rows that a total is tried on first
_NEVER = 20.0  # rows that independent columns would have of a pair of values that never meets


class Values(NamedTuple):
    """A column of the parts "own" and "held" (real rows) and "made" (synthetic ones).

    `numbers` are seconds since 1970 if `dates`, NaN for gaps; None: it has none. `codes` number the `size` values of own rows;
    `size` is any other value, -1 a gap. Of many values there are no `texts`.
    """

    numbers: Mapping[str, Reals] | None
    dates: bool
    codes: Mapping[str, Codes]
    size: int
    texts: Sequence[str]

    @classmethod
    def of(cls, read: Mapping[str, npt.NDArray[Any]], *, numeric: bool, dates: bool) -> Values:
        """Values of a column from those (n,) of each part, NaN or None for gaps."""
        known = pd.Index(pd.unique(pd.Series(read["own"]).dropna())).sort_values()
        codes = {}
        for part, values in read.items():
            found = known.get_indexer(pd.Index(values)).astype(np.int64)
            codes[part] = np.where(pd.isna(values), -1, np.where(found < 0, len(known), found))
        few = [*known] if len(known) <= _MOST_VALUES else []
        shown = [str(np.datetime64(int(x), "s"))[:10] if dates else f"{x:g}" if numeric else str(x) for x in few]
        return cls(read if numeric else None, dates, codes, len(known), shown)

    def few(self, most: int = _FEW) -> bool:
        """Whether it has two values or more, and few."""
        return 1 < self.size <= most

    @property
    def truth(self) -> Mapping[str, Flags] | None:
        """Whether values are true, or 1; None: it has others."""
        set_to = next((i for i, text in enumerate(self.texts) if text in ("True", "1", "1.0")), None)
        if set_to is None or self.size != 2 or self.texts[1 - set_to] not in ("False", "0", "0.0"):
            return None
        return {part: codes == set_to for part, codes in self.codes.items()}


Columns = Mapping[str, Values]
Test = Callable[[str], Flags]
"""Which rows of a part break a rule."""


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule that may hold: its columns, words for it, which rows break it, and how many by chance.

    `learnt`: from the own rows, so that only the others show whether it holds.
    """

    kind: str
    names: tuple[str, ...]
    text: str
    broken: Test
    chance: float
    learnt: bool = False

    def share(self, *parts: str) -> float:
        """Share of the rows of some parts that break it."""
        return float(np.mean(np.concatenate([self.broken(part) for part in parts])))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is a rule of the real rows."""
        seen = sizes["held"] + (0 if self.learnt else sizes["own"])
        if self.chance < WORTH or self.chance * seen < _LEAST:
            return False
        return all(self.share(part) <= BROKEN for part in ("own", "held") if sizes[part])


def broken_rules(columns: Columns) -> pd.DataFrame:
    """Rules of the real rows that more synthetic rows break, worst first: `rule`, and shares `real` and `synthetic`."""
    columns = dict([*columns.items()][:_MOST_COLUMNS])
    sizes = {part: len(codes) for part, codes in next(iter(columns.values())).codes.items()}
    kinds = (_totals, _orders, _groups, _dependencies, _on_two, _gaps, _never)
    rows, found, kept = list[tuple[str, float, float]](), list[Rule](), list[Rule]()
    for kind in kinds:
        own = [rule for rule in kind(columns) if rule.holds(sizes) and not _told(rule, found)]
        found += own
        kept += _once(own, found) if kind is _on_two else _shortest(own)
    for rule in kept:
        real, made = rule.share(*(["held"] if rule.learnt else ["own", "held"])), rule.share("made")
        if made > max(_TIMES * real, real + _MORE):
            rows.append((rule.text, real, made))
    rows.sort(key=lambda row: -row[2])
    return pd.DataFrame(rows, columns=["rule", "real", "synthetic"])


def said(rules: pd.DataFrame) -> tuple[str, ...]:
    """A sentence on rules that are broken, none if there are none."""
    listed = [f"{rule} ({made:.1%} of rows, real {real:.1%})" for rule, real, made in rules[:_LISTED].to_numpy().tolist()]
    more = f"; and {len(rules) - _LISTED} more" if len(rules) > _LISTED else ""
    return (f"Synthetic rows break rules that hold in the real ones: {'; '.join(listed)}{more}.",) if listed else ()


def _told(rule: Rule, found: Sequence[Rule]) -> bool:
    """Whether rules that were found before say as much: of the same two columns, or of truth values of a group."""
    if rule.kind == "on two":
        return _told_on_two(rule, found)
    return any(set(rule.names) <= set(other.names) and _as_much(other, rule.kind) for other in found)


def _as_much(other: Rule, kind: str) -> bool:
    """Whether a rule says as much as one of a kind would say of some of its columns."""
    if kind in ("order", "group"):
        return other.kind in ("total", "group")
    if other.kind == "total":
        return len(other.names) == 2
    return other.kind != "order" and (other.kind != "gap" or kind == "never")


def _told_on_two(rule: Rule, found: Sequence[Rule]) -> bool:
    """Whether the last column of a rule follows from one of the others by itself."""
    *on, last = rule.names
    ways = [other.names for other in found if other.kind == "follows"]
    tied = [{*other.names} for other in found if other.kind != "order"]
    return any(reaches(ways, end, last) or any({end, last} <= names for names in tied) for end in on)


def _shortest(rules: Sequence[Rule]) -> list[Rule]:
    """Without orders and dependencies that follow along a way of others."""
    kept = list(rules)
    for rule in rules if rules and rules[0].kind in ("order", "follows") else ():
        first, last = rule.names
        if reaches([other.names for other in kept if other is not rule], first, last):
            kept.remove(rule)
    return kept


def _once(rules: Sequence[Rule], found: Sequence[Rule]) -> list[Rule]:
    """One rule of the same columns, where columns of which each follows from the other are the same."""
    ways = [rule.names for rule in found if rule.kind == "follows"]
    kept = dict[frozenset[str], Rule]()
    for rule in rules:
        same = [min(end for _, end in [(name, name), *ways] if reaches(ways, name, end) and reaches(ways, end, name))
                for name in rule.names]  # fmt: skip
        kept.setdefault(frozenset(same), rule)
    return [*kept.values()]


# -- numbers -----------------------------------------------------------------------------------------------------------


def _orders(columns: Columns) -> Iterator[Rule]:
    numbers = _numbers(columns)
    for first, last in permutations(numbers, 2):
        if columns[first].dates != columns[last].dates:
            continue
        low, high = numbers[first], numbers[last]
        yield Rule("order", (first, last), f"{first} <= {last}", _above(low, high), _by_chance(_more, low["own"], high["own"]))


def _numbers(columns: Columns) -> dict[str, Mapping[str, Reals]]:
    return {name: values.numbers for name, values in columns.items() if values.numbers is not None and values.size > 2}


def _above(low: Mapping[str, Reals], high: Mapping[str, Reals]) -> Test:
    return lambda part: _more(low[part], high[part])


def _more(low: Reals, high: Reals) -> Flags:
    return np.asarray(low > high)


def _by_chance(broken: Callable[..., Flags], *values: Reals) -> float:
    """Share of rows that break a rule whose last column is moved to other rows."""
    *others, last = values
    return float(broken(*others, np.random.default_rng(0).permutation(last)).mean())


def _totals(columns: Columns) -> Iterator[Rule]:
    """Copies, multiples, offsets, sums and products."""
    numbers = _numbers(columns)
    names = [*numbers][:_MOST_NUMBERS]
    for total in names:
        for parts, form, text in _forms(columns, names, total):
            own = [numbers[name]["own"] for name in (*parts, total)]
            here = ~np.isnan(own).any(0)
            tried = [x[here][:_TRIED] for x in own]
            if len(tried[0]) < _LEAST:
                continue
            made = form(tried)
            if made is None or (test := _differs(made, _step(own[-1])))(*tried).mean() > 0.05:
                continue
            words = text.format(*parts, total=total, k=_number(made, columns[total].dates))
            broken = _of(test, [numbers[name] for name in (*parts, total)])
            yield Rule("total", (*parts, total), words, broken, _by_chance(test, *own))


def _of(test: Callable[..., Flags], numbers: Sequence[Mapping[str, Reals]]) -> Test:
    return lambda part: test(*(own[part] for own in numbers))


class _Made(NamedTuple):
    """A total as computed from its parts, and the constant in it."""

    compute: Callable[[Sequence[Reals]], Reals]
    k: float = 0.0


Form = Callable[[Sequence[Reals]], _Made | None]


def _forms(columns: Columns, names: Sequence[str], total: str) -> Iterator[tuple[tuple[str, ...], Form, str]]:
    """Parts of a total, how it may be computed from them, by values of the parts and of itself, and words for it."""
    dates = columns[total].dates
    alike = [name for name in names if columns[name].dates == dates]
    place = alike.index(total)
    for name in alike[:place]:
        yield (name,), _offset, "{total} = {0}{k}"
        if not dates:
            yield (name,), _multiple, "{total} = {k} {0}"
    if dates:
        return
    others = [*alike[:place], *alike[place + 1 :]]
    for pair in combinations(others, 2):
        yield pair, _sum, "{0} + {1} = {total}"
        yield pair, _product, "{0} * {1} = {total}"
    for parts in runs_beside(names, names.index(total)):
        if set(parts) <= set(others):
            yield parts, _sum, " + ".join(f"{{{i}}}" for i in range(len(parts))) + " = {total}"


def _sum(_: Sequence[Reals]) -> _Made:
    return _Made(lambda parts: np.asarray(np.sum(parts, axis=0)))


def _product(_: Sequence[Reals]) -> _Made:
    return _Made(lambda parts: parts[0] * parts[1])


def _offset(values: Sequence[Reals]) -> _Made:
    k = float(np.median(values[1] - values[0]))
    return _Made(lambda parts: parts[0] + k, k)


def _multiple(values: Sequence[Reals]) -> _Made | None:
    told = values[0] != 0
    if not told.any() or (k := float(f"{np.median(values[1][told] / values[0][told]):.6g}")) in (0.0, 1.0):
        return None
    return _Made(lambda parts: k * parts[0], k)


def _differs(made: _Made, step: float) -> Callable[..., Flags]:
    """Totals that differ from what is computed by more than they are rounded."""

    def test(*values: Reals) -> Flags:
        *parts, total = values
        wanted = made.compute(parts)
        return np.asarray(np.abs(wanted - total) > 1.01 * step + 1e-9 * np.abs(total))

    return test


def _step(values: Reals) -> float:
    """The step that numbers are rounded to, at most 1; 1e-6 times their size where they are not."""
    there = values[np.isfinite(values)][: 10 * _TRIED]
    for places in range(6):
        if np.allclose(there, there.round(places), rtol=1e-12, atol=1e-9):
            return float(10.0**-places) if (there != there.round()).any() else 0.5
    return 1e-6 * float(np.abs(there).max(initial=0.0))


def _number(made: _Made, dates: bool) -> str:
    """The constant of an offset or of a multiple in words."""
    if dates:
        return f" + {made.k / 86_400:g} days" if made.k else ""
    return f"{made.k:g}" if made.k else ""


# -- values ------------------------------------------------------------------------------------------------------------


def _groups(columns: Columns) -> Iterator[Rule]:
    """Truth values beside each other, or of one prefix, of which one is set, or one at most; the longest first."""
    truth = {name: told for name, values in columns.items() if (told := values.truth) is not None}
    held = list[set[str]]()
    for names in sorted(longest_groups([*columns], truth).groups(), key=len, reverse=True):
        if not any(set(names) <= there for there in held) and (rule := _group(names, [truth[name] for name in names])):
            held.append({*names})
            yield rule


def _group(names: tuple[str, ...], truth: Sequence[Mapping[str, Flags]]) -> Rule | None:
    """The rule that one of truth values is set, or one at most; None: it does not hold in own rows."""
    own = np.stack([values["own"] for values in truth])
    count = own.sum(0)
    exactly = (count != 1).mean() <= BROKEN
    if (count > 1).mean() > BROKEN or (not exactly and (count == 1).mean() < WORTH):
        return None
    one, none = chances_of_one(own.mean(1))

    def broken(part: str) -> Flags:
        count = np.sum([values[part] for values in truth], axis=0)
        return np.asarray(count != 1 if exactly else count > 1)

    words = f"{'one' if exactly else 'at most one'} of {', '.join(names)}"
    return Rule("group", names, words, broken, 1 - one if exactly else 1 - one - none)


def _table(a: Values, b: Values) -> Codes:
    """Counts (a, b + 2) of own rows whose first value is there; the last two codes are other values and gaps."""
    there = a.codes["own"] >= 0
    cells = a.codes["own"][there] * (b.size + 2) + b.codes["own"][there] % (b.size + 2)
    return np.bincount(cells, minlength=a.size * (b.size + 2)).reshape(a.size, b.size + 2)


def _dependencies(columns: Columns) -> Iterator[Rule]:
    few = {name: values for name, values in columns.items() if values.few(_MOST_VALUES)}
    for (first, a), (last, b) in permutations(few.items(), 2):
        yield from _learnt("follows", (first, last), a, b)


def _learnt(kind: str, names: tuple[str, ...], a: Values, b: Values) -> Iterator[Rule]:
    """Rule that each value of a has one of b, the likeliest in own rows, if this holds there."""
    counts = _table(a, b)
    of_b = counts.sum(0)
    if of_b.sum() and counts.max(1).sum() >= (1 - BROKEN) * of_b.sum():
        likely, (*first, last) = counts.argmax(1), names
        chance = float((counts.sum(1) / of_b.sum()) @ (1 - of_b[likely] / of_b.sum()))
        yield Rule(kind, names, f"{', '.join(first)} -> {last}", _of_table(a, b, likely), chance, learnt=True)


def _on_two(columns: Columns) -> Iterator[Rule]:
    """Dependencies on two columns together, with enough rows beside each pair of values."""
    few = {name: values for name, values in [*columns.items()][:_MOST_TRIPLES] if values.few()}
    for (first, a), (second, b) in combinations(few.items(), 2):
        there = {part: (codes >= 0) & (b.codes[part] >= 0) for part, codes in a.codes.items()}
        cells = {part: np.where(own, a.codes[part] * (b.size + 1) + b.codes[part], -1) for part, own in there.items()}
        size = (a.size + 1) * (b.size + 1)
        if size * _BESIDE > len(cells["own"]):
            continue
        both = Values(None, False, {part: np.minimum(own, size) for part, own in cells.items()}, size, ())
        for last, c in few.items():
            if last in (first, second):
                continue
            yield from _learnt("on two", (first, second, last), both, c)


def _of_table(a: Values, b: Values, likely: Codes) -> Test:
    def broken(part: str) -> Flags:
        rows, found = a.codes[part], b.codes[part] % (b.size + 2)
        listed = (rows >= 0) & (rows < a.size)
        return np.asarray(listed & (likely[np.where(listed, rows, 0)] != found))

    return broken


def _gaps(columns: Columns) -> Iterator[Rule]:
    """Gaps of a column beside gaps of another one, or beside one of its values."""
    absent = {name: {part: codes < 0 for part, codes in values.codes.items()} for name, values in columns.items()}
    own, names = {name: float(gaps["own"].mean()) for name, gaps in absent.items()}, [*columns]
    for first, last in permutations(names, 2):
        if own[last] < WORTH:
            continue
        for words, there in _beside(columns[first], absent[first]):
            share = float(there["own"].mean())
            both = bool((there["own"] != absent[last]["own"]).mean() <= BROKEN)
            if both and there is absent[first] and names.index(first) > names.index(last):
                continue  # said the other way round
            chance = share * (1 - own[last]) + both * own[last] * (1 - share)
            text = f"{last} is missing {'just ' * both}where {first} is {words}"
            yield Rule("gap", (first, last), text, _of_gaps(there, absent[last], both=both), chance)


def _beside(values: Values, absent: Mapping[str, Flags]) -> Iterator[tuple[str, Mapping[str, Flags]]]:
    """Words for a gap and for each of few values, and which rows have it."""
    if absent["own"].mean() >= WORTH:
        yield "missing", absent
    for i, text in enumerate(values.texts if values.few() else ()):
        yield text, {part: codes == i for part, codes in values.codes.items()}


def _of_gaps(there: Mapping[str, Flags], absent: Mapping[str, Flags], *, both: bool) -> Test:
    return lambda part: there[part] != absent[part] if both else there[part] & ~absent[part]


def _never(columns: Columns) -> Iterator[Rule]:
    """Values of two columns that never meet."""
    few = {name: values for name, values in columns.items() if values.few()}
    for (first, a), (last, b) in combinations(few.items(), 2):
        counts = _table(a, b)[:, :-2]
        expected = np.outer(counts.sum(1), counts.sum(0)) / max(1, counts.sum())
        never = (counts == 0) & (expected >= _NEVER)
        if not never.any():
            continue
        often = sorted(zip(*np.nonzero(never)), key=lambda cell: -float(expected[cell]))
        shown = ", ".join(f"{first} {a.texts[i]} beside {last} {b.texts[j]}" for i, j in often[:2])
        words = f"never {shown}" + (f" and {len(often) - 2} other pairs" if len(often) > 2 else "")
        chance = float(expected[never].sum() / len(a.codes["own"]))
        yield Rule("never", (first, last), words, _of_pairs(a, b, never), chance, learnt=True)


def _of_pairs(a: Values, b: Values, never: Flags) -> Test:
    def broken(part: str) -> Flags:
        rows, found = a.codes[part], b.codes[part]
        there = (rows >= 0) & (rows < a.size) & (found >= 0) & (found < b.size)
        return np.asarray(there & never[np.where(there, rows, 0), np.where(there, found, 0)])

    return broken
