"""Pictures of records."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from dpgen.evaluation.records import samples_figure


def images(n: int, d: int, share: float = 0.5) -> torch.Tensor:
    return (torch.rand(n, d, generator=torch.Generator().manual_seed(n)) < share).to(torch.uint8)


def darkness(path: Path) -> tuple[float, float]:
    """Mean ink of the left and the right half of a picture."""
    picture = 1 - np.asarray(imread(path), dtype=float)[..., :3].mean(-1)
    left, right = np.array_split(picture, 2, axis=1)
    return float(left.mean()), float(right.mean())


def test_samples_figure_shows_real_left_and_synthetic_right(tmp_path: Path) -> None:
    black, white = torch.ones(40, 20), torch.zeros(8, 20)
    left, right = darkness(samples_figure(black, [white] * 5, (4, 5), tmp_path / "a.png"))
    assert left > 2 * right
    left, right = darkness(samples_figure(white, {"zero": black, "one": black}, (4, 5), tmp_path / "b.png"))
    assert right > 1.5 * left


def test_samples_figure_blank_short_and_labelled_rows(tmp_path: Path) -> None:
    clusters = {"full": images(9, 12), "short": images(2, 12), "empty": images(0, 12)}
    path = samples_figure(images(3, 12), clusters, (3, 4), tmp_path / "new" / "a.svg", per_row=4)
    text = path.read_text()
    assert all(f"<!-- {label} -->" in text for label in [*clusters, "real", "synthetic"])


def test_records_that_are_no_images_are_compared_by_marginals(tmp_path: Path) -> None:
    path = samples_figure(images(50, 7), [images(20, 7), images(0, 7)], None, tmp_path / "a.svg")
    assert "<!-- share of ones, real -->" in path.read_text()


@pytest.mark.parametrize(
    ("real", "clusters", "shape", "message"),
    [
        (images(0, 6), [images(2, 6)], (2, 3), r"real has shape \(0, 6\)"),
        (images(2, 6), [], (2, 3), "synthetic_by_cluster has 0 clusters and no sample"),
        (images(2, 6), [images(0, 6)] * 3, None, "synthetic_by_cluster has 3 clusters and no sample"),
        (images(2, 6), [images(2, 5)], (2, 3), r"samples of cluster 0 have shape \(2, 5\): they must be \(m, 6\)"),
        (images(2, 6), [images(2, 6)], (2, 2), r"image_shape is \(2, 2\): it must have 6 pixels"),
    ],
)
def test_samples_figure_refuses(tmp_path: Path, real, clusters, shape, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        samples_figure(real, clusters, shape, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def test_figures_refuse_unknown_suffix_and_no_samples(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a.xyz': its suffix must be one of .*png.*svg"):
        samples_figure(images(2, 6), [images(2, 6)], (2, 3), tmp_path / "a.xyz")
    with pytest.raises(ValueError, match="per_row is 0: it must be >= 1"):
        samples_figure(images(2, 6), [images(2, 6)], (2, 3), tmp_path / "a.png", per_row=0)


def test_pictures_leave_pyplot_alone(tmp_path: Path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    samples_figure(images(2, 6), [images(2, 6)], (2, 3), tmp_path / "a.png")
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_a_picture_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = samples_figure(images(2, 6), [images(2, 6)], (2, 3), tmp_path / "a.png")
    before = path.read_bytes()

    def fail(source: str, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        samples_figure(images(9, 6), [images(9, 6)], (2, 3), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]
