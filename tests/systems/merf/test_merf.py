"""DP-MERF: what is released has the class means of the records, and costs one Gaussian."""

import pytest
import tiny
import torch

import dpgen
from dpgen.data import Images
from dpgen.release import ImageModel, RecordModel

FAST = {"n_features": 200, "hidden": 32, "depth": 1, "latent": 4, "steps": 60, "batch": 100}


def test_synthetic_records_have_the_means_of_their_class() -> None:
    records = tiny.records()
    release = dpgen.fit(records, "merf", epsilon=1e4, delta=1e-5, **FAST | {"steps": 300, "lr": 0.02})
    assert isinstance(release, RecordModel)
    drawn = release.samples(4000, random_state=0)
    for label in range(2):
        found = drawn.x[drawn.labels == label].float().mean()
        assert float(found) == pytest.approx(float(records.x[records.labels == label].float().mean()), abs=0.08)
    assert float((drawn.labels == 0).float().mean()) == pytest.approx(float((records.labels == 0).float().mean()), abs=0.1)


def test_images_in_colour_become_images() -> None:
    x = torch.randint(0, 256, (60, 4, 4, 3), generator=torch.Generator().manual_seed(0)).byte()
    images = Images("tiny", x, torch.arange(60) % 2, x[:4], torch.arange(4) % 2, class_names=("a", "b"))
    release = dpgen.fit(images, "merf", epsilon=1.0, **FAST)
    assert isinstance(release, ImageModel)
    assert release.samples(5, random_state=0).x.shape == (5, 4, 4, 3)
