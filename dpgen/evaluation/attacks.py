r"""Attacks on synthetic rows: how much better they work on rows that the release was made of than on others of the same kind.

Of linked tables a row is a person, with what all of their rows come to (`dpgen.evaluation.linked.by_person`). The attacks see
the synthetic rows alone, and know some values of a target. Each is run on *members*, rows that the release was made of, and
on *others*, as many rows that it has not seen. Only what works better on members comes from the release of their
values. Of a release that is :math:`(\varepsilon, \delta)`-private an attack that succeeds with probability q on others succeeds
with at most :math:`e^\varepsilon q + \delta` on members (Kairouz, Oh, Viswanath 2015, Theorem 2.1), and the curve of true over
false positives lies below :math:`\min(1, e^\varepsilon \alpha + \delta, 1 - e^{-\varepsilon}(1 - \delta - \alpha))`.

Distances are those of Gower (1971): of numbers the difference of their ranks in [0, 1], of other values and of gaps 0 or 1.
Singling out, linkability and inference follow Giomi et al. 2023 (Anonymeter), membership by distances Hayes et al. 2019 and van
Breugel et al. 2023 (DOMIAS), shares of near rows Platzer, Reutterer 2021. An attack that finds nothing proves nothing: others
may.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.stats import beta

from dpgen.evaluation.scores import Score
from dpgen.metrics import propensity_error

Reals = npt.NDArray[np.float32]

TARGETS, FEWER, MADE = 1000, 400, 50_000
"""Rows of each side whose membership is attacked, whose values are, and synthetic rows that are searched, at most."""
LEAST = 20
"""Rows that were not seen, without which no attack can be judged."""
UNFOUND = (
    "Attacks that find nothing prove nothing: others may. What is proved is the bound of epsilon, where a release has one."
)
_TOLD, _BINS, _LISTED = 5000, 10, 30  # rows of each that are told apart, and groups of their numbers and other values
_SECRETS, _SPLITS, _PREDICATES, _KNOWN, _NEAR, _CLOSE = 10, 5, 1000, 4, 0.05, 0.01
_TINY = np.float32(1e-12)
_GAP = 2.0  # farther than 1 from every rank
_AT_ONCE = 4_000_000  # distances


class Column(Protocol):
    """A column of the three tables "own", "held" and "made", as `dpgen.evaluation.compare` reads it."""

    @property
    def values(self) -> Mapping[str, npt.NDArray[np.generic]]: ...

    @property
    def same(self) -> Mapping[str, npt.NDArray[np.int64]]: ...

    @property
    def numeric(self) -> bool: ...


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows as numbers, (n, d): ranks in [0, 1] of numbers and codes of other values; `ranked` says which, (d,)."""

    x: Reals
    ranked: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.x)

    def some(self, places: npt.NDArray[np.int64]) -> _Rows:
        return _Rows(self.x[places], self.ranked)

    def nearest(self, found: _Rows, known: Sequence[int]) -> tuple[Reals, npt.NDArray[np.int64]]:
        """Distances (n,) of these rows to the nearest one of `found` in the columns `known`, and places of that row."""
        far, place = np.empty(len(self), np.float32), np.empty(len(self), np.int64)
        for start in range(0, len(self), step := max(1, _AT_ONCE // max(len(found), 1))):
            part = self.x[start : start + step]
            distance = np.zeros((len(part), len(found)), np.float32)
            for column in known:
                one, two = part[:, column, None], found.x[None, :, column]
                distance += np.minimum(np.abs(one - two), 1.0) if self.ranked[column] else one != two
            place[start : start + step] = distance.argmin(1)
            far[start : start + step] = distance.min(1)
        return far, place


def _encoded(columns: Mapping[str, Column]) -> dict[str, _Rows]:
    """The three tables as numbers."""
    parts: dict[str, list[Reals]] = {"own": [], "held": [], "made": []}
    for column in columns.values():
        pooled = (
            np.unique(np.concatenate([column.values[part].astype(np.float64) for part in parts])) if column.numeric else None
        )
        for part, found in parts.items():
            there = column.same[part] >= 0
            coded = np.where(there, column.same[part], -1).astype(np.float32)
            if pooled is not None:
                coded = np.full(len(there), _GAP, np.float32)
                coded[there] = np.searchsorted(pooled, column.values[part].astype(np.float64)) / max(len(pooled) - 1, 1)
            found.append(coded)
    ranked = np.array([column.numeric for column in columns.values()])
    return {part: _Rows(np.stack(found, 1), ranked) for part, found in parts.items()}


def attack_scores(
    columns: Mapping[str, Column], *, epsilon: float | None = None, delta: float = 0.0, seed: int = 0
) -> Iterator[Score]:
    """Successes of the attacks on members, beside those on others, and beside the bound of (epsilon, delta) where it is given.

    Members are rows of "own", others rows of "held", which the makers of the rows "made" have not seen.
    """
    rng = np.random.default_rng(seed)
    tables = _encoded(columns)
    tables = {part: rows.some(rng.permutation(len(rows))) for part, rows in tables.items()}
    half = min(len(tables["held"]) // 2, len(tables["own"]), TARGETS)
    members, others = tables["own"].some(np.arange(half)), tables["held"].some(np.arange(half))
    reference = tables["held"].some(np.arange(half, len(tables["held"])))
    made = tables["made"].some(np.arange(min(MADE, len(tables["made"]))))
    bound = _Bound(epsilon, delta)
    yield from _membership(members, others, reference, made, bound)
    members, others = (rows.some(np.arange(min(half, FEWER))) for rows in (members, others))
    if len(columns) > 1:
        yield _inference(members, others, made, list(columns), bound)
        yield _linkability(members, others, made, bound, rng)
    both = np.arange(min(len(tables["own"]), len(tables["held"]), MADE))
    same = np.arange(min(len(both), 10 * TARGETS))  # of each as many, for more are nearer
    yield _nearer(tables["own"].some(same), tables["held"].some(same), made.some(np.arange(min(TARGETS, len(made)))))
    yield _singling_out(tables["own"].some(both), tables["held"].some(both), made, rng)
    yield _told_apart(tables["own"], tables["held"], made)


def attack_of(
    attacks: bool, holdout: pd.DataFrame | str | None, epsilon: float | None, delta: float, seed: int
) -> Callable[[Mapping[str, Column]], Iterable[Score]]:
    """The attacks that options ask for, and their bound; `holdout` are rows, or a package of them that is read later.

    Raises:
        ValueError: attacks without a holdout of `LEAST` rows, or a bound without attacks, or out of range.
    """
    if attacks and holdout is None:
        raise ValueError("attacks needs holdout, real rows that the synthetic ones were not made of: they show what is usual")
    if isinstance(holdout, pd.DataFrame) and len(holdout) < LEAST:
        raise ValueError(f"holdout has {len(holdout)} rows; attacks need at least {LEAST}")
    if not attacks:
        raise ValueError("epsilon and delta stand beside attacks: they must be left out without attacks")
    if (epsilon is not None and not epsilon >= 0) or not 0 <= delta < 1:
        raise ValueError(f"epsilon is {epsilon} and delta {delta}; epsilon must be at least 0 and delta in [0, 1)")
    return partial(attack_scores, epsilon=epsilon, delta=delta, seed=seed)


@dataclass(frozen=True)
class _Bound:
    epsilon: float | None
    delta: float

    @property
    def name(self) -> str:
        return "" if self.epsilon is None else f"the bound of epsilon {self.epsilon:g}"

    def rate(self, others: float, n: int) -> float | None:
        """The most that an attack succeeds on members, of the share of n others that it succeeds on.

        The probability is that of the upper end of a one-sided 97.5 % interval (Clopper, Pearson 1934).
        """
        if self.epsilon is None:
            return None
        likely = float(beta.ppf(0.975, others * n + 1, n - others * n)) if others < 1 else 1.0
        return min(1.0, math.exp(min(self.epsilon, 300.0)) * likely + self.delta)

    @property
    def area(self) -> float | None:
        r"""The largest area below a curve of true positives over false ones.

        It is :math:`\delta + (1 - \delta) (o + \delta) / (1 + o)` with :math:`o = e^\varepsilon`: the bound is two lines that
        meet at :math:`\alpha = (1 - \delta) / (1 + o)`.

        >>> round(_Bound(1.0, 0.0).area, 4), _Bound(0.0, 0.0).area
        (0.7311, 0.5)
        """
        if self.epsilon is None:
            return None
        odds = math.exp(min(self.epsilon, 300.0))
        return self.delta + (1.0 - self.delta) * (odds + self.delta) / (1.0 + odds)


def _area(one: Reals, two: Reals) -> float:
    """Probability that a value of `one` is above one of `two`, ties by halves."""
    values, places = np.unique(np.concatenate([one, two]), return_inverse=True)
    first, second = (np.bincount(part, minlength=len(values)) for part in (places[: len(one)], places[len(one) :]))
    below = np.cumsum(second) - second
    return float((first * (below + second / 2)).sum() / (len(one) * len(two)))


def _membership(members: _Rows, others: _Rows, reference: _Rows, made: _Rows, bound: _Bound) -> Iterator[Score]:
    """Guesses who was there, by the distance to the nearest synthetic row, alone and beside that to the nearest other row."""
    known = range(members.x.shape[1])
    near = {part: -rows.nearest(made, known)[0] for part, rows in (("own", members), ("held", others))}
    plain = {part: -rows.nearest(reference, known)[0] for part, rows in (("own", members), ("held", others))}
    sample = f"{len(members):,} of each"
    for name, found in (
        ("by the nearest row", near),
        (
            "by the nearest row, beside that of others",
            {part: near[part] / np.maximum(-near[part] - plain[part], _TINY) for part in near},
        ),
    ):
        real = _area(plain["own"], plain["held"])
        yield Score(
            f"attack: membership {name}, AUC",
            _area(found["own"], found["held"]),
            real=real,
            chance=bound.area,
            better="lower",
            baseline=bound.name,
            sample=sample,
            kind="membership",
        )


def _nearer(members: _Rows, others: _Rows, made: _Rows) -> Score:
    """Share of synthetic rows that are nearer to one of the members than to one of as many others, ties by halves.

    Beside it stands 1/2, that of rows made of neither. No bound does: it is no guess about one target.
    """
    near, far = (made.nearest(rows, range(made.x.shape[1]))[0] for rows in (members, others))
    share = float(((near < far) + (near == far) / 2).mean())
    name, sample = "attack: synthetic rows nearer to members than to others, share", f"{len(made):,} synthetic rows"
    return Score(name, share, real=0.5, better="lower", baseline="", sample=sample, kind="membership")


def _rates(name: str, own: float, held: float, n: int, bound: _Bound | None, sample: str) -> Score:
    chance, baseline = (None, "") if bound is None else (bound.rate(held, n), bound.name)
    kind = name.partition(" ")[0]
    return Score(f"attack: {name}", own, real=held, chance=chance, better="lower", baseline=baseline, sample=sample, kind=kind)


def _inference(members: _Rows, others: _Rows, made: _Rows, names: Sequence[str], bound: _Bound) -> Score:
    """A value of the target by the nearest synthetic row in all other columns: the column with the largest gain."""
    found = []
    for secret in range(min(len(names), _SECRETS)):
        known = [column for column in range(len(names)) if column != secret]
        rates = []
        for rows in (members, others):
            guess, truth = made.x[rows.nearest(made, known)[1], secret], rows.x[:, secret]
            right = np.abs(guess - truth) <= _NEAR if made.ranked[secret] else guess == truth
            rates.append(float(right.mean()))
        found.append((rates[0] - rates[1], rates[0], rates[1], names[secret]))
    _, own, held, name = max(found)
    return _rates(
        f"inference of {name} from the other columns", own, held, len(others), bound, f"the worst of {len(found)} columns"
    )


def _linkability(members: _Rows, others: _Rows, made: _Rows, bound: _Bound, rng: np.random.Generator) -> Score:
    """Whether two halves of a row's columns have the same nearest synthetic row."""
    rates = np.zeros(2)
    for _ in range(_SPLITS):
        order = rng.permutation(members.x.shape[1])
        halves = order[: len(order) // 2].tolist(), order[len(order) // 2 :].tolist()
        for side, rows in enumerate((members, others)):
            one, two = (rows.nearest(made, known)[1] for known in halves)
            rates[side] += float((one == two).mean()) / _SPLITS
    own, held = rates.tolist()
    return _rates("linkability of two halves of the columns", own, held, len(others), bound, f"mean of {_SPLITS} splits")


def _told_apart(own: _Rows, held: _Rows, made: _Rows) -> Score:
    """Propensity errors (pMSE) of a logistic regression of synthetic and real rows, and of others and real ones; no attack."""
    groups = []
    for column, ranked in enumerate(own.ranked):
        common = np.unique(own.x[:, column], return_counts=True)
        listed = np.sort(common[0][np.argsort(-common[1], kind="stable")[:_LISTED]])

        def group(x: Reals, ranked: bool = bool(ranked), listed: Reals = listed) -> npt.NDArray[np.int64]:
            if ranked:
                return np.where(x == _GAP, _BINS, np.minimum(x * _BINS, _BINS - 1)).astype(np.int64)
            place = np.searchsorted(listed, x).clip(max=len(listed) - 1)
            return np.where(listed[place] == x, place, _LISTED)

        groups.append(group)
    n = min(len(own), len(held), len(made), _TOLD)
    codes = [torch.from_numpy(np.stack([g(rows.x[:n, c]) for c, g in enumerate(groups)], 1)) for rows in (own, held, made)]
    options = {"sizes": [_BINS + 1 if ranked else _LISTED + 1 for ranked in own.ranked], "ordered": own.ranked.tolist()}
    real, value = (propensity_error(codes[0], rows, **options) for rows in codes[1:])
    return Score("rows told apart by logistic regression, pMSE", value, real=real, better="lower", sample=f"{n:,} of each")


def _singling_out(members: _Rows, others: _Rows, made: _Rows, rng: np.random.Generator) -> Score:
    """Shares of predicates that exactly one row satisfies: four columns as in a synthetic row, ranks of numbers within .01.

    No bound stands beside it: whether a predicate singles out depends on all rows, not on the release alone.
    """
    alone = np.zeros(2)
    for row in made.x[rng.integers(len(made), size=_PREDICATES)]:
        chosen = rng.permutation(len(row))[:_KNOWN]
        for side, rows in enumerate((members, others)):
            allowed = np.where(made.ranked[chosen], np.float32(_CLOSE), np.float32(0.0))
            alone[side] += (np.abs(rows.x[:, chosen] - row[chosen]) <= allowed).all(1).sum() == 1
    own, held = alone / _PREDICATES
    return _rates("singling out by predicates", float(own), float(held), 0, None, f"{_PREDICATES:,} predicates")
