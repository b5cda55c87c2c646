"""Rules between successive rows of one person, which real rows keep, and how many synthetic people keep them.

| rule | example | who is looked at |
|---|---|---|
| never falls, never rises | the number of a visit, age | people with two values or more |
| never changes | sex in all rows | the same |
| one state is never followed by another one | dead, then admitted | people who have the first state, with a row after it |
| a state is always last | churn | people who have the state |

Rows of one time have no order: a rule is broken by rows of two times alone. A rule is one if at least 99 % of the real people
who are looked at keep it, and if `WORTH` of them, `NEVER` people at least, would break it were rows dealt to people at random:
so hardly a rule that does not hold seems to. It is looked for in the real rows as they are, without noise: scores are not for
publication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.data.linked import LinkedTables
from dpgen.evaluation.rules import BROKEN, WORTH
from dpgen.evaluation.scores import Score
from dpgen.evaluation.timelines import MOST_STATES, STATES_DEALT, LinkedFrames, Numbers

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Kept = tuple[Flags, Flags]
"""Which people (n,) are looked at, and which of them break a rule."""

KEEP = "people who keep: "
"""The beginning of the names of these scores."""
NEVER = 20.0
"""Real people who would break a rule by chance, at least."""
LISTED = 20
"""Rules of a table of rows that are listed, those first that most synthetic people break."""
_COLUMNS = 40  # of a table that are looked at


@dataclass(frozen=True)
class Rule:
    """A rule in words, and which people of a data set are looked at and break it."""

    text: str
    check: Callable[[LinkedFrames], Kept]

    def share(self, part: LinkedFrames) -> tuple[float, int]:
        """Share of the people who are looked at who keep the rule, NaN of nobody, and how many they are."""
        asked, broken = self.check(part)
        count = int(asked.sum())
        return (1.0 - float(broken[asked].mean()) if count else float("nan")), count


@dataclass(frozen=True)
class Found:
    """A rule of real rows: shares of real, synthetic, held-out (None: there are none) and dealt people who keep it."""

    rule: str
    real: float
    synthetic: float
    held: float | None
    dealt: float


def successive_rules(data: LinkedTables, made: LinkedTables, seed: int = 0) -> list[Found]:
    """Rules between successive rows that real people keep, those first that fewest synthetic people keep.

    Tables without an order have none. A share is NaN where no synthetic person has what the rule is about.
    """
    found = list[Found]()
    for number in range(1, len(data.tables) + 1):
        own, other = LinkedFrames.of(data, number), LinkedFrames.of(made, number)
        if own.order is None or not len(own.befores):
            continue
        held = None if data.test is None else LinkedFrames.of(data.test, number)
        dealt = replace(own, rows=own.rows.iloc[np.random.default_rng(seed).permutation(len(own.rows))].reset_index(drop=True))
        listed = [_found(rule, own, other, held, dealt) for rule in _rules(own)]
        some = [one for one in listed if one is not None]
        found += sorted(some, key=lambda one: (np.nan_to_num(one.synthetic, nan=2.0), one.rule))[:LISTED]
    return found


def successive_scores(data: LinkedTables, made: LinkedTables, seed: int) -> list[Score]:
    """The shares of `successive_rules` as scores, beside those of held-out people, or of the real ones without these."""
    return [
        Score(
            KEEP + one.rule,
            one.synthetic,
            real=one.real if one.held is None else one.held,
            chance=one.dealt,
            baseline=STATES_DEALT,
        )
        for one in successive_rules(data, made, seed)
        if not np.isnan(one.synthetic)
    ]


def _found(rule: Rule, own: LinkedFrames, other: LinkedFrames, held: LinkedFrames | None, dealt: LinkedFrames) -> Found | None:
    """The shares of a rule; None: real people do not keep it, are too few, or keep it by chance."""
    real, _ = rule.share(own)
    by_chance, count = rule.share(dealt)
    if not (real >= 1 - BROKEN and by_chance <= 1 - WORTH and count * (1 - by_chance) >= NEVER):
        return None
    of_held, held_count = (float("nan"), 0) if held is None else rule.share(held)
    return Found(rule.text, real, rule.share(other)[0], of_held if held_count else None, by_chance)


# -- rules -------------------------------------------------------------------------------------------------------------


def _rules(own: LinkedFrames) -> Iterator[Rule]:
    """Rules that may hold, of the columns of real rows but those of time."""
    for column in [name for name in own.rows if name not in own.timing][:_COLUMNS]:
        values, called = own.rows[column].dropna(), f"{own.name}.{column}"
        constant = Rule(f"{called} never changes", partial(_changes, column=column))
        yield constant
        numbers = Numbers.of(values)
        if numbers is not None and constant.share(own)[0] < 1 - BROKEN:
            for way, says in ((1, "falls"), (-1, "rises")):
                yield Rule(f"{called} never {says}", partial(_turns, column=column, ways=numbers, way=way))
        states = sorted(pd.unique(_texts(values)))
        if 1 < len(states) <= MOST_STATES:
            yield from _of_states(own, column, called, states)


def _of_states(own: LinkedFrames, column: str, called: str, states: Sequence[str]) -> Iterator[Rule]:
    """Rules of the states of a column: one that is always last has no others."""
    for state in states:
        last = Rule(f"{called} {state} is always last", partial(_goes_on, column=column, state=state))
        yield last
        if last.share(own)[0] < 1 - BROKEN:
            for then in states:
                text = f"{called} {state} is never followed by {'itself' if then == state else then}"
                yield Rule(text, partial(_followed, column=column, state=state, then=then))


def _people(part: LinkedFrames, rows: Integers) -> Flags:
    """Which people have one of some rows."""
    return np.bincount(part.owner[rows], minlength=len(part.starts) - 1) > 0


def _pairs(part: LinkedFrames, there: Flags) -> tuple[Integers, Integers]:
    """Successive rows of those that are `there` (r,), of one person and of two times: the earlier and the later ones."""
    rows = np.flatnonzero(there)
    same = (part.owner[rows[:-1]] == part.owner[rows[1:]]) & (part.times[rows[:-1]] != part.times[rows[1:]])
    return rows[:-1][same], rows[1:][same]


def _column(part: LinkedFrames, column: str) -> pd.Series:
    """A column of rows; all gaps where there is none."""
    return part.rows[column] if column in part.rows else pd.Series([None] * len(part.rows), dtype=object)


def _texts(values: pd.Series) -> pd.Series:
    """Values as texts, None for gaps: 1 and 1.0 are one value."""
    numeric = values.dtype.kind in "iuf"
    return values.map(lambda value: None if pd.isna(value) else f"{value:.15g}" if numeric else str(value)).astype(object)


def _changes(part: LinkedFrames, *, column: str) -> Kept:
    codes, _ = pd.factorize(_texts(_column(part, column)))
    before, after = _pairs(part, codes >= 0)
    return _people(part, before), _people(part, before[codes[before] != codes[after]])


def _turns(part: LinkedFrames, *, column: str, ways: Numbers, way: int) -> Kept:
    numbers = ways.read(_column(part, column))
    before, after = _pairs(part, np.isfinite(numbers))
    return _people(part, before), _people(part, before[way * (numbers[after] - numbers[before]) < 0])


def _states(part: LinkedFrames, column: str) -> npt.NDArray[np.object_]:
    return _texts(_column(part, column)).fillna("").to_numpy(object)


def _goes_on(part: LinkedFrames, *, column: str, state: str) -> Kept:
    having = np.flatnonzero(_states(part, column) == state)
    last = part.starts[part.owner[having] + 1] - 1
    return _people(part, having), _people(part, having[part.times[having] != part.times[last]])


def _followed(part: LinkedFrames, *, column: str, state: str, then: str) -> Kept:
    states = _states(part, column)
    before, after = _pairs(part, np.ones(len(states), bool))
    first = states[before] == state
    return _people(part, before[first]), _people(part, before[first & (states[after] == then)])
