"""Errors of released columns against slow references, and the files of an evaluation."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny

from dpgen.columns.discretized import DiscretizedColumn
from dpgen.data import load_mixture
from dpgen.data.columns import Columns
from dpgen.data.toy import reference_mixture
from dpgen.evaluation import columns as columns_module
from dpgen.evaluation import evaluate
from dpgen.evaluation.columns import cdf_figure, empirical_error, kolmogorov_error, total_variation
from dpgen.systems.ordered.model import OrderedDistribution, PiecewiseCDF


def uniform(N: int) -> PiecewiseCDF:
    return PiecewiseCDF(np.array([0, N]), np.array([0.0, 1.0]))


def test_kolmogorov_errors_are_those_of_every_position() -> None:
    N, mixture = 500, reference_mixture("gammas")
    x = np.sort(mixture.draw(200, N, np.random.default_rng(0)))
    places = np.arange(N + 1)
    released = PiecewiseCDF(np.array([0, 100, N]), np.array([0.0, 0.6, 1.0]))
    empirical, truth = np.searchsorted(x, places) / 200, mixture.below(places, N)
    assert kolmogorov_error(released, x) == pytest.approx(np.abs(released.below(places) - empirical).max())
    assert kolmogorov_error(released, x, mixture) == pytest.approx(np.abs(released.below(places) - truth).max())
    assert empirical_error(x, mixture, N) == pytest.approx(np.abs(empirical - truth).max())
    slow = 0.5 * np.abs(np.diff(released.below(places)) - np.diff(truth)).sum()
    assert total_variation(released, mixture) == pytest.approx(slow)


def test_scores_and_files(tmp_path: Path) -> None:
    data = load_mixture(n_records=2000)
    release = OrderedDistribution({"x": uniform(10**18)}, data.domains, statement=tiny.statement())
    evaluation = evaluate(release, data, seed=0)
    error, variation = evaluation.scores
    assert error.name == "x: Kolmogorov error to the truth"
    assert error.value == error.chance
    assert error.real is not None
    assert error.real < 0.06
    assert variation.value == variation.chance
    evaluation.write(tmp_path)
    assert (tmp_path / "cdf.png").stat().st_size > 5000
    assert len(pd.read_csv(tmp_path / "samples.csv")) == 10_000
    assert list(pd.read_csv(tmp_path / "quantiles.csv").columns) == ["level", "x"]


def test_dates_are_dates_on_their_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = DiscretizedColumn(kind="date", low="2020-01-01", high="2021-12-31", resolution="86400")
    days = np.arange(0, 700, 7)
    release = OrderedDistribution({"day": uniform(domain.size)}, {"day": domain}, statement=tiny.statement())
    figures: list[Any] = []
    monkeypatch.setattr(columns_module, "save_figure", lambda figure, path: figures.append(figure) or path)
    cdf_figure(release, {"day": days}, None, tmp_path / "cdf.png")
    left, right = figures[0].axes
    figures[0].canvas.draw()
    assert left.get_xlabel() == right.get_xlabel() == "day (UTC)"
    assert any("2020" in label.get_text() for label in left.get_xticklabels())


def test_without_truth_the_private_records_are_the_measure() -> None:
    data = load_mixture(n_records=2000)
    real = Columns("real", data.values, data.domains)
    release = OrderedDistribution({"x": uniform(10**18)}, data.domains, statement=tiny.statement())
    [score] = evaluate(release, real, seed=0).scores
    assert score.name == "x: Kolmogorov error to the private records"
    assert score.real is None
