r"""Intervals for what a table is asked, that know the noise of its release and that its rows are a sample.

The released model is fitted for rows that are good to work with: it holds dependence back where the noise could have made it,
so statistics of dependence come out too small. Here the released measurements are fitted again, hardly held back, and this
second model stands in for the population. B times, n rows are drawn from it, the same marginals of them get fresh noise of the
same size, and a model is fitted to these. With :math:`\hat\theta` the statistic of the second model and :math:`\theta_b` those
of the replicates, of mean :math:`\bar\theta` and standard deviation s, the interval is the basic one of the bootstrap, with
Student's quantile:

.. math:: 2 \hat\theta - \bar\theta \pm t_{B-1} \, s \sqrt{1 + 1/B}

What a fit adds to the model, as it added it to the truth, is taken off. All of it is post-processing of the release: no record
is looked at, and nothing is spent.

Source: Efron and Tibshirani 1993, chapters 6 and 13; for private releases Ferrando, Wang and Sheldon 2022.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from dpgen.privacy.mechanisms import require_whole
from dpgen.release import RandomState, sampling_seed
from dpgen.systems.tables.marginals import Counts, Measurement
from dpgen.systems.tables.mixture import EXCLUDED, Fitter
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.plan import sizes
from dpgen.systems.tables.zeros import zeros_of

if TYPE_CHECKING:
    from dpgen.release import Release

_ROWS, _MORE, _LEAST_ROWS, _LEAST_PEOPLE = 4, 4, 20_000, 4_000
"""Synthetic rows that a statistic is computed on, for each row of the private table, more for the estimate, and at least."""
_HELD_BACK = 0.01
"""Of the strength of independence in the released model."""
_COMPONENTS, _STEPS, _RATE, _LAST_RATE = 64, 1500, 0.1, 0.002


@runtime_checkable
class Refitted(Protocol):
    """A release that fits its measurements again, hardly held back, and measures samples of its own as it was measured."""

    def refitted(self, generator: np.random.Generator, measurements: Any = None) -> Any: ...
    def measured_again(self, generator: np.random.Generator) -> Any: ...


def intervals(
    release: Release,
    statistic: Callable[[Any], Any],
    *,
    level: float = 0.95,
    replicates: int = 20,
    random_state: RandomState = None,
) -> pd.DataFrame:
    """Estimates with intervals for the population that the rows of a private table are a sample of, at no privacy cost.

    They cover sampling error, the noise of the release, and the bias of a fit as it is where the fitted model is the truth. Of
    dependence that was never measured, or lies inside bins, they know nothing.

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
    linked = isinstance(release, Refitted)
    if not isinstance(release, TablesModel | Refitted):
        raise TypeError(f"release is a {type(release).__name__}; it must be one of --model tables or relational")
    if not linked and release.statement.unit.endswith(" rows"):
        raise ValueError(f"release protects {release.statement.unit}; intervals need rows that are independent of each other")
    if not 0 < level < 1:
        raise ValueError(f"level is {level!r}; it must lie in (0, 1)")
    require_whole("replicates", replicates, 2, 10_000)
    from scipy.stats import t

    generator = np.random.default_rng(sampling_seed(0, random_state))
    model: Any = (
        release.refitted(generator) if isinstance(release, Refitted) else _fitted(release, release.measurements, generator)
    )
    estimate, found = _values(model, statistic, generator, more=_MORE), []
    for _ in range(replicates):
        again = model.measured_again(generator) if linked else _measured(model, generator)
        other = model.refitted(generator, again) if linked else _fitted(model, again, generator)
        found.append(_values(other, statistic, generator))
    found = pd.DataFrame(found)
    middle, std = 2 * estimate - found.mean(skipna=False), found.std()
    if middle.isna().any():
        name = middle.index[middle.isna()][0]
        raise ValueError(f"statistic has {name!r} on some synthetic rows only; it must give the same names for all of them")
    half = t.ppf(0.5 + level / 2, replicates - 1) * std * (1 + 1 / replicates) ** 0.5
    return pd.DataFrame({"estimate": middle, "lower": middle - half, "upper": middle + half, "std": std})


def _fitted(release: TablesModel, measurements: Sequence[Measurement], generator: np.random.Generator) -> TablesModel:
    """A release with another mixture, fitted to measurements of its marginals and hardly held back."""
    columns = release.columns
    precisions = np.array([float(np.min(m.noise_std)) ** -2 for m in measurements])
    n = max(1.0, float(np.average([m.values.sum() for m in measurements], weights=precisions)))
    fitter = Fitter(
        columns.group_shares,
        n,
        components=min(_COMPONENTS, len(release.mixture.weights)),
        information=_HELD_BACK * sizes(float(precisions.sum()) ** 0.5, n).information,
        zeros=zeros_of(release.schema, columns),
        generator=np.random.default_rng(generator.integers(2**63)),
    )
    fitter.measure(measurements, release.levels)
    fitter.run(_STEPS, _RATE, _LAST_RATE, avoided=EXCLUDED)
    found = copy.copy(release)
    found.mixture, found.measurements = fitter.mixture, list(measurements)
    found.__dict__.pop("kept_share", None)
    return found


def _measured(model: TablesModel, generator: np.random.Generator) -> list[Measurement]:
    """The marginals of a release in as many rows of a model, with noise as there."""
    rows = model.samples(model.size, random_state=generator).to_pandas()
    codes = model.schema.encode(rows).numpy()
    groups = np.ascontiguousarray(model.columns.coarse.apply(codes).T)
    counts = Counts.of(groups, [m.marginal for m in model.measurements], model.levels)
    parts = np.split(counts.values, counts.starts[1:-1])
    return [
        replace(m, values=part.reshape(m.values.shape) + m.noise_std * generator.standard_normal(m.values.shape))
        for m, part in zip(model.measurements, parts)
    ]


def _values(model: Any, statistic: Callable[[Any], Any], generator: np.random.Generator, *, more: int = 1) -> pd.Series:
    """The statistic of many rows, or people, of a model."""
    linked = isinstance(model, Refitted)
    count = max(model.size, _LEAST_PEOPLE) if linked else max(_ROWS * model.size, _LEAST_ROWS)
    samples = model.samples(more * count, random_state=generator)
    value = statistic(samples.restored() if linked else samples.to_pandas())
    values = pd.Series(value if isinstance(value, dict | pd.Series) else np.atleast_1d(value)).astype(np.float64)
    if not np.isfinite(values.to_numpy()).all():
        raise ValueError(f"statistic is {value!r} on synthetic rows; it must be finite (missing values come out as nulls)")
    return values
