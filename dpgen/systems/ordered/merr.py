"""The Maximum Error Rule: find where the model is most wrong, ask there, repeat (Diakonikolas, Hardt, Schmidt 2015)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from dpgen.privacy.curator import Curator
from dpgen.privacy.events import approximate_event, for_rows, row_epsilon
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.mechanisms import Mechanism, Relation, require_whole
from dpgen.systems.ordered.counts import (
    Integers,
    MonotoneCounts,
    Values,
    in_order,
    monotone_counts,
    planned_size,
    released_size,
)
from dpgen.systems.ordered.estimator import OrderedEstimator
from dpgen.systems.ordered.plan import DELTA_BELOW, STEPS
from dpgen.systems.ordered.selection import ChoosingSelection, DyadicSelection, PointSelection, levels
from dpgen.systems.ordered.steps import (
    CANDIDATES,
    CHOICE_NOTE,
    Composition,
    Selection,
    StepBudget,
    StepTerms,
    choice,
    choose_steps,
    step_budget,
)

_SIZE_SHARE = 0.05  # of epsilon, for the number of records where it is private
_STEPS_SHARE = 0.1  # of epsilon, for a private number of steps
_WHOLE_NOTE = "MERR, the steps of any candidate"


@dataclass(frozen=True, kw_only=True)
class MERR(OrderedEstimator):
    r"""Piecewise linear model of the prefix counts, refined where a private selection finds the largest error.

    Each of T steps selects a dyadic interval (or a point) with a large error |count - model| and adds noisy prefix counts
    at its ends. After every step the answers are averaged, made monotone and clipped.

    Formal guarantees:
        - `fit` is (epsilon, delta)-DP under the relation of the ledger that is charged; delta is used by "zcdp" and
          "choosing" only.
        - Split: 5 % of epsilon for a noisy number of records, under add/remove without `size`; 10 % for a private number
          of steps; the rest evenly over the steps, half of it for the selections (.7 for dyadic intervals in zcdp).
        - A fixed number of steps is a plan: T selections and T answers, declared before the data are looked at. Choosing may
          stop earlier; what is stated is the whole plan.
        - After a private choice of T all that is left is charged at once, as the guarantee that every candidate keeps:
          the cost of the T that was drawn depends on the outcome, and the worst of them is what holds. The steps then run under
          a ledger of their own, which enforces it.

    Arguments:
        epsilon: in nats.
        delta: 0 for a pure guarantee.
        selection: "points", "exponential" (dyadic intervals) or "choosing" (dyadic intervals, approximate).
        steps: T, or "private": an exponential mechanism over `CANDIDATES`.
        composition: "basic" (Laplace noise) or "zcdp" (Gaussian noise).
        size: number of records, if it is public under add/remove.
        published_noise: the noise that Figure 2 prints, Laplace(1/2) per count; its true cost, 4 T under replace-one, is
            charged beside the selections, so a ledger with budget epsilon refuses it.

    Raises:
        ValueError: a value out of range.

    Source: Diakonikolas, Hardt, Schmidt 2015, Figure 2, with corrected noise; Lemma 2 does not hold as printed.

    >>> from dpgen.privacy.ledger import Ledger
    >>> rule = MERR(epsilon=50.0, steps=6, composition="basic")
    >>> fit = rule.fit_counts(np.full(10**4, 3), N=8, curator=Curator(Ledger(None, delta=1e-6)))
    >>> bool(abs(fit.at(np.array([3, 4])) - [0, 10**4]).max() < 200)
    True
    """

    selection: Selection = "points"
    steps: int | Literal["private"] = 20
    composition: Composition = "zcdp"
    published_noise: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.delta < DELTA_BELOW:
            raise ValueError(f"delta is {self.delta!r}; it must lie in [0, {DELTA_BELOW})")
        if self.selection not in ("choosing", "exponential", "points"):
            raise ValueError(f"selection is {self.selection!r}; choose one of choosing, exponential, points")
        if self.composition not in ("basic", "zcdp"):
            raise ValueError(f"composition is {self.composition!r}; choose one of basic, zcdp")
        if self.delta == 0 and (self.composition == "zcdp" or self.selection == "choosing"):
            raise ValueError(f"delta is 0; composition {self.composition!r} with selection {self.selection!r} needs delta > 0")
        if self.steps != "private":
            require_whole("steps", self.steps, *STEPS)
        if self.rows > 1 and (self.selection == "choosing" or self.published_noise):
            given = "selection 'choosing'" if self.selection == "choosing" else "published noise"
            raise ValueError(f"rows is {self.rows}; it must be 1 with {given}, whose price is that of one row")
        if self.steps == "private" and self.published_noise:
            raise ValueError("steps is 'private'; published_noise needs a fixed number, its cost depends on it")

    def planned(self, N: int, relation: Relation) -> list[Planned]:
        """The number of records where it is private, the steps; or the choice of their number and all candidates at once."""
        epsilon, budgets = self._budgets(N, relation)
        size = planned_size(_SIZE_SHARE * self.epsilon, free=self.size_is_free(relation))
        if self.steps != "private":
            return [*size, *budgets[self.steps].planned()]
        whole = self._whole(epsilon)
        number = Planned(for_rows(choice([], epsilon=self._steps_epsilon).event, self.rows), CHOICE_NOTE)
        return [*size, number, Planned(approximate_event(whole.epsilon, whole.delta), _WHOLE_NOTE)]

    def _whole(self, epsilon: float) -> Budget:
        pure = self.composition == "basic" and self.selection != "choosing"
        return Budget(epsilon, 0.0 if pure else self.delta)

    @property
    def _steps_epsilon(self) -> float:
        """Of the choice of the number of steps, for one row."""
        return row_epsilon(_STEPS_SHARE * self.epsilon, self.rows)

    def release(self, values: Values, *, N: int, curator: Curator) -> MonotoneCounts:
        """Noisy monotone prefix counts of values (n,) in [0, N), at knots that are selected from all of them in memory."""
        values = in_order(values)
        epsilon, budgets = self._budgets(N, curator.relation)
        size = released_size(values, self.size, epsilon=_SIZE_SHARE * self.epsilon, curator=curator)
        budgets = {t: budget.for_size(size) for t, budget in budgets.items()}
        if self.steps != "private":
            return _refine(values, budgets[self.steps], N=N, size=size, curator=curator)
        steps = choose_steps(values, budgets, N=N, size=size, epsilon=self._steps_epsilon, curator=curator)
        inner = curator.enclosed(_WHOLE_NOTE, self._whole(epsilon))
        inner.declare(*budgets[steps].planned())
        return _refine(values, budgets[steps], N=N, size=size, curator=inner)

    def _budgets(self, N: int, relation: Relation) -> tuple[float, dict[int, StepBudget]]:
        """Epsilon of the steps, and its division for each number of steps that may be taken."""
        epsilon = self.epsilon if self.size_is_free(relation) else (1 - _SIZE_SHARE) * self.epsilon
        if self.steps != "private":
            return epsilon, {self.steps: self._budget(self.steps, epsilon, N, relation)}
        epsilon = (1 - 1e-12) * (epsilon - _STEPS_SHARE * self.epsilon)  # the sum of the parts must not round up
        return epsilon, {t: self._budget(t, epsilon, N, relation) for t in CANDIDATES}

    def _budget(self, steps: int, epsilon: float, N: int, relation: Relation) -> StepBudget:
        terms = StepTerms(
            selection=self.selection,
            steps=steps,
            composition=self.composition,
            share=0.7 if self.composition == "zcdp" and self.selection != "points" else 0.5,
            relation=relation,
            levels=levels(N),
            published=self.published_noise,
            rows=self.rows,
        )
        return step_budget(terms, epsilon=epsilon, delta=self.delta)


class _Selector(Protocol):
    """A private selection of the place where a public model is wrong: a point, the ends of an interval, or None to stop."""

    def given(self, model: MonotoneCounts) -> Mechanism[Sequence[int | tuple[int, int] | None]]: ...


def _selector(values: Integers, budget: StepBudget, N: int) -> _Selector:
    if budget.choosing is not None:
        return ChoosingSelection(values, N=N, constants=budget.choosing, relation=budget.relation)
    by_rate = PointSelection if budget.answers == "point" else DyadicSelection
    return by_rate(values, N=N, rate=budget.rate, zcdp=budget.composition == "zcdp")


def _refine(values: Integers, budget: StepBudget, *, N: int, size: float, curator: Curator) -> MonotoneCounts:
    """The T steps; choosing may stop earlier."""
    selector = _selector(values, budget, N)
    knots: list[int] = []
    counts: list[float] = []
    variances: list[float] = []
    model = MonotoneCounts(np.array([0, N]), np.array([0.0, size]))
    for _ in range(budget.steps):
        [selected] = curator.release(budget.selection_note, selector.given(model))
        if selected is None:
            break
        ends = (selected, selected) if isinstance(selected, int) else selected
        for knot, count, variance in ask(values, ends, budget, N=N, curator=curator):
            knots.append(knot)
            counts.append(count)
            variances.append(variance)
        model = monotone_counts(np.array(knots, np.int64), np.array(counts), np.array(variances), N=N, size=size)
    return model


def ask(
    values: Integers, ends: tuple[int, int], budget: StepBudget, *, N: int, curator: Curator
) -> list[tuple[int, float, float]]:
    """Noisy prefix counts at both ends of an interval, or at a point (two equal ends): (knot, count, variance) each.

    The cells left of the interval and inside it are asked, as in Figure 2; ends at 0 or N need no answer.
    """
    inner = sorted({x for x in ends if 0 < x < N})
    if not inner:
        return []
    prefixes = np.cumsum(budget.answer(values, inner, curator))
    variance = budget.variance("interval" if len(inner) == 2 else "point")
    return [(knot, float(prefix), variance * (i + 1)) for i, (knot, prefix) in enumerate(zip(inner, prefixes))]
