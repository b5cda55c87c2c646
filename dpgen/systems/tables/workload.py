r"""The user's own questions to a table: tables of some columns, and means of a number by others, measured before all choices.

A question is a list of columns (their table), or `{"mean": "cost", "by": ["ward"]}` (the mean of a number in each cell of
others, of rows that have it). A mean is measured as the table of both with the number in g groups,
:math:`g = 2.5 (m / \sigma)^{2/5}` of 4 to 64 for m records in a cell of noise std :math:`\sigma`: noise of the mean grows like
:math:`\sqrt g`, what groups hide falls like :math:`g^{-2}`. Groups are those of the least squared error inside (codes of share
p and width w count :math:`(p w^2)^{1/3}`).

Questions share their part of 1 / s^2 like (cells)^(2/3), which has the least sum of errors. A table whose noise would be more
than .16 in total variation is counted in fewer groups of its columns, 2 at least, and so is one of four columns or more that
has more than 256 cells of all columns but the largest (of a mean: but the number): products of the mixture are put into these
(`fitter.Held`). All that depends on released numbers.

Two errors are stated, as roots of mean squares over the cells of a table, or over the means of a question. Before: that of the
noise, which is known. After, of the answer f of the model to noisy counts y of stds s:

.. math:: v + \max(0, |y - f|^2 - s^2 + 2 c - v), \quad v = E \Delta^2, \quad c = E \delta \Delta

with :math:`\Delta` what the model's answer moves by where noise of the same stds is added to all that it is fitted to,
:math:`\delta` of it to y: fits are rehearsed from where the last one ended. v is the noise that is left, the other term the
square of what the model does not follow, estimated without bias but for the maximum.

Source: groups, Panter and Dite 1951; the error, Stein 1981, its derivative by draws, Ramani, Blu, Unser 2008.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen.columns.fields import Field, LengthField
from dpgen.schema import nearest
from dpgen.systems.tables.marginals import Coarsening, Counts, Flags, Integers, Marginal, Measurement, Reals, shape
from dpgen.systems.tables.mixture import code_means
from dpgen.systems.tables.plan import DEEP, MOST_CELLS, MOST_CLASSES_OF_QUESTION, Question

if TYPE_CHECKING:
    from dpgen.privacy.curator import GaussianBudget
    from dpgen.schema import Schema, TableDomain
    from dpgen.systems.tables.fitter import Fitter
    from dpgen.systems.tables.marginals import Columns
    from dpgen.systems.tables.mixture import Mixture

QUESTION = "question of the workload"
OF_WORKLOAD = 0.3
"""Share of mu^2 for all questions together."""
MOST_OF_LEFT = 0.4
"""Share of what is left of it when domains are bought, at most."""

_MOST = (64, 32, 16, 12, 8, 6, 4, 3, 2)  # groups of a column, from which on cells are few enough
_GROUPS, _FEWEST_OF_MEAN, _MOST_OF_MEAN = 2.5, 4, 64
_CLEAR = 5.0  # noise stds of the number of records that a mean is of, from which on its error is stated
_REPEATS, _MOST_AGAIN, _AGAIN = 2, 16, (50, 0.05, 0.005)  # rehearsals, the fits of each at most, their steps and rates
_SURE = 1.0  # stds of the second term, from which on it counts; noise hides less
_NO_MEAN = ("string", "boolean", "date", "datetime")


@dataclass(frozen=True)
class Answer:
    """A question with its place among the measured marginals, and its error before and after consistency; None: unknown."""

    question: Question
    measured: int
    noise_std: float | None
    model_std: float | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "question": self.question.given}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Answer:
        """From `to_dict`."""
        return cls(**{**values, "question": Question.of(values["question"])})


def require_columns(questions: Sequence[Question], fields: Sequence[Mapping[str, Any]]) -> None:
    """Refuse columns that a table does not have, and means of what is declared to be no number: both are public."""
    types = {str(given["name"]): given.get("type", "any") for given in fields}
    for question in questions:
        for name in question.columns:
            if name not in types:
                raise nearest("a column of workload", name, list(types))
        if question.mean is not None and types[question.mean] in _NO_MEAN:
            raise ValueError(f"mean of workload is {question.mean!r}, of type {types[question.mean]!r}; it must be a number")


def sorted_out(questions: Sequence[Question], schema: Schema) -> tuple[list[Question], list[Question]]:
    """Questions that a model with this schema can answer, and the others: columns left out, means of what became no number."""
    fields = {given.name: given for given in schema.modelled}
    able = [q for q in questions if set(q.columns) <= set(fields) and (q.mean is None or _is_number(fields[q.mean]))]
    return able, [q for q in questions if q not in able]


def _is_number(given: Field) -> bool:
    return given.type not in _NO_MEAN and not isinstance(given, LengthField)


@dataclass(frozen=True, eq=False)
class Workload:
    """Questions that were measured, each in a coarsening of the groups of the model.

    `numbers` are the column of a mean with the mean value of each of its groups, NaN of gaps; None: of a table. `told` are the
    questions in words, with columns that are counted in fewer groups than the model has.
    """

    questions: tuple[Question, ...]
    coarsenings: tuple[Coarsening, ...]
    measurements: tuple[Measurement, ...]
    numbers: tuple[tuple[int, Reals] | None, ...]
    told: tuple[str, ...]

    @classmethod
    def measure(
        cls,
        codes: Any,
        columns: Columns,
        schema: Schema,
        questions: Sequence[Question],
        budget: GaussianBudget,
        share: float,
        first_level: int,
    ) -> Workload:
        """Noisy counts of all questions for a share of 1 / s^2; their coarsenings have the levels from `first_level` on."""
        names, made, found = schema.domain.names, list[Coarsening](), list[Measurement]()
        made += [_groups(q, columns, schema, budget.noise_std(share / len(questions))) for q in questions]
        marginals = [Marginal(tuple(sorted(names.index(name) for name in q.columns)), i) for i, q in enumerate(questions)]
        counts = Counts.of(codes, marginals, [columns.coarse.then(coarser) for coarser in made])
        parts = np.diff(counts.starts) ** (2 / 3)
        for i, part in enumerate((1 - 1e-9) * share * parts / parts.sum()):
            values, std = budget.sums(QUESTION, counts.sums(i), float(part))
            at = replace(marginals[i], level=first_level + i)
            found.append(Measurement(at, values.numpy().reshape(shape(marginals[i], made)), std))
        means = [_means(q, columns, schema, own) for q, own in zip(questions, made)]
        told = [_told(q, columns, own, names) for q, own in zip(questions, made)]
        return cls(tuple(questions), tuple(made), tuple(found), tuple(means), tuple(told))

    def answers(
        self,
        fitter: Fitter,
        final: Mixture,
        measured: Sequence[Measurement],
        levels: Sequence[Coarsening],
        first: int,
        rounds: int,
        corrected: bool,
    ) -> list[Answer]:
        """All questions with their errors; they stand from `first` on among released marginals.

        `measured` is all that the fitter was fitted to last, after `rounds` that aimed beyond it, `corrected` or not.
        """
        if not self.questions:
            return []
        seeds = np.concatenate([m.values.ravel() for m in self.measurements]).view(np.uint32)  # other draws for each release
        generator = np.random.default_rng(seeds)
        rehearsed = [self._rehearsed(fitter, measured, levels, generator, rounds, corrected) for _ in range(_REPEATS)]
        found = list[Answer]()
        for i, (question, m, number) in enumerate(zip(self.questions, self.measurements, self.numbers)):
            model = fitter.n * expected(final, m.marginal, levels)
            errors = _Stated.of(m, model, number)
            found.append(
                Answer(question, first + i, errors.before, errors.after(m.values - model, [own[i] for own in rehearsed]))
            )
        return found

    def _rehearsed(
        self,
        fitter: Fitter,
        measured: Sequence[Measurement],
        levels: Sequence[Coarsening],
        generator: np.random.Generator,
        rounds: int,
        corrected: bool,
    ) -> list[tuple[Reals, Reals]]:
        """More noise of the counts of each question, and by how much it moves the model's, with all else that is measured."""
        noise = [m.noise_std * generator.standard_normal(m.values.shape) for m in measured]
        aims = [[replace(m, values=m.values + sign * own) for m, own in zip(measured, noise)] for sign in (1.0, -1.0)]
        ends = [fitter.again(own, levels, min(rounds + 1, _MOST_AGAIN), *_AGAIN, corrected=corrected) for own in aims]
        found = []
        for asked in self.measurements:
            up, down = (fitter.n * expected(mixture, asked.marginal, levels) for mixture in ends)
            found.append((next(own for m, own in zip(measured, noise) if m is asked), (up - down) / 2))
        return found


def _told(question: Question, columns: Columns, coarser: Coarsening, names: Sequence[str]) -> str:
    about = zip(names, coarser.sizes, columns.coarse.sizes)
    fewer = [f"{name} in {size} groups" for name, size, most in about if size < most and name in question.columns]
    return str(question) + (f", {', '.join(fewer)}" if fewer else "")


def expected(mixture: Mixture, marginal: Marginal, levels: Sequence[Coarsening]) -> Reals:
    """Probabilities of the cells of a marginal of any number of columns."""
    level, cells = levels[marginal.level], mixture.weights[None].astype(np.float64)
    for c in marginal.columns:
        block = np.zeros((level.sizes[c], len(mixture.weights)))
        np.add.at(block, level.groups[c], mixture.block(c))
        cells = (cells[:, None] * block).reshape(-1, len(mixture.weights))
    return np.asarray(cells.sum(1).reshape(shape(marginal, levels)))


@dataclass(frozen=True, eq=False)
class _Stated:
    """Numbers that an error is stated of: all counts of a table, or the means in its cells, with their noise stds.

    `slopes` (cells, g) are those of means in the counts of the g groups of a number, along an axis, of `clear` cells; None: the
    counts themselves.
    """

    stds: Reals
    slopes: Reals | None = None
    axis: int = 0
    clear: Flags | None = None

    @classmethod
    def of(cls, measured: Measurement, model: Reals, number: tuple[int, Reals] | None) -> _Stated:
        """Errors of model counts; `number` are the column of a mean and the mean value of each of its groups, NaN of gaps."""
        std = float(np.mean(measured.noise_std))
        if number is None:
            return cls(np.full(model.size, std))
        axis = measured.marginal.columns.index(number[0])
        counts, there = np.moveaxis(model, axis, -1).reshape(-1, model.shape[axis]), np.isfinite(number[1])
        n = counts[:, there].sum(1, keepdims=True)
        values = np.where(there, number[1], 0.0)
        slopes = np.where(there, values - (counts * there) @ values[:, None] / np.maximum(n, 1.0), 0.0) / np.maximum(n, 1.0)
        clear = n[:, 0] > _CLEAR * std * math.sqrt(there.sum())
        return cls(std * np.sqrt((slopes[clear] ** 2).sum(1)), slopes, axis, clear)

    def numbers(self, counts: Reals) -> Reals:
        """Answers of the question in such counts."""
        if self.slopes is None:
            return counts.ravel()
        along = np.moveaxis(counts, self.axis, -1).reshape(self.slopes.shape)
        return np.asarray((self.slopes * along).sum(1)[self.clear])

    @property
    def before(self) -> float | None:
        """The error of noisy counts."""
        return float(np.sqrt(np.mean(self.stds**2))) if len(self.stds) else None

    def after(self, gap: Reals, rehearsed: Sequence[tuple[Reals, Reals]]) -> float | None:
        """The error of the model, whose counts have a gap to noisy ones; more noise of these moved them, as rehearsed."""
        if not len(self.stds):
            return None
        noise, moved = (np.array([self.numbers(own) for own in owns]) for owns in zip(*rehearsed))
        left, noisy = float(np.mean(moved**2)), self.stds**2
        beyond = float(np.mean(self.numbers(gap) ** 2 - noisy)) + 2 * float(np.mean(noise * moved)) - left
        return math.sqrt(left + beyond * (beyond > _SURE * math.sqrt(2 * float(np.sum(noisy**2))) / len(noisy)))


def _groups(question: Question, columns: Columns, schema: Schema, std: float) -> Coarsening:
    """Groups of the model's groups that a question is counted in, for about this noise std."""
    domain, most_cells = schema.domain, MOST_CELLS * columns.n / std
    asked = [domain.names.index(name) for name in question.columns]
    most_classes = MOST_CLASSES_OF_QUESTION if len(asked) >= DEEP else math.inf
    if question.mean is None:
        return _in_few_cells(columns, domain, asked, most_cells, most_classes)
    number = domain.names.index(question.mean)
    by = [c for c in asked if c != number]
    grouped = _in_few_cells(columns, domain, by, min(most_cells / _FEWEST_OF_MEAN, most_classes))
    cells = math.prod(grouped.sizes[c] for c in by)
    wanted = _GROUPS * (columns.n / cells / std) ** 0.4
    own = _of_mean(columns, schema, number, round(min(max(wanted, _FEWEST_OF_MEAN), _MOST_OF_MEAN, most_cells / cells + 1)))
    return grouped.replaced({number: (own, int(own.max()) + 1)})


def _in_few_cells(
    columns: Columns, domain: TableDomain, by: Sequence[int], most_cells: float, most_classes: float = math.inf
) -> Coarsening:
    """Groups of some columns, as many as leave so few cells, and cells of all of them but the largest."""
    grouped = full = Coarsening.full(columns.coarse.sizes)
    for most in _MOST:
        coarser = columns.coarser(most, domain)
        grouped = full.replaced({c: (coarser.groups[c], coarser.sizes[c]) for c in by})
        sizes = [grouped.sizes[c] for c in by]
        cells = math.prod(sizes)
        if cells <= most_cells and cells // max(sizes) <= most_classes:
            break
    return grouped


def _of_mean(columns: Columns, schema: Schema, c: int, most: int) -> Integers:
    """At most so many groups of the model's groups of a number, with about the least squared error inside."""
    low, high = (np.asarray(ends, np.float64) for ends in schema.modelled[c].bounds())
    group, shares, live = columns.coarse.groups[c], columns.shares[c], len(low)
    size = columns.coarse.sizes[c]
    first = np.full(size, np.inf)
    last = np.full(size, -np.inf)
    np.minimum.at(first, group[:live], low)
    np.maximum.at(last, group[:live], high)
    widths = np.where(last > first, last - first, 1e-9 * max(1e-300, float(high[-1] - low[0])))
    mass = (np.bincount(group, shares, minlength=size) * widths**2) ** (1 / 3)
    missing = None if schema.domain.missing[c] is None else size - 1
    [groups] = Coarsening.of([mass], most + (missing is not None), ordered=[True], missing=[missing]).groups
    return groups


def _means(question: Question, columns: Columns, schema: Schema, coarsening: Coarsening) -> tuple[int, Reals] | None:
    """The column of a mean with the mean value of each of its groups; None: of a table."""
    if question.mean is None:
        return None
    c = schema.domain.names.index(question.mean)
    return c, group_means(columns, schema, c, coarsening)


def group_means(columns: Columns, schema: Schema, c: int, coarsening: Coarsening) -> Reals:
    """Mean value of each group of the model's groups of a number; NaN: of gaps."""
    group, shares = coarsening.groups[c][columns.coarse.groups[c]], columns.shares[c]
    means, size = code_means(schema.modelled[c], shares), coarsening.sizes[c]
    return np.asarray(np.bincount(group, shares * means, minlength=size) / np.bincount(group, shares, minlength=size))
