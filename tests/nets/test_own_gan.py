"""Generators and critics of your own: what is refused before anything is spent, and what is released of them."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import own_gans
import pytest
import tiny
import torch
from own_gans import Judge, Maker
from refusals import refused

import dpgen
from dpgen.cli.main import main
from dpgen.config import parse_job
from dpgen.nets.own import OwnCriticBank
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.systems.dpgan.fit import DPGAN
from dpgen.systems.dpgan.plan import DPGANConfig, DPGANPlan

pytestmark = pytest.mark.usefixtures("quiet")

SMALL = {"steps": 2, "sampling_rate": 0.5, "fakes": 8, "critic_steps": 1, "delta": 1e-5}
D = 6


def fitted(network: Any, data: Any = None, **options: Any) -> Any:
    return dpgen.fit(tiny.records() if data is None else data, "dpgan", epsilon=2.0, network=network, **SMALL | options)


def values(release: Any) -> list[Any]:
    return list(release.samples(50, random_state=1).arrays().values())


# -- a fit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [Maker, [Maker, Judge], "own_gans:Maker", ("own_gans:Maker", Judge)])
def test_networks_are_trained_the_generator_is_released_and_loaded(network: Any, tmp_path: Path) -> None:
    release = fitted(network, generator_options={"hidden": 3})
    release.save(tmp_path)
    for a, b in zip(values(release), values(dpgen.load(tmp_path)), strict=True):
        assert (a == b).all()
    assert release.description()["generator"] == {
        "network": "own_gans:Maker",
        "network_options": {"hidden": 3},
        "d": tiny.D,
        "categories": tiny.CLASSES,
        "image_shape": (4, 4),
        "output": "sigmoid",
    }
    text = " ".join(release.statement.assumptions)
    assert "the generator own_gans:Maker makes records of its noise and labels alone" in text
    critic = not isinstance(network, type | str)
    assert ("the critic own_gans:Judge gets one record at a time" in text) == critic


def test_nothing_of_the_critic_is_released(tmp_path: Path) -> None:
    fitted((Maker, Judge)).save(tmp_path)
    assert b"Judge" not in (tmp_path / "model.json").read_bytes().split(b'"statement"')[0]
    assert not any(name.startswith("bank") or "last" in name for name in dpgen.load(tmp_path).tensors())


def test_points() -> None:
    points = np.random.default_rng(0).normal(size=(60, 2))
    release = fitted((own_gans.Plain, Judge), points.clip(-4, 4), bounds="-4,4")
    assert release.samples(20).x.shape == (20, 2)
    assert release.description()["generator"]["output"] == "identity"


REFUSED: list[tuple[str, str, str]] = [  # what a class of any kind is refused for is in test_own
    ("Wide", "Judge", "(5, 16)"),
    ("Plain", "Judge", "categories=2"),
    ("Outside", "Judge", "[0, 1]"),
    ("Untaught", "Judge", "no gradient"),
    ("Judge", "Judge", "method sample"),
    ("Maker", "Maker", "method score"),
    ("Maker", "Batched", "BatchNorm1d"),
    ("Maker", "Centred", "one by one"),
    ("Maker", "Absent", "Absent"),
]


@pytest.mark.parametrize(("generator", "critic", "word"), REFUSED)
def test_it_is_refused_in_one_line_before_anything_is_spent(generator: str, critic: str, word: str) -> None:
    ledger = Ledger(Budget(2.0, 1e-5))
    with refused(word):
        fitted([f"own_gans:{generator}", f"own_gans:{critic}"], ledger=ledger)
    assert (ledger.entries(), ledger.promised()) == ([], [])


def test_a_critic_of_the_package_keeps_its_options() -> None:
    config = DPGANConfig(network="own_gans:Maker", hidden=5)
    assert config.critic_bank(D, 0, None).shapes["0.weight"] == (5, D)


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_weights_come_from_public_randomness_alone() -> None:
    config, state = DPGANConfig(network=("own_gans:Maker", "own_gans:Judge"), fakes=8), torch.get_rng_state()
    plan = DPGANPlan(steps=2, sampling_rate=0.5, noise_multiplier=1.0, sigma_count=5.0)
    first, again = (DPGAN(d=D, plan=plan, config=config).state_dict().values() for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_critic_states_the_gradient_of_its_score_record_by_record() -> None:
    bank = OwnCriticBank(D, network=Judge)
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(0))
    x = torch.rand(3, D)
    both = bank.gradients(x, [0, 3], torch.randn), bank.fake_gradients(x, [0, 3])
    made = [tiny.one_by_one(g, 1, bank.p).float() for g in both]
    for i, (gradients, sign) in enumerate(zip(made, (-1.0, 1.0))):
        critic = bank.network().requires_grad_()
        losses = torch.nn.functional.softplus(sign * critic.score(x))
        for r in range(3):
            wanted = torch.autograd.grad(losses[r], list(critic.parameters()), retain_graph=True)
            assert torch.allclose(gradients[r], torch.cat([g.flatten() for g in wanted]), atol=1e-6), i


def test_running_statistics_are_released_and_samples_do_not_change_them(tmp_path: Path) -> None:
    release = fitted((Maker, Judge))
    before = {name: value.clone() for name, value in release.tensors().items()}
    values(release)
    assert all(torch.equal(before[name], value) for name, value in release.tensors().items())
    assert int(before["generator.module.layers.1.num_batches_tracked"]) > 0


def test_a_generator_that_is_not_imported_is_not_imported_by_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted((Maker, Judge), generator_options={"hidden": 3}).save(tmp_path)
    monkeypatch.delitem(sys.modules, "own_gans")
    with refused("own_gans:Maker"):
        dpgen.load(tmp_path)
    assert "own_gans" not in sys.modules
    assert len(values(dpgen.load(tmp_path, networks=[Maker]))) == 3
    assert main(["sample", str(tmp_path), "--network", "own_gans:Maker", "--out", str(tmp_path / "x.npz")]) == 0


# -- the command line ------------------------------------------------------------------------------------------------


def test_the_options_of_the_command_line(tmp_path: Path) -> None:
    root = Path(dpgen.__file__).parents[1] / "configs"
    pair = "--network=own_gans:Maker,own_gans:Judge"
    config = parse_job(["--model=dpgan", pair, '--generator_options={"hidden": 3}'], config_root=root).model.options
    assert (config.network, config.generator_options) == (("own_gans:Maker", "own_gans:Judge"), {"hidden": 3})
    assert parse_job(["--model=dpgan", "--network=own_gans:Maker"], config_root=root).model.options.network == "own_gans:Maker"
    settings = tmp_path / "settings.yaml"
    settings.write_text("model:\n  name: dpgan\n  network: [own_gans:Maker, own_gans:Judge]\n")
    assert parse_job([f"--config={settings}"]).model.options.own_networks == ("own_gans:Maker", "own_gans:Judge")
    with refused("own_gans", "mlp"):
        parse_job(["--model=dpgan", "--network=own_gans"])
