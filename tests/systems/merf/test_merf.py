"""DP-MERF: what is released has the class means of the records, and costs one Gaussian."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from fixed_source import FixedKeySource
from refusals import refused

import dpgen
from dpgen.data import Images
from dpgen.privacy.curator import Curator
from dpgen.release import ImageModel, RecordModel
from dpgen.runtime import Runtime
from dpgen.systems.merf.fit import fit
from dpgen.systems.merf.plan import MERFConfig
from dpgen.systems.plan import SumsPlan

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


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_statement_is_the_budget_whatever_the_records(relation: str) -> None:
    for labelled in (True, False):
        release = dpgen.fit(tiny.records(labelled=labelled), "merf", epsilon=0.7, delta=1e-6, relation=relation, **FAST)
        assert 0.69 <= release.statement.epsilon <= 0.7


def test_generators_see_the_records_through_the_noisy_sums_alone() -> None:
    """With noise that drowns them, fits of other records under the same noise differ by no more than rounding does."""
    released = []
    for flip in (False, True):
        records = tiny.records()
        x = 1 - records.x if flip else records.x
        private = replace(records, x=x)
        plan, runtime = SumsPlan(epsilon=1e-4), Runtime(accelerator="cpu")
        curator = Curator(plan.open_ledger(), source=FixedKeySource(1))
        released.append(fit(private, plan=plan, config=MERFConfig(**FAST), curator=curator, runtime=runtime))
    one, two = (model.samples(2000, random_state=0).x.float().mean(0).numpy() for model in released)
    assert np.abs(one - two).max() < 0.15


@pytest.mark.parametrize(
    ("name", "value"), [("n_features", 3), ("n_features", 0), ("gamma", 0.0), ("lr", -1.0), ("steps", 0), ("latent", 0)]
)
def test_choices_out_of_range_are_refused(name: str, value: float) -> None:
    with refused(name):
        MERFConfig(**{name: value})
