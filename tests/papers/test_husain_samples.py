"""What generators draw on the ring: modes counted right, kernel estimates that favour them, a budget that is kept."""

import math
from pathlib import Path

import pytest
import torch

from dpgen import SYSTEMS
from dpgen.data.toy import gaussian_ring, load_ring
from dpgen.metrics.densities import Quadrature, negative_log_likelihood
from papers import husain2018 as husain_samples
from papers.husain2018 import (
    DELTA,
    GANS,
    draws,
    gan_samples,
    histogram,
    kernel_log_density,
    metropolis,
    modes_found,
    published_tilt,
    samples_sheet,
    valley,
)

RING = gaussian_ring()
RULE = Quadrature(torch.tensor([[-9.0, 9.0], [-9.0, 9.0]]), 101)
LOG_P = RULE.normalised(RING.log_prob(RULE.nodes))


@pytest.mark.parametrize("found", [1, 3, 8])
def test_modes_are_counted(found: int) -> None:
    x = RING.means[:found].repeat_interleave(200, 0)
    noise = torch.randn(len(x), 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert modes_found(histogram(x + 0.5 * noise, RULE), RING, RULE) == found
    assert modes_found(LOG_P, RING, RULE) == 8


def test_the_standard_gaussian_finds_no_mode() -> None:
    assert modes_found(RULE.normalised(-0.5 * RULE.nodes.square().sum(1)), RING, RULE) == 0


def test_a_ring_without_modes_has_no_valley() -> None:
    radius = RULE.nodes.norm(dim=1)
    ring = RULE.normalised(-((radius - 4) ** 2))
    assert modes_found(ring, RING, RULE) == 8, "which is why the valley is measured"
    assert valley(ring, RING, RULE) == pytest.approx(1.0, abs=0.1)
    assert valley(LOG_P, RING, RULE) == pytest.approx(0.3, abs=0.05)
    assert math.isnan(valley(histogram(torch.full((10, 2), 8.0), RULE), RING, RULE))


def test_draws_have_the_density_they_come_from() -> None:
    x = draws(LOG_P, RULE, 20_000, seed=0)
    assert x.mean(0).abs().max() < 0.1
    assert x.norm(dim=1).mean() == pytest.approx(float(RULE.integral(LOG_P.exp() * RULE.nodes.norm(dim=1))), abs=0.02)
    assert histogram(x, RULE).exp().sub(LOG_P.exp()).abs().sum() * RULE.weight < 0.4


def test_a_kernel_estimate_is_a_density_and_none_of_its_widths_is_nearer_to_the_target() -> None:
    entropy = negative_log_likelihood(LOG_P, LOG_P, RULE)
    log_q, width = kernel_log_density(draws(LOG_P, RULE, 5000, seed=1), LOG_P, RULE)
    assert float(RULE.integral(log_q.exp())) == pytest.approx(1.0)
    assert 0.2 <= width <= 0.5
    assert entropy < negative_log_likelihood(LOG_P, log_q, RULE) < entropy + 0.05


def test_a_collapsed_sample_has_a_finite_and_bad_likelihood() -> None:
    log_q, width = kernel_log_density(RING.means[:1].repeat(100, 1), LOG_P, RULE)
    assert width == max(husain_samples._WIDTHS)
    assert 5.0 < negative_log_likelihood(LOG_P, log_q, RULE) < math.inf


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("method", list(GANS))
def test_a_generator_keeps_its_budget(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = []
    real = SYSTEMS["dpgan"].fit

    def fit(*data: object, **options: object) -> object:
        model = real(*data, **options)
        spent.append(model.statement)
        return model

    monkeypatch.setattr("dpgen.systems.dpgan.fit.fit", fit)
    x = gan_samples(load_ring(n_points=200), method, 2.0, steps=3, n=50, seed=0)
    assert x.shape == (50, 2)
    assert 1.5 < spent[0].epsilon <= 2.0
    assert spent[0].delta == DELTA


def test_the_sheet_is_written(tmp_path: Path) -> None:
    panels = {name: draws(LOG_P, RULE, 20, seed=0) for name in ("a", "b", "c")}
    assert samples_sheet(panels, RULE, tmp_path / "a.png", per_row=2, title="t").stat().st_size > 0


# -- the published sampler ---------------------------------------------------------------------------------------------


def test_the_published_training_learns_inside_its_bound() -> None:
    generator = torch.Generator().manual_seed(0)
    x = 1.5 + 0.5 * torch.randn(500, 1, generator=generator)
    tilt = published_tilt(x, epsilon=1.0, epochs=60)
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
