"""Networks that start from a release: free, charged once, and better than before."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from dpgen.nets import RBMBank, VAEBank
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.runtime import Runtime
from dpgen.systems.dp_sgd.choice import CHOICE
from dpgen.systems.dp_sgd.inputs import Inputs, TrainingData
from dpgen.systems.dp_sgd.training import FINGERPRINT, NOTE, Prior, begin, released_start, with_prior
from dpgen.systems.dpgm.fit import fit as fit_dpgm
from dpgen.systems.dpgm.fit import pretrain
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan
from dpgen.systems.marginals.model import ProductMixture

pytestmark = pytest.mark.usefixtures("quiet")


def training_data(d: int = tiny.D, n_classes: int = 2) -> TrainingData:
    """Records of d columns."""
    return TrainingData(inputs=Inputs(torch.zeros(4, d, dtype=torch.uint8), torch.zeros(4).long()), n_classes=n_classes)


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
    return fit_dpgm(tiny.records(), plan=plan, config=config, curator=Curator(ledger), runtime=runtime), ledger


def test_the_ledger_and_the_statement_show_both(tmp_path: Path) -> None:
    model, ledger = fit(tmp_path)
    notes = [entry.note for entry in ledger.entries()]
    assert notes[0] == f"{NOTE} (sha256 {release().sha256})"
    assert "training steps" in notes
    assert notes[0] in {m["note"] for m in model.statement.mechanisms}
    assert not any("public records" in text for text in model.statement.not_covered)
    assert 5.9 < ledger.epsilon() <= 6.0, "training takes what the release has left, all of it"


@pytest.mark.parametrize("first", [True, False])
def test_the_first_of_several_processes_alone_asks_whether_training_helped(
    first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runtime, "first", first)
    _, ledger = fit(tmp_path)
    assert [entry.note for entry in ledger.entries()].count(CHOICE) == first


@pytest.mark.filterwarnings("ignore:warm_start_origin")
def test_a_release_of_public_records_costs_nothing_and_the_statement_says_so(tmp_path: Path) -> None:
    model, ledger = fit(tmp_path, warm_start_origin="public")
    assert not any(entry.note.startswith(NOTE) for entry in ledger.entries())
    said = [text for text in model.statement.not_covered if "declared to be of public records" in text]
    assert len(said) == 1
    assert release().sha256 in said[0]
    assert "epsilon 1.25 at delta 1e-05 (add or remove one record)" in said[0]


def test_a_resumed_run_pays_for_the_release_once() -> None:
    ledger = Ledger(Budget(6.0, 1e-5))
    Prior(release(), 2.0).charged(Curator(ledger))
    Prior(release(), 2.0).charged(Curator(ledger))
    assert sum(entry.count for entry in ledger.entries()) == 1


@pytest.mark.parametrize("changes", [{"noise_multiplier": 1.0}, {"declared": ["another fit"]}])
def test_a_resumed_run_refuses_another_release_in_the_same_place(changes: dict[str, Any], tmp_path: Path) -> None:
    """The directory is an option, what lies in it may have changed while the run was interrupted."""
    path = tmp_path / "ledger.jsonl"
    with Ledger(Budget(9.0, 1e-5), path=path) as ledger:
        Prior(release(), 2.0).charged(Curator(ledger))
        Prior(release(), 2.0).require_same(ledger)
    other = release(**changes)
    with Ledger.open(path) as ledger:
        before = ledger.epsilon()
        with pytest.raises(ValueError, match="warm_start has changed: the ledger holds"):
            Prior(other, other.noise_multiplier).require_same(ledger)
        assert ledger.epsilon() == before


def test_a_public_start_that_was_charged_for_is_warned_about(tmp_path: Path) -> None:
    release().save(tmp_path / "release")
    config = DPGMConfig(warm_start=tmp_path / "release", warm_start_origin="public")
    with pytest.warns(UserWarning, match=r"names 1 charged mechanisms \(epsilon 1.25\): if any of its records is private here"):
        begin(DPGMPlan(), config, Curator(Ledger(Budget(9.0, 1e-5))), Runtime(run_dir=tmp_path), training_data())


@pytest.mark.filterwarnings("ignore:warm_start_origin")
def test_a_public_start_may_not_change_either(tmp_path: Path) -> None:
    release().save(tmp_path / "release")
    config = DPGMConfig(warm_start=tmp_path / "release", warm_start_origin="public")
    ledger, runtime = Ledger(Budget(9.0, 1e-5)), Runtime(run_dir=tmp_path)
    begin(DPGMPlan(), config, Curator(ledger), runtime, training_data())
    release(declared=["another fit"]).save(tmp_path / "release")
    begin(
        DPGMPlan(), config, Curator(ledger), runtime, training_data()
    )  # nothing was spent: a run that was refused binds nobody
    ledger.charge(gaussian_event(5.0), note="training steps")
    release().save(tmp_path / "release")
    with pytest.raises(ValueError, match="warm_start has changed: the run began from"):
        begin(DPGMPlan(), config, Curator(ledger), runtime, training_data())
    assert len((tmp_path / FINGERPRINT).read_text().strip()) == 64


def test_sparse_items_are_there_after_a_few_steps() -> None:
    p = torch.full((1, 300), 0.004)
    p[0, :3] = 0.3
    start = ProductMixture(p, torch.tensor([50.0]), statement=tiny.statement(), noise_multiplier=2.0)
    bank, generator = VAEBank(1, 300, hidden=8, latent=2), torch.Generator().manual_seed(0)
    with torch.no_grad():
        bank.initialize(generator)
    pretrain(bank, start, categories=0, by_label=False, steps=20, generator=generator)
    mean = bank.sample(0, 500, generator).mean(0)
    assert float(mean[3:].mean()) < 0.02
    assert float((mean[:3] - 0.3).abs().max()) < 0.1


def test_a_start_of_another_unit_is_refused_before_it_is_paid(tmp_path: Path) -> None:
    """What it cost a row is not what it cost a person with several."""
    release().save(tmp_path / "release")
    config, plan = DPGMConfig(warm_start=tmp_path / "release"), DPGMPlan(epsilon=6.0, unit="who")
    ledger = plan.open_ledger()
    with pytest.raises(ValueError, match=r"unit is 'one record'; it must be 'one person \(who\) with at most 1 row'"):
        begin(plan, config, Curator(ledger), Runtime(run_dir=tmp_path), training_data())
    assert not ledger.promised()


def test_a_budget_below_the_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"epsilon is 1; at delta 1e-05 this plan reaches no less than 2.004"):
        fit(tmp_path, epsilon=1.0)


def test_options_that_do_nothing_are_refused_before_the_start_is_paid(tmp_path: Path) -> None:
    config, ledger = DPGMConfig(warm_start=tmp_path / "release"), Ledger(Budget(9.0, 1e-5))
    with pytest.raises(ValueError, match="public_n is 80, which only component 'gaussian' uses"):
        begin(DPGMPlan(epsilon=9.0, public_n=80), config, Curator(ledger), Runtime(run_dir=tmp_path), training_data())
    assert not ledger.entries()


def test_bad_starts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no model"):
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


@pytest.mark.parametrize(
    ("shape", "match"),
    [
        ({"d": tiny.D + 1, "n_classes": 2}, f"has records of {tiny.D} features, these have {tiny.D + 1}"),
        ({"d": tiny.D, "n_classes": 1}, "warm_start has labels up to 1, these records have 1 classes"),
    ],
)
def test_a_start_that_does_not_fit_is_refused_before_it_is_charged(tmp_path: Path, shape: dict[str, int], match: str) -> None:
    release().save(tmp_path / "release")
    ledger = Ledger(Budget(9.0, 1e-5))
    config = DPGMConfig(warm_start=tmp_path / "release")
    with pytest.raises(ValueError, match=match):
        begin(DPGMPlan(epsilon=9.0), config, Curator(ledger), Runtime(run_dir=tmp_path / "run"), training_data(**shape))
    assert ledger.entries() == []
    assert not (tmp_path / "run").exists()
