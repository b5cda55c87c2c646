"""Raw tables: forms and steps of values, names of frequent ones with their counts, scales and bins of numbers."""

from decimal import Decimal
from functools import partial, reduce
from typing import Any

import numpy as np
import pandas as pd
import torch
from conformance import Law, LawRow, SumRow, pairs_of
from dp_accounting import ComposedDpEvent
from scipy.stats import norm

from dpgen.columns.axes import Floats, Steps, Times, steps, steps_of
from dpgen.columns.descriptors import field_of
from dpgen.columns.votes import size, votes
from dpgen.privacy.curator import THRESHOLD
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import Relation, for_rows
from dpgen.privacy.selection import FrequentCounts
from dpgen.systems.tables.discovery import FORM, RARE, STEP, truths_of, units_of, unnamed_of
from dpgen.systems.tables.domains import (
    BINS,
    DIGITS,
    GAP,
    NAMES,
    PREFIXES,
    REPEATED,
    SCALE,
    cells,
    first_cells,
    in_parts,
    in_period,
    on_scale,
    repeated,
    sizes,
)

TEXTS = np.array(
    ["", "a", "007", "true", 1, "20", 1.5, "0.25", "2020-01-02", "2020-01-02 10:30", True, pd.Timestamp(0), "1,5", "3/4/2023"],
    object,
)
FORMS_OF = pairs_of(lambda rng, n: TEXTS[rng.integers(0, len(TEXTS), (n, 1))])
NUMBERS = pairs_of(lambda rng, n: rng.normal(0, 10.0 ** rng.integers(-2, 4), (n, 1)).round(2))
CODES = pairs_of(lambda rng, n: np.array(["", "007", "018", "123", "J18.9", "J18.1", "a"], object)[rng.integers(0, 7, (n, 1))])
LETTERS = pairs_of(lambda rng, n: rng.integers(0, 3, (n, 1)))
STD, DELTA, MOST = 2.0, 0.01, 60


def form_counts(x: np.ndarray) -> BoundedSum:
    """The forms of values, "" for a gap."""
    return cells(votes(pd.Series(x[:, 0]).replace("", None), "any"), lambda found: found, size())


def step_counts(x: np.ndarray) -> BoundedSum:
    """The steps of numbers."""
    return cells(steps(pd.Series(x[:, 0]), "number"), lambda found: found, len(steps_of("number")))


def forms_twice(x: np.ndarray) -> BoundedSum:
    """Wrong: a value is counted in the cell of its form and in that of the finer type, for the price of one of them."""
    once = form_counts(x)
    return BoundedSum(torch.cat([once.values, step_counts(x).values]), once.sensitivity, replaced=once.replaced)


def rare_counts(x: np.ndarray) -> BoundedSum:
    """Gaps of texts, and those without a name."""
    return cells(unnamed_of(pd.Series(x[:, 0]).replace("", None), np.array(["1", "true"], object)), lambda found: found, 2)


def truth_counts(x: np.ndarray) -> BoundedSum:
    """Gaps and truth values."""
    field = field_of({"name": "x", "type": "boolean"})
    return cells(truths_of(pd.Series(x[:, 0]).replace("", None), field), lambda found: found, 3)


def scale_counts(x: np.ndarray) -> BoundedSum:
    """The cells of the scale."""
    edges, units = Floats().scale(), units_of(pd.Series(x[:, 0]), Floats(), "number", gaps=True)
    return cells(units, partial(on_scale, edges=edges, frequent=np.zeros(0, np.int64)), len(edges) - 1)


def bin_counts(x: np.ndarray) -> BoundedSum:
    """Gaps, and parts of a range with a frequent value, whole numbers."""
    starts = np.array([-8, 0, 1, 8, 64])
    return cells(np.rint(x[:, 0]).astype(np.int64), partial(in_parts, starts=starts), len(starts))


def digit_counts(x: np.ndarray) -> BoundedSum:
    """The last digits of whole numbers that are not frequent."""
    (digits,) = Steps(Decimal(1), whole=True).digits(99.0)
    units = np.append(np.rint(x[:, 0]).astype(np.int64), GAP)
    return cells(units, partial(in_period, digits=digits, side=0, frequent=np.array([0])), len(digits.weights))


def time_counts(x: np.ndarray, *, side: int) -> BoundedSum:
    """Days of the week, or hours of the day, of times that are not frequent."""
    week, _ = Times(3600, days=False).digits(24.0)
    units = np.append(np.rint(x[:, 0]).astype(np.int64), GAP)
    return cells(units, partial(in_period, digits=week, side=side, frequent=np.array([0])), week.sides[side])


def repeated_values(x: np.ndarray) -> BoundedSum:
    """Rows beyond one for each value."""
    return repeated(np.unique(x[:, 0], return_counts=True)[1])


def shared_values(x: np.ndarray) -> BoundedSum:
    """Wrong: rows whose value another one has, of which a second one of a value makes two."""
    counts, right = np.unique(x[:, 0], return_counts=True)[1], repeated_values(x)
    return BoundedSum(torch.tensor(int(counts[counts > 1].sum())), right.sensitivity, replaced=right.replaced)


def first_counts(x: np.ndarray, *, flat: bool = False) -> BoundedSum:
    """The first characters of texts of two patterns, of which one has a name."""
    roots = (r"\d\d\d", r"[A-Z]\d\d\.\d")
    found = first_cells(pd.Series(x[:, 0]).replace("", None), ["007"], roots, classed=True, flat=flat)
    return cells(found, lambda codes: codes, sum(sizes(root)[flat] for root in roots))


def levels_once(x: np.ndarray) -> BoundedSum:
    """Wrong: a part and those it is cut into as one histogram, though a row is in a cell of each."""
    parts = bin_counts(x)
    outer = cells(x[:, 0], lambda values: np.digitize(values, [0, 8, 64]), 4)
    return BoundedSum(torch.cat([parts.values, outer.values]), parts.sensitivity, replaced=parts.replaced)


def one_more(first: Any, other: Any) -> Any:
    """A record at `first` and one at `other`, which is left out or moved to `first`."""
    both, plain = np.array([[first], [other]]), np.array([[first]])
    return lambda relation: (both, plain if relation == "add_remove" else np.concatenate([plain, plain]))


def again(relation: Relation) -> Any:
    """A value that is there twice, or once beside another one."""
    return np.array([[0], [0]]), np.array([[0]]) if relation == "add_remove" else np.array([[0], [1]])


def named(delta: float = DELTA, rows: int = 1) -> Any:
    """The law of the released values of three letters with their noisy counts, up to the largest, and its price."""

    def of_letter(count: int, mechanism: FrequentCounts) -> np.ndarray:
        ends = mechanism.threshold + np.arange(MOST) - 0.5
        if not count:
            return np.r_[0.0, np.full(MOST, -np.inf)]
        above = norm.logsf((ends - count) / STD)
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.nan_to_num(above[:-1] + np.log1p(-np.exp(above[1:] - above[:-1])), nan=-np.inf, neginf=-np.inf)
        return np.r_[norm.logcdf((ends[0] - count) / STD), inner, above[-1]]

    def law(x: np.ndarray, relation: Relation) -> Law:
        counts = np.bincount(x[:, 0], minlength=3)
        mechanism = FrequentCounts(counts[counts > 0], STD, delta, rows, relation)
        logs = reduce(np.add.outer, [of_letter(int(count), mechanism) for count in counts]).ravel()
        return Law(ComposedDpEvent([for_rows(mechanism.event, rows), mechanism.failure]), logs)

    return law


def without_delta(x: np.ndarray, relation: Relation) -> Law:
    """A threshold that one record alone passes half of the time."""
    law = named(0.45)(x, relation)
    price = ComposedDpEvent([law.event.events[0], FrequentCounts(np.array([1]), STD, DELTA, 1, relation).failure])
    return Law(price, law.log_probabilities)


def alone(relation: Relation) -> Any:
    few = np.array([[0]])
    return np.array([[0], [1]]), few if relation == "add_remove" else np.array([[0], [2]])


def many(relation: Relation) -> Any:
    """So many records of a value, or of two, that all counts are released."""
    if relation == "add_remove":
        return np.zeros((30, 1), int), np.zeros((29, 1), int)
    half = np.repeat([[0], [1]], 30, axis=0)
    return np.append(half, [[0]], axis=0), np.append(half, [[1]], axis=0)


_EQUAL = "equal rows that come in the place of others repeat each other"
_BOTH = "the counts and the names are of different values, and no pair moves both"

ROWS = [
    SumRow("tables", (f"{FORM} of *",), FORMS_OF, one_more("a", "1.5"), sums=form_counts),
    SumRow("tables", (f"{STEP} of *",), NUMBERS, one_more(1.0, 0.25), sums=step_counts),
    SumRow("tables", (f"{RARE} of *",), FORMS_OF, one_more("a", ""), sums=rare_counts),
    SumRow("tables", (f"{RARE} of *",), FORMS_OF, one_more("true", "a"), sums=truth_counts),
    SumRow("tables", (f"{REPEATED} of *",), LETTERS, again, sums=repeated_values, reaches=0.33, why=_EQUAL),
    SumRow("tables", (f"{PREFIXES} of *",), CODES, one_more("018", "J18.9"), sums=first_counts),
    SumRow("tables", (f"{PREFIXES} of *",), CODES, one_more("018", "J18.9"), sums=partial(first_counts, flat=True)),
    SumRow("tables", (f"{SCALE} of *",), NUMBERS, one_more(1.0, -300.0), sums=scale_counts),
    SumRow("tables", (f"{BINS} of *",), NUMBERS, one_more(0.0, 9.0), sums=bin_counts),
    SumRow("tables", (f"{DIGITS} of *",), NUMBERS, one_more(1.0, 9.0), sums=digit_counts),
    *(SumRow("tables", (f"{DIGITS} of *",), NUMBERS, one_more(1.0, 99.0), sums=partial(time_counts, side=i)) for i in (0, 1)),
    LawRow("tables", (f"{NAMES} of *", THRESHOLD), LETTERS, many, law=named(), at=(0.2, 0.5), reaches=0.8, why=_BOTH),
    LawRow("tables", (f"{NAMES} of *", THRESHOLD), LETTERS, alone, law=named(), at=(3.0,), reaches=0.29, why=_BOTH),
]
