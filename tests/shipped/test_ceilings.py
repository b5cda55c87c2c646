"""Fits without noise, for benchmarks: they train, and nothing of them can be stated or released."""

import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from refusals import refused

from dpgen import Runtime
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.sampling import PoissonMask
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan
from dpgen.systems.registry import SYSTEMS

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from measuring import NoiselessCurator, unstated

pytestmark = pytest.mark.usefixtures("quiet")


def test_sums_come_out_as_they_are() -> None:
    curator = NoiselessCurator()
    assert curator.gaussian("sizes", BoundedSum(torch.tensor([3, 4]), 1.0), 50.0).tolist() == [3, 4]
    draw = curator.draw("training steps", PoissonMask(0.5), {"gradients": 50.0})
    assert draw is not None
    with draw:
        sums = draw.gaussian("gradients", BoundedSum(torch.ones(2, 3), 1.0), factor=torch.tensor([2.0, 3.0]))
    assert sums.tolist() == [[2.0] * 3, [3.0] * 3]


@pytest.mark.parametrize("component", ["vae", "rbm"])
def test_what_a_benchmark_samples_has_no_statement_and_cannot_be_saved(component: str, tmp_path: Path) -> None:
    plan = DPGMPlan(epsilon=1.0, steps=2, sampling_rate=0.5)
    config = DPGMConfig(clusters="labels", hidden=3, component=component)
    options: dict[str, Any] = {"plan": plan, "config": config, "curator": NoiselessCurator()}
    options["runtime"] = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    with refused("no noise was added"):
        SYSTEMS["dpgm"].fit(tiny.records(), **options)
    (tmp_path / "last.ckpt").unlink(missing_ok=True)
    with unstated():
        model: Any = SYSTEMS["dpgm"].fit(tiny.records(), **options | {"curator": NoiselessCurator()})
    assert model.samples(5, random_state=0).x.shape == (5, tiny.D)
    with refused("epsilon of the statement is inf"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
