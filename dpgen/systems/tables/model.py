"""The released model of a mixed table: density, marginals, conditional and matched samples, gaps, measurements, intervals."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from dpgen.columns.constraints import moved
from dpgen.privacy.mechanisms import require_whole
from dpgen.release import PublicModel, RandomState, sampling_seed
from dpgen.samples import ColumnSamples
from dpgen.schema import Schema
from dpgen.statement import PrivacyStatement
from dpgen.systems.tables.marginals import Coarsening, Columns, Counts, Integers, Marginal, Measurement, Reals, shape
from dpgen.systems.tables.mixture import (
    AT_ONCE,
    TRIES,
    CodedMixture,
    Gaps,
    Given,
    Mixture,
    code_means,
    iid_rows,
    matched_rows,
    put,
    require_frame,
)
from dpgen.systems.tables.plan import Question, sizes

if TYPE_CHECKING:
    from dpgen.release import Release
    from dpgen.systems.tables.fitter import Seeds
    from dpgen.systems.tables.workload import Answer


Rows = Literal["iid", "matched"]

_DRAWS = 2**16
_HELD_BACK = 0.01
"""Strength of independence where a model is fitted again, as a share of that of the released one."""
_COMPONENTS, _STEPS, _RATE, _LAST_RATE = 64, 1500, 0.1, 0.002
_ROWS, _LEAST_ROWS = 4, 20_000
"""Samples that a statistic is computed on, for each private row, and at least."""
_MORE = 4
"""Times as many samples for the estimate as for a replicate."""


class TablesModel(PublicModel, CodedMixture, kind="tables"):
    r"""A mixture of products over groups of codes, and released shares of the codes inside each group.

    .. math:: p(x) = \sum_k w_k \prod_c p_{kc}(g_c(x_c)) \, s_c(x_c) / s_c(g_c(x_c))

    `columns` has g, s and the noisy number of records; `measurements` at `levels` of coarsening are for those who want to
    estimate from them themselves. The last `blocks` of them are tables of blocks of columns, at the last level.
    """

    def __init__(
        self,
        mixture: Mixture,
        columns: Columns,
        *,
        schema: Schema,
        measurements: Sequence[Measurement],
        levels: Sequence[Coarsening],
        statement: PrivacyStatement,
        declared: Sequence[str] = (),
        answers: Sequence[Answer] = (),
        blocks: int = 0,
    ) -> None:
        CodedMixture.__init__(self, mixture, columns, schema)
        self.statement = statement
        self.measurements, self.levels, self.declared = list(measurements), list(levels), tuple(declared)
        self.answers, self.blocks = list(answers), blocks

    @property
    def size(self) -> int:
        """A released (noisy) estimate of how many records the model was fitted to."""
        return round(self.columns.n)

    # -- density -------------------------------------------------------------------------------------------------------

    def log_prob(self, x: pd.DataFrame | Tensor) -> Tensor:
        """Log probability (n,) in nats of rows, as a table or as codes (n, d); of a number: of its bin.

        Given the constraints: minus infinity where they exclude the codes, and higher by -log `kept_share` elsewhere. Of a rule
        that a share of rows breaks these have this share, if codes tell.
        """
        codes = self._codes(x)
        held, broken = self._holding(codes)
        result = self._log_mixture(codes) - np.log(self.kept_share)
        result += np.log1p(-sum(self.schema.constraints[i].broken for i in self._breaking))
        result[~held] = -np.inf
        for i, (c, chance) in self._breaking.items():
            own = codes[broken[i]]
            apart = self._log_mixture(own, without=c) + np.log(self.marginal([self.schema.domain.names[c]])[own[:, c]])
            result[broken[i]] = apart + np.log(self.schema.constraints[i].broken / chance)
        return torch.from_numpy(result)

    def _log_mixture(self, codes: Integers, without: int | None = None) -> Reals:
        """Log probability (n,) of codes before constraints, of all columns but one."""
        within, groups = self.columns.within(codes), self._grouped(codes)
        if without is not None:
            within[:, without], groups[:, without] = 0.0, -1
        rows, place = np.unique(groups, axis=0, return_inverse=True)  # of a table of few cells each row is there many times
        starts = range(0, len(rows), AT_ONCE)
        logs = [np.logaddexp.reduce(self.joint(rows[start : start + AT_ONCE]), axis=1) for start in starts]
        return np.asarray(within.sum(1) + np.concatenate([*logs, np.empty(0)])[place.ravel()])

    def _holding(self, codes: Integers) -> tuple[npt.NDArray[np.bool_], dict[int, npt.NDArray[np.bool_]]]:
        """Rows (n,) that the constraints allow, and those that all but one allow, where a share of rows breaks one."""
        rows, count = torch.from_numpy(codes), len(self.schema.constraints)
        held, found = self.schema.admissible(rows).numpy(), {}
        for i, constraint in enumerate(self.schema.constraints):
            if constraint.broken:
                but = np.broadcast_to(np.arange(count) == i, (len(codes), count))
                found[i] = self.schema.admissible(rows, but).numpy() & ~held
        return held, found

    @cached_property
    def _breaking(self) -> dict[int, tuple[int, float]]:
        """Column that differs, and how often it breaks by chance, of constraints that a share of rows breaks, if codes tell."""
        found = dict[int, tuple[int, float]]()
        for i, constraint in enumerate(self.schema.constraints):
            name = moved(constraint, self.schema.constraints) if constraint.broken else None
            if name in self.schema.domain.names:
                c, codes = self.schema.domain.names.index(name), self._drawn.copy()
                codes = codes[self._holding(codes)[0]]
                codes[:, c] = np.random.default_rng(0).permutation(codes[:, c])
                chance = float(self._holding(codes)[1][i].mean())
                found |= {i: (c, chance)} if chance else {}
        return found

    @cached_property
    def _drawn(self) -> Integers:
        """Public draws (65,536, d) of codes of the mixture."""
        generator = np.random.default_rng(0)
        return self.columns.refined(iid_rows(self.mixture, _DRAWS, generator), self.columns.shares, generator)

    @property
    def drawn(self) -> tuple[Integers, pd.DataFrame]:
        """Groups (65,536, d) of public draws of the mixture, and their values."""
        generator = torch.Generator().manual_seed(0)
        values = self.schema.decode(torch.from_numpy(self._drawn), generator, self.columns.shares)
        return self._grouped(self._drawn), values

    @cached_property
    def kept_share(self) -> float:
        """Share of rows of the mixture that constraints keep, by 65,536 public draws; the fit drives it towards 1."""
        if not self.schema.rejects:
            return 1.0
        return max(1, int(self.schema.admissible(torch.from_numpy(self._drawn)).sum())) / _DRAWS

    def marginal(self, columns: Sequence[str]) -> Reals:
        """Joint probabilities of some columns, an axis for each, over all their codes; exact for the mixture.

        Of rows that constraints keep they differ by at most 1 - `kept_share` in total variation.
        """
        numbers = [self._column(name) for name in columns]
        found = self.mixture.marginal(numbers)
        for axis, c in enumerate(numbers):
            found = self.columns.spread(found, axis, c)
        return found

    def measured(self) -> list[dict[str, Any]]:
        """Released marginals: columns, the group (size,) of each code of them, noisy counts, and their noise std."""
        names, coarse = self.schema.domain.names, self.columns.coarse
        return [
            {
                "columns": [names[c] for c in m.marginal.columns],
                "groups": [self.levels[m.marginal.level].groups[c][coarse.groups[c]] for c in m.marginal.columns],
                "counts": m.values,
                "noise_std": np.broadcast_to(m.noise_std, m.values.shape),
            }
            for m in self.measurements
        ]

    def workload(self) -> list[dict[str, Any]]:
        """The user's questions, with the error of a count or a mean before and after consistency.

        `measured` is the place of its counts in `measured()`, `noise_std` their error or that of means from them, `model_std`
        that of the answers of the model; None: too few records for a mean. `answer` is the model's: expected counts of a table,
        or means, an axis for each column of `by`, over all codes.
        """
        return [{**own.to_dict(), "answer": self._answer(own.question)} for own in self.answers]

    def _answer(self, question: Question) -> Reals:
        law = self.columns.n * self.marginal(question.columns)
        if question.mean is None:
            return law
        c = self._column(question.mean)
        values = code_means(self.schema.modelled[c], self.columns.shares[c])
        there = np.isfinite(values)
        return np.asarray((law[..., there] @ values[there]) / law[..., there].sum(-1))

    # -- samples -------------------------------------------------------------------------------------------------------

    def samples(
        self, n: int, *, random_state: RandomState = None, given: Given | None = None, rows: Rows = "iid"
    ) -> ColumnSamples:
        """n synthetic rows, free of further privacy cost.

        Arguments:
            given: values of some columns by name, a list where it is one of several, `{"minimum": 60, "maximum": 69}` or one
                of both where it is a number or a date in this range: rows follow the model's law given them.
            rows: "iid", or "matched": the counts of the n rows are close to n times the model's, and rows are dependent.
        """
        seed = sampling_seed(n, random_state)
        if rows not in get_args(Rows):
            raise ValueError(f"rows is {rows!r}; choose one of {', '.join(get_args(Rows))}")
        given = given or {}
        mixture, inside = self.conditioned(given)
        generator = np.random.default_rng(seed)

        def draw(count: int) -> Tensor:
            drawn = matched_rows(mixture, count, generator) if rows == "matched" else iid_rows(mixture, count, generator)
            return torch.from_numpy(self.columns.refined(drawn, inside, generator))

        ranges = {name: value for name, value in given.items() if isinstance(value, Mapping)}
        holds = partial(self.inside_ranges, given=ranges) if ranges else None
        inner, fixed = torch.Generator().manual_seed(seed), self.fixed(given)
        table = self.schema.rows(draw, n, inner, self.columns.shares, holds=holds, fixed=fixed, about=given)
        return ColumnSamples(values=table, schema=self.schema.descriptor())

    def impute(self, table: pd.DataFrame, *, random_state: RandomState = None) -> pd.DataFrame:
        """The table with its nulls replaced by draws from the model given the rest of their row; it is not kept.

        Rows are drawn until they satisfy the constraints, which is the model's law given these; computed columns follow. Known
        values may break a rule that a share of the rows breaks. A null that constraints require stays, and so do rows without
        nulls. Values are written as those of the data were.

        Raises:
            TypeError: no DataFrame of pandas.
            ValueError: a column that is not there, a value that the schema does not allow, or gaps that no draw fills so that
                the constraints hold.
        """
        seed = sampling_seed(len(require_frame(table, "table")), random_state)
        generator, inner = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        gaps = Gaps.of(self, table)
        found, left = gaps.filled(np.arange(len(table)), gaps.of_mixture(generator), generator, inner)
        if len(left):
            raise ValueError(
                f"table has {len(left)} of {len(table)} rows whose gaps none of {TRIES} draws filled so that the constraints "
                "hold; their other values must satisfy the constraints"
            )
        return put(table, found[list(gaps.known)], self.form)

    # -- codes ---------------------------------------------------------------------------------------------------------

    def _codes(self, x: pd.DataFrame | Tensor) -> Integers:
        codes = x if isinstance(x, Tensor) else self.schema.encode(x)
        if codes.ndim != 2 or codes.shape[1] != len(self.schema.domain.sizes):
            raise ValueError(f"x must have shape (n, {len(self.schema.domain.sizes)}), got {tuple(codes.shape)}")
        return codes.numpy()

    # -- intervals -----------------------------------------------------------------------------------------------------

    def refitted(self, generator: np.random.Generator, measurements: Sequence[Measurement] | None = None) -> TablesModel:
        """This release with a mixture fitted, hardly held back, to its own or to other measurements of its marginals.

        ValueError for a release for people with several rows, which depend on each other.
        """
        if self.statement.unit.endswith(" rows"):
            raise ValueError(f"release protects {self.statement.unit}; intervals need rows that are independent of each other")
        found = copy.copy(self)
        found.measurements = list(self.measurements if measurements is None else measurements)
        found.__dict__.pop("kept_share", None)
        from dpgen.systems.tables.fitter import EXCLUDED, Fitter, zeros_of  # here and below, because samples need no fit
        from dpgen.systems.tables.whole import whole_mixture

        if self.mixture.of_cells and any(len(m.marginal.columns) == len(self.levels[0].sizes) for m in found.measurements):
            found.mixture = whole_mixture(self.columns, self.schema, found.measurements)
            return found
        precisions = np.array([float(np.min(m.noise_std)) ** -2 for m in found.measurements])
        n = max(1.0, float(np.average([m.values.sum() for m in found.measurements], weights=precisions)))
        fitter = Fitter(
            self.columns.group_shares,
            n,
            components=min(_COMPONENTS, len(self.mixture.weights)),
            information=_HELD_BACK * sizes(float(precisions.sum()) ** 0.5, n).information,
            zeros=zeros_of(self.schema, self.columns),
            seeds=self._seeds(found.measurements, n),
            generator=np.random.default_rng(generator.integers(2**63)),
        )
        fitter.measure(found.measurements[: len(found.measurements) - self.blocks], self.levels)
        fitter.run(_STEPS, _RATE, _LAST_RATE, avoided=EXCLUDED)
        found.mixture = fitter.mixture
        return found

    def _seeds(self, measurements: Sequence[Measurement], n: float) -> Seeds | None:
        from dpgen.systems.tables.fitter import Held, Seeds

        held = Held.of([measurements[own.measured] for own in self.answers], self.levels)
        if not self.blocks:
            return held.seeds(self.columns, _COMPONENTS)
        blocks, parts = measurements[-self.blocks :], self.levels[-1]
        return Seeds.of(blocks, self.columns.group_shares, parts, n, _COMPONENTS, held.tables)

    def measured_again(self, generator: np.random.Generator) -> list[Measurement]:
        """The measured marginals of as many rows of the model, with noise as there."""
        codes = self.schema.codes_of_samples(self.samples(self.size, random_state=generator).to_pandas())
        groups = np.ascontiguousarray(self.columns.coarse.apply(codes).T)
        counts = Counts.of(groups, [m.marginal for m in self.measurements], self.levels)
        parts = np.split(counts.values, counts.starts[1:-1])
        return [
            replace(m, values=part.reshape(m.values.shape) + m.noise_std * generator.standard_normal(m.values.shape))
            for m, part in zip(self.measurements, parts)
        ]

    def population(self, generator: np.random.Generator, more: int = 1) -> pd.DataFrame:
        """So many rows that a statistic of them says what it is of the model."""
        return self.samples(more * max(_ROWS * self.size, _LEAST_ROWS), random_state=generator).to_pandas()

    # -- files ---------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        values = np.concatenate([m.values.ravel() for m in self.measurements])
        stds = np.concatenate([np.broadcast_to(m.noise_std, m.values.shape).ravel() for m in self.measurements])
        groups = np.concatenate([np.concatenate(level.groups) for level in self.levels])
        arrays = {
            "probabilities": self.mixture.probabilities,
            "weights": self.mixture.weights,
            "groups": np.concatenate(self.columns.coarse.groups),
            "shares": np.concatenate(self.columns.shares),
            "levels": groups,
            "measured": values.astype(np.float64),
            "noise_std": stds.astype(np.float32),
        }
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}

    def description(self) -> dict[str, Any]:
        return {
            "schema": self.schema.descriptor(),
            "n": self.columns.n,
            "sizes": self.mixture.sizes,
            "levels": [level.sizes for level in self.levels],
            "marginals": [[m.marginal.columns, m.marginal.level] for m in self.measurements],
            "declared": self.declared,
            "blocks": self.blocks,
            "workload": [own.to_dict() for own in self.answers],
        }

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> TablesModel:
        schema, sizes = Schema.from_descriptor(description["schema"]), tuple(description["sizes"])
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        widths = schema.domain.sizes
        coarse = Coarsening(tuple(_split(arrays["groups"], widths)), sizes)
        parts = _split(arrays["levels"], sizes * len(description["levels"]))
        levels = [
            Coarsening(tuple(parts[i * len(sizes) : (i + 1) * len(sizes)]), tuple(level))
            for i, level in enumerate(description["levels"])
        ]
        marginals = [Marginal(tuple(columns), level) for columns, level in description["marginals"]]
        shapes = [shape(m, levels) for m in marginals]
        cells = [int(np.prod(s)) for s in shapes]
        stacked = zip(marginals, shapes, _split(arrays["measured"], cells), _split(arrays["noise_std"], cells))
        measurements = [Measurement(m, values.reshape(s), stds.reshape(s)) for m, s, values, stds in stacked]
        columns = Columns(tuple(_split(arrays["shares"], widths)), description["n"], coarse, (), ())
        return cls(
            Mixture(arrays["probabilities"], arrays["weights"], sizes),
            columns,
            schema=schema,
            measurements=measurements,
            levels=levels,
            statement=statement,
            declared=description["declared"],
            answers=_answers(description.get("workload", [])),
            blocks=description.get("blocks", 0),
        )


def _answers(described: Sequence[Mapping[str, Any]]) -> list[Answer]:
    if not described:
        return []
    from dpgen.systems.tables.workload import Answer

    return [Answer.from_dict(own) for own in described]


def _split(values: npt.NDArray[Any], sizes: Sequence[int]) -> list[npt.NDArray[Any]]:
    """Consecutive parts of these sizes."""
    return np.split(values, np.cumsum(sizes)[:-1])


# -- intervals ---------------------------------------------------------------------------------------------------------


def intervals(
    release: Release,
    statistic: Callable[[Any], Any],
    *,
    level: float = 0.95,
    replicates: int = 20,
    random_state: RandomState = None,
) -> pd.DataFrame:
    r"""Estimates with intervals for the population that the rows of a private table are a sample of, at no privacy cost.

    The released model is fitted for rows that are good to work with: it holds dependence back where the noise could have made
    it, so statistics of dependence come out too small. Here the released measurements are fitted again, hardly held back, and
    this second model stands in for the population. B times, n rows are drawn from it, the same marginals of them get fresh
    noise of the same size, and a model is fitted to these. With :math:`\hat\theta` the statistic of the second model and
    :math:`\theta_b` those of the replicates, of mean :math:`\bar\theta` and standard deviation s, the interval is the basic one
    of the bootstrap, with Student's quantile:

    .. math:: 2 \hat\theta - \bar\theta \pm t_{B-1} \, s \sqrt{1 + 1/B}

    So what a fit adds to the model, as it added it to the truth, is taken off. Intervals cover sampling error, the noise of the
    release, and the bias of a fit as it is where the fitted model is the truth. Of dependence that was never measured, or lies
    inside bins, they know nothing. All of it is post-processing: no record is looked at, and nothing is spent.

    Source: Efron and Tibshirani 1993, chapters 6 and 13; for private releases Ferrando, Wang and Sheldon 2022.

    Arguments:
        release: of a mixed table, or of people and their rows, from `fit` or `load`.
        statistic: a number, or several as a mapping, a Series or an array, of samples: rows as a DataFrame of pandas, or linked
            tables by name.
        level: share of such intervals that cover, in (0, 1).
        replicates: B; each takes a part of the time of a fit.
        random_state: public; the same one gives the same intervals.

    Returns:
        A row for each number: its `estimate`, the `lower` and `upper` end, and `std`, the standard error.

    Raises:
        ValueError: an argument out of its range, a release for people with several rows, which depend on each other, or a
            statistic that is not finite, or not of the same names for all rows.
        TypeError: a release of another system.

    Example:
        >>> import dpgen
        >>> frame = pd.DataFrame({"tea": [True] * 300 + [False] * 200})
        >>> schema = {"fields": [{"name": "tea", "type": "boolean"}]}
        >>> release = dpgen.fit(frame, "tables", epsilon=1.0, schema=schema)
        >>> found = intervals(release, lambda rows: rows["tea"].mean(), replicates=10)
        >>> bool(0.4 < found["lower"].item() < found["estimate"].item() < found["upper"].item() < 0.8)
        True
    """
    if not hasattr(release, "refitted"):
        raise TypeError(f"release is a {type(release).__name__}; it must be one of --model tables or relational")
    if not 0 < level < 1:
        raise ValueError(f"level is {level!r}; it must lie in (0, 1)")
    require_whole("replicates", replicates, 2, 10_000)
    from scipy.stats import t

    generator = np.random.default_rng(sampling_seed(0, random_state))
    model = release.refitted(generator)
    estimate, found = _values(model, statistic, generator, more=_MORE), []
    for _ in range(replicates):
        again = model.refitted(generator, model.measured_again(generator))
        found.append(_values(again, statistic, generator))
    middle, std = 2 * estimate - pd.DataFrame(found).mean(skipna=False), pd.DataFrame(found).std()
    if middle.isna().any():
        name = middle.index[middle.isna()][0]
        raise ValueError(f"statistic has {name!r} on some synthetic rows only; it must give the same names for all of them")
    half = t.ppf(0.5 + level / 2, replicates - 1) * std * (1 + 1 / replicates) ** 0.5
    return pd.DataFrame({"estimate": middle, "lower": middle - half, "upper": middle + half, "std": std})


def _values(model: Any, statistic: Callable[[Any], Any], generator: np.random.Generator, *, more: int = 1) -> pd.Series:
    """The statistic of samples of a model."""
    value = statistic(model.population(generator, more))
    values = pd.Series(value if isinstance(value, dict | pd.Series) else np.atleast_1d(value)).astype(np.float64)
    if not np.isfinite(values.to_numpy()).all():
        raise ValueError(f"statistic is {value!r} on synthetic rows; it must be finite (missing values come out as nulls)")
    return values
