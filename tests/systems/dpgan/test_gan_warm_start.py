"""DPGAN that starts from a release: trained without noise on public samples, charged once."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from dpgen.data import load_ring
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.runtime import Runtime
from dpgen.systems.dp_sgd.training import NOTE
from dpgen.systems.dpgan.fit import DPGAN, fit, pretrain_gan
from dpgen.systems.dpgan.plan import DPGANConfig, DPGANPlan
from dpgen.systems.marginals.model import ProductMixture

pytestmark = pytest.mark.usefixtures("quiet")


def release(**changes: Any) -> ProductMixture:
    """Class 0 is mostly ones, class 1 mostly zeros."""
    p = torch.tensor([[0.9], [0.1]]).expand(2, tiny.D)
    options: dict[str, Any] = {"n_classes": 2, "noise_multiplier": 2.0} | changes
    return ProductMixture(p, torch.tensor([30.0, 30.0]), statement=tiny.statement(), **options)


@pytest.mark.parametrize("loss", ["nonsaturating", "wgan"])
def test_both_networks_learn_what_the_release_knows(loss: Any) -> None:
    config = DPGANConfig(hidden=16, latent=2, loss=loss)
    gan = DPGAN(d=tiny.D, plan=DPGANPlan(steps=3), config=config, n_classes=2)
    before = gan.bank.theta.clone()
    pretrain_gan(gan, release(), steps=300, generator=torch.Generator().manual_seed(0))
    means = gan.preview(100).mean((1, 2))
    assert float(means[0]) > 0.65, "the average that is released begins there, too"
    assert float(means[1]) < 0.35
    assert not torch.equal(before, gan.bank.theta)
    assert loss != "wgan" or float(gan.bank.theta.detach().abs().max()) <= 1.0


def fitted(directory: Path, *, epsilon: float = 6.0, **options: Any) -> tuple[Any, Ledger]:
    release().save(directory / "release")
    plan = DPGANPlan(epsilon=epsilon, steps=3, sampling_rate=0.5)
    start = {"warm_start": directory / "release", "warm_start_steps": 2} | options
    config = DPGANConfig(hidden=3, latent=2, fakes=8, **start)  # type: ignore[arg-type]
    ledger = plan.open_ledger()
    runtime = Runtime(run_dir=directory, accelerator="cpu", progress_bar=False)
    return fit(tiny.records(), plan=plan, config=config, curator=Curator(ledger), runtime=runtime), ledger


def test_the_ledger_holds_the_release_and_the_training(tmp_path: Path) -> None:
    model, ledger = fitted(tmp_path)
    assert ledger.entries()[0].note.startswith(NOTE)
    assert 5.9 < ledger.epsilon() <= 6.0
    assert model.statement.mechanisms[0]["note"].startswith(NOTE)


@pytest.mark.filterwarnings("ignore:warm_start_origin=public")
def test_public_starts_are_named_in_the_statement(tmp_path: Path) -> None:
    model, ledger = fitted(tmp_path, warm_start_origin="public")
    assert not any(entry.note.startswith(NOTE) for entry in ledger.entries())
    assert any("declared to be of public records" in text for text in model.statement.not_covered)


def test_starts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    gan = DPGAN(d=tiny.D + 1, plan=DPGANPlan(steps=3), config=DPGANConfig(hidden=3, latent=2))
    with pytest.raises(ValueError, match=f"has records of {tiny.D} features, these have {tiny.D + 1}"):
        pretrain_gan(gan, release(), steps=1, generator=torch.Generator())
    plan, config, points = DPGANPlan(steps=3), DPGANConfig(warm_start=tmp_path), load_ring(n_points=60, n_test=40)
    with pytest.raises(ValueError, match="only DPGAN on binary records has one"):
        fit(points, plan=plan, config=config, curator=Curator(plan.open_ledger()), runtime=Runtime(run_dir=tmp_path))
