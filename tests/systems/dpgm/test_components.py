"""Components by name."""

from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import tiny
import torch

from dpgen.privacy.curator import Curator
from dpgen.release import RecordModel
from dpgen.runtime import Runtime
from dpgen.systems.dpgm.fit import fit
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan
from dpgen.systems.registry import load

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("component", get_args(get_type_hints(DPGMConfig)["component"]))
def test_every_component_fits(component: str, tmp_path: Path) -> None:
    plan = DPGMPlan(epsilon=4.0, steps=2, sampling_rate=0.5)
    small = {"vae": {"hidden": 3, "latent": 1}, "rbm": {"hidden": 3, "chains": 4}}[component]
    config = DPGMConfig(component=component, **small)  # type: ignore[arg-type]
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    model = fit(tiny.records(), plan=plan, config=config, curator=Curator(plan.open_ledger()), runtime=runtime)
    assert isinstance(model, RecordModel)
    assert model.samples(7).x.shape == (7, tiny.D)


def test_convolutions_are_trained_released_and_loaded(tmp_path: Path) -> None:
    plan = DPGMPlan(epsilon=4.0, steps=2, sampling_rate=0.5)
    config = DPGMConfig(encoder="cnn", hidden=3, latent=2)
    runtime = Runtime(run_dir=tmp_path / "run", accelerator="cpu", progress_bar=False)
    model = fit(tiny.records(), plan=plan, config=config, curator=Curator(plan.open_ledger()), runtime=runtime)
    assert isinstance(model, RecordModel)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, RecordModel)
    assert torch.equal(model.samples(9, random_state=1).x, again.samples(9, random_state=1).x)
