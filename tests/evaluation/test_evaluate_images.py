"""Scores, files and pictures of models of images."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dpgen
from dpgen.data import Images
from dpgen.evaluation import evaluate
from dpgen.pictures import pictures


def images(n: int = 240, *, channels: int = 3, test: int = 40) -> Images:
    """Dark and bright images of noise."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 2
    x = torch.rand(n, 16, 16, channels, generator=generator) * 100 + 120 * labels[:, None, None, None]
    x = x.byte()
    return Images("noise", x[test:], labels[test:], x[:test], labels[:test], class_names=("dark", "bright"))


def released(data: Images) -> Any:
    return dpgen.fit("gaussian", data, epsilon=20.0, delta=1e-3, frequencies=12)


@pytest.mark.parametrize("channels", [1, 3])
def test_scores_and_files_of_a_good_model(tmp_path: Path, channels: int) -> None:
    data = images(channels=channels)
    evaluation = evaluate(released(data), data, full=False)
    trained, own = evaluation.scores
    assert trained.name == "train on synthetic, test on real: accuracy"
    assert trained.real == pytest.approx(1.0, abs=0.05)
    assert min(trained.value, own.value) > 0.9
    assert trained.chance == own.chance == 0.5
    evaluation.write(tmp_path)
    with np.load(tmp_path / "samples.npz") as file:
        assert file["x"].shape[1:] == (16, 16, channels)
        assert file["class_names"].tolist() == ["dark", "bright"]
        assert len(file["labels"]) == len(file["x"])
    assert (tmp_path / "samples.png").stat().st_size > 1000


def test_labels_that_mean_nothing_are_found_out() -> None:
    data = images()
    shuffled = data.labels[torch.randperm(data.n, generator=torch.Generator().manual_seed(0))]
    model = released(Images("shuffled", data.x, shuffled, data.test_x, data.test_labels, class_names=data.class_names))
    assert max(score.value for score in evaluate(model, data, full=False).scores) < 0.8


def test_without_test_images_scores_say_so_and_nothing_is_drawn() -> None:
    data = images(test=0)
    evaluation = evaluate(released(data), data, full=False)
    assert all(score.name.endswith(", on the private images") and score.real is None for score in evaluation.scores)
    assert not evaluation.pictures


def test_a_report_shows_images_of_the_model_alone() -> None:
    titles = [picture.title for picture in pictures(released(images()))]
    assert titles == ["Synthetic images", "Average images", "Classes"]


def test_tables_of_samples_have_a_column_for_each_value() -> None:
    samples = released(images()).samples(3, random_state=0)
    table = samples.to_pandas()
    assert table.shape == (3, 16 * 16 * 3 + 1)
    assert set(table["label"]) <= {"dark", "bright"}
    assert set(samples.by_class()) <= {"dark", "bright"}
