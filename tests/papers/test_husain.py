"""The experiments of Husain et al.: the smoke version writes everything, and no density leaves its mollifier."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from dpgen.data.toy import mixture_1d
from papers import husain2018 as husain
from papers.husain2018 import GANS, NOT_THE_SAME, PRIVACY, QUICK, SAMPLES, Problem, lines_figure, reproduce

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


def test_means_and_deviations_of_repeats() -> None:
    rows = [{"method": "MBDE", "epsilon": 1.0, "nll": value} for value in (1.0, 2.0, 3.0)]
    [(x, mean, std)] = husain._lines(rows, "nll", PRIVACY).values()
    assert (x, mean, std) == ([1.0], [2.0], [1.0])


def png_width(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[16:20], "big")


def test_lines_are_drawn_with_what_is_finite(tmp_path: Path) -> None:
    lines = {"a": ([1.0, 2.0, 3.0], [0.5, math.inf, 0.3], [0.1, 0.0, 0.1]), "b": ([1.0], [math.nan], [0.0])}
    one = png_width(lines_figure({"NLL": lines}, tmp_path / "one.png", xlabel="epsilon"))
    two = png_width(lines_figure({"NLL": lines, "coverage": lines}, tmp_path / "two.png", xlabel="epsilon"))
    assert two == pytest.approx(2 * one, abs=2)
