"""The paper's figures in their quick version."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from papers.diakonikolas2015 import (
    PRINTED_SCALE,
    Model,
    corrected_scale,
    dyadic_intervals,
    methods,
    published_rule,
    reproduce,
)


@pytest.mark.usefixtures("quiet")
def test_figures_and_table(tmp_path: Path) -> None:
    text = reproduce(tmp_path, quick=True)
    assert {p.name for p in tmp_path.iterdir()} == {"figure1.png", "figure3.csv"} | {
        f"figure3_{name}.png" for name in ("gaussians", "betas", "gammas")
    }
    table = pd.read_csv(tmp_path / "figure3.csv")
    assert set(table.method) == {
        "empirical (not private)",
        *(label for label, _ in methods((4, 8), 1000, np.random.default_rng(0))),
    }
    assert (table.error > 0).all()
    assert (table.seconds >= table.sort_seconds).all()
    assert "partition" in text


# -- Figure 2 ----------------------------------------------------------------------------------------------------------


def test_dyadic_intervals_are_all_that_score() -> None:
    rng, N = np.random.default_rng(0), 64
    x = np.sort(rng.choice([3, 4, 40, 63], 30))
    model = Model(np.array([0, 5, 50, N]), np.array([0.0, 2.0, 28.0, 30.0]))
    slow = {}
    for width in (64, 32, 16, 8, 4, 2, 1):
        for start in range(0, N, width):
            count = int(((x >= start) & (x < start + width)).sum())
            score = abs(count - np.diff(model.at(np.array([start, start + width])))[0])
            if score >= 1:
                slow[start, start + width] = score
    first, last, scores = dyadic_intervals(x, model, N=N)
    assert dict(zip(zip(first.tolist(), last.tolist()), scores.tolist())) == pytest.approx(slow)


def test_the_published_rule_finds_a_distribution() -> None:
    x = np.sort((np.random.default_rng(0).beta(2, 8, 5_000) * 10**18).astype(np.int64))
    rng, places = np.random.default_rng(1), np.linspace(0, 10**18, 101).astype(np.int64)
    scale = corrected_scale(8, 100.0)
    model = published_rule(x, N=10**18, steps=8, epsilon=100.0, delta=1e-6, scale=scale, rng=rng)
    error = np.abs(model.at(places) - np.searchsorted(x, places)).max() / len(x)
    assert error < 0.1
    assert len(model.positions) > 4


@pytest.mark.parametrize("steps", [1, 4, 20])
def test_the_printed_noise_costs_more_than_it_claims(steps: int) -> None:
    """Two disjoint counts that a replaced record moves by 1 each, in every step: the largest loss is 2 T / scale."""

    def largest_loss(scale: float) -> float:
        answers = np.linspace(-30, 30, 2001)
        one = np.abs(answers - 1) / scale - np.abs(answers) / scale
        return steps * 2 * float(one.max())

    assert largest_loss(PRINTED_SCALE) == pytest.approx(4 * steps)
    assert largest_loss(corrected_scale(steps, 1.0)) == pytest.approx(0.5)
