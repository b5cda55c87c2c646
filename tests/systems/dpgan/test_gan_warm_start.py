"""DPGAN that starts from a release: trained without noise on public samples, charged once."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

import dpgen
from dpgen.data import load_ring
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.runtime import Runtime
from dpgen.systems.dp_sgd.training import NOTE
from dpgen.systems.dpgan.fit import DPGAN, fit, pretrain_gan
from dpgen.systems.dpgan.model import CorrectedModel
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


def untrained(directory: Path, **options: Any) -> DPGAN:
    config = DPGANConfig(hidden=8, warm_start=directory, **options)
    gan = DPGAN(d=tiny.D, plan=DPGANPlan(steps=3), config=config, n_classes=2, image_shape=(4, 4))
    gan.begin_from(release())
    return gan


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_before_the_first_step_the_records_are_those_of_the_release(network: Any, tmp_path: Path) -> None:
    gan = untrained(tmp_path, network=network)
    z, labels = gan.fakes(50, "critic")
    made = gan.generator(z, labels)
    assert torch.equal(made[:, : tiny.D], z)
    assert set(z.unique().tolist()) == {0.0, 1.0}
    assert labels is not None
    assert float(z[labels == 0].mean()) > 0.8 > 0.2 > float(z[labels == 1].mean()), "labels are those of the samples"
    model = CorrectedModel(release(), gan.released_generator(), statement=tiny.statement())
    drawn = model.samples(500, random_state=0)
    assert drawn.labels is not None
    assert float(drawn.x[drawn.labels == 0].float().mean()) == pytest.approx(0.9, abs=0.03)
    assert float(drawn.x[drawn.labels == 1].float().mean()) == pytest.approx(0.1, abs=0.03)
    means = gan.preview(8).mean((1, 2))
    assert float(means[0]) > 0.7 > 0.3 > float(means[1])


@pytest.mark.parametrize("critics", ["one", "labels"])
def test_a_step_of_a_correction_changes_records_towards_what_the_critic_takes_for_real(tmp_path: Path, critics: str) -> None:
    gan = untrained(tmp_path, generator_lr=0.05, critics=critics)
    gan.configure_optimizers()

    def score() -> float:
        return float(gan.bank.score(*gan._by_critic(gan.generator(*gan.fakes(256, "x")))).mean().detach())

    before = score()
    for turn in range(5):
        gan._teach_generator(turn)
    assert score() > before


def test_critics_of_labels_learn_from_samples_of_a_release_each_of_its_own(tmp_path: Path) -> None:
    """Class 0 of the start is mostly ones and class 1 mostly zeros: what is like the class scores higher."""
    config = DPGANConfig(hidden=3, latent=2, critics="labels", warm_start=tmp_path)
    gan = DPGAN(d=tiny.D, plan=DPGANPlan(steps=3), config=config, n_classes=2)
    pretrain_gan(gan, release(), steps=40, generator=torch.Generator().manual_seed(0))
    ones, zeros = torch.ones(2, tiny.D), torch.zeros(2, tiny.D)
    likes = (gan.bank.score(ones, [0, 1, 2]) - gan.bank.score(zeros, [0, 1, 2])).detach()
    assert float(likes[0]) > 0 > float(likes[1])


def test_a_corrected_model_is_its_files(tmp_path: Path) -> None:
    model, _ = fitted(tmp_path, warm_start_keep="trained", generator_lr=0.05)
    assert isinstance(model, CorrectedModel)
    model.save(tmp_path / "model")
    loaded = dpgen.load(tmp_path / "model")
    assert isinstance(loaded, CorrectedModel)
    mine, its = model.samples(40, random_state=3), loaded.samples(40, random_state=3)
    assert torch.equal(mine.x, its.x)
    assert mine.labels is not None
    assert its.labels is not None
    assert torch.equal(mine.labels, its.labels)
    assert loaded.noise_multiplier == 0.0
    some = model.samples(30, random_state=0, clusters=[1]).labels
    assert some is not None
    assert bool(some.eq(1).all())


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
    with pytest.raises(ValueError, match="only DPGAN on binary records and images has one"):
        fit(points, plan=plan, config=config, curator=Curator(plan.open_ledger()), runtime=Runtime(run_dir=tmp_path))
