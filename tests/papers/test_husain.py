"""The experiments of Husain et al.: the smoke version writes everything, and no density leaves its mollifier."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from dpgen.data.toy import gaussian_ring, mixture_1d
from dpgen.metrics.densities import Quadrature, negative_log_likelihood
from papers import husain2018 as husain
from papers.husain2018 import (
    GANS,
    NOT_THE_SAME,
    PRIVACY,
    QUICK,
    SAMPLES,
    Problem,
    draws,
    histogram,
    kernel_log_density,
    lines_figure,
    metropolis,
    modes_found,
    published_tilt,
    reproduce,
    valley,
)

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.slow
def test_the_smoke_version_writes_every_picture_and_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    def watched(panels: Any, path: Path, **options: Any) -> Path:
        lines.extend(label for panel in panels.values() for label in panel)
        return lines_figure(panels, path, **options)

    monkeypatch.setattr(husain, "lines_figure", watched)
    text = reproduce(tmp_path, quick=True)
    names = {path.name for path in tmp_path.iterdir()}
    domains = {"ring", "1-D_variance"}
    assert {f"figure{n}_{domain}.png" for n in (3, 4) for domain in domains} <= names
    rings = {"figure1_ring.png", "figure1_samples.png", "figure8_random_2d.png"}
    assert rings | {"figure6_random_1d.png", "figure7_random_1d.png", "results.csv"} <= names
    table = pd.read_csv(tmp_path / "results.csv")
    assert set(table["method"]) == set(PRIVACY)
    assert table["nll"].map(math.isfinite).all()
    assert table["coverage"].between(0, 1 + 1e-9).all()
    densities = set(PRIVACY) - {*GANS, SAMPLES}
    assert len(table) == len(densities) * 4 + len(GANS) + 1
    assert (table["density"] == "exact").sum() == len(densities) * 4
    assert NOT_THE_SAME in text
    assert lines, "methods against epsilon"
    assert not [label for label in lines if "DPGAN" in label or SAMPLES in label], "they have another axis"
    assert all(privacy in text for privacy in PRIVACY.values()), "the privacy model stands beside every row"


def test_integral_methods_stay_in_the_mollifier_and_none_beats_the_optimum() -> None:
    problem = Problem("line", mixture_1d(), QUICK, 0)
    epsilon = 1.0
    densities = problem.densities(epsilon)
    rows = {row["method"]: row for row in problem.rows("4", densities, epsilon, m=3)}
    for method, log_q in densities.items():
        log_ratio = log_q - problem.log_q0
        finite = log_ratio[torch.isfinite(log_ratio)]
        if method in ("MBDE", "SIR", "SIR, alpha .05", "optimum", "Q0 alone"):
            assert float(finite.max() - finite.min()) <= epsilon * (1 + 1e-6), (method, PRIVACY[method])
    assert rows["optimum"]["nll"] <= min(rows[method]["nll"] for method in ("Q0 alone", "MBDE", "SIR")) + 1e-6
    assert rows["optimum"]["nll"] == pytest.approx(0.639, abs=0.002)
    assert rows["Q0 alone"]["nll"] == pytest.approx(1.092, abs=0.001)


# -- samples of generators ---------------------------------------------------------------------------------------------

RING = gaussian_ring()
RULE = Quadrature(torch.tensor([[-9.0, 9.0], [-9.0, 9.0]]), 101)
LOG_P = RULE.normalised(RING.log_prob(RULE.nodes))


def test_a_ring_without_modes_has_no_valley() -> None:
    radius = RULE.nodes.norm(dim=1)
    ring = RULE.normalised(-((radius - 4) ** 2))
    assert modes_found(ring, RING, RULE) == 8, "which is why the valley is measured"
    assert valley(ring, RING, RULE) == pytest.approx(1.0, abs=0.1)
    assert valley(LOG_P, RING, RULE) == pytest.approx(0.3, abs=0.05)
    assert math.isnan(valley(histogram(torch.full((10, 2), 8.0), RULE), RING, RULE))


def test_a_kernel_estimate_is_a_density_and_none_of_its_widths_is_nearer_to_the_target() -> None:
    entropy = negative_log_likelihood(LOG_P, LOG_P, RULE)
    log_q, width = kernel_log_density(draws(LOG_P, RULE, 5000, seed=1), LOG_P, RULE)
    assert float(RULE.integral(log_q.exp())) == pytest.approx(1.0)
    assert 0.2 <= width <= 0.5
    assert entropy < negative_log_likelihood(LOG_P, log_q, RULE) < entropy + 0.05


# -- the published sampler ---------------------------------------------------------------------------------------------


def test_the_published_training_learns_inside_its_bound() -> None:
    generator = torch.Generator().manual_seed(0)
    x = 1.5 + 0.5 * torch.randn(500, 1, generator=generator)
    tilt = published_tilt(x, epsilon=1.0, epochs=20)
    z = torch.linspace(-5, 5, 101)[:, None]
    assert float(tilt(z).abs().max()) <= 0.25
    assert float(tilt(x).mean()) > 0.1
    assert float(tilt(-x).mean()) < -0.1


def test_chains_reach_the_density_that_they_are_given() -> None:
    """N(0, 1) e^(z / 2) is N(1/2, 1)."""
    drawn = metropolis(lambda z: 0.5 * z[:, 0], d=1, n=4000, length=60)
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.1)
    assert float(drawn.std()) == pytest.approx(1.0, abs=0.1)
    assert float(metropolis(lambda z: 0.5 * z[:, 0], d=1, n=4000, length=0).mean()) == pytest.approx(0.0, abs=0.1)
