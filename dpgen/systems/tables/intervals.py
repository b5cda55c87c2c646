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

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dpgen.privacy.mechanisms import require_whole
from dpgen.release import RandomState, sampling_seed

if TYPE_CHECKING:
    from dpgen.release import Release

_MORE = 4
"""Times as many samples for the estimate as for a replicate."""


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
