"""Networks that start from a release: free, charged once, and better than before."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from dpgen.nets import RBMBank, VAEBank
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.runtime import Runtime
from dpgen.systems import components
from dpgen.systems.dpgm_options import DPGMConfig, DPGMPlan
from dpgen.systems.gaussian.product_mixture import ProductMixture
from dpgen.systems.warm_start import NOTE, charge_prior, pretrain, released_start, with_prior

pytestmark = pytest.mark.usefixtures("quiet")


def release(**changes: Any) -> ProductMixture:
    """Class 0 is mostly ones, class 1 mostly zeros."""
    p = torch.tensor([[0.9], [0.1]]).expand(2, tiny.D)
    options: dict[str, Any] = {"n_classes": 2, "noise_multiplier": 2.0} | changes
    return ProductMixture(p, torch.tensor([30.0, 30.0]), statement=tiny.statement(), **options)


@pytest.mark.parametrize("kind", ["vae", "rbm"])
def test_networks_learn_what_the_release_knows(kind: str) -> None:
    bank = VAEBank(2, tiny.D, hidden=8, latent=2) if kind == "vae" else RBMBank(2, tiny.D, hidden=8, chains=16)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        bank.initialize(generator)
    pretrain(bank, release(), categories=0, by_label=True, steps=300, generator=generator)
    bank.begin_step()
    means = [float(bank.sample(c, 200, generator).mean()) for c in (0, 1)]
    assert means[0] > 0.6
    assert means[1] < 0.4


def test_labels_become_columns_where_networks_have_them() -> None:
    bank = VAEBank(1, tiny.D + 2, hidden=8, latent=2, categories=2)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        bank.initialize(generator)
    pretrain(bank, release(), categories=2, by_label=False, steps=20, generator=generator)
    assert bank.theta.isfinite().all()


def fit(directory: Path, epsilon: float = 6.0, **options: Any) -> tuple[Any, Ledger]:
    release().save(directory / "release")
    plan = DPGMPlan(epsilon=epsilon, steps=3, sampling_rate=0.5)
    config = DPGMConfig(hidden=3, latent=1, warm_start=directory / "release", warm_start_steps=5, **options)
    ledger = plan.open_ledger()
    runtime = Runtime(run_dir=directory, accelerator="cpu", progress_bar=False)
    return components.fit(tiny.records(), plan=plan, config=config, ledger=ledger, runtime=runtime), ledger


def test_the_ledger_and_the_statement_show_both(tmp_path: Path) -> None:
    model, ledger = fit(tmp_path)
    notes = [entry.note for entry in ledger.entries()]
    assert notes[0] == NOTE
    assert "training steps" in notes
    assert NOTE in {m["note"] for m in model.statement.mechanisms}
    assert 5.9 < ledger.epsilon() <= 6.0, "training takes what the release has left, all of it"


def test_a_release_of_public_records_costs_nothing(tmp_path: Path) -> None:
    _, ledger = fit(tmp_path, warm_start_origin="public")
    assert NOTE not in [entry.note for entry in ledger.entries()]


def test_a_resumed_run_pays_for_the_release_once() -> None:
    ledger, plan = Ledger(Budget(6.0, 1e-5)), DPGMPlan(epsilon=6.0, prior_multiplier=2.0)
    charge_prior(plan, ledger)
    charge_prior(plan, ledger)
    assert sum(entry.count for entry in ledger.entries()) == 1


def test_a_resumed_run_pays_for_another_release_in_the_same_place(tmp_path: Path) -> None:
    """The directory is an option, what lies in it may have changed while the run was interrupted."""
    path = tmp_path / "ledger.jsonl"
    with Ledger(Budget(9.0, 1e-5), path=path) as ledger:
        charge_prior(DPGMPlan(epsilon=9.0, prior_multiplier=8.0), ledger)
    with Ledger.open(path) as ledger:
        charge_prior(DPGMPlan(epsilon=9.0, prior_multiplier=8.0), ledger)
        once = ledger.epsilon()
        charge_prior(DPGMPlan(epsilon=9.0, prior_multiplier=1.0), ledger)
        assert ledger.epsilon() > 4 > once


def test_a_budget_below_the_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="budget epsilon 1 at delta 1e-05"):
        fit(tmp_path, epsilon=1.0)


def test_bad_starts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no released model"):
        released_start(tmp_path)
    with pytest.raises(ValueError, match="cost is not that of one Gaussian"):
        with_prior(DPGMPlan(), DPGMConfig(), tiny.mixture())
    bank, generator = VAEBank(2, tiny.D, hidden=2, latent=1), torch.Generator()
    with pytest.raises(ValueError, match="warm_start has no labels"):
        pretrain(bank, release(n_classes=0), categories=0, by_label=True, steps=1, generator=generator)
    with pytest.raises(ValueError, match=f"has records of {tiny.D} features, these have {tiny.D + 1}"):
        pretrain(
            VAEBank(2, tiny.D + 1, hidden=2, latent=1), release(), categories=0, by_label=True, steps=1, generator=generator
        )
