"""Evaluation of released distributions of ordered columns, beside the empirical CDF that is not private."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.data.columns import Columns
from dpgen.data.toy import OrderedMixture
from dpgen.evaluation.scores import Evaluation, Score
from dpgen.figures import new_figure, save_figure
from dpgen.systems.ordered.estimator import Values, below, in_order, outline, ranked
from dpgen.systems.ordered.model import OrderedDistribution, PiecewiseCDF

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


SYNTHETIC = 10_000
_GRID = 4096
_MOST_POINTS = 10**6
_ENGINE_POINTS = 10**4  # cells of more records than n over so many are resolved


def _empirical_below(values: Values, positions: Integers) -> Reals:
    return below(values, positions) / len(values)


def kolmogorov_error(released: PiecewiseCDF, values: Values, truth: OrderedMixture | None = None) -> float:
    r"""Largest :math:`|F(p) - G(p)|` over integer positions, G the truth, or the empirical CDF of sorted values (n,).

    Looked for at the knots, at an even grid, and at (at most a million of) the records and the positions after them; in an
    engine at every ten-thousandth.

    >>> half = PiecewiseCDF(np.array([0, 10]), np.array([0.0, 1.0]))
    >>> kolmogorov_error(half, np.array([0, 9]))
    0.4
    """
    positions = _positions(released, values)
    target = _empirical_below(values, positions) if truth is None else truth.below(positions, released.size)
    return float(np.abs(released.below(positions) - target).max())


def empirical_error(values: Integers, truth: OrderedMixture, N: int) -> float:
    """Largest error of the empirical CDF of sorted values against the truth: what is left without privacy."""
    gaps = [truth.below(x, N) - _empirical_below(values, x) for x in (values, values + 1)]
    return float(np.abs(gaps).max())


def total_variation(released: PiecewiseCDF, truth: OrderedMixture, *, cells: int = 2**16) -> float:
    """Total variation distance of the masses of equal cells; finer structure is not seen."""
    edges = _even(released.size, cells)
    return float(0.5 * np.abs(np.diff(released.below(edges)) - np.diff(truth.below(edges, released.size))).sum())


def _even(N: int, cells: int) -> Integers:
    t = min(cells, N)
    return np.array([N * i // t for i in range(t + 1)], np.int64)


def _positions(released: PiecewiseCDF, values: Values) -> Integers:
    if isinstance(values, np.ndarray):
        some = values[:: max(1, len(values) // _MOST_POINTS)]
    else:
        some, _ = outline(values, len(values) // _ENGINE_POINTS, 0)
    return np.unique(np.concatenate([released.knots, _even(released.size, _GRID), some, some + 1]))


def evaluate(release: OrderedDistribution, data: Columns, *, seed: int) -> Evaluation:
    """Kolmogorov error of every column, to the truth where it is known, else to the empirical CDF of the private records.

    Beside it stands the error of the empirical CDF itself ("real data"), and of the uniform distribution.
    """
    ordered = {name: ranked(column, N=data.domains[name].size) for name, column in data.values.items()}
    scores: list[Score] = []
    for name, values in ordered.items():
        scores += _column_scores(name, release.cdfs[name], values, (data.truth or {}).get(name))
    samples = release.samples(SYNTHETIC, random_state=seed)

    levels = np.arange(1, 100) / 100
    quantiles = pd.DataFrame({"level": levels} | {name: release.quantile(levels, name) for name in release.columns})
    return Evaluation(
        scores=scores,
        released={
            "samples.csv": partial(samples.encoded, ".csv"),
            "quantiles.csv": lambda: quantiles.to_csv(index=False).encode(),
        },
        pictures={"cdf.png": lambda path: cdf_figure(release, ordered, data.truth, path)},
    )


def _column_scores(name: str, cdf: PiecewiseCDF, values: Values, truth: OrderedMixture | None) -> list[Score]:
    uniform = PiecewiseCDF(np.array([0, cdf.size]), np.array([0.0, 1.0]))
    goal = "the truth" if truth is not None else "the private records"
    real = None if truth is None else empirical_error(in_order(values), truth, cdf.size)
    error, chance = kolmogorov_error(cdf, values, truth), kolmogorov_error(uniform, values, truth)
    options: dict[str, Any] = {"better": "lower", "baseline": "uniform"}
    scores = [Score(f"{name}: Kolmogorov error to {goal}", error, real=real, chance=chance, kind="Kolmogorov error", **options)]
    if truth is not None:
        own, chance = total_variation(cdf, truth), total_variation(uniform, truth)
        scores.append(Score(f"{name}: total variation to the truth", own, chance=chance, private=False, **options))
    return scores


def cdf_figure(release: OrderedDistribution, ordered: Mapping[str, Values], truth: Any, path: Path | str) -> Path:
    """Released, empirical and (where known) true CDF of each column, and what the release is off, in its own panel.

    The empirical CDF is private: show the picture to those who may see the records.
    """
    figure = new_figure(9.0, 3.2 * len(ordered))
    figure.suptitle(release.statement.in_words(), fontsize=8)
    panels = figure.subplots(len(ordered), 2, squeeze=False)
    for (name, values), (left, right) in zip(ordered.items(), panels):
        cdf, domain = release.cdfs[name], release.domains[name]
        p = _places(cdf)
        x: Any = domain.as_float(p)
        if domain.kind == "date":
            x = (x * 1e6).astype("datetime64[us]")
        lines = {"released": cdf.below(p), "empirical (not private)": _empirical_below(values, p)}
        known = (truth or {}).get(name)
        if known is not None:
            lines["truth"] = known.below(p, cdf.size)
        for style, (label, y) in zip(("-", "--", ":"), lines.items()):
            left.plot(x, y, style, label=label, linewidth=1.2)
        axis = f"{name} (UTC)" if domain.kind == "date" else name
        left.set(xlabel=axis, ylabel="P(X < x)", title="distribution function")
        left.legend(frameon=False)
        _differences(right, x, lines, "empirical (not private)" if known is None else "truth", axis)
        for panel in (left, right) if domain.kind == "date" else ():
            panel.tick_params(axis="x", rotation=30)
    return save_figure(figure, path)


def _places(cdf: PiecewiseCDF) -> Integers:
    """Up to 601 places in the part of the domain that holds nearly all of the distribution."""
    inner = cdf.inverse(np.array([0.001, 0.999]))
    margin = int(inner[1] - inner[0]) // 20 + 1
    low, high = max(0, int(inner[0]) - margin), min(cdf.size, int(inner[1]) + margin)
    return np.unique(np.array([low + (high - low) * i // 600 for i in range(601)], np.int64))


def _differences(axes: Any, x: Any, lines: Mapping[str, Reals], target: str, xlabel: str) -> None:
    """Distribution functions without that of the target, at x (n,)."""
    for label, y in lines.items():
        if label != target:
            axes.plot(x, y - lines[target], label=f"{label} - {target.split(' ')[0]}", linewidth=0.9)
    axes.axhline(0, color="black", linewidth=0.5)
    axes.set(xlabel=xlabel, ylabel="difference", title=f"difference to the {target}")
    axes.legend(frameon=False)
