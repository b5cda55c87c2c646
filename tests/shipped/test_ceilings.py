"""Fits without noise, for benchmarks: they train, and nothing of them can be stated or released."""

import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from dpgen import Runtime
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.sampling import PoissonMask
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan
from dpgen.systems.registry import SYSTEMS

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from measuring import NoiselessCurator, unstated

pytestmark = pytest.mark.usefixtures("quiet")


def fit(directory: Path, **options: Any) -> Any:
    plan, config = DPGMPlan(epsilon=1.0, steps=2, sampling_rate=0.5), DPGMConfig(clusters="labels", hidden=3, **options)
    runtime = Runtime(run_dir=directory, accelerator="cpu", progress_bar=False)
    return SYSTEMS["dpgm"].fit(tiny.records(), plan=plan, config=config, curator=NoiselessCurator(), runtime=runtime)


def test_sums_come_out_as_they_are() -> None:
    curator = NoiselessCurator()
    assert curator.gaussian("sizes", BoundedSum(torch.tensor([3, 4]), 1.0), 50.0).tolist() == [3, 4]
    draw = curator.draw("training steps", PoissonMask(0.5), {"gradients": 50.0})
    assert draw is not None
    with draw:
        sums = draw.gaussian("gradients", BoundedSum(torch.ones(2, 3), 1.0), factor=torch.tensor([2.0, 3.0]))
    assert sums.tolist() == [[2.0] * 3, [3.0] * 3]


def test_no_statement_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no noise was added: there is no guarantee, and no statement of it"):
        fit(tmp_path)


@pytest.mark.parametrize("component", ["vae", "rbm"])
def test_what_a_benchmark_samples_cannot_be_saved(component: str, tmp_path: Path) -> None:
    with unstated():
        model = fit(tmp_path, component=component)
    assert model.samples(5, random_state=0).x.shape == (5, tiny.D)
    with pytest.raises(ValueError, match="epsilon of the statement is inf: nothing is protected, so nothing is released"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
